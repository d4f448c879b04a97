/* SPDX-License-Identifier: BSD-3-Clause */
/* `baton trace`: what the ranks of a run have done, from the files that BATON_TRACE made them keep. */
#include "trace.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "tool.h"

struct arguments {
	const char *folder, *perfetto, *svg, *html;
	uint64_t run;
	double from_ms, to_ms;
	bool json, hang;
};

enum { KEY_PERFETTO = 256, KEY_SVG, KEY_HTML, KEY_HANG, KEY_RUN, KEY_FROM, KEY_TO };

static const struct argp_option options[] = {
	{"perfetto", KEY_PERFETTO, "FILE.json", 0,
         "Write the trace for Perfetto (ui.perfetto.dev) and chrome://tracing", 0},
	{"svg", KEY_SVG, "FILE.svg", 0, "Draw the timeline as a picture", 0},
	{"html", KEY_HTML, "FILE.html", 0,
         "Write a page with the timeline and the summary", 0},
	{"from", KEY_FROM, "MS", 0,
         "What is written begins so many milliseconds after the trace's beginning", 0},
	{"to", KEY_TO, "MS", 0, "And ends so many milliseconds after it", 0},
	{"run", KEY_RUN, "ID", 0,
         "Of several runs in DIR take the one that has this communicator; without, the one "
         "that began last",
         0},
	{"hang", KEY_HANG, NULL, 0,
         "Tell which rank waits for which, and which call never came", 0},
	{"json", 'j', NULL, 0, "Print one object of JSON", 0},
	{0},
};

static const char doc[] =
	"Join the files that BATON_TRACE=DIR made the ranks of a program keep, print where the time of each "
	"stream went, and write timelines.  Or, with --hang, say why the program hangs or hung."
	"\v"
	"Exit status: 0; 1, files are missing or damaged, or with --hang: something hangs; 2, there "
	"is nothing to read, or a file cannot be written; 64 for bad arguments.";

static double
milliseconds(const char *name, const char *text, struct argp_state *state)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= 0) || value > 1e12)
		argp_error(state, "--%s takes milliseconds, 0 or more, not \"%s\"", name,
		           text);
	return value;
}

static uint64_t
communicator(const char *text, struct argp_state *state)
{
	size_t digits = strspn(text, "0123456789abcdefABCDEF");
	uint64_t value = digits <= 16 ? strtoull(text, NULL, 16) : 0;

	if (text[digits] != '\0' || value == 0)
		argp_error(state,
		           "--run takes the hexadecimal number of a communicator, as it "
		           "is in the files' names, not \"%s\"",
		           text);
	return value;
}

/* Each drawing is a file of its own. */
static void
check_files(const struct arguments *arguments, struct argp_state *state)
{
	const struct {
		const char *option, *path;
	} files[] = {{"perfetto", arguments->perfetto},
	             {"svg", arguments->svg},
	             {"html", arguments->html}};

	for (size_t i = 0; i < 3; i++) {
		for (size_t k = 0; k < i && files[i].path; k++) {
			if (files[k].path && strcmp(files[i].path, files[k].path) == 0)
				argp_error(state,
				           "--%s and --%s are both \"%s\": each "
				           "writes a file of its own",
				           files[k].option, files[i].option,
				           files[i].path);
		}
	}
}

static error_t
parse(int key, char *argument, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case KEY_PERFETTO:
		arguments->perfetto = argument;
		return 0;
	case KEY_SVG:
		arguments->svg = argument;
		return 0;
	case KEY_HTML:
		arguments->html = argument;
		return 0;
	case KEY_FROM:
		arguments->from_ms = milliseconds("from", argument, state);
		return 0;
	case KEY_TO:
		arguments->to_ms = milliseconds("to", argument, state);
		return 0;
	case KEY_RUN:
		arguments->run = communicator(argument, state);
		return 0;
	case KEY_HANG:
		arguments->hang = true;
		return 0;
	case 'j':
		arguments->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (arguments->folder)
			argp_error(state, "one folder is allowed, and \"%s\" is another",
			           argument);
		arguments->folder = argument;
		return 0;
	case ARGP_KEY_END:
		if (!arguments->folder)
			argp_error(state, "no folder is given: it is the value that "
			                  "BATON_TRACE had");
		if (arguments->hang && (arguments->perfetto || arguments->svg || arguments->html))
			argp_error(state, "--hang says, and draws nothing: --perfetto, --svg "
			                  "and --html are for a call without it");
		if (arguments->to_ms >= 0 && arguments->to_ms <= arguments->from_ms)
			argp_error(state, "--to must be later than --from");
		check_files(arguments, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* A picture of nothing says nothing. */
static bool
begins_within(const struct trace *trace, const struct arguments *arguments)
{
	bool draws = arguments->perfetto || arguments->svg || arguments->html;

	if (!draws || arguments->from_ms <= 0 ||
	    arguments->from_ms * 1e6 < (double)trace->last)
		return true;
	fprintf(stderr,
	        "baton trace: --from=%g is beyond the end of the trace, which is %.6g ms "
	        "long\n",
	        arguments->from_ms, (double)trace->last / 1e6);
	return false;
}

static struct trace_view
view_of(const struct trace *trace, const struct arguments *arguments)
{
	struct trace_view view = {.begin = 0, .end = trace->last};

	if (arguments->from_ms > 0)
		view.begin = (int64_t)(arguments->from_ms * 1e6);
	if (arguments->to_ms > 0 && arguments->to_ms * 1e6 < (double)view.end)
		view.end = (int64_t)(arguments->to_ms * 1e6);
	/* Also of an empty trace. */
	if (view.end <= view.begin)
		view.end = view.begin + 1;
	return view;
}

static bool
write_files(const struct trace *trace, const struct arguments *arguments,
            const json_t *report)
{
	struct trace_view view = view_of(trace, arguments);
	bool good = true;

	if (arguments->perfetto)
		good = trace_perfetto(trace, &view, arguments->perfetto) && good;
	if (arguments->svg)
		good = trace_svg(trace, &view, arguments->svg) && good;
	if (arguments->html)
		good = trace_html(trace, &view, report, arguments->html) && good;
	return good;
}

static int
report_on(const struct trace *trace, const struct arguments *arguments)
{
	json_t *report = trace_summary(trace);
	int status = trace->incomplete ? TOOL_SLOW : 0;

	if (!write_files(trace, arguments, report))
		status = TOOL_BROKEN;
	if (arguments->json)
		tool_print_json(report);
	else
		trace_summary_print(report, stdout);
	json_decref(report);
	return status;
}

/* With --hang. */
static int
report_hang(const struct trace *trace, const struct arguments *arguments)
{
	json_t *report = trace_hang(trace);
	bool hangs = json_array_size(json_object_get(report, "moments")) > 0;

	if (arguments->json)
		tool_print_json(report);
	else
		trace_hang_print(report, stdout);
	json_decref(report);
	return hangs || trace->incomplete ? TOOL_SLOW : 0;
}

int
trace_main(int argc, char **argv)
{
	const struct argp argp = {.options = options,
	                          .parser = parse,
	                          .args_doc = "DIR",
	                          .doc = doc};
	struct arguments arguments = {.to_ms = -1};
	int status = TOOL_BROKEN;
	struct trace trace;

	tool_argp(&argp, argc, argv, 0, &arguments);
	if (trace_read(&trace, arguments.folder, arguments.run)) {
		trace_match(&trace);
		if (!begins_within(&trace, &arguments)) {
			trace_free(&trace);
			return EX_USAGE;
		}
		status = arguments.hang ? report_hang(&trace, &arguments)
		                        : report_on(&trace, &arguments);
	}
	trace_free(&trace);
	return status;
}
