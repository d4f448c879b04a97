/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

#define LINE_MAX_BYTES 512

static _Thread_local char last_error[LINE_MAX_BYTES];

void
batoni_log(enum batoni_log_level level, const char *format, ...)
{
	static const char *const names[] = {"", "error", "warning", "info",
	                                    "debug"};
	char line[LINE_MAX_BYTES];
	va_list arguments;
	size_t used;
	int n;

	if (level > batoni_config()->log_level)
		return;
	n = snprintf(line, sizeof(line), "baton: %s: ", names[level]);
	used = (size_t)n;
	va_start(arguments, format);
	n = vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
	va_end(arguments);
	if (n > 0)
		used = strlen(line);
	line[used++] = '\n';
	/* One write, so that lines of several ranks do not mix.  A log that
	 * cannot be written has nowhere to complain. */
	if (write(STDERR_FILENO, line, used) < 0)
		return;
}

enum baton_status
batoni_refuse(enum baton_status status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(last_error, sizeof(last_error), format, arguments);
	va_end(arguments);
	return status;
}

const char *
baton_last_error(void)
{
	return last_error;
}
