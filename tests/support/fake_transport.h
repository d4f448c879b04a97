/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream-issued transport without hardware, on the fake device: its transfers
 * occupy streams, as NCCL's do.
 *
 *   - A transfer occupies its stream until the matching one has reached the head of
 *     its peer's; then the bytes move and both streams continue.  A group starts
 *     when all of its streams have reached it, and they continue when all of it is
 *     done.  Detached transfers run on internal streams, one for each peer and
 *     direction, and start when the callers' streams have reached them.
 *   - Transfers match in the order of the calls, for each (source, destination),
 *     and never overtake.  Directions and peers do not wait for each other.
 *   - No tags, no short or longer messages (lengths that differ count as a
 *     violation of the device), no cancel; a message to oneself needs both ends
 *     in one group.
 */
#ifndef FAKE_TRANSPORT_H
#define FAKE_TRANSPORT_H

#include "transport.h"

/* All ranks at once; they are closed one by one.  The transport opens the fake
 * device itself: streams are shared by all opens of it.  OK, NOMEM. */
enum baton_status fake_transport_open(int size,
                                      struct batoni_transport *transports[]);

#endif
