/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of test programs: --name, or --name value. */
#ifndef TEST_OPTIONS_H
#define TEST_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* One of the last four is where the value goes; it is left alone when the option is not
 * given. */
struct test_option {
	const char *name;  /* with its two dashes */
	const char *value; /* what the usage line calls it; NULL for a flag */
	bool *flag;
	int *integer;
	uint64_t *number;
	const char **text;
};

/* options ends with an empty one.  Returns where the arguments begin that are no options:
 * rest is what the usage line calls them, and NULL if there may be none.  -1: the
 * arguments are wrong, and the usage line was printed.  --help prints it, too, and ends the
 * program, with status 0: so a program that starts MPI reads its options before. */
int options_read(const struct test_option *options, const char *rest, int argc,
                 char **argv);

#endif
