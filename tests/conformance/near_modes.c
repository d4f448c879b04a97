/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that only compute, or whose main thread has ended, with messages through shared memory
 * (transport/near/).
 *
 *   near_modes MODE
 *
 * The two ranks are processes, which meet by an id.
 *
 *   signals   rank 1 computes and makes no call, while rank 0 sends it more signals, as messages, than a
 *             ring has cells; all end, and both destroy the communicator
 *   main      the main thread of rank 1 ends (pthread_exit) when another thread of it has created the
 *             communicator: nobody can read the process's memory then, and its long messages arrive
 *   sleep     neither rank has an engine's thread (BATON_PROGRESS_CALLS), and both sleep on the descriptors of
 *             two queues: only the other's messages wake them
 */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "program.h"
#include "shared_memory.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
/* For a loaded machine. */
#define LATEST (30 * SECOND)

enum { RANKS = 2, SIGNALS = 5000, LONG = 5 << 20 };

static struct shared {
	struct baton_unique_id id;
	_Atomic int has_id;
	_Atomic int done;
} *shared;

static int rank;
static struct baton_comm *comm;
static sem_t created;
static enum baton_progress progress = BATON_PROGRESS_AUTO;
static unsigned char from[LONG], to[LONG];

static void
pause_ms(void)
{
	const struct timespec t = { 0, MS };

	nanosleep(&t, NULL);
}

static void
create(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.requests_max = 2 * SIGNALS;
	options.timeout_ns = LATEST;
	options.progress = progress;
	if (rank == 0) {
		CHECK(baton_unique_id_create(&shared->id) == BATON_OK);
		atomic_store(&shared->has_id, 1);
	}
	while (!atomic_load(&shared->has_id))
		pause_ms();
	CHECK(baton_comm_create_id(RANKS, rank, &shared->id, &options, &comm) ==
	      BATON_OK);
	if (!comm)
		_exit(exit_status());
}

/* ---- signals ---- */

static void
send_signals(void)
{
	static baton_request requests[SIGNALS];
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	for (int i = 0; i < SIGNALS; i++)
		CHECK(baton_signal(1, 0, 0, 0, comm, NULL, &detached,
		                   &requests[i]) == BATON_OK);
	for (int i = 0; i < SIGNALS && failures == 0; i++)
		CHECK(baton_finish(&requests[i], LATEST, NULL) == BATON_OK);
	atomic_store(&shared->done, 1);
}

static void
compute(void)
{
	uint64_t count = 0;

	while (!atomic_load(&shared->done))
		pause_ms();
	/* They have ended where they came from, and are on their way. */
	for (int64_t waited = 0; count < SIGNALS && waited < LATEST; waited += MS) {
		CHECK(baton_signal_count(comm, 0, 0, 0, &count) == BATON_OK);
		pause_ms();
	}
	CHECK(count == SIGNALS);
}

static int
signal_one_that_computes(void)
{
	create();
	if (rank == 0)
		send_signals();
	else
		compute();
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	return exit_status();
}

/* ---- main ---- */

/* Until the main thread has ended: the kernel then reads no memory of this process for anybody. */
static void
await_unread(void)
{
	char byte = 0, copy = 0;
	const struct iovec source = { &byte, 1 }, target = { &copy, 1 };

	while (process_vm_readv(getpid(), &target, 1, &source, 1, 0) == 1)
		pause_ms();
}

static void
fill_long(unsigned char *bytes, int of)
{
	for (size_t i = 0; i < LONG; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256 + (size_t)of);
}

static void
exchange(void)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request in = 0, out = 0;

	detached.flags = BATON_OP_DETACHED;
	fill_long(from, rank);
	CHECK(baton_send(from, LONG, BATON_UINT8, 1 - rank, 0, comm, NULL,
	                 &detached, &out) == BATON_OK);
	CHECK(baton_recv(to, LONG, BATON_UINT8, 1 - rank, 0, comm, NULL,
	                 &detached, &in) == BATON_OK);
	CHECK(baton_finish(&in, LATEST, NULL) == BATON_OK);
	CHECK(baton_finish(&out, LATEST, NULL) == BATON_OK);
	fill_long(from, 1 - rank);
	CHECK(memcmp(from, to, LONG) == 0);
}

static void *
be_rank_1(void *unused)
{
	create();
	sem_post(&created);
	await_unread();
	exchange();
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	exit(exit_status());
	return unused;
}

static int
exchange_with_one_without_main_thread(void)
{
	pthread_t thread;

	if (rank == 1) {
		sem_init(&created, 0, 0);
		CHECK(pthread_create(&thread, NULL, be_rank_1, NULL) == 0);
		sem_wait(&created);
		pthread_exit(NULL);
	}
	create();
	exchange();
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	return exit_status();
}

/* ---- sleep ---- */

enum { TURNS = 500, SHORT = 64, ANNOUNCED = 20000, TABLES = 2 };

/* A message there and one back at a time, on a tag. */
static struct table {
	int tag;
	struct baton_queue *queue;
	unsigned char out[ANNOUNCED], in[ANNOUNCED];
	unsigned received, sent;
} tables[TABLES];

static void
begin(struct table *table, bool send, unsigned turn)
{
	size_t bytes = turn % 4 ? SHORT : ANNOUNCED;
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	options.queue = table->queue;
	options.user_data = send;
	if (send) {
		memset(table->out, (int)turn, bytes);
		CHECK(baton_send(table->out, bytes, BATON_UINT8, 1 - rank, table->tag,
		                 comm, NULL, &options, NULL) == BATON_OK);
	} else {
		CHECK(baton_recv(table->in, bytes, BATON_UINT8, 1 - rank, table->tag,
		                 comm, NULL, &options, NULL) == BATON_OK);
	}
}

static void
go_on(struct table *table, const struct baton_completion *done)
{
	unsigned turn;

	CHECK(done->status == BATON_OK);
	if (done->user_data) {
		table->sent++;
		return;
	}
	turn = table->received++;
	CHECK(table->in[0] == (unsigned char)turn &&
	      table->in[(turn % 4 ? SHORT : ANNOUNCED) - 1] == (unsigned char)turn);
	if (turn + 1 < TURNS)
		begin(table, false, turn + 1);
	if (rank == 1)
		begin(table, true, turn);
	else if (turn + 1 < TURNS)
		begin(table, true, turn + 1);
}

static bool
is_over(const struct table *table)
{
	return table->received == TURNS &&
	       table->sent == TURNS;
}

static void
serve(void)
{
	struct pollfd readable[TABLES];
	struct baton_completion done;
	bool all = false, armed;

	while (!all && failures == 0) {
		all = armed = true;
		for (int i = 0; i < TABLES; i++) {
			while (baton_queue_poll(tables[i].queue, &done, 1))
				go_on(&tables[i], &done);
			all &= is_over(&tables[i]);
		}
		for (int i = 0; i < TABLES; i++) {
			armed &= baton_queue_arm(tables[i].queue) == BATON_OK;
			readable[i] = (struct pollfd){
				.fd = baton_queue_fd(tables[i].queue),
				.events = POLLIN};
		}
		if (!all && armed)
			CHECK(poll(readable, TABLES, (int)(LATEST / MS)) > 0);
	}
}

static int
sleep_on_descriptors(void)
{
	progress = BATON_PROGRESS_CALLS;
	create();
	for (int i = 0; i < TABLES; i++) {
		tables[i].tag = i;
		CHECK(baton_queue_create(comm, 4, &tables[i].queue) == BATON_OK);
		begin(&tables[i], false, 0);
		if (rank == 0)
			begin(&tables[i], true, 0);
	}
	serve();
	for (int i = 0; i < TABLES; i++)
		baton_queue_destroy(tables[i].queue);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	return exit_status();
}

/* ---- ranks ---- */

static int
run_ranks(int (*be_rank)(void))
{
	int worst = 0;

	for (rank = 0; rank < RANKS; rank++) {
		pid_t child = fork();

		if (child < 0)
			abort();
		if (child == 0) {
			/* A rank that hangs dies of it. */
			alarm(120);
			exit(be_rank());
		}
	}
	for (int i = 0; i < RANKS; i++) {
		int status;

		wait(&status);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			worst = 1;
	}
	return worst;
}

int
main(int argc, char **argv)
{
	shared = shared_alloc(sizeof(*shared));
	if (argc > 1 && strcmp(argv[1], "signals") == 0) {
		setenv("BATON_WINDOW_PATH", "message", 1);
		return run_ranks(signal_one_that_computes);
	}
	if (argc > 1 && strcmp(argv[1], "main") == 0)
		return run_ranks(exchange_with_one_without_main_thread);
	if (argc > 1 && strcmp(argv[1], "sleep") == 0)
		return run_ranks(sleep_on_descriptors);
	return 2;
}
