/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Producers put items into rings in the consumer's memory.
 *
 *   mpirun -np 4 producer_consumer   (or without MPI: README.md)
 *
 * Rank 0 is the consumer, the others are producers.  The consumer's part of the
 * window holds one ring of slots for each producer.  Two signal counters manage a
 * ring:
 *
 *   FILLED   raised by the producer's put: one more slot can be read
 *   FREE     raised by a signal of the consumer: a credit, one more slot can be
 *            written
 *
 * Baton counts signals by source, so all producers use the same two indices.
 * Slots are filled and freed in order, so a count identifies the slot.
 *
 * An item is three operations on a stream of each side:
 *
 *   producer   wait for a credit (from the second round on), fill, put with signal
 *   consumer   wait for FILLED, check and work, signal FREE
 *
 * On a CUDA device (BATON_DEVICE=cuda, or BATON_TRANSPORT=nccl) the rings are memory of the
 * device, and puts go from memory of the device.  The work is a function on the host here, so a
 * copy comes behind each fill and one before each work, on the same stream.  A program with
 * kernels launches them there instead.
 *
 * The streams run by themselves; the host only keeps them supplied.  It enqueues
 * in batches of half of `ahead` items, asks for requests for the last item of a
 * batch only, and waits for the older of two batches.  The ring itself may be
 * much shorter: its length bounds the time that an item waits in it, `ahead`
 * decides how often the host has to wake up.
 *
 * Without a request a failed wait does not stop the operations behind it, but it
 * is logged; a peer that is gone fails all later waits too, the last of the batch
 * included, and the host then ends the program.  It does so as well when a batch
 * takes a minute.
 *
 * An item carries its number, a checksum, and the time at which it was filled.  Its
 * latency is from then until the consumer's function begins to read it (copies
 * included); it occupies its slot until that function has worked on it.  CLOCK_MONOTONIC is one
 * clock for all processes of a node, so run all ranks on one.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "command_line.h"
#include "device.h"

#define CONSUMER 0
#define RANKS_MAX 8
#define SLOTS_MAX 1024
#define AHEAD_MAX 1024
/* Baton puts at most 800 entries on a CUDA stream, and an item is about ten: its wait, its
 * function, and its put or signal.  Calls beyond that return BATON_ERR_AGAIN. */
#define AHEAD_MAX_CUDA 64
#define TIMEOUT_NS INT64_C(60000000000) /* of a batch: a peer is stuck */
#define PROGRESS_NS 200000000u          /* between two lines for the user */

enum signal_index { FILLED, FREE };

struct options {
	long items; /* of each producer */
	int slots;  /* of each ring */
	int ahead;  /* items that are enqueued ahead; even */
	size_t words; /* of an item's payload */
};

struct item {
	uint64_t number;
	uint64_t filled_ns;
	uint64_t checksum; /* of the number and the payload */
	uint64_t path;     /* BATON_WINDOW_PATH_*, by which it has come */
	uint64_t payload[];
};

/* Items that are enqueued together, by the last one's operations: the wait before
 * the work (null: it has none), the signal after it. */
struct batch {
	baton_request before, after;
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

static void give_up(struct baton_comm *comm)
{
	fprintf(stderr, "rank %d: nothing has come for a minute\n",
	        baton_comm_rank(comm));
	baton_comm_abort(comm);
	exit(EXIT_FAILURE);
}

static void finish_in_time(struct baton_comm *comm, baton_request *request)
{
	if (baton_wait(*request, TIMEOUT_NS, NULL) == BATON_PENDING)
		give_up(comm);
	finish(comm, request, NULL);
}

/* The operations of a stream end in order: the last one's end is that of all. */
static void batch_finish(struct baton_comm *comm, struct batch *batch)
{
	if (batch->before != BATON_REQUEST_NULL)
		finish_in_time(comm, &batch->before);
	finish_in_time(comm, &batch->after);
}

/* How many items a batch has that begins at this one. */
static long batch_length(const struct options *options, long number)
{
	long left = options->items - number;

	return left < options->ahead / 2 ? left : options->ahead / 2;
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
	struct device *device; /* NULL: the communicator is on the host */
	void *on_device;       /* what is put else, a copy of the item */
	uint64_t number; /* of the item that is made next, by the stream */
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

/* The outputs are NULL but for the last item of a batch. */
static void produce(struct producer *producer, long number,
                    baton_request *before_p, baton_request *after_p)
{
	const struct options *options = producer->options;
	struct baton_comm *comm = producer->comm;
	size_t slot = (size_t)(number % options->slots);
	size_t ring = (size_t)(baton_comm_rank(comm) - 1);
	size_t offset = (ring * (size_t)options->slots + slot) *
	                slot_bytes(options);
	size_t words = sizeof(struct item) / sizeof(uint64_t) + options->words;
	const void *source = producer->item;

	/* The slots of the first round are free without being told so. */
	if (number >= options->slots)
		wait_for(comm, producer->stream, CONSUMER, FREE, 1, before_p);
	CHECK(comm, baton_stream_launch(comm, producer->stream, fill, producer));
	if (producer->device != NULL) {
		source = producer->on_device;
		device_enqueue_copy(producer->device, producer->stream,
		                    producer->on_device, producer->item,
		                    words * sizeof(uint64_t));
	}
	CHECK(comm, baton_put_signal(source, words, BATON_UINT64,
	                             CONSUMER, producer->window, offset, FILLED,
	                             0, 0, comm, producer->stream, NULL,
	                             after_p));
}

static void produce_batch(struct producer *producer, long first,
                          struct batch *batch)
{
	long last = first + batch_length(producer->options, first) - 1;

	for (long number = first; number < last; number++)
		produce(producer, number, NULL, NULL);
	produce(producer, last, &batch->before, &batch->after);
}

static bool producer_run(struct producer *producer)
{
	const struct options *options = producer->options;
	struct baton_comm *comm = producer->comm;
	long last_round = options->items < options->slots ? options->items
	                                                  : options->slots;
	struct batch older = { BATON_REQUEST_NULL, BATON_REQUEST_NULL };
	struct batch newer = older;
	baton_request rest;
	uint64_t credits;

	produce_batch(producer, 0, &older);
	for (long number = batch_length(options, 0); number < options->items;
	     number += batch_length(options, number)) {
		produce_batch(producer, number, &newer);
		batch_finish(comm, &older);
		older = newer;
		newer.before = BATON_REQUEST_NULL;
	}
	batch_finish(comm, &older);
	/* The last round's credits: then all has been read. */
	wait_for(comm, producer->stream, CONSUMER, FREE, (int)last_round, &rest);
	finish_in_time(comm, &rest);
	CHECK(comm, baton_stream_synchronize(comm, producer->stream));
	CHECK(comm, baton_signal_count(comm, CONSUMER, FREE, 0, &credits));
	if (credits == (uint64_t)options->items)
		return true;
	fprintf(stderr, "rank %d: %llu credits for %ld items\n",
	        baton_comm_rank(comm), (unsigned long long)credits,
	        options->items);
	return false;
}

/* Items in memory of the host: pinned, where a device copies them. */
static struct item *item_alloc(struct device *device, const struct options *options)
{
	return device != NULL ? device_pinned_alloc(device, slot_bytes(options))
	                      : allocate(1, slot_bytes(options));
}

static void item_free(struct device *device, struct item *item)
{
	if (device != NULL)
		device_pinned_free(device, item);
	else
		free(item);
}

static bool produce_all(struct baton_comm *comm, const struct options *options,
                        struct baton_window *window, struct device *device)
{
	struct producer *producer = allocate(1, sizeof(*producer));
	bool good;

	producer->comm = comm;
	producer->options = options;
	producer->window = window;
	producer->device = device;
	producer->item = item_alloc(device, options);
	if (device != NULL)
		producer->on_device = device_alloc(device, slot_bytes(options));
	producer->item->path = baton_window_path(window, CONSUMER);
	CHECK(comm, baton_stream_create(comm, &producer->stream));
	good = producer_run(producer);
	CHECK(comm, baton_stream_destroy(comm, producer->stream));
	item_free(device, producer->item);
	if (device != NULL)
		device_free(device, producer->on_device);
	free(producer);
	return good;
}

/* ---- the consumer ------------------------------------------------------- */

/* One producer, as the consumer sees it. */
struct lane {
	struct consumer *consumer;
	int producer;
	char *ring;
	struct item *item; /* a copy of a slot, where the ring is the device's;
	                      else NULL */
	baton_stream stream;
	long enqueued, finished;
	struct batch older, newer; /* enqueued and not finished; null requests:
	                              there is none */
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
	struct device *device; /* NULL: the rings are memory of the host */
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

static void *slot_of(const struct lane *lane, long number)
{
	const struct options *options = lane->consumer->options;

	return lane->ring + (size_t)(number % options->slots) *
	                            slot_bytes(options);
}

/* On the stream. */
static void consume(void *argument)
{
	struct lane *lane = argument;
	const struct options *options = lane->consumer->options;
	long number = lane->read++;
	const struct item *item = lane->item != NULL ? lane->item
	                                             : slot_of(lane, number);
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

/* The outputs are NULL but for the last item of a batch. */
static void lane_enqueue(struct lane *lane, long number,
                         baton_request *before_p, baton_request *after_p)
{
	struct consumer *consumer = lane->consumer;
	struct baton_comm *comm = consumer->comm;

	wait_for(comm, lane->stream, lane->producer, FILLED, 1, before_p);
	if (lane->item != NULL)
		device_enqueue_copy(consumer->device, lane->stream, lane->item,
		                    slot_of(lane, number),
		                    sizeof(struct item) +
		                            consumer->options->words *
		                                    sizeof(uint64_t));
	CHECK(comm, baton_stream_launch(comm, lane->stream, consume, lane));
	CHECK(comm, baton_signal(lane->producer, FREE, 0, 0, comm, lane->stream,
	                         NULL, after_p));
}

/* One more batch, unless the lane is through: then its requests are null. */
static void lane_enqueue_batch(struct lane *lane)
{
	long count = batch_length(lane->consumer->options, lane->enqueued);

	lane->newer.before = lane->newer.after = BATON_REQUEST_NULL;
	for (long i = 1; i < count; i++)
		lane_enqueue(lane, lane->enqueued++, NULL, NULL);
	if (count > 0)
		lane_enqueue(lane, lane->enqueued++, &lane->newer.before,
		             &lane->newer.after);
}

/* The older batch is over: the newer one is the oldest now. */
static void lane_advance(struct lane *lane)
{
	lane->older = lane->newer;
	lane_enqueue_batch(lane);
}

static void lane_finish(struct lane *lane)
{
	struct consumer *consumer = lane->consumer;
	const char *wrong;

	batch_finish(consumer->comm, &lane->older);
	wrong = atomic_load(&lane->wrong);
	/* The stream may be some items ahead. */
	if (wrong != NULL) {
		fprintf(stderr, "an item of rank %d after its item %ld %s\n",
		        lane->producer, lane->finished - 1, wrong);
		baton_comm_abort(consumer->comm);
		exit(EXIT_FAILURE);
	}
	lane->finished += batch_length(consumer->options, lane->finished);
	lane_advance(lane);
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

	for (int i = 0; i < consumer->lanes_count; i++) {
		lane_enqueue_batch(&consumer->lanes[i]);
		lane_advance(&consumer->lanes[i]);
		oldest[i] = consumer->lanes[i].older.after;
	}
	for (;;) {
		size_t ended[RANKS_MAX - 1], ended_count, index = 0;
		enum baton_status status;

		status = baton_wait_any(oldest, count, TIMEOUT_NS, &index, NULL);
		if (status == BATON_OK && index == count)
			break;
		if (status == BATON_PENDING)
			give_up(consumer->comm);
		/* Take all that have ended, so that no producer's turn depends
		 * on its rank.  How one ended is seen by its finish. */
		CHECK(consumer->comm, baton_test_some(oldest, count, ended,
		                                      count, &ended_count));
		for (size_t i = 0; i < ended_count; i++) {
			lane_finish(&consumer->lanes[ended[i]]);
			oldest[ended[i]] = consumer->lanes[ended[i]].older.after;
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

	printf("\nItems by the time between the first one filled and the last one "
	       "worked on;\nus from an item filled to the consumer's function "
	       "that reads it;\noccupancy: slots in use on average.\n"
	       "\n  producer  path       items/s     MB/s    p50 us    p90 us"
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
                      char *rings, uint64_t *latencies_ns)
{
	const struct options *options = consumer->options;

	lane->consumer = consumer;
	lane->producer = index + 1;
	lane->ring = rings + (size_t)index * (size_t)options->slots *
	                             slot_bytes(options);
	if (consumer->device != NULL)
		lane->item = item_alloc(consumer->device, options);
	lane->latencies_ns = latencies_ns + index * options->items;
	CHECK(consumer->comm, baton_stream_create(consumer->comm, &lane->stream));
}

static bool consume_all(struct baton_comm *comm, const struct options *options,
                        char *rings, struct device *device)
{
	struct consumer *consumer = allocate(1, sizeof(*consumer));
	struct winsize size;
	uint64_t *latencies_ns;
	bool good = true;

	consumer->comm = comm;
	consumer->options = options;
	consumer->device = device;
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
	for (int i = 0; i < consumer->lanes_count; i++) {
		CHECK(comm, baton_stream_destroy(comm,
		                                 consumer->lanes[i].stream));
		if (consumer->lanes[i].item != NULL)
			item_free(device, consumer->lanes[i].item);
	}
	free(latencies_ns);
	free(consumer);
	return good;
}

/* ---- options ------------------------------------------------------------ */

static const char help_text[] =
	"usage: mpirun -np N producer_consumer [options]      (without MPI: README.md)\n"
	"\n"
	"Rank 0 consumes what the other 1 to 7 ranks put into its memory; every\n"
	"item is checked.\n"
	"\n"
	"  --items N     of each producer (1 to 10000000, default 50000)\n"
	"  --slots N     of each producer's ring (1 to 1024, default 16)\n"
	"  --ahead N     items enqueued ahead, in two batches (2 to 1024, even,\n"
	"                default 256; at most 64 on the CUDA device)\n"
	"  --bytes N     of an item, rounded up to words of 8 bytes\n"
	"                (default 1024)\n"
	"  --help        this text\n";

static bool number(const char *name, long min, long max, long *value_p)
{
	return option_number("producer_consumer", name, min, max, value_p);
}

static bool take(int option, void *taken)
{
	struct options *options = taken;
	long value;

	switch (option) {
	case 'n':
		return number("items", 1, 10000000, &options->items);
	case 's':
		if (!number("slots", 1, SLOTS_MAX, &value))
			return false;
		options->slots = (int)value;
		return true;
	case 'a':
		if (!number("ahead", 2, AHEAD_MAX, &value))
			return false;
		options->ahead = (int)(value + 1) & ~1;
		return true;
	default: /* 'b' */
		if (!number("bytes", 8, 1 << 30, &value))
			return false;
		options->words = (size_t)(value + 7) / 8;
		return true;
	}
}

static bool parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "items", required_argument, NULL, 'n' },
		{ "slots", required_argument, NULL, 's' },
		{ "ahead", required_argument, NULL, 'a' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};

	return options_parse("producer_consumer", help_text, argc, argv, known,
	                     take, options);
}

/* ---- all of it ---------------------------------------------------------- */

static bool run(struct baton_comm *comm, struct options *options)
{
	struct baton_comm_info info = { .size = sizeof(info) };
	struct baton_window *window;
	struct device *device = device_open(comm);
	bool on_device = false;
	void *rings = NULL;
	size_t bytes = 0;
	bool good;

	CHECK(comm, baton_comm_query(comm, &info));
	if (info.device == BATON_DEVICE_CUDA && options->ahead > AHEAD_MAX_CUDA)
		options->ahead = AHEAD_MAX_CUDA;
	/* Only the consumer's memory is put into: the producers' parts are
	 * empty. */
	if (info.rank == CONSUMER) {
		bytes = (size_t)(info.ranks - 1) * (size_t)options->slots *
		        slot_bytes(options);
		CHECK(comm, baton_mem_alloc(comm, bytes, &rings));
		on_device = device != NULL && device_owns(device, rings);
	}
	CHECK(comm, baton_window_register(rings, bytes, comm, &window));
	if (info.rank == CONSUMER) {
		printf("%d ranks, %s device, %s transport: %ld items of %zu "
		       "bytes from each of %d producers, rings of %d slots in "
		       "memory of the %s, %d items enqueued ahead\n",
		       info.ranks, info.device_name, info.transport_name,
		       options->items, options->words * sizeof(uint64_t),
		       info.ranks - 1, options->slots,
		       on_device ? "device" : "host", options->ahead);
		fflush(stdout);
		good = consume_all(comm, options, rings,
		                   on_device ? device : NULL);
	} else {
		good = produce_all(comm, options, window, device);
	}
	CHECK(comm, baton_window_deregister(window));
	CHECK(comm, baton_mem_free(comm, rings));
	device_close(device);
	return good;
}

int main(int argc, char **argv)
{
	struct baton_comm_options how = BATON_COMM_OPTIONS_INIT;
	struct options options = { 50000, 16, 256, 128 };
	struct baton_comm *comm;
	bool good = false;

	if (!parse(argc, argv, &options))
		return EXIT_FAILURE;
	/* Of each item: a wait, a function, a signal. */
	how.requests_max = 3 * (RANKS_MAX - 1) * (uint32_t)options.ahead + 16;
	CHECK(NULL, baton_comm_create(&how, &comm));
	if (baton_comm_size(comm) >= 2 && baton_comm_size(comm) <= RANKS_MAX)
		good = run(comm, &options);
	else if (baton_comm_rank(comm) == 0)
		fprintf(stderr, "producer_consumer: started as %d ranks, must "
		                "be 2 to %d (mpirun -np 2 ..., or see README.md)\n",
		        baton_comm_size(comm), RANKS_MAX);
	CHECK(comm, baton_comm_destroy(comm));
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
