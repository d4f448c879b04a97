/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment variables, read and validated once per process.
 *
 *   BATON_LOG           none, error, warning (the default), info, debug
 *   BATON_WINDOW_PATH   direct, vmwrite, message: the only path of puts and
 *                       signals; not set: the best available path to each peer
 *   BATON_DUMP_ON       SIGUSR2: that signal dumps every communicator
 *   BATON_CUDA_LIBRARY  the file to load as the CUDA driver's library, instead of
 *                       libcuda.so.1
 */
#ifndef BATONI_CONFIG_H
#define BATONI_CONFIG_H

#include "log.h"

struct batoni_config {
	enum batoni_log_level log_level;
	bool dump_on_signal;
	unsigned window_path; /* a BATON_WINDOW_PATH_* bit; 0: not set */
	char cuda_library[4096]; /* "": not set */
};

/* Any thread. */
const struct batoni_config *batoni_config(void);

#endif
