/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the calls cost the thread that makes them.
 *
 * enqueue_send, enqueue_recv: one call of 8 bytes on an idle stream, timed in
 * batches of 64 (detached, so that the stream stays idle) and drained outside
 * the clock, against MPI_Isend and MPI_Irecv in the same pattern.  The other
 * rank waits in the library under test meanwhile.
 * poll_done: baton_test of a request that has completed; poll_driven: of a
 * pending one while another thread drives.
 * wake: the first baton_recv after 60 ms of nothing, which has an engine thread
 * to wake, against an MPI_Irecv after the same pause.
 */
#include <pthread.h>

#include "bench.h"

#define TAG 6
#define TAG_READY 7
#define TAG_DRIVEN 8
#define POLLS 200000
#define PAUSE_NS 60000000u

static uint64_t cells[BENCH_WINDOW];

/* A library under test, and which of its calls are timed. */
struct calls {
	uint64_t (*make)(struct bench *b, bool send); /* a batch of them, timed */
	/* Rank `from` tells the other that its calls are made. */
	void (*ready)(struct bench *b, int from);
	void (*drain)(void);
	bool sends;
};

/* The side that receives always posts first. */
static double
block(struct bench *b, void *arg, int rounds)
{
	const struct calls *calls = arg;
	uint64_t spent = 0;

	for (int i = 0; i < rounds; i++) {
		bool send = (b->rank == 0) == calls->sends;

		if (send)
			calls->ready(b, b->peer);
		spent += calls->make(b, send);
		if (!send)
			calls->ready(b, b->rank);
		calls->drain();
	}
	return (double)spent / ((double)rounds * BENCH_WINDOW);
}

/* ---- raw ---------------------------------------------------------------- */

static MPI_Request raw_requests[BENCH_WINDOW];

static uint64_t
raw_calls(struct bench *b, bool send)
{
	uint64_t start = bench_now();

	for (int k = 0; k < BENCH_WINDOW; k++)
		if (send)
			MPI_Isend(&cells[k], 8, MPI_BYTE, b->peer, TAG, b->raw,
			          &raw_requests[k]);
		else
			MPI_Irecv(&cells[k], 8, MPI_BYTE, b->peer, TAG, b->raw,
			          &raw_requests[k]);
	return bench_now() - start;
}

static void
raw_drain(void)
{
	MPI_Waitall(BENCH_WINDOW, raw_requests, MPI_STATUSES_IGNORE);
}

static void
raw_ready(struct bench *b, int from)
{
	char token = 0;

	if (b->rank == from)
		MPI_Send(&token, 1, MPI_BYTE, b->peer, TAG_READY, b->raw);
	else
		MPI_Recv(&token, 1, MPI_BYTE, b->peer, TAG_READY, b->raw,
		         MPI_STATUS_IGNORE);
}

/* ---- Baton -------------------------------------------------------------- */

static baton_request requests[BENCH_WINDOW];

static uint64_t
baton_calls(struct bench *b, bool send)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	enum baton_status failed = BATON_OK;
	uint64_t start;

	detached.flags = BATON_OP_DETACHED;
	start = bench_now();
	for (int k = 0; k < BENCH_WINDOW; k++) {
		enum baton_status status;

		if (send)
			status = baton_send(&cells[k], 8, BATON_UINT8, b->peer,
			                    TAG, b->comm, b->stream, &detached,
			                    &requests[k]);
		else
			status = baton_recv(&cells[k], 8, BATON_UINT8, b->peer,
			                    TAG, b->comm, b->stream, &detached,
			                    &requests[k]);
		if (status != BATON_OK)
			failed = status;
	}
	start = bench_now() - start;
	bench_must(failed == BATON_OK);
	return start;
}

static void
baton_drain(void)
{
	for (int k = 0; k < BENCH_WINDOW; k++)
		bench_must(baton_finish(&requests[k], -1, NULL) == BATON_OK);
}

static void
baton_ready(struct bench *b, int from)
{
	enum baton_status status;
	baton_request request;
	char token = 0;

	if (b->rank == from)
		status = baton_send(&token, 1, BATON_UINT8, b->peer, TAG_READY,
		                    b->comm, b->stream, NULL, &request);
	else
		status = baton_recv(&token, 1, BATON_UINT8, b->peer, TAG_READY,
		                    b->comm, b->stream, NULL, &request);
	bench_must(status == BATON_OK);
	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
}

static void
measure_enqueue(struct bench *b, bool send)
{
	struct calls raw = {raw_calls, raw_ready, raw_drain, send};
	struct calls ours = {baton_calls, baton_ready, baton_drain, send};
	const struct bench_side sides[] = {{block, &raw}, {block, &ours}};
	struct bench_plan plan = {.blocks = b->quick ? 50 : 200,
	                          .block_ns = 4000000};
	struct bench_stat stats[2];
	struct bench_row row = {.bytes = 8, .unit = "ns",
	                        .kind = BENCH_EXCESS_MAX, .bar = 100};

	bench_compare(b, sides, 2, &plan, stats);
	row.bench = send ? "enqueue_send" : "enqueue_recv";
	row.baseline = send ? "MPI_Isend" : "MPI_Irecv";
	row.base = stats[0];
	row.value = stats[1];
	bench_report(b, &row);
}

/* ---- polls -------------------------------------------------------------- */

static void
to_self(struct bench *b, bool send, uint64_t *cell, int tag,
	baton_request *request)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	enum baton_status status;

	detached.flags = BATON_OP_DETACHED;
	if (send)
		status = baton_send(cell, 8, BATON_UINT8, b->rank, tag, b->comm,
		                    b->stream, &detached, request);
	else
		status = baton_recv(cell, 8, BATON_UINT8, b->rank, tag, b->comm,
		                    b->stream, &detached, request);
	bench_must(status == BATON_OK);
}

static void
report_polls(struct bench *b, const char *name,
	     baton_request request, enum baton_status expected)
{
	static struct bench_samples samples;
	struct bench_row row = {.bench = name, .bytes = 8, .unit = "ns",
	                        .kind = BENCH_VALUE_MAX, .bar = 5};
	int blocks = b->quick ? 40 : 200;

	samples.count = 0;
	for (int block = 0; block <= blocks; block++) {
		uint64_t start = bench_now();
		int others = 0;

		for (int i = 0; i < POLLS; i++)
			others += baton_test(request, NULL) != expected;
		if (block > 0)
			bench_add(&samples,
			          (double)(bench_now() - start) / POLLS);
		bench_must(others == 0);
	}
	row.value = bench_stat(&samples);
	bench_report(b, &row);
}

static void *
drive(void *arg)
{
	baton_request *request = arg;

	bench_must(baton_finish(request, -1, NULL) == BATON_OK);
	return NULL;
}

/* Rank 1 sleeps meanwhile: the two threads of rank 0 have a core each. */
static void
measure_polls(struct bench *b)
{
	uint64_t in = 0, driven_in = 0, out = 0;
	baton_request recv, send, driven;
	pthread_t thread;

	if (b->rank == 0) {
		to_self(b, false, &in, TAG, &recv);
		to_self(b, true, &out, TAG, &send);
		bench_must(baton_wait(recv, -1, NULL) == BATON_OK);
		bench_must(baton_finish(&send, -1, NULL) == BATON_OK);
		report_polls(b, "poll_done", recv, BATON_OK);
		bench_must(baton_release(&recv) == BATON_OK);

		to_self(b, false, &in, TAG, &recv);
		to_self(b, false, &driven_in, TAG_DRIVEN, &driven);
		bench_must(pthread_create(&thread, NULL, drive, &driven) == 0);
		bench_sleep(20000000);
		report_polls(b, "poll_driven", recv, BATON_PENDING);
		to_self(b, true, &out, TAG_DRIVEN, &send);
		bench_must(baton_finish(&send, -1, NULL) == BATON_OK);
		bench_must(pthread_join(thread, NULL) == 0);
		to_self(b, true, &out, TAG, &send);
		bench_must(baton_finish(&send, -1, NULL) == BATON_OK);
		bench_must(baton_finish(&recv, -1, NULL) == BATON_OK);
	}
	bench_meet_asleep(b);
}

/* ---- wake --------------------------------------------------------------- */

/* Rank 0 pauses, posts a receive under the clock, and asks rank 1 for it. */
static uint64_t
wake_raw(struct bench *b)
{
	uint64_t start, took = 0;
	MPI_Request request;

	if (b->rank != 0) {
		raw_ready(b, 0);
		MPI_Send(&cells[0], 8, MPI_BYTE, b->peer, TAG, b->raw);
		return 0;
	}
	bench_sleep(PAUSE_NS);
	start = bench_now();
	MPI_Irecv(&cells[0], 8, MPI_BYTE, b->peer, TAG, b->raw, &request);
	took = bench_now() - start;
	raw_ready(b, 0);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	return took;
}

static uint64_t
wake_baton(struct bench *b)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	uint64_t start, took = 0;
	enum baton_status status;
	baton_request request;

	detached.flags = BATON_OP_DETACHED;
	if (b->rank != 0) {
		baton_ready(b, 0);
		status = baton_send(&cells[0], 8, BATON_UINT8, b->peer, TAG,
		                    b->comm, b->stream, NULL, &request);
	} else {
		bench_sleep(PAUSE_NS);
		start = bench_now();
		status = baton_recv(&cells[0], 8, BATON_UINT8, b->peer, TAG,
		                    b->comm, b->stream, &detached, &request);
		took = bench_now() - start;
		baton_ready(b, 0);
	}
	bench_must(status == BATON_OK);
	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
	return took;
}

static void
measure_wake(struct bench *b)
{
	static struct bench_samples raw, baton;
	struct bench_row row = {.bench = "wake", .bytes = 8, .unit = "us",
	                        .baseline = "MPI_Irecv", .kind = BENCH_REPORT};
	int pauses = b->quick ? 20 : 60;

	for (int i = 0; i < pauses; i++) {
		bench_add(&raw, (double)wake_raw(b) / 1e3);
		bench_meet(b);
		bench_add(&baton, (double)wake_baton(b) / 1e3);
		bench_meet(b);
	}
	row.base = bench_stat(&raw);
	row.value = bench_stat(&baton);
	bench_report(b, &row);
}

int
main(int argc, char **argv)
{
	struct bench b;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	measure_enqueue(&b, true);
	measure_enqueue(&b, false);
	measure_polls(&b);
	measure_wake(&b);
	return bench_fini(&b);
}
