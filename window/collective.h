/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective calls of the one-sided layer: how all ranks come to one answer.
 *
 * A call runs on the thread of the program that calls it, which takes the driver's lock
 * again and again, as destroy does, and sleeps without it.  Collective calls of one
 * rank do not overlap (a second one is refused), so what they bring, rma->parts and
 * rma->answers, belongs to the call, and to the transport while the call waits.  When the
 * communicator breaks under it the transport may go on with that memory, so it is only
 * freed with the communicator.
 *
 * A rank that is refused for its own arguments takes part all the same, with its
 * status.  An exchange for which the transport has no memory on some rank, or in which
 * different calls meet, is refused on all ranks and changes nothing on any.
 */
#ifndef BATONI_COLLECTIVE_H
#define BATONI_COLLECTIVE_H

#include "window.h"

struct batoni_collective {
	struct batoni_rma *rma;
	const char *call;
	uint64_t what; /* call and window, the same on all ranks; set by the call */
	const char *late; /* what has not happened when the time is over */
	uint64_t limit_ns;
	const void *mine; /* of the exchange under way */
	size_t bytes;
	void *all;
	enum baton_status status; /* this rank's refusal, told to the others */
	char why[200];
};

/* Groups and threads: a call that is refused so tells nobody.  OK, INVALID. */
enum baton_status batoni_check_collective(const char *call,
                                          const struct baton_comm *comm);
/* One thread of a rank at a time.  OK: end is called; INVALID; the error that broke the
 * communicator. */
enum baton_status batoni_collective_begin(struct batoni_collective *c,
                                          struct batoni_rma *rma,
                                          const char *call);
void batoni_collective_end(struct batoni_collective *c);
/* This rank's own refusal; the first one counts. */
void batoni_object(struct batoni_collective *c, enum baton_status status,
                   const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Refuse in the words of the communicator's error; returns status. */
enum baton_status batoni_refuse_broken(const struct batoni_collective *c,
                                       enum baton_status status);
/* Drive until the step, which is made as the driver, is not PENDING.  OK; NOMEM and
 * INVALID, as on all ranks; anything else: the communicator is broken. */
enum baton_status
batoni_collective_drive(struct batoni_collective *c,
                        enum baton_status (*step)(struct batoni_collective *c));
/* Bring bytes, get everybody's; all NULL: there is no memory for that here, and all ranks
 * are told NOMEM.  As drive. */
enum baton_status batoni_collect(struct batoni_collective *c, const void *mine,
                                 size_t bytes, void *all);
/* The time is over: the communicator breaks.  Returns TIMEOUT. */
enum baton_status batoni_collective_late(const struct batoni_collective *c);

#endif
