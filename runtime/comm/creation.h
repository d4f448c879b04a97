/* SPDX-License-Identifier: BSD-3-Clause */
/* Creation over a bootstrap: all ways of creating a communicator end here. */
#ifndef BATONI_CREATION_H
#define BATONI_CREATION_H

#include "log.h"
#include "registry.h"

#define BATONI_WHY_BYTES 296

/* How it went on one rank, as the others are told. */
struct batoni_outcome {
	int64_t status;
	char why[BATONI_WHY_BYTES];
};

#define BATONI_COMPARED 12

/* What a rank contributes to the first exchange: its setup. */
struct batoni_proposal {
	struct batoni_outcome outcome;
	int64_t values[BATONI_COMPARED];
	int64_t stages, requests, reach, near;
	uint64_t trace; /* a random number; 0: this rank keeps no trace */
	int64_t trace_error; /* why its folder cannot be used; 0: it can, or is not asked for */
};

/* Those after it, one for each step of opening the transport. */
struct batoni_report {
	struct batoni_outcome outcome;
	alignas(8) unsigned char card[BATONI_CARD_BYTES];
};

enum batoni_creation_state {
	BATONI_CREATION_SETUPS,  /* the ranks tell each other their setups */
	BATONI_CREATION_MEETS,  /* and once more, for the clocks of traces */
	BATONI_CREATION_OPENS,  /* and how a step went */
	BATONI_CREATION_NATIVE, /* a native transport is opened over the transport */
	BATONI_CREATION_OVER
};

#define BATONI_CREATION_ROUNDS 16u

/* Of one rank.  It does not move once its bootstrap is joined. */
struct batoni_creation {
	struct batoni_bootstrap bootstrap; /* the caller joins it */
	const char *call; /* for the others' sentence, or NULL */
	/* Asked while an exchange waits: PENDING, or why it is given up, with a sentence.  NULL: there is no knowledge of
	 * the others. */
	enum baton_status (*watch)(struct batoni_creation *creation);
	enum batoni_creation_state state;
	struct batoni_comm_setup setup;
	const struct batoni_opening_ops *ops; /* of the transport over the bootstrap */
	struct batoni_opening opening;
	struct baton_comm *comm;
	union {
		struct batoni_proposal offer;
		struct batoni_report report;
	} mine;
	uint64_t begun_ns; /* the exchange that is under way; 0: none is */
	/* Of traces: when this rank entered that exchange, and what has been. */
	uint64_t entered;
	struct {
		uint64_t enter, leave;
	} rounds[BATONI_CREATION_ROUNDS];
	unsigned rounds_count, meetings;
	/* A native one's. */
	struct batoni_transport *lower;
	/* When it is over, or when this rank alone has failed. */
	enum baton_status status;
	bool ours; /* what failed was on this rank */
	char why[BATONI_SENTENCE_BYTES];
};

/* What bootstraps and transports get. */
extern const struct batoni_engine_calls batoni_engine_calls;

/* Before the bootstrap is joined.  `refused`: OK, or the setup (which may be NULL) was refused on
 * this rank with the sentence in baton_last_error; the others are told. */
void batoni_creation_begin(struct batoni_creation *creation,
                           const struct batoni_comm_setup *setup,
                           enum baton_status refused);
/* The bootstrap was not joined, or an exchange has failed, with this error and a sentence.  Returns
 * what the creation returns: it, or this rank's own refusal, which is older. */
enum baton_status batoni_creation_missed(const struct batoni_creation *creation,
                                         enum baton_status status);
/* One step, which waits for no peer; the bootstrap is joined.  PENDING, or the status in which it
 * is over; `comm` is the communicator if that is OK, and `why` the sentence if it is not. */
enum baton_status batoni_creation_step(struct batoni_creation *creation);
/* All steps of several by turns, until all are over.  Returns NULL; or the one whose error is to be
 * told: that of the rank where it has failed, or the first one. */
struct batoni_creation *
batoni_creation_run_all(struct batoni_creation creations[], int size);
/* All steps of one.  An error: batoni_refuse has said why; *comm_p is unchanged. */
enum baton_status batoni_creation_run(struct batoni_creation *creation,
                                      struct baton_comm **comm_p);

/* compare.c */
/* The values of this setup that the ranks compare. */
void batoni_setup_values(const struct batoni_comm_setup *setup,
                         int64_t values[BATONI_COMPARED]);
/* The first value that two setups differ in and ranks with all options alike may not, by name;
 * NULL: there is none. */
const char *batoni_setups_differ(const struct batoni_comm_setup *one,
                                 const struct batoni_comm_setup *other);
/* Are the values the same on all ranks?  strict: also those of options that may differ elsewhere.
 * OK; INVALID: batoni_refuse has said which value differs. */
enum baton_status batoni_proposals_compare(const struct batoni_proposal offers[],
                                           int size, bool strict);

#endif
