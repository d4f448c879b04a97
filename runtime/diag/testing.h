/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests may do that programs cannot.  Nothing in the library but the
 * definitions uses this. */
#ifndef BATONI_TESTING_H
#define BATONI_TESTING_H

#include "clock.h"
#include "device.h"
#include "transport.h"

struct batoni_op;
struct baton_comm;

/* All ranks over transports that are open already, one for each rank, which the
 * communicators take over (on an error they stay the caller's). */
enum baton_status
batoni_comm_create_over(const struct batoni_device_ops *device,
                        struct batoni_transport *transports[], int size,
                        const struct baton_comm_options *options,
                        struct baton_comm *comms[]);

/* baton_comm_create_local on any device. */
enum baton_status
batoni_comm_create_local_with(const struct batoni_device_ops *device, int size,
                              const struct baton_comm_options *options,
                              struct baton_comm *comms[]);

/* The same, each rank on a device of its own. */
enum baton_status
batoni_comm_create_local_mixed(const struct batoni_device_ops *const devices[],
                               int size,
                               const struct baton_comm_options *options,
                               struct baton_comm *comms[]);

/* baton_comm_create over MPI on any device.  Collective.  UNSUPPORTED: this build has no
 * MPI. */
enum baton_status
batoni_comm_create_mpi_with(const struct batoni_device_ops *device,
                            const struct baton_comm_options *options,
                            struct baton_comm **comm_p);

/* What is told of each move of a record from state to state (enum batoni_op_state), on the
 * thread that moves it; it may only look.  For ISSUED it returns OK, or the status in which
 * the operation ends without being issued (a stream-issued one: in which its communicator
 * breaks). */
struct batoni_observer {
	enum baton_status (*moved)(void *context, const struct batoni_op *op,
	                           unsigned state);
	void *context;
	/* Both may be NULL; the driver.  left: the record in that slot has ended, and everybody has
	 * been told.  copying: bytes of the operation, which is issued, begin to be copied between
	 * its buffer and memory of its path, or are not copied any more. */
	void (*left)(void *context, const struct baton_comm *comm, uint32_t slot);
	void (*copying)(void *context, const struct batoni_op *op, bool begins);
};

/* For the communicators that are made from now on; NULL: none.  It stays the caller's, and
 * stays as long as they live. */
void batoni_observer_set(const struct batoni_observer *observer_or_null);

/* The device that a communicator opened, for fakes that need it. */
struct batoni_device *batoni_comm_device(struct baton_comm *comm);

#endif
