/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract between the engine and what carries out signals, puts and waits
 * (window/).  The engine treats such operations as it treats transfers: places,
 * arms, issues, tests and ends them.  It knows no windows and no counters.
 *
 * A put or signal is a transfer of direction BATONI_PUT whose tag is its context;
 * its FIFO is that of (peer, context).  A wait is of direction BATONI_WAIT and
 * stands in no FIFO with others.  What else they need is kept by slot by the layer
 * itself.
 *
 * All slots run on the thread that drives, one at a time in the process, except
 * where they say otherwise.  They end transfers as transports do: by the status of
 * issue or take_back, or by comm's host->done (from within any slot but place).
 *
 * Messages of the layer's own travel over the communicator's transport as transfers
 * with slots from requests_max on (transport.h); the engine hands their ends to
 * message_done.
 */
#ifndef BATONI_ONESIDED_H
#define BATONI_ONESIDED_H

#include "transport.h"

struct baton_comm;
struct batoni_onesided;

/* What the layer is made with. */
struct batoni_onesided_plan {
	int size;
	uint32_t requests_max;
	int signals_max, contexts_max;
};

struct batoni_onesided_ops {
	/* The memory of one rank.  The thread that creates the communicator.  OK,
	 * NOMEM.  close gives it back, also before start. */
	enum baton_status (*open)(const struct batoni_onesided_plan *plan,
	                          struct batoni_onesided **onesided_p);
	/* The communicator has its transport; cannot fail. */
	void (*start)(struct batoni_onesided *onesided, struct baton_comm *comm);

	/* The operation has its place: a wait is given its units.  Called once, in
	 * the order of the calls, before issue. */
	void (*place)(struct batoni_onesided *onesided,
	              struct batoni_transfer *transfer);
	/* It was placed and will not be issued: a wait gives its units back. */
	void (*unplace)(struct batoni_onesided *onesided,
	                struct batoni_transfer *transfer);
	/* As a transport's. */
	enum baton_status (*issue)(struct batoni_onesided *onesided,
	                           struct batoni_transfer *transfer);
	/* One bounded pass (about 1 MiB of copying); returns events. */
	size_t (*test)(struct batoni_onesided *onesided);
	enum baton_status (*take_back)(struct batoni_onesided *onesided,
	                               struct batoni_transfer *transfer);
	/* A message of the layer's own has ended.  From within the transport's
	 * issue, test or take_back: it must not call the transport. */
	void (*message_done)(struct batoni_onesided *onesided,
	                     struct batoni_transfer *transfer,
	                     enum baton_status status);

	/* Signal indices, and of a wait what has arrived, in words, of an operation
	 * that is placed and has not ended. */
	void (*describe)(struct batoni_onesided *onesided,
	                 const struct batoni_transfer *transfer, char *text,
	                 size_t size);

	/* What keeps the communicator from being destroyed, in words ("2 windows"),
	 * or NULL.  Any thread that may destroy. */
	const char *(*alive)(struct batoni_onesided *onesided);
	/* Before the transport leaves: have the layer's own messages to other ranks
	 * been sent?  Messages of others are still received and applied, whatever
	 * becomes of the attempt to leave.  PENDING, OK. */
	enum baton_status (*drain)(struct batoni_onesided *onesided);
	/* The transport has left, so no rank will send any more: take back the
	 * receives that stand at it.  PENDING, OK. */
	enum baton_status (*leave)(struct batoni_onesided *onesided);
	/* Free everything; NULL is fine.  aborted: the transport may still have
	 * messages. */
	void (*close)(struct batoni_onesided *onesided, bool aborted);
};

/* Must be first in the layer's own struct, which sets all of it; the engine only
 * reads. */
struct batoni_onesided {
	/* test is called only while pending is above 0: operations issued and not
	 * ended, and messages that wait to be looked at. */
	uint32_t pending;
	/* Bytes are moving, or messages wait: the engine looks again at once. */
	uint32_t moving;
	/* Of pending: waits that a test has found unmet and that only stores of
	 * other ranks into our segment can end, or deadlines.  The engine may sleep
	 * when all of a communicator's operations are such, and listens. */
	uint32_t parked;
	/* Receives at the transport that stand there for whatever may come: the engine
	 * looks for those now and then only. */
	uint32_t standing;
	int signals_max, contexts_max;
	/* For baton_comm_query, any thread: BATON_WINDOW_PATH_* bits.  Those of
	 * signals are constant from start on. */
	unsigned signal_paths;
	_Atomic unsigned window_paths;
};

/* window/: the one that there is. */
extern const struct batoni_onesided_ops batoni_onesided_ops;

/* What is before the counters: a word for each rank, in which that tries whether it
 * may write. */
static inline size_t
batoni_onesided_head_bytes(int size)
{
	return ((size_t)size * sizeof(uint64_t) + 63) & ~(size_t)63;
}

/* Of the counters of one source, one line at least: each is the count, and behind it
 * the count from which on its owner wants to be woken (window/wait.c). */
static inline size_t
batoni_onesided_source_bytes(int signals_max, int contexts_max)
{
	size_t counters = (size_t)signals_max * (size_t)contexts_max;

	return (counters * 2 * sizeof(uint64_t) + 63) & ~(size_t)63;
}

/* Bytes of a rank's segment. */
static inline size_t
batoni_onesided_segment_bytes(int size, int signals_max, int contexts_max)
{
	return batoni_onesided_head_bytes(size) +
	       batoni_onesided_source_bytes(signals_max, contexts_max) *
	               (size_t)size;
}

/* Puts by message that may be under way at once, and one more of each (peer, context),
 * so that none waits for those of others; more wait in their order. */
#define BATONI_ONESIDED_LANES 32u

/* Slots that the layer wants of the transport, beyond requests_max: two messages for
 * each lane of the pool, a receive for announcements, and for each (peer, context) a lane,
 * a receive and an announcement.  It uses those of peers that it talks to, so a
 * transport had better not touch what it keeps for a slot before that is used. */
static inline uint32_t
batoni_onesided_slots(int size, int contexts_max)
{
	return 2 * BATONI_ONESIDED_LANES + 1 +
	       4 * (uint32_t)size * (uint32_t)contexts_max;
}

/* And tags: two for each context, and the last one for announcements. */
static inline int
batoni_onesided_tags(int contexts_max)
{
	return 2 * contexts_max + 1;
}

#endif
