/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators: their life and their state, and the operations on them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nsim.h"

#define ID_BEGIN "ncclsim-"

struct ncclComm *nsim_comms; /* all that ever were; lock */

/* ---- state --------------------------------------------------------------- */

void
nsim_comm_fail(ncclComm_t comm, ncclResult_t result)
{
	ncclResult_t before = atomic_load(&comm->result);

	while ((before == BATONI_NCCL_SUCCESS ||
	        before == BATONI_NCCL_IN_PROGRESS) &&
	       !atomic_compare_exchange_weak(&comm->result, &before, result))
		;
}

ncclResult_t
nsim_comm_ready(ncclComm_t comm)
{
	ncclResult_t result = atomic_load(&comm->result);

	if (atomic_load(&comm->working) || result == BATONI_NCCL_IN_PROGRESS)
		return nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                  "a call before the last one was over: ask "
		                  "ncclCommGetAsyncError until it is");
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (!comm->map)
		return nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                  "the group that creates the communicator is not "
		                  "over");
	if (comm->finalized)
		return nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                  "the communicator was finalized");
	return BATONI_NCCL_SUCCESS;
}

/* ---- creation ------------------------------------------------------------ */

static size_t
config_bytes(void)
{
	return nsim_set.version < 22900   ? 80
	       : nsim_set.version < 23100 ? 96
	                                  : 120;
}

static ncclResult_t
check_config(const ncclConfig_t *config)
{
	if (!config)
		return BATONI_NCCL_SUCCESS;
	if (config->magic != BATONI_NCCL_CONFIG_MAGIC)
		return nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                  "a configuration that was not initialised");
	/* NCCL does not look; what it would take for its own members is another's. */
	if (config->size > config_bytes() ||
	    config->version > (unsigned)nsim_set.version)
		nsim_violation("a configuration of %zu bytes of version %u, for "
		               "one of %zu of %ld",
		               config->size, config->version, config_bytes(),
		               (long)nsim_set.version);
	if (config->blocking != BATONI_NCCL_CONFIG_UNSET &&
	    config->blocking != 0 && config->blocking != 1)
		return nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                  "blocking is %d", config->blocking);
	return BATONI_NCCL_SUCCESS;
}

/* The current device, as the runtime API has it: 0 where there is no context. */
static bool
current_device(int *device_p)
{
	CUcontext context = NULL;

	*device_p = 0;
	if (nsim_cuda->context_current(&context) != BATONI_CU_SUCCESS)
		return false;
	return !context ||
	       nsim_cuda->context_device(device_p) == BATONI_CU_SUCCESS;
}

/* The members of 2.31. */
static ncclResult_t
read_rma(struct ncclComm *comm, const struct batoni_nccl_config *config)
{
	comm->signals = comm->contexts = 1;
	if (!config || nsim_set.version < 23100 ||
	    !BATONI_NCCL_CONFIG_HAS(config, rmaEagerInit))
		return BATONI_NCCL_SUCCESS;
	if (config->numRmaSig != BATONI_NCCL_CONFIG_UNSET)
		comm->signals = config->numRmaSig;
	if (config->numRmaCtx != BATONI_NCCL_CONFIG_UNSET)
		comm->contexts = config->numRmaCtx;
	comm->eager_rma = config->rmaEagerInit == 1;
	if (comm->signals < 1 || comm->contexts < 1 ||
	    comm->signals * comm->contexts > NSIM_SIGNALS)
		return nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                  "%d signals in %d contexts", comm->signals,
		                  comm->contexts);
	return BATONI_NCCL_SUCCESS;
}

ncclResult_t
nsim_comm_new(ncclComm_t parent, const ncclConfig_t *config, ncclComm_t *comm_p)
{
	ncclResult_t result = check_config(config);
	struct ncclComm *comm;
	int device;

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	comm = nsim_alloc(1, sizeof(*comm));
	device = parent ? parent->device : 0;
	if ((!parent && !current_device(&device)) ||
	    nsim_cuda->primary_retain(&comm->context, device) !=
	            BATONI_CU_SUCCESS) {
		free(comm);
		return nsim_error(BATONI_NCCL_CUDA_ERROR,
		                  "Cuda failure: no context");
	}
	comm->device = device;
	comm->live = true;
	comm->blocking = parent ? parent->blocking : true;
	if (config && config->blocking != BATONI_NCCL_CONFIG_UNSET)
		comm->blocking = config->blocking == 1;
	result = read_rma(comm, config);
	if (result != BATONI_NCCL_SUCCESS) {
		nsim_cuda->primary_release(device);
		free(comm);
		return result;
	}
	nsim_gpu_configure(comm, parent, config);
	pthread_mutex_lock(&nsim_lock);
	comm->next = nsim_comms;
	nsim_comms = comm;
	pthread_mutex_unlock(&nsim_lock);
	*comm_p = comm;
	return BATONI_NCCL_SUCCESS;
}

void
nsim_comm_close(ncclComm_t comm)
{
	nsim_agent_end(comm);
	nsim_windows_close(comm);
	if (comm->map)
		nsim_map_close(comm->map, comm->ranks);
	comm->map = NULL;
	nsim_gpu_use(comm, -comm->bytes);
	nsim_cuda->primary_release(comm->device);
	pthread_mutex_lock(&nsim_lock);
	comm->live = false;
	pthread_mutex_unlock(&nsim_lock);
}

/* The job that begins a communicator; if that failed, there is none. */
static ncclResult_t
begin(ncclComm_t *comm_p, struct nsim_job *job, enum nsim_function function)
{
	ncclComm_t comm = *comm_p;
	ncclResult_t result;

	job->comm = comm;
	nsim_enter(comm, function);
	result = nsim_group_job(comm, job);
	nsim_leave(comm);
	if (result != BATONI_NCCL_SUCCESS && result != BATONI_NCCL_IN_PROGRESS &&
	    !atomic_load(&comm->working)) {
		nsim_comm_close(comm);
		*comm_p = NULL;
	}
	return result;
}

ncclResult_t
ncclGetUniqueId(ncclUniqueId *id)
{
	ncclResult_t result = nsim_use(NSIM_ncclGetUniqueId);
	uint64_t random[2] = {0, 0};
	int fd;

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (!id)
		return BATONI_NCCL_INVALID_ARGUMENT;
	fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, random, sizeof(random)) != sizeof(random))
		result = nsim_error(BATONI_NCCL_SYSTEM_ERROR, "no random bytes");
	if (fd >= 0)
		close(fd);
	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), ID_BEGIN "%016llx%016llx",
	         (unsigned long long)random[0], (unsigned long long)random[1]);
	return result;
}

static ncclResult_t
init_comm(ncclComm_t *comm_p, int ranks, const ncclUniqueId *id, int rank,
          const ncclConfig_t *config, enum nsim_function function)
{
	struct nsim_job job = {.kind = NSIM_INIT};
	ncclResult_t result = nsim_use(function);

	if (result != BATONI_NCCL_SUCCESS)
		return nsim_group_refuse(result);
	if (!comm_p || ranks < 1 || ranks > NSIM_RANKS_MAX || rank < 0 ||
	    rank >= ranks || strncmp(id->internal, ID_BEGIN, strlen(ID_BEGIN)))
		return nsim_group_refuse(nsim_error(
			BATONI_NCCL_INVALID_ARGUMENT,
			"rank %d of %d, or an id of no ncclGetUniqueId", rank,
			ranks));
	result = nsim_comm_new(NULL, config, comm_p);
	if (result != BATONI_NCCL_SUCCESS)
		return nsim_group_refuse(result);
	(*comm_p)->rank = rank;
	(*comm_p)->ranks = ranks;
	snprintf((*comm_p)->id, NSIM_ID, "%.*s", NSIM_ID - 1, id->internal);
	return begin(comm_p, &job, function);
}

ncclResult_t
ncclCommInitRankConfig(ncclComm_t *comm_p, int ranks, ncclUniqueId id, int rank,
                       ncclConfig_t *config)
{
	return init_comm(comm_p, ranks, &id, rank, config,
	                 NSIM_ncclCommInitRankConfig);
}

ncclResult_t
ncclCommInitRank(ncclComm_t *comm_p, int ranks, ncclUniqueId id, int rank)
{
	return init_comm(comm_p, ranks, &id, rank, NULL, NSIM_ncclCommInitRank);
}

ncclResult_t
ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *comm_p,
              ncclConfig_t *config)
{
	struct nsim_job job = {.kind = NSIM_SPLIT, .parent = comm,
	                       .colour = colour, .key = key};
	ncclResult_t result = nsim_use(NSIM_ncclCommSplit);
	ncclComm_t child;

	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, NSIM_ncclCommSplit);
	if (result != BATONI_NCCL_SUCCESS)
		return nsim_group_refuse(result);
	result = nsim_comm_ready(comm);
	if (colour < BATONI_NCCL_NO_COLOUR || !comm_p)
		result = BATONI_NCCL_INVALID_ARGUMENT;
	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_comm_new(comm, config, &child);
	if (result != BATONI_NCCL_SUCCESS) {
		nsim_leave(comm);
		return nsim_group_refuse(result);
	}
	job.number = comm->exchanges++;
	result = begin(&child, &job, NSIM_ncclCommSplit);
	/* What has no colour has no handle. */
	*comm_p = colour < 0 ? NULL : child;
	nsim_leave(comm);
	return result;
}

static bool
is_excluded(int rank, const int *excluded, int n)
{
	int i = 0;

	while (i < n && excluded[i] != rank)
		i++;
	return i < n;
}

/* The child's place and id follow from the list alone. */
static void
place_child(ncclComm_t comm, ncclComm_t child, const int *excluded, int n)
{
	char text[NSIM_ID + 64];
	unsigned left = 0;
	uint64_t hash;

	for (int i = 0; i < comm->ranks; i++) {
		if (is_excluded(i, excluded, n))
			continue;
		left |= 1u << i;
		child->ranks++;
		child->rank += i < comm->rank;
	}
	snprintf(text, sizeof(text), "%s shrink %u %x", comm->id,
	         comm->shrinks++, left);
	hash = nsim_hash(text, strlen(text), 4);
	snprintf(child->id, sizeof(child->id), ID_BEGIN "%016llx%016llx",
	         (unsigned long long)hash,
	         (unsigned long long)nsim_hash(text, strlen(text), hash));
}

static ncclResult_t
shrink(ncclComm_t comm, const int *excluded, int n, ncclComm_t *comm_p,
       const ncclConfig_t *config, int flags)
{
	struct nsim_job job = {.kind = NSIM_SHRINK, .parent = comm};
	ncclResult_t result = BATONI_NCCL_SUCCESS;

	job.drains = flags == BATONI_NCCL_SHRINK_ABORT;
	if (!job.drains)
		result = nsim_comm_ready(comm);
	if (!comm_p || !excluded || n < 1 || flags < 0 ||
	    flags > BATONI_NCCL_SHRINK_ABORT || !comm->map ||
	    is_excluded(comm->rank, excluded, n))
		result = nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                    "a shrink of nothing, or by an excluded rank");
	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_comm_new(comm, config, comm_p);
	if (result != BATONI_NCCL_SUCCESS)
		return nsim_group_refuse(result);
	place_child(comm, *comm_p, excluded, n);
	if (job.drains) {
		atomic_store(&comm->stop, true);
		nsim_cuda->sim_changed();
	}
	return begin(comm_p, &job, NSIM_ncclCommShrink);
}

ncclResult_t
ncclCommShrink(ncclComm_t comm, int *excluded, int n, ncclComm_t *comm_p,
               ncclConfig_t *config, int flags)
{
	ncclResult_t result = nsim_use(NSIM_ncclCommShrink);

	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, NSIM_ncclCommShrink);
	if (result != BATONI_NCCL_SUCCESS)
		return nsim_group_refuse(result);
	result = shrink(comm, excluded, n, comm_p, config, flags);
	nsim_leave(comm);
	return result;
}

/* ---- the end ------------------------------------------------------------- */

static void
await_idle(ncclComm_t comm)
{
	for (unsigned us = 20; atomic_load(&comm->working) ||
	                       atomic_load(&comm->pending) > 0;
	     us = us < 500 ? us * 2 : us)
		simulator_nap(us);
}

/* Memory of the device is freed, which may wait for all streams of the context: cudasim's
 * `implicit` says whether it does. */
static void
free_memory(ncclComm_t comm)
{
	CUcontext popped;
	CUdeviceptr block;

	if (!nsim_set.frees ||
	    nsim_cuda->context_push(comm->context) != BATONI_CU_SUCCESS)
		return;
	if (nsim_cuda->mem_alloc(&block, 64) == BATONI_CU_SUCCESS)
		nsim_cuda->mem_free(block);
	nsim_cuda->context_pop(&popped);
}

ncclResult_t
ncclCommFinalize(ncclComm_t comm)
{
	struct nsim_job job = {.kind = NSIM_FINALIZE, .comm = comm};
	ncclResult_t result = nsim_use(NSIM_ncclCommFinalize);

	if (result == BATONI_NCCL_SUCCESS && !comm)
		return result;
	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, NSIM_ncclCommFinalize);
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	result = nsim_comm_ready(comm);
	if (result == BATONI_NCCL_SUCCESS && comm->revoked)
		result = nsim_error(BATONI_NCCL_INVALID_USAGE,
		                    "ncclCommFinalize after ncclCommRevoke");
	if (result == BATONI_NCCL_SUCCESS) {
		comm->finalized = true;
		result = nsim_group_job(comm, &job);
	}
	nsim_leave(comm);
	return result;
}

/* Does its work, whatever it returns. */
ncclResult_t
ncclCommDestroy(ncclComm_t comm)
{
	struct nsim_job job = {.kind = NSIM_FINALIZE, .comm = comm};
	ncclResult_t fault = nsim_use(NSIM_ncclCommDestroy), result;

	if (!comm)
		return fault;
	result = nsim_enter_apart(comm, NSIM_ncclCommDestroy);
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	while (atomic_load(&comm->working))
		simulator_nap(100);
	if (comm->map && !comm->finalized && !comm->revoked &&
	    atomic_load(&comm->result) == BATONI_NCCL_SUCCESS)
		result = nsim_job_run(&job);
	await_idle(comm);
	free_memory(comm);
	nsim_comm_close(comm);
	nsim_leave_apart(comm);
	return fault != BATONI_NCCL_SUCCESS ? fault : result;
}

void
nsim_comm_reclaim(ncclComm_t comm)
{
	await_idle(comm);
	free_memory(comm);
	if (comm->map)
		nsim_say(comm, NSIM_GONE);
	nsim_comm_close(comm);
}

/* Its kernels are told to end by the call, and waited for by the group's end.  Those that are
 * behind something in their streams end only after that. */
ncclResult_t
ncclCommAbort(ncclComm_t comm)
{
	ncclResult_t fault = nsim_use(NSIM_ncclCommAbort), result;

	if (!comm)
		return fault;
	result = nsim_enter_apart(comm, NSIM_ncclCommAbort);
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	atomic_store(&comm->stop, true);
	nsim_cuda->sim_changed();
	nsim_group_abort(comm);
	nsim_leave_apart(comm);
	return fault;
}

ncclResult_t
ncclCommRevoke(ncclComm_t comm, int flags)
{
	struct nsim_job job = {.kind = NSIM_REVOKE, .comm = comm};
	ncclResult_t result = nsim_use(NSIM_ncclCommRevoke);

	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, NSIM_ncclCommRevoke);
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	result = comm->unseen ? BATONI_NCCL_SUCCESS : nsim_comm_ready(comm);
	if (flags != 0 || comm->revoked || comm->finalized)
		result = BATONI_NCCL_INVALID_ARGUMENT;
	/* NCCL lets go of the group twice. */
	if (result == BATONI_NCCL_SUCCESS && comm->unseen) {
		nsim_violation("ncclCommRevoke while a group is in progress (ask "
		               "ncclCommGetAsyncError until it is over): use of "
		               "freed memory");
		result = BATONI_NCCL_INTERNAL_ERROR;
	}
	if (result == BATONI_NCCL_SUCCESS) {
		comm->revoked = true;
		atomic_store(&comm->stop, true);
		nsim_cuda->sim_changed();
		result = nsim_group_job(comm, &job);
	}
	nsim_leave(comm);
	return result;
}

/* ---- questions ----------------------------------------------------------- */

ncclResult_t
ncclGetVersion(int *version_p)
{
	ncclResult_t result = nsim_use(NSIM_ncclGetVersion);

	if (result == BATONI_NCCL_SUCCESS && !version_p)
		result = BATONI_NCCL_INVALID_ARGUMENT;
	if (result == BATONI_NCCL_SUCCESS)
		*version_p = (int)nsim_set.version;
	return result;
}

const char *
ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[] = {
		"no error",
		"unhandled cuda error",
		"unhandled system error",
		"internal error",
		"invalid argument",
		"invalid usage",
		"remote process exited or there was a network error",
		"NCCL operation in progress",
		"timeout", /* from 2.30 on */
	};
	size_t n = sizeof(texts) / sizeof(texts[0]);

	nsim_use(NSIM_ncclGetErrorString);
	if (nsim_set.version < 23000)
		n--;
	return result < n ? texts[result] : "unknown result code";
}

const char *
ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	nsim_use(NSIM_ncclGetLastError);
	return nsim_last_error();
}

ncclResult_t
ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result_p)
{
	ncclResult_t result = nsim_use(NSIM_ncclCommGetAsyncError);

	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, NSIM_ncclCommGetAsyncError);
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (nsim_set.notice && !atomic_load(&comm->working) && comm->map &&
	    nsim_lost_peer(comm))
		nsim_comm_fail(comm, BATONI_NCCL_REMOTE_ERROR);
	/* What is done in the background may have failed, but is not over. */
	*result_p = atomic_load(&comm->working) ? BATONI_NCCL_IN_PROGRESS
	                                        : atomic_load(&comm->result);
	if (*result_p == BATONI_NCCL_SUCCESS)
		comm->unseen = false;
	nsim_leave(comm);
	return BATONI_NCCL_SUCCESS;
}

static ncclResult_t
answer(ncclComm_t comm, enum nsim_function function, size_t offset,
       int *value_p)
{
	ncclResult_t result = nsim_use(function);

	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, function);
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	result = nsim_comm_ready(comm);
	if (result == BATONI_NCCL_SUCCESS)
		memcpy(value_p, (const char *)comm + offset, sizeof(*value_p));
	nsim_leave(comm);
	return result;
}

ncclResult_t
ncclCommCount(const ncclComm_t comm, int *count_p)
{
	return answer(comm, NSIM_ncclCommCount,
	              offsetof(struct ncclComm, ranks), count_p);
}

ncclResult_t
ncclCommCuDevice(const ncclComm_t comm, int *device_p)
{
	return answer(comm, NSIM_ncclCommCuDevice,
	              offsetof(struct ncclComm, device), device_p);
}

ncclResult_t
ncclCommUserRank(const ncclComm_t comm, int *rank_p)
{
	return answer(comm, NSIM_ncclCommUserRank,
	              offsetof(struct ncclComm, rank), rank_p);
}

/* ---- operations ---------------------------------------------------------- */

ncclResult_t
nsim_comm_begin(ncclComm_t comm, enum nsim_function function)
{
	ncclResult_t result = nsim_use(function);

	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, function);
	if (result != BATONI_NCCL_SUCCESS)
		return nsim_group_refuse(result);
	result = nsim_comm_ready(comm);
	if (result == BATONI_NCCL_SUCCESS && comm->revoked)
		result = nsim_error(BATONI_NCCL_INVALID_USAGE,
		                    "the communicator was revoked");
	if (result != BATONI_NCCL_SUCCESS) {
		nsim_group_refuse(result);
		nsim_leave(comm);
	}
	return result;
}

static ncclResult_t
operate(ncclComm_t comm, enum nsim_function function, struct nsim_op *op,
        size_t count, ncclDataType_t type, CUstream stream)
{
	size_t bytes = nsim_type_bytes(type);
	ncclResult_t result = nsim_comm_begin(comm, function);

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (op->peer < 0 || op->peer >= comm->ranks || bytes == 0 ||
	    (count > 0 && !op->at))
		result = nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                    "peer %d, type %u, or no buffer", op->peer,
		                    type);
	op->bytes = count * bytes;
	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_group_op(comm, op, stream);
	else
		nsim_group_refuse(result);
	nsim_leave(comm);
	return result;
}

ncclResult_t
ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer,
         ncclComm_t comm, struct CUstream_st *stream)
{
	struct nsim_op op = {.kind = NSIM_SEND, .peer = peer,
	                     .at = (uintptr_t)buffer};

	return operate(comm, NSIM_ncclSend, &op, count, type, stream);
}

ncclResult_t
ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer,
         ncclComm_t comm, struct CUstream_st *stream)
{
	struct nsim_op op = {.kind = NSIM_RECV, .peer = peer,
	                     .at = (uintptr_t)buffer};

	return operate(comm, NSIM_ncclRecv, &op, count, type, stream);
}
