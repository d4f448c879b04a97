/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies by a device's memory table: the rules that each transport keeps which makes some.
 */
#ifndef BATONI_COPIES_H
#define BATONI_COPIES_H

#include "device.h"
#include "transport.h"

/* Do two copies write to the same bytes?  A program may name memory in several receives, and
 * copies that are started together have no order. */
bool batoni_copies_overlap(const struct batoni_copy *a, const struct batoni_copy *b);

/* Closing: wait until this copy, which was started, has ended, in whatever way.  The driver.
 * False: the device does not end it. */
bool batoni_copy_await(struct batoni_device *device, struct batoni_ticket *ticket,
                       const struct batoni_patience *patience);

#endif
