/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checked mode, and lists: control messages between the hosts, over the messages of the lower transport.
 *
 * Each pair of ranks has a wire: in each direction one message of the lower transport at a time, on the last tag.
 * The one-sided layer's messages have other slots and tags, and so have the program's that go there.
 * A receive for as many control messages as can ever wait is kept posted.  What is said while a
 * message is under way goes together in the next one, in its order.  So there is no pool to
 * run out, and no control message waits for another peer.  How many control messages can wait for one peer is
 * bounded by the protocol (BATONI_NCCL_CONTROLS).  A peer that says more than the protocol allows
 * (headers beyond BATONI_NCCL_AHEAD, answers to what it was not told) would exceed it, and breaks
 * the communicator by PEER; so does a message that is not a number of whole control messages.
 *
 * The lower transport calls `done` within its own slots, also within those of another rank
 * (local): the part is put in a list, and batoni_nccl_hear acts on it within a slot of this
 * transport.
 *
 * Threads: the driver alone.
 */
#include <stdio.h>
#include <string.h>

#include "nccl_checked.h"

static struct batoni_path *
path_lower(const struct batoni_nccl_checked *checked)
{
	return &checked->nccl->lower->messages;
}

static void
part_init(struct batoni_nccl_part *part, int peer,
          enum batoni_direction direction, uint32_t slot)
{
	part->transfer.peer = peer;
	part->transfer.slot_direction = 0;
	part->transfer.slot = slot & 0xffffff;
	part->transfer.direction = direction;
	batoni_list_init(&part->link);
}

void
batoni_nccl_wires_init(struct batoni_nccl_checked *checked)
{
	int size = checked->nccl->config.size;
	uint32_t slot = checked->nccl->config.lower_slot;

	for (int i = 0; i < size; i++, slot += 2) {
		struct batoni_nccl_wire *wire = &checked->wires[i];

		part_init(&wire->in, i, BATONI_RECV, slot);
		part_init(&wire->out, i, BATONI_SEND, slot + 1);
		batoni_list_init(&wire->unsent);
	}
	batoni_list_init(&checked->ended);
	batoni_list_init(&checked->unsent);
}

static void
part_ended(struct batoni_nccl_checked *checked, struct batoni_nccl_part *part,
           enum baton_status status)
{
	part->status = status;
	batoni_list_append(&checked->ended, &part->link);
}

void
batoni_nccl_part_done(struct batoni_nccl_checked *checked,
                      struct batoni_transfer *transfer,
                      enum baton_status status)
{
	part_ended(checked,
	           batoni_container_of(transfer, struct batoni_nccl_part,
	                               transfer),
	           status);
}

static void
post(struct batoni_nccl_checked *checked, struct batoni_nccl_part *part,
     struct batoni_nccl_control *controls, size_t n)
{
	struct batoni_path *path = path_lower(checked);
	enum baton_status status;

	part->transfer.tag = checked->nccl->lower->tag_max;
	part->transfer.buffer = controls;
	part->transfer.bytes = n * sizeof(*controls);
	part->transfer.done_bytes = 0;
	part->transfer.native_call = NULL;
	part->lower = true;
	status = batoni_path_issue(path, &part->transfer);
	if (status != BATON_PENDING)
		part_ended(checked, part, status);
}

/* ---- saying ---- */

static void
may_send(struct batoni_nccl_checked *checked, struct batoni_nccl_wire *wire)
{
	if (wire->said_n > 0 && !wire->out.lower &&
	    batoni_list_empty(&wire->unsent))
		batoni_list_append(&checked->unsent, &wire->unsent);
}

/* Add an acknowledgement to one that waits. */
static bool
add_to_last(struct batoni_nccl_wire *wire,
            const struct batoni_nccl_control *control)
{
	struct batoni_nccl_control *said = wire->said[wire->filling];

	for (unsigned i = 0;
	     i < wire->said_n && control->kind == BATONI_NCCL_SAYS_LAUNCHED;
	     i++) {
		if (said[i].kind != control->kind ||
		    said[i].slot != control->slot)
			continue;
		said[i].count += control->count;
		return true;
	}
	return false;
}

/* The peer has said what the protocol does not allow. */
static void
blame(struct batoni_nccl_checked *checked, int peer, const char *what)
{
	char text[120];

	snprintf(text, sizeof(text), "rank %d %s", peer, what);
	batoni_nccl_fail(checked, BATON_ERR_PEER, NULL, 0, text);
}

void
batoni_nccl_say(struct batoni_nccl_checked *checked, int peer,
                const struct batoni_nccl_control *control)
{
	struct batoni_nccl_wire *wire = &checked->wires[peer];

	if (atomic_load(&checked->takes_back) || add_to_last(wire, control))
		return;
	if (wire->said_n == BATONI_NCCL_CONTROLS) {
		blame(checked, peer,
		      "has asked for more records than may wait for it");
		return;
	}
	wire->said[wire->filling][wire->said_n++] = *control;
	may_send(checked, wire);
}

bool
batoni_nccl_unsay(struct batoni_nccl_checked *checked, int peer,
                  enum batoni_nccl_says kind, uint32_t slot)
{
	struct batoni_nccl_wire *wire = &checked->wires[peer];
	struct batoni_nccl_control *said = wire->said[wire->filling];
	unsigned i = 0;

	while (i < wire->said_n &&
	       (said[i].kind != kind || said[i].slot != slot))
		i++;
	if (i == wire->said_n)
		return false;
	memmove(&said[i], &said[i + 1], (--wire->said_n - i) * sizeof(*said));
	if (wire->said_n == 0)
		batoni_list_remove(&wire->unsent);
	return true;
}

bool
batoni_nccl_waits_to_say(const struct batoni_nccl_checked *checked, int peer,
                         enum batoni_nccl_says kind)
{
	const struct batoni_nccl_wire *wire = &checked->wires[peer];
	const struct batoni_nccl_control *said = wire->said[wire->filling];

	for (unsigned i = 0; i < wire->said_n; i++)
		if (said[i].kind == kind)
			return true;
	return false;
}

void
batoni_nccl_send_all(struct batoni_nccl_checked *checked)
{
	/* The library of the lower transport is finalised: nothing can be said any more. */
	if (atomic_load(&checked->nccl->lower_lost))
		return;
	while (!batoni_list_empty(&checked->unsent)) {
		struct batoni_nccl_wire *wire = batoni_container_of(
			checked->unsent.next, struct batoni_nccl_wire, unsent);
		unsigned n = wire->said_n;

		batoni_list_remove(&wire->unsent);
		checked->sending++;
		wire->said_n = 0;
		wire->filling ^= 1;
		post(checked, &wire->out, wire->said[wire->filling ^ 1], n);
	}
}

/* ---- hearing ---- */

static void
listen_to(struct batoni_nccl_checked *checked, struct batoni_nccl_wire *wire)
{
	if (!atomic_load(&checked->takes_back) && !checked->failed) {
		post(checked, &wire->in, wire->arriving, BATONI_NCCL_CONTROLS);
		checked->posted++;
	}
}

static void
take_control_part(struct batoni_nccl_checked *checked, struct batoni_nccl_part *part)
{
	int peer = part->transfer.peer;
	struct batoni_nccl_wire *wire = &checked->wires[peer];
	size_t n = part->transfer.done_bytes / sizeof(wire->arriving[0]);
	char text[80];

	part->lower = false;
	if (part == &wire->out)
		checked->sending--;
	else
		checked->posted--;
	if (part->status != BATON_OK && part->status != BATON_ERR_CANCELED) {
		snprintf(
			text, sizeof(text),
			"what the hosts of ranks %d and %d tell each other is lost",
			checked->nccl->base.rank, peer);
		batoni_nccl_fail(
			checked, part->status,
			part->transfer.native_call,
			part->transfer.native_call ? part->transfer.native_code
						   : 0,
			text);
		return;
	}
	if (part == &wire->out) {
		may_send(checked, wire);
		return;
	}
	if (part->transfer.done_bytes % sizeof(wire->arriving[0]) != 0)
		blame(checked, peer, "has sent a part of a record");
	for (size_t i = 0; i < n && part->status == BATON_OK; i++)
		batoni_nccl_heard(checked, peer, &wire->arriving[i]);
	listen_to(checked, wire);
}

static void
listen_to_all(struct batoni_nccl_checked *checked)
{
	const struct batoni_transport *base = &checked->nccl->base;

	checked->listens = true;
	for (int i = 0; i < base->size; i++) {
		if (i != base->rank)
			listen_to(checked, &checked->wires[i]);
	}
}

size_t
batoni_nccl_hear(struct batoni_nccl_checked *checked)
{
	struct batoni_path *path = path_lower(checked);
	size_t events = 0;

	if (atomic_load(&checked->nccl->lower_lost))
		return 0;
	if (!checked->listens)
		listen_to_all(checked);
	if (path->load.in_flight > 0)
		path->ops->test(path);
	while (!batoni_list_empty(&checked->ended)) {
		struct batoni_nccl_part *part = batoni_container_of(
			checked->ended.next, struct batoni_nccl_part, link);

		batoni_list_remove(&part->link);
		take_control_part(checked, part);
		events++;
	}
	return events;
}

/* ---- the end ---- */

static void
take_part_back(struct batoni_nccl_checked *checked,
               struct batoni_nccl_part *part)
{
	struct batoni_path *path = path_lower(checked);
	enum baton_status status;

	if (!part->lower || part->asked || !batoni_list_empty(&part->link))
		return;
	part->asked = true;
	status = batoni_path_take_back(path, &part->transfer);
	if (status != BATON_ERR_BUSY)
		part_ended(checked, part, status);
}

bool
batoni_nccl_wires_end(struct batoni_nccl_checked *checked)
{
	bool lower = false;
	int size = checked->nccl->base.size;

	atomic_store(&checked->takes_back, true);
	for (int i = 0; i < size; i++) {
		struct batoni_nccl_wire *wire = &checked->wires[i];

		wire->said_n = 0;
		batoni_list_remove(&wire->unsent);
		take_part_back(checked, &wire->in);
		take_part_back(checked, &wire->out);
	}
	batoni_nccl_hear(checked);
	for (int i = 0; i < size; i++)
		lower |= checked->wires[i].in.lower ||
		         checked->wires[i].out.lower;
	return !lower;
}
