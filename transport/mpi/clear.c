/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving the messages that no receive has matched, before the communicator is freed.
 *
 * Messages can be left over: what the program sent and did not receive, signals that
 * came when the receives for them had been taken back, and releases of segments of body
 * tags (body.c).  MPI may keep them when the communicator is freed.  MPICH gives the next
 * communicator the same context, so that its receives match them; or its MPI_Comm_free
 * notices them, and ends the job.
 *
 * When all ranks have left, each sends a *leave message*, an empty synchronous one, to every rank
 * that it has sent a message to.  Meanwhile it receives what comes, from any rank and on
 * any tag, and discards it.  Messages of one rank are received in the order in which they
 * were sent, so when its leave message has been received, nothing before it is left.  A rank
 * whose leave messages have all been received enters a barrier.  When that is complete, all
 * leave messages of all ranks have been received.
 *
 * Nothing is in flight meanwhile, so no receive is posted that could match a message, and
 * the table of requests is free for the leave messages.  What was left over is complete at its
 * sender: the receiver waits for no call of the program.
 *
 * Threads: the driver alone.
 */
#include <assert.h>
#include <stdio.h>

#include "mpi_transport.h"

/* How many messages one call discards. */
#define DISCARDS_MAX 64u
/* How many leave messages are at MPI at a time. */
#define LEAVE_MESSAGES_MAX BATONI_MPI_WINDOW

/* The message is too long for the drain buffer; no rank of Baton sends such a one. */
static enum baton_status
refuse_length(struct batoni_mpi *mpi, int peer, int bytes)
{
	char text[96];

	snprintf(text, sizeof(text),
	         "rank %d sent a message of %d bytes, and none has more than %zu",
	         peer, bytes, BATONI_MPI_PIECE_BYTES);
	return batoni_mpi_break_saying(mpi, "MPI_Iprobe", text);
}

/* Discard the first of the messages that were taken out of MPI's queue (kept.c). */
static enum baton_status
discard_kept(struct batoni_mpi *mpi)
{
	struct batoni_mpi_kept *kept = batoni_mpi_kept_of(mpi->kept.next);
	int bytes = kept->bytes, code;

	if (bytes < 0 || (size_t)bytes > BATONI_MPI_PIECE_BYTES)
		return refuse_length(mpi, kept->peer, bytes);
	code = batoni_mpi_kept_take(mpi, kept, batoni_mpi_drain(), bytes, MPI_BYTE,
	                            &mpi->discarded);
	return code == MPI_SUCCESS ? BATON_OK
	                           : batoni_mpi_break(mpi, "MPI_Imrecv", code);
}

/* Discard some of the messages that have come.  OK: no more of them were there. */
static enum baton_status
discard(struct batoni_mpi *mpi)
{
	enum baton_status status;
	int bytes, code, done;
	MPI_Status left;

	for (unsigned n = 0; n < DISCARDS_MAX; n++) {
		/* Done also where it is the null request. */
		code = MPI_Test(&mpi->discarded, &done, MPI_STATUS_IGNORE);
		if (code != MPI_SUCCESS)
			return batoni_mpi_break(mpi, "MPI_Test", code);
		if (!done)
			return BATON_PENDING;
		if (mpi->kept_n > 0) {
			status = discard_kept(mpi);
			if (status != BATON_OK)
				return status;
			continue;
		}
		code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->comm, &done,
		                  &left);
		if (code != MPI_SUCCESS)
			return batoni_mpi_break(mpi, "MPI_Iprobe", code);
		if (!done)
			return BATON_OK;
		/* A count that is no int is MPI_UNDEFINED. */
		MPI_Get_count(&left, MPI_BYTE, &bytes);
		if (bytes < 0 || (size_t)bytes > BATONI_MPI_PIECE_BYTES)
			return refuse_length(mpi, left.MPI_SOURCE, bytes);
		code = MPI_Irecv(batoni_mpi_drain(), bytes, MPI_BYTE,
		                 left.MPI_SOURCE, left.MPI_TAG, mpi->comm,
		                 &mpi->discarded);
		if (code != MPI_SUCCESS)
			return batoni_mpi_break(mpi, "MPI_Irecv", code);
	}
	return BATON_PENDING;
}

/* Send as many leave messages as may be at MPI.  OK: all have been sent. */
static enum baton_status
send_leave_messages(struct batoni_mpi *mpi)
{
	uint32_t most = mpi->base.slots * BATONI_MPI_ACTIVE_MAX;
	int code;

	if (most > LEAVE_MESSAGES_MAX)
		most = LEAVE_MESSAGES_MAX;
	for (; mpi->leave_next < mpi->base.size; mpi->leave_next++) {
		if (!mpi->sent_to[mpi->leave_next])
			continue;
		if (mpi->leave_messages == most)
			return BATON_PENDING;
		code = MPI_Issend(NULL, 0, MPI_BYTE, mpi->leave_next,
		                  mpi->leave_tag, mpi->comm,
		                  &mpi->requests[mpi->leave_messages]);
		if (code != MPI_SUCCESS)
			return batoni_mpi_break(mpi, "MPI_Issend", code);
		mpi->leave_messages++;
	}
	return BATON_OK;
}

/* OK: no leave message is at MPI any more. */
static enum baton_status
test_leave_messages(struct batoni_mpi *mpi)
{
	for (uint32_t i = mpi->leave_messages; i-- > 0;) {
		int done;
		int code = MPI_Test(&mpi->requests[i], &done, MPI_STATUS_IGNORE);

		if (code != MPI_SUCCESS)
			return batoni_mpi_break(mpi, "MPI_Test", code);
		if (done)
			mpi->requests[i] = mpi->requests[--mpi->leave_messages];
	}
	return mpi->leave_messages ? BATON_PENDING : BATON_OK;
}

static enum baton_status
exchange_leave_messages(struct batoni_mpi *mpi)
{
	enum baton_status status = send_leave_messages(mpi), tested;

	if (status == BATON_ERR_MPI)
		return status;
	tested = test_leave_messages(mpi);
	return tested == BATON_OK ? status : tested;
}

static enum baton_status
enter_barrier(struct batoni_mpi *mpi)
{
	int code = MPI_Ibarrier(mpi->comm, &mpi->exchange);

	if (code != MPI_SUCCESS)
		return batoni_mpi_break(mpi, "MPI_Ibarrier", code);
	mpi->exchanging = BATONI_MPI_CLEARING;
	return BATON_PENDING;
}

/* OK: it is complete. */
static enum baton_status
test_barrier(struct batoni_mpi *mpi)
{
	int done;
	int code = MPI_Test(&mpi->exchange, &done, MPI_STATUS_IGNORE);

	if (code != MPI_SUCCESS)
		return batoni_mpi_break(mpi, "MPI_Test", code);
	return done ? BATON_OK : BATON_PENDING;
}

enum baton_status
batoni_mpi_clear(struct batoni_transport *transport)
{
	struct batoni_mpi *mpi = batoni_mpi_of(transport);
	enum baton_status status, left;

	assert(transport->messages.load.in_flight == 0);
	if (mpi->exchanging == BATONI_MPI_NO_EXCHANGE)
		mpi->exchanging = BATONI_MPI_LEAVE_MESSAGES;
	if (mpi->exchanging == BATONI_MPI_LEAVE_MESSAGES) {
		status = exchange_leave_messages(mpi);
		if (status == BATON_OK)
			status = enter_barrier(mpi);
	} else {
		status = test_barrier(mpi);
	}
	if (status == BATON_ERR_MPI)
		return status;
	/* Last: when the barrier is complete, the last leave message may still be under way into
	 * the drain buffer. */
	left = discard(mpi);
	if (left != BATON_OK)
		return left;
	if (status == BATON_OK)
		mpi->exchanging = BATONI_MPI_NO_EXCHANGE;
	return status;
}
