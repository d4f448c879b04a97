/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of the contracts: a slot that is NULL and may not be is found by its name, in every
 * table; and an optional table is there whole or not at all. */
#include <stdlib.h>
#include <string.h>

#include "fake_device.h"
#include "registry.h"
#include "run_tests.h"
#include "tables.h"

/* runtime/device/cuda/cuda.c: it has all tables but one. */
extern const struct batoni_device_ops batoni_device_cuda_ops;

/* A copy of the CUDA device's tables, with that one, whose slots can be unset. */
static struct {
	struct batoni_device_ops ops;
	struct batoni_in_engine_ops in_engine;
	struct batoni_mark_ops marks;
	struct batoni_event_ops events;
	struct batoni_bound_ops bounds;
	struct batoni_shared_queue_ops shared_queues;
	struct batoni_handle_ops handles;
	struct batoni_stream_put_ops puts;
	struct batoni_memory_ops memory;
	struct batoni_batch_ops batches;
	struct batoni_library_ops library;
	struct batoni_presence_ops presence;
	struct batoni_sharing_ops sharing;
	struct batoni_reach_ops reach;
	struct batoni_block_ops blocks;
	struct batoni_pin_ops pins;
} full;

/* A table that is looked at, with tables of its own, and its description. */
static const struct batoni_table *table;
static const void *looked_at;

#define COPY(from, part)                                                      \
	do {                                                                  \
		full.part = *(from)->part;                                    \
		(from)->part = &full.part;                                    \
	} while (0)

static void
setup(void)
{
	struct batoni_device_ops *ops = &full.ops;
	struct batoni_memory_ops *memory = &full.memory;

	*ops = batoni_device_cuda_ops;
	ops->in_engine = batoni_device_host_ops.in_engine;
	COPY(ops, in_engine);
	COPY(ops, marks);
	COPY(ops, events);
	COPY(ops, bounds);
	COPY(ops, shared_queues);
	COPY(ops, handles);
	COPY(ops, puts);
	COPY(ops, memory);
	COPY(memory, batches);
	COPY(memory, library);
	COPY(memory, presence);
	COPY(memory, sharing);
	COPY(memory, reach);
	COPY(memory, blocks);
	COPY(memory, pins);
	table = &batoni_device_table;
	looked_at = &full.ops;
}

static const char *
missing(void)
{
	return batoni_table_missing(table, looked_at);
}

static void **
pointer_at(void *ops, const struct batoni_slot *slot)
{
	return (void **)(void *)((char *)ops + slot->at);
}

/* The name that the check gives when this pointer alone is NULL. */
static const char *
without(void *ops, const struct batoni_slot *slot)
{
	void **pointer = pointer_at(ops, slot);
	void *kept = *pointer;
	const char *name;

	ck_assert_ptr_nonnull(kept);
	*pointer = NULL;
	name = missing();
	*pointer = kept;
	return name;
}

/* Unset each slot in turn; how many there are. */
static size_t
unset_each(const struct batoni_table *of, void *ops)
{
	size_t n = of->slots_n;

	for (size_t i = 0; i < of->slots_n; i++)
		ck_assert_pstr_eq(without(ops, &of->slots[i]), of->slots[i].name);
	for (size_t i = 0; i < of->parts_n; i++)
		n += unset_each(of->parts[i].table,
		                *pointer_at(ops, &of->parts[i].pointer));
	return n;
}

/* Tables whose slots are all the same address, which nobody calls. */
static void *slots_of[2 * BATONI_SLOTS_MOST][BATONI_SLOTS_MOST];

static void
fill_table(const struct batoni_table *of, void *ops)
{
	for (size_t i = 0; i < of->slots_n; i++)
		*pointer_at(ops, &of->slots[i]) = ops;
	for (size_t i = 0; i < of->parts_n; i++) {
		const struct batoni_table *part = of->parts[i].table;

		ck_assert_uint_eq(part->parts_n, 0);
		ck_assert_uint_le(part->slots[part->slots_n - 1].at,
		                  sizeof(slots_of[i]) - sizeof(void *));
		*pointer_at(ops, &of->parts[i].pointer) = slots_of[i];
		fill_table(part, slots_of[i]);
	}
	table = of;
	looked_at = ops;
}

START_TEST(the_devices_of_this_build_and_the_fake_are_complete)
{
	ck_assert_ptr_null(batoni_table_missing(&batoni_device_table,
	                                        &batoni_device_host_ops));
	ck_assert_ptr_null(batoni_table_missing(&batoni_device_table,
	                                        &batoni_device_cuda_ops));
	ck_assert_ptr_null(batoni_table_missing(&batoni_device_table,
	                                        &batoni_fake_device_ops));
	ck_assert_ptr_eq(batoni_device_find(BATON_DEVICE_HOST),
	                 &batoni_device_host_ops);
	ck_assert_ptr_eq(batoni_device_find(BATON_DEVICE_CUDA),
	                 &batoni_device_cuda_ops);
}
END_TEST

START_TEST(each_slot_that_is_unset_is_found_by_name)
{
	ck_assert_ptr_null(missing());
	ck_assert_uint_eq(unset_each(&batoni_device_table, &full.ops), 57);
	ck_assert_ptr_null(missing());
	full.shared_queues.behind = NULL;
	ck_assert_str_eq(missing(), "shared_queues.behind");
	setup();
	full.memory.sharing = NULL;
	full.sharing.map = NULL;
	ck_assert_ptr_null(missing());
	full.memory.health = NULL;
	ck_assert_str_eq(missing(), "memory.health");
}
END_TEST

/* The memory table is required; every other one may be left out, with what needs it. */
START_TEST(an_optional_table_may_be_left_out_whole)
{
	for (size_t i = 0; i < batoni_device_table.parts_n; i++) {
		const struct batoni_part *part = &batoni_device_table.parts[i];
		const char *name = without(&full.ops, &part->pointer);

		if (part->needed == BATONI_PART_MUST ||
		    part->pointer.at == offsetof(struct batoni_device_ops, marks))
			ck_assert_pstr_eq(name, part->pointer.name);
		else
			ck_assert_ptr_null(name);
	}
	full.ops.events = NULL;
	full.ops.puts = NULL;
	full.ops.marks = NULL;
	ck_assert_ptr_null(missing());
}
END_TEST

START_TEST(half_an_optional_table_is_refused)
{
	struct batoni_memory_ops memory = batoni_host_memory_ops;
	struct batoni_device_ops ops = batoni_device_host_ops;
	struct batoni_sharing_ops sharing = {.share = full.sharing.share};

	ops.memory = &memory;
	memory.sharing = &sharing;
	ck_assert_str_eq(batoni_table_missing(&batoni_device_table, &ops),
	                 "memory.sharing.identify");
	sharing = full.sharing;
	ck_assert_ptr_null(batoni_table_missing(&batoni_device_table, &ops));
}
END_TEST

START_TEST(each_slot_of_the_other_contracts_is_found_by_name)
{
	struct batoni_path_ops path;
	struct batoni_transport_ops transport;
	struct batoni_onesided_ops onesided;
	struct batoni_opening_ops opening;
	struct batoni_bootstrap_ops bootstrap;

	fill_table(&batoni_path_table, &path);
	ck_assert_uint_eq(unset_each(&batoni_path_table, &path), 21);
	fill_table(&batoni_transport_table, &transport);
	ck_assert_uint_eq(unset_each(&batoni_transport_table, &transport), 8);
	fill_table(&batoni_onesided_table, &onesided);
	ck_assert_uint_eq(unset_each(&batoni_onesided_table, &onesided), 15);
	fill_table(&batoni_opening_table, &opening);
	ck_assert_uint_eq(unset_each(&batoni_opening_table, &opening), 6);
	fill_table(&batoni_bootstrap_table, &bootstrap);
	ck_assert_uint_eq(unset_each(&batoni_bootstrap_table, &bootstrap), 3);
}
END_TEST

START_TEST(a_path_is_issued_by_the_host_or_by_streams)
{
	struct batoni_path_ops path;

	fill_table(&batoni_path_table, &path);
	path.host_issued = NULL;
	ck_assert_str_eq(missing(), "path.host_issued");
	path.scrapping = NULL;
	path.awaiting = NULL;
	path.unmatched = NULL;
	path.deferring = NULL;
	ck_assert_ptr_null(missing());
	path.stream_issued = NULL;
	ck_assert_str_eq(missing(), "path.host_issued");
	fill_table(&batoni_path_table, &path);
	path.stream_issued = NULL;
	ck_assert_str_eq(missing(), "path.stream_issued");
	path.taking = NULL;
	ck_assert_ptr_null(missing());
	path.serving = NULL;
	ck_assert_ptr_null(missing());
}
END_TEST

START_TEST(a_path_takes_what_it_serves)
{
	struct batoni_path_ops path;

	fill_table(&batoni_path_table, &path);
	path.serving = NULL;
	ck_assert_str_eq(missing(), "path.serving");
	path.taking = NULL;
	ck_assert_ptr_null(missing());
}
END_TEST

START_TEST(the_parts_of_this_build_are_complete)
{
	ck_assert_ptr_null(batoni_table_missing(&batoni_onesided_table,
	                                        batoni_parts.onesided));
	for (int i = 0; i <= BATONI_BOOTSTRAP_SOCKET; i++) {
		const void *opening = batoni_parts.openings[i];

		ck_assert(!opening || !batoni_table_missing(&batoni_opening_table,
		                                            opening));
	}
}
END_TEST

START_TEST(a_device_whose_tables_are_not_complete_is_refused)
{
	ck_assert(batoni_device_is_whole(&full.ops));
	full.pins.unpin = NULL;
	ck_assert(!batoni_device_is_whole(&full.ops));
}
END_TEST

START_TEST(a_device_is_found_by_what_its_table_says)
{
	char list[160];

	ck_assert_ptr_eq(batoni_device_named("host"), &batoni_device_host_ops);
	ck_assert_ptr_eq(batoni_device_named("cuda"), &batoni_device_cuda_ops);
	ck_assert_ptr_null(batoni_device_named("abacus"));
	ck_assert_ptr_eq(batoni_device_of_native(BATON_TRANSPORT_NCCL),
	                 &batoni_device_cuda_ops);
	ck_assert_ptr_null(batoni_device_of_native(BATON_TRANSPORT_MPI));
	full.ops.id = 7;
	full.ops.name = "abacus";
	full.ops.constant = "ABACUS";
	ck_assert_ptr_null(batoni_device_find(7));
	batoni_device_put(&full.ops);
	ck_assert_ptr_eq(batoni_device_find(7), &full.ops);
	ck_assert_ptr_eq(batoni_device_named("abacus"), &full.ops);
	ck_assert_ptr_eq(batoni_device_named("cuda"), &batoni_device_cuda_ops);
	batoni_device_list(list, sizeof(list));
	ck_assert_str_eq(list, "BATON_DEVICE_HOST (1), BATON_DEVICE_CUDA (2), "
	                       "ABACUS (7)");
	full.ops.id = BATON_DEVICE_CUDA;
	ck_assert_ptr_eq(batoni_device_find(BATON_DEVICE_CUDA), &full.ops);
	batoni_device_put(NULL);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		the_devices_of_this_build_and_the_fake_are_complete,
		each_slot_that_is_unset_is_found_by_name,
		an_optional_table_may_be_left_out_whole,
		each_slot_of_the_other_contracts_is_found_by_name,
		a_path_is_issued_by_the_host_or_by_streams,
		a_path_takes_what_it_serves,
		the_parts_of_this_build_are_complete,
		half_an_optional_table_is_refused,
		a_device_whose_tables_are_not_complete_is_refused,
		a_device_is_found_by_what_its_table_says,
	};

	return RUN_TESTS_WITH("tables", tests, setup, NULL);
}
