/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The schedules: in what order a stage computes, and when it exchanges data with
 * its neighbours.  Both are 1F1B: some forwards to fill the pipeline, then one
 * forward and one backward in turn, then the backwards that are left.
 *
 * schedule_wait is the plain one.  Stage r of P starts P-1-r forwards ahead.
 * After each computation it sends the result, receives what it needs next, and
 * waits for both.
 *
 * schedule_overlap waits for a message only when it needs its data.  It posts the
 * receives of a micro-batch as soon as their buffers are free, one batch ahead,
 * and its sends are detached.  It starts three times as many forwards ahead: with
 * P-1-r of them a stage needs each message at the moment at which it is sent, and
 * no transfer could hide; with 3(P-1-r) a transfer has as long as one forward and
 * one backward take.  The price is memory for the values of more micro-batches.
 *
 * Under both schedules backwards run in the order of the micro-batches, so the
 * gradients are summed in the same order and the weights come out the same.
 */
#include <string.h>

#include "pipeline.h"

/* ---- computing ---------------------------------------------------------- */

/* Copy the images that order[] (NULL: as they are) names to the input. */
static void load(struct stage *stage, const struct images *images,
                 const int *order, int begin, int rows, int slot)
{
	float *to = mlp_input(&stage->mlp, slot);

	for (int row = 0; row < rows; row++) {
		int image = order != NULL ? order[begin + row] : begin + row;

		memcpy(to + (size_t)row * PIXELS,
		       images->pixels + (size_t)image * PIXELS,
		       PIXELS * sizeof(float));
	}
}

static void loss(struct stage *stage, int begin, int slot)
{
	const unsigned char *labels = stage->data->training.labels;
	unsigned char *wanted = allocate((size_t)stage->mlp.rows, 1);

	for (int row = 0; row < stage->mlp.rows; row++)
		wanted[row] = labels[stage->order[begin + row]];
	mlp_loss(&stage->mlp, slot, stage->mlp.rows, wanted,
	         1.0f / (float)stage->options->batch, &stage->score);
	free(wanted);
}

static void forward(struct stage *stage, int batch, int slot)
{
	struct span *span = &computed(stage, stage->steps_count)[slot];
	int begin = batch * stage->options->batch + slot * stage->mlp.rows;

	span->begin = now_ns();
	if (mlp_is_first(&stage->mlp))
		load(stage, &stage->data->training, stage->order, begin,
		     stage->mlp.rows, slot);
	mlp_forward(&stage->mlp, slot);
	if (mlp_is_last(&stage->mlp))
		loss(stage, begin, slot);
	span->end = now_ns();
}

static void backward(struct stage *stage, int slot)
{
	struct span *span = &computed(stage, stage->steps_count)
	                            [stage->options->micro_batches + slot];

	span->begin = now_ns();
	mlp_backward(&stage->mlp, slot);
	span->end = now_ns();
}

/* ---- the schedules ------------------------------------------------------ */

int ahead_overlap(int rank, int ranks)
{
	return 3 * (ranks - 1 - rank);
}

int ahead_wait(int rank, int ranks)
{
	return ranks - 1 - rank;
}

static void post_receives(struct stage *stage, int slot)
{
	link_post(stage, &stage->activation_in, slot,
	          mlp_input(&stage->mlp, slot));
	link_post(stage, &stage->gradient_in, slot,
	          stage->mlp.gradient_in[slot]);
}

static void overlap_forward(struct stage *stage, int batch, int slot)
{
	link_finish(&stage->activation_in, slot);
	link_finish(&stage->activation_out, slot); /* a batch ago */
	forward(stage, batch, slot);
	link_post(stage, &stage->activation_out, slot,
	          mlp_output(&stage->mlp, slot));
}

static void overlap_backward(struct stage *stage, int slot)
{
	link_finish(&stage->gradient_in, slot);
	link_finish(&stage->gradient_out, slot); /* a batch ago */
	backward(stage, slot);
	link_post(stage, &stage->gradient_out, slot,
	          stage->mlp.gradient_out[slot]);
}

void schedule_overlap(struct stage *stage, int batch, bool last)
{
	int count = stage->options->micro_batches;
	int ahead = ahead_overlap(stage->rank, stage->ranks);

	if (batch == 0) {
		for (int slot = 0; slot < count; slot++)
			post_receives(stage, slot);
	}
	for (int step = 0; step < count + ahead; step++) {
		if (step < count)
			overlap_forward(stage, batch, step);
		if (step >= ahead) {
			overlap_backward(stage, step - ahead);
			if (!last)
				post_receives(stage, step - ahead);
		}
	}
}

/* A micro-batch's transfers; none where there is no such micro-batch. */
static struct move activation(struct stage *stage, bool in, int slot)
{
	struct move move = { NULL, slot, NULL };

	if (slot >= stage->options->micro_batches)
		return move;
	move.link = in ? &stage->activation_in : &stage->activation_out;
	move.buffer = in ? mlp_input(&stage->mlp, slot)
	                 : mlp_output(&stage->mlp, slot);
	return move;
}

static struct move gradient(struct stage *stage, bool in, int slot)
{
	struct move move = { NULL, slot, NULL };

	if (slot < 0)
		return move;
	move.link = in ? &stage->gradient_in : &stage->gradient_out;
	move.buffer = in ? stage->mlp.gradient_in[slot]
	                 : stage->mlp.gradient_out[slot];
	return move;
}

void schedule_wait(struct stage *stage, int batch, bool last)
{
	const struct move none = { NULL, 0, NULL };
	int count = stage->options->micro_batches;
	int ahead = ahead_wait(stage->rank, stage->ranks);

	(void)last; /* nothing is posted for the next batch */
	link_exchange(stage, activation(stage, true, 0), none);
	for (int step = 0; step < count + ahead; step++) {
		int slot = step - ahead; /* whose backward's turn it is */

		if (step < count)
			forward(stage, batch, step);
		link_exchange(stage, activation(stage, false, step),
		              gradient(stage, true, slot));
		if (slot >= 0)
			backward(stage, slot);
		link_exchange(stage, gradient(stage, false, slot),
		              activation(stage, true, step + 1));
	}
}

/* ---- the stage ---------------------------------------------------------- */

static void links_init(struct stage *stage, int epochs)
{
	const struct layer *layers = stage->mlp.layers;
	int count = stage->options->micro_batches;
	double mbit = stage->options->pretend_mbit;
	int batches = stage->data->training.count / stage->options->batch;
	size_t rows = (size_t)stage->mlp.rows;
	size_t below = rows * (size_t)layers[0].inputs;
	size_t above = rows * (size_t)layers[stage->mlp.count - 1].outputs;
	size_t steps = (size_t)epochs * (size_t)batches;
	size_t messages = steps * (size_t)count;
	int previous = stage->rank - 1; /* -1 before the first, as links want */
	int next = stage->rank + 1 < stage->ranks ? stage->rank + 1 : -1;

	link_init(&stage->activation_in, previous, TAG_ACTIVATION, true, below,
	          count, messages);
	link_init(&stage->gradient_out, previous, TAG_GRADIENT, false, below,
	          count, messages);
	link_init(&stage->activation_out, next, TAG_ACTIVATION, false, above,
	          count, messages);
	link_init(&stage->gradient_in, next, TAG_GRADIENT, true, above, count,
	          messages);
	link_pretend(&stage->activation_in, mbit);
	link_pretend(&stage->gradient_in, mbit);
	if (stage->comms != NULL) {
		link_join(&stage->activation_in, stage->comms->activations);
		link_join(&stage->activation_out, stage->comms->activations);
		link_join(&stage->gradient_in, stage->comms->gradients);
		link_join(&stage->gradient_out, stage->comms->gradients);
	}
	link_place(&stage->activation_in, stage->device);
	link_place(&stage->gradient_out, stage->device);
	link_place(&stage->activation_out, stage->device);
	link_place(&stage->gradient_in, stage->device);
	stage->steps = allocate(steps, sizeof(*stage->steps));
	stage->computed = allocate(steps * computations(stage->options),
	                           sizeof(*stage->computed));
}

/* A progress pass between two layers costs about a microsecond.  Without it a
 * transfer that needs the host goes on only at the next tick of Baton's own
 * thread, which ticks once in a millisecond while the program computes. */
static void nudge(void *comm)
{
	baton_progress(comm);
}

void stage_init(struct stage *stage, const struct comms *comms,
                const struct options *options, const struct data *data,
                int epochs)
{
	int first, next;

	memset(stage, 0, sizeof(*stage));
	stage->comms = comms;
	stage->comm = comms != NULL ? comms->host : NULL;
	stage->rank = comms != NULL ? baton_comm_rank(comms->host) : 0;
	stage->ranks = comms != NULL ? baton_comm_size(comms->host) : 1;
	stage->options = options;
	stage->data = data;
	first = stage->rank * options->layers / stage->ranks;
	next = (stage->rank + 1) * options->layers / stage->ranks;
	mlp_init(&stage->mlp, options, first, next - first);
	if (comms != NULL) {
		stage->mlp.between = nudge;
		stage->mlp.between_argument = comms->activations;
		stage->device = device_open(comms->activations);
	}
	links_init(stage, epochs);
	stage->order = allocate((size_t)data->training.count, sizeof(int));
	if (comms != NULL)
		CHECK(comms->activations,
		      baton_stream_create(comms->activations, &stage->stream));
}

void stage_fini(struct stage *stage)
{
	if (stage->comms != NULL)
		CHECK(stage->comm,
		      baton_stream_destroy(stage->comms->activations,
		                           stage->stream));
	link_fini(&stage->activation_in);
	link_fini(&stage->activation_out);
	link_fini(&stage->gradient_in);
	link_fini(&stage->gradient_out);
	device_close(stage->device);
	mlp_fini(&stage->mlp);
	free(stage->order);
	free(stage->steps);
	free(stage->computed);
}

void stage_step(struct stage *stage, schedule_fn *schedule, int batch,
                bool last)
{
	struct span *step = &stage->steps[stage->steps_count];
	struct span *update = &computed(stage, stage->steps_count)
	                              [2 * stage->options->micro_batches];

	step->begin = now_ns();
	schedule(stage, batch, last);
	update->begin = now_ns();
	mlp_update(&stage->mlp);
	update->end = now_ns();
	step->end = update->end;
	stage->steps_count++;
}

void stage_train(struct stage *stage, schedule_fn *schedule, int epoch)
{
	const struct options *options = stage->options;
	int images = stage->data->training.count;
	int batches = images / options->batch;

	memset(&stage->score, 0, sizeof(stage->score));
	data_shuffle(stage->order, images, options->seed, epoch);
	for (int batch = 0; batch < batches; batch++)
		stage_step(stage, schedule, batch, batch + 1 == batches);
	link_drain(&stage->activation_out);
	link_drain(&stage->gradient_out);
}

struct score stage_evaluate(struct stage *stage)
{
	const struct images *images = &stage->data->held_out;
	struct mlp *mlp = &stage->mlp;
	struct score score = { 0.0, 0.0, 0.0 };
	int slot = stage->options->micro_batches; /* the one that is spare */
	int rows;

	for (int begin = 0; begin < images->count; begin += rows) {
		rows = images->count - begin < mlp->rows ? images->count - begin
		                                         : mlp->rows;
		if (mlp_is_first(mlp))
			load(stage, images, NULL, begin, rows, slot);
		else
			transfer(stage->comm, stage->rank - 1, TAG_HELD_OUT,
			         true, mlp_input(mlp, slot),
			         stage->activation_in.count * sizeof(float));
		mlp_forward(mlp, slot);
		if (mlp_is_last(mlp))
			mlp_loss(mlp, slot, rows, images->labels + begin, 0.0f,
			         &score);
		else
			transfer(stage->comm, stage->rank + 1, TAG_HELD_OUT,
			         false, mlp_output(mlp, slot),
			         stage->activation_out.count * sizeof(float));
	}
	return score;
}
