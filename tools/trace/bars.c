/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bars and arrows of a picture.  A bar is pale as long as the operation waits (for its turn, or for the
 * other rank), and full from then on.  Bars too narrow to be told apart become one, and of very many arrows
 * every n-th is drawn; the picture says so.
 */
#include "svg.h"

#include <stdlib.h>
#include <string.h>

#include <baton.h>

#define ROW_GAP 5.0   /* between streams of a rank */
#define RANK_GAP 22.0 /* between ranks: room for arrows */
#define ROW_HEIGHT 26.0
#define NARROW 0.6      /* pixels */
#define ARROWS_MAX 1500u

const struct colour trace_colours[COLOURS] = {
	{"send", "#4c78a8"},    {"receive", "#e08a1e"}, {"signal, put", "#54a24b"},
	{"wait", "#b279a2"},    {"barrier", "#9d755d"}, {"get, flush, atomic", "#439894"},
	{"function", "#606060"},
};

const struct colour *
trace_colour(const struct trace_op *op)
{
	switch (op->kind) {
	case BATON_OPERATION_SEND:
		return &trace_colours[0];
	case BATON_OPERATION_RECV:
		return &trace_colours[1];
	case BATON_OPERATION_SIGNAL:
	case BATON_OPERATION_PUT_SIGNAL:
		return &trace_colours[2];
	case BATON_OPERATION_WAIT_SIGNAL:
	case BATON_OPERATION_WAIT_ANY:
	case BATON_OPERATION_WAIT_COUNT:
		return &trace_colours[3];
	case BATON_OPERATION_BARRIER:
		return &trace_colours[4];
	case TRACE_FUNCTION:
		return &trace_colours[6];
	default:
		return &trace_colours[5];
	}
}

void
trace_put_text(FILE *file, const char *text)
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

double
trace_x(const struct drawing *d, int64_t stamp)
{
	double all = (double)(d->view.end - d->view.begin);
	double at = ((double)stamp - (double)d->view.begin) / all;

	at = at < 0 ? 0 : at > 1 ? 1 : at;
	return LEFT + at * (WIDTH - LEFT - RIGHT);
}

double
trace_row_height(const struct drawing *d, size_t row)
{
	unsigned lanes = d->lanes.row_lanes[row];

	return lanes * lane_height(lanes);
}

/* ---- places ---- */

void
trace_place(struct drawing *d)
{
	const struct trace_row *before = NULL;
	double y = TOP;
	char text[512];

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
	d->bottom = y + 10;
	d->height = y + 38;
	while (d->notes < NOTES_MAX &&
	       trace_comm_sentence(d->trace, d->notes, text, sizeof(text)))
		d->notes++;
	d->height += NOTE_HEIGHT * (double)d->notes;
}

/* ---- bars ---- */

static void
put_title(const struct drawing *d, const struct trace_op *op, size_t others)
{
	char what[128], text[48];

	trace_name(op->of, text, sizeof(text));
	trace_what(op, what, sizeof(what));
	fprintf(d->file, "<title>%s: ", text);
	trace_put_text(d->file, what);
	if (op->of->comm_number > 1)
		fprintf(d->file, " (as its rank %d)", op->of->rank);
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
		trace_put_text(d->file, trace_path(op));
	}
	if (op->site[0] != '\0') {
		fprintf(d->file, "; called at ");
		trace_put_text(d->file, op->site);
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
	        trace_colour(d->lanes.ops[i])->fill, more);
}

/* Operations i to i + others are one bar, which ends there. */
static void
put_bars(const struct drawing *d, size_t i, size_t others, double end)
{
	const struct trace_op *op = d->lanes.ops[i];
	double x = trace_x(d, op->armed), full = x;

	if (op->kind != TRACE_FUNCTION && others == 0)
		full = trace_x(d, trace_moving(d->trace, op));
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
	double begin = trace_x(d, b->armed);
	double width = trace_x(d, trace_until(d->trace, b)) - begin;

	if (a->row != b->row || a->lane != b->lane)
		return false;
	if (a->lane == LANES_MAX - 1 && begin < end)
		return true;
	return narrow && width < NARROW && begin - end < NARROW &&
	       trace_colour(a) == trace_colour(b) && a->status == b->status;
}

void
trace_bars(struct drawing *d)
{
	for (size_t i = 0; i < d->lanes.count;) {
		const struct trace_op *op = d->lanes.ops[i];
		double end = trace_x(d, trace_until(d->trace, op));
		bool narrow = end - trace_x(d, op->armed) < NARROW;
		size_t next = i + 1;

		while (next < d->lanes.count && joins(d, i, next, end, narrow)) {
			double until;

			op = d->lanes.ops[next++];
			until = trace_x(d, trace_until(d->trace, op));
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

	fprintf(d->file, "<path d=\"M%.2f %.1fL%.2f %.1f\"/>\n", trace_x(d, begin),
	        d->op_top[i] + d->op_top[d->lanes.count + i] / 2,
	        trace_x(d, to->ended),
	        d->op_top[k] + d->op_top[d->lanes.count + k] / 2);
}

void
trace_arrows(struct drawing *d)
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
