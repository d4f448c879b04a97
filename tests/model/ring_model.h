/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.near_ring: an exhaustive search of the protocol of a ring (transport/near/ring.h).
 *
 *   ring_model.h    the state, and what the sides of it know
 *   ring_memory.c   loads, stores and fences
 *   ring_writer.c   the writer, step by step
 *   ring_reader.c   the reader
 *   ring.c          the search, and the tests
 *
 * One ring of 4 cells from one rank to one other.  The *writer* publishes 3 messages of 1 or 2 cells
 * (W1 to W7), starves, and sleeps until the reader calls.  The *reader* passes: it answers its
 * bit, takes from a ring that is warm, cools it, tells what it has taken, listens and sleeps (S0
 * to S5).  A pass begins to listen, or cools the ring, whenever it likes to; it takes all there is,
 * or one message at a time (near.c: call_later).  All orders of the steps and all choices are
 * searched, breadth first, with a table of the states that were seen.  The table has 64 bits of a
 * hash of each: among a million states the chance that two have the same one is below 1 to
 * 10,000,000.
 *
 * What must hold in each state:
 *
 *   - the reader takes the messages in order, each once and whole, and finds 0 or a header in the
 *     cell where the next one begins;
 *   - the count that the writer loads is one that can be;
 *   - where no step is left, the reader has taken everything and the writer has ended.  The
 *     reader may go to sleep from each pass, so a writer that waits beside room ends there too.
 *     An *idle* reader waits for no message (runtime/core/room.c): it may sleep with messages left,
 *     but not while the writer waits for room.  It sets `idle` where the other one sets `listening`,
 *     cools nothing, and makes a pass.  Its store of `idle` is one here, with a fence behind it; the
 *     library's is a read-modify-write.
 *
 * Memory.  STORES is that of x86.  The stores of a side wait in its buffer, and get into memory in
 * order, at any time; its loads look there first.  Fences, seq_cst stores and read-modify-writes
 * wait until it is empty.
 *
 * LOADS is weaker.  A store may get into memory before earlier ones to other words, but a release
 * store comes behind all before it.  And a load may have been made early: each side has a *view*, the
 * values that it must know at least, and a queue of the stores that have got into memory since.  A
 * relaxed load returns the value of the view or any of the queue.  An acquire load does too, and what
 * was stored up to that value moves from the queue into the view, so later loads see it.  A
 * seq_cst load comes behind the side's last seq_cst store.  A fence or read-modify-write moves the
 * whole queue.  So a seq_cst store and a relaxed load behind it may change places.
 *
 * Not modelled: loads that pass later stores of their side; read-modify-writes of two
 * instructions with another access of the side between them; words that get to several other sides
 * at different times (there are two sides); counts that wrap, the credit, more than one ring.
 *
 * Each step that the proof in ring.h needs is left out once, and the search must find what goes
 * wrong then.  With RING_TRACE set it prints how.
 */
#ifndef RING_MODEL_H
#define RING_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { CELLS = 4, MESSAGES = 3, BUFFER = 6, QUEUE = 16 };
enum side { WRITER, READER };
enum { COLD, WARM };

/* The shared words: of each cell the first, and what is behind it. */
enum word {
	CELL,
	REST = CELL + CELLS,
	WARMTH = REST + CELLS,
	TAKEN,
	HUNGRY,
	BITS, /* of the reader; then its bell */
	LISTENING,
	IDLE,
	DOORBELL,
	WRITER_BITS,
	WRITER_LISTENING,
	WRITER_DOORBELL,
	WORDS
};

enum order { RELAXED, ACQUIRE, RELEASE, SEQ_CST };

enum writer_step {
	W_BEGIN,
	W_REFRESH_FIRST, /* only with REFRESH left out */
	W_STARVE,
	W_REFRESH,
	W_PUBLISH, /* W1 to W3, into the buffer */
	W_FENCE,   /* W4 */
	W_LOOK,
	W_BIT,
	W_LISTENING,
	W_RING,
	W_IDLE,
	W_IDLE_RING,
	W_S0_DOORBELL,
	W_S0_LISTEN,
	W_S2,
	W_S4_LOAD,
	W_S4,
	W_S5,
	W_ASLEEP,
	W_CALLED,
	W_UNLISTEN
};

enum reader_step {
	R_PASS,
	R_ANSWER_LOAD,
	R_ANSWER,
	R_COOL,
	R_PEEK,
	R_REST,
	R_PAYLOAD,
	R_TELL,
	R_HUNGRY_FIRST, /* only with TELL_ORDER left out */
	R_HUNGRY,
	R_FED,
	R_CALL,
	R_CALL_LISTENING,
	R_CALL_RING,
	R_MORE,
	R_CALL_LATER,
	R_S0_DOORBELL,
	R_S0_LISTEN, /* and S1 */
	R_S2_WARM,   /* the ring was warm: S3 comes next */
	R_S2,
	R_S4_LOAD,
	R_S4,
	R_S5,
	R_ASLEEP,
	R_UNLISTEN,
	R_IDLE_DOORBELL,
	R_IDLE,
	R_IDLE_FENCE,
	R_IDLE_BITS_LOAD,
	R_IDLE_BITS,
	R_IDLE_SLEEP,
	R_IDLE_ASLEEP,
	R_IDLE_END
};

enum omission {
	NOTHING,
	W1,
	W3_RELEASE,
	W4,
	W6,
	W7,
	S1,
	S2,
	S3,
	S4,
	PEEK_ACQUIRE,
	REFRESH,   /* the count is loaded before `hungry` is set, not behind it */
	TELL_ORDER, /* `hungry` is loaded before the count is stored */
	IDLE_LOAD,     /* the writer does not ask who is idle */
	IDLE_LAST,     /* the reader tests before it sets `idle`, not behind it */
	IDLE_FENCE,    /* no fence between the two */
	IDLE_DOORBELL, /* it loads the doorbell behind its test */
	IDLE_EVENTS    /* it sleeps although its test had events */
};

struct rules {
	bool early_loads; /* LOADS, else STORES */
	unsigned tell;    /* cells */
	unsigned most;    /* messages taken in a pass; 0: all */
	bool s4_loads;    /* S4 exchanges only if a relaxed load shows a bit, as answer_all does */
	bool idle;        /* the reader waits for no message */
	enum omission omission;
};

struct entry {
	uint8_t word, value, is_release;
};

/* Bytes only, all of them meaningful: a state is compared as it lies in memory. */
struct state {
	uint8_t memory[WORDS];
	uint8_t view[WORDS]; /* each word is loaded by one side only */
	uint8_t buffered[2], queued[2];
	uint8_t behind[2]; /* so many of the queue are older than the side's last seq_cst store */
	struct entry buffer[2][BUFFER];
	struct entry queue[2][QUEUE];
	uint8_t wrong; /* an index of `wrongs` */
	struct {
		uint8_t step, rung, sent, cells, next, taken;
	} w;
	struct {
		uint8_t step, rung, count, next, told, cells;
		uint8_t back; /* where a look goes on behind its last message */
		uint8_t n, events, warm, was_hungry;
		uint8_t alone; /* a waiter: it takes one message, and looks no further */
	} r;
};

enum { FINE, WRONG_HEADER, WRONG_BYTES, WRONG_COUNT, STUCK };

/* What is in a cell. */
static inline uint8_t
header_of(unsigned message, unsigned cells)
{
	return (uint8_t)(1 + message * 2 + (cells - 1));
}

/* In the second cell, where another message may have its word; it looks like none. */
static inline uint8_t
payload_of(unsigned message)
{
	return (uint8_t)(1 + MESSAGES * 2 + message);
}

/* ---- ring_memory.c ----
 *
 * What returns a bool: false if the side cannot do that now, or has no such choice; the state
 * is then of no use any more. */

/* Make what is next in the queue known. */
void ring_learn(struct state *s, enum side side, unsigned n);
void ring_store(struct state *s, enum side side, unsigned word, unsigned value,
                enum order order);
bool ring_store_seq_cst(const struct rules *rules, struct state *s, enum side side,
                        unsigned word, unsigned value);
/* Choice 0, 1, ...: the values that it may have. */
bool ring_load(const struct rules *rules, struct state *s, enum side side, unsigned word,
               enum order order, unsigned choice, uint8_t *value_p);
bool ring_fence(struct state *s, enum side side);
bool ring_exchange(const struct rules *rules, struct state *s, enum side side,
                   unsigned word, unsigned value, uint8_t *old_p);
/* An exchange whose old value nobody asks for. */
bool ring_set(const struct rules *rules, struct state *s, enum side side, unsigned word,
              unsigned value);
/* Ring the bell of the other side, which wakes it. */
bool ring_ring(const struct rules *rules, struct state *s, enum side by);
/* One of the side's stores gets into memory. */
bool ring_flush(const struct rules *rules, struct state *s, enum side side,
                unsigned choice);

/* ---- ring_writer.c, ring_reader.c ---- */

/* Make the side's next step; false as above. */
bool ring_writer_goes(const struct rules *rules, struct state *s, unsigned choice);
bool ring_reader_goes(const struct rules *rules, struct state *s, unsigned choice);
/* The side makes a fence or a read-modify-write before its next load, if no step is left out.  What
 * is in its queue then makes no difference. */
bool ring_writer_fences(const struct state *s);
bool ring_reader_fences(const struct state *s);

#endif
