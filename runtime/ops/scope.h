/* SPDX-License-Identifier: BSD-3-Clause */
/* What a thread has open on its communicators: struct batoni_scope, in op.h (scope.c). */
#ifndef BATONI_SCOPE_H
#define BATONI_SCOPE_H

#include "core.h"

/* What this thread has open on comm, or NULL. */
static inline struct batoni_scope *
batoni_scope_of(const struct baton_comm *comm)
{
	struct batoni_scope *scope = batoni_thread.scopes;

	while (scope && scope->comm != comm)
		scope = scope->outer;
	return scope;
}
/* "inside a group", or "within the recording of a plan": that, in words. */
const char *batoni_scope_where(const struct baton_comm *comm);
/* Of one that is not open. */
static inline void
batoni_scope_init(struct batoni_scope *scope, const struct batoni_scope_kind *kind,
                  struct baton_comm *comm, uint32_t depth)
{
	scope->outer = NULL;
	scope->comm = comm;
	batoni_set(scope->kind, kind);
	batoni_set(scope->depth, depth);
	scope->refusal = BATON_OK;
}
/* From here until it is closed, operations of this thread on its communicator go there.  The thread
 * has nothing open on that. */
void batoni_scope_open(struct batoni_scope *scope);
void batoni_scope_close(struct batoni_scope *scope);
/* The same as to open it, for one that is closed before the call returns. */
static inline void
batoni_scope_push(struct batoni_scope *scope)
{
	assert(!batoni_scope_of(scope->comm));
	scope->outer = batoni_thread.scopes;
	batoni_thread.scopes = scope;
}

/* A call was refused: void what this thread has open on comm, if anything (the first refusal is kept,
 * with its sentence), and return status. */
enum baton_status batoni_scope_refuse(const struct baton_comm *comm,
                                      enum baton_status status);
/* A group within it was abandoned: it is void, as after a refusal in CANCELED. */
void batoni_scope_void(const struct batoni_scope *scope);
/* Say the sentence of its first refusal again, and return that.  The scope itself may be gone. */
enum baton_status batoni_scope_say(const char *call,
                                   const struct batoni_scope *scope,
                                   enum baton_status refusal);
/* It is over on this thread: its sentence is not needed any more. */
void batoni_scope_forget(const struct batoni_scope *scope);

#endif
