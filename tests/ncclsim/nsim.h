/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's own header; programs use ncclsim.h.
 *
 * Ranks meet in a segment of shared memory whose name is in the unique id, whether they
 * are threads or processes (nsim_world.c).  It begins as zeros and is used by atomics
 * alone, so that there is no lock to die with.  Its name is gone once all ranks have it.
 *
 * A group becomes a `work` (nsim_group.c): jobs (creations, connections), for which the
 * host blocks or a thread of its own goes on, then one kernel for each communicator.  A
 * kernel (nsim_kernel.c) moves the bytes of its operations through the rings of the
 * segment, in its stream's turn and in the communicator's: kernels of a communicator run
 * one after another.
 *
 * Threads: nsim_lock guards what a process has of its own (settings, faults, counters, the
 * lists, who is in a call).  Fields of a communicator that kernels or background threads
 * touch are atomic.  Neither kernels nor `gone` take the lock: they run under cudasim's.
 * What is waited for is polled, in naps: it may be in another process.
 *
 * One-sided operations (nsim_signal.c) go through a second ring of the pair.  An agent, a
 * thread of each communicator that has them, writes what arrives into the windows of its
 * rank and counts the signals.
 *
 * A communicator is never freed, so that a stale handle is found.
 */
#ifndef NSIM_H
#define NSIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "cudasim.h"
#include "ncclsim.h"
#include "simulator.h"

/* ---- what is exported ---- */

#define NSIM_EXPORT __attribute__((visibility("default")))

/* Of NCCL, beside what Baton uses. */
#define NSIM_FUNCTIONS(X)                                                     \
	X(comm_init_rank, ncclCommInitRank, 22800, ncclResult_t,              \
	  (ncclComm_t *, int, ncclUniqueId, int))

#define NSIM_PLAIN(X)                                                         \
	BATONI_NCCL_FUNCTIONS(X)                                              \
	BATONI_NCCL_OPTIONAL_REVOKE(X)                                        \
	NSIM_FUNCTIONS(X)
#define NSIM_ALL(X) NSIM_PLAIN(X) BATONI_NCCL_OPTIONAL_SIGNALS(X)

#define NSIM_PROTOTYPE(name, symbol, since, result, parameters)               \
	NSIM_EXPORT result symbol parameters;
NSIM_PLAIN(NSIM_PROTOTYPE)
#undef NSIM_PROTOTYPE
#define NSIM_PROTOTYPE(result, name, parameters)                              \
	NSIM_EXPORT result ncclsim_##name parameters;
NCCLSIM_CONTROLS(NSIM_PROTOTYPE)
#undef NSIM_PROTOTYPE

enum nsim_function {
#define NSIM_NUMBER(name, symbol, since, result, parameters) NSIM_##symbol,
	NSIM_ALL(NSIM_NUMBER)
#undef NSIM_NUMBER
	NSIM_JOB,
	NSIM_KERNEL,
	NSIM_THREAD,
	NSIM_FUNCTIONS_N
};

/* ---- settings ---- */

/* X(name, default, least, greatest) */
#define NSIM_SETTINGS(X)                                                      \
	X(version, 23007, 22809, 23203)                                       \
	X(seed, 0, 0, 2147483647)                                             \
	X(delay_us, 0, 0, 1000000)                                            \
	X(eager, 0, 0, 1)                                                     \
	X(slow, 1, 0, 1)                                                      \
	X(notice, 0, 0, 1)                                                    \
	X(frees, 1, 0, 1)                                                     \
	X(duplicates, 0, 0, 1)                                                \
	X(room, 0, 0, 1000000)                                                \
	X(per_thread, 0, 0, 1)                                                \
	X(threads, 0, 0, 1)                                                   \
	X(order, 0, 0, 1)                                                     \
	X(launches, 1, 0, 1)                                                  \
	X(linger, 0, 0, 100000000)                                            \
	X(sockets, 0, 0, 1)                                                   \
	X(abort, 0, 0, 1)

struct nsim_settings {
#define NSIM_SETTING(name, value, least, greatest) _Atomic long name;
	NSIM_SETTINGS(NSIM_SETTING)
#undef NSIM_SETTING
};

extern struct nsim_settings nsim_set;
extern struct simulator nsim_simulator; /* under nsim_lock; its random numbers: nsim_core.c */
extern pthread_mutex_t nsim_lock;
extern const struct cudasim *nsim_cuda;

/* ---- the segment ---- */

enum {
	NSIM_RANKS_MAX = 16,
	NSIM_RING = 65536,
	NSIM_HEAD = 8, /* bytes before each message: its length */
	NSIM_EXCHANGES = 8,
	NSIM_ID = 64,
	NSIM_PUTS = 16384, /* bytes of the ring for puts */
	NSIM_SIGNALS = 16, /* contexts times indices */
	NSIM_CTAS = 32, /* of a kernel, where nothing says less */
	NSIM_CTAS_MAX = 64,
};

/* From one rank to one other, or to itself. */
struct nsim_link {
	_Atomic unsigned joined; /* 1: the source has connected, 2: the target */
	/* Bytes that ever were; the source stores `written`, the target `read`, each
	 * with release. */
	_Atomic uint64_t written, read;
	unsigned char ring[NSIM_RING];
	/* The same for puts: each a struct nsim_put and its bytes. */
	_Atomic uint64_t put_written, put_read;
	unsigned char puts[NSIM_PUTS];
	_Atomic uint64_t signals[NSIM_SIGNALS]; /* that arrived; release */
};

struct nsim_put {
	int window; /* its number; -1: a signal alone */
	int signal;
	uint64_t offset, bytes;
};

enum nsim_presence { NSIM_ABSENT, NSIM_THERE, NSIM_FINALIZED, NSIM_GONE };

struct nsim_member {
	_Atomic unsigned presence; /* release: the rest is filled in */
	_Atomic int pid, device;
	_Atomic uint64_t host;
};

/* A collective among all ranks: the number-th uses the slot number % NSIM_EXCHANGES. */
struct nsim_exchange {
	_Atomic unsigned arrived;
	_Atomic int colour[NSIM_RANKS_MAX], key[NSIM_RANKS_MAX];
};

struct nsim_segment {
	_Atomic int ranks;
	_Atomic int joined; /* ranks; one more: its name is gone */
	_Atomic int finalized;
	struct nsim_member members[NSIM_RANKS_MAX];
	struct nsim_exchange exchanges[NSIM_EXCHANGES];
	struct nsim_link links[]; /* source * ranks + target */
};

/* A segment as this process has it: one mapping for all of its ranks. */
struct nsim_map {
	struct nsim_map *next;
	char id[NSIM_ID];
	struct nsim_segment *segment;
	size_t bytes;
	unsigned refs;
};

/* ---- communicators ---- */

struct ncclComm {
	struct ncclComm *next; /* of all that ever were; lock */
	struct ncclComm *next_aborted; /* of its thread's group */
	bool live;             /* lock */
	unsigned calls;        /* that are under way; lock */
	pthread_t caller;      /* who makes them; lock */
	int rank, ranks, device;
	bool blocking, finalized, revoked;
	CUcontext context;
	char id[NSIM_ID];
	struct nsim_map *map; /* NULL: not there yet */
	unsigned send_to, recv_from; /* connected, by peer's bit */
	unsigned exchanges, shrinks;
	uint64_t launched; /* kernels */
	unsigned ctas;     /* of each kernel of messages */
	bool ordered;      /* its kernels begin in the order of all launches of the device */
	bool unseen;       /* a group that nothing has been asked of since */
	long long bytes;   /* of the device's memory; nsim_lock */
	/* IN_PROGRESS while work is done in the background; errors stay. */
	_Atomic ncclResult_t result;
	_Atomic bool working; /* there is such work */
	_Atomic bool stop;    /* kernels and jobs end where they are */
	_Atomic uint64_t ended; /* kernels, in order */
	_Atomic unsigned pending; /* kernels launched and not gone */
	_Atomic unsigned running; /* of these, begun and not ended */
	/* one-sided */
	bool rma;           /* its collective has been made, or is being */
	int signals, contexts;
	bool eager_rma;     /* at creation */
	uint64_t waited[NSIM_RANKS_MAX][NSIM_SIGNALS]; /* by waits so far */
	bool has_agent;
	pthread_t agent;
	_Atomic bool agent_stops;
};

/* ---- nsim_core.c ---- */

void nsim_violation(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
/* What ncclGetLastError says. */
ncclResult_t nsim_error(ncclResult_t result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
const char *nsim_last_error(void);
void nsim_maybe_nap(unsigned odds); /* if delays are asked for */
static inline void *
nsim_alloc(size_t n, size_t bytes)
{
	return simulator_alloc(&nsim_simulator, n, bytes);
}
/* Counts the use.  SUCCESS, or what it has to return. */
ncclResult_t nsim_use(enum nsim_function function);
/* The same, with what is checked of each call for a communicator.  SUCCESS: nsim_leave
 * follows. */
ncclResult_t nsim_enter(ncclComm_t comm, enum nsim_function function);
void nsim_leave(ncclComm_t comm);
/* The same of one that frees the communicator: it launches nothing, and other threads may be in
 * calls for the device. */
ncclResult_t nsim_enter_apart(ncclComm_t comm, enum nsim_function function);
void nsim_leave_apart(ncclComm_t comm);
/* A group holds the device of its calls from the first to its end. */
void nsim_hold_device(int device);
void nsim_release_device(int device);
uint64_t nsim_hash(const void *bytes, size_t n, uint64_t seed);
size_t nsim_type_bytes(ncclDataType_t type);

/* ---- nsim_world.c ---- */

ncclResult_t nsim_map_open(const char *id, int ranks, struct nsim_map **map_p);
void nsim_map_close(struct nsim_map *map, int ranks);
struct nsim_link *nsim_link(ncclComm_t comm, int source, int target);
/* The rank is there; false: another has its place. */
bool nsim_join(ncclComm_t comm);
bool nsim_all_joined(ncclComm_t comm);
/* Two ranks have one GPU, and may not. */
bool nsim_shares_gpu(ncclComm_t comm);
void nsim_say(ncclComm_t comm, enum nsim_presence presence);
bool nsim_lost_peer(ncclComm_t comm);
void nsim_exchange_give(ncclComm_t comm, unsigned number, int colour, int key);
/* NULL: not all have given yet. */
const struct nsim_exchange *nsim_exchange_look(ncclComm_t comm, unsigned number);

/* ---- nsim_comm.c ---- */

/* A new communicator on the current device, or the parent's; in the lists, and empty. */
ncclResult_t nsim_comm_new(ncclComm_t parent, const ncclConfig_t *config,
                           ncclComm_t *comm_p);
void nsim_comm_close(ncclComm_t comm);
/* The same for one whose kernels have been told to end, when they have. */
void nsim_comm_reclaim(ncclComm_t comm);
/* Its state allows a call.  SUCCESS, or what the call returns. */
ncclResult_t nsim_comm_ready(ncclComm_t comm);
/* Begins an operation: counts the use, enters, and checks the state.  SUCCESS: nsim_leave
 * follows.  Anything else: the group is told, and the call returns it. */
ncclResult_t nsim_comm_begin(ncclComm_t comm, enum nsim_function function);
/* Its asynchronous error from now on, if it has none yet. */
void nsim_comm_fail(ncclComm_t comm, ncclResult_t result);

/* ---- nsim_group.c ---- */

enum nsim_job_kind {
	NSIM_INIT,
	NSIM_SPLIT,
	NSIM_SHRINK,
	NSIM_WINDOW,
	NSIM_FINALIZE,
	NSIM_REVOKE,
	NSIM_RMA
};

struct nsim_job {
	struct nsim_job *next;
	enum nsim_job_kind kind;
	ncclComm_t comm;   /* its state, and that of */
	ncclComm_t parent; /* NULL: it has none */
	int state;
	bool over;
	bool drains;     /* a shrink: the parent's kernels end first */
	unsigned number; /* of the exchange */
	int colour, key;
	ncclWindow_t window, *window_p;
};

enum nsim_op_kind { NSIM_SEND, NSIM_RECV, NSIM_PUT, NSIM_WAIT };

struct nsim_op {
	enum nsim_op_kind kind;
	int peer;
	uint64_t bytes;
	CUdeviceptr at;
	struct nsim_put put; /* window, signal and offset, of a put */
	int signal;          /* of a wait, */
	uint64_t count;      /* and how many there have to be in all */
};

/* What a group asks of one communicator. */
struct nsim_plan {
	struct nsim_plan *next;
	ncclComm_t comm;
	struct nsim_op *ops;
	size_t ops_n, ops_max;
	CUstream *streams;
	size_t streams_n;
};

/* Takes the job, the operation, or the end; a group of their own if there is none. */
ncclResult_t nsim_group_job(ncclComm_t comm, const struct nsim_job *job);
ncclResult_t nsim_group_op(ncclComm_t comm, const struct nsim_op *op,
                           CUstream stream);
ncclResult_t nsim_group_abort(ncclComm_t comm);
/* A call within a group fails: so does the group. */
ncclResult_t nsim_group_refuse(ncclResult_t result);
/* Around several. */
void nsim_group_begin(void);
ncclResult_t nsim_group_finish(void);
/* nsim_job.c: a step of the job: SUCCESS, IN_PROGRESS (call again), or its error. */
ncclResult_t nsim_job_step(struct nsim_job *job);
/* Alone, to its end. */
ncclResult_t nsim_job_run(struct nsim_job *job);

/* ---- nsim_kernel.c ---- */

ncclResult_t nsim_kernel_launch(struct nsim_plan *plan);
/* Bytes at a place of a ring, which may be the end and the beginning of it. */
void nsim_ring_put(unsigned char *ring, size_t size, uint64_t at,
                   const void *from, size_t n);
void nsim_ring_get(const unsigned char *ring, size_t size, uint64_t at, void *to,
                   size_t n);

/* ---- nsim_gpu.c ---- */

/* What a kernel takes of its GPU beside its stream's turn. */
struct nsim_share {
	int device;
	unsigned need, has, all; /* CTAs; of the device */
	struct nsim_launch *own, *before; /* in the device's order; NULL: in none */
};

/* A new communicator: the members of the configuration, and the environment, which wins. */
void nsim_gpu_configure(ncclComm_t comm, ncclComm_t parent,
                        const struct batoni_nccl_config *config);
/* So much more (less) of the device's memory is the communicator's. */
void nsim_gpu_use(ncclComm_t comm, long long bytes);
/* The bytes of one more connection. */
long long nsim_gpu_connection(ncclComm_t comm, bool sends);
long long nsim_gpu_bytes_locked(void); /* of all communicators */
/* A driver of at least 12.5. */
bool nsim_gpu_has_one_sided(void);
/* At the launch, in its order. */
void nsim_gpu_launch(struct nsim_share *share, ncclComm_t comm, bool one_sided);
/* May the kernel begin?  Once true, it has all of its CTAs. */
bool nsim_gpu_begins(struct nsim_share *share);
/* It has ended, or is gone; may be called again. */
void nsim_gpu_end(struct nsim_share *share);

/* ---- nsim_signal.c ---- */

ncclResult_t nsim_agent_start(ncclComm_t comm);
void nsim_agent_end(ncclComm_t comm);

/* ---- nsim_memory.c ---- */

/* A window of the communicator, by its handle; its number, or -1. */
int nsim_window_number(ncclComm_t comm, ncclWindow_t window, void **base_p);
/* The bytes are in one. */
bool nsim_in_window(ncclComm_t comm, CUdeviceptr at, uint64_t bytes);
/* Where they are, by its number; NULL: it has none such.  Under the lock. */
unsigned char *nsim_window_reach_locked(ncclComm_t comm, int number,
                                        uint64_t offset, uint64_t bytes);
void nsim_windows_close(ncclComm_t comm);

void nsim_window_made(struct nsim_job *job);
long nsim_blocks_live_locked(void);
long nsim_windows_live_locked(void);

#endif
