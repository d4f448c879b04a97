/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-way streams of messages, 64 in flight, against MPI_Isend, MPI_Irecv and
 * MPI_Waitall: p2p_bandwidth for large messages, p2p_rate for small ones.
 *
 * A round is a window of 64 messages, each with a buffer of its own, and one
 * small message back that says that all have arrived.  Baton's operations are
 * detached: in plain stream order one would start when the last is complete.
 */
#include <stdlib.h>

#include "bench_raw.h"

#define TAG 4
#define TAG_ACK 5

struct window {
	char *buffer; /* of 64 messages */
	size_t bytes; /* of each */
	bool rate;    /* the figure is messages, else bytes */
};

/* Messages a microsecond, or bytes a nanosecond. */
static double
figure(const struct window *w, double ns, int rounds)
{
	double messages = (double)rounds * BENCH_WINDOW;

	return w->rate ? messages * 1e3 / ns : messages * (double)w->bytes / ns;
}

static double
raw_block(struct bench *b, void *arg, int rounds)
{
	const struct window *w = arg;

	return figure(w, bench_raw_stream(b, w->buffer, w->bytes, rounds),
	              rounds);
}

static void
acknowledge(struct bench *b)
{
	baton_request request;
	char ack = 0;

	if (b->rank == 0)
		bench_must(baton_recv(&ack, 1, BATON_UINT8, b->peer, TAG_ACK,
		                      b->comm, b->stream, NULL,
		                      &request) == BATON_OK);
	else
		bench_must(baton_send(&ack, 1, BATON_UINT8, b->peer, TAG_ACK,
		                      b->comm, b->stream, NULL,
		                      &request) == BATON_OK);
	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
}

static double
baton_block(struct bench *b, void *arg, int rounds)
{
	const struct window *w = arg;
	baton_request requests[BENCH_WINDOW];
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	uint64_t start = bench_now();

	detached.flags = BATON_OP_DETACHED;
	for (int i = 0; i < rounds; i++) {
		for (size_t k = 0; k < BENCH_WINDOW; k++) {
			char *buffer = w->buffer + k * w->bytes;
			enum baton_status status;

			if (b->rank == 0)
				status = baton_send(buffer, w->bytes,
				                    BATON_UINT8, b->peer, TAG,
				                    b->comm, b->stream,
				                    &detached, &requests[k]);
			else
				status = baton_recv(buffer, w->bytes,
				                    BATON_UINT8, b->peer, TAG,
				                    b->comm, b->stream,
				                    &detached, &requests[k]);
			bench_must(status == BATON_OK);
		}
		for (size_t k = 0; k < BENCH_WINDOW; k++)
			bench_must(baton_finish(&requests[k], -1, NULL) ==
			           BATON_OK);
		acknowledge(b);
	}
	return figure(w, (double)(bench_now() - start), rounds);
}

static void
measure(struct bench *b, struct window *w)
{
	const struct bench_side sides[] = {{raw_block, w}, {baton_block, w}};
	struct bench_plan plan = {.blocks = b->quick ? 50 : 200,
	                          .block_ns = 5000000};
	struct bench_stat stats[2];
	struct bench_row row = {.bytes = w->bytes, .baseline = "raw MPI",
	                        .kind = BENCH_RATIO_MIN};

	bench_compare(b, sides, 2, &plan, stats);
	row.bench = w->rate ? "p2p_rate" : "p2p_bandwidth";
	row.unit = w->rate ? "M/s" : "GB/s";
	row.bar = w->rate ? 0.85 : 0.97;
	row.base = stats[0];
	row.value = stats[1];
	bench_report(b, &row);
}

int
main(int argc, char **argv)
{
	struct window windows[] = {{NULL, 8, true},
	                           {NULL, 65536, false},
	                           {NULL, 1048576, false}};
	struct bench b;
	char *buffer;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	buffer = bench_alloc((size_t)BENCH_WINDOW * 1048576);
	for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		windows[i].buffer = buffer;
		measure(&b, &windows[i]);
	}
	free(buffer);
	return bench_fini(&b);
}
