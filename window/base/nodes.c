/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nodes of waits: one for each counter that a wait names, taken by the call that
 * describes the wait and given back at its end.  What they say while the wait is placed is
 * in wait.c.
 *
 * Threads.  Enqueuing threads describe and forget; nodes_lock, a leaf, guards the free list
 * and the marks that find counters named twice.  A node off the free list belongs to the
 * enqueuer until its operation is published, then to the driver.  The driver keeps one spare
 * node, so that successive waits for one counter take no lock.
 */
#include "rma.h"

#include "mem.h"

/* ---- memory ---- */

/* One node for each operation, and those for a wait that names every rank. */
static uint32_t
nodes_count(const struct batoni_rma *rma)
{
	return rma->requests_max + (uint32_t)rma->size;
}

static void
nodes_free(struct batoni_rma *rma)
{
	batoni_free(rma->nodes);
	batoni_free(atomic_load(&rma->nodes_more));
	rma->nodes = NULL;
	atomic_store(&rma->nodes_more, NULL);
	pthread_mutex_destroy(&rma->nodes_lock);
}

enum baton_status
batoni_nodes_open(struct batoni_rma *rma)
{
	uint32_t nodes = rma->requests_max;

	batoni_list_init(&rma->waits);
	pthread_mutex_init(&rma->nodes_lock, NULL);
	rma->nodes = batoni_alloc((size_t)nodes + 2, sizeof(*rma->nodes));
	if (!rma->nodes) {
		nodes_free(rma);
		return BATON_ERR_NOMEM;
	}
	for (uint32_t i = 1; i <= nodes + 1; i++) {
		batoni_list_init(&rma->nodes[i].link);
		rma->nodes[i].next = i < nodes ? i + 1 : 0;
	}
	rma->free_node = 1;
	rma->spare_node = nodes + 1;
	return BATON_OK;
}

/* Also after an open that failed. */
void
batoni_nodes_close(struct batoni_rma *rma)
{
	if (rma->nodes)
		nodes_free(rma);
}

/* ---- nodes ---- */

/* Allocate the second array of nodes, unless it exists.  Caller holds nodes_lock. */
static void
add_nodes_locked(struct batoni_rma *rma)
{
	uint32_t n = (uint32_t)rma->size;
	struct batoni_wait_node *more;

	if (atomic_load(&rma->nodes_more))
		return;
	more = batoni_alloc(n, sizeof(*more));
	if (!more)
		return;
	for (uint32_t i = 0; i < n; i++) {
		batoni_list_init(&more[i].link);
		more[i].next = i + 1 < n ? batoni_nodes_first(rma) + i + 1 : 0;
	}
	rma->free_node = batoni_nodes_first(rma);
	atomic_store_explicit(&rma->nodes_more, more, memory_order_release);
}

/* Return the list of nodes that begins with first. */
static void
nodes_return(struct batoni_rma *rma, uint32_t first)
{
	uint32_t last = first;

	if (!first)
		return;
	while (batoni_node_at(rma, last)->next)
		last = batoni_node_at(rma, last)->next;
	pthread_mutex_lock(&rma->nodes_lock);
	batoni_node_at(rma, last)->next = rma->free_node;
	rma->free_node = first;
	pthread_mutex_unlock(&rma->nodes_lock);
}

void
batoni_nodes_return(struct batoni_rma *rma, uint32_t first)
{
	if (!rma->spare_node && !batoni_node_at(rma, first)->next)
		rma->spare_node = first;
	else
		nodes_return(rma, first);
}

/* The node of this counter in the current description, a new one if it has none; 0: none is
 * free.  *last_p is the description's last node.  Caller holds nodes_lock. */
static uint32_t
node_for_locked(struct batoni_rma *rma, struct batoni_counter *of,
                uint32_t *last_p)
{
	struct batoni_wait_node *node;
	uint32_t i;

	if (of->described == rma->descriptions)
		return of->described_node;
	if (!rma->free_node)
		add_nodes_locked(rma);
	i = rma->free_node;
	if (!i)
		return 0;
	node = batoni_node_at(rma, i);
	rma->free_node = node->next;
	node->counter = of;
	node->units = 0;
	node->doubted = false;
	node->fixed = false;
	node->next = 0;
	batoni_node_at(rma, *last_p)->next = i;
	*last_p = i;
	of->described = rma->descriptions;
	of->described_node = i;
	return i;
}

/* Does this list have all the nodes?  Then the end of another wait frees none. */
static bool
is_all_of_them(const struct batoni_rma *rma, uint32_t first)
{
	uint32_t n = 0;

	for (uint32_t i = first; i; i = batoni_node_at(rma, i)->next)
		n++;
	return n >= nodes_count(rma);
}

/* The descriptors' nodes, in their order, or as many as there are.  A counter that is named twice ends
 * it if `twice_p` is there.  Returns how many descriptors were described; *first_p: their nodes. */
static size_t
take_nodes(struct batoni_rma *rma, uint32_t slot, size_t desc_count,
           const struct baton_wait_signal_desc *descs, size_t *twice_p,
           uint32_t *first_p)
{
	uint32_t last = 0;
	size_t i;

	pthread_mutex_lock(&rma->nodes_lock);
	rma->descriptions++;
	/* Node 0 belongs to no wait; it serves as the head of the list. */
	rma->nodes[0].next = 0;
	for (i = 0; i < desc_count; i++) {
		const uint32_t before = last;
		const uint32_t n = node_for_locked(
			rma,
			batoni_counter_of(rma,
		                          batoni_link_of(rma, descs[i].peer),
		                          descs[i].signal_index,
		                          descs[i].context),
			&last);
		struct batoni_wait_node *node = batoni_node_at(rma, n);

		if (!n)
			break;
		if (unlikely(twice_p) && last == before) {
			*twice_p = i;
			break;
		}
		node->slot = slot;
		node->units += (uint64_t)descs[i].op_count;
	}
	*first_p = rma->nodes[0].next;
	pthread_mutex_unlock(&rma->nodes_lock);
	return i;
}

static enum baton_status
describe(struct batoni_rma *rma, uint32_t slot, size_t desc_count,
         const struct baton_wait_signal_desc *descs, size_t *twice_p)
{
	struct batoni_pending *pending = &rma->pending[slot];
	size_t described;
	uint32_t first;

	for (size_t i = 0; i < desc_count; i++) {
		if (!batoni_link_make(rma, descs[i].peer))
			return BATON_ERR_NOMEM;
	}
	if (twice_p)
		*twice_p = SIZE_MAX;
	described = take_nodes(rma, slot, desc_count, descs, twice_p, &first);
	if (described < desc_count) {
		bool alone = is_all_of_them(rma, first);

		nodes_return(rma, first);
		return twice_p && *twice_p != SIZE_MAX ? BATON_ERR_MISMATCH
		       : alone                         ? BATON_ERR_INVALID
		                                       : BATON_ERR_AGAIN;
	}
	pending->wait.signal_index = desc_count == 1 ? descs->signal_index : -1;
	pending->wait.context = desc_count == 1 ? descs->context : -1;
	pending->wait.units = desc_count == 1 ? (uint64_t)descs->op_count : 0;
	pending->wait.nodes = first;
	pending->wait.unmet = first;
	pending->wait.sleep = BATONI_WAIT_FRESH;
	pending->wait.any = false;
	return BATON_OK;
}

enum baton_status
batoni_wait_describe(struct batoni_rma *rma, uint32_t slot, size_t desc_count,
                     const struct baton_wait_signal_desc *descs)
{
	return describe(rma, slot, desc_count, descs, NULL);
}

enum baton_status
batoni_wait_describe_any(struct batoni_rma *rma, uint32_t slot, size_t desc_count,
                         const struct baton_wait_signal_desc *descs, int *index_p,
                         size_t *twice_p)
{
	enum baton_status status = describe(rma, slot, desc_count, descs, twice_p);

	if (status != BATON_OK)
		return status;
	rma->pending[slot].wait.any = true;
	rma->pending[slot].wait.index_p = index_p;
	return BATON_OK;
}

enum baton_status
batoni_wait_describe_count(struct batoni_rma *rma, uint32_t slot,
                           const struct baton_wait_signal_desc *desc,
                           uint64_t value)
{
	enum baton_status status = describe(rma, slot, 1, desc, NULL);
	struct batoni_wait_node *node;

	if (status != BATON_OK)
		return status;
	node = batoni_node_at(rma, rma->pending[slot].wait.nodes);
	node->fixed = true;
	node->units = 0;
	node->target = value;
	rma->pending[slot].wait.units = value;
	return BATON_OK;
}

void
batoni_wait_forget(struct batoni_rma *rma, uint32_t slot)
{
	nodes_return(rma, rma->pending[slot].wait.nodes);
}
