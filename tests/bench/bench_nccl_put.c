/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts between two GPUs, beside NCCL's own one-sided calls (2.29.2 and later).
 *
 * nccl_put_latency: half a round trip of a put and the wait for its signal, from stream to
 * stream: the host calls for BENCH_PUTS_ROUNDS of them and waits for the last.
 * nccl_put_bandwidth: COUNT puts one behind the other, a wait of the target's stream for all their
 * signals, and one signal back; us a put.
 *
 * NCCL's puts go from its own window into the peer's; Baton's by the path that the line above
 * the rows names.  Where both ranks are on one GPU there is nothing to compare: NCCL's would
 * go over sockets.
 */
#include "bench_nccl.h"
#include "bench_puts.h"

#define COUNT 8
#define COLLECTIVE_SYMMETRIC 1 /* NCCL_WIN_COLL_SYMMETRIC */

static struct {
	struct baton_window *window;
	void *memory; /* of the raw window: the first half is put into */
	ncclWindow_t raw;
} ours;

/* ---- NCCL ------------------------------------------------------------------- */

static void
raw_put(const struct task *t)
{
	const char *source = (const char *)ours.memory + COUNT * t->bytes;

	NCCL(put_signal(source, t->bytes, BATONI_NCCL_UINT8, t->pair->peer,
	                ours.raw, 0, 0, 0, 0, t->pair->raw, t->stream));
}

static void
raw_wait(const struct task *t, int count)
{
	ncclWaitSignalDesc_t desc = {.opCnt = count, .peer = t->pair->peer};

	NCCL(wait_signal(1, &desc, t->pair->raw, t->stream));
}

static void
raw_pingpong(const struct bench *b, const struct task *t)
{
	for (int k = 0; k < BENCH_PUTS_ROUNDS; k++) {
		if (b->rank != 0)
			raw_wait(t, 1);
		raw_put(t);
		if (b->rank == 0)
			raw_wait(t, 1);
	}
}

static double
raw_latency(struct bench *b, void *arg, int rounds)
{
	return bench_nccl_raw(b, arg, rounds, 2 * BENCH_PUTS_ROUNDS,
	                      raw_pingpong);
}

static void
raw_puts(const struct bench *b, const struct task *t)
{
	for (int k = 0; k < COUNT && b->rank == 0; k++)
		raw_put(t);
	raw_wait(t, b->rank == 0 ? 1 : COUNT);
	if (b->rank != 0)
		NCCL(signal(t->pair->peer, 0, 0, 0, t->pair->raw, t->stream));
}

static double
raw_row(struct bench *b, void *arg, int rounds)
{
	return bench_nccl_raw(b, arg, rounds, COUNT, raw_puts);
}

/* ---- Baton ------------------------------------------------------------------ */

/* All into one place, as the raw ones. */
static struct bench_puts
baton_puts(const struct bench *b, const struct task *t)
{
	return (struct bench_puts){.comm = t->pair->comm, .stream = t->stream,
	                           .rank = b->rank, .peer = t->pair->peer,
	                           .source = t->out, .window = ours.window,
	                           .bytes = t->bytes};
}

static double
baton_latency(struct bench *b, void *arg, int rounds)
{
	const struct bench_puts puts = baton_puts(b, arg);
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++)
		bench_puts_pingpong(&puts);
	return bench_nccl_us(start, 2 * rounds * BENCH_PUTS_ROUNDS);
}

static double
baton_row(struct bench *b, void *arg, int rounds)
{
	const struct bench_puts puts = baton_puts(b, arg);
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++)
		bench_puts_row(&puts, COUNT);
	return bench_nccl_us(start, rounds * COUNT);
}

/* ---- rows ------------------------------------------------------------------- */

static const struct row rows[] = {
	{"nccl_put_latency", "us", 8, 0, false, raw_latency, baton_latency},
	{"nccl_put_latency", "us", 65536, 0, false, raw_latency, baton_latency},
	{"nccl_put_bandwidth", "us", 65536, 0, false, raw_row, baton_row},
	{"nccl_put_bandwidth", "us", 1 << 20, 0, false, raw_row, baton_row},
	{"nccl_put_bandwidth", "us", 16 << 20, 0, false, raw_row, baton_row},
};

/* NULL: the raw window is there.  Else why not; both ranks get the same. */
static const char *
raw_open(struct bench *b, const struct pair *both, size_t bytes)
{
	int well, all = 0;

	BATON(baton_comm_lock_device(both->comm));
	well = bench_nccl->mem_alloc(&ours.memory, bytes) == BATONI_NCCL_SUCCESS;
	bench_must(well);
	well = bench_nccl->window_register(both->raw, ours.memory, bytes,
	                                   &ours.raw, COLLECTIVE_SYMMETRIC) ==
	               BATONI_NCCL_SUCCESS &&
	       ours.raw != NULL;
	BATON(baton_comm_unlock_device(both->comm));
	bench_must(MPI_Allreduce(&well, &all, 1, MPI_INT, MPI_MIN, b->raw) ==
	           MPI_SUCCESS);
	return all ? NULL : "NCCL gives no window here";
}

static void
raw_close(const struct pair *both)
{
	BATON(baton_comm_lock_device(both->comm));
	if (ours.raw)
		NCCL(window_deregister(both->raw, ours.raw));
	NCCL(mem_free(ours.memory));
	BATON(baton_comm_unlock_device(both->comm));
}

static const char *
why_not(struct bench *b)
{
	bool shared;

	bench_gpu_enter();
	shared = bench_gpu_is_shared(b);
	bench_gpu_leave();
	if (shared)
		return "both ranks are on one GPU";
	return bench_nccl->put_signal && bench_nccl->wait_signal
	               ? NULL
	               : "NCCL is older than 2.29.2";
}

static void
measure(struct bench *b, struct task *t, const struct pair *both, size_t bytes)
{
	void *memory;

	BATON(baton_mem_alloc(both->comm, bytes, &memory));
	BATON(baton_window_register(memory, bytes, both->comm, &ours.window));
	if (b->rank == 0)
		printf("nccl_put: Baton's puts go %s\n",
		       bench_path_name(baton_window_path(ours.window,
		                                         both->peer)));
	bench_nccl_measure(b, t, both, rows, sizeof(rows) / sizeof(rows[0]));
	BATON(baton_window_deregister(ours.window));
	BATON(baton_mem_free(both->comm, memory));
}

void
bench_nccl_put(struct bench *b, struct task *t, const struct pair *both)
{
	const size_t bytes = 2 * COUNT *
	                     (bench_gpu.simulated ? UINT64_C(1) << 16
	                                          : UINT64_C(16) << 20);
	const char *why;

	if (!bench_wants(b, "nccl_put_latency") &&
	    !bench_wants(b, "nccl_put_bandwidth"))
		return;
	why = why_not(b);
	if (!why) {
		bench_gpu_enter();
		why = raw_open(b, both, bytes);
		bench_gpu_leave();
		if (!why)
			measure(b, t, both, bytes);
		bench_gpu_enter();
		raw_close(both);
		bench_gpu_leave();
	}
	if (why && b->rank == 0)
		printf("nccl_put: left out: %s\n", why);
}
