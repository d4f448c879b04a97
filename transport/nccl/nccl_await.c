/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wait for NCCL's thread, which puts the work of a call on its streams.
 *
 * NCCL starts a thread for each group of a non-blocking communicator, and the call waits until it
 * has launched, with the lock of the device.  That takes some 10 us, so the thread asks again and
 * again for SPIN_NS before it backs off: a sleep is never shorter than the timer slack (50 us, unless
 * the program has set another), and everything else of the device would wait for it.  Where
 * there is one processor, the yield between two questions gives it to NCCL's thread.
 *
 * Sleeps are for what takes long, as a launch behind a full stream.  They have no slack, which is
 * the thread's own and is put back.
 */
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "clock.h"
#include "nccl_transport.h"

#define SPIN_NS ((uint64_t)100000)

static void
back_off(void)
{
	const struct timespec time = {.tv_nsec = 20000};
	int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);

	if (slack > 0)
		prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	nanosleep(&time, NULL);
	if (slack > 0)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0, 0, 0);
}

ncclResult_t
batoni_nccl_await(struct batoni_nccl *nccl)
{
	uint64_t begun = batoni_real_ns(), now;
	struct batoni_nccl_lane *lane;
	ncclResult_t state;

	for (;;) {
		state = batoni_nccl_state(nccl, true, &lane);
		now = batoni_real_ns();
		if (state != BATONI_NCCL_IN_PROGRESS ||
		    atomic_load(&nccl->aborting) ||
		    now - begun > nccl->patience_ns)
			return state;
		if (now - begun < SPIN_NS)
			sched_yield();
		else
			back_off();
	}
}
