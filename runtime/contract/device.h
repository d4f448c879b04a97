/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device contract: what the engine requires of streams.  A device has two tables: this
 * one, and that of its memory (memory.h).
 *
 * A device keeps streams of items.  An item is a point in a stream where the
 * engine is told ("reached") and where the stream may then wait for a word to
 * grow.  Items are embedded in the engine's operations, so that nothing is
 * allocated between enqueue and completion.
 *
 * Devices are of two kinds.
 *
 * In-engine (the host device): streams are data structures of the process.
 * `enqueue` and `release` are called only by the thread that drives the engine,
 * and they call `reached` themselves, before they return, for each item that
 * gets to the head of its stream.  The driver continues with that item.
 *
 * Asynchronous (CUDA, the fake of tests/support): `enqueue` is called by the
 * thread that enqueues the operation, under the communicator's order lock, and
 * `reached` is called later, on a thread of the device, for items of different streams
 * also on several threads at once.  There it may only
 * store and wake: no lock, no allocation, no waiting, no call into the device.
 *
 * Sick devices.  A device may stop: a trigger never fires, a stream never goes on, or
 * every call fails from some moment on (a sticky error, as CUDA's).  `health` of the
 * memory table reports the last of these; no slot may wait for such a device.  The engine then ends
 * the operations, and
 * leaves what the device may still touch (operations, words) allocated for good.
 *
 * Streams may be bounded: `enqueue` then blocks until the stream goes on.  The engine
 * holds no lock meanwhile that the driver needs.
 *
 * A device without an operation that waits for a word carries the wait out within the
 * item, on a thread where it holds up no item of another stream; if it has no such
 * thread, `open` refuses (UNSUPPORTED).
 *
 * Words: the engine allocates them from the device, one for each operation.  Their
 * values only grow.  A stream that waits for `value` continues when the word is
 * greater or equal (a cyclic signed compare, as CUDA's GEQ).
 */
#ifndef BATONI_DEVICE_H
#define BATONI_DEVICE_H

#include <stdatomic.h>

#include "memory.h"

/* The item waits for its word first and is reached afterwards (a join).  Without this
 * flag it is reached first and then waits (an operation). */
#define BATONI_ITEM_WAIT_FIRST 1u
/* `reached` runs a function of the program: call it on a thread where it may
 * block, never on the thread that drives. */
#define BATONI_ITEM_LAUNCH 2u
/* In-engine devices only, on an idle stream: the enqueuer has already treated the item as
 * reached; it only waits for its word. */
#define BATONI_ITEM_PASSED 4u
/* Only the trigger now; the wait follows by `wait`. */
#define BATONI_ITEM_WAITS_LATER 16u
/* The engine's own: the item stands for a whole group on its stream. */
#define BATONI_ITEM_CARRIER 8u

struct batoni_stream_item {
	struct batoni_stream_item *next; /* the device's */
	/* Called exactly once for each enqueued item.  If the item has no word left
	 * to wait for, the device does not touch it during or after the call: the
	 * engine may reuse its slot. */
	void (*reached)(struct batoni_stream_item *item);
	_Atomic uint64_t *word; /* NULL: nothing to wait for */
	uint64_t value;
	unsigned flags; /* BATONI_ITEM_* */
	uint32_t placed_ms; /* the engine's: when it was placed, or before that made */
};

/* A position in a stream, for stream-issued transports.  The device owns the content.  A
 * mark that was never seen done may be set again; the device then reuses the object that
 * it holds. */
struct batoni_mark {
	void *object;
	uint64_t value;
	/* Set by the engine before `mark`: so many entries of its stream it stands for, its own
	 * included, until it is seen done or dropped (`begin`); 0: they are counted elsewhere. */
	uint32_t entries;
};

/* What a stream carries out for a put: a copy, and behind it the store of a number, or a copy alone. */
struct batoni_stream_put {
	void *to;
	const void *from;
	size_t bytes; /* 0: no copy */
	_Atomic uint64_t *word; /* NULL: no store */
	uint64_t value;
};

/* What calls will put on a stream: so many entries, and puts, which take what the device needs
 * for each, or an item's entries where there is no room for puts. */
struct batoni_need {
	uint32_t entries, puts;
};
/* Entries of an item: its trigger, and its wait if it has a word. */
#define BATONI_ITEM_ENTRIES 2u

/* Streams that share what runs them: one that waits may hold up the others of its queue. */
struct batoni_crowd {
	uint32_t streams; /* that are known: a program may have more */
	uint32_t working; /* of these: with operations on them now */
	uint32_t queues, copy_queues;
	uint32_t advised; /* so many queues would be enough, or are the most that there can be */
	char advice[80];  /* what to set for that: "CUDA_DEVICE_MAX_CONNECTIONS=32" */
	uint32_t entries; /* so many the engine puts on one stream at a time */
	/* Why launching a kernel behind a wait blocks the thread, as the end of a sentence; NULL: it does
	 * not. */
	const char *blocking;
};

static inline bool
batoni_is_crowded(const struct batoni_crowd *crowd)
{
	return crowd->streams > crowd->queues ||
	       crowd->streams > crowd->copy_queues;
}

struct batoni_device_config {
	/* The number of a CUDA device; -1: host_rank modulo the number of devices. */
	int cuda_device;
	int host_rank; /* the rank's number among those of this node */
	uint64_t until_ns; /* as words_alloc */
};

/* ---- the table ---- */

/* Required of every device: each slot is set.  A table that it points to is there whole, or
 * its pointer is NULL (tables.h). */
struct batoni_device_ops {
	const char *name; /* in the environment, and in sentences */
	enum baton_device id;
	const char *constant; /* that of `id`, in sentences */
	const char *unit;     /* one of them: "memory of GPU 3" */
	/* The native transport that moves its memory; AUTO: there is none. */
	enum baton_transport native;
	/* Programs also wait for its streams by calls of the device, in which Baton makes
	 * no progress (cudaStreamSynchronize): a communicator is refused where the
	 * engine's thread may not drive it, unless the program has asked for
	 * BATON_PROGRESS_CALLS. */
	bool needs_thread;
	/* The device's memory; not NULL. */
	const struct batoni_memory_ops *memory;

	/* NULL: the device is asynchronous. */
	const struct batoni_in_engine_ops *in_engine;
	/* NULL: stream-issued transports are refused. */
	const struct batoni_mark_ops *marks;
	/* NULL: there are no such waits: native transports are refused, and joins wait for
	 * words. */
	const struct batoni_event_ops *events;
	/* NULL: streams are not bounded. */
	const struct batoni_bound_ops *bounds;
	/* NULL: a stream holds up no other, and WAITS_LATER is not used. */
	const struct batoni_shared_queue_ops *shared_queues;
	/* NULL: handles mean the same everywhere, and a stream stops no other. */
	const struct batoni_handle_ops *handles;
	/* NULL: streams do not store, and the engine carries out all puts. */
	const struct batoni_stream_put_ops *puts;

	/* The number of the device that the calling thread works on now (CUDA: of its
	 * current context), or -1, also where devices have no numbers.  It is used where the
	 * options name none.  Caller: the thread of the rank, before `open`; may block.  OK;
	 * UNSUPPORTED, CUDA (batoni_refuse has said why). */
	enum baton_status (*current)(int *number_p);
	/* Caller: the thread that creates a communicator, which may be another rank's;
	 * may block.  One open
	 * for each communicator; opens may share resources.
	 * OK; INVALID, UNSUPPORTED, NOMEM, CUDA (batoni_refuse has said what is wrong
	 * or missing). */
	enum baton_status (*open)(const struct batoni_device_config *config,
	                          struct batoni_device **device_p);
	/* Caller: the thread that destroys; no item of this open is in a stream.  Not
	 * called if items or copies were left behind on a device that stopped. */
	void (*close)(struct batoni_device *device);

	/* Caller: any thread; may block.  OK, NOMEM, CUDA; destroy: OK, BUSY,
	 * INVALID. */
	enum baton_status (*stream_create)(struct batoni_device *device,
	                                   baton_stream *stream_p);
	enum baton_status (*stream_destroy)(struct batoni_device *device,
	                                    baton_stream stream);
	/* Is the handle a stream of this device, or was it one, by its value alone?  Any thread.
	 * True only of devices whose streams are of this process; such a handle is given to no slot
	 * of another device, whose library may read what it points to.  False: it cannot be told. */
	bool (*stream_is_ours)(baton_stream stream);
	/* Caller: any thread, before every enqueue; must not block on the stream.
	 * launching: an item that runs a function will follow; allocate its thread.
	 * OK; INVALID: no stream that this device takes; UNSUPPORTED: one that it does not
	 * take now, as one that captures a graph; CUDA; launching also NOMEM, SYSTEM.  After
	 * anything but OK batoni_refuse has said why (the engine puts the call before it),
	 * and no other slot is called for the stream. */
	enum baton_status (*stream_check)(struct batoni_device *device,
	                                  baton_stream stream, bool launching);
	/* Caller: any thread; must not block.  OK: the stream has no items;
	 * PENDING; CUDA. */
	enum baton_status (*stream_idle)(struct batoni_device *device,
	                                 baton_stream stream);

	/* Put the item on the stream.  Caller: see the two kinds above; must not
	 * block on a peer or on the engine.  OK: `reached` will be called (or has
	 * been); the item belongs to the device until then and, when it waits
	 * after that, until the word is released.  AGAIN (as many items are on the
	 * stream as it takes), NOMEM, CUDA, of a LAUNCH item also SYSTEM: batoni_refuse
	 * has said why, and the item was not taken; in-engine devices always take it. */
	enum baton_status (*enqueue)(struct batoni_device *device,
	                             baton_stream stream,
	                             struct batoni_stream_item *item);
	/* Store value in the word, so that every stream that waits for it continues.
	 * Caller: the thread that drives; must not block.  Called once for each
	 * value of a word, even if no stream waits. */
	void (*release)(struct batoni_device *device, _Atomic uint64_t *word,
	                uint64_t value);

	/* count words, zeroed, that streams of this device can wait for.
	 * Caller: the thread that creates; may block, until until_ns as pinned_alloc.  OK,
	 * NOMEM, CUDA; SYSTEM and TIMEOUT as pinned_alloc. */
	enum baton_status (*words_alloc)(struct batoni_device *device,
	                                 size_t count, uint64_t until_ns,
	                                 _Atomic uint64_t **words_p);
	/* All values that streams wait for have been released, but a stream may not
	 * have seen that yet.  OK: the words are free.  Anything else: nothing was
	 * freed.  BUSY: a stream may still read them; the engine asks again, until
	 * its grace is over, and then leaves them allocated.  UNSUPPORTED: the device
	 * cannot tell; the engine leaves them allocated at once.
	 * Caller: the thread that destroys; must not wait for a stream. */
	enum baton_status (*words_free)(struct batoni_device *device,
	                                _Atomic uint64_t *words);
};

/* ---- what a device may have besides ---- */

/* Of an in-engine device. */
struct batoni_in_engine_ops {
	/* Is the handle a stream of this device that has no items?  For the fast path of calls: one question in
	 * place of stream_check and stream_idle, and no sentence.  The driver. */
	bool (*takes_now)(struct batoni_device *device, baton_stream stream);
	/* Does the thread that runs the stream's functions have another item to run?
	 * *ends_p: it has none and was asked to stop.
	 * Caller: that thread, in `reached` of a LAUNCH item, after the function has
	 * returned, when it may drive the engine. */
	bool (*launch_waits)(struct batoni_device *device, baton_stream stream,
	                     bool *ends_p);
};

/* Positions in streams, for stream-issued transports. */
struct batoni_mark_ops {
	/* Record the stream's current end.  The enqueuing thread, under the order lock; OK;
	 * UNSUPPORTED, NOMEM, CUDA (batoni_refuse has said why). */
	enum baton_status (*mark)(struct batoni_device *device,
	                          baton_stream stream,
	                          struct batoni_mark *mark_p);
	/* Has the stream passed it?  The thread that drives; OK (once; it releases what the
	 * mark holds), PENDING, CUDA. */
	enum baton_status (*mark_done)(struct batoni_device *device,
	                               struct batoni_mark *mark);
	/* Drop a mark that was never seen done, and is not asked for any more: release what it
	 * holds, without waiting for the stream.  The thread that destroys. */
	void (*mark_drop)(struct batoni_device *device,
	                  struct batoni_mark *mark);
};

/* Streams wait for each other by events of the device, without a word of the engine. */
struct batoni_event_ops {
	/* From now on what is put on `stream` runs only behind what is on `other` now.  For
	 * paths that have streams of their own beside those of the program.  Caller: the
	 * enqueuing thread, under the order lock; must not block.  OK; NOMEM, CUDA:
	 * batoni_refuse has said why. */
	enum baton_status (*follow)(struct batoni_device *device,
	                            baton_stream stream, baton_stream other);
	/* From now on what is put on `stream`, of any open of this device, runs only behind
	 * the mark.  Caller: any thread; the mark is not set, asked for or
	 * dropped meanwhile.  OK; PENDING: the mark is not set, or, if it is to be bounded,
	 * the stream has many such waits; CUDA: batoni_refuse has said why. */
	enum baton_status (*mark_follow)(struct batoni_device *device,
	                                 baton_stream stream,
	                                 const struct batoni_mark *mark,
	                                 bool bounded);
};

/* Streams hold a bounded number of entries.  On a full one a call of the native library would block
 * until the stream goes on; items are refused. */
struct batoni_bound_ops {
	/* Begin a transaction: up to `commit` this thread puts on the stream what belongs to one
	 * call, by slots of this device and by a library (`enter` of the memory's table).  The device
	 * is entered, and the stream looked up, once for all of these.  A thread may begin others
	 * meanwhile, on other streams of the device.  An item that WAITS_LATER and its wait are in
	 * one transaction, or in none.
	 * Is there room on the stream for so much?  A need of one entry may stand
	 * for a whole call of the library with its marks: an empty stream takes that, however long it is.
	 * One of nothing is met on any stream.
	 * Caller: the enqueuing thread, under the order lock; waits some ms for a full stream
	 * that may be moving.  OK; AGAIN, CUDA: there is nothing to commit, and batoni_refuse has said
	 * why. */
	enum baton_status (*begin)(struct batoni_device *device, baton_stream stream,
	                           const struct batoni_need *need);
	/* End a transaction, successful or not.  The same thread, once for each. */
	void (*commit)(struct batoni_device *device);
	/* Does a stream take so much, when nothing is on it?  Any thread.  OK; INVALID: batoni_refuse
	 * has said why; the sentence goes on from "a launch". */
	enum baton_status (*holds)(const struct batoni_need *need);
};

/* Streams share hardware queues: one that waits may hold up the others of its queue. */
struct batoni_shared_queue_ops {
	/* An internal stream that waits of user streams cannot block, for work that such a
	 * stream may be waiting for.  As stream_create. */
	enum baton_status (*stream_create_apart)(struct batoni_device *device,
	                                         baton_stream *stream_p);
	/* An internal stream that waits for peers, and for streams of the program.  If the device
	 * can, it blocks neither those nor streams of the kind above.  As stream_create. */
	enum baton_status (*stream_create_waiting)(struct batoni_device *device,
	                                           baton_stream *stream_p);
	/* How crowded its queues are.  Any thread; may not block. */
	void (*crowd)(struct batoni_device *device, struct batoni_crowd *crowd_p);
	/* A library that works on the device tells that it has so many streams more, or fewer.
	 * Any thread; may not block. */
	void (*foreign_streams)(struct batoni_device *device, int more);
	/* Put the wait of an item on its stream, behind the trigger that `enqueue` has put
	 * there WAITS_LATER.  The triggers of a group go before its waits, so that streams
	 * that share a hardware queue do not hold up each other's triggers.  Caller: as
	 * enqueue, right after.  It does not fail: a device that cannot is sick. */
	void (*wait)(struct batoni_device *device, baton_stream stream,
	             struct batoni_stream_item *item);
	/* From now on what is put on `stream` runs only behind what is on `other`.  For the
	 * streams of a group, between the triggers and the waits: these could hold up the
	 * triggers of other streams although those come first.  Caller and failure: as
	 * wait. */
	void (*behind)(struct batoni_device *device, baton_stream stream,
	               baton_stream other);
};

/* Some handles have a meaning of their own (CUDA's default streams).  Any thread; these only
 * read. */
struct batoni_handle_ops {
	/* While this stream waits, streams of the program or of a library may stand too
	 * (CUDA's legacy default stream).  It is refused where a library is to reach the
	 * device's memory. */
	bool (*stops_others)(baton_stream stream);
	/* The handle by which a library names, on a thread of its own, the stream that this one
	 * means for the calling thread.  False: there is none (CUDA's per-thread default
	 * stream), and the library is to be given a stream that follows it. */
	bool (*names)(baton_stream stream, baton_stream *name_p);
};

/* Streams carry out puts. */
struct batoni_stream_put_ops {
	/* Why the streams of this device do not store, in words that stay for as
	 * long as the process; NULL: they do.  Any thread; must not block. */
	const char *(*why_no_puts)(struct batoni_device *device);
	/* The number of the stream that the handle means now, for the calling
	 * thread: the stream's own, of all that there ever are on the device, where handles are
	 * used again and a default handle means a stream for each thread.  Caller: as enqueue;
	 * must not block.  OK; CUDA: batoni_refuse has said why. */
	enum baton_status (*stream_number)(struct batoni_device *device,
	                                   baton_stream stream,
	                                   uint64_t *number_p);
	/* Put the copy, and behind it the store, on the stream.  Both sides of the
	 * copy are memory of devices of this kind, or pinned; the word is in a block of
	 * pinned_alloc, of any open of such a device, or in a mapping of pin.  What reads the value
	 * (a host, another device, a stream that is let go after the value was read) also sees
	 * the copy, and what is before the two on the stream.  Buffers and word stay until a mark
	 * behind them is done.  Caller: the enqueuing thread, under the order lock; must not block.  OK: both
	 * are on the stream, or the device is sick.  PENDING: nothing was put there, and the
	 * engine is to carry it out: as much is on the stream as may be, or the native library
	 * has refused it (memory of another device, that this one does not reach).  CUDA,
	 * NOMEM: nothing was put there, and batoni_refuse has said why. */
	enum baton_status (*stream_put)(struct batoni_device *device,
	                                baton_stream stream,
	                                const struct batoni_stream_put *put);
};

/* Must be first in every device. */
struct batoni_device {
	const struct batoni_device_ops *ops;
	/* Which one; -1: devices of this kind have no numbers.  The driver's version, as
	 * cuDriverGetVersion has it; the multiprocessors (0, both: not known).  Set by open. */
	int number, driver_version, processors;
};

/* Of a device with bounds: is there room for so much?  As `begin`. */
static inline enum baton_status
batoni_device_ask_room(struct batoni_device *device, baton_stream stream,
                       const struct batoni_need *need)
{
	const struct batoni_bound_ops *bounds = device->ops->bounds;
	enum baton_status status = bounds->begin(device, stream, need);

	if (status == BATON_OK)
		bounds->commit(device);
	return status;
}

/* runtime/device/host/host.c */
extern const struct batoni_device_ops batoni_device_host_ops;

#endif
