/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that die, devices that are sick; the driver, unless said. */
#ifndef BATONI_LIVENESS_H
#define BATONI_LIVENESS_H

#include "core.h"

/* Liveness check: end the operations that wait for a peer whose process has ended.  Does
 * nothing if the last check was a moment ago.  The driver, within a pass.  Returns
 * events. */
size_t batoni_check_peers(void);

/* Of a call that waits for the other ranks: destroy, or a collective call of the one-sided layer.  It
 * begins with the call's name and the time. */
struct batoni_roll_call {
	const char *call; /* the call with which the sentence begins; NULL: destroy */
	uint64_t called_ns; /* batoni_real_ns */
	unsigned tries;     /* since then */
	bool missing;       /* the process of some rank had ended at the last check */
};

/* Is the process of a peer gone, or the rank away?  A system call.  Any thread. */
bool batoni_peer_is_gone(const struct batoni_peer *peer);

/* Is one of these ranks gone or away?  Says which, in words.  Makes system calls.  Any thread. */
bool batoni_tell_gone(const struct baton_comm *comm, const int ranks[], int n,
                      char *text, size_t size);

/* This rank makes no more progress: tell that to the ranks that share memory with it. */
void batoni_say_away(const struct baton_comm *comm);

/* Break the communicator if the process of a rank has ended, and had at the last check of this
 * call.  Does nothing if that was a moment ago.  The driver. */
void batoni_check_ranks(struct baton_comm *comm, struct batoni_roll_call *roll,
                        uint64_t now_ns);

/* An operation is about to end in PEER, and no thread has seen that yet.  Where a rank's end is that of the
 * communicator (ends_with_a_rank), and some rank is gone: break it, before the transport tells.  The
 * driver. */
void batoni_check_lost(struct baton_comm *comm);
/* Before pending operations end because a rank has gone: receive what it and others had published until
 * then.  The driver. */
void batoni_take_in(struct baton_comm *comm);

/* A probe has found nothing: checks cover the communicator for a second more.  The driver. */
void batoni_check_for_probe(struct baton_comm *comm);
/* How many polls of a probe show whether a message has come: several while a peer has gone that is not silent yet,
 * since the tests before the polls count towards its silence.  The driver. */
unsigned batoni_probe_polls(const struct baton_comm *comm);
/* Checks cover the communicator no longer.  The driver. */
void batoni_check_no_probe(struct baton_comm *comm);
/* Does no more come of this peer (-1: of any other rank)?  All that they had sent is at the transport.  The
 * driver. */
bool batoni_is_silent(const struct baton_comm *comm, int peer);

/* Make the next pass call it, for callers whose passes are far apart.  The driver. */
static inline void
batoni_check_peers_soon(void)
{
	batoni_engine.passes = UINT32_MAX - 1;
}

#endif
