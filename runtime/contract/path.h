/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The path contract: one way of carrying out operations.
 *
 * A communicator has several paths at once: the messages of its transport, the puts and
 * waits of the one-sided layer, and those of devices and libraries.  The engine chooses
 * the path of an operation at its call, by the operation's kind and peer, and calls
 * nothing but the path from then on.  Both ranks of a message choose alike, because the
 * choice depends on nothing else.
 *
 * Paths are of two kinds.
 *
 * Host-issued (MPI, local, stores into windows): the engine passes one transfer at a time
 * to `issue`, after it is armed, in the order of its FIFO.  `test` makes progress and ends
 * transfers by calling upcalls->done of their transport.
 *
 * Stream-issued (NCCL, CUDA windows): `enqueue` puts transfers on their streams at the
 * call (or at the end of a group), on the enqueuing thread, in the order of the calls.  The
 * engine watches the streams with the device's marks and ends the transfers itself.  Such
 * a path of one-sided operations may share them with the layer's own, which is host-issued:
 * it then says for each whether it takes it, and the layer has the others (window/paths/mapped.c).
 *
 * Slots whose comment names no thread are called by the driver, and must not block.  The
 * process has one driver at a time, so a path needs no locks for them.
 */
#ifndef BATONI_PATH_H
#define BATONI_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "baton.h"
#include "field.h"
#include "load.h"
#include "tensor_list.h"

enum batoni_direction {
	BATONI_SEND,
	BATONI_RECV,
	BATONI_PUT, /* or a signal alone, a get, an atomic operation: what has a place in its channel */
	BATONI_WAIT /* or a flush: what waits, and has no place */
};

/* Slots are below this. */
#define BATONI_SLOTS_LIMIT (1u << 24)

/* batoni_transfer.location of a message that is a list of tensors: its buffer is the address of a
 * struct batoni_tensor_list (tensor_list.h), and its bytes are those of the payload, or of what
 * the receive may take.  No memory has this location. */
#define BATONI_LOCATION_LIST 63u

/* One end of a message, or one one-sided operation.  Embedded in the engine's operation; the
 * path owns it from issue (enqueue) to its end. */
struct batoni_transfer {
	void *buffer;        /* a send's is only read */
	size_t bytes;        /* to send; capacity of a receive */
	/* Out, at the end: bytes sent, or arrived.  Set by batoni_transfer_moved. */
	size_t done_bytes;
	baton_stream stream; /* for stream-issued paths */
	union {
		/* Out, when it ends in an error of the native library: the call ("MPI_Irecv", a
		 * string constant) and its code. */
		const char *native_call;
		/* The engine's, while a transfer waits in a FIFO or a line (runtime/core/fifo.h). */
		uint64_t turn;
	};
	union {
		/* In, of a message: enum baton_datatype; the fast path of calls leaves it out,
		 * which communicators in checked mode do not take.  Out, of a receive that
		 * batoni_transfer_compare has refused: what that says. */
		int type;
		int native_code;
	};
	/* Of a wait or flush: the only rank that it names, or -1.  Of a receive from any rank -1, until it
	 * is issued. */
	int peer;
	/* Of a BATONI_PUT: the context; of a BATONI_WAIT: 0, or of a flush 1.  Of a receive of any tag -1,
	 * until it is issued. */
	int tag;
	/* This operation's index in the pool, below requests_max: a path's own state of a
	 * transfer is in arrays by slot. */
	union {
		struct {
			uint32_t slot : 24;
			uint32_t direction : 2; /* enum batoni_direction */
			/* What the buffer is (memory.h), found at the call; 0:
			 * memory of the host. */
			uint32_t location : 6;
		};
		/* All, written by one store.  With two stores, a load soon after
		 * them would stall: no store-to-load forwarding. */
		uint32_t slot_direction;
	};
};

/* The list that a message is, or NULL. */
static inline struct batoni_tensor_list *
batoni_transfer_list(const struct batoni_transfer *transfer)
{
	return __builtin_expect(transfer->location == BATONI_LOCATION_LIST, 0)
	               ? (struct batoni_tensor_list *)transfer->buffer
	               : NULL;
}

/* In checked mode: may this receive take a message of this type?  OK; MISMATCH, in which it is
 * to end, once: its type then has that of the message too. */
static inline enum baton_status
batoni_transfer_compare(struct batoni_transfer *receive, int type)
{
	if (receive->type == type)
		return BATON_OK;
	receive->type |= (type + 1) << 8;
	return BATON_ERR_MISMATCH;
}

/* The type of the message that the receive was refused for; -1: it was not. */
static inline int
batoni_transfer_refused_type(const struct batoni_transfer *receive)
{
	return (receive->type >> 8) - 1;
}

static inline int
batoni_transfer_own_type(const struct batoni_transfer *receive)
{
	return receive->type & 0xff;
}

/* Report how many bytes were sent or have arrived. */
static inline void
batoni_transfer_moved(struct batoni_transfer *transfer, size_t bytes)
{
	batoni_set(transfer->done_bytes, bytes);
}

/* ---- what a receive has met: by these, on every transport ---- */

/* A plain message of this length; type: its enum baton_datatype, or -1 where messages have none.  The
 * status in which the receive is to end: OK, TRUNCATED, MISMATCH. */
static inline enum baton_status
batoni_transfer_meet_plain(struct batoni_transfer *receive, size_t length,
                           int type)
{
	struct batoni_tensor_list *list = batoni_transfer_list(receive);
	enum baton_status status = BATON_OK;

	if (__builtin_expect(list != NULL, 0))
		return batoni_tensor_list_meet_plain(list, length);
	if (__builtin_expect(type >= 0, 0))
		status = batoni_transfer_compare(receive, type);
	return status == BATON_OK && length > receive->bytes
	               ? BATON_ERR_TRUNCATED
	               : status;
}

/* A list with a payload of this length, whose header has `whole` bytes, any bytes; the first of
 * them are there: BATONI_TENSORS_FIXED_BYTES or more.  The status in which the receive is to end: OK,
 * TRUNCATED, MISMATCH.  PENDING: they may agree, and what is there has been copied to the
 * list's header; when the rest is behind that, the receive meets list->header.  PEER: what has come
 * contradicts itself. */
enum baton_status
batoni_transfer_meet_list(struct batoni_transfer *receive,
                          const unsigned char *header, size_t there,
                          size_t whole, size_t length);

/* A send of this process, by its transfer; one of the two is a list at least.  As of
 * batoni_transfer_meet_list, never PENDING; it reports the bytes of both. */
enum baton_status batoni_transfer_meet_send(struct batoni_transfer *receive,
                                            struct batoni_transfer *send);

/* Report the bytes of a receive that has met a message of this length, and ends in this status:
 * an arena that is too small tells what it needs. */
static inline void
batoni_transfer_arrived(struct batoni_transfer *receive,
                        enum baton_status status, size_t length)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(receive);

	batoni_transfer_moved(receive, list && status == BATON_ERR_TRUNCATED
	                                       ? list->fault_bytes
	                                       : length);
}

/* The upcalls of the engine for a path, and for the transport that has it. */
struct batoni_upcalls {
	/* The transfer has ended (or, if it was LENT, its buffer is free).
	 * Call it only from within issue, test, await, flush, take_back, scrap or lost.  It
	 * does not call back into the path. */
	void (*done)(struct batoni_upcalls *upcalls,
	             struct batoni_transfer *transfer, enum baton_status status);
	/* The path is broken for good: every pending request will end with
	 * `fatal`.  call, code and text come from the native library; without one call is
	 * NULL, and text a sentence.  Call it only from within issue, test, await, flush,
	 * take_back, scrap, and the transport's exchange, leave and clear. */
	void (*broken)(struct batoni_upcalls *upcalls,
	               enum baton_status fatal, const char *call, int code,
	               const char *text);
	/* A call of issue or take_back has put something off, to do it together with what
	 * the engine issues next: the engine calls `flush` when it has issued all that is
	 * ready, before it releases the driver lock.  Messages of a transport only, from
	 * within these slots. */
	void (*deferred)(struct batoni_upcalls *upcalls);
	/* A slot of another communicator's path (local) has given this path something to
	 * move: the engine polls this one again.  Any slot. */
	void (*moves)(struct batoni_upcalls *upcalls);
	/* The native library is about to be finalised (the program finalises MPI; or, `exits`, the
	 * process does, and what needs no such library ends too).
	 * Any thread, not from within a slot.  When it returns, all requests have
	 * ended in ABORTED, and the engine will call no slot but close(aborted). */
	void (*lost)(struct batoni_upcalls *upcalls, bool exits, const char *why);
	/* The same for a native transport's lower one, where the native one's messages go
	 * on without it.  If the program has used signals or windows, all has ended as of
	 * `lost`, and true is returned; else calls that need them are refused from now on. */
	bool (*lost_lower)(struct batoni_upcalls *upcalls, const char *why);
	/* For receives from any rank or of any tag (struct batoni_unmatched_ops).  May the one that looks have
	 * a message of this rank and tag: is it no earlier receive's?  Within `find`. */
	bool (*may_meet)(struct batoni_upcalls *upcalls, int peer, int tag);
	/* While some are expected, a message of this rank and tag has come, and behind none that has met no
	 * receive: the receive that it meets, which is issued by this call and named by the transfer's
	 * peer from now on; NULL: it waits for `find`.  Within issue, test, await. */
	struct batoni_transfer *(*receive_for)(struct batoni_upcalls *upcalls,
	                                       int peer, int tag);
	/* NULL without an observer.  Bytes of the transfer begin to be copied between its
	 * buffer and memory of the path's own (begins), or none are copied any more.  Each
	 * begin has its end, before the transfer ends.  Within any slot. */
	void (*copying)(struct batoni_upcalls *upcalls,
	                const struct batoni_transfer *transfer, bool begins);
};

/* The streams that detached operations follow; each is named once. */
struct batoni_follow {
	const baton_stream *streams;
	size_t count;
};

struct batoni_path;

/* ---- the tables of a path; a table that is there has all its slots ---- */

struct batoni_host_issued_ops {
	/* Start the transfer; copy at most 16 KiB.  PENDING: upcalls->done will end it.
	 * Any other status: the transfer has ended in it (done_bytes is set), and the
	 * path holds nothing. */
	enum baton_status (*issue)(struct batoni_path *path,
	                           struct batoni_transfer *transfer);
	/* End an issued transfer early.
	 * CANCELED: taken back; the peer has seen nothing of it, and the path holds
	 * nothing.  OK, TRUNCATED or an error: it has just ended in that status,
	 * done_bytes is set.  BUSY: in progress, cannot be taken back; the buffer
	 * stays lent until the path calls upcalls->done. */
	enum baton_status (*take_back)(struct batoni_path *path,
	                               struct batoni_transfer *transfer);
};

struct batoni_stream_issued_ops {
	/* How the communicator breaks when the native library fails half way through an
	 * `enqueue` (BUSY). */
	enum baton_status fails_in;
	/* Its transfers end without a peer, and each by itself: a deadline, a peer's end or an
	 * abort ends the operation, whose buffer stays lent until its mark is done.  Otherwise
	 * these end the communicator, and only then a buffer may stay lent (abort). */
	bool lends;
	/* Put n transfers (one, or a group's, in call order) on their streams.
	 * follow: not on those, but on streams of the path's own, each of which begins
	 * when all of these streams have got here.
	 * The enqueuing thread, under the communicator's order lock; must not wait for
	 * a peer.  OK: observe_p[i] is the stream on which transfer i will be seen to
	 * end.  BUSY, with the library's call and code in the first transfer's native_call and
	 * native_code: it failed half way, so some may be on their streams, and the
	 * engine breaks the communicator.  PENDING: nothing was enqueued, and it is as if
	 * `takes` had returned false.  Anything else: nothing was enqueued.  UNSUPPORTED, AGAIN,
	 * NOMEM, NCCL, CUDA; ABORTED (of a path that is aborted beside the call). */
	enum baton_status (*enqueue)(struct batoni_path *path,
	                             struct batoni_transfer *const *transfers,
	                             size_t n, const struct batoni_follow *follow,
	                             baton_stream *observe_p);
};

/* The path carries its kinds to some peers, beside another path that carries them to the others;
 * or it has to connect to each peer first. */
struct batoni_serving_ops {
	/* Does it carry this kind to this peer?  peer: -1 for a wait that names
	 * several.  Of messages both ranks say the same, always; and a path that serves the messages
	 * of a peer serves those of both directions.  Any thread. */
	bool (*serves)(struct batoni_path *path, int kind, int peer);
	/* A message to or from this peer, which the path serves, is about to be enqueued: take what
	 * that needs.  Any thread, several at once, and again after it was refused.  OK: it is never
	 * asked again for this peer, though threads that ask now get their answers.  NOMEM:
	 * batoni_refuse has said why, and the call is refused. */
	enum baton_status (*connect)(struct batoni_path *path, int peer);
};

/* The path carries some of the one-sided layer's operations, beside the layer's own.
 * Stream-issued, with a table `serving`. */
struct batoni_taking_ops {
	/* Will it put this transfer on its stream?  False: the one-sided layer's own path has
	 * it from here on, and `forget`, or that path, tells when it has ended.  alone: the
	 * operation is in no group and is not detached; others are never taken.  The enqueuing
	 * thread, under the communicator's order lock. */
	bool (*takes)(struct batoni_path *path,
	              const struct batoni_transfer *transfer, bool alone);
};

/* The path checks what it carries. */
struct batoni_checking_ops {
	/* Does the path carry this transfer, for which it was chosen?  Any thread, at the call.  OK;
	 * UNSUPPORTED, or INVALID (it takes no more): batoni_refuse has said why, and the call is
	 * refused. */
	enum baton_status (*accepts)(struct batoni_path *path,
	                             const struct batoni_transfer *transfer);
	/* Why the transfer ended in MISMATCH or TIMEOUT, beyond what the status says, from
	 * what was stored before it ended; false: nothing to add.  Any thread that holds its
	 * operation. */
	bool (*explain)(struct batoni_path *path,
	                const struct batoni_transfer *transfer, char *text,
	                size_t size);
};

/* Operations have a place in the order of the calls. */
struct batoni_placing_ops {
	/* The operation has its place (a wait gets its units).  Called once, before issue; on
	 * a stream-issued path after enqueue. */
	void (*place)(struct batoni_path *path, struct batoni_transfer *transfer);
	/* It was placed, and has ended without issue; on a stream-issued path it has
	 * ended.  What place did is undone. */
	void (*unplace)(struct batoni_path *path,
	                struct batoni_transfer *transfer);
};

/* Host-issued: what cannot be taken back can be given up. */
struct batoni_scrapping_ops {
	/* The buffer of a transfer that take_back has left BUSY is about to go: what still comes of a
	 * receive is dropped, and what is left of a send does not leave (so only a communicator that is
	 * broken scraps sends).  OK: nothing writes or reads there from now on; upcalls->done ends the transfer
	 * as before, or has, or never will, where its peer does no more.  PENDING: a copy of this
	 * process's, or of its device, is under way; ask again after `test`.  BUSY: the native library
	 * may still use it. */
	enum baton_status (*scrap)(struct batoni_path *path,
	                           struct batoni_transfer *transfer);
};

/* Host-issued: what ends a transfer comes from its peer, so a thread that waits for it can poll that
 * peer alone, which takes less than `test`. */
struct batoni_awaiting_ops {
	/* The transfer is under way, or it is a receive from any rank or of any tag (-1) that is expected.
	 * Poll up to `polls` times whether its peer has sent something; take what has come as `test` does, whether it is
	 * this transfer's or not.  Returns the number of events.  0: nothing came, or it takes `test` to move
	 * this transfer. */
	size_t (*await)(struct batoni_path *path,
	                struct batoni_transfer *transfer, unsigned polls);
};

/* What a message is that has met no receive. */
struct batoni_held {
	size_t bytes; /* of a list, of its payload */
	bool list;
	size_t tensors; /* of a list */
};

/* Host-issued: the path tells which messages have come that no receive has met, for receives from any
 * rank or of any tag, which it gets only once it is known which message they take (runtime/core/line.c). */
struct batoni_unmatched_ops {
	/* So many more (or, negative, fewer) such receives wait for messages of the path's peers.
	 * While some do, they count in its load, `test` is called, and a message that comes unmatched
	 * is noticed as the end of an operation is.  Also within upcalls->receive_for: it only counts. */
	void (*expect)(struct batoni_path *path, int change);
	/* A message of this peer (-1: of any rank) and with this tag (-1: any), one of the program's, that has
	 * come, has met no receive, and that upcalls->may_meet allows: its rank, and in *tag_p its tag; -1: there
	 * is none.  Of several ranks each has its turn; of one rank it is the message that was issued first.
	 * The receive of that rank and tag that is issued next meets it, before anything else is asked of the
	 * path; its sender does not take it back from now on. */
	int (*find)(struct batoni_path *path, int peer, int *tag_p);
	/* Take the message that `find` has just named out of those that receives meet, for `receive`, of that
	 * rank and tag, whose slot has it from now on; its buffer is not known yet.  OK: *held_p says what the
	 * message is.  PENDING: that has not all come; call again, for the same receive, after `test`, or take it
	 * back (take_back).  NOMEM: the message stays where it is.  Anything else: there is no such message any
	 * more, and nothing is held. */
	enum baton_status (*hold)(struct batoni_path *path,
	                          struct batoni_transfer *receive,
	                          struct batoni_held *held_p);
	/* As issue: the receive meets the message that the slot of `held` has, which may be the receive's own.
	 * That slot has none then. */
	enum baton_status (*meet)(struct batoni_path *path,
	                          struct batoni_transfer *receive,
	                          struct batoni_transfer *held);
};

/* Host-issued: `issue` and `take_back` put work off, to do it for several at once. */
struct batoni_deferring_ops {
	/* Do what was put off (upcalls->deferred).  It may have been done meanwhile, by `test`.
	 * Returns the number of events. */
	size_t (*flush)(struct batoni_path *path);
};

/* What is on streams (of a host-issued path: where a device carries transfers out) has to be
 * ended for the streams to continue. */
struct batoni_aborting_ops {
	/* Tell everything that is on the streams to end.  True: all has been told, and what has
	 * begun ends soon.  False: ask again, as the engine does for a grace period.  The engine
	 * polls the marks: an operation ends when it has left its buffer, or LENT, where its
	 * stream has not come to it or the grace period is over.  The engine has released its own
	 * words before.  An `enqueue` may run on another thread only if it has not returned for a
	 * second; it is told too.  Afterwards only place, unplace, abort, close and, without an
	 * effect, test are called.  Host-issued: take_back has been called for all; for those that
	 * it left BUSY, `test` is called until upcalls->done has ended them, or close. */
	bool (*abort)(struct batoni_path *path);
};

/* The path has memory of its own.  (The transport or the one-sided layer frees that of other paths.) */
struct batoni_closing_ops {
	/* The communicator goes: free the path.  aborted: it was aborted or is broken.
	 * Called before the transport and the one-sided layer close. */
	void (*close)(struct batoni_path *path, bool aborted);
};

struct batoni_path_ops {
	const char *name; /* in sentences: "the MPI transport" */
	/* What it can carry: 1 << BATON_OPERATION_*.  0: what it was made for alone, as lists
	 * (transport.h). */
	unsigned kinds;
	/* Messages may be lists of tensors.  A message and a receive of which only one is a
	 * list match, and the receive ends in MISMATCH. */
	bool lists;

	/* One of these two. */
	const struct batoni_host_issued_ops *host_issued;
	const struct batoni_stream_issued_ops *stream_issued;

	/* NULL: it carries its kinds to all peers. */
	const struct batoni_serving_ops *serving;
	/* NULL: it carries all operations that it serves. */
	const struct batoni_taking_ops *taking;
	/* NULL: it accepts all, or enqueue refuses; and there is nothing to explain. */
	const struct batoni_checking_ops *checking;
	const struct batoni_placing_ops *placing;
	/* NULL: as batoni_path_scrap says. */
	const struct batoni_scrapping_ops *scrapping;
	/* NULL: waiting threads call `test`. */
	const struct batoni_awaiting_ops *awaiting;
	/* NULL: it has no receives from any rank. */
	const struct batoni_unmatched_ops *unmatched;
	const struct batoni_deferring_ops *deferring;
	const struct batoni_aborting_ops *aborting;
	const struct batoni_closing_ops *closing;

	/* One bounded pass over what is in flight (about 1 MiB of copying, a batch of
	 * tests).  Returns the number of events (transfers ended, phases entered).
	 * Stream-issued: makes the native library progress, and shows its asynchronous errors,
	 * which go to upcalls->broken; where there is no such library, does nothing. */
	size_t (*test)(struct batoni_path *path);
};

/* The leaf or layer sets it, but for `upcalls`, which the engine sets. */
struct batoni_path {
	const struct batoni_path_ops *ops;
	struct batoni_upcalls *upcalls;
	struct batoni_load load;
	uint32_t tests; /* written by the engine: how often it has called `test` in a pass */
	/* Written by the engine: the communicator is broken, and all that is issued is being taken
	 * back. */
	bool ending;
};

static inline enum baton_status
batoni_path_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	return path->ops->host_issued->issue(path, transfer);
}

static inline enum baton_status
batoni_path_take_back(struct batoni_path *path,
                      struct batoni_transfer *transfer)
{
	return path->ops->host_issued->take_back(path, transfer);
}

/* Stream-issued, and each of its transfers ends by itself (`lends`)? */
static inline bool
batoni_path_lends(const struct batoni_path *path)
{
	return path->ops->stream_issued && path->ops->stream_issued->lends;
}

/* Scrap a transfer.  Where a path has no slot for it, its buffers are in use until they end:
 * on a quiet one soon, by calls of this process; else for an unknown time. */
static inline enum baton_status
batoni_path_scrap(struct batoni_path *path, struct batoni_transfer *transfer)
{
	if (path->ops->scrapping)
		return path->ops->scrapping->scrap(path, transfer);
	return path->load.quiet ? BATON_PENDING : BATON_ERR_BUSY;
}

/* The kinds of a transport's messages. */
#define BATONI_MESSAGES                                                       \
	(1u << BATON_OPERATION_SEND | 1u << BATON_OPERATION_RECV)
/* The kinds of the one-sided layer. */
#define BATONI_ONESIDED                                                       \
	(1u << BATON_OPERATION_SIGNAL | 1u << BATON_OPERATION_PUT_SIGNAL |    \
	 1u << BATON_OPERATION_WAIT_SIGNAL | 1u << BATON_OPERATION_WAIT_ANY | \
	 1u << BATON_OPERATION_WAIT_COUNT | 1u << BATON_OPERATION_GET |       \
	 1u << BATON_OPERATION_FLUSH | 1u << BATON_OPERATION_ATOMIC)
/* Those of all ranks, which the one-sided layer's own path carries too. */
#define BATONI_COLLECTIVE (1u << BATON_OPERATION_BARRIER)
/* All that are transfers. */
#define BATONI_TRANSFERS (BATONI_MESSAGES | BATONI_ONESIDED | BATONI_COLLECTIVE)

/* The tag of a transfer that is a barrier, whose peer is -1. */
#define BATONI_TAG_BARRIER (-1)

static inline bool
batoni_transfer_is_barrier(const struct batoni_transfer *transfer)
{
	return transfer->tag == BATONI_TAG_BARRIER;
}

#endif
