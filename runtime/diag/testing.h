/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests may do that programs cannot.  Nothing in the library but the
 * definitions uses this. */
#ifndef BATONI_TESTING_H
#define BATONI_TESTING_H

#include "clock.h"
#include "device.h"
#include "observer.h"
#include "transport.h"

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

/* The device that a communicator opened, for fakes that need it. */
struct batoni_device *batoni_comm_device(struct baton_comm *comm);

#endif
