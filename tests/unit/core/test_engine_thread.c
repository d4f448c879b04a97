/* SPDX-License-Identifier: BSD-3-Clause */
/* What the engine's own thread drives, and how it is woken. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <sys/wait.h>
#include <unistd.h>

#include "window.h"

#include "engine.h"
#include "run_tests.h"
#include "scripted_world.h"

/* A communicator whose one request keeps the engine's thread busy: each of its
 * tests is announced. */
static struct scripted busy;
static struct baton_comm *busy_comm;

static void
open_busy(void)
{
	struct baton_comm_options options = scripted_options();

	options.progress = BATON_PROGRESS_AUTO;
	busy.signals = true;
	busy_comm = scripted_comm(&busy, &options);
}

static void
keep_thread_busy(void)
{
	scripted_init(&busy);
	open_busy();
	scripted_recv(busy_comm, NULL, 1, NULL);
}

static void
await_tests(int n)
{
	while (n-- > 0)
		sem_wait(&busy.tested);
}

START_TEST(engine_thread_drives_what_it_may)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	keep_thread_busy();
	ck_assert_int_eq(baton_comm_query(busy_comm, &info), BATON_OK);
	ck_assert(info.engine_thread);
	await_tests(10);
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(engine_thread_leaves_communicators_of_calls_alone)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	baton_request a = scripted_recv(comm, s, 1, NULL);

	ck_assert_int_eq(baton_comm_query(comm, &info), BATON_OK);
	ck_assert(!info.engine_thread);
	keep_thread_busy();
	await_tests(10);
	ck_assert_uint_eq(atomic_load(&transport.tests), 0);
	scripted_assert_pending(a);
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(engine_thread_leaves_communicators_of_callers_alone)
{
	struct baton_comm_options options = scripted_options();
	struct baton_comm_info info = {.size = sizeof(info)};
	struct scripted callers;
	struct baton_comm *mine;
	baton_request a;

	scripted_init(&callers);
	callers.base.drivers = BATONI_DRIVERS_CALLERS;
	options.progress = BATON_PROGRESS_AUTO;
	mine = scripted_comm(&callers, &options);
	ck_assert_int_eq(baton_comm_query(mine, &info), BATON_OK);
	ck_assert(!info.engine_thread);
	a = scripted_recv(mine, s, 1, NULL);
	baton_progress(mine); /* whoever had the lock at the call */
	ck_assert_str_eq(callers.log, "r1 ");
	keep_thread_busy();
	await_tests(10);
	scripted_end(&callers, scripted_live(&callers, BATONI_RECV, 1), 8,
	             BATON_OK);
	await_tests(10);
	ck_assert_int_eq(baton_wait(a, -1, NULL), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_close(&callers, mine);
	scripted_close(&busy, busy_comm);
}
END_TEST

/* The engine's thread always has something to do, and may not drive `comm`. */
START_TEST(host_gets_the_lock_from_an_engine_thread_that_is_never_idle)
{
	struct baton_op_options free = BATON_OP_OPTIONS_INIT;
	struct baton_comm_options options = scripted_options();
	baton_request requests[4];
	size_t index;

	free.flags = BATON_OP_DETACHED;
	for (int i = 0; i < 4; i++)
		requests[i] = scripted_recv(comm, s, i, &free);
	options.progress = BATON_PROGRESS_AUTO;
	scripted_init(&busy);
	busy.test_events = 1;
	busy_comm = scripted_comm(&busy, &options);
	scripted_recv(busy_comm, NULL, 1, NULL);
	for (int i = 0; i < 4; i++) {
		size_t tests = atomic_load(&busy.tests);

		/* It has taken the lock again. */
		while (atomic_load(&busy.tests) < tests + 100)
			sched_yield();
		scripted_end(&transport,
		             scripted_live(&transport, BATONI_RECV, i), 8,
		             BATON_OK);
		if (i == 0)
			ck_assert_int_eq(baton_wait(requests[i], -1, NULL),
			                 BATON_OK);
		else if (i == 1)
			ck_assert_int_eq(baton_test(requests[i], NULL),
			                 BATON_OK);
		else if (i == 2)
			ck_assert_int_eq(baton_wait(requests[i], 0, NULL),
			                 BATON_OK);
		else
			ck_assert_int_eq(baton_wait_any(&requests[i], 1, 0,
			                                &index, NULL),
			                 BATON_OK);
		scripted_assert_ended(requests[i], BATON_OK);
	}
	scripted_close(&busy, busy_comm);
}
END_TEST

/* ---- asleep ---- */

static void
await_deep_sleep(void)
{
	while (!atomic_load(&batoni_engine.deep) ||
	       !(atomic_load(&batoni_engine.asleep) & BATONI_ASLEEP_THREAD))
		sched_yield();
}

START_TEST(enqueue_wakes_the_engine_thread)
{
	scripted_init(&busy);
	open_busy();
	await_deep_sleep();
	scripted_recv(busy_comm, NULL, 1, NULL);
	await_tests(3);
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(enqueue_wakes_the_engine_thread_even_if_another_places_it)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	pthread_t driver;

	scripted_init(&busy);
	open_busy();
	await_deep_sleep();
	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	scripted_recv(busy_comm, NULL, 1, NULL);
	open_gate(driver);
	/* Nobody calls any more. */
	await_tests(3);
	scripted_close(&busy, busy_comm);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
}
END_TEST

/* `busy` is as the local transport: a receive ends within a call of this process. */
static void
open_quiet(void)
{
	scripted_init(&busy);
	busy.base.messages.load.quiet = true;
	open_busy();
}

START_TEST(receive_of_a_quiet_transport_lets_the_engine_thread_sleep)
{
	open_quiet();
	scripted_recv(busy_comm, NULL, 1, NULL);
	await_deep_sleep();
	/* Calls that leave nothing new to look at do not wake it. */
	for (int i = 0; i < 1000; i++)
		baton_progress(busy_comm);
	ck_assert_uint_eq(atomic_load(&batoni_engine.thread_working), 0);
	scripted_close(&busy, busy_comm);
}
END_TEST

static void
begin_to_move(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)scripted;
	(void)transfer;
	while (sem_trywait(&busy.tested) == 0)
		;
	busy.base.messages.load.moving = 1;
	busy.base.upcalls->moves(busy.base.upcalls);
}

START_TEST(engine_thread_is_woken_for_what_another_communicator_moves)
{
	open_quiet();
	scripted_recv(busy_comm, NULL, 1, NULL);
	await_deep_sleep();
	transport.on_issue = begin_to_move;
	scripted_send(comm, s, 1, NULL);
	/* Nobody calls any more. */
	await_tests(3);
	batoni_lock();
	busy.base.messages.load.moving = 0;
	batoni_unlock();
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(engine_that_was_stopped_leaves_progress_to_calls)
{
	struct baton_comm_options options = scripted_options();
	baton_request a;

	keep_thread_busy();
	await_tests(1);
	batoni_engine_stop();
	batoni_engine_stop();
	options.progress = BATON_PROGRESS_AUTO;
	scripted_close(&busy, busy_comm);
	scripted_init(&busy);
	busy_comm = scripted_comm(&busy, &options);
	a = scripted_recv(busy_comm, s, 1, NULL);
	scripted_end(&busy, scripted_live(&busy, BATONI_RECV, 1), 8, BATON_OK);
	ck_assert_uint_eq(atomic_load(&busy.tests), 0);
	ck_assert_int_eq(baton_wait(a, -1, NULL), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_close(&busy, busy_comm);
}
END_TEST

/* ---- signals ------------------------------------------------------------ */

/* Rank 1 signals by stores, rank 2 by messages. */
static struct batoni_peer peers[4];
static alignas(64) unsigned char segments[4][512];
static atomic_bool stored;

static void
open_signals(void)
{
	struct baton_comm_options options = scripted_options();

	for (int rank = 0; rank < 4; rank++)
		peers[rank] = (struct batoni_peer){
			.segment = segments[rank],
			.bell = batoni_bell(),
			.pidfd = -1,
			.within = true,
			.reaches_us = rank != 2,
		};
	options.progress = BATON_PROGRESS_AUTO;
	options.signals_max = 1;
	options.contexts_max = 1;
	scripted_init(&busy);
	busy.base.capabilities |= BATON_CAP_SIGNALS;
	busy.base.peers = peers;
	busy.base.hidden_tags = batoni_onesided_tags(1);
	busy_comm = scripted_comm(&busy, &options);
}

static void
signal_from(int source)
{
	atomic_fetch_add(batoni_segment_counter(batoni_rma_of(busy_comm),
	                                        segments[0], source, 0, 0),
	                 1);
}

/* On the thread that drives: a few passes after the store the message is there. */
static void
signal_by_message(struct scripted *scripted, struct batoni_transfer *transfer)
{
	static int passes; /* since then */

	(void)scripted;
	(void)transfer;
	if (atomic_load(&stored) && ++passes == 4)
		signal_from(2);
}

START_TEST(wait_that_needs_a_message_after_a_store_is_not_slept_on)
{
	const struct baton_wait_signal_desc descs[] = { { 1, 1, 0, 0 },
	                                               { 1, 2, 0, 0 } };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct pollfd readable = { .events = POLLIN };

	open_signals();
	busy.on_test = signal_by_message;
	ck_assert_int_eq(baton_queue_create(busy_comm, 1, &options.queue),
	                 BATON_OK);
	readable.fd = baton_queue_fd(options.queue);
	ck_assert_int_eq(baton_wait_signal(2, descs, busy_comm, NULL, &options,
	                                   NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_queue_arm(options.queue), BATON_OK);
	while (!(atomic_load(&batoni_bell()->listening) & BATONI_ASLEEP_THREAD))
		sched_yield();
	await_deep_sleep();
	atomic_store(&stored, true);
	signal_from(1);
	batoni_bell_ring(batoni_bell());
	/* Nobody else drives. */
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	baton_queue_destroy(options.queue);
	/* Not aborted: that would leave receives of messages to the transport. */
	ck_assert_int_eq(baton_comm_destroy(busy_comm), BATON_OK);
}
END_TEST

/* What an operation's end is told to; the program sleeps on it, and calls nothing. */
static struct pollfd
open_queue(struct baton_op_options *options)
{
	struct pollfd readable = {.events = POLLIN};

	ck_assert_int_eq(baton_queue_create(busy_comm, 1, &options->queue),
	                 BATON_OK);
	readable.fd = baton_queue_fd(options->queue);
	ck_assert_int_eq(baton_queue_arm(options->queue), BATON_OK);
	return readable;
}

static void
signal_as_peer(int source)
{
	signal_from(source);
	if (atomic_load(&batoni_bell()->listening))
		batoni_bell_ring(batoni_bell());
}

static void
await_listening(void)
{
	while (!(atomic_load(&batoni_bell()->listening) & BATONI_ASLEEP_THREAD))
		sched_yield();
	await_deep_sleep();
}

/* Asleep behind a host that sleeps. */
static void
await_sleep_behind(void)
{
	const unsigned both = BATONI_ASLEEP_DRIVER | BATONI_ASLEEP_THREAD;

	while (!atomic_load(&batoni_engine.deep) ||
	       atomic_load(&batoni_engine.asleep) != both ||
	       atomic_load(&batoni_bell()->listening) & BATONI_ASLEEP_THREAD)
		sched_yield();
}

/* The host stops within its first pass; its receive ends within the second one. */
static void
stop_then_end(struct scripted *scripted, struct batoni_transfer *transfer)
{
	if (atomic_load(&gate.closed))
		stop_at_gate(scripted, transfer);
	else
		scripted_end(scripted, scripted_live(scripted, BATONI_RECV, 1), 8,
		             BATON_OK);
}

/* A host that drives places and parks this wait of `busy_comm`, and goes.  It has not slept: a
 * ring of the bell would wake the engine's thread too. */
static void
park_by_host(const struct baton_wait_signal_desc *desc,
             const struct baton_op_options *options)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	pthread_t host;

	transport.on_test = stop_then_end;
	atomic_store(&gate.closed, true);
	host = thread_of(wait_for, &a);
	sem_wait(&gate.entered);
	ck_assert_int_eq(baton_wait_signal(1, desc, busy_comm, NULL, options,
	                                   NULL),
	                 BATON_OK);
	sem_post(&gate.go);
	assert_waited(host, &a);
}

START_TEST(host_that_goes_leaves_parked_waits_to_the_engine_thread)
{
	const struct baton_wait_signal_desc from_1 = {1, 1, 0, 0};
	const struct baton_wait_signal_desc from_3 = {1, 3, 0, 0};
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct pollfd readable;
	baton_request own;
	pthread_t host;

	open_signals();
	readable = open_queue(&options);
	ck_assert_int_eq(baton_wait_signal(1, &from_1, busy_comm, NULL, &options,
	                                   NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_wait_signal(1, &from_3, busy_comm, s, NULL, &own),
	                 BATON_OK);
	host = thread_of(wait_for, &own);
	await_sleep_behind();
	signal_as_peer(3);
	assert_waited(host, &own);
	/* Nobody calls any more. */
	signal_as_peer(1);
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	baton_queue_destroy(options.queue);
	ck_assert_int_eq(baton_comm_destroy(busy_comm), BATON_OK);
}
END_TEST

START_TEST(wait_that_another_host_parks_is_left_to_the_engine_thread)
{
	const struct baton_wait_signal_desc from_1 = {1, 1, 0, 0};
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct pollfd readable;

	open_signals();
	readable = open_queue(&options);
	await_deep_sleep();
	park_by_host(&from_1, &options);
	/* Nobody calls any more. */
	signal_as_peer(1);
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	baton_queue_destroy(options.queue);
	ck_assert_int_eq(baton_comm_destroy(busy_comm), BATON_OK);
}
END_TEST

START_TEST(wait_that_a_count_has_looked_at_is_not_slept_on)
{
	const struct baton_wait_signal_desc descs[] = { { 1, 1, 0, 0 },
	                                               { 1, 2, 0, 0 } };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct pollfd readable;
	uint64_t count;

	open_signals();
	busy.on_test = signal_by_message;
	readable = open_queue(&options);
	ck_assert_int_eq(baton_wait_signal(2, descs, busy_comm, NULL, &options,
	                                   NULL),
	                 BATON_OK);
	await_listening();
	atomic_store(&stored, true);
	signal_from(1);
	/* It sees that the first one is met, and the thread will not. */
	ck_assert_int_eq(baton_signal_count(busy_comm, 2, 0, 0, &count),
	                 BATON_OK);
	batoni_bell_ring(batoni_bell());
	/* Nobody calls any more. */
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	baton_queue_destroy(options.queue);
	ck_assert_int_eq(baton_comm_destroy(busy_comm), BATON_OK);
}
END_TEST

/* The driver reads the clock. */
static void
let_pass(uint64_t ns)
{
	batoni_lock();
	now += ns;
	batoni_unlock();
}

START_TEST(engine_thread_wakes_for_the_deadline_of_a_quiet_receive)
{
	struct baton_op_options options = within(50000000);
	struct pollfd readable;

	open_quiet();
	readable = open_queue(&options);
	scripted_recv(busy_comm, NULL, 1, &options);
	await_listening();
	let_pass(50000000);
	/* Nobody calls. */
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	baton_queue_destroy(options.queue);
	scripted_close(&busy, busy_comm);
}
END_TEST

/* The host kept the deadline while it slept. */
START_TEST(engine_thread_keeps_a_deadline_when_a_dozing_host_has_gone)
{
	struct baton_op_options options = within(50000000);
	baton_request a = scripted_recv(comm, s, 1, NULL);
	struct pollfd readable;
	pthread_t host;

	transport.base.messages.load.quiet = true;
	open_quiet();
	readable = open_queue(&options);
	host = thread_of(wait_for, &a);
	while (!(atomic_load(&batoni_engine.asleep) & BATONI_ASLEEP_DRIVER))
		sched_yield();
	scripted_recv(busy_comm, NULL, 1, &options);
	await_deep_sleep();
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	pthread_join(host, NULL);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	await_listening();
	let_pass(50000000);
	/* Nobody calls any more. */
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	baton_queue_destroy(options.queue);
	scripted_close(&busy, busy_comm);
}
END_TEST

/* ---- a sleep towards a far deadline ---------------------------------------- */

/* The clock stands still, so that this deadline is never reached. */
#define FAR_NS (INT64_C(3600) * 1000000000)

static struct scripted far;
static struct baton_comm *far_comm;

/* The engine's thread sleeps until this one's deadline, and has nothing to check. */
static void
sleep_until_far_deadline(void)
{
	struct baton_comm_options options = scripted_options();
	struct baton_op_options late = within(FAR_NS);

	options.progress = BATON_PROGRESS_AUTO;
	scripted_init(&far);
	far.base.messages.load.quiet = true;
	far_comm = scripted_comm(&far, &options);
	/* Not on the stream of the waits: they would stand behind it. */
	scripted_recv(far_comm, t, 1, &late);
	await_listening();
}

/* A process that lives until the pipe is closed. */
static pid_t
start_peer(int *pipe_p)
{
	int ends[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(ends[1]);
		_exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
	}
	close(ends[0]);
	*pipe_p = ends[1];
	return pid;
}

START_TEST(death_of_a_peer_is_noticed_while_only_a_far_deadline_was_pending)
{
	const struct baton_wait_signal_desc from_1 = {1, 1, 0, 0};
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	struct pollfd readable;
	int alive, exited;
	pid_t peer;

	open_signals();
	peer = start_peer(&alive);
	peers[1].pidfd = batoni_pidfd_open(peer);
	ck_assert_int_ge(peers[1].pidfd, 0);
	readable = open_queue(&options);
	sleep_until_far_deadline();
	park_by_host(&from_1, &options);
	close(alive);
	ck_assert_int_eq(waitpid(peer, &exited, 0), peer);
	/* Nobody calls any more. */
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	ck_assert_uint_eq(baton_queue_poll(options.queue, &completion, 1), 1);
	ck_assert_int_eq(completion.status, BATON_ERR_PEER);
	baton_queue_destroy(options.queue);
	ck_assert_int_eq(baton_comm_destroy(busy_comm), BATON_OK);
	batoni_pidfd_close(peers[1].pidfd);
	scripted_close(&far, far_comm);
}
END_TEST

static void
note_launched(void *arg)
{
	sem_post(arg);
}

static void
end_at_once(struct scripted *scripted, struct batoni_transfer *transfer)
{
	scripted_end(scripted, transfer, 8, BATON_OK);
}

/* What stands behind a wait on its stream is nothing to look at, until it is. */
START_TEST(engine_thread_sleeps_while_a_stream_waits_and_goes_on_with_it)
{
	const struct baton_wait_signal_desc desc = { 1, 1, 0, 0 };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct pollfd readable;
	baton_stream stream;
	sem_t launched;

	sem_init(&launched, 0, 0);
	open_signals();
	busy.on_issue = end_at_once;
	readable = open_queue(&options);
	ck_assert_int_eq(baton_stream_create(busy_comm, &stream), BATON_OK);
	ck_assert_int_eq(baton_wait_signal(1, &desc, busy_comm, stream, NULL,
	                                   NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_launch(busy_comm, stream, note_launched,
	                                     &launched),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 1, busy_comm, stream,
	                            &options, NULL),
	                 BATON_OK);
	await_listening();
	signal_as_peer(1);
	/* Nobody calls any more. */
	sem_wait(&launched);
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	baton_queue_destroy(options.queue);
	ck_assert_int_eq(baton_stream_destroy(busy_comm, stream),
	                 BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(busy_comm), BATON_OK);
	sem_destroy(&launched);
}
END_TEST

/* ---- a pass behind which it may sleep ------------------------------------- */

enum { PARTS = 200 };

static atomic_int parts; /* that are left */

static void
park(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	scripted->base.messages.load.parked = 1;
}

/* Each test has one part, and leaves the others where they are; the last one ends the receive. */
static void
take_part(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	if (atomic_load(&parts) == 0 || atomic_fetch_sub(&parts, 1) > 1)
		return;
	scripted->test_events = 0;
	scripted->base.messages.load.parked = 0;
	scripted_end(scripted, scripted_live(scripted, BATONI_RECV, 1), 8,
	             BATON_OK);
}

START_TEST(engine_thread_does_not_sleep_behind_a_pass_with_events)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct pollfd readable;

	scripted_init(&busy);
	busy.on_issue = park;
	busy.on_test = take_part;
	open_busy();
	readable = open_queue(&options);
	scripted_recv(busy_comm, NULL, 1, &options);
	await_listening();
	batoni_lock();
	busy.test_events = 1;
	atomic_store(&parts, PARTS);
	batoni_unlock();
	batoni_bell_ring(batoni_bell());
	/* Nobody rings or calls any more; a sleep for each part takes longer than a test may. */
	ck_assert_int_eq(poll(&readable, 1, -1), 1);
	baton_queue_destroy(options.queue);
	scripted_close(&busy, busy_comm);
}
END_TEST

/* ---- room for what peers send ---- */

/* `busy` is as near: its peers may wait for room although nothing is pending, and ring for that. */
static void
open_rings(void)
{
	scripted_init(&busy);
	busy.base.messages.load.makes_room = true;
	open_busy();
}

static void
await_idle(void)
{
	while (!(atomic_load(&batoni_bell()->idle) & BATONI_ASLEEP_THREAD))
		sched_yield();
}

static void
assert_a_ring_makes_room(void)
{
	await_deep_sleep();
	await_idle();
	while (sem_trywait(&busy.tested) == 0)
		;
	batoni_bell_ring(batoni_bell());
	await_tests(1);
}

START_TEST(engine_thread_makes_room_when_a_peer_rings)
{
	open_rings();
	assert_a_ring_makes_room();
	assert_a_ring_makes_room();
	scripted_close(&busy, busy_comm);
	ck_assert_ptr_null(atomic_load(&batoni_engine.rings));
}
END_TEST

/* The engine's thread serves nothing that this host has waited for. */
START_TEST(engine_thread_makes_room_behind_a_host_that_has_gone)
{
	baton_request a;
	pthread_t host;

	transport.base.messages.load.quiet = true;
	a = scripted_recv(comm, s, 1, NULL);
	open_rings();
	host = thread_of(wait_for, &a);
	await_sleep_behind();
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	batoni_bell_ring(batoni_bell());
	assert_waited(host, &a);
	/* Nobody calls any more. */
	assert_a_ring_makes_room();
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(engine_thread_does_not_sleep_while_there_is_room_to_make)
{
	open_rings();
	assert_a_ring_makes_room();
	batoni_lock();
	busy.test_events = 1;
	batoni_unlock();
	batoni_bell_ring(batoni_bell());
	/* Nobody rings or calls any more. */
	await_tests(100);
	batoni_lock();
	busy.test_events = 0;
	batoni_unlock();
	scripted_close(&busy, busy_comm);
}
END_TEST

enum { MANY = 40, CHECKS_ALL = 3, PASSES_A_CHECK = 128 };

static struct scripted many[MANY];
static struct baton_comm *many_comms[MANY];

static size_t
tests_of_many(void)
{
	size_t sum = 0;

	for (int i = 0; i < MANY; i++)
		sum += atomic_load(&many[i].tests);
	return sum;
}

/* This host alone drives these. */
START_TEST(passes_make_room_in_a_few_communicators_at_a_time)
{
	size_t tests = 0;

	for (int i = 0; i < MANY; i++) {
		scripted_init(&many[i]);
		many[i].base.messages.load.makes_room = true;
		many_comms[i] = scripted_comm(&many[i], NULL);
	}
	for (int n = 0; n < CHECKS_ALL * PASSES_A_CHECK; n++) {
		batoni_lock();
		batoni_pass();
		batoni_unlock();
		ck_assert_uint_le(tests_of_many() - tests, 16);
		tests = tests_of_many();
	}
	for (int i = 0; i < MANY; i++) {
		ck_assert_uint_gt(atomic_load(&many[i].tests), 0);
		/* The next one too. */
		scripted_close(&many[i], many_comms[i]);
	}
	ck_assert_ptr_null(batoni_engine.rings_turn);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		engine_thread_drives_what_it_may,
		engine_thread_leaves_communicators_of_calls_alone,
		engine_thread_leaves_communicators_of_callers_alone,
		host_gets_the_lock_from_an_engine_thread_that_is_never_idle,
		enqueue_wakes_the_engine_thread,
		enqueue_wakes_the_engine_thread_even_if_another_places_it,
		receive_of_a_quiet_transport_lets_the_engine_thread_sleep,
		engine_thread_is_woken_for_what_another_communicator_moves,
		engine_thread_wakes_for_the_deadline_of_a_quiet_receive,
		engine_thread_keeps_a_deadline_when_a_dozing_host_has_gone,
		death_of_a_peer_is_noticed_while_only_a_far_deadline_was_pending,
		wait_that_needs_a_message_after_a_store_is_not_slept_on,
		engine_thread_does_not_sleep_behind_a_pass_with_events,
		host_that_goes_leaves_parked_waits_to_the_engine_thread,
		wait_that_another_host_parks_is_left_to_the_engine_thread,
		wait_that_a_count_has_looked_at_is_not_slept_on,
		engine_thread_sleeps_while_a_stream_waits_and_goes_on_with_it,
		engine_thread_makes_room_when_a_peer_rings,
		engine_thread_makes_room_behind_a_host_that_has_gone,
		engine_thread_does_not_sleep_while_there_is_room_to_make,
		passes_make_room_in_a_few_communicators_at_a_time,
		engine_that_was_stopped_leaves_progress_to_calls,
	};

	return RUN_TESTS_WITH("engine_thread", tests, world_setup, world_teardown);
}
