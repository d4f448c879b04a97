/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bootstrap of ranks that are in one process: threads that meet by an id, or one thread that
 * creates all of them.
 *
 * They share a board with two tables.  Each rank writes its contribution into the table of the round;
 * when all have, each reads it there.  A rank that is one round ahead writes the other
 * table, and no rank is two rounds ahead, since its round needs the contributions of all.
 *
 * Any thread.  The board's lock is a leaf.
 */
#include <pthread.h>
#include <string.h>

#include "bootstrap.h"
#include "log.h"
#include "mem.h"

struct batoni_board {
	pthread_mutex_t lock;
	int size;
	/* Under the lock. */
	int inside;     /* ranks that have not closed */
	bool left;      /* some rank has closed */
	uint64_t rounds; /* that are complete */
	int brought;    /* contributions to the one that is not */
	unsigned char *tables; /* two, each of `size` contributions of up to BATONI_EXCHANGE_MAX bytes */
};

struct endpoint {
	struct batoni_board *board;
	uint64_t round;
	bool brought; /* of this round */
};

_Static_assert(sizeof(struct endpoint) <= BATONI_BOOTSTRAP_BYTES, "it fits");

static struct endpoint *
endpoint_of(struct batoni_bootstrap *bootstrap)
{
	return (void *)bootstrap->own.bytes;
}

static enum baton_status
open_board(int size, struct batoni_board **board_p)
{
	struct batoni_board *board = batoni_alloc(1, sizeof(*board));

	if (!board)
		return BATON_ERR_NOMEM;
	board->tables = batoni_alloc(2 * (size_t)size, BATONI_EXCHANGE_MAX);
	if (!board->tables) {
		batoni_free(board);
		return BATON_ERR_NOMEM;
	}
	pthread_mutex_init(&board->lock, NULL);
	board->size = board->inside = size;
	*board_p = board;
	return BATON_OK;
}

/* Contributions lie one behind the other, `bytes` apart. */
static unsigned char *
table_of(const struct batoni_board *board, uint64_t round)
{
	return board->tables +
	       (round % 2) * (size_t)board->size * BATONI_EXCHANGE_MAX;
}

static enum baton_status
exchange_locked(struct batoni_bootstrap *bootstrap, const void *mine, size_t bytes,
                const void **all_p)
{
	struct endpoint *endpoint = endpoint_of(bootstrap);
	struct batoni_board *board = endpoint->board;
	unsigned char *table = table_of(board, endpoint->round);

	if (!endpoint->brought) {
		memcpy(table + (size_t)bootstrap->rank * bytes, mine, bytes);
		endpoint->brought = true;
		if (++board->brought == board->size) {
			board->brought = 0;
			board->rounds++;
		}
	}
	if (board->rounds == endpoint->round)
		return board->left ? BATON_ERR_PEER : BATON_PENDING;
	endpoint->round++;
	endpoint->brought = false;
	*all_p = table;
	return BATON_OK;
}

static enum baton_status
exchange(struct batoni_bootstrap *bootstrap, const void *mine, size_t bytes,
         const void **all_p)
{
	struct batoni_board *board = endpoint_of(bootstrap)->board;
	enum baton_status status;

	pthread_mutex_lock(&board->lock);
	status = exchange_locked(bootstrap, mine, bytes, all_p);
	pthread_mutex_unlock(&board->lock);
	return status == BATON_ERR_PEER
	               ? batoni_refuse(status, "another rank has given up")
	               : status;
}

static void
close_bootstrap(struct batoni_bootstrap *bootstrap)
{
	struct batoni_board *board = endpoint_of(bootstrap)->board;
	bool last;

	pthread_mutex_lock(&board->lock);
	board->left = true;
	last = --board->inside == 0;
	pthread_mutex_unlock(&board->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&board->lock);
	batoni_free(board->tables);
	batoni_free(board);
}

static const struct batoni_bootstrap_ops ops = {
	.name = "threads",
	.exchange = exchange,
	.close = close_bootstrap,
};

static void
join_board(struct batoni_board *board, int rank, struct batoni_bootstrap *bootstrap)
{
	*bootstrap = (struct batoni_bootstrap){
		.ops = &ops,
		.kind = BATONI_BOOTSTRAP_THREADS,
		.rank = rank,
		.size = board->size,
		.within = board->size,
		.before = rank,
		.strict = true,
	};
	endpoint_of(bootstrap)->board = board;
}

const struct batoni_threads_ops batoni_threads_ops = {
	.open = open_board,
	.join = join_board,
};
