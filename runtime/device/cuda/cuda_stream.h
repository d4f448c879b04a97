/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the device keeps of a stream on which items of ours are, or were lately.  For the files of
 * the CUDA device only.
 *
 * A struct cuda_stream is found by the stream's number (cuStreamGetId), since handles are used again
 * and the two default streams have one handle for many streams.  It has a fixed index in
 * gpu->streams.  A stream has an index until it has passed all that was put on it and another
 * stream needs the index.  The numbers of an index's waits go on growing from stream to stream.
 */
#ifndef BATONI_CUDA_STREAM_H
#define BATONI_CUDA_STREAM_H

#include <semaphore.h>

#include "cuda_gpu.h"

struct cuda_worker;

struct cuda_stream {
	struct cuda_gpu *gpu;
	unsigned index;       /* in gpu->streams */
	/* Of the stream that has the index.  Under gpu->lock. */
	unsigned long long id;
	CUstream handle; /* NULL: a default stream's */
	_Atomic unsigned users; /* threads that enqueue on it now; grows under the lock */
	/* Set under `lock`; taken away under gpu->lock, while nobody uses the index. */
	struct cuda_worker *worker;

	/* Under `lock`, which also makes the driver's calls for one item follow each
	 * other.  It is held across calls that block when the stream is full; the driver
	 * of the engine never takes it. */
	pthread_mutex_t lock;
	uint64_t waits;    /* so many waits were put on the streams of this index */
	uint64_t triggers; /* likewise host functions */
	uint64_t functions; /* likewise launched functions */
	/* Host functions that have run. */
	_Atomic uint64_t fired;
	/* Under `lock`: so many events were they told to wait for by joins; of these, so many are
	 * known to be passed.  If `point` is not 0, so many entries of items were there when the
	 * first `point_follows` were: when these have been passed, those have. */
	uint64_t follows, follows_passed;
	uint64_t point, point_follows;
	/* Entries that marks stand for which nobody has seen done.  While there are any, the
	 * index is not given away. */
	_Atomic uint64_t marked;
	/* Under `lock`.  So many entries were left when it was found full and still; 0: it was not,
	 * lately. */
	uint64_t still;
	uint64_t puts; /* under `lock`: so many were put on the streams of this index */

	/* gpu->passed[index]: the number of the last wait that was passed.
	 * gpu->stored[index]: that of the last put that was passed. */
};

/* The handle means another stream for each thread or context. */
static inline bool
batoni_cuda_is_default(CUstream handle)
{
	return (uintptr_t)(void *)handle <= BATONI_CU_STREAM_PER_THREAD_VALUE;
}

/* Has the stream, not a default one, a record?  Then it is one of this GPU's context, and the
 * thread's next batoni_cuda_stream_use of this handle does not ask the driver.  Needs no enter; a
 * driver that thinks otherwise makes it false. */
bool batoni_cuda_stream_find(struct cuda_gpu *gpu, CUstream handle);

/* Between enter and exit of the GPU.  Find or make the record, and use it.  OK; AGAIN: all
 * indices are taken; NOMEM, CUDA.  batoni_refuse has said why. */
enum baton_status batoni_cuda_stream_use(struct cuda_gpu *gpu, CUstream handle,
                                         struct cuda_stream **stream_p);
void batoni_cuda_stream_release(struct cuda_stream *stream);

/* The stream has work of ours.  Under gpu->lock. */
bool batoni_cuda_stream_works_locked(const struct cuda_stream *stream);
/* No stream has work of ours, nor is any being put on one. */
bool batoni_cuda_streams_passed(struct cuda_gpu *gpu);

/* Slots of the device's table.  Within a transaction `use` asks the driver nothing of its stream. */
enum baton_status batoni_cuda_begin(struct batoni_device *device, CUstream handle,
                                    const struct batoni_need *need);
void batoni_cuda_commit(struct batoni_device *device);

/* Does the block have a word that some stream may still look at? */
bool batoni_cuda_words_in_use(struct cuda_gpu *gpu,
                              const struct cuda_block *block);

/* Where the word's block keeps the number of the last wait of this index; NULL: the word is of
 * no communicator on this GPU.  (A join on another GPU's keeps the record that has it.) */
_Atomic uint64_t *batoni_cuda_last_wait(const struct cuda_stream *stream,
                                        const _Atomic uint64_t *word);

/* Start the thread that runs the stream's functions.  The caller uses the stream.  OK,
 * SYSTEM, NOMEM: batoni_refuse has said why. */
enum baton_status batoni_cuda_worker_start(struct cuda_stream *stream);
/* Let it run item->reached.  From a host function: stores and wakes only. */
void batoni_cuda_worker_run(struct cuda_stream *stream,
                            struct batoni_stream_item *item);

/* cuda_item.c: put the item on the stream, which the caller uses.  OK, AGAIN, CUDA. */
enum baton_status batoni_cuda_enqueue(struct cuda_stream *stream, CUstream handle,
                                      struct batoni_stream_item *item);
/* The wait of an item that was put there WAITS_LATER. */
void batoni_cuda_wait(struct cuda_stream *stream, CUstream handle,
                      const struct batoni_stream_item *item);
/* cuda_room.c: room for a call of another library, on a stream that the caller uses.  OK, AGAIN. */
enum baton_status batoni_cuda_room(struct cuda_stream *stream, CUstream handle,
                                   const struct batoni_need *need);
enum baton_status batoni_cuda_holds(const struct batoni_need *need);
/* Under stream->lock: is there such room?  The caller may wait for it for a moment. */
bool batoni_cuda_has_room(struct cuda_stream *stream, CUstream handle,
                          const struct batoni_need *need);
/* Likewise for a put, which leaves room for items. */
bool batoni_cuda_takes_put(const struct cuda_stream *stream);
/* AGAIN: batoni_refuse has said why. */
enum baton_status batoni_cuda_refuse_full(void);
/* Under stream->lock: an item or a put was put on the stream. */
void batoni_cuda_set_point(struct cuda_stream *stream);
/* The event, just recorded on the stream, stands for so many entries there; and it does not any
 * more. */
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
/* cuda_mark.c: tables and a slot of the device's. */
extern const struct batoni_mark_ops batoni_cuda_marks;
extern const struct batoni_event_ops batoni_cuda_events;
void batoni_cuda_behind(struct batoni_device *device, baton_stream handle,
                        baton_stream other);
/* cuda_queues.c: slots of the device's table. */
void batoni_cuda_crowd(struct batoni_device *device, struct batoni_crowd *crowd_p);
/* So many of the entries that there are by default, as CUDA_SCALE_LAUNCH_QUEUES has it.  Any thread,
 * behind the first open. */
uint32_t batoni_cuda_scaled(uint32_t entries);
/* So many entries of ours a stream takes (cuda_room.c). */
uint32_t batoni_cuda_entries(void);
void batoni_cuda_foreign_streams(struct batoni_device *device, int more);
/* A word has grown: wake the host functions that wait for one, on any GPU. */
void batoni_cuda_released(void);

#endif
