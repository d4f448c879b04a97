/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Producers put into the consumer's memory; nobody asks for anything.
 *
 *   mpirun -np 4 producer_consumer
 *
 * Rank 0 is the consumer, the others are producers.  The consumer's part of the
 * window holds a ring of slots for each of them.  Two counters say who has a slot:
 *
 *   FILLED   from the producer, by the put itself: one more slot is to be read
 *   FREE     from the consumer, a signal without data: a credit, one more slot may
 *            be written
 *
 * Counters are kept for each source, so one index of each serves all producers.
 * Slots are filled and freed in turn, so a count is enough to know which.
 *
 * An item is a piece of a stream on either side.
 *
 *   producer   wait for a credit (from the second round on), fill, put with signal
 *   consumer   wait for FILLED, check and work, signal FREE
 *
 * As many of these as there are slots are enqueued ahead; the host only waits for
 * the oldest and enqueues another one.  No thread spins for what is not there yet.
 * A wait that ends badly does not stop the rest of its item; the host, which looks at
 * it first, then ends the program.
 *
 * An item carries its number, a checksum, and the time at which it was filled.  Its
 * latency is from then until the consumer begins to read it; it occupies its slot
 * until the consumer is done with it.  CLOCK_MONOTONIC is one clock for all
 * processes of a host, so run all ranks on one.
 */
#include <errno.h>
#include <getopt.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define CONSUMER 0
#define RANKS_MAX 8
#define SLOTS_MAX 1024
#define TIMEOUT_NS INT64_C(60000000000) /* of an operation: somebody is gone */
#define PROGRESS_NS 200000000u          /* between two looks of the user's */

enum signal_index { FILLED, FREE };

struct options {
	long items; /* of each producer */
	int slots;  /* of each ring */
	size_t words; /* of an item's payload */
};

struct item {
	uint64_t number;
	uint64_t filled_ns;
	uint64_t checksum; /* of the number and the payload */
	uint64_t path;     /* BATON_WINDOW_PATH_*, by which it has come */
	uint64_t payload[];
};

/* What is enqueued for one item: the wait before the work, the signal after it. */
struct step {
	baton_request before; /* null: it has no wait */
	baton_request after;
};

/* ---- items -------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Whole cache lines, so that two slots share none. */
static size_t slot_bytes(const struct options *options)
{
	size_t bytes = sizeof(struct item) + options->words * sizeof(uint64_t);

	return (bytes + 63) & ~(size_t)63;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
	return (hash ^ word) * 0x100000001b3u;
}

static uint64_t checksum(const struct item *item, size_t words)
{
	uint64_t hash = mix(0xcbf29ce484222325u, item->number);

	for (size_t i = 0; i < words; i++)
		hash = mix(hash, item->payload[i]);
	return hash;
}

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (memory == NULL) {
		fprintf(stderr, "producer_consumer: out of memory\n");
		exit(EXIT_FAILURE);
	}
	return memory;
}

/* The steps end in their order, so a host that waits for the oldest sees all. */
static void step_finish(struct baton_comm *comm, struct step *step)
{
	if (step->before != BATON_REQUEST_NULL)
		finish(comm, &step->before, NULL);
	finish(comm, &step->after, NULL);
}

/* ---- the producer ------------------------------------------------------- */

struct producer {
	struct baton_comm *comm;
	const struct options *options;
	struct baton_window *window;
	baton_stream stream;
	/* Where items are made.  One is enough: the stream fills it again when
	 * the put before has ended. */
	struct item *item;
	uint64_t number; /* of the item that is made next, by the stream */
	struct step steps[SLOTS_MAX];
};

/* On the stream. */
static void fill(void *argument)
{
	struct producer *producer = argument;
	struct item *item = producer->item;
	size_t words = producer->options->words;
	uint64_t word = (uint64_t)baton_comm_rank(producer->comm) << 56;

	item->number = producer->number++;
	for (size_t i = 0; i < words; i++) {
		word = word * 6364136223846793005u + item->number + i;
		item->payload[i] = word;
	}
	item->checksum = checksum(item, words);
	item->filled_ns = now_ns();
}

static void wait_for(struct baton_comm *comm, baton_stream stream, int peer,
                     enum signal_index index, int count,
                     baton_request *request_p)
{
	struct baton_wait_signal_desc desc = { count, peer, (int)index, 0 };

	CHECK(comm, baton_wait_signal(1, &desc, comm, stream, NULL, request_p));
}

static void produce(struct producer *producer, long number)
{
	const struct options *options = producer->options;
	struct baton_comm *comm = producer->comm;
	size_t slot = (size_t)(number % options->slots);
	size_t ring = (size_t)(baton_comm_rank(comm) - 1);
	size_t offset = (ring * (size_t)options->slots + slot) *
	                slot_bytes(options);
	size_t words = sizeof(struct item) / sizeof(uint64_t) + options->words;
	struct step *step = &producer->steps[slot];

	/* The slots of the first round are free without being told so. */
	if (number >= options->slots)
		wait_for(comm, producer->stream, CONSUMER, FREE, 1,
		         &step->before);
	CHECK(comm, baton_stream_launch(comm, producer->stream, fill, producer));
	CHECK(comm, baton_put_signal(producer->item, words, BATON_UINT64,
	                             CONSUMER, producer->window, offset, FILLED,
	                             0, 0, comm, producer->stream, NULL,
	                             &step->after));
}

static bool producer_run(struct producer *producer)
{
	const struct options *options = producer->options;
	struct baton_comm *comm = producer->comm;
	long ahead = options->items < options->slots ? options->items
	                                             : options->slots;
	baton_request rest;
	uint64_t credits;

	for (long number = 0; number < options->items + ahead; number++) {
		if (number >= ahead)
			step_finish(comm, &producer->steps[number % ahead]);
		if (number < options->items)
			produce(producer, number);
	}
	/* The last round's credits: then all has been read. */
	wait_for(comm, producer->stream, CONSUMER, FREE, (int)ahead, &rest);
	finish(comm, &rest, NULL);
	CHECK(comm, baton_signal_count(comm, CONSUMER, FREE, 0, &credits));
	if (credits == (uint64_t)options->items)
		return true;
	fprintf(stderr, "rank %d: %llu credits for %ld items\n",
	        baton_comm_rank(comm), (unsigned long long)credits,
	        options->items);
	return false;
}

static bool produce_all(struct baton_comm *comm, const struct options *options,
                        struct baton_window *window)
{
	struct producer *producer = allocate(1, sizeof(*producer));
	bool good;

	producer->comm = comm;
	producer->options = options;
	producer->window = window;
	producer->item = allocate(1, slot_bytes(options));
	producer->item->path = baton_window_path(window, CONSUMER);
	CHECK(comm, baton_stream_create(comm, &producer->stream));
	good = producer_run(producer);
	CHECK(comm, baton_stream_destroy(comm, producer->stream));
	free(producer->item);
	free(producer);
	return good;
}

/* ---- the consumer ------------------------------------------------------- */

/* One producer, as the consumer sees it. */
struct lane {
	struct consumer *consumer;
	int producer;
	const char *ring;
	baton_stream stream;
	long enqueued, finished;
	struct step steps[SLOTS_MAX];
	/* The stream's.  The host reads them when a later operation of the stream
	 * has ended. */
	long read;
	_Atomic(const char *) wrong; /* what the first bad item was, or NULL;
	                                the host reads it at any time */
	uint64_t path;          /* of the first item */
	uint64_t *latencies_ns; /* by number */
	uint64_t first_ns, last_ns; /* filled first; done with last */
	uint64_t occupied_ns; /* of all slots together */
	uint64_t histogram[256];
};

struct consumer {
	struct baton_comm *comm;
	const struct options *options;
	int lanes_count;
	struct lane lanes[RANKS_MAX - 1];
	bool terminal;
	uint64_t shown_ns;
};

/* The work: how often does each byte occur? */
static void work(struct lane *lane, const struct item *item, size_t words)
{
	const unsigned char *bytes = (const unsigned char *)item->payload;

	for (size_t i = 0; i < words * sizeof(uint64_t); i++)
		lane->histogram[bytes[i]]++;
}

/* On the stream. */
static void consume(void *argument)
{
	struct lane *lane = argument;
	const struct options *options = lane->consumer->options;
	long number = lane->read++;
	const struct item *item =
		(const void *)(lane->ring + (size_t)(number % options->slots) *
		                                    slot_bytes(options));
	uint64_t begin_ns = now_ns();
	const char *wrong = NULL;

	if (item->number != (uint64_t)number)
		wrong = "has another number";
	else if (item->checksum != checksum(item, options->words))
		wrong = "has another checksum";
	if (wrong != NULL) {
		atomic_store(&lane->wrong, wrong);
		return;
	}
	work(lane, item, options->words);
	lane->last_ns = now_ns();
	if (number == 0) {
		lane->first_ns = item->filled_ns;
		lane->path = item->path;
	}
	lane->latencies_ns[number] = begin_ns - item->filled_ns;
	lane->occupied_ns += lane->last_ns - item->filled_ns;
}

static void lane_enqueue(struct lane *lane)
{
	struct baton_comm *comm = lane->consumer->comm;
	int slots = lane->consumer->options->slots;
	struct step *step = &lane->steps[lane->enqueued++ % slots];

	wait_for(comm, lane->stream, lane->producer, FILLED, 1, &step->before);
	CHECK(comm, baton_stream_launch(comm, lane->stream, consume, lane));
	CHECK(comm, baton_signal(lane->producer, FREE, 0, 0, comm, lane->stream,
	                         NULL, &step->after));
}

/* The oldest step's request; null when the lane is through. */
static baton_request lane_oldest(const struct lane *lane)
{
	int slots = lane->consumer->options->slots;

	if (lane->finished == lane->enqueued)
		return BATON_REQUEST_NULL;
	return lane->steps[lane->finished % slots].after;
}

static void lane_finish(struct lane *lane)
{
	struct consumer *consumer = lane->consumer;
	int slots = consumer->options->slots;
	const char *wrong;

	step_finish(consumer->comm, &lane->steps[lane->finished % slots]);
	wrong = atomic_load(&lane->wrong);
	/* The stream may be some items ahead. */
	if (wrong != NULL) {
		fprintf(stderr, "item %ld of rank %d, or one soon after it, "
		        "%s\n", lane->finished, lane->producer, wrong);
		baton_comm_abort(consumer->comm);
		exit(EXIT_FAILURE);
	}
	lane->finished++;
	if (lane->enqueued < consumer->options->items)
		lane_enqueue(lane);
}

static void show(struct consumer *consumer, bool last)
{
	long finished = 0;
	long all = consumer->options->items * consumer->lanes_count;
	uint64_t now = consumer->terminal ? now_ns() : 0;

	if (!consumer->terminal ||
	    (!last && now - consumer->shown_ns < PROGRESS_NS))
		return;
	consumer->shown_ns = now;
	for (int i = 0; i < consumer->lanes_count; i++)
		finished += consumer->lanes[i].finished;
	fprintf(stderr, "\r%ld of %ld items%s", finished, all, last ? "\n" : "");
}

static void consumer_run(struct consumer *consumer)
{
	size_t count = (size_t)consumer->lanes_count;
	baton_request oldest[RANKS_MAX - 1];
	const struct options *options = consumer->options;

	for (int i = 0; i < consumer->lanes_count; i++) {
		struct lane *lane = &consumer->lanes[i];

		while (lane->enqueued < options->items &&
		       lane->enqueued < options->slots)
			lane_enqueue(lane);
		oldest[i] = lane_oldest(lane);
	}
	for (;;) {
		size_t ended[RANKS_MAX - 1], ended_count, index = 0;
		enum baton_status status;

		status = baton_wait_any(oldest, count, -1, &index, NULL);
		if (status == BATON_OK && index == count)
			break;
		/* Take all that have ended, so that no producer's turn depends
		 * on its rank.  How one ended is seen by its finish. */
		CHECK(consumer->comm, baton_test_some(oldest, count, ended,
		                                      count, &ended_count));
		for (size_t i = 0; i < ended_count; i++) {
			lane_finish(&consumer->lanes[ended[i]]);
			oldest[ended[i]] =
				lane_oldest(&consumer->lanes[ended[i]]);
		}
		show(consumer, false);
	}
	show(consumer, true);
}

/* ---- what the consumer says at the end ---------------------------------- */

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static const char *path_name(uint64_t path)
{
	if (path == BATON_WINDOW_PATH_DIRECT)
		return "direct";
	return path == BATON_WINDOW_PATH_VMWRITE ? "vmwrite" : "message";
}

static void report_line(const char *name, const char *path, size_t bytes,
                        double seconds, uint64_t *latencies_ns, size_t count,
                        double occupied)
{
	static const double shares[] = { 0.5, 0.9, 0.99 };

	qsort(latencies_ns, count, sizeof(*latencies_ns), compare);
	printf("  %-8s  %-7s  %9.0f  %7.1f", name, path,
	       (double)count / seconds,
	       (double)count * (double)bytes / seconds * 1e-6);
	for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
		size_t at = (size_t)(shares[i] * (double)(count - 1));

		printf("  %8.1f", (double)latencies_ns[at] * 1e-3);
	}
	printf("  %8.1f  %9.2f\n", (double)latencies_ns[count - 1] * 1e-3,
	       occupied);
}

/* Latencies of the lanes lie one after the other, so that the last line can sort
 * them all. */
static void report(const struct consumer *consumer, uint64_t *latencies_ns)
{
	const struct options *options = consumer->options;
	size_t bytes = options->words * sizeof(uint64_t);
	size_t count = (size_t)options->items;
	uint64_t first_ns = UINT64_MAX, last_ns = 0, occupied_ns = 0;
	double seconds;
	char name[16];

	printf("\n  producer  path       items/s     MB/s    p50 us    p90 us"
	       "    p99 us    max us  occupancy\n");
	for (int i = 0; i < consumer->lanes_count; i++) {
		const struct lane *lane = &consumer->lanes[i];

		seconds = (double)(lane->last_ns - lane->first_ns) * 1e-9;
		snprintf(name, sizeof(name), "%d", lane->producer);
		report_line(name, path_name(lane->path), bytes, seconds,
		            lane->latencies_ns, count,
		            (double)lane->occupied_ns * 1e-9 / seconds);
		first_ns = lane->first_ns < first_ns ? lane->first_ns : first_ns;
		last_ns = lane->last_ns > last_ns ? lane->last_ns : last_ns;
		occupied_ns += lane->occupied_ns;
	}
	if (consumer->lanes_count == 1)
		return;
	count *= (size_t)consumer->lanes_count;
	seconds = (double)(last_ns - first_ns) * 1e-9;
	report_line("all", "", bytes, seconds, latencies_ns, count,
	            (double)occupied_ns * 1e-9 / seconds);
}

/* Nothing arrived twice, and all bytes were worked on. */
static bool lane_is_whole(const struct lane *lane)
{
	const struct options *options = lane->consumer->options;
	uint64_t filled, bytes = 0;
	uint64_t all = (uint64_t)options->items * options->words *
	               sizeof(uint64_t);

	CHECK(lane->consumer->comm,
	      baton_signal_count(lane->consumer->comm, lane->producer, FILLED, 0,
	                         &filled));
	for (int i = 0; i < 256; i++)
		bytes += lane->histogram[i];
	if (filled == (uint64_t)options->items && bytes == all)
		return true;
	fprintf(stderr, "rank %d: %llu signals for %ld items, %llu bytes of "
	        "%llu\n", lane->producer, (unsigned long long)filled,
	        options->items, (unsigned long long)bytes,
	        (unsigned long long)all);
	return false;
}

static void lane_init(struct lane *lane, struct consumer *consumer, int index,
                      const char *rings, uint64_t *latencies_ns)
{
	const struct options *options = consumer->options;

	lane->consumer = consumer;
	lane->producer = index + 1;
	lane->ring = rings + (size_t)index * (size_t)options->slots *
	                             slot_bytes(options);
	lane->latencies_ns = latencies_ns + index * options->items;
	CHECK(consumer->comm, baton_stream_create(consumer->comm, &lane->stream));
}

static bool consume_all(struct baton_comm *comm, const struct options *options,
                        const char *rings)
{
	struct consumer *consumer = allocate(1, sizeof(*consumer));
	struct winsize size;
	uint64_t *latencies_ns;
	bool good = true;

	consumer->comm = comm;
	consumer->options = options;
	consumer->lanes_count = baton_comm_size(comm) - 1;
	/* mpirun gives its processes terminals of no width. */
	consumer->terminal = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 &&
	                     size.ws_col > 0;
	latencies_ns = allocate((size_t)options->items *
	                                (size_t)consumer->lanes_count,
	                        sizeof(*latencies_ns));
	for (int i = 0; i < consumer->lanes_count; i++)
		lane_init(&consumer->lanes[i], consumer, i, rings, latencies_ns);
	consumer_run(consumer);
	for (int i = 0; i < consumer->lanes_count; i++)
		good = lane_is_whole(&consumer->lanes[i]) && good;
	report(consumer, latencies_ns);
	for (int i = 0; i < consumer->lanes_count; i++)
		CHECK(comm, baton_stream_destroy(comm,
		                                 consumer->lanes[i].stream));
	free(latencies_ns);
	free(consumer);
	return good;
}

/* ---- options ------------------------------------------------------------ */

static const char help_text[] =
	"usage: mpirun -np N producer_consumer [options]\n"
	"\n"
	"Rank 0 consumes what the other 1 to 7 ranks put into its memory; every\n"
	"item is checked.\n"
	"\n"
	"  --items N     of each producer (1 to 10000000, default 50000)\n"
	"  --slots N     of each producer's ring, and items enqueued ahead\n"
	"                (1 to 1024, default 16)\n"
	"  --bytes N     of an item, rounded up to words of 8 bytes\n"
	"                (default 1024)\n"
	"  --help        this text\n";

static bool number(const char *name, long min, long max, long *value_p)
{
	char *end;

	errno = 0;
	*value_p = strtol(optarg, &end, 10);
	if (end != optarg && *end == '\0' && errno == 0 && *value_p >= min &&
	    *value_p <= max)
		return true;
	fprintf(stderr, "producer_consumer: --%s is %s, must be %ld to %ld\n",
	        name, optarg, min, max);
	return false;
}

static bool take(int option, struct options *options)
{
	long value;

	switch (option) {
	case 'n':
		return number("items", 1, 10000000, &options->items);
	case 's':
		if (!number("slots", 1, SLOTS_MAX, &value))
			return false;
		options->slots = (int)value;
		return true;
	case 'b':
		if (!number("bytes", 8, 1 << 30, &value))
			return false;
		options->words = (size_t)(value + 7) / 8;
		return true;
	case 'h':
		fputs(help_text, stdout);
		exit(EXIT_SUCCESS);
	default:
		fprintf(stderr, "producer_consumer: not understood; --help "
		        "lists the options\n");
		return false;
	}
}

static bool parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "items", required_argument, NULL, 'n' },
		{ "slots", required_argument, NULL, 's' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (!take(option, options))
			return false;
	}
	if (optind == argc)
		return true;
	fprintf(stderr, "producer_consumer: %s is no option; --help lists the "
	        "options\n", argv[optind]);
	return false;
}

/* ---- all of it ---------------------------------------------------------- */

static bool run(struct baton_comm *comm, const struct options *options)
{
	struct baton_comm_info info = { .size = sizeof(info) };
	struct baton_window *window;
	void *rings = NULL;
	size_t bytes = 0;
	bool good;

	CHECK(comm, baton_comm_query(comm, &info));
	/* Only the consumer's memory is put into: the producers' parts are
	 * empty. */
	if (info.rank == CONSUMER) {
		bytes = (size_t)(info.ranks - 1) * (size_t)options->slots *
		        slot_bytes(options);
		CHECK(comm, baton_mem_alloc(comm, bytes, &rings));
	}
	CHECK(comm, baton_window_register(rings, bytes, comm, &window));
	if (info.rank == CONSUMER) {
		printf("%d ranks, %s transport: %ld items of %zu bytes from each "
		       "of %d producers, rings of %d slots\n", info.ranks,
		       info.transport_name, options->items,
		       options->words * sizeof(uint64_t), info.ranks - 1,
		       options->slots);
		fflush(stdout);
		good = consume_all(comm, options, rings);
	} else {
		good = produce_all(comm, options, window);
	}
	CHECK(comm, baton_window_deregister(window));
	CHECK(comm, baton_mem_free(comm, rings));
	return good;
}

int main(int argc, char **argv)
{
	struct baton_comm_options how = BATON_COMM_OPTIONS_INIT;
	struct options options = { 50000, 16, 128 };
	struct baton_comm *comm;
	bool good = false;

	if (!parse(argc, argv, &options))
		return EXIT_FAILURE;
	/* Of each item: a wait, a function, a signal. */
	how.requests_max = 3 * (RANKS_MAX - 1) * (uint32_t)options.slots + 16;
	how.timeout_ns = TIMEOUT_NS;
	CHECK(NULL, baton_comm_create(&how, &comm));
	if (baton_comm_size(comm) >= 2 && baton_comm_size(comm) <= RANKS_MAX)
		good = run(comm, &options);
	else if (baton_comm_rank(comm) == 0)
		fprintf(stderr, "producer_consumer: started as %d ranks, must "
		        "be 2 to %d (mpirun -np 2 ...)\n",
		        baton_comm_size(comm), RANKS_MAX);
	CHECK(comm, baton_comm_destroy(comm));
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
