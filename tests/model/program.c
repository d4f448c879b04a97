/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs: made from a seed, printed as a list of calls.  A program has a temper of
 * its own (how much is detached, how often something is cancelled), so that some
 * seeds build long queues and others end early.
 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#define TICK_NS INT64_C(1000003)

static uint64_t
next_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static int
lower(uint64_t *state, int n)
{
	return (int)(next_random(state) % (uint64_t)n);
}

static bool
percent(uint64_t *state, int n)
{
	return lower(state, 100) < n;
}

struct temper {
	int weights[STEP_KINDS];
	int detached, unobserved, queued, deadline, raced, bursts;
	int lists; /* of the messages */
	int any;   /* of the messages, on TAG_ANY */
	int probes;  /* of the receives: that they are a probe, or a receive of what one has found */
	int any_tag; /* of the receives on it, of any tag; then all messages are on it */
	int sizes; /* how many of those in fill */
};

static struct temper
temper_of(uint64_t *state, enum replay_mode mode)
{
	bool async = mode >= MODE_ASYNC;
	bool deadlines = !async;
	struct temper temper = {
		.weights = {
			[STEP_SEND] = 10 + lower(state, 30),
			[STEP_RECV] = 10 + lower(state, 30),
			[STEP_SIGNAL] = lower(state, 15),
			[STEP_GET] = lower(state, 8),
			[STEP_PUT] = lower(state, 15),
			[STEP_FLUSH] = lower(state, 6),
			[STEP_WAIT] = lower(state, 15),
			[STEP_RECORD] = lower(state, 8),
			[STEP_JOIN] = lower(state, 10),
			[STEP_GROUP_BEGIN] = lower(state, 8),
			[STEP_GROUP_END] = 0,
			[STEP_REFUSED] = lower(state, 3),
			[STEP_CANCEL] = lower(state, 20),
			[STEP_RELEASE] = lower(state, 20),
			[STEP_ADVANCE] = deadlines ? lower(state, 8) : 0,
			[STEP_ABORT] = percent(state, 10),
			[STEP_BREAK] = percent(state, 5),
			[STEP_FAULT] = async && mode != MODE_CUDA
			                       ? lower(state, 4)
			                       : 0,
		},
		.detached = lower(state, 100),
		.unobserved = lower(state, 20),
		.queued = lower(state, 50),
		.deadline = deadlines ? lower(state, 50) : 0,
		.raced = lower(state, 60),
		.bursts = percent(state, 50) ? lower(state, 4) : 0,
		/* Without long messages more calls can race: see replay.c. */
		.sizes = percent(state, 50) ? 6 : 5,
		.lists = lower(state, 3) * 50,
		/* (Not drawn: the programs of older seeds stay what they are, but for these messages.) */
		.any = mode == MODE_STREAM ? 0 : (int)(*state % 5) * 15,
		/* Where messages are staged, some found ones have ended their sends. */
		.probes = async || *state / 20 % 3 ? 0 : 60,
	};

	if (mode != MODE_STREAM && *state / 5 % 4 == 0) {
		temper.any = 100;
		temper.any_tag = 50;
		temper.bursts = 0;
	}

	if (mode == MODE_STREAM) {
		temper.weights[STEP_SIGNAL] = temper.weights[STEP_PUT] = 0;
		temper.weights[STEP_GET] = temper.weights[STEP_FLUSH] = 0;
		temper.weights[STEP_WAIT] = temper.weights[STEP_CANCEL] = 0;
		temper.raced = 0;
	}
	return temper;
}

static enum step_kind
pick(uint64_t *state, const int weights[STEP_KINDS], int kinds)
{
	int sum = 0, at;

	for (int i = 0; i < kinds; i++)
		sum += weights[i];
	at = lower(state, sum);
	for (int i = 0; i < kinds; i++) {
		at -= weights[i];
		if (at < 0)
			return (enum step_kind)i;
	}
	return STEP_SEND;
}

static void
fill_step(struct step *step, int number, uint64_t *state,
          const struct temper *temper, int ranks)
{
	static const size_t sizes[] = { 0, 1, 8, 64, 64, BYTES_MAX };

	step->rank = lower(state, ranks);
	step->peer = lower(state, ranks);
	/* Mostly of as many, so that many agree. */
	if (step->kind <= STEP_RECV && percent(state, temper->lists))
		step->tensors = percent(state, 75)
		                        ? 2
		                        : 1 + lower(state, TENSORS_MAX);
	step->open = percent(state, 50);
	step->tag = percent(state, 75) ? 0 : lower(state, TAGS);
	step->signal = percent(state, 75) ? 0 : lower(state, SIGNALS);
	step->stream = lower(state, STREAMS);
	step->bytes = sizes[lower(state, temper->sizes)];
	if (step->kind > STEP_RECV && step->bytes > PUT_BYTES_MAX)
		step->bytes = PUT_BYTES_MAX;
	step->detached = percent(state, temper->detached);
	step->unobserved = percent(state, temper->unobserved);
	step->queued = percent(state, temper->queued);
	step->target = number ? lower(state, number) : 0;
	step->raced = percent(state, temper->raced);
	step->units = 1 + lower(state, 4);
	step->silent = percent(state, 30);
	step->all = percent(state, 30);
	step->counts = percent(state, 30);
	/* No two deadlines fall together: which of two waits ends first would be
	 * nobody's promise. */
	if (step->kind == STEP_ADVANCE)
		step->timeout_ns = (1 + lower(state, 20)) * TICK_NS;
	else if (percent(state, temper->deadline) && step->kind <= STEP_WAIT)
		step->timeout_ns = (1 + lower(state, 40)) * TICK_NS +
		                   number * INT64_C(4099);
	step->desc_count = 1 + lower(state, DESCS_MAX);
	for (int i = 0; i < step->desc_count; i++) {
		step->descs[i].units = 1 + lower(state, 2);
		step->descs[i].peer = lower(state, ranks);
		step->descs[i].signal = percent(state, 75) ? 0 : lower(state, SIGNALS);
		step->descs[i].context = percent(state, 75) ? 0 : lower(state, CONTEXTS);
	}
}

/* What is being made. */
struct making {
	struct program *program;
	struct temper temper;
	uint64_t state;
	/* By stream, for bursts; 0 otherwise: the open group, and members to come. */
	struct step *begin[STREAMS];
	int left[STREAMS];
};

/* A join, a cancel or a release of something that is there. */
static void
aim(struct making *m, struct step *step, int number)
{
	for (int tries = 0; tries < 8 && step->target > 0 &&
	                    !step_is_operation(&m->program->steps[step->target]);
	     tries++)
		step->target = lower(&m->state, number);
}

/* What a stream-issued transport has: no tags, no messages to oneself, one length.  The
 * lanes of a burst have pairs of ranks of their own. */
static void
make_plain(struct making *m, struct step *step, int lane, bool burst)
{
	static const int pairs[STREAMS][2] = { { 0, 1 }, { 1, 2 }, { 0, 2 } };
	int ranks = m->program->ranks;
	bool turned = percent(&m->state, 50);

	step->tag = 0;
	step->bytes = 8;
	step->tensors = 0;
	if (burst && m->begin[lane])
		turned = step->rank == pairs[lane][1];
	if (!burst) {
		step->peer = (step->rank + 1 + lower(&m->state, ranks - 1)) % ranks;
	} else if (pairs[lane][1] < ranks) {
		step->rank = pairs[lane][turned];
		step->peer = pairs[lane][!turned];
	} else if (step->kind != STEP_JOIN) {
		step->kind = STEP_RECORD;
	}
}

/* Some messages are on TAG_ANY, with receives that name no rank or the only one there is. */
static void
make_any(const struct making *m, struct step *step)
{
	uint64_t own = m->state ^ UINT64_C(0x5851f42d4c957f2d);

	if (step->kind > STEP_RECV || !percent(&own, m->temper.any))
		return;
	step->tag = TAG_ANY;
	step->any = step->kind == STEP_RECV && percent(&own, 60);
	step->any_tag = step->kind == STEP_RECV && percent(&own, m->temper.any_tag);
	step->peer = step->kind == STEP_RECV
	                     ? model_source(m->program, step->rank)
	                     : model_target(m->program, step->rank);
}

/* The last step of this kind before the one with this number, or NULL. */
static const struct step *
step_before(const struct making *m, int number, enum step_kind kind)
{
	while (--number >= 0)
		if (m->program->steps[number].kind == kind)
			return &m->program->steps[number];
	return NULL;
}

/* Some receives are probes, mostly of a recent send; and others are of what the last one has found, mostly of its form. */
static void
make_probe(const struct making *m, struct step *step, int number)
{
	uint64_t own = m->state ^ UINT64_C(0x2545f4914f6cdd1d);
	bool probes = percent(&own, 55), alike = percent(&own, 80);
	const struct step *before;

	if (step->kind != STEP_RECV || !percent(&own, m->temper.probes))
		return;
	before = step_before(m, number - (probes ? lower(&own, 4) : 0),
	                     probes ? STEP_SEND : STEP_PROBE);
	if (probes)
		step->kind = STEP_PROBE;
	if (!before)
		return;
	if (!probes)
		step->found = (int)(before - m->program->steps) + 1;
	if (probes && !alike)
		return;
	step->rank = probes ? before->peer : before->rank;
	step->peer = probes ? before->rank : before->peer;
	step->tag = before->tag;
	if (step->tag != TAG_ANY || !probes)
		step->any = step->any_tag = false;
	if (alike) {
		step->tensors = before->tensors;
		step->bytes = before->bytes;
	}
}

/* Of the thread with this lane. */
static void
make_step(struct making *m, int number, int lane, int kinds, bool burst)
{
	struct step *step = &m->program->steps[number];
	struct step *begin = m->begin[lane];

	if (begin && kinds > STEP_RECORD)
		kinds = STEP_RECORD;
	step->kind = pick(&m->state, m->temper.weights, kinds);
	if (begin && m->left[lane] == 0)
		step->kind = percent(&m->state, 15) ? STEP_ABANDON
		                                    : STEP_GROUP_END;
	else if (begin && percent(&m->state, 2))
		step->kind = STEP_REFUSED;
	fill_step(step, number, &m->state, &m->temper, m->program->ranks);
	aim(m, step, number);
	if (begin) {
		step->rank = begin->rank;
		step->detached = begin->detached;
		m->left[lane]--;
	}
	if (m->program->issued)
		make_plain(m, step, lane, burst);
	else if (!burst)
		make_any(m, step);
	if (!burst && !begin)
		make_probe(m, step, number);
	if (step->kind == STEP_GROUP_BEGIN) {
		m->begin[lane] = step;
		m->left[lane] = 1 + lower(&m->state, 5);
	} else if (step->kind == STEP_GROUP_END || step->kind == STEP_ABANDON) {
		m->begin[lane] = NULL;
	}
}

/* Threads that call at the same time use streams, tags and contexts of their own, so
 * that their order does not matter.  A group that is open at the end of a burst is left
 * to the exit of its thread.  Returns the step after it. */
static int
make_burst(struct making *m, int first)
{
	int end = first + 4 + lower(&m->state, 24);

	for (int i = first; i < end && i < m->program->count; i++) {
		struct step *step = &m->program->steps[i];
		int lane = lower(&m->state, STREAMS);

		make_step(m, i, lane, STEP_GROUP_BEGIN + 1, true);
		step->burst = first + 1;
		step->stream = lane;
		step->tag = m->program->issued ? 0 : lane;
		for (int d = 0; d < step->desc_count; d++)
			step->descs[d].context = lane;
		if (step->kind == STEP_JOIN && step->target >= first &&
		    m->program->steps[step->target].stream != lane)
			step->kind = STEP_RECORD;
	}
	for (int i = 0; i < STREAMS; i++)
		m->begin[i] = NULL;
	return end < m->program->count ? end : m->program->count;
}

/* What the call that races is about: what it cancels, or something that is pending with
 * some luck. */
static const struct step *
contested(struct making *m, int number)
{
	const struct step *step = &m->program->steps[number];
	const struct step *target;

	if (step->kind == STEP_CANCEL)
		return &m->program->steps[step->target];
	for (int back = 1; back <= 12 && back <= number; back++) {
		target = &m->program->steps[number - back];
		if ((target->kind <= STEP_RECV || target->kind == STEP_WAIT) &&
		    (step->kind == STEP_ADVANCE ? target->timeout_ns > 0
		                                : target->rank == step->rank) &&
		    percent(&m->state, 50))
			return target;
	}
	return NULL;
}

/* Turn the step into one that would end the target. */
static void
oppose(struct step *step, const struct step *target)
{
	step->found = 0;
	if (target->kind == STEP_WAIT) {
		step->kind = STEP_SIGNAL;
		step->rank = target->descs[0].peer;
		step->peer = target->rank;
		step->signal = target->descs[0].signal;
		step->tag = target->descs[0].context;
	} else if (target->kind <= STEP_RECV) {
		step->kind = target->kind == STEP_SEND ? STEP_RECV : STEP_SEND;
		step->tensors = target->tensors;
		step->any = step->any_tag = false;
		step->rank = target->peer;
		step->peer = target->rank;
		step->tag = target->tag;
	}
	if (step->bytes > 64)
		step->bytes = 64;
	step->timeout_ns = 0;
}

/* A step, and the one that it races. */
static int
make_steps(struct making *m, int number)
{
	struct step *step = &m->program->steps[number];
	const struct step *target;

	make_step(m, number++, 0, STEP_KINDS, false);
	if (!step->raced || number == m->program->count ||
	    (step->kind != STEP_CANCEL && step->kind != STEP_ADVANCE &&
	     step->kind != STEP_ABORT && step->kind != STEP_BREAK))
		return number;
	/* The race is for the next deadline, however far that is. */
	if (step->kind == STEP_ADVANCE)
		step->timeout_ns = 45 * TICK_NS;
	target = contested(m, number - 1);
	make_step(m, number, 0, STEP_RECORD, false);
	if (target)
		oppose(&m->program->steps[number], target);
	return number + 1;
}

/* Puts and signals may be on streams, where nothing takes them back. */
static bool
puts_are_the_engines(void)
{
	const char *puts = getenv("BATON_PUTS");

	return puts && strcmp(puts, "engine") == 0;
}

static bool
may_be_on_stream(const struct step *step)
{
	return step->kind >= STEP_SIGNAL && step->kind <= STEP_FLUSH;
}

static void
spare_puts(struct program *program)
{
	for (int i = 0; i < program->count; i++) {
		struct step *step = &program->steps[i];

		if (may_be_on_stream(step))
			step->timeout_ns = 0;
		if (step->kind == STEP_CANCEL &&
		    may_be_on_stream(&program->steps[step->target]))
			step->kind = STEP_RELEASE;
		/* It leaves open whether they signal. */
		if (step->kind == STEP_ABORT || step->kind == STEP_BREAK)
			step->kind = STEP_RECORD;
	}
}

void
program_make(struct program *program, uint64_t seed, enum replay_mode mode)
{
	struct making m = { .program = program, .state = seed };
	bool async = mode >= MODE_ASYNC;
	int i = 0;

	m.temper = temper_of(&m.state, mode);
	*program = (struct program){
		.seed = seed,
		.ranks = mode == MODE_STREAM ? 2 + lower(&m.state, RANKS_MAX - 1)
		                             : 1 + lower(&m.state, RANKS_MAX),
		.count = 20 + lower(&m.state, STEPS_MAX - 20),
		.deadlines = !async,
		.faults = async && mode != MODE_CUDA,
		.issued = mode == MODE_STREAM,
		.split = mode != MODE_STREAM && seed % 5 == 0,
		.sick = async && mode != MODE_CUDA && percent(&m.state, 5),
	};
	while (i < program->count) {
		if (!m.begin[0] && percent(&m.state, m.temper.bursts))
			i = make_burst(&m, i);
		else
			i = make_steps(&m, i);
	}
	if (mode == MODE_CUDA && !puts_are_the_engines())
		spare_puts(program);
}

static const char *const names[STEP_KINDS] = {
	"send", "recv", "signal", "get", "put", "flush", "wait", "record",
	"stream_wait", "group_begin", "group_end", "abandon", "refused", "cancel", "release", "advance",
	"abort", "break", "fault", "probe"
};

static void
print_step(const struct step *step, int number, FILE *file)
{
	fprintf(file, "  %3d  rank %d  %-11s", number, step->rank,
	        names[step->kind]);
	if (step->kind == STEP_FAULT)
		fprintf(file, " at the device's enqueue %d", step->units);
	if (step->kind <= STEP_PUT || step->kind == STEP_PROBE)
		fprintf(file, " %speer %d, %s%s %d", step->any ? "any, " : "",
		        step->peer, step->any_tag ? "any " : "",
		        step->kind > STEP_RECV && step->kind <= STEP_PUT
		                ? "context"
		                : "tag",
		        step->tag);
	if (step->found)
		fprintf(file, ", found by %d", step->found - 1);
	if (step->kind == STEP_SIGNAL || (step->kind == STEP_PUT && !step->silent))
		fprintf(file, ", signal %d", step->signal);
	if (step->kind == STEP_SIGNAL)
		fprintf(file, " x %d", step->units);
	if (step->kind == STEP_FLUSH && !step->all)
		fprintf(file, " of peer %d", step->peer);
	if (step->kind == STEP_WAIT && step->counts)
		fprintf(file, " for the value %d of the first of", step->units - 1);
	if (step->kind <= STEP_PUT && step->kind != STEP_SIGNAL)
		fprintf(file, ", %zu bytes", step->bytes);
	if (step->kind <= STEP_RECV && step->tensors > 0)
		fprintf(file, " in %d tensors%s", step->tensors,
		        step->kind == STEP_RECV && step->open ? ", open" : "");
	for (int i = 0; step->kind == STEP_WAIT && i < step->desc_count; i++)
		fprintf(file, " %d x (peer %d, signal %d, context %d)",
		        step->descs[i].units, step->descs[i].peer,
		        step->descs[i].signal, step->descs[i].context);
	if (step->kind == STEP_CANCEL || step->kind == STEP_RELEASE ||
	    step->kind == STEP_JOIN)
		fprintf(file, " of %d", step->target);
	if (step->kind <= STEP_JOIN)
		fprintf(file, ", stream %d", step->stream);
	if (step->kind <= STEP_WAIT || step->kind == STEP_GROUP_BEGIN)
		fprintf(file, "%s", step->detached ? ", detached" : "");
	if (step->kind <= STEP_RECORD)
		fprintf(file, "%s%s", step->unobserved ? ", no request" : "",
		        step->queued ? ", queue" : "");
	if (step->burst)
		fprintf(file, ", burst %d", step->burst);
	if (step->raced && step->kind >= STEP_CANCEL)
		fprintf(file, ", races the next");
	if (step->timeout_ns)
		fprintf(file, ", %s %lld ns",
		        step->kind == STEP_ADVANCE ? "by" : "deadline",
		        (long long)step->timeout_ns);
	fprintf(file, "\n");
}

void
program_print(const struct program *program, FILE *file)
{
	fprintf(file, "seed %llu, %d ranks%s%s:\n",
	        (unsigned long long)program->seed, program->ranks,
	        program->split ? ", split off others" : "",
	        program->sick ? ", the device breaks at the end" : "");
	for (int i = 0; i < program->count; i++) {
		if (!program->steps[i].left_out)
			print_step(&program->steps[i], i, file);
	}
}
