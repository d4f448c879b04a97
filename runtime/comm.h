/* SPDX-License-Identifier: BSD-3-Clause */
/* How a communicator is put together from a device and an opened transport.
 * Seen by the engine and by transport/mpi_bootstrap.c. */
#ifndef BATONI_COMM_H
#define BATONI_COMM_H

#include "device.h"
#include "transport.h"

/* Options after checking and defaults; what ranks must agree on is first. */
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

/* What the transport of such a communicator of that many ranks is opened with.  No
 * one-sided operations where the transport is stream-issued. */
struct batoni_transport_config
batoni_comm_transport_config(const struct batoni_comm_plan *plan, int size);

/* Check the options (NULL: the defaults) and fill *plan_p.  OK, INVALID,
 * UNSUPPORTED (batoni_refuse has been told). */
enum baton_status
batoni_comm_plan(const struct baton_comm_options *options,
                 struct batoni_comm_plan *plan_p);

/*
 * Build a communicator in two steps, so that a collective creation can agree
 * between them on whether all ranks got their memory:
 * prepare takes all that can fail on this rank alone (table entry, pool, device,
 * engine thread, one-sided layer for plan->size ranks); OK, NOMEM, AGAIN, SYSTEM, UNSUPPORTED.  Then either start,
 * which takes the transport over and cannot fail, or discard.
 */
enum baton_status batoni_comm_prepare(const struct batoni_comm_plan *plan,
                                      struct baton_comm **comm_p);
void batoni_comm_start(struct baton_comm *comm,
                       struct batoni_transport *transport);
void batoni_comm_discard(struct baton_comm *comm);

/* The driver's lock, for a library that is called by one thread at a time: around
 * calls of it, not across anything that waits for a peer. */
void batoni_driver_take(void);
void batoni_driver_leave(void);
/* Between two looks at what a peer has to bring: leave, pause, take. */
void batoni_driver_yield(unsigned tries);

/* Stop the engine's thread for good: at exit, before a library below goes away.
 * What is pending moves by calls alone from now on.  False: this thread was interrupted
 * in a call of Baton, or the engine's thread does not end; nothing below Baton may be
 * finalised, since a lock may be held for ever. */
bool batoni_engine_stop(void);

#endif
