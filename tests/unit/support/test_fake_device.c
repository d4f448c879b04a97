/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake device keeps the contract, and sees who does not. */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "fake_device.h"
#include "list.h"
#include "run_tests.h"
#include "testing.h"

static const struct batoni_device_ops *const ops = &batoni_fake_device_ops;

/* A device with one stream and a few words. */
struct bench {
	struct batoni_device *device;
	baton_stream stream;
	_Atomic uint64_t *words;
};

static void
setup(struct bench *bench)
{
	ck_assert_int_eq(ops->open(NULL, &bench->device), BATON_OK);
	ck_assert_int_eq(ops->stream_create(bench->device, &bench->stream),
	                 BATON_OK);
	ck_assert_int_eq(ops->words_alloc(bench->device, 4, 0, &bench->words),
	                 BATON_OK);
}

/* Streams that were released may have yet to see it. */
static void
free_words(struct bench *bench, _Atomic uint64_t *words)
{
	while (ops->words_free(bench->device, words) == BATON_ERR_BUSY)
		fake_device_step(bench->stream, 0);
}

static void
teardown(struct bench *bench)
{
	int before = fake_device_violations();

	fake_device_step(bench->stream, 0);
	free_words(bench, bench->words);
	ck_assert_int_eq(ops->stream_destroy(bench->device, bench->stream),
	                 BATON_OK);
	ops->close(bench->device);
	ck_assert_int_eq(fake_device_violations(), before);
	ck_assert_uint_eq(fake_device_marks(), 0);
}

/* An item that counts its calls. */
struct probe {
	struct batoni_stream_item item;
	_Atomic int reached;
	_Atomic bool elsewhere; /* on another thread than the test's */
	pthread_t home;
};

static void
probe_reached(struct batoni_stream_item *item)
{
	struct probe *probe = batoni_container_of(item, struct probe, item);

	atomic_store(&probe->elsewhere,
	             !pthread_equal(pthread_self(), probe->home));
	atomic_fetch_add(&probe->reached, 1);
}

static void
put_probe(struct bench *bench, struct probe *probe, _Atomic uint64_t *word,
          uint64_t value, unsigned flags)
{
	memset(probe, 0, sizeof(*probe));
	probe->home = pthread_self();
	probe->item.reached = probe_reached;
	probe->item.word = word;
	probe->item.value = value;
	probe->item.flags = flags;
	ck_assert_int_eq(ops->enqueue(bench->device, bench->stream,
	                              &probe->item),
	                 BATON_OK);
}

static int
count(struct probe *probe)
{
	return atomic_load(&probe->reached);
}

/* ---- streams ------------------------------------------------------------ */

START_TEST(trigger_fires_once_and_on_another_thread)
{
	struct bench b;
	struct probe probe;

	setup(&b);
	put_probe(&b, &probe, NULL, 0, 0);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&probe), 1);
	ck_assert(atomic_load(&probe.elsewhere));
	ck_assert_int_eq(ops->stream_idle(b.device, b.stream), BATON_OK);
	teardown(&b);
}
END_TEST

START_TEST(held_stream_begins_only_what_it_is_stepped_for)
{
	struct bench b;
	struct probe probes[5];

	setup(&b);
	fake_device_hold(b.stream);
	for (int i = 0; i < 5; i++)
		put_probe(&b, &probes[i], NULL, 0, 0);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&probes[0]), 0);
	ck_assert_int_eq(ops->stream_idle(b.device, b.stream), BATON_PENDING);
	fake_device_step(b.stream, 1);
	ck_assert_int_eq(count(&probes[0]), 1);
	ck_assert_int_eq(count(&probes[1]), 0);
	fake_device_step(b.stream, 2);
	ck_assert_int_eq(count(&probes[2]), 1);
	ck_assert_int_eq(count(&probes[3]), 0);
	fake_device_run(b.stream);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&probes[4]), 1);
	teardown(&b);
}
END_TEST

START_TEST(unused_steps_lapse_when_the_stream_runs_empty)
{
	struct bench b;
	struct probe probe;

	setup(&b);
	fake_device_hold(b.stream);
	fake_device_step(b.stream, 7);
	put_probe(&b, &probe, NULL, 0, 0);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&probe), 0);
	fake_device_step(b.stream, 1);
	ck_assert_int_eq(count(&probe), 1);
	teardown(&b);
}
END_TEST

START_TEST(stream_stays_at_an_operation_until_its_word_has_grown)
{
	struct bench b;
	struct probe operation, next;

	setup(&b);
	put_probe(&b, &operation, &b.words[1], 2, 0);
	put_probe(&b, &next, NULL, 0, 0);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&operation), 1);
	ck_assert_int_eq(count(&next), 0);
	ops->release(b.device, &b.words[0], 5);
	ops->release(b.device, &b.words[1], 1);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&next), 0);
	ops->release(b.device, &b.words[1], 3);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&operation), 1);
	ck_assert_int_eq(count(&next), 1);
	teardown(&b);
}
END_TEST

START_TEST(join_is_reached_only_after_its_word_has_grown)
{
	struct bench b;
	struct probe join;

	setup(&b);
	put_probe(&b, &join, &b.words[0], 1, BATONI_ITEM_WAIT_FIRST);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&join), 0);
	ops->release(b.device, &b.words[0], 1);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&join), 1);
	/* A word that has grown already holds nobody up. */
	put_probe(&b, &join, &b.words[0], 1, BATONI_ITEM_WAIT_FIRST);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&join), 1);
	teardown(&b);
}
END_TEST

START_TEST(words_compare_cyclically)
{
	struct bench b;
	struct probe past, operation;

	setup(&b);
	ops->release(b.device, &b.words[0], INT64_MAX);
	ops->release(b.device, &b.words[0], UINT64_MAX - 1);
	put_probe(&b, &past, &b.words[0], UINT64_MAX - 5, 0);
	put_probe(&b, &operation, &b.words[0], 2, 0);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&operation), 1);
	ck_assert_int_eq(ops->stream_idle(b.device, b.stream), BATON_PENDING);
	ops->release(b.device, &b.words[0], 3);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(ops->stream_idle(b.device, b.stream), BATON_OK);
	ck_assert_int_eq(fake_device_violations(), 0);
	teardown(&b);
}
END_TEST

START_TEST(copies_run_in_stream_order_and_not_before)
{
	struct bench b;
	struct probe operation;
	int from = 7, to = 0;

	setup(&b);
	put_probe(&b, &operation, &b.words[0], 1, 0);
	ck_assert_int_eq(fake_device_copy(b.stream, &to, &from, sizeof(to)),
	                 BATON_OK);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(to, 0);
	from = 8;
	ops->release(b.device, &b.words[0], 1);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(to, 8);
	teardown(&b);
}
END_TEST

START_TEST(streams_do_not_wait_for_each_other)
{
	struct bench b, other;
	struct probe blocked, free_one, on_default;

	setup(&b);
	other = b;
	ck_assert_int_eq(ops->stream_create(b.device, &other.stream), BATON_OK);
	put_probe(&b, &blocked, &b.words[0], 1, 0);
	put_probe(&other, &free_one, NULL, 0, 0);
	fake_device_step(other.stream, 0);
	ck_assert_int_eq(count(&free_one), 1);
	ck_assert_int_eq(ops->stream_destroy(b.device, other.stream), BATON_OK);
	other.stream = NULL;
	put_probe(&other, &on_default, NULL, 0, 0);
	fake_device_step(NULL, 0);
	ck_assert_int_eq(count(&on_default), 1);
	ops->release(b.device, &b.words[0], 1);
	teardown(&b);
}
END_TEST

START_TEST(streams_are_checked_and_not_destroyed_under_work)
{
	struct bench b;
	struct probe operation;
	baton_stream none = (baton_stream)(void *)&b;

	setup(&b);
	ck_assert_int_eq(ops->stream_check(b.device, b.stream, false),
	                 BATON_OK);
	ck_assert_int_eq(ops->stream_check(b.device, NULL, true), BATON_OK);
	ck_assert_int_eq(ops->stream_check(b.device, none, false),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(ops->stream_destroy(b.device, none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(ops->stream_destroy(b.device, NULL),
	                 BATON_ERR_INVALID);
	put_probe(&b, &operation, &b.words[0], 1, 0);
	ck_assert_int_eq(ops->stream_destroy(b.device, b.stream),
	                 BATON_ERR_BUSY);
	ops->release(b.device, &b.words[0], 1);
	teardown(&b);
}
END_TEST

static void
free_reached(struct batoni_stream_item *item)
{
	free(item);
}

START_TEST(item_may_be_used_again_from_its_trigger_on)
{
	struct bench b;
	struct batoni_stream_item *item = calloc(1, sizeof(*item));
	struct batoni_stream_item *join = calloc(1, sizeof(*join));

	setup(&b);
	item->reached = free_reached;
	join->reached = free_reached;
	join->flags = BATONI_ITEM_WAIT_FIRST;
	join->word = &b.words[0];
	join->value = 1;
	ck_assert_int_eq(ops->enqueue(b.device, b.stream, item), BATON_OK);
	ck_assert_int_eq(ops->enqueue(b.device, b.stream, join), BATON_OK);
	ops->release(b.device, &b.words[0], 1);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(ops->stream_idle(b.device, b.stream), BATON_OK);
	teardown(&b);
}
END_TEST

/* ---- launched functions ------------------------------------------------- */

/* A function that blocks until the test lets it go. */
struct gate {
	struct batoni_stream_item item;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool inside, open, over;
};

static void
gate_reached(struct batoni_stream_item *item)
{
	struct gate *gate = batoni_container_of(item, struct gate, item);

	pthread_mutex_lock(&gate->lock);
	gate->inside = true;
	pthread_cond_broadcast(&gate->changed);
	while (!gate->open)
		pthread_cond_wait(&gate->changed, &gate->lock);
	gate->over = true;
	pthread_mutex_unlock(&gate->lock);
}

static void
gate_launch(struct bench *bench, struct gate *gate)
{
	memset(gate, 0, sizeof(*gate));
	pthread_mutex_init(&gate->lock, NULL);
	pthread_cond_init(&gate->changed, NULL);
	gate->item.reached = gate_reached;
	gate->item.flags = BATONI_ITEM_LAUNCH;
	ck_assert_int_eq(ops->stream_check(bench->device, bench->stream, true),
	                 BATON_OK);
	ck_assert_int_eq(ops->enqueue(bench->device, bench->stream,
	                              &gate->item),
	                 BATON_OK);
	pthread_mutex_lock(&gate->lock);
	while (!gate->inside)
		pthread_cond_wait(&gate->changed, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
}

static void
gate_open(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->open = true;
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->lock);
}

START_TEST(launched_function_may_block_and_holds_up_its_stream_alone)
{
	struct bench b, other;
	struct probe behind, beside;
	struct gate gate, second;

	setup(&b);
	other = b;
	ck_assert_int_eq(ops->stream_create(b.device, &other.stream), BATON_OK);
	gate_launch(&b, &gate);
	put_probe(&b, &behind, NULL, 0, 0);
	gate_launch(&other, &second);
	gate_open(&second);
	put_probe(&other, &beside, NULL, 0, 0);
	do
		fake_device_step(other.stream, 0);
	while (ops->stream_idle(b.device, other.stream) == BATON_PENDING);
	ck_assert_int_eq(count(&beside), 1);
	ck_assert_int_eq(count(&behind), 0);
	gate_open(&gate);
	while (ops->stream_idle(b.device, b.stream) == BATON_PENDING)
		sched_yield();
	ck_assert_int_eq(count(&behind), 1);
	ck_assert_int_eq(ops->stream_destroy(b.device, other.stream), BATON_OK);
	teardown(&b);
}
END_TEST

struct observer {
	struct batoni_stream_item item;
	struct gate *gate;
	bool gate_was_over;
};

static void
observer_reached(struct batoni_stream_item *item)
{
	struct observer *observer =
		batoni_container_of(item, struct observer, item);

	pthread_mutex_lock(&observer->gate->lock);
	observer->gate_was_over = observer->gate->over;
	pthread_mutex_unlock(&observer->gate->lock);
}

START_TEST(serialized_function_that_blocks_holds_up_all_triggers)
{
	struct bench b;
	struct gate gate;
	struct observer observer = {.item.reached = observer_reached,
	                            .gate = &gate};

	setup(&b);
	fake_device_serialize_launches(true);
	gate_launch(&b, &gate);
	ck_assert_int_eq(ops->enqueue(b.device, NULL, &observer.item),
	                 BATON_OK);
	gate_open(&gate);
	fake_device_step(NULL, 0);
	ck_assert(observer.gate_was_over);
	while (ops->stream_idle(b.device, b.stream) == BATON_PENDING)
		sched_yield();
	teardown(&b);
}
END_TEST

/* ---- marks -------------------------------------------------------------- */

START_TEST(mark_is_done_when_the_stream_has_got_there)
{
	struct bench b;
	struct probe operation, later;
	struct batoni_mark mark = {0}, after = {0};

	setup(&b);
	put_probe(&b, &operation, &b.words[0], 1, 0);
	ck_assert_int_eq(ops->marks->mark(b.device, b.stream, &mark), BATON_OK);
	put_probe(&b, &later, &b.words[1], 1, 0);
	ck_assert_int_eq(ops->marks->mark(b.device, b.stream, &after),
	                 BATON_OK);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(ops->marks->mark_done(b.device, &mark), BATON_PENDING);
	ops->release(b.device, &b.words[0], 1);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(ops->marks->mark_done(b.device, &mark), BATON_OK);
	ck_assert_int_eq(ops->marks->mark_done(b.device, &after),
	                 BATON_PENDING);
	ck_assert_uint_eq(fake_device_marks(), 1);
	ops->release(b.device, &b.words[1], 1);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(ops->marks->mark_done(b.device, &after), BATON_OK);
	teardown(&b);
}
END_TEST

START_TEST(mark_outlives_its_stream_and_is_seen_done_or_dropped)
{
	struct bench b, other;
	struct batoni_mark mark = {0};

	setup(&b);
	other = b;
	ck_assert_int_eq(ops->stream_create(b.device, &other.stream), BATON_OK);
	ck_assert_int_eq(ops->marks->mark(b.device, other.stream, &mark),
	                 BATON_OK);
	fake_device_step(other.stream, 0);
	ck_assert_int_eq(ops->stream_destroy(b.device, other.stream), BATON_OK);
	ck_assert_int_eq(ops->marks->mark_done(b.device, &mark), BATON_OK);
	/* One that is set again goes, and one that is dropped, wherever its stream is. */
	ck_assert_int_eq(ops->marks->mark(b.device, b.stream, &mark), BATON_OK);
	fake_device_hold(NULL);
	ck_assert_int_eq(fake_device_copy(NULL, &b, &b, 0), BATON_OK);
	ck_assert_int_eq(ops->marks->mark(b.device, NULL, &mark), BATON_OK);
	ck_assert_uint_eq(fake_device_marks(), 1);
	ops->marks->mark_drop(b.device, &mark);
	ck_assert_ptr_null(mark.object);
	ck_assert_uint_eq(fake_device_marks(), 0);
	teardown(&b);
}
END_TEST

START_TEST(mark_that_is_left_is_a_violation)
{
	struct bench b;
	struct batoni_mark mark = {0};
	int before;

	setup(&b);
	before = fake_device_violations();
	ck_assert_int_eq(ops->marks->mark(b.device, b.stream, &mark), BATON_OK);
	ops->words_free(b.device, b.words);
	ops->stream_destroy(b.device, b.stream);
	ops->close(b.device);
	ck_assert_int_eq(fake_device_violations(), before + 1);
}
END_TEST

/* ---- faults and violations ---------------------------------------------- */

START_TEST(the_nth_call_fails_once_and_nothing_was_taken)
{
	struct bench b;
	struct probe probe;
	struct batoni_device *second;
	struct batoni_mark mark = {0};
	_Atomic uint64_t *words;
	baton_stream stream;

	setup(&b);
	put_probe(&b, &probe, NULL, 0, 0);
	fake_device_step(b.stream, 0);
	fake_device_fail_at(FAKE_ENQUEUE, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(ops->enqueue(b.device, b.stream, &probe.item),
	                 BATON_ERR_CUDA);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&probe), 1);
	put_probe(&b, &probe, NULL, 0, 0);
	fake_device_fail_at(FAKE_OPEN, 1, BATON_ERR_NOMEM);
	ck_assert_int_eq(ops->open(NULL, &second), BATON_ERR_NOMEM);
	fake_device_fail_at(FAKE_STREAM_CREATE, 2, BATON_ERR_NOMEM);
	ck_assert_int_eq(ops->stream_create(b.device, &stream), BATON_OK);
	ck_assert_int_eq(ops->stream_destroy(b.device, stream), BATON_OK);
	ck_assert_int_eq(ops->stream_create(b.device, &stream),
	                 BATON_ERR_NOMEM);
	fake_device_fail_at(FAKE_LAUNCH_CHECK, 1, BATON_ERR_SYSTEM);
	ck_assert_int_eq(ops->stream_check(b.device, b.stream, false),
	                 BATON_OK);
	ck_assert_int_eq(ops->stream_check(b.device, b.stream, true),
	                 BATON_ERR_SYSTEM);
	fake_device_fail_at(FAKE_WORDS_ALLOC, 1, BATON_ERR_NOMEM);
	ck_assert_int_eq(ops->words_alloc(b.device, 1, 0, &words),
	                 BATON_ERR_NOMEM);
	fake_device_fail_at(FAKE_MARK, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(ops->marks->mark(b.device, b.stream, &mark),
	                 BATON_ERR_CUDA);
	fake_device_fail_at(FAKE_STREAM_IDLE, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(ops->stream_idle(b.device, b.stream), BATON_ERR_CUDA);
	fake_device_fail_at(FAKE_MARK_DONE, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(ops->marks->mark(b.device, b.stream, &mark), BATON_OK);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(ops->marks->mark_done(b.device, &mark),
	                 BATON_ERR_CUDA);
	ck_assert_int_eq(ops->marks->mark_done(b.device, &mark), BATON_OK);
	teardown(&b);
}
END_TEST

static struct bench *trespassed; /* a trigger has no argument of its own */

static void
trespass(struct batoni_stream_item *item)
{
	(void)item;
	ops->release(trespassed->device, &trespassed->words[0], 1);
}

START_TEST(call_into_the_device_from_a_trigger_is_a_violation)
{
	struct bench b;
	struct batoni_stream_item item = {.reached = trespass};
	int before = fake_device_violations();

	setup(&b);
	trespassed = &b;
	ck_assert_int_eq(ops->enqueue(b.device, b.stream, &item), BATON_OK);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(fake_device_violations(), before + 1);
	teardown(&b);
}
END_TEST

START_TEST(words_that_do_not_grow_or_are_not_ours_are_violations)
{
	struct bench b;
	static _Atomic uint64_t stray;
	int before = fake_device_violations();

	setup(&b);
	ops->release(b.device, &b.words[0], 4);
	ops->release(b.device, &b.words[0], 4);
	ops->release(b.device, &b.words[0], 3);
	ck_assert_int_eq(fake_device_violations(), before + 2);
	ops->release(b.device, &stray, 1);
	ck_assert_int_eq(fake_device_violations(), before + 3);
	teardown(&b);
}
END_TEST

START_TEST(freeing_words_under_a_waiting_stream_is_a_violation)
{
	struct bench b;
	struct probe operation;
	int before = fake_device_violations();

	setup(&b);
	put_probe(&b, &operation, &b.words[0], 1, 0);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(ops->words_free(b.device, b.words), BATON_OK);
	ck_assert_int_eq(fake_device_violations(), before + 1);
	ck_assert_int_eq(ops->words_alloc(b.device, 1, 0, &b.words), BATON_OK);
	teardown(&b);
}
END_TEST

START_TEST(closing_with_an_item_that_was_not_reached_is_a_violation)
{
	struct bench b;
	struct batoni_device *second;
	struct probe probe;
	int before = fake_device_violations();

	setup(&b);
	ck_assert_int_eq(ops->open(NULL, &second), BATON_OK);
	fake_device_hold(b.stream);
	put_probe(&b, &probe, NULL, 0, 0);
	probe.item.next = NULL;
	ck_assert_int_eq(ops->enqueue(second, b.stream, &probe.item), BATON_OK);
	ops->close(second);
	ck_assert_int_eq(fake_device_violations(), before + 1);
	fake_device_step(b.stream, 2);
	ck_assert_int_eq(count(&probe), 1);
	teardown(&b);
}
END_TEST

START_TEST(words_may_be_freed_as_soon_as_they_are_released)
{
	struct bench b;
	struct probe operation;

	setup(&b);
	for (int i = 0; i < 200; i++) {
		_Atomic uint64_t *words;

		ck_assert_int_eq(ops->words_alloc(b.device, 1, 0, &words),
		                 BATON_OK);
		put_probe(&b, &operation, words, 1, 0);
		fake_device_step(b.stream, 0);
		ops->release(b.device, words, 1);
		free_words(&b, words);
	}
	teardown(&b);
}
END_TEST

/* ---- all at once -------------------------------------------------------- */

#define CROWD_ITEMS 1000

static void *
crowd_main(void *argument)
{
	struct bench *b = argument;
	struct probe probes[16];

	for (uint64_t i = 0; i < CROWD_ITEMS; i++) {
		struct probe *probe = &probes[i % 16];

		put_probe(b, probe, &b->words[0], i + 1, 0);
		if (i % 4 == 0)
			fake_device_step(b->stream, 0);
		ops->release(b->device, &b->words[0], i + 1);
		if (i % 16 == 15)
			fake_device_step(b->stream, 0);
	}
	/* The probes are on this stack. */
	fake_device_step(b->stream, 0);
	return NULL;
}

START_TEST(threads_and_streams_beside_each_other_lose_nothing)
{
	struct bench benches[4];
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		setup(&benches[i]);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, crowd_main,
		                                &benches[i]),
		                 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4; i++) {
		fake_device_step(benches[i].stream, 0);
		ck_assert_int_eq(ops->stream_idle(benches[i].device,
		                                  benches[i].stream),
		                 BATON_OK);
		teardown(&benches[i]);
	}
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

/* ---- without an operation that waits for a word ------------------------------ */

static _Atomic bool go_on;

static void
probe_blocks(struct batoni_stream_item *item)
{
	while (!atomic_load(&go_on))
		sched_yield();
	probe_reached(item);
}

/* Neither by its wait nor by a trigger that takes long. */
START_TEST(item_that_is_carried_out_holds_up_its_stream_alone)
{
	struct probe waiting, blocking, behind, beside;
	struct bench b, other, third;

	setenv("FAKE_DEVICE_WAITS", "items", 1);
	setup(&b);
	setup(&other);
	setup(&third);
	put_probe(&b, &waiting, &b.words[0], 1, 0);
	put_probe(&b, &behind, NULL, 0, 0);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&waiting), 1);
	atomic_store(&go_on, false);
	memset(&blocking, 0, sizeof(blocking));
	blocking.item.reached = probe_blocks;
	blocking.home = pthread_self();
	ck_assert_int_eq(ops->enqueue(other.device, other.stream,
	                              &blocking.item),
	                 BATON_OK);
	for (int i = 0; i < 100; i++) {
		put_probe(&third, &beside, NULL, 0, 0);
		fake_device_step(third.stream, 0);
		ck_assert_int_eq(count(&beside), 1);
	}
	ck_assert_int_eq(count(&behind), 0);
	ck_assert_int_eq(count(&blocking), 0);
	atomic_store(&go_on, true);
	ops->release(b.device, &b.words[0], 1);
	fake_device_step(b.stream, 0);
	ck_assert_int_eq(count(&behind), 1);
	fake_device_step(other.stream, 0);
	ck_assert_int_eq(count(&blocking), 1);
	teardown(&third);
	teardown(&other);
	teardown(&b);
	unsetenv("FAKE_DEVICE_WAITS");
}
END_TEST

START_TEST(device_without_a_thread_for_waits_refuses_to_open)
{
	struct baton_comm *comm = NULL;
	struct batoni_device *device;

	setenv("FAKE_DEVICE_WAITS", "none", 1);
	ck_assert_int_eq(ops->open(NULL, &device), BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(batoni_comm_create_local_with(ops, 1, NULL, &comm),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "cannot wait"));
	ck_assert_ptr_null(comm);
	unsetenv("FAKE_DEVICE_WAITS");
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		trigger_fires_once_and_on_another_thread,
		held_stream_begins_only_what_it_is_stepped_for,
		unused_steps_lapse_when_the_stream_runs_empty,
		stream_stays_at_an_operation_until_its_word_has_grown,
		join_is_reached_only_after_its_word_has_grown,
		words_compare_cyclically,
		copies_run_in_stream_order_and_not_before,
		streams_do_not_wait_for_each_other,
		streams_are_checked_and_not_destroyed_under_work,
		item_may_be_used_again_from_its_trigger_on,
		launched_function_may_block_and_holds_up_its_stream_alone,
		serialized_function_that_blocks_holds_up_all_triggers,
		mark_is_done_when_the_stream_has_got_there,
		mark_outlives_its_stream_and_is_seen_done_or_dropped,
		mark_that_is_left_is_a_violation,
		the_nth_call_fails_once_and_nothing_was_taken,
		call_into_the_device_from_a_trigger_is_a_violation,
		words_that_do_not_grow_or_are_not_ours_are_violations,
		freeing_words_under_a_waiting_stream_is_a_violation,
		closing_with_an_item_that_was_not_reached_is_a_violation,
		words_may_be_freed_as_soon_as_they_are_released,
		threads_and_streams_beside_each_other_lose_nothing,
		item_that_is_carried_out_holds_up_its_stream_alone,
		device_without_a_thread_for_waits_refuses_to_open,
	};

	return RUN_TESTS("fake_device", tests);
}
