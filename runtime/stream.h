/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors that no request observes. */
#ifndef BATONI_STREAM_H
#define BATONI_STREAM_H

#include "core.h"

/* Note the failure of an operation that no request observes.  True: it is the first one
 * since the stream was synchronized.  Any thread. */
bool batoni_stream_error_note(const struct batoni_op *op,
                              enum baton_status status);

#endif
