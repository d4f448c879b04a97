/* SPDX-License-Identifier: BSD-3-Clause */
#include "handle.h"

#include <string.h>

#include "mem.h"

static struct batoni_handle *
handle_of(const struct batoni_handles *handles, void *object)
{
	return (struct batoni_handle *)(void *)((char *)object +
	                                        handles->offset);
}

void *
batoni_handle_new(struct batoni_handles *handles)
{
	struct batoni_handle *handle = NULL;

	pthread_mutex_lock(&handles->lock);
	if (handles->kept >= BATONI_HANDLES_KEPT) {
		handle = handles->first;
		handles->first = handle->next;
		handles->kept--;
	}
	pthread_mutex_unlock(&handles->lock);
	if (!handle)
		return batoni_alloc(1, handles->size);
	handle->next = NULL;
	batoni_mem_keep(-1);
	return (char *)handle - handles->offset;
}

void
batoni_handle_start(struct batoni_handle *handle)
{
	atomic_store_explicit(&handle->alive, BATONI_ALIVE,
	                      memory_order_release);
}

/* Append it as the newest tombstone. */
static void
keep_locked(struct batoni_handles *handles, struct batoni_handle *handle)
{
	handle->next = NULL;
	if (handles->kept++)
		handles->last->next = handle;
	else
		handles->first = handle;
	handles->last = handle;
	batoni_mem_keep(1);
}

void
batoni_handle_retire(struct batoni_handles *handles, void *object)
{
	memset(object, 0, handles->size);
	pthread_mutex_lock(&handles->lock);
	keep_locked(handles, handle_of(handles, object));
	pthread_mutex_unlock(&handles->lock);
}

void
batoni_handle_bury(struct batoni_handles *handles, void *object)
{
	struct batoni_handle *handle = handle_of(handles, object);
	struct batoni_handle *oldest = NULL;

	atomic_store(&handle->alive, 0);
	pthread_mutex_lock(&handles->lock);
	keep_locked(handles, handle);
	if (handles->kept > BATONI_HANDLES_KEPT) {
		oldest = handles->first;
		handles->first = oldest->next;
		handles->kept--;
		batoni_mem_keep(-1);
	}
	pthread_mutex_unlock(&handles->lock);
	if (oldest)
		batoni_free((char *)oldest - handles->offset);
}
