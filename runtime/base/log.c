/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config.h"

#define LINE_MAX_BYTES BATONI_SENTENCE_BYTES

/* One per thread: allocated by its first refusal, freed when the thread exits. */
static _Thread_local char *last_error
	__attribute__((tls_model("initial-exec")));
static pthread_key_t last_error_key;
static pthread_once_t last_error_once = PTHREAD_ONCE_INIT;
static bool last_error_key_made;

/* The destructor of last_error_key.  A destructor that runs later may have a call
 * refused; that call allocates a new buffer. */
static void
free_last_error(void *buffer)
{
	last_error = NULL;
	free(buffer);
}

static void
make_key(void)
{
	last_error_key_made =
		pthread_key_create(&last_error_key, free_last_error) == 0;
}

/* This thread's buffer; NULL: no memory. */
static char *
last_error_buffer(void)
{
	if (last_error)
		return last_error;
	pthread_once(&last_error_once, make_key);
	last_error = calloc(1, LINE_MAX_BYTES);
	if (last_error && last_error_key_made)
		pthread_setspecific(last_error_key, last_error);
	return last_error;
}

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
	/* One write, so that lines of several ranks do not interleave.  A raw system
	 * call, since write() is a cancellation point.  There is nowhere to report a
	 * failed write. */
	syscall(SYS_write, STDERR_FILENO, line, used);
}

enum baton_status
batoni_refuse(enum baton_status status, const char *format, ...)
{
	va_list arguments;

	if (!last_error_buffer())
		return status;
	va_start(arguments, format);
	vsnprintf(last_error, LINE_MAX_BYTES, format, arguments);
	va_end(arguments);
	return status;
}

enum baton_status
batoni_refuse_named(const char *call, enum baton_status status)
{
	char why[BATONI_SENTENCE_BYTES - 64];

	snprintf(why, sizeof(why), "%s", baton_last_error());
	return batoni_refuse(status, "%s: %s", call, why);
}

char *
batoni_sentence_aside(char scratch[BATONI_SENTENCE_BYTES])
{
	char *kept = last_error;

	scratch[0] = '\0';
	last_error = scratch;
	return kept;
}

void
batoni_sentence_back(char *kept)
{
	last_error = kept;
}

const char *
baton_last_error(void)
{
	return last_error ? last_error : "";
}
