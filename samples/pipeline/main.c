/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pipeline-parallel training of a multilayer perceptron on handwritten digits.
 *
 *   mpirun -np 2 pipeline            (pipeline --help lists the options)
 *
 * The ranks are the stages.  Each runs the schedules asked for, from the same
 * first weights; rank 0 then trains the whole model alone and compares all
 * weights, bit by bit.
 */
#include <string.h>

#include "pipeline.h"

#define ACCURACY_MIN 95.0
#define TIMEOUT_S 600

struct run {
	const char *name;
	schedule_fn *schedule;
	double seconds;
	struct score held_out;
	float **weights; /* of all layers, on rank 0 */
};

/* ---- gathering ---------------------------------------------------------- */

/* The last stage's score, on rank 0 as well. */
static void score_share(const struct stage *stage, struct score *score)
{
	int last = stage->ranks - 1;

	if (stage->rank == last && last != 0)
		transfer(stage->comm, 0, TAG_SCORE, false, score,
		         sizeof(*score));
	else if (stage->rank == 0 && last != 0)
		transfer(stage->comm, last, TAG_SCORE, true, score,
		         sizeof(*score));
}

static int owner(const struct stage *stage, int layer)
{
	int rank = 0;

	while ((rank + 1) * stage->options->layers / stage->ranks <= layer)
		rank++;
	return rank;
}

/* All layers' weights, in one message each, on rank 0; NULL elsewhere. */
static float **weights_gather(const struct stage *stage)
{
	int total = stage->options->layers, first = stage->mlp.first;
	float **weights = NULL;

	for (int i = 0; stage->rank != 0 && i < stage->mlp.count; i++)
		transfer(stage->comm, 0, (enum tag)(TAG_WEIGHTS + first + i),
		         false, stage->mlp.layers[i].weights,
		         stage->mlp.layers[i].size * sizeof(float));
	if (stage->rank != 0)
		return NULL;
	weights = allocate((size_t)total, sizeof(*weights));
	for (int i = 0; i < total; i++) {
		size_t size = layer_size(stage->options, i);
		int from = owner(stage, i);

		weights[i] = allocate(size, sizeof(float));
		if (from == 0)
			memcpy(weights[i], stage->mlp.layers[i].weights,
			       size * sizeof(float));
		else
			transfer(stage->comm, from,
			         (enum tag)(TAG_WEIGHTS + i), true, weights[i],
			         size * sizeof(float));
	}
	return weights;
}

static void weights_free(float **weights, int layers)
{
	for (int i = 0; weights != NULL && i < layers; i++)
		free(weights[i]);
	free(weights);
}

/* ---- runs --------------------------------------------------------------- */

static void train(struct stage *stage, schedule_fn *schedule, const char *name,
                  struct score *held_out_p)
{
	struct progress progress;

	progress_init(&progress, stage->options, name);
	for (int epoch = 0; epoch < stage->options->epochs; epoch++) {
		stage_train(stage, schedule, epoch);
		*held_out_p = stage_evaluate(stage);
		score_share(stage, &stage->score);
		score_share(stage, held_out_p);
		if (stage->rank == 0)
			progress_show(&progress, epoch, &stage->score,
			              held_out_p);
	}
}

static void run(struct run *run, struct baton_comm *comm,
                const struct options *options, const struct data *data)
{
	struct stage stage;

	stage_init(&stage, comm, options, data);
	train(&stage, run->schedule, run->name, &run->held_out);
	run->seconds = report_stages(&stage, run->name);
	run->weights = weights_gather(&stage);
	stage_fini(&stage);
}

/* ---- verdict, on rank 0 ------------------------------------------------- */

static bool accurate(const struct run *run)
{
	double percent = 100.0 * run->held_out.correct / run->held_out.images;

	printf("%-8s accuracy on held-out images: %.0f of %.0f, %.1f %% "
	       "(at least %.0f %%): %s\n", run->name, run->held_out.correct,
	       run->held_out.images, percent, ACCURACY_MIN,
	       percent >= ACCURACY_MIN ? "good" : "TOO LOW");
	return percent >= ACCURACY_MIN;
}

static bool same_weights(const struct run *run, const struct mlp *alone)
{
	size_t total = 0, differing = 0;

	for (int i = 0; i < alone->count; i++) {
		const struct layer *layer = &alone->layers[i];

		for (size_t j = 0; j < layer->size; j++)
			differing += memcmp(&run->weights[i][j],
			                    &layer->weights[j],
			                    sizeof(float)) != 0;
		total += layer->size;
	}
	printf("%-8s weights against one process: ", run->name);
	if (differing == 0)
		printf("all %zu equal, bit by bit\n", total);
	else
		printf("%zu of %zu DIFFER\n", differing, total);
	return differing == 0;
}

static bool verify(const struct run *runs, int count,
                   const struct options *options, const struct data *data)
{
	struct stage alone;
	struct score held_out;
	bool good = true;

	stage_init(&alone, NULL, options, data);
	train(&alone, schedule_wait, "alone", &held_out);
	printf("  alone: %.2f s of training in one process\n\n",
	       (double)alone.training_ns * 1e-9);
	for (int i = 0; i < count; i++)
		good = same_weights(&runs[i], &alone.mlp) && good;
	stage_fini(&alone);
	return good;
}

static bool judge(const struct run *runs, int count,
                  const struct options *options, const struct data *data)
{
	bool good = true;

	if (options->verify)
		good = verify(runs, count, options, data);
	for (int i = 0; i < count; i++)
		good = accurate(&runs[i]) && good;
	if (count == 2)
		printf("overlap took %.2f x the time of wait\n",
		       runs[0].seconds / runs[1].seconds);
	printf("%s\n", good ? "passed" : "FAILED");
	fflush(stdout);
	return good;
}

/* Rank 0's verdict, on all ranks.  The others wait without a deadline: rank 0
 * may be training alone meanwhile. */
static bool verdict_share(struct baton_comm *comm, bool good)
{
	struct baton_op_options patient = BATON_OP_OPTIONS_INIT;
	int ranks = baton_comm_size(comm);
	baton_request request;

	patient.timeout_ns = -1;
	for (int peer = 1; baton_comm_rank(comm) == 0 && peer < ranks; peer++)
		transfer(comm, peer, TAG_VERDICT, false, &good, sizeof(good));
	if (baton_comm_rank(comm) != 0) {
		CHECK(comm, baton_recv(&good, sizeof(good), BATON_UINT8, 0,
		                       TAG_VERDICT, comm, NULL, &patient,
		                       &request));
		finish(comm, &request, NULL);
	}
	return good;
}

/* ---- the whole ---------------------------------------------------------- */

static void introduce(struct baton_comm *comm, const struct options *options,
                      const struct data *data)
{
	struct baton_comm_info info = { .size = sizeof(info) };
	int rows = options->batch / options->micro_batches;

	CHECK(comm, baton_comm_query(comm, &info));
	printf("Baton %s, %s device, %s transport (%s)\n", baton_version(),
	       info.device_name, info.transport_name, info.library);
	printf("%d images to train on, %d held out; %d layers, %d wide, on %d "
	       "%s\n", data->training.count, data->held_out.count,
	       options->layers, options->hidden, info.ranks,
	       info.ranks == 1 ? "stage" : "stages");
	printf("batches of %d in %d micro-batches; %.1f KiB a transfer\n\n",
	       options->batch, options->micro_batches,
	       (double)rows * options->hidden * (double)sizeof(float) / 1024.0);
	fflush(stdout);
}

static bool run_all(struct baton_comm *comm, const struct options *options,
                    const struct data *data)
{
	struct run runs[2] = { 0 };
	bool good = true;
	int count = 0;

	if (options->overlap)
		runs[count++] = (struct run){ .name = "overlap",
			                      .schedule = schedule_overlap };
	if (options->wait)
		runs[count++] = (struct run){ .name = "wait",
			                      .schedule = schedule_wait };
	for (int i = 0; i < count; i++)
		run(&runs[i], comm, options, data);
	if (baton_comm_rank(comm) == 0)
		good = judge(runs, count, options, data);
	for (int i = 0; i < count; i++)
		weights_free(runs[i].weights, options->layers);
	return verdict_share(comm, good);
}

static bool prepare(struct baton_comm *comm, const struct options *options,
                    struct data *data_p)
{
	struct data read;
	bool talk = baton_comm_rank(comm) == 0;
	bool there = talk && data_read(options->data, &read);

	if (!data_share(comm, there ? &read : NULL, data_p))
		return false;
	if (options_fit(options, baton_comm_size(comm), data_p->training.count,
	                talk))
		return true;
	data_free(data_p);
	return false;
}

int main(int argc, char **argv)
{
	struct baton_comm_options comm_options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;
	struct options options;
	struct data data;
	enum options_result result;
	bool good = false;

	comm_options.timestamps = true;
	comm_options.timeout_ns = TIMEOUT_S * INT64_C(1000000000);
	CHECK(NULL, baton_comm_create(&comm_options, &comm));
	result = options_parse(argc, argv, baton_comm_rank(comm) == 0,
	                       &options);
	if (result == OPTIONS_RUN && prepare(comm, &options, &data)) {
		if (baton_comm_rank(comm) == 0)
			introduce(comm, &options, &data);
		good = run_all(comm, &options, &data);
		data_free(&data);
	}
	CHECK(comm, baton_comm_destroy(comm));
	return good || result == OPTIONS_HELP ? EXIT_SUCCESS : EXIT_FAILURE;
}
