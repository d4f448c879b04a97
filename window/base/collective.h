/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective calls of the one-sided layer: how all ranks get the same result.
 *
 * A call runs on the program's thread, which repeatedly takes the driver's lock, as destroy
 * does, and sleeps without it.  Collective calls of one rank do not overlap (a second one is
 * refused).  So rma->parts and rma->answers belong to the call, and to the transport while
 * the call waits.  When the communicator breaks meanwhile, the transport may still use that
 * memory, so it is freed only with the communicator.
 *
 * A rank that is refused for its own arguments takes part nevertheless, with its
 * status.  An exchange for which the transport has no memory on some rank, or in which
 * different calls meet, is refused on all ranks and changes nothing on any.
 */
#ifndef BATONI_COLLECTIVE_H
#define BATONI_COLLECTIVE_H

#include "liveness.h"
#include "rma.h"

struct batoni_collective {
	struct batoni_rma *rma;
	const char *call;
	uint64_t what; /* call and window, the same on all ranks; set by the call */
	struct batoni_roll_call roll;
	enum baton_status (*step)(struct batoni_collective *c); /* that is driven */
	bool told; /* all ranks get the status of the last step */
	const char *late; /* what has not happened by then, for the text of a TIMEOUT */
	const char *unlike; /* how the ranks' calls differ, for that of an INVALID */
	uint64_t limit_ns;
	uint64_t trials_until_ns; /* paths.c; 0: no copy was tried yet */
	const void *mine; /* this rank's bytes of the exchange under way */
	size_t bytes;
	void *all;
	enum baton_status status; /* this rank's refusal, sent to the others */
	char why[200];
};

/* Refuse a call inside a group or from a thread that may not make it; the other ranks are
 * not told.  OK, INVALID. */
enum baton_status batoni_check_collective(const char *call,
                                          const struct baton_comm *comm);
/* One thread of a rank at a time.  OK: the caller must call end; INVALID; the error that
 * broke the communicator. */
enum baton_status batoni_collective_begin(struct batoni_collective *c,
                                          struct batoni_rma *rma,
                                          const char *call);
void batoni_collective_end(struct batoni_collective *c);
/* Record this rank's own refusal; the first one counts. */
void batoni_object(struct batoni_collective *c, enum baton_status status,
                   const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Refuse in the words of the communicator's error; returns status. */
enum baton_status batoni_refuse_broken(const struct batoni_collective *c,
                                       enum baton_status status);
/* Repeat the step with the driver's lock held until it is not PENDING.  OK; NOMEM, INVALID:
 * the same on all ranks; anything else: the communicator is broken. */
enum baton_status
batoni_collective_drive(struct batoni_collective *c,
                        enum baton_status (*step)(struct batoni_collective *c));
/* An exchange: send this rank's bytes, get those of all ranks.  all NULL: this rank has no
 * memory for them, and all ranks get NOMEM.  Returns as drive does. */
enum baton_status batoni_collect(struct batoni_collective *c, const void *mine,
                                 size_t bytes, void *all);
/* The time limit has passed: break the communicator.  Returns TIMEOUT. */
enum baton_status batoni_collective_late(const struct batoni_collective *c);

#endif
