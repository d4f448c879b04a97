/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: memory, starting, closing.
 *
 * Everything is allocated at creation: pinned memory in one block, tokens, messages by
 * slot, a bounce buffer for each slot (whose pages take memory when they are used).
 *
 * Slots at the lower transport: first parts have their message's slot; control parts
 * follow; then each chunk has one.  Hidden tags: one for the grants to each slot, one for
 * the pieces to each slot, then those of the transport above, so that its last one is the
 * last one of the lower transport too, on which a receive matches messages of any rank.  The tags are the
 * same on all ranks, as many as the rank with most slots needs.
 *
 * A path beside the messages of the lower transport has the same slots and tags: messages to the peers that it
 * serves, and all parts of them, are its transfers.  It lets go of buffers at its close, which comes first.
 *
 * Closing after an abort: copies under way are waited for, since their memory cannot be freed
 * before; a device that is not well may never end them, and is waited for as long as `patience`
 * says.  Other threads drive meanwhile.  Ranks of this process may end parts of this one then,
 * which only lists them (batoni_stage_done).  A lower transport that is more than this process may
 * still reach the buffers of parts that it has: then the memory of the staging is leaked on
 * purpose, pinned memory only if such a part is in it.  Memory of other processes is unmapped when
 * no copy reads it.  In an orderly end that happens before the ranks have left.
 */
#include <string.h>

#include "copies.h"
#include "mem.h"
#include "stage.h"

/* How many bytes a buffer takes of the pinned block: buffers begin at multiples of 64. */
#define ROUNDED(bytes) (((bytes) + 63) & ~(size_t)63)
#define EAGER_BYTES(config)                                                   \
	ROUNDED(BATONI_STAGING_HEADER_BYTES + (config)->eager_bytes)
#define CHUNK_BYTES(config) ROUNDED((config)->chunk_bytes)

/* Receives that copy out of mapped memory at a time; others wait. */
#define COPIES_MAX 64u
#define SCRATCH_BYTES 1 /* mapped.c */

/* The stagings that were leaked on purpose, so that leak checkers find them.  The thread that
 * destroys, with the driver lock. */
static struct batoni_staging *leaked;

static struct batoni_transport_config
lower(const struct batoni_transport_config *above,
      const struct batoni_staging_config *staging)
{
	struct batoni_transport_config config = *above;

	config.device = NULL; /* it sees pinned memory, and the host's */
	config.check = false; /* the types are in our headers */
	/* The creator of the communicator has found that they fit. */
	config.slots = (uint32_t)batoni_staging_slots(above->slots, staging);
	config.slots_most = (uint32_t)batoni_staging_slots(above->slots_most,
	                                                   staging);
	config.hidden_tags = above->hidden_tags + 2 * (int)above->slots_most;
	return config;
}

static void
init_lists(struct batoni_staging *stage)
{
	for (unsigned direction = 0; direction < DIRECTIONS; direction++) {
		for (unsigned kind = 0; kind < KINDS; kind++)
			batoni_list_init(&stage->free[direction][kind]);
		batoni_list_init(&stage->wanting[direction]);
		batoni_list_init(&stage->crowd[direction]);
		for (int i = 0; i < stage->size; i++) {
			struct stage_share *share =
				&stage->peers[i].shares[direction];

			batoni_list_init(&share->parked);
			batoni_list_init(&share->crowd);
		}
	}
	batoni_list_init(&stage->eager_wanting);
	batoni_list_init(&stage->copy_wanting);
	batoni_list_init(&stage->waiting);
	batoni_list_init(&stage->copies);
	batoni_list_init(&stage->listed);
	batoni_list_init(&stage->ended);
	batoni_list_init(&stage->telling);
	batoni_list_init(&stage->lines);
}

/* Initialise the tokens of one direction and kind.  Returns the first token of the next ones. */
static struct stage_token *
init_tokens(struct batoni_staging *stage, struct stage_token *token,
            uint8_t direction, uint8_t kind, unsigned char **pinned_p)
{
	const struct batoni_staging_config *config = &stage->config;
	uint32_t n = kind == CHUNKS ? config->chunks : config->eager_slots;
	size_t bytes = kind == CHUNKS ? CHUNK_BYTES(config)
	                              : EAGER_BYTES(config);

	for (uint32_t i = 0; i < n; i++, token++) {
		uint32_t at = (uint32_t)(token - stage->tokens);

		token->direction = direction;
		token->kind = kind;
		token->memory = *pinned_p;
		*pinned_p += bytes;
		if (kind == CHUNKS)
			token->part.transfer.slot =
				(2 * stage->slots + at) & 0xffffff;
		batoni_list_init(&token->copying);
		batoni_list_init(&token->packed);
		batoni_list_init(&token->part.link);
		batoni_list_append(&stage->free[direction][kind],
		                   &token->link);
	}
	return token;
}

/* Are messages mapped where that works?  An offer has to fit where an eager message does. */
static bool
maps(const struct batoni_staging *stage)
{
	return stage->config.maps && stage->memory->sharing &&
	       stage->config.eager_bytes >= sizeof(struct stage_offer);
}

static size_t
count_tokens(const struct batoni_staging *stage)
{
	return DIRECTIONS * ((size_t)stage->config.chunks +
	                     stage->config.eager_slots);
}

/* Copies of receives that are mapped: these tokens have no buffer. */
static void
init_copies(struct batoni_staging *stage, struct stage_token *token)
{
	for (unsigned i = 0; i < COPIES_MAX; i++, token++) {
		token->direction = RECVS;
		token->kind = COPIES;
		batoni_list_init(&token->copying);
		batoni_list_init(&token->packed);
		batoni_list_init(&token->part.link);
		batoni_list_append(&stage->free[RECVS][COPIES], &token->link);
	}
}

static enum baton_status
alloc_pinned(struct batoni_staging *stage, uint64_t until_ns)
{
	const struct batoni_staging_config *config = &stage->config;
	size_t bytes = DIRECTIONS * (config->chunks * CHUNK_BYTES(config) +
	                             config->eager_slots * EAGER_BYTES(config)) +
	               ROUNDED(SCRATCH_BYTES);
	struct stage_token *token = stage->tokens;
	unsigned char *at;
	void *block;
	enum baton_status status = stage->memory->pinned_alloc(stage->device,
	                                                       bytes, until_ns,
	                                                       &block);

	if (status != BATON_OK)
		return status;
	stage->pinned = at = block;
	/* Chunks first: their slots at the lower transport are those of the tokens. */
	token = init_tokens(stage, token, SENDS, CHUNKS, &at);
	token = init_tokens(stage, token, RECVS, CHUNKS, &at);
	token = init_tokens(stage, token, SENDS, EAGERS, &at);
	token = init_tokens(stage, token, RECVS, EAGERS, &at);
	if (!maps(stage))
		return BATON_OK;
	init_copies(stage, token);
	return batoni_stage_maps_create(stage, at);
}

static void
discard(struct batoni_staging *stage)
{
	if (stage->pinned)
		stage->memory->pinned_free(stage->device, stage->pinned);
	batoni_free(stage->maps);
	batoni_free(stage->messages);
	batoni_free(stage->bounces);
	batoni_free(stage->tokens);
	batoni_free(stage->peers);
	batoni_free(stage);
}

static enum baton_status
create(const struct batoni_transport_config *above,
       const struct batoni_staging_config *config, int size,
       struct batoni_staging **staging_p)
{
	struct batoni_staging *stage = batoni_alloc(1, sizeof(*stage));
	enum baton_status status = BATON_ERR_NOMEM;

	if (!stage)
		return BATON_ERR_NOMEM;
	stage->device = above->device;
	stage->memory = above->device->ops->memory;
	stage->config = *config;
	stage->check = above->check;
	stage->size = size;
	stage->slots = above->slots;
	stage->slots_most = above->slots_most;
	stage->base.hidden_tags = above->hidden_tags;
	stage->messages = batoni_alloc(stage->slots, sizeof(*stage->messages));
	stage->bounces = batoni_alloc(stage->slots,
	                              BATONI_STAGING_HEADER_BYTES +
	                                      config->eager_bytes);
	stage->tokens = batoni_alloc(count_tokens(stage) + COPIES_MAX,
	                             sizeof(*stage->tokens));
	stage->peers = batoni_alloc((size_t)size, sizeof(*stage->peers));
	if (stage->messages && stage->bounces && stage->tokens && stage->peers) {
		init_lists(stage);
		status = alloc_pinned(stage, above->until_ns);
	}
	if (status == BATON_OK)
		*staging_p = stage;
	else
		discard(stage);
	return status;
}

static void
lower_broken(struct batoni_upcalls *upcalls, enum baton_status fatal,
             const char *call, int code, const char *text)
{
	struct batoni_staging *stage =
		batoni_container_of(upcalls, struct batoni_staging, lower_upcalls);

	stage->base.upcalls->broken(stage->base.upcalls, fatal, call, code, text);
}

static void
lower_moves(struct batoni_upcalls *upcalls)
{
	struct batoni_staging *stage =
		batoni_container_of(upcalls, struct batoni_staging, lower_upcalls);

	stage->base.upcalls->moves(stage->base.upcalls);
}

static bool
lower_may_meet(struct batoni_upcalls *upcalls, int peer, int tag)
{
	struct batoni_staging *stage =
		batoni_container_of(upcalls, struct batoni_staging, lower_upcalls);

	return stage->base.upcalls->may_meet(stage->base.upcalls, peer, tag);
}

/* What has come is a header of staging.  Its receive is issued here first, so the lower
 * transport gets none. */
static struct batoni_transfer *
lower_receive_for(struct batoni_upcalls *upcalls, int peer, int tag)
{
	(void)upcalls;
	(void)peer;
	(void)tag;
	return NULL;
}

static void
lower_lost(struct batoni_upcalls *upcalls, bool exits, const char *why)
{
	struct batoni_staging *stage =
		batoni_container_of(upcalls, struct batoni_staging, lower_upcalls);

	stage->base.upcalls->lost(stage->base.upcalls, exits, why);
}

/* ---- passed through ---- */

static struct batoni_transport *
lower_of(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct batoni_staging, base)->lower;
}

static enum baton_status
exchange(struct batoni_transport *transport, uint64_t what, const void *mine,
         size_t bytes, void *all)
{
	struct batoni_transport *under = lower_of(transport);

	return under->ops->exchanging->exchange(under, what, mine, bytes, all);
}

static const struct batoni_exchanging_ops exchanging = {.exchange = exchange};

static enum baton_status
staging_leave(struct batoni_transport *transport)
{
	struct batoni_staging *stage =
		batoni_container_of(transport, struct batoni_staging, base);
	struct batoni_transport *under = stage->lower;

	/* When all have left, each may free what others had mapped. */
	if (stage->maps && !batoni_stage_maps_leave(stage))
		return BATON_PENDING;
	return under->ops->leave(under);
}

static enum baton_status
clear(struct batoni_transport *transport)
{
	struct batoni_transport *under = lower_of(transport);

	return under->ops->clearing->clear(under);
}

static const struct batoni_clearing_ops clearing = {.clear = clear};

static void
error_text(struct batoni_transport *transport, int code, char *text, size_t size)
{
	struct batoni_transport *under = lower_of(transport);

	under->ops->texts->error_text(under, code, text, size);
}

static const struct batoni_text_ops texts = {.error_text = error_text};

/* ---- starting and closing ---- */

/* Wait until no copy is under way.  Those that wait are not started.  False: the device does
 * not end them. */
static bool
end_copies(struct batoni_staging *stage)
{
	while (!batoni_list_empty(&stage->copies)) {
		struct stage_token *token = batoni_container_of(
			stage->copies.next, struct stage_token, copying);

		if (!batoni_copy_await(stage->device, &token->ticket,
		                       stage->base.patience))
			return false;
		batoni_list_remove(&token->copying);
	}
	return true;
}

/* Has the lower transport a part in pinned memory?  (A path beside it releases its parts at its
 * close.) */
static bool
has_pinned(const struct batoni_staging *stage)
{
	const struct batoni_path *lower = &stage->lower->messages;

	for (size_t i = 0; i < count_tokens(stage); i++) {
		const struct stage_token *token = &stage->tokens[i];
		const struct stage_message *message = token->message;

		if (token->part.lower == lower ||
		    (message && message->eager == token &&
		     message->first.lower == lower))
			return true;
	}
	return false;
}

/* The lower transport is closed, but its library may still read and write. */
static void
leak_on_purpose(struct batoni_staging *stage, bool pinned)
{
	if (!pinned)
		stage->memory->pinned_free(stage->device, stage->pinned);
	stage->leaked = leaked;
	leaked = stage;
	batoni_mem_keep(5);
}

static void
close_both(struct batoni_transport *transport, bool aborted)
{
	struct batoni_staging *stage =
		batoni_container_of(transport, struct batoni_staging, base);
	struct batoni_transport *under = stage->lower;
	bool ours = under->lets_go || under->messages.load.in_flight == 0;
	bool pinned = !ours && has_pinned(stage);
	bool ended = end_copies(stage);

	assert(aborted || stage->begun == 0);
	if (!batoni_stage_maps_close(stage, !ended))
		transport->patience->copies_left = true;
	if (!ended) {
		transport->patience->copies_left = true;
		ours = false;
		pinned = true;
	}
	if (stage->beside)
		stage->beside->ops->closing->close(stage->beside, aborted);
	under->patience = transport->patience;
	under->ops->close(under, aborted);
	if (ours)
		discard(stage);
	else
		leak_on_purpose(stage, pinned);
}

static struct batoni_transport *
start_staging(struct batoni_staging *stage, struct batoni_transport *transport,
              struct batoni_path *beside)
{
	struct batoni_transport *base = &stage->base;
	int hidden_tags = base->hidden_tags;

	assert(transport->size == stage->size);
	assert(transport->slots >=
	       batoni_staging_slots(stage->slots, &stage->config));
	stage->lower = transport;
	stage->beside = beside;
	stage->lower_upcalls = (struct batoni_upcalls){
		.done = batoni_stage_done,
		.broken = lower_broken,
		.moves = lower_moves,
		.may_meet = lower_may_meet,
		.receive_for = lower_receive_for,
		.lost = lower_lost,
	};
	stage->ops = (struct batoni_transport_ops){
		.name = transport->ops->name,
		.id = transport->ops->id,
		.exchanging = &exchanging,
		.clearing = transport->ops->clearing ? &clearing : NULL,
		.leave = staging_leave,
		.close = close_both,
		.texts = transport->ops->texts ? &texts : NULL,
	};
	*base = *transport;
	base->ops = &stage->ops;
	batoni_stage_messages(stage);
	base->slots = stage->slots;
	base->hidden_tags = hidden_tags;
	stage->grant_tag = transport->hidden_tag;
	stage->body_tag = stage->grant_tag + (int)stage->slots_most;
	base->hidden_tag = stage->body_tag + (int)stage->slots_most;
	base->messages.load = (struct batoni_load){
		.in_flight = transport->messages.load.standing,
		.standing = transport->messages.load.standing,
		.quiet = transport->messages.load.quiet,
		.makes_room = transport->messages.load.makes_room ||
		              (beside && beside->load.makes_room),
	};
	transport->upcalls = transport->messages.upcalls = &stage->lower_upcalls;
	if (beside)
		beside->upcalls = &stage->lower_upcalls;
	return base;
}

const struct batoni_staging_ops batoni_staging_ops = {
	.defaults = {
		.chunk_bytes = (size_t)512 << 10,
		.chunks = 16,
		.eager_bytes = 2048 - BATONI_STAGING_HEADER_BYTES,
		.eager_slots = 64,
		.eager_per_peer = 16,
	},
	.lower = lower,
	.create = create,
	.discard = discard,
	.start = start_staging,
};
