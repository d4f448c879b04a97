/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda_world.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"

struct cuda_world cw;

void
cuda_world_load(void)
{
	if (cw.sim)
		return;
	setenv("BATON_CUDA_LIBRARY", CUDASIM_PATH, 1);
	unsetenv("BATON_DEVICE");
	cw.sim = cudasim_load(CUDASIM_PATH);
	ck_assert_ptr_nonnull(cw.sim);
}

CUstream
cuda_world_stream(unsigned flags)
{
	CUstream stream;

	cu_ok(cw.sim->stream_create(&stream, flags, 0));
	return stream;
}

CUstream
cuda_world_urgent_stream(void)
{
	int least = 0, greatest = 0;
	CUstream stream;

	cu_ok(cw.sim->priority_range(&least, &greatest));
	cu_ok(cw.sim->stream_create(&stream, BATONI_CU_STREAM_NON_BLOCKING,
	                            greatest));
	return stream;
}

CUdeviceptr
cuda_world_address(const void *pointer)
{
	return (CUdeviceptr)(uintptr_t)pointer;
}

void
cuda_world_begin(void)
{
	CUdeviceptr memory;
	void *words;

	cuda_world_load();
	cu_ok(cw.sim->init(0));
	cu_ok(cw.sim->primary_retain(&cw.context, 0));
	cu_ok(cw.sim->context_push(cw.context));
	cu_ok(cw.sim->mem_alloc(&memory, 2 * CUDA_WORLD_BYTES));
	cw.from = (void *)(uintptr_t)memory;
	cw.to = cw.from + CUDA_WORLD_BYTES;
	cu_ok(cw.sim->host_alloc(&words, CUDA_WORLD_WORDS * sizeof(uint64_t),
	                         BATONI_CU_HOST_ALLOC_PORTABLE |
	                                 BATONI_CU_HOST_ALLOC_MAPPED));
	memset(words, 0, CUDA_WORLD_WORDS * sizeof(uint64_t));
	cw.words = words;
	for (int i = 0; i < 2; i++)
		cw.streams[i] = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
}

struct baton_comm_options
cuda_world_options(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.cuda_device = 0;
	options.requests_max = 64;
	return options;
}

void
cuda_world_comms(const struct baton_comm_options *options)
{
	struct baton_comm_options usual = cuda_world_options();

	baton_ok(baton_comm_create_local(2, options ? options : &usual, cw.comms));
}

void
cuda_world_open(void)
{
	cuda_world_begin();
	cuda_world_comms(NULL);
}

void
cuda_world_destroy(void)
{
	for (int i = 0; i < 2; i++) {
		baton_ok(baton_comm_destroy(cw.comms[i]));
		cw.comms[i] = NULL;
	}
}

void
cuda_world_end(void)
{
	if (cw.comms[0])
		cuda_world_destroy();
	cw.sim->sim_settle(false);
	ck_assert_int_eq(cw.sim->sim_blocked(), 0);
	ck_assert_int_eq(cw.sim->sim_violations(), cw.violations);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

void
cuda_world_hold(CUstream stream, unsigned word)
{
	cu_ok(cw.sim->wait_value(stream,
	                         cuda_world_address((void *)(uintptr_t)cw.words) +
	                                 word * sizeof(uint64_t),
	                         1, BATONI_CU_WAIT_GEQ));
}

void
cuda_world_let_go(unsigned word)
{
	atomic_store(&cw.words[word], 1);
}

baton_request
cuda_world_send(const void *from, size_t bytes, int tag, CUstream stream)
{
	baton_request request = BATON_REQUEST_NULL;

	baton_ok(baton_send(from, bytes, BATON_UINT8, 1, tag, cw.comms[0], stream,
	                    NULL, &request));
	return request;
}

baton_request
cuda_world_recv(void *to, size_t bytes, int tag, CUstream stream)
{
	baton_request request = BATON_REQUEST_NULL;

	baton_ok(baton_recv(to, bytes, BATON_UINT8, 0, tag, cw.comms[1], stream,
	                    NULL, &request));
	return request;
}

void
cuda_world_finish(baton_request request, enum baton_status expected)
{
	ck_assert_int_eq(baton_finish(&request, LONG_NS, NULL), expected);
}

void
cuda_world_parts(void *base_0, void *base_1, size_t bytes)
{
	for (int i = 0; i < 2; i++)
		cw.parts[i] = (struct cuda_world_part){
			.comm = cw.comms[i],
			.base = i ? base_1 : base_0,
			.bytes = bytes,
		};
}

static void *
call_with(void *argument)
{
	struct cuda_world_part *part = argument;

	part->status = part->call(part);
	snprintf(part->why, sizeof(part->why), "%s", baton_last_error());
	return NULL;
}

void
cuda_world_both(enum baton_status (*call)(struct cuda_world_part *part),
                enum baton_status expected)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		cw.parts[i].call = call;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, call_with,
		                                &cw.parts[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++)
		ck_assert_msg(cw.parts[i].status == expected, "rank %d: %s, %s", i,
		              baton_status_name(cw.parts[i].status),
		              cw.parts[i].why);
}

enum baton_status
cuda_world_register(struct cuda_world_part *part)
{
	return baton_window_register(part->base, part->bytes, part->comm,
	                             &part->window);
}

enum baton_status
cuda_world_deregister(struct cuda_world_part *part)
{
	return baton_window_deregister(part->window);
}

static unsigned char
byte_at(size_t i, unsigned seed)
{
	return (unsigned char)(i * 7 + (i >> 9) + seed * 31 + 1);
}

void
cuda_world_fill(void *at, size_t bytes, unsigned seed)
{
	unsigned char *values = malloc(bytes);

	for (size_t i = 0; i < bytes; i++)
		values[i] = byte_at(i, seed);
	cw.sim->sim_poke(cuda_world_address(at), values, bytes);
	free(values);
}

void
cuda_world_expect(const void *at, size_t bytes, unsigned seed)
{
	unsigned char *values = malloc(bytes);

	cw.sim->sim_peek(values, cuda_world_address(at), bytes);
	for (size_t i = 0; i < bytes; i++)
		if (values[i] != byte_at(i, seed))
			ck_abort_msg("byte %zu of %zu is %u, not %u", i, bytes,
			             values[i], byte_at(i, seed));
	free(values);
}

long
cuda_world_uses(const char *const names[])
{
	long n = 0;

	for (size_t i = 0; names[i]; i++) {
		ck_assert_int_ge(cw.sim->sim_uses(names[i]), 0);
		n += cw.sim->sim_uses(names[i]);
	}
	return n;
}

void
cuda_world_has(const char *text, const char *const words[])
{
	for (size_t i = 0; words[i]; i++)
		ck_assert_msg(strstr(text, words[i]) != NULL,
		              "\"%s\" does not say \"%s\"", text, words[i]);
}

void
cuda_world_said(const char *const words[])
{
	cuda_world_has(baton_last_error(), words);
}
