/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bootstrap over MPI: the ranks of an intracommunicator, or of the job.
 *
 * Before the first exchange all ranks duplicate the parent, unless they make a communicator of their own
 * (some.c).  An exchange consists of two
 * collective operations on the duplicate.  The first is a reduction of *terms*, whose form is the
 * same in all versions of Baton: whether the rank has memory for what all will bring, and the
 * version.  So a rank without memory can tell the others, and ranks of two versions refuse each
 * other.  The second gathers the contributions; all ranks enter it or none.
 *
 * All MPI calls are made with the driver's lock held, so that below MPI_THREAD_MULTIPLE no two
 * threads are in MPI, and do not block.  MPI gives no way back from a collective operation that
 * others have not entered, so an exchange waits for ever, unless the creation is given up (patience_ns; a rank of
 * the parent that has died: creation.h).  Then MPI keeps the request, and all that it writes and reads: the
 * duplicate, the contributions and the bootstrap itself are leaked on purpose (`keeps`), and not freed under it.
 *
 * No state beyond the bootstrap.
 */
#include <stdlib.h>
#include <string.h>

#include "launcher.h"
#include "log.h"
#include "mem.h"
#include "mpi_bootstrap.h"

/* ---- texts ---- */

const char *
batoni_mpi_level_name(int thread_level)
{
	if (thread_level == MPI_THREAD_MULTIPLE)
		return "MPI_THREAD_MULTIPLE";
	if (thread_level == MPI_THREAD_SERIALIZED)
		return "MPI_THREAD_SERIALIZED";
	return thread_level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
	                                           : "MPI_THREAD_SINGLE";
}

enum baton_status
batoni_mpi_refuse(const char *call, int code)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;

	MPI_Error_string(code, text, &length);
	return batoni_refuse(BATON_ERR_MPI, "%s returned %d: %s", call, code,
	                     text);
}

/* ---- exchanges ---- */

/* Status and rank as one number.  The minimum over all ranks is an error, if there is one,
 * and the lowest rank that has it. */
static int64_t
encode(enum baton_status status, int rank)
{
	return (int64_t)status * ((int64_t)1 << 31) + rank;
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

static enum baton_status
duplicate(struct batoni_mpi_boot *boot)
{
	int code = MPI_Comm_idup(boot->parent, &boot->comm, &boot->request);

	if (code != MPI_SUCCESS) {
		boot->comm = MPI_COMM_NULL;
		return batoni_mpi_refuse("MPI_Comm_idup", code);
	}
	boot->phase = BATONI_MPI_DUPLICATING;
	return BATON_PENDING;
}

static enum baton_status
reduce(struct batoni_bootstrap *bootstrap, const void *mine, size_t bytes)
{
	struct batoni_mpi_boot *boot = batoni_mpi_boot_of(bootstrap);
	struct batoni_mpi_terms *terms = &boot->mine;
	int code;

	batoni_free(boot->contributions);
	boot->contributions = batoni_alloc((size_t)bootstrap->size + 1, bytes);
	if (boot->contributions)
		memcpy(boot->contributions, mine, bytes);
	for (int i = 0; i < BATONI_MPI_ALIKE_MAX; i++)
		terms->least[i] = terms->most[i] = INT64_MAX;
	terms->status = encode(boot->contributions ? BATON_OK : BATON_ERR_NOMEM,
	                       bootstrap->rank);
	terms->least[0] = BATONI_MPI_WIRE_VERSION;
	terms->most[0] = -(int64_t)BATONI_MPI_WIRE_VERSION;
	code = MPI_Iallreduce(terms, &boot->all,
	                      (int)(sizeof(*terms) / sizeof(int64_t)),
	                      MPI_INT64_T, MPI_MIN, boot->comm, &boot->request);
	if (code != MPI_SUCCESS)
		return batoni_mpi_refuse("MPI_Iallreduce", code);
	boot->phase = BATONI_MPI_REDUCING;
	return BATON_PENDING;
}

/* The reduction's result, the same on all ranks. */
static enum baton_status
judge_boot(const struct batoni_bootstrap *bootstrap, const struct batoni_mpi_boot *boot)
{
	const struct batoni_mpi_terms *all = &boot->all;

	if (all->status < 0 && !boot->contributions)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no memory for what %d ranks tell each other",
		                     bootstrap->size);
	if (all->status < 0)
		return refuse_worst(all->status);
	if (all->least[0] == -all->most[0])
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "the version of Baton (the number is its wire "
	                     "format's) is not the same on all ranks: %d to %d",
	                     (int)all->least[0], (int)-all->most[0]);
}

static enum baton_status
gather(struct batoni_bootstrap *bootstrap, size_t bytes)
{
	struct batoni_mpi_boot *boot = batoni_mpi_boot_of(bootstrap);
	enum baton_status status = judge_boot(bootstrap, boot);
	int code;

	if (status != BATON_OK)
		return status;
	code = MPI_Iallgather(boot->contributions, (int)bytes, MPI_BYTE,
	                      boot->contributions + bytes, (int)bytes, MPI_BYTE,
	                      boot->comm, &boot->request);
	if (code != MPI_SUCCESS)
		return batoni_mpi_refuse("MPI_Iallgather", code);
	boot->phase = BATONI_MPI_GATHERING;
	return BATON_PENDING;
}

/* What is under way is done.  An error leaves nothing under way. */
static enum baton_status
go_on_exchanging(struct batoni_bootstrap *bootstrap, const void *mine, size_t bytes,
                 const void **all_p)
{
	struct batoni_mpi_boot *boot = batoni_mpi_boot_of(bootstrap);
	enum batoni_mpi_phase was = boot->phase;

	boot->phase = BATONI_MPI_IDLE;
	switch (was) {
	case BATONI_MPI_BARE:
		return duplicate(boot);
	case BATONI_MPI_MEETING:
	case BATONI_MPI_DUPLICATING:
		MPI_Comm_set_errhandler(boot->comm, MPI_ERRORS_RETURN);
		return reduce(bootstrap, mine, bytes);
	case BATONI_MPI_IDLE:
		return reduce(bootstrap, mine, bytes);
	case BATONI_MPI_REDUCING:
		return gather(bootstrap, bytes);
	case BATONI_MPI_GATHERING:
		break;
	}
	*all_p = boot->contributions + bytes;
	return BATON_OK;
}

static enum baton_status
exchange(struct batoni_bootstrap *bootstrap, const void *mine, size_t bytes,
         const void **all_p)
{
	struct batoni_mpi_boot *boot = batoni_mpi_boot_of(bootstrap);
	bool meets = boot->phase == BATONI_MPI_MEETING;
	int done = 1, code = MPI_SUCCESS;

	if (meets)
		done = batoni_mpi_some_test(boot, &code);
	else if (boot->phase != BATONI_MPI_BARE && boot->phase != BATONI_MPI_IDLE)
		code = MPI_Test(&boot->request, &done, MPI_STATUS_IGNORE);
	if (code != MPI_SUCCESS) {
		if (boot->phase == BATONI_MPI_DUPLICATING)
			boot->comm = MPI_COMM_NULL;
		boot->phase = BATONI_MPI_IDLE;
		return batoni_mpi_refuse(meets ? "MPI_Comm_create_group"
		                               : "MPI_Test",
		                         code);
	}
	return done ? go_on_exchanging(bootstrap, mine, bytes, all_p) : BATON_PENDING;
}

/* Does MPI still have an operation of an exchange? */
static bool
is_under_way(struct batoni_mpi_boot *boot)
{
	int done = 0;

	if (boot->phase == BATONI_MPI_BARE || boot->phase == BATONI_MPI_IDLE)
		return false;
	return MPI_Test(&boot->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
	       !done;
}

static void
close_bootstrap(struct batoni_bootstrap *bootstrap)
{
	struct batoni_mpi_boot *boot = batoni_mpi_boot_of(bootstrap);

	if (boot->phase == BATONI_MPI_MEETING) {
		bootstrap->stands = !batoni_mpi_some_abandon(boot);
	} else if (is_under_way(boot)) {
		bootstrap->keeps = true;
		bootstrap->stands = boot->phase == BATONI_MPI_DUPLICATING;
		batoni_mem_keep(boot->contributions ? 1 : 0);
		return;
	}
	if (boot->comm != MPI_COMM_NULL)
		MPI_Comm_free(&boot->comm);
	batoni_free(boot->contributions);
}

static const struct batoni_bootstrap_ops ops = {
	.name = "mpi",
	.exchange = exchange,
	.close = close_bootstrap,
};

/* ---- joining ---- */

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

void
batoni_mpi_join(MPI_Comm parent, int level, int rank, int size,
                struct batoni_bootstrap *bootstrap)
{
	struct batoni_mpi_boot *boot;

	*bootstrap = (struct batoni_bootstrap){.ops = &ops,
	                                       .kind = BATONI_BOOTSTRAP_MPI,
	                                       .rank = rank,
	                                       .size = size,
	                                       .within = 1};
	boot = batoni_mpi_boot_of(bootstrap);
	*boot = (struct batoni_mpi_boot){.parent = parent,
	                                 .comm = MPI_COMM_NULL,
	                                 .level = level};
	boot->request = MPI_REQUEST_NULL;
}

/* The parent is a running MPI's intracommunicator, and this thread may call MPI. */
static void
join_ranks(const struct batoni_engine_calls *engine, MPI_Comm parent, int level,
           struct batoni_bootstrap *bootstrap)
{
	int rank, size;

	engine->driver_lock();
	MPI_Comm_size(parent, &size);
	MPI_Comm_rank(parent, &rank);
	engine->driver_unlock();
	batoni_mpi_join(parent, level, rank, size, bootstrap);
}

/* baton_comm_create_mpi. */
static enum baton_status
join_over(const struct batoni_engine_calls *engine, const void *parent_p,
          struct batoni_bootstrap *bootstrap)
{
	MPI_Comm parent = *(const MPI_Comm *)parent_p;
	enum baton_status status;
	int inter = 0, level;

	/* The macro of baton_mpi.h checks too, but not for other languages. */
	status = batoni_mpi_check_library();
	if (status != BATON_OK)
		return status;
	if (!batoni_mpi_initialized() || batoni_mpi_finalized())
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
	engine->driver_lock();
	MPI_Comm_test_inter(parent, &inter);
	engine->driver_unlock();
	if (inter)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "parent is an intercommunicator: it must "
		                     "be an intracommunicator");
	join_ranks(engine, parent, level, bootstrap);
	return BATON_OK;
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

	if (batoni_mpi_initialized() && !batoni_mpi_finalized())
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (getenv(names[i]))
			return true;
	}
	return false;
}

/* A launcher of another MPI starts every rank as a world of one. */
static void
check_launcher(int size)
{
	if (size == 1)
		batoni_warn_alone("MPI has started a world of one",
		                  "start it by this MPI's own mpirun, or by srun "
		                  "with a PMI that this MPI knows (srun "
		                  "--mpi=list)");
}

static enum baton_status
join_world(const struct batoni_engine_calls *engine, int64_t timeout_ns,
           struct batoni_bootstrap *bootstrap)
{
	enum baton_status status = batoni_mpi_check_library();
	int level;

	(void)timeout_ns;
	if (status == BATON_OK)
		status = batoni_mpi_start(engine);
	if (status != BATON_OK)
		return status;
	if (check_thread(&level) != BATON_OK)
		return BATON_ERR_INVALID;
	join_ranks(engine, MPI_COMM_WORLD, level, bootstrap);
	check_launcher(bootstrap->size);
	return BATON_OK;
}

const struct batoni_world batoni_world_mpi = {
	.id = BATON_TRANSPORT_MPI,
	.present = present,
	.join = join_world,
	.join_over = join_over,
};
