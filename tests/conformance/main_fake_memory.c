/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages whose buffers are in device memory that faults when the host touches it: the
 * local transport, staged, on the fake asynchronous device. */
#include <string.h>

#include "fake_memory.h"
#include "on_fake_device.h"
#include "runner.h"

/* Detached, so that the engine has them.  4096: the device copies the put in one piece,
 * from its own memory.  LONG: from pageable memory, a chunk at a time. */
#define LONG (3 * MIB)

static void *
source_of(struct conform *c, size_t bytes)
{
	return bytes == LONG ? conform_alloc(c, bytes)
	                     : conform_filled(c, bytes, 5);
}

/* Only what has been begun is copied. */
static void
take_put_back(struct conform *c, struct baton_window *window, size_t bytes,
              size_t copies)
{
	void *source = source_of(c, bytes);
	struct baton_completion done = { 0 };
	baton_request request = 0;
	int64_t begin = conform_begin();
	uint64_t count = 9;

	fake_memory_hold(true);
	CHECK_OK(c, baton_put_signal(source, bytes, BATON_UINT8, 0, window, 0, 0,
	                             0, 0, c->comm, c->stream, &conform_detached,
	                             &request));
	while (fake_memory_copies() < copies && STILL(c, begin))
		(void)baton_progress(c->comm);
	CHECK_OK(c, baton_cancel(request));
	CHECK_STATUS(c, BATON_ERR_CANCELED,
	             baton_wait(request, conform_patience(c), &done));
	CHECK(c, done.flags & BATON_COMPLETION_LENT);
	fake_memory_end(0);
	for (int i = 0; i < 10; i++)
		(void)baton_progress(c->comm);
	CHECK_EQ(c, fake_memory_copies(), copies - 1);
	fake_memory_hold(false);
	while ((done.flags & BATON_COMPLETION_LENT) && STILL(c, begin))
		(void)baton_test(request, &done);
	CHECK_OK(c, baton_release(&request));
	CHECK_OK(c, baton_signal_count(c->comm, 0, 0, 0, &count));
	CHECK_EQ(c, count, 0);
}

/* A put whose copy is under way is lent until the copy has ended, and does not signal. */
static void
a_put_is_taken_back_with_its_copy(struct conform *c)
{
	void *part = conform_message(c, LONG);
	struct baton_window *window = NULL;

	CHECK_OK(c, baton_window_register(part, LONG, c->comm, &window));
	if (c->rank == 0) {
		take_put_back(c, window, 4096, 1);
		take_put_back(c, window, LONG, 2);
	}
	conform_sync(c);
	CHECK_OK(c, baton_window_deregister(window));
}

static void
fail_put(struct conform *c, struct baton_window *window, size_t bytes,
         enum fake_device_call call, unsigned n)
{
	void *source = source_of(c, bytes);
	baton_request request = 0;
	uint64_t count = 9;
	char why[256] = "";

	fake_device_fail_at(call, n, BATON_ERR_CUDA);
	CHECK_OK(c, baton_put_signal(source, bytes, BATON_UINT8, 0, window, 0, 0,
	                             0, 0, c->comm, c->stream, &conform_detached,
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

static void
a_put_whose_copy_fails_ends_so_and_does_not_signal(struct conform *c)
{
	static const enum fake_device_call calls[] = { FAKE_COPY_START,
		                                       FAKE_COPY_TEST };
	void *part = conform_message(c, LONG);
	struct baton_window *window = NULL;

	CHECK_OK(c, baton_window_register(part, LONG, c->comm, &window));
	for (int i = 0; i < 2 && c->rank == 0; i++) {
		fail_put(c, window, 4096, calls[i], 1);
		/* In the middle. */
		fail_put(c, window, LONG, calls[i], 3);
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

/* More channels than there are chunks have puts of pageable memory to copy, both ways. */
static void
puts_of_many_channels_share_the_chunks(struct conform *c)
{
	enum { N = 4 };
	const size_t room = 1 * MIB + 77;
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	baton_request requests[2 * N] = { 0 };
	struct baton_window *in, *out;
	struct baton_comm *first;
	void *there, *here;

	options.contexts_max = 2 * N;
	first = conform_exchange(c, &options);
	there = conform_message(c, N * room);
	here = conform_alloc(c, N * room);
	CHECK_OK(c, baton_window_register(there, N * room, c->comm, &in));
	CHECK_OK(c, baton_window_register(here, N * room, c->comm, &out));
	for (int i = 0; i < 2 * N; i++) {
		size_t at = (size_t)(i / 2) * room;
		void *source = conform_filled(c, room, (unsigned)i);

		if (i % 2 == 0) {
			void *pageable = conform_alloc(c, room);

			conform_copy(c, pageable, source, room);
			source = pageable;
		}
		CHECK_OK(c, baton_put_signal(source, room, BATON_UINT8, c->rank,
		                             i % 2 ? out : in, at, 0, i, 0, c->comm,
		                             c->stream, &conform_detached,
		                             &requests[i]));
	}
	FINISH_ALL(c, requests, 2 * N);
	for (unsigned i = 0; i < 2 * N; i++)
		CHECK_FILLED(c, (char *)(i % 2 ? here : there) + i / 2 * room,
		             room, i);
	CHECK_OK(c, baton_window_deregister(out));
	CHECK_OK(c, baton_window_deregister(in));
	RESTORE(c, first);
}

static const struct conform_case own[] = {
	{ CASE(a_buffer_that_cannot_be_looked_at_refuses_its_call) },
	{ CASE(a_put_is_taken_back_with_its_copy) },
	{ CASE(a_put_whose_copy_fails_ends_so_and_does_not_signal) },
	{ CASE(puts_of_many_channels_share_the_chunks) },
	CASES_END,
};

int
main(int argc, char **argv)
{
	static const struct conform_list owns[] = { { "copies", own },
		                                    { NULL, NULL } };
	static const struct conform_list *const lists[] = { conform_messages,
		                                            conform_onesided,
		                                            owns, NULL };

	return on_fake_device_end(conform_threads_on(
		(struct conform_backend){ .name = "fake-memory",
		                          .memory = &on_fake_memory,
		                          .traits = CONFORM_HOST_ISSUED },
		on_fake_device_open, lists, argc, argv));
}
