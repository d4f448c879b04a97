/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of MPI.
 *
 * By the program: a callback on an attribute of MPI_COMM_SELF, which MPI_Finalize deletes
 * before anything else, takes every live transport from the engine; nothing calls MPI
 * afterwards.
 *
 * By Baton, when it has initialised MPI, at exit (transport/bootstrap/mpi/start.c).  MPI_Finalize
 * waits for all ranks.  So at exit it is
 *
 *   - not called if a process of this node that had a communicator with this one has ended
 *     without it: MPI_Finalize may wait for ever, and the job has failed in any case;
 *   - not called if MPI has returned an error on a communicator: what it does next is unknown;
 *   - not called if a communicator has broken or was aborted, and the process exits with a
 *     status other than 0: the launcher is to end the ranks that wait for this one;
 *   - called otherwise, also after an abort, and after a break by a deadline, a device or
 *     NCCL.  What MPI still has of operations it may go on with.
 *
 * Ranks that wait for one that comes here have to hear of it, or both wait for ever.  On
 * one node they read it in its segment (liveness.h).  The segments of communicators that
 * were closed after an abort are gone, so their first page, which has that word, stays
 * mapped.
 *
 * Locks: `lock` guards the statics.  It is not held across the engine, whose driver's lock is
 * taken first where both are (forget).
 */
#include <assert.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "list.h"
#include "mem.h"
#include "mpi_transport.h"

#define PAGE_BYTES 4096u

static_assert(PAGE_BYTES >= BATONI_DEPARTURE_BYTES, "a page has the departure");

struct page {
	struct page *next;
	struct batoni_departure *departure;
};

static const struct batoni_engine_calls *engine;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_list_node live = {&live, &live}; /* struct batoni_mpi */
static bool watching; /* MPI_COMM_SELF has our attribute */

/* What is kept of communicators that were closed after an abort, or broken. */
static struct {
	bool any;
	bool failed; /* an error of MPI */
	bool died;   /* the process of a peer */
	int *pidfds; /* of the one with most ranks: its peers' processes */
	int count;
	struct page *pages;
} departed;

/* ---- communicators that end ---- */

/* Has the peer's process ended without leaving MPI? (It may have closed the communicator
 * before.) */
static bool
has_died(const struct batoni_peer *peer)
{
	const struct batoni_departure *departure =
		peer->within ? NULL : batoni_departure_of(peer);

	return peer->pidfd >= 0 && batoni_pidfd_gone(peer->pidfd) &&
	       !(departure &&
	         atomic_load(&departure->away) == BATONI_AWAY_FINALISED);
}

static bool
any_died(const struct batoni_mpi *mpi)
{
	bool any = false;

	for (int rank = 0; mpi->base.peers && rank < mpi->base.size; rank++)
		any |= has_died(&mpi->base.peers[rank]);
	return any;
}

static bool
has_failed(struct batoni_mpi *mpi)
{
	return engine->status(mpi->owner) == BATON_ERR_MPI ||
	       atomic_load(&mpi->text_count) > 0;
}

/* Take over the descriptors of its peers' processes, if they are more than those that are
 * kept.  Without memory for them an end is not seen. */
static void
keep_pidfds_locked(struct batoni_mpi *mpi)
{
	int *pidfds;

	if (!mpi->base.peers || mpi->base.size <= departed.count)
		return;
	pidfds = batoni_alloc((size_t)mpi->base.size, sizeof(*pidfds));
	if (!pidfds)
		return;
	batoni_mem_keep(departed.pidfds ? 0 : 1);
	for (int i = 0; i < departed.count; i++)
		batoni_pidfd_close(departed.pidfds[i]);
	batoni_free(departed.pidfds);
	for (int rank = 0; rank < mpi->base.size; rank++) {
		pidfds[rank] = mpi->base.peers[rank].pidfd;
		mpi->base.peers[rank].pidfd = -1;
	}
	departed.pidfds = pidfds;
	departed.count = mpi->base.size;
}

static void
keep_departure_locked(const struct batoni_mpi *mpi)
{
	struct page *page;
	void *base;

	if (!mpi->segments.segment.base)
		return;
	page = batoni_alloc(1, sizeof(*page));
	if (!page)
		return;
	base = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
	            mpi->segments.segment.fd, 0);
	if (base == MAP_FAILED) {
		batoni_free(page);
		return;
	}
	batoni_mem_keep(1);
	page->departure = base;
	page->next = departed.pages;
	departed.pages = page;
}

/* A transport is closing; the driver. */
static void
forget(struct batoni_mpi *mpi, bool aborted)
{
	pthread_mutex_lock(&lock);
	batoni_list_remove(&mpi->live);
	if (aborted) {
		departed.any = true;
		departed.failed |= has_failed(mpi);
		departed.died |= any_died(mpi);
		keep_pidfds_locked(mpi);
		keep_departure_locked(mpi);
	}
	pthread_mutex_unlock(&lock);
}

void
batoni_mpi_finish_add(struct batoni_mpi *mpi)
{
	mpi->forget = forget;
	pthread_mutex_lock(&lock);
	batoni_list_append(&live, &mpi->live);
	pthread_mutex_unlock(&lock);
}

/* ---- MPI_Finalize ---- */

static struct batoni_mpi *
take_live(void)
{
	struct batoni_mpi *mpi = NULL;

	pthread_mutex_lock(&lock);
	if (!batoni_list_empty(&live)) {
		mpi = batoni_container_of(live.next, struct batoni_mpi, live);
		batoni_list_remove(&mpi->live);
	}
	pthread_mutex_unlock(&lock);
	return mpi;
}

static void
publish_departures(void)
{
	pthread_mutex_lock(&lock);
	for (struct page *page = departed.pages; page; page = page->next)
		atomic_store(&page->departure->away, BATONI_AWAY_FINALISED);
	pthread_mutex_unlock(&lock);
}

/* MPI_Finalize has begun.  (A communicator that is destroyed by another thread
 * meanwhile is an error of the program: destroying calls MPI.) */
static int
finalizing(MPI_Comm comm, int keyval, void *attribute, void *extra)
{
	bool exits = batoni_mpi_is_at_exit();
	struct batoni_mpi *mpi;

	(void)comm;
	(void)keyval;
	(void)attribute;
	(void)extra;
	while ((mpi = take_live())) {
		mpi->base.upcalls->lost(mpi->base.upcalls, exits,
		                        exits ? "the process exits"
		                              : "the program has called "
		                                "MPI_Finalize");
		batoni_mpi_abandon(mpi);
		mpi->lost = true;
	}
	publish_departures();
	return MPI_SUCCESS;
}

/* ---- at exit ---- */

/* Treat live communicators as those that were closed. */
static void
check_live_locked(void)
{
	for (struct batoni_list_node *node = live.next; node != &live;
	     node = node->next) {
		struct batoni_mpi *mpi = batoni_container_of(
			node, struct batoni_mpi, live);

		departed.any |= engine->status(mpi->owner) != BATON_OK;
		departed.failed |= has_failed(mpi);
		departed.died |= any_died(mpi);
	}
	for (int i = 0; i < departed.count; i++)
		departed.died |= departed.pidfds[i] >= 0 &&
		                 batoni_pidfd_gone(departed.pidfds[i]);
}

static bool
may_finalize(int exit_status)
{
	bool may;

	pthread_mutex_lock(&lock);
	check_live_locked();
	/* Launchers see its last eight bits. */
	may = !departed.failed && !departed.died &&
	      !(departed.any && (exit_status & 0xff) != 0);
	pthread_mutex_unlock(&lock);
	return may;
}

int
batoni_mpi_finish_watch(const struct batoni_engine_calls *calls)
{
	int code = MPI_SUCCESS;
	int keyval;

	pthread_mutex_lock(&lock);
	engine = calls;
	batoni_mpi_ask_at_exit(may_finalize);
	if (!watching) {
		code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalizing,
		                              &keyval, NULL);
		if (code == MPI_SUCCESS)
			code = MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
		watching = code == MPI_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return code;
}
