/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a step could take at best, measured without any overlap.
 *
 * Before each epoch all ranks meet and make some steps that only compute, then
 * some that only transfer; no message moves beside the first, and nothing is
 * computed beside the second.  From their medians follow
 *
 *   computing    the step's computations in the pipeline's order, with transfers
 *                that take no time.  Filling and draining the pipeline at each
 *                batch (its bubble) is in it: no transfer causes that.
 *   moving       all messages of the step, started at once
 *   best         the larger of the two
 *
 * and with the median of a run's steps the share of the transfers that it hides:
 *
 *   (computing + moving - step) / min(computing, moving)
 *
 * which is 0 when the step takes as long as both in turn, and 1 when it takes as
 * long as the best possible.  Only `step` depends on how the run overlaps.  A
 * transfer that slows the computation beside it makes the step longer, so that
 * the time it took from the computation does not count as hidden.
 */
#include <string.h>

#include "pipeline.h"

#define SAMPLES 3 /* of each before an epoch */

static int compare(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;

	return (one > other) - (one < other);
}

double median(double *values, size_t count)
{
	if (count == 0)
		return 0.0;
	qsort(values, count, sizeof(*values), compare);
	return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

/* ---- the two kinds of steps --------------------------------------------- */

/* Values of the size that the neighbours would send. */
static void fill(float *values, size_t count, float scale)
{
	uint64_t state = 1;

	for (size_t i = 0; i < count; i++)
		values[i] = scale * (float)(random_next(&state) >> 40) /
		            16777216.0f;
}

static void leave_neighbours(struct stage *stage)
{
	struct mlp *mlp = &stage->mlp;

	for (int slot = 0; slot < stage->options->micro_batches; slot++) {
		fill(mlp_input(mlp, slot), stage->activation_in.count, 1.0f);
		fill(mlp->gradient_in[slot], stage->gradient_in.count, 1e-4f);
	}
	stage->activation_in.peer = -1;
	stage->activation_out.peer = -1;
	stage->gradient_in.peer = -1;
	stage->gradient_out.peer = -1;
	mlp->between = NULL; /* there is no progress to make */
}

void baseline_init(struct baseline *baseline, const struct comms *comms,
                   const struct options *options, const struct data *data)
{
	int samples = SAMPLES * (options->epochs + 1);

	baseline->count = 0;
	baseline->measured = 0;
	baseline->share = allocate((size_t)options->epochs + 1, sizeof(double));
	baseline->moving_ns = allocate((size_t)samples, sizeof(double));
	stage_init(&baseline->computing, comms, options, data, samples);
	leave_neighbours(&baseline->computing);
	data_shuffle(baseline->computing.order, data->training.count,
	             options->seed, 0);
	stage_init(&baseline->moving, comms, options, data, samples);
}

void baseline_fini(struct baseline *baseline)
{
	stage_fini(&baseline->computing);
	stage_fini(&baseline->moving);
	free(baseline->moving_ns);
	free(baseline->share);
}

/* All messages of a step; returns when this rank's have ended. */
static void move_all(struct stage *stage)
{
	struct mlp *mlp = &stage->mlp;

	for (int slot = 0; slot < stage->options->micro_batches; slot++) {
		link_post(stage, &stage->activation_in, slot,
		          mlp_input(mlp, slot));
		link_post(stage, &stage->gradient_in, slot,
		          mlp->gradient_in[slot]);
	}
	for (int slot = 0; slot < stage->options->micro_batches; slot++) {
		link_post(stage, &stage->activation_out, slot,
		          mlp_output(mlp, slot));
		link_post(stage, &stage->gradient_out, slot,
		          mlp->gradient_out[slot]);
	}
	link_drain(&stage->activation_in);
	link_drain(&stage->gradient_in);
	link_drain(&stage->activation_out);
	link_drain(&stage->gradient_out);
}

/* What this thread has had of a processor. */
static uint64_t processor_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

void baseline_measure(struct baseline *baseline)
{
	struct baton_comm *comm = baseline->moving.comm;
	double used_ns = 0.0, took_ns = 0.0;
	uint64_t start_ns;

	for (int i = 0; i < SAMPLES; i++) {
		uint64_t before_ns;

		meet(comm);
		start_ns = now_ns();
		before_ns = processor_ns();
		stage_step(&baseline->computing, schedule_overlap, 0, true);
		used_ns += (double)(processor_ns() - before_ns);
		took_ns += (double)(now_ns() - start_ns);
	}
	/* On a GPU the thread may sleep while a product is computed. */
	baseline->share[baseline->measured++] =
		baseline->computing.device != NULL ? 1.0 : used_ns / took_ns;
	for (int i = 0; i < SAMPLES; i++) {
		meet(comm);
		start_ns = now_ns();
		move_all(&baseline->moving);
		baseline->moving_ns[baseline->count++] =
			(double)(now_ns() - start_ns);
	}
	meet(comm);
}

/* ---- medians ------------------------------------------------------------ */

enum kind { FORWARDS, BACKWARDS, UPDATE, ALL };

/* Median over steps of what one micro-batch's forward takes (or backward, or
 * the update), or of the sum of all computations. */
static double median_of(const struct stage *stage, enum kind kind)
{
	size_t micro = (size_t)stage->options->micro_batches;
	size_t first = kind == BACKWARDS ? micro : kind == UPDATE ? 2 * micro
	                                                          : 0;
	size_t end = kind == FORWARDS ? micro
	             : kind == BACKWARDS ? 2 * micro : 2 * micro + 1;
	double *values = allocate(stage->steps_count, sizeof(*values));
	double result;

	for (size_t step = 0; step < stage->steps_count; step++) {
		for (size_t i = first; i < end; i++)
			values[step] += span_ns(computed(stage, step)[i]);
		if (kind != ALL)
			values[step] /= (double)(end - first);
	}
	result = median(values, stage->steps_count);
	free(values);
	return result;
}

struct stage_times *times_gather(const struct baseline *baseline,
                                 const struct run *runs, int count)
{
	const struct stage *alone = &baseline->computing;
	struct stage_times mine = { 0 }, *times;

	mine.first_layer = alone->mlp.first;
	mine.layers = alone->mlp.count;
	mine.forward_ns = median_of(alone, FORWARDS);
	mine.backward_ns = median_of(alone, BACKWARDS);
	mine.update_ns = median_of(alone, UPDATE);
	mine.alone_ns = median_of(alone, ALL);
	mine.moving_ns = median(baseline->moving_ns, baseline->count);
	for (int i = 0; i < count; i++)
		mine.computing_ns[i] = median_of(&runs[i].stage, ALL);
	if (alone->rank != 0) {
		transfer(alone->comm, 0, TAG_TIMES, false, &mine, sizeof(mine));
		return NULL;
	}
	times = allocate((size_t)alone->ranks, sizeof(*times));
	times[0] = mine;
	for (int rank = 1; rank < alone->ranks; rank++)
		transfer(alone->comm, rank, TAG_TIMES, true, &times[rank],
		         sizeof(*times));
	return times;
}

/* ---- what overlap gains ------------------------------------------------- */

/* All ranks' least share, before each epoch and behind the last, on rank 0. */
static void share_gather(const struct baseline *baseline, double *least)
{
	size_t count = baseline->measured, bytes = count * sizeof(double);
	const struct stage *stage = &baseline->computing;
	double *theirs;

	memcpy(least, baseline->share, bytes);
	if (stage->rank != 0) {
		transfer(stage->comm, 0, TAG_TIMES, false, least, bytes);
		return;
	}
	theirs = allocate(count, sizeof(*theirs));
	for (int rank = 1; rank < stage->ranks; rank++) {
		transfer(stage->comm, rank, TAG_TIMES, true, theirs, bytes);
		for (size_t i = 0; i < count; i++)
			least[i] = theirs[i] < least[i] ? theirs[i] : least[i];
	}
	free(theirs);
}

/* Median of the steps of an epoch. */
static double epoch_step(const struct stage *stage, int epoch)
{
	size_t steps = stage->steps_count / (size_t)stage->options->epochs;
	double *values = allocate(steps, sizeof(*values));
	double result;

	for (size_t i = 0; i < steps; i++)
		values[i] = span_ns(stage->steps[(size_t)epoch * steps + i]);
	result = median(values, steps);
	free(values);
	return result;
}

struct gain gain_gather(const struct baseline *baseline, const struct run *runs,
                        const struct options *options)
{
	struct gain gain = { .epochs = options->epochs };
	double *share = allocate(baseline->measured, sizeof(*share));
	double *faster = allocate((size_t)gain.epochs, sizeof(*faster));

	share_gather(baseline, share);
	for (int i = 0; i < gain.epochs; i++) {
		if (share[i + 1] < share[i])
			share[i] = share[i + 1];
		if (100.0 * share[i] >= options->quiet)
			faster[gain.quiet++] = epoch_step(&runs[1].stage, i) /
			                       epoch_step(&runs[0].stage, i);
	}
	gain.faster = median(faster, (size_t)gain.quiet);
	gain.share = median(share, (size_t)gain.epochs);
	gain.told = gain.quiet > 0 && gain.quiet >= gain.epochs / 4;
	free(share);
	free(faster);
	return gain;
}

/* ---- the best possible -------------------------------------------------- */

/* One stage on its way through steps whose transfers take no time. */
struct walker {
	int ahead, position; /* in the step: forward, backward, forward, ... */
	uint64_t free_ns;    /* the end of its last computation */
};

#define STEADY_STEPS 8

/* Run the stage's computations of this step until one needs what a neighbour has
 * not computed yet.  Returns whether it got further. */
static bool walk(struct walker *walker, const struct stage_times *times,
                 struct span **spans, int rank, int ranks, int micro)
{
	int before = walker->position;

	for (; walker->position < 2 * (micro + walker->ahead);
	     walker->position++) {
		bool forward = walker->position % 2 == 0;
		int slot = walker->position / 2 - (forward ? 0 : walker->ahead);
		int from = rank + (forward ? -1 : 1); /* whose result it needs */
		int i = forward ? slot : micro + slot;
		struct span *span;

		if (slot < 0 || slot >= micro)
			continue;
		span = &spans[rank][i];
		span->begin = walker->free_ns;
		if (from >= 0 && from < ranks) {
			if (spans[from][i].end == 0)
				break;
			if (span->begin < spans[from][i].end)
				span->begin = spans[from][i].end;
		}
		walker->free_ns = span->begin +
		                  (uint64_t)(forward ? times[rank].forward_ns
		                                     : times[rank].backward_ns);
		span->end = walker->free_ns;
	}
	return walker->position > before;
}

/* Fill best with the steady state of the pipeline under `ahead`. */
static void simulate(struct best *best, const struct stage_times *times,
                     int ranks, int micro, int (*ahead)(int, int))
{
	size_t size = (2 * (size_t)micro + 1) * sizeof(struct span);
	struct walker *walkers = allocate((size_t)ranks, sizeof(*walkers));

	for (int step = 0; step < STEADY_STEPS; step++) {
		bool moved = true;

		best->window.begin = walkers[0].free_ns;
		for (int rank = 0; rank < ranks; rank++) {
			memset(best->computed[rank], 0, size);
			walkers[rank].position = 0;
			walkers[rank].ahead = ahead(rank, ranks);
		}
		while (moved) {
			moved = false;
			for (int rank = 0; rank < ranks; rank++)
				moved = walk(&walkers[rank], times,
				             best->computed, rank, ranks,
				             micro) || moved;
		}
		for (int rank = 0; rank < ranks; rank++) {
			struct span *update = &best->computed[rank][2 * micro];

			update->begin = walkers[rank].free_ns;
			walkers[rank].free_ns +=
				(uint64_t)times[rank].update_ns;
			update->end = walkers[rank].free_ns;
		}
		best->window.end = walkers[0].free_ns;
	}
	best->computing_ns = span_ns(best->window);
	free(walkers);
}

void best_init(struct best *best, const struct stage_times *times, int ranks,
               const struct options *options)
{
	int micro = options->micro_batches;
	double wait_ns;

	best->computed = allocate((size_t)ranks, sizeof(*best->computed));
	for (int rank = 0; rank < ranks; rank++)
		best->computed[rank] = allocate(computations(options),
		                                sizeof(struct span));
	simulate(best, times, ranks, micro, ahead_wait);
	wait_ns = best->computing_ns;
	simulate(best, times, ranks, micro, ahead_overlap);
	if (wait_ns < best->computing_ns)
		simulate(best, times, ranks, micro, ahead_wait);
}

void best_fini(struct best *best, int ranks)
{
	for (int rank = 0; rank < ranks; rank++)
		free(best->computed[rank]);
	free(best->computed);
}
