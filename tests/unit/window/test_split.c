/* SPDX-License-Identifier: BSD-3-Clause */
/* A split that fails on the way: without memory, where a rank is lost between two exchanges, and beside
 * another collective call of the rank. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "baton.h"
#include "bootstrap.h"
#include "core.h"
#include "log.h"
#include "mem.h"
#include "registry.h"
#include "run_tests.h"
#include "transport.h"

static void
teardown(void)
{
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

struct caller {
	struct baton_comm *parent, *made;
	enum baton_status status;
	char why[300];
	pthread_t thread;
};

static void *
duplicate(void *argument)
{
	struct caller *caller = argument;

	caller->status = baton_comm_dup(caller->parent, NULL, &caller->made);
	strncpy(caller->why, baton_last_error(), sizeof(caller->why) - 1);
	return NULL;
}

static void
open_two(struct caller callers[2], int64_t timeout_ns)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comms[2];

	options.progress = BATON_PROGRESS_CALLS;
	options.requests_max = 4;
	options.timeout_ns = timeout_ns;
	ck_assert_int_eq(baton_comm_create_local(2, &options, comms), BATON_OK);
	memset(callers, 0, 2 * sizeof(*callers));
	for (int i = 0; i < 2; i++)
		callers[i].parent = comms[i];
}

/* Both ranks, each on its thread. */
static void
call_both(struct caller callers[2])
{
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&callers[i].thread, NULL,
		                                duplicate, &callers[i]),
		                 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(callers[i].thread, NULL), 0);
}

static void
destroy_two(struct caller callers[2])
{
	for (int i = 0; i < 2; i++) {
		if (callers[i].made)
			ck_assert_int_eq(baton_comm_destroy(callers[i].made),
			                 BATON_OK);
		ck_assert_int_eq(baton_comm_destroy(callers[i].parent),
		                 BATON_OK);
	}
}

START_TEST(without_memory_all_are_refused_and_nothing_is_left)
{
	static const char call[] = "baton_comm_dup";
	struct caller callers[2];
	unsigned long n = 0;

	do {
		open_two(callers, 0);
		batoni_mem_fail_at(++n);
		call_both(callers);
		batoni_mem_fail_at(0);
		ck_assert_int_eq(callers[0].status, callers[1].status);
		for (int i = 0; i < 2 && callers[i].status != BATON_OK; i++) {
			const char *why = callers[i].why;

			ck_assert_int_eq(callers[i].status, BATON_ERR_NOMEM);
			ck_assert_ptr_null(callers[i].made);
			ck_assert_int_eq(baton_comm_status(callers[i].parent),
			                 BATON_OK);
			/* The call is named once at most. */
			ck_assert(why[0] && !strstr(why + 1, call));
		}
		destroy_two(callers);
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	} while (callers[0].status != BATON_OK);
	ck_assert_uint_gt(n, 15);
}
END_TEST

/* ---- a rank is lost in the second exchange, through which the other one gets ---- */

static struct {
	const struct batoni_transport_ops *real;
	struct batoni_transport_ops ops;
	struct batoni_exchanging_ops exchanging;
	int exchanges; /* that are over */
	struct batoni_board *board; /* of rank 0, as the second one has told */
} losing;

static enum baton_status
lose_the_second(struct batoni_transport *transport, uint64_t what,
                const void *mine, size_t bytes, void *all)
{
	enum baton_status status = losing.real->exchanging->exchange(
		transport, what, mine, bytes, all);

	if (status != BATON_OK || ++losing.exchanges < 2)
		return status;
	/* Behind its status. */
	memcpy(&losing.board, (const char *)all + sizeof(int64_t),
	       sizeof(struct batoni_board *));
	return BATON_ERR_PEER;
}

static void
lose_in_the_second(struct baton_comm *comm)
{
	losing.real = comm->opened->ops;
	losing.ops = *losing.real;
	losing.exchanging.exchange = lose_the_second;
	losing.ops.exchanging = &losing.exchanging;
	losing.exchanges = 0;
	comm->opened->ops = &losing.ops;
}

START_TEST(a_rank_that_made_the_place_and_is_lost_ends_the_others)
{
	struct caller callers[2];

	open_two(callers, 0);
	lose_in_the_second(callers[0].parent);
	call_both(callers);
	ck_assert_int_eq(callers[0].status, BATON_ERR_PEER);
	ck_assert_int_eq(callers[1].status, BATON_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(callers[1].why, "has given up"));
	ck_assert_int_eq(baton_comm_status(callers[1].parent), BATON_OK);
	destroy_two(callers);
}
END_TEST

START_TEST(a_rank_that_does_not_come_to_the_place_is_not_waited_for)
{
	struct batoni_bootstrap endpoint;
	struct caller callers[2];

	open_two(callers, 300000000);
	lose_in_the_second(callers[1].parent);
	call_both(callers);
	ck_assert_int_eq(callers[0].status, BATON_ERR_TIMEOUT);
	/* On a slow machine its own time is over before. */
	ck_assert(callers[1].status == BATON_ERR_PEER ||
	          callers[1].status == BATON_ERR_TIMEOUT);
	if (losing.exchanges == 2) {
		/* In its place. */
		batoni_threads_layer()->join(losing.board, 1, &endpoint);
		endpoint.ops->close(&endpoint);
	}
	destroy_two(callers);
}
END_TEST

/* ---- one collective call at a time, until the ends are made ---- */

static struct {
	struct baton_comm *comm;
	enum baton_status status; /* of the call within the call */
	char why[200];
} within;

static enum baton_status
call_again(struct batoni_transport *transport,
           const struct batoni_engine_calls *engine, const int *ranks, int size,
           int rank, struct batoni_bootstrap *bootstrap)
{
	struct baton_comm *made = NULL;

	(void)transport, (void)engine, (void)ranks, (void)size, (void)rank;
	(void)bootstrap;
	if (within.status == BATON_PENDING) {
		within.status = BATON_OK;
		within.status = baton_comm_dup(within.comm, NULL, &made);
		strncpy(within.why, baton_last_error(), sizeof(within.why) - 1);
	}
	return batoni_refuse(BATON_ERR_MPI, "it cannot join them");
}

START_TEST(while_the_ends_are_made_another_call_is_refused)
{
	static const struct batoni_deriving_ops deriving = {.derive = call_again};
	struct baton_comm *comm = NULL, *made = NULL;
	struct batoni_transport_ops ops;

	ck_assert_int_eq(baton_comm_create_local(1, NULL, &comm), BATON_OK);
	ops = *comm->opened->ops;
	ops.deriving = &deriving;
	comm->opened->ops = &ops;
	within.comm = comm;
	within.status = BATON_PENDING;
	ck_assert_int_eq(baton_comm_dup(comm, NULL, &made), BATON_ERR_MPI);
	ck_assert_str_eq(baton_last_error(), "it cannot join them");
	ck_assert_int_eq(within.status, BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(within.why, "another thread of this rank"));
	ck_assert_ptr_null(made);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		without_memory_all_are_refused_and_nothing_is_left,
		a_rank_that_made_the_place_and_is_lost_ends_the_others,
		a_rank_that_does_not_come_to_the_place_is_not_waited_for,
		while_the_ends_are_made_another_call_is_refused,
	};

	return RUN_TESTS_WITH("split", tests, NULL, teardown);
}
