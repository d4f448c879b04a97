/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times of a row: blocks of rounds, of each side in turns, since machines drift.
 *
 * Before each block rank 0 says how many rounds it has, and all meet; 0 ends the row.  So the ranks agree, whatever one of
 * them has seen.  A rank that has failed goes on meeting the others, and runs no loop any more: those that wait for it
 * in theirs end by their deadlines.
 */
#include <sched.h>
#include <time.h>

#include "perf.h"

#define ROUNDS_MAX (1 << 24)

static uint64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static enum baton_status
run_baton(const struct perf_end *e, enum perf_pattern pattern, int rounds)
{
	switch (pattern) {
	case PERF_LATENCY:
		return perf_latency(e, rounds);
	case PERF_WINDOW:
		return perf_window(e, rounds);
	case PERF_PUT:
		return perf_put(e, rounds);
	case PERF_PUTS:
		return perf_puts(e, rounds);
	case PERF_RING:
		return perf_ring(e, rounds);
	case PERF_ALL:
		return perf_all(e, rounds);
	case PERF_OVERLAP:
		return perf_overlapped(e, rounds);
	}
	return BATON_ERR_INVALID;
}

static void
run_side(struct perf_rank *rank, enum perf_side side, int rounds)
{
	uint64_t steps = rank->end.steps;
	enum baton_status status = BATON_OK;

	if (side == PERF_SIDE_TRANSFER || side == PERF_SIDE_RAW_TRANSFER)
		rank->end.steps = 0;
	if (side == PERF_SIDE_RAW || side == PERF_SIDE_RAW_TRANSFER)
		perf_raw_run(rank, rank->test->pattern, rounds);
	else if (side == PERF_SIDE_COMPUTE)
		for (int i = 0; i < rounds; i++)
			perf_spin(steps);
	else
		status = run_baton(&rank->end, rank->test->pattern, rounds);
	rank->end.steps = steps;
	if (status != BATON_OK)
		perf_fail(rank, rank->test->name, status);
}

/* What rank 0 decides becomes what all have, and all begin.  False: ranks are missing, and there is an end. */
static bool
agree(struct perf_rank *rank, int *rounds)
{
	struct job *job = rank->job;

	if (job->rank == 0 && *rank->failed)
		*rounds = 0;
	return job_share(job, rounds, sizeof(*rounds)) && *rounds > 0 &&
	       job_meet(job);
}

/* Collective: the nanoseconds, here, of as many rounds as rank 0 says; 0: there is an end. */
static uint64_t
block(struct perf_rank *rank, enum perf_side side, int rounds)
{
	uint64_t start;

	if (!agree(rank, &rounds))
		return 0;
	start = now();
	if (rank->takes_part && !*rank->failed)
		run_side(rank, side, rounds);
	return now() - start + 1;
}

/* Rounds of which a block of the side takes about that long; 0: there is an end.  The rounds double until they take a
 * quarter of it, twice: other load may have held up one of the two. */
static int
choose_rounds(struct perf_rank *rank, enum perf_side side, uint64_t block_ns)
{
	int rounds = 1, tries = 1;
	uint64_t before = 0, took;

	/* As many tries on all ranks: rank 0 says when they are over. */
	for (;;) {
		bool enough;

		took = block(rank, side, tries);
		if (took == 0)
			return 0;
		rounds = tries;
		enough = took >= block_ns / 4 || tries >= ROUNDS_MAX;
		if (enough && before)
			tries = 0;
		else if (!enough)
			tries *= 2;
		took = enough && before && before < took ? before : took;
		before = enough ? took : 0;
		if (!job_share(rank->job, &tries, sizeof(tries)) || tries == 0)
			break;
	}
	rounds = (int)((double)rounds * (double)block_ns / (double)took);
	rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
	return job_share(rank->job, &rounds, sizeof(rounds)) ? rounds : 0;
}

static void
choose_sides(const struct perf_rank *rank, struct perf_times *times)
{
	bool overlap = rank->test->pattern == PERF_OVERLAP;

	times->has[PERF_SIDE_BATON] = true;
	times->has[PERF_SIDE_RAW] = rank->raw != NULL;
	times->has[PERF_SIDE_TRANSFER] = overlap;
	times->has[PERF_SIDE_COMPUTE] = overlap;
	times->has[PERF_SIDE_RAW_TRANSFER] = overlap && rank->raw;
}

/* Steps that take as long as the rounds of the transfer alone do, for each of them. */
static void
choose_steps(struct perf_rank *rank, int rounds)
{
	const uint64_t tried = 4000000;
	uint64_t took = block(rank, PERF_SIDE_TRANSFER, rounds), best = UINT64_MAX;

	for (int i = 0; i < 5 && rank->job->rank == 0; i++) {
		uint64_t start = now();

		perf_spin(tried);
		best = now() - start < best ? now() - start : best;
	}
	rank->end.steps = tried * (took / (uint64_t)rounds) / (best ? best : 1);
	job_share(rank->job, &rank->end.steps, sizeof(rank->end.steps));
}

/* Blocks of all sides in turns, until there are enough, or time is up on rank 0. */
static void
run_blocks(struct perf_rank *rank, struct perf_times *times, int blocks,
           uint64_t limit_ns)
{
	uint64_t start = now();

	while (times->blocks < blocks) {
		int place = times->blocks;
		int rounds = times->rounds;

		if (place > 0 && limit_ns && now() - start > limit_ns)
			rounds = 0;
		if (!job_share(rank->job, &rounds, sizeof(rounds)) || rounds == 0)
			return;
		for (int side = 0; side < PERF_SIDES; side++) {
			uint64_t took;

			if (!times->has[side])
				continue;
			took = block(rank, (enum perf_side)side, rounds);
			if (took == 0)
				return;
			times->ns[side][place] = (double)took;
			if (side == PERF_SIDE_BATON)
				times->processor[place] = sched_getcpu();
		}
		times->blocks++;
	}
}

void
perf_measure(struct perf_rank *rank, struct perf_times *times)
{
	const struct perf_options *o = rank->options;
	long most = o->iterations;
	int blocks = most && most < PERF_BLOCKS ? (int)most : PERF_BLOCKS;
	enum perf_side first = rank->test->pattern == PERF_OVERLAP
	                               ? PERF_SIDE_TRANSFER
	                               : PERF_SIDE_BATON;
	int sides = 0, warmup;

	*times = (struct perf_times){0};
	choose_sides(rank, times);
	for (int side = 0; side < PERF_SIDES; side++)
		sides += times->has[side] && side != PERF_SIDE_RAW &&
		         side != PERF_SIDE_RAW_TRANSFER;
	times->rounds = most ? (int)(most / blocks + (most % blocks > 0))
	                     : choose_rounds(rank, first,
	                                     o->time_ns / (uint64_t)(blocks * sides));
	if (times->rounds == 0)
		return;
	if (first == PERF_SIDE_TRANSFER)
		choose_steps(rank, times->rounds);
	warmup = o->warmup < 0 ? times->rounds : (int)o->warmup;
	for (int side = 0; side < PERF_SIDES && warmup > 0; side++)
		if (times->has[side] && !block(rank, (enum perf_side)side, warmup))
			return;
	run_blocks(rank, times, blocks,
	           o->time_ns * (uint64_t)(rank->raw ? 2 : 1));
}

void
perf_round(struct perf_rank *rank)
{
	block(rank, PERF_SIDE_BATON, 1);
}
