/* SPDX-License-Identifier: BSD-3-Clause */
/* exit() from the handler of a signal that has interrupted a waiting thread, which drives
 * and has the driver's lock: the process ends.  Alone, without a launcher; Baton starts
 * MPI here, and would finalise it at exit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#include "baton.h"

static void
leave(int number)
{
	(void)number;
	exit(0);
}

int
main(void)
{
	const struct itimerval soon = {.it_value = {.tv_usec = 100000}};
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm;
	baton_request request;
	char byte;

	options.transport = BATON_TRANSPORT_MPI;
	if (baton_comm_create(&options, &comm) != BATON_OK ||
	    baton_recv(&byte, 1, BATON_INT8, 0, 0, comm, NULL, NULL, &request) !=
	            BATON_OK) {
		printf("%s\n", baton_last_error());
		return 1;
	}
	signal(SIGALRM, leave);
	setitimer(ITIMER_REAL, &soon, NULL);
	baton_wait(request, -1, NULL);
	return 2;
}
