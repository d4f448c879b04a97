/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The errors of operations that no request observes, kept for the next synchronize of their
 * stream.  The table has a fixed size.  When it is full, a new error overwrites the oldest one,
 * which has been logged.
 */
#include "unobserved.h"

#include <string.h>

#define ERRORS_MAX 64u

static pthread_mutex_t errors_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	baton_stream stream;
	enum baton_status status; /* BATON_OK: free */
	char what[BATONI_END_BYTES];
} errors[ERRORS_MAX];
static unsigned errors_next; /* the oldest entry, when all are taken */

bool
batoni_stream_error_note(const struct batoni_op *op, enum baton_status status)
{
	baton_stream stream = op->transfer.stream;
	unsigned at = ERRORS_MAX;

	pthread_mutex_lock(&errors_lock);
	for (unsigned i = 0; i < ERRORS_MAX; i++) {
		if (errors[i].status == BATON_OK) {
			at = i;
		} else if (errors[i].stream == stream) {
			/* Synchronize reports the first error of the stream. */
			pthread_mutex_unlock(&errors_lock);
			return false;
		}
	}
	if (at == ERRORS_MAX)
		at = errors_next++ % ERRORS_MAX;
	errors[at].stream = stream;
	errors[at].status = status;
	batoni_op_describe_end(op, errors[at].what, sizeof(errors[at].what));
	pthread_mutex_unlock(&errors_lock);
	return true;
}

enum baton_status
batoni_stream_error_take(baton_stream stream, char what[static BATONI_END_BYTES])
{
	enum baton_status status = BATON_OK;

	pthread_mutex_lock(&errors_lock);
	for (unsigned i = 0; i < ERRORS_MAX; i++) {
		if (errors[i].status != BATON_OK &&
		    errors[i].stream == stream) {
			status = errors[i].status;
			memcpy(what, errors[i].what, sizeof(errors[i].what));
			errors[i].status = BATON_OK;
		}
	}
	pthread_mutex_unlock(&errors_lock);
	return status;
}
