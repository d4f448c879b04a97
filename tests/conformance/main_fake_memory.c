/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages whose buffers are in device memory that faults when the host touches it: the
 * local transport, staged, on the fake asynchronous device. */
#include <string.h>

#include "fake_memory.h"
#include "on_fake_device.h"
#include "ranks.h"

/* A put whose copy is under way is lent until the copy has ended, and does not signal. */
static void
a_put_is_taken_back_with_its_copy(struct conform *c)
{
	unsigned char *part = conform_message(c, 4096);
	void *source = conform_filled(c, 4096, 5);
	struct baton_completion done = { 0 };
	struct baton_window *window = NULL;
	baton_request request = 0;
	int64_t begin = conform_begin();
	uint64_t count = 9;

	CHECK_OK(c, baton_window_register(part, 4096, c->comm, &window));
	if (c->rank == 0) {
		fake_memory_hold(true);
		CHECK_OK(c, baton_put_signal(source, 4096, BATON_UINT8, 0, window,
		                             0, 0, 0, 0, c->comm, c->stream, NULL,
		                             &request));
		while (fake_memory_copies() == 0 && STILL(c, begin))
			(void)baton_progress(c->comm);
		CHECK_OK(c, baton_cancel(request));
		CHECK_STATUS(c, BATON_ERR_CANCELED,
		             baton_wait(request, conform_patience(c), &done));
		CHECK(c, done.flags & BATON_COMPLETION_LENT);
		fake_memory_hold(false);
		while ((done.flags & BATON_COMPLETION_LENT) && STILL(c, begin))
			(void)baton_test(request, &done);
		CHECK_OK(c, baton_release(&request));
		CHECK_OK(c, baton_signal_count(c->comm, 0, 0, 0, &count));
		CHECK_EQ(c, count, 0);
	}
	conform_sync(c);
	CHECK_OK(c, baton_window_deregister(window));
}

static void
a_put_whose_copy_fails_ends_so_and_does_not_signal(struct conform *c)
{
	static const enum fake_device_call calls[] = { FAKE_COPY_START,
		                                       FAKE_COPY_TEST };
	unsigned char *part = conform_message(c, 4096);
	void *source = conform_filled(c, 4096, 5);
	struct baton_window *window = NULL;
	baton_request request = 0;
	uint64_t count = 9;
	char why[256] = "";

	CHECK_OK(c, baton_window_register(part, 4096, c->comm, &window));
	for (int i = 0; i < 2 && c->rank == 0; i++) {
		fake_device_fail_at(calls[i], 1, BATON_ERR_CUDA);
		CHECK_OK(c, baton_put_signal(source, 4096, BATON_UINT8, 0, window,
		                             0, 0, 0, 0, c->comm, c->stream, NULL,
		                             &request));
		CHECK_STATUS(c, BATON_ERR_CUDA,
		             baton_wait(request, conform_patience(c), NULL));
		CHECK_OK(c, baton_request_error(request, why, sizeof(why)));
		CHECK(c, strstr(why, "fake call returned 719: the fake was told "
		                     "to fail"));
		FINISH(c, BATON_ERR_CUDA, &request);
		CHECK_OK(c, baton_signal_count(c->comm, 0, 0, 0, &count));
		CHECK_EQ(c, count, 0);
	}
	conform_sync(c);
	CHECK_OK(c, baton_window_deregister(window));
}

static void
a_buffer_that_cannot_be_looked_at_refuses_its_call(struct conform *c)
{
	unsigned char *part = conform_message(c, 4096);
	struct baton_window *window = NULL;
	baton_request request = 0;

	CHECK_OK(c, baton_window_register(part, 4096, c->comm, &window));
	if (c->rank == 0) {
		fake_device_fail_at(FAKE_LOOK, 1, BATON_ERR_CUDA);
		CHECK_STATUS(c, BATON_ERR_CUDA,
		             baton_put_signal(part, 8, BATON_UINT8, 0, window, 0,
		                              0, 0, 0, c->comm, c->stream, NULL,
		                              &request));
		CHECK(c, strstr(baton_last_error(), "look was told to fail"));
		fake_device_fail_at(FAKE_LOOK, 1, BATON_ERR_CUDA);
		CHECK_STATUS(c, BATON_ERR_CUDA,
		             baton_send(part, 8, BATON_UINT8, 0, 0, c->comm,
		                        c->stream, NULL, &request));
		CHECK_EQ(c, request, 0);
		/* What has no bytes is not looked at. */
		fake_device_fail_at(FAKE_LOOK, 1, BATON_ERR_CUDA);
		CHECK_OK(c, baton_signal(0, 0, 0, 0, c->comm, c->stream, NULL,
		                         &request));
		FINISH(c, BATON_OK, &request);
		fake_device_fail_at(FAKE_LOOK, 0, BATON_OK);
	}
	conform_sync(c);
	CHECK_OK(c, baton_window_deregister(window));
}

static const struct conform_case own[] = {
	{ CASE(a_buffer_that_cannot_be_looked_at_refuses_its_call) },
	{ CASE(a_put_is_taken_back_with_its_copy) },
	{ CASE(a_put_whose_copy_fails_ends_so_and_does_not_signal) },
	CASES_END,
};

int
main(int argc, char **argv)
{
	static const struct conform_list owns[] = { { "copies", own },
		                                    { NULL, NULL } };
	static const struct conform_list *const lists[] = { conform_messages,
		                                            owns, NULL };

	return on_fake_device_end(conform_threads_on(
		(struct conform_backend){ .name = "fake-memory",
		                          .memory = &on_fake_memory,
		                          .traits = CONFORM_HOST_ISSUED },
		on_fake_device_open, lists, argc, argv));
}
