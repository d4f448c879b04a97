/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Intrusive containers.
 *
 * A list is circular and doubly linked.  A node that is in no list points at itself: removing it
 * again does nothing, and batoni_list_empty tells whether a node is in a list.
 *
 * A hash table has chains of nodes, by a key of 64 bits.  Several nodes may have the same key; the one
 * that was added last is found.  It is made with as many chains as there can be nodes, and never grows.
 * It needs the node to remove it, not the key.
 */
#ifndef BATONI_LIST_H
#define BATONI_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem.h"

struct batoni_list_node {
	struct batoni_list_node *prev, *next;
};

#define batoni_container_of(pointer, type, member)                            \
	((type *)(void *)((char *)(pointer) - offsetof(type, member)))

static inline void
batoni_list_init(struct batoni_list_node *node)
{
	node->prev = node->next = node;
}

static inline bool
batoni_list_empty(const struct batoni_list_node *list)
{
	return list->next == list;
}

static inline void
batoni_list_append(struct batoni_list_node *list, struct batoni_list_node *node)
{
	node->prev = list->prev;
	node->next = list;
	list->prev->next = node;
	list->prev = node;
}

static inline void
batoni_list_remove(struct batoni_list_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	batoni_list_init(node);
}

/* ---- hash tables ---- */

struct batoni_hash_node {
	uint64_t key;
	struct batoni_hash_node *next, **above; /* in its chain */
};

struct batoni_hash {
	struct batoni_hash_node **chains;
	unsigned shift; /* from a hash of 64 bits to a chain */
};

/* The shift for so many entries at least. */
static inline unsigned
batoni_hash_shift(uint64_t entries)
{
	unsigned log2 = 4;

	while ((uint64_t)1 << log2 < entries)
		log2++;
	return 64 - log2;
}

/* Multiplicative (Fibonacci) hashing: keys are mostly small and dense, and the upper bits depend on all
 * of the key. */
static inline uint64_t
batoni_hash_index(uint64_t key, unsigned shift)
{
	return (key * UINT64_C(0x9e3779b97f4a7c15)) >> shift;
}

/* For so many nodes.  False: out of memory. */
static inline bool
batoni_hash_init(struct batoni_hash *hash, uint64_t nodes)
{
	hash->shift = batoni_hash_shift(nodes);
	hash->chains = batoni_alloc((size_t)1 << (64 - hash->shift),
	                            sizeof(hash->chains[0]));
	return hash->chains != NULL;
}

static inline void
batoni_hash_fini(struct batoni_hash *hash)
{
	batoni_free(hash->chains);
	hash->chains = NULL;
}

/* NULL: there is none. */
static inline struct batoni_hash_node *
batoni_hash_find(const struct batoni_hash *hash, uint64_t key)
{
	struct batoni_hash_node *node =
		hash->chains[batoni_hash_index(key, hash->shift)];

	while (node && node->key != key)
		node = node->next;
	return node;
}

static inline void
batoni_hash_add(struct batoni_hash *hash, struct batoni_hash_node *node,
                uint64_t key)
{
	struct batoni_hash_node **chain =
		&hash->chains[batoni_hash_index(key, hash->shift)];

	node->key = key;
	node->next = *chain;
	node->above = chain;
	if (node->next)
		node->next->above = &node->next;
	*chain = node;
}

static inline void
batoni_hash_remove(struct batoni_hash_node *node)
{
	*node->above = node->next;
	if (node->next)
		node->next->above = node->above;
}

#endif
