/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What puts by NCCL need, made with the transport: nothing of it may wait for a rank later, in the
 * middle of a program whose streams wait for words.
 *
 *   PUTS_ID      rank 0 tells the id of a communicator of their own; each rank allocates what sources are staged in
 *   PUTS_MAKE    each creates it, on the last lane
 *   PUTS_WINDOW  the memory that sources are staged in becomes a window.  Where NCCL has no
 *                symmetric windows between the ranks, for whatever reason (nodes connected by
 *                sockets, GPUs without peer access, cuMem or windows turned off), it says so
 *                here: success, with a window that is NULL
 *   PUTS_WARM    each rank signals the next one: the first one-sided call of a communicator is a
 *                collective (before 2.31).  Nothing waits for that signal, since an abort would hang
 *                in a wait if a rank failed here; it is the first unit between the two
 *
 * These are steps like those of nccl_open.c, so all ranks end each with the same status.  An error
 * that all have is no error of the transport: each ends its communicator, which may hold ranks that
 * still stand in NCCL, and there are no puts; the first sentence is the reason.  Where the exchange
 * itself has failed, creation has.
 */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "list.h"
#include "log.h"
#include "mem.h"
#include "nccl_windows.h"

#define WHAT_PUTS_ID ((uint64_t)0x6e63636c05)
#define WHAT_PUTS_MAKE ((uint64_t)0x6e63636c06)
#define WHAT_PUTS_WINDOW ((uint64_t)0x6e63636c07)
#define WHAT_PUTS_WARM ((uint64_t)0x6e63636c08)

/* ---- this rank alone ---- */

/* By the device, in whose virtual memory management no call waits for a stream: ncclMemAlloc may be cudaMalloc,
 * which waits for all streams of the context. */
static enum baton_status
allocate_staging(struct batoni_nccl *nccl)
{
	const struct batoni_block_ops *blocks = nccl->device->ops->memory->blocks;
	enum baton_status status;
	void *staging;

	if (!blocks)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the device has no memory for windows");
	status = blocks->block_alloc(nccl->device, BATONI_NCCL_STAGING,
	                             batoni_real_ns() + nccl->patience_ns,
	                             &staging);
	if (status == BATON_OK)
		nccl->puts->staging = staging;
	return status;
}

static enum baton_status
make_id(struct batoni_nccl *nccl)
{
	struct batoni_memory_guard guard;
	enum baton_status status;
	ncclResult_t result;

	status = batoni_nccl_enter(nccl, &guard,
	                           batoni_real_ns() + nccl->patience_ns);
	if (status != BATON_OK)
		return status;
	result = nccl->api->get_unique_id(&nccl->puts->id);
	batoni_nccl_leave(nccl, &guard);
	if (result == BATONI_NCCL_SUCCESS)
		return BATON_OK;
	batoni_nccl_note(nccl, "ncclGetUniqueId", NULL, result);
	return nccl->mine;
}

static enum baton_status
prepare(struct batoni_nccl *nccl)
{
	size_t sides = (size_t)nccl->base.size * sizeof(struct batoni_nccl_side);
	struct batoni_nccl_puts *puts = batoni_alloc(1, sizeof(*puts) + sides);
	enum baton_status status;

	if (!puts)
		return batoni_refuse(BATON_ERR_NOMEM, "no memory for puts");
	puts->lane = batoni_nccl_lane_of_puts(nccl);
	pthread_mutex_init(&puts->windows_lock, NULL);
	batoni_list_init(&puts->windows);
	nccl->puts = puts;
	/* Streams of the program wait for what puts bring. */
	status = batoni_nccl_stream_make(nccl, true, &puts->lane->stream);
	if (status == BATON_OK)
		status = allocate_staging(nccl);
	return status == BATON_OK && nccl->base.rank == 0 ? make_id(nccl)
	                                                  : status;
}

long
batoni_nccl_puts_blocks(const struct batoni_nccl *nccl)
{
	const struct batoni_list_node *list;
	long n = 1;

	if (!nccl->puts)
		return 0;
	list = &nccl->puts->windows;
	for (const struct batoni_list_node *at = list->next; at != list;
	     at = at->next)
		n++;
	return n;
}

void
batoni_nccl_puts_reclaim(struct batoni_nccl *nccl)
{
	struct batoni_nccl_puts *puts = nccl->puts;

	if (!puts || !puts->staging)
		return;
	nccl->device->ops->memory->blocks->block_free(nccl->device,
	                                              puts->staging);
	puts->staging = NULL;
}

void
batoni_nccl_puts_free(struct batoni_nccl *nccl)
{
	struct batoni_nccl_puts *puts = nccl->puts;

	if (!puts)
		return;
	/* What a communicator that broke has left registered; NCCL's part of it is gone. */
	while (!batoni_list_empty(&puts->windows)) {
		struct batoni_list_node *link = puts->windows.next;

		batoni_list_remove(link);
		batoni_free(batoni_container_of(
			link, struct batoni_native_window, link));
	}
	pthread_mutex_destroy(&puts->windows_lock);
	batoni_free(puts);
	nccl->puts = NULL;
}

/* ---- the steps ---- */

static enum baton_status
step_id(struct batoni_nccl *nccl)
{
	enum baton_status status;

	if (!nccl->begun)
		nccl->mine = prepare(nccl);
	nccl->begun = true;
	status = batoni_nccl_tell(nccl, WHAT_PUTS_ID,
	                          nccl->puts ? &nccl->puts->id : NULL);
	if (status == BATON_OK)
		nccl->puts->id = nccl->words[0].id;
	return status;
}

/* Under the lock of the device, as the others. */
static ncclResult_t
init_puts_comm(struct batoni_nccl *nccl)
{
	struct batoni_nccl_config config;

	batoni_nccl_configure(nccl, &config);
	return nccl->api->comm_init(&nccl->puts->lane->comm, nccl->base.size,
	                            nccl->puts->id, nccl->base.rank, &config);
}

static ncclResult_t
make_window(struct batoni_nccl *nccl)
{
	struct batoni_nccl_puts *puts = nccl->puts;

	return nccl->api->window_register(puts->lane->comm, puts->staging,
	                                  BATONI_NCCL_STAGING,
	                                  &puts->staging_window,
	                                  BATONI_NCCL_WINDOW_SYMMETRIC);
}

static enum baton_status
check_window(struct batoni_nccl *nccl)
{
	if (nccl->puts->staging_window)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "NCCL has no symmetric windows between these "
	                     "ranks: their nodes are connected by sockets "
	                     "alone, or GPUs of a node do not reach each "
	                     "other, or NCCL_WIN_ENABLE or "
	                     "NCCL_CUMEM_ENABLE is 0");
}

static int
next_rank(const struct batoni_nccl *nccl)
{
	return (nccl->base.rank + 1) % nccl->base.size;
}

static ncclResult_t
warm(struct batoni_nccl *nccl)
{
	const struct batoni_nccl_lane *lane = nccl->puts->lane;

	nccl->puts->sides[next_rank(nccl)].sent = 1;
	return nccl->api->signal(next_rank(nccl), 0, 0, 0, lane->comm,
	                         lane->stream);
}

/* The step is over on all ranks before one goes on, as with the lanes of messages. */
static enum baton_status
await_warm(struct batoni_nccl *nccl)
{
	struct batoni_device *device = nccl->device;
	struct batoni_nccl_lane *lane = nccl->puts->lane;
	enum baton_status status = BATON_OK;

	if (!nccl->marked)
		status = device->ops->marks->mark(device, lane->stream,
		                                  &lane->connected);
	nccl->marked = true;
	return status == BATON_OK ? batoni_nccl_await_lane(nccl, lane) : status;
}

static enum baton_status
take_step(struct batoni_nccl *nccl)
{
	static const struct batoni_nccl_work works[] = {
		{WHAT_PUTS_MAKE, init_puts_comm, NULL, "ncclCommInitRankConfig",
	         "created its communicator for puts"},
		{WHAT_PUTS_WINDOW, make_window, check_window,
	         "ncclCommWindowRegister", "registered a window"},
		{WHAT_PUTS_WARM, warm, await_warm, "the first ncclSignal",
	         "made its first one-sided call"},
	};

	if (nccl->step == BATONI_NCCL_PUTS_ID)
		return step_id(nccl);
	return batoni_nccl_do_work(
		nccl, &works[nccl->step - BATONI_NCCL_PUTS_MAKE]);
}

/* ---- without puts ---- */

static void
abort_lane(struct batoni_nccl *nccl)
{
	struct batoni_nccl_lane *lane = nccl->puts->lane;

	if (lane->comm)
		nccl->api->comm_abort(lane->comm);
	lane->comm = NULL;
	batoni_nccl_puts_reclaim(nccl);
}

/* The first rank that has failed says why. */
static void
keep_reason(struct batoni_nccl *nccl)
{
	const struct batoni_nccl_word *word = nccl->words;

	while (!batoni_nccl_has_failed(word))
		word++;
	snprintf(nccl->why_no_puts, sizeof(nccl->why_no_puts), "%.*s",
	         (int)sizeof(word->why), word->why);
}

/* All ranks do so.  OK; NCCL: its part is out of reach, and creation fails. */
static enum baton_status
give_up_windows(struct batoni_nccl *nccl)
{
	keep_reason(nccl);
	batoni_log(BATONI_LOG_INFO,
	           "rank %d: puts do not go by NCCL's one-sided calls: %s",
	           nccl->base.rank, nccl->why_no_puts);
	nccl->wants_puts = false;
	if (!nccl->puts)
		return BATON_OK;
	if ((nccl->puts->lane->comm || nccl->puts->staging) &&
	    !batoni_nccl_do_apart(nccl, abort_lane))
		return batoni_refuse(BATON_ERR_NCCL,
		                     "NCCL's communicator for puts cannot be "
		                     "ended: %s",
		                     nccl->why_no_puts);
	if (nccl->puts->lane->connected.object)
		nccl->device->ops->marks->mark_drop(
			nccl->device, &nccl->puts->lane->connected);
	nccl->puts->lane->connected.object = NULL;
	batoni_nccl_puts_free(nccl);
	return BATON_OK;
}

enum baton_status
batoni_nccl_puts_step(struct batoni_nccl *nccl)
{
	enum baton_status status = take_step(nccl);

	if (status == BATON_OK || status == BATON_PENDING || !nccl->judged)
		return status;
	return give_up_windows(nccl);
}
