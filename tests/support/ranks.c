/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that are threads share the barrier, a table of values to agree on, and
 * the communicators that rank 0 creates for all. */
#include "runner.h"

#include <stdlib.h>

struct ranks {
	const struct conform_list *const *lists;
	struct conform_arguments arguments;
	conform_open_fn *open_fn;
	pthread_barrier_t barrier;
	/* Written between two barriers, by their own rank or by rank 0. */
	int *values;
	struct baton_comm **comms;
	enum baton_status status;
};

struct rank {
	struct conform conform;
	pthread_t thread;
	int result;
};

static void
threads_sync(struct conform *c)
{
	struct ranks *ranks = c->ranks;

	pthread_barrier_wait(&ranks->barrier);
}

static int
threads_agree(struct conform *c, int value)
{
	struct ranks *ranks = c->ranks;
	int most;

	ranks->values[c->rank] = value;
	threads_sync(c);
	most = conform_most(ranks->values, c->size);
	threads_sync(c);
	return most;
}

static enum baton_status
threads_create(struct conform *c, const struct baton_comm_options *options,
               struct baton_comm **comm_p)
{
	struct ranks *ranks = c->ranks;
	enum baton_status status;

	if (c->rank == 0)
		ranks->status = ranks->open_fn(c->size, options, ranks->comms);
	threads_sync(c);
	status = ranks->status;
	if (status == BATON_OK)
		*comm_p = ranks->comms[c->rank];
	threads_sync(c);
	return status;
}

static void *
rank_main(void *arg)
{
	struct rank *rank = arg;
	struct ranks *ranks = rank->conform.ranks;

	rank->result = conform_run(&rank->conform, ranks->lists,
	                           &ranks->arguments);
	return NULL;
}

int
conform_threads(const char *name, unsigned traits, conform_open_fn *open_fn,
                const struct conform_list *const lists[], int argc, char **argv)
{
	return conform_threads_on((struct conform_backend){ .name = name,
	                                                    .traits = traits },
	                          open_fn, lists, argc, argv);
}

int
conform_threads_on(struct conform_backend backend, conform_open_fn *open_fn,
                   const struct conform_list *const lists[], int argc,
                   char **argv)
{
	struct ranks ranks = { .lists = lists, .open_fn = open_fn };
	struct rank *rank;
	int size, result;

	backend.traits |= CONFORM_THREADS;
	backend.create = threads_create;
	backend.sync = threads_sync;
	backend.agree = threads_agree;
	ranks.arguments = conform_arguments(argc, argv);
	if (ranks.arguments.list)
		return conform_print(lists);
	size = ranks.arguments.ranks;
	rank = calloc((size_t)size, sizeof(*rank));
	ranks.values = calloc((size_t)size, sizeof(*ranks.values));
	ranks.comms = calloc((size_t)size, sizeof(struct baton_comm *));
	if (!rank || !ranks.values || !ranks.comms)
		abort();
	pthread_barrier_init(&ranks.barrier, NULL, (unsigned)size);
	for (int i = 0; i < size; i++)
		conform_init(&rank[i].conform, &backend, &ranks, i, size);
	for (int i = 0; i < size; i++)
		if (pthread_create(&rank[i].thread, NULL, rank_main, &rank[i]))
			abort();
	for (int i = 0; i < size; i++)
		pthread_join(rank[i].thread, NULL);
	result = rank[0].result;
	for (int i = 0; i < size; i++)
		conform_fini(&rank[i].conform);
	pthread_barrier_destroy(&ranks.barrier);
	free(ranks.comms);
	free(ranks.values);
	free(rank);
	return result;
}
