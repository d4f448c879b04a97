/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract by which a transport is opened over a bootstrap (bootstrap.h): what it makes of
 * the ranks' setups, and the steps of opening.
 *
 * The engine's creation asks each rank's transport about the setup (check, reach), tells all
 * ranks' answers to each (agree), and then calls `step`.  Between two steps the ranks tell each
 * other how the step went, and exchange the cards that it has written.
 */
#ifndef BATONI_OPENING_H
#define BATONI_OPENING_H

#include "bootstrap.h"
#include "device.h"
#include "transport.h"

/* The options after checks and defaults. */
struct batoni_comm_setup {
	enum baton_device device;
	enum baton_transport transport;
	const struct batoni_device_ops *device_ops;
	/* host_rank is -1 where no launcher tells it: the creation fills it in. */
	struct batoni_device_config device_config;
	bool onesided;      /* signals and windows, where the transport has peers */
	int size;           /* of the communicator, once it is known */
	uint32_t requests_max;
	int signals_max, contexts_max;
	uint32_t tensors_max;
	int nccl_lanes;     /* 0: as many as are of use */
	int nccl_ctas;      /* 0: half of the GPU among them */
	bool nccl_lists;    /* NCCL is to carry lists */
	int64_t timeout_ns; /* 0: none */
	enum baton_progress progress;
	bool timestamps;
	bool check; /* the two sides of a message are compared */
	/* Messages may go through memory that the ranks share (pairs.h).  `check` of the opening sets
	 * what this rank alone would have; the ranks have it if all of them would. */
	bool near;
	/* And no others: pairs of ranks that cannot are refused.  Never with a native transport, which
	 * keeps the pairs that are not near. */
	bool near_only;
	/* Agreed on by all ranks before any prepares, because the format of what travels
	 * follows from it.  `setup` sets what this rank alone would have. */
	bool stages;            /* some rank's messages may be memory of a device that the
	                         * transport cannot reach: all ranks speak staging's protocol */
	bool direct;            /* the transport reaches the memory of this rank's device */
	bool apart;             /* it does on some rank: each tensor of a list is a message of
	                         * its own */
	uint32_t requests_most; /* the largest requests_max */
	size_t message_max; /* of a native one's lower transport; 0: any length */
	bool splits; /* the communicator is of ranks of another one */
	/* Of traces, agreed on by all ranks: the communicator's number, and that of the one that it is made
	 * from; 0: this rank keeps no trace, or there is none. */
	uint64_t trace_id, trace_parent;
	bool traced; /* by all ranks */
	int trace_error; /* why this rank's folder cannot be used; 0: it can, or is not asked for */
};

/* Is a native transport (native.h) to be layered on the one that is opened? */
static inline bool
batoni_setup_is_native(const struct batoni_comm_setup *setup)
{
	return setup->transport != BATON_TRANSPORT_AUTO &&
	       setup->transport == setup->device_ops->native;
}

/* What the transport does with memory of a rank's device. */
enum batoni_reach {
	BATONI_REACH_STAGES, /* it reaches memory of the host only */
	BATONI_REACH_ALL,    /* it reaches the device's, or there is none */
	BATONI_REACH_FORCED  /* the program says that it does */
};

/* What follows from all ranks' setups. */
struct batoni_accord {
	/* Messages may have memory of some rank's device that is not the host's: what does not reach
	 * it is staged. */
	bool stages;
	int unable;        /* the lowest rank with BATONI_REACH_STAGES, or -1 */
	int forced;        /* likewise, BATONI_REACH_FORCED */
};

#define BATONI_CARD_BYTES 176u

/* Those of all ranks. */
struct batoni_cards {
	const unsigned char *first;
	size_t stride;
};

static inline const void *
batoni_card_of(const struct batoni_cards *cards, int rank)
{
	return cards->first + (size_t)rank * cards->stride;
}

struct batoni_opening {
	const struct batoni_engine_calls *engine;
	struct batoni_bootstrap *bootstrap;
	const struct batoni_comm_setup *setup;
	/* From here on once the communicator is prepared. */
	struct batoni_device *device; /* this rank's */
	struct batoni_transport_config config;
	int round; /* so many steps were made before */
	/* The transport's. */
	void *own;
	struct batoni_transport *transport; /* when it is open */
	alignas(8) unsigned char card[BATONI_CARD_BYTES];
};

/* The transport needs to know its communicator. */
struct batoni_starting_ops {
	/* The communicator has started. */
	void (*started)(struct batoni_opening *opening, struct baton_comm *comm);
};

struct batoni_opening_ops {
	const struct batoni_starting_ops *starting; /* or NULL */

	/* May this rank's setup be carried out over the bootstrap?  Fills in setup->transport if
	 * that is AUTO.  OK; UNSUPPORTED, with a sentence.  The driver lock is not held. */
	enum baton_status (*check)(const struct batoni_bootstrap *bootstrap,
	                           struct batoni_comm_setup *setup);
	/* With the driver lock: it may ask the native library. */
	enum batoni_reach (*reach)(const struct batoni_device_ops *device);
	/* Set `stages`, `direct`, `apart` and message_max of the setup; it may clear `near`, on
	 * all ranks alike.  OK; INVALID, on all ranks, with a sentence. */
	enum baton_status (*agree)(const struct batoni_accord *accord,
	                           struct batoni_comm_setup *setup);
	/* One step, the same on all ranks.  `cards` are those that the step before has written on
	 * each; NULL at first.  PENDING: opening->card is written, and the next step is due when
	 * all ranks have got so far.  OK: opening->transport is open, and owns what it needs of the
	 * bootstrap; no step returns that first, and it returns it on all ranks.  An error, with
	 * a sentence: all ranks give up.  The thread that creates, without the driver lock; may
	 * block, but not for a peer. */
	enum baton_status (*step)(struct batoni_opening *opening,
	                          const struct batoni_cards *cards);
	/* Close what was opened, as after an abort, or free what was taken; nothing, if no step was
	 * made.  Without the driver lock. */
	void (*give_up)(struct batoni_opening *opening);
};

/* Over each kind of bootstrap: transport/local/opening.c, transport/mpi/opening.c (where MPI
 * is built in), transport/bootstrap/socket/opening.c */
extern const struct batoni_opening_ops batoni_opening_local_ops;
extern const struct batoni_opening_ops batoni_opening_mpi_ops;
extern const struct batoni_opening_ops batoni_opening_tcp_ops;

#endif
