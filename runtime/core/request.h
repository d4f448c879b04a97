/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests, as the engine's other files use them. */
#ifndef BATONI_REQUEST_H
#define BATONI_REQUEST_H

#include "core.h"

/* The record of a live handle, with its word; NULL: stale. */
struct batoni_op *batoni_request_find(baton_request request,
                                      uint64_t *word_p);
/* Make the end of a pending request, or the release of its handle, call
 * batoni_wake_waiters. */
void batoni_request_mark_waited(baton_request request);
void batoni_completion_fill(const struct batoni_op *op, uint64_t word,
                            struct baton_completion *completion);

#endif
