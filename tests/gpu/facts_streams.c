/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Facts on streams that stand: which work passes them (queues), how much fits behind them
 * (depth), which calls of the driver wait for them (blocks).
 */
#include "facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CROWD_MAX 128
#define COPY_BYTES 65536
#define DEPTH_MAX 8192

static const char *
connections(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "default";
}

/* ---- queues ---------------------------------------------------------------- */

struct crowd {
	CUstream streams[CROWD_MAX];
	CUstream urgent; /* of the greatest priority, as Baton's copies have */
	CUstream last;   /* an ordinary one, created last */
};

struct passing {
	const char *name;
	bool urgent, to_host;
	bool copies; /* behind each wait, a copy in and a copy out */
};

static void
crowd_create(struct gpu *gpu, struct crowd *crowd)
{
	int least = 0, greatest = 0;

	MUST(gpu, gpu->api->priority_range(&least, &greatest));
	for (int i = 0; i < CROWD_MAX; i++)
		crowd->streams[i] = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
	crowd->urgent =
		gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, greatest);
	crowd->last = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
}

static void
copy_in_and_out(struct gpu *gpu, CUstream stream)
{
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)(gpu->data + COPY_BYTES);

	MUST(gpu, gpu->api->copy(gpu->memory + 2 * COPY_BYTES, host, 4096, stream));
	MUST(gpu, gpu->api->copy(host, gpu->memory + 2 * COPY_BYTES, 4096, stream));
}

/* Does a copy pass n streams that wait? */
static bool
passes(struct gpu *gpu, const struct crowd *crowd, const struct passing *how, int n)
{
	CUstream stream = how->urgent ? crowd->urgent : crowd->last;
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)gpu->data;
	uint64_t value = ++gpu->turn;
	struct watchdog dog;

	/* From here on a call may block, too: the streams are of no bound known. */
	watchdog_start(&dog, gpu, value);
	for (int i = 0; i < n; i++) {
		MUST(gpu, gpu_wait(gpu, crowd->streams[i], value));
		if (how->copies)
			copy_in_and_out(gpu, crowd->streams[i]);
	}
	if (how->to_host)
		MUST(gpu, gpu->api->copy(host, gpu->memory, COPY_BYTES, stream));
	else
		MUST(gpu, gpu->api->copy(gpu->memory, host, COPY_BYTES, stream));
	MUST(gpu, gpu_write(gpu, stream, value));
	/* Until it is done, or the watchdog has let all go. */
	while (!gpu_is_done(gpu, value, 10))
		;
	if (watchdog_stop(&dog))
		return false;
	gpu_let_go(gpu);
	return true;
}

void
facts_queues(struct gpu *gpu)
{
	static const int sizes[] = {4, 7, 8, 9, 16, 31, 32, 33, 64, CROWD_MAX};
	static const struct passing ways[] = {
		{"urgent_to_host", true, true, false},
		{"urgent_to_device", true, false, false},
		{"urgent_to_host_beside_copies", true, true, true},
		{"urgent_to_device_beside_copies", true, false, true},
		{"ordinary_to_host", false, true, false},
		{"ordinary_to_device_beside_copies", false, false, true},
	};
	static struct crowd crowd;

	crowd_create(gpu, &crowd);
	for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
		int passed = 0, held = 0;

		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && !held; s++) {
			if (passes(gpu, &crowd, &ways[w], sizes[s]))
				passed = sizes[s];
			else
				held = sizes[s];
		}
		if (held)
			fact("queues.%s: held (beside %d streams that wait; passes %d; "
			     "CUDA_DEVICE_MAX_CONNECTIONS %s, _COPY_ %s)",
			     ways[w].name, held, passed,
			     connections("CUDA_DEVICE_MAX_CONNECTIONS"),
			     connections("CUDA_DEVICE_MAX_COPY_CONNECTIONS"));
		else
			fact("queues.%s: passes (beside %d streams that wait; "
			     "CUDA_DEVICE_MAX_CONNECTIONS %s, _COPY_ %s)",
			     ways[w].name, passed,
			     connections("CUDA_DEVICE_MAX_CONNECTIONS"),
			     connections("CUDA_DEVICE_MAX_COPY_CONNECTIONS"));
	}
}

/* ---- depth ----------------------------------------------------------------- */

enum entry { ENTRY_WRITE, ENTRY_COPY, ENTRY_FUNCTION };

struct filling {
	pthread_t thread;
	struct gpu *gpu;
	_Atomic int count; /* calls that have returned */
	_Atomic bool stop;
	int stood; /* count when nothing had moved for HELD_MS; -1: it never stood */
};

static void
nothing(void *unused)
{
	(void)unused;
}

/* Opens the gate when the calls stand. */
static void *
watch_filling(void *argument)
{
	struct filling *filling = argument;
	int before = -1, quiet = 0;

	while (!atomic_load(&filling->stop)) {
		int count = atomic_load(&filling->count);

		quiet = count == before ? quiet + 5 : 0;
		before = count;
		if (quiet >= HELD_MS && filling->stood < 0) {
			filling->stood = count;
			atomic_store(filling->gpu->gate, filling->gpu->turn);
		}
		sleep_ms(5);
	}
	return NULL;
}

/* Enqueue up to n entries behind a wait: returns after how many a call blocked; -1: none. */
static int
fill_queue(struct gpu *gpu, CUstream stream, enum entry entry, int n)
{
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)gpu->data;
	struct filling filling = {.gpu = gpu, .stood = -1};

	if (pthread_create(&filling.thread, NULL, watch_filling, &filling) != 0)
		exit(1);
	for (int i = 0; i < n && filling.stood < 0; i++) {
		switch (entry) {
		case ENTRY_WRITE:
			MUST(gpu, gpu_write(gpu, stream, gpu->turn));
			break;
		case ENTRY_COPY:
			MUST(gpu, gpu->api->copy(gpu->memory, host, 4096, stream));
			break;
		case ENTRY_FUNCTION:
			MUST(gpu, gpu->api->host_function(stream, nothing, NULL));
			break;
		}
		atomic_fetch_add(&filling.count, 1);
	}
	atomic_store(&filling.stop, true);
	pthread_join(filling.thread, NULL);
	return filling.stood;
}

static void
say_depth(const char *name, int stood)
{
	if (stood < 0)
		fact("depth.%s: more than %d entries", name, DEPTH_MAX);
	else
		fact("depth.%s: %d entries (CUDA_SCALE_LAUNCH_QUEUES %s)", name, stood,
		     connections("CUDA_SCALE_LAUNCH_QUEUES"));
}

static int
depth_alone(struct gpu *gpu, CUstream stream, enum entry entry)
{
	int stood;

	gpu->turn++;
	MUST(gpu, gpu_wait(gpu, stream, gpu->turn));
	stood = fill_queue(gpu, stream, entry, DEPTH_MAX);
	gpu_let_go(gpu);
	return stood;
}

/* Two streams; with CUDA_DEVICE_MAX_CONNECTIONS=1 they share the one queue. */
static void
depth_together(struct gpu *gpu, CUstream first, CUstream second, int alone)
{
	int stood;

	gpu->turn++;
	MUST(gpu, gpu_wait(gpu, first, gpu->turn));
	MUST(gpu, gpu_wait(gpu, second, gpu->turn));
	if (fill_queue(gpu, first, ENTRY_WRITE, alone / 2) >= 0) {
		fact("depth.two_streams: unknown (half of what fits did not fit again)");
		gpu_let_go(gpu);
		return;
	}
	stood = fill_queue(gpu, second, ENTRY_WRITE, alone);
	gpu_let_go(gpu);
	if (stood >= 0 && stood < alone * 3 / 4)
		fact("depth.two_streams: share the bound (%d beside %d of another; %d "
		     "alone; CUDA_DEVICE_MAX_CONNECTIONS %s)",
		     stood, alone / 2, alone,
		     connections("CUDA_DEVICE_MAX_CONNECTIONS"));
	else
		fact("depth.two_streams: have a bound each (%d alone; "
		     "CUDA_DEVICE_MAX_CONNECTIONS %s)",
		     alone, connections("CUDA_DEVICE_MAX_CONNECTIONS"));
}

void
facts_depth(struct gpu *gpu)
{
	CUstream first = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
	CUstream second = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
	int writes = depth_alone(gpu, first, ENTRY_WRITE);

	say_depth("memory_operations", writes);
	say_depth("copies", depth_alone(gpu, first, ENTRY_COPY));
	say_depth("host_functions", depth_alone(gpu, first, ENTRY_FUNCTION));
	if (writes > 0)
		depth_together(gpu, first, second, writes);
	else
		fact("depth.two_streams: unknown (one alone met no bound)");
}

/* ---- blocks ---------------------------------------------------------------- */

/* What the calls make and take back. */
static struct {
	void *host;
	CUdeviceptr device, opened, address;
	CUmemGenericAllocationHandle allocation;
	size_t granularity;
	CUstream stream;
	CUevent event;
	CUcontext other;
	const CUipcMemHandle *handle;
} made;

static unsigned char page_block[16384] __attribute__((aligned(4096)));

static CUmemAllocationProp
properties(const struct gpu *gpu)
{
	CUmemAllocationProp of;

	memset(&of, 0, sizeof(of));
	of.type = BATONI_CU_ALLOCATION_PINNED;
	of.requestedHandleTypes = BATONI_CU_HANDLE_FD;
	of.location.type = BATONI_CU_LOCATION_DEVICE;
	of.location.id = gpu->device;
	return of;
}

static CUresult
do_host_alloc(struct gpu *gpu)
{
	return gpu->api->host_alloc(&made.host, DATA_BYTES, BATONI_CU_HOST_ALLOC_PORTABLE);
}

static CUresult
do_host_free(struct gpu *gpu)
{
	return gpu->api->host_free(made.host);
}

static CUresult
do_host_register(struct gpu *gpu)
{
	return gpu->api->host_register(page_block, sizeof(page_block),
	                               BATONI_CU_HOST_REGISTER_MAPPED);
}

static CUresult
do_host_unregister(struct gpu *gpu)
{
	return gpu->api->host_unregister(page_block);
}

static CUresult
do_mem_alloc(struct gpu *gpu)
{
	return gpu->api->mem_alloc(&made.device, DATA_BYTES);
}

static CUresult
do_mem_free(struct gpu *gpu)
{
	return gpu->api->mem_free(made.device);
}

static CUresult
do_vm_create(struct gpu *gpu)
{
	CUmemAllocationProp of = properties(gpu);
	CUresult result = gpu->api->vm_granularity(&made.granularity, &of,
	                                           BATONI_CU_GRANULARITY_BEST);

	return result ? result
	              : gpu->api->vm_create(&made.allocation, made.granularity, &of, 0);
}

static CUresult
do_vm_map(struct gpu *gpu)
{
	CUresult result = gpu->api->vm_reserve(&made.address, made.granularity, 0, 0, 0);

	return result ? result
	              : gpu->api->vm_map(made.address, made.granularity, 0,
	                                 made.allocation, 0);
}

static CUresult
do_vm_access(struct gpu *gpu)
{
	CUmemAccessDesc access = {{BATONI_CU_LOCATION_DEVICE, gpu->device},
	                          BATONI_CU_ACCESS_READ_WRITE};

	return gpu->api->vm_access(made.address, made.granularity, &access, 1);
}

static CUresult
do_vm_unmap(struct gpu *gpu)
{
	return gpu->api->vm_unmap(made.address, made.granularity);
}

static CUresult
do_vm_release(struct gpu *gpu)
{
	CUresult result = gpu->api->vm_release(made.allocation);

	return result ? result
	              : gpu->api->vm_unreserve(made.address, made.granularity);
}

static CUresult
do_stream_create(struct gpu *gpu)
{
	return gpu->api->stream_create(&made.stream, BATONI_CU_STREAM_NON_BLOCKING, 0);
}

static CUresult
do_stream_destroy(struct gpu *gpu)
{
	return gpu->api->stream_destroy(made.stream);
}

static CUresult
do_event_create(struct gpu *gpu)
{
	return gpu->api->event_create(&made.event, BATONI_CU_EVENT_DISABLE_TIMING);
}

static CUresult
do_ipc_open(struct gpu *gpu)
{
	if (!made.handle)
		return BATONI_CU_NOT_SUPPORTED;
	return gpu->api->ipc_open(&made.opened, *made.handle, BATONI_CU_IPC_ENABLE_PEERS);
}

static CUresult
do_ipc_close(struct gpu *gpu)
{
	return made.handle ? gpu->api->ipc_close(made.opened) : BATONI_CU_NOT_SUPPORTED;
}

/* The context of another GPU, made. */
static CUresult
do_other_gpu(struct gpu *gpu)
{
	return gpu->api->primary_retain(&made.other, 1);
}

void
facts_blocks(struct gpu *gpu, const CUipcMemHandle *handle)
{
	static const struct call {
		const char *name;
		CUresult (*run)(struct gpu *gpu);
	} calls[] = {
		{"cuMemHostAlloc", do_host_alloc},
		{"cuMemFreeHost", do_host_free},
		{"cuMemHostRegister", do_host_register},
		{"cuMemHostUnregister", do_host_unregister},
		{"cuMemAlloc", do_mem_alloc},
		{"cuMemFree", do_mem_free},
		{"cuMemCreate", do_vm_create},
		{"cuMemMap", do_vm_map},
		{"cuMemSetAccess", do_vm_access},
		{"cuMemUnmap", do_vm_unmap},
		{"cuMemRelease", do_vm_release},
		{"cuStreamCreateWithPriority", do_stream_create},
		{"cuStreamDestroy", do_stream_destroy},
		{"cuEventCreate", do_event_create},
		{"cuIpcOpenMemHandle", do_ipc_open},
		{"cuIpcCloseMemHandle", do_ipc_close},
		{"cuDevicePrimaryCtxRetain_of_another_GPU", do_other_gpu},
	};
	CUstream standing = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);

	made.handle = handle;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct watchdog dog;
		int64_t begin;
		CUresult result;
		bool waited;

		gpu->turn++;
		MUST(gpu, gpu_wait(gpu, standing, gpu->turn));
		watchdog_start(&dog, gpu, gpu->turn);
		begin = now_ms();
		result = calls[i].run(gpu);
		begin = now_ms() - begin;
		waited = watchdog_stop(&dog);
		gpu_let_go(gpu);
		if (result != BATONI_CU_SUCCESS)
			fact("blocks.%s: unknown (%s)", calls[i].name,
			     gpu_name(gpu, result));
		else
			fact("blocks.%s: %s (%lld ms, beside a stream that waits)",
			     calls[i].name, waited ? "waits" : "does not wait",
			     (long long)begin);
	}
}
