/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench_gpu.h"

#include <string.h>

#define MULTIPROCESSORS 16 /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */

struct bench_gpu bench_gpu;

void
bench_gpu_enter(void)
{
	CUDA(context_push(bench_gpu.context));
}

void
bench_gpu_leave(void)
{
	CUcontext context;

	CUDA(context_pop(&context));
}

void
bench_gpu_load(void)
{
	bench_gpu.cuda = cudasim_load(NULL);
	bench_must(bench_gpu.cuda != NULL);
	bench_gpu.simulated = bench_gpu.cuda->sim_violations != NULL;
}

void
bench_gpu_open(int number)
{
	CUdevice device;
	int least = 0, greatest = 0;

	CUDA(init(0));
	CUDA(device_get(&device, number));
	CUDA(primary_retain(&bench_gpu.context, device));
	if (!bench_gpu.simulated)
		CUDA(device_attribute(&bench_gpu.processors, MULTIPROCESSORS,
		                      device));
	bench_gpu_enter();
	CUDA(priority_range(&least, &greatest));
	CUDA(stream_create(&bench_gpu.copies, BATONI_CU_STREAM_NON_BLOCKING,
	                   least));
	bench_gpu_leave();
}

void *
bench_gpu_alloc(size_t bytes)
{
	CUdeviceptr memory;

	bench_gpu_enter();
	CUDA(mem_alloc(&memory, bytes));
	CUDA(set_bytes(memory, 1, bytes, bench_gpu.copies));
	CUDA(stream_synchronize(bench_gpu.copies));
	bench_gpu_leave();
	return (void *)(uintptr_t)memory;
}

void
bench_exchange(struct bench *b, const void *mine, void *theirs, int bytes)
{
	bench_must(MPI_Sendrecv(mine, bytes, MPI_BYTE, b->peer, 0, theirs, bytes,
	                        MPI_BYTE, b->peer, 0, b->raw,
	                        MPI_STATUS_IGNORE) == MPI_SUCCESS);
}

bool
bench_gpu_is_shared(struct bench *b)
{
	CUuuid mine, theirs;
	CUdevice device;

	memset(&mine, 0, sizeof(mine));
	CUDA(context_device(&device));
	if (bench_gpu.cuda->device_uuid)
		CUDA(device_uuid(&mine, device));
	bench_exchange(b, &mine, &theirs, sizeof(mine));
	return memcmp(&mine, &theirs, sizeof(mine)) == 0;
}

const char *
bench_path_name(unsigned path)
{
	switch (path) {
	case BATON_WINDOW_PATH_DIRECT:
		return "direct";
	case BATON_WINDOW_PATH_VMWRITE:
		return "vmwrite";
	case BATON_WINDOW_PATH_MESSAGE:
		return "by messages";
	default:
		return "another way";
	}
}

void
bench_gpu_report(struct bench *b, const struct bench_row *row)
{
	if (!bench_gpu.simulated)
		bench_report(b, row);
	else if (b->rank == 0)
		printf("%s of %zu bytes ran over the simulator: no figures\n",
		       row->bench, row->bytes);
}
