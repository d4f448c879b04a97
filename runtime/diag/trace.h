/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace of a communicator's operations, in a file (trace.c). */
#ifndef BATONI_TRACE_H
#define BATONI_TRACE_H

#include "observer.h"

struct baton_comm;
struct batoni_op;

/* Make comm->trace, if BATON_TRACE asks for one.  Rank, size and setup of the communicator are known, and so is its
 * number for traces (opening.h). */
void batoni_trace_make(struct baton_comm *comm);
/* The creation has failed: remove the file. */
void batoni_trace_discard(struct baton_comm *comm);
/* The observer that writes the trace from now on; NULL: there is no trace.  The communicator's transport is known. */
const struct batoni_observer *batoni_trace_observer(struct baton_comm *comm);
/* Write the communicator's paths, which are all known by now. */
void batoni_trace_paths(struct baton_comm *comm);
/* The file's path; NULL: it keeps none. */
const char *batoni_trace_path(const struct baton_comm *comm);
/* What a trace names the operation by, whose slot its caller holds; 0: it keeps none. */
uint64_t batoni_trace_serial(const struct batoni_op *op);
/* In something that all ranks do together each has entered before any has left; this rank did both at these ticks.
 * Without a trace, and for a NULL comm, this does nothing. */
void batoni_trace_round(struct baton_comm *comm, uint64_t enter, uint64_t leave);
/* A destroy of the communicator begins; this may be repeated. */
void batoni_trace_leaves(struct baton_comm *comm);
/* It is over.  together: all ranks have left together. */
void batoni_trace_close(struct baton_comm *comm, bool together);

#endif
