/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary interface, written down: sizes and offsets of all public structs, and the
 * numbers of enumerators and bits, with the version that each came with.  A change of the
 * header that programs of an earlier version would not survive fails here.
 *
 * A later version adds rows and changes none, but for those of reserved fields, which new
 * fields cut up.  A new field at the end of a struct begins at or behind the size that the
 * struct had before, which gets a row of its own.
 */
#include <stddef.h>
#include <string.h>

#include <baton.h>

#include "run_tests.h"

#define V0_1_0 "0.1.0"

static const struct field {
	const char *since, *type, *name;
	size_t at, bytes;             /* as written down */
	size_t at_here, bytes_here;   /* as compiled */
} fields[] = {
#define FIELD(since, type, name, at, bytes)                                   \
	{since, #type, #name, at, bytes, offsetof(struct type, name),         \
	 sizeof(((struct type *)NULL)->name)}
	FIELD(V0_1_0, baton_comm_options, size, 0, 8),
	FIELD(V0_1_0, baton_comm_options, device, 8, 4),
	FIELD(V0_1_0, baton_comm_options, transport, 12, 4),
	FIELD(V0_1_0, baton_comm_options, requests_max, 16, 4),
	FIELD(V0_1_0, baton_comm_options, progress, 20, 4),
	FIELD(V0_1_0, baton_comm_options, timeout_ns, 24, 8),
	FIELD(V0_1_0, baton_comm_options, signals_max, 32, 4),
	FIELD(V0_1_0, baton_comm_options, contexts_max, 36, 4),
	FIELD(V0_1_0, baton_comm_options, cuda_device, 40, 4),
	FIELD(V0_1_0, baton_comm_options, tensors_max, 44, 4),
	FIELD(V0_1_0, baton_comm_options, nccl_lanes, 48, 4),
	FIELD(V0_1_0, baton_comm_options, nccl_ctas, 52, 4),
	FIELD(V0_1_0, baton_comm_options, timestamps, 56, 1),
	FIELD(V0_1_0, baton_comm_options, check, 57, 1),
	FIELD(V0_1_0, baton_comm_options, nccl_lists, 58, 1),
	FIELD(V0_1_0, baton_comm_options, reserved, 59, 5),

	FIELD(V0_1_0, baton_op_options, size, 0, 8),
	FIELD(V0_1_0, baton_op_options, flags, 8, 4),
	FIELD(V0_1_0, baton_op_options, reserved, 12, 4),
	FIELD(V0_1_0, baton_op_options, timeout_ns, 16, 8),
	FIELD(V0_1_0, baton_op_options, user_data, 24, 8),
	FIELD(V0_1_0, baton_op_options, queue, 32, 8),
	FIELD(V0_1_0, baton_op_options, reserved_more, 40, 24),

	FIELD(V0_1_0, baton_tensors_options, op, 0, 64),
	FIELD(V0_1_0, baton_tensors_options, flags, 64, 4),
	FIELD(V0_1_0, baton_tensors_options, reserved, 68, 4),
	FIELD(V0_1_0, baton_tensors_options, input_signal, 72, 8),
	FIELD(V0_1_0, baton_tensors_options, output_signal, 80, 8),
	FIELD(V0_1_0, baton_tensors_options, arena, 88, 8),
	FIELD(V0_1_0, baton_tensors_options, arena_bytes, 96, 8),
	FIELD(V0_1_0, baton_tensors_options, count_p, 104, 8),

	FIELD(V0_1_0, baton_comm_info, size, 0, 8),
	FIELD(V0_1_0, baton_comm_info, rank, 8, 4),
	FIELD(V0_1_0, baton_comm_info, ranks, 12, 4),
	FIELD(V0_1_0, baton_comm_info, device, 16, 4),
	FIELD(V0_1_0, baton_comm_info, transport, 20, 4),
	FIELD(V0_1_0, baton_comm_info, device_name, 24, 8),
	FIELD(V0_1_0, baton_comm_info, transport_name, 32, 8),
	FIELD(V0_1_0, baton_comm_info, library, 40, 8),
	FIELD(V0_1_0, baton_comm_info, tag_max, 48, 4),
	FIELD(V0_1_0, baton_comm_info, capabilities, 52, 4),
	FIELD(V0_1_0, baton_comm_info, requests_max, 56, 4),
	FIELD(V0_1_0, baton_comm_info, engine_thread, 60, 1),
	FIELD(V0_1_0, baton_comm_info, check, 61, 1),
	FIELD(V0_1_0, baton_comm_info, reserved, 62, 2),
	FIELD(V0_1_0, baton_comm_info, signals_max, 64, 4),
	FIELD(V0_1_0, baton_comm_info, contexts_max, 68, 4),
	FIELD(V0_1_0, baton_comm_info, signal_paths, 72, 4),
	FIELD(V0_1_0, baton_comm_info, window_paths, 76, 4),
	FIELD(V0_1_0, baton_comm_info, cuda_device, 80, 4),
	FIELD(V0_1_0, baton_comm_info, nccl_version, 84, 4),
	FIELD(V0_1_0, baton_comm_info, nccl_lanes, 88, 4),
	FIELD(V0_1_0, baton_comm_info, nccl_ctas, 92, 4),
	FIELD(V0_1_0, baton_comm_info, why_not_nccl, 96, 8),
	FIELD(V0_1_0, baton_comm_info, why_engine_puts, 104, 8),
	FIELD(V0_1_0, baton_comm_info, cuda_streams, 112, 4),
	FIELD(V0_1_0, baton_comm_info, cuda_queues, 116, 4),
	FIELD(V0_1_0, baton_comm_info, cuda_copy_queues, 120, 4),
	FIELD(V0_1_0, baton_comm_info, message_paths, 124, 4),
	FIELD(V0_1_0, baton_comm_info, nccl_bytes, 128, 8),
	FIELD(V0_1_0, baton_comm_info, why_not_near, 136, 8),

	FIELD(V0_1_0, baton_variable_info, size, 0, 8),
	FIELD(V0_1_0, baton_variable_info, name, 8, 8),
	FIELD(V0_1_0, baton_variable_info, values, 16, 8),
	FIELD(V0_1_0, baton_variable_info, otherwise, 24, 8),
	FIELD(V0_1_0, baton_variable_info, meaning, 32, 8),
	FIELD(V0_1_0, baton_variable_info, value, 40, 8),
	FIELD(V0_1_0, baton_variable_info, source, 48, 4),
	FIELD(V0_1_0, baton_variable_info, reserved, 52, 4),

	FIELD(V0_1_0, baton_library_info, size, 0, 8),
	FIELD(V0_1_0, baton_library_info, name, 8, 8),
	FIELD(V0_1_0, baton_library_info, built, 16, 8),
	FIELD(V0_1_0, baton_library_info, version, 24, 8),
	FIELD(V0_1_0, baton_library_info, path, 32, 8),
	FIELD(V0_1_0, baton_library_info, why_not, 40, 8),

	FIELD(V0_1_0, baton_completion, request, 0, 8),
	FIELD(V0_1_0, baton_completion, status, 8, 4),
	FIELD(V0_1_0, baton_completion, peer, 12, 4),
	FIELD(V0_1_0, baton_completion, tag, 16, 4),
	FIELD(V0_1_0, baton_completion, op, 20, 4),
	FIELD(V0_1_0, baton_completion, bytes, 24, 8),
	FIELD(V0_1_0, baton_completion, user_data, 32, 8),
	FIELD(V0_1_0, baton_completion, flags, 40, 4),
	FIELD(V0_1_0, baton_completion, reserved, 44, 4),
	FIELD(V0_1_0, baton_completion, enqueued_ns, 48, 8),
	FIELD(V0_1_0, baton_completion, armed_ns, 56, 8),
	FIELD(V0_1_0, baton_completion, completed_ns, 64, 8),
	FIELD(V0_1_0, baton_completion, reserved_more, 72, 24),

	FIELD(V0_1_0, baton_message_info, size, 0, 8),
	FIELD(V0_1_0, baton_message_info, bytes, 8, 8),
	FIELD(V0_1_0, baton_message_info, peer, 16, 4),
	FIELD(V0_1_0, baton_message_info, tag, 20, 4),
	FIELD(V0_1_0, baton_message_info, tensors, 24, 4),
	FIELD(V0_1_0, baton_message_info, list, 28, 1),
	FIELD(V0_1_0, baton_message_info, reserved, 29, 3),
	FIELD(V0_1_0, baton_request_info, size, 0, 8),
	FIELD(V0_1_0, baton_request_info, request, 8, 8),
	FIELD(V0_1_0, baton_request_info, op, 16, 4),
	FIELD(V0_1_0, baton_request_info, state, 20, 4),
	FIELD(V0_1_0, baton_request_info, peer, 24, 4),
	FIELD(V0_1_0, baton_request_info, tag, 28, 4),
	FIELD(V0_1_0, baton_request_info, bytes, 32, 8),
	FIELD(V0_1_0, baton_request_info, stream, 40, 8),
	FIELD(V0_1_0, baton_request_info, age_ns, 48, 8),
	FIELD(V0_1_0, baton_request_info, deadline_ns, 56, 8),
	FIELD(V0_1_0, baton_request_info, user_data, 64, 8),
	FIELD(V0_1_0, baton_request_info, buffer, 72, 8),
	FIELD(V0_1_0, baton_request_info, signal_index, 80, 4),
	FIELD(V0_1_0, baton_request_info, context, 84, 4),
	FIELD(V0_1_0, baton_request_info, operations, 88, 4),
	FIELD(V0_1_0, baton_request_info, operations_ended, 92, 4),
	FIELD(V0_1_0, baton_request_info, status, 96, 4),
	FIELD(V0_1_0, baton_request_info, flags, 100, 4),

	FIELD(V0_1_0, baton_tensor, data, 0, 8),
	FIELD(V0_1_0, baton_tensor, type, 8, 4),
	FIELD(V0_1_0, baton_tensor, rank, 12, 4),
	FIELD(V0_1_0, baton_tensor, shape, 16, 64),

	FIELD(V0_1_0, baton_wait_signal_desc, op_count, 0, 4),
	FIELD(V0_1_0, baton_wait_signal_desc, peer, 4, 4),
	FIELD(V0_1_0, baton_wait_signal_desc, signal_index, 8, 4),
	FIELD(V0_1_0, baton_wait_signal_desc, context, 12, 4),

	FIELD(V0_1_0, baton_unique_id, bytes, 0, 128),
};

/* One row for each version in which the struct grew, in order. */
static const struct size {
	const char *since, *type;
	size_t bytes, bytes_here;
} sizes[] = {
#define SIZE(since, type, bytes) {since, #type, bytes, sizeof(struct type)}
	SIZE(V0_1_0, baton_comm_options, 64),
	SIZE(V0_1_0, baton_op_options, 64), /* never grows */
	SIZE(V0_1_0, baton_tensors_options, 112),
	SIZE(V0_1_0, baton_comm_info, 144),
	SIZE(V0_1_0, baton_variable_info, 56),
	SIZE(V0_1_0, baton_library_info, 48),
	SIZE(V0_1_0, baton_completion, 96),      /* never grows */
	SIZE(V0_1_0, baton_message_info, 32),
	SIZE(V0_1_0, baton_request_info, 104),
	SIZE(V0_1_0, baton_tensor, 80),          /* never grows */
	SIZE(V0_1_0, baton_wait_signal_desc, 16), /* never grows */
	SIZE(V0_1_0, baton_unique_id, 128),      /* never grows */
};

static const struct number {
	const char *since, *name;
	long long number, here;
} numbers[] = {
#define NUMBER(since, name, number) {since, #name, number, name}
	NUMBER(V0_1_0, BATON_OK, 0),
	NUMBER(V0_1_0, BATON_PENDING, 1),
	NUMBER(V0_1_0, BATON_ERR_INVALID, -1),
	NUMBER(V0_1_0, BATON_ERR_UNSUPPORTED, -2),
	NUMBER(V0_1_0, BATON_ERR_AGAIN, -3),
	NUMBER(V0_1_0, BATON_ERR_NOMEM, -4),
	NUMBER(V0_1_0, BATON_ERR_STALE, -5),
	NUMBER(V0_1_0, BATON_ERR_BUSY, -6),
	NUMBER(V0_1_0, BATON_ERR_TRUNCATED, -10),
	NUMBER(V0_1_0, BATON_ERR_MISMATCH, -11),
	NUMBER(V0_1_0, BATON_ERR_TIMEOUT, -12),
	NUMBER(V0_1_0, BATON_ERR_CANCELED, -13),
	NUMBER(V0_1_0, BATON_ERR_ABORTED, -14),
	NUMBER(V0_1_0, BATON_ERR_PEER, -15),
	NUMBER(V0_1_0, BATON_ERR_CUDA, -20),
	NUMBER(V0_1_0, BATON_ERR_NCCL, -21),
	NUMBER(V0_1_0, BATON_ERR_MPI, -22),
	NUMBER(V0_1_0, BATON_ERR_SYSTEM, -23),
	NUMBER(V0_1_0, BATON_INT8, 0),
	NUMBER(V0_1_0, BATON_UINT8, 1),
	NUMBER(V0_1_0, BATON_INT16, 2),
	NUMBER(V0_1_0, BATON_UINT16, 3),
	NUMBER(V0_1_0, BATON_INT32, 4),
	NUMBER(V0_1_0, BATON_UINT32, 5),
	NUMBER(V0_1_0, BATON_INT64, 6),
	NUMBER(V0_1_0, BATON_UINT64, 7),
	NUMBER(V0_1_0, BATON_FLOAT16, 8),
	NUMBER(V0_1_0, BATON_BFLOAT16, 9),
	NUMBER(V0_1_0, BATON_FLOAT32, 10),
	NUMBER(V0_1_0, BATON_FLOAT64, 11),
	NUMBER(V0_1_0, BATON_FLOAT8E4M3, 12),
	NUMBER(V0_1_0, BATON_FLOAT8E5M2, 13),
	NUMBER(V0_1_0, BATON_BOOL, 14),
	NUMBER(V0_1_0, BATON_DEVICE_AUTO, 0),
	NUMBER(V0_1_0, BATON_DEVICE_HOST, 1),
	NUMBER(V0_1_0, BATON_DEVICE_CUDA, 2),
	NUMBER(V0_1_0, BATON_TRANSPORT_AUTO, 0),
	NUMBER(V0_1_0, BATON_TRANSPORT_LOCAL, 1),
	NUMBER(V0_1_0, BATON_TRANSPORT_MPI, 2),
	NUMBER(V0_1_0, BATON_TRANSPORT_NCCL, 3),
	NUMBER(V0_1_0, BATON_TRANSPORT_NEAR, 4),
	NUMBER(V0_1_0, BATON_PROGRESS_AUTO, 0),
	NUMBER(V0_1_0, BATON_PROGRESS_THREAD, 1),
	NUMBER(V0_1_0, BATON_PROGRESS_CALLS, 2),
	NUMBER(V0_1_0, BATON_CAP_TAGS, 0x1),
	NUMBER(V0_1_0, BATON_CAP_DIRECTIONS, 0x2),
	NUMBER(V0_1_0, BATON_CAP_SHORT, 0x4),
	NUMBER(V0_1_0, BATON_CAP_TRUNCATION, 0x8),
	NUMBER(V0_1_0, BATON_CAP_CANCEL, 0x10),
	NUMBER(V0_1_0, BATON_CAP_SELF, 0x20),
	NUMBER(V0_1_0, BATON_CAP_SIGNALS, 0x40),
	NUMBER(V0_1_0, BATON_CAP_WINDOWS, 0x80),
	NUMBER(V0_1_0, BATON_CAP_TENSORS, 0x100),
	NUMBER(V0_1_0, BATON_CAP_ANY_SOURCE, 0x200),
	NUMBER(V0_1_0, BATON_CAP_ANY_TAG, 0x400),
	NUMBER(V0_1_0, BATON_WINDOW_PATH_DIRECT, 0x1),
	NUMBER(V0_1_0, BATON_WINDOW_PATH_VMWRITE, 0x2),
	NUMBER(V0_1_0, BATON_WINDOW_PATH_MESSAGE, 0x4),
	NUMBER(V0_1_0, BATON_WINDOW_PATH_NATIVE, 0x8),
	NUMBER(V0_1_0, BATON_MESSAGE_PATH_TRANSPORT, 0x1),
	NUMBER(V0_1_0, BATON_MESSAGE_PATH_NEAR, 0x2),
	NUMBER(V0_1_0, BATON_VARIABLE_UNSET, 0),
	NUMBER(V0_1_0, BATON_VARIABLE_ENVIRONMENT, 1),
	NUMBER(V0_1_0, BATON_VARIABLE_REFUSED, 2),
	NUMBER(V0_1_0, BATON_OP_DETACHED, 0x1),
	NUMBER(V0_1_0, BATON_ANY_SOURCE, -1),
	NUMBER(V0_1_0, BATON_ANY_TAG, -1),
	NUMBER(V0_1_0, BATON_FORBID_SELF, 0x1),
	NUMBER(V0_1_0, BATON_OPERATION_SEND, 1),
	NUMBER(V0_1_0, BATON_OPERATION_RECV, 2),
	NUMBER(V0_1_0, BATON_OPERATION_RECORD, 3),
	NUMBER(V0_1_0, BATON_OPERATION_SIGNAL, 4),
	NUMBER(V0_1_0, BATON_OPERATION_PUT_SIGNAL, 5),
	NUMBER(V0_1_0, BATON_OPERATION_WAIT_SIGNAL, 6),
	NUMBER(V0_1_0, BATON_OPERATION_PLAN, 7),
	NUMBER(V0_1_0, BATON_OPERATION_BARRIER, 8),
	NUMBER(V0_1_0, BATON_OPERATION_WAIT_ANY, 9),
	NUMBER(V0_1_0, BATON_OPERATION_WAIT_COUNT, 10),
	NUMBER(V0_1_0, BATON_OPERATION_GET, 11),
	NUMBER(V0_1_0, BATON_OPERATION_FLUSH, 12),
	NUMBER(V0_1_0, BATON_OPERATION_ATOMIC, 13),
	NUMBER(V0_1_0, BATON_ALL_PEERS, -1),
	NUMBER(V0_1_0, BATON_COMPLETION_LENT, 0x1),
	NUMBER(V0_1_0, BATON_COMPLETION_BEGUN, 0x2),
	NUMBER(V0_1_0, BATON_STATE_CALLED, 1),
	NUMBER(V0_1_0, BATON_STATE_QUEUED, 2),
	NUMBER(V0_1_0, BATON_STATE_ARMED, 3),
	NUMBER(V0_1_0, BATON_STATE_ISSUED, 4),
	NUMBER(V0_1_0, BATON_STATE_ENDED, 5),
	NUMBER(V0_1_0, BATON_STATE_LENT, 6),
	NUMBER(V0_1_0, BATON_INFO_DETACHED, 0x1),
	NUMBER(V0_1_0, BATON_INFO_GROUP, 0x2),
	NUMBER(V0_1_0, BATON_INFO_CANCELED, 0x4),
	NUMBER(V0_1_0, BATON_INFO_TENSORS, 0x8),
	NUMBER(V0_1_0, BATON_TENSOR_RANK_MAX, 8),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

START_TEST(fields_are_where_they_were)
{
	for (size_t i = 0; i < COUNT(fields); i++) {
		const struct field *f = &fields[i];

		ck_assert_msg(f->at == f->at_here && f->bytes == f->bytes_here,
		              "%s.%s (%s): %zu bytes at %zu, were %zu at %zu",
		              f->type, f->name, f->since, f->bytes_here,
		              f->at_here, f->bytes, f->at);
	}
}
END_TEST

/* A field that the table lacks shows as a gap, or at the end. */
START_TEST(structs_have_no_padding_and_no_field_that_is_not_written_down)
{
	for (size_t i = 0; i < COUNT(sizes); i++) {
		size_t end = 0;

		for (size_t k = 0; k < COUNT(fields); k++) {
			if (strcmp(fields[k].type, sizes[i].type) != 0)
				continue;
			ck_assert_msg(fields[k].at == end,
			              "%s: nothing is written down at %zu",
			              sizes[i].type, end);
			end = fields[k].at + fields[k].bytes;
		}
		ck_assert_msg(end == sizes[i].bytes_here,
		              "%s: nothing is written down at %zu of %zu",
		              sizes[i].type, end, sizes[i].bytes_here);
	}
}
END_TEST

START_TEST(structs_have_the_size_of_their_last_version)
{
	for (size_t i = 0; i < COUNT(sizes); i++) {
		bool last = i + 1 == COUNT(sizes) ||
		            strcmp(sizes[i].type, sizes[i + 1].type) != 0;

		ck_assert_msg(last ? sizes[i].bytes == sizes[i].bytes_here
		                   : sizes[i].bytes < sizes[i + 1].bytes,
		              "%s (%s): %zu bytes, were %zu", sizes[i].type,
		              sizes[i].since, sizes[i].bytes_here,
		              sizes[i].bytes);
	}
}
END_TEST

START_TEST(numbers_are_what_they_were)
{
	for (size_t i = 0; i < COUNT(numbers); i++)
		ck_assert_msg(numbers[i].number == numbers[i].here,
		              "%s (%s): %lld, was %lld", numbers[i].name,
		              numbers[i].since, numbers[i].here,
		              numbers[i].number);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		fields_are_where_they_were,
		structs_have_no_padding_and_no_field_that_is_not_written_down,
		structs_have_the_size_of_their_last_version,
		numbers_are_what_they_were,
	};

	return RUN_TESTS("abi", tests);
}
