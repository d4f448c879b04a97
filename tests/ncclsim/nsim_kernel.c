/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels: the operations of one group on one communicator, moved side by side.
 *
 * Each message goes through the ring of its pair as its length and its bytes.  A receive
 * that finds another length than its own leaves it there: both sides hang, as with NCCL.
 * A send ends when the target has read its last byte; with `eager`, when it is in the ring.
 *
 * One-sided operations of a group are a kernel of their own, before the other.  A put ends
 * when it is in its ring.  A wait does not end with an abort: only its signals end it.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nsim.h"

/* One kernel of so many is late, if delays are asked for. */
enum { KERNEL_ODDS = 4, CHUNK = 16384 };

struct move {
	enum nsim_op_kind kind;
	bool done;
	bool told; /* that the lengths differ */
	int before; /* the earlier one of the same link and kind; -1: none */
	int peer;
	struct nsim_link *link;
	uint64_t bytes, moved; /* the head is part of `moved` */
	uint64_t end;          /* of a send: where its last byte is in the ring */
	struct nsim_put put;
	int signal;
	uint64_t count;
};

struct kernel {
	ncclComm_t comm;
	uint64_t number; /* of the communicator's */
	bool begun, ended, waits;
	uint64_t told_ns; /* when it found that it is to end; 0: not yet */
	ncclResult_t result; /* not SUCCESS: it never ends */
	struct move *moves;
	struct cudasim_buffer *buffers; /* one for each move */
	struct nsim_share share;
	size_t n;
};

/* ---- the ring ---- */

void
nsim_ring_put(unsigned char *ring, size_t size, uint64_t at, const void *from,
              size_t n)
{
	size_t first = at % size, part = size - first;

	part = n < part ? n : part;
	memcpy(ring + first, from, part);
	memcpy(ring, (const unsigned char *)from + part, n - part);
}

void
nsim_ring_get(const unsigned char *ring, size_t size, uint64_t at, void *to,
              size_t n)
{
	size_t first = at % size, part = size - first;

	part = n < part ? n : part;
	memcpy(to, ring + first, part);
	memcpy((unsigned char *)to + part, ring, n - part);
}

static void
put_bytes(struct nsim_link *link, uint64_t at, const void *from, size_t n)
{
	nsim_ring_put(link->ring, NSIM_RING, at, from, n);
}

static void
get_bytes(const struct nsim_link *link, uint64_t at, void *to, size_t n)
{
	nsim_ring_get(link->ring, NSIM_RING, at, to, n);
}

static size_t
least(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t ab = a < b ? a : b;

	return (size_t)(ab < c ? ab : c);
}

/* true: it got further. */
static bool
send_part(struct move *move, const unsigned char *from)
{
	struct nsim_link *link = move->link;
	uint64_t read = atomic_load_explicit(&link->read, memory_order_acquire);
	uint64_t at = atomic_load_explicit(&link->written,
	                                   memory_order_relaxed);
	uint64_t room = NSIM_RING - (at - read), before = at;
	size_t n;

	if (move->moved == 0 && room >= NSIM_HEAD) {
		put_bytes(link, at, &move->bytes, NSIM_HEAD);
		move->moved = NSIM_HEAD;
		at += NSIM_HEAD;
		room -= NSIM_HEAD;
	}
	if (move->moved >= NSIM_HEAD) {
		uint64_t done = move->moved - NSIM_HEAD;

		n = least(room, move->bytes - done, CHUNK);
		if (n > 0)
			put_bytes(link, at, from + done, n);
		move->moved += n;
		at += n;
		move->end = at;
	}
	if (at != before)
		atomic_store_explicit(&link->written, at, memory_order_release);
	if (move->moved == NSIM_HEAD + move->bytes)
		move->done = nsim_set.eager || read >= move->end;
	return at != before || move->done;
}

/* Is the length that comes the one that is asked for?  Only told once. */
static bool
takes_head(const struct kernel *kernel, struct move *move, uint64_t at)
{
	uint64_t bytes;

	get_bytes(move->link, at, &bytes, NSIM_HEAD);
	if (bytes == move->bytes)
		return true;
	if (!move->told)
		nsim_violation("rank %d receives %llu bytes where rank %d sends "
		               "%llu: both hang",
		               kernel->comm->rank,
		               (unsigned long long)move->bytes, move->peer,
		               (unsigned long long)bytes);
	move->told = true;
	return false;
}

static bool
recv_part(const struct kernel *kernel, struct move *move, unsigned char *to)
{
	struct nsim_link *link = move->link;
	uint64_t written = atomic_load_explicit(&link->written,
	                                        memory_order_acquire);
	uint64_t at = atomic_load_explicit(&link->read, memory_order_relaxed);
	uint64_t before = at;
	size_t n;

	if (move->moved == 0 && written - at >= NSIM_HEAD &&
	    takes_head(kernel, move, at)) {
		move->moved = NSIM_HEAD;
		at += NSIM_HEAD;
	}
	if (move->moved >= NSIM_HEAD) {
		uint64_t done = move->moved - NSIM_HEAD;

		n = least(written - at, move->bytes - done, CHUNK);
		if (n > 0)
			get_bytes(link, at, to + done, n);
		move->moved += n;
		at += n;
		move->done = move->moved == NSIM_HEAD + move->bytes;
	}
	if (at != before)
		atomic_store_explicit(&link->read, at, memory_order_release);
	return at != before;
}

/* ---- one-sided ---- */

static bool
put_part(struct move *move, const unsigned char *from)
{
	struct nsim_link *link = move->link;
	uint64_t read = atomic_load_explicit(&link->put_read,
	                                     memory_order_acquire);
	uint64_t at = atomic_load_explicit(&link->put_written,
	                                   memory_order_relaxed);
	uint64_t room = NSIM_PUTS - (at - read), before = at;
	const size_t head = sizeof(move->put);
	size_t n;

	if (move->moved == 0 && room >= head) {
		nsim_ring_put(link->puts, NSIM_PUTS, at, &move->put, head);
		move->moved = head;
		at += head;
		room -= head;
	}
	if (move->moved >= head) {
		n = least(room, move->bytes - (move->moved - head), CHUNK);
		if (n > 0)
			nsim_ring_put(link->puts, NSIM_PUTS, at,
			              from + (move->moved - head), n);
		move->moved += n;
		at += n;
		move->done = move->moved == head + move->bytes;
	}
	if (at != before)
		atomic_store_explicit(&link->put_written, at,
		                      memory_order_release);
	return at != before;
}

static bool
look_for_signals(struct move *move)
{
	move->done = atomic_load_explicit(&move->link->signals[move->signal],
	                                  memory_order_acquire) >= move->count;
	return move->done;
}

/* ---- in the stream ---- */

static bool
move_one(const struct kernel *kernel, struct move *move, unsigned char *reach)
{
	switch (move->kind) {
	case NSIM_SEND:
		return send_part(move, reach);
	case NSIM_RECV:
		return recv_part(kernel, move, reach);
	case NSIM_PUT:
		return put_part(move, reach);
	case NSIM_WAIT:
		return look_for_signals(move);
	}
	return false;
}

static enum cudasim_step
end_kernel(struct kernel *kernel)
{
	kernel->ended = true;
	if (kernel->begun)
		atomic_fetch_sub(&kernel->comm->running, 1);
	nsim_gpu_end(&kernel->share);
	atomic_store(&kernel->comm->ended, kernel->number);
	return CUDASIM_ENDED;
}

static enum cudasim_step
move_all(struct kernel *kernel)
{
	bool moved = false, all = true;

	for (size_t i = 0; i < kernel->n; i++) {
		struct move *move = &kernel->moves[i];
		unsigned char *reach = kernel->buffers[i].reach;

		if (move->done ||
		    (move->before >= 0 && !kernel->moves[move->before].done)) {
			all &= move->done;
			continue;
		}
		moved |= move_one(kernel, move, reach);
		all &= move->done;
	}
	if (all)
		return end_kernel(kernel);
	return moved ? CUDASIM_MOVED : CUDASIM_WAITS;
}

/* Told to end, one that has begun goes on for a while: it looks at its flag when it waits. */
static bool
lingers(struct kernel *kernel)
{
	struct timespec at;
	uint64_t now;

	if (!kernel->begun || nsim_set.linger == 0)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &at);
	now = (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
	if (kernel->told_ns == 0)
		kernel->told_ns = now;
	return now - kernel->told_ns < (uint64_t)nsim_set.linger * 1000;
}

static enum cudasim_step
step(void *data)
{
	struct kernel *kernel = data;
	ncclComm_t comm = kernel->comm;

	if (atomic_load(&comm->stop) && !kernel->waits && !lingers(kernel))
		return end_kernel(kernel);
	if (atomic_load(&comm->ended) + 1 != kernel->number)
		return CUDASIM_WAITS;
	if (!kernel->begun && !nsim_gpu_begins(&kernel->share))
		return CUDASIM_WAITS;
	if (!kernel->begun) {
		kernel->begun = true;
		atomic_fetch_add(&comm->running, 1);
		nsim_maybe_nap(KERNEL_ODDS);
		if (kernel->result != BATONI_NCCL_SUCCESS)
			nsim_comm_fail(comm, kernel->result);
		return CUDASIM_MOVED;
	}
	return kernel->result == BATONI_NCCL_SUCCESS ? move_all(kernel)
	                                             : CUDASIM_WAITS;
}

static void
free_kernel(struct kernel *kernel)
{
	nsim_gpu_end(&kernel->share);
	free(kernel->moves);
	free(kernel->buffers);
	free(kernel);
}

static void
gone(void *data)
{
	struct kernel *kernel = data;
	ncclComm_t comm = kernel->comm;

	/* Dropped: what comes after it can never be right. */
	if (!kernel->ended) {
		if (kernel->begun)
			atomic_fetch_sub(&comm->running, 1);
		nsim_comm_fail(comm, BATONI_NCCL_CUDA_ERROR);
		atomic_store(&comm->stop, true);
	}
	free_kernel(kernel);
	atomic_fetch_sub(&comm->pending, 1);
}

/* ---- launch ---- */

static void
add_move(struct kernel *kernel, const struct nsim_op *op)
{
	ncclComm_t comm = kernel->comm;
	struct move *move = &kernel->moves[kernel->n];
	bool goes_out = op->kind == NSIM_SEND || op->kind == NSIM_PUT;

	*move = (struct move){
		.kind = op->kind,
		.before = -1,
		.peer = op->peer,
		.bytes = op->bytes,
		.link = goes_out ? nsim_link(comm, comm->rank, op->peer)
	                         : nsim_link(comm, op->peer, comm->rank),
		.put = op->put,
		.signal = op->signal,
		.count = op->count,
	};
	move->put.bytes = op->bytes;
	for (size_t i = 0; i < kernel->n; i++) {
		if (kernel->moves[i].link == move->link &&
		    kernel->moves[i].kind == move->kind)
			move->before = (int)i;
	}
	kernel->waits |= op->kind == NSIM_WAIT;
	kernel->buffers[kernel->n++] = (struct cudasim_buffer){
		.address = op->at, .bytes = op->bytes};
}

static ncclResult_t
launch_here(struct nsim_plan *plan, struct kernel *kernel)
{
	struct cudasim_kernel as = {step, gone, kernel, kernel->buffers,
	                            kernel->n};
	CUcontext popped;
	CUresult result = nsim_cuda->context_push(plan->comm->context);

	if (result == BATONI_CU_SUCCESS) {
		result = nsim_cuda->launch(plan->streams, plan->streams_n, &as);
		nsim_cuda->context_pop(&popped);
	}
	return result == BATONI_CU_SUCCESS
	               ? BATONI_NCCL_SUCCESS
	               : nsim_error(BATONI_NCCL_CUDA_ERROR,
	                            "Cuda failure %u: launch", result);
}

/* As a launch on a full stream, which an abort does not interrupt. */
static void
await_room(ncclComm_t comm)
{
	for (unsigned us = 20;
	     nsim_set.room > 0 &&
	     atomic_load(&comm->pending) >= (unsigned long)nsim_set.room;
	     us = us < 500 ? us * 2 : us)
		simulator_nap(us);
}

/* Those of the plan's operations that are one-sided, or those that are not. */
static struct kernel *
new_kernel(const struct nsim_plan *plan, bool one_sided)
{
	struct kernel *kernel = nsim_alloc(1, sizeof(*kernel));

	kernel->comm = plan->comm;
	kernel->moves = nsim_alloc(plan->ops_n, sizeof(*kernel->moves));
	kernel->buffers = nsim_alloc(plan->ops_n, sizeof(*kernel->buffers));
	kernel->number = plan->comm->launched + 1;
	for (size_t i = 0; i < plan->ops_n; i++) {
		if ((plan->ops[i].kind >= NSIM_PUT) == one_sided)
			add_move(kernel, &plan->ops[i]);
	}
	return kernel;
}

static ncclResult_t
launch_part(struct nsim_plan *plan, bool one_sided)
{
	struct kernel *kernel = new_kernel(plan, one_sided);
	ncclComm_t comm = plan->comm;
	ncclResult_t result;

	if (kernel->n == 0) {
		free_kernel(kernel);
		return BATONI_NCCL_SUCCESS;
	}
	await_room(comm);
	kernel->result = nsim_use(NSIM_KERNEL);
	nsim_gpu_launch(&kernel->share, comm, one_sided);
	atomic_fetch_add(&comm->pending, 1);
	result = launch_here(plan, kernel);
	if (result == BATONI_NCCL_SUCCESS) {
		comm->launched++;
		return result;
	}
	atomic_fetch_sub(&comm->pending, 1);
	free_kernel(kernel);
	return result;
}

ncclResult_t
nsim_kernel_launch(struct nsim_plan *plan)
{
	ncclResult_t result = launch_part(plan, true);

	return result == BATONI_NCCL_SUCCESS ? launch_part(plan, false)
	                                     : result;
}
