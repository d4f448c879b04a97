/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages of checked mode, and of lists in plain mode: transport/nccl/nccl_checked.c and the four
 * that it names, as they are, between a program, peers that say anything, and a library and a device
 * that are stubs.
 *
 * The input is a list of commands of six bytes.  Some are the program's (issue, take back), some
 * the device's (kernels end, NCCL is busy, its lock is taken); a delivery is a message of a peer,
 * made of the units that follow: numbers that make sense often enough for a conversation, or the
 * bytes of a control message as they are.  Pieces of a list's header may be the ones that were asked for.
 *
 * What holds after each command: counts and lists are within their bounds; each transfer ends
 * once, in a status that its end may have; a control message that breaks the rules breaks the
 * communicator by PEER, which is told once; nothing is listened to after that.  At the end an
 * abort ends all, and a leave lets go of all that is below.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fuzz.h"
#include "log.h"
#include "mem.h"
#include "memory.h"
#include "nccl_checked.h"
#include "tensors.h"

enum {
	RANK = 1,
	SIZE = 3,
	SLOTS = 160,
	BITS = 2,
	LANES_MAX = 2 * BITS + 1,
	LISTS = 4,
	TENSORS_MOST = 40,
	ARENA = 4096,
	RUNNING_MOST = 64,
	CONTROL_BYTES = (int)sizeof(struct batoni_nccl_control)
};

enum command {
	ISSUE,
	TAKE_BACK,
	DELIVER,
	SENT,
	TEST,
	KERNELS,
	BUSY_NCCL,
	BUSY_LOCK,
	LOSE,
	LEAVE,
	ABORT,
	COMMANDS
};

/* One command, or one control message of a delivery. */
struct unit {
	uint8_t what, peer, a, b, c, d;
};

/* A transfer of the engine's, and its memory, which is there until it has ended. */
struct engine_slot {
	struct batoni_transfer transfer;
	struct batoni_tensor_list list;
	struct batoni_segment segments[TENSORS_MOST];
	struct baton_tensor declared[TENSORS_MOST];
	void *memory; /* of a plain message; the arena */
	bool held, lent;
};

static struct world {
	struct batoni_nccl nccl;
	struct batoni_transport lower;
	struct batoni_device device;
	struct batoni_upcalls upcalls;
	/* Behind those of messages, that of puts and that of lists. */
	struct batoni_nccl_lane lanes[LANES_MAX + 2];
	struct batoni_transfer *posted[SIZE], *sending[SIZE];
	uint64_t marked, passed; /* marks */
	bool sends_end_at_once, in_progress, lock_taken;
	bool broken, failed_in_nccl, left;
} world;

/* All 0 between two inputs. */
static struct engine_slot slots[SLOTS];

/* Lists that peers and the program send. */
static struct {
	struct baton_tensor tensors[TENSORS_MOST];
	size_t n, payload, header_bytes;
	unsigned char header[BATONI_TENSORS_FIXED_BYTES + 8 +
	                     TENSORS_MOST * BATONI_TENSORS_ENTRY_MAX];
} lists[LISTS];

static struct batoni_path *
path(void)
{
	return world.nccl.has_lists ? &world.nccl.lists
	                            : &world.nccl.base.messages;
}

static struct batoni_nccl_checked *
checked(void)
{
	return world.nccl.checked;
}

/* ---- what checked mode needs of others ---- */

void
batoni_mem_keep(long change)
{
	(void)change;
}

uint64_t
batoni_real_ns(void)
{
	return 1;
}

unsigned
batoni_nccl_lane_of(const struct batoni_nccl *nccl, int source, int target)
{
	return source == target ? nccl->lanes_n - 1
	                        : (unsigned)(2 * target + source) %
	                                  (nccl->lanes_n - 1);
}

bool
batoni_nccl_reaches(const struct batoni_nccl *nccl, unsigned location)
{
	(void)nccl;
	(void)location;
	return true;
}

enum baton_status
batoni_nccl_refuse_memory(const struct batoni_nccl *nccl, unsigned location,
                          size_t tensor)
{
	(void)nccl;
	(void)location;
	(void)tensor;
	abort(); /* all memory is reached */
}

enum baton_status
batoni_nccl_check_memory(const struct batoni_nccl *nccl,
                         const struct batoni_transfer *transfer)
{
	(void)nccl;
	(void)transfer;
	return BATON_OK;
}

void
batoni_nccl_describe(const struct batoni_nccl_api *api, ncclComm_t comm,
                     ncclResult_t result, char *text, size_t size)
{
	(void)api;
	(void)comm;
	(void)result;
	text[0] = '\0';
	CLAIM(size > 0);
}

enum baton_status
batoni_nccl_try_enter(struct batoni_nccl *nccl, struct batoni_memory_guard *guard)
{
	(void)nccl;
	(void)guard;
	return world.lock_taken ? BATON_ERR_AGAIN : BATON_OK;
}

void
batoni_nccl_leave(struct batoni_nccl *nccl, const struct batoni_memory_guard *guard)
{
	(void)nccl;
	(void)guard;
}

size_t
batoni_nccl_poll(struct batoni_nccl *nccl)
{
	(void)nccl;
	return 0;
}

bool
batoni_nccl_abort(struct batoni_path *aborted)
{
	(void)aborted;
	atomic_store(&world.nccl.aborting, true);
	return true;
}

bool
batoni_nccl_is_stopped(struct batoni_nccl *nccl)
{
	CLAIM(atomic_load(&nccl->aborting));
	return !world.in_progress;
}

/* NCCL reaches all bytes of the message, and no others. */
void
batoni_nccl_call(const struct batoni_nccl *nccl,
                 const struct batoni_nccl_lane *lane,
                 const struct batoni_transfer *transfer, void *buffer,
                 size_t bytes, baton_stream stream)
{
	(void)stream;
	CLAIM(nccl->has_lists ? lane == batoni_nccl_lane_of_lists(nccl)
	                      : lane < nccl->lanes + nccl->lanes_n);
	CLAIM(slots[transfer->slot].held);
	CLAIM(&slots[transfer->slot].transfer == transfer);
	if (bytes == 0)
		return;
	CLAIM(buffer != NULL);
	if (transfer->direction == BATONI_RECV)
		memset(buffer, 1, bytes);
	else
		CLAIM(memchr(buffer, 2, bytes) == NULL);
}

static ncclResult_t
group_start(void)
{
	return BATONI_NCCL_SUCCESS;
}

static ncclResult_t
group_end(void)
{
	return world.in_progress ? BATONI_NCCL_IN_PROGRESS : BATONI_NCCL_SUCCESS;
}

static ncclResult_t
comm_error(ncclComm_t comm, ncclResult_t *state)
{
	(void)comm;
	*state = group_end();
	return BATONI_NCCL_SUCCESS;
}

static const struct batoni_nccl_api api = {
	.group_start = group_start,
	.group_end = group_end,
	.comm_error = comm_error,
};

/* ---- the device: marks are passed in their order ---- */

static enum baton_status
mark(struct batoni_device *device, baton_stream stream, struct batoni_mark *mark_p)
{
	(void)device;
	(void)stream;
	mark_p->object = &world;
	mark_p->value = ++world.marked;
	return BATON_OK;
}

static enum baton_status
mark_done(struct batoni_device *device, struct batoni_mark *mark_p)
{
	(void)device;
	CLAIM(mark_p->object == &world);
	if (mark_p->value > world.passed)
		return BATON_PENDING;
	mark_p->object = NULL;
	return BATON_OK;
}

static void
mark_drop(struct batoni_device *device, struct batoni_mark *mark_p)
{
	(void)device;
	CLAIM(mark_p->object == &world);
	mark_p->object = NULL;
}

static const struct batoni_mark_ops marks = {
	.mark = mark,
	.mark_done = mark_done,
	.mark_drop = mark_drop,
};

static const struct batoni_device_ops device_ops = {.marks = &marks};

/* ---- the lower transport ---- */

static struct batoni_transfer **
entry_of(const struct batoni_transfer *transfer)
{
	CLAIM(transfer->peer >= 0 && transfer->peer < SIZE);
	CLAIM(transfer->peer != RANK);
	return transfer->direction == BATONI_SEND
	               ? &world.sending[transfer->peer]
	               : &world.posted[transfer->peer];
}

static enum baton_status
lower_issue(struct batoni_path *of, struct batoni_transfer *transfer)
{
	struct batoni_transfer **entry = entry_of(transfer);
	size_t most = BATONI_NCCL_CONTROLS * sizeof(struct batoni_nccl_control);

	(void)of;
	CLAIM(!*entry);
	if (transfer->direction == BATONI_RECV)
		CLAIM(transfer->bytes == most && !world.broken);
	else
		CLAIM(transfer->bytes > 0 && transfer->bytes <= most &&
		      transfer->bytes % (size_t)CONTROL_BYTES == 0);
	*entry = transfer;
	if (transfer->direction == BATONI_RECV || !world.sends_end_at_once)
		return BATON_PENDING;
	*entry = NULL;
	batoni_transfer_moved(transfer, transfer->bytes);
	return BATON_OK;
}

/* A send that a peer may have is not taken back. */
static enum baton_status
lower_take_back(struct batoni_path *of, struct batoni_transfer *transfer)
{
	struct batoni_transfer **entry = entry_of(transfer);

	(void)of;
	CLAIM(*entry == transfer);
	if (transfer->direction == BATONI_SEND)
		return BATON_ERR_BUSY;
	*entry = NULL;
	return BATON_ERR_CANCELED;
}

static const struct batoni_path_ops lower_ops = {
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = lower_issue,
		.take_back = lower_take_back,
	},
};

static void
lower_ends(struct batoni_transfer **entry, size_t bytes, enum baton_status status)
{
	struct batoni_transfer *transfer = *entry;

	if (!transfer)
		return;
	*entry = NULL;
	batoni_transfer_moved(transfer, bytes);
	batoni_nccl_checked_done(&world.nccl, transfer, status);
}

/* ---- the engine ---- */

static void
forget(struct engine_slot *slot)
{
	for (size_t i = 0; slot->list.header && !slot->list.arena &&
	                   i < slot->list.count;
	     i++)
		free(slot->segments[i].data);
	free(slot->list.header);
	free(slot->memory);
	memset(slot, 0, sizeof(*slot));
}

static void
done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
     enum baton_status status)
{
	struct engine_slot *slot = &slots[transfer->slot];

	(void)upcalls;
	CLAIM(&slot->transfer == transfer && slot->held);
	CLAIM(status == BATON_OK || status == BATON_ERR_MISMATCH ||
	      status == BATON_ERR_TRUNCATED || status == BATON_ERR_CANCELED);
	CLAIM(status != BATON_ERR_TRUNCATED || slot->list.arena);
	forget(slot);
}

static void
broken(struct batoni_upcalls *upcalls, enum baton_status fatal, const char *call,
       int code, const char *text)
{
	(void)upcalls;
	CLAIM(!world.broken);
	/* The native library returned nothing, so the text is a sentence. */
	CLAIM((call != NULL || code == 0) && text[0] != '\0');
	CLAIM(fatal == BATON_ERR_PEER || fatal == BATON_ERR_TRUNCATED);
	world.broken = true;
}

static void
moves(struct batoni_upcalls *upcalls)
{
	(void)upcalls;
}

/* ---- a world ---- */

static void
begin(uint8_t kind)
{
	struct batoni_nccl *nccl = &world.nccl;

	memset(&world, 0, sizeof(world));
	world.sends_end_at_once = kind & 1;
	world.upcalls = (struct batoni_upcalls){
		.done = done, .broken = broken, .moves = moves};
	world.lower.messages.ops = &lower_ops;
	world.device.ops = &device_ops;
	nccl->base.messages.ops = &batoni_nccl_checked_ops;
	nccl->lists.ops = &batoni_nccl_lists_ops;
	nccl->has_lists = kind & 8;
	nccl->config.check = !nccl->has_lists;
	path()->load.quiet = kind & 2;
	nccl->base.upcalls = &world.upcalls;
	nccl->base.rank = RANK;
	nccl->base.size = SIZE;
	nccl->lower = &world.lower;
	nccl->api = &api;
	nccl->device = &world.device;
	nccl->config.slots = SLOTS;
	nccl->config.size = SIZE;
	nccl->config.lower_slot = SLOTS;
	nccl->bits = BITS;
	nccl->lanes_n = kind & 4 ? 2 : LANES_MAX;
	nccl->lanes = world.lanes;
	CLAIM(batoni_nccl_checked_create(nccl) == BATON_OK);
}

/* ---- what holds ---- */

static uint32_t
held(void)
{
	uint32_t n = 0;

	for (int i = 0; i < SLOTS; i++)
		n += slots[i].held;
	return n;
}

static void
claim_counts(void)
{
	const struct batoni_nccl_checked *own = checked();

	CLAIM(own->begun == held());
	CLAIM(own->failed == world.broken);
	CLAIM(own->posted < SIZE && own->sending < SIZE);
	for (int i = 0; i < SIZE; i++) {
		CLAIM(own->peers[i].headers_n <= BATONI_NCCL_AHEAD);
		CLAIM(own->peers[i].told <= BATONI_NCCL_AHEAD);
		CLAIM(own->wires[i].said_n <= BATONI_NCCL_CONTROLS);
		CLAIM(own->peers[i].headers_n == 0 ||
		      batoni_list_empty(&own->peers[i].receives));
	}
	CLAIM(own->withdrawn <= SIZE * BATONI_NCCL_AHEAD);
	for (unsigned i = 0; i < own->lanes_n; i++) {
		CLAIM(own->lanes[i].unacknowledged <= BATONI_NCCL_LED);
		CLAIM(own->lanes[i].running_n <= RUNNING_MOST);
	}
}

static void
test(void)
{
	batoni_nccl_checked_ops.test(path());
}

/* ---- the program ---- */

static size_t
bytes_of(uint8_t number)
{
	static const size_t sizes[] = {0, 4, 64, 100};

	return sizes[number % 4];
}

static void
fill_plain(struct engine_slot *slot, size_t bytes)
{
	slot->transfer.bytes = bytes;
	slot->transfer.location = BATONI_MEMORY_REGISTERED;
	slot->memory = calloc(1, bytes ? bytes : 1);
	slot->transfer.buffer = slot->memory;
}

/* Memory of its own for each tensor. */
static void
fill_closed(struct engine_slot *slot, int number)
{
	struct batoni_tensor_list *list = &slot->list;

	for (size_t i = 0; i < lists[number].n; i++) {
		size_t bytes = 0;

		batoni_tensor_bytes(&lists[number].tensors[i], &bytes);
		slot->segments[i] = (struct batoni_segment){
			calloc(1, bytes ? bytes : 1), bytes};
		slot->declared[i] = lists[number].tensors[i];
		slot->declared[i].data = slot->segments[i].data;
	}
	list->closed = true;
	list->count = list->declared_n = lists[number].n;
	list->payload_bytes = lists[number].payload;
	list->header_bytes = lists[number].header_bytes;
	memcpy(list->header, lists[number].header, lists[number].header_bytes);
}

/* A receive: all goes to the arena. */
static void
fill_open(struct engine_slot *slot, size_t n)
{
	struct batoni_tensor_list *list = &slot->list;

	for (size_t i = 0; i < n; i++)
		slot->declared[i].rank = -1;
	list->declared_n = n;
	list->fewer = n % 2;
	list->arena = slot->memory = calloc(1, ARENA);
	list->arena_bytes = ARENA;
}

static void
fill_list(struct engine_slot *slot, bool sends, uint8_t which)
{
	struct batoni_tensor_list *list = &slot->list;
	int number = which % LISTS;
	bool closed = sends || which & 0x10;
	size_t n = closed ? lists[number].n : which % TENSORS_MOST;

	list->segments = slot->segments;
	list->declared = slot->declared;
	list->header_max = BATONI_TENSORS_FIXED_BYTES +
	                   n * BATONI_TENSORS_ENTRY_MAX + 8;
	list->header = malloc(list->header_max);
	if (!list->header)
		exit(EXIT_FAILURE);
	if (closed)
		fill_closed(slot, number);
	else
		fill_open(slot, n);
	slot->transfer.location = BATONI_LOCATION_LIST;
	slot->transfer.buffer = list;
	slot->transfer.bytes = closed ? list->payload_bytes : ARENA;
}

/* The operation of the lowest free slot. */
static void
issue_one(const struct unit *unit)
{
	bool sends = unit->a & 1;
	struct engine_slot *slot = slots;
	enum baton_status status;

	while (slot < slots + SLOTS && slot->held)
		slot++;
	if (slot == slots + SLOTS)
		return;
	slot->transfer.peer = unit->peer % SIZE;
	slot->transfer.slot = (uint32_t)(slot - slots) & 0xffffff;
	slot->transfer.direction = sends ? BATONI_SEND : BATONI_RECV;
	slot->transfer.type = unit->b % BATON_DATATYPE_COUNT;
	if (unit->a & 2)
		fill_list(slot, sends, unit->c);
	else
		fill_plain(slot, bytes_of(unit->c));
	slot->held = true;
	batoni_nccl_checked_ops.placing->place(path(), &slot->transfer);
	status = batoni_nccl_checked_ops.host_issued->issue(path(), &slot->transfer);
	if (status != BATON_PENDING)
		done(&world.upcalls, &slot->transfer, status);
}

static void
issue_several(const struct unit *unit)
{
	/* None after all have left, or an abort. */
	for (int i = 0; i <= unit->d % 100 && !world.left && !world.broken &&
	                !atomic_load(&world.nccl.aborting);
	     i++)
		issue_one(unit);
}

static void
explain(const struct batoni_transfer *transfer)
{
	char text[300];

	if (batoni_nccl_checked_ops.checking->explain(path(), transfer, text, sizeof(text)))
		CLAIM(text[0] != '\0');
}

static void
take_back(unsigned number)
{
	struct engine_slot *slot = &slots[number % SLOTS];
	enum baton_status status;

	if (!slot->held || slot->lent)
		return;
	status = batoni_nccl_checked_ops.host_issued->take_back(path(), &slot->transfer);
	CLAIM(status == BATON_ERR_BUSY || status == BATON_ERR_CANCELED);
	explain(&slot->transfer);
	if (status == BATON_ERR_BUSY)
		slot->lent = true;
	else
		done(&world.upcalls, &slot->transfer, status);
}

/* ---- what peers say ---- */

struct message {
	struct batoni_nccl_control controls[BATONI_NCCL_CONTROLS + 2];
	size_t n;
};

static void
add_control(struct message *message, const struct batoni_nccl_control *control)
{
	if (message->n < BATONI_NCCL_CONTROLS + 2)
		message->controls[message->n++] = *control;
}

/* As many pieces of the list's header as the receive wants next. */
static void
add_pieces(struct message *message, const struct unit *unit)
{
	const struct batoni_nccl_op *op = &checked()->ops[unit->a % SLOTS];
	size_t at = op->fetched;

	for (int i = 0; i <= unit->c % 40; i++) {
		struct batoni_nccl_control piece = {
			.kind = BATONI_NCCL_SAYS_PIECE, .slot = unit->a};
		size_t left = op->described > at ? op->described - at : 0;
		size_t there = lists[unit->b % LISTS].header_bytes;

		piece.used = left < BATONI_NCCL_PIECE_BYTES
		                     ? (uint8_t)left
		                     : BATONI_NCCL_PIECE_BYTES;
		if (at + piece.used <= there)
			memcpy(piece.piece, lists[unit->b % LISTS].header + at,
			       piece.used);
		piece.piece[unit->d % BATONI_NCCL_PIECE_BYTES] ^= unit->d >> 5;
		add_control(message, &piece);
		at += piece.used;
	}
}

static void
fill_header(struct batoni_nccl_control *header, const struct unit *unit)
{
	static const uint64_t odd[] = {0, 1, BATONI_TENSORS_FIXED_BYTES,
	                               BATONI_TENSORS_HEADER_MAX,
	                               BATONI_TENSORS_HEADER_MAX + 1,
	                               UINT64_MAX};

	if (unit->c & 0x80) {
		header->described = lists[unit->b % LISTS].header_bytes;
		header->bytes = lists[unit->b % LISTS].payload;
	} else if (unit->c & 0x40) {
		header->described = odd[unit->b % 6];
		header->bytes = odd[unit->d % 6];
	}
}

static void
add_record(struct message *message, const struct unit *unit)
{
	struct batoni_nccl_control control = {
		.kind = unit->what % 16,
		.operation = unit->c & 0x20 ? BATON_OPERATION_RECV
	                                    : BATON_OPERATION_SEND,
		.type = unit->d,
		.slot = unit->a == 255 ? UINT32_MAX : unit->a,
		.other = unit->b,
		.count = unit->b % 64,
		.bytes = bytes_of(unit->c),
	};

	if (control.kind == BATONI_NCCL_SAYS_PIECE) {
		add_pieces(message, unit);
		return;
	}
	if (control.kind == BATONI_NCCL_SAYS_HEADER)
		fill_header(&control, unit);
	if (control.kind == BATONI_NCCL_SAYS_FETCH)
		control.bytes = (uint64_t)unit->c * BATONI_NCCL_PIECE_BYTES;
	/* A run of slots, as a peer that answers many at once. */
	for (unsigned i = 0; i <= unit->peer % 100u; i++) {
		add_control(message, &control);
		control.slot += unit->peer >> 7;
	}
}

/* The units of a delivery; one may be a control message as it is. */
static const uint8_t *
read_message(struct message *message, int units, const uint8_t *at,
             const uint8_t *end)
{
	for (; units > 0 && end - at >= (int)sizeof(struct unit); units--) {
		struct unit unit;

		memcpy(&unit, at, sizeof(unit));
		at += sizeof(unit);
		if (unit.what < 224) {
			add_record(message, &unit);
		} else if (end - at >= CONTROL_BYTES) {
			struct batoni_nccl_control control;

			memcpy(&control, at, sizeof(control));
			at += sizeof(control);
			add_control(message, &control);
		}
	}
	return at;
}

/* Can no conversation have it? */
static bool
breaks_rules(const struct batoni_nccl_control *control)
{
	switch ((enum batoni_nccl_says)control->kind) {
	case BATONI_NCCL_SAYS_HEADER:
		return control->described > BATONI_TENSORS_HEADER_MAX ||
		       (control->described > 0 &&
		        control->described < BATONI_TENSORS_FIXED_BYTES);
	case BATONI_NCCL_SAYS_WITHDRAW:
		return false; /* one that has been answered meanwhile */
	case BATONI_NCCL_SAYS_LAUNCHED:
		return control->slot >= world.nccl.checked->lanes_n;
	case BATONI_NCCL_SAYS_FETCH:
		return control->slot >= SLOTS ||
		       control->count > BATONI_NCCL_PIECES;
	case BATONI_NCCL_SAYS_AGREED:
	case BATONI_NCCL_SAYS_MISMATCH:
	case BATONI_NCCL_SAYS_WITHDRAWN:
	case BATONI_NCCL_SAYS_GO:
	case BATONI_NCCL_SAYS_PIECE:
	case BATONI_NCCL_SAYS_TAKEN:
		return control->slot >= SLOTS;
	}
	return true;
}

/* The message was heard, of so many bytes. */
static void
look_at_message(const struct message *message, size_t bytes)
{
	bool bad = bytes % sizeof(message->controls[0]) != 0 ||
	           message->n > BATONI_NCCL_CONTROLS;

	for (size_t i = 0; i < bytes / sizeof(message->controls[0]); i++)
		bad |= breaks_rules(&message->controls[i]);
	CLAIM(!bad || world.broken || checked()->dropped);
}

/* Returns where the next command begins. */
static const uint8_t *
deliver(const struct unit *unit, const uint8_t *at, const uint8_t *end)
{
	struct message message = {.n = 0};
	int peer = unit->peer % SIZE;
	struct batoni_transfer *posted;
	size_t bytes, most;

	at = read_message(&message, unit->a % 16, at, end);
	/* Its end may be cut off. */
	bytes = message.n * sizeof(message.controls[0]);
	if (bytes > 0 && unit->b >= 240)
		bytes -= unit->b % 16;
	posted = world.posted[peer];
	if (!posted)
		return at;
	most = bytes < posted->bytes ? bytes : posted->bytes;
	memcpy(posted->buffer, message.controls, most);
	lower_ends(&world.posted[peer], bytes,
	           bytes > most ? BATON_ERR_TRUNCATED : BATON_OK);
	test();
	look_at_message(&message, bytes);
	return at;
}

/* ---- the run ---- */

static void
make_list(int number, size_t n, int rank)
{
	size_t which = 0;

	for (size_t i = 0; i < n; i++) {
		struct baton_tensor *tensor = &lists[number].tensors[i];

		tensor->type = BATON_UINT8;
		tensor->rank = rank;
		for (int k = 0; k < rank; k++)
			tensor->shape[k] = k == 0 ? (int64_t)i % 5 : 1;
	}
	lists[number].n = n;
	batoni_tensors_bytes(lists[number].tensors, n, &lists[number].payload,
	                     &which);
	lists[number].header_bytes =
		batoni_tensors_encode(lists[number].tensors, n,
	                              lists[number].payload, lists[number].header);
}

/* The last one has a header that is asked for in four parts. */
static void
make_lists(void)
{
	make_list(0, 0, 0);
	make_list(1, 1, 1);
	make_list(2, 7, 2);
	make_list(3, TENSORS_MOST, BATON_TENSOR_RANK_MAX);
}

static void
end_abruptly(void)
{
	batoni_nccl_abort(path());
	test();
	world.in_progress = false;
	test();
	world.passed = world.marked;
	test();
	for (unsigned i = 0; i < SLOTS; i++)
		CLAIM(!slots[i].held);
}

static void
leave(void)
{
	enum baton_status status;

	world.left = true;
	batoni_nccl_checked_poll(&world.nccl);
	batoni_nccl_checked_leave(&world.nccl);
	for (int i = 0; i < SIZE; i++)
		if (world.sending[i])
			lower_ends(&world.sending[i], world.sending[i]->bytes,
			           BATON_OK);
	batoni_nccl_checked_leave(&world.nccl);
	status = batoni_nccl_checked_leave(&world.nccl);
	CLAIM(status == BATON_OK);
	for (int i = 0; i < SIZE; i++)
		CLAIM(!world.sending[i] && !world.posted[i]);
}

static void
finish(void)
{
	for (unsigned i = 0; i < SLOTS; i++)
		take_back(i);
	leave();
	end_abruptly();
	batoni_nccl_checked_drop_marks(&world.nccl);
	batoni_nccl_checked_free(&world.nccl);
	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i].held)
			forget(&slots[i]);
}

static const uint8_t *
carry_out(const struct unit *unit, const uint8_t *at, const uint8_t *end)
{
	int peer = unit->peer % SIZE;

	switch ((enum command)(unit->what % COMMANDS)) {
	case ISSUE:
		issue_several(unit);
		break;
	case TAKE_BACK:
		take_back(unit->a);
		break;
	case DELIVER:
		return deliver(unit, at, end);
	case SENT:
		if (world.sending[peer])
			lower_ends(&world.sending[peer],
			           world.sending[peer]->bytes, BATON_OK);
		break;
	case TEST:
		test();
		break;
	case KERNELS:
		world.passed += unit->a % 8;
		if (world.passed > world.marked)
			world.passed = world.marked;
		test();
		break;
	case BUSY_NCCL:
		world.in_progress = unit->a & 1;
		break;
	case BUSY_LOCK:
		world.lock_taken = unit->a & 1;
		break;
	case LOSE:
		/* What a transport says when the peer has ended. */
		lower_ends(&world.posted[peer], 0, BATON_ERR_PEER);
		test();
		break;
	case LEAVE:
		batoni_nccl_checked_poll(&world.nccl);
		break;
	case ABORT:
		batoni_nccl_abort(path());
		test();
		break;
	case COMMANDS:
		break;
	}
	return at;
}

/* Conversations as they should be, and the same of many slots at once. */
void
seeds(void)
{
	enum { SEND = 1, LIST = 2, HEADER_OF_LIST = 0x80 };

	for (uint8_t kind = 0; kind < 16; kind++) {
		SEED(kind, {ISSUE, 0, 0, 3, 1, 0}, {DELIVER, 0, 1},
		     {BATONI_NCCL_SAYS_HEADER, 0, 7, 0, 1, 3}, {TEST},
		     {SENT, 0}, {DELIVER, 0, 1},
		     {BATONI_NCCL_SAYS_GO, 0, 0, 0}, {DELIVER, 0, 1},
		     {BATONI_NCCL_SAYS_LAUNCHED, 0, 0, 1}, {KERNELS, 0, 1});
		SEED(kind, {ISSUE, 2, SEND, 3, 1, 39}, {TEST}, {SENT, 2},
		     {DELIVER, 2, 3}, {BATONI_NCCL_SAYS_GO, 3, 0, 5},
		     {BATONI_NCCL_SAYS_MISMATCH, 0, 1, 5},
		     {BATONI_NCCL_SAYS_AGREED, 0, 2, 5}, {TAKE_BACK, 0, 9},
		     {TAKE_BACK, 0, 30}, {KERNELS, 0, 1}, {DELIVER, 2, 1},
		     {BATONI_NCCL_SAYS_WITHDRAWN, 0, 9, 0});
		SEED(kind, {ISSUE, 0, SEND | LIST, 0, 3, 0}, {TEST}, {SENT, 0},
		     {DELIVER, 0, 1}, {BATONI_NCCL_SAYS_FETCH, 0, 0, 32, 0},
		     {SENT, 0}, {DELIVER, 0, 2},
		     {BATONI_NCCL_SAYS_FETCH, 0, 0, 32, 32},
		     {BATONI_NCCL_SAYS_TAKEN, 0, 0, 0});
		for (uint8_t list = 0; list < LISTS; list++)
			SEED(kind, {ISSUE, 0, LIST, 0, list | 0x10, 1},
			     {DELIVER, 0, 1},
			     {BATONI_NCCL_SAYS_HEADER, 1, 7, list,
			      HEADER_OF_LIST},
			     {SENT, 0}, {DELIVER, 0, 1},
			     {BATONI_NCCL_SAYS_PIECE, 0, 0, list, 31},
			     {SENT, 0}, {DELIVER, 0, 4},
			     {BATONI_NCCL_SAYS_PIECE, 0, 0, list, 31},
			     {BATONI_NCCL_SAYS_PIECE, 0, 0, list, 31},
			     {BATONI_NCCL_SAYS_PIECE, 0, 0, list, 31},
			     {BATONI_NCCL_SAYS_PIECE, 0, 0, list, 31},
			     {TEST}, {KERNELS, 0, 7});
		SEED(kind, {ISSUE, 0, LIST, 0, 39, 0}, {DELIVER, 0, 1},
		     {BATONI_NCCL_SAYS_HEADER, 0, 7, 3, HEADER_OF_LIST},
		     {SENT, 0}, {DELIVER, 0, 4},
		     {BATONI_NCCL_SAYS_PIECE, 0, 0, 3, 31},
		     {BATONI_NCCL_SAYS_PIECE, 0, 0, 3, 31},
		     {BATONI_NCCL_SAYS_PIECE, 0, 0, 3, 31},
		     {BATONI_NCCL_SAYS_PIECE, 0, 0, 3, 31}, {KERNELS, 0, 7});
		SEED(kind, {DELIVER, 0, 2},
		     {BATONI_NCCL_SAYS_HEADER, 128 + 15, 0, 0, 1},
		     {BATONI_NCCL_SAYS_WITHDRAW, 128 + 15, 0, 0},
		     {ISSUE, 0, 0, 0, 1, 3}, {LEAVE});
		SEED(kind, {DELIVER, 0, 1, 255},
		     {BATONI_NCCL_SAYS_HEADER, 3, 7, 0, 1, 3});
		/* More than the protocol allows. */
		SEED(kind, {ISSUE, 0, 0, 3, 1, 99}, {DELIVER, 0, 1},
		     {BATONI_NCCL_SAYS_HEADER, 128 + 61, 0, 0, 1, 3},
		     {DELIVER, 0, 1},
		     {BATONI_NCCL_SAYS_HEADER, 128 + 61, 90, 0, 2, 3});
		SEED(kind, {ISSUE, 0, SEND, 3, 1, 99}, {ISSUE, 0, SEND, 3, 1, 50},
		     {DELIVER, 0, 1},
		     {BATONI_NCCL_SAYS_MISMATCH, 128 + 61, 0, 0, 1, 3},
		     {DELIVER, 0, 1},
		     {BATONI_NCCL_SAYS_MISMATCH, 128 + 61, 90, 0, 2, 3});
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	const uint8_t *at = bytes + 1, *end = bytes + n;

	if (n < 1)
		return 0;
	if (lists[1].n == 0)
		make_lists();
	begin(bytes[0]);
	test();
	while (end - at >= (int)sizeof(struct unit)) {
		struct unit unit;

		memcpy(&unit, at, sizeof(unit));
		at = carry_out(&unit, at + sizeof(unit), end);
		claim_counts();
	}
	finish();
	return 0;
}
