/* SPDX-License-Identifier: BSD-3-Clause */
#include "scripted_world.h"

#include <check.h>
#include <pthread.h>

#include "mem.h"

struct scripted transport;
struct baton_comm *comm;
baton_stream s, t;
uint64_t now;
struct gate gate;

static uint64_t
injected(void)
{
	return now;
}

void
world_setup(void)
{
	now = 1000;
	batoni_clock_set(injected);
	sem_init(&gate.entered, 0, 0);
	sem_init(&gate.go, 0, 0);
	scripted_init(&transport);
	comm = scripted_comm(&transport, NULL);
	s = scripted_stream(comm);
	t = scripted_stream(comm);
}

/* Streams are the process's: they outlive an aborted communicator. */
void
world_teardown(void)
{
	scripted_close(&transport, comm);
	scripted_stream_close(s);
	scripted_stream_close(t);
	batoni_clock_set(NULL);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	sem_destroy(&gate.entered);
	sem_destroy(&gate.go);
}

struct baton_op_options
within(int64_t timeout_ns)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.timeout_ns = timeout_ns;
	return options;
}

struct baton_op_options
detached(void)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	return options;
}

static void
end_scripted(enum batoni_direction direction, int tag, enum baton_status status)
{
	scripted_end(&transport, scripted_live(&transport, direction, tag), 8,
	             status);
	baton_progress(comm);
}

void
end_recv(int tag, enum baton_status status)
{
	end_scripted(BATONI_RECV, tag, status);
}

void
end_send(int tag, enum baton_status status)
{
	end_scripted(BATONI_SEND, tag, status);
}

void
assert_log(const char *log)
{
	ck_assert_str_eq(transport.log, log);
}

void
assert_streams(enum baton_status of_s, enum baton_status of_t)
{
	ck_assert_int_eq(baton_stream_query(comm, s), of_s);
	ck_assert_int_eq(baton_stream_query(comm, t), of_t);
}

void
assert_all_free(void)
{
	transport.take_back = BATON_ERR_CANCELED;
	assert_streams(BATON_OK, BATON_OK);
	scripted_assert_free(comm, 16);
}

/* ---- the gate ---- */

void
stop_at_gate(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)scripted;
	(void)transfer;
	if (!atomic_exchange(&gate.closed, false))
		return;
	sem_post(&gate.entered);
	sem_wait(&gate.go);
}

pthread_t
drive_into_gate(struct baton_comm *driven)
{
	pthread_t thread;

	atomic_store(&gate.closed, true);
	thread = thread_of(one_pass, driven);
	sem_wait(&gate.entered);
	return thread;
}

void
open_gate(pthread_t thread)
{
	sem_post(&gate.go);
	pthread_join(thread, NULL);
}

/* ---- threads ---- */

pthread_t
thread_of(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, fn, arg), 0);
	return thread;
}

void *
one_pass(void *arg)
{
	baton_progress(arg);
	return NULL;
}

void *
wait_for(void *arg)
{
	baton_request *request = arg;

	return baton_wait(*request, -1, NULL) == BATON_OK ? arg : NULL;
}

void
assert_waited(pthread_t thread, baton_request *request)
{
	void *result = NULL;

	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, request);
	scripted_assert_ended(*request, BATON_OK);
}
