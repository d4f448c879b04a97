/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <string.h>

#include "baton.h"
#include "captured.h"
#include "log.h"
#include "run_tests.h"

/* ---- refusals ----------------------------------------------------------- */

START_TEST(last_error_is_empty_before_the_first_refusal)
{
	ck_assert_str_eq(baton_last_error(), "");
}
END_TEST

START_TEST(refusal_returns_its_status_and_keeps_its_sentence)
{
	ck_assert_int_eq(batoni_refuse(BATON_ERR_INVALID, "tag is %d", -3),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), "tag is -3");
	ck_assert_int_eq(batoni_refuse(BATON_ERR_AGAIN, "%s", "later"),
	                 BATON_ERR_AGAIN);
	ck_assert_str_eq(baton_last_error(), "later");
}
END_TEST

static void *
refuse_elsewhere(void *unused)
{
	bool empty = strcmp(baton_last_error(), "") == 0;

	batoni_refuse(BATON_ERR_INVALID, "theirs");
	return empty ? unused : NULL;
}

START_TEST(each_thread_has_a_sentence_of_its_own)
{
	pthread_t thread;
	void *was_empty = NULL;
	int token;

	batoni_refuse(BATON_ERR_INVALID, "ours");
	ck_assert_int_eq(pthread_create(&thread, NULL, refuse_elsewhere,
	                                &token),
	                 0);
	pthread_join(thread, &was_empty);
	ck_assert_ptr_eq(was_empty, &token);
	ck_assert_str_eq(baton_last_error(), "ours");
}
END_TEST

static pthread_key_t late_key;

/* A program's destructor, which runs after the library's own. */
static void
refuse_late(void *was_gone)
{
	*(bool *)was_gone = strcmp(baton_last_error(), "") == 0;
	batoni_refuse(BATON_ERR_INVALID, "late");
	*(bool *)was_gone &= strcmp(baton_last_error(), "late") == 0;
}

static void *
refuse_and_leave(void *was_gone)
{
	pthread_setspecific(late_key, was_gone);
	batoni_refuse(BATON_ERR_INVALID, "early");
	return NULL;
}

START_TEST(sentence_can_be_had_from_destructors_of_a_thread)
{
	bool was_gone = false;
	pthread_t thread;

	batoni_refuse(BATON_ERR_INVALID, "ours");
	ck_assert_int_eq(pthread_key_create(&late_key, refuse_late), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, refuse_and_leave,
	                                &was_gone),
	                 0);
	pthread_join(thread, NULL);
	ck_assert(was_gone);
	pthread_key_delete(late_key);
}
END_TEST

START_TEST(long_sentence_is_cut_and_terminated)
{
	char text[2000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	batoni_refuse(BATON_ERR_INVALID, "%s", text);
	ck_assert_uint_eq(strlen(baton_last_error()), 511);
	ck_assert_mem_eq(baton_last_error(), text, 511);
}
END_TEST

/* ---- lines -------------------------------------------------------------- */

static void
log_one_of_each(void)
{
	batoni_log(BATONI_LOG_ERROR, "e%d", 1);
	batoni_log(BATONI_LOG_WARN, "w%d", 2);
	batoni_log(BATONI_LOG_INFO, "i%d", 3);
	batoni_log(BATONI_LOG_DEBUG, "d%d", 4);
}

START_TEST(level_says_which_lines_are_written)
{
	static const struct {
		const char *level, *lines;
		size_t writes;
	} cases[] = {
		{"none", "", 0},
		{"error", "baton: error: e1\n", 1},
		{"warning", "baton: error: e1\nbaton: warning: w2\n", 2},
		{"info",
		 "baton: error: e1\nbaton: warning: w2\nbaton: info: i3\n", 3},
		{"debug",
		 "baton: error: e1\nbaton: warning: w2\nbaton: info: i3\n"
		 "baton: debug: d4\n",
		 4},
		{NULL, "baton: error: e1\nbaton: warning: w2\n", 2},
		{"", "baton: error: e1\nbaton: warning: w2\n", 2},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct captured out = capture(cases[i].level, log_one_of_each);

		ck_assert_str_eq(out.text, cases[i].lines);
		/* Each line is one write. */
		ck_assert_uint_eq(out.writes, cases[i].writes);
	}
}
END_TEST

static void
log_long_lines(void)
{
	char text[2000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	batoni_log(BATONI_LOG_ERROR, "%s", text);
	batoni_log(BATONI_LOG_ERROR, "after");
}

START_TEST(long_line_is_cut_and_ended)
{
	struct captured out = capture("error", log_long_lines);
	const char *end = strchr(out.text, '\n');

	ck_assert_uint_eq(out.writes, 2);
	ck_assert_ptr_nonnull(end);
	ck_assert_int_le(end - out.text, 511);
	ck_assert_int_ge(end - out.text, 500);
	ck_assert_str_eq(end + 1, "baton: error: after\n");
}
END_TEST

static void
break_idle_and_busy(void)
{
	struct baton_comm *comm;
	baton_request request;
	char byte;

	for (int pending = 0; pending < 2; pending++) {
		ck_assert_int_eq(baton_comm_create_local(1, NULL, &comm), BATON_OK);
		if (pending)
			ck_assert_int_eq(baton_recv(&byte, 1, BATON_UINT8, 0, 0,
			                            comm, NULL, NULL, &request),
			                 BATON_OK);
		ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
		ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	}
}

START_TEST(a_break_says_how_many_operations_end_if_any_do)
{
	struct captured out = capture("debug", break_idle_and_busy);

	ck_assert_ptr_nonnull(
		strstr(out.text, "broken (BATON_ERR_ABORTED): aborted"));
	ck_assert_ptr_nonnull(strstr(
		out.text,
		"broken (BATON_ERR_ABORTED), 1 operation ends with it: aborted"));
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		last_error_is_empty_before_the_first_refusal,
		refusal_returns_its_status_and_keeps_its_sentence,
		each_thread_has_a_sentence_of_its_own,
		sentence_can_be_had_from_destructors_of_a_thread,
		long_sentence_is_cut_and_terminated,
		level_says_which_lines_are_written,
		long_line_is_cut_and_ended,
		a_break_says_how_many_operations_end_if_any_do,
	};

	return RUN_TESTS("log", tests);
}
