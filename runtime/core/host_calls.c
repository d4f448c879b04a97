/* SPDX-License-Identifier: BSD-3-Clause */
/* The callbacks of paths and transports, except `done`, which is in op.c: one broke, put something off, has
 * something to move, or is lost. */
#include "life.h"

#include <stdio.h>

#include "engine.h"
#include "health.h"
#include "line.h"
#include "liveness.h"
#include "sweep.h"

static struct baton_comm *
comm_of(struct batoni_host *host)
{
	return batoni_container_of(host, struct baton_comm, host);
}

static void
host_broken(struct batoni_host *host, enum baton_status fatal,
            const char *call, int code, const char *text)
{
	char why[256];

	if (call)
		snprintf(why, sizeof(why), "%s returned %d: %s", call, code,
		         text);
	else
		snprintf(why, sizeof(why), "%s", text);
	batoni_comm_break(comm_of(host), fatal, why);
}

static void
host_deferred(struct batoni_host *host)
{
	struct batoni_engine *e = &batoni_engine;
	struct baton_comm *comm = comm_of(host);

	if (comm->work.deferred)
		return;
	comm->work.deferred = true;
	comm->work.deferred_next = e->deferred;
	e->deferred = comm;
}

static void
host_moves(struct batoni_host *host)
{
	batoni_comm_set_busy(comm_of(host));
}

static bool
host_may_meet(struct batoni_host *host, int peer, int tag)
{
	return batoni_line_may_meet(comm_of(host), peer, tag);
}

static struct batoni_transfer *
host_claim(struct batoni_host *host, int peer, int tag)
{
	return batoni_line_claim(comm_of(host), peer, tag);
}

static void
host_lost(struct batoni_host *host, bool exits, const char *why)
{
	struct baton_comm *comm = comm_of(host);

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

/* A call that finds `lost_below` false has set `used` before, so either this sees that, or
 * the call is refused. */
static bool
host_lost_below(struct batoni_host *host, const char *why)
{
	struct baton_comm *comm = comm_of(host);

	atomic_store(&comm->driving.lost_below, true);
	if (!comm->onesided || !atomic_load(&comm->onesided->used))
		return false;
	host_lost(host, false, why);
	return true;
}

void
batoni_host_init(struct baton_comm *comm)
{
	comm->host = (struct batoni_host){
		.done = batoni_host_done,
		.broken = host_broken,
		.deferred = host_deferred,
		.moves = host_moves,
		.may_meet = host_may_meet,
		.claim = host_claim,
		.lost = host_lost,
		.lost_below = host_lost_below,
	};
}
