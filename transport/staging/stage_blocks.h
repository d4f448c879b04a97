/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The blocks of device memory that staging offers to other processes, and those of others that it has
 * mapped, for mapped.c.
 *
 * Each side keeps a table: of its own blocks, offerings, by the driver's number of the
 * memory; and of those of others, mappings, by rank and number.  The number is asked for at each
 * such send, and no later memory has it: a block whose address is used again is another one, and no
 * stale mapping is met.  A table has BLOCKS_MAX at most; the longest unused one goes first.
 *
 *   QUEUED    to be made: it waits for its job
 *   MAKING    its job runs: shares it, or fetches the descriptor and maps it
 *   TRYING    a mapping: a byte is copied out of it (a mapping that is made may still not be
 *             copied from); by the driver, one at a time
 *   READY
 *   REFUSED   it cannot be: messages from it go in pieces, and the log has the reason
 *   LEAVING   in no table: to be unmade, or that job runs
 *
 * Calls that may block are jobs (thread.h), one at a time.  Nothing waits for them but close, as long
 * as its patience lasts; what then still stands undoes itself, and the device stays open.
 * A block that leaves its table while its job, its trial or a copy is under way is `dropped`: it is
 * unmade behind that.  So nothing is unmapped that a copy reads.
 *
 * Threads.  The driver; and the job of a block, which has the block alone meanwhile, but for its
 * links, state and `dropped`, which it does not touch.
 */
#ifndef BATONI_STAGE_BLOCKS_H
#define BATONI_STAGE_BLOCKS_H

#include "stage.h"
#include "thread.h"

#define BLOCKS_MAX 64u
#define GONE_MAX 64u

enum block_state {
	BLOCK_QUEUED,
	BLOCK_MAKING,
	BLOCK_TRYING,
	BLOCK_READY,
	BLOCK_REFUSED,
	BLOCK_LEAVING
};

struct stage_block {
	struct batoni_job job;
	struct batoni_list_node link; /* of its table, the longest unused first */
	struct batoni_list_node turn; /* of maps->jobs, trials or parting */
	struct batoni_device *device;
	const struct batoni_memory_ops *memory;
	enum block_state state;
	bool foreign; /* a mapping; else an offering */
	bool dropped;
	bool all; /* also memory that its mappings do not keep */
	struct batoni_memory_block of; /* of a mapping, the number alone */
	struct batoni_offer offer;
	/* How its job has ended. */
	enum baton_status status;
	char why[160];
	/* ---- an offering ---- */
	struct batoni_offering offering;
	uint64_t withdrawals; /* when its job was started */
	/* ---- a mapping ---- */
	int peer;
	unsigned users; /* messages */
	struct batoni_mapping *mapping;
	char *base; /* of the block, here */
};

struct stage_table {
	struct batoni_list_node blocks;
	unsigned n;
};

struct stage_maps {
	struct stage_table offerings, mappings;
	struct batoni_list_node jobs; /* blocks, in the order of their jobs */
	struct stage_block *running;  /* its job runs; NULL: none does */
	struct batoni_list_node trials; /* blocks; the first one is tried */
	bool stands;                    /* its copy is under way: */
	struct batoni_ticket trial;
	struct batoni_list_node parting; /* mappings in no table, which copies still read */
	unsigned char *scratch; /* where trials copy to; pinned */
	/* The numbers of offerings that are no more: the last GONE_MAX of gone_n. */
	uint64_t gone[GONE_MAX];
	uint64_t gone_n;
	uint64_t withdrawals; /* that were seen */
	bool told; /* a buffer that is in no block was logged */
};

/* The block of a table, or NULL.  peer: -1 for offerings. */
struct stage_block *batoni_block_find(const struct stage_table *table, int peer,
                                      uint64_t number);
static inline struct stage_block *
stage_block_of(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct stage_block, link);
}
/* It is used now. */
void batoni_block_touch(struct stage_table *table, struct stage_block *block);
/* A new block in a table; NULL: there is no room, or no memory. */
struct stage_block *batoni_block_add(const struct batoni_staging *stage,
                                     struct stage_table *table);
/* Let a job make the block, or (LEAVING) unmake it. */
void batoni_block_queue(const struct batoni_staging *stage,
                        struct stage_block *block, enum block_state state);
/* Take it out of its table, and unmake it, now or behind what is under way. */
void batoni_block_drop(const struct batoni_staging *stage,
                       struct stage_block *block);

#endif
