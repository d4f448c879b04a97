/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The samples' own use of the CUDA driver: memory of the device that a
 * communicator is on, and copies.  A program of the CUDA runtime would call
 * cudaMalloc and cudaMemcpyAsync; the samples load the driver as Baton does, so
 * that they build and start without CUDA.
 *
 * A thread uses a struct device at a time.
 */
#ifndef SAMPLES_DEVICE_H
#define SAMPLES_DEVICE_H

#include <baton.h>

struct device;

/* NULL: the communicator is on the host.  Where CUDA fails, these calls say so
 * and end the program. */
struct device *device_open(struct baton_comm *comm);
void device_close(struct device *device);

/* Its primary context is current between the two; afterwards what was. */
void device_enter(struct device *device);
void device_leave(struct device *device);
/* The stream of device_copy, a CUstream. */
void *device_stream(const struct device *device);

/* Memory of the device, zeroed.  Both calls may wait for all streams of the
 * device: call them before a stream waits for a message. */
void *device_alloc(struct device *device, size_t bytes);
void device_free(struct device *device, void *memory);

/* Is it memory of a device, which the host must not touch? */
bool device_owns(struct device *device, const void *memory);

/* Memory of the host that copies on a stream reach without a detour. */
void *device_pinned_alloc(struct device *device, size_t bytes);
void device_pinned_free(struct device *device, void *memory);

/* Enqueue a copy on a stream of the communicator or of the program; memory of the host
 * must be pinned. */
void device_enqueue_copy(struct device *device, baton_stream stream, void *to,
                         const void *from, size_t bytes);

/* Copy between host and device, or within one, and wait for the end. */
void device_copy(struct device *device, void *to, const void *from,
                 size_t bytes);

#endif
