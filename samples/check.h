/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the samples do with a status.
 *
 * There are two kinds of errors, and two texts.  A call that is refused has
 * enqueued nothing: baton_last_error() says why.  An operation that was
 * enqueued and failed later says so in its request: baton_request_error().
 *
 * A sample has nothing to save, so either ends the program.  The abort before
 * the exit matters: without it the process would wait in MPI_Finalize for ranks
 * that wait for it.  A sample may define CHECK_EXIT as _Exit before it includes this.
 */
#ifndef SAMPLES_CHECK_H
#define SAMPLES_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include <baton.h>

#ifndef CHECK_EXIT
#define CHECK_EXIT exit
#endif

#define CHECK(comm, call) check_call((comm), (call), #call)

/* The call was refused: say which, why, and leave. */
static inline void check_call(struct baton_comm *comm, enum baton_status status,
                              const char *call)
{
	char who[24] = "";

	if (status == BATON_OK)
		return;
	if (comm != NULL)
		snprintf(who, sizeof(who), "rank %d: ", baton_comm_rank(comm));
	fprintf(stderr, "%s%s: %s: %s\n", who, call, baton_status_name(status),
	        baton_last_error());
	baton_comm_abort(comm);
	CHECK_EXIT(EXIT_FAILURE);
}

/* Wait until the operation has ended well, and give its request back. */
static inline void finish(struct baton_comm *comm, baton_request *request,
                          struct baton_completion *completion_p)
{
	char why[256];
	enum baton_status status = baton_wait(*request, -1, completion_p);

	if (status == BATON_OK) {
		CHECK(comm, baton_release(request));
		return;
	}
	if (baton_request_error(*request, why, sizeof(why)) != BATON_OK)
		snprintf(why, sizeof(why), "%s", baton_last_error());
	fprintf(stderr, "rank %d: an operation ended in %s: %s\n",
	        baton_comm_rank(comm), baton_status_name(status), why);
	baton_comm_abort(comm);
	CHECK_EXIT(EXIT_FAILURE);
}

#endif
