/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and signals that come by message: the target's side, window/paths/message.c as it is, over a
 * transport that delivers any bytes.  A rank has a window, an announcement's receive and channels
 * from two ranks.  The input is a list of deliveries: the channel, or the announcement's receive; a
 * length; that many bytes.  A payload that was asked for gets bytes at once, as many or fewer.  An
 * answer to a get is sent at once.
 *
 * The window is one of a library's too, so headers may say that their data goes by a native transport.
 *
 * Nothing is written outside of the window, and nothing outside of it is sent, which AddressSanitizer
 * sees; a get is answered once, by all of its bytes or by none; no delivery counts for
 * more than a signal can; and the library is not asked to wait for what cannot come.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "message.h"
#include "native_path.h"

enum {
	RANKS = 2,
	CONTEXTS = 2,
	SIGNALS = 3,
	CHANNELS = RANKS * CONTEXTS,
	MAIL = CHANNELS,
	WINDOW_ID = 7,
	WINDOW_BYTES = 5000,
	UNITS_MAX = 1000 /* that a source may have begun */
};

static struct world {
	struct batoni_rma rma;
	struct baton_comm *comm;
	struct batoni_transport transport;
	_Atomic(struct batoni_link *) links[RANKS];
	struct batoni_link *made[RANKS];
	struct batoni_counter counters[RANKS][CONTEXTS * SIGNALS];
	_Atomic uint64_t values[RANKS][CONTEXTS * SIGNALS];
	struct baton_window *window;
	unsigned answers;
	uint64_t asked; /* units that were not there at the last question; 0: none */
	/* What is posted, by channel. */
	struct batoni_transfer *posted[CHANNELS + 1];
} world;

/* ---- what message.c needs of others ---- */

void
batoni_log(enum batoni_log_level level, const char *format, ...)
{
	(void)level;
	(void)format;
}

const char *
baton_status_name(enum baton_status status)
{
	(void)status;
	return "";
}

void
batoni_comm_set_busy(struct baton_comm *comm)
{
	(void)comm;
}

void
batoni_comm_hold(struct baton_comm *comm, bool hold)
{
	(void)comm;
	(void)hold;
}

bool
batoni_lane_part_ended(struct batoni_lane *lane,
                       const struct batoni_transfer *transfer,
                       enum baton_status status)
{
	(void)lane;
	(void)transfer;
	(void)status;
	abort(); /* nothing is sent here */
}

void
batoni_lane_end(struct batoni_rma *rma, struct batoni_lane *lane)
{
	(void)rma;
	(void)lane;
	abort();
}

void
batoni_lane_give(struct batoni_rma *rma, struct batoni_lane *lane)
{
	(void)rma;
	(void)lane;
	abort();
}

void
batoni_gets_give_up(struct batoni_rma *rma)
{
	(void)rma;
	abort();
}

bool
batoni_native_may_come(const struct batoni_rma *rma, int source, uint64_t units)
{
	(void)rma;
	CLAIM(source >= 0 && source < RANKS);
	return units <= UNITS_MAX;
}

/* They come when they have been asked for twice. */
enum baton_status
batoni_native_await(const struct batoni_rma *rma, int source, uint64_t units)
{
	(void)rma;
	CLAIM(source >= 0 && source < RANKS);
	CLAIM(units > 0 && units <= UNITS_MAX);
	if (world.asked == units) {
		world.asked = 0;
		return BATON_OK;
	}
	world.asked = units;
	return BATON_PENDING;
}

struct baton_window *
batoni_window_find(struct batoni_rma *rma, uint64_t id)
{
	(void)rma;
	return id == WINDOW_ID ? world.window : NULL;
}

struct batoni_link *
batoni_link_make(struct batoni_rma *rma, int peer)
{
	CLAIM(peer >= 0 && peer < RANKS);
	return batoni_link_of(rma, peer);
}

/* ---- the transport ---- */

static int
channel_of(const struct batoni_transfer *transfer)
{
	int tag = transfer->tag - world.transport.hidden_tag;

	return tag == 3 * CONTEXTS + 1 ? MAIL : transfer->peer * CONTEXTS + tag / 3;
}

/* An answer: what it sends is read. */
static void
send_answer(const struct batoni_transfer *transfer)
{
	static unsigned char sent[WINDOW_BYTES];

	CLAIM((transfer->tag - world.transport.hidden_tag) % 3 == 2);
	CLAIM(transfer->bytes <= WINDOW_BYTES);
	if (transfer->bytes > 0)
		memcpy(sent, transfer->buffer, transfer->bytes);
	world.answers++;
}

static enum baton_status
issue_answered(struct batoni_path *path, struct batoni_transfer *transfer)
{
	int channel = channel_of(transfer);

	(void)path;
	if (transfer->direction == BATONI_SEND) {
		send_answer(transfer);
		return BATON_OK;
	}
	CLAIM(!world.posted[channel]);
	world.posted[channel] = transfer;
	return BATON_PENDING;
}

static const struct batoni_path_ops messages_ops = {
	.host_issued = &(const struct batoni_host_issued_ops){.issue = issue_answered},
};

/* ---- a world ---- */

static void
make_link(int peer)
{
	struct batoni_link *link =
		calloc(1, sizeof(*link) + CONTEXTS * sizeof(link->channels[0]));

	if (!link)
		exit(EXIT_FAILURE);
	link->counters = world.counters[peer];
	for (int i = 0; i < CONTEXTS * SIGNALS; i++)
		link->counters[i].value = &world.values[peer][i];
	for (int i = 0; i < CONTEXTS; i++) {
		link->channels[i].link = link;
		link->channels[i].peer = peer;
		link->channels[i].context = i;
	}
	world.made[peer] = link;
	atomic_store(&world.links[peer], link);
}

static void
begin(void)
{
	memset(&world, 0, sizeof(world));
	world.transport.messages.ops = &messages_ops;
	world.transport.hidden_tag = 100;
	world.transport.hidden_tags = batoni_onesided_tags(CONTEXTS);
	world.transport.any_peer = -1;
	world.rma.transport = &world.transport;
	world.rma.native = &world.transport;
	world.rma.comm = world.comm;
	world.rma.size = RANKS;
	world.rma.requests_max = 8;
	world.rma.base.contexts_max = CONTEXTS;
	world.rma.base.signals_max = SIGNALS;
	world.rma.links = world.links;
	batoni_unended_init(&world.rma);
	world.window = calloc(1, sizeof(*world.window));
	if (!world.window)
		exit(EXIT_FAILURE);
	world.window->id = WINDOW_ID;
	world.window->base = malloc(WINDOW_BYTES);
	world.window->bytes = WINDOW_BYTES;
	world.window->native = (void *)world.window;
	for (int i = 0; i < RANKS; i++)
		make_link(i);
	if (batoni_messages_open(&world.rma) != BATON_OK)
		exit(EXIT_FAILURE);
	batoni_messages_start(&world.rma);
	batoni_messages_post(&world.rma);
}

static void
finish(void)
{
	for (int i = 0; i < RANKS; i++) {
		for (int k = 0; k < CONTEXTS; k++)
			free(atomic_load(&world.made[i]->channels[k].wire));
		free(world.made[i]);
	}
	free(world.rma.messages->buffers);
	free(world.rma.messages);
	free(world.window->base);
	free(world.window);
}

static uint64_t
signals(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < RANKS; i++)
		for (int k = 0; k < CONTEXTS * SIGNALS; k++)
			sum += world.values[i][k];
	return sum;
}

static void
complete(int channel, const void *bytes, size_t n)
{
	struct batoni_transfer *transfer = world.posted[channel];
	size_t fits = n < transfer->bytes ? n : transfer->bytes;

	if (fits > 0)
		memcpy(transfer->buffer, bytes, fits);
	batoni_transfer_moved(transfer, n);
	world.posted[channel] = NULL;
	batoni_message_done(&world.rma, transfer,
	                    n <= transfer->bytes ? BATON_OK
	                                         : BATON_ERR_TRUNCATED);
	while (batoni_messages_test(&world.rma) > 0 ||
	       !batoni_list_empty(&world.rma.messages->natives))
		;
}

/* A header asks for a payload. */
static bool
asks(int channel)
{
	const struct batoni_transfer *transfer = world.posted[channel];

	return channel != MAIL && transfer &&
	       (transfer->tag - world.transport.hidden_tag) % 3 == 1;
}

static void
deliver(int channel, const uint8_t *bytes, size_t n)
{
	static unsigned char payload[WINDOW_BYTES + 1];
	uint64_t before = signals();
	unsigned answers = world.answers;

	if (!world.posted[channel])
		return; /* nothing was announced, or it has failed */
	complete(channel, bytes, n);
	if (asks(channel)) {
		size_t wanted = world.posted[channel]->bytes;

		CLAIM(wanted <= WINDOW_BYTES);
		CLAIM(signals() == before);
		complete(channel, payload, n % 5 == 0 ? wanted / 2 : wanted);
	}
	CLAIM(signals() - before <= (channel != MAIL ? UINT32_MAX : 0));
	CLAIM(world.answers <= answers + (channel != MAIL && signals() == before));
}

/* ---- input ---- */

struct delivery {
	uint8_t channel;
	uint8_t bytes[2]; /* little-endian */
};

static size_t
seed_one(unsigned char *at, uint8_t channel, const void *content, size_t n)
{
	const struct delivery delivery = {
		channel, {(uint8_t)n, (uint8_t)(n >> 8)}};

	memcpy(at, &delivery, sizeof(delivery));
	memcpy(at + sizeof(delivery), content, n);
	return sizeof(delivery) + n;
}

/* An announcement, and the same put twice behind it. */
static void
seed_put(struct batoni_header header, int rank)
{
	const struct batoni_hello hello = {
		.magic = BATONI_MESSAGE_MAGIC,
		.version = BATONI_MESSAGE_VERSION,
		.context = 1,
		.rank = rank,
	};
	unsigned char bytes[300], message[sizeof(header) + 20] = {0};
	size_t behind = header.payload == BATONI_PAYLOAD_INLINE ? 20 : 0, n;

	header.magic = BATONI_MESSAGE_MAGIC;
	header.version = BATONI_MESSAGE_VERSION;
	memcpy(message, &header, sizeof(header));
	n = seed_one(bytes, MAIL, &hello, sizeof(hello));
	for (int i = 0; i < 2; i++)
		n += seed_one(bytes + n, 1 * CONTEXTS + 1, message,
		              sizeof(header) + behind);
	fuzz_seed(bytes, n);
}

/* Those that are well formed, just within the window; and one step further. */
void
seeds(void)
{
	const struct batoni_header none = {.signal_index = 2, .context = 1};
	struct batoni_header part = {
		.payload = BATONI_PAYLOAD_INLINE,
		.window = WINDOW_ID,
		.offset = WINDOW_BYTES - 20,
		.bytes = 20,
		.signal_index = SIGNALS - 1,
		.context = CONTEXTS - 1,
	};
	struct batoni_header whole = part, native = part, get = part;

	whole.payload = BATONI_PAYLOAD_SEPARATE;
	whole.offset = 0;
	whole.bytes = WINDOW_BYTES;
	seed_put(none, 1);
	seed_put(part, 1);
	seed_put(whole, 1);
	native.payload = BATONI_PAYLOAD_NATIVE;
	native.offset = UNITS_MAX;
	seed_put(native, 1);
	native.offset++;
	seed_put(native, 1);
	native.offset = 0;
	seed_put(native, 1);
	seed_put(part, RANKS);
	seed_put(part, -1);
	part.offset++;
	seed_put(part, 1);
	part.offset = UINT64_MAX - 10;
	seed_put(part, 1);
	part.offset = 0;
	part.signal_index = SIGNALS;
	seed_put(part, 1);
	part.signal_index = -1;
	seed_put(part, 1);
	get.payload = BATONI_PAYLOAD_GET;
	seed_put(get, 1);
	get.signal_index = -1;
	seed_put(get, 1);
	get.offset++;
	seed_put(get, 1);
	get.offset = 0;
	get.bytes = UINT64_MAX;
	seed_put(get, 1);
	get.window = get.bytes = 0;
	seed_put(get, 1);
	whole.offset = 1;
	seed_put(whole, 1);
	whole.offset = 0;
	whole.bytes = UINT64_MAX;
	seed_put(whole, 1);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	begin();
	while (n >= sizeof(struct delivery)) {
		size_t length = (size_t)bytes[1] | (size_t)bytes[2] << 8;
		int channel = bytes[0] % (CHANNELS + 1);

		bytes += sizeof(struct delivery);
		n -= sizeof(struct delivery);
		if (length > n)
			length = n;
		deliver(channel, bytes, length);
		bytes += length;
		n -= length;
	}
	finish();
	return 0;
}
