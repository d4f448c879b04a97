/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One GPU as this process sees it: what all opens of the CUDA device on it share.  For the
 * files of this device only.
 *
 * A GPU is set up by its first open and kept until the process ends, with its primary
 * context (which the CUDA runtime keeps too), its internal streams, events and pinned
 * blocks: to give them back would mean driver calls that may wait for every stream of the
 * context, while a stream waits for the engine.  What is freed is used again.
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
#define CUDA_STREAMS_MAX 1024u /* how many streams can have items of Baton at a time */
/* How often a driver call is tried where no call of the program can report its failure.  Only a sick
 * device fails each time. */
#define CUDA_TRIES 3u

/* A call of the driver that may wait for streams takes milliseconds by itself, and longer on a busy
 * machine.  Only after this time is it taken to wait for a stream, whatever the options say. */
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
	/* For a mark: the stream on which it stands for entries.  NULL: it stands for none. */
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
	/* Under gpu->lock.  wanted: a creator waits for it, or has it.  spares: it is for the reserve. */
	bool wanted, spares;
	struct cuda_pinning pinning;
};

/* A stream that stream_create has made. */
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
	unsigned retained; /* how often the context is; the thread that sets the GPU up */
	atomic_uint checked; /* the number of the open up to which context_id is right */
	char name[64];
	bool memory_ops; /* streams can wait for words by themselves */
	bool flushes; /* streams may miss what another device of the node has written */
	/* How often in a row the driver has refused the call that starts several copies.  At
	 * CUDA_TRIES that call is not made any more.  The driver of the engine. */
	unsigned packs_refused;
	CUstream copies[CUDA_COPY_STREAMS];
	/* How many of the copies on each of these have a number (cuda_copy.c).  The driver of
	 * the engine. */
	uint64_t numbers[CUDA_COPY_STREAMS];
	/* Pinned words, one for each of these, a line apart: the number of the last copy that
	 * has ended.  NULL: streams write none.  Set by an open. */
	_Atomic(_Atomic uint64_t *) copied;
	int priority; /* of the copies' streams: the highest; INT_MIN: there is one only */
	uint32_t queues, copy_queues; /* hardware queues that streams share */
	bool copy_queues_set; /* a variable of their own gives their number */
	bool blocking; /* launching a kernel blocks (CUDA_LAUNCH_BLOCKING) */
	_Atomic uint32_t foreign;     /* streams that libraries have */
	/* Pinned words, one of each kind for each index of `streams`: the number of the last
	 * wait that the stream has passed, how many launched functions have returned, and the
	 * number of the last put that it has passed.  Set under `lock`, by an open. */
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

/* cuda_enter.c, for calls before a GPU is known: restore the thread's capture mode; refuse as batoni_cuda_refuse. */
void batoni_cuda_restore_mode(const struct batoni_cuda_api *api,
                              CUstreamCaptureMode mode);
enum baton_status batoni_cuda_refuse_by(const struct batoni_cuda_api *api,
                                        const char *call, CUresult result);

/*
 * The driver's calls are made between enter and exit: the GPU's context is then current,
 * and none of them invalidates a capture that another thread of the program has begun.
 * The thread is not cancelled in between: a call may wait, for room on a stream or for the context,
 * while the thread holds locks of Baton.
 * exit restores the context and mode that enter found.  enter returns the driver's result; after
 * an error there is nothing to exit.
 *
 * The engine's thread stays in the context, as nothing of the program runs there: enter makes no
 * driver call until another GPU is needed, and exit makes none unless the thread is lent to a library.
 *
 * Within a transaction of this thread (cuda_stream.c) both do nothing for that GPU.
 */
struct cuda_guard {
	CUstreamCaptureMode mode;
	bool pushed;
	bool stayed; /* the engine's thread was taken to be in the context */
	int cancel_state;
};
CUresult batoni_cuda_enter(const struct cuda_gpu *gpu, struct cuda_guard *guard);
void batoni_cuda_exit(const struct cuda_gpu *gpu, const struct cuda_guard *guard);
/* Exit, after calls that have returned the result.  True: they failed on the engine's thread, which
 * was taken to be in the context, and a library may have changed that.  The caller enters again,
 * which asks the driver, and repeats the calls. */
bool batoni_cuda_exit_or_retry(const struct cuda_gpu *gpu,
                               const struct cuda_guard *guard, CUresult result);
/* The GPU of this thread's transaction, in which the thread is; NULL: there is none. */
extern _Thread_local const struct cuda_gpu *batoni_cuda_inside
	__attribute__((tls_model("initial-exec")));
/* A library that changes contexts has had, or gets, this thread: the next enter asks the driver. */
void batoni_cuda_doubt(void);
/* From here on a library has this thread, and needs it in the context of the GPU: exit from another
 * GPU returns the thread to that context.  NULL: no library has the thread any more. */
void batoni_cuda_lend(const struct cuda_gpu *gpu);

/* cuda_queues.c: read what the environment says of queues, while the GPU is set up. */
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

/* A call names memory of the GPU with this number: set that GPU up for copies, if it is not.  A
 * failure is remembered until the next open.  OK, UNSUPPORTED, NOMEM, CUDA; batoni_refuse has said why. */
enum baton_status batoni_cuda_gpu_prepare(const struct cuda_gpu *gpu,
                                          CUdevice number);

/* Refuse a call of the program because the driver's call failed: NOMEM or CUDA. */
enum baton_status batoni_cuda_refuse(const struct cuda_gpu *gpu,
                                     const char *call, CUresult result);
/* Refuse a call of the program that has waited for the driver since begun_ns: TIMEOUT.  The sentence
 * begins with `what` ("no device memory"); `before` is what the program should do before streams wait. */
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
/* Leak an event on purpose: it is not known whether the stream will pass it. */
void batoni_cuda_event_lose(struct cuda_gpu *gpu, struct cuda_event *event);

/* cuda_pinned.c.  Is it pinned, and at its own address? */
static inline bool
batoni_cuda_is_pinned(const struct cuda_pinning *pinning)
{
	return pinning->result == BATONI_CU_SUCCESS && !pinning->elsewhere;
}
/* After the call that has pinned the memory at `at`, between enter and exit: does the device have
 * it at the same address?  False: the caller unpins it. */
bool batoni_cuda_pinned_in_place(const struct cuda_gpu *gpu, void *at,
                                 struct cuda_pinning *pinning);
/* The memory could not be pinned: refuse the call that needed it.  NOMEM, CUDA, UNSUPPORTED. */
enum baton_status
batoni_cuda_refuse_pinning(const struct cuda_gpu *gpu,
                           const struct cuda_pinning *pinning);

/* A zeroed block, a spare one if there is one.  The thread that creates, which
 * holds no lock that other threads may want.  OK, NOMEM, UNSUPPORTED, SYSTEM, CUDA; TIMEOUT, at
 * until_ns (batoni_real_ns) or a moment later: the driver has not returned, since streams wait.
 * batoni_refuse has said why. */
enum baton_status batoni_cuda_block_take(struct cuda_gpu *gpu, size_t bytes,
                                         bool words, uint64_t until_ns,
                                         struct cuda_block **block_p);
/* Make a spare block of this kind for another communicator, unless that could block. */
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
/* cuda_share.c: more of these slots. */
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
/* cuda_alloc.c: more of these slots. */
enum baton_status batoni_cuda_block_alloc(struct batoni_device *device,
                                          size_t bytes, uint64_t until_ns,
                                          void **block_p);
void batoni_cuda_block_free(struct batoni_device *device, void *at);
/* cuda_register.c: more of these slots. */
enum baton_status batoni_cuda_pin(struct batoni_device *device, void *base,
                                  size_t bytes, uint64_t until_ns);
void batoni_cuda_unpin(struct batoni_device *device, void *base);
/* cuda_memory.c */
extern const struct batoni_memory_ops batoni_cuda_memory_ops;
/* cuda.c */
extern const struct batoni_device_ops batoni_device_cuda_ops;

#endif
