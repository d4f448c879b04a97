/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model-based test of the engine.  A *program* is a list of calls, made from a
 * seed.  It is replayed against the library by one thread that plays all ranks,
 * and step by step against a reference model of docs/semantics.md.
 *
 * The model knows nothing of drivers, passes or copies.  It says what must have
 * happened once everything that can happen has: after each call it applies the
 * rules until nothing changes.  That state does not depend on the schedule, so the
 * same program must end alike whoever drives and however late a device is.
 *
 * program.c    makes, prints and shrinks programs
 * reference.c  the model
 * replay.c     runs a program against both and compares
 * main.c       seeds, processes, failures
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "baton.h"

enum {
	RANKS_MAX = 3,
	STREAMS = 3,
	TAGS = STREAMS,     /* in a burst each stream has its own */
	/* On this one receives may be from any rank.  Each rank gets messages there from one other (or
	 * itself) alone, model_source, so that it is no schedule's choice whose message is taken.  In some
	 * programs all messages are on this one, and receives may be of any tag too. */
	TAG_ANY = TAGS,
	CONTEXTS = STREAMS, /* also */
	SIGNALS = 2,
	STEPS_MAX = 160,
	DESCS_MAX = 2,
	BYTES_MAX = 20000,
	PUT_BYTES_MAX = 64, /* each source and context has its own part */
	TENSORS_MAX = 3     /* of a message that is a list */
};

enum step_kind {
	STEP_SEND,
	STEP_RECV,
	STEP_SIGNAL, /* of `units` */
	STEP_GET,
	STEP_PUT,
	STEP_FLUSH,  /* of the puts and gets of its stream to the peer, or to all */
	STEP_WAIT,
	STEP_RECORD,
	STEP_JOIN,        /* a stream waits for the request of `target` */
	STEP_GROUP_BEGIN,
	STEP_GROUP_END,
	STEP_ABANDON,     /* the group, in the place of its end */
	STEP_REFUSED,     /* a send to a peer that is not there */
	STEP_CANCEL,      /* target */
	STEP_RELEASE,     /* target */
	STEP_ADVANCE,     /* the clock */
	STEP_ABORT,
	STEP_BREAK,       /* the rank's transport fails */
	STEP_FAULT,       /* the units-th enqueue of the device from now on fails */
	STEP_PROBE,       /* of the messages that a receive of this peer and tag would meet */
	STEP_KINDS
};

/* One call.  What a kind does not need is there all the same, and unused. */
struct step {
	enum step_kind kind;
	bool left_out; /* by shrinking */
	bool detached;
	bool unobserved; /* no request is asked for */
	bool queued;     /* its completion goes to the rank's queue */
	bool raced;      /* made by a thread of its own, at the time of the next step */
	int burst;       /* steps of the same burst follow each other; those of a stream
	                    are made by a thread of their own.  0: none */
	int rank, peer, tag, stream, signal;
	size_t bytes;
	/* A message: 0: plain; else a list of so many tensors that have these bytes together
	 * (model_part).  A receive that is open declares no types and shapes, and has an arena
	 * of as many bytes. */
	int tensors;
	bool open;
	/* A receive: of what the probe of this step, less one, has found, whose peer and tag it has; 0: it names
	 * its own. */
	int found;
	bool any; /* a receive on TAG_ANY names no rank; peer is whose messages it gets */
	bool any_tag; /* a receive on TAG_ANY names no tag */
	bool silent;  /* a put without a signal */
	bool all;     /* a flush of puts to all */
	bool counts;  /* a wait for a value, `units` - 1, of its first counter */
	int64_t timeout_ns; /* of an operation; of STEP_ADVANCE: by how much */
	int target;         /* an earlier step */
	int units;          /* of STEP_FAULT and STEP_SIGNAL */
	int desc_count;
	struct {
		int units, peer, signal, context;
	} descs[DESCS_MAX];
};

struct program {
	uint64_t seed;
	int ranks, count;
	bool deadlines; /* steps may have some */
	bool faults;    /* the device may have some */
	bool issued;    /* the transport is stream-issued: see reference.c */
	bool split;     /* its communicators are split off others: see replay.c */
	bool sick;      /* at the end the device breaks */
	struct step steps[STEPS_MAX];
};

/* ---- reference.c ---- */

enum op_state {
	OP_NONE,    /* the step is no operation, was left out, or was refused */
	OP_GROUPED, /* its group is open */
	OP_QUEUED,
	OP_ARMED,
	OP_ISSUED,
	OP_ENDED,
	OP_VOID /* its group was */
};

struct op {
	enum op_state state;
	enum baton_status status;
	size_t bytes; /* of the completion */
	int partner;  /* the step that it has met, or, of a probe, the send that it has found; or -1 */
	bool held;    /* a send that a probe has found: nothing else meets it */
	bool taken;   /* a probe: a receive has its message */
	int group;    /* the step that began its group, or -1 */
	int64_t deadline;
	uint64_t issued; /* in this order */
	/* Stream-issued: its place among those of its source, destination and side, from
	 * 1 on, and whether its bytes have moved. */
	uint64_t number;
	bool met;
};

enum item_kind { ITEM_OP, ITEM_JOIN, ITEM_GROUP };

struct item {
	enum item_kind kind;
	int step; /* the operation, the join's target, the group's begin */
	bool reached;
};

struct model {
	const struct program *program;
	struct op ops[STEPS_MAX];
	struct {
		int count;
		struct item items[STEPS_MAX];
	} streams[STREAMS];
	enum baton_status broken[RANKS_MAX]; /* OK: it is not */
	int fault;      /* the enqueue of the device that fails; 0: none */
	uint64_t counters[RANKS_MAX][RANKS_MAX][SIGNALS][CONTEXTS]; /* target, source */
	unsigned char windows[RANKS_MAX][RANKS_MAX][CONTEXTS][PUT_BYTES_MAX];
	unsigned char got[STEPS_MAX][PUT_BYTES_MAX]; /* by STEP_GET */
	int64_t now;
	uint64_t issues;
	uint64_t numbers[RANKS_MAX][RANKS_MAX][2]; /* source, destination; recv */
	uint64_t met[RANKS_MAX][RANKS_MAX];
	int group; /* the step that began the open group, or -1 */
	enum baton_status refusal;
};

void model_init(struct model *model, const struct program *program);
/* Does the step do anything here?  Some make no sense where others were left out. */
bool model_applies(const struct model *model, int step);
/* Make the call; returns what it must return. */
enum baton_status model_step(struct model *model, int step);
/* The earliest deadline there is, or INT64_MAX. */
int64_t model_next_deadline(const struct model *model);
void model_advance(struct model *model, int64_t now);
enum baton_status model_end_group(struct model *model);
enum baton_status model_cancel(struct model *model, int step);
/* What the probe has found. */
void model_discard(struct model *model, int probe);
void model_break(struct model *model, int rank, enum baton_status status);
/* The thread that has begun the open group exits. */
void model_exit(struct model *model);
/* Can a program, whatever it does later, tell one from the other? */
bool model_equal(const struct model *a, const struct model *b);
bool model_is_pending(const struct model *model, int rank);
/* Let everything happen that can. */
void model_settle(struct model *model);
bool step_is_operation(const struct step *step);
/* The rank that sends to this one on TAG_ANY; and the one that this one sends to. */
int model_source(const struct program *program, int rank);
int model_target(const struct program *program, int rank);
/* The bytes of tensor i, below step->tensors. */
size_t model_part(const struct step *step, int i);
/* Where tensor i lies in an arena, and how many bytes the arena needs for those up to it. */
size_t model_offset(const struct step *step, int i, size_t *needed_p);
/* Byte i of the data of a send or put. */
unsigned char model_byte(int step, size_t i);

/* ---- program.c ---- */

enum replay_mode {
	MODE_CALLS,
	MODE_THREAD,
	MODE_ASYNC,
	MODE_STREAM,
	MODE_CUDA,
	MODES
};

void program_make(struct program *program, uint64_t seed, enum replay_mode mode);
void program_print(const struct program *program, FILE *file);

/* ---- replay.c ---- */

/* False, with a sentence on standard error, where the two differ. */
bool replay(const struct program *program, enum replay_mode mode);

#endif
