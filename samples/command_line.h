/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of a sample's command line: all are long, and most are numbers. */
#ifndef SAMPLES_COMMAND_LINE_H
#define SAMPLES_COMMAND_LINE_H

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* The value of the option that is being taken.  False: it is none, and the sample has said
 * so. */
static inline bool option_number(const char *sample, const char *name, long min,
                                 long max, long *value_p)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(optarg, &end, 10);
	if (end != optarg && *end == '\0' && errno == 0 && value >= min &&
	    value <= max) {
		*value_p = value;
		return true;
	}
	fprintf(stderr, "%s: --%s is %s, must be %ld to %ld\n", sample, name,
	        optarg, min, max);
	return false;
}

/* Call `take` for each option but 'h', which prints the help and ends the program.  False: one is
 * not understood, and the sample has said so. */
static inline bool options_parse(const char *sample, const char *help, int argc,
                                 char **argv, const struct option known[],
                                 bool (*take)(int option, void *options),
                                 void *options)
{
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			exit(EXIT_SUCCESS);
		}
		if (option == '?') {
			fprintf(stderr, "%s: not understood; --help lists the "
			        "options\n", sample);
			return false;
		}
		if (!take(option, options))
			return false;
	}
	if (optind < argc)
		fprintf(stderr, "%s: %s is no option; --help lists the options\n",
		        sample, argv[optind]);
	return optind == argc;
}

#endif
