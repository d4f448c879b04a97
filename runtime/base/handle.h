/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects that programs name by a pointer: communicators, queues and windows.  A program may
 * use such a pointer after it has destroyed the object, and is told INVALID: the
 * memory is never given back, it is kept as it was but for the mark, and the oldest
 * of those kept is used again for a new object when there are many.  Only then an old
 * pointer is taken for the new one.  (Windows differ in size: the oldest one is freed.)
 */
#ifndef BATONI_HANDLE_H
#define BATONI_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* In the object; what comes before it is the object's own. */
struct batoni_handle {
	_Atomic unsigned alive; /* BATONI_ALIVE, or it is not */
	struct batoni_handle *next; /* among the kept ones, oldest first */
};

#define BATONI_ALIVE 0xba70a11u
#define BATONI_HANDLES_KEPT 64u

/* Of one kind of object. */
struct batoni_handles {
	pthread_mutex_t lock;
	struct batoni_handle *first, *last; /* the kept ones */
	unsigned kept;
	size_t size;   /* of the object */
	size_t offset; /* of its struct batoni_handle */
};

#define BATONI_HANDLES(type)                                                  \
	{.lock = PTHREAD_MUTEX_INITIALIZER,                                   \
	 .size = sizeof(struct type),                                         \
	 .offset = offsetof(struct type, handle)}

/* Zeroed, not alive yet; NULL: no memory.  Any thread. */
void *batoni_handle_new(struct batoni_handles *handles);
/* It is alive: calls may use it. */
void batoni_handle_start(struct batoni_handle *handle);
/* Zero it and keep its memory.  Nothing of it is used any more. */
void batoni_handle_retire(struct batoni_handles *handles, void *object);

/* The same for objects of several sizes, each from batoni_alloc: it stays as it is, but
 * for the mark. */
void batoni_handle_bury(struct batoni_handles *handles, void *object);

static inline bool
batoni_is_alive(const struct batoni_handle *handle)
{
	return atomic_load_explicit(&handle->alive, memory_order_relaxed) ==
	       BATONI_ALIVE;
}

#endif
