/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kinds of operations: what the core asks of each.
 *
 * An operation's kind is an index of batoni_kinds.  The core moves transfers by itself (a path carries
 * them; path.h has which), and asks a table for all else: how an operation that is no transfer is
 * placed, what happens when its stream reaches it, what its members tell it, and all texts.  The
 * table is in the file of its kind; the list of kinds is in ops/kinds.h, and the array beside the
 * list of leaves (parts.c), which alone knows them all.
 *
 * A plain send or receive calls none of this: slots are called for operations that are
 * no transfers, are in a group or in a launch, have a list, or end in an error.
 *
 * A slot that may be NULL says what happens then.  Slots are called by the driver, unless said.
 */
#ifndef BATONI_KIND_H
#define BATONI_KIND_H

#include "op.h"

#define BATONI_KINDS_MAX 32u

struct batoni_view;

/* What the sentence about a failed operation names. */
struct batoni_failed {
	unsigned kind; /* of the operation that failed; 0: none did */
	size_t came;   /* bytes of the message */
	char which[96]; /* which one of several operations it was, behind a comma; or "" */
};

/* Of a kind whose transfers may be lists of tensors: it is called for those alone
 * (BATONI_LOCATION_LIST). */
struct batoni_tensor_list_kind {
	/* The operation is armed: may it be issued?  False: it ends in INVALID. */
	bool (*may_issue)(const struct batoni_op *op);
	/* The operation ends in this status, and no thread has seen that yet.  lent: the path still has it. */
	void (*ended)(struct batoni_op *op, enum baton_status status, bool lent);
	/* The operation needs it no longer: what was lent is free, or it ends without a
	 * completion. */
	void (*give)(struct batoni_op *op);
};

/* Of a kind that is the `group_of` of its members. */
struct batoni_members_kind {
	/* A stream has reached the item of a member, its carrier. */
	void (*reached)(struct batoni_op *group, struct batoni_op *carrier);
	/* A member has ended, and all threads have been told; its slot may be another operation's. */
	void (*ended)(struct batoni_op *group);
};

/* Of a kind whose operation answers for operations that are PLANNED (batoni_launch_of): it has the
 * handle, the deadline and the status, and counts the bytes. */
struct batoni_launch_kind {
	/* One of them is armed. */
	void (*armed)(struct batoni_op *launch);
	/* One of the operations ends, and no thread has seen that yet. */
	void (*ends)(const struct batoni_op *op, enum baton_status status,
	             bool lent);
	/* The buffer that one of the operations has lent, which has ended, is given back. */
	void (*given_back)(struct batoni_op *launch);
};

struct batoni_kind {
	const char *name;  /* in sentences and dumps: "send" */
	const char *trace; /* of its ranges in a trace: "Send"; NULL: it has none */
	/* Why baton_cancel refuses it; NULL: it does not, or its path says why. */
	const char *why_no_cancel;
	enum batoni_direction direction; /* of a transfer */
	/* A point: it ends with its communicator.  (Others wait for their streams all the
	 * same.) */
	bool ends_broken;
	bool off_stream; /* it is on no stream */
	/* A point: it runs the program's function; its stream waits for another request there. */
	bool runs, joins;

	/* A new operation that is no transfer: it is counted, and the slot moves it on.  Points on
	 * streams have batoni_point_place.  NULL: a transfer; or it is never placed (claim.c). */
	void (*place)(struct batoni_op *op);
	/* The stream of an operation that is no transfer has reached its item: batoni_point_reached
	 * at the end.  NULL: it is on no stream. */
	void (*reached)(struct batoni_op *op);
	/* The operation was taken from engine.finish.  NULL: it ends in OK. */
	void (*finish)(struct batoni_op *op);
	/* End the operation early.  NULL: it ends as a transfer, or a point, that waits in a FIFO
	 * or on its stream. */
	void (*end_early)(struct batoni_op *op, enum baton_status status);
	/* The operation's communicator was left behind and is gone, and the stream has reached the
	 * operation now.  NULL: nothing is to be done. */
	void (*left_behind)(struct batoni_op *op);
	/* Any thread, which may not hold the operation: copy what this kind has in it, each field by one
	 * load (describe.h).  NULL: a transfer's fields. */
	void (*view)(const struct batoni_op *op, struct batoni_view *view);
	/* Any thread: what it is, as batoni_view_what.  NULL: its name. */
	void (*what)(const struct batoni_view *view, const char *details,
	             char *text, size_t size);
	/* Any thread: what it waits for, if this kind knows better than its state.  held: the
	 * caller drives, and what the operation names is there.  NULL: it does not. */
	bool (*waits)(const struct batoni_view *view, bool held, char *text,
	              size_t size);
	/* The caller holds the operation, which has failed; *failed_p is about the operation itself.
	 * NULL: it stays so. */
	void (*failed)(const struct batoni_op *op, struct batoni_failed *failed_p);
	/* The same: say why it has failed, if its path does not know that.  NULL: its path always
	 * knows. */
	bool (*explain)(const struct batoni_op *op, char *text, size_t size);

	/* NULL: it has none. */
	const struct batoni_tensor_list_kind *list;
	const struct batoni_members_kind *members;
	const struct batoni_launch_kind *launch;
};

/* parts.c; NULL: no kind has that number. */
extern const struct batoni_kind *const batoni_kinds[BATONI_KINDS_MAX];

static inline const struct batoni_kind *
batoni_kind_of(const struct batoni_op *op)
{
	return batoni_kinds[op->kind];
}

#endif
