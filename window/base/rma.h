/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of the one-sided layer of a communicator, which all folders of window/ share.
 *
 *   base/         this state
 *     link.c        the part of it for a peer that this rank talks to
 *     unended.h     which puts have not ended, and the flushes that wait for them
 *     nodes.c       one for each counter that a wait names
 *     collective.c  how all ranks get the same result (collective.h)
 *   paths/        what carries out puts and signals (carry.h)
 *     paths.c       the path of puts to each peer of a window (paths.h)
 *     put.c         channels: the order of puts to one (peer, context), and the paths on
 *                   which this rank writes itself (direct, vmwrite)
 *     bounce.c      puts between a device's memory and pageable memory
 *     message.c     the path by messages, both of its ends (message.h)
 *     message_put.c the sender's end of it
 *     message_get.c gets by messages, and whether the target has what was sent
 *     message_close.c how it leaves
 *     mapped.c      puts and signals on the program's stream
 *     elsewhere.c   operations that another path carries
 *     native_path.c puts by a native transport's one-sided transfers (native_path.h)
 *   onesided.c    the contract with the engine: memory, dispatch, leaving
 *   wait.c        counters, and the waits that are given units of them
 *   barrier.c     barriers of all ranks: the queue, and how ranks tell each other that they have come
 *   barrier_call.c the call that enqueues one
 *   split.c       communicators that are made from this one
 *   window.c      registering and deregistering
 *   memory.c      memory for windows
 *   describe.c    an operation in words, for a dump
 *   calls.c       the public calls that wait, and the count (calls.h)
 *   put_calls.c   those that put, get and signal
 *   flush.c       flushes
 *
 * A room sees itself and those above it in this list.
 *
 * The layer is above the engine.  Everything here belongs to the driver, the thread that
 * holds the driver's lock, unless a comment says otherwise.
 *
 * An operation is identified by its request's slot: pending[slot] holds what it needs
 * beyond its transfer.  The enqueuing thread fills that in before it publishes the
 * operation; after that it belongs to the driver.
 */
#ifndef BATONI_RMA_H
#define BATONI_RMA_H

#include "block.h"
#include "core.h"
#include "onesided.h"

/* The signal index of a put that does not signal. */
#define BATONI_NO_SIGNAL (-1)

/* The largest copy within an enqueuing call, and the largest slice of a test. */
#define BATONI_PUT_INLINE_MAX ((size_t)16 << 10)
#define BATONI_PUT_SLICE_MAX ((size_t)1 << 20)

/* What an operation of a channel does. */
enum batoni_task {
	BATONI_TASK_PUT, /* or it signals alone */
	BATONI_TASK_GET,
	BATONI_TASK_ADD, /* to the window's word, of which it gets what was there */
	BATONI_TASK_SWAP
};

struct batoni_rma;
struct batoni_lane;    /* message.h */
struct batoni_bounce;  /* bounce.c */
struct batoni_bounces; /* bounce.c */
struct batoni_mapping; /* contract/shared.h */
struct batoni_wire;    /* message.h */
struct batoni_mapped;  /* mapped.c */
struct batoni_barriers; /* barrier.c */
struct batoni_split_intent; /* split.c */
struct batoni_split_rendezvous; /* split.c */
struct batoni_native_window; /* native_puts.h */

/* One rank's part of a window, as this rank sees it.  Constant once registered. */
struct batoni_window_peer {
	size_t bytes;
	unsigned path;    /* one BATON_WINDOW_PATH_* bit */
	char *base;       /* direct: the part's address in this process */
	uint64_t address; /* vmwrite: its address in the peer's process */
	void *mapped;     /* from batoni_shm_map, or NULL */
	size_t mapped_bytes;
	struct batoni_mapping *mapping; /* of its device memory, or NULL */
	const char *why; /* its puts take no faster path; NULL: it is the fastest */
	bool device; /* memory of a device: the host must not touch it */
	uint8_t location; /* direct: what it is (memory.h) */
};

struct baton_window {
	struct batoni_rma *rma;
	struct batoni_list_node link; /* of rma->windows */
	uint64_t id;                  /* the same on all ranks */
	void *base;                   /* this rank's part */
	size_t bytes;
	uint8_t location;             /* what the part is (memory.h) */
	struct batoni_memory *memory; /* contains base; NULL: not of baton_mem_alloc */
	uint32_t pending;   /* this rank's puts into it, placed and not ended */
	uint32_t streamed_here; /* of these, into its own part, on streams */
	/* Puts by message: sent counts those of this rank that the transport has been
	 * given, applied those to this rank that were applied or dropped. */
	uint64_t sent, applied;
	_Atomic uint32_t entering; /* calls that will place a put; any thread */
	_Atomic uint32_t planned;  /* calls in plans that name it; any thread */
	bool listens;       /* batoni_messages_listen was called for it */
	_Atomic bool closing; /* being deregistered: calls are refused */
	bool by_messages; /* some rank's path to some rank is MESSAGE */
	bool offered; /* ranks may have mapped device memory of others; of all ranks alike */
	struct batoni_native_window *native; /* native_path.c; NULL: it is none of the library's */
	char why_not_native[200];            /* "": it is, or there is nothing to say */
	struct batoni_reason *reasons; /* texts of peers[].why that are its own */
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
	void *base;
	size_t bytes;
	struct batoni_shm shm; /* base NULL: it is memory of the device */
	struct batoni_shm_block block; /* where there is shm: what messages from it name */
	uint32_t windows; /* registered windows inside it */
	bool known;       /* a window was registered: peers have its address */
};

/* One counter that a wait names.  Index 0 of the pool is not used. */
struct batoni_wait_node {
	struct batoni_list_node link; /* of its counter's list, in placing order */
	uint64_t target; /* met when the counter is at least this */
	uint64_t units;
	struct batoni_counter *counter;
	uint32_t slot;    /* the wait's */
	uint32_t next;    /* of the same wait or of the free list; 0 ends it */
	bool doubted;     /* a check has found its source gone; streams may go on */
	bool fixed; /* the target is a value of the counter: it takes no units, and stands in front */
};

/* One counter of this rank. */
struct batoni_counter {
	_Atomic uint64_t *value; /* in this rank's segment; the wanted count follows it */
	uint64_t given;                /* all units ever given to waits */
	struct batoni_list_node nodes; /* of waits that are placed and have not ended */
	struct batoni_channel *channel; /* its source and context */
	/* Guarded by nodes_lock: the last description that named this counter, and the
	 * node it got there. */
	uint64_t described;
	uint32_t described_node;
	/* The other direction: the last count that a stream was told to write into the peer's
	 * counter of these numbers (mapped.c).  Under comm->order.lock. */
	uint64_t written;
};

/* What may be slept on until an issued wait is met: the count of the layer's load that it
 * is in. */
enum batoni_wait_sleep {
	BATONI_WAIT_FRESH,   /* none: a test has to check first */
	BATONI_WAIT_PARKED,  /* the bell */
	BATONI_WAIT_AWAITING /* messages */
};

/* What an operation needs beyond its transfer, by slot. */
struct batoni_pending {
	struct batoni_transfer *transfer; /* set by issue */
	/* A put: of its channel's queue.  A wait: of the issued waits.  A flush: of the issued ones. */
	struct batoni_list_node link;
	/* It is in rma->unended (unended.h), with this number. */
	bool listed;
	uint64_t serial; /* also of a flush */
	struct batoni_list_node unended;
	union {
		struct { /* a put, get or atomic operation; a signal if window is NULL */
			struct baton_window *window;
			union {
				size_t offset;
				size_t more; /* a signal alone: what it adds beyond 1 */
			};
			size_t copied; /* bytes so far */
			int signal_index; /* or BATONI_NO_SIGNAL */
			unsigned char task; /* enum batoni_task */
			bool in_channel; /* not handed over to messages yet */
			/* Source or target is memory of a device. */
			bool device;
			bool pageable; /* and the other one is pageable */
			/* By the device: the ticket, or the bounce, is valid. */
			bool copying;
			bool canceled; /* meanwhile: it ends with the copy */
			/* It is in channel->hosted.  The enqueuing thread, then the
			 * driver. */
			bool hosted;
			bool native; /* its data goes by native_path.c: this number, */
			uint32_t native_number;
			uint64_t units; /* and at its end these units */
			struct batoni_ticket ticket;
			struct batoni_bounce *bounce;
			struct batoni_lane *lane; /* that it was handed over to */
			uint64_t operands[2]; /* ADD: what; SWAP: expected, desired */
		} put;
		struct { /* a wait */
			int signal_index, context; /* or -1: of several */
			uint64_t units; /* of one; 0: of several */
			uint32_t nodes; /* the first one */
			uint32_t unmet; /* the first node not seen met; 0: all are met */
			unsigned char sleep; /* enum batoni_wait_sleep */
			bool any; /* one met node ends it; `unmet` stays the first one */
			int *index_p; /* any: which one is written there; or NULL */
		} wait;
		struct { /* a barrier; its link is of the queue of barriers */
			bool armed;
		} barrier;
		struct { /* a flush (flush.c) */
			uint64_t mark; /* 0: puts of its stream have not ended */
		} flush;
	};
};

/* The puts and signals of this rank to one (peer, context), in call order. */
struct batoni_channel {
	struct batoni_link *link;
	/* NULL: no message has been sent or received here.  Any thread. */
	_Atomic(struct batoni_wire *) wire;
	struct batoni_list_node queue;  /* of pending.link: unfinished, not handed over
	                                   to messages; only the first one moves */
	struct batoni_list_node active; /* of rma->channels_active, while queue is not
	                                   empty */
	int peer, context;
	bool stores; /* signals go by stores; constant */
	/* A signal has gone by message.  All later ones do, since a direct store
	 * would overtake it. */
	bool through_messages;
	/* Gets that a message has asked for, and that have not ended. */
	uint32_t asked;
	/* The other direction: signals of that peer in this context have come by
	 * message.  Later ones will too, so a wait for them may not be parked. */
	bool heard;
	/* mapped.c: puts that are put.c's, puts on a stream, and its number (under
	 * comm->order.lock).  Where there is no such path, these stay 0. */
	_Atomic uint32_t hosted, streamed;
	uint64_t stream;
	/* Puts of the queue that count as awaiting, since some before them are on a stream. */
	uint32_t behind;
};

/* A peer that this rank talks to. */
struct batoni_link {
	uint64_t sent, applied; /* messages to the peer, and from it */
	struct batoni_counter *counters; /* of the peer's signals: by context, then index */
	struct batoni_channel channels[]; /* by context */
};

struct batoni_rma {
	struct batoni_onesided base; /* must be first */
	struct baton_comm *comm;
	struct batoni_transport *transport;
	struct batoni_transport *native; /* native_path.c; NULL: it has no puts */
	int rank, size;
	bool asks; /* the device's memory table must be asked what a pointer is */
	atomic_bool collective; /* a thread of this rank is in a collective call */
	uint32_t requests_max;
	size_t source_bytes; /* of a segment: the counters of one source */

	struct batoni_bounces *bounces;   /* NULL: no device has memory of its own */
	struct batoni_pending *pending;   /* by slot */
	_Atomic(struct batoni_link *) *links; /* by peer; NULL: none yet */
	struct batoni_list_node channels_active;
	unsigned char *signal_path; /* by peer: DIRECT or MESSAGE */

	/* Flushes (unended.h, flush.c).  unacked: of wires (message_get.c); their number, which
	 * any thread may read. */
	struct batoni_list_node unended, unacked, flushes;
	_Atomic uint32_t unacked_count;
	uint64_t serial; /* the last number given to a put, flush, message or probe */
	bool flushes_due; /* something has ended that a flush may wait for */

	/* wait.c */
	struct batoni_list_node waits;   /* issued, of pending.link */
	pthread_mutex_t nodes_lock;      /* guards free_node, nodes_more; a leaf */
	/* By index.  nodes has those for waits for single counters; nodes_more, allocated
	 * when it is needed, those for a wait that names every rank. */
	struct batoni_wait_node *nodes;
	_Atomic(struct batoni_wait_node *) nodes_more;
	uint32_t free_node;
	uint32_t spare_node; /* the driver's, taken without the lock; or 0 */
	uint64_t descriptions; /* their number; guarded by nodes_lock */
	uint64_t peers_checked_ns; /* last liveness check of the peers' processes */

	/* message.c */
	struct batoni_messages *messages;

	struct batoni_barriers *barriers; /* barrier.c */

	struct batoni_mapped *mapped; /* mapped.c; NULL: no put goes on a stream */

	/* window.c */
	struct batoni_list_node windows; /* driver */
	pthread_mutex_t memories_lock;   /* guards memories and their counts; a leaf */
	struct batoni_list_node memories;
	uint64_t next_window;
	void *parts;   /* each rank's part; allocated for the first window */
	void *offers;  /* each rank's offer; for the first window in device memory */
	void *answers; /* of the exchange that agrees */
	void *words;   /* of those of native_path.c */
	/* Of the exchanges of split.c, by rank. */
	struct batoni_split_intent *intents;
	struct batoni_split_rendezvous *rendezvous;
	struct baton_window *buried; /* deregistered after an abort, while the
	                                transport still had puts of them */
	char alive_text[80];
};

/* ---- segments and counters ---- */

/* The counter of a source in a segment: the count, followed by the wanted count. */
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

/* The peer's link must exist. */
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

/* May that rank's signals come by message?  (A peer that gets our
 * signals by message because messages are forced sends its own by message too.) */
static inline bool
batoni_comes_by_message(const struct batoni_rma *rma, int source)
{
	return !rma->transport->peers[source].reaches_us ||
	       rma->signal_path[source] == BATON_WINDOW_PATH_MESSAGE;
}

/* Of a BATONI_WAIT: the tag tells a flush from a wait for signals. */
#define BATONI_FLUSH_TAG 1

static inline bool
batoni_is_flush(const struct batoni_transfer *transfer)
{
	return transfer->direction == BATONI_WAIT &&
	       transfer->tag == BATONI_FLUSH_TAG;
}

static inline struct batoni_rma *
batoni_rma_from(struct batoni_onesided *onesided)
{
	return (struct batoni_rma *)(void *)onesided;
}

/* The communicator's one-sided layer, or NULL. */
static inline struct batoni_rma *
batoni_rma_of(const struct baton_comm *comm)
{
	return batoni_rma_from(comm->onesided);
}

/* What a put or signal adds to its counter. */
static inline uint64_t
batoni_put_adds(const struct batoni_pending *put)
{
	return put->put.window ? 1 : put->put.more + UINT64_C(1);
}

/*
 * Signal a peer whose segment is mapped here: add to its counter, then wake it if a
 * thread there listens and the count has reached the wanted count.
 *
 * Visibility.  Data is written before the fetch-add, by plain stores (or by the kernel,
 * which is done when the call returns).  The fetch-add is a release: a thread that reads
 * the counter by an acquire load sees the data.  It also sees all earlier puts of this
 * channel, since the puts of a channel are ordered by this thread or by the driver's lock.
 *
 * No lost wake-up.  The signaller adds to the counter, then loads `listening` and the wanted
 * count.  The listener stores `listening` and the wanted count, in this order, then loads
 * the counter.  All of these are sequentially consistent, so one of the two sees the other
 * (batoni_bell in shm.h).
 */
static inline void
batoni_signal_store(const struct batoni_rma *rma, int peer, int signal_index,
                    int context, uint64_t adds)
{
	const struct batoni_peer *to = &rma->transport->peers[peer];
	_Atomic uint64_t *counter = batoni_segment_counter(
		rma, to->segment, rma->rank, signal_index, context);
	uint64_t count = atomic_fetch_add(counter, adds) + adds;

	if (atomic_load(&to->bell->listening) && count >= atomic_load(&counter[1]))
		batoni_bell_call(to->bell, to->pipe);
}

/* The same wake-up, for a count that a stream has written. */
static inline void
batoni_signal_ring(const struct batoni_rma *rma, int peer, int signal_index,
                   int context)
{
	const struct batoni_peer *to = &rma->transport->peers[peer];
	_Atomic uint64_t *counter = batoni_segment_counter(
		rma, to->segment, rma->rank, signal_index, context);

	if (atomic_load(&to->bell->listening) &&
	    atomic_load(counter) >= atomic_load(&counter[1]))
		batoni_bell_call(to->bell, to->pipe);
}

/* ---- link.c ---- */

/* OK, NOMEM. */
enum baton_status batoni_links_open(struct batoni_rma *rma);
/* Frees all links and wires; fine without open. */
void batoni_links_close(struct batoni_rma *rma);
/* The peer's link, created if there is none; NULL: no memory.  Any thread. */
struct batoni_link *batoni_link_make(struct batoni_rma *rma, int peer);

/* ---- nodes.c ---- */

/* The size of the first array of nodes.  Index 0 is no node.  At open the last one is the
 * driver's spare; later any node may be. */
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
enum baton_status batoni_nodes_open(struct batoni_rma *rma);
void batoni_nodes_close(struct batoni_rma *rma);
/* Take the nodes that the wait of this slot needs and fill them in; a counter that is named
 * several times gets one node.  The arguments have been checked.  Caller: the enqueuing
 * thread.  OK; AGAIN: other waits hold too many of the nodes; INVALID: there are not that
 * many in all; NOMEM. */
enum baton_status batoni_wait_describe(struct batoni_rma *rma, uint32_t slot,
                                       size_t desc_count,
                                       const struct baton_wait_signal_desc *descs);
/* The same for a wait that ends with any one of them, whose index is written to *index_p, unless
 * that is NULL.  Also MISMATCH: a counter is named twice, by *twice_p for the second time. */
enum baton_status
batoni_wait_describe_any(struct batoni_rma *rma, uint32_t slot, size_t desc_count,
                         const struct baton_wait_signal_desc *descs, int *index_p,
                         size_t *twice_p);
/* The same for a wait for a value of the counter that desc names (its op_count is ignored). */
enum baton_status
batoni_wait_describe_count(struct batoni_rma *rma, uint32_t slot,
                           const struct baton_wait_signal_desc *desc,
                           uint64_t value);
/* Give them back, because the call is refused.  Caller: the enqueuing thread. */
void batoni_wait_forget(struct batoni_rma *rma, uint32_t slot);
/* The driver gives the nodes of a wait that has ended back; one stays as its spare. */
void batoni_nodes_return(struct batoni_rma *rma, uint32_t first);

/* ---- rma.c ---- */

/* The window with this id, or NULL.  Caller: message.c. */
struct baton_window *batoni_window_find(struct batoni_rma *rma, uint64_t id);

/* ---- the tag of barriers' messages ---- */

static inline int
batoni_barrier_tag(const struct batoni_rma *rma)
{
	return rma->transport->hidden_tag + 3 * rma->base.contexts_max;
}

/* ---- counters of messages ---- */

/* Add to this rank's counter for a message that has been applied.  This wakes no thread: the
 * caller is the driver, which polls the waits itself. */
static inline void
batoni_counter_add(const struct batoni_rma *rma, int source, int signal_index, int context,
                   uint64_t adds)
{
	struct batoni_link *link = batoni_link_of(rma, source);

	atomic_fetch_add(batoni_counter_of(rma, link, signal_index, context)->value,
	                 adds);
	link->channels[context].heard = true;
}

#endif
