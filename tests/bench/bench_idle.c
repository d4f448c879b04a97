/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What Baton costs while the program does something else, or nothing.
 *
 * idle_cpu: the processor time of all threads but the measuring one, with a
 * communicator that has been used and has nothing pending, against the same
 * process before there was a communicator.  pending_cpu: the same with a receive
 * pending and nobody waiting.  Both are shares of one core.
 * fd_latency_p99: from the sender's clock, read just before it sends, to
 * epoll_wait's return on the queue's descriptor in the receiver, which sleeps
 * there; messages come 2 to 10 ms apart.  CLOCK_MONOTONIC is one clock for both
 * processes.
 */
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define TAG 9
/* Two wake-ups in a second stay below this; a thread that ticks does not. */
#define IDLE_NOISE 0.0001

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t others_ns(void)
{
	uint64_t mine = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - mine;
}

/* The share of a core that the other threads of this process use in ns of
 * sleep, the larger of the two ranks'. */
static double share_asleep(struct bench *b, uint64_t ns)
{
	uint64_t cpu = others_ns(), start = bench_now();
	double share, larger;

	bench_sleep(ns);
	share = (double)(others_ns() - cpu) / (double)(bench_now() - start);
	MPI_Allreduce(&share, &larger, 1, MPI_DOUBLE, MPI_MAX, b->raw);
	return larger < 0 ? 0 : larger;
}

static baton_request post(struct bench *b, bool send, uint64_t *cell,
                          struct baton_queue *queue)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	enum baton_status status;
	baton_request request;

	options.queue = queue;
	if (send)
		status = baton_send(cell, 8, BATON_UINT8, b->peer, TAG, b->comm,
		                    b->stream, &options, &request);
	else
		status = baton_recv(cell, 8, BATON_UINT8, b->peer, TAG, b->comm,
		                    b->stream, &options, &request);
	bench_must(status == BATON_OK);
	return request;
}

static void exchange(struct bench *b, bool send)
{
	uint64_t cell = 0;
	baton_request request = post(b, send, &cell, NULL);

	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
}

static void measure_idle(struct bench *b, double before, uint64_t ns)
{
	struct bench_row row = {.bench = "idle_cpu", .unit = "core",
	                        .baseline = "no communicator",
	                        .kind = BENCH_EXCESS_MAX, .bar = IDLE_NOISE};

	exchange(b, b->rank == 0);
	bench_meet(b);
	bench_sleep(200000000); /* it may linger before it sleeps */
	row.value = bench_single(share_asleep(b, ns), 1);
	row.base = bench_single(before, 1);
	bench_report(b, &row);
}

/* Rank 0 has the receive; rank 1 nothing. */
static void measure_pending(struct bench *b, uint64_t ns)
{
	struct bench_row row = {.bench = "pending_cpu", .bytes = 8,
	                        .unit = "core", .kind = BENCH_VALUE_MAX,
	                        .bar = 0.02};
	baton_request request = BATON_REQUEST_NULL;
	uint64_t cell = 0, cpu, start;

	if (b->rank == 0) {
		cpu = others_ns();
		start = bench_now();
		request = post(b, false, &cell, NULL);
		bench_sleep(ns);
		row.value = bench_single((double)(others_ns() - cpu) /
		                                 (double)(bench_now() - start),
		                         1);
		bench_report(b, &row);
	} else {
		bench_sleep(ns + 100000000);
		request = post(b, true, &cell, NULL);
	}
	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
	bench_meet(b);
}

/* 2 to 10 ms, spread so that they fall into step with no period. */
static uint64_t next_gap(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return 2000000u + (*state >> 8) % 8000000u;
}

static void send_stamps(struct bench *b, int count)
{
	uint32_t state = 1;

	for (int i = 0; i < count; i++) {
		baton_request request;
		uint64_t stamp;

		bench_sleep(next_gap(&state));
		stamp = bench_now();
		request = post(b, true, &stamp, NULL);
		bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
	}
}

static void receive_stamps(struct bench *b, int count,
                           struct bench_samples *samples)
{
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct baton_completion completion;
	struct baton_queue *queue;
	uint64_t stamp, now;

	bench_must(baton_queue_create(b->comm, 4, &queue) == BATON_OK);
	bench_must(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD,
	                                   baton_queue_fd(queue), &event) == 0);
	for (int i = 0; i < count; i++) {
		post(b, false, &stamp, queue);
		do {
			if (baton_queue_arm(queue) == BATON_OK)
				bench_must(epoll_wait(epoll, &event, 1, -1) ==
				           1);
			now = bench_now();
		} while (baton_queue_poll(queue, &completion, 1) == 0);
		bench_must(completion.status == BATON_OK);
		bench_add(samples, (double)(now - stamp) / 1e6);
	}
	close(epoll);
	baton_queue_destroy(queue);
}

static void measure_fd(struct bench *b)
{
	static struct bench_samples samples;
	struct bench_row row = {.bench = "fd_latency_p99", .bytes = 8,
	                        .unit = "ms", .kind = BENCH_VALUE_MAX,
	                        .bar = 1.2};
	int count = b->quick ? 500 : 2000;

	if (b->rank == 0) {
		receive_stamps(b, count, &samples);
		row.value = bench_single(bench_percentile(&samples, 0.99),
		                         samples.count);
		bench_report(b, &row);
		row.bench = "fd_latency_median";
		row.value = bench_stat(&samples);
		row.kind = BENCH_REPORT;
		bench_report(b, &row);
	} else {
		send_stamps(b, count);
	}
	bench_meet_asleep(b);
}

int main(int argc, char **argv)
{
	struct bench b;
	uint64_t ns;
	double before;

	bench_init(&b, &argc, &argv);
	ns = b.quick ? 2000000000u : 5000000000u;
	bench_meet(&b);
	before = share_asleep(&b, ns);
	bench_open(&b);
	measure_idle(&b, before, ns);
	measure_pending(&b, ns);
	measure_fd(&b);
	return bench_fini(&b);
}
