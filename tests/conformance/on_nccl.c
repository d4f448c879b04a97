/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL reaches no pageable memory, and many cases have a value on their stack or in the heap
 * as their message.  So all of that is registered with the driver: the program's static data
 * and its heap, which malloc is told to keep in one piece, at the start; the stack of a thread
 * when it first sends or receives (the linker's --wrap).  Only a simulator of the driver
 * registers memory that is not there yet.
 */
#include "on_nccl.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cudasim.h"
#include "ncclsim.h"

#define HEAP_BYTES GIB
#define PORTABLE 1u /* for all contexts */
#define MAPPED 2u

extern char __data_start[]; /* the linker's */

enum baton_status __real_baton_send(const void *buffer, size_t count,
                                    enum baton_datatype type, int peer, int tag,
                                    struct baton_comm *comm,
                                    baton_stream stream,
                                    const struct baton_op_options *options,
                                    baton_request *request_p);
enum baton_status __wrap_baton_send(const void *buffer, size_t count,
                                    enum baton_datatype type, int peer, int tag,
                                    struct baton_comm *comm,
                                    baton_stream stream,
                                    const struct baton_op_options *options,
                                    baton_request *request_p);
enum baton_status __real_baton_recv(void *buffer, size_t count,
                                    enum baton_datatype type, int peer, int tag,
                                    struct baton_comm *comm,
                                    baton_stream stream,
                                    const struct baton_op_options *options,
                                    baton_request *request_p);
enum baton_status __wrap_baton_recv(void *buffer, size_t count,
                                    enum baton_datatype type, int peer, int tag,
                                    struct baton_comm *comm,
                                    baton_stream stream,
                                    const struct baton_op_options *options,
                                    baton_request *request_p);

enum baton_status __real_baton_group_begin(struct baton_comm *comm);
enum baton_status __wrap_baton_group_begin(struct baton_comm *comm);

static const struct cudasim *cuda;
static const struct ncclsim *nccl;
static CUcontext context;

/* What is registered already stays as it is: the stack of a thread that has ended. */
static void
add(void *at, size_t bytes)
{
	CUcontext popped;

	if (cuda->context_push(context) != 0)
		abort();
	cuda->host_register(at, bytes, PORTABLE | MAPPED);
	cuda->context_pop(&popped);
}

static void
add_stack(void)
{
	static _Thread_local bool added;
	pthread_attr_t attributes;
	void *stack;
	size_t bytes;

	if (added || pthread_getattr_np(pthread_self(), &attributes) != 0)
		return;
	added = true;
	pthread_attr_getstack(&attributes, &stack, &bytes);
	pthread_attr_destroy(&attributes);
	add(stack, bytes);
}

enum baton_status
__wrap_baton_send(const void *buffer, size_t count, enum baton_datatype type,
                  int peer, int tag, struct baton_comm *comm,
                  baton_stream stream, const struct baton_op_options *options,
                  baton_request *request_p)
{
	add_stack();
	return __real_baton_send(buffer, count, type, peer, tag, comm, stream,
	                         options, request_p);
}

enum baton_status
__wrap_baton_recv(void *buffer, size_t count, enum baton_datatype type, int peer,
                  int tag, struct baton_comm *comm, baton_stream stream,
                  const struct baton_op_options *options,
                  baton_request *request_p)
{
	add_stack();
	return __real_baton_recv(buffer, count, type, peer, tag, comm, stream,
	                         options, request_p);
}

/* Its members may be another thread's, of buffers of this one. */
enum baton_status
__wrap_baton_group_begin(struct baton_comm *comm)
{
	add_stack();
	return __real_baton_group_begin(comm);
}

bool
on_nccl_begin(void)
{
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_TRIM_THRESHOLD, -1);
	cuda = cudasim_load(NULL);
	nccl = ncclsim_load(NULL);
	if (!cuda || !cuda->sim_violations || !nccl || !nccl->sim_violations) {
		printf("skip: no simulators of CUDA and NCCL\n");
		return false;
	}
	if (!on_cuda_begin() || cuda->primary_retain(&context, 0) != 0)
		return false;
	/* The heap is above the data. */
	add(__data_start, (size_t)((char *)sbrk(0) - __data_start) + HEAP_BYTES);
	return true;
}

struct baton_comm_options
on_nccl_options(const struct baton_comm_options *options_or_null)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	if (options_or_null)
		options = *options_or_null;
	options.device = BATON_DEVICE_CUDA;
	options.transport = BATON_TRANSPORT_NCCL;
	return options;
}

int
on_nccl_end(int result)
{
	result = on_cuda_end(result);
	if (nccl->sim_violations() == 0)
		return result;
	printf("not ok  NCCL's rules were broken\n");
	return 1;
}
