/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that are made from another one: baton_comm_split and baton_comm_dup.
 *
 *   1. An exchange over the parent, as those of windows (base/collective.h): each rank says its color and
 *      key, and whether its call was refused, in which case all ranks are refused.
 *   2. Each finds the ranks of its color, in the order of their keys and ranks.
 *   3. Where the native library of the parent cannot join them (transport.h, deriving), a second
 *      exchange: the first rank of each color has made a rendezvous, a board where all ranks are of one
 *      process, else a unique id.
 *   4. The ranks of a color join their bootstrap and create their communicator (creation.h), beside the
 *      other colors.  The parent has no more part in it, but other collective calls of this rank are
 *      refused until the end.
 *
 * A rank that dies in step 4 is known to the others as a rank of the parent: they watch its process and end in PEER.
 * Where MPI then still has an operation of the creation, what MPI uses is leaked on purpose (bootstrap.h, keeps).  If
 * that is MPI_Comm_idup or MPI_Comm_create_group on the parent, the parent breaks: MPI matches its later ones wrongly (Open MPI 4.1 makes a duplicate by
 * several reductions of the parent, each when its progress gets there), and it leaves its communicator to MPI.
 *
 * A rank whose exchange fails as the parent breaks cannot know whether the others have got through it,
 * and go on without it.  So they wait for it with a limit in step 4, where the bootstrap has one, and a
 * rendezvous that it has made takes it as gone.
 *
 * What the transport writes in an exchange stays until the parent goes (base/collective.h).
 *
 * The thread that calls; one collective call of a rank at a time.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective.h"
#include "comm.h"
#include "creation.h"
#include "health.h"
#include "launcher.h"
#include "liveness.h"
#include "log.h"
#include "mem.h"
#include "registry.h"
#include "window.h"

/* The `what` of an exchange: those of windows are smaller numbers. */
#define WHAT_SPLIT (UINT64_C(1) << 62)
#define WHAT_DUP (WHAT_SPLIT | 1)

/* How long the others wait for a rank, where the parent has no time limit. */
#define PATIENCE_NS (UINT64_C(300) * 1000000000)

/* What a rank tells the others of itself. */
struct batoni_split_intent {
	int32_t color, key;
	int64_t status; /* its refusal, or OK */
	char why[160];
};

/* What the first rank of a color has made.  Other ranks make nothing. */
struct batoni_split_rendezvous {
	int64_t status;
	union {
		struct batoni_board *board;
		struct baton_unique_id id;
	};
};

/* A creation over a library of the parent's.  `kept`: of those that the library uses for good. */
struct making {
	struct batoni_creation creation; /* must be first */
	const struct split *s;
	uint64_t checked_ns;
	bool missing; /* a rank of the color was gone then */
	struct making *kept;
};

struct split {
	struct batoni_collective c;
	struct baton_comm *parent;
	struct batoni_comm_setup setup; /* of the new one */
	/* The ranks of this color, by the parent's numbers; this rank's number among them. */
	int *ranks;
	int size, rank;
	struct making *making; /* NULL: they meet without one */
};

#define CHECK_NS UINT64_C(250000000)

static _Atomic(struct making *) kept;

/* ---- the setup ---- */

/* Take over the parent's setup as it was before its ranks had agreed on it, on the same device. */
static void
inherit(const struct baton_comm *parent, struct batoni_comm_setup *setup)
{
	*setup = parent->setup;
	batoni_comm_setup_on(setup, parent->device_ops);
	setup->direct = setup->apart = setup->near = setup->near_only = false;
	setup->message_max = 0;
	setup->requests_most = setup->requests_max;
	setup->device_config.host_rank = batoni_launcher_host_rank();
	if (parent->device->number >= 0)
		setup->device_config.cuda_device = parent->device->number;
}

static void
make_setup(struct split *s, const struct baton_comm_options *options,
           struct baton_comm **comm_p)
{
	enum baton_status status;

	if (!comm_p)
		batoni_object(&s->c, BATON_ERR_INVALID, "comm_p is NULL");
	if (!options) {
		inherit(s->parent, &s->setup);
	} else {
		status = batoni_comm_setup(options, &s->setup);
		if (status != BATON_OK)
			batoni_object(&s->c, status, "%s", baton_last_error());
	}
	s->setup.splits = true;
}

/* ---- the ranks of a color ---- */

/* Refuse for the reason of some rank, which has told it to all ranks. */
static enum baton_status
refuse_told(const struct split *s, int rank, int64_t told, const char *why,
            size_t most)
{
	enum baton_status status = batoni_error_told(told);

	if (rank == s->parent->rank)
		return batoni_refuse(status, "%s: %.*s", s->c.call, (int)most, why);
	return batoni_refuse(status, "%s: rank %d was refused: %.*s", s->c.call,
	                     rank, (int)most, why);
}

static enum baton_status
tell_intent(struct split *s, int color, int key)
{
	struct batoni_split_intent mine = {.color = color, .key = key};
	struct batoni_rma *rma = s->c.rma;
	enum baton_status status;
	bool able;

	s->ranks = batoni_alloc((size_t)rma->size, sizeof(*s->ranks));
	if (s->ranks && s->parent->opened->ops->deriving)
		s->making = batoni_alloc(1, sizeof(*s->making));
	/* NULL: the exchange fails on all ranks. */
	if (!rma->intents)
		rma->intents = batoni_alloc((size_t)rma->size, sizeof(mine));
	able = s->ranks && (s->making || !s->parent->opened->ops->deriving);
	mine.status = s->c.status;
	snprintf(mine.why, sizeof(mine.why), "%.*s", (int)sizeof(mine.why) - 1,
	         s->c.why);
	status = batoni_collect(&s->c, &mine, sizeof(mine),
	                        able ? rma->intents : NULL);
	for (int i = 0; i < rma->size && status == BATON_OK; i++) {
		const struct batoni_split_intent *intent = &rma->intents[i];

		if (intent->status != BATON_OK)
			status = refuse_told(s, i, intent->status, intent->why,
			                     sizeof(intent->why) - 1);
	}
	return status;
}

/* The order by key, then by the parent's rank, of ranks of one color. */
static bool
comes_before(const struct batoni_split_intent *intents, int one, int other)
{
	if (intents[one].key != intents[other].key)
		return intents[one].key < intents[other].key;
	return one < other;
}

/* Sort: sift the entry at `at` down the heap of the first n. */
static void
sift(const struct batoni_split_intent *intents, int ranks[], int at, int n)
{
	for (int child; (child = 2 * at + 1) < n; at = child) {
		int moved = ranks[at];

		if (child + 1 < n &&
		    comes_before(intents, ranks[child], ranks[child + 1]))
			child++;
		if (!comes_before(intents, moved, ranks[child]))
			return;
		ranks[at] = ranks[child];
		ranks[child] = moved;
	}
}

static void
find_members(struct split *s)
{
	const struct batoni_split_intent *intents = s->c.rma->intents;
	int mine = s->parent->rank;

	for (int i = 0; i < s->parent->size; i++) {
		if (intents[i].color == intents[mine].color)
			s->ranks[s->size++] = i;
	}
	for (int at = s->size / 2; at-- > 0;)
		sift(intents, s->ranks, at, s->size);
	for (int n = s->size; n-- > 1;) {
		int last = s->ranks[n];

		s->ranks[n] = s->ranks[0];
		s->ranks[0] = last;
		sift(intents, s->ranks, 0, n);
	}
	while (s->ranks[s->rank] != mine)
		s->rank++;
}

/* ---- where they meet ---- */

static bool
meets_on_board(const struct split *s)
{
	return s->parent->bootstrap == BATONI_BOOTSTRAP_THREADS;
}

static enum baton_status
make_rendezvous(const struct split *s, struct batoni_split_rendezvous *rendezvous)
{
	enum baton_status status =
		meets_on_board(s)
			? batoni_threads_layer()->open(s->size, &rendezvous->board)
			: baton_unique_id_create(&rendezvous->id);

	if (status == BATON_ERR_NOMEM)
		return batoni_refuse(status, "out of memory");
	return status;
}

/* The exchange has failed.  If all ranks know that, no rank joins the rendezvous.  Otherwise this
 * rank does not join, and tells that to the ranks that may have joined. */
static void
discard_rendezvous(const struct split *s, const struct batoni_split_rendezvous *rendezvous)
{
	struct batoni_bootstrap endpoint;

	if (!meets_on_board(s)) {
		batoni_comm_forget_id(&rendezvous->id);
		return;
	}
	for (int rank = 0; rank < s->size; rank++) {
		if (rank != s->rank && !s->c.told)
			continue;
		batoni_threads_layer()->join(rendezvous->board, rank, &endpoint);
		endpoint.ops->close(&endpoint);
	}
}

/* The first rank of the color makes the rendezvous, and all ranks of the parent tell what they have made. */
static enum baton_status
tell_rendezvous(struct split *s, bool meets)
{
	struct batoni_split_rendezvous mine = {.status = BATON_OK};
	struct batoni_rma *rma = s->c.rma;
	enum baton_status status;
	char why[200] = "it could not make a rendezvous";
	int first = meets ? s->ranks[0] : -1;

	if (first == rma->rank) {
		mine.status = make_rendezvous(s, &mine);
		if (mine.status != BATON_OK)
			snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1,
			         baton_last_error());
	}
	if (!rma->rendezvous)
		rma->rendezvous = batoni_alloc((size_t)rma->size, sizeof(mine));
	status = batoni_collect(&s->c, &mine, sizeof(mine), rma->rendezvous);
	if (status != BATON_OK) {
		if (first == rma->rank && mine.status == BATON_OK)
			discard_rendezvous(s, &mine);
		return status;
	}
	if (first < 0 || rma->rendezvous[first].status == BATON_OK)
		return BATON_OK;
	return refuse_told(s, first, rma->rendezvous[first].status, why,
	                   sizeof(why) - 1);
}

/* ---- the new communicator ---- */

static void
limit(const struct split *s, struct batoni_bootstrap *bootstrap)
{
	bootstrap->patience_ns = s->parent->timeout_ns
	                                 ? (uint64_t)s->parent->timeout_ns
	                                 : PATIENCE_NS;
}

/* What a rank had told before it died may still come: the second check that misses one ends it. */
static enum baton_status
watch(struct batoni_creation *creation)
{
	struct making *making = (void *)creation;
	const struct split *s = making->s;
	uint64_t now = batoni_real_ns();
	bool again = making->missing;
	char what[200];

	if (now - making->checked_ns < CHECK_NS)
		return BATON_PENDING;
	making->checked_ns = now;
	making->missing = batoni_tell_gone(s->parent, s->ranks, s->size, what,
	                                   sizeof(what));
	if (!again || !making->missing)
		return BATON_PENDING;
	return batoni_refuse(BATON_ERR_PEER, "%s: %s", s->c.call, what);
}

static void
keep_making(struct making *making)
{
	batoni_mem_keep(1);
	making->s = NULL;
	making->kept = atomic_load(&kept);
	while (!atomic_compare_exchange_weak(&kept, &making->kept, making))
		;
}

static void
break_parent(const struct split *s, enum baton_status status)
{
	char why[BATONI_SENTENCE_BYTES];

	snprintf(why, sizeof(why), "%s", baton_last_error());
	batoni_lock();
	batoni_comm_break(s->parent, status, why);
	batoni_unlock();
	batoni_refuse(status, "%s", why);
}

/* By the native library of the parent. */
static enum baton_status
derive(struct split *s, struct baton_comm **comm_p)
{
	struct batoni_transport *opened = s->parent->opened;
	struct batoni_creation *creation = &s->making->creation;
	enum baton_status status;

	batoni_creation_begin(creation, &s->setup, BATON_OK);
	creation->call = s->c.call;
	creation->watch = watch;
	s->making->s = s;
	status = opened->ops->deriving->derive(opened, &batoni_engine_calls,
	                                       s->ranks, s->size, s->rank,
	                                       &creation->bootstrap);
	if (status != BATON_OK)
		return status;
	limit(s, &creation->bootstrap);
	status = batoni_creation_run(creation, comm_p);
	if (creation->bootstrap.stands)
		break_parent(s, status);
	if (creation->bootstrap.keeps) {
		keep_making(s->making);
		s->making = NULL;
	}
	return status;
}

static enum baton_status
create(struct split *s, struct baton_comm **comm_p)
{
	const struct batoni_split_rendezvous *rendezvous;
	struct batoni_creation creation;

	if (s->making)
		return derive(s, comm_p);
	rendezvous = &s->c.rma->rendezvous[s->ranks[0]];
	if (!meets_on_board(s))
		return batoni_comm_create_by_id(s->size, s->rank,
		                                &rendezvous->id, &s->setup,
		                                comm_p);
	batoni_creation_begin(&creation, &s->setup, BATON_OK);
	creation.call = s->c.call;
	batoni_threads_layer()->join(rendezvous->board, s->rank,
	                             &creation.bootstrap);
	limit(s, &creation.bootstrap);
	return batoni_creation_run(&creation, comm_p);
}

/* The part of the call that all ranks of the parent make.  Anything but OK: all are refused, or
 * the parent has broken. */
static enum baton_status
agree(struct split *s, int color, int key)
{
	bool meets = color >= 0;
	enum baton_status status = tell_intent(s, color, key);

	if (status != BATON_OK)
		return status;
	if (meets)
		find_members(s);
	return s->parent->opened->ops->deriving ? BATON_OK : tell_rendezvous(s, meets);
}

/* ---- the calls ---- */

static enum baton_status
check_split(const char *call, struct baton_comm *comm)
{
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm(call, comm);
	if (!comm->onesided || !comm->opened ||
	    !batoni_hosts_of(comm->transport)->ops->exchanging)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: the ranks of the %s transport cannot "
		                     "tell each other who is in the new "
		                     "communicator (BATON_CAP_SIGNALS is off)",
		                     call, comm->transport_ops->name);
	atomic_store(&comm->onesided->used, true);
	if (atomic_load(&comm->driving.lost_lower))
		return batoni_refuse_lost(call);
	return batoni_check_collective(call, comm);
}

static enum baton_status
split(const char *call, uint64_t what, struct baton_comm *comm, int color,
      int key, const struct baton_comm_options *options,
      struct baton_comm **comm_p)
{
	struct split s = {.parent = comm};
	struct baton_comm *made = NULL;
	enum baton_status status = check_split(call, comm);

	if (status != BATON_OK)
		return status;
	status = batoni_collective_begin(&s.c, batoni_rma_of(comm), call);
	if (status != BATON_OK)
		return status;
	s.c.what = what;
	s.c.unlike = "not all ranks make this call";
	make_setup(&s, options, comm_p);
	status = agree(&s, color, key);
	if (status == BATON_OK && color >= 0)
		status = create(&s, &made);
	batoni_collective_end(&s.c);
	if (status == BATON_OK)
		*comm_p = made;
	batoni_free(s.making);
	batoni_free(s.ranks);
	return status;
}

enum baton_status
baton_comm_split(struct baton_comm *comm, int color, int key,
                 const struct baton_comm_options *options,
                 struct baton_comm **comm_p)
{
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_split");
	return split("baton_comm_split", WHAT_SPLIT, comm,
	             color < 0 ? BATON_COLOR_NONE : color, key, options, comm_p);
}

enum baton_status
baton_comm_dup(struct baton_comm *comm, const struct baton_comm_options *options,
               struct baton_comm **comm_p)
{
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_dup");
	return split("baton_comm_dup", WHAT_DUP, comm, 0, 0, options, comm_p);
}
