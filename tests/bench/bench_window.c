/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows of messages: 64 operations on one tag, a wait for all of them, and one
 * small message back.  osu_bw and osu_mbw_mr of the OSU benchmarks run this loop.
 *
 *   window        both sides start at once, each message has a buffer of its own
 *   window_one    the same with one buffer for all 64 messages, as osu_bw has it
 *   window_early  the receives are posted before the sender starts
 *   window_late   the receives are posted after the last message was sent, so that
 *                 MPI has queued short ones as unexpected
 *   window_pairs  as window, but run with more than one pair of processes
 *
 * Each is measured twice.  The plain name calls baton_finish for each request.
 * With _all behind the name it calls baton_wait_all once, then baton_release for
 * each request.  The baseline is MPI_Isend or MPI_Irecv and MPI_Waitall.  Baton's
 * operations are detached, because a stream would start each of them only when the
 * one before it is complete.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define TAG 4
#define TAG_BACK 5
#define TAG_SENT 6

enum order { TOGETHER, EARLY, LATE };

struct window {
	const char *name;
	enum order order;
	bool one; /* buffer for all messages */
	char *buffer;
	size_t bytes; /* of a message */
};

/* One window of one side, as a program sees the two libraries. */
struct half {
	void (*post)(struct bench *b, const struct window *w, bool send);
	void (*post_small)(struct bench *b, bool send, int tag);
	void (*wait)(void); /* for everything posted */
};

static char *
place(const struct window *w, int k)
{
	return w->one ? w->buffer : w->buffer + (size_t)k * w->bytes;
}

/* The order of the calls: alike in MPI and in Baton. */
static inline __attribute__((always_inline)) void
run_sender(struct bench *b, const struct window *w, const struct half *half)
{
	if (w->order == EARLY) {
		half->post_small(b, false, TAG_BACK);
		half->wait();
	}
	half->post(b, w, true);
	if (w->order == LATE)
		half->post_small(b, true, TAG_SENT);
	half->wait();
	if (w->order != EARLY) {
		half->post_small(b, false, TAG_BACK);
		half->wait();
	}
}

static inline __attribute__((always_inline)) void
run_receiver(struct bench *b, const struct window *w, const struct half *half)
{
	if (w->order == LATE) {
		half->post_small(b, false, TAG_SENT);
		half->wait();
	}
	half->post(b, w, false);
	if (w->order == EARLY)
		half->post_small(b, true, TAG_BACK);
	half->wait();
	if (w->order != EARLY) {
		half->post_small(b, true, TAG_BACK);
		half->wait();
	}
}

/* Microseconds a message. */
static inline __attribute__((always_inline)) double
run_block(struct bench *b, const struct window *w, const struct half *half,
          int rounds)
{
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		if (b->sends)
			run_sender(b, w, half);
		else
			run_receiver(b, w, half);
	}
	/* Pairs share the cores: the block is over when all are. */
	if (b->pairs > 1)
		bench_meet(b);
	return (double)(bench_now() - start) / (1e3 * rounds * BENCH_WINDOW);
}

/* ---- raw MPI ------------------------------------------------------------ */

static MPI_Request raw_requests[BENCH_WINDOW + 1];
static int raw_count;
static char small;

static void
raw_post(struct bench *b, const struct window *w, bool send)
{
	for (int k = 0; k < BENCH_WINDOW; k++) {
		MPI_Request *request = &raw_requests[raw_count++];

		if (send)
			MPI_Isend(place(w, k), (int)w->bytes, MPI_BYTE, b->peer,
			          TAG, b->raw, request);
		else
			MPI_Irecv(place(w, k), (int)w->bytes, MPI_BYTE, b->peer,
			          TAG, b->raw, request);
	}
}

static void
raw_post_small(struct bench *b, bool send, int tag)
{
	MPI_Request *request = &raw_requests[raw_count++];

	if (send)
		MPI_Isend(&small, 1, MPI_BYTE, b->peer, tag, b->raw, request);
	else
		MPI_Irecv(&small, 1, MPI_BYTE, b->peer, tag, b->raw, request);
}

static void
raw_wait(void)
{
	MPI_Waitall(raw_count, raw_requests, MPI_STATUSES_IGNORE);
	raw_count = 0;
}

static double
raw_block(struct bench *b, void *arg, int rounds)
{
	static const struct half half = {raw_post, raw_post_small, raw_wait};

	return run_block(b, arg, &half, rounds);
}

/* ---- Baton -------------------------------------------------------------- */

static baton_request requests[BENCH_WINDOW + 1];
static size_t request_count;
static struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

static void
post_one(struct bench *b, void *buffer, size_t bytes, bool send, int tag)
{
	baton_request *request_p = &requests[request_count++];

	if (send)
		bench_must(baton_send(buffer, bytes, BATON_UINT8, b->peer, tag,
		                      b->comm, b->stream, &detached,
		                      request_p) == BATON_OK);
	else
		bench_must(baton_recv(buffer, bytes, BATON_UINT8, b->peer, tag,
		                      b->comm, b->stream, &detached,
		                      request_p) == BATON_OK);
}

static void
post(struct bench *b, const struct window *w, bool send)
{
	for (int k = 0; k < BENCH_WINDOW; k++)
		post_one(b, place(w, k), w->bytes, send, TAG);
}

static void
post_small(struct bench *b, bool send, int tag)
{
	post_one(b, &small, 1, send, tag);
}

static void
finish_each(void)
{
	for (size_t k = 0; k < request_count; k++)
		bench_must(baton_finish(&requests[k], -1, NULL) == BATON_OK);
	request_count = 0;
}

static void
wait_all(void)
{
	bench_must(baton_wait_all(requests, request_count, -1) == BATON_OK);
	for (size_t k = 0; k < request_count; k++)
		bench_must(baton_release(&requests[k]) == BATON_OK);
	request_count = 0;
}

static double
finish_block(struct bench *b, void *arg, int rounds)
{
	static const struct half half = {post, post_small, finish_each};

	return run_block(b, arg, &half, rounds);
}

static double
wait_all_block(struct bench *b, void *arg, int rounds)
{
	static const struct half half = {post, post_small, wait_all};

	return run_block(b, arg, &half, rounds);
}

/* ---- rows --------------------------------------------------------------- */

static void
measure(struct bench *b, struct window *w)
{
	const struct bench_side sides[] = {
		{raw_block, w}, {finish_block, w}, {wait_all_block, w}};
	struct bench_plan plan = {.blocks = b->quick ? 30 : 100,
	                          .block_ns = 4000000};
	struct bench_stat stats[3];
	char name[32];
	struct bench_row row = {.bench = name, .bytes = w->bytes, .unit = "us",
	                        .baseline = "raw MPI",
	                        .kind = BENCH_RATIO_MAX, .bar = 1.15};

	/* So long that the scheduler's slices do not decide. */
	if (b->pairs > 1) {
		plan.blocks = b->quick ? 11 : 25;
		plan.block_ns = 40000000;
	}
	bench_compare(b, sides, 3, &plan, stats);
	row.base = stats[0];
	row.value = stats[1];
	snprintf(name, sizeof(name), "%s", w->name);
	bench_report(b, &row);
	row.value = stats[2];
	snprintf(name, sizeof(name), "%s_all", w->name);
	bench_report(b, &row);
}

int
main(int argc, char **argv)
{
	static const size_t sizes[] = {8, 512, 1024, 2048, 4096, 65536};
	const size_t count = sizeof(sizes) / sizeof(sizes[0]);
	struct window windows[] = {{.name = "window"},
	                           {.name = "window_one", .one = true},
	                           {.name = "window_early", .order = EARLY},
	                           {.name = "window_late", .order = LATE},
	                           {.name = "window_pairs"}};
	struct bench b;
	char *buffer;

	bench_init_pairs(&b, &argc, &argv);
	bench_open(&b);
	detached.flags = BATON_OP_DETACHED;
	buffer = bench_alloc(BENCH_WINDOW * sizes[count - 1]);
	for (size_t k = 0; k < sizeof(windows) / sizeof(windows[0]); k++) {
		struct window *w = &windows[k];

		if (!bench_wants(&b, w->name) ||
		    (strcmp(w->name, "window_pairs") == 0) != (b.pairs > 1))
			continue;
		w->buffer = buffer;
		for (size_t i = 0; i < count; i++) {
			w->bytes = sizes[i];
			measure(&b, w);
		}
	}
	free(buffer);
	return bench_fini(&b);
}
