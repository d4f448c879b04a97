/* SPDX-License-Identifier: BSD-3-Clause */
/* The runtime's API over the simulator, as a program sees it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cudasim.h"
#include "run_tests.h"

#define ok(call) ck_assert_int_eq(call, cudaSuccess)

static const struct cudasim *sim;

static void
load(void)
{
	setenv("BATON_CUDA_LIBRARY", CUDASIM_PATH, 1);
	sim = cudasim_load(CUDASIM_PATH);
	ck_assert_ptr_nonnull(sim);
}

static void
end_settled(void)
{
	sim->sim_settle(false);
	ck_assert_int_eq(sim->sim_violations(), 0);
}

START_TEST(copies_go_there_and_back_in_stream_order)
{
	unsigned char here[4096], back[4096] = {0}, *pinned;
	cudaStream_t stream;
	void *memory;

	load();
	memset(here, 5, sizeof(here));
	ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	ok(cudaMalloc(&memory, 8192));
	ok(cudaMallocHost((void **)&pinned, 4096));
	memcpy(pinned, here, 4096);
	ok(cudaMemcpyAsync(memory, pinned, 4096, cudaMemcpyHostToDevice, stream));
	ok(cudaMemsetAsync(memory, 6, 100, stream));
	ok(cudaMemcpyAsync((char *)memory + 4096, memory, 4096,
	                   cudaMemcpyDeviceToDevice, stream));
	ok(cudaMemcpyAsync(pinned, (char *)memory + 4096, 4096,
	                   cudaMemcpyDeviceToHost, stream));
	ok(cudaStreamSynchronize(stream));
	memset(here, 6, 100);
	ck_assert_mem_eq(pinned, here, 4096);
	ok(cudaMemcpy(back, memory, 4096, cudaMemcpyDefault));
	ck_assert_mem_eq(back, here, 4096);
	ok(cudaMemset(memory, 7, 4096));
	ok(cudaMemcpy(back, memory, 1, cudaMemcpyDeviceToHost));
	ck_assert_int_eq(back[0], 7);
	ok(cudaFreeHost(pinned));
	ok(cudaFree(memory));
	ok(cudaStreamDestroy(stream));
	end_settled();
}
END_TEST

START_TEST(events_order_streams)
{
	cudaStream_t first, second;
	cudaEvent_t event;
	uint64_t *word;

	load();
	ok(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
	ok(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	ok(cudaMallocHost((void **)&word, sizeof(*word)));
	*word = 0;
	ck_assert_int_eq(sim->wait_value(first, (uintptr_t)word, 1,
	                                 BATONI_CU_WAIT_GEQ),
	                 0);
	ok(cudaEventRecord(event, first));
	ok(cudaStreamWaitEvent(second, event, 0));
	ck_assert_int_eq(cudaEventQuery(event), cudaErrorNotReady);
	ck_assert_int_eq(cudaStreamQuery(second), cudaErrorNotReady);
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	ok(cudaEventSynchronize(event));
	ok(cudaStreamSynchronize(second));
	ok(cudaEventQuery(event));
	ok(cudaEventDestroy(event));
	ok(cudaDeviceSynchronize());
	ok(cudaFreeHost(word));
	end_settled();
}
END_TEST

static void *
other_thread(void *argument)
{
	int device = 9;

	/* It starts with device 0, and no error. */
	ok(cudaPeekAtLastError());
	ok(cudaGetDevice(&device));
	ck_assert_int_eq(device, 0);
	ok(cudaFree(NULL));
	return argument;
}

START_TEST(each_thread_has_its_device_and_its_last_error)
{
	int count = 0, device = 9;
	CUcontext context = NULL;
	pthread_t thread;

	load();
	ck_assert(sim->sim_set("devices", 2));
	ok(cudaGetDeviceCount(&count));
	ck_assert_int_eq(count, 2);
	ok(cudaSetDevice(1));
	ok(cudaGetDevice(&device));
	ck_assert_int_eq(device, 1);
	ck_assert_int_eq(sim->context_current(&context), 0);
	ck_assert_ptr_nonnull(context);
	ck_assert_int_eq(cudaSetDevice(2), cudaErrorInvalidDevice);
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_join(thread, NULL);
	ck_assert_int_eq(cudaPeekAtLastError(), cudaErrorInvalidDevice);
	ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidDevice);
	ok(cudaGetLastError());
	ok(cudaGetDevice(&device));
	ck_assert_int_eq(device, 1);
	end_settled();
}
END_TEST

START_TEST(errors_have_names_and_texts)
{
	char here[8];
	void *memory;

	load();
	ok(cudaMalloc(&memory, 8));
	ck_assert_int_eq(cudaMemcpy(memory, here, 8, (enum cudaMemcpyKind)9),
	                 cudaErrorInvalidMemcpyDirection);
	ck_assert(sim->sim_fail("cuMemAlloc", 1, BATONI_CU_OUT_OF_MEMORY, false));
	ck_assert_int_eq(cudaMalloc(&memory, 8), cudaErrorMemoryAllocation);
	ck_assert_str_eq(cudaGetErrorName(cudaErrorMemoryAllocation),
	                 "cudaErrorMemoryAllocation");
	ck_assert_str_ne(cudaGetErrorString(cudaErrorMemoryAllocation), "");
	ck_assert_str_ne(cudaGetErrorString(cudaErrorInvalidMemcpyDirection), "");
	ck_assert_str_eq(cudaGetErrorString((cudaError_t)12345),
	                 "unrecognized error code");
	end_settled();
}
END_TEST

START_TEST(without_a_device_every_call_says_so)
{
	int count = 9;
	void *memory;

	load();
	ck_assert(sim->sim_set("devices", 0));
	ck_assert_int_eq(cudaGetDeviceCount(&count), cudaErrorNoDevice);
	ck_assert_int_eq(cudaMalloc(&memory, 8), cudaErrorNoDevice);
	ck_assert_int_eq(cudaGetLastError(), cudaErrorNoDevice);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		copies_go_there_and_back_in_stream_order,
		events_order_streams,
		each_thread_has_its_device_and_its_last_error,
		errors_have_names_and_texts,
		without_a_device_every_call_says_so,
	};

	return RUN_TESTS("cudart", tests);
}
