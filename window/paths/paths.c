/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which path the puts of this rank to each peer of a window take, and why no faster one.
 *
 *   direct    the part is mapped here, or is of this process.  Memory of the host: stores.
 *             Memory of a device, on either side: copies by a device (put.c, owner_of); this rank's
 *             must reach the part.
 *   vmwrite   the kernel writes into the peer's process; memory of the host only
 *   native    the library of a native transport puts (native_path.c); memory of devices only, to
 *             ranks whose signals go by message
 *   message   everything else
 *
 * That a device says that it reaches a part does not mean that its driver copies it (peers that are said to be,
 * and a mapping that is made, where copies then fail).  So one is tried at registration: a byte out of the
 * part, which changes nothing there.  What the driver refuses goes by message.
 *
 * The path is that of this rank's puts to that peer; others may have others.  The reason why a
 * put does not go faster is kept for each peer (baton_window_why): a constant text, or one of the
 * window's own.  A peer that cannot be reached is no error, unless BATON_WINDOW_PATH forces a
 * path.  A device that fails is one: the window is refused on all ranks.
 *
 * Threads.  The thread that registers or deregisters; what is chosen is constant until then.
 */
#include "paths.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "device.h"
#include "engine.h"
#include "mem.h"
#include "native_path.h"
#include "registry.h"
#include "shared.h"
#include "wait.h"

/* Another process has so long to hand on a descriptor. */
#define HANDOVER_NS UINT64_C(5000000000)
/* The bytes of all parts are copied in so long, or in half of the time that is left, or copies of the
 * device stand still: what is left is for the other steps of the call. */
#define TRIAL_NS UINT64_C(5000000000)

/* A text of the window's, why some puts do not go faster. */
struct batoni_reason {
	struct batoni_reason *next;
	char text[256];
};

/* What the ranks have told of a peer. */
struct told {
	int peer;
	const struct batoni_part *part;
	const struct batoni_offer *offer; /* NULL: none were wanted */
	bool same_node;
};

const struct batoni_peer *
batoni_reach(const struct batoni_rma *rma, int peer)
{
	static const struct batoni_peer nothing;

	return rma->transport->peers ? &rma->transport->peers[peer] : &nothing;
}

uint32_t
batoni_part_node(const struct batoni_shm_name *name)
{
	uint32_t node;

	memcpy(&node, name->node, sizeof(node));
	return node;
}

/* What the part is, as far as its rank has told (memory.h). */
static unsigned
location_of(const struct batoni_part *part)
{
	return part->fd <= BATONI_PART_LOCATION_FD
	               ? (unsigned)(BATONI_PART_LOCATION_FD - part->fd)
	               : BATONI_MEMORY_HOST;
}

static bool
is_of_device(const struct batoni_part *part)
{
	return !batoni_location_is_host(location_of(part));
}

bool
batoni_parts_want_offers(const struct batoni_rma *rma)
{
	const struct batoni_part *parts = rma->parts;
	bool wanted = false, apart = false;

	for (int i = 0; i < rma->size; i++) {
		wanted |= parts[i].bytes > 0 && is_of_device(&parts[i]);
		/* A transport of one process has all ranks in it. */
		apart |= !batoni_reach(rma, i)->within;
	}
	return wanted && apart;
}

/* ---- reasons ---- */

/* Keep the text; one that the window has already is kept once. */
static const char *
keep_reason(struct baton_window *window, const char *what, const char *why)
{
	struct batoni_reason *reason = batoni_alloc(1, sizeof(*reason));

	if (!reason)
		return what;
	snprintf(reason->text, sizeof(reason->text), "%s: %s", what, why);
	for (const struct batoni_reason *at = window->reasons; at;
	     at = at->next) {
		if (strcmp(at->text, reason->text) == 0) {
			batoni_free(reason);
			return at->text;
		}
	}
	reason->next = window->reasons;
	window->reasons = reason;
	return reason->text;
}

/* ---- vmwrite ---- */

/* Can this rank write there?  It tries, in the word of the segment that is reserved for it. */
static bool
vmwrite_works(const struct batoni_rma *rma, int peer, const struct batoni_part *part)
{
	const struct batoni_peer *to = batoni_reach(rma, peer);
	size_t at = (size_t)rma->rank * sizeof(uint64_t);
	uint64_t value = rma->next_window << 32 | ((uint64_t)rma->rank + 1);
	pid_t pid = to->within ? getpid() : to->pid;
	_Atomic uint64_t *words = batoni_onesided_words(to->segment);

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

/* ---- direct ---- */

/* The name of the shared memory that contains a part, if it is of this node.  Host and device
 * are taken from this process's own bell, since all memfds of a node are on one device. */
static bool
shm_name_of(const struct batoni_part *part, struct batoni_shm_name *name_p)
{
	if (part->fd < 0 || !batoni_bell_name(name_p) ||
	    part->node != batoni_part_node(name_p))
		return false;
	name_p->pid = part->pid;
	name_p->fd = part->fd;
	name_p->inode = part->inode;
	name_p->bytes = part->memory_bytes;
	return true;
}

static bool
map_shm(const struct batoni_part *part, struct batoni_window_peer *to)
{
	struct batoni_shm_name name;

	if (!shm_name_of(part, &name) ||
	    batoni_shm_map(&name, (size_t)part->offset, to->bytes,
	                   &to->mapped) != BATON_OK)
		return false;
	to->base = to->mapped;
	to->mapped_bytes = to->bytes;
	return true;
}

static bool
is_offered(const struct batoni_offer *offer, size_t bytes)
{
	return offer->offered && offer->offset <= offer->bytes &&
	       bytes <= offer->bytes - offer->offset;
}

/* Until then the copies of this call are waited for. */
static uint64_t
end_of_trials(struct batoni_collective *c)
{
	uint64_t now = batoni_real_ns();
	uint64_t half = c->limit_ns > now ? (c->limit_ns - now) / 2 : 0;

	if (c->trials_until_ns == 0)
		c->trials_until_ns = now + (half < TRIAL_NS ? half : TRIAL_NS);
	return c->trials_until_ns;
}

struct trial {
	struct batoni_rma *rma;
	const void *from;
	bool stands; /* the copy has begun */
	enum baton_status status;
};

/* OK: the trial is over. */
static enum baton_status
try_further(void *argument)
{
	struct trial *trial = argument;
	struct batoni_rma *rma = trial->rma;

	trial->status = batoni_trial_test(rma);
	if (!trial->stands && trial->status != BATON_PENDING) {
		trial->status = batoni_trial_start(rma, trial->from);
		trial->stands = trial->status == BATON_OK;
		if (trial->stands || trial->status == BATON_ERR_AGAIN)
			trial->status = BATON_PENDING;
	}
	return trial->status != BATON_PENDING ||
	                       rma->comm->fault.status != BATON_OK
	               ? BATON_OK
	               : BATON_PENDING;
}

/* Copy a byte out of a part.  OK; PENDING: it has not ended in time, or the communicator breaks;
 * CUDA: the device's `why` says why.  *stands_p: the copy goes on. */
static enum baton_status
try_copy(struct batoni_collective *c, const void *from, bool *stands_p)
{
	struct trial trial = {.rma = c->rma, .from = from};

	(void)batoni_drive_until(try_further, &trial, end_of_trials(c));
	*stands_p = trial.stands && trial.status == BATON_PENDING;
	return trial.status;
}

/* Does the driver copy out of the part?  *stands_p: it has begun to, and has not ended. */
static bool
copies_work(struct batoni_collective *c, struct baton_window *window,
            const struct told *told, struct batoni_window_peer *to,
            bool *stands_p)
{
	const struct baton_comm *comm = c->rma->comm;
	const struct batoni_memory_ops *memory = comm->device_ops->memory;
	enum baton_status status = try_copy(c, to->base, stands_p);
	struct batoni_fault fault, health;
	char why[160];

	if (status == BATON_OK)
		return true;
	if (status == BATON_PENDING) {
		to->why = "a copy out of its memory has not ended in time";
		return false;
	}
	memory->why(comm->device, &fault);
	snprintf(why, sizeof(why), "%s: %s", fault.call, fault.text);
	to->why = keep_reason(window, "copies of its memory are refused", why);
	if (memory->health(comm->device, &health) != BATON_OK)
		batoni_object(c, BATON_ERR_CUDA, "the memory of rank %d: %s",
		              told->peer, why);
	return false;
}

/* The part is memory of a device of another process. */
static bool
map_device(struct batoni_collective *c, struct baton_window *window,
           const struct told *told, struct batoni_window_peer *to)
{
	const struct baton_comm *comm = c->rma->comm;
	const struct batoni_memory_ops *memory = comm->device_ops->memory;
	uint64_t until_ns = batoni_real_ns() + HANDOVER_NS;
	enum baton_status status;
	bool stands;

	if (!told->offer) {
		to->why = "its rank has not offered it";
		return false;
	}
	if (!is_offered(told->offer, to->bytes)) {
		char why[sizeof(told->offer->why)];

		snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1,
		         told->offer->offered ? "" : told->offer->why);
		to->why = keep_reason(window, "its memory cannot be mapped", why);
		return false;
	}
	if (!memory->sharing) {
		to->why = "this rank's device maps no memory of others";
		return false;
	}
	status = batoni_mapping_take(comm->device, memory, told->offer,
	                             batoni_reach(c->rma, told->peer)->pidfd,
	                             until_ns < c->limit_ns ? until_ns
	                                                    : c->limit_ns,
	                             &to->mapping, &to->base);
	if (status != BATON_OK) {
		to->why = keep_reason(window, "its memory could not be mapped",
		                      baton_last_error());
		if (status == BATON_ERR_CUDA)
			batoni_object(c, status, "the memory of rank %d: %s",
			              told->peer, baton_last_error());
		return false;
	}
	if (copies_work(c, window, told, to, &stands)) {
		to->location = (uint8_t)(BATONI_MEMORY_DEVICE + comm->device->number);
		return true;
	}
	if (stands)
		batoni_mapping_abandon(to->mapping);
	else
		batoni_mapping_give(comm->device, to->mapping);
	to->mapping = NULL;
	return false;
}

/* The part is memory of a device of this process: may the streams and copies of this rank's use it? */
static bool
reaches_device(struct batoni_collective *c, struct baton_window *window,
               const struct told *told, struct batoni_window_peer *to)
{
	const struct baton_comm *comm = c->rma->comm;
	const struct batoni_memory_ops *memory = comm->device_ops->memory;
	int owner = batoni_location_owner(location_of(told->part));
	enum baton_status status;
	bool stands;

	if (!to->device || owner < 0 || !memory->reach)
		return true;
	status = memory->reach->reaches(comm->device, to->base, owner);
	if (status == BATON_OK)
		return owner == comm->device->number ||
		       copies_work(c, window, told, to, &stands);
	to->why = keep_reason(window, "its memory is out of reach",
	                      baton_last_error());
	if (status != BATON_ERR_UNSUPPORTED)
		batoni_object(c, status, "the memory of rank %d: %s", told->peer,
		              baton_last_error());
	return false;
}

static bool
direct_works(struct batoni_collective *c, struct baton_window *window,
             const struct told *told, struct batoni_window_peer *to)
{
	const struct batoni_rma *rma = c->rma;

	/* A rank on the host stores with the processor. */
	if (to->device && !rma->asks) {
		to->why = "its memory is that of a device, and this rank is on "
			  "the host";
		return false;
	}
	if (batoni_reach(rma, told->peer)->within) {
		/* The number is an address of this process. */
		to->base = (char *)(uintptr_t)told->part->address; // NOLINT
		return reaches_device(c, window, told, to);
	}
	if (!told->same_node) {
		to->why = "it is on another node";
		return false;
	}
	if (to->device)
		return map_device(c, window, told, to);
	if (map_shm(told->part, to))
		return true;
	if (told->part->fd >= 0)
		to->why = "its memory cannot be mapped here";
	else
		to->why = rma->asks ? "its memory is that of the host, and puts "
				      "may come from a device, whose copies do "
				      "not reach the memory of another process; "
				      "baton_mem_alloc gives memory that they do"
		                    : "its memory is not of baton_mem_alloc";
	return false;
}

/* ---- choosing ---- */

/* The path of puts to a peer; 0: the forced path does not reach it. */
static unsigned
choose_path(struct batoni_collective *c, struct baton_window *window,
            const struct told *told, struct batoni_window_peer *to)
{
	const struct batoni_rma *rma = c->rma;
	unsigned forced = batoni_config()->window_path;
	const char *why_not;

	if (forced && forced != BATON_WINDOW_PATH_DIRECT)
		to->why = "BATON_WINDOW_PATH forces it";
	if (forced == BATON_WINDOW_PATH_MESSAGE)
		return forced;
	if (forced == BATON_WINDOW_PATH_NATIVE && !window->native)
		return 0;
	if (told->part->bytes == 0 && forced)
		return forced; /* there is nothing to reach */
	/* The signal goes by message, so another path for the data gains nothing. */
	if (!forced &&
	    rma->signal_path[told->peer] == BATON_WINDOW_PATH_MESSAGE) {
		to->why = told->same_node ? "its signals go by message"
		                          : "it is on another node";
		if (window->native)
			return BATON_WINDOW_PATH_NATIVE;
		why_not = batoni_native_why_not(rma, window);
		if (why_not)
			to->why = keep_reason(window, to->why, why_not);
		return BATON_WINDOW_PATH_MESSAGE;
	}
	if (forced == BATON_WINDOW_PATH_NATIVE)
		return forced;
	if (told->part->bytes == 0)
		return BATON_WINDOW_PATH_DIRECT;
	if (forced != BATON_WINDOW_PATH_VMWRITE &&
	    direct_works(c, window, told, to)) {
		to->why = NULL;
		return BATON_WINDOW_PATH_DIRECT;
	}
	/* Puts may come from memory of a device, and go there. */
	if (rma->asks && !forced)
		return BATON_WINDOW_PATH_MESSAGE;
	if (forced != BATON_WINDOW_PATH_DIRECT && !to->device &&
	    vmwrite_works(rma, told->peer, told->part))
		return BATON_WINDOW_PATH_VMWRITE;
	if (!forced && !to->device)
		to->why = "its memory is not of baton_mem_alloc, and "
			  "process_vm_writev does not reach it";
	return forced ? 0 : BATON_WINDOW_PATH_MESSAGE;
}

static void
refuse_forced(struct batoni_collective *c, const struct baton_window *window,
              int peer, const struct batoni_window_peer *to)
{
	const char *why_not = batoni_native_why_not(c->rma, window);

	if (batoni_config()->window_path == BATON_WINDOW_PATH_NATIVE)
		batoni_object(c, BATON_ERR_UNSUPPORTED,
		              "BATON_WINDOW_PATH forces native, which does not "
		              "reach rank %d: %s%s",
		              peer, why_not ? why_not : "it takes ",
		              why_not ? "" : batoni_native_layer()->constant);
	else if (batoni_config()->window_path == BATON_WINDOW_PATH_DIRECT)
		batoni_object(c, BATON_ERR_UNSUPPORTED,
		              "BATON_WINDOW_PATH forces direct, which does not "
		              "reach rank %d (%s): it takes memory of "
		              "baton_mem_alloc%s on the same node",
		              peer, to->why,
		              to->device ? ", or what its device shares," : "");
	else
		batoni_object(c, BATON_ERR_UNSUPPORTED,
		              "BATON_WINDOW_PATH forces vmwrite, which does not "
		              "reach rank %d: it takes %sthe same node, and the "
		              "permission to trace its process",
		              peer, to->device ? "memory of the host, " : "");
}

void
batoni_paths_choose(struct batoni_collective *c, struct baton_window *window)
{
	const struct batoni_rma *rma = c->rma;
	const struct batoni_part *parts = rma->parts;
	const struct batoni_offer *offers =
		window->offered ? rma->offers : NULL;

	for (int i = 0; i < rma->size && c->status == BATON_OK; i++) {
		struct batoni_window_peer *to = &window->peers[i];
		const struct told told = {
			.peer = i,
			.part = &parts[i],
			.offer = offers ? &offers[i] : NULL,
			.same_node = parts[i].node == parts[rma->rank].node,
		};

		to->bytes = (size_t)parts[i].bytes;
		to->address = parts[i].address;
		to->device = is_of_device(&parts[i]);
		/* A device's number is one of the rank's process. */
		if (batoni_reach(rma, i)->within)
			to->location = (uint8_t)location_of(&parts[i]);
		to->path = choose_path(c, window, &told, to);
		if (to->path == 0)
			refuse_forced(c, window, i, to);
	}
}

void
batoni_paths_drop(struct baton_window *window, bool copies_left)
{
	for (int i = 0; i < window->rma->size; i++) {
		struct batoni_window_peer *to = &window->peers[i];

		if (to->mapped)
			batoni_shm_unmap(to->mapped, to->mapped_bytes);
		if (copies_left && to->mapping)
			batoni_mapping_abandon(to->mapping);
		else
			batoni_mapping_give(window->rma->comm->device,
			                    to->mapping);
		to->mapped = NULL;
		to->mapping = NULL;
		to->why = NULL;
	}
	while (window->reasons) {
		struct batoni_reason *reason = window->reasons;

		window->reasons = reason->next;
		batoni_free(reason);
	}
}

/* ---- telling ---- */

/* For each path and reason, in one line: how many ranks, and the first of them.  A path that is
 * not the fastest is told of at the level info. */
static void
announce_like(const struct baton_window *window, int first)
{
	const struct batoni_window_peer *like = &window->peers[first];
	const struct batoni_rma *rma = window->rma;
	int ranks = 0;

	for (int peer = 0; peer < rma->size; peer++) {
		const struct batoni_window_peer *to = &window->peers[peer];

		if (to->path != like->path || to->why != like->why)
			continue;
		if (peer < first)
			return; /* told already */
		ranks++;
	}
	batoni_log(like->why ? BATONI_LOG_INFO : BATONI_LOG_DEBUG,
	           "rank %d: window %llu of %zu bytes here: puts to %d ranks go "
	           "by %s, the first of them rank %d%s%s",
	           rma->rank, (unsigned long long)window->id, window->bytes,
	           ranks,
	           like->path == BATON_WINDOW_PATH_DIRECT    ? "direct"
	           : like->path == BATON_WINDOW_PATH_VMWRITE ? "vmwrite"
	           : like->path == BATON_WINDOW_PATH_NATIVE  ? "native"
	                                                     : "message",
	           first, like->why ? ": " : "", like->why ? like->why : "");
}

void
batoni_paths_announce(const struct baton_window *window)
{
	if (batoni_config()->log_level < BATONI_LOG_INFO)
		return;
	for (int peer = 0; peer < window->rma->size; peer++)
		announce_like(window, peer);
}

void
batoni_paths_sum(struct batoni_rma *rma)
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
