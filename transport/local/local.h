/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local transport: what its files share.
 *
 *   local.c        the transport: matching, moving, exchanges, closing
 *   any_source.c   receives from any rank
 *   open.c         making it, and the memory that its ranks share
 *
 * The notes on matching, moving and closing are in local.c.
 */
#ifndef BATONI_LOCAL_H
#define BATONI_LOCAL_H

#include <assert.h>

#include "match.h"
#include "transport.h"

enum local_state {
	FREE,
	WAITING, /* in its queue */
	HELD,    /* a send whose message a probe has found; and the node of that slot.  Each is the
	          * other's partner; NULL: that rank has closed */
	MOVING,  /* has a partner, and their copy is under way */
	OVER     /* its bytes are moved or its partner has closed, and its end is to be reported */
};

struct local;

struct local_node {
	union {
		struct batoni_match_node waiting; /* WAITING */
		struct { /* HELD, MOVING, OVER */
			struct batoni_list_node link; /* of local->copies */
			struct local_node *partner;
			size_t length; /* of the message */
			size_t moved;  /* the receive's counts */
		};
	};
	struct batoni_transfer *transfer;
	struct local *local;
	enum local_state state;
};

static_assert(sizeof(struct local_node) <= 64, "a node is one cache line");

/* A send that waits, by its slot. */
struct local_waiting {
	struct batoni_list_node link; /* of shared->sends */
	struct local_node *node;
};

/* One round of exchange. */
struct local_table {
	char *all; /* by rank; from the first rank that writes to the last that reads */
	uint64_t what;
	size_t bytes; /* of each rank */
	int brought, taken;
	enum baton_status status; /* all ranks get it */
};

/* What the ranks of one communicator share; the last rank to close frees it. */
struct local_shared {
	struct batoni_match match;
	int size;
	int open;    /* ranks that have not closed */
	struct local_table tables[2]; /* of the even and the odd rounds */
	uint64_t rounds; /* of exchange that can become full */
	struct batoni_peer *peers; /* NULL: there are no segments */
	char *segments;
	/* An open of our own, whose pinned memory the segments are; NULL: they are not. */
	struct batoni_device *device;
	bool stored_to; /* a stream of a rank that has closed may still store into them */
	struct batoni_list_node *sends; /* by receiving rank: those that wait, in the order of their issue */
	struct local **ranks; /* those that expect messages, or NULL */
	uint32_t expecting;   /* so many do */
	struct local_shared *next_kept;
};

struct local {
	struct batoni_transport base; /* must be first */
	struct local_shared *shared;
	struct local_node *nodes; /* by slot */
	struct local_waiting *waiting; /* by slot */
	uint32_t *waiting_to; /* by rank: how many of these are to it */
	bool brought;   /* to the table of this round */
	uint64_t round; /* of exchange */
	uint32_t expects; /* receives from any rank or of any tag that wait */
	int turn; /* the rank whose messages are looked for first */
	/* Nodes of this rank that are MOVING or OVER; the front is next. */
	struct batoni_list_node copies;
};

static inline struct local *
batoni_local_of(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct local, base);
}

/* Both ends of a message have the same key.  Ranks are below 4096. */
static inline uint64_t
batoni_local_key(const struct local *local, const struct batoni_transfer *transfer)
{
	uint64_t from = (uint64_t)local->base.rank;
	uint64_t to = (uint64_t)transfer->peer;

	if (transfer->direction == BATONI_RECV) {
		from = to;
		to = (uint64_t)local->base.rank;
	}
	/* On the last hidden tag a receive matches messages of any rank. */
	if (transfer->tag ==
	    local->base.hidden_tag + (local->base.hidden_tags - 1))
		from = 0xffff;
	return to << 48 | from << 32 | (uint32_t)transfer->tag;
}

static inline struct local_node *
batoni_local_front(const struct local_shared *shared, uint64_t key)
{
	struct batoni_match_node *front = batoni_match_find(&shared->match, key);

	return front ? batoni_container_of(front, struct local_node, waiting) : NULL;
}

static inline void
batoni_local_enter(struct local_node *node, uint64_t key, struct local_node *front)
{
	node->state = WAITING;
	batoni_match_enter(&node->local->shared->match, &node->waiting, key,
	                   front ? &front->waiting : NULL);
}

/* The send, whose node has entered its queue, waits. */
static inline void
batoni_local_send_waits(struct local *local, const struct batoni_transfer *send)
{
	struct local_waiting *waiting = &local->waiting[send->slot];

	waiting->node = &local->nodes[send->slot];
	local->waiting_to[send->peer]++;
	batoni_list_append(&local->shared->sends[send->peer], &waiting->link);
}

static inline void
batoni_local_dequeue(struct local_node *node)
{
	if (node->transfer->direction == BATONI_SEND) {
		batoni_list_remove(&node->local->waiting[node->transfer->slot].link);
		node->local->waiting_to[node->transfer->peer]--;
	}
	batoni_match_remove(&node->local->shared->match, &node->waiting);
	node->state = FREE;
}

/* ---- any_source.c ---- */

extern const struct batoni_unmatched_ops batoni_local_unmatched;

/* A send meets nothing that is posted at its peer, which may expect messages for receives from any rank or of
 * any tag: has one issued, which the send meets.  It enters no queue: its state is FREE.  NULL: there is none. */
struct local_node *batoni_local_receive_for(struct local *local,
                                            const struct batoni_transfer *send);
/* The rank closes, and expects no messages any more. */
void batoni_local_unexpect(struct local *local);

/* ---- local.c ---- */

/* The receive, whose node waits nowhere, meets a send that has left its queue: as issue. */
enum baton_status batoni_local_meet(struct local *local,
                                    struct batoni_transfer *receive,
                                    struct local_node *send);

extern const struct batoni_transport_ops batoni_local_ops;
extern const struct batoni_path_ops batoni_local_messages_ops;
extern const struct batoni_path_ops batoni_local_checked_ops;

/* ---- open.c ---- */

/* The last rank has closed: free what the ranks share. */
void batoni_local_free(struct local_shared *shared);

#endif
