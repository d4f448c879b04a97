/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What BATON_TRACE costs an operation.
 *
 * trace_message: a receive of 8 bytes that waits, the send that ends it, and baton_finish of both, between
 * two local ranks of one thread.  trace_signal: a signal and the wait that it ends.  Nanoseconds an operation,
 * which is half of a round.  Process 1 keeps a trace, in the folder that the kernel has for memory, and process 0 does
 * not; they run in turns, each for itself, and the other waits in MPI.
 */
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"

#define BAR_NS 30.0

struct pair {
	struct baton_comm *comms[2];
	baton_stream stream;
};

/* A round of two operations, and the process that runs it. */
struct job {
	const struct pair *pair;
	void (*round)(const struct pair *pair);
	int rank;
};

static void
fine(enum baton_status status)
{
	bench_must(status == BATON_OK);
}

static void
message(const struct pair *pair)
{
	baton_request sent, received;
	uint64_t out = 1, in = 0;

	fine(baton_recv(&in, 8, BATON_UINT8, 0, 3, pair->comms[1], pair->stream,
	                NULL, &received));
	fine(baton_send(&out, 8, BATON_UINT8, 1, 3, pair->comms[0], NULL, NULL,
	                &sent));
	fine(baton_finish(&sent, -1, NULL));
	fine(baton_finish(&received, -1, NULL));
}

static void
signal_once(const struct pair *pair)
{
	const struct baton_wait_signal_desc desc = {.op_count = 1, .peer = 0};
	baton_request given, waited;

	fine(baton_signal(1, 0, 0, 0, pair->comms[0], NULL, NULL, &given));
	fine(baton_wait_signal(1, &desc, pair->comms[1], pair->stream, NULL,
	                       &waited));
	fine(baton_finish(&given, -1, NULL));
	fine(baton_finish(&waited, -1, NULL));
}

/* Nanoseconds an operation, on process 0. */
static double
block(struct bench *b, void *arg, int rounds)
{
	const struct job *job = arg;
	double each = 0;

	if (b->rank == job->rank) {
		uint64_t start = bench_now();

		for (int i = 0; i < rounds; i++)
			job->round(job->pair);
		each = (double)(bench_now() - start) / rounds / 2;
	}
	MPI_Bcast(&each, 1, MPI_DOUBLE, job->rank, b->raw);
	return each;
}

static void
measure(struct bench *b, const char *name, const struct pair *pair,
        void (*round)(const struct pair *pair))
{
	struct job jobs[2] = {{pair, round, 0}, {pair, round, 1}};
	const struct bench_side sides[2] = {{block, &jobs[0]}, {block, &jobs[1]}};
	const struct bench_plan plan = {.blocks = b->quick ? 50 : 200,
	                                .block_ns = 4000000};
	struct bench_stat stats[2];

	if (!bench_wants(b, name))
		return;
	bench_compare(b, sides, 2, &plan, stats);
	bench_report(b, &(struct bench_row){.bench = name,
	                                    .bytes = 8,
	                                    .unit = "ns",
	                                    .value = stats[1],
	                                    .baseline = "no trace",
	                                    .base = stats[0],
	                                    .kind = BENCH_EXCESS_MAX,
	                                    .bar = BAR_NS});
}

/* The library never removes a file of a trace. */
static void
remove_files(const char *folder)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	bench_must(system(command) == 0);
}

int
main(int argc, char **argv)
{
	char folder[] = "/dev/shm/bench-trace-XXXXXX";
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct pair pair;
	struct bench b;

	bench_init(&b, &argc, &argv);
	if (b.rank == 1) {
		bench_must(mkdtemp(folder) != NULL);
		bench_must(setenv("BATON_TRACE", folder, 1) == 0);
	} else {
		bench_must(unsetenv("BATON_TRACE") == 0);
	}
	/* No other thread drives. */
	options.progress = BATON_PROGRESS_CALLS;
	fine(baton_comm_create_local(2, &options, pair.comms));
	fine(baton_stream_create(pair.comms[1], &pair.stream));
	measure(&b, "trace_message", &pair, message);
	measure(&b, "trace_signal", &pair, signal_once);
	fine(baton_stream_destroy(pair.comms[1], pair.stream));
	for (int i = 0; i < 2; i++)
		fine(baton_comm_abort(pair.comms[i]));
	for (int i = 0; i < 2; i++)
		fine(baton_comm_destroy(pair.comms[i]));
	if (b.rank == 1)
		remove_files(folder);
	return bench_fini(&b);
}
