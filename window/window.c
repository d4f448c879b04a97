/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: registering and deregistering.
 *
 * Registering takes two exchanges among all ranks.  In the first each rank sends the
 * description of its part: length, address, and the shared memory that contains it, if any.
 * If some part is memory of a device, an exchange of offers follows (contract/shared.c): what the others
 * need to map it.
 * If the communicator has native puts, those of native_path.c follow.
 * Each rank then chooses the path of its own puts for every peer (paths.c).  The last exchange tells
 * whether all ranks have found their paths, since a window exists on all ranks or on none.
 * It also tells whether a rank has chosen messages for some rank of its own node, and for
 * some rank of another node, so each rank knows whether messages may come to it.  A rank's
 * contribution has the same few bytes whatever the number of ranks.  A rank that is refused
 * for its own arguments, or has no memory for the others' contributions, takes part
 * nevertheless (collective.h).
 *
 * A window is on rma->windows before the last exchange: a peer that has completed it may
 * put, and its message must find the window.
 *
 * Deregistering first asks whether any rank has puts of its own that have not ended.
 * Puts that have ended at their source may still be on their way as messages.  So each
 * rank counts, for each window, the messages that it has sent and those that it has
 * applied, and the ranks exchange both numbers until the two sums are equal.  A window
 * that is being deregistered takes no puts, so what was sent is final at the first of
 * these exchanges.  Where ranks may have mapped memory of a device, each unmaps it then, and one
 * more exchange tells that all have: the owner may free it afterwards.  After an abort no rank
 * waits for another, and the owner's driver decides what a mapping is that outlives its block.
 */
#include "window.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "collective.h"
#include "config.h"
#include "engine.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "native_path.h"
#include "paths.h"
#include "location.h"
#include "shared.h"
#include "wait.h"
#include "wake.h"

/* The contributions to the exchanges that agree: a status and flags when registering, three
 * numbers when deregistering. */
struct answer {
	int64_t status;
	uint64_t messages; /* MESSAGES_* */
};

#define MESSAGES_HERE 1u /* a message goes to a rank of its own node */
#define MESSAGES_AWAY 2u /* a message goes to a rank of another node */

struct ending {
	uint64_t pending; /* own puts that have not ended */
	uint64_t sent, applied;
};

#define ANSWER_BYTES sizeof(struct ending)
static_assert(sizeof(struct answer) <= ANSWER_BYTES, "both fit");

/* Allocate the tables of all ranks' contributions.  They are kept for the next call. */
static bool
take_tables(struct batoni_rma *rma)
{
	size_t ranks = (size_t)rma->size + 1;

	if (!rma->parts)
		rma->parts = batoni_alloc(ranks, sizeof(struct batoni_part));
	if (!rma->answers)
		rma->answers = batoni_alloc(ranks, ANSWER_BYTES);
	return rma->parts && rma->answers;
}

/* ---- registering ---- */

/* Tombstones of deregistered windows, of all communicators. */
static struct batoni_handles handles = BATONI_HANDLES(baton_window);

static void
window_free(struct baton_window *window)
{
	struct batoni_rma *rma;

	if (!window)
		return;
	rma = window->rma;
	batoni_paths_drop(window, rma->comm->patience.copies_left);
	if (window->memory) {
		pthread_mutex_lock(&rma->memories_lock);
		window->memory->windows--;
		pthread_mutex_unlock(&rma->memories_lock);
	}
	/* The fast path of a put then refuses it (calls.c). */
	atomic_store(&window->closing, true);
	batoni_handle_bury(&handles, window);
}

static struct baton_window *
window_new(struct batoni_rma *rma, void *base, size_t bytes)
{
	size_t peers = (size_t)rma->size * sizeof(struct batoni_window_peer);
	struct baton_window *window = batoni_alloc(1, sizeof(*window) + peers);
	struct batoni_memory *memory;
	bool all;

	if (!window)
		return NULL;
	window->rma = rma;
	window->base = base;
	window->bytes = bytes;
	batoni_list_init(&window->link);
	if (bytes == 0)
		return window;
	pthread_mutex_lock(&rma->memories_lock);
	memory = batoni_memory_find(rma, base, bytes, &all);
	if (memory && all) {
		window->memory = memory;
		memory->windows++;
		memory->known = true;
	}
	pthread_mutex_unlock(&rma->memories_lock);
	return window;
}

/* What is the part? */
static void
inspect_part(struct batoni_collective *c, struct baton_window *window)
{
	enum baton_status status = BATON_OK;
	unsigned location = BATONI_MEMORY_HOST;

	batoni_location_watch();
	if (window->bytes > 0)
		status = batoni_location_find(c->rma->comm, window->base,
		                              window->bytes, &location);
	if (status != BATON_OK)
		batoni_object(c, status, "base: %s", baton_last_error());
	window->location = (uint8_t)location;
}

/* A part that lies half in a block of baton_mem_alloc would outlive it: baton_mem_free could not tell. */
static void
check_blocks(struct batoni_collective *c, const void *base, size_t bytes)
{
	struct batoni_rma *rma = c->rma;
	const struct batoni_memory *memory;
	bool all;

	pthread_mutex_lock(&rma->memories_lock);
	memory = batoni_memory_find(rma, base, bytes, &all);
	if (memory && !all)
		batoni_object(c, BATON_ERR_INVALID,
		              "%zu bytes at %p are partly in memory of "
		              "baton_mem_alloc, which has %zu bytes at %p; a "
		              "part lies in it as a whole, or not at all",
		              bytes, base, memory->bytes, memory->base);
	pthread_mutex_unlock(&rma->memories_lock);
}

/* The part of creating the window that needs no other rank. */
static struct baton_window *
begin_window(struct batoni_collective *c, void *base, size_t bytes, bool wanted)
{
	struct baton_window *window;

	if (!wanted)
		batoni_object(c, BATON_ERR_INVALID, "window_p is NULL");
	else if (bytes > 0 && !base)
		batoni_object(c, BATON_ERR_INVALID, "base is NULL, with %zu bytes",
		              bytes);
	else if (bytes > UINTPTR_MAX - (uintptr_t)base)
		batoni_object(c, BATON_ERR_INVALID,
		              "%zu bytes at %p go beyond the end of the address space",
		              bytes, base);
	else if (bytes > 0)
		check_blocks(c, base, bytes);
	if (c->status != BATON_OK)
		return NULL;
	window = window_new(c->rma, base, bytes);
	if (!window)
		batoni_object(c, BATON_ERR_NOMEM, "no memory for a window of %d ranks",
		              c->rma->size);
	else
		inspect_part(c, window);
	return window;
}

/* The first exchange. */
static enum baton_status
tell_part(struct batoni_collective *c, const struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	struct batoni_shm_name name;
	struct batoni_part mine = {
		.status = c->status,
		.fd = window && window->location != BATONI_MEMORY_HOST
		              ? BATONI_PART_LOCATION_FD - window->location
		              : -1,
		.segment = (uintptr_t)batoni_onesided_words(
			batoni_reach(rma, rma->rank)->segment),
	};

	if (batoni_bell_name(&name))
		mine.node = batoni_part_node(&name);
	if (window) {
		mine.bytes = window->bytes;
		mine.address = (uintptr_t)window->base;
	}
	if (window && window->memory && window->memory->shm.base) {
		batoni_shm_name(&window->memory->shm, &name);
		mine.pid = name.pid;
		mine.fd = name.fd;
		mine.inode = name.inode;
		mine.memory_bytes = name.bytes;
		mine.offset = (uintptr_t)window->base -
		              (uintptr_t)window->memory->shm.base;
	}
	/* NULL, no memory for all parts: the exchange fails on all ranks. */
	return batoni_collect(c, &mine, sizeof(mine),
	                      take_tables(rma) ? rma->parts : NULL);
}

/* Every rank is refused: with its own reason, or with that of the first refused rank. */
static enum baton_status
refuse_all(const struct batoni_collective *c, int rank, int64_t told)
{
	const enum baton_status status = batoni_error_told(told);

	if (c->status != BATON_OK)
		return batoni_refuse(c->status, "%s: %s", c->call, c->why);
	return batoni_refuse(status, "%s: rank %d could not register: %s",
	                     c->call, rank, baton_status_name(status));
}

static enum baton_status
check_parts(const struct batoni_collective *c)
{
	const struct batoni_part *parts = c->rma->parts;

	for (int i = 0; i < c->rma->size; i++) {
		if (parts[i].status != BATON_OK)
			return refuse_all(c, i, parts[i].status);
	}
	return BATON_OK;
}

/* The MESSAGES_* bits: where the ranks are to which this one sends messages. */
static uint64_t
messages_to(const struct baton_window *window)
{
	const struct batoni_rma *rma = window->rma;
	const struct batoni_part *parts = rma->parts;
	uint64_t messages = 0;

	for (int i = 0; i < rma->size; i++) {
		/* The signals of native puts are messages. */
		if (window->peers[i].path &
		    (BATON_WINDOW_PATH_MESSAGE | BATON_WINDOW_PATH_NATIVE))
			messages |= parts[i].node == parts[rma->rank].node
			                    ? MESSAGES_HERE
			                    : MESSAGES_AWAY;
	}
	return messages;
}

/* The last exchange: has every rank found its paths, and which? */
static enum baton_status
tell_paths(struct batoni_collective *c, struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	const struct batoni_part *parts = rma->parts;
	const struct answer *all = rma->answers;
	struct answer mine = {
		.status = c->status,
		.messages = messages_to(window),
	};
	enum baton_status status;

	status = batoni_collect(c, &mine, sizeof(mine), rma->answers);
	if (status != BATON_OK)
		return status;
	for (int i = 0; i < rma->size; i++) {
		bool here = parts[i].node == parts[rma->rank].node;

		if (all[i].status != BATON_OK)
			return refuse_all(c, i, all[i].status);
		window->by_messages |= all[i].messages != 0;
		window->listens |= (all[i].messages &
		                    (here ? MESSAGES_HERE : MESSAGES_AWAY)) != 0;
	}
	return BATON_OK;
}

/* If the transport is lost, MPI is finalised and writes nothing more. */
static enum baton_status
let_messages_go(void *argument)
{
	struct baton_window *window = argument;
	struct batoni_rma *rma = window->rma;

	return rma->comm->driving.lost
	               ? BATON_OK
	               : batoni_messages_let_go(rma, window->base, window->bytes);
}

/* The communicator broke: after this no message writes into the window, except by a library that
 * cannot be stopped (MPI), and by a copy of a device that stands still.  Copies under way are waited
 * for: those of the host end; a device has as long as one that stands still. */
static void
stop_messages(struct baton_window *window)
{
	struct batoni_rma *rma = window->rma;
	uint64_t limit_ns = rma->comm->in_engine
	                            ? BATONI_NEVER
	                            : batoni_real_ns() +
	                                      (uint64_t)batoni_comm_grace_ns(
						      rma->comm);

	if (batoni_drive_until(let_messages_go, window, limit_ns) !=
	    BATON_PENDING)
		return;
	batoni_log(BATONI_LOG_WARN,
	           "rank %d: a window goes while the device still copies into its "
	           "%zu bytes at %p: memory of the program's must stay until that "
	           "has ended",
	           rma->rank, window->bytes, window->base);
}

/* The offer of this rank's part.  Errors go into c. */
static void
make_offer(struct batoni_collective *c, const struct baton_window *window,
           struct batoni_offering *offering, struct batoni_offer *offer)
{
	const struct baton_comm *comm = c->rma->comm;
	enum baton_status status = BATON_OK;

	if (window->location < BATONI_MEMORY_DEVICE)
		batoni_offer_nothing(offer, "it is not memory of one device");
	else
		status = batoni_offer_make(comm->device,
		                           comm->device_ops->memory,
		                           window->base, window->bytes, offering,
		                           offer);
	if (status == BATON_ERR_CUDA)
		batoni_object(c, status, "base: %s", baton_last_error());
	offer->status = c->status;
}

/* The exchange of offers, where some part is memory of a device. */
static enum baton_status
tell_offers(struct batoni_collective *c, struct baton_window *window,
            struct batoni_offering *offering)
{
	struct batoni_rma *rma = c->rma;
	const struct batoni_offer *offers;
	struct batoni_offer mine;
	enum baton_status status;

	if (!batoni_parts_want_offers(rma))
		return BATON_OK;
	make_offer(c, window, offering, &mine);
	/* NULL: the exchange fails on all ranks. */
	if (!rma->offers)
		rma->offers = batoni_alloc((size_t)rma->size, sizeof(mine));
	status = batoni_collect(c, &mine, sizeof(mine), rma->offers);
	offers = rma->offers;
	for (int i = 0; i < rma->size && status == BATON_OK; i++) {
		if (offers[i].status != BATON_OK)
			status = refuse_all(c, i, offers[i].status);
	}
	window->offered = status == BATON_OK;
	return status;
}

/* Memory of a device may be mapped: unmap it, and wait until all ranks have.  From then on its
 * owner may free it.  An error only says that the ranks are not waited for. */
static void
unmap_all(struct batoni_collective *c, struct baton_window *window)
{
	struct ending mine = {0};

	batoni_paths_drop(window, false);
	c->late = "not all ranks have unmapped its memory";
	(void)batoni_collect(c, &mine, sizeof(mine), c->rma->answers);
}

/* Choose the paths, list the window, and make the last exchange. */
static enum baton_status
connect_window(struct batoni_collective *c, struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	enum baton_status status;

	window->id = rma->next_window;
	batoni_paths_choose(c, window);
	batoni_lock();
	batoni_list_append(&rma->windows, &window->link);
	batoni_unlock();
	status = tell_paths(c, window);
	/* If the communicator broke here, peers may have put already. */
	if (status != BATON_OK && baton_comm_status(rma->comm) != BATON_OK)
		stop_messages(window);
	batoni_lock();
	if (status != BATON_OK)
		batoni_list_remove(&window->link);
	else if (window->listens)
		batoni_messages_listen(rma, 1);
	batoni_paths_sum(rma);
	batoni_unlock();
	if (status == BATON_OK)
		batoni_paths_announce(window);
	else if (window->offered && baton_comm_status(rma->comm) == BATON_OK)
		unmap_all(c, window);
	return status;
}

enum baton_status
baton_window_register(void *base, size_t bytes, struct baton_comm *comm,
                      struct baton_window **window_p)
{
	struct batoni_offering offering = {.fd = -1};
	struct baton_window *window;
	struct batoni_collective c;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_window_register");
	status = batoni_check_windows("baton_window_register", comm);
	if (status == BATON_OK)
		status = batoni_check_collective("baton_window_register", comm);
	if (status != BATON_OK)
		return status;
	status = batoni_collective_begin(&c, batoni_rma_of(comm),
	                                 "baton_window_register");
	if (status != BATON_OK)
		return status;
	c.what = c.rma->next_window << 1;
	window = begin_window(&c, base, bytes, window_p != NULL);
	status = tell_part(&c, window);
	if (status == BATON_OK) {
		/* The number grows after a refusal too, so that all ranks have the same one. */
		c.rma->next_window++;
		status = check_parts(&c);
	}
	if (status == BATON_OK)
		status = tell_offers(&c, window, &offering);
	if (status == BATON_OK)
		status = batoni_native_register(&c, window);
	if (status == BATON_OK)
		status = connect_window(&c, window);
	if (status != BATON_OK && window && window->native &&
	    baton_comm_status(comm) == BATON_OK)
		batoni_native_close(window);
	/* All ranks have fetched what they need, or none is waited for. */
	batoni_offering_close(&offering);
	batoni_collective_end(&c);
	if (status != BATON_OK) {
		window_free(window);
		return status;
	}
	batoni_handle_start(&window->handle);
	*window_p = window;
	return BATON_OK;
}

/* ---- deregistering ---- */

/* Exchange once what is still under way for the window.  OK; BUSY; else as batoni_collect. */
static enum baton_status
ask_for_ends(struct batoni_collective *c, const struct baton_window *window,
             uint64_t *on_their_way_p)
{
	struct batoni_rma *rma = c->rma;
	const struct ending *all = rma->answers;
	struct ending mine;
	enum baton_status status;

	batoni_lock();
	batoni_place_inbox();
	mine = (struct ending){
		.pending = window->pending + atomic_load(&window->entering) +
		           atomic_load(&window->planned),
		.sent = window->sent,
		.applied = window->applied,
	};
	batoni_unlock();
	status = batoni_collect(c, &mine, sizeof(mine), rma->answers);
	*on_their_way_p = 0;
	for (int i = 0; i < rma->size && status == BATON_OK; i++) {
		if (all[i].pending)
			status = batoni_refuse(
				BATON_ERR_BUSY,
				"%s: %llu puts of rank %d into the window have "
				"not ended, or are in plans",
				c->call, (unsigned long long)all[i].pending, i);
		*on_their_way_p += all[i].sent - all[i].applied;
	}
	return status;
}

/* Apply what has arrived, also where nothing else tests for messages: this rank may have
 * been sent signals alone, without listening for messages. */
static void
apply_messages(struct batoni_rma *rma)
{
	batoni_lock();
	if (rma->comm->fault.status == BATON_OK) {
		batoni_messages_post(rma);
		batoni_messages_drain(rma);
		batoni_end_and_issue();
	}
	batoni_unlock();
}

/* Drive until all ranks have applied what was sent to them.  BUSY: a rank has puts that
 * have not ended. */
static enum baton_status
agree_to_end(struct batoni_collective *c, const struct baton_window *window)
{
	uint64_t on_their_way;
	enum baton_status status = ask_for_ends(c, window, &on_their_way);

	c->late = "not all puts of other ranks have come";
	for (unsigned tries = 0; status == BATON_OK && on_their_way; tries++) {
		if (batoni_real_ns() >= c->limit_ns)
			return batoni_collective_late(c);
		apply_messages(c->rma);
		batoni_pause_between(tries);
		status = ask_for_ends(c, window, &on_their_way);
	}
	return status;
}

static enum baton_status
end_own_copies(void *argument)
{
	const struct baton_window *window = argument;

	return batoni_puts_copy_here(window->rma, window) ||
	                       batoni_mapped_copies_here(window)
	               ? BATON_PENDING
	               : BATON_OK;
}

/* The communicator is broken, and puts have ended, but a device may still copy one of this
 * rank's into its own part.  It is waited for, as long as for a device that stands still. */
static void
await_own_copies(struct baton_window *window)
{
	uint64_t grace_ns = (uint64_t)batoni_comm_grace_ns(window->rma->comm);

	(void)batoni_drive_until(end_own_copies, window,
	                         batoni_real_ns() + grace_ns);
}

/* The communicator is broken: this rank deregisters alone. */
static enum baton_status
leave_window(struct baton_window *window)
{
	struct batoni_rma *rma = window->rma;
	bool held;

	stop_messages(window);
	await_own_copies(window);
	batoni_lock();
	batoni_list_remove(&window->link);
	if (window->listens)
		batoni_messages_listen(rma, -1);
	batoni_paths_sum(rma);
	/* A put that enters now is refused, or is counted. */
	atomic_store(&window->closing, true);
	held = window->pending != 0 || atomic_load(&window->entering) != 0 ||
	       atomic_load(&window->planned) != 0;
	if (held) {
		window->next_buried = rma->buried;
		rma->buried = window;
		atomic_store(&window->handle.alive, 0);
	}
	batoni_unlock();
	if (!held)
		window_free(window);
	else if (window->memory) {
		/* No put reads or writes that memory any more. */
		pthread_mutex_lock(&rma->memories_lock);
		window->memory->windows--;
		window->memory = NULL;
		pthread_mutex_unlock(&rma->memories_lock);
	}
	return BATON_OK;
}

enum baton_status
baton_window_deregister(struct baton_window *window)
{
	struct baton_comm *comm;
	struct batoni_collective c;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_window_deregister");
	if (!window)
		return BATON_OK;
	if (!batoni_window_lives(window))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_window_deregister: window was "
		                     "deregistered");
	comm = window->rma->comm;
	status = batoni_check_collective("baton_window_deregister", comm);
	if (status != BATON_OK)
		return status;
	if (baton_comm_status(comm) != BATON_OK)
		return leave_window(window);
	status = batoni_collective_begin(&c, window->rma,
	                                 "baton_window_deregister");
	if (status != BATON_OK)
		return status;
	c.what = window->id << 1 | 1;
	atomic_store(&window->closing, true);
	status = agree_to_end(&c, window);
	if (status == BATON_OK && window->offered)
		unmap_all(&c, window);
	if (status == BATON_OK)
		batoni_native_close(window);
	batoni_collective_end(&c);
	if (status == BATON_ERR_ABORTED)
		return leave_window(window);
	if (status != BATON_OK) {
		atomic_store(&window->closing, false);
		return status;
	}
	batoni_lock();
	batoni_list_remove(&window->link);
	if (window->listens)
		batoni_messages_listen(window->rma, -1);
	batoni_paths_sum(window->rma);
	batoni_unlock();
	window_free(window);
	return BATON_OK;
}

/* ---- asking ---- */

size_t
baton_window_size(const struct baton_window *window, int peer)
{
	return batoni_window_lives(window) && peer >= 0 && peer < window->rma->size
	               ? window->peers[peer].bytes
	               : 0;
}

unsigned
baton_window_path(const struct baton_window *window, int peer)
{
	return batoni_window_lives(window) && peer >= 0 && peer < window->rma->size
	               ? window->peers[peer].path
	               : 0;
}

const char *
baton_window_why(const struct baton_window *window, int peer)
{
	const char *why = NULL;

	if (batoni_window_lives(window) && peer >= 0 &&
	    peer < window->rma->size)
		why = window->peers[peer].why;
	return why ? why : "";
}

/* ---- the layer's ---- */

void
batoni_windows_close(struct batoni_rma *rma)
{
	while (rma->buried) {
		struct baton_window *window = rma->buried;

		rma->buried = window->next_buried;
		window_free(window);
	}
	batoni_free(rma->answers);
	batoni_free(rma->offers);
	batoni_free(rma->parts);
	batoni_free(rma->words);
	rma->words = NULL;
	rma->answers = rma->offers = rma->parts = NULL;
}
