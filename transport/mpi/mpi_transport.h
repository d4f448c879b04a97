/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI transport, as its own files see it.
 *
 * mpi.c       issue, test, take_back: the path of short messages
 * follow.c    receives that need no test before others of their tag have ended
 * unmatched.c   what has come and has met no receive
 * kept.c      of that, what was taken out of MPI's queue
 * hold.c      of that, what a probe of the program has found
 * body.c      messages in two parts: a header that announces a body
 * lists.c     messages that are lists of tensors
 * open.c      memory, opening, exchanging, leaving, closing
 * fail.c      calls of MPI that have failed, and the texts of its errors
 * clear.c     receives messages that no receive has matched, before the communicator is freed
 * mpi_header.c  what is read from a peer
 * reach.c     buffers in memory of a device that MPI reaches by itself
 * opening.c   opening it over MPI's bootstrap (transport/bootstrap/mpi/)
 * finish.c    the end of MPI: by the program or by Baton, and when
 *
 * Everything here belongs to the thread that drives the engine, except where a
 * function says otherwise.
 */
#ifndef BATONI_MPI_TRANSPORT_H
#define BATONI_MPI_TRANSPORT_H

#include <assert.h>

#include <mpi.h>

#include "device.h"
#include "list.h"
#include "match.h"
#include "mpi_bootstrap.h"
#include "mpi_header.h"
#include "segments.h"
#include "transport.h"

/* Messages up to this length travel as they are, unless they are exactly as long
 * as a header or as the first part of a list may be (batoni_mpi_is_special); all others are
 * announced by a header.  It is below the 4 KiB from
 * which Open MPI writes past a receive that is too short. */
#define BATONI_MPI_RAW_MAX 2048
/* A body travels in pieces of at most this length, which is below INT_MAX and is the
 * length of the drain buffer.  Two or three are under way at once, which is as fast as all
 * of them (measured from 1 MiB to 1 GiB). */
#define BATONI_MPI_PIECE_BYTES ((size_t)16 << 20)
/* Pieces of this length MPI sends eagerly: with Open MPI's own header it is below Open MPI's eager
 * limit of 4 KiB. */
#define BATONI_MPI_EAGER_BYTES ((size_t)3584)
/* Requests that are tested by one call; a pass tests them all up to this number. */
#define BATONI_MPI_WINDOW 64u
/* Requests that one transfer may have at MPI: a header or a grant and two pieces, or
 * three pieces. */
#define BATONI_MPI_ACTIVE_MAX 3u

/*
 * Every first part is received into a bounce buffer of BATONI_MPI_RAW_MAX bytes, and a
 * short message is copied from there.  Baton therefore never reads a header back from
 * memory of the program, which may use one buffer for several receives; and no receive at
 * MPI is too short for what may arrive.  Truncation by MPI is not safe:
 * - Open MPI 4.1 and 5.0 write past the end of the receive unless the message was
 *   sent eagerly;
 * - when one request ends in an error, Open MPI's MPI_Testsome frees every request
 *   it was given whose status, not written yet, happens not to contain "no error";
 *   requests that are still under way are then lost without being reported;
 * - MPICH does not report the length, and raises the error on the program's
 *   communicators, where it is fatal.
 *
 * Bounce buffers are mapped, a buffer for each slot and one more (a receive that sends a
 * grant has two for a moment), and taken last in, first out: the
 * most that were in use at once have memory, and these stay in the cache.
 */

/* What one MPI request is for. */
enum batoni_mpi_part {
	BATONI_MPI_SEND,  /* a raw message */
	BATONI_MPI_PIECE, /* of a body, either way; of a receive: a release */
	/* These have a bounce buffer. */
	BATONI_MPI_FIRST, /* a receive's first part: a raw message or a header */
	BATONI_MPI_ASKED, /* the same, and MPI was asked to cancel it */
	BATONI_MPI_HEADER, /* of a send; of a receive: a grant */
	BATONI_MPI_HELD    /* the first part of what a probe has found (hold.c) */
};

struct batoni_mpi_entry {
	struct batoni_transfer *transfer;
	uint32_t part;   /* enum batoni_mpi_part */
	uint32_t bounce; /* its bounce buffer, from BATONI_MPI_FIRST on */
};

/* A receive, as follow.c sees it. */
struct batoni_mpi_follower {
	/* Not NULL: it follows another, and its request is here. */
	struct batoni_transfer *transfer;
	MPI_Request request;
	uint32_t bounce;
	/* Places (a slot and 1): of the one that it follows; of the one that follows it,
	 * or 0. */
	uint32_t before, next;
};

struct batoni_mpi_buffers; /* lists.c's */

/* What is at MPI of an exchange. */
enum batoni_mpi_exchange {
	BATONI_MPI_NO_EXCHANGE,
	BATONI_MPI_LEAVING, /* the terms of a rank that leaves */
	BATONI_MPI_TERMS,   /* are all ranks able and of one mind? */
	BATONI_MPI_PARTS,
	/* clear.c's.  There is no exchange any more. */
	BATONI_MPI_LEAVE_MESSAGES,
	BATONI_MPI_CLEARING
};

/* Body tags, by peer; see body.c. */
#define BATONI_MPI_SEGMENTS 4u
struct batoni_mpi_tags {
	/* Of bodies to the peer: how many tags of the segment have been used, the
	 * segment, and a bit for each segment that the peer has not released. */
	uint32_t used;
	uint16_t segment, busy;
	/* Of bodies from the peer: how many have come in each segment. */
	uint32_t received[BATONI_MPI_SEGMENTS];
};

/* A body under way. */
struct batoni_mpi_body {
	/* A send that waits for its grant, or NULL. */
	struct batoni_transfer *waiting;
	size_t length;
	size_t posted;   /* of it, handed to MPI */
	uint32_t active; /* requests at MPI, the header's included */
	int peer, tag;
	bool tag_given_back; /* by a receive: the body has come */
	/* lists.c's.  `posted` is the length from the beginning; instead, how many messages are
	 * not handed to MPI, where they go on, and the bytes of the list's header that
	 * the body begins with and that are not handed to MPI. */
	uint32_t pieces;
	struct batoni_tensor_list_cursor cursor;
	size_t rest;
	/* A short list: `posted` counts.  Its buffer, or NULL. */
	bool is_short;
	unsigned char *buffer;
	/* In which the transfer will end; unless OK, its bytes are drained.  PENDING: a receive has not
	 * all of the list's header, and posts nothing behind it. */
	enum baton_status verdict;
};

/* The copy of a message from its bounce buffer into memory of a device; reach.c. */
struct batoni_mpi_copy {
	struct batoni_list_node link;     /* of mpi->copying */
	struct batoni_transfer *transfer; /* NULL: there is none */
	struct batoni_ticket ticket;
	uint32_t bounce;
	bool started;
};

/* A message that was taken out of MPI's queue; kept.c. */
struct batoni_mpi_kept {
	struct batoni_list_node link; /* of mpi->kept */
	struct batoni_match_node same; /* its queue: those of its rank and tag */
	struct batoni_list_node front; /* the first of its queue: of mpi->kept_fronts */
	uint64_t number; /* in the order of `kept` */
	MPI_Message message;
	int peer, tag, bytes;
};

/* What a probe of the program has found; hold.c. */
struct batoni_mpi_held {
	uint32_t bounce; /* has its first part, */
	bool posted;     /* which is being received; */
	bool here;       /* or is there */
	MPI_Status status;
};

/* What an error code means. */
struct batoni_mpi_text {
	int code;
	char text[MPI_MAX_ERROR_STRING];
};

/* Codes that one communicator keeps the texts of: the first error breaks it. */
#define BATONI_MPI_TEXTS 4u

struct batoni_mpi {
	struct batoni_transport base; /* must be first */
	MPI_Comm comm;
	/* The active requests, compact: requests[i], and its purpose, entries[i]. */
	MPI_Request *requests;
	struct batoni_mpi_entry *entries;
	uint32_t count;
	uint32_t cursor; /* requests below it have not been tested in this round */
	bool newest;     /* the last pass tested the newest requests */
	uint64_t round_ns; /* when the last round was completed */
	uint64_t pause_ns; /* the next sweep is due so long after it */
	MPI_Request complete; /* see batoni_mpi_is_complete */
	/* By slot (base.slots): the index of the request (valid for receives' first parts
	 * only), and the body. */
	uint32_t *positions;
	struct batoni_mpi_body *bodies;
	/* follow.c's: by slot; how many follow; 2^(64 - lasts_shift) links. */
	struct batoni_mpi_follower *followers;
	uint32_t following;
	uint32_t advanced; /* the last requests: they followed others until just now */
	uint32_t *lasts;
	unsigned lasts_shift;
	/* Bounce buffers; the stack of those that were returned (free_bounces of them);
	 * how many have ever been taken. */
	unsigned char *bounces;
	uint32_t *bounce_stack;
	uint32_t free_bounces, taken_bounces;
	/* lists.c's buffers, and a bit for each that is free; NULL where lists go apart. */
	struct batoni_mpi_buffers *buffers;
	uint64_t free_buffers;
	/* reach.c's: the device, if buffers may be its memory, else NULL.  Each message that
	 * is received reads it: it lies beside what the receive reads anyway. */
	struct batoni_device *device;
	bool apart; /* some rank has a device so: lists.c */
	bool check; /* checked mode */
	bool examines; /* one of both: a message without a header is examined (first_done) */
	/* Tags from body_tag_base on: BATONI_MPI_SEGMENTS segments of segment_tags
	 * each; granted_tag and more, one for each slot; release_tag and more, one
	 * for each segment; grant_tag; leave_tag; and group_tag, of MPI's own messages in
	 * MPI_Comm_create_group (derive.c). */
	int body_tag_base, granted_tag, release_tag, grant_tag, leave_tag, group_tag;
	uint32_t segment_tags;
	uint32_t waiting; /* sends that wait for a grant */
	/* unmatched.c's: the rank that was named last, and how often in a row before; the next receive
	 * has its message at MPI. */
	int named_last;
	uint32_t named_run;
	bool found;
	/* hold.c's, by slot, from the first probe that finds something; or NULL. */
	struct batoni_mpi_held *held;
	/* kept.c's: in the order in which they were at MPI; so many. */
	struct batoni_list_node kept;
	uint32_t kept_n;
	uint64_t kept_number;
	/* By rank and tag, from the first one on; and the first of each queue, in the order of `kept`: [0], those of the
	 * program's tags, [1], the others. */
	struct batoni_match kept_match;
	struct batoni_list_node kept_fronts[2];
	/* clear.c's: by rank, whether a message was sent to it; the next rank that may get
	 * a leave message; leave messages at MPI, which are requests[0] and on then; a message that
	 * is being received to be discarded. */
	bool *sent_to;
	int leave_next;
	uint32_t leave_messages;
	MPI_Request discarded;
	/* An exchange: the operation that is under way, and two buffers, for terms
	 * (always allocated) and for parts (NULL between exchanges).  A buffer has a link
	 * (open.c), what this rank contributes, then the result. */
	enum batoni_mpi_exchange exchanging;
	MPI_Request exchange;
	unsigned char *terms_buffer, *parts_buffer;
	/* By peer: which body tags are in use. */
	struct batoni_mpi_tags *tags;
	/* reach.c's: copies by slot, and those that have not ended. */
	struct batoni_mpi_copy *copies;
	struct batoni_list_node copying;
	struct batoni_segments segments;
	/* Why the transport is broken, until the engine has been told. */
	enum baton_status failed_status;
	const char *failed_call;
	const struct batoni_transfer *failed_transfer; /* the latest */
	int failed_code;
	char failed_text[MPI_MAX_ERROR_STRING];
	/* Texts of the codes that were met: written by the driver, text_count last,
	 * and read by any thread. */
	struct batoni_mpi_text texts[BATONI_MPI_TEXTS];
	_Atomic uint32_t text_count;
	bool lost; /* the program has finalised MPI: call it no more */
	/* finish.c's: called when the transport is closed. */
	void (*forget)(struct batoni_mpi *mpi, bool aborted);
	struct baton_comm *owner;
	struct batoni_list_node live;
};

static inline struct batoni_mpi *
batoni_mpi_of(struct batoni_transport *transport)
{
	return (struct batoni_mpi *)(void *)transport;
}

/*
 * Is this send, which has just been started, complete?  Open MPI returns the same handle
 * for all sends that are complete on return; it needs no freeing.  MPI_Test would give the
 * same answer, but begins with a memory barrier, which waits until the stores of the send
 * have reached the peer's cache: 50 ns, half the cost of a small message.
 */
static inline bool
batoni_mpi_is_complete(const struct batoni_mpi *mpi, MPI_Request *request)
{
	if (mpi->complete == MPI_REQUEST_NULL || *request != mpi->complete)
		return false;
	*request = MPI_REQUEST_NULL;
	return true;
}

static inline unsigned char *
batoni_mpi_bounce(const struct batoni_mpi *mpi, uint32_t bounce)
{
	return mpi->bounces + (size_t)bounce * BATONI_MPI_RAW_MAX;
}

/* Start a send as requests[count].  Every message of the communicator is sent by this
 * function, but for the leave messages (clear.c) and the parts of lists that MPI gathers
 * by a derived type (lists.c). */
static inline int
batoni_mpi_isend(struct batoni_mpi *mpi, const void *content, int bytes, int peer,
                 int tag)
{
	int code = MPI_Isend(content, bytes, MPI_BYTE, peer, tag, mpi->comm,
	                     &mpi->requests[mpi->count]);

	if (__builtin_expect(code == MPI_SUCCESS, 1))
		mpi->sent_to[peer] = true;
	return code;
}

static inline struct batoni_mpi_kept *
batoni_mpi_kept_front(struct batoni_list_node *front)
{
	return batoni_container_of(front, struct batoni_mpi_kept, front);
}

static inline struct batoni_mpi_kept *
batoni_mpi_kept_of(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct batoni_mpi_kept, link);
}

/* kept.c; the slow part of batoni_mpi_irecv. */
int batoni_mpi_irecv_kept(struct batoni_mpi *mpi, void *buffer, int count,
                          MPI_Datatype type, int peer, int tag);

/* Start a receive as requests[count]: of a message that is kept, or at MPI.  Every message of the communicator is
 * received by this function, is a control message, or is discarded. */
static inline int
batoni_mpi_irecv(struct batoni_mpi *mpi, void *buffer, int count,
                 MPI_Datatype type, int peer, int tag)
{
	if (__builtin_expect(mpi->kept_n > 0, 0))
		return batoni_mpi_irecv_kept(mpi, buffer, count, type, peer, tag);
	return MPI_Irecv(buffer, count, type, peer, tag, mpi->comm,
	                 &mpi->requests[mpi->count]);
}

/* There is always one: a transfer has one at most, and for a moment two. */
static inline uint32_t
batoni_mpi_bounce_take(struct batoni_mpi *mpi)
{
	if (__builtin_expect(mpi->free_bounces == 0, 0)) {
		assert(mpi->taken_bounces <= mpi->base.slots);
		return mpi->taken_bounces++;
	}
	return mpi->bounce_stack[--mpi->free_bounces];
}

static inline void
batoni_mpi_bounce_return(struct batoni_mpi *mpi, uint32_t bounce)
{
	mpi->bounce_stack[mpi->free_bounces++] = bounce;
}

/* Add requests[count], which has just been started, to the array. */
static inline void
batoni_mpi_track(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                 enum batoni_mpi_part part, uint32_t bounce)
{
	uint32_t i = mpi->count++;

	mpi->entries[i].transfer = transfer;
	mpi->entries[i].part = part;
	mpi->entries[i].bounce = bounce;
	mpi->positions[transfer->slot] = i;
}

/* Request i is done: the last one of the array replaces it. */
static inline void
batoni_mpi_untrack(struct batoni_mpi *mpi, uint32_t i)
{
	uint32_t last = --mpi->count;

	if (i == last)
		return;
	mpi->requests[i] = mpi->requests[last];
	mpi->entries[i] = mpi->entries[last];
	mpi->positions[mpi->entries[i].transfer->slot] = i;
}

/* Has the receive's message come, and is it still in its bounce buffer? */
static inline bool
batoni_mpi_is_copying(const struct batoni_mpi *mpi,
                      const struct batoni_transfer *transfer)
{
	return __builtin_expect(mpi->device != NULL, 0) &&
	       mpi->copies[transfer->slot].transfer == transfer;
}

/* The transfer waits for no grant any more, if it did: it has one, or has failed. */
static inline void
batoni_mpi_body_forget(struct batoni_mpi *mpi,
                       const struct batoni_transfer *transfer)
{
	struct batoni_mpi_body *body = &mpi->bodies[transfer->slot];

	if (body->waiting != transfer)
		return;
	body->waiting = NULL;
	mpi->waiting--;
}

/* Checked mode: does a plain message on this tag have a type, and a header for it?  Those of the
 * one-sided layer, which are on hidden tags, have none. */
static inline bool
batoni_mpi_has_type(const struct batoni_mpi *mpi, int tag)
{
	return mpi->check && tag <= mpi->base.tag_max;
}

/* mpi.c */
extern const struct batoni_transport_ops batoni_mpi_ops;
extern const struct batoni_path_ops batoni_mpi_messages_ops;
extern const struct batoni_path_ops batoni_mpi_checked_ops;
/* The first part of a message is in this bounce buffer, which the receive has from now on: as issue. */
enum baton_status batoni_mpi_meet_first(struct batoni_mpi *mpi,
                                        struct batoni_transfer *transfer,
                                        uint32_t bounce, const MPI_Status *status);

/* hold.c */
enum baton_status batoni_mpi_hold(struct batoni_path *path,
                                  struct batoni_transfer *receive,
                                  struct batoni_held *held_p);
enum baton_status batoni_mpi_meet(struct batoni_path *path,
                                  struct batoni_transfer *receive,
                                  struct batoni_transfer *held);
/* The first part of a message that is held has come, or MPI has failed with this code. */
void batoni_mpi_held_came(struct batoni_mpi *mpi,
                          const struct batoni_transfer *receive, int code,
                          const MPI_Status *status);
/* Is the request that first part?  Then it is taken back: nothing is held any more. */
bool batoni_mpi_held_ends(struct batoni_mpi *mpi, const struct batoni_mpi_entry *entry);

/* reach.c */
extern const struct batoni_path_ops batoni_mpi_reaching_ops;
extern const struct batoni_transport_ops batoni_mpi_reaching_transport_ops;
/* What MPI does with memory of this rank's device.  MPI runs; with the driver lock. */
enum batoni_reach batoni_mpi_reach(const struct batoni_device_ops *device);
/* Take what a transport needs whose buffers may be memory of mpi->device.  OK; NOMEM, CUDA
 * (batoni_refuse has said why), and what else pinned_alloc returns. */
enum baton_status batoni_mpi_reach_alloc(struct batoni_mpi *mpi, uint64_t until_ns);
void batoni_mpi_reach_free(struct batoni_mpi *mpi);
/* A message of done_bytes (1 or more) is in this bounce buffer.  OK: it is in the receive's
 * buffer; PENDING: it will be, and the bounce buffer is in use until then. */
enum baton_status batoni_mpi_copy_in(struct batoni_mpi *mpi,
                                     struct batoni_transfer *transfer,
                                     const void *bounce);
/* MPI has received the body of this receive: let streams see it.  OK, CUDA. */
enum baton_status batoni_mpi_flush(struct batoni_mpi *mpi,
                                   struct batoni_transfer *transfer);
/* The transport is closed after an abort: wait until no copy is under way.  False: the
 * device does not end them. */
bool batoni_mpi_end_copies(struct batoni_mpi *mpi);

/* lists.c */
/* Map the buffers of a transport that carries lists.  Any thread.  OK, NOMEM. */
enum baton_status batoni_mpi_list_alloc(struct batoni_mpi *mpi);
void batoni_mpi_list_free(struct batoni_mpi *mpi);
/* Set up the body of a list that is to be sent, all but its tag. */
void batoni_mpi_list_plan(const struct batoni_mpi *mpi,
                          struct batoni_mpi_body *body,
                          const struct batoni_tensor_list *list);
/* Write the first part of a list that is sent, and return its length. */
size_t batoni_mpi_list_first(const struct batoni_mpi_body *body,
                             const struct batoni_transfer *transfer,
                             unsigned char *bytes);
/* What a first part of this length says: of a body and of a list (body.c); false: it is none. */
bool batoni_mpi_describe_first(const struct batoni_mpi *mpi,
                               const unsigned char *bytes, size_t n,
                               struct batoni_held *held_p);
/* The first part has come, with a header of so many bytes, of which some are behind it:
 * body->verdict says what becomes of the receive.  False: what has come does not agree with
 * itself. */
bool batoni_mpi_list_came(const struct batoni_mpi *mpi,
                          struct batoni_mpi_body *body,
                          struct batoni_transfer *transfer,
                          const unsigned char *behind, size_t described);
/* The same when the rest of the list's header has come. */
bool batoni_mpi_list_described(const struct batoni_mpi *mpi,
                               struct batoni_mpi_body *body,
                               struct batoni_transfer *transfer);
/* Post as many messages of the body as may be active at a time.  PENDING, MPI. */
enum baton_status batoni_mpi_list_post(struct batoni_mpi *mpi,
                                       struct batoni_transfer *transfer,
                                       struct batoni_mpi_body *body);
/* The body has left, or has come, and it has a buffer. */
void batoni_mpi_list_end(struct batoni_mpi *mpi,
                         struct batoni_transfer *transfer,
                         struct batoni_mpi_body *body);

/* follow.c */
/* requests[count] has just been started, as the first part of this receive.  True: it
 * follows another and is not tested.  False: the caller tracks it. */
bool batoni_mpi_follow(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                       uint32_t bounce);
/* This receive, which was tested, has a message: separate from it what follows it, and
 * return its link (slot + 1), or 0. */
uint32_t batoni_mpi_behind(struct batoni_mpi *mpi,
                           const struct batoni_transfer *transfer);
/* Track the receive of this link and those that follow it, at most n in all.  The others follow the
 * last of them.  Link 0: there is none. */
void batoni_mpi_advance(struct batoni_mpi *mpi, uint32_t link, uint32_t n);
/* This receive is to be taken back.  It is tracked from now on, and none follows it. */
void batoni_mpi_unfollow(struct batoni_mpi *mpi,
                         const struct batoni_transfer *transfer);
/* Track all of them, before the transport is closed. */
void batoni_mpi_unfollow_all(struct batoni_mpi *mpi);

/* unmatched.c */
extern const struct batoni_unmatched_ops batoni_mpi_unmatched;

/* kept.c */
void batoni_mpi_kept_init(struct batoni_mpi *mpi);
/* Take the next message of this rank (MPI_ANY_SOURCE: of any) out of MPI's queue.  NULL: there is none, or no
 * memory for it. */
struct batoni_mpi_kept *batoni_mpi_keep(struct batoni_mpi *mpi, int peer);
/* The first one that is kept of this rank (MPI_ANY_SOURCE: of any) and tag, or NULL. */
struct batoni_mpi_kept *batoni_mpi_kept_find(const struct batoni_mpi *mpi, int peer,
                                             int tag);
/* Start to receive it; it is kept no longer.  MPI's code. */
int batoni_mpi_kept_take(struct batoni_mpi *mpi, struct batoni_mpi_kept *kept,
                         void *buffer, int count, MPI_Datatype type,
                         MPI_Request *request_p);
/* The communicator closes after an abort.  callable: MPI may be called. */
void batoni_mpi_kept_drop(struct batoni_mpi *mpi, bool callable);

/* body.c.  Each returns PENDING while the body is under way, else how the
 * transfer ended. */
/* Announce the message and start its body; issue's. */
enum baton_status batoni_mpi_body_send(struct batoni_mpi *mpi,
                                       struct batoni_transfer *transfer);
/* A receive's first part was this header, from this rank: start to receive the body. */
enum baton_status batoni_mpi_body_recv(struct batoni_mpi *mpi,
                                       struct batoni_transfer *transfer,
                                       const void *bytes, int source);
/* The first part of a list has matched this receive.  As batoni_mpi_body_recv. */
enum baton_status batoni_mpi_list_recv(struct batoni_mpi *mpi,
                                       struct batoni_transfer *transfer,
                                       const unsigned char *bytes, size_t n,
                                       int source);
/* What has come is no header.  The transfer ends in BATON_ERR_MPI, as of batoni_mpi_fail. */
enum baton_status batoni_mpi_refuse_header(struct batoni_mpi *mpi,
                                           struct batoni_transfer *transfer);
/* A request other than a first part is done. */
enum baton_status batoni_mpi_body_step(struct batoni_mpi *mpi,
                                       struct batoni_transfer *transfer);
/* Start the bodies that have been granted, while mpi->waiting is above 0.  Returns the
 * number of events. */
size_t batoni_mpi_body_granted(struct batoni_mpi *mpi);
/* Reserve the drain buffer of the process, of BATONI_MPI_PIECE_BYTES.  Any thread.  OK,
 * NOMEM. */
enum baton_status batoni_mpi_drain_reserve(void);
/* The drain buffer, for bytes that are discarded. */
void *batoni_mpi_drain(void);

/* open.c */
/* Take all memory but that of the peers.  Any thread.  OK, NOMEM; CUDA, with batoni_refuse
 * called. */
enum baton_status
batoni_mpi_alloc(const struct batoni_transport_config *config, int size,
                 struct batoni_mpi **mpi_p);
/* Give the transport its communicator, whose error handler is MPI_ERRORS_RETURN.  The
 * transport owns it from then on.  thread_level is MPI's.  OK; UNSUPPORTED (MPI has too
 * few tags), with batoni_refuse called: the caller still owns the communicator. */
enum baton_status batoni_mpi_attach(struct batoni_mpi *mpi, MPI_Comm comm,
                                    int thread_level,
                                    enum baton_progress progress);
/* Which threads may drive the communicator at this thread level of MPI. */
enum batoni_drivers batoni_mpi_drivers(int thread_level,
                                       enum baton_progress progress);
/* Free the memory of a transport with nothing in flight. */
void batoni_mpi_free(struct batoni_mpi *mpi);
/* Take back the receives that can be taken back, without communication; MPI keeps the
 * rest.  The driver, or the thread that finalises MPI after the engine has given the
 * transport up. */
void batoni_mpi_abandon(struct batoni_mpi *mpi);

/* finish.c */
/* Once for the process: from now on the end of MPI is seen.  OK, or MPI's error code. */
int batoni_mpi_finish_watch(const struct batoni_engine_calls *calls);
/* Its communicator, `owner`, has started. */
void batoni_mpi_finish_add(struct batoni_mpi *mpi);

/* fail.c */
/* This call has failed with this code.  The transfer ends in BATON_ERR_MPI (returned), and
 * the transport is broken: the slot function that is running tells the engine after it has
 * counted the transfer.  text NULL: MPI's own. */
enum baton_status batoni_mpi_fail(struct batoni_mpi *mpi,
                                  struct batoni_transfer *transfer,
                                  const char *call, int code,
                                  const char *text);
/* This call, which belongs to no transfer alone, has failed with this code: tell the engine,
 * with MPI's text.  Returns BATON_ERR_MPI. */
enum baton_status batoni_mpi_break(struct batoni_mpi *mpi, const char *call,
                                   int code);
/* The same where a call of MPI has returned something that no rank of this version sends. */
enum baton_status batoni_mpi_break_saying(struct batoni_mpi *mpi,
                                          const char *call, const char *text);
/* Tell the engine of a failure, if the slot function has had one. */
void batoni_mpi_tell_failure(struct batoni_mpi *mpi);
/* Keep the text of an error, so that batoni_mpi_error_text, which any thread may call,
 * calls no MPI.  text NULL: MPI's own.  The driver. */
void batoni_mpi_note_error(struct batoni_mpi *mpi, int code, const char *text);
void batoni_mpi_error_text(struct batoni_transport *transport, int code,
                           char *text, size_t size);
extern const struct batoni_text_ops batoni_mpi_texts;

/* The functions of batoni_mpi_ops that clear.c and open.c define. */
enum baton_status batoni_mpi_clear(struct batoni_transport *transport);
enum baton_status batoni_mpi_exchange(struct batoni_transport *transport,
                                      uint64_t what, const void *mine,
                                      size_t bytes, void *all);
enum baton_status batoni_mpi_leave(struct batoni_transport *transport);
void batoni_mpi_close(struct batoni_transport *transport, bool aborted);

/* derive.c */
extern const struct batoni_deriving_ops batoni_mpi_deriving;

#endif
