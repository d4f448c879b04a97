/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: the path that the engine sees: issue, test, flush, take_back, scrap (message.c has the protocol).
 *
 * The driver.
 */
#include "stage.h"

/* What the host copies of lists: in a pass; and where a call of the program may be waiting. */
#define TEST_BYTES ((size_t)1 << 20)
#define FLUSH_BYTES ((size_t)16 << 10)

struct batoni_staging *
batoni_stage_of(struct batoni_path *path)
{
	return batoni_container_of(batoni_transport_of(path),
	                           struct batoni_staging, base);
}

enum baton_status
batoni_stage_leave(struct batoni_staging *stage,
                   const struct stage_message *message)
{
	enum baton_status status;

	batoni_stage_settle(stage);
	status = message->transfer ? BATON_PENDING : stage->caller_status;
	stage->caller = NULL;
	if (stage->collected)
		stage->base.upcalls->deferred(stage->base.upcalls);
	batoni_stage_tell_engine(stage);
	return status;
}

/* The one-sided layer's are the transport's. */
static struct batoni_path *
path_to(const struct batoni_staging *stage, int peer, int tag)
{
	struct batoni_path *beside = stage->beside;

	return beside && tag <= stage->base.tag_max &&
	                       beside->ops->serving->serves(
				       beside, BATON_OPERATION_SEND, peer)
	               ? beside
	               : &stage->lower->messages;
}

void
batoni_stage_begin(struct batoni_staging *stage, struct stage_message *message,
                   struct batoni_transfer *transfer)
{
	uint32_t slot = transfer->slot;

	*message = (struct stage_message){
		.transfer = transfer,
		.peer = transfer->peer,
		.lower = path_to(stage, transfer->peer, transfer->tag),
		.host = batoni_location_is_host(transfer->location),
		.list = batoni_transfer_list(transfer),
	};
	message->first.transfer.slot = slot & 0xffffff;
	message->control.transfer.slot = (stage->slots + slot) & 0xffffff;
	batoni_list_init(&message->first.link);
	batoni_list_init(&message->control.link);
	batoni_list_init(&message->turn);
	batoni_list_init(&message->tell);
	batoni_list_init(&message->line);
	batoni_list_init(&message->fronts);
	batoni_list_init(&message->pieces_ready);
	stage->begun++;
}

static enum baton_status
stage_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	struct stage_message *message = &stage->messages[transfer->slot];

	assert(transfer->slot < stage->slots && !message->transfer);
	batoni_transfer_moved(transfer, 0);
	batoni_stage_begin(stage, message, transfer);
	stage->caller = message;
	if (transfer->direction == BATONI_SEND)
		batoni_stage_begin_send(stage, message);
	else
		batoni_stage_begin_recv(stage, message);
	return batoni_stage_leave(stage, message);
}

static void
test_lower(struct batoni_path *lower)
{
	if (lower->load.in_flight > 0 || lower->load.makes_room)
		lower->ops->test(lower);
}

static size_t
test(struct batoni_path *path)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	size_t events = 0;

	test_lower(&stage->lower->messages);
	if (stage->beside)
		test_lower(stage->beside);
	events += batoni_stage_poll(stage);
	if (stage->maps)
		events += batoni_stage_maps_test(stage);
	events += batoni_stage_settle(stage);
	batoni_stage_start(stage, TEST_BYTES);
	batoni_stage_tell_engine(stage);
	return events;
}

static size_t
flush(struct batoni_path *path)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	bool collected = stage->collected;

	if (collected)
		batoni_stage_start(stage, FLUSH_BYTES);
	batoni_stage_tell_engine(stage);
	return collected;
}

/* What is sent or received in place.  OK, PENDING, BUSY: as scrap. */
static enum baton_status
scrap_part(struct batoni_staging *stage, struct stage_part *part)
{
	if (!part->lower || (!part->asked &&
	                     batoni_stage_take_part_back(stage, part) != BATON_ERR_BUSY))
		return BATON_OK;
	return batoni_path_scrap(part->lower, &part->transfer);
}

/* A receive whose bytes are here: they are copied from the bounce buffer, and nothing of the peer is
 * needed. */
static bool
has_come(const struct stage_message *message)
{
	return message->state == STAGE_EAGER &&
	       message->transfer->direction == BATONI_RECV;
}

/* The peer's process has ended: nothing that this waits for will come. */
static void
abandon(struct batoni_staging *stage, struct stage_message *message)
{
	batoni_stage_take_part_back(stage, &message->first);
	batoni_stage_take_part_back(stage, &message->control);
	for (uint32_t i = 0; i < DIRECTIONS * stage->config.chunks; i++) {
		struct stage_token *token = &stage->tokens[i];

		if (token->message == message)
			batoni_stage_take_part_back(stage, &token->part);
	}
	batoni_stage_over(stage, message, BATON_ERR_CANCELED);
}

static bool
is_gone(const struct batoni_staging *stage, int peer)
{
	const struct batoni_peer *peers = stage->base.peers;

	return peers && peer >= 0 && peer < stage->size && peers[peer].gone;
}

static enum baton_status
take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	struct stage_message *message = &stage->messages[transfer->slot];
	enum baton_status status;

	stage->caller = message;
	/* What a probe had found goes on as a receive. */
	message->probed = false;
	/* What has ended in a slot of another rank is still to be seen. */
	batoni_stage_settle(stage);
	switch (message->state) {
	case STAGE_LINE:
		batoni_stage_advance_line(stage, batoni_stage_leave_line(stage, message));
		batoni_stage_over(stage, message, BATON_ERR_CANCELED);
		break;
	case STAGE_FIRST:
	case STAGE_EAGER:
	case STAGE_ASKED:
		/* If the peer has seen no header, there will be no grant. */
		if (batoni_stage_take_part_back(stage, &message->first) == BATON_ERR_CANCELED)
			batoni_stage_take_part_back(stage, &message->control);
		break;
	case STAGE_FREE:
	case STAGE_HELD:
	case STAGE_PIECES:
	case STAGE_DIRECT:
	case STAGE_MAPPED:
	case STAGE_DROPPED:
		break;
	}
	/* What has just been taken back is not asked for again. */
	batoni_stage_settle(stage);
	if (message->state != STAGE_FREE && !has_come(message) &&
	    is_gone(stage, message->peer))
		abandon(stage, message);
	status = batoni_stage_leave(stage, message);
	return status == BATON_PENDING ? BATON_ERR_BUSY : status;
}

/* PENDING where any part says so, since that passes. */
static enum baton_status
scrap_in_place(struct batoni_staging *stage, struct stage_message *message)
{
	enum baton_status all = BATON_OK, one = BATON_OK;

	if (message->state == STAGE_DIRECT)
		all = scrap_part(stage, message->transfer->direction == BATONI_SEND
		                                ? &message->control
		                                : &message->first);
	for (uint32_t i = 0; i < DIRECTIONS * stage->config.chunks; i++) {
		struct stage_token *token = &stage->tokens[i];

		if (token->message == message && token->content != token->memory)
			one = scrap_part(stage, &token->part);
		if (all == BATON_OK || one == BATON_PENDING)
			all = one;
	}
	return all;
}

static enum baton_status
scrap(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	struct stage_message *message = &stage->messages[transfer->slot];
	enum baton_status status = BATON_OK;

	/* What has ended is seen first: that part is not to be asked of. */
	batoni_stage_settle(stage);
	if (message->transfer) {
		stage_set_moves(stage, message, false);
		batoni_stage_over(stage, message, BATON_ERR_CANCELED);
	}
	if (message->transfer && message->host)
		status = scrap_in_place(stage, message);
	batoni_stage_settle(stage);
	if (message->transfer && message->copies > 0)
		status = BATON_PENDING;
	batoni_stage_tell_engine(stage);
	return status;
}

/* By one of the two paths. */
static bool
serves(struct batoni_path *path, int kind, int peer)
{
	(void)path;
	(void)kind;
	(void)peer;
	return true;
}

static enum baton_status
connect_peer(struct batoni_path *path, int peer)
{
	struct batoni_path *lower = path_to(batoni_stage_of(path), peer, 0);

	return lower->ops->serving ? lower->ops->serving->connect(lower, peer)
	                           : BATON_OK;
}

static const struct batoni_serving_ops serving = {
	.serves = serves,
	.connect = connect_peer,
};

/* ---- receives from any rank, or of any tag ---- */

/* A message's first part is one of a lower path, on its own tag, and a receive is posted there when it is
 * issued: what has met no receive there has met none here. */
static void
expect(struct batoni_path *path, int change)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	struct batoni_path *lower = &stage->lower->messages;

	lower->ops->unmatched->expect(lower, change);
	if (stage->beside)
		stage->beside->ops->unmatched->expect(stage->beside, change);
	stage->expects += (uint32_t)change;
	path->load.in_flight += (uint32_t)change;
}

static int
stage_find(struct batoni_path *path, int peer, int *tag_p)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	struct batoni_path *paths[2] = {stage->beside, &stage->lower->messages};
	int rank = -1;

	if (peer >= 0) {
		struct batoni_path *lower = path_to(stage, peer, 0);

		return lower->ops->unmatched->find(lower, peer, tag_p);
	}
	/* In turn. */
	stage->asked_second = !stage->asked_second;
	for (unsigned i = 0; i < 2 && rank < 0; i++) {
		struct batoni_path *lower = paths[stage->asked_second ^ (i > 0)];

		if (lower)
			rank = lower->ops->unmatched->find(lower, peer, tag_p);
	}
	return rank;
}

static const struct batoni_unmatched_ops unmatched = {
	.expect = expect,
	.find = stage_find,
	.hold = batoni_stage_hold,
	.meet = batoni_stage_meet,
};

/* Do the lower paths tell? */
static bool
tells(const struct batoni_staging *stage)
{
	return stage->lower->messages.ops->unmatched &&
	       (!stage->beside || stage->beside->ops->unmatched);
}

static const struct batoni_host_issued_ops host_issued = {
	.issue = stage_issue,
	.take_back = take_back,
};

static const struct batoni_scrapping_ops scrapping = {.scrap = scrap};

static const struct batoni_deferring_ops deferring = {.flush = flush};

void
batoni_stage_messages(struct batoni_staging *stage)
{
	const struct batoni_path_ops *lower = stage->lower->messages.ops;

	stage->messages_ops = (struct batoni_path_ops){
		.name = lower->name,
		.kinds = BATONI_MESSAGES,
		.lists = true,
		.host_issued = &host_issued,
		/* A path that connects wants to be asked at the call. */
		.serving = lower->serving || stage->beside ? &serving : NULL,
		.scrapping = &scrapping,
		.unmatched = tells(stage) ? &unmatched : NULL,
		.deferring = &deferring,
		.test = test,
	};
	stage->base.messages.ops = &stage->messages_ops;
}
