/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of a folder, as bytes.  They are read, not mapped: a process that shortens a file does no harm
 * then.  One that is written meanwhile is read twice, so that operations whose slot was given to another
 * one in between can be left out (baton_trace.h).
 */
#include "trace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <baton.h>

#include "tool.h"

#define BYTES_MAX (INT64_C(4) << 30)

void *
trace_alloc(size_t count, size_t size)
{
	void *memory = calloc(count > 0 ? count : 1, size);

	if (!memory) {
		fprintf(stderr, "baton trace: no memory for %zu times %zu bytes\n",
		        count, size);
		exit(TOOL_BROKEN);
	}
	return memory;
}

void
trace_check(struct trace *trace, const char *format, ...)
{
	char text[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	for (char *at = text; *at; at++) {
		if (*at < ' ' || *at > '~')
			*at = '?';
	}
	json_array_append_new(trace->checks, json_string(text));
}

void
trace_print_checks(const struct trace *trace)
{
	const json_t *check;
	size_t i;

	json_array_foreach(trace->checks, i, check)
		fprintf(stderr, "baton trace: %s\n", json_string_value(check));
}

/* ---- one file ---- */

/* NULL, or why not. */
static const char *
read_whole(int descriptor, unsigned char *bytes, size_t size)
{
	for (size_t have = 0; have < size;) {
		ssize_t n = pread(descriptor, bytes + have, size - have,
		                  (off_t)have);

		if (n < 0)
			return strerror(errno);
		if (n == 0)
			return "it became shorter while it was read";
		have += (size_t)n;
	}
	return NULL;
}

static void
drop_torn_of(unsigned char *bytes, const unsigned char *again, size_t size,
             const struct baton_trace_table *table)
{
	if (table->stride < 8 || table->offset > size ||
	    table->count > (size - table->offset) / table->stride)
		return;
	for (size_t i = 0; i < table->count; i++) {
		size_t at = table->offset + i * table->stride;

		if (memcmp(bytes + at, again + at, 8) != 0)
			memset(bytes + at, 0, 8);
	}
}

/* Operations whose slot got another serial while it was read are of no use: they become free slots. */
static void
drop_torn(unsigned char *bytes, const unsigned char *again, size_t size)
{
	struct baton_trace_header header;

	if (size < sizeof(header))
		return;
	memcpy(&header, bytes, sizeof(header));
	if (header.state == BATON_TRACE_CLOSED)
		return;
	drop_torn_of(bytes, again, size, &header.operations);
	drop_torn_of(bytes, again, size, &header.handed);
}

/* The bytes of the file; NULL, and why (a sentence's end). */
static unsigned char *
load(const char *path, size_t *size_p, const char **why_p)
{
	int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	unsigned char *bytes = NULL, *again = NULL;
	struct stat status;

	*why_p = NULL;
	if (descriptor < 0 || fstat(descriptor, &status) != 0) {
		*why_p = strerror(errno);
	} else if (!S_ISREG(status.st_mode)) {
		*why_p = "it is no file";
	} else if (status.st_size > BYTES_MAX) {
		*why_p = "it has more than 4 GiB";
	} else {
		*size_p = (size_t)status.st_size;
		bytes = trace_alloc(*size_p, 1);
		again = trace_alloc(*size_p, 1);
		*why_p = read_whole(descriptor, bytes, *size_p);
		if (!*why_p)
			*why_p = read_whole(descriptor, again, *size_p);
		if (!*why_p)
			drop_torn(bytes, again, *size_p);
	}
	if (descriptor >= 0)
		close(descriptor);
	free(again);
	if (*why_p) {
		free(bytes);
		bytes = NULL;
	}
	return bytes;
}

/* Written by a process of this node, since it was booted. */
static bool
is_of_here(const struct baton_trace_header *header)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
	char text[64] = "";

	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	text[strcspn(text, "\n")] = '\0';
	return header->boot_id[0] != '\0' && strcmp(text, header->boot_id) == 0;
}

/* A process of this node. */
static bool
is_running(const struct baton_trace_header *header)
{
	char path[64], text[1024] = "", *at;
	unsigned long long start = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", header->pid);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	/* Behind the name, in parentheses, come fields 3 to 22. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (at)
		start = strtoull(at, NULL, 10);
	return start == header->process_start;
}

static enum trace_life
find_life(const struct baton_trace_header *header)
{
	if (header->state != BATON_TRACE_OPEN)
		return TRACE_DESTROYED;
	if (!is_of_here(header))
		return TRACE_ELSEWHERE;
	return is_running(header) ? TRACE_RUNS : TRACE_GONE;
}

static void
read_file(struct trace *trace, const char *folder, const char *name)
{
	struct trace_rank *rank = &trace->ranks[trace->ranks_count];
	unsigned char *bytes;
	size_t size = 0, damaged = 0;
	char path[4096];
	const char *why;

	memset(rank, 0, sizeof(*rank));
	snprintf(rank->file, sizeof(rank->file), "%s", name);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	bytes = load(path, &size, &why);
	if (!bytes) {
		trace->incomplete = true;
		trace_check(trace, "%s is left out: %s", name, why);
		return;
	}
	why = trace_decode(rank, bytes, size, &damaged);
	free(bytes);
	if (why) {
		trace->incomplete = true;
		trace_check(trace, "%s is left out: it %s", name, why);
		trace_rank_fini(rank);
		return;
	}
	if (damaged > 0) {
		trace->incomplete = true;
		trace_check(trace,
		            "%s: %zu operations are damaged, and left out", name,
		            damaged);
	}
	rank->life = find_life(&rank->header);
	trace->ranks_count++;
}

static int
is_trace(const struct dirent *entry)
{
	const char *end = strrchr(entry->d_name, '.');

	return end && strcmp(end, ".trace") == 0;
}

static bool
read_folder(struct trace *trace, const char *folder)
{
	struct dirent **names;
	int count = scandir(folder, &names, is_trace, alphasort);

	if (count < 0) {
		fprintf(stderr, "baton trace: %s cannot be read: %s\n", folder,
		        strerror(errno));
		return false;
	}
	trace->ranks = trace_alloc((size_t)count, sizeof(trace->ranks[0]));
	for (int i = 0; i < count; i++) {
		read_file(trace, folder, names[i]->d_name);
		free(names[i]);
	}
	free(names);
	if (count == 0)
		fprintf(stderr,
		        "baton trace: %s has no file *.trace: a program leaves them "
		        "there that runs with BATON_TRACE=%s\n",
		        folder, folder);
	return count > 0;
}

bool
trace_read(struct trace *trace, const char *folder, uint64_t run)
{
	*trace = (struct trace){.checks = json_array()};
	return read_folder(trace, folder) && trace_choose_run(trace, folder, run);
}

void
trace_free(struct trace *trace)
{
	for (size_t i = 0; i < trace->ranks_count; i++)
		trace_rank_fini(&trace->ranks[i]);
	for (size_t i = 0; i < trace->comms_count; i++)
		free(trace->comms[i].members);
	free(trace->ranks);
	free(trace->comms);
	free(trace->rows);
	json_decref(trace->checks);
}
