/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host-issued transport that the test scripts: what each slot returns, when and
 * how a transfer ends, when the transport breaks.  It moves no bytes.
 *
 * The test owns its memory: it calls scripted_init first, and can still read what
 * happened after the communicator was destroyed.  Change settings before the driver
 * runs, or in a hook.  scripted_end and scripted_break may be called at any time
 * and take effect in the next test.
 */
#ifndef SCRIPTED_TRANSPORT_H
#define SCRIPTED_TRANSPORT_H

#include <semaphore.h>

#include "testing.h"
#include "transport.h"

#define SCRIPTED_SLOTS 256

struct scripted;
typedef void (*scripted_hook)(struct scripted *scripted,
                              struct batoni_transfer *transfer);

struct scripted {
	struct batoni_transport base; /* must be first */
	/* How the slots answer.  issue: its fail_at-th call from now (1 is the
	 * next) ends in fail_with, the others in issue (PENDING: it is in
	 * flight).  done_bytes of those that end at once is their length. */
	enum baton_status issue, fail_with;
	unsigned fail_at;
	enum baton_status take_back; /* CANCELED at first */
	enum baton_status leave, clear; /* OK at first */
	size_t test_events;          /* made by each test beside the ends */
	/* Called first in the slot, on the driver. */
	scripted_hook on_issue, on_test, on_take_back, on_await;
	void *arg; /* of the hooks */
	sem_t tested;  /* posted by each test, if `signals` */
	bool signals;
	bool moves_at_close; /* close tells the engine that something moves */

	/* What happened: "s1 r2 -s1 " are issues and take-backs by direction
	 * and tag, in order. */
	char log[4096];
	size_t issues, take_backs, leaves, clears;
	_Atomic size_t tests;
	bool closed, closed_aborted;

	/* The transport's own. */
	pthread_mutex_t lock;
	_Atomic(struct batoni_transfer *) live[SCRIPTED_SLOTS]; /* by slot */
	struct {
		struct batoni_transfer *transfer;
		size_t bytes;
		enum baton_status status;
	} ends[SCRIPTED_SLOTS]; /* guarded by lock */
	size_t ends_n;          /* guarded by lock */
	enum baton_status fatal; /* guarded by lock; OK: none */
	const char *fatal_call, *fatal_text;
	int fatal_code;
};

/* Rank 0 of 4, tags up to 2^20, ANY drivers; issue returns PENDING. */
void scripted_init(struct scripted *scripted);
/* Its communicator, on the host device: progress by calls alone and 16 requests
 * if options is NULL. */
struct baton_comm *scripted_comm(struct scripted *scripted,
                                 const struct baton_comm_options *options);
/* Options of that communicator. */
struct baton_comm_options scripted_options(void);
/* Destroy the communicator, after an abort if transfers are in flight, and check
 * that nothing is left. */
void scripted_close(struct scripted *scripted, struct baton_comm *comm);

/* Enqueue a send of 8 bytes to rank 1, or a receive of 8 bytes from it. */
baton_request scripted_send(struct baton_comm *comm, baton_stream stream,
                            int tag, const struct baton_op_options *options);
baton_request scripted_recv(struct baton_comm *comm, baton_stream stream,
                            int tag, const struct baton_op_options *options);
baton_stream scripted_stream(struct baton_comm *comm);
/* Destroy the stream, before or after the communicator; NULL is allowed. */
void scripted_stream_close(baton_stream stream);
/* The request has ended with this status and is not lent; release it. */
void scripted_assert_ended(baton_request request, enum baton_status status);
/* Make one pass; the request has not ended. */
void scripted_assert_pending(baton_request request);
/* Exactly n requests can be enqueued; cancel and release them.  Uses the default
 * stream, which must be idle; take_back must be CANCELED. */
void scripted_assert_free(struct baton_comm *comm, unsigned n);

/* The transfer in flight with this direction and tag; the test fails if there is
 * none. */
struct batoni_transfer *scripted_live(struct scripted *scripted,
                                      enum batoni_direction direction, int tag);
/* The same where another thread drives and may not have started it yet. */
struct batoni_transfer *scripted_await(struct scripted *scripted,
                                       enum batoni_direction direction, int tag);
/* Let it end in the next test. */
void scripted_end(struct scripted *scripted, struct batoni_transfer *transfer,
                  size_t bytes, enum baton_status status);
/* End it at once; only within a hook. */
void scripted_end_now(struct scripted *scripted,
                      struct batoni_transfer *transfer, size_t bytes,
                      enum baton_status status);
/* Break the transport in the next test.  The strings must stay valid. */
void scripted_break(struct scripted *scripted, enum baton_status fatal,
                    const char *call, int code, const char *text);

#endif
