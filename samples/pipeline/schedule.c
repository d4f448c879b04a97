/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The schedules: in what order a stage computes, and when it talks to its
 * neighbours.  Both are 1F1B: some forwards to fill the pipeline, then one
 * forward and one backward in turn, then the backwards that are left.
 *
 * schedule_wait is the plain one.  Stage r of P starts P-1-r forwards ahead,
 * and after each computation it exchanges what was computed and what is needed
 * next, and waits for both.
 *
 * schedule_overlap never waits for what it does not need yet.  The receives of
 * a micro-batch are posted as soon as their buffers are free, which is a batch
 * ahead; sends are detached.  And it starts twice as many forwards ahead: with
 * P-1-r of them a stage needs each message the moment it is sent, and no
 * transfer can hide, however it is done.  The price is memory for the values of
 * more micro-batches.
 *
 * Either way backwards run in the order of the micro-batches, so the gradients
 * are summed in the same order and the weights come out the same.
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
	uint64_t start_ns = now_ns();
	int begin = batch * stage->options->batch + slot * stage->mlp.rows;

	if (mlp_is_first(&stage->mlp))
		load(stage, &stage->data->training, stage->order, begin,
		     stage->mlp.rows, slot);
	mlp_forward(&stage->mlp, slot);
	if (mlp_is_last(&stage->mlp))
		loss(stage, begin, slot);
	stage->compute_ns += now_ns() - start_ns;
}

static void backward(struct stage *stage, int slot)
{
	uint64_t start_ns = now_ns();

	mlp_backward(&stage->mlp, slot);
	stage->compute_ns += now_ns() - start_ns;
}

/* ---- the schedules ------------------------------------------------------ */

static void post_receives(struct stage *stage, int slot)
{
	link_post(stage, &stage->activation_in, slot,
	          mlp_input(&stage->mlp, slot));
	link_post(stage, &stage->gradient_in, slot,
	          stage->mlp.gradient_in[slot]);
}

static void overlap_forward(struct stage *stage, int batch, int slot)
{
	link_finish(stage, &stage->activation_in, slot);
	link_finish(stage, &stage->activation_out, slot); /* a batch ago */
	forward(stage, batch, slot);
	link_post(stage, &stage->activation_out, slot,
	          mlp_output(&stage->mlp, slot));
}

static void overlap_backward(struct stage *stage, int slot)
{
	link_finish(stage, &stage->gradient_in, slot);
	link_finish(stage, &stage->gradient_out, slot); /* a batch ago */
	backward(stage, slot);
	link_post(stage, &stage->gradient_out, slot,
	          stage->mlp.gradient_out[slot]);
}

void schedule_overlap(struct stage *stage, int batch, bool last)
{
	int count = stage->options->micro_batches;
	int ahead = 2 * (stage->ranks - 1 - stage->rank);

	if (stage->activation_in.posted + stage->gradient_in.posted == 0) {
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
	int ahead = stage->ranks - 1 - stage->rank;

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

static void links_init(struct stage *stage)
{
	const struct layer *layers = stage->mlp.layers;
	int count = stage->options->micro_batches;
	int batches = stage->data->training.count / stage->options->batch;
	size_t rows = (size_t)stage->mlp.rows;
	size_t below = rows * (size_t)layers[0].inputs;
	size_t above = rows * (size_t)layers[stage->mlp.count - 1].outputs;
	size_t messages = (size_t)stage->options->epochs * (size_t)batches *
	                  (size_t)count;
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
	stage->waits = allocate(4 * messages + 1, sizeof(*stage->waits));
}

/* A pass of progress between two layers costs a microsecond, and a transfer
 * goes on now instead of when Baton's own thread next looks, which is once in
 * a millisecond while the program computes. */
static void nudge(void *comm)
{
	baton_progress(comm);
}

void stage_init(struct stage *stage, struct baton_comm *comm,
                const struct options *options, const struct data *data)
{
	int first, next;

	memset(stage, 0, sizeof(*stage));
	stage->comm = comm;
	stage->rank = comm != NULL ? baton_comm_rank(comm) : 0;
	stage->ranks = comm != NULL ? baton_comm_size(comm) : 1;
	stage->options = options;
	stage->data = data;
	first = stage->rank * options->layers / stage->ranks;
	next = (stage->rank + 1) * options->layers / stage->ranks;
	mlp_init(&stage->mlp, options, first, next - first);
	if (comm != NULL) {
		stage->mlp.between = nudge;
		stage->mlp.between_argument = comm;
	}
	links_init(stage);
	stage->order = allocate((size_t)data->training.count, sizeof(int));
	if (comm != NULL)
		CHECK(comm, baton_stream_create(comm, &stage->stream));
}

void stage_fini(struct stage *stage)
{
	if (stage->comm != NULL)
		CHECK(stage->comm,
		      baton_stream_destroy(stage->comm, stage->stream));
	link_fini(&stage->activation_in);
	link_fini(&stage->activation_out);
	link_fini(&stage->gradient_in);
	link_fini(&stage->gradient_out);
	mlp_fini(&stage->mlp);
	free(stage->order);
	free(stage->waits);
}

void stage_train(struct stage *stage, schedule_fn *schedule, int epoch)
{
	const struct options *options = stage->options;
	int batches = stage->data->training.count / options->batch;
	uint64_t start_ns = now_ns(), update_ns;

	memset(&stage->score, 0, sizeof(stage->score));
	data_shuffle(stage->order, stage->data->training.count, options->seed,
	             epoch);
	for (int batch = 0; batch < batches; batch++) {
		bool last = epoch + 1 == options->epochs &&
		            batch + 1 == batches;

		schedule(stage, batch, last);
		update_ns = now_ns();
		mlp_update(&stage->mlp);
		stage->compute_ns += now_ns() - update_ns;
	}
	if (epoch + 1 == options->epochs) {
		link_drain(stage, &stage->activation_out);
		link_drain(stage, &stage->gradient_out);
	}
	stage->training_ns += now_ns() - start_ns;
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
