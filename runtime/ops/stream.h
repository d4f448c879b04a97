/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that a device refuses, and errors that no request observes. */
#ifndef BATONI_STREAM_H
#define BATONI_STREAM_H

#include "core.h"

/* Note the failure of an operation that no request observes.  True: it is the first one
 * since the stream was synchronized.  Any thread. */
bool batoni_stream_error_note(const struct batoni_op *op,
                              enum baton_status status);

/* The device has refused with this status: put the call before its sentence.
 * Returns the status. */
enum baton_status batoni_refuse_named(const char *call,
                                       enum baton_status status);

/* The check of a stream that a call names, of the device's table: a stream of another device does
 * not get there.  Returns as stream_check. */
enum baton_status batoni_stream_check(const struct baton_comm *comm,
                                      baton_stream stream, bool launching);

#endif
