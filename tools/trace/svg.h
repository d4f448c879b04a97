/* SPDX-License-Identifier: BSD-3-Clause */
/* A picture of a trace: bars.c draws what is in it, svg.c what is around that. */
#ifndef BATON_TOOL_TRACE_SVG_H
#define BATON_TOOL_TRACE_SVG_H

#include "trace.h"

/* Pixels. */
#define WIDTH 1400.0
#define LEFT 130.0
#define RIGHT 20.0
#define TOP 84.0
/* More of them are left out, or drawn over each other. */
#define ROWS_MAX 12u  /* of a rank */
#define NOTES_MAX 12u
#define NOTE_HEIGHT 16.0
#define LANES_MAX 16u /* of a row; in the last one bars may overlap */

struct drawing {
	FILE *file;
	const struct trace *trace;
	struct trace_view view;
	struct trace_lanes lanes;
	double *row_top;  /* [rows] */
	double *op_top;   /* [lanes.count], and behind it the heights of bars */
	double bottom, height; /* of the rows; of the picture */
	size_t notes;          /* lines below the rows: what communicators there are */
	size_t merged, arrows, drawn; /* bars that are in others; arrows */
};

#define COLOURS 7
extern const struct colour {
	const char *name, *fill;
} trace_colours[COLOURS];
const struct colour *trace_colour(const struct trace_op *op);

/* Text of a program, as XML wants it. */
void trace_put_text(FILE *file, const char *text);
double trace_x(const struct drawing *d, int64_t stamp);
/* The height of a row. */
double trace_row_height(const struct drawing *d, size_t row);
/* Decide where rows and bars are, and how high the picture is. */
void trace_place(struct drawing *d);
void trace_bars(struct drawing *d);
void trace_arrows(struct drawing *d);

#endif
