/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of two sides (ring_model.h). */
#include "ring_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
is_loaded_by(enum side side, unsigned word)
{
	switch (word) {
	case WARMTH:
	case TAKEN:
	case LISTENING:
	case IDLE:
	case WRITER_BITS:
	case WRITER_DOORBELL:
		return side == WRITER;
	default:
		return side == READER;
	}
}

static void
drop_entry(struct entry *entries, uint8_t *n, unsigned at)
{
	(*n)--;
	memmove(&entries[at], &entries[at + 1], (*n - at) * sizeof(*entries));
	memset(&entries[*n], 0, sizeof(*entries));
}

static void
forget(struct state *s, enum side side, unsigned at)
{
	drop_entry(s->queue[side], &s->queued[side], at);
	if (at < s->behind[side])
		s->behind[side]--;
}

/* The oldest stores of the queue become known. */
void
ring_learn(struct state *s, enum side side, unsigned n)
{
	for (; n > 0; n--) {
		s->view[s->queue[side][0].word] = s->queue[side][0].value;
		forget(s, side, 0);
	}
}

/* The side's own store supersedes what it has not yet seen of the word. */
static void
learn_own(struct state *s, enum side side, unsigned word, uint8_t value)
{
	for (unsigned i = s->queued[side]; i-- > 0;) {
		if (s->queue[side][i].word == word)
			forget(s, side, i);
	}
	s->view[word] = value;
}

/* The value gets into memory. */
static void
write_memory(const struct rules *rules, struct state *s, enum side by, unsigned word,
             uint8_t value)
{
	enum side other = by == WRITER ? READER : WRITER;

	s->memory[word] = value;
	if (!rules->early_loads)
		return;
	if (is_loaded_by(by, word)) {
		learn_own(s, by, word, value);
		return;
	}
	if (s->queued[other] == QUEUE) {
		fprintf(stderr, "QUEUE is too small\n");
		abort();
	}
	s->queue[other][s->queued[other]++] = (struct entry){(uint8_t)word, value, 0};
}

void
ring_store(struct state *s, enum side side, unsigned word, unsigned value, enum order order)
{
	s->buffer[side][s->buffered[side]++] = (struct entry){
		(uint8_t)word, (uint8_t)value, order == RELEASE};
}

/* These need an empty buffer; false: not yet. */
bool
ring_fence(struct state *s, enum side side)
{
	if (s->buffered[side])
		return false;
	ring_learn(s, side, s->queued[side]);
	return true;
}

bool
ring_store_seq_cst(const struct rules *rules, struct state *s, enum side side, unsigned word,
                   unsigned value)
{
	if (s->buffered[side])
		return false;
	write_memory(rules, s, side, word, (uint8_t)value);
	s->behind[side] = s->queued[side];
	return true;
}

bool
ring_exchange(const struct rules *rules, struct state *s, enum side side, unsigned word,
              unsigned value, uint8_t *old_p)
{
	if (!ring_fence(s, side))
		return false;
	*old_p = s->memory[word];
	write_memory(rules, s, side, word, (uint8_t)value);
	return true;
}

bool
ring_set(const struct rules *rules, struct state *s, enum side side, unsigned word, unsigned value)
{
	uint8_t old;

	return ring_exchange(rules, s, side, word, value, &old);
}

/* The value of the view, or of the queue's i-th store from 1 on; false: that is of another word. */
static bool
load_early(struct state *s, enum side side, unsigned word, enum order order, unsigned i,
           uint8_t *value_p)
{
	unsigned behind = s->behind[side];

	if (order == SEQ_CST) {
		ring_learn(s, side, behind);
		order = ACQUIRE;
	}
	if (i == 0) {
		*value_p = s->view[word];
		return true;
	}
	if (i > s->queued[side] || s->queue[side][i - 1].word != word)
		return false;
	*value_p = s->queue[side][i - 1].value;
	if (order == ACQUIRE) {
		ring_learn(s, side, i);
		return true;
	}
	/* Loads of one word stay in order. */
	for (unsigned j = i; j-- > 0;) {
		if (s->queue[side][j].word == word)
			forget(s, side, j);
	}
	s->view[word] = *value_p;
	return true;
}

/* False: there is no such choice. */
bool
ring_load(const struct rules *rules, struct state *s, enum side side, unsigned word,
          enum order order, unsigned choice, uint8_t *value_p)
{
	for (unsigned i = s->buffered[side]; i-- > 0;) {
		if (s->buffer[side][i].word != word)
			continue;
		*value_p = s->buffer[side][i].value;
		return choice == 0;
	}
	if (rules->early_loads)
		return load_early(s, side, word, order, choice, value_p);
	*value_p = s->memory[word];
	return choice == 0;
}

/* A store leaves the buffer. */
bool
ring_flush(const struct rules *rules, struct state *s, enum side side, unsigned choice)
{
	struct entry *buffer = s->buffer[side];
	struct entry entry;

	if (choice >= s->buffered[side])
		return false;
	entry = buffer[choice];
	if (choice > 0 && (!rules->early_loads || entry.is_release))
		return false;
	for (unsigned i = 0; i < choice; i++) {
		if (buffer[i].word == entry.word)
			return false;
	}
	drop_entry(buffer, &s->buffered[side], choice);
	write_memory(rules, s, side, entry.word, entry.value);
	return true;
}

/* Ring a bell, whose sleeper goes on at step `awake`. */
bool
ring_ring(const struct rules *rules, struct state *s, enum side by)
{
	unsigned word = by == WRITER ? DOORBELL : WRITER_DOORBELL;

	if (!ring_set(rules, s, by, word, s->memory[word] + 1u))
		return false;
	if (by == WRITER && s->r.step == R_ASLEEP)
		s->r.step = R_UNLISTEN;
	if (by == WRITER && s->r.step == R_IDLE_ASLEEP)
		s->r.step = R_IDLE_END;
	if (by == READER && s->w.step == W_ASLEEP)
		s->w.step = W_UNLISTEN;
	return true;
}
