/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: calls that are recorded once and launched many times (plan.c, plan_launch.c). */
#ifndef BATONI_PLAN_H
#define BATONI_PLAN_H

#include "core.h"
#include "scope.h"

/* What a plan asks of a recorded call. */
struct batoni_plan_entry_ops {
	/* Enqueue the operation as the call does, without the checks of what cannot change.  The
	 * payload is as it was recorded. */
	enum baton_status (*replay)(struct baton_comm *comm, const void *payload);
	/* The call is a send or receive, and the payload is a batoni_recorded. */
	bool message;
	/* The plan is destroyed; NULL: nothing to do. */
	void (*forget)(const void *payload);
};

/* The plan that this thread records on comm, or NULL. */
struct baton_plan *batoni_plan_recorded(const struct baton_comm *comm);
/* The call was found good, up to BATONI_RECORDED.  Keep a copy of it: n bytes at payload, and
 * more_n at more, which lie behind them, aligned to 16.  OK, NOMEM (the plan is void). */
enum baton_status batoni_plan_add(const char *call, struct baton_plan *plan,
                                  const struct batoni_plan_entry_ops *ops,
                                  baton_stream stream, const void *payload,
                                  size_t n, const void *more, size_t more_n);
static inline const void *
batoni_plan_entry_more(const void *payload, size_t n)
{
	return (const char *)payload + ((n + 15) & ~(size_t)15);
}

/* What a call returns within, whose operation would be enqueued now, but is recorded: its operation
 * is given back as if it had been refused.  No call of the program returns it. */
#define BATONI_RECORDED BATON_PENDING

/* These: the driver. */
/* One of the launch's operations is armed. */
void batoni_launch_armed(struct batoni_op *launch);
/* End the launch if all of its operations have ended. */
void batoni_launch_settle(struct batoni_op *launch);
/* One of its operations ends.  If it is the last, the launch ends. */
void batoni_launch_member_ended(const struct batoni_op *op,
                                enum baton_status status, bool lent);

/* ---- between plan.c, plan_need.c, plan_launch.c and plan_drive.c ---- */

#define BATONI_NONE_FAILED UINT32_MAX

/* This operation of the launch has failed; the first of the plan is kept.  The driver. */
void batoni_launch_note_failure(struct batoni_op *launch, uint32_t index,
                                enum baton_status status, unsigned kind,
                                const struct batoni_transfer *transfer);

struct batoni_plan_entry {
	const struct batoni_plan_entry_ops *ops; /* NULL: a group begins or ends */
	baton_stream stream;
	uint32_t bytes; /* of the entry with its payload: a multiple of 16 */
	bool begins;    /* a group */
};

/* What a launch puts on one stream (plan_need.c). */
struct batoni_plan_stream {
	baton_stream stream;
	struct batoni_need need;
	uint32_t item_of, call_of; /* the last group that has one there, by its number; 0: none */
};

struct baton_plan {
	struct baton_comm *comm;
	struct batoni_scope recording; /* of the thread that records it, until its end */
	/* From its end on it does not change. */
	unsigned char *entries;
	size_t bytes, room;
	uint32_t operations, groups, calls; /* calls: operations in no group, and groups */
	/* What a launch needs: on streams (of a device that is bounded), and for its lists. */
	struct batoni_plan_stream *streams;
	uint32_t streams_n;
	uint64_t list_units;
	bool direct; /* plan_direct.c */
	/* Of the group that is open in the recording. */
	uint32_t members;
	unsigned detached;
	struct batoni_handle handle;
};

static inline const struct batoni_plan_entry *
batoni_plan_at(const struct baton_plan *plan, size_t at)
{
	return (const struct batoni_plan_entry *)(const void *)(plan->entries + at);
}

/* The payload of an entry begins there. */
#define BATONI_PLAN_ENTRY_BYTES ((sizeof(struct batoni_plan_entry) + 15) & ~(size_t)15)

static inline const void *
batoni_plan_entry_payload(const struct batoni_plan_entry *entry)
{
	return (const char *)entry + BATONI_PLAN_ENTRY_BYTES;
}

/* ---- plan_need.c ---- */

/* The operation is in the recording from here on.  False: no memory. */
bool batoni_plan_count(struct baton_plan *plan, const struct batoni_op *op);
/* Can it be launched, when nothing else is pending?  OK, INVALID. */
enum baton_status batoni_plan_fits(const char *call,
                                   const struct baton_plan *plan);
/* Is there room for a launch on all of its streams now?  Within batoni_enqueuing_begin and end.  OK,
 * AGAIN, CUDA. */
enum baton_status batoni_plan_room(const struct baton_plan *plan);

/* ---- plan_direct.c ---- */

/* A plan that has been recorded: may its launches take the fast path? */
bool batoni_plan_is_direct(const struct baton_plan *plan);
/* Do all of the launch, but for its options, which it has.  False: nothing has been done. */
bool batoni_launch_directly(struct batoni_op *launch,
                            const struct baton_plan *plan);
/* From here on the operation is that of a launch of so many operations; those that are adopted later
 * are counted there. */
void batoni_launch_expects(struct batoni_op *launch, uint32_t members);

#endif
