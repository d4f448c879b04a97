/* SPDX-License-Identifier: BSD-3-Clause */
#include "harness.h"

#include <assert.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "testing.h"

struct conform_block {
	struct conform_block *next;
	void *message; /* device memory that goes with it, or NULL */
	_Alignas(64) unsigned char bytes[];
};

const struct baton_op_options conform_detached = {
	.size = sizeof(struct baton_op_options),
	.flags = BATON_OP_DETACHED,
};

/* The line that the running check stands on, for threads of one case too. */
static _Thread_local const char *at_file;
static _Thread_local int at_line;

/* ---- checks ------------------------------------------------------------- */

struct conform *
conform_at(struct conform *c, const char *file, int line)
{
	const char *slash = strrchr(file, '/');

	at_file = slash ? slash + 1 : file;
	at_line = line;
	atomic_store_explicit(&c->file, at_file, memory_order_relaxed);
	atomic_store_explicit(&c->line, line, memory_order_relaxed);
	return c;
}

/* Count the failure; the first few of a case are printed, each in one write. */
__attribute__((format(printf, 2, 3))) static void
fail(struct conform *c, const char *format, ...)
{
	int before = atomic_fetch_add(&c->failures, 1);
	char text[600];
	va_list arguments;

	if (before > 20)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("    %s:%d: %s: rank %d of %d: %s\n", at_file, at_line,
	       c->now->name, c->rank, c->size,
	       before == 20 ? "more failures are not shown" : text);
}

bool
conform_true(struct conform *c, const char *what, bool holds)
{
	if (!holds)
		fail(c, "%s is false", what);
	return holds;
}

bool
conform_equal(struct conform *c, const char *what, long long got,
              long long want)
{
	if (got != want)
		fail(c, "%s is %lld, expected %lld", what, got, want);
	return got == want;
}

bool
conform_status(struct conform *c, const char *what, enum baton_status want,
               enum baton_status got)
{
	if (got != want)
		fail(c, "%s gave %s, expected %s (last refusal: \"%s\")", what,
		     baton_status_name(got), baton_status_name(want),
		     baton_last_error());
	return got == want;
}

bool
conform_refused(struct conform *c, const char *what, enum baton_status want,
                enum baton_status got, const char *words)
{
	const char *text = baton_last_error();
	char list[128], *rest = NULL;

	if (!conform_status(c, what, want, got))
		return false;
	snprintf(list, sizeof(list), "%s", words);
	for (char *word = strtok_r(list, " ", &rest); word;
	     word = strtok_r(NULL, " ", &rest)) {
		if (strstr(text, word))
			continue;
		fail(c, "%s: \"%s\" does not say \"%s\"", what, text, word);
		return false;
	}
	return true;
}

/* ---- patterns and memory ------------------------------------------------ */

void
conform_fill(void *buffer, size_t bytes, unsigned seed)
{
	unsigned char *byte = buffer;
	unsigned value = 131u * (seed % 251u) % 251u;

	for (size_t i = 0; i < bytes; i++) {
		byte[i] = (unsigned char)value;
		value = value == 250 ? 0 : value + 1;
	}
}

/* Must the bytes be copied before the host reads them, and after it has written them? */
static bool
is_away(const struct conform *c, const void *buffer)
{
	return c->memory && c->memory->is_device(buffer);
}

/* The bytes where the host can read them; drop_view gives them back. */
static const unsigned char *
host_view(const struct conform *c, const void *buffer, size_t bytes)
{
	unsigned char *copy;

	if (!is_away(c, buffer))
		return buffer;
	copy = malloc(bytes + 1);
	if (!copy)
		abort();
	c->memory->copy(copy, buffer, bytes);
	return copy;
}

static void
drop_view(const void *buffer, const unsigned char *view)
{
	if (view != buffer)
		free((void *)(uintptr_t)view);
}

static bool
holds(struct conform *c, const unsigned char *byte, size_t bytes, unsigned seed)
{
	unsigned value = 131u * (seed % 251u) % 251u;

	for (size_t i = 0; i < bytes; i++) {
		if (byte[i] != value) {
			fail(c, "byte %zu of %zu is %u, expected %u (pattern %u)",
			     i, bytes, byte[i], value, seed);
			return false;
		}
		value = value == 250 ? 0 : value + 1;
	}
	return true;
}

bool
conform_holds(struct conform *c, const void *buffer, size_t bytes,
              unsigned seed)
{
	const unsigned char *view = host_view(c, buffer, bytes);
	bool right = holds(c, view, bytes, seed);

	drop_view(buffer, view);
	return right;
}

static bool
all(struct conform *c, const unsigned char *byte, size_t bytes,
    unsigned char value)
{
	for (size_t i = 0; i < bytes; i++) {
		if (byte[i] == value)
			continue;
		fail(c, "byte %zu of %zu is %u, expected all %u", i, bytes,
		     byte[i], value);
		return false;
	}
	return true;
}

bool
conform_all(struct conform *c, const void *buffer, size_t bytes,
            unsigned char value)
{
	const unsigned char *view = host_view(c, buffer, bytes);
	bool right = all(c, view, bytes, value);

	drop_view(buffer, view);
	return right;
}

static struct conform_block *
new_block(struct conform *c, size_t bytes)
{
	struct conform_block *block = NULL;

	if (posix_memalign((void **)&block, 64, sizeof(*block) + bytes)) {
		fprintf(stderr, "conform: no memory for %zu bytes\n", bytes);
		abort();
	}
	memset(block->bytes, 0, bytes);
	block->message = NULL;
	pthread_mutex_lock(&c->lock);
	block->next = c->blocks;
	c->blocks = block;
	pthread_mutex_unlock(&c->lock);
	return block;
}

void *
conform_alloc(struct conform *c, size_t bytes)
{
	return new_block(c, bytes)->bytes;
}

void *
conform_alloc_kind(struct conform *c, enum conform_kind kind, size_t bytes)
{
	struct conform_block *block;

	if (!c->memory || kind == CONFORM_KIND_HOST)
		return conform_alloc(c, bytes);
	block = new_block(c, 0);
	block->message = c->memory->alloc(kind, bytes);
	if (!block->message) {
		fprintf(stderr, "conform: there is no memory of kind %u here\n",
		        kind);
		abort();
	}
	return block->message;
}

void *
conform_message(struct conform *c, size_t bytes)
{
	const bool host = c->backend->traits & CONFORM_HOST_BUFFERS;

	return conform_alloc_kind(c,
	                          conform_next_kind(c, &c->buffers,
	                                            host ? CONFORM_KIND_HOST
	                                                 : CONFORM_KIND_DEVICE),
	                          bytes);
}

void
conform_copy(const struct conform *c, void *to, const void *from, size_t bytes)
{
	if (bytes == 0)
		return;
	if (is_away(c, to) || is_away(c, from))
		c->memory->copy(to, from, bytes);
	else
		memcpy(to, from, bytes);
}

bool
conform_same(struct conform *c, const void *buffer, const void *want,
             size_t bytes)
{
	const unsigned char *view = host_view(c, buffer, bytes), *byte = want;
	size_t at = 0;

	while (at < bytes && view[at] == byte[at])
		at++;
	if (at < bytes)
		fail(c, "byte %zu of %zu is %u, expected %u", at, bytes, view[at],
		     byte[at]);
	drop_view(buffer, view);
	return at == bytes;
}

void
conform_write(struct conform *c, void *buffer, size_t bytes, unsigned seed)
{
	unsigned char *content = buffer;

	if (is_away(c, buffer))
		content = malloc(bytes + 1);
	conform_fill(content, bytes, seed);
	if (content == buffer)
		return;
	conform_copy(c, buffer, content, bytes);
	free(content);
}

void
conform_set(struct conform *c, void *buffer, unsigned char value, size_t bytes)
{
	unsigned char *content = buffer;

	if (is_away(c, buffer))
		content = malloc(bytes + 1);
	memset(content, value, bytes);
	if (content == buffer)
		return;
	conform_copy(c, buffer, content, bytes);
	free(content);
}

void *
conform_filled(struct conform *c, size_t bytes, unsigned seed)
{
	void *buffer = conform_message(c, bytes);

	conform_write(c, buffer, bytes, seed);
	return buffer;
}

void
conform_free_blocks(struct conform *c)
{
	while (c->blocks) {
		struct conform_block *next = c->blocks->next;

		if (c->blocks->message)
			c->memory->free(c->blocks->message);
		free(c->blocks);
		c->blocks = next;
	}
}

uint32_t
conform_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) +
	         UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

/* ---- kinds of memory ---------------------------------------------------- */

static bool
read_turn(struct conform_turn *turn, const char *text)
{
	static const char *const names[] = { "host", "pinned", "managed",
		                             "device", "pool", "alloc" };

	static_assert(sizeof(names) / sizeof(names[0]) == CONFORM_KINDS,
	              "each has a name");
	while (text && *text != '\0') {
		size_t length = strcspn(text, ",");
		int kind = 0;

		while (kind < CONFORM_KINDS &&
		       (strlen(names[kind]) != length ||
		        memcmp(names[kind], text, length) != 0))
			kind++;
		if (kind == CONFORM_KINDS || turn->n == 16)
			return false;
		turn->kinds[turn->n++] = (enum conform_kind)kind;
		text += length + (text[length] == ',');
	}
	return true;
}

void
conform_read_kinds(struct conform *c)
{
	if (read_turn(&c->windows, getenv("CONFORM_WINDOWS")) &&
	    read_turn(&c->buffers, getenv("CONFORM_BUFFERS")))
		return;
	fprintf(stderr, "conform: CONFORM_WINDOWS and CONFORM_BUFFERS take up to "
	                "16 of host, pinned, managed, device, pool and alloc\n");
	exit(2);
}

enum conform_kind
conform_next_kind(const struct conform *c, struct conform_turn *turn,
                  enum conform_kind usual)
{
	if (turn->n == 0)
		return usual;
	return turn->kinds[(atomic_fetch_add(&turn->next, 1) +
	                    (unsigned)c->rank) %
	                   turn->n];
}

/* ---- operations --------------------------------------------------------- */

baton_request
conform_send(struct conform *c, const void *buffer, size_t bytes, int peer,
             int tag, baton_stream stream,
             const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	conform_status(c, "baton_send", BATON_OK,
	               baton_send(buffer, bytes, BATON_UINT8, peer, tag,
	                          c->comm, stream, options, &request));
	return request;
}

baton_request
conform_recv(struct conform *c, void *buffer, size_t bytes, int peer, int tag,
             baton_stream stream, const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	conform_status(c, "baton_recv", BATON_OK,
	               baton_recv(buffer, bytes, BATON_UINT8, peer, tag,
	                          c->comm, stream, options, &request));
	return request;
}

bool
conform_short(void)
{
	const char *value = getenv("CONFORM_SHORT");

	return value && strcmp(value, "1") == 0;
}

int
conform_turns(int n)
{
	return conform_short() ? n / 10 : n;
}

int64_t
conform_patience(struct conform *c)
{
	return (atomic_load(&c->failures) ? 1 : CONFORM_SANITIZED ? 60 : 20) *
	       1000 * MS;
}

int64_t
conform_begin(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 * MS + now.tv_nsec;
}

bool
conform_still(struct conform *c, int64_t begin)
{
	if (conform_begin() - begin < conform_patience(c)) {
		sched_yield();
		return true;
	}
	fail(c, "what must come has not come");
	return false;
}

bool
conform_finish(struct conform *c, enum baton_status want,
               baton_request *request_p, struct baton_completion *completion_p)
{
	enum baton_status got;

	if (*request_p == BATON_REQUEST_NULL)
		return false; /* the call that should have made it has failed */
	got = baton_finish(request_p, conform_patience(c), completion_p);
	conform_status(c, "the operation", want, got);
	if (got == BATON_PENDING) {
		(void)baton_cancel(*request_p);
		(void)baton_release(request_p);
	}
	return got == want;
}

void
conform_finish_all(struct conform *c, baton_request *requests, size_t n)
{
	for (size_t i = 0; i < n; i++)
		conform_finish(c, BATON_OK, &requests[i], NULL);
}

baton_stream
conform_stream(struct conform *c)
{
	baton_stream stream = NULL;

	conform_status(c, "baton_stream_create", BATON_OK,
	               baton_stream_create(c->comm, &stream));
	pthread_mutex_lock(&c->lock);
	if (c->streams_count == CONFORM_STREAMS) {
		fprintf(stderr, "conform: too many streams\n");
		abort();
	}
	c->streams[c->streams_count++] = stream;
	pthread_mutex_unlock(&c->lock);
	return stream;
}

void
conform_sync(struct conform *c)
{
	c->backend->sync(c);
}

void
conform_sound(struct conform *c)
{
	unsigned char out[64], in[64];
	baton_request requests[2];
	enum baton_status status = BATON_OK;

	for (int step = 1; step < c->size; step++) {
		int to = (c->rank + step) % c->size;
		int from = (c->rank + c->size - step) % c->size;

		conform_fill(out, sizeof(out), (unsigned)c->rank + 7);
		memset(in, 0, sizeof(in));
		status = baton_group_begin(c->comm);
		requests[0] = conform_send(c, out, sizeof(out), to, 0,
		                           c->stream, NULL);
		requests[1] = conform_recv(c, in, sizeof(in), from, 0,
		                           c->stream, NULL);
		conform_status(c, "baton_group_begin", BATON_OK, status);
		conform_status(c, "baton_group_end", BATON_OK,
		               baton_group_end(c->comm));
		conform_finish_all(c, requests, 2);
		conform_holds(c, in, sizeof(in), (unsigned)from + 7);
	}
}

void
conform_lose_unissued(struct conform *c, const struct baton_op_options *options)
{
	baton_stream gated = conform_stream(c);
	struct baton_completion done = { 0 };
	baton_request requests[3] = { 0 };
	int values[3] = { 1, 2, 3 };

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		requests[0] = SEND(c, &values[0], sizeof(int), 1, 0, gated, NULL);
		requests[1] = SEND(c, &values[1], sizeof(int), 1, 0, c->stream,
		                   options);
		requests[2] = SEND(c, &values[2], sizeof(int), 1, 0, c->stream,
		                   NULL);
		if (!options)
			CHECK_OK(c, baton_cancel(requests[1]));
		FINISH_AS(c, options ? BATON_ERR_TIMEOUT : BATON_ERR_CANCELED,
		          &requests[1], &done);
		CHECK_EQ(c, done.flags, 0);
		conform_gate_open(c, 0);
	} else if (c->rank == 1) {
		memset(values, 0, sizeof(values));
		requests[0] = RECV(c, &values[0], sizeof(int), 0, 0, c->stream,
		                   NULL);
		requests[2] = RECV(c, &values[2], sizeof(int), 0, 0, c->stream,
		                   NULL);
	}
	FINISH(c, BATON_OK, &requests[0]);
	FINISH(c, BATON_OK, &requests[2]);
	if (c->rank == 1) {
		CHECK_EQ(c, values[0], 1);
		CHECK_EQ(c, values[2], 3);
	}
}

struct baton_comm *
conform_comm(struct conform *c, const struct baton_comm_options *options)
{
	struct baton_comm *comm = NULL;
	enum baton_status status = c->backend->create(c, options, &comm);

	if (status != BATON_OK) {
		fprintf(stderr, "conform: rank %d: no communicator: %s: %s\n",
		        c->rank, baton_status_name(status), baton_last_error());
		abort();
	}
	return comm;
}

struct baton_comm *
conform_exchange(struct conform *c, const struct baton_comm_options *options)
{
	struct baton_comm *first = c->comm;

	c->comm = conform_comm(c, options);
	return first;
}

void
conform_restore(struct conform *c, struct baton_comm *first)
{
	conform_status(c, "baton_comm_destroy", BATON_OK,
	               baton_comm_destroy(c->comm));
	c->comm = first;
}

int
conform_next(const struct conform *c)
{
	return (c->rank + 1) % c->size;
}

int
conform_previous(const struct conform *c)
{
	return (c->rank + c->size - 1) % c->size;
}

void
conform_message_paths(struct conform *c)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	unsigned all = 0;

	conform_status(c, "baton_comm_query", BATON_OK,
	               baton_comm_query(c->comm, &info));
	for (int peer = 0; peer < c->size; peer++) {
		unsigned path = baton_message_path(c->comm, peer);

		conform_true(c, "each peer has one path",
		             path == BATON_MESSAGE_PATH_TRANSPORT ||
		                     path == BATON_MESSAGE_PATH_NEAR);
		all |= path;
	}
	conform_equal(c, "all paths", all, info.message_paths);
}

int
conform_partner(const struct conform *c)
{
	int other = c->rank ^ 1;

	return other < c->size ? other : -1;
}

void
conform_nothing_fn(void *arg)
{
	(void)arg;
}

void
conform_count_fn(void *arg)
{
	_Atomic int *count = arg;

	atomic_fetch_add(count, 1);
}

/* ---- threads ------------------------------------------------------------ */

static void *
wait_for_ever(void *arg)
{
	struct conform_waiter *waiter = arg;

	atomic_store(&waiter->begun, true);
	waiter->status = baton_wait(waiter->request, -1, NULL);
	return NULL;
}

bool
conform_waiter_start(struct conform *c, struct conform_waiter *waiter,
                     baton_request request)
{
	waiter->request = request;
	waiter->status = BATON_PENDING;
	atomic_init(&waiter->begun, false);
	return conform_equal(c, "pthread_create",
	                     pthread_create(&waiter->thread, NULL, wait_for_ever,
	                                    waiter), 0);
}

void
conform_waiter_begun(struct conform *c, const struct conform_waiter *waiter)
{
	int64_t begin = conform_begin();

	while (!atomic_load(&waiter->begun) && conform_still(c, begin))
		;
}

void
conform_waiter_join(struct conform *c, enum baton_status want,
                    struct conform_waiter *waiter)
{
	pthread_join(waiter->thread, NULL);
	conform_status(c, "the wait", want, waiter->status);
}

/* ---- gates -------------------------------------------------------------- */

static void
gate_pass(void *arg)
{
	struct conform_gate *gate = arg;

	pthread_mutex_lock(&gate->lock);
	gate->inside++;
	pthread_cond_broadcast(&gate->changed);
	while (!gate->open)
		pthread_cond_wait(&gate->changed, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
}

void
conform_gate_launch(struct conform *c, int gate, baton_stream stream)
{
	conform_status(c, "baton_stream_launch (a gate)", BATON_OK,
	               baton_stream_launch(c->comm, stream, gate_pass,
	                                   &c->gates[gate]));
}

void
conform_gate_open(struct conform *c, int gate)
{
	struct conform_gate *g = &c->gates[gate];

	pthread_mutex_lock(&g->lock);
	g->open = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

void
conform_gate_reached(struct conform *c, int gate)
{
	struct conform_gate *g = &c->gates[gate];

	pthread_mutex_lock(&g->lock);
	while (!g->inside)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

/* ---- time --------------------------------------------------------------- */

/* Read by the driver, advanced by the case. */
static _Atomic uint64_t stopped_clock = 1000000000u;

static uint64_t
read_stopped_clock(void)
{
	return atomic_load_explicit(&stopped_clock, memory_order_acquire);
}

void
conform_clock_stop(void)
{
	batoni_clock_set(read_stopped_clock);
}

void
conform_clock_advance(int64_t ns)
{
	/* Pairs with the acquire of read_stopped_clock. */
	atomic_fetch_add_explicit(&stopped_clock, (uint64_t)ns,
	                          memory_order_release);
}

void
conform_clock_release(void)
{
	batoni_clock_set(NULL);
}
