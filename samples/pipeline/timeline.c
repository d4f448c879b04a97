/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timeline: one step of each run, and the best possible one, drawn to the
 * same scale as an SVG picture.  A stage is a row of computations; between two
 * stages is a row for the activations that go down and one for the gradients
 * that go up.  Grey is time in which a stage computes nothing.
 *
 * A run's step is the one whose length is closest to the median.  A message is
 * drawn from when both sides were ready (the later armed_ns) or the message
 * before it had arrived, whichever was later, until the receiver saw its end
 * (completed_ns).  That compares the clocks of two processes, so there is a
 * picture only where all ranks run on one machine (by its boot id): there
 * CLOCK_MONOTONIC is one clock.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "pipeline.h"

/* ---- gathering ---------------------------------------------------------- */

/* What each stage sends of its step: spans in this order.  Of the links, `micro`
 * each; begin is their armed_ns. */
enum part { PART_ACTIVATION_IN, PART_ACTIVATION_OUT, PART_GRADIENT_IN,
            PART_GRADIENT_OUT, PARTS };

static size_t parts_begin(int micro, enum part part)
{
	return 2 * (size_t)micro + 1 + (size_t)part * (size_t)micro;
}

/* Then the step itself, and the machine's number in `begin`. */
static size_t step_at(int micro)
{
	return parts_begin(micro, PARTS);
}
static size_t spans_count(int micro)
{
	return step_at(micro) + 2;
}

static uint64_t machine_id(void)
{
	char id[64] = "";
	uint64_t hash = 0;
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

	if (file == NULL || fgets(id, sizeof(id), file) == NULL)
		id[0] = '\0';
	if (file != NULL)
		fclose(file);
	for (const char *at = id; *at != '\0'; at++) {
		hash += (unsigned char)*at;
		hash = random_next(&hash);
	}
	return hash;
}

/* The step of rank 0 that is closest to the run's median. */
static size_t typical_step(const struct run *run)
{
	size_t best = 0;
	double least = INFINITY;

	for (size_t i = 0; i < run->stage.steps_count; i++) {
		double away = fabs(span_ns(run->stage.steps[i]) - run->step_ns);

		if (away < least) {
			least = away;
			best = i;
		}
	}
	return best;
}

static void take_link(struct span *to, const struct link *link, size_t step,
                      int micro)
{
	if (link->peer >= 0)
		memcpy(to, &link->transfers[step * (size_t)micro],
		       (size_t)micro * sizeof(*to));
}

static struct span *own_spans(const struct stage *stage, size_t step)
{
	int micro = stage->options->micro_batches;
	struct span *spans = allocate(spans_count(micro), sizeof(*spans));

	memcpy(spans, computed(stage, step),
	       computations(stage->options) * sizeof(*spans));
	take_link(spans + parts_begin(micro, PART_ACTIVATION_IN),
	          &stage->activation_in, step, micro);
	take_link(spans + parts_begin(micro, PART_ACTIVATION_OUT),
	          &stage->activation_out, step, micro);
	take_link(spans + parts_begin(micro, PART_GRADIENT_IN),
	          &stage->gradient_in, step, micro);
	take_link(spans + parts_begin(micro, PART_GRADIENT_OUT),
	          &stage->gradient_out, step, micro);
	spans[step_at(micro)] = stage->steps[step];
	spans[step_at(micro) + 1].begin = machine_id();
	return spans;
}

/* Collective: each stage's spans on rank 0, NULL elsewhere. */
static struct span **spans_gather(const struct run *run)
{
	const struct stage *stage = &run->stage;
	size_t step = stage->rank == 0 ? typical_step(run) : 0, size;
	struct span *mine, **all;

	for (int peer = 1; stage->rank == 0 && peer < stage->ranks; peer++)
		transfer(stage->comm, peer, TAG_TIMES, false, &step,
		         sizeof(step));
	if (stage->rank != 0)
		transfer(stage->comm, 0, TAG_TIMES, true, &step, sizeof(step));
	mine = own_spans(stage, step);
	size = spans_count(stage->options->micro_batches) * sizeof(*mine);
	if (stage->rank != 0) {
		transfer(stage->comm, 0, TAG_TIMES, false, mine, size);
		free(mine);
		return NULL;
	}
	all = allocate((size_t)stage->ranks, sizeof(struct span *));
	all[0] = mine;
	for (int rank = 1; rank < stage->ranks; rank++) {
		all[rank] = allocate(1, size);
		transfer(stage->comm, rank, TAG_TIMES, true, all[rank], size);
	}
	return all;
}

static void spans_free(struct span **all, int ranks)
{
	for (int rank = 0; all != NULL && rank < ranks; rank++)
		free(all[rank]);
	free(all);
}

static bool one_clock(struct span **all, int ranks, int micro)
{
	size_t at = step_at(micro) + 1;

	for (int rank = 1; rank < ranks; rank++) {
		if (all[rank][at].begin != all[0][at].begin)
			return false;
	}
	return true;
}

/* ---- drawing ------------------------------------------------------------ */

#define LEFT 150.0
#define WIDTH 1000.0
#define RIGHT 40.0
#define STAGE_HEIGHT 28.0
#define LANE_HEIGHT 11.0
#define GAP 4.0
#define HEADING 30.0
#define TOP 84.0
#define BOTTOM 50.0

#define COLOUR_FORWARD "#4c78a8"
#define COLOUR_BACKWARD "#e08a1e"
#define COLOUR_UPDATE "#707070"
#define COLOUR_ACTIVATION "#8fb8de"
#define COLOUR_GRADIENT "#f3bf80"
#define COLOUR_IDLE "#e8e8e8"

struct drawing {
	FILE *file;
	double scale; /* points a nanosecond */
	double y;
	int ranks, micro;
	struct span window; /* the step that is being drawn */
};

/* Text in the picture: &, < and > are XML's. */
static void put_text(struct drawing *d, double x, double y, const char *style,
                     const char *text)
{
	fprintf(d->file, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
	for (; *text != '\0'; text++) {
		switch (*text) {
		case '&': fputs("&amp;", d->file); break;
		case '<': fputs("&lt;", d->file); break;
		case '>': fputs("&gt;", d->file); break;
		default: fputc(*text, d->file);
		}
	}
	fputs("</text>\n", d->file);
}

static double position(const struct drawing *d, uint64_t ns)
{
	return ns < d->window.begin
	       ? LEFT : LEFT + (double)(ns - d->window.begin) * d->scale;
}

/* A bar; with the micro-batch's number where there is space, and none for a
 * negative one. */
static void put_bar(struct drawing *d, struct span span, double height,
                    const char *colour, int number)
{
	double begin = position(d, span.begin), end = position(d, span.end);
	double width = end > begin ? end - begin : 0.0;
	char text[16];

	fprintf(d->file, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
	                 "height=\"%.1f\" fill=\"%s\" stroke=\"white\" "
	        "stroke-width=\"0.6\"/>\n", begin, d->y, width, height, colour);
	snprintf(text, sizeof(text), "%d", number);
	if (number >= 0 && width > 9.0 * (double)strlen(text))
		put_text(d, begin + width / 2.0, d->y + height / 2.0 + 3.6,
		         height < STAGE_HEIGHT
		                 ? "font-size=\"10\" text-anchor=\"middle\""
		                 : "font-size=\"12\" text-anchor=\"middle\" "
		           "fill=\"white\"", text);
}

static void put_stage(struct drawing *d, int rank, const struct span *spans)
{
	char name[32];

	snprintf(name, sizeof(name), "stage %d computes", rank);
	put_text(d, LEFT - 8.0, d->y + 18.0, "font-size=\"12\" "
	         "text-anchor=\"end\"", name);
	put_bar(d, d->window, STAGE_HEIGHT, COLOUR_IDLE, -1);
	for (int i = 0; i < d->micro; i++) {
		put_bar(d, spans[i], STAGE_HEIGHT, COLOUR_FORWARD, i);
		put_bar(d, spans[d->micro + i], STAGE_HEIGHT, COLOUR_BACKWARD,
		        i);
	}
	put_bar(d, spans[2 * d->micro], STAGE_HEIGHT, COLOUR_UPDATE, -1);
	d->y += STAGE_HEIGHT + GAP;
}

static void put_lane(struct drawing *d, const char *name, const char *colour,
                     const struct span *out, const struct span *in)
{
	uint64_t free_ns = 0;

	put_text(d, LEFT - 8.0, d->y + 9.0, "font-size=\"10\" fill=\"#555\" "
	         "text-anchor=\"end\"", name);
	for (int i = 0; i < d->micro; i++) {
		struct span span = in[i];

		if (span.begin < out[i].begin)
			span.begin = out[i].begin;
		if (span.begin < free_ns)
			span.begin = free_ns;
		if (span.end < span.begin)
			span.end = span.begin;
		free_ns = span.end;
		put_bar(d, span, LANE_HEIGHT, colour, i);
	}
	d->y += LANE_HEIGHT + GAP;
}

static void put_lanes(struct drawing *d, int rank, struct span **all)
{
	const struct span *upper = all[rank], *lower = all[rank + 1];
	char name[48];

	snprintf(name, sizeof(name), "activations %d to %d", rank, rank + 1);
	put_lane(d, name, COLOUR_ACTIVATION,
	         upper + parts_begin(d->micro, PART_ACTIVATION_OUT),
	         lower + parts_begin(d->micro, PART_ACTIVATION_IN));
	snprintf(name, sizeof(name), "gradients %d to %d", rank + 1, rank);
	put_lane(d, name, COLOUR_GRADIENT,
	         lower + parts_begin(d->micro, PART_GRADIENT_OUT),
	         upper + parts_begin(d->micro, PART_GRADIENT_IN));
}

/* One step: all rows, under a heading.  Without transfers, only the stages. */
static void put_step(struct drawing *d, const char *heading, struct span **all,
                     struct span window, bool transfers)
{
	d->window = window;
	d->y += HEADING;
	put_text(d, LEFT, d->y - 8.0, "font-size=\"14\" font-weight=\"bold\"",
	         heading);
	for (int rank = 0; rank < d->ranks; rank++) {
		put_stage(d, rank, all[rank]);
		if (transfers && rank + 1 < d->ranks)
			put_lanes(d, rank, all);
	}
}

static void put_legend(struct drawing *d)
{
	static const struct { const char *name, *colour; } entries[] = {
		{ "forward", COLOUR_FORWARD },
		{ "backward", COLOUR_BACKWARD },
		{ "update", COLOUR_UPDATE },
		{ "computes nothing", COLOUR_IDLE },
		{ "activations on their way", COLOUR_ACTIVATION },
		{ "gradients on their way", COLOUR_GRADIENT },
	};
	double x = LEFT;

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		fprintf(d->file, "<rect x=\"%.1f\" y=\"62\" width=\"14\" "
		        "height=\"11\" fill=\"%s\"/>\n", x, entries[i].colour);
		put_text(d, x + 19.0, 72.0, "font-size=\"12\"",
		         entries[i].name);
		x += 44.0 + 6.6 * (double)strlen(entries[i].name);
	}
	put_text(d, x, 72.0, "font-size=\"12\" fill=\"#555\"",
	         "numbers: micro-batches");
}

/* Ticks of 1, 2 or 5 times a power of ten, about ten of them. */
static double tick_ms(double longest_ms)
{
	double power = pow(10.0, floor(log10(longest_ms / 10.0)));
	double rest = longest_ms / 10.0 / power;

	return power * (rest < 2.0 ? 2.0 : rest < 5.0 ? 5.0 : 10.0);
}

static void put_axis(struct drawing *d, double longest_ns)
{
	double step_ms = tick_ms(longest_ns * 1e-6);
	char text[32];

	for (double ms = 0.0; ms <= longest_ns * 1e-6; ms += step_ms) {
		double x = LEFT + ms * 1e6 * d->scale;

		fprintf(d->file, "<path d=\"M%.1f %.1fv6\" stroke=\"#555\"/>\n",
		        x, d->y + 4.0);
		snprintf(text, sizeof(text), "%g ms", ms);
		put_text(d, x, d->y + 24.0, "font-size=\"11\" "
		         "text-anchor=\"middle\"", text);
	}
}

static void put_best_line(struct drawing *d, double best_ns)
{
	double x = LEFT + best_ns * d->scale;

	fprintf(d->file, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#b00\" "
	        "stroke-width=\"1.5\" stroke-dasharray=\"5 3\"/>\n", x, TOP,
	        d->y + 4.0);
	put_text(d, x, d->y + 40.0, "font-size=\"11\" fill=\"#b00\" "
	         "text-anchor=\"middle\"", "computations alone");
}

static double picture_height(const struct drawing *d, int runs)
{
	double stages = (STAGE_HEIGHT + GAP) * d->ranks;
	double lanes = 2.0 * (LANE_HEIGHT + GAP) * (d->ranks - 1);

	return TOP + runs * (HEADING + stages + lanes) + HEADING + stages +
	       BOTTOM;
}

static void put_title(struct drawing *d, const struct options *options)
{
	char text[200];

	snprintf(text, sizeof(text), "One training step on %d stages, %d "
	         "micro-batches", d->ranks, d->micro);
	put_text(d, LEFT, 28.0, "font-size=\"18\" font-weight=\"bold\"", text);
	if (options->pretend_mbit > 0.0)
		snprintf(text, sizeof(text), "between the stages: a pretended "
		                             "link of %.0f Mbit/s in each direction",
		         options->pretend_mbit);
	else
		snprintf(text, sizeof(text), "between the stages: %s",
		         options->link_name != NULL
		         ? options->link_name : "what the transport uses");
	put_text(d, LEFT, 48.0, "font-size=\"13\" fill=\"#555\"", text);
}

static void draw(struct drawing *d, const struct run *runs, int count,
                 struct span **steps[], const struct best *best,
                 const struct options *options)
{
	double longest_ns = best->computing_ns, height;
	char heading[160];

	for (int i = 0; i < count; i++) {
		double ns = span_ns(steps[i][0][step_at(d->micro)]);

		longest_ns = ns > longest_ns ? ns : longest_ns;
	}
	d->scale = WIDTH / longest_ns;
	height = picture_height(d, count);
	fprintf(d->file, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
	                 "viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
	                 "font-family=\"sans-serif\">\n"
	                 "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
	        LEFT + WIDTH + RIGHT, height, LEFT + WIDTH + RIGHT, height);
	put_title(d, options);
	put_legend(d);
	d->y = TOP;
	for (int i = count - 1; i >= 0; i--) { /* the slow one first */
		struct span step = steps[i][0][step_at(d->micro)];

		snprintf(heading, sizeof(heading), "%s: %.1f ms",
		         runs[i].schedule == schedule_wait
		                 ? "wait: the host waits for each transfer"
		                 : "overlap: transfers beside the computations",
		         span_ns(step) * 1e-6);
		put_step(d, heading, steps[i], step, true);
	}
	snprintf(heading, sizeof(heading), "the same computations if transfers "
	         "took no time: %.1f ms", best->computing_ns * 1e-6);
	put_step(d, heading, best->computed, best->window, false);
	put_best_line(d, best->computing_ns);
	put_axis(d, longest_ns);
	fputs("</svg>\n", d->file);
}

static bool write_file(const struct run *runs, int count, struct span **steps[],
                       const struct best *best, const struct options *options)
{
	struct drawing drawing = { .ranks = runs[0].stage.ranks,
		                   .micro = options->micro_batches };
	bool good;
	char *path;

	drawing.file = fopen(options->timeline, "w");
	good = drawing.file != NULL;
	if (good) {
		draw(&drawing, runs, count, steps, best, options);
		good = !ferror(drawing.file);
		good = fclose(drawing.file) == 0 && good;
	}
	if (!good) {
		fprintf(stderr, "pipeline: cannot write %s: %s\n",
		        options->timeline, strerror(errno));
		return false;
	}
	path = realpath(options->timeline, NULL);
	printf("\nThe timeline of these steps: %s\n",
	       path != NULL ? path : options->timeline);
	free(path);
	return true;
}

bool timeline_write(const struct run *runs, int count, const struct best *best,
                    const struct options *options)
{
	struct span **steps[RUNS_MAX];
	int ranks = runs[0].stage.ranks;
	bool good = true;

	for (int i = 0; i < count; i++)
		steps[i] = spans_gather(&runs[i]);
	if (steps[0] == NULL)
		return true;
	if (one_clock(steps[0], ranks, options->micro_batches))
		good = write_file(runs, count, steps, best, options);
	else
		printf("\nNo timeline: the stages run on machines with clocks "
		       "of their own.\n");
	for (int i = 0; i < count; i++)
		spans_free(steps[i], ranks);
	return good;
}
