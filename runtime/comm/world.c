/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of all processes of a job: baton_comm_create. */
#include "creation.h"

#include "comm.h"
#include "health.h"
#include "launcher.h"
#include "log.h"
#include "registry.h"
#include "testing.h"

/* No transport of this build has found its launcher.  Warns if the environment names
 * one. */
static void
warn_alone(void)
{
	if (batoni_world_of(BATON_TRANSPORT_MPI))
		batoni_warn_alone("it was started without PMI, so MPI cannot "
		                  "find the others",
		                  "start it by this MPI's mpirun, or by srun "
		                  "--mpi=pmix (srun --mpi=list names others)");
	else
		batoni_warn_alone("this build of Baton has no MPI",
		                  "install an MPI and build Baton again with "
		                  "-DBATON_WITH_MPI=ON (or ask for "
		                  "BATON_TRANSPORT_LOCAL)");
}

/* setup NULL: it was refused on this rank, which only tells the others. */
static enum baton_status
create_in_world(const struct batoni_world *world,
                const struct batoni_comm_setup *setup, enum baton_status refused,
                struct baton_comm **comm_p)
{
	struct batoni_creation creation;
	enum baton_status status;

	batoni_creation_begin(&creation, setup, refused);
	status = world->join(&batoni_engine_calls, setup ? setup->timeout_ns : 0,
	                     &creation.bootstrap);
	return status == BATON_OK ? batoni_creation_run(&creation, comm_p)
	                          : batoni_creation_missed(&creation, status);
}

/* That of the transport that is asked for, or NULL: this process is part of none. */
static const struct batoni_world *
find_world(enum baton_transport asked)
{
	const struct batoni_world *world = batoni_world_of(asked);

	if (asked == BATON_TRANSPORT_MPI)
		return world;
	/* MPI's refuses near, on all ranks.  A native transport has no way to find the other ranks:
	 * any world is good. */
	return asked == BATON_TRANSPORT_NEAR && world->present()
	               ? world
	               : batoni_world_present();
}

enum baton_status
baton_comm_create(const struct baton_comm_options *options,
                  struct baton_comm **comm_p)
{
	const struct batoni_world *world;
	struct batoni_comm_setup setup;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create");
	if (!comm_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create: comm_p is NULL");
	status = batoni_comm_setup(options, &setup);
	if (status != BATON_OK) {
		/* The other ranks wait for this one in the collective creation. */
		world = batoni_world_present();
		return world ? create_in_world(world, NULL, status, comm_p)
		             : status;
	}
	if (setup.transport == BATON_TRANSPORT_LOCAL)
		return baton_comm_create_local(1, options, comm_p);
	world = find_world(setup.transport);
	if (world)
		return create_in_world(world, &setup, BATON_OK, comm_p);
	if (setup.transport == BATON_TRANSPORT_MPI)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "options->transport is BATON_TRANSPORT_MPI: "
		                     "this build of Baton has no MPI; install one "
		                     "(Debian: libopenmpi-dev, openmpi-bin) and "
		                     "build again with -DBATON_WITH_MPI=ON");
	/* No launcher: a world of one rank. */
	warn_alone();
	return baton_comm_create_local(1, options, comm_p);
}

enum baton_status
batoni_comm_create_mpi_with(const struct batoni_device_ops *device,
                            const struct baton_comm_options *options,
                            struct baton_comm **comm_p)
{
	const struct batoni_world *world = batoni_world_of(BATON_TRANSPORT_MPI);
	struct batoni_comm_setup setup;
	enum baton_status status = batoni_comm_setup(options, &setup);

	if (status != BATON_OK || !world)
		return status == BATON_OK ? BATON_ERR_UNSUPPORTED : status;
	batoni_comm_setup_on(&setup, device);
	return create_in_world(world, &setup, BATON_OK, comm_p);
}
