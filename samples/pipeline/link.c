/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One direction of traffic with one neighbour, in two styles.
 *
 * Posted: link_post enqueues the transfer detached, so that the stream and the
 * thread go on at once, and keeps its request; link_finish waits for it when its
 * data, or its buffer, is needed.  Whatever the stage computes between the two
 * runs beside the transfer.
 *
 * Exchanged: link_exchange starts up to two transfers and waits.  Both are in
 * one group: on a stream, a send that waits for its peer would otherwise block
 * the receive behind it, and two neighbours that both send first would wait for
 * each other for ever.  A group is of one communicator, so two that have one each
 * (NCCL) are detached instead.
 *
 * For each transfer the times at which it was armed and completed are kept:
 * timeline.c draws them.
 *
 * A pretended link (--pretend-link) delays messages that have arrived: it
 * carries one at a time, at its rate, and a message counts as received when the
 * link would have delivered it.  It shows what a slow network does where none
 * can be had; no figure taken over it is a measurement of Baton.
 */
#include "pipeline.h"

#define TIMEOUT_S 600

void comms_open(struct comms *comms_p)
{
	struct baton_comm_options how = BATON_COMM_OPTIONS_INIT;
	struct baton_comm_info info = { .size = sizeof(info) };

	how.timestamps = true;
	how.timeout_ns = TIMEOUT_S * INT64_C(1000000000);
	CHECK(NULL, baton_comm_create(&how, &comms_p->activations));
	comms_p->gradients = comms_p->activations;
	comms_p->host = comms_p->activations;
	CHECK(comms_p->activations,
	      baton_comm_query(comms_p->activations, &info));
	if (info.capabilities & BATON_CAP_TAGS)
		return;
	CHECK(NULL, baton_comm_create(&how, &comms_p->gradients));
	how.device = BATON_DEVICE_HOST;
	CHECK(NULL, baton_comm_create(&how, &comms_p->host));
}

void comms_close(struct comms *comms)
{
	if (comms->host != comms->activations) {
		CHECK(comms->host, baton_comm_destroy(comms->host));
		CHECK(comms->gradients, baton_comm_destroy(comms->gradients));
	}
	CHECK(comms->activations, baton_comm_destroy(comms->activations));
}

void link_init(struct link *link, int peer, enum tag tag, bool incoming,
               size_t count, int slots, size_t messages)
{
	link->comm = NULL;
	link->peer = peer;
	link->tag = (int)tag;
	link->incoming = incoming;
	link->count = count;
	link->slots = slots;
	link->requests = allocate((size_t)slots, sizeof(*link->requests));
	link->transfers = allocate(messages, sizeof(*link->transfers));
	link->posted = 0;
	link->finished = 0;
	link->pretend_ns = 0;
	link->pretend_free_ns = 0;
	link->device = NULL;
	link->memory = NULL;
	link->buffers = NULL;
}

void link_join(struct link *link, struct baton_comm *comm)
{
	struct baton_comm_info info = { .size = sizeof(info) };

	CHECK(comm, baton_comm_query(comm, &info));
	link->comm = comm;
	if (link->tag > info.tag_max)
		link->tag = 0;
}

void link_place(struct link *link, struct device *device)
{
	if (device == NULL || link->peer < 0)
		return;
	link->device = device;
	link->memory = allocate((size_t)link->slots, sizeof(*link->memory));
	link->buffers = allocate((size_t)link->slots, sizeof(*link->buffers));
	for (int slot = 0; slot < link->slots; slot++)
		link->memory[slot] =
			device_alloc(device, link->count * sizeof(float));
}

void link_pretend(struct link *link, double mbit)
{
	double bits = 8.0 * (double)(link->count * sizeof(float));

	if (link->incoming && mbit > 0.0)
		link->pretend_ns = (uint64_t)(bits * 1000.0 / mbit);
}

void link_fini(struct link *link)
{
	for (int slot = 0; link->device != NULL && slot < link->slots; slot++)
		device_free(link->device, link->memory[slot]);
	free(link->memory);
	free(link->buffers);
	free(link->requests);
	free(link->transfers);
}

/* Where the message of this slot is. */
static void *place(struct link *link, int slot, float *buffer)
{
	if (link->device == NULL)
		return buffer;
	link->buffers[slot] = buffer;
	if (!link->incoming)
		device_copy(link->device, link->memory[slot], buffer,
		            link->count * sizeof(float));
	return link->memory[slot];
}

static void start(struct stage *stage, struct link *link, int slot,
                  float *computed_in, unsigned flags)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request *request_p = &link->requests[slot];
	void *buffer = place(link, slot, computed_in);

	options.flags = flags;
	if (link->incoming)
		CHECK(link->comm,
		      baton_recv(buffer, link->count, BATON_FLOAT32, link->peer,
		                 link->tag, link->comm, stage->stream,
		                 &options, request_p));
	else
		CHECK(link->comm,
		      baton_send(buffer, link->count, BATON_FLOAT32, link->peer,
		                 link->tag, link->comm, stage->stream,
		                 &options, request_p));
	link->posted++;
}

/* Wait until the pretended link has delivered what arrived at arrived_ns, and
 * return when that was. */
static uint64_t deliver(struct link *link, uint64_t arrived_ns)
{
	struct timespec until;

	if (link->pretend_ns == 0)
		return arrived_ns;
	if (link->pretend_free_ns < arrived_ns)
		link->pretend_free_ns = arrived_ns;
	link->pretend_free_ns += link->pretend_ns;
	until.tv_sec = (time_t)(link->pretend_free_ns / 1000000000u);
	until.tv_nsec = (long)(link->pretend_free_ns % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) !=
	       0)
		;
	return link->pretend_free_ns;
}

static void end(struct link *link, int slot)
{
	struct span *span = &link->transfers[link->finished++];
	struct baton_completion completion;

	finish(link->comm, &link->requests[slot], &completion);
	span->begin = completion.armed_ns;
	span->end = deliver(link, completion.completed_ns);
	if (link->device != NULL && link->incoming)
		device_copy(link->device, link->buffers[slot],
		            link->memory[slot], link->count * sizeof(float));
}

void link_post(struct stage *stage, struct link *link, int slot, float *buffer)
{
	if (link->peer >= 0)
		start(stage, link, slot, buffer, BATON_OP_DETACHED);
}

void link_finish(struct link *link, int slot)
{
	if (link->requests[slot] != BATON_REQUEST_NULL)
		end(link, slot);
}

void link_drain(struct link *link)
{
	while (link->finished < link->posted)
		link_finish(link, (int)(link->finished % (size_t)link->slots));
}

static bool moves(const struct move *move)
{
	return move->link != NULL && move->link->peer >= 0;
}

void link_exchange(struct stage *stage, struct move one, struct move other)
{
	bool one_comm = stage->comms != NULL &&
	                stage->comms->activations == stage->comms->gradients;
	unsigned flags = one_comm ? 0 : BATON_OP_DETACHED;

	if (!moves(&one) && !moves(&other))
		return;
	if (one_comm)
		CHECK(stage->comm, baton_group_begin(stage->comm));
	if (moves(&one))
		start(stage, one.link, one.slot, one.buffer, flags);
	if (moves(&other))
		start(stage, other.link, other.slot, other.buffer, flags);
	if (one_comm)
		CHECK(stage->comm, baton_group_end(stage->comm));
	if (moves(&one))
		end(one.link, one.slot);
	if (moves(&other))
		end(other.link, other.slot);
}

void transfer(struct baton_comm *comm, int peer, enum tag tag, bool incoming,
              void *bytes, size_t count)
{
	baton_request request;
	baton_stream stream;

	CHECK(comm, baton_stream_create(comm, &stream));
	if (incoming)
		CHECK(comm, baton_recv(bytes, count, BATON_UINT8, peer,
		                       (int)tag, comm, stream, NULL, &request));
	else
		CHECK(comm, baton_send(bytes, count, BATON_UINT8, peer,
		                       (int)tag, comm, stream, NULL, &request));
	finish(comm, &request, NULL);
	CHECK(comm, baton_stream_destroy(comm, stream));
}

void meet(struct baton_comm *comm)
{
	int rank = baton_comm_rank(comm), ranks = baton_comm_size(comm);
	char token = 0;

	for (int peer = 1; rank == 0 && peer < ranks; peer++)
		transfer(comm, peer, TAG_MEET, true, &token, 1);
	for (int peer = 1; rank == 0 && peer < ranks; peer++)
		transfer(comm, peer, TAG_MEET, false, &token, 1);
	if (rank != 0) {
		transfer(comm, 0, TAG_MEET, false, &token, 1);
		transfer(comm, 0, TAG_MEET, true, &token, 1);
	}
}
