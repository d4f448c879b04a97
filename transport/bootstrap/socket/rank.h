/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's end of the side channel, as tcp.c and message.c see it. */
#ifndef BATONI_TCP_RANK_H
#define BATONI_TCP_RANK_H

#include "segments.h"
#include "tcp.h"

enum batoni_tcp_state {
	BATONI_TCP_FREE,
	BATONI_TCP_WAITING,
	BATONI_TCP_POSTED,
	BATONI_TCP_RETRACTING,
	BATONI_TCP_OVER
};

struct batoni_tcp_node {
	struct batoni_list_node link; /* WAITING: peer->sends; OVER: tcp->over */
	struct batoni_transfer *transfer;
	enum batoni_tcp_state state;
	enum baton_status status; /* OVER */
	bool scrapped; /* a receive: its buffer is not written any more */
};

struct batoni_tcp_peer {
	struct batoni_list_node sends, readies;
	uint32_t readies_n;
	/* Of the receive from any rank: the peer has a READY of it; what it has sent for it
	 * while none was posted, or NULL. */
	bool any_out;
	unsigned char *kept;
	uint32_t kept_n;     /* bytes of it */
	uint64_t kept_bytes; /* of the message */
};

struct batoni_tcp_any {
	struct batoni_tcp_node *node; /* NULL: none was ever posted */
	int tag;
	size_t bytes; /* the same at each posting */
	int out;      /* peers that have its READY */
	int turn;     /* the rank whose kept message is tried first */
	bool came;    /* while it is taken back: a message, with `status` */
	enum baton_status status;
};

struct batoni_tcp {
	struct batoni_transport base; /* must be first */
	struct batoni_tcp_link link;
	int home;    /* a rank of the hub's process */
	int left;    /* a rank that has left, or -1 */
	bool all_left;
	char why[BATONI_SIDE_WHY_BYTES]; /* what broke it */
	bool told;   /* upcalls->broken */
	uint32_t slots_most;
	struct batoni_tcp_node *nodes; /* by slot */
	struct batoni_tcp_peer *peers; /* by rank */
	struct batoni_list_node over;
	struct batoni_tcp_any any;
	struct batoni_segments segments;
	unsigned char body[BATONI_TCP_MESSAGE_MAX];
	/* The exchange; `rounds` are those of creation that are over. */
	uint64_t rounds;
	bool brought, came;
	enum baton_status outcome;
	size_t part_bytes;
	unsigned char *all;
};

/* ---- tcp.c ---- */

/* The channel is broken, with this sentence, unless it is already. */
void batoni_tcp_break(struct batoni_tcp *tcp, const char *why);
/* Tell the engine that it is broken, once. */
void batoni_tcp_tell(struct batoni_tcp *tcp);
/* Queue a frame; no memory breaks the channel. */
void batoni_tcp_post(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame,
                     const void *bytes);
/* Write and read what goes now; returns how many frames came. */
size_t batoni_tcp_pump(struct batoni_tcp *tcp);
/* An exchange of the creation, as a bootstrap's, but without a sentence. */
enum baton_status batoni_tcp_exchange_in_rounds(struct batoni_tcp *tcp, const void *mine,
                                                size_t bytes, const void **all_p);

/* ---- bootstrap.c ---- */

struct batoni_tcp *batoni_tcp_of(struct batoni_bootstrap *bootstrap);
/* The transport is open, and its owner closes it; until then the bootstrap tells what broke it. */
void batoni_tcp_hand_over(struct batoni_bootstrap *bootstrap);

/* ---- message.c ---- */

extern const struct batoni_path_ops batoni_tcp_messages_ops;
/* A frame of a message has come. */
void batoni_tcp_hear(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame);
/* Free what peers have posted and nothing has met. */
void batoni_tcp_forget(struct batoni_tcp *tcp);

#endif
