/* SPDX-License-Identifier: BSD-3-Clause */
/* The leaves of this build: their list, and what is asked of it by name. */
#ifndef BATONI_REGISTRY_H
#define BATONI_REGISTRY_H

#include "found.h"
#include "native.h"
#include "onesided.h"
#include "opening.h"
#include "pairs.h"
#include "side.h"
#include "staging.h"

/* What Baton is made of beside its engine: the leaves, as runtime/parts.c lists them. */
struct batoni_parts {
	/* Both end with NULL; the first that applies is taken. */
	const struct batoni_device_ops *const *devices;
	const struct batoni_world *const *worlds;
	/* The bootstrap of ranks of this process. */
	const struct batoni_threads_ops *threads;
	/* What opens the transport over a bootstrap, by its kind (enum batoni_bootstrap_kind). */
	const struct batoni_opening_ops *const *openings;
	/* The transport by the device's own library, over another one. */
	const struct batoni_native_ops *native;
	/* For devices whose memory the host cannot touch. */
	const struct batoni_staging_ops *staging;
	/* Messages between ranks of one node, over the transport that knows them. */
	const struct batoni_pairs_ops *pairs;
	/* The side channel between processes, where there is no MPI. */
	const struct batoni_side_ops *side;
	const struct batoni_onesided_ops *onesided;
	/* The libraries of the leaves; the last has no name. */
	const struct batoni_finder *finders;
};

extern const struct batoni_parts batoni_parts;

/* The device, or NULL: not in this build. */
const struct batoni_device_ops *batoni_device_find(enum baton_device id);
const struct batoni_device_ops *batoni_device_named(const char *name);
/* The device whose memory this native transport moves. */
const struct batoni_device_ops *
batoni_device_of_native(enum baton_transport id);
/* "BATON_DEVICE_HOST (1), ...": all devices. */
void batoni_device_list(char *text, size_t size);
/* Are its tables complete (tables.h)?  If not, the slot that it lacks is logged. */
bool batoni_device_is_whole(const struct batoni_device_ops *device);
/* For tests: the device that is found from now on under its id, which may be one that no other
 * has; NULL: those of the build. */
void batoni_device_put(const struct batoni_device_ops *device_or_null);
/* The device in this process, other than this one, whose stream the handle is or was, by its value
 * alone; NULL: there is none, or it cannot be told.  Any thread. */
const struct batoni_device_ops *
batoni_device_other(const struct batoni_device_ops *own, baton_stream stream);

/* A device whose library is in this process (memory.h), or NULL. */
const struct batoni_device_ops *batoni_device_present(void);

/* The world of this transport, or NULL: not in this build. */
const struct batoni_world *batoni_world_of(enum baton_transport id);
/* The first world that this process is part of, or NULL. */
const struct batoni_world *batoni_world_present(void);

/* The one-sided layer; staging; messages through shared memory; the side channel. */
static inline const struct batoni_onesided_ops *
batoni_onesided_layer(void)
{
	return batoni_parts.onesided;
}

static inline const struct batoni_staging_ops *
batoni_staging_layer(void)
{
	return batoni_parts.staging;
}

static inline const struct batoni_pairs_ops *
batoni_pairs_layer(void)
{
	return batoni_parts.pairs;
}

/* The transport by the device's own library, over another one. */
const struct batoni_native_ops *batoni_native_layer(void);
/* For tests: that one from now on; NULL: the build's. */
void batoni_native_put(const struct batoni_native_ops *native_or_null);

static inline const struct batoni_side_ops *
batoni_side_layer(void)
{
	return batoni_parts.side;
}

/* The bootstrap of ranks of this process. */
static inline const struct batoni_threads_ops *
batoni_threads_layer(void)
{
	return batoni_parts.threads;
}

/* What opens the transport over a bootstrap. */
static inline const struct batoni_opening_ops *
batoni_opening_of(enum batoni_bootstrap_kind kind)
{
	return batoni_parts.openings[kind];
}

#endif
