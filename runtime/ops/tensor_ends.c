/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on lists of tensors in the engine: when they may be issued, and how they end.
 *
 * The engine gives the list back when it lets go of the operation: at its end, or later if it was
 * lent.  One that ended in MISMATCH, TRUNCATED or INVALID is kept, for the sentence of
 * baton_request_error, until its slot is used again.
 *
 * The driver; batoni_tensors_explain any thread that holds the operation.
 */
#include "tensor_ends.h"

#include <stdio.h>

#include "kinds.h"
#include "tensor_store.h"

static bool
may_issue(const struct batoni_op *op)
{
	const struct batoni_tensor_list *list = batoni_op_list(op);

	return !list->input_signal || *list->input_signal;
}

void
batoni_tensors_ended(struct batoni_op *op, enum baton_status status, bool lent)
{
	struct batoni_tensor_list *list = batoni_op_list(op);

	if (status == BATON_OK) {
		if (op->kind == BATONI_KIND_RECV)
			batoni_tensor_list_deliver(list);
		if (list->output_signal)
			*list->output_signal = true;
	}
	if (lent)
		return;
	if (batoni_tensors_keep(status))
		batoni_tensor_list_keep(op, list);
	else
		batoni_tensor_list_give(op->comm, list);
}

static void
give_list(struct batoni_op *op)
{
	batoni_tensor_list_give(op->comm, batoni_op_list(op));
}

const struct batoni_tensor_list_kind batoni_tensors_kind = {
	.may_issue = may_issue,
	.ended = batoni_tensors_ended,
	.give = give_list,
};

/* The receive has no list, and has ended in MISMATCH, for which its path has no words: has it
 * met a list? */
static bool
has_met(const struct batoni_op *op)
{
	return op->kind == BATONI_KIND_PLAN
	               ? op->flags & BATONI_FLAG_MET_LIST
	               : batoni_path_of(op)->ops->lists;
}

bool
batoni_tensors_explain(const struct batoni_op *op, char *text, size_t size)
{
	/* Of a launch of a plan: that of the operation that failed. */
	const struct batoni_tensor_list *list = batoni_transfer_list(&op->transfer);

	if (list && op->status == BATON_ERR_INVALID) {
		snprintf(text, size, "its input_signal was false");
		return true;
	}
	if (list && (op->status == BATON_ERR_MISMATCH ||
	             op->status == BATON_ERR_TRUNCATED))
		return batoni_tensor_list_explain(list, text, size);
	if (list || op->status != BATON_ERR_MISMATCH || !has_met(op))
		return false;
	snprintf(text, size,
	         "a list of tensors came, which baton_recv_tensors receives, and "
	         "baton_recv_message_tensors if a probe has found it");
	return true;
}
