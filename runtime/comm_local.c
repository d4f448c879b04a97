/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators whose ranks are in this process: created all at once, or one by one
 * with a unique id.
 *
 * An id is a random token and the process that made it.  The first rank that calls
 * opens a meeting (a rendezvous).  When all have come, each rank prepares its own
 * communicator on its own thread, beside the others: opening a device may take seconds, and
 * what it does to its thread belongs there.  The last one that is ready starts them all and
 * wakes the others.  If a rank times out, gives different options or cannot prepare, the
 * meeting fails on all ranks.  The last rank to leave frees it.  The ids of the last
 * SPENT_MAX meetings are kept as tombstones, so that a late rank is refused at once.
 *
 * meetings_lock guards all of it.  No communicator is prepared, started or discarded under
 * it, so that other meetings go on meanwhile.
 */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"
#include "open_native.h"
#include "registry.h"
#include "testing.h"

#define SIZE_MAX_LOCAL ((int)BATONI_COMMS_MAX - 1)

/* ---- all at once ---- */

static void
discard_all(int n, struct baton_comm *comms[])
{
	while (n-- > 0)
		batoni_comm_discard(comms[n]);
}

/* plans: by rank. */
static enum baton_status
prepare_all(const struct batoni_comm_plan plans[], int size,
            struct baton_comm *comms[])
{
	enum baton_status status = BATON_OK;
	int n = 0;

	while (n < size && status == BATON_OK) {
		status = batoni_comm_prepare(&plans[n], &comms[n]);
		n += status == BATON_OK;
	}
	if (status != BATON_OK)
		discard_all(n, comms);
	return status;
}

static enum baton_status
refuse_memory(int size)
{
	return batoni_refuse(BATON_ERR_NOMEM, "no memory for %d local ranks",
	                     size);
}

/* The processes of this host are taken to have as many ranks each. */
static void
number_on_host(struct batoni_comm_plan plans[], int size)
{
	int process = plans[0].device_config.host_rank;

	for (int i = 0; i < size; i++)
		plans[i].device_config.host_rank =
			(process < 0 ? 0 : process) * size + i;
}

static void
agree(struct batoni_comm_plan plans[], int size)
{
	batoni_comm_plans_agree(plans, size);
	number_on_host(plans, size);
}

/* They were opened for communicators that do not start. */
static void
close_all(int size, struct batoni_transport *transports[])
{
	batoni_take();
	for (int i = 0; i < size; i++)
		transports[i]->ops->close(transports[i], true);
	batoni_leave();
}

/* Connect and start communicators that were prepared from these plans; by rank.  OK, or an
 * error: none has started. */
static enum baton_status
start_all(const struct batoni_comm_plan plans[], int size,
          struct baton_comm *comms[])
{
	struct batoni_transport **transports =
		batoni_alloc((size_t)size, sizeof(*transports));
	/* The same for all ranks: staging hides their devices. */
	const struct batoni_transport_config config =
		batoni_comm_transport_config(&plans[0], comms[0]);
	enum baton_status status = BATON_OK;

	if (!transports ||
	    batoni_open_local(size, &config, transports) != BATON_OK)
		status = refuse_memory(size);
	if (status == BATON_OK && plans[0].transport == BATON_TRANSPORT_NCCL) {
		status = batoni_comm_open_native(comms, transports, size);
		if (status != BATON_OK)
			close_all(size, transports);
	}
	for (int i = 0; i < size && status == BATON_OK; i++)
		batoni_comm_start(comms[i], transports[i]);
	batoni_free(transports);
	return status;
}

/* plans: by rank.  Writes comms on success only. */
static enum baton_status
build_local(struct batoni_comm_plan plans[], int size,
            struct baton_comm *comms[])
{
	struct baton_comm **built = batoni_alloc((size_t)size, sizeof(*built));
	enum baton_status status;

	if (!built)
		return refuse_memory(size);
	agree(plans, size);
	status = prepare_all(plans, size, built);
	if (status == BATON_OK) {
		status = start_all(plans, size, built);
		if (status == BATON_OK)
			memcpy(comms, built, (size_t)size * sizeof(*built));
		else
			discard_all(size, built);
	}
	batoni_free(built);
	return status;
}

/* All ranks have the plan. */
static enum baton_status
build_alike(const struct batoni_comm_plan *plan, int size,
            struct baton_comm *comms[])
{
	struct batoni_comm_plan *plans =
		batoni_alloc((size_t)size, sizeof(*plans));
	enum baton_status status;

	if (!plans)
		return refuse_memory(size);
	for (int i = 0; i < size; i++)
		plans[i] = *plan;
	status = build_local(plans, size, comms);
	batoni_free(plans);
	return status;
}

static enum baton_status
plan_local(const char *call, int size, const struct baton_comm_options *options,
           struct batoni_comm_plan *plan)
{
	enum baton_status status;

	if (size < 1 || size > SIZE_MAX_LOCAL)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: size is %d; it takes 1 to %d", call,
		                     size, SIZE_MAX_LOCAL);
	status = batoni_comm_plan(options, plan);
	if (status != BATON_OK)
		return status;
	if (plan->transport == BATON_TRANSPORT_MPI)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: options->transport is "
		                     "BATON_TRANSPORT_MPI; the ranks of one process "
		                     "meet on BATON_TRANSPORT_LOCAL or _NCCL",
		                     call);
	if (plan->transport == BATON_TRANSPORT_AUTO)
		plan->transport = BATON_TRANSPORT_LOCAL;
	plan->size = size;
	return BATON_OK;
}

enum baton_status
baton_comm_create_local(int size, const struct baton_comm_options *options,
                        struct baton_comm *comms[])
{
	struct batoni_comm_plan plan;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create_local");
	if (!comms)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_local: comms is NULL");
	status = plan_local("baton_comm_create_local", size, options, &plan);
	return status == BATON_OK ? build_alike(&plan, size, comms) : status;
}

/* ---- one by one ---- */

struct token {
	char magic[8];
	pid_t pid;
	unsigned char random[32];
};

enum stage {
	COMING, /* some rank has not called; in the list `meetings` */
	MAKING, /* each rank prepares its communicator */
	OVER
};

struct meeting {
	struct meeting *next;
	struct token token;
	int size, came, made, inside;
	enum stage stage;
	enum baton_status status; /* OK, or why it fails */
	char why[256];            /* the sentence of the rank that could not prepare */
	int failed;               /* that rank; -1: all of them are told `why` */
	struct batoni_comm_plan first; /* of the rank that opened it */
	/* By rank. */
	struct batoni_comm_plan *plans;
	struct baton_comm **comms; /* each is its rank's until all are made */
	bool *here; /* has it called? */
};

static pthread_mutex_t meetings_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t meetings_changed; /* on CLOCK_MONOTONIC */
static pthread_once_t meetings_once = PTHREAD_ONCE_INIT;
static struct meeting *meetings; /* under meetings_lock */

#define SPENT_MAX 1024u
static unsigned char spent[SPENT_MAX][16]; /* under meetings_lock */
static unsigned spent_next;                /* under meetings_lock */

static bool
is_spent_locked(const struct token *token)
{
	for (unsigned i = 0; i < SPENT_MAX; i++) {
		if (memcmp(spent[i], token->random, sizeof(spent[i])) == 0)
			return true;
	}
	return false;
}

static void
meetings_init(void)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&meetings_changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

enum baton_status
baton_unique_id_create(struct baton_unique_id *id_p)
{
	struct token token = {.magic = "baton-id", .pid = getpid()};

	static_assert(sizeof(struct token) <= sizeof(id_p->bytes),
	              "a token fits in an id");
	BATONI_ENTER("baton_unique_id_create");
	if (!id_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_unique_id_create: id_p is NULL");
	if (getrandom(token.random, sizeof(token.random), 0) !=
	    (ssize_t)sizeof(token.random))
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "baton_unique_id_create: getrandom: %s",
		                     strerror(errno));
	memset(id_p->bytes, 0, sizeof(id_p->bytes));
	memcpy(id_p->bytes, &token, sizeof(token));
	return BATON_OK;
}

static void
meeting_free(struct meeting *meeting)
{
	batoni_free(meeting->plans);
	batoni_free(meeting->comms);
	batoni_free(meeting->here);
	batoni_free(meeting);
}

static struct meeting *
meeting_new(const struct token *token, int size,
            const struct batoni_comm_plan *plan)
{
	struct meeting *meeting = batoni_alloc(1, sizeof(*meeting));

	if (!meeting)
		return NULL;
	meeting->plans = batoni_alloc((size_t)size, sizeof(*meeting->plans));
	meeting->comms = batoni_alloc((size_t)size, sizeof(*meeting->comms));
	meeting->here = batoni_alloc((size_t)size, sizeof(*meeting->here));
	if (!meeting->plans || !meeting->comms || !meeting->here) {
		meeting_free(meeting);
		return NULL;
	}
	meeting->token = *token;
	meeting->first = *plan;
	meeting->size = size;
	meeting->failed = -1;
	meeting->next = meetings;
	meetings = meeting;
	return meeting;
}

/* Nobody can come any more. */
static void
meeting_close_locked(struct meeting *meeting, enum stage stage)
{
	struct meeting **link = &meetings;

	while (*link != meeting)
		link = &(*link)->next;
	*link = meeting->next;
	memcpy(spent[spent_next++ % SPENT_MAX], meeting->token.random,
	       sizeof(spent[0]));
	meeting->stage = stage;
	pthread_cond_broadcast(&meetings_changed);
}

/* The first failure is what all ranks are told. */
static void
meeting_fail_locked(struct meeting *meeting, enum baton_status status, int failed,
                    const char *why)
{
	if (meeting->status != BATON_OK)
		return;
	meeting->status = status;
	meeting->failed = failed;
	snprintf(meeting->why, sizeof(meeting->why), "%s", why);
}

static enum baton_status
meeting_join_locked(struct meeting *meeting, int size, int rank,
                    const struct batoni_comm_plan *plan)
{
	const struct batoni_comm_plan *theirs = &meeting->first;
	enum baton_status status = BATON_OK;

	if (rank < meeting->size && meeting->here[rank])
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: rank %d of this id is "
		                     "taken",
		                     rank);
	if (meeting->size != size)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "baton_comm_create_id: size is %d; "
		                       "another rank of this id said %d",
		                       size, meeting->size);
	else if (theirs->requests_max != plan->requests_max ||
	         theirs->signals_max != plan->signals_max ||
	         theirs->contexts_max != plan->contexts_max ||
	         theirs->timeout_ns != plan->timeout_ns ||
	         theirs->progress != plan->progress ||
	         theirs->timestamps != plan->timestamps ||
	         theirs->transport != plan->transport)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "baton_comm_create_id: the options differ "
		                       "from those of another rank of this id");
	if (status != BATON_OK) {
		meeting_fail_locked(meeting, status, -1,
		                    "the ranks disagree on the size or the "
		                    "options");
		meeting_close_locked(meeting, OVER);
		return status;
	}
	meeting->here[rank] = true;
	meeting->plans[rank] = *plan;
	meeting->inside++;
	if (++meeting->came == size) {
		agree(meeting->plans, size);
		meeting_close_locked(meeting, MAKING);
	}
	return BATON_OK;
}

/* Wait until all ranks have come, or one of them has ended the meeting. */
static void
meeting_wait_locked(struct meeting *meeting, int64_t timeout_ns)
{
	struct timespec limit;
	char why[80];

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += (time_t)(timeout_ns / 1000000000);
	limit.tv_nsec += (long)(timeout_ns % 1000000000);
	if (limit.tv_nsec >= 1000000000) {
		limit.tv_nsec -= 1000000000;
		limit.tv_sec++;
	}
	while (meeting->stage == COMING) {
		int error = 0;

		if (timeout_ns)
			error = pthread_cond_timedwait(
				&meetings_changed, &meetings_lock, &limit);
		else
			pthread_cond_wait(&meetings_changed, &meetings_lock);
		if (error != ETIMEDOUT || meeting->stage != COMING)
			continue;
		snprintf(why, sizeof(why), "%d of %d ranks came within %lld ms",
		         meeting->came, meeting->size,
		         (long long)(timeout_ns / 1000000));
		meeting_fail_locked(meeting, BATON_ERR_TIMEOUT, -1, why);
		meeting_close_locked(meeting, OVER);
	}
}

/* All communicators are prepared, or some rank has failed.  Only this thread touches the
 * meeting meanwhile. */
static void
meeting_start(struct meeting *meeting, int rank)
{
	enum baton_status status = meeting->status;

	if (status == BATON_OK) {
		pthread_mutex_unlock(&meetings_lock);
		status = start_all(meeting->plans, meeting->size,
		                   meeting->comms);
		pthread_mutex_lock(&meetings_lock);
	}
	if (status != BATON_OK)
		meeting_fail_locked(meeting, status, rank, baton_last_error());
	meeting->stage = OVER;
	pthread_cond_broadcast(&meetings_changed);
}

/* All have come: prepare this rank's communicator, and wait until the others have theirs.
 * Gives up meetings_lock meanwhile. */
static void
meeting_make(struct meeting *meeting, int rank)
{
	struct baton_comm **comm_p = &meeting->comms[rank];
	enum baton_status status;

	pthread_mutex_unlock(&meetings_lock);
	status = batoni_comm_prepare(&meeting->plans[rank], comm_p);
	pthread_mutex_lock(&meetings_lock);
	if (status != BATON_OK)
		meeting_fail_locked(meeting, status, rank, baton_last_error());
	if (++meeting->made == meeting->size)
		meeting_start(meeting, rank);
	while (meeting->stage != OVER)
		pthread_cond_wait(&meetings_changed, &meetings_lock);
	if (meeting->status != BATON_OK && status == BATON_OK) {
		pthread_mutex_unlock(&meetings_lock);
		batoni_comm_discard(*comm_p);
		pthread_mutex_lock(&meetings_lock);
	}
}

/* The meeting has failed: its status, with a sentence. */
static enum baton_status
meeting_refuse(const struct meeting *meeting, int rank)
{
	if (meeting->failed < 0)
		return batoni_refuse(meeting->status, "baton_comm_create_id: %s",
		                     meeting->why);
	if (meeting->failed == rank)
		return batoni_refuse(meeting->status, "%s", meeting->why);
	return batoni_refuse(meeting->status,
	                     "baton_comm_create_id: rank %d has failed: %s",
	                     meeting->failed, meeting->why);
}

/* Under meetings_lock, which is given up on the way. */
static enum baton_status
meet(int size, int rank, const struct token *token,
     const struct batoni_comm_plan *plan, struct baton_comm **comm_p)
{
	struct meeting *meeting = meetings;
	enum baton_status status;

	while (meeting && memcmp(&meeting->token, token, sizeof(*token)) != 0)
		meeting = meeting->next;
	if (!meeting && is_spent_locked(token))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: the id is spent: its "
		                     "ranks have met, or given up");
	if (!meeting)
		meeting = meeting_new(token, size, plan);
	if (!meeting)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "baton_comm_create_id: out of memory");
	status = meeting_join_locked(meeting, size, rank, plan);
	if (status != BATON_OK)
		return status;
	meeting_wait_locked(meeting, plan->timeout_ns);
	if (meeting->stage == MAKING)
		meeting_make(meeting, rank);
	status = meeting->status;
	if (status == BATON_OK)
		*comm_p = meeting->comms[rank];
	else
		meeting_refuse(meeting, rank);
	if (--meeting->inside == 0)
		meeting_free(meeting);
	return status;
}

enum baton_status
baton_comm_create_id(int size, int rank, const struct baton_unique_id *id,
                     const struct baton_comm_options *options,
                     struct baton_comm **comm_p)
{
	struct batoni_comm_plan plan;
	enum baton_status status;
	struct token token;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create_id");
	if (!id || !comm_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: %s is NULL",
		                     id ? "comm_p" : "id");
	status = plan_local("baton_comm_create_id", size, options, &plan);
	if (status != BATON_OK)
		return status;
	if (rank < 0 || rank >= size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: rank is %d; ranks "
		                     "are 0 to %d",
		                     rank, size - 1);
	memcpy(&token, id->bytes, sizeof(token));
	if (memcmp(token.magic, "baton-id", sizeof(token.magic)) != 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: id was not made by "
		                     "baton_unique_id_create");
	if (token.pid != getpid())
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "baton_comm_create_id: the id was made by "
		                     "process %d; ids join threads of one process "
		                     "(between processes use "
		                     "baton_comm_create_mpi)",
		                     (int)token.pid);
	pthread_once(&meetings_once, meetings_init);
	pthread_mutex_lock(&meetings_lock);
	status = meet(size, rank, &token, &plan, comm_p);
	pthread_mutex_unlock(&meetings_lock);
	return status;
}

/* ---- for tests ---- */

enum baton_status
batoni_comm_create_over(const struct batoni_device_ops *device,
                        struct batoni_transport *transports[], int size,
                        const struct baton_comm_options *options,
                        struct baton_comm *comms[])
{
	struct batoni_comm_plan plan;
	enum baton_status status;
	int n = 0;

	status = batoni_comm_plan(options, &plan);
	if (status != BATON_OK)
		return status;
	batoni_comm_plan_on(&plan, device);
	plan.onesided = !transports[0]->messages.ops->stream_issued;
	/* A stream-issued transport reaches memory of the device. */
	plan.stages &= plan.onesided;
	plan.size = transports[0]->size;
	while (n < size && status == BATON_OK) {
		plan.device_config.host_rank = n;
		status = batoni_comm_prepare(&plan, &comms[n]);
		n += status == BATON_OK;
	}
	if (status != BATON_OK)
		discard_all(n, comms);
	for (int i = 0; i < size && status == BATON_OK; i++)
		batoni_comm_start(comms[i], transports[i]);
	return status;
}

enum baton_status
batoni_comm_create_local_with(const struct batoni_device_ops *device, int size,
                              const struct baton_comm_options *options,
                              struct baton_comm *comms[])
{
	struct batoni_comm_plan plan;
	enum baton_status status;

	status = plan_local("batoni_comm_create_local_with", size, options,
	                    &plan);
	if (status != BATON_OK)
		return status;
	batoni_comm_plan_on(&plan, device);
	return build_alike(&plan, size, comms);
}

enum baton_status
batoni_comm_create_local_mixed(const struct batoni_device_ops *const devices[],
                               int size,
                               const struct baton_comm_options *options,
                               struct baton_comm *comms[])
{
	struct batoni_comm_plan *plans =
		batoni_alloc((size_t)size, sizeof(*plans));
	enum baton_status status = plans ? BATON_OK : BATON_ERR_NOMEM;

	for (int i = 0; i < size && status == BATON_OK; i++) {
		status = plan_local("batoni_comm_create_local_mixed", size,
		                    options, &plans[i]);
		if (status == BATON_OK)
			batoni_comm_plan_on(&plans[i], devices[i]);
	}
	if (status == BATON_OK)
		status = build_local(plans, size, comms);
	batoni_free(plans);
	return status;
}
