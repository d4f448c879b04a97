/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract between the engine and a transport that makes the communicators of a whole
 * job (MPI): the *world*.  The world knows how to find the other ranks; it makes the
 * communicator with the engine's functions, which it gets as a table.
 */
#ifndef BATONI_WORLD_H
#define BATONI_WORLD_H

#include "device.h"
#include "transport.h"

/* The options after checks and defaults.  The fields that all ranks must agree on come
 * first. */
struct batoni_comm_plan {
	enum baton_device device;
	enum baton_transport transport;
	const struct batoni_device_ops *device_ops;
	/* host_rank is -1 where no launcher tells it: the world fills it in. */
	struct batoni_device_config device_config;
	bool onesided;      /* signals and windows, where the transport has peers */
	int size;           /* of the communicator, once it is known */
	uint32_t requests_max;
	int signals_max, contexts_max;
	uint32_t tensors_max;
	int nccl_lanes;     /* 0: as many as are of use */
	int nccl_ctas;      /* 0: half of the GPU among them */
	bool nccl_lists;    /* NCCL is to carry lists */
	int64_t timeout_ns; /* 0: none */
	enum baton_progress progress;
	bool timestamps;
	bool check; /* the two sides of a message are compared */
	/* Agreed on by all ranks before any prepares, because the format of what travels
	 * follows from it.  `plan` sets what this rank alone would have. */
	bool stages;            /* some rank's messages may be memory of a device that the
	                         * transport cannot reach: all ranks speak staging's protocol */
	bool direct;            /* the transport reaches the memory of this rank's device */
	bool apart;             /* it does on some rank: each tensor of a list is a message of
	                         * its own */
	uint32_t requests_most; /* the largest requests_max */
	size_t message_max; /* of the transport below a native one; 0: any length */
};

/*
 * What the engine gives to a world.  First the ranks agree on their plans.  Then each builds
 * its communicator in two steps, and between them the ranks agree on whether all got their
 * memory.  `prepare` takes everything that can fail on this rank alone (table entry, pool,
 * device, engine thread, staging, one-sided layer for plan->size ranks): OK, NOMEM, AGAIN,
 * SYSTEM, INVALID, UNSUPPORTED, CUDA.  Then the world calls either `start`, which takes over the
 * transport and cannot fail, or `discard`.
 */
struct batoni_builder {
	/* Check the options (NULL: the defaults) and fill *plan_p.  OK, INVALID,
	 * UNSUPPORTED (with a sentence by batoni_refuse). */
	enum baton_status (*plan)(const struct baton_comm_options *options,
	                          struct batoni_comm_plan *plan_p);
	enum baton_status (*prepare)(const struct batoni_comm_plan *plan,
	                             struct baton_comm **comm_p);
	/* The configuration of the transport for this communicator, which was prepared
	 * from the plan. */
	struct batoni_transport_config (*transport_config)(
		const struct batoni_comm_plan *plan,
		const struct baton_comm *comm);
	void (*start)(struct baton_comm *comm,
	              struct batoni_transport *transport);
	void (*discard)(struct baton_comm *comm);
	/* Between the last agreement and `start`, on all ranks, for a plan whose transport is
	 * not the world's own: open it over the world's, *transport_p.  Without the driver
	 * lock; waits for the others, within a time limit, and calls `exchange`.  OK:
	 * *transport_p is what goes to `start`.  An error, on all ranks: it is unchanged, but
	 * an `exchange` may be under way.  Close it before `discard`. */
	enum baton_status (*open_native)(struct baton_comm *comm,
	                                 struct batoni_transport **transport_p);
	/* BATON_OK, or what broke the communicator.  Any thread. */
	enum baton_status (*status)(const struct baton_comm *comm);

	/* The driver lock, for a library that only one thread at a time may call.
	 * Hold it around calls of that library, never across a wait for a peer.
	 * driver_yield, between two polls for something that a peer sends: leave,
	 * pause, take. */
	void (*driver_take)(void);
	void (*driver_leave)(void);
	void (*driver_yield)(unsigned tries);

	/* Stop the engine's thread for good: at exit, before the library below is
	 * finalised.  From then on only calls make progress.  False: this thread was
	 * interrupted in a call of Baton, or the engine's thread does not end.  The
	 * library may then not be finalised, since a lock may be held for ever. */
	bool (*engine_stop)(void);
};

struct batoni_world {
	enum baton_transport id;
	/* This process is part of a job that this transport can serve: it was
	 * started by a launcher, or the program runs the library already. */
	bool (*present)(void);
	/* baton_comm_create over it, the plan being checked; NULL: it was refused
	 * on this rank, which only tells the others.  Collective. */
	enum baton_status (*create)(const struct batoni_builder *builder,
	                            const struct batoni_comm_plan *plan,
	                            struct baton_comm **comm_p);
	/* The same over `parent`, an object of the library below (MPI: an MPI_Comm *).
	 * Collective over it. */
	enum baton_status (*create_over)(const struct batoni_builder *builder,
	                                 const void *parent,
	                                 const struct baton_comm_options *options,
	                                 struct baton_comm **comm_p);
};

/* transport/bootstrap/mpi/bootstrap.c, where MPI is built in */
extern const struct batoni_world batoni_world_mpi;

#endif
