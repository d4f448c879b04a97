/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One direction of traffic with one neighbour, in two manners.
 *
 * Posted: link_post enqueues the transfer detached, so that the stream (and the
 * thread) goes on at once, and keeps its request; link_finish waits for it when
 * its data, or its buffer, is needed.  What is done between the two hides it.
 *
 * Exchanged: link_exchange starts up to two transfers and waits.  Both are in
 * one group: on a stream, a send that waits for its peer would otherwise hold
 * up the receive behind it, and with neighbours that both send first neither
 * would get to its receive.
 *
 * Each wait of the host is noted, and for each transfer when it was armed and
 * when it completed: report.c compares them.
 */
#include "pipeline.h"

void link_init(struct link *link, int peer, enum tag tag, bool incoming,
               size_t count, int slots, size_t messages)
{
	link->peer = peer;
	link->tag = tag;
	link->incoming = incoming;
	link->count = count;
	link->slots = slots;
	link->requests = allocate((size_t)slots, sizeof(*link->requests));
	link->transfers = allocate(messages, sizeof(*link->transfers));
	link->posted = 0;
	link->finished = 0;
}

void link_fini(struct link *link)
{
	free(link->requests);
	free(link->transfers);
}

static void start(struct stage *stage, struct link *link, int slot,
                  float *buffer, unsigned flags)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request *request_p = &link->requests[slot];

	options.flags = flags;
	if (link->incoming)
		CHECK(stage->comm,
		      baton_recv(buffer, link->count, BATON_FLOAT32, link->peer,
		                 (int)link->tag, stage->comm, stage->stream,
		                 &options, request_p));
	else
		CHECK(stage->comm,
		      baton_send(buffer, link->count, BATON_FLOAT32, link->peer,
		                 (int)link->tag, stage->comm, stage->stream,
		                 &options, request_p));
	link->posted++;
}

static void end(struct stage *stage, struct link *link, int slot)
{
	struct span *span = &link->transfers[link->finished++];
	struct baton_completion completion;

	finish(stage->comm, &link->requests[slot], &completion);
	span->begin = completion.armed_ns;
	span->end = completion.completed_ns;
}

void link_post(struct stage *stage, struct link *link, int slot, float *buffer)
{
	if (link->peer >= 0)
		start(stage, link, slot, buffer, BATON_OP_DETACHED);
}

void link_finish(struct stage *stage, struct link *link, int slot)
{
	struct span *wait = &stage->waits[stage->waits_count];

	if (link->requests[slot] == BATON_REQUEST_NULL)
		return;
	wait->begin = now_ns();
	end(stage, link, slot);
	wait->end = now_ns();
	stage->waits_count++;
}

void link_drain(struct stage *stage, struct link *link)
{
	while (link->finished < link->posted)
		link_finish(stage, link,
		            (int)(link->finished % (size_t)link->slots));
}

static bool moves(const struct move *move)
{
	return move->link != NULL && move->link->peer >= 0;
}

void link_exchange(struct stage *stage, struct move one, struct move other)
{
	struct span *wait = &stage->waits[stage->waits_count];

	if (!moves(&one) && !moves(&other))
		return;
	wait->begin = now_ns();
	CHECK(stage->comm, baton_group_begin(stage->comm));
	if (moves(&one))
		start(stage, one.link, one.slot, one.buffer, 0);
	if (moves(&other))
		start(stage, other.link, other.slot, other.buffer, 0);
	CHECK(stage->comm, baton_group_end(stage->comm));
	if (moves(&one))
		end(stage, one.link, one.slot);
	if (moves(&other))
		end(stage, other.link, other.slot);
	wait->end = now_ns();
	stage->waits_count++;
}

void transfer(struct baton_comm *comm, int peer, enum tag tag, bool incoming,
              void *bytes, size_t count)
{
	baton_request request;

	if (incoming)
		CHECK(comm, baton_recv(bytes, count, BATON_UINT8, peer,
		                       (int)tag, comm, NULL, NULL, &request));
	else
		CHECK(comm, baton_send(bytes, count, BATON_UINT8, peer,
		                       (int)tag, comm, NULL, NULL, &request));
	finish(comm, &request, NULL);
}
