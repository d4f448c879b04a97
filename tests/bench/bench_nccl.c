/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL transport beside ncclSend and ncclRecv, on one GPU, in the same seconds: two
 * processes, which may share the GPU.  All sides use one stream of the program, which waits
 * for each operation.
 *
 * Of rank 0 alone, in communicators that have no other rank; a message to oneself is a group
 * of a send and a receive:
 * nccl_self: from the call until the host knows the end: by the requests, against an event
 * behind the group for which it asks again and again.
 * nccl_self_stream: 16 such groups, until the stream is done; us a group.
 * nccl_call_self: the host's time for the calls of a group, in batches of 64, drained outside
 * the clock.
 * nccl_thread_self: what such a group costs in a non-blocking communicator of raw NCCL, until that
 * says that it is on its stream, against a blocking one: the cost of NCCL's thread, which is
 * part of nccl_call_self.
 *
 * Between the ranks:
 * nccl_call_send, nccl_call_recv: the host's time for one call of 8 bytes, as above.
 * nccl_latency: half a round trip, the host waiting.
 * nccl_bandwidth: one-way windows of 8 messages; us a message.
 * nccl_put_latency, nccl_put_bandwidth: bench_nccl_put.c.
 *
 * The bar is 2 % and 1 us over NCCL, for what one rank measures.  Two ranks that share a GPU
 * share its time too: latency and bandwidth between them have no bar.
 *
 * NCCL takes one thread at a time for a GPU, so the raw side has Baton's lock of it, for a
 * block at a time: nothing of Baton's is pending then.
 *
 * Over the simulators the figures mean nothing: they are not printed, and sizes are small.  What is
 * printed are counts: the calls and the threads of NCCL for a group.
 */
#include <stddef.h>
#include <stdlib.h>

#include "baton_mpi.h"
#include "bench_nccl.h"

#define ROW 16 /* groups until the stream is waited for */
#define WINDOW 8
#define LARGEST (UINT64_C(64) << 20)
#define LARGEST_SIM (UINT64_C(1) << 16)

const struct ncclsim *bench_nccl;

void
bench_nccl_begin(const struct task *t)
{
	bench_gpu_enter();
	BATON(baton_comm_lock_device(t->pair->comm));
}

void
bench_nccl_end(const struct task *t)
{
	BATON(baton_comm_unlock_device(t->pair->comm));
	bench_gpu_leave();
}

static void
raw_send(const struct task *t)
{
	NCCL(send(t->out, t->bytes, BATONI_NCCL_UINT8, t->pair->peer,
	          t->pair->raw, t->stream));
}

static void
raw_recv(const struct task *t)
{
	NCCL(recv(t->in, t->bytes, BATONI_NCCL_UINT8, t->pair->peer,
	          t->pair->raw, t->stream));
}

static void
raw_group(const struct task *t)
{
	NCCL(group_start());
	raw_send(t);
	raw_recv(t);
	NCCL(group_end());
}

/* Until it is on its stream. */
static void
raw_await(ncclComm_t comm)
{
	ncclResult_t state = BATONI_NCCL_IN_PROGRESS;

	while (state == BATONI_NCCL_IN_PROGRESS)
		NCCL(comm_error(comm, &state));
	bench_must(state == BATONI_NCCL_SUCCESS);
}

static void
raw_group_in_thread(const struct task *t)
{
	ncclComm_t comm = t->pair->in_thread;
	ncclResult_t result;

	NCCL(group_start());
	NCCL(send(t->out, t->bytes, BATONI_NCCL_UINT8, 0, comm, t->stream));
	NCCL(recv(t->in, t->bytes, BATONI_NCCL_UINT8, 0, comm, t->stream));
	result = bench_nccl->group_end();
	bench_must(result == BATONI_NCCL_SUCCESS ||
	           result == BATONI_NCCL_IN_PROGRESS);
	raw_await(comm);
}

static void
enqueue_baton(const struct task *t, bool send, baton_request *request_p)
{
	const struct pair *pair = t->pair;

	if (send)
		BATON(baton_send(t->out, t->bytes, BATON_UINT8, pair->peer, 0,
		                 pair->comm, t->stream, NULL, request_p));
	else
		BATON(baton_recv(t->in, t->bytes, BATON_UINT8, pair->peer, 0,
		                 pair->comm, t->stream, NULL, request_p));
}

static void
baton_group(const struct task *t, baton_request requests[2])
{
	BATON(baton_group_begin(t->pair->comm));
	enqueue_baton(t, true, requests ? &requests[0] : NULL);
	enqueue_baton(t, false, requests ? &requests[1] : NULL);
	BATON(baton_group_end(t->pair->comm));
}

static void
drain(baton_request *requests, size_t count)
{
	for (size_t i = 0; i < count; i++)
		BATON(baton_finish(&requests[i], -1, NULL));
}

double
bench_nccl_us(uint64_t start, int rounds)
{
	return (double)(bench_now() - start) / (1e3 * rounds);
}

double
bench_nccl_raw(const struct bench *b, const struct task *t, int rounds, int n,
               void (*calls)(const struct bench *b, const struct task *t))
{
	uint64_t start;
	double us;

	bench_nccl_begin(t);
	start = bench_now();
	for (int i = 0; i < rounds; i++) {
		calls(b, t);
		CUDA(stream_synchronize(t->stream));
	}
	us = bench_nccl_us(start, rounds * n);
	bench_nccl_end(t);
	return us;
}

/* ---- to oneself ------------------------------------------------------------- */

static double
raw_self(struct bench *b, void *arg, int rounds)
{
	const struct task *t = arg;
	uint64_t start;
	double us;

	if (b->rank != 0)
		return 0;
	bench_nccl_begin(t);
	start = bench_now();
	for (int i = 0; i < rounds; i++) {
		raw_group(t);
		CUDA(event_record(t->event, t->stream));
		while (bench_gpu.cuda->event_query(t->event) ==
		       BATONI_CU_NOT_READY)
			;
	}
	us = bench_nccl_us(start, rounds);
	bench_nccl_end(t);
	return us;
}

static double
baton_self(struct bench *b, void *arg, int rounds)
{
	const struct task *t = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds && b->rank == 0; i++) {
		baton_request requests[2];

		baton_group(t, requests);
		drain(requests, 2);
	}
	return bench_nccl_us(start, rounds);
}

static void
raw_groups(const struct bench *b, const struct task *t)
{
	(void)b;
	for (int k = 0; k < ROW; k++)
		raw_group(t);
}

static double
raw_self_stream(struct bench *b, void *arg, int rounds)
{
	return b->rank == 0 ? bench_nccl_raw(b, arg, rounds, ROW, raw_groups) : 0;
}

static double
baton_self_stream(struct bench *b, void *arg, int rounds)
{
	const struct task *t = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds && b->rank == 0; i++) {
		for (int k = 0; k < ROW; k++)
			baton_group(t, NULL);
		BATON(baton_stream_synchronize(t->pair->comm, t->stream));
	}
	return bench_nccl_us(start, rounds * ROW);
}

/* Batches of calls, without what they start. */
static double
raw_calls(struct bench *b, const struct task *t, int rounds,
          void (*call)(const struct task *t))
{
	uint64_t spent = 0;

	for (int i = 0; i < rounds; i++) {
		uint64_t start;

		bench_nccl_begin(t);
		start = bench_now();
		for (int k = 0; k < BENCH_WINDOW; k++)
			call(t);
		spent += bench_now() - start;
		bench_nccl_end(t);
		bench_gpu_enter();
		CUDA(stream_synchronize(t->stream));
		bench_gpu_leave();
		if (t->pair->peer != b->rank)
			bench_meet(b);
	}
	return (double)spent / ((double)rounds * BENCH_WINDOW);
}

static double
raw_call_self(struct bench *b, void *arg, int rounds)
{
	return b->rank == 0 ? raw_calls(b, arg, rounds, raw_group) : 0;
}

static double
raw_thread_self(struct bench *b, void *arg, int rounds)
{
	return b->rank == 0 ? raw_calls(b, arg, rounds, raw_group_in_thread) : 0;
}

static double
baton_call_self(struct bench *b, void *arg, int rounds)
{
	const struct task *t = arg;
	baton_request requests[2 * BENCH_WINDOW];
	uint64_t spent = 0;

	for (int i = 0; i < rounds && b->rank == 0; i++) {
		uint64_t start = bench_now();

		for (int k = 0; k < BENCH_WINDOW; k++)
			baton_group(t, &requests[2 * k]);
		spent += bench_now() - start;
		drain(requests, 2 * BENCH_WINDOW);
	}
	return (double)spent / ((double)rounds * BENCH_WINDOW);
}

/* ---- between the ranks ------------------------------------------------------ */

static bool
sends(const struct bench *b, const struct task *t)
{
	return (b->rank == 0) == t->send;
}

static double
raw_call(struct bench *b, void *arg, int rounds)
{
	return raw_calls(b, arg, rounds, sends(b, arg) ? raw_send : raw_recv);
}

static double
baton_call(struct bench *b, void *arg, int rounds)
{
	const struct task *t = arg;
	baton_request requests[BENCH_WINDOW];
	uint64_t spent = 0;

	for (int i = 0; i < rounds; i++) {
		uint64_t start = bench_now();

		for (int k = 0; k < BENCH_WINDOW; k++)
			enqueue_baton(t, sends(b, t), &requests[k]);
		spent += bench_now() - start;
		drain(requests, BENCH_WINDOW);
		bench_meet(b);
	}
	return (double)spent / ((double)rounds * BENCH_WINDOW);
}

static void
raw_there_and_back(const struct bench *b, const struct task *t)
{
	(b->rank == 0 ? raw_send : raw_recv)(t);
	(b->rank == 0 ? raw_recv : raw_send)(t);
}

static double
raw_latency(struct bench *b, void *arg, int rounds)
{
	return bench_nccl_raw(b, arg, rounds, 2, raw_there_and_back);
}

static double
baton_latency(struct bench *b, void *arg, int rounds)
{
	const struct task *t = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		baton_request requests[2];

		enqueue_baton(t, b->rank == 0, &requests[0]);
		enqueue_baton(t, b->rank != 0, &requests[1]);
		drain(requests, 2);
	}
	return bench_nccl_us(start, 2 * rounds);
}

static void
raw_one_way(const struct bench *b, const struct task *t)
{
	for (int k = 0; k < WINDOW; k++)
		(b->rank == 0 ? raw_send : raw_recv)(t);
}

static double
raw_window(struct bench *b, void *arg, int rounds)
{
	return bench_nccl_raw(b, arg, rounds, WINDOW, raw_one_way);
}

static double
baton_window(struct bench *b, void *arg, int rounds)
{
	const struct task *t = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		baton_request requests[WINDOW];

		for (int k = 0; k < WINDOW; k++)
			enqueue_baton(t, b->rank == 0, &requests[k]);
		drain(requests, WINDOW);
	}
	return bench_nccl_us(start, rounds * WINDOW);
}

/* ---- rows ------------------------------------------------------------------- */

static void
measure(struct bench *b, struct task *t, const struct pair *pair,
        const struct row *row)
{
	const struct bench_side sides[] = {{row->raw, t}, {row->baton, t}};
	/* Over the simulators one round of each. */
	const struct bench_plan plan = {
		.blocks = bench_gpu.simulated ? 1 : b->quick ? 5 : 40,
		.block_ns = bench_gpu.simulated ? 1 : 5000000};
	struct bench_stat stats[2];
	struct bench_row out = {.bench = row->bench, .bytes = row->bytes,
	                        .unit = row->unit, .baseline = "raw NCCL"};

	t->pair = pair;
	t->bytes = row->bytes;
	t->send = row->send;
	bench_compare(b, sides, 2, &plan, stats);
	out.base = stats[0];
	out.value = stats[1];
	if (row->over > 0) {
		out.kind = BENCH_EXCESS_MAX;
		out.bar = 0.02 * stats[0].median + row->over;
	}
	bench_gpu_report(b, &out);
}

void
bench_nccl_measure(struct bench *b, struct task *t, const struct pair *pair,
                   const struct row *rows, size_t count)
{
	const size_t largest = bench_gpu.simulated ? LARGEST_SIM : LARGEST;

	for (size_t i = 0; i < count; i++)
		if (rows[i].bytes <= largest && bench_wants(b, rows[i].bench))
			measure(b, t, pair, &rows[i]);
}

/* Of a group of Baton's, over the simulators: its calls of NCCL, but for the questions whether it
 * is on its stream. */
static void
count_calls(const struct bench *b, const struct task *t)
{
	static const char *const names[] = {"thread",   "ncclGroupStart",
	                                    "ncclSend", "ncclRecv",
	                                    "ncclGroupEnd"};
	enum { NAMES = sizeof(names) / sizeof(names[0]) };
	baton_request requests[2];
	long counts[NAMES], calls = 0;

	if (!bench_gpu.simulated || b->rank != 0)
		return;
	for (int i = 0; i < NAMES; i++)
		counts[i] = bench_nccl->sim_uses(names[i]);
	baton_group(t, requests);
	drain(requests, 2);
	for (int i = 0; i < NAMES; i++)
		counts[i] = bench_nccl->sim_uses(names[i]) - counts[i];
	for (int i = 1; i < NAMES; i++)
		calls += counts[i];
	printf("of nccl_call_self: %ld calls and %ld thread of NCCL\n", calls,
	       counts[0]);
}

static void
measure_self(struct bench *b, struct task *t, const struct pair *self)
{
	static const struct row rows[] = {
		{"nccl_call_self", "ns", 8, 1e3, false, raw_call_self,
		 baton_call_self},
		{"nccl_thread_self", "ns", 8, 0, false, raw_call_self,
		 raw_thread_self},
		{"nccl_self", "us", 8, 1, false, raw_self, baton_self},
		{"nccl_self", "us", 65536, 1, false, raw_self, baton_self},
		{"nccl_self", "us", 1 << 20, 1, false, raw_self, baton_self},
		{"nccl_self", "us", 64 << 20, 1, false, raw_self, baton_self},
		{"nccl_self_stream", "us", 8, 1, false, raw_self_stream,
		 baton_self_stream},
		{"nccl_self_stream", "us", 1 << 20, 1, false, raw_self_stream,
		 baton_self_stream},
		{"nccl_self_stream", "us", 64 << 20, 1, false, raw_self_stream,
		 baton_self_stream},
	};

	bench_nccl_measure(b, t, self, rows, sizeof(rows) / sizeof(rows[0]));
	count_calls(b, t);
}

static void
measure_pair(struct bench *b, struct task *t, const struct pair *both)
{
	static const struct row rows[] = {
		{"nccl_call_send", "ns", 8, 1e3, true, raw_call, baton_call},
		{"nccl_call_recv", "ns", 8, 1e3, false, raw_call, baton_call},
		{"nccl_latency", "us", 8, 0, false, raw_latency, baton_latency},
		{"nccl_latency", "us", 65536, 0, false, raw_latency,
		 baton_latency},
		{"nccl_bandwidth", "us", 1 << 20, 0, false, raw_window,
		 baton_window},
		{"nccl_bandwidth", "us", 64 << 20, 0, false, raw_window,
		 baton_window},
	};

	bench_nccl_measure(b, t, both, rows, sizeof(rows) / sizeof(rows[0]));
}

/* ---- opening ---------------------------------------------------------------- */

static enum baton_status
baton_open(MPI_Comm parent, struct pair *pair)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.transport = BATON_TRANSPORT_NCCL;
	options.timeout_ns = INT64_C(60000000000);
	return baton_comm_create_mpi(parent, &options, &pair->comm);
}

/* Behind baton_open, whose lock it takes.  It connects at its first use. */
static void
raw_open(MPI_Comm parent, struct pair *pair)
{
	ncclUniqueId id;
	int rank, size;

	MPI_Comm_rank(parent, &rank);
	MPI_Comm_size(parent, &size);
	pair->peer = size - 1 - rank;
	bench_gpu_enter();
	BATON(baton_comm_lock_device(pair->comm));
	if (rank == 0)
		NCCL(get_unique_id(&id));
	MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, parent);
	NCCL(comm_init(&pair->raw, size, id, rank, NULL));
	BATON(baton_comm_unlock_device(pair->comm));
	bench_gpu_leave();
}

/* One more for this rank alone, whose groups NCCL launches in threads.  Behind raw_open. */
static void
raw_open_in_thread(struct pair *self)
{
	struct batoni_nccl_config config = {
		.size = offsetof(struct batoni_nccl_config, graphUsageMode),
		.magic = BATONI_NCCL_CONFIG_MAGIC,
		.version = 22800,
#define UNSET(type, member, unset) .member = (unset),
		BATONI_NCCL_CONFIG_2_28(UNSET)
#undef UNSET
	};
	ncclResult_t result;
	ncclUniqueId id;

	config.blocking = 0;
	bench_gpu_enter();
	BATON(baton_comm_lock_device(self->comm));
	NCCL(get_unique_id(&id));
	result = bench_nccl->comm_init(&self->in_thread, 1, id, 0, &config);
	bench_must(result == BATONI_NCCL_SUCCESS ||
	           result == BATONI_NCCL_IN_PROGRESS);
	raw_await(self->in_thread);
	BATON(baton_comm_unlock_device(self->comm));
	bench_gpu_leave();
}

/* Without the lock: nothing of Baton's is pending. */
static void
pair_close(struct pair *pair)
{
	BATON(baton_comm_destroy(pair->comm));
	bench_gpu_enter();
	NCCL(comm_destroy(pair->raw));
	NCCL(comm_destroy(pair->in_thread));
	bench_gpu_leave();
}

static void
task_open(struct task *t, struct baton_comm *comm)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	const size_t largest = bench_gpu.simulated ? LARGEST_SIM : LARGEST;

	BATON(baton_comm_query(comm, &info));
	bench_gpu_open(info.cuda_device);
	t->stream = bench_gpu.copies;
	t->out = bench_gpu_alloc(largest);
	t->in = bench_gpu_alloc(largest);
	bench_gpu_enter();
	CUDA(event_create(&t->event, BATONI_CU_EVENT_DISABLE_TIMING));
	bench_gpu_leave();
}

int
main(int argc, char **argv)
{
	struct pair self = {.peer = 0}, both = {.peer = 0};
	struct task t = {.bytes = 0};
	struct bench b;

	bench_init(&b, &argc, &argv);
	bench_gpu_load();
	bench_nccl = ncclsim_load(NULL);
	bench_must(bench_nccl != NULL);
	if (baton_open(MPI_COMM_SELF, &self) != BATON_OK) {
		printf("no NCCL here: %s\n", baton_last_error());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	task_open(&t, self.comm);
	raw_open(MPI_COMM_SELF, &self);
	raw_open_in_thread(&self);
	measure_self(&b, &t, &self);
	if (baton_open(b.raw, &both) == BATON_OK) {
		raw_open(b.raw, &both);
		measure_pair(&b, &t, &both);
		bench_nccl_put(&b, &t, &both);
		pair_close(&both);
	} else if (b.rank == 0) {
		printf("between two ranks: left out: %s\n", baton_last_error());
	}
	pair_close(&self);
	return bench_fini(&b);
}
