/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of MPI that have failed: how a transfer or the whole communicator ends with it, and the texts
 * of MPI's error codes.
 *
 * A transfer's failure is noted when it is found, and told to the engine by the slot function that is
 * running, as its last step (batoni_mpi_tell_failure), when its counts are right again.
 *
 * Threads: the driver; batoni_mpi_error_text any.  A text is written once and never changed: the store of
 * text_count that follows pairs with the load in find_text().
 */
#include <stdio.h>

#include "mpi_transport.h"

enum baton_status
batoni_mpi_fail(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                const char *call, int code, const char *text)
{
	transfer->native_call = call;
	transfer->native_code = code;
	mpi->failed_transfer = transfer;
	batoni_mpi_body_forget(mpi, transfer);
	/* The transfer ends now: stop tracking its other requests.  (The bounce
	 * buffer of a header that is still being sent may be overwritten.  That is
	 * harmless: the transport is broken.) */
	for (uint32_t i = mpi->count; i-- > 0;) {
		if (mpi->entries[i].transfer != transfer)
			continue;
		if (mpi->entries[i].part == BATONI_MPI_HEADER)
			batoni_mpi_bounce_return(mpi, mpi->entries[i].bounce);
		batoni_mpi_untrack(mpi, i);
	}
	batoni_mpi_note_error(mpi, code, text);
	if (mpi->failed_call)
		return BATON_ERR_MPI;
	mpi->failed_status = BATON_ERR_MPI;
	mpi->failed_call = call;
	mpi->failed_code = code;
	if (text)
		snprintf(mpi->failed_text, sizeof(mpi->failed_text), "%s",
		         text);
	else
		batoni_mpi_error_text(&mpi->base, code, mpi->failed_text,
		                      sizeof(mpi->failed_text));
	return BATON_ERR_MPI;
}

/* The last step of a slot function. */
void
batoni_mpi_tell_failure(struct batoni_mpi *mpi)
{
	const char *call = mpi->failed_call;

	mpi->failed_call = NULL;
	if (call)
		mpi->base.upcalls->broken(mpi->base.upcalls, mpi->failed_status, call,
		                          mpi->failed_code, mpi->failed_text);
}

enum baton_status
batoni_mpi_break(struct batoni_mpi *mpi, const char *call, int code)
{
	char text[MPI_MAX_ERROR_STRING];

	batoni_mpi_note_error(mpi, code, NULL);
	batoni_mpi_error_text(&mpi->base, code, text, sizeof(text));
	mpi->base.upcalls->broken(mpi->base.upcalls, BATON_ERR_MPI, call, code, text);
	return BATON_ERR_MPI;
}

enum baton_status
batoni_mpi_break_saying(struct batoni_mpi *mpi, const char *call,
                        const char *text)
{
	mpi->base.upcalls->broken(mpi->base.upcalls, BATON_ERR_MPI, call,
	                          MPI_ERR_OTHER, text);
	return BATON_ERR_MPI;
}

static const struct batoni_mpi_text *
find_text(struct batoni_mpi *mpi, int code)
{
	uint32_t count = atomic_load(&mpi->text_count);

	for (uint32_t i = 0; i < count; i++) {
		if (mpi->texts[i].code == code)
			return &mpi->texts[i];
	}
	return NULL;
}

void
batoni_mpi_note_error(struct batoni_mpi *mpi, int code, const char *text)
{
	uint32_t count = atomic_load(&mpi->text_count);
	struct batoni_mpi_text *next = &mpi->texts[count];
	int length;

	if (count == BATONI_MPI_TEXTS || find_text(mpi, code))
		return;
	next->code = code;
	if (text)
		snprintf(next->text, sizeof(next->text), "%s", text);
	else if (MPI_Error_string(code, next->text, &length) != MPI_SUCCESS)
		return;
	atomic_store(&mpi->text_count, count + 1);
}

void
batoni_mpi_error_text(struct batoni_transport *transport, int code, char *text,
                      size_t size)
{
	const struct batoni_mpi_text *found =
		find_text(batoni_mpi_of(transport), code);

	if (found)
		snprintf(text, size, "%s", found->text);
	else
		snprintf(text, size, "MPI error %d", code);
}

const struct batoni_text_ops batoni_mpi_texts = {
	.error_text = batoni_mpi_error_text,
};
