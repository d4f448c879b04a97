/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What hangs: one line for each pending operation of a communicator.
 *
 * Reading.  While the dump has the driver's lock, no operation changes its state.  But the
 * thread that has the lock may hang, inside MPI for example.  So the dump waits for
 * LOCK_WAIT_NS at most; after that it reads the pool beside the driver, and marks each line
 * as possibly out of date.  Either way an operation is read as from a sequence lock: its word,
 * its fields (each by one load), its word again.  If the generation has changed, the fields
 * belonged to different operations and are discarded.
 *
 * Lines are gathered in memory under the lock, BATCH of them at a time, and written after
 * the lock has been released: a slow reader of the descriptor delays the dump alone.
 *
 * On SIGUSR2.  If BATON_DUMP_ON asks for it, the first communicator starts a thread that
 * waits for a semaphore, and installs a handler that posts it and does nothing else.  The
 * thread dumps every communicator to standard error.  A destroy takes dump_lock, so it waits
 * until a dump of its communicator has ended.
 */
#include "dump.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "core.h"
#include "crowd.h"
#include "describe.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "trace.h"

#define LOCK_WAIT_NS UINT64_C(100000000)
#define LINE_BYTES 512u
#define BATCH 64u
#define BATCH_SLOTS 4096u

struct dump {
	struct baton_comm *comm;
	bool locked;    /* the driver's lock was available so far */
	bool crowded;   /* streams may hold each other up in hardware queues */
	uint32_t slot;  /* where the scan goes on */
	uint32_t lines; /* operations written so far */
	size_t used;
	char text[BATCH * LINE_BYTES];
};

/* ---- reading ---- */

/* Read the slot.  True: it has an operation that the engine has. */
static bool
view_operation(struct batoni_op *op, struct batoni_view *seen)
{
	for (unsigned tries = 0; tries < 3; tries++) {
		uint64_t after;

		batoni_op_view(op, seen);
		if (!(seen->word & BATONI_OP_ENGINE))
			return false;
		/* A read-modify-write, so that the loads before it stay before it. */
		after = atomic_fetch_or(&op->word, 0);
		if ((after ^ seen->word) >> 32 == 0)
			return after & BATONI_OP_ENGINE;
	}
	return false;
}

/* ---- a line ---- */

__attribute__((format(printf, 2, 3))) static void
dump_format(struct dump *dump, const char *format, ...)
{
	size_t room = sizeof(dump->text) - dump->used;
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(dump->text + dump->used, room, format, arguments);
	va_end(arguments);
	if (n > 0)
		dump->used += (size_t)n < room ? (size_t)n : room - 1;
}

static void
add_what(struct dump *dump, const struct batoni_view *seen, char *text,
         size_t size)
{
	struct batoni_onesided *layer = dump->comm->onesided;
	char details[128] = "";

	if (dump->locked && ((BATONI_ONESIDED | BATONI_COLLECTIVE) >> seen->kind & 1u) &&
	    seen->state != BATONI_NEW)
		layer->ops->describe(layer, &seen->op->transfer, details,
		                     sizeof(details));
	batoni_view_what(seen, *details ? details : NULL, text, size);
}

static const char *
behind(enum batoni_line line)
{
	switch (line) {
	case BATONI_LINE_TAG:
		return "an earlier receive of the same tag, from any peer";
	case BATONI_LINE_PEER:
		return "an earlier receive of any tag, from the same peer";
	case BATONI_LINE_ALL:
		return "an earlier receive of any tag, from any peer";
	case BATONI_NO_LINE:
		break;
	}
	return "an earlier operation of the same peer, tag and direction";
}

static const char *
expected(enum batoni_line line)
{
	if (line == BATONI_LINE_TAG)
		return "a message of that tag";
	return line == BATONI_LINE_PEER ? "a message of that peer" : "a message";
}

/* What a transfer waits for whose stream has reached it, and that is not issued.  The driver. */
static const char *
waits_for_turn(const struct dump *dump, const struct batoni_view *seen)
{
	const struct batoni_fifo *fifo;

	fifo = batoni_fifo_find(&dump->comm->fifos, batoni_fifo_key_of(seen->op));
	if (fifo && fifo->head && fifo->head != seen->op)
		return behind((enum batoni_line)fifo->line);
	if (fifo && fifo->expects)
		return expected((enum batoni_line)fifo->line);
	return dump->comm->driving.drivers == BATONI_DRIVERS_MAIN
	               ? "the thread that started MPI to call Baton"
	               : "a thread that drives";
}

/* What the operation waits for.  With the lock, more is known of some than the operation itself tells. */
static void
add_waits(const struct dump *dump, const struct batoni_view *seen, char *text,
          size_t size)
{
	batoni_view_waits(seen, dump->locked, text, size);
	if (!dump->locked || seen->word & BATONI_OP_LENT)
		return;
	if (seen->state == BATONI_ARMED && batoni_is_transfer(seen->op))
		snprintf(text, size, "%s", waits_for_turn(dump, seen));
	else if (seen->state == BATONI_QUEUED && seen->group_of &&
	         seen->group_of->state == BATONI_NEW)
		snprintf(text, size, "the end of its group (baton_group_end)");
}

/* Has its stream not reached it yet, or does a stream carry it out? */
static bool
stands_on_stream(const struct batoni_view *seen)
{
	return seen->state == BATONI_QUEUED ||
	       (seen->flags & BATONI_FLAG_STREAM_ISSUED &&
	        seen->state != BATONI_ENDED);
}

static void
add_line(struct dump *dump, const struct batoni_view *seen)
{
	const struct baton_comm *comm = dump->comm;
	char what[192], waits[128], line[LINE_BYTES];

	add_what(dump, seen, what, sizeof(what));
	add_waits(dump, seen, waits, sizeof(waits));
	batoni_view_line(seen, what, waits, line, sizeof(line));
	dump_format(dump, "baton dump: rank %d: slot %u: %s%s%s%s\n", comm->rank,
	            batoni_pool_slot(&comm->pool, seen->op), line,
	            dump->crowded && stands_on_stream(seen)
	                    ? " (it may stand behind another stream)"
	                    : "",
	            atomic_load(&comm->status) != BATON_OK ? " (the communicator is broken)"
	                                                   : "",
	            dump->locked ? "" : " [may be out of date]");
	dump->lines++;
}

/* ---- the dump ---- */

/* Gather the lines of the next operations, as many as there is room for.  False: these were the
 * last. */
static bool
gather(struct dump *dump)
{
	struct batoni_pool *pool = &dump->comm->pool;
	uint32_t end = dump->slot + BATCH_SLOTS;
	struct batoni_view seen;

	dump->locked = dump->locked && batoni_lock_within(LOCK_WAIT_NS);
	if (end > pool->size)
		end = pool->size;
	while (dump->slot < end &&
	       sizeof(dump->text) - dump->used >= LINE_BYTES) {
		if (view_operation(&pool->ops[dump->slot++], &seen))
			add_line(dump, &seen);
	}
	if (dump->locked)
		batoni_unlock();
	return dump->slot < pool->size;
}

static enum baton_status
write_out(struct dump *dump, int fd)
{
	const char *from = dump->text;

	while (dump->used > 0) {
		ssize_t n = write(fd, from, dump->used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return batoni_refuse(BATON_ERR_SYSTEM,
			                     "baton_comm_dump: write to "
			                     "descriptor %d: %s",
			                     fd, strerror(errno));
		from += n;
		dump->used -= (size_t)n;
	}
	return BATON_OK;
}

static void
add_head(struct dump *dump)
{
	const struct baton_comm *comm = dump->comm;
	char crowd[BATONI_CROWD_BYTES];

	dump_format(dump,
	            "baton dump: rank %d of %d, communicator %u, process %ld, baton %s, "
	            "%s (%s), device %s, %s\n",
	            comm->rank, comm->size, comm->index, (long)getpid(),
	            baton_version(), comm->transport_ops->name,
	            comm->transport->library, comm->device_ops->name,
	            baton_comm_status(comm) == BATON_OK ? "sound"
	                                                : baton_comm_error(comm));
	dump->crowded = batoni_crowd_describe(comm, crowd, sizeof(crowd));
	if (dump->crowded)
		dump_format(dump, "baton dump: rank %d: %s\n", comm->rank, crowd);
}

static void
add_end(struct dump *dump)
{
	dump_format(dump, "baton dump: rank %d: %u pending%s\n", dump->comm->rank,
	            dump->lines,
	            dump->locked ? ""
	                         : "; another thread keeps the engine (it may hang in a "
	                           "call of the transport's library)");
}

/* A dump does not show what other ranks do; their traces may. */
static void
add_trace(struct dump *dump)
{
	const char *path = batoni_trace_path(dump->comm);

	if (path && dump->lines > 0)
		dump_format(dump,
		            "baton dump: rank %d: the trace is %s; who waits for whom across "
		            "ranks: baton trace %s --hang\n",
		            dump->comm->rank, path, batoni_config()->trace);
}

static enum baton_status
dump_comm(struct baton_comm *comm, int fd)
{
	struct dump *dump = batoni_alloc(1, sizeof(*dump));
	enum baton_status status;
	bool more;

	if (!dump)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "baton_comm_dump: out of memory");
	dump->comm = comm;
	dump->locked = true;
	add_head(dump);
	do {
		more = gather(dump);
		status = write_out(dump, fd);
	} while (more && status == BATON_OK);
	if (status == BATON_OK) {
		add_trace(dump);
		add_end(dump);
		status = write_out(dump, fd);
	}
	batoni_free(dump);
	return status;
}

enum baton_status
baton_comm_dump(struct baton_comm *comm, int fd)
{
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_dump");
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_comm_dump", comm);
	if (fd < 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_dump: fd is %d; it takes an "
		                     "open descriptor",
		                     fd);
	return dump_comm(comm, fd);
}

/* ---- on a signal ---- */

static pthread_mutex_t dump_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t asked;

static void
on_signal(int number)
{
	int saved = errno;

	(void)number;
	sem_post(&asked);
	errno = saved;
}

static void *
dump_on_signal(void *unused)
{
	sigset_t own;

	(void)unused;
	prctl(PR_SET_NAME, "baton-dump", 0, 0, 0);
	/* If all threads of the program block the signal, this one receives it. */
	sigemptyset(&own);
	sigaddset(&own, SIGUSR2);
	pthread_sigmask(SIG_UNBLOCK, &own, NULL);
	for (;;) {
		while (sem_wait(&asked) < 0)
			;
		/* One dump answers all signals that have come by now. */
		while (sem_trywait(&asked) == 0)
			;
		pthread_mutex_lock(&dump_lock);
		for (uint32_t i = 1; i < BATONI_COMMS_MAX; i++) {
			struct baton_comm *comm = atomic_load(&batoni_comms[i]);

			if (comm)
				(void)dump_comm(comm, STDERR_FILENO);
		}
		pthread_mutex_unlock(&dump_lock);
	}
	return NULL;
}

/* A handler of the program's own stays in place. */
static void
listen_for_signal(void)
{
	struct sigaction action = {.sa_handler = on_signal,
	                           .sa_flags = SA_RESTART};
	struct sigaction before;
	pthread_t thread;
	int error;

	if (sigaction(SIGUSR2, NULL, &before) < 0 ||
	    before.sa_handler != SIG_DFL) {
		batoni_log(BATONI_LOG_WARN,
		           "BATON_DUMP_ON is SIGUSR2, but the program handles "
		           "that signal itself: let its handler wake a thread "
		           "that calls baton_comm_dump (a handler may not)");
		return;
	}
	sem_init(&asked, 0, 0);
	sigaction(SIGUSR2, &action, NULL);
	error = batoni_thread_start(&thread, dump_on_signal, NULL);
	if (error) {
		sigaction(SIGUSR2, &before, NULL);
		batoni_log(BATONI_LOG_WARN,
		           "BATON_DUMP_ON: its thread cannot be started: %s",
		           strerror(error));
		return;
	}
	pthread_detach(thread);
}

void
batoni_dump_start(void)
{
	if (batoni_config()->dump_on_signal)
		pthread_once(&once, listen_for_signal);
}

void
batoni_dump_await(void)
{
	if (!batoni_config()->dump_on_signal)
		return;
	pthread_mutex_lock(&dump_lock);
	pthread_mutex_unlock(&dump_lock);
}
