/* SPDX-License-Identifier: BSD-3-Clause */
/* The public call that names an MPI type: the rest is that of all creations. */
#include "baton_mpi.h"
#include "comm.h"
#include "creation.h"
#include "registry.h"
#include "thread.h"

/* The other ranks are told of a NULL comm_p, as of refused options. */
static enum baton_status
setup_for(const struct baton_comm_options *options, struct baton_comm **comm_p,
          struct batoni_comm_setup *setup)
{
	if (!comm_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "comm_p is NULL: it must point to where "
		                     "the communicator goes");
	return batoni_comm_setup(options, setup);
}

enum baton_status
(baton_comm_create_mpi)(MPI_Comm parent,
                        const struct baton_comm_options *options,
                        struct baton_comm **comm_p)
{
	const struct batoni_world *world = batoni_world_of(BATON_TRANSPORT_MPI);
	struct batoni_creation creation;
	struct batoni_comm_setup setup;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create_mpi");
	status = setup_for(options, comm_p, &setup);
	batoni_creation_begin(&creation, status == BATON_OK ? &setup : NULL,
	                      status);
	/* A refusal of this call is this rank's alone. */
	status = world->join_over(&batoni_engine_calls, &parent,
	                          &creation.bootstrap);
	return status == BATON_OK ? batoni_creation_run(&creation, comm_p)
	                          : status;
}
