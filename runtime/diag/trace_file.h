/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a trace, as this process has it mapped. */
#ifndef BATONI_TRACE_FILE_H
#define BATONI_TRACE_FILE_H

#include "baton_trace.h"
#include "config.h"
#include "core.h"
#include "observer.h"

#define BATONI_TRACE_COUNTERS 4096u
#define BATONI_TRACE_MODULES 64u
#define BATONI_TRACE_ROUNDS 64u
/* What the driver takes of the serials at once. */
#define BATONI_TRACE_BLOCK 64u
/* So many counters of a wait for several are told. */
#define BATONI_TRACE_TERMS_MAX 16u
/* Counters that were looked up last, by a few bits of what they are of. */
#define BATONI_TRACE_RECENT 16u
/* What is moved within a call and is shorter takes one stamp. */
#define BATONI_TRACE_SHORT 4096u

/* Of the operation that has a slot of the pool now.  It is the enqueuer's until the operation is
 * handed to the driver, then the driver's. */
struct batoni_traced {
	_Atomic uint64_t serial; /* 0: it has none yet */
	uint64_t enqueued;
	const void *site;
	struct baton_trace_counter *counter; /* NULL: nothing counts it */
	bool placed; /* it was given its slot of the ring, and counted; the driver */
	bool direct; /* its call issues it, and has not returned */
	bool plain;  /* its call began to issue it, and it names its peer and tag */
};

/* The module that a call came from last, and so may the next. */
struct batoni_trace_module {
	uint64_t begin, bytes, base;
	uint16_t number; /* as in baton_trace_operation.module */
};

struct batoni_trace {
	/* Constant. */
	struct baton_trace_header *header; /* the mapping */
	size_t bytes;
	struct baton_trace_operation *ring;
	uint64_t mask; /* of a serial less 1 */
	struct baton_trace_operation *handed; /* by slot of the pool */
	struct baton_trace_counter *counters;
	struct baton_trace_module *modules;
	struct baton_trace_round *rounds;
	char path[BATONI_CONFIG_FILE_BYTES + 80];
	/* Any thread. */
	pthread_mutex_t modules_lock; /* of adding one: a leaf */
	_Atomic uint64_t stranger;    /* the page of an address that is in no module */
	/* Driver. */
	uint64_t next, taken; /* serials that it has taken: from next to the one before taken */
	uint64_t read, every; /* when the clocks were last read, and how often they are */
	uint64_t leaves;      /* when a destroy began first; 0: none has */
	struct batoni_trace_module module;
	struct baton_trace_counter *recent[BATONI_TRACE_RECENT]; /* never NULL */
	struct batoni_traced traced[];
};

/* Keeps the operations (trace.c). */
extern const struct batoni_observer batoni_trace_observes;

/* Make the file of this communicator, all of it in memory.  NULL: it cannot be, and the log says why. */
struct batoni_trace *batoni_trace_file_make(const struct baton_comm *comm);
/* The communicator is in use from here on. */
void batoni_trace_file_open(struct batoni_trace *trace,
                            const struct baton_comm *comm);
/* It never was: the file is removed. */
void batoni_trace_file_discard(struct batoni_trace *trace);
/* Read the clocks again; the driver. */
void batoni_trace_file_read_clocks(struct batoni_trace *trace);
/* The communicator is broken: keep that, once. */
void batoni_trace_file_note_fault(struct batoni_trace *trace,
                                  const struct baton_comm *comm);
/* The last word of the file, which stays. */
void batoni_trace_file_close(struct batoni_trace *trace);

/* The module that a call returns to, plus 1, and the address's offset in it; 0: none.  Any thread. */
uint16_t batoni_trace_module(struct batoni_trace *trace, const void *site,
                             uint64_t *offset_p);

#endif
