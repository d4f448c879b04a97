/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * IPC handles: memory of cuMemAlloc that other processes open.
 *
 * The handle names the process, the descriptor of the block's memfd there, and the file's inode,
 * by which a descriptor's number that is used again is told from the block.  The opener opens the
 * file by /proc/<pid>/fd and holds a lock on it for reading until it closes it, or ends.  The
 * owner, which frees the block, asks for the lock: memory that is still open elsewhere is a
 * violation.  The opener has the bytes until it closes them, whatever the owner does.
 *
 * What is opened is a block of the context that opened it, whose device reaches it.  A second
 * open by the same context counts; with `ipc_again` 0 it is refused, as older drivers do.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

#define MAGIC UINT64_C(0x6370692d6d697363)

struct name {
	uint64_t magic, inode, bytes, mapped;
	int pid, fd, device;
};

_Static_assert(sizeof(struct name) <= sizeof(CUipcMemHandle),
               "the name is in the handle");

static CUresult
enter(struct sim_call *call, enum sim_function function, unsigned needs)
{
	CUresult result = sim_enter(call, function, SIM_CONTEXT | needs);

	if (result != BATONI_CU_SUCCESS || sim.set.ipc)
		return result;
	return sim_leave(call, BATONI_CU_NOT_SUPPORTED);
}

/* ---- the owner ---- */

CUresult
cuIpcGetMemHandle(CUipcMemHandle *handle_p, CUdeviceptr pointer)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuIpcGetMemHandle, 0);
	const struct sim_block *block;
	struct name name = {.magic = MAGIC};
	struct stat file;

	if (result != BATONI_CU_SUCCESS)
		return result;
	block = sim_block_find_locked(pointer);
	if (!handle_p || !block || block->memory != SIM_DEVICE ||
	    block->device != pointer || fstat(block->fd, &file) != 0)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	name.inode = file.st_ino;
	name.bytes = block->bytes;
	name.mapped = block->mapped;
	name.pid = (int)getpid();
	name.fd = block->fd;
	name.device = block->owner;
	memset(handle_p, 0, sizeof(*handle_p));
	memcpy(handle_p, &name, sizeof(name));
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

bool
sim_is_open_elsewhere(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* ---- the opener ---- */

/* The file by that name, if it still is the block's; -1. */
static int
open_file(const struct name *name)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	char path[64];
	struct stat file;
	int seen, fd = -1;

	/* The number may be of any other file by now: it is looked at before it is opened. */
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", name->pid, name->fd);
	seen = open(path, O_PATH | O_CLOEXEC);
	if (seen < 0)
		return -1;
	if (fstat(seen, &file) == 0 && file.st_ino == name->inode &&
	    S_ISREG(file.st_mode) && (uint64_t)file.st_size == name->mapped) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", seen);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	close(seen);
	if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Takes the descriptor, whatever comes. */
static CUresult
add_locked(struct sim_call *call, int fd, const struct name *name,
           CUdeviceptr *pointer_p)
{
	struct sim_block *block = sim_block_of_file(fd, name->mapped);

	if (!block) {
		close(fd);
		return BATONI_CU_OUT_OF_MEMORY;
	}
	block->memory = SIM_OPENED;
	block->bytes = name->bytes;
	block->inode = name->inode;
	block->pid = name->pid;
	block->opens = 1;
	sim_block_add_locked(call->context, block);
	block->owner = name->device;
	*pointer_p = block->device;
	return BATONI_CU_SUCCESS;
}

/* What this process has open already says of it.  *again_p: the block, if it is the same. */
static CUresult
check_opened_locked(const struct sim_call *call, const struct name *name,
                    struct sim_block **again_p)
{
	*again_p = NULL;
	for (struct sim_block *at = sim.blocks; at; at = at->next) {
		if (at->memory != SIM_OPENED || at->pid != name->pid ||
		    at->owner != name->device ||
		    at->context->device != call->context->device)
			continue;
		/* One context of a device opens what a device of a process has. */
		if (at->context != call->context)
			return BATONI_CU_INVALID_CONTEXT;
		if (at->inode == name->inode)
			*again_p = at;
	}
	return *again_p && !sim.set.ipc_again ? CUDASIM_ALREADY_MAPPED
	                                      : BATONI_CU_SUCCESS;
}

static CUresult
open_locked(struct sim_call *call, const struct name *name,
            CUdeviceptr *pointer_p)
{
	struct sim_block *again;
	CUresult result;
	int fd;

	if (name->magic != MAGIC || !sim_is_device(name->device))
		return BATONI_CU_INVALID_VALUE;
	if (name->pid == (int)getpid())
		return BATONI_CU_INVALID_CONTEXT;
	if (!sim_can_reach_locked(call->context->device, name->device))
		return CUDASIM_MAP_FAILED;
	result = check_opened_locked(call, name, &again);
	if (result != BATONI_CU_SUCCESS)
		return result;
	if (again) {
		again->opens++;
		*pointer_p = again->device;
		return BATONI_CU_SUCCESS;
	}
	fd = open_file(name);
	if (fd < 0)
		return BATONI_CU_INVALID_VALUE;
	return add_locked(call, fd, name, pointer_p);
}

/* An implicit synchronisation, where the setting asks for that much. */
static CUresult
synchronize_locked(struct sim_call *call, const char *why)
{
	return sim.set.implicit >= 2
	               ? sim_synchronize_locked(call->context, why, true)
	               : BATONI_CU_SUCCESS;
}

CUresult
cuIpcOpenMemHandle_v2(CUdeviceptr *pointer_p, CUipcMemHandle handle,
                      unsigned int flags)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuIpcOpenMemHandle_v2, SIM_UNSAFE);
	struct name name;

	if (result != BATONI_CU_SUCCESS)
		return result;
	memcpy(&name, &handle, sizeof(name));
	if (!pointer_p || flags != BATONI_CU_IPC_ENABLE_PEERS)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	result = synchronize_locked(&call, "cuIpcOpenMemHandle");
	if (result == BATONI_CU_SUCCESS)
		result = open_locked(&call, &name, pointer_p);
	return sim_leave(&call, result);
}

CUresult
cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuIpcCloseMemHandle,
	                        SIM_UNSAFE | SIM_DESTROYS);
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = synchronize_locked(&call, "cuIpcCloseMemHandle");
	block = sim_block_find_locked(pointer);
	if (!block || block->memory != SIM_OPENED || block->device != pointer) {
		sim_violation("cuIpcCloseMemHandle of what was not opened");
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	}
	if (block->context != call.context)
		return sim_leave(&call, BATONI_CU_INVALID_CONTEXT);
	if (result != CUDASIM_TIMEOUT && --block->opens == 0)
		sim_block_free_locked(block, "cuIpcCloseMemHandle");
	return sim_leave(&call, result);
}
