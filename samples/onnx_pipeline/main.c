/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of ONNX Runtime in two halves, each on a rank, with Baton's lists of tensors
 * across the cut.
 *
 *   mpirun -np 2 onnx_pipeline        or without MPI (../README.md), or alone: the ranks are
 *                                     two threads
 *
 * It does what ONNX Runtime's own Send and Recv operators are for, with calls between two
 * sessions instead of operators in a graph.  Rank 1 then runs the unsplit model on the
 * same batches and compares: every bit of what comes out must be the same.  If one is
 * not, the exit status is 1.
 *
 * `fetch` beside this file brings ONNX Runtime and makes the models.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../command_line.h"
#include "pipeline.h"

#define BATCHES_MAX 10000
#define IN_FLIGHT_MAX 64
#define ROWS_MAX 1024
#define LENGTH_MAX 256 /* the model has as many positions */

static const char help_text[] =
	"usage: [mpirun -np 2] onnx_pipeline [options]\n"
	"\n"
	"A model of ONNX Runtime in two halves, a rank each; the results must be\n"
	"those of the unsplit model.  Started alone, its ranks are threads.\n"
	"\n"
	"  --models FOLDER     whole.onnx, first.onnx and second.onnx, as\n"
	"                      make_model.py writes them\n"
	"  --batches N         to compute (1 to 10000, default 64)\n"
	"  --in-flight N       messages under way at most (1 to 64, default 4)\n"
	"  --rows N            of a batch, at most (1 to 1024, default 32)\n"
	"  --length N          tokens of a row, at most (1 to 256, default 64)\n"
	"  --help              this text\n";

static bool number(const char *name, long max, int *value_p)
{
	long value;

	if (!option_number("onnx_pipeline", name, 1, max, &value))
		return false;
	*value_p = (int)value;
	return true;
}

static bool take(int option, void *taken)
{
	struct options *options = taken;

	switch (option) {
	case 'm':
		options->models = optarg;
		return true;
	case 'b':
		return number("batches", BATCHES_MAX, &options->batches);
	case 'f':
		return number("in-flight", IN_FLIGHT_MAX, &options->in_flight);
	case 'r':
		return number("rows", ROWS_MAX, &options->rows);
	default: /* 'l' */
		return number("length", LENGTH_MAX, &options->length);
	}
}

static bool parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "models", required_argument, NULL, 'm' },
		{ "batches", required_argument, NULL, 'b' },
		{ "in-flight", required_argument, NULL, 'f' },
		{ "rows", required_argument, NULL, 'r' },
		{ "length", required_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};

	return options_parse("onnx_pipeline", help_text, argc, argv, known, take,
	                     options);
}

/* ---- ranks -------------------------------------------------------------- */

struct first {
	struct baton_comm *comm;
	const struct options *options;
};

static void *first_thread(void *argument)
{
	struct first *first = argument;

	stage_first(first->comm, first->options);
	return NULL;
}

/* Both ranks in this process: the first one on a thread of its own. */
static void run_both(struct baton_comm **comms, const struct options *options,
                     struct report *report)
{
	struct first first = { comms[0], options };
	pthread_t thread;

	if (pthread_create(&thread, NULL, first_thread, &first) != 0) {
		fprintf(stderr, "onnx_pipeline: no thread can be started\n");
		_Exit(EXIT_FAILURE);
	}
	stage_second(comms[1], options, report);
	pthread_join(thread, NULL);
}

/* The communicators of this process's ranks; returns how many these are. */
static int open_ranks(struct baton_comm **comms)
{
	int size;

	CHECK(NULL, baton_comm_create(NULL, &comms[0]));
	size = baton_comm_size(comms[0]);
	if (size == 2)
		return 1;
	CHECK(comms[0], baton_comm_destroy(comms[0]));
	if (size != 1) {
		fprintf(stderr, "onnx_pipeline: started as %d ranks, must be 2, or "
		        "1, whose two stages are threads\n", size);
		exit(EXIT_FAILURE);
	}
	CHECK(NULL, baton_comm_create_local(2, NULL, comms));
	return 2;
}

static void require_lists(struct baton_comm *comm,
                          const struct baton_comm_info *info)
{
	if ((info->capabilities & BATON_CAP_TENSORS) != 0)
		return;
	fprintf(stderr, "onnx_pipeline: the %s transport on the %s device carries "
	        "no lists of tensors\n", info->transport_name, info->device_name);
	baton_comm_abort(comm);
	_Exit(EXIT_FAILURE);
}

/* ---- the end ------------------------------------------------------------ */

static bool print(const struct report *report, const struct options *options,
                  const struct baton_comm_info *info)
{
	printf("2 stages, %s device, %s transport, ONNX Runtime %s: %d batches of up "
	       "to %d x %d tokens, up to %d in flight\n",
	       info->device_name, info->transport_name, runtime_version(),
	       options->batches, options->rows, options->length,
	       options->in_flight);
	printf("across the cut, %zu tensors in a message: %s; %.1f MB in all\n",
	       report->count, report->tensors, (double)report->bytes * 1e-6);
	printf("computing took the first half %.3f s, the second half %.3f s; the "
	       "pipeline took %.3f s, the unsplit model %.3f s\n",
	       report->first, report->second, report->both, report->whole);
	if (report->differ > 0)
		printf("WRONG: %d of %d batches are not what the unsplit model "
		       "makes of them\n", report->differ, options->batches);
	else
		printf("The two halves compute what the unsplit model computes: %s of "
		       "all %ld rows are equal, bit by bit.\n",
		       report->outputs, report->rows);
	return report->differ == 0;
}

int main(int argc, char **argv)
{
	struct options options = { ONNX_PIPELINE_MODELS, 64, 4, 32, 64 };
	struct baton_comm_info info = { .size = sizeof(info) };
	struct baton_comm *comms[2];
	struct report report;
	bool right = true;
	int count;

	if (!parse(argc, argv, &options))
		return EXIT_FAILURE;
	count = open_ranks(comms);
	CHECK(comms[0], baton_comm_query(comms[0], &info));
	require_lists(comms[0], &info);
	runtime_open(comms[0]);
	if (count == 2)
		run_both(comms, &options, &report);
	else if (info.rank == 0)
		stage_first(comms[0], &options);
	else
		stage_second(comms[0], &options, &report);
	if (count == 2 || info.rank == 1)
		right = print(&report, &options, &info);
	runtime_close();
	for (int i = 0; i < count; i++)
		CHECK(comms[i], baton_comm_destroy(comms[i]));
	return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
