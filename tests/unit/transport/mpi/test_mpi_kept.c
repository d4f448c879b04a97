/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that were taken out of MPI's queue (kept.c), by one rank that sends to itself, without the transport:
 * a zeroed struct batoni_mpi, of which kept.c uses the communicator, the requests and what is kept.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "mem.h"
#include "mpi_transport.h"

#define TAG_MAX 100
#define HIDDEN 200 /* a tag above those of the program */
#define GROUP 300 /* that of MPI's own messages */

static struct batoni_mpi mpi;
static MPI_Request requests[4];

static void
setup(void)
{
	mpi = (struct batoni_mpi){.comm = MPI_COMM_SELF, .requests = requests};
	mpi.base.tag_max = TAG_MAX;
	mpi.group_tag = GROUP;
	batoni_mpi_kept_init(&mpi);
}

static void
teardown(void)
{
	int there = 0;

	ck_assert_uint_eq(mpi.kept_n, 0);
	ck_assert(batoni_list_empty(&mpi.kept));
	ck_assert(batoni_list_empty(&mpi.kept_fronts[0]));
	ck_assert(batoni_list_empty(&mpi.kept_fronts[1]));
	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi.comm, &there,
	           MPI_STATUS_IGNORE);
	ck_assert_int_eq(there, 0);
	batoni_match_fini(&mpi.kept_match);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

/* To oneself.  It is received, and so it ends. */
static void
send_int(int value, int tag)
{
	static int values[8192];
	static unsigned sent;
	MPI_Request request;

	ck_assert_uint_lt(sent, sizeof(values) / sizeof(values[0]));
	values[sent] = value;
	MPI_Isend(&values[sent++], 1, MPI_INT, 0, tag, mpi.comm, &request);
	MPI_Request_free(&request);
}

static void
keep(int n)
{
	for (int i = 0; i < n; i++)
		ck_assert_ptr_nonnull(batoni_mpi_keep(&mpi, i % 2 ? 0 : MPI_ANY_SOURCE));
}

static int
value_of(MPI_Request *request, int *value, int tag)
{
	MPI_Status status;

	MPI_Wait(request, &status);
	ck_assert_int_eq(status.MPI_TAG, tag);
	return *value;
}

/* What a receive that names this tag gets. */
static int
receive(int tag)
{
	int value = -1;

	ck_assert_int_eq(batoni_mpi_irecv(&mpi, &value, sizeof(value), MPI_BYTE,
	                                  0, tag),
	                 MPI_SUCCESS);
	return value_of(&mpi.requests[mpi.count], &value, tag);
}

START_TEST(a_receive_gets_what_is_kept_before_what_mpi_has)
{
	send_int(1, 5);
	send_int(2, 7);
	send_int(3, 5);
	keep(3);
	send_int(4, 5);
	ck_assert_uint_eq(mpi.kept_n, 3);
	ck_assert_int_eq(receive(5), 1);
	ck_assert_int_eq(receive(5), 3);
	ck_assert_int_eq(receive(5), 4);
	ck_assert_int_eq(receive(7), 2);
}
END_TEST

START_TEST(what_is_kept_is_found_by_rank_and_tag)
{
	const struct batoni_mpi_kept *kept;

	ck_assert_ptr_null(batoni_mpi_kept_find(&mpi, 0, 5));
	ck_assert_ptr_null(batoni_mpi_keep(&mpi, MPI_ANY_SOURCE));
	send_int(1, 5);
	send_int(2, HIDDEN);
	keep(2);
	ck_assert_ptr_null(batoni_mpi_kept_find(&mpi, 0, 6));
	ck_assert_ptr_null(batoni_mpi_kept_find(&mpi, 1, 5));
	ck_assert_ptr_null(batoni_mpi_kept_find(&mpi, MPI_ANY_SOURCE, 6));
	kept = batoni_mpi_kept_find(&mpi, MPI_ANY_SOURCE, 5);
	ck_assert_ptr_eq(kept, batoni_mpi_kept_find(&mpi, 0, 5));
	ck_assert_int_eq(kept->bytes, sizeof(int));
	kept = batoni_mpi_kept_find(&mpi, MPI_ANY_SOURCE, HIDDEN);
	ck_assert_int_eq(kept->tag, HIDDEN);
	ck_assert_int_eq(receive(HIDDEN), 2);
	ck_assert_int_eq(receive(5), 1);
}
END_TEST

/* The tags of the fronts, in their order. */
static void
check_fronts(int which, int n, const int *tags)
{
	const struct batoni_list_node *fronts = &mpi.kept_fronts[which];
	struct batoni_list_node *at = fronts->next;

	for (int i = 0; i < n; i++, at = at->next) {
		ck_assert_ptr_ne(at, fronts);
		ck_assert_int_eq(batoni_mpi_kept_front(at)->tag, tags[i]);
	}
	ck_assert_ptr_eq(at, fronts);
}

START_TEST(the_first_of_each_queue_stand_in_the_order_of_all)
{
	for (int i = 0; i < 8; i++)
		send_int(i, (const int[]){5, 7, 5, 9, HIDDEN, 5, 7, HIDDEN}[i]);
	keep(8);
	check_fronts(0, 3, (const int[]){5, 7, 9});
	check_fronts(1, 1, (const int[]){HIDDEN});
	ck_assert_int_eq(receive(5), 0);
	check_fronts(0, 3, (const int[]){7, 5, 9});
	ck_assert_int_eq(receive(5), 2);
	check_fronts(0, 3, (const int[]){7, 9, 5});
	ck_assert_int_eq(receive(7), 1);
	check_fronts(0, 3, (const int[]){9, 5, 7});
	ck_assert_int_eq(receive(9), 3);
	ck_assert_int_eq(receive(HIDDEN), 4);
	ck_assert_int_eq(receive(HIDDEN), 7);
	ck_assert_int_eq(receive(7), 6);
	ck_assert_int_eq(receive(5), 5);
}
END_TEST

START_TEST(without_memory_a_message_stays_at_mpi)
{
	send_int(1, 5);
	for (unsigned long n = 1; n <= 2; n++) {
		batoni_mem_fail_at(n);
		ck_assert_ptr_null(batoni_mpi_keep(&mpi, 0));
		ck_assert_uint_eq(mpi.kept_n, 0);
	}
	batoni_mem_fail_at(0);
	keep(1);
	ck_assert_int_eq(receive(5), 1);
}
END_TEST

/* A message of MPI's own stays where it is, and what is behind it too, until it is gone. */
START_TEST(a_message_of_mpis_own_is_not_kept)
{
	int own = 0;

	send_int(1, 5);
	send_int(2, GROUP);
	send_int(3, 5);
	keep(1);
	ck_assert_ptr_null(batoni_mpi_keep(&mpi, MPI_ANY_SOURCE));
	ck_assert_ptr_null(batoni_mpi_keep(&mpi, 0));
	MPI_Recv(&own, 1, MPI_INT, 0, GROUP, mpi.comm, MPI_STATUS_IGNORE);
	ck_assert_int_eq(own, 2);
	keep(1);
	ck_assert_int_eq(receive(5), 1);
	ck_assert_int_eq(receive(5), 3);
}
END_TEST

START_TEST(thousands_are_received_in_their_order)
{
	enum { N = 4000, TAGS = 37 };

	for (int i = 0; i < N; i++)
		send_int(i, i % TAGS);
	keep(N);
	for (int tag = TAGS - 1; tag >= 0; tag--)
		for (int i = tag; i < N; i += TAGS)
			ck_assert_int_eq(receive(tag), i);
}
END_TEST

/* Callable or not: what MPI still has of them goes with the communicator. */
START_TEST(what_is_dropped_is_freed)
{
	send_int(1, 5);
	send_int(2, 5);
	send_int(3, HIDDEN);
	keep(3);
	ck_assert_int_eq(batoni_mpi_drain_reserve(), BATON_OK);
	batoni_mpi_kept_drop(&mpi, true);
	ck_assert_uint_eq(mpi.kept_n, 0);
}
END_TEST

int
main(int argc, char **argv)
{
	const TTest *const tests[] = {
		a_receive_gets_what_is_kept_before_what_mpi_has,
		what_is_kept_is_found_by_rank_and_tag,
		the_first_of_each_queue_stand_in_the_order_of_all,
		without_memory_a_message_stays_at_mpi,
		a_message_of_mpis_own_is_not_kept,
		thousands_are_received_in_their_order,
		what_is_dropped_is_freed,
	};
	Suite *suite = suite_create("mpi_kept");
	TCase *tcase = tcase_create("kept");
	SRunner *runner = srunner_create(suite);
	int failed, provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
	tcase_add_checked_fixture(tcase, setup, teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tcase, tests[i]);
	suite_add_tcase(suite, tcase);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	MPI_Finalize();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
