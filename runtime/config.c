/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct batoni_config config = {.log_level = BATONI_LOG_WARN};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
read_log_level(void)
{
	static const char *const names[] = {"none", "error", "warning", "info",
	                                    "debug"};
	const char *value = getenv("BATON_LOG");

	if (!value || !*value)
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(value, names[i]) == 0) {
			config.log_level = (enum batoni_log_level)i;
			return;
		}
	}
	fprintf(stderr,
	        "baton: warning: BATON_LOG is \"%s\"; it takes none, error, "
	        "warning, info or debug\n",
	        value);
}

const struct batoni_config *
batoni_config(void)
{
	pthread_once(&once, read_log_level);
	return &config;
}
