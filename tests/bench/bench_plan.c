/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a launch of a plan costs against the same calls made one by one.
 *
 * plan_launch_N, plan_group_N: N receives of 8 bytes, detached, on an idle stream, one by one or as
 * one group.  The calls alone are timed, and drained outside the clock: the other rank sends once
 * they are made.  Nanoseconds an operation.
 * plan_step_N: both ranks send N messages of 8 bytes to each other and receive N, in two groups, and
 * wait for the end: one request against 2 N.  Microseconds a step.
 */
#include "bench.h"

#define TAG 9
#define TAG_READY 10
#define N_MAX 32

struct job {
	struct bench *b;
	int n;
	bool grouped; /* plan_group */
	struct baton_plan *plan;
};

static uint64_t in[N_MAX], out[N_MAX];

static void
fine(enum baton_status status)
{
	bench_must(status == BATON_OK);
}

static void
move_one(struct bench *b, bool send, int k, const struct baton_op_options *options,
         baton_request *request_p)
{
	fine(send ? baton_send(&out[k], 8, BATON_UINT8, b->peer, TAG, b->comm,
	                       b->stream, options, request_p)
	          : baton_recv(&in[k], 8, BATON_UINT8, b->peer, TAG, b->comm,
	                       b->stream, options, request_p));
}

static void
ready(struct bench *b, int from)
{
	baton_request request;
	char token = 0;

	fine(b->rank == from
	             ? baton_send(&token, 1, BATON_UINT8, b->peer, TAG_READY,
	                          b->comm, b->stream, NULL, &request)
	             : baton_recv(&token, 1, BATON_UINT8, b->peer, TAG_READY,
	                          b->comm, b->stream, NULL, &request));
	fine(baton_finish(&request, -1, NULL));
}

/* ---- the calls alone ---- */

static void
receive_all(const struct job *job, baton_request *requests)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct bench *b = job->b;

	detached.flags = BATON_OP_DETACHED;
	if (job->grouped)
		fine(baton_group_begin(b->comm));
	for (int k = 0; k < job->n; k++)
		move_one(b, false, k, &detached, requests ? &requests[k] : NULL);
	if (job->grouped)
		fine(baton_group_end(b->comm));
}

static void
answer(const struct job *job)
{
	baton_request request;

	ready(job->b, 0);
	for (int k = 0; k < job->n; k++) {
		move_one(job->b, true, k, NULL, &request);
		fine(baton_finish(&request, -1, NULL));
	}
}

static double
receive_block(struct bench *b, const struct job *job, int rounds, bool planned)
{
	baton_request requests[N_MAX];
	uint64_t spent = 0, start;

	for (int i = 0; i < rounds; i++) {
		if (b->rank != 0) {
			answer(job);
			continue;
		}
		start = bench_now();
		if (planned)
			fine(baton_plan_launch(job->plan, NULL, requests));
		else
			receive_all(job, requests);
		spent += bench_now() - start;
		ready(b, 0);
		for (int k = 0; k < (planned ? 1 : job->n); k++)
			fine(baton_finish(&requests[k], -1, NULL));
	}
	return (double)spent / ((double)rounds * job->n);
}

static double
calls_block(struct bench *b, void *arg, int rounds)
{
	return receive_block(b, arg, rounds, false);
}

static double
launch_block(struct bench *b, void *arg, int rounds)
{
	return receive_block(b, arg, rounds, true);
}

/* ---- whole steps ---- */

static void
step(const struct job *job, baton_request *requests)
{
	struct bench *b = job->b;
	int n = 0;

	for (int half = 0; half < 2; half++) {
		fine(baton_group_begin(b->comm));
		for (int k = 0; k < job->n / 2; k++) {
			move_one(b, true, k, NULL, requests ? &requests[n++] : NULL);
			move_one(b, false, k, NULL, requests ? &requests[n++] : NULL);
		}
		fine(baton_group_end(b->comm));
	}
}

static double
step_block(struct bench *b, const struct job *job, int rounds, bool planned)
{
	baton_request requests[2 * N_MAX];
	uint64_t start = bench_now();

	(void)b;
	for (int i = 0; i < rounds; i++) {
		if (planned)
			fine(baton_plan_launch(job->plan, NULL, requests));
		else
			step(job, requests);
		for (int k = 0; k < (planned ? 1 : 2 * (job->n / 2) * 2); k++)
			fine(baton_finish(&requests[k], -1, NULL));
	}
	return (double)(bench_now() - start) / rounds / 1e3;
}

static double
step_calls(struct bench *b, void *arg, int rounds)
{
	return step_block(b, arg, rounds, false);
}

static double
step_launch(struct bench *b, void *arg, int rounds)
{
	return step_block(b, arg, rounds, true);
}

/* ---- rows ---- */

static void
measure(struct bench *b, const char *name, int n, bool grouped, bool steps)
{
	struct job job = {.b = b, .n = n, .grouped = grouped};
	const struct bench_side sides[] = {
		{steps ? step_calls : calls_block, &job},
		{steps ? step_launch : launch_block, &job},
	};
	struct bench_plan plan = {.blocks = b->quick ? 30 : 150,
	                          .block_ns = 3000000};
	struct bench_row row = {.bytes = 8, .unit = steps ? "us" : "ns",
	                        .kind = BENCH_RATIO_MAX, .bar = 1.0};
	struct bench_stat stats[2];
	char title[40];

	if (!bench_wants(b, name))
		return;
	fine(baton_plan_begin(b->comm));
	if (steps)
		step(&job, NULL);
	else
		receive_all(&job, NULL);
	fine(baton_plan_end(b->comm, &job.plan));
	bench_compare(b, sides, 2, &plan, stats);
	/* These calls take the fast path.  A launch has a record of its own. */
	if (!steps && !grouped) {
		row.bar = 1.15;
		if (n < 8)
			row.kind = BENCH_REPORT;
	}
	snprintf(title, sizeof(title), "%s_%d", name, n);
	row.bench = title;
	row.baseline = "the calls";
	row.base = stats[0];
	row.value = stats[1];
	bench_report(b, &row);
	fine(baton_plan_destroy(job.plan));
}

int
main(int argc, char **argv)
{
	static const int sizes[] = {2, 8, N_MAX};
	struct bench b;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	for (int i = 0; i < 3; i++) {
		measure(&b, "plan_launch", sizes[i], false, false);
		measure(&b, "plan_group", sizes[i], true, false);
		measure(&b, "plan_step", sizes[i], false, true);
	}
	return bench_fini(&b);
}
