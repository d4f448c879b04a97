/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects that programs name by a pointer: communicators, queues and windows.  A destroyed
 * object leaves a tombstone: its memory stays, marked as dead, so that a later call with the
 * pointer returns INVALID.  The last BATONI_HANDLES_KEPT tombstones of a kind are kept.
 * Beyond that, the memory of the oldest serves a new object, and an old pointer to it then
 * names the new one.  (The oldest window is freed instead, since windows differ in size.)
 */
#ifndef BATONI_HANDLE_H
#define BATONI_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* A member of the object.  The object may have others before it. */
struct batoni_handle {
	_Atomic unsigned alive; /* BATONI_ALIVE, or it is not */
	struct batoni_handle *next; /* among the kept ones, oldest first */
};

#define BATONI_ALIVE 0xba70a11u
#define BATONI_HANDLES_KEPT 64u

/* The tombstones of one kind of object. */
struct batoni_handles {
	pthread_mutex_t lock;
	struct batoni_handle *first, *last; /* the kept ones */
	unsigned kept;
	size_t size;   /* of the object */
	size_t offset; /* of its struct batoni_handle */
};

#define BATONI_HANDLES(type)                                                  \
	{.lock = PTHREAD_MUTEX_INITIALIZER, .size = sizeof(struct type),      \
	 .offset = offsetof(struct type, handle)}

/* Memory for an object, zeroed and not alive yet; NULL: out of memory.  Any thread. */
void *batoni_handle_new(struct batoni_handles *handles);
/* Mark it as alive: calls may use it from now on. */
void batoni_handle_start(struct batoni_handle *handle);
/* Zero it and keep its memory as a tombstone.  No thread uses it any more. */
void batoni_handle_retire(struct batoni_handles *handles, void *object);

/* The same for objects that differ in size, each from batoni_alloc.  The content stays;
 * only the mark changes. */
void batoni_handle_bury(struct batoni_handles *handles, void *object);

static inline bool
batoni_is_alive(const struct batoni_handle *handle)
{
	return atomic_load_explicit(&handle->alive, memory_order_relaxed) ==
	       BATONI_ALIVE;
}

#endif
