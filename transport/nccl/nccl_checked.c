/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checked mode: a host-issued path, in place of the one of nccl.c; in plain mode, beside it, that
 * of lists (at the end of this note).  The two engines of a
 * message compare what they know of it before NCCL is called; NCCL itself would hang, or
 * damage a later message.
 *
 * The operation is armed as on any host-issued path: its stream has got there and waits for
 * our word, so nothing of the program is behind it, and NCCL is called for it on the stream
 * of its lane, which carries nothing else.  (That stream is one that no wait of the
 * program's streams holds up.)  Tags: 0 only.
 *
 * What is said (nccl_control.c), for each message:
 *
 *   source                                    target
 *   issue: WAITING
 *   HEADER (operation, bytes, type) --------> meets the next receive from that rank (FIFO)
 *   TOLD                                      differs: the receive ends in MISMATCH
 *   ends in MISMATCH  <-------- MISMATCH -----  with what the receive takes
 *                                             agrees: READY; LAUNCHING; RUNNING
 *   READY; LAUNCHING  <----------- GO --------  when NCCL has put the receive on its stream
 *   RUNNING, when NCCL has put the send on its stream
 *   LAUNCHED -------------------------------> counts
 *
 * Both end when a mark behind the kernel on their stream is passed.  A mismatch uses up one
 * send and one receive, so the next ones meet each other.  A source has at most
 * BATONI_NCCL_AHEAD headers unanswered with a peer; more sends wait for the answers.
 * Matching is FIFO, so they could not meet before those.
 *
 * Which rank leads, that is, launches first.  With all lanes the target, as above.  With fewer,
 * where a rank is source and target in one lane, the lower rank: if that is the source, the
 * target answers AGREED (MET), the source says GO, the target LAUNCHED.
 *
 * The order of launches.  Kernels of a lane run in series on each rank, so an order that
 * differs between ranks can be a circle.  The rules, in a lane: each rank launches in the
 * order in which messages become READY there; and while what it has led with one other rank
 * is not acknowledged, it launches nothing but more that it leads with that one.
 *   - There is no circle of kernels.  Let t(m) be the time of m's second launch, on the rank
 *     that follows.  Take m before n on a rank.  If it follows in m, t(m) is now, and t(n) is
 *     this or a later time.  If it leads m, then either it leads n with the same rank, which
 *     launches in the order in which it is told; or m was acknowledged before, after t(m).  So
 *     t(m) < t(n): every rank launches in the order of t, and the message that is first in
 *     it, of those that are not over, has nothing before it on either side.  It runs.
 *   - No rank waits for an acknowledgement for ever.  It comes when the other has launched
 *     what became READY there before, for which that one may wait in turn, for one that it
 *     leads.  With all lanes a rank that follows leads nothing in the lane.  With fewer, it
 *     waits for higher and higher ranks, and the highest leads nothing.
 * In plain mode the order is that of the program's calls.
 *
 * Ends.  A send that has not been told, a receive that has met nothing: taken back.  What
 * has met goes on, since the other side goes on too (BUSY: the engine lends the buffer).  A
 * send that is told and has not been answered is BUSY as well, and a receive may still meet
 * it; WITHDRAW tells the target, which answers WITHDRAWN when it leaves the communicator, so
 * that an abandoned send holds up no destroy.  So no deadline breaks the communicator.  An
 * abort ends what was not launched at the next test, and the rest with its kernels.
 *
 * NCCL is called by `test`, on the driver, under the lock of the device, which it only
 * tries; the work goes on at a later test if the lock is taken.  One launch of the transport
 * is with NCCL at a time (`launching`): until NCCL says that its kernel is on the stream,
 * each test asks.  One that an abort interrupts, or that NCCL refuses, may be on the stream in part:
 * its buffer is lent until the lanes are stopped and a mark on the stream behind that is passed.
 *
 * nccl_meet.c has what meets, and what peers say; nccl_launch.c the launches and their ends;
 * this file the slots, and creation; nccl_lists.c lists.
 *
 * Threads: the driver alone, but for accepts and explain.  Memory: all is allocated at
 * creation.
 *
 * Lists of tensors are messages too; nccl_lists.c has what differs.
 *
 * Plain mode.  There all of this is a second path of the transport, for lists alone
 * (nccl->lists), beside the one of nccl.c.  What differs:
 *   - It has one lane, a communicator of NCCL's that carries nothing else, in which all pairs are
 *     connected.  That is "fewer lanes": the lower rank leads.  A list to oneself goes there as
 *     well: in the lane of the rank alone it would stand behind messages of the program's streams,
 *     which may stand behind it.
 *   - Lists meet lists; a plain message and a list wait, each for its own kind.
 *   - It is idle until this rank has a list: nothing is in flight, no receive is posted, and
 *     control messages of peers wait at the lower transport, where sends may stay (`unbuffered`) until then, or until this
 *     rank leaves.
 *   - If the library of the lower transport is finalised, a communicator that has had a list
 *     ends, and another one refuses lists (nccl->lists_used, lists_lost).
 */
#include <stdio.h>

#include "log.h"
#include "mem.h"
#include "datatype.h"
#include "nccl_checked.h"

static struct batoni_nccl_checked *
to_checked(struct batoni_path *path)
{
	if (path->ops == &batoni_nccl_lists_ops)
		return batoni_container_of(path, struct batoni_nccl, lists)
		        ->checked;
	return batoni_container_of(batoni_transport_of(path),
	                           struct batoni_nccl, base)
	        ->checked;
}

/* ---- counts and ends ---- */

static void
count_load(struct batoni_nccl_checked *checked)
{
	struct batoni_load *load = &checked->path->load;
	bool heard = !batoni_list_empty(&checked->ended);

	load->in_flight = checked->begun + checked->sending + heard;
	load->moving = (uint32_t)heard + batoni_nccl_any_may_launch(checked);
	/* Where it is quiet a send of the lower transport ends within a call of its target; where it is
	 * unbuffered, when the target listens. */
	if (!load->quiet && !checked->nccl->lower->unbuffered)
		load->moving += checked->sending;
	/* Of the lower transport's messages, which the engine polls where the one-sided layer has
	 * some. */
	if (checked->nccl->config.lower_slot)
		load->standing = checked->posted;
	/* After an abort the ender has what is with NCCL. */
	load->polled = checked->running + (checked->launching != NULL);
}

void
batoni_nccl_fail(struct batoni_nccl_checked *checked, enum baton_status status,
                 const char *call, int code, const char *text)
{
	if (checked->failed)
		return;
	checked->failed = true;
	checked->fatal = status;
	checked->fatal_call = call;
	checked->fatal_code = code;
	snprintf(checked->fatal_text, sizeof(checked->fatal_text), "%s", text);
}

/* Call this at the end of each slot function. */
static void
settle(struct batoni_nccl_checked *checked)
{
	struct batoni_upcalls *upcalls = checked->nccl->base.upcalls;

	batoni_nccl_send_all(checked);
	count_load(checked);
	if (!checked->failed || checked->told)
		return;
	checked->told = true;
	upcalls->broken(upcalls, checked->fatal, checked->fatal_call,
	                checked->fatal_code, checked->fatal_text);
}

void
batoni_nccl_op_let_go(struct batoni_nccl_checked *checked,
                      struct batoni_nccl_op *op)
{
	batoni_list_remove(&op->link);
	op->transfer = NULL;
	checked->begun--;
}

void
batoni_nccl_op_end(struct batoni_nccl_checked *checked,
                   struct batoni_nccl_op *op, enum baton_status status)
{
	struct batoni_upcalls *upcalls = checked->nccl->base.upcalls;
	struct batoni_transfer *transfer = op->transfer;

	batoni_nccl_op_let_go(checked, op);
	upcalls->done(upcalls, transfer, status);
}
/* After an abort: end the operations that NCCL does not have. */
static size_t
end_dropped(struct batoni_nccl_checked *checked)
{
	size_t events = 0;

	if (checked->dropped || !atomic_load(&checked->nccl->aborting))
		return 0;
	checked->dropped = true;
	for (uint32_t i = 0; i < checked->slots; i++) {
		struct batoni_nccl_op *op = &checked->ops[i];

		/* The send of a message to oneself ends with its receive. */
		if (!op->transfer || op->state > BATONI_NCCL_READY)
			continue;
		if (op->state == BATONI_NCCL_READY &&
		    batoni_nccl_is_to_itself(checked, op) &&
		    batoni_nccl_sends(op))
			continue;
		if (op->partner)
			batoni_nccl_op_end(checked, op->partner,
			                   BATON_ERR_CANCELED);
		batoni_nccl_op_end(checked, op, BATON_ERR_CANCELED);
		events++;
	}
	return events;
}

/* ---- the slots ---- */

static void
checked_place(struct batoni_path *path, struct batoni_transfer *transfer)
{
	to_checked(path)->ops[transfer->slot].difference = BATONI_NCCL_SAME;
}

static void
checked_unplace(struct batoni_path *path, struct batoni_transfer *transfer)
{
	(void)path;
	(void)transfer;
}

static enum baton_status
checked_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_nccl_checked *checked = to_checked(path);
	struct batoni_nccl_op *op = &checked->ops[transfer->slot];
	enum baton_status status;

	assert(transfer->slot < checked->slots && !op->transfer);
	if (atomic_load(&checked->nccl->aborting))
		return BATON_ERR_ABORTED;
	*op = (struct batoni_nccl_op){.transfer = transfer,
	                              .type = transfer->type};
	batoni_list_init(&op->link);
	checked->begun++;
	status = batoni_nccl_begin(checked, op);
	if (status != BATON_PENDING)
		batoni_nccl_op_let_go(checked, op);
	settle(checked);
	return status;
}

static size_t
checked_test(struct batoni_path *path)
{
	struct batoni_nccl_checked *checked = to_checked(path);
	size_t events = end_dropped(checked);

	events += batoni_nccl_hear(checked);
	events += batoni_nccl_watch_all(checked);
	events += batoni_nccl_launch_all(checked);
	settle(checked);
	if (!checked->failed)
		events += batoni_nccl_poll(checked->nccl);
	return events;
}

/* The peer knows the send and has not answered: a receive may still meet it. */
static void
withdraw(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op)
{
	const struct batoni_nccl_peer *peer =
		&checked->peers[op->transfer->peer];
	const struct batoni_nccl_control control = batoni_nccl_describe_op(
		op, BATONI_NCCL_SAYS_WITHDRAW, op->transfer->slot);

	op->withdrawn = true;
	if (peer->headers_n > 0)
		batoni_nccl_differ(op, BATONI_NCCL_BOTH_SEND,
		                   peer->headers[0].control.type,
		                   (size_t)peer->headers[0].control.bytes);
	batoni_nccl_say(checked, op->transfer->peer, &control);
}

static enum baton_status
checked_take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_nccl_checked *checked = to_checked(path);
	struct batoni_nccl_op *op = &checked->ops[transfer->slot];
	struct batoni_nccl_peer *peer = &checked->peers[transfer->peer];
	enum baton_status status = BATON_ERR_BUSY;

	assert(op->transfer == transfer);
	switch (op->state) {
	case BATONI_NCCL_WAITING:
	case BATONI_NCCL_POSTED:
		status = BATON_ERR_CANCELED;
		break;
	case BATONI_NCCL_TOLD:
		if (batoni_nccl_unsay(checked, transfer->peer,
		                      BATONI_NCCL_SAYS_HEADER,
		                      transfer->slot)) {
			status = BATON_ERR_CANCELED;
			peer->told--;
			batoni_nccl_tell_waiting(checked, peer);
		} else {
			withdraw(checked, op);
		}
		break;
	case BATONI_NCCL_FETCHING:
	case BATONI_NCCL_MET:
	case BATONI_NCCL_READY:
	case BATONI_NCCL_LAUNCHING:
	case BATONI_NCCL_RUNNING:
		break;
	}
	if (status == BATON_ERR_CANCELED)
		batoni_nccl_op_let_go(checked, op);
	settle(checked);
	return status;
}

/* In plain mode: as with the calls of the one-sided layer (lost_lower in path.h). */
static enum baton_status
check_lower(struct batoni_nccl *nccl)
{
	atomic_store(&nccl->lists_used, true);
	if (!atomic_load(&nccl->lists_lost))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_ABORTED,
	                     "the program has finalised the library of the %s "
	                     "transport, by which the hosts of the ranks agree on "
	                     "lists of tensors",
	                     nccl->lower->ops->name);
}

static enum baton_status
checked_accepts(struct batoni_path *path,
                const struct batoni_transfer *transfer)
{
	struct batoni_nccl_checked *checked = to_checked(path);
	enum baton_status status = checked->nccl->config.check
	                                   ? BATON_OK
	                                   : check_lower(checked->nccl);

	if (status != BATON_OK)
		return status;
	if (!atomic_load(&checked->takes_back))
		return batoni_transfer_list(transfer)
		               ? batoni_nccl_check_list(checked->nccl, transfer)
		               : batoni_nccl_check_memory(checked->nccl,
		                                          transfer);
	return batoni_refuse(BATON_ERR_INVALID,
	                     "all ranks have called baton_comm_destroy, which has "
	                     "not ended in time: destroy it again, or abort it "
	                     "first");
}

static bool
checked_explain(struct batoni_path *path,
                const struct batoni_transfer *transfer, char *text, size_t size)
{
	const struct batoni_nccl_checked *checked = to_checked(path);
	const struct batoni_nccl_op *op = &checked->ops[transfer->slot];
	bool sends = transfer->direction == BATONI_SEND;
	const char *they;

	if (op->difference == BATONI_NCCL_SAME)
		return false;
	if (op->difference == BATONI_NCCL_BOTH_SEND)
		they = "sends";
	else
		they = sends ? "receives" : "sends";
	snprintf(text, size,
	         "rank %d %s %zu bytes of %s, and rank %d %s %zu bytes of %s%s",
	         checked->nccl->base.rank, sends ? "sends" : "receives",
	         transfer->bytes, batoni_datatype_name(op->type), transfer->peer, they,
	         op->their_bytes, batoni_datatype_name(op->their_type),
	         op->difference == BATONI_NCCL_BOTH_SEND ? ": neither receives"
	                                                 : "");
	return true;
}

static const struct batoni_host_issued_ops host_issued = {
	.issue = checked_issue,
	.take_back = checked_take_back,
};

static const struct batoni_checking_ops checking = {
	.accepts = checked_accepts,
	.explain = checked_explain,
};

static const struct batoni_placing_ops placing = {
	.place = checked_place,
	.unplace = checked_unplace,
};

const struct batoni_path_ops batoni_nccl_checked_ops = {
	.name = "the NCCL transport in checked mode",
	.kinds = BATONI_MESSAGES,
	.lists = true,
	.host_issued = &host_issued,
	.checking = &checking,
	.placing = &placing,
	.aborting = &(const struct batoni_aborting_ops){.abort = batoni_nccl_abort},
	.test = checked_test,
};

/* The path of messages aborts, with the lane of this one. */
const struct batoni_path_ops batoni_nccl_lists_ops = {
	.name = "the NCCL transport's path of lists",
	.lists = true,
	.host_issued = &host_issued,
	.checking = &checking,
	.placing = &placing,
	.test = checked_test,
};

/* ---- creation and the end ---- */

static void
init_checked(struct batoni_nccl_checked *checked)
{
	const struct batoni_nccl *nccl = checked->nccl;

	for (int i = 0; i < nccl->config.size; i++) {
		batoni_list_init(&checked->peers[i].sends);
		batoni_list_init(&checked->peers[i].receives);
		batoni_list_init(&checked->peers[i].fetches);
	}
	for (unsigned i = 0; i < checked->lanes_n; i++) {
		batoni_list_init(&checked->lanes[i].ready);
		batoni_list_init(&checked->lanes[i].running);
	}
	batoni_nccl_wires_init(checked);
}

enum baton_status
batoni_nccl_checked_create(struct batoni_nccl *nccl)
{
	struct batoni_nccl_checked *checked = batoni_alloc(1, sizeof(*checked));
	size_t size = (size_t)nccl->config.size;

	if (!checked)
		return BATON_ERR_NOMEM;
	nccl->checked = checked;
	checked->nccl = nccl;
	checked->path = nccl->has_lists ? &nccl->lists : &nccl->base.messages;
	checked->nccls = nccl->has_lists ? batoni_nccl_lane_of_lists(nccl)
	                                 : nccl->lanes;
	checked->lanes_n = nccl->has_lists ? 1 : nccl->lanes_n;
	checked->slots = nccl->config.slots;
	checked->ops = batoni_alloc(checked->slots, sizeof(*checked->ops));
	checked->peers = batoni_alloc(size, sizeof(*checked->peers));
	checked->wires = batoni_alloc(size, sizeof(*checked->wires));
	checked->lanes = batoni_alloc(checked->lanes_n, sizeof(*checked->lanes));
	if (!checked->ops || !checked->peers || !checked->wires ||
	    !checked->lanes)
		return BATON_ERR_NOMEM;
	init_checked(checked);
	return BATON_OK;
}

void
batoni_nccl_checked_free(struct batoni_nccl *nccl)
{
	struct batoni_nccl_checked *checked = nccl->checked;

	if (!checked)
		return;
	batoni_free(checked->lanes);
	batoni_free(checked->wires);
	batoni_free(checked->peers);
	batoni_free(checked->ops);
	batoni_free(checked);
	nccl->checked = NULL;
}

void
batoni_nccl_checked_done(struct batoni_nccl *nccl,
                         struct batoni_transfer *transfer,
                         enum baton_status status)
{
	struct batoni_upcalls *upcalls = nccl->base.upcalls;

	batoni_nccl_part_done(nccl->checked, transfer, status);
	count_load(nccl->checked);
	upcalls->moves(upcalls);
}

void
batoni_nccl_checked_poll(struct batoni_nccl *nccl)
{
	struct batoni_nccl_checked *checked = nccl->checked;

	batoni_nccl_hear(checked);
	for (int i = 0; i < nccl->base.size && checked->withdrawn > 0; i++)
		batoni_nccl_answer_withdrawn(checked, i);
	settle(checked);
}

enum baton_status
batoni_nccl_checked_leave(struct batoni_nccl *nccl)
{
	bool over = batoni_nccl_wires_end(nccl->checked);

	count_load(nccl->checked);
	return over ? BATON_OK : BATON_PENDING;
}

/* Of operations that were aborted. */
void
batoni_nccl_checked_drop_marks(struct batoni_nccl *nccl)
{
	struct batoni_nccl_checked *checked = nccl->checked;

	for (uint32_t i = 0; i < checked->slots; i++) {
		struct batoni_mark *mark = &checked->ops[i].mark;

		if (mark->object)
			nccl->device->ops->marks->mark_drop(nccl->device, mark);
	}
}

void
batoni_nccl_checked_leak(struct batoni_nccl *nccl)
{
	/* What was leaked on purpose, so that leak checkers find it.  The thread that destroys,
	 * with the driver lock. */
	static struct batoni_nccl_checked *leaked;

	nccl->checked->leaked = leaked;
	leaked = nccl->checked;
	nccl->checked = NULL;
	batoni_mem_keep(BATONI_NCCL_CHECKED_BLOCKS);
}
