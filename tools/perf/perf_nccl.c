/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `baton perf --against nccl`: NCCL's own calls on the GPU of each rank.
 *
 * Baton has found the library (baton_library); here its file is opened once more.  The names are declared as NVIDIA's
 * documentation has them; the numbers are part of its binary interface.  All calls are made on the stream of the rank,
 * which Baton's operations use too, and this thread waits for the stream as it waits for Baton's requests.
 *
 * NCCL takes one thread at a time for a GPU.  Where Baton's messages go by NCCL as well its lock of the GPU is held around the
 * calls of a round, and not while the stream is waited for.
 *
 * NCCL sends no put that its target waits for by a count in all versions, so puts are compared with messages of as many
 * bytes.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "perf_raw.h"

#define UINT8 1 /* ncclUint8 */

/* ncclUniqueId, which is passed by value. */
struct id {
	char bytes[128];
};

struct perf_raw {
	struct perf_rank *rank;
	void *comm; /* ncclComm_t */
	bool locks; /* Baton's messages go by NCCL */
	int (*get_id)(struct id *id);
	int (*init)(void **comm, int size, struct id id, int rank);
	int (*destroy)(void *comm);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*send)(const void *buffer, size_t count, int type, int peer,
	            void *comm, baton_stream stream);
	int (*recv)(void *buffer, size_t count, int type, int peer, void *comm,
	            baton_stream stream);
	const char *(*error_text)(int error);
};

static bool
load(struct perf_raw *raw, char *why, size_t size)
{
	struct baton_library_info info;
	void *library;

	if (!tool_find_library("NCCL", &info) || *info.why_not) {
		snprintf(why, size, "--against nccl: %s", info.why_not);
		return false;
	}
	library = dlopen(info.path, RTLD_NOW | RTLD_LOCAL);
	if (library && tool_look_up(library, "ncclGetUniqueId", &raw->get_id) &&
	    tool_look_up(library, "ncclCommInitRank", &raw->init) &&
	    tool_look_up(library, "ncclCommDestroy", &raw->destroy) &&
	    tool_look_up(library, "ncclGroupStart", &raw->group_start) &&
	    tool_look_up(library, "ncclGroupEnd", &raw->group_end) &&
	    tool_look_up(library, "ncclSend", &raw->send) &&
	    tool_look_up(library, "ncclRecv", &raw->recv) &&
	    tool_look_up(library, "ncclGetErrorString", &raw->error_text))
		return true;
	snprintf(why, size, "--against nccl: %s: %s", info.path, dlerror());
	return false;
}

/* ---- the calls ---- */

static int
send(struct perf_raw *raw, size_t offset, size_t bytes, int peer)
{
	const struct perf_end *e = &raw->rank->end;

	return raw->send(e->out + offset, bytes, UINT8, peer, raw->comm,
	                 e->stream);
}

static int
receive(struct perf_raw *raw, size_t offset, size_t bytes, int peer)
{
	const struct perf_end *e = &raw->rank->end;

	return raw->recv(e->in + offset, bytes, UINT8, peer, raw->comm,
	                 e->stream);
}

/* All of them, and the first error. */
static int
worse(int one, int other)
{
	return one ? one : other;
}

static int
there_and_back(struct perf_raw *raw)
{
	const struct perf_end *e = &raw->rank->end;
	int first = e->first ? send(raw, 0, e->bytes, e->peer)
	                     : receive(raw, 0, e->bytes, e->peer);
	int second = e->first ? receive(raw, 0, e->bytes, e->peer)
	                      : send(raw, 0, e->bytes, e->peer);

	return worse(first, second);
}

static int
one_way(struct perf_raw *raw, size_t depth)
{
	const struct perf_end *e = &raw->rank->end;
	int error = 0;

	for (size_t k = 0; k < depth; k++)
		error = worse(error, e->first ? send(raw, k * e->step, e->bytes,
		                                     e->peer)
		                              : receive(raw, k * e->step,
		                                        e->bytes, e->peer));
	return error;
}

static int
window(struct perf_raw *raw)
{
	const struct perf_end *e = &raw->rank->end;
	int error = one_way(raw, e->depth);

	return worse(error, e->first ? receive(raw, 0, 1, e->peer)
	                             : send(raw, 0, 1, e->peer));
}

static int
around(struct perf_raw *raw)
{
	const struct perf_end *e = &raw->rank->end;
	int error = raw->group_start();

	error = worse(error, send(raw, 0, e->bytes, (e->rank + 1) % e->size));
	error = worse(error, receive(raw, 0, e->bytes,
	                             (e->rank + e->size - 1) % e->size));
	return worse(error, raw->group_end());
}

static int
to_all(struct perf_raw *raw)
{
	const struct perf_end *e = &raw->rank->end;
	int error = raw->group_start();

	for (int peer = 0; peer < e->size; peer++) {
		size_t offset = (size_t)peer * e->bytes;

		error = worse(error, send(raw, offset, e->bytes, peer));
		error = worse(error, receive(raw, offset, e->bytes, peer));
	}
	return worse(error, raw->group_end());
}

static int
enqueue(struct perf_raw *raw, enum perf_pattern pattern)
{
	switch (pattern) {
	case PERF_LATENCY:
	case PERF_PUT:
		return there_and_back(raw);
	case PERF_WINDOW:
	case PERF_PUTS:
		return window(raw);
	case PERF_RING:
		return around(raw);
	case PERF_ALL:
		return to_all(raw);
	case PERF_OVERLAP:
		return one_way(raw, 1);
	}
	return 0;
}

/* Between the two the calls of a round are made.  False: Baton did not give its lock of the GPU. */
static bool
begin(struct perf_raw *raw)
{
	enum baton_status status = BATON_OK;

	if (raw->locks)
		status = baton_comm_lock_device(raw->rank->end.comm);
	if (status != BATON_OK)
		perf_fail(raw->rank, "baton_comm_lock_device", status);
	return status == BATON_OK;
}

static void
end_nccl(struct perf_raw *raw)
{
	if (raw->locks)
		baton_comm_unlock_device(raw->rank->end.comm);
}

static void
run_nccl(struct perf_raw *raw, struct perf_rank *rank,
         enum perf_pattern pattern, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		int error;

		if (!begin(raw))
			return;
		error = enqueue(raw, pattern);
		end_nccl(raw);
		if (error) {
			snprintf(rank->failed, sizeof(rank->failed),
			         "raw NCCL fails: %s", raw->error_text(error));
			return;
		}
		perf_spin(rank->end.steps);
		if (!tool_gpu_finish(rank->end.stream, rank->failed,
		                     sizeof(rank->failed)))
			return;
	}
}

/* ---- opening ---- */

/* The ranks meet by an id, if all have got so far.  Not under the lock: it waits for the others. */
static bool
connect(struct perf_raw *raw, bool well, char *why, size_t size)
{
	struct perf_rank *rank = raw->rank;
	struct id id = {{0}};
	json_t *told = job_gather(rank->job, json_pack("{sb}", "well", well));
	const json_t *one;
	size_t i;
	int error = 0;

	json_array_foreach(told, i, one)
		well = well && json_is_true(json_object_get(one, "well"));
	json_decref(told);
	if (!job_share(rank->job, &well, sizeof(well)) || !well)
		return false;
	if (rank->job->rank == 0)
		error = raw->get_id(&id);
	job_share(rank->job, &id, sizeof(id));
	error = worse(error, raw->init(&raw->comm, rank->end.size, id,
	                               rank->end.rank));
	if (error)
		snprintf(why, size, "--against nccl: raw NCCL gives no communicator: "
		                    "%s",
		         raw->error_text(error));
	return error == 0;
}

static struct perf_raw *
open_nccl(struct perf_rank *rank, char *why, size_t size)
{
	struct perf_raw *raw = calloc(1, sizeof(*raw));
	struct baton_comm_info info = {.size = sizeof(info)};
	bool well = raw != NULL;

	baton_comm_query(rank->end.comm, &info);
	if (!well) {
		snprintf(why, size, "out of memory");
		return NULL;
	}
	raw->rank = rank;
	raw->locks = info.transport == BATON_TRANSPORT_NCCL;
	if (rank->gpu < 0) {
		snprintf(why, size, "--against nccl: NCCL moves memory of GPUs alone; "
		                    "--device cuda has that");
		well = false;
	} else if (rank->options->memory == PERF_HEAP) {
		snprintf(why, size, "--against nccl: NCCL moves memory of GPUs alone; "
		                    "--memory block has that");
		well = false;
	}
	well = well && load(raw, why, size);
	if (connect(raw, well, why, size))
		return raw;
	free(raw);
	return NULL;
}

static void
close_nccl(struct perf_raw *raw)
{
	raw->destroy(raw->comm);
	free(raw);
}

const struct perf_raw_ops perf_raw_nccl = {"NCCL", open_nccl, run_nccl,
                                           close_nccl};
