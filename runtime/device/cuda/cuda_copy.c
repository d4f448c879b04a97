/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of the CUDA device.
 *
 * Copies run on internal streams of the GPU that has the memory, one for each direction, so
 * that a copy in and a copy out overlap.  Which side is a pinned block of Baton's tells the
 * direction.
 *
 * The copies of each stream are numbered, and behind each copy the stream writes its number into a
 * pinned word of its own (the write makes the copy visible first: cuda_item.c).  Copies of a stream
 * end in order, so a ticket is stream and number, and a test of it is one load.  Where the driver
 * refuses the write, or there are no words (the GPU has no memory operations, or no communicator),
 * the ticket is an event behind the copy.  If no event could be recorded either, the ticket is the
 * stream itself, which is idle when the copy has ended.
 *
 * For 8 bytes into memory of the stream's own GPU no copy is made: this file reads them at the call,
 * and the stream writes them as it writes the number, in the same driver call and in front of it.
 * Managed memory cannot be written so.  Where the driver refuses, a copy follows: whatever of the
 * refused call was carried out has written the same bytes.  No driver call copies out of the GPU and
 * writes a word, so the other direction takes two calls.
 *
 * A stream of a sick GPU writes nothing.  So the test of a ticket that has not ended asks the driver
 * every ASK_NS, or each time where the GPU is known to be sick.  If the stream is idle then, the copy
 * has ended, whatever the word says.
 *
 * Several copies are one call, cuMemcpyBatchAsync, with one write behind it.  A driver of
 * CUDA before 12.8 has no such call, and one that has it may refuse it.  Then each copy is
 * a call of its own on the same stream, still with one write behind all.  A call that was
 * refused has started none of its copies, or those before the one that is wrong.  The single
 * calls copy the same bytes again, later in the stream, and tell which copy is wrong.  After
 * NOT_SUPPORTED, or CUDA_TRIES refusals in a row, the call is not made again.  It does not work
 * on the legacy default stream nor on one that is captured; the internal streams are neither.
 * A copy by itself is a list of one.
 *
 * A copy has ended only when the stream or the driver says so.  A query that fails while the
 * device is well is repeated; a device that fails CUDA_TRIES times in a row is sick.
 */
#include "cuda_gpu.h"

#include <string.h>

#include "clock.h"

#define ASK_NS 100000000u

/* The words of a ticket: where the copies run; the number of the last one, or the event (0: none
 * could be recorded); for a number, when the driver was last asked. */
enum { TICKET_STREAM, TICKET_END, TICKET_ASKED };

/* Where a copy runs, a stream of the GPU that has the memory, and whether a number marks its end. */
struct copy_stream {
	struct cuda_gpu *gpu;
	unsigned index; /* in gpu->copies */
	bool numbered;
};

#define NUMBERED 32u

/* A struct cuda_gpu is aligned to 64 bytes, so the low bits of its address are free. */
static uint64_t
stream_to_word(struct copy_stream stream)
{
	return (uint64_t)(uintptr_t)stream.gpu |
	       (stream.numbered ? NUMBERED : 0) | stream.index;
}

static struct copy_stream
stream_of_word(uint64_t word)
{
	return (struct copy_stream){
		.gpu = (struct cuda_gpu *)(uintptr_t)(word & ~UINT64_C(63)),
		.index = (unsigned)word & (NUMBERED - 1),
		.numbered = word & NUMBERED,
	};
}

/* owner: see copy_start.  `inspect` has set that GPU up. */
static struct copy_stream
choose_stream(struct cuda_gpu *gpu, const void *to, const void *from, int owner)
{
	struct cuda_gpu *home = gpu;
	unsigned index = CUDA_COPIES_OTHER;

	if (batoni_cuda_block_of(gpu, to))
		index = CUDA_COPIES_OUT;
	else if (batoni_cuda_block_of(gpu, from))
		index = CUDA_COPIES_IN;
	if (owner >= 0 && owner != gpu->number)
		home = batoni_cuda_gpu_find(owner);
	return (struct copy_stream){.gpu = home ? home : gpu, .index = index};
}

/* The pinned word into which the stream writes numbers; NULL: it writes none. */
static const _Atomic uint64_t *
word_of(struct copy_stream stream)
{
	const _Atomic uint64_t *words = atomic_load_explicit(
		&stream.gpu->copied, memory_order_acquire);

	return words ? &words[stream.index * CUDA_LINE_WORDS] : NULL;
}

static CUstreamBatchMemOpParams
write_of(const volatile void *to, uint64_t value)
{
	return (CUstreamBatchMemOpParams){
		.writeValue.operation = BATONI_CU_OP_WRITE_64,
		.writeValue.address = (CUdeviceptr)(uintptr_t)to,
		.writeValue.value64 = value,
	};
}

/* Put the next number behind all that is on the stream, and behind the write of *first (NULL: there
 * is none).  Between enter and exit of that GPU.  False: the driver refused; no copy gets this number,
 * since the failed call may have put it there all the same. */
static bool
put_number(struct copy_stream stream, const CUstreamBatchMemOpParams *first)
{
	const _Atomic uint64_t *word = word_of(stream);
	struct cuda_gpu *gpu = stream.gpu;
	CUstreamBatchMemOpParams writes[2];
	unsigned n = 0;

	if (first)
		writes[n++] = *first;
	writes[n++] = write_of(word, ++gpu->numbers[stream.index]);
	return word &&
	       gpu->api->stream_memory_ops(gpu->copies[stream.index], n, writes,
	                                   0) == BATONI_CU_SUCCESS;
}

/* Record an event on the stream.  NULL: none was recorded. */
static struct cuda_event *
put_event(struct copy_stream stream)
{
	struct cuda_gpu *gpu = stream.gpu;
	CUresult result;
	struct cuda_event *event = batoni_cuda_event_take(gpu, &result);

	if (event && gpu->api->event_record(event->event,
	                                    gpu->copies[stream.index]) !=
	                     BATONI_CU_SUCCESS) {
		batoni_cuda_event_give(gpu, event);
		event = NULL;
	}
	return event;
}

/* The ticket of the number that was put on the stream last. */
static struct batoni_ticket
number_ticket(struct copy_stream stream)
{
	struct batoni_ticket ticket = {{0}};

	stream.numbered = true;
	ticket.words[TICKET_STREAM] = stream_to_word(stream);
	ticket.words[TICKET_END] = stream.gpu->numbers[stream.index];
	ticket.words[TICKET_ASKED] = batoni_coarse_ns();
	return ticket;
}

/* A ticket for what was put on the stream last. */
static struct batoni_ticket
make_ticket(struct copy_stream stream)
{
	struct batoni_ticket ticket = {{0}};

	if (put_number(stream, NULL))
		return number_ticket(stream);
	ticket.words[TICKET_STREAM] = stream_to_word(stream);
	ticket.words[TICKET_END] = (uint64_t)(uintptr_t)put_event(stream);
	return ticket;
}

/* May the stream write the bytes of this copy, as a value?  owner: see copy_start. */
static bool
is_value(struct copy_stream stream, const struct batoni_copy *copy, int owner)
{
	return copy->bytes == sizeof(uint64_t) &&
	       (uintptr_t)copy->to % sizeof(uint64_t) == 0 &&
	       stream.index == CUDA_COPIES_IN && owner == stream.gpu->number;
}

/* Between enter and exit.  False: the driver refused, and the bytes are to be copied. */
static bool
start_value(struct copy_stream stream, const struct batoni_copy *copy,
            struct batoni_ticket *ticket_p)
{
	CUstreamBatchMemOpParams write;
	uint64_t value;

	memcpy(&value, copy->from, sizeof(value));
	write = write_of(copy->to, value);
	if (!put_number(stream, &write))
		return false;
	*ticket_p = number_ticket(stream);
	return true;
}

/* Between enter and exit. */
static CUresult
start_one(struct copy_stream stream, const struct batoni_copy *copy)
{
	const struct cuda_gpu *gpu = stream.gpu;

	return gpu->api->copy((CUdeviceptr)(uintptr_t)copy->to,
	                      (CUdeviceptr)(uintptr_t)copy->from, copy->bytes,
	                      gpu->copies[stream.index]);
}

/* Start all in one call.  Each has pinned memory on one side and a device's on the other, so the
 * driver needs no hint of their locations.  A kernel that fills the GPU must not hold them up. */
static CUresult
start_together(struct copy_stream stream, const struct batoni_copy *copies, size_t n)
{
	const struct batoni_cuda_api *api = stream.gpu->api;
	CUstream handle = stream.gpu->copies[stream.index];
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
		return api->copies(to, from, bytes, n, &all, &first, 1, handle);
	return api->copies_first(to, from, bytes, n, &all, &first, 1, &wrong,
	                         handle);
}

/* Does the driver have the call that starts several copies, and has it not refused it? */
static bool
packs(const struct cuda_gpu *gpu)
{
	return (gpu->api->copies || gpu->api->copies_first) &&
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
start_several(struct copy_stream stream, const struct batoni_copy *copies, size_t n,
              size_t *started_p)
{
	CUresult result = BATONI_CU_NOT_SUPPORTED;

	if (n > 1 && packs(stream.gpu)) {
		result = start_together(stream, copies, n);
		note_packed(stream.gpu, result);
	}
	if (result == BATONI_CU_SUCCESS) {
		*started_p = n;
		return result;
	}
	do
		result = start_one(stream, &copies[*started_p]);
	while (result == BATONI_CU_SUCCESS && ++*started_p < n);
	return result;
}

enum baton_status
batoni_cuda_copies_start(struct batoni_device *device,
                         const struct batoni_copy *copies, size_t n, int owner,
                         struct batoni_ticket *ticket_p, size_t *started_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct copy_stream stream =
		choose_stream(gpu, copies[0].to, copies[0].from, owner);
	struct cuda_guard guard;
	const char *call;
	CUresult result;

	*started_p = 0;
	do {
		call = "cuCtxPushCurrent";
		result = batoni_cuda_enter(stream.gpu, &guard);
		if (result != BATONI_CU_SUCCESS)
			break;
		call = "cuMemcpyAsync";
		if (n == 1 && is_value(stream, copies, owner) &&
		    start_value(stream, copies, ticket_p)) {
			*started_p = 1;
			continue;
		}
		result = start_several(stream, copies, n, started_p);
		if (*started_p > 0)
			*ticket_p = make_ticket(stream);
	} while (batoni_cuda_exit_or_retry(
		stream.gpu, &guard,
		*started_p == 0 ? result : BATONI_CU_SUCCESS));
	return result == BATONI_CU_SUCCESS ? BATON_OK
	                                   : batoni_cuda_note(gpu, call, result);
}

/* A list of one. */
enum baton_status
batoni_cuda_copy_start(struct batoni_device *device, void *to, const void *from,
                       size_t bytes, int owner, struct batoni_ticket *ticket_p)
{
	const struct batoni_copy copy = {.to = to, .from = from, .bytes = bytes};
	size_t started;

	return batoni_cuda_copies_start(device, &copy, 1, owner, ticket_p,
	                                &started);
}

/* Has the stream passed the event, or, without one, all that was put on it?  SUCCESS, NOT_READY;
 * any other result: the GPU is sick. */
static CUresult
query(const struct cuda_gpu *gpu, unsigned stream, const struct cuda_event *event)
{
	CUresult result = BATONI_CU_SUCCESS;

	for (unsigned i = 0; i < CUDA_TRIES; i++) {
		struct cuda_guard guard;

		result = batoni_cuda_enter(gpu, &guard);
		if (result != BATONI_CU_SUCCESS)
			continue;
		result = event ? gpu->api->event_query(event->event)
		               : gpu->api->stream_query(gpu->copies[stream]);
		batoni_cuda_exit_or_retry(gpu, &guard, result);
		if (result == BATONI_CU_SUCCESS || result == BATONI_CU_NOT_READY)
			break;
	}
	return result;
}

CUresult
batoni_cuda_copies_query(const struct cuda_gpu *gpu)
{
	return query(gpu, CUDA_COPIES_OTHER, NULL);
}

/* The GPU is sick, so it is not known whether the copy goes on. */
static enum baton_status
fail_copy(struct batoni_device *device, struct copy_stream stream, const char *call,
          CUresult result)
{
	batoni_cuda_fail(stream.gpu, call, result);
	return batoni_cuda_note(batoni_cuda_gpu(device), call, result);
}

static bool
has_ended(struct copy_stream stream, uint64_t number)
{
	/* The stream has written the number behind the copy, so the copy is visible. */
	uint64_t last =
		atomic_load_explicit(word_of(stream), memory_order_acquire);

	return (int64_t)(last - number) >= 0;
}

static enum baton_status
test_number(struct batoni_device *device, struct copy_stream stream,
            struct batoni_ticket *ticket)
{
	uint64_t now;
	CUresult result;

	if (has_ended(stream, ticket->words[TICKET_END]))
		return BATON_OK;
	now = batoni_coarse_ns();
	if (now - ticket->words[TICKET_ASKED] < ASK_NS &&
	    !atomic_load(&stream.gpu->sick))
		return BATON_PENDING;
	ticket->words[TICKET_ASKED] = now;
	result = query(stream.gpu, stream.index, NULL);
	if (result == BATONI_CU_NOT_READY)
		return BATON_PENDING;
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : fail_copy(device, stream, "cuStreamQuery", result);
}

static enum baton_status
test_event(struct batoni_device *device, struct copy_stream stream,
           struct cuda_event *event)
{
	CUresult result = query(stream.gpu, stream.index, event);

	if (result == BATONI_CU_NOT_READY)
		return BATON_PENDING;
	if (result != BATONI_CU_SUCCESS) {
		if (event)
			batoni_cuda_event_lose(stream.gpu, event);
		return fail_copy(device, stream,
		                 event ? "cuEventQuery" : "cuStreamQuery", result);
	}
	if (event)
		batoni_cuda_event_give(stream.gpu, event);
	return BATON_OK;
}

enum baton_status
batoni_cuda_copy_test(struct batoni_device *device, struct batoni_ticket *ticket)
{
	struct copy_stream stream = stream_of_word(ticket->words[TICKET_STREAM]);
	uintptr_t end = (uintptr_t)ticket->words[TICKET_END];

	return stream.numbered
	               ? test_number(device, stream, ticket)
	               : test_event(device, stream, (struct cuda_event *)end);
}
