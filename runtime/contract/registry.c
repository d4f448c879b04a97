/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry.h"

#include "log.h"

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

	for (size_t i = 0; batoni_parts.devices[i] && !device; i++) {
		if (batoni_parts.devices[i]->id == id)
			device = batoni_parts.devices[i];
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
	for (size_t i = 0; batoni_parts.devices[i]; i++) {
		if (batoni_parts.devices[i]->stream_is_ours &&
		    batoni_parts.devices[i]->stream_is_ours(stream))
			return batoni_parts.devices[i];
	}
	return NULL;
}

const struct batoni_memory_ops *
batoni_memory_present(void)
{
	for (size_t i = 0; batoni_parts.devices[i]; i++) {
		bool replaced = put && put->id == batoni_parts.devices[i]->id;
		const struct batoni_memory_ops *memory =
			(replaced ? put : batoni_parts.devices[i])->memory;

		if (memory->present && memory->present())
			return memory;
	}
	return NULL;
}

const struct batoni_world *
batoni_world_present(void)
{
	for (size_t i = 0; batoni_parts.worlds[i]; i++) {
		if (batoni_parts.worlds[i]->present())
			return batoni_parts.worlds[i];
	}
	return NULL;
}

const struct batoni_world *
batoni_world_of(enum baton_transport id)
{
	size_t i = 0;

	while (batoni_parts.worlds[i] && batoni_parts.worlds[i]->id != id)
		i++;
	return batoni_parts.worlds[i];
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
	return put_native ? put_native : batoni_parts.native;
}
