/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The types, checks and helpers of conformance cases.
 *
 * A case is one function, which every rank of a communicator runs at the same
 * time: ranks are threads of this process (local, the fakes) or processes (MPI).
 * The runner creates a communicator for each case and destroys it afterwards.
 *
 * A failed check does not return from the case: a rank that left early would block
 * the others in a sync.  It prints its line, rank and values; from then on this
 * case's waits have short limits, so that a lost message does not stall the run.
 *
 * Prove "not before" by cause, not by time: what a peer does after a sync cannot
 * have been seen before it.
 */
#ifndef CONFORM_HARNESS_H
#define CONFORM_HARNESS_H

#include <pthread.h>
#include <stdatomic.h>

#include "baton.h"

#define CONFORM_GATES 4
#define CONFORM_STREAMS 64
#define CONFORM_STREAMS_USUAL 4u
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define MS INT64_C(1000000)

/* Under a sanitizer loops are shortened and the largest cases skipped. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CONFORM_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define CONFORM_SANITIZED 1
#endif
#endif
#ifndef CONFORM_SANITIZED
#define CONFORM_SANITIZED 0
#endif

/* CONFORM_SHORT=1 in the environment: loops that only repeat take a tenth of their turns, and
 * the cases of more than 2 GiB are skipped.  tests/run sets it unless it runs --all; with --ci
 * one run of each kind in preset dev is not short.  What does not only repeat asks for conform_short
 * and keeps its kinds: a large message stays larger than any chunk or eager limit. */
bool conform_short(void);
/* n, or a tenth of it. */
int conform_turns(int n);

struct conform;

/* Flags of a case. */
#define CONFORM_BARE 1u          /* it makes its communicators itself */
#define CONFORM_STEP 2u          /* only calls make progress */
#define CONFORM_THREADS 4u       /* only where ranks are threads */
#define CONFORM_PROCESSES 8u     /* only where ranks are processes */
#define CONFORM_HOST_ISSUED 16u  /* not on stream-issued transports */
#define CONFORM_LONG 32u         /* not under a sanitizer */
#define CONFORM_TIMESTAMPS 64u   /* its communicator keeps timestamps */
#define CONFORM_HOST_DEVICE 128u /* only on the host device */
#define CONFORM_ALONE 256u /* not where puts and waits are stream-issued: it ends one */
/* A trait of backends: signals, puts and waits are stream-issued. */
#define CONFORM_STREAM_ISSUED_PUTS 512u
/* A trait of backends: ranks with an odd number are on the host device. */
#define CONFORM_TWO_DEVICES 1024u
/* A trait of backends: ranks meet by an id, and so have the same options. */
#define CONFORM_BY_ID 4096u
/* A trait of backends with a memory: buffers of messages are in host memory all the same. */
#define CONFORM_HOST_BUFFERS 2048u

struct conform_case {
	const char *name; /* a claim */
	void (*run)(struct conform *c);
	int ranks_min, ranks_max; /* 0: no bound */
	unsigned needs;           /* BATON_CAP_* */
	unsigned flags;           /* CONFORM_* */
	unsigned streams; /* of a rank that may not hold each other up; 0: one */
	/* The most streams of a rank; 0: CONFORM_STREAMS_USUAL.  They count where ranks share
	 * a device: no stream of one may hold up one of another. */
	unsigned makes;
	unsigned comms; /* with streams of their own that may wait at one time; 0: one */
	size_t memory;            /* free bytes that all ranks need together */
	uint32_t requests_max;    /* 0: the default */
	int64_t timeout_ns;       /* of its communicator */
};

/* { CASE(a_claim), .ranks_min = 2 }, and an empty one at the end of a list. */
#define CASE(function) .name = #function, .run = function
#define CASES_END { .name = NULL }

/* Kinds of memory. */
enum conform_kind {
	CONFORM_KIND_HOST, /* pageable */
	CONFORM_KIND_PINNED,
	CONFORM_KIND_MANAGED,
	CONFORM_KIND_DEVICE,
	CONFORM_KIND_POOL, /* of the device, and no other process can be given it */
	CONFORM_KIND_ALLOC, /* of baton_mem_alloc: for windows only */
	CONFORM_KINDS
};

/* Memory that the host may not touch as it likes, for the buffers of messages, and windows. */
struct conform_memory {
	/* Zeroed; of any kind but HOST and ALLOC.  NULL: there is none of that kind. */
	void *(*alloc)(enum conform_kind kind, size_t bytes);
	void (*free)(void *block);
	/* Either side may be any memory. */
	void (*copy)(void *to, const void *from, size_t bytes);
	/* Memory that the host must not touch, or that may be elsewhere (managed). */
	bool (*is_device)(const void *pointer);
};

/* A list of kinds that are taken in turn, so that ranks, and the buffers of one rank, differ.
 * CONFORM_WINDOWS in the environment is that of windows' parts, and CONFORM_BUFFERS that of
 * the buffers of messages and puts: names with commas between them, "device,host" (host,
 * pinned, managed, device, pool, alloc). */
struct conform_turn {
	enum conform_kind kinds[16];
	unsigned n; /* 0: the usual kind */
	_Atomic unsigned next;
};

/* What differs between ranks that are threads and ranks that are processes. */
struct conform_backend {
	const char *name;
	/* NULL: all is host memory, as on ranks on the host device. */
	const struct conform_memory *memory;
	unsigned traits; /* CONFORM_THREADS ... that cases may ask for */
	/* Streams of one device that do not hold each other up; 0: all. */
	unsigned queues;
	/* Streams of its own that a communicator of so many ranks has; NULL: none. */
	unsigned (*streams)(int ranks);
	/* Devices that ranks take in turn and share, as threads of one process do; 0: each
	 * rank has its own. */
	unsigned devices;
	/* Collective: a new communicator over all ranks. */
	enum baton_status (*create)(struct conform *c,
	                            const struct baton_comm_options *options,
	                            struct baton_comm **comm_p);
	void (*sync)(struct conform *c); /* returns when all ranks have called */
	/* Collective: the largest of all ranks' values. */
	int (*agree)(struct conform *c, int value);
};

/* A gate in a stream: a launched function that waits until the gate is opened. */
struct conform_gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool open;
	int inside; /* functions that have reached the gate */
};

struct conform_block;

/* One rank's view of the run.  It belongs to the rank's thread, except what helper
 * threads of a case use: checks (atomic), blocks and streams (lock). */
struct conform {
	const struct conform_backend *backend;
	const struct conform_memory *memory; /* this rank's, or NULL */
	struct conform_turn windows, buffers;
	void *ranks; /* the backend's */
	int rank, size;
	const struct conform_case *now;
	struct baton_comm *comm; /* NULL in CONFORM_BARE cases */
	baton_stream stream;     /* of this rank alone: NULL, the default stream,
	                            is shared by ranks that are threads */
	struct baton_comm_info info;
	_Atomic int failures; /* of this case */
	const char *skip; /* why it cannot run, or NULL; set by the case before it
	                     ends, to the same value on all ranks */
	_Atomic(const char *) file;
	_Atomic int line; /* where this rank was last seen */
	pthread_mutex_t lock;
	struct conform_block *blocks;
	baton_stream streams[CONFORM_STREAMS];
	int streams_count;
	struct conform_gate gates[CONFORM_GATES];
};

/* ---- checks ------------------------------------------------------------- */

struct conform *conform_at(struct conform *c, const char *file, int line);

/* A case of many alike steps has made some: the watchdog's limit begins again.  Any
 * thread. */
void conform_alive(void);
#define AT(c) conform_at(c, __FILE__, __LINE__)

bool conform_true(struct conform *c, const char *what, bool holds);
bool conform_equal(struct conform *c, const char *what, long long got,
                   long long want);
bool conform_status(struct conform *c, const char *what,
                    enum baton_status want, enum baton_status got);
bool conform_refused(struct conform *c, const char *what,
                     enum baton_status want, enum baton_status got,
                     const char *words);

#define CHECK(c, condition) conform_true(AT(c), #condition, condition)
#define CHECK_EQ(c, got, want)                                                \
	conform_equal(AT(c), #got, (long long)(got), (long long)(want))
#define CHECK_STATUS(c, want, call) conform_status(AT(c), #call, want, call)
#define CHECK_OK(c, call) conform_status(AT(c), #call, BATON_OK, call)
/* Refused with that status, and baton_last_error contains each of the words (one
 * string, separated by blanks). */
#define CHECK_REFUSED(c, want, call, words)                                   \
	conform_refused(AT(c), #call, want, call, words)

/* ---- patterns and memory ------------------------------------------------ */

/* Byte i is (131 * seed + i) mod 251. */
void conform_fill(void *buffer, size_t bytes, unsigned seed);
bool conform_holds(struct conform *c, const void *buffer, size_t bytes,
                   unsigned seed);
bool conform_all(struct conform *c, const void *buffer, size_t bytes,
                 unsigned char value);
#define CHECK_FILLED(c, ...) conform_holds(AT(c), __VA_ARGS__)
#define CHECK_ALL(c, ...) conform_all(AT(c), __VA_ARGS__)

/* Zeroed; freed after the case has ended and its communicator was destroyed. */
void *conform_alloc(struct conform *c, size_t bytes);
/* Called by the runner after the communicator was destroyed. */
void conform_free_blocks(struct conform *c);

/* Buffers of messages, and windows, are in the memory of the backend.  Checks take them as they
 * are; only these write and read them otherwise.  (Not all case files keep to this: those that
 * do run on device memory too.) */
void *conform_message(struct conform *c, size_t bytes); /* as conform_alloc */
/* As conform_alloc, of that kind; host memory where the rank has none. */
void *conform_alloc_kind(struct conform *c, enum conform_kind kind, size_t bytes);
/* As conform_message, filled. */
void *conform_filled(struct conform *c, size_t bytes, unsigned seed);
void conform_write(struct conform *c, void *buffer, size_t bytes, unsigned seed);
void conform_set(struct conform *c, void *buffer, unsigned char value,
                 size_t bytes);
/* Either side may be in host memory. */
void conform_copy(const struct conform *c, void *to, const void *from,
                  size_t bytes);
/* Are these the bytes at `want`, which is host memory? */
bool conform_same(struct conform *c, const void *buffer, const void *want,
                  size_t bytes);
#define CHECK_SAME(c, ...) conform_same(AT(c), __VA_ARGS__)
/* The kind whose turn it is; `usual` where the environment names none. */
enum conform_kind conform_next_kind(const struct conform *c,
                                    struct conform_turn *turn,
                                    enum conform_kind usual);
/* CONFORM_WINDOWS and CONFORM_BUFFERS.  The runner. */
void conform_read_kinds(struct conform *c);

/* A small generator, seeded by the case: the same numbers in every run. */
uint32_t conform_random(uint64_t *state);

/* ---- operations --------------------------------------------------------- */

/* BATON_OP_DETACHED and nothing else. */
extern const struct baton_op_options conform_detached;

/* Bytes on the case's communicator; the call is checked. */
baton_request conform_send(struct conform *c, const void *buffer, size_t bytes,
                           int peer, int tag, baton_stream stream,
                           const struct baton_op_options *options);
baton_request conform_recv(struct conform *c, void *buffer, size_t bytes,
                           int peer, int tag, baton_stream stream,
                           const struct baton_op_options *options);
#define SEND(c, ...) conform_send(AT(c), __VA_ARGS__)
#define RECV(c, ...) conform_recv(AT(c), __VA_ARGS__)

/* Wait for the end and release; it must have ended as wanted. */
bool conform_finish(struct conform *c, enum baton_status want,
                    baton_request *request_p,
                    struct baton_completion *completion_p);
#define FINISH(c, want, request_p)                                            \
	conform_finish(AT(c), want, request_p, NULL)
#define FINISH_AS(c, want, request_p, completion_p)                           \
	conform_finish(AT(c), want, request_p, completion_p)
void conform_finish_all(struct conform *c, baton_request *requests, size_t n);
#define FINISH_ALL(c, requests, n) conform_finish_all(AT(c), requests, n)

/* The time limit of a wait for something that must come. */
int64_t conform_patience(struct conform *c);

/* For loops that poll: for (int64_t t = conform_begin(); ...;) ends when the time
 * limit has passed, which is a failure. */
int64_t conform_begin(void);
bool conform_still(struct conform *c, int64_t begin);
#define STILL(c, begin) conform_still(AT(c), begin)

/* A stream that the runner destroys. */
baton_stream conform_stream(struct conform *c);

/* Returns when all ranks have called. */
void conform_sync(struct conform *c);

/* Exchange a few bytes with every other rank: the communicator works. */
void conform_sound(struct conform *c);

/* Rank 0 makes three sends to rank 1, of which the second ends before it is issued and never
 * arrives: by its deadline, which these options have; NULL: canceled. */
void conform_lose_unissued(struct conform *c,
                           const struct baton_op_options *options);

/* Another communicator of all ranks; the caller destroys it.  Collective. */
struct baton_comm *conform_comm(struct conform *c,
                                const struct baton_comm_options *options);

/* The same in the place of the case's, which is returned: the caller destroys it, or
 * puts it back by RESTORE, which destroys the other one. */
struct baton_comm *conform_exchange(struct conform *c,
                                    const struct baton_comm_options *options);
void conform_restore(struct conform *c, struct baton_comm *first);
#define RESTORE(c, first) conform_restore(AT(c), first)

/* The neighbours in the ring of all ranks. */
int conform_next(const struct conform *c);
int conform_previous(const struct conform *c);
/* Rank 0 and 1, 2 and 3, ...; -1 for one that is left over. */
int conform_partner(const struct conform *c);

/* Each peer has one path of messages, and together these are the query's. */
void conform_message_paths(struct conform *c);
#define MESSAGE_PATHS(c) conform_message_paths(AT(c))

/* Functions to launch.  count: arg is an _Atomic int, and one is added. */
void conform_nothing_fn(void *arg);
void conform_count_fn(void *arg);

/* ---- threads ------------------------------------------------------------ */

/* A thread that waits for the end of a request, which stays the caller's.  BEGUN returns
 * when it is there. */
struct conform_waiter {
	pthread_t thread;
	baton_request request;
	enum baton_status status;
	_Atomic bool begun;
};

bool conform_waiter_start(struct conform *c, struct conform_waiter *waiter,
                          baton_request request);
void conform_waiter_begun(struct conform *c,
                          const struct conform_waiter *waiter);
void conform_waiter_join(struct conform *c, enum baton_status want,
                         struct conform_waiter *waiter);
#define WAITER_START(c, ...) conform_waiter_start(AT(c), __VA_ARGS__)
#define WAITER_BEGUN(c, waiter) conform_waiter_begun(AT(c), waiter)
#define WAITER_JOIN(c, ...) conform_waiter_join(AT(c), __VA_ARGS__)

/* ---- gates -------------------------------------------------------------- */

/* Launch the closed gate on the stream, and open it.  The runner opens those
 * that are still closed at the end of the case. */
void conform_gate_launch(struct conform *c, int gate, baton_stream stream);
void conform_gate_open(struct conform *c, int gate);
/* Wait until a stream has reached the gate. */
void conform_gate_reached(struct conform *c, int gate);

/* ---- time --------------------------------------------------------------- */

/* Stop the engine's clock (deadlines) for this process, and advance it by hand.
 * The runner releases it at the end of the case. */
void conform_clock_stop(void);
void conform_clock_advance(int64_t ns);
void conform_clock_release(void);

/* ---- the suite ---------------------------------------------------------- */

extern const struct conform_case conform_p2p[];
extern const struct conform_case conform_length[];
extern const struct conform_case conform_order[];
extern const struct conform_case conform_any[];
extern const struct conform_case conform_any_tag[];
extern const struct conform_case conform_any_order[];
extern const struct conform_case conform_any_mix[];
extern const struct conform_case conform_probe[];
extern const struct conform_case conform_group[];
extern const struct conform_case conform_args[];
extern const struct conform_case conform_timeout[];
extern const struct conform_case conform_cancel[];
extern const struct conform_case conform_abort[];
extern const struct conform_case conform_request[];
extern const struct conform_case conform_wait[];
extern const struct conform_case conform_queue[];
extern const struct conform_case conform_streams[];
extern const struct conform_case conform_life[];
extern const struct conform_case conform_room[];
extern const struct conform_case conform_signal[];
extern const struct conform_case conform_waits[];
extern const struct conform_case conform_window[], conform_gets[];
extern const struct conform_case conform_puts[], conform_puts_ends[];
extern const struct conform_case conform_programs[];
extern const struct conform_case conform_tensors[], conform_tensors_differ[];
extern const struct conform_case conform_tensors_life[];
extern const struct conform_case conform_blocks[];
extern const struct conform_case conform_plan[];
extern const struct conform_case conform_plan_onesided[];
extern const struct conform_case conform_check[];
extern const struct conform_case conform_barrier[];
extern const struct conform_case conform_split[];
/* Not of the suite: for backends with a memory. */
extern const struct conform_case conform_memory[];
/* The fake device's own. */
extern const struct conform_case conform_sick[];
/* For paths of both kinds at once. */
extern const struct conform_case conform_mixed[];

#endif
