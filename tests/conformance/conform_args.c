/* SPDX-License-Identifier: BSD-3-Clause */
/* Every bad argument of every call is refused with a sentence that names it,
 * nothing is enqueued and no output is written: guarantee 7. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"

#define UNTOUCHED ((baton_request)0x5555)

typedef enum baton_status transfer_fn(struct conform *c, size_t count,
                                      enum baton_datatype type, int peer,
                                      int tag,
                                      const struct baton_op_options *options,
                                      void *buffer, baton_request *request_p);

static enum baton_status
by_send(struct conform *c, size_t count, enum baton_datatype type, int peer,
        int tag, const struct baton_op_options *options, void *buffer,
        baton_request *request_p)
{
	return baton_send(buffer, count, type, peer, tag, c->comm, c->stream,
	                  options, request_p);
}

static enum baton_status
by_recv(struct conform *c, size_t count, enum baton_datatype type, int peer,
        int tag, const struct baton_op_options *options, void *buffer,
        baton_request *request_p)
{
	return baton_recv(buffer, count, type, peer, tag, c->comm, c->stream,
	                  options, request_p);
}

static transfer_fn *const transfers[] = { by_send, by_recv };

/* The next message on tag 0 is the right one: nothing bad got in before it. */
static void
check_clean(struct conform *c)
{
	CHECK_OK(c, baton_stream_query(c->comm, c->stream));
	conform_sync(c);
	conform_sound(c);
}

static void
a_bad_peer_is_refused(struct conform *c)
{
	const int peers[] = { -2, c->size, c->size + 1, INT_MAX, INT_MIN };
	unsigned char data[8] = { 0 };
	char value[32];

	for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++) {
		for (int f = 0; f < 2; f++) {
			baton_request request = UNTOUCHED;

			snprintf(value, sizeof(value), "peer %d", peers[i]);
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              transfers[f](c, 8, BATON_UINT8, peers[i],
			                           0, NULL, data, &request),
			              value);
			/* Also with nothing to send. */
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              transfers[f](c, 0, BATON_UINT8, peers[i],
			                           0, NULL, NULL, &request),
			              value);
			CHECK(c, request == UNTOUCHED);
		}
	}
	check_clean(c);
}

static void
a_bad_tag_is_refused(struct conform *c)
{
	const int tags[] = { -2, INT_MIN, c->info.tag_max };
	unsigned char data[8] = { 0 };
	char value[32];

	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		int tag = tags[i];

		if (tag == INT_MAX)
			continue;
		if (tag >= 0)
			tag++;
		for (int f = 0; f < 2; f++) {
			baton_request request = UNTOUCHED;

			snprintf(value, sizeof(value), "tag %d", tag);
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              transfers[f](c, 8, BATON_UINT8, 0, tag,
			                           NULL, data, &request),
			              value);
			CHECK(c, request == UNTOUCHED);
		}
	}
	check_clean(c);
}

static void
a_tag_that_the_transport_has_not_got_is_refused(struct conform *c)
{
	unsigned char data[8] = { 0 };
	baton_request request = UNTOUCHED;
	enum baton_status status;

	for (int f = 0; f < 2; f++) {
		if (c->info.capabilities & BATON_CAP_TAGS)
			continue;
		status = transfers[f](c, 8, BATON_UINT8, 0, 1, NULL, data,
		                      &request);
		CHECK_STATUS(c, BATON_ERR_UNSUPPORTED, status);
		CHECK(c, strstr(baton_last_error(), "tag") != NULL);
		CHECK(c, request == UNTOUCHED);
	}
	check_clean(c);
}

static void
a_bad_datatype_is_refused(struct conform *c)
{
	const int types[] = { -1, BATON_DATATYPE_COUNT, 1000 };
	unsigned char data[8] = { 0 };

	for (int i = 0; i < 3; i++) {
		for (int f = 0; f < 2; f++) {
			baton_request request = UNTOUCHED;

			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              transfers[f](c, 1,
			                           (enum baton_datatype)types[i],
			                           0, 0, NULL, data, &request),
			              "type");
			CHECK(c, request == UNTOUCHED);
		}
	}
	check_clean(c);
}

static void
a_count_that_overflows_is_refused(struct conform *c)
{
	static const struct {
		size_t count;
		enum baton_datatype type;
	} all[] = {
		{ SIZE_MAX, BATON_FLOAT64 },
		{ SIZE_MAX, BATON_INT8 },
		{ SIZE_MAX / 8 + 1, BATON_INT64 },
		{ (size_t)1 << 60, BATON_FLOAT64 },
		{ (size_t)1 << 63, BATON_INT8 },
		{ (size_t)1 << 62, BATON_FLOAT16 },
	};
	unsigned char data[8] = { 0 };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		for (int f = 0; f < 2; f++) {
			baton_request request = UNTOUCHED;

			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              transfers[f](c, all[i].count, all[i].type,
			                           0, 0, NULL, data, &request),
			              "count");
			CHECK(c, request == UNTOUCHED);
		}
	}
	check_clean(c);
}

static void
a_null_buffer_with_a_count_is_refused(struct conform *c)
{
	for (int f = 0; f < 2; f++) {
		baton_request request = UNTOUCHED;

		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              transfers[f](c, 1, BATON_INT8, 0, 0, NULL, NULL,
		                           &request),
		              "buffer");
		CHECK(c, request == UNTOUCHED);
	}
	check_clean(c);
}

static void
bad_options_are_refused(struct conform *c)
{
	struct baton_op_options sizes = BATON_OP_OPTIONS_INIT;
	struct baton_op_options flags = BATON_OP_OPTIONS_INIT;
	unsigned char data[8] = { 0 };

	sizes.size = 4;
	flags.flags = 1u << 17;
	for (int f = 0; f < 2; f++) {
		baton_request request = UNTOUCHED;

		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              transfers[f](c, 8, BATON_UINT8, 0, 0, &sizes, data,
		                           &request),
		              "size");
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              transfers[f](c, 8, BATON_UINT8, 0, 0, &flags, data,
		                           &request),
		              "flags");
		CHECK(c, request == UNTOUCHED);
	}
	sizes.size = 0;
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_record(c->comm, c->stream, &sizes, NULL));
	check_clean(c);
}

static void
a_null_communicator_is_refused(struct conform *c)
{
	struct baton_comm_info info = { .size = sizeof(info), .rank = 55 };
	baton_stream stream = (baton_stream)(void *)&info;
	baton_request request = UNTOUCHED;
	struct baton_queue *queue = (struct baton_queue *)(void *)&info;
	void *const marker = &info;
	int value = 0;

	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_send(&value, 1, BATON_INT32, 0, 0, NULL, NULL, NULL,
	                         &request),
	              "comm");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv(&value, 1, BATON_INT32, 0, 0, NULL, NULL, NULL,
	                         &request),
	              "comm");
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_record(NULL, NULL, NULL, &request));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_begin(NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_stream_create(NULL, &stream));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_stream_destroy(NULL, stream));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_stream_synchronize(NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_stream_query(NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_stream_wait(NULL, NULL, 1));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_queue_create(NULL, 4, &queue));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_comm_query(NULL, &info));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_comm_abort(NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_comm_status(NULL));
	CHECK(c, baton_comm_error(NULL) != NULL);
	CHECK_EQ(c, baton_comm_rank(NULL), -1);
	CHECK_EQ(c, baton_comm_size(NULL), -1);
	CHECK_EQ(c, baton_progress(NULL), 0);
	CHECK_OK(c, baton_comm_destroy(NULL));
	CHECK(c, request == UNTOUCHED);
	CHECK(c, (void *)stream == marker && (void *)queue == marker);
	CHECK_EQ(c, info.rank, 55);
}

static void
a_bad_stream_is_refused(struct conform *c)
{
	baton_stream gone = NULL, bogus = (baton_stream)(void *)&gone;
	baton_request request = UNTOUCHED;
	int value = 0;

	CHECK_OK(c, baton_stream_create(c->comm, &gone));
	CHECK_OK(c, baton_stream_destroy(c->comm, gone));
	/* Handles are the process's: another rank may have been given this one. */
	conform_sync(c);
	for (int i = 0; i < 2; i++) {
		baton_stream bad = i ? gone : bogus;

		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_send(&value, 1, BATON_INT32, 0, 0, c->comm,
		                         bad, NULL, &request),
		              "stream");
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_record(c->comm, bad, NULL, &request));
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_stream_query(c->comm, bad));
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_stream_synchronize(c->comm, bad));
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_stream_destroy(c->comm, bad));
	}
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_stream_destroy(c->comm, NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_stream_create(c->comm, NULL));
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_stream_launch(c->comm, c->stream, NULL, NULL), "fn");
	CHECK(c, request == UNTOUCHED);
	check_clean(c);
}

static void
a_record_takes_no_flags_and_no_deadline(struct conform *c)
{
	struct baton_op_options flags = BATON_OP_OPTIONS_INIT;
	struct baton_op_options deadline = BATON_OP_OPTIONS_INIT;
	baton_request request = UNTOUCHED;

	flags.flags = BATON_OP_DETACHED;
	deadline.timeout_ns = 5;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_record(c->comm, c->stream, &flags, &request),
	              "flags");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_record(c->comm, c->stream, &deadline, &request),
	              "timeout");
	CHECK(c, request == UNTOUCHED);
}

static void
bad_request_arguments_are_refused(struct conform *c)
{
	struct baton_completion kept, untouched;
	baton_request null = BATON_REQUEST_NULL, wild = UINT64_C(0xdeadbeef0badf00d);
	baton_request bad = wild;
	char text[8] = "keep";
	size_t index = 77;

	memset(&kept, 0x22, sizeof(kept));
	memset(&untouched, 0x22, sizeof(untouched));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_test(null, &kept));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_wait(null, -1, &kept));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_finish(&null, -1, &kept));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_finish(NULL, -1, &kept));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_cancel(null));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_release(NULL));
	CHECK_STATUS(c, BATON_OK, baton_release(&null));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_stream_wait(c->comm, c->stream, null));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_request_error(null, text, 8));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_test(wild, &kept));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_wait(wild, -1, &kept));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_finish(&bad, -1, &kept));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_cancel(wild));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_release(&bad));
	CHECK_STATUS(c, BATON_ERR_STALE,
	             baton_stream_wait(c->comm, c->stream, wild));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_request_error(wild, text, 8));
	CHECK(c, bad == wild);
	CHECK(c, strcmp(text, "keep") == 0);
	CHECK(c, memcmp(&kept, &untouched, sizeof(kept)) == 0);
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_wait_any(NULL, 2, 0, &index, &kept));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_wait_all(NULL, 2, 0));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_test_some(NULL, 2, &index, 1, &index));
	CHECK_EQ(c, index, 77);
	check_clean(c);
}

static void
bad_queue_arguments_are_refused(struct conform *c)
{
	struct baton_queue *queue = NULL;
	struct baton_completion one;

	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_queue_create(c->comm, 0, &queue), "entries");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_queue_create(c->comm, (1u << 20) + 1, &queue),
	              "entries");
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_queue_create(c->comm, 4, NULL));
	CHECK(c, queue == NULL);
	CHECK_EQ(c, baton_queue_poll(NULL, &one, 1), 0);
	CHECK_EQ(c, baton_queue_fd(NULL), -1);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_queue_arm(NULL));
	baton_queue_destroy(NULL);
	if (!CHECK_OK(c, baton_queue_create(c->comm, 4, &queue)))
		return;
	CHECK_EQ(c, baton_queue_poll(queue, NULL, 4), 0);
	CHECK_EQ(c, baton_queue_poll(queue, &one, 0), 0);
	baton_queue_destroy(queue);
}

static void
message_paths_of_the_peers_make_up_that_of_the_query(struct conform *c)
{
	MESSAGE_PATHS(c);
	CHECK_EQ(c, baton_message_path(c->comm, -1), 0);
	CHECK_EQ(c, baton_message_path(c->comm, c->size), 0);
	CHECK_EQ(c, baton_message_path(NULL, 0), 0);
}

static void
bad_query_arguments_are_refused(struct conform *c)
{
	struct baton_comm_info info = { .size = 3, .rank = 44 };

	CHECK_STATUS(c, BATON_ERR_INVALID, baton_comm_query(c->comm, NULL));
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_comm_query(c->comm, &info),
	              "size");
	CHECK_EQ(c, info.rank, 44);
	info.size = sizeof(info);
	CHECK_OK(c, baton_comm_query(c->comm, &info));
	CHECK_EQ(c, info.rank, c->rank);
	CHECK_EQ(c, info.ranks, c->size);
	CHECK_EQ(c, info.requests_max, BATON_REQUESTS_MAX_DEFAULT);
	CHECK_EQ(c, info.rank, baton_comm_rank(c->comm));
	CHECK_EQ(c, info.ranks, baton_comm_size(c->comm));
	CHECK(c, info.device_name && info.device_name[0]);
	CHECK(c, info.transport_name && info.transport_name[0]);
	CHECK(c, info.library != NULL);
	CHECK_OK(c, baton_comm_status(c->comm));
	CHECK(c, strcmp(baton_comm_error(c->comm), "") == 0);
}

static void
bad_creation_options_are_refused(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comms[2] = { (void *)c, (void *)c };

	options.size = 8;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_local(1, &options, comms), "size");
	options.size = sizeof(options);
	options.requests_max = BATON_REQUESTS_MAX_LIMIT + 1;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_local(1, &options, comms),
	              "requests_max 1048577");
	options.requests_max = 0;
	options.progress = (enum baton_progress)9;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_local(1, &options, comms), "progress");
	options.progress = BATON_PROGRESS_AUTO;
	options.device = (enum baton_device)9;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_local(1, &options, comms), "device");
	options.device = BATON_DEVICE_AUTO;
	options.transport = (enum baton_transport)9;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_local(1, &options, comms), "transport");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_local(0, NULL, comms), "size 0");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_local(-3, NULL, comms), "size -3");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_local(4096, NULL, comms), "size 4096");
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_comm_create_local(1, NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_comm_create(NULL, NULL));
	CHECK(c, (void *)comms[0] == (void *)c && (void *)comms[1] == (void *)c);
}

/* Some machines have a GPU, or a simulated one. */
static void
check_cuda(struct conform *c, enum baton_status status, struct baton_comm *comm)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	if (status != BATON_OK) {
		CHECK_STATUS(c, BATON_ERR_UNSUPPORTED, status);
		CHECK(c, comm == NULL);
		CHECK(c, strstr(baton_last_error(), "CUDA") != NULL);
		return;
	}
	CHECK_STATUS(c, BATON_OK, baton_comm_query(comm, &info));
	CHECK(c, info.device == BATON_DEVICE_CUDA);
	CHECK(c, info.cuda_device >= 0);
	CHECK_STATUS(c, BATON_OK, baton_comm_destroy(comm));
}

/* The sentence says what is missing, for a person who has to get it. */
static void
a_device_or_transport_that_is_not_there_is_unsupported(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;
	enum baton_status status;

	options.device = BATON_DEVICE_CUDA;
	status = baton_comm_create_local(1, &options, &comm);
	check_cuda(c, status, comm);
	comm = NULL;
	options.transport = BATON_TRANSPORT_LOCAL;
	status = baton_comm_create(&options, &comm);
	check_cuda(c, status, comm);
	comm = NULL;
	options.device = BATON_DEVICE_HOST;
	options.transport = BATON_TRANSPORT_NCCL;
	CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
	              baton_comm_create(&options, &comm), "NCCL");
	CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
	              baton_comm_create_local(1, &options, &comm), "NCCL");
	options.transport = BATON_TRANSPORT_MPI;
	CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
	              baton_comm_create_local(1, &options, &comm), "local");
	CHECK(c, comm == NULL);
}

static void
the_last_refusal_belongs_to_its_thread(struct conform *c)
{
	char before[300];

	(void)baton_comm_abort(NULL);
	snprintf(before, sizeof(before), "%s", baton_last_error());
	CHECK(c, before[0] != '\0');
	conform_sync(c);
	if (c->rank == 0)
		(void)baton_queue_create(c->comm, 0, NULL);
	conform_sync(c);
	if (c->rank != 0)
		CHECK(c, strcmp(before, baton_last_error()) == 0);
}

static void
statuses_have_names_and_texts(struct conform *c)
{
#define CHECK_NAME(name, number, text)                                        \
	CHECK(c, strcmp(baton_status_name(name), #name) == 0);                \
	CHECK(c, strcmp(baton_status_text(name), text) == 0);                 \
	CHECK_EQ(c, name, number);
	BATON_STATUS_MAP(CHECK_NAME)
#undef CHECK_NAME
	CHECK(c, baton_status_name((enum baton_status)-999) != NULL);
	CHECK(c, strcmp(baton_status_text((enum baton_status)-999),
	                "unknown status") == 0);
	CHECK(c, strcmp(baton_version(), "0.1.0") == 0);
}

const struct conform_case conform_args[] = {
	{ CASE(a_bad_peer_is_refused) },
	{ CASE(a_bad_tag_is_refused), .needs = BATON_CAP_TAGS },
	{ CASE(a_tag_that_the_transport_has_not_got_is_refused) },
	{ CASE(a_bad_datatype_is_refused) },
	{ CASE(a_count_that_overflows_is_refused) },
	{ CASE(a_null_buffer_with_a_count_is_refused) },
	{ CASE(bad_options_are_refused) },
	{ CASE(a_null_communicator_is_refused), .flags = CONFORM_BARE },
	{ CASE(a_bad_stream_is_refused), .flags = CONFORM_HOST_DEVICE },
	{ CASE(a_record_takes_no_flags_and_no_deadline) },
	{ CASE(bad_request_arguments_are_refused) },
	{ CASE(bad_queue_arguments_are_refused) },
	{ CASE(bad_query_arguments_are_refused) },
	{ CASE(message_paths_of_the_peers_make_up_that_of_the_query) },
	{ CASE(bad_creation_options_are_refused), .flags = CONFORM_BARE },
	{ CASE(a_device_or_transport_that_is_not_there_is_unsupported),
	  .flags = CONFORM_BARE },
	{ CASE(the_last_refusal_belongs_to_its_thread) },
	{ CASE(statuses_have_names_and_texts), .flags = CONFORM_BARE },
	CASES_END,
};
