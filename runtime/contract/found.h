/* SPDX-License-Identifier: BSD-3-Clause */
/* Libraries that leaves use where they are there: what baton_library tells of each. */
#ifndef BATONI_FOUND_H
#define BATONI_FOUND_H

#include <baton.h>

struct batoni_finder {
	const char *name;
	/* Look for it, and fill what the struct says of it; texts are "" before, and those that it
	 * sets live as long as the library.  Any thread, several at once; may block in the loader.
	 * NULL: this build left it out. */
	void (*find)(struct baton_library_info *info_p);
};

/* transport/bootstrap/mpi/family.c, runtime/device/cuda/cuda_api.c, transport/nccl/nccl_api.c,
 * runtime/diag/nvtx.c */
void batoni_mpi_find(struct baton_library_info *info_p);
void batoni_cuda_find(struct baton_library_info *info_p);
void batoni_nccl_find(struct baton_library_info *info_p);
void batoni_nvtx_find(struct baton_library_info *info_p);

/* The file that a function lies in, or "". */
const char *batoni_file_of(void (*function)(void));

#endif
