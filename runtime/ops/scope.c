/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a thread has open, a scope for each communicator (op.h): the list, its end with the thread, and
 * refusals.  What is done in a scope is its kind's: group.c, plan.c, plan_launch.c.
 *
 * Refusals.  The first one voids the scope (its `refusal`).  Its sentence is kept in memory of
 * its own, on a list of the thread, until the end of the group or plan, which returns that status and
 * so says that sentence, whatever the thread was refused since.
 *
 * Threads: all of it is the thread's own.
 */
#include "scope.h"

#include <pthread.h>
#include <string.h>

#include "log.h"
#include "mem.h"

struct batoni_refusal {
	struct batoni_refusal *next;
	const struct batoni_scope *scope;
	char why[];
};

/* ---- the list ---- */

static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static bool exit_watched;

/* The destructor of exit_key: runs when a thread that has opened scopes exits. */
static void
abandon_all(void *arg)
{
	(void)arg;
	while (batoni_may_call() && batoni_thread.scopes) {
		struct batoni_scope *scope = batoni_thread.scopes;

		batoni_thread.scopes = scope->outer;
		scope->kind->abandon(scope);
	}
}

static void
make_exit_key(void)
{
	exit_watched = pthread_key_create(&exit_key, abandon_all) == 0;
}

/* Make the exit of this thread abandon what it leaves open. */
static void
watch_exit(void)
{
	pthread_once(&exit_once, make_exit_key);
	if (exit_watched)
		pthread_setspecific(exit_key, &exit_key);
}

void
batoni_scope_open(struct batoni_scope *scope)
{
	if (!batoni_thread.scopes)
		watch_exit();
	batoni_scope_push(scope);
}

void
batoni_scope_close(struct batoni_scope *scope)
{
	struct batoni_scope **link = &batoni_thread.scopes;

	while (*link != scope)
		link = &(*link)->outer;
	*link = scope->outer;
}

const char *
batoni_scope_where(const struct baton_comm *comm)
{
	return batoni_scope_of(comm)->kind->where;
}

/* ---- refusals ---- */

/* Without memory for it the end says less. */
static void
keep_sentence(const struct batoni_scope *scope)
{
	size_t bytes = strlen(baton_last_error()) + 1;
	struct batoni_refusal *refusal =
		batoni_alloc(1, sizeof(*refusal) + bytes);

	if (!refusal)
		return;
	refusal->scope = scope;
	memcpy(refusal->why, baton_last_error(), bytes);
	refusal->next = batoni_thread.refusals;
	batoni_thread.refusals = refusal;
}

enum baton_status
batoni_scope_refuse(const struct baton_comm *comm, enum baton_status status)
{
	struct batoni_scope *scope = comm ? batoni_scope_of(comm) : NULL;

	if (scope && scope->refusal == BATON_OK) {
		scope->refusal = status;
		keep_sentence(scope);
	}
	return status;
}

/* No call was refused: what the thread was told last stays. */
void
batoni_scope_void(const struct batoni_scope *scope)
{
	char scratch[BATONI_SENTENCE_BYTES];
	char *kept = batoni_sentence_aside(scratch);

	batoni_scope_refuse(scope->comm,
	                    batoni_refuse(BATON_ERR_CANCELED,
	                                  "a group within it was abandoned "
	                                  "(baton_group_abandon)"));
	batoni_sentence_back(kept);
}

static struct batoni_refusal **
find_sentence(const struct batoni_scope *scope)
{
	struct batoni_refusal **link = &batoni_thread.refusals;

	while (*link && (*link)->scope != scope)
		link = &(*link)->next;
	return link;
}

enum baton_status
batoni_scope_say(const char *call, const struct batoni_scope *scope,
                 enum baton_status refusal)
{
	const struct batoni_refusal *kept = *find_sentence(scope);

	if (kept)
		return batoni_refuse(refusal, "%s", kept->why);
	return batoni_refuse(refusal, "%s: an earlier call in it was refused (%s)",
	                     call, baton_status_name(refusal));
}

void
batoni_scope_forget(const struct batoni_scope *scope)
{
	struct batoni_refusal **link = find_sentence(scope);
	struct batoni_refusal *kept = *link;

	if (!kept)
		return;
	*link = kept->next;
	batoni_free(kept);
}
