/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of the pipeline sample. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "pipeline.h"

#ifndef PIPELINE_DATA
#define PIPELINE_DATA "samples/data/digits.txt"
#endif

/* What getopt_long returns for each option. */
enum option_id {
	OPTION_EPOCHS = 256, /* above all characters */
	OPTION_BATCH,
	OPTION_MICRO_BATCHES,
	OPTION_HIDDEN,
	OPTION_LAYERS,
	OPTION_SCHEDULE,
	OPTION_SEED,
	OPTION_VERIFY,
	OPTION_NO_VERIFY,
	OPTION_DATA,
	OPTION_PROGRESS,
	OPTION_TIMELINE,
	OPTION_LINK_NAME,
	OPTION_PRETEND_LINK,
	OPTION_QUIET,
	OPTION_CUBLAS,
	OPTION_HELP
};

static const char help_text[] =
	"usage: mpirun -np STAGES pipeline [options]\n"
	"\n"
	"Train a multilayer perceptron on handwritten digits, its layers spread\n"
	"over the ranks as the stages of a pipeline, and check the result against\n"
	"the same training in one process.\n"
	"\n"
	"  --epochs N           passes over the training images (default %d)\n"
	"  --batch N            images of a batch (default %d)\n"
	"  --micro-batches N    parts of a batch, 1 to %d (default %d)\n"
	"  --hidden N           width of the hidden layers (default %d)\n"
	"  --layers N           weight matrices, at least one for each stage\n"
	"                       (default %d)\n"
	"  --schedule NAME      overlap: receives posted ahead, sends detached\n"
	"                       wait: the host waits after each transfer\n"
	"                       both: an epoch of each in turn (default)\n"
	"  --seed N             of the weights and of the order of the images\n"
	"                       (default %d)\n"
	"  --no-verify          do not train again in one process to compare\n"
	"  --verify             do (default)\n"
	"  --data FILE          the images (default %s)\n"
	"  --progress STYLE     line: one line, updated in place; plain: new lines,\n"
	"                       few of them; auto: line on a terminal (default)\n"
	"  --timeline FILE      draw one step of each schedule to FILE (SVG)\n"
	"  --link-name TEXT     how the report names the network between the stages\n"
	"  --pretend-link MBIT  delay received messages as a link of this many\n"
	"                       Mbit/s in each direction would\n"
	"  --quiet PERCENT      an epoch counts for what overlap gains when its\n"
	"                       computations got this much of a processor (default %d)\n"
	"  --cublas FILE        on a CUDA device: the library of the matrix products;\n"
	"                       none: OpenBLAS, on the host (default: libcublas.so.13\n"
	"                       or .12 where there is one, and OpenBLAS elsewhere)\n"
	"  --help               this text\n"
	"\n"
	"Exit status: 0 when the accuracy on images that were not trained on is at\n"
	"least 95 %% and the weights are those of one process, else 1.\n";

static const struct options defaults = {
	.epochs = 24,
	.batch = 256,
	.micro_batches = 8,
	.hidden = 512,
	.layers = 8,
	.overlap = true,
	.wait = true,
	.verify = true,
	.seed = 1,
	.data = PIPELINE_DATA,
	.quiet = 90,
	.progress = PROGRESS_AUTO,
};

static void help(void)
{
	printf(help_text, defaults.epochs, defaults.batch, MICRO_BATCHES_MAX,
	       defaults.micro_batches, defaults.hidden, defaults.layers,
	       (int)defaults.seed, defaults.data, defaults.quiet);
}

static bool number(const char *name, const char *text, long long min,
                   long long max, long long *value_p, bool talk)
{
	char *end;

	errno = 0;
	*value_p = strtoll(text, &end, 10);
	if (end != text && *end == '\0' && errno == 0 && *value_p >= min &&
	    *value_p <= max)
		return true;
	if (talk)
		fprintf(stderr, "pipeline: --%s is %s, must be %lld to %lld\n",
		        name, text, min, max);
	return false;
}

static bool whole(const char *name, const char *text, int max, int *value_p,
                  bool talk)
{
	long long value;

	if (!number(name, text, 1, max, &value, talk))
		return false;
	*value_p = (int)value;
	return true;
}

static bool schedule(const char *text, struct options *options, bool talk)
{
	bool both = strcmp(text, "both") == 0;

	options->overlap = both || strcmp(text, "overlap") == 0;
	options->wait = both || strcmp(text, "wait") == 0;
	if (options->overlap || options->wait)
		return true;
	if (talk)
		fprintf(stderr, "pipeline: --schedule is %s, must be overlap, "
		        "wait or both\n", text);
	return false;
}

static bool style(const char *text, struct options *options, bool talk)
{
	static const char *const names[] = { "auto", "line", "plain" };

	for (int i = 0; i < 3; i++) {
		if (strcmp(text, names[i]) == 0) {
			options->progress = (enum progress_style)i;
			return true;
		}
	}
	if (talk)
		fprintf(stderr, "pipeline: --progress is %s, must be auto, "
		        "line or plain\n", text);
	return false;
}

static bool take(int option, const char *name, struct options *options,
                 bool talk)
{
	long long value;

	switch (option) {
	case OPTION_EPOCHS:
		return whole(name, optarg, 100000, &options->epochs, talk);
	case OPTION_BATCH:
		return whole(name, optarg, INT_MAX, &options->batch, talk);
	case OPTION_MICRO_BATCHES:
		return whole(name, optarg, MICRO_BATCHES_MAX,
		             &options->micro_batches, talk);
	case OPTION_HIDDEN:
		return whole(name, optarg, 65536, &options->hidden, talk);
	case OPTION_LAYERS:
		return whole(name, optarg, 1000, &options->layers, talk);
	case OPTION_SCHEDULE:
		return schedule(optarg, options, talk);
	case OPTION_PROGRESS:
		return style(optarg, options, talk);
	case OPTION_DATA:
		options->data = optarg;
		return true;
	case OPTION_TIMELINE:
		options->timeline = optarg;
		return true;
	case OPTION_LINK_NAME:
		options->link_name = optarg;
		return true;
	case OPTION_CUBLAS:
		options->cublas = optarg;
		return true;
	case OPTION_PRETEND_LINK:
		if (!number(name, optarg, 1, 1000000, &value, talk))
			return false;
		options->pretend_mbit = (double)value;
		return true;
	case OPTION_QUIET:
		if (!number(name, optarg, 0, 1000, &value, talk))
			return false;
		options->quiet = (int)value;
		return true;
	case OPTION_VERIFY:
	case OPTION_NO_VERIFY:
		options->verify = option == OPTION_VERIFY;
		return true;
	case OPTION_SEED:
		if (!number(name, optarg, 0, LLONG_MAX, &value, talk))
			return false;
		options->seed = (uint64_t)value;
		return true;
	default:
		return false;
	}
}

enum options_result options_parse(int argc, char **argv, bool talk,
                                  struct options *options_p)
{
	static const struct option known[] = {
		{ "epochs", required_argument, NULL, OPTION_EPOCHS },
		{ "batch", required_argument, NULL, OPTION_BATCH },
		{ "micro-batches", required_argument, NULL,
		  OPTION_MICRO_BATCHES },
		{ "hidden", required_argument, NULL, OPTION_HIDDEN },
		{ "layers", required_argument, NULL, OPTION_LAYERS },
		{ "schedule", required_argument, NULL, OPTION_SCHEDULE },
		{ "seed", required_argument, NULL, OPTION_SEED },
		{ "verify", no_argument, NULL, OPTION_VERIFY },
		{ "no-verify", no_argument, NULL, OPTION_NO_VERIFY },
		{ "data", required_argument, NULL, OPTION_DATA },
		{ "progress", required_argument, NULL, OPTION_PROGRESS },
		{ "timeline", required_argument, NULL, OPTION_TIMELINE },
		{ "link-name", required_argument, NULL, OPTION_LINK_NAME },
		{ "pretend-link", required_argument, NULL,
		  OPTION_PRETEND_LINK },
		{ "quiet", required_argument, NULL, OPTION_QUIET },
		{ "cublas", required_argument, NULL, OPTION_CUBLAS },
		{ "help", no_argument, NULL, OPTION_HELP },
		{ NULL, 0, NULL, 0 },
	};
	int option, index = 0;

	*options_p = defaults;
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, &index)) != -1) {
		if (option == OPTION_HELP) {
			if (talk)
				help();
			return OPTIONS_HELP;
		}
		if (option == '?' || option == ':') {
			if (talk)
				fprintf(stderr, "pipeline: %s %s; --help lists "
				        "the options\n", argv[optind - 1],
				        option == ':' ? "needs a value"
				                      : "is no option");
			return OPTIONS_WRONG;
		}
		if (!take(option, known[index].name, options_p, talk))
			return OPTIONS_WRONG;
	}
	if (optind == argc)
		return OPTIONS_RUN;
	if (talk)
		fprintf(stderr, "pipeline: %s is no option; --help lists the "
		        "options\n", argv[optind]);
	return OPTIONS_WRONG;
}

bool options_fit(const struct options *options, int ranks, int images,
                 bool talk)
{
	char why[160] = "";

	if (options->layers < ranks)
		snprintf(why, sizeof(why), "--layers is %d, must be at least "
		                           "%d: one for each of the %d stages",
		         options->layers, ranks, ranks);
	else if (options->batch % options->micro_batches != 0)
		snprintf(why, sizeof(why), "--batch is %d, must be a multiple "
		                           "of --micro-batches, %d",
		         options->batch, options->micro_batches);
	else if (options->batch > images)
		snprintf(why, sizeof(why), "--batch is %d, must be at most %d: "
		                           "there are no more training images",
		         options->batch, images);
	if (talk && why[0] != '\0')
		fprintf(stderr, "pipeline: %s\n", why);
	return why[0] == '\0';
}
