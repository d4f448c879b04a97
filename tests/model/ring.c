/* SPDX-License-Identifier: BSD-3-Clause */
/* The search (ring_model.h), and the tests. */
#include "ring_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_tests.h"

static const char *const wrongs[] = {
	"",
	"the reader finds what is no header, or another message",
	"the reader finds other bytes",
	"a count that cannot be",
	"all sleep with work left",
};

enum move { WRITER_GOES, READER_GOES, WRITER_FLUSHES, READER_FLUSHES, MOVES };

enum { TABLE = 1 << 22 };

/* A state that was seen: from which one, and by which move. */
struct seen {
	uint64_t hash; /* 0: nothing is here */
	uint32_t from;
	uint8_t move, choice;
};

/* The states that are as many moves away from the first one. */
struct level {
	struct state *states;
	uint32_t *at; /* their places in `seen` */
	size_t n, room;
};

struct search {
	const struct rules *rules;
	uint32_t states;
	uint32_t wrong_at; /* where it ended, if `wrong` */
	uint8_t wrong;
};

/* Of one search after the other: getting memory would take as long as the search. */
static struct seen seen[TABLE];
static struct level level, next_level;

static uint64_t
hash_of(const struct state *s)
{
	uint64_t words[(sizeof(*s) + 7) / 8] = {0};
	uint64_t hash = 0x9e3779b97f4a7c15u;

	memcpy(words, s, sizeof(*s));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		hash = (hash ^ words[i]) * 0xff51afd7ed558ccdu;
		hash ^= hash >> 32;
	}
	return hash ? hash : 1;
}

/* False: it was there already. */
static bool
enter(struct search *search, const struct state *s, const struct seen *how, uint32_t *at_p)
{
	uint64_t hash = hash_of(s);
	uint32_t at = (uint32_t)(hash >> 20) % TABLE;

	for (; seen[at].hash; at = (at + 1) % TABLE) {
		if (seen[at].hash == hash)
			return false;
	}
	ck_assert_msg(++search->states < TABLE / 4 * 3, "TABLE is too small");
	seen[at] = *how;
	seen[at].hash = hash;
	*at_p = at;
	return true;
}

static void
append(struct level *to, const struct state *s, uint32_t at)
{
	if (to->n == to->room) {
		to->room = to->room ? to->room * 2 : 1024;
		to->states = realloc(to->states, to->room * sizeof(*s));
		to->at = realloc(to->at, to->room * sizeof(at));
		if (!to->states || !to->at)
			abort();
	}
	to->states[to->n] = *s;
	to->at[to->n++] = at;
}

static bool
make_one_move(const struct rules *rules, struct state *s, unsigned move, unsigned choice)
{
	switch (move) {
	case WRITER_GOES:
		return ring_writer_goes(rules, s, choice);
	case READER_GOES:
		return ring_reader_goes(rules, s, choice);
	case WRITER_FLUSHES:
		return ring_flush(rules, s, WRITER, choice);
	default:
		return ring_flush(rules, s, READER, choice);
	}
}

static bool
make_move(const struct rules *rules, struct state *s, unsigned move, unsigned choice)
{
	if (!make_one_move(rules, s, move, choice))
		return false;
	if (rules->omission != NOTHING)
		return true;
	/* Fewer states that differ in nothing. */
	if (ring_writer_fences(s))
		ring_learn(s, WRITER, s->queued[WRITER]);
	if (ring_reader_fences(s))
		ring_learn(s, READER, s->queued[READER]);
	return true;
}

static bool
is_over(const struct state *s)
{
	return s->w.sent == MESSAGES && s->w.step == W_BEGIN &&
	       (s->r.count == MESSAGES || s->r.step == R_IDLE_ASLEEP);
}

/* No move has more choices than so many. */
static unsigned
choices(const struct state *s, unsigned move)
{
	unsigned decisions = 4;

	switch (move) {
	case WRITER_GOES:
		return s->queued[WRITER] < decisions ? decisions : s->queued[WRITER] + 1u;
	case READER_GOES:
		return s->queued[READER] < decisions ? decisions : s->queued[READER] + 1u;
	default:
		return BUFFER;
	}
}

/* All moves from a state. */
static void
expand(struct search *search, const struct state *from, uint32_t at)
{
	struct seen how = {.from = at};
	bool stuck = true;

	while (how.move < MOVES && !search->wrong) {
		struct state to = *from;
		struct seen made = how;

		if (++how.choice == choices(from, how.move)) {
			how.move++;
			how.choice = 0;
		}
		if (!make_move(search->rules, &to, made.move, made.choice))
			continue;
		stuck = false;
		if (!enter(search, &to, &made, &search->wrong_at))
			continue;
		search->wrong = to.wrong;
		append(&next_level, &to, search->wrong_at);
	}
	if (stuck && !is_over(from)) {
		search->wrong = STUCK;
		search->wrong_at = at;
	}
}

/* ---- how it came ---- */

static const char *const writer_names[] = {
	[W_BEGIN] = "begins a message",
	[W_REFRESH_FIRST] = "loads taken",
	[W_STARVE] = "stores hungry",
	[W_REFRESH] = "loads taken once more",
	[W_PUBLISH] = "W1 to W3, into its buffer",
	[W_FENCE] = "W4",
	[W_LOOK] = "W5",
	[W_BIT] = "W6",
	[W_LISTENING] = "W7",
	[W_RING] = "rings",
	[W_IDLE] = "loads idle",
	[W_IDLE_RING] = "rings for the idle reader",
	[W_S0_DOORBELL] = "S0, doorbell",
	[W_S0_LISTEN] = "S0, listening",
	[W_S2] = "S2",
	[W_S4_LOAD] = "S4, a load",
	[W_S4] = "S4",
	[W_S5] = "S5",
	[W_CALLED] = "has been called",
	[W_UNLISTEN] = "is awake",
};

static const char *const reader_names[] = {
	[R_PASS] = "begins a pass",
	[R_ANSWER_LOAD] = "loads its bits",
	[R_ANSWER] = "exchanges its bits",
	[R_COOL] = "has stored COLD; fence",
	[R_PEEK] = "looks at the head",
	[R_REST] = "loads the payload",
	[R_PAYLOAD] = "loads more payload",
	[R_TELL] = "stores taken",
	[R_HUNGRY_FIRST] = "loads hungry first",
	[R_HUNGRY] = "loads hungry",
	[R_FED] = "exchanges hungry",
	[R_CALL] = "sets the writer's bit",
	[R_CALL_LISTENING] = "loads the writer's listening",
	[R_CALL_RING] = "rings",
	[R_MORE] = "looks whether there is more",
	[R_CALL_LATER] = "sets its own bit",
	[R_S0_DOORBELL] = "S0, doorbell",
	[R_S0_LISTEN] = "S0, listening; S1",
	[R_S2_WARM] = "S2, and S3 is to come",
	[R_S2] = "S2",
	[R_S4_LOAD] = "S4, a load",
	[R_S4] = "S4",
	[R_S5] = "S5",
	[R_UNLISTEN] = "is awake",
	[R_IDLE_DOORBELL] = "loads its doorbell, to sleep idle",
	[R_IDLE] = "stores idle",
	[R_IDLE_FENCE] = "fence",
	[R_IDLE_BITS_LOAD] = "loads its bits, idle",
	[R_IDLE_BITS] = "exchanges its bits, idle",
	[R_IDLE_SLEEP] = "sleeps idle, unless something has changed",
	[R_IDLE_END] = "is awake, and not idle",
};

static void
print_move(const struct state *s, const struct seen *how)
{
	bool writes = how->move == WRITER_GOES || how->move == WRITER_FLUSHES;
	const char *what = writes ? writer_names[s->w.step] : reader_names[s->r.step];

	if (how->move == WRITER_FLUSHES || how->move == READER_FLUSHES)
		what = "store gets into memory";
	printf("\t%s: %s", writes ? "writer" : "reader", what);
	if (how->choice)
		printf(" (choice %u)", how->choice);
	printf("\n");
}

/* Make all moves again, from the first state. */
static void
print_trace(const struct search *search, const struct state *first)
{
	struct state s = *first;
	uint32_t path[1000];
	size_t n = 0;

	for (uint32_t at = search->wrong_at; seen[at].from != at;
	     at = seen[at].from) {
		ck_assert_uint_lt(n, sizeof(path) / sizeof(path[0]));
		path[n++] = at;
	}
	while (n-- > 0) {
		const struct seen *how = &seen[path[n]];

		print_move(&s, how);
		ck_assert(make_move(search->rules, &s, how->move, how->choice));
	}
	printf("\t%s\n", wrongs[search->wrong]);
}

/* Returns what goes wrong, or FINE when all states have been seen. */
static uint8_t
search_all(const struct rules *rules, bool expected)
{
	struct search search = {.rules = rules};
	struct state first;
	struct seen how = {.hash = 0};

	memset(&first, 0, sizeof(first));
	memset(seen, 0, sizeof(seen));
	enter(&search, &first, &how, &how.from);
	seen[how.from].from = how.from;
	next_level.n = 0;
	append(&next_level, &first, how.from);
	while (next_level.n > 0 && !search.wrong) {
		struct level done = level;

		level = next_level;
		next_level = done;
		next_level.n = 0;
		for (size_t i = 0; i < level.n && !search.wrong; i++)
			expand(&search, &level.states[i], level.at[i]);
	}
	printf("%s, tell %u, most %u, S4 %s%s, omission %d: %u states%s%s\n",
	       rules->early_loads ? "LOADS" : "STORES", rules->tell, rules->most,
	       rules->s4_loads ? "loads first" : "exchanges", rules->idle ? ", idle" : "",
	       rules->omission, search.states, search.wrong ? ": " : "",
	       wrongs[search.wrong]);
	if (search.wrong && (!expected || getenv("RING_TRACE")))
		print_trace(&search, &first);
	fflush(stdout);
	return search.wrong;
}

/* ---- the tests ---- */

static void
assert_holds(bool early_loads, bool idle)
{
	static const struct rules all[] = {
		{.tell = 1},
		{.tell = 2, .most = 1, .s4_loads = true},
	};

	/* Of the largest one, the stricter rules alone. */
	for (size_t i = early_loads && idle; i < sizeof(all) / sizeof(all[0]); i++) {
		struct rules rules = all[i];

		rules.early_loads = early_loads;
		rules.idle = idle;
		ck_assert_int_eq(search_all(&rules, false), FINE);
	}
}

START_TEST(protocol_holds_where_stores_wait_in_buffers)
{
	assert_holds(false, false);
}
END_TEST

START_TEST(protocol_holds_where_loads_are_early_too)
{
	assert_holds(true, false);
}
END_TEST

START_TEST(idle_reader_makes_room_where_stores_wait_in_buffers)
{
	assert_holds(false, true);
}
END_TEST

START_TEST(idle_reader_makes_room_where_loads_are_early_too)
{
	assert_holds(true, true);
}
END_TEST

static void
assert_needed(enum omission omission, uint8_t wrong)
{
	const struct rules stores = {.tell = 1, .omission = omission};
	const struct rules loads = {
		.early_loads = true, .tell = 2, .s4_loads = true, .omission = omission};

	/* x86 needs not be asked for these orders. */
	if (omission != W3_RELEASE && omission != PEEK_ACQUIRE)
		ck_assert_int_eq(search_all(&stores, true), wrong);
	ck_assert_int_eq(search_all(&loads, true), wrong);
}

START_TEST(message_without_its_steps_is_lost_or_torn)
{
	assert_needed(W1, WRONG_HEADER);
	assert_needed(W3_RELEASE, WRONG_BYTES);
	assert_needed(PEEK_ACQUIRE, WRONG_BYTES);
	assert_needed(W4, STUCK);
	assert_needed(W6, STUCK);
	assert_needed(W7, STUCK);
}
END_TEST

START_TEST(sleeper_without_its_steps_misses_a_message)
{
	assert_needed(S1, STUCK);
	assert_needed(S2, STUCK);
	assert_needed(S3, STUCK);
	assert_needed(S4, STUCK);
}
END_TEST

START_TEST(starved_writer_without_its_steps_waits_beside_room)
{
	assert_needed(REFRESH, STUCK);
	assert_needed(TELL_ORDER, STUCK);
}
END_TEST

static void
assert_needed_by_idle(enum omission omission, bool stores_too)
{
	struct rules rules = {
		.tell = 2, .most = 1, .s4_loads = true, .idle = true, .omission = omission};

	if (stores_too)
		ck_assert_int_eq(search_all(&rules, true), STUCK);
	rules.early_loads = true;
	ck_assert_int_eq(search_all(&rules, true), STUCK);
}

START_TEST(writer_waits_for_an_idle_reader_that_leaves_a_step_out)
{
	assert_needed_by_idle(IDLE_LOAD, true);
	assert_needed_by_idle(IDLE_LAST, true);
	assert_needed_by_idle(IDLE_DOORBELL, true);
	assert_needed_by_idle(IDLE_EVENTS, true);
	/* On x86 the store is one. */
	assert_needed_by_idle(IDLE_FENCE, false);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		protocol_holds_where_stores_wait_in_buffers,
		protocol_holds_where_loads_are_early_too,
		message_without_its_steps_is_lost_or_torn,
		sleeper_without_its_steps_misses_a_message,
		starved_writer_without_its_steps_waits_beside_room,
		idle_reader_makes_room_where_stores_wait_in_buffers,
		idle_reader_makes_room_where_loads_are_early_too,
		writer_waits_for_an_idle_reader_that_leaves_a_step_out,
	};

	return RUN_TESTS("near_ring", tests);
}
