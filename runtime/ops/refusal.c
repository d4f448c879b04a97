/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Refusals.  The first one voids the group (group.refusal).  Its sentence is kept in memory of
 * its own, on a list of the thread, until the end of the group or plan, which returns that status and
 * so says that sentence, whatever the thread was refused since.
 */
#include "group.h"

#include <string.h>

#include "log.h"
#include "mem.h"

struct batoni_refusal {
	struct batoni_refusal *next;
	const struct batoni_op *group;
	char why[];
};

/* Without memory for it the end says less. */
static void
keep_sentence(const struct batoni_op *group)
{
	size_t bytes = strlen(baton_last_error()) + 1;
	struct batoni_refusal *refusal =
		batoni_alloc(1, sizeof(*refusal) + bytes);

	if (!refusal)
		return;
	refusal->group = group;
	memcpy(refusal->why, baton_last_error(), bytes);
	refusal->next = batoni_thread.refusals;
	batoni_thread.refusals = refusal;
}

enum baton_status
batoni_group_refuse(const struct baton_comm *comm, enum baton_status status)
{
	struct batoni_op *group = batoni_thread.groups && comm
	                                  ? batoni_group_open(comm)
	                                  : NULL;

	if (group && group->group.refusal == BATON_OK) {
		group->group.refusal = status;
		keep_sentence(group);
	}
	return status;
}

static struct batoni_refusal **
find_sentence(const struct batoni_op *group)
{
	struct batoni_refusal **link = &batoni_thread.refusals;

	while (*link && (*link)->group != group)
		link = &(*link)->next;
	return link;
}

enum baton_status
batoni_group_say(const char *call, const struct batoni_op *group,
                 enum baton_status refusal)
{
	const struct batoni_refusal *kept = *find_sentence(group);

	if (kept)
		return batoni_refuse(refusal, "%s", kept->why);
	return batoni_refuse(refusal, "%s: an earlier call in it was refused (%s)",
	                     call, baton_status_name(refusal));
}

void
batoni_group_forget(const struct batoni_op *group)
{
	struct batoni_refusal **link = find_sentence(group);
	struct batoni_refusal *kept = *link;

	if (!kept)
		return;
	*link = kept->next;
	batoni_free(kept);
}
