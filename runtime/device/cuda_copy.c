/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of the CUDA device.
 *
 * Copies run on internal streams of the GPU that has the memory, one for each direction, so
 * that a copy in and a copy out overlap.  The direction is known from the pinned block, which is
 * ours.  The ticket is an event behind the copy; if none could be recorded, the ticket is the
 * stream itself, which is idle when the copy has ended.
 *
 * Several copies are one call, cuMemcpyBatchAsync, with one event behind it.  A driver of
 * CUDA before 12.8 has no such call, and one that has it may refuse it.  Then they are
 * single calls on the same stream, still with one event.  A call that was refused has
 * started none of its copies, or those before the one that is wrong.  The single calls copy
 * the same bytes again, later in the stream, and say which is wrong.  After NOT_SUPPORTED,
 * or CUDA_TRIES refusals in a row, the call is not made again.  It takes neither the legacy
 * default stream nor one that is captured; the internal streams are not of these.
 * BATON_CUDA_COPIES=single does without the call.
 *
 * A copy has ended only when the driver says so.  A query that fails while the device is well
 * is asked again; a device that fails CUDA_TRIES times in a row is sick.
 */
#include "cuda_gpu.h"

#include "config.h"

/* A ticket: the event (0: none could be recorded), where the copies run, and how often asking
 * has failed. */
enum { TICKET_EVENT, TICKET_PLACE, TICKET_FAILURES };

/* Where a copy runs: a stream of the GPU that has the memory. */
struct place {
	struct cuda_gpu *gpu;
	unsigned stream;
};

/* GPUs are aligned to 64 bytes. */
static uint64_t
place_to_word(struct place place)
{
	return (uint64_t)(uintptr_t)place.gpu | place.stream;
}

static struct place
place_of_word(uint64_t word)
{
	return (struct place){(struct cuda_gpu *)(uintptr_t)(word &
	                                                     ~UINT64_C(63)),
	                      (unsigned)(word & 63)};
}

/* owner: see copy_start.  `look` has set that GPU up. */
static struct place
choose_place(struct cuda_gpu *gpu, const void *to, const void *from, int owner)
{
	struct cuda_gpu *home = gpu;
	unsigned stream = CUDA_COPIES_OTHER;

	if (batoni_cuda_block_of(gpu, to))
		stream = CUDA_COPIES_OUT;
	else if (batoni_cuda_block_of(gpu, from))
		stream = CUDA_COPIES_IN;
	if (owner >= 0 && owner != gpu->number)
		home = batoni_cuda_gpu_find(owner);
	return (struct place){home ? home : gpu, stream};
}

/* Of all that the stream has got.  Between enter and leave of that GPU. */
static struct batoni_ticket
make_ticket(struct place place)
{
	struct cuda_gpu *gpu = place.gpu;
	CUresult result;
	struct cuda_event *event = batoni_cuda_event_take(gpu, &result);

	if (event && gpu->api->event_record(event->event,
	                                    gpu->copies[place.stream]) !=
	                     BATONI_CU_SUCCESS) {
		batoni_cuda_event_give(gpu, event);
		event = NULL;
	}
	return (struct batoni_ticket){{
		[TICKET_EVENT] = (uint64_t)(uintptr_t)event,
		[TICKET_PLACE] = place_to_word(place),
	}};
}

/* Likewise. */
static CUresult
start_one(struct place place, void *to, const void *from, size_t bytes)
{
	const struct cuda_gpu *gpu = place.gpu;

	return gpu->api->copy((CUdeviceptr)(uintptr_t)to,
	                      (CUdeviceptr)(uintptr_t)from, bytes,
	                      gpu->copies[place.stream]);
}

enum baton_status
batoni_cuda_copy_start(struct batoni_device *device, void *to, const void *from,
                       size_t bytes, int owner, struct batoni_ticket *ticket_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct place place = choose_place(gpu, to, from, owner);
	const char *call = "cuCtxPushCurrent";
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(place.gpu, &guard);

	if (result == BATONI_CU_SUCCESS) {
		call = "cuMemcpyAsync";
		result = start_one(place, to, from, bytes);
		if (result == BATONI_CU_SUCCESS)
			*ticket_p = make_ticket(place);
		batoni_cuda_leave(place.gpu, &guard);
	}
	return result == BATONI_CU_SUCCESS ? BATON_OK
	                                   : batoni_cuda_note(gpu, call, result);
}

/* One call for all.  Each has pinned memory on one side and a device's on the other, so there is
 * nothing to say of where they are.  A kernel that fills the GPU must not hold them up. */
static CUresult
start_together(struct place place, const struct batoni_copy *copies, size_t n)
{
	const struct batoni_cuda_api *api = place.gpu->api;
	CUstream stream = place.gpu->copies[place.stream];
	CUdeviceptr to[BATONI_COPIES_MAX], from[BATONI_COPIES_MAX];
	size_t bytes[BATONI_COPIES_MAX], first = 0, wrong = 0;
	CUmemcpyAttributes all = {
		.srcAccessOrder = BATONI_CU_SOURCE_IN_ORDER,
		.flags = BATONI_CU_COPY_BESIDE_COMPUTE,
	};

	for (size_t i = 0; i < n; i++) {
		to[i] = (CUdeviceptr)(uintptr_t)copies[i].to;
		from[i] = (CUdeviceptr)(uintptr_t)copies[i].from;
		bytes[i] = copies[i].bytes;
	}
	if (api->copies)
		return api->copies(to, from, bytes, n, &all, &first, 1, stream);
	return api->copies_first(to, from, bytes, n, &all, &first, 1, &wrong,
	                         stream);
}

/* Has the driver the call, does it take it, and is it wanted? */
static bool
packs(const struct cuda_gpu *gpu)
{
	return !batoni_config()->cuda_single &&
	       (gpu->api->copies || gpu->api->copies_first) &&
	       gpu->packs_refused < CUDA_TRIES;
}

static void
note_packed(struct cuda_gpu *gpu, CUresult result)
{
	if (result == BATONI_CU_SUCCESS)
		gpu->packs_refused = 0;
	else if (result == BATONI_CU_NOT_SUPPORTED)
		gpu->packs_refused = CUDA_TRIES;
	else
		gpu->packs_refused++;
}

static CUresult
start_several(struct place place, const struct batoni_copy *copies, size_t n,
              size_t *started_p)
{
	CUresult result = BATONI_CU_NOT_SUPPORTED;

	if (packs(place.gpu)) {
		result = start_together(place, copies, n);
		note_packed(place.gpu, result);
	}
	if (result == BATONI_CU_SUCCESS) {
		*started_p = n;
		return result;
	}
	do {
		const struct batoni_copy *copy = &copies[*started_p];

		result = start_one(place, copy->to, copy->from, copy->bytes);
	} while (result == BATONI_CU_SUCCESS && ++*started_p < n);
	return result;
}

enum baton_status
batoni_cuda_copies_start(struct batoni_device *device,
                         const struct batoni_copy *copies, size_t n, int owner,
                         struct batoni_ticket *ticket_p, size_t *started_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct place place =
		choose_place(gpu, copies[0].to, copies[0].from, owner);
	const char *call = "cuCtxPushCurrent";
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(place.gpu, &guard);

	*started_p = 0;
	if (result == BATONI_CU_SUCCESS) {
		call = "cuMemcpyAsync";
		result = start_several(place, copies, n, started_p);
		if (*started_p > 0)
			*ticket_p = make_ticket(place);
		batoni_cuda_leave(place.gpu, &guard);
	}
	return result == BATONI_CU_SUCCESS ? BATON_OK
	                                   : batoni_cuda_note(gpu, call, result);
}

static CUresult
query(struct place place, const struct cuda_event *event)
{
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(place.gpu, &guard);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = event ? place.gpu->api->event_query(event->event)
	               : place.gpu->api->stream_query(
				 place.gpu->copies[place.stream]);
	batoni_cuda_leave(place.gpu, &guard);
	return result;
}

enum baton_status
batoni_cuda_copy_test(struct batoni_device *device, struct batoni_ticket *ticket)
{
	struct place place = place_of_word(ticket->words[TICKET_PLACE]);
	struct cuda_event *event =
		(struct cuda_event *)(uintptr_t)ticket->words[TICKET_EVENT];
	const char *call = event ? "cuEventQuery" : "cuStreamQuery";
	CUresult result = query(place, event);

	if (result == BATONI_CU_NOT_READY)
		return BATON_PENDING;
	if (result != BATONI_CU_SUCCESS) {
		if (++ticket->words[TICKET_FAILURES] < CUDA_TRIES)
			return BATON_PENDING;
		/* It is not known whether the copy goes on. */
		if (event)
			batoni_cuda_event_lose(place.gpu, event);
		batoni_cuda_fail(place.gpu, call, result);
		return batoni_cuda_note(batoni_cuda_gpu(device), call, result);
	}
	if (event)
		batoni_cuda_event_give(place.gpu, event);
	return BATON_OK;
}
