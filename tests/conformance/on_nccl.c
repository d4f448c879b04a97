/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL reaches no pageable memory, and many cases have a value on their stack or in the heap
 * as their message.  So all of that is registered with the driver, once, before the first
 * stream waits (a driver may wait for streams when it registers):
 *   - the program's static data;
 *   - the heap, which malloc is told to keep in one piece, and to take whole at once;
 *   - the stacks of threads, which are parts of one block: pthread_create is wrapped (by the
 *     linker) and gives a thread one of them; it is used again after the thread was joined.
 *     A thread that finds none has a usual stack, and its messages are refused.
 * The stack of the main thread grows while it is used, and is none of these: on_nccl_run has
 * a program run on another thread.
 *
 * What is registered is mapped when it is registered, as a driver wants it and the simulator
 * checks.
 */
#include "on_nccl.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cudasim.h"
#include "ncclsim.h"

#define HEAP_BYTES (7 * (GIB / 4)) /* eight ranks have 128 MiB each of messages */
#define STACK_BYTES MIB
#define STACKS 128u
#define PORTABLE 1u /* for all contexts */
#define MAPPED 2u

extern char __data_start[], _end[]; /* the linker's */

int __real_pthread_create(pthread_t *thread_p, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread_p, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument);
int __real_pthread_join(pthread_t thread, void **result_p);
int __wrap_pthread_join(pthread_t thread, void **result_p);

static const struct cudasim *cuda;
static const struct ncclsim *nccl;
static CUcontext context;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *stacks; /* NULL until they are registered */
static struct {
	bool taken;
	pthread_t thread; /* while taken */
} owners[STACKS];

/* ---- stacks ---- */

static unsigned
take_stack(void)
{
	unsigned i = 0;

	pthread_mutex_lock(&lock);
	while (i < STACKS && (!stacks || owners[i].taken))
		i++;
	if (i < STACKS)
		owners[i].taken = true;
	pthread_mutex_unlock(&lock);
	return i;
}

int
__wrap_pthread_create(pthread_t *thread_p, const pthread_attr_t *attributes,
                      void *(*main)(void *), void *argument)
{
	unsigned stack = attributes ? STACKS : take_stack();
	pthread_attr_t with;
	int error;

	if (stack == STACKS)
		return __real_pthread_create(thread_p, attributes, main,
		                             argument);
	pthread_attr_init(&with);
	pthread_attr_setstack(&with, stacks + stack * STACK_BYTES, STACK_BYTES);
	pthread_mutex_lock(&lock);
	error = __real_pthread_create(thread_p, &with, main, argument);
	if (error)
		owners[stack].taken = false;
	else
		owners[stack].thread = *thread_p;
	pthread_mutex_unlock(&lock);
	pthread_attr_destroy(&with);
	return error;
}

int
__wrap_pthread_join(pthread_t thread, void **result_p)
{
	int error = __real_pthread_join(thread, result_p);

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < STACKS && !error; i++)
		if (owners[i].taken && pthread_equal(owners[i].thread, thread))
			owners[i].taken = false;
	pthread_mutex_unlock(&lock);
	return error;
}

/* ---- registering ---- */

static void
add_registered(const char *what, void *begin, const void *end)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)begin / page * page;
	uintptr_t to = ((uintptr_t)end + page - 1) / page * page;
	CUresult result =
		cuda->host_register((void *)from, to - from, PORTABLE | MAPPED);

	if (result == BATONI_CU_SUCCESS)
		return;
	fprintf(stderr, "cuMemHostRegister of the %s (%zu bytes): %u\n", what,
	        (size_t)(to - from), result);
	abort();
}

static void
add_heap(void)
{
	char line[256], *begin = NULL, *end = NULL;
	/* More than what is there, so that the heap grows.  Volatile: else the compiler leaves both
	 * calls out, and the heap grows only if what the libraries have left of it is too small. */
	void *volatile block = malloc(4 * MIB);
	FILE *maps;

	free(block);
	maps = fopen("/proc/self/maps", "r");
	/* After a fork it is two mappings: what the parent has used, and what has grown since. */
	while (maps && fgets(line, sizeof(line), maps)) {
		void *from, *to;

		if (!strstr(line, "[heap]") ||
		    sscanf(line, "%p-%p", &from, &to) != 2)
			continue;
		if (!begin)
			begin = from;
		end = to;
	}
	if (maps)
		fclose(maps);
	if (!begin || (size_t)(end - begin) < HEAP_BYTES) {
		fprintf(stderr, "malloc has not taken a heap of %zu bytes\n",
		        HEAP_BYTES);
		abort();
	}
	add_registered("heap", begin, end);
}

static void
add_stacks(void)
{
	char *block = mmap(NULL, STACKS * STACK_BYTES, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (block == MAP_FAILED)
		abort();
	add_registered("stacks", block, block + STACKS * STACK_BYTES);
	pthread_mutex_lock(&lock);
	stacks = block;
	pthread_mutex_unlock(&lock);
}

/* ---- the program ---- */

bool
on_nccl_begin(void)
{
	CUcontext popped;

	mallopt(M_MMAP_MAX, 0);
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_TRIM_THRESHOLD, -1);
	mallopt(M_TOP_PAD, (int)HEAP_BYTES);
	cuda = cudasim_load(NULL);
	nccl = ncclsim_load(NULL);
	if (!cuda || !nccl) {
		printf("SKIP: no CUDA driver or no NCCL, and no simulators of them\n");
		return false;
	}
	if (!on_cuda_begin() ||
	    cuda->primary_retain(&context, 0) != BATONI_CU_SUCCESS ||
	    cuda->context_push(context) != BATONI_CU_SUCCESS)
		return false;
	add_registered("data", __data_start, _end);
	add_heap();
	add_stacks();
	return cuda->context_pop(&popped) == BATONI_CU_SUCCESS;
}

struct program {
	int (*run)(int argc, char **argv);
	int argc;
	char **argv;
	int result;
};

static void *
program_main(void *argument)
{
	struct program *program = argument;

	program->result = program->run(program->argc, program->argv);
	return NULL;
}

int
on_nccl_run(int (*run)(int argc, char **argv), int argc, char **argv)
{
	struct program program = {.run = run, .argc = argc, .argv = argv};
	pthread_t thread;

	if (pthread_create(&thread, NULL, program_main, &program) != 0)
		abort();
	pthread_join(thread, NULL);
	return program.result;
}

struct baton_comm_options
on_nccl_options(const struct baton_comm_options *options_or_null)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	if (options_or_null)
		options = *options_or_null;
	options.device = BATON_DEVICE_CUDA;
	options.transport = BATON_TRANSPORT_NCCL;
	options.nccl_lists = true;
	return options;
}

int
on_nccl_end(int result)
{
	result = on_cuda_end(result);
	if (!nccl->sim_violations || nccl->sim_violations() == 0)
		return result;
	printf("not ok  NCCL's rules were broken\n");
	return 1;
}

unsigned
on_nccl_streams(int ranks)
{
	unsigned bits = 0;

	while (1 << bits < ranks)
		bits++;
	return 2 * bits + 3;
}
