/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pipeline-parallel training of a multilayer perceptron on handwritten digits.
 *
 *   mpirun -np 2 pipeline            (pipeline --help lists the options;
 *                                     without MPI: ../README.md)
 *
 * The ranks are the stages.  They train once under each schedule, from the same
 * first weights; the schedules take turns, an epoch each, so that other load on
 * the machine meets them alike.  Rank 0 then trains the whole model alone and
 * compares all weights, bit by bit.
 */
#include <string.h>

#include "pipeline.h"

#define ACCURACY_MIN 95.0

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

static void train_epoch(struct run *run, struct progress *progress, int epoch)
{
	stage_train(&run->stage, run->schedule, epoch);
	run->held_out = stage_evaluate(&run->stage);
	score_share(&run->stage, &run->stage.score);
	score_share(&run->stage, &run->held_out);
	if (run->stage.rank == 0)
		progress_show(progress, run->name, epoch, &run->stage.score,
		              &run->held_out);
}

static void step_time(struct run *run)
{
	size_t count = run->stage.steps_count;
	double *values = allocate(count, sizeof(*values));

	for (size_t i = 0; i < count; i++)
		values[i] = span_ns(run->stage.steps[i]);
	run->step_ns = median(values, count);
	free(values);
}

/* Collective; what was measured is printed.  False: no picture was written. */
static bool report(struct run *runs, int count, const struct baseline *baseline,
                   const struct options *options, struct gain *gain_p)
{
	int ranks = runs[0].stage.ranks;
	struct stage_times *times;
	struct best best = { 0 };
	bool good = true;

	for (int i = 0; i < count; i++)
		step_time(&runs[i]);
	times = times_gather(baseline, runs, count);
	if (count == 2)
		*gain_p = gain_gather(baseline, runs, options);
	if (times != NULL) {
		best_init(&best, times, ranks, options);
		report_times(runs, count, times, &best, options);
		if (count == 2)
			report_gain(gain_p);
	}
	if (options->timeline != NULL)
		good = timeline_write(runs, count, &best, options);
	if (times != NULL) {
		best_fini(&best, ranks);
		printf("\n");
	}
	free(times);
	return good;
}

static bool train(struct run *runs, int count, const struct comms *comms,
                  const struct options *options, const struct data *data,
                  struct gain *gain_p)
{
	struct progress progress;
	struct baseline baseline;
	bool good;

	progress_init(&progress, options);
	baseline_init(&baseline, comms, options, data);
	for (int i = 0; i < count; i++)
		stage_init(&runs[i].stage, comms, options, data,
		           options->epochs);
	for (int epoch = 0; epoch < options->epochs; epoch++) {
		baseline_measure(&baseline);
		for (int i = 0; i < count; i++)
			train_epoch(&runs[i], &progress, epoch);
	}
	baseline_measure(&baseline);
	good = report(runs, count, &baseline, options, gain_p);
	for (int i = 0; i < count; i++) {
		runs[i].weights = weights_gather(&runs[i].stage);
		stage_fini(&runs[i].stage);
	}
	baseline_fini(&baseline);
	return good;
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
	struct run alone = { .name = "alone", .schedule = schedule_wait };
	struct progress progress;
	bool good = true;

	progress_init(&progress, options);
	stage_init(&alone.stage, NULL, options, data, options->epochs);
	for (int epoch = 0; epoch < options->epochs; epoch++)
		train_epoch(&alone, &progress, epoch);
	printf("\n");
	for (int i = 0; i < count; i++)
		good = same_weights(&runs[i], &alone.stage.mlp) && good;
	stage_fini(&alone.stage);
	return good;
}

static bool judge(const struct run *runs, int count,
                  const struct options *options, const struct data *data,
                  const struct gain *gain)
{
	bool good = true;

	if (options->verify)
		good = verify(runs, count, options, data);
	for (int i = 0; i < count; i++)
		good = accurate(&runs[i]) && good;
	if (good && !gain->told)
		printf("the results are right; what overlap gains this machine was "
		       "too busy to tell\n");
	else
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
	baton_stream stream;

	patient.timeout_ns = -1;
	for (int peer = 1; baton_comm_rank(comm) == 0 && peer < ranks; peer++)
		transfer(comm, peer, TAG_VERDICT, false, &good, sizeof(good));
	if (baton_comm_rank(comm) != 0) {
		CHECK(comm, baton_stream_create(comm, &stream));
		CHECK(comm, baton_recv(&good, sizeof(good), BATON_UINT8, 0,
		                       TAG_VERDICT, comm, stream, &patient,
		                       &request));
		finish(comm, &request, NULL);
		CHECK(comm, baton_stream_destroy(comm, stream));
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
	printf("matrix products: %s\n", products_name());
	if (info.device == BATON_DEVICE_CUDA)
		printf("messages are in memory of the device, with a copy before a "
		       "send and after a receive\n");
	if (options->link_name != NULL)
		printf("between the stages: %s\n", options->link_name);
	if (options->pretend_mbit > 0.0)
		printf("PRETENDED: messages are delayed as a link of %.0f Mbit/s "
		       "in each direction would\n", options->pretend_mbit);
	printf("batches of %d in %d micro-batches; %.1f KiB a transfer\n\n",
	       options->batch, options->micro_batches,
	       (double)rows * options->hidden * (double)sizeof(float) / 1024.0);
	fflush(stdout);
}

static bool run_all(const struct comms *comms, const struct options *options,
                    const struct data *data)
{
	struct run runs[2] = { 0 };
	struct gain gain = { .told = true }; /* of one schedule there is none */
	bool good;
	int count = 0;

	if (options->overlap)
		runs[count++] = (struct run){ .name = "overlap",
			                      .schedule = schedule_overlap };
	if (options->wait)
		runs[count++] = (struct run){ .name = "wait",
			                      .schedule = schedule_wait };
	good = train(runs, count, comms, options, data, &gain);
	if (baton_comm_rank(comms->host) == 0)
		good = judge(runs, count, options, data, &gain) && good;
	for (int i = 0; i < count; i++)
		weights_free(runs[i].weights, options->layers);
	return verdict_share(comms->host, good);
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

/* cuBLAS on all ranks or on none: they must compute the same bits. */
static bool products_choose(const struct comms *comms,
                            const struct options *options)
{
	struct baton_comm *comm = comms->host;
	bool named = options->cublas != NULL &&
	             strcmp(options->cublas, "none") != 0;
	bool here = products_open(comms->activations, options), all = here;

	for (int peer = 1; baton_comm_rank(comm) == 0 &&
	                   peer < baton_comm_size(comm); peer++) {
		bool there;

		transfer(comm, peer, TAG_VERDICT, true, &there, sizeof(there));
		all = all && there;
	}
	if (baton_comm_rank(comm) != 0)
		transfer(comm, 0, TAG_VERDICT, false, &here, sizeof(here));
	all = verdict_share(comm, all);
	if (!all)
		products_close();
	return all || !named;
}

int main(int argc, char **argv)
{
	struct comms comms;
	struct options options;
	struct data data;
	enum options_result result;
	bool good = false;

	comms_open(&comms);
	result = options_parse(argc, argv, baton_comm_rank(comms.host) == 0,
	                       &options);
	if (result == OPTIONS_RUN && prepare(comms.host, &options, &data)) {
		good = products_choose(&comms, &options);
		if (good && baton_comm_rank(comms.host) == 0)
			introduce(comms.activations, &options, &data);
		good = good && run_all(&comms, &options, &data);
		products_close();
		data_free(&data);
	}
	comms_close(&comms);
	return good || result == OPTIONS_HELP ? EXIT_SUCCESS : EXIT_FAILURE;
}
