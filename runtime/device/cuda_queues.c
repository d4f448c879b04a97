/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many streams there are for how many hardware queues.
 *
 * CUDA maps the streams of a context to queues, of which CUDA_DEVICE_MAX_CONNECTIONS says how
 * many there are: for kernels and waits, and for copies, unless CUDA_DEVICE_MAX_COPY_CONNECTIONS
 * says how many of these.  Nothing tells which stream is in which queue, so all that can be said
 * is whether each may have one of its own.  The driver reads the variables when it starts; they
 * are read here when the GPU is set up, since nothing else tells them.
 *
 * Counted are the streams that are known: those for copies, those of stream_create, those that a
 * library has told of, those of the program with operations on them now, and one default stream.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cuda_stream.h"

/* What CUDA takes, and what it has where nothing is set. */
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

void
batoni_cuda_queues_read(struct cuda_gpu *gpu)
{
	gpu->queues = read_variable(CONNECTIONS, QUEUES_USUAL);
	gpu->copy_queues = read_variable(COPY_CONNECTIONS, gpu->queues);
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

/* Both variables, or the one that is too low. */
static void
advise(const struct cuda_gpu *gpu, struct batoni_crowd *crowd)
{
	uint32_t advised = QUEUES_USUAL;
	bool copies = getenv(COPY_CONNECTIONS) != NULL;

	while (advised < crowd->streams && advised < QUEUES_MAX)
		advised *= 2;
	crowd->advised = advised;
	if (gpu->queues < advised && copies && gpu->copy_queues < advised)
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
