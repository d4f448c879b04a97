/* SPDX-License-Identifier: BSD-3-Clause */
/* When to look again: a table of loads, and the answer to each. */
#include "core.h"

#include "forecast.h"
#include "run_tests.h"

enum { PLAIN, MARKED, ABORTED };

struct row {
	const char *what;
	struct batoni_load transport, onesided;
	uint32_t held;
	int is;
	enum batoni_poll poll;
};

static const struct row rows[] = {
	{"nothing", {0}, {0}, 0, PLAIN, BATONI_POLL_WHEN_RUNG},
	/* Messages. */
	{"a receive", {.in_flight = 1}, {0}, 0, PLAIN, BATONI_POLL_PENDING},
	{"a body that moves", {.in_flight = 2, .moving = 1}, {0}, 0, PLAIN,
	 BATONI_POLL_MOVING},
	{"a receive of a quiet transport", {.in_flight = 1, .quiet = true},
	 {0}, 0, PLAIN, BATONI_POLL_WHEN_RUNG},
	{"a copy of a quiet transport",
	 {.in_flight = 2, .moving = 1, .quiet = true}, {0}, 0, PLAIN,
	 BATONI_POLL_MOVING},
	/* After an abort only lent buffers are left. */
	{"a body that moves, after an abort", {.in_flight = 2, .moving = 1},
	 {0}, 0, ABORTED, BATONI_POLL_PENDING},
	{"a copy of a quiet transport, after an abort",
	 {.in_flight = 2, .moving = 1, .quiet = true}, {0}, 0, ABORTED,
	 BATONI_POLL_WHEN_RUNG},
	/* Waits for signals. */
	{"a wait that was not tested", {0}, {.in_flight = 1}, 0, PLAIN,
	 BATONI_POLL_PENDING},
	{"a wait that was not tested, of a quiet transport", {.quiet = true},
	 {.in_flight = 1}, 0, PLAIN, BATONI_POLL_PENDING},
	{"a parked wait", {0}, {.in_flight = 1, .parked = 1}, 0, PLAIN,
	 BATONI_POLL_WHEN_RUNG},
	{"a parked wait beside one that was not tested", {0},
	 {.in_flight = 2, .parked = 1}, 0, PLAIN, BATONI_POLL_PENDING},
	{"a parked wait and a receive", {.in_flight = 1},
	 {.in_flight = 1, .parked = 1}, 0, PLAIN, BATONI_POLL_PENDING},
	{"a parked wait and a receive of a quiet transport",
	 {.in_flight = 1, .quiet = true}, {.in_flight = 1, .parked = 1}, 0,
	 PLAIN, BATONI_POLL_WHEN_RUNG},
	{"a parked wait and a put that is being copied", {0},
	 {.in_flight = 2, .parked = 1, .moving = 1}, 0, PLAIN,
	 BATONI_POLL_MOVING},
	/* Signals by message. */
	{"standing receives alone", {.in_flight = 3}, {.standing = 3}, 0, PLAIN,
	 BATONI_POLL_WHEN_RUNG},
	{"standing receives, and a wait for their messages", {.in_flight = 3},
	 {.in_flight = 1, .awaiting = 1, .standing = 3}, 0, PLAIN,
	 BATONI_POLL_WATCH},
	{"standing receives, and a wait that was not tested", {.in_flight = 3},
	 {.in_flight = 1, .standing = 3}, 0, PLAIN, BATONI_POLL_PENDING},
	{"standing receives, and a parked wait", {.in_flight = 3},
	 {.in_flight = 1, .parked = 1, .standing = 3}, 0, PLAIN,
	 BATONI_POLL_WHEN_RUNG},
	{"a wait of each kind", {.in_flight = 3},
	 {.in_flight = 2, .awaiting = 1, .parked = 1, .standing = 3}, 0, PLAIN,
	 BATONI_POLL_WATCH},
	{"standing receives, a wait for their messages, and a receive",
	 {.in_flight = 4}, {.in_flight = 1, .awaiting = 1, .standing = 3}, 0,
	 PLAIN, BATONI_POLL_PENDING},
	{"a put whose message is on its way", {.in_flight = 2},
	 {.in_flight = 1, .awaiting = 1, .standing = 1}, 0, PLAIN,
	 BATONI_POLL_PENDING},
	{"a wait for messages of a quiet transport",
	 {.in_flight = 3, .quiet = true},
	 {.in_flight = 1, .awaiting = 1, .standing = 3}, 0, PLAIN,
	 BATONI_POLL_WHEN_RUNG},
	{"a message that has come", {.in_flight = 2},
	 {.in_flight = 1, .moving = 1, .standing = 2}, 1, PLAIN,
	 BATONI_POLL_MOVING},
	/* ... which their transport parks: whoever sends to them rings. */
	{"parked standing receives, and a wait that was not tested",
	 {.in_flight = 3, .parked = 3, .parks = true},
	 {.in_flight = 1, .standing = 3}, 0, PLAIN, BATONI_POLL_PENDING},
	{"parked standing receives, and a wait for their messages",
	 {.in_flight = 3, .parked = 3, .parks = true},
	 {.in_flight = 1, .awaiting = 1, .standing = 3}, 0, PLAIN,
	 BATONI_POLL_WHEN_RUNG},
	{"parked standing receives, and a hold",
	 {.in_flight = 1, .parked = 1, .parks = true}, {.standing = 1}, 1, PLAIN,
	 BATONI_POLL_WHEN_RUNG},
	/* Windows that may get messages. */
	{"a hold", {.in_flight = 1}, {.standing = 1}, 1, PLAIN,
	 BATONI_POLL_WATCH},
	{"a hold, and a receive", {.in_flight = 2}, {.standing = 1}, 1, PLAIN,
	 BATONI_POLL_PENDING},
	{"a hold, and a parked wait", {.in_flight = 1},
	 {.in_flight = 1, .parked = 1, .standing = 1}, 1, PLAIN,
	 BATONI_POLL_WATCH},
	{"a hold of a quiet transport", {.in_flight = 1, .quiet = true},
	 {.standing = 1}, 1, PLAIN, BATONI_POLL_WHEN_RUNG},
	/* What the device does not report. */
	{"marks", {0}, {0}, 0, MARKED, BATONI_POLL_DEVICE},
	{"marks beside a parked wait", {0}, {.in_flight = 1, .parked = 1}, 0,
	 MARKED, BATONI_POLL_DEVICE},
	{"marks beside a receive", {.in_flight = 1}, {0}, 0, MARKED,
	 BATONI_POLL_MOVING},
	{"a put that is behind what is on a stream", {0},
	 {.in_flight = 1, .awaiting = 1}, 0, MARKED, BATONI_POLL_DEVICE},
	{"a mark of the path's own", {.polled = 1}, {0}, 0, PLAIN,
	 BATONI_POLL_DEVICE},
	{"such a mark, of a quiet transport",
	 {.in_flight = 1, .polled = 1, .quiet = true}, {0}, 0, PLAIN,
	 BATONI_POLL_DEVICE},
	{"such a mark, of the one-sided layer", {0}, {.polled = 1}, 0, PLAIN,
	 BATONI_POLL_DEVICE},
};

static const struct batoni_stream_issued_ops on_streams;
static const struct batoni_path_ops issued_by_hosts, issued_by_streams = {
							     .stream_issued = &on_streams,
};

/* A communicator with the load of a row. */
struct loaded {
	struct baton_comm comm;
	struct batoni_transport transport;
	struct batoni_onesided onesided;
	struct batoni_op marked;
};

static void
load(struct loaded *loaded, const struct row *row)
{
	*loaded = (struct loaded){
		.comm = {.transport = &loaded->transport,
	                 .onesided = &loaded->onesided,
	                 .paths = {&loaded->transport.messages,
	                           &loaded->onesided.path},
	                 .paths_count = 2,
	                 .driving.by_any = true,
	                 .deadlines.next_ns = BATONI_NEVER,
	                 .work.held = row->held,
	                 .fault.aborted = row->is == ABORTED,
	                 .marks.issued = row->is == MARKED ? &loaded->marked : NULL},
		.transport = {.messages = {.ops = &issued_by_hosts,
	                                   .load = row->transport}},
		.onesided = {.path = {.ops = &issued_by_hosts,
	                              .load = row->onesided}},
	};
}

START_TEST(each_load_has_its_answer)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct loaded loaded;
		struct batoni_load sum;

		load(&loaded, &rows[i]);
		sum = batoni_comm_load(&loaded.comm);
		ck_assert_msg(batoni_load_poll(&sum) == rows[i].poll, "%s: %d",
		              rows[i].what, (int)batoni_load_poll(&sum));
	}
}
END_TEST

START_TEST(communicator_without_the_one_sided_layer_has_a_load)
{
	struct loaded loaded;
	struct batoni_load sum;

	load(&loaded, &(struct row){.transport = {.in_flight = 1}});
	loaded.comm.onesided = NULL;
	loaded.comm.paths_count = 1;
	sum = batoni_comm_load(&loaded.comm);
	ck_assert_int_eq((int)batoni_load_poll(&sum), BATONI_POLL_PENDING);
}
END_TEST

/* Its marks alone are looked at. */
START_TEST(what_is_lent_on_streams_after_an_abort_is_looked_at_by_its_marks)
{
	const struct row row = {.transport = {.in_flight = 1}, .is = ABORTED};
	struct loaded loaded;
	struct batoni_load sum;

	load(&loaded, &row);
	loaded.transport.messages.ops = &issued_by_streams;
	loaded.comm.marks.issued = &loaded.marked;
	sum = batoni_comm_load(&loaded.comm);
	ck_assert_int_eq((int)batoni_load_poll(&sum), BATONI_POLL_DEVICE);
}
END_TEST

static const struct row parked = {
	.onesided = {.in_flight = 1, .parked = 1},
};

START_TEST(many_requests_are_looked_at_less_often)
{
	struct batoni_forecast forecast;
	struct loaded first, second;

	load(&first, &(struct row){.transport = {.in_flight = 900,
	                                         .more_tests = 7}});
	load(&second, &(struct row){.transport = {.in_flight = 1}});
	first.comm.work.next = &second.comm;
	batoni_engine.working = &first.comm;
	forecast = batoni_forecast_now();
	batoni_engine.working = NULL;
	ck_assert_uint_eq(forecast.more_tests, 7);
	/* Messages come at any time: half a tick on average. */
	ck_assert_uint_le(batoni_tick_ns(0), 900000);
	ck_assert_uint_gt(batoni_tick_ns(1), 2 * batoni_tick_ns(0));
	ck_assert_uint_gt(batoni_tick_ns(255), batoni_tick_ns(63));
	ck_assert_uint_lt(batoni_tick_ns(UINT32_MAX), 2 * 1500000);
}
END_TEST

START_TEST(soonest_of_all_communicators_counts)
{
	struct batoni_forecast forecast;
	struct loaded first, second;

	load(&first, &(struct row){.transport = {.in_flight = 1}});
	load(&second, &parked);
	first.comm.deadlines.next_ns = 70;
	second.comm.deadlines.next_ns = 50;
	first.comm.work.next = &second.comm;
	batoni_engine.working = &first.comm;
	forecast = batoni_forecast_now();
	ck_assert_int_eq((int)forecast.poll, BATONI_POLL_PENDING);
	ck_assert_uint_eq(forecast.deadline, 50);
	ck_assert(forecast.parked && forecast.parked_on_others);
	batoni_engine.working = NULL;
	forecast = batoni_forecast_now();
	ck_assert_int_eq((int)forecast.poll, BATONI_POLL_WHEN_RUNG);
	ck_assert_uint_eq(forecast.deadline, BATONI_NEVER);
	ck_assert(!forecast.parked && !forecast.parked_on_others);
}
END_TEST

/* What one of two waits for a device is looked at as often as the other needs it. */
START_TEST(device_of_one_and_peer_of_another_are_looked_at_without_a_pause)
{
	struct batoni_forecast forecast;
	struct loaded first, second;

	load(&first, &(struct row){.transport = {.in_flight = 1}});
	load(&second, &(struct row){.is = MARKED});
	first.comm.work.next = &second.comm;
	batoni_engine.working = &first.comm;
	forecast = batoni_forecast_now();
	batoni_engine.working = NULL;
	ck_assert_int_eq((int)forecast.poll, BATONI_POLL_MOVING);
}
END_TEST

START_TEST(waits_are_parked_on_this_process_where_the_transport_is_quiet)
{
	struct batoni_forecast forecast;
	struct loaded loaded;

	load(&loaded, &parked);
	loaded.transport.messages.load.quiet = true;
	batoni_engine.working = &loaded.comm;
	forecast = batoni_forecast_now();
	batoni_engine.working = NULL;
	ck_assert(forecast.parked && !forecast.parked_on_others);
}
END_TEST

/* What only others may drive is not this thread's to look at. */
START_TEST(communicators_of_other_threads_do_not_count)
{
	struct batoni_forecast forecast;
	struct loaded loaded;

	load(&loaded, &(struct row){.transport = {.in_flight = 1, .moving = 1},
	                            .onesided = parked.onesided});
	loaded.comm.deadlines.next_ns = 50;
	loaded.comm.driving.by_any = false;
	loaded.comm.driving.lost = true;
	batoni_engine.working = &loaded.comm;
	forecast = batoni_forecast_now();
	batoni_engine.working = NULL;
	ck_assert_int_eq((int)forecast.poll, BATONI_POLL_WHEN_RUNG);
	ck_assert_uint_eq(forecast.deadline, BATONI_NEVER);
	ck_assert(!forecast.parked);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		each_load_has_its_answer,
		communicator_without_the_one_sided_layer_has_a_load,
		what_is_lent_on_streams_after_an_abort_is_looked_at_by_its_marks,
		many_requests_are_looked_at_less_often,
		soonest_of_all_communicators_counts,
		device_of_one_and_peer_of_another_are_looked_at_without_a_pause,
		waits_are_parked_on_this_process_where_the_transport_is_quiet,
		communicators_of_other_threads_do_not_count,
	};

	return RUN_TESTS("load", tests);
}
