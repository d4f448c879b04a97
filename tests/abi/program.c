/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that was compiled with the header of another age (AGE: OLDER, THIS or LATER;
 * header.cmake), over the library as it is.  It makes every call that takes a struct.
 * Behind each struct lie bytes that are not 0: what reads further than the size says takes
 * them for options, and what writes further changes them.
 */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <baton.h>

#define OLDER 0
#define THIS 1
#define LATER 2

static_assert(sizeof(struct baton_comm_options) ==
                      (AGE == OLDER ? 32 : AGE == THIS ? 64 : 80),
              "the header is of the age that was asked for");

#define REQUIRE(what)                                                         \
	do {                                                                  \
		if (!(what)) {                                                \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, \
			        __LINE__, #what, baton_last_error());         \
			exit(1);                                              \
		}                                                             \
	} while (0)
#define REQUIRE_OK(call) REQUIRE((call) == BATON_OK)

#define BEHIND 128
#define WITH_MORE(type)                                                       \
	struct {                                                              \
		struct type it;                                               \
		unsigned char behind[BEHIND];                                 \
	}
#define USER_DATA 77

static struct baton_comm *comm;
static baton_stream stream, other;
static struct baton_window *window;
static struct baton_plan *plan;
static void *memory;
static char from[8] = "baton", to[8];

static struct baton_tensor
tensor(char *data)
{
	struct baton_tensor made = {data, BATON_INT8, 1, {8}};

	return made;
}

static const struct baton_op_options *
detached(void)
{
	static struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	return &options;
}

/* ---- the calls; what they need of a peer is done with options of none ---- */

typedef enum baton_status call_fn(const struct baton_op_options *options,
                                  baton_request *request_p);

static enum baton_status
call_send(const struct baton_op_options *options, baton_request *request_p)
{
	enum baton_status status = baton_send(from, 8, BATON_INT8, 0, 0, comm,
	                                      stream, options, request_p);

	if (status == BATON_OK)
		REQUIRE_OK(baton_recv(to, 8, BATON_INT8, 0, 0, comm, other,
		                      NULL, NULL));
	return status;
}

static enum baton_status
call_recv(const struct baton_op_options *options, baton_request *request_p)
{
	enum baton_status status = baton_recv(to, 8, BATON_INT8, 0, 0, comm,
	                                      stream, options, request_p);

	if (status == BATON_OK)
		REQUIRE_OK(baton_send(from, 8, BATON_INT8, 0, 0, comm, other,
		                      NULL, NULL));
	return status;
}

static enum baton_status
call_record(const struct baton_op_options *options, baton_request *request_p)
{
	return baton_record(comm, stream, options, request_p);
}

static enum baton_status
call_signal(const struct baton_op_options *options, baton_request *request_p)
{
	return baton_signal(0, 1, 0, 0, comm, stream, options, request_p);
}

static enum baton_status
call_put_signal(const struct baton_op_options *options, baton_request *request_p)
{
	return baton_put_signal(from, 8, BATON_INT8, 0, window, 0, 2, 0, 0, comm,
	                        stream, options, request_p);
}

static enum baton_status
call_wait_signal(const struct baton_op_options *options, baton_request *request_p)
{
	const struct baton_wait_signal_desc desc = {1, 0, 3, 0};
	enum baton_status status = baton_wait_signal(1, &desc, comm, stream,
	                                             options, request_p);

	if (status == BATON_OK)
		REQUIRE_OK(baton_signal(0, 3, 0, 0, comm, other, NULL, NULL));
	return status;
}

static enum baton_status
call_wait_any(const struct baton_op_options *options, baton_request *request_p)
{
	const struct baton_wait_signal_desc desc = {1, 0, 4, 0};
	enum baton_status status = baton_wait_signal_any(
		1, &desc, NULL, comm, stream, options, request_p);

	if (status == BATON_OK)
		REQUIRE_OK(baton_signal(0, 4, 0, 0, comm, other, NULL, NULL));
	return status;
}

static enum baton_status
call_signal_add(const struct baton_op_options *options, baton_request *request_p)
{
	return baton_signal_add(0, 5, 0, 3, 0, comm, stream, options, request_p);
}

static enum baton_status
call_wait_count(const struct baton_op_options *options, baton_request *request_p)
{
	return baton_wait_signal_count(0, 4, 0, 0, comm, stream, options,
	                               request_p);
}

static enum baton_status
call_plan_launch(const struct baton_op_options *options, baton_request *request_p)
{
	return baton_plan_launch(plan, options, request_p);
}

/* What a plan keeps of the options of its calls. */
static enum baton_status
call_recorded(const struct baton_op_options *options, baton_request *request_p)
{
	struct baton_op_options mine = BATON_OP_OPTIONS_INIT;
	struct baton_plan *made = NULL;
	enum baton_status first, status;

	REQUIRE_OK(baton_plan_begin(comm));
	first = baton_recv(to, 8, BATON_INT8, 0, 0, comm, stream, options, NULL);
	baton_send(from, 8, BATON_INT8, 0, 0, comm, other, options, NULL);
	baton_signal(0, 1, 0, 0, comm, other, options, NULL);
	status = baton_plan_end(comm, &made);
	REQUIRE(status == first);
	if (status != BATON_OK)
		return status;
	mine.user_data = USER_DATA;
	REQUIRE_OK(baton_plan_launch(made, &mine, request_p));
	return baton_plan_destroy(made);
}

static const struct call {
	const char *name;
	call_fn *fn;
	bool takes_flags;
} calls[] = {
	{"baton_send", call_send, true},
	{"baton_recv", call_recv, true},
	{"baton_record", call_record, false},
	{"baton_signal", call_signal, true},
	{"baton_put_signal", call_put_signal, true},
	{"baton_wait_signal", call_wait_signal, true},
	{"baton_signal_add", call_signal_add, true},
	{"baton_wait_signal_any", call_wait_any, true},
	{"baton_wait_signal_count", call_wait_count, true},
	{"baton_plan_launch", call_plan_launch, false},
	{"baton_recv", call_recorded, true},
};

/* ---- what is shown ---- */

/* It is written as far as it goes, and no further. */
static void
finish(baton_request request)
{
	WITH_MORE(baton_completion) done;

	memset(&done, 0xff, sizeof(done));
	REQUIRE_OK(baton_finish(&request, -1, &done.it));
	REQUIRE(done.it.user_data == USER_DATA);
	REQUIRE(done.it.reserved == 0 && done.it.reserved_more[1] == 0);
#if AGE == LATER
	REQUIRE(done.it.later == 0);
#endif
	for (size_t i = 0; i < BEHIND; i++)
		REQUIRE(done.behind[i] == 0xff);
}

static void
operations_take_options(void)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct baton_op_options init = BATON_OP_OPTIONS_INIT;
		WITH_MORE(baton_op_options) options;
		baton_request request = BATON_REQUEST_NULL;

		memset(&options, 0xff, sizeof(options));
		options.it = init;
		options.it.user_data = USER_DATA;
		options.it.flags = calls[i].takes_flags ? BATON_OP_DETACHED : 0;
		REQUIRE_OK(calls[i].fn(&options.it, &request));
		finish(request);
#if AGE == LATER
		options.it.later = 1;
		REQUIRE(calls[i].fn(&options.it, &request) ==
		        BATON_ERR_INVALID);
		REQUIRE(strstr(baton_last_error(), calls[i].name));
		REQUIRE(strstr(baton_last_error(),
		               "*options is not 0 at byte 40"));
#endif
	}
}

/* One request for each of two lists that meet. */
static void
lists_take_options(void)
{
	struct baton_tensors_options init = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor sent = tensor(from), came = tensor(to);
	WITH_MORE(baton_tensors_options) options;
	bool input = true, output = false;
	baton_request requests[2];

	memset(&options, 0xff, sizeof(options));
	options.it = init;
	options.it.op.user_data = USER_DATA;
	options.it.op.flags = BATON_OP_DETACHED;
	options.it.input_signal = &input;
	options.it.output_signal = &output;
	REQUIRE_OK(baton_send_tensors(&sent, 1, 0, 0, comm, stream, &options.it,
	                              &requests[0]));
	options.it.output_signal = NULL;
	REQUIRE_OK(baton_recv_tensors(&came, 1, 0, 0, comm, other, &options.it,
	                              &requests[1]));
	finish(requests[0]);
	finish(requests[1]);
	REQUIRE(output);
#if AGE == LATER
	options.it.later_too = 1;
	REQUIRE(baton_send_tensors(&sent, 1, 0, 0, comm, stream, &options.it,
	                           &requests[0]) == BATON_ERR_INVALID);
	REQUIRE(strstr(baton_last_error(),
	               "options->op.size is 128, this library's is 112, and "
	               "*options is not 0 at byte 120"));
	REQUIRE(baton_recv_tensors(&came, 1, 0, 0, comm, other, &options.it,
	                           &requests[1]) == BATON_ERR_INVALID);
	REQUIRE(strstr(baton_last_error(), "baton_recv_tensors"));
#endif
}

static void
query_writes_what_both_know(void)
{
	WITH_MORE(baton_comm_info) info;

	memset(&info, 0xff, sizeof(info));
	info.it.size = sizeof(info.it);
	REQUIRE_OK(baton_comm_query(comm, &info.it));
	REQUIRE(info.it.size == sizeof(info.it));
	REQUIRE(info.it.rank == 0 && info.it.ranks == 1);
	REQUIRE(strcmp(info.it.transport_name, "local") == 0);
#if AGE != OLDER
	/* What older options lack has its default. */
	REQUIRE(info.it.signals_max == BATON_SIGNALS_MAX_DEFAULT);
	REQUIRE(!info.it.check && info.it.cuda_device == -1);
#endif
#if AGE == LATER
	REQUIRE(info.it.later == 0 && info.it.later_too == 0);
#endif
	for (size_t i = 0; i < BEHIND; i++)
		REQUIRE(info.behind[i] == 0xff);
}

/* Of a receive that nothing has been sent for. */
static void
request_info_writes_what_both_know(void)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	WITH_MORE(baton_request_info) info;
	baton_request request;

	options.flags = BATON_OP_DETACHED;
	options.user_data = USER_DATA;
	REQUIRE_OK(baton_recv(to, 8, BATON_INT8, 0, 0, comm, stream, &options,
	                      &request));
	memset(&info, 0xff, sizeof(info));
	info.it.size = sizeof(info.it);
	REQUIRE_OK(baton_request_info(request, &info.it));
	REQUIRE(info.it.size == sizeof(info.it) && info.it.request == request);
	REQUIRE(info.it.op == BATON_OPERATION_RECV && info.it.peer == 0);
	REQUIRE(info.it.bytes == 8 && info.it.stream == stream);
#if AGE != OLDER
	REQUIRE(info.it.user_data == USER_DATA && info.it.buffer == to);
	REQUIRE(info.it.flags == BATON_INFO_DETACHED);
#endif
#if AGE == LATER
	REQUIRE(info.it.later == 0 && info.it.later_too == 0);
#endif
	for (size_t i = 0; i < BEHIND; i++)
		REQUIRE(info.behind[i] == 0xff);
	info.it.size = sizeof(info.it) - 4;
	REQUIRE(baton_request_info(request, &info.it) == BATON_ERR_INVALID);
	REQUIRE_OK(baton_cancel(request));
	REQUIRE(baton_finish(&request, -1, NULL) == BATON_ERR_CANCELED);
}

/* Of all that there are: at least that they have a name. */
static void
lists_of_infos_are_written_as_far_as_both_know(void)
{
	WITH_MORE(baton_variable_info) variable;
	WITH_MORE(baton_library_info) library;

	memset(&variable, 0xff, sizeof(variable));
	memset(&library, 0xff, sizeof(library));
	variable.it.size = sizeof(variable.it);
	library.it.size = sizeof(library.it);
	REQUIRE_OK(baton_variable(0, &variable.it));
	REQUIRE(strcmp(variable.it.name, "BATON_LOG") == 0);
	REQUIRE(variable.it.size == sizeof(variable.it));
	REQUIRE_OK(baton_library(0, &library.it));
	REQUIRE(strcmp(library.it.name, "Baton") == 0);
	REQUIRE(library.it.size == sizeof(library.it));
#if AGE == LATER
	REQUIRE(variable.it.later == 0 && variable.it.later_too == 0);
	REQUIRE(library.it.later == 0 && library.it.later_too == 0);
#endif
	for (size_t i = 0; i < BEHIND; i++)
		REQUIRE(variable.behind[i] == 0xff && library.behind[i] == 0xff);
	library.it.size = variable.it.size = 8;
	REQUIRE(baton_variable(0, &variable.it) == BATON_ERR_INVALID);
	REQUIRE(baton_library(0, &library.it) == BATON_ERR_INVALID);
}

/* The rest is done on the last one. */
static void
creations_take_options(void)
{
	struct baton_comm_options init = BATON_COMM_OPTIONS_INIT;
	WITH_MORE(baton_comm_options) options;
	struct baton_unique_id id;

	memset(&options, 0xff, sizeof(options));
	options.it = init;
	options.it.device = BATON_DEVICE_HOST;
	options.it.transport = BATON_TRANSPORT_LOCAL;
	options.it.requests_max = 64;
	REQUIRE_OK(baton_unique_id_create(&id));
#if AGE == LATER
	options.it.later = 1;
	REQUIRE(baton_comm_create(&options.it, &comm) == BATON_ERR_INVALID);
	REQUIRE(strstr(baton_last_error(),
	               "options->size is 80, this library's is 64, and *options "
	               "is not 0 at byte 64"));
	REQUIRE(baton_comm_create_local(1, &options.it, &comm) ==
	        BATON_ERR_INVALID);
	options.it.later = 0;
#endif
	REQUIRE_OK(baton_comm_create(&options.it, &comm));
	REQUIRE_OK(baton_comm_destroy(comm));
	REQUIRE_OK(baton_comm_create_id(1, 0, &id, &options.it, &comm));
	REQUIRE_OK(baton_comm_destroy(comm));
	REQUIRE_OK(baton_comm_create_local(1, &options.it, &comm));
}

/* The default of signals_max is 16. */
static void
older_options_have_defaults(void)
{
	baton_request request;

	REQUIRE(baton_signal(0, BATON_SIGNALS_MAX_DEFAULT, 0, 0, comm, stream,
	                     NULL, &request) == BATON_ERR_INVALID);
	REQUIRE(baton_signal(0, 0, BATON_CONTEXTS_MAX_DEFAULT, 0, comm, stream,
	                     NULL, &request) == BATON_ERR_INVALID);
	REQUIRE_OK(baton_signal(0, BATON_SIGNALS_MAX_DEFAULT - 1,
	                        BATON_CONTEXTS_MAX_DEFAULT - 1, 0, comm, stream,
	                        NULL, NULL));
}

#if AGE == THIS
/* A copy of the struct in memory of `size` bytes, if there can be as much, so that a sanitizer
 * sees what is read behind it.  Bytes that the struct has not are `more`. */
static void *
in_its_size(const void *it, size_t bytes, size_t size, unsigned char more)
{
	size_t room = size >= sizeof(size) && size <= 4096 ? size : bytes;
	unsigned char *made = malloc(room);

	REQUIRE(made);
	memset(made, more, room);
	memcpy(made, it, room < bytes ? room : bytes);
	memcpy(made, &size, sizeof(size));
	return made;
}

/* Sizes that a version can have are taken, those beyond ours if the rest is 0; all others are
 * refused. */
static const struct odd {
	bool ours; /* counted from this library's size, else from the smallest */
	int off;
	unsigned char more; /* the bytes that the struct has not */
	bool taken;
} odd[] = {
	{false, -8, 0, false}, {false, -1, 0, false}, {false, 0, 0, true},
	{false, 1, 0, false},  {true, -8, 0, true},   {true, -1, 0, false},
	{true, 0, 0, true},    {true, 1, 0, false},   {true, 8, 0, true},
	{true, 8, 1, false},   {true, 9, 0, false},   {true, 512, 0, true},
	{true, 512, 0xff, false},
};

static size_t
odd_size(const struct odd *one, size_t smallest, size_t ours)
{
	return (size_t)((long long)(one->ours ? ours : smallest) + one->off);
}

/* `done` makes the call and, if it is taken, waits for its end. */
static void
try_sizes(const void *it, size_t bytes, size_t smallest,
          enum baton_status (*done)(const void *options, size_t which),
          size_t which)
{
	static const size_t never[] = {0, 1, 7, 1025, 1032, SIZE_MAX,
	                               SIZE_MAX - 7};
	void *made;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		made = in_its_size(it, bytes, odd_size(&odd[i], smallest, bytes),
		                   odd[i].more);
		REQUIRE(done(made, which) ==
		        (odd[i].taken ? BATON_OK : BATON_ERR_INVALID));
		free(made);
	}
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
		made = in_its_size(it, bytes, never[i], 0);
		REQUIRE(done(made, which) == BATON_ERR_INVALID);
		free(made);
	}
}

static enum baton_status
make_call(const void *options, size_t which)
{
	baton_request request = BATON_REQUEST_NULL;
	enum baton_status status = calls[which].fn(options, &request);

	if (status == BATON_OK)
		finish(request);
	return status;
}

static enum baton_status
make_lists(const void *options, size_t which)
{
	struct baton_tensor one = tensor(which ? to : from);
	baton_request request = BATON_REQUEST_NULL;
	enum baton_status status =
		which ? baton_recv_tensors(&one, 1, 0, 0, comm, stream, options,
	                                   &request)
		      : baton_send_tensors(&one, 1, 0, 0, comm, stream, options,
	                                   &request);

	if (status != BATON_OK)
		return status;
	one = tensor(which ? from : to);
	REQUIRE_OK(which ? baton_send_tensors(&one, 1, 0, 0, comm, other, NULL,
	                                      NULL)
	                 : baton_recv_tensors(&one, 1, 0, 0, comm, other, NULL,
	                                      NULL));
	finish(request);
	return status;
}

static enum baton_status
make_comm(const void *options, size_t which)
{
	struct baton_comm *made = NULL;
	struct baton_unique_id id;
	enum baton_status status;

	if (which == 0) {
		status = baton_comm_create(options, &made);
	} else if (which == 1) {
		status = baton_comm_create_local(1, options, &made);
	} else {
		REQUIRE_OK(baton_unique_id_create(&id));
		status = baton_comm_create_id(1, 0, &id, options, &made);
	}
	REQUIRE((status == BATON_OK) == (made != NULL));
	REQUIRE_OK(baton_comm_destroy(made));
	return status;
}

static void
calls_take_the_sizes_that_there_can_be(void)
{
	struct baton_tensors_options lists = BATON_TENSORS_OPTIONS_INIT;
	struct baton_comm_options creation = BATON_COMM_OPTIONS_INIT;
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_comm_info info = {.size = sizeof(info)};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		options.user_data = USER_DATA;
		options.flags = calls[i].takes_flags ? BATON_OP_DETACHED : 0;
		try_sizes(&options, sizeof(options), 40, make_call, i);
	}
	lists.op.user_data = USER_DATA;
	lists.op.flags = BATON_OP_DETACHED;
	creation.device = BATON_DEVICE_HOST;
	creation.transport = BATON_TRANSPORT_LOCAL;
	for (size_t i = 0; i < 2; i++)
		try_sizes(&lists, sizeof(lists), 88, make_lists, i);
	for (size_t i = 0; i < 3; i++)
		try_sizes(&creation, sizeof(creation), 32, make_comm, i);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		void *made = in_its_size(&info, sizeof(info),
		                         odd_size(&odd[i], 48, sizeof(info)),
		                         odd[i].more);

		/* What the rest holds before is of no matter. */
		REQUIRE(baton_comm_query(comm, made) ==
		        (odd[i].taken || odd[i].more ? BATON_OK
		                                     : BATON_ERR_INVALID));
		free(made);
	}
}
#endif

int
main(void)
{
	creations_take_options();
	REQUIRE_OK(baton_stream_create(comm, &stream));
	REQUIRE_OK(baton_stream_create(comm, &other));
	REQUIRE_OK(baton_mem_alloc(comm, 64, &memory));
	REQUIRE_OK(baton_window_register(memory, 64, comm, &window));
	REQUIRE_OK(baton_plan_begin(comm));
	REQUIRE_OK(baton_send(from, 8, BATON_INT8, 0, 0, comm, stream,
	                      detached(), NULL));
	REQUIRE_OK(baton_recv(to, 8, BATON_INT8, 0, 0, comm, other, detached(),
	                      NULL));
	REQUIRE_OK(baton_plan_end(comm, &plan));
	query_writes_what_both_know();
	request_info_writes_what_both_know();
	lists_of_infos_are_written_as_far_as_both_know();
	older_options_have_defaults();
	operations_take_options();
	lists_take_options();
#if AGE == THIS
	calls_take_the_sizes_that_there_can_be();
#endif
	REQUIRE_OK(baton_stream_synchronize(comm, stream));
	REQUIRE_OK(baton_stream_synchronize(comm, other));
	REQUIRE_OK(baton_plan_destroy(plan));
	REQUIRE_OK(baton_window_deregister(window));
	REQUIRE_OK(baton_mem_free(comm, memory));
	REQUIRE_OK(baton_comm_destroy(comm));
	return 0;
}
