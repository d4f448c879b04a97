/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging, as its own files see it.
 *
 * open.c     memory, starting, closing, and what is passed through
 * message.c  the protocol; ends, parts at the lower transport, failures, events
 * stage_path.c  issue, test, take_back, scrap
 * stage_send.c, stage_recv.c  the two sides of a message
 * chunk.c    pinned memory, copies, and whose turn it is
 * lists.c    messages that are lists of tensors
 * mapped.c   messages by one copy, out of memory of another process
 * stage_blocks.c  that memory, and what is offered of this one's
 * stage_header.c  what is read from a peer
 *
 * Everything here belongs to the thread that drives the engine, except open.c's create
 * and discard.
 */
#ifndef BATONI_STAGE_H
#define BATONI_STAGE_H

#include <assert.h>

#include "list.h"
#include "stage_header.h"

enum { SENDS = BATONI_SEND, RECVS = BATONI_RECV, DIRECTIONS };
enum { CHUNKS, EAGERS, COPIES, KINDS };

struct stage_block;
struct stage_maps;
struct stage_message;

/* A transfer of a lower path. */
struct stage_part {
	struct batoni_transfer transfer;
	struct batoni_list_node link; /* of stage->ended */
	enum baton_status status;     /* while it is in that list */
	/* The lower path that has the part, or had it until the part was put in stage->ended; or
	 * NULL. */
	struct batoni_path *lower;
	bool asked; /* the lower transport: it could not be taken back */
};

/* Between a list of tensors and a pinned buffer: where the next byte lies in both, and how many
 * are left. */
struct stage_cursor {
	struct batoni_tensor_list_cursor list;
	unsigned char *at;
	size_t left;
};

/* A pinned buffer: a chunk with a receive or send at the lower transport, or an eager buffer, which
 * travels in the place of its message.  Or, without a buffer, the copy of a receive out of memory
 * that is mapped. */
struct stage_token {
	struct batoni_list_node link;    /* free, or of a send's pieces in their order */
	/* Of stage->waiting, stage->copies, or `packed` of another token. */
	struct batoni_list_node copying;
	struct stage_part part;
	struct stage_message *message;
	unsigned char *memory;
	/* The copy, and the ticket if it is in stage->copies.  That is the ticket of those
	 * in `packed` too, which were started with it. */
	struct batoni_copy copy;
	struct batoni_ticket ticket;
	struct batoni_list_node packed;
	/* A piece: where its bytes travel, how many, and of a send whether they are there. */
	void *content;
	size_t bytes;
	bool ready;
	uint8_t direction, kind;
	/* Of a list: what is still to be copied; nothing is left of a plain message's.  first: of
	 * a piece, its offset among the bytes that go in pieces. */
	struct stage_cursor cursor;
	size_t first;
};

enum stage_state {
	STAGE_FREE,
	STAGE_LINE,   /* a send: in the order of its tag, its bytes may be copied */
	STAGE_EAGER,  /* a send: the lower transport has it; a receive: it has come */
	STAGE_ASKED,  /* a send: waits for its first grant */
	STAGE_FIRST,  /* a receive: not matched */
	STAGE_HELD,   /* what a probe has found: its first message is here, and has met no receive */
	STAGE_PIECES, /* in pieces */
	STAGE_DIRECT, /* as one message, from host memory to host memory */
	STAGE_MAPPED, /* a receive: by one copy out of memory that is mapped */
	STAGE_DROPPED /* the receive is too short */
};

/* One side of a message: a transfer of the engine, by its slot. */
struct stage_message {
	struct batoni_transfer *transfer; /* NULL: free */
	enum stage_state state;
	/* It is decided how the message ends: in `outcome`, once no part of it is under way. */
	bool over;
	enum baton_status outcome;
	bool host;    /* the buffer is host memory */
	bool moves;   /* counted in stage->moving */
	bool failed;  /* what the lower transport has may never end */
	bool probed;  /* the transfer is no receive: a probe has found the message, which is on its way (hold.c) */
	bool lost;    /* that has failed on its way: the next hold says so */
	struct batoni_path *lower; /* the path of its parts: that of its peer */
	bool ready;   /* STAGE_LINE: it may be sent */
	uint32_t parts, copies; /* of it, under way, or waiting to be started */
	struct stage_part first, control;
	struct stage_token *eager;
	struct batoni_list_node turn;   /* of one of the queues of chunk.c */
	struct batoni_list_node tell;   /* of stage->telling */
	struct batoni_list_node line;   /* STAGE_LINE: a ring, in the order of sending */
	struct batoni_list_node fronts; /* the front of a line: of stage->lines */
	struct batoni_list_node pieces_ready; /* a send's tokens, in order */
	int peer;
	uint32_t remote; /* the peer's slot */
	/* Of the program's bytes; of those that go in pieces; of a piece. */
	size_t length, stream, piece;
	/* limit: of a receive, how many it may begin now. */
	uint64_t pieces, limit;
	/* granted: of a send, by the peer.  begun: pieces that have a token.  ended:
	 * pieces that are sent, or received and copied.  told: of a receive, in grants. */
	uint64_t granted, begun, ended, told;
	struct stage_header header; /* of a send that asks */
	struct stage_grant grant;   /* received, or being sent */
	/* ---- mapped.c ---- */
	bool offered;               /* a send: its header has an offer */
	uint64_t tells;             /* peer->told_gone, when it is answered */
	struct stage_block *mapped; /* a receive: what it copies out of, or NULL; */
	const char *source;         /* from here */
	/* ---- lists.c ---- */
	struct batoni_tensor_list *list; /* NULL: the transfer is a plain one */
	/* Of the list's header, what is behind the first message, and what of that has not
	 * come. */
	size_t rest, rest_left;
	bool at_once;   /* a send: all of it is in the first message */
	bool refusing;  /* a receive has not agreed, and has to say so: */
	enum baton_status verdict;
	struct batoni_tensor_list_cursor cursor; /* of the next piece's payload */
	struct stage_token *held; /* has payload, and the list's header is not there */
};

/* The share of the chunks that the messages of one direction with one peer have. */
struct stage_share {
	uint32_t held;
	/* Messages that want a chunk and may not have one now. */
	struct batoni_list_node parked;
	struct batoni_list_node crowd; /* of stage->crowd: some are parked */
};

struct stage_peer {
	struct stage_share shares[DIRECTIONS];
	uint32_t eager; /* eager buffers of sends to it */
	uint64_t told_gone; /* blocks that are no more, of which it was told (mapped.c) */
};

struct batoni_staging {
	struct batoni_transport base; /* must be first */
	/* Copies of the tables of operations, with the names of the lower transport. */
	struct batoni_transport_ops ops;
	struct batoni_path_ops messages_ops;
	struct batoni_transport *lower;
	/* Another lower path, for the messages of the peers that it serves; NULL: there is none. */
	struct batoni_path *beside;
	struct batoni_upcalls lower_upcalls;
	struct batoni_device *device;
	const struct batoni_memory_ops *memory;
	struct batoni_staging_config config;
	int size;
	bool check; /* checked mode */
	uint32_t slots, slots_most;
	int grant_tag, body_tag; /* and one more for each slot */
	struct stage_message *messages; /* by slot */
	unsigned char *bounces;         /* by slot: a header, an eager message */
	struct stage_token *tokens; /* chunks of sends, of receives; eager ones likewise */
	unsigned char *pinned;
	struct stage_peer *peers;
	struct batoni_list_node free[DIRECTIONS][KINDS];
	/* Messages that want a chunk; receives that want an eager buffer; or a copy. */
	struct batoni_list_node wanting[DIRECTIONS];
	struct batoni_list_node eager_wanting, copy_wanting;
	struct stage_maps *maps; /* NULL: nothing is mapped */
	struct batoni_list_node crowd[DIRECTIONS]; /* shares with parked messages */
	uint32_t held[DIRECTIONS];    /* chunks in use */
	uint32_t holders[DIRECTIONS]; /* peers that have some */
	struct batoni_list_node waiting; /* tokens whose copies are to be started */
	struct batoni_list_node copies;  /* those that were; of several, the first */
	struct batoni_list_node listed;  /* tokens of lists that have more to copy */
	bool collected; /* `waiting` has some that were not tried */
	struct batoni_list_node ended;   /* parts */
	struct batoni_list_node telling; /* receives that have chunks to grant */
	struct batoni_list_node lines;
	uint32_t begun, moving; /* messages: not ended, and of these */
	uint32_t expects; /* receives from any rank that wait */
	bool asked_second; /* of the lower paths, the transport's was asked first for their messages */
	/* The slot function that runs: its message, and how that ended. */
	struct stage_message *caller;
	enum baton_status caller_status;
	/* The status in which staging broke, until the engine has been told. */
	enum baton_status fatal;
	struct batoni_fault fault;
	struct batoni_staging *leaked; /* the one that was leaked before */
};

/* A copy of the message's is under way, or has been collected; or is no more. */
static inline void
batoni_stage_copy_begins(struct batoni_staging *stage,
                         struct stage_message *message)
{
	struct batoni_upcalls *upcalls = stage->base.upcalls;

	if (message->copies++ == 0 && upcalls->copying && message->transfer)
		upcalls->copying(upcalls, message->transfer, true);
}

static inline void
batoni_stage_copy_ends(struct batoni_staging *stage,
                       struct stage_message *message)
{
	struct batoni_upcalls *upcalls = stage->base.upcalls;

	if (--message->copies == 0 && upcalls->copying && message->transfer)
		upcalls->copying(upcalls, message->transfer, false);
}

static inline size_t
stage_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The longest piece of a message, as far as this rank's side goes. */
static inline uint64_t
stage_piece_max(const struct batoni_staging *stage, bool host)
{
	if (!host)
		return stage->config.chunk_bytes;
	return stage->config.whole_max ? stage->config.whole_max : UINT64_MAX;
}

/* Checked mode: does a plain message on this tag have a type?  Those of the one-sided layer, which are
 * on hidden tags, have none. */
static inline bool
stage_has_type(const struct batoni_staging *stage, int tag)
{
	return stage->check && tag <= stage->base.tag_max;
}

static inline void
stage_set_moves(struct batoni_staging *stage, struct stage_message *message,
                bool moves)
{
	stage->moving += moves;
	stage->moving -= message->moves;
	message->moves = moves;
}

/* ---- stage_path.c ---- */

struct batoni_staging *batoni_stage_of(struct batoni_path *path);
/* The message of a transfer begins. */
void batoni_stage_begin(struct batoni_staging *stage,
                        struct stage_message *message,
                        struct batoni_transfer *transfer);
/* The end of a slot function about this message: how it ended, or PENDING. */
enum baton_status batoni_stage_leave(struct batoni_staging *stage,
                                     const struct stage_message *message);
/* Set the path of the messages, over the lower ones. */
void batoni_stage_messages(struct batoni_staging *stage);

/* ---- message.c ---- */

/* For the lower transport. */
void batoni_stage_done(struct batoni_upcalls *upcalls,
                       struct batoni_transfer *transfer,
                       enum baton_status status);
/* Hand a part to the lower transport.  Its end is an event of stage->ended. */
void batoni_stage_post(struct batoni_staging *stage, struct stage_part *part,
                       enum batoni_direction direction, void *buffer,
                       size_t bytes, int peer, int tag);
/* The message ends in this way when nothing of it is under way. */
void batoni_stage_over(struct batoni_staging *stage,
                       struct stage_message *message, enum baton_status status);
/* A copy of the message has ended; its token has been given back, if the lower transport
 * has no use for it. */
void batoni_stage_copied(struct batoni_staging *stage, struct stage_token *token);
/* What came is not what this version says.  `what` came: "a message's header". */
void batoni_stage_refuse(struct batoni_staging *stage,
                         struct stage_message *message, const char *what);
/* The memory of the device has failed: break the communicator. */
void batoni_stage_fault(struct batoni_staging *stage,
                        struct stage_message *message,
                        enum baton_status status);

/* Take a part back at the lower transport: CANCELED, BUSY, or how it has ended; the first and the last are an event of
 * stage->ended. */
enum baton_status batoni_stage_take_part_back(struct batoni_staging *stage,
                                              struct stage_part *part);
/* The message fails; what the lower transport has of it in memory of the program is taken back. */
void batoni_stage_fail(struct batoni_staging *stage,
                       struct stage_message *message, const char *call,
                       int code, enum baton_status status);
/* Act on all events, and give out what has become free.  Returns the number of events. */
size_t batoni_stage_settle(struct batoni_staging *stage);
/* The end of a slot function. */
void batoni_stage_tell_engine(struct batoni_staging *stage);

/* ---- stage_send.c ---- */

void batoni_stage_begin_send(struct batoni_staging *stage,
                             struct stage_message *message);
/* Leave the line.  Returns the new front, if the message was the front; else NULL. */
struct stage_message *
batoni_stage_leave_line(struct batoni_staging *stage,
                        struct stage_message *message);
/* Send what is ready from the front on, which may be NULL. */
void batoni_stage_advance_line(struct batoni_staging *stage,
                               struct stage_message *front);
/* A part of a send, no piece, has ended in OK. */
void batoni_stage_send_part_over(struct batoni_staging *stage,
                                 struct stage_message *message,
                                 const struct stage_part *part);

/* ---- stage_recv.c ---- */

void batoni_stage_begin_recv(struct batoni_staging *stage,
                             struct stage_message *message);
/* Answer, on the tag of the send's slot. */
void batoni_stage_grant(struct batoni_staging *stage,
                        struct stage_message *message, uint32_t kind);
/* Grant the pieces whose chunks were posted. */
void batoni_stage_tell_grants(struct batoni_staging *stage);
/* The receive takes no byte: tell the sender, if it asks, and end. */
void batoni_stage_decline(struct batoni_staging *stage,
                          struct stage_message *message, bool asks,
                          enum baton_status status);
/* A part of a receive, no piece, has ended in OK. */
void batoni_stage_recv_part_over(struct batoni_staging *stage,
                                 struct stage_message *message,
                                 const struct stage_part *part);

/* The header has come, of a message that this receive has met. */
void batoni_stage_matched(struct batoni_staging *stage,
                          struct stage_message *message);
/* False: what has come is no header of a message. */
bool batoni_stage_decode(const struct batoni_staging *stage,
                         const struct stage_message *message,
                         struct stage_header *header);

/* ---- hold.c ---- */

/* What probes find, by their message; begin: sets up the message of a transfer, leave: ends a slot function
 * (stage_path.c). */
enum baton_status batoni_stage_hold(struct batoni_path *path,
                                    struct batoni_transfer *receive,
                                    struct batoni_held *held_p);
enum baton_status batoni_stage_meet(struct batoni_path *path,
                                    struct batoni_transfer *receive,
                                    struct batoni_transfer *held);

/* ---- chunk.c ---- */

/* A free token for the message, or NULL: there is none, or the peer has its share of
 * eager buffers. */
struct stage_token *batoni_stage_take(struct batoni_staging *stage,
                                      struct stage_message *message,
                                      unsigned direction, unsigned kind);
void batoni_stage_give(struct batoni_staging *stage, struct stage_token *token);
/* Copy for the token's message; batoni_stage_copied follows, unless the message is over
 * before the copy is started. */
void batoni_stage_copy(struct batoni_staging *stage, struct stage_token *token,
                       void *to, const void *from, size_t bytes);
/* Start the copies that wait, as far as the device takes them, and copy up to `most` bytes of
 * lists by the host. */
void batoni_stage_start(struct batoni_staging *stage, size_t most);
/* A copy that was started is not: what was to be copied will not be. */
void batoni_stage_copy_failed(struct batoni_staging *stage,
                              struct stage_token *token,
                              enum baton_status status);
/* The message is over: forget those of its copies that were not started. */
void batoni_stage_drop(struct batoni_staging *stage,
                       struct stage_message *message);
/* Ask all copies under way.  Returns how many have ended. */
size_t batoni_stage_poll(struct batoni_staging *stage);
/* The message wants chunks (a receive in STAGE_EAGER: an eager buffer; in STAGE_MAPPED: its copy). */
void batoni_stage_want(struct batoni_staging *stage,
                       struct stage_message *message);
/* Give out what is free, in turn. */
void batoni_stage_hand_out(struct batoni_staging *stage);
/* The piece that the token stands for is there: send those whose turn it is. */
void batoni_stage_send_ready(struct batoni_staging *stage,
                             struct stage_message *message);
/* The lower transport has done with the piece. */
void batoni_stage_piece_done(struct batoni_staging *stage,
                             struct stage_token *token);

/* ---- stage_blocks.c ---- */

/* Room for what is mapped.  scratch: a byte of pinned memory.  OK, NOMEM. */
enum baton_status batoni_stage_maps_create(struct batoni_staging *stage,
                                           unsigned char *scratch);
/* Nothing is copied any more, or (read) copies go on that have not ended in time.  False: what is
 * under way goes on, and needs the device. */
bool batoni_stage_maps_close(struct batoni_staging *stage, bool read);
/* No message is left: unmap all.  False: ask again. */
bool batoni_stage_maps_leave(struct batoni_staging *stage);
/* Go on with what is being made.  Returns the number of events. */
size_t batoni_stage_maps_test(struct batoni_staging *stage);
/* ---- mapped.c ---- */

/* A send asks.  True: this goes behind its header. */
bool batoni_stage_offer(struct batoni_staging *stage,
                        struct stage_message *message,
                        struct stage_offer *offer);
/* The send was answered. */
void batoni_stage_told(struct batoni_staging *stage,
                       const struct stage_message *message);
/* A receive has met a message that asks, with an offer: what its sender tells. */
void batoni_stage_hear(struct batoni_staging *stage,
                       const struct stage_message *message,
                       const struct stage_offer *offer);
/* The receive takes the message.  True: it copies from message->source, and
 * has message->mapped until unmap. */
bool batoni_stage_map(struct batoni_staging *stage,
                      struct stage_message *message,
                      const struct stage_offer *offer);
void batoni_stage_unmap(struct batoni_staging *stage,
                        struct stage_message *message);
/* That copy has ended. */
void batoni_stage_mapped_copied(struct batoni_staging *stage,
                                struct stage_message *message);

/* ---- lists.c ---- */

/* A send is issued; its payload is copied to an eager buffer, if it needs one. */
void batoni_stage_list_begin(struct batoni_staging *stage,
                             struct stage_message *message);
/* The first message of a send: its buffer, which begins with the header that is there, and its
 * length. */
void *batoni_stage_list_first(struct batoni_staging *stage,
                              struct stage_message *message,
                              const struct stage_header *header,
                              size_t *bytes_p);
/* The first message of a list has come, n bytes behind its header. */
void batoni_stage_list_matched(struct batoni_staging *stage,
                               struct stage_message *message,
                               const struct stage_header *header,
                               const unsigned char *behind, size_t n);
/* A receive has got its eager buffer. */
void batoni_stage_list_eager(struct batoni_staging *stage,
                             struct stage_message *message);
/* The next piece has this token, whose first and bytes are set. */
void batoni_stage_list_piece(struct batoni_staging *stage,
                             struct stage_message *message,
                             struct stage_token *token);
/* A piece of a receive has come. */
void batoni_stage_list_came(struct batoni_staging *stage,
                            struct stage_token *token);
/* The grant before has left: say that it takes no more. */
void batoni_stage_list_refused(struct batoni_staging *stage,
                               struct stage_message *message);
/* Go on with the tokens in stage->listed. */
void batoni_stage_list_start(struct batoni_staging *stage, size_t most);

#endif
