/* SPDX-License-Identifier: BSD-3-Clause */
/* How operations on lists of tensors end (tensor_ends.c). */
#ifndef BATONI_TENSOR_ENDS_H
#define BATONI_TENSOR_ENDS_H

#include "core.h"

/* What the core asks of an operation that has a list. */
extern const struct batoni_tensor_list_kind batoni_tensors_kind;
/* The operation ends in this status, and no thread has seen that yet. lent: the transport still has
 * the list.  The driver. */
void batoni_tensors_ended(struct batoni_op *op, enum baton_status status,
                          bool lent);
/* Is the list of an operation that ended so, and is not lent, kept for its sentence? */
static inline bool
batoni_tensors_keep(enum baton_status status)
{
	return status == BATON_ERR_MISMATCH || status == BATON_ERR_TRUNCATED ||
	       status == BATON_ERR_INVALID;
}
/* Say why the operation, or the one of a launch that failed, has ended so, if that has to do with
 * lists.  The caller holds the operation. */
bool batoni_tensors_explain(const struct batoni_op *op, char *text, size_t size);

#endif
