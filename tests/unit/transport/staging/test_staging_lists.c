/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: lists of tensors in memory that faults when the host touches it.  World and memory as
 * in test_staging.c; both ends of a list are made here, as the engine makes them at the call.
 */
#include <stdlib.h>
#include <string.h>

#include "run_tests.h"
#include "staging_world.h"
#include "tensors.h"

#define MOST 300
#define CANARY 0xee
#define GAP 8 /* behind each tensor */

/* What the memory of an end's tensors is. */
enum { AWAY, HOST, MIXED, MANAGED, MEMORIES };

struct end {
	struct batoni_tensor_list list;
	struct baton_tensor tensors[MOST];
	struct batoni_segment segments[MOST];
	unsigned char locations[MOST];
	unsigned char header[BATONI_TENSORS_FIXED_BYTES + 80 * MOST];
	unsigned char *arena;
	size_t arena_bytes;
	/* One block has all tensors that are not the host's. */
	unsigned char *away;
	size_t away_used;
};

static struct world world;
static struct end out, in;

/* Lists: how many tensors, and their bytes in turn.  With EAGER and CHUNK of the world, headers and
 * payloads end in the first message, in the first pieces and in later ones. */
static const struct shape {
	size_t n, bytes[4];
} shapes[] = {
	{0, {0}},
	{1, {0}},
	{1, {10, 10, 10, 10}},
	{3, {40, 0, 17, 1}},
	{1, {EAGER - 40, 0}},
	{1, {EAGER - 39, 0}},
	{4, {500, 500, 1, 2000}},
	{2, {9 * CHUNK, 3 * CHUNK + 1, 0, 0}},
	{16, {0, 0, 0, 0}},
	{30, {0, 0, 0, 0}},
	{30, {1, 2, 0, 3}},
	{40, {CHUNK, 7, 3, 120}},
	{200, {0, 0, 0, 0}},
	{200, {5, 1, 0, 9}},
	{200, {1, 0, 0, 0}},
	{300, {80, 81, 82, 0}},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static bool
is_away(const struct world *w, int rank, int memory, size_t i)
{
	if (w->ranks[rank].device->ops->memory->host_only || memory == HOST)
		return false;
	return memory != MIXED || i % 3 != 1;
}

static unsigned char
pattern(unsigned seed, size_t tensor, size_t i)
{
	return (unsigned char)((31 * seed + 7 * tensor + i) % 251);
}

static void *
new_memory(bool away, size_t bytes)
{
	unsigned char *canaries = malloc(bytes + 1), *data = canaries;

	ck_assert_ptr_nonnull(canaries);
	memset(canaries, CANARY, bytes);
	if (!away)
		return data;
	data = fake_memory_alloc(bytes);
	fake_memory_copy(data, canaries, bytes);
	free(canaries);
	return data;
}

static unsigned char
location_of(bool away, int memory)
{
	return !away              ? BATONI_MEMORY_HOST
	       : memory == MANAGED ? BATONI_MEMORY_MANAGED
	                           : BATONI_MEMORY_DEVICE;
}

static void
fill_pattern_of(void *data, size_t bytes, unsigned seed, size_t tensor)
{
	unsigned char *content = malloc(bytes + 1);

	for (size_t i = 0; i < bytes; i++)
		content[i] = pattern(seed, tensor, i);
	if (bytes > 0)
		fake_memory_copy(data, content, bytes);
	free(content);
}

/* Memory for the next tensor that is not the host's, with canaries. */
static void *
next_away(struct end *end, const struct shape *shape, size_t bytes)
{
	void *data;

	if (!end->away) {
		size_t sum = 0;

		for (size_t i = 0; i < shape->n; i++)
			sum += shape->bytes[i % 4] + GAP;
		end->away = new_memory(true, sum);
	}
	data = end->away + end->away_used;
	end->away_used += bytes + GAP;
	return data;
}

/* The tensors of a shape; of a receive with canaries. */
static void
make_end(struct end *end, int rank, const struct shape *shape, int memory,
         unsigned seed, bool send)
{
	struct batoni_tensor_list *list = &end->list;

	memset(end, 0, sizeof(*end));
	list->segments = end->segments;
	list->locations = end->locations;
	list->header = end->header;
	list->header_max = BATONI_TENSORS_FIXED_BYTES + 80 * shape->n;
	for (size_t i = 0; i < shape->n; i++) {
		size_t bytes = shape->bytes[i % 4];
		bool away = is_away(&world, rank, memory, i);
		void *data = away ? next_away(end, shape, bytes)
		                  : new_memory(false, bytes);

		end->tensors[i] = (struct baton_tensor){
			.data = data,
			.type = BATON_UINT8,
			.rank = 1,
			.shape = {(int64_t)bytes},
		};
		end->locations[i] = location_of(away, memory);
		if (!send)
			continue;
		fill_pattern_of(data, bytes, seed, i);
		end->segments[i] = (struct batoni_segment){data, bytes};
		list->payload_bytes += bytes;
	}
	if (send) {
		list->count = shape->n;
		list->header_bytes =
			batoni_tensors_header_bytes(end->tensors, shape->n);
		batoni_tensors_encode(end->tensors, shape->n,
		                      list->payload_bytes, end->header);
	} else {
		list->declared = end->tensors;
		list->declared_n = shape->n;
	}
}

/* What is in the block of all goes with that. */
static void
free_memory(const struct end *end, void *data)
{
	const unsigned char *at = data;

	if (end->away && at >= end->away && at <= end->away + end->away_used)
		return;
	if (data && fake_memory_has(data))
		fake_memory_free(data);
	else
		free(data);
}

/* All tensors are open, and go to an arena. */
static void
make_open(struct end *end, int rank, size_t n, size_t arena_bytes)
{
	const struct shape none = {n, {0}};
	bool away = is_away(&world, rank, AWAY, 0);

	make_end(end, rank, &none, AWAY, 0, false);
	end->arena = new_memory(away, arena_bytes);
	end->arena_bytes = arena_bytes;
	end->list.arena = (char *)end->arena;
	end->list.arena_bytes = arena_bytes;
	for (size_t i = 0; i < n; i++) {
		free_memory(end, end->tensors[i].data);
		end->tensors[i] = (struct baton_tensor){.rank = -1};
		end->locations[i] = location_of(away, AWAY);
	}
}

static void
free_end(struct end *end)
{
	for (size_t i = 0; i < MOST; i++)
		free_memory(end, end->tensors[i].data);
	free_memory(end, end->arena);
	fake_memory_free(end->away);
	memset(end, 0, sizeof(*end));
}

static void
assert_bytes(const void *data, size_t bytes, unsigned seed, size_t tensor,
             bool arrived)
{
	unsigned char *got = malloc(bytes + 1);

	if (bytes > 0)
		fake_memory_copy(got, data, bytes);
	for (size_t i = 0; i < bytes; i++) {
		unsigned char wanted = arrived ? pattern(seed, tensor, i) : CANARY;

		/* An assertion that holds costs a system call. */
		if (got[i] != wanted)
			ck_abort_msg("tensor %zu, byte %zu of %zu is %u", tensor,
			             i, bytes, got[i]);
	}
	free(got);
}

static void
assert_end(const struct end *end, unsigned seed, bool arrived)
{
	for (size_t i = 0; i < end->list.declared_n; i++)
		assert_bytes(end->tensors[i].data,
		             (size_t)end->tensors[i].shape[0], seed, i, arrived);
}

static uint32_t
next_slot(void)
{
	static uint32_t slot;

	return slot = (slot + 1) % SLOTS;
}

static void
start_both(uint32_t slot, bool send_first)
{
	if (send_first)
		start_list(&world, 0, slot, BATONI_SEND, 1, 7, &out.list);
	start_list(&world, 1, slot, BATONI_RECV, 0, 7, &in.list);
	if (!send_first)
		start_list(&world, 0, slot, BATONI_SEND, 1, 7, &out.list);
}

static void
forget(uint32_t slot)
{
	for (int i = 0; i < world.size; i++)
		world.ranks[i].ended[slot] = false;
}

static void
assert_both_idle(void)
{
	assert_idle(&world, 0);
	assert_idle(&world, 1);
	ck_assert(batoni_list_empty(&stage_of(&world, 0)->listed));
	ck_assert(batoni_list_empty(&stage_of(&world, 1)->listed));
}

static void
pass(const struct shape *shape, int from, int to, unsigned seed)
{
	uint32_t slot = next_slot();

	make_end(&out, 0, shape, from, seed, true);
	make_end(&in, 1, shape, to, seed, false);
	start_both(slot, seed % 2);
	run(&world);
	assert_ended(&world, 0, slot, BATON_OK, out.list.payload_bytes);
	assert_ended(&world, 1, slot, BATON_OK, out.list.payload_bytes);
	assert_end(&in, seed, true);
	assert_both_idle();
	forget(slot);
	free_end(&out);
	free_end(&in);
}

/* A rank on the host has but one kind. */
static int
memories_of(int rank)
{
	return world.ranks[rank].device->ops->memory->host_only ? 1 : MEMORIES;
}

static void
pass_all(const char *devices, bool late)
{
	unsigned seed = 0;

	open_world(&world, devices, late);
	for (size_t i = 0; i < SHAPES; i++)
		for (int from = 0; from < memories_of(0); from++)
			for (int to = 0; to < memories_of(1); to++)
				pass(&shapes[i], from, to, seed++);
	close_world(&world);
}

/* ---- what arrives ---------------------------------------------------------- */

START_TEST(lists_arrive_between_memory_of_all_kinds)
{
	pass_all("dd", false);
}
END_TEST

/* Pieces with the list's header end in any order, too. */
START_TEST(and_over_a_transport_that_reports_late)
{
	pass_all("dd", true);
}
END_TEST

START_TEST(a_rank_on_the_host_and_one_on_a_device_exchange_lists)
{
	pass_all("dh", true);
	pass_all("hd", false);
	pass_all("hh", false);
}
END_TEST

START_TEST(a_device_that_cannot_start_several_copies_one_after_the_other)
{
	struct batoni_memory_ops single = batoni_fake_memory_ops;

	single.batches = NULL;
	open_world(&world, "dd", false);
	for (int i = 0; i < 2; i++)
		stage_of(&world, i)->memory = &single;
	for (size_t i = 0; i < SHAPES; i++)
		pass(&shapes[i], MIXED, AWAY, (unsigned)i);
	close_world(&world);
}
END_TEST

/* 30 tensors of one piece: one start in each direction. */
START_TEST(tensors_of_one_piece_are_copied_together)
{
	const struct shape many = {30, {10, 10, 10, 10}};
	size_t before;

	open_world(&world, "dd", false);
	before = fake_memory_starts();
	pass(&many, AWAY, AWAY, 1);
	ck_assert_uint_eq(fake_memory_starts(), before + 2);
	before = fake_memory_starts();
	pass(&many, MANAGED, HOST, 2);
	ck_assert_uint_eq(fake_memory_starts(), before + 30);
	close_world(&world);
}
END_TEST

/* Two tensors in one place: the program's mistake, and no copies without an order. */
START_TEST(tensors_over_each_other_are_not_copied_together)
{
	const struct shape two = {2, {50, 50, 0, 0}};
	uint32_t slot = next_slot();
	void *second;
	size_t before;

	open_world(&world, "dd", false);
	make_end(&out, 0, &two, HOST, 1, true);
	make_end(&in, 1, &two, AWAY, 1, false);
	second = in.tensors[1].data;
	in.tensors[1].data = in.tensors[0].data;
	before = fake_memory_starts();
	start_both(slot, true);
	run(&world);
	assert_ended(&world, 1, slot, BATON_OK, 100);
	ck_assert_uint_eq(fake_memory_starts(), before + 2);
	assert_bytes(in.tensors[0].data, 50, 1, 1, true);
	in.tensors[1].data = second;
	free_end(&out);
	free_end(&in);
	close_world(&world);
}
END_TEST

START_TEST(copies_that_end_in_the_wrong_order_do_no_harm)
{
	for (size_t k = 0; k < SHAPES; k++) {
		uint32_t slot = next_slot();

		open_world(&world, "dd", false);
		fake_memory_hold(true);
		make_end(&out, 0, &shapes[k], MIXED, 3, true);
		make_end(&in, 1, &shapes[k], AWAY, 3, false);
		start_both(slot, true);
		while (!world.ranks[1].ended[slot]) {
			step(&world, 0);
			step(&world, 1);
			if (fake_memory_copies() > 0)
				fake_memory_end(fake_memory_copies() - 1);
		}
		fake_memory_hold(false);
		run(&world);
		assert_end(&in, 3, true);
		assert_both_idle();
		close_world(&world);
		free_end(&out);
		free_end(&in);
	}
}
END_TEST

/* ---- arenas ------------------------------------------------------------------ */

START_TEST(an_arena_in_device_memory_takes_what_is_open)
{
	open_world(&world, "dd", true);
	for (size_t k = 0; k < SHAPES; k++) {
		uint32_t slot = next_slot();
		size_t need;

		make_end(&out, 0, &shapes[k], MIXED, 5, true);
		need = baton_tensors_layout(out.tensors, shapes[k].n, NULL);
		for (size_t less = 0; less < 2 && less <= need; less++) {
			make_open(&in, 1, shapes[k].n, need - less);
			start_both(slot, k % 2);
			run(&world);
			assert_ended(&world, 0, slot, BATON_OK,
			             out.list.payload_bytes);
			assert_ended(&world, 1, slot,
			             less ? BATON_ERR_TRUNCATED : BATON_OK,
			             less ? need : out.list.payload_bytes);
			if (less)
				assert_bytes(in.arena, need - less, 0, 0, false);
			for (size_t i = 0; i < shapes[k].n && !less; i++)
				assert_bytes(in.segments[i].data,
				             in.segments[i].bytes, 5, i, true);
			assert_both_idle();
			forget(slot);
			free_end(&in);
		}
		free_end(&out);
	}
	close_world(&world);
}
END_TEST

/* ---- ends that differ -------------------------------------------------------- */

/* The receive declares another last tensor, or another number of them. */
static void
differ(const struct shape *shape, bool count)
{
	uint32_t slot = next_slot();
	size_t before = fake_memory_starts();
	bool whole;

	make_end(&out, 0, shape, AWAY, 1, true);
	make_end(&in, 1, shape, AWAY, 1, false);
	if (count) {
		in.list.declared_n = shape->n > 1;
		in.list.header_max =
			BATONI_TENSORS_FIXED_BYTES + 80 * in.list.declared_n;
	} else {
		in.tensors[shape->n - 1].type = BATON_INT8;
	}
	start_both(slot, shape->n % 2);
	run(&world);
	assert_ended(&world, 0, slot, BATON_OK, out.list.payload_bytes);
	assert_ended(&world, 1, slot, BATON_ERR_MISMATCH, out.list.payload_bytes);
	ck_assert_int_eq(in.list.fault,
	                 count ? BATONI_LIST_COUNT : BATONI_LIST_TENSOR);
	assert_end(&in, 1, false);
	assert_both_idle();
	/* What asks and differs in its first message sends no byte. */
	whole = out.list.header_bytes <= EAGER;
	if (whole && out.list.header_bytes + out.list.payload_bytes > EAGER)
		ck_assert_uint_eq(fake_memory_starts(), before);
	forget(slot);
	free_end(&out);
	free_end(&in);
}

START_TEST(a_receive_that_differs_declines_and_the_next_is_right)
{
	for (int late = 0; late < 2; late++) {
		open_world(&world, "dd", late);
		for (size_t k = 1; k < SHAPES; k++) {
			differ(&shapes[k], false);
			pass(&shapes[k], AWAY, AWAY, 2);
			differ(&shapes[k], true);
			pass(&shapes[SHAPES - k], AWAY, MIXED, 3);
		}
		close_world(&world);
	}
}
END_TEST

START_TEST(a_list_and_a_plain_message_do_not_match)
{
	open_world(&world, "dd", true);
	for (size_t k = 0; k < SHAPES; k++) {
		uint32_t slot = next_slot(), other = next_slot();
		size_t bytes = 37 * k * k;

		make_end(&out, 0, &shapes[k], AWAY, 1, true);
		make_end(&in, 1, &shapes[k], AWAY, 1, false);
		start_list(&world, 0, slot, BATONI_SEND, 1, 7, &out.list);
		start_send(&world, 0, other, 1, 7, bytes, 1, false);
		start_recv(&world, 1, other, 0, 7, bytes, false);
		start_list(&world, 1, slot, BATONI_RECV, 0, 7, &in.list);
		run(&world);
		assert_ended(&world, 0, slot, BATON_OK, out.list.payload_bytes);
		assert_ended(&world, 0, other, BATON_OK, bytes);
		assert_ended(&world, 1, other, BATON_ERR_MISMATCH,
		             out.list.payload_bytes);
		assert_content(&world, 1, other, 0, 1);
		assert_ended(&world, 1, slot, BATON_ERR_MISMATCH, bytes);
		ck_assert_int_eq(in.list.fault, BATONI_LIST_PLAIN);
		assert_end(&in, 1, false);
		assert_both_idle();
		forget(slot);
		free_end(&out);
		free_end(&in);
		pass(&shapes[k], AWAY, AWAY, 4);
	}
	close_world(&world);
}
END_TEST

/* Their length is not that of the message that staging has announced. */
START_TEST(a_header_of_another_message_breaks_the_communicator)
{
	for (size_t k = 2; k < SHAPES; k++) {
		uint32_t slot = next_slot();

		open_world(&world, "dd", false);
		make_end(&out, 0, &shapes[k], HOST, 1, true);
		make_open(&in, 1, shapes[k].n, (size_t)1 << 20);
		if (out.list.payload_bytes > 0) {
			for (size_t i = 0; i < shapes[k].n; i++)
				out.tensors[i].shape[0] *= 2;
			batoni_tensors_encode(out.tensors, shapes[k].n,
			                      2 * out.list.payload_bytes,
			                      out.header);
			start_both(slot, true);
			run(&world);
			ck_assert_int_eq(world.ranks[1].broken, BATON_ERR_PEER);
			assert_ended(&world, 1, slot, BATON_ERR_PEER,
			             out.list.payload_bytes);
		}
		close_world(&world);
		free_end(&out);
		free_end(&in);
	}
}
END_TEST

/* ---- a device that refuses ----------------------------------------------------- */

/* Let the n-th start fail.  Returns whether there were as many. */
static bool
refuse_once(const struct shape *shape, unsigned n, enum baton_status status)
{
	uint32_t slot = next_slot();
	bool broken;

	open_world(&world, "dd", n % 2);
	make_end(&out, 0, shape, MIXED, 6, true);
	make_end(&in, 1, shape, AWAY, 6, false);
	fake_device_fail_at(FAKE_COPY_START, n, status);
	start_both(slot, true);
	run(&world);
	broken = world.ranks[0].broken || world.ranks[1].broken;
	if (status == BATON_ERR_AGAIN || !broken) {
		ck_assert(!broken);
		assert_ended(&world, 1, slot, BATON_OK, out.list.payload_bytes);
		assert_end(&in, 6, true);
		assert_both_idle();
	} else {
		int rank = world.ranks[0].broken ? 0 : 1;

		ck_assert_int_eq(world.ranks[rank].broken, status);
		ck_assert(world.ranks[rank].ended[slot]);
		ck_assert_int_eq(world.ranks[rank].status[slot], status);
		ck_assert_uint_eq(fake_memory_copies(), 0);
	}
	fake_device_fail_at(FAKE_COPY_START, 0, BATON_OK);
	close_world(&world);
	free_end(&out);
	free_end(&in);
	return broken;
}

START_TEST(a_copy_that_fails_ends_its_list_and_the_communicator)
{
	for (size_t k = 0; k < SHAPES; k++)
		for (unsigned n = 1; n < 40; n *= 2)
			if (!refuse_once(&shapes[k], n, BATON_ERR_CUDA))
				break;
	/* There are such lists. */
	ck_assert(refuse_once(&shapes[3], 1, BATON_ERR_CUDA));
	ck_assert(refuse_once(&shapes[11], 9, BATON_ERR_CUDA));
}
END_TEST

START_TEST(a_device_that_takes_no_more_is_asked_again)
{
	for (size_t k = 0; k < SHAPES; k++)
		for (unsigned n = 1; n < 40; n *= 3)
			refuse_once(&shapes[k], n, BATON_ERR_AGAIN);
}
END_TEST

START_TEST(an_end_that_fails_is_that_of_its_list)
{
	for (size_t k = 3; k < SHAPES; k++) {
		for (unsigned n = 1; n < 4; n++) {
			uint32_t slot = next_slot();
			int rank;

			open_world(&world, "dd", false);
			make_end(&out, 0, &shapes[k], AWAY, 6, true);
			make_end(&in, 1, &shapes[k], AWAY, 6, false);
			fake_device_fail_at(FAKE_COPY_TEST, n, BATON_ERR_CUDA);
			start_both(slot, true);
			run(&world);
			rank = world.ranks[0].broken ? 0 : 1;
			if (world.ranks[rank].broken)
				ck_assert_int_eq(world.ranks[rank].status[slot],
				                 BATON_ERR_CUDA);
			else
				assert_end(&in, 6, true);
			fake_device_fail_at(FAKE_COPY_TEST, 0, BATON_OK);
			close_world(&world);
			free_end(&out);
			free_end(&in);
		}
	}
}
END_TEST

/* ---- ending early ---------------------------------------------------------------- */

START_TEST(a_list_is_taken_back_before_its_copies_are_started)
{
	uint32_t slot = next_slot();
	size_t before;

	open_world(&world, "dd", false);
	world.gathers = true;
	make_end(&out, 0, &shapes[3], AWAY, 1, true);
	before = fake_memory_starts();
	start_list(&world, 0, slot, BATONI_SEND, 1, 7, &out.list);
	ck_assert_int_eq(take_back(&world, 0, slot), BATON_ERR_CANCELED);
	flush(&world);
	test_once(&world, 0);
	ck_assert_uint_eq(fake_memory_starts(), before);
	assert_idle(&world, 0);
	free_end(&out);
	/* And a receive that has not matched. */
	make_end(&in, 1, &shapes[3], AWAY, 1, false);
	start_list(&world, 1, slot, BATONI_RECV, 0, 7, &in.list);
	ck_assert_int_eq(take_back(&world, 1, slot), BATON_ERR_CANCELED);
	free_end(&in);
	forget(slot);
	world.gathers = false;
	pass(&shapes[3], AWAY, AWAY, 2);
	close_world(&world);
}
END_TEST

/* Close one rank after so many steps, in whatever phase it is then. */
START_TEST(a_rank_may_abort_in_any_phase)
{
	for (int steps = 0; steps < 40; steps++) {
		const struct shape *shape = &shapes[(size_t)(steps * 7) % SHAPES];
		uint32_t slot = next_slot();

		open_world(&world, "dd", steps % 3 == 0);
		fake_memory_hold(true);
		make_end(&out, 0, shape, MIXED, 1, true);
		make_end(&in, 1, shape, MIXED, 1, false);
		start_both(slot, steps % 4 == 0);
		for (int i = 0; i < steps / 2; i++) {
			test_once(&world, i % 2);
			if (i % 3 == 2 && fake_memory_copies() > 0)
				fake_memory_end(0);
		}
		fake_memory_hold(false);
		close_rank(&world, steps % 2);
		run(&world);
		close_world(&world);
		free_end(&out);
		free_end(&in);
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		lists_arrive_between_memory_of_all_kinds,
		and_over_a_transport_that_reports_late,
		a_rank_on_the_host_and_one_on_a_device_exchange_lists,
		a_device_that_cannot_start_several_copies_one_after_the_other,
		tensors_of_one_piece_are_copied_together,
		tensors_over_each_other_are_not_copied_together,
		copies_that_end_in_the_wrong_order_do_no_harm,
		an_arena_in_device_memory_takes_what_is_open,
		a_receive_that_differs_declines_and_the_next_is_right,
		a_list_and_a_plain_message_do_not_match,
		a_header_of_another_message_breaks_the_communicator,
		a_copy_that_fails_ends_its_list_and_the_communicator,
		a_device_that_takes_no_more_is_asked_again,
		an_end_that_fails_is_that_of_its_list,
		a_list_is_taken_back_before_its_copies_are_started,
		a_rank_may_abort_in_any_phase,
	};

	return RUN_TESTS("staging_lists", tests);
}
