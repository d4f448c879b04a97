/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creating communicators over MPI, and who starts and finalises MPI when.
 *
 * MPI can be started once in a process, so every test is a run of its own, of
 * two ranks, named by the argument.  How the process leaves belongs to the test:
 * the last exit handler looks whether MPI is finalised, and makes its mind up.
 */
#include <check.h>
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton_mpi.h"
#include "comm.h"
#include "core.h"
#include "creation.h"
#include "fake_device.h"
#include "fake_native.h"
#include "mem.h"
#include "mpi_transport.h"
#include "registry.h"

static int rank;

/* What the process must leave behind. */
static enum { AS_IT_IS, FINALIZED } leaving;

static void
check_leaving(void)
{
	int finalized = 0;

	MPI_Finalized(&finalized);
	if (leaving == FINALIZED && !finalized) {
		printf("not ok: the process leaves without MPI_Finalize\n");
		fflush(stdout);
		_exit(EXIT_FAILURE);
	}
}

static void
start_mpi(int level)
{
	int provided;

	MPI_Init_thread(NULL, NULL, level, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

static struct baton_comm *
world(void)
{
	struct baton_comm *comm = NULL;

	ck_assert_int_eq(baton_comm_create(NULL, &comm), BATON_OK);
	rank = baton_comm_rank(comm);
	return comm;
}

/* One number to the other rank and one from it. */
static void
exchange(struct baton_comm *comm)
{
	int peer = 1 - baton_comm_rank(comm);
	int out = 40 + baton_comm_rank(comm), in = 0;
	baton_request send, recv;

	ck_assert_int_eq(baton_send(&out, 1, BATON_INT32, peer, 1, comm, NULL,
	                            NULL, &send),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(&in, 1, BATON_INT32, peer, 1, comm, NULL,
	                            NULL, &recv),
	                 BATON_OK);
	ck_assert_int_eq(baton_finish(&recv, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_finish(&send, -1, NULL), BATON_OK);
	ck_assert_int_eq(in, 40 + peer);
}

/* ---- memory ---- */

/* Sanitizers keep books of their own about memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static size_t
resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%*u %zu", &pages), 1);
	fclose(file);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The pages of what was freed are not resident, but the allocator thinks that they
 * have been used. */
static void
use_heap(void)
{
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	free(malloc((size_t)256 << 20));
}

enum { REQUESTS = 4096, COMMUNICATORS = 20, MOST_BYTES = 1024 };

static void
check_growth(const char *what, size_t before, size_t requests)
{
	size_t now = resident();
	size_t growth = now > before ? (now - before) / requests : 0;

	printf("%s: %zu bytes a request\n", what, growth);
	if (!SANITIZED)
		ck_assert_uint_le(growth, MOST_BYTES);
}

START_TEST(communicators_take_memory_as_it_is_used)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comms[COMMUNICATORS];
	size_t before;

	start_mpi(MPI_THREAD_MULTIPLE);
	options.requests_max = REQUESTS;
	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, &options,
	                                       &comms[0]),
	                 BATON_OK);
	exchange(comms[0]);
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_OK);
	use_heap();
	before = resident();
	for (int i = 0; i < COMMUNICATORS; i++) {
		ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, &options,
		                                       &comms[0]),
		                 BATON_OK);
		exchange(comms[0]);
		ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_OK);
	}
	check_growth("in turn", before, REQUESTS);
	before = resident();
	for (int i = 0; i < COMMUNICATORS; i++) {
		ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, &options,
		                                       &comms[i]),
		                 BATON_OK);
		exchange(comms[i]);
	}
	check_growth("alive", before, (size_t)REQUESTS * COMMUNICATORS);
	for (int i = 0; i < COMMUNICATORS; i++)
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
	MPI_Finalize();
}
END_TEST

/* ---- what is refused ---- */

static void
refused(MPI_Comm parent, const struct baton_comm_options *options,
        struct baton_comm **comm_p, enum baton_status status, const char *why)
{
	ck_assert_int_eq(baton_comm_create_mpi(parent, options, comm_p),
	                 status);
	if (!strstr(baton_last_error(), why))
		ck_abort_msg("\"%s\" does not say \"%s\"", baton_last_error(),
		             why);
}

START_TEST(arguments_are_refused)
{
	struct baton_comm_options local = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *const untouched = (struct baton_comm *)&local;
	struct baton_comm *comm = untouched;
	MPI_Comm half, inter;

	local.transport = BATON_TRANSPORT_LOCAL;
	refused(MPI_COMM_WORLD, NULL, &comm, BATON_ERR_INVALID, "not running");
	start_mpi(MPI_THREAD_MULTIPLE);
	MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank, 1, &inter);
	refused(MPI_COMM_NULL, NULL, &comm, BATON_ERR_INVALID, "MPI_COMM_NULL");
	refused(inter, NULL, &comm, BATON_ERR_INVALID, "intercommunicator");
	refused(MPI_COMM_WORLD, NULL, NULL, BATON_ERR_INVALID, "comm_p");
	refused(MPI_COMM_WORLD, &local, &comm, BATON_ERR_UNSUPPORTED,
	        "transport");
	ck_assert_ptr_eq(comm, untouched);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
	MPI_Finalize();
	refused(MPI_COMM_WORLD, NULL, &comm, BATON_ERR_INVALID, "not running");
}
END_TEST

START_TEST(a_rank_that_is_refused_tells_the_others)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	start_mpi(MPI_THREAD_MULTIPLE);
	if (rank == 1)
		options.requests_max = BATON_REQUESTS_MAX_LIMIT + 1;
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_INVALID,
	        rank == 1 ? "requests_max" : "rank 1");
	if (rank == 0)
		options.transport = BATON_TRANSPORT_NCCL;
	options.requests_max = 16;
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_UNSUPPORTED,
	        rank == 0 ? "NCCL" : "rank 0");
	options.transport = BATON_TRANSPORT_NEAR;
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_UNSUPPORTED,
	        "BATON_MESSAGE_PATH=near in the environment");
	ck_assert_int_eq(baton_comm_create(&options, &comm),
	                 BATON_ERR_UNSUPPORTED);
	options.transport = BATON_TRANSPORT_AUTO;
	options.requests_max = rank == 1 ? BATON_REQUESTS_MAX_LIMIT + 1 : 16;
	ck_assert_int_eq(baton_comm_create(&options, &comm), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             rank == 1 ? "requests_max" : "rank 1"));
	ck_assert_ptr_null(comm);
	MPI_Finalize();
}
END_TEST

START_TEST(signals_and_contexts_that_differ_are_refused_on_all)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	start_mpi(MPI_THREAD_MULTIPLE);
	options.signals_max = 5 + rank;
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_INVALID,
	        "options.signals_max is not the same on all ranks: 5 on rank 0, "
	        "6 on rank 1");
	options.signals_max = 5;
	options.contexts_max = 3 - rank;
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_INVALID,
	        "options.contexts_max is not the same on all ranks: 2 on rank 1, "
	        "3 on rank 0");
	ck_assert_ptr_null(comm);
	options.contexts_max = 2;
	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm),
	                 BATON_OK);
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Finalize();
}
END_TEST

/* This rank is of the next version. */
static bool is_next_version;

/* Instead of MPI's: what the library brings to an agreement passes by here. */
int
MPI_Iallreduce(const void *mine, void *all, int count, MPI_Datatype type,
               MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
	static int64_t record[1 + 2 * BATONI_MPI_ALIKE_MAX];

	if (is_next_version) {
		ck_assert_uint_eq((size_t)count * sizeof(int64_t),
		                  sizeof(record));
		memcpy(record, mine, sizeof(record));
		ck_assert_int_eq(record[1], BATONI_MPI_WIRE_VERSION);
		record[1]++;
		record[1 + BATONI_MPI_ALIKE_MAX]--;
		/* And has something to agree on that this one does not know. */
		record[BATONI_MPI_ALIKE_MAX] = 7;
		record[2 * BATONI_MPI_ALIKE_MAX] = -7;
		mine = record;
	}
	return PMPI_Iallreduce(mine, all, count, type, op, comm, request);
}

START_TEST(ranks_of_two_versions_refuse_each_other)
{
	struct baton_comm *comm = NULL;
	char why[100];

	start_mpi(MPI_THREAD_MULTIPLE);
	is_next_version = rank == 1;
	snprintf(why, sizeof(why), "the version of Baton (the number is its "
	                           "wire format's) is not the same on all ranks: %u to %u",
	         BATONI_MPI_WIRE_VERSION, BATONI_MPI_WIRE_VERSION + 1);
	refused(MPI_COMM_WORLD, NULL, &comm, BATON_ERR_INVALID, why);
	is_next_version = false;
	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm),
	                 BATON_OK);
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Finalize();
}
END_TEST

START_TEST(a_rank_without_memory_tells_the_others)
{
	struct baton_comm *comm = NULL;
	long blocks = batoni_mem_blocks();
	unsigned long n;

	start_mpi(MPI_THREAD_MULTIPLE);
	for (n = 1;; n++) {
		enum baton_status status;

		if (rank == 1)
			batoni_mem_fail_at(n);
		status = baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm);
		if (status == BATON_OK)
			break;
		ck_assert_int_eq(status, BATON_ERR_NOMEM);
		ck_assert_ptr_null(comm);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
		if (rank == 0)
			ck_assert_ptr_nonnull(
				strstr(baton_last_error(), "rank 1"));
	}
	batoni_mem_fail_at(0);
	/* The transport's seven, and some of the engine's. */
	ck_assert_uint_gt(n, 8);
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Finalize();
}
END_TEST

/* ---- a transport over this one ---- */

/* It does not open: both ranks give up an exchange.  Rank 1 begins its own when the creation of
 * rank 0 is over. */
static enum baton_status
give_an_exchange_up(struct batoni_native *native, struct batoni_transport *mpi,
                    struct batoni_transport **transport_p)
{
	int32_t mine = 0, all[2];
	enum baton_status status;

	(void)native;
	(void)transport_p;
	if (rank == 1)
		MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD,
		         MPI_STATUS_IGNORE);
	batoni_engine_calls.driver_lock();
	status = mpi->ops->exchanging->exchange(mpi, 1, &mine, sizeof(mine), all);
	batoni_engine_calls.driver_unlock();
	ck_assert_int_eq(status, BATON_PENDING);
	return batoni_refuse(BATON_ERR_TIMEOUT, "it has waited");
}

START_TEST(an_exchange_that_a_creation_gives_up_keeps_its_memory)
{
	const struct batoni_native_ops native =
		fake_native_ops(give_an_exchange_up);
	struct batoni_creation creation;
	struct baton_comm *comm = NULL;
	struct batoni_comm_setup plan;
	long blocks;

	start_mpi(MPI_THREAD_MULTIPLE);
	ck_assert_int_eq(batoni_comm_setup(NULL, &plan), BATON_OK);
	/* Whose memory that transport moves. */
	batoni_comm_setup_on(&plan, &batoni_fake_device_ops);
	plan.transport = BATON_TRANSPORT_NCCL;
	plan.onesided = false;
	blocks = batoni_mem_blocks();
	batoni_native_put(&native);
	batoni_creation_begin(&creation, &plan, BATON_OK);
	ck_assert_int_eq(batoni_world_of(BATON_TRANSPORT_MPI)
	                         ->join(&batoni_engine_calls, 0,
	                                &creation.bootstrap),
	                 BATON_OK);
	ck_assert_int_eq(batoni_creation_run(&creation, &comm),
	                 BATON_ERR_TIMEOUT);
	ck_assert_str_eq(baton_last_error(), "it has waited");
	batoni_native_put(NULL);
	ck_assert_int_eq(fake_natives_alive(), 0);
	ck_assert_ptr_null(comm);
	/* What MPI reduces into, and nothing else.  On rank 1 MPI may have it done. */
	if (rank == 0) {
		ck_assert_int_eq(batoni_mem_blocks(), blocks + 1);
		MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD);
	} else {
		ck_assert_int_le(batoni_mem_blocks(), blocks + 1);
	}
	/* MPI goes on with it meanwhile. */
	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm),
	                 BATON_OK);
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Finalize();
}
END_TEST

/* ---- what is made ---- */

START_TEST(the_parent_is_left_as_it_was)
{
	MPI_Errhandler before, after;
	struct baton_comm *comm;
	MPI_Comm parent;
	int size;

	start_mpi(MPI_THREAD_MULTIPLE);
	MPI_Comm_dup(MPI_COMM_WORLD, &parent);
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
	ck_assert_int_eq(baton_comm_create_mpi(parent, NULL, &comm), BATON_OK);
	MPI_Comm_free(&parent);
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
	ck_assert(before == after);
	MPI_Errhandler_free(&before);
	MPI_Errhandler_free(&after);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	ck_assert_int_eq(size, 2);
	MPI_Finalize();
}
END_TEST

START_TEST(ranks_are_those_of_the_parent)
{
	struct baton_comm *comm;
	MPI_Comm turned;

	start_mpi(MPI_THREAD_MULTIPLE);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
	ck_assert_int_eq(baton_comm_create_mpi(turned, NULL, &comm), BATON_OK);
	ck_assert_int_eq(baton_comm_rank(comm), 1 - rank);
	ck_assert_int_eq(baton_comm_size(comm), 2);
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Comm_free(&turned);
	MPI_Finalize();
}
END_TEST

/* This thread may not call MPI beyond its questions about threads. */
static _Thread_local bool is_elsewhere;

/* Instead of MPI's. */
int
MPI_Comm_size(MPI_Comm comm, int *size)
{
	ck_assert(!is_elsewhere);
	return PMPI_Comm_size(comm, size);
}

static void *
create_elsewhere(void *arg)
{
	struct baton_comm *comm = NULL;

	(void)arg;
	is_elsewhere = true;
	refused(MPI_COMM_WORLD, NULL, &comm, BATON_ERR_INVALID,
	        "MPI_THREAD_FUNNELED");
	ck_assert_int_eq(baton_comm_create(NULL, &comm), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             "MPI_THREAD_FUNNELED"));
	return NULL;
}

START_TEST(funneled_mpi_is_for_the_main_thread)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_comm *comm;
	pthread_t thread;

	start_mpi(MPI_THREAD_FUNNELED);
	ck_assert_int_eq(pthread_create(&thread, NULL, create_elsewhere, NULL),
	                 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm),
	                 BATON_OK);
	ck_assert_int_eq(baton_comm_query(comm, &info), BATON_OK);
	ck_assert(!info.engine_thread);
	ck_assert_ptr_nonnull(strstr(info.library, "MPI_THREAD_FUNNELED"));
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Finalize();
}
END_TEST

/* Create and destroy with standard error in a file; what was written there. */
static size_t
said_at_creation(enum baton_progress progress, char *text, size_t size)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	FILE *file = tmpfile();
	int kept = dup(STDERR_FILENO);
	struct baton_comm *comm;
	size_t n;

	options.progress = progress;
	dup2(fileno(file), STDERR_FILENO);
	ck_assert_int_eq(
		baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm),
		BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	dup2(kept, STDERR_FILENO);
	close(kept);
	rewind(file);
	n = fread(text, 1, size - 1, file);
	text[n] = '\0';
	fclose(file);
	return n;
}

START_TEST(mpi_without_threads_is_warned_of_once)
{
	char text[1024];

	start_mpi(MPI_THREAD_SINGLE);
	/* Who asks for it means it. */
	ck_assert_uint_eq(said_at_creation(BATON_PROGRESS_CALLS, text,
	                                   sizeof(text)),
	                  0);
	ck_assert_uint_gt(said_at_creation(BATON_PROGRESS_AUTO, text,
	                                   sizeof(text)),
	                  0);
	ck_assert_ptr_nonnull(strstr(text, "MPI_THREAD_SINGLE"));
	ck_assert_ptr_nonnull(strstr(text, "MPI_Init_thread"));
	ck_assert_uint_eq(said_at_creation(BATON_PROGRESS_AUTO, text,
	                                   sizeof(text)),
	                  0);
	MPI_Finalize();
}
END_TEST

/* ---- devices ---- */

/* The fake device needs the engine's thread, as CUDA does. */
static struct baton_comm_options
on_device(enum baton_progress progress)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	batoni_device_put(&batoni_fake_device_ops);
	options.device = BATON_DEVICE_CUDA;
	options.progress = progress;
	return options;
}

static void
works(const struct baton_comm_options *options, bool engine_thread)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_comm *comm;

	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, options, &comm),
	                 BATON_OK);
	ck_assert_int_eq(baton_comm_query(comm, &info), BATON_OK);
	ck_assert(info.engine_thread == engine_thread);
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
}

START_TEST(device_that_needs_the_engines_thread_is_refused_without_it)
{
	struct baton_comm_options options = on_device(BATON_PROGRESS_AUTO);
	struct baton_comm *comm = NULL;

	start_mpi(MPI_THREAD_SERIALIZED);
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_UNSUPPORTED,
	        "MPI runs at MPI_THREAD_SERIALIZED, so the engine's thread may "
	        "not move transfers, and a call of the fake device");
	/* The other rank is told. */
	if (rank == 1)
		options.device = BATON_DEVICE_HOST;
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_UNSUPPORTED,
	        rank == 0 ? "BATON_PROGRESS_CALLS" : "rank 0");
	ck_assert_ptr_null(comm);
	/* The program's two ways to ask for it. */
	options = on_device(BATON_PROGRESS_CALLS);
	works(&options, false);
	options = on_device(BATON_PROGRESS_THREAD);
	works(&options, true);
	MPI_Finalize();
}
END_TEST

/* Over the simulated driver. */
START_TEST(cuda_needs_the_engines_thread)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	setenv("BATON_CUDA_LIBRARY", CUDASIM_PATH, 1);
	options.device = BATON_DEVICE_CUDA;
	start_mpi(MPI_THREAD_SERIALIZED);
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_UNSUPPORTED,
	        "a call of the cuda device that waits for a stream would never "
	        "return");
	options.progress = BATON_PROGRESS_CALLS;
	works(&options, false);
	MPI_Finalize();
}
END_TEST

/* What MPI says, in place of the library's own function, which no other call overlaps. */
static int cuda_aware;

int MPIX_Query_cuda_support(void);

int
MPIX_Query_cuda_support(void)
{
	ck_assert_ptr_eq(atomic_load(&batoni_engine.driver),
	                 batoni_this_thread());
	return cuda_aware;
}

/* Over the simulated driver; the environment is not read yet. */
static struct baton_comm_options
on_cuda(bool aware, const char *asked)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	cuda_aware = aware;
	setenv("BATON_CUDA_LIBRARY", CUDASIM_PATH, 1);
	if (asked)
		setenv("BATON_MPI_CUDA", asked, 1);
	options.device = BATON_DEVICE_CUDA;
	return options;
}

/* A communicator that passes device memory to MPI as it is, or not, and carries memory of
 * the host in either case. */
static struct baton_comm *
reaching(const struct baton_comm_options *options, bool direct)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct baton_comm_info info = {.size = sizeof(info)};
	int out = 40 + rank, in = 0, peer = 1 - rank;
	baton_request requests[2];
	struct baton_comm *comm;
	baton_stream stream;

	detached.flags = BATON_OP_DETACHED;
	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, options, &comm),
	                 BATON_OK);
	ck_assert_int_eq(baton_comm_query(comm, &info), BATON_OK);
	ck_assert_msg((strstr(info.library, ", CUDA-aware") != NULL) == direct,
	              "%s", info.library);
	ck_assert_int_eq(baton_stream_create(comm, &stream), BATON_OK);
	ck_assert_int_eq(baton_send(&out, 1, BATON_INT32, peer, 1, comm, stream,
	                            &detached, &requests[0]),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(&in, 1, BATON_INT32, peer, 1, comm, stream,
	                            NULL, &requests[1]),
	                 BATON_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_finish(&requests[i], -1, NULL), BATON_OK);
	ck_assert_int_eq(in, 40 + peer);
	ck_assert_int_eq(baton_stream_synchronize(comm, stream), BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(comm, stream), BATON_OK);
	return comm;
}

START_TEST(mpi_that_is_cuda_aware_gets_device_memory_as_it_is)
{
	struct baton_comm_options options = on_cuda(true, NULL);
	struct baton_comm *comm;
	int number = 0;

	start_mpi(MPI_THREAD_MULTIPLE);
	comm = reaching(&options, true);
	/* MPI's own copies could stand behind it. */
	ck_assert_int_eq(baton_recv(&number, 1, BATON_INT32, rank, 0, comm, NULL,
	                            NULL, NULL),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             "the stream is the legacy default one"));
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Finalize();
}
END_TEST

START_TEST(one_rank_that_stages_makes_all_stage)
{
	struct baton_comm_options options;

	start_mpi(MPI_THREAD_MULTIPLE);
	options = on_cuda(true, rank == 1 ? "staged" : NULL);
	ck_assert_int_eq(baton_comm_destroy(reaching(&options, false)), BATON_OK);
	MPI_Finalize();
}
END_TEST

START_TEST(one_rank_whose_mpi_is_not_cuda_aware_makes_all_stage)
{
	struct baton_comm_options options;

	start_mpi(MPI_THREAD_MULTIPLE);
	options = on_cuda(rank == 1, "auto");
	ck_assert_int_eq(baton_comm_destroy(reaching(&options, false)), BATON_OK);
	MPI_Finalize();
}
END_TEST

START_TEST(device_memory_that_only_one_rank_passes_to_mpi_is_refused_on_all)
{
	struct baton_comm_options options;
	struct baton_comm *comm = NULL;

	start_mpi(MPI_THREAD_MULTIPLE);
	options = on_cuda(false, rank == 1 ? "direct" : NULL);
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_INVALID,
	        "BATON_MPI_CUDA is direct on rank 1, and on rank 0 it is staged, "
	        "or not set where MPI does not say that it is CUDA-aware");
	/* One on the host need not say anything. */
	if (rank == 0)
		options.device = BATON_DEVICE_HOST;
	comm = reaching(&options, rank == 1);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	MPI_Finalize();
}
END_TEST

START_TEST(funneled_mpi_leaves_a_device_to_calls)
{
	struct baton_comm_options options = on_device(BATON_PROGRESS_THREAD);
	struct baton_comm *comm = NULL;

	start_mpi(MPI_THREAD_FUNNELED);
	refused(MPI_COMM_WORLD, &options, &comm, BATON_ERR_UNSUPPORTED,
	        "MPI runs at MPI_THREAD_FUNNELED, so");
	options = on_device(BATON_PROGRESS_CALLS);
	works(&options, false);
	MPI_Finalize();
}
END_TEST

/* Whether the launcher tells or not: there is one host, so the numbers are the ranks. */
START_TEST(ranks_of_a_host_take_the_devices_in_turn)
{
	struct baton_comm_options options = on_device(BATON_PROGRESS_AUTO);

	start_mpi(MPI_THREAD_MULTIPLE);
	for (int told = 1; told >= 0; told--) {
		struct baton_comm_info info = {.size = sizeof(info)};
		struct baton_comm *comm;

		if (!told) {
			unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
			unsetenv("MPI_LOCALRANKID");
			unsetenv("SLURM_LOCALID");
			unsetenv("FLUX_TASK_LOCAL_ID");
			unsetenv("PALS_LOCAL_RANKID");
		}
		ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, &options,
		                                       &comm),
		                 BATON_OK);
		ck_assert_int_eq(baton_comm_query(comm, &info), BATON_OK);
		ck_assert_int_eq(info.cuda_device, rank);
		ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	}
	MPI_Finalize();
}
END_TEST

/* ---- the end of MPI ---- */

START_TEST(mpi_that_baton_started_is_finalised_at_exit)
{
	struct baton_comm *comm = world();

	leaving = FINALIZED;
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
}
END_TEST

/* The mask of a thread of this process, as the kernel tells it. */
static unsigned long long
blocked_by(const char *thread)
{
	unsigned long long mask = 0;
	char path[300], line[200];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "SigBlk: %llx", &mask);
	if (file)
		fclose(file);
	return mask;
}

/* MPI's threads and ours: a program that blocks SIGTERM and waits for it must get it. */
START_TEST(threads_that_baton_or_mpi_starts_block_the_programs_signals)
{
	struct baton_comm *comm = world();
	DIR *threads = opendir("/proc/self/task");
	const struct dirent *entry;
	int others = 0;

	leaving = FINALIZED;
	exchange(comm);
	ck_assert_ptr_nonnull(threads);
	while ((entry = readdir(threads))) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
			continue;
		others++;
		ck_assert_msg(blocked_by(entry->d_name) >> (SIGTERM - 1) & 1u,
		              "thread %s takes SIGTERM", entry->d_name);
	}
	closedir(threads);
	ck_assert_int_gt(others, 0);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
}
END_TEST

/* A receive that nothing will match, a send that nobody will receive. */
START_TEST(a_communicator_left_alive_does_not_hinder_the_exit)
{
	static char large[1u << 20], in[100];
	struct baton_comm *comm = world();

	leaving = FINALIZED;
	exchange(comm);
	ck_assert_int_eq(baton_recv(in, sizeof(in), BATON_INT8, 1 - rank, 5,
	                            comm, NULL, NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_send(large, sizeof(large), BATON_INT8, 1 - rank,
	                            6, comm, NULL, NULL, NULL),
	                 BATON_OK);
}
END_TEST

START_TEST(a_child_of_fork_leaves_mpi_alone)
{
	struct baton_comm *comm = world();
	int status = -1;
	pid_t child;

	leaving = FINALIZED;
	exchange(comm);
	child = fork();
	if (child == 0) {
		/* Runs the exit handlers that it has inherited. */
		leaving = AS_IT_IS;
		exit(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm) ==
		                     BATON_ERR_INVALID
		             ? 0
		             : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	exchange(comm);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
}
END_TEST

START_TEST(finalising_mpi_first_aborts_what_is_pending)
{
	static char large[1u << 20], in[100];
	struct baton_comm *comm;
	baton_request recv, send;

	start_mpi(MPI_THREAD_MULTIPLE);
	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm),
	                 BATON_OK);
	exchange(comm);
	/* They name no rank that may have finalised MPI before. */
	ck_assert_int_eq(baton_recv(in, sizeof(in), BATON_INT8, rank, 5,
	                            comm, NULL, NULL, &recv),
	                 BATON_OK);
	ck_assert_int_eq(baton_send(large, sizeof(large), BATON_INT8, rank,
	                            6, comm, NULL, NULL, &send),
	                 BATON_OK);
	MPI_Finalize();
	ck_assert_int_eq(baton_test(recv, NULL), BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_test(send, NULL), BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_ABORTED);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comm), "MPI_Finalize"));
	ck_assert_int_eq(baton_recv(in, 1, BATON_INT8, 0, 0, comm, NULL, NULL,
	                            NULL),
	                 BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_int_eq(baton_comm_create(NULL, &comm), BATON_ERR_INVALID);
}
END_TEST

/* ---- */

int
main(int argc, char **argv)
{
	const TTest *const tests[] = {
		arguments_are_refused,
		a_rank_that_is_refused_tells_the_others,
		signals_and_contexts_that_differ_are_refused_on_all,
		ranks_of_two_versions_refuse_each_other,
		a_rank_without_memory_tells_the_others,
		an_exchange_that_a_creation_gives_up_keeps_its_memory,
		the_parent_is_left_as_it_was,
		ranks_are_those_of_the_parent,
		funneled_mpi_is_for_the_main_thread,
		mpi_without_threads_is_warned_of_once,
		device_that_needs_the_engines_thread_is_refused_without_it,
		cuda_needs_the_engines_thread,
		mpi_that_is_cuda_aware_gets_device_memory_as_it_is,
		one_rank_that_stages_makes_all_stage,
		one_rank_whose_mpi_is_not_cuda_aware_makes_all_stage,
		device_memory_that_only_one_rank_passes_to_mpi_is_refused_on_all,
		funneled_mpi_leaves_a_device_to_calls,
		ranks_of_a_host_take_the_devices_in_turn,
		mpi_that_baton_started_is_finalised_at_exit,
		threads_that_baton_or_mpi_starts_block_the_programs_signals,
		a_communicator_left_alive_does_not_hinder_the_exit,
		a_child_of_fork_leaves_mpi_alone,
		finalising_mpi_first_aborts_what_is_pending,
		communicators_take_memory_as_it_is_used,
	};
	Suite *suite = suite_create("mpi_bootstrap");
	TCase *tcase = tcase_create("mpi_bootstrap");
	SRunner *runner;
	int run, failed;

	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		if (argc == 2 && strcmp(argv[1], tests[i]->name) == 0)
			tcase_add_test(tcase, tests[i]);
	}
	atexit(check_leaving);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	run = srunner_ntests_run(runner);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (run == 0)
		fprintf(stderr, "usage: test_mpi_bootstrap TEST\n");
	/* The other rank may wait for this one: end it too. */
	if (failed) {
		fflush(stdout);
		MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
	}
	return run == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
