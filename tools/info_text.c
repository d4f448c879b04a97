/* SPDX-License-Identifier: BSD-3-Clause */
/* The report of `baton info` for people. */
#include "info.h"

#include <stdio.h>
#include <string.h>

#include "tool.h"

/* Up to so many ranks are shown as a matrix with a column for each rank; of more ranks each has a
 * line, in which equal neighbours are one entry. */
#define COLUMNS_MAX 12
#define CELL_BYTES 64
#define CELL_WIDTH 14

static void
print_libraries(const json_t *libraries)
{
	const json_t *library;
	size_t i;

	json_array_foreach(libraries, i, library)
	{
		const char *why_not = tool_text(library, "why_not");
		const char *path = tool_text(library, "path");

		printf("%-12s", tool_text(library, "name"));
		if (*why_not)
			printf("not usable: %s\n", why_not);
		else
			printf("%s (built: %s)%s%s\n",
			       tool_text(library, "version"),
			       tool_text(library, "built"), *path ? " " : "",
			       path);
	}
}

static void
print_devices(const json_t *devices)
{
	const json_t *device, *other;
	size_t i, k;

	printf("\nGPUs\n");
	if (json_array_size(devices) == 0)
		printf("  none\n");
	json_array_foreach(devices, i, device)
	{
		const json_t *reaches = json_object_get(device, "reaches");
		long long bytes = tool_number(device, "bytes");
		long long generation = tool_number(device, "compute_capability");

		printf("  %lld: %s", tool_number(device, "number"),
		       tool_text(device, "name"));
		if (generation > 0)
			printf(", compute capability %lld.%lld", generation / 10,
			       generation % 10);
		if (bytes > 0)
			printf(", %lld MiB", bytes >> 20);
		printf("; reaches%s", json_array_size(reaches) > 0 ? "" : " no other");
		json_array_foreach(reaches, k, other)
			printf(" %lld", json_integer_value(other));
		printf("\n");
	}
}

/* ---- the ranks ---- */

/* "near/direct": messages and puts of that rank to the peer. */
static void
write_cell(char cell[CELL_BYTES], const json_t *rank, size_t peer)
{
	const char *message = json_string_value(
		json_array_get(json_object_get(rank, "messages"), peer));
	const char *put = json_string_value(
		json_array_get(json_object_get(rank, "puts"), peer));

	snprintf(cell, CELL_BYTES, "%s/%s", message ? message : "?",
	         put ? put : "?");
}

static void
print_matrix(const json_t *ranks, size_t size)
{
	char cell[CELL_BYTES];
	const json_t *rank;
	size_t i;

	printf("      to");
	for (size_t peer = 0; peer < size; peer++)
		printf(" %*zu", CELL_WIDTH, peer);
	printf("\n");
	json_array_foreach(ranks, i, rank)
	{
		printf("  %6lld", tool_number(rank, "rank"));
		for (size_t peer = 0; peer < size; peer++) {
			write_cell(cell, rank, peer);
			printf(" %*s", CELL_WIDTH, cell);
		}
		printf("\n");
	}
}

static void
print_row(const json_t *rank, size_t size)
{
	char cell[CELL_BYTES], next[CELL_BYTES];

	printf("  %6lld:", tool_number(rank, "rank"));
	for (size_t first = 0, peer = 1; first < size; first = peer++) {
		write_cell(cell, rank, first);
		for (; peer < size; peer++) {
			write_cell(next, rank, peer);
			if (strcmp(cell, next) != 0)
				break;
		}
		printf(" to %zu", first);
		if (peer - first > 1)
			printf("-%zu", peer - 1);
		printf(" %s", cell);
	}
	printf("\n");
}

/* What a rank says of `key`, once for all neighbours that say the same. */
static void
print_sentence(const json_t *ranks, const char *label, const char *key)
{
	size_t n = json_array_size(ranks);

	for (size_t first = 0, i = 1; first < n; first = i++) {
		const char *text = tool_text(json_array_get(ranks, first), key);

		while (i < n && strcmp(text, tool_text(json_array_get(ranks, i),
		                                       key)) == 0)
			i++;
		if (!*text)
			continue;
		printf("  %s: %s", label, text);
		if (i - first < n)
			printf(" (ranks %zu to %zu)", first, i - 1);
		printf("\n");
	}
}

static void
print_places(const json_t *ranks)
{
	const json_t *rank;
	size_t i;

	json_array_foreach(ranks, i, rank)
	{
		printf("  %6lld: process %lld of %s", tool_number(rank, "rank"),
		       tool_number(rank, "process"), tool_text(rank, "host"));
		if (tool_number(rank, "cuda_device") >= 0 &&
		    strcmp(tool_text(rank, "device"), "cuda") == 0)
			printf(", GPU %lld", tool_number(rank, "cuda_device"));
		printf("%s\n", *tool_text(rank, "refused") ? ", refused" : "");
	}
}

static void
print_ranks(const json_t *ranks)
{
	const json_t *first = json_array_get(ranks, 0), *rank;
	size_t size = (size_t)tool_number(first, "ranks"), i;

	printf("\nCommunicator of all ranks of the job\n");
	if (*tool_text(first, "refused")) {
		print_sentence(ranks, "refused", "refused");
		return;
	}
	printf("  %zu rank%s on %s over %s: %s; the engine's thread %s\n", size,
	       size == 1 ? "" : "s", tool_text(first, "device"),
	       tool_text(first, "transport"), tool_text(first, "library"),
	       json_is_true(json_object_get(first, "engine_thread"))
	               ? "makes progress"
	               : "makes no progress, calls do");
	print_sentence(ranks, "messages not by shared memory", "why_not_near");
	print_sentence(ranks, "messages not by NCCL", "why_not_nccl");
	print_sentence(ranks, "puts not by streams themselves", "why_engine_puts");
	if (size < 2)
		return;
	print_places(ranks);
	printf("  Paths from each rank (line) to each rank, messages/puts:\n");
	if (size <= COLUMNS_MAX) {
		print_matrix(ranks, size);
		return;
	}
	json_array_foreach(ranks, i, rank)
		print_row(rank, size);
}

static void
print_variables(const json_t *variables)
{
	const json_t *variable;
	size_t i;

	printf("\nEnvironment variables\n");
	json_array_foreach(variables, i, variable)
	{
		const char *source = tool_text(variable, "source");

		printf("  %-21s %s", tool_text(variable, "name"),
		       tool_text(variable, "value"));
		if (strcmp(source, "environment") == 0)
			printf("  [from the environment; not set: %s]",
			       tool_text(variable, "default"));
		else if (strcmp(source, "refused") == 0)
			printf("  [the environment's value is refused: it takes %s]",
			       tool_text(variable, "values"));
		else
			printf("  [not set; takes %s]",
			       tool_text(variable, "values"));
		printf("\n");
	}
}

void
info_print(const json_t *tree)
{
	print_libraries(json_object_get(tree, "libraries"));
	print_devices(json_object_get(tree, "devices"));
	print_ranks(json_object_get(tree, "ranks"));
	if (*tool_text(tree, "ranks_missing"))
		printf("  some ranks are missing here: %s\n",
		       tool_text(tree, "ranks_missing"));
	print_variables(json_object_get(tree, "variables"));
}
