/* SPDX-License-Identifier: BSD-3-Clause */
#include "fifo.h"

#include <string.h>

#include "core.h"
#include "mem.h"

enum baton_status
batoni_fifo_table_init(struct batoni_fifo_table *table, uint32_t count,
                       struct baton_comm *comm)
{
	/* More: an operation that leaves a line may leave it empty until it is retired; from one line to the next, two. */
	count += 2;
	table->fifos = batoni_alloc(count, sizeof(*table->fifos));
	if (!batoni_hash_init(&table->by_key, count) || !table->fifos) {
		batoni_fifo_table_fini(table);
		return BATON_ERR_NOMEM;
	}
	table->live = 0;
	table->lines_live = 0;
	memset(table->lines_of, 0, sizeof(table->lines_of));
	table->turns = 0;
	table->seeker = UINT64_MAX;
	table->yields = table->yielded = false;
	batoni_list_init(&table->lines);
	table->next_line = NULL;
	table->free = NULL;
	for (uint32_t i = count; i-- > 0;) {
		table->fifos[i].comm = comm;
		table->fifos[i].ready_next = table->free;
		table->free = &table->fifos[i];
	}
	return BATON_OK;
}

void
batoni_fifo_table_fini(struct batoni_fifo_table *table)
{
	batoni_hash_fini(&table->by_key);
	batoni_free(table->fifos);
	table->fifos = NULL;
}

struct batoni_fifo *
batoni_fifo_find(const struct batoni_fifo_table *table, uint64_t key)
{
	static_assert(offsetof(struct batoni_fifo, by_key) == 0,
	              "no node is no FIFO");

	return batoni_container_of(batoni_hash_find(&table->by_key, key),
	                           struct batoni_fifo, by_key);
}

static struct batoni_fifo *
fifo_new(struct batoni_fifo_table *table, uint64_t key)
{
	struct batoni_fifo *fifo = table->free;

	assert(fifo); /* as many as there are requests */
	table->free = fifo->ready_next;
	fifo->head = fifo->tail = NULL;
	fifo->ready = false;
	fifo->line = BATONI_NO_LINE;
	fifo->expects = false;
	batoni_hash_add(&table->by_key, &fifo->by_key, key);
	table->live++;
	return fifo;
}

static void
make_line(struct batoni_fifo_table *table, struct batoni_fifo *fifo,
          const struct batoni_op *op)
{
	fifo->line = (uint8_t)batoni_op_line(op);
	table->lines_live++;
	table->lines_of[fifo->line]++;
	batoni_list_append(&table->lines, &fifo->in_lines);
}

/* The operation's, which is created if it does not exist. */
static inline struct batoni_fifo *
fifo_of(struct batoni_fifo_table *table, const struct batoni_op *op)
{
	uint64_t key = batoni_fifo_key_of(op);
	struct batoni_fifo *fifo = batoni_fifo_find(table, key);

	if (fifo)
		return fifo;
	fifo = fifo_new(table, key);
	if (__builtin_expect(op->flags & BATONI_FLAG_IN_LINE, 0) &&
	    batoni_op_line(op) != BATONI_NO_LINE)
		make_line(table, fifo, op);
	return fifo;
}

struct batoni_fifo *
batoni_fifo_append(struct batoni_fifo_table *table, struct batoni_op *op)
{
	struct batoni_fifo *fifo = fifo_of(table, op);

	batoni_op_list_in(op, BATONI_IN_FIFO);
	if (__builtin_expect(!(op->flags & BATONI_FLAG_IN_LINE), 1))
		op->transfer.turn = ++table->turns << 2;
	op->next = NULL;
	if (fifo->tail)
		fifo->tail->next = op;
	else
		fifo->head = op;
	fifo->tail = op;
	op->flags |= BATONI_FLAG_FIFO;
	return fifo;
}

struct batoni_fifo *
batoni_fifo_insert(struct batoni_fifo_table *table, struct batoni_op *op)
{
	struct batoni_fifo *line = fifo_of(table, op);
	struct batoni_op **at = &line->head;

	if (!line->tail || line->tail->transfer.turn < op->transfer.turn)
		return batoni_fifo_append(table, op);
	while ((*at)->transfer.turn < op->transfer.turn)
		at = &(*at)->next;
	batoni_op_list_in(op, BATONI_IN_FIFO);
	op->next = *at;
	*at = op;
	op->flags |= BATONI_FLAG_FIFO;
	return line;
}

/* It is linked in no more.  One that leaves a line keeps its turn for now (line.c). */
static inline void
unlink_op(struct batoni_op *op)
{
	batoni_op_list_out(op, BATONI_IN_FIFO);
	op->flags &= (uint16_t)~BATONI_FLAG_FIFO;
	if (__builtin_expect(!(op->flags & BATONI_FLAG_IN_LINE), 1))
		op->transfer.native_call = NULL;
}

struct batoni_op *
batoni_fifo_pop(struct batoni_fifo *fifo)
{
	struct batoni_op *op = fifo->head;

	fifo->head = op->next;
	if (!fifo->head)
		fifo->tail = NULL;
	unlink_op(op);
	return op;
}

void
batoni_fifo_remove(struct batoni_fifo *fifo, struct batoni_op *op)
{
	struct batoni_op *before = NULL;

	if (fifo->head == op) {
		batoni_fifo_pop(fifo);
		return;
	}
	for (before = fifo->head; before->next != op; before = before->next)
		;
	before->next = op->next;
	if (fifo->tail == op)
		fifo->tail = before;
	unlink_op(op);
}

void
batoni_fifo_make_ready(struct batoni_fifo *fifo)
{
	struct batoni_engine *e = &batoni_engine;
	struct batoni_fifo *last, **link = e->ready_tail;

	if (fifo->ready)
		return;
	last = e->ready ? batoni_container_of(link, struct batoni_fifo, ready_next)
	                : NULL;
	fifo->ready = true;
	fifo->ready_turn = last ? last->ready_turn : 0;
	if (!fifo->line && fifo->head->transfer.direction == BATONI_SEND) {
		uint64_t turn = fifo->head->transfer.turn;

		/* Mostly the last one. */
		if (__builtin_expect(turn < fifo->ready_turn, 0))
			for (link = &e->ready; (*link)->ready_turn < turn;)
				link = &(*link)->ready_next;
		fifo->ready_turn = turn;
	}
	fifo->ready_next = *link;
	*link = fifo;
	if (link == e->ready_tail)
		e->ready_tail = &fifo->ready_next;
}

void
batoni_fifo_retire(struct batoni_fifo_table *table, struct batoni_fifo *fifo)
{
	if (fifo->head || fifo->ready)
		return;
	batoni_hash_remove(&fifo->by_key);
	if (__builtin_expect(fifo->line, 0)) {
		assert(!fifo->expects);
		if (table->next_line == &fifo->in_lines)
			table->next_line = fifo->in_lines.next;
		batoni_list_remove(&fifo->in_lines);
		table->lines_live--;
		table->lines_of[fifo->line]--;
	}
	fifo->ready_next = table->free;
	table->free = fifo;
	table->live--;
}
