/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: registering and deregistering.
 *
 * Registering takes two exchanges among all ranks.  In the first each rank sends the
 * description of its part: length, address, and the shared memory that contains it, if any.
 * Each rank then chooses the path of its own puts for every peer.  The second exchange tells
 * whether all ranks have found their paths, since a window exists on all ranks or on none.
 * It also tells whether a rank has chosen messages for some rank of its own host, and for
 * some rank of another host, so each rank knows whether messages may come to it.  A rank's
 * contribution has the same few bytes whatever the number of ranks.  A rank that is refused
 * for its own arguments, or has no memory for the others' contributions, takes part
 * nevertheless (collective.h).
 *
 * A window is on rma->windows before the second exchange: a peer that has completed it may
 * put, and its message must find the window.
 *
 * Deregistering first asks whether any rank has puts of its own that have not ended.
 * Puts that have ended at their source may still be on their way as messages.  So each
 * rank counts, for each window, the messages that it has sent and those that it has
 * applied, and the ranks exchange both numbers until the two sums are equal.  A window
 * that is being deregistered takes no puts, so what was sent is final at the first of
 * these exchanges.
 */
#include "collective.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "engine.h"
#include "leave.h"
#include "mem.h"
#include "place.h"
#include "wait.h"

/* A rank's description of its part, for the first exchange. */
struct part {
	int32_t status; /* why this rank is refused, or OK */
	int32_t pid, fd; /* of the shared memory around it; fd -1: none; PLACE_FD minus a
	                  * place: none, and that is what the part is */
	uint32_t host;   /* of the rank; 0: not known */
	uint64_t inode, memory_bytes; /* of that memory */
	uint64_t offset;              /* in it */
	uint64_t bytes;
	uint64_t address; /* in the rank's process, as that of its segment */
	uint64_t segment;
};

static_assert(sizeof(struct part) == 64, "so many bytes of each rank");

/* The contributions to the exchanges that agree: a status and flags when registering, three
 * numbers when deregistering. */
struct answer {
	int64_t status;
	uint64_t messages; /* MESSAGES_* */
};

#define PLACE_FD (-2)

#define MESSAGES_HERE 1u /* to a rank of its own host */
#define MESSAGES_AWAY 2u /* to a rank of another host */

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
		rma->parts = batoni_alloc(ranks, sizeof(struct part));
	if (!rma->answers)
		rma->answers = batoni_alloc(ranks, ANSWER_BYTES);
	return rma->parts && rma->answers;
}

/* ---- paths ---- */

/* What this process reaches of a rank's memory; nothing on a transport without peers. */
static const struct batoni_peer *
reach(const struct batoni_rma *rma, int peer)
{
	static const struct batoni_peer nothing;

	return rma->transport->peers ? &rma->transport->peers[peer] : &nothing;
}

/* Can this rank write there?  It tries, in the word of the segment that is reserved for it. */
static bool
vmwrite_works(const struct batoni_rma *rma, int peer, const struct part *part)
{
	const struct batoni_peer *to = reach(rma, peer);
	size_t at = (size_t)rma->rank * sizeof(uint64_t);
	uint64_t value = rma->next_window << 32 | ((uint64_t)rma->rank + 1);
	pid_t pid = to->within ? getpid() : to->pid;
	_Atomic uint64_t *words = to->segment;

	if (!words || pid == 0 || !part->segment)
		return false;
	/* Without a pidfd, another process that got the same number would not be noticed. */
	if (!to->within && to->pidfd < 0)
		return false;
	if (batoni_vm_write(pid, part->segment + at, &value, sizeof(value)) !=
	    BATON_OK)
		return false;
	return atomic_load(&words[rma->rank]) == value;
}

/* The host in 32 bits; shm.c compares the whole identity. */
static uint32_t
host_of(const struct batoni_shm_name *name)
{
	uint32_t host;

	memcpy(&host, name->host, sizeof(host));
	return host;
}

/* The name of the shared memory that contains a part, if it is of this host.  Host and device
 * are taken from this process's own bell, since all memfds of a host are on one device. */
static bool
shm_name_of(const struct part *part, struct batoni_shm_name *name_p)
{
	if (part->fd < 0 || !batoni_bell_name(name_p) ||
	    part->host != host_of(name_p))
		return false;
	name_p->pid = part->pid;
	name_p->fd = part->fd;
	name_p->inode = part->inode;
	name_p->bytes = part->memory_bytes;
	return true;
}

static bool
direct_works(const struct batoni_rma *rma, int peer, const struct part *part,
             struct batoni_window_peer *to)
{
	struct batoni_shm_name name;

	/* A rank on the host stores with the processor. */
	if (to->device && !rma->asks)
		return false;
	if (reach(rma, peer)->within) {
		/* The number is an address of this process. */
		to->base = (char *)(uintptr_t)part->address; // NOLINT
		return true;
	}
	if (!shm_name_of(part, &name) ||
	    batoni_shm_map(&name, (size_t)part->offset, to->bytes,
	                   &to->mapped) != BATON_OK)
		return false;
	to->base = to->mapped;
	to->mapped_bytes = to->bytes;
	return true;
}

/* The path of puts to a peer; 0: the forced path does not reach it. */
static unsigned
choose_path(const struct batoni_rma *rma, int peer, const struct part *part,
            struct batoni_window_peer *to)
{
	unsigned forced = batoni_config()->window_path;

	if (forced == BATON_WINDOW_PATH_MESSAGE)
		return forced;
	if (part->bytes == 0 && forced)
		return forced; /* there is nothing to reach */
	/* The signal goes by message, so another path for the data gains nothing. */
	if (!forced && rma->signal_path[peer] == BATON_WINDOW_PATH_MESSAGE)
		return BATON_WINDOW_PATH_MESSAGE;
	if (part->bytes == 0)
		return BATON_WINDOW_PATH_DIRECT;
	if (forced != BATON_WINDOW_PATH_VMWRITE &&
	    direct_works(rma, peer, part, to))
		return BATON_WINDOW_PATH_DIRECT;
	/* Puts may come from memory of a device, and go there. */
	if (rma->asks && !forced)
		return BATON_WINDOW_PATH_MESSAGE;
	if (forced != BATON_WINDOW_PATH_DIRECT && !to->device &&
	    vmwrite_works(rma, peer, part))
		return BATON_WINDOW_PATH_VMWRITE;
	return forced ? 0 : BATON_WINDOW_PATH_MESSAGE;
}

/* What the part is, as far as its rank has told (memory.h). */
static unsigned
place_of(const struct part *part)
{
	return part->fd <= PLACE_FD ? (unsigned)(PLACE_FD - part->fd)
	                            : BATONI_MEMORY_HOST;
}

static void
choose_paths(struct batoni_collective *c, struct baton_window *window)
{
	const struct batoni_rma *rma = c->rma;
	const struct part *parts = rma->parts;
	bool direct = batoni_config()->window_path == BATON_WINDOW_PATH_DIRECT;

	for (int i = 0; i < rma->size && c->status == BATON_OK; i++) {
		struct batoni_window_peer *to = &window->peers[i];

		to->bytes = (size_t)parts[i].bytes;
		to->address = parts[i].address;
		to->device = !batoni_place_is_host(place_of(&parts[i]));
		/* A device's number is one of the rank's process. */
		if (reach(rma, i)->within)
			to->place = (uint8_t)place_of(&parts[i]);
		to->path = choose_path(rma, i, &parts[i], to);
		if (to->path == 0)
			batoni_object(c, BATON_ERR_UNSUPPORTED,
			       "BATON_WINDOW_PATH forces %s, which does not reach "
			       "rank %d: it takes %s",
			       direct ? "direct" : "vmwrite", i,
			       direct ? "memory of baton_mem_alloc on the same "
			                "host"
			              : "the same host, and the permission to "
			                "trace its process");
	}
}

/* Why puts to that rank do not take a faster path. */
static const char *
why_not_faster(const struct batoni_rma *rma, int peer, unsigned path)
{
	const struct part *part = &((const struct part *)rma->parts)[peer];

	if (batoni_config()->window_path == path)
		return "BATON_WINDOW_PATH forces it";
	if (path == BATON_WINDOW_PATH_VMWRITE)
		return part->fd >= 0 ? "its memory cannot be mapped here"
		                    : "its memory is not of baton_mem_alloc";
	if (rma->signal_path[peer] == BATON_WINDOW_PATH_MESSAGE)
		return "its signals go by message";
	if (!batoni_place_is_host(place_of(part)))
		return "its memory is that of a device";
	return "its memory is not of baton_mem_alloc, and process_vm_writev "
	       "does not reach it";
}

/* For BATON_LOG=debug: for each path the number of ranks, and why not a faster one. */
static void
announce_window(const struct baton_window *window)
{
	static const char *const names[] = {"direct", "vmwrite", "message"};
	const struct batoni_rma *rma = window->rma;

	if (batoni_config()->log_level < BATONI_LOG_DEBUG)
		return;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int ranks = 0, first = -1;

		for (int peer = rma->size - 1; peer >= 0; peer--) {
			if (window->peers[peer].path == 1u << i) {
				ranks++;
				first = peer;
			}
		}
		if (ranks)
			batoni_log(BATONI_LOG_DEBUG,
			           "rank %d: window %llu of %zu bytes here: "
			           "puts to %d ranks go by %s, the first of "
			           "them rank %d%s%s",
			           rma->rank, (unsigned long long)window->id,
			           window->bytes, ranks, names[i], first,
			           i ? ": " : "",
			           i ? why_not_faster(rma, first, 1u << i)
			             : "");
	}
}

/* For baton_comm_query.  Caller: the driver. */
static void
sum_paths(struct batoni_rma *rma)
{
	unsigned paths = 0;

	for (struct batoni_list_node *node = rma->windows.next;
	     node != &rma->windows; node = node->next) {
		const struct baton_window *window = batoni_container_of(
			node, struct baton_window, link);

		for (int i = 0; i < rma->size; i++)
			paths |= window->peers[i].path;
	}
	atomic_store(&rma->base.window_paths, paths);
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
	for (int i = 0; i < rma->size; i++) {
		if (window->peers[i].mapped)
			batoni_shm_unmap(window->peers[i].mapped,
			                 window->peers[i].mapped_bytes);
	}
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

	if (!window)
		return NULL;
	window->rma = rma;
	window->base = base;
	window->bytes = bytes;
	batoni_list_init(&window->link);
	if (bytes == 0)
		return window;
	pthread_mutex_lock(&rma->memories_lock);
	window->memory = batoni_memory_find(rma, base, bytes);
	if (window->memory) {
		window->memory->windows++;
		window->memory->known = true;
	}
	pthread_mutex_unlock(&rma->memories_lock);
	return window;
}

/* What is the part? */
static void
look(struct batoni_collective *c, struct baton_window *window)
{
	enum baton_status status = BATON_OK;
	unsigned place = BATONI_MEMORY_HOST;

	batoni_place_watch();
	if (window->bytes > 0)
		status = batoni_place_find(c->rma->comm, window->base,
		                           window->bytes, &place);
	if (status != BATON_OK)
		batoni_object(c, status, "base: %s", baton_last_error());
	window->place = (uint8_t)place;
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
	if (c->status != BATON_OK)
		return NULL;
	window = window_new(c->rma, base, bytes);
	if (!window)
		batoni_object(c, BATON_ERR_NOMEM, "no memory for a window of %d ranks",
		       c->rma->size);
	else
		look(c, window);
	return window;
}

/* The first exchange. */
static enum baton_status
tell_part(struct batoni_collective *c, const struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	struct batoni_shm_name name;
	struct part mine = {
		.status = c->status,
		.fd = window && window->place != BATONI_MEMORY_HOST
		              ? PLACE_FD - window->place
		              : -1,
		.segment = (uintptr_t)reach(rma, rma->rank)->segment,
	};

	if (batoni_bell_name(&name))
		mine.host = host_of(&name);
	if (window) {
		mine.bytes = window->bytes;
		mine.address = (uintptr_t)window->base;
	}
	if (window && window->memory) {
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
refuse_all(const struct batoni_collective *c, int rank, enum baton_status status)
{
	if (c->status != BATON_OK)
		return batoni_refuse(c->status, "%s: %s", c->call, c->why);
	return batoni_refuse(status, "%s: rank %d could not register: %s",
	                     c->call, rank, baton_status_name(status));
}

static enum baton_status
check_parts(const struct batoni_collective *c)
{
	const struct part *parts = c->rma->parts;

	for (int i = 0; i < c->rma->size; i++) {
		if (parts[i].status != BATON_OK)
			return refuse_all(c, i,
			                  (enum baton_status)parts[i].status);
	}
	return BATON_OK;
}

/* MESSAGES_*: where the ranks are to which this one sends messages. */
static uint64_t
messages_to(const struct baton_window *window)
{
	const struct batoni_rma *rma = window->rma;
	const struct part *parts = rma->parts;
	uint64_t messages = 0;

	for (int i = 0; i < rma->size; i++) {
		if (window->peers[i].path == BATON_WINDOW_PATH_MESSAGE)
			messages |= parts[i].host == parts[rma->rank].host
			                    ? MESSAGES_HERE
			                    : MESSAGES_AWAY;
	}
	return messages;
}

/* The second exchange: has every rank found its paths, and which? */
static enum baton_status
tell_paths(struct batoni_collective *c, struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	const struct part *parts = rma->parts;
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
		bool here = parts[i].host == parts[rma->rank].host;

		if (all[i].status != BATON_OK)
			return refuse_all(c, i,
			                  (enum baton_status)all[i].status);
		window->by_messages |= all[i].messages != 0;
		window->listens |= (all[i].messages &
		                    (here ? MESSAGES_HERE : MESSAGES_AWAY)) != 0;
	}
	return BATON_OK;
}

/* The communicator broke: after this no message writes into the window, except a receive that
 * can neither be taken back nor completed. */
static void
stop_messages(struct baton_window *window)
{
	struct batoni_rma *rma = window->rma;
	enum baton_status status;

	do {
		batoni_take();
		/* Lost: MPI is finalised, and writes nothing more. */
		status = rma->comm->lost
		                 ? BATON_OK
		                 : batoni_messages_let_go(rma, window->base,
		                                          window->bytes);
		batoni_leave();
	} while (status == BATON_PENDING);
}

/* What follows the first exchange: paths, the list of windows, the second exchange. */
static enum baton_status
connect_window(struct batoni_collective *c, struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	enum baton_status status;

	window->id = rma->next_window;
	choose_paths(c, window);
	batoni_take();
	batoni_list_append(&rma->windows, &window->link);
	batoni_leave();
	status = tell_paths(c, window);
	/* If the communicator broke here, peers may have put already. */
	if (status != BATON_OK && baton_comm_status(rma->comm) != BATON_OK)
		stop_messages(window);
	batoni_take();
	if (status != BATON_OK)
		batoni_list_remove(&window->link);
	else if (window->listens)
		batoni_messages_listen(rma, 1);
	sum_paths(rma);
	batoni_leave();
	if (status == BATON_OK)
		announce_window(window);
	return status;
}

enum baton_status
baton_window_register(void *base, size_t bytes, struct baton_comm *comm,
                      struct baton_window **window_p)
{
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
		/* Also after a refusal, so that all ranks have the same number. */
		c.rma->next_window++;
		status = check_parts(&c);
	}
	if (status == BATON_OK)
		status = connect_window(&c, window);
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

/* One exchange of what is still under way for the window.  OK; BUSY; else as batoni_collect. */
static enum baton_status
ask_for_ends(struct batoni_collective *c, const struct baton_window *window,
             uint64_t *on_their_way_p)
{
	struct batoni_rma *rma = c->rma;
	const struct ending *all = rma->answers;
	struct ending mine;
	enum baton_status status;

	batoni_take();
	batoni_place_inbox();
	mine = (struct ending){
		.pending = window->pending + atomic_load(&window->entering),
		.sent = window->sent,
		.applied = window->applied,
	};
	batoni_leave();
	status = batoni_collect(c, &mine, sizeof(mine), rma->answers);
	*on_their_way_p = 0;
	for (int i = 0; i < rma->size && status == BATON_OK; i++) {
		if (all[i].pending)
			status = batoni_refuse(
				BATON_ERR_BUSY,
				"%s: %llu puts of rank %d into the window have "
				"not ended",
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
	batoni_take();
	if (rma->comm->breaking == BATON_OK) {
		batoni_messages_post(rma);
		batoni_messages_drain(rma);
		batoni_end_and_issue();
	}
	batoni_leave();
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

/* The communicator is broken, and puts have ended, but a device may still copy one of this
 * rank's into its own part.  It is waited for, as long as for a device that stands still. */
static void
await_own_copies(const struct baton_window *window)
{
	const struct batoni_rma *rma = window->rma;
	uint64_t limit_ns = batoni_real_ns() +
	                    (uint64_t)batoni_comm_grace_ns(rma->comm);
	bool copies;

	for (unsigned tries = 0;; tries++) {
		batoni_take();
		batoni_pass();
		copies = batoni_puts_copy_here(rma, window);
		batoni_leave();
		if (!copies || batoni_real_ns() >= limit_ns)
			return;
		batoni_pause_between(tries);
	}
}

/* The communicator is broken: this rank deregisters alone. */
static enum baton_status
leave_window(struct baton_window *window)
{
	struct batoni_rma *rma = window->rma;
	bool held;

	stop_messages(window);
	await_own_copies(window);
	batoni_take();
	batoni_list_remove(&window->link);
	if (window->listens)
		batoni_messages_listen(rma, -1);
	sum_paths(rma);
	/* A put that enters now is refused, or is counted. */
	atomic_store(&window->closing, true);
	held = window->pending != 0 || atomic_load(&window->entering) != 0;
	if (held) {
		window->next_buried = rma->buried;
		rma->buried = window;
		atomic_store(&window->handle.alive, 0);
	}
	batoni_leave();
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
	batoni_collective_end(&c);
	if (status == BATON_ERR_ABORTED)
		return leave_window(window);
	if (status != BATON_OK) {
		atomic_store(&window->closing, false);
		return status;
	}
	batoni_take();
	batoni_list_remove(&window->link);
	if (window->listens)
		batoni_messages_listen(window->rma, -1);
	sum_paths(window->rma);
	batoni_leave();
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

struct baton_window *
batoni_window_find(struct batoni_rma *rma, uint64_t id)
{
	for (struct batoni_list_node *node = rma->windows.next;
	     node != &rma->windows; node = node->next) {
		struct baton_window *window = batoni_container_of(
			node, struct baton_window, link);

		if (window->id == id)
			return window;
	}
	return NULL;
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
	batoni_free(rma->parts);
	rma->answers = NULL;
	rma->parts = NULL;
}
