/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One GPU as this process sees it: what all opens of the CUDA device on it share.  For the
 * files of this device only.
 *
 * A GPU is set up by its first open and kept until the process ends, with its primary
 * context (which the CUDA runtime keeps too), its internal streams, events and pinned
 * blocks: to give them back would mean driver calls that may wait for every stream of the
 * context, while a stream waits for us.  What is freed is used again.
 *
 * A program may reset a GPU that has no communicators (cuDevicePrimaryCtxReset), and must
 * after a sticky error.  The context's handle may then be the same; its id (cuCtxGetId) is
 * not.  So each open, and the first call after it that names memory of another GPU, compares
 * ids.  What was set up in a context that is gone, or on a GPU that is sick, is replaced:
 * the old object stays for what still refers to it, and none of its handles is used again.
 *
 * Locks.  `gpu->lock` guards the lists of this file; no driver call is made under it.  A
 * stream's own lock (cuda_stream.h) may be held when it is taken.  One thread at a time sets
 * up a GPU; another GPU is set up beside it, since a driver call for one may wait (cuda_gpu.c).
 * The lock of waiting host functions (cuda_item.c) is the only one that these take, and a
 * leaf.
 */
#ifndef BATONI_CUDA_GPU_H
#define BATONI_CUDA_GPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda_api.h"
#include "device.h"
#include "list.h"
#include "thread.h"

/* Internal streams for copies: into the device's memory, out of it, and the rest. */
enum { CUDA_COPIES_IN, CUDA_COPIES_OUT, CUDA_COPIES_OTHER, CUDA_COPY_STREAMS };

#define CUDA_LINE_WORDS 8u     /* words of a cache line */
#define CUDA_STREAMS_MAX 1024u /* how many streams can have work of ours at a time */
/* How often a call is tried whose failure no call of the program can be refused for.  Only a sick
 * device fails each time. */
#define CUDA_TRIES 3u

/* A call of the driver that may wait for streams takes milliseconds by itself, and longer on a busy
 * machine.  A call that takes less than this is not taken to wait for a stream, whatever the
 * options say. */
#define CUDA_LEAST_NS 500000000u

/* The time until which the caller waits for such a call. */
static inline uint64_t
batoni_cuda_until(uint64_t begun_ns, uint64_t until_ns)
{
	return until_ns < begun_ns + CUDA_LEAST_NS ? begun_ns + CUDA_LEAST_NS
	                                           : until_ns;
}

struct cuda_stream;

struct cuda_event {
	struct cuda_event *next; /* when it is free */
	CUevent event;
	/* Of a mark: the stream on which it stands for entries.  NULL: it stands for none. */
	struct cuda_stream *stream;
	uint32_t entries;
};

/* The outcome of a job that pins memory of the host. */
struct cuda_pinning {
	bool elsewhere;   /* the device has it at another address */
	CUresult result;  /* of the last call */
	const char *call; /* the last one of those that pin */
};

/* Pinned memory, mapped into the device at the same address. */
struct cuda_block {
	struct batoni_list_node link; /* of gpu->blocks, or of gpu->spare */
	unsigned char *base;
	size_t bytes;
	/* Of a block of words: for each index of gpu->streams, the number of the last
	 * wait there for one of its words.  NULL for other blocks. */
	_Atomic uint64_t *last_wait;
	struct cuda_gpu *gpu;
	struct batoni_job job; /* that pins it */
	/* Under gpu->lock: a creator waits for it, or has it; it comes for the reserve. */
	bool wanted, spares;
	struct cuda_pinning pinning;
};

/* A stream of stream_create. */
struct cuda_created {
	struct batoni_list_node link;
	CUstream handle;
	unsigned long long id;
};

struct cuda_gpu {
	struct batoni_device open; /* what every open of it gets */
	const struct batoni_cuda_api *api;
	struct cuda_gpu *next;
	CUdevice number;
	CUcontext context;
	unsigned long long context_id;
	unsigned retained; /* so often; the thread that sets it up */
	atomic_uint checked; /* the number of the open up to which context_id is right */
	char name[64];
	bool memory_ops; /* streams can wait for words by themselves */
	bool flushes; /* streams may miss what another device of the node has written */
	/* So often in a row the library has refused the call that starts several copies;
	 * CUDA_TRIES: it is not made any more.  The thread that drives. */
	unsigned packs_refused;
	CUstream copies[CUDA_COPY_STREAMS];
	/* How many of the copies on each of these have a number (cuda_copy.c).  The thread that
	 * drives. */
	uint64_t numbers[CUDA_COPY_STREAMS];
	/* Pinned words, one for each of these, a line apart: the number of the last copy that
	 * has ended.  NULL: streams write none.  Set by an open. */
	_Atomic(_Atomic uint64_t *) copied;
	int priority; /* of these: the highest */
	uint32_t queues, copy_queues; /* of the hardware, that streams share */
	bool copy_queues_set; /* by a variable of their own */
	bool blocking; /* launching a kernel blocks (CUDA_LAUNCH_BLOCKING) */
	_Atomic uint32_t foreign;     /* streams that libraries have */
	/* Pinned words, one for each index of `streams`: the number of the last wait
	 * that was passed, how many launched functions have returned, and the number of the
	 * last put that was passed.  Set under `lock`, by an open. */
	_Atomic uint64_t *passed, *returned, *stored;

	pthread_mutex_t lock;
	struct cuda_event *events; /* free */
	struct cuda_event *lost;   /* behind copies that may go on for ever */
	struct batoni_list_node blocks, spare, coming; /* cuda_pinned.c's */
	struct cuda_stream *streams[CUDA_STREAMS_MAX]; /* cuda_stream.c's */
	struct batoni_list_node created; /* by stream_create; cuda.c's */
	struct batoni_fault fault;       /* if `sick` */
	struct batoni_fault last;        /* of the memory's calls */
	atomic_bool sick;
};

static inline struct cuda_gpu *
batoni_cuda_gpu(struct batoni_device *device)
{
	return batoni_container_of(device, struct cuda_gpu, open);
}

/* cuda_enter.c, where no GPU is known yet: give the thread its capture mode back; refuse as batoni_cuda_refuse. */
void batoni_cuda_restore_mode(const struct batoni_cuda_api *api,
                              CUstreamCaptureMode mode);
enum baton_status batoni_cuda_refuse_by(const struct batoni_cuda_api *api,
                                        const char *call, CUresult result);

/*
 * The driver's calls are made between enter and exit: the GPU's context is then current,
 * and none of them invalidates a capture that another thread of the program has begun.
 * The thread is not cancelled: a call may wait, for room on a stream or for the context, with
 * locks of ours held.
 * exit restores what was.  enter: the driver's result; after an error there is nothing to
 * exit.
 *
 * The engine's thread stays where it is, as nothing of the program runs there: enter is no call of
 * the driver until another GPU is needed, and exit is none, unless it was lent to a library.
 *
 * Within a transaction of this thread (cuda_stream.c) both do nothing, for the GPU of that.
 */
struct cuda_guard {
	CUstreamCaptureMode mode;
	bool pushed;
	bool stayed; /* the engine's thread was taken to be in the context */
	int cancel_state;
};
CUresult batoni_cuda_enter(const struct cuda_gpu *gpu, struct cuda_guard *guard);
void batoni_cuda_exit(const struct cuda_gpu *gpu, const struct cuda_guard *guard);
/* Leave, behind calls that have returned the result.  True: they failed on the engine's thread,
 * which was taken to be in the context: a library may have changed that.  Enter anew, which looks,
 * and make them once more. */
bool batoni_cuda_leave_or_retry(const struct cuda_gpu *gpu,
                                const struct cuda_guard *guard, CUresult result);
/* The GPU of this thread's transaction, in which the thread is; NULL: there is none. */
extern _Thread_local const struct cuda_gpu *batoni_cuda_inside
	__attribute__((tls_model("initial-exec")));
/* A library that changes contexts has had, or gets, this thread: the next enter looks. */
void batoni_cuda_doubt(void);
/* From here on a library has this thread, in the context of the GPU: a call that is made meanwhile
 * for another GPU goes back to that context.  NULL: no library has the thread any more. */
void batoni_cuda_lend(const struct cuda_gpu *gpu);

/* cuda_queues.c: while it is set up. */
void batoni_cuda_queues_read(struct cuda_gpu *gpu);

/* `current` of the device's table. */
enum baton_status batoni_cuda_current(int *number_p);

/* The GPU that the configuration means, set up in its present context. ops: the device's table.
 * OK, INVALID, UNSUPPORTED, NOMEM, CUDA, and what batoni_cuda_block_take returns; batoni_refuse has
 * said why. */
enum baton_status
batoni_cuda_gpu_open(const struct batoni_device_config *config,
                     const struct batoni_device_ops *ops,
                     struct cuda_gpu **gpu_p);

/* The GPU as it was last set up, or NULL. */
struct cuda_gpu *batoni_cuda_gpu_find(CUdevice number);

/* A call names memory of the GPU: set it up for copies, if it is not set up.  A failure is
 * remembered until the next open.  OK, UNSUPPORTED, NOMEM, CUDA; batoni_refuse has said why. */
enum baton_status batoni_cuda_gpu_prepare(const struct cuda_gpu *gpu,
                                          CUdevice number);

/* Refuse a call of the program because the driver's call failed: NOMEM or CUDA. */
enum baton_status batoni_cuda_refuse(const struct cuda_gpu *gpu,
                                     const char *call, CUresult result);
/* Refuse a call of the program that has waited for the driver since begun_ns: TIMEOUT.  what: "no
 * device memory"; before: what the program should do before streams wait. */
enum baton_status batoni_cuda_refuse_late(const struct cuda_gpu *gpu,
                                          uint64_t begun_ns, const char *what,
                                          const char *before);
/* The GPU is sick, so no later call will succeed.  The first reason is kept. */
void batoni_cuda_fail(struct cuda_gpu *gpu, const char *call, CUresult result);
/* A call of the memory table has failed: keep why.  Returns CUDA. */
enum baton_status batoni_cuda_note(struct cuda_gpu *gpu, const char *call,
                                   CUresult result);

/* An event; NULL: none could be made, and *result_p says why.  Between enter and exit. */
struct cuda_event *batoni_cuda_event_take(struct cuda_gpu *gpu,
                                          CUresult *result_p);
/* Return an event that the stream has passed, or that was not recorded. */
void batoni_cuda_event_give(struct cuda_gpu *gpu, struct cuda_event *event);
/* Give up an event of which it is not known whether the stream will pass it. */
void batoni_cuda_event_lose(struct cuda_gpu *gpu, struct cuda_event *event);

/* cuda_pinned.c.  Is it pinned, and at its own address? */
static inline bool
batoni_cuda_is_pinned(const struct cuda_pinning *pinning)
{
	return pinning->result == BATONI_CU_SUCCESS && !pinning->elsewhere;
}
/* Behind the call that has pinned the memory at `at`, between enter and exit: does the device
 * have it there?  False: the caller gives it back. */
bool batoni_cuda_pinned_in_place(const struct cuda_gpu *gpu, void *at,
                                 struct cuda_pinning *pinning);
/* It is not pinned: refuse the call that wanted it.  NOMEM, CUDA, UNSUPPORTED. */
enum baton_status
batoni_cuda_refuse_pinning(const struct cuda_gpu *gpu,
                           const struct cuda_pinning *pinning);

/* A zeroed block, a spare one if there is one.  The thread that creates, which
 * holds no lock that others may want.  OK, NOMEM, UNSUPPORTED, SYSTEM, CUDA; TIMEOUT, at
 * until_ns (batoni_real_ns), or a moment later: the driver does not return, since streams wait.
 * batoni_refuse has said why. */
enum baton_status batoni_cuda_block_take(struct cuda_gpu *gpu, size_t bytes,
                                         bool words, uint64_t until_ns,
                                         struct cuda_block **block_p);
/* Make a spare block of this kind for another communicator, unless making it could block. */
void batoni_cuda_block_reserve(struct cuda_gpu *gpu,
                               const struct cuda_block *like);
void batoni_cuda_block_give(struct cuda_gpu *gpu, struct cuda_block *block);
/* The block in use that the pointer is in, or NULL. */
struct cuda_block *batoni_cuda_block_of(struct cuda_gpu *gpu,
                                        const void *pointer);

/* cuda_copy.c: slots of the memory's table. */
enum baton_status batoni_cuda_copy_start(struct batoni_device *device, void *to,
                                         const void *from, size_t bytes,
                                         int owner,
                                         struct batoni_ticket *ticket_p);
enum baton_status batoni_cuda_copies_start(struct batoni_device *device,
                                           const struct batoni_copy *copies,
                                           size_t n, int owner,
                                           struct batoni_ticket *ticket_p,
                                           size_t *started_p);
enum baton_status batoni_cuda_copy_test(struct batoni_device *device,
                                        struct batoni_ticket *ticket);
/* Is a stream of copies idle?  SUCCESS, NOT_READY; any other result: the GPU is sick. */
CUresult batoni_cuda_copies_query(const struct cuda_gpu *gpu);
/* cuda_share.c: the same. */
enum baton_status batoni_cuda_reaches(struct batoni_device *device,
                                      const void *pointer, int owner);
enum baton_status batoni_cuda_identify(struct batoni_device *device,
                                       const void *pointer, size_t bytes,
                                       struct batoni_memory_block *block_p);
enum baton_status batoni_cuda_share(struct batoni_device *device,
                                    const void *pointer, size_t bytes,
                                    struct batoni_memory_shared *shared_p);
enum baton_status batoni_cuda_map(struct batoni_device *device,
                                  const struct batoni_memory_name *name,
                                  int fd, size_t bytes, void **base_p);
void batoni_cuda_unmap(struct batoni_device *device,
                       const struct batoni_memory_name *name, void *at,
                       size_t bytes);
/* cuda_alloc.c: the same. */
enum baton_status batoni_cuda_block_alloc(struct batoni_device *device,
                                          size_t bytes, uint64_t until_ns,
                                          void **block_p);
void batoni_cuda_block_free(struct batoni_device *device, void *at);
/* cuda_register.c: the same. */
enum baton_status batoni_cuda_pin(struct batoni_device *device, void *base,
                                  size_t bytes, uint64_t until_ns);
void batoni_cuda_unpin(struct batoni_device *device, void *base);
/* cuda_memory.c */
extern const struct batoni_memory_ops batoni_cuda_memory_ops;
/* cuda.c */
extern const struct batoni_device_ops batoni_device_cuda_ops;

#endif
