/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the path by messages share: the format of messages, and what is kept of them at
 * both ends.  message.c describes the protocol; message_put.c is the sender's side, message_get.c
 * answers, message_close.c leaves.
 */
#ifndef BATONI_MESSAGE_H
#define BATONI_MESSAGE_H

#include <assert.h>

#include "life.h"
#include "carry.h"

#define BATONI_ALL_LANES UINT32_MAX
/* Bytes of one message: the most that the MPI transport sends without an announcement. */
#define BATONI_MESSAGE_MAX 2048u

#define BATONI_MESSAGE_MAGIC 0x4261746fu /* also tells the byte order */
#define BATONI_MESSAGE_VERSION 4u

static_assert(BATONI_ONESIDED_LANES == 32, "a bit of free_lanes each");

enum batoni_payload {
	BATONI_PAYLOAD_NONE, /* a signal alone: window is 0, and `offset` what it adds beyond 1 */
	BATONI_PAYLOAD_INLINE,
	BATONI_PAYLOAD_SEPARATE,
	/* The data goes by a native transport: `offset` is the number of units of the sender to
	 * await, `bytes` are those of the put. */
	BATONI_PAYLOAD_NATIVE,
	/* A get: the target answers with `bytes` bytes of the window, from `offset` on.  0 bytes,
	 * of no window: a probe (message_get.c). */
	BATONI_PAYLOAD_GET
};

struct batoni_header {
	uint32_t magic;
	uint16_t version;
	uint16_t payload; /* enum batoni_payload */
	uint64_t window, offset, bytes;
	int32_t signal_index; /* or BATONI_NO_SIGNAL */
	int32_t context;
};

static_assert(sizeof(struct batoni_header) == 40, "no padding is sent");

/* Announces a channel to the rank at its other end. */
struct batoni_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t context;
	int32_t rank; /* of the sender */
};

static_assert(sizeof(struct batoni_hello) == 12, "no padding is sent");

struct batoni_lane {
	struct batoni_list_node link; /* of ended_lanes */
	/* The payload is received where the lane holds a get or a probe. */
	struct batoni_transfer header, payload;
	struct batoni_transfer *put; /* NULL: the lane is free; or of the probed wire */
	struct batoni_wire *probed;  /* NULL: it holds an operation */
	bool awaits; /* the payload is at the transport, to be received */
	bool left;   /* its get has ended early, and is LENT until it is answered */
	struct batoni_header own; /* used by a channel's lane; the pool's have buffers */
	int number; /* in the pool; -1: a channel's */
	unsigned parts;
	enum baton_status status;
};

enum batoni_source_state {
	BATONI_SOURCE_IDLE,    /* nothing posted */
	BATONI_SOURCE_HEADER,  /* a header's receive is at the transport, or ended */
	BATONI_SOURCE_PAYLOAD, /* the same for a payload */
	BATONI_SOURCE_NATIVE,  /* the header's data is to come by a native transport */
	BATONI_SOURCE_ANSWER,  /* the answer to a get is at the transport, or ended */
	BATONI_SOURCE_FAILED   /* a receive failed; final */
};

struct batoni_source {
	struct batoni_list_node link; /* of ended, or natives */
	struct batoni_transfer header, payload, answer;
	enum batoni_source_state state;
	enum baton_status status; /* of the receive, or answer, that has ended */
	int context;
	uint64_t window;  /* of the last header; 0: none */
	int signal_index; /* PAYLOAD: to be signaled after it, or BATONI_NO_SIGNAL */
	uint64_t adds;    /* by so much */
	uint64_t units;   /* of its last NATIVE header, to come; 0: there was none */
	bool dropped;     /* PAYLOAD: no signal, since the header was bad */
	bool lent;        /* its receive, or its answer, is at the transport */
	bool asked;       /* lent, and could not be taken back */
	bool scrapped;    /* lent, and its payload is not written any more */
};

/* A channel's part in the path by messages, both ways (link.c). */
struct batoni_wire {
	struct batoni_lane lane;     /* to the peer, for use when the pool is empty */
	struct batoni_source source; /* from it */
	struct batoni_transfer hello_transfer;
	struct batoni_hello hello;
	bool greeted; /* hello has been handed over */
	/* What of this channel's data the target is known to have (message_get.c): the numbers of
	 * the last message with data, of the last one that is applied, and of the probe that is
	 * under way (0: none).  unacked: of rma->unacked, while the first two differ. */
	struct batoni_list_node unacked;
	uint64_t last, acked, probing;
	/* The number of the last probe that has failed, and why.  It is the truth of the flushes
	 * whose mark it was sent behind, and of no later one. */
	uint64_t failed;
	enum baton_status why;
	struct batoni_transfer probe; /* stands for the probe in its lane */
	char buffer[BATONI_MESSAGE_MAX]; /* the source's */
};

struct batoni_messages {
	struct batoni_lane lanes[BATONI_ONESIDED_LANES]; /* the pool */
	uint32_t free_lanes; /* of the pool, one bit each */
	uint32_t busy;       /* lanes (also channels') and hellos under way */
	uint32_t lent;
	uint32_t left;       /* lanes with `left` */
	int listeners;
	_Atomic bool posted; /* hellos are received; any thread reads it */
	bool leaving; /* no receive of a header is posted any more */
	bool discards;    /* incoming messages are discarded: the communicator broke */
	bool lets_go; /* it writes nothing after its close */
	struct batoni_source mail; /* hellos, from any rank */
	struct batoni_hello mail_buffer;
	char *buffers; /* BATONI_MESSAGE_MAX bytes for each lane of the pool */
	struct batoni_list_node ended;       /* of source.link */
	struct batoni_list_node natives;     /* of source.link, NATIVE; each is kept in `ended` too */
	struct batoni_list_node ended_lanes; /* ended during their hand-over */
	struct batoni_messages *kept_next;
	_Atomic(struct batoni_link *) *kept_links;
};

/* The lane's get is LENT, or is not any more.  Liveness checks go on for it alone. */
static inline void
batoni_lane_set_left(struct batoni_rma *rma, struct batoni_lane *lane, bool left)
{
	if (lane->left == left)
		return;
	lane->left = left;
	rma->messages->left += left ? 1u : -1u;
	rma->comm->liveness.frees += left ? 1u : -1u;
}

/* Append what has ended to a list, for batoni_messages_test to continue with. */
static inline void
batoni_message_keep(struct batoni_rma *rma, struct batoni_list_node *list,
                    struct batoni_list_node *link)
{
	batoni_list_append(list, link);
	rma->base.path.load.in_flight++;
	rma->base.path.load.moving++;
	batoni_comm_set_busy(rma->comm);
}

static inline void
batoni_message_take(struct batoni_rma *rma, struct batoni_list_node *link)
{
	assert(rma->base.path.load.in_flight > 0 && rma->base.path.load.moving > 0);
	batoni_list_remove(link);
	rma->base.path.load.in_flight--;
	rma->base.path.load.moving--;
}

static inline int
batoni_header_tag(const struct batoni_rma *rma, int context)
{
	return rma->transport->hidden_tag + 3 * context;
}

static inline int
batoni_mail_tag(const struct batoni_rma *rma)
{
	return batoni_barrier_tag(rma) + 1;
}

/* What a transfer of the layer is: behind the header tag of its context are those of payloads and
 * of answers. */
enum batoni_message_part {
	BATONI_PART_HEADER,
	BATONI_PART_PAYLOAD,
	BATONI_PART_ANSWER
};

static inline enum batoni_message_part
batoni_message_part(const struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	return (enum batoni_message_part)(
		(transfer->tag - rma->transport->hidden_tag) % 3);
}

static inline bool
batoni_is_probe(const struct batoni_header *header)
{
	return header->payload == BATONI_PAYLOAD_GET && header->window == 0;
}

/* ---- message.c ---- */

/* What the source had at the transport has ended: batoni_messages_test goes on. */
void batoni_source_ended(struct batoni_rma *rma, struct batoni_source *source,
                         enum baton_status status);
void batoni_messages_free(struct batoni_messages *messages);

/* ---- message_get.c ---- */

/* Why the get must be rejected, or NULL. */
const char *batoni_get_fault(const struct batoni_header *header,
                             const struct baton_window *window);
/* Answer it: with these bytes of the window, or with none. */
void batoni_get_answer(struct batoni_rma *rma, struct batoni_source *source,
                       const void *from, size_t bytes, unsigned location);
/* A message of this wire carries data that the target may not have yet. */
void batoni_wire_carries(struct batoni_rma *rma, struct batoni_wire *wire);
/* The target has answered the probe, or never will. */
void batoni_probe_ended(struct batoni_rma *rma, struct batoni_wire *wire,
                        enum baton_status status);
/* The lane has received its payload: OK, or why that is not what was asked for. */
enum baton_status batoni_get_judge(const struct batoni_lane *lane,
                                   enum baton_status status);

/* May the answer to the lane's get be given up? */
bool batoni_get_may_end(const struct batoni_rma *rma,
                        const struct batoni_lane *lane);

/* ---- message_put.c ---- */

/* Give a lane that nothing has been handed over for, or whose parts have ended, back. */
void batoni_lane_give(struct batoni_rma *rma, struct batoni_lane *lane);
/* A message of the lane, or its hand-over, has ended.  True: it was the last part. */
bool batoni_lane_part_ended(struct batoni_lane *lane,
                            const struct batoni_transfer *part,
                            enum baton_status status);
/* Free the lane, then report the end of its put. */
void batoni_lane_end(struct batoni_rma *rma, struct batoni_lane *lane);

#endif
