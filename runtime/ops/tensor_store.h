/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for the lists of tensors that are pending (tensor_store.c). */
#ifndef BATONI_TENSOR_STORE_H
#define BATONI_TENSOR_STORE_H

#include "core.h"

/* Memory for a list of so many tensors, with room for its header; `declares`: and for its
 * declaration.  All else of the list is 0.  OK, NOMEM, AGAIN, INVALID; batoni_refuse has said
 * why.  Any thread. */
enum baton_status batoni_tensor_list_take(const char *call, struct baton_comm *comm,
                                          size_t count, bool declares,
                                          struct batoni_tensor_list **list_p);
/* The memory of a list, in units of the store. */
uint32_t batoni_tensor_list_units(struct batoni_tensor_list *list);
/* Is there memory for lists of so many units together, when no others are pending?  OK; INVALID:
 * batoni_refuse has said why.  Any thread. */
enum baton_status batoni_lists_fit(const char *call, struct baton_comm *comm,
                                   uint64_t units);
/* Give the list's memory back; the driver, or the caller of an operation that was refused. */
void batoni_tensor_list_give(struct baton_comm *comm, struct batoni_tensor_list *list);
/* The operation has ended, and the sentence that says why needs the list: it stays until the slot
 * is used again.  The driver. */
void batoni_tensor_list_keep(struct batoni_op *op, struct batoni_tensor_list *list);
/* The communicator is destroyed. */
void batoni_lists_close(struct baton_comm *comm);

#endif
