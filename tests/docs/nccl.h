/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stands for <nccl.h> where check.docs compiles the NCCL in a document: the names are
 * NCCL's, what they are is in transport/nccl/nccl_api.h, which a test compares with each
 * <nccl.h> that can be had.
 */
#ifndef DOCS_NCCL_H
#define DOCS_NCCL_H

#include <cuda_runtime.h>

#include "nccl_api.h"

enum {
#define DOCS_CONSTANT(ours, theirs, value) theirs = value,
	BATONI_NCCL_CONSTANTS(DOCS_CONSTANT)
	BATONI_NCCL_CONSTANTS_2_30(DOCS_CONSTANT)
#undef DOCS_CONSTANT
};

#define DOCS_FUNCTION(name, symbol, since, result, parameters)                \
	result symbol parameters;
BATONI_NCCL_FUNCTIONS(DOCS_FUNCTION)
BATONI_NCCL_OPTIONAL(DOCS_FUNCTION)
#undef DOCS_FUNCTION

#define NCCL_CONFIG_INITIALIZER                                               \
	{                                                                     \
		.size = sizeof(ncclConfig_t), .magic = BATONI_NCCL_CONFIG_MAGIC \
	}

#endif
