/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pipeline-parallel training over Baton: what the files of this sample share.
 *
 *   main.c      the run, from options to verdict
 *   options.c   the command line
 *   data.c      reads the images and gives each stage the part that it needs
 *   mlp.c       one stage's layers: forward, loss, backward, update
 *   products.c  their matrix products: OpenBLAS, or cuBLAS on a CUDA device
 *   link.c      one direction of traffic with a neighbour: post, finish
 *   schedule.c  1F1B: the order of forwards, backwards and transfers
 *   measure.c   computations alone, transfers alone, and the best possible step
 *   report.c    the progress line and the tables
 *   timeline.c  one step of each run, drawn as an SVG picture
 *
 * Read schedule.c first, then link.c: those two use Baton.
 */
#ifndef PIPELINE_H
#define PIPELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "../check.h"
#include "../device.h"

/* One tag for each kind of message, so that none waits for another. */
enum tag {
	TAG_ACTIVATION, /* a micro-batch on its way to the loss */
	TAG_GRADIENT,   /* and back */
	TAG_HELD_OUT,   /* an evaluation's micro-batch */
	TAG_SCORE,      /* an epoch's loss and accuracy, to rank 0 */
	TAG_DATA,       /* sizes and labels, from rank 0 */
	TAG_MEET,       /* a barrier */
	TAG_TIMES,      /* what a stage measured, to rank 0 */
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
	const char *timeline;  /* the picture's file; NULL: no picture */
	const char *link_name; /* of the network, for the report; or NULL */
	const char *cublas;    /* its library, or "none"; NULL: the usual one */
	double pretend_mbit;   /* rate of the pretended link; 0: none */
	int quiet;             /* percent of a processor that a quiet epoch has */
	enum progress_style progress;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG };

/* Fill *options_p.  Only a rank with `talk` set prints help and errors. */
enum options_result options_parse(int argc, char **argv, bool talk,
                                  struct options *options_p);
/* Whether the options fit the number of stages and of training images. */
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

/* Read the file; on a malformed one print what is wrong and return false. */
bool data_read(const char *path, struct data *data_p);
/* Collective.  Rank 0 passes what it read, NULL if it could not: send the sizes
 * to all ranks and the labels to the last.  False on all ranks without data. */
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
	/* products.c's, with cuBLAS: the weights, and the sum of their gradients. */
	void *device_weights, *device_gradient;
};

/* One stage: consecutive layers of the model, and the values of the
 * micro-batches that are in flight in it. */
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

/* ---- products.c --------------------------------------------------------- */

/* Take cuBLAS, for the process, where the communicator is on a CUDA device and there is
 * one; true: it is taken.  stderr says why it cannot be had.  False, and after
 * products_close: OpenBLAS. */
bool products_open(struct baton_comm *comm, const struct options *options);
void products_close(void);
const char *products_name(void);

/* Whatever the library needs of a new layer; its end. */
void products_place(struct layer *layer);
void products_displace(struct layer *layer);
/* to = from times the weights */
void products_forward(const struct layer *layer, int rows, const float *from,
                      float *to);
/* gradient += transposed from times above */
void products_gradient(struct layer *layer, int rows, const float *from,
                       const float *above);
/* below = above times transposed weights */
void products_backward(const struct layer *layer, int rows, const float *above,
                       float *below);
/* Before an update: bring the gradient's sum here.  After it: weights and gradient
 * have changed. */
void products_summed(struct layer *layer);
void products_updated(struct layer *layer);

/* ---- link.c ------------------------------------------------------------- */

/* The communicators of a run.  One in all three places, where the transport has
 * tags.  NCCL has none, and no memory of the host: there each direction of the
 * pipeline has a communicator of its own, since the messages of one wait for each
 * other, and what does not belong to a step goes between hosts. */
struct comms {
	struct baton_comm *activations, *gradients;
	struct baton_comm *host; /* transfer(), meet() */
};

/* Collective. */
void comms_open(struct comms *comms_p);
void comms_close(struct comms *comms);

/* Nanoseconds of CLOCK_MONOTONIC, as in the completions. */
struct span {
	uint64_t begin, end;
};

static inline double span_ns(struct span span)
{
	return (double)(span.end - span.begin);
}

/* One direction of traffic with one neighbour.  Slots are used in turn, and
 * transfers are finished in the order in which they were posted. */
struct link {
	struct baton_comm *comm;
	int peer; /* -1: no neighbour, and all calls do nothing */
	int tag;
	bool incoming;
	size_t count;            /* floats of a message */
	int slots;
	baton_request *requests; /* [slot], BATON_REQUEST_NULL when idle */
	/* On a CUDA device, messages are in its memory: what a stage computes with
	 * is copied there before a send, and from there after a receive.  NULL: on
	 * the host, messages are where the stage computes. */
	struct device *device;
	void **memory;           /* [slot], of the device */
	float **buffers;         /* [slot], of the host, while it is received */
	struct span *transfers;  /* [message]: armed to completed */
	size_t posted, finished; /* messages */
	uint64_t pretend_ns;     /* a message on the pretended link; 0: none */
	uint64_t pretend_free_ns; /* when that link has carried the last one */
};

struct stage {
	const struct comms *comms; /* NULL: the whole model, no neighbours */
	struct baton_comm *comm;   /* that between hosts, or NULL */
	int rank, ranks;
	baton_stream stream;
	struct device *device; /* NULL: the host */
	const struct options *options;
	const struct data *data;
	struct mlp mlp;
	struct link activation_in, activation_out;
	struct link gradient_in, gradient_out;
	int *order; /* of the images of this epoch */
	struct score score; /* of this epoch; the last stage's */
	struct span *steps; /* [step]: its first computation to its last */
	struct span *computed; /* [step][computation] */
	size_t steps_count;
};

/* The computations of a step: a forward and a backward for each micro-batch,
 * and the update. */
static inline size_t computations(const struct options *options)
{
	return 2 * (size_t)options->micro_batches + 1;
}
static inline struct span *computed(const struct stage *stage, size_t step)
{
	return stage->computed + step * computations(stage->options);
}

void link_init(struct link *link, int peer, enum tag tag, bool incoming,
               size_t count, int slots, size_t messages);
/* Its messages go over this communicator, with its tag, or 0 where there are none. */
void link_join(struct link *link, struct baton_comm *comm);
/* Its messages are in the memory of the device, unless that is NULL. */
void link_place(struct link *link, struct device *device);
void link_fini(struct link *link);
/* From now on pretend that the link carries this many Mbit/s. */
void link_pretend(struct link *link, double mbit);

/* Enqueue the transfer of the slot's buffer, detached, and go on. */
void link_post(struct stage *stage, struct link *link, int slot, float *buffer);
/* Wait until the slot's transfer, if there is one, has ended. */
void link_finish(struct link *link, int slot);
/* Wait for all that were posted. */
void link_drain(struct link *link);

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
/* A barrier. */
void meet(struct baton_comm *comm);

/* ---- schedule.c --------------------------------------------------------- */

/* Trains one batch; `last` says that none follows in this epoch. */
typedef void schedule_fn(struct stage *stage, int batch, bool last);

void schedule_overlap(struct stage *stage, int batch, bool last);
void schedule_wait(struct stage *stage, int batch, bool last);
/* Forwards that a stage runs before its first backward. */
int ahead_overlap(int rank, int ranks);
int ahead_wait(int rank, int ranks);

/* The stage can train up to `epochs` epochs. */
void stage_init(struct stage *stage, const struct comms *comms,
                const struct options *options, const struct data *data,
                int epochs);
void stage_fini(struct stage *stage);
void stage_train(struct stage *stage, schedule_fn *schedule, int epoch);
/* One step: the batch and its update, with its times noted. */
void stage_step(struct stage *stage, schedule_fn *schedule, int batch,
                bool last);
/* The score on the held-out images, where this is the last stage. */
struct score stage_evaluate(struct stage *stage);

/* ---- measure.c ---------------------------------------------------------- */

#define RUNS_MAX 2

struct run {
	const char *name;
	schedule_fn *schedule;
	struct stage stage;
	struct score held_out;
	double step_ns;  /* median; on rank 0 */
	float **weights; /* of all layers, on rank 0 */
};

/* Steps that only compute and steps that only transfer, some before each epoch
 * of the runs. */
struct baseline {
	struct stage computing; /* has no neighbours, and never waits */
	struct stage moving;    /* never computes */
	double *moving_ns;      /* [sample], this rank's */
	size_t count;
	double *share;          /* [epoch], and one behind the last: of the processor */
	size_t measured;        /* of those */
};

void baseline_init(struct baseline *baseline, const struct comms *comms,
                   const struct options *options, const struct data *data);
void baseline_fini(struct baseline *baseline);
void baseline_measure(struct baseline *baseline); /* collective */

/* How much faster steps are with overlap than without, as far as the machine let us
 * tell: other load takes the processor from computations and transfers alike, and then
 * there is nothing to be hidden behind. */
struct gain {
	double faster;     /* median over the quiet epochs: without / with */
	int quiet, epochs; /* epochs that were quiet, and all */
	double share;      /* median over epochs: what computations got of the processor */
	bool told;         /* enough were quiet */
};

/* Collective; the result is rank 0's.  Runs: with overlap and without. */
struct gain gain_gather(const struct baseline *baseline, const struct run *runs,
                        const struct options *options);

/* Medians of one stage.  Doubles only: it is sent as it is. */
struct stage_times {
	double first_layer, layers;
	double forward_ns, backward_ns, update_ns; /* alone */
	double alone_ns; /* all computations of a step */
	double moving_ns; /* all transfers of a step, alone */
	double computing_ns[RUNS_MAX]; /* all computations, in each run */
};

/* What the computations of a step take when transfers take no time. */
struct best {
	double computing_ns;
	struct span window;      /* the step in the pipeline's steady state */
	struct span **computed;  /* [stage][computation], in that step */
};

double median(double *values, size_t count); /* sorts them */
/* Collective: times[ranks] on rank 0, NULL elsewhere. */
struct stage_times *times_gather(const struct baseline *baseline,
                                 const struct run *runs, int count);
void best_init(struct best *best, const struct stage_times *times, int ranks,
               const struct options *options);
void best_fini(struct best *best, int ranks);

/* ---- report.c ----------------------------------------------------------- */

struct progress {
	enum progress_style style;
	int epochs;
	int width; /* of the line on the terminal that the next one replaces */
};

void progress_init(struct progress *progress, const struct options *options);
void progress_show(struct progress *progress, const char *name, int epoch,
                   const struct score *training, const struct score *held_out);

/* On rank 0: the tables of the computations, the transfers and the steps. */
void report_times(const struct run *runs, int count,
                  const struct stage_times *times, const struct best *best,
                  const struct options *options);
/* On rank 0: what overlap gains, or that the machine was too busy to tell. */
void report_gain(const struct gain *gain);

/* ---- timeline.c --------------------------------------------------------- */

/* Collective: draw one step of each run to options->timeline and print its
 * path.  `best` matters on rank 0 only.  False on all ranks when the file cannot
 * be written. */
bool timeline_write(const struct run *runs, int count, const struct best *best,
                    const struct options *options);

#endif
