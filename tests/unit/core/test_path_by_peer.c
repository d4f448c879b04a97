/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two paths of messages in one communicator: a scripted transport's, and a second scripted one beside it
 * that serves the ranks of odd numbers.  Each operation is on the path of its peer, whatever way its call
 * takes; and the first call that names such a peer connects it.
 */
#include <string.h>

#include "comm.h"
#include "core.h"
#include "engine.h"
#include "liveness.h"
#include "log.h"
#include "run_tests.h"
#include "scripted_world.h"

static struct scripted other; /* its path is the second one */
static struct batoni_path_ops other_ops;
static struct batoni_path *added;
static enum baton_status connected;
static int connects[4]; /* by rank */
static int flushes, closes;
static char bytes[8];

static bool
serves(struct batoni_path *path, int kind, int peer)
{
	ck_assert_ptr_eq(path, added);
	ck_assert(BATONI_MESSAGES >> kind & 1u);
	return peer % 2 != 0;
}

static enum baton_status
connect_peer(struct batoni_path *path, int peer)
{
	ck_assert_ptr_eq(path, added);
	ck_assert_int_eq(peer % 2, 1);
	connects[peer]++;
	return connected == BATON_OK
	               ? BATON_OK
	               : batoni_refuse(connected, "no memory for peers");
}

static size_t
flush(struct batoni_path *path)
{
	ck_assert_ptr_eq(path, added);
	flushes++;
	return 0;
}

static void
close_path(struct batoni_path *path, bool aborted)
{
	(void)aborted;
	ck_assert_ptr_eq(path, added);
	ck_assert(!transport.closed);
	closes++;
}

static void
setup(void)
{
	static const struct batoni_serving_ops serving = {
		.serves = serves, .connect = connect_peer};
	static const struct batoni_deferring_ops deferring = {.flush = flush};
	static const struct batoni_closing_ops closing = {.close = close_path};

	world_setup();
	scripted_init(&other);
	other_ops = *other.base.messages.ops;
	other_ops.serving = &serving;
	other_ops.deferring = &deferring;
	other_ops.closing = &closing;
	added = &other.base.messages;
	added->ops = &other_ops;
	other.base.upcalls = &comm->upcalls;
	batoni_comm_add_path(comm, added);
	batoni_comm_choose_message_paths(comm);
	connected = BATON_OK;
	memset(connects, 0, sizeof(connects));
	flushes = closes = 0;
}

static void
teardown(void)
{
	world_teardown();
	ck_assert_int_eq(closes, 1);
	pthread_mutex_destroy(&other.lock);
	sem_destroy(&other.tested);
}

static enum baton_status
try_send(int peer, int tag, const struct baton_op_options *options,
         baton_request *request_p)
{
	return baton_send(bytes, sizeof(bytes), BATON_UINT8, peer, tag, comm, s,
	                  options, request_p);
}

static baton_request
send_to(int peer, int tag, const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	ck_assert_int_eq(try_send(peer, tag, options, &request), BATON_OK);
	return request;
}

static baton_request
recv_from(int peer, int tag)
{
	baton_request request = BATON_REQUEST_NULL;

	ck_assert_int_eq(baton_recv(bytes, sizeof(bytes), BATON_UINT8, peer, tag,
	                            comm, t, NULL, &request),
	                 BATON_OK);
	return request;
}

static void
assert_logs(const char *log, const char *of_other)
{
	ck_assert_str_eq(transport.log, log);
	ck_assert_str_eq(other.log, of_other);
}

static void
end_on(struct scripted *scripted, enum batoni_direction direction, int tag)
{
	scripted_end(scripted, scripted_live(scripted, direction, tag), 8,
	             BATON_OK);
	baton_progress(comm);
}

START_TEST(each_call_takes_the_path_of_its_peer)
{
	const struct baton_op_options late = within(1000000);
	baton_request requests[4];

	/* The first to rank 1 connects; the fast path, and the slow one. */
	requests[0] = send_to(1, 1, NULL);
	requests[1] = recv_from(2, 2);
	end_on(&other, BATONI_SEND, 1);
	requests[2] = send_to(1, 3, NULL);
	end_on(&other, BATONI_SEND, 3);
	requests[3] = send_to(1, 4, &late);
	assert_logs("r2 ", "s1 s3 s4 ");
	ck_assert_int_eq(connects[1], 1);
	end_on(&other, BATONI_SEND, 4);
	end_on(&transport, BATONI_RECV, 2);
	for (int i = 0; i < 4; i++)
		scripted_assert_ended(requests[i], BATON_OK);
	ck_assert_int_eq(connects[0] + connects[2] + connects[3], 0);
}
END_TEST

START_TEST(calls_stay_on_the_fast_path)
{
	ck_assert(comm->plain);
}
END_TEST

START_TEST(a_peer_that_cannot_be_connected_refuses_the_call)
{
	baton_request request = BATON_REQUEST_NULL;

	connected = BATON_ERR_NOMEM;
	ck_assert_int_eq(try_send(3, 1, NULL, &request), BATON_ERR_NOMEM);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "no memory for peers"));
	ck_assert_uint_eq(request, BATON_REQUEST_NULL);
	assert_logs("", "");
	/* Nothing was taken, and the next call asks again. */
	connected = BATON_OK;
	request = send_to(3, 2, NULL);
	ck_assert_int_eq(connects[3], 2);
	end_on(&other, BATONI_SEND, 2);
	scripted_assert_ended(request, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(a_group_and_its_cancels_have_both_paths)
{
	baton_request requests[2];

	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	requests[0] = send_to(1, 1, NULL);
	requests[1] = send_to(2, 2, NULL);
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	assert_logs("s2 ", "s1 ");
	ck_assert_int_eq(baton_cancel(requests[0]), BATON_OK);
	assert_logs("s2 ", "s1 -s1 ");
	ck_assert_int_eq(baton_cancel(requests[1]), BATON_OK);
	assert_logs("s2 -s2 ", "s1 -s1 ");
	scripted_assert_ended(requests[0], BATON_ERR_CANCELED);
	scripted_assert_ended(requests[1], BATON_ERR_CANCELED);
}
END_TEST

START_TEST(a_plan_has_both_paths)
{
	struct baton_plan *plan = NULL;
	baton_request request = BATON_REQUEST_NULL;

	ck_assert_int_eq(baton_plan_begin(comm), BATON_OK);
	ck_assert_int_eq(try_send(1, 1, NULL, NULL), BATON_OK);
	ck_assert_int_eq(try_send(2, 2, NULL, NULL), BATON_OK);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_OK);
	ck_assert_int_eq(connects[1], 1);
	assert_logs("", "");
	transport.issue = other.issue = BATON_OK;
	ck_assert_int_eq(baton_plan_launch(plan, NULL, &request), BATON_OK);
	assert_logs("s2 ", "s1 ");
	scripted_assert_ended(request, BATON_OK);
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
}
END_TEST

START_TEST(what_any_path_has_put_off_is_flushed)
{
	baton_request request = send_to(1, 1, NULL);

	batoni_lock();
	comm->upcalls.deferred(&comm->upcalls);
	batoni_end_and_issue();
	batoni_unlock();
	ck_assert_int_eq(flushes, 1);
	end_on(&other, BATONI_SEND, 1);
	scripted_assert_ended(request, BATON_OK);
}
END_TEST

/* What a path with a bell of its own carries is tested by the check itself (liveness.c). */
START_TEST(a_dead_peer_is_silent_after_the_second_check)
{
	static struct batoni_peer peers[4];
	baton_request request;

	for (int i = 0; i < 4; i++)
		peers[i] = (struct batoni_peer){.pidfd = -1};
	peers[1].gone = peers[2].gone = true;
	comm->transport->peers = peers;
	comm->liveness.gone = 2;
	request = send_to(3, 1, NULL);
	batoni_lock();
	batoni_engine.peers_checked_ns = 0;
	batoni_check_peers();
	batoni_unlock();
	/* Messages of rank 2 are on the other path, which was not tested so often. */
	ck_assert(peers[1].silent);
	ck_assert(!peers[2].silent);
	ck_assert_uint_eq(comm->liveness.silent, 1);
	ck_assert_uint_ge(other.tests, 64);
	end_on(&other, BATONI_SEND, 1);
	scripted_assert_ended(request, BATON_OK);
	comm->transport->peers = NULL;
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		each_call_takes_the_path_of_its_peer,
		calls_stay_on_the_fast_path,
		a_peer_that_cannot_be_connected_refuses_the_call,
		a_group_and_its_cancels_have_both_paths,
		a_plan_has_both_paths,
		what_any_path_has_put_off_is_flushed,
		a_dead_peer_is_silent_after_the_second_check,
	};

	return RUN_TESTS_WITH("path_by_peer", tests, setup, teardown);
}
