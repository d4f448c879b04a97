/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel's transport: one rank's end of the star (tcp.h).  A native transport lies
 * over it and uses `exchange`, `leave`, `close`, and may use its small messages; the program's
 * data does not go here.
 *
 * Threads: the driver alone, as for every transport.  Each slot that may block elsewhere
 * pumps instead: it reads and writes what the socket takes now.  So a rank makes progress
 * inside its own calls and nowhere else; the hub relays without it.
 *
 * Exchanges.  PART goes out at the first call; the calls after it wait for ALL, which is
 * read into memory of our own, since the caller's is only there during its calls.  A leave is an
 * exchange of nothing, under a name of its own.
 *
 * Messages.  A node for each slot:
 *
 *   send: FREE -> WAITING (for a READY) -> FREE (DATA is queued: a copy)
 *   receive: FREE -> POSTED (READY is queued) -> OVER (DATA has come) -> FREE (reported)
 *            POSTED -> RETRACTING (take_back) -> OVER (DATA or RETRACTED, whichever comes)
 *
 * Sends and READYs of one peer and tag meet in the order in which they came; a peer's lists
 * are searched from the front.  A READY that has not met is kept, `slots_most` of each peer at
 * most, which is as many as it can have.  So no message comes that no receive waits for, and
 * a message that does not meet holds up no other.  The ends of receives are
 * reported by `test`, since an exchange may not report any.
 *
 * Its load counts one in flight, always: the link itself, at whose end somebody has died.
 * Whoever lies over it calls `test` for that.
 *
 * Ends.  GONE of a rank, and the end of the link (the hub's process has died, or the network
 * is silent: keepalive), break the channel: host->broken with PEER, and a sentence that names
 * the rank.  LEFT does not: the rank has left in order, and only exchanges are impossible then.
 * Nor does the end of the link once all have left, since the hub's process may exit then.
 */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "mem.h"
#include "tcp.h"

enum node_state {
	FREE,
	WAITING,
	POSTED,
	RETRACTING,
	OVER
};

struct node {
	struct batoni_list_node link; /* WAITING: peer->sends; OVER: tcp->over */
	struct batoni_transfer *transfer;
	enum node_state state;
	enum baton_status status; /* OVER */
};

/* A receive that the peer has posted. */
struct ready {
	struct batoni_list_node link;
	uint32_t slot;
	int tag;
	uint64_t bytes;
};

struct peer {
	struct batoni_list_node sends, readies;
	uint32_t readies_n;
};

struct batoni_tcp {
	struct batoni_transport base; /* must be first */
	struct batoni_tcp_link link;
	int home;    /* a rank of the hub's process */
	int left;    /* a rank that has left, or -1 */
	bool all_left;
	char why[BATONI_SIDE_WHY_BYTES]; /* what broke it */
	bool told;   /* host->broken */
	uint32_t slots_most;
	struct node *nodes; /* by slot */
	struct peer *peers; /* by rank */
	struct batoni_list_node over;
	unsigned char body[BATONI_TCP_MESSAGE_MAX];
	/* The exchange. */
	bool brought, came;
	enum baton_status outcome;
	size_t part_bytes;
	unsigned char *all;
};

static struct batoni_tcp *
to_tcp(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct batoni_tcp, base);
}

static struct batoni_tcp *
of_path(struct batoni_path *path)
{
	return to_tcp(batoni_transport_of(path));
}

static struct batoni_tcp *
of_link(struct batoni_tcp_link *link)
{
	return batoni_container_of(link, struct batoni_tcp, link);
}

static struct node *
to_node(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct node, link);
}

static struct ready *
to_ready(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct ready, link);
}

/* ---- what breaks it ---- */

static void
break_with(struct batoni_tcp *tcp, const char *why)
{
	if (!tcp->why[0])
		snprintf(tcp->why, sizeof(tcp->why), "%s", why);
}

static void
tell(struct batoni_tcp *tcp)
{
	if (!tcp->why[0] || tcp->told || !tcp->base.host)
		return;
	tcp->told = true;
	tcp->base.host->broken(tcp->base.host, BATON_ERR_PEER, NULL, 0,
	                       tcp->why);
}

static const char *
reason_of(uint32_t status)
{
	switch (status) {
	case BATONI_TCP_ABORTED:
		return "it has destroyed its end after an abort or an error";
	case BATONI_TCP_BROKE_RULES:
		return "it has broken the rules of the side channel";
	case BATONI_TCP_NO_MEMORY:
		return "the side channel has no memory for it";
	case BATONI_TCP_LOST:
		return "its host does not answer any more";
	default:
		return "its process has ended, or has closed its connection";
	}
}

static void
hear_gone(struct batoni_tcp *tcp, const struct batoni_tcp_record *record)
{
	char why[BATONI_SIDE_WHY_BYTES];

	snprintf(why, sizeof(why), "rank %u is gone: %s", record->from,
	         reason_of(record->status));
	break_with(tcp, why);
}

static void
hear_end(struct batoni_tcp *tcp)
{
	char why[BATONI_SIDE_WHY_BYTES];

	if (tcp->link.error == BATONI_TCP_BROKE_RULES ||
	    tcp->link.error == BATONI_TCP_NO_MEMORY)
		snprintf(why, sizeof(why),
		         "the side channel of rank %d: %s", tcp->base.rank,
		         tcp->link.error == BATONI_TCP_NO_MEMORY
		                 ? "no memory"
		                 : "what came is no record of it");
	else
		snprintf(why, sizeof(why),
		         "the connection with the process of rank %d, which "
		         "relays the side channel, has ended: %s",
		         tcp->home,
		         tcp->link.code ? strerror(tcp->link.code)
		                        : "the process has ended, or has given "
					  "this rank up");
	break_with(tcp, why);
}

/* ---- messages ---- */

static void
post(struct batoni_tcp *tcp, const struct batoni_tcp_record *record,
     const void *bytes)
{
	if (!batoni_tcp_link_queue(&tcp->link, record, bytes, false, NULL))
		break_with(tcp, "no memory for the side channel");
}

/* The send meets the receive in `slot` of its peer. */
static void
send_data(struct batoni_tcp *tcp, const struct batoni_transfer *transfer,
          uint32_t slot, uint64_t takes)
{
	uint64_t n = transfer->bytes < takes ? transfer->bytes : takes;
	const struct batoni_tcp_record record = {
		.kind = BATONI_TCP_DATA,
		.from = (uint32_t)tcp->base.rank,
		.to = (uint32_t)transfer->peer,
		.tag = (uint32_t)transfer->tag,
		.slot = slot,
		.length = (uint32_t)n,
		.bytes = transfer->bytes,
	};

	post(tcp, &record, transfer->buffer);
}

static void
finish(struct batoni_tcp *tcp, struct node *node, enum baton_status status)
{
	node->state = OVER;
	node->status = status;
	batoni_list_append(&tcp->over, &node->link);
}

static struct node *
find_send(struct peer *peer, int tag)
{
	struct batoni_list_node *at = peer->sends.next;

	while (at != &peer->sends && to_node(at)->transfer->tag != tag)
		at = at->next;
	return at == &peer->sends ? NULL : to_node(at);
}

static struct ready *
find_ready(struct peer *peer, int tag)
{
	struct batoni_list_node *at = peer->readies.next;

	while (at != &peer->readies && to_ready(at)->tag != tag)
		at = at->next;
	return at == &peer->readies ? NULL : to_ready(at);
}

static void
drop_ready(struct peer *peer, struct ready *ready)
{
	batoni_list_remove(&ready->link);
	peer->readies_n--;
	batoni_free(ready);
}

static void
hear_ready(struct batoni_tcp *tcp, const struct batoni_tcp_record *record)
{
	struct peer *peer = &tcp->peers[record->from];
	struct node *send = find_send(peer, (int)record->tag);
	struct ready *ready;

	if (send) {
		batoni_list_remove(&send->link);
		send_data(tcp, send->transfer, record->slot, record->bytes);
		batoni_transfer_moved(send->transfer, send->transfer->bytes);
		finish(tcp, send, BATON_OK);
		return;
	}
	if (peer->readies_n >= tcp->slots_most) {
		tcp->link.error = BATONI_TCP_BROKE_RULES;
		return;
	}
	ready = batoni_alloc(1, sizeof(*ready));
	if (!ready) {
		tcp->link.error = BATONI_TCP_NO_MEMORY;
		return;
	}
	ready->slot = record->slot;
	ready->tag = (int)record->tag;
	ready->bytes = record->bytes;
	batoni_list_append(&peer->readies, &ready->link);
	peer->readies_n++;
}

/* The receive in this slot, which the record's sender was told of; or NULL, and the rules are
 * broken. */
static struct node *
receive_of(struct batoni_tcp *tcp, const struct batoni_tcp_record *record)
{
	struct node *node = record->slot < tcp->base.slots
	                            ? &tcp->nodes[record->slot]
	                            : NULL;

	if (node && (node->state == POSTED || node->state == RETRACTING) &&
	    node->transfer->peer == (int)record->from &&
	    node->transfer->tag == (int)record->tag)
		return node;
	tcp->link.error = BATONI_TCP_BROKE_RULES;
	return NULL;
}

static void
hear_data(struct batoni_tcp *tcp, const struct batoni_tcp_record *record)
{
	struct node *node = receive_of(tcp, record);
	struct batoni_transfer *transfer;

	if (!node)
		return;
	transfer = node->transfer;
	if (record->length > transfer->bytes ||
	    (record->length < record->bytes &&
	     record->length != transfer->bytes)) {
		tcp->link.error = BATONI_TCP_BROKE_RULES;
		return;
	}
	if (record->length)
		memcpy(transfer->buffer, tcp->body, record->length);
	batoni_transfer_moved(transfer, record->bytes);
	finish(tcp, node, record->bytes > transfer->bytes ? BATON_ERR_TRUNCATED
	                                                  : BATON_OK);
}

static void
hear_retract(struct batoni_tcp *tcp, const struct batoni_tcp_record *record)
{
	struct peer *peer = &tcp->peers[record->from];
	const struct batoni_tcp_record answer = {
		.kind = BATONI_TCP_RETRACTED,
		.from = (uint32_t)tcp->base.rank,
		.to = record->from,
		.tag = record->tag,
		.slot = record->slot,
	};

	for (struct batoni_list_node *at = peer->readies.next;
	     at != &peer->readies; at = at->next) {
		if (to_ready(at)->slot != record->slot)
			continue;
		drop_ready(peer, to_ready(at));
		post(tcp, &answer, NULL);
		return;
	}
}

static void
hear_retracted(struct batoni_tcp *tcp, const struct batoni_tcp_record *record)
{
	struct node *node = receive_of(tcp, record);

	if (!node)
		return;
	if (node->state == RETRACTING)
		finish(tcp, node, BATON_ERR_CANCELED);
	else
		tcp->link.error = BATONI_TCP_BROKE_RULES;
}

/* ---- what comes ---- */

static unsigned char *
tcp_room(struct batoni_tcp_link *link, const struct batoni_tcp_record *record)
{
	struct batoni_tcp *tcp = of_link(link);

	if (record->kind == BATONI_TCP_DATA && tcp->nodes)
		return tcp->body;
	if (record->kind == BATONI_TCP_ALL && tcp->brought && !tcp->came &&
	    record->bytes == tcp->part_bytes)
		return tcp->all;
	return NULL;
}

static void
hear_all(struct batoni_tcp *tcp, const struct batoni_tcp_record *record)
{
	if (!tcp->brought || tcp->came ||
	    (record->status == BATON_OK && record->bytes != tcp->part_bytes)) {
		tcp->link.error = BATONI_TCP_BROKE_RULES;
		return;
	}
	tcp->came = true;
	tcp->outcome = (enum baton_status)(int32_t)record->status;
}

static void
tcp_arrived(struct batoni_tcp_link *link, const struct batoni_tcp_record *record)
{
	struct batoni_tcp *tcp = of_link(link);
	bool message = record->kind >= BATONI_TCP_READY &&
	               record->kind <= BATONI_TCP_RETRACTED;

	if (message && (!tcp->nodes || record->to != (uint32_t)tcp->base.rank)) {
		link->error = BATONI_TCP_BROKE_RULES;
		return;
	}
	switch (record->kind) {
	case BATONI_TCP_ALL:
		hear_all(tcp, record);
		return;
	case BATONI_TCP_READY:
		hear_ready(tcp, record);
		return;
	case BATONI_TCP_DATA:
		hear_data(tcp, record);
		return;
	case BATONI_TCP_RETRACT:
		hear_retract(tcp, record);
		return;
	case BATONI_TCP_RETRACTED:
		hear_retracted(tcp, record);
		return;
	case BATONI_TCP_LEFT:
		tcp->left = (int)record->from;
		return;
	case BATONI_TCP_GONE:
		hear_gone(tcp, record);
		return;
	default:
		link->error = BATONI_TCP_BROKE_RULES;
	}
}

static const struct batoni_tcp_link_ops link_ops = {
	.room = tcp_room,
	.arrived = tcp_arrived,
};

/* Write and read what goes now; returns how many records came. */
static size_t
pump(struct batoni_tcp *tcp)
{
	size_t n;

	batoni_tcp_link_write(&tcp->link);
	n = batoni_tcp_link_read(&tcp->link);
	batoni_tcp_link_write(&tcp->link);
	if (tcp->link.error && !tcp->all_left)
		hear_end(tcp);
	return n;
}

/* ---- exchanges ---- */

/* This rank's part.  Without memory it tells the others so. */
static void
bring(struct batoni_tcp *tcp, uint64_t what, const void *mine, size_t bytes,
      bool able)
{
	struct batoni_tcp_record record = {
		.kind = BATONI_TCP_PART,
		.from = (uint32_t)tcp->base.rank,
		.what = what,
		.bytes = bytes,
		.length = (uint32_t)bytes,
	};

	tcp->brought = true;
	tcp->came = false;
	tcp->part_bytes = bytes;
	if (bytes && able)
		tcp->all = batoni_alloc((size_t)tcp->base.size, bytes);
	if (bytes && !tcp->all) {
		record.status = (uint32_t)BATON_ERR_NOMEM;
		record.length = 0;
	}
	post(tcp, &record, mine);
}

static enum baton_status
exchange(struct batoni_tcp *tcp, uint64_t what, const void *mine, size_t bytes,
         void *all)
{
	enum baton_status status;

	if (!tcp->brought)
		bring(tcp, what, mine, bytes, all != NULL);
	pump(tcp);
	if (!tcp->came) {
		tell(tcp);
		return tcp->why[0] || tcp->left >= 0 ? BATON_ERR_PEER
		                                     : BATON_PENDING;
	}
	status = tcp->outcome;
	if (status == BATON_OK && bytes)
		memcpy(all, tcp->all, (size_t)tcp->base.size * bytes);
	batoni_free(tcp->all);
	tcp->all = NULL;
	tcp->brought = tcp->came = false;
	return status;
}

static enum baton_status
tcp_exchange(struct batoni_transport *transport, uint64_t what, const void *mine,
             size_t bytes, void *all)
{
	if (bytes > BATONI_TCP_PART_MAX)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "an exchange of %zu bytes a rank; the side "
		                     "channel carries %u",
		                     bytes, BATONI_TCP_PART_MAX);
	return exchange(to_tcp(transport), what, mine, bytes, all);
}

static enum baton_status
tcp_leave(struct batoni_transport *transport)
{
	struct batoni_tcp *tcp = to_tcp(transport);
	enum baton_status status = exchange(tcp, BATONI_TCP_WHAT_LEAVE, NULL, 0,
	                                    NULL);

	tcp->all_left |= status == BATON_OK;
	return status;
}

/* ---- transfers ---- */

static enum baton_status
refuse_length(const struct batoni_transfer *transfer)
{
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "a message of %zu bytes: the side channel carries %u, "
	                     "and no data of the program; that needs MPI",
	                     transfer->bytes, BATONI_TCP_MESSAGE_MAX);
}

static enum baton_status
issue_send(struct batoni_tcp *tcp, struct batoni_transfer *transfer)
{
	struct peer *peer = &tcp->peers[transfer->peer];
	struct node *node = &tcp->nodes[transfer->slot];
	struct ready *ready = find_ready(peer, transfer->tag);

	if (transfer->bytes > BATONI_TCP_MESSAGE_MAX)
		return refuse_length(transfer);
	if (!ready) {
		node->transfer = transfer;
		node->state = WAITING;
		batoni_list_append(&peer->sends, &node->link);
		tcp->base.messages.load.in_flight++;
		return BATON_PENDING;
	}
	send_data(tcp, transfer, ready->slot, ready->bytes);
	drop_ready(peer, ready);
	batoni_transfer_moved(transfer, transfer->bytes);
	return BATON_OK;
}

static enum baton_status
issue_receive(struct batoni_tcp *tcp, struct batoni_transfer *transfer)
{
	struct node *node = &tcp->nodes[transfer->slot];
	const struct batoni_tcp_record record = {
		.kind = BATONI_TCP_READY,
		.from = (uint32_t)tcp->base.rank,
		.to = (uint32_t)transfer->peer,
		.tag = (uint32_t)transfer->tag,
		.slot = transfer->slot,
		.bytes = transfer->bytes,
	};

	node->transfer = transfer;
	node->state = POSTED;
	post(tcp, &record, NULL);
	tcp->base.messages.load.in_flight++;
	return BATON_PENDING;
}

static enum baton_status
tcp_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_tcp *tcp = of_path(path);
	enum baton_status status;

	assert(transfer->slot < tcp->base.slots);
	assert(tcp->nodes[transfer->slot].state == FREE);
	if (tcp->why[0])
		return BATON_ERR_PEER;
	status = transfer->direction == BATONI_SEND
	                 ? issue_send(tcp, transfer)
	                 : issue_receive(tcp, transfer);
	batoni_tcp_link_write(&tcp->link);
	return status;
}

static enum baton_status
end_node(struct batoni_tcp *tcp, struct node *node)
{
	batoni_list_remove(&node->link);
	node->state = FREE;
	node->transfer = NULL;
	tcp->base.messages.load.in_flight--;
	return node->status;
}

static size_t
tcp_test(struct batoni_path *path)
{
	struct batoni_tcp *tcp = of_path(path);
	struct batoni_host *host = tcp->base.host;
	size_t events = pump(tcp);

	while (!batoni_list_empty(&tcp->over)) {
		struct node *node = to_node(tcp->over.next);
		struct batoni_transfer *transfer = node->transfer;

		host->done(host, transfer, end_node(tcp, node));
		events++;
	}
	tell(tcp);
	return events;
}

static enum baton_status
tcp_take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_tcp *tcp = of_path(path);
	struct node *node = &tcp->nodes[transfer->slot];
	const struct batoni_tcp_record record = {
		.kind = BATONI_TCP_RETRACT,
		.from = (uint32_t)tcp->base.rank,
		.to = (uint32_t)transfer->peer,
		.tag = (uint32_t)transfer->tag,
		.slot = transfer->slot,
	};

	/* Nothing comes over a channel that is broken. */
	if (node->state == WAITING || (node->state != OVER && tcp->why[0])) {
		node->status = BATON_ERR_CANCELED;
		return end_node(tcp, node);
	}
	if (node->state == OVER)
		return end_node(tcp, node);
	if (node->state == POSTED) {
		node->state = RETRACTING;
		post(tcp, &record, NULL);
		batoni_tcp_link_write(&tcp->link);
	}
	return BATON_ERR_BUSY;
}

/* ---- the end ---- */

static void
free_tcp(struct batoni_tcp *tcp)
{
	for (int rank = 0; tcp->peers && rank < tcp->base.size; rank++) {
		struct peer *peer = &tcp->peers[rank];

		while (!batoni_list_empty(&peer->readies))
			drop_ready(peer, to_ready(peer->readies.next));
	}
	batoni_tcp_link_fini(&tcp->link);
	batoni_free(tcp->all);
	batoni_free(tcp->nodes);
	batoni_free(tcp->peers);
	batoni_free(tcp);
}

static void
tcp_close(struct batoni_transport *transport, bool aborted)
{
	struct batoni_tcp *tcp = to_tcp(transport);
	const struct batoni_tcp_record record = {
		.kind = aborted ? BATONI_TCP_ABORT : BATONI_TCP_BYE,
		.from = (uint32_t)transport->rank,
	};

	/* What is unread when a socket is closed makes the kernel drop what is unsent. */
	if (!tcp->why[0]) {
		pump(tcp);
		post(tcp, &record, NULL);
		batoni_tcp_link_write(&tcp->link);
	}
	free_tcp(tcp);
}

static void
tcp_error_text(struct batoni_transport *transport, int code, char *text,
               size_t size)
{
	(void)transport;
	(void)code;
	/* There is no library below. */
	if (size > 0)
		text[0] = '\0';
}

static const struct batoni_path_ops messages_ops = {
	.name = "the side channel",
	.kinds = BATONI_MESSAGES,
	.issue = tcp_issue,
	.test = tcp_test,
	.take_back = tcp_take_back,
};

static const struct batoni_transport_ops tcp_ops = {
	.name = "tcp",
	.id = BATON_TRANSPORT_NCCL, /* what lies over it; programs do not see this one */
	.exchange = tcp_exchange,
	.leave = tcp_leave,
	.close = tcp_close,
	.error_text = tcp_error_text,
};

static void
describe(struct batoni_transport *base, int rank, int size)
{
	base->ops = &tcp_ops;
	base->messages.ops = &messages_ops;
	base->messages.load.in_flight = 1;
	base->rank = rank;
	base->size = size;
	base->tag_max = INT_MAX;
	base->capabilities = BATON_CAP_TAGS | BATON_CAP_DIRECTIONS |
	                     BATON_CAP_SHORT | BATON_CAP_TRUNCATION |
	                     BATON_CAP_CANCEL | BATON_CAP_SELF;
	base->drivers = BATONI_DRIVERS_ANY;
	snprintf(base->library, sizeof(base->library), "TCP");
}

enum baton_status
batoni_tcp_new(int rank, int size, const struct batoni_side_link *link,
               struct batoni_tcp **tcp_p)
{
	struct batoni_tcp *tcp = batoni_alloc(1, sizeof(*tcp));

	if (!tcp) {
		struct batoni_tcp_link dead;

		batoni_tcp_link_init(&dead, link->fd, size, &link_ops);
		batoni_tcp_link_fini(&dead);
		return BATON_ERR_NOMEM;
	}
	describe(&tcp->base, rank, size);
	batoni_tcp_link_init(&tcp->link, link->fd, size, &link_ops);
	batoni_list_init(&tcp->over);
	tcp->home = link->home;
	tcp->left = -1;
	*tcp_p = tcp;
	return BATON_OK;
}

enum baton_status
batoni_tcp_alloc(struct batoni_tcp *tcp,
                 const struct batoni_transport_config *config)
{
	struct node *nodes = batoni_alloc(config->slots, sizeof(*nodes));

	tcp->peers = batoni_alloc((size_t)tcp->base.size, sizeof(*tcp->peers));
	if (!nodes || !tcp->peers) {
		batoni_free(nodes);
		batoni_free(tcp->peers);
		tcp->peers = NULL;
		return BATON_ERR_NOMEM;
	}
	for (int rank = 0; rank < tcp->base.size; rank++) {
		batoni_list_init(&tcp->peers[rank].sends);
		batoni_list_init(&tcp->peers[rank].readies);
	}
	for (uint32_t i = 0; i < config->slots; i++)
		batoni_list_init(&nodes[i].link);
	tcp->base.slots = config->slots;
	tcp->slots_most = config->slots_most;
	tcp->nodes = nodes;
	return BATON_OK;
}

struct batoni_transport *
batoni_tcp_transport(struct batoni_tcp *tcp)
{
	return &tcp->base;
}

const char *
batoni_tcp_why(const struct batoni_tcp *tcp)
{
	return tcp->why;
}
