/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL transport where streams share hardware queues.
 *
 * The pipeline: each rank is a stage, with a device and a thread of its own.  Messages go through
 * slots in turn, each a buffer and a stream of the program.  A message is received there,
 * copied by a launched function, on another stream for which the function waits, and sent on
 * detached.  A slot is used again behind the send of what it had, so a slow stage holds up those
 * before it.  The lane of a send waits for the slot's stream, and so for the function: a copy
 * that stands behind the lane never comes.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captured.h"
#include "nccl_world.h"
#include "run_tests.h"

enum { STAGES = 4, SLOTS_MAX = 4, MESSAGES = 16 };

struct slot {
	struct stage *stage;
	int number;
	CUstream stream;
	baton_request sent;
};

struct stage {
	int rank;
	struct slot slots[SLOTS_MAX];
	CUstream copies;
	_Atomic int copied;
};

static struct stage stages[STAGES];
static int slots_n;

/* ---- the pipeline --------------------------------------------------------- */

static void
copy_slot(void *argument)
{
	struct slot *slot = argument;
	struct stage *stage = slot->stage;
	CUcontext popped;

	ck_cuda(cuda->context_push(contexts[stage->rank]));
	ck_cuda(cuda->copy(
		(CUdeviceptr)(uintptr_t)at(stage->rank, PARTS - 1),
		(CUdeviceptr)(uintptr_t)at(stage->rank, slot->number), BYTES,
		stage->copies));
	ck_cuda(cuda->stream_synchronize(stage->copies));
	ck_cuda(cuda->context_pop(&popped));
	atomic_fetch_add(&stage->copied, 1);
}

static void
take_message(struct stage *stage, struct slot *slot)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	int rank = stage->rank;

	detached.flags = BATON_OP_DETACHED;
	if (slot->sent != BATON_REQUEST_NULL) {
		ck_ok(baton_stream_wait(comms[rank], slot->stream, slot->sent));
		ck_ok(baton_release(&slot->sent));
	}
	if (rank > 0)
		ck_ok(move_on(slot->stream, rank, rank - 1, false, slot->number,
		              BYTES, NULL, NULL));
	ck_ok(baton_stream_launch(comms[rank], slot->stream, copy_slot, slot));
	if (rank + 1 < STAGES)
		ck_ok(move_on(slot->stream, rank, rank + 1, true, slot->number,
		              BYTES, &detached, &slot->sent));
}

static void *
stage_main(void *argument)
{
	struct stage *stage = argument;

	for (int i = 0; i < MESSAGES; i++)
		take_message(stage, &stage->slots[i % slots_n]);
	for (int i = 0; i < slots_n; i++) {
		struct slot *slot = &stage->slots[i];

		if (slot->sent != BATON_REQUEST_NULL)
			finish(slot->sent, BATON_OK);
		ck_ok(baton_stream_synchronize(comms[stage->rank],
		                               slot->stream));
	}
	return NULL;
}

static void
make_stage(int rank)
{
	struct stage *stage = &stages[rank];
	CUcontext popped;

	stage->rank = rank;
	ck_cuda(cuda->context_push(contexts[rank]));
	for (int i = 0; i < slots_n; i++) {
		stage->slots[i] = (struct slot){.stage = stage,
		                                .number = i,
		                                .sent = BATON_REQUEST_NULL};
		ck_cuda(cuda->stream_create(&stage->slots[i].stream,
		                            BATONI_CU_STREAM_NON_BLOCKING, 0));
	}
	/* Behind those: with one slot its turn is that of the first lane, if both take turns for the
	 * same eight queues. */
	ck_cuda(cuda->stream_create(&stage->copies,
	                            BATONI_CU_STREAM_NON_BLOCKING, 0));
	ck_cuda(cuda->context_pop(&popped));
}

/* A hang is the test's time limit. */
static void
run_pipeline(int slots)
{
	pthread_t threads[STAGES];

	slots_n = slots;
	load();
	create_some(STAGES, 0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < STAGES; i++) {
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
		make_stage(i);
	}
	for (int i = 0; i < STAGES; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, stage_main,
		                                &stages[i]),
		                 0);
	for (int i = 0; i < STAGES; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(atomic_load(&stages[i].copied), MESSAGES);
	}
	destroy_some(STAGES);
}

/* The program's streams are fewer than the queues: no other stream may take theirs. */
START_TEST(a_pipeline_of_one_slot_passes_with_eight_queues)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
	run_pipeline(1);
}
END_TEST

START_TEST(a_pipeline_of_four_slots_passes_with_eight_queues)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
	run_pipeline(SLOTS_MAX);
}
END_TEST

START_TEST(a_pipeline_passes_where_copies_have_queues_of_their_own)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
	setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "8", 1);
	run_pipeline(2);
}
END_TEST

START_TEST(a_pipeline_passes_with_a_queue_for_each_stream)
{
	setenv("CUDASIM_LEVELS", "0", 1);
	run_pipeline(SLOTS_MAX);
}
END_TEST

/* ---- what is said --------------------------------------------------------- */

static int
times(const char *text, const char *words)
{
	int n = 0;

	for (const char *at = text; (at = strstr(at, words)); at++)
		n++;
	return n;
}

static void
create_and_destroy(void)
{
	create_all();
	destroy_all();
	create(0, BATON_PROGRESS_AUTO);
	destroy_all();
}

/* Three ranks: 5 lanes and 2 more streams, 5 communicators of NCCL; of the GPU three for copies and
 * the default one. */
#define KNOWN "26 known streams"

START_TEST(too_few_queues_are_told_once_with_what_to_set)
{
	struct captured captured;

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
	captured = capture("warn", create_and_destroy);
	ck_assert_int_eq(times(captured.text, "device 0 has " KNOWN " in 8 "
	                                      "hardware queues (8 for copies); to "
	                                      "part them: "
	                                      "CUDA_DEVICE_MAX_CONNECTIONS=32\n"),
	                 1);
	ck_assert_int_eq(times(captured.text, "hardware queue"), RANKS);
}
END_TEST

START_TEST(too_few_queues_of_copies_are_told_too)
{
	struct captured captured;

	setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "4", 1);
	captured = capture("warn", create_and_destroy);
	ck_assert_int_eq(times(captured.text,
	                       "in 32 hardware queues (4 for copies); to part "
	                       "them: CUDA_DEVICE_MAX_COPY_CONNECTIONS=32\n"),
	                 RANKS);
}
END_TEST

START_TEST(enough_queues_are_not_worth_a_word)
{
	struct captured captured = capture("info", create_and_destroy);

	ck_assert_int_eq(times(captured.text, "hardware queue"), 0);
}
END_TEST

START_TEST(a_query_tells_of_streams_and_queues)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 1);
	setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "12", 1);
	create_all();
	ck_ok(baton_comm_query(comms[0], &info));
	ck_assert_int_eq(info.cuda_streams, 26);
	ck_assert_int_eq(info.cuda_queues, 16);
	ck_assert_int_eq(info.cuda_copy_queues, 12);
	/* One of the program's, with an operation on it. */
	hold(0, streams[0], 0);
	ck_ok(baton_stream_launch(comms[0], streams[0], copy_slot,
	                          &stages[0].slots[0]));
	ck_ok(baton_comm_query(comms[0], &info));
	ck_assert_int_eq(info.cuda_streams, 27);
	stages[0].slots[0].stage = &stages[0];
	stages[0].copies = others[0];
	let_go(0);
	ck_ok(baton_stream_synchronize(comms[0], streams[0]));
	destroy_all();
	ck_assert_int_eq(atomic_load(&stages[0].copied), 1);
}
END_TEST

/* In the simulator the kernels that connect the ranks stand behind each other for ever: the
 * creation must not get there. */
START_TEST(one_queue_is_refused_on_all_ranks)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	load();
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++) {
		ck_assert_int_eq(creators[i].status, BATON_ERR_UNSUPPORTED);
		ck_assert_ptr_nonnull(strstr(creators[i].why,
		                             "has one hardware queue"));
		ck_assert_ptr_nonnull(
			strstr(creators[i].why,
		               "CUDA_DEVICE_MAX_CONNECTIONS=32"));
	}
	await_no_comms();
}
END_TEST

/* Nobody sends; what the deadline and the dump say of it. */
static void
await_nothing(char *why, size_t size, char *dumped, size_t dumped_size)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	FILE *file = tmpfile();
	baton_request request;
	size_t n;

	create_all();
	request = move(0, 1, false, NULL);
	ck_assert_ptr_nonnull(file);
	ck_ok(baton_comm_dump(comms[0], fileno(file)));
	rewind(file);
	n = fread(dumped, 1, dumped_size - 1, file);
	dumped[n] = '\0';
	fclose(file);
	ck_ok(baton_release(&request));
	options.timeout_ns = 1000000;
	ck_ok(move_on(others[0], 0, 2, false, 2, BYTES, &options, &request));
	finish(request, BATON_ERR_TIMEOUT);
	snprintf(why, size, "%s", baton_comm_error(comms[0]));
	abort_all();
}

START_TEST(a_deadline_and_a_dump_tell_of_shared_queues)
{
	static char why[512], dumped[4096];

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
	await_nothing(why, sizeof(why), dumped, sizeof(dumped));
	ck_assert_msg(strstr(why, "behind another one: device 0 has 28 known"),
	              "%s", why);
	ck_assert_ptr_nonnull(strstr(why, "CUDA_DEVICE_MAX_CONNECTIONS=32"));
	ck_assert_ptr_nonnull(strstr(why, "of the same size?"));
	/* With that of the receive. */
	ck_assert_msg(strstr(dumped, "device 0 has 27 known streams in 8 hardware "
	                             "queues"),
	              "%s", dumped);
	ck_assert_ptr_nonnull(strstr(dumped, "(it may stand behind another stream)"));
}
END_TEST

START_TEST(with_queues_for_all_they_do_not)
{
	static char why[512], dumped[4096];

	await_nothing(why, sizeof(why), dumped, sizeof(dumped));
	ck_assert_ptr_null(strstr(why, "stand behind"));
	ck_assert_ptr_nonnull(strstr(why, "(is its other end there, of the same "
	                                  "size?"));
	ck_assert_ptr_null(strstr(dumped, "stand behind"));
	ck_assert_ptr_null(strstr(dumped, "hardware"));
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_pipeline_of_one_slot_passes_with_eight_queues,
		a_pipeline_of_four_slots_passes_with_eight_queues,
		a_pipeline_passes_where_copies_have_queues_of_their_own,
		a_pipeline_passes_with_a_queue_for_each_stream,
		too_few_queues_are_told_once_with_what_to_set,
		too_few_queues_of_copies_are_told_too,
		enough_queues_are_not_worth_a_word,
		a_query_tells_of_streams_and_queues,
		one_queue_is_refused_on_all_ranks,
		a_deadline_and_a_dump_tell_of_shared_queues,
		with_queues_for_all_they_do_not,
	};

	return RUN_TESTS("nccl_queues", tests);
}
