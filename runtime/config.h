/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment, read once for the process and checked.
 *
 *   BATON_LOG   none, error, warning (the default), info, debug
 */
#ifndef BATONI_CONFIG_H
#define BATONI_CONFIG_H

#include "log.h"

struct batoni_config {
	enum batoni_log_level log_level;
};

/* Any thread. */
const struct batoni_config *batoni_config(void);

#endif
