/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device that copies host memory, written against the contracts alone: what a new kind of device
 * takes (docs/design.md, "What a new part touches").
 *
 * It is asynchronous and has none of the optional tables.  A stream is a thread, which calls
 * `reached` and waits for words itself.  Its memory is memory of the host that nobody but the
 * device may interpret: the bytes of each block lie there under a key of the block, so that
 * what reads, writes or moves them other than by the device's copies gets them wrong.
 */
#ifndef COPY_DEVICE_H
#define COPY_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "device.h"

#define COPY_DEVICE_ID ((enum baton_device)7)

extern const struct batoni_device_ops copy_device_ops;
extern const struct batoni_memory_ops copy_memory_ops;

/* Memory of the device, zeroed; never NULL.  Any thread. */
void *copy_memory_alloc(size_t bytes);
void copy_memory_free(void *block);
bool copy_memory_has(const void *pointer);
/* What a kernel of the program would do; either side may be any memory.  Any thread. */
void copy_memory_copy(void *to, const void *from, size_t bytes);

#endif
