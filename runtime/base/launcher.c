/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "log.h"

/* Variables in which launchers write how many processes they have started.  That of
 * a Slurm step comes before that of its job, which an allocation's shell has too. */
static const char *const sizes[] = {
	"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
	"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
};

/* The variable that names a number of processes, or NULL. */
static const char *
find_size(void)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const char *text = getenv(sizes[i]);

		if (text && *text)
			return sizes[i];
	}
	return NULL;
}

/* Variables in which launchers write which process of its node it is.  Slurm's comes last:
 * an mpirun or a torchrun (LOCAL_RANK) within a job leaves it as it was. */
static const char *const host_ranks[] = {
	"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID",
	"FLUX_TASK_LOCAL_ID",         "LOCAL_RANK",      "SLURM_LOCALID",
};

#define HOST_RANK_LIMIT 65536

int
batoni_launcher_host_rank(void)
{
	for (size_t i = 0; i < sizeof(host_ranks) / sizeof(host_ranks[0]); i++) {
		const char *text = getenv(host_ranks[i]);
		char *end;
		long rank;

		if (!text || !*text)
			continue;
		rank = strtol(text, &end, 10);
		if (*end == '\0' && rank >= 0 && rank < HOST_RANK_LIMIT)
			return (int)rank;
	}
	return -1;
}

static atomic_flag warned = ATOMIC_FLAG_INIT;

void
batoni_warn_alone(const char *reason, const char *cure)
{
	const char *name = find_size();

	if (!name || strtol(getenv(name), NULL, 10) <= 1 ||
	    atomic_flag_test_and_set(&warned))
		return;
	batoni_log(BATONI_LOG_WARN,
	           "%s is %s, but this process is a world of one: %s; %s", name,
	           getenv(name), reason, cure);
}
