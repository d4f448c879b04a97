/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for windows: shared memory that peers on this node can map.  Where the device has
 * blocks for windows (memory.h: block_alloc), it is memory of the device; else memory of
 * the host.
 *
 * When the communicator is broken, puts of peers by message may still be on their way into
 * this memory.  The receives are first taken back or completed (message.c).  A receive that
 * MPI keeps may write for the life of the process, and ranks of this process that have not
 * noticed the break store here by its address.  The memory stays mapped in these cases.  Memory
 * of a device stays also if other processes may have it mapped: they unmap it by themselves, and the
 * driver does not say what a mapping is worth whose memory is gone.  Operations that an abort has left
 * lent are scrapped first (path.h), and memory stays that one of them still uses.
 *
 * memories_lock guards the list of memories and their counts of windows, which calls that
 * are not collective use.  It is a leaf.
 */
#include "device.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "shared.h"
#include "sweep.h"
#include "wait.h"
#include "window.h"

/* A driver has so long for a block where the communicator has no timeout_ns. */
#define PATIENCE_NS UINT64_C(30000000000)

enum baton_status
batoni_refuse_onesided(const char *call, const struct baton_comm *comm)
{
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%s: the %s transport has no signals and no windows "
	                     "(BATON_CAP_SIGNALS, BATON_CAP_WINDOWS)",
	                     call, comm->transport_ops->name);
}

enum baton_status
batoni_refuse_lost(const char *call)
{
	return batoni_refuse(BATON_ERR_ABORTED,
	                     "%s: the program has finalised MPI, by which the ranks "
	                     "tell each other of signals and windows",
	                     call);
}

static enum baton_status
check_has_windows(const char *call, const struct baton_comm *comm)
{
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm(call, comm);
	return comm->onesided ? BATON_OK : batoni_refuse_onesided(call, comm);
}

enum baton_status
batoni_check_windows(const char *call, const struct baton_comm *comm)
{
	enum baton_status status = check_has_windows(call, comm);

	if (status != BATON_OK)
		return status;
	atomic_store(&comm->onesided->used, true);
	return atomic_load(&comm->driving.lost_lower) ? batoni_refuse_lost(call) : BATON_OK;
}

static bool
has_blocks(const struct baton_comm *comm)
{
	return comm->device_ops->memory->blocks != NULL;
}

static enum baton_status
memory_make(struct baton_comm *comm, size_t bytes, struct batoni_memory *memory)
{
	enum baton_status status;

	memory->bytes = bytes;
	if (has_blocks(comm))
		return comm->device_ops->memory->blocks->block_alloc(
			comm->device, bytes,
			batoni_real_ns() + (comm->timeout_ns
		                                    ? (uint64_t)comm->timeout_ns
		                                    : PATIENCE_NS),
			&memory->base);
	status = batoni_shm_create(bytes, &memory->shm);
	if (status != BATON_OK)
		return status;
	status = batoni_shm_block_add(&memory->block, &memory->shm);
	if (status != BATON_OK) {
		batoni_shm_destroy(&memory->shm);
		return batoni_refuse(status, "no memory");
	}
	memory->base = memory->shm.base;
	return BATON_OK;
}

enum baton_status
baton_mem_alloc(struct baton_comm *comm, size_t bytes, void **pointer_p)
{
	struct batoni_memory *memory;
	struct batoni_rma *rma;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_mem_alloc");
	status = batoni_check_windows("baton_mem_alloc", comm);
	if (status != BATON_OK)
		return status;
	if (!pointer_p || bytes == 0)
		return batoni_refuse(BATON_ERR_INVALID, "baton_mem_alloc: %s",
		                     pointer_p ? "bytes is 0; it takes 1 or more"
		                               : "pointer_p is NULL");
	memory = batoni_alloc(1, sizeof(*memory));
	if (!memory)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "baton_mem_alloc: no memory");
	status = memory_make(comm, bytes, memory);
	if (status != BATON_OK) {
		batoni_free(memory);
		return batoni_refuse_named("baton_mem_alloc", status);
	}
	rma = batoni_rma_of(comm);
	pthread_mutex_lock(&rma->memories_lock);
	batoni_list_append(&rma->memories, &memory->link);
	pthread_mutex_unlock(&rma->memories_lock);
	*pointer_p = memory->base;
	return BATON_OK;
}

/* Memories do not overlap: bytes that one contains as a whole are in no other. */
struct batoni_memory *
batoni_memory_find(struct batoni_rma *rma, const void *base, size_t bytes, bool *all_p)
{
	uintptr_t from = (uintptr_t)base;

	for (struct batoni_list_node *node = rma->memories.next;
	     node != &rma->memories; node = node->next) {
		struct batoni_memory *memory = batoni_container_of(
			node, struct batoni_memory, link);
		uintptr_t start = (uintptr_t)memory->base;
		uintptr_t end = start + memory->bytes;

		if (from < end && start < from + bytes) {
			*all_p = from >= start && from + bytes <= end;
			return memory;
		}
	}
	return NULL;
}

/* May another rank of this process store there, or have it mapped? */
static bool
neighbours_write_to(const struct batoni_rma *rma,
                    const struct batoni_memory *memory)
{
	const struct batoni_peer *peers = rma->transport->peers;

	for (int i = 0; i < rma->size && memory->known; i++) {
		if (i != rma->rank && (peers[i].within || !memory->shm.base))
			return true;
	}
	return false;
}

struct going {
	struct baton_comm *comm;
	const struct batoni_memory *memory;
};

static enum baton_status
scrap(void *argument)
{
	const struct going *going = argument;

	return batoni_comm_scrap(going->comm, going->memory->base,
	                         going->memory->bytes);
}

/* The communicator is broken: its operations that are lent leave the memory, each at the end of a copy
 * that is under way.  False: not all do. */
static bool
have_operations_left(struct baton_comm *comm, const struct batoni_memory *memory)
{
	struct going going = {comm, memory};
	uint64_t limit_ns = batoni_real_ns() +
	                    (uint64_t)batoni_comm_grace_ns(comm);

	return batoni_drive_until(scrap, &going, limit_ns) == BATON_OK;
}

/* The communicator is broken: may this memory still be used, by ranks of this process
 * that have not noticed, or by an operation that could not be taken back? */
static bool
still_used(struct batoni_rma *rma, const struct batoni_memory *memory)
{
	bool written;

	if (neighbours_write_to(rma, memory) ||
	    !have_operations_left(rma->comm, memory))
		return true;
	batoni_lock();
	written = batoni_messages_write_to(rma, memory->base, memory->bytes);
	batoni_unlock();
	return written;
}

/* Of the device.  Messages may have offered it to other processes. */
static void
free_block(const struct baton_comm *comm, const struct batoni_memory *memory)
{
	batoni_offerings_withdraw(memory->base, memory->bytes);
	comm->device_ops->memory->blocks->block_free(comm->device,
	                                             memory->base);
}

/* Tell the processes that have mapped it for messages that it is freed. */
static void
unname(struct batoni_memory *memory)
{
	if (!batoni_shm_block_remove(&memory->block))
		return;
	batoni_lock();
	batoni_shm_block_say_gone(memory->block.name.serial);
	batoni_unlock();
}

static void
memory_free(struct batoni_rma *rma, struct batoni_memory *memory)
{
	const struct baton_comm *comm = rma->comm;
	bool used = baton_comm_status(comm) != BATON_OK &&
	            still_used(rma, memory);

	if (memory->shm.base)
		unname(memory);
	if (used && memory->shm.base)
		batoni_shm_abandon(&memory->shm);
	else if (used)
		batoni_mem_keep(1); /* the device's entry for it */
	else if (memory->shm.base)
		batoni_shm_destroy(&memory->shm);
	else
		free_block(comm, memory);
	batoni_free(memory);
}

enum baton_status
baton_mem_free(struct baton_comm *comm, void *pointer)
{
	struct batoni_memory *memory;
	struct batoni_rma *rma;
	enum baton_status status;
	uint32_t windows = 0;
	bool all;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_mem_free");
	/* Also without what is below: it asks no other rank. */
	status = check_has_windows("baton_mem_free", comm);
	if (status != BATON_OK || !pointer)
		return status;
	rma = batoni_rma_of(comm);
	pthread_mutex_lock(&rma->memories_lock);
	memory = batoni_memory_find(rma, pointer, 1, &all);
	if (memory && memory->base != pointer)
		memory = NULL;
	if (memory)
		windows = memory->windows;
	if (memory && windows == 0)
		batoni_list_remove(&memory->link);
	pthread_mutex_unlock(&rma->memories_lock);
	if (!memory)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_mem_free: %p is not from "
		                     "baton_mem_alloc of this communicator",
		                     pointer);
	if (windows)
		return batoni_refuse(BATON_ERR_BUSY,
		                     "baton_mem_free: %u registered %s in the "
		                     "memory",
		                     windows,
		                     windows == 1 ? "window lies" : "windows lie");
	memory_free(rma, memory);
	return BATON_OK;
}
