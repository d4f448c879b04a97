/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups. */
#ifndef BATONI_GROUP_H
#define BATONI_GROUP_H

#include "core.h"

/* The operation of a group that is not open.  NULL: there is none, and batoni_refuse has said so
 * (AGAIN). */
struct batoni_op *batoni_group_new(const char *call, struct baton_comm *comm);
/* Make the operation a member, which is not published.  OK, or the refusal. */
enum baton_status batoni_group_take(struct batoni_op *group,
                                    struct batoni_op *op);
/* Of a launch of a plan, whose members are not published before: put it on its asynchronous streams
 * and publish it, with *first_p, which is set to NULL, in front of it; under the order lock.  Not
 * OK: nothing of it was enqueued; or *void_p: the driver has it, and ends nothing of it. */
enum baton_status batoni_group_put(struct batoni_op *group,
                                   struct batoni_op **first_p, bool *void_p);
/* The requests of a void group are free when this returns. */
void batoni_group_settle(void);

#endif
