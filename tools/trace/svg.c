/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timeline as a picture: a row for each stream, a bar for each operation, an arrow for each
 * message and each signal that is waited for (bars.c).  SVG, or a page of HTML around it with the summary.
 * Either is one file that needs no other, and no script.
 */
#include "svg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void
put_label(FILE *file, double x, double y, const char *more, const char *text)
{
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, more);
	trace_put_text(file, text);
	fprintf(file, "</text>\n");
}

static void
put_rows(const struct drawing *d)
{
	for (size_t i = 0; i < d->trace->rows_count; i++) {
		const struct trace_row *row = &d->trace->rows[i];
		unsigned lanes = d->lanes.row_lanes[i];
		double height = trace_row_height(d, i);
		char name[64], text[96];

		if (lanes == 0)
			continue;
		fprintf(d->file,
		        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
		        "height=\"%.1f\" fill=\"#f1f1f1\"/>\n",
		        LEFT, d->row_top[i] - 1, WIDTH - LEFT - RIGHT, height);
		trace_name(row->of, name, sizeof(name));
		snprintf(text, sizeof(text), "%s, stream %d", name, row->stream);
		/* A long one is made to fit. */
		put_label(d->file, LEFT - 8, d->row_top[i] + height / 2 + 3,
		          row->of->name_comm > 1
		                  ? " text-anchor=\"end\" textLength=\"118\" "
		                    "lengthAdjust=\"spacingAndGlyphs\""
		                  : " text-anchor=\"end\"",
		          text);
	}
}

/* 1, 2 or 5 times a power of ten, so that there are 5 to 12 of them. */
static double
tick_of(double span)
{
	double tick = 1;

	while (tick * 10 < span)
		tick *= 10;
	if (span / tick > 5)
		return tick;
	return span / tick > 2.5 ? tick / 2 : tick / 5;
}

static void
put_axis(const struct drawing *d)
{
	double tick = tick_of((double)(d->view.end - d->view.begin));
	double at = tick * (double)(int64_t)((double)d->view.begin / tick);
	double y = d->bottom;

	for (; at <= (double)d->view.end; at += tick) {
		double x = trace_x(d, (int64_t)at);
		char text[48];

		if (at < (double)d->view.begin)
			continue;
		fprintf(d->file,
		        "<path d=\"M%.2f %.1fV%.1f\" stroke=\"#ccc\" "
		        "stroke-width=\"0.6\"/>\n",
		        x, TOP - 6, y);
		trace_time(at, text, sizeof(text));
		put_label(d->file, x, y + 14, " text-anchor=\"middle\" fill=\"#555\"",
		          at < 0.5 ? "0" : text);
	}
}

static void
put_notes(const struct drawing *d)
{
	char text[512];

	for (size_t i = 0; i < d->notes; i++) {
		trace_comm_sentence(d->trace, i, text, sizeof(text));
		put_label(d->file, LEFT,
		          d->bottom + 20 + NOTE_HEIGHT * (double)(i + 1),
		          " fill=\"#555\"", text);
	}
}

static void
put_legend(const struct drawing *d)
{
	static const char pale[] = "pale: waits for its turn, or for the other rank";
	double x = LEFT;

	for (size_t i = 0; i < COLOURS; i++) {
		bool used = false;

		for (size_t k = 0; k < d->lanes.count && !used; k++)
			used = trace_colour(d->lanes.ops[k]) == &trace_colours[i];
		if (!used)
			continue;
		fprintf(d->file,
		        "<rect x=\"%.1f\" y=\"52\" width=\"14\" height=\"11\" "
		        "fill=\"%s\"/>\n",
		        x, trace_colours[i].fill);
		put_label(d->file, x + 19, 62, "", trace_colours[i].name);
		x += 40 + 6.5 * (double)strlen(trace_colours[i].name);
	}
	put_label(d->file, x, 62, " fill=\"#555\"", pale);
}

/* What holds for the whole picture: what it is of, how far its clocks can be trusted, what is not drawn. */
static void
put_heading(const struct drawing *d)
{
	const struct trace *trace = d->trace;
	const char *program = trace->ranks[0].header.program;
	const char *name = strrchr(program, '/');
	int64_t error = 0;
	char text[512], span[48], from[48], clock[48];

	for (size_t i = 0; i < trace->ranks_count; i++) {
		if (trace->ranks[i].error_ns > error)
			error = trace->ranks[i].error_ns;
	}
	trace_time((double)(d->view.end - d->view.begin), span, sizeof(span));
	trace_time((double)d->view.begin, from, sizeof(from));
	trace_time((double)error, clock, sizeof(clock));
	snprintf(text, sizeof(text), "%s: %s", name ? name + 1 : program, span);
	if (d->view.begin > 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
		         " from %s on", from);
	put_label(d->file, LEFT, 24, " font-size=\"16\" font-weight=\"bold\"", text);
	snprintf(text, sizeof(text), "%zu operations, %zu arrows; ",
	         d->lanes.count, d->drawn);
	if (d->arrows > d->drawn)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
		         "one in %zu is drawn; ",
		         (d->arrows + d->drawn - 1) / d->drawn);
	if (d->lanes.rows_left_out > 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
		         "%zu streams that do less are left out; ",
		         d->lanes.rows_left_out);
	if (d->merged > 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
		         "%zu bars are within others; ", d->merged);
	snprintf(text + strlen(text), sizeof(text) - strlen(text),
	         error > 0 ? "clocks of several nodes, joined to within %s"
	                   : "one clock",
	         clock);
	put_label(d->file, LEFT, 42, " fill=\"#555\"", text);
}

static void
draw(const struct trace *trace, const struct trace_view *view, FILE *file)
{
	struct drawing d = {.file = file, .trace = trace, .view = *view};

	trace_lanes_init(&d.lanes, trace, view, ROWS_MAX, LANES_MAX);
	trace_place(&d);
	fprintf(file,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f "
	        "%.0f\" width=\"%.0f\" height=\"%.0f\" "
	        "font-family=\"sans-serif\" font-size=\"12\">\n"
	        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" "
	        "refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
	        "orient=\"auto\"><path d=\"M0 1L7 4L0 7z\" fill=\"#222\" "
	        "stroke=\"none\"/></marker></defs>\n"
	        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
	        WIDTH, d.height, WIDTH, d.height);
	put_legend(&d);
	put_rows(&d);
	put_axis(&d);
	put_notes(&d);
	trace_bars(&d);
	trace_arrows(&d);
	put_heading(&d);
	fprintf(file, "</svg>\n");
	trace_lanes_fini(&d.lanes);
	free(d.row_top);
	free(d.op_top);
}

static FILE *
open_file(const char *path)
{
	FILE *file = fopen(path, "w");

	if (!file)
		fprintf(stderr, "baton trace: %s cannot be written: %s\n", path,
		        strerror(errno));
	return file;
}

static bool
close_file(FILE *file, const char *path)
{
	bool good = !ferror(file);

	good = fclose(file) == 0 && good;
	if (!good)
		fprintf(stderr, "baton trace: %s cannot be written: %s\n", path,
		        strerror(errno));
	return good;
}

bool
trace_svg(const struct trace *trace, const struct trace_view *view,
          const char *path)
{
	FILE *file = open_file(path);

	if (!file)
		return false;
	draw(trace, view, file);
	return close_file(file, path);
}

bool
trace_html(const struct trace *trace, const struct trace_view *view,
           const json_t *report, const char *path)
{
	FILE *file = open_file(path), *words;
	char *text = NULL;
	size_t size = 0;

	if (!file)
		return false;
	words = open_memstream(&text, &size);
	if (words) {
		trace_summary_print(report, words);
		fclose(words);
	}
	fprintf(file, "<!DOCTYPE html>\n<html lang=\"en\"><head>"
	              "<meta charset=\"utf-8\"><title>");
	trace_put_text(file, trace->ranks[0].header.program);
	fprintf(file, ": baton trace</title></head>\n"
	              "<body><div style=\"overflow-x:auto\">\n");
	draw(trace, view, file);
	fprintf(file, "</div><pre>");
	trace_put_text(file, text ? text : "");
	fprintf(file, "</pre></body></html>\n");
	free(text);
	return close_file(file, path);
}
