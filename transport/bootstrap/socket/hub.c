/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hub: a thread that relays between the ranks of a communicator, from its creation until
 * the last of them has closed.  It knows nothing of communicators: it has a link to each rank
 * (a `spoke`), and sleeps in epoll_wait.
 *
 * Exchanges.  Each rank sends its PART of the round; when all are there, each gets ALL.
 * A rank sends no PART of the next round before it has ALL of this one, so there is one round
 * at a time, and the table of the last one lives until it is written to everybody.  Ranks of
 * this process get ALL when it has been written to all others: once its own rank has left, the
 * process may exit, and what the kernel has taken it still delivers.
 *
 * Messages (READY, DATA, RETRACT, RETRACTED) go on to `to`; `from` has to be the rank whose
 * spoke they came by.  A spoke with more than RELAY_MAX bytes of its own on the way is not
 * read.
 *
 * Ends.  A spoke that closes after BYE has left: the others get LEFT.  Any other end
 * (closed, reset, the rules broken, no memory) is a death: the others get GONE.  The thread ends
 * when all spokes have.
 *
 * States of a spoke: OPEN -> LEAVING (it said BYE; what is queued for it is dropped) -> CLOSED;
 * OPEN -> CLOSED.  All of it belongs to the thread; the program's fork handlers, signals and
 * locks have nothing to do with it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"
#include "tcp.h"
#include "thread.h"

#define RELAY_MAX ((size_t)256 << 10)
#define EVENTS 64

/* One round of exchange. */
struct table {
	uint64_t what, bytes;
	enum baton_status status;
	int brought;
	int refs;     /* the hub's, and one for each ALL that is queued */
	int awaited;  /* ALLs to other processes that are not written */
	unsigned char all[];
};

struct hub;

struct spoke {
	struct batoni_tcp_link link; /* must be first */
	struct hub *hub;
	int rank;
	bool local;
	bool bye, aborted;
	uint64_t after;      /* as its ABORT says */
	bool brought;        /* its PART of this round */
	bool blocked;        /* not read */
	uint32_t watches;    /* the events that epoll is asked for */
	size_t on_the_way;   /* bytes that came from it, and are not written */
	unsigned char body[BATONI_TCP_MESSAGE_MAX];
};

struct hub {
	int size, open, epoll;
	int home; /* a rank of this process */
	struct spoke *spokes;
	struct table *table; /* of this round, or NULL */
	bool work; /* something was queued: all spokes are to be written */
	unsigned char nowhere[BATONI_TCP_PART_MAX]; /* parts that do not fit */
};

static atomic_int running;

int
batoni_tcp_hubs(void)
{
	return atomic_load(&running);
}

static struct spoke *
to_spoke(struct batoni_tcp_link *link)
{
	return batoni_container_of(link, struct spoke, link);
}

static bool
is_open(const struct spoke *spoke)
{
	return spoke->link.fd >= 0;
}

static void
fail_spoke(struct spoke *spoke, enum batoni_tcp_gone error)
{
	if (!spoke->link.error)
		spoke->link.error = error;
}

static void
queue(struct spoke *spoke, const struct batoni_tcp_frame *frame,
      const void *bytes, bool keep, void *tag)
{
	if (!is_open(spoke) || spoke->bye)
		return;
	if (!batoni_tcp_link_queue(&spoke->link, frame, bytes, keep, tag))
		fail_spoke(spoke, BATONI_TCP_NO_MEMORY);
	spoke->hub->work = true;
}

/* ---- exchanges ---- */

static void
put_table(struct table *table)
{
	if (--table->refs == 0)
		batoni_free(table);
}

static void
send_all(struct hub *hub, struct table *table, bool local)
{
	const struct batoni_tcp_frame frame = {
		.kind = BATONI_TCP_ALL,
		.status = (uint32_t)table->status,
		.bytes = table->bytes,
		.length = table->status == BATON_OK
		                  ? (uint32_t)(table->bytes *
		                               (uint64_t)hub->size)
		                  : 0,
	};

	for (int i = 0; i < hub->size; i++) {
		struct spoke *spoke = &hub->spokes[i];

		if (spoke->local != local || !is_open(spoke) || spoke->bye)
			continue;
		if (!batoni_tcp_link_queue(&spoke->link, &frame, table->all,
		                           true, table)) {
			fail_spoke(spoke, BATONI_TCP_NO_MEMORY);
			continue;
		}
		table->refs++;
		table->awaited += !local;
		hub->work = true;
	}
}

static void
end_round(struct hub *hub)
{
	struct table *table = hub->table;

	hub->table = NULL;
	for (int i = 0; i < hub->size; i++)
		hub->spokes[i].brought = false;
	send_all(hub, table, false);
	if (table->awaited == 0)
		send_all(hub, table, true);
	put_table(table);
}

/* The table of this round, which the first PART begins.  NULL: no memory. */
static struct table *
table_for(struct hub *hub, const struct batoni_tcp_frame *frame)
{
	struct table *table = hub->table;

	if (table)
		return table;
	table = batoni_alloc(1, sizeof(*table) +
	                                (size_t)frame->bytes *
	                                        (size_t)hub->size);
	if (!table)
		return NULL;
	table->what = frame->what;
	table->bytes = frame->bytes;
	table->refs = 1;
	hub->table = table;
	return table;
}

static bool
fits(const struct table *table, const struct batoni_tcp_frame *frame)
{
	return table->what == frame->what && table->bytes == frame->bytes;
}

static void
bring(struct spoke *spoke, const struct batoni_tcp_frame *frame)
{
	struct table *table = table_for(spoke->hub, frame);

	if (!table || spoke->brought) {
		fail_spoke(spoke, table ? BATONI_TCP_BROKE_RULES
		                        : BATONI_TCP_NO_MEMORY);
		return;
	}
	spoke->brought = true;
	if (frame->status != BATON_OK)
		table->status = BATON_ERR_NOMEM;
	/* The ranks make their collective calls in different orders. */
	if (!fits(table, frame))
		table->status = BATON_ERR_INVALID;
	if (++table->brought == spoke->hub->size)
		end_round(spoke->hub);
}

/* ---- what comes ---- */

/* PART goes to its place in the table; or nowhere, if it does not fit. */
static unsigned char *
hub_room(struct batoni_tcp_link *link, const struct batoni_tcp_frame *frame)
{
	struct spoke *spoke = to_spoke(link);
	struct table *table;

	if (frame->from != (uint32_t)spoke->rank)
		return NULL;
	if (frame->kind == BATONI_TCP_DATA)
		return spoke->body;
	if (frame->kind != BATONI_TCP_PART || spoke->brought)
		return NULL;
	table = table_for(spoke->hub, frame);
	if (!table)
		fail_spoke(spoke, BATONI_TCP_NO_MEMORY);
	if (!table || !fits(table, frame))
		return table ? spoke->hub->nowhere : NULL;
	return table->all + (size_t)spoke->rank * table->bytes;
}

static void
relay(struct spoke *spoke, const struct batoni_tcp_frame *frame)
{
	struct spoke *to = &spoke->hub->spokes[frame->to];

	if (!is_open(to) || to->bye || to->link.error)
		return;
	spoke->on_the_way += BATONI_TCP_HEAD_BYTES + frame->length;
	queue(to, frame, spoke->body, false, spoke);
	if (spoke->on_the_way > RELAY_MAX)
		spoke->blocked = true;
}

static void
hub_arrived(struct batoni_tcp_link *link, const struct batoni_tcp_frame *frame)
{
	struct spoke *spoke = to_spoke(link);

	if (frame->from != (uint32_t)spoke->rank) {
		fail_spoke(spoke, BATONI_TCP_BROKE_RULES);
		return;
	}
	switch (frame->kind) {
	case BATONI_TCP_PART:
		bring(spoke, frame);
		return;
	case BATONI_TCP_READY:
	case BATONI_TCP_DATA:
	case BATONI_TCP_RETRACT:
	case BATONI_TCP_RETRACTED:
		relay(spoke, frame);
		return;
	case BATONI_TCP_BYE:
		spoke->bye = true;
		return;
	case BATONI_TCP_ABORT:
		spoke->aborted = true;
		spoke->after = frame->what;
		return;
	default:
		fail_spoke(spoke, BATONI_TCP_BROKE_RULES);
	}
}

/* tag: the spoke that a message came from, or the table of an ALL. */
static void
hub_written(struct batoni_tcp_link *link, void *tag, size_t bytes)
{
	struct spoke *spoke = to_spoke(link);
	struct hub *hub = spoke->hub;
	struct spoke *source = tag;
	struct table *table = tag;

	if (source >= hub->spokes && source < hub->spokes + hub->size) {
		source->on_the_way -= bytes;
		if (source->blocked && source->on_the_way <= RELAY_MAX / 2) {
			source->blocked = false;
			hub->work = true;
		}
		return;
	}
	if (!spoke->local && --table->awaited == 0)
		send_all(hub, table, true);
	put_table(table);
}

static const struct batoni_tcp_link_ops hub_ops = {
	.room = hub_room,
	.arrived = hub_arrived,
	.written = hub_written,
};

/* ---- ends ---- */

static void
close_spoke(struct spoke *spoke)
{
	struct hub *hub = spoke->hub;
	const struct batoni_tcp_frame frame = {
		.kind = spoke->bye ? BATONI_TCP_LEFT : BATONI_TCP_GONE,
		.from = (uint32_t)spoke->rank,
		.status = spoke->bye       ? 0
		          : spoke->aborted ? BATONI_TCP_ABORTED
		                           : (uint32_t)spoke->link.error,
		.what = spoke->bye ? 0 : spoke->after,
	};

	/* The other ranks do not get the network's text for its death. */
	if (!spoke->bye)
		batoni_log(BATONI_LOG_DEBUG,
		           "the side channel has lost rank %d (reason %d, "
		           "errno %d)",
		           spoke->rank, (int)frame.status, spoke->link.code);
	batoni_tcp_link_fini(&spoke->link);
	hub->open--;
	for (int i = 0; i < hub->size; i++)
		queue(&hub->spokes[i], &frame, NULL, false, NULL);
}

/* ---- the thread ---- */

static void
watch(struct spoke *spoke)
{
	struct epoll_event event = {.data.ptr = spoke};

	event.events = (spoke->blocked ? 0u : (uint32_t)EPOLLIN) |
	               (batoni_list_empty(&spoke->link.out)
	                        ? 0u
	                        : (uint32_t)EPOLLOUT);
	if (event.events == spoke->watches)
		return;
	spoke->watches = event.events;
	epoll_ctl(spoke->hub->epoll, EPOLL_CTL_MOD, spoke->link.fd, &event);
}

/* Write what can be written, and close what has ended, until neither makes more of it. */
static void
settle(struct hub *hub)
{
	do {
		hub->work = false;
		for (int i = 0; i < hub->size; i++) {
			struct spoke *spoke = &hub->spokes[i];

			if (!is_open(spoke))
				continue;
			batoni_tcp_link_write(&spoke->link);
			if (spoke->link.error)
				close_spoke(spoke);
			else
				watch(spoke);
		}
	} while (hub->work);
}

static void
free_hub(struct hub *hub)
{
	for (int i = 0; hub->spokes && i < hub->size; i++) {
		if (hub->spokes[i].hub)
			batoni_tcp_link_fini(&hub->spokes[i].link);
	}
	if (hub->table)
		put_table(hub->table);
	if (hub->epoll >= 0)
		close(hub->epoll);
	batoni_free(hub->spokes);
	batoni_free(hub);
}

/* Those of other processes.  Nothing was sent to them since ADMITTED, so it goes whole; one that
 * cannot be told is gone, as its link will show. */
static void
let_go(const struct hub *hub)
{
	const struct batoni_tcp_verdict go = {.word = BATONI_TCP_GO,
	                                      .status = hub->home};
	unsigned char bytes[BATONI_TCP_VERDICT_BYTES];

	batoni_tcp_verdict_encode(&go, bytes);
	for (int i = 0; i < hub->size; i++) {
		if (!hub->spokes[i].local &&
		    send(hub->spokes[i].link.fd, bytes, sizeof(bytes),
		         MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(bytes))
			fail_spoke(&hub->spokes[i], BATONI_TCP_CLOSED);
	}
}

static void *
hub_main(void *argument)
{
	struct hub *hub = argument;

	let_go(hub);
	settle(hub);
	while (hub->open > 0) {
		struct epoll_event events[EVENTS];
		int n = epoll_wait(hub->epoll, events, EVENTS, -1);

		for (int i = 0; i < n; i++) {
			struct spoke *spoke = events[i].data.ptr;

			if (!is_open(spoke))
				continue;
			/* Not read, but its end is seen. */
			if (spoke->blocked &&
			    events[i].events & (EPOLLERR | EPOLLHUP))
				fail_spoke(spoke, BATONI_TCP_CLOSED);
			else if (!spoke->blocked)
				batoni_tcp_link_read(&spoke->link);
			/* At once, so that the others hear of ends in their order. */
			if (spoke->link.error)
				close_spoke(spoke);
		}
		settle(hub);
	}
	free_hub(hub);
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static enum baton_status
init_spokes(struct hub *hub, const int fds[], const bool local[])
{
	for (int rank = 0; rank < hub->size; rank++) {
		struct spoke *spoke = &hub->spokes[rank];
		struct epoll_event event = {.events = EPOLLIN,
		                            .data.ptr = spoke};

		if (epoll_ctl(hub->epoll, EPOLL_CTL_ADD, fds[rank], &event) != 0)
			return BATON_ERR_SYSTEM;
		batoni_tcp_link_init(&spoke->link, -1, hub->size, &hub_ops);
		spoke->hub = hub;
		spoke->rank = rank;
		spoke->local = local[rank];
		spoke->watches = EPOLLIN;
	}
	for (int rank = 0; rank < hub->size; rank++)
		hub->spokes[rank].link.fd = fds[rank];
	hub->open = hub->size;
	return BATON_OK;
}

static void
drop_fds(struct hub *hub)
{
	for (int rank = 0; rank < hub->size; rank++)
		hub->spokes[rank].link.fd = -1;
}

enum baton_status
batoni_tcp_hub_start(int size, int home, const int fds[], const bool local[])
{
	struct hub *hub = batoni_alloc(1, sizeof(*hub));
	enum baton_status status = BATON_ERR_NOMEM;
	pthread_t thread;

	if (!hub)
		return BATON_ERR_NOMEM;
	hub->size = size;
	hub->home = home;
	hub->epoll = epoll_create1(EPOLL_CLOEXEC);
	hub->spokes = batoni_alloc((size_t)size, sizeof(*hub->spokes));
	if (hub->spokes)
		status = hub->epoll < 0 ? BATON_ERR_SYSTEM
		                        : init_spokes(hub, fds, local);
	atomic_fetch_add(&running, 1);
	if (status == BATON_OK &&
	    batoni_thread_start(&thread, hub_main, hub) == 0) {
		pthread_detach(thread);
		return BATON_OK;
	}
	atomic_fetch_sub(&running, 1);
	if (hub->spokes)
		drop_fds(hub);
	free_hub(hub);
	return status == BATON_OK ? BATON_ERR_SYSTEM : status;
}
