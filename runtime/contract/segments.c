/* SPDX-License-Identifier: BSD-3-Clause */
#include "segments.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "mem.h"

/* What of a rank reaches the segment of another; or the pipe of its process. */
enum { HOSTS = 1, STREAMS = 2, PAIRS = 4, PIPES = 8 };

#define LINE_BYTES ((size_t)64)

static_assert(sizeof(struct batoni_segments_card) <= BATONI_CARD_BYTES,
              "it is a card");
static_assert(sizeof(struct batoni_segments_verdict) <= BATONI_CARD_BYTES,
              "it is a card");

static size_t
round_up(size_t bytes, size_t to)
{
	return (bytes + to - 1) / to * to;
}

/* In the segment of a rank, the byte of another. */
static _Atomic unsigned char *
flag_of(const struct batoni_segments *segments, void *segment, int rank)
{
	return (_Atomic unsigned char *)((char *)segment + segments->flags_at) + rank;
}

/* The segment of a rank, as mapped here, or NULL. */
static char *
mapping_of(const struct batoni_segments *segments, const struct batoni_peer *peer)
{
	return peer->pairs ? peer->pairs - segments->pairs_at : peer->segment;
}

/* ---- making ---- */

/* Returns the bytes of a segment. */
static size_t
lay_out(struct batoni_segments *segments, size_t ranks,
        const struct batoni_transport_config *config)
{
	size_t first = config->segment_bytes ? config->segment_bytes
	                                     : BATONI_DEPARTURE_BYTES;

	segments->onesided = config->segment_bytes > 0;
	segments->flags_at = round_up(first, LINE_BYTES);
	if (config->pairs_bytes == 0)
		return segments->flags_at + ranks;
	segments->pairs_format = config->pairs_format;
	segments->pairs_at = round_up(segments->flags_at + ranks,
	                              (size_t)sysconf(_SC_PAGESIZE));
	return segments->pairs_at + config->pairs_bytes;
}

/* What the others write before this rank knows: the part before the counters, their bytes, and what the
 * pairs begin with. */
static bool
populate(const struct batoni_segments *segments, size_t ranks,
         const struct batoni_transport_config *config)
{
	char *base = segments->segment.base;
	size_t until = segments->pairs_at
	                       ? segments->pairs_at + config->pairs_control
	                       : segments->flags_at + ranks;

	return (config->part_at == 0 ||
	        batoni_shm_populate(base, config->part_at)) &&
	       batoni_shm_populate(base + segments->flags_at,
	                           until - segments->flags_at);
}

enum baton_status
batoni_segments_make(struct batoni_segments *segments,
                     struct batoni_transport *transport, int size,
                     const struct batoni_transport_config *config)
{
	size_t ranks = (size_t)size;
	enum baton_status status;

	segments->verdict.rank = -1;
	if (config->segment_bytes == 0 && config->pairs_bytes == 0)
		return BATON_OK;
	batoni_stores_init(&segments->stores, config);
	transport->peers = batoni_alloc(ranks, sizeof(*transport->peers));
	if (!transport->peers)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no memory for what %d ranks share", size);
	for (size_t rank = 0; rank < ranks; rank++)
		transport->peers[rank].pidfd = -1;
	status = batoni_shm_create_sparse(lay_out(segments, ranks, config),
	                                  &segments->segment,
	                                  &transport->sparse_segments);
	if (status == BATON_OK && transport->sparse_segments &&
	    !populate(segments, ranks, config))
		status = batoni_refuse(BATON_ERR_NOMEM,
		                       "no shared memory for what %d ranks tell "
		                       "each other",
		                       size);
	return status;
}

void
batoni_segments_write_card(const struct batoni_segments *segments,
                           struct batoni_segments_card *card)
{
	memset(card, 0, sizeof(*card));
	batoni_shm_name(&segments->segment, &card->segment);
	card->has_bell = batoni_bell_name(&card->bell);
	card->pid = (int32_t)getpid();
	card->pairs = segments->pairs_format;
}

/* ---- meeting ---- */

/* Is the other ranks' memory of any use? */
static bool
wants_mapping(const struct batoni_segments *segments)
{
	return segments->pairs_at > 0 ||
	       batoni_config()->window_path != BATON_WINDOW_PATH_MESSAGE;
}

/* The segment and the bell, or neither. */
static enum batoni_lack
map_peer(const struct batoni_segments *segments, struct batoni_peer *peer,
         const struct batoni_segments_card *card)
{
	const size_t bytes = segments->segment.bytes;
	void *base, *bell = batoni_bell();
	enum baton_status status;

	if (!card->has_bell)
		return BATONI_LACK_BELL;
	if (card->segment.bytes != bytes)
		return BATONI_LACK_FORMAT;
	status = batoni_shm_map(&card->segment, 0, bytes, &base);
	if (status == BATON_OK && !peer->within) {
		status = batoni_shm_map(&card->bell, 0, sizeof(*peer->bell),
		                        &bell);
		if (status != BATON_OK)
			batoni_shm_unmap(base, bytes);
	}
	if (status != BATON_OK)
		return status == BATON_ERR_NOMEM ? BATONI_LACK_MEMORY
		                                 : BATONI_LACK_RIGHT;
	if (batoni_config()->window_path != BATON_WINDOW_PATH_MESSAGE)
		peer->segment = base;
	if (segments->pairs_at)
		peer->pairs = (char *)base + segments->pairs_at;
	peer->bell = bell;
	peer->pipe = batoni_pipe_open(bell, card->pid);
	peer->departure = base;
	return BATONI_LACK_NOTHING;
}

static void
meet_self(const struct batoni_segments *segments, struct batoni_peer *peer)
{
	*peer = (struct batoni_peer){
		.segment = segments->segment.base,
		.pairs = segments->pairs_at ? (char *)segments->segment.base +
	                                              segments->pairs_at
		                            : NULL,
		.bell = batoni_bell(),
		.pipe = batoni_pipe_open(batoni_bell(), getpid()),
		.pid = getpid(),
		.pidfd = -1,
		.within = true,
	};
}

static enum batoni_lack
meet_peer(const struct batoni_segments *segments, struct batoni_peer *peer,
          const struct batoni_segments_card *card)
{
	enum batoni_lack lack;

	if (!batoni_shm_is_here(&card->segment))
		return BATONI_LACK_HOST;
	peer->within = card->pid == getpid();
	if (!peer->within)
		peer->pidfd = batoni_pidfd_open(card->pid);
	/* Without it, another process could have the number later. */
	if (peer->within || peer->pidfd >= 0)
		peer->pid = card->pid;
	if (!wants_mapping(segments))
		return BATONI_LACK_NOTHING;
	lack = map_peer(segments, peer, card);
	return card->pairs != segments->pairs_format ? BATONI_LACK_FORMAT : lack;
}

/* Tell the rank what of this one reaches its segment. */
static void
write_flag(const struct batoni_segments *segments,
           const struct batoni_peer *peer, int rank)
{
	char *mapping = mapping_of(segments, peer);
	int reached = (peer->segment ? HOSTS : 0) |
	              (peer->streams ? STREAMS : 0) | (peer->near ? PAIRS : 0) |
	              (peer->pipe ? PIPES : 0);

	if (mapping)
		atomic_store(flag_of(segments, mapping, rank),
		             (unsigned char)reached);
}

void
batoni_segments_meet(struct batoni_segments *segments,
                     struct batoni_transport *transport,
                     const struct batoni_cards *cards)
{
	struct batoni_segments_verdict *verdict = &segments->verdict;

	if (!transport->peers)
		return;
	batoni_stores_begin(&segments->stores);
	for (int rank = 0; rank < transport->size; rank++) {
		const struct batoni_segments_card *card =
			batoni_card_of(cards, rank);
		struct batoni_peer *peer = &transport->peers[rank];
		enum batoni_lack lack = BATONI_LACK_NOTHING;

		if (rank == transport->rank)
			meet_self(segments, peer);
		else
			lack = meet_peer(segments, peer, card);
		batoni_stores_reach(&segments->stores, transport, rank,
		                    &card->segment);
		peer->near = segments->pairs_at && lack == BATONI_LACK_NOTHING;
		write_flag(segments, peer, transport->rank);
		if (lack != BATONI_LACK_NOTHING && verdict->rank < 0)
			*verdict = (struct batoni_segments_verdict){
				.rank = rank, .lack = lack};
	}
}

void
batoni_segments_met(struct batoni_segments *segments,
                    struct batoni_transport *transport)
{
	struct batoni_segments_verdict *verdict = &segments->verdict;
	bool stores = segments->onesided;

	if (!transport->peers)
		return;
	for (int rank = 0; rank < transport->size; rank++) {
		unsigned char reached = atomic_load(
			flag_of(segments, segments->segment.base, rank));

		transport->peers[rank].reaches_us = reached & HOSTS;
		transport->peers[rank].streams_here = reached & STREAMS;
		transport->peers[rank].near &= (reached & PAIRS) != 0;
		transport->peers[rank].writes_to_us = reached & PIPES;
		stores &= (reached & HOSTS) && transport->peers[rank].segment;
		if (segments->pairs_at && !(reached & PAIRS) &&
		    (verdict->rank < 0 || rank < verdict->rank))
			*verdict = (struct batoni_segments_verdict){
				.rank = rank, .lack = BATONI_LACK_RETURN};
	}
	verdict->stores = stores;
}

/* ---- are all near? ---- */

/* Why `rank` is not near to `other`. */
static void
tell_lack(uint32_t lack, int rank, int other, char *text, size_t size)
{
	switch ((enum batoni_lack)lack) {
	case BATONI_LACK_HOST:
		snprintf(text, size,
		         "rank %d is on another node than rank %d (or in a "
		         "container, which counts as one)",
		         other, rank);
		return;
	case BATONI_LACK_FORMAT:
		snprintf(text, size,
		         "rank %d runs another version of Baton than rank %d",
		         other, rank);
		return;
	case BATONI_LACK_BELL:
		snprintf(text, size,
		         "the process of rank %d has no shared memory by which "
		         "rank %d could wake it",
		         other, rank);
		return;
	case BATONI_LACK_MEMORY:
		snprintf(text, size,
		         "rank %d has no memory, or no file descriptor, to map the "
		         "memory of rank %d",
		         rank, other);
		return;
	case BATONI_LACK_RIGHT:
		snprintf(text, size,
		         "rank %d may not map the memory of rank %d, which is on "
		         "the same node: another user, a container, or a "
		         "process that may not be dumped",
		         rank, other);
		return;
	case BATONI_LACK_NOTHING:
	case BATONI_LACK_RETURN:
		break;
	}
	snprintf(text, size, "rank %d does not reach the memory of rank %d",
	         other, rank);
}

/* The cards are verdicts.  Where it is the other one that lacks something, that one knows what. */
static enum baton_status
agree(struct batoni_transport *transport, const struct batoni_cards *cards,
      const char *instead_or_null)
{
	const struct batoni_segments_verdict *verdict = NULL, *theirs;
	const size_t most = sizeof(transport->why_not_near);
	const int size = transport->size;
	char *text = transport->why_not_near;
	int rank = 0;

	transport->all_store = true;
	for (; rank < size; rank++) {
		verdict = batoni_card_of(cards, rank);
		if (verdict->rank >= 0)
			break;
		transport->all_store &= verdict->stores != 0;
	}
	transport->all_near = rank == size;
	transport->all_store &= transport->all_near;
	if (transport->all_near)
		return BATON_OK;
	theirs = verdict->rank < size ? batoni_card_of(cards, verdict->rank)
	                              : verdict;
	if (verdict->lack == BATONI_LACK_RETURN && theirs->rank == rank)
		tell_lack(theirs->lack, verdict->rank, rank, text, most);
	else
		tell_lack(verdict->lack, rank, verdict->rank, text, most);
	if (!instead_or_null)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED, "%s: %s", text,
	                     instead_or_null);
}

enum baton_status
batoni_segments_step(struct batoni_segments *segments,
                     struct batoni_transport *transport,
                     struct batoni_opening *opening,
                     const struct batoni_cards *cards, const char *instead)
{
	struct batoni_segments_verdict *verdict = (void *)opening->card;

	if (!transport->peers)
		return BATON_OK;
	if (opening->round == 1) {
		batoni_segments_meet(segments, transport, cards);
		return BATON_PENDING;
	}
	if (opening->round == 2) {
		batoni_segments_met(segments, transport);
		*verdict = segments->verdict;
		return segments->pairs_at ? BATON_PENDING : BATON_OK;
	}
	return agree(transport, cards,
	             opening->setup->near_only ? instead : NULL);
}

/* ---- the end ---- */

static void
unmap_peer(const struct batoni_segments *segments, struct batoni_peer *peer)
{
	char *mapping = mapping_of(segments, peer);

	if (mapping)
		batoni_shm_unmap(mapping, segments->segment.bytes);
	if (!peer->within && peer->bell)
		batoni_shm_unmap(peer->bell, sizeof(*peer->bell));
}

void
batoni_segments_free(struct batoni_segments *segments,
                     struct batoni_transport *transport)
{
	struct batoni_peer *peers = transport->peers;

	/* The transport's size is 0 until its ranks are known, and nothing mapped. */
	if (peers)
		batoni_stores_end(&segments->stores, transport);
	for (int rank = 0; peers && rank < transport->size; rank++) {
		if (rank != transport->rank)
			unmap_peer(segments, &peers[rank]);
		batoni_pipe_close(peers[rank].pipe);
		batoni_pidfd_close(peers[rank].pidfd);
	}
	batoni_shm_destroy(&segments->segment);
	batoni_free(peers);
	transport->peers = NULL;
}
