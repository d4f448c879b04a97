/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: messages that a probe of the program has found (`hold` and `meet` of struct batoni_unmatched_ops).
 *
 * The header of a message says what the message is.  So the slot of the probe receives the header's message, as a
 * receive does, into the bounce buffer of that slot, and stops there (STAGE_HELD): nothing is under way then, and the
 * sender, if it asks for a grant, waits for the answer.  The receive copies the bytes into the bounce buffer of its own
 * slot, and goes on as if they had just come.
 *
 * Threads: the driver alone.
 */
#include <string.h>

#include "stage.h"
#include "tensors.h"

static size_t
bounce_bytes(const struct batoni_staging *stage)
{
	return BATONI_STAGING_HEADER_BYTES + stage->config.eager_bytes;
}

/* Describe the message by its header.  (If that is none, the receive refuses it.) */
static void
describe(const struct batoni_staging *stage, const struct stage_message *message,
         struct batoni_held *held_p)
{
	const unsigned char *bounce = message->first.transfer.buffer;
	struct stage_header header;

	*held_p = (struct batoni_held){.bytes = 0};
	if (!batoni_stage_decode(stage, message, &header))
		return;
	held_p->bytes = (size_t)header.length;
	held_p->list = header.list_bytes > 0;
	if (held_p->list && message->first.transfer.done_bytes >=
	                            sizeof(header) + BATONI_TENSORS_FIXED_BYTES)
		held_p->tensors =
			batoni_tensors_stated_count(bounce + sizeof(header));
}

enum baton_status
batoni_stage_hold(struct batoni_path *path, struct batoni_transfer *receive,
                  struct batoni_held *held_p)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	struct stage_message *message = &stage->messages[receive->slot];

	if (!message->transfer && !message->lost) {
		batoni_stage_begin(stage, message, receive);
		message->probed = true;
		batoni_stage_begin_recv(stage, message);
	}
	batoni_stage_leave(stage, message);
	/* The lower transport has failed it, in this call or since the last one. */
	if (message->lost) {
		message->lost = false;
		return BATON_ERR_PEER;
	}
	if (message->state != STAGE_HELD)
		return BATON_PENDING;
	/* Nothing needs to be polled for it now. */
	message->probed = false;
	stage->begun--;
	batoni_stage_tell_engine(stage);
	describe(stage, message, held_p);
	return BATON_OK;
}

enum baton_status
batoni_stage_meet(struct batoni_path *path, struct batoni_transfer *receive,
                  struct batoni_transfer *held)
{
	struct batoni_staging *stage = batoni_stage_of(path);
	struct stage_message *found = &stage->messages[held->slot];
	struct stage_message *message = &stage->messages[receive->slot];
	unsigned char *from = found->first.transfer.buffer;
	size_t n = found->first.transfer.done_bytes;

	assert(found->state == STAGE_HELD && found->parts == 0);
	found->transfer = NULL;
	found->state = STAGE_FREE;
	batoni_transfer_moved(receive, 0);
	batoni_stage_begin(stage, message, receive);
	message->state = STAGE_FIRST;
	message->first.transfer.buffer =
		stage->bounces + receive->slot * bounce_bytes(stage);
	message->first.transfer.done_bytes = n;
	if (message != found)
		memcpy(message->first.transfer.buffer, from, n);
	stage->caller = message;
	batoni_stage_matched(stage, message);
	return batoni_stage_leave(stage, message);
}
