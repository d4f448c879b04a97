/* SPDX-License-Identifier: BSD-3-Clause */
/* What Baton is made of beside its engine: the leaves, as parts.c lists them. */
#ifndef BATONI_PARTS_H
#define BATONI_PARTS_H

#include "native.h"
#include "onesided.h"
#include "opening.h"
#include "side.h"
#include "staging.h"

struct batoni_parts {
	/* Both end with NULL; the first that applies is taken. */
	const struct batoni_device_ops *const *devices;
	const struct batoni_world *const *worlds;
	/* The bootstrap of ranks of this process. */
	const struct batoni_threads_ops *threads;
	/* What opens the transport over a bootstrap, by its kind (enum batoni_bootstrap_kind). */
	const struct batoni_opening_ops *const *openings;
	/* The transport by the device's own library, over another one. */
	const struct batoni_native_ops *native;
	/* For devices whose memory the host cannot touch. */
	const struct batoni_staging_ops *staging;
	/* The side channel between processes, where there is no MPI. */
	const struct batoni_side_ops *side;
	const struct batoni_onesided_ops *onesided;
};

/* runtime/parts.c */
extern const struct batoni_parts batoni_parts;

#endif
