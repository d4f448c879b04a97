/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of the CUDA device that stand behind each other in a hardware queue: what an operation says
 * whose deadline ends it.  And where host functions wait: a join that holds up what it waits for.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_world.h"

enum { DEADLINE_NS = 50000000 };

static void
open_with(const char *queues)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 1);
	cuda_world_open();
}

/* Ends at its deadline; what it says then. */
static void
end_late(baton_request request, char *text, size_t size)
{
	ck_assert_int_eq(baton_wait(request, LONG_NS, NULL), BATON_ERR_TIMEOUT);
	baton_ok(baton_request_error(request, text, size));
	baton_ok(baton_release(&request));
}

static baton_request
receive_with_deadline(void)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request;

	options.timeout_ns = DEADLINE_NS;
	baton_ok(baton_recv(cw.to, 64, BATON_UINT8, 0, 0, cw.comms[1],
	                    cw.streams[0], &options, &request));
	return request;
}

/* The send's stream stands behind the receive's, which waits for it. */
START_TEST(a_deadline_says_that_the_peers_stream_may_stand_behind_another)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request received, sent;
	char text[512];

	open_with("1");
	received = receive_with_deadline();
	detached.flags = BATON_OP_DETACHED;
	baton_ok(baton_send(cw.from, 64, BATON_UINT8, 1, 0, cw.comms[0],
	                    cw.streams[1], &detached, &sent));
	end_late(received, text, sizeof(text));
	cuda_world_has(text, (const char *const[]){
				     "recv from peer 0, tag 0",
				     "its peer's stream may stand behind another one",
				     "hardware queue",
				     "CUDA_DEVICE_MAX_CONNECTIONS=8", NULL});
	/* Its stream has gone on. */
	baton_ok(baton_recv(cw.to, 64, BATON_UINT8, 0, 0, cw.comms[1],
	                    cw.streams[0], NULL, &received));
	cuda_world_finish(sent, BATON_OK);
	cuda_world_finish(received, BATON_OK);
	cuda_world_end();
}
END_TEST

START_TEST(a_wait_for_signals_says_so_too)
{
	const struct baton_wait_signal_desc desc = {.op_count = 1, .peer = 0};
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request waited;
	char text[512];

	open_with("1");
	options.timeout_ns = DEADLINE_NS;
	baton_ok(baton_wait_signal(1, &desc, cw.comms[1], cw.streams[0], &options,
	                           &waited));
	end_late(waited, text, sizeof(text));
	cuda_world_has(text, (const char *const[]){
				     "wait_signal",
				     "its peer's stream may stand behind another one",
				     NULL});
	cuda_world_end();
}
END_TEST

/* A queue for each: whoever is late, it is for another reason. */
START_TEST(a_deadline_says_nothing_of_streams_that_share_no_queue)
{
	char text[512];

	open_with("32");
	end_late(receive_with_deadline(), text, sizeof(text));
	ck_assert_ptr_null(strstr(text, "stand behind"));
	cuda_world_end();
}
END_TEST

/* What is known at the deadline counts: of the streams of the program, which were eight, none has an operation
 * when the program asks. */
START_TEST(streams_count_that_had_operations_at_the_deadline)
{
	enum { STREAMS = 8, LAST = STREAMS - 1 };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request requests[STREAMS];
	char text[512];

	open_with("8");
	for (int i = 0; i < STREAMS; i++) {
		/* Of the last one alone: by then the others stand. */
		options.timeout_ns = i == LAST ? DEADLINE_NS : -1;
		baton_ok(baton_recv(cw.to + i, 1, BATON_UINT8, 0, i, cw.comms[1],
		                    cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING),
		                    &options, &requests[i]));
	}
	ck_assert_int_eq(baton_wait(requests[LAST], LONG_NS, NULL),
	                 BATON_ERR_TIMEOUT);
	for (int i = 0; i < LAST; i++) {
		baton_ok(baton_cancel(requests[i]));
		ck_assert_int_eq(baton_wait(requests[i], LONG_NS, NULL),
		                 BATON_ERR_CANCELED);
	}
	cw.sim->sim_settle(false);
	baton_ok(baton_request_error(requests[LAST], text, sizeof(text)));
	cuda_world_has(text, (const char *const[]){
				     "its peer's stream may stand behind another one",
				     "device 0 had more known streams", NULL});
	for (int i = 0; i < STREAMS; i++)
		baton_ok(baton_release(&requests[i]));
	cuda_world_end();
}
END_TEST

/* Streams cannot wait: the function of the join holds up that of the record. */
START_TEST(a_join_that_is_reached_first_stands_until_the_abort)
{
	baton_request record;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("memops", 0));
	cuda_world_open();
	/* For the test itself, which holds a stream up. */
	ck_assert(cw.sim->sim_set("memops", 1));
	cuda_world_hold(cw.streams[0], 0);
	baton_ok(baton_record(cw.comms[0], cw.streams[0], NULL, &record));
	baton_ok(baton_stream_wait(cw.comms[0], cw.streams[1], record));
	cw.sim->sim_settle(true);
	cuda_world_let_go(0);
	cw.sim->sim_settle(true);
	ck_assert_int_eq(baton_wait(record, 20000000, NULL), BATON_PENDING);
	baton_ok(baton_comm_abort(cw.comms[0]));
	cuda_world_finish(record, BATON_ERR_ABORTED);
	for (int i = 0; i < 2; i++)
		cu_ok(cw.sim->stream_synchronize(cw.streams[i]));
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_deadline_says_that_the_peers_stream_may_stand_behind_another,
		a_wait_for_signals_says_so_too,
		a_deadline_says_nothing_of_streams_that_share_no_queue,
		streams_count_that_had_operations_at_the_deadline,
		a_join_that_is_reached_first_stands_until_the_abort,
	};

	return RUN_TESTS("cuda_queues", tests);
}
