/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that name a rank whose process has been killed, over a transport that does as it is
 * told; and what needs a path that tells which messages have come: probes, receives from any rank.
 * The test makes the checks itself, so that it counts them: the clock stands still for the
 * engine's own, as it has just made one.
 */
#include <signal.h>
#include <stdio.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "liveness.h"
#include "run_tests.h"
#include "scripted_world.h"

enum { MANY = 100, PASSES = 70 };

/* What has come for probes: how a hold of it answers, if anything has. */
static struct {
	bool here;
	int rank, tag;
	enum baton_status hold;
	struct batoni_transfer *held; /* whose first part is under way */
} come;

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
expect(struct batoni_path *path, int change)
{
	path->load.in_flight += (uint32_t)change;
}

static int
find_come(struct batoni_path *path, int peer, int *tag_p)
{
	struct batoni_upcalls *upcalls = path->upcalls;

	if (!come.here || (peer >= 0 && peer != come.rank) ||
	    (*tag_p >= 0 && *tag_p != come.tag) ||
	    !upcalls->may_meet(upcalls, come.rank, come.tag))
		return -1;
	*tag_p = come.tag;
	return come.rank;
}

static enum baton_status
hold(struct batoni_path *path, struct batoni_transfer *receive,
     struct batoni_held *held_p)
{
	come.here = come.hold == BATON_ERR_NOMEM;
	if (come.hold == BATON_OK)
		*held_p = (struct batoni_held){.bytes = 0};
	if (come.hold != BATON_PENDING || come.held)
		return come.hold;
	/* As a receive that is under way. */
	come.held = receive;
	return path->ops->host_issued->issue(path, receive);
}

static enum baton_status
meet(struct batoni_path *path, struct batoni_transfer *receive,
     struct batoni_transfer *held)
{
	(void)path;
	(void)receive;
	(void)held;
	return BATON_OK;
}

static const struct batoni_unmatched_ops unmatched = {
	.expect = expect, .find = find_come, .hold = hold, .meet = meet};

static void
setup(void)
{
	struct baton_comm_options options = scripted_options();
	static struct batoni_path_ops telling;

	world_setup();
	scripted_close(&transport, comm);
	options.requests_max = 2 * MANY;
	scripted_init(&transport);
	memset(&come, 0, sizeof(come));
	telling = *transport.base.messages.ops;
	telling.unmatched = &unmatched;
	transport.base.messages.ops = &telling;
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
check_now(void)
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
	check_now();
	make_passes(PASSES);
	scripted_assert_pending(requests[0]);
	check_now();
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
	check_now();
	make_passes(PASSES);
	check_now();
	scripted_assert_ended(dead, BATON_ERR_PEER);
	scripted_assert_ended(scripted_send(comm, s, 1, NULL), BATON_ERR_PEER);
	for (int i = 0; i < 3; i++)
		check_now();
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
	check_now();
	make_passes(PASSES);
	check_now();
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

	check_now();
	make_passes(PASSES);
	check_now();
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
	check_now();
	ck_assert_uint_eq(comm->liveness.gone, 0);
	comm->liveness.frees = 1;
	check_now();
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

	check_now();
	make_passes(10);
	check_now();
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

/* ---- probes ---- */

static enum baton_status
probe(int peer, int tag)
{
	baton_message message = 0;
	enum baton_status status = baton_probe(peer, tag, comm, &message, NULL);

	ck_assert(status != BATON_OK || message != 0);
	return status;
}

/* Nothing else makes passes. */
static void
probe_and_check(int peer, enum baton_status expected)
{
	batoni_engine.peers_checked_ns = 0;
	ck_assert_int_eq(probe(peer, 7), expected);
}

START_TEST(probes_alone_find_that_a_peer_is_gone)
{
	ck_assert_int_eq(probe(1, 7), BATON_PENDING);
	/* The first check sees it go, and the second one that nothing of it came. */
	probe_and_check(1, BATON_PENDING);
	ck_assert_uint_eq(comm->liveness.gone, 1);
	probe_and_check(1, BATON_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_probe: "));
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "rank 1"));
	ck_assert_int_eq(baton_comm_status(comm), BATON_OK);
	ck_assert_int_eq(probe(1, BATON_ANY_TAG), BATON_ERR_PEER);
	/* Others live. */
	ck_assert_int_eq(probe(2, 7), BATON_PENDING);
	ck_assert_int_eq(probe(BATON_ANY_SOURCE, 7), BATON_PENDING);
	scripted_assert_free(comm, 2 * MANY);
}
END_TEST

START_TEST(what_a_peer_had_sent_is_found_when_it_is_gone)
{
	baton_request living = BATON_REQUEST_NULL, earlier;
	char byte;

	ck_assert_int_eq(probe(1, 7), BATON_PENDING);
	probe_and_check(1, BATON_PENDING);
	probe_and_check(1, BATON_ERR_PEER);
	come.here = true;
	come.rank = 1;
	come.tag = 7;
	ck_assert_int_eq(probe(1, 8), BATON_ERR_PEER);
	ck_assert_int_eq(probe(1, 7), BATON_OK);
	ck_assert_int_eq(probe(1, 7), BATON_ERR_PEER);
	/* What an earlier receive holds up, which its stream has not reached, may still be found. */
	ck_assert_int_eq(baton_recv(&byte, 1, BATON_UINT8, 2, 30, comm, s, NULL,
	                            &living),
	                 BATON_OK);
	earlier = scripted_recv(comm, s, 7, NULL);
	come.here = true;
	ck_assert_int_eq(probe(1, 7), BATON_PENDING);
	ck_assert_int_eq(baton_cancel(earlier), BATON_OK);
	ck_assert_int_eq(probe(1, 7), BATON_OK);
	end_recv(30, BATON_OK);
	scripted_assert_ended(living, BATON_OK);
	scripted_assert_ended(earlier, BATON_ERR_CANCELED);
}
END_TEST

START_TEST(a_probe_of_any_rank_waits_for_the_last_one)
{
	ck_assert_int_eq(probe(BATON_ANY_SOURCE, 7), BATON_PENDING);
	probe_and_check(BATON_ANY_SOURCE, BATON_PENDING);
	probe_and_check(BATON_ANY_SOURCE, BATON_PENDING);
	departures[2].away = departures[3].away = BATONI_AWAY_FINALISED;
	probe_and_check(BATON_ANY_SOURCE, BATON_PENDING);
	probe_and_check(BATON_ANY_SOURCE, BATON_ERR_PEER);
	ck_assert_str_eq(baton_last_error(),
	                 "baton_probe: the processes of all other ranks are gone");
}
END_TEST

/* A check covers what was probed a second ago, and not for ever. */
START_TEST(a_communicator_that_is_probed_no_more_is_not_checked)
{
	ck_assert_int_eq(probe(1, 7), BATON_PENDING);
	ck_assert_ptr_eq(batoni_engine.probed, comm);
	comm->liveness.probed_ns = 0;
	check_now();
	ck_assert_ptr_null(batoni_engine.probed);
	ck_assert(!comm->liveness.probed);
}
END_TEST

/* A rank that needs this thread's core to send. */
static bool shares;
static unsigned yields;

/* In place of the C library's, for the library too. */
int
sched_yield(void)
{
	yields++;
	if (shares)
		come.here = true;
	return 0;
}

static int
probes_until_found(void)
{
	int n = 1;

	while (n < 10000 && probe(2, 7) == BATON_PENDING)
		n++;
	return n;
}

START_TEST(a_loop_of_probes_yields_the_core_to_a_rank_that_shares_it)
{
	come.rank = 2;
	come.tag = 7;
	shares = true;
	ck_assert_int_eq(probes_until_found(), 2001);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(probes_until_found(), 5);
	/* A message that comes without a yield: the core is not shared. */
	shares = false;
	ck_assert_int_eq(probe(2, 7), BATON_PENDING);
	come.here = true;
	ck_assert_int_eq(probe(2, 7), BATON_OK);
	yields = 0;
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(probe(2, 7), BATON_PENDING);
	ck_assert_uint_eq(yields, 0);
}
END_TEST

START_TEST(a_probe_that_fails_says_why)
{
	come.here = true;
	come.rank = 2;
	come.tag = 7;
	come.hold = BATON_ERR_NOMEM;
	ck_assert_int_eq(probe(2, 7), BATON_ERR_NOMEM);
	ck_assert_str_eq(baton_last_error(),
	                 "baton_probe: no memory to keep the message from rank "
	                 "2, tag 7; it stays where it is");
	come.hold = BATON_ERR_PEER;
	ck_assert_int_eq(probe(BATON_ANY_SOURCE, BATON_ANY_TAG), BATON_ERR_PEER);
	ck_assert_str_eq(baton_last_error(),
	                 "baton_probe: the message from rank 2, tag 7, was lost "
	                 "before its first part had come");
	ck_assert_int_eq(baton_comm_status(comm), BATON_OK);
	scripted_assert_free(comm, 2 * MANY);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert_int_eq(probe(2, 7), BATON_ERR_ABORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "is broken"));
}
END_TEST

/* It has a slot until then. */
static void
lose_a_first_part(enum baton_status take_back)
{
	probe_and_check(1, BATON_PENDING);
	probe_and_check(1, BATON_PENDING);
	probe_and_check(1, BATON_ERR_PEER);
	come.here = true;
	come.rank = 1;
	come.tag = 7;
	come.hold = BATON_PENDING;
	transport.take_back = take_back;
	ck_assert_int_eq(probe(1, 7), BATON_ERR_PEER);
	ck_assert_uint_eq(transport.take_backs, 1);
	if (take_back == BATON_ERR_BUSY) {
		ck_assert_uint_eq(comm->work.lent, 1);
		scripted_end(&transport, come.held, 0, BATON_OK);
		baton_progress(comm);
	}
	ck_assert_uint_eq(comm->work.lent, 0);
	transport.take_back = BATON_ERR_CANCELED;
	scripted_assert_free(comm, 2 * MANY);
}

START_TEST(a_message_whose_first_part_does_not_come_keeps_no_slot)
{
	lose_a_first_part(BATON_ERR_CANCELED);
}
END_TEST

START_TEST(and_none_once_the_path_lets_go_of_it)
{
	lose_a_first_part(BATON_ERR_BUSY);
}
END_TEST

/* ---- receives from any rank, over the path that tells what has come ---- */

static struct batoni_transfer *received;

/* Another message comes while the first one's receive is issued. */
static void
receive_for_another(struct scripted *scripted, struct batoni_transfer *transfer)
{
	struct batoni_upcalls *upcalls = scripted->base.upcalls;

	(void)transfer;
	if (!come.here)
		return;
	come.here = false;
	received = upcalls->receive_for(upcalls, 3, 7);
}

START_TEST(a_message_does_not_meet_a_receive_that_its_stream_has_not_reached)
{
	baton_request living = BATON_REQUEST_NULL, first, second;
	char bytes[3];

	ck_assert_int_eq(baton_recv(&bytes[0], 1, BATON_UINT8, BATON_ANY_SOURCE, 7,
	                            comm, t, NULL, &first),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(&bytes[1], 1, BATON_UINT8, 2, 30, comm, s, NULL,
	                            &living),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(&bytes[2], 1, BATON_UINT8, BATON_ANY_SOURCE, 7,
	                            comm, s, NULL, &second),
	                 BATON_OK);
	baton_progress(comm);
	transport.on_issue = receive_for_another;
	received = NULL;
	come.here = true;
	come.rank = 2;
	come.tag = 7;
	baton_progress(comm);
	ck_assert(!come.here);
	ck_assert_ptr_null(received);
	transport.on_issue = NULL;
	end_recv(7, BATON_OK);
	scripted_assert_ended(first, BATON_OK);
	scripted_assert_pending(second);
	ck_assert_int_eq(baton_cancel(second), BATON_OK);
	end_recv(30, BATON_OK);
	scripted_assert_ended(living, BATON_OK);
	scripted_assert_ended(second, BATON_ERR_CANCELED);
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
		probes_alone_find_that_a_peer_is_gone,
		what_a_peer_had_sent_is_found_when_it_is_gone,
		a_probe_of_any_rank_waits_for_the_last_one,
		a_communicator_that_is_probed_no_more_is_not_checked,
		a_loop_of_probes_yields_the_core_to_a_rank_that_shares_it,
		a_probe_that_fails_says_why,
		a_message_whose_first_part_does_not_come_keeps_no_slot,
		and_none_once_the_path_lets_go_of_it,
		a_message_does_not_meet_a_receive_that_its_stream_has_not_reached,
	};

	return RUN_TESTS_WITH("liveness", tests, setup, teardown);
}
