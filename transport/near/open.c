/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Near over another transport, or beside its messages (pairs.h): what it takes, start and close.
 *
 * Over another one exchanges, leaving and clearing are that one's, passed through; so is what breaks
 * it or takes its library away.  Of a lower transport that breaks because a rank has gone, near first takes
 * what that rank and others have published: it has arrived.  Where it breaks within an exchange, in which
 * nothing may end, near's next test does that; the engine makes one before it ends what is pending
 * (batoni_take_in).
 *
 * Close.  The states of messages that this rank has announced and no peer has copied become TAKEN or REVOKED, so that no
 * receive ends in OK with bytes of memory that is used otherwise by then; and after an abort the
 * rank writes into its segment that it is away.  The segment itself stays mapped by the others, as long
 * as they live.
 */
#include "near.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>

#include "tensors.h"

static size_t
area_bytes(int size, uint32_t slots_most)
{
	struct batoni_ring_layout layout;

	batoni_ring_lay_out(size, slots_most, &layout);
	return layout.bytes;
}

static size_t
control_bytes(int size)
{
	struct batoni_ring_layout layout;

	batoni_ring_lay_out(size, 0, &layout);
	return layout.states_at;
}

/* The configuration of the lower transport: it has exchanges alone, and the segments. */
static struct batoni_transport_config
lower(const struct batoni_transport_config *above)
{
	struct batoni_transport_config config = *above;

	config.device = NULL;
	config.apart = config.check = false;
	config.slots = config.slots_most = 1;
	config.hidden_tags = 0;
	return config;
}

static void
discard(struct batoni_pairs *near)
{
	batoni_near_free_arrivals(near);
	batoni_hash_fini(&near->announced);
	batoni_match_fini(&near->match);
	batoni_free(near->scratch);
	batoni_free(near->peers);
	batoni_free(near->nodes);
	batoni_free(near);
}

static enum baton_status
create(const struct batoni_transport_config *above, int size,
       struct batoni_pairs **near_p)
{
	struct batoni_pairs *near = batoni_alloc(1, sizeof(*near));
	bool made;

	if (!near)
		return BATON_ERR_NOMEM;
	near->base.size = size;
	near->base.slots = above->slots;
	near->base.hidden_tags = above->hidden_tags;
	near->slots_most = above->slots_most;
	near->check = above->check;
	near->words = ((size_t)size + 63) / 64;
	batoni_ring_lay_out(size, above->slots_most, &near->layout);
	batoni_list_init(&near->copies);
	batoni_list_init(&near->arrivals);
	batoni_list_init(&near->mappings);
	near->alive = -1;
	near->nodes = batoni_alloc(above->slots, sizeof(*near->nodes));
	near->peers = batoni_alloc((size_t)size, sizeof(*near->peers));
	near->scratch = batoni_alloc(1, BATONI_TENSORS_HEADER_MAX);
	/* The table has receives, and as many arrivals. */
	made = batoni_match_init(&near->match, 2 * (uint64_t)above->slots) &&
	       batoni_hash_init(&near->announced, above->slots);
	if (!near->nodes || !near->peers || !near->scratch || !made) {
		discard(near);
		return BATON_ERR_NOMEM;
	}
	for (uint32_t i = 0; i < above->slots; i++)
		batoni_list_init(&near->nodes[i].link);
	*near_p = near;
	return BATON_OK;
}

/* ---- passed through ---- */

static struct batoni_pairs *
to_near(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct batoni_pairs, base);
}

static enum baton_status
exchange(struct batoni_transport *transport, uint64_t what, const void *mine,
         size_t bytes, void *all)
{
	struct batoni_transport *under = to_near(transport)->lower;

	return under->ops->exchanging->exchange(under, what, mine, bytes, all);
}

static enum baton_status
near_leave(struct batoni_transport *transport)
{
	struct batoni_transport *under = to_near(transport)->lower;

	return under->ops->leave(under);
}

static enum baton_status
clear(struct batoni_transport *transport)
{
	struct batoni_transport *under = to_near(transport)->lower;

	return under->ops->clearing->clear(under);
}

static void
error_text(struct batoni_transport *transport, int code, char *text, size_t size)
{
	struct batoni_transport *under = to_near(transport)->lower;

	under->ops->texts->error_text(under, code, text, size);
}

static const struct batoni_exchanging_ops exchanging = {.exchange = exchange};
static const struct batoni_clearing_ops clearing = {.clear = clear};
static const struct batoni_text_ops texts = {.error_text = error_text};

static struct batoni_pairs *
pairs_of(struct batoni_upcalls *upcalls)
{
	return batoni_container_of(upcalls, struct batoni_pairs, lower_upcalls);
}

/* Near issues none there. */
static void
lower_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
           enum baton_status status)
{
	(void)upcalls;
	(void)status;
	assert(transfer == NULL);
	(void)transfer;
}

static void
lower_broken(struct batoni_upcalls *upcalls, enum baton_status fatal, const char *call,
             int code, const char *text)
{
	struct batoni_pairs *near = pairs_of(upcalls);

	if (near->testing && !near->lower_broke)
		batoni_near_take_all(near);
	/* It broke by what was in a ring, or before; the engine knows. */
	if (near->broken || near->lower_broke)
		return;
	near->lower_broke = true;
	near->broken = near->testing || fatal != BATON_ERR_PEER;
	near->base.messages.upcalls->broken(near->base.messages.upcalls, fatal, call, code, text);
}

static void
lower_moves(struct batoni_upcalls *upcalls)
{
	struct batoni_upcalls *above = pairs_of(upcalls)->base.messages.upcalls;

	above->moves(above);
}

static void
lower_lost(struct batoni_upcalls *upcalls, bool exits, const char *why)
{
	struct batoni_upcalls *above = pairs_of(upcalls)->base.messages.upcalls;

	above->lost(above, exits, why);
}

/* ---- start and close ---- */

void
batoni_near_close(struct batoni_pairs *near, bool aborted)
{
	struct batoni_transport *base = &near->base, *under = near->lower;
	struct batoni_departure *departure =
		batoni_departure_of(&base->peers[base->rank]);

	assert(aborted || base->messages.load.in_flight == 0);
	batoni_near_give_up(near);
	batoni_near_close_blocks(near);
	if (aborted && departure)
		atomic_store(&departure->away, BATONI_AWAY_CLOSED);
	if (under) {
		under->patience = base->patience;
		under->ops->close(under, aborted);
	}
	discard(near);
}

static void
near_close(struct batoni_transport *transport, bool aborted)
{
	batoni_near_close(to_near(transport), aborted);
}

/* The two ends of this rank's rings with that one. */
static void
set_up_rings(struct batoni_pairs *near, int rank)
{
	const struct batoni_ring_layout *layout = &near->layout;
	const struct batoni_peer *there = &near->base.peers[rank];
	struct near_peer *peer = &near->peers[rank];
	int me = near->base.rank;

	batoni_list_init(&peer->starved);
	batoni_list_init(&peer->arrived);
	if (!there->near)
		return;
	peer->area = there->pairs;
	peer->out = (struct batoni_ring_out){
		.cells = batoni_ring_cells_of(layout, peer->area, me),
		.control = batoni_ring_control(layout, peer->area, me),
		.bits = batoni_ring_bits(peer->area, me),
		.bit = UINT64_C(1) << me % 64,
		.bell = there->bell,
		.pipe = there->pipe,
	};
	peer->in = (struct batoni_ring_in){
		.cells = batoni_ring_cells_of(layout, near->area, rank),
		.control = batoni_ring_control(layout, near->area, rank),
	};
}

static void
meet_all(struct batoni_pairs *near)
{
	struct batoni_transport *base = &near->base;

	assert(base->size == near->layout.size);
	near->area = base->peers[base->rank].pairs;
	for (int rank = 0; rank < base->size; rank++)
		set_up_rings(near, rank);
}

static struct batoni_transport *
start_near(struct batoni_pairs *near, struct batoni_transport *under)
{
	const struct batoni_transport_ops *ops = under->ops;
	struct batoni_transport *base = &near->base;
	uint32_t slots = base->slots;
	int hidden_tags = base->hidden_tags;

	near->lower = under;
	near->lower_upcalls = (struct batoni_upcalls){
		.done = lower_done,
		.broken = lower_broken,
		.moves = lower_moves,
		.lost = lower_lost,
	};
	near->ops = (struct batoni_transport_ops){
		.name = ops->id == BATON_TRANSPORT_AUTO ? "near" : ops->name,
		.id = ops->id == BATON_TRANSPORT_AUTO ? BATON_TRANSPORT_NEAR
		                                      : ops->id,
		.exchanging = &exchanging,
		.clearing = ops->clearing ? &clearing : NULL,
		.texts = ops->texts ? &texts : NULL,
		.leave = near_leave,
		.close = near_close,
	};
	*base = *under;
	base->ops = &near->ops;
	base->messages = (struct batoni_path){.ops = &batoni_near_messages_ops,
	                                      .load = {.parks = true, .makes_room = true}};
	base->slots = slots;
	base->hidden_tags = hidden_tags;
	base->tag_max = INT_MAX - hidden_tags;
	base->hidden_tag = hidden_tags ? base->tag_max + 1 : 0;
	base->any_peer = base->rank;
	base->capabilities = (under->capabilities &
	                      (BATON_CAP_SIGNALS | BATON_CAP_WINDOWS)) |
	                     BATON_CAP_TAGS | BATON_CAP_DIRECTIONS |
	                     BATON_CAP_SHORT | BATON_CAP_TRUNCATION |
	                     BATON_CAP_CANCEL | BATON_CAP_SELF;
	/* Beyond room and credit. */
	base->unbuffered = true;
	base->lets_go = true;
	base->lists = NULL;
	if (ops->id == BATON_TRANSPORT_AUTO)
		snprintf(base->library, sizeof(base->library), "shared memory");
	meet_all(near);
	under->upcalls = under->messages.upcalls = &near->lower_upcalls;
	return base;
}

static struct batoni_path *
beside(struct batoni_pairs *near, const struct batoni_transport *transport)
{
	struct batoni_transport *base = &near->base;

	base->rank = transport->rank;
	base->tag_max = transport->tag_max;
	base->peers = transport->peers;
	base->sparse_segments = transport->sparse_segments;
	/* The other transport has the one-sided layer's messages. */
	base->hidden_tags = 0;
	base->messages = (struct batoni_path){.ops = &batoni_near_beside_ops,
	                                      .load = {.makes_room = true}};
	meet_all(near);
	return &base->messages;
}

const struct batoni_pairs_ops batoni_near_ops = {
	.format = BATONI_RING_FORMAT,
	.area_bytes = area_bytes,
	.control_bytes = control_bytes,
	.lower = lower,
	.create = create,
	.discard = discard,
	.start = start_near,
	.beside = beside,
};
