/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
print_usage(FILE *to, const struct test_option *options, const char *rest,
            const char *program)
{
	fprintf(to, "usage: %s", program);
	for (; options->name; options++) {
		fprintf(to, " [%s", options->name);
		if (options->value)
			fprintf(to, " %s", options->value);
		fputc(']', to);
	}
	if (rest)
		fprintf(to, " [%s]...", rest);
	fputc('\n', to);
}

static int
refuse(const struct test_option *options, const char *rest, const char *program)
{
	print_usage(stderr, options, rest, program);
	return -1;
}

static bool
is_help(const char *argument)
{
	return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

/* Digits, all of it. */
static bool
read_number(const char *text, uint64_t most, uint64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 &&
	       *number <= most;
}

static bool
take_option(const struct test_option *option, const char *text)
{
	uint64_t number;

	if (option->text)
		*option->text = text;
	if (option->number)
		return read_number(text, UINT64_MAX, option->number);
	if (option->integer) {
		if (!read_number(text, INT_MAX, &number))
			return false;
		*option->integer = (int)number;
	}
	return true;
}

int
options_read(const struct test_option *options, const char *rest, int argc,
             char **argv)
{
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		const struct test_option *option = options;

		if (is_help(argv[i])) {
			print_usage(stdout, options, rest, argv[0]);
			exit(0);
		}
		while (option->name && strcmp(option->name, argv[i]) != 0)
			option++;
		if (!option->name)
			return refuse(options, rest, argv[0]);
		if (option->flag)
			*option->flag = true;
		else if (++i == argc || !take_option(option, argv[i]))
			return refuse(options, rest, argv[0]);
	}
	return i == argc || rest ? i : refuse(options, rest, argv[0]);
}
