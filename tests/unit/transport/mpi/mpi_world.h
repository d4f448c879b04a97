/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI transport by itself, two ranks, without the engine: a small driver
 * calls its slots and keeps what they say.
 *
 * Both ranks run the same tests.  They keep in step by the messages of the test
 * and by barriers on a communicator of their own, never by time.  A world is open
 * when a test begins, and the last line of the test closes it.
 */
#ifndef MPI_WORLD_H
#define MPI_WORLD_H

#include <check.h>

#include "mpi_transport.h"

#define SLOTS 1024u
#define HIDDEN_SLOTS 8u
#define HIDDEN_TAGS 6
#define SEGMENT_BYTES ((size_t)8256)
#define HEADER ((size_t)BATONI_MPI_HEADER_BYTES)
#define CANARY 0xa5
#define GUARD 4096u
/* What a transport allocates, and the pidfd of the other rank. */
#define BLOCKS 14

/* One transfer of the test. */
struct op {
	struct batoni_transfer transfer;
	enum baton_status status;
	unsigned ends;
};

/* Everything that a test uses; made afresh for each. */
struct world {
	MPI_Comm side; /* for the test's own barriers */
	int rank, peer;
	int type; /* of messages that are issued */
	struct batoni_mpi *mpi;
	struct batoni_transport *transport;
	struct batoni_upcalls upcalls;
	unsigned broken;
	enum baton_status broken_status;
	char broken_text[MPI_MAX_ERROR_STRING];
	const char *broken_call;
	struct op ops[SLOTS + HIDDEN_SLOTS];
	uint32_t used;
};
extern struct world world;
extern const struct batoni_transport_config config;

/* ---- calls of MPI, which come to the world first ---- */

extern int texts_asked;
/* Requests that the transport has had tested. */
extern unsigned tested;
/* Derived types that the transport has made. */
extern unsigned types_made;
/* Not NULL: the function of this name fails, and does nothing. */
extern const char *failing;
/* Not 0: MPI has tags up to this one. */
extern int highest_tag;
/* Of a transport whose buffers may be memory of a device: calls of MPI that were made without
 * having entered it. */
struct reach {
	bool watched;
	int entered;
	unsigned outside;
};
extern struct reach reach;

/* ---- the driver ---- */

void open_with(const struct batoni_transport_config *opened);
void open_world(void);
void close_world(void);
/* Both ranks are broken for this reason, and sends are left to MPI. */
void close_broken(const char *text);
/* The close of an aborted communicator gives back all that the transport has allocated; `blocks` were there. */
void close_aborted(long blocks);
/* Call the slot until it says something else than PENDING. */
enum baton_status whole(enum baton_status (*slot)(struct batoni_transport *transport));

struct op *issue_message(enum batoni_direction direction, void *buffer, size_t bytes,
                         int peer, int tag);
struct op *post(void *buffer, size_t bytes, int peer, int tag);
struct op *sent(const void *buffer, size_t bytes, int peer, int tag);
/* Test until the transfer has ended, and check how. */
void finish(struct op *op, enum baton_status status, size_t bytes);
enum baton_status take_back(struct op *op);
/* All that have not ended; nothing has come for them. */
void take_all_back(void);
void barrier(void);
/* Wait until a message on the tag is here, unreceived. */
void await_arrival(int tag);
/* Of the bodies from here to the peer, so many are under way at once without a
 * grant. */
void have_few_tags(uint32_t segment_tags);

/* ---- buffers ---- */

/* `bytes` and a guard behind them; all canaries. */
unsigned char *room(size_t bytes);
void *zeroed(size_t n, size_t size);
unsigned char pattern(size_t i, int seed);
unsigned char *message(size_t bytes, int seed);
void check_message(const unsigned char *buffer, size_t bytes, int seed);
/* Nothing was written from `bytes` on. */
void check_guard(const unsigned char *buffer, size_t bytes, size_t capacity);

/* ---- the cases ---- */

/* Each in a world of its own; the first that fails aborts both ranks. */
void run_cases(const TTest *const tests[], size_t n);

/* The cases of test_mpi_NAME.c. */
void test_mpi_messages(void);
void test_mpi_follow(void);
void test_mpi_take_back(void);
void test_mpi_body(void);
void test_mpi_lists(void);
void test_mpi_open(void);
void test_mpi_clear(void);
void test_mpi_fail(void);
void test_mpi_reach(void);

#endif
