/* SPDX-License-Identifier: BSD-3-Clause */
/* The report of `baton perf` as a picture, by gnuplot. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* The picture, as gnuplot's commands. */
static void
give_commands(FILE *gnuplot, const json_t *report, const char *file, int wanted)
{
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
}

/* Start it with these commands and what it says into a pipe, whose other end is *said_p.  0, or an errno. */
static int
start_gnuplot(FILE *commands, int *said_p, pid_t *process_p)
{
	char *const arguments[] = {"gnuplot", "-", NULL};
	posix_spawn_file_actions_t actions;
	int ends[2], error;

	if (pipe(ends) != 0)
		return errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fileno(commands), 0);
	/* It draws on its standard output when it cannot open the file. */
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	posix_spawn_file_actions_addclose(&actions, ends[1]);
	error = posix_spawnp(process_p, arguments[0], &actions, NULL, arguments,
	                     environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (error != 0)
		close(ends[0]);
	*said_p = ends[0];
	return error;
}

/* The reason in a line of gnuplot's, or NULL: it shows the command and where in it, then "line 0: what is wrong". */
static const char *
reason_of(const char *line)
{
	const char *found = strstr(line, "line ");
	size_t digits = found ? strspn(found + 5, "0123456789") : 0;

	if (digits == 0 || found[5 + digits] != ':')
		return NULL;
	found += 5 + digits + 1;
	return found + strspn(found, " ");
}

/* Its reason, else the first line that says something; and the system's, which comes behind. */
static void
read_reason(FILE *said, char *why, size_t size)
{
	static const char of_system[] = "system error: ";
	bool found = false;
	char line[512];

	*why = '\0';
	while (fgets(line, sizeof(line), said)) {
		const char *reason = reason_of(line);

		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, of_system, strlen(of_system)) == 0 && found)
			snprintf(why + strlen(why), size - strlen(why), ": %s",
			         line + strlen(of_system));
		else if (reason && !found)
			snprintf(why, size, "%s", reason);
		else if (!*why && line[strspn(line, " \t")])
			snprintf(why, size, "%s", line);
		found = found || reason;
	}
}

/* False: why has the reason. */
static bool
run_gnuplot(FILE *commands, char *why, size_t size)
{
	int status = 0, descriptor = -1, error;
	pid_t process;
	FILE *said;

	rewind(commands);
	error = start_gnuplot(commands, &descriptor, &process);
	said = error == 0 ? fdopen(descriptor, "r") : NULL;
	if (said) {
		read_reason(said, why, size);
		fclose(said);
	}
	if (error == 0)
		waitpid(process, &status, 0);
	if (error != 0)
		snprintf(why, size, "%s", strerror(error));
	else if (!*why && WIFSIGNALED(status))
		snprintf(why, size, "signal %d ended it", WTERMSIG(status));
	else if (!*why)
		snprintf(why, size, "it ended with %d", WEXITSTATUS(status));
	return error == 0 && status == 0;
}

bool
perf_plot(const json_t *report, const char *file)
{
	char why[1024] = "";
	FILE *commands;
	int wanted = 0;
	bool drawn;

	for (size_t i = 0; i < PANELS; i++)
		wanted += is_wanted(report, i);
	if (wanted == 0)
		return true;
	commands = tmpfile();
	if (!commands) {
		perror("baton perf: the commands for gnuplot");
		return false;
	}
	give_commands(commands, report, file, wanted);
	drawn = run_gnuplot(commands, why, sizeof(why)) && access(file, F_OK) == 0;
	fclose(commands);
	if (!drawn)
		fprintf(stderr, "baton perf: gnuplot has not drawn %s: %s\n", file,
		        why);
	return drawn;
}
