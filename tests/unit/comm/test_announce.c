/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "baton.h"
#include "captured.h"
#include "run_tests.h"

static const char *path;

static void
live(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm;
	struct baton_window *window;
	static char memory[64];

	if (path)
		setenv("BATON_WINDOW_PATH", path, 1);
	options.progress = BATON_PROGRESS_CALLS;
	options.requests_max = 77;
	if (baton_comm_create_local(1, &options, &comm) != BATON_OK ||
	    baton_window_register(memory, sizeof(memory), comm, &window) !=
	            BATON_OK ||
	    baton_window_deregister(window) != BATON_OK ||
	    baton_comm_abort(comm) != BATON_OK ||
	    baton_comm_destroy(comm) != BATON_OK)
		abort();
}

START_TEST(debug_tells_what_an_engineer_asks_first)
{
	static const char *const parts[] = {
		"rank 0 of 1", "baton 0.", "transport local", "device host",
		"progress is made by threads inside Baton alone",
		"requests_max 77, timeout none,",
		"signals reach 1 of 1 ranks by stores",
		"64 bytes here: puts to 1 ranks go by direct",
		"communicator broken (BATON_ERR_ABORTED)",
	};
	struct captured captured;

	path = NULL;
	captured = capture("debug", live);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (!strstr(captured.text, parts[i]))
			ck_abort_msg("no \"%s\" in:\n%s", parts[i],
			             captured.text);
	}
}
END_TEST

START_TEST(debug_tells_why_not_faster)
{
	struct captured captured;

	path = "message";
	captured = capture("debug", live);
	if (!strstr(captured.text, "go by message, the first of them rank 0: "
	                           "BATON_WINDOW_PATH forces it"))
		ck_abort_msg("%s", captured.text);
}
END_TEST

START_TEST(warning_says_nothing_of_what_is_well)
{
	path = NULL;
	ck_assert_uint_eq(capture("warning", live).writes, 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		debug_tells_what_an_engineer_asks_first,
		debug_tells_why_not_faster,
		warning_says_nothing_of_what_is_well,
	};

	return RUN_TESTS("announce", tests);
}
