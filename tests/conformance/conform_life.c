/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators come and go: guarantee 11. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "mem.h"

/* Fewer where each takes long: on a loaded machine, MPI needs a second for one, since all
 * ranks wait for each other several times. */
static void
a_thousand_communicators_come_and_go(struct conform *c)
{
	/* The thread sanitizer's calloc writes all that it gives. */
	const int many = conform_turns(CONFORM_SANITIZED ? 200 : 1000);
	const time_t enough = time(NULL) + 20;

	for (int i = 0; i < many; i++) {
		if (i % 50 == 0) {
			conform_alive();
			if (c->backend->agree(c, i > 0 && time(NULL) > enough))
				break;
		}
		c->comm = conform_comm(c, NULL);
		if (i % 100 == 0) {
			c->stream = NULL;
			CHECK_OK(c, baton_stream_create(c->comm, &c->stream));
			conform_sound(c);
			CHECK_OK(c, baton_stream_synchronize(c->comm,
			                                     c->stream));
			CHECK_OK(c, baton_stream_destroy(c->comm, c->stream));
		}
		CHECK_OK(c, baton_comm_destroy(c->comm));
		c->comm = NULL;
	}
}

static void
options_are_what_was_asked_for(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm_info info = { .size = sizeof(info) };
	struct baton_comm *comm;

	options.requests_max = 33;
	options.progress = BATON_PROGRESS_CALLS;
	comm = conform_comm(c, &options);
	CHECK_OK(c, baton_comm_query(comm, &info));
	CHECK_EQ(c, info.requests_max, 33);
	CHECK_EQ(c, info.engine_thread, false);
	CHECK_EQ(c, info.rank, c->rank);
	CHECK_EQ(c, info.ranks, c->size);
	CHECK_OK(c, baton_comm_destroy(comm));
}

static void
many_communicators_live_at_once(struct conform *c)
{
	enum { N = 50 };
	struct baton_comm *comms[N];
	baton_stream stream = NULL;

	for (int i = 0; i < N; i++)
		comms[i] = conform_comm(c, NULL);
	CHECK_OK(c, baton_stream_create(comms[0], &stream));
	c->stream = stream;
	for (int i = 0; i < N; i++) {
		c->comm = comms[(i * 7) % N];
		conform_sound(c);
	}
	c->comm = NULL;
	CHECK_OK(c, baton_stream_synchronize(comms[0], stream));
	CHECK_OK(c, baton_stream_destroy(comms[0], stream));
	for (int i = 0; i < N; i++)
		CHECK_OK(c, baton_comm_destroy(comms[i]));
}

/* ---- destroy ------------------------------------------------------------ */

static void
destroy_drains_what_is_pending(struct conform *c)
{
	static const size_t sizes[] = { 8, 5000, MIB };

	for (unsigned i = 0; i < 3; i++) {
		struct baton_comm *mine = conform_comm(c, NULL);
		unsigned char *data = conform_alloc(c, sizes[i]);
		baton_request request = 0;

		if (c->rank == 1)
			CHECK_OK(c, baton_recv(data, sizes[i], BATON_UINT8, 0, 0,
			                       mine, NULL, &conform_detached,
			                       &request));
		conform_sync(c);
		if (c->rank == 0) {
			conform_fill(data, sizes[i], i);
			CHECK_OK(c, baton_send(data, sizes[i], BATON_UINT8, 1, 0,
			                       mine, NULL, &conform_detached,
			                       NULL));
		}
		CHECK_OK(c, baton_comm_destroy(mine));
		CHECK_FILLED(c, data, c->rank < 2 ? sizes[i] : 0, i);
		if (c->rank == 1)
			CHECK_STATUS(c, BATON_ERR_STALE,
			             baton_test(request, NULL));
	}
}

/* Again until all have come. */
static void
destroy_until_ok(struct conform *c, struct baton_comm *comm)
{
	int64_t begin = conform_begin();
	enum baton_status status;

	do
		status = baton_comm_destroy(comm);
	while (status == BATON_ERR_TIMEOUT && STILL(c, begin));
	CHECK_STATUS(c, BATON_OK, status);
}

static void
destroy_times_out_when_a_rank_does_not_come(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *mine;

	options.timeout_ns = 5 * MS;
	mine = conform_comm(c, &options);
	if (c->rank == 0) {
		if (!CHECK_STATUS(c, BATON_ERR_TIMEOUT,
		                  baton_comm_destroy(mine)))
			mine = NULL; /* gone */
		CHECK_EQ(c, baton_comm_size(mine), c->size);
	}
	conform_sync(c);
	destroy_until_ok(c, mine);
}

/* Nobody else has called, and the others carry on. */
static void
a_local_rank_is_destroyed_on_its_own(struct conform *c)
{
	struct baton_comm *mine = conform_comm(c, NULL);
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	unsigned char data[8];
	baton_request request = 0;

	soon.timeout_ns = 2 * MS;
	soon.flags = BATON_OP_DETACHED;
	if (c->rank == 0)
		CHECK_OK(c, baton_comm_destroy(mine));
	conform_sync(c);
	if (c->rank != 0) {
		CHECK_OK(c, baton_recv(data, 8, BATON_UINT8, 0, 0, mine, NULL,
		                       &soon, &request));
		FINISH(c, BATON_ERR_TIMEOUT, &request);
		CHECK_OK(c, baton_comm_destroy(mine));
	}
}

/* A destroy that waits for a receive until its deadline.  False: it ended otherwise. */
static bool
destroy_times_out(struct conform *c, struct baton_comm **mine_p,
                  baton_request *request_p)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_op_options never = BATON_OP_OPTIONS_INIT;
	unsigned char *data = conform_alloc(c, 8);

	options.timeout_ns = 5 * MS;
	never.timeout_ns = -1;
	never.flags = BATON_OP_DETACHED;
	*mine_p = conform_comm(c, &options);
	CHECK_OK(c, baton_recv(data, 8, BATON_UINT8, c->rank, 0, *mine_p, NULL,
	                       &never, request_p));
	return CHECK_STATUS(c, BATON_ERR_TIMEOUT, baton_comm_destroy(*mine_p));
}

static void
destroy_times_out_over_a_pending_operation(struct conform *c)
{
	struct baton_comm *mine;
	baton_request request = 0;

	if (!destroy_times_out(c, &mine, &request))
		return;
	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	CHECK_OK(c, baton_cancel(request));
	FINISH(c, BATON_ERR_CANCELED, &request);
	destroy_until_ok(c, mine);
}

static void
abort_and_destroy_end_a_destroy_that_timed_out(struct conform *c)
{
	struct baton_comm *mine;
	baton_request request = 0;

	if (!destroy_times_out(c, &mine, &request))
		return;
	CHECK_OK(c, baton_comm_abort(mine));
	CHECK_STATUS(c, BATON_ERR_ABORTED, baton_test(request, NULL));
	/* The device still has to let go of the stream, in its own time. */
	destroy_until_ok(c, mine);
	CHECK_STATUS(c, BATON_ERR_STALE, baton_test(request, NULL));
}

static void
handles_of_a_destroyed_communicator_are_stale(struct conform *c)
{
	struct baton_comm *mine = conform_comm(c, NULL);
	baton_request requests[3] = { 0 };
	size_t index = 9;

	for (int i = 0; i < 3; i++) {
		CHECK_OK(c, baton_record(mine, NULL, NULL, &requests[i]));
		CHECK_OK(c, baton_wait(requests[i], conform_patience(c), NULL));
	}
	CHECK_OK(c, baton_comm_destroy(mine));
	for (int i = 0; i < 3; i++) {
		baton_request copy = requests[i];

		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(copy, NULL));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_wait(copy, -1, NULL));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_cancel(copy));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_release(&copy));
	}
	CHECK_STATUS(c, BATON_ERR_STALE,
	             baton_wait_any(requests, 3, -1, &index, NULL));
	/* Also when another communicator has taken its place. */
	conform_sync(c);
	mine = conform_comm(c, NULL);
	CHECK_STATUS(c, BATON_ERR_STALE, baton_test(requests[0], NULL));
	CHECK_OK(c, baton_comm_destroy(mine));
}

/* ---- local communicators ------------------------------------------------ */

/* One thread plays all of 64 ranks. */
static void
one_thread_may_use_all_ranks(struct conform *c)
{
	enum { N = 64 };
	struct baton_comm *comms[N] = { NULL };
	baton_request requests[2 * N] = { 0 };
	int values[2 * N];

	if (!CHECK_OK(c, baton_comm_create_local(N, NULL, comms)))
		return;
	for (int i = 0; i < N; i++) {
		CHECK_EQ(c, baton_comm_rank(comms[i]), i);
		CHECK_EQ(c, baton_comm_size(comms[i]), N);
		values[i] = i;
		CHECK_OK(c, baton_recv(&values[N + i], 1, BATON_INT32,
		                       (i + N - 1) % N, 0, comms[i], c->stream,
		                       &conform_detached, &requests[i]));
		CHECK_OK(c, baton_send(&values[i], 1, BATON_INT32, (i + 1) % N,
		                       0, comms[i], c->stream, &conform_detached,
		                       &requests[N + i]));
	}
	FINISH_ALL(c, requests, 2 * N);
	for (int i = 0; i < N; i++)
		CHECK_EQ(c, values[N + i], (i + N - 1) % N);
	for (int i = 0; i < N; i++)
		CHECK_OK(c, baton_comm_destroy(comms[i]));
}

static void
communicators_are_bounded(struct conform *c)
{
	enum { MOST = 4095 };
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm **comms = conform_alloc(
		c, (MOST + 1) * sizeof(struct baton_comm *));
	enum baton_status status = BATON_OK;
	int n = 0;

	options.requests_max = 1;
	while (c->rank == 0 && n <= MOST) {
		status = baton_comm_create_local(1, &options, &comms[n]);
		if (status != BATON_OK)
			break;
		n++;
	}
	if (c->rank == 0) {
		CHECK_STATUS(c, BATON_ERR_AGAIN, status);
		CHECK_EQ(c, n, MOST);
	}
	for (int i = 0; i < n; i++)
		CHECK_OK(c, baton_comm_destroy(comms[i]));
	conform_sync(c);
}

/* ---- communicators by id ------------------------------------------------ */

/* Of all ranks: written by rank 0 before a sync. */
static struct baton_unique_id shared_id;

static void
new_id(struct conform *c)
{
	conform_sync(c);
	if (c->rank == 0)
		CHECK_OK(c, baton_unique_id_create(&shared_id));
	conform_sync(c);
}

static void
ranks_meet_by_an_id(struct conform *c)
{
	for (int i = 0; i < 20; i++) {
		struct baton_comm *comm = NULL;

		new_id(c);
		if (!CHECK_OK(c, baton_comm_create_id(c->size, c->rank,
		                                      &shared_id, NULL, &comm)))
			continue;
		CHECK_EQ(c, baton_comm_rank(comm), c->rank);
		CHECK_EQ(c, baton_comm_size(comm), c->size);
		c->comm = comm;
		CHECK_OK(c, baton_stream_create(comm, &c->stream));
		conform_sound(c);
		CHECK_OK(c, baton_stream_synchronize(comm, c->stream));
		CHECK_OK(c, baton_stream_destroy(comm, c->stream));
		CHECK_OK(c, baton_comm_destroy(comm));
		c->comm = NULL;
	}
}

static void
ids_differ(struct conform *c)
{
	struct baton_unique_id one, two;

	CHECK_OK(c, baton_unique_id_create(&one));
	CHECK_OK(c, baton_unique_id_create(&two));
	CHECK(c, memcmp(&one, &two, sizeof(one)) != 0);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_unique_id_create(NULL));
}

static void
bad_arguments_of_an_id_are_refused(struct conform *c)
{
	struct baton_comm_options mpi = BATON_COMM_OPTIONS_INIT;
	struct baton_unique_id id, foreign;
	struct baton_comm *comm = NULL;

	CHECK_OK(c, baton_unique_id_create(&id));
	memset(&foreign, 0x5c, sizeof(foreign));
	mpi.transport = BATON_TRANSPORT_MPI;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_id(0, 0, &id, NULL, &comm), "size 0");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_id(2, 2, &id, NULL, &comm), "rank 2");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_comm_create_id(2, -1, &id, NULL, &comm), "rank -1");
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_comm_create_id(2, 0, NULL, NULL, &comm));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_comm_create_id(2, 0, &id, NULL, NULL));
	CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
	              baton_comm_create_id(1, 0, &id, &mpi, &comm), "LOCAL");
	CHECK(c, baton_comm_create_id(1, 0, &foreign, NULL, &comm) < 0);
	CHECK(c, comm == NULL);
}

/* Everybody comes as rank 0; or with its own idea of the size. */
static void
ranks_that_disagree_are_told(struct conform *c)
{
	struct baton_comm_options soon = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;
	enum baton_status status;

	soon.timeout_ns = 100 * MS;
	new_id(c);
	status = baton_comm_create_id(c->size, 0, &shared_id, &soon, &comm);
	CHECK(c, status == BATON_ERR_INVALID || status == BATON_ERR_TIMEOUT);
	CHECK_EQ(c, c->backend->agree(c, status == BATON_ERR_INVALID), 1);

	new_id(c);
	status = baton_comm_create_id(c->size + (c->rank == 1), c->rank,
	                              &shared_id, &soon, &comm);
	CHECK(c, status == BATON_ERR_INVALID || status == BATON_ERR_TIMEOUT);
	CHECK_EQ(c, c->backend->agree(c, status == BATON_ERR_INVALID), 1);

	new_id(c);
	soon.requests_max = c->rank == 1 ? 17 : 16;
	status = baton_comm_create_id(c->size, c->rank, &shared_id, &soon,
	                              &comm);
	CHECK(c, status == BATON_ERR_INVALID || status == BATON_ERR_TIMEOUT);
	CHECK_EQ(c, c->backend->agree(c, status == BATON_ERR_INVALID), 1);
	CHECK(c, comm == NULL);
}

static void
a_rank_that_does_not_come_is_a_timeout(struct conform *c)
{
	struct baton_comm_options soon = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;
	enum baton_status status = BATON_ERR_INVALID;

	soon.timeout_ns = 20 * MS;
	new_id(c);
	if (c->rank != c->size - 1)
		status = baton_comm_create_id(c->size, c->rank, &shared_id, &soon,
		                              &comm);
	/* One that comes when the others have given up finds the id spent. */
	CHECK(c, status == BATON_ERR_TIMEOUT || status == BATON_ERR_INVALID);
	CHECK(c, status != BATON_ERR_TIMEOUT || strstr(baton_last_error(), "rank"));
	CHECK_EQ(c, c->backend->agree(c, status == BATON_ERR_TIMEOUT), 1);
	/* The id is spent. */
	CHECK(c, baton_comm_create_id(c->size, c->rank, &shared_id, &soon,
	                              &comm) < 0);
	CHECK(c, comm == NULL);
}

/* ---- fork --------------------------------------------------------------- */

/* In the child: returns the number of the first call that is not refused. */
static int
call_in_child(struct conform *c, baton_request ended)
{
	struct baton_comm *comm = NULL;
	baton_request request = ended;
	baton_stream stream = NULL;
	int value = 0, call = 1;

#define REFUSED(status)                                                       \
	do {                                                                  \
		if ((status) != BATON_ERR_INVALID)                            \
			return call;                                          \
		call++;                                                       \
	} while (0)
	REFUSED(baton_send(&value, 1, BATON_INT32, 0, 0, c->comm, c->stream,
	                   NULL, NULL));
	REFUSED(baton_recv(&value, 1, BATON_INT32, 0, 0, c->comm, c->stream,
	                   NULL, NULL));
	REFUSED(baton_record(c->comm, c->stream, NULL, NULL));
	REFUSED(baton_test(ended, NULL));
	REFUSED(baton_wait(ended, -1, NULL));
	REFUSED(baton_release(&request));
	REFUSED(baton_cancel(ended));
	REFUSED(baton_group_begin(c->comm));
	REFUSED(baton_stream_create(c->comm, &stream));
	REFUSED(baton_stream_synchronize(c->comm, c->stream));
	REFUSED(baton_stream_query(c->comm, c->stream));
	REFUSED(baton_comm_create_local(1, NULL, &comm));
	REFUSED(baton_comm_abort(c->comm));
	REFUSED(baton_comm_destroy(c->comm));
	if (baton_progress(c->comm) != 0)
		return call;
#undef REFUSED
	return 0;
}

static void
calls_after_fork_are_refused_in_the_child(struct conform *c)
{
	baton_request request = 0;
	int status = -1;
	pid_t child;

	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &request));
	CHECK_OK(c, baton_wait(request, conform_patience(c), NULL));
	conform_sync(c);
	if (c->rank == 0) {
		fflush(NULL);
		child = fork();
		if (child == 0) {
			alarm(30); /* a hang is a failure */
			_exit(call_in_child(c, request));
		}
		CHECK(c, child > 0);
		CHECK_EQ(c, waitpid(child, &status, 0), child);
		CHECK(c, WIFEXITED(status));
		CHECK_EQ(c, WEXITSTATUS(status), 0);
	}
	conform_sync(c);
	/* The parent has noticed nothing. */
	CHECK_OK(c, baton_release(&request));
	conform_sound(c);
}

/* Of a child of rank 0, which has found these. */
static int
receive_in_child(struct conform *c, const baton_message messages[2])
{
	baton_message message = 0;
	int value;

	return baton_probe(1, 3, c->comm, &message, NULL) == BATON_ERR_INVALID &&
	                       baton_recv_message(&value, 4, BATON_UINT8,
	                                          messages[0], c->comm,
	                                          c->stream, NULL, NULL) ==
	                               BATON_ERR_INVALID &&
	                       baton_recv_message_tensors(
				       NULL, 0, messages[1], c->comm, c->stream,
				       NULL, NULL) == BATON_ERR_INVALID
	               ? 0
	               : 1;
}

/* A short and a long message, which both ranks have when they fork; the children write what the parents had. */
static void
what_was_found_before_a_fork_is_received(struct conform *c)
{
	baton_message messages[2] = {0};
	baton_request requests[2] = {0};
	const size_t lengths[2] = {8, MIB};
	int status = -1;
	void *buffers[2];
	pid_t child;

	for (unsigned k = 0; k < 2 && c->rank < 2; k++) {
		enum baton_status found = BATON_PENDING;

		buffers[k] = c->rank == 1 ? conform_filled(c, lengths[k], k)
		                          : conform_message(c, lengths[k]);
		if (c->rank == 1)
			requests[k] = SEND(c, buffers[k], lengths[k], 0, 3,
			                   c->stream, &conform_detached);
		for (int64_t t = conform_begin(); c->rank == 0 &&
		                                  found == BATON_PENDING &&
		                                  STILL(c, t);)
			found = baton_probe(1, 3, c->comm, &messages[k], NULL);
	}
	conform_sync(c);
	if (c->rank < 2) {
		fflush(NULL);
		child = fork();
		if (child == 0) {
			alarm(30);
			if (c->backend->traits & CONFORM_HOST_DEVICE)
				for (unsigned k = 0; k < 2; k++)
					memset(buffers[k], 7, lengths[k]);
			_exit(c->rank == 0 ? receive_in_child(c, messages) : 0);
		}
		CHECK_EQ(c, waitpid(child, &status, 0), child);
		CHECK(c, WIFEXITED(status));
		CHECK_EQ(c, WEXITSTATUS(status), 0);
	}
	conform_sync(c);
	for (unsigned k = 0; k < 2 && c->rank < 2; k++) {
		if (c->rank == 0)
			CHECK_OK(c, baton_recv_message(buffers[k], lengths[k],
			                               BATON_UINT8, messages[k],
			                               c->comm, c->stream, NULL,
			                               &requests[k]));
		FINISH(c, BATON_OK, &requests[k]);
		CHECK_FILLED(c, buffers[k], lengths[k], k);
	}
	conform_sound(c);
}

/* ---- no memory ---------------------------------------------------------- */

/* Let the victim's n-th allocation fail; returns whether all were told. */
static bool
create_without_memory(struct conform *c, int victim, unsigned long n)
{
	struct baton_comm *comm = NULL;
	enum baton_status status;
	long before;
	int made;

	conform_sync(c);
	before = batoni_mem_blocks();
	conform_sync(c);
	if (c->rank == victim)
		(void)batoni_mem_fail_at(n);
	status = c->backend->create(c, NULL, &comm);
	conform_sync(c);
	if (c->rank == victim)
		(void)batoni_mem_fail_at(0);
	made = c->backend->agree(c, status == BATON_OK);
	if (made) {
		/* All or none. */
		CHECK_STATUS(c, BATON_OK, status);
		CHECK_OK(c, baton_comm_destroy(comm));
	} else {
		CHECK_STATUS(c, BATON_ERR_NOMEM, status);
		CHECK(c, comm == NULL);
	}
	conform_sync(c);
	CHECK_EQ(c, batoni_mem_blocks(), before);
	/* Nobody allocates before all have looked. */
	conform_sync(c);
	return !made;
}

static void
creation_survives_every_failing_allocation(struct conform *c)
{
	int processes = (c->backend->traits & CONFORM_PROCESSES) != 0;
	struct baton_comm *warm = conform_comm(c, NULL);

	CHECK_OK(c, baton_comm_destroy(warm));
	for (int victim = 0; victim < (processes ? c->size : 1); victim++) {
		unsigned long n = 1;

		while (create_without_memory(c, victim, n) && n < 1000)
			n++;
		CHECK(c, n > 2 && n < 1000);
	}
	warm = conform_comm(c, NULL);
	CHECK_OK(c, baton_comm_destroy(warm));
}

const struct conform_case conform_life[] = {
	{ CASE(a_thousand_communicators_come_and_go), .flags = CONFORM_BARE },
	{ CASE(options_are_what_was_asked_for), .flags = CONFORM_BARE },
	{ CASE(many_communicators_live_at_once), .flags = CONFORM_BARE },
	{ CASE(destroy_drains_what_is_pending), .ranks_min = 2,
	  .flags = CONFORM_BARE },
	{ CASE(destroy_times_out_when_a_rank_does_not_come), .ranks_min = 2,
	  .flags = CONFORM_BARE | CONFORM_PROCESSES },
	{ CASE(a_local_rank_is_destroyed_on_its_own), .ranks_min = 2,
	  .flags = CONFORM_BARE | CONFORM_THREADS | CONFORM_HOST_ISSUED },
	{ CASE(destroy_times_out_over_a_pending_operation),
	  .flags = CONFORM_BARE,
	  .needs = BATON_CAP_CANCEL | BATON_CAP_SELF },
	{ CASE(abort_and_destroy_end_a_destroy_that_timed_out),
	  .flags = CONFORM_BARE, .needs = BATON_CAP_SELF },
	{ CASE(handles_of_a_destroyed_communicator_are_stale),
	  .flags = CONFORM_BARE },
	{ CASE(one_thread_may_use_all_ranks), .flags = CONFORM_HOST_DEVICE },
	{ CASE(communicators_are_bounded),
	  .flags = CONFORM_BARE | CONFORM_THREADS | CONFORM_HOST_DEVICE },
	{ CASE(ranks_meet_by_an_id),
	  .flags = CONFORM_BARE | CONFORM_THREADS | CONFORM_HOST_DEVICE },
	{ CASE(ids_differ), .flags = CONFORM_BARE },
	{ CASE(bad_arguments_of_an_id_are_refused), .flags = CONFORM_BARE },
	{ CASE(ranks_that_disagree_are_told), .ranks_min = 2,
	  .flags = CONFORM_BARE | CONFORM_THREADS | CONFORM_HOST_DEVICE },
	{ CASE(a_rank_that_does_not_come_is_a_timeout), .ranks_min = 2,
	  .flags = CONFORM_BARE | CONFORM_THREADS | CONFORM_HOST_DEVICE },
	{ CASE(calls_after_fork_are_refused_in_the_child),
	  .flags = CONFORM_LONG },
	{ CASE(what_was_found_before_a_fork_is_received), .ranks_min = 2,
	  .flags = CONFORM_LONG,
	  .needs = BATON_CAP_ANY_SOURCE | BATON_CAP_ANY_TAG },
	{ CASE(creation_survives_every_failing_allocation),
	  .flags = CONFORM_BARE | CONFORM_HOST_DEVICE },
	CASES_END,
};
