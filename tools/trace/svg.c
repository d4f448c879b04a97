/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timeline as a picture: a row for each stream, a bar for each operation, an arrow for each
 * message and each signal that is waited for.  SVG, or a page of HTML around it with the summary.  Either
 * is one file that needs no other, and no script.
 *
 * A bar is pale as long as the operation waits (for its turn, or for the other rank), and full from
 * then on.  Bars too narrow to be told apart become one, and of very many arrows every n-th is drawn; the
 * picture says so.
 */
#include "trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <baton.h>

#define WIDTH 1400.0
#define LEFT 130.0
#define RIGHT 20.0
#define TOP 84.0
#define ROW_GAP 5.0   /* between streams of a rank */
#define RANK_GAP 22.0 /* between ranks: room for arrows */
#define ROW_HEIGHT 26.0
#define NARROW 0.6      /* pixels */
#define ARROWS_MAX 1500u
#define ROWS_MAX 12u  /* of a rank */
#define LANES_MAX 16u /* of a row; in the last one bars may overlap */

struct drawing {
	FILE *file;
	const struct trace *trace;
	struct trace_view view;
	struct trace_lanes lanes;
	double *row_top;  /* [rows] */
	double *op_top;   /* [lanes.count], and behind it the heights of bars */
	double height;
	size_t merged, arrows, drawn; /* bars that are in others; arrows */
};

static const struct colour {
	const char *name, *fill;
} colours[] = {
	{"send", "#4c78a8"},    {"receive", "#e08a1e"}, {"signal, put", "#54a24b"},
	{"wait", "#b279a2"},    {"barrier", "#9d755d"}, {"get, flush, atomic", "#439894"},
	{"function", "#606060"},
};

static const struct colour *
colour_of(const struct trace_op *op)
{
	switch (op->kind) {
	case BATON_OPERATION_SEND:
		return &colours[0];
	case BATON_OPERATION_RECV:
		return &colours[1];
	case BATON_OPERATION_SIGNAL:
	case BATON_OPERATION_PUT_SIGNAL:
		return &colours[2];
	case BATON_OPERATION_WAIT_SIGNAL:
	case BATON_OPERATION_WAIT_ANY:
	case BATON_OPERATION_WAIT_COUNT:
		return &colours[3];
	case BATON_OPERATION_BARRIER:
		return &colours[4];
	case TRACE_FUNCTION:
		return &colours[6];
	default:
		return &colours[5];
	}
}

static void
put_text(FILE *file, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			fputc(*text, file);
		}
	}
}

/* Of a lane of a row that has so many. */
static double
lane_height(unsigned lanes)
{
	return lanes == 1 ? ROW_HEIGHT : lanes <= 4 ? 14.0 : 9.0;
}

static double
x_of(const struct drawing *d, int64_t stamp)
{
	double all = (double)(d->view.end - d->view.begin);
	double at = ((double)stamp - (double)d->view.begin) / all;

	at = at < 0 ? 0 : at > 1 ? 1 : at;
	return LEFT + at * (WIDTH - LEFT - RIGHT);
}

/* ---- places ---- */

static void
place(struct drawing *d)
{
	const struct trace_row *before = NULL;
	double y = TOP;

	d->row_top = trace_alloc(d->trace->rows_count, sizeof(double));
	d->op_top = trace_alloc(2 * d->lanes.count, sizeof(double));
	for (size_t i = 0; i < d->trace->rows_count; i++) {
		const struct trace_row *row = &d->trace->rows[i];
		unsigned lanes = d->lanes.row_lanes[i];

		if (lanes == 0)
			continue;
		if (before)
			y += row->place == before->place ? ROW_GAP : RANK_GAP;
		before = row;
		d->row_top[i] = y;
		y += lanes * lane_height(lanes);
	}
	for (size_t i = 0; i < d->lanes.count; i++) {
		size_t row = d->lanes.ops[i]->row;
		double height = lane_height(d->lanes.row_lanes[row]);

		d->op_top[i] = d->row_top[row] + height * d->lanes.ops[i]->lane;
		d->op_top[d->lanes.count + i] = height - 2;
		d->lanes.ops[i]->drawn = i + 1;
	}
	d->height = y + 38;
}

/* ---- bars ---- */

static void
put_title(const struct drawing *d, const struct trace_op *op, size_t others)
{
	char what[128], text[48];

	trace_what(op, what, sizeof(what));
	fprintf(d->file, "<title>rank %d: ", op->of->rank);
	put_text(d->file, what);
	if (op->bytes > 0)
		fprintf(d->file, ", %llu bytes", (unsigned long long)op->bytes);
	trace_time((double)(trace_until(d->trace, op) - op->armed), text,
	           sizeof(text));
	fprintf(d->file, "; %s", text);
	trace_time((double)op->armed, text, sizeof(text));
	fprintf(d->file, " from %s on", text);
	if (op->status == BATON_PENDING)
		fprintf(d->file, "; it has not ended");
	else if (op->status != BATON_OK)
		fprintf(d->file, "; %s",
		        baton_status_name((enum baton_status)op->status));
	if (trace_path(op)[0] != '\0') {
		fprintf(d->file, "; by ");
		put_text(d->file, trace_path(op));
	}
	if (op->site[0] != '\0') {
		fprintf(d->file, "; called at ");
		put_text(d->file, op->site);
	}
	if (others > 0)
		fprintf(d->file, "; and %zu more", others);
	fprintf(d->file, "</title>");
}

static void
put_bar(const struct drawing *d, double x, double end, size_t i,
        const char *more)
{
	double width = end - x > NARROW ? end - x : NARROW;

	fprintf(d->file,
	        "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
	        "fill=\"%s\"%s/>",
	        x, d->op_top[i], width, d->op_top[d->lanes.count + i],
	        colour_of(d->lanes.ops[i])->fill, more);
}

/* Operations i to i + others are one bar, which ends there. */
static void
put_bars(const struct drawing *d, size_t i, size_t others, double end)
{
	const struct trace_op *op = d->lanes.ops[i];
	double x = x_of(d, op->armed), full = x;

	if (op->kind != TRACE_FUNCTION && others == 0)
		full = x_of(d, trace_moving(d->trace, op));
	fprintf(d->file, "<g>");
	put_title(d, op, others);
	if (full > x)
		put_bar(d, x, full, i, " fill-opacity=\"0.3\"");
	if (end > full || full <= x)
		put_bar(d, full, end, i, "");
	if (op->status == BATON_PENDING)
		put_bar(d, x, end, i,
		        " fill-opacity=\"0\" stroke=\"#c00\" "
		        "stroke-dasharray=\"4 3\"");
	else if (op->status != BATON_OK)
		put_bar(d, x, end, i, " fill-opacity=\"0\" stroke=\"#c00\"");
	fprintf(d->file, "</g>\n");
}

/* The bar from operation i to `end` has this one too: both are narrow, or it would lie over that. */
static bool
joins(const struct drawing *d, size_t i, size_t next, double end, bool narrow)
{
	const struct trace_op *a = d->lanes.ops[i], *b = d->lanes.ops[next];
	double begin = x_of(d, b->armed);
	double width = x_of(d, trace_until(d->trace, b)) - begin;

	if (a->row != b->row || a->lane != b->lane)
		return false;
	if (a->lane == LANES_MAX - 1 && begin < end)
		return true;
	return narrow && width < NARROW && begin - end < NARROW &&
	       colour_of(a) == colour_of(b) && a->status == b->status;
}

static void
put_all_bars(struct drawing *d)
{
	for (size_t i = 0; i < d->lanes.count;) {
		const struct trace_op *op = d->lanes.ops[i];
		double end = x_of(d, trace_until(d->trace, op));
		bool narrow = end - x_of(d, op->armed) < NARROW;
		size_t next = i + 1;

		while (next < d->lanes.count && joins(d, i, next, end, narrow)) {
			double until;

			op = d->lanes.ops[next++];
			until = x_of(d, trace_until(d->trace, op));
			end = until > end ? until : end;
		}
		put_bars(d, i, next - i - 1, end);
		d->merged += next - i - 1;
		i = next;
	}
}

/* ---- arrows ---- */

/* At a receive, or a wait for signals, there ends one. */
static const struct trace_op *
arrow_from(const struct drawing *d, const struct trace_op *op)
{
	const struct trace_op *from = op->match;
	enum trace_side side = trace_side(op);

	if ((side != TRACE_RECV && !op->terms) || !from ||
	    from->drawn == 0 || op->ended == TRACE_NEVER ||
	    from->armed < d->view.begin || op->ended > d->view.end)
		return NULL;
	return from;
}

static void
put_arrow(const struct drawing *d, const struct trace_op *from,
          const struct trace_op *to)
{
	size_t i = from->drawn - 1, k = to->drawn - 1;
	int64_t begin = from->issued != TRACE_NEVER ? from->issued : from->armed;

	fprintf(d->file, "<path d=\"M%.2f %.1fL%.2f %.1f\"/>\n", x_of(d, begin),
	        d->op_top[i] + d->op_top[d->lanes.count + i] / 2,
	        x_of(d, to->ended),
	        d->op_top[k] + d->op_top[d->lanes.count + k] / 2);
}

static void
put_arrows(struct drawing *d)
{
	size_t every, n = 0;

	for (size_t i = 0; i < d->lanes.count; i++)
		d->arrows += arrow_from(d, d->lanes.ops[i]) != NULL;
	every = (d->arrows + ARROWS_MAX - 1) / ARROWS_MAX;
	fprintf(d->file, "<g stroke=\"#222\" stroke-width=\"0.8\" "
	                 "stroke-opacity=\"0.65\" marker-end=\"url(#tip)\">\n");
	for (size_t i = 0; i < d->lanes.count; i++) {
		const struct trace_op *from = arrow_from(d, d->lanes.ops[i]);

		if (!from || n++ % every != 0)
			continue;
		put_arrow(d, from, d->lanes.ops[i]);
		d->drawn++;
	}
	fprintf(d->file, "</g>\n");
}

/* ---- around them ---- */

static void
put_label(FILE *file, double x, double y, const char *more, const char *text)
{
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, more);
	put_text(file, text);
	fprintf(file, "</text>\n");
}

static void
put_rows(const struct drawing *d)
{
	for (size_t i = 0; i < d->trace->rows_count; i++) {
		const struct trace_row *row = &d->trace->rows[i];
		unsigned lanes = d->lanes.row_lanes[i];
		double height = lanes * lane_height(lanes);
		char text[64];

		if (lanes == 0)
			continue;
		fprintf(d->file,
		        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
		        "height=\"%.1f\" fill=\"#f1f1f1\"/>\n",
		        LEFT, d->row_top[i] - 1, WIDTH - LEFT - RIGHT, height);
		snprintf(text, sizeof(text), "rank %d, stream %d", row->of->name,
		         row->stream);
		put_label(d->file, LEFT - 8, d->row_top[i] + height / 2 + 3,
		          " text-anchor=\"end\"", text);
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
	double y = d->height - 28;

	for (; at <= (double)d->view.end; at += tick) {
		double x = x_of(d, (int64_t)at);
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
put_legend(const struct drawing *d)
{
	static const char pale[] = "pale: waits for its turn, or for the other rank";
	double x = LEFT;

	for (size_t i = 0; i < sizeof(colours) / sizeof(colours[0]); i++) {
		bool used = false;

		for (size_t k = 0; k < d->lanes.count && !used; k++)
			used = colour_of(d->lanes.ops[k]) == &colours[i];
		if (!used)
			continue;
		fprintf(d->file,
		        "<rect x=\"%.1f\" y=\"52\" width=\"14\" height=\"11\" "
		        "fill=\"%s\"/>\n",
		        x, colours[i].fill);
		put_label(d->file, x + 19, 62, "", colours[i].name);
		x += 40 + 6.5 * (double)strlen(colours[i].name);
	}
	put_label(d->file, x, 62, " fill=\"#555\"", pale);
}

/* What holds for the whole picture: what it is of, how far its clocks can be trusted, what is not drawn. */
static void
put_heading(const struct drawing *d)
{
	const struct trace *trace = d->trace;
	int64_t error = 0;
	char text[512], span[48], from[48], clock[48];

	for (size_t i = 0; i < trace->ranks_count; i++) {
		if (trace->ranks[i].error_ns > error)
			error = trace->ranks[i].error_ns;
	}
	trace_time((double)(d->view.end - d->view.begin), span, sizeof(span));
	trace_time((double)d->view.begin, from, sizeof(from));
	trace_time((double)error, clock, sizeof(clock));
	snprintf(text, sizeof(text), "%s: %s", trace->ranks[0].header.program, span);
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
	place(&d);
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
	put_all_bars(&d);
	put_arrows(&d);
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
	put_text(file, trace->ranks[0].header.program);
	fprintf(file, ": baton trace</title></head>\n"
	              "<body><div style=\"overflow-x:auto\">\n");
	draw(trace, view, file);
	fprintf(file, "</div><pre>");
	put_text(file, text ? text : "");
	fprintf(file, "</pre></body></html>\n");
	free(text);
	return close_file(file, path);
}
