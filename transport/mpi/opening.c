/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening the MPI transport over MPI's bootstrap (opening.h), whose duplicate it takes over.
 *
 * First each rank takes its memory, makes its segment, and gives the transport the duplicate;
 * then it maps the others' segments (segments.h).  All MPI calls are made with the driver's lock held.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "config.h"
#include "log.h"
#include "mpi_transport.h"
#include "opening.h"

/* With more, each rank's address space would have gigabytes of rings that are never used. */
#define NEAR_RANKS_MAX 1024

/* ---- setups ---- */

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

static int
level_of(const struct batoni_bootstrap *bootstrap)
{
	const struct batoni_mpi_boot *boot = (const void *)bootstrap->own.bytes;

	return boot->level;
}

/* Choose near only where it costs nothing when no pair uses it. */
static void
choose_near(struct batoni_comm_setup *setup)
{
	enum batoni_message_path path = batoni_config()->message_path;

	if (batoni_setup_is_native(setup)) {
		setup->near = path == BATONI_MESSAGE_PATH_NEAR;
		return;
	}
	setup->near_only = path == BATONI_MESSAGE_PATH_NEAR;
	setup->near = setup->near_only ||
	              (path == BATONI_MESSAGE_PATH_AUTO &&
	               setup->size <= NEAR_RANKS_MAX && batoni_shm_is_sparse());
}

static enum baton_status
check_setup_of_mpi(const struct batoni_bootstrap *bootstrap,
                   struct batoni_comm_setup *setup)
{
	int level = level_of(bootstrap);

	if (setup->transport == BATON_TRANSPORT_AUTO)
		setup->transport = BATON_TRANSPORT_MPI;
	if (setup->transport == BATON_TRANSPORT_NEAR)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the transport is BATON_TRANSPORT_NEAR, which "
		                     "is for ranks without MPI: over MPI, "
		                     "BATON_MESSAGE_PATH=near in the environment "
		                     "lets messages go through memory that the "
		                     "ranks share");
	if (setup->transport != BATON_TRANSPORT_MPI && !batoni_setup_is_native(setup))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "options.transport is %d: a communicator "
		                     "over MPI takes BATON_TRANSPORT_AUTO, _MPI "
		                     "or the device's own",
		                     (int)setup->transport);
	choose_near(setup);
	if (!setup->device_ops->needs_thread ||
	    !lacks_thread(level, setup->progress))
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
	                     setup->device_ops->name);
}

/* The ranks stage, if some rank has a device and some MPI does not reach its memory. */
static enum baton_status
agree(const struct batoni_accord *accord, struct batoni_comm_setup *setup)
{
	bool reached = accord->unable < 0, mine = setup->stages;

	/* What the processes of a native transport send each other is small, but for puts by message,
	 * which are staged.  Near reaches memory of the host only. */
	if (batoni_setup_is_native(setup) || setup->near_only) {
		setup->direct = setup->apart = false;
		setup->stages = accord->stages;
		return BATON_OK;
	}
	if (!reached && accord->forced >= 0)
		return batoni_refuse(
			BATON_ERR_INVALID,
			"BATON_MPI_CUDA is direct on rank %d, and on rank %d it is "
			"staged, or not set where MPI does not say that it is "
			"CUDA-aware: set it alike on all ranks",
			accord->forced, accord->unable);
	/* MPI copies once, and staging twice. */
	setup->near &= !reached || !accord->stages;
	setup->direct = reached && mine;
	setup->apart = reached && accord->stages;
	setup->stages = !reached && accord->stages;
	return BATON_OK;
}

/* ---- steps ---- */

/* Do what can fail on this rank alone. */
static enum baton_status
prepare_alone(struct batoni_opening *opening)
{
	const struct batoni_transport_config *config = &opening->config;
	int size = opening->bootstrap->size;
	enum baton_status status;
	struct batoni_mpi *mpi;

	status = batoni_mpi_alloc(config, size, &mpi);
	if (status == BATON_ERR_NOMEM)
		return batoni_refuse(status,
		                     "no memory for the MPI transport: "
		                     "requests_max is %u, %d ranks",
		                     opening->setup->requests_max, size);
	if (status != BATON_OK)
		return status;
	opening->own = mpi;
	return batoni_segments_make(&mpi->segments, &mpi->base, size, config);
}

/* The driver. */
static enum baton_status
attach(struct batoni_opening *opening)
{
	const struct batoni_mpi_boot *boot = batoni_mpi_boot_of(opening->bootstrap);
	int code = batoni_mpi_finish_watch(opening->engine);

	if (code != MPI_SUCCESS)
		return batoni_mpi_refuse("MPI_Comm_set_attr", code);
	return batoni_mpi_attach(opening->own, boot->comm, boot->level,
	                         opening->setup->progress);
}

static enum baton_status
begin_opening_mpi(struct batoni_opening *opening)
{
	enum baton_status status = prepare_alone(opening);
	struct batoni_mpi *mpi = opening->own;

	if (status != BATON_OK)
		return status;
	opening->engine->driver_lock();
	status = attach(opening);
	opening->engine->driver_unlock();
	if (status != BATON_OK)
		return status;
	if (mpi->base.peers)
		batoni_segments_write_card(&mpi->segments, (void *)opening->card);
	return BATON_PENDING;
}

/* Why there are no areas of pairs, for baton_comm_query. */
static void
tell_why_not_near(const struct batoni_comm_setup *setup,
                  struct batoni_transport *base)
{
	const char *why = "a rank's kernel is older than Linux 5.14";

	if (batoni_config()->message_path == BATONI_MESSAGE_PATH_MPI)
		why = "BATON_MESSAGE_PATH=mpi says that MPI carries the messages";
	else if (setup->apart)
		why = "MPI reaches the memory of the ranks' devices by itself";
	else if (setup->size > NEAR_RANKS_MAX)
		why = "there are more than 1024 ranks";
	snprintf(base->why_not_near, sizeof(base->why_not_near), "%s", why);
}

static enum baton_status
finish_opening(struct batoni_opening *opening)
{
	struct batoni_mpi *mpi = opening->own;

	if (!opening->setup->near)
		tell_why_not_near(opening->setup, &mpi->base);

	batoni_mpi_boot_of(opening->bootstrap)->comm = MPI_COMM_NULL;
	opening->transport = &mpi->base;
	return BATON_OK;
}

static enum baton_status
step_mpi(struct batoni_opening *opening, const struct batoni_cards *cards)
{
	struct batoni_mpi *mpi = opening->own;
	enum baton_status status;

	if (opening->round == 0)
		return begin_opening_mpi(opening);
	status = batoni_segments_step(&mpi->segments, &mpi->base, opening,
	                              cards, "BATON_MESSAGE_PATH=near asks for "
	                                     "messages through memory of one node; "
	                                     "without it MPI carries them");
	return status == BATON_OK ? finish_opening(opening) : status;
}

static void
started(struct batoni_opening *opening, struct baton_comm *comm)
{
	struct batoni_mpi *mpi = opening->own;

	mpi->owner = comm;
	batoni_mpi_finish_add(mpi);
	warn_of_level(level_of(opening->bootstrap), opening->setup->progress);
}

/* The transport over this one may have left an exchange under way, for which MPI has memory of
 * ours and the duplicate: they stay, as after an abort. */
static void
give_up_mpi(struct batoni_opening *opening)
{
	struct batoni_mpi *mpi = opening->own;
	bool exchanging = mpi->exchanging != BATONI_MPI_NO_EXCHANGE;

	opening->engine->driver_lock();
	if (exchanging)
		mpi->base.ops->close(&mpi->base, true);
	else if (opening->transport)
		MPI_Comm_free(&mpi->comm);
	opening->engine->driver_unlock();
	if (!exchanging)
		batoni_mpi_free(mpi);
}

const struct batoni_opening_ops batoni_opening_mpi_ops = {
	.check = check_setup_of_mpi,
	.reach = batoni_mpi_reach,
	.agree = agree,
	.step = step_mpi,
	.starting = &(const struct batoni_starting_ops){.started = started},
	.give_up = give_up_mpi,
};
