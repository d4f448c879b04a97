/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress line, and the tables: what each stage computes in a step, how
 * long a step could take at best, and how long it took.  measure.c says how the
 * figures come about.
 */
#include <sys/ioctl.h>
#include <unistd.h>

#include "pipeline.h"

/* Transfers that take less than this share of the computations leave a figure
 * for "hidden" that is mostly noise. */
#define WORTH_HIDING 0.1

/* ---- progress ----------------------------------------------------------- */

void progress_init(struct progress *progress, const struct options *options)
{
	struct winsize window;

	progress->style = options->progress;
	progress->epochs = options->epochs;
	progress->width = 0;
	if (progress->style != PROGRESS_AUTO)
		return;
	/* mpirun may give its processes a terminal of width 0 although its own
	 * output goes to a file. */
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		progress->style = PROGRESS_LINE;
	else
		progress->style = PROGRESS_PLAIN;
}

void progress_show(struct progress *progress, const char *name, int epoch,
                   const struct score *training, const struct score *held_out)
{
	char text[160];
	bool line = progress->style == PROGRESS_LINE;
	bool last = epoch + 1 == progress->epochs;
	int every = progress->epochs > 10 ? progress->epochs / 5 : 1;
	int width;

	if (!line && !last && (epoch + 1) % every != 0)
		return;
	width = snprintf(text, sizeof(text),
	                 "%-8s epoch %d of %d: loss %.4f, accuracy %.1f %% "
	                 "(held out %.1f %%)", name, epoch + 1,
	                 progress->epochs, training->loss / training->images,
	                 100.0 * training->correct / training->images,
	                 100.0 * held_out->correct / held_out->images);
	printf("%s%-*s%s", line ? "\r" : "", progress->width, text,
	       line && !last ? "" : "\n");
	progress->width = line ? width : 0;
	fflush(stdout);
}

/* ---- tables ------------------------------------------------------------- */

static void report_stages(const struct run *runs, int count,
                          const struct stage_times *times)
{
	int ranks = runs[0].stage.ranks;

	printf("\nOne step is one batch: %d forwards, %d backwards and the "
	       "update.\nMedians of %zu steps:\n\n",
	       runs[0].stage.options->micro_batches,
	       runs[0].stage.options->micro_batches,
	       runs[0].stage.steps_count);
	printf("  stage  layers   computing alone");
	for (int i = 0; i < count; i++) {
		char heading[32];

		snprintf(heading, sizeof(heading), "in %s", runs[i].name);
		printf("  %10s", heading);
	}
	printf("\n");
	for (int rank = 0; rank < ranks; rank++) {
		int first = (int)times[rank].first_layer;
		int last = first + (int)times[rank].layers - 1;
		char layers[32];

		snprintf(layers, sizeof(layers),
		         last > first ? "%d-%d" : "%d", first, last);
		printf("  %5d  %6s  %13.2f ms", rank, layers,
		       times[rank].alone_ns * 1e-6);
		for (int i = 0; i < count; i++)
			printf("  %7.2f ms",
			       times[rank].computing_ns[i] * 1e-6);
		printf("\n");
	}
}

static void report_steps(const struct run *runs, int count,
                         double computing_ns, double moving_ns)
{
	double both_ns = computing_ns + moving_ns;
	double best_ns = computing_ns, least_ns = moving_ns;
	bool short_ones = moving_ns < WORTH_HIDING * computing_ns;

	if (moving_ns > computing_ns) {
		best_ns = moving_ns;
		least_ns = computing_ns;
	}
	printf("            one step   beside the best   transfers hidden\n");
	for (int i = 0; i < count; i++) {
		double hidden = 100.0 * (both_ns - runs[i].step_ns) / least_ns;

		printf("  %-7s %9.2f ms  %13.2f x", runs[i].name,
		       runs[i].step_ns * 1e-6, runs[i].step_ns / best_ns);
		if (short_ones)
			printf("  %15s\n", "-");
		else
			printf("  %13.0f %%\n", hidden < 0.0 ? 0.0 : hidden);
	}
	if (short_ones && moving_ns > 0.0)
		printf("\nThe transfers are too short for overlap to matter: "
		       "%.0f %% of the computations.\n",
		       100.0 * moving_ns / computing_ns);
}

void report_gain(const struct gain *gain)
{
	if (gain->told)
		printf("\nWith overlap a step is %.2f x as fast as without "
		       "(median of %d quiet epochs of %d).\n",
		       gain->faster, gain->quiet, gain->epochs);
	else
		printf("\nTHE MACHINE WAS TOO BUSY TO TELL what overlap gains: "
		       "computations got %.0f %% of\na processor, and %d of %d "
		       "epochs were quiet.  The times above are those of a busy\n"
		       "machine.\n", 100.0 * gain->share, gain->quiet,
		       gain->epochs);
	fflush(stdout);
}

void report_times(const struct run *runs, int count,
                  const struct stage_times *times, const struct best *best,
                  const struct options *options)
{
	int ranks = runs[0].stage.ranks;
	double moving_ns = 0.0;

	for (int rank = 0; ranks > 1 && rank < ranks; rank++) {
		if (moving_ns < times[rank].moving_ns)
			moving_ns = times[rank].moving_ns;
	}
	report_stages(runs, count, times);
	printf("\n  all computations, transfers taking no time %9.2f ms\n",
	       best->computing_ns * 1e-6);
	if (moving_ns > 0.0)
		printf("  all transfers, nothing being computed      %9.2f ms"
		       "%s\n", moving_ns * 1e-6,
		       options->pretend_mbit > 0.0 ? " (pretended)" : "");
	printf("  the best possible step, the longer of them %9.2f ms\n\n",
	       (moving_ns > best->computing_ns ? moving_ns
	                                       : best->computing_ns) * 1e-6);
	report_steps(runs, count, best->computing_ns, moving_ns);
	fflush(stdout);
}
