/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matching: which of the transfers that wait a new one meets.
 *
 * Nodes that wait for the same thing have the same key and form a queue, in the order in which they
 * entered.  What a queue holds (receives, sends, arrivals) and what meets its front is up to the
 * user; a queue never holds both ends of a match, because those have met.  The front of
 * each queue is in a hash table, by the key; the others follow it in a ring (list.h).  Finding a
 * front, entering, and leaving from anywhere in a queue therefore take constant time, however many keys and
 * nodes there are.  Nothing is allocated after init.
 *
 * A node is part of the user's object.  It is used only while it is in a queue, so the memory
 * can be shared with what the object needs at other times (a union).  The user knows whether a node
 * waits.
 *
 * One thread at a time; there are no locks and no atomics.
 */
#ifndef BATONI_MATCH_H
#define BATONI_MATCH_H

#include <assert.h>

#include "list.h"

struct batoni_match_node {
	struct batoni_list_node link; /* the ring of its queue */
	/* In the table if it is the front.  Behind: the key alone, and `above` is NULL. */
	struct batoni_hash_node by_key;
};

struct batoni_match {
	struct batoni_hash fronts;
};

/* For so many nodes: more still match, but finding them takes longer.  False: out of memory. */
bool batoni_match_init(struct batoni_match *match, uint64_t nodes);

/* The nodes that still wait are not touched. */
void batoni_match_fini(struct batoni_match *match);

/* The front of the key's queue; NULL: nothing waits. */
static inline struct batoni_match_node *
batoni_match_find(const struct batoni_match *match, uint64_t key)
{
	struct batoni_hash_node *node = batoni_hash_find(&match->fronts, key);

	return node ? batoni_container_of(node, struct batoni_match_node, by_key)
	            : NULL;
}

/* Append to the key's queue, whose front the caller has found (NULL: the queue is empty). */
static inline void
batoni_match_enter(struct batoni_match *match, struct batoni_match_node *node,
                   uint64_t key, struct batoni_match_node *front)
{
	assert(front == batoni_match_find(match, key));
	if (!front) {
		batoni_list_init(&node->link);
		batoni_hash_add(&match->fronts, &node->by_key, key);
		return;
	}
	node->by_key.key = key;
	node->by_key.above = NULL;
	/* The node before the front in the ring is the end of the queue. */
	batoni_list_append(&front->link, &node->link);
}

/* Remove from anywhere in its queue: the node behind a front becomes the front. */
static inline void
batoni_match_remove(struct batoni_match *match, struct batoni_match_node *node)
{
	struct batoni_match_node *next =
		batoni_container_of(node->link.next, struct batoni_match_node, link);

	/* What is in a queue alone is its front. */
	assert(node->by_key.above || next != node);
	if (node->by_key.above) {
		batoni_hash_remove(&node->by_key);
		if (next != node)
			batoni_hash_add(&match->fronts, &next->by_key,
			                next->by_key.key);
	}
	batoni_list_remove(&node->link);
}

/*
 * Copy a matched message in slices: move up to `most` bytes of a copy of `total`, of which `moved` were
 * moved before, and return how many.  The buffers may overlap; the result of all slices is that of
 * one memmove: if the destination is behind the source, the copy runs from its end to its beginning.
 */
size_t batoni_match_move(void *to, const void *from, size_t total, size_t moved, size_t most);

#endif
