/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranges for NVIDIA's tools (Nsight Systems), by the header of NVTX, which finds the tool's library
 * itself and needs nothing to link.  They are compiled in where the header is found and
 * BATON_WITH_NVTX asks for them, and drawn where BATON_NVTX=1 is in the environment.
 *
 * They are drawn by an observer of the life of operations (life.h).  Where they are off, the communicator
 * has no observer, and nothing here is called.  Where they are on, the communicator's operations do not
 * take the fast path (direct.h).
 *
 * An operation has up to four ranges, in the domain "baton".  Their names are ONNX Runtime's:
 *
 *   Batch-B PreSend-P     from its placing to its issue: it waits for its stream and its turn
 *   Batch-B Send-P        the transport, stream or one-sided layer has it
 *   Batch-B SendMemcpy-P  within that: bytes are copied between its buffer and pinned memory
 *   Batch-B PostSend-P    it has ended, and threads, queue and streams are told
 *
 * B is the operation's user_data, P the peer ("several" for a wait for several).  The kinds
 * are Send, Recv, Signal, Put, Wait.  The first, second and last follow each other.  A record
 * and the launch of a plan have one range, Batch-B Record or Plan; an operation of
 * a plan has the B of its launch.  The payload of all is the bytes that the operation names.
 *
 * Ranges of different operations overlap, and may begin on one thread and end on another: they
 * are start-and-end ranges, not pushed ones.  The driver draws all of them, from placing on, so
 * a refused call has none.  Each operation that was placed ends once, by batoni_op_close or
 * batoni_op_vanish, and then the engine lets go of it (`left`), which ends the ranges that are open.
 */
#include "nvtx.h"

#include <stdio.h>

#include "config.h"
#include "core.h"
#include "found.h"
#include "log.h"
#include "mem.h"

#ifdef BATONI_WITH_NVTX

#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExt.h>

struct ranges {
	bool phase_open, copy_open;
	nvtxRangeId_t phase, copy; /* Pre, the transfer, Post; Memcpy */
};

struct batoni_nvtx {
	uint32_t slots;
	struct ranges ranges[]; /* by slot; the driver's */
};

static nvtxDomainHandle_t domain;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
create_domain(void)
{
	domain = nvtxDomainCreateA("baton");
}

static uint64_t
batch_of(const struct batoni_op *op)
{
	return op->flags & BATONI_FLAG_PLANNED ? batoni_launch_of(op)->user_data
	                                       : op->user_data;
}

static nvtxRangeId_t
start_range(const struct batoni_op *op, const char *before, const char *after)
{
	nvtxEventAttributes_t attributes = {0};
	char name[96], peer[24] = "";

	if (op->transfer.peer >= 0)
		snprintf(peer, sizeof(peer), "-%d", op->transfer.peer);
	else if (op->transfer.direction == BATONI_WAIT)
		snprintf(peer, sizeof(peer), "-several");
	snprintf(name, sizeof(name), "Batch-%llu %s%s%s%s",
	         (unsigned long long)batch_of(op), before, batoni_kind_of(op)->trace,
	         after, peer);
	attributes.version = NVTX_VERSION;
	attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
	attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
	attributes.message.ascii = name;
	attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
	attributes.payload.ullValue = op->transfer.bytes;
	return nvtxDomainRangeStartEx(domain, &attributes);
}

static void
end_copy(struct ranges *ranges)
{
	if (ranges->copy_open)
		nvtxDomainRangeEnd(domain, ranges->copy);
	ranges->copy_open = false;
}

static void
end_phase(struct ranges *ranges)
{
	end_copy(ranges);
	if (ranges->phase_open)
		nvtxDomainRangeEnd(domain, ranges->phase);
	ranges->phase_open = false;
}

static void
start_phase(struct ranges *ranges, const struct batoni_op *op, const char *before)
{
	end_phase(ranges);
	ranges->phase = start_range(op, before, "");
	ranges->phase_open = true;
}

static struct ranges *
ranges_of(const struct batoni_op *op)
{
	const struct baton_comm *comm = op->comm;

	return &comm->nvtx->ranges[batoni_pool_slot(&comm->pool, op)];
}

/* A stream-issued transfer moves to ISSUED when it is placed, and to ARMED when its stream reaches it. */
static void
move_transfer(struct ranges *ranges, const struct batoni_op *op,
              enum batoni_op_state state)
{
	bool issued = op->flags & BATONI_FLAG_STREAM_ISSUED
	                      ? state == BATONI_ARMED
	                      : state == BATONI_ISSUED;

	if (state == BATONI_ENDED)
		start_phase(ranges, op, "Post");
	else if (issued)
		start_phase(ranges, op, "");
	else if (!ranges->phase_open)
		start_phase(ranges, op, "Pre");
}

static enum baton_status
moved(void *context, const struct batoni_op *op, unsigned state)
{
	struct ranges *ranges;

	(void)context;
	if (state == BATONI_NEW || (op->flags & BATONI_FLAG_LOCAL) ||
	    !batoni_kind_of(op)->trace)
		return BATON_OK;
	ranges = ranges_of(op);
	if (batoni_is_transfer(op))
		move_transfer(ranges, op, state);
	else if (state == BATONI_ENDED)
		end_phase(ranges);
	else if (!ranges->phase_open)
		start_phase(ranges, op, "");
	return BATON_OK;
}

static void
left(void *context, const struct baton_comm *comm, uint32_t slot)
{
	(void)context;
	end_phase(&comm->nvtx->ranges[slot]);
}

static void
copying(void *context, const struct batoni_op *op, bool begins)
{
	struct ranges *ranges = ranges_of(op);

	(void)context;
	end_copy(ranges);
	if (!begins || !ranges->phase_open)
		return;
	ranges->copy = start_range(op, "", "Memcpy");
	ranges->copy_open = true;
}

static const struct batoni_observer observer = {
	.moved = moved,
	.left = left,
	.copying = copying,
};

const struct batoni_observer *
batoni_nvtx_observer(struct baton_comm *comm)
{
	struct batoni_nvtx *nvtx;

	if (!batoni_config()->nvtx)
		return NULL;
	nvtx = batoni_alloc(1, sizeof(*nvtx) +
	                               comm->pool.size *
	                                       sizeof(nvtx->ranges[0]));
	if (!nvtx) {
		batoni_log(BATONI_LOG_WARN,
		           "rank %d: no memory for the ranges of BATON_NVTX: "
		           "none are drawn",
		           comm->rank);
		return NULL;
	}
	pthread_once(&once, create_domain);
	nvtx->slots = comm->pool.size;
	comm->nvtx = nvtx;
	return &observer;
}

void
batoni_nvtx_close(struct batoni_nvtx *nvtx)
{
	for (uint32_t i = 0; nvtx && i < nvtx->slots; i++)
		end_phase(&nvtx->ranges[i]);
	batoni_free(nvtx);
}

#define TEXT_OF(number) #number
#define NUMBER_TEXT(number) TEXT_OF(number)

/* NVTX is all in the header, which finds the tool that records. */
void
batoni_nvtx_find(struct baton_library_info *info_p)
{
	info_p->built = "NVTX " NUMBER_TEXT(NVTX_VERSION);
	info_p->version = NUMBER_TEXT(NVTX_VERSION);
}

#else

static void
warn_once(void)
{
	batoni_log(BATONI_LOG_WARN,
	           "BATON_NVTX is 1, but this build of Baton draws no ranges: "
	           "build it with -DBATON_WITH_NVTX=ON, which needs NVTX's "
	           "header (nvtx3/nvToolsExt.h)");
}

const struct batoni_observer *
batoni_nvtx_observer(struct baton_comm *comm)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)comm;
	if (batoni_config()->nvtx)
		pthread_once(&once, warn_once);
	return NULL;
}

void
batoni_nvtx_close(struct batoni_nvtx *nvtx)
{
	(void)nvtx;
}

void
batoni_nvtx_find(struct baton_library_info *info_p)
{
	info_p->why_not = "this build of Baton draws no ranges: build it with "
			  "-DBATON_WITH_NVTX=ON, which needs NVTX's header "
			  "(nvtx3/nvToolsExt.h)";
}

#endif
