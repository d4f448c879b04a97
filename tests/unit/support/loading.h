/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of loaders share: CUDA's driver and NCCL, each loaded once in a process. */
#ifndef LOADING_H
#define LOADING_H

#include "baton.h"

enum { LOADING_THREADS = 8 };

/* A loader: sets *api_p if it is OK. */
typedef enum baton_status (*loading_fn)(const void **api_p);

/* The sentence with which it refuses; a second call refuses as the first. */
const char *loading_refused(loading_fn load);
/* All threads load at once, and get the same, which is returned. */
const void *loading_by_threads(loading_fn load);
/* A thread that is cancelled before it calls. */
const void *loading_cancelled(loading_fn load);
void assert_says(const char *sentence, const char *part);

#endif
