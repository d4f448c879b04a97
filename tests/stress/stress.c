/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	TAGS_EACH = 4,       /* of a worker, for what is answered */
	TAG_UNANSWERED = 900 /* and more: nobody sends there */
};

enum delivery { BY_FINISH, BY_QUEUE, BY_STREAM, BY_TEST, DELIVERIES };

/* What both sides know of a message. */
struct message {
	size_t bytes, capacity;
	int tag;
	unsigned pattern;
};

/* Message i of the round, from one rank's worker to the other's: the same on
 * both sides. */
static struct message
plan(const struct worker *w, int round, int from, int to, int i)
{
	uint64_t state = mix(w->options->seed, w->number * 4096 + from,
	                     round * 4096 + to, i);
	struct message message;

	message.bytes = draw_bytes(&state);
	message.capacity = message.bytes;
	if (draw(&state) % 4 == 0)
		message.capacity = draw_bytes(&state);
	if (message.capacity > BYTES_MAX)
		message.capacity = BYTES_MAX;
	message.tag = w->number * TAGS_EACH + (int)(draw(&state) % TAGS_EACH);
	message.pattern = draw(&state);
	return message;
}

/* ---- one round: an exchange with one other rank ------------------------- */

struct round {
	int number, to, from;
	bool grouped;
	enum delivery delivery;
	struct baton_op_options options;
	baton_request sends[BATCH], recvs[BATCH];
	/* How each ended, sends first. */
	struct baton_completion ends[2 * BATCH];
	bool ended[2 * BATCH];
};

/* Retried while a bounded resource is full. */
static void
post(struct worker *w, struct round *r, int i, bool send)
{
	struct message m = send ? plan(w, r->number, w->rank, r->to, i)
	                        : plan(w, r->number, r->from, w->rank, i);
	baton_request *request_p = send ? &r->sends[i] : &r->recvs[i];
	baton_stream stream = r->grouped ? w->streams[0] : any_stream(w);
	enum baton_status status;

	r->options.user_data = (uint64_t)(send ? i : BATCH + i);
	do {
		if (send)
			status = baton_send(w->out[i], m.bytes, BATON_UINT8,
			                    r->to, m.tag, w->comm, stream,
			                    &r->options, request_p);
		else
			status = baton_recv(w->in[i], m.capacity, BATON_UINT8,
			                    r->from, m.tag, w->comm, stream,
			                    &r->options, request_p);
		if (status == BATON_ERR_AGAIN)
			(void)baton_progress(w->comm);
	} while (status == BATON_ERR_AGAIN && !r->grouped);
	if (status != BATON_OK)
		fail(w, r->number, "%s %d gave %s", send ? "send" : "recv", i,
		     baton_status_name(status));
}

static void
post_all(struct worker *w, struct round *r)
{
	int at_send = 0, at_recv = 0;

	for (int i = 0; i < BATCH; i++) {
		struct message m = plan(w, r->number, w->rank, r->to, i);

		fill(w->out[i], m.bytes, m.pattern);
		m = plan(w, r->number, r->from, w->rank, i);
		memset(w->in[i], 0xd7, m.capacity + 64);
	}
	if (r->grouped && baton_group_begin(w->comm) != BATON_OK)
		fail(w, r->number, "group_begin");
	/* Sends and receives interleaved at random, each kind in its order. */
	while (at_send < BATCH || at_recv < BATCH) {
		bool send = at_recv == BATCH ||
		            (at_send < BATCH && draw(&w->own) % 2);

		post(w, r, send ? at_send++ : at_recv++, send);
	}
	if (r->grouped && baton_group_end(w->comm) != BATON_OK)
		fail(w, r->number, "group_end");
}

static void
note_end(struct worker *w, struct round *r, size_t at,
         const struct baton_completion *done)
{
	if (at >= (size_t)2 * BATCH || r->ended[at]) {
		fail(w, r->number, "operation %zu ended twice or was never", at);
		return;
	}
	r->ended[at] = true;
	r->ends[at] = *done;
}

static void
collect_queue(struct worker *w, struct round *r)
{
	struct baton_completion done[8];

	for (int left = 2 * BATCH; left > 0;) {
		size_t n = baton_queue_poll(w->queue, done, 8);

		for (size_t i = 0; i < n; i++, left--)
			note_end(w, r, (size_t)done[i].user_data, &done[i]);
		if (n == 0)
			sched_yield();
	}
}

/* Through wait_any and test_some, in the order in which they come. */
static void
collect_any(struct worker *w, struct round *r)
{
	baton_request all[2 * BATCH];
	struct baton_completion done;
	size_t index;

	memcpy(all, r->sends, sizeof(r->sends));
	memcpy(all + BATCH, r->recvs, sizeof(r->recvs));
	for (int left = 2 * BATCH; left > 0; left--) {
		(void)baton_wait_any(all, (size_t)2 * BATCH, -1, &index, &done);
		if (index >= (size_t)2 * BATCH) {
			fail(w, r->number, "wait_any lost %d", left);
			return;
		}
		note_end(w, r, index, &done);
		if (baton_release(&all[index]) != BATON_OK)
			fail(w, r->number, "release");
	}
}

static void
collect_one_by_one(struct worker *w, struct round *r)
{
	for (size_t i = 0; i < (size_t)2 * BATCH; i++) {
		/* From both ends, so not in any order of completion. */
		size_t at = i & 1 ? (size_t)2 * BATCH - 1 - i / 2 : i / 2;
		baton_request *request_p =
			at < BATCH ? &r->sends[at] : &r->recvs[at - BATCH];
		struct baton_completion done = { 0 };

		if (r->delivery == BY_STREAM) {
			/* The stream waits, then the host for the stream. */
			while (baton_stream_wait(w->comm, w->streams[1],
			                         *request_p) == BATON_ERR_AGAIN)
				(void)baton_progress(w->comm);
			(void)baton_stream_synchronize(w->comm, w->streams[1]);
			if (baton_test(*request_p, &done) == BATON_PENDING)
				fail(w, r->number, "joined but pending");
		}
		(void)baton_finish(request_p, -1, &done);
		note_end(w, r, at, &done);
	}
}

static void
check_round(struct worker *w, struct round *r)
{
	for (int i = 0; i < BATCH; i++) {
		struct message m = plan(w, r->number, w->rank, r->to, i);
		const struct baton_completion *send = &r->ends[i];
		const struct baton_completion *recv = &r->ends[BATCH + i];
		bool cut;

		if (send->status != BATON_OK || send->bytes != m.bytes)
			fail(w, r->number, "send %d of %zu: %s, %zu bytes", i,
			     m.bytes, baton_status_name(send->status),
			     send->bytes);
		m = plan(w, r->number, r->from, w->rank, i);
		cut = m.bytes > m.capacity;
		if (recv->status != (cut ? BATON_ERR_TRUNCATED : BATON_OK) ||
		    recv->bytes != m.bytes || recv->tag != m.tag ||
		    recv->peer != r->from)
			fail(w, r->number, "recv %d of %zu in %zu: %s, %zu", i,
			     m.bytes, m.capacity,
			     baton_status_name(recv->status), recv->bytes);
		if (!cut)
			check_filled(w, r->number, w->in[i], m.bytes, m.pattern);
		for (size_t k = 0; k < 64; k++)
			if (w->in[i][m.capacity + k] != 0xd7) {
				fail(w, r->number, "written behind recv %d", i);
				break;
			}
	}
}

/* ---- what nobody answers ------------------------------------------------ */

/* Receives that end by cancel or deadline, or that are let go. */
static void
end_some_early(struct worker *w, int round)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	int n = (int)(draw(&w->own) % 4);

	options.flags = BATON_OP_DETACHED;
	for (int i = 0; i < n; i++) {
		bool expires = draw(&w->own) % 2;
		baton_request request = 0;
		enum baton_status status;

		options.timeout_ns = expires ? 1000 + draw(&w->own) % 200000 : 0;
		status = baton_recv(w->in[0], 8, BATON_UINT8,
		                    (int)(draw(&w->own) % (uint32_t)w->size),
		                    TAG_UNANSWERED + w->number, w->comm,
		                    any_stream(w), &options, &request);
		if (status == BATON_ERR_AGAIN)
			continue;
		if (status != BATON_OK) {
			fail(w, round, "unanswered recv gave %s",
			     baton_status_name(status));
			continue;
		}
		if (!expires && baton_cancel(request) != BATON_OK)
			fail(w, round, "cancel");
		status = baton_finish(&request, -1, NULL);
		if (status !=
		    (expires ? BATON_ERR_TIMEOUT : BATON_ERR_CANCELED))
			fail(w, round, "ended early in %s",
			     baton_status_name(status));
	}
}

/* A group that is refused leaves nothing behind. */
static void
void_a_group(struct worker *w, int round)
{
	unsigned char byte = 0;
	baton_request request = 0;

	if (draw(&w->own) % 5)
		return;
	if (baton_group_begin(w->comm) != BATON_OK)
		return; /* the pool is full */
	(void)baton_send(&byte, 1, BATON_UINT8, (w->rank + 1) % w->size,
	                 w->number * TAGS_EACH, w->comm, w->streams[0], NULL,
	                 &request);
	if (baton_send(&byte, 1, BATON_UINT8, -1, 0, w->comm, w->streams[0],
	               NULL, NULL) != BATON_ERR_INVALID)
		fail(w, round, "peer -1 was taken");
	if (baton_group_end(w->comm) == BATON_OK)
		fail(w, round, "a void group was taken");
	if (request && baton_test(request, NULL) != BATON_ERR_STALE)
		fail(w, round, "a void group's handle lives");
}

/* ---- workers ------------------------------------------------------------ */

static void
run_round(struct worker *w, int number)
{
	/* All ranks draw the same shift, so that everybody has a partner. */
	uint64_t common = mix(w->options->seed, w->number, number, -7);
	int shift = (int)(draw(&common) % (uint32_t)w->size);
	struct round r = { .number = number };

	r.to = (w->rank + shift) % w->size;
	r.from = (w->rank + w->size - shift) % w->size;
	r.grouped = draw(&w->own) % 3 == 0;
	r.delivery = (enum delivery)(draw(&w->own) % DELIVERIES);
	r.options = (struct baton_op_options)BATON_OP_OPTIONS_INIT;
	r.options.flags = BATON_OP_DETACHED;
	if (r.grouped && draw(&w->own) % 2)
		r.options.flags = 0;
	if (draw(&w->own) % 2)
		r.options.timeout_ns = INT64_C(3600) * 1000 * 1000 * 1000;
	if (r.delivery == BY_QUEUE)
		r.options.queue = w->queue;
	post_all(w, &r);
	end_some_early(w, number);
	if (r.delivery == BY_QUEUE)
		collect_queue(w, &r);
	else if (r.delivery == BY_TEST)
		collect_any(w, &r);
	else
		collect_one_by_one(w, &r);
	check_round(w, &r);
	void_a_group(w, number);
}

static void *
worker_main(void *arg)
{
	struct worker *w = arg;

	for (int round = 0; round < w->options->rounds; round++) {
		run_round(w, round);
		if (atomic_load(&w->failures))
			break;
	}
	return NULL;
}

static void
worker_init(struct worker *w, struct baton_comm *comm,
            const struct stress_options *options, int number)
{
	memset(w, 0, sizeof(*w));
	w->comm = comm;
	w->options = options;
	w->number = number;
	w->rank = baton_comm_rank(comm);
	w->size = baton_comm_size(comm);
	w->own = mix(options->seed, w->rank, number, 12345);
	for (int i = 0; i < STREAMS; i++)
		if (baton_stream_create(comm, &w->streams[i]) != BATON_OK)
			fail(w, -1, "stream_create");
	if (baton_queue_create(comm, (size_t)2 * BATCH, &w->queue) != BATON_OK)
		fail(w, -1, "queue_create");
	for (int i = 0; i < BATCH; i++) {
		w->in[i] = malloc(BYTES_MAX + 64);
		w->out[i] = malloc(BYTES_MAX);
		if (!w->in[i] || !w->out[i])
			abort();
	}
}

static void
worker_fini(struct worker *w)
{
	baton_queue_destroy(w->queue);
	for (int i = 0; i < STREAMS; i++) {
		if (baton_stream_synchronize(w->comm, w->streams[i]) != BATON_OK)
			fail(w, -1, "synchronize");
		if (baton_stream_destroy(w->comm, w->streams[i]) != BATON_OK)
			fail(w, -1, "stream_destroy");
	}
	for (int i = 0; i < BATCH; i++) {
		free(w->in[i]);
		free(w->out[i]);
	}
}

int
stress_rank(struct baton_comm *comm, const struct stress_options *options)
{
	struct worker *workers =
		calloc((size_t)options->workers, sizeof(*workers));
	int failures = 0;

	if (!workers)
		abort();
	for (int i = 0; i < options->workers; i++)
		worker_init(&workers[i], comm, options, i);
	for (int i = 0; i < options->workers; i++)
		if (pthread_create(&workers[i].thread, NULL, worker_main,
		                   &workers[i]))
			abort();
	for (int i = 0; i < options->workers; i++)
		pthread_join(workers[i].thread, NULL);
	for (int i = 0; i < options->workers; i++) {
		if (atomic_load(&workers[i].failures) == 0)
			worker_fini(&workers[i]);
		failures += atomic_load(&workers[i].failures);
	}
	free(workers);
	return failures;
}

struct stress_options
stress_options(int argc, char **argv, int rounds)
{
	struct stress_options options = { 0, 4, rounds };
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	options.seed = (uint64_t)now.tv_nsec / 1000 + (uint64_t)now.tv_sec;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seed") == 0)
			options.seed = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--workers") == 0)
			options.workers = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--rounds") == 0)
			options.rounds = atoi(argv[i + 1]);
	}
	return options;
}
