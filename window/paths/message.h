/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the path by messages share: the format of messages, and the records at
 * both ends.  message.c describes the protocol; message_put.c is the sender's side.
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
#define BATONI_MESSAGE_VERSION 3u

static_assert(BATONI_ONESIDED_LANES == 32, "a bit of free_lanes each");

enum batoni_payload {
	BATONI_PAYLOAD_NONE, /* a signal alone: window is 0, and `offset` what it adds beyond 1 */
	BATONI_PAYLOAD_INLINE,
	BATONI_PAYLOAD_SEPARATE,
	/* The data goes by a native transport: `offset` is the number of units of the sender to
	 * await, `bytes` are those of the put. */
	BATONI_PAYLOAD_NATIVE
};

struct batoni_header {
	uint32_t magic;
	uint16_t version;
	uint16_t payload; /* enum batoni_payload */
	uint64_t window, offset, bytes;
	int32_t signal_index, context;
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
	struct batoni_transfer header, payload;
	struct batoni_transfer *put; /* NULL: the lane is free */
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
	BATONI_SOURCE_FAILED   /* a receive failed; final */
};

struct batoni_source {
	struct batoni_list_node link; /* of ended, or natives */
	struct batoni_transfer header, payload;
	enum batoni_source_state state;
	enum baton_status status; /* of the receive that has ended */
	int context;
	uint64_t window;  /* of the last header; 0: none */
	int signal_index; /* PAYLOAD: to be signaled after it */
	uint64_t adds;    /* by so much */
	uint64_t units;   /* of its last NATIVE header, to come; 0: there was none */
	bool dropped;     /* PAYLOAD: no signal, since the header was bad */
	bool lent;        /* its receive is at the transport */
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
	char buffer[BATONI_MESSAGE_MAX]; /* the source's */
};

struct batoni_messages {
	struct batoni_lane lanes[BATONI_ONESIDED_LANES]; /* the pool */
	uint32_t free_lanes; /* of the pool, one bit each */
	uint32_t busy;       /* lanes (also channels') and hellos under way */
	uint32_t lent;
	int listeners;
	_Atomic bool posted; /* hellos are received; any thread reads it */
	bool leaving; /* no receive of a header is posted any more */
	bool discards;    /* incoming messages are discarded: the communicator broke */
	bool lets_go; /* it writes nothing after its close */
	struct batoni_source mail; /* hellos, from any rank */
	struct batoni_hello mail_buffer;
	char *buffers; /* BATONI_MESSAGE_MAX bytes for each lane of the pool */
	struct batoni_list_node ended;       /* of source.link */
	struct batoni_list_node natives;     /* of source.link, NATIVE; each is noted too */
	struct batoni_list_node ended_lanes; /* ended during their hand-over */
	struct batoni_messages *kept_next;
	_Atomic(struct batoni_link *) *kept_links;
};

/* Append what has ended to a list, for batoni_messages_test to continue with. */
static inline void
batoni_message_note(struct batoni_rma *rma, struct batoni_list_node *list,
                    struct batoni_list_node *link)
{
	batoni_list_append(list, link);
	rma->base.path.load.in_flight++;
	rma->base.path.load.moving++;
	batoni_comm_set_busy(rma->comm);
}

static inline void
batoni_message_take_note(struct batoni_rma *rma, struct batoni_list_node *link)
{
	assert(rma->base.path.load.in_flight > 0 && rma->base.path.load.moving > 0);
	batoni_list_remove(link);
	rma->base.path.load.in_flight--;
	rma->base.path.load.moving--;
}

static inline int
batoni_header_tag(const struct batoni_rma *rma, int context)
{
	return rma->transport->hidden_tag + 2 * context;
}

static inline int
batoni_mail_tag(const struct batoni_rma *rma)
{
	return batoni_barrier_tag(rma) + 1;
}

/* ---- message_put.c ---- */

/* A message of the lane, or its hand-over, has ended.  True: it was the last part. */
bool batoni_lane_part_ended(struct batoni_lane *lane,
                            const struct batoni_transfer *part,
                            enum baton_status status);
/* Free the lane, then report the end of its put. */
void batoni_lane_end(struct batoni_rma *rma, struct batoni_lane *lane);

#endif
