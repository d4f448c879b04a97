/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages in two parts.
 *
 * Why: Open MPI 4.1 and 5.0 write past the end of a receive that is too short,
 * from 4 KiB up between processes of one machine.  A receiver must therefore
 * know a long message's length before it posts the receive for it.
 *
 * The header goes on the user's tag, where it keeps the message's place in the
 * order; the body goes on a tag that no other body to this peer has.  Headers may
 * therefore be received in any order, and only the pieces of one body need an order.
 * Both are sent at issue: the body of a message that MPI sends eagerly is there
 * before the receiver has read the header.
 *
 * Tags of bodies.  A body's tag is in use until the peer has received the body, which
 * may be long after the send is complete.  The tags to one peer are used in turn, in
 * segments.  The receiver counts the bodies of each segment, and when all have come it
 * releases the segment by an empty message, which the sender polls for when it needs
 * the segment again.  When no segment is free (much is unreceived), the body waits: its
 * header says so, and the receiver, once the header has matched a receive, sends a
 * grant with a tag that belongs to that receive's slot.  So no two bodies ever share a
 * tag, and a message that stays unreceived delays no other one.
 *
 * In checked mode short messages come this way too, without bytes as well, and the header has the type.
 * A body whose type is not that of its receive is drained, as one that does not fit.
 *
 * A body that does not fit is received piece by piece into the drain buffer.  There is
 * one for the process; several drains may overwrite it at a time, since nothing reads
 * it.  An announced body is always received, even when its receive has ended early (its
 * buffer is then LENT); otherwise the sender would wait for ever.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "mpi_transport.h"
#include "tensors.h"

/* Bodies this short may be complete as soon as they are sent. */
#define EAGER_MAX ((size_t)16 << 10)
/* Bodies that are started in one pass. */
#define GRANTS_MAX 64u

static pthread_mutex_t drain_lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by drain_lock until it is set, constant then. */
static void *drain_buffer;

/* Map the drain buffer.  Its pages take memory with the first drain. */
enum baton_status
batoni_mpi_drain_reserve(void)
{
	void *buffer;

	pthread_mutex_lock(&drain_lock);
	if (!drain_buffer) {
		buffer = mmap(NULL, BATONI_MPI_PIECE_BYTES,
		              PROT_READ | PROT_WRITE,
		              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (buffer != MAP_FAILED)
			drain_buffer = buffer;
	}
	buffer = drain_buffer;
	pthread_mutex_unlock(&drain_lock);
	return buffer ? BATON_OK : BATON_ERR_NOMEM;
}

void *
batoni_mpi_drain(void)
{
	return drain_buffer;
}

/* ---- control messages ---- */

/* False: what the peer has sent is no control message, and the transport is broken. */
static bool
is_control(struct batoni_mpi *mpi, int source, int length, int bytes,
           const char *what)
{
	char text[80];

	if (length == bytes)
		return true;
	snprintf(text, sizeof(text), "what rank %d sent is no %s", source, what);
	batoni_mpi_break_saying(mpi, "MPI_Iprobe", text);
	return false;
}

static bool
recv_kept(struct batoni_mpi *mpi, struct batoni_mpi_kept *kept, void *buffer,
          int bytes)
{
	MPI_Request request = MPI_REQUEST_NULL;
	int code = batoni_mpi_kept_take(mpi, kept, buffer, bytes, MPI_BYTE,
	                                &request);

	if (code == MPI_SUCCESS)
		code = MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (code != MPI_SUCCESS)
		batoni_mpi_break(mpi, "MPI_Imrecv", code);
	return code == MPI_SUCCESS;
}

/* Receive a control message of `bytes` bytes, which is eager: once it has come, MPI_Recv does
 * not wait.  Its length is checked before, since some MPIs write past the end of a receive
 * that is too short.  False: none is here, or the transport is broken, by MPI or by a
 * message that is no `what`. */
static bool
recv_control(struct batoni_mpi *mpi, int peer, int tag, void *buffer, int bytes,
             const char *what, int *source_p)
{
	struct batoni_mpi_kept *kept =
		mpi->kept_n ? batoni_mpi_kept_find(mpi, peer, tag) : NULL;
	MPI_Status status;
	int here = 0, length = 0;
	int code;

	if (__builtin_expect(kept != NULL, 0)) {
		*source_p = kept->peer;
		return is_control(mpi, kept->peer, kept->bytes, bytes, what) &&
		       recv_kept(mpi, kept, buffer, bytes);
	}
	code = MPI_Iprobe(peer, tag, mpi->comm, &here, &status);
	if (code != MPI_SUCCESS) {
		batoni_mpi_break(mpi, "MPI_Iprobe", code);
		return false;
	}
	if (!here)
		return false;
	*source_p = status.MPI_SOURCE;
	MPI_Get_count(&status, MPI_BYTE, &length);
	if (!is_control(mpi, status.MPI_SOURCE, length, bytes, what))
		return false;
	code = MPI_Recv(buffer, bytes, MPI_BYTE, status.MPI_SOURCE, tag,
	                mpi->comm, MPI_STATUS_IGNORE);
	if (code != MPI_SUCCESS)
		batoni_mpi_break(mpi, "MPI_Recv", code);
	return code == MPI_SUCCESS;
}

/* ---- tags ---- */

/* Has the peer released the segment?  The message is empty. */
static bool
is_released(struct batoni_mpi *mpi, int peer, unsigned segment)
{
	int tag = mpi->release_tag + (int)segment;
	int source;

	return recv_control(mpi, peer, tag, NULL, 0, "release of tags", &source);
}

/* All tags of the segment have been used.  False: no other segment is free. */
static __attribute__((noinline)) bool
next_segment(struct batoni_mpi *mpi, int peer)
{
	struct batoni_mpi_tags *tags = &mpi->tags[peer];

	tags->busy |= (uint16_t)(1u << tags->segment);
	for (unsigned i = 1; i <= BATONI_MPI_SEGMENTS; i++) {
		unsigned segment = (tags->segment + i) % BATONI_MPI_SEGMENTS;

		if (tags->busy >> segment & 1 &&
		    !is_released(mpi, peer, segment))
			continue;
		tags->busy &= (uint16_t)~(1u << segment);
		tags->segment = (uint16_t)segment;
		tags->used = 0;
		return true;
	}
	return false;
}

/* A tag that no body to the peer has, or -1. */
static inline int
take_tag(struct batoni_mpi *mpi, int peer)
{
	struct batoni_mpi_tags *tags = &mpi->tags[peer];

	if (__builtin_expect(tags->used >= mpi->segment_tags, 0) &&
	    !next_segment(mpi, peer))
		return -1;
	return mpi->body_tag_base +
	       (int)(tags->segment * mpi->segment_tags + tags->used++);
}

/* All of a body has come.  Returns PENDING, or the status in which the transfer ends. */
static inline enum baton_status
give_tag_back(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
              struct batoni_mpi_body *body)
{
	struct batoni_mpi_tags *tags = &mpi->tags[body->peer];
	uint32_t index = (uint32_t)(body->tag - mpi->body_tag_base);
	uint32_t segment = index / mpi->segment_tags;
	MPI_Request *request = &mpi->requests[mpi->count];
	int code;

	if (body->tag >= mpi->granted_tag ||
	    ++tags->received[segment] < mpi->segment_tags)
		return BATON_PENDING;
	tags->received[segment] = 0;
	code = batoni_mpi_isend(mpi, NULL, 0, body->peer,
	                        mpi->release_tag + (int)segment);
	if (code != MPI_SUCCESS)
		return batoni_mpi_fail(mpi, transfer, "MPI_Isend", code, NULL);
	if (batoni_mpi_is_complete(mpi, request))
		return BATON_PENDING;
	/* The receive ends with this last piece. */
	batoni_mpi_track(mpi, transfer, BATONI_MPI_PIECE, 0);
	body->active++;
	return BATON_PENDING;
}

/* ---- pieces ---- */

/* Both sides use the same lengths: they are part of the wire format.  A short body goes
 * in one or two pieces that MPI sends eagerly.  In one piece, Open MPI would have the receiver
 * fetch it by a system call: 2.4 instead of 0.6 us at 4 KiB. */
static inline size_t
piece_bytes(size_t length)
{
	return length <= 2 * BATONI_MPI_EAGER_BYTES ? BATONI_MPI_EAGER_BYTES
	                                            : BATONI_MPI_PIECE_BYTES;
}

/* Post as many pieces as may be active at a time. */
static enum baton_status
post_pieces(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
            struct batoni_mpi_body *body)
{
	bool send = transfer->direction == BATONI_SEND;
	size_t most = piece_bytes(body->length);

	if (__builtin_expect(body->pieces > 0, 0))
		return batoni_mpi_list_post(mpi, transfer, body);
	while (body->posted < body->length &&
	       body->active < BATONI_MPI_ACTIVE_MAX) {
		char *piece = (char *)transfer->buffer + body->posted;
		size_t bytes = body->length - body->posted;
		int code;

		if (bytes > most)
			bytes = most;
		if (send)
			code = batoni_mpi_isend(mpi, piece, (int)bytes,
			                        body->peer, body->tag);
		else
			code = batoni_mpi_irecv(mpi,
			                        body->verdict == BATON_OK
			                                ? piece
			                                : drain_buffer,
			                        (int)bytes, MPI_BYTE,
			                        body->peer, body->tag);
		if (code != MPI_SUCCESS)
			return batoni_mpi_fail(mpi, transfer,
			                       send ? "MPI_Isend" : "MPI_Irecv",
			                       code, NULL);
		batoni_mpi_track(mpi, transfer, BATONI_MPI_PIECE, 0);
		body->active++;
		body->posted += bytes;
	}
	return BATON_PENDING;
}

/* How the transfer stands. */
static enum baton_status
outcome(struct batoni_mpi *mpi, struct batoni_mpi_body *body,
        struct batoni_transfer *transfer)
{
	enum baton_status status;

	if (body->active || body->posted < body->length || body->pieces)
		return BATON_PENDING;
	if (transfer->direction == BATONI_RECV && !body->tag_given_back) {
		body->tag_given_back = true;
		status = give_tag_back(mpi, transfer, body);
		if (status != BATON_PENDING || body->active)
			return status;
	}
	if (__builtin_expect(body->buffer != NULL, 0))
		batoni_mpi_list_end(mpi, transfer, body);
	if (__builtin_expect(body->verdict != BATON_OK, 0)) {
		batoni_transfer_arrived(transfer, body->verdict, body->length);
		return body->verdict;
	}
	batoni_transfer_moved(transfer, body->length);
	if (__builtin_expect(mpi->device != NULL, 0) &&
	    transfer->direction == BATONI_RECV)
		return batoni_mpi_flush(mpi, transfer);
	return BATON_OK;
}

/* Test once each of the requests first to end - 1, which have just been started: short
 * ones are often complete at once.  As in mpi.c, MPI_Test is not called for a send whose
 * handle shows that it is incomplete. */
static enum baton_status
test_started(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
             struct batoni_mpi_body *body, uint32_t first, uint32_t end)
{
	bool told = transfer->direction == BATONI_SEND &&
	            mpi->complete != MPI_REQUEST_NULL;

	for (uint32_t i = end; i-- > first;) {
		int done = batoni_mpi_is_complete(mpi, &mpi->requests[i]);
		int code = MPI_SUCCESS;

		if (!done && !told)
			code = MPI_Test(&mpi->requests[i], &done,
			                MPI_STATUS_IGNORE);
		if (code != MPI_SUCCESS)
			return batoni_mpi_fail(mpi, transfer, "MPI_Test", code,
			                       NULL);
		if (done) {
			if (mpi->entries[i].part == BATONI_MPI_HEADER)
				batoni_mpi_bounce_return(
					mpi, mpi->entries[i].bounce);
			batoni_mpi_untrack(mpi, i);
			body->active--;
		}
	}
	return BATON_PENDING;
}

/* Send what is in a bounce buffer, which it has until it has left. */
static inline enum baton_status
send_bounce(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
            struct batoni_mpi_body *body, uint32_t bounce, size_t bytes, int tag)
{
	int code = batoni_mpi_isend(mpi, batoni_mpi_bounce(mpi, bounce),
	                            (int)bytes, body->peer, tag);

	if (code != MPI_SUCCESS) {
		batoni_mpi_bounce_return(mpi, bounce);
		return batoni_mpi_fail(mpi, transfer, "MPI_Isend", code, NULL);
	}
	batoni_mpi_track(mpi, transfer, BATONI_MPI_HEADER, bounce);
	body->active++;
	return BATON_PENDING;
}

/* Send a header or a grant. */
static inline enum baton_status
send_small(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body, const void *content, size_t bytes,
           int tag)
{
	uint32_t bounce = batoni_mpi_bounce_take(mpi);

	memcpy(batoni_mpi_bounce(mpi, bounce), content, bytes);
	return send_bounce(mpi, transfer, body, bounce, bytes, tag);
}

static enum baton_status
send_header(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
            struct batoni_mpi_body *body)
{
	bool waits = body->waiting;
	struct batoni_mpi_header header;

	batoni_mpi_header_make(&header,
	                       waits ? BATONI_MPI_HEADER_WAITS
	                             : BATONI_MPI_HEADER_BODY,
	                       body->length,
	                       waits ? transfer->slot : (uint32_t)body->tag);
	if (batoni_mpi_has_type(mpi, transfer->tag))
		header.type = (uint32_t)transfer->type + 1;
	return send_small(mpi, transfer, body, &header, BATONI_MPI_HEADER_BYTES,
	                  transfer->tag);
}

/* The receives of the body are posted.  The sender may start it. */
static __attribute__((noinline)) enum baton_status
send_grant(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body, uint32_t slot)
{
	struct batoni_mpi_grant grant = {.slot = slot, .tag = (uint32_t)body->tag};

	return send_small(mpi, transfer, body, &grant, sizeof(grant),
	                  mpi->grant_tag);
}

/* The first part of a list, from a bounce buffer. */
static __attribute__((noinline)) enum baton_status
send_list_first(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                struct batoni_mpi_body *body)
{
	uint32_t bounce = batoni_mpi_bounce_take(mpi);
	size_t n = batoni_mpi_list_first(body, transfer,
	                                 batoni_mpi_bounce(mpi, bounce));

	return send_bounce(mpi, transfer, body, bounce, n, transfer->tag);
}

enum baton_status
batoni_mpi_body_send(struct batoni_mpi *mpi, struct batoni_transfer *transfer)
{
	struct batoni_mpi_body *body = &mpi->bodies[transfer->slot];
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	uint32_t first = mpi->count;
	enum baton_status status;

	body->peer = transfer->peer;
	body->length = transfer->bytes;
	body->posted = 0;
	body->active = 0;
	body->pieces = 0;
	body->buffer = NULL;
	body->verdict = BATON_OK;
	body->tag = 0;
	if (__builtin_expect(list != NULL, 0))
		batoni_mpi_list_plan(mpi, body, list);
	if (!list || body->pieces > 0)
		body->tag = take_tag(mpi, transfer->peer);
	if (__builtin_expect(body->tag < 0, 0)) {
		body->waiting = transfer;
		mpi->waiting++;
	}
	status = list ? send_list_first(mpi, transfer, body)
	              : send_header(mpi, transfer, body);
	if (status == BATON_PENDING && !body->waiting)
		status = post_pieces(mpi, transfer, body);
	/* A long body is not complete yet, and the test might copy much of it.  If there is
	 * more to post, a request must remain for the next test to find. */
	if (status == BATON_PENDING)
		status = test_started(mpi, transfer, body, first,
		                      body->length <= EAGER_MAX &&
		                                      body->pieces == 0
		                              ? mpi->count
		                              : first + 1);
	if (status == BATON_PENDING && !body->waiting)
		status = outcome(mpi, body, transfer);
	mpi->base.messages.load.moving += status == BATON_PENDING;
	return status;
}

/* Returns the tags of bodies that need no grant. */
static struct batoni_mpi_range
segments_of(const struct batoni_mpi *mpi)
{
	uint32_t first = (uint32_t)mpi->body_tag_base;

	return (struct batoni_mpi_range){
		first, first + BATONI_MPI_SEGMENTS * mpi->segment_tags};
}

enum baton_status
batoni_mpi_refuse_header(struct batoni_mpi *mpi,
                         struct batoni_transfer *transfer)
{
	return batoni_mpi_fail(
		mpi, transfer, "MPI_Irecv", MPI_ERR_OTHER,
		"a message's header is not of this version of Baton: "
		"the ranks run different versions");
}

static inline void
begin_recv(struct batoni_mpi_body *body, const struct batoni_mpi_header *header,
           int source)
{
	body->peer = source;
	body->length = header->length;
	body->posted = 0;
	body->active = 0;
	body->pieces = 0;
	body->is_short = false;
	body->buffer = NULL;
	body->tag_given_back = false;
	body->verdict = BATON_OK;
	body->tag = (int)header->body_tag;
}

/* It is known what is to come: post its receives. */
static inline enum baton_status
receive_body(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
             struct batoni_mpi_body *body, bool waits)
{
	uint32_t first = mpi->count, slot = (uint32_t)body->tag;
	enum baton_status status;

	if (__builtin_expect(waits, 0)) {
		body->tag = mpi->granted_tag + (int)transfer->slot;
		status = send_grant(mpi, transfer, body, slot);
		return status == BATON_PENDING
		               ? post_pieces(mpi, transfer, body)
		               : status;
	}
	status = post_pieces(mpi, transfer, body);
	/* Not if there is more to post, or a list to be checked: a request must remain for
	 * the next test to find, and three pieces are too much to copy at once. */
	if (status == BATON_PENDING && body->length <= BATONI_MPI_PIECE_BYTES &&
	    body->pieces == 0 && body->verdict != BATON_PENDING)
		status = test_started(mpi, transfer, body, first, mpi->count);
	return status == BATON_PENDING ? outcome(mpi, body, transfer) : status;
}

enum baton_status
batoni_mpi_body_recv(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                     const void *bytes, int source)
{
	struct batoni_mpi_body *body = &mpi->bodies[transfer->slot];
	struct batoni_mpi_header header;

	if (__builtin_expect(!batoni_mpi_header_decode(bytes,
	                                               BATONI_MPI_HEADER_BYTES,
	                                               segments_of(mpi), &header) ||
	                             (header.type > 0) !=
	                                     batoni_mpi_has_type(mpi, transfer->tag),
	                     0))
		return batoni_mpi_refuse_header(mpi, transfer);
	begin_recv(body, &header, source);
	body->verdict = batoni_transfer_meet_plain(transfer, header.length,
	                                           (int)header.type - 1);
	return receive_body(mpi, transfer, body,
	                    header.kind == BATONI_MPI_HEADER_WAITS);
}

bool
batoni_mpi_describe_first(const struct batoni_mpi *mpi, const unsigned char *bytes,
                          size_t n, struct batoni_held *held_p)
{
	struct batoni_mpi_header header;
	size_t described;

	if (n == BATONI_MPI_HEADER_BYTES) {
		if (!batoni_mpi_header_decode(bytes, n, segments_of(mpi), &header))
			return false;
		*held_p = (struct batoni_held){.bytes = (size_t)header.length};
		return true;
	}
	if (!batoni_mpi_list_decode(bytes, n, segments_of(mpi), &header, &described))
		return false;
	bytes += batoni_mpi_list_front(header.kind);
	*held_p = (struct batoni_held){
		.bytes = (size_t)header.length,
		.list = true,
		.tensors = batoni_tensors_stated_count(bytes),
	};
	return true;
}

enum baton_status
batoni_mpi_list_recv(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                     const unsigned char *bytes, size_t n, int source)
{
	struct batoni_mpi_body *body = &mpi->bodies[transfer->slot];
	struct batoni_mpi_header header;
	size_t described;

	if (!batoni_mpi_list_decode(bytes, n, segments_of(mpi), &header,
	                            &described))
		return batoni_mpi_refuse_header(mpi, transfer);
	begin_recv(body, &header, source);
	body->posted = body->length;
	body->pieces = header.pieces;
	if (!batoni_mpi_list_came(mpi, body, transfer,
	                          bytes + batoni_mpi_list_front(header.kind),
	                          described))
		return batoni_mpi_refuse_header(mpi, transfer);
	if (header.kind == BATONI_MPI_HEADER_LIST) {
		batoni_transfer_arrived(transfer, body->verdict, body->length);
		return body->verdict;
	}
	return receive_body(mpi, transfer, body,
	                    header.kind == BATONI_MPI_HEADER_LIST_WAITS);
}

enum baton_status
batoni_mpi_body_step(struct batoni_mpi *mpi, struct batoni_transfer *transfer)
{
	struct batoni_mpi_body *body = &mpi->bodies[transfer->slot];
	enum baton_status status;

	body->active--;
	if (__builtin_expect(body->waiting != NULL, 0))
		return BATON_PENDING; /* that was the header */
	if (__builtin_expect(body->verdict == BATON_PENDING && body->active == 0,
	                     0) &&
	    !batoni_mpi_list_described(mpi, body, transfer))
		return batoni_mpi_refuse_header(mpi, transfer);
	status = post_pieces(mpi, transfer, body);
	return status == BATON_PENDING ? outcome(mpi, body, transfer) : status;
}

/* A peer has granted this. */
static void
start_granted(struct batoni_mpi *mpi, const struct batoni_mpi_grant *grant,
              int peer)
{
	struct batoni_transfer *transfer;
	struct batoni_mpi_body *body;
	enum baton_status status;

	body = &mpi->bodies[grant->slot];
	transfer = body->waiting;
	/* If no such transfer is there, the send has failed. */
	if (!transfer || transfer->peer != peer)
		return;
	batoni_mpi_body_forget(mpi, transfer);
	body->tag = (int)grant->tag;
	status = post_pieces(mpi, transfer, body);
	/* A list without bytes may consist of its header alone. */
	if (status == BATON_PENDING)
		status = outcome(mpi, body, transfer);
	if (status == BATON_PENDING)
		return;
	mpi->base.messages.load.moving--;
	mpi->base.messages.load.in_flight--;
	mpi->base.upcalls->done(mpi->base.upcalls, transfer, status);
}

static void
heard_grant(struct batoni_mpi *mpi, const void *bytes, size_t length, int peer)
{
	const struct batoni_mpi_range slots = {0, mpi->base.slots};
	const struct batoni_mpi_range tags = {(uint32_t)mpi->granted_tag,
	                                      (uint32_t)mpi->release_tag};
	struct batoni_mpi_grant grant;
	char text[80];

	if (batoni_mpi_grant_decode(bytes, length, tags, slots, &grant)) {
		start_granted(mpi, &grant, peer);
		return;
	}
	/* The peer's message would never come. */
	snprintf(text, sizeof(text), "what rank %d sent is no grant", peer);
	batoni_mpi_break_saying(mpi, "MPI_Recv", text);
}

size_t
batoni_mpi_body_granted(struct batoni_mpi *mpi)
{
	unsigned char grant[sizeof(struct batoni_mpi_grant)];
	size_t events;
	int source;

	for (events = 0; events < GRANTS_MAX && mpi->waiting; events++) {
		if (!recv_control(mpi, MPI_ANY_SOURCE, mpi->grant_tag, grant,
		                  (int)sizeof(grant), "grant", &source))
			break;
		heard_grant(mpi, grant, sizeof(grant), source);
	}
	return events;
}
