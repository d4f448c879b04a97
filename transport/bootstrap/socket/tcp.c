/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel's transport: one rank's end of the star (tcp.h).  Near or a native transport is
 * layered on it and uses `exchange`, `leave`, `close`, and may use its small messages; the program's
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
 * Messages: message.c.
 *
 * Its load counts one in flight, always: the link itself, whose end means that a process has died.
 * That is standing too: it needs no poll unless something else is in flight.  The upper
 * transport calls `test` for that.
 *
 * Ends.  GONE of a rank, and the end of the link (the hub's process has died, or the network
 * is silent: keepalive), break the channel: upcalls->broken with PEER, and a sentence that names
 * the rank, or the one that it has told to be gone before it.  LEFT does not: the rank has left in order, and only
 * exchanges are impossible then.
 * Nor does the end of the link once all have left, since the hub's process may exit then.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "mem.h"
#include "rank.h"

/* The `what` of a creation's first exchange; the others follow. */
#define WHAT_ROUNDS ((uint64_t)0x7463700001)

static struct batoni_tcp *
to_tcp(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct batoni_tcp, base);
}

static struct batoni_tcp *
of_link(struct batoni_tcp_link *link)
{
	return batoni_container_of(link, struct batoni_tcp, link);
}

/* ---- what breaks it ---- */

void
batoni_tcp_break(struct batoni_tcp *tcp, const char *why)
{
	if (!tcp->why[0])
		snprintf(tcp->why, sizeof(tcp->why), "%s", why);
}

void
batoni_tcp_tell(struct batoni_tcp *tcp)
{
	if (!tcp->why[0] || tcp->told || !tcp->base.upcalls)
		return;
	tcp->told = true;
	tcp->base.upcalls->broken(tcp->base.upcalls, BATON_ERR_PEER, NULL, 0,
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
		return "its node does not answer any more";
	default:
		return "its process has ended, or has closed its connection";
	}
}

static void
hear_gone(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	char why[BATONI_SIDE_WHY_BYTES];
	uint32_t first = frame->what ? (uint32_t)frame->what - 1
	                             : frame->from;

	if (first == (uint32_t)tcp->base.rank)
		first = frame->from;
	if (first != frame->from)
		snprintf(why, sizeof(why),
		         "rank %u is gone, and then rank %u left: %s", first,
		         frame->from, reason_of(frame->status));
	else
		snprintf(why, sizeof(why), "rank %u is gone: %s", first,
		         reason_of(frame->status));
	batoni_departure_blame(tcp->segments.segment.base, (int)first);
	batoni_tcp_break(tcp, why);
}

/* The rank whose end this one was the first to see, plus one; 0: none. */
static uint32_t
first_gone(const struct batoni_tcp *tcp)
{
	struct batoni_departure *departure = tcp->segments.segment.base;

	return departure ? atomic_load(&departure->after) : 0;
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
	batoni_tcp_break(tcp, why);
}

void
batoni_tcp_post(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame,
                const void *bytes)
{
	if (!batoni_tcp_link_queue(&tcp->link, frame, bytes, false, NULL))
		batoni_tcp_break(tcp, "no memory for the side channel");
}

/* ---- what comes ---- */

static unsigned char *
tcp_room(struct batoni_tcp_link *link, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp *tcp = of_link(link);

	if (frame->kind == BATONI_TCP_DATA && tcp->nodes)
		return tcp->body;
	if (frame->kind == BATONI_TCP_ALL && tcp->brought && !tcp->came &&
	    frame->bytes == tcp->part_bytes)
		return tcp->all;
	return NULL;
}

static void
hear_all(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	if (!tcp->brought || tcp->came ||
	    (frame->status == BATON_OK && frame->bytes != tcp->part_bytes)) {
		tcp->link.error = BATONI_TCP_BROKE_RULES;
		return;
	}
	tcp->came = true;
	tcp->outcome = (enum baton_status)(int32_t)frame->status;
}

static void
tcp_arrived(struct batoni_tcp_link *link, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp *tcp = of_link(link);
	bool message = frame->kind >= BATONI_TCP_READY &&
	               frame->kind <= BATONI_TCP_RETRACTED;

	if (message && (!tcp->nodes || frame->to != (uint32_t)tcp->base.rank)) {
		link->error = BATONI_TCP_BROKE_RULES;
		return;
	}
	switch (frame->kind) {
	case BATONI_TCP_ALL:
		hear_all(tcp, frame);
		return;
	case BATONI_TCP_READY:
	case BATONI_TCP_DATA:
	case BATONI_TCP_RETRACT:
	case BATONI_TCP_RETRACTED:
		batoni_tcp_hear(tcp, frame);
		return;
	case BATONI_TCP_LEFT:
		tcp->left = (int)frame->from;
		return;
	case BATONI_TCP_GONE:
		hear_gone(tcp, frame);
		return;
	default:
		link->error = BATONI_TCP_BROKE_RULES;
	}
}

static const struct batoni_tcp_link_ops link_ops = {
	.room = tcp_room,
	.arrived = tcp_arrived,
};

size_t
batoni_tcp_pump(struct batoni_tcp *tcp)
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

static void
end_exchange(struct batoni_tcp *tcp)
{
	batoni_free(tcp->all);
	tcp->all = NULL;
}

/* This rank's part.  Without memory it tells the others so. */
static void
bring(struct batoni_tcp *tcp, uint64_t what, const void *mine, size_t bytes,
      bool able)
{
	struct batoni_tcp_frame frame = {
		.kind = BATONI_TCP_PART,
		.from = (uint32_t)tcp->base.rank,
		.what = what,
		.bytes = bytes,
		.length = (uint32_t)bytes,
	};

	tcp->brought = true;
	tcp->came = false;
	tcp->part_bytes = bytes;
	end_exchange(tcp);
	if (bytes && able)
		tcp->all = batoni_alloc((size_t)tcp->base.size, bytes);
	if (bytes && !tcp->all) {
		frame.status = (uint32_t)BATON_ERR_NOMEM;
		frame.length = 0;
	}
	batoni_tcp_post(tcp, &frame, mine);
}

/* One step of an exchange.  OK: tcp->all has what all have brought, until end_exchange or the
 * next one; or an outcome that all have. */
static enum baton_status
step_exchange(struct batoni_tcp *tcp, uint64_t what, const void *mine,
              size_t bytes, bool able)
{
	if (!tcp->brought)
		bring(tcp, what, mine, bytes, able);
	batoni_tcp_pump(tcp);
	if (!tcp->came) {
		batoni_tcp_tell(tcp);
		return tcp->why[0] || tcp->left >= 0 ? BATON_ERR_PEER
		                                     : BATON_PENDING;
	}
	tcp->brought = tcp->came = false;
	return tcp->outcome;
}

static enum baton_status
exchange(struct batoni_tcp *tcp, uint64_t what, const void *mine, size_t bytes,
         void *all)
{
	enum baton_status status = step_exchange(tcp, what, mine, bytes,
	                                         all != NULL);

	if (status == BATON_OK && bytes)
		memcpy(all, tcp->all, (size_t)tcp->base.size * bytes);
	if (!tcp->brought)
		end_exchange(tcp);
	return status;
}

enum baton_status
batoni_tcp_exchange_in_rounds(struct batoni_tcp *tcp, const void *mine, size_t bytes,
                              const void **all_p)
{
	enum baton_status status = step_exchange(
		tcp, WHAT_ROUNDS + tcp->rounds, mine, bytes, true);

	*all_p = tcp->all;
	tcp->rounds += status == BATON_OK;
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

/* ---- the end ---- */

static void
free_tcp(struct batoni_tcp *tcp)
{
	batoni_tcp_forget(tcp);
	batoni_segments_free(&tcp->segments, &tcp->base);
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
	const struct batoni_tcp_frame frame = {
		.kind = aborted ? BATONI_TCP_ABORT : BATONI_TCP_BYE,
		.from = (uint32_t)transport->rank,
		.what = aborted ? first_gone(tcp) : 0,
	};

	/* What is unread when a socket is closed makes the kernel drop what is unsent. */
	if (!tcp->why[0]) {
		batoni_tcp_pump(tcp);
		batoni_tcp_post(tcp, &frame, NULL);
		batoni_tcp_link_write(&tcp->link);
	}
	free_tcp(tcp);
}

static const struct batoni_transport_ops tcp_ops = {
	.name = "tcp",
	.id = BATON_TRANSPORT_AUTO, /* programs see the upper transport */
	.exchanging = &(const struct batoni_exchanging_ops){.exchange = tcp_exchange},
	.leave = tcp_leave,
	.close = tcp_close,
};

static void
describe(struct batoni_transport *base, int rank, int size)
{
	base->ops = &tcp_ops;
	base->messages.ops = &batoni_tcp_messages_ops;
	base->messages.load.in_flight = base->messages.load.standing = 1;
	base->lets_go = base->unbuffered = base->ends_with_a_rank = true;
	base->any_peer = -1;
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
	struct batoni_tcp_node *nodes = batoni_alloc(config->slots, sizeof(*nodes));

	tcp->peers = batoni_alloc((size_t)tcp->base.size, sizeof(*tcp->peers));
	if (!nodes || !tcp->peers) {
		batoni_free(nodes);
		batoni_free(tcp->peers);
		tcp->peers = NULL;
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no memory for the side channel of %d ranks",
		                     tcp->base.size);
	}
	for (int rank = 0; rank < tcp->base.size; rank++) {
		batoni_list_init(&tcp->peers[rank].sends);
		batoni_list_init(&tcp->peers[rank].readies);
	}
	for (uint32_t i = 0; i < config->slots; i++)
		batoni_list_init(&nodes[i].link);
	tcp->base.slots = config->slots;
	tcp->slots_most = config->slots_most;
	tcp->base.hidden_tags = config->hidden_tags;
	tcp->base.tag_max -= config->hidden_tags;
	if (config->hidden_tags > 0)
		tcp->base.hidden_tag = tcp->base.tag_max + 1;
	tcp->nodes = nodes;
	if (config->segment_bytes)
		tcp->base.capabilities |= BATON_CAP_SIGNALS | BATON_CAP_WINDOWS;
	return batoni_segments_make(&tcp->segments, &tcp->base, tcp->base.size,
	                            config);
}

struct batoni_transport *
batoni_tcp_transport(struct batoni_tcp *tcp)
{
	return &tcp->base;
}
