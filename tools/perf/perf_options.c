/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of `baton perf`. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"
#include "tool.h"

enum { KEY_RANKS = 256, KEY_MEMORY, KEY_AGAINST, KEY_NO_CHECK, KEY_CSV, KEY_PLOT, KEY_WINDOW };

static const struct argp_option argp_options[] = {
	{NULL, 0, NULL, 0, "What is measured:", 1},
	{"min-bytes", 'b', "BYTES", 0, "The shortest message; 4K, 1M and 1G are understood", 1},
	{"max-bytes", 'e', "BYTES", 0, "The longest, 1G at most", 1},
	{"factor", 'f', "N", 0, "From each size to the next, 2 to 1024 (default 4)", 1},
	{"window", KEY_WINDOW, "N", 0, "Messages in flight in bandwidth, rate and puts, 1 to 1024 (default 64; "
	 "fewer where they are more than 64 MiB)", 1},
	{"iterations", 'n', "N", 0, "Rounds of a row; without it as many as fit into --time", 1},
	{"warmup", 'w', "N", 0, "Rounds before them that are not timed (default: a twentieth)", 1},
	{"time", 't', "SECONDS", 0, "The limit of a row for each side, 0.001 to 3600 (default 0.2; with -n none)", 1},
	{"no-check", KEY_NO_CHECK, NULL, 0, "Do not compare the data that arrive", 1},
	{"against", KEY_AGAINST, "mpi|nccl", 0, "Run the same in raw MPI or NCCL, in turns, in the same processes", 1},
	{NULL, 0, NULL, 0, "Over what:", 2},
	{"device", 'd', "host|cuda", 0, "Default: BATON_DEVICE, else the host", 2},
	{"transport", 'T', "NAME", 0, "local, near, mpi or nccl; default: what a program gets", 2},
	{"path", 'p', "PATH", 0, "Of messages near or mpi; of puts direct, vmwrite, message or native. Once for "
	 "each", 2},
	{"memory", KEY_MEMORY, "heap|block", 0, "Of malloc, or of baton_mem_alloc (default for puts, and on GPUs)", 2},
	{"ranks", KEY_RANKS, "N", 0, "Threads of a process alone, 2 to 64 (default 2)", 2},
	{NULL, 0, NULL, 0, "What is printed:", 3},
	{"json", 'j', NULL, 0, "One object of JSON", 3},
	{"csv", KEY_CSV, NULL, 0, "A line of names and one for each row, with commas", 3},
	{"plot", KEY_PLOT, "FILE.svg", 0, "Also draw it, by gnuplot", 3},
	{0},
};

static const char doc[] =
	"Measure messages and puts between the ranks, in sizes from -b to -e.  Without a TEST all are "
	"run."
	"\v"
	"Tests:\n"
	"  latency        half a round trip of a message\n"
	"  bandwidth      a window of messages one way, with a short one back\n"
	"  rate           the same of short messages\n"
	"  put            half a round trip: a put with signal, and the wait for it\n"
	"  puts           a window of puts one way, one wait, and a signal back\n"
	"  ring           a message to the next rank, and one from the rank before\n"
	"  alltoall       a message to each rank, and one from each\n"
	"  overlap        a message beside computing of the same length\n"
	"\n"
	"The first half of the ranks send to the second half in all tests but ring and alltoall.  "
	"A process alone measures between threads: `mpirun -np 2 baton perf' between processes.\n"
	"\n"
	"Exit status: 0; 2, if something failed or wrong data arrived; 64 for bad arguments.";

/* The place of the word among the names, which end with NULL; else a refusal that lists them. */
static int
choose(struct argp_state *state, const char *option, const char *word,
       const char *const *names)
{
	char all[128] = "";

	for (int i = 0; names[i]; i++) {
		if (strcmp(names[i], word) == 0)
			return i;
		strcat(strcat(all, i > 0 ? ", " : ""), names[i]);
	}
	argp_error(state, "%s is \"%s\"; it is one of: %s", option, word, all);
	return -1;
}

static size_t
read_bytes(struct argp_state *state, const char *option, const char *word)
{
	static const char units[] = "KMG";
	char *end;
	unsigned long long value = 0;
	const char *unit;

	errno = 0;
	if (*word >= '0' && *word <= '9')
		value = strtoull(word, &end, 10);
	else
		end = (char *)(uintptr_t)word;
	unit = *end ? strchr(units, *end) : NULL;
	if (end != word && unit) {
		value = value <= PERF_BYTES_MAX ? value << 10 * (unit - units + 1)
		                                : value;
		end++;
	}
	if (end == word || *end || errno || value < 1 || value > PERF_BYTES_MAX)
		argp_error(state, "%s is \"%s\"; it is a number of bytes from 1 to 1G, "
		           "with K, M or G behind it or not", option, word);
	return (size_t)value;
}

static long
read_number(struct argp_state *state, const char *option, const char *word,
            long least, long most)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(word, &end, 10);
	if (end == word || *end || errno || value < least || value > most)
		argp_error(state, "%s is \"%s\"; it is a number from %ld to %ld",
		           option, word, least, most);
	return value;
}

static uint64_t
read_seconds(struct argp_state *state, const char *word)
{
	char *end;
	double value = strtod(word, &end);

	if (end == word || *end || !(value >= 0.001 && value <= 3600))
		argp_error(state, "--time is \"%s\"; it is a number of seconds from "
		           "0.001 to 3600", word);
	return (uint64_t)(value * 1e9);
}

/* The variables are read by Baton's first call. */
static void
set_path(struct argp_state *state, struct perf_options *options, const char *word)
{
	static const char *const names[] = {"near",    "mpi",     "direct",
	                                    "vmwrite", "message", "native", NULL};
	bool messages = choose(state, "--path", word, names) < 2;
	const char **path = messages ? &options->message_path : &options->put_path;

	if (*path)
		argp_error(state, "--path is given twice for %s: %s and %s",
		           messages ? "messages" : "puts", *path, word);
	*path = word;
	setenv(messages ? "BATON_MESSAGE_PATH" : "BATON_WINDOW_PATH", word, 1);
}

static void
add_test(struct argp_state *state, struct perf_options *options,
         const char *word)
{
	const char *names[33] = {NULL};

	for (size_t i = 0; i < perf_tests_count; i++)
		names[i] = perf_tests[i].name;
	options->tests |= 1u << choose(state, "the test", word, names);
}

static void
parse_choice(int key, const char *word, struct argp_state *state,
             struct perf_options *o)
{
	static const char *const devices[] = {"host", "cuda", NULL};
	static const char *const transports[] = {"local", "mpi", "nccl", "near",
	                                         NULL};
	static const char *const memories[] = {"heap", "block", NULL};
	static const char *const sides[] = {"mpi", "nccl", NULL};

	if (key == 'd')
		o->device = choose(state, "--device", word, devices) == 0
		                    ? BATON_DEVICE_HOST
		                    : BATON_DEVICE_CUDA;
	else if (key == 'T')
		o->transport = (enum baton_transport)(
			BATON_TRANSPORT_LOCAL +
			choose(state, "--transport", word, transports));
	else if (key == KEY_MEMORY)
		o->memory = choose(state, "--memory", word, memories) == 0
		                    ? PERF_HEAP
		                    : PERF_BLOCK;
	else
		o->against = choose(state, "--against", word, sides) == 0
		                     ? PERF_MPI
		                     : PERF_NCCL;
}

static void
check_together(struct argp_state *state, const struct perf_options *o)
{
	if (o->bytes_min && o->bytes_max && o->bytes_min > o->bytes_max)
		argp_error(state, "--min-bytes is %zu, more than --max-bytes, which is "
		           "%zu", o->bytes_min, o->bytes_max);
	if (o->json && o->csv)
		argp_error(state, "--json and --csv are given; one is allowed");
}

static error_t
parse(int key, char *word, struct argp_state *state)
{
	struct perf_options *o = state->input;

	switch (key) {
	case 'b':
		o->bytes_min = read_bytes(state, "--min-bytes", word);
		return 0;
	case 'e':
		o->bytes_max = read_bytes(state, "--max-bytes", word);
		return 0;
	case 'f':
		o->factor = (size_t)read_number(state, "--factor", word, 2, 1024);
		return 0;
	case 'n':
		o->iterations = read_number(state, "--iterations", word, 1, 1000000000);
		return 0;
	case 'w':
		o->warmup = read_number(state, "--warmup", word, 0, 1000000000);
		return 0;
	case 't':
		o->time_ns = read_seconds(state, word);
		return 0;
	case KEY_WINDOW:
		o->depth = (size_t)read_number(state, "--window", word, 1, PERF_WINDOW_MAX);
		return 0;
	case KEY_RANKS:
		o->ranks = (int)read_number(state, "--ranks", word, 2, 64);
		return 0;
	case 'd':
	case 'T':
	case KEY_MEMORY:
	case KEY_AGAINST:
		parse_choice(key, word, state, o);
		return 0;
	case 'p':
		set_path(state, o, word);
		return 0;
	case KEY_NO_CHECK:
		o->check = false;
		return 0;
	case 'j':
		o->json = true;
		return 0;
	case KEY_CSV:
		o->csv = true;
		return 0;
	case KEY_PLOT:
		if (!*word)
			argp_error(state, "--plot takes the name of a file");
		o->plot = word;
		return 0;
	case ARGP_KEY_ARG:
		add_test(state, o, word);
		return 0;
	case ARGP_KEY_END:
		check_together(state, o);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void
perf_parse(int argc, char **argv, struct perf_options *options)
{
	const struct argp argp = {.options = argp_options,
	                          .parser = parse,
	                          .args_doc = "[TEST...]",
	                          .doc = doc};

	*options = (struct perf_options){.factor = 4,
	                                 .warmup = -1,
	                                 .depth = 64,
	                                 .check = true};
	tool_argp(&argp, argc, argv, 0, options);
	if (!options->tests)
		options->tests = (1u << perf_tests_count) - 1;
	if (!options->iterations && !options->time_ns)
		options->time_ns = 200000000;
}
