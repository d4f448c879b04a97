/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous devices that stop: every call returns, and every request ends.  And streams that
 * capture a graph.  For the fake device, which the cases make so. */
#include "fake_device.h"
#include "harness.h"

static void
stream_that_never_goes_on_holds_up_no_call(struct conform *c)
{
	unsigned char *in = conform_alloc(c, 8);
	struct baton_comm *comm;
	baton_request request;

	fake_device_hold(c->stream);
	request = RECV(c, in, 8, conform_next(c), 0, c->stream, NULL);
	comm = conform_exchange(c, NULL);
	CHECK_OK(c, baton_comm_abort(comm));
	CHECK_STATUS(c, BATON_ERR_ABORTED, baton_wait(request, 0, NULL));
	CHECK_REFUSED(c, BATON_ERR_ABORTED,
	              baton_stream_synchronize(comm, c->stream),
	              "not done broken");
	CHECK_OK(c, baton_comm_destroy(comm));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_test(request, NULL));
	conform_sync(c);
	/* What the stream still had of it does no harm. */
	fake_device_run(c->stream);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	conform_sound(c);
}

static void
sticky_error_ends_everything_and_is_told(struct conform *c)
{
	unsigned char *in = conform_alloc(c, 8);
	baton_request request;

	request = RECV(c, in, 8, conform_next(c), 0, c->stream, NULL);
	conform_sync(c);
	if (c->rank == 0)
		fake_device_break();
	FINISH(c, BATON_ERR_CUDA, &request);
	CHECK_STATUS(c, BATON_ERR_CUDA, baton_comm_status(c->comm));
	CHECK_REFUSED(c, BATON_ERR_CUDA,
	              baton_recv(in, 8, BATON_UINT8, c->rank, 0, c->comm,
	                         c->stream, NULL, &request),
	              "device broken");
	CHECK_STATUS(c, BATON_ERR_CUDA,
	             baton_stream_synchronize(c->comm, c->stream));
	for (int i = 0; i < c->streams_count; i++)
		CHECK_OK(c, baton_stream_destroy(c->comm, c->streams[i]));
	c->streams_count = 0;
	CHECK_OK(c, baton_comm_destroy(c->comm));
	c->comm = NULL;
	conform_sync(c);
	if (c->rank == 0)
		fake_device_heal();
	conform_sync(c);
}

#define CHECK_CAPTURES(c, call)                                               \
	CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED, call, "stream captures graph")

/* No call touches it, which the device would count. */
static void
stream_that_captures_a_graph_is_refused_and_left_alone(struct conform *c)
{
	const struct baton_wait_signal_desc one = { .op_count = 1 };
	unsigned char *buffer = conform_alloc(c, 8);
	bool signals = c->info.capabilities & BATON_CAP_SIGNALS;
	baton_stream other = conform_stream(c);
	baton_request request = BATON_REQUEST_NULL, record;

	CHECK_OK(c, baton_record(c->comm, other, NULL, &record));
	fake_device_capture(c->stream, true);
	CHECK_CAPTURES(c, baton_send(buffer, 8, BATON_UINT8, c->rank, 0, c->comm,
	                             c->stream, NULL, &request));
	CHECK_CAPTURES(c, baton_recv(buffer, 8, BATON_UINT8, c->rank, 0, c->comm,
	                             c->stream, &conform_detached, &request));
	CHECK_CAPTURES(c, baton_record(c->comm, c->stream, NULL, &request));
	CHECK_CAPTURES(c, baton_stream_wait(c->comm, c->stream, record));
	CHECK_CAPTURES(c, baton_stream_launch(c->comm, c->stream,
	                                      conform_nothing_fn, NULL));
	if (signals) {
		CHECK_CAPTURES(c, baton_signal(c->rank, 0, 0, 0, c->comm,
		                               c->stream, NULL, &request));
		CHECK_CAPTURES(c, baton_wait_signal(1, &one, c->comm, c->stream,
		                                    NULL, &request));
	}
	CHECK_CAPTURES(c, baton_stream_query(c->comm, c->stream));
	CHECK_CAPTURES(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_CAPTURES(c, baton_stream_destroy(c->comm, c->stream));
	/* It voids a group, whose other members go nowhere. */
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_recv(buffer, 8, BATON_UINT8, c->rank, 0, c->comm, other,
	                       NULL, &request));
	CHECK_CAPTURES(c, baton_send(buffer, 8, BATON_UINT8, c->rank, 0, c->comm,
	                             c->stream, NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_UNSUPPORTED, baton_group_end(c->comm));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_test(request, NULL));
	FINISH(c, BATON_OK, &record);
	fake_device_capture(c->stream, false);
	conform_sound(c);
}

const struct conform_case conform_sick[] = {
	{ CASE(stream_that_captures_a_graph_is_refused_and_left_alone) },
	{ CASE(stream_that_never_goes_on_holds_up_no_call), .ranks_min = 2,
	  .timeout_ns = 50 * MS },
	{ CASE(sticky_error_ends_everything_and_is_told), .ranks_min = 2 },
	CASES_END,
};
