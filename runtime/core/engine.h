/* SPDX-License-Identifier: BSD-3-Clause */
/* Passes, and handing work to the driver; launched functions; the engine's own thread. */
#ifndef BATONI_ENGINE_H
#define BATONI_ENGINE_H

#include "core.h"

/* The communicator was taken off engine.working; the driver. */
void batoni_comm_rest(struct baton_comm *comm);
/* One bounded pass; the driver.  Returns events. */
size_t batoni_pass(void);
/* Complete the finish list and issue the ready FIFOs, without testing transports; the
 * driver. */
size_t batoni_end_and_issue(void);
/* Place what is in the inbox; the driver. */
size_t batoni_place_inbox(void);
/* Update clock_ms, from which ages are computed.  Called by a thread that has just slept,
 * and by one that makes a communicator busy.  Any thread. */
void batoni_tick(void);
/* Hand an enqueued operation to the driver. */
void batoni_inbox_push(struct batoni_op *op);
/* The same for several, linked by `next`, the first of them first, as one piece. */
void batoni_inbox_push_chain(struct batoni_op *first);
/* `reached` on a thread of a device: store and wake. */
void batoni_post(struct batoni_op *op);
/* The same, by a thread that takes the lock afterwards if it is free. */
void batoni_post_to_driver(struct batoni_op *op);
/* `attention` was set: process it here if the lock is free, else wake the driver. */
void batoni_nudge(void);
/* Is there work for a driver that no transport reports: inbox, posted, attention? */
bool batoni_work_left(void);
/* Count a pass of a thread of the program, so that the engine's thread leaves the lock alone. */
void batoni_count_host_pass(void);
/* Poll: make one pass, unless another driver already serves the communicator. */
size_t batoni_poll(const struct baton_comm *comm_or_null);
/* Is the stream without work, inbox included?  Any thread. */
enum baton_status batoni_stream_state(struct baton_comm *comm,
                                      baton_stream stream);

/* ---- launched functions, and streams' threads that drive after them (launch.c) ---- */

/* `reached` of a launched function's item: runs it, on the stream's own thread. */
void batoni_reached_launch(struct batoni_stream_item *item);
/* The driver: is there nothing to poll until a launched function returns, whose thread
 * then drives, or another thread calls? */
bool batoni_functions_will_drive(void);
/* Release the lock; if the above holds, without waking a next driver. */
void batoni_unlock_for_functions(void);

/* ---- the engine's own thread (engine_thread.c) ---- */

/* Start the engine's thread if it does not run.  OK, SYSTEM. */
enum baton_status batoni_engine_start(void);
/* Stop it for good, at the end of the process.  False: it did not stop in time. */
bool batoni_engine_stop(void);

#endif
