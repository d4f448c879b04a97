/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry.h"

#include <stdio.h>
#include <string.h>

#include "log.h"
#include "tables.h"

static const struct batoni_device_ops *put; /* a test's, or NULL */

void
batoni_device_put(const struct batoni_device_ops *device_or_null)
{
	put = device_or_null;
}

/* Device i, where a test's takes the place of one with its id, or is one more; NULL: there are
 * no more.  *name_p: its name, or that of the one whose place it takes. */
static const struct batoni_device_ops *
device_at(size_t i, const char **name_p)
{
	const struct batoni_device_ops *const *devices = batoni_parts.devices;
	const struct batoni_device_ops *device = put;
	bool is_new = put != NULL;
	size_t n = 0;

	for (; devices[n]; n++)
		is_new &= !put || devices[n]->id != put->id;
	if (i < n && !(put && put->id == devices[i]->id))
		device = devices[i];
	if (i > n || (i == n && !is_new))
		return NULL;
	*name_p = i < n ? devices[i]->name : put->name;
	return device;
}

const struct batoni_device_ops *
batoni_device_find(enum baton_device id)
{
	const struct batoni_device_ops *device;
	const char *own;

	for (size_t i = 0; (device = device_at(i, &own)); i++) {
		if (device->id == id)
			return device;
	}
	return NULL;
}

const struct batoni_device_ops *
batoni_device_named(const char *name)
{
	const struct batoni_device_ops *device;
	const char *own;

	for (size_t i = 0; (device = device_at(i, &own)); i++) {
		/* What takes the place of a device has its name too. */
		if (strcmp(own, name) == 0)
			return device;
	}
	return NULL;
}

const struct batoni_device_ops *
batoni_device_of_native(enum baton_transport id)
{
	const struct batoni_device_ops *device;
	const char *own;

	for (size_t i = 0; (device = device_at(i, &own)); i++) {
		if (device->native == id)
			return device;
	}
	return NULL;
}

void
batoni_device_list(char *text, size_t size)
{
	const struct batoni_device_ops *device;
	const char *own;
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; (device = device_at(i, &own)) && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s (%d)",
		                         i > 0 ? ", " : "", device->constant,
		                         (int)device->id);
}

bool
batoni_device_is_whole(const struct batoni_device_ops *device)
{
	const char *missing =
		batoni_table_missing(&batoni_device_table, device);

	if (missing)
		batoni_log(BATONI_LOG_ERROR, "the device %s has no %s",
		           device->name, missing);
	return !missing;
}

const struct batoni_device_ops *
batoni_device_other(const struct batoni_device_ops *own, baton_stream stream)
{
	const struct batoni_device_ops *device;

	for (size_t i = 0; (device = batoni_parts.devices[i]); i++) {
		if (device != own && device->stream_is_ours(stream))
			return device;
	}
	return NULL;
}

const struct batoni_device_ops *
batoni_device_present(void)
{
	const struct batoni_device_ops *device;
	const char *own;

	for (size_t i = 0; (device = device_at(i, &own)); i++) {
		const struct batoni_presence_ops *presence =
			device->memory->presence;

		if (presence && presence->present())
			return device;
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
