/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ranks exchange a million floats: mpirun -np 2 ./hello, or without MPI (README.md) */
#include <baton.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1 << 20 };
static float mine[COUNT], theirs[COUNT];
static struct baton_comm *comm;

static void check(enum baton_status status)
{
	if (status == BATON_OK)
		return;
	fprintf(stderr, "%s: %s\n", baton_status_text(status), baton_last_error());
	baton_comm_abort(comm);
	exit(1);
}

static void fill(void *rank) /* runs on the stream, before the exchange */
{
	for (int i = 0; i < COUNT; i++)
		mine[i] = (float)(*(int *)rank + 1);
}

int main(int argc, char **argv)
{
	baton_stream stream;
	baton_request requests[2];
	char why[200] = "";

	if (argc > 1) {
		printf("usage: mpirun -np 2 %s (or without MPI: README.md)\n", argv[0]);
		return strcmp(argv[1], "--help") != 0;
	}
	check(baton_comm_create(NULL, &comm));
	check(baton_stream_create(comm, &stream));
	int rank = baton_comm_rank(comm);
	int peer = baton_comm_size(comm) - 1 - rank;

	/* Each call only enqueues. The group lets both directions move at once. */
	check(baton_stream_launch(comm, stream, fill, &rank));
	check(baton_group_begin(comm));
	check(baton_send(mine, COUNT, BATON_FLOAT32, peer, 0, comm, stream, NULL, &requests[0]));
	check(baton_recv(theirs, COUNT, BATON_FLOAT32, peer, 0, comm, stream, NULL, &requests[1]));
	check(baton_group_end(comm));

	/* ... the host is free here: compute, or poll with baton_test() ... */
	if (baton_wait_all(requests, 2, -1) != BATON_OK) {
		for (int i = 0; i < 2 && why[0] == '\0'; i++)
			check(baton_request_error(requests[i], why, sizeof(why)));
		fprintf(stderr, "the exchange failed: %s\n", why);
		baton_comm_abort(comm);
		return 1;
	}
	printf("rank %d received %.0f from rank %d\n", rank, theirs[COUNT - 1], peer);
	for (int i = 0; i < 2; i++)
		check(baton_release(&requests[i]));
	check(baton_stream_destroy(comm, stream));
	check(baton_comm_destroy(comm));
	return 0;
}
