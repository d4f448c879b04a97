/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations in words, for sentences and dumps. */
#ifndef BATONI_DESCRIBE_H
#define BATONI_DESCRIBE_H

#include "core.h"

#define BATONI_DESCRIBE_BYTES 256

/*
 * The caller holds the record (batoni_op_hold, or because of its part in the
 * operation's life).  The fields of one whose state is NEW may still be written,
 * unless the caller does that.
 */

/* What it is: "send to peer 1, tag 3"; of a transfer that has bytes, "..., 64 bytes". */
void batoni_op_describe(const struct batoni_op *op, char *text, size_t size);
/* The same with stream, state and age: "recv from peer 1, tag 3, 64 bytes, on stream
 * 0x55..., issued, waits for the peer, 12.3 s old". */
void batoni_op_describe_fully(const struct batoni_op *op, char *text,
                              size_t size);

/* How long ago it was placed, or, before that, made. */
uint32_t batoni_op_age_ms(const struct batoni_op *op);

#endif
