/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that are lists of tensors (tensor_list.h).
 *
 * On the wire.  The first part goes on the user's tag: what it needs of one of this transport's
 * headers, and behind that the list's own.  Its length is 61 more than a multiple of 64, which no
 * raw message has.  If the payload has room there too, that is all: one message of at most 2045
 * bytes, of which 16 are this transport's.
 * Otherwise there is a body, on a tag as any body has (body.c).  It begins with what
 * did not fit of the list's header, in one message; then comes the payload.
 *
 * A short payload, of SHORT_MAX bytes at most, is cut into messages that MPI sends eagerly,
 * wherever its tensors begin and end.
 * A longer one is cut by its tensors (batoni_cursor_next_piece with the numbers below, which
 * are part of the wire format).  A long tensor goes in messages of its own, from where it lies
 * to where it is to be.  Short ones go together as one message of a derived type, so that
 * MPI gathers and scatters them, and Baton copies nothing.  The header says how many messages
 * the body has; so a receive that does not agree can drain them without knowing the list.
 *
 * Each side chooses how it handles the messages of a short payload, since the bytes on the wire
 * are the same:
 * - If all of it lies together, from there.
 * - Else through a buffer.  The sender copies the payload into it, the receiver copies it out when
 *   all of it has come.  That costs less than derived types: MPI makes one for each message, and
 *   moves it piece by piece.
 * - If no buffer is free, by a derived type for each message.
 *
 * Buffers.  A communicator has BUFFERS of them, mapped at its creation; only those that are used
 * have memory, and the first that is free is taken.  A body owns its buffer from its first
 * message on, which for a send that waits is after its grant, until the transfer ends.  It
 * keeps it also while the program takes the transfer for ended (canceled or timed out): the
 * tensors are LENT as with any other body, because a receive copies into them yet.  A transfer
 * that fails keeps its buffer for good, since MPI may still use it; the transport is broken
 * then, and its buffers stay mapped.
 *
 * A receive that does not agree has no buffer, and writes nothing to its tensors.  One that
 * needs the rest of the list's header posts nothing else before it has come.
 *
 * Where some rank gives MPI memory of a device (mpi->apart, on all ranks), each tensor that has bytes
 * is a message of its own, and no payload is in a first part: MPI gets nothing but pointers to bytes
 * that lie together, since what it makes of a derived type of several memories is its own affair, and
 * the host may not copy them.  No payload is short there, and there are no buffers.
 *
 * Threads: the driver alone.
 */
#include <string.h>
#include <sys/mman.h>

#include "mpi_transport.h"
#include "tensors.h"

#define PARTS_MAX 256u
#define SHORT_MAX (4 * BATONI_MPI_EAGER_BYTES) /* no call copies more than 16 KiB */
#define BUFFERS 64u /* the bits of free_buffers */
static const struct batoni_tensor_list_cut cut = {
	.alone = (size_t)128 << 10,
	.together = (size_t)1 << 20,
	.most = BATONI_MPI_PIECE_BYTES,
	.parts_max = PARTS_MAX,
};
static const struct batoni_tensor_list_cut cut_apart = {
	.alone = 1,
	.together = 1,
	.most = BATONI_MPI_PIECE_BYTES,
	.parts_max = 1,
};

static_assert(offsetof(struct batoni_mpi_header, type) <=
                              BATONI_MPI_HEADER_BYTES &&
                      BATONI_MPI_HEADER_BYTES + BATONI_MPI_LIST_ROOM <=
                              BATONI_MPI_RAW_MAX,
              "a first part fits in a bounce buffer");
static_assert(BATONI_TENSORS_HEADER_MAX <= BATONI_MPI_PIECE_BYTES,
              "the rest of a header fits in the drain buffer");

/* What the derived type of one message consists of, while it is made: any of a short list's has
 * as many parts as the list has tensors, at most. */
struct batoni_mpi_parts {
	MPI_Aint displacements[BATON_TENSORS_MAX];
	int lengths[BATON_TENSORS_MAX];
};

/* Mapped together. */
struct batoni_mpi_buffers {
	unsigned char bytes[BUFFERS][SHORT_MAX];
	struct batoni_mpi_parts parts;
};

/* ---- buffers ---- */

enum baton_status
batoni_mpi_list_alloc(struct batoni_mpi *mpi)
{
	void *memory = mmap(NULL, sizeof(struct batoni_mpi_buffers),
	                    PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return BATON_ERR_NOMEM;
	mpi->buffers = memory;
	mpi->free_buffers = UINT64_MAX;
	return BATON_OK;
}

void
batoni_mpi_list_free(struct batoni_mpi *mpi)
{
	if (mpi->buffers && mpi->free_buffers == UINT64_MAX)
		munmap(mpi->buffers, sizeof(struct batoni_mpi_buffers));
}

static unsigned char *
take_buffer(struct batoni_mpi *mpi)
{
	unsigned first;

	if (mpi->free_buffers == 0)
		return NULL;
	first = (unsigned)__builtin_ctzll(mpi->free_buffers);
	mpi->free_buffers &= mpi->free_buffers - 1;
	return mpi->buffers->bytes[first];
}

static void
return_buffer(struct batoni_mpi *mpi, const unsigned char *buffer)
{
	size_t at = (size_t)(buffer - mpi->buffers->bytes[0]);

	mpi->free_buffers |= UINT64_C(1) << at / SHORT_MAX;
}

/* ---- the cut ---- */

static size_t
here(size_t described)
{
	return described < BATONI_MPI_LIST_ROOM ? described
	                                        : BATONI_MPI_LIST_ROOM;
}

static size_t
next_piece(const struct batoni_mpi *mpi, const struct batoni_tensor_list *list,
           struct batoni_tensor_list_cursor *cursor, struct batoni_segment *parts)
{
	return batoni_cursor_next_piece(list, mpi->apart ? &cut_apart : &cut,
	                                cursor, parts);
}

static bool
is_short(const struct batoni_mpi *mpi, const struct batoni_tensor_list *list)
{
	return !mpi->apart && list->payload_bytes <= SHORT_MAX;
}

static uint32_t
count_pieces(const struct batoni_mpi *mpi, const struct batoni_tensor_list *list)
{
	struct batoni_tensor_list_cursor cursor = {0, 0};
	uint32_t n = 0;

	if (is_short(mpi, list))
		return (uint32_t)((list->payload_bytes +
		                   BATONI_MPI_EAGER_BYTES - 1) /
		                  BATONI_MPI_EAGER_BYTES);
	while (next_piece(mpi, list, &cursor, NULL) > 0)
		n++;
	return n;
}

/* Has a payload of so many bytes room in the first part, behind the list's header? */
static bool
fits_in_first(const struct batoni_mpi *mpi, size_t described, size_t payload)
{
	if (mpi->apart && payload > 0)
		return false;
	return payload <= BATONI_MPI_LIST_ROOM &&
	       described + payload <= BATONI_MPI_LIST_ROOM;
}

/* The list has a body, and all of its header is known. */
static void
begin_payload(const struct batoni_mpi *mpi, struct batoni_mpi_body *body,
              const struct batoni_tensor_list *list)
{
	body->is_short = is_short(mpi, list);
	if (body->is_short)
		body->posted = 0;
}

/* ---- the first part ---- */

void
batoni_mpi_list_plan(const struct batoni_mpi *mpi, struct batoni_mpi_body *body,
                     const struct batoni_tensor_list *list)
{
	body->length = list->payload_bytes;
	body->posted = body->length;
	body->cursor = (struct batoni_tensor_list_cursor){0, 0};
	body->rest = list->header_bytes - here(list->header_bytes);
	body->pieces = 0;
	if (fits_in_first(mpi, list->header_bytes, list->payload_bytes))
		return;
	body->pieces = count_pieces(mpi, list) + (body->rest > 0);
	begin_payload(mpi, body, list);
}

size_t
batoni_mpi_list_first(const struct batoni_mpi_body *body,
                      const struct batoni_transfer *transfer,
                      unsigned char *bytes)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	size_t described = here(list->header_bytes);
	unsigned kind = BATONI_MPI_HEADER_LIST;
	struct batoni_mpi_header header;
	unsigned char *at = bytes;
	size_t n;

	if (body->pieces > 0)
		kind = body->waiting ? BATONI_MPI_HEADER_LIST_WAITS
		                     : BATONI_MPI_HEADER_LIST_BODY;
	batoni_mpi_header_make(&header, kind, body->length,
	                       body->waiting ? transfer->slot
	                                     : (uint32_t)body->tag);
	header.pieces = body->pieces;
	memcpy(at, &header, offsetof(struct batoni_mpi_header, type));
	at += batoni_mpi_list_front(kind);
	memcpy(at, list->header, described);
	at += described;
	if (body->pieces == 0) {
		batoni_tensor_list_gather(list, at);
		at += list->payload_bytes;
	}
	n = batoni_mpi_list_part_bytes((size_t)(at - bytes));
	/* The bytes behind the header are sent too. */
	memset(at, 0, (size_t)(bytes + n - at));
	return n;
}

/* ---- a receive meets it ---- */

/* The receive meets the list, of whose header so much is there.  False: what has come
 * contradicts itself, or the body is another than that of such a list. */
static bool
meet_list_header(const struct batoni_mpi *mpi, struct batoni_mpi_body *body,
                 struct batoni_transfer *transfer, const unsigned char *header,
                 size_t there, size_t whole)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);

	body->verdict = batoni_transfer_meet_list(transfer, header, there, whole,
	                                          body->length);
	if (body->verdict == BATON_ERR_PEER)
		return false;
	if (body->verdict != BATON_OK)
		return true;
	if (body->pieces == 0)
		return !mpi->apart || body->length == 0;
	begin_payload(mpi, body, list);
	return count_pieces(mpi, list) == body->pieces;
}

bool
batoni_mpi_list_came(const struct batoni_mpi *mpi, struct batoni_mpi_body *body,
                     struct batoni_transfer *transfer,
                     const unsigned char *behind, size_t described)
{
	size_t there = here(described);

	body->cursor = (struct batoni_tensor_list_cursor){0, 0};
	body->rest = 0;
	if (!meet_list_header(mpi, body, transfer, behind, there, described))
		return false;
	if (body->verdict == BATON_PENDING)
		body->rest = described - there;
	else if (body->pieces == 0 && body->verdict == BATON_OK)
		batoni_tensor_list_scatter(batoni_transfer_list(transfer),
		                           behind + described);
	return true;
}

bool
batoni_mpi_list_described(const struct batoni_mpi *mpi,
                          struct batoni_mpi_body *body,
                          struct batoni_transfer *transfer)
{
	struct batoni_tensor_list *list = batoni_transfer_list(transfer);

	return meet_list_header(mpi, body, transfer, list->header, list->header_bytes,
	                        list->header_bytes) &&
	       (body->verdict != BATON_OK ||
	        count_pieces(mpi, list) == body->pieces);
}

/* ---- the body ---- */

static enum baton_status
started(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
        struct batoni_mpi_body *body, int code)
{
	bool send = transfer->direction == BATONI_SEND;

	if (code != MPI_SUCCESS)
		return batoni_mpi_fail(mpi, transfer,
		                       send ? "MPI_Isend" : "MPI_Irecv", code,
		                       NULL);
	batoni_mpi_track(mpi, transfer, BATONI_MPI_PIECE, 0);
	body->active++;
	body->pieces--;
	return BATON_PENDING;
}

/* Start one message of bytes that lie together. */
static enum baton_status
post_plain(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body, void *data, size_t bytes)
{
	int code;

	if (transfer->direction == BATONI_SEND)
		code = batoni_mpi_isend(mpi, data, (int)bytes, body->peer,
		                        body->tag);
	else
		code = batoni_mpi_irecv(mpi, data, (int)bytes, MPI_BYTE,
		                        body->peer, body->tag);
	return started(mpi, transfer, body, code);
}

static void
note_part(struct batoni_mpi *mpi, size_t i, struct batoni_segment part)
{
	struct batoni_mpi_parts *parts = &mpi->buffers->parts;

	MPI_Get_address(part.data, &parts->displacements[i]);
	parts->lengths[i] = (int)part.bytes;
}

/* Start one message of the n parts that were collected. */
static enum baton_status
post_parts(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body, size_t n)
{
	const struct batoni_mpi_parts *parts = &mpi->buffers->parts;
	MPI_Request *request = &mpi->requests[mpi->count];
	MPI_Datatype type = MPI_DATATYPE_NULL;
	int code;

	code = MPI_Type_create_hindexed((int)n, parts->lengths, parts->displacements,
	                                MPI_BYTE, &type);
	if (code == MPI_SUCCESS)
		code = MPI_Type_commit(&type);
	if (code != MPI_SUCCESS)
		return batoni_mpi_fail(mpi, transfer, "MPI_Type_create_hindexed",
		                       code, NULL);
	if (transfer->direction == BATONI_SEND) {
		code = MPI_Isend(MPI_BOTTOM, 1, type, body->peer, body->tag,
		                 mpi->comm, request);
		mpi->sent_to[body->peer] = true;
	} else {
		code = batoni_mpi_irecv(mpi, MPI_BOTTOM, 1, type, body->peer,
		                        body->tag);
	}
	/* MPI keeps the type for as long as it needs it. */
	MPI_Type_free(&type);
	return started(mpi, transfer, body, code);
}

/* The first message of a short payload is to be posted. */
static void
choose_buffer(struct batoni_mpi *mpi, const struct batoni_transfer *transfer,
              struct batoni_mpi_body *body)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	struct batoni_tensor_list_cursor cursor = body->cursor;

	if (batoni_cursor_peek(list, &cursor, body->length).bytes ==
	    body->length)
		return;
	body->buffer = take_buffer(mpi);
	if (body->buffer && transfer->direction == BATONI_SEND)
		batoni_tensor_list_gather(list, body->buffer);
}

/* Post the next message of a short payload. */
static enum baton_status
post_eager(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	size_t at = body->posted, n = 0;
	size_t bytes = body->length - body->posted;
	struct batoni_segment part;

	if (at == 0)
		choose_buffer(mpi, transfer, body);
	if (bytes > BATONI_MPI_EAGER_BYTES)
		bytes = BATONI_MPI_EAGER_BYTES;
	body->posted += bytes;
	if (body->buffer)
		return post_plain(mpi, transfer, body, body->buffer + at,
		                  bytes);
	for (; bytes > 0; bytes -= part.bytes) {
		part = batoni_cursor_next(list, &body->cursor, bytes);
		note_part(mpi, n++, part);
	}
	return n == 1 ? post_plain(mpi, transfer, body, part.data, part.bytes)
	              : post_parts(mpi, transfer, body, n);
}

void
batoni_mpi_list_end(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                    struct batoni_mpi_body *body)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);

	if (transfer->direction == BATONI_RECV)
		batoni_tensor_list_scatter(list, body->buffer);
	return_buffer(mpi, body->buffer);
	body->buffer = NULL;
}

/* Post the next message of the payload. */
static enum baton_status
post_piece(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body)
{
	struct batoni_segment parts[PARTS_MAX];
	size_t n;

	if (body->verdict != BATON_OK)
		return post_plain(mpi, transfer, body, batoni_mpi_drain(),
		                  BATONI_MPI_PIECE_BYTES);
	if (body->is_short)
		return post_eager(mpi, transfer, body);
	n = next_piece(mpi, batoni_transfer_list(transfer), &body->cursor, parts);
	assert(n > 0);
	for (size_t i = 0; n > 1 && i < n; i++)
		note_part(mpi, i, parts[i]);
	return n == 1 ? post_plain(mpi, transfer, body, parts[0].data,
	                           parts[0].bytes)
	              : post_parts(mpi, transfer, body, n);
}

enum baton_status
batoni_mpi_list_post(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                     struct batoni_mpi_body *body)
{
	enum baton_status status = BATON_PENDING;

	while (status == BATON_PENDING && body->pieces > 0 &&
	       body->active < BATONI_MPI_ACTIVE_MAX) {
		if (body->rest > 0) {
			struct batoni_tensor_list *list =
				batoni_transfer_list(transfer);
			size_t rest = body->rest;

			body->rest = 0;
			status = post_plain(mpi, transfer, body,
			                    list->header + BATONI_MPI_LIST_ROOM,
			                    rest);
		} else if (body->verdict == BATON_PENDING) {
			break;
		} else {
			status = post_piece(mpi, transfer, body);
		}
	}
	return status;
}
