/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups. */
#ifndef BATONI_GROUP_H
#define BATONI_GROUP_H

#include "core.h"

/* The group of this thread on comm, or NULL. */
struct batoni_op *batoni_group_open(const struct baton_comm *comm);
/* A call inside the group was refused: void the group (the first refusal is kept) and
 * return status. */
enum baton_status batoni_group_refuse(const struct baton_comm *comm,
                                      enum baton_status status);
/* Make the record a member.  OK, or the refusal (the record is returned). */
enum baton_status batoni_group_add(struct batoni_op *group,
                                   struct batoni_op *op);
/* These four: the driver. */
void batoni_group_place(struct batoni_op *group);
void batoni_group_reached(struct batoni_op *group, struct batoni_op *carrier);
void batoni_group_finish(struct batoni_op *group);
void batoni_group_member_ended(struct batoni_op *group);

#endif
