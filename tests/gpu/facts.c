/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_facts SUBCOMMAND: what a GPU, its driver and NCCL do where no document says it.
 *
 *   queues    which copies pass streams that wait, by the number of streams
 *   depth     how many entries fit behind a wait, and whether two streams share the bound
 *   blocks    which calls of the driver wait for a stream that waits
 *   pointers  what the driver says of pointers
 *   mappings  mappings side by side, parts of allocations, registered pages
 *   context   ids of contexts, the legacy default stream
 *   exit      whether the end of a process waits for its streams
 *   batch     what a call of several copies has done when one of them is wrong
 *   nccl      messages to oneself, windows of other memory, splits
 *
 * Each runs in a process of its own, since some break their context.  tests/gpu/run runs
 * them all; docs/gpu-facts.md says what each answers.
 */
#include "facts.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000

void
fact(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("fact ", stdout);
	vprintf(format, arguments);
	putchar('\n');
	va_end(arguments);
	fflush(stdout);
}

int64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
}

void
sleep_ms(int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * NS_PER_MS};

	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

/* ---- the driver ------------------------------------------------------------ */

const char *
gpu_name(const struct gpu *gpu, CUresult result)
{
	const char *name = NULL;

	if (gpu->api->error_name(result, &name) != BATONI_CU_SUCCESS || !name)
		return "an unknown result";
	return name;
}

void
gpu_must(const struct gpu *gpu, CUresult result, const char *call)
{
	if (result == BATONI_CU_SUCCESS)
		return;
	fprintf(stderr, "%s: %s\n", call, gpu_name(gpu, result));
	exit(1);
}

void *
gpu_symbol(const char *name)
{
	const char *file = getenv("BATON_CUDA_LIBRARY");
	void *driver = dlopen(file && *file ? file : "libcuda.so.1",
	                      RTLD_NOW | RTLD_LOCAL);

	return driver ? dlsym(driver, name) : NULL;
}

static void *
pinned(const struct gpu *gpu, size_t bytes, CUdeviceptr *device_p)
{
	void *memory = NULL;

	MUST(gpu, gpu->api->host_alloc(&memory, bytes,
	                               BATONI_CU_HOST_ALLOC_PORTABLE |
	                                       BATONI_CU_HOST_ALLOC_MAPPED));
	MUST(gpu, gpu->api->host_device_pointer(device_p, memory, 0));
	memset(memory, 0, bytes);
	return memory;
}

void
gpu_open(struct gpu *gpu)
{
	unsigned char *words;
	CUdeviceptr device, unused;

	if (batoni_cuda_load(&gpu->api) != BATON_OK) {
		printf("SKIP: %s\n", baton_last_error());
		exit(77);
	}
	MUST(gpu, gpu->api->primary_retain(&gpu->context, gpu->device));
	MUST(gpu, gpu->api->context_push(gpu->context));
	words = pinned(gpu, 4096, &device);
	gpu->gate = (_Atomic uint64_t *)(void *)words;
	gpu->done = (_Atomic uint64_t *)(void *)(words + 1024);
	gpu->gate_device = device;
	gpu->done_device = device + 1024;
	gpu->data = pinned(gpu, DATA_BYTES, &unused);
	MUST(gpu, gpu->api->mem_alloc(&gpu->memory, DATA_BYTES));
}

CUstream
gpu_stream(const struct gpu *gpu, unsigned flags, int priority)
{
	CUstream stream;

	MUST(gpu, gpu->api->stream_create(&stream, flags, priority));
	return stream;
}

CUresult
gpu_wait(const struct gpu *gpu, CUstream stream, uint64_t value)
{
	CUstreamBatchMemOpParams operation;

	memset(&operation, 0, sizeof(operation));
	operation.waitValue.operation = BATONI_CU_OP_WAIT_64;
	operation.waitValue.address = gpu->gate_device;
	operation.waitValue.value64 = value;
	operation.waitValue.flags = BATONI_CU_WAIT_GEQ;
	return gpu->api->stream_memory_ops(stream, 1, &operation, 0);
}

CUresult
gpu_write(const struct gpu *gpu, CUstream stream, uint64_t value)
{
	CUstreamBatchMemOpParams operation;

	memset(&operation, 0, sizeof(operation));
	operation.writeValue.operation = BATONI_CU_OP_WRITE_64;
	operation.writeValue.address = gpu->done_device;
	operation.writeValue.value64 = value;
	return gpu->api->stream_memory_ops(stream, 1, &operation, 0);
}

bool
gpu_is_done(const struct gpu *gpu, uint64_t value, int ms)
{
	int64_t end = now_ms() + ms;

	while (atomic_load(gpu->done) < value)
		if (now_ms() >= end)
			return false;
	return true;
}

void
gpu_let_go(struct gpu *gpu)
{
	typedef CUresult (*synchronize_fn)(void);
	synchronize_fn synchronize;
	void *symbol = gpu_symbol("cuCtxSynchronize");

	atomic_store(gpu->gate, gpu->turn);
	memcpy(&synchronize, &symbol, sizeof(synchronize));
	if (synchronize)
		MUST(gpu, synchronize());
}

/* ---- the watchdog ---------------------------------------------------------- */

static void *
watch(void *argument)
{
	struct watchdog *dog = argument;
	int64_t end = now_ms() + HELD_MS;
	int watching = 0;

	while (atomic_load(&dog->state) == 0 && now_ms() < end)
		sleep_ms(1);
	if (atomic_compare_exchange_strong(&dog->state, &watching, 2))
		atomic_store(dog->gpu->gate, dog->value);
	return NULL;
}

void
watchdog_start(struct watchdog *dog, struct gpu *gpu, uint64_t value)
{
	dog->gpu = gpu;
	dog->value = value;
	atomic_init(&dog->state, 0);
	if (pthread_create(&dog->thread, NULL, watch, dog) != 0) {
		fputs("no thread for the watchdog\n", stderr);
		exit(1);
	}
}

bool
watchdog_stop(struct watchdog *dog)
{
	int watching = 0;

	atomic_compare_exchange_strong(&dog->state, &watching, 1);
	pthread_join(dog->thread, NULL);
	return atomic_load(&dog->state) == 2;
}

/* ---- processes ------------------------------------------------------------- */

/* Another process has memory of the GPU and tells its handle, until `stop` is closed.  It
 * is forked before this one touches the driver. */
static bool
handle_of_another(CUipcMemHandle *handle_p, int *stop_p)
{
	int handles[2], stop[2];
	ssize_t got;

	if (pipe(handles) != 0 || pipe(stop) != 0)
		return false;
	if (fork() == 0) {
		struct gpu gpu = {0};
		CUipcMemHandle handle;
		char end;

		close(stop[1]);
		gpu_open(&gpu);
		if (gpu.api->ipc_handle(&handle, gpu.memory) == BATONI_CU_SUCCESS &&
		    write(handles[1], &handle, sizeof(handle)) > 0)
			while (read(stop[0], &end, 1) > 0)
				;
		_exit(0);
	}
	close(handles[1]);
	close(stop[0]);
	*stop_p = stop[1];
	got = read(handles[0], handle_p, sizeof(*handle_p));
	close(handles[0]);
	return got == (ssize_t)sizeof(*handle_p);
}

static void
blocks(struct gpu *gpu)
{
	CUipcMemHandle handle;
	int stop = -1;
	bool have = handle_of_another(&handle, &stop);

	gpu_open(gpu);
	facts_blocks(gpu, have ? &handle : NULL);
	close(stop);
	wait(NULL);
}

/* A child leaves main with a stream that waits for what nobody stores. */
static void
ends(struct gpu *gpu)
{
	int64_t begin = now_ms();
	pid_t child = fork();
	int status, waited;

	if (child == 0) {
		gpu_open(gpu);
		MUST(gpu, gpu_wait(gpu, gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0),
		                   1));
		exit(0);
	}
	for (waited = 0; waited < 15000; waited += 10) {
		if (waitpid(child, &status, WNOHANG) == child) {
			if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
				exit(77);
			fact("exit.waits_for_streams: no (the process ended after %lld "
			     "ms, status %d)",
			     (long long)(now_ms() - begin), status);
			return;
		}
		sleep_ms(10);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	fact("exit.waits_for_streams: yes (it had not ended after 15 s, and was killed)");
}

/* ---- all ------------------------------------------------------------------- */

int
main(int count, char **arguments)
{
	static const struct part {
		const char *name;
		void (*run)(struct gpu *gpu);
		bool opened; /* it has its own way of opening */
	} parts[] = {
		{"queues", facts_queues, false},
		{"depth", facts_depth, false},
		{"blocks", blocks, true},
		{"pointers", facts_pointers, false},
		{"mappings", facts_mappings, false},
		{"context", facts_context, false},
		{"exit", ends, true},
		{"batch", facts_batch, false},
		{"nccl", facts_nccl, false},
	};
	const size_t n = sizeof(parts) / sizeof(parts[0]);
	bool help = count == 2 && strcmp(arguments[1], "--help") == 0;
	struct gpu gpu = {0};

	for (size_t i = 0; count == 2 && i < n; i++) {
		if (strcmp(arguments[1], parts[i].name) != 0)
			continue;
		if (!parts[i].opened)
			gpu_open(&gpu);
		parts[i].run(&gpu);
		return 0;
	}
	FILE *to = help ? stdout : stderr;

	fputs("usage: gpu_facts SUBCOMMAND, one of:", to);
	for (size_t i = 0; i < n; i++)
		fprintf(to, " %s", parts[i].name);
	fputs("\n", to);
	return help ? 0 : 2;
}
