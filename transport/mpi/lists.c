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
 * The payload is cut by its tensors (batoni_list_next_piece with the numbers below, which
 * are part of the wire format).  A long tensor goes in messages of its own, from where it lies
 * to where it is to be.  Short ones go together as one message of a derived type, so that
 * MPI gathers and scatters them, and Baton copies nothing.  The header says how many messages
 * the body has; so a receive that does not agree can drain them without knowing the list.
 *
 * A receive that needs the rest of the list's header posts nothing else before it has come.
 *
 * Where some rank gives MPI memory of a device (mpi->apart, on all ranks), each tensor that has bytes
 * is a message of its own, and no payload is in a first part: MPI gets nothing but pointers to bytes
 * that lie together, since what it makes of a derived type of several memories is its own affair, and
 * the host may not copy them.
 *
 * Threads: the driver alone.
 */
#include <string.h>

#include "mpi_transport.h"
#include "tensors.h"

#define PARTS_MAX 256u
static const struct batoni_list_cut cut = {
	.alone = (size_t)128 << 10,
	.together = (size_t)1 << 20,
	.most = BATONI_MPI_PIECE_BYTES,
	.parts_max = PARTS_MAX,
};
static const struct batoni_list_cut cut_apart = {
	.alone = 1,
	.together = 1,
	.most = BATONI_MPI_PIECE_BYTES,
	.parts_max = 1,
};

static_assert(offsetof(struct batoni_mpi_header, spare) <=
                              BATONI_MPI_HEADER_BYTES &&
                      BATONI_MPI_HEADER_BYTES + BATONI_MPI_LIST_ROOM <=
                              BATONI_MPI_RAW_MAX,
              "a first part fits in a bounce buffer");
static_assert(BATONI_TENSORS_HEADER_MAX <= BATONI_MPI_PIECE_BYTES,
              "the rest of a header fits in the drain buffer");

static size_t
here(size_t described)
{
	return described < BATONI_MPI_LIST_ROOM ? described
	                                        : BATONI_MPI_LIST_ROOM;
}

static size_t
next_piece(const struct batoni_mpi *mpi, const struct batoni_tensor_list *list,
           struct batoni_list_place *place, struct batoni_segment *parts)
{
	return batoni_list_next_piece(list, mpi->apart ? &cut_apart : &cut,
	                              place, parts);
}

static uint32_t
count_pieces(const struct batoni_mpi *mpi, const struct batoni_tensor_list *list)
{
	struct batoni_list_place place = {0, 0};
	uint32_t n = 0;

	while (next_piece(mpi, list, &place, NULL) > 0)
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

/* ---- the first part ---- */

void
batoni_mpi_list_plan(const struct batoni_mpi *mpi, struct batoni_mpi_body *body,
                     const struct batoni_tensor_list *list)
{
	body->length = list->payload_bytes;
	body->posted = body->length;
	body->describing = false;
	body->place = (struct batoni_list_place){0, 0};
	body->rest = list->header_bytes - here(list->header_bytes);
	body->pieces = 0;
	if (!fits_in_first(mpi, list->header_bytes, list->payload_bytes))
		body->pieces = count_pieces(mpi, list) + (body->rest > 0);
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
	memcpy(at, &header, offsetof(struct batoni_mpi_header, spare));
	at += batoni_mpi_list_front(kind);
	memcpy(at, list->header, described);
	at += described;
	if (body->pieces == 0) {
		batoni_list_gather(list, at);
		at += list->payload_bytes;
	}
	n = batoni_mpi_list_part_bytes((size_t)(at - bytes));
	/* What is behind is sent too. */
	memset(at, 0, (size_t)(bytes + n - at));
	return n;
}

/* ---- a receive meets it ---- */

/* The list's header is there, whole.  False: the body is another than that of such a list. */
static bool
meet(const struct batoni_mpi *mpi, struct batoni_mpi_body *body, struct batoni_tensor_list *list,
     const unsigned char *header, size_t n)
{
	body->describing = false;
	body->verdict = batoni_list_meet(list, header, n);
	body->drained = body->verdict != BATON_OK;
	if (body->drained)
		return true;
	if (list->payload_bytes != body->length)
		return false;
	return body->pieces > 0 ? count_pieces(mpi, list) == body->pieces
	                        : !mpi->apart || body->length == 0;
}

bool
batoni_mpi_list_came(const struct batoni_mpi *mpi, struct batoni_mpi_body *body,
                     struct batoni_transfer *transfer,
                     const unsigned char *behind, size_t described)
{
	struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	bool whole = described <= BATONI_MPI_LIST_ROOM;

	body->place = (struct batoni_list_place){0, 0};
	body->rest = 0;
	body->drained = true;
	body->verdict = BATON_ERR_MISMATCH;
	if (!list)
		return true;
	if (described > list->header_max) {
		batoni_list_meet_long(list, batoni_tensors_stated_count(behind));
		return true;
	}
	if (!whole) {
		memcpy(list->header, behind, BATONI_MPI_LIST_ROOM);
		list->header_bytes = described;
		body->rest = described - BATONI_MPI_LIST_ROOM;
		body->describing = true;
		body->drained = false;
		body->verdict = BATON_OK;
		return true;
	}
	if (!meet(mpi, body, list, behind, described))
		return false;
	if (body->pieces == 0 && body->verdict == BATON_OK)
		batoni_list_scatter(list, behind + described);
	return true;
}

bool
batoni_mpi_list_described(const struct batoni_mpi *mpi,
                          struct batoni_mpi_body *body,
                          struct batoni_transfer *transfer)
{
	struct batoni_tensor_list *list = batoni_transfer_list(transfer);

	return meet(mpi, body, list, list->header, list->header_bytes) &&
	       (body->drained || count_pieces(mpi, list) == body->pieces);
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

/* One message, of bytes that lie together. */
static enum baton_status
post_plain(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body, void *data, size_t bytes)
{
	int code;

	if (transfer->direction == BATONI_SEND)
		code = batoni_mpi_isend(mpi, data, (int)bytes, body->peer,
		                        body->tag);
	else
		code = MPI_Irecv(data, (int)bytes, MPI_BYTE, body->peer,
		                 body->tag, mpi->comm,
		                 &mpi->requests[mpi->count]);
	return started(mpi, transfer, body, code);
}

/* One message, of several parts. */
static enum baton_status
post_parts(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body, const struct batoni_segment *parts,
           size_t n)
{
	MPI_Request *request = &mpi->requests[mpi->count];
	MPI_Aint places[PARTS_MAX];
	int lengths[PARTS_MAX];
	MPI_Datatype type = MPI_DATATYPE_NULL;
	int code;

	for (size_t i = 0; i < n; i++) {
		MPI_Get_address(parts[i].data, &places[i]);
		lengths[i] = (int)parts[i].bytes;
	}
	code = MPI_Type_create_hindexed((int)n, lengths, places, MPI_BYTE,
	                                &type);
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
		code = MPI_Irecv(MPI_BOTTOM, 1, type, body->peer, body->tag,
		                 mpi->comm, request);
	}
	/* MPI keeps it for as long as it needs it. */
	MPI_Type_free(&type);
	return started(mpi, transfer, body, code);
}

/* The next message of the payload. */
static enum baton_status
post_piece(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           struct batoni_mpi_body *body)
{
	struct batoni_segment parts[PARTS_MAX];
	size_t n;

	if (body->drained)
		return post_plain(mpi, transfer, body, batoni_mpi_drain(),
		                  BATONI_MPI_PIECE_BYTES);
	n = next_piece(mpi, batoni_transfer_list(transfer), &body->place, parts);
	assert(n > 0);
	return n == 1 ? post_plain(mpi, transfer, body, parts[0].data,
	                           parts[0].bytes)
	              : post_parts(mpi, transfer, body, parts, n);
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
		} else if (body->describing) {
			break;
		} else {
			status = post_piece(mpi, transfer, body);
		}
	}
	return status;
}
