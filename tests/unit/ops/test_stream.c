/* SPDX-License-Identifier: BSD-3-Clause */
#include <sched.h>
#include <semaphore.h>
#include <string.h>

#include "core.h"
#include "mem.h"
#include "run_tests.h"
#include "scripted_transport.h"

static struct scripted transport;
static struct baton_comm *comm;
static baton_stream s, t;

static void
setup(void)
{
	scripted_init(&transport);
	comm = scripted_comm(&transport, NULL);
	s = scripted_stream(comm);
	t = scripted_stream(comm);
}

static void
teardown(void)
{
	scripted_close(&transport, comm);
	scripted_stream_close(s);
	scripted_stream_close(t);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static void
end_driven(struct scripted *of, struct baton_comm *driven, int tag)
{
	scripted_end(of, scripted_live(of, BATONI_RECV, tag), 8, BATON_OK);
	baton_progress(driven);
}

/* ---- the end of what is on a stream ---- */

static struct batoni_device_ops slow_ops;
static const struct batoni_device_ops *real_ops;
static sem_t released, go_on;

static void
release_and_stop(struct batoni_device *device, _Atomic uint64_t *word,
                 uint64_t value)
{
	real_ops->release(device, word, value);
	sem_post(&released);
	sem_wait(&go_on);
}

static void *
end_the_receive(void *request)
{
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	baton_progress(comm);
	return request;
}

static atomic_bool synchronized;

static void *
synchronize_and_poll(void *queue)
{
	struct baton_completion done[2];
	size_t polled;

	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	polled = baton_queue_poll(queue, done, 2);
	atomic_store(&synchronized, true);
	return polled == 1 ? queue : NULL;
}

/* The stream is idle before the driver has told the end; nobody is to see that. */
START_TEST(what_was_on_a_synchronized_stream_is_in_its_queue)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	pthread_t driver, waiter;
	void *queue;

	sem_init(&released, 0, 0);
	sem_init(&go_on, 0, 0);
	real_ops = comm->device_ops;
	slow_ops = *real_ops;
	slow_ops.release = release_and_stop;
	comm->device_ops = &slow_ops;
	ck_assert_int_eq(baton_queue_create(comm, 2, &options.queue), BATON_OK);
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 1, comm, s,
	                            &options, NULL),
	                 BATON_OK);
	pthread_create(&driver, NULL, end_the_receive, NULL);
	sem_wait(&released);
	atomic_store(&synchronized, false);
	pthread_create(&waiter, NULL, synchronize_and_poll, options.queue);
	while (!atomic_load(&synchronized) &&
	       !atomic_load(&batoni_engine.wanted))
		sched_yield();
	sem_post(&go_on);
	pthread_join(driver, NULL);
	pthread_join(waiter, &queue);
	ck_assert_ptr_eq(queue, options.queue);
	comm->device_ops = real_ops;
	baton_queue_destroy(options.queue);
	sem_destroy(&released);
	sem_destroy(&go_on);
}
END_TEST

static void
stop_and_release(struct batoni_device *device, _Atomic uint64_t *word,
                 uint64_t value)
{
	sem_post(&released);
	sem_wait(&go_on);
	real_ops->release(device, word, value);
}

/* Another thread waits for the driver's lock now. */
static void *
go_on_when_wanted(void *arg)
{
	while (atomic_load(&batoni_engine.wanted) < BATONI_CLAIMANT)
		sched_yield();
	sem_post(&go_on);
	return arg;
}

/* A group's members have ended before its stream goes on; nobody is to see that. */
START_TEST(stream_is_idle_when_all_its_requests_have_ended)
{
	pthread_t driver, opener;
	baton_request request = BATON_REQUEST_NULL;

	sem_init(&released, 0, 0);
	sem_init(&go_on, 0, 0);
	real_ops = comm->device_ops;
	slow_ops = *real_ops;
	slow_ops.release = stop_and_release;
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 1, comm, s, NULL,
	                            &request),
	                 BATON_OK);
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	comm->device_ops = &slow_ops;
	pthread_create(&driver, NULL, end_the_receive, NULL);
	/* The member's own word; then the group's, for which the stream waits. */
	sem_wait(&released);
	sem_post(&go_on);
	sem_wait(&released);
	ck_assert_int_eq(baton_test(request, NULL), BATON_OK);
	pthread_create(&opener, NULL, go_on_when_wanted, NULL);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	pthread_join(opener, NULL);
	pthread_join(driver, NULL);
	comm->device_ops = real_ops;
	ck_assert_int_eq(baton_release(&request), BATON_OK);
	sem_destroy(&released);
	sem_destroy(&go_on);
}
END_TEST

/* ---- records and joins ---- */

START_TEST(record_ends_when_its_stream_gets_there)
{
	baton_request a = scripted_recv(comm, s, 1, NULL), record, idle;
	struct baton_completion completion;

	ck_assert_int_eq(baton_record(comm, s, NULL, &record), BATON_OK);
	ck_assert_int_eq(baton_record(comm, t, NULL, &idle), BATON_OK);
	scripted_assert_pending(record);
	ck_assert_int_eq(baton_test(idle, &completion), BATON_OK);
	ck_assert_int_eq(completion.peer, -1);
	ck_assert_int_eq(completion.tag, -1);
	ck_assert_int_eq(completion.op, BATON_OPERATION_RECORD);
	scripted_assert_ended(idle, BATON_OK);
	end_driven(&transport, comm, 1);
	scripted_assert_ended(record, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(record_takes_no_flags_and_no_deadline)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request none = BATON_REQUEST_NULL;

	options.flags = BATON_OP_DETACHED;
	ck_assert_int_eq(baton_record(comm, s, &options, &none),
	                 BATON_ERR_INVALID);
	options.flags = 0;
	options.timeout_ns = 1;
	ck_assert_int_eq(baton_record(comm, s, &options, &none),
	                 BATON_ERR_INVALID);
	ck_assert_uint_eq(none, BATON_REQUEST_NULL);
	options.timeout_ns = -1;
	ck_assert_int_eq(baton_record(comm, s, &options, NULL), BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(stream_waits_for_a_request_of_another_stream)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request a, b;

	options.flags = BATON_OP_DETACHED;
	a = scripted_recv(comm, s, 1, &options);
	ck_assert_int_eq(baton_stream_wait(comm, t, a), BATON_OK);
	/* Released at once: the join holds it. */
	ck_assert_int_eq(baton_release(&a), BATON_OK);
	b = scripted_send(comm, t, 2, NULL);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	ck_assert_str_eq(transport.log, "r1 ");
	end_driven(&transport, comm, 1);
	ck_assert_str_eq(transport.log, "r1 s2 ");
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(stream_that_waits_goes_on_however_the_request_ends)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	ck_assert_int_eq(baton_stream_wait(comm, t, a), BATON_OK);
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_PENDING);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(waiting_for_what_is_over_takes_nothing)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	end_driven(&transport, comm, 1);
	ck_assert_int_eq(baton_stream_wait(comm, t, a), BATON_OK);
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	scripted_assert_free(comm, 15);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(slot_of_a_joined_request_is_kept_for_its_streams)
{
	baton_request blocker = scripted_recv(comm, t, 1, NULL);
	baton_request a = scripted_recv(comm, s, 2, NULL);

	ck_assert_int_eq(baton_stream_wait(comm, t, a), BATON_OK);
	ck_assert_int_eq(baton_release(&a), BATON_OK);
	end_driven(&transport, comm, 2);
	/* t has not got to the join yet: blocker, join and the joined one. */
	scripted_assert_free(comm, 13);
	end_driven(&transport, comm, 1);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(join_may_be_on_another_communicator_and_destroy_waits_for_it)
{
	struct baton_comm_options hasty = scripted_options();
	struct scripted other_transport;
	struct baton_comm *other;
	baton_request a, blocker = scripted_recv(comm, t, 9, NULL);

	hasty.timeout_ns = 1;
	scripted_init(&other_transport);
	other = scripted_comm(&other_transport, &hasty);
	a = scripted_recv(other, s, 1, NULL);
	/* t, held up by comm, waits for a request of other. */
	ck_assert_int_eq(baton_stream_wait(comm, t, a), BATON_OK);
	end_driven(&other_transport, other, 1);
	ck_assert_int_eq(baton_comm_destroy(other), BATON_ERR_TIMEOUT);
	ck_assert_uint_eq(other_transport.leaves, 0);
	end_driven(&transport, comm, 9);
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(other), BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(pool_that_is_full_refuses_a_join_and_leaves_no_trace)
{
	baton_request a = scripted_recv(comm, s, 1, NULL), requests[15];
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	for (int i = 0; i < 15; i++)
		requests[i] = scripted_recv(comm, t, 2, &options);
	ck_assert_int_eq(baton_stream_wait(comm, t, a), BATON_ERR_AGAIN);
	ck_assert_int_eq(baton_record(comm, t, NULL, NULL), BATON_ERR_AGAIN);
	for (int i = 0; i < 15; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(joins_of_one_request_are_counted_and_bounded)
{
	enum { MANY = 65535 };
	struct baton_comm_options options = scripted_options();
	struct scripted big_transport;
	struct baton_comm *big;
	baton_request a;
	int refused = 0;

	options.requests_max = MANY + 16;
	scripted_init(&big_transport);
	big = scripted_comm(&big_transport, &options);
	a = scripted_recv(comm, s, 1, NULL);
	for (int i = 0; i < MANY; i++)
		refused += baton_stream_wait(big, t, a) != BATON_OK;
	ck_assert_int_eq(refused, 0);
	ck_assert_int_eq(baton_stream_wait(big, t, a), BATON_ERR_AGAIN);
	scripted_assert_pending(a);
	end_driven(&transport, comm, 1);
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_free(comm, 16);
	scripted_close(&big_transport, big);
}
END_TEST

/* ---- launched functions ---- */

struct step {
	sem_t go;
	int *count, seen;
};

static void
take_step(void *arg)
{
	struct step *step = arg;

	sem_wait(&step->go);
	step->seen = ++*step->count;
}

START_TEST(launches_run_once_in_stream_order)
{
	baton_request before = scripted_recv(comm, s, 1, NULL), after;
	struct step steps[3];
	int count = 0;

	for (int i = 0; i < 3; i++) {
		sem_init(&steps[i].go, 0, i != 1);
		steps[i].count = &count;
		ck_assert_int_eq(baton_stream_launch(comm, s, take_step,
		                                     &steps[i]),
		                 BATON_OK);
	}
	after = scripted_recv(comm, s, 2, NULL);
	ck_assert_int_eq(count, 0);
	end_driven(&transport, comm, 1);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_PENDING);
	ck_assert_str_eq(transport.log, "r1 ");
	sem_post(&steps[1].go);
	while (transport.issues < 2)
		baton_progress(comm);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(steps[i].seen, i + 1);
		sem_destroy(&steps[i].go);
	}
	end_driven(&transport, comm, 2);
	scripted_assert_ended(before, BATON_OK);
	scripted_assert_ended(after, BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(launch_takes_a_slot_until_it_has_run)
{
	struct step step = {.count = &(int){0}};
	baton_request requests[15];
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	sem_init(&step.go, 0, 0);
	options.flags = BATON_OP_DETACHED;
	ck_assert_int_eq(baton_stream_launch(comm, s, take_step, &step),
	                 BATON_OK);
	for (int i = 0; i < 15; i++)
		requests[i] = scripted_recv(comm, t, i, &options);
	ck_assert_int_eq(baton_stream_launch(comm, s, take_step, &step),
	                 BATON_ERR_AGAIN);
	/* Its record is on the stack of who waits. */
	sem_post(&step.go);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	for (int i = 0; i < 15; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
	scripted_assert_free(comm, 16);
	sem_destroy(&step.go);
}
END_TEST

START_TEST(launch_without_memory_for_a_thread_is_refused)
{
	struct step step = {.count = &(int){0}};

	sem_init(&step.go, 0, 1);
	ck_assert_int_eq(baton_stream_launch(comm, s, NULL, NULL),
	                 BATON_ERR_INVALID);
	batoni_mem_fail_at(1);
	ck_assert_int_eq(baton_stream_launch(comm, s, take_step, &step),
	                 BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	ck_assert_int_eq(baton_stream_launch(comm, s, take_step, &step),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	ck_assert_int_eq(step.seen, 1);
	scripted_assert_free(comm, 16);
	sem_destroy(&step.go);
}
END_TEST

/* ---- asking and ending ---- */

START_TEST(synchronize_needs_no_slot)
{
	baton_request requests[16];

	for (int i = 0; i < 16; i++)
		requests[i] = scripted_recv(comm, s, i, NULL);
	ck_assert_int_eq(baton_stream_synchronize(comm, t), BATON_OK);
	/* Each is ended by the pass that finds it. */
	transport.issue = BATON_OK;
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 0), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	transport.issue = BATON_PENDING;
	for (int i = 0; i < 16; i++)
		scripted_assert_ended(requests[i], BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(query_makes_a_pass)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	ck_assert_int_eq(baton_stream_query(comm, s), BATON_PENDING);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
}
END_TEST

START_TEST(busy_stream_and_default_stream_are_not_destroyed)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_stream old = t;

	ck_assert_int_eq(baton_stream_destroy(comm, s), BATON_ERR_BUSY);
	ck_assert_int_eq(baton_stream_destroy(comm, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_stream_destroy(comm, t), BATON_OK);
	t = NULL;
	ck_assert_int_eq(baton_stream_destroy(comm, old), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 1, comm, old, NULL,
	                            NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_stream_query(comm, old), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_stream_synchronize(comm, old),
	                 BATON_ERR_INVALID);
	end_driven(&transport, comm, 1);
	scripted_assert_ended(a, BATON_OK);
}
END_TEST

START_TEST(destroyed_stream_takes_its_untold_error_along)
{
	baton_stream again;

	transport.fail_at = 1;
	transport.fail_with = BATON_ERR_MPI;
	ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 1, comm, t, NULL,
	                            NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(comm, t), BATON_OK);
	/* Its place is used again when all have been. */
	for (;;) {
		again = scripted_stream(comm);
		if (again == t)
			break;
		ck_assert_int_eq(baton_stream_destroy(comm, again), BATON_OK);
	}
	ck_assert_int_eq(baton_stream_synchronize(comm, t), BATON_OK);
}
END_TEST

START_TEST(more_errors_than_can_be_kept_lose_the_oldest_only)
{
	enum { MAX = 64 };
	baton_stream streams[MAX + 1];
	int told = 0;

	transport.issue = BATON_ERR_MPI;
	for (int i = 0; i <= MAX; i++) {
		streams[i] = scripted_stream(comm);
		ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 1, comm,
		                            streams[i], NULL, NULL),
		                 BATON_OK);
	}
	for (int i = 0; i <= MAX; i++) {
		told += baton_stream_synchronize(comm, streams[i]) ==
		        BATON_ERR_MPI;
		scripted_stream_close(streams[i]);
	}
	ck_assert_int_eq(told, MAX);
}
END_TEST

START_TEST(streams_serve_all_communicators_of_the_process)
{
	struct scripted other_transport;
	struct baton_comm *other;
	baton_request a, b;

	scripted_init(&other_transport);
	other = scripted_comm(&other_transport, NULL);
	a = scripted_recv(comm, s, 1, NULL);
	b = scripted_recv(other, s, 2, NULL);
	ck_assert_str_eq(other_transport.log, "");
	ck_assert_int_eq(baton_stream_query(other, s), BATON_PENDING);
	end_driven(&transport, comm, 1);
	ck_assert_str_eq(other_transport.log, "r2 ");
	end_driven(&other_transport, other, 2);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_close(&other_transport, other);
}
END_TEST

START_TEST(arguments_are_checked)
{
	baton_stream none = NULL;

	ck_assert_int_eq(baton_stream_create(NULL, &none), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_stream_create(comm, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_stream_destroy(NULL, s), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_stream_query(NULL, s), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_stream_synchronize(NULL, s), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             "baton_stream_synchronize"));
	ck_assert_int_eq(baton_stream_wait(NULL, s, 1), BATON_ERR_INVALID);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		what_was_on_a_synchronized_stream_is_in_its_queue,
		stream_is_idle_when_all_its_requests_have_ended,
		record_ends_when_its_stream_gets_there,
		record_takes_no_flags_and_no_deadline,
		stream_waits_for_a_request_of_another_stream,
		stream_that_waits_goes_on_however_the_request_ends,
		waiting_for_what_is_over_takes_nothing,
		slot_of_a_joined_request_is_kept_for_its_streams,
		join_may_be_on_another_communicator_and_destroy_waits_for_it,
		pool_that_is_full_refuses_a_join_and_leaves_no_trace,
		joins_of_one_request_are_counted_and_bounded,
		launches_run_once_in_stream_order,
		launch_takes_a_slot_until_it_has_run,
		launch_without_memory_for_a_thread_is_refused,
		synchronize_needs_no_slot,
		query_makes_a_pass,
		busy_stream_and_default_stream_are_not_destroyed,
		destroyed_stream_takes_its_untold_error_along,
		more_errors_than_can_be_kept_lose_the_oldest_only,
		streams_serve_all_communicators_of_the_process,
		arguments_are_checked,
	};

	return RUN_TESTS_WITH("stream", tests, setup, teardown);
}
