/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors (transport/mpi/lists.c). */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mpi_world.h"
#include "tensors.h"

/* A list of n tensors of so many bytes each, with the memory for them; as a receive it declares
 * other bytes if it is to differ. */
struct made {
	struct batoni_tensor_list list;
	struct baton_tensor *tensors;
	unsigned char *data;
};

static struct made
make_list(size_t n, size_t bytes, int seed, bool differs)
{
	struct made made = {.tensors = zeroed(n, sizeof(*made.tensors)),
	                    .data = message(n * bytes + 1, seed)};
	size_t header;

	made.list.segments = zeroed(n, sizeof(struct batoni_segment));
	for (size_t i = 0; i < n; i++) {
		made.tensors[i] = (struct baton_tensor){
			.data = made.data + i * bytes,
			.type = BATON_UINT8,
			.rank = 1,
			.shape = {(int64_t)bytes + differs}};
		made.list.segments[i] = (struct batoni_segment){
			(char *)made.data + i * bytes, bytes};
	}
	header = batoni_tensors_header_bytes(made.tensors, n);
	made.list.count = made.list.declared_n = n;
	made.list.payload_bytes = n * bytes;
	made.list.header = zeroed(header + 8, 1);
	made.list.header_bytes = made.list.header_max = header;
	made.list.declared = made.tensors;
	batoni_tensors_encode(made.tensors, n, n * (bytes + differs),
	                      made.list.header);
	return made;
}

static void
free_list(struct made *made)
{
	free(made->tensors);
	free(made->data);
	free(made->list.segments);
	free(made->list.header);
}

static struct op *
issue_list(enum batoni_direction direction, struct batoni_tensor_list *list,
           int tag)
{
	struct op *op = &world.ops[world.used];

	memset(op, 0, sizeof(*op));
	op->transfer.buffer = list;
	op->transfer.bytes = list->payload_bytes;
	op->transfer.peer = world.peer;
	op->transfer.tag = tag;
	op->transfer.slot = world.used++ & 0xffffffu;
	op->transfer.direction = (unsigned)direction & 3u;
	op->transfer.location = BATONI_LOCATION_LIST;
	op->status = batoni_path_issue(&world.transport->messages, &op->transfer);
	op->ends = op->status != BATON_PENDING;
	return op;
}

/* How many tensors of how many bytes: inside the first part, with a body of each kind, with a
 * header that is too long for the first part, empty. */
static const struct {
	size_t n, bytes;
} shapes[] = {{8, 50},    {8, 5000},   {2, 200000}, {300, 7},
              {300, 700}, {300, 0},    {0, 0},      {1, (size_t)17 << 20}};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Every third receive differs.  All first parts are there before the last is received. */
static void
pass_lists(int n)
{
	struct made *outs = zeroed((size_t)n, sizeof(*outs));
	struct op **sends = zeroed((size_t)n, sizeof(struct op *));

	world.used = 0;
	for (int i = 0; i < n; i++) {
		size_t shape = (size_t)i % (SHAPES - (i >= (int)SHAPES));

		outs[i] = make_list(shapes[shape].n, shapes[shape].bytes,
		                    i + world.rank, false);
		sends[i] = issue_list(BATONI_SEND, &outs[i].list, i);
	}
	await_arrival(n - 1);
	for (int i = n; i-- > 0;) {
		size_t shape = (size_t)i % (SHAPES - (i >= (int)SHAPES));
		size_t tensors = shapes[shape].n, bytes = shapes[shape].bytes;
		bool differs = i % 3 == 1 && tensors > 0;
		struct made in = make_list(tensors, bytes, 77, differs);
		struct op *recv = issue_list(BATONI_RECV, &in.list, i);

		finish(recv, differs ? BATON_ERR_MISMATCH : BATON_OK,
		       tensors * bytes);
		check_message(in.data, tensors * bytes,
		              differs ? 77 : i + world.peer);
		free_list(&in);
	}
	for (int i = 0; i < n; i++) {
		finish(sends[i], BATON_OK, outs[i].list.payload_bytes);
		free_list(&outs[i]);
	}
	free(sends);
	free(outs);
	barrier();
}

START_TEST(lists_of_every_form_arrive_or_are_drained)
{
	pass_lists(16);
	close_world();
}
END_TEST

START_TEST(lists_wait_for_grants_where_tags_are_few)
{
	have_few_tags(1);
	pass_lists(16);
	ck_assert_uint_eq(world.mpi->waiting, 0);
	pass_lists(16);
	close_world();
}
END_TEST

/* Whatever is complete at once, the rest of a body is posted. */
START_TEST(a_list_in_many_pieces_to_oneself_arrives)
{
	int peer = world.peer;

	world.peer = world.rank;
	for (int differs = 0; differs < 2; differs++) {
		struct made out = make_list(700, 3, 5, false);
		struct made in = make_list(700, 3, 6, differs);
		struct op *send = issue_list(BATONI_SEND, &out.list, 1);

		finish(issue_list(BATONI_RECV, &in.list, 1),
		       differs ? BATON_ERR_MISMATCH : BATON_OK, 2100);
		finish(send, BATON_OK, 2100);
		check_message(in.data, 2100, differs ? 6 : 5);
		free_list(&in);
		free_list(&out);
	}
	world.peer = peer;
	close_world();
}
END_TEST

/* Pass a list both ways, then one that the receive refuses. */
static void
exchange_list(size_t n, size_t bytes)
{
	for (int differs = 0; differs < 2; differs++) {
		struct made out = make_list(n, bytes, world.rank, false);
		struct made in = make_list(n, bytes, 77, differs);
		struct op *recv, *send;

		world.used = 0;
		recv = issue_list(BATONI_RECV, &in.list, 3);
		send = issue_list(BATONI_SEND, &out.list, 3);
		finish(recv, differs ? BATON_ERR_MISMATCH : BATON_OK, n * bytes);
		finish(send, BATON_OK, n * bytes);
		check_message(in.data, n * bytes, differs ? 77 : world.peer);
		free_list(&in);
		free_list(&out);
		barrier();
	}
}

/* Cut by tensors, and by bytes; the longest that is short; more tensors than a derived type of a
 * longer list has parts, with a list's header in two messages. */
static const struct {
	size_t n, bytes;
} short_lists[] = {{8, 512}, {7, 1001}, {8, 1792}, {2, 7168}, {700, 3}};
#define SHORT_LISTS (sizeof(short_lists) / sizeof(short_lists[0]))

START_TEST(a_short_list_makes_no_derived_type)
{
	const unsigned before = types_made;

	for (size_t i = 0; i < SHORT_LISTS; i++)
		exchange_list(short_lists[i].n, short_lists[i].bytes);
	exchange_list(1, 14336);
	ck_assert_uint_eq(types_made, before);
	ck_assert_uint_eq(world.mpi->free_buffers, UINT64_MAX);
	/* It is counted. */
	exchange_list(8, 1793);
	ck_assert_uint_gt(types_made, before);
	close_world();
}
END_TEST

/* Neither rank has a free buffer, or only one. */
START_TEST(a_short_list_arrives_where_no_buffer_is_free)
{
	for (int without = 1; without < 4; without++) {
		bool none = without >> world.rank & 1;
		const unsigned before = types_made;

		world.mpi->free_buffers = none ? 0 : UINT64_MAX;
		for (size_t i = 0; i < SHORT_LISTS; i++)
			exchange_list(short_lists[i].n, short_lists[i].bytes);
		ck_assert_uint_eq(world.mpi->free_buffers,
		                  none ? 0 : UINT64_MAX);
		ck_assert((types_made > before) == none);
	}
	close_world();
}
END_TEST

/* More of them than there are buffers, and every one that waits for a grant has none. */
START_TEST(short_lists_that_wait_have_no_buffer)
{
	enum { N = 80 };
	struct made *outs = zeroed(N, sizeof(*outs));
	struct op *sends[N];

	have_few_tags(1);
	world.used = 0;
	for (int i = 0; i < N; i++) {
		outs[i] = make_list(6, 700, i + world.rank, false);
		sends[i] = issue_list(BATONI_SEND, &outs[i].list, i);
	}
	ck_assert_uint_gt(world.mpi->waiting, 64);
	for (int i = 0; i < N; i++) {
		const struct batoni_mpi_body *body = &world.mpi->bodies[i];

		ck_assert(!body->waiting || !body->buffer);
	}
	await_arrival(N - 1);
	for (int i = N; i-- > 0;) {
		struct made in = make_list(6, 700, 77, false);

		finish(issue_list(BATONI_RECV, &in.list, i), BATON_OK, 4200);
		check_message(in.data, 4200, i + world.peer);
		free_list(&in);
	}
	for (int i = 0; i < N; i++) {
		finish(sends[i], BATON_OK, 4200);
		free_list(&outs[i]);
	}
	ck_assert_uint_eq(world.mpi->free_buffers, UINT64_MAX);
	free(outs);
	barrier();
	close_world();
}
END_TEST

/* Receive the messages to oneself that nobody receives, until this send has ended. */
static void
receive_until_sent(struct op *send)
{
	static unsigned char bytes[BATONI_MPI_EAGER_BYTES];
	MPI_Status status;
	int here;

	while (!send->ends) {
		PMPI_Iprobe(world.rank, MPI_ANY_TAG, world.mpi->comm, &here,
		            &status);
		if (here)
			PMPI_Recv(bytes, sizeof(bytes), MPI_BYTE, world.rank,
			          status.MPI_TAG, world.mpi->comm, &status);
		world.transport->messages.ops->test(&world.transport->messages);
	}
}

START_TEST(the_buffer_of_a_list_that_failed_is_left_to_mpi)
{
	struct made out = make_list(3, 3000, 5, false);
	struct made in = make_list(3, 3000, 6, false);
	void *buffers = world.mpi->buffers;
	struct op *recv, *send;

	world.peer = world.rank;
	recv = issue_list(BATONI_RECV, &in.list, 1);
	send = issue_list(BATONI_SEND, &out.list, 1);
	failing = "MPI_Irecv";
	finish(recv, BATON_ERR_MPI, 0);
	failing = NULL;
	receive_until_sent(send);
	check_message(in.data, 9000, 6);
	ck_assert_uint_eq(world.mpi->count, 0);
	ck_assert_uint_ne(world.mpi->free_buffers, UINT64_MAX);
	world.transport->ops->close(world.transport, true);
	ck_assert_int_eq(msync(buffers, 4096, MS_ASYNC), 0);
	free_list(&in);
	free_list(&out);
	MPI_Comm_free(&world.side);
}
END_TEST

void
test_mpi_lists(void)
{
	const TTest *const tests[] = {
		lists_of_every_form_arrive_or_are_drained,
		lists_wait_for_grants_where_tags_are_few,
		a_list_in_many_pieces_to_oneself_arrives,
		a_short_list_makes_no_derived_type,
		a_short_list_arrives_where_no_buffer_is_free,
		short_lists_that_wait_have_no_buffer,
		the_buffer_of_a_list_that_failed_is_left_to_mpi,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
