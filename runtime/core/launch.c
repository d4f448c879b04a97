/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launched functions, and how a stream's thread drives after one.
 *
 * When a function returns, its stream usually goes on: to a put or a signal, to a wait that
 * is met already, to the next function.  The stream's thread (the *worker*) carries this out
 * itself: it takes the driver's lock, makes passes until the device has the next function
 * for it, and runs that.  So a stream that alternates between functions and communication
 * needs no wake of another thread, as long as the gaps are short.
 *
 * A worker counts in `running` from the start of a function until it gives up: until
 * SPINS passes have brought nothing, or another thread holds the lock.  While one is
 * counted, and nothing has to be polled until a function returns
 * (batoni_functions_will_drive), the lock stays free: waiting threads sleep without
 * driving (wait.c), and no next driver is woken when the worker lets go to run the next function.
 *
 * No sleeper is left alone: it counts itself in `wanted`, then loads `driver` and `running`
 * and sleeps if either is set.  The worker leaves `running`, gives the lock up if it has
 * it, and then loads `driver` and `wanted`.  All of it is sequentially consistent: the
 * worker sees the sleeper, or the sleeper sees that no thread will drive.
 *
 * A worker drives only what the engine's thread may drive (driving.by_engine).  If only callers
 * may drive some communicator that has operations pending, the worker leaves the lock to
 * them.
 */
#include "core.h"

#include <sched.h>

#include "engine.h"
#include "life.h"
#include "forecast.h"
#include "room.h"

#define SPINS 300u      /* passes without events before the worker gives up */
#define LOCK_SPINS 100u /* tries for a lock that another thread holds */
#define YIELD_SPINS 20u /* of either, before the core is offered to others */

static bool
may_drive_all(void)
{
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->work.next) {
		if (!comm->driving.by_engine)
			return false;
	}
	return true;
}

bool
batoni_functions_will_drive(void)
{
	struct batoni_forecast forecast;

	if (!atomic_load(&batoni_engine.running) || !may_drive_all())
		return false;
	/* The operation with this deadline may have ended. */
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->work.next) {
		if (!batoni_list_empty(&comm->deadlines.list))
			return false;
	}
	forecast = batoni_forecast_now();
	return forecast.poll == BATONI_POLL_WHEN_RUNG && !forecast.parked;
}

static void
start_running(void)
{
	if (batoni_thread.running)
		return;
	batoni_thread.running = true;
	atomic_fetch_add(&batoni_engine.running, 1);
}

static void
stop_running(void)
{
	if (!batoni_thread.running)
		return;
	batoni_thread.running = false;
	atomic_fetch_sub(&batoni_engine.running, 1);
}

/* The caller has the lock.  True: the device has a function for this thread.  False: another
 * thread is to drive. */
static bool
drive(const struct batoni_device_ops *ops, struct batoni_device *device,
      baton_stream stream)
{
	struct batoni_engine *e = &batoni_engine;
	bool ends;

	for (unsigned idle = 0; idle < SPINS; idle++) {
		if (batoni_pass())
			idle = 0;
		batoni_count_host_pass();
		if (ops->in_engine->launch_waits(device, stream, &ends))
			return true;
		if (ends)
			return false;
		if (idle > YIELD_SPINS)
			sched_yield();
		if (!e->working || atomic_load(&e->wanted) >= BATONI_CLAIMANT ||
		    atomic_load(&e->stopping) || !may_drive_all())
			return false;
	}
	return false;
}

/* Workers drive when their functions have returned, so a next driver is needed only if something
 * else has to be polled. */
void
batoni_unlock_for_functions(void)
{
	struct batoni_engine *e = &batoni_engine;

	if (!batoni_functions_will_drive()) {
		batoni_unlock();
		return;
	}
	atomic_store(&e->driver, NULL);
	/* A worker that has left `running` since may have seen the lock held, and
	 * have left the rest to this thread. */
	if (batoni_work_left() || atomic_load(&e->wanted) >= BATONI_CLAIMANT ||
	    !atomic_load(&e->running) ||
	    (atomic_load(&e->deep) && batoni_room_unheard()))
		batoni_unlocked();
	if (batoni_thread.uncancellable)
		batoni_cancel_restore();
}

/* The function's operation has ended, and its communicator may be gone. */
static void
drive_on(const struct batoni_device_ops *ops, struct batoni_device *device,
         baton_stream stream)
{
	bool ends = false;

	for (unsigned spins = 0; spins < LOCK_SPINS; spins++) {
		if (ops->in_engine->launch_waits(device, stream, &ends))
			return;
		/* The worker leaves `running` before its stream is destroyed. */
		if (ends)
			break;
		if (!batoni_trylock()) {
			if (spins > YIELD_SPINS)
				sched_yield();
			else
				batoni_relax();
			continue;
		}
		if (drive(ops, device, stream)) {
			batoni_unlock_for_functions();
			return;
		}
		stop_running();
		batoni_unlock();
		return;
	}
	stop_running();
	if (!atomic_load(&batoni_engine.driver))
		batoni_unlocked();
}

/* A communicator that was left behind has been destroyed: its functions are not run.  (A
 * destroy leaves no communicator behind while one of its functions runs.) */
static bool
begin_function(struct baton_comm *comm)
{
	uint32_t running = atomic_load(&comm->functions);

	do {
		if (running == BATONI_GONE)
			return false;
	} while (!atomic_compare_exchange_weak(&comm->functions, &running,
	                                       running + 1));
	return true;
}

/* On a thread of an asynchronous device. */
static void
run_on_device(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	if (!begin_function(comm))
		return;
	if (unlikely(comm->observed))
		batoni_op_observe_event(op, BATONI_EVENT_RUNS);
	batoni_thread.engine = true;
	batoni_thread.launched = true;
	op->launch(op->transfer.buffer);
	batoni_thread.launched = false;
	atomic_fetch_sub(&comm->functions, 1);
	batoni_post(op);
}

void
batoni_reached_launch(struct batoni_stream_item *item)
{
	struct batoni_op *op =
		batoni_container_of(item, struct batoni_op, item);
	const struct batoni_device_ops *ops = op->comm->device_ops;
	struct batoni_device *device = op->comm->device;
	baton_stream stream = op->transfer.stream;
	bool drives = op->comm->in_engine && op->comm->driving.by_engine;

	if (!op->comm->in_engine) {
		stop_running();
		run_on_device(op);
		return;
	}
	if (drives)
		start_running();
	else
		stop_running();
	if (unlikely(op->comm->observed))
		batoni_op_observe_event(op, BATONI_EVENT_RUNS);
	batoni_thread.engine = true;
	batoni_thread.launched = true;
	op->launch(op->transfer.buffer);
	batoni_thread.launched = false;
	if (!drives) {
		batoni_post(op);
		return;
	}
	batoni_post_to_driver(op);
	drive_on(ops, device, stream);
}
