/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a device that MPI reaches (transport/mpi/reach.c).  In truth it is the host's. */
#include <stdlib.h>
#include <string.h>

#include "mpi_world.h"

/* In truth it is the host's.  Copies end when the test says so. */
static struct {
	int copies, flushes, yields;
	bool ends; /* copies end */
} device;

static enum baton_status
device_alloc(struct batoni_device *unused, size_t bytes, uint64_t until_ns,
             void **block_p)
{
	(void)unused;
	(void)until_ns;
	*block_p = malloc(bytes);
	return *block_p ? BATON_OK : BATON_ERR_NOMEM;
}

static void
device_free(struct batoni_device *unused, void *block)
{
	(void)unused;
	free(block);
}

static enum baton_status
device_copy(struct batoni_device *unused, void *to, const void *from,
            size_t bytes, int owner, struct batoni_ticket *ticket_p)
{
	(void)unused;
	(void)ticket_p;
	ck_assert_int_eq(owner, 1);
	ck_assert_int_eq(reach.entered, 1);
	memcpy(to, from, bytes);
	device.copies++;
	return BATON_OK;
}

static enum baton_status
device_test(struct batoni_device *unused, struct batoni_ticket *ticket)
{
	(void)unused;
	(void)ticket;
	return device.ends ? BATON_OK : BATON_PENDING;
}

static enum baton_status
device_health(struct batoni_device *unused, struct batoni_fault *fault_p)
{
	(void)unused;
	(void)fault_p;
	return BATON_OK;
}

static enum baton_status
device_enter(struct batoni_device *unused, struct batoni_memory_guard *guard_p)
{
	(void)unused;
	(void)guard_p;
	reach.entered++;
	return BATON_OK;
}

static void
device_exit(struct batoni_device *unused,
            const struct batoni_memory_guard *guard)
{
	(void)unused;
	(void)guard;
	reach.entered--;
}

static enum baton_status
device_flush(struct batoni_device *unused, int owner)
{
	(void)unused;
	ck_assert_int_eq(owner, 1);
	device.flushes++;
	return BATON_OK;
}

static const struct batoni_library_ops device_library = {
	.enter = device_enter,
	.exit = device_exit,
	.flush = device_flush,
};
static const struct batoni_memory_ops device_memory = {
	.library = &device_library,
	.pinned_alloc = device_alloc,
	.pinned_free = device_free,
	.copy_start = device_copy,
	.copy_test = device_test,
	.health = device_health,
};
static const struct batoni_device_ops device_ops = {.memory = &device_memory};

/* In the place of the world that is open. */
static void
open_reaching(void)
{
	static struct batoni_device opened = {.ops = &device_ops};
	struct batoni_transport_config reaching = config;

	close_world();
	memset(&device, 0, sizeof(device));
	reaching.device = &opened;
	open_with(&reaching);
	reach.watched = true;
	reach.outside = 0;
}

/* MPI was called with the device entered alone. */
static void
assert_entered(void)
{
	ck_assert_uint_eq(reach.outside, 0);
	ck_assert_int_eq(reach.entered, 0);
	reach.watched = false;
}

static void
close_reaching(void)
{
	close_world();
	assert_entered();
}

/* Into memory of device 1. */
static struct op *
post_device(void *buffer, size_t bytes, int tag)
{
	struct op *op = post(buffer, bytes, world.peer, tag);

	op->transfer.location = (BATONI_MEMORY_DEVICE + 1) & 0x3fu;
	return op;
}

/* A receive whose message is being copied. */
static struct op *
receive_short(void *buffer, size_t bytes)
{
	unsigned char *out = message(bytes, world.rank);
	struct op *op = post_device(buffer, bytes, 5);

	finish(sent(out, bytes, world.peer, 5), BATON_OK, bytes);
	while (device.copies == 0)
		world.transport->messages.ops->test(&world.transport->messages);
	ck_assert_int_eq(reach.entered, 0);
	ck_assert_uint_eq(op->ends, 0);
	ck_assert_uint_eq(world.transport->messages.load.moving, 1);
	free(out);
	return op;
}

START_TEST(a_short_message_for_a_device_ends_with_its_copy)
{
	unsigned char *in;
	struct op *op;

	open_reaching();
	in = room(100);
	op = receive_short(in, 100);
	world.transport->messages.ops->test(&world.transport->messages);
	ck_assert_int_eq(take_back(op), BATON_ERR_BUSY);
	ck_assert_uint_eq(op->ends, 0);
	device.ends = true;
	finish(op, BATON_OK, 100);
	check_message(in, 100, world.peer);
	ck_assert_int_eq(device.copies, 1);
	ck_assert_int_eq(device.flushes, 0);
	free(in);
	close_reaching();
}
END_TEST

START_TEST(a_body_for_a_device_is_received_there_and_flushed)
{
	unsigned char *in[2], *out;
	struct op *ops[2];

	open_reaching();
	in[0] = room(50000);
	in[1] = room(50000);
	out = message(50000, world.rank);
	ops[0] = post_device(in[0], 50000, 5);
	ops[1] = post(in[1], 50000, world.peer, 6);
	for (int tag = 5; tag < 7; tag++) {
		struct op *send = sent(out, 50000, world.peer, tag);

		finish(ops[tag - 5], BATON_OK, 50000);
		finish(send, BATON_OK, 50000);
		check_message(in[tag - 5], 50000, world.peer);
		/* The second is memory of the host. */
		ck_assert_int_eq(device.flushes, 1);
	}
	ck_assert_int_eq(device.copies, 0);
	free(in[0]);
	free(in[1]);
	free(out);
	close_reaching();
}
END_TEST

START_TEST(an_exchange_of_a_reaching_transport_enters_the_device)
{
	uint64_t mine = (uint64_t)world.rank + 1, all[2];
	enum baton_status status;

	open_reaching();
	do {
		status = world.transport->ops->exchanging->exchange(
			world.transport, 7, &mine, sizeof(mine), all);
	} while (status == BATON_PENDING);
	ck_assert_int_eq(status, BATON_OK);
	ck_assert_uint_eq(all[0] + all[1], 3);
	close_reaching();
}
END_TEST

START_TEST(an_aborted_close_enters_the_device)
{
	unsigned char *in;
	unsigned calls;

	open_reaching();
	in = room(50000);
	post_device(in, 50000, 5);
	world.transport->ops->leave(world.transport);
	calls = tested;
	world.transport->ops->close(world.transport, true);
	/* Of the receive and of the exchange. */
	ck_assert_uint_eq(tested, calls + 2);
	assert_entered();
	free(in);
	barrier();
	MPI_Comm_free(&world.side);
}
END_TEST

/* Another thread that has the driver's lock meanwhile. */
static void
end_copies(unsigned tries)
{
	(void)tries;
	device.yields++;
	device.ends = true;
}

START_TEST(an_aborted_close_gives_way_while_it_waits_for_copies)
{
	struct batoni_patience patience = {.until_ns = UINT64_MAX,
	                                   .yield = end_copies};
	unsigned char *in;

	open_reaching();
	in = room(100);
	receive_short(in, 100);
	barrier();
	world.transport->patience = &patience;
	world.transport->ops->close(world.transport, true);
	ck_assert_int_eq(device.yields, 1);
	ck_assert(!patience.copies_left);
	assert_entered();
	free(in);
	barrier();
	MPI_Comm_free(&world.side);
}
END_TEST

void
test_mpi_reach(void)
{
	const TTest *const tests[] = {
		a_short_message_for_a_device_ends_with_its_copy,
		a_body_for_a_device_is_received_there_and_flushed,
		an_exchange_of_a_reaching_transport_enters_the_device,
		an_aborted_close_enters_the_device,
		an_aborted_close_gives_way_while_it_waits_for_copies,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
