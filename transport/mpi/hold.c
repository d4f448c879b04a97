/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that a probe of the program has found: `hold` and `meet` of struct batoni_unmatched_ops.
 *
 * The first part of a message (mpi.c) says what the message is.  `hold` receives it at once, into a bounce buffer, as
 * a receive would: so nothing else at MPI can get the message, and the slot of the probe has the bounce buffer.  The
 * receive that meets the message goes on from there.
 *
 * MPI sends first parts eagerly, so mostly it is there when the probe finds the message.  Otherwise its request is
 * tested like that of any first part; when it is done, the engine is not told, and the next `hold` finds it.
 *
 * Memory for all slots is allocated by the first probe that finds something.
 *
 * Threads: the driver alone.
 */
#include "mem.h"
#include "mpi_transport.h"

/* Receive the first part of the message that `find` has just found. */
static enum baton_status
post_first(struct batoni_mpi *mpi, struct batoni_transfer *receive,
           struct batoni_mpi_held *held)
{
	uint32_t bounce = batoni_mpi_bounce_take(mpi);
	int done = 0, code;

	mpi->found = false;
	code = batoni_mpi_irecv(mpi, batoni_mpi_bounce(mpi, bounce),
	                        BATONI_MPI_RAW_MAX, MPI_BYTE, receive->peer,
	                        receive->tag);
	if (code != MPI_SUCCESS) {
		batoni_mpi_bounce_return(mpi, bounce);
		return batoni_mpi_break(mpi, "MPI_Irecv", code);
	}
	held->bounce = bounce;
	held->posted = true;
	code = MPI_Test(&mpi->requests[mpi->count], &done, &held->status);
	if (code != MPI_SUCCESS)
		return batoni_mpi_break(mpi, "MPI_Test", code);
	if (done) {
		held->posted = false;
		held->here = true;
		return BATON_OK;
	}
	batoni_mpi_track(mpi, receive, BATONI_MPI_HELD, bounce);
	mpi->base.messages.load.in_flight++;
	return BATON_PENDING;
}

void
batoni_mpi_held_came(struct batoni_mpi *mpi, const struct batoni_transfer *receive,
                     int code, const MPI_Status *status)
{
	struct batoni_mpi_held *held = &mpi->held[receive->slot];

	mpi->base.messages.load.in_flight--;
	held->posted = false;
	if (code != MPI_SUCCESS) {
		batoni_mpi_break(mpi, "MPI_Irecv", code);
		return;
	}
	held->status = *status;
	held->here = true;
}

bool
batoni_mpi_held_ends(struct batoni_mpi *mpi, const struct batoni_mpi_entry *entry)
{
	if (entry->part != BATONI_MPI_HELD)
		return false;
	mpi->held[entry->transfer->slot].posted = false;
	return true;
}

/* Describe the message by its first part.  (If that should be a header and is none, the receive refuses it.) */
static void
describe(const struct batoni_mpi *mpi, const struct batoni_mpi_held *held,
         struct batoni_held *held_p)
{
	int n;

	MPI_Get_count(&held->status, MPI_BYTE, &n);
	if (!batoni_mpi_is_special((size_t)n) ||
	    !batoni_mpi_describe_first(mpi, batoni_mpi_bounce(mpi, held->bounce),
	                               (size_t)n, held_p))
		*held_p = (struct batoni_held){.bytes = (size_t)n};
}

enum baton_status
batoni_mpi_hold(struct batoni_path *path, struct batoni_transfer *receive,
                struct batoni_held *held_p)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));
	enum baton_status status = BATON_OK;
	struct batoni_mpi_held *held;

	if (!mpi->held)
		mpi->held = batoni_alloc(mpi->base.slots, sizeof(*mpi->held));
	if (!mpi->held) {
		mpi->found = false;
		return BATON_ERR_NOMEM;
	}
	held = &mpi->held[receive->slot];
	if (held->posted)
		return BATON_PENDING;
	if (!held->here)
		status = post_first(mpi, receive, held);
	if (status == BATON_OK)
		describe(mpi, held, held_p);
	return status;
}

enum baton_status
batoni_mpi_meet(struct batoni_path *path, struct batoni_transfer *receive,
                struct batoni_transfer *held_by)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));
	struct batoni_mpi_held *held = &mpi->held[held_by->slot];

	assert(held->here);
	held->here = false;
	return batoni_mpi_meet_first(mpi, receive, held->bounce, &held->status);
}
