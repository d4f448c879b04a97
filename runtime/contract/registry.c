/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry.h"

#include "log.h"
#include "tables.h"


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
	missing = batoni_table_missing(&batoni_device_table, device);
	if (missing)
		batoni_log(BATONI_LOG_ERROR, "the device %s has no %s",
		           device->name, missing);
	return missing ? NULL : device;
}

const struct batoni_device_ops *
batoni_device_of_stream(baton_stream stream)
{
	for (size_t i = 0; batoni_parts.devices[i]; i++) {
		if (batoni_parts.devices[i]->stream_is_ours(stream))
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

		if (memory->presence && memory->presence->present())
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
