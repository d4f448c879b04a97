/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that sleep, and what wakes them: futex words, the process's bell, and the lists of
 * sleeping waiters.  Which thread sleeps, and when, is wait.c's and engine_thread.c's business;
 * why no wake-up is lost is said there.
 *
 * `sleepers.lock` guards the lists and is a leaf.  The thread that wakes a sleeper takes
 * it off the lists.  Its store to the futex word is its last access to the sleeper.
 */
#include "wake.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "list.h"

#define CHAINS_LOG2 6u

/* ---- words and bells ---- */

void
batoni_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t sleep_ns)
{
	struct timespec sleep = {.tv_sec = (time_t)(sleep_ns / 1000000000u),
	                         .tv_nsec = (long)(sleep_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
	        sleep_ns == BATONI_NEVER ? NULL : &sleep, NULL, 0);
}

void
batoni_futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void
batoni_ring(void)
{
	batoni_bell_ring(batoni_bell());
}

void
batoni_ring_thread(void)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_fetch_add(&e->thread_rung, 1);
	batoni_futex_wake(&e->thread_rung);
	if ((atomic_load(&batoni_bell()->listening) | atomic_load(&batoni_bell()->idle)) &
	    BATONI_ASLEEP_THREAD)
		batoni_ring();
}

void
batoni_wake_thread(void)
{
	atomic_store(&batoni_engine.deep, false);
	batoni_ring_thread();
}

uint32_t
batoni_rung(void)
{
	return atomic_load(&batoni_bell()->doorbell);
}

void
batoni_listen(unsigned who)
{
	atomic_fetch_or(&batoni_bell()->listening, who);
}

void
batoni_unlisten(unsigned who)
{
	atomic_fetch_and(&batoni_bell()->listening, ~who);
}

uint64_t
batoni_time_left(uint64_t now, uint64_t then, uint64_t most)
{
	if (then <= now)
		return 0;
	return then - now < most ? then - now : most;
}

/* ---- sleepers ---- */

static struct batoni_hash_node *chains[(size_t)1 << CHAINS_LOG2];

static struct {
	pthread_mutex_t lock;
	struct batoni_hash one;                   /* by key: of one request */
	struct batoni_list_node several;          /* of more */
	struct batoni_list_node candidates; /* the longest sleep first */
	atomic_bool next_driver; /* one has been woken to drive */
} sleepers = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.one = {chains, 64 - CHAINS_LOG2},
};

__attribute__((constructor)) static void
sleepers_init(void)
{
	batoni_list_init(&sleepers.several);
	batoni_list_init(&sleepers.candidates);
}

static void
unlist_locked(struct batoni_sleeper *sleeper)
{
	if (sleeper->one)
		batoni_hash_remove(&sleeper->by_key);
	else
		batoni_list_remove(&sleeper->several);
	if (batoni_list_empty(&sleeper->driving))
		return;
	batoni_list_remove(&sleeper->driving);
	atomic_fetch_sub(&batoni_engine.wanted, BATONI_SLEEPER);
}

/* Releases sleepers.lock. */
static void
wake_locked(struct batoni_sleeper *sleeper)
{
	_Atomic uint32_t *word = &sleeper->woken;

	unlist_locked(sleeper);
	atomic_store(word, 1);
	pthread_mutex_unlock(&sleepers.lock);
	/* The sleeper may have returned: only its address is used, not its memory. */
	batoni_futex_wake(word);
}

void
batoni_wake_next_driver(void)
{
	struct batoni_sleeper *sleeper;

	if (atomic_load(&sleepers.next_driver))
		return;
	pthread_mutex_lock(&sleepers.lock);
	if (batoni_list_empty(&sleepers.candidates) ||
	    atomic_exchange(&sleepers.next_driver, true)) {
		pthread_mutex_unlock(&sleepers.lock);
		return;
	}
	sleeper = batoni_container_of(sleepers.candidates.next, struct batoni_sleeper,
	                              driving);
	sleeper->next_driver = true;
	wake_locked(sleeper);
}

/* The next driver drives, sleeps again, or returns from its wait.  A thread that released the
 * lock in the meantime has woken no second one, so wake one here if the lock is free. */
void
batoni_sleeper_pass_on(struct batoni_sleeper *sleeper)
{
	struct batoni_engine *e = &batoni_engine;

	if (!sleeper->next_driver)
		return;
	sleeper->next_driver = false;
	atomic_store(&sleepers.next_driver, false);
	if (!atomic_load(&e->driver) && atomic_load(&e->wanted) % BATONI_CLAIMANT)
		batoni_wake_next_driver();
}

static bool
waits_for(const struct batoni_awaited *awaited, baton_request request)
{
	for (size_t i = 0; i < awaited->count; i++) {
		if (awaited->requests[i] == request)
			return true;
	}
	return false;
}

/* A sleeper that waits for the request with this key, or NULL. */
static struct batoni_sleeper *
find_locked(uint64_t key)
{
	struct batoni_hash_node *one = batoni_hash_find(&sleepers.one, key);
	struct batoni_list_node *node;

	if (one)
		return batoni_container_of(one, struct batoni_sleeper, by_key);
	for (node = sleepers.several.next; node != &sleepers.several;
	     node = node->next) {
		struct batoni_sleeper *sleeper = batoni_container_of(
			node, struct batoni_sleeper, several);

		if (waits_for(sleeper->awaited, key))
			return sleeper;
	}
	return NULL;
}

void
batoni_wake_waiters(baton_request request)
{
	struct batoni_sleeper *sleeper;

	for (;;) {
		pthread_mutex_lock(&sleepers.lock);
		sleeper = find_locked(request);
		if (!sleeper)
			break;
		wake_locked(sleeper);
	}
	pthread_mutex_unlock(&sleepers.lock);
}

void
batoni_sleeper_enlist(struct batoni_sleeper *sleeper)
{
	const struct batoni_awaited *awaited = sleeper->awaited;

	atomic_store_explicit(&sleeper->woken, 0, memory_order_relaxed);
	batoni_list_init(&sleeper->driving);
	sleeper->one = awaited->local || awaited->count == 1;
	if (awaited->local)
		sleeper->key = (uintptr_t)awaited->local;
	else if (sleeper->one)
		sleeper->key = awaited->requests[0];
	pthread_mutex_lock(&sleepers.lock);
	if (sleeper->one)
		batoni_hash_add(&sleepers.one, &sleeper->by_key, sleeper->key);
	else
		batoni_list_append(&sleepers.several, &sleeper->several);
	if (!awaited->passive) {
		batoni_list_append(&sleepers.candidates, &sleeper->driving);
		atomic_fetch_add(&batoni_engine.wanted, BATONI_SLEEPER);
	}
	pthread_mutex_unlock(&sleepers.lock);
}

void
batoni_sleeper_unlist(struct batoni_sleeper *sleeper)
{
	if (atomic_load(&sleeper->woken))
		return;
	pthread_mutex_lock(&sleepers.lock);
	if (!atomic_load(&sleeper->woken))
		unlist_locked(sleeper);
	pthread_mutex_unlock(&sleepers.lock);
}
