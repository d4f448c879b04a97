/* SPDX-License-Identifier: BSD-3-Clause */
/* The random load over the local transport: ranks are threads. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "stress.h"

enum { RANKS = 3 };

struct rank {
	struct baton_comm *comm;
	const struct stress_options *options;
	pthread_t thread;
};

static void *
rank_main(void *arg)
{
	struct rank *rank = arg;

	stress_rank(rank->comm, rank->options);
	return NULL;
}

static void
end_job(void)
{
	_exit(1);
}

int
main(int argc, char **argv)
{
	struct stress_options options = stress_options(argc, argv, 100);
	struct baton_comm_options comm_options =
		stress_comm_options(&options);
	struct baton_comm *comms[RANKS];
	struct rank ranks[RANKS];
	int failures = 0;

	options.end_job = end_job;
	printf("seed %llu: %d ranks, %d workers, %d rounds\n",
	       (unsigned long long)options.seed, RANKS, options.workers,
	       options.rounds);
	if (baton_comm_create_local(RANKS, &comm_options, comms) != BATON_OK) {
		printf("no communicator: %s\n", baton_last_error());
		return 1;
	}
	for (int i = 0; i < RANKS; i++) {
		ranks[i] = (struct rank){ .comm = comms[i],
		                         .options = &options };
		if (pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]))
			return 1;
	}
	for (int i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
	for (int i = 0; i < RANKS; i++)
		if (baton_comm_destroy(comms[i]) != BATON_OK)
			failures++;
	printf("%s\n", failures ? "FAILED" : "ok");
	return failures ? 1 : 0;
}
