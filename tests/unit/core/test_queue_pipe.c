/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue's descriptor that the ringers of the bell write to.  The test is the ringer; nobody else drives. */
#include <poll.h>
#include <semaphore.h>
#include <unistd.h>

#include "core.h"
#include "mem.h"
#include "run_tests.h"
#include "scripted_transport.h"
#include "shm.h"

static struct scripted transport;
static struct batoni_peer peers[4];
static struct baton_comm *comm;
static struct baton_queue *queue, *other;
static struct batoni_pipe *pipe_end;

/* Peers end all that is pending, and ring. */
static void
park(struct scripted *scripted, struct batoni_transfer *transfer)
{
	struct batoni_load *load = &scripted->base.messages.load;

	(void)transfer;
	if (load->in_flight)
		load->parked = load->in_flight;
}

static void
unpark(void)
{
	transport.on_test = NULL;
	transport.base.messages.load.parked = 0;
}

static void
setup(void)
{
	pipe_end = batoni_pipe_open(batoni_bell(), getpid());
	ck_assert_ptr_nonnull(pipe_end);
	scripted_init(&transport);
	for (int rank = 0; rank < 4; rank++)
		peers[rank] = (struct batoni_peer){
			.near = true,
			.bell = batoni_bell(),
			.pidfd = -1,
			.within = true,
			.writes_to_us = true,
		};
	transport.on_test = park;
	/* Without a one-sided layer. */
	comm = scripted_comm(&transport, NULL);
	transport.base.peers = peers;
	comm->message_paths = BATON_MESSAGE_PATH_NEAR;
	ck_assert_int_eq(baton_queue_create(comm, 4, &queue), BATON_OK);
	ck_assert_int_eq(baton_queue_create(comm, 4, &other), BATON_OK);
}

static void
teardown(void)
{
	unpark();
	baton_queue_destroy(queue);
	baton_queue_destroy(other);
	ck_assert(!(atomic_load(&batoni_bell()->listening) & BATONI_LISTEN_FD));
	scripted_close(&transport, comm);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static void
pend(struct baton_queue *to, int tag)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.queue = to;
	options.flags = BATON_OP_DETACHED;
	scripted_recv(comm, NULL, tag, &options);
}

static void
let_end(int tag)
{
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, tag), 8,
	             BATON_OK);
}

static void
ring(void)
{
	if (atomic_load(&batoni_bell()->listening))
		batoni_bell_call(batoni_bell(), pipe_end);
}

static bool
is_readable(struct baton_queue *of)
{
	struct pollfd poll_fd = {.fd = baton_queue_fd(of), .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1;
}

static bool
is_listening(void)
{
	return atomic_load(&batoni_bell()->listening) & BATONI_LISTEN_FD;
}

static size_t
poll_four(struct baton_queue *from)
{
	struct baton_completion done[4];

	return baton_queue_poll(from, done, 4);
}

START_TEST(a_ring_wakes_the_program_once_for_each_arming)
{
	pend(queue, 1);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
		ck_assert(is_listening());
		ck_assert(!is_readable(queue));
		/* Other traffic does not fill the pipe. */
		for (int rings = 0; rings < 100000; rings++)
			ring();
		ck_assert(!is_listening());
		ck_assert(is_readable(queue));
		ck_assert_uint_eq(poll_four(queue), 0);
		ck_assert(!is_readable(queue));
		ring();
		ck_assert(!is_readable(queue));
	}
}
END_TEST

START_TEST(what_the_poll_brings_needs_no_eventfd)
{
	pend(queue, 1);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ring();
	let_end(1);
	unpark();
	ck_assert_uint_eq(poll_four(queue), 1);
	ck_assert(!is_readable(queue));
}
END_TEST

START_TEST(a_poll_that_takes_nothing_leaves_the_queue_armed)
{
	pend(queue, 1);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ring();
	ck_assert_uint_eq(poll_four(queue), 0);
	let_end(1);
	unpark();
	baton_progress(comm);
	ck_assert(is_readable(queue));
	ck_assert_uint_eq(poll_four(queue), 1);
}
END_TEST

START_TEST(a_queue_that_was_delivered_to_listens_no_more)
{
	pend(queue, 1);
	pend(other, 2);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	let_end(1);
	baton_progress(comm);
	ck_assert(is_readable(queue));
	ck_assert(!is_listening());
	ck_assert_uint_eq(poll_four(queue), 1);
	let_end(2);
	unpark();
	ck_assert_uint_eq(poll_four(other), 1);
	/* Nothing is pending. */
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_listening());
	ring();
	ck_assert(!is_readable(queue));
}
END_TEST

START_TEST(arming_finds_what_has_come)
{
	pend(queue, 1);
	let_end(1);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_PENDING);
	ck_assert(!is_readable(queue));
	ck_assert(!is_listening());
	unpark();
	ck_assert_uint_eq(poll_four(queue), 1);
}
END_TEST

START_TEST(what_moves_is_left_to_the_engine)
{
	pend(queue, 1);
	unpark();
	transport.base.messages.load.moving = 1;
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_listening());
	transport.base.messages.load.moving = 0;
	/* Nor does it only wait for peers. */
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_listening());
}
END_TEST

/* Its ringer has taken the bit, and was held up. */
START_TEST(a_late_byte_wakes_once)
{
	const char byte = 0;

	pend(queue, 1);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	atomic_fetch_and(&batoni_bell()->listening, ~BATONI_LISTEN_FD);
	ck_assert_uint_eq(poll_four(queue), 0);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_readable(queue));
	ck_assert_int_eq(write(batoni_pipe_fd(), &byte, 1), 1);
	ck_assert(is_readable(queue));
	ck_assert_uint_eq(poll_four(queue), 0);
	ck_assert(!is_readable(queue));
	/* The arming holds. */
	ring();
	ck_assert(is_readable(queue));
	ck_assert_uint_eq(poll_four(queue), 0);
	ck_assert(!is_readable(queue));
	/* The same behind the last wake-up: nobody arms again. */
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	atomic_fetch_and(&batoni_bell()->listening, ~BATONI_LISTEN_FD);
	let_end(1);
	unpark();
	ck_assert_uint_eq(poll_four(queue), 1);
	ck_assert_int_eq(write(batoni_pipe_fd(), &byte, 1), 1);
	ck_assert_uint_eq(poll_four(queue), 0);
	ck_assert(!is_readable(queue));
}
END_TEST

START_TEST(armed_again_its_byte_is_not_taken_for_an_old_one)
{
	pend(queue, 1);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
		ring();
		/* Without a poll in between. */
		ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
		ck_assert(is_listening());
		ck_assert(!is_readable(queue));
	}
	ring();
	ck_assert(is_readable(queue));
}
END_TEST

START_TEST(one_queue_has_the_pipe_and_gives_it_up_when_it_is_not_armed)
{
	pend(queue, 1);
	pend(other, 2);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert_int_eq(baton_queue_arm(other), BATON_OK);
	ring();
	ck_assert(is_readable(queue));
	ck_assert(!is_readable(other));
	/* The program of the first drives for both. */
	let_end(2);
	ck_assert_uint_eq(poll_four(queue), 0);
	ck_assert(is_readable(other));
	ck_assert_uint_eq(poll_four(other), 1);
	pend(other, 3);
	ck_assert_int_eq(baton_queue_arm(other), BATON_OK);
	ring();
	ck_assert(is_readable(other));
	ck_assert(!is_readable(queue));
	ck_assert_uint_eq(poll_four(other), 0);
}
END_TEST

/* Its program does not poll: it has the pipe for one ring. */
START_TEST(a_queue_that_is_left_armed_gives_the_pipe_up_when_it_was_rung)
{
	pend(queue, 1);
	pend(other, 2);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ring();
	ck_assert(is_readable(queue));
	ck_assert_int_eq(baton_queue_arm(other), BATON_OK);
	ck_assert(is_listening());
	/* The byte was taken; what comes for the first wakes it by its eventfd. */
	ck_assert(!is_readable(queue));
	ck_assert(!is_readable(other));
	ring();
	ck_assert(is_readable(other));
	let_end(1);
	ck_assert_uint_eq(poll_four(other), 0);
	ck_assert(is_readable(queue));
	ck_assert(!is_readable(other));
	ck_assert_uint_eq(poll_four(queue), 1);
}
END_TEST

static void *
poll_elsewhere(void *arg)
{
	ck_assert_uint_eq(poll_four(arg), 0);
	return NULL;
}

/* Else it would find its descriptor readable for as long as the other thread is away. */
START_TEST(a_thread_that_may_not_drive_takes_the_byte_too)
{
	pthread_t thread;

	comm->driving.drivers = BATONI_DRIVERS_MAIN;
	comm->driving.main_thread = pthread_self();
	atomic_store(&comm->driving.by_any, false);
	pend(queue, 1);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ring();
	ck_assert(is_readable(queue));
	pthread_create(&thread, NULL, poll_elsewhere, queue);
	pthread_join(thread, NULL);
	ck_assert(!is_readable(queue));
	/* It is armed. */
	let_end(1);
	unpark();
	baton_progress(comm);
	ck_assert(is_readable(queue));
	ck_assert_uint_eq(poll_four(queue), 1);
}
END_TEST

START_TEST(a_queue_that_is_destroyed_gives_the_pipe_up)
{
	pend(queue, 1);
	pend(other, 2);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	baton_queue_destroy(queue);
	queue = NULL;
	ck_assert(!is_listening());
	ck_assert_int_eq(baton_queue_arm(other), BATON_OK);
	ring();
	ck_assert(is_readable(other));
	ck_assert_uint_eq(poll_four(other), 0);
	ck_assert(!is_readable(other));
}
END_TEST

/* A ringer took the bit, and the queue has gone before its byte. */
START_TEST(a_late_byte_of_a_queue_that_has_gone_wakes_the_next_once)
{
	const char byte = 0;

	pend(queue, 1);
	pend(other, 2);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	atomic_fetch_and(&batoni_bell()->listening, ~BATONI_LISTEN_FD);
	baton_queue_destroy(queue);
	queue = NULL;
	ck_assert_int_eq(baton_queue_arm(other), BATON_OK);
	ck_assert_int_eq(write(batoni_pipe_fd(), &byte, 1), 1);
	ck_assert(is_readable(other));
	ck_assert_uint_eq(poll_four(other), 0);
	ck_assert(!is_readable(other));
	ck_assert(is_listening());
}
END_TEST

START_TEST(without_a_peer_that_writes_there_is_an_eventfd_alone)
{
	struct baton_queue *alone;

	for (int rank = 0; rank < 4; rank++)
		peers[rank].writes_to_us = rank == 0;
	ck_assert_int_eq(baton_queue_create(comm, 4, &alone), BATON_OK);
	pend(alone, 1);
	ck_assert_int_eq(baton_queue_arm(alone), BATON_OK);
	ck_assert(!is_listening());
	baton_queue_destroy(alone);
}
END_TEST

static sem_t has_lock, may_leave;

static void *
hold_lock(void *unused)
{
	(void)unused;
	batoni_lock();
	sem_post(&has_lock);
	sem_wait(&may_leave);
	batoni_unlock();
	return NULL;
}

START_TEST(arming_does_not_wait_for_a_thread_that_drives)
{
	pthread_t thread;

	pend(queue, 1);
	sem_init(&has_lock, 0, 0);
	sem_init(&may_leave, 0, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_lock, NULL), 0);
	sem_wait(&has_lock);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_listening());
	let_end(1);
	sem_post(&may_leave);
	pthread_join(thread, NULL);
	unpark();
	baton_progress(comm);
	ck_assert(is_readable(queue));
	ck_assert_uint_eq(poll_four(queue), 1);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_ring_wakes_the_program_once_for_each_arming,
		what_the_poll_brings_needs_no_eventfd,
		a_poll_that_takes_nothing_leaves_the_queue_armed,
		a_queue_that_was_delivered_to_listens_no_more,
		arming_finds_what_has_come,
		what_moves_is_left_to_the_engine,
		a_late_byte_wakes_once,
		armed_again_its_byte_is_not_taken_for_an_old_one,
		one_queue_has_the_pipe_and_gives_it_up_when_it_is_not_armed,
		a_queue_that_is_left_armed_gives_the_pipe_up_when_it_was_rung,
		a_thread_that_may_not_drive_takes_the_byte_too,
		a_queue_that_is_destroyed_gives_the_pipe_up,
		a_late_byte_of_a_queue_that_has_gone_wakes_the_next_once,
		without_a_peer_that_writes_there_is_an_eventfd_alone,
		arming_does_not_wait_for_a_thread_that_drives,
	};

	return RUN_TESTS_WITH("queue_pipe", tests, setup, teardown);
}
