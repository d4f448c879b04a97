/* SPDX-License-Identifier: BSD-3-Clause */
/* Several copies in one call, in both of its forms. */
#include "world.h"

enum { N = 4, BYTES = 64 };

/* N copies from pinned memory into device memory, with one set of attributes. */
struct batch {
	CUstream stream;
	unsigned char *pinned;
	CUdeviceptr device;
	CUdeviceptr to[N], from[N];
	size_t bytes[N], n;
	CUmemcpyAttributes attributes[2];
	size_t firsts[2], attributes_n;
};

static struct batch b;

static void
batch_begin(void)
{
	void *pinned;

	world_begin();
	b.stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->host_alloc(&pinned, N * BYTES, 0));
	ck_success(w.sim->mem_alloc(&b.device, N * BYTES));
	b.pinned = pinned;
	b.n = N;
	b.attributes_n = 1;
	for (int i = 0; i < 2; i++)
		b.attributes[i].srcAccessOrder = BATONI_CU_SOURCE_IN_ORDER;
	for (size_t i = 0; i < N; i++) {
		memset(b.pinned + i * BYTES, (int)i + 1, BYTES);
		b.to[i] = b.device + i * BYTES;
		b.from[i] = (uintptr_t)b.pinned + i * BYTES;
		b.bytes[i] = BYTES;
	}
}

static CUresult
start_copies(CUstream stream)
{
	return w.sim->copies(b.to, b.from, b.bytes, b.n, b.attributes, b.firsts,
	                     b.attributes_n, stream);
}

static CUresult
start_first_form(CUstream stream, size_t *wrong_p)
{
	return w.sim->copies_first(b.to, b.from, b.bytes, b.n, b.attributes,
	                           b.firsts, b.attributes_n, wrong_p, stream);
}

static void
assert_copied(void)
{
	unsigned char got[N * BYTES];

	w.sim->sim_peek(got, b.device, sizeof(got));
	ck_assert_mem_eq(got, b.pinned, sizeof(got));
}

START_TEST(they_run_when_the_stream_gets_there_and_before_what_follows)
{
	unsigned char got = 0;
	CUevent event;

	batch_begin();
	ck_success(w.sim->event_create(&event, BATONI_CU_EVENT_DISABLE_TIMING));
	world_wait(b.stream, 0, 1);
	ck_success(start_copies(b.stream));
	ck_success(w.sim->event_record(event, b.stream));
	/* They read their sources when they run. */
	memset(b.pinned, 9, N * BYTES);
	w.sim->sim_settle(false);
	w.sim->sim_peek(&got, b.device, 1);
	ck_assert_uint_ne(got, 9);
	ck_assert_uint_eq(w.sim->event_query(event), BATONI_CU_NOT_READY);
	world_store(0, 1);
	ck_success(w.sim->event_synchronize(event));
	assert_copied();
	world_end();
}
END_TEST

START_TEST(both_forms_copy)
{
	size_t wrong = 7;

	batch_begin();
	b.attributes[0].flags = BATONI_CU_COPY_BESIDE_COMPUTE;
	ck_success(start_copies(b.stream));
	ck_success(w.sim->stream_synchronize(b.stream));
	assert_copied();
	memset(b.pinned, 5, N * BYTES);
	/* The second attributes are for the last copy. */
	b.attributes_n = 2;
	b.attributes[1].srcAccessOrder = CUDASIM_SOURCE_ANY;
	b.firsts[1] = N - 1;
	ck_success(start_first_form(b.stream, &wrong));
	ck_success(w.sim->stream_synchronize(b.stream));
	assert_copied();
	ck_assert_int_eq(w.sim->sim_uses("cuMemcpyBatchAsync_v2"), 1);
	ck_assert_int_eq(w.sim->sim_uses("cuMemcpyBatchAsync"), 1);
	world_end();
}
END_TEST

/* The call is refused, and nothing is copied. */
static void
refused(size_t wrong_copy)
{
	size_t wrong = 7;

	ck_assert_uint_eq(start_copies(b.stream), BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(start_first_form(b.stream, &wrong),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(wrong, wrong_copy);
	ck_assert_int_eq(w.sim->sim_queued(), 0);
}

START_TEST(a_wrong_copy_is_named_and_none_is_made)
{
	batch_begin();
	b.bytes[2] = 0;
	refused(2);
	b.bytes[2] = N * BYTES;
	refused(2);
	b.bytes[2] = BYTES;
	b.to[0] = 0;
	refused(0);
	b.to[0] = b.device;
	b.from[N - 1] = 0;
	refused(N - 1);
	world_end();
}
END_TEST

START_TEST(attributes_that_are_wrong_are_refused)
{
	batch_begin();
	b.n = 0;
	refused(SIZE_MAX);
	b.n = N;
	b.attributes_n = 0;
	refused(SIZE_MAX);
	b.attributes_n = 1;
	b.firsts[0] = 1;
	refused(SIZE_MAX);
	b.firsts[0] = 0;
	b.attributes[0].srcAccessOrder = 0;
	refused(SIZE_MAX);
	b.attributes[0].srcAccessOrder = BATONI_CU_SOURCE_IN_ORDER;
	b.attributes[0].flags = 2;
	refused(SIZE_MAX);
	b.attributes[0].flags = 0;
	b.attributes_n = 2;
	refused(SIZE_MAX); /* not ascending */
	b.firsts[1] = N;
	refused(SIZE_MAX); /* behind the last */
	b.firsts[1] = 1;
	ck_success(start_copies(b.stream));
	world_end();
}
END_TEST

START_TEST(the_legacy_default_stream_is_refused_and_the_per_thread_one_is_not)
{
	CUstream legacy = (CUstream)(uintptr_t)BATONI_CU_STREAM_LEGACY_VALUE;
	CUstream own = (CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE;

	batch_begin();
	ck_assert_uint_eq(start_copies(NULL), BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(start_copies(legacy), BATONI_CU_INVALID_VALUE);
	ck_success(start_copies(own));
	ck_success(w.sim->stream_synchronize(own));
	assert_copied();
	world_end();
}
END_TEST

START_TEST(a_captured_stream_is_refused_and_the_capture_goes_on)
{
	CUgraph graph;

	batch_begin();
	ck_success(w.sim->capture_begin(b.stream, CUDASIM_CAPTURE_GLOBAL));
	ck_assert_uint_eq(start_copies(b.stream), CUDASIM_CAPTURE_UNSUPPORTED);
	ck_success(w.sim->capture_end(b.stream, &graph));
	ck_success(w.sim->graph_destroy(graph));
	/* Another one is not concerned by a capture. */
	ck_success(w.sim->capture_begin(b.stream, CUDASIM_CAPTURE_GLOBAL));
	ck_success(start_copies(world_stream(BATONI_CU_STREAM_NON_BLOCKING)));
	ck_success(w.sim->capture_end(b.stream, &graph));
	ck_success(w.sim->graph_destroy(graph));
	world_end();
}
END_TEST

START_TEST(copies_that_touch_each_other_are_a_violation)
{
	batch_begin();
	b.to[3] = b.to[1] + BYTES - 1;
	ck_assert_uint_eq(start_copies(b.stream), BATONI_CU_INVALID_VALUE);
	b.to[3] = b.device + 3 * BYTES;
	/* What one writes another one reads. */
	b.from[2] = b.to[0];
	ck_assert_uint_eq(start_copies(b.stream), BATONI_CU_INVALID_VALUE);
	b.from[2] = b.from[1];
	ck_success(start_copies(b.stream));
	w.violations = 2;
	world_end();
}
END_TEST

START_TEST(pageable_memory_can_be_forbidden_in_them_too)
{
	unsigned char pageable[BYTES] = {0};

	batch_begin();
	b.from[1] = (uintptr_t)pageable;
	ck_success(start_copies(b.stream));
	ck_assert(w.sim->sim_set("pageable", 2));
	ck_assert_uint_eq(start_copies(b.stream), BATONI_CU_INVALID_VALUE);
	w.violations = 1;
	world_end();
}
END_TEST

START_TEST(copies_can_be_made_to_stand)
{
	unsigned char got = 0;

	batch_begin();
	ck_assert(w.sim->sim_set("copies", 0));
	ck_success(start_copies(b.stream));
	ck_success(w.sim->copy(b.device, (uintptr_t)b.pinned, 1, b.stream));
	world_write(b.stream, 0, 1);
	w.sim->sim_settle(false);
	ck_assert_uint_eq(world_load_word(0), 0);
	w.sim->sim_peek(&got, b.device, 1);
	ck_assert_uint_ne(got, 1);
	ck_assert(w.sim->sim_set("copies", 1));
	ck_success(w.sim->stream_synchronize(b.stream));
	ck_assert_uint_eq(world_load_word(0), 1);
	assert_copied();
	world_end();
}
END_TEST

static void *
look_up(int version, CUdriverProcAddressQueryResult why)
{
	CUdriverProcAddressQueryResult found;
	void *address;

	ck_success(w.sim->proc_address("cuMemcpyBatchAsync", &address, version, 0,
	                               &found));
	ck_assert_uint_eq(found, why);
	ck_assert((address != NULL) == (why == 0));
	return address;
}

START_TEST(a_driver_has_what_its_version_has)
{
	void *second, *first;
	int version;

	world_load();
	ck_success(w.sim->driver_version(&version));
	ck_assert_int_eq(version, 13000);
	second = look_up(13000, 0);
	first = look_up(12080, 0);
	ck_assert_ptr_ne(first, second);
	look_up(12070, 2);
	ck_assert(w.sim->sim_set("version", 12080));
	/* A version that it does not know: its newest form. */
	ck_assert_ptr_eq(look_up(13000, 0), first);
	look_up(12070, 2);
	ck_assert(w.sim->sim_set("version", 12020));
	look_up(13000, 1);
	ck_success(w.sim->driver_version(&version));
	ck_assert_int_eq(version, 12020);
	world_begin();
	ck_assert(!w.sim->sim_set("version", 13000)); /* too late */
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		they_run_when_the_stream_gets_there_and_before_what_follows,
		both_forms_copy,
		a_wrong_copy_is_named_and_none_is_made,
		attributes_that_are_wrong_are_refused,
		the_legacy_default_stream_is_refused_and_the_per_thread_one_is_not,
		a_captured_stream_is_refused_and_the_capture_goes_on,
		copies_that_touch_each_other_are_a_violation,
		pageable_memory_can_be_forbidden_in_them_too,
		copies_can_be_made_to_stand,
		a_driver_has_what_its_version_has,
	};

	return RUN_TESTS("cudasim_copies", tests);
}
