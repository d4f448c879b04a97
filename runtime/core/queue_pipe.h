/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue whose program is woken by the pipe of the process's bell (shm.h). */
#ifndef BATONI_QUEUE_PIPE_H
#define BATONI_QUEUE_PIPE_H

#include <stdbool.h>

/* Of a queue. */
struct batoni_watcher {
	int epoll; /* an epoll instance, which the program sleeps on */
};

/* The queue is armed: from now on a thread that rings the bell wakes its program, once.  What came before may
 * not wake it: the caller makes a pass after this, and calls disarm if it has found something.  False: another
 * queue has the pipe, or there is none. */
bool batoni_pipe_arm(struct batoni_watcher *watcher);
/* The queue is not armed any more, or need not be woken by the pipe.  Does nothing for a queue
 * that was not armed. */
void batoni_pipe_disarm(struct batoni_watcher *watcher);
/* The program is awake: read the bytes that have woken it from the pipe.  True: the pipe had
 * woken it, and no byte has come since. */
bool batoni_pipe_answer(struct batoni_watcher *watcher);
/* Has a program been woken by the pipe that has not answered yet?  Any thread. */
bool batoni_pipe_was_used(void);
/* The queue goes. */
void batoni_pipe_stop(struct batoni_watcher *watcher);

#endif
