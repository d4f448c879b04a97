/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows, their memory, and how long they live (guarantees 7 and 11).
 *
 * All ranks register a window in each case, also those that have no other part in
 * it.  Where BATON_WINDOW_PATH forces a path that this machine or this memory does
 * not give, registering is refused on all ranks and the case ends there, skipped.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness_onesided.h"

static void
a_hundred_windows_live_at_once(struct conform *c)
{
	enum { N = 100 };
	int to = conform_next(c);
	int from = conform_previous(c);
	struct conform_part parts[N];
	int n = 0;

	while (n < N && OPEN(c, &parts[n], 64 + (size_t)n))
		n++;
	for (int i = 0; i < n; i++) {
		unsigned char *data = conform_filled(c, 64, (unsigned)i);

		CHECK_OK(c, baton_put_signal(data, 64, BATON_UINT8, to,
		                             parts[i].window, (size_t)i, 0, 0, 0,
		                             c->comm, c->stream, NULL, NULL));
	}
	if (n > 0)
		AWAIT(c, from, n, 0, 0);
	for (int i = 0; i < n; i++)
		CHECK_FILLED(c, parts[i].base + i, 64, (unsigned)i);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	/* In another order than they came. */
	for (int i = 0; i < n; i++)
		CLOSE(c, &parts[i % 2 ? n - 1 - i / 2 : i / 2]);
}

static void
windows_come_and_go(struct conform *c)
{
	const int rounds = CONFORM_SANITIZED ? 30 : 200;
	int to = conform_next(c);
	int from = conform_previous(c);
	unsigned char *data = conform_message(c, 5000);
	struct conform_part part;

	for (int i = 0; i < rounds; i++) {
		size_t bytes = 1 + (size_t)i * 61 % 5000;
		baton_request request;

		if (i % 3 == 0 ? !OPEN_PRIVATE(c, &part, bytes) :
		                 !OPEN(c, &part, bytes))
			return;
		conform_write(c, data, bytes, (unsigned)i);
		request = PUT(c, data, bytes, to, part.window, 0, 0, 0,
		              c->stream, NULL);
		FINISH(c, BATON_OK, &request);
		/* What has ended at its source is applied before the window
		 * goes, so it may be looked for afterwards too. */
		if (i % 2) {
			unsigned char *base = part.base;
			bool alloced = part.alloced;

			part.alloced = false;
			CLOSE(c, &part);
			CHECK(c, COUNT(c, from, 0, 0) == (uint64_t)i + 1);
			CHECK_FILLED(c, base, bytes, (unsigned)i);
			if (alloced)
				CHECK_OK(c, baton_mem_free(c->comm, base));
			AWAIT(c, from, 1, 0, 0);
			continue;
		}
		AWAIT(c, from, 1, 0, 0);
		CHECK_FILLED(c, part.base, bytes, (unsigned)i);
		CLOSE(c, &part);
	}
}

/* Several windows in one piece of memory, at odd places. */
static void
windows_may_share_memory(struct conform *c)
{
	int to = conform_next(c);
	int from = conform_previous(c);
	unsigned char *data = conform_filled(c, 1000, 6);
	struct conform_part whole, parts[3];
	int n = 0;

	TAKE(c, &whole, 10000, CONFORM_KIND_ALLOC);
	for (; n < 3 && whole.base; n++) {
		parts[n] = (struct conform_part){
			.base = whole.base + 1234 * n + 7,
			.bytes = 1234,
		};
		if (!REGISTER(c, &parts[n]))
			break;
	}
	for (int i = 0; i < n; i++)
		CHECK_OK(c, baton_put_signal(data, 1000, BATON_UINT8, to,
		                             parts[i].window, 11, 0, 0, 0,
		                             c->comm, c->stream, NULL, NULL));
	if (n > 0)
		AWAIT(c, from, n, 0, 0);
	for (int i = 0; i < n; i++) {
		CHECK_ALL(c, parts[i].base, 11, 0);
		CHECK_FILLED(c, parts[i].base + 11, 1000, 6);
		CHECK_ALL(c, parts[i].base + 1011, 223, 0);
	}
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	for (int i = 0; i < n; i++) {
		if (whole.alloced)
			CHECK_STATUS(c, BATON_ERR_BUSY,
			             baton_mem_free(c->comm, whole.base));
		CLOSE(c, &parts[i]);
	}
	GIVE(c, &whole);
}

/* ---- bounds ------------------------------------------------------------- */

static size_t
size_of(const struct conform *c, int rank)
{
	(void)c;
	return rank % 2 ? 0 : 100 + 1000 * (size_t)rank;
}

/* All ranks put one byte into each part that has any, side by side, so each into a byte of its own:
 * the last ones of the part. */
static void
the_sizes_of_all_parts_are_known(struct conform *c)
{
	const size_t own = 1 + (size_t)c->rank, all = (size_t)c->size;
	unsigned char byte = 7;
	baton_request request = 99;
	struct conform_part part;

	if (!OPEN(c, &part, size_of(c, c->rank)))
		return;
	for (int i = 0; i < c->size; i++)
		CHECK(c, baton_window_size(part.window, i) == size_of(c, i));
	CHECK_EQ(c, baton_window_size(part.window, -1), 0);
	CHECK_EQ(c, baton_window_size(part.window, c->size), 0);
	CHECK_EQ(c, baton_window_size(NULL, 0), 0);
	CHECK_EQ(c, baton_window_path(NULL, 0), 0);
	CHECK_EQ(c, baton_window_path(part.window, -1), 0);
	CHECK_EQ(c, baton_window_path(part.window, c->size), 0);
	/* The peer's size decides, not this rank's own. */
	for (int i = 0; i < c->size; i++) {
		size_t bytes = size_of(c, i);

		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_put_signal(&byte, 1, BATON_UINT8, i,
		                               part.window, bytes, 0, 0, 0,
		                               c->comm, c->stream, NULL,
		                               &request),
		              "offset");
		CHECK(c, request == 99);
		if (bytes > 0)
			CHECK_OK(c, baton_put_signal(&byte, 1, BATON_UINT8, i,
			                             part.window, bytes - own, 0,
			                             0, 0, c->comm, c->stream, NULL,
			                             NULL));
		else
			CHECK_OK(c, baton_put_signal(NULL, 0, BATON_UINT8, i,
			                             part.window, 0, 0, 0, 0,
			                             c->comm, c->stream, NULL,
			                             NULL));
	}
	for (int i = 0; i < c->size; i++)
		AWAIT(c, i, 1, 0, 0);
	if (part.bytes > 0)
		CHECK_ALL(c, part.base + part.bytes - all, all, 7);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CLOSE(c, &part);
}

static void
a_window_of_another_communicator_is_refused(struct conform *c)
{
	struct baton_comm *first = conform_exchange(c, NULL);
	unsigned char byte = 3;
	baton_request request = 99;
	struct conform_part part;

	if (OPEN(c, &part, 100)) {
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_put_signal(&byte, 1, BATON_UINT8, c->rank,
		                               part.window, 0, 0, 0, 0, first,
		                               c->stream, NULL, &request),
		              "window communicator");
		CHECK(c, request == 99);
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_mem_free(first, part.base));
		CLOSE(c, &part);
	}
	RESTORE(c, first);
}

static void
bad_registrations_are_refused_on_all_ranks(struct conform *c)
{
	struct baton_window *window = (struct baton_window *)(void *)&window;
	const struct baton_window *before = window;
	unsigned char *memory = conform_alloc(c, 100);
	void *pointer = &window;

	/* What one rank gives wrong, all are told. */
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_window_register(c->rank == 0 ? NULL : memory, 100,
	                                   c->comm, &window));
	CHECK(c, baton_last_error()[0] != '\0');
	CHECK(c, window == before);
	conform_sync(c);
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_window_register(memory, 100, NULL, &window));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_mem_alloc(c->comm, 0, &pointer));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_mem_alloc(NULL, 8, &pointer));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_mem_alloc(c->comm, 8, NULL));
	CHECK_STATUS(c, BATON_ERR_NOMEM,
	             baton_mem_alloc(c->comm, (size_t)1 << 60, &pointer));
	CHECK(c, pointer == (void *)&window);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_mem_free(c->comm, memory));
	CHECK_OK(c, baton_mem_free(c->comm, NULL));
	CHECK_OK(c, baton_window_deregister(NULL));
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_window_register(memory, 100, c->comm, &window));
	(void)baton_group_end(c->comm);
	conform_sync(c);
	CHECK(c, window == before);
	conform_sound(c);
}

static void
memory_is_zero_and_aligned(struct conform *c)
{
	unsigned char *memory[20] = { NULL };

	for (int i = 0; i < 20; i++) {
		size_t bytes = (size_t)1 << i;
		void *pointer = NULL;

		if (!CHECK_OK(c, baton_mem_alloc(c->comm, bytes, &pointer)))
			continue;
		memory[i] = pointer;
		CHECK_EQ(c, (uintptr_t)pointer % 4096, 0);
		CHECK_ALL(c, memory[i], bytes, 0);
		conform_set(c, memory[i], 0xaa, bytes);
	}
	for (int i = 0; i < 20; i += 2)
		CHECK_OK(c, baton_mem_free(c->comm, memory[i]));
	for (int i = 1; i < 20; i += 2) {
		CHECK_ALL(c, memory[i], (size_t)1 << i, 0xaa);
		CHECK_OK(c, baton_mem_free(c->comm, memory[i]));
	}
}

/* ---- lifetimes ---------------------------------------------------------- */

static void
deregister_is_busy_while_a_put_is_pending(struct conform *c)
{
	unsigned char *data = conform_filled(c, 64 * KIB, 7);
	baton_request request = 0;
	struct conform_part part;

	if (!OPEN(c, &part, 64 * KIB))
		return;
	if (c->rank == 0) {
		conform_gate_launch(c, 0, c->stream);
		request = PUT(c, data, 64 * KIB, c->size - 1, part.window, 0, 0,
		              0, c->stream, NULL);
	}
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(c, BATON_ERR_BUSY,
		             baton_window_deregister(part.window));
		CHECK(c, baton_last_error()[0] != '\0');
	}
	CHECK_EQ(c, baton_window_size(part.window, 0), 64 * KIB);
	conform_sync(c);
	if (c->rank == 0)
		conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &request);
	if (c->rank == c->size - 1) {
		AWAIT(c, 0, 1, 0, 0);
		CHECK_FILLED(c, part.base, 64 * KIB, 7);
	}
	CLOSE(c, &part);
}

static void
windows_and_memory_keep_their_communicator(struct conform *c)
{
	struct baton_comm *first = conform_exchange(c, NULL);
	void *memory = NULL;
	struct conform_part part;

	CHECK_OK(c, baton_mem_alloc(c->comm, 100, &memory));
	CHECK_REFUSED(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm), "1");
	CHECK_OK(c, baton_mem_free(c->comm, memory));
	if (OPEN(c, &part, 100)) {
		CHECK_STATUS(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm));
		if (part.alloced)
			CHECK_STATUS(c, BATON_ERR_BUSY,
			             baton_mem_free(c->comm, part.base));
		CHECK_OK(c, baton_comm_status(c->comm));
		conform_sync(c);
		CLOSE(c, &part);
	}
	RESTORE(c, first);
}

/* ---- paths -------------------------------------------------------------- */

static unsigned
forced_path(void)
{
	const char *path = getenv("BATON_WINDOW_PATH");

	if (!path)
		return 0;
	return strcmp(path, "direct") == 0  ? BATON_WINDOW_PATH_DIRECT :
	       strcmp(path, "vmwrite") == 0 ? BATON_WINDOW_PATH_VMWRITE :
	       strcmp(path, "native") == 0  ? BATON_WINDOW_PATH_NATIVE :
	                                      BATON_WINDOW_PATH_MESSAGE;
}

static void
every_peer_has_one_path(struct conform *c)
{
	struct baton_comm_info info = { .size = sizeof(info) };
	unsigned all = 0;
	struct conform_part part;

	if (!OPEN(c, &part, 100))
		return;
	for (int i = 0; i < c->size; i++) {
		unsigned path = baton_window_path(part.window, i);

		CHECK(c, path != 0 && (path & (path - 1)) == 0);
		all |= path;
		if (forced_path() && i != c->rank)
			CHECK_EQ(c, path, forced_path());
	}
	CHECK_OK(c, baton_comm_query(c->comm, &info));
	CHECK_EQ(c, info.window_paths, all);
	CLOSE(c, &part);
	CHECK_OK(c, baton_comm_query(c->comm, &info));
	CHECK_EQ(c, info.window_paths, 0);
}

/* Names in /dev/shm with ours in them.  (One is there for a moment while "baton doctor" looks, which other
 * tests run beside this one.) */
static int
names_left(struct conform *c)
{
	DIR *directory = opendir("/dev/shm");
	struct dirent *entry;
	int n = 0;

	if (!directory)
		return 0;
	while ((entry = readdir(directory)))
		if (strstr(entry->d_name, "baton") &&
		    strncmp(entry->d_name, "baton-doctor-", 13) != 0) {
			printf("    /dev/shm/%s\n", entry->d_name);
			n++;
		}
	closedir(directory);
	(void)c;
	return n;
}

static void
windows_have_no_names(struct conform *c)
{
	struct conform_part part;

	if (!OPEN(c, &part, MIB))
		return;
	conform_sync(c);
	CHECK_EQ(c, names_left(c), 0);
	conform_sync(c);
	CLOSE(c, &part);
	CHECK_EQ(c, names_left(c), 0);
}

const struct conform_case conform_window[] = {
	{ CASE(a_hundred_windows_live_at_once), .needs = BATON_CAP_WINDOWS },
	{ CASE(windows_come_and_go), .needs = BATON_CAP_WINDOWS },
	{ CASE(windows_may_share_memory), .needs = BATON_CAP_WINDOWS },
	{ CASE(the_sizes_of_all_parts_are_known), .needs = BATON_CAP_WINDOWS },
	{ CASE(a_window_of_another_communicator_is_refused),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(bad_registrations_are_refused_on_all_ranks),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(memory_is_zero_and_aligned), .needs = BATON_CAP_WINDOWS },
	{ CASE(deregister_is_busy_while_a_put_is_pending),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(windows_and_memory_keep_their_communicator),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(every_peer_has_one_path), .needs = BATON_CAP_WINDOWS },
	{ CASE(windows_have_no_names), .needs = BATON_CAP_WINDOWS },
	CASES_END,
};
