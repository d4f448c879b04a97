/* SPDX-License-Identifier: BSD-3-Clause */
/* window/wait.c: waits for any of several counters, and for a value of a counter. */
#include <check.h>
#include <stdio.h>
#include <time.h>

#include "mem.h"
#include "rma_world.h"
#include "run_tests.h"

static struct rma_world world;
static int which;

static void
setup(void)
{
	rma_world_open(&world);
	which = -7;
}

static void
teardown(void)
{
	rma_world_close(&world);
}

/* Described and placed: a wait for any, for all, and for a value. */
static void
place_any(uint32_t slot, size_t count, const struct baton_wait_signal_desc *descs)
{
	size_t twice;

	world.transfers[slot].direction = BATONI_WAIT;
	world.transfers[slot].peer = -1;
	ck_assert_int_eq(batoni_wait_describe_any(&world.rma, slot, count, descs,
	                                          &which, &twice),
	                 BATON_OK);
	batoni_wait_place(&world.rma, &world.transfers[slot]);
}

static void
place_all(uint32_t slot, size_t count, const struct baton_wait_signal_desc *descs)
{
	describe_wait(&world, slot, count, descs);
	batoni_wait_place(&world.rma, &world.transfers[slot]);
}

static void
place_count(uint32_t slot, int peer, uint64_t value)
{
	struct baton_wait_signal_desc one = wait_desc(1, peer, 0, 0);

	world.transfers[slot].direction = BATONI_WAIT;
	ck_assert_int_eq(batoni_wait_describe_count(&world.rma, slot, &one,
	                                            value),
	                 BATON_OK);
	batoni_wait_place(&world.rma, &world.transfers[slot]);
}

static uint64_t
wanted(int peer, int signal_index)
{
	return atomic_load(&batoni_counter_of(&world.rma,
	                                      batoni_link_of(&world.rma, peer),
	                                      signal_index, 0)
	                            ->value[1]);
}

/* ---- any ---------------------------------------------------------------- */

START_TEST(any_ends_with_one_and_gives_the_other_units_back)
{
	struct baton_wait_signal_desc three[] = {wait_desc(1, 0, 0, 0), wait_desc(2, 1, 0, 0),
	                                         wait_desc(1, 2, 1, 0)};
	struct baton_wait_signal_desc later[] = {wait_desc(1, 2, 1, 0), wait_desc(1, 1, 0, 0)};

	place_any(0, 3, three);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	place_all(1, 1, &later[0]);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 0);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	ck_assert_int_eq(which, 1);
	ck_assert_int_eq(world.transfers[0].peer, 1);
	ck_assert_uint_eq(world.transfers[0].done_bytes, 0);
	/* The unit of (2, 1) is the later wait's; both of (1, 0) are used. */
	signal_from(&world, 2, 1, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 1, BATON_OK);
	place_all(2, 1, &later[1]);
	ck_assert_int_eq(issue_wait(&world, 2), BATON_PENDING);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 2, BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(any_takes_the_first_in_its_order_of_several)
{
	struct baton_wait_signal_desc two[] = {wait_desc(1, 2, 0, 0), wait_desc(1, 1, 0, 0)};

	signal_from(&world, 1, 0, 0);
	signal_from(&world, 2, 0, 0);
	place_any(0, 2, two);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_OK);
	ck_assert_int_eq(which, 0);
	ck_assert_int_eq(world.transfers[0].peer, 2);
	/* The other's signal is still there. */
	place_any(1, 2, two);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_OK);
	ck_assert_int_eq(which, 1);
	place_any(2, 2, two);
	ck_assert_int_eq(issue_wait(&world, 2), BATON_PENDING);
	ck_assert_int_eq(take_wait_back(&world, 2), BATON_ERR_CANCELED);
	ck_assert_int_eq(which, 1);
	assert_no_waits(&world);
}
END_TEST

START_TEST(any_that_ends_early_gives_all_units_back)
{
	struct baton_wait_signal_desc two[] = {wait_desc(3, 1, 0, 0), wait_desc(3, 2, 0, 0)};

	place_any(0, 2, two);
	place_any(1, 2, two);
	place_count(2, 1, 5);
	two[0].op_count = two[1].op_count = 1;
	place_all(3, 2, two);
	for (uint32_t slot = 1; slot < 4; slot++)
		ck_assert_int_eq(issue_wait(&world, slot), BATON_PENDING);
	batoni_wait_unplace(&world.rma, &world.transfers[0]);
	ck_assert_int_eq(take_wait_back(&world, 1), BATON_ERR_CANCELED);
	ck_assert_int_eq(which, -7);
	signal_from(&world, 1, 0, 0);
	signal_from(&world, 2, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 3, BATON_OK);
	ck_assert_int_eq(take_wait_back(&world, 2), BATON_ERR_CANCELED);
	/* One that is met by now is not taken back. */
	place_any(0, 2, two);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	signal_from(&world, 2, 0, 0);
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_OK);
	ck_assert_int_eq(which, 1);
	assert_no_waits(&world);
}
END_TEST

START_TEST(counter_named_twice_is_refused)
{
	struct baton_wait_signal_desc three[] = {wait_desc(1, 1, 0, 0), wait_desc(1, 1, 1, 0),
	                                         wait_desc(2, 1, 0, 0)};
	size_t twice = 0;

	ck_assert_int_eq(batoni_wait_describe_any(&world.rma, 0, 3, three, &which,
	                                          &twice),
	                 BATON_ERR_MISMATCH);
	ck_assert_uint_eq(twice, 2);
	assert_no_waits(&world);
}
END_TEST

/* The signaller rings from the lowest target on, of each counter. */
START_TEST(any_is_parked_on_all_of_its_counters)
{
	struct baton_wait_signal_desc two[] = {wait_desc(2, 1, 0, 0), wait_desc(3, 2, 1, 0)};

	place_any(0, 2, two);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	atomic_store(&batoni_bell()->listening, 1);
	ck_assert_uint_eq(test_waits(&world), 0);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 1);
	ck_assert_uint_eq(wanted(1, 0), 2);
	ck_assert_uint_eq(wanted(2, 1), 3);
	atomic_store(&batoni_bell()->listening, 0);
	/* What comes by message is looked for, whichever counter it is. */
	batoni_channel_of(&world.rma, 2, 0)->heard = true;
	ck_assert_uint_eq(test_waits(&world), 0);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 0);
	ck_assert_uint_eq(world.rma.base.path.load.awaiting, 1);
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_ERR_CANCELED);
	ck_assert_uint_eq(wanted(1, 0), 0);
	ck_assert_uint_eq(wanted(2, 1), 0);
	assert_no_waits(&world);
}
END_TEST

/* ---- a value ------------------------------------------------------------ */

START_TEST(wait_for_a_value_takes_no_units)
{
	struct baton_wait_signal_desc one = wait_desc(1, 1, 0, 0);

	place_count(0, 1, 2);
	place_count(1, 1, 2);
	place_all(2, 1, &one);
	for (uint32_t slot = 0; slot < 3; slot++)
		ck_assert_int_eq(issue_wait(&world, slot), BATON_PENDING);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 2, BATON_OK);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 2);
	rma_world_forget_end(&world);
	rma_world_forget_end(&world);
	/* The second unit is not used, and the value is there. */
	place_all(3, 1, &one);
	ck_assert_int_eq(issue_wait(&world, 3), BATON_OK);
	place_count(0, 1, 2);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_OK);
	place_count(0, 1, 0);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_OK);
	place_count(0, 1, UINT64_MAX);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	place_all(1, 1, &one);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_ERR_CANCELED);
	ck_assert_int_eq(take_wait_back(&world, 1), BATON_ERR_CANCELED);
	assert_no_waits(&world);
}
END_TEST

/* It may be lower than what a thread that sleeps has asked for, and the rest stays asked for. */
START_TEST(value_below_what_was_wanted_is_wanted)
{
	struct baton_wait_signal_desc many = wait_desc(10, 1, 0, 0);

	place_all(0, 1, &many);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	atomic_store(&batoni_bell()->listening, 1);
	ck_assert_uint_eq(test_waits(&world), 0);
	ck_assert_uint_eq(wanted(1, 0), 10);
	place_count(1, 1, 7);
	ck_assert_uint_eq(wanted(1, 0), 7);
	place_count(2, 1, 4);
	ck_assert_uint_eq(wanted(1, 0), 4);
	place_count(3, 1, 20);
	ck_assert_uint_eq(wanted(1, 0), 4);
	for (uint32_t slot = 1; slot < 4; slot++)
		ck_assert_int_eq(issue_wait(&world, slot), BATON_PENDING);
	ck_assert_uint_eq(test_waits(&world), 0);
	ck_assert_uint_eq(wanted(1, 0), 4);
	ck_assert_int_eq(take_wait_back(&world, 2), BATON_ERR_CANCELED);
	ck_assert_uint_eq(wanted(1, 0), 7);
	ck_assert_int_eq(take_wait_back(&world, 1), BATON_ERR_CANCELED);
	ck_assert_uint_eq(wanted(1, 0), 10);
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_ERR_CANCELED);
	ck_assert_uint_eq(wanted(1, 0), 20);
	ck_assert_int_eq(take_wait_back(&world, 3), BATON_ERR_CANCELED);
	atomic_store(&batoni_bell()->listening, 0);
	assert_no_waits(&world);
}
END_TEST

/* ---- all kinds against a reference ---------------------------------------- */

enum { COUNTERS = RANKS * SIGNALS, WAITS = 400, LIVE = 12 };

enum wait_kind { ANY, ALL, COUNT, KINDS };

/* A wait in the order of placing.  units: of each counter, those that it has or has used. */
static struct waited {
	enum wait_kind kind;
	bool live, any_order[COUNTERS];
	uint32_t slot;
	uint64_t units[COUNTERS], value;
	int order[COUNTERS], n; /* counters in the order of its descriptors */
} waited[WAITS];
static int waited_n;
static uint64_t counts[COUNTERS];
static unsigned seed;

static unsigned
draw(unsigned lower)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % lower;
}

static bool
reaches(const struct waited *w, int counter)
{
	uint64_t target = 0;

	for (const struct waited *at = waited; at <= w; at++)
		target += at->units[counter];
	return counts[counter] >= target;
}

/* True: it is over, and has what it has used; *which_p is the place of its counter. */
static bool
is_over(struct waited *w, int *which_p)
{
	int met = 0;

	if (w->kind == COUNT)
		return counts[w->order[0]] >= w->value;
	for (int i = 0; i < w->n; i++) {
		if (!reaches(w, w->order[i]))
			continue;
		if (w->kind == ANY) {
			for (int k = 0; k < w->n; k++)
				if (k != i)
					w->units[w->order[k]] = 0;
			*which_p = i;
			return true;
		}
		met++;
	}
	return w->kind == ALL && met == w->n;
}

static void
end_live(struct waited *w, enum baton_status status, int expected)
{
	w->live = false;
	if (w->kind == ANY && status == BATON_OK)
		ck_assert_int_eq(which, expected);
	if (status != BATON_OK)
		for (int i = 0; i < COUNTERS; i++)
			w->units[i] = 0;
}

/* One test of the layer must end those that the reference ends, in its order. */
static void
compare(void)
{
	int expected = -1;

	for (int i = 0; i < waited_n; i++) {
		struct waited *w = &waited[i];

		if (!w->live || !is_over(w, &expected))
			continue;
		/* Each by itself, so that `which` is this one's. */
		ck_assert_uint_eq(take_wait_back(&world, w->slot), BATON_OK);
		end_live(w, BATON_OK, expected);
	}
	ck_assert_uint_eq(test_waits(&world), 0);
}

static void
place_random(uint32_t slot)
{
	struct waited *w = &waited[waited_n++];
	struct baton_wait_signal_desc descs[COUNTERS];
	int expected = -1;
	bool over;

	*w = (struct waited){.kind = draw(KINDS), .live = true, .slot = slot};
	w->n = w->kind == COUNT ? 1 : 1 + (int)draw(COUNTERS);
	for (int i = 0; i < w->n; i++) {
		int counter = (int)draw(COUNTERS);

		while (w->any_order[counter])
			counter = (counter + 1) % COUNTERS;
		w->any_order[counter] = true;
		w->order[i] = counter;
		descs[i] = wait_desc(1 + (int)draw(3), counter / SIGNALS,
		                     counter % SIGNALS, 0);
		if (w->kind != COUNT)
			w->units[counter] = (uint64_t)descs[i].op_count;
	}
	w->value = counts[w->order[0]] + draw(4);
	if (w->kind == ANY) {
		place_any(slot, (size_t)w->n, descs);
	} else if (w->kind == ALL) {
		place_all(slot, (size_t)w->n, descs);
	} else {
		world.transfers[slot].direction = BATONI_WAIT;
		ck_assert_int_eq(batoni_wait_describe_count(
					 &world.rma, slot, descs, w->value),
		                 BATON_OK);
		batoni_wait_place(&world.rma, &world.transfers[slot]);
	}
	over = is_over(w, &expected);
	ck_assert_int_eq(issue_wait(&world, slot), over ? BATON_OK : BATON_PENDING);
	if (over)
		end_live(w, BATON_OK, expected);
}

START_TEST(units_are_those_of_the_reference)
{
	static const uint32_t none = UINT32_MAX;

	seed = (unsigned)time(NULL);
	printf("seed %u\n", seed);
	waited_n = 0;
	for (int i = 0; i < COUNTERS; i++)
		counts[i] = 0;
	while (waited_n < WAITS) {
		bool used[LIVE] = {false};
		int last = -1, counter;
		uint32_t slot = none;

		for (int i = 0; i < waited_n; i++) {
			if (waited[i].live) {
				used[waited[i].slot] = true;
				last = draw(3) ? i : last;
			}
		}
		for (uint32_t i = 0; i < LIVE; i++)
			slot = used[i] ? slot : i;
		if (slot != none && draw(2)) {
			place_random(slot);
		} else if (last >= 0 && draw(4) == 0) {
			ck_assert_int_eq(take_wait_back(&world, waited[last].slot),
			                 BATON_ERR_CANCELED);
			end_live(&waited[last], BATON_ERR_CANCELED, -1);
		} else {
			counter = (int)draw(COUNTERS);
			counts[counter]++;
			signal_from(&world, counter / SIGNALS, counter % SIGNALS,
			            0);
		}
		compare();
	}
	/* What one gives back may end another. */
	for (int i = 0; i < waited_n; i++) {
		if (waited[i].live)
			(void)take_wait_back(&world, waited[i].slot);
	}
	assert_no_waits(&world);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		any_ends_with_one_and_gives_the_other_units_back,
		any_takes_the_first_in_its_order_of_several,
		any_that_ends_early_gives_all_units_back,
		counter_named_twice_is_refused,
		any_is_parked_on_all_of_its_counters,
		wait_for_a_value_takes_no_units,
		value_below_what_was_wanted_is_wanted,
		units_are_those_of_the_reference,
	};

	return RUN_TESTS_WITH("wait_any", tests, setup, teardown);
}
