/* SPDX-License-Identifier: BSD-3-Clause */
/* What the loader fills in for a version, for a file that has NCCL's own types and so
 * cannot see the loader's. */
#ifndef NCCL_CONFIG_H
#define NCCL_CONFIG_H

#include <stddef.h>

struct batoni_nccl_config;

/* Its size in this build, so that both files mean the same structure. */
size_t nccl_config_for(int version, struct batoni_nccl_config *config);

#endif
