/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of a native transport: one that moves memory of a device by a library of
 * the device's own, on its streams.
 *
 * Such a library cannot find the other ranks by itself.  So a native transport is layered on
 * another one (local, MPI, the side channel), which knows them: it uses that one's `exchange`,
 * `leave`, `clear` and `close`; and its messages, between memory of the host, for what the
 * processes tell each other while it is open.  The one-sided layer's messages, if there is one, are transfers
 * of that transport too: it is their `hosts` (transport.h).  The native transport passes
 * their ends on to its node; the engine tests them.  So are messages of the program between near ranks
 * (pairs.h), where near is forced (lower_carries).  Those have tags below the last one of that transport's,
 * which is for what the processes tell each other.
 *
 * The engine gets it from registry.h, and drives its opening in runtime/comm/open_native.c.
 */
#ifndef BATONI_NATIVE_H
#define BATONI_NATIVE_H

#include "device.h"
#include "transport.h"

struct batoni_native;

struct batoni_native_config {
	struct batoni_device *device; /* outlives the transport */
	int size;                     /* of the communicator */
	int lanes;          /* at most so many, the same on all ranks; 0: as it likes */
	int ctas;           /* of a lane's kernels, likewise */
	uint64_t until_ns;  /* for the device, as words_alloc */
	int64_t timeout_ns; /* how long opening may wait for peers; 0: the default */
	uint32_t slots; /* transfers have slots below this */
	/* Its own transfers of the lower transport have slots from here on; those below this
	 * are the one-sided layer's, and there is one if it is not 0. */
	uint32_t lower_slot;
	bool check;     /* compare the two sides of a message before it travels */
	bool lists;     /* it is to have a path of lists (transport.h); checked mode needs none */
	bool lower_carries; /* messages of the program between some ranks go by `lower`, not by this one */
	/* Around calls of the lower transport: they are the driver's. */
	void (*driver_lock)(void);
	void (*driver_unlock)(void);
};

struct batoni_native_ops {
	enum baton_transport id;
	/* In sentences, and in the environment. */
	const char *name, *constant;
	/* What it moves, and what a communicator needs for that. */
	const char *moves, *needs;
	/* For baton_comm_query, of a communicator on another transport: why, where the device
	 * is the one that it takes, and where it is another. */
	const char *why_not_asked, *why_no_device;
	/* Why messages of its communicators do not go through memory that the ranks share. */
	const char *why_not_near;
	/* The slots that it needs of the lower transport: the same on all ranks.  Any thread. */
	uint32_t (*slots)(int size);
	/* Take everything that can fail on this rank alone.  The thread that creates; may
	 * block, but not for a peer.  OK; UNSUPPORTED (no library, or a device that it does
	 * not know), NOMEM, CUDA: batoni_refuse has said why. */
	enum baton_status (*create)(const struct batoni_native_config *config,
	                            struct batoni_native **native_p);
	/* Free what was not opened; `lower` stays the caller's.  The thread that creates;
	 * waits for the library, not for a peer. */
	void (*discard)(struct batoni_native *native);
	/* One step of opening it over `lower`, the same at each call.  The thread that
	 * creates, without the driver lock; does not wait for a peer.  PENDING: call again.
	 * OK: *transport_p, which owns `lower`.  An error, on all ranks, with a sentence: it
	 * is to be discarded, and `lower` to be closed as aborted. */
	enum baton_status (*step)(struct batoni_native *native,
	                          struct batoni_transport *lower,
	                          struct batoni_transport **transport_p);
};

/* transport/nccl/ */
extern const struct batoni_native_ops batoni_native_ops;

#endif
