/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows that puts by NCCL go into (native_puts.h; nccl_puts.c has the puts).
 *
 * Registering is collective, and a rank that fails leaves the others in NCCL; so
 * the layer has all ranks `inspect` first.  What NCCL does not check, and writes anywhere for:
 * the bounds, which the layer checks at the call; and that the parts are of the same
 * length, at the same offset of equal allocations, one window in each (its addresses of
 * peers follow from its own).  NCCL takes no call while one is being launched: a window is
 * registered when the call before is over, and while it waits for that (`registers`) none
 * is begun; it ends likewise.  Whether a put is staged never changes, so a window ends when no put
 * reads it any more (let_go).  A window that was registered when the communicator broke ends
 * with NCCL's communicator.
 *
 * Threads and locks.  The thread that registers, with the lock of the device, but not the driver's; the list of windows
 * is shared with the driver, under windows_lock.
 */
#include "nccl_windows.h"

#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "mem.h"

static struct batoni_nccl *
to_nccl(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct batoni_nccl, base);
}

static bool
overlaps(const struct batoni_native_window *window, const char *from, size_t bytes)
{
	return from < window->base + window->bytes && window->base < from + bytes;
}

/* A window that has some of these bytes.  Under windows_lock. */
static const struct batoni_native_window *
find_window_locked(struct batoni_nccl_puts *puts, const char *from, size_t bytes)
{
	for (struct batoni_list_node *at = puts->windows.next;
	     at != &puts->windows; at = at->next) {
		const struct batoni_native_window *window = batoni_container_of(
			at, struct batoni_native_window, link);

		if (overlaps(window, from, bytes))
			return window;
	}
	return NULL;
}

bool
batoni_nccl_window_has(struct batoni_nccl_puts *puts, const char *from, size_t bytes)
{
	const struct batoni_native_window *window;
	bool within;

	pthread_mutex_lock(&puts->windows_lock);
	window = find_window_locked(puts, from, bytes);
	within = window && window->handle && !window->ending &&
	         from >= window->base &&
	         bytes <= window->bytes - (size_t)(from - window->base);
	pthread_mutex_unlock(&puts->windows_lock);
	return within;
}

/* Check what NCCL requires of the allocation. */
static enum baton_status
check_block(struct batoni_nccl *nccl, const char *base,
            const struct batoni_memory_shared *shared)
{
	struct batoni_nccl_puts *puts = nccl->puts;
	bool taken;

	if (shared->fd < 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "NCCL takes memory of cuMemCreate for a "
		                     "window, as baton_mem_alloc gives it");
	if (shared->offset % BATONI_NCCL_WINDOW_ALIGNMENT != 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "for NCCL it has to begin at a multiple of "
		                     "%d bytes of its allocation; it begins at "
		                     "%zu",
		                     BATONI_NCCL_WINDOW_ALIGNMENT,
		                     shared->offset);
	pthread_mutex_lock(&puts->windows_lock);
	taken = find_window_locked(puts, base - shared->offset,
	                           shared->bytes) != NULL;
	pthread_mutex_unlock(&puts->windows_lock);
	if (taken)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "another window is in its allocation, and "
		                     "NCCL takes one in each");
	return BATON_OK;
}

enum baton_status
batoni_nccl_window_inspect(struct batoni_transport *transport, const void *base, size_t bytes,
                           struct batoni_native_part *part_p)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	const struct batoni_memory_ops *memory = nccl->device->ops->memory;
	struct batoni_memory_shared shared;
	struct batoni_memory_info info;
	enum baton_status status =
		memory->inspect(nccl->device, base, bytes, &info);

	if (status == BATON_OK && (info.kind != BATONI_MEMORY_DEVICE ||
	                           info.owner != nccl->device->number))
		status = batoni_refuse(BATON_ERR_UNSUPPORTED,
		                       "it is not memory of GPU %d",
		                       nccl->device->number);
	if (status == BATON_OK && !memory->sharing)
		status = batoni_refuse(BATON_ERR_UNSUPPORTED,
		                       "the device does not say what its memory is");
	if (status == BATON_OK)
		status = memory->sharing->share(nccl->device, base, bytes,
		                                &shared);
	if (status != BATON_OK)
		return status;
	status = check_block(nccl, base, &shared);
	if (shared.fd >= 0)
		close(shared.fd);
	*part_p = (struct batoni_native_part){
		.bytes = bytes,
		.offset = shared.offset,
		.block_bytes = shared.bytes,
	};
	return status;
}

/* Under the lock of the device: an abort frees NCCL's communicator. */
static enum baton_status
refuse_result(struct batoni_nccl *nccl, const char *call, ncclResult_t result)
{
	char text[256];

	batoni_nccl_describe(nccl->api, nccl->puts->lane->comm, result, text,
	                     sizeof(text));
	return batoni_refuse(BATON_ERR_NCCL, "%s: %s", call, text);
}

static void
forget_window(struct batoni_nccl_puts *puts, struct batoni_native_window *window)
{
	pthread_mutex_lock(&puts->windows_lock);
	batoni_list_remove(&window->link);
	pthread_mutex_unlock(&puts->windows_lock);
	atomic_store(&puts->registers, false);
	batoni_free(window);
}

ncclResult_t
batoni_nccl_puts_state(const struct batoni_nccl *nccl)
{
	ncclResult_t state = BATONI_NCCL_SUCCESS, result;

	result = nccl->api->comm_error(nccl->puts->lane->comm, &state);
	return result == BATONI_NCCL_SUCCESS ? state : result;
}

/* Tell NCCL of the window when the call before is over.  Under the lock of the device. */
static ncclResult_t
advance_window(struct batoni_nccl *nccl, struct batoni_native_window *window)
{
	struct batoni_nccl_puts *puts = nccl->puts;
	ncclResult_t state = batoni_nccl_puts_state(nccl);

	if (window->told || state != BATONI_NCCL_SUCCESS)
		return state;
	window->told = true;
	state = nccl->api->window_register(puts->lane->comm, window->base,
	                                   window->bytes, &window->handle,
	                                   BATONI_NCCL_WINDOW_SYMMETRIC);
	atomic_store(&puts->registers, false);
	return state;
}

/* PENDING; OK: NCCL has ended its part; else why not. */
static enum baton_status
move_window(struct batoni_nccl *nccl, struct batoni_native_window *window)
{
	struct batoni_memory_guard guard;
	enum baton_status status =
		batoni_nccl_enter(nccl, &guard, window->limit_ns);
	ncclResult_t state = BATONI_NCCL_SUCCESS;

	if (status != BATON_OK)
		return status;
	if (atomic_load(&nccl->aborting))
		status = batoni_refuse(BATON_ERR_ABORTED,
		                       "the NCCL transport was aborted");
	else
		state = advance_window(nccl, window);
	if (state == BATONI_NCCL_IN_PROGRESS)
		status = BATON_PENDING;
	else if (state != BATONI_NCCL_SUCCESS)
		status = refuse_result(nccl, "ncclCommWindowRegister", state);
	batoni_nccl_leave(nccl, &guard);
	return status;
}

enum baton_status
batoni_nccl_window_open(struct batoni_transport *transport, void *base, size_t bytes,
                        struct batoni_native_window **window_p)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	struct batoni_native_window *window = batoni_alloc(1, sizeof(*window));
	enum baton_status status;

	if (!window)
		return batoni_refuse(BATON_ERR_NOMEM, "no memory");
	window->base = base;
	window->bytes = bytes;
	window->limit_ns = batoni_real_ns() + nccl->patience_ns;
	batoni_list_init(&window->link);
	pthread_mutex_lock(&nccl->puts->windows_lock);
	batoni_list_append(&nccl->puts->windows, &window->link);
	pthread_mutex_unlock(&nccl->puts->windows_lock);
	atomic_store(&nccl->puts->registers, true);
	status = move_window(nccl, window);
	if (status == BATON_OK)
		status = BATON_PENDING;
	if (status == BATON_PENDING)
		*window_p = window;
	else
		forget_window(nccl->puts, window);
	return status;
}

enum baton_status
batoni_nccl_window_opened(struct batoni_transport *transport,
                          struct batoni_native_window *window)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	enum baton_status status = move_window(nccl, window);

	if (status == BATON_PENDING && batoni_real_ns() > window->limit_ns)
		return batoni_refuse(BATON_ERR_TIMEOUT,
		                     "NCCL had not registered the window after "
		                     "%llu ms",
		                     (unsigned long long)(nccl->patience_ns /
		                                          1000000));
	if (status != BATON_OK || window->handle)
		return status;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "NCCL has no symmetric windows between these "
	                     "ranks");
}

bool
batoni_nccl_window_let_go(struct batoni_transport *transport,
                          struct batoni_native_window *window)
{
	struct batoni_nccl_puts *puts = to_nccl(transport)->puts;

	pthread_mutex_lock(&puts->windows_lock);
	window->ending = true;
	pthread_mutex_unlock(&puts->windows_lock);
	for (unsigned i = 0; i < BATONI_NCCL_PUTS; i++) {
		const struct batoni_nccl_put *put = &puts->puts[i];

		if (put->state != BATONI_NCCL_PUT_FREE && !put->staged &&
		    overlaps(window, put->put.from, put->put.bytes))
			return false;
	}
	return true;
}

/* NCCL ends the window when the call before is over.  False: it has not ended it yet. */
static bool
end_window(struct batoni_nccl *nccl, struct batoni_native_window *window,
           uint64_t limit_ns, ncclResult_t *result_p)
{
	struct batoni_memory_guard guard;
	ncclResult_t state;

	*result_p = BATONI_NCCL_SUCCESS;
	if (batoni_nccl_enter(nccl, &guard, limit_ns) != BATON_OK)
		return true;
	state = atomic_load(&nccl->aborting) ? BATONI_NCCL_INTERNAL_ERROR
	                                     : batoni_nccl_puts_state(nccl);
	if (state == BATONI_NCCL_SUCCESS)
		*result_p = nccl->api->window_deregister(
			nccl->puts->lane->comm, window->handle);
	batoni_nccl_leave(nccl, &guard);
	return state != BATONI_NCCL_IN_PROGRESS ||
	       batoni_real_ns() >= limit_ns;
}

void
batoni_nccl_window_close(struct batoni_transport *transport,
                         struct batoni_native_window *window)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	uint64_t limit_ns = batoni_real_ns() + nccl->patience_ns;
	ncclResult_t result = BATONI_NCCL_SUCCESS;

	atomic_store(&nccl->puts->registers, true);
	for (unsigned tries = 0; window->handle && !end_window(nccl, window, limit_ns, &result);
	     tries++)
		batoni_pause_between(tries);
	if (result != BATONI_NCCL_SUCCESS && result != BATONI_NCCL_IN_PROGRESS)
		batoni_log(BATONI_LOG_WARN,
		           "rank %d: ncclCommWindowDeregister returned %u",
		           nccl->base.rank, result);
	forget_window(nccl->puts, window);
}
