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
/* How many serials the driver takes at once. */
#define BATONI_TRACE_BLOCK 64u
/* Of a wait for several counters the trace has so many. */
#define BATONI_TRACE_TERMS_MAX 16u
/* A cache of the counters that were looked up last, by a few bits of what they count. */
#define BATONI_TRACE_RECENT 16u
/* A shorter transfer that is moved within its call takes one stamp. */
#define BATONI_TRACE_SHORT 4096u

/* What the trace keeps of the operation that has a slot of the pool now.  It is the enqueuer's until the
 * operation is handed to the driver, then the driver's. */
struct batoni_traced {
	_Atomic uint64_t serial; /* 0: it has none yet */
	uint64_t enqueued;
	const void *site;
	struct baton_trace_counter *counter; /* NULL: no counter counts it */
	bool placed; /* it has got its slot of the ring, and was counted; the driver */
	bool direct; /* its call issues it, and has not returned */
	bool plain;  /* its call began to issue it, and it names its peer and tag */
};

/* The module that the last call came from, where the next may come from too. */
struct batoni_trace_module {
	uint64_t begin, bytes, base;
	uint16_t number; /* as in baton_trace_operation.module */
};

struct batoni_trace {
	/* Constant. */
	struct baton_trace_header *header; /* the mapping */
	size_t bytes;
	struct baton_trace_operation *ring;
	uint64_t mask; /* for a serial less 1: its slot in the ring */
	struct baton_trace_operation *handed; /* by slot of the pool */
	struct baton_trace_counter *counters;
	struct baton_trace_module *modules;
	struct baton_trace_round *rounds;
	char path[BATONI_CONFIG_FILE_BYTES + 80];
	/* Any thread. */
	pthread_mutex_t modules_lock; /* held while one is added; a leaf */
	_Atomic uint64_t stranger;    /* the page of an address that is in no module */
	/* Driver. */
	uint64_t next, taken; /* the serials that the driver has taken: from next to taken - 1 */
	uint64_t read, every; /* when the clocks were last read, and after how many ticks they are again */
	uint64_t leaves;      /* when the first destroy began; 0: none has */
	struct batoni_trace_module module;
	struct baton_trace_counter *recent[BATONI_TRACE_RECENT]; /* never NULL */
	struct batoni_traced traced[];
};

/* Writes what happens to operations (trace.c). */
extern const struct batoni_observer batoni_trace_observes;

/* Make the file of this communicator, all of it in memory.  NULL: it cannot be, and the log says why. */
struct batoni_trace *batoni_trace_file_make(const struct baton_comm *comm);
/* The communicator is in use from here on. */
void batoni_trace_file_open(struct batoni_trace *trace,
                            const struct baton_comm *comm);
/* The communicator never was in use: remove the file. */
void batoni_trace_file_discard(struct batoni_trace *trace);
/* Read the clocks again; the driver. */
void batoni_trace_file_read_clocks(struct batoni_trace *trace);
/* If the communicator is broken, write that, once. */
void batoni_trace_file_note_fault(struct batoni_trace *trace,
                                  const struct baton_comm *comm);
/* Write the end, and unmap the file, which stays. */
void batoni_trace_file_close(struct batoni_trace *trace);

/* The module that a call returns to, plus 1, and the address's offset in it; 0: none.  Any thread. */
uint16_t batoni_trace_module(struct batoni_trace *trace, const void *site,
                             uint64_t *offset_p);

#endif
