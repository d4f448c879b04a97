/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows over local communicators, each rank on a thread of its own.  CTest runs
 * this program once for each path that BATON_WINDOW_PATH can force.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "core.h"
#include "mem.h"
#include "run_tests.h"
#include "window.h"

#define RANKS 3
#define PART 4096

static struct baton_comm *comms[RANKS];

static void
setup_with(int64_t timeout_ns)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.progress = BATON_PROGRESS_CALLS;
	options.requests_max = 16;
	options.timeout_ns = timeout_ns;
	ck_assert_int_eq(baton_comm_create_local(RANKS, &options, comms),
	                 BATON_OK);
}

static void
setup(void)
{
	setup_with(0);
}

static void
destroy(void)
{
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
}

static void
teardown(void)
{
	destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

/* ---- ranks on threads ---- */

struct rank {
	int number;
	struct baton_comm *comm;
	void *base;
	size_t bytes;
	struct baton_window *window, *window_other;
	enum baton_status status;
	char why[256];
	int times;
	void (*body)(struct rank *rank);
};

static struct rank ranks[RANKS];

static void *
run_rank(void *arg)
{
	struct rank *rank = arg;

	rank->body(rank);
	strncpy(rank->why, baton_last_error(), sizeof(rank->why) - 1);
	return NULL;
}

static void
on_ranks(int first, int count, void (*body)(struct rank *rank))
{
	pthread_t threads[RANKS];

	for (int i = first; i < first + count; i++) {
		ranks[i].number = i;
		ranks[i].comm = comms[i];
		ranks[i].body = body;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_rank,
		                                &ranks[i]),
		                 0);
	}
	for (int i = first; i < first + count; i++)
		pthread_join(threads[i], NULL);
}

static void
on_all(void (*body)(struct rank *rank))
{
	on_ranks(0, RANKS, body);
}

static void
assert_all(enum baton_status status)
{
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(ranks[i].status == status, "rank %d: %s, %s", i,
		              baton_status_name(ranks[i].status), ranks[i].why);
}

static void
do_register(struct rank *rank)
{
	rank->status = baton_window_register(rank->base, rank->bytes,
	                                     rank->comm, &rank->window);
}

static void
do_deregister(struct rank *rank)
{
	rank->status = baton_window_deregister(rank->window);
}

static void
register_and_deregister(struct rank *rank)
{
	do_register(rank);
	if (rank->status == BATON_OK)
		do_deregister(rank);
}

/* ---- memory ---- */

static void
alloc_parts(void)
{
	memset(ranks, 0, sizeof(ranks));
	for (int i = 0; i < RANKS; i++) {
		ranks[i].bytes = PART;
		ck_assert_int_eq(baton_mem_alloc(comms[i], PART,
		                                 &ranks[i].base),
		                 BATON_OK);
	}
}

static void
free_parts(void)
{
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(baton_mem_free(comms[i], ranks[i].base),
		                 BATON_OK);
}

START_TEST(memory_is_zero_and_aligned_to_a_page)
{
	static const size_t sizes[] = {1, 4095, 4097, 1 << 20};
	char *memory;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert_int_eq(baton_mem_alloc(comms[0], sizes[i],
		                                 (void **)&memory),
		                 BATON_OK);
		ck_assert_uint_eq((uintptr_t)memory % 4096, 0);
		/* The first byte is 0, and each is like the one before. */
		ck_assert_int_eq(memory[0], 0);
		ck_assert_int_eq(memcmp(memory, memory + 1, sizes[i] - 1), 0);
		memset(memory, 1, sizes[i]);
		ck_assert_int_eq(baton_mem_free(comms[0], memory), BATON_OK);
	}
}
END_TEST

START_TEST(memory_calls_refuse_what_is_not_theirs)
{
	void *memory = NULL;
	char other;

	ck_assert_int_eq(baton_mem_alloc(NULL, 1, &memory), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_mem_alloc(comms[0], 0, &memory),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_mem_alloc(comms[0], 1, NULL), BATON_ERR_INVALID);
	ck_assert_ptr_null(memory);
	ck_assert_int_eq(baton_mem_alloc(comms[0], 100, &memory), BATON_OK);
	ck_assert_int_eq(baton_mem_free(comms[0], &other), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_mem_free(comms[0], (char *)memory + 1),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_mem_free(comms[1], memory), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_mem_free(NULL, memory), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_mem_free(comms[0], NULL), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_ERR_BUSY);
	ck_assert_int_eq(baton_mem_free(comms[0], memory), BATON_OK);
	ck_assert_int_eq(baton_mem_free(comms[0], memory), BATON_ERR_INVALID);
}
END_TEST

START_TEST(memory_that_is_not_there_is_said)
{
	void *memory = NULL;

	batoni_mem_fail_at(1);
	ck_assert_int_eq(baton_mem_alloc(comms[0], 1, &memory),
	                 BATON_ERR_NOMEM);
	/* No machine has that much. */
	ck_assert_int_eq(baton_mem_alloc(comms[0], (size_t)1 << 60, &memory),
	                 BATON_ERR_NOMEM);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_mem_alloc: "));
	ck_assert_ptr_null(memory);
}
END_TEST

/* ---- registering ---- */

START_TEST(sizes_of_all_ranks_are_known_and_may_differ)
{
	unsigned forced = batoni_config()->window_path;
	unsigned path = forced ? forced : BATON_WINDOW_PATH_DIRECT;
	struct baton_comm_info info = {.size = sizeof(info)};

	alloc_parts();
	for (int i = 0; i < RANKS; i++)
		ranks[i].bytes = (size_t)i * 100;
	on_all(do_register);
	assert_all(BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		const struct baton_window *window = ranks[i].window;

		for (int peer = 0; peer < RANKS; peer++) {
			ck_assert_uint_eq(baton_window_size(window, peer),
			                  (size_t)peer * 100);
			ck_assert_uint_eq(baton_window_path(window, peer),
			                  path);
		}
		ck_assert_uint_eq(baton_window_size(window, -1), 0);
		ck_assert_uint_eq(baton_window_size(window, RANKS), 0);
		for (int peer = 0; peer < RANKS; peer++)
			ck_assert_str_eq(baton_window_why(window, peer),
			                 forced && forced != BATON_WINDOW_PATH_DIRECT
			                         ? "BATON_WINDOW_PATH forces it"
			                         : "");
		ck_assert_str_eq(baton_window_why(window, RANKS), "");
		ck_assert_str_eq(baton_window_why(NULL, 0), "");
		ck_assert_uint_eq(baton_window_path(window, -1), 0);
		ck_assert_uint_eq(baton_window_path(window, RANKS), 0);
		ck_assert_int_eq(baton_comm_query(comms[i], &info), BATON_OK);
		ck_assert_uint_eq(info.window_paths, path);
	}
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_ERR_BUSY);
	on_all(do_deregister);
	assert_all(BATON_OK);
	ck_assert_int_eq(baton_comm_query(comms[0], &info), BATON_OK);
	ck_assert_uint_eq(info.window_paths, 0);
	free_parts();
	ck_assert_uint_eq(baton_window_size(NULL, 0), 0);
	ck_assert_uint_eq(baton_window_path(NULL, 0), 0);
	ck_assert_int_eq(baton_window_deregister(NULL), BATON_OK);
}
END_TEST

START_TEST(any_memory_and_none_will_do)
{
	static char parts[RANKS][64];

	memset(ranks, 0, sizeof(ranks));
	for (int i = 0; i < RANKS; i++) {
		ranks[i].base = parts[i];
		ranks[i].bytes = sizeof(parts[i]);
	}
	ranks[1].base = NULL;
	ranks[1].bytes = 0;
	on_all(do_register);
	assert_all(BATON_OK);
	ck_assert_uint_eq(baton_window_size(ranks[0].window, 1), 0);
	ck_assert_uint_eq(baton_window_size(ranks[1].window, 2), 64);
	on_all(do_deregister);
	assert_all(BATON_OK);
}
END_TEST

START_TEST(nothing_is_written_into_a_process_that_cannot_be_held)
{
	unsigned forced = batoni_config()->window_path;
	struct batoni_peer *peer = &comms[0]->transport->peers[1];
	static char parts[RANKS][64];

	memset(ranks, 0, sizeof(ranks));
	for (int i = 0; i < RANKS; i++) {
		ranks[i].base = parts[i];
		ranks[i].bytes = sizeof(parts[i]);
	}
	/* It can be written into, but nobody would notice that it has ended. */
	peer->within = false;
	peer->pid = getpid();
	peer->pidfd = -1;
	on_all(do_register);
	if (forced == BATON_WINDOW_PATH_DIRECT ||
	    forced == BATON_WINDOW_PATH_VMWRITE) {
		assert_all(BATON_ERR_UNSUPPORTED);
	} else {
		assert_all(BATON_OK);
		ck_assert_uint_eq(baton_window_path(ranks[0].window, 1),
		                  BATON_WINDOW_PATH_MESSAGE);
		on_all(do_deregister);
		assert_all(BATON_OK);
	}
	peer->within = true;
}
END_TEST

/* Rank 1 reaches everybody directly, and is reached by messages. */
START_TEST(a_count_looks_for_messages_where_own_puts_are_direct)
{
	unsigned forced = batoni_config()->window_path;
	static char parts[RANKS][64];
	baton_request request = 0;
	uint64_t count = 0;

	if (forced && forced != BATON_WINDOW_PATH_MESSAGE)
		return;
	memset(ranks, 0, sizeof(ranks));
	for (int i = 0; i < RANKS; i++) {
		ranks[i].base = parts[i];
		ranks[i].bytes = sizeof(parts[i]);
	}
	comms[0]->transport->peers[1].within = false;
	on_all(do_register);
	comms[0]->transport->peers[1].within = true;
	assert_all(BATON_OK);
	atomic_store(&comms[1]->onesided->window_paths, BATON_WINDOW_PATH_DIRECT);
	ck_assert_int_eq(baton_put_signal("seven", 6, BATON_UINT8, 1,
	                                  ranks[0].window, 0, 0, 0, 0, comms[0],
	                                  NULL, NULL, &request),
	                 BATON_OK);
	/* Nothing else makes passes. */
	for (int i = 0; i < 10 && count == 0; i++)
		ck_assert_int_eq(baton_signal_count(comms[1], 0, 0, 0, &count),
		                 BATON_OK);
	ck_assert_uint_eq(count, 1);
	ck_assert_str_eq(parts[1], "seven");
	ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
	on_all(do_deregister);
	assert_all(BATON_OK);
}
END_TEST

/* Rank 1's is at the end of its memory, or its beginning, and goes beyond it or not. */
START_TEST(a_part_lies_in_memory_as_a_whole)
{
	alloc_parts();
	for (size_t i = 0; i < 4; i++) {
		char *base = ranks[1].base;
		size_t beyond = i % 2;

		ranks[1].base = i < 2 ? base + PART - 100 : base - beyond;
		ranks[1].bytes = 100 + beyond;
		on_all(do_register);
		ranks[1].base = base;
		assert_all(beyond ? BATON_ERR_INVALID : BATON_OK);
		if (!beyond) {
			ck_assert_int_eq(baton_mem_free(comms[1], base),
			                 BATON_ERR_BUSY);
			on_all(do_deregister);
			assert_all(BATON_OK);
			continue;
		}
		ck_assert_ptr_nonnull(strstr(ranks[1].why, "101 bytes at"));
		ck_assert_ptr_nonnull(strstr(ranks[1].why, "partly in memory"));
	}
	free_parts();
}
END_TEST

static void
again_and_again(struct rank *rank)
{
	for (rank->times = 0; rank->times < 100; rank->times++) {
		do_register(rank);
		if (rank->status != BATON_OK)
			return;
		do_deregister(rank);
		if (rank->status != BATON_OK)
			return;
	}
}

START_TEST(windows_come_and_go)
{
	alloc_parts();
	on_all(again_and_again);
	assert_all(BATON_OK);
	ck_assert_int_eq(ranks[0].times, 100);
	free_parts();
}
END_TEST

static void
two_at_once(struct rank *rank)
{
	char *half = (char *)rank->base + PART / 2;

	do_register(rank);
	if (rank->status != BATON_OK)
		return;
	rank->status = baton_window_register(half, PART / 2, rank->comm,
	                                     &rank->window_other);
}

static void
end_other(struct rank *rank)
{
	rank->status = baton_window_deregister(rank->window_other);
}

START_TEST(memory_stays_while_any_window_is_in_it)
{
	alloc_parts();
	on_all(two_at_once);
	assert_all(BATON_OK);
	ck_assert_int_eq(baton_mem_free(comms[0], ranks[0].base),
	                 BATON_ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), " 2 registered windows lie in"));
	on_all(do_deregister);
	assert_all(BATON_OK);
	ck_assert_int_eq(baton_mem_free(comms[0], ranks[0].base),
	                 BATON_ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), " 1 registered window lies in"));
	on_all(end_other);
	assert_all(BATON_OK);
	free_parts();
}
END_TEST

/* ---- refusals ---- */

static void
register_nowhere(struct rank *rank)
{
	rank->status = baton_window_register(
		rank->base, rank->bytes, rank->comm,
		rank->number == 1 ? NULL : &rank->window);
}

START_TEST(a_rank_that_is_refused_tells_the_others)
{
	alloc_parts();
	on_all(register_nowhere);
	assert_all(BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(ranks[0].why, "rank 1"));
	ck_assert_ptr_nonnull(strstr(ranks[1].why, "window_p"));
	for (int i = 0; i < 2; i++) {
		void *base = ranks[2].base;
		size_t bytes = ranks[2].bytes;

		ranks[2].base = i ? (void *)(UINTPTR_MAX - 10) : NULL;
		on_all(do_register);
		assert_all(BATON_ERR_INVALID);
		ck_assert_ptr_nonnull(strstr(ranks[0].why, "rank 2"));
		ck_assert_ptr_nonnull(strstr(ranks[2].why, "bytes"));
		ranks[2].base = base;
		ranks[2].bytes = bytes;
	}
	/* Nothing stays of it. */
	on_all(do_register);
	assert_all(BATON_OK);
	on_all(do_deregister);
	assert_all(BATON_OK);
	free_parts();
}
END_TEST

/* Whichever rank it is, and the boards of exchanges too. */
START_TEST(without_memory_no_rank_has_a_window)
{
	unsigned long n = 0;

	alloc_parts();
	do {
		batoni_mem_fail_at(++n);
		on_all(do_register);
		assert_all(ranks[0].status);
	} while (ranks[0].status == BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	assert_all(BATON_OK);
	/* A window of each rank, and a table for each of two exchanges. */
	ck_assert_uint_gt(n, RANKS + 2);
	on_all(do_deregister);
	assert_all(BATON_OK);
	free_parts();
}
END_TEST

START_TEST(a_group_keeps_collective_calls_out)
{
	alloc_parts();
	ck_assert_int_eq(baton_group_begin(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_window_register(ranks[0].base, PART, comms[0],
	                                       &ranks[0].window),
	                 BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "group"));
	ck_assert_int_eq(baton_group_end(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_window_register(ranks[0].base, PART, NULL,
	                                       &ranks[0].window),
	                 BATON_ERR_INVALID);
	free_parts();
}
END_TEST

/* ---- puts ---- */

static enum baton_status
put_now(struct rank *rank, int peer, const void *from, size_t bytes, size_t offset)
{
	baton_request request;
	enum baton_status status;

	status = baton_put_signal(from, bytes, BATON_UINT8, peer, rank->window,
	                          offset, 0, 0, 0, rank->comm, NULL, NULL,
	                          &request);
	return status == BATON_OK ? baton_finish(&request, -1, NULL) : status;
}

/* Long ones travel apart from their header; the last ones are not waited for. */
static void
put_to_all_and_leave(struct rank *rank)
{
	static const size_t size = 40000;
	unsigned char *data = malloc(size);

	do_register(rank);
	memset(data, rank->number + 1, size);
	for (int peer = 0; peer < RANKS && rank->status == BATON_OK; peer++)
		rank->status = put_now(rank, peer, data, size,
		                       size * (size_t)rank->number);
	if (rank->status == BATON_OK)
		do_deregister(rank);
	free(data);
}

START_TEST(puts_that_have_ended_are_there_when_the_window_is_gone)
{
	memset(ranks, 0, sizeof(ranks));
	for (int i = 0; i < RANKS; i++) {
		ranks[i].bytes = 40000 * RANKS;
		ck_assert_int_eq(baton_mem_alloc(comms[i], ranks[i].bytes,
		                                 &ranks[i].base),
		                 BATON_OK);
	}
	for (int times = 0; times < 10; times++) {
		for (int i = 0; i < RANKS; i++)
			memset(ranks[i].base, 0, ranks[i].bytes);
		on_all(put_to_all_and_leave);
		assert_all(BATON_OK);
		for (int i = 0; i < RANKS; i++) {
			const unsigned char *base = ranks[i].base;
			size_t byte = 0;

			/* Millions: too many for Check to take note of. */
			while (byte < ranks[i].bytes &&
			       base[byte] == byte / 40000 + 1)
				byte++;
			ck_assert_uint_eq(byte, ranks[i].bytes);
		}
	}
	free_parts();
}
END_TEST

START_TEST(pending_puts_of_any_rank_keep_the_window)
{
	static int message, number = 7;
	baton_stream stream;
	baton_request request;

	alloc_parts();
	on_all(do_register);
	assert_all(BATON_OK);
	ck_assert_int_eq(baton_stream_create(comms[1], &stream), BATON_OK);
	ck_assert_int_eq(baton_recv(&message, 1, BATON_INT32, 1, 0, comms[1],
	                            stream, NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_put_signal(&number, 1, BATON_INT32, 0,
	                                  ranks[1].window, 8, 0, 0, 0, comms[1],
	                                  stream, NULL, &request),
	                 BATON_OK);
	for (int times = 0; times < 2; times++) {
		on_all(do_deregister);
		assert_all(BATON_ERR_BUSY);
		for (int i = 0; i < RANKS; i++)
			ck_assert_ptr_nonnull(strstr(ranks[i].why, "rank 1"));
	}
	ck_assert_int_eq(baton_send(&number, 1, BATON_INT32, 1, 0, comms[1],
	                            NULL, NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
	on_all(do_deregister);
	assert_all(BATON_OK);
	ck_assert_int_eq(((int *)ranks[0].base)[2], 7);
	ck_assert_int_eq(baton_stream_destroy(comms[1], stream), BATON_OK);
	free_parts();
}
END_TEST

/* ---- when it breaks ---- */

/* A call that has found the window open, and not yet placed its put. */
START_TEST(a_put_that_is_being_enqueued_keeps_the_window)
{
	alloc_parts();
	on_all(do_register);
	assert_all(BATON_OK);
	atomic_fetch_add(&ranks[1].window->entering, 1);
	on_all(do_deregister);
	assert_all(BATON_ERR_BUSY);
	atomic_fetch_sub(&ranks[1].window->entering, 1);
	on_all(do_deregister);
	assert_all(BATON_OK);
	free_parts();
}
END_TEST

START_TEST(a_second_collective_call_of_a_rank_is_refused)
{
	struct baton_window *second = NULL;
	pthread_t first;

	ranks[0] = (struct rank){.comm = comms[0], .body = do_register};
	ck_assert_int_eq(pthread_create(&first, NULL, run_rank, &ranks[0]), 0);
	while (!atomic_load(&batoni_rma_of(comms[0])->collective))
		sched_yield();
	ck_assert_int_eq(baton_window_register(NULL, 0, comms[0], &second),
	                 BATON_ERR_INVALID);
	ck_assert_ptr_null(second);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "another thread"));
	for (int i = 1; i < RANKS; i++)
		ranks[i] = (struct rank){.number = i};
	on_ranks(1, RANKS - 1, do_register);
	pthread_join(first, NULL);
	assert_all(BATON_OK);
	on_all(do_deregister);
	assert_all(BATON_OK);
}
END_TEST

START_TEST(a_rank_that_does_not_come_breaks_the_others)
{
	destroy();
	setup_with(500000000); /* also time to register under load */
	alloc_parts();
	on_all(do_register);
	assert_all(BATON_OK);
	ranks[0].window_other = ranks[0].window;
	ranks[1].window_other = ranks[1].window;
	on_ranks(0, 2, do_register);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ranks[i].status, BATON_ERR_TIMEOUT);
		ck_assert_int_eq(baton_comm_status(comms[i]),
		                 BATON_ERR_TIMEOUT);
	}
	on_ranks(0, 2, do_register);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ranks[i].status, BATON_ERR_TIMEOUT);
		ck_assert_ptr_nonnull(strstr(ranks[i].why, "500 ms"));
	}
	/* Each goes alone now. */
	on_ranks(0, 2, end_other);
	ck_assert_int_eq(ranks[0].status, BATON_OK);
	ck_assert_int_eq(ranks[1].status, BATON_OK);
	ranks[2].window_other = ranks[2].window;
	on_ranks(2, 1, do_register);
	ck_assert_int_eq(ranks[2].status, BATON_ERR_TIMEOUT);
	on_ranks(2, 1, end_other);
	ck_assert_int_eq(ranks[2].status, BATON_OK);
	free_parts();
}
END_TEST

static void
register_other(struct rank *rank)
{
	rank->status = baton_window_register(rank->base, rank->bytes,
	                                     rank->comm, &rank->window_other);
}

static void
not_the_same(struct rank *rank)
{
	if (rank->number == 1)
		do_deregister(rank);
	else
		register_other(rank);
}

static void
assert_all_say(const char *words)
{
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(strstr(ranks[i].why, words), "rank %d: %s", i,
		              ranks[i].why);
}

static void
swap_windows(struct rank *rank)
{
	struct baton_window *window = rank->window;

	rank->window = rank->window_other;
	rank->window_other = window;
}

START_TEST(ranks_that_call_different_things_are_told_and_nothing_changes)
{
	alloc_parts();
	on_all(do_register);
	assert_all(BATON_OK);
	on_all(not_the_same);
	assert_all(BATON_ERR_INVALID);
	assert_all_say("not all ranks make this call");
	on_all(register_other);
	assert_all(BATON_OK);
	/* The same call, but not for the same window. */
	swap_windows(&ranks[2]);
	on_all(do_deregister);
	assert_all(BATON_ERR_INVALID);
	assert_all_say("for this window");
	swap_windows(&ranks[2]);
	on_all(do_deregister);
	assert_all(BATON_OK);
	on_all(end_other);
	assert_all(BATON_OK);
	free_parts();
}
END_TEST

/* Rank 2 goes; the others were about to register with it. */
START_TEST(a_rank_that_leaves_is_missed_at_once)
{
	alloc_parts();
	ck_assert_int_eq(baton_mem_free(comms[2], ranks[2].base), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comms[2]), BATON_OK);
	comms[2] = NULL;
	on_ranks(0, 2, do_register);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ranks[i].status, BATON_ERR_PEER);
		ck_assert_ptr_nonnull(strstr(ranks[i].why, "has left"));
		ck_assert_int_eq(baton_mem_free(comms[i], ranks[i].base),
		                 BATON_OK);
	}
}
END_TEST

START_TEST(after_an_abort_each_rank_ends_its_windows_alone)
{
	static const int number = 1;
	struct baton_op_options never = BATON_OP_OPTIONS_INIT;
	static int message;
	baton_request request;

	never.timeout_ns = -1;
	alloc_parts();
	on_all(do_register);
	assert_all(BATON_OK);
	ck_assert_int_eq(baton_recv(&message, 1, BATON_INT32, 1, 0, comms[1],
	                            NULL, &never, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_put_signal(&number, 1, BATON_INT32, 0,
	                                  ranks[1].window, 8, 0, 0, 0, comms[1],
	                                  NULL, NULL, &request),
	                 BATON_OK);
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(baton_comm_abort(comms[i]), BATON_OK);
	ck_assert_int_eq(baton_finish(&request, 0, NULL), BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_ERR_BUSY);
	for (int i = RANKS - 1; i >= 0; i--)
		ck_assert_int_eq(baton_window_deregister(ranks[i].window),
		                 BATON_OK);
	ck_assert_int_eq(baton_window_register(ranks[0].base, PART, comms[0],
	                                       &ranks[0].window),
	                 BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_stream_synchronize(comms[1], NULL),
	                 BATON_ERR_ABORTED);
	free_parts();
}
END_TEST

/* Stop a put that is under way, at every stage that its data goes through. */
START_TEST(after_an_abort_nothing_is_written_where_a_window_was)
{
	static char data[4 << 20], part[sizeof(data)];
	baton_request request;

	memset(ranks, 0, sizeof(ranks));
	memset(data, 1, sizeof(data));
	ranks[1].base = part;
	ranks[1].bytes = sizeof(part);
	for (int steps = 0; steps < 6; steps++) {
		if (steps > 0)
			setup();
		on_all(do_register);
		assert_all(BATON_OK);
		ck_assert_int_eq(baton_put_signal(data, sizeof(data), BATON_INT8,
		                                  1, ranks[0].window, 0, 0, 0, 0,
		                                  comms[0], NULL, NULL,
		                                  &request),
		                 BATON_OK);
		for (int i = 0; i < steps; i++)
			baton_progress(comms[0]);
		for (int i = 0; i < RANKS; i++)
			ck_assert_int_eq(baton_comm_abort(comms[i]), BATON_OK);
		ck_assert_int_eq(baton_window_deregister(ranks[1].window),
		                 BATON_OK);
		memset(part, 0, sizeof(part));
		for (int i = 0; i < 8; i++)
			baton_progress(comms[0]);
		/* The first byte is 0, and each is like the one before. */
		ck_assert_int_eq(part[0], 0);
		ck_assert_int_eq(memcmp(part, part + 1, sizeof(part) - 1), 0);
		ck_assert_int_eq(baton_release(&request), BATON_OK);
		(void)baton_stream_synchronize(comms[0], NULL);
		ck_assert_int_eq(baton_window_deregister(ranks[0].window),
		                 BATON_OK);
		ck_assert_int_eq(baton_window_deregister(ranks[2].window),
		                 BATON_OK);
		if (steps < 5)
			destroy();
	}
}
END_TEST

START_TEST(peers_that_have_not_heard_of_an_abort_may_go_on_putting)
{
	static char data[40000];
	baton_request request;

	memset(ranks, 0, sizeof(ranks));
	ranks[1].bytes = sizeof(data);
	ck_assert_int_eq(baton_mem_alloc(comms[1], sizeof(data), &ranks[1].base),
	                 BATON_OK);
	on_all(do_register);
	assert_all(BATON_OK);
	ck_assert_int_eq(baton_comm_abort(comms[1]), BATON_OK);
	ck_assert_int_eq(baton_window_deregister(ranks[1].window), BATON_OK);
	ck_assert_int_eq(baton_mem_free(comms[1], ranks[1].base), BATON_OK);
	ck_assert_int_eq(baton_put_signal(data, sizeof(data), BATON_INT8, 1,
	                                  ranks[0].window, 0, 0, 0, 0, comms[0],
	                                  NULL, NULL, &request),
	                 BATON_OK);
	for (int i = 0; i < 8; i++)
		baton_progress(comms[0]);
	ck_assert_int_eq(baton_comm_abort(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_comm_abort(comms[2]), BATON_OK);
	ck_assert_int_eq(baton_release(&request), BATON_OK);
	(void)baton_stream_synchronize(comms[0], NULL);
	ck_assert_int_eq(baton_window_deregister(ranks[0].window), BATON_OK);
	ck_assert_int_eq(baton_window_deregister(ranks[2].window), BATON_OK);
}
END_TEST

/* More ranks than a line of memory has words; all try at once whether they may
 * write. */
START_TEST(many_ranks_try_vmwrite_in_words_of_their_own)
{
	enum { MANY = 12 };
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *many[MANY];
	struct rank each[MANY];
	pthread_t threads[MANY];
	const _Atomic uint64_t *words;

	options.progress = BATON_PROGRESS_CALLS;
	options.requests_max = 4;
	ck_assert_int_eq(baton_comm_create_local(MANY, &options, many),
	                 BATON_OK);
	words = batoni_onesided_words(many[0]->transport->peers[0].segment);
	memset(each, 0, sizeof(each));
	for (int i = 0; i < MANY; i++) {
		each[i].comm = many[i];
		each[i].base = &each[i];
		each[i].bytes = sizeof(each[i]);
		each[i].body = register_and_deregister;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_rank,
		                                &each[i]),
		                 0);
	}
	for (int i = 0; i < MANY; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < MANY; i++) {
		if (batoni_config()->window_path == BATON_WINDOW_PATH_VMWRITE &&
		    each[i].status == BATON_OK)
			ck_assert_uint_eq((uint32_t)atomic_load(&words[i]),
			                  (uint32_t)i + 1);
		ck_assert_int_eq(each[i].status, each[0].status);
		ck_assert_int_eq(baton_comm_destroy(many[i]), BATON_OK);
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		memory_is_zero_and_aligned_to_a_page,
		memory_calls_refuse_what_is_not_theirs,
		memory_that_is_not_there_is_said,
		sizes_of_all_ranks_are_known_and_may_differ,
		any_memory_and_none_will_do,
		nothing_is_written_into_a_process_that_cannot_be_held,
		a_count_looks_for_messages_where_own_puts_are_direct,
		a_part_lies_in_memory_as_a_whole,
		windows_come_and_go,
		memory_stays_while_any_window_is_in_it,
		a_rank_that_is_refused_tells_the_others,
		without_memory_no_rank_has_a_window,
		a_group_keeps_collective_calls_out,
		puts_that_have_ended_are_there_when_the_window_is_gone,
		pending_puts_of_any_rank_keep_the_window,
		a_put_that_is_being_enqueued_keeps_the_window,
		a_second_collective_call_of_a_rank_is_refused,
		a_rank_that_does_not_come_breaks_the_others,
		ranks_that_call_different_things_are_told_and_nothing_changes,
		a_rank_that_leaves_is_missed_at_once,
		after_an_abort_each_rank_ends_its_windows_alone,
		after_an_abort_nothing_is_written_where_a_window_was,
		peers_that_have_not_heard_of_an_abort_may_go_on_putting,
		many_ranks_try_vmwrite_in_words_of_their_own,
	};

	return RUN_TESTS_WITH("window", tests, setup, teardown);
}
