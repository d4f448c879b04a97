/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operation: one for each outstanding request, 192 bytes, from the
 * communicator's fixed pool.
 *
 * State: NEW (being enqueued, or in the inbox) -> QUEUED (has its place) ->
 * ARMED (its stream got there) -> ISSUED (the transport has it) -> ENDED.  QUEUED
 * and ARMED ones may end unissued.  Status is data, not a state.  Only the driver
 * moves an operation from state to state (batoni_op_move in life.h).
 *
 * The word says who holds the operation, and what threads poll:
 *
 *   63..32 generation   31..16 joins   15..0 BATONI_OP_* bits
 *
 *   bit     meaning                          set by            cleared by
 *   HANDLE  the program has the handle       enqueuer, once    any thread, once
 *   ENGINE  in the inbox, a FIFO, or with    enqueuer, once    driver
 *           the transport (also when lent)
 *           with MESSAGE: no receive has     driver, or what    a receive's call,
 *           that message yet                 gives it back      or what discards it
 *   STREAM  its item is in a stream and      enqueuer, once    driver
 *           has not been passed
 *   QUEUE   an entry of a completion queue   enqueuer, once    poll, or the driver
 *   joins   other streams, or threads, that  any thread that   the same
 *           need the operation to stay          sees a holder
 *   DONE    it has ended                     driver, once      -
 *   LENT    ended, but the transport still   driver, with      driver
 *           has it                           DONE
 *   MESSAGE it stands for a message that a   driver, once      driver
 *           probe has found (claim.h)
 *   CANCEL  baton_cancel was called, and it  any thread, once  driver
 *           is in its communicator's list
 *   WAITED  its end wakes waiters (wait.c)   a waiter, while    -
 *                                            it is not DONE
 *   BEGUN   a barrier that ended LENT: the   driver, with      -
 *           other ranks count it             DONE
 *
 * These are the holders: HANDLE, ENGINE, STREAM, QUEUE, MESSAGE, CANCEL and the joins.
 *
 *   free       no bit is set; the slot is in the pool
 *   made       the enqueuer has set the holders, by one store, after the fields
 *   pending    ENGINE
 *   ended      DONE, and not ENGINE unless LENT
 *
 * Between free and made the word belongs to one thread, which writes it by plain
 * stores; all later changes are read-modify-writes.  The thread that clears the last
 * holder moves the generation on and returns the slot to the pool.  An operation of
 * baton_stream_synchronize (LOCAL) is of no pool: batoni_op_drop_local frees it.
 *
 * Holders may read all that does not change: what was filled in before the operation
 * was made and, once DONE is seen (acquire), how it ended.  DONE is set (release)
 * after everything that a completion tells has been written.
 *
 * Readers: a thread that has a handle alone does not hold the operation: another thread
 * may release it at any time.  It reads as from a sequence lock:
 *
 *   reader  load the word (acquire): the generation and HANDLE are its own;
 *           load the fields; fence (acquire); load the word again: another
 *           generation means STALE, and what was read counts for nothing
 *   writer  store the next generation; fence (release, in batoni_pool_take);
 *           store the fields
 *
 * The reader that then clears HANDLE by a compare-and-swap needs no second load.
 * Fields that are read so: comm, kind, status, user_data, group_of, peer, tag and
 * done_bytes of the transfer, and the time stamps.  Both sides use batoni_get and
 * batoni_set for them.  A thread that needs other fields holds the operation
 * (batoni_op_hold).
 */
#ifndef BATONI_OP_H
#define BATONI_OP_H

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>

#include "datatype.h"
#include "device.h"
#include "list.h"
#include "transport.h"

#define BATONI_OP_DONE 1u
#define BATONI_OP_LENT 2u
#define BATONI_OP_CANCEL 4u
#define BATONI_OP_HANDLE 8u
#define BATONI_OP_ENGINE 16u
#define BATONI_OP_STREAM 32u
#define BATONI_OP_QUEUE 64u
#define BATONI_OP_WAITED 128u /* its end wakes waiters (wait.c) */
#define BATONI_OP_BEGUN 256u
#define BATONI_OP_MESSAGE 512u
#define BATONI_OP_JOIN (1u << 16)
#define BATONI_OP_JOINS 0xffff0000u
#define BATONI_OP_HELD                                                        \
	(BATONI_OP_JOINS | BATONI_OP_HANDLE | BATONI_OP_ENGINE | BATONI_OP_STREAM | \
	 BATONI_OP_QUEUE | BATONI_OP_MESSAGE | BATONI_OP_CANCEL)

enum batoni_op_state {
	BATONI_NEW,
	BATONI_QUEUED,
	BATONI_ARMED,
	BATONI_ISSUED,
	BATONI_ENDED
};

/* Bits of batoni_op.flags; driver only once the operation is in the inbox. */
#define BATONI_FLAG_DETACHED 1u
#define BATONI_FLAG_REACHED 2u   /* its stream got there */
#define BATONI_FLAG_DEADLINE 4u  /* it is in its communicator's deadline list */
#define BATONI_FLAG_HELD 8u     /* a carrier whose stream waits for the group */
#define BATONI_FLAG_FIFO 16u     /* it is in a FIFO */
#define BATONI_FLAG_ARMED 32u   /* stream-issued: seen to be armed */
#define BATONI_FLAG_LOCAL 64u   /* its waiter's own, not of the pool */
#define BATONI_FLAG_PLACED 128u /* its path has its place, and did not issue it */
#define BATONI_FLAG_STREAM_ISSUED 256u /* its path is; constant once it is published */
#define BATONI_FLAG_SEEN 512u /* stream-issued: its marks were passed */
#define BATONI_FLAG_PLANNED 1024u /* of a launch of a plan; constant */
/* One bit for two kinds of operations: a launch whose deadline has passed; a receive that stands in a line
 * (line.h), or that is for a message which a probe has found, until it is issued (claim.h). */
#define BATONI_FLAG_EXPIRED 2048u
#define BATONI_FLAG_IN_LINE 2048u
/* Of a host-issued transfer: at its deadline streams could stand behind each other (crowd.c). */
#define BATONI_FLAG_CROWDED 4096u
/* Of a launch: the operation that failed was a plain receive that a list has met. */
#define BATONI_FLAG_MET_LIST 8192u
#define BATONI_FLAG_MARKED 0x4000u /* it is on its communicator's list `marked` (sweep.c) */
#define BATONI_FLAG_ORPHAN 0x8000u /* its peer's process was gone at a check */

/* The lists that `next` links: an operation is in one of them at most.  (The other lists have links of
 * their own: design.md, "Lists".) */
enum batoni_listed {
	BATONI_UNLISTED,
	BATONI_IN_LAUNCH, /* of a plan: taken for it, or gathered behind it */
	BATONI_IN_INBOX,
	BATONI_IN_FIFO,
	BATONI_IN_FINISH, /* engine.finish */
	BATONI_IN_QUEUE,  /* a completion queue */
	BATONI_IN_KIND,   /* a list of its kind's own */
	BATONI_IN_CACHE   /* the pool's */
};

struct baton_comm;
struct baton_queue;
struct batoni_fifo;

struct batoni_op;
struct batoni_scope;

/* What differs between the three scopes below. */
struct batoni_scope_kind {
	const char *where; /* "inside a group" */
	/* The operation is complete, and would be published now.  OK: the scope has it.  Anything
	 * else: the call returns that, and gives the slot back. */
	enum baton_status (*add)(struct batoni_scope *scope, struct batoni_op *op);
	/* A slot for the next operation, or NULL: the pool is asked.  NULL slot: the same. */
	struct batoni_op *(*take_op)(struct batoni_scope *scope);
	/* baton_group_begin, _end and _abandon.  These three, and the next one, are NULL for a
	 * scope that is closed before its call returns. */
	enum baton_status (*group_begin)(struct batoni_scope *scope);
	enum baton_status (*group_end)(struct batoni_scope *scope);
	enum baton_status (*group_abandon)(struct batoni_scope *scope);
	/* The thread exits.  The scope is off its list. */
	void (*abandon)(struct batoni_scope *scope);
};

/* What a thread has open on a communicator: a group (the scope is in the group's operation), the
 * recording of a plan (in the plan), or a launch while it is built (on the stack of its call).
 * Operations that the thread enqueues there go to the scope.  A thread has one for each
 * communicator at most.  Only that thread touches it, until it is closed (scope.c). */
struct batoni_scope {
	struct batoni_scope *outer; /* opened before it, of another communicator */
	struct baton_comm *comm;
	const struct batoni_scope_kind *kind;
	uint32_t depth; /* groups begun in it, one in another, and not ended */
	enum baton_status refusal; /* of the first call that was refused: it is void */
};

/* A group, in the place of a transfer. */
struct batoni_group {
	struct batoni_op *head, *tail; /* members, then carriers */
	struct batoni_op *failed;      /* the first not on its stream */
	struct batoni_scope scope;     /* closed: its refusal alone counts */
};

/* Threads may still read done_bytes, peer and tag of the operation that was in the slot before ("Readers" above). */
static_assert(sizeof(struct batoni_group) <= sizeof(struct batoni_transfer) &&
                      offsetof(struct batoni_group, failed) ==
                              offsetof(struct batoni_transfer, done_bytes) &&
                      offsetof(struct batoni_group, scope.kind) + 4 ==
                              offsetof(struct batoni_transfer, peer) &&
                      offsetof(struct batoni_group, scope.depth) ==
                              offsetof(struct batoni_transfer, tag),
              "failed, scope.kind and scope.depth are written by batoni_set");

/* Of an operation that answers for others, its members, and is on no stream: a group, or a launch of a
 * plan.  `members` is the enqueuer's until the operation is published; then both are the driver's. */
struct batoni_tally {
	uint32_t members, ended;
};

/* Of a launch of a plan; the driver.  Its transfer has what else is known of the operation that
 * failed. */
struct batoni_launched {
	uint32_t failed; /* its number in the plan, or BATONI_NONE_FAILED */
	uint32_t lent;   /* operations that have ended and are lent */
	size_t came;     /* done_bytes of the one that failed; by batoni_set: it is where group_of is */
};

struct batoni_op {
	_Atomic uint64_t word;
	struct baton_comm *comm;
	/* By kind: a group has no transfer. */
	union {
		/* Of points only the stream counts, and the buffer: a launched
		 * function's argument, the operation that a join waits for.  That of
		 * a launch of a plan is a copy of the one that failed, but for
		 * done_bytes, which is the sum of those that did not. */
		struct batoni_transfer transfer;
		struct batoni_group group;
	};
	struct batoni_stream_item item;
	int8_t status;  /* enum baton_status */
	uint8_t listed; /* enum batoni_listed; where assertions are compiled in */
	uint8_t path;   /* a transfer's: index in comm->paths */
	uint8_t kind;   /* kind.h */
	uint8_t state;  /* enum batoni_op_state */
	uint8_t failed_kind; /* of a launch of a plan: the kind of operation `failed` */
	uint16_t flags;
	union {
		uint64_t user_data;
		void (*launch)(void *argument);
		/* PLANNED: the slot of the launch, and which operation of the
		 * plan it is. */
		struct {
			uint32_t launch_slot, plan_index;
		};
	};
	int64_t timeout_ns;       /* then, from arming on, the deadline */
	struct batoni_op *next;   /* enum batoni_listed: one list at a time */
	struct batoni_list_node deadline;
	struct baton_queue *queue;
	/* By kind: what answers for others is on no stream and in no group (off_stream). */
	union {
		struct {
			/* Reached on another thread: MPSC link. */
			struct batoni_op *posted;
			struct batoni_op *group_next;
			struct batoni_op *group_of; /* the group's operation, or NULL */
		};
		struct {
			struct batoni_tally tally;
			union {
				/* Of a group: carriers not yet reached. */
				uint32_t streams_left;
				struct batoni_launched launched;
			};
		};
	};
};

static_assert(sizeof(struct batoni_op) <= 192 &&
                      offsetof(struct batoni_op, launched.came) ==
                              offsetof(struct batoni_op, group_of),
              "requests stay small");

/* Whoever links an operation into a list, or takes it off one, says so: that it is in no other list is
 * checked where assertions are compiled in.  The byte is written by the thread that may write `next`. */
static inline void
batoni_op_list_in(struct batoni_op *op, enum batoni_listed list)
{
#ifndef NDEBUG
	assert(op->listed == BATONI_UNLISTED);
	op->listed = (uint8_t)list;
#else
	(void)op;
	(void)list;
#endif
}

static inline void
batoni_op_list_out(struct batoni_op *op, enum batoni_listed list)
{
#ifndef NDEBUG
	assert(op->listed == list);
	op->listed = BATONI_UNLISTED;
#else
	(void)op;
	(void)list;
#endif
}

/* Communication: what is armed, issued and ended through a table.  The others are
 * points on streams. */
static inline bool
batoni_is_transfer(const struct batoni_op *op)
{
	return BATONI_TRANSFERS >> batoni_get(op->kind) & 1u;
}

/* The group that the operation is a member of, or NULL. */
static inline struct batoni_op *
batoni_op_group(const struct batoni_op *op)
{
	struct batoni_op *group = batoni_get(op->group_of);

	/* A launch has a number there. */
	return __builtin_expect(!group, 1) || batoni_is_transfer(op) ? group
	                                                             : NULL;
}

/* Have all members of the group or launch ended? */
static inline bool
batoni_op_is_settled(const struct batoni_op *op)
{
	return op->tally.ended == op->tally.members;
}

/* Its state, for those that do not know whether it is still the operation that they have seen: another
 * thread may begin it anew. */
static inline enum batoni_op_state
batoni_op_state(const struct batoni_op *op)
{
	return (enum batoni_op_state)__atomic_load_n(&op->state,
	                                             __ATOMIC_ACQUIRE);
}

/* A reader (see above): is what it has loaded since it loaded `word` the
 * operation's own? */
static inline bool
batoni_op_is_still(const struct batoni_op *op, uint64_t word)
{
	batoni_fence(memory_order_acquire);
	return ((atomic_load_explicit(&op->word, memory_order_relaxed) ^ word) >>
	        32) == 0;
}

/* Signals, puts and waits: the one-sided layer's. */
static inline bool
batoni_is_onesided_kind(unsigned kind)
{
	return BATONI_ONESIDED >> kind & 1u;
}

#endif
