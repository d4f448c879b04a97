/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels: the operations of one group on one communicator, moved side by side.
 *
 * Each message goes through the ring of its pair as its length and its bytes.  A receive
 * that finds another length than its own leaves it there: both sides hang, as with NCCL.
 * A send ends when the target has read its last byte; with `eager`, when it is in the ring.
 */
#include <stdlib.h>
#include <string.h>

#include "nsim.h"

/* One kernel of so many is late, if delays are asked for. */
enum { KERNEL_ODDS = 4, CHUNK = 16384 };

struct move {
	bool sends, done;
	bool told; /* that the lengths differ */
	int before; /* the earlier one of the same link and direction; -1: none */
	int peer;
	struct nsim_link *link;
	uint64_t bytes, moved; /* the head is part of `moved` */
	uint64_t end;          /* of a send: where its last byte is in the ring */
};

struct kernel {
	ncclComm_t comm;
	uint64_t number; /* of the communicator's */
	bool begun, ended;
	ncclResult_t result; /* not SUCCESS: it never ends */
	struct move *moves;
	struct cudasim_buffer *buffers; /* one for each move */
	size_t n;
};

/* ---- the ring ---- */

static void
put_bytes(struct nsim_link *link, uint64_t at, const void *from, size_t n)
{
	size_t first = at % NSIM_RING, part = NSIM_RING - first;

	part = n < part ? n : part;
	memcpy(link->ring + first, from, part);
	memcpy(link->ring, (const unsigned char *)from + part, n - part);
}

static void
get_bytes(const struct nsim_link *link, uint64_t at, void *to, size_t n)
{
	size_t first = at % NSIM_RING, part = NSIM_RING - first;

	part = n < part ? n : part;
	memcpy(to, link->ring + first, part);
	memcpy((unsigned char *)to + part, link->ring, n - part);
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

/* ---- in the stream ---- */

static enum cudasim_step
end(struct kernel *kernel)
{
	kernel->ended = true;
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
		moved |= move->sends ? send_part(move, reach)
		                     : recv_part(kernel, move, reach);
		all &= move->done;
	}
	if (all)
		return end(kernel);
	return moved ? CUDASIM_MOVED : CUDASIM_WAITS;
}

static enum cudasim_step
step(void *data)
{
	struct kernel *kernel = data;
	ncclComm_t comm = kernel->comm;

	if (atomic_load(&comm->stop))
		return end(kernel);
	if (atomic_load(&comm->ended) + 1 != kernel->number)
		return CUDASIM_WAITS;
	if (!kernel->begun) {
		kernel->begun = true;
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
		nsim_comm_fail(comm, BATONI_NCCL_CUDA_ERROR);
		atomic_store(&comm->stop, true);
	}
	free_kernel(kernel);
	atomic_fetch_sub(&comm->pending, 1);
}

/* ---- launch ---- */

static void
fill_in(struct kernel *kernel, const struct nsim_plan *plan)
{
	ncclComm_t comm = plan->comm;

	for (size_t i = 0; i < plan->ops_n; i++) {
		const struct nsim_op *op = &plan->ops[i];
		struct move *move = &kernel->moves[i];

		*move = (struct move){
			.sends = op->sends,
			.before = -1,
			.peer = op->peer,
			.bytes = op->bytes,
			.link = op->sends
		                        ? nsim_link(comm, comm->rank, op->peer)
		                        : nsim_link(comm, op->peer, comm->rank),
		};
		for (size_t j = 0; j < i; j++) {
			if (kernel->moves[j].link == move->link &&
			    kernel->moves[j].sends == move->sends)
				move->before = (int)j;
		}
		kernel->buffers[i] = (struct cudasim_buffer){
			.address = op->at, .bytes = op->bytes};
	}
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

ncclResult_t
nsim_kernel_launch(struct nsim_plan *plan)
{
	struct kernel *kernel = nsim_alloc(1, sizeof(*kernel));
	ncclComm_t comm = plan->comm;
	ncclResult_t result;

	kernel->comm = comm;
	kernel->n = plan->ops_n;
	kernel->moves = nsim_alloc(plan->ops_n, sizeof(*kernel->moves));
	kernel->buffers = nsim_alloc(plan->ops_n, sizeof(*kernel->buffers));
	kernel->result = nsim_use(NSIM_KERNEL);
	kernel->number = comm->launched + 1;
	fill_in(kernel, plan);
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
