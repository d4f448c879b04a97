/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations in words, for sentences and dumps. */
#ifndef BATONI_DESCRIBE_H
#define BATONI_DESCRIBE_H

#include "core.h"

#define BATONI_DESCRIBE_BYTES 384

/* What an operation was at one time. */
struct batoni_view {
	const struct batoni_op *op;
	uint64_t word;
	unsigned kind, state, flags;
	int peer, tag;
	size_t bytes;
	uint32_t slot_direction; /* transfer.slot_direction, which has it */
	baton_stream stream;
	void *buffer;
	const struct batoni_op *group_of;
	uint32_t placed_ms; /* or, before it was placed, made */
	uint32_t members, ended, streams_left; /* of a group or a launch */
};

/* Fill *view_p.  A caller that does not hold the operation (batoni_op_hold, or by its part in
 * the operation's life) compares the word's generation afterwards.  The fields of one whose
 * state is NEW may still be written, unless the caller does that. */
void batoni_op_view(const struct batoni_op *op, struct batoni_view *view_p);

/* A field, by one load. */
#define BATONI_VIEW_LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
/* The fields of a transfer, for kinds that have more. */
void batoni_view_transfer(const struct batoni_op *op, struct batoni_view *view);
/* Copy the counts of members of a group or launch. */
void batoni_view_tally(const struct batoni_op *op, struct batoni_view *view);

/* Say what the operation is: "send to peer 1, tag 3, 64 bytes". details: what the one-sided layer
 * says of it, or NULL. */
void batoni_view_what(const struct batoni_view *view, const char *details,
                      char *text, size_t size);
/* Say what the operation waits for: "a message of that peer and tag, or its bytes to move". held:
 * the caller drives, and what the operation names is there. */
void batoni_view_waits(const struct batoni_view *view, bool held, char *text,
                       size_t size);
/* Say all of it: "WHAT, stream 0x7f02, issued, age 5.021 s, waits for WAITS". */
void batoni_view_line(const struct batoni_view *view, const char *what,
                      const char *waits, char *text, size_t size);
/* The caller holds the operation.  The short form; the long form. */
void batoni_op_describe(const struct batoni_op *op, char *text, size_t size);
#define BATONI_END_BYTES 192u
/* The same of an operation that has ended: a launch of a plan also names the operation that
 * failed. */
void batoni_op_describe_end(const struct batoni_op *op, char *text, size_t size);
void batoni_op_describe_fully(const struct batoni_op *op, char *text,
                              size_t size);

/* The age of the operation (batoni_op_age_ms), as the view has it. */
uint32_t batoni_view_age_ms(const struct batoni_view *view);
/* The CLOCK_MONOTONIC time of its deadline, or 0: none runs.  The caller holds the operation. */
uint64_t batoni_op_deadline_ns(const struct batoni_op *op);

/* How long ago it was placed, or, before that, made. */
uint32_t batoni_op_age_ms(const struct batoni_op *op);

#endif
