/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators whose ranks are in this process, created all at once.  Those that come one by
 * one, with an id: comm_id.c.
 */
#include "core.h"

#include <string.h>

#include "comm.h"
#include "creation.h"
#include "log.h"
#include "mem.h"
#include "registry.h"
#include "testing.h"

#define SIZE_MAX_LOCAL ((int)BATONI_COMMS_MAX - 1)

/* ---- all at once ---- */

static enum baton_status
refuse_memory(int size)
{
	return batoni_refuse(BATON_ERR_NOMEM, "no memory for %d local ranks",
	                     size);
}

/* Some ranks have failed, and others may have started. */
static enum baton_status
refuse_all(const struct batoni_creation *failed,
           struct batoni_creation creations[], int size)
{
	for (int i = 0; i < size; i++) {
		if (creations[i].comm) {
			baton_comm_abort(creations[i].comm);
			baton_comm_destroy(creations[i].comm);
		}
	}
	return batoni_refuse(failed->status, "%s", failed->why);
}

/* setups: by rank.  Writes comms on success only. */
static enum baton_status
build_local(const struct batoni_comm_setup setups[], int size,
            struct baton_comm *comms[])
{
	struct batoni_creation *creations =
		batoni_alloc((size_t)size, sizeof(*creations));
	enum baton_status status = BATON_OK;
	struct batoni_creation *failed;
	struct batoni_board *board;

	if (!creations ||
	    batoni_threads_layer()->open(size, &board) != BATON_OK) {
		batoni_free(creations);
		return refuse_memory(size);
	}
	for (int i = 0; i < size; i++) {
		batoni_creation_begin(&creations[i], &setups[i], BATON_OK);
		batoni_threads_layer()->join(board, i, &creations[i].bootstrap);
	}
	failed = batoni_creation_run_all(creations, size);
	if (failed)
		status = refuse_all(failed, creations, size);
	for (int i = 0; i < size && !failed; i++)
		comms[i] = creations[i].comm;
	batoni_free(creations);
	return status;
}

/* All ranks have the setup. */
static enum baton_status
build_alike(const struct batoni_comm_setup *setup, int size,
            struct baton_comm *comms[])
{
	struct batoni_comm_setup *setups =
		batoni_alloc((size_t)size, sizeof(*setups));
	enum baton_status status;

	if (!setups)
		return refuse_memory(size);
	for (int i = 0; i < size; i++)
		setups[i] = *setup;
	status = build_local(setups, size, comms);
	batoni_free(setups);
	return status;
}

enum baton_status
batoni_local_size(const char *call, int size)
{
	if (size >= 1 && size <= SIZE_MAX_LOCAL)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: size is %d; it takes 1 to %d", call, size,
	                     SIZE_MAX_LOCAL);
}

enum baton_status
batoni_local_transport(const char *call, int size, struct batoni_comm_setup *setup)
{
	if (setup->transport == BATON_TRANSPORT_MPI)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: options->transport is "
		                     "BATON_TRANSPORT_MPI; the ranks of one process "
		                     "meet on BATON_TRANSPORT_LOCAL or %s",
		                     call, batoni_native_layer()->constant);
	/* Between ranks of one process, near is nothing else. */
	if (setup->transport == BATON_TRANSPORT_AUTO ||
	    setup->transport == BATON_TRANSPORT_NEAR)
		setup->transport = BATON_TRANSPORT_LOCAL;
	setup->size = size;
	return BATON_OK;
}

static enum baton_status
setup_local(const char *call, int size, const struct baton_comm_options *options,
            struct batoni_comm_setup *setup)
{
	enum baton_status status = batoni_local_size(call, size);

	if (status == BATON_OK)
		status = batoni_comm_setup(options, setup);
	return status == BATON_OK ? batoni_local_transport(call, size, setup)
	                          : status;
}

enum baton_status
baton_comm_create_local(int size, const struct baton_comm_options *options,
                        struct baton_comm *comms[])
{
	struct batoni_comm_setup setup;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create_local");
	if (!comms)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_local: comms is NULL");
	status = setup_local("baton_comm_create_local", size, options, &setup);
	return status == BATON_OK ? build_alike(&setup, size, comms) : status;
}

/* ---- for tests ---- */

enum baton_status
batoni_comm_create_over(const struct batoni_device_ops *device,
                        struct batoni_transport *transports[], int size,
                        const struct baton_comm_options *options,
                        struct baton_comm *comms[])
{
	struct batoni_comm_setup setup;
	enum baton_status status;
	int n = 0;

	status = batoni_comm_setup(options, &setup);
	if (status != BATON_OK)
		return status;
	batoni_comm_setup_on(&setup, device);
	setup.onesided = !transports[0]->messages.ops->stream_issued;
	setup.check = false; /* these transports were opened without */
	/* A stream-issued transport reaches memory of the device. */
	setup.stages &= setup.onesided;
	setup.size = transports[0]->size;
	while (n < size && status == BATON_OK) {
		setup.device_config.host_rank = n;
		status = batoni_comm_prepare(&setup, &comms[n]);
		n += status == BATON_OK;
	}
	while (status != BATON_OK && n > 0)
		batoni_comm_discard(comms[--n]);
	for (int i = 0; i < size && status == BATON_OK; i++)
		batoni_comm_start(comms[i], transports[i]);
	return status;
}

enum baton_status
batoni_comm_create_local_with(const struct batoni_device_ops *device, int size,
                              const struct baton_comm_options *options,
                              struct baton_comm *comms[])
{
	struct batoni_comm_setup setup;
	enum baton_status status;

	status = setup_local("batoni_comm_create_local_with", size, options,
	                     &setup);
	if (status != BATON_OK)
		return status;
	batoni_comm_setup_on(&setup, device);
	return build_alike(&setup, size, comms);
}

enum baton_status
batoni_comm_create_local_mixed(const struct batoni_device_ops *const devices[],
                               int size,
                               const struct baton_comm_options *options,
                               struct baton_comm *comms[])
{
	struct batoni_comm_setup *setups =
		batoni_alloc((size_t)size, sizeof(*setups));
	enum baton_status status = setups ? BATON_OK : BATON_ERR_NOMEM;

	for (int i = 0; i < size && status == BATON_OK; i++) {
		status = setup_local("batoni_comm_create_local_mixed", size,
		                     options, &setups[i]);
		if (status == BATON_OK)
			batoni_comm_setup_on(&setups[i], devices[i]);
	}
	if (status == BATON_OK)
		status = build_local(setups, size, comms);
	batoni_free(setups);
	return status;
}
