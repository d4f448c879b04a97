/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks of a creation compare: the values of their setups that have to be the same on all.
 */
#include "creation.h"

#include <assert.h>
#include <stdio.h>

#include "config.h"

#define VALUE_BYTES 24 /* a number of 64 bits */

enum compared {
	TRANSPORT,
	SIGNALS,
	CONTEXTS,
	CHECK,
	MESSAGE_PATH,
	/* The following ones are compared only where all options have to be the same. */
	STRICT,
	REQUESTS = STRICT,
	TIMEOUT,
	PROGRESS,
	TIMESTAMPS,
	LANES,
	CTAS,
	LISTS,
	COMPARED
};

static_assert(COMPARED == BATONI_COMPARED, "the proposal has a value for each");

static const char *const names[COMPARED] = {
	[TRANSPORT] = "options.transport",
	[SIGNALS] = "options.signals_max",
	[CONTEXTS] = "options.contexts_max",
	[CHECK] = "options.check (or BATON_CHECK)",
	[MESSAGE_PATH] = "BATON_MESSAGE_PATH",
	[REQUESTS] = "options.requests_max",
	[TIMEOUT] = "options.timeout_ns",
	[PROGRESS] = "options.progress",
	[TIMESTAMPS] = "options.timestamps",
	[LANES] = "options.nccl_lanes",
	[CTAS] = "options.nccl_ctas",
	[LISTS] = "options.nccl_lists",
};

void
batoni_setup_values(const struct batoni_comm_setup *setup,
                    int64_t values[BATONI_COMPARED])
{
	values[TRANSPORT] = setup->transport;
	values[SIGNALS] = setup->signals_max;
	values[CONTEXTS] = setup->contexts_max;
	/* The ranks of a native transport compare `check` by themselves, and name a rank that
	 * differs. */
	values[CHECK] = setup->check && !batoni_setup_is_native(setup);
	values[MESSAGE_PATH] = batoni_config()->message_path;
	values[REQUESTS] = setup->requests_max;
	values[TIMEOUT] = setup->timeout_ns;
	values[PROGRESS] = setup->progress;
	values[TIMESTAMPS] = setup->timestamps;
	values[LANES] = setup->nccl_lanes;
	values[CTAS] = setup->nccl_ctas;
	values[LISTS] = setup->nccl_lists;
}

const char *
batoni_setups_differ(const struct batoni_comm_setup *one,
                     const struct batoni_comm_setup *other)
{
	int64_t first[COMPARED], second[COMPARED];

	batoni_setup_values(one, first);
	batoni_setup_values(other, second);
	for (int i = 0; i < COMPARED; i++) {
		if (first[i] != second[i])
			return names[i];
	}
	return NULL;
}

/* ---- words for values ---- */

static const char *const transports[] = {
	[BATON_TRANSPORT_AUTO] = "BATON_TRANSPORT_AUTO",
	[BATON_TRANSPORT_LOCAL] = "BATON_TRANSPORT_LOCAL",
	[BATON_TRANSPORT_MPI] = "BATON_TRANSPORT_MPI",
	[BATON_TRANSPORT_NCCL] = "BATON_TRANSPORT_NCCL",
	[BATON_TRANSPORT_NEAR] = "BATON_TRANSPORT_NEAR",
};

static const char *const message_paths[] = {
	[BATONI_MESSAGE_PATH_AUTO] = "auto",
	[BATONI_MESSAGE_PATH_NEAR] = "near",
	[BATONI_MESSAGE_PATH_MPI] = "mpi",
};

static const char *const progresses[] = {
	[BATON_PROGRESS_AUTO] = "BATON_PROGRESS_AUTO",
	[BATON_PROGRESS_THREAD] = "BATON_PROGRESS_THREAD",
	[BATON_PROGRESS_CALLS] = "BATON_PROGRESS_CALLS",
};

#define WORDS(table) table, sizeof(table) / sizeof((table)[0])

static const struct {
	const char *const *words;
	size_t count;
} words_of[COMPARED] = {
	[TRANSPORT] = {WORDS(transports)},
	[MESSAGE_PATH] = {WORDS(message_paths)},
	[PROGRESS] = {WORDS(progresses)},
};

/* What the program or the environment calls the value, which may have come from another rank; a number, if
 * it has no other name. */
static const char *
tell_value(int i, int64_t value, char text[VALUE_BYTES])
{
	if (value >= 0 && (uint64_t)value < words_of[i].count)
		return words_of[i].words[value];
	snprintf(text, VALUE_BYTES, "%lld", (long long)value);
	return text;
}

/* ---- all ranks ---- */

/* OK; INVALID: a value is not the same on all ranks, and a sentence names those with the least and the
 * greatest. */
static enum baton_status
compare_value(int i, const struct batoni_proposal offers[], int size)
{
	char one[VALUE_BYTES], other[VALUE_BYTES];
	int least = 0, most = 0;

	for (int rank = 1; rank < size; rank++) {
		if (offers[rank].values[i] < offers[least].values[i])
			least = rank;
		if (offers[rank].values[i] > offers[most].values[i])
			most = rank;
	}
	if (least == most)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s is not the same on all ranks: %s on rank %d, %s "
	                     "on rank %d",
	                     names[i],
	                     tell_value(i, offers[least].values[i], one), least,
	                     tell_value(i, offers[most].values[i], other), most);
}

enum baton_status
batoni_proposals_compare(const struct batoni_proposal offers[], int size,
                         bool strict)
{
	const int compared = strict ? COMPARED : STRICT;
	enum baton_status status = BATON_OK;

	for (int i = 0; i < compared && status == BATON_OK; i++)
		status = compare_value(i, offers, size);
	return status;
}
