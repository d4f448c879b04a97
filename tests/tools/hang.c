/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that hangs, for `baton trace --hang`: three ranks, one of four mistakes, and one of
 * four ends.
 *
 *   hang circle|join|tag|signal|probe pause|deadline|abort|leave
 *
 * circle: each rank receives from the one before it, and sends behind that.  tag: rank 0 sends tag 6
 * twice, and rank 2 receives tag 7; rank 1 receives what rank 2 would send then.  signal: rank 1 waits
 * for two signals of rank 0, which gives one.  probe: rank 2 finds the one message of rank 0, and then calls a plain
 * receive.
 *
 * Once what it hangs in is with the transport a rank prints a line.  Then it pauses until somebody
 * kills it; or its operations end at their deadlines; or it aborts; or its process just ends.
 *
 * With RANK and WORLD_SIZE in the environment it is one rank (baton_comm_create), else it has all as
 * threads.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <baton.h>

#define RANKS 3
#define DEADLINE_NS INT64_C(300000000)

static const char *mistake, *end;

static void
must(enum baton_status status, const char *what)
{
	if (status == BATON_OK)
		return;
	fprintf(stderr, "hang: %s: %s, %s\n", what, baton_status_name(status),
	        baton_last_error());
	exit(EXIT_FAILURE);
}

/* What a rank does: its stream, and the operation that it hangs in. */
struct rank {
	struct baton_comm *comm;
	int rank;
	baton_stream stream;
	struct baton_op_options options;
	baton_request waits; /* BATON_REQUEST_NULL: it does not hang */
	int data[2];
};

static void
send_to(struct rank *r, int peer, int tag)
{
	must(baton_send(&r->data[0], 1, BATON_INT32, peer, tag, r->comm, r->stream,
	                &r->options, NULL),
	     "baton_send");
}

static void
hang_in_receive(struct rank *r, int peer, int tag)
{
	must(baton_recv(&r->data[1], 1, BATON_INT32, peer, tag, r->comm, r->stream,
	                &r->options, &r->waits),
	     "baton_recv");
}

static void
circle(struct rank *r)
{
	hang_in_receive(r, (r->rank + RANKS - 1) % RANKS, 4);
	send_to(r, (r->rank + 1) % RANKS, 4);
}

/* The circle, where the stream of the send waits for the receive on another one. */
static void
join(struct rank *r)
{
	baton_stream sends = r->stream;

	must(baton_stream_create(r->comm, &r->stream), "baton_stream_create");
	hang_in_receive(r, (r->rank + RANKS - 1) % RANKS, 4);
	must(baton_stream_wait(r->comm, sends, r->waits), "baton_stream_wait");
	r->stream = sends;
	send_to(r, (r->rank + 1) % RANKS, 4);
}

static void
wrong_tag(struct rank *r)
{
	if (r->rank == 0) {
		send_to(r, 2, 6);
		send_to(r, 2, 6);
	} else if (r->rank == 1) {
		hang_in_receive(r, 2, 1);
	} else {
		hang_in_receive(r, 0, 7);
		send_to(r, 1, 1);
	}
}

static void
missing_signal(struct rank *r)
{
	const struct baton_wait_signal_desc desc = {
		.op_count = 2, .peer = 0, .signal_index = 3};

	if (r->rank == 0)
		must(baton_signal(1, 3, 0, 0, r->comm, r->stream, &r->options, NULL),
		     "baton_signal");
	else if (r->rank == 1)
		must(baton_wait_signal(1, &desc, r->comm, r->stream, &r->options,
		                       &r->waits),
		     "baton_wait_signal");
}

static void
found_message(struct rank *r)
{
	enum baton_status status = BATON_PENDING;
	baton_message message;

	if (r->rank == 0)
		send_to(r, 2, 5);
	if (r->rank != 2)
		return;
	while (status == BATON_PENDING)
		status = baton_probe(0, 5, r->comm, &message, NULL);
	must(status, "baton_probe");
	hang_in_receive(r, 0, 5);
}

static const struct {
	const char *name;
	void (*make)(struct rank *r);
} mistakes[] = {{"circle", circle},
                {"join", join},
                {"tag", wrong_tag},
                {"signal", missing_signal},
                {"probe", found_message}};

static void
make_mistake(struct rank *r)
{
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		if (strcmp(mistake, mistakes[i].name) == 0)
			mistakes[i].make(r);
	}
}

static void
wait_until_it_hangs(struct rank *r)
{
	struct baton_request_info info = {.size = sizeof(info)};

	while (r->waits != BATON_REQUEST_NULL && info.state != BATON_STATE_ISSUED) {
		baton_progress(r->comm);
		must(baton_request_info(r->waits, &info), "baton_request_info");
	}
	printf("rank %d hangs\n", r->rank);
	fflush(stdout);
}

static void
hang_rank(struct rank *r)
{
	must(baton_stream_create(r->comm, &r->stream), "baton_stream_create");
	r->options = (struct baton_op_options)BATON_OP_OPTIONS_INIT;
	r->options.timeout_ns = strcmp(end, "deadline") == 0 ? DEADLINE_NS : -1;
	make_mistake(r);
	wait_until_it_hangs(r);
	if (strcmp(end, "pause") == 0)
		pause();
	if (strcmp(end, "deadline") == 0 && r->waits != BATON_REQUEST_NULL)
		baton_wait(r->waits, -1, NULL);
}

static void *
run_thread(void *rank)
{
	hang_rank(rank);
	return NULL;
}

static void
run_threads(void)
{
	struct baton_comm *comms[RANKS];
	struct rank ranks[RANKS] = {{0}};
	pthread_t threads[RANKS];

	must(baton_comm_create_local(RANKS, NULL, comms), "baton_comm_create_local");
	for (int i = 0; i < RANKS; i++) {
		ranks[i].comm = comms[i];
		ranks[i].rank = i;
		pthread_create(&threads[i], NULL, run_thread, &ranks[i]);
	}
	for (int i = 0; i < RANKS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < RANKS && strcmp(end, "abort") == 0; i++)
		must(baton_comm_abort(comms[i]), "baton_comm_abort");
}

static void
run_process(void)
{
	struct rank rank = {0};

	must(baton_comm_create(NULL, &rank.comm), "baton_comm_create");
	rank.rank = baton_comm_rank(rank.comm);
	hang_rank(&rank);
	/* Not before all hang: the test writes a line to each. */
	if (getchar() == EOF)
		fprintf(stderr, "hang: nobody said when to end\n");
	if (strcmp(end, "abort") == 0)
		must(baton_comm_abort(rank.comm), "baton_comm_abort");
}

int
main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: hang circle|tag|signal|probe "
		                "pause|deadline|abort|leave\n");
		return 64;
	}
	mistake = argv[1];
	end = argv[2];
	if (getenv("WORLD_SIZE"))
		run_process();
	else
		run_threads();
	/* Nothing is destroyed: a program that hangs does not, either. */
	fflush(stdout);
	_exit(EXIT_SUCCESS);
}
