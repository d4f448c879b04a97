/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract between the engine and the one-sided layer (window/), which carries out
 * signals, puts, waits, and barriers.  The engine treats such operations as transfers: it places,
 * arms, issues, tests and ends them.  It knows nothing of windows and counters.
 *
 * A put (with a signal or without one) or signal is a transfer of direction BATONI_PUT whose tag is its context;
 * its FIFO is that of (peer, context).  A wait has direction BATONI_WAIT and
 * shares no FIFO with other operations.  A barrier is a wait for all ranks: its peer is -1, and its tag
 * is BATONI_TAG_BARRIER.  The layer keeps by slot what else they need.
 *
 * All slots run on the driver, one at a time in the process, unless their comment says
 * otherwise.  They end transfers as transports do: by the status of issue or take_back,
 * or by comm's upcalls->done (from within any slot except place).
 *
 * The layer's own messages are transfers of the communicator's transport, or of the one that
 * a native transport is layered on (`hosts`), with slots from requests_max on (transport.h); the
 * engine passes their ends to message_done.
 */
#ifndef BATONI_ONESIDED_H
#define BATONI_ONESIDED_H

#include "transport.h"

struct baton_comm;
struct batoni_onesided;

/* The parameters of open. */
struct batoni_onesided_config {
	int size;
	uint32_t requests_max;
	int signals_max, contexts_max;
	struct batoni_device *device; /* NULL: all memory is the host's */
	uint64_t until_ns;            /* as the memory table's pinned_alloc */
};

/* What another path needs that carries a put, a signal or a wait: where a put's bytes go and
 * which counter it adds to, or a counter that a wait names.  Addresses are of this
 * process. */
struct batoni_target {
	int peer, signal_index, context;
	/* Of a wait: this rank's, that the peer adds to.  Of a put: the peer's; NULL: it does not
	 * signal. */
	_Atomic uint64_t *counter;
	uint64_t units; /* of a wait; of a put or signal, what it adds */
	void *data;                /* of a put; NULL: it has no bytes */
};

/* For paths beside the layer's own, which carry some of its operations (path.h, `shared`). */
struct batoni_beside_ops {
	/* Where the operation goes: one target for a put or signal, those of
	 * a wait; at most `max` are written.  Returns how many there are; 0: the peer's
	 * memory is not mapped here.  Caller: the path's enqueue. */
	size_t (*targets)(struct batoni_onesided *onesided,
	                  const struct batoni_transfer *transfer,
	                  struct batoni_target *targets, size_t max);
	/* Add the target's units to the counter, if there is one, and wake the threads that sleep for it.  Any
	 * thread. */
	void (*signal)(struct batoni_onesided *onesided,
	               const struct batoni_target *target);
	/* From such a path's place and unplace: what the layer keeps for the operation
	 * stays until `drop`. */
	void (*hold)(struct batoni_onesided *onesided,
	             struct batoni_transfer *transfer);
	void (*drop)(struct batoni_onesided *onesided,
	             struct batoni_transfer *transfer);
};

/* A counter, and what is added to it or awaited of it. */
struct batoni_units {
	int peer;         /* or -1: several */
	int signal_index; /* or -1: several, or none */
	int context;      /* or -1: several */
	uint64_t units;
};

struct batoni_onesided_ops {
	const struct batoni_beside_ops *beside;

	/* Allocate the memory of one rank.  Caller: the thread that creates the
	 * communicator.  OK; NOMEM; what the device's pinned_alloc returns.  close frees it,
	 * also without start. */
	enum baton_status (*open)(const struct batoni_onesided_config *config,
	                          struct batoni_onesided **onesided_p);
	/* The communicator has its transport now.  Cannot fail. */
	void (*start)(struct batoni_onesided *onesided, struct baton_comm *comm);

	/* One of the layer's own messages has ended.  Called from within the
	 * transport's issue, test or take_back: it must not call the transport. */
	void (*message_done)(struct batoni_onesided *onesided,
	                     struct batoni_transfer *transfer,
	                     enum baton_status status);

	/* Describe an operation that is placed and has not ended: its signal indices,
	 * and for a wait what has arrived. */
	void (*describe)(struct batoni_onesided *onesided,
	                 const struct batoni_transfer *transfer, char *text,
	                 size_t size);

	/* The signal index and context that it names, -1 for a wait for several.  Any thread
	 * that holds the operation's slot. */
	void (*counter)(struct batoni_onesided *onesided,
	                const struct batoni_transfer *transfer,
	                int *signal_index_p, int *context_p);

	/* What it names, for a trace: that counter, with -1 for several and 0 units; and, of an operation that
	 * names several and has not ended, each of them behind that, up to `max` in all.  The thread to which
	 * the operation belongs.  Returns how many; 0: it names none. */
	size_t (*units)(struct batoni_onesided *onesided,
	                const struct batoni_transfer *transfer, bool ended,
	                struct batoni_units units[], size_t max);

	/* The call has described the operation, and no path gets it, since the call or its group
	 * was refused: drop what the layer keeps of it. */
	void (*forget)(struct batoni_onesided *onesided,
	               struct batoni_transfer *transfer);

	/* What prevents the destruction of the communicator, as text ("2 windows"),
	 * or NULL.  Caller: any thread that may destroy. */
	const char *(*alive)(struct batoni_onesided *onesided);
	/* Before the transport leaves: have the layer's own messages to other ranks
	 * been sent?  Messages of other ranks are still received and applied, also if
	 * the attempt to leave fails.  PENDING, OK. */
	enum baton_status (*drain)(struct batoni_onesided *onesided);
	/* The transport has left, so no rank will send any more: take back the
	 * receives that are posted.  PENDING, OK. */
	enum baton_status (*leave)(struct batoni_onesided *onesided);
	/* Free everything.  aborted: the transport may still have
	 * messages, whose memory must stay. */
	void (*close)(struct batoni_onesided *onesided, bool aborted);
};

/* Must be first in the layer's own struct, which sets all of it; the engine only
 * reads. */
struct batoni_onesided {
	const struct batoni_onesided_ops *ops;
	/* Host-issued: stores, and messages of the transport.  Its load: in_flight are the
	 * operations issued and not ended, and messages that wait for the next test; those
	 * are moving too.  Each wait is parked or awaiting.  standing: of the transport's
	 * receives in flight.  quiet: as the transport. */
	struct batoni_path path;
	int signals_max, contexts_max;
	/* For baton_comm_query, any thread: BATON_WINDOW_PATH_* bits.  Those of
	 * signals are constant after start. */
	unsigned signal_paths;
	_Atomic unsigned window_paths;
	/* The program has named a peer, or asked for memory or a window: the layer may have
	 * messages.  Any thread; never false again. */
	_Atomic bool used;
};

/* The layer whose path this is. */
static inline struct batoni_onesided *
batoni_onesided_of(struct batoni_path *path)
{
	return (struct batoni_onesided *)(void *)((char *)path -
	                                          offsetof(struct batoni_onesided,
	                                                   path));
}

/* window/onesided.c */
extern const struct batoni_onesided_ops batoni_onesided_ops;

/* A barrier of `size` ranks has so many rounds. */
static inline int
batoni_barrier_rounds(int size)
{
	int rounds = 0;

	while ((int64_t)1 << rounds < size)
		rounds++;
	return rounds;
}

/* In the segment of a rank, of one round of barriers: a cache line of the one rank that stores its
 * coming there (window/barrier.c). */
struct batoni_arrival {
	_Atomic uint64_t count;  /* the number of its barrier that has come to this round */
	_Atomic uint64_t wanted; /* the owner's: from which count on it is to be woken; 0: from none */
	uint64_t unused[6];
};

/* The part of a segment before the arrivals: the rank's departure, and a word for each rank, in
 * which that rank tries whether it may write. */
static inline size_t
batoni_onesided_arrivals_at(int size)
{
	return BATONI_DEPARTURE_BYTES +
	       (((size_t)size * sizeof(uint64_t) + 63) & ~(size_t)63);
}

/* By round. */
static inline struct batoni_arrival *
batoni_onesided_arrivals(void *segment, int size)
{
	return (struct batoni_arrival *)(void *)((char *)segment +
	                                         batoni_onesided_arrivals_at(size));
}

/* The part before the counters. */
static inline size_t
batoni_onesided_head_bytes(int size)
{
	return batoni_onesided_arrivals_at(size) +
	       (size_t)batoni_barrier_rounds(size) * sizeof(struct batoni_arrival);
}

/* Those words.  NULL: there is no segment. */
static inline _Atomic uint64_t *
batoni_onesided_words(void *segment)
{
	return segment ? (_Atomic uint64_t *)(void *)((char *)segment +
	                                              BATONI_DEPARTURE_BYTES)
	               : NULL;
}

/* The counters of one source, at least one cache line.  Each is the count, followed by the
 * wanted count, from which on its owner is to be woken (window/wait.c). */
static inline size_t
batoni_onesided_source_bytes(int signals_max, int contexts_max)
{
	size_t counters = (size_t)signals_max * (size_t)contexts_max;

	return (counters * 2 * sizeof(uint64_t) + 63) & ~(size_t)63;
}

/* The size of a rank's segment. */
static inline size_t
batoni_onesided_segment_bytes(int size, int signals_max, int contexts_max)
{
	return batoni_onesided_head_bytes(size) +
	       batoni_onesided_source_bytes(signals_max, contexts_max) *
	               (size_t)size;
}

/* The number of puts by message that may be under way at once, besides one for each (peer,
 * context), so that none waits for other channels.  Further puts wait in order.  Gets that go
 * by message count as puts. */
#define BATONI_ONESIDED_LANES 32u

/* Rounds of a barrier of as many ranks as there can be. */
#define BATONI_BARRIER_ROUNDS_MAX 32

/* The slots that the layer needs at the transport, beyond requests_max: two for each lane
 * of the pool, one receive for announcements, for each (peer, context) a lane, a receive
 * and an announcement, and two for each round of a barrier.  Only slots of peers that the layer talks to are used, so a transport
 * should not touch the memory of a slot before its first use. */
static inline uint64_t
batoni_onesided_slots(int size, int contexts_max)
{
	return 2 * BATONI_ONESIDED_LANES + 1 +
	       4 * (uint64_t)size * (uint64_t)contexts_max +
	       2 * BATONI_BARRIER_ROUNDS_MAX;
}

/* The tags that it needs: three for each context (headers, payloads, answers), one for barriers, and the
 * last one for
 * announcements. */
static inline int
batoni_onesided_tags(int contexts_max)
{
	return 3 * contexts_max + 2;
}

#endif
