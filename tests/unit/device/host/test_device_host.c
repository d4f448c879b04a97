/* SPDX-License-Identifier: BSD-3-Clause */
/* The host device by itself: the test is the engine, and its items write down
 * when they are reached. */
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "device.h"
#include "list.h"
#include "mem.h"
#include "run_tests.h"

#define WORDS 8

/* An item that writes its letter to the log. */
struct item {
	struct batoni_stream_item base;
	char letter;
	sem_t *started, *go; /* launches: say so, wait, say so again */
};

static char history[64];
static size_t reached_n;
static _Atomic uint64_t *words;

static const struct batoni_device_ops *const ops = &batoni_device_host_ops;

static struct batoni_device *
device(void)
{
	static const struct batoni_device_config config;
	struct batoni_device *device = NULL;

	if (ops->open(&config, &device) != BATON_OK)
		ck_abort_msg("the host device is always there");
	return device;
}

static void
setup(void)
{
	memset(history, 0, sizeof(history));
	reached_n = 0;
	ck_assert_int_eq(ops->words_alloc(device(), WORDS, 0, &words), BATON_OK);
}

static void
teardown(void)
{
	ops->words_free(device(), words);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	ops->close(device());
}

static void
reached(struct batoni_stream_item *base)
{
	const struct item *item = batoni_container_of(base, struct item, base);

	if (item->started) {
		sem_post(item->started);
		sem_wait(item->go);
	}
	ck_assert_uint_lt(reached_n, sizeof(history) - 1);
	history[reached_n++] = item->letter;
	if (item->started)
		sem_post(item->started);
}

/* word < 0: none. */
static struct item
item_of(char letter, int word, uint64_t value, unsigned flags)
{
	return (struct item){
		.base = {.reached = reached,
		         .word = word < 0 ? NULL : &words[word],
		         .value = value,
		         .flags = flags},
		.letter = letter,
	};
}

static baton_stream
stream(void)
{
	baton_stream stream = NULL;

	ck_assert_int_eq(ops->stream_create(device(), &stream), BATON_OK);
	ck_assert_ptr_nonnull(stream);
	return stream;
}

static void
enqueue(baton_stream on, struct item *item)
{
	ck_assert_int_eq(ops->enqueue(device(), on, &item->base), BATON_OK);
}

static void
release(int word, uint64_t value)
{
	ops->release(device(), &words[word], value);
	ck_assert_uint_eq(atomic_load(&words[word]), value);
}

static void
assert_idle(baton_stream on, bool idle)
{
	ck_assert_int_eq(ops->stream_idle(device(), on),
	                 idle ? BATON_OK : BATON_PENDING);
	ck_assert_int_eq(ops->in_engine->takes_now(device(), on), idle);
}

static void
destroy(baton_stream on)
{
	assert_idle(on, true);
	ck_assert_int_eq(ops->stream_destroy(device(), on), BATON_OK);
}

START_TEST(items_that_wait_for_nothing_are_reached_at_once)
{
	baton_stream s = stream();
	struct item a = item_of('a', -1, 0, 0), b = item_of('b', -1, 0, 0);

	assert_idle(s, true);
	enqueue(s, &a);
	ck_assert_str_eq(history, "a");
	assert_idle(s, true);
	enqueue(s, &b);
	ck_assert_str_eq(history, "ab");
	destroy(s);
}
END_TEST

START_TEST(items_are_reached_in_order_as_words_are_released)
{
	baton_stream s = stream();
	struct item a = item_of('a', 0, 1, 0), b = item_of('b', 1, 1, 0);
	struct item c = item_of('c', -1, 0, 0), d = item_of('d', 2, 5, 0);

	enqueue(s, &a);
	enqueue(s, &b);
	enqueue(s, &c);
	enqueue(s, &d);
	ck_assert_str_eq(history, "a");
	/* b's word before its turn: it is reached and passed in one go. */
	release(1, 1);
	ck_assert_str_eq(history, "a");
	assert_idle(s, false);
	release(0, 1);
	ck_assert_str_eq(history, "abcd");
	assert_idle(s, false);
	release(2, 4);
	assert_idle(s, false);
	release(2, 5);
	destroy(s);
	ck_assert_str_eq(history, "abcd");
}
END_TEST

START_TEST(words_compare_cyclically)
{
	baton_stream s = stream();
	struct item a = item_of('a', 0, 2, 0), b = item_of('b', -1, 0, 0);

	release(0, UINT64_MAX - 1);
	enqueue(s, &a);
	enqueue(s, &b);
	assert_idle(s, false);
	release(0, UINT64_MAX);
	assert_idle(s, false);
	release(0, 3);
	ck_assert_str_eq(history, "ab");
	destroy(s);
}
END_TEST

START_TEST(word_that_has_its_value_already_holds_nothing_up)
{
	baton_stream s = stream();
	struct item a = item_of('a', 0, 7, 0);
	struct item b = item_of('b', 0, 7, BATONI_ITEM_WAIT_FIRST);

	release(0, 9);
	enqueue(s, &a);
	enqueue(s, &b);
	ck_assert_str_eq(history, "ab");
	destroy(s);
}
END_TEST

START_TEST(join_is_reached_after_its_word)
{
	baton_stream s = stream();
	struct item a = item_of('a', 0, 1, BATONI_ITEM_WAIT_FIRST);
	struct item b = item_of('b', -1, 0, 0);

	enqueue(s, &a);
	enqueue(s, &b);
	ck_assert_str_eq(history, "");
	release(0, 1);
	ck_assert_str_eq(history, "ab");
	destroy(s);
}
END_TEST

START_TEST(item_that_was_passed_only_waits)
{
	baton_stream s = stream();
	struct item a = item_of('a', 0, 1, BATONI_ITEM_PASSED);
	struct item b = item_of('b', -1, 0, 0);

	enqueue(s, &a);
	enqueue(s, &b);
	assert_idle(s, false);
	release(0, 1);
	ck_assert_str_eq(history, "b");
	destroy(s);
}
END_TEST

START_TEST(streams_do_not_wait_for_each_other)
{
	baton_stream s = stream(), t = stream();
	struct item a = item_of('a', 0, 1, 0), b = item_of('b', 1, 1, 0);
	struct item c = item_of('c', -1, 0, 0), d = item_of('d', -1, 0, 0);

	enqueue(s, &a);
	enqueue(t, &b);
	enqueue(s, &c);
	enqueue(t, &d);
	ck_assert_str_eq(history, "ab");
	release(1, 1);
	ck_assert_str_eq(history, "abd");
	assert_idle(t, true);
	assert_idle(s, false);
	release(0, 1);
	ck_assert_str_eq(history, "abdc");
	destroy(s);
	destroy(t);
}
END_TEST

START_TEST(one_release_lets_all_streams_go_that_wait_for_it)
{
	struct item items[5], after[5];
	baton_stream streams[5];

	for (int i = 0; i < 5; i++) {
		streams[i] = stream();
		/* The last one waits for more. */
		items[i] = item_of('-', 3, i < 4 ? 2 : 3,
		                   BATONI_ITEM_WAIT_FIRST);
		after[i] = item_of((char)('a' + i), -1, 0, 0);
		enqueue(streams[i], &items[i]);
		enqueue(streams[i], &after[i]);
	}
	release(3, 1);
	ck_assert_uint_eq(reached_n, 0);
	release(3, 2);
	ck_assert_uint_eq(reached_n, 8);
	for (int i = 0; i < 4; i++)
		assert_idle(streams[i], true);
	assert_idle(streams[4], false);
	release(3, 3);
	ck_assert_uint_eq(reached_n, 10);
	for (int i = 0; i < 5; i++)
		destroy(streams[i]);
}
END_TEST

/* More blocked streams than buckets: each is found by its own word. */
START_TEST(many_blocked_streams_are_told_apart)
{
	enum { N = 599 };
	static struct item items[N];
	static baton_stream streams[N];
	_Atomic uint64_t *many;

	ck_assert_int_eq(ops->words_alloc(device(), N, 0, &many), BATON_OK);
	for (int i = 0; i < N; i++) {
		streams[i] = stream();
		items[i] = item_of('x', -1, 1, BATONI_ITEM_PASSED);
		items[i].base.word = &many[i];
		enqueue(streams[i], &items[i]);
	}
	/* 7 and N have no common divisor: every stream has its turn. */
	for (int i = 0; i < N; i++) {
		ops->release(device(), &many[i * 7 % N], 1);
		assert_idle(streams[i * 7 % N], true);
		if (i + 1 < N)
			assert_idle(streams[(i + 1) * 7 % N], false);
	}
	for (int i = 0; i < N; i++)
		destroy(streams[i]);
	ops->words_free(device(), many);
}
END_TEST

static struct item_again {
	struct item item;
	baton_stream on;
	int left;
} again;

static void
enqueue_again(struct batoni_stream_item *base)
{
	history[reached_n++] = 'a';
	if (--again.left > 0)
		ops->enqueue(device(), again.on, base);
}

/* "The engine may use its record again." */
START_TEST(item_that_waits_for_nothing_may_be_used_again_within_reached)
{
	again.on = stream();
	again.left = 3;
	again.item = item_of('a', -1, 0, 0);
	again.item.base.reached = enqueue_again;
	enqueue(again.on, &again.item);
	ck_assert_str_eq(history, "aaa");
	destroy(again.on);
}
END_TEST

START_TEST(null_is_a_stream_that_stays)
{
	struct item a = item_of('a', 0, 1, 0);

	ck_assert_int_eq(ops->stream_check(device(), NULL, false), BATON_OK);
	enqueue(NULL, &a);
	ck_assert_str_eq(history, "a");
	assert_idle(NULL, false);
	release(0, 1);
	assert_idle(NULL, true);
}
END_TEST

/* ---- launches ---- */

START_TEST(launch_runs_on_another_thread_and_holds_its_stream)
{
	baton_stream s = stream();
	struct item a = item_of('a', 0, 1, BATONI_ITEM_LAUNCH);
	struct item b = item_of('b', -1, 0, 0);
	sem_t started, go;

	sem_init(&started, 0, 0);
	sem_init(&go, 0, 0);
	a.started = &started;
	a.go = &go;
	ck_assert_int_eq(ops->stream_check(device(), s, true), BATON_OK);
	enqueue(s, &a);
	enqueue(s, &b);
	sem_wait(&started); /* it blocks, and we go on */
	assert_idle(s, false);
	ck_assert_str_eq(history, "");
	sem_post(&go);
	sem_wait(&started);
	/* The stream goes on when the engine says so. */
	ck_assert_str_eq(history, "a");
	ck_assert_int_eq(ops->stream_destroy(device(), s), BATON_ERR_BUSY);
	release(0, 1);
	ck_assert_str_eq(history, "ab");
	destroy(s);
	sem_destroy(&started);
	sem_destroy(&go);
}
END_TEST

static pthread_t launched_on;
static sem_t launched;

static void
note_thread(struct batoni_stream_item *base)
{
	(void)base;
	launched_on = pthread_self();
	sem_post(&launched);
}

START_TEST(launches_of_a_stream_run_on_its_worker_one_by_one)
{
	baton_stream s = stream();
	pthread_t first;

	sem_init(&launched, 0, 0);
	ck_assert_int_eq(ops->stream_check(device(), s, true), BATON_OK);
	ck_assert_int_eq(ops->stream_check(device(), s, true), BATON_OK);
	for (uint64_t i = 1; i <= 100; i++) {
		struct item a = item_of('-', 0, i, BATONI_ITEM_LAUNCH);

		a.base.reached = note_thread;
		enqueue(s, &a);
		sem_wait(&launched);
		if (i == 1)
			first = launched_on;
		ck_assert(pthread_equal(first, launched_on));
		ck_assert(!pthread_equal(first, pthread_self()));
		release(0, i);
	}
	destroy(s);
	sem_destroy(&launched);
}
END_TEST

START_TEST(thread_without_memory_is_nomem_and_the_stream_lives)
{
	baton_stream s = stream();

	batoni_mem_fail_at(1);
	ck_assert_int_eq(ops->stream_check(device(), s, true),
	                 BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	ck_assert_int_eq(ops->stream_check(device(), s, false), BATON_OK);
	ck_assert_int_eq(ops->stream_check(device(), s, true), BATON_OK);
	destroy(s);
}
END_TEST

/* ---- handles ---- */

START_TEST(handle_that_is_no_stream_is_told)
{
	int local = 0;
	baton_stream none = (baton_stream)(void *)&local;
	baton_stream s, inside;

	ck_assert_int_eq(ops->stream_check(device(), none, false),
	                 BATON_ERR_INVALID);
	s = stream();
	ck_assert_int_eq(ops->stream_check(device(), none, false),
	                 BATON_ERR_INVALID);
	inside = (baton_stream)(void *)((char *)s + 1);
	ck_assert_int_eq(ops->stream_check(device(), inside, false),
	                 BATON_ERR_INVALID);
	ck_assert(!ops->in_engine->takes_now(device(), none));
	ck_assert(!ops->in_engine->takes_now(device(), inside));
	ck_assert_int_eq(ops->stream_check(device(), s, false), BATON_OK);
	destroy(s);
	ck_assert(!ops->in_engine->takes_now(device(), s));
	ck_assert_int_eq(ops->stream_check(device(), s, false),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(ops->stream_check(device(), s, true),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(ops->stream_destroy(device(), s), BATON_ERR_INVALID);
}
END_TEST

START_TEST(busy_stream_is_not_destroyed)
{
	baton_stream s = stream();
	struct item a = item_of('a', 0, 1, 0);

	enqueue(s, &a);
	ck_assert_int_eq(ops->stream_destroy(device(), s), BATON_ERR_BUSY);
	ck_assert_int_eq(ops->stream_check(device(), s, false), BATON_OK);
	release(0, 1);
	destroy(s);
}
END_TEST

START_TEST(handle_of_a_destroyed_stream_fits_no_other_soon)
{
	baton_stream first = stream(), second = stream();

	ck_assert_ptr_ne(first, second);
	/* With and without a worker. */
	for (int i = 0; i < 100; i++) {
		baton_stream s = stream(), next;

		ck_assert_int_eq(ops->stream_check(device(), s, i % 2),
		                 BATON_OK);
		destroy(s);
		next = stream();
		ck_assert_ptr_ne(next, s);
		ck_assert_int_eq(ops->stream_check(device(), s, false),
		                 BATON_ERR_INVALID);
		destroy(next);
	}
	destroy(first);
	destroy(second);
}
END_TEST

START_TEST(streams_run_out_in_order)
{
	enum { MAX = 65536 };
	static baton_stream streams[MAX];
	baton_stream one_more = NULL;
	int failed = 0;

	/* An assertion for each would take seconds. */
	for (int i = 0; i < MAX; i++)
		failed += ops->stream_create(device(), &streams[i]) != BATON_OK;
	ck_assert_int_eq(failed, 0);
	ck_assert_int_eq(ops->stream_create(device(), &one_more),
	                 BATON_ERR_NOMEM);
	ck_assert_ptr_null(one_more);
	destroy(streams[77]);
	ck_assert_ptr_eq(stream(), streams[77]);
	for (int i = 0; i < MAX; i++)
		failed += ops->stream_destroy(device(), streams[i]) != BATON_OK;
	ck_assert_int_eq(failed, 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		items_that_wait_for_nothing_are_reached_at_once,
		items_are_reached_in_order_as_words_are_released,
		words_compare_cyclically,
		word_that_has_its_value_already_holds_nothing_up,
		join_is_reached_after_its_word,
		item_that_was_passed_only_waits,
		streams_do_not_wait_for_each_other,
		one_release_lets_all_streams_go_that_wait_for_it,
		many_blocked_streams_are_told_apart,
		item_that_waits_for_nothing_may_be_used_again_within_reached,
		null_is_a_stream_that_stays,
		launch_runs_on_another_thread_and_holds_its_stream,
		launches_of_a_stream_run_on_its_worker_one_by_one,
		thread_without_memory_is_nomem_and_the_stream_lives,
		handle_that_is_no_stream_is_told,
		busy_stream_is_not_destroyed,
		handle_of_a_destroyed_stream_fits_no_other_soon,
		streams_run_out_in_order,
	};

	return RUN_TESTS_WITH("device_host", tests, setup, teardown);
}
