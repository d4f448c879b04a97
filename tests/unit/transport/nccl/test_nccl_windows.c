/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts by NCCL's one-sided calls, over both simulators: three ranks of one process, on which
 * BATON_WINDOW_PATH forces that path.  A thread that holds the device's lock of a rank keeps its
 * puts from leaving.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "nccl_windows.h"
#include "nccl_world.h"
#include "run_tests.h"

/* The parts of windows; a staged put of the whole of it is three chunks. */
enum { PART = 600 << 10 };

struct part {
	int rank;
	void *base;
	size_t bytes;
	struct baton_window *window;
	enum baton_status status;
	char why[300];
};

static struct part parts[RANKS];

static const struct baton_op_options detached = {
	.size = sizeof(detached), .flags = BATON_OP_DETACHED};

/* ---- windows ---- */

static void *
register_main(void *argument)
{
	struct part *part = argument;

	part->window = NULL;
	part->status = baton_window_register(part->base, part->bytes,
	                                     comms[part->rank], &part->window);
	strncpy(part->why, baton_last_error(), sizeof(part->why) - 1);
	return NULL;
}

static void *
deregister_main(void *argument)
{
	struct part *part = argument;

	part->status = baton_window_deregister(part->window);
	return NULL;
}

static void
on_all(void *(*main)(void *))
{
	pthread_t threads[RANKS];

	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, main,
		                                &parts[i]),
		                 0);
	for (int i = 0; i < RANKS; i++)
		pthread_join(threads[i], NULL);
}

static void
take_parts(void)
{
	for (int i = 0; i < RANKS; i++) {
		parts[i].rank = i;
		parts[i].bytes = PART;
		ck_ok(baton_mem_alloc(comms[i], PART, &parts[i].base));
	}
}

static void
make_windows(void)
{
	take_parts();
	on_all(register_main);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(parts[i].status == BATON_OK, "%s", parts[i].why);
}

static void
give_parts(void)
{
	for (int i = 0; i < RANKS; i++)
		ck_ok(baton_mem_free(comms[i], parts[i].base));
}

static void
create_native(void)
{
	setenv("BATON_WINDOW_PATH", "native", 1);
	create_all();
}

static void
begin(void)
{
	create_native();
	make_windows();
}

static void
end_parts(void)
{
	on_all(deregister_main);
	for (int i = 0; i < RANKS; i++)
		ck_ok(parts[i].status);
	ck_assert_int_eq(nccl->sim_live("windows"), RANKS); /* of the staging */
	give_parts();
	destroy_all();
}

/* ---- bytes ---- */

static void
set_memory(int rank, void *to, unsigned char byte, size_t bytes)
{
	unsigned char *all = malloc(bytes);
	CUcontext popped;

	memset(all, byte, bytes);
	ck_cuda(cuda->context_push(contexts[rank]));
	ck_cuda(cuda->copy_in((CUdeviceptr)(uintptr_t)to, all, bytes));
	ck_cuda(cuda->context_pop(&popped));
	free(all);
}

static size_t
count(const void *from, unsigned char byte, size_t bytes)
{
	unsigned char *all = malloc(bytes);
	size_t n = 0;

	cuda->sim_peek(all, (CUdeviceptr)(uintptr_t)from, bytes);
	while (n < bytes && all[n] == byte)
		n++;
	free(all);
	return n;
}

static char *
into(int rank, size_t offset)
{
	return (char *)parts[rank].base + offset;
}

static baton_request
put_signaled(int rank, int peer, const void *from, size_t bytes, size_t offset,
             int context, const struct baton_op_options *options)
{
	baton_request request = 0;
	enum baton_status status = baton_put_signal(
		from, bytes, BATON_UINT8, peer, parts[rank].window, offset, 1,
		context, 0, comms[rank], streams[rank], options, &request);

	ck_assert_msg(status == BATON_OK, "%s", baton_last_error());
	return request;
}

static baton_request
wait_on(struct baton_comm *comm, int rank, int peer, int n, int context)
{
	const struct baton_wait_signal_desc desc = {n, peer, 1, context};
	baton_request request = 0;

	ck_ok(baton_wait_signal(1, &desc, comm, others[rank], NULL, &request));
	return request;
}

static baton_request
wait_for(int rank, int peer, int n, int context)
{
	return wait_on(comms[rank], rank, peer, n, context);
}

/* ---- the path ---- */

START_TEST(put_is_there_when_its_signal_is)
{
	long before;

	begin();
	before = nccl->sim_uses("ncclPutSignal");
	for (int i = 0; i < RANKS; i++) {
		ck_assert_uint_eq(baton_window_path(parts[i].window, i),
		                  BATON_WINDOW_PATH_NATIVE);
		set_memory(i, into(i, 0), (unsigned char)(i + 1), 1000);
	}
	for (int i = 0; i < RANKS; i++)
		put_signaled(i, (i + 1) % RANKS, into(i, 0), 1000, 5000, 0, &detached);
	for (int i = 0; i < RANKS; i++) {
		int from = (i + RANKS - 1) % RANKS;

		finish(wait_for(i, from, 1, 0), BATON_OK);
		ck_assert_uint_eq(count(into(i, 5000), (unsigned char)(from + 1),
		                        1001),
		                  1000);
	}
	ck_assert_int_eq(nccl->sim_uses("ncclPutSignal") - before, RANKS);
	end_parts();
}
END_TEST

/* Memory of the device that is in no window, in chunks; pinned memory; pageable memory, by
 * message. */
START_TEST(source_may_be_any_memory)
{
	static char pageable[BYTES];
	CUcontext popped;
	CUdeviceptr far;
	void *pinned;
	long before;

	begin();
	ck_cuda(cuda->context_push(contexts[0]));
	ck_cuda(cuda->mem_alloc(&far, PART));
	ck_cuda(cuda->host_alloc(&pinned, BYTES, BATONI_CU_HOST_ALLOC_PORTABLE));
	ck_cuda(cuda->context_pop(&popped));
	set_memory(0, (void *)(uintptr_t)far, 7, PART);
	memset(pinned, 8, BYTES);
	memset(pageable, 9, BYTES);
	before = nccl->sim_uses("ncclPutSignal");
	finish(put_signaled(0, 1, (void *)(uintptr_t)far, PART, 0, 0, NULL), BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	ck_assert_uint_eq(count(into(1, 0), 7, PART), PART);
	ck_assert_int_eq(nccl->sim_uses("ncclPutSignal") - before, 3);
	finish(put_signaled(0, 1, pinned, BYTES, BYTES, 0, NULL), BATON_OK);
	finish(put_signaled(0, 1, pageable, BYTES, 2 * BYTES, 0, NULL), BATON_OK);
	finish(wait_for(1, 0, 2, 0), BATON_OK);
	ck_assert_uint_eq(count(into(1, BYTES), 8, BYTES), BYTES);
	ck_assert_uint_eq(count(into(1, 2 * BYTES), 9, BYTES), BYTES);
	ck_assert_int_eq(nccl->sim_uses("ncclPutSignal") - before, 4);
	end_parts();
	ck_cuda(cuda->context_push(contexts[0]));
	ck_cuda(cuda->mem_free(far));
	ck_cuda(cuda->host_free(pinned));
	ck_cuda(cuda->context_pop(&popped));
}
END_TEST

/* Signals alone, puts and messages with data keep the order of the channel; contexts do not wait
 * for each other, and share NCCL's count. */
START_TEST(contexts_share_what_nccl_counts)
{
	baton_request requests[3 * 20];

	begin();
	for (int i = 0; i < 20; i++) {
		for (int context = 0; context < 3; context++)
			requests[3 * i + context] =
				put_signaled(0, 1, into(0, 0), 64, (size_t)(64 * i),
			                     context, &detached);
	}
	for (int context = 2; context >= 0; context--)
		finish(wait_for(1, 0, 20, context), BATON_OK);
	for (int i = 0; i < 3 * 20; i++)
		finish(requests[i], BATON_OK);
	end_parts();
}
END_TEST

/* ---- what NCCL does otherwise ---- */

/* The first one-sided call of a communicator of NCCL's is a collective. */
START_TEST(first_put_needs_no_third_rank)
{
	begin();
	ck_ok(baton_comm_lock_device(comms[2]));
	finish(put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached), BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	ck_ok(baton_comm_unlock_device(comms[2]));
	end_parts();
}
END_TEST

/* A wait of NCCL's holds up its communicator, and has no way back. */
START_TEST(wait_that_is_unmet_is_none_of_nccl)
{
	const struct baton_wait_signal_desc desc = {1, 1, 1, 0};
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .timeout_ns = 1000000};
	baton_request late, canceled = 0, last;
	uint64_t n = 0;
	long before;

	begin();
	before = nccl->sim_uses("ncclWaitSignal");
	ck_ok(baton_wait_signal(1, &desc, comms[0], streams[0], &soon, &late));
	ck_ok(baton_wait_signal(1, &desc, comms[0], others[0], NULL,
	                        &canceled));
	/* Puts and messages of this rank go on. */
	finish(put_signaled(0, 2, into(0, 0), BYTES, 0, 0, &detached), BATON_OK);
	finish(wait_for(2, 0, 1, 0), BATON_OK);
	finish(late, BATON_ERR_TIMEOUT);
	ck_ok(baton_cancel(canceled));
	finish(canceled, BATON_ERR_CANCELED);
	ck_assert(is_idle(0, streams[0]));
	ck_assert(is_idle(0, others[0]));
	ck_assert_int_eq(nccl->sim_uses("ncclWaitSignal") - before, 1);
	/* They have taken nothing. */
	set_memory(1, into(1, 0), 3, BYTES);
	put_signaled(1, 0, into(1, 0), BYTES, BYTES, 0, &detached);
	last = wait_for(0, 1, 1, 0);
	finish(last, BATON_OK);
	ck_assert_uint_eq(count(into(0, BYTES), 3, BYTES), BYTES);
	ck_ok(baton_signal_count(comms[0], 1, 1, 0, &n));
	ck_assert_uint_eq(n, 1);
	end_parts();
}
END_TEST

/* NCCL takes no call while it launches another: a window is registered, and ended, between the
 * launches of puts into one that was there before. */
START_TEST(windows_come_and_go_beside_puts)
{
	struct part before[RANKS];
	baton_request requests[12];
	int n = sizeof(requests) / sizeof(requests[0]);

	begin();
	ck_assert(nccl->sim_set("delay_us", 20000));
	for (int i = 0; i < n; i++)
		requests[i] = put_signaled(0, 1, into(0, 0), BYTES, 0, i % 4, &detached);
	memcpy(before, parts, sizeof(parts));
	make_windows();
	on_all(deregister_main);
	for (int i = 0; i < RANKS; i++)
		ck_ok(parts[i].status);
	give_parts();
	memcpy(parts, before, sizeof(parts));
	ck_assert(nccl->sim_set("delay_us", 0));
	for (int i = 0; i < n; i++)
		finish(requests[i], BATON_OK);
	for (int i = 0; i < 4; i++)
		finish(wait_for(1, 0, n / 4, i), BATON_OK);
	end_parts();
}
END_TEST

static void *
lock_main(void *argument)
{
	sem_t *sems = argument;

	ck_ok(baton_comm_lock_device(comms[0]));
	sem_post(&sems[0]);
	sem_wait(&sems[1]);
	ck_ok(baton_comm_unlock_device(comms[0]));
	return NULL;
}

/* NCCL reads a source in place only in a window: one ends when no put that was begun so is to
 * read it any more. */
START_TEST(window_ends_when_no_put_is_from_it)
{
	struct part source[RANKS], target[RANKS];
	pthread_t threads[RANKS], locker;
	baton_request request;
	sem_t sems[2];

	begin();
	memcpy(source, parts, sizeof(parts));
	make_windows();
	memcpy(target, parts, sizeof(parts));
	set_memory(0, source[0].base, 9, BYTES);
	sem_init(&sems[0], 0, 0);
	sem_init(&sems[1], 0, 0);
	pthread_create(&locker, NULL, lock_main, sems);
	sem_wait(&sems[0]);
	request = put_signaled(0, 1, source[0].base, BYTES, 0, 0, &detached);
	for (int i = 0; i < 1000; i++)
		baton_progress(comms[0]);
	for (int i = RANKS; i-- > 0;)
		pthread_create(&threads[i], NULL, deregister_main, &source[i]);
	for (int i = RANKS; i-- > 1;)
		pthread_join(threads[i], NULL);
	sem_post(&sems[1]);
	pthread_join(threads[0], NULL);
	pthread_join(locker, NULL);
	for (int i = 0; i < RANKS; i++)
		ck_ok(source[i].status);
	finish(request, BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	ck_assert_uint_eq(count(into(1, 0), 9, BYTES), BYTES);
	/* As any other memory now. */
	finish(put_signaled(0, 1, source[0].base, BYTES, BYTES, 0, &detached), BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	ck_assert_uint_eq(count(into(1, BYTES), 9, BYTES), BYTES);
	memcpy(parts, source, sizeof(parts));
	give_parts();
	memcpy(parts, target, sizeof(parts));
	end_parts();
}
END_TEST

/* NCCL would write there. */
START_TEST(put_beyond_the_window_is_refused)
{
	static const size_t offsets[] = {PART - BYTES + 1, PART, SIZE_MAX};
	baton_request request = 0;

	begin();
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		ck_assert_int_eq(baton_put_signal(into(0, 0), BYTES, BATON_UINT8,
		                                  1, parts[0].window, offsets[i],
		                                  1, 0, 0, comms[0], streams[0],
		                                  NULL, &request),
		                 BATON_ERR_INVALID);
	}
	put_signaled(0, 1, into(0, 0), BYTES, PART - BYTES, 0, &detached);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	end_parts();
}
END_TEST

/* In a group of NCCL's puts would begin before messages. */
START_TEST(group_has_puts_and_messages)
{
	baton_request requests[2], recv;

	begin();
	recv = move(1, 0, false, &detached);
	ck_ok(baton_group_begin(comms[0]));
	requests[0] = move(0, 1, true, NULL);
	requests[1] = put_signaled(0, 1, into(0, 0), BYTES, 0, 0, NULL);
	ck_ok(baton_group_end(comms[0]));
	for (int i = 0; i < 2; i++)
		finish(requests[i], BATON_OK);
	finish(recv, BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	end_parts();
}
END_TEST

/* More than are under way at a time; the ranks put to each other, in other numbers and lengths.
 * Each source has bytes of its own. */
START_TEST(partners_are_unequal)
{
	enum { MANY = 500, OF_TWO = 150000, FROM = 310000 };
	static const size_t lengths[] = {1, 4095, 70000, 140000};
	baton_request requests[MANY];
	int puts[RANKS][RANKS] = {{0}};

	begin();
	for (int i = 0; i < MANY; i++) {
		int from = i % 5 < 4 ? 0 : 2, to = i % 7 < 5 ? 1 : 2;

		requests[i] = put_signaled(from, to, into(from, FROM), lengths[i % 4],
		                           (size_t)(from == 2 ? OF_TWO + i : i), 0,
		                           &detached);
		puts[from][to]++;
	}
	for (int from = 0; from < RANKS; from++) {
		for (int to = 0; to < RANKS; to++) {
			if (puts[from][to] > 0)
				finish(wait_for(to, from, puts[from][to], 0),
				       BATON_OK);
		}
	}
	for (int i = 0; i < MANY; i++)
		finish(requests[i], BATON_OK);
	end_parts();
}
END_TEST

/* ---- ends ---- */

static void
lock(int rank)
{
	ck_ok(baton_comm_lock_device(comms[rank]));
}

static void
unlock(int rank)
{
	ck_ok(baton_comm_unlock_device(comms[rank]));
}

START_TEST(put_that_has_not_left_is_taken_back)
{
	baton_request request;

	begin();
	set_memory(0, into(0, 0), 5, BYTES);
	lock(0);
	request = put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached);
	for (int i = 0; i < 20; i++)
		baton_progress(comms[0]);
	ck_assert_int_eq(baton_test(request, NULL), BATON_PENDING);
	ck_ok(baton_cancel(request));
	finish(request, BATON_ERR_CANCELED);
	unlock(0);
	ck_assert_uint_eq(count(into(1, 0), 5, BYTES), 0);
	/* The next one is the first. */
	finish(put_signaled(0, 1, into(0, 0), BYTES, BYTES, 0, &detached), BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	ck_assert_uint_eq(count(into(1, BYTES), 5, BYTES), BYTES);
	ck_assert_uint_eq(count(into(1, 0), 5, BYTES), 0);
	end_parts();
}
END_TEST

/* Messages are NCCL's, and cannot be; a wait is the layer's. */
START_TEST(launch_of_a_wait_is_cancelled)
{
	const struct baton_wait_signal_desc desc = {1, 0, 1, 0};
	struct baton_plan *plan;
	baton_request request;

	begin();
	ck_ok(baton_plan_begin(comms[1]));
	ck_ok(baton_wait_signal(1, &desc, comms[1], others[1], NULL, NULL));
	ck_ok(baton_plan_end(comms[1], &plan));
	ck_ok(baton_plan_launch(plan, NULL, &request));
	ck_ok(baton_cancel(request));
	finish(request, BATON_ERR_CANCELED);
	baton_plan_destroy(plan);
	end_parts();
}
END_TEST

START_TEST(deadline_ends_a_put_that_has_not_left)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .flags = BATON_OP_DETACHED,
	                                      .timeout_ns = 1000000};
	baton_request request;

	begin();
	lock(0);
	request = put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &soon);
	finish(request, BATON_ERR_TIMEOUT);
	unlock(0);
	finish(put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached), BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	end_parts();
}
END_TEST

static void
abort_and_end(void)
{
	for (int i = 0; i < RANKS; i++)
		baton_comm_abort(comms[i]);
	for (int i = 0; i < RANKS; i++) {
		ck_ok(baton_window_deregister(parts[i].window));
		ck_ok(baton_mem_free(comms[i], parts[i].base));
		ck_ok(baton_comm_destroy(comms[i]));
	}
	await_no_comms();
}

START_TEST(abort_ends_puts_and_waits)
{
	baton_request request, waits;

	begin();
	lock(0);
	request = put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached);
	waits = wait_for(1, 0, 1, 0);
	baton_comm_abort(comms[1]);
	finish(waits, BATON_ERR_ABORTED);
	unlock(0);
	baton_comm_abort(comms[0]);
	(void)baton_release(&request);
	abort_and_end();
}
END_TEST

/* A put that its source has announced is lost, as when that dies with the network. */
static void
ask_for(struct baton_comm *comm, int source)
{
	struct batoni_transport *transport = comm->transport;

	batoni_lock();
	ck_assert_int_ne(transport->puts->await(transport, source, 100),
	                 BATON_OK);
	batoni_unlock();
}

static void
wait_in_nccl(struct baton_comm *comm, int source)
{
	const long before = nccl->sim_uses("ncclWaitSignal");

	while (nccl->sim_uses("ncclWaitSignal") == before)
		ask_for(comm, source);
}

/* In error NCCL's communicator for puts is not revoked. */
static void
abort_in_a_wait(bool in_error)
{
	struct batoni_nccl *transport;
	struct baton_comm *stuck[RANKS];
	baton_request waits, ends[2];

	begin();
	memcpy(stuck, comms, sizeof(stuck));
	create(0, BATON_PROGRESS_AUTO);
	waits = wait_on(stuck[1], 1, 0, 1, 0);
	wait_in_nccl(stuck[1], 0);
	transport = batoni_container_of(stuck[1]->transport,
	                                struct batoni_nccl, base);
	if (in_error)
		nccl->sim_break(transport->puts->lane->comm,
		                BATONI_NCCL_REMOTE_ERROR);
	for (int i = 0; i < RANKS; i++) {
		baton_comm_abort(stuck[i]);
		if (i == 1)
			finish(waits, BATON_ERR_ABORTED);
		ck_ok(baton_window_deregister(parts[i].window));
		ck_ok(baton_mem_free(stuck[i], parts[i].base));
		ck_ok(baton_comm_destroy(stuck[i]));
	}
	ck_assert(is_idle(1, others[1]));
	/* The GPU is of use to others. */
	ends[0] = move(0, 1, true, NULL);
	ends[1] = move(1, 0, false, NULL);
	finish(ends[0], BATON_OK);
	finish(ends[1], BATON_OK);
	make_windows();
	finish(put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached), BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	on_all(deregister_main);
}

START_TEST(abort_does_not_wait_for_what_nccl_waits_for)
{
	abort_in_a_wait(false);
}
END_TEST

START_TEST(abort_after_an_error_does_not_wait_for_what_nccl_waits_for)
{
	abort_in_a_wait(true);
}
END_TEST

START_TEST(put_that_nccl_refuses_breaks_the_communicator)
{
	baton_request request;

	begin();
	ck_assert(nccl->sim_fail("ncclPutSignal", 1,
	                         BATONI_NCCL_SYSTEM_ERROR));
	request = put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached);
	finish(request, BATON_ERR_NCCL);
	ck_assert_ptr_nonnull(
		strstr(baton_comm_error(comms[0]), "ncclPutSignal"));
	abort_and_end();
}
END_TEST

static CUstream
puts_stream(int rank)
{
	struct batoni_nccl *transport = batoni_container_of(
		comms[rank]->transport, struct batoni_nccl, base);

	return (CUstream)transport->puts->lane->stream;
}

static void
fail_cuda(const char *call, long times)
{
	for (long n = 1; n <= times; n++)
		ck_assert(cuda->sim_fail(call, n, 999, false)); /* unknown */
}

START_TEST(mark_that_is_refused_is_put_again)
{
	baton_request request;

	begin();
	set_memory(0, into(0, 0), 5, BYTES);
	fail_cuda("cuEventRecord", 2);
	request = put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached);
	finish(request, BATON_OK);
	finish(wait_for(1, 0, 1, 0), BATON_OK);
	ck_assert_uint_eq(count(into(1, 0), 5, BYTES), BYTES);
	end_parts();
}
END_TEST

/* The device does not tell of the end of what NCCL has: the communicator breaks, and NCCL may still
 * read the buffer.  The engine's thread asks a second time where it stood in the GPU's context before. */
START_TEST(put_that_the_device_loses_is_lent)
{
	static const struct {
		const char *call;
		int times;
	} lost[] = {{"cuEventRecord", 3}, {"cuEventQuery", 2}};
	struct baton_completion completion;
	baton_request request;

	setenv("BATON_WINDOW_PATH", "native", 1);
	load();
	for (int i = 0; i < 2; i++) {
		create(0, BATON_PROGRESS_AUTO);
		make_windows();
		hold(0, puts_stream(0), i);
		fail_cuda(lost[i].call, lost[i].times);
		request = put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached);
		ck_assert_int_eq(baton_wait(request, 20 * SECOND, &completion),
		                 BATON_ERR_CUDA);
		ck_assert(cuda->sim_fail(lost[i].call, 0, 0, false));
		ck_assert_uint_ne(completion.flags & BATON_COMPLETION_LENT, 0);
		ck_assert_int_eq(baton_comm_status(comms[0]), BATON_ERR_CUDA);
		let_go(i);
		/* It is free when the mark is done. */
		while (i == 1 && (completion.flags & BATON_COMPLETION_LENT))
			(void)baton_test(request, &completion);
		ck_ok(baton_release(&request));
		abort_and_end();
	}
}
END_TEST

/* Whatever fails: all ends, and nothing is left.  A wait that fails breaks its rank only. */
START_TEST(calls_that_fail_leave_nothing)
{
	static const char *const calls[] = {
		"ncclPutSignal", "ncclWaitSignal", "ncclCommGetAsyncError",
		"cuMemcpyAsync", "cuEventQuery", "cuEventRecord"};
	CUdeviceptr far;

	setenv("BATON_WINDOW_PATH", "native", 1);
	load();
	far = (uintptr_t)at(0, 0);
	for (int i = 0; i < 12; i++) {
		const char *name = calls[i / 2];
		baton_request request, waits;

		create(0, BATON_PROGRESS_AUTO);
		make_windows();
		ck_assert(name[0] == 'n'
		                  ? nccl->sim_fail(name, 1 + i % 2,
		                                   BATONI_NCCL_SYSTEM_ERROR)
		                  : cuda->sim_fail(name, 1 + i % 2,
		                                   BATONI_CU_OUT_OF_MEMORY,
		                                   false));
		waits = wait_for(1, 0, 2, 0);
		put_signaled(0, 1, (void *)(uintptr_t)far, BYTES, 0, 0, &detached);
		request = BATON_REQUEST_NULL;
		/* The first one may have broken it. */
		(void)baton_put_signal(into(0, 0), BYTES, BATON_UINT8, 1,
		                       parts[0].window, 0, 1, 0, 0, comms[0],
		                       streams[0], &detached, &request);
		(void)baton_finish(&request, SECOND, NULL);
		baton_comm_abort(comms[0]);
		baton_comm_abort(comms[1]);
		ck_assert_int_ne(baton_finish(&waits, 20 * SECOND, NULL),
		                 BATON_PENDING);
		abort_and_end();
		/* The second use may not have come, and is not for the next round. */
		ck_assert(name[0] == 'n' ? nccl->sim_fail(name, 0, 0)
		                         : cuda->sim_fail(name, 0, 0, false));
	}
}
END_TEST

START_TEST(asynchronous_error_breaks_the_communicator)
{
	baton_request request;

	begin();
	/* The kernel never ends, and its communicator is in error. */
	ck_assert(nccl->sim_fail("kernel", 1, BATONI_NCCL_REMOTE_ERROR));
	request = put_signaled(0, 1, into(0, 0), BYTES, 0, 0, &detached);
	finish(request, BATON_ERR_NCCL);
	abort_and_end();
}
END_TEST

/* ---- windows that are refused ---- */

static void
all_refuse_with(enum baton_status status, const char *why)
{
	on_all(register_main);
	for (int i = 0; i < RANKS; i++) {
		ck_assert_msg(parts[i].status == status, "%d: %s",
		              parts[i].status, parts[i].why);
		/* The ranks whose own part is well are told of another. */
		ck_assert_msg(strstr(parts[i].why, why) != NULL, "%s",
		              parts[i].why);
		ck_ok(baton_comm_status(comms[i]));
	}
}

static void
all_refuse(const char *why)
{
	all_refuse_with(BATON_ERR_UNSUPPORTED, why);
}

/* A rank's device does not say what its part is.  One that has failed refuses the window; where the
 * driver lacks memory the window is none of NCCL's.  Both say why. */
START_TEST(part_that_cannot_be_looked_at_is_told_of)
{
	create_native();
	take_parts();
	ck_assert(cuda->sim_fail("cuMemGetAddressRange", 2, 999, false));
	all_refuse_with(BATON_ERR_CUDA, "cuMemGetAddressRange");
	ck_assert(cuda->sim_fail("cuMemGetAddressRange", 2,
	                         BATONI_CU_OUT_OF_MEMORY, false));
	all_refuse("cuMemGetAddressRange");
	on_all(register_main);
	end_parts();
}
END_TEST

START_TEST(parts_have_to_be_alike)
{
	void *base;

	create_native();
	take_parts();
	parts[2].bytes = PART - 4096;
	all_refuse("rank 2's part");
	parts[2].bytes = PART;
	parts[1].base = (char *)parts[1].base + 64;
	parts[1].bytes -= 64;
	all_refuse("multiple of 4096");
	base = (char *)parts[1].base - 64;
	parts[1].base = at(1, 0);
	parts[1].bytes = PARTS * BYTES;
	all_refuse("baton_mem_alloc");
	parts[1].base = base;
	parts[1].bytes = PART;
	on_all(register_main);
	for (int i = 0; i < RANKS; i++)
		ck_ok(parts[i].status);
	end_parts();
}
END_TEST

START_TEST(an_allocation_has_one_window)
{
	struct baton_window *first[RANKS];

	begin();
	for (int i = 0; i < RANKS; i++)
		first[i] = parts[i].window;
	all_refuse("another window");
	for (int i = 0; i < RANKS; i++)
		parts[i].window = first[i];
	end_parts();
}
END_TEST

START_TEST(a_registration_that_fails_on_one_rank_breaks_all)
{
	int said = 0;

	create_native();
	take_parts();
	ck_assert(nccl->sim_fail("ncclCommWindowRegister", 2,
	                         BATONI_NCCL_SYSTEM_ERROR));
	on_all(register_main);
	for (int i = 0; i < RANKS; i++) {
		ck_assert_int_eq(parts[i].status, BATON_ERR_NCCL);
		said += strstr(parts[i].why, "ncclCommWindowRegister") != NULL;
		ck_assert_int_ne(baton_comm_status(comms[i]), BATON_OK);
	}
	ck_assert_int_eq(said, RANKS);
	give_parts();
	abort_all();
}
END_TEST

/* ---- creation ---- */

/* No puts, for this reason; and messages go on. */
static void
check_without(const char *why)
{
	baton_request ends[2];

	take_parts();
	all_refuse(why);
	ends[0] = move(0, 1, true, NULL);
	ends[1] = move(1, 0, false, NULL);
	finish(ends[0], BATON_OK);
	finish(ends[1], BATON_OK);
	give_parts();
	destroy_all();
}

START_TEST(creation_goes_on_without_puts)
{
	static const char *const calls[] = {"cuMemCreate",
	                                    "ncclCommWindowRegister",
	                                    "ncclSignal"};

	setenv("BATON_WINDOW_PATH", "native", 1);
	load();
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (i == 0)
			ck_assert(cuda->sim_fail(calls[i], 2,
			                         BATONI_CU_OUT_OF_MEMORY,
			                         false));
		else
			ck_assert(nccl->sim_fail(calls[i], 2,
			                         BATONI_NCCL_SYSTEM_ERROR));
		create(0, BATON_PROGRESS_AUTO);
		for (int k = 0; k < RANKS; k++)
			ck_assert_msg(creators[k].status == BATON_OK, "%s: %s",
			              calls[i], creators[k].why);
		check_without("native, which does not reach");
	}
}
END_TEST

/* What allocates by cuMemAlloc would wait for it. */
START_TEST(creation_does_not_wait_for_a_stream_that_waits)
{
	setenv("BATON_WINDOW_PATH", "native", 1);
	load();
	for (int i = 0; i < RANKS; i++)
		hold(i, streams[i], i);
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	make_windows();
	ck_assert_uint_eq(baton_window_path(parts[0].window, 1),
	                  BATON_WINDOW_PATH_NATIVE);
	for (int i = 0; i < RANKS; i++) {
		ck_assert(!is_idle(i, streams[i]));
		let_go(i);
	}
	end_parts();
}
END_TEST

START_TEST(over_sockets_there_are_none)
{
	setenv("BATON_WINDOW_PATH", "native", 1);
	load();
	ck_assert(nccl->sim_set("sockets", 1));
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	check_without("sockets");
}
END_TEST

/* Those of the program, when that of the staging is one. */
START_TEST(windows_that_nccl_does_not_give_are_refused)
{
	create_native();
	ck_assert(nccl->sim_set("sockets", 1));
	check_without("no symmetric windows");
}
END_TEST

START_TEST(old_drivers_have_none)
{
	setenv("CUDASIM_VERSION", "12040", 1);
	create_native();
	check_without("need a CUDA driver of 12.5 or later, and rank 0's is of "
	              "12.4");
}
END_TEST

START_TEST(old_versions_have_none)
{
	setenv("NCCLSIM_VERSION", "2.28", 1);
	create_native();
	check_without("2.29.2");
}
END_TEST

START_TEST(new_versions_have_them)
{
	setenv("NCCLSIM_VERSION", "2.32", 1);
	begin();
	finish(put_signaled(0, 1, into(0, 0), BYTES, 0, 2, &detached), BATON_OK);
	finish(wait_for(1, 0, 1, 2), BATON_OK);
	end_parts();
}
END_TEST

START_TEST(ranks_of_one_host_do_not_prepare_them)
{
	create_all();
	take_parts();
	on_all(register_main);
	for (int i = 0; i < RANKS; i++)
		ck_ok(parts[i].status);
	ck_assert_uint_ne(baton_window_path(parts[0].window, 1),
	                  BATON_WINDOW_PATH_NATIVE);
	ck_assert_int_eq(nccl->sim_uses("ncclCommWindowRegister"), 0);
	on_all(deregister_main);
	give_parts();
	destroy_all();
}
END_TEST

/* ---- without NCCL's puts ---- */

/* GPUs of one process that do not reach each other's memory, or whose copies are refused or too late. */
START_TEST(gpus_out_of_reach_have_puts_by_staged_messages)
{
	baton_request sent, waited;

	load();
	ck_assert(cuda->sim_set("peer_copies", 0));
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	make_windows();
	ck_assert_int_eq(baton_window_path(parts[0].window, 1),
	                 BATON_WINDOW_PATH_MESSAGE);
	for (size_t bytes = 8; bytes <= PART; bytes *= PART / 8) {
		set_memory(0, into(0, 0), 5, bytes);
		waited = wait_on(comms[1], 1, 0, 1, 0);
		sent = put_signaled(0, 1, into(0, 0), bytes, 0, 0, NULL);
		finish(sent, BATON_OK);
		finish(waited, BATON_OK);
		ck_assert_uint_eq(count(into(1, 0), 5, bytes), bytes);
	}
	on_all(deregister_main);
	give_parts();
	destroy_all();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		put_is_there_when_its_signal_is,
		source_may_be_any_memory,
		contexts_share_what_nccl_counts,
		first_put_needs_no_third_rank,
		wait_that_is_unmet_is_none_of_nccl,
		windows_come_and_go_beside_puts,
		window_ends_when_no_put_is_from_it,
		put_beyond_the_window_is_refused,
		group_has_puts_and_messages,
		partners_are_unequal,
		put_that_has_not_left_is_taken_back,
		launch_of_a_wait_is_cancelled,
		deadline_ends_a_put_that_has_not_left,
		abort_ends_puts_and_waits,
		abort_does_not_wait_for_what_nccl_waits_for,
		abort_after_an_error_does_not_wait_for_what_nccl_waits_for,
		put_that_nccl_refuses_breaks_the_communicator,
		mark_that_is_refused_is_put_again,
		put_that_the_device_loses_is_lent,
		calls_that_fail_leave_nothing,
		asynchronous_error_breaks_the_communicator,
		part_that_cannot_be_looked_at_is_told_of,
		parts_have_to_be_alike,
		an_allocation_has_one_window,
		a_registration_that_fails_on_one_rank_breaks_all,
		creation_goes_on_without_puts,
		creation_does_not_wait_for_a_stream_that_waits,
		over_sockets_there_are_none,
		windows_that_nccl_does_not_give_are_refused,
		old_drivers_have_none,
		old_versions_have_none,
		new_versions_have_them,
		ranks_of_one_host_do_not_prepare_them,
		gpus_out_of_reach_have_puts_by_staged_messages,
	};

	return RUN_TESTS("nccl_windows", tests);
}
