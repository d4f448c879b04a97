/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tensors: their order, in groups and on threads, how they end, and which calls are refused.
 */
#include <stdio.h>
#include <string.h>

#include "tensor_cases.h"

static void
lists_and_plain_messages_of_a_tag_keep_one_order(struct conform *c)
{
	enum { MESSAGES = 24 };
	struct baton_tensor lists[MESSAGES];
	baton_request requests[MESSAGES];
	unsigned char *plain[MESSAGES];

	if (c->rank > 1)
		return;
	for (int i = 0; i < MESSAGES; i++) {
		size_t bytes = (size_t)(i % 5 == 4 ? 100000 : 100 + i);

		plain[i] = conform_message(c, bytes);
		lists[i] = tensor(BATON_UINT8, plain[i], 1, (int64_t)bytes, 0);
		if (c->rank == 0)
			conform_write(c, plain[i], bytes, (unsigned)i);
		if (i % 3 == 0)
			requests[i] = c->rank == 0
			                      ? SEND(c, plain[i], bytes, 1, 0,
			                             c->stream, &conform_detached)
			                      : RECV(c, plain[i], bytes, 0, 0,
			                             c->stream,
			                             &conform_detached);
		else
			requests[i] = c->rank == 0
			                      ? send_list(c, &lists[i], 1, 1, 0, NULL)
			                      : recv_list(c, &lists[i], 1, 0, 0, NULL);
	}
	FINISH_ALL(c, requests, MESSAGES);
	for (int i = 0; i < MESSAGES; i++)
		CHECK_FILLED(c, plain[i], bytes_of(&lists[i]), (unsigned)i);
}

static void
lists_are_exchanged_in_a_group(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor out[2] = {tensor(BATON_UINT8, NULL, 1, 3000, 0),
		                       tensor(BATON_UINT8, NULL, 1, 200000, 0)};
	struct baton_tensor in[2] = {out[0], out[1]};
	baton_request requests[2];
	int peer = conform_partner(c);

	if (peer < 0)
		return;
	give_memory(c, out, 2, (unsigned)c->rank, true);
	give_memory(c, in, 2, 0, false);
	options.op.flags = BATON_OP_DETACHED;
	CHECK_OK(c, baton_group_begin(c->comm));
	requests[0] = send_list(c, out, 2, peer, 0, &options);
	requests[1] = recv_list(c, in, 2, peer, 0, &options);
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 2);
	check_memory(c, in, 2, (unsigned)peer);
}

static void
a_void_group_gives_its_lists_back(struct conform *c)
{
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 100, 0);
	baton_request request;

	give_memory(c, &one, 1, 1, true);
	for (int i = 0; i < 1000; i++) {
		CHECK_OK(c, baton_group_begin(c->comm));
		request = send_list(c, &one, 1, conform_next(c), 0, NULL);
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_send_tensors(&one, 1, -1, 0, c->comm,
		                                c->stream, NULL, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(request, NULL));
	}
}

static void
a_rank_sends_lists_to_itself(struct conform *c)
{
	struct baton_tensor out[2] = {tensor(BATON_UINT8, NULL, 1, 10, 0),
		                       tensor(BATON_UINT8, NULL, 1, 100000, 0)};
	struct baton_tensor in[2] = {out[0], out[1]};
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	baton_request requests[2];

	give_memory(c, out, 2, 8, true);
	give_memory(c, in, 2, 0, false);
	options.op.flags = BATON_OP_DETACHED;
	requests[0] = send_list(c, out, 2, c->rank, 0, &options);
	requests[1] = recv_list(c, in, 2, c->rank, 0, &options);
	FINISH_ALL(c, requests, 2);
	check_memory(c, in, 2, 8);
	options.flags = BATON_FORBID_SELF;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_send_tensors(out, 2, c->rank, 0, c->comm, c->stream,
	                                 &options, NULL),
	              "peer BATON_FORBID_SELF");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv_tensors(in, 2, c->rank, 0, c->comm, c->stream,
	                                 &options, NULL),
	              "peer BATON_FORBID_SELF");
}

static void
a_pending_receive_of_a_list_is_cancelled(struct conform *c)
{
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 5000, 0);
	baton_request request;

	give_memory(c, &one, 1, 0, false);
	request = recv_list(c, &one, 1, conform_next(c), 0, NULL);
	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	CHECK_OK(c, baton_cancel(request));
	FINISH(c, BATON_ERR_CANCELED, &request);
	CHECK_ALL(c, one.data, 5000, CANARY);
	conform_sync(c);
	conform_sound(c);
}

/* List and cancel meet at every possible moment: each list is received once, by the receive that
 * was to be canceled or by the one after it. */
static void
cancel_never_loses_or_doubles_a_list(struct conform *c)
{
	static const int64_t sizes[] = {8, 1900, 3000, 70000};
	const unsigned n = conform_short() ? 80 : 400;
	struct baton_tensor list[2];

	if (c->rank > 1)
		return;
	for (unsigned i = 0; i < n; i++) {
		enum baton_status status;
		baton_request request;

		list[0] = tensor(BATON_INT16, NULL, 2, 3, 5);
		list[1] = tensor(BATON_UINT8, NULL, 1, sizes[i % 4], 0);
		give_memory(c, list, 2, i, c->rank == 0);
		if (c->rank == 0) {
			request = send_list(c, list, 2, 1, 0, NULL);
			if (!FINISH(c, BATON_OK, &request))
				break;
			continue;
		}
		request = recv_list(c, list, 2, 0, 0, NULL);
		for (unsigned spin = 0; spin < i % 7; spin++)
			(void)baton_test(request, NULL);
		CHECK_OK(c, baton_cancel(request));
		status = baton_wait(request, conform_patience(c), NULL);
		if (status == BATON_ERR_CANCELED) {
			CHECK_OK(c, baton_release(&request));
			request = recv_list(c, list, 2, 0, 0, NULL);
		}
		FINISH(c, BATON_OK, &request);
		check_memory(c, list, 2, i);
		if (atomic_load(&c->failures))
			break;
	}
}

/* A list under way is taken back, and its peer never sees it; or it is lent, with its memory in the
 * communicator, until the peer has taken it. */
static void
a_list_that_times_out_is_taken_back_or_lent(struct conform *c)
{
	struct baton_comm_options comm = BATON_COMM_OPTIONS_INIT;
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[2] = {
		tensor(BATON_UINT8, NULL, 1, 100, 0),
		tensor(BATON_UINT8, NULL, 1, 8 << 20, 0)};
	struct baton_completion done = {0};
	baton_request request = BATON_REQUEST_NULL;
	struct baton_comm *first;
	bool told = false;
	int lent = 0;

	comm.tensors_max = 8;
	first = conform_exchange(c, &comm);
	if (c->rank <= 1)
		give_memory(c, list, 2, 1, c->rank == 0);
	options.op.timeout_ns = 2 * MS;
	options.output_signal = &told;
	if (c->rank == 0) {
		request = send_list(c, list, 2, 1, 0, &options);
		CHECK_STATUS(c, BATON_ERR_TIMEOUT,
		             baton_wait(request, conform_patience(c), &done));
		lent = (done.flags & BATON_COMPLETION_LENT) != 0;
	}
	if (lent)
		CHECK_STATUS(c, BATON_ERR_AGAIN,
		             baton_send_tensors(list, 1, 1, 1, c->comm,
		                                c->stream, NULL, NULL));
	lent = c->backend->agree(c, lent);
	if (lent && c->rank == 1) {
		request = recv_list(c, list, 2, 0, 0, NULL);
		FINISH(c, BATON_OK, &request);
		check_memory(c, list, 2, 1);
	} else if (c->rank == 0) {
		int64_t begin = conform_begin();

		do
			CHECK_STATUS(c, BATON_ERR_TIMEOUT,
			             baton_test(request, &done));
		while ((done.flags & BATON_COMPLETION_LENT) && STILL(c, begin));
		CHECK_OK(c, baton_release(&request));
		CHECK(c, !told);
	}
	conform_sync(c);
	/* The memory is there again. */
	pass_list(c, list, 1, 4);
	conform_sound(c);
	RESTORE(c, first);
}

static void
the_deadline_of_a_list_ends_it(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 5000, 0);
	bool told = false;
	baton_request request;

	give_memory(c, &one, 1, 0, false);
	options.op.timeout_ns = 5 * MS;
	options.output_signal = &told;
	request = recv_list(c, &one, 1, conform_next(c), 0, &options);
	FINISH(c, BATON_ERR_TIMEOUT, &request);
	CHECK(c, !told);
	conform_sync(c);
	conform_sound(c);
}

static void
the_completion_of_a_list_goes_to_its_queue(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 5000, 0);
	struct baton_completion done = {0};
	struct baton_queue *queue = NULL;
	int64_t begin = conform_begin();

	if (c->rank > 1)
		return;
	give_memory(c, &one, 1, 2, c->rank == 0);
	CHECK_OK(c, baton_queue_create(c->comm, 4, &queue));
	options.op.queue = queue;
	options.op.user_data = 99;
	CHECK_OK(c, c->rank == 0
	                    ? baton_send_tensors(&one, 1, 1, 0, c->comm,
	                                         c->stream, &options, NULL)
	                    : baton_recv_tensors(&one, 1, 0, 0, c->comm,
	                                         c->stream, &options, NULL));
	while (baton_queue_poll(queue, &done, 1) == 0 && STILL(c, begin))
		;
	CHECK_EQ(c, done.user_data, 99);
	CHECK_EQ(c, done.status, BATON_OK);
	CHECK_EQ(c, done.bytes, 5000);
	check_memory(c, &one, 1, 2);
	baton_queue_destroy(queue);
}

static void
an_abort_ends_lists_too(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_tensor out[2] = {tensor(BATON_UINT8, NULL, 1, 100, 0),
		                       tensor(BATON_UINT8, NULL, 1, 1 << 20, 0)};
	struct baton_tensor in[2] = {out[0], out[1]};
	struct baton_comm *first = conform_exchange(c, &options);
	baton_request requests[2];

	give_memory(c, out, 2, 8, true);
	give_memory(c, in, 2, 0, false);
	requests[0] = recv_list(c, in, 2, conform_previous(c), some_tag(c, 1),
	                        NULL);
	requests[1] = send_list(c, out, 2, conform_next(c), some_tag(c, 2),
	                        NULL);
	conform_sync(c);
	CHECK_OK(c, baton_comm_abort(c->comm));
	FINISH(c, BATON_ERR_ABORTED, &requests[0]);
	FINISH(c, BATON_ERR_ABORTED, &requests[1]);
	CHECK_REFUSED(c, BATON_ERR_ABORTED,
	              baton_send_tensors(out, 2, 0, 0, c->comm, c->stream, NULL,
	                                 NULL),
	              "broken");
	conform_sync(c);
	RESTORE(c, first);
}

/* ---- threads ---------------------------------------------------------------- */

struct worker {
	struct conform *c;
	pthread_t thread;
	int tag;
};

/* Exchange lists with the partner.  Every seventh time both declare another one, and ask
 * why. */
static void *
exchange_lists(void *arg)
{
	struct worker *worker = arg;
	struct conform *c = worker->c;
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	baton_stream stream = conform_stream(c);
	int peer = conform_partner(c);
	struct baton_tensor out[3] = {tensor(BATON_UINT8, NULL, 1, 300, 0),
		                       tensor(BATON_UINT8, NULL, 2, 2, 50),
		                       tensor(BATON_UINT8, NULL, 1, 20000, 0)};
	struct baton_tensor in[3] = {out[0], out[1], out[2]};

	give_memory(c, out, 3, (unsigned)(c->rank + worker->tag), true);
	give_memory(c, in, 3, 0, false);
	options.op.flags = BATON_OP_DETACHED;
	for (int i = 0; i < conform_turns(200); i++) {
		size_t n = 1 + (size_t)i % 3;
		baton_request requests[2] = {0};

		in[0].type = i % 7 == 6 ? BATON_INT8 : BATON_UINT8;
		CHECK_OK(c, baton_send_tensors(out, n, peer, worker->tag, c->comm,
		                               stream, &options, &requests[0]));
		CHECK_OK(c, baton_recv_tensors(in, n, peer, worker->tag, c->comm,
		                               stream, &options, &requests[1]));
		if (i % 7 == 6)
			expect_mismatch(c, &requests[1],
			                "tensor 0: int8 [300] was declared");
		FINISH_ALL(c, requests, 2);
		if (i % 7 != 6)
			check_memory(c, in, n, (unsigned)(peer + worker->tag));
		if (atomic_load(&c->failures))
			break;
	}
	return NULL;
}

static void
threads_exchange_lists(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *first;
	struct worker workers[3];
	int begun = 0;

	/* Little memory: what is kept for sentences has to be used again. */
	options.tensors_max = 128;
	first = conform_exchange(c, &options);
	while (begun < 3 && conform_partner(c) >= 0) {
		workers[begun] = (struct worker){.c = c, .tag = begun};
		if (!CHECK_EQ(c, pthread_create(&workers[begun].thread, NULL,
		                                exchange_lists,
		                                &workers[begun]), 0))
			break;
		begun++;
	}
	for (int i = 0; i < begun; i++)
		pthread_join(workers[i].thread, NULL);
	conform_sync(c);
	RESTORE(c, first);
}

/* ---- signals of ONNX Runtime's edges ----------------------------------------- */

static void
set_true(void *arg)
{
	*(bool *)arg = true;
}

static void
an_input_signal_is_read_when_the_operation_is_armed(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 300, 0);
	bool *may = conform_alloc(c, 1), *told = conform_alloc(c, 1);
	baton_request request;

	if (c->rank > 1)
		return;
	give_memory(c, &one, 1, 2, c->rank == 0);
	options.input_signal = may;
	options.output_signal = told;
	CHECK_OK(c, baton_stream_launch(c->comm, c->stream, set_true, may));
	request = c->rank == 0 ? send_list(c, &one, 1, 1, 0, &options)
	                       : recv_list(c, &one, 1, 0, 0, &options);
	FINISH(c, BATON_OK, &request);
	CHECK(c, *told);
	check_memory(c, &one, 1, 2);
}

static void
a_false_input_signal_sends_nothing(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 300, 0);
	const bool no = false;
	bool told = false;
	baton_request request;
	char why[256] = "";

	if (c->rank <= 1) {
		give_memory(c, &one, 1, 2, c->rank == 0);
		options.input_signal = &no;
		options.output_signal = &told;
		request = c->rank == 0 ? send_list(c, &one, 1, 1, 0, &options)
		                       : recv_list(c, &one, 1, 0, 0, &options);
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_wait(request, conform_patience(c), NULL));
		CHECK_OK(c, baton_request_error(request, why, sizeof(why)));
		CHECK(c, strstr(why, "input_signal"));
		FINISH(c, BATON_ERR_INVALID, &request);
		CHECK(c, !told);
	}
	pass_list(c, &one, 1, 3);
}

/* The call with this list, to or from the next rank, is INVALID, and its sentence has these words. */
static void
refuses_sent(struct conform *c, const struct baton_tensor *list, size_t count,
             const struct baton_tensors_options *options, const char *words)
{
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_send_tensors(list, count, conform_next(c), 0, c->comm,
	                                 c->stream, options, NULL),
	              words);
}

static void
refuses_received(struct conform *c, struct baton_tensor *list, size_t count,
                 const struct baton_tensors_options *options, const char *words)
{
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv_tensors(list, count, conform_next(c), 0, c->comm,
	                                 c->stream, options, NULL),
	              words);
}

/* ---- refusals ------------------------------------------------------------------ */

static void
bad_lists_are_refused(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	char data[8] = "";
	const struct {
		struct baton_tensor one;
		const char *send, *recv; /* words, or NULL where it is legal */
	} wrong[] = {
		{tensor(99, data, 1, 1, 0), "tensor 1 type 99 datatypes",
		  "tensor 1 type 99 datatypes"},
		{tensor(BATON_INT8, data, 9, 1, 1), "tensor 1 rank is 9; 0 to 8",
		  "tensor 1 rank is 9; 0 to 8"},
		{tensor(BATON_INT8, data, -2, 1, 1), "tensor 1 rank -2;",
		  "tensor 1 rank -2; -1 open"},
		{tensor(BATON_INT8, data, 2, 3, -2), "tensor 1 dimension -2; more",
		  "tensor 1 dimension -2; -1 open"},
		{tensor(BATON_INT8, data, 1, -1, 0), "tensor 1 dimension -1;",
		  "tensor 1 open"},
		{tensor(BATON_INT8, data, -1, 0, 0), "tensor 1 rank -1;",
		  "tensor 1 open"},
		{tensor(BATON_INT8, NULL, 1, 1, 0), "tensor 1 NULL",
		  "tensor 1 arena"},
		{tensor(BATON_INT64, data, 2, INT64_MAX, 2),
		  "tensor 1 int64 9223372036854775807 63",
		  "tensor 1 int64 9223372036854775807 63"},
	};
	int peer = conform_next(c);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct baton_tensor list[2] = {
			tensor(BATON_INT8, data, 1, 8, 0), wrong[i].one};

		refuses_sent(c, list, 2, NULL, wrong[i].send);
		refuses_received(c, list, 2, NULL, wrong[i].recv);
	}
	refuses_sent(c, NULL, 1, NULL, "tensors NULL");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv_tensors(NULL, 0, peer, -2, c->comm, c->stream,
	                                 NULL, NULL),
	              "tag");
	options.op.size = sizeof(options.op);
	refuses_sent(c, NULL, 0, &options, "size BATON_TENSORS_OPTIONS_INIT");
	options.op.size = sizeof(options);
	options.flags = 2;
	refuses_sent(c, NULL, 0, &options, "options->flags 0x2 FORBID_SELF");
	options.flags = 0;
	options.op.flags = 2;
	refuses_sent(c, NULL, 0, &options, "options->op.flags 0x2 DETACHED");
}

static void
a_send_has_no_arena_and_no_count(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	char arena[16];
	size_t count;

	options.arena = arena;
	options.arena_bytes = sizeof(arena);
	refuses_sent(c, NULL, 0, &options, "arena 16 receive");
	options.arena = NULL;
	options.arena_bytes = 0;
	options.count_p = &count;
	refuses_sent(c, NULL, 0, &options, "count_p receive");
}

/* The engine's thread reads and writes these. */
static void
signals_in_memory_of_a_device_are_refused(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 300, 0);
	void *away = conform_message(c, 64);

	if (!c->memory || !c->memory->is_device(away))
		return;
	give_memory(c, &one, 1, 2, true);
	options.input_signal = away;
	refuses_sent(c, &one, 1, &options, "input_signal host");
	refuses_received(c, &one, 1, &options, "input_signal host");
	options.input_signal = NULL;
	options.output_signal = away;
	refuses_sent(c, &one, 1, &options, "output_signal host");
	options.output_signal = NULL;
	options.count_p = away;
	refuses_received(c, &one, 1, &options, "count_p host");
}

/* Receive lists of n open tensors until that is refused: AGAIN, or INVALID where not even one
 * fits.  Returns how many; all are canceled. */
static int
receive_until_full(struct conform *c, size_t n, enum baton_status end)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[32];
	enum baton_status status = BATON_OK;
	baton_request requests[64];
	int taken = 0;

	for (size_t i = 0; i < n; i++)
		list[i] = (struct baton_tensor){.rank = -1};
	options.arena = new_arena(c, 64);
	options.arena_bytes = 64;
	while (taken < 64 && status == BATON_OK) {
		status = baton_recv_tensors(list, n, conform_next(c), 0, c->comm,
		                            c->stream, &options,
		                            &requests[taken]);
		taken += status == BATON_OK;
	}
	CHECK_STATUS(c, end, status);
	CHECK(c, strstr(baton_last_error(), "tensors_max"));
	for (int i = 0; i < taken; i++) {
		CHECK_OK(c, baton_cancel(requests[i]));
		FINISH(c, BATON_ERR_CANCELED, &requests[i]);
	}
	return taken;
}

/* So many tensors of all lists together, each counted as a multiple of 8. */
static void
the_memory_of_lists_is_bounded(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *first;

	options.tensors_max = 64;
	first = conform_exchange(c, &options);
	/* Also behind those of another length, whose memory lies ready for them. */
	for (int turn = 0; turn < 2; turn++) {
		CHECK_EQ(c, receive_until_full(c, 8, BATON_ERR_AGAIN), 8);
		CHECK_EQ(c, receive_until_full(c, 0, BATON_ERR_AGAIN), 8);
		CHECK_EQ(c, receive_until_full(c, 9, BATON_ERR_AGAIN), 4);
		CHECK_EQ(c, receive_until_full(c, 32, BATON_ERR_AGAIN), 2);
	}
	RESTORE(c, first);
	options.tensors_max = 1;
	first = conform_exchange(c, &options);
	CHECK_EQ(c, receive_until_full(c, 8, BATON_ERR_AGAIN), 1);
	CHECK_EQ(c, receive_until_full(c, 9, BATON_ERR_INVALID), 0);
	RESTORE(c, first);
}

/* Each sentence stays with its request, and then its memory is used again. */
static void
the_memory_of_a_sentence_is_used_again(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_tensor out = tensor(BATON_INT8, NULL, 1, 1, 0);
	struct baton_tensor in = tensor(BATON_INT16, NULL, 1, 1, 0);
	struct baton_comm *first;
	baton_request request;

	options.tensors_max = 32;
	first = conform_exchange(c, &options);
	give_memory(c, &out, 1, 1, true);
	give_memory(c, &in, 1, 1, false);
	for (int i = 0; i < 100; i++) {
		if (c->rank == 0) {
			request = send_list(c, &out, 1, 1, 0, NULL);
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 1) {
			request = recv_list(c, &in, 1, 0, 0, NULL);
			expect_mismatch(c, &request, "int16 [1] was declared");
		}
	}
	RESTORE(c, first);
}

const struct conform_case conform_tensors_life[] = {
	{CASE(lists_and_plain_messages_of_a_tag_keep_one_order),
	  .ranks_min = 2, .needs = BATON_CAP_TENSORS},
	{CASE(lists_are_exchanged_in_a_group), .needs = BATON_CAP_TENSORS},
	{CASE(a_void_group_gives_its_lists_back), .needs = BATON_CAP_TENSORS},
	{CASE(a_rank_sends_lists_to_itself), .needs = BATON_CAP_TENSORS},
	{CASE(a_pending_receive_of_a_list_is_cancelled),
	  .needs = BATON_CAP_TENSORS},
	{CASE(cancel_never_loses_or_doubles_a_list), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(a_list_that_times_out_is_taken_back_or_lent), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(the_deadline_of_a_list_ends_it), .needs = BATON_CAP_TENSORS},
	{CASE(an_abort_ends_lists_too), .needs = BATON_CAP_TENSORS},
	{CASE(threads_exchange_lists), .ranks_min = 2, .makes = 4,
	  .needs = BATON_CAP_TENSORS | BATON_CAP_TAGS},
	{CASE(the_completion_of_a_list_goes_to_its_queue), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(an_input_signal_is_read_when_the_operation_is_armed),
	  .ranks_min = 2, .needs = BATON_CAP_TENSORS},
	{CASE(a_false_input_signal_sends_nothing), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(bad_lists_are_refused), .needs = BATON_CAP_TENSORS},
	{CASE(a_send_has_no_arena_and_no_count), .needs = BATON_CAP_TENSORS},
	{CASE(signals_in_memory_of_a_device_are_refused),
	  .needs = BATON_CAP_TENSORS},
	{CASE(the_memory_of_lists_is_bounded), .needs = BATON_CAP_TENSORS},
	{CASE(the_memory_of_a_sentence_is_used_again), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	CASES_END,
};
