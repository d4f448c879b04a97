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

void
batoni_handle_retire(struct batoni_handles *handles, void *object)
{
	struct batoni_handle *handle = handle_of(handles, object);

	atomic_store(&handle->alive, 0);
	memset(object, 0, handles->size);
	batoni_mem_keep(1);
	pthread_mutex_lock(&handles->lock);
	if (handles->kept++)
		handles->last->next = handle;
	else
		handles->first = handle;
	handles->last = handle;
	pthread_mutex_unlock(&handles->lock);
}
