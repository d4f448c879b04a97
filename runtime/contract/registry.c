/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry.h"

#include "log.h"

/* transport/bootstrap/mpi/bootstrap.c */
extern const struct batoni_world batoni_world_mpi;

/* transport/bootstrap/socket/bootstrap.c */
extern const struct batoni_world batoni_world_tcp;

/* runtime/device/cuda/cuda.c */
extern const struct batoni_device_ops batoni_device_cuda_ops;

static const struct batoni_device_ops *const devices[] = {
	&batoni_device_host_ops,
	&batoni_device_cuda_ops,
	NULL,
};

static const struct batoni_world *const worlds[] = {
#ifdef BATONI_WITH_MPI
	&batoni_world_mpi,
#endif
	&batoni_world_tcp,
	NULL,
};

struct slot {
	const char *name;
	bool set;
};

#define SLOT(table, name) { #name, (table)->name }

static const char *
first_unset(const struct slot slots[], size_t n)
{
	size_t i = 0;

	while (i < n && slots[i].set)
		i++;
	return i < n ? slots[i].name : NULL;
}

static const char *
memory_missing(const struct batoni_memory_ops *memory)
{
	bool shares = memory->share || memory->map || memory->unmap;
	bool lends = memory->enter || memory->leave || memory->flush;
	const struct slot slots[] = {
		SLOT(memory, look),
		SLOT(memory, pinned_alloc),
		SLOT(memory, pinned_free),
		SLOT(memory, copy_start),
		SLOT(memory, copy_test),
		SLOT(memory, why),
		SLOT(memory, error_text),
		SLOT(memory, health),
		{"present", !memory->owner || memory->present},
		{"owner", !memory->present || memory->owner},
		{"enter", !lends || memory->enter},
		{"leave", !lends || memory->leave},
		{"flush", !lends || memory->flush},
		{"share", !shares || memory->share},
		{"map", !shares || memory->map},
		{"unmap", !shares || memory->unmap},
		{"block_alloc", !memory->block_free || memory->block_alloc},
		{"block_free", !memory->block_alloc || memory->block_free},
		{"pin", !memory->unpin || memory->pin},
		{"unpin", !memory->pin || memory->unpin},
	};

	return first_unset(slots, sizeof(slots) / sizeof(slots[0]));
}

const char *
batoni_device_missing(const struct batoni_device_ops *ops)
{
	bool puts = ops->why_no_puts || ops->stream_number || ops->stream_put;
	const struct slot slots[] = {
		SLOT(ops, name),
		SLOT(ops, memory),
		SLOT(ops, open),
		SLOT(ops, close),
		SLOT(ops, stream_create),
		SLOT(ops, stream_destroy),
		SLOT(ops, stream_check),
		SLOT(ops, stream_idle),
		SLOT(ops, enqueue),
		SLOT(ops, release),
		{"unreached", !ops->collect || ops->unreached},
		{"collect", !ops->unreached || ops->collect},
		{"launch_waits", !ops->in_engine || ops->launch_waits},
		SLOT(ops, words_alloc),
		SLOT(ops, words_free),
		SLOT(ops, mark),
		SLOT(ops, mark_done),
		SLOT(ops, mark_drop),
		{"why_no_puts", !puts || ops->why_no_puts},
		{"stream_number", !puts || ops->stream_number},
		{"stream_put", !puts || ops->stream_put},
	};
	const char *missing = first_unset(slots,
	                                  sizeof(slots) / sizeof(slots[0]));

	return missing ? missing : memory_missing(ops->memory);
}

static const struct batoni_device_ops *put; /* a test's, or NULL */

void
batoni_device_put(const struct batoni_device_ops *device_or_null)
{
	put = device_or_null;
}

const struct batoni_device_ops *
batoni_device_find(enum baton_device id)
{
	const struct batoni_device_ops *device = NULL;
	const char *missing;

	for (size_t i = 0; devices[i] && !device; i++) {
		if (devices[i]->id == id)
			device = devices[i];
	}
	if (put && put->id == id)
		device = put;
	if (!device)
		return NULL;
	missing = batoni_device_missing(device);
	if (missing)
		batoni_log(BATONI_LOG_ERROR, "the device %s has no %s",
		           device->name, missing);
	return missing ? NULL : device;
}

const struct batoni_device_ops *
batoni_device_of_stream(baton_stream stream)
{
	for (size_t i = 0; devices[i]; i++) {
		if (devices[i]->stream_is_ours &&
		    devices[i]->stream_is_ours(stream))
			return devices[i];
	}
	return NULL;
}

const struct batoni_memory_ops *
batoni_memory_present(void)
{
	for (size_t i = 0; devices[i]; i++) {
		bool replaced = put && put->id == devices[i]->id;
		const struct batoni_memory_ops *memory =
			(replaced ? put : devices[i])->memory;

		if (memory->present && memory->present())
			return memory;
	}
	return NULL;
}

const struct batoni_world *
batoni_world_present(void)
{
	for (size_t i = 0; worlds[i]; i++) {
		if (worlds[i]->present())
			return worlds[i];
	}
	return NULL;
}

const struct batoni_world *
batoni_world_of(enum baton_transport id)
{
	size_t i = 0;

	while (worlds[i] && worlds[i]->id != id)
		i++;
	return worlds[i];
}

const struct batoni_onesided_ops *
batoni_onesided_layer(void)
{
	return &batoni_onesided_ops;
}

const struct batoni_staging_ops *
batoni_staging_layer(void)
{
	return &batoni_staging_ops;
}

static const struct batoni_native_ops *put_native; /* a test's, or NULL */

void
batoni_native_put(const struct batoni_native_ops *native_or_null)
{
	put_native = native_or_null;
}

const struct batoni_native_ops *
batoni_native_layer(void)
{
	return put_native ? put_native : &batoni_native_ops;
}

const struct batoni_side_ops *
batoni_side_layer(void)
{
	return &batoni_side_ops;
}

const struct batoni_threads_ops *
batoni_threads_layer(void)
{
	return &batoni_threads_ops;
}

const struct batoni_opening_ops *
batoni_opening_of(enum batoni_bootstrap_kind kind)
{
	static const struct batoni_opening_ops *const openings[] = {
		[BATONI_BOOTSTRAP_THREADS] = &batoni_opening_local_ops,
#ifdef BATONI_WITH_MPI
		[BATONI_BOOTSTRAP_MPI] = &batoni_opening_mpi_ops,
#endif
		[BATONI_BOOTSTRAP_SOCKET] = &batoni_opening_tcp_ops,
	};

	return openings[kind];
}
