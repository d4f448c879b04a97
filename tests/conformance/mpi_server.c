/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A server with strictly serial clients: each sends a request, waits for the reply,
 * and then sends the next.  Lengths are those that travel as a header and two pieces
 * (2049 to 7168 bytes), so that every message adds several MPI requests to those that
 * the server tests.
 *
 *   mpi_server [fair]
 *
 * For each client the server has one receive and one reply outstanding, and for a
 * moment the reply before.  The test is that what MPI has finished is seen soon: when
 * there are more than LIMIT, MPI has been asked about each request within the last two
 * rounds (MPI_Testsome is wrapped) and has not finished it.  That happens: Open MPI gives
 * the parts of a send back through one list of all senders, and where the system takes the
 * processor from a process that adds to this list, nothing behind it is seen, while requests
 * of others come in by another way.
 *
 * "fair": when the first client has had its ROUNDS, every client has had at least half as
 * many.  (That also depends on how the system shares out processors.)
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "baton_mpi.h"
#include "program.h"

#define ROUNDS 3000
#define LIMIT 4
#define BYTES_MIN 2049u
#define BYTES_MAX 7168u
#define CLIENTS_MAX 16

static unsigned char in[CLIENTS_MAX][BYTES_MAX];
static unsigned char out[BYTES_MAX];

/* ---- when MPI was asked about each request -------------------------------- */

#define WINDOW_MAX 64
#define ASKED_MAX 16384

/* Requests that MPI was asked about and had not finished. */
static struct {
	pthread_mutex_t lock;
	unsigned long calls; /* of MPI_Testsome */
	int n;
	MPI_Request requests[ASKED_MAX];
	unsigned long last[ASKED_MAX]; /* the call in which it was asked about */
} asked = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int
find_asked(MPI_Request request)
{
	int i = 0;

	while (i < asked.n && asked.requests[i] != request)
		i++;
	return i;
}

static void
note_asked(MPI_Request request, bool finished)
{
	int i = find_asked(request);

	if (finished && i < asked.n) {
		asked.n--;
		asked.requests[i] = asked.requests[asked.n];
		asked.last[i] = asked.last[asked.n];
	} else if (!finished && i < ASKED_MAX) {
		asked.requests[i] = request;
		asked.last[i] = asked.calls;
		if (i == asked.n)
			asked.n++;
	}
}

int
MPI_Testsome(int n, MPI_Request requests[], int *done, int indices[],
             MPI_Status statuses[])
{
	MPI_Request before[WINDOW_MAX];
	int code;

	for (int i = 0; i < n && i < WINDOW_MAX; i++)
		before[i] = requests[i];
	code = PMPI_Testsome(n, requests, done, indices, statuses);
	pthread_mutex_lock(&asked.lock);
	asked.calls++;
	for (int i = 0; i < n && i < WINDOW_MAX; i++)
		note_asked(before[i], requests[i] == MPI_REQUEST_NULL);
	pthread_mutex_unlock(&asked.lock);
	return code;
}

int
MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
	MPI_Request before = *request;
	int code = PMPI_Test(request, done, status);

	pthread_mutex_lock(&asked.lock);
	if (*request == MPI_REQUEST_NULL)
		note_asked(before, true);
	pthread_mutex_unlock(&asked.lock);
	return code;
}

/* Two rounds, of which every second call tests the newest requests. */
static bool
all_were_asked(void)
{
	unsigned long longest = 0, most;

	pthread_mutex_lock(&asked.lock);
	most = 4 * (unsigned long)(asked.n / WINDOW_MAX + 1);
	for (int i = 0; i < asked.n; i++) {
		if (asked.calls - asked.last[i] > longest)
			longest = asked.calls - asked.last[i];
	}
	if (longest > most)
		printf("%d requests, of which one was not tested in %lu calls\n",
		       asked.n, longest);
	pthread_mutex_unlock(&asked.lock);
	return longest <= most;
}

/* ---- the server and its clients ------------------------------------------- */

struct client {
	int outstanding, most;
	int completions;
	int replies;
};

struct server {
	struct baton_comm *comm;
	struct baton_queue *queue;
	struct client clients[CLIENTS_MAX];
};

static size_t
draw(unsigned *state)
{
	*state = *state * 1103515245u + 12345u;
	return BYTES_MIN + (*state >> 8) % (BYTES_MAX - BYTES_MIN + 1);
}

static void
enqueue(struct server *server, int peer, bool reply, size_t bytes)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct client *client = &server->clients[peer];
	enum baton_status status;

	options.flags = BATON_OP_DETACHED;
	options.queue = server->queue;
	options.user_data = (uint64_t)reply;
	if (reply)
		status = baton_send(out, bytes, BATON_UINT8, peer, 0,
		                    server->comm, NULL, &options, NULL);
	else
		status = baton_recv(in[peer], BYTES_MAX, BATON_UINT8, peer, 0,
		                    server->comm, NULL, &options, NULL);
	CHECK(status == BATON_OK);
	client->outstanding++;
	if (client->outstanding > client->most)
		client->most = client->outstanding;
	if (client->outstanding > LIMIT)
		CHECK(all_were_asked());
}

/* A request is answered; the last one is not followed by a receive. */
static void
ended(struct server *server, const struct baton_completion *completion)
{
	struct client *client = &server->clients[completion->peer];

	CHECK(completion->status == BATON_OK);
	client->outstanding--;
	if (completion->user_data)
		return;
	client->completions++;
	if (client->completions < ROUNDS)
		enqueue(server, completion->peer, false, 0);
	enqueue(server, completion->peer, true, completion->bytes);
}

static int
least(const struct server *server, int size)
{
	int n = ROUNDS;

	for (int i = 1; i < size; i++) {
		if (server->clients[i].completions < n)
			n = server->clients[i].completions;
	}
	return n;
}

static void
serve(struct baton_comm *comm, int size, bool fair)
{
	static struct server server;
	struct baton_completion completions[16];
	int pending = 0, slowest = -1;

	server.comm = comm;
	CHECK(baton_queue_create(comm, 1024, &server.queue) == BATON_OK);
	for (int i = 1; i < size; i++)
		enqueue(&server, i, false, 0);
	do {
		size_t n = baton_queue_poll(server.queue, completions, 16);

		for (size_t k = 0; k < n; k++)
			ended(&server, &completions[k]);
		pending = 0;
		for (int i = 1; i < size; i++) {
			pending += server.clients[i].outstanding;
			if (server.clients[i].completions == ROUNDS &&
			    slowest < 0)
				slowest = least(&server, size);
		}
	} while (pending && !failures);
	baton_queue_destroy(server.queue);
	for (int i = 1; i < size; i++) {
		printf("client %d: at most %d outstanding\n", i,
		       server.clients[i].most);
	}
	printf("%d of %d served to the slowest when the first was done\n",
	       slowest, ROUNDS);
	CHECK(!fair || 2 * slowest >= ROUNDS);
}

static void
ask(struct baton_comm *comm, int rank)
{
	unsigned state = (unsigned)rank;

	for (int round = 0; round < ROUNDS; round++) {
		struct baton_completion completion;
		size_t bytes = draw(&state);
		baton_request request;

		CHECK(baton_send(out, bytes, BATON_UINT8, 0, 0, comm, NULL,
		                 NULL, &request) == BATON_OK);
		CHECK(baton_finish(&request, -1, NULL) == BATON_OK);
		CHECK(baton_recv(in[0], BYTES_MAX, BATON_UINT8, 0, 0, comm,
		                 NULL, NULL, &request) == BATON_OK);
		CHECK(baton_finish(&request, -1, &completion) == BATON_OK);
		CHECK(completion.bytes == bytes);
	}
}

int
main(int argc, char **argv)
{
	struct baton_comm *comm = create_world();
	int rank, size, mine, all;

	rank = baton_comm_rank(comm);
	size = baton_comm_size(comm);
	if (rank == 0)
		serve(comm, size, argc > 1 && strcmp(argv[1], "fair") == 0);
	else
		ask(comm, rank);
	mine = failures;
	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (all == 0)
		CHECK(baton_comm_destroy(comm) == BATON_OK);
	else
		MPI_Abort(MPI_COMM_WORLD, 1);
	return exit_status();
}
