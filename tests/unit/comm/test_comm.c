/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <semaphore.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "core.h"
#include "mem.h"
#include "run_tests.h"
#include "scripted_transport.h"

static struct scripted transport;
static struct baton_comm *comm;
static baton_stream s;

static void
setup(void)
{
	struct baton_comm_options options = scripted_options();

	options.timeout_ns = 1;
	scripted_init(&transport);
	comm = scripted_comm(&transport, &options);
	s = scripted_stream(comm);
}

static void
teardown(void)
{
	if (comm)
		scripted_close(&transport, comm);
	scripted_stream_close(s);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static struct baton_op_options
for_ever(void)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.timeout_ns = -1;
	return options;
}

static void
end_recv_of(int tag)
{
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, tag), 8,
	             BATON_OK);
	baton_progress(comm);
}

/* ---- options and questions ---- */

START_TEST(options_have_defaults)
{
	struct batoni_comm_setup plan;
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(batoni_comm_setup(i ? &options : NULL, &plan),
		                 BATON_OK);
		ck_assert_int_eq(plan.device, BATON_DEVICE_HOST);
		ck_assert_ptr_eq(plan.device_ops, &batoni_device_host_ops);
		ck_assert_int_eq(plan.transport, BATON_TRANSPORT_AUTO);
		ck_assert_uint_eq(plan.requests_max, BATON_REQUESTS_MAX_DEFAULT);
		ck_assert_int_eq(plan.timeout_ns, 0);
		ck_assert_int_eq(plan.progress, BATON_PROGRESS_AUTO);
		ck_assert(!plan.timestamps);
	}
	options.timeout_ns = -5;
	options.requests_max = BATON_REQUESTS_MAX_LIMIT;
	ck_assert_int_eq(batoni_comm_setup(&options, &plan), BATON_OK);
	ck_assert_int_eq(plan.timeout_ns, 0);
	ck_assert_uint_eq(plan.requests_max, BATON_REQUESTS_MAX_LIMIT);
}
END_TEST

START_TEST(options_out_of_range_are_refused_by_name)
{
	static const struct {
		struct baton_comm_options options;
		enum baton_status status;
		const char *says;
	} cases[] = {
		{{.size = 1}, BATON_ERR_INVALID, "size"},
		{{.requests_max = BATON_REQUESTS_MAX_LIMIT + 1},
	         BATON_ERR_INVALID,
	         "options->requests_max is 1048577; it takes 1 to 1048576, or 0 "
	         "for 4096"},
		{{.requests_max = UINT32_MAX},
	         BATON_ERR_INVALID,
	         "options->requests_max is 4294967295; it takes"},
		{{.signals_max = -1},
	         BATON_ERR_INVALID,
	         "options->signals_max is -1; it takes 1 to 1024, or 0 for 16"},
		{{.contexts_max = BATON_CONTEXTS_LIMIT + 1},
	         BATON_ERR_INVALID,
	         "options->contexts_max is 65; it takes 1 to 64, or 0 for 4"},
		{{.tensors_max = BATON_TENSORS_LIMIT + 1},
	         BATON_ERR_INVALID,
	         "options->tensors_max is 65537; it takes 1 to 65536, or 0 for "
	         "4096"},
		{{.nccl_lanes = -1},
	         BATON_ERR_INVALID,
	         "options->nccl_lanes is -1; it takes 1 to 64, or 0 for as many "
	         "as are of use"},
		{{.nccl_ctas = BATON_NCCL_CTAS_LIMIT + 1},
	         BATON_ERR_INVALID,
	         "options->nccl_ctas is 65; it takes 1 to 64, or 0 for half of "
	         "the GPU among all lanes"},
		{{.progress = (enum baton_progress)3},
	         BATON_ERR_INVALID,
	         "options->progress is 3; it takes BATON_PROGRESS_AUTO, _THREAD "
	         "or _CALLS (0 to 2)"},
		{{.device = (enum baton_device)3}, BATON_ERR_INVALID, "device"},
		{{.transport = (enum baton_transport)5},
	         BATON_ERR_INVALID,
	         "transport"},
		{{.cuda_device = -2}, BATON_ERR_INVALID, "cuda_device is -2"},
		{{.transport = BATON_TRANSPORT_NCCL},
	         BATON_ERR_UNSUPPORTED,
	         "NCCL"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct baton_comm_options options = cases[i].options;
		struct batoni_comm_setup plan;

		if (!options.size)
			options.size = sizeof(options);
		ck_assert_int_eq(batoni_comm_setup(&options, &plan),
		                 cases[i].status);
		ck_assert_ptr_nonnull(strstr(baton_last_error(),
		                             cases[i].says));
	}
}
END_TEST

START_TEST(query_says_what_there_is)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	ck_assert_int_eq(baton_comm_query(comm, &info), BATON_OK);
	ck_assert_int_eq(info.rank, 0);
	ck_assert_int_eq(info.ranks, 4);
	ck_assert_int_eq(info.device, BATON_DEVICE_HOST);
	ck_assert_str_eq(info.device_name, "host");
	ck_assert_str_eq(info.transport_name, "scripted");
	ck_assert_int_eq(info.tag_max, 1 << 20);
	ck_assert_uint_eq(info.capabilities, BATON_CAP_TAGS | BATON_CAP_CANCEL);
	ck_assert_uint_eq(info.requests_max, 16);
	ck_assert(!info.engine_thread);
	ck_assert_uint_eq(info.message_paths, BATON_MESSAGE_PATH_TRANSPORT);
	info.size--;
	ck_assert_int_eq(baton_comm_query(comm, &info), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_query(comm, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_query(NULL, &info), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_rank(comm), 0);
	ck_assert_int_eq(baton_comm_size(comm), 4);
	ck_assert_int_eq(baton_comm_rank(NULL), -1);
	ck_assert_int_eq(baton_comm_size(NULL), -1);
	ck_assert_int_eq(baton_comm_status(comm), BATON_OK);
	ck_assert_int_eq(baton_comm_status(NULL), BATON_ERR_INVALID);
	ck_assert_str_eq(baton_comm_error(comm), "");
	ck_assert_str_eq(baton_comm_error(NULL), "");
	ck_assert_uint_eq(baton_progress(NULL), 0);
}
END_TEST

START_TEST(refused_calls_name_their_argument_and_take_nothing)
{
	char buffer[8];
	static const struct {
		size_t count;
		int type, peer, tag;
		const char *says;
	} cases[] = {
		{1, BATON_DATATYPE_COUNT, 1, 1, "type"},
		{1, -1, 1, 1, "type"},
		{1, BATON_INT8, -1, 1, "peer"},
		{1, BATON_INT8, 4, 1, "peer"},
		{1, BATON_INT8, 1, -1, "tag"},
		{1, BATON_INT8, 1, (1 << 20) + 1, "tag"},
		{SIZE_MAX / 8 + 1, BATON_INT64, 1, 1, "count"},
		{(size_t)INT64_MAX + 1, BATON_INT8, 1, 1, "count"},
	};
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request none = BATON_REQUEST_NULL;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(
			baton_send(buffer, cases[i].count,
		                   (enum baton_datatype)cases[i].type,
		                   cases[i].peer, cases[i].tag, comm, s, NULL,
		                   &none),
			BATON_ERR_INVALID);
		ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_send"));
		ck_assert_ptr_nonnull(strstr(baton_last_error(),
		                             cases[i].says));
	}
	ck_assert_int_eq(baton_recv(NULL, 1, BATON_INT8, 1, 1, comm, s, NULL,
	                            &none),
	                 BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "buffer"));
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 1, NULL, s, NULL,
	                            &none),
	                 BATON_ERR_INVALID);
	options.flags = 2;
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 1, comm, s, &options,
	                            &none),
	                 BATON_ERR_INVALID);
	options.flags = 0;
	options.size = 3;
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 1, comm, s, &options,
	                            &none),
	                 BATON_ERR_INVALID);
	ck_assert_uint_eq(none, BATON_REQUEST_NULL);
	ck_assert_str_eq(transport.log, "");
}
END_TEST

START_TEST(largest_count_that_fits_is_accepted)
{
	char buffer[8];
	baton_request a = BATON_REQUEST_NULL;

	ck_assert_int_eq(baton_recv(buffer, INT64_MAX, BATON_INT8, 1, 1, comm, s,
	                            NULL, &a),
	                 BATON_OK);
	ck_assert_uint_eq(scripted_live(&transport, BATONI_RECV, 1)->bytes,
	                  INT64_MAX);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_recv(buffer, INT64_MAX / 8, BATON_FLOAT64, 1, 1,
	                            comm, s, NULL, NULL),
	                 BATON_OK);
}
END_TEST

/* ---- destroy ---- */

START_TEST(destroy_waits_for_its_operations_and_its_peers)
{
	struct baton_op_options options = for_ever();
	baton_request a = scripted_recv(comm, s, 1, &options);

	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "pending"));
	ck_assert_uint_eq(transport.leaves, 0);
	scripted_assert_pending(a);
	end_recv_of(1);
	scripted_assert_ended(a, BATON_OK);
	transport.leave = BATON_PENDING;
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_TIMEOUT);
	ck_assert_uint_gt(transport.leaves, 0);
	ck_assert(!transport.closed);
	/* It is as it was. */
	a = scripted_recv(comm, s, 2, &options);
	end_recv_of(2);
	scripted_assert_ended(a, BATON_OK);
	transport.leave = BATON_OK;
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert(transport.closed);
	ck_assert(!transport.closed_aborted);
	comm = NULL;
}
END_TEST

START_TEST(destroy_drains_by_itself)
{
	struct baton_op_options options = for_ever();
	baton_request a = scripted_recv(comm, s, 1, &options);

	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_int_eq(baton_test(a, NULL), BATON_ERR_STALE);
	comm = NULL;
	ck_assert_int_eq(baton_comm_destroy(NULL), BATON_OK);
}
END_TEST

START_TEST(destroy_waits_until_its_peers_have_received_all)
{
	size_t leaves;

	transport.leave = BATON_PENDING;
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "is still there"));
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "has not called"));
	ck_assert_uint_eq(transport.clears, 0);
	transport.leave = BATON_OK;
	transport.clear = BATON_PENDING;
	leaves = transport.leaves;
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_TIMEOUT);
	/* All have called. */
	ck_assert_ptr_null(strstr(baton_last_error(), "is still there"));
	ck_assert_ptr_null(strstr(baton_last_error(), "has not called"));
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "has left too"));
	ck_assert_uint_gt(transport.clears, 0);
	ck_assert(!transport.closed);
	transport.clear = BATON_OK;
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	/* It has left once. */
	ck_assert_uint_eq(transport.leaves, leaves + 1);
	ck_assert(transport.closed);
	ck_assert(!transport.closed_aborted);
	comm = NULL;
}
END_TEST

/* ---- a destroy that timed out when the ranks had left ---- */

static struct batoni_peer peers[4];
static alignas(64) unsigned char segments[4][512];

/* It has signals, and a destroy of it has timed out in `clear`. */
static struct baton_comm *
leave_half_way(struct scripted *scripted)
{
	struct baton_comm_options options = scripted_options();
	struct baton_comm *left;

	for (int rank = 0; rank < 4; rank++)
		peers[rank] = (struct batoni_peer){.segment = segments[rank],
		                                   .bell = batoni_bell(),
		                                   .pidfd = -1,
		                                   .within = true,
		                                   .reaches_us = true};
	options.timeout_ns = 1;
	options.signals_max = options.contexts_max = 1;
	scripted_init(scripted);
	scripted->base.capabilities |= BATON_CAP_SIGNALS | BATON_CAP_WINDOWS;
	scripted->base.peers = peers;
	scripted->base.hidden_tags = batoni_onesided_tags(1);
	scripted->clear = BATON_PENDING;
	left = scripted_comm(scripted, &options);
	ck_assert_int_eq(baton_comm_destroy(left), BATON_ERR_TIMEOUT);
	ck_assert_uint_gt(scripted->clears, 0);
	return left;
}

static void
assert_left(enum baton_status status, const char *call)
{
	ck_assert_int_eq(status, BATON_ERR_INVALID);
	if (strncmp(baton_last_error(), call, strlen(call)) != 0 ||
	    !strstr(baton_last_error(), "has been left by a baton_comm_destroy"))
		ck_abort_msg("%s says: %s", call, baton_last_error());
}

static void
never_called(void *unused)
{
	(void)unused;
	abort();
}

START_TEST(communicator_that_was_left_takes_nothing_any_more)
{
	const struct baton_wait_signal_desc desc = {1, 1, 0, 0};
	struct baton_op_options options = for_ever();
	baton_request a = scripted_recv(comm, s, 1, &options);
	struct scripted scripted;
	struct baton_comm *left = leave_half_way(&scripted);
	struct baton_window *window;
	char byte = 0;

	assert_left(baton_send(&byte, 1, BATON_INT8, 1, 0, left, s, NULL, NULL),
	            "baton_send");
	assert_left(baton_recv(&byte, 1, BATON_INT8, 1, 0, left, s, NULL, NULL),
	            "baton_recv");
	assert_left(baton_signal(1, 0, 0, 0, left, s, NULL, NULL),
	            "baton_signal");
	assert_left(baton_wait_signal(1, &desc, left, s, NULL, NULL),
	            "baton_wait_signal");
	assert_left(baton_put_signal(&byte, 1, BATON_INT8, 1, NULL, 0, 0, 0, 0,
	                             left, s, NULL, NULL),
	            "baton_put_signal");
	assert_left(baton_stream_launch(left, s, never_called, NULL),
	            "baton_stream_launch");
	assert_left(baton_group_begin(left), "baton_group_begin");
	assert_left(baton_record(left, s, NULL, NULL), "baton_record");
	assert_left(baton_stream_wait(left, s, a), "baton_stream_wait");
	assert_left(baton_window_register(&byte, 1, left, &window),
	            "baton_window_register");
	ck_assert_uint_eq(scripted.issues, 0);
	/* The stream is the process's. */
	end_recv_of(1);
	scripted_assert_ended(a, BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(left, s), BATON_OK);
	ck_assert_int_eq(baton_comm_status(left), BATON_OK);
	scripted.clear = BATON_OK;
	ck_assert_int_eq(baton_comm_destroy(left), BATON_OK);
	ck_assert(!scripted.closed_aborted);
}
END_TEST

START_TEST(communicator_that_was_left_can_be_aborted)
{
	struct scripted scripted;
	struct baton_comm *left = leave_half_way(&scripted);
	char byte = 0;

	ck_assert_int_eq(baton_comm_abort(left), BATON_OK);
	ck_assert_int_eq(baton_send(&byte, 1, BATON_INT8, 1, 0, left, s, NULL,
	                            NULL),
	                 BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_comm_destroy(left), BATON_OK);
	ck_assert(scripted.closed_aborted);
}
END_TEST

START_TEST(engine_forgets_a_communicator_whose_close_told_that_something_moves)
{
	transport.moves_at_close = true;
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert(transport.closed);
	ck_assert_ptr_null(batoni_engine.working);
	comm = NULL;
}
END_TEST

/* Destroy `comm`, and return what was written to standard error meanwhile. */
static const char *
said_by_destroy(void)
{
	static char text[1024];
	int before = dup(STDERR_FILENO);
	int ends[2];
	ssize_t n;

	ck_assert_int_eq(pipe(ends), 0);
	fflush(stderr);
	dup2(ends[1], STDERR_FILENO);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	comm = NULL;
	fflush(stderr);
	dup2(before, STDERR_FILENO);
	close(before);
	close(ends[1]);
	n = read(ends[0], text, sizeof(text) - 1);
	close(ends[0]);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

START_TEST(transport_that_cannot_be_cleared_is_closed_as_broken)
{
	const char *said;

	transport.clear = BATON_ERR_MPI;
	said = said_by_destroy();
	ck_assert_ptr_nonnull(strstr(said, "broken (BATON_ERR_MPI)"));
	ck_assert_ptr_nonnull(strstr(said, "could not leave"));
	ck_assert(transport.closed_aborted);
}
END_TEST

START_TEST(transport_that_cannot_leave_is_closed_as_broken)
{
	const char *said;

	transport.leave = BATON_ERR_MPI;
	said = said_by_destroy();
	ck_assert_ptr_nonnull(strstr(said, "broken (BATON_ERR_MPI)"));
	ck_assert_ptr_nonnull(strstr(said, "could not leave"));
	ck_assert(transport.closed_aborted);
}
END_TEST

START_TEST(destroy_after_an_abort_asks_nobody)
{
	struct baton_op_options options = for_ever();

	scripted_recv(comm, s, 1, &options);
	transport.leave = BATON_PENDING;
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_uint_eq(transport.leaves, 0);
	ck_assert(transport.closed_aborted);
	comm = NULL;
}
END_TEST

START_TEST(destroy_of_a_broken_one_asks_nobody)
{
	scripted_break(&transport, BATON_ERR_PEER, "Peer", 1, "gone");
	scripted_recv(comm, s, 1, NULL);
	baton_progress(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_uint_eq(transport.leaves, 0);
	ck_assert(transport.closed_aborted);
	comm = NULL;
}
END_TEST

/* Its operations have ended, but one of them still stands in a stream that another
 * communicator holds up. */
START_TEST(destroy_waits_for_streams_to_pass_its_operations)
{
	struct baton_comm_options hasty = scripted_options();
	struct baton_op_options options = for_ever();
	struct scripted other_transport;
	struct baton_comm *other;
	baton_request a, b;

	hasty.timeout_ns = 1;
	for (int aborted = 0; aborted < 2; aborted++) {
		scripted_init(&other_transport);
		other = scripted_comm(&other_transport, &hasty);
		a = scripted_recv(comm, s, 1, &options);
		b = scripted_recv(other, s, 2, &options);
		if (aborted)
			ck_assert_int_eq(baton_comm_abort(other), BATON_OK);
		else
			ck_assert_int_eq(baton_cancel(b), BATON_OK);
		scripted_assert_ended(b, aborted ? BATON_ERR_ABORTED
		                                 : BATON_ERR_CANCELED);
		ck_assert_int_eq(baton_comm_destroy(other), BATON_ERR_TIMEOUT);
		end_recv_of(1);
		scripted_assert_ended(a, BATON_OK);
		ck_assert_int_eq(baton_comm_destroy(other), BATON_OK);
		ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
		ck_assert_str_eq(other_transport.log, "");
	}
}
END_TEST

static void
assert_destroy_says(const char *what)
{
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_TIMEOUT);
	if (!strstr(baton_last_error(), what))
		ck_abort_msg("\"%s\" is not in: %s", what, baton_last_error());
	ck_assert_ptr_nonnull(strstr(baton_last_error(), ", age "));
}

static sem_t running, go;

static void
hold_the_stream(void *arg)
{
	(void)arg;
	sem_post(&running);
	sem_wait(&go);
}

START_TEST(destroy_says_which_operation_is_in_the_way)
{
	struct baton_op_options options = for_ever();
	baton_request a = scripted_recv(comm, s, 5, &options), b;

	assert_destroy_says("1 pending");
	assert_destroy_says("recv from peer 1, tag 5, 8 bytes");
	end_recv_of(5);
	scripted_assert_ended(a, BATON_OK);
	/* A send that cannot be taken back, and whose handle is gone. */
	transport.take_back = BATON_ERR_BUSY;
	b = scripted_send(comm, s, 6, &options);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	ck_assert_int_eq(baton_release(&b), BATON_OK);
	assert_destroy_says("send to peer 1, tag 6");
	assert_destroy_says("the transport to let go of its buffer");
	scripted_end(&transport, scripted_live(&transport, BATONI_SEND, 6), 8,
	             BATON_OK);
	baton_progress(comm);
	sem_init(&running, 0, 0);
	sem_init(&go, 0, 0);
	ck_assert_int_eq(baton_stream_launch(comm, s, hold_the_stream, NULL),
	                 BATON_OK);
	sem_wait(&running);
	assert_destroy_says("launched function");
	sem_post(&go);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
}
END_TEST

static pthread_barrier_t barrier;

/* Leaves a group open for a while, then ends it or exits. */
static void *
open_a_group(void *ends)
{
	struct baton_op_options options = for_ever();

	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	scripted_send(comm, s, 1, &options);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	if (ends)
		(void)baton_group_end(comm);
	return NULL;
}

START_TEST(destroy_says_which_group_is_open)
{
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	ck_assert_int_eq(
		pthread_create(&thread, NULL, open_a_group, &barrier), 0);
	pthread_barrier_wait(&barrier);
	assert_destroy_says("group of 1 operation,");
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	assert_destroy_says("baton_group_end of the thread that began it");
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&barrier);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	comm = NULL;
}
END_TEST

START_TEST(a_group_that_an_exiting_thread_leaves_open_is_void)
{
	pthread_t thread;

	for (int aborted = 0; aborted < 2; aborted++) {
		pthread_barrier_init(&barrier, NULL, 2);
		ck_assert_int_eq(
			pthread_create(&thread, NULL, open_a_group, NULL), 0);
		pthread_barrier_wait(&barrier);
		if (aborted)
			ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
		pthread_barrier_wait(&barrier);
		pthread_join(thread, NULL);
		pthread_barrier_destroy(&barrier);
		ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
		if (!aborted)
			scripted_assert_free(comm, 16);
	}
	ck_assert_str_eq(strstr(transport.log, "s1") ? "sent" : "", "");
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	comm = NULL;
}
END_TEST

/* Destroy tries several times before that. */
static void
end_after_some_passes(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	if (atomic_load(&scripted->tests) == 5)
		scripted_end_now(scripted,
		                 scripted_live(scripted, BATONI_RECV, 1), 8,
		                 BATON_OK);
}

START_TEST(a_destroy_that_succeeds_leaves_the_last_error_alone)
{
	struct baton_comm_options options = scripted_options();
	struct scripted its;
	struct baton_comm *patient;
	char before[512];

	scripted_init(&its);
	patient = scripted_comm(&its, &options);
	scripted_recv(patient, s, 1, NULL);
	its.on_test = end_after_some_passes;
	ck_assert_int_eq(baton_comm_query(NULL, NULL), BATON_ERR_INVALID);
	strcpy(before, baton_last_error());
	ck_assert_int_eq(baton_comm_destroy(patient), BATON_OK);
	ck_assert_uint_ge(atomic_load(&its.tests), 5);
	ck_assert_str_eq(baton_last_error(), before);
}
END_TEST

/* ---- the native library goes away ---- */

START_TEST(lost_transport_is_never_called_again)
{
	struct baton_op_options options = for_ever();
	baton_request issued = scripted_recv(comm, s, 1, &options);
	baton_request queued = scripted_recv(comm, s, 2, &options);
	size_t tests;

	transport.base.upcalls->lost(transport.base.upcalls, false, "MPI was finalised");
	scripted_assert_ended(issued, BATON_ERR_ABORTED);
	scripted_assert_ended(queued, BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_ABORTED);
	ck_assert_str_eq(baton_comm_error(comm), "MPI was finalised");
	ck_assert_str_eq(transport.log, "r1 -r1 ");
	tests = atomic_load(&transport.tests);
	baton_progress(comm);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_uint_eq(atomic_load(&transport.tests), tests);
	ck_assert_uint_eq(transport.leaves, 0);
	ck_assert(transport.closed_aborted);
	comm = NULL;
}
END_TEST

START_TEST(lost_transport_keeps_what_it_cannot_give_back)
{
	struct baton_op_options options = for_ever();
	struct baton_completion completion;
	baton_request a = scripted_send(comm, s, 1, &options);

	transport.take_back = BATON_ERR_BUSY;
	transport.base.upcalls->lost(transport.base.upcalls, false, "gone");
	ck_assert_int_eq(baton_test(a, &completion), BATON_ERR_ABORTED);
	ck_assert_uint_eq(completion.flags, BATON_COMPLETION_LENT);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	comm = NULL;
}
END_TEST

/* ---- memory ---- */

START_TEST(creation_without_memory_leaves_nothing_behind)
{
	struct baton_comm_options options = scripted_options();
	struct batoni_comm_setup plan;
	struct baton_comm *made = NULL;
	long blocks = batoni_mem_blocks();
	enum baton_status status;
	unsigned long n = 0;

	options.timestamps = true;
	ck_assert_int_eq(batoni_comm_setup(&options, &plan), BATON_OK);
	do {
		batoni_mem_fail_at(++n);
		status = batoni_comm_prepare(&plan, &made);
		if (status != BATON_OK) {
			ck_assert_int_eq(status, BATON_ERR_NOMEM);
			ck_assert_ptr_nonnull(strstr(baton_last_error(),
			                             "memory"));
			ck_assert_ptr_null(made);
			ck_assert_int_eq(batoni_mem_blocks(), blocks);
		}
	} while (status != BATON_OK);
	batoni_mem_fail_at(0);
	ck_assert_uint_gt(n, 5);
	batoni_comm_discard(made);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
}
END_TEST

START_TEST(nothing_is_allocated_between_enqueue_and_completion)
{
	struct baton_op_options options = for_ever();
	baton_request requests[4], record;

	batoni_mem_fail_at(1); /* the first would fail, too */
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	for (int i = 0; i < 3; i++)
		requests[i] = scripted_recv(comm, s, i, &options);
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	requests[3] = scripted_recv(comm, NULL, 3, &options);
	ck_assert_int_eq(baton_stream_wait(comm, NULL, requests[0]), BATON_OK);
	ck_assert_int_eq(baton_record(comm, NULL, NULL, &record), BATON_OK);
	for (int i = 0; i < 4; i++)
		end_recv_of(i);
	for (int i = 0; i < 4; i++)
		scripted_assert_ended(requests[i], BATON_OK);
	scripted_assert_ended(record, BATON_OK);
	ck_assert_uint_eq(batoni_mem_fail_at(0), 0);
}
END_TEST

START_TEST(communicators_run_out_in_order)
{
	enum { MAX = 4094 }; /* one is alive */
	struct baton_comm_options options = scripted_options();
	static struct baton_comm *comms[MAX];
	struct batoni_comm_setup plan;
	struct baton_comm *one_more = NULL;
	int failed = 0;

	options.requests_max = 1;
	ck_assert_int_eq(batoni_comm_setup(&options, &plan), BATON_OK);
	for (int i = 0; i < MAX; i++)
		failed += batoni_comm_prepare(&plan, &comms[i]) != BATON_OK;
	ck_assert_int_eq(failed, 0);
	ck_assert_int_eq(batoni_comm_prepare(&plan, &one_more),
	                 BATON_ERR_AGAIN);
	ck_assert_ptr_null(one_more);
	for (int i = 0; i < MAX; i++)
		batoni_comm_discard(comms[i]);
	ck_assert_int_eq(batoni_comm_prepare(&plan, &one_more), BATON_OK);
	batoni_comm_discard(one_more);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		options_have_defaults,
		options_out_of_range_are_refused_by_name,
		query_says_what_there_is,
		refused_calls_name_their_argument_and_take_nothing,
		largest_count_that_fits_is_accepted,
		destroy_waits_for_its_operations_and_its_peers,
		destroy_drains_by_itself,
		destroy_waits_until_its_peers_have_received_all,
		communicator_that_was_left_takes_nothing_any_more,
		communicator_that_was_left_can_be_aborted,
		transport_that_cannot_be_cleared_is_closed_as_broken,
		engine_forgets_a_communicator_whose_close_told_that_something_moves,
		transport_that_cannot_leave_is_closed_as_broken,
		destroy_after_an_abort_asks_nobody,
		destroy_of_a_broken_one_asks_nobody,
		destroy_waits_for_streams_to_pass_its_operations,
		destroy_says_which_operation_is_in_the_way,
		destroy_says_which_group_is_open,
		a_group_that_an_exiting_thread_leaves_open_is_void,
		a_destroy_that_succeeds_leaves_the_last_error_alone,
		lost_transport_is_never_called_again,
		lost_transport_keeps_what_it_cannot_give_back,
		creation_without_memory_leaves_nothing_behind,
		nothing_is_allocated_between_enqueue_and_completion,
		communicators_run_out_in_order,
	};

	return RUN_TESTS_WITH("comm", tests, setup, teardown);
}
