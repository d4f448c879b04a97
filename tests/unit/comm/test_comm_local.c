/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "baton.h"
#include "fake_memory.h"
#include "fake_native.h"
#include "log.h"
#include "mem.h"
#include "registry.h"
#include "run_tests.h"
#include "testing.h"

static void
teardown(void)
{
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static struct baton_comm_options
by_calls(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.progress = BATON_PROGRESS_CALLS;
	options.requests_max = 4;
	return options;
}

static void
destroy_all(struct baton_comm *comms[], int size)
{
	for (int i = 0; i < size; i++)
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
}

/* Every rank sends its number to the next one. */
static void
assert_connected(struct baton_comm *comms[], int size)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	for (int i = 0; i < size; i++) {
		int next = (i + 1) % size, got = -1;

		ck_assert_int_eq(baton_comm_rank(comms[i]), i);
		ck_assert_int_eq(baton_comm_size(comms[i]), size);
		ck_assert_int_eq(baton_send(&i, 1, BATON_INT32, next, 0,
		                            comms[i], NULL, &options, NULL),
		                 BATON_OK);
		ck_assert_int_eq(baton_recv(&got, 1, BATON_INT32, i, 0,
		                            comms[next], NULL, NULL, NULL),
		                 BATON_OK);
		ck_assert_int_eq(baton_stream_synchronize(comms[next], NULL),
		                 BATON_OK);
		ck_assert_int_eq(got, i);
	}
}

/* ---- all at once ---- */

START_TEST(ranks_are_numbered_and_connected)
{
	struct baton_comm_options options = by_calls();
	struct baton_comm *comms[5];

	for (int size = 1; size <= 5; size++) {
		ck_assert_int_eq(baton_comm_create_local(size, &options, comms),
		                 BATON_OK);
		assert_connected(comms, size);
		destroy_all(comms, size);
	}
}
END_TEST

START_TEST(sizes_out_of_range_and_other_transports_are_refused)
{
	struct baton_comm_options options = by_calls();
	struct baton_comm *none[1] = {NULL};

	ck_assert_int_eq(baton_comm_create_local(0, &options, none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_create_local(-1, &options, none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_create_local(4096, &options, none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_create_local(1, &options, NULL),
	                 BATON_ERR_INVALID);
	options.transport = BATON_TRANSPORT_MPI;
	ck_assert_int_eq(baton_comm_create_local(1, &options, none),
	                 BATON_ERR_UNSUPPORTED);
	options.transport = BATON_TRANSPORT_LOCAL;
	options.device = BATON_DEVICE_CUDA;
	ck_assert_int_eq(baton_comm_create_local(1, &options, none),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_null(none[0]);
}
END_TEST

START_TEST(creation_without_memory_writes_nothing_and_leaves_nothing)
{
	struct baton_comm_options options = by_calls();
	struct baton_comm *comms[3] = {0};
	enum baton_status status;
	unsigned long n = 0;

	options.timestamps = true;
	do {
		batoni_mem_fail_at(++n);
		status = baton_comm_create_local(3, &options, comms);
		if (status != BATON_OK) {
			ck_assert_int_eq(status, BATON_ERR_NOMEM);
			for (int i = 0; i < 3; i++)
				ck_assert_ptr_null(comms[i]);
			ck_assert_int_eq(batoni_mem_blocks(), 0);
			ck_assert_ptr_nonnull(strstr(baton_last_error(),
			                             "memory"));
		}
	} while (status != BATON_OK);
	batoni_mem_fail_at(0);
	ck_assert_uint_gt(n, 15);
	assert_connected(comms, 3);
	destroy_all(comms, 3);
}
END_TEST

/* ---- a native transport that one rank cannot open ---- */

/* Rank 1 fails when rank 0 has its own, which is the lower transport. */
static enum baton_status
open_native(struct batoni_native *native, struct batoni_transport *lower,
            struct batoni_transport **transport_p)
{
	if (native == &fake_natives[1])
		return batoni_refuse(BATON_ERR_CUDA, "it has no fan");
	*transport_p = lower;
	native->alive = false;
	return BATON_OK;
}

START_TEST(native_transport_that_one_rank_cannot_open_fails_all)
{
	const struct batoni_native_ops native = fake_native_ops(open_native);
	struct baton_comm_options options = by_calls();
	struct baton_comm *comms[3] = {0};

	batoni_device_put(&batoni_fake_device_ops);
	batoni_native_put(&native);
	options.device = BATON_DEVICE_CUDA;
	options.transport = BATON_TRANSPORT_NCCL;
	ck_assert_int_eq(baton_comm_create_local(3, &options, comms),
	                 BATON_ERR_CUDA);
	ck_assert_str_eq(baton_last_error(), "it has no fan");
	batoni_native_put(NULL);
	batoni_device_put(NULL);
	ck_assert_int_eq(fake_natives_created(), 3);
	ck_assert_int_eq(fake_natives_alive(), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_ptr_null(comms[i]);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

START_TEST(create_alone_is_a_world_of_one)
{
	struct baton_comm_options options = by_calls();
	struct baton_comm *comm = NULL;

	options.transport = BATON_TRANSPORT_LOCAL;
	ck_assert_int_eq(baton_comm_create(&options, &comm), BATON_OK);
	assert_connected(&comm, 1);
	destroy_all(&comm, 1);
	ck_assert_int_eq(baton_comm_create(&options, NULL), BATON_ERR_INVALID);
}
END_TEST

/* Ranks of one process meet on the local transport. */
START_TEST(near_in_one_process_is_local)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_comm_options options = by_calls();
	struct baton_comm *comms[2] = {0};

	options.transport = BATON_TRANSPORT_NEAR;
	ck_assert_int_eq(baton_comm_create_local(2, &options, comms), BATON_OK);
	ck_assert_int_eq(baton_comm_query(comms[0], &info), BATON_OK);
	ck_assert_int_eq(info.transport, BATON_TRANSPORT_LOCAL);
	ck_assert_uint_eq(info.message_paths, BATON_MESSAGE_PATH_TRANSPORT);
	assert_connected(comms, 2);
	destroy_all(comms, 2);
	/* Nobody has started this process with others. */
	ck_assert_int_eq(baton_comm_create(&options, &comms[0]), BATON_OK);
	assert_connected(comms, 1);
	destroy_all(comms, 1);
}
END_TEST

/* ---- one by one ---- */

struct rank {
	pthread_t thread;
	const struct baton_unique_id *id;
	struct baton_comm_options options;
	struct baton_comm *comm;
	enum baton_status status;
	int size, rank;
	char error[256];
};

static void *
create(void *arg)
{
	struct rank *rank = arg;

	rank->status = baton_comm_create_id(rank->size, rank->rank, rank->id,
	                                    &rank->options, &rank->comm);
	snprintf(rank->error, sizeof(rank->error), "%s", baton_last_error());
	return NULL;
}

static void
init_rank(struct rank *rank, const struct baton_unique_id *id, int size, int number)
{
	*rank = (struct rank){.id = id,
	                      .options = by_calls(),
	                      .size = size,
	                      .rank = number};
}

static void
start_create(struct rank *rank)
{
	ck_assert_int_eq(pthread_create(&rank->thread, NULL, create, rank), 0);
}

static void
join(struct rank *rank, enum baton_status status)
{
	pthread_join(rank->thread, NULL);
	ck_assert_int_eq(rank->status, status);
	ck_assert_int_eq(rank->comm != NULL, status == BATON_OK);
}

START_TEST(ids_differ)
{
	struct baton_unique_id ids[3];

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(baton_unique_id_create(&ids[i]), BATON_OK);
		for (int j = 0; j < i; j++)
			ck_assert_mem_ne(&ids[i], &ids[j], sizeof(ids[0]));
	}
	ck_assert_int_eq(baton_unique_id_create(NULL), BATON_ERR_INVALID);
}
END_TEST

START_TEST(threads_meet_by_an_id)
{
	struct baton_unique_id id;
	struct baton_comm *comms[4];
	struct rank ranks[4];

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	for (int i = 0; i < 4; i++) {
		init_rank(&ranks[i], &id, 4, 3 - i);
		start_create(&ranks[i]);
	}
	for (int i = 0; i < 4; i++) {
		join(&ranks[i], BATON_OK);
		comms[ranks[i].rank] = ranks[i].comm;
	}
	assert_connected(comms, 4);
	destroy_all(comms, 4);
}
END_TEST

/* The rank on the host speaks the protocol of the other one, whose messages are memory that
 * only the device reaches. */
START_TEST(ranks_that_meet_may_be_on_different_devices)
{
	struct baton_comm *comms[3];
	struct baton_unique_id id;
	struct rank ranks[3];
	baton_request out, in;
	uint64_t *memory;
	uint64_t got = 0;

	batoni_device_put(&batoni_fake_device_ops);
	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	for (int i = 0; i < 3; i++) {
		init_rank(&ranks[i], &id, 3, i);
		if (i == 1)
			ranks[i].options.device = BATON_DEVICE_CUDA;
		start_create(&ranks[i]);
	}
	for (int i = 0; i < 3; i++) {
		struct baton_comm_info info = {.size = sizeof(info)};

		join(&ranks[i], BATON_OK);
		comms[i] = ranks[i].comm;
		ck_assert_int_eq(baton_comm_query(comms[i], &info), BATON_OK);
		ck_assert_int_eq(info.device, i == 1 ? BATON_DEVICE_CUDA
		                                     : BATON_DEVICE_HOST);
	}
	batoni_device_put(NULL);
	assert_connected(comms, 3);
	memory = fake_memory_alloc(sizeof(*memory));
	fake_memory_copy(memory, &(uint64_t){42}, sizeof(*memory));
	ck_assert_int_eq(baton_send(memory, 1, BATON_UINT64, 2, 0, comms[1],
	                            NULL, NULL, &out),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(&got, 1, BATON_UINT64, 1, 0, comms[2], NULL,
	                            NULL, &in),
	                 BATON_OK);
	ck_assert_int_eq(baton_finish(&in, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_finish(&out, -1, NULL), BATON_OK);
	ck_assert_uint_eq(got, 42);
	fake_memory_free(memory);
	destroy_all(comms, 3);
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

/* The fake device, opened by these threads; by rank.  Rank `stops` waits in its open, that of
 * rank `fails` fails. */
static struct {
	struct batoni_device_ops ops;
	_Atomic(pthread_t) by[3];
	int stops, fails;
	sem_t stopped, go;
} opened;

static enum baton_status
note_open(const struct batoni_device_config *config,
          struct batoni_device **device_p)
{
	atomic_store(&opened.by[config->host_rank], pthread_self());
	if (config->host_rank == opened.stops) {
		sem_post(&opened.stopped);
		sem_wait(&opened.go);
	}
	if (config->host_rank == opened.fails)
		return batoni_refuse(BATON_ERR_CUDA, "it has no fan");
	return batoni_fake_device_ops.open(config, device_p);
}

/* Ranks that meet on the fake device. */
static void
run_on_fake_device(struct rank ranks[3], const struct baton_unique_id *id,
                   int stops, int fails)
{
	opened.ops = batoni_fake_device_ops;
	opened.ops.open = note_open;
	opened.stops = stops;
	opened.fails = fails;
	sem_init(&opened.stopped, 0, 0);
	sem_init(&opened.go, 0, 0);
	batoni_device_put(&opened.ops);
	for (int i = 0; i < 3; i++) {
		init_rank(&ranks[i], id, 3, i);
		ranks[i].options.device = BATON_DEVICE_CUDA;
		start_create(&ranks[i]);
	}
}

START_TEST(each_rank_opens_its_device_on_its_own_thread)
{
	struct baton_comm *comms[3];
	struct baton_unique_id id;
	struct rank ranks[3];

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	run_on_fake_device(ranks, &id, -1, -1);
	for (int i = 0; i < 3; i++) {
		join(&ranks[i], BATON_OK);
		ck_assert(pthread_equal(atomic_load(&opened.by[i]),
		                        ranks[i].thread));
		comms[i] = ranks[i].comm;
	}
	batoni_device_put(NULL);
	destroy_all(comms, 3);
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

START_TEST(ranks_of_another_id_meet_while_a_device_is_opened)
{
	struct baton_comm_options options = by_calls();
	struct baton_unique_id id, other;
	struct baton_comm *comms[3], *alone = NULL;
	struct rank ranks[3];

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	ck_assert_int_eq(baton_unique_id_create(&other), BATON_OK);
	run_on_fake_device(ranks, &id, 1, -1);
	sem_wait(&opened.stopped);
	ck_assert_int_eq(baton_comm_create_id(1, 0, &other, &options, &alone),
	                 BATON_OK);
	destroy_all(&alone, 1);
	sem_post(&opened.go);
	for (int i = 0; i < 3; i++) {
		join(&ranks[i], BATON_OK);
		comms[i] = ranks[i].comm;
	}
	batoni_device_put(NULL);
	destroy_all(comms, 3);
}
END_TEST

START_TEST(rank_whose_device_cannot_be_opened_fails_all_and_is_named)
{
	struct baton_unique_id id;
	struct rank ranks[3];

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	run_on_fake_device(ranks, &id, -1, 1);
	for (int i = 0; i < 3; i++) {
		join(&ranks[i], BATON_ERR_CUDA);
		ck_assert_str_eq(ranks[i].error,
		                 i == 1 ? "it has no fan"
		                        : "baton_comm_create_id: rank 1 has "
		                          "failed: it has no fan");
	}
	batoni_device_put(NULL);
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

START_TEST(id_of_one_needs_nobody_and_serves_once)
{
	struct baton_comm_options options = by_calls();
	struct baton_comm *comm = NULL, *again = NULL;
	struct baton_unique_id id;

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	ck_assert_int_eq(baton_comm_create_id(1, 0, &id, &options, &comm),
	                 BATON_OK);
	assert_connected(&comm, 1);
	ck_assert_int_eq(baton_comm_create_id(1, 0, &id, &options, &again),
	                 BATON_ERR_INVALID);
	ck_assert_ptr_null(again);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "spent"));
	destroy_all(&comm, 1);
}
END_TEST

/* ---- threads that are cancelled ---- */

static struct doomed {
	struct baton_comm *comm;
	struct baton_queue *queue;
	struct baton_window *window;
	baton_stream stream;
	void *memory;
	int null;
	enum baton_status status;
	bool returned;
} doomed;

static void
create_all(void)
{
	struct baton_comm_options options = by_calls();

	doomed.status = baton_comm_create_local(1, &options, &doomed.comm);
}

static void
create_queue(void)
{
	doomed.status = baton_queue_create(doomed.comm, 1, &doomed.queue);
}

static void
destroy_queue(void)
{
	baton_queue_destroy(doomed.queue);
}

static void
create_stream(void)
{
	doomed.status = baton_stream_create(doomed.comm, &doomed.stream);
}

static void
nothing(void *arg)
{
	(void)arg;
}

/* Its thread is to be joined. */
static void
destroy_stream(void)
{
	baton_stream_launch(doomed.comm, doomed.stream, nothing, NULL);
	baton_stream_synchronize(doomed.comm, doomed.stream);
	doomed.status = baton_stream_destroy(doomed.comm, doomed.stream);
}

static void
allocate(void)
{
	doomed.status = baton_mem_alloc(doomed.comm, 64, &doomed.memory);
}

static void
free_memory(void)
{
	doomed.status = baton_mem_free(doomed.comm, doomed.memory);
}

static void
register_window(void)
{
	doomed.status = baton_window_register(doomed.memory, 64, doomed.comm,
	                                      &doomed.window);
}

static void
deregister_window(void)
{
	doomed.status = baton_window_deregister(doomed.window);
}

static void
write_dump(void)
{
	doomed.status = baton_comm_dump(doomed.comm, doomed.null);
}

static void
destroy(void)
{
	doomed.status = baton_comm_destroy(doomed.comm);
}

static void *
call_when_cancelled(void *arg)
{
	void (*const *call)(void) = arg;

	pthread_cancel(pthread_self());
	(*call)();
	doomed.returned = true;
	pthread_testcancel();
	return NULL;
}

START_TEST(thread_is_not_cancelled_within_a_call)
{
	static void (*const calls[])(void) = {
		create_all, create_queue, destroy_queue, create_stream,
		destroy_stream, allocate, register_window, write_dump,
		deregister_window, free_memory, destroy,
	};

	doomed.null = open("/dev/null", O_WRONLY);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void (*call)(void) = calls[i];
		pthread_t thread;
		void *result;

		doomed.returned = false;
		ck_assert_int_eq(pthread_create(&thread, NULL,
		                                call_when_cancelled, &call),
		                 0);
		pthread_join(thread, &result);
		ck_assert_ptr_eq(result, PTHREAD_CANCELED);
		ck_assert_msg(doomed.returned, "call %zu has not returned", i);
		ck_assert_int_eq(doomed.status, BATON_OK);
	}
	close(doomed.null);
}
END_TEST

START_TEST(rank_that_is_cancelled_while_it_waits_for_others_meets_them)
{
	struct baton_comm *comms[2];
	struct baton_unique_id id;
	struct rank ranks[2];

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	for (int i = 0; i < 2; i++) {
		init_rank(&ranks[i], &id, 2, i);
		start_create(&ranks[i]);
		if (i == 0)
			ck_assert_int_eq(pthread_cancel(ranks[0].thread), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(ranks[i].thread, NULL);
		ck_assert_ptr_nonnull(ranks[i].comm);
		comms[i] = ranks[i].comm;
	}
	destroy_all(comms, 2);
}
END_TEST

START_TEST(rank_that_does_not_come_is_a_timeout_and_spends_the_id)
{
	struct baton_unique_id id;
	struct rank rank;

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	init_rank(&rank, &id, 2, 0);
	rank.options.timeout_ns = 1;
	start_create(&rank);
	join(&rank, BATON_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(rank.error, "1 of 2 ranks"));
	init_rank(&rank, &id, 2, 1);
	start_create(&rank);
	join(&rank, BATON_ERR_INVALID);
}
END_TEST

/* Whichever of the two comes second disagrees; both are told. */
static void
assert_disagreement(struct rank *a, struct rank *b)
{
	start_create(a);
	start_create(b);
	join(a, BATON_ERR_INVALID);
	join(b, BATON_ERR_INVALID);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

START_TEST(ranks_that_disagree_are_all_told)
{
	struct baton_unique_id id;
	struct rank a, b;

	for (int i = 0; i < 6; i++) {
		ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
		init_rank(&a, &id, 2, 0);
		init_rank(&b, &id, 2, 1);
		if (i == 0)
			b.size = 3;
		if (i == 1)
			b.options.requests_max++;
		if (i == 2)
			b.options.timeout_ns = 1000000000000;
		if (i == 3)
			b.options.progress = BATON_PROGRESS_AUTO;
		if (i == 4)
			b.options.timestamps = true;
		if (i == 5)
			b.options.check = true;
		assert_disagreement(&a, &b);
	}
}
END_TEST

START_TEST(rank_taken_twice_is_refused_and_the_others_still_meet)
{
	struct baton_comm *comms[2];
	struct baton_unique_id id;
	struct rank twice[2], last;
	int first;

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	for (int i = 0; i < 2; i++) {
		init_rank(&twice[i], &id, 2, 0);
		start_create(&twice[i]);
	}
	/* One of them is refused at once; the other one waits for rank 1,
	 * which comes when that has been seen. */
	init_rank(&last, &id, 2, 1);
	for (first = 0; pthread_tryjoin_np(twice[first].thread, NULL) != 0;
	     first = !first)
		sched_yield();
	ck_assert_int_eq(twice[first].status, BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(twice[first].error, "taken"));
	start_create(&last);
	join(&last, BATON_OK);
	join(&twice[!first], BATON_OK);
	comms[0] = twice[!first].comm;
	comms[1] = last.comm;
	assert_connected(comms, 2);
	destroy_all(comms, 2);
}
END_TEST

START_TEST(ids_and_ranks_are_checked)
{
	struct baton_comm_options options = by_calls();
	struct baton_unique_id id, foreign = {{0}};
	struct baton_comm *none = NULL;

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	ck_assert_int_eq(baton_comm_create_id(2, 2, &id, &options, &none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_create_id(2, -1, &id, &options, &none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_create_id(0, 0, &id, &options, &none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_create_id(1, 0, NULL, &options, &none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_create_id(1, 0, &id, &options, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_create_id(1, 0, &foreign, &options, &none),
	                 BATON_ERR_INVALID);
	/* The process stands after the magic word of eight bytes; at 80, that it
	 * listens. */
	foreign = id;
	foreign.bytes[8] ^= 1;
	foreign.bytes[80] = foreign.bytes[81] = 0;
	ck_assert_int_eq(baton_comm_create_id(1, 0, &foreign, &options, &none),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_null(none);
}
END_TEST

START_TEST(meeting_without_memory_leaves_nothing)
{
	struct baton_comm_options options = by_calls();
	struct baton_comm *comm = NULL;
	struct baton_unique_id id;
	enum baton_status status;
	unsigned long n = 0;

	do {
		ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
		batoni_mem_fail_at(++n);
		status = baton_comm_create_id(1, 0, &id, &options, &comm);
		if (status != BATON_OK) {
			ck_assert_int_eq(status, BATON_ERR_NOMEM);
			ck_assert_ptr_null(comm);
			ck_assert_int_eq(batoni_mem_blocks(), 0);
		}
	} while (status != BATON_OK);
	batoni_mem_fail_at(0);
	ck_assert_uint_gt(n, 8);
	destroy_all(&comm, 1);
}
END_TEST

static void
assert_refused(enum baton_status status)
{
	ck_assert_int_eq(status, BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "destroyed"));
}

START_TEST(a_destroyed_communicator_is_refused_by_every_call)
{
	const struct baton_wait_signal_desc desc = {.op_count = 1};
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_window *window;
	struct baton_queue *queue;
	struct baton_comm *comm;
	baton_request request;
	baton_stream stream;
	uint64_t count;
	void *pointer;
	char byte = 0;

	ck_assert_int_eq(baton_comm_create_local(1, NULL, &comm), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	assert_refused(baton_comm_destroy(comm));
	assert_refused(baton_comm_abort(comm));
	assert_refused(baton_comm_query(comm, &info));
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_INVALID);
	ck_assert_str_eq(baton_comm_error(comm), "");
	ck_assert_int_eq(baton_comm_rank(comm), -1);
	ck_assert_int_eq(baton_comm_size(comm), -1);
	ck_assert_uint_eq(baton_progress(comm), 0);
	assert_refused(baton_stream_create(comm, &stream));
	assert_refused(baton_stream_query(comm, NULL));
	assert_refused(baton_stream_synchronize(comm, NULL));
	assert_refused(baton_stream_launch(comm, NULL, NULL, NULL));
	assert_refused(baton_stream_wait(comm, NULL, 1));
	assert_refused(baton_record(comm, NULL, NULL, &request));
	assert_refused(baton_send(&byte, 1, BATON_INT8, 0, 0, comm, NULL, NULL,
	                          &request));
	assert_refused(baton_recv(&byte, 1, BATON_INT8, 0, 0, comm, NULL, NULL,
	                          &request));
	assert_refused(baton_signal(0, 0, 0, 0, comm, NULL, NULL, &request));
	assert_refused(baton_put_signal(&byte, 1, BATON_INT8, 0, NULL, 0, 0, 0,
	                                0, comm, NULL, NULL, &request));
	assert_refused(
		baton_wait_signal(1, &desc, comm, NULL, NULL, &request));
	assert_refused(baton_signal_count(comm, 0, 0, 0, &count));
	assert_refused(baton_group_begin(comm));
	ck_assert_int_eq(baton_group_end(comm), BATON_ERR_INVALID);
	assert_refused(baton_queue_create(comm, 1, &queue));
	assert_refused(baton_mem_alloc(comm, 1, &pointer));
	assert_refused(baton_mem_free(comm, &byte));
	assert_refused(baton_window_register(&byte, 1, comm, &window));
}
END_TEST

START_TEST(a_deregistered_window_is_refused_by_every_call)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	static char part[64];
	struct baton_window *window;
	struct baton_comm *comm;
	baton_request request;
	char byte = 0;

	/* More than are kept. */
	options.requests_max = 16;
	for (int i = 0; i < 70; i++) {
		ck_assert_int_eq(baton_comm_create_local(1, &options, &comm),
		                 BATON_OK);
		ck_assert_int_eq(baton_window_register(part, sizeof(part), comm,
		                                       &window),
		                 BATON_OK);
		ck_assert_uint_eq(baton_window_size(window, 0), sizeof(part));
		ck_assert_int_eq(baton_window_deregister(window), BATON_OK);
		ck_assert_int_eq(baton_put_signal(&byte, 1, BATON_INT8, 0,
		                                  window, 0, 0, 0, 0, comm,
		                                  NULL, NULL, &request),
		                 BATON_ERR_INVALID);
		ck_assert_ptr_nonnull(strstr(baton_last_error(),
		                             "was deregistered"));
		ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
		ck_assert_uint_eq(baton_window_size(window, 0), 0);
		ck_assert_uint_eq(baton_window_path(window, 0), 0);
		ck_assert_int_eq(baton_window_deregister(window),
		                 BATON_ERR_INVALID);
	}
}
END_TEST

/* Also after many others have come and gone. */
START_TEST(a_destroyed_queue_is_refused_by_every_call)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_queue *queue, *live;
	struct baton_completion completion;
	struct baton_comm *comm;
	baton_request request;

	for (int i = 0; i < 70; i++) {
		ck_assert_int_eq(baton_comm_create_local(1, NULL, &comm),
		                 BATON_OK);
		ck_assert_int_eq(baton_queue_create(comm, 1, &live), BATON_OK);
		ck_assert_int_eq(baton_queue_create(comm, 1, &queue), BATON_OK);
		baton_queue_destroy(queue);
		ck_assert_int_eq(baton_queue_arm(live), BATON_OK);
		assert_refused(baton_queue_arm(queue));
		ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 0);
		ck_assert_int_eq(baton_queue_fd(queue), -1);
		options.queue = queue;
		assert_refused(baton_record(comm, NULL, &options, &request));
		baton_queue_destroy(queue);
		baton_queue_destroy(live);
		ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
		baton_queue_destroy(live);
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_destroyed_communicator_is_refused_by_every_call,
		a_deregistered_window_is_refused_by_every_call,
		a_destroyed_queue_is_refused_by_every_call,
		ranks_are_numbered_and_connected,
		sizes_out_of_range_and_other_transports_are_refused,
		creation_without_memory_writes_nothing_and_leaves_nothing,
		native_transport_that_one_rank_cannot_open_fails_all,
		create_alone_is_a_world_of_one,
		near_in_one_process_is_local,
		ids_differ,
		threads_meet_by_an_id,
		ranks_that_meet_may_be_on_different_devices,
		each_rank_opens_its_device_on_its_own_thread,
		ranks_of_another_id_meet_while_a_device_is_opened,
		rank_whose_device_cannot_be_opened_fails_all_and_is_named,
		id_of_one_needs_nobody_and_serves_once,
		thread_is_not_cancelled_within_a_call,
		rank_that_is_cancelled_while_it_waits_for_others_meets_them,
		rank_that_does_not_come_is_a_timeout_and_spends_the_id,
		ranks_that_disagree_are_all_told,
		rank_taken_twice_is_refused_and_the_others_still_meet,
		ids_and_ranks_are_checked,
		meeting_without_memory_leaves_nothing,
	};

	return RUN_TESTS_WITH("comm_local", tests, NULL, teardown);
}
