/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's own header; programs use cudasim.h.
 *
 * One lock, sim_lock, guards everything here.  `sim_changed` is broadcast whenever an
 * entry ends, a context falls into error, or the process begins to exit; callers that
 * block, and queues whose head depends on another stream, wait for it.
 *
 * Threads, all detached, made when they are first needed:
 *   - one for each hardware queue (sim_queue.c), which runs the entries of its streams in
 *     the order of their submission.  Where copies have queues of their own, a stream is in two,
 *     and an entry of one waits at the head for the stream's earlier ones in the other;
 *   - one for each context, which calls host functions.
 * They run copies, kernels and host functions without the lock.  A queue whose head waits for a
 * word looks at it, in naps.
 *
 * An entry of a stream depends on all before it in the stream, and on `after`:
 * positions in other streams (events, the legacy default stream's order).  A position
 * was always submitted before what depends on it, so that queues in order of submission
 * never deadlock by themselves: only words and host functions can hold them up.
 *
 * Lifetimes.  Contexts, handles and threads live until the process ends.  A stream
 * lives as long as its handle, its entries, and positions in it (`refs`).  Memory that
 * is freed while entries name it is unmapped after them; its addresses stay reserved
 * for a while, so that they are known for freed.
 */
#ifndef SIM_H
#define SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "cudasim.h"
#include "simulator.h"

/* ---- what is exported ---- */

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_PROTOTYPE(name, symbol, base, version, parameters)                \
	SIM_EXPORT CUresult symbol parameters;
BATONI_CUDA_FUNCTIONS(SIM_PROTOTYPE)
BATONI_CUDA_OPTIONAL(SIM_PROTOTYPE)
CUDASIM_FUNCTIONS(SIM_PROTOTYPE)
CUDASIM_KERNELS(SIM_PROTOTYPE)
#undef SIM_PROTOTYPE
#define SIM_PROTOTYPE(result, name, parameters)                               \
	SIM_EXPORT result cudasim_##name parameters;
CUDASIM_CONTROLS(SIM_PROTOTYPE)
#undef SIM_PROTOTYPE

enum sim_function {
#define SIM_FUNCTION(name, symbol, base, version, parameters) SIM_##symbol,
	BATONI_CUDA_FUNCTIONS(SIM_FUNCTION) BATONI_CUDA_OPTIONAL(SIM_FUNCTION)
	CUDASIM_FUNCTIONS(SIM_FUNCTION) CUDASIM_KERNELS(SIM_FUNCTION)
#undef SIM_FUNCTION
	SIM_FUNCTIONS_N
};

/* ---- settings ---- */

/* X(name, default, least, greatest, only before cuInit) */
#define SIM_SETTINGS(X)                                                       \
	X(version, 13000, 12000, 99990, true)                                 \
	X(devices, 2, 0, SIM_DEVICES_MAX, true)                               \
	X(queues, 8, 1, SIM_QUEUES_MAX, true)                                 \
	X(processors, 132, 1, 1024, false)                                    \
	X(memory_mib, 81920, 1, 16777216, false)                              \
	X(copy_queues, 0, 0, SIM_QUEUES_MAX, true)                            \
	X(levels, 1, 0, 1, true)                                              \
	X(memops, 1, 0, 1, false)                                             \
	X(depth, 0, 0, 1000000, false)                                        \
	X(queue_depth, 0, 0, 1000000, false)                                  \
	X(depth_lock, 0, 0, 1, false)                                         \
	X(implicit, 1, 0, 2, false)                                           \
	X(pageable, 0, 0, 2, false)                                           \
	X(copies, 1, 0, 1, false)                                             \
	X(limit_ms, 30000, 1, 3600000, false)                                 \
	X(seed, 0, 0, 2147483647, false)                                      \
	X(delay_us, 0, 0, 1000000, false)                                     \
	X(alias, 0, 0, 1, false)                                              \
	X(peer, 0, 0, 1, false)                                               \
	X(peers, 1, 0, 1, false)                                              \
	X(peer_copies, 1, 0, 1, false)                                        \
	X(vmm, 1, 0, 1, false)                                                \
	X(vmm_fd, 1, 0, 1, false)                                             \
	X(vmm_rdma, 1, 0, 1, false)                                           \
	X(ipc, 1, 0, 1, false)                                                \
	X(ipc_again, 1, 0, 1, false)                                          \
	X(granularity, 2097152, 65536, 67108864, true)                        \
	X(flush, 0, 0, 1, true)                                               \
	X(reuse, 1, 0, 1, false)                                              \
	X(abort, 0, 0, 1, false)

enum { SIM_DEVICES_MAX = 16, SIM_QUEUES_MAX = 32, SIM_PRIORITIES = 6 };

struct sim_settings {
#define SIM_SETTING(name, value, least, greatest, before) long name;
	SIM_SETTINGS(SIM_SETTING)
#undef SIM_SETTING
};

/* ---- objects ---- */

struct sim_stream;
struct sim_context;

/* A point in a stream: the end of its seq-th entry. */
struct sim_position {
	struct sim_stream *stream; /* NULL: nothing to wait for */
	uint64_t seq;
};

enum sim_memory {
	SIM_DEVICE,
	SIM_MANAGED,
	SIM_PINNED,
	SIM_REGISTERED,
	SIM_MAPPING, /* of an allocation of virtual memory management */
	SIM_OPENED,  /* by an IPC handle */
	SIM_POOL,
};

struct sim_allocation;
struct sim_reservation;

struct sim_block {
	struct sim_block *next;
	enum sim_memory memory;
	CUdeviceptr device;  /* the address that the driver gave; not for hosts */
	unsigned char *host; /* the program's address; NULL: it has none */
	unsigned char *reach; /* where the simulator reaches the bytes */
	size_t bytes, mapped;
	struct sim_context *context; /* NULL: it belongs to none */
	CUdevice owner;              /* that has the bytes, or whose context it is */
	struct sim_allocation *allocation; /* of a mapping, else NULL */
	struct sim_reservation *range;     /* that it lies in, likewise */
	unsigned access;                   /* to a mapping: a bit for each device */
	int fd; /* the memfd of memory of the device or opened */
	/* opened: how often, from which process, and the file there */
	unsigned opens;
	int pid;
	uint64_t inode;
	unsigned flags;
	unsigned long long id;
	unsigned entries; /* which name it and have not ended */
	bool freed;
};

enum sim_kind { SIM_COPY, SIM_SET, SIM_CALL, SIM_OPS, SIM_MARK, SIM_KERNEL };

struct sim_op {
	bool waits;
	_Atomic uint64_t *word;
	uint64_t value;
	struct sim_block *block;
};

struct sim_entry {
	struct sim_entry *next;   /* of its queue */
	struct sim_entry *called; /* of its context's functions */
	struct sim_stream *stream;
	uint64_t seq;
	enum sim_kind kind;
	bool begun, late, over;
	bool handed;    /* to the thread of host functions */
	bool abandoned; /* that thread is to free it */
	uint64_t since; /* it waits */
	struct sim_position *after;
	size_t after_n;
	/* copy, set */
	unsigned char *to;
	const unsigned char *from;
	size_t bytes;
	unsigned char byte;
	struct sim_block *blocks[2];
	/* call */
	CUhostFn function;
	void *data;
	/* memory operations */
	struct sim_op *ops;
	size_t ops_n, ops_done;
	struct sim_block **reached; /* that it names, beside those */
	size_t reached_n;
	/* kernel */
	struct cudasim_kernel kernel;
	bool stuck;         /* its last step waited, */
	unsigned long seen; /* at this progress or later */
};

struct sim_queue {
	struct sim_context *context;
	struct sim_entry *head, *tail;
	uint64_t entries; /* between these */
	pthread_cond_t work; /* entries, exit */
	bool started;
};

struct sim_capture {
	struct sim_capture *next;
	struct sim_stream *origin;
	const void *thread;
	CUstreamCaptureMode mode;
	bool invalid;
};

struct sim_stream {
	struct sim_stream *next; /* of its context */
	struct sim_context *context;
	struct sim_queue *queue, *copies; /* of copies; may be the same */
	struct sim_queue *last; /* of these two, that has its last entry */
	unsigned long long id;
	unsigned refs;
	bool blocking; /* synchronises with the legacy default stream */
	int priority;  /* as it has it: cut to the range */
	bool destroyed;
	const void *thread; /* a per-thread default stream's */
	uint64_t submitted, ended;
	struct sim_capture *capture;
};

struct sim_context {
	bool live;
	unsigned long long id; /* of this life of a primary context */
	CUdevice device;
	unsigned retained; /* a primary context */
	bool primary;
	CUresult error;
	struct sim_stream legacy;
	struct sim_stream *streams; /* the legacy one too */
	struct sim_queue queues[SIM_PRIORITIES][SIM_QUEUES_MAX];
	struct sim_queue copies[SIM_PRIORITIES][SIM_QUEUES_MAX];
	unsigned next_queue[SIM_PRIORITIES];
	/* host functions */
	struct sim_entry *calls_head, *calls_tail;
	bool caller_started, calling;
	pthread_cond_t calls;
	const void *holder; /* the thread that holds the context's lock */
	/* whose memory it reaches; of the context's life that has this id */
	struct sim_context *peers[SIM_DEVICES_MAX];
	unsigned long long peers_ids[SIM_DEVICES_MAX];
};

/* What handles point to.  A handle is used again. */
struct CUctx_st {
	struct sim_context context;
};
struct CUstream_st {
	struct sim_stream *stream;
	struct CUstream_st *next_free;
};
struct CUevent_st {
	struct sim_context *context; /* NULL: not live */
	struct sim_position at;
	struct sim_capture *capture; /* it was last recorded in this one */
	struct CUevent_st *next_free;
};

struct sim {
	struct sim_settings set;
	bool initialised, exiting, forked;
	unsigned long long next_id; /* of contexts, streams and blocks */
	struct sim_context *contexts[64];
	unsigned contexts_n;
	struct sim_block *blocks;
	struct sim_capture *captures;
	size_t used[SIM_DEVICES_MAX]; /* by other simulators (cudasim_use) */
	unsigned running;  /* queues that run an entry without the lock */
	unsigned blocked;  /* calls */
	unsigned long progress; /* entries that began or ended, and calls */
};

extern struct sim sim;
extern struct simulator sim_simulator; /* under sim_lock */
extern pthread_mutex_t sim_lock;
extern pthread_cond_t sim_changed;

/* ---- sim_core.c ---- */

/* What every function of the driver begins and ends with. */
struct sim_call {
	struct sim_context *context; /* the current one, if it was asked for */
	CUresult error;              /* of a call that does its work all the same */
};

/* It needs a current context. */
#define SIM_CONTEXT 1u
/* It destroys: done even if it has to return an error. */
#define SIM_DESTROYS 2u
/* Not while a capture is under way, in a mode that forbids it. */
#define SIM_UNSAFE 4u
/* May come before cuInit. */
#define SIM_EARLY 8u

/* SUCCESS: the lock is held, until sim_leave.  Else: return this. */
CUresult sim_enter(struct sim_call *call, enum sim_function function,
                   unsigned needs);
CUresult sim_leave(struct sim_call *call, CUresult result);

void sim_violation(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
/* Identity of the calling thread, used by no later one. */
const void *sim_thread(void);
void sim_set_inside(bool inside); /* a host function */
uint64_t sim_now_ns(void);
/* Wait for a change, at most until `until` (of sim_now_ns; 0: no limit). */
void sim_await_change_locked(uint64_t until);
void sim_break_locked(struct sim_context *context, CUresult result);
const char *sim_function_name(enum sim_function function);
/* By its name, exported or base; SIM_FUNCTIONS_N for ""; -1: there is none. */
int sim_function_find(const char *name);
void sim_lock_for_control(void);
static inline void *
sim_alloc(size_t n, size_t bytes)
{
	return simulator_alloc(&sim_simulator, n, bytes);
}
CUresult sim_start_thread(void *(*main)(void *), void *argument);

/* ---- sim_fault.c ---- */

void sim_environment_read(void);
/* What this use of the function has to return; sticky: its context breaks. */
CUresult sim_fault_locked(enum sim_function function, bool *sticky_p);
/* Microseconds to be late by; 0, in all cases but one of `odds`: not. */
unsigned sim_delay_locked(unsigned odds);
long sim_delays_locked(void); /* how many there were */

/* ---- sim_context.c ---- */

struct sim_context *sim_current(void);
bool sim_is_device(CUdevice device);
/* The context of a handle; NULL: it is none. */
struct sim_context *sim_context_of_locked(CUcontext handle);
/* Look-ups (do not) find the function any more; false: there is none of that name. */
bool sim_lack_locked(const char *name, bool lacks);
CUcontext sim_handle_of(struct sim_context *context);

/* ---- sim_queue.c ---- */

void sim_queues_init(struct sim_context *context);
/* The process exits, or the context is in error. */
void sim_queues_wake_locked(struct sim_context *context);
/* Give the stream the next queues of this priority level (0: the least). */
void sim_queue_take_locked(struct sim_stream *stream, unsigned level);
/* The one that the entry of the stream belongs in. */
struct sim_queue *sim_queue_of(const struct sim_stream *stream,
                               const struct sim_entry *entry);
CUresult sim_queue_put_locked(struct sim_entry *entry);
bool sim_reached_locked(struct sim_position position);
/* Frees what the entry owns, and itself. */
void sim_entry_free_locked(struct sim_entry *entry);
bool sim_is_settled_locked(bool in_functions);
/* The context is in error: its queues drop what they have.  Wait for that. */
void sim_queues_drain_locked(struct sim_context *context);

/* ---- sim_stream.c ---- */

void sim_stream_init_locked(struct sim_context *context,
                            struct sim_stream *stream, bool blocking,
                            unsigned level);
void sim_stream_ref_locked(struct sim_stream *stream);
void sim_stream_unref_locked(struct sim_stream *stream);
/* The stream that the handle means in this call.  here: it must be of the current
 * context. */
CUresult sim_stream_of_locked(struct sim_call *call, CUstream handle, bool here,
                              struct sim_stream **stream_p);
/* Puts the entry at the stream's end; takes it, whatever comes.  wait: return when
 * it has ended, with an error and a violation at the limit.  *at_p (may be NULL):
 * its position, of which the caller owns a reference. */
CUresult sim_submit_locked(struct sim_call *call, struct sim_stream *stream,
                           struct sim_entry *entry, bool wait,
                           struct sim_position *at_p);
void sim_position_drop_locked(struct sim_position *position);
/* The entry, not yet submitted, comes after what the stream has been given so far. */
void sim_entry_after_locked(struct sim_entry *entry, struct sim_stream *stream);
/* Wait for all that has been submitted.  limited: an implicit synchronisation. */
CUresult sim_synchronize_locked(struct sim_context *context,
                                const char *why, bool limited);
CUresult sim_await_position_locked(struct sim_context *context,
                                   struct sim_position position,
                                   const char *why, bool limited);
/* The context ends: its handles are none. */
void sim_streams_close_locked(struct sim_context *context);
long sim_streams_live_locked(void);
long sim_thread_streams_live_locked(void);
long sim_streams_queued_locked(void);

/* ---- sim_kernel.c ---- */

enum cudasim_step sim_kernel_step_locked(struct sim_entry *entry);
/* It waits, and has looked since the last progress. */
bool sim_kernel_is_still_locked(const struct sim_entry *entry);

/* ---- sim_event.c ---- */

long sim_events_live_locked(void);
void sim_events_close_locked(struct sim_context *context);
/* The capture has ended: its events are as before their first record. */
void sim_events_uncapture_locked(const struct sim_capture *capture);

/* ---- sim_capture.c ---- */

/* A call that is unsafe while streams are captured. */
CUresult sim_capture_forbids_locked(void);
/* What a capture says to work for this stream: SUCCESS, and *captured_p: the work is
 * part of a capture. */
CUresult sim_capture_takes_locked(struct sim_stream *stream, bool *captured_p);
/* The stream is asked how far it is. */
CUresult sim_capture_query_locked(struct sim_stream *stream);
long sim_captures_live_locked(void);

/* ---- sim_peer.c ---- */

/* The device can reach the memory of the other one, or it is its own. */
bool sim_can_reach_locked(CUdevice device, CUdevice owner);
/* The context reaches the memory of the other one. */
bool sim_peer_is_enabled_locked(const struct sim_context *context,
                                const struct sim_context *other);

/* ---- sim_vmm.c ---- */

/* A mapping has gone. */
void sim_unmapped_locked(const struct sim_block *block);
/* As what it may be exported: a bit for each type of handle. */
unsigned sim_allocation_types_locked(const struct sim_allocation *allocation);
bool sim_is_reserved_locked(CUdeviceptr pointer);
/* false: there is none, and nothing is written. */
bool sim_reservation_of_locked(CUdeviceptr pointer, CUdeviceptr *base_p,
                               size_t *bytes_p);
long sim_allocations_live_locked(void);
long sim_reservations_live_locked(void);

/* ---- sim_ipc.c ---- */

/* Another process has the block of this memfd open. */
bool sim_is_open_elsewhere(int fd);

/* ---- sim_memory.c ---- */

static inline bool
sim_is_in(CUdeviceptr pointer, CUdeviceptr base, size_t bytes)
{
	return base && pointer >= base && pointer - base < bytes;
}

/* The block that the pointer is in, by its address for the device or for the host. */
struct sim_block *sim_block_find_locked(CUdeviceptr pointer);
/* Was memory there that has been freed? */
bool sim_is_grave_locked(CUdeviceptr pointer);
/* Where in its block the pointer is. */
size_t sim_block_offset(const struct sim_block *block, CUdeviceptr pointer);
/* context NULL: the owner is set already. */
void sim_block_add_locked(struct sim_context *context, struct sim_block *block);
/* With a violation if a stream is still to use it: then it ends with the last use. */
void sim_block_free_locked(struct sim_block *block, const char *call);
/* The driver does not know it any more; it ends with its last entry, of which there is one. */
void sim_block_forget_locked(struct sim_block *block);
/* INVALID_VALUE, OUT_OF_MEMORY. */
CUresult sim_block_alloc_locked(struct sim_call *call, enum sim_memory memory,
                                size_t bytes, unsigned flags,
                                struct sim_block **block_p);
/* A block, not yet added, with the file's bytes, whose descriptor it then has: without rights at
 * its address for the program.  NULL: no memory. */
struct sim_block *sim_block_of_file(int fd, size_t mapped);
/* Take the memory away, and keep the addresses. */
void sim_bury_locked(void *at, size_t bytes);

/* Where the simulator reaches bytes of the program's pointer, for work on a device.  They may go on in
 * mappings that lie behind the block. */
CUresult sim_reach_locked(struct sim_context *context, CUdeviceptr pointer,
                          size_t bytes, unsigned char **reach_p,
                          struct sim_block **block_p);
/* The word of a memory operation. */
CUresult sim_word_locked(struct sim_context *context, CUdeviceptr pointer,
                         struct sim_op *op);
/* The entry names the block: it is held until the entry ends. */
void sim_hold_locked(struct sim_entry *entry, struct sim_block *block);
/* The same for those that the bytes go on in, behind the first one. */
void sim_hold_rest_locked(struct sim_entry *entry, const struct sim_block *first,
                          CUdeviceptr pointer, size_t bytes);
void sim_block_release_locked(struct sim_block *block);
void sim_blocks_close_locked(struct sim_context *context);
long sim_blocks_live_locked(enum sim_memory memory, bool bytes);

#endif
