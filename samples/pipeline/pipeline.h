/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pipeline-parallel training over Baton: what the files of this sample share.
 *
 *   main.c      the run, from options to verdict
 *   options.c   the command line
 *   data.c      the images, and who needs which part of them
 *   mlp.c       one stage's layers: forward, loss, backward, update (OpenBLAS)
 *   link.c      one direction of traffic with a neighbour: posts, waits, times
 *   schedule.c  1F1B: the order of forwards, backwards and transfers
 *   report.c    what each stage spent its time on; the progress line
 *
 * Read schedule.c first, then link.c: that is where Baton is used.
 */
#ifndef PIPELINE_H
#define PIPELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "../check.h"

/* One tag for each kind of message, so that none waits for another. */
enum tag {
	TAG_ACTIVATION, /* a micro-batch on its way to the loss */
	TAG_GRADIENT,   /* and back */
	TAG_HELD_OUT,   /* an evaluation's micro-batch */
	TAG_SCORE,      /* an epoch's loss and accuracy, to rank 0 */
	TAG_DATA,       /* sizes and labels, from rank 0 */
	TAG_TIMES,      /* when each side was ready, between neighbours */
	TAG_ACCOUNT,    /* where a stage's time went, to rank 0 */
	TAG_VERDICT,    /* from rank 0 to all */
	TAG_WEIGHTS     /* and one more for each layer */
};

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Memory for count elements, zeroed; ends the program when there is none. */
void *allocate(size_t count, size_t size);

/* ---- options.c ---------------------------------------------------------- */

enum progress_style {
	PROGRESS_AUTO, /* LINE on a terminal, else PLAIN */
	PROGRESS_LINE, /* one line, written again and again */
	PROGRESS_PLAIN /* a new line, ten times a run */
};

#define MICRO_BATCHES_MAX 256

struct options {
	int epochs;
	int batch;
	int micro_batches; /* of a batch */
	int hidden;
	int layers; /* weight matrices */
	bool overlap, wait;
	bool verify;
	uint64_t seed;
	const char *data;
	enum progress_style progress;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG };

/* Fill *options_p.  Only the rank that talks writes help and complaints. */
enum options_result options_parse(int argc, char **argv, bool talk,
                                  struct options *options_p);
/* Whether they fit this many stages and training images. */
bool options_fit(const struct options *options, int ranks, int images,
                 bool talk);

/* ---- data.c ------------------------------------------------------------- */

#define PIXELS 64
#define DIGITS 10

struct images {
	int count;
	float *pixels; /* count rows of PIXELS, 0 to 1; NULL: not needed here */
	unsigned char *labels; /* NULL: not needed here */
};

struct data {
	struct images training;
	struct images held_out; /* every fifth image, never trained on */
};

/* Read the file; false, and a complaint, when it is not what it should be. */
bool data_read(const char *path, struct data *data_p);
/* Rank 0 has read the file, or not (NULL): tell all ranks the sizes, and the
 * last one the labels.  False on all ranks when there is no data. */
bool data_share(struct baton_comm *comm, const struct data *read,
                struct data *data_p);
void data_free(struct data *data);

/* The order of the training images in this epoch: the same on all ranks. */
void data_shuffle(int *order, int count, uint64_t seed, int epoch);

/* splitmix64: the next of a sequence of uniform 64-bit numbers. */
uint64_t random_next(uint64_t *state);

/* ---- mlp.c -------------------------------------------------------------- */

struct layer {
	int inputs, outputs;
	size_t size;     /* weights, then biases */
	float *weights;  /* inputs rows of outputs, then one row of biases */
	float *gradient; /* summed over the micro-batches of a batch */
	float *velocity; /* momentum */
};

/* One stage: consecutive layers of the model, and the values of the
 * micro-batches that are under way in it. */
struct mlp {
	int first, count; /* its layers are first to first + count - 1 */
	int total;        /* of the whole model */
	int rows;         /* images of a micro-batch */
	int slots;        /* micro-batches that it can hold */
	struct layer *layers;
	float **values;       /* [slot * (count + 1) + layer], its inputs */
	float **gradient_in;  /* [slot]: of the loss by the stage's outputs */
	float **gradient_out; /* [slot]: of the loss by the stage's inputs */
	float *scratch[2];
	/* Called between layers; NULL: nothing is. */
	void (*between)(void *argument);
	void *between_argument;
};

/* Floats of a layer: weights and biases. */
size_t layer_size(const struct options *options, int number);

void mlp_init(struct mlp *mlp, const struct options *options, int first,
              int count);
void mlp_fini(struct mlp *mlp);

static inline float *mlp_input(const struct mlp *mlp, int slot)
{
	return mlp->values[slot * (mlp->count + 1)];
}
static inline float *mlp_output(const struct mlp *mlp, int slot)
{
	return mlp->values[slot * (mlp->count + 1) + mlp->count];
}
static inline bool mlp_is_first(const struct mlp *mlp)
{
	return mlp->first == 0;
}
static inline bool mlp_is_last(const struct mlp *mlp)
{
	return mlp->first + mlp->count == mlp->total;
}

void mlp_forward(struct mlp *mlp, int slot);
/* Softmax and cross-entropy of the first `rows` outputs, the last stage's work:
 * adds to the score, and writes gradient_in, scaled by `scale`. */
struct score {
	double loss;   /* sum over images */
	double images; /* a count: a double, so that a score is plain floats */
	double correct;
};
void mlp_loss(struct mlp *mlp, int slot, int rows, const unsigned char *labels,
              float scale, struct score *score);
void mlp_backward(struct mlp *mlp, int slot);
/* One step of gradient descent with momentum; clears the gradients. */
void mlp_update(struct mlp *mlp);

/* ---- link.c ------------------------------------------------------------- */

/* Nanoseconds of CLOCK_MONOTONIC, as in the completions. */
struct span {
	uint64_t begin, end;
};

/* One direction of traffic with one neighbour.  Slots are used in turn, and
 * transfers are finished in the order in which they were posted. */
struct link {
	int peer; /* -1: nobody there, and all calls do nothing */
	enum tag tag;
	bool incoming;
	size_t count;            /* floats of a message */
	int slots;
	baton_request *requests; /* [slot], BATON_REQUEST_NULL when idle */
	struct span *transfers;  /* [message]: armed to completed */
	size_t posted, finished; /* messages */
};

struct stage {
	struct baton_comm *comm; /* NULL: the whole model, no neighbours */
	int rank, ranks;
	baton_stream stream;
	const struct options *options;
	const struct data *data;
	struct mlp mlp;
	struct link activation_in, activation_out;
	struct link gradient_in, gradient_out;
	int *order; /* of the images of this epoch */
	struct score score; /* of this epoch; the last stage's */
	uint64_t compute_ns, training_ns;
	struct span *waits; /* when the host waited for a transfer */
	size_t waits_count;
};

void link_init(struct link *link, int peer, enum tag tag, bool incoming,
               size_t count, int slots, size_t messages);
void link_fini(struct link *link);

/* Enqueue the transfer of the slot's buffer, detached, and go on. */
void link_post(struct stage *stage, struct link *link, int slot, float *buffer);
/* Wait until the slot's transfer, if there is one, has ended. */
void link_finish(struct stage *stage, struct link *link, int slot);
/* Wait for all that were posted. */
void link_drain(struct stage *stage, struct link *link);

struct move {
	struct link *link; /* NULL: none */
	int slot;
	float *buffer;
};
/* Start two transfers at once and wait for both. */
void link_exchange(struct stage *stage, struct move one, struct move other);

/* One message outside of the schedule; waits for it. */
void transfer(struct baton_comm *comm, int peer, enum tag tag, bool incoming,
              void *bytes, size_t count);

/* ---- schedule.c --------------------------------------------------------- */

/* Trains one batch; `last` says that none follows. */
typedef void schedule_fn(struct stage *stage, int batch, bool last);

void schedule_overlap(struct stage *stage, int batch, bool last);
void schedule_wait(struct stage *stage, int batch, bool last);

void stage_init(struct stage *stage, struct baton_comm *comm,
                const struct options *options, const struct data *data);
void stage_fini(struct stage *stage);
void stage_train(struct stage *stage, schedule_fn *schedule, int epoch);
/* The score on the held-out images, where this is the last stage. */
struct score stage_evaluate(struct stage *stage);

/* ---- report.c ----------------------------------------------------------- */

struct progress {
	enum progress_style style;
	const char *name; /* of the run */
	int epochs;
	int width; /* of the line that stands there */
};

void progress_init(struct progress *progress, const struct options *options,
                   const char *name);
void progress_show(struct progress *progress, int epoch,
                   const struct score *training, const struct score *held_out);

/* Collective: print, on rank 0, what each stage spent its time on.  Returns
 * there the time of the slowest stage in seconds. */
double report_stages(struct stage *stage, const char *name);

#endif
