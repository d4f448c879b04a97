/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the random load share. */
#ifndef STRESS_WORKER_H
#define STRESS_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "random.h"
#include "stress.h"

enum {
	BATCH = 8,     /* of each kind, in a round */
	STREAMS = 3,   /* of a worker */
	TAGS_EACH = 4, /* of a worker, for what is answered */
	LIST_MAX = 6,  /* tensors of a message that is a list */
	UNTOUCHED = 0xd7 /* memory that nobody has put into */
};

/* What a round starts: operation i of a kind has the number kind * BATCH + i. */
enum kind { SENDS, RECVS, PUTS, WAITS, KINDS };
#define OPS ((size_t)KINDS * BATCH)

/* How the ends of operations are learned of. */
enum delivery { BY_FINISH, BY_QUEUE, BY_STREAM, BY_TEST, DELIVERIES };

/* An exchange: this worker writes to one rank's and is written to by another's. */
struct round {
	int number, to, from;
	bool grouped;
	enum delivery delivery;
	struct baton_op_options options;
	int count[KINDS];
	int started; /* all of them together */
	baton_request requests[OPS];
	struct baton_completion ends[OPS];
	bool ended[OPS];
	struct baton_tensor lists[BATCH][LIST_MAX]; /* what the receives declare */

	/* onesided.c */
	int covers[BATCH + 1]; /* wait i is for puts covers[i] to covers[i + 1] - 1 */
	bool seen[BATCH];      /* the put has been looked at, here */
	bool gated;            /* streams[0] waits until we may put */
	baton_request gate, greedy;
};

/* A rank's part of the windows, for all its workers. */
struct windows {
	struct baton_window *window[2];
	unsigned char *base[2]; /* of baton_mem_alloc, and of malloc */
};

struct onesided;

struct worker {
	struct baton_comm *comm;
	const struct stress_options *options;
	const struct windows *windows;
	pthread_t thread;
	int number;
	int rank, size;
	uint64_t own; /* the state of what only this worker draws */
	bool has_lists; /* BATON_CAP_TENSORS */
	baton_stream streams[STREAMS];
	struct baton_queue *queue;
	unsigned char *in[BATCH], *out[BATCH];
	struct onesided *onesided;
};

/* ---- worker.c ---- */

baton_stream any_stream(struct worker *w);

/* Print the failure, with what is needed to have it again, and end the job: the worker's peers would
 * wait for what it does not do any more.  Does not return. */
__attribute__((format(printf, 3, 4), noreturn)) void
fail(struct worker *w, int round, const char *format, ...);

void check_filled(struct worker *w, int round, const unsigned char *buffer,
                  size_t bytes, unsigned pattern);

/* ---- windows.c: collective, on one thread of the rank ---- */

void windows_open(struct worker *w, struct windows *windows);
void windows_close(struct worker *w, struct windows *windows);
/* Register a window, put into it, let it go; workers may run. */
void windows_come_and_go(struct worker *w, int round);

/* ---- onesided.c ---- */

/* Signal indices and contexts for that many workers. */
int onesided_indices(int workers);
int onesided_contexts(int workers);
/* One of the worker's own indices. */
int index_of(const struct worker *w, int which);
/* Of a rank's part of each window. */
size_t part_bytes(const struct stress_options *options, int size);

void onesided_init(struct worker *w);
void onesided_fini(struct worker *w);
/* Before the round's operations are started, and before its group begins. */
void onesided_begin(struct worker *w, struct round *r);
/* Start put or wait i of the round, on that stream unless it may not be. */
enum baton_status start_put(struct worker *w, struct round *r, int i,
                            baton_stream stream);
enum baton_status start_wait(struct worker *w, struct round *r, int i,
                             baton_stream stream);
/* Wait i has ended: what it shows must be there. */
void check_wait(struct worker *w, struct round *r, int i);
/* What has no peer, or ends before its time. */
void end_onesided_early(struct worker *w, struct round *r);
/* All of the round has ended. */
void onesided_end(struct worker *w, struct round *r);
/* After the last round: every counter is what it must be. */
void check_counters(struct worker *w);

#endif
