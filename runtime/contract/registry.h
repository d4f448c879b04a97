/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The leaves of this build: devices, transports, and the one-sided layer.  registry.c is
 * the one file of the engine that names them; a new leaf is a line there.
 */
#ifndef BATONI_REGISTRY_H
#define BATONI_REGISTRY_H

#include "native.h"
#include "onesided.h"
#include "opening.h"
#include "side.h"
#include "staging.h"

/* The device, or NULL: not in this build, or its tables are not complete (which is
 * logged). */
const struct batoni_device_ops *batoni_device_find(enum baton_device id);
/* For tests: the device that is found from now on under its id; NULL: those of the build. */
void batoni_device_put(const struct batoni_device_ops *device_or_null);
/* The first slot of its two tables that is NULL and may not be, by name; NULL: they are
 * complete.  Any thread. */
const char *batoni_device_missing(const struct batoni_device_ops *ops);

/* The device in this process whose stream the handle is or was, by its value alone; NULL: it cannot
 * be told.  Any thread. */
const struct batoni_device_ops *batoni_device_of_stream(baton_stream stream);

/* The memory of a device whose library is in this process (memory.h), or NULL. */
const struct batoni_memory_ops *batoni_memory_present(void);

/* The world of this transport, or NULL: not in this build. */
const struct batoni_world *batoni_world_of(enum baton_transport id);
/* The first world that this process is part of, or NULL. */
const struct batoni_world *batoni_world_present(void);

/* The one-sided layer. */
const struct batoni_onesided_ops *batoni_onesided_layer(void);

/* Staging, for devices whose memory the host cannot touch. */
const struct batoni_staging_ops *batoni_staging_layer(void);

/* The transport by the device's own library, over another one. */
const struct batoni_native_ops *batoni_native_layer(void);
/* For tests: that one from now on; NULL: the build's. */
void batoni_native_put(const struct batoni_native_ops *native_or_null);

/* The side channel between processes, where there is no MPI. */
const struct batoni_side_ops *batoni_side_layer(void);

/* The bootstrap of ranks of this process. */
const struct batoni_threads_ops *batoni_threads_layer(void);

/* What opens the transport over a bootstrap. */
const struct batoni_opening_ops *batoni_opening_of(enum batoni_bootstrap_kind kind);

#endif
