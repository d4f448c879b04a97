/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Facts on NCCL with one rank, of non-blocking communicators, as Baton makes them: a
 * message to oneself without its other end, a window in memory that is not NCCL's, the
 * parent's state while a split goes on, the device memory that a communicator takes.
 */
#include "facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_api.h"

static const struct batoni_nccl_api *nccl;

/* Until the communicator is no longer in progress; for ten seconds at most. */
static ncclResult_t
settle(ncclComm_t comm)
{
	int64_t end = now_ms() + 10000;
	ncclResult_t state = BATONI_NCCL_IN_PROGRESS;

	while (now_ms() < end) {
		if (nccl->comm_error(comm, &state) != BATONI_NCCL_SUCCESS ||
		    state != BATONI_NCCL_IN_PROGRESS)
			break;
		sleep_ms(1);
	}
	return state;
}

static void
configure(struct batoni_nccl_config *config)
{
	batoni_nccl_config_init(nccl, config);
	config->blocking = 0;
}

static ncclComm_t
create(void)
{
	struct batoni_nccl_config config;
	ncclUniqueId id;
	ncclComm_t comm = NULL;
	ncclResult_t result = nccl->get_unique_id(&id);

	if (result == BATONI_NCCL_SUCCESS) {
		configure(&config);
		result = nccl->comm_init(&comm, 1, id, 0, &config);
	}
	if (!comm || settle(comm) != BATONI_NCCL_SUCCESS) {
		fprintf(stderr, "ncclCommInitRankConfig: %s\n", nccl->error_text(result));
		exit(1);
	}
	return comm;
}

static size_t
free_bytes(void)
{
	typedef CUresult (*info_fn)(size_t *, size_t *);
	void *symbol = gpu_symbol("cuMemGetInfo_v2");
	size_t left = 0, all = 0;
	info_fn info;

	memcpy(&info, &symbol, sizeof(info));
	return info && info(&left, &all) == BATONI_CU_SUCCESS ? left : 0;
}

static void
say_window(const struct gpu *gpu, ncclComm_t comm)
{
	ncclWindow_t window = NULL;
	ncclResult_t result =
		nccl->window_register(comm, (void *)(uintptr_t)gpu->memory, DATA_BYTES,
	                              &window, BATONI_NCCL_WINDOW_SYMMETRIC);
	ncclResult_t state = settle(comm);

	fact("nccl.window_of_other_memory: %s (then %s; the window is %s)",
	     nccl->error_text(result), nccl->error_text(state), window ? "one" : "NULL");
}

static void
say_split(ncclComm_t comm)
{
	struct batoni_nccl_config config;
	ncclResult_t result, state = BATONI_NCCL_SUCCESS;
	ncclComm_t child = NULL;

	configure(&config);
	result = nccl->comm_split(comm, 0, 0, &child, &config);
	nccl->comm_error(comm, &state);
	fact("nccl.parent_while_a_split_goes_on: %s (the call: %s)",
	     nccl->error_text(state), nccl->error_text(result));
	state = settle(comm);
	if (child && state == BATONI_NCCL_SUCCESS && settle(child) == BATONI_NCCL_SUCCESS)
		nccl->comm_abort(child);
}

/* Last: it may leave the communicator in any state. */
static void
say_self(const struct gpu *gpu, ncclComm_t comm)
{
	CUstream stream = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
	ncclResult_t call, end, state;

	nccl->group_start();
	call = nccl->send((void *)(uintptr_t)gpu->memory, 4096, BATONI_NCCL_INT8, 0, comm,
	                  stream);
	end = nccl->group_end();
	state = settle(comm);
	fact("nccl.send_to_oneself_alone: %s (the call: %s; the group: %s)",
	     nccl->error_text(state), nccl->error_text(call), nccl->error_text(end));
}

void
facts_nccl(struct gpu *gpu)
{
	size_t before, after;
	ncclComm_t comm;

	if (batoni_nccl_load(&nccl) != BATON_OK) {
		printf("SKIP: %s\n", baton_last_error());
		exit(77);
	}
	fact("nccl.version: %d (%s)", nccl->version, nccl->library);
	before = free_bytes();
	comm = create();
	after = free_bytes();
	fact("nccl.memory_of_the_first_communicator: %zu KiB (one rank)",
	     (before - after) >> 10);
	before = after;
	nccl->comm_abort(create());
	fact("nccl.memory_left_by_one_that_was_aborted: %lld KiB",
	     ((long long)before - (long long)free_bytes()) / 1024);
	say_window(gpu, comm);
	say_split(comm);
	say_self(gpu, comm);
	nccl->comm_abort(comm);
}
