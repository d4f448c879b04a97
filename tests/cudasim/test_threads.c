/* SPDX-License-Identifier: BSD-3-Clause */
/* Many threads, each with streams of its own, in one context: no bytes get lost,
 * whatever the delays and however few the queues. */
#include <pthread.h>
#include <unistd.h>

#include "world.h"

enum { THREADS = 4, ROUNDS = 50, BYTES = 4096 };

struct worker {
	unsigned number;
	CUstream in, out;
	CUevent arrived, done;
	CUdeviceptr device;
	unsigned char *pinned; /* twice BYTES */
	struct probe probe;
};

static void
worker_init(struct worker *worker)
{
	void *pinned;
	unsigned i = worker->number;

	worker->in = world_stream(i % 2 ? BATONI_CU_STREAM_NON_BLOCKING : 0);
	worker->out = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->event_create(&worker->arrived, 0));
	ck_success(w.sim->event_create(&worker->done, 0));
	ck_success(w.sim->host_alloc(&pinned, 2 * BYTES, 0));
	worker->pinned = pinned;
}

static void
worker_fini(struct worker *worker)
{
	ck_success(w.sim->event_destroy(worker->arrived));
	ck_success(w.sim->event_destroy(worker->done));
	ck_success(w.sim->stream_destroy(worker->in));
	ck_success(w.sim->stream_destroy(worker->out));
	ck_success(w.sim->host_free(worker->pinned));
}

/* To the device on one stream and back on the other, when the host lets it. */
static void
run_round(struct worker *worker, unsigned round)
{
	CUdeviceptr pinned = (uintptr_t)worker->pinned;
	CUresult result;

	memset(worker->pinned + BYTES, 0, BYTES);
	world_wait(worker->in, worker->number, round);
	ck_success(w.sim->copy(worker->device, pinned, BYTES, worker->in));
	ck_success(w.sim->event_record(worker->arrived, worker->in));
	ck_success(w.sim->stream_wait_event(worker->out, worker->arrived, 0));
	ck_success(w.sim->copy(pinned + BYTES, worker->device, BYTES,
	                       worker->out));
	world_probe(worker->out, &worker->probe);
	ck_success(w.sim->event_record(worker->done, worker->out));
	memset(worker->pinned, (int)(round + worker->number), BYTES);
	world_store(worker->number, round);
	do {
		result = w.sim->event_query(worker->done);
		if (result == BATONI_CU_NOT_READY)
			usleep(20);
	} while (result == BATONI_CU_NOT_READY);
	ck_success(result);
	ck_assert_int_eq(world_calls(&worker->probe), 1);
	ck_assert_mem_eq(worker->pinned, worker->pinned + BYTES, BYTES);
}

static void *
work(void *data)
{
	struct worker *worker = data;

	ck_success(w.sim->context_push(w.context));
	worker_init(worker);
	for (unsigned round = 1; round <= ROUNDS; round++)
		run_round(worker, round);
	worker_fini(worker);
	return NULL;
}

static void
run_threads_of(long queues, long seed)
{
	struct worker workers[THREADS] = {0};
	pthread_t threads[THREADS];
	CUdeviceptr device;

	world_load();
	ck_assert(w.sim->sim_set("queues", queues));
	ck_assert(w.sim->sim_set("seed", seed));
	world_begin();
	ck_success(w.sim->mem_alloc(&device, THREADS * BYTES));
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].number = i;
		workers[i].device = device + i * BYTES;
		pthread_create(&threads[i], NULL, work, &workers[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_success(w.sim->mem_free(device));
	ck_assert_int_eq(w.sim->sim_live("streams"), 0);
	ck_assert_int_eq(w.sim->sim_live("events"), 0);
	ck_assert_int_eq(w.sim->sim_live("device"), 0);
	ck_assert_int_eq(w.sim->sim_live("pinned"), 1);
	world_end();
}

START_TEST(threads_do_not_disturb_each_other)
{
	run_threads_of(8, 0);
}
END_TEST

START_TEST(threads_do_not_disturb_each_other_on_one_queue)
{
	run_threads_of(1, 0);
}
END_TEST

START_TEST(threads_do_not_disturb_each_other_with_delays)
{
	run_threads_of(3, 11);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		threads_do_not_disturb_each_other,
		threads_do_not_disturb_each_other_on_one_queue,
		threads_do_not_disturb_each_other_with_delays,
	};

	return RUN_TESTS("cudasim_threads", tests);
}
