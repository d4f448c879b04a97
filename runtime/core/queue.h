/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues, as operations use them. */
#ifndef BATONI_QUEUE_H
#define BATONI_QUEUE_H

#include "core.h"

/* Reserve an entry for an operation of comm.  OK, AGAIN, INVALID. */
enum baton_status batoni_queue_reserve(struct baton_queue *queue,
                                       const struct baton_comm *comm);
void batoni_queue_unreserve(struct baton_queue *queue);
/* The operation has ended; the driver. */
void batoni_queue_deliver(struct baton_queue *queue, struct batoni_op *op);

#endif
