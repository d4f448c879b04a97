/* SPDX-License-Identifier: BSD-3-Clause */
/* The words of conformance cases: a call that fails is told with the line of the case,
 * whichever helper made it. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness_onesided.h"
#include "run_tests.h"

static const struct conform_case a_case = { .name = "a_case" };
static const struct conform_backend backend = { .name = "one rank" };
static struct conform conform;
static struct conform *const c = &conform;
static FILE *output;
static int terminal;

static void
setup(void)
{
	memset(c, 0, sizeof(*c));
	c->backend = &backend;
	c->now = &a_case;
	c->size = 1;
	atomic_store(&c->failures, 1); /* waits are short from the start */
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->gates[0].lock, NULL);
	pthread_cond_init(&c->gates[0].changed, NULL);
	ck_assert_int_eq(baton_comm_create_local(1, NULL, &c->comm), BATON_OK);
	ck_assert_int_eq(baton_stream_create(c->comm, &c->stream), BATON_OK);
}

static void
teardown(void)
{
	ck_assert_int_eq(baton_stream_destroy(c->comm, c->stream), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(c->comm), BATON_OK);
	conform_free_blocks(c);
}

/* From here to told_at, standard output is a file. */
static void
listen_to_output(void)
{
	output = tmpfile();
	ck_assert_ptr_nonnull(output);
	fflush(stdout);
	terminal = dup(STDOUT_FILENO);
	ck_assert_int_ge(dup2(fileno(output), STDOUT_FILENO), 0);
}

/* Something was told, and each line of it names that line of this file. */
static void
told_at(int line)
{
	char place[64], told[1000];
	int lines = 0;

	fflush(stdout);
	ck_assert_int_ge(dup2(terminal, STDOUT_FILENO), 0);
	close(terminal);
	snprintf(place, sizeof(place), "    test_harness.c:%d: a_case: ", line);
	rewind(output);
	while (fgets(told, sizeof(told), output)) {
		ck_assert_msg(strncmp(told, place, strlen(place)) == 0,
		              "line %d is told as %s", line, told);
		lines++;
	}
	fclose(output);
	ck_assert_msg(lines > 0, "line %d: nothing was told", line);
}

#define TELLS(statement)                                                      \
	do {                                                                  \
		listen_to_output();                                           \
		statement;                                                    \
		told_at(__LINE__);                                            \
	} while (0)

START_TEST(calls_that_fail_are_told_with_the_line_of_the_case)
{
	unsigned char byte = 0;
	baton_request request = 0;

	TELLS((void)SEND(c, &byte, 1, 9, 0, c->stream, NULL));
	TELLS((void)RECV(c, &byte, 1, 9, 0, c->stream, NULL));
	TELLS(SIGNAL(c, 9, 0, 0));
	TELLS((void)SIGNAL_ON(c, 9, 0, 0, c->stream, NULL));
	TELLS((void)WAIT(c, 9, 1, 0, 0, c->stream, NULL));
	TELLS((void)AWAIT(c, 9, 1, 0, 0));
	TELLS((void)COUNT(c, 9, 0, 0));
	ck_assert_int_eq(baton_record(c->comm, c->stream, NULL, &request),
	                 BATON_OK);
	TELLS((void)FINISH(c, BATON_ERR_ABORTED, &request));
}
END_TEST

START_TEST(waits_of_other_threads_are_told_with_the_line_of_the_case)
{
	struct conform_waiter waiter, never = { .status = BATON_PENDING };
	baton_request request;

	conform_gate_launch(c, 0, c->stream);
	ck_assert_int_eq(baton_record(c->comm, c->stream, NULL, &request),
	                 BATON_OK);
	(void)WAITER_START(c, &waiter, request);
	WAITER_BEGUN(c, &waiter);
	TELLS(WAITER_BEGUN(c, &never));
	conform_gate_open(c, 0);
	TELLS(WAITER_JOIN(c, BATON_ERR_ABORTED, &waiter));
	(void)FINISH(c, BATON_OK, &request);
}
END_TEST

START_TEST(communicator_that_stays_is_told_with_the_line_of_the_case)
{
	struct baton_comm *first = c->comm;
	void *memory = NULL;

	ck_assert_int_eq(baton_mem_alloc(first, 8, &memory), BATON_OK);
	TELLS(RESTORE(c, first));
	ck_assert_int_eq(baton_mem_free(first, memory), BATON_OK);
}
END_TEST

START_TEST(counts_that_differ_are_told_with_the_line_of_the_case)
{
	SIGNAL(c, 0, 0, 0);
	COUNTS(c, 0, 0, 0, 1);
	ck_assert_int_eq(atomic_load(&c->failures), 1);
	TELLS(COUNTS(c, 0, 0, 0, 0));
	TELLS(COUNTS(c, 0, 1, 0, 1));
}
END_TEST

START_TEST(windows_that_fail_are_told_with_the_line_of_the_case)
{
	struct conform_part part, none = { .bytes = 8 };
	unsigned char byte = 0;
	baton_request put;

	TELLS((void)REGISTER(c, &none));
	TELLS((void)OPEN(c, &part, (size_t)1 << 60));
	CLOSE(c, &part);
	ck_assert(OPEN_PRIVATE(c, &part, 8));
	TELLS((void)PUT(c, &byte, 1, 9, part.window, 0, 0, 0, c->stream, NULL));
	conform_gate_launch(c, 0, c->stream);
	put = PUT(c, &byte, 1, 0, part.window, 0, 0, 0, c->stream, NULL);
	TELLS(CLOSE(c, &part));
	conform_gate_open(c, 0);
	(void)FINISH(c, BATON_OK, &put);
	CLOSE(c, &part);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		calls_that_fail_are_told_with_the_line_of_the_case,
		waits_of_other_threads_are_told_with_the_line_of_the_case,
		communicator_that_stays_is_told_with_the_line_of_the_case,
		counts_that_differ_are_told_with_the_line_of_the_case,
		windows_that_fail_are_told_with_the_line_of_the_case,
	};

	return RUN_TESTS_WITH("harness", tests, setup, teardown);
}
