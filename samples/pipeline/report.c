/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress line, and the account of each stage's time.
 *
 *   computing   inside forward, loss, backward and update
 *   waiting     blocked on a transfer, whatever the reason: also because the
 *               neighbour has not computed the data yet
 *   in flight   the sum over this stage's transfers of the time from when both
 *               sides were ready (the later of the two armed_ns) until Baton
 *               saw this side's end (completed_ns)
 *   hidden      the share of it during which this stage was not waiting, for
 *               this transfer or for any other
 *
 * To know when the other side was ready, neighbours swap their armed_ns at the
 * end.  That compares the clocks of two processes, so it is done only when both
 * run on one machine (by its boot id), where CLOCK_MONOTONIC is one clock.
 */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "pipeline.h"

/* ---- progress ----------------------------------------------------------- */

void progress_init(struct progress *progress, const struct options *options,
                   const char *name)
{
	struct winsize window;

	progress->style = options->progress;
	progress->name = name;
	progress->epochs = options->epochs;
	progress->width = 0;
	if (progress->style != PROGRESS_AUTO)
		return;
	/* mpirun gives its processes terminals of no width, whatever its own
	 * output is. */
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		progress->style = PROGRESS_LINE;
	else
		progress->style = PROGRESS_PLAIN;
}

void progress_show(struct progress *progress, int epoch,
                   const struct score *training, const struct score *held_out)
{
	char text[160];
	bool line = progress->style == PROGRESS_LINE;
	bool last = epoch + 1 == progress->epochs;
	int every = progress->epochs > 10 ? progress->epochs / 5 : 1;
	int width;

	if (!line && !last && (epoch + 1) % every != 0)
		return;
	width = snprintf(text, sizeof(text),
	                 "%-8s epoch %d of %d: loss %.4f, accuracy %.1f %% "
	                 "(held out %.1f %%)", progress->name, epoch + 1,
	                 progress->epochs, training->loss / training->images,
	                 100.0 * training->correct / training->images,
	                 100.0 * held_out->correct / held_out->images);
	printf("%s%-*s%s", line ? "\r" : "", progress->width, text,
	       line && !last ? "" : "\n");
	progress->width = line ? width : 0;
	fflush(stdout);
}

/* ---- the account -------------------------------------------------------- */

/* Plain floats, so that it travels as they are. */
struct account {
	double compute_ns, waiting_ns, training_ns;
	double transfers, transfer_ns, exposed_ns;
	double comparable; /* 1: the neighbours' clocks are ours */
	double first, count; /* layers */
};

static uint64_t machine_id(void)
{
	char id[64] = "";
	uint64_t hash = 0;
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

	if (file == NULL || fgets(id, sizeof(id), file) == NULL)
		id[0] = '\0';
	if (file != NULL)
		fclose(file);
	for (const char *at = id; *at != '\0'; at++) {
		hash += (unsigned char)*at;
		hash = random_next(&hash);
	}
	return hash;
}

/* How much of the span the host waited; waits are in order and disjoint. */
static uint64_t waited_within(const struct stage *stage, struct span span)
{
	size_t low = 0, high = stage->waits_count;
	uint64_t sum = 0;

	while (low < high) { /* the first wait that ends after the beginning */
		size_t middle = low + (high - low) / 2;

		if (stage->waits[middle].end > span.begin)
			high = middle;
		else
			low = middle + 1;
	}
	for (; low < stage->waits_count; low++) {
		struct span wait = stage->waits[low];

		if (wait.begin >= span.end)
			break;
		if (wait.begin < span.begin)
			wait.begin = span.begin;
		if (wait.end > span.end)
			wait.end = span.end;
		sum += wait.end - wait.begin;
	}
	return sum;
}

/* Add a link's transfers; theirs[0] is the neighbour's machine, then come its
 * armed_ns. */
static void account_link(struct account *account, const struct stage *stage,
                         const struct link *link, const uint64_t *theirs)
{
	if (theirs[0] != machine_id())
		account->comparable = 0.0;
	for (size_t i = 0; i < link->finished; i++) {
		struct span span = link->transfers[i];

		if (span.begin < theirs[1 + i])
			span.begin = theirs[1 + i];
		if (span.begin > span.end) /* a send that was buffered */
			span.begin = span.end;
		account->transfers += 1.0;
		account->transfer_ns += (double)(span.end - span.begin);
		account->exposed_ns += (double)waited_within(stage, span);
	}
}

static uint64_t *armed_times(const struct link *link)
{
	uint64_t *times = allocate(link->finished + 1, sizeof(*times));

	times[0] = machine_id();
	for (size_t i = 0; i < link->finished; i++)
		times[1 + i] = link->transfers[i].begin;
	return times;
}

/* Swap with the neighbours.  All in one group: nobody waits for anybody's
 * order.  Links are named in the order that both sides have for each pair. */
static void account_transfers(struct account *account, struct stage *stage)
{
	struct link *links[] = { &stage->activation_in, &stage->gradient_out,
		                 &stage->activation_out, &stage->gradient_in };
	uint64_t *mine[4], *theirs[4];
	baton_request requests[8] = { BATON_REQUEST_NULL };
	struct baton_comm *comm = stage->comm;

	CHECK(comm, baton_group_begin(comm));
	for (int i = 0; i < 4; i++) {
		size_t count = links[i]->finished + 1;

		mine[i] = armed_times(links[i]);
		theirs[i] = allocate(count, sizeof(**theirs));
		if (links[i]->peer < 0)
			continue;
		CHECK(comm, baton_send(mine[i], count, BATON_UINT64,
		                       links[i]->peer, TAG_TIMES, comm,
		                       stage->stream, NULL, &requests[2 * i]));
		CHECK(comm, baton_recv(theirs[i], count, BATON_UINT64,
		                       links[i]->peer, TAG_TIMES, comm,
		                       stage->stream, NULL,
		                       &requests[2 * i + 1]));
	}
	CHECK(comm, baton_group_end(comm));
	for (int i = 0; i < 4; i++) {
		if (links[i]->peer >= 0) {
			finish(comm, &requests[2 * i], NULL);
			finish(comm, &requests[2 * i + 1], NULL);
			account_link(account, stage, links[i], theirs[i]);
		}
		free(mine[i]);
		free(theirs[i]);
	}
}

static void print(int rank, const struct account *account)
{
	int first = (int)account->first, count = (int)account->count;
	char layers[32];

	snprintf(layers, sizeof(layers), count > 1 ? "%d-%d" : "%d", first,
	         first + count - 1);
	printf("  %5d  %6s  %9.2f s  %7.2f s", rank, layers,
	       account->compute_ns * 1e-9, account->waiting_ns * 1e-9);
	if (account->transfers == 0.0)
		printf("  %9s  %10s  %7s\n", "none", "-", "-");
	else if (account->comparable == 0.0)
		printf("  %9.0f  %10s  %7s\n", account->transfers,
		       "two clocks", "-");
	else if (account->transfer_ns == 0.0)
		printf("  %9.0f  %8.3f s  %7s\n", account->transfers, 0.0, "-");
	else
		printf("  %9.0f  %8.3f s  %5.1f %%\n", account->transfers,
		       account->transfer_ns * 1e-9,
		       100.0 * (1.0 - account->exposed_ns /
		                              account->transfer_ns));
}

double report_stages(struct stage *stage, const char *name)
{
	struct account mine = { 0 }, other;
	double slowest_ns;

	mine.compute_ns = (double)stage->compute_ns;
	mine.training_ns = (double)stage->training_ns;
	mine.first = stage->mlp.first;
	mine.count = stage->mlp.count;
	mine.comparable = 1.0;
	for (size_t i = 0; i < stage->waits_count; i++)
		mine.waiting_ns += (double)(stage->waits[i].end -
		                            stage->waits[i].begin);
	account_transfers(&mine, stage);
	if (stage->rank != 0) {
		transfer(stage->comm, 0, TAG_ACCOUNT, false, &mine,
		         sizeof(mine));
		return 0.0;
	}
	printf("\n  stage  layers    computing    waiting  transfers   "
	       "in flight   hidden\n");
	print(0, &mine);
	slowest_ns = mine.training_ns;
	for (int rank = 1; rank < stage->ranks; rank++) {
		transfer(stage->comm, rank, TAG_ACCOUNT, true, &other,
		         sizeof(other));
		print(rank, &other);
		if (other.training_ns > slowest_ns)
			slowest_ns = other.training_ns;
	}
	printf("  %s: %.2f s of training\n\n", name, slowest_ns * 1e-9);
	fflush(stdout);
	return slowest_ns * 1e-9;
}
