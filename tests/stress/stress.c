/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "options.h"

enum { TAG_UNANSWERED = 900 }; /* and more: nobody sends there */

/* How a message that is a list of tensors is received. */
enum declaration { CLOSED, OPEN, OTHER, DECLARATIONS };

/* What both sides know of a message. */
struct message {
	size_t bytes, capacity;
	int tag;
	unsigned pattern;
	/* Of a list: its tensors lie behind each other in the sender's buffer. */
	int tensors; /* 0: it is plain */
	enum declaration declaration;
	size_t parts[LIST_MAX];
	size_t needed; /* of an arena */
};

static struct baton_tensor
tensor_of(const struct message *m, int i, void *data)
{
	return (struct baton_tensor){
		.data = data,
		.type = BATON_UINT8,
		.rank = 1,
		.shape = {(int64_t)m->parts[i]},
	};
}

/* Make a list of it: n tensors of its bytes, some of them empty. */
static void
plan_list(struct message *m, int n, uint64_t *state)
{
	struct baton_tensor list[LIST_MAX];
	size_t left = m->bytes;

	m->tensors = n;
	m->declaration = (enum declaration)(draw(state) % DECLARATIONS);
	for (int i = 0; i < n; i++) {
		m->parts[i] = i + 1 == n             ? left
		              : draw(state) % 4 == 0 ? 0
		                                     : draw(state) % (left + 1);
		left -= m->parts[i];
		list[i] = tensor_of(m, i, NULL);
	}
	m->needed = baton_tensors_layout(list, (size_t)n, NULL);
	if (m->declaration != OPEN)
		m->capacity = m->bytes;
	else if (m->capacity == m->bytes)
		m->capacity = m->needed < BYTES_MAX ? m->needed : BYTES_MAX;
}

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
	message.tensors = 0;
	if (w->has_lists && draw(&state) % 3 == 0)
		plan_list(&message, 1 + (int)(draw(&state) % LIST_MAX), &state);
	return message;
}

/* How its receive has to end, and with how many bytes; MISMATCH says nothing of those. */
static enum baton_status
end_of(const struct message *m, size_t *bytes_p)
{
	bool arena = m->tensors > 0 && m->declaration == OPEN;
	size_t needed = arena ? m->needed : m->bytes;

	*bytes_p = m->bytes;
	if (m->tensors > 0 && m->declaration == OTHER)
		return BATON_ERR_MISMATCH;
	if (needed <= m->capacity)
		return BATON_OK;
	*bytes_p = needed;
	return BATON_ERR_TRUNCATED;
}

/* ---- lists -------------------------------------------------------------- */

static enum baton_status
send_list(struct worker *w, struct round *r, const struct message *m,
          unsigned char *at, baton_stream stream, baton_request *request_p)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[LIST_MAX];

	for (int i = 0; i < m->tensors; i++) {
		list[i] = tensor_of(m, i, at);
		at += m->parts[i];
	}
	options.op = r->options;
	options.op.size = sizeof(options);
	return baton_send_tensors(list, (size_t)m->tensors, r->to, m->tag,
	                          w->comm, stream, &options, request_p);
}

static enum baton_status
recv_list(struct worker *w, struct round *r, const struct message *m,
          struct baton_tensor *list, unsigned char *at, baton_stream stream,
          baton_request *request_p)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;

	options.op = r->options;
	options.op.size = sizeof(options);
	if (m->declaration == OPEN) {
		options.arena = at;
		options.arena_bytes = m->capacity;
	}
	for (int i = 0; i < m->tensors; i++) {
		list[i] = tensor_of(m, i, at);
		at += m->parts[i];
		if (m->declaration == OPEN)
			list[i] = (struct baton_tensor){.rank = -1};
	}
	if (m->declaration == OTHER)
		list[m->tensors - 1].type = BATON_INT8;
	return baton_recv_tensors(list, (size_t)m->tensors, r->from, m->tag,
	                          w->comm, stream, &options, request_p);
}

/* The tensors are where the receive says, with the bytes of the sender's buffer. */
static void
check_list(struct worker *w, const struct round *r, const struct message *m,
           const struct baton_tensor *list)
{
	unsigned char *all = malloc(m->bytes + 1);
	size_t at = 0;

	if (!all)
		abort();
	for (int i = 0; i < m->tensors; i++) {
		if (list[i].type != BATON_UINT8 || list[i].rank != 1 ||
		    list[i].shape[0] != (int64_t)m->parts[i]) {
			fail(w, r->number, "tensor %d of %d is another", i,
			     m->tensors);
			break;
		}
		if (m->parts[i] > 0)
			memcpy(all + at, list[i].data, m->parts[i]);
		at += m->parts[i];
	}
	if (at == m->bytes)
		check_filled(w, r->number, all, m->bytes, m->pattern);
	free(all);
}

/* ---- one round: an exchange with one other rank ------------------------- */

static enum baton_status
start_one_kind(struct worker *w, struct round *r, enum kind kind, int i,
               baton_stream stream)
{
	baton_request *request_p = &r->requests[(int)kind * BATCH + i];
	struct message m;

	switch (kind) {
	case SENDS:
		m = plan(w, r->number, w->rank, r->to, i);
		if (m.tensors > 0)
			return send_list(w, r, &m, w->out[i], stream, request_p);
		return baton_send(w->out[i], m.bytes, BATON_UINT8, r->to, m.tag,
		                  w->comm, stream, &r->options, request_p);
	case RECVS:
		m = plan(w, r->number, r->from, w->rank, i);
		if (m.tensors > 0)
			return recv_list(w, r, &m, r->lists[i], w->in[i], stream,
			                 request_p);
		return baton_recv(w->in[i], m.capacity, BATON_UINT8, r->from,
		                  m.tag, w->comm, stream, &r->options,
		                  request_p);
	case PUTS:
		return start_put(w, r, i, stream);
	case WAITS:
		return start_wait(w, r, i, stream);
	case KINDS:
		break;
	}
	return BATON_ERR_INVALID;
}

/* Retried while a bounded resource is full. */
static void
post(struct worker *w, struct round *r, enum kind kind, int i)
{
	baton_stream stream = r->grouped ? w->streams[0] : any_stream(w);
	enum baton_status status;

	r->options.user_data = (uint64_t)((int)kind * BATCH + i);
	do {
		status = start_one_kind(w, r, kind, i, stream);
		if (status == BATON_ERR_AGAIN)
			(void)baton_progress(w->comm);
	} while (status == BATON_ERR_AGAIN && !r->grouped);
	if (status != BATON_OK)
		fail(w, r->number, "%d of kind %d gave %s", i, kind,
		     baton_status_name(status));
}

static void
post_all(struct worker *w, struct round *r)
{
	int at[KINDS] = { 0 };

	for (int i = 0; i < BATCH; i++) {
		struct message m = plan(w, r->number, w->rank, r->to, i);

		fill(w->out[i], m.bytes, m.pattern);
		m = plan(w, r->number, r->from, w->rank, i);
		memset(w->in[i], UNTOUCHED, m.capacity + 64);
	}
	onesided_begin(w, r);
	for (int kind = 0; kind < KINDS; kind++)
		r->started += r->count[kind];
	if (r->grouped && baton_group_begin(w->comm) != BATON_OK)
		fail(w, r->number, "group_begin");
	/* Interleaved at random, each kind in its order. */
	for (int left = r->started; left > 0;) {
		enum kind kind = (enum kind)(draw(&w->own) % KINDS);

		if (at[kind] == r->count[kind])
			continue;
		post(w, r, kind, at[kind]++);
		left--;
	}
	if (r->grouped && baton_group_end(w->comm) != BATON_OK)
		fail(w, r->number, "group_end");
}

static void
note_end(struct worker *w, struct round *r, size_t at,
         const struct baton_completion *done)
{
	if (at >= OPS || (int)(at % BATCH) >= r->count[at / BATCH] ||
	    r->ended[at]) {
		fail(w, r->number, "operation %zu ended twice or was never", at);
		return;
	}
	r->ended[at] = true;
	r->ends[at] = *done;
	if (at / BATCH == WAITS && done->status == BATON_OK)
		check_wait(w, r, (int)(at % BATCH));
}

static void
collect_queue(struct worker *w, struct round *r)
{
	struct baton_completion done[8];

	for (int left = r->started; left > 0;) {
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
	struct baton_completion done;
	size_t index;

	for (int left = r->started; left > 0; left--) {
		(void)baton_wait_any(r->requests, OPS, -1, &index, &done);
		if (index >= OPS) {
			fail(w, r->number, "wait_any lost %d", left);
			return;
		}
		note_end(w, r, index, &done);
		if (baton_release(&r->requests[index]) != BATON_OK)
			fail(w, r->number, "release");
	}
}

static void
collect_one_by_one(struct worker *w, struct round *r)
{
	for (size_t i = 0; i < OPS; i++) {
		/* From both ends, so not in any order of completion. */
		size_t at = i & 1 ? OPS - 1 - i / 2 : i / 2;
		baton_request *request_p = &r->requests[at];
		struct baton_completion done = { 0 };

		if (*request_p == BATON_REQUEST_NULL)
			continue; /* fewer waits than puts */
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
check_messages(struct worker *w, struct round *r)
{
	for (int i = 0; i < BATCH; i++) {
		struct message m = plan(w, r->number, w->rank, r->to, i);
		const struct baton_completion *send = &r->ends[i];
		const struct baton_completion *recv = &r->ends[BATCH + i];
		enum baton_status end;
		size_t bytes;

		if (send->status != BATON_OK || send->bytes != m.bytes)
			fail(w, r->number, "send %d of %zu: %s, %zu bytes", i,
			     m.bytes, baton_status_name(send->status),
			     send->bytes);
		m = plan(w, r->number, r->from, w->rank, i);
		end = end_of(&m, &bytes);
		if (recv->status != end || recv->tag != m.tag ||
		    (end != BATON_ERR_MISMATCH && recv->bytes != bytes) ||
		    recv->peer != r->from)
			fail(w, r->number,
			     "recv %d of %zu (%d tensors) in %zu: %s, %zu", i,
			     m.bytes, m.tensors, m.capacity,
			     baton_status_name(recv->status), recv->bytes);
		else if (end == BATON_OK && m.tensors > 0)
			check_list(w, r, &m, r->lists[i]);
		else if (end == BATON_OK)
			check_filled(w, r->number, w->in[i], m.bytes, m.pattern);
		for (size_t k = 0; k < 64; k++)
			if (w->in[i][m.capacity + k] != UNTOUCHED) {
				fail(w, r->number, "written behind recv %d", i);
				break;
			}
	}
}

static void
check_onesided(struct worker *w, struct round *r)
{
	for (size_t at = PUTS * BATCH; at < OPS; at++) {
		const struct baton_completion *end = &r->ends[at];

		if (r->ended[at] && end->status != BATON_OK)
			fail(w, r->number, "%s %zu: %s",
			     end->op == BATON_OPERATION_WAIT_SIGNAL ? "wait"
			                                            : "put",
			     at % BATCH, baton_status_name(end->status));
	}
	for (int i = 0; i < BATCH; i++)
		if (!r->seen[i])
			fail(w, r->number, "no wait was for put %d", i);
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
	struct round r = { .number = number,
	                  .count = { BATCH, BATCH, BATCH, 0 } };

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
	end_onesided_early(w, &r);
	end_some_early(w, number);
	if (r.delivery == BY_QUEUE)
		collect_queue(w, &r);
	else if (r.delivery == BY_TEST)
		collect_any(w, &r);
	else
		collect_one_by_one(w, &r);
	check_messages(w, &r);
	check_onesided(w, &r);
	onesided_end(w, &r);
	void_a_group(w, number);
}

static void *
worker_main(void *arg)
{
	struct worker *w = arg;

	for (int round = 0; round < w->options->rounds; round++) {
		if (round == 1 && w->number == 0 &&
		    w->rank == w->options->fail)
			fail(w, round, "a failure that was asked for");
		run_round(w, round);
	}
	check_counters(w);
	return NULL;
}

static void
worker_init(struct worker *w, struct baton_comm *comm,
            const struct stress_options *options,
            const struct windows *windows, int number)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	memset(w, 0, sizeof(*w));
	w->comm = comm;
	w->options = options;
	w->windows = windows;
	w->number = number;
	w->rank = baton_comm_rank(comm);
	w->size = baton_comm_size(comm);
	w->own = mix(options->seed, w->rank, number, 12345);
	if (baton_comm_query(comm, &info) != BATON_OK)
		fail(w, -1, "comm_query");
	w->has_lists = info.capabilities & BATON_CAP_TENSORS;
	for (int i = 0; i < STREAMS; i++)
		if (baton_stream_create(comm, &w->streams[i]) != BATON_OK)
			fail(w, -1, "stream_create");
	if (baton_queue_create(comm, OPS, &w->queue) != BATON_OK)
		fail(w, -1, "queue_create");
	for (int i = 0; i < BATCH; i++) {
		w->in[i] = malloc(BYTES_MAX + 64);
		w->out[i] = malloc(BYTES_MAX);
		if (!w->in[i] || !w->out[i])
			abort();
	}
	onesided_init(w);
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
	onesided_fini(w);
}

/* The workers run; the thread of the rank makes what is collective. */
static void
run_all(struct worker *workers, struct worker *rank)
{
	for (int i = 0; i < rank->number; i++)
		if (pthread_create(&workers[i].thread, NULL, worker_main,
		                   &workers[i]))
			abort();
	for (int round = 0; round < rank->options->rounds / 10; round++)
		windows_come_and_go(rank, round);
	for (int i = 0; i < rank->number; i++)
		pthread_join(workers[i].thread, NULL);
}

void
stress_rank(struct baton_comm *comm, const struct stress_options *options)
{
	int n = options->workers + 1;
	struct worker *workers = calloc((size_t)n, sizeof(*workers));
	struct worker *rank = workers + options->workers;
	struct windows windows;

	if (!workers)
		abort();
	for (int i = 0; i < n; i++)
		worker_init(&workers[i], comm, options, &windows, i);
	windows_open(rank, &windows);
	run_all(workers, rank);
	windows_close(rank, &windows);
	for (int i = 0; i < n; i++)
		worker_fini(&workers[i]);
	free(workers);
}

struct baton_comm_options
stress_comm_options(const struct stress_options *options)
{
	struct baton_comm_options comm_options = BATON_COMM_OPTIONS_INIT;

	/* Enough for all of them: a group does not meet AGAIN. */
	comm_options.requests_max =
		(uint32_t)(options->workers + 1) * ((uint32_t)OPS + 16);
	comm_options.signals_max = onesided_indices(options->workers);
	comm_options.contexts_max = onesided_contexts(options->workers);
	return comm_options;
}

struct stress_options
stress_options(int argc, char **argv, int rounds)
{
	struct stress_options options = { .workers = 4, .rounds = rounds,
		                          .fail = -1 };
	const struct test_option known[] = {
		{ .name = "--seed", .value = "N", .number = &options.seed },
		{ .name = "--workers", .value = "N", .integer = &options.workers },
		{ .name = "--rounds", .value = "N", .integer = &options.rounds },
		{ .name = "--fail", .value = "RANK", .integer = &options.fail },
		{ .name = NULL },
	};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	options.seed = (uint64_t)now.tv_nsec / 1000 + (uint64_t)now.tv_sec;
	if (options_read(known, NULL, argc, argv) < 0)
		exit(2);
	return options;
}
