/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local transport: ranks are threads of one process, and a message is one
 * memmove from the sender's buffer to the receiver's.  It is the reference for
 * what every transport must do.
 *
 * One engine drives all ranks of all local communicators.  Every function here therefore
 * runs on the driver's thread, and needs no locks and no atomics.
 *
 * Matching (match.h).  Each transfer has a node, found by its slot.  Unmatched nodes wait in
 * queues, one for each (destination, source, tag), in a table that all ranks share.  A queue holds
 * receives or sends, never both, because those would have matched.  The table is made for as many
 * nodes as there can be.  All memory is allocated at open.
 *
 * Moving.  A match of at most INLINE_MAX bytes is copied where it is found, in
 * issue.  A longer one becomes a copy: both nodes are MOVING, name each other as
 * partners, and are in their own ranks' `copies`.  The receive's node counts the
 * bytes.  The test of either rank moves a slice of it, so that a rank whose
 * communicator is broken does not hold up its peer.  A copy is never aborted: take_back
 * returns BUSY for both ends, and the copy completes.
 *
 * Buffers may overlap in a message to oneself.  The result is that of memmove.
 *
 * Lists of tensors (tensor_list.h) match as other messages do.  The receive reads the header
 * of the send where it is; then the copy goes from segment to segment.  If they do not
 * agree, or one is no list, both ends are over at once, the send in OK.
 *
 * Checked mode: a path of its own, whose issue looks at the types of what would meet, before anything
 * else does.  Where they differ, both ends are over at once too.
 *
 * Receives from any rank (struct batoni_unmatched_ops) look for sends at the front of a queue, rank by rank.
 * While a rank expects messages for them, a send that meets nothing asks that rank's engine for one.
 *
 * Closing.  A rank may close while it has transfers (an abort).  Its waiting nodes leave
 * their queues.  A copy that it sends is completed first; of a copy that it receives, the
 * rest is dropped, since nothing will read it.  In both cases the peer's node becomes OVER:
 * it has no partner, nothing refers to the closed rank, and the peer's next test reports
 * the end.  A message to a closed rank waits in its queue until its deadline.
 *
 * Exchanging.  Each rank writes its part into the table of the round, and copies all parts
 * out when the table is full.  A rank can be one round ahead of another but not two, since
 * a round is full only when all ranks have come to it.  So two tables, used in turn, are
 * enough.  They belong to all ranks together: a rank that has written its part may close.
 * Later rounds can then never be full, and the other ranks get PEER.
 *
 * What ranks see of each other (segments, struct batoni_peer) is the same for all ranks:
 * one array, which the last rank to close frees.  Where streams of ranks are to store into the
 * segments, these are pinned memory of one of the devices, which this transport opens for
 * itself, since the rank that has it may close before others.
 */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "list.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "transport.h"

#define INLINE_MAX ((size_t)16 << 10)
#define SLICE_MAX ((size_t)1 << 20)

enum node_state {
	FREE,
	WAITING, /* in its queue */
	MOVING,  /* has a partner, and their copy is under way */
	OVER     /* moved; its partner has closed; to be reported */
};

struct local;

struct node {
	union {
		struct batoni_match_node waiting; /* WAITING */
		struct { /* MOVING, OVER */
			struct batoni_list_node link; /* of local->copies */
			struct node *partner;
			size_t length; /* of the message */
			size_t moved;  /* the receive's counts */
		};
	};
	struct batoni_transfer *transfer;
	struct local *local;
	enum node_state state;
};

static_assert(sizeof(struct node) <= 64, "a node is one cache line");

/* One round of exchange. */
struct table {
	char *all; /* by rank; from the first rank that writes to the last that reads */
	uint64_t what;
	size_t bytes; /* of each rank */
	int brought, taken;
	enum baton_status status; /* all ranks get it */
};

/* What the ranks of one communicator share; the last rank to close frees it. */
struct shared {
	struct batoni_match match;
	int size;
	int open;    /* ranks that have not closed */
	struct table tables[2]; /* of the even and the odd rounds */
	uint64_t rounds; /* of exchange that can become full */
	struct batoni_peer *peers; /* NULL: there are no segments */
	char *segments;
	/* An open of our own, whose pinned memory the segments are; NULL: they are not. */
	struct batoni_device *device;
	bool stored_to; /* a stream of a rank that has closed may still store into them */
	struct local **ranks; /* those that expect messages, or NULL */
	uint32_t expecting;   /* so many do */
	struct shared *next_kept;
};

struct local {
	struct batoni_transport base; /* must be first */
	struct shared *shared;
	struct node *nodes; /* by slot */
	bool brought;   /* to the table of this round */
	uint64_t round; /* of exchange */
	uint32_t expects; /* receives from any rank that wait */
	int turn; /* the rank whose messages are looked for first */
	/* Nodes of this rank that are MOVING or OVER; the front is next. */
	struct batoni_list_node copies;
};

static struct local *
to_local(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct local, base);
}

static struct node *
to_node(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct node, link);
}

/* Both ends of a message have the same key.  Ranks are below 4096. */
static uint64_t
key_of(const struct local *local, const struct batoni_transfer *transfer)
{
	uint64_t from = (uint64_t)local->base.rank;
	uint64_t to = (uint64_t)transfer->peer;

	if (transfer->direction == BATONI_RECV) {
		from = to;
		to = (uint64_t)local->base.rank;
	}
	/* On the last hidden tag a receive matches messages of any rank. */
	if (transfer->tag ==
	    local->base.hidden_tag + (local->base.hidden_tags - 1))
		from = 0xffff;
	return to << 48 | from << 32 | (uint32_t)transfer->tag;
}

static struct node *
find_front(const struct shared *shared, uint64_t key)
{
	struct batoni_match_node *front = batoni_match_find(&shared->match, key);

	return front ? batoni_container_of(front, struct node, waiting) : NULL;
}

static void
enter_queue(struct node *node, uint64_t key, struct node *front)
{
	node->state = WAITING;
	batoni_match_enter(&node->local->shared->match, &node->waiting, key,
	                   front ? &front->waiting : NULL);
}

static void
leave_queue(struct node *node)
{
	batoni_match_leave(&node->local->shared->match, &node->waiting);
	node->state = FREE;
}

/* How a transfer ends that matched a message of this length. */
static enum baton_status
outcome(struct batoni_transfer *transfer, size_t length)
{
	batoni_transfer_moved(transfer, length);
	/* A list that is moved has its memory. */
	return length > transfer->bytes && !batoni_transfer_list(transfer)
	               ? BATON_ERR_TRUNCATED
	               : BATON_OK;
}

static void
report_as(struct node *node, enum baton_status status)
{
	struct local *local = node->local;
	struct batoni_transfer *transfer = node->transfer;

	assert(local->base.messages.load.in_flight > 0);
	local->base.messages.load.in_flight--;
	node->state = FREE;
	node->transfer = NULL;
	local->base.host->done(local->base.host, transfer, status);
}

static void
report(struct node *node, size_t length)
{
	report_as(node, outcome(node->transfer, length));
}

static void
start_moving(struct node *node, struct node *partner, size_t length)
{
	node->state = MOVING;
	node->partner = partner;
	node->length = length;
	node->moved = 0;
	node->local->base.messages.load.moving++;
	batoni_list_append(&node->local->copies, &node->link);
}

static void
stop_moving(struct node *node)
{
	assert(node->local->base.messages.load.moving > 0);
	batoni_list_remove(&node->link);
	node->local->base.messages.load.moving--;
}

static size_t
min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The bytes of the message that are moved. */
static size_t
moved_in_all(const struct node *receive)
{
	return batoni_transfer_list(receive->transfer)
	               ? receive->length
	               : min_size(receive->length, receive->transfer->bytes);
}

/* Move up to `most` bytes of the copy that ends in this receive; returns how
 * many. */
static size_t
move_slice(struct node *receive, size_t most)
{
	const struct batoni_transfer *from = receive->partner->transfer;
	const struct batoni_transfer *to = receive->transfer;
	size_t total = moved_in_all(receive);
	size_t n;

	if (batoni_transfer_list(to))
		n = batoni_list_move(batoni_transfer_list(from),
		                     batoni_transfer_list(to),
		                     min_size(total - receive->moved, most));
	else
		n = batoni_match_move(to->buffer, from->buffer, total,
		                      receive->moved, most);
	receive->moved += n;
	return n;
}

static bool
moved_all(const struct node *receive)
{
	return receive->moved == moved_in_all(receive);
}

static struct node *
receiving_end(struct node *node)
{
	return node->transfer->direction == BATONI_RECV ? node : node->partner;
}

static void
start_copy(struct node *node, struct node *front, size_t length)
{
	start_moving(front, node, length);
	start_moving(node, front, length);
	front->local->base.host->moves(front->local->base.host);
	node->local->base.messages.load.in_flight++;
}

/* As meet, where at least one is a list. */
static __attribute__((noinline)) enum baton_status
meet_list(struct node *node, struct node *front)
{
	bool sends = node->transfer->direction == BATONI_SEND;
	struct batoni_transfer *from = (sends ? node : front)->transfer;
	struct batoni_transfer *to = (sends ? front : node)->transfer;
	enum baton_status status = batoni_transfer_meet_send(to, from);
	size_t length = from->bytes;

	leave_queue(front);
	if (status == BATON_OK && length > INLINE_MAX) {
		start_copy(node, front, length);
		return BATON_PENDING;
	}
	if (status == BATON_OK)
		batoni_list_move(batoni_transfer_list(from),
		                 batoni_transfer_list(to), length);
	node->transfer = NULL;
	report_as(front, sends ? status : BATON_OK);
	return sends ? BATON_OK : status;
}

/* The transfer has matched: move the bytes now, or start a copy. */
static enum baton_status
meet(struct node *node, struct node *front)
{
	bool sends = node->transfer->direction == BATONI_SEND;
	const struct batoni_transfer *from = (sends ? node : front)->transfer;
	const struct batoni_transfer *to = (sends ? front : node)->transfer;
	size_t length = from->bytes;
	size_t n = min_size(length, to->bytes);
	enum baton_status status;

	if (__builtin_expect(from->place == BATONI_PLACE_LIST ||
	                             to->place == BATONI_PLACE_LIST,
	                     0))
		return meet_list(node, front);
	leave_queue(front);
	if (n > INLINE_MAX) {
		start_copy(node, front, length);
		return BATON_PENDING;
	}
	if (n > 0)
		memmove(to->buffer, from->buffer, n);
	/* Before the report, which makes both ends visible. */
	status = outcome(node->transfer, length);
	node->transfer = NULL;
	report(front, length);
	return status;
}

/* A send meets nothing that is posted at its peer, which may expect messages for receives from any rank: has
 * one issued, and posts it.  NULL: there is none. */
static __attribute__((noinline)) struct node *
claim(struct local *local, const struct batoni_transfer *send, uint64_t key)
{
	struct local *there = local->shared->ranks[send->peer];
	struct batoni_transfer *transfer;
	struct node *node;

	if (!there || send->tag > local->base.tag_max)
		return NULL;
	transfer = there->base.host->claim(there->base.host, local->base.rank,
	                                   send->tag);
	if (!transfer) {
		there->base.host->moves(there->base.host);
		return NULL;
	}
	node = &there->nodes[transfer->slot];
	node->transfer = transfer;
	node->local = there;
	enter_queue(node, key, NULL);
	there->base.messages.load.in_flight++;
	return node;
}

/* What the transfer would meet, or stand behind. */
static struct node *
find_other(struct local *local, const struct batoni_transfer *transfer, uint64_t key)
{
	struct node *front = find_front(local->shared, key);

	if (front || __builtin_expect(local->shared->expecting == 0, 1) ||
	    transfer->direction != BATONI_SEND)
		return front;
	return claim(local, transfer, key);
}

static enum baton_status
local_issue(struct batoni_path *path,
            struct batoni_transfer *transfer)
{
	struct local *local = to_local(batoni_transport_of(path));
	struct node *node = &local->nodes[transfer->slot];
	uint64_t key = key_of(local, transfer);
	struct node *front = find_other(local, transfer, key);

	assert(transfer->slot < local->base.slots && node->state == FREE);
	assert(transfer->peer >= 0 && transfer->peer < local->base.size);
	node->transfer = transfer;
	node->local = local;
	if (front && front->transfer->direction != transfer->direction)
		return meet(node, front);
	enter_queue(node, key, front);
	local->base.messages.load.in_flight++;
	return BATON_PENDING;
}

/* ---- receives from any rank ---- */

static void
local_expect(struct batoni_path *path, int change)
{
	struct local *local = to_local(batoni_transport_of(path));
	struct shared *shared = local->shared;

	local->expects += (uint32_t)change;
	local->base.messages.load.in_flight += (uint32_t)change;
	shared->expecting += (uint32_t)change;
	shared->ranks[local->base.rank] = local->expects ? local : NULL;
}

static bool
local_has(struct local *local, int from, int tag)
{
	const struct batoni_transfer receive = {
		.peer = from, .tag = tag, .direction = BATONI_RECV};
	const struct node *front = find_front(local->shared,
	                                      key_of(local, &receive));

	return front && front->transfer->direction == BATONI_SEND &&
	       local->base.host->may_meet(local->base.host, from, tag);
}

/* The one driver issues the receive next: no send is taken back in between. */
static int
local_find(struct batoni_path *path, int tag)
{
	struct local *local = to_local(batoni_transport_of(path));

	for (int i = 0, rank = local->turn; i < local->base.size; i++) {
		int next = rank + 1 < local->base.size ? rank + 1 : 0;

		if (local_has(local, rank, tag)) {
			local->turn = next;
			return rank;
		}
		rank = next;
	}
	return -1;
}

static const struct batoni_unmatched_ops unmatched = {
	.expect = local_expect,
	.find = local_find,
};

/* Would these two plain messages of the program meet, and differ in type? */
static bool
differ(const struct local *local, const struct batoni_transfer *transfer,
       const struct batoni_transfer *other)
{
	return other->direction != transfer->direction &&
	       transfer->tag <= local->base.tag_max &&
	       !batoni_transfer_list(transfer) && !batoni_transfer_list(other) &&
	       other->type != transfer->type;
}

static enum baton_status
checked_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct local *local = to_local(batoni_transport_of(path));
	struct node *front = find_other(local, transfer, key_of(local, transfer));
	bool sends = transfer->direction == BATONI_SEND;
	struct batoni_transfer *from, *to;
	enum baton_status status;

	if (!front || !differ(local, transfer, front->transfer))
		return local_issue(path, transfer);
	from = sends ? transfer : front->transfer;
	to = sends ? front->transfer : transfer;
	status = batoni_transfer_compare(to, from->type);
	batoni_transfer_moved(from, from->bytes);
	batoni_transfer_moved(to, from->bytes);
	leave_queue(front);
	report_as(front, sends ? status : BATON_OK);
	return sends ? BATON_OK : status;
}

/* Move bytes of the copy, or report its end; returns the bytes moved. */
static size_t
work_on(struct node *node, size_t budget, size_t *events)
{
	struct node *partner = node->partner;
	size_t length = node->length;
	size_t n;

	++*events;
	if (node->state == OVER) {
		stop_moving(node);
		report(node, length);
		return 0;
	}
	n = move_slice(receiving_end(node), budget);
	if (!moved_all(receiving_end(node))) {
		batoni_list_remove(&node->link);
		batoni_list_append(&node->local->copies, &node->link);
		return n;
	}
	stop_moving(node);
	stop_moving(partner);
	report(node, length);
	report(partner, length);
	++*events;
	return n;
}

static size_t
local_test(struct batoni_path *path)
{
	struct local *local = to_local(batoni_transport_of(path));
	size_t budget = SLICE_MAX;
	size_t events = 0;

	while (budget > 0 && !batoni_list_empty(&local->copies))
		budget -= work_on(to_node(local->copies.next), budget, &events);
	return events;
}

static enum baton_status
local_take_back(struct batoni_path *path,
                struct batoni_transfer *transfer)
{
	struct local *local = to_local(batoni_transport_of(path));
	struct node *node = &local->nodes[transfer->slot];

	assert(node->state != FREE && node->transfer == transfer);
	switch (node->state) {
	case WAITING:
		leave_queue(node);
		local->base.messages.load.in_flight--;
		node->transfer = NULL;
		return BATON_ERR_CANCELED;
	case MOVING:
		return BATON_ERR_BUSY;
	case OVER:
		stop_moving(node);
		local->base.messages.load.in_flight--;
		node->state = FREE;
		node->transfer = NULL;
		return outcome(transfer, node->length);
	case FREE:
		break;
	}
	return BATON_ERR_INVALID;
}

static void
bring(struct table *table, const struct local *local, uint64_t what,
      const void *mine, size_t bytes, bool able)
{
	if (table->brought++ == 0) {
		table->what = what;
		table->bytes = bytes;
		table->all = batoni_alloc((size_t)local->base.size, bytes);
		table->status = table->all ? BATON_OK : BATON_ERR_NOMEM;
	}
	if (!able)
		table->status = BATON_ERR_NOMEM;
	/* The ranks make their collective calls in different orders. */
	if (table->what != what || table->bytes != bytes)
		table->status = BATON_ERR_INVALID;
	if (table->status == BATON_OK)
		memcpy(table->all + (size_t)local->base.rank * bytes, mine,
		       bytes);
}

static enum baton_status
take(struct table *table, int size, void *all)
{
	enum baton_status status = table->status;

	if (status == BATON_OK)
		memcpy(all, table->all, (size_t)size * table->bytes);
	if (++table->taken == size) {
		batoni_free(table->all);
		*table = (struct table){.all = NULL};
	}
	return status;
}

static enum baton_status
local_exchange(struct batoni_transport *transport, uint64_t what,
               const void *mine, size_t bytes, void *all)
{
	struct local *local = to_local(transport);
	struct table *table = &local->shared->tables[local->round % 2];

	if (!local->brought)
		bring(table, local, what, mine, bytes, all != NULL);
	local->brought = true;
	if (table->brought < transport->size)
		return local->round < local->shared->rounds ? BATON_PENDING
		                                            : BATON_ERR_PEER;
	local->brought = false;
	local->round++;
	return take(table, transport->size, all);
}

/* A rank leaves without the others: its sends have been copied when they end, and one
 * thread may own several ranks and destroy them one after the other. */
static enum baton_status
local_leave(struct batoni_transport *transport)
{
	(void)transport;
	return BATON_OK;
}

/* Detach the node from its queue or its partner, so that the rank can be freed. */
static void
detach(struct node *node)
{
	switch (node->state) {
	case WAITING:
		leave_queue(node);
		return;
	case MOVING:
		if (node->transfer->direction == BATONI_SEND)
			move_slice(node->partner, SIZE_MAX);
		node->partner->state = OVER;
		node->partner->partner = NULL;
		/* In a message to oneself the partner is a node of this rank too, and is
		 * detached in its turn. */
		stop_moving(node);
		node->state = FREE;
		return;
	case OVER:
	case FREE:
		return;
	}
}

/* Whose segments a stream may still store to: with the open of the device, for good.  The
 * driver. */
static struct shared *kept;

/* False: `shared` is kept. */
static bool
segments_free(struct shared *shared)
{
	struct batoni_device *device = shared->device;

	if (device && shared->stored_to) {
		shared->next_kept = kept;
		kept = shared;
		batoni_mem_keep(1);
		return false;
	}
	if (!device) {
		batoni_free(shared->segments);
	} else {
		device->ops->memory->pinned_free(device, shared->segments);
		device->ops->close(device);
	}
	return true;
}

static void
shared_free(struct shared *shared)
{
	for (int i = 0; i < 2; i++)
		batoni_free(shared->tables[i].all);
	batoni_free(shared->peers);
	batoni_free(shared->ranks);
	batoni_match_fini(&shared->match);
	if (segments_free(shared))
		batoni_free(shared);
}

static void
local_close(struct batoni_transport *transport, bool aborted)
{
	struct local *local = to_local(transport);
	struct shared *shared = local->shared;

	(void)aborted; /* closing never communicates */
	assert(aborted || transport->messages.load.in_flight == 0);
	if (local->expects > 0)
		local_expect(&transport->messages, -(int)local->expects);
	for (uint32_t i = 0; i < local->base.slots; i++)
		detach(&local->nodes[i]);
	if (local->round + local->brought < shared->rounds)
		shared->rounds = local->round + local->brought;
	shared->stored_to |= transport->patience &&
	                     transport->patience->copies_left;
	batoni_free(local->nodes);
	batoni_free(local);
	if (--shared->open == 0)
		shared_free(shared);
}

static const struct batoni_path_ops messages_ops = {
	.name = "the local transport",
	.kinds = BATONI_MESSAGES,
	.lists = true,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = local_issue,
		.take_back = local_take_back,
	},
	.unmatched = &unmatched,
	.test = local_test,
};

static const struct batoni_path_ops checked_ops = {
	.name = "the local transport",
	.kinds = BATONI_MESSAGES,
	.lists = true,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = checked_issue,
		.take_back = local_take_back,
	},
	.unmatched = &unmatched,
	.test = local_test,
};

static const struct batoni_transport_ops local_ops = {
	.name = "local",
	.id = BATON_TRANSPORT_LOCAL,
	.exchanging = &(const struct batoni_exchanging_ops){.exchange = local_exchange},
	.leave = local_leave,
	.close = local_close,
};

/* Segments that streams reach; NULL: there is no such memory. */
static char *
pin_segments(struct shared *shared, const struct batoni_transport_config *config,
             size_t bytes)
{
	const struct batoni_device_ops *ops = config->stores->ops;
	const struct batoni_device_config device = {
		.cuda_device = config->stores->number,
		.until_ns = config->until_ns,
	};
	void *segments = NULL;

	if (ops->open(&device, &shared->device) != BATON_OK) {
		shared->device = NULL;
	} else if (ops->memory->pinned_alloc(shared->device, bytes,
	                                     config->until_ns,
	                                     &segments) != BATON_OK) {
		ops->close(shared->device);
		shared->device = NULL;
	}
	if (!shared->device) {
		batoni_log(BATONI_LOG_WARN,
		           "the engine carries out puts and signals of streams: no "
		           "pinned memory for their counters: %s",
		           baton_last_error());
		return NULL;
	}
	return memset(segments, 0, bytes);
}

/* OK, NOMEM. */
static enum baton_status
make_peers(struct shared *shared, const struct batoni_transport_config *config)
{
	size_t size = (size_t)shared->size;
	size_t segment_bytes = (config->segment_bytes + 63) & ~(size_t)63;

	shared->peers = batoni_alloc(size, sizeof(*shared->peers));
	if (config->stores)
		shared->segments = pin_segments(shared, config,
		                                size * segment_bytes);
	if (!shared->segments)
		shared->segments = batoni_alloc(size, segment_bytes);
	if (!shared->peers || !shared->segments)
		return BATON_ERR_NOMEM;
	for (size_t rank = 0; rank < size; rank++) {
		shared->peers[rank] = (struct batoni_peer){
			.segment = shared->segments + rank * segment_bytes,
			.bell = batoni_bell(),
			.pipe = NULL, /* nobody sleeps for what the others do */
			.pid = getpid(),
			.pidfd = -1,
			.within = true,
			.streams = shared->device ? shared->segments +
			                                    rank * segment_bytes
			                          : NULL,
			.streams_here = shared->device != NULL,
			.reaches_us = true,
		};
	}
	return BATON_OK;
}

static struct shared *
shared_create(int size, const struct batoni_transport_config *config)
{
	struct shared *shared = batoni_alloc(1, sizeof(*shared));
	uint64_t nodes = (uint64_t)size * config->slots;

	if (!shared)
		return NULL;
	shared->size = size;
	shared->rounds = UINT64_MAX;
	shared->ranks = batoni_alloc((size_t)size, sizeof(struct local *));
	if (!batoni_match_init(&shared->match, nodes) || !shared->ranks ||
	    (config->segment_bytes > 0 &&
	     make_peers(shared, config) != BATON_OK)) {
		shared_free(shared);
		return NULL;
	}
	return shared;
}

static void
describe(struct batoni_transport *base, int rank, const struct shared *shared,
         const struct batoni_transport_config *config)
{
	base->ops = &local_ops;
	base->messages.ops = config->check ? &checked_ops : &messages_ops;
	base->rank = rank;
	base->size = shared->size;
	base->slots = config->slots;
	base->hidden_tags = config->hidden_tags;
	base->tag_max = INT_MAX - config->hidden_tags;
	/* Unused when there are none. */
	base->hidden_tag = config->hidden_tags ? base->tag_max + 1 : 0;
	base->any_peer = 0; /* any number will do (key_of) */
	base->peers = shared->peers;
	base->capabilities = BATON_CAP_TAGS | BATON_CAP_DIRECTIONS |
	                     BATON_CAP_SHORT | BATON_CAP_TRUNCATION |
	                     BATON_CAP_CANCEL | BATON_CAP_SELF;
	if (shared->peers)
		base->capabilities |= BATON_CAP_SIGNALS | BATON_CAP_WINDOWS;
	base->drivers = BATONI_DRIVERS_ANY;
	base->messages.load.quiet = true;
	base->lets_go = true;
	snprintf(base->library, sizeof(base->library), "in process");
}

static struct local *
rank_create(struct shared *shared, int rank,
            const struct batoni_transport_config *config)
{
	struct local *local = batoni_alloc(1, sizeof(*local));

	if (!local)
		return NULL;
	local->nodes = batoni_alloc(config->slots, sizeof(*local->nodes));
	if (!local->nodes) {
		batoni_free(local);
		return NULL;
	}
	describe(&local->base, rank, shared, config);
	local->shared = shared;
	batoni_list_init(&local->copies);
	shared->open++;
	return local;
}

enum baton_status
batoni_local_open(int size, const struct batoni_transport_config *config,
                  struct batoni_transport *transports[])
{
	struct shared *shared;
	struct local *local;
	int rank;

	assert(!config->device);
	shared = shared_create(size, config);
	if (!shared)
		return BATON_ERR_NOMEM;
	for (rank = 0; rank < size; rank++) {
		local = rank_create(shared, rank, config);
		if (!local)
			goto close_ranks;
		transports[rank] = &local->base;
	}
	return BATON_OK;

close_ranks:
	if (rank == 0)
		shared_free(shared);
	while (rank-- > 0)
		local_close(transports[rank], true);
	return BATON_ERR_NOMEM;
}
