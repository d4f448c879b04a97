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

static void
read_window_path(void)
{
	static const char *const names[] = {"direct", "vmwrite", "message"};
	static const unsigned paths[] = {BATON_WINDOW_PATH_DIRECT,
	                                 BATON_WINDOW_PATH_VMWRITE,
	                                 BATON_WINDOW_PATH_MESSAGE};
	const char *value = getenv("BATON_WINDOW_PATH");

	if (!value || !*value)
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(value, names[i]) == 0) {
			config.window_path = paths[i];
			return;
		}
	}
	fprintf(stderr,
	        "baton: warning: BATON_WINDOW_PATH is \"%s\"; it takes direct, "
	        "vmwrite or message\n",
	        value);
}

static void
read_dump_on(void)
{
	const char *value = getenv("BATON_DUMP_ON");

	if (!value || !*value)
		return;
	config.dump_on_signal = strcmp(value, "SIGUSR2") == 0;
	if (!config.dump_on_signal)
		fprintf(stderr,
		        "baton: warning: BATON_DUMP_ON is \"%s\"; it takes "
		        "SIGUSR2\n",
		        value);
}

static void
read_cuda_library(void)
{
	const char *value = getenv("BATON_CUDA_LIBRARY");

	if (!value)
		return;
	if (strlen(value) < sizeof(config.cuda_library))
		strcpy(config.cuda_library, value);
	else
		fprintf(stderr,
		        "baton: warning: BATON_CUDA_LIBRARY has %zu characters; it "
		        "takes %zu at most\n",
		        strlen(value), sizeof(config.cuda_library) - 1);
}

static void
read_environment(void)
{
	read_cuda_library();
	read_dump_on();
	read_log_level();
	read_window_path();
}

const struct batoni_config *
batoni_config(void)
{
	pthread_once(&once, read_environment);
	return &config;
}
