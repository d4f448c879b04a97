/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "mem.h"
#include "run_tests.h"
#include "scripted_transport.h"

static struct scripted transport;
static struct baton_comm *comm;
static baton_stream s;
static uint64_t now;

static uint64_t
injected(void)
{
	return now;
}

static void
setup(void)
{
	now = 1000;
	batoni_clock_set(injected);
	scripted_init(&transport);
	comm = scripted_comm(&transport, NULL);
	s = scripted_stream(comm);
}

static void
teardown(void)
{
	scripted_close(&transport, comm);
	scripted_stream_close(s);
	batoni_clock_set(NULL);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

/* n receives in flight, of tags 0 to n-1. */
static void
pend(baton_request requests[], int n)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	for (int i = 0; i < n; i++)
		requests[i] = scripted_recv(comm, s, i, &options);
}

static void
let_end(int tag, enum baton_status status)
{
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, tag), 8,
	             status);
}

static void
end_as(int tag, enum baton_status status)
{
	let_end(tag, status);
	baton_progress(comm);
}

static baton_request
stale(void)
{
	baton_request request = scripted_recv(comm, s, 77, NULL), copy = request;

	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	ck_assert_int_eq(baton_release(&request), BATON_OK);
	return copy;
}

/* ---- one request ---- */

START_TEST(test_makes_progress_and_may_be_repeated)
{
	struct baton_completion completion;
	baton_request a;

	pend(&a, 1);
	ck_assert_int_eq(baton_test(a, &completion), BATON_PENDING);
	ck_assert_int_eq(completion.status, BATON_PENDING);
	ck_assert_uint_eq(completion.request, a);
	ck_assert_uint_eq(completion.bytes, 0);
	let_end(0, BATON_OK);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(baton_test(a, &completion), BATON_OK);
		ck_assert_uint_eq(completion.bytes, 8);
		ck_assert_int_eq(baton_test(a, NULL), BATON_OK);
	}
	scripted_assert_ended(a, BATON_OK);
}
END_TEST

START_TEST(test_of_one_that_is_over_makes_no_pass)
{
	baton_request requests[2];
	size_t tests;

	pend(requests, 2);
	end_as(0, BATON_OK);
	tests = atomic_load(&transport.tests);
	ck_assert_int_eq(baton_test(requests[0], NULL), BATON_OK);
	ck_assert_uint_eq(atomic_load(&transport.tests), tests);
}
END_TEST

START_TEST(wait_polls_runs_out_of_time_or_waits_for_ever)
{
	struct baton_completion completion;
	baton_request a;

	pend(&a, 1);
	ck_assert_int_eq(baton_wait(a, 0, &completion), BATON_PENDING);
	ck_assert_int_eq(completion.status, BATON_PENDING);
	ck_assert_int_eq(baton_wait(a, 1, &completion), BATON_PENDING);
	let_end(0, BATON_ERR_PEER);
	ck_assert_int_eq(baton_wait(a, -1, &completion), BATON_ERR_PEER);
	ck_assert_int_eq(completion.status, BATON_ERR_PEER);
	ck_assert_int_eq(baton_wait(a, 0, NULL), BATON_ERR_PEER);
	scripted_assert_ended(a, BATON_ERR_PEER);
}
END_TEST

START_TEST(poll_by_wait_makes_one_pass)
{
	baton_request a;

	pend(&a, 1);
	let_end(0, BATON_OK);
	ck_assert_int_eq(baton_wait(a, 0, NULL), BATON_OK);
	ck_assert_uint_eq(atomic_load(&transport.tests), 1);
	scripted_assert_ended(a, BATON_OK);
}
END_TEST

START_TEST(finish_releases_what_has_ended_only)
{
	struct baton_completion completion;
	baton_request a, copy;

	pend(&a, 1);
	copy = a;
	ck_assert_int_eq(baton_finish(&a, 0, &completion), BATON_PENDING);
	ck_assert_uint_eq(a, copy);
	let_end(0, BATON_ERR_TRUNCATED);
	ck_assert_int_eq(baton_finish(&a, -1, &completion),
	                 BATON_ERR_TRUNCATED);
	ck_assert_uint_eq(completion.request, copy);
	ck_assert_uint_eq(a, BATON_REQUEST_NULL);
	ck_assert_int_eq(baton_test(copy, NULL), BATON_ERR_STALE);
	ck_assert_int_eq(baton_finish(&copy, -1, NULL), BATON_ERR_STALE);
	ck_assert_uint_ne(copy, BATON_REQUEST_NULL);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(finish_of_one_that_is_over_releases_it)
{
	baton_request a;

	pend(&a, 1);
	end_as(0, BATON_OK);
	ck_assert_int_eq(baton_finish(&a, 0, NULL), BATON_OK);
	ck_assert_uint_eq(a, BATON_REQUEST_NULL);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(handles_tell_that_they_are_stale)
{
	baton_request old = stale(), made_up = old ^ 0xfffff, copy = old;
	baton_request again = scripted_recv(comm, s, 1, NULL);
	struct baton_completion completion = {.status = BATON_OK};
	char text[16] = "kept";

	ck_assert_uint_ne(old, again);
	ck_assert_int_eq(baton_test(old, &completion), BATON_ERR_STALE);
	ck_assert_int_eq(completion.status, BATON_OK);
	ck_assert_int_eq(baton_wait(old, -1, &completion), BATON_ERR_STALE);
	ck_assert_int_eq(baton_cancel(old), BATON_ERR_STALE);
	ck_assert_int_eq(baton_release(&copy), BATON_ERR_STALE);
	ck_assert_uint_eq(copy, old);
	ck_assert_int_eq(baton_request_error(old, text, sizeof(text)),
	                 BATON_ERR_STALE);
	ck_assert_str_eq(text, "kept");
	ck_assert_int_eq(baton_stream_wait(comm, s, old), BATON_ERR_STALE);
	ck_assert_int_eq(baton_test(made_up, NULL), BATON_ERR_STALE);
	ck_assert_int_eq(baton_test(UINT64_MAX, NULL), BATON_ERR_STALE);
	ck_assert_int_eq(baton_test(1, NULL), BATON_ERR_STALE);
	scripted_assert_pending(again);
	ck_assert_int_eq(baton_cancel(again), BATON_OK);
	scripted_assert_ended(again, BATON_ERR_CANCELED);
}
END_TEST

START_TEST(null_handle_and_null_arguments_are_invalid)
{
	baton_request null = BATON_REQUEST_NULL;
	char text[16];

	ck_assert_int_eq(baton_test(null, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_wait(null, 0, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_finish(&null, 0, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_finish(NULL, 0, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_cancel(null), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_release(&null), BATON_OK);
	ck_assert_int_eq(baton_release(NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_stream_wait(comm, s, null), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_request_error(null, text, sizeof(text)),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_request_error(1, NULL, 4), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_request_error(1, text, 0), BATON_ERR_INVALID);
}
END_TEST

START_TEST(handles_of_a_destroyed_communicator_never_fit_another)
{
	struct scripted other_transport;
	baton_request old[3];

	for (int i = 0; i < 3; i++) {
		struct baton_comm *other;

		scripted_init(&other_transport);
		other = scripted_comm(&other_transport, NULL);
		old[i] = scripted_recv(other, s, 1, NULL);
		for (int j = 0; j < i; j++) {
			ck_assert_uint_ne(old[i], old[j]);
			ck_assert_int_eq(baton_test(old[j], NULL),
			                 BATON_ERR_STALE);
		}
		scripted_close(&other_transport, other);
		ck_assert_int_eq(baton_test(old[i], NULL), BATON_ERR_STALE);
	}
}
END_TEST

START_TEST(error_text_is_cut_and_always_terminated)
{
	char text[8], whole[256];
	baton_request requests[3];

	pend(requests, 3);
	ck_assert_int_eq(baton_request_error(requests[0], text, sizeof(text)),
	                 BATON_OK);
	ck_assert_str_eq(text, "");
	end_as(0, BATON_OK);
	end_as(1, BATON_ERR_TRUNCATED);
	ck_assert_int_eq(baton_request_error(requests[0], text, sizeof(text)),
	                 BATON_OK);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(baton_request_error(requests[1], whole, sizeof(whole)),
	                 BATON_OK);
	ck_assert_ptr_nonnull(strstr(whole, "recv from peer 1, tag 1, 8 bytes"));
	ck_assert_ptr_nonnull(strstr(whole, "BATON_ERR_TRUNCATED"));
	ck_assert_int_eq(baton_request_error(requests[1], text, sizeof(text)),
	                 BATON_OK);
	ck_assert_uint_eq(strlen(text), sizeof(text) - 1);
	ck_assert_int_eq(strncmp(text, whole, sizeof(text) - 1), 0);
	ck_assert_int_eq(baton_request_error(requests[1], text, 1), BATON_OK);
	ck_assert_str_eq(text, "");
}
END_TEST

static void
assert_stamps(baton_request request, uint64_t enqueued_ns, uint64_t armed_ns,
              uint64_t completed_ns)
{
	struct baton_completion completion = {.armed_ns = 1};

	ck_assert_int_eq(baton_test(request, &completion), BATON_OK);
	ck_assert_uint_eq(completion.enqueued_ns, enqueued_ns);
	ck_assert_uint_eq(completion.armed_ns, armed_ns);
	ck_assert_uint_eq(completion.completed_ns, completed_ns);
}

START_TEST(stamps_are_those_of_the_injected_clock)
{
	struct baton_comm_options options = scripted_options();
	struct scripted timed_transport;
	struct baton_comm *timed;
	baton_request a, b;

	options.timestamps = true;
	scripted_init(&timed_transport);
	timed = scripted_comm(&timed_transport, &options);
	a = scripted_recv(timed, s, 1, NULL);
	now = 2000;
	b = scripted_recv(timed, s, 2, NULL);
	now = 3000;
	scripted_end(&timed_transport,
	             scripted_live(&timed_transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	baton_progress(timed);
	assert_stamps(a, 1000, 1000, 3000);
	now = 4000;
	scripted_end(&timed_transport,
	             scripted_live(&timed_transport, BATONI_RECV, 2), 8,
	             BATON_OK);
	baton_progress(timed);
	assert_stamps(b, 2000, 3000, 4000);
	/* One that ends within the call has them too. */
	timed_transport.issue = BATON_OK;
	a = scripted_send(timed, s, 1, NULL);
	assert_stamps(a, 4000, 4000, 4000);
	scripted_close(&timed_transport, timed);
}
END_TEST

START_TEST(without_the_option_there_are_no_stamps)
{
	baton_request a;

	pend(&a, 1);
	end_as(0, BATON_OK);
	assert_stamps(a, 0, 0, 0);
}
END_TEST

/* ---- many requests ---- */

START_TEST(wait_any_gives_the_lowest_that_has_ended)
{
	struct baton_completion completion;
	baton_request requests[4];
	size_t index = 99;

	pend(requests, 4);
	ck_assert_int_eq(baton_wait_any(requests, 4, 0, &index, &completion),
	                 BATON_PENDING);
	ck_assert_uint_eq(index, 99);
	let_end(3, BATON_OK);
	let_end(2, BATON_ERR_PEER);
	ck_assert_int_eq(baton_wait_any(requests, 4, -1, &index, &completion),
	                 BATON_ERR_PEER);
	ck_assert_uint_eq(index, 2);
	ck_assert_uint_eq(completion.request, requests[2]);
	ck_assert_int_eq(completion.tag, 2);
	ck_assert_int_eq(baton_release(&requests[2]), BATON_OK);
	ck_assert_int_eq(baton_wait_any(requests, 4, 0, &index, NULL), BATON_OK);
	ck_assert_uint_eq(index, 3);
}
END_TEST

START_TEST(wait_any_of_nothing_is_ok_and_its_count)
{
	baton_request nulls[3] = {0};
	size_t index = 99;

	ck_assert_int_eq(baton_wait_any(nulls, 3, -1, &index, NULL), BATON_OK);
	ck_assert_uint_eq(index, 3);
	ck_assert_int_eq(baton_wait_any(NULL, 0, -1, &index, NULL), BATON_OK);
	ck_assert_uint_eq(index, 0);
	ck_assert_int_eq(baton_wait_any(NULL, 1, -1, &index, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_wait_any(nulls, 3, -1, NULL, NULL),
	                 BATON_ERR_INVALID);
}
END_TEST

START_TEST(wait_any_tells_a_stale_one)
{
	baton_request requests[3];
	size_t index = 99;

	pend(requests, 2);
	requests[2] = stale();
	ck_assert_int_eq(baton_wait_any(requests, 3, -1, &index, NULL),
	                 BATON_ERR_STALE);
	ck_assert_uint_eq(index, 2);
	end_as(1, BATON_OK);
	ck_assert_int_eq(baton_wait_any(requests, 3, -1, &index, NULL),
	                 BATON_OK);
	ck_assert_uint_eq(index, 1);
}
END_TEST

START_TEST(wait_all_waits_for_the_last_and_tells_the_first_error)
{
	baton_request requests[5];

	pend(requests, 4);
	requests[4] = BATON_REQUEST_NULL;
	let_end(3, BATON_ERR_PEER);
	let_end(1, BATON_ERR_TRUNCATED);
	let_end(0, BATON_OK);
	ck_assert_int_eq(baton_wait_all(requests, 5, 0), BATON_PENDING);
	ck_assert_int_eq(baton_wait_all(requests, 5, 1), BATON_PENDING);
	let_end(2, BATON_OK);
	ck_assert_int_eq(baton_wait_all(requests, 5, -1), BATON_ERR_TRUNCATED);
	/* Nothing was released. */
	scripted_assert_ended(requests[1], BATON_ERR_TRUNCATED);
	requests[1] = BATON_REQUEST_NULL;
	ck_assert_int_eq(baton_wait_all(requests, 5, -1), BATON_ERR_PEER);
	ck_assert_int_eq(baton_wait_all(requests, 3, -1), BATON_OK);
	ck_assert_int_eq(baton_wait_all(NULL, 0, -1), BATON_OK);
	ck_assert_int_eq(baton_wait_all(NULL, 1, -1), BATON_ERR_INVALID);
}
END_TEST

START_TEST(wait_all_tells_a_stale_one_at_once)
{
	baton_request requests[3];

	pend(requests, 2);
	requests[2] = stale();
	ck_assert_int_eq(baton_wait_all(requests, 3, -1), BATON_ERR_STALE);
	ck_assert_int_eq(baton_wait_all(requests, 3, 0), BATON_ERR_STALE);
}
END_TEST

START_TEST(test_some_gives_indices_lowest_first)
{
	baton_request requests[6];
	size_t indices[6], done = 99;

	pend(requests, 5);
	requests[5] = BATON_REQUEST_NULL;
	ck_assert_int_eq(baton_test_some(requests, 6, indices, 6, &done),
	                 BATON_PENDING);
	ck_assert_uint_eq(done, 0);
	let_end(4, BATON_OK);
	let_end(1, BATON_ERR_PEER);
	let_end(3, BATON_OK);
	ck_assert_int_eq(baton_test_some(requests, 6, indices, 6, &done),
	                 BATON_OK);
	ck_assert_uint_eq(done, 3);
	ck_assert_uint_eq(indices[0], 1);
	ck_assert_uint_eq(indices[1], 3);
	ck_assert_uint_eq(indices[2], 4);
	ck_assert_int_eq(baton_test_some(requests, 6, indices, 2, &done),
	                 BATON_OK);
	ck_assert_uint_eq(done, 2);
	ck_assert_uint_eq(indices[1], 3);
}
END_TEST

START_TEST(test_some_of_nothing_is_ok_and_of_a_stale_one_stale)
{
	baton_request requests[3] = {0};
	size_t indices[3] = {9, 9, 9}, done = 99;

	ck_assert_int_eq(baton_test_some(requests, 3, indices, 3, &done),
	                 BATON_OK);
	ck_assert_uint_eq(done, 0);
	done = 99;
	ck_assert_int_eq(baton_test_some(NULL, 0, indices, 3, &done), BATON_OK);
	ck_assert_uint_eq(done, 0);
	pend(requests, 2);
	end_as(0, BATON_OK);
	requests[2] = stale();
	done = 99;
	ck_assert_int_eq(baton_test_some(requests, 3, indices, 3, &done),
	                 BATON_ERR_STALE);
	ck_assert_uint_eq(done, 0);
	ck_assert_uint_eq(indices[0], 2);
	ck_assert_int_eq(baton_test_some(requests, 3, indices, 0, &done),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_test_some(requests, 3, NULL, 3, &done),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_test_some(requests, 3, indices, 3, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_test_some(NULL, 3, indices, 3, &done),
	                 BATON_ERR_INVALID);
}
END_TEST

/* ---- those that release ---- */

START_TEST(finish_all_releases_when_all_have_ended)
{
	struct baton_completion done[4];
	baton_request requests[4] = {0}, copies[3];

	memset(done, 0x55, sizeof(done));
	pend(requests, 3);
	memcpy(copies, requests, sizeof(copies));
	end_as(0, BATON_OK);
	/* Nothing is released before. */
	ck_assert_int_eq(baton_finish_all(requests, 4, 0, done), BATON_PENDING);
	ck_assert_int_eq(baton_finish_all(requests, 4, 1, NULL), BATON_PENDING);
	ck_assert_mem_eq(requests, copies, sizeof(copies));
	ck_assert_int_eq(done[0].status, 0x55555555);
	let_end(2, BATON_ERR_MPI);
	let_end(1, BATON_ERR_PEER);
	ck_assert_int_eq(baton_finish_all(requests, 4, -1, done),
	                 BATON_ERR_PEER);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(requests[i], BATON_REQUEST_NULL);
		ck_assert_int_eq(baton_test(copies[i], NULL), BATON_ERR_STALE);
		ck_assert_uint_eq(done[i].request, copies[i]);
		ck_assert_int_eq(done[i].tag, i);
	}
	ck_assert_int_eq(done[0].status, BATON_OK);
	ck_assert_uint_eq(done[0].bytes, 8);
	ck_assert_int_eq(done[1].status, BATON_ERR_PEER);
	ck_assert_int_eq(done[2].status, BATON_ERR_MPI);
	ck_assert_uint_eq(done[3].request, BATON_REQUEST_NULL);
	ck_assert_int_eq(done[3].status, BATON_OK);
	ck_assert_int_eq(done[3].peer, -1);
	ck_assert_int_eq(done[3].tag, -1);
	ck_assert_uint_eq(done[3].user_data, 0);
	ck_assert_int_eq(baton_finish_all(requests, 4, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_finish_all(NULL, 0, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_finish_all(NULL, 1, -1, NULL), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_finish_all: "));
}
END_TEST

/* At once, and the others stay. */
START_TEST(finish_all_with_a_stale_one_releases_none)
{
	baton_request requests[3];

	pend(requests, 2);
	end_as(0, BATON_OK);
	requests[2] = stale();
	ck_assert_int_eq(baton_finish_all(requests, 3, -1, NULL),
	                 BATON_ERR_STALE);
	ck_assert_int_eq(baton_test(requests[0], NULL), BATON_OK);
	end_as(1, BATON_OK);
	ck_assert_int_eq(baton_finish_all(requests, 3, -1, NULL),
	                 BATON_ERR_STALE);
	ck_assert_int_eq(baton_finish_all(requests, 2, -1, NULL), BATON_OK);
	/* One that is there twice is found released. */
	pend(requests, 1);
	requests[1] = requests[0];
	end_as(0, BATON_OK);
	ck_assert_int_eq(baton_finish_all(requests, 2, -1, NULL),
	                 BATON_ERR_STALE);
	ck_assert_uint_eq(requests[0], BATON_REQUEST_NULL);
}
END_TEST

START_TEST(finish_some_releases_what_has_ended)
{
	struct baton_completion ended[6];
	baton_request requests[6], copies[6];
	size_t indices[6], done = 99;

	pend(requests, 6);
	memcpy(copies, requests, sizeof(copies));
	ck_assert_int_eq(baton_finish_some(requests, 6, 0, indices, ended, 6,
	                                   &done),
	                 BATON_PENDING);
	ck_assert_uint_eq(done, 0);
	done = 99;
	ck_assert_int_eq(baton_finish_some(requests, 6, 1, indices, NULL, 6,
	                                   &done),
	                 BATON_PENDING);
	ck_assert_uint_eq(done, 0);
	let_end(4, BATON_OK);
	let_end(1, BATON_ERR_PEER);
	let_end(3, BATON_OK);
	ck_assert_int_eq(baton_finish_some(requests, 6, -1, indices, ended, 2,
	                                   &done),
	                 BATON_ERR_PEER);
	ck_assert_uint_eq(done, 2);
	ck_assert_uint_eq(indices[0], 1);
	ck_assert_uint_eq(indices[1], 3);
	ck_assert_uint_eq(ended[0].request, copies[1]);
	ck_assert_int_eq(ended[0].status, BATON_ERR_PEER);
	ck_assert_int_eq(ended[1].status, BATON_OK);
	ck_assert_int_eq(baton_test(copies[3], NULL), BATON_ERR_STALE);
	ck_assert_uint_eq(requests[3], BATON_REQUEST_NULL);
	/* The one that there was no room for. */
	ck_assert_int_eq(baton_finish_some(requests, 6, -1, indices, NULL, 6,
	                                   &done),
	                 BATON_OK);
	ck_assert_uint_eq(done, 1);
	ck_assert_uint_eq(indices[0], 4);
	for (int tag = 0; tag < 6; tag += tag == 2 ? 3 : 2)
		let_end(tag, BATON_OK);
	ck_assert_int_eq(baton_finish_some(requests, 6, 0, indices, ended, 6,
	                                   &done),
	                 BATON_OK);
	ck_assert_uint_eq(done, 3);
	ck_assert_uint_eq(indices[2], 5);
	/* Nothing is left. */
	ck_assert_int_eq(baton_finish_some(requests, 6, -1, indices, ended, 6,
	                                   &done),
	                 BATON_OK);
	ck_assert_uint_eq(done, 0);
}
END_TEST

START_TEST(finish_some_refuses_what_test_some_does)
{
	size_t indices[2] = {9, 9}, done = 99;
	baton_request requests[2];

	pend(requests, 1);
	requests[1] = stale();
	ck_assert_int_eq(baton_finish_some(requests, 2, -1, indices, NULL, 2,
	                                   &done),
	                 BATON_ERR_STALE);
	ck_assert_uint_eq(done, 0);
	ck_assert_uint_eq(indices[0], 1);
	ck_assert_int_eq(baton_finish_some(requests, 1, 0, indices, NULL, 0,
	                                   &done),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), "baton_finish_some: max is 0");
	ck_assert_int_eq(baton_finish_some(requests, 1, 0, NULL, NULL, 1, &done),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(),
	                 "baton_finish_some: indices is NULL");
	ck_assert_int_eq(baton_finish_some(requests, 1, 0, indices, NULL, 1,
	                                   NULL),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), "baton_finish_some: done_p is NULL");
	ck_assert_int_eq(baton_finish_some(NULL, 1, 0, indices, NULL, 1, &done),
	                 BATON_ERR_INVALID);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		test_makes_progress_and_may_be_repeated,
		test_of_one_that_is_over_makes_no_pass,
		wait_polls_runs_out_of_time_or_waits_for_ever,
		poll_by_wait_makes_one_pass,
		finish_releases_what_has_ended_only,
		finish_of_one_that_is_over_releases_it,
		handles_tell_that_they_are_stale,
		null_handle_and_null_arguments_are_invalid,
		handles_of_a_destroyed_communicator_never_fit_another,
		error_text_is_cut_and_always_terminated,
		stamps_are_those_of_the_injected_clock,
		without_the_option_there_are_no_stamps,
		wait_any_gives_the_lowest_that_has_ended,
		wait_any_of_nothing_is_ok_and_its_count,
		wait_any_tells_a_stale_one,
		wait_all_waits_for_the_last_and_tells_the_first_error,
		wait_all_tells_a_stale_one_at_once,
		test_some_gives_indices_lowest_first,
		test_some_of_nothing_is_ok_and_of_a_stale_one_stale,
		finish_all_releases_when_all_have_ended,
		finish_all_with_a_stale_one_releases_none,
		finish_some_releases_what_has_ended,
		finish_some_refuses_what_test_some_does,
	};

	return RUN_TESTS_WITH("request", tests, setup, teardown);
}
