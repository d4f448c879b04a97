/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups. */
#ifndef BATONI_GROUP_H
#define BATONI_GROUP_H

#include "core.h"

/* The group of this thread on comm, or NULL. */
static inline struct batoni_op *
batoni_group_open(const struct baton_comm *comm)
{
	struct batoni_op *group = batoni_thread.groups;

	while (group && group->comm != comm)
		group = group->group.outer;
	return group;
}
/* "inside a group", or "within the recording of a plan": what this thread has open on comm. */
const char *batoni_group_where(const struct baton_comm *comm);
/* Make it this thread's innermost group. */
void batoni_group_push(struct batoni_op *group);
/* A group for the launch of a plan: its members are not published before batoni_group_put.  OK,
 * AGAIN. */
enum baton_status batoni_group_open_new(const char *call,
                                        struct baton_comm *comm);
/* Put such a group on its asynchronous streams and publish it, with *first_p, which is set to NULL,
 * in front of it; under the order lock.  Not OK: nothing of it was enqueued; or *void_p: the
 * driver has it, and ends nothing of it. */
enum baton_status batoni_group_put(struct batoni_op *group,
                                   struct batoni_op **first_p, bool *void_p);
/* The requests of a void group are free when this returns. */
void batoni_group_settle(void);
/* A call inside the group was refused: void the group (the first refusal is kept, with its
 * sentence) and return status. */
enum baton_status batoni_group_refuse(const struct baton_comm *comm,
                                      enum baton_status status);
/* Say the sentence of the group's first refusal again, and return that. */
enum baton_status batoni_group_say(const char *call, const struct batoni_op *group,
                                   enum baton_status refusal);
/* The group, or the recording, is over on this thread: its sentence is not needed any more. */
void batoni_group_forget(const struct batoni_op *group);
/* Make the record a member.  OK, or the refusal (the record is returned). */
enum baton_status batoni_group_add(struct batoni_op *group,
                                   struct batoni_op *op);

#endif
