/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters, and the waits that are given units of them.
 *
 * A counter only grows: by stores of other ranks into this rank's segment, or by
 * batoni_counter_add for what came by message.  `given` counts the units that waits
 * have ever been given.  A wait adds its units to `given`; the sum is its target, and the
 * wait is met when the counter has reached it.  So waits share a counter without waiting
 * for each other, and signals that came early count.
 *
 * A wait is a list of nodes, one for each counter that it names.  A node stands in
 * its counter's list, in the order of placing, from place to the wait's end.
 * Invariants, for the nodes of one counter in that order:
 *
 *   - targets grow; the last one is at most `given`;
 *   - a node that is met stays met: the counter grows, and targets only go down.
 *
 * A wait for a value of a counter has a *fixed* node: it takes no units, its target stays, and it
 * stands in front of those with units.
 *
 * A wait for any of its counters has a place and units at each; the first node in its order that is met
 * ends it, and the others give their units back.  It checks all of its nodes each time, and is
 * parked if stores alone move all of their counters.
 *
 * Hence `unmet`, the first node not seen to be met, only moves forward, and testing a
 * wait costs one load however many counters it names.  A wait that ends early gives
 * its units back: `given` and the targets of all later nodes decrease by them.  Units
 * of waits that ended in OK are used up, and their nodes are only removed.
 *
 * Parked.  A wait whose first unmet counter only stores of its source can move is
 * parked: the engine may sleep, and the store rings.  A wait is not parked if signals of
 * that source may come by message: the source does not reach our segment, or it has sent a
 * signal by message in that context (its later ones are messages too).  The counters after
 * the first unmet one matter only when that is met; the test that sees this parks the wait
 * again or ends it.  Targets that decrease can meet a parked wait without a store.  So
 * giving units back un-parks later waits, which makes the communicator busy.
 *
 * Visibility.  The load that finds a counter at or past a target is an acquire, at
 * least.  Every change of a counter is a read-modify-write, so it is in the release
 * sequence of all earlier ones.  The load therefore synchronizes with each of the signals
 * counted, and what was written before any of them is visible (put.c says what that is).
 *
 * Threads.  Everything runs on the driver.  Enqueuing threads take the nodes of a wait and
 * give them back if the call is refused (base/nodes.c).
 */
#include "window.h"

#include <time.h>

#include "life.h"
#include "liveness.h"

/* How often the processes of peers are checked. */
#define PEERS_CHECK_NS UINT64_C(100000000)

enum survey_result {
	MET,
	UNMET,
	GONE /* unmet, and the source's process has ended */
};

/* One liveness check of the peers' processes. */
struct survey {
	bool due;
	bool gone;      /* the process of source */
	int source;     /* the peer checked last; -1: none yet */
	bool listening; /* the caller is about to sleep on the bell */
};

bool
batoni_wait_needs_messages(const struct batoni_rma *rma, uint32_t slot)
{
	uint32_t i = rma->pending[slot].wait.nodes;

	for (; i; i = batoni_node_at(rma, i)->next) {
		if (batoni_comes_by_message(
			    rma, batoni_node_at(rma, i)->counter->channel->peer))
			return true;
	}
	return false;
}

/* ---- units ---- */

static bool
is_met(const struct batoni_wait_node *node)
{
	/* Pairs with the signaller's fetch-add (batoni_signal_store).  For the data an
	 * acquire would do.  It is sequentially consistent because it may be the last
	 * check before a sleep (rma.h): an acquire load could be ordered before the
	 * store that announces the sleep. */
	return atomic_load(node->counter->value) >= node->target;
}

/* Store the wanted count, from which on the source rings: the lowest unmet target; 0, any count,
 * if there is none.  Of the nodes with units the first unmet one has the lowest.
 *
 * The stored value is never above the lowest unmet target: a thread that is about to sleep
 * stores it before its last check, new targets of nodes with units are higher, and when targets
 * decrease, or a fixed one comes, it is stored again. */
static void
want(struct batoni_counter *counter)
{
	uint64_t wanted = 0;

	for (struct batoni_list_node *at = counter->nodes.next;
	     at != &counter->nodes; at = at->next) {
		const struct batoni_wait_node *node = batoni_container_of(
			at, struct batoni_wait_node, link);

		if (is_met(node))
			continue;
		if (!wanted || node->target < wanted)
			wanted = node->target;
		if (!node->fixed)
			break;
	}
	if (atomic_load_explicit(&counter->value[1], memory_order_relaxed) !=
	    wanted)
		atomic_store(&counter->value[1], wanted);
}

/* A thread that sleeps may have asked to be woken for a higher count. */
static void
place_in_front(struct batoni_counter *counter, struct batoni_wait_node *node)
{
	batoni_list_append(counter->nodes.next, &node->link);
	if (atomic_load_explicit(&counter->value[1], memory_order_relaxed))
		want(counter);
}

void
batoni_wait_place(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	uint32_t i = rma->pending[transfer->slot].wait.nodes;

	for (; i; i = batoni_node_at(rma, i)->next) {
		struct batoni_wait_node *node = batoni_node_at(rma, i);
		struct batoni_counter *counter = node->counter;

		if (unlikely(node->fixed)) {
			place_in_front(counter, node);
			continue;
		}
		counter->given += node->units;
		node->target = counter->given;
		batoni_list_append(&counter->nodes, &node->link);
	}
}

static void
set_sleep(struct batoni_rma *rma, struct batoni_pending *pending,
          enum batoni_wait_sleep sleep)
{
	struct batoni_load *load = &rma->base.path.load;

	load->parked -= pending->wait.sleep == BATONI_WAIT_PARKED;
	load->awaiting -= pending->wait.sleep == BATONI_WAIT_AWAITING;
	pending->wait.sleep = (unsigned char)sleep;
	load->parked += sleep == BATONI_WAIT_PARKED;
	load->awaiting += sleep == BATONI_WAIT_AWAITING;
}

/* The wait has to be polled again, so the engine may not sleep on the bell. */
static void
unpark(struct batoni_rma *rma, struct batoni_pending *pending)
{
	if (pending->wait.sleep == BATONI_WAIT_FRESH)
		return;
	set_sleep(rma, pending, BATONI_WAIT_FRESH);
	batoni_comm_set_busy(rma->comm);
}

/* Give back the units of one node: later targets decrease, which may meet those nodes.  In a
 * broken communicator the later targets stay, since those waits end with the error. */
static void
give_back(struct batoni_rma *rma, struct batoni_wait_node *node)
{
	struct batoni_counter *counter = node->counter;
	struct batoni_list_node *at = node->link.next;

	counter->given -= node->units;
	if (rma->comm->fault.status != BATON_OK || node->fixed)
		at = &counter->nodes;
	for (; at != &counter->nodes; at = at->next) {
		struct batoni_wait_node *later = batoni_container_of(
			at, struct batoni_wait_node, link);

		later->target -= node->units;
		if (is_met(later))
			unpark(rma, &rma->pending[later->slot]);
	}
	batoni_list_remove(&node->link);
	if (atomic_load_explicit(&counter->value[1], memory_order_relaxed))
		want(node->counter);
}

void
batoni_wait_unplace(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	uint32_t first = rma->pending[transfer->slot].wait.nodes;

	for (uint32_t i = first; i; i = batoni_node_at(rma, i)->next)
		give_back(rma, batoni_node_at(rma, i));
	batoni_nodes_return(rma, first);
}

/* The index of the first node of the wait that is met; -1: none is met. */
static int
which_met(const struct batoni_rma *rma, const struct batoni_pending *pending)
{
	uint32_t i = pending->wait.nodes;

	for (int n = 0; i; i = batoni_node_at(rma, i)->next, n++) {
		if (is_met(batoni_node_at(rma, i)))
			return n;
	}
	return -1;
}

/* The first met node's units are used up, and those of the others are given back. */
static void
finish_any(struct batoni_rma *rma, struct batoni_pending *pending)
{
	uint32_t first = pending->wait.nodes;
	int met = which_met(rma, pending), n = 0;

	for (uint32_t i = first; i; i = batoni_node_at(rma, i)->next, n++) {
		struct batoni_wait_node *node = batoni_node_at(rma, i);

		if (n != met) {
			give_back(rma, node);
			continue;
		}
		batoni_list_remove(&node->link);
		batoni_set(pending->transfer->peer, node->counter->channel->peer);
	}
	if (pending->wait.index_p)
		*pending->wait.index_p = met;
	batoni_nodes_return(rma, first);
	batoni_transfer_moved(pending->transfer, 0);
}

/* The wait is over: its units are used up. */
static void
finish_wait(struct batoni_rma *rma, struct batoni_pending *pending)
{
	uint32_t first = pending->wait.nodes;

	if (unlikely(pending->wait.any)) {
		finish_any(rma, pending);
		return;
	}
	for (uint32_t i = first; i; i = batoni_node_at(rma, i)->next)
		batoni_list_remove(&batoni_node_at(rma, i)->link);
	batoni_nodes_return(rma, first);
	batoni_transfer_moved(pending->transfer, 0);
}

/* ---- polling ---- */

/* Do only stores into our segment move this counter? */
static bool
stores_only(const struct batoni_rma *rma, const struct batoni_wait_node *node)
{
	const struct batoni_channel *channel = node->counter->channel;

	return !batoni_comes_by_message(rma, channel->peer) && !channel->heard;
}

/* Has the process of this node's source ended? */
static bool
source_gone(const struct batoni_rma *rma, const struct batoni_wait_node *node,
            struct survey *survey)
{
	const struct batoni_peer *peers = rma->transport->peers;
	int source = node->counter->channel->peer;

	/* A check is a system call, and neighbouring nodes often have one source. */
	if (source != survey->source) {
		survey->source = source;
		survey->gone = batoni_peer_is_gone(&peers[source]);
	}
	return survey->gone;
}

/* Move `unmet` past the nodes that are met. */
static bool
all_met(const struct batoni_rma *rma, struct batoni_pending *pending)
{
	uint32_t i = pending->wait.unmet;

	while (i && is_met(batoni_node_at(rma, i)))
		i = batoni_node_at(rma, i)->next;
	pending->wait.unmet = i;
	return i == 0;
}

static bool
is_over(const struct batoni_rma *rma, struct batoni_pending *pending)
{
	return unlikely(pending->wait.any) ? which_met(rma, pending) >= 0
	                                   : all_met(rma, pending);
}

/* What a wait that is not over waits for: its first unmet node, or, of a wait for any, all of its nodes.  Do
 * only stores move these counters? */
static bool
only_stores_end(const struct batoni_rma *rma, const struct batoni_pending *pending)
{
	uint32_t i = pending->wait.unmet;
	bool stores = stores_only(rma, batoni_node_at(rma, i));

	while (unlikely(pending->wait.any) && stores &&
	       (i = batoni_node_at(rma, i)->next))
		stores = stores_only(rma, batoni_node_at(rma, i));
	return stores;
}

static void
want_those(const struct batoni_rma *rma, const struct batoni_pending *pending)
{
	uint32_t i = pending->wait.unmet;

	want(batoni_node_at(rma, i)->counter);
	while (unlikely(pending->wait.any) && (i = batoni_node_at(rma, i)->next))
		want(batoni_node_at(rma, i)->counter);
}

/* Is one of the nodes met by now? */
static bool
one_is_met(const struct batoni_rma *rma, const struct batoni_pending *pending)
{
	return unlikely(pending->wait.any)
	               ? which_met(rma, pending) >= 0
	               : is_met(batoni_node_at(rma, pending->wait.unmet));
}

/* May streams of the source's device still signal, although the source is gone?  They go on
 * where it has lost MPI alone, and for a moment after its process. */
static bool
may_still_store(const struct batoni_rma *rma, const struct batoni_wait_node *node)
{
	const struct batoni_peer *peer =
		&rma->transport->peers[node->counter->channel->peer];

	return peer->streams_here && !peer->silent;
}

/* Is any unmet node's source gone, not only the first one's?  Such a wait can never be met,
 * even if the first node never is either.  The counter is loaded after the check of the
 * process, because the process may have signaled just before it ended.  What its streams have
 * under way gets until the next check. */
static bool
any_gone(const struct batoni_rma *rma, const struct batoni_pending *pending,
         struct survey *survey)
{
	for (uint32_t i = pending->wait.unmet; i; i = batoni_node_at(rma, i)->next) {
		struct batoni_wait_node *node = batoni_node_at(rma, i);

		if (!source_gone(rma, node, survey) || is_met(node))
			continue;
		if (node->doubted || !may_still_store(rma, node))
			return true;
		node->doubted = true;
	}
	return false;
}

/* Is a source known to be gone (liveness.c), whose counter only its stores could move?  Then the
 * first poll tells. */
static bool
is_known_gone(const struct batoni_rma *rma, const struct batoni_pending *pending)
{
	const struct batoni_peer *peers = rma->transport->peers;

	for (uint32_t i = pending->wait.unmet; i; i = batoni_node_at(rma, i)->next) {
		const struct batoni_wait_node *node = batoni_node_at(rma, i);

		if (peers[node->counter->channel->peer].gone &&
		    stores_only(rma, node) && !may_still_store(rma, node) &&
		    !is_met(node))
			return true;
	}
	return false;
}

static enum survey_result
survey_counters(struct batoni_rma *rma, struct batoni_pending *pending,
                struct survey *survey)
{
	bool due = survey->due;

	do {
		if (is_over(rma, pending))
			return MET;
		if (due && any_gone(rma, pending, survey))
			return GONE;
		/* One check asks for each process once.  A node that it has doubted is asked for
		 * again in the next check. */
		due = false;
		if (pending->wait.sleep == BATONI_WAIT_FRESH &&
		    is_known_gone(rma, pending))
			return GONE;
		if (!only_stores_end(rma, pending)) {
			/* A parked wait is not polled for messages. */
			if (pending->wait.sleep == BATONI_WAIT_PARKED)
				unpark(rma, pending);
			set_sleep(rma, pending, BATONI_WAIT_AWAITING);
			return UNMET;
		}
		set_sleep(rma, pending, BATONI_WAIT_PARKED);
		if (!survey->listening)
			return UNMET;
		want_those(rma, pending);
	} while (one_is_met(rma, pending));
	return UNMET;
}

/* Remove it from the issued waits. */
static void
unlink_issued(struct batoni_rma *rma, struct batoni_pending *pending)
{
	batoni_list_remove(&pending->link);
	set_sleep(rma, pending, BATONI_WAIT_FRESH);
	rma->base.path.load.in_flight--;
}

static struct survey
survey_begin(struct batoni_rma *rma)
{
	struct survey survey = {
		.source = -1,
		.listening = atomic_load(&batoni_bell()->listening) != 0,
	};
	struct timespec now;
	uint64_t now_ns;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) +
	         (uint64_t)now.tv_nsec;
	if (now_ns >= rma->peers_checked_ns + PEERS_CHECK_NS) {
		rma->peers_checked_ns = now_ns;
		survey.due = true;
	}
	return survey;
}

/* ---- the slots of the contract ---- */

enum baton_status
batoni_wait_issue(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];

	pending->transfer = transfer;
	if (is_over(rma, pending)) {
		finish_wait(rma, pending);
		return BATON_OK;
	}
	batoni_list_append(&rma->waits, &pending->link);
	rma->base.path.load.in_flight++;
	return BATON_PENDING;
}

/* Slot `issue`: listen for messages, where the wait may need them. */
enum baton_status
batoni_wait_start(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	if (batoni_wait_needs_messages(rma, transfer->slot))
		batoni_messages_post(rma);
	return batoni_wait_issue(rma, transfer);
}

/* Do for one counter what describe, place and issue do. */
enum baton_status
batoni_wait_issue_one(struct batoni_rma *rma, struct batoni_transfer *transfer,
                      const struct baton_wait_signal_desc *desc)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];
	struct batoni_link *link = batoni_link_of(rma, desc->peer);
	struct batoni_counter *counter;
	uint64_t units = (uint64_t)desc->op_count;
	uint32_t first = rma->spare_node;
	struct batoni_wait_node *node = batoni_node_at(rma, first);

	if (!link)
		return BATON_ERR_AGAIN;
	pending->wait.signal_index = desc->signal_index;
	pending->wait.context = desc->context;
	pending->wait.units = units;
	counter = batoni_counter_of(rma, link, desc->signal_index, desc->context);
	if (atomic_load_explicit(counter->value, memory_order_acquire) >=
	    counter->given + units) {
		counter->given += units;
		return BATON_OK;
	}
	if (first) {
		rma->spare_node = 0;
		node->units = units;
		node->counter = counter;
		node->slot = transfer->slot;
		node->doubted = false;
		node->fixed = false;
		pending->wait.nodes = pending->wait.unmet = first;
		pending->wait.sleep = BATONI_WAIT_FRESH;
		pending->wait.any = false;
	} else if (batoni_wait_describe(rma, transfer->slot, 1, desc) !=
	           BATON_OK) {
		return BATON_ERR_AGAIN;
	}
	batoni_wait_place(rma, transfer);
	return batoni_wait_start(rma, transfer);
}

enum baton_status
batoni_wait_take_back(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];

	unlink_issued(rma, pending);
	if (is_over(rma, pending)) {
		finish_wait(rma, pending);
		return BATON_OK;
	}
	batoni_wait_unplace(rma, transfer);
	return BATON_ERR_CANCELED;
}

/* Each wait is taken off the front and appended again, up to a mark.  The end of one may
 * remove others; the next one is at the front in any case. */
size_t
batoni_waits_test(struct batoni_rma *rma)
{
	struct batoni_list_node mark, *at;
	struct survey survey;
	size_t events = 0;

	if (batoni_list_empty(&rma->waits))
		return 0;
	survey = survey_begin(rma);
	batoni_list_append(&rma->waits, &mark);
	while ((at = rma->waits.next) != &mark) {
		struct batoni_pending *pending = batoni_container_of(
			at, struct batoni_pending, link);
		struct batoni_transfer *transfer = pending->transfer;
		enum survey_result seen = survey_counters(rma, pending, &survey);

		batoni_list_remove(at);
		if (seen == UNMET) {
			batoni_list_append(&rma->waits, at);
			continue;
		}
		unlink_issued(rma, pending);
		if (seen == MET)
			finish_wait(rma, pending);
		else
			batoni_wait_unplace(rma, transfer);
		rma->comm->upcalls.done(&rma->comm->upcalls, transfer,
		                        seen == MET ? BATON_OK : BATON_ERR_PEER);
		events++;
	}
	batoni_list_remove(&mark);
	return events;
}
