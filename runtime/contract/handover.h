/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handing a file descriptor on to other processes of this node, for descriptors that
 * cannot be opened again as /proc/<pid>/fd/<fd>: an open there makes a new file of a
 * device, not another descriptor of the same one.
 *
 * This file knows nothing about what the descriptor refers to.
 */
#ifndef BATONI_HANDOVER_H
#define BATONI_HANDOVER_H

#include <assert.h>

#include "baton.h"

/* One descriptor that is given, at the process that gives it. */
struct batoni_handover;

/* How another process of the node finds it: plain bytes that can be sent.  Only processes
 * that the descriptor is for may get them: they are the permission to fetch it.  Valid until
 * the giver closes the handover. */
struct batoni_handover_name {
	unsigned char node[16]; /* the boot id and the pid namespace */
	int32_t pid, fd;        /* in the giver's process */
	uint64_t device, inode; /* what the descriptor is open on */
	uint64_t giver;         /* in the name of its process's socket; 0: there is none */
	unsigned char secret[16];
};

static_assert(sizeof(struct batoni_handover_name) == 64, "it has no padding");

/* Give this descriptor, which stays the caller's and open until close.  Any thread.  OK;
 * NOMEM, SYSTEM (batoni_refuse was called). */
enum baton_status batoni_handover_open(int fd,
                                       struct batoni_handover **handover_p,
                                       struct batoni_handover_name *name_p);
/* NULL is allowed.  Returns when no answer is being sent.  Closing the last handover of the process
 * also stops the thread that sends answers, which never waits for another process. */
void batoni_handover_close(struct batoni_handover *handover);

/* Get a descriptor of this process's own.  pidfd: of the giver's process; -1: none is known, or the giver
 * may have closed its descriptor, whose number another file of the same inode may have: then the secret
 * alone counts.  Any
 * thread; blocks until until_ns (batoni_real_ns) at most.  OK: the caller closes *fd_p; PEER:
 * the process has ended; UNSUPPORTED: neither way works, or the giver has closed; TIMEOUT: it
 * does not answer; NOMEM, SYSTEM.  Unless OK, batoni_refuse was called. */
enum baton_status batoni_handover_fetch(const struct batoni_handover_name *name,
                                        int pidfd, uint64_t until_ns, int *fd_p);

#endif
