/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One host loop, many outstanding operations.
 *
 *   mpirun -np 2 host_poll           between processes (or without MPI: README.md)
 *   host_poll --ranks 4              alone: the ranks are threads
 *
 * The ranks form a ring.  Each keeps --outstanding receives from the previous
 * rank and as many sends to the next rank in flight.  When an operation ends,
 * the loop checks it and starts the next one in its place.  There are three
 * ways in which the loop learns that an operation has ended:
 *
 *   test    baton_test_some over the array of requests, which never waits: for
 *           loops that have other work between two polls
 *   any     baton_wait_any over the same array: the thread waits inside Baton
 *           for the first end, then takes all operations that have ended
 *   epoll   a completion queue and its file descriptor: the thread sleeps in
 *           epoll, which may serve other descriptors too; pending operations
 *           cost nothing
 *
 * Slot s uses tag s, so that slots do not wait for each other.  The words of
 * the n-th message of a tag are computed from the sender, the tag and n; the
 * receiver checks each of them.  A transport without tags (NCCL) has one order
 * for all messages of a pair of ranks, that of the calls: there all slots have
 * tag 0, and n counts the calls.
 *
 * On a CUDA device (BATON_DEVICE=cuda, or BATON_TRANSPORT=nccl) messages go from
 * and to its memory.  The loop computes and checks their words in memory of the
 * host, and copies.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "command_line.h"
#include "device.h"

#define SLOTS_MAX 1024
#define BATCH 64 /* completions taken from the queue at once */

enum mode { MODE_TEST, MODE_ANY, MODE_EPOLL, MODES };

static const char *const mode_names[MODES] = { "test", "any", "epoll" };

struct options {
	bool modes[MODES];
	long messages;    /* sent by each rank; a multiple of slots */
	int slots;        /* outstanding receives, and as many sends */
	size_t words;     /* in a message */
	int local_ranks;  /* when started without mpirun */
};

/* One rank's side of the ring.  Operation i < slots is the receive of slot i,
 * operation slots + i its send. */
struct ring {
	struct baton_comm *comm;
	const struct options *options;
	int before, after; /* neighbours in the ring */
	bool tags;         /* the transport has them */
	baton_stream stream;
	struct device *device;     /* NULL: the buffers are memory of the host */
	uint64_t *copy;            /* of one buffer, for the host to look at */
	struct baton_queue *queue; /* NULL: requests are polled */
	baton_request *requests;   /* [operation] */
	uint64_t **buffers;        /* [operation] */
	long *numbers;             /* [operation]: messages so far */
	long *places;              /* [operation]: of its message, in its tag's order */
	long received, sent;       /* calls so far */
	long left;                 /* operations that have not ended */
};

/* ---- messages ----------------------------------------------------------- */

static int tag_of(const struct ring *ring, int slot)
{
	return ring->tags ? slot : 0;
}

static uint64_t first_word(int sender, int tag, long place)
{
	return ((uint64_t)sender << 48) ^ ((uint64_t)tag << 36) ^
	       ((uint64_t)place * 0x9e3779b97f4a7c15u);
}

static void fill(struct ring *ring, int slot)
{
	int operation = ring->options->slots + slot;
	uint64_t *buffer = ring->buffers[operation];
	uint64_t *words = ring->device != NULL ? ring->copy : buffer;
	uint64_t first = first_word(baton_comm_rank(ring->comm),
	                            tag_of(ring, slot), ring->places[operation]);

	for (size_t i = 0; i < ring->options->words; i++)
		words[i] = first + i;
	if (ring->device != NULL)
		device_copy(ring->device, buffer, words,
		            ring->options->words * sizeof(*words));
}

static void verify(struct ring *ring, int slot, size_t bytes)
{
	const uint64_t *words = ring->buffers[slot];
	uint64_t first = first_word(ring->before, tag_of(ring, slot),
	                            ring->places[slot]);
	bool good = bytes == ring->options->words * sizeof(*words);

	if (good && ring->device != NULL) {
		device_copy(ring->device, ring->copy, words, bytes);
		words = ring->copy;
	}
	for (size_t i = 0; good && i < ring->options->words; i++)
		good = words[i] == first + i;
	if (good)
		return;
	fprintf(stderr, "rank %d: message %ld of tag %d is not what rank %d "
	        "sent (%zu bytes)\n", baton_comm_rank(ring->comm),
	        ring->places[slot], tag_of(ring, slot), ring->before, bytes);
	baton_comm_abort(ring->comm);
	exit(EXIT_FAILURE);
}

/* ---- the end of an operation, and the start of the next ----------------- */

/* Detached: the stream does not wait for one operation before it starts the
 * next.  With a queue no request is asked for; the completion's user_data
 * identifies the operation. */
static void start(struct ring *ring, int operation)
{
	struct baton_op_options how = BATON_OP_OPTIONS_INIT;
	int slots = ring->options->slots;
	baton_request *request_p =
		ring->queue == NULL ? &ring->requests[operation] : NULL;

	how.flags = BATON_OP_DETACHED;
	how.user_data = (uint64_t)operation;
	how.queue = ring->queue;
	if (operation < slots) {
		ring->places[operation] = ring->tags ? ring->numbers[operation]
		                                     : ring->received++;
		CHECK(ring->comm,
		      baton_recv(ring->buffers[operation], ring->options->words,
		                 BATON_UINT64, ring->before,
		                 tag_of(ring, operation), ring->comm,
		                 ring->stream, &how, request_p));
		return;
	}
	ring->places[operation] = ring->tags ? ring->numbers[operation]
	                                     : ring->sent++;
	fill(ring, operation - slots);
	CHECK(ring->comm,
	      baton_send(ring->buffers[operation], ring->options->words,
	                 BATON_UINT64, ring->after,
	                 tag_of(ring, operation - slots), ring->comm,
	                 ring->stream, &how, request_p));
}

static void serve(struct ring *ring, const struct baton_completion *completion)
{
	int operation = (int)completion->user_data;
	long share = ring->options->messages / ring->options->slots;

	if (operation < ring->options->slots)
		verify(ring, operation, completion->bytes);
	ring->left--;
	if (++ring->numbers[operation] < share)
		start(ring, operation);
}

/* ---- the three loops ---------------------------------------------------- */

/* Handle all operations that have ended; false if none has.  One call tests
 * them all.  A loop that took only the first one found would always find the
 * lowest ones and starve the others. */
static bool serve_ended(struct ring *ring)
{
	size_t count = 2 * (size_t)ring->options->slots, ended;
	size_t indices[2 * SLOTS_MAX];
	struct baton_completion completion;
	enum baton_status status = baton_test_some(ring->requests, count,
	                                           indices, count, &ended);

	if (status == BATON_PENDING)
		return false;
	CHECK(ring->comm, status);
	for (size_t i = 0; i < ended; i++) {
		/* It has ended: this only takes the completion, or reports the
		 * error. */
		finish(ring->comm, &ring->requests[indices[i]], &completion);
		serve(ring, &completion);
	}
	return true;
}

static void loop_test(struct ring *ring)
{
	while (ring->left > 0) {
		if (serve_ended(ring))
			continue;
		/* A program would do some of its other work here. */
	}
}

static void loop_any(struct ring *ring)
{
	size_t count = 2 * (size_t)ring->options->slots;

	while (ring->left > 0) {
		size_t index = count;
		enum baton_status status = baton_wait_any(
			ring->requests, count, -1, &index, NULL);

		if (index == count) /* a refusal, not an operation's status */
			CHECK(ring->comm, status);
		serve_ended(ring);
	}
}

static void fail_system(struct ring *ring, const char *call)
{
	fprintf(stderr, "rank %d: %s: %s\n", baton_comm_rank(ring->comm), call,
	        strerror(errno));
	baton_comm_abort(ring->comm);
	exit(EXIT_FAILURE);
}

static int epoll_open(struct ring *ring)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (epoll < 0)
		fail_system(ring, "epoll_create1");
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, baton_queue_fd(ring->queue),
	              &event) != 0)
		fail_system(ring, "epoll_ctl");
	return epoll;
}

/* A completion from a queue has no request that could be asked; it has a
 * status. */
static void serve_queued(struct ring *ring,
                         const struct baton_completion *completion)
{
	if (completion->status == BATON_OK) {
		serve(ring, completion);
		return;
	}
	fprintf(stderr, "rank %d: an operation with rank %d, tag %d ended in "
	        "%s: %s\n", baton_comm_rank(ring->comm), completion->peer,
	        completion->tag, baton_status_name(completion->status),
	        baton_status_text(completion->status));
	baton_comm_abort(ring->comm);
	exit(EXIT_FAILURE);
}

static void loop_epoll(struct ring *ring)
{
	struct baton_completion completions[BATCH];
	struct epoll_event event;
	enum baton_status status;
	int epoll = epoll_open(ring);

	while (ring->left > 0) {
		size_t count = baton_queue_poll(ring->queue, completions,
		                                BATCH);

		for (size_t i = 0; i < count; i++)
			serve_queued(ring, &completions[i]);
		if (count > 0)
			continue;
		/* The queue is empty.  Arm first, then sleep: if a completion
		 * came between the poll and the arm, arm returns PENDING. */
		status = baton_queue_arm(ring->queue);
		if (status == BATON_PENDING)
			continue;
		CHECK(ring->comm, status);
		if (epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR)
			fail_system(ring, "epoll_wait");
	}
	close(epoll);
}

/* ---- a rank ------------------------------------------------------------- */

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (memory == NULL) {
		fprintf(stderr, "host_poll: out of memory\n");
		exit(EXIT_FAILURE);
	}
	return memory;
}

static void ring_init(struct ring *ring, struct baton_comm *comm,
                      const struct options *options)
{
	int rank = baton_comm_rank(comm), ranks = baton_comm_size(comm);
	struct baton_comm_info info = { .size = sizeof(info) };
	size_t count = 2 * (size_t)options->slots;

	CHECK(comm, baton_comm_query(comm, &info));
	ring->tags = (info.capabilities & BATON_CAP_TAGS) != 0;
	ring->comm = comm;
	ring->options = options;
	ring->before = (rank + ranks - 1) % ranks;
	ring->after = (rank + 1) % ranks;
	ring->requests = allocate(count, sizeof(*ring->requests));
	ring->buffers = allocate(count, sizeof(*ring->buffers));
	ring->numbers = allocate(count, sizeof(*ring->numbers));
	ring->places = allocate(count, sizeof(*ring->places));
	ring->device = device_open(comm);
	ring->copy = allocate(options->words, sizeof(uint64_t));
	for (size_t i = 0; i < count; i++)
		ring->buffers[i] =
			ring->device != NULL
				? device_alloc(ring->device, options->words *
				                                     sizeof(uint64_t))
				: allocate(options->words, sizeof(uint64_t));
	CHECK(comm, baton_stream_create(comm, &ring->stream));
}

static void ring_fini(struct ring *ring)
{
	CHECK(ring->comm, baton_stream_destroy(ring->comm, ring->stream));
	for (int i = 0; i < 2 * ring->options->slots; i++) {
		if (ring->device != NULL)
			device_free(ring->device, ring->buffers[i]);
		else
			free(ring->buffers[i]);
	}
	device_close(ring->device);
	free(ring->copy);
	free(ring->buffers);
	free(ring->requests);
	free(ring->numbers);
	free(ring->places);
}

static void ring_run(struct ring *ring, enum mode mode)
{
	int operations = 2 * ring->options->slots;

	ring->left = 2 * ring->options->messages;
	ring->queue = NULL;
	ring->received = 0;
	ring->sent = 0;
	memset(ring->numbers, 0, (size_t)operations * sizeof(*ring->numbers));
	if (mode == MODE_EPOLL)
		CHECK(ring->comm,
		      baton_queue_create(ring->comm, (size_t)operations,
		                         &ring->queue));
	for (int i = 0; i < operations; i++)
		start(ring, i);
	if (mode == MODE_TEST)
		loop_test(ring);
	else if (mode == MODE_ANY)
		loop_any(ring);
	else
		loop_epoll(ring);
	baton_queue_destroy(ring->queue);
}

/* ---- all ranks of this process, a thread for each ----------------------- */

struct job {
	struct ring ring;
	enum mode mode;
	pthread_t thread;
};

static void *job_run(void *argument)
{
	struct job *job = argument;

	ring_run(&job->ring, job->mode);
	return NULL;
}

struct result {
	double seconds, processor_seconds;
};

static double seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct result jobs_run(struct job *jobs, int count, enum mode mode)
{
	struct result result = { -seconds(CLOCK_MONOTONIC),
		                 -seconds(CLOCK_PROCESS_CPUTIME_ID) };

	for (int i = 0; i < count; i++)
		jobs[i].mode = mode;
	for (int i = 1; i < count; i++) {
		errno = pthread_create(&jobs[i].thread, NULL, job_run,
		                       &jobs[i]);
		if (errno != 0)
			fail_system(&jobs[i].ring, "pthread_create");
	}
	job_run(&jobs[0]);
	for (int i = 1; i < count; i++)
		pthread_join(jobs[i].thread, NULL);
	result.seconds += seconds(CLOCK_MONOTONIC);
	result.processor_seconds += seconds(CLOCK_PROCESS_CPUTIME_ID);
	return result;
}

/* One result to or from a rank, by way of the device where there is one: NCCL
 * does not reach the stack. */
static void pass(struct ring *ring, int peer, bool incoming,
                 struct result *result)
{
	struct baton_comm *comm = ring->comm;
	struct result *place = result;
	baton_request request;

	if (ring->device != NULL)
		place = device_alloc(ring->device, sizeof(*place));
	if (ring->device != NULL && !incoming)
		device_copy(ring->device, place, result, sizeof(*place));
	if (incoming)
		CHECK(comm, baton_recv(place, sizeof(*place), BATON_UINT8, peer,
		                       0, comm, ring->stream, NULL, &request));
	else
		CHECK(comm, baton_send(place, sizeof(*place), BATON_UINT8, peer,
		                       0, comm, ring->stream, NULL, &request));
	finish(comm, &request, NULL);
	if (ring->device == NULL)
		return;
	if (incoming)
		device_copy(ring->device, result, place, sizeof(*place));
	device_free(ring->device, place);
}

/* The processor time of all processes and the longest time of one; on rank 0. */
static struct result gather(struct ring *ring, struct result mine)
{
	struct baton_comm *comm = ring->comm;

	if (baton_comm_rank(comm) != 0)
		pass(ring, 0, false, &mine);
	for (int rank = 1; baton_comm_rank(comm) == 0 &&
	                   rank < baton_comm_size(comm); rank++) {
		struct result other;

		pass(ring, rank, true, &other);
		mine.processor_seconds += other.processor_seconds;
		if (other.seconds > mine.seconds)
			mine.seconds = other.seconds;
	}
	return mine;
}

static void run(struct baton_comm **comms, int count,
                const struct options *options)
{
	struct job *jobs = allocate((size_t)count, sizeof(*jobs));
	double messages = (double)options->messages * baton_comm_size(comms[0]);

	for (int i = 0; i < count; i++)
		ring_init(&jobs[i].ring, comms[i], options);
	for (int mode = 0; mode < MODES; mode++) {
		struct result result;

		if (!options->modes[mode])
			continue;
		result = jobs_run(jobs, count, (enum mode)mode);
		if (count == 1)
			result = gather(&jobs[0].ring, result);
		if (baton_comm_rank(comms[0]) != 0)
			continue;
		printf("  %-5s  %10.0f/s  %12.2f us  %13.2f\n",
		       mode_names[mode], messages / result.seconds,
		       result.processor_seconds / messages * 1e6,
		       result.processor_seconds / result.seconds);
		fflush(stdout);
	}
	for (int i = 0; i < count; i++)
		ring_fini(&jobs[i].ring);
	free(jobs);
}

/* ---- options ------------------------------------------------------------ */

static const char help_text[] =
	"usage: [mpirun -np N] host_poll [options]   (without MPI: README.md)\n"
	"\n"
	"Ranks in a ring, each serving many outstanding sends and receives from\n"
	"one loop; every message is checked.\n"
	"\n"
	"  --mode NAME         test: baton_test_some; any: baton_wait_any;\n"
	"                      epoll: a queue's descriptor; all (default)\n"
	"  --messages N        that each rank sends (default 200000)\n"
	"  --outstanding N     receives, and sends, in flight (1 to 1024,\n"
	"                      default 64)\n"
	"  --bytes N           of a message, rounded up to words of 8 bytes\n"
	"                      (default 256)\n"
	"  --ranks N           threads when started alone (1 to 64, default 2)\n"
	"  --help              this text\n";

static bool number(const char *name, long min, long max, long *value_p)
{
	return option_number("host_poll", name, min, max, value_p);
}

static bool take_mode(struct options *options)
{
	bool all = strcmp(optarg, "all") == 0, known = all;

	for (int mode = 0; mode < MODES; mode++) {
		options->modes[mode] =
			all || strcmp(optarg, mode_names[mode]) == 0;
		known = known || options->modes[mode];
	}
	if (!known)
		fprintf(stderr, "host_poll: --mode is %s, must be test, any, "
		        "epoll or all\n", optarg);
	return known;
}

static bool take(int option, void *taken)
{
	struct options *options = taken;
	long value;

	switch (option) {
	case 'm':
		return take_mode(options);
	case 'n':
		return number("messages", 1, 1000000000, &options->messages);
	case 'o':
		if (!number("outstanding", 1, SLOTS_MAX, &value))
			return false;
		options->slots = (int)value;
		return true;
	case 'b':
		if (!number("bytes", 8, 1 << 30, &value))
			return false;
		options->words = (size_t)(value + 7) / 8;
		return true;
	default: /* 'r' */
		if (!number("ranks", 1, 64, &value))
			return false;
		options->local_ranks = (int)value;
		return true;
	}
}

static bool parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "mode", required_argument, NULL, 'm' },
		{ "messages", required_argument, NULL, 'n' },
		{ "outstanding", required_argument, NULL, 'o' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "ranks", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};

	if (!options_parse("host_poll", help_text, argc, argv, known, take,
	                   options))
		return false;
	options->messages += options->slots - 1;
	options->messages -= options->messages % options->slots;
	return true;
}

int main(int argc, char **argv)
{
	struct baton_comm_options how = BATON_COMM_OPTIONS_INIT;
	struct options options = { { true, true, true }, 200000, 64, 32, 2 };
	struct baton_comm *comms[64];
	struct baton_comm_info info = { .size = sizeof(info) };
	int count = 1;

	if (!parse(argc, argv, &options))
		return EXIT_FAILURE;
	how.requests_max = 2 * (uint32_t)options.slots + 16;
	CHECK(NULL, baton_comm_create(&how, &comms[0]));
	CHECK(comms[0], baton_comm_query(comms[0], &info));
	if (baton_comm_size(comms[0]) == 1 &&
	    info.transport == BATON_TRANSPORT_NCCL) {
		fprintf(stderr, "host_poll: over NCCL the ranks are processes, each "
		                "with a GPU: start it by mpirun -np 2\n");
		CHECK(comms[0], baton_comm_destroy(comms[0]));
		return EXIT_FAILURE;
	}
	if (baton_comm_size(comms[0]) == 1) {
		CHECK(comms[0], baton_comm_destroy(comms[0]));
		count = options.local_ranks;
		CHECK(NULL, baton_comm_create_local(count, &how, comms));
	}
	CHECK(comms[0], baton_comm_query(comms[0], &info));
	if (info.rank == 0)
		printf("%d ranks, %s device, %s transport: %ld messages from each, %d "
		       "receives and %d sends in flight, %zu bytes\n\n"
		       "  mode       messages  processor time  processors\n"
		       "                            a message        busy\n",
		       info.ranks, info.device_name, info.transport_name, options.messages,
		       options.slots, options.slots,
		       options.words * sizeof(uint64_t));
	run(comms, count, &options);
	for (int i = 0; i < count; i++)
		CHECK(comms[i], baton_comm_destroy(comms[i]));
	return EXIT_SUCCESS;
}
