/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int
refuse(const struct test_option *options, const char *rest, const char *program)
{
	fprintf(stderr, "usage: %s", program);
	for (; options->name; options++) {
		fprintf(stderr, " [%s", options->name);
		if (options->value)
			fprintf(stderr, " %s", options->value);
		fputc(']', stderr);
	}
	if (rest)
		fprintf(stderr, " [%s]...", rest);
	fputc('\n', stderr);
	return -1;
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
take(const struct test_option *option, const char *text)
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

		while (option->name && strcmp(option->name, argv[i]) != 0)
			option++;
		if (!option->name)
			return refuse(options, rest, argv[0]);
		if (option->flag)
			*option->flag = true;
		else if (++i == argc || !take(option, argv[i]))
			return refuse(options, rest, argv[0]);
	}
	return i == argc || rest ? i : refuse(options, rest, argv[0]);
}
