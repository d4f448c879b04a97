/* SPDX-License-Identifier: BSD-3-Clause */
/* An intrusive, circular, doubly linked list.  A node that is in no list points at
 * itself: removing it again does nothing, and batoni_list_empty tells whether a
 * node is in a list. */
#ifndef BATONI_LIST_H
#define BATONI_LIST_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
