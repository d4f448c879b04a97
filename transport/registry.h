/* SPDX-License-Identifier: BSD-3-Clause */
/* The transports of this build and this process. */
#ifndef BATONI_REGISTRY_H
#define BATONI_REGISTRY_H

#include "comm.h"

/* How to make the communicator of the whole job over one transport. */
struct batoni_world {
	enum baton_transport id;
	/* This process is part of a job that this transport can serve: it was
	 * started by a launcher, or the program runs the library already. */
	bool (*present)(void);
	/* baton_comm_create over it, the plan being checked; NULL: it was refused
	 * on this rank, which only tells the others.  Collective. */
	enum baton_status (*create)(const struct batoni_comm_plan *plan,
	                            struct baton_comm **comm_p);
};

/* transport/mpi_bootstrap.c, where MPI is built in. */
extern const struct batoni_world batoni_world_mpi;

/* The world for id (AUTO: the first that is present), or NULL: none present
 * (AUTO), or not in this build. */
const struct batoni_world *batoni_world_find(enum baton_transport id);

/* Has this build that transport's world? */
bool batoni_world_known(enum baton_transport id);

#endif
