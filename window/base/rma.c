/* SPDX-License-Identifier: BSD-3-Clause */
#include "rma.h"

struct baton_window *
batoni_window_find(struct batoni_rma *rma, uint64_t id)
{
	for (struct batoni_list_node *node = rma->windows.next;
	     node != &rma->windows; node = node->next) {
		struct baton_window *window = batoni_container_of(
			node, struct baton_window, link);

		if (window->id == id)
			return window;
	}
	return NULL;
}
