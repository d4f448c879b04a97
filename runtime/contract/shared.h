/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory of other processes of the node, for windows and for messages (shared.c). */
#ifndef BATONI_SHARED_H
#define BATONI_SHARED_H

#include <stdatomic.h>

#include "device.h"
#include "handover.h"
#include "list.h"

/* A block of another process, mapped here. */
struct batoni_mapping;

/* What a rank tells others of bytes of its device: of its part of a window, in the exchange that
 * follows that of the parts where one of them is memory of a device. */
struct batoni_offer {
	int32_t status;  /* of a window, not OK: the rank is refused */
	uint32_t offered; /* 0: nothing to map, and `why` says why not */
	uint64_t bytes;  /* of the block */
	uint64_t offset; /* of the bytes, in it */
	union {
		struct batoni_memory_name name;
		char why[sizeof(struct batoni_memory_name)];
	};
	/* How the descriptor is fetched; fd -1: the name is enough. */
	struct batoni_handover_name descriptor;
};

static_assert(sizeof(struct batoni_offer) == 216, "so many bytes of each rank");

/* What this rank keeps as long as other ranks may fetch the memory. */
struct batoni_offering {
	struct batoni_handover *handover;
	int fd;    /* -1: none */
	bool kept; /* memory.h */
	/* ---- those of messages, whose memory may be freed meanwhile ---- */
	struct batoni_list_node link; /* of all of the process; guarded by the list's lock */
	const char *base;             /* NULL: it is in no list */
	size_t bytes;
	_Atomic bool withdrawn;
};

/* Offer nothing, for this reason. */
void batoni_offer_nothing(struct batoni_offer *offer, const char *why);
/* Offer these bytes, memory of the device; blocks for calls of the device.  OK, also where it does not
 * share them, and the offer says why; CUDA, NOMEM: batoni_refuse has said why, and the offer is of
 * nothing.  close: when no process fetches any more; also allowed after an error, and without
 * an offer. */
enum baton_status batoni_offer_make(struct batoni_device *device,
                                    const struct batoni_memory_ops *memory,
                                    const void *pointer, size_t bytes,
                                    struct batoni_offering *offering,
                                    struct batoni_offer *offer);
void batoni_offering_close(struct batoni_offering *offering);

/* The offering is of this block, whose memory may be freed before it is closed.  It is not moved from
 * here on.  Any thread. */
void batoni_offering_list(struct batoni_offering *offering,
                          const struct batoni_memory_block *block);
/* This memory is about to be freed: no process may fetch it any more, and offerings of it that are in the
 * list become `withdrawn`.  The maker of an offering reads the number of withdrawals before it shares the
 * memory, and again when the offering is in the list: if the two differ, the memory may be gone.  Any thread; blocks as
 * batoni_handover_close. */
void batoni_offerings_withdraw(const void *base, size_t bytes);
uint64_t batoni_withdrawals(void);

/* Map the block that a rank of another process offers; a block that this process has mapped
 * already is mapped once.  pidfd: of that process, or -1 (batoni_handover_fetch); blocks until
 * until_ns at most, and for its own calls of the device.  OK: *base_p is where the bytes are; UNSUPPORTED, NOMEM, CUDA, and what
 * batoni_handover_fetch returns: batoni_refuse has said why. */
enum baton_status batoni_mapping_take(struct batoni_device *device,
                                      const struct batoni_memory_ops *memory,
                                      const struct batoni_offer *offer,
                                      int pidfd, uint64_t until_ns,
                                      struct batoni_mapping **mapping_p,
                                      char **base_p);
/* Give the mapping back; no copy uses it.  The device may be another open of the one that it was taken for.
 * NULL is allowed. */
void batoni_mapping_give(struct batoni_device *device,
                         struct batoni_mapping *mapping);
/* Give it up while copies may use it: it stays mapped for the life of the process. */
void batoni_mapping_abandon(struct batoni_mapping *mapping);
/* For tests: how many blocks this process has mapped. */
unsigned batoni_mappings(void);

#endif
