/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Virtual memory management: allocations, ranges of addresses, and mappings of the one in the
 * other; allocations of other processes.
 *
 * An allocation is a memfd: its bytes, and behind them a page with a label, which says what it
 * is to a process that imports it.  All processes that have it map the same pages.  It ends when
 * no handle and no mapping of this process is left; the pages end with the last process.
 *
 * A shareable handle is a descriptor of the memfd.  The file's offset, which all descriptors
 * of one open file have in common, is a mark.  A descriptor that was handed over
 * (SCM_RIGHTS, pidfd_getfd) is of the same open file, and has it.  One that was opened by
 * /proc/<pid>/fd is of another open file, has the offset 0, and is refused: a GPU's would be
 * another opening of the device.
 *
 * A reservation is a range without rights, for the host always, and another one of the same length through
 * which the simulator reaches the bytes: mappings that lie side by side do so there too, and one copy may
 * run over several.  A mapping is a block
 * (sim_memory.c) that belongs to no context; its bytes are the allocation's.  No device
 * reaches it before cuMemSetAccess.  The reservation's addresses stay until
 * cuMemAddressFree, and are then kept as those of freed memory are.
 *
 * Calls need no current context.  All under sim_lock.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

#define MARK ((off_t)0x6375646173696d)
#define MAGIC UINT64_C(0x6c6c612d6d697363)

enum { RUBBISH = 1 << 20, LABEL_BYTES = 4096 };

/* Behind the bytes. */
struct label {
	uint64_t magic, bytes;
	int device;
	unsigned types;
	unsigned char rdma;
};

struct sim_allocation {
	struct sim_allocation *next;
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	size_t bytes;
	int fd;
	unsigned handles, mappings;
};

struct sim_reservation {
	struct sim_reservation *next;
	unsigned char *base, *reach;
	size_t bytes;
	unsigned mappings; /* those that are gone for the program, and still used, too */
	bool freed;
};

static struct sim_allocation *allocations;
static struct sim_reservation *reservations;

/* ---- small things ---- */

static CUresult
enter(struct sim_call *call, enum sim_function function, unsigned needs)
{
	CUresult result = sim_enter(call, function, needs);

	if (result != BATONI_CU_SUCCESS || sim.set.vmm)
		return result;
	return sim_leave(call, BATONI_CU_NOT_SUPPORTED);
}

static bool
is_whole(uint64_t bytes)
{
	return bytes % (uint64_t)sim.set.granularity == 0;
}

static struct sim_allocation *
find_locked(CUmemGenericAllocationHandle handle)
{
	struct sim_allocation *at = allocations;

	while (at && (at->handle != handle || at->handles == 0))
		at = at->next;
	return at;
}

long
sim_allocations_live_locked(void)
{
	long n = 0;

	for (struct sim_allocation *at = allocations; at; at = at->next)
		n++;
	return n;
}

unsigned
sim_allocation_types_locked(const struct sim_allocation *allocation)
{
	return allocation->properties.requestedHandleTypes;
}

/* ---- allocations ---- */

/* Nothing of this process holds it any more. */
static void
end_if_unused_locked(struct sim_allocation *allocation)
{
	struct sim_allocation **at = &allocations;

	if (allocation->handles > 0 || allocation->mappings > 0)
		return;
	while (*at != allocation)
		at = &(*at)->next;
	*at = allocation->next;
	close(allocation->fd);
	free(allocation);
}

static void
end_reservation_if_unused_locked(struct sim_reservation *range)
{
	if (!range->freed || range->mappings > 0)
		return;
	munmap(range->reach, range->bytes);
	free(range);
}

void
sim_unmapped_locked(const struct sim_block *block)
{
	block->allocation->mappings--;
	end_if_unused_locked(block->allocation);
	mmap(block->reach, block->bytes, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	block->range->mappings--;
	end_reservation_if_unused_locked(block->range);
}

/* Takes the descriptor, whatever comes. */
static CUresult
add_locked(int fd, const struct label *label,
           CUmemGenericAllocationHandle *handle_p)
{
	struct sim_allocation *allocation = sim_alloc(1, sizeof(*allocation));

	/* No handle is used again, and none looks like another number. */
	allocation->handle = ++sim.next_id << 8 | 0xa5;
	allocation->properties = (CUmemAllocationProp){
		.type = BATONI_CU_ALLOCATION_PINNED,
		.requestedHandleTypes = label->types,
		.location = {BATONI_CU_LOCATION_DEVICE, label->device},
		.allocFlags.gpuDirectRDMACapable = label->rdma,
	};
	allocation->bytes = label->bytes;
	allocation->fd = fd;
	allocation->handles = 1;
	allocation->next = allocations;
	allocations = allocation;
	*handle_p = allocation->handle;
	return BATONI_CU_SUCCESS;
}

/* Are these properties of memory that the simulator has? */
static CUresult
check_properties(const CUmemAllocationProp *properties)
{
	if (!properties || properties->type != BATONI_CU_ALLOCATION_PINNED ||
	    properties->location.type != BATONI_CU_LOCATION_DEVICE ||
	    properties->win32HandleMetaData)
		return BATONI_CU_INVALID_VALUE;
	if (!sim_is_device(properties->location.id))
		return BATONI_CU_INVALID_DEVICE;
	if (properties->requestedHandleTypes != BATONI_CU_HANDLE_NONE &&
	    (properties->requestedHandleTypes != BATONI_CU_HANDLE_FD ||
	     !sim.set.vmm_fd))
		return BATONI_CU_NOT_SUPPORTED;
	if (properties->allocFlags.compressionType != 0 ||
	    properties->allocFlags.usage != 0 ||
	    properties->allocFlags.gpuDirectRDMACapable > sim.set.vmm_rdma)
		return BATONI_CU_NOT_SUPPORTED;
	return BATONI_CU_SUCCESS;
}

CUresult
cuMemGetAllocationGranularity(size_t *bytes_p,
                              const CUmemAllocationProp *properties,
                              CUmemAllocationGranularity_flags which)
{
	struct sim_call call;
	CUresult result =
		enter(&call, SIM_cuMemGetAllocationGranularity, 0);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = check_properties(properties);
	if (result == BATONI_CU_SUCCESS &&
	    (!bytes_p || which > BATONI_CU_GRANULARITY_BEST))
		result = BATONI_CU_INVALID_VALUE;
	if (result == BATONI_CU_SUCCESS)
		*bytes_p = (size_t)sim.set.granularity;
	return sim_leave(&call, result);
}

/* A memfd with rubbish, the label and the mark; -1. */
static int
make_file(const struct label *label)
{
	int fd = memfd_create("cudasim-allocation", MFD_CLOEXEC);
	void *bytes;
	bool made;

	if (fd < 0)
		return -1;
	made = ftruncate(fd, (off_t)(label->bytes + LABEL_BYTES)) == 0 &&
	       pwrite(fd, label, sizeof(*label), (off_t)label->bytes) ==
	               (ssize_t)sizeof(*label) &&
	       lseek(fd, MARK, SEEK_SET) == MARK;
	bytes = made ? mmap(NULL, label->bytes, PROT_READ | PROT_WRITE,
	                    MAP_SHARED, fd, 0)
	             : MAP_FAILED;
	if (bytes == MAP_FAILED) {
		close(fd);
		return -1;
	}
	memset(bytes, 0xa5, label->bytes < RUBBISH ? label->bytes : RUBBISH);
	munmap(bytes, label->bytes);
	return fd;
}

CUresult
cuMemCreate(CUmemGenericAllocationHandle *handle_p, size_t bytes,
            const CUmemAllocationProp *properties, unsigned long long flags)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuMemCreate, SIM_UNSAFE);
	struct label label = {.magic = MAGIC, .bytes = bytes};
	int fd;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = check_properties(properties);
	if (result == BATONI_CU_SUCCESS &&
	    (!handle_p || bytes == 0 || !is_whole(bytes) || flags != 0))
		result = BATONI_CU_INVALID_VALUE;
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	if (bytes > SIZE_MAX / 4)
		return sim_leave(&call, BATONI_CU_OUT_OF_MEMORY);
	label.device = properties->location.id;
	label.types = properties->requestedHandleTypes;
	label.rdma = properties->allocFlags.gpuDirectRDMACapable;
	fd = make_file(&label);
	if (fd < 0)
		return sim_leave(&call, BATONI_CU_OUT_OF_MEMORY);
	return sim_leave(&call, add_locked(fd, &label, handle_p));
}

CUresult
cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sim_call call;
	CUresult result =
		enter(&call, SIM_cuMemRelease, SIM_UNSAFE | SIM_DESTROYS);
	struct sim_allocation *allocation;

	if (result != BATONI_CU_SUCCESS)
		return result;
	allocation = find_locked(handle);
	if (!allocation) {
		sim_violation("cuMemRelease of what is no allocation");
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	}
	allocation->handles--;
	end_if_unused_locked(allocation);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle_p,
                            void *address)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuMemRetainAllocationHandle, 0);
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	block = sim_block_find_locked((uintptr_t)address);
	if (!block || !block->allocation)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	block->allocation->handles++;
	*handle_p = block->allocation->handle;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties_p,
                                       CUmemGenericAllocationHandle handle)
{
	struct sim_call call;
	CUresult result =
		enter(&call, SIM_cuMemGetAllocationPropertiesFromHandle, 0);
	const struct sim_allocation *allocation;

	if (result != BATONI_CU_SUCCESS)
		return result;
	allocation = find_locked(handle);
	if (!allocation || !properties_p)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	*properties_p = allocation->properties;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* ---- other processes ---- */

CUresult
cuMemExportToShareableHandle(void *handle_p, CUmemGenericAllocationHandle handle,
                             CUmemAllocationHandleType type,
                             unsigned long long flags)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuMemExportToShareableHandle, 0);
	const struct sim_allocation *allocation;
	int fd;

	if (result != BATONI_CU_SUCCESS)
		return result;
	allocation = find_locked(handle);
	if (!allocation || !handle_p || flags != 0 ||
	    type != BATONI_CU_HANDLE_FD ||
	    !(sim_allocation_types_locked(allocation) & type))
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	fd = fcntl(allocation->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return sim_leave(&call, CUDASIM_OPERATING_SYSTEM);
	memcpy(handle_p, &fd, sizeof(fd));
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* false: the descriptor is not one that was exported. */
static bool
read_label(int fd, struct label *label_p)
{
	struct stat file;
	off_t bytes;

	if (lseek(fd, 0, SEEK_CUR) != MARK || fstat(fd, &file) != 0)
		return false;
	bytes = file.st_size - LABEL_BYTES;
	return bytes > 0 &&
	       pread(fd, label_p, sizeof(*label_p), bytes) ==
	               (ssize_t)sizeof(*label_p) &&
	       label_p->magic == MAGIC && label_p->bytes == (uint64_t)bytes;
}

CUresult
cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle_p,
                               void *from, CUmemAllocationHandleType type)
{
	struct sim_call call;
	CUresult result =
		enter(&call, SIM_cuMemImportFromShareableHandle, SIM_UNSAFE);
	int fd = (int)(intptr_t)from;
	struct label label;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (type == BATONI_CU_HANDLE_FD && !sim.set.vmm_fd)
		return sim_leave(&call, BATONI_CU_NOT_SUPPORTED);
	if (!handle_p || type != BATONI_CU_HANDLE_FD || !read_label(fd, &label))
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	if (!sim_is_device(label.device) || !is_whole(label.bytes))
		return sim_leave(&call, BATONI_CU_NOT_SUPPORTED);
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return sim_leave(&call, CUDASIM_OPERATING_SYSTEM);
	return sim_leave(&call, add_locked(fd, &label, handle_p));
}

/* ---- addresses ---- */

static struct sim_reservation *
reservation_of_locked(CUdeviceptr pointer)
{
	struct sim_reservation *at = reservations;

	while (at && !sim_is_in(pointer, (uintptr_t)at->base, at->bytes))
		at = at->next;
	return at;
}

bool
sim_is_reserved_locked(CUdeviceptr pointer)
{
	return reservation_of_locked(pointer) != NULL;
}

bool
sim_reservation_of_locked(CUdeviceptr pointer, CUdeviceptr *base_p,
                          size_t *bytes_p)
{
	const struct sim_reservation *found = reservation_of_locked(pointer);

	if (!found)
		return false;
	*base_p = (uintptr_t)found->base;
	*bytes_p = found->bytes;
	return true;
}

long
sim_reservations_live_locked(void)
{
	long n = 0;

	for (struct sim_reservation *at = reservations; at; at = at->next)
		n++;
	return n;
}

/* Addresses without rights, at the hint if nothing is there; NULL. */
static unsigned char *
reserve(size_t bytes, size_t alignment, CUdeviceptr hint)
{
	unsigned char *whole, *base;
	size_t before;

	base = hint && hint % alignment == 0
	               ? mmap((void *)(uintptr_t)hint, bytes, PROT_NONE,
	                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
	                              MAP_FIXED_NOREPLACE,
	                      -1, 0)
	               : MAP_FAILED;
	if (base != MAP_FAILED)
		return base;
	whole = mmap(NULL, bytes + alignment, PROT_NONE,
	             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (whole == MAP_FAILED)
		return NULL;
	before = (alignment - (uintptr_t)whole % alignment) % alignment;
	base = whole + before;
	if (before > 0)
		munmap(whole, before);
	munmap(base + bytes, alignment - before);
	return base;
}

CUresult
cuMemAddressReserve(CUdeviceptr *pointer_p, size_t bytes, size_t alignment,
                    CUdeviceptr hint, unsigned long long flags)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuMemAddressReserve, SIM_UNSAFE);
	size_t least = (size_t)sim.set.granularity;
	struct sim_reservation *made;
	unsigned char *base, *reach;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!pointer_p || bytes == 0 || !is_whole(bytes) || flags != 0 ||
	    (alignment & (alignment - 1)) != 0 || !is_whole(hint))
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	if (alignment < least)
		alignment = least;
	if (bytes > SIZE_MAX / 4 || alignment > SIZE_MAX / 4)
		return sim_leave(&call, BATONI_CU_OUT_OF_MEMORY);
	base = reserve(bytes, alignment, hint);
	reach = base ? reserve(bytes, least, 0) : NULL;
	if (!reach) {
		if (base)
			munmap(base, bytes);
		return sim_leave(&call, BATONI_CU_OUT_OF_MEMORY);
	}
	made = sim_alloc(1, sizeof(*made));
	made->base = base;
	made->reach = reach;
	made->bytes = bytes;
	made->next = reservations;
	reservations = made;
	*pointer_p = (uintptr_t)base;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

static bool
has_mappings_locked(CUdeviceptr from, size_t bytes)
{
	for (struct sim_block *at = sim.blocks; at; at = at->next) {
		if (at->memory == SIM_MAPPING && at->device < from + bytes &&
		    from < at->device + at->bytes)
			return true;
	}
	return false;
}

CUresult
cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
	struct sim_call call;
	CUresult result =
		enter(&call, SIM_cuMemAddressFree, SIM_UNSAFE | SIM_DESTROYS);
	struct sim_reservation **at = &reservations, *found;

	if (result != BATONI_CU_SUCCESS)
		return result;
	while (*at && ((uintptr_t)(*at)->base != pointer ||
	               (*at)->bytes != bytes))
		at = &(*at)->next;
	found = *at;
	if (!found || has_mappings_locked(pointer, bytes)) {
		sim_violation(found ? "cuMemAddressFree of addresses that are "
		                      "still mapped"
		                    : "cuMemAddressFree of what is no "
		                      "reservation, or a part of one");
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	}
	*at = found->next;
	sim_bury_locked(found->base, found->bytes);
	found->freed = true;
	end_reservation_if_unused_locked(found);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* ---- mappings ---- */

/* Only all of an allocation is mapped. */
CUresult
cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuMemMap, SIM_UNSAFE);
	struct sim_allocation *allocation;
	struct sim_reservation *range;
	struct sim_block *block;
	unsigned char *reach;

	if (result != BATONI_CU_SUCCESS)
		return result;
	allocation = find_locked(handle);
	range = reservation_of_locked(pointer);
	if (!allocation || !range || flags != 0 || offset != 0 ||
	    bytes != allocation->bytes || !is_whole(pointer) ||
	    range->bytes - (pointer - (uintptr_t)range->base) < bytes ||
	    has_mappings_locked(pointer, bytes))
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	reach = range->reach + (pointer - (uintptr_t)range->base);
	if (mmap(reach, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
	         allocation->fd, 0) == MAP_FAILED)
		return sim_leave(&call, BATONI_CU_OUT_OF_MEMORY);
	block = sim_alloc(1, sizeof(*block));
	block->memory = SIM_MAPPING;
	block->device = pointer;
	block->bytes = block->mapped = bytes;
	block->reach = reach;
	block->range = range;
	range->mappings++;
	block->owner = allocation->properties.location.id;
	block->allocation = allocation;
	allocation->mappings++;
	sim_block_add_locked(NULL, block);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* An implicit synchronisation, of the contexts of all devices that may use the range. */
static CUresult
synchronize_locked(CUdeviceptr pointer, const char *why)
{
	const struct sim_block *block = sim_block_find_locked(pointer);
	unsigned devices = block ? block->access : 0;
	CUresult result = BATONI_CU_SUCCESS;

	for (unsigned i = 0;
	     i < sim.contexts_n && sim.set.implicit >= 2 &&
	     result == BATONI_CU_SUCCESS; i++) {
		if (sim.contexts[i]->live &&
		    devices & 1u << sim.contexts[i]->device)
			result = sim_synchronize_locked(sim.contexts[i], why,
			                                true);
	}
	return result;
}

/* Mappings lie side by side from the first byte to the last one. */
static bool
is_mapped_locked(CUdeviceptr pointer, size_t bytes)
{
	while (bytes > 0) {
		const struct sim_block *block = sim_block_find_locked(pointer);

		if (!block || block->memory != SIM_MAPPING ||
		    block->device != pointer || block->bytes > bytes)
			return false;
		pointer += block->bytes;
		bytes -= block->bytes;
	}
	return true;
}

CUresult
cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
	struct sim_call call;
	CUresult result =
		enter(&call, SIM_cuMemUnmap, SIM_UNSAFE | SIM_DESTROYS);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (bytes == 0 || !is_mapped_locked(pointer, bytes)) {
		sim_violation("cuMemUnmap of what is not mapped, or of a part of "
		              "a mapping");
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	}
	result = synchronize_locked(pointer, "cuMemUnmap");
	/* The lock was free meanwhile. */
	while (result != CUDASIM_TIMEOUT && bytes > 0 &&
	       is_mapped_locked(pointer, bytes)) {
		struct sim_block *block = sim_block_find_locked(pointer);

		pointer += block->bytes;
		bytes -= block->bytes;
		sim_block_free_locked(block, "cuMemUnmap");
	}
	return sim_leave(&call, result);
}

static CUresult
check_access_locked(const struct sim_block *block, const CUmemAccessDesc *access)
{
	CUdevice device = access->location.id;

	if (access->location.type != BATONI_CU_LOCATION_DEVICE)
		return BATONI_CU_NOT_SUPPORTED;
	if (!sim_is_device(device))
		return BATONI_CU_INVALID_DEVICE;
	if (access->flags == BATONI_CU_ACCESS_NONE) {
		if (block->entries == 0)
			return BATONI_CU_SUCCESS;
		sim_violation("access is taken from a mapping that a stream is "
		              "still to use");
		return BATONI_CU_INVALID_VALUE;
	}
	if (access->flags != BATONI_CU_ACCESS_READ_WRITE)
		return access->flags == CUDASIM_ACCESS_READ
		               ? BATONI_CU_NOT_SUPPORTED
		               : BATONI_CU_INVALID_VALUE;
	return sim_can_reach_locked(device, block->owner)
	               ? BATONI_CU_SUCCESS
	               : BATONI_CU_INVALID_DEVICE;
}

CUresult
cuMemGetAccess(unsigned long long *flags_p, const CUmemLocation *location,
               CUdeviceptr pointer)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuMemGetAccess, 0);
	const struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	block = sim_block_find_locked(pointer);
	if (!flags_p || !location || !block || block->memory != SIM_MAPPING)
		result = BATONI_CU_INVALID_VALUE;
	else if (location->type != BATONI_CU_LOCATION_DEVICE)
		result = BATONI_CU_NOT_SUPPORTED;
	else if (!sim_is_device(location->id))
		result = BATONI_CU_INVALID_DEVICE;
	else
		*flags_p = block->access & 1u << location->id
		                   ? BATONI_CU_ACCESS_READ_WRITE
		                   : BATONI_CU_ACCESS_NONE;
	return sim_leave(&call, result);
}

/* For all mappings, or none.  set: else it is only checked. */
static CUresult
give_access_locked(CUdeviceptr pointer, size_t bytes,
                   const CUmemAccessDesc *accesses, size_t n, bool set)
{
	CUresult result = BATONI_CU_SUCCESS;

	while (bytes > 0 && result == BATONI_CU_SUCCESS) {
		struct sim_block *block = sim_block_find_locked(pointer);

		for (size_t i = 0; i < n && result == BATONI_CU_SUCCESS; i++) {
			unsigned bit;

			if (!set) {
				result = check_access_locked(block, &accesses[i]);
				continue;
			}
			bit = 1u << accesses[i].location.id;
			block->access = accesses[i].flags
			                        ? block->access | bit
			                        : block->access & ~bit;
		}
		pointer += block->bytes;
		bytes -= block->bytes;
	}
	return result;
}

CUresult
cuMemSetAccess(CUdeviceptr pointer, size_t bytes,
               const CUmemAccessDesc *accesses, size_t n)
{
	struct sim_call call;
	CUresult result = enter(&call, SIM_cuMemSetAccess, SIM_UNSAFE);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (bytes == 0 || !accesses || n == 0 ||
	    !is_mapped_locked(pointer, bytes))
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	result = synchronize_locked(pointer, "cuMemSetAccess");
	if (result == BATONI_CU_SUCCESS && !is_mapped_locked(pointer, bytes))
		result = BATONI_CU_INVALID_VALUE;
	if (result == BATONI_CU_SUCCESS)
		result = give_access_locked(pointer, bytes, accesses, n, false);
	if (result == BATONI_CU_SUCCESS)
		give_access_locked(pointer, bytes, accesses, n, true);
	return sim_leave(&call, result);
}
