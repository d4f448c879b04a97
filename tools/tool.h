/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command `baton`: a subcommand is a function, a row of the table in main.c, a page in
 * docs/man, and words of baton.bash.
 *
 * A subcommand makes its report as a tree of JSON, and prints the tree as it is (--json), or as text for people.
 * Under a launcher every rank runs it; ranks send their part to rank 0, which prints (job.h).
 */
#ifndef BATON_TOOL_H
#define BATON_TOOL_H

#include <argp.h>
#include <stdbool.h>

#include <jansson.h>

/* Exit statuses beside 0; bad arguments are argp's, EX_USAGE (64). */
enum {
	TOOL_SLOW = 1,  /* it works, and could be faster */
	TOOL_BROKEN = 2 /* something does not work */
};

/* argv[0] is "baton NAME".  Return the exit status of the process. */
int info_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
int trace_main(int argc, char **argv);
int perf_main(int argc, char **argv);

/* As argp_parse, which ends the process at bad arguments and behind --help.  Where all ranks of a job have the same
 * arguments, rank 0 alone prints. */
void tool_argp(const struct argp *argp, int argc, char **argv, unsigned flags,
               void *input);

/* The arguments of a subcommand that takes --json alone.  Bad ones end the process. */
struct tool_arguments {
	bool json;
};
void tool_parse(int argc, char **argv, const char *text,
                struct tool_arguments *arguments);

/* The text of a member of an object, or "". */
const char *tool_text(const json_t *object, const char *key);
/* The integer of a member, or 0. */
long long tool_number(const json_t *object, const char *key);
/* The number of a member, whole or not, or 0. */
double tool_real(const json_t *object, const char *key);

/* Print the tree, and a line's end. */
void tool_print_json(const json_t *tree);

#endif
