/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages from blocks, which the receiver maps (transport/near/blocks.c, runtime/base/block.h): what is
 * copied from a mapping, when a mapping goes, and what is done without one.
 *
 * The ranks are of this process (near_world.h) and take each other for another one: they map its blocks a
 * second time.  Jobs end when they end: a test repeats what it does until it sees what it waits
 * for.
 */
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "block.h"
#include "mem.h"
#include "near_world.h"
#include "run_tests.h"

enum { LONG = 20000, ROOM = 3 << 20, MANY = 100 };

struct piece {
	struct batoni_shm shm;
	struct batoni_shm_block block;
};

static struct near_world world, second;
static unsigned char to[ROOM];

/* ---- blocks ---- */

static void
fill_seeded(unsigned char *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256 + seed);
}

static void
make_piece(struct piece *piece, size_t bytes)
{
	ck_assert_int_eq(batoni_shm_create(bytes, &piece->shm), BATON_OK);
	ck_assert_int_eq(batoni_shm_block_add(&piece->block, &piece->shm), BATON_OK);
}

/* As baton_mem_free; the memory stays for the caller. */
static void
retire(struct piece *piece)
{
	if (batoni_shm_block_remove(&piece->block))
		batoni_shm_block_say_gone(piece->block.name.serial);
}

static void
unmake(struct piece *piece)
{
	retire(piece);
	batoni_shm_destroy(&piece->shm);
}

/* Mappings of shared memory in this process. */
static int
count_maps(void)
{
	FILE *maps;
	char line[512];
	int n = 0;

	/* One of them, from its first use on. */
	batoni_bell();
	maps = fopen("/proc/self/maps", "r");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:baton") != NULL;
	fclose(maps);
	return n;
}

static void
await_maps(int n)
{
	while (count_maps() != n)
		sched_yield();
}

static void
close_world(struct near_world *which)
{
	near_close_all(which, false);
	/* A job may still have its record. */
	while (batoni_mem_blocks() != 0)
		sched_yield();
}

static unsigned
mappings(int rank)
{
	return near_pairs(&world, rank)->mappings_n;
}

/* A message from rank 0 to rank 1.  True: the kernel, or chunks, moved some of it. */
static bool
move_in(struct near_world *which, const unsigned char *from, size_t bytes)
{
	memset(to, 0, bytes);
	near_recv(which, 1, 7, 0, 3, to, bytes);
	near_send(which, 0, 5, 1, 3, from, bytes);
	near_run(which);
	ck_assert_int_eq(which->ranks[0].ends[5], BATON_OK);
	ck_assert_int_eq(which->ranks[1].ends[7], BATON_OK);
	ck_assert_uint_eq(which->ranks[1].transfers[7].done_bytes, bytes);
	ck_assert(memcmp(to, from, bytes) == 0);
	return near_node_of(which, 1, 7)->by_kernel;
}

static bool
move(const unsigned char *from, size_t bytes)
{
	return move_in(&world, from, bytes);
}

static void
move_until_mapped(const unsigned char *from, size_t bytes)
{
	while (move(from, bytes))
		sched_yield();
}

/* ---- what is copied from a mapping ---- */

START_TEST(messages_from_a_block_come_to_be_copied_from_its_mapping)
{
	static const size_t lengths[] = {8193, 16384, 16385, LONG, (1 << 20) + 1,
	                                 ROOM - 4097};
	struct piece piece;

	near_open(&world, NEAR_READ, false);
	/* 1: where the kernel lets nobody read. */
	near_pairs(&world, 1)->peers[0].unread = _i;
	make_piece(&piece, ROOM);
	fill_seeded(piece.shm.base, ROOM, 1);
	ck_assert(move(piece.shm.base, LONG));
	move_until_mapped(piece.shm.base, LONG);
	ck_assert_uint_eq(mappings(1), 1);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		const unsigned char *base = piece.shm.base;

		ck_assert(!move(base + 4097, lengths[i]));
		ck_assert(!move(base + ROOM - lengths[i], lengths[i]));
	}
	ck_assert_uint_eq(mappings(1), 1);
	ck_assert_uint_eq(mappings(0), 0);
	unmake(&piece);
	close_world(&world);
}
END_TEST

/* A message that begins before the block, ends behind it, or lies elsewhere, names none. */
START_TEST(what_lies_in_no_block_names_none)
{
	struct batoni_shm_block_name name;
	struct piece piece;
	char *base;

	make_piece(&piece, LONG);
	base = piece.shm.base;
	ck_assert(batoni_shm_block_find(base, LONG, &name));
	ck_assert_uint_eq(name.serial, piece.block.name.serial);
	ck_assert(batoni_shm_block_find(base + LONG - 1, 1, &name));
	ck_assert(!batoni_shm_block_find(base - 1, 2, &name));
	ck_assert(!batoni_shm_block_find(base + 1, LONG, &name));
	ck_assert(!batoni_shm_block_find(base + LONG, 1, &name));
	ck_assert(!batoni_shm_block_find(to, 1, &name));
	ck_assert(batoni_shm_block_remove(&piece.block));
	ck_assert(!batoni_shm_block_find(base, 1, &name));
	batoni_shm_destroy(&piece.shm);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* Blocks are found wherever they lie among others, and no serial comes twice. */
START_TEST(each_of_many_blocks_is_found)
{
	static struct piece pieces[MANY];
	struct batoni_shm_block_name name;
	uint64_t last = 0;

	for (int i = 0; i < MANY; i++) {
		make_piece(&pieces[i], 4096);
		ck_assert_uint_gt(pieces[i].block.name.serial, last);
		last = pieces[i].block.name.serial;
	}
	for (int i = 0; i < MANY; i += 2)
		unmake(&pieces[i]);
	for (int i = 1; i < MANY; i += 2) {
		ck_assert(batoni_shm_block_find((char *)pieces[i].shm.base + 9, 8,
		                                &name));
		ck_assert_uint_eq(name.serial, pieces[i].block.name.serial);
		ck_assert_uint_eq(name.base, (uintptr_t)pieces[i].shm.base);
	}
	for (int i = 1; i < MANY; i += 2)
		unmake(&pieces[i]);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* ---- when it goes ---- */

START_TEST(its_owner_s_free_takes_the_mapping_away)
{
	struct piece piece;
	int before = count_maps();

	near_open(&world, NEAR_READ, false);
	make_piece(&piece, ROOM);
	move_until_mapped(piece.shm.base, LONG);
	ck_assert_int_eq(count_maps(), before + 2);
	unmake(&piece);
	ck_assert_int_eq(count_maps(), before + 1);
	/* The importer's keeps the memory until it has seen GONE. */
	ck_assert_uint_eq(mappings(1), 1);
	near_run(&world);
	ck_assert_uint_eq(mappings(1), 0);
	await_maps(before);
	close_world(&world);
}
END_TEST

/* The new block has the address of the old one; 1: its owner's GONE is lost besides. */
START_TEST(a_reused_address_never_meets_the_mapping_of_what_was_there)
{
	struct piece pieces[51];
	void *address;

	near_open(&world, NEAR_READ, false);
	make_piece(&pieces[0], LONG);
	address = pieces[0].shm.base;
	for (unsigned round = 0; round < 50; round++) {
		struct piece *next = &pieces[round + 1];

		fill_seeded(address, LONG, round);
		move_until_mapped(address, LONG);
		fill_seeded(address, LONG, round + 100);
		ck_assert(!move(address, LONG));
		if (_i)
			batoni_shm_block_remove(&pieces[round].block);
		else
			retire(&pieces[round]);
		close(pieces[round].shm.fd);
		ck_assert_int_eq(batoni_shm_create(LONG, &next->shm), BATON_OK);
		munmap(next->shm.base, LONG);
		next->shm.base = mmap(address, LONG, PROT_READ | PROT_WRITE,
		                      MAP_SHARED | MAP_FIXED, next->shm.fd, 0);
		ck_assert_ptr_eq(next->shm.base, address);
		ck_assert_int_eq(batoni_shm_block_add(&next->block, &next->shm), BATON_OK);
		fill_seeded(address, LONG, round + 200);
		ck_assert(move(address, LONG));
	}
	unmake(&pieces[50]);
	close_world(&world);
}
END_TEST

START_TEST(without_room_its_owner_says_later_that_all_are_gone)
{
	static unsigned char byte[1];
	struct piece piece, other;
	uint32_t slot = 100;

	near_open(&world, NEAR_READ, false);
	make_piece(&piece, LONG);
	make_piece(&other, LONG);
	move_until_mapped(piece.shm.base, LONG);
	move_until_mapped(other.shm.base, LONG);
	ck_assert_uint_eq(mappings(1), 2);
	while (near_send(&world, 0, slot, 1, 9, byte, 1) != BATON_PENDING ||
	       near_node_of(&world, 0, slot)->state != NEAR_STARVED)
		slot++;
	unmake(&piece);
	ck_assert(near_pairs(&world, 0)->peers[1].gone_due);
	near_run(&world);
	ck_assert(!near_pairs(&world, 0)->peers[1].gone_due);
	ck_assert_uint_eq(mappings(1), 0);
	/* The one that is not is mapped again. */
	move_until_mapped(other.shm.base, LONG);
	ck_assert_uint_eq(mappings(1), 1);
	unmake(&other);
	for (uint32_t i = 100; i <= slot; i++)
		if (world.ranks[0].ends[i] == BATON_PENDING)
			near_take(&world, 0, i);
	close_world(&world);
}
END_TEST

/* While its job has not ended, too. */
START_TEST(a_block_that_is_freed_or_closed_at_once_leaves_nothing)
{
	int before = count_maps();

	for (int i = 0; i < 200; i++) {
		struct piece piece;

		near_open(&world, NEAR_READ, false);
		make_piece(&piece, LONG);
		move(piece.shm.base, LONG);
		if (i % 2) {
			retire(&piece);
			near_run(&world);
			ck_assert_uint_eq(mappings(1), 0);
		}
		near_close_all(&world, i % 3 == 0);
		if (i % 2)
			batoni_shm_destroy(&piece.shm);
		else
			unmake(&piece);
	}
	await_maps(before);
	while (batoni_mem_blocks() != 0)
		sched_yield();
}
END_TEST

/* An announced send is taken back, and its memory goes; the announcement is still in the ring. */
START_TEST(a_message_that_was_taken_back_is_read_from_nowhere)
{
	struct piece piece, other;

	near_open(&world, NEAR_READ, false);
	make_piece(&piece, LONG);
	make_piece(&other, LONG);
	fill_seeded(other.shm.base, LONG, 9);
	move_until_mapped(piece.shm.base, LONG);
	near_send(&world, 0, 1, 1, 4, piece.shm.base, LONG);
	if (_i)
		near_run(&world);
	ck_assert_int_eq(near_take(&world, 0, 1), BATON_ERR_CANCELED);
	unmake(&piece);
	near_send(&world, 0, 2, 1, 4, other.shm.base, LONG);
	near_recv(&world, 1, 3, 0, 4, to, LONG);
	near_run(&world);
	ck_assert_int_eq(world.ranks[1].ends[3], BATON_OK);
	ck_assert(memcmp(to, other.shm.base, LONG) == 0);
	unmake(&other);
	close_world(&world);
}
END_TEST

/* Its communicator breaks while the receiver copies: the bytes are there as long as they are read. */
START_TEST(a_block_that_goes_within_a_copy_ends_the_receive_in_peer)
{
	struct piece piece;

	near_open(&world, NEAR_READ, false);
	make_piece(&piece, ROOM);
	move_until_mapped(piece.shm.base, LONG);
	near_recv(&world, 1, 1, 0, 4, to, ROOM);
	near_send(&world, 0, 2, 1, 4, piece.shm.base, ROOM);
	near_pass(&world, 1);
	near_pass(&world, 1);
	ck_assert_int_eq(world.ranks[1].ends[1], BATON_PENDING);
	near_close_rank(&world, 0, true);
	unmake(&piece);
	near_run(&world);
	ck_assert_int_eq(world.ranks[1].ends[1], BATON_ERR_PEER);
	near_close_all(&world, true);
}
END_TEST

START_TEST(two_communicators_are_both_told)
{
	struct piece piece;

	near_open(&world, NEAR_READ, false);
	near_open(&second, NEAR_READ, false);
	make_piece(&piece, ROOM);
	move_until_mapped(piece.shm.base, LONG);
	while (move_in(&second, piece.shm.base, LONG))
		sched_yield();
	ck_assert_uint_eq(mappings(1), 1);
	ck_assert_uint_eq(near_pairs(&second, 1)->mappings_n, 1);
	unmake(&piece);
	near_run(&world);
	near_run(&second);
	ck_assert_uint_eq(mappings(1), 0);
	ck_assert_uint_eq(near_pairs(&second, 1)->mappings_n, 0);
	near_close_all(&second, false);
	close_world(&world);
}
END_TEST

/* ---- bounds, and lacks ---- */

START_TEST(as_many_as_the_bound_stay_mapped_and_the_longest_unused_goes)
{
	static struct piece pieces[MANY];
	int at = MANY - 1;

	near_open(&world, NEAR_READ, false);
	for (int i = 0; i < MANY; i++)
		make_piece(&pieces[i], LONG);
	/* A walk through more than there is room for keeps those that are there. */
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < MANY; i++)
			move(pieces[i].shm.base, LONG);
	ck_assert_uint_eq(mappings(1), 64);
	for (int i = 0; i < 64; i++)
		move_until_mapped(pieces[i].shm.base, LONG);
	ck_assert(move(pieces[at].shm.base, LONG));
	/* One that was not used for long makes room. */
	for (int i = 0; i < 2000; i++)
		move(pieces[1].shm.base, LONG);
	move_until_mapped(pieces[at].shm.base, LONG);
	ck_assert_uint_eq(mappings(1), 64);
	ck_assert(!move(pieces[1].shm.base, LONG));
	ck_assert(!move(pieces[63].shm.base, LONG));
	ck_assert(move(pieces[0].shm.base, LONG));
	for (int i = 0; i < MANY; i++)
		unmake(&pieces[i]);
	near_run(&world);
	ck_assert_uint_eq(mappings(1), 0);
	close_world(&world);
}
END_TEST

/* 0: it could be made shorter; 1: another file has its descriptor; 2: no process of that number. */
START_TEST(what_cannot_be_mapped_is_read_by_the_kernel)
{
	struct piece piece = {.shm = {.bytes = ROOM}};

	near_open(&world, NEAR_READ, false);
	if (_i == 0) {
		piece.shm.fd = memfd_create("unsealed", MFD_CLOEXEC);
		ck_assert_int_eq(ftruncate(piece.shm.fd, ROOM), 0);
		piece.shm.base = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
		                      MAP_SHARED, piece.shm.fd, 0);
		ck_assert_int_eq(batoni_shm_block_add(&piece.block, &piece.shm),
		                 BATON_OK);
	} else {
		make_piece(&piece, ROOM);
	}
	if (_i == 1)
		piece.block.name.inode++;
	if (_i == 2)
		piece.block.name.fd = -1;
	fill_seeded(piece.shm.base, ROOM, 3);
	for (int i = 0; i < 50; i++) {
		ck_assert(move(piece.shm.base, LONG));
		ck_assert(move(piece.shm.base, (2 << 20) + 1));
	}
	ck_assert_uint_eq(mappings(1), 1);
	unmake(&piece);
	near_run(&world);
	ck_assert_uint_eq(mappings(1), 0);
	close_world(&world);
}
END_TEST

START_TEST(without_memory_for_a_mapping_it_is_read_by_the_kernel)
{
	struct piece piece;

	near_open(&world, NEAR_READ, false);
	batoni_mem_fail_at(1);
	ck_assert_int_eq(batoni_shm_create(LONG, &piece.shm), BATON_OK);
	ck_assert_int_eq(batoni_shm_block_add(&piece.block, &piece.shm),
	                 BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	ck_assert(move(piece.shm.base, LONG));
	ck_assert_uint_eq(mappings(1), 0);
	ck_assert_int_eq(batoni_shm_block_add(&piece.block, &piece.shm), BATON_OK);
	near_recv(&world, 1, 7, 0, 3, to, LONG);
	near_send(&world, 0, 5, 1, 3, piece.shm.base, LONG);
	batoni_mem_fail_at(1);
	near_run(&world);
	batoni_mem_fail_at(0);
	ck_assert_int_eq(world.ranks[1].ends[7], BATON_OK);
	ck_assert_uint_eq(mappings(1), 0);
	move_until_mapped(piece.shm.base, LONG);
	unmake(&piece);
	close_world(&world);
}
END_TEST

/* ---- what no Baton writes ---- */

static const struct lie {
	enum batoni_ring_kind kind;
	int64_t base, bytes; /* added */
	bool serial;
	bool breaks;
	uint32_t header_bytes;
} lies[] = {
	{BATONI_RING_ANNOUNCE, 0, 0, false, true, 0},  /* no block at all */
	{BATONI_RING_ANNOUNCE, 1, 0, true, true, 0},   /* the message begins before it */
	{BATONI_RING_ANNOUNCE, 0, -ROOM, true, true, 0},
	{BATONI_RING_ANNOUNCE, 0, INT64_MIN, true, true, 0},
	{BATONI_RING_ANNOUNCE, 0, 1 - LONG, true, false, 0}, /* the mapping knows better */
	{BATONI_RING_ANNOUNCE, -ROOM, ROOM, true, false, 0}, /* behind its end */
	{BATONI_RING_LIST_ANNOUNCE, 0, -ROOM, true, true, 0},
	/* By chunks it would be written behind the receive's buffer. */
	{BATONI_RING_ANNOUNCE, 0, 0, true, true, 100},
};

START_TEST(what_a_peer_says_of_a_block_is_checked)
{
	const struct lie *lie = &lies[_i];
	struct batoni_ring_out *out;
	struct batoni_ring_head head = {
		.kind = (uint8_t)lie->kind,
		.cells = BATONI_RING_BLOCK_CELLS,
		.tag = 3,
		.length = LONG,
	};
	struct near_announcement what = {.slot = 9, .generation = 1};
	struct piece piece;

	near_open(&world, NEAR_READ, false);
	make_piece(&piece, ROOM);
	fill_seeded(piece.shm.base, ROOM, 5);
	move_until_mapped(piece.shm.base, LONG);
	what.address = (uintptr_t)piece.shm.base;
	what.block = piece.block.name;
	what.header_bytes = lie->header_bytes;
	what.block.serial *= lie->serial;
	what.block.base += (uint64_t)lie->base;
	what.block.bytes += (uint64_t)lie->bytes;
	atomic_store(batoni_ring_state(&world.layout, world.ranks[0].area, 9),
	             batoni_near_word(1, NEAR_WAITING));
	out = &near_pairs(&world, 0)->peers[1].out;
	batoni_ring_copy_in(out, 0, &what, sizeof(what));
	batoni_ring_publish(out, &head);
	near_recv(&world, 1, 7, 0, 3, to, LONG);
	near_pass(&world, 1);
	near_pass(&world, 1);
	if (lie->breaks) {
		ck_assert_int_eq(world.ranks[1].broken, BATON_ERR_PEER);
		ck_assert_ptr_nonnull(strstr(world.ranks[1].why, "a block"));
	} else {
		ck_assert_int_eq(world.ranks[1].ends[7], BATON_OK);
		ck_assert(memcmp(to, piece.shm.base, LONG) == 0);
	}
	near_close_all(&world, true);
	unmake(&piece);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("near_blocks");
	TCase *tcase = tcase_create("near_blocks");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(
		tcase, messages_from_a_block_come_to_be_copied_from_its_mapping, 0,
		2);
	tcase_add_test(tcase, what_lies_in_no_block_names_none);
	tcase_add_test(tcase, each_of_many_blocks_is_found);
	tcase_add_test(tcase, its_owner_s_free_takes_the_mapping_away);
	tcase_add_loop_test(
		tcase, a_reused_address_never_meets_the_mapping_of_what_was_there,
		0, 2);
	tcase_add_test(tcase,
	               without_room_its_owner_says_later_that_all_are_gone);
	tcase_add_test(tcase,
	               a_block_that_is_freed_or_closed_at_once_leaves_nothing);
	tcase_add_loop_test(
		tcase, a_message_that_was_taken_back_is_read_from_nowhere, 0, 2);
	tcase_add_test(tcase,
	               a_block_that_goes_within_a_copy_ends_the_receive_in_peer);
	tcase_add_test(tcase, two_communicators_are_both_told);
	tcase_add_test(
		tcase,
		as_many_as_the_bound_stay_mapped_and_the_longest_unused_goes);
	tcase_add_loop_test(tcase, what_cannot_be_mapped_is_read_by_the_kernel, 0,
	                    3);
	tcase_add_test(tcase,
	               without_memory_for_a_mapping_it_is_read_by_the_kernel);
	tcase_add_loop_test(tcase, what_a_peer_says_of_a_block_is_checked, 0,
	                    (int)(sizeof(lies) / sizeof(lies[0])));
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
