/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda_gpu.h"

#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "config.h"
#include "log.h"
#include "mem.h"
#include "thread.h"

/* GPUs that are being set up: a bit for each number, modulo 64.  Driver calls may wait, for the
 * lock of a context or for its streams, so no lock is held across them: a thread that sets up
 * one GPU must not hold up a creation on another, nor a call that names memory of another. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	uint64_t busy;
} setups = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.ended = PTHREAD_COND_INITIALIZER,
};
static _Atomic(struct cuda_gpu *) gpus; /* the newest first; none is ever removed */
static atomic_uint opens;               /* how many opens there have been */

/* Why a GPU whose memory was seen could not be set up, and the number of the open before that;
 * after the next one it is tried again.  The thread that sets it up. */
static struct {
	enum baton_status status; /* OK: there was no failure */
	unsigned opens;
	char why[200];
} failures[BATONI_LOCATION_OWNERS];

static void
begin_setup(CUdevice number)
{
	uint64_t bit = UINT64_C(1) << (unsigned)number % 64;

	pthread_mutex_lock(&setups.lock);
	while (setups.busy & bit)
		pthread_cond_wait(&setups.ended, &setups.lock);
	setups.busy |= bit;
	pthread_mutex_unlock(&setups.lock);
}

static void
end_setup(CUdevice number)
{
	pthread_mutex_lock(&setups.lock);
	setups.busy &= ~(UINT64_C(1) << (unsigned)number % 64);
	pthread_cond_broadcast(&setups.ended);
	pthread_mutex_unlock(&setups.lock);
}

/* ---- events ---- */

struct cuda_event *
batoni_cuda_event_take(struct cuda_gpu *gpu, CUresult *result_p)
{
	struct cuda_event *event;

	*result_p = BATONI_CU_SUCCESS;
	pthread_mutex_lock(&gpu->lock);
	event = gpu->events;
	if (event)
		gpu->events = event->next;
	pthread_mutex_unlock(&gpu->lock);
	if (event)
		return event;
	event = batoni_alloc(1, sizeof(*event));
	*result_p = event ? gpu->api->event_create(&event->event,
	                                           BATONI_CU_EVENT_DISABLE_TIMING)
	                  : BATONI_CU_OUT_OF_MEMORY;
	if (*result_p == BATONI_CU_SUCCESS) {
		batoni_mem_keep(1);
		return event;
	}
	batoni_free(event);
	return NULL;
}

void
batoni_cuda_event_give(struct cuda_gpu *gpu, struct cuda_event *event)
{
	pthread_mutex_lock(&gpu->lock);
	event->next = gpu->events;
	gpu->events = event;
	pthread_mutex_unlock(&gpu->lock);
}

void
batoni_cuda_event_lose(struct cuda_gpu *gpu, struct cuda_event *event)
{
	pthread_mutex_lock(&gpu->lock);
	event->next = gpu->lost;
	gpu->lost = event;
	pthread_mutex_unlock(&gpu->lock);
}

/* ---- setting up ---- */

enum baton_status
batoni_cuda_current(int *number_p)
{
	const struct batoni_cuda_api *api;
	enum baton_status status = batoni_cuda_load(&api);
	CUcontext context = NULL;
	CUdevice number = -1;
	CUresult result;

	if (status != BATON_OK)
		return status;
	result = api->context_current(&context);
	if (result == BATONI_CU_SUCCESS && context)
		result = api->context_device(&number);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse_by(api, "cuCtxGetCurrent", result);
	*number_p = number;
	return BATON_OK;
}

static enum baton_status
choose(const struct batoni_cuda_api *api,
       const struct batoni_device_config *config, CUdevice *number_p)
{
	CUdevice number = config->cuda_device;
	CUresult result;
	int count = 0;

	result = api->device_count(&count);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse_by(api, "cuDeviceGetCount", result);
	if (count == 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the CUDA driver finds no device");
	if (number < 0)
		number = config->host_rank % count;
	if (number >= count)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->cuda_device is %d; the CUDA driver "
		                     "has %d device%s (0 to %d)",
		                     number, count, count == 1 ? "" : "s",
		                     count - 1);
	*number_p = number;
	return BATON_OK;
}

/* A driver that does not know the attribute says INVALID_VALUE. */
static CUresult
ask_attribute(const struct cuda_gpu *gpu, CUdevice_attribute attribute,
              int *value_p)
{
	CUresult result =
		gpu->api->device_attribute(value_p, attribute, gpu->number);

	if (result != BATONI_CU_SUCCESS)
		*value_p = 0;
	return result == BATONI_CU_INVALID_VALUE ? BATONI_CU_SUCCESS : result;
}

static CUresult
ask_attributes(struct cuda_gpu *gpu, int *unified_p)
{
	int memory_ops = 0, flushes = 0, ordering = 0;
	CUresult result = ask_attribute(
		gpu, BATONI_CU_DEVICE_UNIFIED_ADDRESSING, unified_p);

	if (result == BATONI_CU_SUCCESS)
		result = ask_attribute(gpu, BATONI_CU_DEVICE_MEM_OPS_64,
		                       &memory_ops);
	gpu->memory_ops = memory_ops;
	if (result == BATONI_CU_SUCCESS)
		result = ask_attribute(gpu, BATONI_CU_DEVICE_RDMA_FLUSHES,
		                       &flushes);
	if (result == BATONI_CU_SUCCESS)
		result = ask_attribute(gpu, BATONI_CU_DEVICE_RDMA_ORDERING,
		                       &ordering);
	if (result == BATONI_CU_SUCCESS)
		result = ask_attribute(gpu, BATONI_CU_DEVICE_PROCESSORS,
		                       &gpu->open.processors);
	if (result == BATONI_CU_SUCCESS)
		result = gpu->api->driver_version(&gpu->open.driver_version);
	gpu->flushes = (flushes & BATONI_CU_RDMA_FLUSH_BY_HOST) != 0 &&
	               ordering < BATONI_CU_RDMA_ORDERED_FOR_OWNER;
	return result;
}

/* Copies have the highest priority: a stream of the program that waits for a copy must not
 * hold it up, even where all streams of one priority share a hardware queue. */
static CUresult
make_copy_streams(struct cuda_gpu *gpu, const char **call_p)
{
	int least = 0, greatest = 0;
	CUresult result;

	*call_p = "cuCtxGetStreamPriorityRange";
	result = gpu->api->priority_range(&least, &greatest);
	gpu->priority = greatest < least ? greatest : INT_MIN;
	for (unsigned i = 0;
	     i < CUDA_COPY_STREAMS && result == BATONI_CU_SUCCESS; i++) {
		*call_p = "cuStreamCreateWithPriority";
		result = gpu->api->stream_create(
			&gpu->copies[i], BATONI_CU_STREAM_NON_BLOCKING,
			greatest);
	}
	return result;
}

static void
drop_copy_streams(struct cuda_gpu *gpu)
{
	for (unsigned i = 0; i < CUDA_COPY_STREAMS; i++) {
		if (gpu->copies[i])
			gpu->api->stream_destroy(gpu->copies[i]);
		gpu->copies[i] = NULL;
	}
}

static enum baton_status
make_streams(struct cuda_gpu *gpu)
{
	struct cuda_guard guard;
	enum baton_status status = BATON_OK;
	const char *call = "cuCtxPushCurrent";
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result == BATONI_CU_SUCCESS) {
		result = make_copy_streams(gpu, &call);
		if (result != BATONI_CU_SUCCESS)
			drop_copy_streams(gpu);
		batoni_cuda_exit(gpu, &guard);
	}
	if (result != BATONI_CU_SUCCESS)
		status = batoni_cuda_refuse(gpu, call, result);
	return status;
}

static void
warn_of_limits(const struct cuda_gpu *gpu)
{
	if (!gpu->memory_ops)
		batoni_log(BATONI_LOG_WARN,
		           "CUDA device %d (%s) has no 64-bit stream memory "
		           "operations: streams wait in host functions, of which "
		           "the driver may run one at a time; two streams that "
		           "wait for each other's operations then deadlock until "
		           "their deadlines",
		           gpu->number, gpu->name);
}

/* The pinned words of one GPU: three for each index of `streams`, a line for each stream of copies. */
#define WORDS (3 * CUDA_STREAMS_MAX + CUDA_LINE_WORDS * CUDA_COPY_STREAMS)

/* False: the GPU has its words already. */
static bool
set_words(struct cuda_gpu *gpu, const struct cuda_block *words)
{
	bool sets;

	pthread_mutex_lock(&gpu->lock);
	sets = !gpu->passed;
	if (sets && words) {
		gpu->passed = (_Atomic uint64_t *)(void *)words->base;
		gpu->returned = gpu->passed + CUDA_STREAMS_MAX;
		gpu->stored = gpu->returned + CUDA_STREAMS_MAX;
		if (gpu->memory_ops)
			atomic_store(&gpu->copied, gpu->stored + CUDA_STREAMS_MAX);
	}
	pthread_mutex_unlock(&gpu->lock);
	return sets;
}

/* Set up what only opens need.  The first open allocates pinned memory; if several do at once, that
 * of the fastest is used. */
static enum baton_status
make_words(struct cuda_gpu *gpu, uint64_t until_ns)
{
	struct cuda_block *words;
	enum baton_status status;

	if (!set_words(gpu, NULL))
		return BATON_OK;
	status = batoni_cuda_block_take(
		gpu, WORDS * sizeof(gpu->passed[0]), false, until_ns, &words);
	if (status != BATON_OK)
		return status;
	if (set_words(gpu, words))
		warn_of_limits(gpu);
	else
		batoni_cuda_block_give(gpu, words);
	return BATON_OK;
}

static enum baton_status
ask_device(struct cuda_gpu *gpu)
{
	int unified = 0;
	CUresult result = ask_attributes(gpu, &unified);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuDeviceGetAttribute", result);
	if (!unified)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "CUDA device %d has no unified addressing",
		                     gpu->number);
	result = gpu->api->device_name(gpu->name, sizeof(gpu->name),
	                               gpu->number);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuDeviceGetName", result);
	result = gpu->api->primary_retain(&gpu->context, gpu->number);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuDevicePrimaryCtxRetain",
		                          result);
	result = gpu->api->context_id(gpu->context, &gpu->context_id);
	if (result == BATONI_CU_SUCCESS)
		return BATON_OK;
	gpu->api->primary_release(gpu->number);
	return batoni_cuda_refuse(gpu, "cuCtxGetId", result);
}

static struct cuda_gpu *
new_gpu(const struct batoni_cuda_api *api, CUdevice number)
{
	struct cuda_gpu *gpu = batoni_alloc(1, sizeof(*gpu));

	if (!gpu)
		return NULL;
	gpu->api = api;
	gpu->number = number;
	gpu->retained = 1;
	gpu->open.number = number;
	pthread_mutex_init(&gpu->lock, NULL);
	batoni_list_init(&gpu->blocks);
	batoni_list_init(&gpu->spare);
	batoni_list_init(&gpu->coming);
	batoni_list_init(&gpu->created);
	return gpu;
}

static enum baton_status
set_up(const struct batoni_cuda_api *api, CUdevice number,
       struct cuda_gpu **gpu_p)
{
	struct cuda_gpu *gpu = new_gpu(api, number);
	enum baton_status status;

	if (!gpu)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	status = ask_device(gpu);
	if (status == BATON_OK) {
		status = make_streams(gpu);
		if (status != BATON_OK)
			api->primary_release(number);
	}
	if (status != BATON_OK) {
		batoni_free(gpu);
		return status;
	}
	batoni_mem_keep(1);
	batoni_cuda_queues_read(gpu);
	gpu->next = atomic_load(&gpus);
	while (!atomic_compare_exchange_weak(&gpus, &gpu->next, gpu))
		;
	*gpu_p = gpu;
	return BATON_OK;
}

struct cuda_gpu *
batoni_cuda_gpu_find(CUdevice number)
{
	struct cuda_gpu *gpu = atomic_load(&gpus);

	while (gpu && gpu->number != number)
		gpu = gpu->next;
	return gpu;
}

/* Is the primary context still the one in which the GPU was set up?  This retains the context, and
 * never releases it, since a release might wait for its streams. */
static enum baton_status
compare_context(struct cuda_gpu *gpu, bool *same_p)
{
	unsigned long long id = 0;
	CUcontext context = NULL;
	CUresult result = gpu->api->primary_retain(&context, gpu->number);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuDevicePrimaryCtxRetain",
		                          result);
	gpu->retained++;
	result = gpu->api->context_id(context, &id);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxGetId", result);
	*same_p = context == gpu->context && id == gpu->context_id;
	return BATON_OK;
}

/* Set the GPU up anew if it is sick, or was set up in a context that is gone. */
static enum baton_status
renew(struct cuda_gpu *old, struct cuda_gpu **gpu_p)
{
	bool same = true;
	enum baton_status status = compare_context(old, &same);

	if (status != BATON_OK)
		return status;
	if (same && !atomic_load(&old->sick)) {
		*gpu_p = old;
		return BATON_OK;
	}
	status = set_up(old->api, old->number, gpu_p);
	/* A reset of the GPU does not undo what retained the context. */
	while (status == BATON_OK && !same && old->retained > 0) {
		old->api->primary_release(old->number);
		old->retained--;
	}
	return status;
}

static enum baton_status
refuse_context(const struct cuda_gpu *gpu, enum baton_status status)
{
	char why[200];

	snprintf(why, sizeof(why), "%s", baton_last_error());
	return batoni_refuse(status,
	                     "%s; destroy the communicators on device %d and "
	                     "reset it (cudaDeviceReset)",
	                     why, gpu->number);
}

/* Between begin_setup and end_setup.  Making a context allocates, which a capture of another
 * thread may forbid. */
static enum baton_status
find_or_set_up(const struct batoni_cuda_api *api, CUdevice number,
               struct cuda_gpu **gpu_p)
{
	CUstreamCaptureMode mode = BATONI_CU_CAPTURE_RELAXED;
	unsigned before = atomic_load(&opens);
	struct cuda_gpu *old = batoni_cuda_gpu_find(number);
	CUresult relaxed = api->capture_mode(&mode);
	enum baton_status status;

	if (relaxed != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse_by(api, "cuThreadExchangeStreamCaptureMode", relaxed);
	status = old ? renew(old, gpu_p) : set_up(api, number, gpu_p);
	batoni_cuda_restore_mode(api, mode);
	if (status == BATON_OK)
		atomic_store(&(*gpu_p)->checked, before);
	return status == BATON_ERR_CUDA && old ? refuse_context(old, status)
	                                       : status;
}

enum baton_status
batoni_cuda_gpu_open(const struct batoni_device_config *config,
                     const struct batoni_device_ops *ops,
                     struct cuda_gpu **gpu_p)
{
	const struct batoni_cuda_api *api;
	enum baton_status status = batoni_cuda_load(&api);
	CUdevice number = 0;

	if (status == BATON_OK)
		status = choose(api, config, &number);
	if (status != BATON_OK)
		return status;
	atomic_fetch_add(&opens, 1);
	begin_setup(number);
	status = find_or_set_up(api, number, gpu_p);
	/* Written once; only threads that have opened the GPU read it. */
	if (status == BATON_OK && !(*gpu_p)->open.ops)
		(*gpu_p)->open.ops = ops;
	end_setup(number);
	return status == BATON_OK ? make_words(*gpu_p, config->until_ns)
	                          : status;
}

/* Between begin_setup and end_setup. */
static enum baton_status
prepare(const struct batoni_cuda_api *api, CUdevice number)
{
	enum baton_status status = failures[number].status;
	unsigned before = atomic_load(&opens);
	struct cuda_gpu *other;

	if (status == BATON_OK || failures[number].opens != before) {
		status = find_or_set_up(api, number, &other);
		failures[number].status = status;
		failures[number].opens = before;
		if (status == BATON_OK)
			return BATON_OK;
		snprintf(failures[number].why, sizeof(failures[number].why),
		         "%s", baton_last_error());
	}
	return batoni_refuse(status,
	                     "memory of CUDA device %d, which could not be set "
	                     "up: %s",
	                     number, failures[number].why);
}

enum baton_status
batoni_cuda_gpu_prepare(const struct cuda_gpu *gpu, CUdevice number)
{
	const struct cuda_gpu *other;
	enum baton_status status;

	if (number < 0 || number >= BATONI_LOCATION_OWNERS)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "memory of CUDA device %d; Baton takes that "
		                     "of devices 0 to %d",
		                     number, BATONI_LOCATION_OWNERS - 1);
	if (number == gpu->number)
		return BATON_OK;
	other = batoni_cuda_gpu_find(number);
	if (other && !atomic_load(&other->sick) &&
	    atomic_load(&other->checked) == atomic_load(&opens))
		return BATON_OK;
	begin_setup(number);
	status = prepare(gpu->api, number);
	end_setup(number);
	return status;
}
