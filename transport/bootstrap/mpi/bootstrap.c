/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators over MPI, and starting MPI (finish.c has its end).
 *
 * Creation.  All ranks duplicate the parent and agree, by one reduction on the duplicate, on
 * their plans: whether any was refused, what must be the same, and what follows from all of
 * them.  Then each rank allocates what it needs, and a second reduction tells whether every
 * rank has it.  A rank that failed joins with its error, so that the others fail too instead
 * of waiting.  After the agreement the ranks map each other's memory (peers.c); only an
 * MPI error can make that fail.  All MPI calls are made with the driver's lock held, so
 * that below MPI_THREAD_MULTIPLE no two threads are in MPI, and do not block, so that other
 * threads can drive while this rank waits for its peers.
 *
 * Locks: start_lock, so that one thread starts MPI.
 */
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "baton_mpi.h"
#include "launcher.h"
#include "list.h"
#include "log.h"
#include "mpi_transport.h"
#include "thread.h"
#include "world.h"

/* The engine's functions; set by the first call that creates, before anything uses it. */
static const struct batoni_builder *builder;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the start of MPI ---- */

static bool
initialized(void)
{
	int yes = 0;

	MPI_Initialized(&yes);
	return yes;
}

static bool
finalized(void)
{
	int yes = 0;

	MPI_Finalized(&yes);
	return yes;
}

/* A launcher of another MPI starts every rank as a world of one. */
static void
check_launcher(void)
{
	int size = 0;

	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size == 1)
		batoni_warn_alone("MPI has started a world of one",
		                  "start it by this MPI's own mpirun, or by srun "
		                  "with a PMI that this MPI knows (srun "
		                  "--mpi=list)");
}

/* The engine's thread may not call MPI, and the program has not asked for
 * BATON_PROGRESS_CALLS. */
static bool
lacks_thread(int level, enum baton_progress progress)
{
	return batoni_mpi_drivers(level, progress) != BATONI_DRIVERS_ANY &&
	       progress != BATON_PROGRESS_CALLS;
}

static void
warn_of_level(int level, enum baton_progress progress)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;

	if (!lacks_thread(level, progress) ||
	    atomic_flag_test_and_set(&warned))
		return;
	batoni_log(BATONI_LOG_WARN,
	           "MPI runs at %s, so nothing moves while no thread is inside "
	           "Baton: start MPI by MPI_Init_thread with MPI_THREAD_MULTIPLE, "
	           "or let Baton start it (options.progress = "
	           "BATON_PROGRESS_CALLS says that it is meant so)",
	           batoni_mpi_level_name(level));
}

static enum baton_status
check_device(const struct batoni_comm_plan *plan, int level)
{
	if (!plan->device_ops->needs_thread ||
	    !lacks_thread(level, plan->progress))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "MPI runs at %s, so the engine's thread may not move "
	                     "transfers, and a call of the %s device that waits "
	                     "for a stream would never return: start MPI by "
	                     "MPI_Init_thread with MPI_THREAD_MULTIPLE, or let "
	                     "Baton start it (options.progress = "
	                     "BATON_PROGRESS_CALLS: the program waits by calls "
	                     "of Baton only)",
	                     batoni_mpi_level_name(level),
	                     plan->device_ops->name);
}

static enum baton_status
start_mpi(void)
{
	enum baton_status status = BATON_OK;
	int provided, code;
	sigset_t mask;

	pthread_mutex_lock(&start_lock);
	if (finalized()) {
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "MPI has been finalised in this process "
		                       "and cannot run again");
	} else if (!initialized()) {
		/* Threads that MPI starts inherit the mask: the program's signals go to
		 * the program's threads, as with ours. */
		batoni_signals_block(&mask);
		code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE,
		                       &provided);
		pthread_sigmask(SIG_SETMASK, &mask, NULL);
		if (code != MPI_SUCCESS) {
			status = batoni_refuse(BATON_ERR_MPI,
			                       "MPI_Init_thread failed");
		} else {
			batoni_mpi_finish_at_exit(builder);
		}
	}
	pthread_mutex_unlock(&start_lock);
	return status;
}

/* ---- creation ---- */

/* The driver.  Other threads drive meanwhile.  Returns MPI's code. */
static int
wait_for(MPI_Request *request)
{
	unsigned tries = 0;
	int done = 0;
	int code;

	for (;;) {
		code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
		if (code != MPI_SUCCESS || done)
			return code;
		builder->driver_yield(tries++);
	}
}

/* What one rank brings to a creation. */
struct offer {
	struct batoni_comm_plan *plan; /* NULL: its options were refused */
	enum baton_status status;
	struct baton_comm *comm;
	struct batoni_mpi *mpi;
	struct batoni_transport *transport; /* for the engine: mpi, or one over it */
};

/* Allocate what this rank needs: what can fail on one rank. */
static void
prepare(struct offer *offer)
{
	struct batoni_transport_config config;
	int size = offer->plan->size;

	offer->status = builder->prepare(offer->plan, &offer->comm);
	if (offer->status != BATON_OK)
		return;
	config = builder->transport_config(offer->plan, offer->comm);
	offer->status = batoni_mpi_alloc(&config, size, &offer->mpi);
	if (offer->status == BATON_OK)
		offer->status = batoni_mpi_peers_make(offer->mpi, size, &config);
	else if (offer->status == BATON_ERR_NOMEM)
		batoni_refuse(offer->status,
		              "no memory for the MPI transport: requests_max "
		              "is %u, %d ranks",
		              offer->plan->requests_max, size);
}

static void
discard(struct offer *offer)
{
	/* It uses the communicator's device. */
	if (offer->mpi)
		batoni_mpi_free(offer->mpi);
	if (offer->comm)
		builder->discard(offer->comm);
}

/* The driver.  The transport over this one may have left an exchange under way, for which MPI
 * has memory of ours and the duplicate: they stay, as after an abort. */
static void
give_up(struct offer *offer, MPI_Comm *comm_p)
{
	struct batoni_mpi *mpi = offer->mpi;

	if (mpi && mpi->exchanging != BATONI_MPI_NO_EXCHANGE) {
		mpi->base.ops->close(&mpi->base, true);
		offer->mpi = NULL;
	} else if (*comm_p != MPI_COMM_NULL) {
		MPI_Comm_free(comm_p);
	}
}

/* Status and rank as one number.  The minimum over all ranks is an error, if there is one,
 * and the lowest rank that has it. */
static int64_t
encode(enum baton_status status, int rank)
{
	return (int64_t)status * ((int64_t)1 << 31) + rank;
}

/* The values of a plan that the ranks compare.  The first must be equal on all ranks; these
 * have names, for messages.  Of the others all ranks take the largest.  The version comes
 * first: other versions may give the other values other meanings. */
enum compared {
	WIRE,
	SIGNALS,
	CONTEXTS,
	TRANSPORT,
	CHECK,
	ALIKE,
	STAGES = ALIKE, /* the device's memory is not the host's */
	REQUESTS,
	/* The lowest rank, or NO_RANK: where MPI does not reach such memory; where
	 * BATON_MPI_CUDA is direct. */
	UNABLE,
	FORCED,
	COMPARED
};
#define NO_RANK INT32_MAX

static_assert(COMPARED <= BATONI_MPI_ALIKE_MAX, "the record has a field for each");

static const char *const alike_names[ALIKE] = {
	[WIRE] = "the version of Baton (the number is its wire format's)",
	[SIGNALS] = "options.signals_max",
	[CONTEXTS] = "options.contexts_max",
	[TRANSPORT] = "options.transport",
	[CHECK] = "options.check (or BATON_CHECK)",
};

/* What is reduced, by MPI_MIN: the minimum of a value, and that of its negative, which is its
 * maximum. */
struct record {
	int64_t status;
	int64_t least[BATONI_MPI_ALIKE_MAX];
	int64_t most[BATONI_MPI_ALIKE_MAX]; /* negatives */
};

/* Another transport is to lie over this one, which then carries what the hosts tell each
 * other. */
static bool
is_native(const struct batoni_comm_plan *plan)
{
	return plan->transport != BATON_TRANSPORT_MPI &&
	       plan->transport != BATON_TRANSPORT_AUTO;
}

static void
fill(struct record *record, const struct batoni_comm_plan *plan, int rank)
{
	const enum batoni_mpi_reach reach = batoni_mpi_reach(plan->device_ops);

	record->least[WIRE] = BATONI_MPI_WIRE_VERSION;
	record->least[SIGNALS] = plan->signals_max;
	record->least[CONTEXTS] = plan->contexts_max;
	record->least[TRANSPORT] = is_native(plan) ? plan->transport
	                                           : BATON_TRANSPORT_MPI;
	/* The ranks of a native one compare it by themselves, and name one. */
	record->least[CHECK] = plan->check && !is_native(plan);
	record->least[STAGES] = plan->stages;
	record->least[REQUESTS] = plan->requests_max;
	record->least[UNABLE] = reach == BATONI_MPI_STAGES ? rank : NO_RANK;
	record->least[FORCED] = reach == BATONI_MPI_FORCED ? rank : NO_RANK;
	for (int i = 0; i < COMPARED; i++)
		record->most[i] = -record->least[i];
}

/* The least of all ranks' encoded statuses. */
static enum baton_status
refuse_worst(int64_t worst)
{
	/* Ranks are 0 to 2^31 - 1: rounding down gives the status. */
	int64_t bad = worst & (((int64_t)1 << 31) - 1);
	enum baton_status status =
		batoni_error_told((worst - bad) / ((int64_t)1 << 31));

	return batoni_refuse(status,
	                     "rank %d could not create its end of the "
	                     "communicator: %s",
	                     (int)bad, baton_status_text(status));
}

/* The driver: reduce the offers of all ranks.  The result is the same on all ranks, except
 * that a rank with an error of its own returns that. */
static enum baton_status
reduce(MPI_Comm comm, const struct offer *offer, struct record *all)
{
	struct record mine;
	MPI_Request request;
	int rank, code;

	MPI_Comm_rank(comm, &rank);
	mine.status = encode(offer->status, rank);
	for (int i = 0; i < BATONI_MPI_ALIKE_MAX; i++)
		mine.least[i] = mine.most[i] = INT64_MAX;
	if (offer->plan)
		fill(&mine, offer->plan, rank);
	code = MPI_Iallreduce(&mine, all, (int)(sizeof(*all) / sizeof(int64_t)),
	                      MPI_INT64_T, MPI_MIN, comm, &request);
	if (code == MPI_SUCCESS)
		code = wait_for(&request);
	if (offer->status != BATON_OK)
		return offer->status;
	if (code != MPI_SUCCESS)
		return batoni_mpi_refuse("MPI_Iallreduce", code);
	return all->status < 0 ? refuse_worst(all->status) : BATON_OK;
}

/* The ranks stage, if some rank has a device and some MPI does not reach its memory. */
static enum baton_status
agree_on_reach(struct batoni_comm_plan *plan, const struct record *all)
{
	bool reached = all->least[UNABLE] == NO_RANK;

	/* What a native one's hosts send each other is small, but for puts by message,
	 * which are staged. */
	if (is_native(plan)) {
		plan->direct = plan->apart = false;
		plan->stages = plan->onesided;
		return BATON_OK;
	}
	if (!reached && all->least[FORCED] != NO_RANK)
		return batoni_refuse(
			BATON_ERR_INVALID,
			"BATON_MPI_CUDA is direct on rank %d, and on rank %d it is "
			"staged, or not set where MPI does not say that it is "
			"CUDA-aware: set it alike on all ranks",
			(int)all->least[FORCED], (int)all->least[UNABLE]);
	plan->direct = reached && plan->stages;
	plan->apart = reached && all->most[STAGES] != 0;
	plan->stages = !reached && all->most[STAGES] != 0;
	return BATON_OK;
}

/* The first agreement: the plan of this rank becomes one that fits those of all ranks. */
static enum baton_status
agree_on_plan(MPI_Comm comm, const struct offer *offer)
{
	struct record all;
	enum baton_status status = reduce(comm, offer, &all);

	if (status != BATON_OK)
		return status;
	for (int i = 0; i < ALIKE; i++) {
		if (all.least[i] != -all.most[i])
			return batoni_refuse(BATON_ERR_INVALID,
			                     "%s is not the same on all ranks: "
			                     "%d to %d",
			                     alike_names[i],
			                     (int)all.least[i],
			                     (int)-all.most[i]);
	}
	offer->plan->requests_most = (uint32_t)-all.most[REQUESTS];
	return agree_on_reach(offer->plan, &all);
}

static void
start(struct offer *offer)
{
	offer->mpi->owner = offer->comm;
	builder->start(offer->comm, offer->transport);
	batoni_mpi_finish_add(offer->mpi);
}

/* May this thread call MPI?  Below MPI_THREAD_SERIALIZED only the thread that initialised
 * MPI may create and drive communicators. */
static enum baton_status
check_thread(int *level_p)
{
	int main_thread = 1;

	MPI_Query_thread(level_p);
	if (*level_p == MPI_THREAD_MULTIPLE || *level_p == MPI_THREAD_SERIALIZED)
		return BATON_OK;
	MPI_Is_thread_main(&main_thread);
	if (main_thread)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "MPI's thread level is %s: only the thread that "
	                     "initialised MPI may create communicators",
	                     batoni_mpi_level_name(*level_p));
}

/* The driver: duplicate the parent.  *comm_p: the duplicate, or MPI_COMM_NULL. */
static enum baton_status
duplicate(MPI_Comm parent, MPI_Comm *comm_p)
{
	MPI_Request request;
	int code;

	*comm_p = MPI_COMM_NULL;
	code = batoni_mpi_finish_watch(builder);
	if (code == MPI_SUCCESS)
		code = MPI_Comm_idup(parent, comm_p, &request);
	if (code == MPI_SUCCESS)
		code = wait_for(&request);
	if (code != MPI_SUCCESS) {
		*comm_p = MPI_COMM_NULL;
		return batoni_mpi_refuse("MPI_Comm_idup", code);
	}
	MPI_Comm_set_errhandler(*comm_p, MPI_ERRORS_RETURN);
	return BATON_OK;
}

/* The driver: the second agreement, after which the ranks meet. */
static enum baton_status
agree_on_memory(MPI_Comm comm, struct offer *offer, int level)
{
	struct record all;
	enum baton_status status;

	if (offer->status == BATON_OK)
		offer->status = batoni_mpi_attach(offer->mpi, comm, level,
		                                  offer->plan->progress);
	status = reduce(comm, offer, &all);
	return status == BATON_OK ? batoni_mpi_peers_meet(offer->mpi, wait_for)
	                          : status;
}

/* Duplicate the parent and make what the duplicate needs; the driver lock is not held.
 * *comm_p as above. */
static enum baton_status
make(MPI_Comm parent, struct offer *offer, int level, MPI_Comm *comm_p)
{
	enum baton_status status;

	builder->driver_take();
	status = duplicate(parent, comm_p);
	if (status == BATON_OK)
		status = agree_on_plan(*comm_p, offer);
	builder->driver_leave();
	if (status != BATON_OK)
		return status;
	prepare(offer);
	builder->driver_take();
	status = agree_on_memory(*comm_p, offer, level);
	builder->driver_leave();
	if (status != BATON_OK)
		return status;
	batoni_mpi_peers_store(offer->mpi);
	builder->driver_take();
	status = batoni_mpi_peers_tell(offer->mpi, wait_for);
	builder->driver_leave();
	if (status != BATON_OK)
		return status;
	offer->transport = &offer->mpi->base;
	return is_native(offer->plan) ? builder->open_native(offer->comm,
	                                                     &offer->transport)
	                              : BATON_OK;
}

/* Collective over parent, which is a running MPI's intracommunicator.  plan NULL:
 * this rank's options were refused, with `refused`, and it only tells the
 * others. */
static enum baton_status
create_over(MPI_Comm parent, const struct batoni_comm_plan *plan,
            enum baton_status refused, struct baton_comm **comm_p)
{
	struct offer offer = {.status = refused};
	struct batoni_comm_plan sized;
	enum baton_status status;
	MPI_Comm comm;
	int level;

	if (check_thread(&level) != BATON_OK)
		return BATON_ERR_INVALID;
	if (plan) {
		sized = *plan;
		builder->driver_take();
		MPI_Comm_size(parent, &sized.size);
		if (sized.device_config.host_rank < 0)
			MPI_Comm_rank(parent, &sized.device_config.host_rank);
		builder->driver_leave();
		offer.plan = &sized;
		offer.status = check_device(plan, level);
	}
	status = make(parent, &offer, level, &comm);
	if (status != BATON_OK) {
		builder->driver_take();
		give_up(&offer, &comm);
		builder->driver_leave();
		discard(&offer);
		return status;
	}
	start(&offer);
	warn_of_level(level, plan->progress);
	*comm_p = offer.comm;
	return BATON_OK;
}

/* baton_comm_create_mpi. */
static enum baton_status
create_over_parent(const struct batoni_builder *engine, const void *parent_p,
                   const struct baton_comm_options *options,
                   struct baton_comm **comm_p)
{
	MPI_Comm parent = *(const MPI_Comm *)parent_p;
	struct batoni_comm_plan plan;
	enum baton_status status;
	int inter = 0, level;

	builder = engine;
	/* The macro of baton_mpi.h checks too, but not for other languages. */
	status = batoni_mpi_check_library();
	if (status != BATON_OK)
		return status;
	if (!initialized() || finalized())
		return batoni_refuse(BATON_ERR_INVALID,
		                     "MPI is not running: call MPI_Init_thread "
		                     "first, or baton_comm_create, which does");
	/* Before any call that another thread may not make. */
	if (check_thread(&level) != BATON_OK)
		return BATON_ERR_INVALID;
	if (parent == MPI_COMM_NULL)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "parent is MPI_COMM_NULL: it must be an "
		                     "intracommunicator");
	builder->driver_take();
	MPI_Comm_test_inter(parent, &inter);
	builder->driver_leave();
	if (inter)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "parent is an intercommunicator: it must "
		                     "be an intracommunicator");
	if (!comm_p)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "comm_p is NULL: it must point to where "
		                       "the communicator goes");
	else
		status = builder->plan(options, &plan);
	if (status == BATON_OK && plan.transport != BATON_TRANSPORT_AUTO &&
	    plan.transport != BATON_TRANSPORT_MPI &&
	    plan.transport != BATON_TRANSPORT_NCCL)
		status = batoni_refuse(BATON_ERR_UNSUPPORTED,
		                       "options.transport is %d: a communicator "
		                       "over MPI takes BATON_TRANSPORT_AUTO, _MPI "
		                       "or _NCCL",
		                       (int)plan.transport);
	return create_over(parent, status == BATON_OK ? &plan : NULL, status,
	                   comm_p);
}

/* ---- the world ---- */

/* Also true after MPI_Finalize: a rank of a job must not become a world of one. */
static bool
present(void)
{
	static const char *const names[] = {
		"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
		"PMI_SIZE",             "PMI_FD",    "PMI_PORT",
	};

	if (initialized() && !finalized())
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (getenv(names[i]))
			return true;
	}
	return false;
}

/* plan NULL: the options were refused on this rank; the others are told, and
 * INVALID is returned, with baton_last_error as it was. */
static enum baton_status
create_world(const struct batoni_builder *engine,
             const struct batoni_comm_plan *plan, struct baton_comm **comm_p)
{
	enum baton_status status = batoni_mpi_check_library();

	builder = engine;
	if (status == BATON_OK)
		status = start_mpi();
	if (status != BATON_OK)
		return status;
	check_launcher();
	return create_over(MPI_COMM_WORLD, plan,
	                   plan ? BATON_OK : BATON_ERR_INVALID, comm_p);
}

const struct batoni_world batoni_world_mpi = {
	.id = BATON_TRANSPORT_MPI,
	.present = present,
	.create = create_world,
	.create_over = create_over_parent,
};
