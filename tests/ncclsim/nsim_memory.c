/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for windows, and windows: registered by all ranks together.  What is put into
 * them: nsim_signal.c. */
#include <stdlib.h>

#include "nsim.h"

struct block {
	struct block *next;
	CUdeviceptr at;
	size_t bytes;
};

struct ncclWindow_vidmem {
	struct ncclWindow_vidmem *next;
	ncclComm_t comm;
	bool made;
	int number; /* the same on all ranks */
	CUdeviceptr at;
	uint64_t bytes;
	unsigned char *reach;
	void *hold; /* the memory stays as long */
};

static struct block *blocks; /* lock */
static struct ncclWindow_vidmem *windows; /* lock */

ncclResult_t
ncclMemAlloc(void **pointer_p, size_t bytes)
{
	ncclResult_t result = nsim_use(NSIM_ncclMemAlloc);
	struct block *block;
	CUdeviceptr at;

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (!pointer_p || bytes == 0)
		return BATONI_NCCL_INVALID_ARGUMENT;
	if (nsim_cuda->mem_alloc(&at, bytes) != BATONI_CU_SUCCESS)
		return nsim_error(BATONI_NCCL_CUDA_ERROR, "Cuda failure: memory");
	block = nsim_alloc(1, sizeof(*block));
	block->at = at;
	block->bytes = bytes;
	pthread_mutex_lock(&nsim_lock);
	block->next = blocks;
	blocks = block;
	pthread_mutex_unlock(&nsim_lock);
	*pointer_p = (void *)(uintptr_t)at;
	return BATONI_NCCL_SUCCESS;
}

static struct block *
take_block(CUdeviceptr at)
{
	struct block **link = &blocks, *found;

	pthread_mutex_lock(&nsim_lock);
	while (*link && (*link)->at != at)
		link = &(*link)->next;
	found = *link;
	if (found)
		*link = found->next;
	pthread_mutex_unlock(&nsim_lock);
	return found;
}

ncclResult_t
ncclMemFree(void *pointer)
{
	ncclResult_t fault = nsim_use(NSIM_ncclMemFree);
	struct block *block = take_block((uintptr_t)pointer);

	if (!pointer)
		return fault;
	if (!block) {
		nsim_violation("ncclMemFree of what is no block of ncclMemAlloc");
		return BATONI_NCCL_INVALID_ARGUMENT;
	}
	free(block);
	if (nsim_cuda->mem_free((uintptr_t)pointer) != BATONI_CU_SUCCESS)
		return nsim_error(BATONI_NCCL_CUDA_ERROR, "Cuda failure: memory");
	return fault;
}

/* The allocation of ncclMemAlloc, or of virtual memory management, that the address is in.
 * NCCL's own are of the second kind too. */
static bool
find_allocation(CUdeviceptr at, CUdeviceptr *base_p, size_t *bytes_p)
{
	CUmemGenericAllocationHandle handle;
	struct block *block;

	pthread_mutex_lock(&nsim_lock);
	block = blocks;
	while (block && !(at >= block->at && at < block->at + block->bytes))
		block = block->next;
	if (block) {
		*base_p = block->at;
		*bytes_p = block->bytes;
	}
	pthread_mutex_unlock(&nsim_lock);
	if (block)
		return true;
	if (nsim_cuda->address_range(base_p, bytes_p, at) !=
	            BATONI_CU_SUCCESS ||
	    nsim_cuda->vm_retain(&handle, (void *)(uintptr_t)*base_p) !=
	            BATONI_CU_SUCCESS)
		return false;
	nsim_cuda->vm_release(handle);
	return true;
}

static bool
may_be_window(CUdeviceptr at, size_t bytes)
{
	CUdeviceptr base;
	size_t all;

	return find_allocation(at, &base, &all) && bytes > 0 &&
	       bytes <= all - (at - base) &&
	       (at - base) % BATONI_NCCL_WINDOW_ALIGNMENT == 0;
}

ncclResult_t
ncclCommWindowRegister(ncclComm_t comm, void *at, size_t bytes,
                       ncclWindow_t *window_p, int flags)
{
	struct nsim_job job = {.kind = NSIM_WINDOW, .comm = comm,
	                       .window_p = window_p};
	ncclResult_t result = nsim_use(NSIM_ncclCommWindowRegister);

	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, NSIM_ncclCommWindowRegister);
	if (result != BATONI_NCCL_SUCCESS)
		return nsim_group_refuse(result);
	result = nsim_comm_ready(comm);
	if (result == BATONI_NCCL_SUCCESS &&
	    (!window_p || flags < 0 || flags > BATONI_NCCL_WINDOW_SYMMETRIC ||
	     !may_be_window((uintptr_t)at, bytes)))
		result = nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                    "no memory of ncclMemAlloc or cuMemCreate, or not aligned");
	if (result == BATONI_NCCL_SUCCESS) {
		job.number = comm->exchanges++;
		job.window = nsim_alloc(1, sizeof(*job.window));
		*job.window = (struct ncclWindow_vidmem){
			.comm = comm,
			.number = (int)job.number,
			.at = (uintptr_t)at,
			.bytes = bytes,
		};
		job.window->reach = nsim_cuda->sim_reach(
			(uintptr_t)at, bytes, &job.window->hold);
		pthread_mutex_lock(&nsim_lock);
		job.window->next = windows;
		windows = job.window;
		pthread_mutex_unlock(&nsim_lock);
		result = nsim_group_job(comm, &job);
	} else {
		nsim_group_refuse(result);
	}
	nsim_leave(comm);
	return result;
}

static void
free_window(struct ncclWindow_vidmem *window)
{
	if (window->hold)
		nsim_cuda->sim_unreach(window->hold);
	free(window);
}

static void
drop_window_locked(struct ncclWindow_vidmem *window)
{
	struct ncclWindow_vidmem **link = &windows;

	while (*link != window)
		link = &(*link)->next;
	*link = window->next;
	free_window(window);
}

void
nsim_window_made(struct nsim_job *job)
{
	struct ncclWindow_vidmem *window = job->window;

	pthread_mutex_lock(&nsim_lock);
	window->made = true;
	/* Between nodes that only sockets connect there are none. */
	if (nsim_set.sockets) {
		drop_window_locked(window);
		window = NULL;
	}
	pthread_mutex_unlock(&nsim_lock);
	*job->window_p = window;
}

ncclResult_t
ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
	ncclResult_t fault = nsim_use(NSIM_ncclCommWindowDeregister), result;
	struct ncclWindow_vidmem **link = &windows;

	result = nsim_enter(comm, NSIM_ncclCommWindowDeregister);
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	pthread_mutex_lock(&nsim_lock);
	while (*link && *link != window)
		link = &(*link)->next;
	if (*link && window->made && window->comm == comm)
		*link = window->next;
	else
		window = NULL;
	pthread_mutex_unlock(&nsim_lock);
	if (!window) {
		nsim_violation("ncclCommWindowDeregister of what is no window");
		result = BATONI_NCCL_INVALID_ARGUMENT;
	} else {
		free_window(window);
	}
	nsim_leave(comm);
	return fault != BATONI_NCCL_SUCCESS ? fault : result;
}

/* What the program has left. */
void
nsim_windows_close(ncclComm_t comm)
{
	struct ncclWindow_vidmem **link = &windows, *window;

	pthread_mutex_lock(&nsim_lock);
	while ((window = *link) != NULL) {
		if (window->comm == comm) {
			*link = window->next;
			free_window(window);
		} else {
			link = &window->next;
		}
	}
	pthread_mutex_unlock(&nsim_lock);
}

/* ---- for puts ---- */

int
nsim_window_number(ncclComm_t comm, ncclWindow_t window, void **base_p)
{
	struct ncclWindow_vidmem *at;
	int number = -1;

	pthread_mutex_lock(&nsim_lock);
	at = windows;
	while (at && at != window)
		at = at->next;
	if (at && at->comm == comm && at->made) {
		number = at->number;
		*base_p = (void *)(uintptr_t)at->at;
	}
	pthread_mutex_unlock(&nsim_lock);
	return number;
}

bool
nsim_in_window(ncclComm_t comm, CUdeviceptr from, uint64_t bytes)
{
	struct ncclWindow_vidmem *at;

	pthread_mutex_lock(&nsim_lock);
	at = windows;
	while (at && !(at->comm == comm && at->made && from >= at->at &&
	               from - at->at <= at->bytes &&
	               bytes <= at->bytes - (from - at->at)))
		at = at->next;
	pthread_mutex_unlock(&nsim_lock);
	return at != NULL;
}

unsigned char *
nsim_window_reach_locked(ncclComm_t comm, int number, uint64_t offset,
                         uint64_t bytes)
{
	struct ncclWindow_vidmem *at = windows;

	while (at && !(at->comm == comm && at->number == number))
		at = at->next;
	return at && offset <= at->bytes && bytes <= at->bytes - offset
	               ? at->reach + offset
	               : NULL;
}

/* ---- counts ---- */

long
nsim_blocks_live_locked(void)
{
	long n = 0;

	for (struct block *at = blocks; at; at = at->next)
		n++;
	return n;
}

long
nsim_windows_live_locked(void)
{
	long n = 0;

	for (struct ncclWindow_vidmem *at = windows; at; at = at->next)
		n += at->made;
	return n;
}
