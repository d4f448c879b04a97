/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: registering and deregistering.
 *
 * Registering takes two exchanges among all ranks.  In the first each one says how
 * long its part is, where it lies, and the name of the shared memory that it lies in
 * if it does.  Each then chooses, for every peer, the path of its own puts.  The
 * second tells these paths, so that a rank knows whether messages may come to it,
 * and whether all have found theirs: a window exists on all ranks or on none.  A
 * rank that is refused for its own arguments takes part all the same (collective.h);
 * that is why the memory for the first exchange is there beforehand, and the other
 * one's from the first window on.
 *
 * A window is on rma->windows before the second exchange: a peer that is through it
 * may put, and its message must find the window.
 *
 * Deregistering first asks whether any rank has puts of its own that have not
 * ended, and how many messages each has sent to each: puts that have ended at their
 * source may still be on their way, and whoever gets them waits until it has
 * applied as many as were sent.  A last exchange keeps everybody at the work until
 * all have.
 */
#include "collective.h"

#include <string.h>
#include <unistd.h>

#include "config.h"
#include "mem.h"

/* What a rank tells the others of its part. */
struct part {
	int32_t status;  /* why it takes no part, or OK */
	uint32_t shared; /* name and offset say where it lies */
	uint64_t bytes;
	uint64_t address; /* in its own process, as that of its segment */
	uint64_t segment;
	uint64_t offset;
	struct batoni_shm_name name;
};

/* ---- paths ---- */

/* What this process reaches of a rank's; a transport without peers reaches none. */
static const struct batoni_peer *
reach(const struct batoni_rma *rma, int peer)
{
	static const struct batoni_peer nothing;

	return rma->transport->peers ? &rma->transport->peers[peer] : &nothing;
}

/* Can we write there?  Each rank tries in a word of its own. */
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
	/* Nothing would tell that the process is gone and its number another's. */
	if (!to->within && to->pidfd < 0)
		return false;
	if (batoni_vm_write(pid, part->segment + at, &value, sizeof(value)) !=
	    BATON_OK)
		return false;
	return atomic_load(&words[rma->rank]) == value;
}

static bool
direct_works(const struct batoni_rma *rma, int peer, const struct part *part,
             struct batoni_window_peer *to)
{
	if (reach(rma, peer)->within) {
		/* An address of this process that came as a number. */
		to->base = (char *)(uintptr_t)part->address; // NOLINT
		return true;
	}
	if (!part->shared ||
	    batoni_shm_map(&part->name, (size_t)part->offset, to->bytes,
	                   &to->mapped) != BATON_OK)
		return false;
	to->base = to->mapped;
	to->mapped_bytes = to->bytes;
	return true;
}

/* The path of puts to a peer; 0: the one that is forced does not get there. */
static unsigned
choose_path(const struct batoni_rma *rma, int peer, const struct part *part,
            struct batoni_window_peer *to)
{
	unsigned forced = batoni_config()->window_path;

	if (forced == BATON_WINDOW_PATH_MESSAGE)
		return forced;
	if (part->bytes == 0 && forced)
		return forced; /* there is nothing to reach */
	/* The signal goes by message, and the data gains nothing by going
	 * another way. */
	if (!forced && rma->signal_path[peer] == BATON_WINDOW_PATH_MESSAGE)
		return BATON_WINDOW_PATH_MESSAGE;
	if (part->bytes == 0)
		return BATON_WINDOW_PATH_DIRECT;
	if (forced != BATON_WINDOW_PATH_VMWRITE &&
	    direct_works(rma, peer, part, to))
		return BATON_WINDOW_PATH_DIRECT;
	if (forced != BATON_WINDOW_PATH_DIRECT && vmwrite_works(rma, peer, part))
		return BATON_WINDOW_PATH_VMWRITE;
	return forced ? 0 : BATON_WINDOW_PATH_MESSAGE;
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

/* Why puts to that rank do not go a faster way. */
static const char *
why_not_faster(const struct batoni_rma *rma, int peer, unsigned path)
{
	const struct part *part = &((const struct part *)rma->parts)[peer];

	if (batoni_config()->window_path == path)
		return "BATON_WINDOW_PATH forces it";
	if (path == BATON_WINDOW_PATH_VMWRITE)
		return part->shared ? "its memory cannot be mapped here"
		                    : "its memory is not of baton_mem_alloc";
	if (rma->signal_path[peer] == BATON_WINDOW_PATH_MESSAGE)
		return "its signals go by message";
	return "its memory is not of baton_mem_alloc, and process_vm_writev "
	       "does not reach it";
}

/* At debug: by each path, to how many ranks, and why not by a faster one. */
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

/* For baton_comm_query; the driver. */
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
	batoni_free(window);
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
	if (!rma->rows)
		rma->rows = batoni_alloc((size_t)rma->size + 1,
		                         batoni_row_words_max(rma) * sizeof(uint64_t));
	if (!rma->rows) {
		batoni_free(window);
		return NULL;
	}
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

/* Make the window as far as this rank can alone. */
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
	return window;
}

/* The first exchange. */
static enum baton_status
tell_part(struct batoni_collective *c, const struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	struct part *parts = rma->parts, *mine = &parts[rma->size];

	memset(mine, 0, sizeof(*mine));
	mine->status = c->status;
	mine->segment = (uintptr_t)reach(rma, rma->rank)->segment;
	if (window) {
		mine->bytes = window->bytes;
		mine->address = (uintptr_t)window->base;
	}
	if (window && window->memory) {
		mine->shared = 1;
		mine->offset = (uintptr_t)window->base -
		               (uintptr_t)window->memory->shm.base;
		batoni_shm_name(&window->memory->shm, &mine->name);
	}
	return batoni_collect(c, mine, sizeof(*mine), parts);
}

/* The refusal that all share: one's own, or the first other's. */
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

/* The second exchange: has everybody found paths, and which? */
static enum baton_status
tell_paths(struct batoni_collective *c, struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	size_t words = 1 + ((size_t)rma->size + 7) / 8;
	uint64_t *mine = batoni_own_row(rma);
	enum baton_status status;

	memset(mine, 0, words * sizeof(*mine));
	mine[0] = (uint64_t)c->status;
	for (int i = 0; i < rma->size; i++)
		((unsigned char *)&mine[1])[i] =
			(unsigned char)window->peers[i].path;
	status = batoni_collect_rows(c, words);
	if (status != BATON_OK)
		return status;
	for (int i = 0; i < rma->size; i++) {
		const uint64_t *row = &rma->rows[(size_t)i * words];
		const unsigned char *paths = (const unsigned char *)&row[1];

		if (row[0] != BATON_OK)
			return refuse_all(c, i, (enum baton_status)(int)row[0]);
		for (int j = 0; j < rma->size; j++)
			window->by_messages |=
				paths[j] == BATON_WINDOW_PATH_MESSAGE;
		window->listens |=
			paths[rma->rank] == BATON_WINDOW_PATH_MESSAGE;
	}
	return BATON_OK;
}

/* The communicator broke: no message is to write into the window after this, as far
 * as that can be had. */
static void
stop_messages(struct baton_window *window)
{
	struct batoni_rma *rma = window->rma;
	enum baton_status status;

	do {
		batoni_take();
		/* Lost: MPI is finalised, and does nothing more. */
		status = rma->comm->lost
		                 ? BATON_OK
		                 : batoni_messages_let_go(rma, window->base,
		                                          window->bytes);
		batoni_leave();
	} while (status == BATON_PENDING);
}

/* After the first exchange: there is a window, or the reason why not. */
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
	/* Some may have put already, if it broke here. */
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
		/* Also when it is refused: all ranks count alike. */
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
	*window_p = window;
	return BATON_OK;
}

/* ---- deregistering ---- */

/* Messages that were sent to this rank before the ranks agreed are applied. */
static enum baton_status
applied_step(struct batoni_collective *c)
{
	const struct batoni_rma *rma = c->rma;
	size_t words = batoni_row_words_max(rma);

	for (int i = 0; i < rma->size; i++) {
		uint64_t sent = rma->rows[(size_t)i * words + 1 +
		                          (size_t)rma->rank];

		if (batoni_messages_applied(rma, i) < sent)
			return BATON_PENDING;
	}
	return BATON_OK;
}

/* Has any rank puts that have not ended?  OK, BUSY, or as collect. */
static enum baton_status
agree_to_end(struct batoni_collective *c, const struct baton_window *window)
{
	struct batoni_rma *rma = c->rma;
	size_t words = window->by_messages ? batoni_row_words_max(rma) : 1;
	uint64_t *mine = batoni_own_row(rma);
	enum baton_status status;

	batoni_take();
	batoni_place_inbox();
	mine[0] = window->pending + atomic_load(&window->entering);
	for (int i = 0; i + 1 < (int)words; i++)
		mine[1 + i] = batoni_messages_sent(rma, i);
	batoni_leave();
	status = batoni_collect_rows(c, words);
	for (int i = 0; i < rma->size && status == BATON_OK; i++) {
		uint64_t pending = rma->rows[(size_t)i * words];

		if (pending)
			status = batoni_refuse(
				BATON_ERR_BUSY,
				"%s: %llu puts of rank %d into the window have "
				"not ended",
				c->call, (unsigned long long)pending, i);
	}
	return status;
}

/* Until all ranks have applied what was sent to them. */
static enum baton_status
drain(struct batoni_collective *c, const struct baton_window *window)
{
	enum baton_status status;

	if (!window->by_messages)
		return BATON_OK;
	c->late = "not all puts of other ranks have come";
	status = window->listens ? batoni_collective_drive(c, applied_step)
	                         : BATON_OK;
	if (status != BATON_OK)
		return status;
	batoni_own_row(c->rma)[0] = 0;
	return batoni_collect_rows(c, 1);
}

/* The communicator is broken: this rank goes alone. */
static enum baton_status
leave_window(struct baton_window *window)
{
	struct batoni_rma *rma = window->rma;
	bool held;

	stop_messages(window);
	batoni_take();
	batoni_pass();
	batoni_list_remove(&window->link);
	if (window->listens)
		batoni_messages_listen(rma, -1);
	sum_paths(rma);
	held = window->pending != 0;
	if (held) {
		window->next_buried = rma->buried;
		rma->buried = window;
	}
	batoni_leave();
	if (!held)
		window_free(window);
	else if (window->memory) {
		/* Nothing is read or written there any more. */
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

	BATONI_ENTER("baton_window_deregister");
	if (!window)
		return BATON_OK;
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
	if (status == BATON_OK)
		status = drain(&c, window);
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
	return window && peer >= 0 && peer < window->rma->size
	               ? window->peers[peer].bytes
	               : 0;
}

unsigned
baton_window_path(const struct baton_window *window, int peer)
{
	return window && peer >= 0 && peer < window->rma->size
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

enum baton_status
batoni_windows_open(struct batoni_rma *rma)
{
	rma->parts = batoni_alloc((size_t)rma->size + 1, sizeof(struct part));
	return rma->parts ? BATON_OK : BATON_ERR_NOMEM;
}

void
batoni_windows_close(struct batoni_rma *rma)
{
	while (rma->buried) {
		struct baton_window *window = rma->buried;

		rma->buried = window->next_buried;
		window_free(window);
	}
	batoni_free(rma->rows);
	batoni_free(rma->parts);
	rma->rows = NULL;
	rma->parts = NULL;
}
