/* SPDX-License-Identifier: BSD-3-Clause */
/* What only MPI has: communicators of the program, and its own traffic. */
#include <stdlib.h>
#include <string.h>

#include "baton_mpi.h"
#include "harness.h"

extern const struct conform_case conform_mpi[];

/* A ring of one number over a communicator of any group. */
static void
ring(struct conform *c, struct baton_comm *comm, int rank, int size)
{
	int in = -1, out = 1000 + rank;
	baton_request requests[2] = { 0 };

	CHECK_EQ(c, baton_comm_rank(comm), rank);
	CHECK_EQ(c, baton_comm_size(comm), size);
	CHECK_OK(c, baton_send(&out, 1, BATON_INT32, (rank + 1) % size, 9, comm,
	                       c->stream, &conform_detached, &requests[0]));
	CHECK_OK(c, baton_recv(&in, 1, BATON_INT32, (rank + size - 1) % size, 9,
	                       comm, c->stream, &conform_detached,
	                       &requests[1]));
	FINISH_ALL(c, requests, 2);
	CHECK_EQ(c, in, 1000 + (rank + size - 1) % size);
}

static void
a_communicator_has_the_ranks_of_its_parent(struct conform *c)
{
	struct baton_comm *comm = NULL;
	int color = c->rank % 2, rank, size;
	MPI_Comm part;

	/* Even and odd ranks, each backwards; gone before the first use. */
	MPI_Comm_split(MPI_COMM_WORLD, color, -c->rank, &part);
	MPI_Comm_rank(part, &rank);
	MPI_Comm_size(part, &size);
	CHECK_OK(c, baton_comm_create_mpi(part, NULL, &comm));
	MPI_Comm_free(&part);
	ring(c, comm, rank, size);
	CHECK_OK(c, baton_comm_destroy(comm));
}

static void
a_duplicate_may_be_freed_at_once(struct conform *c)
{
	struct baton_comm *comm = NULL;
	MPI_Comm twin;

	MPI_Comm_dup(MPI_COMM_WORLD, &twin);
	CHECK_OK(c, baton_comm_create_mpi(twin, NULL, &comm));
	MPI_Comm_free(&twin);
	ring(c, comm, c->rank, c->size);
	CHECK_OK(c, baton_comm_destroy(comm));
}

/* By default near does where ranks are of one host (CONFORM_FAR: processes.c). */
static void
the_query_tells_what_carries_messages(struct conform *c)
{
	struct baton_comm_info info = { .size = sizeof(info) };
	const char *path = getenv("BATON_MESSAGE_PATH");
	unsigned paths = path && strcmp(path, "mpi") == 0
	                         ? BATON_MESSAGE_PATH_TRANSPORT
	                         : BATON_MESSAGE_PATH_NEAR;

	if (getenv("CONFORM_FAR") && paths == BATON_MESSAGE_PATH_NEAR)
		paths |= BATON_MESSAGE_PATH_TRANSPORT;
	CHECK_OK(c, baton_comm_query(c->comm, &info));
	CHECK_EQ(c, info.message_paths, paths);
	CHECK_EQ(c, info.why_not_near[0] == '\0',
	         paths == BATON_MESSAGE_PATH_NEAR);
}

static void
a_communicator_of_self_has_one_rank(struct conform *c)
{
	struct baton_comm *comm = NULL;

	CHECK_OK(c, baton_comm_create_mpi(MPI_COMM_SELF, NULL, &comm));
	ring(c, comm, 0, 1);
	CHECK_OK(c, baton_comm_destroy(comm));
}

static void
a_part_of_the_ranks_may_make_one(struct conform *c)
{
	struct baton_comm *comm = NULL;
	MPI_Comm part;

	MPI_Comm_split(MPI_COMM_WORLD, c->rank < 2 ? 0 : MPI_UNDEFINED, 0,
	               &part);
	if (c->rank < 2) {
		CHECK_OK(c, baton_comm_create_mpi(part, NULL, &comm));
		ring(c, comm, c->rank, 2);
		CHECK_OK(c, baton_comm_destroy(comm));
		MPI_Comm_free(&part);
	} else {
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_comm_create_mpi(part, NULL, &comm),
		              "MPI_COMM_NULL");
	}
}

static void
an_intercommunicator_is_refused(struct conform *c)
{
	struct baton_comm *comm = NULL;
	int color = c->rank % 2;
	MPI_Comm part, inter;

	MPI_Comm_split(MPI_COMM_WORLD, color, 0, &part);
	MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, 1 - color, 5, &inter);
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_mpi(inter, NULL, &comm), "inter");
	CHECK(c, comm == NULL);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&part);
}

static void
the_whole_job_is_the_mpi_world(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm_info info = { .size = sizeof(info) };
	struct baton_comm *comm = NULL;
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	CHECK_OK(c, baton_comm_create(NULL, &comm));
	ring(c, comm, c->rank, c->size);
	CHECK_OK(c, baton_comm_query(comm, &info));
	CHECK_EQ(c, info.transport, BATON_TRANSPORT_MPI);
	CHECK(c, strcmp(info.transport_name, "mpi") == 0);
	CHECK(c, strstr(info.library, "MPI_THREAD_MULTIPLE") != NULL);
	MPI_Get_library_version(version, &length);
	CHECK(c, strncmp(version, info.library, 4) == 0);
	CHECK_OK(c, baton_comm_destroy(comm));
	options.transport = BATON_TRANSPORT_MPI;
	CHECK_OK(c, baton_comm_create(&options, &comm));
	CHECK_OK(c, baton_comm_destroy(comm));
}

static void
a_refusal_on_one_rank_is_told_to_all(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	options.progress = (enum baton_progress)(c->rank == 0 ? 8 : 0);
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm));
	CHECK(c, comm == NULL);
	conform_sound(c);
}

/* The program's messages have the tags, ranks and wildcards of ours. */
static void
the_programs_messages_do_not_mix_with_ours(struct conform *c)
{
	enum { N = 50 };
	baton_request requests[2 * N];
	int to = conform_next(c);
	int from = conform_previous(c);
	size_t bytes = 10000;
	unsigned char *in = conform_alloc(c, N * bytes);
	unsigned char *out = conform_filled(c, N * bytes, 1);

	for (int i = 0; i < N; i++) {
		int got = -1, sent = 5000 + c->rank * N + i;
		size_t length = i & 1 ? bytes : 100;
		MPI_Status status;

		requests[2 * i] = RECV(c, in + (size_t)i * bytes, length, from,
		                       i, c->stream, &conform_detached);
		MPI_Sendrecv(&sent, 1, MPI_INT, to, i, &got, 1, MPI_INT,
		             MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
		             &status);
		CHECK_EQ(c, got, 5000 + from * N + i);
		CHECK_EQ(c, status.MPI_SOURCE, from);
		requests[2 * i + 1] = SEND(c, out + (size_t)i * bytes, length,
		                           to, i, c->stream, &conform_detached);
	}
	FINISH_ALL(c, requests, 2 * N);
	for (int i = 0; i < N; i++)
		CHECK(c, memcmp(in + (size_t)i * bytes, out + (size_t)i * bytes,
		                i & 1 ? bytes : 100) == 0);
}

struct traffic {
	struct conform *c;
	MPI_Comm comm;
	_Atomic bool stop;
	int rounds, wrong;
};

/* All ranks' threads together, until all are told to stop. */
static void *
reduce_main(void *arg)
{
	struct traffic *traffic = arg;
	int all = 0;

	while (!all) {
		int mine = atomic_load(&traffic->stop), one = 1, sum = 0;

		MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, traffic->comm);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, traffic->comm);
		traffic->wrong += sum != traffic->c->size;
		traffic->rounds++;
	}
	return NULL;
}

static void
the_program_may_use_mpi_at_the_same_time(struct conform *c)
{
	struct traffic traffic = { .c = c };
	const size_t bytes = 300000;
	unsigned char *in = conform_alloc(c, bytes);
	unsigned char *out = conform_filled(c, bytes, (unsigned)c->rank);
	int to = conform_next(c);
	int from = conform_previous(c);
	pthread_t thread;

	MPI_Comm_dup(MPI_COMM_WORLD, &traffic.comm);
	if (CHECK_EQ(c, pthread_create(&thread, NULL, reduce_main, &traffic),
	             0)) {
		for (int i = 0; i < 40; i++) {
			size_t length = i & 1 ? bytes : 1000;
			baton_request requests[2];

			memset(in, 0, length);
			requests[0] = SEND(c, out, length, to, 0, c->stream,
			                   &conform_detached);
			requests[1] = RECV(c, in, length, from, 0, c->stream,
			                   NULL);
			FINISH_ALL(c, requests, 2);
			CHECK_FILLED(c, in, length, (unsigned)from);
		}
		atomic_store(&traffic.stop, true);
		pthread_join(thread, NULL);
		CHECK_EQ(c, traffic.wrong, 0);
		CHECK(c, traffic.rounds > 0);
	}
	MPI_Comm_free(&traffic.comm);
}

/* Baton keeps its hands off the program's error handler. */
static void
the_programs_error_handler_stays(struct conform *c)
{
	MPI_Errhandler before, after;
	unsigned char data[100] = { 0 };
	baton_request request = 0;

	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
	if (c->rank == 0)
		request = SEND(c, data, 100, 1, 0, c->stream, NULL);
	else if (c->rank == 1)
		request = RECV(c, data, 10, 0, 0, c->stream, NULL);
	FINISH(c, c->rank == 1 ? BATON_ERR_TRUNCATED : BATON_OK, &request);
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
	CHECK(c, before == after);
	MPI_Errhandler_free(&before);
	MPI_Errhandler_free(&after);
}

/* Messages and signals to the next rank, which receives none; short enough for any MPI
 * to take them. */
static void
send_in_vain(struct conform *c, struct baton_comm *comm)
{
	static unsigned char out[900];
	const size_t lengths[] = { 0, 8, 61, 900 };
	int to = conform_next(c);

	for (int i = 0; i < 100; i++) {
		CHECK_OK(c, baton_send(out, lengths[i % 4], BATON_UINT8, to,
		                       i % 5, comm, c->stream, &conform_detached,
		                       NULL));
		CHECK_OK(c, baton_signal(to, 0, 0, 0, comm, c->stream,
		                         &conform_detached, NULL));
	}
}

static void
what_was_not_received_is_not_in_the_next_communicator(struct conform *c)
{
	struct baton_comm *comm = NULL;
	baton_request requests[5];
	unsigned char in[900];
	uint64_t count = 1;
	int from = conform_previous(c);

	CHECK_OK(c, baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm));
	send_in_vain(c, comm);
	CHECK_OK(c, baton_comm_destroy(comm));
	CHECK_OK(c, baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm));
	for (int i = 0; i < 5; i++)
		CHECK_OK(c, baton_recv(in, sizeof(in), BATON_UINT8, from, i,
		                       comm, c->stream, &conform_detached,
		                       &requests[i]));
	ring(c, comm, c->rank, c->size);
	CHECK_OK(c, baton_signal_count(comm, from, 0, 0, &count));
	CHECK_EQ(c, count, 0);
	for (int i = 0; i < 5; i++) {
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[i], NULL));
		CHECK_OK(c, baton_cancel(requests[i]));
		FINISH(c, BATON_ERR_CANCELED, &requests[i]);
	}
	CHECK_OK(c, baton_comm_destroy(comm));
}

const struct conform_case conform_mpi[] = {
	{ CASE(a_communicator_has_the_ranks_of_its_parent) },
	{ CASE(a_duplicate_may_be_freed_at_once) },
	{ CASE(the_query_tells_what_carries_messages) },
	{ CASE(a_communicator_of_self_has_one_rank) },
	{ CASE(a_part_of_the_ranks_may_make_one), .ranks_min = 2 },
	{ CASE(an_intercommunicator_is_refused), .ranks_min = 2 },
	{ CASE(the_whole_job_is_the_mpi_world) },
	{ CASE(a_refusal_on_one_rank_is_told_to_all), .ranks_min = 2 },
	{ CASE(the_programs_messages_do_not_mix_with_ours) },
	{ CASE(the_program_may_use_mpi_at_the_same_time) },
	{ CASE(the_programs_error_handler_stays), .ranks_min = 2 },
	/* With one rank, MPICH ends a send when it is received. */
	{ CASE(what_was_not_received_is_not_in_the_next_communicator),
	  .ranks_min = 2 },
	CASES_END,
};
