/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of the fake device, stricter than a GPU's.
 *
 *   - The host cannot touch a block of it: its pages have no rights (PROT_NONE).  The
 *     fake's own copies go through a second mapping of the same memory.
 *   - Copies run on a thread of their own, late, and end in any order.  Until a copy has
 *     ended its target holds rubbish, and its source is read at the last moment.
 *   - They can be held: then a copy ends only when the test says which.
 *   - Several that are started together end one by one; their ticket ends with the last.
 *   - Pinned memory has a budget.
 *   - Other processes map a block by its descriptor, and reach it as their own.  One made
 *     beside 256 others cannot be shared.
 *   - Counted as violations (fake_device_violations): a copy past the end of a block, or of
 *     host memory that is not pinned; copies started together that touch each other, go in
 *     two directions, or have the same kind of memory on both sides; a
 *     block freed or unmapped, or the device closed, with copies under way; a ticket asked
 *     again after its end; pinned memory that is freed twice or never; a block of this
 *     process mapped, one mapped twice or with another length; what is unmapped twice or never.
 *
 * The device must be open.  Any thread may call any of these.
 */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include "fake_device.h"

extern const struct batoni_memory_ops batoni_fake_memory_ops;

/* Device memory, zeroed.  Never NULL; 0 bytes are a block too. */
void *fake_memory_alloc(size_t bytes);
void fake_memory_free(void *block);

/* Is the pointer in a block of it? */
bool fake_memory_has(const void *pointer);

/* What kernels of the program would do: either side may be device memory. */
void fake_memory_copy(void *to, const void *from, size_t bytes);

/* Let no copy end by itself, or let them again. */
void fake_memory_hold(bool hold);
/* How many copies are under way: started, and not ended. */
size_t fake_memory_copies(void);
/* How many calls have started copies, or tried to: copy_start and copies_start. */
size_t fake_memory_starts(void);
/* End one of them: 0 is the oldest. */
void fake_memory_end(size_t which);
/* Each copy that ends by itself takes this long more. */
void fake_memory_delay(unsigned us);

/* At most so many bytes are pinned at a time; SIZE_MAX: no bound, as at first. */
void fake_memory_budget(size_t bytes);
size_t fake_memory_pinned(void);
/* Pinned memory may be left when the device is closed: the program aborts communicators
 * over a library that may still reach it. */
void fake_memory_forgive(void);

/* fake_device.c's.  Are the bytes in a pinned block?  The caller has fake_lock. */
bool fake_memory_pinned_holds_locked(const void *pointer, size_t bytes);

/* fake_device.c's: the first open, the last close. */
enum baton_status fake_memory_start(void);
void fake_memory_stop(void);

#endif
