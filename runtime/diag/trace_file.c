/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of a trace: made, mapped, and closed (the format is baton_trace.h).
 *
 * Making the file allocates all of its blocks, and maps its pages: so a full file system refuses the trace
 * then, and does not kill the program later (SIGBUS; a process that shortens the file still does: the kernel seals
 * memfds alone, which have no name in a folder), and no operation pays for a page fault.  That takes
 * milliseconds, or more on a busy node.  So the file is made before the ranks' last exchange within the creation
 * (creation.c): after that, peers may be in their operations, whose deadlines run.
 *
 * The kernel has what was written to the mapping, so it stays however the process ends: no signal has to be caught,
 * and nothing written then.  A child of fork() does not have the mapping.
 *
 * Threads: the one that creates the communicator, and the one that destroys it.
 */
#include "trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "ticks.h"

#define OPERATIONS_DEFAULT 16384u

static_assert(sizeof(struct baton_trace_header) % 64 == 0 &&
                      sizeof(struct baton_trace_operation) == 128 &&
                      sizeof(struct baton_trace_counter) == 64 &&
                      offsetof(struct baton_trace_header, serials) % 64 == 0 &&
                      offsetof(struct baton_trace_operation, bytes) == 56,
              "slots and counters are whole cache lines");

/* ---- where things are ---- */

static void
lay_table(struct baton_trace_table *table, uint64_t *end, size_t stride,
          uint32_t count)
{
	table->offset = *end;
	table->stride = (uint32_t)stride;
	table->count = count;
	*end = (*end + stride * count + 63) & ~UINT64_C(63);
}

static uint32_t
count_operations(void)
{
	uint32_t asked = batoni_config()->trace_operations, count = 256;

	while (count < (asked ? asked : OPERATIONS_DEFAULT))
		count *= 2;
	return count;
}

/* The ring begins on a page. */
static void
lay_out(struct baton_trace_header *header, uint32_t entries)
{
	uint64_t end = sizeof(*header);

	lay_table(&header->kinds, &end, sizeof(struct baton_trace_kind),
	          BATONI_KINDS_MAX);
	lay_table(&header->paths, &end, sizeof(struct baton_trace_path),
	          BATONI_PATHS_MAX);
	lay_table(&header->modules, &end, sizeof(struct baton_trace_module),
	          BATONI_TRACE_MODULES);
	lay_table(&header->rounds, &end, sizeof(struct baton_trace_round),
	          BATONI_TRACE_ROUNDS);
	lay_table(&header->counters, &end, sizeof(struct baton_trace_counter),
	          BATONI_TRACE_COUNTERS);
	end = (end + 4095) & ~UINT64_C(4095);
	lay_table(&header->operations, &end,
	          sizeof(struct baton_trace_operation), count_operations());
	lay_table(&header->handed, &end, sizeof(struct baton_trace_operation),
	          entries);
	header->file_bytes = end;
}

/* ---- who ---- */

static void
copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* The first line of a file, without its end; "": there is none. */
static void
read_line(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");

	text[0] = '\0';
	if (!file)
		return;
	if (fgets(text, (int)size, file))
		text[strcspn(text, "\n")] = '\0';
	else
		text[0] = '\0';
	fclose(file);
}

/* Field 22 of /proc/self/stat.  The second field, a name in parentheses, may have blanks. */
static uint64_t
find_process_start(void)
{
	unsigned long long start = 0;
	char line[1024];
	char *at;

	read_line("/proc/self/stat", line, sizeof(line));
	at = strrchr(line, ')');
	for (unsigned field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (at)
		sscanf(at, "%llu", &start);
	return start;
}

static void
say_who(struct baton_trace_header *header, const struct baton_comm *comm)
{
	ssize_t n;

	header->communicator = comm->setup.trace_id;
	header->parent = comm->setup.trace_parent;
	header->index = comm->index;
	header->rank = comm->rank;
	header->size = comm->size;
	header->pid = (int32_t)getpid();
	header->process_start = find_process_start();
	read_line("/proc/sys/kernel/random/boot_id", header->boot_id,
	          sizeof(header->boot_id));
	gethostname(header->host, sizeof(header->host) - 1);
	n = readlink("/proc/self/exe", header->program,
	             sizeof(header->program) - 1);
	header->program[n > 0 ? n : 0] = '\0';
	copy_text(header->library, sizeof(header->library), baton_version());
	copy_text(header->device, sizeof(header->device), comm->device_ops->name);
}

/* ---- what there is ---- */

static enum baton_trace_role
role_of(const struct batoni_kind *kind, uint32_t number)
{
	if (BATONI_TRANSFERS >> number & 1u)
		return BATON_TRACE_TRANSFER;
	if (kind->off_stream)
		return kind->place ? BATON_TRACE_PARENT : BATON_TRACE_CLAIM;
	if (kind->joins)
		return BATON_TRACE_JOIN;
	return kind->runs ? BATON_TRACE_FUNCTION : BATON_TRACE_POINT;
}

static enum baton_trace_direction
direction_of(const struct batoni_kind *kind, uint32_t number)
{
	if (!(BATONI_TRANSFERS >> number & 1u) ||
	    number == BATON_OPERATION_BARRIER || number == BATON_OPERATION_FLUSH)
		return BATON_TRACE_NONE;
	return kind->direction == BATONI_SEND || kind->direction == BATONI_PUT
	               ? BATON_TRACE_OUT
	               : BATON_TRACE_IN;
}

static void
name_kinds(struct baton_trace_header *header)
{
	struct baton_trace_kind *kinds =
		(void *)((char *)header + header->kinds.offset);

	for (uint32_t i = 0; i < BATONI_KINDS_MAX; i++) {
		const struct batoni_kind *kind = batoni_kinds[i];

		if (!kind)
			continue;
		copy_text(kinds[i].name, sizeof(kinds[i].name), kind->name);
		kinds[i].direction = direction_of(kind, i);
		kinds[i].role = role_of(kind, i);
	}
}

/* ---- clocks ---- */

static struct baton_trace_reading
read_clocks(void)
{
	struct batoni_reading now;

	batoni_ticks_read(&now);
	return (struct baton_trace_reading){now.ticks, now.monotonic_ns,
	                                    now.real_ns, now.width};
}

void
batoni_trace_file_read_clocks(struct batoni_trace *trace)
{
	struct baton_trace_header *header = trace->header;
	struct baton_trace_reading now = read_clocks();

	/* A sequence lock.  If this process ends within it, readers find the number odd for good. */
	__atomic_store_n(&header->latest_number, header->latest_number | 1,
	                 __ATOMIC_RELAXED);
	batoni_fence(memory_order_release);
	header->latest = now;
	__atomic_store_n(&header->latest_number,
	                 (header->latest_number | 1) + 1, __ATOMIC_RELEASE);
	trace->read = now.ticks;
}

/* ---- made ---- */

static void
fill_header(struct batoni_trace *trace, const struct baton_comm *comm,
            const struct baton_trace_header *laid)
{
	struct baton_trace_header *header = trace->header;
	const bool counter = atomic_load(&batoni_ticks_source.counter);

	*header = *laid;
	header->version = BATON_TRACE_VERSION;
	header->header_bytes = sizeof(*header);
	header->clock = counter ? BATON_TRACE_TSC : BATON_TRACE_PASSES;
	header->ticks_per_second = counter ? batoni_ticks_source.per_second
	                                   : UINT64_C(1000000000);
	say_who(header, comm);
	name_kinds(header);
	header->first = header->latest = read_clocks();
	trace->read = header->first.ticks;
	trace->every = header->ticks_per_second / 10;
}

static void
find_tables(struct batoni_trace *trace)
{
	const struct baton_trace_header *header = trace->header;
	char *base = (char *)trace->header;

	trace->ring = (void *)(base + header->operations.offset);
	trace->mask = header->operations.count - 1;
	trace->handed = (void *)(base + header->handed.offset);
	trace->counters = (void *)(base + header->counters.offset);
	trace->modules = (void *)(base + header->modules.offset);
	trace->rounds = (void *)(base + header->rounds.offset);
	/* This counter has no kind yet, so no operation is taken for one of it. */
	for (unsigned i = 0; i < BATONI_TRACE_RECENT; i++)
		trace->recent[i] = trace->counters;
}

static void
complain_of_file(const struct baton_comm *comm, const char *path,
                 const char *what, int error)
{
	batoni_log(BATONI_LOG_WARN,
	           "rank %d: BATON_TRACE: %s of %s: %s%s; this communicator is not "
	           "traced (it takes a directory that is there and writable, "
	           "best in /dev/shm)",
	           comm->rank, what, path, strerror(error),
	           error == ENOSPC ? ", or BATON_TRACE_OPERATIONS asks for more "
				     "than there is room for"
				   : "");
}

/* Allocate the blocks; 0, or an error.  A file longer than this process may make would kill it (SIGXFSZ); a timer
 * of the program may interrupt the call. */
static int
take_blocks(int fd, uint64_t bytes)
{
	struct rlimit limit;
	int error;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
	    limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
		return EFBIG;
	do
		error = posix_fallocate(fd, 0, (off_t)bytes);
	while (error == EINTR);
	return error;
}

/* Make the file, with all of its bytes allocated; -1: the log says why not. */
static int
make_file(const struct baton_comm *comm, const char *path, uint64_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int error;

	if (fd < 0) {
		complain_of_file(comm, path, "open", errno);
		return -1;
	}
	error = take_blocks(fd, bytes);
	if (!error)
		return fd;
	complain_of_file(comm, path, "posix_fallocate", error);
	unlink(path);
	close(fd);
	return -1;
}

static bool
map_file(struct batoni_trace *trace, const struct baton_comm *comm,
         uint64_t bytes)
{
	int fd = make_file(comm, trace->path, bytes);
	void *base;

	if (fd < 0)
		return false;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
	            fd, 0);
	if (base == MAP_FAILED) {
		complain_of_file(comm, trace->path, "mmap", errno);
		unlink(trace->path);
		close(fd);
		return false;
	}
	close(fd);
	(void)madvise(base, bytes, MADV_DONTFORK);
	trace->header = base;
	trace->bytes = bytes;
	return true;
}

struct batoni_trace *
batoni_trace_file_make(const struct baton_comm *comm)
{
	struct baton_trace_header laid = {.magic = "BATONTR"};
	struct batoni_trace *trace = batoni_alloc(
		1, sizeof(*trace) + comm->pool.size * sizeof(trace->traced[0]));

	if (!trace) {
		batoni_log(BATONI_LOG_WARN,
		           "rank %d: BATON_TRACE: out of memory; this communicator "
		           "is not traced",
		           comm->rank);
		return NULL;
	}
	memcpy(laid.magic, BATON_TRACE_MAGIC, sizeof(laid.magic));
	lay_out(&laid, comm->pool.size);
	batoni_ticks_open();
	snprintf(trace->path, sizeof(trace->path),
	         "%s/baton-%016llx-c%u-r%d.trace", batoni_config()->trace,
	         (unsigned long long)comm->setup.trace_id, comm->index, comm->rank);
	if (!map_file(trace, comm, laid.file_bytes)) {
		batoni_free(trace);
		return NULL;
	}
	fill_header(trace, comm, &laid);
	find_tables(trace);
	pthread_mutex_init(&trace->modules_lock, NULL);
	return trace;
}

void
batoni_trace_file_open(struct batoni_trace *trace, const struct baton_comm *comm)
{
	copy_text(trace->header->transport, sizeof(trace->header->transport),
	          comm->transport_ops->name);
	__atomic_store_n(&trace->header->state, BATON_TRACE_OPEN,
	                 __ATOMIC_RELEASE);
	batoni_log(BATONI_LOG_INFO, "rank %d: trace: %s", comm->rank, trace->path);
}

/* ---- closed ---- */

void
batoni_trace_file_note_fault(struct batoni_trace *trace,
                             const struct baton_comm *comm)
{
	struct baton_trace_header *header = trace->header;
	int status = atomic_load(&comm->status);

	if (likely(status == BATON_OK) || header->status != BATON_OK)
		return;
	copy_text(header->why, sizeof(header->why), comm->fault.text);
	header->broken = batoni_ticks();
	__atomic_store_n(&header->status, status, __ATOMIC_RELEASE);
}

static void
forget(struct batoni_trace *trace)
{
	munmap(trace->header, trace->bytes);
	pthread_mutex_destroy(&trace->modules_lock);
	batoni_free(trace);
}

void
batoni_trace_file_discard(struct batoni_trace *trace)
{
	unlink(trace->path);
	forget(trace);
}

void
batoni_trace_file_close(struct batoni_trace *trace)
{
	struct baton_trace_header *header = trace->header;

	batoni_trace_file_read_clocks(trace);
	header->ended = batoni_ticks();
	__atomic_store_n(&header->state, BATON_TRACE_CLOSED, __ATOMIC_RELEASE);
	forget(trace);
}
