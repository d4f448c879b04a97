/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's state, and what only reads or writes that. */
#include "core.h"

#include "engine.h"

struct batoni_engine batoni_engine;
_Atomic(struct baton_comm *) batoni_comms[BATONI_COMMS_MAX];

void
batoni_tick(void)
{
	atomic_store_explicit(&batoni_engine.clock_ms,
	                      (uint32_t)(batoni_coarse_ns() / 1000000u),
	                      memory_order_relaxed);
}

void
batoni_count_host_pass(void)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_store_explicit(&e->host_passes,
	                      atomic_load_explicit(&e->host_passes,
	                                           memory_order_relaxed) +
	                              1,
	                      memory_order_relaxed);
}

bool
batoni_work_left(void)
{
	struct batoni_engine *e = &batoni_engine;

	return atomic_load(&e->inbox) || atomic_load(&e->posted) ||
	       atomic_load(&e->attention);
}

__attribute__((constructor)) static void
engine_init(void)
{
	batoni_engine.finish_tail = &batoni_engine.finish;
	batoni_engine.ready_tail = &batoni_engine.ready;
}
