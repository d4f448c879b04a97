/* SPDX-License-Identifier: BSD-3-Clause */
/* Building a communicator from a device and an opened transport.  Included by the engine
 * and by transport/mpi_bootstrap.c. */
#ifndef BATONI_COMM_H
#define BATONI_COMM_H

#include "device.h"
#include "transport.h"

/* The options after checks and defaults.  The fields that all ranks must agree on come
 * first. */
struct batoni_comm_plan {
	enum baton_device device;
	enum baton_transport transport;
	const struct batoni_device_ops *device_ops;
	bool stream_issued; /* the transport's kind */
	int size;           /* of the communicator, once it is known */
	uint32_t requests_max;
	int signals_max, contexts_max;
	int64_t timeout_ns; /* 0: none */
	enum baton_progress progress;
	bool timestamps;
};

/* The transport's configuration for such a communicator of `size` ranks.  A stream-issued
 * transport has no one-sided operations. */
struct batoni_transport_config
batoni_comm_transport_config(const struct batoni_comm_plan *plan, int size);

/* Check the options (NULL: the defaults) and fill *plan_p.  OK, INVALID, UNSUPPORTED
 * (with a sentence by batoni_refuse). */
enum baton_status
batoni_comm_plan(const struct baton_comm_options *options,
                 struct batoni_comm_plan *plan_p);

/*
 * Build a communicator in two steps.  Between them a collective creation lets the ranks
 * agree on whether all got their memory.  prepare takes everything that can fail on this
 * rank alone (table entry, pool, device, engine thread, one-sided layer for plan->size
 * ranks): OK, NOMEM, AGAIN, SYSTEM, UNSUPPORTED.  Then the caller calls either start,
 * which takes over the transport and cannot fail, or discard.
 */
enum baton_status batoni_comm_prepare(const struct batoni_comm_plan *plan,
                                      struct baton_comm **comm_p);
void batoni_comm_start(struct baton_comm *comm,
                       struct batoni_transport *transport);
void batoni_comm_discard(struct baton_comm *comm);

/* The driver lock, for a library that only one thread at a time may call.  Hold it around
 * calls of that library, never across a wait for a peer. */
void batoni_driver_take(void);
void batoni_driver_leave(void);
/* Between two polls for something that a peer sends: leave, pause, take. */
void batoni_driver_yield(unsigned tries);

/* Stop the engine's thread for good: at exit, before a library below Baton is finalised.
 * From then on only calls make progress.  False: this thread was interrupted in a call of
 * Baton, or the engine's thread does not end.  Nothing below Baton may then be finalised,
 * since a lock may be held for ever. */
bool batoni_engine_stop(void);

#endif
