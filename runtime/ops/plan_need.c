/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: what a launch needs that is bounded, beside requests.
 *
 * Entries of streams.  A device whose streams hold a bounded number of entries would refuse an
 * operation when others of the launch are on their streams.  So the recording counts what each
 * operation will put on its stream.  A plan that no stream holds is refused at its end; and a launch asks all
 * of its streams for room before it puts anything there, under the order lock, so that this
 * communicator's other calls do not come between.  (Another communicator's may, on the same
 * stream; and a path may have streams of its own that are full.)
 *
 * What is counted, on the stream of an operation.  Carried out by the engine: an item, of which a
 * group has one on each stream.  Put there by a path that calls a library: the call with the first
 * mark before it and the first behind it, once for a group, and two marks for each other member
 * (detached: those before only, since the ends are seen on streams of the path); of a plan that is one call only the first part, since such a call goes beyond the bound when it is
 * not recorded either.  Put there by a path that lends (puts): a put, if it is alone and not detached,
 * else it is the engine's.
 *
 * Memory of lists.  The lists of a launch take theirs of the communicator's store all together.
 *
 * Threads: the one that records; then they are only read.
 */
#include <stdio.h>
#include <string.h>

#include "enqueue.h"
#include "log.h"
#include "mem.h"
#include "plan.h"
#include "tensor_store.h"

#define STREAMS_FIRST 4u

static struct batoni_plan_stream *
add_stream(struct baton_plan *plan, baton_stream stream)
{
	struct batoni_plan_stream *streams = plan->streams;
	uint32_t n = plan->streams_n;

	/* A power of two, or nothing: it is full. */
	if (n == 0 || (n >= STREAMS_FIRST && (n & (n - 1)) == 0)) {
		streams = batoni_alloc(n == 0 ? STREAMS_FIRST : 2 * (size_t)n,
		                       sizeof(*streams));
		if (!streams)
			return NULL;
		if (n > 0)
			memcpy(streams, plan->streams, n * sizeof(*streams));
		batoni_free(plan->streams);
		plan->streams = streams;
	}
	streams[n] = (struct batoni_plan_stream){.stream = stream};
	plan->streams_n++;
	return &streams[n];
}

static struct batoni_plan_stream *
find_stream(struct baton_plan *plan, baton_stream stream)
{
	for (uint32_t i = plan->streams_n; i-- > 0;) {
		if (plan->streams[i].stream == stream)
			return &plan->streams[i];
	}
	return add_stream(plan, stream);
}

/* Does the open group have it on this stream already?  From now on it does. */
static bool
in_group(const struct baton_plan *plan, uint32_t *group_p)
{
	bool was = plan->recording.depth > 0 && *group_p == plan->groups;

	*group_p = plan->recording.depth > 0 ? plan->groups : 0;
	return was;
}

static void
count(const struct baton_plan *plan, struct batoni_plan_stream *on,
      const struct batoni_op *op)
{
	bool detached = op->flags & BATONI_FLAG_DETACHED;
	bool issued = op->flags & BATONI_FLAG_STREAM_ISSUED;
	uint32_t marks = detached ? 1 : 2;

	if (issued && !batoni_path_lends(batoni_path_of(op)))
		on->need.entries += in_group(plan, &on->call_of)
		                            ? marks
		                            : marks * BATONI_CALL_ENTRIES;
	else if (issued && !detached && plan->recording.depth == 0)
		on->need.puts++;
	else if (!in_group(plan, &on->item_of))
		on->need.entries += detached ? 1 : BATONI_ITEM_ENTRIES;
}

bool
batoni_plan_count(struct baton_plan *plan, const struct batoni_op *op)
{
	struct batoni_tensor_list *list = batoni_op_list(op);
	struct batoni_plan_stream *on;

	if (list)
		plan->list_units += batoni_tensor_list_units(list);
	if (!op->comm->device_ops->bounds)
		return true;
	on = find_stream(plan, op->transfer.stream);
	if (on)
		count(plan, on, op);
	return on != NULL;
}

/* What it needs on the stream to be put there. */
static struct batoni_need
need_on(const struct baton_plan *plan, uint32_t i)
{
	struct batoni_need need = plan->streams[i].need;

	if (plan->calls == 1 && need.entries > 2 * BATONI_CALL_ENTRIES)
		need.entries = 2 * BATONI_CALL_ENTRIES;
	return need;
}

enum baton_status
batoni_plan_fits(const char *call, const struct baton_plan *plan)
{
	const struct batoni_device_ops *ops = plan->comm->device_ops;
	enum baton_status status =
		batoni_lists_fit(call, plan->comm, plan->list_units);
	char why[256];

	for (uint32_t i = 0; i < plan->streams_n && status == BATON_OK; i++) {
		const struct batoni_need need = need_on(plan, i);

		status = ops->bounds->holds(&need);
		if (status == BATON_OK)
			continue;
		snprintf(why, sizeof(why), "%s", baton_last_error());
		batoni_refuse(status, "%s: a launch %s", call, why);
	}
	return status;
}

enum baton_status
batoni_plan_room(const struct baton_plan *plan)
{
	struct baton_comm *comm = plan->comm;
	enum baton_status status = BATON_OK;

	for (uint32_t i = 0; i < plan->streams_n && status == BATON_OK; i++) {
		const struct batoni_need need = need_on(plan, i);

		status = batoni_device_ask_room(
			comm->device, plan->streams[i].stream, &need);
	}
	return status;
}
