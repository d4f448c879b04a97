/* SPDX-License-Identifier: BSD-3-Clause */
#include <argp.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <baton.h>

#include "job.h"
#include "tool.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	bool of_job; /* all ranks of a job run it together */
} commands[] = {
	{"info", info_main, true},
	{"doctor", doctor_main, true},
	{"trace", trace_main, false},
	{"perf", perf_main, true},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char doc[] =
	"Look at Baton from outside."
	"\v"
	"Commands:\n"
	"  info     what is built in, what is found here, the paths between the\n"
	"           ranks, and the environment variables\n"
	"  doctor   try what speed and safety rest on, and say what mends it\n"
	"  trace    where the time of a run went, its timeline, and why it hangs\n"
	"  perf     measure messages and puts between the ranks\n"
	"\n"
	"`baton COMMAND --help' tells of one.  Under a launcher, as in\n"
	"`mpirun -np 2 baton info', the ranks make one report, which rank 0 prints.";

struct choice {
	const struct command *command;
	int argc;
	char **argv;
};

/* "info, doctor" */
static const char *
command_names(void)
{
	static char names[128];

	names[0] = '\0';
	for (size_t i = 0; i < COMMANDS; i++) {
		size_t length = strlen(names);

		snprintf(names + length, sizeof(names) - length, "%s%s",
		         i > 0 ? ", " : "", commands[i].name);
	}
	return names;
}

static const struct command *
find_command(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	}
	return NULL;
}

static error_t
parse_choice(int key, char *argument, struct argp_state *state)
{
	struct choice *choice = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		choice->command = find_command(argument);
		if (!choice->command)
			argp_error(state, "there is no command \"%s\"; it is one of: %s",
			           argument, command_names());
		/* The rest is the command's. */
		choice->argc = state->argc - state->next + 1;
		choice->argv = state->argv + state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no command is given; it is one of: %s",
		           command_names());
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void
print_version(FILE *to, struct argp_state *state)
{
	(void)state;
	fprintf(to, "baton %s\n", baton_version());
}

/* Open MPI says how many programs, with arguments of their own, the job was started with. */
static bool
is_as_rank_0(void)
{
	const char *programs = getenv("OMPI_NUM_APP_CTX");

	return job_rank_of_launcher() > 0 && programs && strcmp(programs, "1") == 0;
}

void
tool_argp(const struct argp *argp, int argc, char **argv, unsigned flags, void *input)
{
	bool quiet = is_as_rank_0();
	int kept[2] = {-1, -1};

	/* Another exit status than 0 would have the launcher end rank 0, maybe before it has printed. */
	if (quiet)
		argp_err_exit_status = 0;
	for (int i = 0; i < 2 && quiet; i++) {
		int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

		kept[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 3);
		if (kept[i] >= 0 && nowhere >= 0)
			dup2(nowhere, i + 1);
		if (nowhere >= 0)
			close(nowhere);
	}
	argp_parse(argp, argc, argv, flags, NULL, input);
	for (int i = 0; i < 2; i++) {
		if (kept[i] < 0)
			continue;
		dup2(kept[i], i + 1);
		close(kept[i]);
	}
}

static error_t
parse_arguments(int key, char *argument, struct argp_state *state)
{
	struct tool_arguments *arguments = state->input;

	switch (key) {
	case 'j':
		arguments->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "\"%s\" is no option, and nothing else is allowed",
		           argument);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void
tool_parse(int argc, char **argv, const char *text,
           struct tool_arguments *arguments)
{
	static const struct argp_option options[] = {
		{"json", 'j', NULL, 0, "Print one object of JSON", 0},
		{0},
	};
	const struct argp argp = {.options = options,
	                          .parser = parse_arguments,
	                          .doc = text};

	*arguments = (struct tool_arguments){0};
	tool_argp(&argp, argc, argv, 0, arguments);
}

const char *
tool_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

long long
tool_number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

double
tool_real(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

void
tool_print_json(const json_t *tree)
{
	json_dumpf(tree, stdout, JSON_INDENT(2));
	putchar('\n');
}

/* A descriptor of 0 to 2 that is closed would be that of a file, memory or socket which Baton or MPI opens, and the
 * report would go there.  Nothing can be written to the one that stands for standard output. */
static void
fill_descriptors(void)
{
	for (int i = 0; i <= 2; i++) {
		if (fcntl(i, F_GETFD) < 0)
			(void)!open("/dev/null", i == 2 ? O_WRONLY : O_RDONLY);
	}
}

/* At the end of the process, also behind --help.  A command that flushes by itself has lost what it could not
 * write. */
static void
check_report(void)
{
	if (fflush(stdout) != 0)
		perror("baton: writing the report");
	else if (ferror(stdout))
		fprintf(stderr, "baton: the report could not be written\n");
	else
		return;
	_exit(TOOL_BROKEN);
}

int
main(int argc, char **argv)
{
	const struct argp argp = {.parser = parse_choice,
	                          .args_doc = "COMMAND [OPTION...]",
	                          .doc = doc};
	struct choice choice = {0};
	char name[64];

	fill_descriptors();
	atexit(check_report);
	argp_program_version_hook = print_version;
	tool_argp(&argp, argc, argv, ARGP_IN_ORDER, &choice);
	snprintf(name, sizeof(name), "baton %s", choice.command->name);
	choice.argv[0] = name;
	/* Rank 0 prints and writes the same, unless a shell or the environment has told them apart. */
	if (!choice.command->of_job && is_as_rank_0()) {
		fprintf(stderr, "%s: rank %d of a job: rank 0 reads; start it without mpirun\n",
		        name, job_rank_of_launcher());
		return 0;
	}
	return choice.command->run(choice.argc, choice.argv);
}
