/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barriers of all ranks, on streams.
 *
 * The algorithm is dissemination: ceil(log2(size)) rounds.  A rank that comes to round k tells the rank 2^k
 * after it, and goes on to the next round when the rank 2^k before it has told it so.  It comes to round 0
 * with its call, and its barrier ends behind the last round.
 *
 * The queue.  A rank's barriers stand in the order of their calls, from place to their end.
 * The first one begins when its stream has reached it; the others wait for their turn, armed or
 * not.  So at most one is under way, and the n-th that begins meets the n-th of each other rank.
 *
 * By stores, where all ranks are near or of this process, and each has mapped the segments of all
 * (transport->all_store, on which all ranks agree at creation), unless BATON_WINDOW_PATH is message.
 * The segment of a rank has a line for each round (struct batoni_arrival), with one rank as its only writer, which
 * stores the number of its barrier there.  State of the rank:
 *
 *     number   its barriers that have begun
 *     met      rounds of the last one in which its source has come; it has come to round `met` itself
 *
 *     begin:   number++, met = 0, store number into line 0 of the rank 1 after it
 *     check:   while line `met` of this rank has a count of at least `number`: met++, and, unless that was
 *              the last, store number into line `met` of the rank 2^met after it
 *
 * A count only grows.  A source may be one barrier ahead, since it does not wait for this rank,
 * and then its count says so: at least.  It is never further ahead: its next barrier ends only when this rank
 * has come to that one.  Nothing is told twice, and nothing is taken back.
 *
 * Visibility.  The store is sequentially consistent, hence a release of all that this rank's driver
 * has seen or done, and the load that finds it an acquire.  What a rank stores behind that is a release of both, so what
 * happened before the begin of any rank happens before the end of each.
 *
 * No lost wake-up.  As with signals (rma.h): the source stores its count, then loads `listening` of this
 * process's bell and the line's wanted count.  A thread that is about to sleep sets `listening`, then
 * makes a pass, in which the check stores the wanted count and loads the count again.  All of these are
 * sequentially consistent, so one of the two sees the other.  What begins later, while a thread sleeps so,
 * makes the communicator busy, which wakes that thread for a check; or a thread that drives makes one in the same pass.
 * So barriers that have been issued are parked.
 *
 * By messages elsewhere.  The message of round k has no bytes and goes to the rank 2^k after.  A rank's
 * sources differ from round to round, so the (source, tag) of a message tells its round, and
 * one tag of the transport's hidden ones serves all barriers.  A transport keeps the order of a (peer,
 * tag), so a message meets the same barrier of the other rank.  A message may end within the transport's issue, test
 * or take_back, from which the transport may not be called.  What is to be sent then waits for the next
 * test: `due`.
 *
 * Ending early.  One that has not begun leaves the queue, and the next one takes its place.  One
 * that has begun cannot be taken back, since other ranks may count it: it ends early
 * for this rank's program, LENT, and stays first in the queue until all ranks have come.  So the
 * other ranks see no difference.  Two exceptions: the communicator is broken, or the process of a
 * rank is gone.  Then no later barrier can end in OK: `over` says in what they end.
 *
 * Everything runs on the driver, but the call (barrier_call.c).
 */
#include "window.h"

#include <assert.h>
#include <stdio.h>

#include "config.h"
#include "engine.h"
#include "mem.h"

struct round {
	struct batoni_transfer send, receive;
	bool came; /* the message of this round */
};

struct batoni_barriers {
	struct batoni_list_node queue; /* of pending.link */
	bool stores;    /* constant */
	bool begun;     /* the first one */
	bool due;       /* a test has something to do */
	enum baton_status over; /* OK; or what every barrier ends in from now on */
	int count;      /* of rounds */
	/* By stores. */
	uint64_t number;
	int met;
	/* By messages. */
	int sent;       /* rounds of the first one whose message has been sent */
	int left;       /* its messages that have not ended */
	struct round rounds[];
};

enum baton_status
batoni_barriers_open(struct batoni_rma *rma)
{
	int count = batoni_barrier_rounds(rma->size);
	struct batoni_barriers *barriers = batoni_alloc(
		1, sizeof(*barriers) + (size_t)count * sizeof(struct round));

	if (!barriers)
		return BATON_ERR_NOMEM;
	static_assert(BATONI_BARRIER_ROUNDS_MAX >= 31, "ranks are ints");
	batoni_list_init(&barriers->queue);
	barriers->count = count;
	rma->barriers = barriers;
	return BATON_OK;
}

void
batoni_barriers_close(struct batoni_rma *rma)
{
	batoni_free(rma->barriers);
	rma->barriers = NULL;
}

static void
init_message(const struct batoni_rma *rma, struct batoni_transfer *transfer,
             enum batoni_direction direction, int number, int peer)
{
	uint64_t slot = rma->requests_max +
	                batoni_onesided_slots(rma->size, rma->base.contexts_max) -
	                2 * BATONI_BARRIER_ROUNDS_MAX + (uint64_t)number;

	transfer->slot = slot & 0xffffffu;
	transfer->direction = (uint32_t)direction & 3u;
	transfer->peer = peer;
	transfer->tag = batoni_barrier_tag(rma);
}

void
batoni_barriers_start(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	/* Of processes that have other paths of puts than others `all_store` is false. */
	barriers->stores = rma->transport->all_store &&
	                   batoni_config()->window_path != BATON_WINDOW_PATH_MESSAGE;
	for (int k = 0; k < barriers->count; k++) {
		struct round *round = &barriers->rounds[k];
		int64_t step = (int64_t)1 << k;

		init_message(rma, &round->send, BATONI_SEND, 2 * k,
		             (int)((rma->rank + step) % rma->size));
		init_message(rma, &round->receive, BATONI_RECV, 2 * k + 1,
		             (int)((rma->rank + rma->size - step) % rma->size));
	}
}

/* ---- the first one ---- */

static struct batoni_pending *
first_of(const struct batoni_barriers *barriers)
{
	return batoni_list_empty(&barriers->queue)
	               ? NULL
	               : batoni_container_of(barriers->queue.next,
	                                     struct batoni_pending, link);
}

/* The next test goes on. */
static void
set_due(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	if (barriers->due)
		return;
	barriers->due = true;
	rma->base.path.load.moving++;
	batoni_comm_set_busy(rma->comm);
}

/* The first barrier has left the queue. */
static void
look_at_next(struct batoni_rma *rma)
{
	const struct batoni_pending *first = first_of(rma->barriers);

	if (first && first->barrier.armed)
		set_due(rma);
}

/* ---- by stores ---- */

/* The line of a round, in this rank's segment. */
static struct batoni_arrival *
line_of(const struct batoni_rma *rma, int round)
{
	void *segment = rma->transport->peers[rma->rank].segment;

	return &batoni_onesided_arrivals(segment, rma->size)[round];
}

/* This rank has come to the round: tell the rank after it. */
static void
tell_coming(const struct batoni_rma *rma, int round)
{
	const struct batoni_barriers *barriers = rma->barriers;
	const struct batoni_peer *to =
		&rma->transport->peers[barriers->rounds[round].send.peer];
	struct batoni_arrival *line =
		&batoni_onesided_arrivals(to->segment, rma->size)[round];
	uint64_t wanted;

	atomic_store(&line->count, barriers->number);
	if (likely(!atomic_load(&to->bell->listening)))
		return;
	wanted = atomic_load(&line->wanted);
	if (wanted != 0 && barriers->number >= wanted)
		batoni_bell_call(to->bell, to->pipe);
}

/* Go past the rounds in which the source has come.  True: it has come in all rounds. */
static bool
meet_sources(const struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	while (barriers->met < barriers->count) {
		struct batoni_arrival *line = line_of(rma, barriers->met);

		if (atomic_load(&line->count) < barriers->number)
			return false;
		if (unlikely(atomic_load_explicit(&line->wanted,
		                                  memory_order_relaxed)))
			atomic_store_explicit(&line->wanted, 0,
			                      memory_order_relaxed);
		if (++barriers->met < barriers->count)
			tell_coming(rma, barriers->met);
	}
	return true;
}

/* Begin the first barrier, or continue it.  PENDING, OK. */
static enum baton_status
look_for_sources(const struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;
	struct batoni_arrival *line;

	if (!barriers->begun) {
		barriers->begun = true;
		barriers->number++;
		barriers->met = 0;
		if (barriers->count > 0)
			tell_coming(rma, 0);
	}
	do {
		if (meet_sources(rma))
			return BATON_OK;
		if (likely(!atomic_load(&batoni_bell()->listening)))
			return BATON_PENDING;
		line = line_of(rma, barriers->met);
		atomic_store(&line->wanted, barriers->number);
	} while (atomic_load(&line->count) >= barriers->number);
	return BATON_PENDING;
}

/* ---- by messages ---- */

static void
message_ended(struct batoni_barriers *barriers,
              struct batoni_transfer *transfer, enum baton_status status)
{
	if (status != BATON_OK && barriers->over == BATON_OK)
		barriers->over = status;
	if (transfer->direction == BATONI_RECV)
		batoni_container_of(transfer, struct round, receive)->came = true;
	barriers->left--;
}

static void
start_transfer(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	enum baton_status status =
		batoni_path_issue(&rma->transport->messages, transfer);

	if (status != BATON_PENDING)
		message_ended(rma->barriers, transfer, status);
}

/* Send what may be sent.  While this is in the transport, the message that is being started has
 * not ended, so nothing else ends the barrier. */
static void
send_further(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	while (barriers->sent < barriers->count &&
	       (barriers->sent == 0 || barriers->rounds[barriers->sent - 1].came))
		start_transfer(rma, &barriers->rounds[barriers->sent++].send);
}

/* As look_for_sources. */
static enum baton_status
exchange_messages(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	if (!barriers->begun) {
		barriers->begun = true;
		barriers->sent = 0;
		barriers->left = 2 * barriers->count;
		for (int k = 0; k < barriers->count; k++)
			barriers->rounds[k].came = false;
		for (int k = 0; k < barriers->count; k++)
			start_transfer(rma, &barriers->rounds[k].receive);
	}
	send_further(rma);
	if (barriers->over != BATON_OK)
		return barriers->over;
	return barriers->left == 0 ? BATON_OK : BATON_PENDING;
}

/* ---- the first one, either way ---- */

/* Begin the first barrier, or continue it.  PENDING, or the status in which it ends. */
static enum baton_status
go_on_with_rounds(struct batoni_rma *rma)
{
	const struct batoni_barriers *barriers = rma->barriers;

	if (unlikely(barriers->over != BATON_OK))
		return barriers->over;
	return barriers->stores ? look_for_sources(rma) : exchange_messages(rma);
}

/* It has ended by itself. */
static void
take_out(struct batoni_rma *rma, struct batoni_pending *pending)
{
	if (first_of(rma->barriers) == pending)
		rma->barriers->begun = false;
	batoni_list_remove(&pending->link);
	batoni_transfer_moved(pending->transfer, 0);
	look_at_next(rma);
}

/* A barrier is counted as issued from the return of issue to its end. */
static void
count_issued(struct batoni_rma *rma, int change)
{
	struct batoni_load *load = &rma->base.path.load;

	load->in_flight += (uint32_t)change;
	if (rma->barriers->stores)
		load->parked += (uint32_t)change;
	else
		load->awaiting += (uint32_t)change;
}

static void
end_first(struct batoni_rma *rma, struct batoni_pending *pending,
          enum baton_status status)
{
	struct batoni_transfer *transfer = pending->transfer;

	take_out(rma, pending);
	count_issued(rma, -1);
	rma->comm->upcalls.done(&rma->comm->upcalls, transfer, status);
}

/* ---- the slots of the layer ---- */

void
batoni_barrier_place(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];

	pending->transfer = transfer;
	pending->barrier.armed = false;
	batoni_list_append(&rma->barriers->queue, &pending->link);
}

void
batoni_barrier_unplace(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	batoni_list_remove(&rma->pending[transfer->slot].link);
	look_at_next(rma);
}

enum baton_status
batoni_barrier_issue(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];
	enum baton_status status = rma->barriers->over;

	pending->barrier.armed = true;
	if (first_of(rma->barriers) == pending)
		status = go_on_with_rounds(rma);
	else if (status == BATON_OK)
		status = BATON_PENDING;
	if (status == BATON_PENDING)
		count_issued(rma, 1);
	else
		take_out(rma, pending);
	return status;
}

/* If a rank is gone, or the communicator breaks, the barrier is given up.  Its messages are given
 * up with it, and their ends are ignored.  But what ranks have told before they ended counts. */
enum baton_status
batoni_barrier_take_back(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];
	struct batoni_barriers *barriers = rma->barriers;

	if (barriers->begun && first_of(barriers) == pending) {
		if (!rma->base.path.ending && rma->comm->liveness.gone == 0)
			return BATON_ERR_BUSY;
		if (barriers->stores && !rma->base.path.ending &&
		    meet_sources(rma)) {
			take_out(rma, pending);
			count_issued(rma, -1);
			return BATON_OK;
		}
		barriers->begun = false;
		barriers->over = BATON_ERR_PEER;
	}
	batoni_list_remove(&pending->link);
	count_issued(rma, -1);
	look_at_next(rma);
	return BATON_ERR_CANCELED;
}

void
batoni_barrier_message_done(struct batoni_rma *rma,
                            struct batoni_transfer *transfer,
                            enum baton_status status)
{
	struct batoni_barriers *barriers = rma->barriers;

	message_ended(barriers, transfer, status);
	if (!barriers->begun)
		return;
	if (barriers->left == 0 || barriers->over != BATON_OK)
		set_due(rma);
	else if (barriers->sent < barriers->count &&
	         barriers->rounds[barriers->sent - 1].came)
		set_due(rma);
}

size_t
batoni_barriers_test(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;
	struct batoni_pending *first;
	enum baton_status status;
	size_t events = 0;

	if (likely(!barriers->due) && !(barriers->stores && barriers->begun))
		return 0;
	rma->base.path.load.moving -= barriers->due;
	barriers->due = false;
	while ((first = first_of(barriers)) && first->barrier.armed) {
		status = go_on_with_rounds(rma);
		if (status == BATON_PENDING)
			break;
		end_first(rma, first, status);
		events++;
	}
	return events;
}

void
batoni_barrier_describe(const struct batoni_rma *rma,
                        const struct batoni_transfer *transfer, char *text,
                        size_t size)
{
	const struct batoni_barriers *barriers = rma->barriers;
	int k = 0;

	text[0] = '\0';
	if (!barriers->begun ||
	    first_of(barriers) != &rma->pending[transfer->slot])
		return;
	while (!barriers->stores && k < barriers->count &&
	       barriers->rounds[k].came)
		k++;
	if (barriers->stores)
		k = barriers->met;
	if (k < barriers->count)
		snprintf(text, size, "round %d of %d: rank %d has not come yet",
		         k + 1, barriers->count, barriers->rounds[k].receive.peer);
}
