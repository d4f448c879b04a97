/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <unistd.h>

struct world w;

static _Atomic unsigned functions;

void
world_load(void)
{
	w.sim = cudasim_load(CUDASIM_PATH);
	ck_assert_ptr_nonnull(w.sim);
}

void
world_begin(void)
{
	void *words;

	if (!w.sim)
		world_load();
	ck_success(w.sim->init(0));
	ck_success(w.sim->primary_retain(&w.context, 0));
	ck_success(w.sim->context_push(w.context));
	ck_success(w.sim->host_alloc(&words, WORDS * sizeof(uint64_t),
	                             BATONI_CU_HOST_ALLOC_PORTABLE |
	                                     BATONI_CU_HOST_ALLOC_MAPPED));
	memset(words, 0, WORDS * sizeof(uint64_t));
	w.words = words;
	ck_success(w.sim->host_device_pointer(&w.words_on_device, words, 0));
}

void
world_end(void)
{
	w.sim->sim_settle(false);
	ck_assert_int_eq(w.sim->sim_queued(), 0);
	ck_assert_int_eq(w.sim->sim_blocked(), 0);
	ck_assert_int_eq(w.sim->sim_violations(), w.violations);
}

CUstream
world_stream(unsigned flags)
{
	CUstream stream;

	ck_success(w.sim->stream_create(&stream, flags, 0));
	return stream;
}

CUdeviceptr
world_address(unsigned word)
{
	return w.words_on_device + word * sizeof(uint64_t);
}

void
world_wait(CUstream stream, unsigned word, uint64_t value)
{
	ck_success(w.sim->wait_value(stream, world_address(word), value,
	                             BATONI_CU_WAIT_GEQ));
}

void
world_write(CUstream stream, unsigned word, uint64_t value)
{
	ck_success(w.sim->write_value(stream, world_address(word), value, 0));
}

void
world_store(unsigned word, uint64_t value)
{
	atomic_store_explicit(&w.words[word], value, memory_order_release);
}

uint64_t
world_load_word(unsigned word)
{
	return atomic_load_explicit(&w.words[word], memory_order_acquire);
}

static void
count(void *data)
{
	struct probe *probe = data;

	atomic_store(&probe->order, atomic_fetch_add(&functions, 1) + 1);
	atomic_fetch_add(&probe->calls, 1);
}

void
world_probe(CUstream stream, struct probe *probe)
{
	memset(probe, 0, sizeof(*probe));
	ck_success(w.sim->host_function(stream, count, probe));
}

int
world_calls(struct probe *probe)
{
	return atomic_load(&probe->calls);
}

static void
block(void *data)
{
	struct gate *gate = data;

	atomic_store(&gate->entered, true);
	while (!atomic_load(&gate->open))
		usleep(100);
}

void
world_gate(CUstream stream, struct gate *gate)
{
	memset(gate, 0, sizeof(*gate));
	ck_success(w.sim->host_function(stream, block, gate));
}

void
world_await_entry(struct gate *gate)
{
	while (!atomic_load(&gate->entered))
		usleep(100);
}

void
world_open(struct gate *gate)
{
	atomic_store(&gate->open, true);
}
