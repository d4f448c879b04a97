/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry.h"

static const struct batoni_world *const worlds[] = {
#ifdef BATONI_WITH_MPI
	&batoni_world_mpi,
#endif
	NULL,
};

const struct batoni_world *
batoni_world_find(enum baton_transport id)
{
	for (size_t i = 0; worlds[i]; i++) {
		if (id == BATON_TRANSPORT_AUTO ? worlds[i]->present()
		                               : worlds[i]->id == id)
			return worlds[i];
	}
	return NULL;
}

bool
batoni_world_known(enum baton_transport id)
{
	for (size_t i = 0; worlds[i]; i++) {
		if (worlds[i]->id == id)
			return true;
	}
	return false;
}
