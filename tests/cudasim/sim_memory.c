/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory: blocks, and what a pointer is.
 *
 * A block of the device is a memfd that is mapped twice: without rights at the address
 * that the program gets, and for the simulator's own use.  Pinned and managed memory is
 * mapped once.  All of it is filled with rubbish at first.  Addresses that were freed
 * stay reserved for a while, without rights: the host faults there, and the driver
 * refuses them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

enum { RUBBISH = 1 << 20, GRAVES = 512 };

/* Ranges that were freed, the oldest first to go. */
static struct {
	unsigned char *at;
	size_t bytes;
} graves[GRAVES];
static unsigned graves_n;

/* Blocks that were freed, and that entries name. */
static struct sim_block *leaving;

/* ---- blocks ---- */

struct sim_block *
sim_block_find_locked(CUdeviceptr pointer)
{
	struct sim_block *at;

	for (at = sim.blocks; at; at = at->next) {
		if (sim_is_in(pointer, at->device, at->bytes) ||
		    sim_is_in(pointer, (uintptr_t)at->host, at->bytes))
			return at;
	}
	return NULL;
}

/* A block has a page of the host's range. */
static bool
is_taken_locked(uintptr_t from, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t to = (from + bytes + page - 1) / page * page;

	from = from / page * page;
	for (struct sim_block *at = sim.blocks; at; at = at->next) {
		uintptr_t begin = (uintptr_t)at->host;

		if (begin && from < begin + at->bytes && begin < to)
			return true;
	}
	return false;
}

size_t
sim_block_offset(const struct sim_block *block, CUdeviceptr pointer)
{
	return sim_is_in(pointer, block->device, block->bytes)
	               ? pointer - block->device
	               : pointer - (uintptr_t)block->host;
}

bool
sim_is_grave_locked(CUdeviceptr pointer)
{
	for (struct sim_block *at = leaving; at; at = at->next) {
		if (sim_is_in(pointer, at->device, at->bytes))
			return true;
	}
	for (unsigned i = 0; i < GRAVES; i++) {
		if (sim_is_in(pointer, (uintptr_t)graves[i].at, graves[i].bytes))
			return true;
	}
	return false;
}

long
sim_blocks_live_locked(enum sim_memory memory, bool bytes)
{
	long n = 0;

	for (struct sim_block *at = sim.blocks; at; at = at->next) {
		if (at->memory == memory)
			n += bytes ? (long)at->bytes : 1;
	}
	return n;
}

static unsigned char *
map(size_t bytes, int rights, int flags, int fd)
{
	void *at = mmap(NULL, bytes, rights, flags, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

void
sim_bury_locked(void *at, size_t bytes)
{
	unsigned i = graves_n++ % GRAVES;

	if (!at)
		return;
	mmap(at, bytes, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	if (graves[i].at)
		munmap(graves[i].at, graves[i].bytes);
	graves[i].at = at;
	graves[i].bytes = bytes;
}

static bool
map_file(struct sim_block *block, int fd)
{
	unsigned char *view = map(block->mapped, PROT_NONE, MAP_SHARED, fd);

	if (view)
		block->reach = map(block->mapped, PROT_READ | PROT_WRITE,
		                   MAP_SHARED, fd);
	if (view && !block->reach)
		munmap(view, block->mapped);
	block->device = (uintptr_t)view;
	block->fd = fd;
	return block->reach != NULL;
}

static bool
map_device(struct sim_block *block)
{
	int fd = memfd_create("cudasim", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)block->mapped) == 0 &&
	    map_file(block, fd))
		return true;
	if (fd >= 0)
		close(fd);
	return false;
}

struct sim_block *
sim_block_of_file(int fd, size_t mapped)
{
	struct sim_block *block = sim_alloc(1, sizeof(*block));

	block->mapped = mapped;
	if (map_file(block, fd))
		return block;
	free(block);
	return NULL;
}

/* Its bytes are those of a memfd, which it has a descriptor of. */
static bool
is_file(enum sim_memory memory)
{
	return memory == SIM_DEVICE || memory == SIM_OPENED ||
	       memory == SIM_POOL;
}

static bool
map_host(struct sim_block *block)
{
	block->host = map(block->mapped, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS, -1);
	block->reach = block->host;
	block->device = (uintptr_t)block->host;
	return block->host != NULL;
}

/* Another address for the device than the host's. */
static void
give_alias(struct sim_block *block)
{
	unsigned char *alias = map(block->mapped, PROT_NONE,
	                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	                           -1);

	if (alias)
		block->device = (uintptr_t)alias;
}

void
sim_block_add_locked(struct sim_context *context, struct sim_block *block)
{
	block->context = context;
	if (context)
		block->owner = context->device;
	block->id = ++sim.next_id;
	block->next = sim.blocks;
	sim.blocks = block;
}

CUresult
sim_block_alloc_locked(struct sim_call *call, enum sim_memory memory,
                       size_t bytes, unsigned flags, struct sim_block **block_p)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct sim_block *block;

	if (bytes == 0)
		return BATONI_CU_INVALID_VALUE;
	if (bytes > SIZE_MAX / 2)
		return BATONI_CU_OUT_OF_MEMORY;
	block = sim_alloc(1, sizeof(*block));
	block->memory = memory;
	block->bytes = bytes;
	block->mapped = (bytes + page - 1) / page * page;
	block->flags = flags;
	if (!(is_file(memory) ? map_device(block) : map_host(block))) {
		free(block);
		return BATONI_CU_OUT_OF_MEMORY;
	}
	if (memory == SIM_PINNED && sim.set.alias)
		give_alias(block);
	memset(block->reach, 0xa5, bytes < RUBBISH ? bytes : RUBBISH);
	sim_block_add_locked(call->context, block);
	*block_p = block;
	return BATONI_CU_SUCCESS;
}

/* It is freed, and no entry names it. */
static void
unmap_locked(struct sim_block *block)
{
	struct sim_block **at = &leaving;

	while (*at != block)
		at = &(*at)->next;
	*at = block->next;
	if (block->memory == SIM_MAPPING) {
		/* The addresses stay reserved. */
		sim_unmapped_locked(block);
		free(block);
		return;
	}
	if (is_file(block->memory)) {
		munmap(block->reach, block->mapped);
		close(block->fd);
	}
	if (block->memory != SIM_REGISTERED && block->host)
		sim_bury_locked(block->host, block->mapped);
	if (block->device != (uintptr_t)block->host)
		sim_bury_locked((void *)(uintptr_t)block->device, block->mapped);
	free(block);
}

void
sim_block_release_locked(struct sim_block *block)
{
	if (block && --block->entries == 0 && block->freed)
		unmap_locked(block);
}

/* A context in which entries may name the block is in error: it drops them. */
static bool
is_dropped_locked(const struct sim_block *block)
{
	for (unsigned i = 0; i < sim.contexts_n; i++) {
		if ((!block->context || block->context == sim.contexts[i]) &&
		    sim.contexts[i]->error != BATONI_CU_SUCCESS)
			return true;
	}
	return false;
}

void
sim_block_forget_locked(struct sim_block *block)
{
	struct sim_block **at = &sim.blocks;

	while (*at != block)
		at = &(*at)->next;
	*at = block->next;
	block->freed = true;
	block->next = leaving;
	leaving = block;
}

void
sim_block_free_locked(struct sim_block *block, const char *call)
{
	sim_block_forget_locked(block);
	if (block->memory == SIM_DEVICE && sim_is_open_elsewhere(block->fd))
		sim_violation("%s of memory that another process has open",
		              call);
	if (block->entries == 0) {
		unmap_locked(block);
		return;
	}
	if (!is_dropped_locked(block))
		sim_violation("%s of memory that a stream is still to use",
		              call);
}

void
sim_blocks_close_locked(struct sim_context *context)
{
	struct sim_block *next;

	for (struct sim_block *at = sim.blocks; at; at = next) {
		next = at->next;
		if (at->context == context)
			sim_block_free_locked(at, "the end of a context");
	}
}

/* ---- allocation ---- */

/* An implicit synchronisation, where the setting asks for that much. */
static CUresult
synchronize_locked(struct sim_call *call, const char *why, long level)
{
	return sim.set.implicit >= level
	               ? sim_synchronize_locked(call->context, why, true)
	               : BATONI_CU_SUCCESS;
}

static CUresult
alloc_device(enum sim_function function, enum sim_memory memory,
             CUdeviceptr *pointer_p, size_t bytes)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, function, SIM_CONTEXT | SIM_UNSAFE);
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = synchronize_locked(&call, sim_function_name(function), 1);
	if (result == BATONI_CU_SUCCESS)
		result = sim_block_alloc_locked(&call, memory, bytes, 0, &block);
	if (result == BATONI_CU_SUCCESS)
		*pointer_p = block->device;
	return sim_leave(&call, result);
}

CUresult
cuMemAlloc_v2(CUdeviceptr *pointer_p, size_t bytes)
{
	return alloc_device(SIM_cuMemAlloc_v2, SIM_DEVICE, pointer_p, bytes);
}

CUresult
cuMemAllocManaged(CUdeviceptr *pointer_p, size_t bytes, unsigned int flags)
{
	(void)flags;
	return alloc_device(SIM_cuMemAllocManaged, SIM_MANAGED, pointer_p,
	                    bytes);
}

CUresult
cuMemFree_v2(CUdeviceptr pointer)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuMemFree_v2,
	                            SIM_CONTEXT | SIM_UNSAFE | SIM_DESTROYS);
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!pointer)
		return sim_leave(&call, BATONI_CU_SUCCESS);
	result = synchronize_locked(&call, "cuMemFree", 1);
	block = sim_block_find_locked(pointer);
	if (!block || block->device != pointer ||
	    (block->memory != SIM_DEVICE && block->memory != SIM_MANAGED &&
	     block->memory != SIM_POOL)) {
		sim_violation("cuMemFree of what is no block");
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	}
	if (result != CUDASIM_TIMEOUT)
		sim_block_free_locked(block, "cuMemFree");
	return sim_leave(&call, result);
}

CUresult
cuMemHostAlloc(void **pointer_p, size_t bytes, unsigned int flags)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuMemHostAlloc, SIM_CONTEXT | SIM_UNSAFE);
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = synchronize_locked(&call, "cuMemHostAlloc", 2);
	if (result == BATONI_CU_SUCCESS)
		result = sim_block_alloc_locked(&call, SIM_PINNED, bytes, flags, &block);
	if (result == BATONI_CU_SUCCESS)
		*pointer_p = block->host;
	return sim_leave(&call, result);
}

/* All of its pages are there. */
static bool
is_mapped(uintptr_t at, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = at / page * page;

	return msync((void *)begin, at + bytes - begin, MS_ASYNC) == 0;
}

CUresult
cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuMemHostRegister_v2,
	                            SIM_CONTEXT | SIM_UNSAFE);
	struct sim_block *block;
	uintptr_t at = (uintptr_t)pointer;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = synchronize_locked(&call, "cuMemHostRegister", 2);
	if (result == BATONI_CU_SUCCESS && (!pointer || bytes == 0 ||
	                                    !is_mapped(at, bytes)))
		result = BATONI_CU_INVALID_VALUE;
	else if (result == BATONI_CU_SUCCESS && is_taken_locked(at, bytes))
		result = BATONI_CU_ALREADY_REGISTERED;
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	block = sim_alloc(1, sizeof(*block));
	block->memory = SIM_REGISTERED;
	block->bytes = block->mapped = bytes;
	block->flags = flags;
	block->host = block->reach = pointer;
	block->device = at;
	if (sim.set.alias)
		give_alias(block);
	sim_block_add_locked(call.context, block);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

static CUresult
free_host(enum sim_function function, enum sim_memory memory,
          const void *pointer, CUresult otherwise)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, function,
	                            SIM_CONTEXT | SIM_UNSAFE | SIM_DESTROYS);
	const char *name = sim_function_name(function);
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = synchronize_locked(&call, name, 2);
	block = sim_block_find_locked((uintptr_t)pointer);
	if (!block || block->host != pointer || block->memory != memory) {
		sim_violation("%s of what is no block", name);
		return sim_leave(&call, otherwise);
	}
	if (memory == SIM_REGISTERED &&
	    !is_mapped((uintptr_t)pointer, block->bytes))
		sim_violation("%s of memory that is not there any more", name);
	if (result != CUDASIM_TIMEOUT)
		sim_block_free_locked(block, name);
	return sim_leave(&call, result);
}

CUresult
cuMemHostUnregister(void *pointer)
{
	return free_host(SIM_cuMemHostUnregister, SIM_REGISTERED, pointer,
	                 BATONI_CU_NOT_REGISTERED);
}

CUresult
cuMemFreeHost(void *pointer)
{
	return free_host(SIM_cuMemFreeHost, SIM_PINNED, pointer,
	                 BATONI_CU_INVALID_VALUE);
}

static struct CUmod_st {
	char unused;
} module; /* all modules */

CUresult
cuModuleLoadData(CUmodule *module_p, const void *image)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuModuleLoadData,
	                            SIM_CONTEXT | SIM_UNSAFE);

	(void)image;
	if (result != BATONI_CU_SUCCESS)
		return result;
	result = synchronize_locked(&call, "cuModuleLoadData", 1);
	if (result == BATONI_CU_SUCCESS)
		*module_p = &module;
	return sim_leave(&call, result);
}

/* ---- the test's own ---- */

static void
touch(CUdeviceptr pointer, void *to, const void *from, size_t bytes)
{
	pthread_mutex_lock(&sim_lock);
	for (size_t at = 0, n; at < bytes; at += n) {
		struct sim_block *block = sim_block_find_locked(pointer + at);
		size_t offset;

		if (!block || (at > 0 && block->memory != SIM_MAPPING)) {
			sim_violation("cudasim_peek or cudasim_poke outside all "
			              "blocks");
			break;
		}
		offset = sim_block_offset(block, pointer + at);
		n = block->bytes - offset < bytes - at ? block->bytes - offset
		                                       : bytes - at;
		if (to)
			memcpy((char *)to + at, block->reach + offset, n);
		else
			memcpy(block->reach + offset, (const char *)from + at, n);
	}
	pthread_mutex_unlock(&sim_lock);
}

/* ---- what network cards write ---- */

/* It is on its way to the memory: the oldest first. */
struct remote_write {
	struct remote_write *next;
	CUdeviceptr to;
	size_t bytes;
	unsigned char content[];
};
static struct remote_write *remote_writes; /* under sim_lock */

void
cudasim_remote_write(CUdeviceptr to, const void *from, size_t bytes)
{
	struct remote_write **end = &remote_writes, *write;

	if (!sim.set.flush) {
		touch(to, NULL, from, bytes);
		return;
	}
	write = sim_alloc(1, sizeof(*write) + bytes);
	write->to = to;
	write->bytes = bytes;
	memcpy(write->content, from, bytes);
	pthread_mutex_lock(&sim_lock);
	while (*end)
		end = &(*end)->next;
	*end = write;
	pthread_mutex_unlock(&sim_lock);
}

/* Those to memory of this device; what was freed meanwhile is lost. */
static void
land_locked(const struct sim_context *context)
{
	struct remote_write **at = &remote_writes, *write;

	while ((write = *at)) {
		struct sim_block *block = sim_block_find_locked(write->to);
		size_t offset = block ? sim_block_offset(block, write->to) : 0;

		if (block && block->owner != context->device) {
			at = &write->next;
			continue;
		}
		if (block && write->bytes <= block->bytes - offset)
			memcpy(block->reach + offset, write->content,
			       write->bytes);
		*at = write->next;
		free(write);
	}
}

CUresult
cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                           CUflushGPUDirectRDMAWritesScope scope)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuFlushGPUDirectRDMAWrites,
	                            SIM_CONTEXT);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (target != BATONI_CU_RDMA_FLUSH_CURRENT ||
	    scope < BATONI_CU_RDMA_FLUSH_TO_OWNER)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	if (!sim.set.flush)
		return sim_leave(&call, BATONI_CU_NOT_SUPPORTED);
	land_locked(call.context);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

void
cudasim_peek(void *to, CUdeviceptr from, size_t bytes)
{
	touch(from, to, NULL, bytes);
}

void
cudasim_poke(CUdeviceptr to, const void *from, size_t bytes)
{
	touch(to, NULL, from, bytes);
}

unsigned char *
cudasim_reach(CUdeviceptr address, size_t bytes, void **hold_p)
{
	unsigned char *reach = NULL;
	struct sim_block *block;
	size_t offset;

	sim_lock_for_control();
	block = sim_block_find_locked(address);
	offset = block ? sim_block_offset(block, address) : 0;
	if (block && bytes <= block->bytes - offset) {
		block->entries++;
		*hold_p = block;
		reach = block->reach + offset;
	}
	pthread_mutex_unlock(&sim_lock);
	return reach;
}

void
cudasim_unreach(void *hold)
{
	sim_lock_for_control();
	sim_block_release_locked(hold);
	pthread_mutex_unlock(&sim_lock);
}
