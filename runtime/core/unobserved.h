/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of operations that no request observes. */
#ifndef BATONI_UNOBSERVED_H
#define BATONI_UNOBSERVED_H

#include "describe.h"

/* Note the failure of an operation that no request observes.  True: it is the first one
 * since the stream was synchronized.  Any thread. */
bool batoni_stream_error_note(const struct batoni_op *op,
                              enum baton_status status);
/* The first error of the stream since it was last taken, with its operation in words; OK: none. */
enum baton_status batoni_stream_error_take(baton_stream stream,
                                           char what[static BATONI_END_BYTES]);

#endif
