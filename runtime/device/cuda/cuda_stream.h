/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the device keeps of a stream that has items of Baton, or had some lately.  For the files of
 * the CUDA device only.
 *
 * The stream's number (cuStreamGetId) finds its struct cuda_stream, since the driver uses handles again,
 * and a handle of a default stream means many streams.  The struct has a fixed index in gpu->streams.
 * A stream keeps its index until it has passed all that was put on it and another stream needs the
 * index.  The numbers of an index's waits go on growing from stream to stream.
 */
#ifndef BATONI_CUDA_STREAM_H
#define BATONI_CUDA_STREAM_H

#include <semaphore.h>

#include "cuda_gpu.h"

struct cuda_worker;

struct cuda_stream {
	struct cuda_gpu *gpu;
	unsigned index;       /* in gpu->streams */
	/* The stream that has the index.  Under gpu->lock. */
	unsigned long long id;
	CUstream handle; /* NULL: a default stream's */
	_Atomic unsigned users; /* threads that enqueue on it now; grows under the lock */
	/* Set under `lock`; taken away under gpu->lock, while no thread uses the index. */
	struct cuda_worker *worker;

	/* Guards what is said to be under it, and keeps CUDA's calls for one item together.  It
	 * is held across calls that block when the stream is full; the driver of the engine
	 * never takes it. */
	pthread_mutex_t lock;
	uint64_t waits;    /* under `lock`: so many waits were put on the streams of this index */
	uint64_t triggers; /* likewise host functions */
	uint64_t functions; /* likewise launched functions */
	/* How many host functions have run. */
	_Atomic uint64_t fired;
	/* Under `lock`.  follows: how many events of joins the streams were made to wait for;
	 * follows_passed: how many of these they are known to have passed.  If `point` is not 0,
	 * the first point_follows events were followed by the entry with that number: a stream
	 * that has passed the entry has passed these events. */
	uint64_t follows, follows_passed;
	uint64_t point, point_follows;
	/* Entries for which marks stand that no poll has found passed.  While there are any, the
	 * index goes to no other stream. */
	_Atomic uint64_t marked;
	/* Under `lock`.  How many entries were left when the stream was last found full and without
	 * progress; 0: it has made progress since. */
	uint64_t still;
	uint64_t puts; /* under `lock`: so many were put on the streams of this index */

	/* gpu->passed[index]: the number of the last wait that was passed.
	 * gpu->stored[index]: that of the last put that was passed. */
};

/* Does the handle mean another stream for each thread or context? */
static inline bool
batoni_cuda_is_default(CUstream handle)
{
	return (uintptr_t)(void *)handle <= BATONI_CU_STREAM_PER_THREAD_VALUE;
}

/* Has the stream, which is no default stream, a struct cuda_stream?  Then it is of this GPU's context,
 * and the thread's next batoni_cuda_stream_use of this handle does not ask the driver.  Needs no
 * enter; false if the driver refuses the question without one. */
bool batoni_cuda_stream_find(struct cuda_gpu *gpu, CUstream handle);

/* Between enter and exit of the GPU.  Find or make the stream's struct, and use it.  OK; AGAIN: all
 * indices are taken; NOMEM, CUDA.  batoni_refuse has said why. */
enum baton_status batoni_cuda_stream_use(struct cuda_gpu *gpu, CUstream handle,
                                         struct cuda_stream **stream_p);
void batoni_cuda_stream_release(struct cuda_stream *stream);

/* Does the stream have items of Baton?  Under gpu->lock. */
bool batoni_cuda_stream_works_locked(const struct cuda_stream *stream);
/* Has no stream items of Baton, nor is any being put on one? */
bool batoni_cuda_streams_passed(struct cuda_gpu *gpu);

/* Slots of the device's table.  Within a transaction batoni_cuda_stream_use does not ask the driver about its stream. */
enum baton_status batoni_cuda_begin(struct batoni_device *device, CUstream handle,
                                    const struct batoni_need *need);
void batoni_cuda_commit(struct batoni_device *device);

/* Does the block have a word for which some stream may still wait? */
bool batoni_cuda_words_in_use(struct cuda_gpu *gpu,
                              const struct cuda_block *block);

/* Where the word's block keeps the number of the last wait of this index; NULL: the word is of
 * no communicator on this GPU.  (A join with an operation on another GPU holds that operation, so its
 * word stays.) */
_Atomic uint64_t *batoni_cuda_last_wait(const struct cuda_stream *stream,
                                        const _Atomic uint64_t *word);

/* Start the thread that runs the stream's functions.  The caller uses the stream.  OK,
 * SYSTEM, NOMEM: batoni_refuse has said why. */
enum baton_status batoni_cuda_worker_start(struct cuda_stream *stream);
/* Have the thread run item->reached.  Called from a host function: stores and wakes only. */
void batoni_cuda_worker_run(struct cuda_stream *stream,
                            struct batoni_stream_item *item);

/* cuda_item.c: put the item on the stream, which the caller uses.  OK, AGAIN, CUDA. */
enum baton_status batoni_cuda_enqueue(struct cuda_stream *stream, CUstream handle,
                                      struct batoni_stream_item *item);
/* Put the wait of an item there that was enqueued with WAITS_LATER. */
void batoni_cuda_wait(struct cuda_stream *stream, CUstream handle,
                      const struct batoni_stream_item *item);
/* cuda_room.c: room for a call of another library, on a stream that the caller uses.  OK, AGAIN. */
enum baton_status batoni_cuda_room(struct cuda_stream *stream, CUstream handle,
                                   const struct batoni_need *need);
enum baton_status batoni_cuda_holds(const struct batoni_need *need);
/* Under stream->lock: is there such room?  The caller may wait for it for a moment. */
bool batoni_cuda_has_room(struct cuda_stream *stream, CUstream handle,
                          const struct batoni_need *need);
/* Is there room for a put, which leaves some for items? */
bool batoni_cuda_takes_put(const struct cuda_stream *stream);
/* AGAIN: batoni_refuse has said why. */
enum baton_status batoni_cuda_refuse_full(void);
/* Under stream->lock: an item or a put was put on the stream; note the joins' events before it. */
void batoni_cuda_set_point(struct cuda_stream *stream);
/* The event, just recorded on the stream, stands for so many entries there; uncount: no longer. */
void batoni_cuda_count(struct cuda_stream *stream, struct cuda_event *event,
                       uint32_t entries);
void batoni_cuda_uncount(struct cuda_event *event);
/* Put a wait for the event on the stream, which the caller uses.  OK; PENDING: it has many, and
 * was not put there; CUDA. */
enum baton_status batoni_cuda_follow(struct cuda_stream *stream, CUstream handle,
                                     CUevent event);
/* cuda_item.c: `stream_put` of the device's table, of a stream that the caller uses: OK, PENDING. */
enum baton_status batoni_cuda_put(struct cuda_stream *stream, CUstream handle,
                                  const struct batoni_stream_put *put);
/* cuda_mark.c: tables, and a slot of the device's table. */
extern const struct batoni_mark_ops batoni_cuda_marks;
extern const struct batoni_event_ops batoni_cuda_events;
void batoni_cuda_behind(struct batoni_device *device, baton_stream handle,
                        baton_stream other);
/* cuda_queues.c: slots of the device's table. */
void batoni_cuda_crowd(struct batoni_device *device, struct batoni_crowd *crowd_p);
/* So many of the entries that there are by default, as CUDA_SCALE_LAUNCH_QUEUES has it.  Any thread,
 * behind the first open. */
uint32_t batoni_cuda_scaled(uint32_t entries);
/* How many entries of Baton a stream takes (cuda_room.c). */
uint32_t batoni_cuda_entries(void);
void batoni_cuda_foreign_streams(struct batoni_device *device, int more);
/* A word has grown: wake the host functions that wait for one, on any GPU. */
void batoni_cuda_released(void);

#endif
