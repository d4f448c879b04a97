/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_config.h"

#include "nccl_api.h"

size_t
nccl_config_for(int version, struct batoni_nccl_config *config)
{
	const struct batoni_nccl_api api = {.version = version};

	batoni_nccl_config_init(&api, config);
	return sizeof(*config);
}
