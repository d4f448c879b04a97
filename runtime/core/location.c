/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kind of memory a call names.  The call finds that out, since later the addresses may be
 * those of other memory.
 *
 * A communicator on a device whose memory is not the host's asks that device.  One on the
 * host need not ask, except for one error: memory of a device, which the host must not touch.
 * So once a device's library is in the process, because the program uses it, calls with a
 * buffer ask the library.  A creation of a communicator and a registration of a
 * window check whether it is loaded; they never load it, and once found it stays.
 */
#include "location.h"

#include "log.h"
#include "registry.h"

/* The memory of a device whose library is loaded; NULL: none is known to be.  Any thread. */
static _Atomic(const struct batoni_device_ops *) foreign;

void
batoni_location_watch(void)
{
	const struct batoni_device_ops *device;

	if (atomic_load(&foreign))
		return;
	device = batoni_device_present();
	if (!device)
		return;
	/* Release, pairs with the acquire in find_owner. */
	atomic_store_explicit(&foreign, device, memory_order_release);
	atomic_store_explicit(&batoni_engine.foreign, true,
	                      memory_order_relaxed);
}

/* The number of the device that has it, or -1. */
static int
find_owner(const void *pointer)
{
	const struct batoni_device_ops *device =
		atomic_load_explicit(&foreign, memory_order_acquire);

	return device ? device->memory->presence->owner(pointer) : -1;
}

bool
batoni_location_is_foreign(const void *pointer)
{
	return find_owner(pointer) >= 0;
}

static enum baton_status
check_foreign(const void *pointer)
{
	const struct batoni_device_ops *device;
	int owner = find_owner(pointer);

	if (owner < 0)
		return BATON_OK;
	device = atomic_load_explicit(&foreign, memory_order_acquire);
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%p is memory of %s %d, and this rank of the "
	                     "communicator is on the host; create it on "
	                     "%s (options->device, or BATON_DEVICE=%s), or copy "
	                     "to memory of the host",
	                     pointer, device->unit, owner, device->constant,
	                     device->name);
}

/* Are all the bytes in the allocation that was reported?  Unknown: yes. */
static bool
is_within(const struct batoni_memory_info *memory, const char *pointer,
          size_t bytes)
{
	const char *base = memory->base;

	return !base || bytes <= memory->bytes - (size_t)(pointer - base);
}

enum baton_status
batoni_location_find(struct baton_comm *comm, const void *pointer, size_t bytes,
                     unsigned *location_p)
{
	struct batoni_memory_info memory;
	enum baton_status status;

	*location_p = BATONI_MEMORY_HOST;
	if (!comm->inspects)
		return check_foreign(pointer);
	status = comm->device_ops->memory->inspect(comm->device, pointer, bytes,
	                                           &memory);
	if (status != BATON_OK)
		return status;
	if (memory.kind != BATONI_MEMORY_REGISTERED ||
	    is_within(&memory, pointer, bytes))
		*location_p = batoni_location_of(&memory);
	return BATON_OK;
}
