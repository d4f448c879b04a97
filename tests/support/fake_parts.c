/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_parts.h"

#include <stdlib.h>

struct fake_parts *
fake_parts_create(size_t bytes, size_t n, const struct batoni_follow *follow,
                  bool (*poll)(struct fake_kernel *kernel, size_t part))
{
	size_t most = n + (follow ? follow->count : 0);
	struct fake_parts *parts = calloc(1, bytes);

	if (!parts)
		return NULL;
	parts->base.poll = poll;
	parts->here = calloc(most, sizeof(*parts->here));
	parts->of = calloc(n, sizeof(*parts->of));
	parts->streams = calloc(most, sizeof(*parts->streams));
	if (parts->here && parts->of && parts->streams)
		return parts;
	fake_parts_free(parts);
	return NULL;
}

void
fake_parts_free(struct fake_parts *parts)
{
	if (!parts)
		return;
	free(parts->here);
	free(parts->of);
	free(parts->streams);
	free(parts);
}

/* The stream's part, among those from `first` on; a new one if it has none. */
static size_t
part_of(struct fake_parts *parts, size_t first, baton_stream stream)
{
	for (size_t i = first; i < parts->count; i++) {
		if (parts->streams[i] == stream)
			return i;
	}
	parts->streams[parts->count] = stream;
	return parts->count++;
}

enum baton_status
fake_parts_lay_out(struct fake_parts *parts,
                   struct batoni_transfer *const *transfers, size_t n,
                   const struct batoni_follow *follow, fake_lane_fn lane,
                   void *owner, baton_stream *observe_p)
{
	for (size_t i = 0; follow && i < follow->count; i++)
		part_of(parts, 0, follow->streams[i]);
	for (size_t i = 0; !follow && i < n; i++)
		parts->of[i] = part_of(parts, 0, transfers[i]->stream);
	parts->callers = parts->count;
	for (size_t i = 0; follow && i < n; i++) {
		baton_stream stream = NULL;
		enum baton_status status = lane(owner, transfers[i], &stream);

		if (status != BATON_OK)
			return status;
		parts->of[i] = part_of(parts, parts->callers, stream);
	}
	for (size_t i = 0; i < n; i++)
		observe_p[i] = parts->streams[parts->of[i]];
	parts->left = parts->count;
	return BATON_OK;
}

enum baton_status
fake_parts_launch(struct fake_parts *parts)
{
	return fake_device_launch(&parts->base, parts->streams, parts->count);
}

void
fake_parts_arrive(struct fake_parts *parts, size_t part)
{
	if (parts->here[part])
		return;
	parts->here[part] = true;
	parts->arrived += part < parts->callers;
	fake_device_kick();
}

void
fake_lane_destroy(struct batoni_device *device, baton_stream lane)
{
	while (lane && device->ops->stream_destroy(device, lane) == BATON_ERR_BUSY)
		fake_device_step(lane, 0);
}
