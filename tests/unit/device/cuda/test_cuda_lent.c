/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of baton_mem_alloc on the simulated GPU that is freed while an abort has left messages LENT:
 * nothing copies out of it or into it afterwards, and a copy that is under way keeps it.
 */
#include <stdlib.h>

#include "cuda_world.h"

#define BYTES (40 * MIB) /* more pieces than there are chunks */

static unsigned char *memory, *other; /* the peer's, of the host: nothing copies it */
static baton_request requests[2];

/* A long message is in the middle of its pieces, and all copies stand: one of them is of the memory, on
 * the rank that is to abort. */
static void
begin(int aborts)
{
	struct baton_comm_options options = cuda_world_options();
	void *block;
	long before;

	/* This thread alone begins copies. */
	options.progress = BATON_PROGRESS_CALLS;
	cuda_world_begin();
	cuda_world_comms(&options);
	baton_ok(baton_mem_alloc(cw.comms[aborts], BYTES, &block));
	memory = block;
	other = calloc(1, BYTES);
	before = uses_of("cuMemcpyAsync");
	cw.sim->sim_set("copies", 0);
	requests[0] = cuda_world_send(aborts ? other : memory, BYTES, 0,
	                              cw.streams[0]);
	requests[1] = cuda_world_recv(aborts ? memory : other, BYTES, 0,
	                              cw.streams[1]);
	cw.sim->sim_settle(true);
	while (uses_of("cuMemcpyAsync") == before) {
		baton_progress(cw.comms[0]);
		baton_progress(cw.comms[1]);
	}
	baton_ok(baton_comm_abort(cw.comms[aborts]));
}

static void
go_on(void)
{
	for (int i = 0; i < 200; i++) {
		baton_progress(cw.comms[0]);
		baton_progress(cw.comms[1]);
		cw.sim->sim_settle(true);
	}
}

static void
finish(int aborts)
{
	go_on();
	ck_assert_int_eq(baton_wait(requests[aborts], LONG_NS, NULL),
	                 BATON_ERR_ABORTED);
	baton_ok(baton_comm_abort(cw.comms[1 - aborts]));
	baton_ok(baton_release(&requests[0]));
	baton_ok(baton_release(&requests[1]));
	free(other);
	cuda_world_end();
}

static void
free_between_copies(int aborts)
{
	long copies;

	begin(aborts);
	cw.sim->sim_set("copies", 1);
	cw.sim->sim_settle(false);
	baton_ok(baton_mem_free(cw.comms[aborts], memory));
	ck_assert_int_eq(cw.sim->sim_violations(), 0);
	copies = uses_of("cuMemcpyAsync");
	go_on();
	ck_assert_int_eq(uses_of("cuMemcpyAsync"), copies);
	finish(aborts);
}

START_TEST(no_copy_reads_memory_of_a_lent_send_that_was_freed)
{
	free_between_copies(0);
}
END_TEST

START_TEST(no_copy_writes_memory_of_a_lent_receive_that_was_freed)
{
	free_between_copies(1);
}
END_TEST

/* The free waits for the grace period, and leaves the memory. */
START_TEST(memory_stays_where_a_copy_stands)
{
	long mappings;

	begin(0);
	mappings = cw.sim->sim_live("mappings");
	baton_ok(baton_mem_free(cw.comms[0], memory));
	ck_assert_int_eq(cw.sim->sim_live("mappings"), mappings);
	cw.sim->sim_set("copies", 1);
	finish(0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		no_copy_reads_memory_of_a_lent_send_that_was_freed,
		no_copy_writes_memory_of_a_lent_receive_that_was_freed,
		memory_stays_where_a_copy_stands,
	};

	return RUN_TESTS("cuda_lent", tests);
}
