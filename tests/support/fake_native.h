/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A native transport whose step is the test's: creations over it fail, or give up, where the test
 * wants them to.
 */
#ifndef FAKE_NATIVE_H
#define FAKE_NATIVE_H

#include <stdbool.h>

#include "native.h"

enum { FAKE_NATIVES_MAX = 8 };

/* One for each rank of this process, in the order of their creation. */
struct batoni_native {
	bool alive; /* neither discarded nor, by the test's step, opened */
};
extern struct batoni_native fake_natives[FAKE_NATIVES_MAX];

/* How many were created, and how many are alive. */
int fake_natives_created(void);
int fake_natives_alive(void);

/* As NCCL's, with this step.  The caller gives it to batoni_native_put. */
struct batoni_native_ops
fake_native_ops(enum baton_status (*step)(struct batoni_native *native,
                                          struct batoni_transport *lower,
                                          struct batoni_transport **transport_p));

#endif
