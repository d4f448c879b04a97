/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A random load over the NCCL transport: ranks are threads, each with a device.
 *
 * A seed is a list of messages, of which some are lists of tensors.  Each rank makes its calls in the order of this list, so that no
 * circle can come of them (docs/transports.md), on random streams, alone or in groups, detached or
 * not; in some programs a thread for the sends of a rank and one for its receives.  Some programs run
 * in checked mode.  Some calls
 * are refused, and the rank goes on.  At the end all bytes are compared, and the communicators
 * destroyed, or aborted in the middle.
 *
 * In the environment: LOAD_SEED, the first one; LOAD_SEEDS, how many; LOAD_MESSAGES, how many
 * messages each has, up to 120.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_world.h"
#include "run_tests.h"

enum { MESSAGES_MAX = 120, MOST = 6000, STREAMS = 3, GROUP = 6, TENSORS = 5 };

struct message {
	int from, to;
	size_t bytes, at; /* of the memory of both */
	unsigned char byte;
	unsigned tensors; /* of a list; 0: it is a plain message */
};

static struct load {
	uint64_t seed;
	int ranks, lanes;
	bool split;  /* a thread for each direction */
	bool aborts; /* in the middle */
	bool check;
	uint32_t requests_max;
	enum baton_progress progress;
	struct message messages[MESSAGES_MAX];
	int n;
	size_t bytes;
	CUdeviceptr out[RANKS_MAX], in[RANKS_MAX];
	CUstream streams[RANKS_MAX][2 * STREAMS];
} l;

static uint64_t
draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void
plan(uint64_t seed)
{
	uint64_t state = seed;

	l.seed = seed;
	l.ranks = 1 + (int)(draw(&state) % RANKS_MAX);
	l.lanes = draw(&state) % 3 ? 0 : 1 + (int)(draw(&state) % 3);
	l.split = l.lanes == 0 && draw(&state) % 3 == 0;
	l.aborts = draw(&state) % 8 == 0;
	l.requests_max = !l.split && draw(&state) % 2 ? 16 : 0;
	l.progress = draw(&state) % 3 ? BATON_PROGRESS_AUTO
	                              : BATON_PROGRESS_CALLS;
	l.check = draw(&state) % 6 == 0;
	nccl->sim_set("slow", draw(&state) % 4 == 0);
	l.bytes = 0;
	for (int i = 0; i < l.n; i++) {
		l.messages[i] = (struct message){
			.from = (int)(draw(&state) % (unsigned)l.ranks),
			.to = (int)(draw(&state) % (unsigned)l.ranks),
			.bytes = draw(&state) % 8 ? draw(&state) % MOST
			                          : 30 * (draw(&state) % MOST),
			.at = l.bytes,
			.byte = (unsigned char)(1 + draw(&state) % 255),
			.tensors = draw(&state) % 3
		                           ? 0
		                           : 1 + (unsigned)(draw(&state) %
		                                            TENSORS),
		};
		l.bytes += l.messages[i].bytes;
	}
}

static void
prepare(void)
{
	for (int rank = 0; rank < l.ranks; rank++) {
		CUcontext popped;

		ck_cuda(cuda->context_push(contexts[rank]));
		ck_cuda(cuda->mem_alloc(&l.out[rank], l.bytes + 1));
		ck_cuda(cuda->mem_alloc(&l.in[rank], l.bytes + 1));
		ck_cuda(cuda->set_bytes(l.in[rank], 0, l.bytes + 1,
		                        streams[rank]));
		for (int i = 0; i < l.n; i++) {
			const struct message *m = &l.messages[i];

			if (m->from == rank && m->bytes > 0)
				ck_cuda(cuda->set_bytes(l.out[rank] + m->at,
				                        m->byte, m->bytes,
				                        streams[rank]));
		}
		ck_cuda(cuda->stream_synchronize(streams[rank]));
		for (int i = 0; i < 2 * STREAMS; i++)
			ck_cuda(cuda->stream_create(
				&l.streams[rank][i],
				BATONI_CU_STREAM_NON_BLOCKING, 0));
		ck_cuda(cuda->context_pop(&popped));
	}
}

static void
check_bytes(const unsigned char *bytes, int i)
{
	const struct message *m = &l.messages[i];
	size_t at = 0;

	while (at < m->bytes && bytes[at] == m->byte)
		at++;
	ck_assert_msg(at == m->bytes, "seed %llu: message %d, byte %zu",
	              (unsigned long long)l.seed, i, at);
}

static void
compare(void)
{
	unsigned char *bytes = malloc(l.bytes + 1);

	for (int rank = 0; rank < l.ranks; rank++) {
		CUcontext popped;

		ck_cuda(cuda->context_push(contexts[rank]));
		ck_cuda(cuda->copy_out(bytes, l.in[rank], l.bytes + 1));
		ck_cuda(cuda->context_pop(&popped));
		for (int i = 0; i < l.n; i++) {
			const struct message *m = &l.messages[i];

			if (m->to == rank)
				check_bytes(bytes + m->at, i);
		}
	}
	free(bytes);
}

static void
clean(void)
{
	for (int rank = 0; rank < l.ranks; rank++) {
		CUcontext popped;

		ck_cuda(cuda->context_push(contexts[rank]));
		for (int i = 0; i < 2 * STREAMS; i++)
			ck_cuda(cuda->stream_destroy(l.streams[rank][i]));
		ck_cuda(cuda->mem_free(l.out[rank]));
		ck_cuda(cuda->mem_free(l.in[rank]));
		ck_cuda(cuda->context_pop(&popped));
	}
}

/* ---- a thread of a rank ---- */

struct worker {
	pthread_t thread;
	int rank;
	unsigned does; /* 1: sends, 2: receives */
	uint64_t state;
	baton_request requests[2 * MESSAGES_MAX];
	int made, ended; /* of these */
	int in_group;
	bool detached;   /* the group */
	bool gone;       /* it was aborted */
};

static void
note(struct worker *w, enum baton_status status)
{
	if (l.aborts &&
	    (status == BATON_ERR_ABORTED || status == BATON_ERR_STALE))
		w->gone = true;
	else
		ck_assert_msg(status == BATON_OK, "seed %llu: rank %d: %s: %s",
		              (unsigned long long)l.seed, w->rank,
		              baton_status_name(status), baton_last_error());
}

/* The oldest one: it waits for no later call of any rank. */
static void
end_one(struct worker *w)
{
	enum baton_status status =
		baton_finish(&w->requests[w->ended++], 50 * SECOND, NULL);

	note(w, status);
}

static void
do_what_is_refused(struct worker *w)
{
	static unsigned char pageable[64];
	struct baton_comm *comm = comms[w->rank];
	CUstream stream = l.streams[w->rank][0];
	void *memory = (void *)(uintptr_t)l.out[w->rank];
	enum baton_status status;

	if (w->in_group || w->gone)
		return;
	switch (draw(&w->state) % 5) {
	case 4:
		status = baton_send_tensors(
			&(struct baton_tensor){pageable, BATON_UINT8, 1, {8}}, 1,
			0, 0, comm, stream, NULL, NULL);
		break;
	case 0:
		status = baton_send(pageable, sizeof(pageable), BATON_UINT8, 0, 0,
		                    comm, stream, NULL, NULL);
		break;
	case 1:
		status = baton_send(memory, 0, BATON_UINT8, l.ranks, 0, comm,
		                    stream, NULL, NULL);
		break;
	case 2:
		status = baton_send(memory, 0, BATON_UINT8, 0, 1, comm, stream,
		                    NULL, NULL);
		break;
	default:
		/* The group is void. */
		if (baton_group_begin(comm) != BATON_OK)
			return;
		(void)baton_send(memory, 1, BATON_UINT8,
		                 (w->rank + 1) % l.ranks, 0, comm, stream, NULL,
		                 NULL);
		(void)baton_recv(pageable, 1, BATON_UINT8, l.ranks, 0, comm,
		                 stream, NULL, NULL);
		status = baton_group_end(comm);
		break;
	}
	ck_assert_int_lt(status, 0);
}

static void
end_group(struct worker *w)
{
	if (!w->in_group)
		return;
	w->in_group = 0;
	note(w, baton_group_end(comms[w->rank]));
}

static void
maybe_begin_group(struct worker *w)
{
	if (w->in_group || w->gone || draw(&w->state) % 4)
		return;
	/* One for the group, one for each member; those of other threads are few. */
	while (l.requests_max && w->made - w->ended > 1)
		end_one(w);
	if (baton_group_begin(comms[w->rank]) != BATON_OK) {
		w->gone = l.aborts;
		ck_assert(w->gone);
		return;
	}
	w->in_group = 1;
	w->detached = draw(&w->state) % 2;
}

static enum baton_status
call_list(const struct worker *w, const struct message *m, bool sends,
          CUstream stream, const struct baton_op_options *op,
          baton_request *request_p)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	CUdeviceptr at = (sends ? l.out : l.in)[w->rank] + m->at;
	struct baton_tensor tensors[TENSORS];

	options.op.flags = op->flags;
	for (size_t i = 0; i < m->tensors; i++) {
		size_t from = m->bytes * i / m->tensors;
		size_t to = m->bytes * (i + 1) / m->tensors;

		tensors[i] = (struct baton_tensor){
			(void *)(uintptr_t)(at + from), BATON_UINT8, 1,
			{(int64_t)(to - from)}};
	}
	return sends ? baton_send_tensors(tensors, m->tensors, m->to, 0,
	                                  comms[w->rank], stream, &options,
	                                  request_p)
	             : baton_recv_tensors(tensors, m->tensors, m->from, 0,
	                                  comms[w->rank], stream, &options,
	                                  request_p);
}

static enum baton_status
call_message(struct worker *w, const struct message *m, bool sends, bool detached)
{
	const struct baton_op_options options = {
		.size = sizeof(options),
		.flags = detached ? BATON_OP_DETACHED : 0};
	unsigned first = w->does == 2 ? STREAMS : 0;
	unsigned count = w->does == 3 ? 2 * STREAMS : STREAMS;
	CUstream stream =
		l.streams[w->rank][first + draw(&w->state) % count];
	baton_request *request_p = &w->requests[w->made];

	if (m->tensors > 0)
		return call_list(w, m, sends, stream, &options, request_p);
	return sends ? baton_send((void *)(uintptr_t)(l.out[w->rank] + m->at),
	                          m->bytes, BATON_UINT8, m->to, 0,
	                          comms[w->rank], stream, &options, request_p)
	             : baton_recv((void *)(uintptr_t)(l.in[w->rank] + m->at),
	                          m->bytes, BATON_UINT8, m->from, 0,
	                          comms[w->rank], stream, &options, request_p);
}

/* last: the first end of a message to itself waits for the second. */
static void
do_end(struct worker *w, const struct message *m, bool sends, bool last)
{
	bool detached = w->in_group ? w->detached
	                            : draw(&w->state) % 2 ||
	                                      (m->from == m->to && !last);
	enum baton_status status;

	if (w->gone)
		return;
	status = call_message(w, m, sends, detached);
	while (status == BATON_ERR_AGAIN && !w->in_group &&
	       w->ended < w->made) {
		end_one(w);
		status = w->gone ? BATON_ERR_ABORTED
		                 : call_message(w, m, sends, detached);
	}
	note(w, status);
	if (status == BATON_OK)
		w->made++;
	if (w->in_group && ++w->in_group > GROUP)
		end_group(w);
}

static void *
work(void *argument)
{
	struct worker *w = argument;

	for (int i = 0; i < l.n && !w->gone; i++) {
		const struct message *m = &l.messages[i];
		bool sends = m->from == w->rank && (w->does & 1);
		bool recvs = m->to == w->rank && (w->does & 2);
		bool first = draw(&w->state) % 2;

		if (!sends && !recvs)
			continue;
		maybe_begin_group(w);
		/* The ends of one message to itself are in one group, or in none. */
		if (sends && recvs && w->in_group == GROUP)
			end_group(w);
		if (sends && recvs && !w->in_group && l.requests_max)
			while (w->ended < w->made)
				end_one(w);
		if (sends && recvs && !first) {
			do_end(w, m, false, false);
			do_end(w, m, true, true);
			continue;
		}
		if (sends)
			do_end(w, m, true, !recvs);
		if (recvs)
			do_end(w, m, false, true);
		if (draw(&w->state) % 8 == 0)
			end_group(w);
		if (draw(&w->state) % 16 == 0)
			do_what_is_refused(w);
		if (l.aborts && w->rank == 0 && i > l.n / 2)
			for (int rank = 0; rank < l.ranks; rank++)
				baton_comm_abort(comms[rank]);
	}
	end_group(w);
	while (w->ended < w->made)
		end_one(w);
	return NULL;
}

/* ---- a program ---- */

static void
run_workers(void)
{
	static struct worker workers[2 * RANKS_MAX];
	int n = l.split ? 2 * l.ranks : l.ranks;

	for (int i = 0; i < n; i++) {
		workers[i] = (struct worker){
			.rank = i % l.ranks,
			.does = l.split ? 1u + (unsigned)(i / l.ranks) : 3,
			.state = l.seed * 1000 + (unsigned)i,
		};
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	for (int i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
}

static void
run_load(uint64_t seed)
{
	struct baton_comm_options options[RANKS_MAX];

	plan(seed);
	prepare();
	for (int i = 0; i < l.ranks; i++) {
		options[i] = nccl_options();
		options[i].nccl_lanes = l.lanes;
		options[i].nccl_lists = true;
		options[i].requests_max = l.requests_max;
		options[i].progress = l.progress;
		options[i].check = l.check;
	}
	create_with(l.ranks, options);
	for (int i = 0; i < l.ranks; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	run_workers();
	if (!l.aborts)
		compare();
	destroy_some(l.ranks);
	clean();
}

static uint64_t
from_environment(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value ? strtoull(value, NULL, 10) : otherwise;
}

START_TEST(random_loads_arrive)
{
	uint64_t first = from_environment("LOAD_SEED", 1);
	uint64_t seeds = from_environment("LOAD_SEEDS", 12);

	l.n = (int)from_environment("LOAD_MESSAGES", 24);
	ck_assert_int_le(l.n, MESSAGES_MAX);
	load();
	for (uint64_t seed = first; seed < first + seeds; seed++)
		run_load(seed);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {random_loads_arrive};

	return RUN_TESTS("nccl_load", tests);
}
