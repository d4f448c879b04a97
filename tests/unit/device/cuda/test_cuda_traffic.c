/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ordinary traffic over the simulator: ranks that are threads, on several GPUs, exchange
 * messages and puts of odd lengths between memory of all kinds, many at a time.
 *
 * In each round a rank has BATCH operations towards the next rank and as many from the one
 * before.  Both sides draw the same plan of them from the seed, so the receiver knows every
 * byte.  All memory is allocated before anything waits, as programs should.
 *
 * CUDA_TRAFFIC=seed:rounds runs longer, or repeats a seed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_world.h"
#include "mem.h"

enum { RANKS = 4, DEVICES = 3, STREAMS = 4, BATCH = 48, CONTEXTS = 3 };
enum { ROOM = 1 << 20, LONGEST = ROOM - 64 };

/* What a buffer may be. */
enum kind { ON_DEVICE, ON_OTHER_DEVICE, MANAGED, PINNED, REGISTERED, PAGEABLE, KINDS };
/* What a window may be. */
enum { WINDOW_KINDS = 4 };
static const enum kind window_kinds[WINDOW_KINDS] = {ON_DEVICE, PAGEABLE,
                                                     MANAGED, REGISTERED};

struct rank {
	pthread_t thread;
	int number;
	struct baton_comm *comm;
	CUcontext context;
	CUstream streams[STREAMS];
	/* BATCH times ROOM bytes of each kind, to send from and to receive in. */
	unsigned char *from[KINDS], *to[KINDS];
	unsigned char *parts[WINDOW_KINDS]; /* likewise */
	struct baton_window *windows[WINDOW_KINDS];
	uint64_t random;
};

/* One operation, as both sides know it. */
struct step {
	bool put, detached;
	enum kind source, target;
	int window, context, stream, tag;
	size_t bytes, shift;
	unsigned pattern;
};

static struct rank ranks[RANKS];
static pthread_barrier_t barrier;
static unsigned long seed = 1, rounds = 4;

/* ---- the plan ------------------------------------------------------------- */

static uint64_t
draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state >> 11;
}

static size_t
draw_length(uint64_t *state)
{
	switch (draw(state) % 8) {
	case 0:
		return 0;
	case 1:
	case 2:
	case 3:
		return draw(state) % 64;
	case 4:
	case 5:
		return draw(state) % 5000;
	case 6:
		return draw(state) % 70000;
	default:
		return draw(state) % LONGEST;
	}
}

/* What rank `source` does towards the next one in this round. */
static void
plan(struct step steps[BATCH], int source, unsigned long round)
{
	uint64_t state = (seed * 1000003u + round) * RANKS + (unsigned)source + 1;

	for (int i = 0; i < 20; i++)
		draw(&state);
	for (int i = 0; i < BATCH; i++) {
		steps[i] = (struct step){
			.put = draw(&state) % 2,
			.detached = draw(&state) % 3 != 0,
			.source = (enum kind)(draw(&state) % KINDS),
			.target = (enum kind)(draw(&state) % KINDS),
			.window = (int)(draw(&state) % WINDOW_KINDS),
			.context = (int)(draw(&state) % CONTEXTS),
			.stream = (int)(draw(&state) % STREAMS),
			.tag = (int)(draw(&state) % 3),
			.bytes = draw_length(&state),
			.shift = draw(&state) % 64,
			.pattern = (unsigned)draw(&state),
		};
	}
}

static unsigned char
byte_at(size_t i, unsigned pattern)
{
	return (unsigned char)(i * 11 + (i >> 8) * 3 + pattern);
}

/* ---- memory --------------------------------------------------------------- */

static bool
is_hosts(enum kind kind)
{
	return kind == PINNED || kind == REGISTERED || kind == PAGEABLE;
}

static void
write_bytes(enum kind kind, unsigned char *at, const unsigned char *values,
            size_t bytes)
{
	if (is_hosts(kind) || bytes == 0)
		memcpy(at, values, bytes);
	else
		cw.sim->sim_poke(cuda_world_address(at), values, bytes);
}

static void
read_bytes(enum kind kind, unsigned char *values, const unsigned char *at,
           size_t bytes)
{
	if (is_hosts(kind) || bytes == 0)
		memcpy(values, at, bytes);
	else
		cw.sim->sim_peek(values, cuda_world_address(at), bytes);
}

static unsigned char *
allocate(struct rank *rank, enum kind kind)
{
	struct rank *other = &ranks[(rank->number + 1) % RANKS];
	size_t bytes = (size_t)BATCH * ROOM;
	CUdeviceptr pointer = 0;
	CUcontext popped;
	void *memory = NULL;

	cu_ok(cw.sim->context_push(kind == ON_OTHER_DEVICE ? other->context
	                                                   : rank->context));
	if (kind == ON_DEVICE || kind == ON_OTHER_DEVICE)
		cu_ok(cw.sim->mem_alloc(&pointer, bytes));
	else if (kind == MANAGED)
		cu_ok(cw.sim->managed_alloc(&pointer, bytes, 1));
	else if (kind == PINNED)
		cu_ok(cw.sim->host_alloc(&memory, bytes, 0));
	else
		memory = aligned_alloc(4096, bytes);
	if (kind == REGISTERED)
		cu_ok(cw.sim->host_register(memory, bytes, 0));
	cu_ok(cw.sim->context_pop(&popped));
	return memory ? memory : (unsigned char *)(uintptr_t)pointer;
}

static void
free_hosts(enum kind kind, unsigned char *memory)
{
	if (kind == REGISTERED)
		cu_ok(cw.sim->host_unregister(memory));
	if (kind == REGISTERED || kind == PAGEABLE)
		free(memory);
}

/* ---- one round ------------------------------------------------------------ */

static unsigned char *
source_of(const struct rank *rank, const struct step *step, int i)
{
	return rank->from[step->source] + (size_t)i * ROOM + step->shift;
}

/* Where the i-th operation of the rank before arrives. */
static unsigned char *
target_of(const struct rank *rank, const struct step *step, int i)
{
	return (step->put ? rank->parts[step->window] : rank->to[step->target]) +
	       (size_t)i * ROOM + step->shift;
}

static enum kind
kind_of_target(const struct step *step)
{
	return step->put ? window_kinds[step->window] : step->target;
}

static void
fill_batch(struct rank *rank, const struct step steps[BATCH])
{
	unsigned char *values = malloc(ROOM);

	for (int i = 0; i < BATCH; i++) {
		for (size_t at = 0; at < steps[i].bytes; at++)
			values[at] = byte_at(at, steps[i].pattern);
		write_bytes(steps[i].source, source_of(rank, &steps[i], i), values,
		            steps[i].bytes);
	}
	free(values);
}

static void
compare_batch(const struct rank *rank, const struct step steps[BATCH])
{
	unsigned char *values = malloc(ROOM);

	for (int i = 0; i < BATCH; i++) {
		const struct step *step = &steps[i];

		read_bytes(kind_of_target(step), values,
		           target_of(rank, step, i), step->bytes);
		for (size_t at = 0; at < step->bytes; at++)
			if (values[at] != byte_at(at, step->pattern))
				ck_abort_msg("seed %lu, rank %d, step %d (%s, "
				             "%zu bytes, from kind %d to %d): "
				             "byte %zu",
				             seed, rank->number, i,
				             step->put ? "put" : "send",
				             step->bytes, step->source,
				             kind_of_target(step), at);
	}
	free(values);
}

static enum baton_status
outgoing(struct rank *rank, const struct step *step, int i,
         const struct baton_op_options *options, baton_request *request_p)
{
	int next = (rank->number + 1) % RANKS;
	void *source = source_of(rank, step, i);
	CUstream stream = rank->streams[step->stream];

	if (!step->put)
		return baton_send(source, step->bytes, BATON_UINT8, next,
		                  step->tag, rank->comm, stream, options,
		                  request_p);
	return baton_put_signal(source, step->bytes, BATON_UINT8, next,
	                        rank->windows[step->window],
	                        (size_t)i * ROOM + step->shift, 0,
	                        step->context, 0, rank->comm, stream, options,
	                        request_p);
}

static enum baton_status
incoming(struct rank *rank, const struct step *step, int i,
         const struct baton_op_options *options, baton_request *request_p)
{
	int before = (rank->number + RANKS - 1) % RANKS;
	struct baton_wait_signal_desc one = {1, before, 0, step->context};
	CUstream stream = rank->streams[(step->stream + 1) % STREAMS];

	if (step->put)
		return baton_wait_signal(1, &one, rank->comm, stream, options,
		                         request_p);
	return baton_recv(target_of(rank, step, i), step->bytes, BATON_UINT8,
	                  before, step->tag, rank->comm, stream, options,
	                  request_p);
}

static void
end_well(baton_request request, const struct step *step)
{
	enum baton_status status = baton_wait(request, LONG_NS, NULL);
	char why[300] = "";

	if (status != BATON_OK) {
		baton_request_error(request, why, sizeof(why));
		ck_abort_msg("seed %lu: a %s of %zu bytes from kind %d to %d is "
		             "%s: %s",
		             seed, step->put ? "put" : "send", step->bytes,
		             step->source, kind_of_target(step),
		             baton_status_name(status), why);
	}
	baton_ok(baton_release(&request));
}

/* Detached operations go on beside each other, the others hold up their stream.  All of what
 * comes in is enqueued detached, so that no order of the streams can make a circle. */
static void
exchange(struct rank *rank, unsigned long round)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct step out[BATCH], in[BATCH];
	baton_request requests[2 * BATCH] = {0};

	detached.flags = BATON_OP_DETACHED;
	plan(out, rank->number, round);
	plan(in, (rank->number + RANKS - 1) % RANKS, round);
	fill_batch(rank, out);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < BATCH; i++) {
		baton_ok(incoming(rank, &in[i], i, &detached, &requests[i]));
		baton_ok(outgoing(rank, &out[i], i,
		                  out[i].detached ? &detached : NULL,
		                  &requests[BATCH + i]));
	}
	for (int i = 0; i < 2 * BATCH; i++)
		end_well(requests[i], i < BATCH ? &in[i] : &out[i - BATCH]);
	pthread_barrier_wait(&barrier);
	compare_batch(rank, in);
	pthread_barrier_wait(&barrier);
}

static void *
run_rank(void *argument)
{
	struct rank *rank = argument;
	CUcontext popped;

	cu_ok(cw.sim->context_push(rank->context));
	for (int i = 0; i < WINDOW_KINDS; i++)
		baton_ok(baton_window_register(rank->parts[i],
		                               (size_t)BATCH * ROOM, rank->comm,
		                               &rank->windows[i]));
	for (unsigned long round = 0; round < rounds; round++)
		exchange(rank, round);
	for (int i = 0; i < WINDOW_KINDS; i++)
		baton_ok(baton_window_deregister(rank->windows[i]));
	cu_ok(cw.sim->context_pop(&popped));
	return NULL;
}

/* ---- all of it ------------------------------------------------------------ */

static void
open_ranks(void)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *comms[RANKS];
	CUcontext popped;

	options.requests_max = 4 * BATCH;
	options.cuda_device = -1;
	for (int i = 0; i < RANKS; i++) {
		struct rank *rank = &ranks[i];

		rank->number = i;
		cu_ok(cw.sim->primary_retain(&rank->context, i % DEVICES));
		cu_ok(cw.sim->context_push(rank->context));
		for (int s = 0; s < STREAMS; s++)
			rank->streams[s] = cuda_world_stream(
				BATONI_CU_STREAM_NON_BLOCKING);
		cu_ok(cw.sim->context_pop(&popped));
	}
	for (int i = 0; i < RANKS; i++) {
		for (int kind = 0; kind < KINDS; kind++) {
			ranks[i].from[kind] = allocate(&ranks[i], (enum kind)kind);
			ranks[i].to[kind] = allocate(&ranks[i], (enum kind)kind);
		}
		for (int w = 0; w < WINDOW_KINDS; w++)
			ranks[i].parts[w] = allocate(&ranks[i], window_kinds[w]);
	}
	/* Without a current context ranks take the devices in turn. */
	cu_ok(cw.sim->context_pop(&popped));
	baton_ok(baton_comm_create_local(RANKS, &options, comms));
	cu_ok(cw.sim->context_push(popped));
	for (int i = 0; i < RANKS; i++)
		ranks[i].comm = comms[i];
}

static void
close_ranks(void)
{
	for (int i = 0; i < RANKS; i++)
		baton_ok(baton_comm_destroy(ranks[i].comm));
	for (int i = 0; i < RANKS; i++) {
		for (int kind = 0; kind < KINDS; kind++) {
			free_hosts((enum kind)kind, ranks[i].from[kind]);
			free_hosts((enum kind)kind, ranks[i].to[kind]);
		}
		for (int w = 0; w < WINDOW_KINDS; w++)
			free_hosts(window_kinds[w], ranks[i].parts[w]);
	}
}

/* More at a time than the reserve of pinned memory has for: the driver pins beside streams that
 * wait, and waits for them. */
static _Atomic bool traffic_is_over;

static void *
come_and_go(void *unused)
{
	enum { N = 3 };
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *comms[N][2];

	while (!atomic_load(&traffic_is_over)) {
		for (int i = 0; i < N; i++) {
			options.cuda_device = i % DEVICES;
			/* Other blocks each time. */
			options.requests_max = (options.requests_max % 8000) + 512;
			baton_ok(baton_comm_create_local(2, &options, comms[i]));
		}
		for (int i = 0; i < 2 * N; i++)
			baton_ok(baton_comm_destroy(comms[i / 2][i % 2]));
	}
	return unused;
}

static void
exchange_all(long delays, bool beside)
{
	pthread_t creator;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("devices", DEVICES));
	ck_assert(cw.sim->sim_set("queues", 32));
	ck_assert(cw.sim->sim_set("pageable", 2));
	ck_assert(cw.sim->sim_set("peer", 1));
	ck_assert(cw.sim->sim_set("seed", delays));
	cuda_world_begin();
	open_ranks();
	pthread_barrier_init(&barrier, NULL, RANKS);
	if (beside)
		pthread_create(&creator, NULL, come_and_go, NULL);
	for (int i = 0; i < RANKS; i++)
		pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
	for (int i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
	atomic_store(&traffic_is_over, true);
	if (beside)
		pthread_join(creator, NULL);
	close_ranks();
	cuda_world_end();
}

START_TEST(traffic_of_all_kinds_arrives)
{
	exchange_all(0, false);
}
END_TEST

START_TEST(traffic_of_all_kinds_arrives_late)
{
	seed++;
	exchange_all((long)seed, false);
}
END_TEST

START_TEST(traffic_of_all_kinds_arrives_by_message)
{
	setenv("BATON_WINDOW_PATH", "message", 1);
	seed += 3;
	exchange_all((long)seed, false);
}
END_TEST

START_TEST(communicators_come_and_go_beside_traffic)
{
	cuda_world_load();
	ck_assert(cw.sim->sim_set("implicit", 2));
	seed += 2;
	exchange_all((long)seed, true);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		traffic_of_all_kinds_arrives,
		traffic_of_all_kinds_arrives_late,
		traffic_of_all_kinds_arrives_by_message,
		communicators_come_and_go_beside_traffic,
	};
	const char *text = getenv("CUDA_TRAFFIC");

	if (text && sscanf(text, "%lu:%lu", &seed, &rounds) != 2) {
		fprintf(stderr, "CUDA_TRAFFIC is \"%s\"; it takes seed:rounds\n",
		        text);
		return 2;
	}
	printf("seed %lu, %lu rounds\n", seed, rounds);
	return RUN_TESTS("cuda_traffic", tests);
}
