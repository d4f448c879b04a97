/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that name a rank whose process has been killed, over a transport that does as it is
 * told.  The test makes the checks itself, so that it counts them: the clock stands still for the
 * engine's own, as it has just made one.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "liveness.h"
#include "run_tests.h"
#include "scripted_world.h"

enum { MANY = 100, PASSES = 70 };

static struct batoni_peer peers[4];
static struct batoni_departure departures[4];

/* The process of rank 1 has been killed.  Where the kernel gives no descriptor of it, the rank has
 * said that it leaves. */
static void
kill_peer(void)
{
	siginfo_t info;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		for (;;)
			pause();
	peers[1].pidfd = batoni_pidfd_open(pid);
	ck_assert(!batoni_peer_is_gone(&peers[1]));
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
	if (peers[1].pidfd < 0)
		departures[1].away = 1;
}

static void
setup(void)
{
	struct baton_comm_options options = scripted_options();

	world_setup();
	scripted_close(&transport, comm);
	options.requests_max = 2 * MANY;
	scripted_init(&transport);
	comm = scripted_comm(&transport, &options);
	for (int i = 0; i < 4; i++) {
		peers[i] = (struct batoni_peer){.segment = &departures[i],
		                                .pidfd = -1};
		departures[i] = (struct batoni_departure){.away = 0};
	}
	transport.base.peers = peers;
	kill_peer();
}

static void
teardown(void)
{
	batoni_pidfd_close(peers[1].pidfd);
	world_teardown();
}

static void
make_passes(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		batoni_engine.peers_checked_ns = batoni_coarse_ns();
		baton_progress(comm);
	}
}

static void
check(void)
{
	batoni_lock();
	batoni_engine.peers_checked_ns = 0;
	batoni_check_peers_soon();
	batoni_unlock();
	baton_progress(comm);
}

/* Sends and receives in order on one stream. */
static void
enqueue_many(baton_request *requests, int n)
{
	for (int i = 0; i < n; i++)
		requests[i] = i % 2 ? scripted_send(comm, s, i, NULL)
		                    : scripted_recv(comm, s, i, NULL);
}

START_TEST(operations_in_order_end_together_once_a_peer_is_silent)
{
	baton_request requests[MANY];

	enqueue_many(requests, MANY);
	ck_assert_uint_eq(transport.issues, 1);
	check();
	make_passes(PASSES);
	scripted_assert_pending(requests[0]);
	check();
	for (int i = 0; i < MANY; i++)
		scripted_assert_ended(requests[i], BATON_ERR_PEER);
	/* No send was issued. */
	ck_assert_uint_eq(transport.issues, MANY / 2);
	/* A later one has no grace period either, on an idle stream or not. */
	for (int i = 0; i < 4; i++) {
		enqueue_many(requests, 1 + i);
		for (int j = 0; j <= i; j++)
			scripted_assert_ended(requests[j], BATON_ERR_PEER);
	}
}
END_TEST

START_TEST(what_names_a_living_rank_goes_on)
{
	struct baton_op_options apart = detached();
	baton_request dead, living = BATON_REQUEST_NULL;
	char byte = 0;

	ck_assert_int_eq(baton_recv(&byte, 1, BATON_UINT8, 2, 7, comm, t, &apart,
	                            &living),
	                 BATON_OK);
	dead = scripted_recv(comm, s, 1, NULL);
	check();
	make_passes(PASSES);
	check();
	scripted_assert_ended(dead, BATON_ERR_PEER);
	scripted_assert_ended(scripted_send(comm, s, 1, NULL), BATON_ERR_PEER);
	for (int i = 0; i < 3; i++)
		check();
	scripted_assert_pending(living);
	end_recv(7, BATON_OK);
	scripted_assert_ended(living, BATON_OK);
}
END_TEST

START_TEST(a_launch_that_names_a_silent_peer_ends_at_once)
{
	baton_request first = scripted_recv(comm, s, 0, NULL), request = 0;
	struct baton_plan *plan = NULL;
	size_t issues;
	char byte = 0;

	ck_assert_int_eq(baton_plan_begin(comm), BATON_OK);
	ck_assert_int_eq(baton_send(&byte, 1, BATON_UINT8, 1, 5, comm, t, NULL,
	                            NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_OK);
	check();
	make_passes(PASSES);
	check();
	scripted_assert_ended(first, BATON_ERR_PEER);
	issues = transport.issues;
	ck_assert_int_eq(baton_plan_launch(plan, NULL, &request), BATON_OK);
	scripted_assert_ended(request, BATON_ERR_PEER);
	ck_assert_uint_eq(transport.issues, issues);
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
}
END_TEST

/* The transport does not give it back: it has its message. */
START_TEST(a_receive_whose_message_has_come_ends_with_it)
{
	baton_request first = scripted_recv(comm, s, 0, NULL), got, none;

	check();
	make_passes(PASSES);
	check();
	scripted_assert_ended(first, BATON_ERR_PEER);
	transport.take_back = BATON_ERR_BUSY;
	got = scripted_recv(comm, s, 1, NULL);
	transport.take_back = BATON_ERR_CANCELED;
	none = scripted_recv(comm, s, 2, NULL);
	make_passes(PASSES);
	scripted_assert_pending(got);
	end_recv(1, BATON_OK);
	scripted_assert_ended(got, BATON_OK);
	scripted_assert_ended(none, BATON_ERR_PEER);
	/* It ends within the call that takes it back. */
	transport.take_back = BATON_OK;
	scripted_assert_ended(scripted_recv(comm, s, 3, NULL), BATON_OK);
	/* The transport says later that there was none. */
	transport.take_back = BATON_ERR_BUSY;
	got = scripted_recv(comm, s, 4, NULL);
	end_recv(4, BATON_ERR_CANCELED);
	scripted_assert_ended(got, BATON_ERR_PEER);
	transport.take_back = BATON_ERR_CANCELED;
}
END_TEST

/* Nothing is pending any more, and what is lent waits for an answer of the dead. */
START_TEST(a_peer_whose_end_frees_a_lent_buffer_is_checked)
{
	baton_request lent = scripted_send(comm, s, 0, NULL);

	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_cancel(lent), BATON_OK);
	baton_progress(comm);
	check();
	ck_assert_uint_eq(comm->liveness.gone, 0);
	comm->liveness.frees = 1;
	check();
	ck_assert_uint_eq(comm->liveness.gone, 1);
	comm->liveness.frees = 0;
	end_send(0, BATON_OK);
	scripted_assert_ended(lent, BATON_ERR_CANCELED);
	transport.take_back = BATON_ERR_CANCELED;
}
END_TEST

/* With few tests between two checks, some of what it sent may still be on its way: each operation
 * has its grace period. */
START_TEST(a_peer_is_silent_only_when_the_messages_were_tested_often)
{
	baton_request first = scripted_recv(comm, s, 0, NULL);
	baton_request second = scripted_recv(comm, s, 1, NULL);

	check();
	make_passes(10);
	check();
	scripted_assert_ended(first, BATON_ERR_PEER);
	scripted_assert_pending(second);
	make_passes(10);
	end_recv(1, BATON_OK);
	scripted_assert_ended(second, BATON_OK);
	ck_assert(!peers[1].silent && peers[1].gone);
}
END_TEST

/* The test behind the break of the communicator finds a message of another rank. */
static void
find_late(struct scripted *scripted, struct batoni_transfer *none)
{
	(void)none;
	if (baton_comm_status(comm) != BATON_ERR_PEER || transport.take_backs > 0)
		return;
	scripted->on_test = NULL;
	scripted_end_now(scripted, scripted_live(scripted, BATONI_RECV, 7), 1,
	                 BATON_OK);
}

/* The transport has read of the dead process, and has not told of its end yet. */
START_TEST(where_a_rank_ends_the_communicator_what_ended_in_peer_finds_it_broken)
{
	struct baton_op_options apart = detached();
	baton_request dead, late = 0, living = 0;
	char bytes[2];

	transport.base.ends_with_a_rank = true;
	ck_assert_int_eq(baton_recv(&bytes[0], 1, BATON_UINT8, 2, 7, comm, t, &apart,
	                            &late),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(&bytes[1], 1, BATON_UINT8, 3, 8, comm, t, &apart,
	                            &living),
	                 BATON_OK);
	dead = scripted_recv(comm, s, 0, NULL);
	transport.on_test = find_late;
	end_recv(0, BATON_ERR_PEER);
	scripted_assert_ended(dead, BATON_ERR_PEER);
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comm), "rank 1"));
	baton_progress(comm);
	scripted_assert_ended(late, BATON_OK);
	scripted_assert_ended(living, BATON_ERR_PEER);
}
END_TEST

/* Its operations end, but its process lives: the others of this rank may go on. */
START_TEST(what_an_aborted_rank_gives_up_breaks_nothing)
{
	baton_request dead = scripted_recv(comm, s, 0, NULL);

	transport.base.ends_with_a_rank = true;
	batoni_pidfd_close(peers[1].pidfd);
	peers[1].pidfd = -1;
	departures[1].away = 0;
	end_recv(0, BATON_ERR_PEER);
	scripted_assert_ended(dead, BATON_ERR_PEER);
	ck_assert_int_eq(baton_comm_status(comm), BATON_OK);
}
END_TEST

/* Rank 1 has left, and its process lives.  Nothing is stored into its segment, but its departure is
 * mapped. */
static void
leave_peer(uint32_t away)
{
	batoni_pidfd_close(peers[1].pidfd);
	peers[1].pidfd = -1;
	peers[1].segment = NULL;
	peers[1].departure = &departures[1];
	departures[1].away = away;
	ck_assert(batoni_peer_is_gone(&peers[1]));
}

/* Until rank 1 has been missed twice. */
static void
call_roll(void)
{
	struct batoni_roll_call roll = {.called_ns = 0};

	batoni_lock();
	for (uint64_t second = 1;
	     second < 1000 && baton_comm_status(comm) == BATON_OK; second++)
		batoni_check_ranks(comm, &roll, second * UINT64_C(1000000000));
	batoni_unlock();
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_PEER);
}

START_TEST(a_rank_that_has_finalised_is_told_so)
{
	leave_peer(BATONI_AWAY_FINALISED);
	call_roll();
	ck_assert_str_eq(baton_comm_error(comm),
	                 "rank 1 has finalised MPI without destroying the "
	                 "communicator: not all ranks have left");
}
END_TEST

START_TEST(a_rank_that_has_closed_is_told_so)
{
	leave_peer(BATONI_AWAY_CLOSED);
	call_roll();
	ck_assert_str_eq(baton_comm_error(comm),
	                 "rank 1 has destroyed its end after an abort or an "
	                 "error: not all ranks have left");
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		operations_in_order_end_together_once_a_peer_is_silent,
		what_names_a_living_rank_goes_on,
		a_launch_that_names_a_silent_peer_ends_at_once,
		a_receive_whose_message_has_come_ends_with_it,
		a_peer_whose_end_frees_a_lent_buffer_is_checked,
		a_peer_is_silent_only_when_the_messages_were_tested_often,
		where_a_rank_ends_the_communicator_what_ended_in_peer_finds_it_broken,
		what_an_aborted_rank_gives_up_breaks_nothing,
		a_rank_that_has_finalised_is_told_so,
		a_rank_that_has_closed_is_told_so,
	};

	return RUN_TESTS_WITH("liveness", tests, setup, teardown);
}
