/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each progress mode on the host and on the CUDA device, in a program that has started MPI at one
 * thread level:
 *
 *   mpirun -n 2 mpi_modes single|funneled|serialized|multiple
 *
 * A mode that the level leaves without a thread is refused on the CUDA device, on all ranks and
 * with a sentence.  With the others each rank sends lists of tensors to the next one, puts into
 * its window, waits for its signals, and launches a plan of all that: first the thread that started
 * MPI alone, then another thread, which waits itself while that one makes progress or waits for it.
 * A queue's descriptor wakes its program wherever the mode says that it does.  Calls that the
 * level forbids to another thread are refused there, and have changed nothing.
 *
 * mpi_watch.h sees that no thread is in MPI that may not be.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "baton_mpi.h"
#include "cudasim.h"
#include "program.h"

enum {
	SMALL = 37,
	ROWS = 3,
	COLUMNS = 1000,
	LARGE = 200000,
	TENSORS = 4,
	/* Where the large one is in both buffers, and where arenas begin. */
	AT_LARGE = 16384,
	ARENA = AT_LARGE + LARGE + 256,
	PUT = 5000,
	PART = 16384,
	ROOM = 1 << 18,
	LAUNCHES = 20
};

static const struct cudasim *sim;
static int level, rank, size;

/* One communicator, and what this rank has for it. */
struct world {
	enum baton_device device;
	enum baton_progress progress;
	struct baton_comm *comm;
	baton_stream stream;
	struct baton_window *window;
	unsigned char *from, *to, *part; /* of the device */
	unsigned char value;             /* of what is sent next, less the rank */
	atomic_bool over;
};

static int
next_in_ring(void)
{
	return (rank + 1) % size;
}

static int
previous(void)
{
	return (rank + size - 1) % size;
}

/* ---- memory of either device ---- */

static void
set_content(const struct world *w, unsigned char *at, size_t bytes, int value)
{
	static unsigned char content[ROOM];

	memset(content, value, bytes);
	if (w->device == BATON_DEVICE_CUDA)
		sim->sim_poke((CUdeviceptr)(uintptr_t)at, content, bytes);
	else
		memcpy(at, content, bytes);
}

static bool
holds(const struct world *w, const unsigned char *at, size_t bytes, int value)
{
	static unsigned char view[ROOM];

	if (w->device == BATON_DEVICE_CUDA)
		sim->sim_peek(view, (CUdeviceptr)(uintptr_t)at, bytes);
	else
		memcpy(view, at, bytes);
	for (size_t i = 0; i < bytes; i++)
		if (view[i] != (unsigned char)value)
			return false;
	return true;
}

static unsigned char *
take_memory(const struct world *w, size_t bytes)
{
	CUdeviceptr memory = 0;

	if (w->device != BATON_DEVICE_CUDA)
		return calloc(1, bytes);
	CHECK(sim->mem_alloc(&memory, bytes) == 0);
	return (unsigned char *)(uintptr_t)memory;
}

static void
give_memory(const struct world *w, unsigned char *memory)
{
	if (w->device == BATON_DEVICE_CUDA)
		CHECK(sim->mem_free((CUdeviceptr)(uintptr_t)memory) == 0);
	else
		free(memory);
}

/* ---- what a rank enqueues ---- */

static void
describe(struct baton_tensor list[TENSORS], unsigned char *base)
{
	list[0] = (struct baton_tensor){base, BATON_UINT8, 1, {SMALL}};
	list[1] = (struct baton_tensor){
		base + 64, BATON_FLOAT32, 2, {ROWS, COLUMNS}};
	list[2] = (struct baton_tensor){base + AT_LARGE, BATON_UINT8, 1, {LARGE}};
	list[3] = (struct baton_tensor){base, BATON_INT32, 2, {7, 0}};
}

/* The second tensor and the last one are open, and go to the arena. */
static void
declare(const struct world *w, struct baton_tensor list[TENSORS])
{
	describe(list, w->to);
	list[1] = (struct baton_tensor){NULL, BATON_FLOAT32, 2, {-1, COLUMNS}};
	list[3] = (struct baton_tensor){NULL, BATON_UINT8, -1, {0}};
}

static bool
lists_are_there(const struct world *w, const struct baton_tensor list[TENSORS],
                int value)
{
	return list[1].data == w->to + ARENA && list[1].shape[0] == ROWS &&
	       list[3].type == BATON_INT32 && list[3].rank == 2 &&
	       list[3].shape[0] == 7 && list[3].shape[1] == 0 &&
	       holds(w, w->to, SMALL, value) &&
	       holds(w, w->to + AT_LARGE, LARGE, value) &&
	       holds(w, w->to + ARENA, (size_t)4 * ROWS * COLUMNS, value);
}

/* requests: 4, or NULL in a plan. */
static void
enqueue(struct world *w, struct baton_tensor list[TENSORS],
        baton_request requests[4])
{
	struct baton_tensors_options arena = BATON_TENSORS_OPTIONS_INIT;
	struct baton_wait_signal_desc one = {1, previous(), 0, 0};
	struct baton_tensor mine[TENSORS];

	arena.arena = w->to + ARENA;
	arena.arena_bytes = ROOM - ARENA;
	describe(mine, w->from);
	declare(w, list);
	CHECK(baton_group_begin(w->comm) == BATON_OK);
	CHECK(baton_send_tensors(mine, TENSORS, next_in_ring(), 3, w->comm, w->stream,
	                         NULL, requests ? &requests[0] : NULL) ==
	      BATON_OK);
	CHECK(baton_recv_tensors(list, TENSORS, previous(), 3, w->comm, w->stream,
	                         &arena, requests ? &requests[1] : NULL) ==
	      BATON_OK);
	CHECK(baton_group_end(w->comm) == BATON_OK);
	CHECK(baton_put_signal(w->from, PUT, BATON_UINT8, next_in_ring(), w->window, 100,
	                       0, 0, 0, w->comm, w->stream, NULL,
	                       requests ? &requests[2] : NULL) == BATON_OK);
	CHECK(baton_wait_signal(1, &one, w->comm, w->stream, NULL,
	                        requests ? &requests[3] : NULL) == BATON_OK);
}

static void
new_value(struct world *w)
{
	w->value = (unsigned char)(w->value + 2);
	set_content(w, w->from, ARENA, w->value + rank);
}

static void
exchange(struct world *w)
{
	struct baton_tensor list[TENSORS];
	baton_request requests[4] = {0};
	int value = w->value + previous();

	enqueue(w, list, requests);
	for (int i = 0; i < 4; i++)
		CHECK(baton_finish(&requests[i], -1, NULL) == BATON_OK);
	CHECK(lists_are_there(w, list, value));
	CHECK(holds(w, w->part + 100, PUT, value));
}

static void
launch(struct world *w)
{
	baton_request requests[LAUNCHES] = {0};
	struct baton_tensor list[TENSORS];
	struct baton_plan *plan = NULL;

	CHECK(baton_plan_begin(w->comm) == BATON_OK);
	enqueue(w, list, NULL);
	CHECK(baton_plan_end(w->comm, &plan) == BATON_OK);
	for (int i = 0; plan && i < LAUNCHES; i++)
		CHECK(baton_plan_launch(plan, NULL, &requests[i]) == BATON_OK);
	for (int i = 0; i < LAUNCHES; i++)
		CHECK(baton_finish(&requests[i], -1, NULL) == BATON_OK);
	CHECK(lists_are_there(w, list, w->value + previous()));
	CHECK(baton_plan_destroy(plan) == BATON_OK);
}

/* The descriptor wakes, except with BATON_PROGRESS_CALLS, where the program looks. */
static void
poll_a_queue(struct world *w)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion done[2];
	struct baton_queue *queue = NULL;
	size_t n = 0;

	CHECK(baton_queue_create(w->comm, 4, &queue) == BATON_OK);
	options.queue = queue;
	CHECK(baton_recv(w->to, PUT, BATON_UINT8, previous(), 5, w->comm,
	                 w->stream, &options, NULL) == BATON_OK);
	options.flags = BATON_OP_DETACHED;
	CHECK(baton_send(w->from, PUT, BATON_UINT8, next_in_ring(), 5, w->comm, NULL,
	                 &options, NULL) == BATON_OK);
	while (n < 2) {
		struct pollfd entry = {baton_queue_fd(queue), POLLIN, 0};
		enum baton_status armed = baton_queue_arm(queue);
		size_t more;

		CHECK(armed == BATON_OK || armed == BATON_PENDING);
		if (armed == BATON_OK)
			(void)poll(&entry, 1,
			           w->progress == BATON_PROGRESS_CALLS ? 1 : -1);
		more = baton_queue_poll(queue, &done[n], 2 - n);
		for (size_t i = 0; i < more; i++)
			CHECK(done[n + i].status == BATON_OK);
		n += more;
	}
	CHECK(holds(w, w->to, PUT, w->value + previous()));
	baton_queue_destroy(queue);
}

/* ---- another thread ---- */

static void *
exchange_elsewhere(void *argument)
{
	struct world *w = argument;

	exchange(w);
	launch(w);
	atomic_store(&w->over, true);
	return NULL;
}

/* Below SERIALIZED it needs the main thread inside Baton. */
static void
let_another_exchange(struct world *w)
{
	pthread_t thread;

	atomic_store(&w->over, false);
	CHECK(pthread_create(&thread, NULL, exchange_elsewhere, w) == 0);
	while (level < MPI_THREAD_SERIALIZED && !atomic_load(&w->over))
		(void)baton_progress(w->comm);
	pthread_join(thread, NULL);
}

static void
must_be_refused(enum baton_status status, enum baton_status as, const char *why)
{
	CHECK(status == as);
	CHECK(strstr(baton_last_error(), why));
}

static void *
call_what_is_forbidden(void *argument)
{
	struct world *w = argument;
	struct baton_window *window = NULL;
	struct baton_comm *comm = NULL;

	must_be_refused(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm),
	                BATON_ERR_INVALID, "MPI_THREAD_");
	must_be_refused(baton_window_register(w->part, PART, w->comm, &window),
	                BATON_ERR_INVALID, "main thread");
	must_be_refused(baton_window_deregister(w->window), BATON_ERR_INVALID,
	                "main thread");
	CHECK(!comm && !window);
	return NULL;
}

static void *
destroy_where_it_is_forbidden(void *argument)
{
	struct world *w = argument;

	must_be_refused(baton_comm_destroy(w->comm), BATON_ERR_INVALID,
	                "MPI_THREAD_");
	return NULL;
}

static void
forbid(struct world *w, void *(*call)(void *))
{
	pthread_t thread;

	if (level >= MPI_THREAD_SERIALIZED)
		return;
	CHECK(pthread_create(&thread, NULL, call, w) == 0);
	pthread_join(thread, NULL);
}

/* ---- each mode, each device ---- */

static bool
has_thread(enum baton_progress progress)
{
	return (level == MPI_THREAD_MULTIPLE &&
	        progress != BATON_PROGRESS_CALLS) ||
	       (level == MPI_THREAD_SERIALIZED &&
	        progress == BATON_PROGRESS_THREAD);
}

static bool
create(struct world *w)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm_info info = {.size = sizeof(info)};
	enum baton_status status;

	options.device = w->device;
	options.progress = w->progress;
	options.cuda_device = w->device == BATON_DEVICE_CUDA ? rank : -1;
	status = baton_comm_create_mpi(MPI_COMM_WORLD, &options, &w->comm);
	if (w->device == BATON_DEVICE_CUDA && !has_thread(w->progress) &&
	    w->progress != BATON_PROGRESS_CALLS) {
		must_be_refused(status, BATON_ERR_UNSUPPORTED,
		                "BATON_PROGRESS_CALLS");
		return false;
	}
	CHECK(status == BATON_OK);
	if (status != BATON_OK)
		return false;
	CHECK(baton_comm_query(w->comm, &info) == BATON_OK);
	CHECK(info.engine_thread == has_thread(w->progress));
	return true;
}

static void
run_world(struct world *w)
{
	if (!create(w))
		return;
	w->from = take_memory(w, ROOM);
	w->to = take_memory(w, ROOM);
	w->part = take_memory(w, PART);
	CHECK(baton_stream_create(w->comm, &w->stream) == BATON_OK);
	CHECK(baton_window_register(w->part, PART, w->comm, &w->window) ==
	      BATON_OK);
	new_value(w);
	exchange(w);
	launch(w);
	poll_a_queue(w);
	forbid(w, call_what_is_forbidden);
	MPI_Barrier(MPI_COMM_WORLD); /* the parts have been read */
	new_value(w);
	let_another_exchange(w);
	CHECK(baton_window_deregister(w->window) == BATON_OK);
	CHECK(baton_stream_synchronize(w->comm, w->stream) == BATON_OK);
	CHECK(baton_stream_destroy(w->comm, w->stream) == BATON_OK);
	forbid(w, destroy_where_it_is_forbidden);
	CHECK(baton_comm_destroy(w->comm) == BATON_OK);
	give_memory(w, w->from);
	give_memory(w, w->to);
	give_memory(w, w->part);
}

static void
run_all(void)
{
	static const enum baton_progress modes[] = {
		BATON_PROGRESS_AUTO, BATON_PROGRESS_THREAD, BATON_PROGRESS_CALLS};
	static const enum baton_device devices[] = {BATON_DEVICE_HOST,
		                                     BATON_DEVICE_CUDA};
	struct world w;

	for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++)
		for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
			memset(&w, 0, sizeof(w));
			w.device = devices[d];
			w.progress = modes[m];
			run_world(&w);
		}
}

int
main(int argc, char **argv)
{
	static const char *const names[] = {"single", "funneled", "serialized",
		                             "multiple"};
	static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED,
		                      MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
	int asked = MPI_THREAD_MULTIPLE, worst, all;
	CUcontext context;

	for (int i = 0; i < 4; i++)
		if (argc > 1 && strcmp(argv[1], names[i]) == 0)
			asked = levels[i];
	MPI_Init_thread(&argc, &argv, asked, &level);
	/* Some give more than was asked for: then there is nothing to see. */
	if (level != asked) {
		printf("SKIP: MPI gave thread level %d for %d\n", level, asked);
		MPI_Finalize();
		return 77;
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	sim = cudasim_load(NULL);
	CHECK(sim->init(0) == 0 && sim->primary_retain(&context, rank) == 0 &&
	      sim->context_push(context) == 0);
	mpi_watch(level);
	run_all();
	CHECK(mpi_watch_offences() == 0);
	CHECK(sim->sim_violations() == 0);
	worst = atomic_load(&failures);
	MPI_Allreduce(&worst, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	MPI_Finalize();
	return all ? 1 : 0;
}
