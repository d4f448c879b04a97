/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Native puts: data by the one-sided transfers of the communicator's native transport
 * (native_puts.h), signals by message.  For peers whose memory this process does not reach;
 * BATON_WINDOW_PATH=native forces it on all.
 *
 * A put is one of put.c's, with another kind of copy.  When it is the first of its channel
 * the transport takes it, and each test moves it on.  When its bytes have left, the signal
 * is handed over to messages, with a header that says "native" and how many units this rank
 * has begun to that target by then.  The target's driver keeps the header in its source
 * until the transport says that so many have come, and then adds to the counter.  The next
 * header of the channel is received only after that, so signals are applied in the
 * channel's order; another channel's header may wait beside it.  Puts from memory that is
 * pageable, managed, or another GPU's stay messages with their data.
 *
 * Why it ends.  The units of a header have left before the header, so nothing that the
 * target waits for depends on it or on the source.  A source that dies breaks the
 * communicator, and ends the wait.
 *
 * Visibility.  `await` says that the bytes are visible to what a stream is let do; then
 * batoni_counter_add releases them as it does those of a message.  What was put before on
 * this channel is visible too: either it was applied before (its header came first), or it left before
 * on the transport's one stream, whose units are counted in order.
 *
 * Windows.  All ranks of a communicator with native puts try to make each window one of the
 * library's too.  First they tell each other what their parts are: where one is not what the library
 * takes, or they differ, or a rank lacks memory to find out, the window has no native path, and
 * baton_window_why says so; a device that fails refuses the window on all ranks, as everywhere
 * (paths.c).  Then all begin
 * to register, and tell each other how far they are until none is PENDING.  A rank that fails then may
 * have left others inside the library: the communicator breaks.
 *
 * A put that is stopped (cancel, deadline, abort) ends when the part that is under way has
 * left; its units are counted all the same.  The transport is closed before the layer: what
 * it had ends with it.
 */
#include "native_path.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "engine.h"
#include "health.h"
#include "mem.h"
#include "native_puts.h"
#include "wait.h"
#include "wake.h"

/* What a rank tells of its part. */
struct word {
	int32_t status; /* enum baton_status; PENDING: it is being registered */
	char why[100];
	struct batoni_native_part part;
};

static const struct batoni_native_puts_ops *
ops_of(const struct batoni_rma *rma)
{
	return rma->native->puts;
}

static void
note_status(struct word *word, enum baton_status status)
{
	word->status = status;
	snprintf(word->why, sizeof(word->why), "%s",
	         status < BATON_OK ? baton_last_error() : "");
}

/* ---- registering ---- */

/* This rank's part. */
static void
describe_own_part(const struct batoni_rma *rma, const struct baton_window *window,
                  struct word *word)
{
	unsigned forced = batoni_config()->window_path;
	enum baton_status status;

	if (forced && forced != BATON_WINDOW_PATH_NATIVE)
		status = batoni_refuse(BATON_ERR_UNSUPPORTED,
		                       "BATON_WINDOW_PATH forces another path");
	else if (window->bytes == 0)
		status = batoni_refuse(BATON_ERR_UNSUPPORTED, "it is empty");
	else
		status = ops_of(rma)->inspect(rma->native, window->base,
		                              window->bytes, &word->part);
	note_status(word, status);
}

static void
say_why_not(struct baton_window *window, int rank, const char *why)
{
	snprintf(window->why_not_native, sizeof(window->why_not_native),
	         "rank %d's part cannot be a window of NCCL's: %.*s", rank,
	         (int)sizeof(((struct word *)0)->why), why);
}

/* Has a rank's device failed?  OK; the status of the first such rank, for all of them. */
static enum baton_status
check_devices(const struct batoni_collective *c, const struct word *all)
{
	for (int i = 0; i < c->rma->size; i++) {
		if (all[i].status == BATON_ERR_CUDA)
			return batoni_refuse(
				BATON_ERR_CUDA,
				"%s: rank %d could not tell what its part is: "
				"%.*s",
				c->call, i, (int)sizeof(all[i].why), all[i].why);
	}
	return BATON_OK;
}

/* May the window be native?  All ranks say the same. */
static bool
agrees(struct baton_window *window, const struct word *all)
{
	for (int i = 0; i < window->rma->size; i++) {
		if (all[i].status != BATON_OK) {
			say_why_not(window, i, all[i].why);
			return false;
		}
		if (memcmp(&all[i].part, &all[0].part, sizeof(all[i].part)) != 0) {
			say_why_not(window, i,
			            "its length, its offset in its allocation, or "
			            "the length of that is not that of rank 0");
			return false;
		}
	}
	return true;
}

/* The status of all: PENDING; OK; UNSUPPORTED: all have ended, and some have no window; else
 * a rank has failed.  *rank_p: the rank that says so. */
static enum baton_status
sum(const struct word *all, int size, int *rank_p)
{
	enum baton_status worst = BATON_OK;

	for (int i = 0; i < size; i++) {
		enum baton_status status = (enum baton_status)all[i].status;

		if (status == BATON_OK)
			continue;
		if (status != BATON_PENDING && status != BATON_ERR_UNSUPPORTED) {
			*rank_p = i;
			return status;
		}
		if (worst == BATON_OK || status == BATON_PENDING) {
			*rank_p = i;
			worst = status;
		}
	}
	return worst;
}

static enum baton_status
fail_collective(const struct batoni_collective *c, int rank, const struct word *word)
{
	const enum baton_status status = batoni_error_told(word->status);
	char why[200];

	snprintf(why, sizeof(why),
	         "%s: rank %d could not make its part a window of NCCL's: %.*s",
	         c->call, rank, (int)sizeof(word->why), word->why);
	batoni_lock();
	batoni_comm_break(c->rma->comm, status, why);
	batoni_unlock();
	return batoni_refuse(status, "%s", why);
}

static enum baton_status
make_window(struct batoni_collective *c, struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	struct word mine = {.status = BATON_PENDING}, *all = rma->words;
	enum baton_status status;
	int rank = 0;

	note_status(&mine, ops_of(rma)->open(rma->native, window->base, window->bytes,
	                                     &window->native));
	for (unsigned tries = 0;; tries++) {
		if (mine.status == BATON_PENDING)
			note_status(&mine, ops_of(rma)->opened(rma->native,
			                                       window->native));
		status = batoni_collect(c, &mine, sizeof(mine), all);
		if (status != BATON_OK)
			return status;
		status = sum(all, rma->size, &rank);
		if (status != BATON_PENDING)
			break;
		batoni_pause_between(tries);
	}
	if (status == BATON_OK)
		return BATON_OK;
	if (status != BATON_ERR_UNSUPPORTED)
		return fail_collective(c, rank, &all[rank]);
	say_why_not(window, rank, all[rank].why);
	batoni_native_close(window);
	return BATON_OK;
}

enum baton_status
batoni_native_register(struct batoni_collective *c, struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	struct word mine = {.status = BATON_OK};
	enum baton_status status;

	if (!rma->native)
		return BATON_OK;
	describe_own_part(rma, window, &mine);
	/* NULL: the exchange fails on all ranks. */
	if (!rma->words)
		rma->words = batoni_alloc((size_t)rma->size, sizeof(mine));
	status = batoni_collect(c, &mine, sizeof(mine), rma->words);
	if (status == BATON_OK)
		status = check_devices(c, rma->words);
	if (status != BATON_OK || !agrees(window, rma->words))
		return status;
	return make_window(c, window);
}

/* ABORTED: it never will be, as far as this rank can tell. */
static enum baton_status
let_go(void *argument)
{
	struct baton_window *window = argument;
	struct batoni_rma *rma = window->rma;

	if (rma->comm->fault.status != BATON_OK || rma->comm->driving.lost)
		return BATON_ERR_ABORTED;
	return ops_of(rma)->let_go(rma->native, window->native) ? BATON_OK
	                                                        : BATON_PENDING;
}

/* Puts from this rank's part into another window may be under way.  They need no peer.  False:
 * something stands, and the window is left to NCCL's communicator. */
static bool
await_reads(struct baton_window *window)
{
	uint64_t grace_ns = (uint64_t)batoni_comm_grace_ns(window->rma->comm);

	return batoni_drive_until(let_go, window,
	                          batoni_real_ns() + grace_ns) == BATON_OK;
}

void
batoni_native_close(struct baton_window *window)
{
	struct batoni_rma *rma = window->rma;

	if (window->native && await_reads(window))
		ops_of(rma)->close(rma->native, window->native);
	window->native = NULL;
}

const char *
batoni_native_why_not(const struct batoni_rma *rma,
                      const struct baton_window *window)
{
	if (rma->native)
		return *window->why_not_native ? window->why_not_native : NULL;
	return rma->comm->transport->why_no_puts;
}

/* ---- the source ---- */

/* Memory of this rank's device, which may be in a window, or pinned, which it copies from. */
bool
batoni_native_takes(const struct batoni_rma *rma, unsigned location)
{
	return location == BATONI_MEMORY_REGISTERED ||
	       batoni_location_owner(location) == rma->comm->device->number;
}

enum baton_status
batoni_native_copy(const struct batoni_rma *rma,
                   struct batoni_transfer *transfer, struct batoni_pending *put)
{
	const struct batoni_native_put native = {
		.window = put->put.window->native,
		.from = transfer->buffer,
		.bytes = transfer->bytes,
		.offset = put->put.offset,
		.peer = transfer->peer,
	};
	enum baton_status status = BATON_OK;

	if (!put->put.copying)
		status = ops_of(rma)->put(rma->native, &native,
		                          &put->put.native_number);
	if (status != BATON_OK)
		return status;
	put->put.copying = true;
	status = ops_of(rma)->test(rma->native, put->put.native_number,
	                           put->put.canceled, &put->put.units);
	if (status == BATON_PENDING)
		return BATON_ERR_AGAIN;
	put->put.copying = false;
	put->put.copied = transfer->bytes;
	return status == BATON_OK && put->put.canceled ? BATON_ERR_CANCELED
	                                               : status;
}

/* ---- the target ---- */

bool
batoni_native_may_come(const struct batoni_rma *rma, int source, uint64_t units)
{
	return ops_of(rma)->may_come(rma->native, source, units);
}

enum baton_status
batoni_native_await(const struct batoni_rma *rma, int source, uint64_t units)
{
	return ops_of(rma)->await(rma->native, source, units);
}
