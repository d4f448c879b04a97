/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings alone (transport/near/ring.h): rank 1 sends to rank 0 through an area of rank 0's.  Most
 * tests play both ends; traffic_with_sleeps has a thread for each.  These sleep without a limit of
 * time, so a wake-up that is lost hangs until CTest ends the test.
 *
 * Where counts matter a test runs twice: with a new ring, and with counts that soon wrap at 2^32.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"
#include "run_tests.h"
#include "shared_memory.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MESSAGES 50000u
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define MESSAGES 50000u
#endif
#endif
#ifndef MESSAGES
#define MESSAGES 1000000u
#endif

#define BIT UINT64_C(2) /* rank 1's */
#define CELLS_MOST 258u

static const uint32_t starts[] = {0, UINT32_MAX - 1000};
#define STARTS ((int)(sizeof(starts) / sizeof(starts[0])))

static struct batoni_ring_layout layout;
static char *area; /* rank 0's */
static _Atomic uint64_t *bits;
static struct batoni_ring_control *control;
static struct batoni_bell *bell; /* rank 0's */
static struct batoni_ring_out out;
static struct batoni_ring_in in;

static void
setup(void)
{
	batoni_ring_lay_out(2, 3, &layout);
	area = shared_alloc(layout.bytes);
	bell = shared_alloc(sizeof(*bell));
	bits = batoni_ring_bits(area, 1);
	control = batoni_ring_control(&layout, area, 1);
	out = (struct batoni_ring_out){
		.cells = batoni_ring_cells_of(&layout, area, 1),
		.control = control,
		.bits = bits,
		.bit = BIT,
		.bell = bell,
	};
	in = (struct batoni_ring_in){.cells = out.cells, .control = control};
}

/* So many cells have gone through the ring. */
static void
start_at(uint32_t cells)
{
	memset(area, 0, layout.bytes);
	out.next = out.taken = out.copied = out.matched = cells;
	in.next = in.told = in.matched = in.matched_told = cells;
	atomic_store(&control->taken, cells);
	atomic_store(&control->matched, cells);
}

static unsigned char
byte_of(uint32_t message, size_t at)
{
	return (unsigned char)(message * 31 + at * 7 + 1);
}

/* There is room for it. */
static void
send_short(uint32_t message, size_t length)
{
	const struct batoni_ring_head head = {
		.kind = BATONI_RING_SHORT,
		.tag = message,
		.cells = (uint16_t)batoni_ring_cells(length),
		.length = length,
	};
	unsigned char bytes[8192];

	for (size_t i = 0; i < length; i++)
		bytes[i] = byte_of(message, i);
	batoni_ring_copy_in(&out, 0, bytes, length);
	batoni_ring_publish(&out, &head);
}

/* It is the message at the head, whole.  True: the sender is to be called.  (Each ck_assert writes
 * into a pipe, and this is called a million times.) */
static bool
take_short(uint32_t message, size_t length)
{
	struct batoni_ring_head head;
	unsigned char bytes[8192];

	if (batoni_ring_is_empty(&in) || batoni_ring_peek(&in, &head) != BATONI_RING_HERE ||
	    head.tag != message || head.length != length)
		ck_abort_msg("message %u is not there", message);
	batoni_ring_copy_out(&in, 0, bytes, length);
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] != byte_of(message, i))
			ck_abort_msg("byte %zu of %zu", i, length);
	}
	return batoni_ring_take(&in, head.cells);
}

static bool
starve(uint32_t cells)
{
	bool broken = true;
	bool room = batoni_ring_starve(&out, cells, &broken);

	ck_assert(!broken);
	return room;
}

static void
send_and_take(uint32_t message, size_t length)
{
	uint32_t cells = batoni_ring_cells(length);

	if (!batoni_ring_has_room(&out, cells) && !starve(cells))
		ck_abort_msg("there is no room");
	send_short(message, length);
	(void)take_short(message, length);
	if (!batoni_ring_is_empty(&in))
		ck_abort_msg("there is something behind message %u", message);
}

/* ---- messages ---- */

static size_t
offset_of(const volatile void *place)
{
	return (uintptr_t)place - (uintptr_t)area;
}

/* The lines that a message is written to, wherever it begins. */
START_TEST(a_message_has_as_many_lines_when_the_count_of_cells_wraps)
{
	for (uint32_t cells = 1; cells <= CELLS_MOST; cells++)
		for (uint32_t i = 0; i < 600; i++)
			ck_assert_uint_eq(
				batoni_ring_lines_behind(UINT32_MAX - i, cells),
				batoni_ring_lines_behind(4096 + (UINT32_MAX - i) % 2,
			                                 cells));
	ck_assert_uint_eq(batoni_ring_lines_behind(UINT32_MAX, 1), 1);
	ck_assert_uint_eq(batoni_ring_lines_behind(UINT32_MAX - 1, 1), 0);
}
END_TEST

START_TEST(areas_do_not_overlap)
{
	static const int sizes[] = {1, 2, 64, 65, 200};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int size = sizes[i];

		batoni_ring_lay_out(size, 1000, &layout);
		area = shared_alloc(layout.bytes);
		ck_assert_uint_le(offset_of(batoni_ring_bits(area, size - 1) + 1),
		                  layout.controls_at);
		ck_assert_uint_eq(layout.controls_at % 64, 0);
		ck_assert_uint_le(offset_of(batoni_ring_control(&layout, area, size)),
		                  layout.states_at);
		ck_assert_uint_le(offset_of(batoni_ring_state(&layout, area, 1000)),
		                  layout.rings_at);
		ck_assert_uint_eq(layout.rings_at % 4096, 0);
		ck_assert_uint_le(offset_of(batoni_ring_cells_of(&layout, area, size)),
		                  layout.bytes);
	}
}
END_TEST

START_TEST(cells_are_as_few_as_hold_the_payload)
{
	static const struct {
		size_t payload;
		uint32_t cells;
	} rows[] = {
		{0, 1}, {1, 1}, {15, 1}, {16, 1}, {17, 2}, {47, 2}, {48, 2},
		{49, 3}, {80, 3}, {81, 4}, {8191, 257}, {8192, 257},
		{BATONI_RING_PAYLOAD_MAX, 257}, {BATONI_RING_PAYLOAD_MAX + 1, 258},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_uint_eq(batoni_ring_cells(rows[i].payload), rows[i].cells);
}
END_TEST

/* The next message begins in this cell.  Returns its number. */
static uint32_t
go_to(uint32_t cell, uint32_t message)
{
	uint32_t gap;

	while ((gap = (cell - out.next) % BATONI_RING_CELLS) != 0) {
		uint32_t cells = gap < 200 ? gap : 200;

		send_and_take(message++, (size_t)(cells - 1) * BATONI_RING_CELL);
	}
	return message;
}

/* It begins in each cell from which it reaches the end of the ring, and in the first one. */
START_TEST(each_length_is_whole_at_each_wrap)
{
	static const size_t lengths[] = {0, 1, 15, 16, 17, 47, 48, 49, 8191, 8192};
	uint32_t message = 0;

	start_at(starts[_i]);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t cells = batoni_ring_cells(lengths[i]);

		for (uint32_t left = 0; left <= cells + 1; left++) {
			message = go_to(BATONI_RING_CELLS - left, message);
			send_and_take(message++, lengths[i]);
		}
	}
}
END_TEST

START_TEST(mixed_lengths_are_whole_over_many_laps)
{
	unsigned seed = 1;

	start_at(starts[_i]);
	for (uint32_t sent = 0; sent < 5000;) {
		size_t lengths[20];
		uint32_t first = sent;

		for (int i = 0; i < 20; i++) {
			lengths[i] = (size_t)rand_r(&seed) % (i % 4 ? 100 : 8193);
			if (!batoni_ring_has_room(&out, CELLS_MOST))
				break;
			send_short(sent++, lengths[i]);
		}
		for (uint32_t message = first; message < sent; message++)
			(void)take_short(message, lengths[message - first]);
		ck_assert(batoni_ring_is_empty(&in));
		ck_assert(batoni_ring_refresh(&out));
	}
}
END_TEST

START_TEST(head_comes_as_it_was_sent)
{
	static const uint32_t tags[] = {0, 1, 255, 65536, INT32_MAX};
	struct batoni_ring_head sent = {.kind = BATONI_RING_ANNOUNCE, .cells = 1};
	struct batoni_ring_head come;

	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		for (unsigned type = 0; type <= UINT8_MAX; type++) {
			sent.tag = tags[i];
			sent.type = (uint8_t)type;
			sent.length = UINT64_MAX - type;
			batoni_ring_publish(&out, &sent);
			ck_assert_int_eq(batoni_ring_peek(&in, &come), BATONI_RING_HERE);
			ck_assert_mem_eq(&come, &sent, sizeof(sent));
			(void)batoni_ring_take(&in, come.cells);
		}
	}
}
END_TEST

/* ---- room ---- */

/* Until there is none.  Returns the number of messages. */
static uint32_t
fill_until_full(uint32_t cells)
{
	size_t length = cells == 1 ? 0 : (cells - 1) * (size_t)BATONI_RING_CELL;
	uint32_t n = 0;

	while (batoni_ring_has_room(&out, cells)) {
		const struct batoni_ring_head head = {
			.kind = BATONI_RING_CHUNK,
			.cells = (uint16_t)cells,
			.length = length,
		};

		batoni_ring_publish(&out, &head);
		n++;
	}
	return n;
}

/* Without a look at the headers.  Returns how often the sender was to be called. */
static uint32_t
take_all(uint32_t n, uint32_t cells)
{
	uint32_t calls = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (batoni_ring_is_empty(&in))
			ck_abort_msg("message %u is not there", i);
		calls += batoni_ring_take(&in, cells);
	}
	ck_assert(batoni_ring_is_empty(&in));
	return calls;
}

START_TEST(starved_sender_is_called_when_an_eighth_is_taken)
{
	uint32_t n;

	start_at(starts[_i]);
	n = fill_until_full(1);
	/* One cell stays empty. */
	ck_assert_uint_eq(n, BATONI_RING_CELLS - 1);
	ck_assert(!starve(1));
	ck_assert_uint_eq(atomic_load(&control->hungry), 1);
	for (uint32_t i = 1; i < BATONI_RING_TELL; i++)
		ck_assert(!batoni_ring_take(&in, 1));
	ck_assert(!starve(1));
	ck_assert(batoni_ring_take(&in, 1));
	ck_assert_uint_eq(atomic_load(&control->hungry), 0);
	ck_assert(!batoni_ring_has_room(&out, 1));
	ck_assert(batoni_ring_refresh(&out));
	ck_assert(batoni_ring_has_room(&out, BATONI_RING_TELL));
	ck_assert(!batoni_ring_has_room(&out, BATONI_RING_TELL + 1));
	/* Nobody is hungry any more. */
	ck_assert_uint_eq(take_all(n - BATONI_RING_TELL, 1), 0);
}
END_TEST

/* What was taken and not told yet, when it began to wait, is any number of cells. */
START_TEST(waiting_sender_has_room_when_all_is_taken)
{
	static const uint32_t untold[] = {0, 1, 2, BATONI_RING_TELL / 2,
	                                  BATONI_RING_TELL - 1};

	for (size_t i = 0; i < sizeof(untold) / sizeof(untold[0]); i++) {
		for (uint32_t cells = 1; cells <= CELLS_MOST; cells++) {
			uint32_t n;

			start_at(starts[_i] - untold[i]);
			for (uint32_t j = 0; j < untold[i]; j++)
				send_and_take(j, 0);
			n = fill_until_full(cells);
			ck_assert(!starve(cells));
			ck_assert_uint_eq(take_all(n, cells), 1);
			ck_assert(starve(cells));
			ck_assert(starve(CELLS_MOST));
		}
	}
}
END_TEST

START_TEST(sender_that_starves_sees_what_was_told_before)
{
	uint32_t n;

	start_at(starts[_i]);
	n = fill_until_full(1);
	ck_assert_uint_eq(take_all(n, 1), 0);
	ck_assert(!batoni_ring_has_room(&out, 1));
	ck_assert(starve(1));
	/* It did not have to become hungry, so it is not called. */
	ck_assert_uint_eq(atomic_load(&control->hungry), 0);
	ck_assert_uint_eq(fill_until_full(1), n - (BATONI_RING_TELL - 1));
	ck_assert_uint_eq(take_all(n - (BATONI_RING_TELL - 1), 1), 0);
}
END_TEST

START_TEST(credit_ends_and_comes_back_with_matches)
{
	start_at(starts[_i]);
	for (uint32_t i = 0; i < BATONI_RING_CREDIT; i++) {
		ck_assert(batoni_ring_has_credit(&out, 1));
		send_and_take(i, 16);
		out.copied++;
	}
	ck_assert(!batoni_ring_has_credit(&out, 1));
	for (uint32_t i = 1; i < BATONI_RING_TELL; i++)
		batoni_ring_met(&in, 1);
	ck_assert(batoni_ring_refresh(&out));
	ck_assert(!batoni_ring_has_credit(&out, 1));
	batoni_ring_met(&in, 2);
	ck_assert(batoni_ring_refresh(&out));
	ck_assert(batoni_ring_has_credit(&out, BATONI_RING_TELL + 1));
	ck_assert(!batoni_ring_has_credit(&out, BATONI_RING_TELL + 2));
}
END_TEST

/* ---- what the other side cannot have written ---- */

START_TEST(counts_that_cannot_be_are_refused)
{
	/* All are relative to where the ring begins.  Known: 10 taken of 30, and 5 met of 20. */
	static const struct {
		uint32_t taken, matched;
		bool good;
	} rows[] = {
		{10, 5, true}, {11, 5, true}, {30, 20, true}, {10, 20, true},
		{31, 5, false}, {9, 5, false}, {0, 5, false}, {10, 21, false},
		{10, 4, false}, {30, 30, false}, {10 + (1u << 31), 5, false},
		{10, 5 + (1u << 31), false}, {9, 21, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t start = starts[_i] + 990; /* some wrap, some do not */
		bool broken = rows[i].good;

		start_at(start);
		out.next = start + 30;
		out.copied = start + 20;
		out.taken = start + 10;
		out.matched = start + 5;
		atomic_store(&control->taken, start + rows[i].taken);
		atomic_store(&control->matched, start + rows[i].matched);
		ck_assert_int_eq(batoni_ring_starve(&out, 1, &broken), rows[i].good);
		ck_assert_int_eq(broken, !rows[i].good);
		ck_assert_int_eq(batoni_ring_refresh(&out), rows[i].good);
		ck_assert_uint_eq(out.taken - start, rows[i].good ? rows[i].taken : 10);
		ck_assert_uint_eq(out.matched - start, rows[i].good ? rows[i].matched : 5);
	}
}
END_TEST

START_TEST(headers_that_cannot_be_are_refused)
{
	static const struct {
		unsigned kind;
		uint16_t cells;
		uint64_t length;
		bool good;
	} rows[] = {
		{BATONI_RING_NONE, 1, 0, false},
		{BATONI_RING_KINDS, 1, 8, false},
		{255, 1, 8, false},
		{BATONI_RING_SHORT, 1, 0, true},
		{BATONI_RING_SHORT, 1, 16, true},
		{BATONI_RING_SHORT, 2, 17, true},
		{BATONI_RING_SHORT, 257, 8192, true},
		{BATONI_RING_SHORT, 0, 0, false},
		{BATONI_RING_SHORT, 0, 16, false},
		{BATONI_RING_SHORT, 2, 16, false},
		{BATONI_RING_SHORT, 1, 17, false},
		{BATONI_RING_SHORT, 256, 8192, false},
		{BATONI_RING_SHORT, 257, 8193, false},
		{BATONI_RING_SHORT, 1, UINT64_MAX, false},
		{BATONI_RING_SHORT, 1, UINT64_C(1) << 37, false}, /* 2^32 cells, and none */
		{BATONI_RING_ANNOUNCE, 1, 0, true},
		{BATONI_RING_ANNOUNCE, 1, UINT64_MAX, true},
		{BATONI_RING_ANNOUNCE, 0, 100, false},
		{BATONI_RING_ANNOUNCE, 2, 100, false},
		{BATONI_RING_DONE, 1, 8, true},
		{BATONI_RING_DONE, 1, 7, false},
		{BATONI_RING_DONE, 2, 8, false},
		{BATONI_RING_GRANT, 2, 24, true},
		{BATONI_RING_GRANT, 1, 24, false},
		{BATONI_RING_GRANT, 2, 23, false},
		{BATONI_RING_CHUNK, 1, 9, true},
		{BATONI_RING_CHUNK, 257, BATONI_RING_PAYLOAD_MAX, true},
		{BATONI_RING_CHUNK, 1, 8, false},
		{BATONI_RING_CHUNK, 1, 0, false},
		{BATONI_RING_CHUNK, 2, 9, false},
		{BATONI_RING_CHUNK, 258, BATONI_RING_PAYLOAD_MAX + 1, false},
		{BATONI_RING_CHUNK, 257, (UINT64_C(1) << 37) + 8192, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct batoni_ring_head head = {
			.kind = (uint8_t)rows[i].kind,
			.cells = rows[i].cells,
			.type = 1, /* so that no word is 0 */
			.length = rows[i].length,
		};

		start_at(0);
		ck_assert_msg(batoni_ring_is_sound(&head) == rows[i].good, "row %zu", i);
		batoni_ring_publish(&out, &head);
		ck_assert_int_eq(batoni_ring_peek(&in, &head),
		                 rows[i].good ? BATONI_RING_HERE : BATONI_RING_BROKEN);
	}
}
END_TEST

/* ---- bits and bells ---- */

START_TEST(only_a_cold_ring_calls_and_only_who_listens_is_rung)
{
	for (uint32_t warmth = BATONI_RING_COLD; warmth <= BATONI_RING_WARM; warmth++) {
		for (uint32_t listening = 0; listening <= 2; listening++) {
			bool cold = warmth == BATONI_RING_COLD;

			start_at(0);
			atomic_store(&bell->doorbell, 7);
			atomic_store(&bell->listening, listening);
			atomic_store(&control->warmth, warmth);
			atomic_store(bits, 1);
			send_short(5, 40);
			ck_assert_uint_eq(atomic_load(bits), cold ? 1 | BIT : 1);
			ck_assert_uint_eq(atomic_load(&bell->doorbell),
			                  cold && listening ? 8 : 7);
			(void)take_short(5, 40);
		}
	}
}
END_TEST

/* That of a publisher is for who listens; that of a sender without room also for who waits for nothing. */
START_TEST(only_a_sender_without_room_rings_for_who_is_idle)
{
	for (uint32_t idle = 0; idle <= 2; idle++) {
		start_at(0);
		atomic_store(&bell->doorbell, 7);
		atomic_store(&bell->listening, 0);
		atomic_store(&bell->idle, idle);
		atomic_store(&control->warmth, BATONI_RING_COLD);
		while (batoni_ring_has_room(&out, 1))
			send_short(5, 8);
		ck_assert_uint_eq(atomic_load(&bell->doorbell), 7);
		ck_assert(!starve(1));
		ck_assert_uint_eq(atomic_load(&bell->doorbell), idle ? 8 : 7);
		atomic_store(&bell->idle, 0);
	}
}
END_TEST

/* ---- two threads ---- */

/* The sender's bit, and its bell: what the reader calls it by. */
static struct batoni_ring_out back;
static unsigned long sender_sleeps, reader_sleeps, found_late;

static size_t
length_of(uint32_t message)
{
	return message % 64 == 0 ? message % 8193 : message * 7 % 50;
}

/* S0 up to the look of the bits: true, the rank was called. */
static bool
listen_and_look(struct batoni_bell *own, _Atomic uint64_t *own_bits, uint32_t *rung_p)
{
	*rung_p = atomic_load(&own->doorbell);
	atomic_fetch_or(&own->listening, 1);
	batoni_ring_fence();
	return atomic_load_explicit(own_bits, memory_order_relaxed) &&
	       atomic_exchange(own_bits, 0);
}

/* Until the reader calls. */
static void
sleep_hungry(void)
{
	uint32_t rung;

	while (!listen_and_look(back.bell, back.bits, &rung)) {
		sender_sleeps++;
		batoni_bell_sleep(back.bell, rung, UINT64_MAX);
		atomic_fetch_and(&back.bell->listening, 0);
	}
	atomic_fetch_and(&back.bell->listening, 0);
}

/* Now and then; it may be just as the reader falls asleep. */
static void
pause_at_random(unsigned *seed)
{
	int dice = rand_r(seed) % 4096;
	int turns = rand_r(seed) % 500;

	if (dice >= 64)
		return;
	if (dice < 16) {
		for (int i = 1; !atomic_load(&bell->listening); i++) {
			if (i % 4096 == 0)
				sched_yield();
		}
		turns /= 10;
	}
	while (turns-- > 0)
		(void)atomic_load(&bell->listening);
}

static void *
send_all(void *arg)
{
	unsigned seed = 3;

	for (uint32_t message = 0; message < MESSAGES; message++) {
		size_t length = length_of(message);
		uint32_t cells = batoni_ring_cells(length);

		pause_at_random(&seed);
		if (!batoni_ring_has_room(&out, cells))
			while (!starve(cells))
				sleep_hungry();
		send_short(message, length);
	}
	return arg;
}

static void
set_warmth(uint32_t warmth)
{
	in.warm = warmth == BATONI_RING_WARM;
	atomic_store_explicit(&control->warmth, warmth, memory_order_relaxed);
}

static size_t
drain(uint32_t *message)
{
	size_t n = 0;

	while (!batoni_ring_is_empty(&in)) {
		if (take_short(*message, length_of(*message)))
			batoni_ring_call(&back);
		(*message)++;
		n++;
	}
	return n;
}

static size_t
pass(uint32_t *message)
{
	if (atomic_load_explicit(bits, memory_order_relaxed) && atomic_exchange(bits, 0))
		set_warmth(BATONI_RING_WARM);
	return in.warm ? drain(message) : 0;
}

/* S0 to S5. */
static void
sleep_until_called(uint32_t *message)
{
	uint32_t rung = atomic_load(&bell->doorbell);
	bool was_warm = in.warm;
	size_t events = 0;

	atomic_fetch_or(&bell->listening, 1);
	set_warmth(BATONI_RING_COLD);
	batoni_ring_fence();
	if (was_warm)
		events += drain(message);
	found_late += events > 0;
	if (atomic_load_explicit(bits, memory_order_relaxed) && atomic_exchange(bits, 0))
		events += drain(message);
	if (events == 0) {
		reader_sleeps++;
		batoni_bell_sleep(bell, rung, UINT64_MAX);
	}
	atomic_fetch_and(&bell->listening, 0);
}

START_TEST(traffic_with_sleeps)
{
	pthread_t sender;
	uint32_t message = 0;
	unsigned seed = 2;

	start_at(starts[_i]);
	back.bits = shared_alloc(sizeof(*back.bits));
	back.bit = 1;
	back.bell = shared_alloc(sizeof(*back.bell));
	ck_assert_int_eq(pthread_create(&sender, NULL, send_all, NULL), 0);
	while (message < MESSAGES) {
		int patience = rand_r(&seed) % 3000;

		while (pass(&message) == 0 && patience-- > 0)
			;
		if (message < MESSAGES && patience < 0)
			sleep_until_called(&message);
	}
	ck_assert_int_eq(pthread_join(sender, NULL), 0);
	ck_assert(batoni_ring_is_empty(&in));
	printf("%u messages; the reader slept %lu times, the sender %lu; %lu last looks found "
	       "some\n",
	       MESSAGES, reader_sleeps, sender_sleeps, found_late);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		areas_do_not_overlap,
		cells_are_as_few_as_hold_the_payload,
		head_comes_as_it_was_sent,
		headers_that_cannot_be_are_refused,
		a_message_has_as_many_lines_when_the_count_of_cells_wraps,
		only_a_cold_ring_calls_and_only_who_listens_is_rung,
		only_a_sender_without_room_rings_for_who_is_idle,
	};
	const TTest *const twice[] = {
		each_length_is_whole_at_each_wrap,
		mixed_lengths_are_whole_over_many_laps,
		starved_sender_is_called_when_an_eighth_is_taken,
		waiting_sender_has_room_when_all_is_taken,
		sender_that_starves_sees_what_was_told_before,
		credit_ends_and_comes_back_with_matches,
		counts_that_cannot_be_are_refused,
		traffic_with_sleeps,
	};
	Suite *suite = suite_create("near_ring");
	TCase *tcase = tcase_create("near_ring");

	tcase_add_checked_fixture(tcase, setup, NULL);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tcase, tests[i]);
	for (size_t i = 0; i < sizeof(twice) / sizeof(twice[0]); i++)
		tcase_add_loop_test(tcase, twice[i], 0, STARTS);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
