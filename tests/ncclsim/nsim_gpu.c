/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What communicators take of a GPU: CTAs of their kernels, device memory, and, where NCCL is
 * asked for it, a place in one order of launches.
 *
 * CTAs.  A kernel of messages needs as many as its communicator has (`maxCTAs`, which NCCL
 * makes a power of two).  It takes those that are free, keeps them while it waits for the
 * others, and begins with all of them, as the blocks of a grid come to a GPU.  One
 * multiprocessor holds one.  They are counted for each process: processes share a GPU by
 * turns.  What is behind a kernel that waits waits too, in its stream and its queue.
 *
 * Order.  With launchOrderImplicit a kernel begins only when the one that was launched before
 * it on the device has begun, of whatever communicator.
 *
 * Threads: nsim_gpu_launch under nsim_lock; kernels, which may take no lock, use atomics.
 */
#include <stdlib.h>

#include "nsim.h"

enum { DEVICES = 64 };

/* As in NVIDIA/nccl#1685: for each channel 10 MiB where bytes arrive, 2 MiB where they leave. */
#define RECV_BYTES (10ll << 20)
#define SEND_BYTES (2ll << 20)
/* Of a communicator with nothing connected: not known [?]. */
#define COMM_BYTES (4ll << 20)

struct nsim_launch {
	_Atomic unsigned refs; /* the kernel's, and the next one's or `last` */
	_Atomic bool begun;
};

static struct nsim_launch *last[DEVICES]; /* nsim_lock */
static _Atomic unsigned taken[DEVICES];   /* CTAs */

/* ---- configuration ---- */

/* NCCL's own variables.  false: it is not set. */
static bool
from_environment(const char *name, long *value_p)
{
	const char *text = getenv(name);

	if (!text || !*text)
		return false;
	*value_p = strtol(text, NULL, 0);
	return true;
}

static unsigned
power_above(long value)
{
	unsigned power = 1;

	while (power < value && power < NSIM_CTAS_MAX)
		power *= 2;
	return power;
}

void
nsim_gpu_configure(ncclComm_t comm, ncclComm_t parent,
                   const struct batoni_nccl_config *config)
{
	long ctas = parent ? (long)parent->ctas : NSIM_CTAS;
	long ordered = parent ? parent->ordered : nsim_set.order;

	if (config && config->maxCTAs != BATONI_NCCL_CONFIG_UNSET)
		ctas = config->maxCTAs;
	if (from_environment("NCCL_MAX_CTAS", &ctas) && ctas < 1)
		ctas = NSIM_CTAS;
	if (config && nsim_set.version >= 23100 &&
	    BATONI_NCCL_CONFIG_HAS(config, launchOrderImplicit) &&
	    config->launchOrderImplicit != BATONI_NCCL_CONFIG_UNSET)
		ordered = config->launchOrderImplicit;
	from_environment("NCCL_LAUNCH_ORDER_IMPLICIT", &ordered);
	comm->ctas = power_above(ctas);
	comm->ordered = ordered != 0;
	nsim_gpu_use(comm, COMM_BYTES);
}

bool
nsim_gpu_has_one_sided(void)
{
	int version = 0;

	return nsim_cuda->driver_version(&version) == BATONI_CU_SUCCESS &&
	       version >= 12050;
}

/* ---- memory ---- */

void
nsim_gpu_use(ncclComm_t comm, long long bytes)
{
	pthread_mutex_lock(&nsim_lock);
	comm->bytes += bytes;
	pthread_mutex_unlock(&nsim_lock);
	nsim_cuda->sim_use(comm->device, bytes);
}

long long
nsim_gpu_connection(ncclComm_t comm, bool sends)
{
	return (sends ? SEND_BYTES : RECV_BYTES) * comm->ctas;
}

long long
nsim_gpu_bytes_locked(void)
{
	extern struct ncclComm *nsim_comms;
	long long bytes = 0;

	for (struct ncclComm *at = nsim_comms; at; at = at->next)
		bytes += at->bytes;
	return bytes;
}

/* ---- the order of launches ---- */

static void
unref(struct nsim_launch *launch)
{
	if (launch && atomic_fetch_sub(&launch->refs, 1) == 1)
		free(launch);
}

static void
take_place(struct nsim_share *share)
{
	struct nsim_launch **at = &last[share->device];

	share->own = nsim_alloc(1, sizeof(*share->own));
	atomic_store(&share->own->refs, 2);
	pthread_mutex_lock(&nsim_lock);
	share->before = *at;
	*at = share->own;
	pthread_mutex_unlock(&nsim_lock);
}

static bool
is_in_turn(struct nsim_share *share)
{
	if (share->before && !atomic_load(&share->before->begun))
		return false;
	unref(share->before);
	share->before = NULL;
	return true;
}

/* ---- kernels ---- */

void
nsim_gpu_launch(struct nsim_share *share, ncclComm_t comm, bool one_sided)
{
	int all = 0;

	share->device = comm->device % DEVICES;
	nsim_cuda->device_attribute(&all, BATONI_CU_DEVICE_PROCESSORS,
	                            comm->device);
	share->all = (unsigned)all;
	/* One-sided operations are copies and words. */
	share->need = one_sided            ? 0
	              : comm->ctas < share->all ? comm->ctas
	                                   : share->all;
	if (comm->ordered)
		take_place(share);
}

/* Those that are free, as far as it needs them. */
static void
take_ctas(struct nsim_share *share)
{
	_Atomic unsigned *at = &taken[share->device];
	unsigned before = atomic_load(at), n;

	do {
		n = share->need - share->has;
		if (before >= share->all)
			n = 0;
		else if (n > share->all - before)
			n = share->all - before;
	} while (n > 0 &&
	         !atomic_compare_exchange_weak(at, &before, before + n));
	share->has += n;
}

bool
nsim_gpu_begins(struct nsim_share *share)
{
	if (!is_in_turn(share))
		return false;
	take_ctas(share);
	if (share->has < share->need)
		return false;
	if (share->own)
		atomic_store(&share->own->begun, true);
	return true;
}

void
nsim_gpu_end(struct nsim_share *share)
{
	atomic_fetch_sub(&taken[share->device], share->has);
	share->has = share->need = 0;
	/* One that never began holds up nothing either. */
	if (share->own)
		atomic_store(&share->own->begun, true);
	unref(share->own);
	unref(share->before);
	share->own = share->before = NULL;
}
