/* SPDX-License-Identifier: BSD-3-Clause */
/* The upcalls of paths and transports (path.h), except `done`, which is in op.c: one broke, put something off, has
 * something to move, asks about open receives, or is lost. */
#include "life.h"

#include <stdio.h>

#include "engine.h"
#include "health.h"
#include "line.h"
#include "liveness.h"
#include "sweep.h"

static struct baton_comm *
comm_of(struct batoni_upcalls *upcalls)
{
	return batoni_container_of(upcalls, struct baton_comm, upcalls);
}

static void
upcall_broken(struct batoni_upcalls *upcalls, enum baton_status fatal,
              const char *call, int code, const char *text)
{
	char why[256];

	if (call)
		snprintf(why, sizeof(why), "%s returned %d: %s", call, code,
		         text);
	else
		snprintf(why, sizeof(why), "%s", text);
	batoni_comm_break(comm_of(upcalls), fatal, why);
}

static void
upcall_deferred(struct batoni_upcalls *upcalls)
{
	struct batoni_engine *e = &batoni_engine;
	struct baton_comm *comm = comm_of(upcalls);

	if (comm->work.deferred)
		return;
	comm->work.deferred = true;
	comm->work.deferred_next = e->deferred;
	e->deferred = comm;
}

static void
upcall_moves(struct batoni_upcalls *upcalls)
{
	batoni_comm_set_busy(comm_of(upcalls));
}

static bool
upcall_may_meet(struct batoni_upcalls *upcalls, int peer, int tag)
{
	return batoni_line_may_meet(comm_of(upcalls), peer, tag);
}

static struct batoni_transfer *
upcall_receive_for(struct batoni_upcalls *upcalls, int peer, int tag)
{
	return batoni_line_receive_for(comm_of(upcalls), peer, tag);
}

static void
upcall_lost(struct batoni_upcalls *upcalls, bool exits, const char *why)
{
	struct baton_comm *comm = comm_of(upcalls);

	(void)exits;
	batoni_lock();
	batoni_place_inbox();
	batoni_comm_break(comm, BATON_ERR_ABORTED, why);
	batoni_comm_end_all_now(comm);
	batoni_comm_attend(comm);
	batoni_end_and_issue();
	batoni_say_away(comm);
	atomic_store(&comm->driving.lost, true);
	atomic_store(&comm->driving.by_any, false);
	batoni_unlock();
}

/* A call that finds `lost_lower` false has set `used` before, so either this sees that, or
 * the call is refused. */
static bool
upcall_lost_lower(struct batoni_upcalls *upcalls, const char *why)
{
	struct baton_comm *comm = comm_of(upcalls);

	atomic_store(&comm->driving.lost_lower, true);
	if (!comm->onesided || !atomic_load(&comm->onesided->used))
		return false;
	upcall_lost(upcalls, false, why);
	return true;
}

void
batoni_upcalls_init(struct baton_comm *comm)
{
	comm->upcalls = (struct batoni_upcalls){
		.done = batoni_upcall_done,
		.broken = upcall_broken,
		.deferred = upcall_deferred,
		.moves = upcall_moves,
		.may_meet = upcall_may_meet,
		.receive_for = upcall_receive_for,
		.lost = upcall_lost,
		.lost_lower = upcall_lost_lower,
	};
}
