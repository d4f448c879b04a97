/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the random load share. */
#ifndef STRESS_WORKER_H
#define STRESS_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "stress.h"

enum {
	BATCH = 12,  /* messages each way in a round */
	STREAMS = 3, /* of a worker */
	BYTES_MAX = 200000
};

struct worker {
	struct baton_comm *comm;
	const struct stress_options *options;
	pthread_t thread;
	int number;
	int rank, size;
	uint64_t own; /* the state of what only this worker draws */
	baton_stream streams[STREAMS];
	struct baton_queue *queue;
	unsigned char *in[BATCH], *out[BATCH];
	_Atomic int failures;
};

/* ---- worker.c ---- */

/* A number of the sequence, and where a sequence begins. */
uint32_t draw(uint64_t *state);
uint64_t mix(uint64_t seed, int a, int b, int c);
/* Mostly small, sometimes at the steps of a protocol, sometimes long. */
size_t draw_bytes(uint64_t *state);
baton_stream any_stream(struct worker *w);

/* Count a failure; the first few are printed, with what is needed to have them
 * again. */
__attribute__((format(printf, 3, 4))) void
fail(struct worker *w, int round, const char *format, ...);

void fill(unsigned char *buffer, size_t bytes, unsigned pattern);
void check_filled(struct worker *w, int round, const unsigned char *buffer,
                  size_t bytes, unsigned pattern);

#endif
