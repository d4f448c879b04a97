/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creating communicators on CUDA devices where the driver makes the creator wait: it pins memory
 * when all streams of the device have passed, and its calls wait for a context that another
 * thread holds.
 */
#include <pthread.h>
#include <unistd.h>

#include "cuda_world.h"

#define MS INT64_C(1000000)

/* A creation on a thread of its own. */
struct creation {
	pthread_t thread;
	int device, ranks;
	int64_t timeout_ns;
	struct baton_comm *comms[2];
	enum baton_status status;
	_Atomic bool ended;
};

static enum baton_status
create(int device, int ranks, int64_t timeout_ns, struct baton_comm *comms[])
{
	struct baton_comm_options options = cuda_world_options();

	options.cuda_device = device;
	options.timeout_ns = timeout_ns;
	return baton_comm_create_local(ranks, &options, comms);
}

static void *
creation_main(void *argument)
{
	struct creation *creation = argument;

	creation->status = create(creation->device, creation->ranks,
	                          creation->timeout_ns, creation->comms);
	atomic_store(&creation->ended, true);
	return NULL;
}

static void
creation_begin(struct creation *creation)
{
	pthread_create(&creation->thread, NULL, creation_main, creation);
}

static void
creation_end(struct creation *creation)
{
	pthread_join(creation->thread, NULL);
	baton_ok(creation->status);
}

static void
destroy(struct baton_comm *comms[], int ranks)
{
	for (int i = 0; i < ranks; i++)
		baton_ok(baton_comm_destroy(comms[i]));
}

/* So many calls stand in the driver. */
static void
await_blocked(long calls)
{
	while (cw.sim->sim_blocked() != calls)
		usleep(100);
}

static void
begin_with_devices(long devices)
{
	cuda_world_load();
	ck_assert(cw.sim->sim_set("devices", devices));
	cuda_world_begin();
	ck_assert(cw.sim->sim_set("implicit", 2));
}

/* Send to oneself from memory of device 0. */
static void
send_to_self(struct baton_comm *comm)
{
	baton_request requests[2];
	baton_stream stream;

	baton_ok(baton_stream_create(comm, &stream));
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, 0, comm, stream,
	                    &(struct baton_op_options){
				    .size = sizeof(struct baton_op_options),
				    .flags = BATON_OP_DETACHED},
	                    &requests[0]));
	baton_ok(baton_send(cw.from, 8, BATON_UINT8, 0, 0, comm, stream, NULL,
	                    &requests[1]));
	for (int i = 0; i < 2; i++)
		cuda_world_finish(requests[i], BATON_OK);
	baton_ok(baton_stream_synchronize(comm, stream));
	baton_ok(baton_stream_destroy(comm, stream));
}

/* ---- streams that the program holds up ------------------------------------- */

START_TEST(creation_beside_a_stream_that_the_program_holds_up_ends_in_time)
{
	struct baton_comm *comms[2];
	baton_request received;
	long pins;

	begin_with_devices(1);
	cuda_world_hold(cw.streams[0], 0);
	pins = cw.sim->sim_uses("cuMemHostAlloc");
	/* The second time it waits for what the first one has begun. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(create(0, 2, MS, comms), BATON_ERR_TIMEOUT);
		assert_said("cuMemHostAlloc", "device 0", "the program's own");
		ck_assert_int_eq(cw.sim->sim_uses("cuMemHostAlloc"), pins + 1);
	}
	cuda_world_let_go(0);
	cuda_world_comms(NULL);
	received = cuda_world_recv(cw.to, 8, 0, cw.streams[1]);
	cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[0]), BATON_OK);
	cuda_world_finish(received, BATON_OK);
	cuda_world_end();
}
END_TEST

START_TEST(creation_goes_on_when_the_program_lets_its_stream_go)
{
	struct creation creation = {.ranks = 2, .timeout_ns = LONG_NS};

	begin_with_devices(1);
	cuda_world_hold(cw.streams[0], 0);
	creation_begin(&creation);
	await_blocked(1);
	cuda_world_let_go(0);
	creation_end(&creation);
	destroy(creation.comms, 2);
	cuda_world_end();
}
END_TEST

/* Blocks that it needs are spare; those of the reserve are not to be had.  They are spare since
 * others had them, not from the reserve, which is as large as time allowed; and beside a stream
 * that has work of ours no reserve is made for those others. */
START_TEST(creation_that_needs_no_pinning_does_not_wait_for_the_reserve)
{
	struct baton_comm *second[2];
	baton_request received;

	begin_with_devices(1);
	ck_assert(cw.sim->sim_set("implicit", 0));
	cuda_world_comms(NULL);
	received = cuda_world_recv(cw.to, 8, 0, cw.streams[1]);
	baton_ok(create(0, 2, LONG_NS, second));
	cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[0]), BATON_OK);
	cuda_world_finish(received, BATON_OK);
	destroy(second, 2);
	ck_assert(cw.sim->sim_set("implicit", 2));
	cuda_world_hold(cw.streams[0], 0);
	baton_ok(create(0, 2, LONG_NS, second));
	/* The driver may pin for the reserve still, if it was not as large by then. */
	cuda_world_let_go(0);
	await_blocked(0);
	destroy(second, 2);
	cuda_world_end();
}
END_TEST

/* ---- creations beside each other --------------------------------------------- */

START_TEST(creation_that_waits_to_pin_holds_up_no_other_device)
{
	struct creation creation = {.ranks = 1, .timeout_ns = LONG_NS};
	struct baton_comm *other;

	begin_with_devices(2);
	cuda_world_hold(cw.streams[0], 0);
	creation_begin(&creation);
	await_blocked(1);
	baton_ok(create(1, 1, LONG_NS, &other));
	/* A call that names memory of the device on which the creation stands. */
	send_to_self(other);
	ck_assert(!atomic_load(&creation.ended));
	cuda_world_let_go(0);
	creation_end(&creation);
	destroy(creation.comms, 1);
	destroy(&other, 1);
	cuda_world_end();
}
END_TEST

/* Blocks with the lock of the context. */
static void *
fill_stream(void *unused)
{
	(void)unused;
	cu_ok(cw.sim->context_push(cw.context));
	for (int i = 0; i < 8; i++)
		cuda_world_hold(cw.streams[0], 0);
	return NULL;
}

START_TEST(creation_that_waits_for_a_context_holds_up_no_other_device)
{
	struct creation creation = {.ranks = 1, .timeout_ns = LONG_NS};
	struct baton_comm *other;
	CUcontext popped;
	pthread_t filler;

	begin_with_devices(2);
	ck_assert(cw.sim->sim_set("depth", 4));
	ck_assert(cw.sim->sim_set("depth_lock", 1));
	cu_ok(cw.sim->context_pop(&popped));
	pthread_create(&filler, NULL, fill_stream, NULL);
	await_blocked(1);
	creation_begin(&creation);
	await_blocked(2);
	baton_ok(create(1, 1, LONG_NS, &other));
	ck_assert(!atomic_load(&creation.ended));
	cuda_world_let_go(0);
	pthread_join(filler, NULL);
	creation_end(&creation);
	destroy(creation.comms, 1);
	destroy(&other, 1);
	cu_ok(cw.sim->context_push(popped));
	cuda_world_end();
}
END_TEST

/* The first one waits to pin twice, for a stream each time. */
START_TEST(creation_with_little_time_does_not_end_another_early)
{
	struct creation creation = {.ranks = 2, .timeout_ns = LONG_NS};
	struct baton_comm *second[2], *hasty[2];
	baton_request waiting[2];

	begin_with_devices(1);
	cuda_world_comms(NULL);
	waiting[0] = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	cw.sim->sim_settle(true);
	baton_ok(create(0, 2, LONG_NS, second));
	creation_begin(&creation);
	await_blocked(1);
	ck_assert_int_eq(create(0, 2, MS, hasty), BATON_ERR_TIMEOUT);
	waiting[1] = cuda_world_recv(cw.to + 8, 8, 1, cw.streams[1]);
	cw.sim->sim_settle(true);
	cuda_world_finish(cuda_world_send(cw.from, 8, 0,
	                                  cuda_world_urgent_stream()),
	                  BATON_OK);
	cuda_world_finish(waiting[0], BATON_OK);
	await_blocked(1);
	/* The time in which it would end, if it did. */
	usleep(30000);
	ck_assert(!atomic_load(&creation.ended));
	cuda_world_finish(cuda_world_send(cw.from, 8, 1,
	                                  cuda_world_urgent_stream()),
	                  BATON_OK);
	cuda_world_finish(waiting[1], BATON_OK);
	creation_end(&creation);
	destroy(creation.comms, 2);
	destroy(second, 2);
	cuda_world_end();
}
END_TEST

/* On one device, which the first of them sets up. */
START_TEST(first_creations_of_a_device_go_on_beside_each_other)
{
	struct creation creations[2] = {{.ranks = 1, .timeout_ns = LONG_NS},
	                                {.ranks = 1, .timeout_ns = LONG_NS}};

	begin_with_devices(1);
	cuda_world_hold(cw.streams[0], 0);
	for (int i = 0; i < 2; i++)
		creation_begin(&creations[i]);
	await_blocked(2);
	cuda_world_let_go(0);
	for (int i = 0; i < 2; i++)
		creation_end(&creations[i]);
	for (int i = 0; i < 2; i++)
		send_to_self(creations[i].comms[0]);
	for (int i = 0; i < 2; i++)
		destroy(creations[i].comms, 1);
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		creation_beside_a_stream_that_the_program_holds_up_ends_in_time,
		creation_goes_on_when_the_program_lets_its_stream_go,
		creation_that_needs_no_pinning_does_not_wait_for_the_reserve,
		creation_that_waits_to_pin_holds_up_no_other_device,
		creation_that_waits_for_a_context_holds_up_no_other_device,
		creation_with_little_time_does_not_end_another_early,
		first_creations_of_a_device_go_on_beside_each_other,
	};

	return RUN_TESTS("cuda_creation", tests);
}
