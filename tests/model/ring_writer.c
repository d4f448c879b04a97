/* SPDX-License-Identifier: BSD-3-Clause */
/* The writer of a ring, step by step (ring_model.h). */
#include "ring_model.h"

static bool
has_room(const struct state *s)
{
	return s->w.next + s->w.cells + 1u - s->w.taken <= CELLS;
}

static void
try_room(const struct rules *rules, struct state *s)
{
	if (has_room(s))
		s->w.step = W_PUBLISH;
	else
		s->w.step = rules->omission == REFRESH ? W_REFRESH_FIRST : W_STARVE;
}

static bool
publish(const struct rules *rules, struct state *s)
{
	unsigned cell = s->w.next % CELLS;

	if (s->buffered[WRITER] + 4 > BUFFER)
		return false;
	if (rules->omission != W1)
		ring_store(s, WRITER, CELL + (s->w.next + s->w.cells) % CELLS, 0, RELAXED);
	ring_store(s, WRITER, REST + cell, payload_of(s->w.sent), RELAXED);
	if (s->w.cells == 2)
		ring_store(s, WRITER, CELL + (cell + 1) % CELLS, payload_of(s->w.sent), RELAXED);
	ring_store(s, WRITER, CELL + cell, header_of(s->w.sent, s->w.cells),
	           rules->omission == W3_RELEASE ? RELAXED : RELEASE);
	s->w.step = rules->omission == W4 ? W_LOOK : W_FENCE;
	return true;
}

static bool
published(struct state *s)
{
	s->w.sent++;
	s->w.next = (uint8_t)(s->w.next + s->w.cells);
	s->w.cells = 0;
	s->w.step = W_BEGIN;
	return true;
}

/* There is no room. */
static enum writer_step
begin_sleep(const struct rules *rules)
{
	return rules->idle && rules->omission != IDLE_LOAD ? W_IDLE : W_S0_DOORBELL;
}

static bool
refresh(const struct rules *rules, struct state *s, unsigned choice)
{
	uint8_t taken;

	if (!ring_load(rules, s, WRITER, TAKEN, SEQ_CST, choice, &taken))
		return false;
	if (taken < s->w.taken || taken > s->w.next)
		s->wrong = WRONG_COUNT;
	s->w.taken = taken;
	return true;
}

/* The steps that have one: loads, and decisions. */
static const uint32_t writer_choices = 1u << W_BEGIN | 1u << W_REFRESH_FIRST | 1u << W_REFRESH |
                                       1u << W_LOOK | 1u << W_LISTENING |
                                       1u << W_IDLE | 1u << W_S0_DOORBELL | 1u << W_S4_LOAD;

/* The writer's sleep: a pass that looks at its bits, as the reader's. */
static bool
writer_sleeps(const struct rules *rules, struct state *s, unsigned choice)
{
	uint8_t value = 0;

	switch (s->w.step) {
	case W_S0_DOORBELL:
		if (!ring_load(rules, s, WRITER, WRITER_DOORBELL, SEQ_CST, choice, &s->w.rung))
			return false;
		s->w.step = W_S0_LISTEN;
		return true;
	case W_S0_LISTEN:
		s->w.step = W_S2;
		return ring_set(rules, s, WRITER, WRITER_LISTENING, 1);
	case W_S2:
		s->w.step = rules->s4_loads ? W_S4_LOAD : W_S4;
		return ring_fence(s, WRITER);
	case W_S4_LOAD:
		if (!ring_load(rules, s, WRITER, WRITER_BITS, RELAXED, choice, &value))
			return false;
		s->w.step = value ? W_S4 : W_S5;
		return true;
	case W_S4:
		if (!ring_exchange(rules, s, WRITER, WRITER_BITS, 0, &value))
			return false;
		s->w.step = value ? W_CALLED : W_S5;
		return true;
	case W_S5:
		if (!ring_fence(s, WRITER))
			return false;
		s->w.step = s->memory[WRITER_DOORBELL] == s->w.rung ? W_ASLEEP : W_UNLISTEN;
		return true;
	case W_CALLED:
		s->w.rung = 0;
		if (!ring_set(rules, s, WRITER, WRITER_LISTENING, 0))
			return false;
		try_room(rules, s);
		return true;
	case W_UNLISTEN:
		s->w.rung = 0;
		s->w.step = W_S0_DOORBELL;
		return ring_set(rules, s, WRITER, WRITER_LISTENING, 0);
	default:
		return false; /* W_ASLEEP */
	}
}

bool
ring_writer_goes(const struct rules *rules, struct state *s, unsigned choice)
{
	unsigned step = s->w.step;
	uint8_t value = 0;

	if (choice > 0 && !(writer_choices >> step & 1))
		return false;
	if (step >= W_S0_DOORBELL)
		return writer_sleeps(rules, s, choice);
	if (step == W_BEGIN) {
		if (s->w.sent == MESSAGES || choice > 1)
			return false;
		s->w.cells = (uint8_t)(1 + choice);
		try_room(rules, s);
		return true;
	}
	if (step == W_REFRESH_FIRST || step == W_REFRESH) {
		if (!refresh(rules, s, choice))
			return false;
		if (has_room(s))
			s->w.step = W_PUBLISH;
		else
			s->w.step = (uint8_t)(step == W_REFRESH ? begin_sleep(rules) : W_STARVE);
		return true;
	}
	if (step == W_LOOK) {
		if (!ring_load(rules, s, WRITER, WARMTH, RELAXED, choice, &value))
			return false;
		s->w.step = W_BIT;
		return value == WARM ? published(s) : true;
	}
	if (step == W_IDLE) {
		if (!ring_load(rules, s, WRITER, IDLE, SEQ_CST, choice, &value))
			return false;
		s->w.step = value ? W_IDLE_RING : W_S0_DOORBELL;
		return true;
	}
	if (step == W_LISTENING) {
		if (!ring_load(rules, s, WRITER, LISTENING, SEQ_CST, choice, &value))
			return false;
		s->w.step = W_RING;
		return value ? true : published(s);
	}
	switch (step) {
	case W_STARVE:
		s->w.step = (uint8_t)(rules->omission == REFRESH ? begin_sleep(rules) : W_REFRESH);
		return ring_store_seq_cst(rules, s, WRITER, HUNGRY, 1);
	case W_PUBLISH:
		return publish(rules, s);
	case W_FENCE:
		s->w.step = W_LOOK;
		return ring_fence(s, WRITER);
	case W_BIT:
		if (rules->omission == W7)
			return ring_set(rules, s, WRITER, BITS, 1) && published(s);
		s->w.step = W_LISTENING;
		return rules->omission == W6 || ring_set(rules, s, WRITER, BITS, 1);
	case W_IDLE_RING:
		s->w.step = W_S0_DOORBELL;
		return ring_ring(rules, s, WRITER);
	default: /* W_RING */
		return ring_ring(rules, s, WRITER) && published(s);
	}
}

bool
ring_writer_fences(const struct state *s)
{
	const uint32_t steps = 1u << W_PUBLISH | 1u << W_FENCE | 1u << W_BIT | 1u << W_RING |
	                       1u << W_IDLE_RING |
	                       1u << W_S0_LISTEN | 1u << W_S2 | 1u << W_S4 | 1u << W_S5 |
	                       1u << W_ASLEEP | 1u << W_CALLED | 1u << W_UNLISTEN;

	return steps >> s->w.step & 1;
}
