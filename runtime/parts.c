/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * THE LIST of parts: the one file of the engine that names the leaves and the layers over it.  A
 * new device, world or finder is a line here; another native transport, table of pairs or opening
 * of a bootstrap takes the place of the one that is here.  A new kind of operation is a line of
 * kinds.h.  The folders reach them through these tables alone.
 */
#include "registry.h"

#include "kinds.h"

/* transport/bootstrap/mpi/bootstrap.c */
extern const struct batoni_world batoni_world_mpi;

/* transport/bootstrap/socket/bootstrap.c */
extern const struct batoni_world batoni_world_tcp;

/* runtime/device/cuda/cuda.c */
extern const struct batoni_device_ops batoni_device_cuda_ops;

static const struct batoni_device_ops *const devices[] = {
	&batoni_device_host_ops,
	&batoni_device_cuda_ops,
	NULL,
};

static const struct batoni_world *const worlds[] = {
#ifdef BATONI_WITH_MPI
	&batoni_world_mpi,
#endif
	&batoni_world_tcp,
	NULL,
};

static const struct batoni_opening_ops *const openings[] = {
	[BATONI_BOOTSTRAP_THREADS] = &batoni_opening_local_ops,
#ifdef BATONI_WITH_MPI
	[BATONI_BOOTSTRAP_MPI] = &batoni_opening_mpi_ops,
#endif
	[BATONI_BOOTSTRAP_SOCKET] = &batoni_opening_tcp_ops,
};

static const struct batoni_finder finders[] = {
#ifdef BATONI_WITH_MPI
	{"MPI", batoni_mpi_find},
#else
	{"MPI", NULL},
#endif
	{"CUDA driver", batoni_cuda_find},
	{"NCCL", batoni_nccl_find},
	{"NVTX", batoni_nvtx_find},
	{NULL, NULL},
};

const struct batoni_parts batoni_parts = {
	.devices = devices,
	.worlds = worlds,
	.threads = &batoni_threads_ops,
	.openings = openings,
	.native = &batoni_native_ops,
	.staging = &batoni_staging_ops,
	.pairs = &batoni_near_ops,
	.side = &batoni_side_ops,
	.onesided = &batoni_onesided_ops,
	.finders = finders,
};

#define TABLE(kind, number, table) [number] = &(table),
const struct batoni_kind *const batoni_kinds[BATONI_KINDS_MAX] = {
	BATONI_KINDS(TABLE)
};
