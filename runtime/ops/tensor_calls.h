/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors in the engine (tensor_calls.c). */
#ifndef BATONI_TENSOR_CALLS_H
#define BATONI_TENSOR_CALLS_H

#include "core.h"

/* Does the communicator carry lists (BATON_CAP_TENSORS)?  Any thread. */
bool batoni_tensors_served(const struct baton_comm *comm);
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
