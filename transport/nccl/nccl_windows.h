/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts by NCCL's one-sided calls: what its three files share (nccl_puts.c has the rules). */
#ifndef BATONI_NCCL_WINDOWS_H
#define BATONI_NCCL_WINDOWS_H

#include <stdatomic.h>

#include "list.h"
#include "native_puts.h"
#include "nccl_transport.h"

/* What is staged at a time, and the puts under way; each has a chunk. */
#define BATONI_NCCL_CHUNK ((size_t)256 << 10)
#define BATONI_NCCL_PUTS 16u
#define BATONI_NCCL_STAGING (BATONI_NCCL_CHUNK * BATONI_NCCL_PUTS)

/* One call of NCCL's, from the driver. */
enum batoni_nccl_call_state {
	BATONI_NCCL_CALL_NONE,
	BATONI_NCCL_CALL_LAUNCHING, /* NCCL has not put it on the stream yet */
	BATONI_NCCL_CALL_PLACED,    /* it has, and the device has refused the mark */
	BATONI_NCCL_CALL_RUNNING    /* the mark is behind it */
};

struct batoni_nccl_call {
	enum batoni_nccl_call_state state;
	const char *name;
	struct batoni_mark mark;
	unsigned refused; /* PLACED: how often the device has refused it */
	bool lost;        /* the communicator broke for it, which ends it */
};

enum batoni_nccl_put_state {
	BATONI_NCCL_PUT_FREE,
	BATONI_NCCL_PUT_BEGUN,   /* the next part is to be begun */
	BATONI_NCCL_PUT_COPYING, /* into its chunk */
	BATONI_NCCL_PUT_READY,   /* to be given to NCCL */
	BATONI_NCCL_PUT_GIVEN    /* `call` is under way */
};

struct batoni_nccl_put {
	enum batoni_nccl_put_state state;
	struct batoni_native_put put;
	bool staged;
	size_t done, part; /* bytes that have left; those under way */
	uint64_t units;    /* its last part's number */
	struct batoni_ticket ticket; /* COPYING */
	struct batoni_nccl_call call;
};

/* What has come from a rank, and what has gone to it. */
struct batoni_nccl_side {
	uint64_t sent;    /* units begun to it */
	uint64_t asked;   /* units of it that NCCL was told to wait for */
	uint64_t reached; /* of these, known to have come */
	struct batoni_nccl_call call; /* of the wait under way */
};

struct batoni_native_window {
	struct batoni_list_node link; /* of puts->windows */
	ncclWindow_t handle; /* NCCL writes it when all ranks have registered */
	char *base;
	size_t bytes;
	bool told;         /* NCCL was told to register it; until then `handle` is ours */
	bool ending;       /* puts from it are staged; under windows_lock */
	uint64_t limit_ns; /* to be registered by then */
};

struct batoni_nccl_puts {
	/* Constant once opened. */
	struct batoni_nccl_lane *lane;
	ncclUniqueId id;
	char *staging; /* the device's, as of baton_mem_alloc; NULL: it was left to itself */
	ncclWindow_t staging_window;
	/* Guards windows, the list and nothing else; a leaf. */
	pthread_mutex_t windows_lock;
	struct batoni_list_node windows; /* registered, or being so */
	/* A window is to be registered when the call under way is over; no other is begun.  Written
	 * by the thread that registers. */
	atomic_bool registers;
	/* The driver. */
	struct batoni_nccl_put puts[BATONI_NCCL_PUTS];
	/* NCCL takes one call after the other. */
	struct batoni_nccl_call *launching;
	uint64_t launching_limit_ns;
	/* Waits that NCCL was given and has not been seen to end.  Written by the driver; the
	 * thread that ends the communicator by force reads it. */
	atomic_uint waits;
	struct batoni_nccl_side sides[]; /* by rank */
};

/* nccl_windows.c: slots of the table (native_puts.h). */
enum baton_status batoni_nccl_window_inspect(struct batoni_transport *transport,
                                             const void *base, size_t bytes,
                                             struct batoni_native_part *part_p);
enum baton_status batoni_nccl_window_open(struct batoni_transport *transport,
                                          void *base, size_t bytes,
                                          struct batoni_native_window **window_p);
enum baton_status batoni_nccl_window_opened(struct batoni_transport *transport,
                                            struct batoni_native_window *window);
bool batoni_nccl_window_let_go(struct batoni_transport *transport,
                               struct batoni_native_window *window);
void batoni_nccl_window_close(struct batoni_transport *transport,
                              struct batoni_native_window *window);
/* Are these bytes all in one window, from which NCCL may read? */
bool batoni_nccl_window_has(struct batoni_nccl_puts *puts, const char *from,
                            size_t bytes);
/* How far NCCL is with the call before.  Under the lock of the device. */
ncclResult_t batoni_nccl_puts_state(const struct batoni_nccl *nccl);

#endif
