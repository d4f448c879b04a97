/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many streams there are for how many hardware queues, and how much a stream takes.
 *
 * CUDA maps the streams of a context to hardware queues.  CUDA_DEVICE_MAX_CONNECTIONS is the number of
 * queues for kernels and waits, and of those for copies too unless CUDA_DEVICE_MAX_COPY_CONNECTIONS
 * gives that.  The driver does not tell which stream is in which queue, so all that can be known is
 * whether there are enough for each stream to have its own.  The driver reads the variables when it
 * starts.  This file reads them when the GPU is set up, and not later: the program may be changing its
 * environment while the engine's thread asks how crowded the queues are.
 *
 * CUDA_SCALE_LAUNCH_QUEUES (0.25x, 0.5x, 2x, 4x) scales how many entries the driver takes before a call
 * blocks.  cuda_room.c bounds what Baton puts on a stream in the same proportion.  Whether the driver's
 * limit is that of a queue or of a stream is not known; streams that share a queue may find it full
 * before they reach the bound.
 *
 * The count has the streams that are known: those for copies, those of stream_create, those that a
 * library has announced, those of the program with operations on them now, and one default stream.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stream.h"
#include "log.h"

/* The greatest value that CUDA takes, and its default. */
#define QUEUES_MAX 32u
#define QUEUES_USUAL 8u

#define CONNECTIONS "CUDA_DEVICE_MAX_CONNECTIONS"
#define COPY_CONNECTIONS "CUDA_DEVICE_MAX_COPY_CONNECTIONS"

static uint32_t
read_variable(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);
	long number = text ? strtol(text, NULL, 10) : 0;

	return number >= 1 && number <= (long)QUEUES_MAX ? (uint32_t)number
	                                                 : otherwise;
}

/* The scale of the default depth, in quarters.  The driver ignores a value that it does not know. */
static uint32_t
read_depth(void)
{
	static const struct {
		const char *text;
		uint32_t quarters;
	} depths[] = {{"0.25x", 1}, {"0.5x", 2}, {"2x", 8}, {"4x", 16}};
	const char *text = getenv("CUDA_SCALE_LAUNCH_QUEUES");

	for (size_t i = 0; text && i < sizeof(depths) / sizeof(depths[0]); i++) {
		if (strcmp(text, depths[i].text) == 0)
			return depths[i].quarters;
	}
	return 4;
}

/* The scale, in quarters, when the first GPU was set up: one driver serves all.  0: none was. */
static _Atomic uint32_t quarters;

uint32_t
batoni_cuda_scaled(uint32_t entries)
{
	return entries *
	       atomic_load_explicit(&quarters, memory_order_relaxed) / 4;
}

static bool
launches_block(void)
{
	const char *text = getenv("CUDA_LAUNCH_BLOCKING");

	return text && strtol(text, NULL, 10) != 0;
}

static void
warn_of_blocking(const struct cuda_gpu *gpu)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;

	if (gpu->blocking && !atomic_flag_test_and_set(&warned))
		batoni_log(BATONI_LOG_WARN,
		           "CUDA_LAUNCH_BLOCKING is set: a kernel that is launched "
		           "on a stream that waits for a message blocks its "
		           "thread until the message has come, and for ever if "
		           "that thread has still to send it; unset it");
}

void
batoni_cuda_queues_read(struct cuda_gpu *gpu)
{
	uint32_t not_read = 0;

	gpu->queues = read_variable(CONNECTIONS, QUEUES_USUAL);
	gpu->copy_queues = read_variable(COPY_CONNECTIONS, gpu->queues);
	gpu->copy_queues_set = getenv(COPY_CONNECTIONS) != NULL;
	gpu->blocking = launches_block();
	atomic_compare_exchange_strong(&quarters, &not_read, read_depth());
	warn_of_blocking(gpu);
}

static bool
is_created_locked(struct cuda_gpu *gpu, unsigned long long id)
{
	for (struct batoni_list_node *at = gpu->created.next;
	     at != &gpu->created; at = at->next) {
		if (batoni_container_of(at, struct cuda_created, link)->id == id)
			return true;
	}
	return false;
}

static void
count_locked(struct cuda_gpu *gpu, struct batoni_crowd *crowd)
{
	crowd->streams = CUDA_COPY_STREAMS + 1 + atomic_load(&gpu->foreign);
	for (const struct batoni_list_node *at = gpu->created.next;
	     at != &gpu->created; at = at->next)
		crowd->streams++;
	for (unsigned at = 0; at < CUDA_STREAMS_MAX; at++) {
		const struct cuda_stream *stream = gpu->streams[at];

		if (!stream || !batoni_cuda_stream_works_locked(stream))
			continue;
		crowd->working++;
		crowd->streams += !is_created_locked(gpu, stream->id);
	}
}

/* The advice names both variables, or the one that is too low. */
static void
advise(const struct cuda_gpu *gpu, struct batoni_crowd *crowd)
{
	uint32_t advised = QUEUES_USUAL;

	while (advised < crowd->streams && advised < QUEUES_MAX)
		advised *= 2;
	crowd->advised = advised;
	if (gpu->queues < advised && gpu->copy_queues_set &&
	    gpu->copy_queues < advised)
		snprintf(crowd->advice, sizeof(crowd->advice),
		         CONNECTIONS "=%u and " COPY_CONNECTIONS "=%u", advised,
		         advised);
	else
		snprintf(crowd->advice, sizeof(crowd->advice), "%s=%u",
		         gpu->queues < advised ? CONNECTIONS : COPY_CONNECTIONS,
		         advised);
}

void
batoni_cuda_crowd(struct batoni_device *device, struct batoni_crowd *crowd_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct batoni_crowd crowd = {
		.queues = gpu->queues,
		.copy_queues = gpu->copy_queues,
		.entries = batoni_cuda_entries(),
		.blocking = gpu->blocking ? "; CUDA_LAUNCH_BLOCKING is set: "
					    "launching a kernel behind a wait "
					    "blocks the thread"
					  : NULL,
	};

	pthread_mutex_lock(&gpu->lock);
	count_locked(gpu, &crowd);
	pthread_mutex_unlock(&gpu->lock);
	advise(gpu, &crowd);
	*crowd_p = crowd;
}

void
batoni_cuda_foreign_streams(struct batoni_device *device, int more)
{
	atomic_fetch_add(&batoni_cuda_gpu(device)->foreign, (uint32_t)more);
}
