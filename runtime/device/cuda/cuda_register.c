/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory of the host that streams store into: mappings, registered with the driver.
 *
 * cuMemHostRegister and cuMemHostUnregister are taken to wait for every stream of the context, as the
 * allocation of pinned memory does (cuda_pinned.c).  So each of these calls is a job (thread.h).  The
 * thread that pins waits for that job until its deadline; no thread waits for the job that unpins.
 *
 * This file owns a mapping from the call that pins it until it is unmapped:
 *
 *   COMING   its job registers it.  If the caller gives it up, the job goes on to GOING.
 *   PINNED   streams store into it
 *   GOING    a job unregisters and unmaps it, and frees its struct.
 *
 * A mapping that the driver refuses to register is unmapped at once.  One that it refuses to
 * unregister (a sick device) stays mapped for good, and so does one that is never unpinned, since
 * a stream may still store into it.
 *
 * Memory that the GPU has at another address than the host is refused, as pinned memory is.  Two ranks of a
 * process may map the same pages: then each mapping is registered, at its own address.
 *
 * Locks.  `lock` guards the list.  No driver call is made under it.
 */
#include "cuda_gpu.h"

#include <pthread.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "shm.h"
#include "thread.h"

struct mapping {
	struct batoni_job job;
	struct batoni_list_node link; /* of mappings, while it is PINNED */
	struct cuda_gpu *gpu;
	void *base; /* batoni_shm_map's */
	size_t bytes;
	struct cuda_pinning pinning; /* the result of the last job: registering or unregistering */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_list_node mappings = {&mappings, &mappings};

/* ---- the driver's calls --------------------------------------------------- */

/* The first byte of its first page. */
static unsigned char *
first_page(const struct mapping *mapping, size_t *bytes_p)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t before = (uintptr_t)mapping->base % page;

	*bytes_p = (before + mapping->bytes + page - 1) / page * page;
	return (unsigned char *)mapping->base - before;
}

static struct mapping *
to_mapping(struct batoni_job *job)
{
	return batoni_container_of(job, struct mapping, job);
}

static void
do_register(struct batoni_job *job)
{
	struct mapping *mapping = to_mapping(job);
	const struct batoni_cuda_api *api = mapping->gpu->api;
	struct cuda_pinning *pinning = &mapping->pinning;
	struct cuda_guard guard;
	size_t bytes;
	unsigned char *at = first_page(mapping, &bytes);

	pinning->call = "cuCtxPushCurrent";
	pinning->result = batoni_cuda_enter(mapping->gpu, &guard);
	if (pinning->result != BATONI_CU_SUCCESS)
		return;
	pinning->call = "cuMemHostRegister";
	pinning->result = api->host_register(
		at, bytes,
		BATONI_CU_HOST_REGISTER_PORTABLE | BATONI_CU_HOST_REGISTER_MAPPED);
	if (pinning->result == BATONI_CU_SUCCESS &&
	    !batoni_cuda_pinned_in_place(mapping->gpu, at, pinning))
		api->host_unregister(at);
	batoni_cuda_exit(mapping->gpu, &guard);
}

static void
do_unregister(struct batoni_job *job)
{
	struct mapping *mapping = to_mapping(job);
	struct cuda_guard guard;
	size_t bytes;
	unsigned char *at = first_page(mapping, &bytes);

	mapping->pinning.result = batoni_cuda_enter(mapping->gpu, &guard);
	if (mapping->pinning.result != BATONI_CU_SUCCESS)
		return;
	mapping->pinning.result = mapping->gpu->api->host_unregister(at);
	batoni_cuda_exit(mapping->gpu, &guard);
}

/* ---- their life ----------------------------------------------------------- */

static void
drop_registered(struct mapping *mapping)
{
	batoni_shm_unmap(mapping->base, mapping->bytes);
	batoni_mem_keep(-1);
	batoni_free(mapping);
}

/* Keep the mapping in the list, where leak checkers find it too. */
static void
keep_listed(struct mapping *mapping)
{
	pthread_mutex_lock(&lock);
	batoni_list_append(&mappings, &mapping->link);
	pthread_mutex_unlock(&lock);
}

/* The job that unregisters it has ended. */
static void
cleanup_unregistered(struct batoni_job *job)
{
	struct mapping *mapping = to_mapping(job);
	CUresult result = mapping->pinning.result;

	/* NOT_REGISTERED, DEINITIALIZED: a reset of the GPU, or the exit of the process, has
	 * unregistered it. */
	if (result == BATONI_CU_SUCCESS || result == BATONI_CU_NOT_REGISTERED ||
	    result == BATONI_CU_DEINITIALIZED) {
		drop_registered(mapping);
		return;
	}
	batoni_log(BATONI_LOG_WARN,
	           "CUDA device %d: shared memory stays pinned: "
	           "cuMemHostUnregister failed with %u",
	           mapping->gpu->number, result);
	keep_listed(mapping);
}

/* The job that registers it has ended after its caller had given it up. */
static void
cleanup_registered(struct batoni_job *job)
{
	if (!batoni_cuda_is_pinned(&to_mapping(job)->pinning)) {
		drop_registered(to_mapping(job));
		return;
	}
	do_unregister(job);
	cleanup_unregistered(job);
}

/* ---- the slots ------------------------------------------------------------ */

/* The mapping is unmapped. */
static enum baton_status
refuse_at_once(enum baton_status status, const char *why, void *base, size_t bytes)
{
	batoni_shm_unmap(base, bytes);
	return batoni_refuse(status, "%s", why);
}

static enum baton_status
refuse_registering(struct mapping *mapping)
{
	enum baton_status status =
		batoni_cuda_refuse_pinning(mapping->gpu, &mapping->pinning);

	drop_registered(mapping);
	return status;
}

enum baton_status
batoni_cuda_pin(struct batoni_device *device, void *base, size_t bytes,
                uint64_t until_ns)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	uint64_t begun_ns = batoni_real_ns();
	struct mapping *mapping;

	if (!gpu->api->host_register || !gpu->api->host_unregister)
		return refuse_at_once(BATON_ERR_UNSUPPORTED,
		                      "the driver has no cuMemHostRegister", base,
		                      bytes);
	mapping = batoni_alloc(1, sizeof(*mapping));
	if (!mapping)
		return refuse_at_once(BATON_ERR_NOMEM, "out of memory", base,
		                      bytes);
	mapping->gpu = gpu;
	mapping->base = base;
	mapping->bytes = bytes;
	mapping->job.run = do_register;
	mapping->job.cleanup = cleanup_registered;
	batoni_list_init(&mapping->link);
	batoni_mem_keep(1);
	if (batoni_job_start(&mapping->job)) {
		drop_registered(mapping);
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "no thread to register memory on");
	}
	if (!batoni_job_finish(&mapping->job,
	                       batoni_cuda_until(begun_ns, until_ns)))
		return batoni_cuda_refuse_late(
			gpu, begun_ns, "cuMemHostRegister has not returned",
			"create communicators");
	if (!batoni_cuda_is_pinned(&mapping->pinning))
		return refuse_registering(mapping);
	keep_listed(mapping);
	return BATON_OK;
}

static struct mapping *
take_pinned(const void *base)
{
	struct mapping *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct batoni_list_node *at = mappings.next;
	     at != &mappings && !found; at = at->next) {
		struct mapping *mapping =
			batoni_container_of(at, struct mapping, link);

		if (mapping->base == base)
			found = mapping;
	}
	if (found)
		batoni_list_remove(&found->link);
	pthread_mutex_unlock(&lock);
	return found;
}

void
batoni_cuda_unpin(struct batoni_device *device, void *base)
{
	struct mapping *mapping = take_pinned(base);

	(void)device;
	if (!mapping)
		return;
	mapping->job = (struct batoni_job){
		.run = do_unregister,
		.cleanup = cleanup_unregistered,
		.given_up = true,
	};
	/* Without a thread the mapping stays. */
	if (batoni_job_start(&mapping->job))
		keep_listed(mapping);
}
