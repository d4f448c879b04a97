/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Near: messages between ranks of one node, through memory that they share.
 *
 *   ring.[ch]   rings: cells, room, wake-ups
 *   near.c      the path: issue, test, take_back, scrap; which rings are looked at
 *   send.c      short and announced sends; those that wait for room
 *   arrive.c    what comes out of a ring: meeting receives, arrivals
 *   fetch.c     announced messages: the receiver's copy, and chunks
 *   blocks.c    memory of baton_mem_alloc, which the receiver has mapped
 *   lists.c     what lists of tensors have of their own in each of these
 *   open.c      its area, start, close
 *
 * Where all ranks are of one node and reach each other's segments, near is a transport over another one, as
 * staging is (runtime/contract/pairs.h): what the ranks do together (exchanges, leaving) the lower one
 * does, and messages are near's.  Where some are, it is a path beside the messages of that one, to those
 * peers and to itself.  Each segment has an *area* of near's (ring.h).
 *
 * A message of up to SHORT_MAX bytes goes through the ring with its bytes, copied at the call while
 * there is room and credit; its send has ended then.  Any other is *announced*: the ring gets its
 * length and address, and a word of the sender's area, by its slot, has its state:
 *
 *     WAITING -> MATCHED   the receiver, by compare-and-swap with the announcement's generation
 *     WAITING -> TAKEN     the sender: cancel, deadline.  The next message takes its place
 *     WAITING -> REVOKED   the sender: its communicator is broken or aborted.  Nothing takes its place:
 *                          it bars the receives of its tag, which end by a deadline, or with the
 *                          peer's end.  Were they to meet what is behind it in the ring, a rank that
 *                          knows nothing of the break yet would have other bytes in OK
 *     MATCHED -> COPIED    the receiver, behind its copy and before the receive ends
 *     MATCHED -> REVOKED   the sender: its communicator is broken or aborted, or the receiver is
 *                          gone; so an abort lends no send's buffer
 *
 * The receiver copies: from the address itself where the sender is in this process; from its
 * own mapping of the sender's block where the message lies in one (block.h); else by
 * process_vm_readv.  Where the kernel does not let it, the sender sends CHUNKs through the ring, which
 * the receiver asks for (GRANT).  No process writes into memory of another one but into areas.
 * A receive that copies ends in OK only if MATCHED -> COPIED succeeds: a sender that gives its
 * buffer up makes the receive end in PEER, never in OK with other bytes.  By chunks the send ends
 * in OK when the last one is in the ring, and the receive when it has taken that out.
 *
 * Order is that of the ring: one for all tags of a pair and direction.  Sends that find no room wait in
 * a list of the pair, and others go behind them.  The receiver takes everything out of a ring,
 * whatever is matched: what meets no receive is an *arrival*, kept with its bytes, for which
 * the sender has credit.  So no tag holds up another one.
 *
 * Load.  An operation that only a peer ends counts as parked: the peer's driver calls (ring.h) when it has
 * published.  One that copies counts as moving.  A ring that a pass has not emptied has its bit set
 * again by this rank.
 *
 * Everything that is read from an area or from a sender is copied once, then checked; what cannot be
 * breaks the communicator, but for what was read of a sender that has given it up.
 *
 * Threads: the driver alone; `connect` any.  No locks.
 */
#ifndef BATONI_NEAR_H
#define BATONI_NEAR_H

#include <assert.h>

#include "block.h"
#include "list.h"
#include "match.h"
#include "pairs.h"
#include "ring.h"
#include "transport.h"

#define NEAR_SHORT_MAX BATONI_RING_WHOLE_MAX
/* The longest chunk: the ring has room for three. */
#define NEAR_CHUNK_MAX ((size_t)4096)
/* How many bytes are copied within a call, and in a pass. */
#define NEAR_INLINE_MAX ((size_t)16 << 10)
#define NEAR_PASS_MAX ((size_t)1 << 20)
/* How many rings are warm at most; how many messages are taken from one ring in a pass. */
#define NEAR_WARM_MAX 8
#define NEAR_TAKE_MAX 64

/* The low byte of a state; the generation is above it. */
enum near_word { NEAR_FREE, NEAR_WAITING, NEAR_MATCHED, NEAR_COPIED, NEAR_TAKEN, NEAR_REVOKED };

static inline uint64_t
batoni_near_word(uint32_t generation, enum near_word word)
{
	return (uint64_t)generation << 8 | word;
}

/* False: the state was another one, or that of another announcement. */
static inline bool
batoni_near_exchange(_Atomic uint64_t *state, uint32_t generation, enum near_word was,
                     enum near_word is)
{
	uint64_t word = batoni_near_word(generation, was);

	return atomic_compare_exchange_strong(state, &word,
	                                      batoni_near_word(generation, is));
}

enum near_state {
	NEAR_IDLE,
	/* sends */
	NEAR_STARVED,   /* not announced: in peer->starved */
	NEAR_ANNOUNCED,
	NEAR_CHUNKING,  /* sends chunks: in near->copies, or, without room, in peer->starved */
	/* receives */
	NEAR_POSTED,    /* in near->match */
	NEAR_BARRED,    /* behind what its sender gave up at its end: meets nothing */
	NEAR_FETCHING,  /* copies: in near->copies */
	NEAR_GRANTING,  /* has to say GRANT: in peer->starved */
	NEAR_CHUNKED    /* waits for chunks */
};

/* What near->match has: a receive, or an arrival. */
struct near_end {
	struct batoni_match_node match;
	bool is_arrival;
};

/* An announced message, by its source. */
struct near_announcement {
	uint32_t slot, generation;
	uint64_t address; /* of the bytes; of a list: of its header */
	/* Of a list; else 0. */
	uint32_t header_bytes, count;
	uint64_t segments; /* the address of so many struct batoni_segment */
	/* In which the bytes lie, or tensors of the list; no serial: the ring has nothing of it. */
	struct batoni_shm_block_name block;
};

static_assert(sizeof(struct near_announcement) ==
                      BATONI_RING_FIRST +
                              (BATONI_RING_BLOCK_CELLS - 1) * BATONI_RING_CELL,
              "all of it, in BATONI_RING_BLOCK_CELLS");

/* How many of its bytes are in the ring, from the first on. */
static inline size_t
batoni_near_announced_bytes(const struct batoni_ring_head *head)
{
	if (head->cells == BATONI_RING_BLOCK_CELLS)
		return sizeof(struct near_announcement);
	return head->cells == 1 ? BATONI_RING_FIRST
	                        : offsetof(struct near_announcement, block);
}

/* The state of a transfer, by its slot. */
struct near_node {
	struct near_end end; /* must be first: POSTED */
	enum near_state state;
	bool moving;   /* it counts in load.moving, else in load.parked */
	bool scrapped; /* its buffer is not written any more */
	bool asked;    /* take_back has left it in progress: it may be lent */
	bool by_kernel; /* some of what it has copied was read by the kernel */
	uint32_t generation; /* of its announcement, or of its chunks */
	struct batoni_transfer *transfer;
	struct batoni_list_node link; /* near->copies or peer->starved */
	/* The other end, once it is known, and its rank.  FETCHING, GRANTING, CHUNKED: the send.
	 * CHUNKING: slot and generation of the receive. */
	int peer;
	struct near_announcement what;
	/* The bytes to move, and those that were; by chunks, a list's header is among them. */
	uint64_t length, moved;
	struct batoni_tensor_list_cursor cursor; /* of a list: where its payload goes on */
	enum baton_status verdict; /* how it ends; PENDING: the header of a list is to come */
	/* IDLE: what a probe has found, for the receive that will meet it; or NULL. */
	struct near_arrival *held;
};

/* A message that has met no receive. */
struct near_arrival {
	struct near_end end; /* must be first */
	int from;
	struct batoni_ring_head head;
	/* ANNOUNCE: its node in near->announced, by source and slot. */
	struct batoni_hash_node by_slot;
	struct near_announcement what;
	bool matched; /* ANNOUNCE: it is this rank's, before its receive is issued */
	bool bars;    /* it can no longer be met, and nor can what is behind it on its tag */
	unsigned size_class; /* of its memory */
	struct near_arrival *next_free;
	struct batoni_list_node all; /* near->arrivals */
	struct batoni_list_node link; /* its peer's `arrived` */
	unsigned char bytes[];
};

#define NEAR_CLASSES 4

struct near_peer {
	struct batoni_ring_out out;
	struct batoni_ring_in in;
	char *area; /* of the peer, as mapped here; NULL: it is not near */
	/* The pages of both rings are there.  Any thread, atomic: several may make them at once. */
	_Atomic bool connected;
	bool emptied; /* when it was gone, its ring was looked at once more */
	bool unread;    /* the kernel does not let this process read that one's memory */
	bool named_blocks; /* it was told of blocks, */
	bool gone_due;     /* and is to be told that they are gone */
	struct batoni_list_node starved; /* nodes that wait for room in `out`, in order */
	struct batoni_list_node arrived; /* its arrivals, in order */
};

struct batoni_pairs {
	/* Must be first.  Of a path beside another transport's messages the path alone, the ranks and
	 * their peers. */
	struct batoni_transport base;
	struct batoni_transport_ops ops;
	struct batoni_transport *lower; /* NULL: it is beside that one's messages */
	struct batoni_upcalls lower_upcalls;
	struct batoni_ring_layout layout;
	char *area; /* this rank's */
	size_t words; /* of its bits */
	uint32_t slots_most; /* of all ranks */
	bool check;
	_Atomic bool states_there; /* the pages of this rank's states; as `connected` */
	bool broken;      /* nothing moves any more */
	bool lower_broke; /* the engine was told; if not broken, the next test takes what is in the rings */
	bool testing; /* the lower transport, within a test of this one */
	unsigned tests;
	uint32_t asked; /* nodes that are */
	size_t budget; /* bytes of copying that this call, or pass, may still do */
	struct near_node *nodes; /* by slot */
	struct near_peer *peers; /* by rank */
	struct batoni_match match;
	struct batoni_hash announced;
	struct batoni_list_node copies;
	/* The receive that is being issued, and how it has ended: its issue returns that. */
	struct near_node *issuing;
	enum baton_status issued;
	uint32_t expects; /* receives from any rank or of any tag that wait */
	int any_turn; /* the rank whose arrivals are looked for first, for receives from any */
	int warm[NEAR_WARM_MAX]; /* ranks, the one that was warmed first at turn */
	unsigned warm_n, turn;
	unsigned char *scratch; /* BATONI_TENSORS_HEADER_MAX bytes */
	struct near_arrival *free[NEAR_CLASSES];
	struct batoni_list_node arrivals; /* all there are, free or not */
	/* The rank whose process was seen alive behind all that the kernel has read; or -1. */
	int alive;
	/* blocks.c */
	struct batoni_list_node mappings;
	unsigned mappings_n;
	uint64_t mapping_uses;
	struct batoni_shm_block_observer observer;
	bool observes;
};

static inline struct batoni_pairs *
batoni_near_of(struct batoni_path *path)
{
	return (struct batoni_pairs *)(void *)batoni_transport_of(path);
}

static inline struct near_node *
batoni_near_node(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct near_node, link);
}

/* The key of the receives of a tag from one source; on the last hidden tag, from any. */
static inline uint64_t
batoni_near_key(const struct batoni_pairs *near, int from, uint32_t tag)
{
	bool any = near->base.hidden_tags &&
	           tag == (uint32_t)(near->base.hidden_tag - 1 +
	                             near->base.hidden_tags);

	return (uint64_t)(any ? UINT32_MAX : (uint32_t)from) << 32 | tag;
}

/* ---- near.c ---- */

/* The path over another transport, and the one beside its messages. */
extern const struct batoni_path_ops batoni_near_messages_ops;
extern const struct batoni_path_ops batoni_near_beside_ops;

/* What a peer has written contradicts the rules of near: the communicator breaks. */
void batoni_near_break(struct batoni_pairs *near, int peer, const char *what);
/* The slow part of batoni_near_connect. */
enum baton_status batoni_near_make_pages(struct batoni_pairs *near, int peer);
/* The operation begins: it waits for a peer, or, if `moving`, it copies. */
void batoni_near_begin(struct batoni_pairs *near, struct near_node *node,
                       struct batoni_transfer *transfer, enum near_state state);
/* Has the peer's process ended, or was its communicator closed after an abort?  Then it copies
 * nothing any more. */
bool batoni_near_is_gone(const struct batoni_pairs *near, int peer);
/* The slow part of batoni_near_room. */
bool batoni_near_starve(struct batoni_pairs *near, int peer, uint32_t cells);

/* Make the pages of the rings between this rank and that one.  Any thread; OK, NOMEM. */
static inline enum baton_status
batoni_near_connect(struct batoni_pairs *near, int peer)
{
	if (__builtin_expect(atomic_load_explicit(&near->peers[peer].connected,
	                                          memory_order_relaxed),
	                     1))
		return BATON_OK;
	return batoni_near_make_pages(near, peer);
}

/* Is there room for so many cells in the ring to the peer?  False: not yet, and the peer will
 * call. */
static inline bool
batoni_near_room(struct batoni_pairs *near, int peer, uint32_t cells)
{
	return __builtin_expect(batoni_ring_has_room(&near->peers[peer].out, cells),
	                        1) ||
	       batoni_near_starve(near, peer, cells);
}

static inline void
batoni_near_set_moving(struct batoni_pairs *near, struct near_node *node,
                       bool moving)
{
	struct batoni_load *load = &near->base.messages.load;

	if (node->moving == moving)
		return;
	node->moving = moving;
	load->moving += moving ? 1 : -1u;
	load->parked -= moving ? 1 : -1u;
}

/* The operation has ended within a slot that returns its status. */
static inline void
batoni_near_finish(struct batoni_pairs *near, struct near_node *node)
{
	batoni_list_remove(&node->link);
	batoni_near_set_moving(near, node, false);
	near->base.messages.load.in_flight--;
	near->base.messages.load.parked--;
	near->asked -= node->asked;
	node->asked = false;
	node->state = NEAR_IDLE;
	node->transfer = NULL;
}

/* The operation has ended: tell the engine, or the issue that is under way. */
static inline void
batoni_near_end(struct batoni_pairs *near, struct near_node *node,
                enum baton_status status)
{
	struct batoni_transfer *transfer = node->transfer;

	batoni_near_finish(near, node);
	if (node == near->issuing)
		near->issued = status;
	else
		near->base.messages.upcalls->done(near->base.messages.upcalls, transfer, status);
}

/* ---- open.c ---- */

/* Give up what this rank has announced, say that it is away if it is aborted, and free near. */
void batoni_near_close(struct batoni_pairs *near, bool aborted);

/* ---- send.c ---- */

enum baton_status batoni_near_send(struct batoni_pairs *near,
                                   struct batoni_transfer *transfer);
/* Take a send back: as take_back. */
enum baton_status batoni_near_unsend(struct batoni_pairs *near, struct near_node *node);
/* Give up, by its state, each message that was announced and not copied. */
void batoni_near_give_up(struct batoni_pairs *near);
/* There may be room again: send what waits for it.  Returns the number of events. */
size_t batoni_near_feed(struct batoni_pairs *near, int peer);
/* DONE: the send in this slot has been copied.  False: there cannot be such a slot. */
bool batoni_near_done(struct batoni_pairs *near, int peer, uint32_t slot,
                      uint32_t generation);
/* The same without a message: check all sends that were announced to the peer. */
size_t batoni_near_scan(struct batoni_pairs *near, int peer);

/* ---- arrive.c ---- */

/* Take up to `most` messages out of a ring.  Returns how many.  If more are there, its bit is set; but not
 * for a waiter that takes one: then the ring is warm, or the bit is set already, or will be by the sender (W6). */
size_t batoni_near_drain(struct batoni_pairs *near, int peer, size_t most);
/* All that is published. */
size_t batoni_near_take_all(struct batoni_pairs *near);
/* Drain the ring again in this rank's next pass. */
void batoni_near_call_later(struct batoni_pairs *near, int peer);
enum baton_status batoni_near_receive(struct batoni_pairs *near,
                                      struct batoni_transfer *transfer);
void batoni_near_free_arrivals(struct batoni_pairs *near);
/* Has a message of this rank and tag (-1: any; then *tag_p becomes its tag) come that meets no receive, and may
 * the receive that looks meet it?  Then its sender does not take it back from now on. */
bool batoni_near_fix_arrival(struct batoni_pairs *near, int from, int *tag_p);

/* The arrival of this rank and tag that was fixed leaves its queue, and the node of that slot has it. */
void batoni_near_hold(struct batoni_pairs *near, const struct batoni_transfer *receive,
                      struct batoni_held *held_p);
/* The receive meets what that slot has: as issue. */
enum baton_status batoni_near_meet_held(struct batoni_pairs *near,
                                        struct batoni_transfer *receive,
                                        const struct batoni_transfer *held);

/* ---- fetch.c ---- */

/* OK: the message is this rank's from here on.  CANCELED: its sender has taken it back.  ABORTED:
 * it has, and the message bars its tag. */
enum baton_status batoni_near_match_announced(struct batoni_pairs *near, int from,
                                              const struct near_announcement *what);
/* The receive, which has begun and is in no queue, has met a message that is matched.  PENDING: its
 * bytes are copied; else how it ends. */
enum baton_status batoni_near_fetch(struct batoni_pairs *near, struct near_node *node,
                                    int from, const struct batoni_ring_head *head,
                                    const struct near_announcement *what);
/* Of a receive that is FETCHING: its sender has not given the message up. */
bool batoni_near_is_matched(const struct batoni_pairs *near,
                            const struct near_node *node);
/* Read the memory of the rank that sends: OK; PEER, UNSUPPORTED, INVALID as of batoni_vm_read. */
enum baton_status batoni_near_read(struct batoni_pairs *near, struct near_node *node,
                                   uint64_t address, void *to, size_t bytes);
/* What the result of a read means for the message: PEER only if the process has ended. */
enum baton_status batoni_near_judge(struct batoni_pairs *near, int from,
                                    enum baton_status status);
/* Continue the copies, by near->budget bytes at most.  Returns the number of events. */
size_t batoni_near_copy(struct batoni_pairs *near);
/* A GRANT has come.  False: it breaks the rules of near. */
bool batoni_near_granted(struct batoni_pairs *near, int peer, uint32_t slot,
                         uint32_t generation, uint32_t theirs,
                         uint32_t their_generation, uint64_t most);
/* A CHUNK is at the head of the ring.  False: it breaks the rules of near. */
bool batoni_near_chunk(struct batoni_pairs *near, int peer,
                       const struct batoni_ring_head *head);
/* Send what the node has to, and there is room for: a GRANT, or chunks, of up to *budget bytes.
 * False: there is no more room. */
bool batoni_near_grant(struct batoni_pairs *near, struct near_node *node);
bool batoni_near_send_chunks(struct batoni_pairs *near, struct near_node *node,
                             size_t *budget);

/* ---- blocks.c ---- */

/* Where these bytes of a rank lie in this process, if they lie in the block and it is mapped; valid
 * until the slot returns.  NULL: they have to be read by the kernel; the block may be mapped for
 * the next ones. */
const void *batoni_near_mapped(struct batoni_pairs *near, int from,
                               const struct batoni_shm_block_name *block,
                               uint64_t address, size_t bytes);
/* GONE has come. */
void batoni_near_forget(struct batoni_pairs *near, int from, uint64_t serial);
void batoni_near_close_blocks(struct batoni_pairs *near);
/* The block of what is announced to a rank, if it lies in one and that can map it. */
void batoni_near_name_block(struct batoni_pairs *near, int peer, const void *from,
                            size_t bytes, struct batoni_shm_block_name *name_p);
/* There may be room again for a GONE that had none: send it.  Returns the number of events. */
size_t batoni_near_say_all_gone(struct batoni_pairs *near, int peer);

/* ---- lists.c ---- */

/* How many bytes a list has in the ring if it goes there whole. */
size_t batoni_near_list_bytes(const struct batoni_tensor_list *list);
void batoni_near_put_list(const struct batoni_ring_out *out,
                          const struct batoni_tensor_list *list);
void batoni_near_announce_list(struct batoni_pairs *near, int peer,
                               const struct batoni_tensor_list *list,
                               struct near_announcement *what);
/* A receive meets a list with its bytes: in the ring, or in an arrival.  How it ends. */
enum baton_status batoni_near_meet_list(struct batoni_pairs *near,
                                        struct batoni_transfer *transfer, int from,
                                        const struct batoni_ring_head *head,
                                        const unsigned char *bytes_or_null);
/* What a list is that has come with its bytes, in an arrival. */
void batoni_near_describe_list(const struct batoni_ring_head *head,
                               const unsigned char *bytes,
                               struct batoni_held *held_p);
/* A receive, which is a list, meets an announced one: up to *budget bytes of its header are read.  PENDING:
 * there are more; OK, or how it ends; UNSUPPORTED, INVALID: the header cannot be read. */
enum baton_status batoni_near_meet_far_list(struct batoni_pairs *near,
                                            struct near_node *node, size_t *budget);
/* Copy up to *budget bytes of the list's payload.  OK; or what batoni_vm_read returns. */
enum baton_status batoni_near_copy_list(struct batoni_pairs *near,
                                        struct near_node *node, size_t *budget);
/* By chunks: the next n bytes, of a send into the ring behind `at` bytes of payload; of a receive out of
 * it.  False: they are no list. */
void batoni_near_put_part(const struct batoni_ring_out *out, struct near_node *node,
                          size_t at, size_t n);
bool batoni_near_take_part(struct batoni_pairs *near, struct near_node *node,
                           size_t at, size_t n);

#endif
