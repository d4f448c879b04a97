/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bootstrap of ranks that are in one process: threads that meet by an id, or one thread that
 * creates all of them.
 *
 * They share a room with two tables.  Each rank writes its record into the table of the round;
 * when all have, each reads it there.  A rank that is one round ahead writes the other
 * table, and no rank is two rounds ahead, since its round needs the records of all.
 *
 * Any thread.  The room's lock is a leaf.
 */
#include <pthread.h>
#include <string.h>

#include "bootstrap.h"
#include "log.h"
#include "mem.h"

struct batoni_room {
	pthread_mutex_t lock;
	int size;
	/* Under the lock. */
	int inside;     /* ranks that have not closed */
	bool left;      /* some rank has closed */
	uint64_t rounds; /* that are complete */
	int brought;    /* records of the one that is not */
	unsigned char *tables; /* two, each of `size` records of BATONI_RECORD_MAX bytes */
};

struct endpoint {
	struct batoni_room *room;
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
open_room(int size, struct batoni_room **room_p)
{
	struct batoni_room *room = batoni_alloc(1, sizeof(*room));

	if (!room)
		return BATON_ERR_NOMEM;
	room->tables = batoni_alloc(2 * (size_t)size, BATONI_RECORD_MAX);
	if (!room->tables) {
		batoni_free(room);
		return BATON_ERR_NOMEM;
	}
	pthread_mutex_init(&room->lock, NULL);
	room->size = room->inside = size;
	*room_p = room;
	return BATON_OK;
}

/* Records lie one behind the other, `bytes` apart. */
static unsigned char *
table_of(const struct batoni_room *room, uint64_t round)
{
	return room->tables +
	       (round % 2) * (size_t)room->size * BATONI_RECORD_MAX;
}

static enum baton_status
exchange_locked(struct batoni_bootstrap *bootstrap, const void *mine, size_t bytes,
                const void **all_p)
{
	struct endpoint *endpoint = endpoint_of(bootstrap);
	struct batoni_room *room = endpoint->room;
	unsigned char *table = table_of(room, endpoint->round);

	if (!endpoint->brought) {
		memcpy(table + (size_t)bootstrap->rank * bytes, mine, bytes);
		endpoint->brought = true;
		if (++room->brought == room->size) {
			room->brought = 0;
			room->rounds++;
		}
	}
	if (room->rounds == endpoint->round)
		return room->left ? BATON_ERR_PEER : BATON_PENDING;
	endpoint->round++;
	endpoint->brought = false;
	*all_p = table;
	return BATON_OK;
}

static enum baton_status
exchange(struct batoni_bootstrap *bootstrap, const void *mine, size_t bytes,
         const void **all_p)
{
	struct batoni_room *room = endpoint_of(bootstrap)->room;
	enum baton_status status;

	pthread_mutex_lock(&room->lock);
	status = exchange_locked(bootstrap, mine, bytes, all_p);
	pthread_mutex_unlock(&room->lock);
	return status == BATON_ERR_PEER
	               ? batoni_refuse(status, "another rank has given up")
	               : status;
}

static void
leave(struct batoni_bootstrap *bootstrap)
{
	struct batoni_room *room = endpoint_of(bootstrap)->room;
	bool last;

	pthread_mutex_lock(&room->lock);
	room->left = true;
	last = --room->inside == 0;
	pthread_mutex_unlock(&room->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&room->lock);
	batoni_free(room->tables);
	batoni_free(room);
}

static const struct batoni_bootstrap_ops ops = {
	.name = "threads",
	.exchange = exchange,
	.close = leave,
};

static void
join_room(struct batoni_room *room, int rank, struct batoni_bootstrap *bootstrap)
{
	*bootstrap = (struct batoni_bootstrap){
		.ops = &ops,
		.kind = BATONI_BOOTSTRAP_THREADS,
		.rank = rank,
		.size = room->size,
		.within = room->size,
		.before = rank,
		.strict = true,
	};
	endpoint_of(bootstrap)->room = room;
}

const struct batoni_threads_ops batoni_threads_ops = {
	.open = open_room,
	.join = join_room,
};
