/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators that are made from another one. */
#include <limits.h>
#include <string.h>

#include "open_receives.h"

static struct baton_comm *
make_split(struct conform *c, struct baton_comm *from, int color, int key)
{
	struct baton_comm *comm = NULL;

	CHECK_OK(c, baton_comm_split(from, color, key, NULL, &comm));
	CHECK(c, (comm == NULL) == (color < 0));
	return comm;
}

static struct baton_comm *
duplicate(struct conform *c, struct baton_comm *from)
{
	struct baton_comm *comm = NULL;

	CHECK_OK(c, baton_comm_dup(from, NULL, &comm));
	CHECK(c, comm && comm != from);
	return comm;
}

/* Each rank sends its number in the case's communicator to the next one of this one, and gets
 * `from`, on the first and the last tag. */
static void
pass_on(struct conform *c, struct baton_comm *comm, int from)
{
	int rank = baton_comm_rank(comm), size = baton_comm_size(comm);
	int *out = conform_message(c, sizeof(*out));
	int *in = conform_message(c, sizeof(*in)), got = -1;
	baton_stream stream = NULL;
	baton_request requests[2];

	if (!comm || size < 1)
		return;
	CHECK_OK(c, baton_stream_create(comm, &stream));
	conform_copy(c, out, &c->rank, sizeof(*out));
	CHECK_OK(c, baton_group_begin(comm));
	CHECK_OK(c, baton_send(out, 1, BATON_INT32, (rank + 1) % size, 0, comm,
	                       stream, NULL, &requests[0]));
	CHECK_OK(c, baton_recv(in, 1, BATON_INT32, (rank + size - 1) % size, 0,
	                       comm, stream, NULL, &requests[1]));
	CHECK_OK(c, baton_group_end(comm));
	FINISH_ALL(c, requests, 2);
	conform_copy(c, &got, in, sizeof(got));
	CHECK_EQ(c, got, from);
	CHECK_OK(c, baton_stream_synchronize(comm, stream));
	CHECK_OK(c, baton_stream_destroy(comm, stream));
}

static void
a_duplicate_has_the_same_ranks(struct conform *c)
{
	struct baton_comm *one = duplicate(c, c->comm), *two;
	struct baton_comm_info info = {.size = sizeof(info)};

	CHECK_EQ(c, baton_comm_rank(one), c->rank);
	CHECK_EQ(c, baton_comm_size(one), c->size);
	CHECK_OK(c, baton_comm_query(one, &info));
	CHECK_EQ(c, info.device, c->info.device);
	CHECK_EQ(c, info.transport, c->info.transport);
	CHECK_EQ(c, info.requests_max, c->info.requests_max);
	CHECK_EQ(c, info.signals_max, c->info.signals_max);
	pass_on(c, one, conform_previous(c));
	/* A duplicate of the duplicate, which it outlives. */
	two = duplicate(c, one);
	CHECK_OK(c, baton_comm_destroy(one));
	pass_on(c, two, conform_previous(c));
	CHECK_OK(c, baton_comm_destroy(two));
	conform_sound(c);
}

/* Keys that turn the order round; ranks of one key in the parent's order. */
static void
ranks_are_in_the_order_of_their_keys(struct conform *c)
{
	struct baton_comm *comm = make_split(c, c->comm, 7, -c->rank);

	CHECK_EQ(c, baton_comm_size(comm), c->size);
	CHECK_EQ(c, baton_comm_rank(comm), c->size - 1 - c->rank);
	pass_on(c, comm, conform_next(c));
	CHECK_OK(c, baton_comm_destroy(comm));
	comm = make_split(c, c->comm, 0, c->rank == 0 ? INT_MAX : INT_MIN);
	CHECK_EQ(c, baton_comm_rank(comm), conform_previous(c));
	pass_on(c, comm, conform_previous(c));
	CHECK_OK(c, baton_comm_destroy(comm));
}

/* Odd and even ranks; then rank 0 of each color alone, and the others in none. */
static void
each_color_has_a_communicator_of_its_own(struct conform *c)
{
	struct baton_comm *comm = make_split(c, c->comm, c->rank % 2, c->rank);
	int size = (c->size + (c->rank % 2 == 0)) / 2;
	int last = c->rank % 2 + 2 * (size - 1);
	struct baton_comm *inner;

	CHECK_EQ(c, baton_comm_size(comm), size);
	CHECK_EQ(c, baton_comm_rank(comm), c->rank / 2);
	pass_on(c, comm, c->rank < 2 ? last : c->rank - 2);
	inner = make_split(c, comm, c->rank < 2 ? 3 : BATON_COLOR_NONE, 0);
	if (c->rank < 2) {
		CHECK_EQ(c, baton_comm_size(inner), 1);
		pass_on(c, inner, c->rank);
		CHECK_OK(c, baton_comm_destroy(inner));
	}
	pass_on(c, comm, c->rank < 2 ? last : c->rank - 2);
	CHECK_OK(c, baton_comm_destroy(comm));
	conform_sound(c);
}

/* Messages and barriers of the two do not meet, and what is pending on one stays. */
static void
the_two_are_apart(struct conform *c)
{
	baton_request pending = 0, there = 0;
	struct baton_comm *comm;
	int *in = conform_message(c, sizeof(*in));
	baton_stream stream = NULL;

	if (c->rank == 1)
		pending = RECV(c, in, sizeof(*in), 0, 0, c->stream, NULL);
	comm = duplicate(c, c->comm);
	pass_on(c, comm, conform_previous(c));
	if (c->rank == 1)
		CHECK_STATUS(c, BATON_PENDING, baton_test(pending, NULL));
	CHECK_OK(c, baton_stream_create(comm, &stream));
	CHECK_OK(c, baton_barrier(comm, stream, NULL, &there));
	FINISH(c, BATON_OK, &there);
	CHECK_OK(c, baton_stream_synchronize(comm, stream));
	CHECK_OK(c, baton_stream_destroy(comm, stream));
	conform_sync(c);
	if (c->rank == 0)
		pending = SEND(c, in, sizeof(*in), 1, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &pending);
	CHECK_OK(c, baton_comm_destroy(comm));
}

static void
an_abort_of_one_leaves_the_other(struct conform *c)
{
	struct baton_comm *comm = duplicate(c, c->comm), *first = c->comm;
	baton_request pending = 0;
	int *in = conform_message(c, sizeof(*in));

	pending = RECV(c, in, sizeof(*in), conform_previous(c), 0, c->stream,
	               NULL);
	conform_sync(c);
	CHECK_OK(c, baton_comm_abort(first));
	FINISH(c, BATON_ERR_ABORTED, &pending);
	CHECK_STATUS(c, BATON_OK, baton_comm_status(comm));
	pass_on(c, comm, conform_previous(c));
	CHECK_REFUSED(c, BATON_ERR_ABORTED, baton_comm_dup(first, NULL, &first),
	              "baton_comm_dup");
	CHECK(c, first == c->comm);
	CHECK_OK(c, baton_comm_destroy(comm));
}

/* Windows and signals: each rank puts into the next one's part. */
static void
it_has_signals_and_windows(struct conform *c)
{
	struct baton_comm *comm = duplicate(c, c->comm);
	int *out = conform_alloc(c, sizeof(*out)), got = -1;
	struct baton_wait_signal_desc desc = {1, conform_previous(c), 0, 0};
	struct baton_window *window = NULL;
	baton_request request = 0;
	baton_stream stream = NULL;
	uint64_t count = 9;
	int *part = NULL;

	CHECK_OK(c, baton_signal_count(c->comm, desc.peer, 0, 0, &count));
	CHECK_OK(c, baton_mem_alloc(comm, sizeof(*part), (void **)&part));
	CHECK_OK(c, baton_window_register(part, sizeof(*part), comm, &window));
	CHECK_OK(c, baton_stream_create(comm, &stream));
	*out = c->rank;
	CHECK_OK(c, baton_put_signal(out, 1, BATON_INT32, conform_next(c),
	                             window, 0, 0, 0, 0, comm, stream, NULL,
	                             NULL));
	CHECK_OK(c, baton_wait_signal(1, &desc, comm, stream, NULL, &request));
	FINISH(c, BATON_OK, &request);
	conform_copy(c, &got, part, sizeof(got));
	CHECK_EQ(c, got, conform_previous(c));
	/* The parent's counter is another one. */
	CHECK_OK(c, baton_signal_count(c->comm, desc.peer, 0, 0, &count));
	CHECK_EQ(c, count, 0);
	CHECK_OK(c, baton_stream_synchronize(comm, stream));
	CHECK_OK(c, baton_stream_destroy(comm, stream));
	CHECK_OK(c, baton_window_deregister(window));
	CHECK_OK(c, baton_mem_free(comm, part));
	CHECK_OK(c, baton_comm_destroy(comm));
}

/* What pends on the parent takes no message by which the ranks of the group find each other, whatever its tag. */
static void
receives_of_the_parent_do_not_meet_a_split(struct conform *c)
{
	bool open = (c->info.capabilities & BATON_CAP_ANY_TAG) != 0;
	baton_request requests[5];
	int values[5];

	for (int k = 0; k < 4; k++)
		requests[k] = conform_recv_int(c, &values[k], conform_previous(c),
		                               k, c->stream);
	if (open)
		requests[4] = conform_recv_int(c, &values[4], ANY, BATON_ANY_TAG,
		                               c->stream);
	for (int round = 0; round < 4; round++) {
		struct baton_comm *comm = make_split(c, c->comm, 0, -c->rank);

		pass_on(c, comm, conform_next(c));
		CHECK_OK(c, baton_comm_destroy(comm));
	}
	for (int k = 0; k < 4 + open; k++)
		conform_send_int(c, 10 + k, conform_next(c), k);
	for (int k = 0; k < 4 + open; k++) {
		conform_finish_as(c, &requests[k], conform_previous(c), k);
		CHECK_EQ(c, values[k], 10 + k);
	}
}

/* All ranks are told, and the parent goes on. */
static void
a_refused_rank_refuses_all(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_split(c->comm, 0, 0, NULL,
	                               c->rank == 1 ? NULL : &comm),
	              "baton_comm_split comm_p");
	options.signals_max = -1;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_dup(c->comm, c->rank == 0 ? &options : NULL,
	                             &comm),
	              "baton_comm_dup signals_max");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              c->rank == 0
	                      ? baton_comm_dup(c->comm, NULL, &comm)
	                      : baton_comm_split(c->comm, 0, 0, NULL, &comm),
	              "not all ranks make this call");
	CHECK(c, comm == NULL);
	comm = make_split(c, c->comm, c->rank == 0 ? -9 : 0, 0);
	if (comm)
		CHECK_OK(c, baton_comm_destroy(comm));
	conform_sound(c);
}

static void
a_call_that_cannot_be_made_is_refused(struct conform *c)
{
	struct baton_comm *comm = NULL;

	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_comm_dup(NULL, NULL, &comm),
	              "baton_comm_dup");
	if (!(c->info.capabilities & BATON_CAP_SIGNALS)) {
		CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
		              baton_comm_dup(c->comm, NULL, &comm),
		              "baton_comm_dup BATON_CAP_SIGNALS");
		return;
	}
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_split(c->comm, 0, 0, NULL, &comm), "group");
	CHECK_OK(c, baton_group_end(c->comm));
}

#define ON .needs = BATON_CAP_SIGNALS, .comms = 2

const struct conform_case conform_split[] = {
	{CASE(a_duplicate_has_the_same_ranks), .needs = BATON_CAP_SIGNALS, .comms = 3},
	{CASE(ranks_are_in_the_order_of_their_keys), ON},
	{CASE(each_color_has_a_communicator_of_its_own),
	  .needs = BATON_CAP_SIGNALS, .comms = 3, .ranks_min = 2},
	{CASE(the_two_are_apart), ON, .ranks_min = 2, .streams = 2},
	{CASE(an_abort_of_one_leaves_the_other), ON, .ranks_min = 2},
	{CASE(it_has_signals_and_windows), ON},
	{CASE(receives_of_the_parent_do_not_meet_a_split), .comms = 2,
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_ANY_SOURCE, .ranks_min = 2},
	{CASE(a_refused_rank_refuses_all), ON, .ranks_min = 2},
	{CASE(a_call_that_cannot_be_made_is_refused)},
	CASES_END,
};
