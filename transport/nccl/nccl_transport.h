/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL transport's own header; the note at the top of nccl.c has its rules.
 *
 * nccl.c: the path and the transport.  nccl_await.c: the wait for NCCL's thread.  nccl_self.c:
 * messages to oneself.  nccl_lock.c: the lock of a device.  nccl_open.c: creation; nccl_rounds.c: what
 * its steps are made of; nccl_hello.c: what the ranks agree on.  nccl_peers.c: the other ranks' processes.
 * nccl_puts.c: puts; nccl_windows.c: the windows that they go into; nccl_windows_open.c: what they need.  nccl_end.c: finalizing,
 * aborting, closing.  nccl_checked.c and those that it names: the path in checked mode, and that of
 * lists in plain mode.
 */
#ifndef BATONI_NCCL_TRANSPORT_H
#define BATONI_NCCL_TRANSPORT_H

#include <pthread.h>
#include <stdatomic.h>

#include "native.h"
#include "nccl_api.h"
#include "thread.h"

struct batoni_nccl;
struct batoni_nccl_checked;
struct batoni_nccl_puts; /* nccl_windows.h */

/* One of NCCL's communicators, with an internal stream.  Guarded by the lock of the device,
 * but for `used`, which the order lock guards. */
struct batoni_nccl_lane {
	ncclComm_t comm;     /* NULL: none, or gone */
	baton_stream stream; /* of operations that are on no stream of the program */
	bool used;           /* by the operations of this call */
	bool revoked;        /* its kernels have been told to end */
	struct batoni_mark connected; /* creation: behind the kernel that connects */
	struct batoni_nccl_lane *leaked; /* of the first: nccl_open.c */
	struct batoni_nccl_puts *kept;   /* the same */
};

/* What the messages to itself in one call come to (nccl_self.c). */
struct batoni_nccl_match {
	size_t pairs;   /* that have both ends now */
	size_t takes;   /* of these: with an end that an earlier call gave, */
	unsigned from;  /* of this direction */
	size_t left;    /* ends of this call that are to be kept */
	unsigned keeps; /* their direction */
};

/* What becomes of an end that this call has given. */
enum batoni_nccl_role {
	BATONI_NCCL_CALLED, /* its other end is in the call, too */
	BATONI_NCCL_TAKES,  /* its other end was kept */
	BATONI_NCCL_KEPT    /* it has none yet */
};

/* What a rank tells of its process (nccl_peers.c). */
struct batoni_nccl_card {
	struct batoni_shm_name bell;
	int32_t has_bell;
	int32_t unused;
};

/* What a rank tells the others of its creation. */
struct batoni_nccl_word {
	int32_t status; /* enum baton_status */
	union {
		char why[188];   /* of an error */
		ncclUniqueId id; /* rank 0's, where the step says so */
	};
};

static inline bool
batoni_nccl_has_failed(const struct batoni_nccl_word *word)
{
	return word->status != BATON_OK && word->status != BATON_PENDING;
}

/* What the ranks tell each other first (nccl_hello.c). */
struct batoni_nccl_hello {
	struct batoni_nccl_word word;
	int32_t version;
	int32_t lanes;
	int32_t check; /* the version of checked mode, or 0 */
	int32_t puts;  /* BATON_WINDOW_PATH forces those of the library */
	int32_t lists; /* in plain mode: the version of lists, or 0: there are none */
	int32_t driver;     /* CUDA's, as cuDriverGetVersion has it; 0: not known */
	int32_t processors; /* of its GPU; 0: not known */
	int32_t ctas;       /* that are asked for; 0: none are */
	struct batoni_nccl_card card;
	/* Rank 0's, for as many lanes as there can be, and behind them the one for lists. */
	ncclUniqueId ids[];
};

/* What is agreed on, and in which order: nccl_open.c. */
enum batoni_nccl_step {
	BATONI_NCCL_HELLO,  /* versions and ids */
	BATONI_NCCL_MAKE,   /* the communicators */
	BATONI_NCCL_CONNECT, /* the pairs of each lane */
	BATONI_NCCL_CONNECT_LISTS, /* those of the lane for lists, where there is one */
	/* Where puts are wanted: */
	BATONI_NCCL_PUTS_ID,     /* the id of their communicator */
	BATONI_NCCL_PUTS_MAKE,   /* it */
	BATONI_NCCL_PUTS_WINDOW, /* the window of what is staged */
	BATONI_NCCL_PUTS_WARM    /* the first call of each kind */
};

/* One of the steps in which NCCL works. */
struct batoni_nccl_work {
	uint64_t what; /* of its exchanges */
	ncclResult_t (*begin)(struct batoni_nccl *nccl);
	/* NULL: nothing is awaited. */
	enum baton_status (*end)(struct batoni_nccl *nccl);
	const char *call, *done; /* in sentences */
};

/* Also the engine's struct batoni_native. */
struct batoni_nccl {
	struct batoni_transport base; /* must be first */
	/* Immutable once created. */
	struct batoni_transport *lower; /* set by the first step; owned once it is open */
	struct batoni_upcalls lower_upcalls;  /* what that one tells: see nccl_open.c */
	const struct batoni_nccl_api *api;
	struct batoni_device *device;
	struct batoni_native_config config;
	uint64_t patience_ns; /* for creation, and for one enqueue */
	unsigned bits;        /* ranks have so many */
	unsigned foreign;     /* so many streams of NCCL's were told to the device */
	unsigned lanes_n;     /* two for each bit, or fewer, and one for the rank alone */
	int ctas;             /* that a kernel of a lane has at most; 0: NCCL's default */
	ncclUniqueId alone;   /* of the lane for the rank alone */
	/* These, and behind them the one for puts and the one for lists. */
	struct batoni_nccl_lane *lanes;
	struct batoni_nccl_puts *puts;  /* NULL: there are none (nccl_puts.c) */
	char why_no_puts[200];
	struct batoni_nccl_self *self;
	struct batoni_peer *peers; /* where the lower transport has none (nccl_peers.c) */
	int peers_n;
	struct batoni_nccl_lock *lock; /* of the device */
	/* Of checked mode, or of lists in plain mode; NULL: plain mode without lists. */
	struct batoni_nccl_checked *checked;
	/* In plain mode: lists have a path, and a lane. */
	bool has_lists;
	struct batoni_path lists;

	/* The creating thread. */
	enum batoni_nccl_step step;
	uint64_t limit_ns, exchange_limit_ns; /* 0: not begun */
	uint64_t before;           /* bytes of the device that were free, before MAKE */
	bool marked;               /* the lanes, behind what connects them */
	bool begun;                /* what this step waits for was begun */
	bool in_round;             /* an exchange of `says` is under way */
	bool judged;               /* the last one has brought what all ranks say */
	bool wants_puts;           /* of all ranks alike */
	struct batoni_nccl_word says;
	enum baton_status mine;    /* what this rank tells the others */
	struct batoni_nccl_hello *hello, *hellos; /* this rank's; by rank */
	struct batoni_nccl_word *words; /* by rank */

	/* The driver. */
	uint64_t polled_ns; /* when asynchronous errors were asked for */
	bool all_leave;     /* all ranks have said that they do */
	bool finalizing, finalized;

	/* Any thread. */
	_Atomic bool aborting;
	_Atomic bool lower_lost; /* the library of the lower transport is finalised */
	/* In plain mode: a list was accepted; none is any more, since that library is being
	 * finalised.  Each is written by one side before the other is read. */
	_Atomic bool lists_used, lists_lost;

	/* nccl_end.c: what tells kernels to end, and what ends the lanes when nothing else uses
	 * them. */
	struct batoni_job stopper, ender;
	bool stopper_runs; /* the driver: it was started */
	uint64_t stop_until_ns; /* so long messages to oneself are waited for */
};

/* Is the message one to the rank itself? */
static inline bool
batoni_nccl_is_self(const struct batoni_nccl *nccl,
                    const struct batoni_transfer *transfer)
{
	return transfer->peer == nccl->base.rank;
}

/* ---- nccl.c ---- */

/* The lane of a message from source to target. */
unsigned batoni_nccl_lane_of(const struct batoni_nccl *nccl, int source,
                             int target);
/* The lower transport watches something (the side channel its link, whose end means that a process has
 * died): let it poll.  The driver. */
void batoni_nccl_poll_lower(struct batoni_nccl *nccl);
extern const struct batoni_transport_ops batoni_nccl_transport_ops;
extern const struct batoni_path_ops batoni_nccl_path_ops;
/* Does NCCL reach memory of this location (batoni_transfer.location)? */
bool batoni_nccl_reaches(const struct batoni_nccl *nccl, unsigned location);
#define BATONI_NCCL_NO_TENSOR SIZE_MAX
/* NCCL does not reach the memory: refuse the buffer, or a tensor of a list, for that.
 * UNSUPPORTED. */
enum baton_status batoni_nccl_refuse_memory(const struct batoni_nccl *nccl,
                                            unsigned location, size_t tensor);
/* OK, or UNSUPPORTED: NCCL does not reach the buffer, and batoni_refuse has said why. */
enum baton_status
batoni_nccl_check_memory(const struct batoni_nccl *nccl,
                         const struct batoni_transfer *transfer);
/* The same of a list (nccl_lists.c). */
enum baton_status
batoni_nccl_check_list(const struct batoni_nccl *nccl,
                       const struct batoni_transfer *transfer);
/* One message of the lane, within a group of NCCL: that of the transfer, but for its buffer.  An
 * error makes the group's end return it.  Under the lock of the device. */
void batoni_nccl_call(const struct batoni_nccl *nccl,
                      const struct batoni_nccl_lane *lane,
                      const struct batoni_transfer *transfer, void *buffer,
                      size_t bytes, baton_stream stream);
/* Poll for asynchronous errors of the lanes, once in a while.  Returns the events. */
size_t batoni_nccl_poll(struct batoni_nccl *nccl);

/* ---- nccl_await.c ---- */

/* NCCL puts the work of a call on the streams in the background, in the lanes that are `used`.
 * SUCCESS: it is there.  IN_PROGRESS: it was not within the transport's patience, or an abort
 * has come.  Under the lock of the device. */
ncclResult_t batoni_nccl_await(struct batoni_nccl *nccl);

/* ---- nccl_self.c ---- */

/* The thread that creates, or destroys: what is needed for messages to oneself; OK, NOMEM,
 * CUDA (batoni_refuse has said why).  Free it; nothing of it is in a stream. */
enum baton_status batoni_nccl_self_make(struct batoni_nccl *nccl);
void batoni_nccl_self_free(struct batoni_nccl *nccl);
/* The driver, at the close: wait for the device, within the transport's patience, and free it. */
void batoni_nccl_self_close(struct batoni_nccl *nccl);
/* The driver, at an abort: let all streams go on that wait for a message to oneself.  False: some
 * that were launched are not done, and it is not that late; ask again. */
bool batoni_nccl_self_stop(struct batoni_nccl *nccl, uint64_t until_ns);
/* The driver: let those go on whose message is done.  Returns events. */
size_t batoni_nccl_self_test(struct batoni_nccl *nccl);

/* The rest: an enqueuer, under the order lock.  Match the transfers of one call.  OK; UNSUPPORTED,
 * AGAIN: batoni_refuse has said why. */
enum baton_status
batoni_nccl_self_match(const struct batoni_nccl *nccl,
                       struct batoni_transfer *const *transfers, size_t n,
                       struct batoni_nccl_match *match);
/* Of the index-th of its direction to oneself in the call. */
enum batoni_nccl_role
batoni_nccl_self_role(const struct batoni_nccl_match *match,
                      const struct batoni_transfer *transfer, size_t index);

/* Then, under the lock of the device too, and in this order.  The streams of the call (or
 * those that its detached operations follow) before the ends that are kept, ... */
enum baton_status batoni_nccl_self_gather(struct batoni_nccl *nccl,
                                          baton_stream stream);
/* Keep what is left.  BUSY: some are kept, and others could not be. */
enum baton_status
batoni_nccl_self_keep(struct batoni_nccl *nccl,
                      const struct batoni_nccl_match *match,
                      struct batoni_transfer *const *transfers, size_t n,
                      baton_stream *observe_p);
/* For each end that TAKES, the next one that is kept: the lane runs behind its call; its memory;
 * the group with both is on the lane. */
enum baton_status batoni_nccl_self_take(struct batoni_nccl *nccl,
                                        baton_stream lane);
void batoni_nccl_self_taken(const struct batoni_nccl *nccl, void **buffer_p,
                            size_t *bytes_p);
enum baton_status batoni_nccl_self_launched(struct batoni_nccl *nccl,
                                            baton_stream lane);
/* ... and behind them. */
enum baton_status batoni_nccl_self_hold(struct batoni_nccl *nccl,
                                        baton_stream stream);

/* ---- nccl_lock.c ---- */

#define BATONI_NCCL_DEVICES 64 /* more than that: UNSUPPORTED */
#define BATONI_NCCL_FOR_EVER UINT64_MAX

struct batoni_nccl_lock *batoni_nccl_lock_of(int device);
/* Take the lock of the device, and make the device this thread's.  OK; AGAIN (not by then, on
 * batoni_real_ns; may be FOR_EVER), INVALID (this thread has it), CUDA: nothing is held, and
 * batoni_refuse has said why. */
enum baton_status batoni_nccl_enter(struct batoni_nccl *nccl,
                                    struct batoni_memory_guard *guard,
                                    uint64_t until_ns);
/* The same if the lock is free.  AGAIN: it is not. */
enum baton_status batoni_nccl_try_enter(struct batoni_nccl *nccl,
                                        struct batoni_memory_guard *guard);
void batoni_nccl_leave(struct batoni_nccl *nccl,
                       const struct batoni_memory_guard *guard);
/* Make the device this thread's and call, without the lock: for calls of NCCL that free, during
 * which CUDA may wait for all streams of the device.  No other thread may use the communicators that
 * they free.  False: it was not called, since the device has failed. */
bool batoni_nccl_do_apart(struct batoni_nccl *nccl,
                          void (*fn)(struct batoni_nccl *));
/* The slot of the transport. */
enum baton_status batoni_nccl_lock(struct batoni_transport *transport,
                                   bool take_it);

/* ---- nccl_hello.c ---- */

/* The thread that creates. */
size_t batoni_nccl_hello_bytes(const struct batoni_nccl *nccl);
struct batoni_nccl_hello *batoni_nccl_hello_of(struct batoni_nccl *nccl,
                                               int rank);
/* Of the lane for lists. */
ncclUniqueId *batoni_nccl_lists_id(const struct batoni_nccl *nccl,
                                   struct batoni_nccl_hello *hello);
/* This rank's. */
void batoni_nccl_fill_hello(struct batoni_nccl *nccl);
/* The hellos of all ranks have come: check them.  OK, and what follows from them is set; or an
 * error, with its sentence, on all ranks. */
enum baton_status batoni_nccl_check_hellos(struct batoni_nccl *nccl);

/* ---- nccl_open.c ---- */

/* Free all but the lanes' communicators, which are gone. */
void batoni_nccl_free(struct batoni_nccl *nccl);

/* ---- nccl_rounds.c ---- */

/* What every communicator of NCCL is created with. */
void batoni_nccl_configure(const struct batoni_nccl *nccl,
                           struct batoni_nccl_config *config);
/* Fill in what this rank is going to tell the others.  Its sentence is the last one of this
 * thread (baton_last_error). */
void batoni_nccl_fill_word(const struct batoni_nccl *nccl,
                           struct batoni_nccl_word *word);
/* Refuse in the status of the lowest rank that has failed, and with its sentence: all ranks say
 * the same. */
enum baton_status batoni_nccl_refuse_failed(int rank,
                                            const struct batoni_nccl_word *word);

/* The worst state of the lanes: SUCCESS, IN_PROGRESS, or an error (*lane_p has it).  Only
 * those in use, if asked.  Under the lock of the device. */
ncclResult_t batoni_nccl_state(struct batoni_nccl *nccl, bool used_only,
                               struct batoni_nccl_lane **lane_p);
/* The lanes of messages, the one for puts and the one for lists; of some, comm is NULL. */
static inline unsigned
batoni_nccl_lanes_all(const struct batoni_nccl *nccl)
{
	return nccl->lanes_n + 2;
}
static inline struct batoni_nccl_lane *
batoni_nccl_lane_of_puts(const struct batoni_nccl *nccl)
{
	return &nccl->lanes[nccl->lanes_n];
}
static inline struct batoni_nccl_lane *
batoni_nccl_lane_of_lists(const struct batoni_nccl *nccl)
{
	return &nccl->lanes[nccl->lanes_n + 1];
}
/* An exchange over the lower transport.  PENDING, OK, or an error, with its sentence: it has
 * failed, and no other is possible. */
enum baton_status batoni_nccl_exchange(struct batoni_nccl *nccl, uint64_t what,
                                       const void *mine, size_t bytes,
                                       void *all);
/* Take part in a step of creation.  PENDING; OK; an error, with its sentence: `judged` says
 * whether all ranks have it, or the exchange has failed.  id: rank 0's, told with it; or NULL. */
enum baton_status batoni_nccl_do_work(struct batoni_nccl *nccl,
                                      const struct batoni_nccl_work *work);
enum baton_status batoni_nccl_tell(struct batoni_nccl *nccl, uint64_t what,
                                   const ncclUniqueId *id);
/* NCCL has returned an error, which this rank is going to tell the others. */
void batoni_nccl_note(struct batoni_nccl *nccl, const char *call,
                      const struct batoni_nccl_lane *lane, ncclResult_t result);
/* PENDING, OK, or an error: what the marks of these lanes, behind what was put there, say. */
enum baton_status batoni_nccl_await_lane(struct batoni_nccl *nccl,
                                         struct batoni_nccl_lane *lane);
/* A stream of the transport's.  apart: streams of the program wait for words until its work is
 * done.  Else: its work waits for peers.  OK, NOMEM, CUDA. */
enum baton_status batoni_nccl_stream_make(struct batoni_nccl *nccl, bool apart,
                                          baton_stream *stream_p);

/* ---- nccl_windows_open.c ---- */

/* A step of PUTS_*: PENDING (also when it goes on with the next), OK: all is over, and puts are
 * there or not. */
enum baton_status batoni_nccl_puts_step(struct batoni_nccl *nccl);
/* The lanes are destroyed or aborted: free what belongs to NCCL. */
void batoni_nccl_puts_reclaim(struct batoni_nccl *nccl);
void batoni_nccl_puts_free(struct batoni_nccl *nccl);

/* ---- nccl_puts.c ---- */

extern const struct batoni_native_puts_ops batoni_nccl_puts_ops;
/* Is a wait of NCCL for a peer's signals under way?  Any thread. */
bool batoni_nccl_puts_awaited(const struct batoni_nccl *nccl);
/* The driver, before the lanes are ended: wait for copies, within the patience. */
void batoni_nccl_puts_end(struct batoni_nccl *nccl);
/* The ends of kernels are not asked for any more. */
void batoni_nccl_puts_drop_marks(struct batoni_nccl *nccl);
/* How many blocks of batoni_alloc it has. */
long batoni_nccl_puts_blocks(const struct batoni_nccl *nccl);

/* ---- nccl_checked.c: of checked mode, or of lists ---- */

extern const struct batoni_path_ops batoni_nccl_checked_ops;
/* In plain mode, of lists alone: nccl->lists. */
extern const struct batoni_path_ops batoni_nccl_lists_ops;
/* Allocate what it needs, in so many blocks.  OK; NOMEM: free it all the same. */
#define BATONI_NCCL_CHECKED_BLOCKS 5
enum baton_status batoni_nccl_checked_create(struct batoni_nccl *nccl);
void batoni_nccl_checked_free(struct batoni_nccl *nccl);
/* The lower transport, closed, may still reach the memory: it stays. */
void batoni_nccl_checked_leak(struct batoni_nccl *nccl);
/* For the lower transport: it has ended this transfer. */
void batoni_nccl_checked_done(struct batoni_nccl *nccl,
                              struct batoni_transfer *transfer,
                              enum baton_status status);
/* This rank leaves: take what the others say, and let go of what they have abandoned. */
void batoni_nccl_checked_poll(struct batoni_nccl *nccl);
/* All ranks leave.  PENDING until the lower transport has nothing of this one any more, then OK. */
enum baton_status batoni_nccl_checked_leave(struct batoni_nccl *nccl);
/* The ends of kernels are not asked for any more. */
void batoni_nccl_checked_drop_marks(struct batoni_nccl *nccl);

/* ---- nccl_peers.c ---- */

/* The thread that creates.  OK, NOMEM. */
enum baton_status batoni_nccl_peers_make(struct batoni_nccl *nccl, int size);
void batoni_nccl_peer_meet(struct batoni_nccl *nccl, int rank,
                           const struct batoni_nccl_card *card);
/* Free the peers, as far as they were made. */
void batoni_nccl_peers_free(struct batoni_nccl *nccl);

/* ---- nccl_end.c ---- */

enum baton_status batoni_nccl_clear(struct batoni_transport *transport);
/* False: the stopper has not told all lanes yet. */
bool batoni_nccl_abort(struct batoni_path *path);
/* After an abort: NCCL puts nothing more on the streams of lanes. */
bool batoni_nccl_is_stopped(struct batoni_nccl *nccl);
void batoni_nccl_close(struct batoni_transport *transport, bool aborted);
/* Abort all lanes; waits for NCCL.  By batoni_nccl_do_apart. */
void batoni_nccl_abort_lanes(struct batoni_nccl *nccl);

#endif
