/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs over MPI share whose ranks have memory of a device, over the simulator of the
 * driver: their beginning, the end of a rank that has survived another, and memory as it is beside
 * all streams.
 */
#ifndef MPI_DEVICE_H
#define MPI_DEVICE_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "baton_mpi.h"
#include "cudasim.h"
#include "program.h"

enum { DEVICE_VIEW = 1 << 16 };

static inline bool
device_holds(const struct cudasim *sim, const void *at, size_t bytes,
             unsigned char value)
{
	static unsigned char view[DEVICE_VIEW];

	for (size_t done = 0; done < bytes; done += sizeof(view)) {
		size_t n = bytes - done < sizeof(view) ? bytes - done
		                                       : sizeof(view);

		sim->sim_peek(view, (CUdeviceptr)(uintptr_t)at + done, n);
		for (size_t i = 0; i < n; i++)
			if (view[i] != value)
				return false;
	}
	return true;
}

static inline void
device_set(const struct cudasim *sim, void *at, size_t bytes, unsigned char value)
{
	static unsigned char content[DEVICE_VIEW];

	memset(content, value, sizeof(content));
	for (size_t done = 0; done < bytes; done += sizeof(content))
		sim->sim_poke((CUdeviceptr)(uintptr_t)at + done, content,
		              bytes - done < sizeof(content) ? bytes - done
		                                             : sizeof(content));
}

/* NULL: there is no simulator, and the program is to be skipped. */
static inline const struct cudasim *
device_begin(int argc, char **argv, int *rank_p)
{
	const struct cudasim *sim;
	int level;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, rank_p);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	sim = cudasim_load(NULL);
	return sim && sim->sim_peek ? sim : NULL;
}

/* mpirun's exit status says nothing here, so each survivor prints a line, and the test looks for
 * all of them.  MPI_Finalize would wait for the dead. */
static inline void
device_survived(int rank)
{
	printf("rank %d: %s\n", rank,
	       failures ? "FAILED" : "left in order after a peer's death");
	fflush(stdout);
	_exit(exit_status());
}

#endif
