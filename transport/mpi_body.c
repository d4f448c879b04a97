/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages in two parts.
 *
 * Why: Open MPI 4.1 and 5.0 write past the end of a receive that is too short,
 * from 4 KiB up between processes of one machine.  A receiver must therefore
 * know a long message's length before it posts the receive for it.
 *
 * The header goes on the user's tag, where it keeps the message's place in the
 * order; the body goes on a tag that no other body to this peer has.  So headers
 * may be looked at in any order, and a body needs no order but that of its own
 * pieces.  Both are sent at issue: the body of a message that MPI sends eagerly
 * is there before the header has been looked at.
 *
 * Body tags are used again after body_tag_mask + 1 bodies to the same peer (2^30
 * on Open MPI): a header that is left unreceived while that many others are sent
 * to the same rank would be mistaken for a later one.
 *
 * A body that does not fit is drained piece by piece into one room for the whole
 * process, which several drains may overwrite at a time: nobody reads it.  A
 * body that is announced is always received, also when its receive has ended
 * early meanwhile (the engine calls it lent), or the sender would wait for ever.
 */
#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "mpi_transport.h"

#define MAGIC 0x6e746162u /* "batn", or "ntab" from the other byte order */
/* Below Open MPI's 4 KiB with room for its own header. */
#define EAGER_PIECE_BYTES ((size_t)3584)
/* Bodies this short may be complete as soon as they are sent. */
#define EAGER_MAX ((size_t)16 << 10)

struct header {
	uint32_t magic;
	uint16_t version;
	uint16_t kind; /* HEADER_BODY */
	uint64_t length;
	uint32_t body_tag;
	unsigned char spare[44]; /* zero; for a description of the content */
};

#define HEADER_BODY 1u

static_assert(sizeof(struct header) >= BATONI_MPI_HEADER_BYTES &&
                      offsetof(struct header, spare) <
                              BATONI_MPI_HEADER_BYTES,
              "what a header says is within the bytes that travel");

static pthread_mutex_t drain_lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by drain_lock until it is set, constant then. */
static void *drain_room;

/* Address space alone: pages come with the first drain. */
enum baton_status
batoni_mpi_drain_reserve(void)
{
	void *room;

	pthread_mutex_lock(&drain_lock);
	if (!drain_room) {
		room = mmap(NULL, BATONI_MPI_PIECE_BYTES,
		            PROT_READ | PROT_WRITE,
		            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (room != MAP_FAILED)
			drain_room = room;
	}
	room = drain_room;
	pthread_mutex_unlock(&drain_lock);
	return room ? BATON_OK : BATON_ERR_NOMEM;
}

/* Both sides cut alike: it is part of the wire format.  A short body goes in two
 * halves that MPI sends eagerly, where Open MPI would have a whole one fetched by
 * a system call: 0.6 against 2.4 us at 4 KiB. */
static inline size_t
piece_bytes(size_t length)
{
	return length <= 2 * EAGER_PIECE_BYTES ? EAGER_PIECE_BYTES
	                                       : BATONI_MPI_PIECE_BYTES;
}

/* Hand MPI as much of the body as it may have. */
static enum baton_status
post_pieces(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
            struct batoni_mpi_body *body)
{
	bool send = transfer->direction == BATONI_SEND;
	size_t most = piece_bytes(body->length);

	while (body->posted < body->length &&
	       body->active < BATONI_MPI_ACTIVE_MAX) {
		char *piece = (char *)transfer->buffer + body->posted;
		size_t bytes = body->length - body->posted;
		MPI_Request *request = &mpi->requests[mpi->count];
		int code;

		if (bytes > most)
			bytes = most;
		if (send)
			code = MPI_Isend(piece, (int)bytes, MPI_BYTE,
			                 transfer->peer, body->tag, mpi->comm,
			                 request);
		else
			code = MPI_Irecv(body->drained ? drain_room : piece,
			                 (int)bytes, MPI_BYTE, transfer->peer,
			                 body->tag, mpi->comm, request);
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
outcome(const struct batoni_mpi_body *body, struct batoni_transfer *transfer)
{
	if (body->active || body->posted < body->length)
		return BATON_PENDING;
	batoni_transfer_moved(transfer, body->length);
	return body->drained ? BATON_ERR_TRUNCATED : BATON_OK;
}

/* Ask once for each request from the first of these on, all just started: short
 * ones are complete at once.  As in mpi.c, MPI is not asked about a send whose handle
 * says that it is not complete. */
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

/* The header's bytes are in a bounce buffer until it has left. */
static enum baton_status
send_header(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
            struct batoni_mpi_body *body)
{
	struct header header = {
		.magic = MAGIC,
		.version = BATONI_MPI_WIRE_VERSION,
		.kind = HEADER_BODY,
		.length = body->length,
		.body_tag = (uint32_t)body->tag,
	};
	uint32_t bounce = batoni_mpi_bounce_take(mpi);
	unsigned char *bytes = batoni_mpi_bounce(mpi, bounce);
	int code;

	memcpy(bytes, &header, BATONI_MPI_HEADER_BYTES);
	code = MPI_Isend(bytes, BATONI_MPI_HEADER_BYTES, MPI_BYTE,
	                 transfer->peer, transfer->tag, mpi->comm,
	                 &mpi->requests[mpi->count]);
	if (code != MPI_SUCCESS) {
		batoni_mpi_bounce_return(mpi, bounce);
		return batoni_mpi_fail(mpi, transfer, "MPI_Isend", code, NULL);
	}
	batoni_mpi_track(mpi, transfer, BATONI_MPI_HEADER, bounce);
	body->active++;
	return BATON_PENDING;
}

enum baton_status
batoni_mpi_body_send(struct batoni_mpi *mpi, struct batoni_transfer *transfer)
{
	struct batoni_mpi_body *body = &mpi->bodies[transfer->slot];
	uint32_t sequence = mpi->sequences[transfer->peer]++;
	uint32_t first = mpi->count;
	enum baton_status status;

	body->length = transfer->bytes;
	body->posted = 0;
	body->active = 0;
	body->drained = false;
	body->tag = mpi->body_tag_base + (int)(sequence & mpi->body_tag_mask);
	status = send_header(mpi, transfer, body);
	if (status == BATON_PENDING)
		status = post_pieces(mpi, transfer, body);
	/* A long body is never complete yet, and the test might copy much. */
	if (status == BATON_PENDING)
		status = test_started(mpi, transfer, body, first,
		                      body->length <= EAGER_MAX ? mpi->count
		                                                : first + 1);
	if (status == BATON_PENDING)
		status = outcome(body, transfer);
	mpi->base.moving += status == BATON_PENDING;
	return status;
}

enum baton_status
batoni_mpi_body_recv(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                     const void *bytes)
{
	struct batoni_mpi_body *body = &mpi->bodies[transfer->slot];
	uint32_t first = mpi->count;
	struct header header = {0};
	enum baton_status status;

	memcpy(&header, bytes, BATONI_MPI_HEADER_BYTES);
	if (header.magic != MAGIC || header.version != BATONI_MPI_WIRE_VERSION ||
	    header.kind != HEADER_BODY)
		return batoni_mpi_fail(
			mpi, transfer, "MPI_Irecv", MPI_ERR_OTHER,
			"a message's header is not of this version of Baton: "
			"the ranks run different versions");
	body->length = header.length;
	body->posted = 0;
	body->active = 0;
	body->drained = header.length > transfer->bytes;
	body->tag = (int)header.body_tag;
	status = post_pieces(mpi, transfer, body);
	/* Not where there is more to post, since a request must remain for the
	 * next test to find; and three pieces are much to copy at once. */
	if (status == BATON_PENDING && body->length <= BATONI_MPI_PIECE_BYTES)
		status = test_started(mpi, transfer, body, first, mpi->count);
	return status == BATON_PENDING ? outcome(body, transfer) : status;
}

enum baton_status
batoni_mpi_body_step(struct batoni_mpi *mpi, struct batoni_transfer *transfer)
{
	struct batoni_mpi_body *body = &mpi->bodies[transfer->slot];
	enum baton_status status;

	body->active--;
	status = post_pieces(mpi, transfer, body);
	return status == BATON_PENDING ? outcome(body, transfer) : status;
}
