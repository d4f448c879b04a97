/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: the sentence of a refused call (kept for each thread), and log lines on
 * standard error, at the level that BATON_LOG names. */
#ifndef BATONI_LOG_H
#define BATONI_LOG_H

#include "baton.h"

enum batoni_log_level {
	BATONI_LOG_NONE,
	BATONI_LOG_ERROR,
	BATONI_LOG_WARN, /* the default */
	BATONI_LOG_INFO,
	BATONI_LOG_DEBUG
};

/* The ending of a plural: "%zu byte%s". */
static inline const char *
batoni_s(unsigned long long n)
{
	return n == 1 ? "" : "s";
}

/* Write one line, in one write, prefixed with "baton: " and the level. */
void batoni_log(enum batoni_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Keep the sentence for baton_last_error and return status. */
enum baton_status batoni_refuse(enum baton_status status, const char *format,
                                ...) __attribute__((format(printf, 2, 3)));

/* What was called has refused with this status: put the call before its sentence.  Returns the
 * status. */
enum baton_status batoni_refuse_named(const char *call,
                                      enum baton_status status);

#define BATONI_SENTENCE_BYTES 512

/* Around driving within a call that has been refused or may be: until batoni_sentence_back, to
 * which the result goes, what else is refused on this thread goes to `scratch`. */
char *batoni_sentence_aside(char scratch[BATONI_SENTENCE_BYTES]);
void batoni_sentence_back(char *kept);

/* The error that another rank tells as its reason: PEER, if it is none that there is.  Any
 * thread. */
enum baton_status batoni_error_told(int64_t number);

#endif
