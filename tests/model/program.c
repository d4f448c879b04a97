/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs: made from a seed, printed as a list of calls.  A program has a temper of
 * its own (how much is detached, how often something is cancelled), so that some
 * seeds build long queues and others end early.
 */
#include "model.h"

#define TICK_NS INT64_C(1000003)

static uint64_t
next(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static int
below(uint64_t *state, int n)
{
	return (int)(next(state) % (uint64_t)n);
}

static bool
percent(uint64_t *state, int n)
{
	return below(state, 100) < n;
}

struct temper {
	int weights[STEP_KINDS];
	int detached, unobserved, queued, deadline;
};

static struct temper
temper_of(uint64_t *state, bool deadlines)
{
	struct temper temper = {
		.weights = {
			[STEP_SEND] = 10 + below(state, 30),
			[STEP_RECV] = 10 + below(state, 30),
			[STEP_SIGNAL] = below(state, 15),
			[STEP_PUT] = below(state, 15),
			[STEP_WAIT] = below(state, 15),
			[STEP_RECORD] = below(state, 8),
			[STEP_JOIN] = below(state, 10),
			[STEP_GROUP_BEGIN] = below(state, 8),
			[STEP_GROUP_END] = 0,
			[STEP_REFUSED] = below(state, 3),
			[STEP_CANCEL] = below(state, 20),
			[STEP_RELEASE] = below(state, 20),
			[STEP_ADVANCE] = deadlines ? below(state, 8) : 0,
			[STEP_ABORT] = percent(state, 10),
		},
		.detached = below(state, 100),
		.unobserved = below(state, 20),
		.queued = below(state, 50),
		.deadline = deadlines ? below(state, 50) : 0,
	};

	return temper;
}

static enum step_kind
pick(uint64_t *state, const int weights[STEP_KINDS], int kinds)
{
	int sum = 0, at;

	for (int i = 0; i < kinds; i++)
		sum += weights[i];
	at = below(state, sum);
	for (int i = 0; i < kinds; i++) {
		at -= weights[i];
		if (at < 0)
			return (enum step_kind)i;
	}
	return STEP_SEND;
}

static void
fill(struct step *step, int number, uint64_t *state,
     const struct temper *temper, int ranks)
{
	static const size_t sizes[] = { 0, 1, 8, 64, 64, BYTES_MAX };

	step->rank = below(state, ranks);
	step->peer = below(state, ranks);
	step->tag = percent(state, 75) ? 0 : below(state, TAGS);
	step->signal = percent(state, 75) ? 0 : below(state, SIGNALS);
	step->stream = below(state, STREAMS);
	step->bytes = sizes[below(state, 6)];
	if (step->kind == STEP_PUT && step->bytes > PUT_BYTES_MAX)
		step->bytes = PUT_BYTES_MAX;
	step->detached = percent(state, temper->detached);
	step->unobserved = percent(state, temper->unobserved);
	step->queued = percent(state, temper->queued);
	step->target = number ? below(state, number) : 0;
	/* No two deadlines fall together: which of two waits ends first would be
	 * nobody's promise. */
	if (step->kind == STEP_ADVANCE)
		step->timeout_ns = (1 + below(state, 20)) * TICK_NS;
	else if (percent(state, temper->deadline) && step->kind <= STEP_WAIT)
		step->timeout_ns = (1 + below(state, 40)) * TICK_NS +
		                   number * INT64_C(4099);
	step->desc_count = 1 + below(state, DESCS_MAX);
	for (int i = 0; i < step->desc_count; i++) {
		step->descs[i].units = 1 + below(state, 2);
		step->descs[i].peer = below(state, ranks);
		step->descs[i].signal = percent(state, 75) ? 0 : below(state, SIGNALS);
		step->descs[i].context = percent(state, 75) ? 0 : below(state, CONTEXTS);
	}
}

void
program_make(struct program *program, uint64_t seed, bool deadlines)
{
	uint64_t state = seed;
	struct temper temper = temper_of(&state, deadlines);
	int left = 0; /* members still to come of the open group */
	struct step *begin = NULL;

	*program = (struct program){
		.seed = seed,
		.ranks = 1 + below(&state, RANKS_MAX),
		.count = 20 + below(&state, STEPS_MAX - 20),
		.deadlines = deadlines,
	};
	for (int i = 0; i < program->count; i++) {
		struct step *step = &program->steps[i];

		step->kind = pick(&state, temper.weights,
		                  begin ? STEP_RECORD : STEP_KINDS);
		if (begin && left == 0)
			step->kind = STEP_GROUP_END;
		else if (begin && percent(&state, 2))
			step->kind = STEP_REFUSED;
		fill(step, i, &state, &temper, program->ranks);
		/* A cancel or a release of something that is there. */
		for (int tries = 0; tries < 8 && step->target > 0 &&
		     !step_is_operation(&program->steps[step->target]);
		     tries++)
			step->target = below(&state, i);
		if (begin) {
			step->rank = begin->rank;
			step->detached = begin->detached;
			left--;
		}
		if (step->kind == STEP_GROUP_BEGIN) {
			begin = step;
			left = 1 + below(&state, 5);
		} else if (step->kind == STEP_GROUP_END) {
			begin = NULL;
		}
	}
}

static const char *const names[STEP_KINDS] = {
	"send", "recv", "signal", "put", "wait", "record", "stream_wait",
	"group_begin", "group_end", "refused", "cancel", "release", "advance",
	"abort"
};

static void
print_step(const struct step *step, int number, FILE *file)
{
	fprintf(file, "  %3d  rank %d  %-11s", number, step->rank,
	        names[step->kind]);
	if (step->kind <= STEP_PUT)
		fprintf(file, " peer %d, %s %d", step->peer,
		        step->kind <= STEP_RECV ? "tag" : "context", step->tag);
	if (step->kind == STEP_SIGNAL || step->kind == STEP_PUT)
		fprintf(file, ", signal %d", step->signal);
	if (step->kind <= STEP_RECV || step->kind == STEP_PUT)
		fprintf(file, ", %zu bytes", step->bytes);
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
	if (step->timeout_ns)
		fprintf(file, ", %s %lld ns",
		        step->kind == STEP_ADVANCE ? "by" : "deadline",
		        (long long)step->timeout_ns);
	fprintf(file, "\n");
}

void
program_print(const struct program *program, FILE *file)
{
	fprintf(file, "seed %llu, %d ranks:\n",
	        (unsigned long long)program->seed, program->ranks);
	for (int i = 0; i < program->count; i++) {
		if (!program->steps[i].left_out)
			print_step(&program->steps[i], i, file);
	}
}
