/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that stage, over the local transport, stepped by hand.  Each rank is on the fake
 * device, whose memory the host cannot touch, or on the host device.
 *
 * Optionally a layer between the two behaves as MPI may: ends are reported late and in any
 * order, and a send cannot be taken back.
 */
#ifndef STAGING_WORLD_H
#define STAGING_WORLD_H

#include "fake_memory.h"
#include "stage.h"

#define RANKS_MAX 4
#define SLOTS 4200
#define HIDDEN_TAGS 4

/* The pools of all tests but those that say otherwise. */
#define CHUNK ((size_t)1000)
#define CHUNKS_EACH 4u
#define EAGER ((size_t)200)
#define EAGERS_EACH 6u
#define EAGER_PEER 3u

struct rank {
	struct batoni_upcalls upcalls;
	struct batoni_device *device;
	struct batoni_transport *transport; /* NULL: closed */
	/* What it reported, by slot. */
	bool ended[SLOTS];
	enum baton_status status[SLOTS];
	size_t ends;
	unsigned moves;
	bool deferred; /* its path is to be flushed */
	enum baton_status broken;
	struct batoni_transfer transfers[SLOTS];
	void *buffers[SLOTS];
};

struct world {
	int size;
	/* Issue several in one go, as a pass does: flush() is the end of it.  Else each is
	 * issued by itself. */
	bool gathers;
	bool managed; /* memory of a device is managed */
	struct rank *ranks;
};

/* "dh": rank 0 is on the fake device, rank 1 on the host's.  late: see above. */
void open_world(struct world *world, const char *devices, bool late);
void open_world_with(struct world *world, const char *devices, bool late,
                     const struct batoni_staging_config *config);
/* Each rank has chunks of its own. */
void open_world_each(struct world *world, const char *devices, bool late,
                     const struct batoni_staging_config *const configs[]);
/* Messages between an even and an odd rank go by a path beside the lower transport, which late is about.
 * So often a peer was connected there. */
void open_world_beside(struct world *world, const char *devices, bool late);
unsigned connects_beside(void);
void close_rank(struct world *world, int rank);
/* Close the ranks that are left; nothing of theirs is left. */
void close_world(struct world *world);

struct batoni_staging *stage_of(const struct world *world, int rank);

/* Issue a send, filled by the seed, or a receive, filled with 0xee, in memory of the rank
 * (`host`: in host memory).  The buffer is freed when the world is closed. */
enum baton_status start_send(struct world *world, int rank, uint32_t slot,
                             int peer, int tag, size_t bytes, unsigned seed,
                             bool host);
enum baton_status start_recv(struct world *world, int rank, uint32_t slot,
                             int peer, int tag, size_t bytes, bool host);

/* In a late world: the lower transport of this rank ends the n-th receive of a piece from now
 * on in MPI. */
void fail_piece_lower(struct world *world, int rank, unsigned n);

/* Issue a list, which the caller keeps until it has ended. */
enum baton_status start_list(struct world *world, int rank, uint32_t slot,
                             enum batoni_direction direction, int peer, int tag,
                             struct batoni_tensor_list *list);

/* The end of what was issued together by all ranks. */
void flush(struct world *world);

/* Test all ranks until nothing has happened for a while and no copy is under way. */
void run(struct world *world);
/* Test one rank a few times, or once. */
void step(struct world *world, int rank);
void test_once(struct world *world, int rank);

enum baton_status take_back(struct world *world, int rank, uint32_t slot);

/* The transfer has ended so, with that many bytes. */
void assert_ended(const struct world *world, int rank, uint32_t slot,
                  enum baton_status status, size_t bytes);
void assert_pending(const struct world *world, int rank, uint32_t slot);
/* The receive holds the pattern, and 0xee after it. */
void assert_content(const struct world *world, int rank, uint32_t slot,
                    size_t bytes, unsigned seed);
/* Nothing is in flight, and all pinned memory is free. */
void assert_idle(const struct world *world, int rank);
/* How many tokens are in use. */
unsigned in_use(const struct world *world, int rank, unsigned direction,
                unsigned kind);

#endif
