/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI transport: memory, opening, exchanging, leaving, closing.
 *
 * An exchange consists of two collective operations of MPI.  The first is a reduction of
 * the ranks' terms, which have a fixed length: whether the rank has memory, what the
 * exchange is for, and how long a part is.  All ranks get the same result.  The second
 * gathers the parts; all ranks enter it or none, because MPI has undefined behaviour when
 * ranks differ in it.  Leaving is a reduction of terms alone.
 *
 * After an abort, MPI may still write to the buffers of matched receives and read those
 * of sends.  Memory that MPI can reach is therefore leaked on purpose: the bounce buffers
 * stay mapped, the buffer of an exchange that not all ranks have joined stays allocated
 * (in a list, so that leak checkers find it), and the communicator is not freed.
 */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "mem.h"
#include "log.h"
#include "mpi_transport.h"

/* tag_max is promised to be at least this. */
#define TAG_MAX_LEAST ((1 << 20) - 1)
/* With fewer body tags than this, most bodies would wait for a grant. */
#define BODY_TAGS_LEAST (1u << 16)
/* So many of the body tags, at the end, are for releases of segments, grants, leave
 * messages, and MPI_Comm_create_group. */
#define CONTROL_TAGS (BATONI_MPI_SEGMENTS + 3)

/* Buffers left to MPI for ever, linked by their first bytes.  Used by the driver or by the
 * thread that finalises MPI. */
static void *leaked;

/* A cache line for the link comes first. */
#define LINK_BYTES 64u

/* As `what`: no exchange has this value. */
#define LEAVING INT64_C(-1)

/* What the ranks reduce by MPI_MIN.  The minimum of a value and that of its complement show whether
 * all ranks have the same value. */
struct terms {
	int64_t status;
	int64_t what, bytes;
	int64_t not_what, not_bytes;
};

/* Zeroed memory.  Its pages take memory when they are first touched. */
static void *
map(size_t count, size_t size)
{
	void *memory;

	memory = mmap(NULL, count * size, PROT_READ | PROT_WRITE,
	              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

enum baton_status
batoni_mpi_alloc(const struct batoni_transport_config *config, int size,
                 struct batoni_mpi **mpi_p)
{
	size_t slots = config->slots;
	size_t active = slots * BATONI_MPI_ACTIVE_MAX;
	unsigned bits = 1;
	struct batoni_mpi *mpi = batoni_alloc(1, sizeof(*mpi));

	enum baton_status status = BATON_OK;

	if (!mpi)
		return BATON_ERR_NOMEM;
	mpi->device = config->device;
	mpi->apart = config->apart;
	mpi->check = config->check;
	mpi->examines = config->check || config->device;
	batoni_list_init(&mpi->copying);
	batoni_mpi_kept_init(mpi);
	while (slots >> bits)
		bits++;
	batoni_list_init(&mpi->live);
	mpi->comm = MPI_COMM_NULL;
	mpi->exchange = MPI_REQUEST_NULL;
	mpi->discarded = MPI_REQUEST_NULL;
	mpi->base.slots = config->slots;
	mpi->base.hidden_tags = config->hidden_tags;
	mpi->requests = batoni_alloc(active, sizeof(*mpi->requests));
	mpi->entries = batoni_alloc(active, sizeof(*mpi->entries));
	mpi->positions = batoni_alloc(slots, sizeof(*mpi->positions));
	mpi->bodies = batoni_alloc(slots, sizeof(*mpi->bodies));
	mpi->followers = batoni_alloc(slots, sizeof(*mpi->followers));
	mpi->lasts = batoni_alloc((size_t)1 << bits, sizeof(*mpi->lasts));
	mpi->lasts_shift = 64 - bits;
	mpi->tags = batoni_alloc((size_t)size, sizeof(*mpi->tags));
	mpi->sent_to = batoni_alloc((size_t)size, sizeof(*mpi->sent_to));
	mpi->terms_buffer = batoni_alloc(LINK_BYTES + 2 * sizeof(struct terms),
	                                 1);
	if (mpi->device)
		status = batoni_mpi_reach_alloc(mpi, config->until_ns);
	else
		mpi->bounces = map(slots + 1, BATONI_MPI_RAW_MAX);
	if (status == BATON_OK && !mpi->apart)
		status = batoni_mpi_list_alloc(mpi);
	mpi->bounce_stack = batoni_alloc(slots + 1, sizeof(*mpi->bounce_stack));
	if (!mpi->requests || !mpi->entries || !mpi->positions ||
	    !mpi->bodies || !mpi->followers || !mpi->lasts || !mpi->tags ||
	    !mpi->sent_to || !mpi->terms_buffer || !mpi->bounces || !mpi->bounce_stack ||
	    status != BATON_OK || batoni_mpi_drain_reserve() != BATON_OK) {
		batoni_mpi_free(mpi);
		return status == BATON_OK ? BATON_ERR_NOMEM : status;
	}
	*mpi_p = mpi;
	return BATON_OK;
}

/* Free all memory but the bounce buffers and those of lists, which MPI may still reach. */
static void
free_tables(struct batoni_mpi *mpi)
{
	batoni_segments_free(&mpi->segments, &mpi->base);
	batoni_free(mpi->requests);
	batoni_free(mpi->entries);
	batoni_free(mpi->positions);
	batoni_free(mpi->bounce_stack);
	batoni_free(mpi->bodies);
	batoni_free(mpi->followers);
	batoni_free(mpi->held);
	batoni_match_fini(&mpi->kept_match);
	batoni_free(mpi->lasts);
	batoni_free(mpi->tags);
	batoni_free(mpi->sent_to);
	batoni_free(mpi->terms_buffer);
	batoni_free(mpi->parts_buffer);
	batoni_free(mpi->copies);
	batoni_free(mpi);
}

void
batoni_mpi_free(struct batoni_mpi *mpi)
{
	if (mpi->device)
		batoni_mpi_reach_free(mpi);
	else if (mpi->bounces)
		munmap(mpi->bounces,
		       ((size_t)mpi->base.slots + 1) * BATONI_MPI_RAW_MAX);
	batoni_mpi_list_free(mpi);
	free_tables(mpi);
}

/* The body tags: half of them are the segments'; of the others, each slot has one for a
 * body that was granted to it, and the last are for control. */
static enum baton_status
share_body_tags(struct batoni_mpi *mpi, uint32_t bodies)
{
	uint32_t granted = bodies / 2 - CONTROL_TAGS;

	if (mpi->base.slots > granted)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "this MPI has few tags: requests_max may "
		                     "be %u less than it is",
		                     mpi->base.slots - granted);
	mpi->segment_tags = bodies / 2 / BATONI_MPI_SEGMENTS;
	mpi->granted_tag = mpi->body_tag_base + (int)(bodies / 2);
	mpi->release_tag = mpi->granted_tag + (int)granted;
	mpi->grant_tag = mpi->release_tag + (int)BATONI_MPI_SEGMENTS;
	mpi->leave_tag = mpi->grant_tag + 1;
	mpi->group_tag = mpi->leave_tag + 1;
	return BATON_OK;
}

/* The user has the lower tags.  The upper ones, a power of two and at most half of all,
 * are the bodies'.  The hidden tags are between them. */
static enum baton_status
share_tags(struct batoni_mpi *mpi)
{
	uint32_t hidden = (uint32_t)mpi->base.hidden_tags;
	uint32_t lower_least = TAG_MAX_LEAST + 1 + hidden;
	uint32_t bodies = 1u << 30;
	uint32_t tags = 0;
	int *tag_ub;
	int found = 0;

	/* Of the world: Open MPI's other communicators need not have it. */
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&tag_ub, &found);
	if (found)
		tags = (uint32_t)*tag_ub + 1;
	while (bodies > tags / 2)
		bodies /= 2;
	while (bodies > BODY_TAGS_LEAST && tags - bodies < lower_least)
		bodies /= 2;
	if (bodies < BODY_TAGS_LEAST || tags - bodies < lower_least)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "this MPI has %u tags; Baton needs %u",
		                     tags, lower_least + BODY_TAGS_LEAST);
	mpi->body_tag_base = (int)(tags - bodies);
	mpi->base.hidden_tag = mpi->body_tag_base - mpi->base.hidden_tags;
	mpi->base.tag_max = mpi->base.hidden_tag - 1;
	return share_body_tags(mpi, bodies);
}

enum batoni_drivers
batoni_mpi_drivers(int thread_level, enum baton_progress progress)
{
	if (thread_level == MPI_THREAD_MULTIPLE)
		return BATONI_DRIVERS_ANY;
	if (thread_level == MPI_THREAD_SERIALIZED)
		return progress == BATON_PROGRESS_THREAD
		               ? BATONI_DRIVERS_ANY
		               : BATONI_DRIVERS_CALLERS;
	return BATONI_DRIVERS_MAIN;
}

/* "Open MPI v4.1.4, MPI_THREAD_MULTIPLE"; behind it ", CUDA-aware" if that is used. */
static void
describe(char *text, size_t size, int thread_level, bool direct)
{
	char version[BATONI_MPI_VERSION_BYTES];

	batoni_mpi_library_version(version);
	snprintf(text, size, "%s, %s%s", version,
	         batoni_mpi_level_name(thread_level),
	         direct ? ", CUDA-aware" : "");
}

/* The handle that the library returns for all sends that are complete on return, or
 * MPI_REQUEST_NULL if it has none.  Only such sends can have equal handles while both are
 * active.  MPICH has one too, but counts its references, so that it must be freed. */
static MPI_Request
complete_handle(MPI_Comm comm)
{
	MPI_Request handle = MPI_REQUEST_NULL;
#ifdef OPEN_MPI
	MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};

	for (int i = 0; i < 2; i++)
		MPI_Isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, comm,
		          &requests[i]);
	if (requests[0] == requests[1])
		handle = requests[0];
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
#else
	(void)comm;
#endif
	return handle;
}

enum baton_status
batoni_mpi_attach(struct batoni_mpi *mpi, MPI_Comm comm, int thread_level,
                  enum baton_progress progress)
{
	struct batoni_transport *base = &mpi->base;
	enum baton_status status;

	mpi->comm = comm;
	status = share_tags(mpi);
	if (status != BATON_OK)
		return status;
	mpi->complete = complete_handle(comm);
	MPI_Comm_rank(comm, &base->rank);
	MPI_Comm_size(comm, &base->size);
	base->ops = mpi->device ? &batoni_mpi_reaching_transport_ops
	                        : &batoni_mpi_ops;
	base->messages.ops = mpi->device  ? &batoni_mpi_reaching_ops
	                     : mpi->check ? &batoni_mpi_checked_ops
	                                  : &batoni_mpi_messages_ops;
	base->any_peer = MPI_ANY_SOURCE;
	base->capabilities = BATON_CAP_TAGS | BATON_CAP_DIRECTIONS |
	                     BATON_CAP_SHORT | BATON_CAP_TRUNCATION |
	                     BATON_CAP_CANCEL | BATON_CAP_SELF;
	if (mpi->segments.onesided)
		base->capabilities |= BATON_CAP_SIGNALS | BATON_CAP_WINDOWS;
	base->drivers = batoni_mpi_drivers(thread_level, progress);
	base->main_thread = pthread_self();
	describe(base->library, sizeof(base->library), thread_level,
	         mpi->device != NULL);
	return BATON_OK;
}

static bool
running(void)
{
	int initialized = 0;
	int finalized = 1;

	MPI_Initialized(&initialized);
	MPI_Finalized(&finalized);
	return initialized && !finalized;
}

/* May this thread call MPI, at this thread level? */
static bool
callable(const struct batoni_mpi *mpi)
{
	return !mpi->lost && running() &&
	       (mpi->base.drivers != BATONI_DRIVERS_MAIN ||
	        pthread_equal(pthread_self(), mpi->base.main_thread));
}

static struct terms *
terms_of(const struct batoni_mpi *mpi)
{
	return (void *)(mpi->terms_buffer + LINK_BYTES);
}

/* This call has started a collective operation, and has returned this code. */
static enum baton_status
enter_exchange(struct batoni_mpi *mpi, enum batoni_mpi_exchange exchanging,
               const char *call, int code)
{
	if (code != MPI_SUCCESS) {
		mpi->exchange = MPI_REQUEST_NULL;
		return batoni_mpi_break(mpi, call, code);
	}
	mpi->exchanging = exchanging;
	return BATON_PENDING;
}

static enum baton_status
bring_terms(struct batoni_mpi *mpi, enum batoni_mpi_exchange exchanging,
            int64_t what, size_t bytes)
{
	bool able = exchanging == BATONI_MPI_LEAVING || mpi->parts_buffer;
	struct terms *terms = terms_of(mpi);

	terms[0] = (struct terms){
		.status = able ? BATON_OK : BATON_ERR_NOMEM,
		.what = what,
		.bytes = (int64_t)bytes,
		.not_what = ~what,
		.not_bytes = ~(int64_t)bytes,
	};
	return enter_exchange(mpi, exchanging, "MPI_Iallreduce",
	                      MPI_Iallreduce(&terms[0], &terms[1],
	                                     sizeof(*terms) / sizeof(int64_t),
	                                     MPI_INT64_T, MPI_MIN, mpi->comm,
	                                     &mpi->exchange));
}

static enum baton_status
start_exchange(struct batoni_mpi *mpi, uint64_t what, const void *mine,
               size_t bytes, bool able)
{
	size_t parts = (size_t)mpi->base.size + 1;

	assert(bytes > 0 && bytes <= INT_MAX && what <= INT64_MAX);
	if (able)
		mpi->parts_buffer = batoni_alloc(LINK_BYTES + parts * bytes, 1);
	if (mpi->parts_buffer)
		memcpy(mpi->parts_buffer + LINK_BYTES, mine, bytes);
	return bring_terms(mpi, BATONI_MPI_TERMS, (int64_t)what, bytes);
}

/* The result of the reduction: the same on all ranks. */
static enum baton_status
judge_terms(const struct terms *all)
{
	if (all->what != ~all->not_what || all->bytes != ~all->not_bytes)
		return BATON_ERR_INVALID;
	return all->status == BATON_OK ? BATON_OK
	                               : batoni_error_told(all->status);
}

static enum baton_status
bring_part(struct batoni_mpi *mpi, size_t bytes)
{
	enum baton_status status = judge_terms(&terms_of(mpi)[1]);
	unsigned char *part = mpi->parts_buffer + LINK_BYTES;

	if (status != BATON_OK)
		return status;
	return enter_exchange(mpi, BATONI_MPI_PARTS, "MPI_Iallgather",
	                      MPI_Iallgather(part, (int)bytes, MPI_BYTE, part + bytes,
	                                     (int)bytes, MPI_BYTE, mpi->comm,
	                                     &mpi->exchange));
}

/* The exchange is over, and MPI has none of its buffers. */
static void
end_exchange(struct batoni_mpi *mpi)
{
	batoni_free(mpi->parts_buffer);
	mpi->parts_buffer = NULL;
	mpi->exchanging = BATONI_MPI_NO_EXCHANGE;
}

enum baton_status
batoni_mpi_leave(struct batoni_transport *transport)
{
	struct batoni_mpi *mpi = batoni_mpi_of(transport);
	enum baton_status status;
	int code, done = 0;

	if (mpi->exchanging == BATONI_MPI_NO_EXCHANGE)
		return bring_terms(mpi, BATONI_MPI_LEAVING, LEAVING, 0);
	code = MPI_Test(&mpi->exchange, &done, MPI_STATUS_IGNORE);
	if (code != MPI_SUCCESS)
		return batoni_mpi_break(mpi, "MPI_Test", code);
	if (!done)
		return BATON_PENDING;
	status = judge_terms(&terms_of(mpi)[1]);
	end_exchange(mpi);
	return status;
}

enum baton_status
batoni_mpi_exchange(struct batoni_transport *transport, uint64_t what,
                    const void *mine, size_t bytes, void *all)
{
	struct batoni_mpi *mpi = batoni_mpi_of(transport);
	enum baton_status status = BATON_PENDING;
	int code = MPI_SUCCESS, done = 0;

	if (mpi->exchanging >= BATONI_MPI_LEAVE_MESSAGES)
		return BATON_ERR_PEER;
	/* An earlier leave was given up.  End its reduction first: either all ranks have
	 * left, or the others were told INVALID. */
	if (mpi->exchanging == BATONI_MPI_LEAVING) {
		status = batoni_mpi_leave(transport);
		if (status == BATON_OK)
			return BATON_ERR_PEER;
		return status == BATON_ERR_INVALID ? BATON_PENDING : status;
	}
	if (mpi->exchanging == BATONI_MPI_NO_EXCHANGE)
		status = start_exchange(mpi, what, mine, bytes, all != NULL);
	else
		code = MPI_Test(&mpi->exchange, &done, MPI_STATUS_IGNORE);
	/* MPI may still have the buffer. */
	if (code != MPI_SUCCESS)
		return batoni_mpi_break(mpi, "MPI_Test", code);
	if (done && mpi->exchanging == BATONI_MPI_TERMS)
		status = bring_part(mpi, bytes);
	else if (done)
		status = BATON_OK;
	if (status == BATON_OK)
		memcpy(all, mpi->parts_buffer + LINK_BYTES + bytes,
		       (size_t)transport->size * bytes);
	if (status != BATON_PENDING)
		end_exchange(mpi);
	return status;
}

void
batoni_mpi_abandon(struct batoni_mpi *mpi)
{
	batoni_mpi_unfollow_all(mpi);
	/* From the end: the entry that fills a gap has been handled. */
	for (uint32_t i = mpi->count; i-- > 0;) {
		int done = 0;

		if (mpi->entries[i].part != BATONI_MPI_FIRST)
			continue;
		MPI_Cancel(&mpi->requests[i]);
		MPI_Test(&mpi->requests[i], &done, MPI_STATUS_IGNORE);
		if (done)
			batoni_mpi_untrack(mpi, i);
	}
}

static void
leak_on_purpose(unsigned char *buffer)
{
	void **link = (void *)buffer;

	*link = leaked;
	leaked = link;
}

/* Give up the exchange that is under way, if any.  (Leave messages, their barrier and what was
 * being discarded have no memory of the transport's.) */
static void
drop_exchange(struct batoni_mpi *mpi)
{
	unsigned char **buffer_p = mpi->exchanging == BATONI_MPI_PARTS
	                                   ? &mpi->parts_buffer
	                                   : &mpi->terms_buffer;
	int done = 0;

	if (mpi->exchanging == BATONI_MPI_NO_EXCHANGE ||
	    mpi->exchanging >= BATONI_MPI_LEAVE_MESSAGES)
		return;
	if (callable(mpi))
		MPI_Test(&mpi->exchange, &done, MPI_STATUS_IGNORE);
	if (!done) {
		leak_on_purpose(*buffer_p);
		*buffer_p = NULL;
	}
	end_exchange(mpi);
}

void
batoni_mpi_close(struct batoni_transport *transport, bool aborted)
{
	struct batoni_mpi *mpi = batoni_mpi_of(transport);

	if (mpi->forget)
		mpi->forget(mpi, aborted);
	if (!aborted) {
		assert(mpi->exchanging == BATONI_MPI_NO_EXCHANGE);
		MPI_Comm_free(&mpi->comm);
		batoni_mpi_free(mpi);
		return;
	}
	if (callable(mpi))
		batoni_mpi_abandon(mpi);
	batoni_mpi_kept_drop(mpi, callable(mpi));
	drop_exchange(mpi);
	if (!batoni_mpi_end_copies(mpi)) {
		transport->patience->copies_left = true;
	} else if (mpi->count == 0) {
		batoni_mpi_free(mpi);
		return;
	}
	/* The bounce buffers stay mapped, and those of lists. */
	free_tables(mpi);
}
