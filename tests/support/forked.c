/* SPDX-License-Identifier: BSD-3-Clause */
#include "runner.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared_memory.h"

#define RANKS_MAX 16

/* Between two barriers, written by one rank or by each its own. */
static struct shared {
	pthread_barrier_t barrier;
	int values[RANKS_MAX];
	struct baton_unique_id id;
	enum baton_status status; /* of the id */
} *shared;

static int my_rank; /* of this process */
static struct baton_comm_options (*options_of)(
	const struct baton_comm_options *options_or_null);

static void
forked_sync(struct conform *c)
{
	(void)c;
	pthread_barrier_wait(&shared->barrier);
}

static int
forked_agree(struct conform *c, int value)
{
	int most;

	shared->values[c->rank] = value;
	forked_sync(c);
	most = conform_most(shared->values, c->size);
	forked_sync(c);
	return most;
}

static enum baton_status
forked_create(struct conform *c, const struct baton_comm_options *options,
              struct baton_comm **comm_p)
{
	const struct baton_comm_options mine = options_of(options);
	struct baton_unique_id id;
	enum baton_status status;

	if (c->rank == 0)
		shared->status = baton_unique_id_create(&shared->id);
	forked_sync(c);
	id = shared->id;
	status = shared->status;
	/* A creation that is refused at once is followed by the next one's id. */
	forked_sync(c);
	if (status != BATON_OK)
		return status;
	return baton_comm_create_id(c->size, c->rank, &id, &mine, comm_p);
}

static void
make_shared(int size)
{
	shared = shared_alloc(sizeof(*shared));
	shared_barrier(&shared->barrier, size);
}

/* The worst exit status.  One that dies does not come to the barriers: so all others go. */
static int
await_all(const pid_t children[], int size)
{
	int result = 0;

	for (int left = size; left > 0; left--) {
		int status, mine;

		if (wait(&status) < 0)
			abort();
		mine = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		if (mine != 0 && mine != 77)
			result = 1;
		else if (mine == 77 && result == 0)
			result = 77;
		for (int i = 0; i < size && !WIFEXITED(status); i++)
			kill(children[i], SIGKILL);
	}
	return result;
}

/* A rank that Baton takes to be on a host of its own: a process of another pid namespace.  77: the
 * kernel does not let us make one. */
static int
run_apart(int (*child)(int argc, char **argv), int argc, char **argv)
{
	int status;
	pid_t rank;

	if (unshare(CLONE_NEWPID) != 0 &&
	    unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
		perror("conform: no pid namespace");
		return 77;
	}
	rank = fork();
	if (rank == 0) {
		/* Its end is also the end of the rank. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(child(argc, argv));
	}
	if (rank < 0 || waitpid(rank, &status, 0) != rank)
		abort();
	if (!WIFEXITED(status))
		abort();
	return WEXITSTATUS(status);
}

int
conform_forked(int (*child)(int argc, char **argv), int argc, char **argv)
{
	struct conform_arguments arguments = conform_arguments(argc, argv);
	pid_t children[RANKS_MAX];
	int size = arguments.list ? 1 : arguments.ranks;

	if (size > RANKS_MAX)
		abort();
	make_shared(size);
	for (int rank = 0; rank < size; rank++) {
		fflush(stdout);
		my_rank = rank;
		children[rank] = fork();
		if (children[rank] == 0)
			exit(getenv("CONFORM_APART")
			             ? run_apart(child, argc, argv)
			             : child(argc, argv));
		if (children[rank] < 0)
			abort();
	}
	return await_all(children, size);
}

int
conform_forked_rank(struct conform_backend backend,
                    struct baton_comm_options (*options)(
			    const struct baton_comm_options *options_or_null),
                    const struct conform_list *const lists[], int argc,
                    char **argv)
{
	struct conform_arguments arguments = conform_arguments(argc, argv);
	struct conform conform;
	int result;

	if (arguments.list)
		return conform_print(lists);
	backend.traits |= CONFORM_PROCESSES | CONFORM_BY_ID;
	backend.create = forked_create;
	backend.sync = forked_sync;
	backend.agree = forked_agree;
	options_of = options;
	conform_init(&conform, &backend, NULL, my_rank, arguments.ranks);
	result = conform_run(&conform, lists, &arguments);
	conform_fini(&conform);
	return result;
}
