/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives, as the core asks for them (kind.h). */
#include "describe.h"

#include <stdio.h>

#include "kinds.h"
#include "log.h"
#include "tensor_ends.h"

static bool
is_list(const struct batoni_view *view)
{
	const struct batoni_transfer transfer = {.slot_direction = view->slot_direction};

	return transfer.location == BATONI_LOCATION_LIST;
}

/* The bytes of a receive of a list say what its memory is worth, which is no message's length. */
static void
what(const struct batoni_view *view, const char *details, char *text, size_t size)
{
	bool from = view->kind == BATONI_KIND_RECV;
	char bytes[56], peer[24], tag[24];

	(void)details;
	if (is_list(view) && from)
		snprintf(bytes, sizeof(bytes), "a list of tensors");
	else
		snprintf(bytes, sizeof(bytes), "%s%zu byte%s",
		         is_list(view) ? "a list of tensors, " : "",
		         view->bytes, batoni_s(view->bytes));
	if (view->peer < 0)
		snprintf(peer, sizeof(peer), "any peer");
	else
		snprintf(peer, sizeof(peer), "peer %d", view->peer);
	if (view->tag < 0)
		snprintf(tag, sizeof(tag), "any tag");
	else
		snprintf(tag, sizeof(tag), "tag %d", view->tag);
	snprintf(text, size, "%s %s %s, %s, %s",
	         batoni_kinds[view->kind]->name, from ? "from" : "to", peer, tag,
	         bytes);
}

static bool
waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (view->state != BATONI_ISSUED)
		return false;
	snprintf(text, size, "%s, or its bytes to move",
	         view->kind == BATONI_KIND_RECV
	                 ? "a message of that peer and tag"
	                 : "the peer's receive");
	return true;
}

const struct batoni_kind batoni_kind_send = {
	.name = "send",
	.trace = "Send",
	.direction = BATONI_SEND,
	.what = what,
	.waits = waits,
	.explain = batoni_tensors_explain,
	.list = &batoni_tensors_kind,
};

const struct batoni_kind batoni_kind_recv = {
	.name = "recv",
	.trace = "Recv",
	.direction = BATONI_RECV,
	.what = what,
	.waits = waits,
	.explain = batoni_tensors_explain,
	.list = &batoni_tensors_kind,
};
