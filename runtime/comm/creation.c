/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The creation of a communicator, on one rank, over any bootstrap.
 *
 *   SETUPS --> (MEETS) --> OPENS --> ... --> OPENS --> (NATIVE) --> OVER
 *
 * SETUPS: the ranks exchange their setups; all compare them (compare.c), and take what follows from them.  MEETS: where all
 * keep traces (diag/trace.c), some exchanges that tell how far their clocks are apart.  Then
 * each prepares its communicator, and makes the first step of opening its transport.  OPENS: they
 * exchange how the step went, and the cards that it has written; then comes the next step, until
 * the transport is open.  NATIVE: where the setup asks for a native transport, that is opened over
 * it.  At last the communicator starts, which cannot fail.
 *
 * A rank that fails in SETUPS or OPENS takes part in the next exchange with its error.  So all fail
 * there, with the same status: that of the lowest rank that has failed, and with its
 * sentence.  From a native transport's steps on, that transport tells the others.
 *
 * No step waits for a peer: one thread can create all ranks of a process by turns.  The bootstrap
 * is called with the driver lock held, because MPI below MPI_THREAD_MULTIPLE needs that; other
 * threads drive between two steps.  An exchange has the time that the bootstrap gives it.
 *
 * The thread that creates; no locks.
 */
#include "creation.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "clock.h"
#include "comm.h"
#include "config.h"
#include "core.h"
#include "engine.h"
#include "tables.h"
#include "ticks.h"
#include "trace.h"
#include "wake.h"

/* How many exchanges are made for the clocks of traces. */
#define MEETINGS 8u

static_assert(sizeof(struct batoni_proposal) <= BATONI_EXCHANGE_MAX, "an exchange has it");
static_assert(sizeof(struct batoni_report) <= BATONI_EXCHANGE_MAX, "an exchange has it");

/* ---- how it goes on this rank ---- */

/* This rank has failed: `status`, and the sentence in baton_last_error. */
static void
note_failure(struct batoni_creation *creation, enum baton_status status)
{
	creation->status = status;
	creation->ours = true;
	snprintf(creation->why, sizeof(creation->why), "%s", baton_last_error());
}

/* Fill in what the others are told of this rank. */
static void
report(const struct batoni_creation *creation, struct batoni_outcome *outcome)
{
	memset(outcome, 0, sizeof(*outcome));
	outcome->status = creation->status;
	if (creation->status != BATON_OK)
		snprintf(outcome->why, sizeof(outcome->why), "%.*s",
		         (int)sizeof(outcome->why) - 1, creation->why);
}

/* Has this rank failed with the same sentence, of which the others have as much as there is room
 * for? */
static bool
has_failed_alike(const struct batoni_creation *creation,
                 const struct batoni_outcome *outcome)
{
	return creation->status == outcome->status &&
	       strncmp(creation->why, outcome->why, sizeof(outcome->why) - 1) ==
	               0;
}

/* The sentence for a rank that has failed: here, or on another rank. */
static enum baton_status
refuse_failed_rank(const struct batoni_creation *creation, int rank,
                   const struct batoni_outcome *outcome)
{
	enum baton_status status = batoni_error_told(outcome->status);
	const int most = (int)sizeof(outcome->why) - 1;

	if (rank == creation->bootstrap.rank ||
	    has_failed_alike(creation, outcome))
		return batoni_refuse(status, "%s", creation->why);
	if (creation->call)
		return batoni_refuse(status, "%s: rank %d has failed: %.*s",
		                     creation->call, rank, most, outcome->why);
	return batoni_refuse(status,
	                     "rank %d could not create its end of the "
	                     "communicator: %.*s",
	                     rank, most, outcome->why);
}

/* The lowest rank that has failed is what all are told. */
static enum baton_status
find_failed(struct batoni_creation *creation, const void *all, size_t stride)
{
	for (int rank = 0; rank < creation->bootstrap.size; rank++) {
		const struct batoni_outcome *outcome =
			(const void *)((const char *)all + (size_t)rank * stride);

		if (outcome->status == BATON_OK)
			continue;
		creation->ours = rank == creation->bootstrap.rank;
		return refuse_failed_rank(creation, rank, outcome);
	}
	return BATON_OK;
}

/* It is over, with an error and a sentence. */
static enum baton_status
give_up_creation(struct batoni_creation *creation, enum baton_status status)
{
	struct batoni_bootstrap *bootstrap = &creation->bootstrap;

	creation->status = status;
	creation->state = BATONI_CREATION_OVER;
	snprintf(creation->why, sizeof(creation->why), "%s", baton_last_error());
	if (creation->opening.own)
		creation->ops->give_up(&creation->opening);
	batoni_lock();
	bootstrap->ops->close(bootstrap);
	batoni_unlock();
	if (creation->comm)
		batoni_comm_discard(creation->comm);
	creation->comm = NULL;
	return status;
}

/* What the bootstrap knows of it says more. */
static enum baton_status
say_broken(struct batoni_creation *creation, enum baton_status status)
{
	struct batoni_bootstrap *bootstrap = &creation->bootstrap;
	const struct batoni_breaking_ops *breaking = bootstrap->ops->breaking;
	const char *why = breaking ? breaking->why(bootstrap) : "";

	return *why ? batoni_refuse(status, "rank %d: the creation has failed: %s",
	                            bootstrap->rank, why)
	            : status;
}

/* ---- exchanges ---- */

/* PENDING, or TIMEOUT: the others have been waited for too long. */
static enum baton_status
check_patience(const struct batoni_creation *creation)
{
	const struct batoni_bootstrap *bootstrap = &creation->bootstrap;

	if (bootstrap->patience_ns == 0 ||
	    batoni_real_ns() - creation->begun_ns < bootstrap->patience_ns)
		return BATON_PENDING;
	return batoni_refuse(BATON_ERR_TIMEOUT,
	                     "rank %d: the other ranks came, but one of them has "
	                     "not gone on for %llu ms",
	                     bootstrap->rank,
	                     (unsigned long long)(bootstrap->patience_ns /
	                                          1000000));
}

/* None has left it before all had entered. */
static void
note_round(struct batoni_creation *creation)
{
	unsigned n = creation->rounds_count;

	if (!creation->entered || n == BATONI_CREATION_ROUNDS)
		return;
	/* A stamp of before would make the bound wrong. */
	batoni_ticks_pass();
	creation->rounds[n].enter = creation->entered;
	creation->rounds[n].leave = batoni_ticks();
	creation->rounds_count++;
}

static enum baton_status
exchange(struct batoni_creation *creation, size_t bytes, const void **all_p)
{
	struct batoni_bootstrap *bootstrap = &creation->bootstrap;
	enum baton_status status;

	if (creation->begun_ns == 0) {
		creation->begun_ns = batoni_real_ns();
		creation->entered = *batoni_config()->trace ? batoni_ticks() : 0;
	}
	batoni_lock();
	status = bootstrap->ops->exchange(bootstrap, &creation->mine, bytes,
	                                  all_p);
	batoni_unlock();
	if (status == BATON_PENDING) {
		status = check_patience(creation);
		if (status == BATON_PENDING && creation->watch)
			status = creation->watch(creation);
	} else if (status != BATON_OK) {
		status = say_broken(creation, status);
	}
	if (status == BATON_PENDING)
		return status;
	creation->begun_ns = 0;
	if (status == BATON_OK)
		note_round(creation);
	return status == BATON_OK ? status
	                          : batoni_creation_missed(creation, status);
}

/* ---- the setups ---- */

static void
make_offer(struct batoni_creation *creation)
{
	struct batoni_proposal *offer = &creation->mine.offer;
	struct batoni_comm_setup *setup = &creation->setup;

	memset(offer, 0, sizeof(*offer));
	report(creation, &offer->outcome);
	if (creation->status != BATON_OK)
		return;
	batoni_setup_values(setup, offer->values);
	offer->stages = setup->stages;
	offer->requests = setup->requests_max;
	offer->near = setup->near;
	offer->trace = setup->trace_id;
	offer->trace_error = setup->trace_error;
	batoni_lock();
	offer->reach = creation->ops->reach(setup->device_ops);
	batoni_unlock();
}

/* May this rank's setup be carried out over the bootstrap?  OK; UNSUPPORTED, with a sentence.  (The ranks of a
 * split may all be of one process, also where those of its parent are near each other.) */
static enum baton_status
check_setup(const struct batoni_creation *creation, struct batoni_comm_setup *setup)
{
	enum baton_status status =
		creation->ops->check(&creation->bootstrap, setup);

	if (status != BATON_OK || !batoni_setup_is_native(setup) || setup->near ||
	    setup->splits || batoni_config()->message_path != BATONI_MESSAGE_PATH_NEAR)
		return status;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "BATON_MESSAGE_PATH is near: the ranks are threads of "
	                     "one process, between which %s carries the messages; "
	                     "unset BATON_MESSAGE_PATH, or use another transport",
	                     batoni_native_layer()->constant);
}

/* This rank's part of the communicator's number for traces. */
static void
number_trace(struct batoni_comm_setup *setup)
{
	const char *folder = batoni_config()->trace;
	char within[BATONI_CONFIG_FILE_BYTES + 2];

	setup->trace_parent = setup->trace_id;
	setup->trace_id = 0;
	setup->trace_error = 0;
	if (!*folder)
		return;
	/* A file is no folder, whatever may be done with it. */
	snprintf(within, sizeof(within), "%s/.", folder);
	if (access(within, W_OK | X_OK) != 0) {
		setup->trace_error = errno;
		return;
	}
	batoni_ticks_open();
	if (getrandom(&setup->trace_id, sizeof(setup->trace_id), 0) < 0 ||
	    setup->trace_id == 0)
		setup->trace_id = 1;
}

/* A folder that is not there often is so for all ranks: the first of them says it. */
static void
tell_untraced(const struct batoni_comm_setup *setup,
              const struct batoni_proposal offers[], int self)
{
	int first = setup->size, count = 0;

	for (int rank = setup->size - 1; rank >= 0; rank--) {
		if (offers[rank].trace_error == 0)
			continue;
		first = rank;
		count++;
	}
	if (first == self)
		batoni_log(BATONI_LOG_WARN,
		           "rank %d: BATON_TRACE: %s: %s; %d of %d ranks keep no "
		           "trace of this communicator (it takes a directory that "
		           "is there and writable, best in /dev/shm)",
		           self, batoni_config()->trace,
		           strerror(setup->trace_error), count, setup->size);
}

/* The number, of which each rank that keeps a trace has brought a part. */
static void
join_traces(struct batoni_comm_setup *setup, const struct batoni_proposal offers[],
            int self)
{
	uint64_t number = 0;

	tell_untraced(setup, offers, self);
	setup->traced = true;
	for (int rank = 0; rank < setup->size; rank++) {
		setup->traced &= offers[rank].trace != 0;
		number = (number ^ offers[rank].trace) * UINT64_C(0x9e3779b97f4a7c15);
	}
	if (setup->trace_id)
		setup->trace_id = number ? number : 1;
}

/* The bootstrap is joined: what this rank brings. */
static void
begin_setups(struct batoni_creation *creation)
{
	const struct batoni_bootstrap *bootstrap = &creation->bootstrap;
	struct batoni_comm_setup *setup = &creation->setup;
	int *host_rank = &setup->device_config.host_rank;
	enum baton_status status;

	creation->ops = batoni_opening_of(bootstrap->kind);
	assert(!batoni_table_missing(&batoni_bootstrap_table, bootstrap->ops));
	assert(!batoni_table_missing(&batoni_opening_table, creation->ops));
	setup->size = bootstrap->size;
	/* The processes of this node are taken to have as many ranks each. */
	*host_rank = *host_rank >= 0
	                     ? *host_rank * bootstrap->within + bootstrap->before
	                     : bootstrap->rank;
	number_trace(setup);
	if (creation->status == BATON_OK) {
		status = check_setup(creation, setup);
		if (status != BATON_OK)
			note_failure(creation, status);
	}
	make_offer(creation);
}

/* What follows from all setups. */
static enum baton_status
conclude(struct batoni_creation *creation, const struct batoni_proposal offers[])
{
	struct batoni_accord accord = {.unable = -1, .forced = -1};
	struct batoni_comm_setup *setup = &creation->setup;

	join_traces(setup, offers, creation->bootstrap.rank);
	for (int rank = creation->bootstrap.size - 1; rank >= 0; rank--) {
		const struct batoni_proposal *offer = &offers[rank];

		accord.stages |= offer->stages != 0;
		setup->near &= offer->near != 0;
		if (offer->reach == BATONI_REACH_STAGES)
			accord.unable = rank;
		if (offer->reach == BATONI_REACH_FORCED)
			accord.forced = rank;
		if (offer->requests > setup->requests_most)
			setup->requests_most = (uint32_t)offer->requests;
	}
	/* A native transport reaches the memory of its device; puts by message do not, and that there
	 * are any only registering a window finds. */
	if (batoni_setup_is_native(setup))
		accord.stages = setup->onesided;
	return creation->ops->agree(&accord, setup);
}

static enum baton_status
judge_setups(struct batoni_creation *creation, const struct batoni_proposal offers[])
{
	enum baton_status status = find_failed(creation, offers, sizeof(*offers));

	if (status == BATON_OK)
		status = batoni_proposals_compare(offers, creation->bootstrap.size,
		                                  creation->bootstrap.strict);
	return status == BATON_OK ? conclude(creation, offers) : status;
}

/* ---- opening ---- */

static void
start_communicator(struct batoni_creation *creation, struct batoni_transport *transport)
{
	struct batoni_bootstrap *bootstrap = &creation->bootstrap;

	creation->comm->opened = creation->opening.transport;
	creation->comm->bootstrap = bootstrap->kind;
	batoni_comm_start(creation->comm, transport);
	for (unsigned i = 0; i < creation->rounds_count; i++)
		batoni_trace_round(creation->comm, creation->rounds[i].enter,
		                   creation->rounds[i].leave);
	if (creation->ops->starting)
		creation->ops->starting->started(&creation->opening,
		                                 creation->comm);
	batoni_lock();
	bootstrap->ops->close(bootstrap);
	batoni_unlock();
	creation->state = BATONI_CREATION_OVER;
}

/* The transport over the bootstrap is open. */
static enum baton_status
start_or_open_native(struct batoni_creation *creation)
{
	if (!batoni_setup_is_native(&creation->setup)) {
		start_communicator(creation, creation->opening.transport);
		return BATON_OK;
	}
	creation->lower = batoni_comm_lower_native(creation->comm,
	                                           creation->opening.transport);
	creation->state = BATONI_CREATION_NATIVE;
	return BATON_PENDING;
}

/* One step; what comes of it is to be told. */
static enum baton_status
open_further(struct batoni_creation *creation, const struct batoni_cards *cards)
{
	struct batoni_opening *opening = &creation->opening;
	struct batoni_report *mine = &creation->mine.report;
	enum baton_status status = creation->ops->step(opening, cards);

	if (status == BATON_OK)
		return start_or_open_native(creation);
	opening->round++;
	if (status != BATON_PENDING)
		note_failure(creation, status);
	report(creation, &mine->outcome);
	memcpy(mine->card, opening->card, sizeof(mine->card));
	return BATON_PENDING;
}

/* What can fail on this rank alone. */
static void
prepare(struct batoni_creation *creation)
{
	struct batoni_opening *opening = &creation->opening;
	enum baton_status status = batoni_comm_prepare(&creation->setup,
	                                               &creation->comm);

	creation->state = BATONI_CREATION_OPENS;
	memset(&creation->mine.report, 0, sizeof(creation->mine.report));
	if (status != BATON_OK) {
		note_failure(creation, status);
		report(creation, &creation->mine.report.outcome);
		return;
	}
	creation->comm->setup = creation->setup;
	creation->comm->rank = creation->bootstrap.rank;
	creation->comm->size = creation->bootstrap.size;
	/* That takes a while, and no deadline runs before all ranks have come to the next exchange. */
	batoni_trace_make(creation->comm);
	*opening = (struct batoni_opening){
		.engine = &batoni_engine_calls,
		.bootstrap = &creation->bootstrap,
		.setup = &creation->setup,
		.device = creation->comm->device,
		.config = batoni_comm_transport_config(&creation->setup,
		                                       creation->comm),
	};
	status = open_further(creation, NULL);
	assert(status == BATON_PENDING);
	(void)status;
}

static enum baton_status
step_setups(struct batoni_creation *creation)
{
	enum baton_status status;
	const void *all;

	if (!creation->ops)
		begin_setups(creation);
	status = exchange(creation, sizeof(creation->mine.offer), &all);
	if (status == BATON_PENDING)
		return status;
	if (status == BATON_OK)
		status = judge_setups(creation, all);
	if (status != BATON_OK)
		return give_up_creation(creation, status);
	if (creation->setup.traced && creation->setup.size > 1)
		creation->state = BATONI_CREATION_MEETS;
	else
		prepare(creation);
	return BATON_PENDING;
}

/* The setups are exchanged again, only for the times of the exchange. */
static enum baton_status
step_meets(struct batoni_creation *creation)
{
	enum baton_status status;
	const void *all;

	status = exchange(creation, sizeof(creation->mine.offer), &all);
	if (status == BATON_PENDING)
		return status;
	if (status != BATON_OK)
		return give_up_creation(creation, status);
	if (++creation->meetings == MEETINGS)
		prepare(creation);
	return BATON_PENDING;
}

static enum baton_status
step_opens(struct batoni_creation *creation)
{
	struct batoni_cards cards = {.stride = sizeof(struct batoni_report)};
	const void *all;
	enum baton_status status =
		exchange(creation, sizeof(creation->mine.report), &all);

	if (status == BATON_PENDING)
		return status;
	if (status == BATON_OK)
		status = find_failed(creation, all, cards.stride);
	if (status != BATON_OK)
		return give_up_creation(creation, status);
	cards.first = (const unsigned char *)all +
	              offsetof(struct batoni_report, card);
	return open_further(creation, &cards);
}

static enum baton_status
step_native(struct batoni_creation *creation)
{
	struct batoni_transport *opened = NULL;
	enum baton_status status = batoni_comm_step_native(
		creation->comm, creation->lower, &opened);

	if (status == BATON_PENDING)
		return status;
	if (status == BATON_OK) {
		start_communicator(creation, opened);
		return BATON_OK;
	}
	creation->ours = true;
	if (status == BATON_ERR_PEER)
		status = say_broken(creation, status);
	return give_up_creation(creation, status);
}

enum baton_status
batoni_creation_step(struct batoni_creation *creation)
{
	switch (creation->state) {
	case BATONI_CREATION_SETUPS:
		return step_setups(creation);
	case BATONI_CREATION_OPENS:
		return step_opens(creation);
	case BATONI_CREATION_MEETS:
		return step_meets(creation);
	case BATONI_CREATION_NATIVE:
		return step_native(creation);
	case BATONI_CREATION_OVER:
		break;
	}
	return creation->status;
}

/* ---- from the beginning to the end ---- */

void
batoni_creation_begin(struct batoni_creation *creation,
                      const struct batoni_comm_setup *setup,
                      enum baton_status refused)
{
	memset(creation, 0, sizeof(*creation));
	if (setup)
		creation->setup = *setup;
	if (refused != BATON_OK)
		note_failure(creation, refused);
}

enum baton_status
batoni_creation_missed(const struct batoni_creation *creation,
                       enum baton_status status)
{
	return creation->status == BATON_OK
	               ? status
	               : batoni_refuse(creation->status, "%s", creation->why);
}

/* The next step of one of several, unless it is over.  True: it has got further. */
static bool
step_one(struct batoni_creation *creation, struct batoni_creation **failed_p)
{
	enum batoni_creation_state state = creation->state;
	enum baton_status status;

	if (state == BATONI_CREATION_OVER)
		return false;
	status = batoni_creation_step(creation);
	if (status != BATON_PENDING && status != BATON_OK &&
	    (!*failed_p || (creation->ours && !(*failed_p)->ours)))
		*failed_p = creation;
	return creation->state != state;
}

struct batoni_creation *
batoni_creation_run_all(struct batoni_creation creations[], int size)
{
	struct batoni_creation *failed = NULL;

	for (unsigned tries = 0;; tries++) {
		int over = 0;

		for (int i = 0; i < size; i++) {
			if (step_one(&creations[i], &failed))
				tries = 0;
			over += creations[i].state == BATONI_CREATION_OVER;
		}
		if (over == size)
			return failed;
		batoni_pause_between(tries);
	}
}

enum baton_status
batoni_creation_run(struct batoni_creation *creation, struct baton_comm **comm_p)
{
	if (batoni_creation_run_all(creation, 1))
		return batoni_refuse(creation->status, "%s", creation->why);
	*comm_p = creation->comm;
	return BATON_OK;
}

static void
driver_unlock(void)
{
	batoni_unlock();
}

const struct batoni_engine_calls batoni_engine_calls = {
	.driver_lock = batoni_lock,
	.driver_unlock = driver_unlock,
	.status = baton_comm_status,
	.stop = batoni_engine_stop,
};
