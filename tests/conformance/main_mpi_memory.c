/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages over MPI whose buffers are in device memory that faults when the host, and so
 * MPI, touches it: the MPI transport, staged, on the fake asynchronous device.  And windows in
 * that memory, which the processes map from each other. */
#include <string.h>

#include "fake_memory.h"
#include "on_fake_device.h"
#include "runner.h"
#include "shared.h"
#include "testing.h"

#define PART ((size_t)64 * 1024)

static enum baton_status
mpi_create(struct conform *c, const struct baton_comm_options *options,
           struct baton_comm **comm_p)
{
	(void)c;
	return batoni_comm_create_mpi_with(&batoni_fake_device_ops, options,
	                                   comm_p);
}

/* Every rank puts into its right neighbour's part, at its own offset. */
static void
put_around(struct conform *c, struct baton_window *window, const void *part,
           size_t at, unsigned seed)
{
	int left = (c->rank + c->size - 1) % c->size;
	struct baton_wait_signal_desc one = { .op_count = 1, .peer = left };
	void *source = conform_filled(c, 3000, seed + (unsigned)c->rank);
	baton_request requests[2] = { 0, 0 };

	CHECK_OK(c, baton_put_signal(source, 3000, BATON_UINT8,
	                             (c->rank + 1) % c->size, window, at, 0, 0, 0,
	                             c->comm, c->stream, &conform_detached,
	                             &requests[0]));
	CHECK_OK(c, baton_wait_signal(1, &one, c->comm, c->stream, NULL,
	                              &requests[1]));
	FINISH_ALL(c, requests, 2);
	CHECK_FILLED(c, (const char *)part + at, 3000, seed + (unsigned)left);
	conform_sync(c);
}

static void
check_paths(struct conform *c, struct baton_window *window, unsigned others)
{
	for (int i = 0; i < c->size; i++)
		CHECK_EQ(c, baton_window_path(window, i),
		         i == c->rank ? BATON_WINDOW_PATH_DIRECT : others);
}

/* Once, whatever the number of windows. */
static void
device_memory_of_another_process_is_mapped_once(struct conform *c)
{
	struct baton_comm *comms[2] = { c->comm, conform_comm(c, NULL) };
	unsigned char *block = conform_message(c, 3 * PART);
	struct baton_window *windows[3] = { NULL };

	for (unsigned i = 0; i < 3; i++) {
		if (!CHECK_OK(c, baton_window_register(block + i * PART + 24,
		                                       PART - 24, comms[i / 2],
		                                       &windows[i])))
			return;
		check_paths(c, windows[i], BATON_WINDOW_PATH_DIRECT);
		CHECK_EQ(c, batoni_mappings(), c->size - 1);
	}
	put_around(c, windows[0], block + 24, 0, 1);
	put_around(c, windows[1], block + PART + 24, 70, 5);
	CHECK_OK(c, baton_window_deregister(windows[0]));
	put_around(c, windows[1], block + PART + 24, PART - 3024, 9);
	CHECK_OK(c, baton_window_deregister(windows[2]));
	CHECK_OK(c, baton_comm_destroy(comms[1]));
	CHECK_EQ(c, batoni_mappings(), c->size - 1);
	CHECK_OK(c, baton_window_deregister(windows[1]));
	CHECK_EQ(c, batoni_mappings(), 0);
}

/* The next block may get the addresses of the last. */
static void
a_block_that_was_freed_is_mapped_no_more(struct conform *c)
{
	for (unsigned i = 0; i < 4; i++) {
		unsigned char *block = fake_memory_alloc(PART);
		struct baton_window *window = NULL;

		if (!CHECK_OK(c, baton_window_register(block, PART, c->comm,
		                                       &window)))
			return;
		put_around(c, window, block, 8 * i, i);
		CHECK_OK(c, baton_window_deregister(window));
		CHECK_EQ(c, batoni_mappings(), 0);
		fake_memory_free(block);
	}
}

/* Of each rank its own kind, and on each side. */
static void
parts_of_one_window_may_be_of_both_kinds(struct conform *c)
{
	bool host = c->rank % 2 == 1;
	void *block = host ? conform_alloc(c, PART) : conform_message(c, PART);
	struct baton_window *window = NULL;

	if (!CHECK_OK(c, baton_window_register(block, PART, c->comm, &window)))
		return;
	for (int i = 0; i < c->size; i++)
		CHECK_EQ(c, baton_window_path(window, i),
		         i % 2 == 0 || i == c->rank ? BATON_WINDOW_PATH_DIRECT
		                                    : BATON_WINDOW_PATH_MESSAGE);
	for (int i = 1; i < c->size; i += 2)
		CHECK(c, i == c->rank ||
		                 strstr(baton_window_why(window, i),
		                        "of the host, and puts may come from a "
		                        "device"));
	put_around(c, window, block, 0, 3);
	CHECK_OK(c, baton_window_deregister(window));
}

/* It says so when it is shared, or when it is mapped. */
static void
memory_that_cannot_be_mapped_is_reached_by_messages(struct conform *c)
{
	static const enum fake_device_call calls[] = { FAKE_SHARE, FAKE_MAP };
	void *block = conform_message(c, PART);

	for (int i = 0; i < 2; i++) {
		struct baton_window *window = NULL;

		fake_device_fail_at(calls[i], 1, BATON_ERR_UNSUPPORTED);
		if (!CHECK_OK(c, baton_window_register(block, PART, c->comm,
		                                       &window)))
			return;
		/* The first one that is mapped. */
		if (calls[i] == FAKE_SHARE || c->size == 2)
			check_paths(c, window, BATON_WINDOW_PATH_MESSAGE);
		CHECK_EQ(c, baton_window_path(window, c->rank == 0),
		         BATON_WINDOW_PATH_MESSAGE);
		CHECK(c, strstr(baton_window_why(window, c->rank == 0),
		                i ? "could not be mapped: the fake was told"
		                  : "cannot be mapped: the fake was told"));
		CHECK_EQ(c, baton_window_why(window, c->rank)[0], 0);
		put_around(c, window, block, 0, 7);
		CHECK_OK(c, baton_window_deregister(window));
		CHECK_EQ(c, batoni_mappings(), 0);
	}
}

/* On all ranks, and nothing stays. */
static void
a_device_that_fails_refuses_the_window(struct conform *c)
{
	static const enum fake_device_call calls[] = { FAKE_SHARE, FAKE_MAP };
	void *block = conform_message(c, PART);

	for (int i = 0; i < 2; i++) {
		struct baton_window *window = NULL;

		if (c->rank == 1)
			fake_device_fail_at(calls[i], 1, BATON_ERR_CUDA);
		CHECK_STATUS(c, BATON_ERR_CUDA,
		             baton_window_register(block, PART, c->comm,
		                                   &window));
		CHECK(c, strstr(baton_last_error(), "rank 1") ||
		                 strstr(baton_last_error(), "told to fail"));
		CHECK_EQ(c, batoni_mappings(), 0);
		CHECK_OK(c, baton_window_register(block, PART, c->comm, &window));
		put_around(c, window, block, 0, 11);
		CHECK_OK(c, baton_window_deregister(window));
	}
}

/* What is copied stays mapped until then. */
static void
after_an_abort_a_mapping_stays_until_its_copies_end(struct conform *c)
{
	struct baton_comm *comm = conform_comm(c, NULL);
	void *block = conform_message(c, PART), *source = conform_message(c, PART);
	struct baton_window *window = NULL;
	int64_t begin = conform_begin();

	if (!CHECK_OK(c, baton_window_register(block, PART, comm, &window)))
		return;
	fake_memory_hold(true);
	CHECK_OK(c, baton_put_signal(source, PART, BATON_UINT8,
	                             (c->rank + 1) % c->size, window, 0, 0, 0, 0,
	                             comm, c->stream, &conform_detached, NULL));
	while (fake_memory_copies() == 0 && STILL(c, begin))
		(void)baton_progress(comm);
	conform_sync(c);
	CHECK_OK(c, baton_comm_abort(comm));
	CHECK_OK(c, baton_window_deregister(window));
	CHECK_EQ(c, batoni_mappings(), c->size - 1);
	CHECK_EQ(c, fake_memory_copies(), 1);
	fake_memory_hold(false);
	CHECK_OK(c, baton_comm_destroy(comm));
	CHECK_EQ(c, batoni_mappings(), 0);
	CHECK_EQ(c, fake_memory_copies(), 0);
	conform_sync(c);
}

static const struct conform_case own_cases[] = {
	{ CASE(device_memory_of_another_process_is_mapped_once),
	  .ranks_min = 2 },
	{ CASE(a_block_that_was_freed_is_mapped_no_more), .ranks_min = 2 },
	{ CASE(parts_of_one_window_may_be_of_both_kinds), .ranks_min = 2 },
	{ CASE(memory_that_cannot_be_mapped_is_reached_by_messages),
	  .ranks_min = 2 },
	{ CASE(a_device_that_fails_refuses_the_window), .ranks_min = 2 },
	{ CASE(after_an_abort_a_mapping_stays_until_its_copies_end),
	  .ranks_min = 2, .flags = CONFORM_BARE },
	CASES_END,
};

int
main(int argc, char **argv)
{
	static const struct conform_list own[] = { { "shared", own_cases },
		                                   { NULL, NULL } };
	static const struct conform_list *const lists[] = { conform_messages,
		                                            conform_onesided,
		                                            own, NULL };
	const struct conform_backend backend = {
		.name = "mpi-memory",
		.memory = &on_fake_memory,
		.traits = CONFORM_HOST_ISSUED,
		.create = mpi_create,
	};

	fake_memory_forgive();
	return on_fake_device_end(
		conform_processes(backend, lists, argc, argv));
}
