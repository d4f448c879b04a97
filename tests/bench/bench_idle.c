/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What Baton costs while the program does something else, or nothing.
 *
 * idle_cpu: the processor time of all threads but the measuring one, with a
 * communicator that has been used and has nothing pending.  pending_cpu: the
 * same with a receive pending and nobody waiting.  Both are shares of one core.
 * many_pending_cpu: as pending_cpu, with so many receives on different tags (the
 * column "bytes"); many_notice: as fd_latency, among as many, over near beside
 * fd_latency's mean, taken just before.  many_pending_tag_cpu,
 * many_notice_tag: the same with all of them on one tag.
 * window_cpu: as idle_cpu, with a window that has been put into.
 * signal_pending_cpu: the same with a wait for a signal that does not come and
 * nobody in it; signal_wait_cpu: while one has been in baton_wait for it for a while.
 * Where signals travel by messages the engine looks for them: 1 % of a core at most.
 * fd_latency_p99: from the sender's clock, read just before it sends, to
 * epoll_wait's return on the queue's descriptor in the receiver, which sleeps
 * there; messages come 2 to 10 ms apart, in turns with writes of a bare eventfd, for
 * which the receiver sleeps in the same way.  CLOCK_MONOTONIC is one clock for both
 * processes.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "baton_mpi.h"
#include "bench.h"
#include "bench_eventfd.h"

#define TAG 9
/* None, as far as two clocks can be read at once: ten wake-ups a second stay
 * below this, a thread that ticks does not. */
#define IDLE_NONE 0.0001

static double
clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Processor time of all threads but this one. */
static double
others_ns(void)
{
	double mine = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - mine;
}

/* What they have used since then, as a share of a core.  The two clocks are not
 * read at the same instant: nothing can come out a little below 0. */
static double
share_since(double cpu, uint64_t start)
{
	double share = (others_ns() - cpu) / (double)(bench_now() - start);

	return share < 0 ? 0 : share;
}

static baton_request
post(struct bench *b, bool send, uint64_t *cell,
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

static void
exchange(struct bench *b, bool send)
{
	uint64_t cell = 0;
	baton_request request = post(b, send, &cell, NULL);

	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
}

/* Report the larger of the two ranks' shares. */
static void
report_larger(struct bench *b, struct bench_row *row, double share)
{
	double larger;

	MPI_Allreduce(&share, &larger, 1, MPI_DOUBLE, MPI_MAX, b->raw);
	row->value = bench_single(larger, 1);
	bench_report(b, row);
}

static double
idle_share(struct bench *b, uint64_t ns)
{
	uint64_t start;
	double cpu;

	bench_meet(b);
	bench_sleep(200000000); /* it may linger before it sleeps */
	cpu = others_ns();
	start = bench_now();
	bench_sleep(ns);
	return share_since(cpu, start);
}

static void
measure_idle(struct bench *b, uint64_t ns)
{
	struct bench_row row = {.bench = "idle_cpu", .unit = "core",
	                        .kind = BENCH_VALUE_MAX, .bar = IDLE_NONE};

	exchange(b, b->rank == 0);
	report_larger(b, &row, idle_share(b, ns));
}

/* Rank 0 has the receive; rank 1 nothing. */
static void
measure_pending(struct bench *b, uint64_t ns)
{
	struct bench_row row = {.bench = "pending_cpu", .bytes = 8,
	                        .unit = "core", .kind = BENCH_VALUE_MAX,
	                        .bar = 0.02};
	baton_request request = BATON_REQUEST_NULL;
	uint64_t cell = 0, start;
	double cpu;

	if (b->rank == 0) {
		cpu = others_ns();
		start = bench_now();
		request = post(b, false, &cell, NULL);
		bench_sleep(ns);
		row.value = bench_single(share_since(cpu, start), 1);
		bench_report(b, &row);
	} else {
		bench_sleep(ns + 100000000);
		request = post(b, true, &cell, NULL);
	}
	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
	bench_meet(b);
}

/* 2 to 10 ms, spread so that they fall into step with no period. */
static uint64_t
next_gap(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return 2000000u + (*state >> 8) % 8000000u;
}

#define STAMPS_MAX BENCH_SAMPLES_MAX
#define STAMPS_TAG 5 /* of MPI's */

/* Messages and writes of a bare eventfd, in turns. */
static void
send_stamps(struct bench *b, struct bench_eventfd *bare, int count)
{
	static uint64_t written[STAMPS_MAX];
	uint32_t state = 1;

	bench_meet_asleep(b);
	for (int i = 0; i < count; i++) {
		baton_request request;
		uint64_t stamp;

		bench_sleep(next_gap(&state));
		stamp = bench_now();
		request = post(b, true, &stamp, NULL);
		bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
		bench_sleep(next_gap(&state));
		written[i] = bench_eventfd_write(bare);
	}
	MPI_Send(written, count, MPI_UINT64_T, b->peer, STAMPS_TAG, b->raw);
}

static void
receive_stamps(struct bench *b, struct bench_eventfd *bare, int count,
	       struct bench_samples *samples, struct bench_samples *bare_samples)
{
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct baton_completion completion;
	static uint64_t written[STAMPS_MAX], seen[STAMPS_MAX];
	struct baton_queue *queue;
	uint64_t stamp, now;

	bench_must(baton_queue_create(b->comm, 4, &queue) == BATON_OK);
	bench_must(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD,
	                                   baton_queue_fd(queue), &event) == 0);
	bench_meet_asleep(b);
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
		seen[i] = bench_eventfd_wait(bare);
	}
	MPI_Recv(written, count, MPI_UINT64_T, b->peer, STAMPS_TAG, b->raw,
	         MPI_STATUS_IGNORE);
	for (int i = 0; i < count; i++)
		bench_add(bare_samples, (double)(seen[i] - written[i]) / 1e6);
	close(epoll);
	baton_queue_destroy(queue);
}

static bool
is_near(const struct bench *b)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	bench_must(baton_comm_query(b->comm, &info) == BATON_OK);
	return info.message_paths == BATON_MESSAGE_PATH_NEAR;
}

static double
mean(const struct bench_samples *samples)
{
	double sum = 0;

	for (int i = 0; i < samples->count; i++)
		sum += samples->value[i];
	return sum / samples->count;
}

/* Returns the mean, on rank 0. */
static double
measure_fd(struct bench *b)
{
	static struct bench_samples samples, bare_samples;
	struct bench_row row = {.bench = "fd_latency_p99", .bytes = 8, .unit = "ms",
	                        .baseline = "bare eventfd",
	                        .kind = is_near(b) ? BENCH_RATIO_MAX
	                                           : BENCH_VALUE_MAX,
	                        .bar = is_near(b) ? 1.5 : 1.2};
	int count = b->quick ? 500 : 2000;
	struct bench_eventfd bare;

	samples.count = bare_samples.count = 0;
	bench_eventfd_open(b, &bare);
	if (b->rank == 0) {
		receive_stamps(b, &bare, count, &samples, &bare_samples);
		row.value = bench_single(bench_percentile(&samples, 0.99),
		                         samples.count);
		row.base = bench_single(bench_percentile(&bare_samples, 0.99),
		                        samples.count);
		bench_report(b, &row);
		row.bench = "fd_latency_median";
		row.value = bench_stat(&samples);
		row.base = bench_stat(&bare_samples);
		row.kind = BENCH_REPORT;
		bench_report(b, &row);
		row.bench = "fd_latency_mean";
		row.value = bench_single(mean(&samples), samples.count);
		row.base = bench_single(mean(&bare_samples), samples.count);
		bench_report(b, &row);
	} else {
		send_stamps(b, &bare, count);
	}
	bench_eventfd_close(&bare);
	bench_meet_asleep(b);
	return b->rank == 0 ? row.value.median : 0;
}

/* ---- many receives pending, and nobody waits ---- */

#define MANY_MAX 16384

struct many {
	struct baton_comm *comm;
	struct baton_queue *queue;
	int tags;
	uint64_t stamps[MANY_MAX];
};

static void
post_one(struct many *many, int peer, int i)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	options.queue = many->queue;
	options.user_data = (uint64_t)i;
	bench_must(baton_recv(&many->stamps[i], 8, BATON_UINT8, peer,
	                      i % many->tags, many->comm, NULL, &options, NULL) == BATON_OK);
}

/* Messages on tags drawn at random; the descriptor tells of each. */
static void
notice_stamps(struct bench *b, struct many *many, int count,
	      struct bench_samples *samples)
{
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct baton_completion completion;
	uint64_t now;

	bench_must(epoll >= 0 &&
	           epoll_ctl(epoll, EPOLL_CTL_ADD, baton_queue_fd(many->queue),
	                     &event) == 0);
	for (int i = 0; i < count; i++) {
		do {
			if (baton_queue_arm(many->queue) == BATON_OK)
				bench_must(epoll_wait(epoll, &event, 1, -1) ==
				           1);
			now = bench_now();
		} while (baton_queue_poll(many->queue, &completion, 1) == 0);
		bench_must(completion.status == BATON_OK);
		bench_add(samples,
		          (double)(now - many->stamps[completion.user_data]) /
		                  1e6);
		post_one(many, b->peer, (int)completion.user_data);
	}
	close(epoll);
}

static void
send_stamp_to_any(struct bench *b, struct many *many, uint32_t *state)
{
	baton_request request;
	uint64_t stamp;

	bench_sleep(next_gap(state));
	stamp = bench_now();
	bench_must(baton_send(&stamp, 8, BATON_UINT8, b->peer,
	                      (int)((*state >> 8) % (uint32_t)many->tags),
	                      many->comm, NULL, NULL, &request) == BATON_OK);
	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
}

/* fd_mean: of fd_latency, in ms, on rank 0; over near. */
static void
measure_many_of(struct bench *b, int pending, int tags, double fd_mean, uint64_t ns)
{
	static struct bench_samples samples;
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	bool one = tags == 1;
	struct bench_row row = {.bench = one ? "many_pending_tag_cpu"
	                                     : "many_pending_cpu",
	                        .bytes = (size_t)pending, .unit = "core",
	                        .kind = BENCH_VALUE_MAX,
	                        .bar = pending > 4096 ? 0.05 : 0.02};
	int count = b->quick ? 200 : 500;
	struct many *many = bench_alloc(sizeof(*many));
	uint32_t state = 1;
	uint64_t start;
	double cpu;

	options.requests_max = MANY_MAX + 16;
	many->tags = tags;
	samples.count = 0;
	bench_must(baton_comm_create_mpi(b->raw, &options, &many->comm) ==
	           BATON_OK);
	bench_must(baton_queue_create(many->comm, MANY_MAX + 16,
	                              &many->queue) == BATON_OK);
	bench_meet_asleep(b);
	if (b->rank == 0) {
		for (int i = 0; i < pending; i++)
			post_one(many, b->peer, i);
		bench_sleep(200000000);
		cpu = others_ns();
		start = bench_now();
		bench_sleep(ns);
		row.value = bench_single(share_since(cpu, start), 1);
		bench_report(b, &row);
		bench_meet_asleep(b);
		notice_stamps(b, many, count, &samples);
		row.bench = one ? "many_notice_tag_mean" : "many_notice_mean";
		row.unit = "ms";
		row.bar = 1.5;
		if (is_near(b)) {
			row.baseline = "fd_latency_mean";
			row.base = bench_single(fd_mean, samples.count);
			row.kind = BENCH_EXCESS_MAX;
			row.bar = 0.2;
		}
		row.value = bench_single(mean(&samples), samples.count);
		bench_report(b, &row);
		row.bench = one ? "many_notice_tag_p99" : "many_notice_p99";
		row.kind = BENCH_REPORT;
		row.baseline = NULL;
		row.value = bench_single(bench_percentile(&samples, 0.99),
		                         samples.count);
		bench_report(b, &row);
		bench_must(baton_comm_abort(many->comm) == BATON_OK);
		baton_queue_destroy(many->queue);
	} else {
		bench_meet_asleep(b);
		for (int i = 0; i < count; i++)
			send_stamp_to_any(b, many, &state);
		baton_queue_destroy(many->queue);
		bench_must(baton_comm_abort(many->comm) == BATON_OK);
	}
	bench_meet_asleep(b);
	(void)baton_comm_destroy(many->comm);
	free(many);
}

static void
measure_many(struct bench *b, uint64_t ns)
{
	double fd_mean = is_near(b) ? measure_fd(b) : 0;

	measure_many_of(b, 256, 256, fd_mean, ns);
	measure_many_of(b, 1024, 1024, fd_mean, ns);
	measure_many_of(b, 4096, 4096, fd_mean, ns);
	measure_many_of(b, MANY_MAX, MANY_MAX, fd_mean, ns);
	measure_many_of(b, MANY_MAX, 1, fd_mean, ns);
}

/* ---- windows ------------------------------------------------------------ */

/* Detached: the put that answers it is on the same stream. */
static baton_request
wait_signal(struct bench *b)
{
	const struct baton_wait_signal_desc desc = {1, b->peer, 0, 0};
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request request;

	detached.flags = BATON_OP_DETACHED;
	bench_must(baton_wait_signal(1, &desc, b->comm, b->stream, &detached,
	                             &request) == BATON_OK);
	return request;
}

static void
put_cell(struct bench *b, struct baton_window *window)
{
	uint64_t cell = 1;
	baton_request request;

	bench_must(baton_put_signal(&cell, 8, BATON_UINT8, b->peer, window, 0,
	                            0, 0, 0, b->comm, b->stream, NULL,
	                            &request) == BATON_OK);
	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
}

static void *
wait_in_call(void *wait)
{
	bench_must(baton_finish(wait, -1, NULL) == BATON_OK);
	return NULL;
}

static void
measure_window_rows(struct bench *b, struct baton_window *window, uint64_t ns)
{
	bool message = baton_window_path(window, b->peer) ==
	               BATON_WINDOW_PATH_MESSAGE;
	struct bench_row row = {.unit = "core", .kind = BENCH_VALUE_MAX,
	                        .bar = message ? 0.01 : IDLE_NONE};
	baton_request wait = wait_signal(b);
	pthread_t waiter;

	put_cell(b, window);
	bench_must(baton_finish(&wait, -1, NULL) == BATON_OK);
	row.bench = message ? "window_cpu_message" : "window_cpu";
	report_larger(b, &row, idle_share(b, ns));

	wait = wait_signal(b);
	row.bench = message ? "signal_pending_message" : "signal_pending_cpu";
	report_larger(b, &row, idle_share(b, ns));

	row.bench = message ? "signal_wait_message" : "signal_wait_cpu";
	bench_must(pthread_create(&waiter, NULL, wait_in_call, &wait) == 0);
	report_larger(b, &row, idle_share(b, ns));
	put_cell(b, window);
	pthread_join(waiter, NULL);
}

static void
measure_window(struct bench *b, uint64_t ns)
{
	struct baton_window *window;
	enum baton_status status;
	void *memory;

	bench_must(baton_mem_alloc(b->comm, 4096, &memory) == BATON_OK);
	status = baton_window_register(memory, 4096, b->comm, &window);
	if (status == BATON_ERR_UNSUPPORTED) {
		if (b->rank == 0)
			printf("window_cpu: skipped: %s\n", baton_last_error());
	} else {
		bench_must(status == BATON_OK);
		measure_window_rows(b, window, ns);
		bench_must(baton_window_deregister(window) == BATON_OK);
	}
	bench_must(baton_mem_free(b->comm, memory) == BATON_OK);
}

int
main(int argc, char **argv)
{
	struct bench b;
	uint64_t ns;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	ns = b.quick ? 2000000000u : 5000000000u;
	if (bench_wants(&b, "idle_cpu"))
		measure_idle(&b, ns);
	if (bench_wants(&b, "pending_cpu"))
		measure_pending(&b, ns);
	if (bench_wants(&b, "many_pending"))
		measure_many(&b, b.quick ? ns / 2 : ns);
	if (bench_wants(&b, "fd_latency") && !(bench_wants(&b, "many_pending") && is_near(&b)))
		measure_fd(&b);
	if (bench_wants(&b, "window_cpu"))
		measure_window(&b, b.quick ? ns / 2 : ns);
	return bench_fini(&b);
}
