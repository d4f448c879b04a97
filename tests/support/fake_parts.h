/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layout of a kernel that one call of a path's enqueue makes: which streams its parts are
 * on, and which of them have reached it.
 *
 * The first parts are the callers: the distinct streams of its transfers, or those that a
 * detached call follows.  A detached kernel has lanes behind them, on which its transfers run.
 * The kernel's work begins when all callers have reached it.
 *
 * The owner's lock guards it from launch on; enqueuing it is alone.
 */
#ifndef FAKE_PARTS_H
#define FAKE_PARTS_H

#include "fake_device.h"
#include "path.h"

/* Must be first in the owner's kernel. */
struct fake_parts {
	struct fake_kernel base; /* must be first */
	size_t callers, count;
	size_t left;    /* parts that have not continued */
	size_t arrived; /* callers that have reached it */
	bool *here;     /* by part */
	size_t *of;     /* by transfer: the part that it occupies */
	baton_stream *streams; /* by part */
};

/* A zeroed kernel of `bytes` bytes, for n transfers; NULL: no memory. */
struct fake_parts *
fake_parts_create(size_t bytes, size_t n, const struct batoni_follow *follow,
                  bool (*poll)(struct fake_kernel *kernel, size_t part));
void fake_parts_free(struct fake_parts *parts);

/* The stream on which a detached transfer runs.  OK, or why there is none. */
typedef enum baton_status (*fake_lane_fn)(void *owner,
                                          const struct batoni_transfer *transfer,
                                          baton_stream *lane_p);

/* Lay it out; observe_p: as in batoni_path_ops.enqueue.  OK, or what `lane` says. */
enum baton_status fake_parts_lay_out(struct fake_parts *parts,
                                     struct batoni_transfer *const *transfers,
                                     size_t n,
                                     const struct batoni_follow *follow,
                                     fake_lane_fn lane, void *owner,
                                     baton_stream *observe_p);
/* Give it to the device; the last part that continues frees it.  As fake_device_launch. */
enum baton_status fake_parts_launch(struct fake_parts *parts);

/* In poll: a stream has got to this part. */
void fake_parts_arrive(struct fake_parts *parts, size_t part);

static inline bool
fake_parts_detached(const struct fake_parts *parts)
{
	return parts->count > parts->callers;
}

static inline bool
fake_parts_all_arrived(const struct fake_parts *parts)
{
	return parts->arrived == parts->callers;
}

/* The part continues.  True: it was the last one, and the kernel is the owner's to free. */
static inline bool
fake_parts_leave(struct fake_parts *parts)
{
	return --parts->left == 0;
}

/* Destroy a lane, NULL allowed; aborted parts leave it when it reaches them. */
void fake_lane_destroy(struct batoni_device *device, baton_stream lane);

#endif
