/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings: memory from one rank to one other of the same node, through which messages go.
 *
 * A ring is an array of CELLS cells of 32 bytes, in the receiver's segment, with one writer (the
 * sender's driver) and one reader (the receiver's).  A message is one or more cells:
 *
 *     cell 0:  0  word   u64  the one store that publishes; 0: nothing is here
 *                        bits 0-7 kind, 8-15 type + 1 or 0, 16-31 cells, 32-63 tag
 *              8  length u64
 *             16  payload; goes on in the next cells, and from the end of the ring to its beginning
 *
 * Zeros are an empty ring, so a ring needs no initialising and no handshake.  This file knows cells,
 * room and wake-ups, and nothing of transfers.
 *
 * Publishing.  The sender needs one cell more than the message has:
 *
 *     W1  store 0 into the word of the cell behind the message (relaxed)
 *     W2  copy length and payload
 *     W3  store the word (release)
 *     W4  fence (seq_cst)
 *     W5  load `warmth`; WARM: done.  COLD:
 *     W6  set its bit in the receiver's `bits`
 *     W7  load the receiver's bell->listening; not 0: ring
 *
 * W1 precedes W3, so a reader that has seen a message finds 0 behind it, or the next one, and never an
 * old payload.
 *
 * Polling.  The reader polls the rings of its *warm* set, whose `warmth` is WARM, and those
 * whose bit is set.  So a pass does not poll silent rings, and the sender of a warm one stores
 * nothing but its message.  While a thread of the reader's process listens (shm.h), no ring may
 * stay warm behind a pass, or a message could hide from that thread:
 *
 *     S0  (the engine) load doorbell, set a bit of listening
 *     S1  store COLD into `warmth` of each warm ring
 *     S2  fence (seq_cst)
 *     S3  look at the head of each of these rings
 *     S4  exchange `bits`
 *     S5  (the engine) sleep unless doorbell has changed, if the pass had no event
 *
 * No wake-up is lost.  Let W3 of a message be executed, and assume that S3 and S4 do not see it and the
 * reader sleeps.  (a) W5 reads WARM.  If W4 precedes S2 in the order of seq_cst fences, S3 reads
 * W3's word: contradiction.  Else W5, behind W4, reads what S1 stored before S2, or later: COLD;
 * contradiction.  (b) W5 reads COLD.  W6 and S4 are read-modify-writes of one word.  If W6 is
 * first, S4 sees the bit: contradiction.  Else S0 precedes S4, and W7 comes behind W6, so W7 reads
 * `listening` with the bit of S0 and rings: doorbell differs from what S0 has loaded, or the
 * reader is woken.  A ring that is never warm is case (b).  (S4 may load the word, and exchange it
 * if it is not 0: the load is behind S2, which then stands for S4 in the argument.)
 *
 * The thread may be a program's, in epoll: its bit of S0 is BATONI_LISTEN_FD, which W7's ring takes away and
 * answers with a byte in the pipe (batoni_bell_call).  If another ringer takes the bit between S0 and W7, its
 * byte wakes the program instead, and comes behind S0.  runtime/core/queue_pipe.c has that part of the proof.
 *
 * Room.  The reader's `taken` counts the cells that it has taken, `matched` those of messages with
 * their bytes in them that have met a receive; both are stored when they have grown by
 * TELL cells.  A sender without room sets `hungry`, loads `taken` once more, and is rung
 * for by its bit when that grows; the reader stores `taken`, then loads `hungry`, so one of the
 * two sees the other.  TELL and the longest message together are no more than the ring: a sender
 * that waits sees room when the reader has taken all that is there.
 *
 * An idle reader waits for no message of this ring, and may leave some in it, but not while the sender waits for
 * room (runtime/core/room.c).  It sleeps so, and the sender without room goes on so:
 *
 *     I0  load doorbell, set a bit of `idle`            X0  store `hungry`
 *     I1  fence (seq_cst)                               X1  load `taken`; room: done
 *     I2  poll as in a pass, which makes no ring cold   X2  load `idle`; not 0: ring
 *     I3  sleep unless doorbell has changed, if I2 had no event
 *
 * If X2 reads `idle` without the bit, it precedes I0, and W4 of all that fills the ring precedes I1: I2 sees
 * these messages and takes them, and `taken` and `hungry` do the rest.  If I2 had an event, some may be left.
 * Else X2 rings: doorbell differs from what I0 has loaded, or the reader is woken, and polls before it sleeps
 * again.
 *
 * Credit.  A message may go with its bytes only while those that have met no receive have at most
 * CREDIT cells together, so that the reader can always take everything out: it keeps no more than
 * that of one sender.
 *
 * What the other side has written is checked before it is used (batoni_ring_peek, batoni_ring_has_room).
 */
#ifndef BATONI_RING_H
#define BATONI_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "shm.h"

#define BATONI_RING_FORMAT 4u
#define BATONI_RING_CELL 32u
/* A ring of 16 KiB stays in the nearest cache of both cores, beside what they copy from and to: windows of
 * 1 and 2 KiB take a quarter less time than by one of 64 KiB (docs/performance.md). */
#define BATONI_RING_CELLS 512u
/* How many cells of messages with their bytes may wait without a receive. */
#define BATONI_RING_CREDIT 2048u
/* Cells of a cache line. */
#define BATONI_RING_LINE 2u
/* A message of up to so many cells is written in the order that suits a reader that polls. */
#define BATONI_RING_PREPARED 32u
#define BATONI_RING_BYTES ((size_t)BATONI_RING_CELL * BATONI_RING_CELLS)
/* The most bytes of a message that goes with its bytes, and of any payload; 258 cells at most. */
#define BATONI_RING_WHOLE_MAX ((size_t)8192)
#define BATONI_RING_PAYLOAD_MAX (BATONI_RING_WHOLE_MAX + 16)
/* How many bytes of the payload are in the first cell. */
#define BATONI_RING_FIRST 16u
#define BATONI_RING_TELL (BATONI_RING_CELLS / 8)
/* How many cells an announcement has that names a block. */
#define BATONI_RING_BLOCK_CELLS 3u

enum batoni_ring_kind {
	BATONI_RING_NONE,
	BATONI_RING_SHORT,    /* a message: `length` bytes */
	BATONI_RING_ANNOUNCE, /* a message of `length` bytes, which are elsewhere */
	BATONI_RING_LIST,     /* a list of tensors: its header's bytes (u32), 0 (u32), both */
	BATONI_RING_LIST_ANNOUNCE, /* one with a payload of `length` bytes, likewise */
	BATONI_RING_DONE,     /* its bytes have been copied */
	BATONI_RING_GRANT,    /* they are to come by CHUNKs */
	BATONI_RING_CHUNK,
	BATONI_RING_GONE,     /* a block of its sender's (block.h): the serial; 0: all of them */
	BATONI_RING_KINDS
};

enum { BATONI_RING_COLD, BATONI_RING_WARM };

/* The header of a message. */
struct batoni_ring_head {
	uint32_t tag;
	uint8_t kind; /* enum batoni_ring_kind */
	uint8_t type; /* of its elements, plus one; 0: it says nothing of them */
	uint16_t cells;
	uint64_t length; /* of an announcement: the message's; else the payload's */
};

/* What a rank's area has of the ring from one other rank.  The first line is written by the
 * owner of the area, the second by the other rank. */
struct batoni_ring_control {
	_Alignas(64) _Atomic uint32_t taken;
	_Atomic uint32_t matched;
	_Atomic uint32_t warmth;
	_Alignas(64) _Atomic uint32_t hungry;
	/* Of what this rank has announced to the other, some has been copied for which there
	 * was no room to say so. */
	_Atomic uint32_t scan;
};

/* The area of a rank, in its segment, as it is mapped here: its bits, its controls, the states of
 * what it has announced, and the rings to it.  Laid out alike on all ranks. */
struct batoni_ring_layout {
	int size;         /* ranks */
	size_t controls_at;
	size_t states_at; /* a u64 for each slot */
	size_t rings_at;
	size_t bytes;
};

void batoni_ring_lay_out(int size, uint32_t slots, struct batoni_ring_layout *layout);

static inline _Atomic uint64_t *
batoni_ring_bits(char *area, int rank)
{
	return (_Atomic uint64_t *)(void *)area + rank / 64;
}

static inline struct batoni_ring_control *
batoni_ring_control(const struct batoni_ring_layout *layout, char *area, int rank)
{
	return (struct batoni_ring_control *)(void *)(area + layout->controls_at) +
	       rank;
}

static inline _Atomic uint64_t *
batoni_ring_state(const struct batoni_ring_layout *layout, char *area, uint32_t slot)
{
	return (_Atomic uint64_t *)(void *)(area + layout->states_at) + slot;
}

/* The cells of the ring from this rank to the area's. */
static inline char *
batoni_ring_cells_of(const struct batoni_ring_layout *layout, char *area, int rank)
{
	return area + layout->rings_at + (size_t)rank * BATONI_RING_BYTES;
}

/* The cells of a message with so many bytes of payload. */
static inline uint32_t
batoni_ring_cells(size_t payload)
{
	return payload <= BATONI_RING_FIRST
	               ? 1
	               : 1 + (uint32_t)((payload - BATONI_RING_FIRST +
	                                 BATONI_RING_CELL - 1) /
	                                BATONI_RING_CELL);
}

/* ---- the sender's end ---- */

struct batoni_ring_out {
	char *cells;
	struct batoni_ring_control *control;
	_Atomic uint64_t *bits; /* the word with this rank's bit */
	uint64_t bit;
	struct batoni_bell *bell;
	const struct batoni_pipe *pipe; /* of that process, or NULL */
	uint32_t next;    /* cells published so far, modulo 2^32, as all these */
	uint32_t taken;   /* as last told */
	uint32_t copied;  /* cells of SHORTs published */
	uint32_t matched; /* as last told */
};

/* Tell the other rank to look at this one: its bit, and its bell if it listens. */
void batoni_ring_call(const struct batoni_ring_out *out);

/* Load what the reader tells of room; slow.  False: what it tells breaks the rules. */
bool batoni_ring_refresh(struct batoni_ring_out *out);

/* As far as is known. */
static inline bool
batoni_ring_has_room(const struct batoni_ring_out *out, uint32_t cells)
{
	return out->next + cells + 1 - out->taken <= BATONI_RING_CELLS;
}

static inline bool
batoni_ring_has_credit(const struct batoni_ring_out *out, uint32_t cells)
{
	return out->copied + cells - out->matched <= BATONI_RING_CREDIT;
}

/* There is no room: have the reader call when there is more.  True: there is, for so many cells.
 * `broken`: what it tells cannot be. */
bool batoni_ring_starve(struct batoni_ring_out *out, uint32_t cells, bool *broken);

/* Where in the ring this byte lies of the payload of the message that begins at the cell. */
static inline size_t
batoni_ring_offset(uint32_t cell, size_t at)
{
	return ((size_t)(cell % BATONI_RING_CELLS) * BATONI_RING_CELL +
	        BATONI_RING_FIRST + at) %
	       BATONI_RING_BYTES;
}

/* From or to the first cell: without a call up to 16 bytes. */
static inline void
batoni_ring_copy_few(char *to, const char *from, size_t bytes)
{
	uint64_t first, last;

	if (__builtin_expect(bytes > 16, 0)) {
		memcpy(to, from, bytes);
	} else if (bytes >= 8) {
		memcpy(&first, from, 8);
		memcpy(&last, from + bytes - 8, 8);
		memcpy(to, &first, 8);
		memcpy(to + bytes - 8, &last, 8);
	} else {
		for (size_t i = 0; i < bytes; i++)
			to[i] = from[i];
	}
}

static inline void
batoni_ring_copy_in(const struct batoni_ring_out *out, size_t at, const void *from,
                    size_t bytes)
{
	size_t begin = batoni_ring_offset(out->next, at);
	size_t first = BATONI_RING_BYTES - begin;

	if (__builtin_expect(first >= bytes, 1)) {
		memcpy(out->cells + begin, from, bytes);
		return;
	}
	memcpy(out->cells + begin, from, first);
	memcpy(out->cells, (const char *)from + first, bytes - first);
}

static inline char *
batoni_ring_cell(char *cells, uint32_t at)
{
	return cells + (size_t)(at % BATONI_RING_CELLS) * BATONI_RING_CELL;
}

static inline _Atomic uint64_t *
batoni_ring_word(char *cells, uint32_t at)
{
	return (_Atomic uint64_t *)(void *)batoni_ring_cell(cells, at);
}

/* W4 and S2.  ThreadSanitizer knows no fences: there it is a read-modify-write, which is one on the
 * machines that it runs on. */
static inline void
batoni_ring_fence(void)
{
#ifdef __SANITIZE_THREAD__
	static _Atomic int all;

	atomic_fetch_add(&all, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* W1, for a message of so many cells. */
static inline void
batoni_ring_clear_behind(struct batoni_ring_out *out, uint32_t cells)
{
	atomic_store_explicit(batoni_ring_word(out->cells, out->next + cells), 0,
	                      memory_order_relaxed);
}

static inline void
batoni_ring_prefetch(char *line)
{
#ifdef __x86_64__
	/* Without -mprfchw the compiler's own is a prefetch for reading. */
	__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* How many lines lie between the first line of a message at this cell and that of the cell
 * behind it. */
static inline uint32_t
batoni_ring_lines_behind(uint32_t cell, uint32_t cells)
{
	return (cell % BATONI_RING_LINE + cells) / BATONI_RING_LINE;
}

/* Ask for the lines of a message of so many cells, all at once: stores would fetch them one by one.
 * Not for the first of several: the reader polls it, and would have it back before it is written. */
static inline void
batoni_ring_prepare(const struct batoni_ring_out *out, uint32_t cells)
{
	uint32_t within = out->next % BATONI_RING_LINE;
	uint32_t lines = batoni_ring_lines_behind(out->next, cells);

	for (uint32_t i = lines > 1; i <= lines; i++)
		batoni_ring_prefetch(batoni_ring_cell(
			out->cells, out->next - within + i * BATONI_RING_LINE));
}

/* W3 and what follows it: the rest of the message has been written. */
static inline void
batoni_ring_store_head(struct batoni_ring_out *out,
                       const struct batoni_ring_head *head)
{
	char *cell = batoni_ring_cell(out->cells, out->next);

	memcpy(cell + 8, &head->length, sizeof(head->length));
	atomic_store_explicit((_Atomic uint64_t *)(void *)cell,
	                      (uint64_t)head->tag << 32 |
	                              (uint64_t)head->cells << 16 |
	                              (uint64_t)head->type << 8 | head->kind,
	                      memory_order_release);
	out->next += head->cells;
	batoni_ring_fence();
	if (__builtin_expect(atomic_load_explicit(&out->control->warmth,
	                                          memory_order_relaxed) !=
	                             BATONI_RING_WARM,
	                     0))
		batoni_ring_call(out);
}

/* Publish a message whose payload has been copied in; there is room for head->cells. */
static inline void
batoni_ring_publish(struct batoni_ring_out *out, const struct batoni_ring_head *head)
{
	batoni_ring_clear_behind(out, head->cells);
	batoni_ring_store_head(out, head);
}

/* The same, and copy all of its payload in.  The stores of one or two cells ask for their lines
 * themselves: the reader would take back what is asked for earlier.  Of a message of a few lines that of the
 * header comes last, and its stores follow each other: the reader polls it, so it gets it as soon as it is
 * written to, and a later store would have to fetch it back.  Longer ones come in streams, where this costs
 * more than it saves (docs/performance.md). */
static inline void
batoni_ring_send(struct batoni_ring_out *out, const struct batoni_ring_head *head,
                 const void *payload, size_t bytes)
{
	size_t first = BATONI_RING_FIRST +
	               (~out->next % BATONI_RING_LINE) * BATONI_RING_CELL;

	if (__builtin_expect(head->cells > BATONI_RING_PREPARED, 0)) {
		batoni_ring_copy_in(out, 0, payload, bytes);
		batoni_ring_publish(out, head);
		return;
	}
	if (head->cells > BATONI_RING_LINE)
		batoni_ring_prepare(out, head->cells);
	batoni_ring_clear_behind(out, head->cells);
	if (bytes > first) {
		batoni_ring_copy_in(out, first, (const char *)payload + first,
		                    bytes - first);
		bytes = first;
	}
	batoni_ring_copy_few(batoni_ring_cell(out->cells, out->next) +
	                             (BATONI_RING_CELL - BATONI_RING_FIRST),
	                     payload, bytes);
	batoni_ring_store_head(out, head);
}

/* ---- the reader's end ---- */

struct batoni_ring_in {
	char *cells;
	struct batoni_ring_control *control;
	uint32_t next; /* cells taken */
	uint32_t told; /* of them */
	uint32_t matched, matched_told;
	bool warm;
};

enum batoni_ring_found {
	BATONI_RING_EMPTY,
	BATONI_RING_HERE,
	BATONI_RING_BROKEN /* what is there cannot be */
};

static inline bool
batoni_ring_is_whole(const struct batoni_ring_head *head)
{
	return head->length <= BATONI_RING_WHOLE_MAX &&
	       head->cells == batoni_ring_cells(head->length);
}

/* Is this header one that a sender writes? */
bool batoni_ring_is_sound(const struct batoni_ring_head *head);

static inline bool
batoni_ring_is_empty(const struct batoni_ring_in *in)
{
	return atomic_load_explicit(batoni_ring_word(in->cells, in->next),
	                            memory_order_acquire) == 0;
}

/* The message at the head, whose header is copied out and checked. */
static inline enum batoni_ring_found
batoni_ring_peek(const struct batoni_ring_in *in, struct batoni_ring_head *head)
{
	uint64_t word = atomic_load_explicit(batoni_ring_word(in->cells, in->next),
	                                     memory_order_acquire);

	if (word == 0)
		return BATONI_RING_EMPTY;
	head->kind = (uint8_t)word;
	head->type = (uint8_t)(word >> 8);
	head->cells = (uint16_t)(word >> 16);
	head->tag = (uint32_t)(word >> 32);
	memcpy(&head->length, batoni_ring_cell(in->cells, in->next) + 8,
	       sizeof(head->length));
	if (__builtin_expect(head->kind == BATONI_RING_SHORT &&
	                             batoni_ring_is_whole(head),
	                     1))
		return BATONI_RING_HERE;
	return batoni_ring_is_sound(head) ? BATONI_RING_HERE : BATONI_RING_BROKEN;
}

/* Copy bytes of the message's payload out; they are within its cells. */
static inline void
batoni_ring_copy_out(const struct batoni_ring_in *in, size_t at, void *to,
                     size_t bytes)
{
	size_t begin = batoni_ring_offset(in->next, at);
	size_t first = BATONI_RING_BYTES - begin;

	if (__builtin_expect(first >= bytes, 1)) {
		batoni_ring_copy_few(to, in->cells + begin, bytes);
		return;
	}
	memcpy(to, in->cells + begin, first);
	memcpy((char *)to + first, in->cells, bytes - first);
}

/* Store `taken`, for the sender to see.  True: the sender is hungry, and has to be called. */
bool batoni_ring_tell_taken(struct batoni_ring_in *in);

/* The message at the head is not needed any more: give its cells back.  True: the sender has to
 * be called. */
static inline bool
batoni_ring_take(struct batoni_ring_in *in, uint32_t cells)
{
	in->next += cells;
	return __builtin_expect(in->next - in->told >= BATONI_RING_TELL, 0) &&
	       batoni_ring_tell_taken(in);
}

/* A SHORT of so many cells has met its receive. */
static inline void
batoni_ring_met(struct batoni_ring_in *in, uint32_t cells)
{
	in->matched += cells;
	if (__builtin_expect(in->matched - in->matched_told < BATONI_RING_TELL, 1))
		return;
	in->matched_told = in->matched;
	atomic_store_explicit(&in->control->matched, in->matched,
	                      memory_order_release);
}

#endif
