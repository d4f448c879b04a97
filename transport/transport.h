/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport contract: what the engine requires of a transport.
 *
 * Transports are of two kinds.
 *
 * Host-issued (local, MPI): the engine passes one transfer at a time to `issue`, after it
 * is armed, in the order of its FIFO; `test` makes progress and ends transfers by calling
 * host->done.  Only the thread that drives the engine (the "driver") makes these calls.
 * The process has one driver at a time, so a transport needs no locks for them.
 *
 * Stream-issued (NCCL, CUDA windows): `enqueue` puts transfers on the stream at
 * the call (or at the end of a group), on the enqueuing thread.  The engine watches
 * the stream with the device's marks and ends the transfers itself.
 *
 * Only the engine completes requests.  A transport reports the end of a transfer
 * exactly once: by the status that `issue` or `take_back` returns, or by host->done.
 */
#ifndef BATONI_TRANSPORT_H
#define BATONI_TRANSPORT_H

#include <pthread.h>

#include "field.h"
#include "load.h"
#include "shm.h"

/* Transports get the first two; the others belong to the one-sided layer
 * (runtime/onesided.h). */
enum batoni_direction {
	BATONI_SEND,
	BATONI_RECV,
	BATONI_PUT, /* or a signal alone: window is NULL */
	BATONI_WAIT
};

/* One end of a message, or one one-sided operation.  Embedded in the engine's record; the
 * transport owns it from issue to its end. */
struct batoni_transfer {
	void *buffer;        /* a send's is only read */
	size_t bytes;        /* to send; capacity of a receive */
	/* Out, at the end: bytes sent, or arrived.  Set by batoni_transfer_moved. */
	size_t done_bytes;
	baton_stream stream; /* for stream-issued transports */
	/* Out, when it ends in an error of the library below: the call ("MPI_Irecv", a
	 * string constant) and its code. */
	const char *native_call;
	int native_code;
	int peer;
	int tag; /* of a BATONI_PUT: the context */
	/* This record's index in the pool, below requests_max: a transport's own state
	 * of a transfer is in arrays by slot. */
	union {
		struct {
			uint32_t slot : 24;
			uint32_t direction : 8; /* enum batoni_direction */
		};
		/* Both, written by one store.  With two stores, a load soon after
		 * them would stall: no store-to-load forwarding. */
		uint32_t slot_direction;
	};
};

/* Report how many bytes were sent or have arrived. */
static inline void
batoni_transfer_moved(struct batoni_transfer *transfer, size_t bytes)
{
	batoni_set(transfer->done_bytes, bytes);
}

struct batoni_transport;

/* The engine's callbacks for a transport. */
struct batoni_transport_host {
	/* The transfer has ended (or, if it was LENT, its buffer is free).
	 * Call it only from within issue, test, take_back or lost.  It does not
	 * call back into the transport. */
	void (*done)(struct batoni_transport_host *host,
	             struct batoni_transfer *transfer, enum baton_status status);
	/* The transport is broken for good: every pending request will end with
	 * `fatal`.  call, code and text come from the library below.  Call it only
	 * from within issue, test, take_back. */
	void (*broken)(struct batoni_transport_host *host,
	               enum baton_status fatal, const char *call, int code,
	               const char *text);
	/* The library below is about to be finalised (the program finalises MPI).
	 * Any thread, not from within a slot.  When it returns, all requests have
	 * ended in ABORTED, and the engine will call no slot but close(aborted). */
	void (*lost)(struct batoni_transport_host *host, const char *why);
};

struct batoni_transport_ops {
	const char *name;
	enum baton_transport id;
	bool stream_issued;

	/* Start the transfer.  Driver; must not block, must not copy more than
	 * 16 KiB.  PENDING: host->done will end it.  Any other status: the transfer
	 * has ended in it (done_bytes is set), and the transport holds nothing. */
	enum baton_status (*issue)(struct batoni_transport *transport,
	                           struct batoni_transfer *transfer);
	/* One bounded pass over what is in flight (about 1 MiB of copying, a
	 * batch of tests).  Driver; must not block.  Returns the number of events
	 * (transfers ended, phases entered). */
	size_t (*test)(struct batoni_transport *transport);
	/* End an issued transfer early.  Driver; must not block.
	 * CANCELED: taken back; the peer has seen nothing of it, and the transport
	 * holds nothing.  OK, TRUNCATED or an error: it has just ended in that status,
	 * done_bytes is set.  BUSY: in progress, cannot be taken back; the buffer
	 * stays lent until the transport calls host->done. */
	enum baton_status (*take_back)(struct batoni_transport *transport,
	                               struct batoni_transfer *transfer);

	/* Stream-issued only.  Put n transfers (one, or a whole group, in call
	 * order) on their streams.  Detached: on streams of the transport's own
	 * that follow the transfers' streams.  The enqueuing thread, under the
	 * order lock; must not wait for a peer.  OK: observe_p[i] is the stream
	 * on which transfer i will be seen to end.  Anything else: nothing was
	 * enqueued.  UNSUPPORTED, NCCL, CUDA. */
	enum baton_status (*enqueue)(struct batoni_transport *transport,
	                             struct batoni_transfer *const *transfers,
	                             size_t n, bool detached,
	                             baton_stream *observe_p);
	/* Stream-issued only: end everything that is on the streams, so that they
	 * continue.  Driver.  Afterwards only close is called. */
	void (*abort)(struct batoni_transport *transport);

	/* Host-issued only: an all-gather.  Each rank contributes `bytes` (1 to INT_MAX)
	 * and receives those of all ranks, by rank, in `all`; `what` (below 2^63) names
	 * the purpose.  PENDING until all ranks have called, then OK.  The engine repeats
	 * the call with the same arguments until then, one exchange at a time.  Driver;
	 * must not block.
	 * INVALID (`what` or `bytes` are not the same on all ranks) and NOMEM (some
	 * rank had no memory, or its `all` is NULL) are returned on all ranks, and the
	 * next exchange works.  After PEER (a rank has closed) and MPI no exchange is
	 * possible. */
	enum baton_status (*exchange)(struct batoni_transport *transport,
	                              uint64_t what, const void *mine,
	                              size_t bytes, void *all);

	/* Leave the communicator together with all other ranks: PENDING until all have
	 * called it, then OK.  Driver, repeatedly; must not block.  INVALID, on all
	 * ranks: other ranks called `exchange`; the caller may retry.  Any other error
	 * makes leaving impossible. */
	enum baton_status (*leave)(struct batoni_transport *transport);
	/* Free everything.  The thread that destroys, holding the driver lock.
	 * aborted: the communicator was aborted or is broken; the transport must not
	 * communicate, and transfers may still be lent. */
	void (*close)(struct batoni_transport *transport, bool aborted);

	/* The library's text for native_code, truncated to size.  Any thread. */
	void (*error_text)(struct batoni_transport *transport, int code,
	                   char *text, size_t size);
};

/* Which threads may call issue, test, take_back and leave. */
enum batoni_drivers {
	BATONI_DRIVERS_ANY,     /* all, the engine's own too */
	BATONI_DRIVERS_CALLERS, /* threads of the program that call Baton */
	BATONI_DRIVERS_MAIN     /* main_thread alone */
};

/*
 * The memory of a rank that this process can reach without messages.  The code that
 * creates the communicator fills it in, and closing the transport frees it.
 */
struct batoni_peer {
	/* The rank's segment, mapped into this process; of this rank, its own.  Zeroed
	 * at first, aligned to 64 bytes; the one-sided layer defines its length and
	 * content.  NULL: not reachable. */
	void *segment;
	/* The bell on which threads of the rank's process sleep; not NULL if segment is
	 * not. */
	struct batoni_bell *bell;
	pid_t pid;  /* the rank's process, if it is on this host and `within` or held
	             * by pidfd; else 0 */
	int pidfd;  /* of that process; -1: this process, or none available */
	bool within; /* the rank lives in this process: no mapping is needed */
	/* The rank has mapped this rank's segment and bell. */
	bool reaches_us;
	/* Written by the engine: the rank's process has ended. */
	bool gone;
};

/* Must be first in every transport.  The leaf sets all fields but `host` before it
 * hands the transport over; the engine sets `host`. */
struct batoni_transport {
	const struct batoni_transport_ops *ops;
	struct batoni_transport_host *host;
	int rank;
	int size;
	int tag_max;
	unsigned capabilities; /* BATON_CAP_* */
	enum batoni_drivers drivers;
	pthread_t main_thread;
	char library[128]; /* for baton_comm_query */
	/* The transport writes these; the engine reads them between calls (driver). */
	/* Slots of transfers are 0 to slots-1.  Requests use those below requests_max;
	 * the one-sided layer's own messages use the others.  Those messages have
	 * hidden_tags tags, from hidden_tag (above tag_max) on. */
	uint32_t slots;
	int hidden_tag;
	int hidden_tags;
	/* The `peer` of a receive from any rank; on the last hidden tag only. */
	int any_peer;
	/* The pages of segments are allocated by batoni_shm_populate, not before. */
	bool sparse_segments;
	struct batoni_peer *peers; /* by rank; NULL: this transport has none */
	/* in_flight and moving: transfers.  Unmatched receives do not move. */
	struct batoni_load load;
};

/* The configuration that a transport is opened with. */
struct batoni_transport_config {
	uint32_t slots;
	int hidden_tags;
	size_t segment_bytes; /* of each rank; 0: no segments, and no peers */
};

/* transport/local.c: opens all ranks at once, transports[0..size-1].  Each rank is closed
 * by itself.  OK, NOMEM. */
enum baton_status batoni_local_open(int size,
                                    const struct batoni_transport_config *config,
                                    struct batoni_transport *transports[]);

#endif
