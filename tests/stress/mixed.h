/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A seeded random load in which nothing is agreed on, and every completion is accounted for.
 *
 * stress.c checks what arrives: both sides draw the same plan.  Here each thread does what it
 * likes: messages that may never meet, receives from any rank and of any tag, probes, puts, gets, flushes, atomic operations,
 * signals, waits, barriers, lists, groups that are refused or abandoned, plans (empty ones too), joins, functions; with requests, with queues that threads share and that
 * are destroyed meanwhile, with both or neither; with deadlines of a nanosecond, cancels, releases, an
 * abort.  What has to hold is the life of each operation:
 *
 *   - one that was accepted ends, once: by its request, which then stays as it is, or by one
 *     completion of its queue; in a status that something asked for;
 *   - one that was refused, or whose group was, never does;
 *   - when it has ended and is not lent, or is lent no more, its buffer is not written;
 *   - a receive that ends in OK has a message whole; one of a message that a probe has found has that one, and
 *     ends as what it was given for it allows;
 *   - when all have ended, all records of the pool are free: the communicator can be destroyed.
 *
 * A run is one communicator, from its creation to its destroy.  In a *sound* run all operations end by
 * themselves, by deadlines and cancels, and no abort hides what was lost; in the others ranks
 * abort at any time.
 *
 * mixed.c        a run; mixed_local.c and mixed_mpi.c are the main programs: threads, processes
 * mixed_steps.c  what a thread does
 * mixed_slot.c   an operation, from its call to its end, and its buffer
 * mixed_probes.c messages that probes find, and their receives
 * mixed_children.c  communicators made from that of the run
 * mixed_memory.c memory of the host, and of GPUs
 */
#ifndef MIXED_H
#define MIXED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "baton.h"
#include "random.h"

enum {
	RANKS_MAX = 8,
	THREADS = 2,  /* of a rank */
	STREAMS = 3,  /* of a thread */
	SLOTS = 40,   /* of a thread: operations that it has at a time */
	QUEUES = 2,   /* of a rank */
	QUEUE_ENTRIES = 24,
	WINDOWS = 2,
	WINDOW_BYTES = 300000,
	FIXED_BYTES = 64, /* of messages where both sides must be of one length */
	LIST_MAX = 3,
	MEMBERS_MAX = 6, /* of a group, or a plan */
	INDICES = 4,
	CONTEXTS = 2,
	TAGS = 3,
	FOUND = 6, /* of a rank: messages that were found and not received */
	GUARD = 64,      /* behind a buffer, where nobody writes */
	UNTOUCHED = 0xd7 /* as memory is that nobody may write */
};

struct mixed_options {
	uint64_t seed;
	int runs;    /* 0: as many as there is time for */
	int seconds; /* 0: no limit */
	int ranks;
	int steps; /* of each thread in a run */
	bool faults; /* a call of the driver or of NCCL fails in each run */
	bool talks;  /* a line for each run */
	bool near;   /* without MPI ranks are processes too */
	bool far;    /* ranks of odd numbers say that they are of another node */
};

/* What the ranks of a job are. */
struct mixed_job {
	struct mixed_options options;
	/* The largest value of all ranks; makes progress meanwhile, if there is a communicator. */
	int (*agree)(int rank, int value, struct baton_comm *comm_or_null);
	/* The first failure: all ranks end. */
	void (*end_job)(void);
	_Atomic uint64_t operations, completions, lent, found, aborted; /* of all runs, to be printed */
};

/* --seed N, --runs N, --seconds N, --ranks N, --steps N, --faults, --talk, --near, --far. */
struct mixed_options mixed_options(int argc, char **argv, int ranks);
/* The options of the communicator of a run, drawn from its seed. */
struct baton_comm_options mixed_comm_options(uint64_t seed);
/* The seed of run i. */
uint64_t mixed_seed(const struct mixed_options *options, int run);

/* This rank's part of a run, whose communicator has just been created: to its end. */
void mixed_rank(struct mixed_job *job, uint64_t seed, struct baton_comm *comm);

/* ---- mixed_memory.c ---- */

enum location { PAGEABLE, PINNED, DEVICE, LOCATIONS };

/* Once, for the ranks of this process: load the driver's simulator, if BATON_CUDA_LIBRARY names it.
 * False: it is none. */
bool memory_begin(int first, int ranks);
/* The simulators have seen no rule broken. */
bool memory_is_well(void);
/* Let the n-th call from now fail, of the driver's or of NCCL's. */
void memory_fail(uint64_t seed);
/* Can streams wait for words by themselves, and not in host functions? */
bool memory_streams_wait(void);
bool memory_is_there(enum location location);
/* A kernel of NCCL's runs, in which lent buffers may be used. */
bool memory_is_used(void);
/* For this rank's GPU, up to WINDOW_BYTES; NULL: none is left there. */
unsigned char *memory_take(enum location location, int rank, size_t bytes);
void memory_give(enum location location, int rank, unsigned char *memory);
/* Somebody may use it for as long as the process lives. */
void memory_leave(enum location location, unsigned char *memory);
void memory_write(enum location location, unsigned char *to, const unsigned char *from,
                  size_t bytes);
void memory_read(enum location location, unsigned char *to, const unsigned char *from,
                 size_t bytes);

/* ---- a rank, and its threads ---- */

struct rank;

enum slot_state {
	FREE,
	CALLED,  /* the call runs, or its group is open */
	PENDING,
	TOLD,    /* a queue has told of its end; the owner looks */
	LENT,    /* it has ended, and its request says so */
	UNSEEN,  /* nothing tells of its end, or of that of its loan */
	WATCHED  /* over: its buffer is to stay as it is */
};

/* A message that a probe has found, and how it is to be received.  Under the rank's lock, but for the thread that
 * holds it. */
struct found {
	enum { NOT_FOUND, KEPT, HELD } state; /* HELD: by a thread, or an open group */
	baton_message message;
	struct baton_message_info info;
};

/* What a call is about, but for its options and how it is told of. */
struct call {
	enum baton_operation kind;
	int peer, tag;
	bool list;
	bool silent; /* a put without a signal */
	size_t bytes;
	baton_stream stream;
	struct found *found;      /* a receive of this, or NULL */
	enum baton_status wanted; /* how that ends, if nothing ends it early */
};

/* One operation.  The owner's thread alone, but for what a thread that polls its queue needs. */
struct slot {
	_Atomic int state; /* enum slot_state; changed under the rank's lock */
	uint64_t tag; /* user_data: thread, slot, use */
	struct baton_completion end;

	baton_request request;
	int queue;           /* -1: none */
	unsigned queue_life; /* which of the queues of that number */
	enum baton_operation kind;
	bool receives, plain;
	uint64_t word; /* what an atomic operation has found */
	bool timed, cancelled; /* it may end in TIMEOUT, CANCELED */
	bool refused_go;       /* in INVALID: input_signal is false */
	bool any_end;          /* a launch of a plan ends as one of its operations */
	bool lost_sight;       /* UNSEEN: it was lent when a queue told of it */
	bool seen;             /* its request has told of an end, in this status: */
	enum baton_status status;
	enum location location;
	unsigned char *memory; /* NULL: it needs none */
	size_t bytes;          /* of it, and GUARD behind them */
	struct baton_tensor tensors[LIST_MAX];
	bool go, told;         /* input_signal, output_signal */
	struct found *found;   /* it receives this: until the call, or its group, is taken */
	bool was_found;        /* it receives what these say */
	struct baton_message_info info;
	enum baton_status wanted;
};

struct hand {
	struct rank *rank;
	int number;
	uint64_t draws;
	pthread_t thread;
	baton_stream streams[STREAMS];
	struct slot slots[SLOTS];
	unsigned uses[SLOTS];
	struct baton_plan *plan;
	unsigned char *plan_memory;
	enum location plan_location;
	_Atomic unsigned functions_run;
	unsigned functions;
};

struct rank {
	struct mixed_job *job;
	struct baton_comm *comm;
	struct baton_comm_info info;
	uint64_t seed;
	int rank, size;
	bool sound;   /* nobody aborts in this run */
	bool aborts;  /* this rank does, at a step of its first thread */
	bool faults;
	bool over_mpi;
	bool nccl;    /* no pageable memory */
	bool fixed;   /* NCCL, not checked: the sides of a message are of one length, and all meet */
	bool onesided;
	bool words; /* this processor reaches all windows: no atomic operation is refused */
	bool joins; /* a join that stands holds up no trigger */
	unsigned probes; /* of 100 and so many steps */
	bool leaves; /* a sound run: what was found and not received is left to the destroy */
	_Atomic bool aborted;
	pthread_mutex_t lock;
	struct hand hands[THREADS];
	/* A queue may be destroyed by any thread: then no other call on it may run. */
	pthread_rwlock_t queues_lock;
	struct baton_queue *queues[QUEUES];
	unsigned queue_lives[QUEUES];
	struct found found[FOUND];
	struct baton_window *windows[WINDOWS];
	unsigned char *parts[WINDOWS];
	enum location part_locations[WINDOWS];
	bool parts_ours[WINDOWS]; /* of baton_mem_alloc */
};

/* Print the failure, with what is needed to have it again, and end the job. */
__attribute__((format(printf, 2, 3), noreturn)) void
mixed_fail(const struct rank *rank, const char *format, ...);

static inline bool
one_in(struct hand *hand, unsigned n)
{
	return draw(&hand->draws) % n == 0;
}

/* ---- mixed_slot.c ---- */

/* A slot whose operation is over, with a buffer of so many bytes (0: none); NULL: none is free. */
struct slot *slot_take(struct hand *hand, enum baton_operation kind,
                       size_t bytes);
/* Draw how its end is told of, and its deadline; what the call takes.  Holds queues_lock until
 * slot_called. */
struct baton_op_options slot_options(struct hand *hand, struct slot *slot,
                                     bool detached, baton_request **request_p);
/* The call has returned.  In a group (the call was OK) the slot stays CALLED, and slot_begun is called at
 * the group's end. */
void slot_called(struct hand *hand, struct slot *slot, enum baton_status status,
                 bool in_group);
void slot_begun(struct hand *hand, struct slot *slot, enum baton_status status);
/* Look at all, and let go of what is over.  Returns how many are pending. */
unsigned slots_look(struct hand *hand);
/* Of its requests: cancel, wait for a moment, or let go of this one. */
void slot_cancel(struct hand *hand, struct slot *slot);
void slot_release(struct hand *hand, struct slot *slot);
/* Take what is in the rank's queues. */
void queues_poll(struct rank *rank);
bool slots_are_lent(const struct hand *hand);
/* The communicator is gone: nothing may be pending, and nothing was written.  leaks: memory that may be
 * lent is in use for as long as the process lives. */
void slots_end(struct hand *hand, bool leaks);

/* ---- mixed_probes.c ---- */

void step_probe(struct hand *hand);
/* Make the call a receive of a message that was found, if there is one. */
void found_call(struct hand *hand, struct call *call);
enum baton_status found_make(struct hand *hand, const struct call *call,
                             struct slot *slot,
                             const struct baton_op_options *op,
                             baton_request *request_p);
/* The receive was enqueued, or was not and the message may be received.  Under the rank's lock. */
void found_received(struct rank *rank, struct found *found, bool enqueued);
/* All operations have ended: discard what was found; or, behind an abort, see that none of it is received. */
void found_end(struct rank *rank, bool aborted);

/* ---- mixed_children.c ---- */

/* Communicators of the ranks of this one; in a sound run.  Collective. */
void children_come_and_go(const struct rank *rank);

/* ---- mixed_steps.c ---- */

void hand_step(struct hand *hand);

#endif
