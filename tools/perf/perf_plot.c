/* SPDX-License-Identifier: BSD-3-Clause */
/* The report of `baton perf` as a picture, by gnuplot. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"
#include "tool.h"

/* One panel for each figure that some test has. */
static const struct {
	const char *figure, *label, *raw, *axis;
} panels[] = {
	{"us", "us", "raw_us", "set logscale y"},
	{"gbytes_per_s", "GB/s", "raw_gbytes_per_s",
	 "unset logscale y; set yrange [0:*]"},
	{"messages_per_us", "million messages/s", "raw_messages_per_us",
	 "unset logscale y; set yrange [0:*]"},
	{"hidden", "share of the transfer hidden", "raw_hidden",
	 "unset logscale y; set yrange [0:1]"},
};

#define PANELS (sizeof(panels) / sizeof(panels[0]))

bool
perf_can_plot(void)
{
	const char *path = getenv("PATH");

	while (path && *path) {
		size_t length = strcspn(path, ":");
		char file[4096];

		snprintf(file, sizeof(file), "%.*s/gnuplot", (int)length, path);
		if (access(file, X_OK) == 0)
			return true;
		path += length + (path[length] == ':');
	}
	return false;
}

/* The test's points of one panel, as a line of its own. */
static bool
has_rows(const json_t *report, const struct perf_test *test)
{
	const json_t *rows = json_object_get(report, "rows"), *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		if (strcmp(tool_text(row, "test"), test->name) == 0 &&
		    json_object_get(row, test->figure))
			return true;
	}
	return false;
}

static bool
is_in(const json_t *report, const struct perf_test *test, size_t panel)
{
	return strcmp(test->figure, panels[panel].figure) == 0 &&
	       has_rows(report, test);
}

static void
give_points(FILE *gnuplot, const json_t *report, const char *test,
            const char *figure)
{
	const json_t *rows = json_object_get(report, "rows"), *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const json_t *value = json_object_get(row, figure);

		if (strcmp(tool_text(row, "test"), test) == 0 && value)
			fprintf(gnuplot, "%lld %g\n", tool_number(row, "bytes"),
			        json_number_value(value));
	}
	fprintf(gnuplot, "e\n");
}

static void
draw_panel(FILE *gnuplot, const json_t *report, size_t panel)
{
	const char *between = "plot ";

	const bool has_raw = *tool_text(report, "against") != '\0';

	fprintf(gnuplot, "set ylabel '%s'\n%s\n", panels[panel].label,
	        panels[panel].axis);
	for (size_t i = 0; i < perf_tests_count; i++) {
		if (!is_in(report, &perf_tests[i], panel))
			continue;
		fprintf(gnuplot, "%s'-' with linespoints title '%s'", between,
		        perf_tests[i].name);
		between = ", ";
		if (has_raw)
			fprintf(gnuplot, ", '-' with linespoints dashtype 2 title "
			                 "'%s, %s'",
			        perf_tests[i].name, tool_text(report, "against"));
	}
	fprintf(gnuplot, "\n");
	for (size_t i = 0; i < perf_tests_count; i++) {
		if (!is_in(report, &perf_tests[i], panel))
			continue;
		give_points(gnuplot, report, perf_tests[i].name,
		            panels[panel].figure);
		if (has_raw)
			give_points(gnuplot, report, perf_tests[i].name,
			            panels[panel].raw);
	}
}

static bool
is_wanted(const json_t *report, size_t panel)
{
	for (size_t i = 0; i < perf_tests_count; i++) {
		if (is_in(report, &perf_tests[i], panel))
			return true;
	}
	return false;
}

/* In gnuplot's single quotes, where a quote is doubled. */
static void
give_quoted(FILE *gnuplot, const char *text)
{
	fputc('\'', gnuplot);
	for (; *text; text++)
		fprintf(gnuplot, *text == '\'' ? "''" : "%c", *text);
	fputc('\'', gnuplot);
}

bool
perf_plot(const json_t *report, const char *file)
{
	FILE *gnuplot;
	int wanted = 0, status;

	for (size_t i = 0; i < PANELS; i++)
		wanted += is_wanted(report, i);
	if (wanted == 0)
		return true;
	/* It draws on its standard output when it cannot open the file. */
	gnuplot = popen("gnuplot >/dev/null", "w");
	if (!gnuplot) {
		perror("baton perf: starting gnuplot");
		return false;
	}
	fprintf(gnuplot, "set terminal svg size 800,%d\nset output ", 320 * wanted);
	give_quoted(gnuplot, file);
	fprintf(gnuplot, "\nset multiplot layout %d,1\nset grid\nset key outside "
	                 "right\nset logscale x 2\nset format x '%%.0b %%BB'\nset "
	                 "xlabel 'bytes of a message'\n",
	        wanted);
	for (size_t i = 0; i < PANELS; i++) {
		if (is_wanted(report, i))
			draw_panel(gnuplot, report, i);
	}
	fprintf(gnuplot, "unset multiplot\nunset output\n");
	status = pclose(gnuplot);
	if (status == 0 && access(file, F_OK) == 0)
		return true;
	fprintf(stderr, "baton perf: gnuplot has not drawn %s\n", file);
	return false;
}
