/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Near's path: the slots of path.h, and looking at rings (near.h, ring.h).
 *
 * A pass looks at the bits of this rank's area, one load for 64 ranks, and at the warm rings.  A ring whose
 * bit was set becomes warm, and replaces the one that was warmed first if NEAR_WARM_MAX are.  To
 * cool a ring is to store COLD, a fence, and one more look at it.  While a thread of this process
 * listens on the bell, each pass leaves all rings cold behind it.
 *
 * What is lent (take_back has returned BUSY) the engine asks for once.  If its peer goes before it has
 * copied, nothing comes of it any more: passes ask again now and then.
 */
#include "near.h"

#include <assert.h>
#include <stdio.h>

#include "log.h"
#include "thread.h"

/* The lower transport has nothing of a message, but may have to tell that it is broken; and peers of
 * what is lent may be gone. */
#define TESTS_A_CHECK 64u /* no more than liveness.c's TESTS_BETWEEN */

void
batoni_near_break(struct batoni_pairs *near, int peer, const char *what)
{
	char why[160];

	if (near->broken)
		return;
	near->broken = true;
	if (near->lower_broke)
		return;
	snprintf(why, sizeof(why),
	         "rank %d has written what no Baton writes into the memory that it "
	         "shares with rank %d: %s",
	         peer, near->base.rank, what);
	near->base.messages.upcalls->broken(near->base.messages.upcalls, BATON_ERR_PEER, NULL, 0, why);
}

enum baton_status
batoni_near_make_pages(struct batoni_pairs *near, int peer)
{
	struct near_peer *to = &near->peers[peer];
	const struct batoni_ring_layout *layout = &near->layout;

	/* Elsewhere all of the memory is there from creation on. */
	if (!near->base.sparse_segments) {
		atomic_store(&to->connected, true);
		return BATON_OK;
	}
	if (!atomic_load(&near->states_there) &&
	    !batoni_shm_populate(near->area + layout->states_at,
	                         layout->rings_at - layout->states_at))
		return BATON_ERR_NOMEM;
	atomic_store(&near->states_there, true);
	if (!batoni_shm_populate(to->out.cells, BATONI_RING_BYTES) ||
	    !batoni_shm_populate(to->in.cells, BATONI_RING_BYTES))
		return BATON_ERR_NOMEM;
	atomic_store(&to->connected, true);
	return BATON_OK;
}

/* ---- load ---- */

void
batoni_near_begin(struct batoni_pairs *near, struct near_node *node,
                  struct batoni_transfer *transfer, enum near_state state)
{
	node->transfer = transfer;
	node->state = state;
	node->peer = transfer->peer;
	node->moving = node->scrapped = node->asked = false;
	near->base.messages.load.in_flight++;
	near->base.messages.load.parked++;
}

bool
batoni_near_starve(struct batoni_pairs *near, int peer, uint32_t cells)
{
	struct batoni_ring_out *out = &near->peers[peer].out;
	bool broken;

	if (batoni_ring_starve(out, cells, &broken))
		return true;
	if (broken)
		batoni_near_break(near, peer, "a count of cells");
	return false;
}

/* ---- looking ---- */

static void
set_warmth(struct batoni_pairs *near, int peer, uint32_t warmth)
{
	struct batoni_ring_in *in = &near->peers[peer].in;

	in->warm = warmth == BATONI_RING_WARM;
	atomic_store_explicit(&in->control->warmth, warmth, memory_order_relaxed);
}

/* Cool the ring, and take the messages that came meanwhile. */
static size_t
cool(struct batoni_pairs *near, int peer)
{
	set_warmth(near, peer, BATONI_RING_COLD);
	batoni_ring_fence();
	return batoni_near_drain(near, peer, NEAR_TAKE_MAX);
}

/* The caller drains the ring after this. */
static size_t
warm(struct batoni_pairs *near, int peer)
{
	size_t events = 0;

	if (near->peers[peer].in.warm)
		return 0;
	if (near->warm_n < NEAR_WARM_MAX) {
		near->warm[near->warm_n++] = peer;
	} else {
		int *entry = &near->warm[near->turn++ % NEAR_WARM_MAX];

		events = cool(near, *entry);
		*entry = peer;
	}
	set_warmth(near, peer, BATONI_RING_WARM);
	return events;
}

/* The rank has called: drain its ring, use the room in the ring to it, and see what it has
 * copied. */
static size_t
answer_call(struct batoni_pairs *near, int peer, bool may_warm)
{
	struct batoni_ring_control *control = near->peers[peer].in.control;
	size_t events = 0;

	if (atomic_load(&control->scan) && atomic_exchange(&control->scan, 0))
		events += batoni_near_scan(near, peer);
	/* Make the pages of the ring, as a call that names the rank would. */
	if (batoni_near_connect(near, peer) != BATON_OK) {
		batoni_near_call_later(near, peer);
		return events;
	}
	if (may_warm)
		events += warm(near, peer);
	events += batoni_near_feed(near, peer);
	return events + batoni_near_drain(near, peer,
	                                  may_warm ? NEAR_TAKE_MAX
	                                           : BATONI_RING_CELLS);
}

static size_t
answer_all(struct batoni_pairs *near, bool may_warm)
{
	size_t events = 0;

	for (size_t word = 0; word < near->words; word++) {
		_Atomic uint64_t *at = batoni_ring_bits(near->area,
		                                        (int)word * 64);
		uint64_t bits;

		if (__builtin_expect(atomic_load_explicit(at, memory_order_relaxed) ==
		                             0,
		                     1))
			continue;
		bits = atomic_exchange(at, 0);
		while (bits && !near->broken) {
			int peer = (int)word * 64 + __builtin_ctzll(bits);

			bits &= bits - 1;
			if (peer < near->base.size && near->peers[peer].area)
				events += answer_call(near, peer, may_warm);
		}
	}
	return events;
}

/* S1 to S4 (ring.h).  All messages that are there are taken, however many: the engine may sleep
 * afterwards. */
static size_t
cool_all(struct batoni_pairs *near)
{
	unsigned n = near->warm_n;
	size_t events = 0;

	for (unsigned i = 0; i < n; i++)
		set_warmth(near, near->warm[i], BATONI_RING_COLD);
	batoni_ring_fence();
	near->warm_n = 0;
	for (unsigned i = 0; i < n && !near->broken; i++)
		events += batoni_near_drain(near, near->warm[i],
		                            BATONI_RING_CELLS);
	return events + answer_all(near, false);
}

/* ---- transfers ---- */

static enum baton_status
near_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_pairs *near = batoni_near_of(path);
	enum baton_status status = batoni_near_connect(near, transfer->peer);

	assert(transfer->slot < near->base.slots);
	assert(near->nodes[transfer->slot].state == NEAR_IDLE);
	if (__builtin_expect(status != BATON_OK, 0))
		return status;
	near->budget = NEAR_INLINE_MAX;
	return transfer->direction == BATONI_SEND
	               ? batoni_near_send(near, transfer)
	               : batoni_near_receive(near, transfer);
}

/* The engine may not have seen it yet (peer->gone): the side channel may tell first. */
bool
batoni_near_is_gone(const struct batoni_pairs *near, int peer)
{
	const struct batoni_peer *there = &near->base.peers[peer];
	struct batoni_departure *departure = batoni_departure_of(there);

	return there->gone || batoni_pidfd_gone(there->pidfd) ||
	       (departure && atomic_load(&departure->away));
}

/* A transport that is broken copies nothing any more. */
static enum baton_status
take_back(struct batoni_pairs *near, struct near_node *node)
{
	switch (node->state) {
	case NEAR_POSTED:
		batoni_match_remove(&near->match, &node->end.match);
		break;
	case NEAR_BARRED:
	case NEAR_STARVED:
		break;
	case NEAR_ANNOUNCED:
		return batoni_near_unsend(near, node);
	case NEAR_CHUNKING:
		/* The receiver waits for the rest until this rank is away. */
		if (!near->broken && !near->base.messages.ending &&
		    !batoni_near_is_gone(near, node->peer))
			return BATON_ERR_BUSY;
		break;
	case NEAR_GRANTING:
	case NEAR_CHUNKED:
		if (!near->broken && !batoni_near_is_gone(near, node->peer))
			return BATON_ERR_BUSY;
		break;
	case NEAR_FETCHING:
		if (!near->broken)
			return BATON_ERR_BUSY;
		break;
	case NEAR_IDLE:
		return BATON_ERR_BUSY;
	}
	batoni_near_finish(near, node);
	return BATON_ERR_CANCELED;
}

static enum baton_status
near_take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_pairs *near = batoni_near_of(path);
	struct near_node *node = &near->nodes[transfer->slot];
	enum baton_status status;

	assert(node->state != NEAR_IDLE && node->transfer == transfer);
	status = take_back(near, node);
	if (status == BATON_ERR_BUSY) {
		near->asked += !node->asked;
		node->asked = true;
	}
	return status;
}

/* This process alone writes the buffer of a receive.  The rest of a send is given up. */
static enum baton_status
near_scrap(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_pairs *near = batoni_near_of(path);
	struct near_node *node = &near->nodes[transfer->slot];
	enum baton_status status;

	if (transfer->direction == BATONI_RECV) {
		node->scrapped = true;
		return BATON_OK;
	}
	status = take_back(near, node);
	if (status == BATON_ERR_BUSY)
		return status;
	near->base.messages.upcalls->done(near->base.messages.upcalls, transfer, status);
	return BATON_OK;
}

/* ---- passes ---- */

/* End what was in progress with a peer that is gone by now.  Returns the number of events. */
static size_t
ask_again(struct batoni_pairs *near)
{
	struct batoni_upcalls *upcalls = near->base.messages.upcalls;
	size_t events = 0;

	for (uint32_t slot = 0; slot < near->base.slots && near->asked > 0; slot++) {
		struct near_node *node = &near->nodes[slot];
		struct batoni_transfer *transfer = node->transfer;
		enum baton_status status = BATON_ERR_BUSY;

		if (node->asked)
			status = take_back(near, node);
		if (status == BATON_ERR_BUSY)
			continue;
		upcalls->done(upcalls, transfer,
		              status == BATON_ERR_CANCELED ? BATON_ERR_PEER : status);
		events++;
	}
	return events;
}

/* A process that was killed behind W3 has published a message, and has set no bit (ring.h).  So the
 * ring of a rank that is gone is drained once more, before the engine ends what waits for it. */
static size_t
look_at_gone(struct batoni_pairs *near)
{
	size_t events = 0;

	for (int rank = 0; rank < near->base.size && !near->broken; rank++) {
		struct near_peer *peer = &near->peers[rank];

		if (__builtin_expect(!near->base.peers[rank].gone, 1) ||
		    peer->emptied || !peer->connected)
			continue;
		peer->emptied = true;
		events += batoni_near_drain(near, rank, BATONI_RING_CELLS);
	}
	return events;
}

static size_t
look_around(struct batoni_pairs *near)
{
	struct batoni_path *lower = near->lower ? &near->lower->messages : NULL;
	size_t events = look_at_gone(near);

	if (near->asked > 0)
		events += ask_again(near);

	if (!lower || !lower->load.in_flight)
		return events;
	near->testing = true;
	lower->ops->test(lower);
	near->testing = false;
	return events;
}

/* Within an exchange. */
static size_t
end_with_lower(struct batoni_pairs *near)
{
	size_t events = batoni_near_take_all(near);

	near->broken = true;
	return events;
}

static size_t
near_test(struct batoni_path *path)
{
	struct batoni_pairs *near = batoni_near_of(path);
	bool listening = atomic_load(&batoni_bell()->listening) != 0;
	size_t events = 0;

	if (__builtin_expect(near->broken, 0))
		return 0;
	near->budget = NEAR_PASS_MAX;
	if (__builtin_expect(near->lower_broke, 0))
		return end_with_lower(near);
	if (!listening)
		events += answer_all(near, true);
	for (unsigned i = 0; i < near->warm_n && !near->broken; i++)
		events += batoni_near_drain(near, near->warm[i], NEAR_TAKE_MAX);
	if (listening)
		events += cool_all(near);
	if (!batoni_list_empty(&near->copies))
		events += batoni_near_copy(near);
	if (__builtin_expect(++near->tests % TESTS_A_CHECK == 0 || listening, 0))
		events += look_around(near);
	return events;
}

/* Poll the warm rings, for a receive from any rank or of any tag. */
static size_t
await_any(struct batoni_pairs *near, unsigned polls)
{
	size_t most = NEAR_TAKE_MAX;

	if (near->broken || near->lower_broke ||
	    !batoni_list_empty(&near->copies))
		return 0;
	for (; near->warm_n > 0; batoni_relax()) {
		for (unsigned i = 0; i < near->warm_n; i++) {
			int peer = near->warm[i];

			if (batoni_ring_is_empty(&near->peers[peer].in))
				continue;
			near->budget = NEAR_PASS_MAX;
			return batoni_near_drain(near, peer, most);
		}
		if (polls-- == 0)
			break;
		most = 1; /* as near_await */
	}
	return 0;
}

/* The waiter polls the head of one ring, with a pause between two polls: so the core begins no polls ahead,
 * which it had to undo when the line changes, and the sender has the line for longer.  What comes while it
 * polls is taken alone: the sender has just written where the next message will lie, so a load there waits for
 * that line.  What was there before the first poll is taken together.  While something is to be copied, a pass
 * does more than that. */
static size_t
near_await(struct batoni_path *path, struct batoni_transfer *transfer,
           unsigned polls)
{
	struct batoni_pairs *near = batoni_near_of(path);
	const struct near_node *node = &near->nodes[transfer->slot];
	size_t most = NEAR_TAKE_MAX;
	int peer = transfer->peer;

	if (__builtin_expect((peer | transfer->tag) < 0, 0))
		return await_any(near, polls);
	if (__builtin_expect((node->state != NEAR_POSTED &&
	                      node->state != NEAR_ANNOUNCED) ||
	                             near->broken || near->lower_broke ||
	                             !batoni_list_empty(&near->copies),
	                     0))
		return 0;
	while (batoni_ring_is_empty(&near->peers[peer].in)) {
		if (polls-- == 0)
			return 0;
		most = 1;
		batoni_relax();
	}
	near->budget = NEAR_PASS_MAX;
	return batoni_near_drain(near, peer, most);
}

/* ---- receives from any rank, or of any tag ---- */

static void
near_expect(struct batoni_path *path, int change)
{
	batoni_near_of(path)->expects += (uint32_t)change;
	path->load.in_flight += (uint32_t)change;
	path->load.parked += (uint32_t)change;
}

static bool
has(struct batoni_pairs *near, int rank, int *tag_p)
{
	return near->peers[rank].area && batoni_near_fix_arrival(near, rank, tag_p);
}

static int
near_find(struct batoni_path *path, int peer, int *tag_p)
{
	struct batoni_pairs *near = batoni_near_of(path);

	if (peer >= 0)
		return has(near, peer, tag_p) ? peer : -1;
	for (int i = 0, rank = near->any_turn; i < near->base.size; i++) {
		int next = rank + 1 < near->base.size ? rank + 1 : 0;

		if (has(near, rank, tag_p)) {
			near->any_turn = next;
			return rank;
		}
		rank = next;
	}
	return -1;
}

/* `find` has fixed it. */
static enum baton_status
near_hold(struct batoni_path *path, struct batoni_transfer *receive,
          struct batoni_held *held_p)
{
	batoni_near_hold(batoni_near_of(path), receive, held_p);
	return BATON_OK;
}

static enum baton_status
near_meet(struct batoni_path *path, struct batoni_transfer *receive,
          struct batoni_transfer *held)
{
	struct batoni_pairs *near = batoni_near_of(path);

	batoni_transfer_moved(receive, 0);
	near->budget = NEAR_INLINE_MAX;
	return batoni_near_meet_held(near, receive, held);
}

static bool
near_serves(struct batoni_path *path, int kind, int peer)
{
	(void)kind;
	return batoni_near_of(path)->peers[peer].area != NULL;
}

static enum baton_status
near_connect(struct batoni_path *path, int peer)
{
	struct batoni_pairs *near = batoni_near_of(path);

	if (batoni_near_connect(near, peer) == BATON_OK)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_NOMEM,
	                     "no shared memory for the rings between ranks %d "
	                     "and %d",
	                     near->base.rank, peer);
}

static void
near_close_path(struct batoni_path *path, bool aborted)
{
	batoni_near_close(batoni_near_of(path), aborted);
}

#define MESSAGES_OPS                                                          \
	.name = "the memory that the ranks share", .kinds = BATONI_MESSAGES,  \
	.lists = true,                                                        \
	.host_issued =                                                        \
		&(const struct batoni_host_issued_ops){                       \
			.issue = near_issue,                                  \
			.take_back = near_take_back,                          \
		},                                                            \
	.serving =                                                            \
		&(const struct batoni_serving_ops){                           \
			.serves = near_serves,                                \
			.connect = near_connect,                              \
		},                                                            \
	.scrapping = &(const struct batoni_scrapping_ops){.scrap = near_scrap}, \
	.awaiting = &(const struct batoni_awaiting_ops){.await = near_await}, \
	.unmatched =                                                          \
		&(const struct batoni_unmatched_ops){                         \
			.expect = near_expect,                                \
			.find = near_find,                                    \
			.hold = near_hold,                                    \
			.meet = near_meet,                                    \
		},                                                            \
	.test = near_test

const struct batoni_path_ops batoni_near_messages_ops = {MESSAGES_OPS};

const struct batoni_path_ops batoni_near_beside_ops = {
	MESSAGES_OPS,
	.closing = &(const struct batoni_closing_ops){.close = near_close_path},
};
