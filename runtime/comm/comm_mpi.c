/* SPDX-License-Identifier: BSD-3-Clause */
/* The public call that names an MPI type: the rest is the MPI transport's. */
#include "baton_mpi.h"
#include "comm.h"
#include "registry.h"
#include "thread.h"

enum baton_status
(baton_comm_create_mpi)(MPI_Comm parent,
                        const struct baton_comm_options *options,
                        struct baton_comm **comm_p)
{
	const struct batoni_world *world = batoni_world_of(BATON_TRANSPORT_MPI);
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create_mpi");
	return world->create_over(&batoni_builder, &parent, options, comm_p);
}
