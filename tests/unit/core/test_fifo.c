/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "core.h"
#include "mem.h"
#include "run_tests.h"

#define OPS 512

static struct batoni_op ops[OPS];

static void
open_table(struct batoni_fifo_table *table, uint32_t count)
{
	memset(ops, 0, sizeof(ops));
	*table = (struct batoni_fifo_table){0};
	ck_assert_int_eq(batoni_fifo_table_init(table, count, NULL), BATON_OK);
}

static void
close_table(struct batoni_fifo_table *table)
{
	ck_assert_uint_eq(table->live, 0);
	batoni_fifo_table_fini(table);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static struct batoni_op *
op_of(int i, int peer, int tag, enum batoni_direction direction)
{
	ops[i].transfer.peer = peer;
	ops[i].transfer.tag = tag;
	ops[i].transfer.direction = direction;
	return &ops[i];
}

/* n operations of one key; the FIFO they are in. */
static struct batoni_fifo *
fill_fifo(struct batoni_fifo_table *table, int n)
{
	struct batoni_fifo *fifo = NULL;

	for (int i = 0; i < n; i++)
		fifo = batoni_fifo_append(table,
		                          op_of(i, 1, 7, BATONI_SEND));
	return fifo;
}

/* The numbers of the operations that are left, taken off in order. */
static unsigned
drain(struct batoni_fifo *fifo)
{
	unsigned digits = 0;

	while (fifo->head) {
		struct batoni_op *op = batoni_fifo_pop(fifo);

		ck_assert_uint_eq(op->flags & BATONI_FLAG_FIFO, 0);
		digits = digits * 10 + (unsigned)(op - ops) + 1;
	}
	ck_assert_ptr_null(fifo->tail);
	return digits;
}

START_TEST(operations_come_out_in_the_order_they_went_in)
{
	struct batoni_fifo_table table;
	struct batoni_fifo *fifo;

	open_table(&table, 8);
	fifo = fill_fifo(&table, 5);
	ck_assert_uint_eq(table.live, 1);
	ck_assert_uint_eq(ops[2].flags & BATONI_FLAG_FIFO, BATONI_FLAG_FIFO);
	ck_assert_ptr_eq(fifo->head, &ops[0]);
	ck_assert_uint_eq(drain(fifo), 12345);
	batoni_fifo_retire(&table, fifo);
	close_table(&table);
}
END_TEST

START_TEST(any_operation_can_be_removed)
{
	static const unsigned left[] = {2345, 1345, 1245, 1235, 1234};
	struct batoni_fifo_table table;
	struct batoni_fifo *fifo;

	for (int i = 0; i < 5; i++) {
		open_table(&table, 8);
		fifo = fill_fifo(&table, 5);
		batoni_fifo_remove(fifo, &ops[i]);
		ck_assert_uint_eq(ops[i].flags & BATONI_FLAG_FIFO, 0);
		ck_assert_uint_eq(drain(fifo), left[i]);
		batoni_fifo_retire(&table, fifo);
		close_table(&table);
	}
}
END_TEST

START_TEST(append_after_the_last_was_removed_finds_the_end)
{
	struct batoni_fifo_table table;
	struct batoni_fifo *fifo;

	open_table(&table, 8);
	fifo = fill_fifo(&table, 3);
	batoni_fifo_remove(fifo, &ops[2]);
	batoni_fifo_append(&table, op_of(3, 1, 7, BATONI_SEND));
	ck_assert_uint_eq(drain(fifo), 124);
	batoni_fifo_append(&table, op_of(4, 1, 7, BATONI_SEND));
	ck_assert_uint_eq(drain(fifo), 5);
	batoni_fifo_retire(&table, fifo);
	close_table(&table);
}
END_TEST

START_TEST(peer_tag_and_direction_each_make_a_fifo)
{
	struct batoni_fifo_table table;
	struct batoni_fifo *fifos[8];

	open_table(&table, 8);
	for (int i = 0; i < 8; i++)
		fifos[i] = batoni_fifo_append(
			&table,
			op_of(i, i & 1, i & 2, (i & 4) ? BATONI_RECV
		                                       : BATONI_SEND));
	ck_assert_uint_eq(table.live, 8);
	for (int i = 0; i < 8; i++) {
		ck_assert_ptr_eq(fifos[i]->head, &ops[i]);
		ck_assert_ptr_eq(fifos[i]->tail, &ops[i]);
		batoni_fifo_pop(fifos[i]);
		batoni_fifo_retire(&table, fifos[i]);
	}
	close_table(&table);
}
END_TEST

START_TEST(extreme_tags_and_peers_are_told_apart)
{
	static const int tags[] = {0, 1, INT32_MAX - 1, INT32_MAX};
	struct batoni_fifo_table table;
	uint64_t keys[32];
	int n = 0;

	open_table(&table, 1);
	for (int i = 0; i < 4; i++)
		for (int peer = 0; peer < 4095; peer += 4094)
			for (int d = BATONI_SEND; d <= BATONI_RECV; d++)
				keys[n++] = batoni_fifo_key(
					&op_of(0, peer, tags[i],
				               (enum batoni_direction)d)
						 ->transfer);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(keys[i], keys[j]);
	close_table(&table);
}
END_TEST

START_TEST(retire_keeps_fifos_that_are_used_or_ready)
{
	struct batoni_fifo_table table;
	struct batoni_fifo *fifo;
	uint64_t key;

	open_table(&table, 1);
	fifo = fill_fifo(&table, 1);
	key = fifo->by_key.key;
	batoni_fifo_retire(&table, fifo);
	ck_assert_ptr_eq(batoni_fifo_find(&table, key), fifo);
	batoni_fifo_pop(fifo);
	fifo->ready = true;
	batoni_fifo_retire(&table, fifo);
	ck_assert_ptr_eq(batoni_fifo_find(&table, key), fifo);
	ck_assert_uint_eq(table.live, 1);
	fifo->ready = false;
	batoni_fifo_retire(&table, fifo);
	ck_assert_ptr_null(batoni_fifo_find(&table, key));
	close_table(&table);
}
END_TEST

/* Many keys share buckets; each FIFO must still be found and retired. */
START_TEST(as_many_fifos_as_requests_come_and_go)
{
	struct batoni_fifo_table table;

	open_table(&table, OPS);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < OPS; i++)
			batoni_fifo_append(&table,
			                   op_of(i, i % 5, i * (turn + 1),
			                         BATONI_RECV));
		ck_assert_uint_eq(table.live, OPS);
		/* Every other one first, then the rest. */
		for (int i = 0; i < 2 * OPS; i += 2) {
			int at = i < OPS ? i : i - OPS + 1;
			struct batoni_fifo *fifo = batoni_fifo_find(
				&table, batoni_fifo_key(&ops[at].transfer));

			ck_assert_ptr_nonnull(fifo);
			ck_assert_ptr_eq(fifo->head, &ops[at]);
			batoni_fifo_remove(fifo, &ops[at]);
			batoni_fifo_retire(&table, fifo);
		}
		ck_assert_uint_eq(table.live, 0);
	}
	close_table(&table);
}
END_TEST

/* The tags of the FIFOs on the ready list, as digits; the list is empty then. */
static unsigned
take_ready(void)
{
	struct batoni_engine *e = &batoni_engine;
	struct batoni_fifo *fifo;
	unsigned digits = 0;

	for (; (fifo = e->ready); e->ready = fifo->ready_next) {
		fifo->ready = false;
		digits = digits * 10 + (unsigned)fifo->head->transfer.tag;
	}
	e->ready_tail = &e->ready;
	return digits;
}

/* Sends in the order of the calls, and all else behind what is there. */
START_TEST(ready_fifos_of_sends_are_in_the_order_of_their_calls)
{
	static const int armed[] = {3, 1, 7, 5, 2, 8, 4, 6};
	struct batoni_fifo_table table;
	struct batoni_fifo *fifos[9];

	batoni_engine.ready_tail = &batoni_engine.ready;
	open_table(&table, 8);
	for (int i = 1; i <= 8; i++)
		fifos[i] = batoni_fifo_append(
			&table, op_of(i, 1, i, i < 7 ? BATONI_SEND : BATONI_RECV));
	for (int i = 0; i < 8; i++)
		batoni_fifo_make_ready(fifos[armed[i]]);
	batoni_fifo_make_ready(fifos[3]);
	ck_assert_uint_eq(take_ready(), 12374586);
	batoni_fifo_make_ready(fifos[8]);
	batoni_fifo_make_ready(fifos[6]);
	batoni_fifo_make_ready(fifos[7]);
	ck_assert_uint_eq(take_ready(), 867);
	for (int i = 1; i <= 8; i++) {
		batoni_fifo_pop(fifos[i]);
		ck_assert_ptr_null(ops[i].transfer.native_call);
		batoni_fifo_retire(&table, fifos[i]);
	}
	close_table(&table);
}
END_TEST

START_TEST(table_without_memory_leaves_nothing_behind)
{
	struct batoni_fifo_table table = {0};

	for (unsigned long n = 1; n <= 2; n++) {
		batoni_mem_fail_at(n);
		ck_assert_int_eq(batoni_fifo_table_init(&table, 4, NULL),
		                 BATON_ERR_NOMEM);
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	}
	batoni_mem_fail_at(0);
	open_table(&table, 4);
	close_table(&table);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		operations_come_out_in_the_order_they_went_in,
		any_operation_can_be_removed,
		append_after_the_last_was_removed_finds_the_end,
		peer_tag_and_direction_each_make_a_fifo,
		extreme_tags_and_peers_are_told_apart,
		retire_keeps_fifos_that_are_used_or_ready,
		as_many_fifos_as_requests_come_and_go,
		ready_fifos_of_sends_are_in_the_order_of_their_calls,
		table_without_memory_leaves_nothing_behind,
	};

	return RUN_TESTS("fifo", tests);
}
