/* SPDX-License-Identifier: BSD-3-Clause */
/* One place through which all operations move: what it tells an observer, and the faults
 * that one injects. */
#include "core.h"
#include "fake_device.h"
#include "fake_path.h"
#include "kinds.h"
#include "run_tests.h"
#include "testing.h"

static struct {
	struct baton_comm *comm;
	char moves[256]; /* kind and state, two characters each */
	size_t n;
	unsigned fail_in; /* the n-th issue fails */
	unsigned told;
} seen;

static enum baton_status
note(void *context, const struct batoni_op *op, unsigned state)
{
	static const char kinds[] = {
		[BATONI_KIND_SEND] = 's',   [BATONI_KIND_RECV] = 'r',
		[BATONI_KIND_RECORD] = 'R', [BATONI_KIND_SIGNAL] = 'S',
		[BATONI_KIND_WAIT] = 'W',   [BATONI_KIND_GROUP] = 'G'};
	static const char states[] = "nqaie";

	ck_assert_ptr_eq(context, &seen);
	ck_assert_int_lt(op->kind, (int)sizeof(kinds));
	ck_assert_int_ne(kinds[op->kind], '\0');
	seen.told++;
	if (seen.n + 3 < sizeof(seen.moves)) {
		seen.moves[seen.n++] = kinds[op->kind];
		seen.moves[seen.n++] = states[state];
		seen.moves[seen.n++] = ' ';
	}
	if (state == BATONI_ISSUED && seen.fail_in && --seen.fail_in == 0)
		return BATON_ERR_SYSTEM;
	return BATON_OK;
}

static const struct batoni_observer observer = {.moved = note,
                                                .context = &seen};

static void
open_comm(bool observed, bool timestamps)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	memset(&seen, 0, sizeof(seen));
	options.progress = BATON_PROGRESS_CALLS;
	options.timestamps = timestamps;
	batoni_observer_set(observed ? &observer : NULL);
	ck_assert_int_eq(baton_comm_create_local(1, &options, &seen.comm),
	                 BATON_OK);
	batoni_observer_set(NULL);
}

static void
close_comm(void)
{
	ck_assert_int_eq(baton_comm_destroy(seen.comm), BATON_OK);
}

static baton_request
recv_one(char *in)
{
	baton_request request;

	ck_assert_int_eq(baton_recv(in, 1, BATON_UINT8, 0, 0, seen.comm, NULL,
	                            NULL, &request),
	                 BATON_OK);
	return request;
}

static baton_request
send_one(void)
{
	baton_request request;

	ck_assert_int_eq(baton_send("x", 1, BATON_UINT8, 0, 0, seen.comm, NULL,
	                            &(struct baton_op_options){
					    .size = sizeof(struct baton_op_options),
					    .flags = BATON_OP_DETACHED},
	                            &request),
	                 BATON_OK);
	return request;
}

static void
ends_in(baton_request request, enum baton_status status)
{
	ck_assert_int_eq(baton_finish(&request, 1000000000, NULL), status);
}

START_TEST(message_is_seen_in_each_state)
{
	baton_request send, recv;
	char in = 0;

	open_comm(true, false);
	send = send_one();
	recv = recv_one(&in);
	ends_in(recv, BATON_OK);
	ends_in(send, BATON_OK);
	ck_assert_int_eq(in, 'x');
	/* The send, issued at once, is met by the receive. */
	ck_assert_str_eq(seen.moves, "sn sa si rn ra ri se re ");
	close_comm();
}
END_TEST

START_TEST(all_kinds_pass_here)
{
	struct baton_wait_signal_desc desc = {1, 0, 0, 0};
	baton_request requests[3];

	open_comm(true, false);
	ck_assert_int_eq(baton_group_begin(seen.comm), BATON_OK);
	ck_assert_int_eq(baton_signal(0, 0, 0, 0, seen.comm, NULL, NULL,
	                              &requests[0]),
	                 BATON_OK);
	ck_assert_int_eq(baton_wait_signal(1, &desc, seen.comm, NULL, NULL,
	                                   &requests[1]),
	                 BATON_OK);
	ck_assert_int_eq(baton_group_end(seen.comm), BATON_OK);
	ck_assert_int_eq(baton_record(seen.comm, NULL, NULL, &requests[2]),
	                 BATON_OK);
	for (int i = 0; i < 3; i++)
		ends_in(requests[i], BATON_OK);
	ck_assert_ptr_nonnull(strstr(seen.moves, "Gn Sn Sq Wn Wq "));
	ck_assert_ptr_nonnull(strstr(seen.moves, "Gq Sa Wa Si Se Wi We "));
	ck_assert_ptr_nonnull(strstr(seen.moves, "Ge "));
	ck_assert_ptr_nonnull(strstr(seen.moves, "Re "));
	close_comm();
}
END_TEST

START_TEST(injected_fault_ends_one_operation)
{
	baton_request send;
	char in = 0;

	open_comm(true, false);
	seen.fail_in = 1;
	ends_in(recv_one(&in), BATON_ERR_SYSTEM);
	/* Nobody was told of it: the next receive gets the message. */
	send = send_one();
	ends_in(recv_one(&in), BATON_OK);
	ends_in(send, BATON_OK);
	ck_assert_int_eq(in, 'x');
	ck_assert_int_eq(baton_comm_status(seen.comm), BATON_OK);
	close_comm();
}
END_TEST

/* It is on its stream, and cannot end alone. */
START_TEST(injected_fault_breaks_where_an_operation_is_stream_issued)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	const struct baton_wait_signal_desc desc = {1, 0, 0, 0};
	baton_request wait = BATON_REQUEST_NULL;

	memset(&seen, 0, sizeof(seen));
	options.progress = BATON_PROGRESS_CALLS;
	batoni_observer_set(&observer);
	ck_assert_int_eq(batoni_comm_create_local_with(&batoni_fake_device_ops,
	                                               1, &options, &seen.comm),
	                 BATON_OK);
	batoni_observer_set(NULL);
	ck_assert_int_eq(fake_path_add(seen.comm), BATON_OK);
	seen.fail_in = 1;
	ck_assert_int_eq(baton_wait_signal(1, &desc, seen.comm, NULL, NULL,
	                                   &wait),
	                 BATON_OK);
	ends_in(wait, BATON_ERR_SYSTEM);
	ck_assert_int_eq(baton_comm_status(seen.comm), BATON_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(seen.comm), "injected"));
	close_comm();
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

START_TEST(communicator_without_observer_tells_nobody)
{
	baton_request send;
	char in = 0;

	open_comm(false, false);
	ck_assert(!seen.comm->observed && seen.comm->plain);
	batoni_observer_set(&observer);
	send = send_one();
	ends_in(recv_one(&in), BATON_OK);
	ends_in(send, BATON_OK);
	batoni_observer_set(NULL);
	ck_assert_uint_eq(seen.told, 0);
	close_comm();
}
END_TEST

START_TEST(time_stamps_are_taken_here)
{
	struct baton_completion completion;
	baton_request send, recv;
	char in = 0;

	open_comm(false, true);
	ck_assert(seen.comm->observed && !seen.comm->plain);
	send = send_one();
	recv = recv_one(&in);
	ck_assert_int_eq(baton_finish(&recv, 1000000000, &completion), BATON_OK);
	ck_assert_uint_gt(completion.enqueued_ns, 0);
	ck_assert_uint_ge(completion.armed_ns, completion.enqueued_ns);
	ck_assert_uint_ge(completion.completed_ns, completion.armed_ns);
	ends_in(send, BATON_OK);
	close_comm();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		message_is_seen_in_each_state,
		all_kinds_pass_here,
		injected_fault_ends_one_operation,
		injected_fault_breaks_where_an_operation_is_stream_issued,
		communicator_without_observer_tells_nobody,
		time_stamps_are_taken_here,
	};

	return RUN_TESTS("life", tests);
}
