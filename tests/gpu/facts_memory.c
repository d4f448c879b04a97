/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Facts on memory and contexts: what the driver says of pointers, mappings side by side,
 * registered pages, a call of several copies in which one is wrong, words that a stream writes into
 * memory of the device, ids of contexts.
 */
#include "facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pointers -------------------------------------------------------------- */

struct answer {
	CUresult result;
	unsigned type;
	int ordinal;
	unsigned managed;
	CUdeviceptr start;
	size_t size;
};

static struct answer
ask(const struct gpu *gpu, CUdeviceptr pointer)
{
	CUpointer_attribute which[] = {
		BATONI_CU_POINTER_MEMORY_TYPE, BATONI_CU_POINTER_DEVICE_ORDINAL,
		BATONI_CU_POINTER_IS_MANAGED, BATONI_CU_POINTER_RANGE_START,
		BATONI_CU_POINTER_RANGE_SIZE};
	struct answer answer = {.ordinal = -100};
	void *values[] = {&answer.type, &answer.ordinal, &answer.managed, &answer.start,
	                  &answer.size};

	answer.result = gpu->api->pointer_attributes(5, which, values, pointer);
	return answer;
}

static void
say(const struct gpu *gpu, const char *name, CUdeviceptr pointer)
{
	struct answer is = ask(gpu, pointer);

	fact("pointers.%s: %s (type %u, device %d, managed %u, range from %+lld of %zu "
	     "bytes)",
	     name, gpu_name(gpu, is.result), is.type, is.ordinal, is.managed,
	     (long long)(is.start - pointer), is.size);
}

static void
say_managed(const struct gpu *gpu)
{
	typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t, unsigned);
	void *symbol = gpu_symbol("cuMemAllocManaged");
	CUdeviceptr managed;
	alloc_fn alloc;

	memcpy(&alloc, &symbol, sizeof(alloc));
	if (!alloc || alloc(&managed, 65536, 1) != BATONI_CU_SUCCESS)
		fact("pointers.managed: unknown (there is none)");
	else
		say(gpu, "managed", managed + 4096);
}

static void
say_in_capture(const struct gpu *gpu)
{
	typedef CUresult (*begin_fn)(CUstream, unsigned);
	typedef CUresult (*end_fn)(CUstream, void **);
	void *begin_symbol = gpu_symbol("cuStreamBeginCapture_v2");
	void *end_symbol = gpu_symbol("cuStreamEndCapture");
	CUstream stream = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
	void *graph = NULL;
	begin_fn begin;
	end_fn end;

	memcpy(&begin, &begin_symbol, sizeof(begin));
	memcpy(&end, &end_symbol, sizeof(end));
	if (!begin || !end || begin(stream, 0) != BATONI_CU_SUCCESS) {
		fact("pointers.in_capture: unknown (no capture)");
		return;
	}
	say(gpu, "in_capture", gpu->memory);
	fact("pointers.after_capture: %s (the end of the capture)",
	     gpu_name(gpu, end(stream, &graph)));
}

void
facts_pointers(struct gpu *gpu)
{
	static unsigned char pageable[65536] __attribute__((aligned(4096)));
	CUcontext context;

	say(gpu, "unknown", (CUdeviceptr)(uintptr_t)pageable);
	say(gpu, "device", gpu->memory + 4096);
	say(gpu, "pinned", (CUdeviceptr)(uintptr_t)(gpu->data + 4096));
	if (gpu->api->host_register(pageable, sizeof(pageable), 0) == BATONI_CU_SUCCESS)
		say(gpu, "registered", (CUdeviceptr)(uintptr_t)(pageable + 4096));
	say_managed(gpu);
	say_in_capture(gpu);
	MUST(gpu, gpu->api->context_pop(&context));
	say(gpu, "without_context", gpu->memory);
	MUST(gpu, gpu->api->context_push(context));
}

/* ---- mappings -------------------------------------------------------------- */

/* One allocation of two granules, and two of one, mapped side by side as PyTorch's
 * expandable segments are. */
struct pieces {
	CUmemAllocationProp of;
	size_t granule;
	CUdeviceptr address; /* of four granules */
	CUmemGenericAllocationHandle one, other, long_one;
};

static void
pieces_create(const struct gpu *gpu, struct pieces *pieces)
{
	memset(&pieces->of, 0, sizeof(pieces->of));
	pieces->of.type = BATONI_CU_ALLOCATION_PINNED;
	pieces->of.location.type = BATONI_CU_LOCATION_DEVICE;
	pieces->of.location.id = gpu->device;
	MUST(gpu, gpu->api->vm_granularity(&pieces->granule, &pieces->of,
	                                   BATONI_CU_GRANULARITY_BEST));
	MUST(gpu, gpu->api->vm_reserve(&pieces->address, 4 * pieces->granule, 0, 0, 0));
	MUST(gpu, gpu->api->vm_create(&pieces->one, pieces->granule, &pieces->of, 0));
	MUST(gpu, gpu->api->vm_create(&pieces->other, pieces->granule, &pieces->of, 0));
	MUST(gpu, gpu->api->vm_create(&pieces->long_one, 2 * pieces->granule, &pieces->of,
	                              0));
}

void
facts_mappings(struct gpu *gpu)
{
	static unsigned char pages[8192] __attribute__((aligned(4096)));
	CUmemAccessDesc access = {{BATONI_CU_LOCATION_DEVICE, gpu->device},
	                          BATONI_CU_ACCESS_READ_WRITE};
	CUstream stream = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)gpu->data;
	struct pieces p;
	CUresult result;

	pieces_create(gpu, &p);
	MUST(gpu, gpu->api->vm_map(p.address, p.granule, 0, p.one, 0));
	MUST(gpu, gpu->api->vm_map(p.address + p.granule, p.granule, 0, p.other, 0));
	MUST(gpu, gpu->api->vm_access(p.address, 2 * p.granule, &access, 1));
	say(gpu, "first_of_two_mappings", p.address + 4096);
	say(gpu, "second_of_two_mappings", p.address + p.granule + 4096);
	say(gpu, "reserved_and_not_mapped", p.address + 2 * p.granule + 4096);
	result = gpu->api->copy(p.address + p.granule - 4096, host, 8192, stream);
	fact("mappings.copy_over_two: %s", gpu_name(gpu, result));
	gpu_let_go(gpu);
	result = gpu->api->vm_map(p.address + 2 * p.granule, p.granule, p.granule,
	                          p.long_one, 0);
	fact("mappings.from_an_offset: %s (one of two granules)", gpu_name(gpu, result));
	MUST(gpu, gpu->api->host_register(pages, 2048, 0));
	result = gpu->api->host_register(pages + 2048, 2048, 0);
	fact("mappings.registered_beside_in_a_page: %s", gpu_name(gpu, result));
	result = gpu->api->host_register(pages + 1024, 4096, 0);
	fact("mappings.registered_over_registered: %s", gpu_name(gpu, result));
}

/* ---- contexts -------------------------------------------------------------- */

static void
say_reset(struct gpu *gpu, unsigned long long before)
{
	typedef CUresult (*reset_fn)(CUdevice);
	void *symbol = gpu_symbol("cuDevicePrimaryCtxReset_v2");
	unsigned long long after = 0;
	reset_fn reset;
	CUcontext context;

	memcpy(&reset, &symbol, sizeof(reset));
	if (!reset || reset(gpu->device) != BATONI_CU_SUCCESS ||
	    gpu->api->primary_retain(&context, gpu->device) != BATONI_CU_SUCCESS ||
	    gpu->api->context_id(context, &after) != BATONI_CU_SUCCESS)
		fact("context.id_after_reset: unknown (a call failed)");
	else
		fact("context.id_after_reset: %s (%llu, then %llu; the handle is %s)",
		     before == after ? "the same" : "another", before, after,
		     context == gpu->context ? "the same" : "another");
}

void
facts_context(struct gpu *gpu)
{
	CUstream blocking = gpu_stream(gpu, 0, 0);
	unsigned long long before = 0;
	CUresult result;

	gpu->turn++;
	MUST(gpu, gpu_wait(gpu, blocking, gpu->turn));
	result = gpu->api->stream_query(NULL);
	fact("context.query_of_NULL: %s (while a blocking stream waits)",
	     gpu_name(gpu, result));
	gpu_let_go(gpu);
	MUST(gpu, gpu->api->context_id(gpu->context, &before));
	say_reset(gpu, before);
}

/* ---- several copies, and words that are written ------------------------------ */

static CUstreamBatchMemOpParams
write_of(CUdeviceptr address, uint64_t value)
{
	CUstreamBatchMemOpParams operation;

	memset(&operation, 0, sizeof(operation));
	operation.writeValue.operation = BATONI_CU_OP_WRITE_64;
	operation.writeValue.address = address;
	operation.writeValue.value64 = value;
	return operation;
}

/* As a receive of 8 bytes (cuda_copy.c): one call writes them, and then a pinned word.  They are
 * read on another stream once the host has seen the word. */
static void
say_value(struct gpu *gpu, CUstream stream)
{
	const uint64_t value = UINT64_C(0x0123456789abcdef);
	CUstream reader = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
	CUstreamBatchMemOpParams writes[2];
	uint64_t read = 0;
	CUresult result;
	bool done;

	gpu->turn++;
	writes[0] = write_of(gpu->memory + 64, value);
	writes[1] = write_of(gpu->done_device, gpu->turn);
	result = gpu->api->stream_memory_ops(stream, 2, writes, 0);
	done = result == BATONI_CU_SUCCESS && gpu_is_done(gpu, gpu->turn, 1000);
	MUST(gpu, gpu->api->copy((CUdeviceptr)(uintptr_t)gpu->data,
	                         gpu->memory + 64, sizeof(read), reader));
	while (gpu->api->stream_query(reader) == BATONI_CU_NOT_READY)
		sleep_ms(1);
	memcpy(&read, gpu->data, sizeof(read));
	fact("batch.value_to_device: %s (%s; the word behind it was %s)",
	     read == value ? "written" : "not written", gpu_name(gpu, result),
	     done ? "written" : "not written");
}

void
facts_batch(struct gpu *gpu)
{
	CUstream stream = gpu_stream(gpu, BATONI_CU_STREAM_NON_BLOCKING, 0);
	/* The second runs past what both sides have. */
	CUdeviceptr to[2] = {(CUdeviceptr)(uintptr_t)gpu->data, gpu->memory + 8192};
	CUdeviceptr from[2] = {gpu->memory, gpu->memory};
	size_t sizes[2] = {4096, (size_t)1 << 40}, first = 0, failed = 99;
	CUmemcpyAttributes attributes;
	CUresult result;

	memset(&attributes, 0, sizeof(attributes));
	attributes.srcAccessOrder = BATONI_CU_SOURCE_IN_ORDER;
	say_value(gpu, stream);
	memset(gpu->data, 1, 8192);
	MUST(gpu, gpu->api->set_bytes(gpu->memory, 2, DATA_BYTES, stream));
	if (gpu->api->copies)
		result = gpu->api->copies(to, from, sizes, 2, &attributes, &first, 1,
		                          stream);
	else if (gpu->api->copies_first)
		result = gpu->api->copies_first(to, from, sizes, 2, &attributes, &first,
		                                1, &failed, stream);
	else {
		fact("batch.one_is_wrong: unknown (the driver has no such call)");
		return;
	}
	for (int ms = 0; ms < 1000; ms += 10) {
		if (gpu->api->stream_query(stream) != BATONI_CU_NOT_READY)
			break;
		sleep_ms(10);
	}
	fact("batch.one_is_wrong: %s (the stream then: %s; the first copy was %s; the "
	     "index told: %zu)",
	     gpu_name(gpu, result), gpu_name(gpu, gpu->api->stream_query(stream)),
	     gpu->data[0] == 2 ? "made" : "not made", failed);
}
