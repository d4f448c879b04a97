/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that dies, stops or aborts without MPI, with messages through shared memory under way
 * (transport/near/).
 *
 *   near_death STATE [ROUNDS [SEED]]
 *
 * Each round starts three ranks, which meet by an id.  They bring about the STATE, and at a random moment
 * behind that one of them is killed, is stopped and then killed, or aborts and destroys its
 * communicator; each rank at its turn, also rank 0, whose process relays the side channel.  The survivors
 * find their operations ended, in PEER where they had not ended in OK, and destroy the communicator.
 * The program prints the longest time from the strike to the end of the last operation.
 *
 *   receive     survivors have posted receives, from any rank and of any tag too
 *   announced   they have announced sends that the other has not matched
 *   read        the other reads what they send
 *   reading     they read what the other sends
 *   blocks      the same, from memory of baton_mem_alloc, which they have mapped
 *   blocks_unread  the same, where no rank may read another one's memory
 *   late        they meet announcements of the other when it has been struck
 *   chunks      long messages in both directions, by chunks
 *   full        sends wait for room in the ring
 *   short       short messages come: those that the other had sent arrive
 *   received    the same, and survivors receive them when it has been struck
 *   descriptor  survivors poll a queue's descriptor: the engine's thread alone looks
 *   between     survivors have messages among themselves
 *   stop        the other is stopped and goes on, many times: deadlines hold
 */
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "forbid_call.h"
#include "program.h"
#include "shared_memory.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
/* Of the strike's sight by a survivor: generous, for a loaded machine. */
#define LATEST (20 * SECOND)

enum { RANKS = 3, SHORTS = 600, FEW = 100, MANY = 3000, LARGE = 16 << 20, PART = 1 << 20 };
enum strike { KILL, STOP_AND_KILL, ABORT, STRIKES };

static struct shared {
	struct baton_unique_id id;
	_Atomic int has_id;
	_Atomic int ready; /* ranks that are in the state */
	_Atomic int64_t struck_ns; /* 0: not yet */
	_Atomic int64_t slowest_ns;
	_Atomic unsigned sent[RANKS]; /* to this rank, in OK */
	_Atomic unsigned timeouts;
} *shared;

static struct {
	enum strike strike;
	int victim, rank;
	struct baton_comm *comm;
} me;

static unsigned char large[LARGE], large_too[LARGE];

static int64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static void
pause_ns(int64_t ns)
{
	const struct timespec t = { ns / SECOND, ns % SECOND };

	nanosleep(&t, NULL);
}

static void
be_ready(void)
{
	atomic_fetch_add(&shared->ready, 1);
}

static bool
is_struck(void)
{
	return atomic_load(&shared->struck_ns) != 0;
}

static void
await_strike(void)
{
	while (!is_struck())
		pause_ns(MS / 10);
}

/* The victim goes on; only one that aborts ends by itself. */
static bool
goes_on(void)
{
	return me.strike != ABORT || !is_struck();
}

/* The other survivor. */
static int
other(void)
{
	return RANKS - me.rank - me.victim;
}

/* ---- operations ---- */

static enum baton_status
begin_send(const void *from, size_t bytes, int peer, int tag, baton_request *request_p)
{
	return baton_send(from, bytes, BATON_UINT8, peer, tag, me.comm, NULL,
	                  NULL, request_p);
}

static enum baton_status
begin_recv(void *to, size_t bytes, int peer, int tag, baton_request *request_p)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	return baton_recv(to, bytes, BATON_UINT8, peer, tag, me.comm, NULL,
	                  &detached, request_p);
}

/* How the operation has ended, whose call returned this. */
static enum baton_status
finish(enum baton_status called, baton_request *request_p, unsigned *flags_p)
{
	struct baton_completion completion = { .flags = 0 };

	if (called == BATON_OK)
		called = baton_finish(request_p, -1, &completion);
	*flags_p = completion.flags;
	return called;
}

static enum baton_status
send_now(const void *from, size_t bytes, int peer, int tag)
{
	baton_request request = 0;
	unsigned flags;

	return finish(begin_send(from, bytes, peer, tag, &request), &request,
	              &flags);
}

static enum baton_status
recv_now(void *to, size_t bytes, int peer, int tag)
{
	baton_request request = 0;
	unsigned flags;

	return finish(begin_recv(to, bytes, peer, tag, &request), &request,
	              &flags);
}

/* Whoever has seen an operation end in PEER finds the communicator broken.  (A rank that aborts takes its
 * messages back before it has destroyed its end.) */
static void
check_broken(void)
{
	CHECK(me.strike == ABORT ||
	      baton_comm_status(me.comm) == BATON_ERR_PEER);
}

/* The operation ends because of the strike. */
static void
check_peer(enum baton_status called, baton_request *request_p, bool may_lend)
{
	unsigned flags;
	enum baton_status status = finish(called, request_p, &flags);

	CHECK(status == BATON_ERR_PEER);
	if (status != BATON_ERR_PEER)
		printf("it ended in %s\n", baton_status_name(status));
	CHECK(may_lend || !(flags & BATON_COMPLETION_LENT));
	check_broken();
}

static void
fill_numbered(unsigned char *bytes, size_t n, unsigned number)
{
	for (size_t i = 0; i < n; i += 512)
		memcpy(bytes + i, &number, sizeof(number));
	memcpy(bytes + n - sizeof(number), &number, sizeof(number));
}

static bool
is_filled(const unsigned char *bytes, size_t n, unsigned number)
{
	for (size_t i = 0; i < n; i += 512)
		if (memcmp(bytes + i, &number, sizeof(number)) != 0)
			return false;
	return memcmp(bytes + n - sizeof(number), &number, sizeof(number)) == 0;
}

/* ---- the states, each of the victim and of a survivor ---- */

static void
victim_waits(void)
{
	be_ready();
	await_strike();
	while (goes_on())
		pause_ns(MS);
}

/* None finds a message; the other survivor sends none either. */
static void
survive_receiving(void)
{
	const struct {
		size_t bytes;
		int peer, tag;
	} of[5] = {
		{ 64, me.victim, 0 },
		{ PART, me.victim, 1 },
		{ 64, BATON_ANY_SOURCE, BATON_ANY_TAG },
		{ 64, me.victim, BATON_ANY_TAG },
		{ 64, BATON_ANY_SOURCE, 3 },
	};
	enum baton_status called[5];
	baton_request requests[5];

	for (int i = 0; i < 5; i++)
		called[i] = begin_recv(large + i * PART, of[i].bytes, of[i].peer,
		                       of[i].tag, &requests[i]);
	be_ready();
	for (int i = 0; i < 5; i++)
		check_peer(called[i], &requests[i], false);
}

static void
survive_announced(void)
{
	baton_request requests[3];
	enum baton_status called[3];

	for (int i = 0; i < 3; i++)
		called[i] = begin_send(large, LARGE, me.victim, i, &requests[i]);
	be_ready();
	for (int i = 0; i < 3; i++)
		check_peer(called[i], &requests[i], false);
}

static void
victim_reads(void)
{
	int from[2] = { (me.rank + 1) % RANKS, (me.rank + 2) % RANKS };

	be_ready();
	while (goes_on())
		for (int i = 0; i < 2; i++)
			(void)recv_now(large, LARGE, from[i], 0);
}

/* Nobody reads the buffer any more when the reader is no more: it is not lent.  This thread looks all
 * the time, and so sees what the side channel tells before the check of the processes. */
static void
survive_read(void)
{
	enum baton_status status = BATON_OK;

	for (unsigned i = 0; status == BATON_OK; i++) {
		struct baton_completion completion = { .flags = 0 };
		baton_request request = 0;

		status = begin_send(large, LARGE, me.victim, 0, &request);
		if (status == BATON_OK)
			while ((status = baton_test(request, &completion)) ==
			       BATON_PENDING)
				;
		if (i == 0)
			be_ready();
		CHECK(!(completion.flags & BATON_COMPLETION_LENT));
	}
	CHECK(status == BATON_ERR_PEER);
	check_broken();
}

static void
send_from(unsigned char *const buffers[2])
{
	int to[2] = { (me.rank + 1) % RANKS, (me.rank + 2) % RANKS };
	baton_request requests[2];
	enum baton_status called[2];
	unsigned flags;

	be_ready();
	for (unsigned number = 0; goes_on(); number++) {
		for (int i = 0; i < 2; i++) {
			fill_numbered(buffers[i], LARGE, number);
			called[i] = begin_send(buffers[i], LARGE, to[i], 0,
			                       &requests[i]);
		}
		for (int i = 0; i < 2; i++)
			(void)finish(called[i], &requests[i], &flags);
	}
}

static void
victim_is_read(void)
{
	unsigned char *const buffers[2] = { large, large_too };

	send_from(buffers);
}

static void
victim_is_read_from_blocks(void)
{
	void *blocks[2] = { NULL, NULL };
	unsigned char *buffers[2];

	for (int i = 0; i < 2; i++) {
		CHECK(baton_mem_alloc(me.comm, LARGE, &blocks[i]) == BATON_OK);
		buffers[i] = blocks[i];
	}
	send_from(buffers);
	/* (It aborts: nobody reads it any more.) */
	CHECK(baton_comm_abort(me.comm) == BATON_OK);
	for (int i = 0; i < 2; i++)
		CHECK(baton_mem_free(me.comm, blocks[i]) == BATON_OK);
}

/* A receive ends in OK with its bytes or not in OK. */
static void
survive_reading(void)
{
	enum baton_status status = BATON_OK;

	for (unsigned number = 0; status == BATON_OK; number++) {
		status = recv_now(large, LARGE, me.victim, 0);
		CHECK(status != BATON_OK || is_filled(large, LARGE, number));
		if (number == 0)
			be_ready();
	}
	CHECK(status == BATON_ERR_PEER);
	check_broken();
}

/* Long ones, and such as are copied within the call that meets them. */
static void
victim_announces(void)
{
	baton_request request;

	for (int rank = 0; rank < RANKS; rank++) {
		if (rank == me.rank)
			continue;
		(void)begin_send(large, 12 << 10, rank, 0, &request);
		(void)begin_send(large, LARGE, rank, 1, &request);
	}
	victim_waits();
}

static void
survive_late(void)
{
	be_ready();
	await_strike();
	pause_ns(20 * MS);
	CHECK(recv_now(large, 12 << 10, me.victim, 0) == BATON_ERR_PEER);
	CHECK(recv_now(large, LARGE, me.victim, 1) == BATON_ERR_PEER);
}

/* Each rank sends to all others and receives from them. */
static void
talk(int from, int to, bool first_counts)
{
	unsigned flags;
	enum baton_status ends[2] = { BATON_OK, BATON_OK };

	for (unsigned number = 0; ends[0] == BATON_OK && ends[1] == BATON_OK;
	     number++) {
		baton_request in = 0, out = 0;
		enum baton_status called_in, called_out;

		fill_numbered(large, PART, number);
		called_in = begin_recv(large_too, PART, from, 0, &in);
		called_out = begin_send(large, PART, to, 0, &out);
		ends[0] = finish(called_in, &in, &flags);
		CHECK(ends[0] != BATON_OK || is_filled(large_too, PART, number));
		ends[1] = finish(called_out, &out, &flags);
		if (number == 0 && first_counts)
			be_ready();
		if (me.rank == me.victim && !goes_on())
			return;
	}
	CHECK(me.rank == me.victim ||
	      (ends[0] != BATON_OK ? ends[0] : ends[1]) == BATON_ERR_PEER);
}

static void
go_round(void)
{
	talk((me.rank + RANKS - 1) % RANKS, (me.rank + 1) % RANKS, true);
}

static void
survive_between(void)
{
	talk(other(), other(), true);
}

static void
survive_full(void)
{
	static baton_request requests[MANY];
	static enum baton_status called[MANY];
	unsigned pending = 0, flags;

	for (int i = 0; i < MANY; i++)
		called[i] = begin_send(large, (size_t)i % 7, me.victim, 0, &requests[i]);
	be_ready();
	for (int i = 0; i < MANY; i++) {
		enum baton_status status = finish(called[i], &requests[i],
		                                  &flags);

		pending += status != BATON_OK;
		CHECK(status == (pending ? BATON_ERR_PEER : BATON_OK));
		CHECK(!(flags & BATON_COMPLETION_LENT));
	}
	CHECK(pending > 0);
}

/* So many to each. */
static void
send_shorts(unsigned n)
{
	be_ready();
	for (unsigned i = 0; i < n && goes_on(); i++) {
		for (int rank = 0; rank < RANKS; rank++) {
			unsigned char bytes[1000];

			if (rank == me.rank)
				continue;
			fill_numbered(bytes, sizeof(bytes), i);
			if (send_now(bytes, i % 3 ? 4 : sizeof(bytes), rank, 0) ==
			    BATON_OK)
				atomic_fetch_add(&shared->sent[rank], 1);
		}
	}
	await_strike();
	while (goes_on())
		pause_ns(MS);
}

static void
victim_sends_shorts(void)
{
	send_shorts(SHORTS);
}

/* As many as there is room for without a receiver that looks. */
static void
victim_sends_few(void)
{
	send_shorts(FEW);
}

static void
survive_shorts(void)
{
	static baton_request requests[SHORTS];
	unsigned received = 0, flags;

	for (int i = 0; i < SHORTS; i++)
		CHECK(begin_recv(large + 1000 * i, 1000, me.victim, 0,
		                 &requests[i]) == BATON_OK);
	be_ready();
	for (unsigned i = 0; i < SHORTS; i++) {
		enum baton_status status = finish(BATON_OK, &requests[i], &flags);

		CHECK(status == BATON_OK || status == BATON_ERR_PEER);
		/* None is missing before one that has come. */
		CHECK(status != BATON_OK || received == i);
		received += status == BATON_OK;
		CHECK(status != BATON_OK ||
		      memcmp(large + 1000 * i, &i, sizeof(i)) == 0);
		CHECK(flags == 0);
	}
	await_strike();
	CHECK(received >= atomic_load(&shared->sent[me.rank]));
}

/* It does not look before: the communicator is not broken yet. */
static void
survive_unreceived(void)
{
	unsigned n = 0;

	be_ready();
	await_strike();
	pause_ns(20 * MS);
	for (n = 0; n < atomic_load(&shared->sent[me.rank]); n++) {
		baton_request request = 0;

		CHECK(begin_recv(large, 1000, me.victim, 0, &request) ==
		      BATON_OK);
		CHECK(baton_finish(&request, -1, NULL) == BATON_OK);
		CHECK(memcmp(large, &n, sizeof(n)) == 0);
	}
}

static void
survive_polling(void)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	struct baton_queue *queue = NULL;
	struct pollfd entry = { .events = POLLIN };

	CHECK(baton_queue_create(me.comm, 1, &queue) == BATON_OK);
	options.queue = queue;
	CHECK(baton_recv(large, 64, BATON_UINT8, me.victim, 0, me.comm, NULL,
	                 &options, NULL) == BATON_OK);
	entry.fd = baton_queue_fd(queue);
	CHECK(baton_queue_arm(queue) == BATON_OK);
	be_ready();
	CHECK(poll(&entry, 1, -1) == 1);
	CHECK(baton_queue_poll(queue, &completion, 1) == 1);
	CHECK(completion.status == BATON_ERR_PEER);
	check_broken();
	baton_queue_destroy(queue);
}

/* ---- stop ---- */

static void
victim_is_stopped(void)
{
	be_ready();
	for (unsigned number = 0; goes_on(); number++) {
		fill_numbered(large_too, PART, number);
		for (int rank = 0; rank < RANKS; rank++)
			if (rank != me.rank && recv_now(large, PART, rank, 0))
				break;
	}
}

/* Sends with deadlines; one that has passed may lend its buffer, until the other goes on. */
static void
survive_stops(void)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	enum baton_status status = BATON_OK;

	soon.timeout_ns = 20 * MS;
	be_ready();
	while (status == BATON_OK || status == BATON_ERR_TIMEOUT) {
		baton_request request = 0;
		struct baton_completion completion = { .flags = 0 };

		status = baton_send(large, PART, BATON_UINT8, me.victim, 0,
		                    me.comm, NULL, &soon, &request);
		if (status != BATON_OK)
			break;
		status = baton_wait(request, -1, &completion);
		if (status == BATON_ERR_TIMEOUT)
			atomic_fetch_add(&shared->timeouts, 1);
		while ((completion.flags & BATON_COMPLETION_LENT) &&
		       baton_comm_status(me.comm) == BATON_OK) {
			pause_ns(MS);
			(void)baton_test(request, &completion);
		}
		CHECK(baton_release(&request) == BATON_OK);
	}
	CHECK(status == BATON_ERR_PEER);
	check_broken();
}

/* ---- rounds ---- */

static const struct state {
	const char *name;
	void (*victim)(void);
	void (*survivor)(void);
	bool calls;  /* ranks look at rings within calls alone */
	bool unread; /* no memory is read */
} states[] = {
	{ "receive", victim_waits, survive_receiving, false, false },
	{ "announced", victim_waits, survive_announced, false, false },
	{ "read", victim_reads, survive_read, false, false },
	{ "reading", victim_is_read, survive_reading, false, false },
	{ "blocks", victim_is_read_from_blocks, survive_reading, false, false },
	{ "blocks_unread", victim_is_read_from_blocks, survive_reading, false, true },
	{ "late", victim_announces, survive_late, true, false },
	{ "chunks", go_round, go_round, false, true },
	{ "full", victim_waits, survive_full, true, false },
	{ "short", victim_sends_shorts, survive_shorts, false, false },
	{ "received", victim_sends_few, survive_unreceived, true, false },
	{ "descriptor", victim_waits, survive_polling, false, false },
	{ "between", victim_waits, survive_between, false, false },
	{ "stop", victim_is_stopped, survive_stops, false, false },
};

static void
create(const struct state *state)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	if (state->calls)
		options.progress = BATON_PROGRESS_CALLS;
	if (me.rank == 0) {
		CHECK(baton_unique_id_create(&shared->id) == BATON_OK);
		atomic_store(&shared->has_id, 1);
	}
	while (!atomic_load(&shared->has_id))
		pause_ns(MS / 10);
	CHECK(baton_comm_create_id(RANKS, me.rank, &shared->id, &options,
	                           &me.comm) == BATON_OK);
	if (!me.comm)
		_exit(exit_status());
}

static void
note_time(void)
{
	int64_t took = now_ns() - atomic_load(&shared->struck_ns);
	int64_t slowest = atomic_load(&shared->slowest_ns);

	CHECK(is_struck() && took < LATEST);
	while (took > slowest &&
	       !atomic_compare_exchange_weak(&shared->slowest_ns, &slowest, took))
		;
}

static int
count_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	CHECK(maps);
	while (maps && fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:baton") != NULL;
	if (maps)
		fclose(maps);
	return n;
}

/* Names in /dev/shm with ours in them.  (One is there for a moment while "baton doctor" looks, which other
 * tests run beside this one.) */
static size_t
count_names(void)
{
	glob_t names;
	size_t n = 0;

	if (glob("/dev/shm/*baton*", 0, NULL, &names) == 0)
		for (size_t i = 0; i < names.gl_pathc; i++)
			n += !strstr(names.gl_pathv[i], "/baton-doctor-");
	globfree(&names);
	return n;
}

/* No memory is mapped but this process's bell, and none has a name.  (What an owner has freed is unmapped
 * by a thread of its own, and the rank would die of its alarm.) */
static void
check_nothing_left(void)
{
	while (count_maps() > 1)
		pause_ns(MS);
	CHECK(count_names() == 0);
}

static int
be_rank(const struct state *state, int rank)
{
	/* A rank that hangs dies of it. */
	alarm(120);
	me.rank = rank;
	if (state->unread && forbid_call(SYS_process_vm_readv) != 0)
		return 77;
	create(state);
	if (rank == me.victim) {
		state->victim();
		CHECK(baton_comm_abort(me.comm) == BATON_OK);
		CHECK(baton_comm_destroy(me.comm) == BATON_OK);
		return exit_status();
	}
	state->survivor();
	note_time();
	CHECK(baton_comm_destroy(me.comm) == BATON_OK);
	check_nothing_left();
	return exit_status();
}

static int64_t
some_ns(int64_t most)
{
	return random() % most;
}

/* Many times, for less and for longer than a deadline. */
static void
stop_and_go(pid_t victim)
{
	for (int i = 0; i < 10; i++) {
		kill(victim, SIGSTOP);
		pause_ns(some_ns(60 * MS));
		kill(victim, SIGCONT);
		pause_ns(some_ns(30 * MS));
	}
}

static void
strike(const struct state *state, pid_t victim)
{
	while (atomic_load(&shared->ready) < RANKS)
		pause_ns(MS / 10);
	pause_ns(some_ns(8 * MS));
	if (state->victim == victim_is_stopped)
		stop_and_go(victim);
	if (me.strike == STOP_AND_KILL) {
		kill(victim, SIGSTOP);
		pause_ns(some_ns(50 * MS));
	}
	/* Before: a survivor may see the end of the other at once. */
	atomic_store(&shared->struck_ns, now_ns());
	if (me.strike != ABORT)
		kill(victim, SIGKILL);
}

/* The exit status of the worst of them. */
static int
await_all(pid_t victim)
{
	int worst = 0;

	for (int i = 0; i < RANKS; i++) {
		int status;
		pid_t ended = wait(&status);

		if (ended == victim && WIFSIGNALED(status) &&
		    WTERMSIG(status) == SIGKILL)
			continue;
		if (!WIFEXITED(status) || WEXITSTATUS(status) % 77 != 0)
			worst = 1;
		else if (WEXITSTATUS(status) == 77 && worst == 0)
			worst = 77;
		if (!WIFEXITED(status))
			printf("a rank ended by signal %d\n", WTERMSIG(status));
	}
	return worst;
}

static int
run_round(const struct state *state, int round)
{
	pid_t ranks[RANKS];

	memset(shared, 0, sizeof(*shared));
	me.strike = (enum strike)(round % STRIKES);
	me.victim = (round / STRIKES + 1) % RANKS;
	fflush(stdout);
	for (int rank = 0; rank < RANKS; rank++) {
		ranks[rank] = fork();
		if (ranks[rank] == 0)
			exit(be_rank(state, rank));
		if (ranks[rank] < 0)
			abort();
	}
	strike(state, ranks[me.victim]);
	return await_all(ranks[me.victim]);
}

int
main(int argc, char **argv)
{
	static const char *const strikes[] = { "killed", "stopped and killed",
		                               "aborts" };
	const struct state *state = NULL;
	int rounds = argc > 2 ? atoi(argv[2]) : STRIKES * RANKS;
	unsigned seed = argc > 3 ? (unsigned)atoi(argv[3])
	                         : (unsigned)now_ns() % 100000;
	int64_t slowest = 0;
	int status = 0;

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (argc > 1 && strcmp(argv[1], states[i].name) == 0)
			state = &states[i];
	if (!state)
		return 2;
	printf("seed %u\n", seed);
	srandom(seed);
	shared = shared_alloc(sizeof(*shared));
	for (int round = 0; round < rounds && status == 0; round++) {
		status = run_round(state, round);
		printf("rank %d %s: the last operation ended after %lld ms, "
		       "%u by deadlines\n",
		       me.victim, strikes[me.strike],
		       (long long)(shared->slowest_ns / MS), shared->timeouts);
		if (shared->slowest_ns > slowest)
			slowest = shared->slowest_ns;
	}
	printf("%s: at most %lld ms\n", state->name, (long long)(slowest / MS));
	return status;
}
