/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader of a ring, step by step (ring_model.h). */
#include "ring_model.h"

static bool
read_to(struct state *s, enum reader_step back)
{
	s->r.back = (uint8_t)back;
	s->r.step = R_PEEK;
	s->r.n = 0;
	return true;
}

static bool
back_from_reading(struct state *s)
{
	s->r.step = s->r.back;
	s->r.back = s->r.n = s->r.alone = 0;
	return true;
}

static bool
peek(const struct rules *rules, struct state *s, unsigned choice)
{
	enum order order = rules->omission == PEEK_ACQUIRE ? RELAXED : ACQUIRE;
	uint8_t word;

	if (!ring_load(rules, s, READER, CELL + s->r.next % CELLS, order, choice, &word))
		return false;
	if (word == 0)
		return back_from_reading(s);
	s->r.cells = word == header_of(s->r.count, 2) ? 2 : 1;
	if (s->r.count == MESSAGES || word != header_of(s->r.count, s->r.cells))
		s->wrong = WRONG_HEADER;
	s->r.step = R_REST;
	return true;
}

static void
go_on_reading(const struct rules *rules, struct state *s)
{
	s->r.was_hungry = 0;
	if (s->r.alone) {
		back_from_reading(s);
		return;
	}
	s->r.step = ++s->r.n == rules->most ? R_MORE : R_PEEK;
	if (rules->most == 0)
		s->r.n = 0;
}

/* The message that was looked at, all of it. */
static void
take_seen(const struct rules *rules, struct state *s)
{
	s->r.next = (uint8_t)(s->r.next + s->r.cells);
	s->r.cells = 0;
	s->r.count++;
	s->r.events = 1;
	if ((unsigned)(s->r.next - s->r.told) < rules->tell)
		go_on_reading(rules, s);
	else
		s->r.step = rules->omission == TELL_ORDER ? R_HUNGRY_FIRST : R_TELL;
}

/* The bytes of the message, in its first cell or in its second one. */
static bool
check_bytes(const struct rules *rules, struct state *s, unsigned choice)
{
	unsigned word = s->r.step == R_REST ? REST + s->r.next % CELLS
	                                    : CELL + (s->r.next + 1) % CELLS;
	uint8_t value;

	if (!ring_load(rules, s, READER, word, RELAXED, choice, &value))
		return false;
	if (value != payload_of(s->r.count))
		s->wrong = WRONG_BYTES;
	if (s->r.step == R_REST && s->r.cells == 2)
		s->r.step = R_PAYLOAD;
	else
		take_seen(rules, s);
	return true;
}

/* Telling what was taken, and calling a writer that is hungry. */
static bool
reader_tells(const struct rules *rules, struct state *s, unsigned choice)
{
	uint8_t value = 0;

	switch (s->r.step) {
	case R_HUNGRY_FIRST:
		if (!ring_load(rules, s, READER, HUNGRY, SEQ_CST, choice, &s->r.was_hungry))
			return false;
		s->r.step = R_TELL;
		return true;
	case R_TELL:
		s->r.told = s->r.next;
		s->r.step = R_HUNGRY;
		if (!ring_store_seq_cst(rules, s, READER, TAKEN, s->r.next))
			return false;
		if (rules->omission == TELL_ORDER && !s->r.was_hungry)
			go_on_reading(rules, s);
		else if (rules->omission == TELL_ORDER)
			s->r.step = R_FED;
		return true;
	case R_HUNGRY:
		if (!ring_load(rules, s, READER, HUNGRY, SEQ_CST, choice, &value))
			return false;
		s->r.step = R_FED;
		if (!value)
			go_on_reading(rules, s);
		return true;
	case R_FED:
		if (!ring_exchange(rules, s, READER, HUNGRY, 0, &value))
			return false;
		s->r.step = R_CALL;
		if (!value)
			go_on_reading(rules, s);
		return true;
	case R_CALL:
		s->r.step = R_CALL_LISTENING;
		return ring_set(rules, s, READER, WRITER_BITS, 1);
	case R_CALL_LISTENING:
		if (!ring_load(rules, s, READER, WRITER_LISTENING, SEQ_CST, choice, &value))
			return false;
		s->r.step = R_CALL_RING;
		if (!value)
			go_on_reading(rules, s);
		return true;
	default: /* R_CALL_RING */
		if (!ring_ring(rules, s, READER))
			return false;
		go_on_reading(rules, s);
		return true;
	}
}

/* S1, or the ring becomes warm. */
static bool
set_warmth(struct state *s, unsigned warmth)
{
	if (s->r.warm == warmth)
		return true;
	if (s->buffered[READER] == BUFFER)
		return false;
	s->r.warm = (uint8_t)warmth;
	ring_store(s, READER, WARMTH, warmth, RELAXED);
	return true;
}

static enum reader_step
begin_idle(const struct rules *rules)
{
	if (rules->omission == IDLE_LAST)
		return R_IDLE_BITS_LOAD;
	return rules->omission == IDLE_DOORBELL ? R_IDLE : R_IDLE_DOORBELL;
}

/* A pass while nobody listens, or a waiter's poll between two passes. */
static bool
reader_passes(const struct rules *rules, struct state *s, unsigned choice)
{
	uint8_t value = 0;

	switch (s->r.step) {
	case R_PASS:
		s->r.events = 0;
		if (choice == 0)
			s->r.step = R_ANSWER_LOAD;
		else if (choice == 1)
			s->r.step = (uint8_t)(rules->idle ? begin_idle(rules) : R_S0_DOORBELL);
		else if (choice == 2 && s->r.warm)
			s->r.step = R_COOL;
		else if (choice == 3)
			s->r.alone = read_to(s, R_PASS);
		else
			return false;
		return s->r.step != R_COOL || set_warmth(s, COLD);
	case R_ANSWER_LOAD:
		if (!ring_load(rules, s, READER, BITS, RELAXED, choice, &value))
			return false;
		s->r.step = value ? R_ANSWER : R_PASS;
		return !value && s->r.warm ? read_to(s, R_PASS) : true;
	case R_ANSWER:
		if (!ring_exchange(rules, s, READER, BITS, 0, &value))
			return false;
		return set_warmth(s, WARM) && read_to(s, R_PASS);
	default: /* R_COOL */
		return ring_fence(s, READER) && read_to(s, R_PASS);
	}
}

static bool
reader_takes(const struct rules *rules, struct state *s, unsigned choice)
{
	uint8_t value = 0;

	switch (s->r.step) {
	case R_PEEK:
		return peek(rules, s, choice);
	case R_REST:
	case R_PAYLOAD:
		return check_bytes(rules, s, choice);
	case R_MORE:
		if (!ring_load(rules, s, READER, CELL + s->r.next % CELLS, ACQUIRE, choice,
		               &value))
			return false;
		s->r.step = R_CALL_LATER;
		return value ? true : back_from_reading(s);
	case R_CALL_LATER:
		return ring_set(rules, s, READER, BITS, 1) && back_from_reading(s);
	default:
		return reader_tells(rules, s, choice);
	}
}

static enum reader_step
begin_s4(const struct rules *rules)
{
	if (rules->omission == S4)
		return R_S5;
	return rules->s4_loads ? R_S4_LOAD : R_S4;
}

static bool
reader_sleeps(const struct rules *rules, struct state *s, unsigned choice)
{
	uint8_t value = 0;

	switch (s->r.step) {
	case R_S0_DOORBELL:
		s->r.step = R_S0_LISTEN;
		return ring_load(rules, s, READER, DOORBELL, SEQ_CST, choice, &s->r.rung);
	case R_S0_LISTEN:
		s->r.step = s->r.warm && rules->omission != S3 ? R_S2_WARM : R_S2;
		return ring_set(rules, s, READER, LISTENING, 1) &&
		       (rules->omission == S1 || set_warmth(s, COLD));
	case R_S2_WARM:
		read_to(s, begin_s4(rules));
		return rules->omission == S2 || ring_fence(s, READER);
	case R_S2:
		s->r.step = (uint8_t)(begin_s4(rules));
		return rules->omission == S2 || ring_fence(s, READER);
	case R_S4_LOAD:
		if (!ring_load(rules, s, READER, BITS, RELAXED, choice, &value))
			return false;
		s->r.step = value ? R_S4 : R_S5;
		return true;
	case R_S4:
		if (!ring_exchange(rules, s, READER, BITS, 0, &value))
			return false;
		s->r.step = R_S5;
		return value ? read_to(s, R_S5) : true;
	case R_S5:
		if (s->r.events) {
			s->r.events = 0;
			s->r.step = choice == 0 ? R_UNLISTEN : R_S2;
			return choice <= 1;
		}
		s->r.step = s->memory[DOORBELL] == s->r.rung ? R_ASLEEP : R_UNLISTEN;
		return choice == 0 && ring_fence(s, READER);
	case R_UNLISTEN:
		s->r.rung = 0;
		s->r.step = R_PASS;
		return ring_set(rules, s, READER, LISTENING, 0);
	default:
		return false; /* R_ASLEEP */
	}
}

/* Behind the test of an idle reader. */
static enum reader_step
idle_tested(const struct rules *rules)
{
	return rules->omission == IDLE_LAST || rules->omission == IDLE_DOORBELL
	               ? R_IDLE_DOORBELL
	               : R_IDLE_SLEEP;
}

/* The sleep of a reader that waits for no message, with a pass in it. */
static bool
reader_idles(const struct rules *rules, struct state *s, unsigned choice)
{
	uint8_t value = 0;

	switch (s->r.step) {
	case R_IDLE_DOORBELL:
		s->r.step = rules->omission == IDLE_DOORBELL ? R_IDLE_SLEEP : R_IDLE;
		return ring_load(rules, s, READER, DOORBELL, SEQ_CST, choice, &s->r.rung);
	case R_IDLE:
		s->r.step = rules->omission == IDLE_FENCE  ? R_IDLE_BITS_LOAD
		            : rules->omission == IDLE_LAST ? R_IDLE_SLEEP
		                                           : R_IDLE_FENCE;
		return ring_store_seq_cst(rules, s, READER, IDLE, 1);
	case R_IDLE_FENCE:
		s->r.step = R_IDLE_BITS_LOAD;
		return ring_fence(s, READER);
	case R_IDLE_BITS_LOAD:
		if (!ring_load(rules, s, READER, BITS, RELAXED, choice, &value))
			return false;
		s->r.step = (uint8_t)(value ? R_IDLE_BITS : idle_tested(rules));
		return !value && s->r.warm ? read_to(s, idle_tested(rules)) : true;
	case R_IDLE_BITS:
		if (!ring_exchange(rules, s, READER, BITS, 0, &value))
			return false;
		return set_warmth(s, WARM) && read_to(s, idle_tested(rules));
	case R_IDLE_SLEEP:
		s->r.step = (s->r.events && rules->omission != IDLE_EVENTS) ||
		                            s->memory[DOORBELL] != s->r.rung
		                    ? R_IDLE_END
		                    : R_IDLE_ASLEEP;
		s->r.events = 0;
		return ring_fence(s, READER);
	case R_IDLE_END:
		s->r.rung = 0;
		s->r.step = R_PASS;
		return ring_set(rules, s, READER, IDLE, 0);
	default:
		return false; /* R_IDLE_ASLEEP */
	}
}

static const uint32_t reader_choices =
	1u << R_PASS | 1u << R_ANSWER_LOAD | 1u << R_PEEK | 1u << R_REST | 1u << R_PAYLOAD |
	1u << R_HUNGRY_FIRST | 1u << R_HUNGRY | 1u << R_CALL_LISTENING | 1u << R_MORE |
	1u << R_S0_DOORBELL | 1u << R_S4_LOAD | 1u << R_S5 | 1u << R_IDLE_DOORBELL |
	1u << R_IDLE_BITS_LOAD;

bool
ring_reader_goes(const struct rules *rules, struct state *s, unsigned choice)
{
	unsigned step = s->r.step;

	if (choice > 0 && (step == R_IDLE_END || !(reader_choices >> step & 1)))
		return false;
	if (step <= R_COOL)
		return reader_passes(rules, s, choice);
	if (step < R_S0_DOORBELL)
		return reader_takes(rules, s, choice);
	if (step < R_IDLE_DOORBELL)
		return reader_sleeps(rules, s, choice);
	return reader_idles(rules, s, choice);
}

bool
ring_reader_fences(const struct state *s)
{
	const uint64_t steps = 1u << R_ANSWER | 1u << R_COOL | 1u << R_FED | 1u << R_CALL |
	                       1u << R_CALL_RING | 1u << R_CALL_LATER |
	                       1u << R_S0_LISTEN | 1u << R_S2_WARM | 1u << R_S2 |
	                       1u << R_S4 | 1u << R_S5 | 1u << R_ASLEEP |
	                       1u << R_UNLISTEN | 1u << R_IDLE | 1u << R_IDLE_FENCE |
	                       1u << R_IDLE_BITS | 1u << R_IDLE_SLEEP | 1u << R_IDLE_ASLEEP |
	                       UINT64_C(1) << R_IDLE_END;

	return steps >> s->r.step & 1;
}
