/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How an item is put on a CUDA stream.
 *
 *     an operation        host function (trigger)   wait for the word   write that it passed
 *     a detached one      host function
 *     a join              wait for the word   write that it passed   host function
 *     a launched function host function (wakes the stream's thread)   wait until the
 *                         function has returned   write
 *
 * The trigger stores and wakes, nothing else.  The wait and the write are one driver call
 * (cuStreamBatchMemOp): the stream waits for the engine's word (GEQ), then writes the number
 * of this wait into a word of the stream's index (cuda_stream.h).  So the host knows what streams have passed without
 * asking the driver and without a handle, which the program may have destroyed.  Words are
 * used again only when no stream waits for them, and an index when no item of Baton is left on its stream.
 *
 * Where the device cannot wait for a word, a host function waits: then an operation is one
 * host function.  Streams may then hold each other up, as the driver may run one node
 * function at a time.
 *
 * When the trigger is on the stream and the driver refuses the wait, the wait is tried again, and
 * then a host function waits instead.  If the driver refuses that as well, the device counts as
 * sick, and all operations end, since the trigger cannot be taken back.
 *
 * A put is a copy and, in one batch, the write of the signal and of the put's number.  The write
 * is what makes the copy visible first: cuStreamWriteValue without
 * CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER "will provide a memory fence before the write, which has
 * similar semantics to __threadfence_system() but is scoped to the stream" (cuda.h), and the copy is
 * before it in the stream.  If the driver refuses the copy, nothing is on the stream, and
 * the engine carries the put out by itself.  Once the copy is on the stream it cannot be taken back:
 * where the driver then refuses the write CUDA_TRIES times, the device counts as sick.
 *
 * How much a stream takes is in cuda_room.c.
 */
#include "cuda_stream.h"

#include "log.h"
#include "mem.h"

/* ---- host functions, on a thread of the driver: no driver call ------------ */

static struct cuda_stream *
stream_of(const struct batoni_stream_item *item)
{
	return (struct cuda_stream *)(void *)item->next;
}

static bool
has_grown(const _Atomic uint64_t *word, uint64_t value)
{
	return (int64_t)(atomic_load(word) - value) >= 0;
}

/* Host functions that wait for words, on all GPUs together: a stream may wait for an
 * operation of a communicator on another GPU. */
static struct {
	atomic_uint n;
	pthread_mutex_t lock;
	pthread_cond_t released;
} sleepers = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.released = PTHREAD_COND_INITIALIZER,
};

/* Dekker's pattern against a lost wake-up: this thread counts itself, then loads the word; the
 * driver stores the word, then loads the count (batoni_cuda_released); all seq_cst. */
static void
wait_for_word(const _Atomic uint64_t *word, uint64_t value)
{
	if (has_grown(word, value))
		return;
	atomic_fetch_add(&sleepers.n, 1);
	pthread_mutex_lock(&sleepers.lock);
	while (!has_grown(word, value))
		pthread_cond_wait(&sleepers.released, &sleepers.lock);
	pthread_mutex_unlock(&sleepers.lock);
	atomic_fetch_sub(&sleepers.n, 1);
}

void
batoni_cuda_released(void)
{
	if (atomic_load(&sleepers.n) == 0)
		return;
	pthread_mutex_lock(&sleepers.lock);
	pthread_cond_broadcast(&sleepers.released);
	pthread_mutex_unlock(&sleepers.lock);
}

static void
reach(struct cuda_stream *stream, struct batoni_stream_item *item)
{
	if (item->flags & BATONI_ITEM_LAUNCH)
		batoni_cuda_worker_run(stream, item);
	else
		item->reached(item);
}

static void
on_trigger(void *argument)
{
	struct batoni_stream_item *item = argument;
	struct cuda_stream *stream = stream_of(item);

	reach(stream, item);
	/* The index may go to another stream now. */
	atomic_fetch_add(&stream->fired, 1);
}

static void
note_passed(struct cuda_stream *stream)
{
	/* Only the stream itself writes it, one wait after the other. */
	atomic_fetch_add(&stream->gpu->passed[stream->index], 1);
}

/* What a stream waits for. */
struct word_wait {
	const _Atomic uint64_t *word; /* NULL: nothing */
	uint64_t value;
};

/* The trigger and the wait of an item, in its order, where the GPU cannot wait for words. */
static void
on_item(void *argument)
{
	struct batoni_stream_item *item = argument;
	struct cuda_stream *stream = stream_of(item);
	struct word_wait wait = {item->word, item->value};

	/* The stream runs this function, so no other function of it returns meanwhile. */
	if (item->flags & BATONI_ITEM_LAUNCH)
		wait = (struct word_wait){
			&stream->gpu->returned[stream->index],
			atomic_load(&stream->gpu->returned[stream->index]) + 1};
	/* After its trigger an item that waits for nothing belongs to the engine. */
	if (item->flags & BATONI_ITEM_WAIT_FIRST) {
		wait_for_word(wait.word, wait.value);
		note_passed(stream);
		item->reached(item);
	} else {
		reach(stream, item);
		wait_for_word(wait.word, wait.value);
		note_passed(stream);
	}
	atomic_fetch_add(&stream->fired, 1);
}

/* A wait apart from its item, which it outlives: the engine uses the item again when the word
 * has grown. */
struct late_wait {
	struct cuda_stream *stream;
	struct word_wait wait;
};

static void
on_wait(void *argument)
{
	struct late_wait late = *(struct late_wait *)argument;

	batoni_free(argument);
	wait_for_word(late.wait.word, late.wait.value);
	note_passed(late.stream);
	atomic_fetch_add(&late.stream->fired, 1);
}

/* ---- enqueuing ------------------------------------------------------------ */

static CUresult
put_function(struct cuda_stream *stream, CUstream handle, CUhostFn function,
             void *argument)
{
	CUresult result =
		stream->gpu->api->host_function(handle, function, argument);

	if (result == BATONI_CU_SUCCESS)
		stream->triggers++;
	return result;
}

/* Memory operations of one call, which the stream carries out in this order. */
struct batch {
	CUstreamBatchMemOpParams operations[3];
	unsigned n;
};

/* A thread that reads the value also sees what the stream did before the write. */
static void
add_write(struct batch *batch, const _Atomic uint64_t *word, uint64_t value)
{
	struct CUstreamMemOpWriteValueParams_st *write =
		&batch->operations[batch->n++].writeValue;

	write->operation = BATONI_CU_OP_WRITE_64;
	write->address = (CUdeviceptr)(uintptr_t)word;
	write->value64 = value;
}

/* Wait for the word, then write the number of this wait. */
static void
add_wait(struct batch *batch, const struct cuda_stream *stream,
         struct word_wait wait)
{
	struct CUstreamMemOpWaitValueParams_st *until =
		&batch->operations[batch->n++].waitValue;

	until->operation = BATONI_CU_OP_WAIT_64;
	until->address = (CUdeviceptr)(uintptr_t)wait.word;
	until->value64 = wait.value;
	until->flags = BATONI_CU_WAIT_GEQ;
	add_write(batch, &stream->gpu->passed[stream->index], stream->waits);
}

static CUresult
put_batch(const struct cuda_stream *stream, CUstream handle, struct batch *batch)
{
	return stream->gpu->api->stream_memory_ops(handle, batch->n,
	                                           batch->operations, 0);
}

static CUresult
put_wait(struct cuda_stream *stream, CUstream handle, struct word_wait wait)
{
	struct batch batch = {.n = 0};

	add_wait(&batch, stream, wait);
	return put_batch(stream, handle, &batch);
}

/* ---- the driver's calls for an item ------------------------------------------ */

/* Put the wait behind a trigger, which cannot be taken back: try CUDA_TRIES times. */
static CUresult
insist_on_wait(struct cuda_stream *stream, CUstream handle, struct word_wait wait)
{
	CUresult result = put_wait(stream, handle, wait);

	for (unsigned i = 1; i < CUDA_TRIES && result != BATONI_CU_SUCCESS; i++)
		result = put_wait(stream, handle, wait);
	return result;
}

/* The driver has refused the wait behind a trigger that is on the stream. */
static void
put_late_wait(struct cuda_stream *stream, CUstream handle, struct word_wait wait,
              CUresult why)
{
	struct late_wait *late = batoni_alloc(1, sizeof(*late));

	if (late) {
		late->stream = stream;
		late->wait = wait;
		if (put_function(stream, handle, on_wait, late) ==
		    BATONI_CU_SUCCESS) {
			if (stream->gpu->memory_ops)
				batoni_log(BATONI_LOG_WARN,
				           "cuStreamBatchMemOp failed with %u: "
				           "a host function waits instead",
				           why);
			return;
		}
		batoni_free(late);
	}
	stream->waits--;
	batoni_cuda_fail(stream->gpu, "cuStreamBatchMemOp", why);
}

/* The item waits first (a join). */
static CUresult
put_join(struct cuda_stream *stream, CUstream handle,
         struct batoni_stream_item *item, struct word_wait wait,
         const char **call_p)
{
	CUresult result = put_wait(stream, handle, wait);

	if (result == BATONI_CU_SUCCESS)
		return put_function(stream, handle, on_trigger, item);
	*call_p = "cuStreamBatchMemOp";
	stream->waits--;
	return result;
}

/* Trigger and wait.  The wait has its number already; it is taken back if no wait is put on
 * the stream. */
static CUresult
put_both(struct cuda_stream *stream, CUstream handle,
         struct batoni_stream_item *item, struct word_wait wait,
         const char **call_p)
{
	bool waits = stream->gpu->memory_ops;
	CUresult result;

	if (waits && (item->flags & BATONI_ITEM_WAIT_FIRST))
		return put_join(stream, handle, item, wait, call_p);
	result = put_function(stream, handle, waits ? on_trigger : on_item,
	                      item);
	/* From here on the driver may call the trigger, and the engine use the item again. */
	if (result != BATONI_CU_SUCCESS) {
		stream->waits--;
		return result;
	}
	result = waits ? insist_on_wait(stream, handle, wait) : BATONI_CU_SUCCESS;
	if (result != BATONI_CU_SUCCESS)
		put_late_wait(stream, handle, wait, result);
	return BATONI_CU_SUCCESS;
}

/* A block of words remembers the last wait for one of them. */
struct wait_number {
	_Atomic uint64_t *last_p; /* the block's; NULL: it has none */
	uint64_t last;            /* the number before */
	uint64_t before;          /* the number of the stream's wait before */
};

static void
number_wait(struct cuda_stream *stream, const _Atomic uint64_t *word,
            struct wait_number *number_p)
{
	number_p->last_p = batoni_cuda_last_wait(stream, word);
	number_p->last = 0;
	number_p->before = stream->waits++;
	if (number_p->last_p)
		number_p->last = atomic_exchange(number_p->last_p,
		                                 stream->waits);
}

/* Restore what number_wait changed: no wait was put on the stream. */
static void
forget_wait(const struct cuda_stream *stream, const struct wait_number *number)
{
	if (number->last_p && stream->waits == number->before)
		atomic_store(number->last_p, number->last);
}

void
batoni_cuda_wait(struct cuda_stream *stream, CUstream handle,
                 const struct batoni_stream_item *item)
{
	struct word_wait wait = {item->word, item->value};
	struct wait_number number;
	CUresult result = BATONI_CU_NOT_SUPPORTED;

	pthread_mutex_lock(&stream->lock);
	number_wait(stream, wait.word, &number);
	if (stream->gpu->memory_ops)
		result = insist_on_wait(stream, handle, wait);
	if (result != BATONI_CU_SUCCESS)
		put_late_wait(stream, handle, wait, result);
	forget_wait(stream, &number);
	pthread_mutex_unlock(&stream->lock);
}

static CUresult
put_item(struct cuda_stream *stream, CUstream handle,
         struct batoni_stream_item *item, const char **call_p)
{
	struct word_wait wait = {item->word, item->value};
	bool launch = item->flags & BATONI_ITEM_LAUNCH;
	struct wait_number number;
	CUresult result;

	*call_p = "cuLaunchHostFunc";
	if (launch)
		wait = (struct word_wait){
			&stream->gpu->returned[stream->index],
			stream->functions + 1};
	if (!wait.word || (item->flags & BATONI_ITEM_WAITS_LATER))
		return put_function(stream, handle, on_trigger, item);
	number_wait(stream, wait.word, &number);
	result = put_both(stream, handle, item, wait, call_p);
	forget_wait(stream, &number);
	if (launch && result == BATONI_CU_SUCCESS)
		stream->functions++;
	return result;
}

enum baton_status
batoni_cuda_enqueue(struct cuda_stream *stream, CUstream handle,
                    struct batoni_stream_item *item)
{
	static const struct batoni_need one = {.entries = 1};
	const char *call = NULL;
	CUresult result;

	pthread_mutex_lock(&stream->lock);
	if (!batoni_cuda_has_room(stream, handle, &one)) {
		pthread_mutex_unlock(&stream->lock);
		return batoni_cuda_refuse_full();
	}
	item->next = (struct batoni_stream_item *)(void *)stream;
	result = put_item(stream, handle, item, &call);
	if (result == BATONI_CU_SUCCESS)
		batoni_cuda_set_point(stream);
	pthread_mutex_unlock(&stream->lock);
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : batoni_cuda_refuse(stream->gpu, call, result);
}

/* Put the signal, if there is one, and the number of the put behind the copy, which cannot be taken back. */
static CUresult
insist_on_store(const struct cuda_stream *stream, CUstream handle,
                const struct batoni_stream_put *put)
{
	CUresult result = BATONI_CU_NOT_READY;

	for (unsigned i = 0; i < CUDA_TRIES && result != BATONI_CU_SUCCESS; i++) {
		struct batch batch = {.n = 0};

		if (put->word)
			add_write(&batch, put->word, put->value);
		add_write(&batch, &stream->gpu->stored[stream->index],
		          stream->puts + 1);
		result = put_batch(stream, handle, &batch);
	}
	return result;
}

static CUresult
put_copy(const struct cuda_stream *stream, CUstream handle,
         const struct batoni_stream_put *put)
{
	if (put->bytes == 0)
		return BATONI_CU_SUCCESS;
	return stream->gpu->api->copy((CUdeviceptr)(uintptr_t)put->to,
	                              (CUdeviceptr)(uintptr_t)put->from,
	                              put->bytes, handle);
}

/* OK: copy and write are on the stream, or the device is sick; PENDING: neither is on the stream. */
static enum baton_status
put_both_parts(struct cuda_stream *stream, CUstream handle,
               const struct batoni_stream_put *put)
{
	CUresult result;

	if (put_copy(stream, handle, put) != BATONI_CU_SUCCESS)
		return BATON_PENDING;
	result = insist_on_store(stream, handle, put);
	if (result == BATONI_CU_SUCCESS) {
		stream->puts++;
		batoni_cuda_set_point(stream);
		return BATON_OK;
	}
	if (put->bytes == 0)
		return BATON_PENDING;
	batoni_cuda_fail(stream->gpu, "cuStreamBatchMemOp", result);
	return BATON_OK;
}

enum baton_status
batoni_cuda_put(struct cuda_stream *stream, CUstream handle,
                const struct batoni_stream_put *put)
{
	enum baton_status status = BATON_PENDING;

	pthread_mutex_lock(&stream->lock);
	if (batoni_cuda_takes_put(stream))
		status = put_both_parts(stream, handle, put);
	pthread_mutex_unlock(&stream->lock);
	return status;
}
