/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baton_send_tensors and baton_recv_tensors: checks, and the memory of the descriptions.
 *
 * An operation on a list is a send or receive like any other, whose transfer has, in the
 * place of its buffer, a struct batoni_tensor_list (tensor_list.h).  The call copies all
 * that the program has described into it, so nothing is allocated between the call and the end.
 *
 * The store.  The memory of all lists of a communicator is one block, which the first call
 * allocates, cut into units of UNIT_BYTES.  A list has a run of units: a struct block, then
 * what it points to.  runs[u] is the length of the run that begins at unit u, or 0.  A list is
 * given the first run that is free.  One lock guards runs; it is a leaf.
 *
 * Owners of a list: the enqueuing thread until the operation is published; then the engine.
 * It is given back when the engine lets go of the operation: at its end, or later if it was
 * lent.  One that ended in MISMATCH, TRUNCATED or INVALID is kept, for the sentence of
 * baton_request_error, until its record is used again: a call that finds no free run looks
 * for lists that are kept and whose record has another generation.
 *
 * After an abort a transport may still read the header of a list.  A store with lists that are
 * not given back is then leaked on purpose.
 */
#include "tensor_calls.h"

#include <stdio.h>
#include <string.h>

#include "enqueue.h"
#include "group.h"
#include "log.h"
#include "place.h"
#include "plan.h"
#include "stream.h"
#include "tensors.h"

#define UNIT_TENSORS 8u
#define UNIT_BYTES 1536u

struct block {
	struct batoni_tensor_list list; /* must be first */
	uint32_t first, units;
	/* Kept for the sentence of this record in this generation; under the lock. */
	bool kept;
	const struct batoni_op *owner;
	uint32_t generation;
};

struct batoni_tensor_store {
	pthread_mutex_t lock;
	uint32_t units;
	uint16_t *runs;
	unsigned char *memory;
	struct batoni_tensor_store *leaked; /* the one that was leaked before */
};

/* ---- the store ---- */

static void
store_free(struct batoni_tensor_store *store)
{
	if (!store)
		return;
	pthread_mutex_destroy(&store->lock);
	batoni_free(store->memory);
	batoni_free(store->runs);
	batoni_free(store);
}

/* NULL: no memory. */
static struct batoni_tensor_store *
store_new(uint32_t tensors_max)
{
	struct batoni_tensor_store *store = batoni_alloc(1, sizeof(*store));

	if (!store)
		return NULL;
	pthread_mutex_init(&store->lock, NULL);
	store->units = (tensors_max + UNIT_TENSORS - 1) / UNIT_TENSORS;
	store->runs = batoni_alloc(store->units, sizeof(*store->runs));
	store->memory = batoni_alloc(store->units, UNIT_BYTES);
	if (store->runs && store->memory)
		return store;
	store_free(store);
	return NULL;
}

static struct batoni_tensor_store *
store_of(struct baton_comm *comm)
{
	struct batoni_tensor_store *store = atomic_load(&comm->tensors);
	struct batoni_tensor_store *mine;

	if (likely(store != NULL))
		return store;
	mine = store_new(comm->tensors_max);
	if (!mine || atomic_compare_exchange_strong(&comm->tensors, &store,
	                                            mine))
		return mine;
	store_free(mine);
	return store;
}

static struct block *
block_at(const struct batoni_tensor_store *store, uint32_t unit)
{
	return (struct block *)(void *)(store->memory +
	                                (size_t)unit * UNIT_BYTES);
}

static uint32_t
generation_of(const struct batoni_op *op)
{
	return (uint32_t)(atomic_load(&op->word) >> 32);
}

/* Give back what was kept for records that are used again. */
static bool
reclaim_locked(struct batoni_tensor_store *store)
{
	bool some = false;

	for (uint32_t u = 0; u < store->units;) {
		uint32_t n = store->runs[u];
		struct block *block = block_at(store, u);

		if (n > 0 && block->kept &&
		    generation_of(block->owner) != block->generation) {
			block->kept = false;
			store->runs[u] = 0;
			some = true;
		}
		u += n > 0 ? n : 1;
	}
	return some;
}

/* The first free run of n units, or NULL. */
static struct block *
find_locked(struct batoni_tensor_store *store, uint32_t n)
{
	uint32_t free = 0;

	for (uint32_t u = 0; u < store->units;) {
		if (store->runs[u] > 0) {
			free = 0;
			u += store->runs[u];
			continue;
		}
		u++;
		if (++free < n)
			continue;
		store->runs[u - n] = (uint16_t)n;
		return block_at(store, u - n);
	}
	return NULL;
}

/* The run is a block before the lock is given up: others look at all blocks (reclaim_locked), and
 * what was there before may be anything. */
static struct block *
take_units(struct batoni_tensor_store *store, uint32_t n)
{
	struct block *block;

	pthread_mutex_lock(&store->lock);
	block = find_locked(store, n);
	if (!block && reclaim_locked(store))
		block = find_locked(store, n);
	if (block)
		*block = (struct block){
			.first = (uint32_t)(((unsigned char *)block -
			                     store->memory) /
			                    UNIT_BYTES),
			.units = n,
		};
	pthread_mutex_unlock(&store->lock);
	return block;
}

void
batoni_tensors_free(struct baton_comm *comm, struct batoni_tensor_list *list)
{
	struct batoni_tensor_store *store = atomic_load(&comm->tensors);
	const struct block *block = (const struct block *)(void *)list;

	pthread_mutex_lock(&store->lock);
	store->runs[block->first] = 0;
	pthread_mutex_unlock(&store->lock);
}

static void
keep(struct batoni_op *op, struct batoni_tensor_list *list)
{
	struct batoni_tensor_store *store = atomic_load(&op->comm->tensors);
	struct block *block = (struct block *)(void *)list;

	pthread_mutex_lock(&store->lock);
	block->owner = op;
	block->generation = generation_of(op);
	block->kept = true;
	pthread_mutex_unlock(&store->lock);
}

/* So that leak checkers find it. */
static void
leak_on_purpose(struct batoni_tensor_store *store)
{
	static _Atomic(struct batoni_tensor_store *) leaked;

	store->leaked = atomic_load(&leaked);
	while (!atomic_compare_exchange_weak(&leaked, &store->leaked, store))
		;
	batoni_mem_keep(3);
}

void
batoni_tensors_close(struct baton_comm *comm)
{
	struct batoni_tensor_store *store = atomic_load(&comm->tensors);
	uint32_t n;

	if (!store)
		return;
	for (uint32_t u = 0; u < store->units; u += n) {
		n = store->runs[u];
		if (n > 0 && !block_at(store, u)->kept) {
			leak_on_purpose(store);
			return;
		}
		n = n > 0 ? n : 1;
	}
	store_free(store);
}

/* ---- lists ---- */

static size_t
align_up(size_t bytes)
{
	return (bytes + 15) & ~(size_t)15;
}

/* The longest header of so many tensors. */
static size_t
header_most(size_t count)
{
	return BATONI_TENSORS_FIXED_BYTES + align_up(2 * count) +
	       8 * BATON_TENSOR_RANK_MAX * count;
}

/* A list of so many tensors.  OK, NOMEM, AGAIN, INVALID. */
static enum baton_status
take_list(const char *call, struct baton_comm *comm, size_t count, bool declares,
          struct batoni_tensor_list **list_p)
{
	size_t header_max = header_most(count);
	size_t segments = align_up(count * sizeof(struct batoni_segment));
	size_t declared = align_up(declares ? count * sizeof(struct baton_tensor)
	                                    : 0);
	size_t places = comm->looks ? align_up(count) : 0;
	size_t bytes = align_up(sizeof(struct block)) + segments + declared +
	               places + header_max;
	uint32_t units = (uint32_t)((bytes + UNIT_BYTES - 1) / UNIT_BYTES);
	struct batoni_tensor_store *store = store_of(comm);
	struct block *block;
	unsigned char *at;

	if (!store)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "%s: no memory for the %u tensors of "
		                     "tensors_max",
		                     call, comm->tensors_max);
	if (units > store->units)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: count is %zu; the communicator has "
		                     "memory for lists of %u tensors (tensors_max)",
		                     call, count, comm->tensors_max);
	block = take_units(store, units);
	if (!block)
		return batoni_refuse(BATON_ERR_AGAIN,
		                     "%s: pending lists take the memory of %u "
		                     "tensors (tensors_max); finish or release "
		                     "some",
		                     call, comm->tensors_max);
	at = (unsigned char *)block + align_up(sizeof(*block));
	block->list.segments = (struct batoni_segment *)(void *)at;
	block->list.declared = (struct baton_tensor *)(void *)(at + segments);
	if (places > 0) {
		block->list.places = at + segments + declared;
		memset(block->list.places, BATONI_MEMORY_HOST, places);
	}
	block->list.header = at + segments + declared + places;
	block->list.header_max = header_max;
	*list_p = &block->list;
	return BATON_OK;
}

static enum baton_status
refuse_tensor(const char *call, size_t tensor, const char *wrong)
{
	return batoni_refuse(BATON_ERR_INVALID, "%s: tensor %zu: %s", call,
	                     tensor, wrong);
}

/* What is the memory?  OK, and *place_p is written if it is not memory of the host; what a plain
 * call's buffer is refused with. */
static enum baton_status
find_place(const char *call, struct baton_comm *comm, const void *data,
           size_t bytes, unsigned *place_p)
{
	enum baton_status status;

	if (bytes == 0 || likely(!batoni_place_counts(comm)))
		return BATON_OK;
	status = batoni_place_find(comm, data, bytes, place_p);
	if (status == BATON_ERR_CUDA)
		return batoni_refuse_device(comm, status);
	return status == BATON_OK ? BATON_OK
	                          : batoni_refuse_named(call, status);
}

/* The same for a tensor of the list. */
static enum baton_status
note_place(const char *call, struct baton_comm *comm,
           struct batoni_tensor_list *list, size_t i, const void *data,
           size_t bytes)
{
	unsigned place = BATONI_MEMORY_HOST;
	enum baton_status status = find_place(call, comm, data, bytes, &place);

	if (unlikely(list->places != NULL))
		list->places[i] = (unsigned char)place;
	return status;
}

/* ---- sending ---- */

/* Check the tensors, and fill in where they are. */
static enum baton_status
fill_sent(const char *call, struct baton_comm *comm,
          const struct baton_tensor *tensors, struct batoni_tensor_list *list)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < list->count; i++) {
		struct batoni_segment *segment = &list->segments[i];
		enum baton_status status;
		const char *wrong =
			batoni_tensor_bytes(&tensors[i], &segment->bytes);

		if (wrong)
			return refuse_tensor(call, i, wrong);
		segment->data = tensors[i].data;
		/* Both are below 2^63. */
		sum += segment->bytes;
		if (sum > INT64_MAX)
			return refuse_tensor(call, i,
			                     "the sum of the bytes does not fit "
			                     "in 63 bits");
		if (segment->bytes > 0 && !segment->data)
			return refuse_tensor(call, i,
			                     "its data is NULL; NULL is allowed "
			                     "without elements only");
		status = note_place(call, comm, list, i, segment->data,
		                    segment->bytes);
		if (status != BATON_OK)
			return status;
	}
	list->payload_bytes = (size_t)sum;
	return BATON_OK;
}

static enum baton_status
make_sent(const char *call, struct baton_comm *comm,
          const struct baton_tensor *tensors, size_t count,
          struct batoni_tensor_list **list_p)
{
	struct batoni_tensor_list *list;
	enum baton_status status;

	status = take_list(call, comm, count, false, &list);
	if (status != BATON_OK)
		return status;
	list->count = count;
	status = fill_sent(call, comm, tensors, list);
	if (status != BATON_OK) {
		batoni_tensors_free(comm, list);
		return status;
	}
	list->header_bytes = batoni_tensors_header_bytes(tensors, count);
	batoni_tensors_encode(tensors, count, list->payload_bytes, list->header);
	*list_p = list;
	return BATON_OK;
}

/* ---- receiving ---- */

/* Type, rank and dimensions, some of which may be open. */
static const char *
check_shape(const struct baton_tensor *declared, bool *open_p, size_t *bytes_p)
{
	struct baton_tensor closed = *declared;

	*open_p = declared->rank == -1;
	*bytes_p = 0;
	if (*open_p)
		return NULL;
	for (int i = 0; i < declared->rank && i < BATON_TENSOR_RANK_MAX; i++) {
		if (declared->shape[i] != -1)
			continue;
		*open_p = true;
		closed.shape[i] = 0;
	}
	return batoni_tensor_bytes(&closed, bytes_p);
}

static enum baton_status
check_declared(const char *call, size_t i, const struct baton_tensor *declared,
               bool arena)
{
	size_t bytes;
	bool open;
	const char *wrong = check_shape(declared, &open, &bytes);

	if (wrong)
		return refuse_tensor(call, i, wrong);
	if (open && declared->data)
		return refuse_tensor(call, i,
		                     "its data is given, and its length is not "
		                     "known: a tensor with an open rank or "
		                     "dimension goes to the arena");
	if (!declared->data && !arena && (open || bytes > 0))
		return refuse_tensor(call, i,
		                     "its data is NULL, and there is no arena "
		                     "(options->arena)");
	return BATON_OK;
}

/* Of each tensor's own memory, and of the arena, which has the others. */
static enum baton_status
note_declared(const char *call, struct baton_comm *comm,
              struct batoni_tensor_list *list,
              const struct baton_tensors_options *options)
{
	unsigned arena = BATONI_MEMORY_HOST;
	enum baton_status status =
		find_place(call, comm, options->arena,
	                   options->arena ? options->arena_bytes : 0, &arena);

	for (size_t i = 0; i < list->declared_n && status == BATON_OK; i++) {
		const struct baton_tensor *declared = &list->declared[i];
		size_t bytes = 0;

		if (declared->data) {
			batoni_tensor_bytes(declared, &bytes);
			status = note_place(call, comm, list, i, declared->data,
			                    bytes);
		} else if (list->places) {
			list->places[i] = (unsigned char)arena;
		}
	}
	return status;
}

static enum baton_status
make_declared(const char *call, struct baton_comm *comm,
              struct baton_tensor *tensors, size_t count,
              const struct baton_tensors_options *options,
              struct batoni_tensor_list **list_p)
{
	struct batoni_tensor_list *list;
	enum baton_status status = BATON_OK;
	bool tells = false;

	for (size_t i = 0; i < count && status == BATON_OK; i++) {
		status = check_declared(call, i, &tensors[i],
		                        options->arena != NULL);
		tells |= !tensors[i].data;
	}
	if (status == BATON_OK)
		status = take_list(call, comm, count, true, &list);
	if (status != BATON_OK)
		return status;
	if (count > 0)
		memcpy(list->declared, tensors, count * sizeof(*tensors));
	list->declared_n = count;
	list->fewer = options->count_p != NULL;
	list->count_p = options->count_p;
	list->arena = options->arena;
	list->arena_bytes = options->arena ? options->arena_bytes : 0;
	list->results = tells ? tensors : NULL;
	if (unlikely(batoni_place_counts(comm)))
		status = note_declared(call, comm, list, options);
	if (status == BATON_OK)
		*list_p = list;
	else
		batoni_tensors_free(comm, list);
	return status;
}

/* ---- the calls ---- */

/* A rank with memory of a device is one only where lists may be in it. */
bool
batoni_tensors_served(const struct baton_comm *comm)
{
	const struct batoni_path_ops *ops =
		comm->paths[BATONI_PATH_MESSAGES]->ops;

	return ops->lists && (ops->lists_anywhere || !comm->looks);
}

static enum baton_status
check_call(const char *call, const struct baton_comm *comm, baton_stream stream,
           const struct baton_tensor *tensors, size_t count, int peer,
           const struct baton_tensors_options *options)
{
	enum baton_status status =
		batoni_check_target(call, comm, stream, false);
	const struct batoni_path *path;

	if (status != BATON_OK)
		return status;
	if (options->op.size != sizeof(*options))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->op.size is %zu; this library's "
		                     "is %zu (use BATON_TENSORS_OPTIONS_INIT)",
		                     call, options->op.size, sizeof(*options));
	if (options->flags & ~BATON_FORBID_SELF)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->flags is 0x%x; only "
		                     "BATON_FORBID_SELF (0x%x) is known",
		                     call, options->flags, BATON_FORBID_SELF);
	if ((options->flags & BATON_FORBID_SELF) && peer == comm->rank)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: peer is %d, which is this rank; "
		                     "BATON_FORBID_SELF forbids it",
		                     call, peer);
	if (!tensors && count > 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: tensors is NULL with count %zu; NULL is "
		                     "allowed with count 0 only",
		                     call, count);
	if (count > BATON_TENSORS_MAX)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: count is %zu; a list has %u tensors at "
		                     "most",
		                     call, count, BATON_TENSORS_MAX);
	path = comm->paths[BATONI_PATH_MESSAGES];
	if (!batoni_tensors_served(comm))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: %s carries no lists of tensors for the "
		                     "%s device (BATON_CAP_TENSORS)%s",
		                     call, path->ops->name,
		                     comm->device_ops->name,
		                     path->ops->stream_issued
		                             ? "; in checked mode it does "
		                               "(options->check)"
		                             : "");
	return BATON_OK;
}

static enum baton_status
enqueue(const char *call, enum batoni_op_kind kind, struct baton_comm *comm,
        baton_stream stream, struct batoni_tensor_list *list, int peer, int tag,
        const struct baton_tensors_options *options, baton_request *request_p)
{
	struct baton_op_options op = options->op;
	const struct batoni_arguments a = {
		list,         list->payload_bytes + list->arena_bytes,
		BATON_UINT8,  peer,
		tag,          stream,
		&op,          request_p};
	enum baton_status status;

	op.size = sizeof(op);
	list->input_signal = options->input_signal;
	list->output_signal = options->output_signal;
	status = batoni_enqueue_list(call, kind, comm, &a);
	if (status != BATON_OK)
		batoni_tensors_free(comm, list);
	return status;
}

/* What a plan keeps of a call; a copy of the tensors lies behind it. */
struct recorded {
	enum batoni_op_kind kind;
	struct baton_tensor *tensors; /* the program's */
	size_t count;
	int peer, tag;
	baton_stream stream;
	struct baton_tensors_options options;
};

static enum baton_status
replay(struct baton_comm *comm, const void *payload)
{
	const struct recorded *r = payload;
	/* Of a receive, which takes memory that it may write: it writes to the program's. */
	struct baton_tensor *tensors = (struct baton_tensor *)(uintptr_t)
		batoni_note_more(payload, sizeof(*r));
	struct batoni_tensor_list *list = NULL;
	const char *call = "baton_plan_launch";
	enum baton_status status;

	status = r->kind == BATONI_KIND_SEND
	                 ? make_sent(call, comm, tensors, r->count, &list)
	                 : make_declared(call, comm, tensors, r->count,
	                                 &r->options, &list);
	if (status != BATON_OK)
		return status;
	if (list->results)
		list->results = r->tensors;
	return enqueue(call, r->kind, comm, r->stream, list, r->peer, r->tag,
	               &r->options, NULL);
}

static enum baton_status
note(const char *call, enum batoni_op_kind kind, struct baton_comm *comm,
     baton_stream stream, const struct baton_tensor *tensors, size_t count,
     int peer, int tag, const struct baton_tensors_options *options)
{
	static const struct batoni_note_ops ops = {.replay = replay};
	const struct recorded r = {
		kind,
		/* A send only reads them. */
		(struct baton_tensor *)(uintptr_t)tensors,
		count,
		peer,
		tag,
		stream,
		*options,
	};

	return batoni_plan_note(call, batoni_plan_recorded(comm), &ops, stream,
	                        &r, sizeof(r), tensors, count * sizeof(*tensors));
}

static const struct baton_tensors_options defaults = BATON_TENSORS_OPTIONS_INIT;

enum baton_status
baton_send_tensors(const struct baton_tensor *tensors, size_t count, int peer,
                   int tag, struct baton_comm *comm, baton_stream stream,
                   const struct baton_tensors_options *options,
                   baton_request *request_p)
{
	const char *call = "baton_send_tensors";
	struct batoni_tensor_list *list = NULL;
	enum baton_status status;

	options = options ? options : &defaults;
	status = check_call(call, comm, stream, tensors, count, peer, options);
	if (status == BATON_OK)
		status = make_sent(call, comm, tensors, count, &list);
	if (status == BATON_OK)
		status = enqueue(call, BATONI_KIND_SEND, comm, stream, list,
		                 peer, tag, options, request_p);
	if (unlikely(status == BATONI_RECORDED))
		status = note(call, BATONI_KIND_SEND, comm, stream, tensors,
		              count, peer, tag, options);
	return status == BATON_OK ? BATON_OK
	                          : batoni_group_refuse(comm, status);
}

enum baton_status
baton_recv_tensors(struct baton_tensor *tensors, size_t count, int peer, int tag,
                   struct baton_comm *comm, baton_stream stream,
                   const struct baton_tensors_options *options,
                   baton_request *request_p)
{
	const char *call = "baton_recv_tensors";
	struct batoni_tensor_list *list = NULL;
	enum baton_status status;

	options = options ? options : &defaults;
	status = check_call(call, comm, stream, tensors, count, peer, options);
	if (status == BATON_OK)
		status = make_declared(call, comm, tensors, count, options,
		                       &list);
	if (status == BATON_OK)
		status = enqueue(call, BATONI_KIND_RECV, comm, stream, list,
		                 peer, tag, options, request_p);
	if (unlikely(status == BATONI_RECORDED))
		status = note(call, BATONI_KIND_RECV, comm, stream, tensors,
		              count, peer, tag, options);
	return status == BATON_OK ? BATON_OK
	                          : batoni_group_refuse(comm, status);
}

/* ---- the life of the operation ---- */

bool
batoni_tensors_may_go(const struct batoni_op *op)
{
	const struct batoni_tensor_list *list = batoni_op_list(op);

	return !list->input_signal || *list->input_signal;
}

void
batoni_tensors_ended(struct batoni_op *op, enum baton_status status, bool lent)
{
	struct batoni_tensor_list *list = batoni_op_list(op);

	if (status == BATON_OK) {
		if (op->kind == BATONI_KIND_RECV)
			batoni_list_deliver(list);
		if (list->output_signal)
			*list->output_signal = true;
	}
	if (lent)
		return;
	if (status == BATON_ERR_MISMATCH || status == BATON_ERR_TRUNCATED ||
	    status == BATON_ERR_INVALID)
		keep(op, list);
	else
		batoni_tensors_free(op->comm, list);
}

bool
batoni_tensors_explain(const struct batoni_op *op, char *text, size_t size)
{
	const struct batoni_tensor_list *list = batoni_op_list(op);

	if (list && op->status == BATON_ERR_INVALID) {
		snprintf(text, size, "its input_signal was false");
		return true;
	}
	if (list && (op->status == BATON_ERR_MISMATCH ||
	             op->status == BATON_ERR_TRUNCATED))
		return batoni_list_explain(list, text, size);
	if (list || op->status != BATON_ERR_MISMATCH ||
	    !batoni_path_of(op)->ops->lists)
		return false;
	snprintf(text, size,
	         "a list of tensors came, which baton_recv_tensors receives");
	return true;
}
