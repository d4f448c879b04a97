/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts, signals and waits of the random load.
 *
 * Each round has BATCH puts and signals to one rank.  Both sides draw the same plan
 * of them.  The target's waits name their counters in that order, so wait i ends when
 * the signals of its puts are seen; then those, and all earlier ones of their
 * contexts, must be there, with nothing written beside them.
 *
 * A target that has looked at everything signals back (the credit), and only then
 * does the source put to it again.  A round goes by the contexts that workers share,
 * and the host waits for the credit: in a context a put waits for all earlier ones,
 * so one that stood behind its stream there could hold up other workers for ever.  Or
 * it goes by the worker's own context, and the stream waits.
 *
 * All counters are the worker's own (its signal indices), so what they have to be is
 * known after each round and at the end.
 */
#include "worker.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
	SHARED = 2,   /* contexts of all workers; and each has one of its own */
	CONTEXTS = SHARED + 1,
	INDICES = 3,  /* that rounds put with */
	CREDIT = INDICES,
	DOOMED,       /* of puts that may end early */
	NEVER,        /* nobody signals there */
	INDICES_EACH, /* of a worker */
	PUT_MAX = 70000,
	ROOM = 64,    /* before and behind a put, where nobody writes */
	SLOT = PUT_MAX + 3 * ROOM,
	DOOMED_MAX = 1500000
};

struct put {
	bool data; /* not a signal alone */
	int window, index, context;
	size_t bytes, offset;
	unsigned pattern;
};

/* What this worker and the same one of another rank have had with each other. */
struct partner {
	/* Signals of that rank, by context and index. */
	uint32_t signals[CONTEXTS][INDICES_EACH];
	int owes;  /* the round that it will give a credit for, or -1 */
	uint64_t doomed[2]; /* puts to it that ended well, and not but may signal */
};

struct onesided {
	unsigned char *out[BATCH];
	unsigned char *doomed;
	struct partner partners[];
};

int
onesided_indices(int workers)
{
	return (workers + 1) * INDICES_EACH;
}

int
onesided_contexts(int workers)
{
	return SHARED + workers + 1;
}

static int
context_of(const struct worker *w, int which)
{
	return which < SHARED ? which : SHARED + w->number;
}

int
index_of(const struct worker *w, int which)
{
	return w->number * INDICES_EACH + which;
}

/* Places in a part, in this order: of each worker and source the slots of a round;
 * and then of each worker and source the place of puts that may end early. */
static size_t
slot_offset(const struct worker *w, int source, int i)
{
	size_t pair = (size_t)w->number * (size_t)w->size + (size_t)source;

	return (pair * BATCH + (size_t)i) * SLOT;
}

static size_t
doomed_offset(const struct worker *w, int source)
{
	size_t pairs = (size_t)w->options->workers * (size_t)w->size;
	size_t pair = (size_t)w->number * (size_t)w->size + (size_t)source;

	return pairs * BATCH * SLOT + pair * DOOMED_MAX;
}

size_t
part_bytes(const struct stress_options *options, int size)
{
	return (size_t)options->workers * (size_t)size *
	       (BATCH * SLOT + DOOMED_MAX);
}

/* ---- the plan ----------------------------------------------------------- */

static uint64_t
of_pair(const struct worker *w, int round, int from, int to, int what)
{
	return mix(w->options->seed, w->number * 4096 + from, round * 4096 + to,
	           what);
}

static bool
by_own_context(const struct worker *w, int round, int from, int to)
{
	uint64_t state = of_pair(w, round, from, to, -1);

	return draw(&state) % 3 == 0;
}

/* In which context the target gives the credit for that round. */
static int
credit_context(const struct worker *w, int round, int from, int to)
{
	uint64_t state = of_pair(w, round, from, to, -2);

	return (int)(draw(&state) % CONTEXTS);
}

static struct put
plan_put(const struct worker *w, int round, int from, int to, int i)
{
	uint64_t state = of_pair(w, round, from, to, 1000 + i);
	struct put put = { 0 };

	put.window = (int)(draw(&state) % 2);
	if (!w->windows->window[put.window])
		put.window = 0;
	put.data = draw(&state) % 4 && w->windows->window[put.window];
	put.index = (int)(draw(&state) % INDICES);
	put.context = by_own_context(w, round, from, to)
	                      ? SHARED
	                      : (int)(draw(&state) % SHARED);
	put.bytes = draw_bytes(&state);
	if (put.bytes > PUT_MAX)
		put.bytes = PUT_MAX;
	put.offset = slot_offset(w, from, i) + ROOM + draw(&state) % ROOM;
	put.pattern = draw(&state);
	return put;
}

/* ---- a round ------------------------------------------------------------ */

/* Started, or a failure and no request. */
static baton_request
wait_for(struct worker *w, int round, size_t n,
         const struct baton_wait_signal_desc *descs, baton_stream stream,
         const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;
	enum baton_status status;

	while ((status = baton_wait_signal(n, descs, w->comm, stream, options,
	                                   &request)) == BATON_ERR_AGAIN)
		(void)baton_progress(w->comm);
	if (status != BATON_OK)
		fail(w, round, "wait_signal gave %s", baton_status_name(status));
	return request;
}

static struct baton_wait_signal_desc
credit_desc(const struct worker *w, int to)
{
	int owes = w->onesided->partners[to].owes;
	int context = credit_context(w, owes, w->rank, to);

	w->onesided->partners[to].signals[context][CREDIT]++;
	w->onesided->partners[to].owes = -1;
	return (struct baton_wait_signal_desc){ 1, to, index_of(w, CREDIT),
	                                       context_of(w, context) };
}

static void
await_credit(struct worker *w, struct round *r)
{
	bool by_stream = by_own_context(w, r->number, w->rank, r->to);
	struct baton_wait_signal_desc desc;

	if (w->onesided->partners[r->to].owes < 0)
		return;
	desc = credit_desc(w, r->to);
	r->gated = by_stream;
	r->gate = wait_for(w, r->number, 1, &desc, w->streams[by_stream ? 0 : 1],
	                   NULL);
	if (!by_stream && baton_finish(&r->gate, -1, NULL) != BATON_OK)
		fail(w, r->number, "the wait for a credit has failed");
}

static struct baton_wait_signal_desc
desc_of(const struct worker *w, const struct round *r, int i)
{
	struct put put = plan_put(w, r->number, r->from, w->rank, i);

	return (struct baton_wait_signal_desc){ 1, r->from,
	                                       index_of(w, put.index),
	                                       context_of(w, put.context) };
}

/* A wait for so much that it never comes, before those that need some of it. */
static void
wait_greedily(struct worker *w, struct round *r)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_wait_signal_desc descs[2] = {
		desc_of(w, r, 0), desc_of(w, r, BATCH - 1)
	};

	options.flags = BATON_OP_DETACHED;
	descs[0].op_count = 1000;
	descs[1].op_count = 1 + (int)(draw(&w->own) % 3);
	r->greedy = wait_for(w, r->number, 2, descs, any_stream(w), &options);
}

void
onesided_begin(struct worker *w, struct round *r)
{
	int at = 0;

	for (int i = 0; i < BATCH; i++) {
		struct put put = plan_put(w, r->number, w->rank, r->to, i);

		fill(w->onesided->out[i], put.bytes, put.pattern);
	}
	while (at < BATCH) {
		at += 1 + (int)(draw(&w->own) % 3);
		r->covers[++r->count[WAITS]] = at < BATCH ? at : BATCH;
	}
	await_credit(w, r);
	w->onesided->partners[r->to].owes = r->number;
	if (draw(&w->own) % 4 == 0)
		wait_greedily(w, r);
}

enum baton_status
start_put(struct worker *w, struct round *r, int i, baton_stream stream)
{
	struct put put = plan_put(w, r->number, w->rank, r->to, i);
	baton_request *request_p = &r->requests[PUTS * BATCH + i];
	int context = context_of(w, put.context);

	if (r->gated)
		stream = w->streams[0];
	if (!put.data)
		return baton_signal(r->to, index_of(w, put.index), context, 0,
		                    w->comm, stream, &r->options, request_p);
	return baton_put_signal(w->onesided->out[i], put.bytes, BATON_UINT8,
	                        r->to, w->windows->window[put.window],
	                        put.offset, index_of(w, put.index), context, 0,
	                        w->comm, stream, &r->options, request_p);
}

enum baton_status
start_wait(struct worker *w, struct round *r, int i, baton_stream stream)
{
	struct baton_wait_signal_desc descs[BATCH];
	size_t n = 0;

	for (int put = r->covers[i]; put < r->covers[i + 1]; put++)
		descs[n++] = desc_of(w, r, put);
	return baton_wait_signal(n, descs, w->comm, stream, &r->options,
	                         &r->requests[WAITS * BATCH + i]);
}

/* It is there, and nothing beside it; the place is made ready for the next one. */
static void
check_put(struct worker *w, struct round *r, int i, const struct put *put)
{
	unsigned char *at;

	r->seen[i] = true;
	if (!put->data)
		return;
	at = w->windows->base[put->window] + put->offset;
	check_filled(w, r->number, at, put->bytes, put->pattern);
	for (int k = 0; k < ROOM; k++) {
		if (at[-1 - k] == UNTOUCHED && at[put->bytes + (size_t)k] == UNTOUCHED)
			continue;
		fail(w, r->number, "written beside put %d of %zu", i, put->bytes);
		break;
	}
	memset(at, UNTOUCHED, put->bytes);
}

void
check_wait(struct worker *w, struct round *r, int i)
{
	for (int last = r->covers[i]; last < r->covers[i + 1]; last++) {
		int context = plan_put(w, r->number, r->from, w->rank, last)
		                      .context;

		for (int earlier = 0; earlier <= last; earlier++) {
			struct put put = plan_put(w, r->number, r->from,
			                          w->rank, earlier);

			if (put.context == context && !r->seen[earlier])
				check_put(w, r, earlier, &put);
		}
	}
}

/* Round -1: the last one is over. */
static void
check_counts(struct worker *w, int round, int peer)
{
	const struct partner *partner = &w->onesided->partners[peer];

	for (int context = 0; context < CONTEXTS; context++) {
		for (int index = 0; index < INDICES_EACH; index++) {
			uint64_t count = 0, want;

			/* Credits come at any time, until the end. */
			if (index == DOOMED || (index == CREDIT && round >= 0))
				continue;
			want = partner->signals[context][index];
			if (baton_signal_count(w->comm, peer,
			                       index_of(w, index),
			                       context_of(w, context),
			                       &count) != BATON_OK ||
			    count != want)
				fail(w, round,
				     "%llu signals of rank %d, context %d, index "
				     "%d, expected %llu",
				     (unsigned long long)count, peer, context,
				     index, (unsigned long long)want);
		}
	}
}

static void
give_credit(struct worker *w, const struct round *r)
{
	int context = credit_context(w, r->number, r->from, w->rank);
	enum baton_status status;

	while ((status = baton_signal(r->from, index_of(w, CREDIT),
	                              context_of(w, context), 0, w->comm,
	                              any_stream(w), NULL, NULL)) ==
	       BATON_ERR_AGAIN)
		(void)baton_progress(w->comm);
	if (status != BATON_OK)
		fail(w, r->number, "the credit gave %s",
		     baton_status_name(status));
}

void
onesided_end(struct worker *w, struct round *r)
{
	struct partner *from = &w->onesided->partners[r->from];

	for (int i = 0; i < BATCH; i++) {
		struct put put = plan_put(w, r->number, r->from, w->rank, i);

		from->signals[put.context][put.index]++;
	}
	if (r->gated && baton_finish(&r->gate, -1, NULL) != BATON_OK)
		fail(w, r->number, "the stream's wait for a credit has failed");
	check_counts(w, r->number, r->from);
	give_credit(w, r);
}

/* ---- what ends early ---------------------------------------------------- */

/* Cancelled if it has no deadline. */
static void
end_wait(struct worker *w, int round, baton_request request, bool expires)
{
	enum baton_status status;

	if (!expires && baton_cancel(request) != BATON_OK)
		fail(w, round, "cancel of a wait");
	status = baton_finish(&request, -1, NULL);
	if (status != (expires ? BATON_ERR_TIMEOUT : BATON_ERR_CANCELED))
		fail(w, round, "a wait for too much ended in %s",
		     baton_status_name(status));
}

/* Of a signal that nobody sends, or of more than this round's source sends before it
 * has its credit. */
static void
end_a_wait_early(struct worker *w, struct round *r,
                 struct baton_op_options *options)
{
	struct baton_wait_signal_desc desc =
		desc_of(w, r, (int)(draw(&w->own) % BATCH));
	baton_request request;

	if (draw(&w->own) % 2) {
		desc.peer = (int)(draw(&w->own) % (uint32_t)w->size);
		desc.signal_index = index_of(w, NEVER);
	}
	request = wait_for(w, r->number, 1, &desc, any_stream(w), options);
	end_wait(w, r->number, request, options->timeout_ns > 0);
}

/* Does any window have puts by message? */
static bool
uses_messages(const struct baton_comm *comm)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	return baton_comm_query(comm, &info) == BATON_OK &&
	       (info.window_paths & BATON_WINDOW_PATH_MESSAGE);
}

/* A put that has ended well or not, in the end; when its buffer is ours again. */
static void
end_a_put_early(struct worker *w, struct round *r,
                struct baton_op_options *options)
{
	struct partner *to = &w->onesided->partners[r->to];
	size_t bytes = draw(&w->own) % 2 ? draw_bytes(&w->own)
	                                 : draw(&w->own) % DOOMED_MAX;
	struct baton_completion done = { 0 };
	baton_request request = 0;
	enum baton_status status;

	if (!w->windows->window[0])
		return;
	while ((status = baton_put_signal(
			w->onesided->doomed, bytes, BATON_UINT8, r->to,
			w->windows->window[0], doomed_offset(w, w->rank),
			index_of(w, DOOMED), context_of(w, SHARED), 0, w->comm,
			any_stream(w), options, &request)) == BATON_ERR_AGAIN)
		(void)baton_progress(w->comm);
	if (status != BATON_OK)
		fail(w, r->number, "a put that may end early gave %s",
		     baton_status_name(status));
	if (options->timeout_ns == 0 && baton_cancel(request) != BATON_OK)
		fail(w, r->number, "cancel of a put");
	status = baton_wait(request, -1, &done);
	if (status == BATON_OK)
		to->doomed[0]++;
	else if (status != BATON_ERR_CANCELED && status != BATON_ERR_TIMEOUT)
		fail(w, r->number, "a put that may end early ended in %s",
		     baton_status_name(status));
	else if (uses_messages(w->comm))
		/* Lent, if perhaps only until just now: behind a put by message its signal
		 * goes by message too. */
		to->doomed[1]++;
	else if (done.flags & BATON_COMPLETION_LENT)
		fail(w, r->number, "a put without messages is lent");
	while (done.flags & BATON_COMPLETION_LENT) {
		(void)baton_test(request, &done);
		sched_yield();
	}
	if (baton_release(&request) != BATON_OK)
		fail(w, r->number, "release of a put");
}

void
end_onesided_early(struct worker *w, struct round *r)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	int n = (int)(draw(&w->own) % 4);

	options.flags = BATON_OP_DETACHED;
	/* First: nothing goes on before. */
	if (r->greedy)
		end_wait(w, r->number, r->greedy, false);
	for (int i = 0; i < n; i++) {
		options.timeout_ns =
			draw(&w->own) % 2 ? 1000 + draw(&w->own) % 200000 : 0;
		if (draw(&w->own) % 2)
			end_a_wait_early(w, r, &options);
		else
			end_a_put_early(w, r, &options);
	}
}

/* ---- the end ------------------------------------------------------------ */

static void
await_last_credits(struct worker *w)
{
	struct baton_wait_signal_desc *descs =
		calloc((size_t)w->size, sizeof(*descs));
	baton_request request;
	size_t n = 0;

	if (!descs)
		abort();
	for (int peer = 0; peer < w->size; peer++)
		if (w->onesided->partners[peer].owes >= 0)
			descs[n++] = credit_desc(w, peer);
	if (n > 0) {
		request = wait_for(w, -1, n, descs, w->streams[0], NULL);
		if (baton_finish(&request, -1, NULL) != BATON_OK)
			fail(w, -1, "the last wait has failed");
	}
	free(descs);
}

/* How many doomed puts of that peer must have signaled, and how many more may. */
static void
tell_of_doomed(struct worker *w, int to, int from, uint64_t from_p[2])
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request send = 0;
	enum baton_status status;

	detached.flags = BATON_OP_DETACHED;
	status = baton_send(w->onesided->partners[to].doomed, 2, BATON_UINT64,
	                    to, w->number * TAGS_EACH, w->comm, w->streams[0],
	                    &detached, &send);
	if (status == BATON_OK)
		status = baton_recv(from_p, 2, BATON_UINT64, from,
		                    w->number * TAGS_EACH, w->comm,
		                    w->streams[0], NULL, NULL);
	if (status == BATON_OK)
		status = baton_finish(&send, -1, NULL);
	if (status == BATON_OK)
		status = baton_stream_synchronize(w->comm, w->streams[0]);
	if (status != BATON_OK)
		fail(w, -1, "telling of puts gave %s", baton_status_name(status));
}

/* That a put has ended at its source does not say that its signal is here. */
static void
check_doomed(struct worker *w, int peer, const uint64_t doomed[2])
{
	struct baton_wait_signal_desc desc = { (int)doomed[0], peer,
	                                      index_of(w, DOOMED),
	                                      context_of(w, SHARED) };
	baton_request request;
	uint64_t count = 0;

	if (desc.op_count > 0) {
		request = wait_for(w, -1, 1, &desc, w->streams[0], NULL);
		if (baton_finish(&request, -1, NULL) != BATON_OK)
			fail(w, -1, "the wait for what ended well has failed");
	}
	(void)baton_signal_count(w->comm, peer, desc.signal_index, desc.context,
	                         &count);
	if (count < doomed[0] || count > doomed[0] + doomed[1])
		fail(w, -1, "%llu signals of rank %d's %llu puts, %llu more in doubt",
		     (unsigned long long)count, peer,
		     (unsigned long long)doomed[0],
		     (unsigned long long)doomed[1]);
}

void
check_counters(struct worker *w)
{
	await_last_credits(w);
	for (int shift = 0; shift < w->size; shift++) {
		int from = (w->rank + w->size - shift) % w->size;
		uint64_t doomed[2] = { 0 };

		tell_of_doomed(w, (w->rank + shift) % w->size, from, doomed);
		check_doomed(w, from, doomed);
		check_counts(w, -1, from);
	}
}

void
onesided_init(struct worker *w)
{
	struct onesided *onesided =
		calloc(1, sizeof(*onesided) +
	                          (size_t)w->size * sizeof(struct partner));

	if (!onesided)
		abort();
	w->onesided = onesided;
	for (int i = 0; i < w->size; i++)
		onesided->partners[i].owes = -1;
	for (int i = 0; i < BATCH; i++)
		if (!(onesided->out[i] = malloc(BYTES_MAX)))
			abort();
	onesided->doomed = calloc(1, DOOMED_MAX);
	if (!onesided->doomed)
		abort();
}

void
onesided_fini(struct worker *w)
{
	for (int i = 0; i < BATCH; i++)
		free(w->onesided->out[i]);
	free(w->onesided->doomed);
	free(w->onesided);
}
