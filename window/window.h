/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows and signals, as the files of window/ see each other.
 *
 *   onesided.c    the contract with the engine: memory, dispatch, leaving
 *   link.c        what is kept for a peer that this rank talks to
 *   wait.c        counters, and the waits that are given units of them
 *   put.c         channels: the order of puts to one (peer, context), and the paths on
 *                 which this rank writes itself (direct, vmwrite)
 *   message.c     the path by messages, both of its ends (message.h)
 *   message_put.c handing puts over to them
 *   window.c      registering and deregistering
 *   collective.c  how all ranks come to one answer (collective.h)
 *   memory.c      memory for windows
 *   describe.c    what an operation is about, for a dump
 *   calls.c       the public calls that enqueue, and the count
 *
 * The layer is above the engine.  Everything here belongs to the thread that drives
 * (it holds the driver's lock), except what says otherwise.
 *
 * An operation is known by its request's slot: pending[slot] holds what it needs
 * beyond its transfer.  The enqueuing thread fills that in before it publishes the
 * record; from then on it is the driver's.
 */
#ifndef BATONI_WINDOW_H
#define BATONI_WINDOW_H

#include "core.h"
#include "onesided.h"

/* The most that is copied within an enqueuing call, and in one slice of a test. */
#define BATONI_PUT_INLINE_MAX ((size_t)16 << 10)
#define BATONI_PUT_SLICE_MAX ((size_t)1 << 20)

struct batoni_rma;
struct batoni_wire; /* message.h */

/* One rank's part of a window, as this rank sees it.  Constant once registered. */
struct batoni_window_peer {
	size_t bytes;
	unsigned path;    /* BATON_WINDOW_PATH_*, one of them */
	char *base;       /* direct: where its part is in this process */
	uint64_t address; /* vmwrite: where it is in its own */
	void *mapped;     /* what batoni_shm_map gave, or NULL */
	size_t mapped_bytes;
};

struct baton_window {
	struct batoni_rma *rma;
	struct batoni_list_node link; /* of rma->windows */
	uint64_t id;                  /* the same on all ranks */
	void *base;                   /* this rank's part */
	size_t bytes;
	struct batoni_memory *memory; /* of baton_mem_alloc it lies in, or NULL */
	uint32_t pending;   /* own puts into it that are placed and have not ended */
	/* Puts into it by message, of this rank and to it: handed to the transport,
	 * and applied or dropped. */
	uint64_t sent, applied;
	_Atomic uint32_t entering; /* and calls that will place one; any thread */
	bool listens;       /* it has had batoni_messages_listen called */
	_Atomic bool closing; /* being deregistered: the calls refuse it */
	bool by_messages; /* some rank's path to some rank is MESSAGE */
	struct baton_window *next_buried;
	struct batoni_handle handle;
	struct batoni_window_peer peers[];
};

static inline bool
batoni_window_lives(const struct baton_window *window)
{
	return window && batoni_is_alive(&window->handle);
}

/* Memory of baton_mem_alloc. */
struct batoni_memory {
	struct batoni_list_node link; /* of rma->memories */
	struct batoni_shm shm;
	uint32_t windows; /* registered windows that lie in it */
	bool known;       /* there has been one: peers have its address */
};

/* One counter that a wait names.  Index 0 of the pool is not used. */
struct batoni_wait_node {
	struct batoni_list_node link; /* of its counter, in the order of placing */
	uint64_t target; /* met when the counter is at least this */
	uint64_t units;
	struct batoni_counter *counter;
	uint32_t slot;    /* of its wait */
	uint32_t next;    /* of the same wait, or free; 0 ends the list */
};

/* One counter of this rank. */
struct batoni_counter {
	_Atomic uint64_t *value; /* in this rank's segment; wanted is behind it */
	uint64_t given;                /* units given to waits, ever */
	struct batoni_list_node nodes; /* of waits that are placed and not over */
	struct batoni_channel *channel; /* its source and context */
	/* Guarded by nodes_lock: the description that named it last, its node there. */
	uint64_t described;
	uint32_t described_node;
};

/* What an operation needs beyond its transfer, by slot. */
struct batoni_pending {
	struct batoni_transfer *transfer; /* set by issue */
	/* A put in a channel's queue, a wait among the issued. */
	struct batoni_list_node link;
	union {
		struct { /* a put, or a signal: window NULL */
			struct baton_window *window;
			size_t offset;
			size_t copied; /* so far */
			int signal_index;
			bool in_channel; /* not yet handed to messages */
		} put;
		struct { /* a wait */
			uint32_t nodes; /* its first one */
			uint32_t unmet; /* the node to look at next; 0: all met */
			bool parked;    /* counted in base.parked */
		} wait;
	};
};

/* The puts and signals of this rank to one (peer, context), in their order. */
struct batoni_channel {
	struct batoni_link *link;
	/* NULL: nothing has gone by message, either way.  Any thread. */
	_Atomic(struct batoni_wire *) wire;
	struct batoni_list_node queue;  /* of pending.link: not finished, not handed to
	                                   messages; only the first one moves */
	struct batoni_list_node active; /* of rma->channels_active, while queue is not
	                                   empty */
	int peer, context;
	bool stores; /* signals go by stores; constant */
	/* A signal has gone by message: all later ones do, since a direct store
	 * would overtake it. */
	bool through_messages;
	/* The other way: signals of that peer in this context have come by message,
	 * so later ones will, and a wait for them may not be parked. */
	bool heard;
};

/* A peer that this rank talks to. */
struct batoni_link {
	uint64_t sent, applied; /* messages to it and from it */
	struct batoni_counter *counters; /* of its signals: context, then index */
	struct batoni_channel channels[]; /* by context */
};

struct batoni_rma {
	struct batoni_onesided base; /* must be first */
	struct baton_comm *comm;
	struct batoni_transport *transport;
	int rank, size;
	atomic_bool collective; /* a thread of this rank is in a collective call */
	uint32_t requests_max;
	size_t source_bytes; /* of a segment, for each source */

	struct batoni_pending *pending;   /* by slot */
	_Atomic(struct batoni_link *) *links; /* by peer; NULL: none yet */
	struct batoni_list_node channels_active;
	unsigned char *signal_path; /* by peer: DIRECT or MESSAGE */

	/* wait.c */
	struct batoni_list_node waits;   /* issued, of pending.link */
	pthread_mutex_t nodes_lock;      /* guards free_node, nodes_more; a leaf */
	/* By index: first those for single counters, and after them, once they are
	 * needed, those for a wait that names every rank. */
	struct batoni_wait_node *nodes;
	_Atomic(struct batoni_wait_node *) nodes_more;
	uint32_t free_node;
	uint32_t spare_node; /* the driver's own, or 0 */
	uint64_t descriptions; /* how many there were; guarded by nodes_lock */
	uint64_t peers_looked_ns; /* when the processes of peers were last looked at */

	/* message.c */
	struct batoni_messages *messages;

	/* window.c */
	struct batoni_list_node windows; /* the driver */
	pthread_mutex_t memories_lock;   /* guards memories and their counts; a leaf */
	struct batoni_list_node memories;
	uint64_t next_window;
	void *parts;   /* what ranks tell of their parts; from the first window on */
	void *answers; /* and to agree */
	struct baton_window *buried; /* deregistered after an abort, with puts that
	                                the transport has not let go */
	char alive_text[80];
};

/* ---- segments and counters ---- */

/* Where a segment has the counter of a source: the count, and behind it the wanted
 * count. */
static inline _Atomic uint64_t *
batoni_segment_counter(const struct batoni_rma *rma, void *segment, int source,
                       int signal_index, int context)
{
	char *counters = (char *)segment +
	                 batoni_onesided_head_bytes(rma->size) +
	                 rma->source_bytes * (size_t)source;

	return (_Atomic uint64_t *)(void *)counters +
	       2 * ((size_t)context * (size_t)rma->base.signals_max +
	            (size_t)signal_index);
}

static inline struct batoni_link *
batoni_link_of(const struct batoni_rma *rma, int peer)
{
	return atomic_load_explicit(&rma->links[peer], memory_order_acquire);
}

/* Of a peer that there is a link to. */
static inline struct batoni_channel *
batoni_channel_of(const struct batoni_rma *rma, int peer, int context)
{
	return &batoni_link_of(rma, peer)->channels[context];
}

static inline struct batoni_counter *
batoni_counter_of(const struct batoni_rma *rma, const struct batoni_link *link,
                  int signal_index, int context)
{
	return &link->counters[context * rma->base.signals_max + signal_index];
}

static inline struct batoni_wire *
batoni_wire_of(struct batoni_channel *channel)
{
	return atomic_load_explicit(&channel->wire, memory_order_acquire);
}

/* May that rank's signals come by message?  (A rank that our signals reach only by
 * message, because that is forced, sends its own so too.) */
static inline bool
batoni_comes_by_message(const struct batoni_rma *rma, int source)
{
	return !rma->transport->peers[source].reaches_us ||
	       rma->signal_path[source] == BATON_WINDOW_PATH_MESSAGE;
}

/* The one-sided layer of a communicator; NULL where it has none. */
static inline struct batoni_rma *
batoni_rma_of(const struct baton_comm *comm)
{
	return (struct batoni_rma *)(void *)comm->onesided;
}

/*
 * Signal a peer whose segment is mapped here: one more on its counter, then wake it
 * if somebody there listens, and wants no more than this.
 *
 * Why this is enough.  Data is written by plain stores (or by the kernel, which is
 * done when the call returns) before the fetch-add, which is a release: who reads the
 * counter by an acquire load sees them, and, since later puts of this channel come
 * after it in this thread's order or in that of the driver's lock, all earlier ones
 * too.  The fetch-add and the loads of `listening` and of the wanted count are
 * sequentially consistent, as are the listener's stores of both, in this order, and its
 * last look at the counter: of the two, one sees the other (batoni_bell in shm.h).
 */
static inline void
batoni_signal_store(const struct batoni_rma *rma, int peer, int signal_index,
                    int context)
{
	const struct batoni_peer *to = &rma->transport->peers[peer];
	_Atomic uint64_t *counter = batoni_segment_counter(
		rma, to->segment, rma->rank, signal_index, context);
	uint64_t count = atomic_fetch_add(counter, 1) + 1;

	if (atomic_load(&to->bell->listening) && count >= atomic_load(&counter[1]))
		batoni_bell_ring(to->bell);
}

/* ---- link.c ---- */

/* OK, NOMEM. */
enum baton_status batoni_links_open(struct batoni_rma *rma);
/* Free all of them; fine without open. */
void batoni_links_close(struct batoni_rma *rma);
/* There is one after this; NULL: no memory.  Any thread. */
struct batoni_link *batoni_link_make(struct batoni_rma *rma, int peer);
struct batoni_wire *batoni_wire_make(struct batoni_rma *rma,
                                     struct batoni_channel *channel);

/* ---- wait.c ---- */

/* How many of the nodes are in the first array: 0 is no node, the last the spare one. */
static inline uint32_t
batoni_nodes_first(const struct batoni_rma *rma)
{
	return rma->requests_max + 2;
}

static inline struct batoni_wait_node *
batoni_node_at(const struct batoni_rma *rma, uint32_t i)
{
	if (likely(i < batoni_nodes_first(rma)))
		return &rma->nodes[i];
	return &atomic_load_explicit(&rma->nodes_more, memory_order_acquire)
	                [i - batoni_nodes_first(rma)];
}


/* OK, NOMEM. */
enum baton_status batoni_waits_open(struct batoni_rma *rma);
void batoni_waits_close(struct batoni_rma *rma);
/* Take the nodes that the wait of this slot needs and fill them in; equal counters are
 * one node.  The arguments have been checked.  The enqueuing thread.  OK; AGAIN: other
 * waits have too many of the nodes; INVALID: there are not that many; NOMEM. */
enum baton_status batoni_wait_describe(struct batoni_rma *rma, uint32_t slot,
                                       size_t desc_count,
                                       const struct baton_wait_signal_desc *descs);
/* Give them back: the call is refused after all.  The enqueuing thread. */
void batoni_wait_forget(struct batoni_rma *rma, uint32_t slot);
/* Can messages end it? */
bool batoni_wait_needs_messages(const struct batoni_rma *rma, uint32_t slot);
void batoni_wait_place(struct batoni_rma *rma, struct batoni_transfer *transfer);
/* Also gives the nodes back. */
void batoni_wait_unplace(struct batoni_rma *rma, struct batoni_transfer *transfer);
enum baton_status batoni_wait_issue(struct batoni_rma *rma,
                                    struct batoni_transfer *transfer);
/* The driver: a wait for one counter, described, placed and issued.  OK, PENDING;
 * AGAIN: no node is free or there is no link, and nothing was done. */
enum baton_status
batoni_wait_issue_one(struct batoni_rma *rma, struct batoni_transfer *transfer,
                      const struct baton_wait_signal_desc *desc);
enum baton_status batoni_wait_take_back(struct batoni_rma *rma,
                                        struct batoni_transfer *transfer);
size_t batoni_waits_test(struct batoni_rma *rma);

/* ---- put.c ---- */

/* One more into its window, if it has one; place: that the call had announced. */
void batoni_put_count(struct batoni_rma *rma,
                      const struct batoni_transfer *transfer);
void batoni_put_place(struct batoni_rma *rma, struct batoni_transfer *transfer);
void batoni_put_unplace(struct batoni_rma *rma, struct batoni_transfer *transfer);
enum baton_status batoni_put_issue(struct batoni_rma *rma,
                                   struct batoni_transfer *transfer);
enum baton_status batoni_put_take_back(struct batoni_rma *rma,
                                       struct batoni_transfer *transfer);
/* Moves the first of each active channel on. */
size_t batoni_puts_test(struct batoni_rma *rma);
/* A put that was handed to messages has ended: account for it and tell the engine.
 * message.c's, from within message_done. */
void batoni_put_ended(struct batoni_rma *rma, struct batoni_transfer *transfer,
                      enum baton_status status);

/* ---- message.c ---- */

/* OK, NOMEM. */
enum baton_status batoni_messages_open(struct batoni_rma *rma);
void batoni_messages_start(struct batoni_rma *rma);
/* Look for messages, also where the engine does not.  PENDING; OK: all messages of
 * this rank are sent. */
enum baton_status batoni_messages_drain(struct batoni_rma *rma);
/* No rank sends any more.  PENDING, OK: nothing of the layer's is at the transport. */
enum baton_status batoni_messages_leave(struct batoni_rma *rma);
/* The communicator is broken, and this memory goes: apply nothing any more, and let
 * no receive write there.  OK; PENDING: ask again; BUSY: one cannot be taken back,
 * nor be waited for. */
enum baton_status batoni_messages_let_go(struct batoni_rma *rma,
                                         const void *base, size_t bytes);
/* Is there a receive that writes there? */
bool batoni_messages_write_to(const struct batoni_rma *rma, const void *base,
                              size_t bytes);
/* aborted: what the transport may still write to stays allocated. */
void batoni_messages_close(struct batoni_rma *rma, bool aborted);
/* Hand the put of this slot over: a header, with the payload in it if that is small,
 * else the payload after it from the user's buffer.  with_data false: the data is there
 * already (or there is none), only the signal goes.  PENDING: batoni_put_ended will be
 * called.  AGAIN: no lane is free, ask again at a later test.  MPI, ...: it failed. */
enum baton_status batoni_message_put(struct batoni_rma *rma, uint32_t slot,
                                     bool with_data);
/* Apply what has arrived, post receives again; returns events. */
size_t batoni_messages_test(struct batoni_rma *rma);
void batoni_message_done(struct batoni_rma *rma, struct batoni_transfer *transfer,
                         enum baton_status status);
/* Somebody may send us messages from now on (change 1), or not any more (-1), and they
 * are to be applied with no call of this rank's program: keep the communicator looked
 * at.  A wait that messages can end, and a count, only need receives to be posted. */
void batoni_messages_listen(struct batoni_rma *rma, int change);
void batoni_messages_post(struct batoni_rma *rma);
/* Have they been?  Then messages may come, whichever way our own puts go.  Any
 * thread. */
bool batoni_messages_posted(const struct batoni_rma *rma);
/* Ever handed over to that peer, and ever applied from it. */
uint64_t batoni_messages_sent(const struct batoni_rma *rma, int peer);
uint64_t batoni_messages_applied(const struct batoni_rma *rma, int peer);

/* ---- memory.c ---- */

/* There is a layer.  OK, INVALID, UNSUPPORTED. */
enum baton_status batoni_check_windows(const char *call,
                                       const struct baton_comm *comm);
/* The one that has all these bytes, or NULL; memories_lock is held. */
struct batoni_memory *batoni_memory_find(struct batoni_rma *rma, const void *base,
                                         size_t bytes);

/* ---- window.c ---- */

/* The window of this number, or NULL; message.c's. */
struct baton_window *batoni_window_find(struct batoni_rma *rma, uint64_t id);
/* Nothing is registered any more; frees what is left. */
void batoni_windows_close(struct batoni_rma *rma);

/* ---- in window.h's own terms ---- */

/* This rank's counter, for a message that has been applied; wakes nobody, since it is
 * the driver who looks. */
static inline void
batoni_counter_add(const struct batoni_rma *rma, int source, int signal_index, int context)
{
	struct batoni_link *link = batoni_link_of(rma, source);

	atomic_fetch_add(batoni_counter_of(rma, link, signal_index, context)->value,
	                 1);
	link->channels[context].heard = true;
}

/* ---- describe.c ---- */

/* As batoni_onesided_ops says; the driver. */
void batoni_rma_describe(struct batoni_onesided *onesided,
                         const struct batoni_transfer *transfer, char *text,
                         size_t size);

#endif
