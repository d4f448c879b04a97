/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checked mode, and lists in plain mode, as their own files see them; the note at the top of nccl_checked.c has its rules.
 *
 * nccl_checked.c: the path, creation.  nccl_meet.c: what meets, what peers say.  nccl_lists.c:
 * lists of tensors.  nccl_launch.c: when NCCL is called, and what has ended.  nccl_control.c: how
 * the ranks tell each other.
 */
#ifndef BATONI_NCCL_CHECKED_H
#define BATONI_NCCL_CHECKED_H

#include <assert.h>

#include "list.h"
#include "nccl_transport.h"

/* How many headers to one peer may be without its answer. */
#define BATONI_NCCL_AHEAD 16u
/* How many launches of a lane this rank may lead before the other rank has acknowledged them. */
#define BATONI_NCCL_LED 8u
/* How many pieces of a list's header are asked for at a time, and how long each is. */
#define BATONI_NCCL_PIECES 32u
#define BATONI_NCCL_PIECE_BYTES 24u
/* Control messages to one peer that wait to be sent: for each header itself, its withdrawal and the
 * answer to one of the peer's (or, before that, FETCH); what this rank leads as a source; an
 * acknowledgement for each of two lanes; and pieces. */
#define BATONI_NCCL_CONTROLS                                                   \
	(3 * BATONI_NCCL_AHEAD + BATONI_NCCL_LED + 2 + BATONI_NCCL_PIECES)
/* Messages of a list in one group: NCCL takes 2048 operations, and one to oneself is two. */
#define BATONI_NCCL_GROUP 512u

enum batoni_nccl_says {
	/* Said by the source of a message. */
	BATONI_NCCL_SAYS_HEADER = 1, /* what it sends */
	BATONI_NCCL_SAYS_WITHDRAW,   /* the send has ended */
	/* Said by the target: each of these answers a header; so does GO, if the target leads. */
	BATONI_NCCL_SAYS_AGREED,    /* with its receive, `other`; the source leads */
	BATONI_NCCL_SAYS_MISMATCH,  /* what its receive takes */
	BATONI_NCCL_SAYS_WITHDRAWN, /* no receive has met it, and none will */
	/* Said by the rank that leads: it has launched the message of the other rank's `slot`. */
	BATONI_NCCL_SAYS_GO,
	/* Said by the other rank: it has launched `count` more messages of the lane `slot`. */
	BATONI_NCCL_SAYS_LAUNCHED,
	/* Said by the target: the receive `other` asks for `count` pieces of the list's header,
	 * from the byte `bytes` on.  The source then says one of these pieces, for the receive
	 * `slot`. */
	BATONI_NCCL_SAYS_FETCH,
	BATONI_NCCL_SAYS_PIECE,
	/* Said by the target, as an answer: it needs nothing of the message, and the send ends in
	 * OK. */
	BATONI_NCCL_SAYS_TAKEN,
};

struct batoni_nccl_control {
	uint8_t kind;      /* enum batoni_nccl_says */
	uint8_t operation; /* BATON_OPERATION_*, of the rank that says it */
	uint8_t type;      /* enum baton_datatype */
	uint8_t used;      /* PIECE: bytes of it */
	uint32_t slot;     /* of the send that it is about, unless said */
	union {
		struct {
			uint32_t other, count;
			uint64_t bytes;
			/* HEADER, of a list: the bytes of its own header; else 0. */
			uint64_t described;
		};
		unsigned char piece[BATONI_NCCL_PIECE_BYTES];
	};
};

static_assert(sizeof(struct batoni_nccl_control) == 32, "the wire format");

/* A transfer of the lower transport. */
struct batoni_nccl_part {
	struct batoni_transfer transfer;
	struct batoni_list_node link; /* of checked->ended */
	enum baton_status status;     /* while it is in that list */
	bool lower; /* the lower transport has it, or it is in that list */
	bool asked; /* to give it back */
};

/* The way to and from one peer. */
struct batoni_nccl_wire {
	struct batoni_nccl_part in, out;
	struct batoni_list_node unsent; /* of checked->unsent */
	unsigned said_n;  /* in said[filling]; the other one is being sent */
	unsigned filling; /* 0, 1 */
	struct batoni_nccl_control arriving[BATONI_NCCL_CONTROLS];
	struct batoni_nccl_control said[2][BATONI_NCCL_CONTROLS];
};

/* A header of a peer that no receive has met. */
struct batoni_nccl_header {
	struct batoni_nccl_control control;
	bool withdrawn; /* its send has ended, and its buffer is lent until it is answered */
};

struct batoni_nccl_peer {
	/* In the order of issue: sends whose header is not said, receives that have met
	 * none.  To this rank itself: sends that have met no receive. */
	struct batoni_list_node sends, receives;
	/* Receives that have met a list whose header has not all come: of the first one it is
	 * asked for. */
	struct batoni_list_node fetches;
	struct batoni_nccl_header headers[BATONI_NCCL_AHEAD]; /* in their order */
	unsigned headers_n;
	unsigned told; /* headers of this rank that the peer has not answered */
};

enum batoni_nccl_op_state {
	BATONI_NCCL_WAITING,   /* a send: too many headers are not answered */
	BATONI_NCCL_TOLD,      /* a send: its header is said */
	BATONI_NCCL_POSTED,    /* a receive, or a send to oneself: has not met */
	BATONI_NCCL_FETCHING,  /* a receive: it has met a list, whose header is to come */
	BATONI_NCCL_MET,       /* a receive: the source is to launch first */
	BATONI_NCCL_READY,     /* is to be launched: of lane->ready */
	BATONI_NCCL_LAUNCHING, /* NCCL puts it on the stream */
	BATONI_NCCL_RUNNING    /* it is there: of lane->running */
};

enum batoni_nccl_difference {
	BATONI_NCCL_SAME,
	BATONI_NCCL_DIFFERS,   /* the two sides */
	BATONI_NCCL_BOTH_SEND, /* when this send ended the peer waited with one, too */
};

/* One of the engine's transfers, by its slot. */
struct batoni_nccl_op {
	struct batoni_transfer *transfer; /* NULL: free */
	struct batoni_list_node link;
	enum batoni_nccl_op_state state;
	int type;
	uint32_t other;       /* the slot of what it has met, at the peer */
	bool leads;           /* READY: it is launched before the other end */
	struct batoni_nccl_op *partner; /* of a message to oneself: the receive has the send */
	struct batoni_mark mark;        /* RUNNING: behind it on the lane's stream */
	/* FETCHING: the list's header; bytes that are wanted of it, that have come, that were
	 * asked for; and the bytes of the payload. */
	size_t described, wanted, fetched, asked, payload;
	struct batoni_tensor_list_cursor next; /* LAUNCHING, of a list: where the next group begins */
	bool withdrawn; /* a send: it was told, and the engine has ended it (lent) */
	/* What `explain` tells: written before the transfer has ended for the engine; threads of
	 * the program read it from then on. */
	enum batoni_nccl_difference difference;
	int their_type;
	size_t their_bytes;
};

struct batoni_nccl_check_lane {
	struct batoni_list_node ready, running; /* in their order */
	unsigned running_n;
	/* Launches that this rank has led, all with one other, which has not acknowledged
	 * them. */
	unsigned unacknowledged;
	int led;
};

struct batoni_nccl_checked {
	struct batoni_nccl *nccl;
	struct batoni_path *path; /* messages, or lists */
	/* NCCL's lanes of it: those of messages, or the one for lists. */
	struct batoni_nccl_lane *nccls;
	unsigned lanes_n;
	uint32_t slots;
	struct batoni_nccl_op *ops;            /* by slot */
	struct batoni_nccl_peer *peers;        /* by rank */
	struct batoni_nccl_wire *wires;        /* by rank */
	struct batoni_nccl_check_lane *lanes;  /* by lane */
	struct batoni_list_node ended;  /* parts that the lower transport has ended */
	struct batoni_list_node unsent; /* wires that may send, and have something */
	uint32_t begun;   /* transfers, not ended */
	uint32_t sending; /* wires that the lower transport has a send of */
	uint32_t posted;  /* the same of a receive */
	uint32_t running; /* marks to be asked for */
	uint32_t withdrawn; /* headers */
	unsigned turn;    /* the lane that is tried first */
	/* NCCL has it, or has refused it: of `launching_on`.  NULL: none. */
	struct batoni_nccl_op *launching;
	unsigned launching_on;
	uint64_t launching_limit_ns;
	bool listens;     /* receives are posted */
	/* All ranks have left: the wires are taken down.  Any thread reads it. */
	_Atomic bool takes_back;
	bool failed, told; /* `fatal` is to be told to the engine; it was */
	bool dropped;     /* after an abort: what was not launched has ended */
	enum baton_status fatal;
	const char *fatal_call;
	int fatal_code;
	char fatal_text[256];
	struct batoni_nccl_checked *leaked; /* the one that was leaked before */
};

static inline struct batoni_nccl_op *
batoni_nccl_to_op(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct batoni_nccl_op, link);
}

static inline bool
batoni_nccl_sends(const struct batoni_nccl_op *op)
{
	return op->transfer->direction == BATONI_SEND;
}

static inline bool
batoni_nccl_is_to_itself(const struct batoni_nccl_checked *checked,
                         const struct batoni_nccl_op *op)
{
	return op->transfer->peer == checked->nccl->base.rank;
}

/* ---- nccl_checked.c ---- */

/* The communicator cannot go on.  The first failure counts. */
void batoni_nccl_fail(struct batoni_nccl_checked *checked, enum baton_status status,
                      const char *call, int code, const char *text);
/* Free the slot, and tell the engine of the end. */
void batoni_nccl_op_let_go(struct batoni_nccl_checked *checked,
                           struct batoni_nccl_op *op);
void batoni_nccl_op_end(struct batoni_nccl_checked *checked,
                        struct batoni_nccl_op *op, enum baton_status status);

/* ---- nccl_meet.c ---- */

/* Begin a new operation.  PENDING; or MISMATCH, in which it is to end. */
enum baton_status batoni_nccl_begin(struct batoni_nccl_checked *checked,
                                    struct batoni_nccl_op *op);
/* A peer has said it. */
void batoni_nccl_heard(struct batoni_nccl_checked *checked, int peer,
                       const struct batoni_nccl_control *control);
/* Tell the peer of the sends that wait, as many as may be. */
void batoni_nccl_tell_waiting(struct batoni_nccl_checked *checked,
                              struct batoni_nccl_peer *peer);
/* Headers whose sends have ended are answered: this rank leaves. */
void batoni_nccl_answer_withdrawn(struct batoni_nccl_checked *checked, int rank);
/* The control message about the operation. */
struct batoni_nccl_control
batoni_nccl_describe_op(const struct batoni_nccl_op *op,
                        enum batoni_nccl_says kind, uint32_t slot);
/* What `explain` tells. */
void batoni_nccl_differ(struct batoni_nccl_op *op, enum batoni_nccl_difference what,
                        int type, size_t bytes);
/* The receive and the send in this slot of its peer agree, and are to be launched. */
void batoni_nccl_agree(struct batoni_nccl_checked *checked,
                       struct batoni_nccl_op *op, uint32_t slot);

/* ---- nccl_lists.c ---- */

/* The receive and the header have met, and one of them at least is a list.  PENDING; MISMATCH, in
 * which the receive is to end. */
enum baton_status
batoni_nccl_meet_list(struct batoni_nccl_checked *checked,
                      struct batoni_nccl_op *op,
                      const struct batoni_nccl_control *header);
/* The same where both ends are this rank's.  True: they are to be launched together.  False: the
 * send is to end in OK, and the receive in *status_p. */
bool batoni_nccl_meets_itself(struct batoni_nccl_op *send,
                              struct batoni_nccl_op *receive,
                              enum baton_status *status_p);
/* A peer has said it, of this operation; false: that cannot be. */
bool batoni_nccl_heard_fetch(struct batoni_nccl_checked *checked,
                             const struct batoni_nccl_op *op,
                             const struct batoni_nccl_control *control);
bool batoni_nccl_heard_piece(struct batoni_nccl_checked *checked,
                             struct batoni_nccl_op *op,
                             const struct batoni_nccl_control *control);
/* Bytes of the message, once it has met. */
size_t batoni_nccl_payload(const struct batoni_transfer *transfer);

/* ---- nccl_launch.c ---- */

/* Does this rank launch it before the other one does? */
bool batoni_nccl_leads(const struct batoni_nccl_checked *checked,
                       const struct batoni_nccl_op *op);
/* Queue the operation: it is launched when its turn comes. */
void batoni_nccl_make_ready(struct batoni_nccl_checked *checked,
                            struct batoni_nccl_op *op);
bool batoni_nccl_any_may_launch(const struct batoni_nccl_checked *checked);
/* Launch what may be launched, if the lock of the device is free.  Returns the events. */
size_t batoni_nccl_launch_all(struct batoni_nccl_checked *checked);
/* Poll for kernels that have ended.  Returns the events. */
size_t batoni_nccl_watch_all(struct batoni_nccl_checked *checked);

/* ---- nccl_control.c ---- */

void batoni_nccl_wires_init(struct batoni_nccl_checked *checked);
/* Queue a control message: it leaves with the next batoni_nccl_send_all. */
void batoni_nccl_say(struct batoni_nccl_checked *checked, int peer,
                     const struct batoni_nccl_control *control);
/* Does a control message of this kind wait to leave? */
bool batoni_nccl_waits_to_say(const struct batoni_nccl_checked *checked, int peer,
                              enum batoni_nccl_says kind);
/* Take back a control message that waits.  False: it has left. */
bool batoni_nccl_unsay(struct batoni_nccl_checked *checked, int peer,
                       enum batoni_nccl_says kind, uint32_t slot);
void batoni_nccl_send_all(struct batoni_nccl_checked *checked);
/* Poll the lower transport, and receive what has come.  Returns the events. */
size_t batoni_nccl_hear(struct batoni_nccl_checked *checked);
/* Nothing more will be sent.  True: the lower transport has nothing of this one any more. */
bool batoni_nccl_wires_end(struct batoni_nccl_checked *checked);
/* For the lower transport: the part has ended. */
void batoni_nccl_part_done(struct batoni_nccl_checked *checked,
                           struct batoni_transfer *transfer,
                           enum baton_status status);

#endif
