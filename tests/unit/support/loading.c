/* SPDX-License-Identifier: BSD-3-Clause */
#include "loading.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "log.h"

/* A thread that loads. */
struct loading {
	loading_fn load;
	const void *api;
	pthread_t thread;
};

const char *
loading_refused(loading_fn load)
{
	const void *api = NULL;
	static char first[512];

	ck_assert_int_eq(load(&api), BATON_ERR_UNSUPPORTED);
	snprintf(first, sizeof(first), "%s", baton_last_error());
	batoni_refuse(BATON_ERR_INVALID, "another");
	ck_assert_int_eq(load(&api), BATON_ERR_UNSUPPORTED);
	ck_assert_str_eq(baton_last_error(), first);
	ck_assert_ptr_null(api);
	return first;
}

static void *
load_here(void *argument)
{
	struct loading *loading = argument;

	loading->load(&loading->api);
	return NULL;
}

static void *
load_cancelled(void *argument)
{
	pthread_cancel(pthread_self());
	return load_here(argument);
}

static void
begin(struct loading *loading, loading_fn load, void *(*main)(void *))
{
	loading->load = load;
	loading->api = NULL;
	ck_assert_int_eq(pthread_create(&loading->thread, NULL, main, loading),
	                 0);
}

const void *
loading_by_threads(loading_fn load)
{
	struct loading loading[LOADING_THREADS];

	for (int i = 0; i < LOADING_THREADS; i++)
		begin(&loading[i], load, load_here);
	for (int i = 0; i < LOADING_THREADS; i++)
		pthread_join(loading[i].thread, NULL);
	for (int i = 0; i < LOADING_THREADS; i++) {
		ck_assert_ptr_nonnull(loading[i].api);
		ck_assert_ptr_eq(loading[i].api, loading[0].api);
	}
	return loading[0].api;
}

const void *
loading_cancelled(loading_fn load)
{
	struct loading loading;

	begin(&loading, load, load_cancelled);
	pthread_join(loading.thread, NULL);
	return loading.api;
}

void
assert_says(const char *sentence, const char *part)
{
	ck_assert_msg(strstr(sentence, part), "\"%s\" says nothing of \"%s\"",
	              sentence, part);
}
