/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry.h"

/* transport/mpi/bootstrap.c */
extern const struct batoni_world batoni_world_mpi;

static const struct batoni_device_ops *const devices[] = {
	&batoni_device_host_ops,
	NULL,
};

static const struct batoni_world *const worlds[] = {
#ifdef BATONI_WITH_MPI
	&batoni_world_mpi,
#endif
	NULL,
};

const struct batoni_device_ops *
batoni_device_find(enum baton_device id)
{
	size_t i = 0;

	while (devices[i] && devices[i]->id != id)
		i++;
	return devices[i];
}

const struct batoni_world *
batoni_world_present(void)
{
	for (size_t i = 0; worlds[i]; i++) {
		if (worlds[i]->present())
			return worlds[i];
	}
	return NULL;
}

const struct batoni_world *
batoni_world_of(enum baton_transport id)
{
	size_t i = 0;

	while (worlds[i] && worlds[i]->id != id)
		i++;
	return worlds[i];
}

const struct batoni_onesided_ops *
batoni_onesided_layer(void)
{
	return &batoni_onesided_ops;
}

enum baton_status
batoni_open_local(int size, const struct batoni_transport_config *config,
                  struct batoni_transport *transports[])
{
	return batoni_local_open(size, config, transports);
}
