/* SPDX-License-Identifier: BSD-3-Clause */
/* Hardware queues and what runs in them, and the threads of host functions. */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "sim.h"

/* How much of a late copy's target is filled with rubbish first. */
enum { RUBBISH = 65536 };
/* Between two looks at a word, in ns. */
enum { NAP_MIN = 5000, NAP_MAX = 500000 };
/* One entry or copy of so many is late, if delays are asked for. */
enum { ENTRY_ODDS = 4 };

static void
init_queue(struct sim_context *context, struct sim_queue *queue)
{
	queue->context = context;
	pthread_cond_init(&queue->work, NULL);
}

void
sim_queues_init(struct sim_context *context)
{
	for (unsigned p = 0; p < SIM_PRIORITIES; p++) {
		for (unsigned q = 0; q < SIM_QUEUES_MAX; q++) {
			init_queue(context, &context->queues[p][q]);
			init_queue(context, &context->copies[p][q]);
		}
	}
}

void
sim_queues_wake_locked(struct sim_context *context)
{
	for (unsigned p = 0; p < SIM_PRIORITIES; p++) {
		for (unsigned q = 0; q < SIM_QUEUES_MAX; q++) {
			pthread_cond_signal(&context->queues[p][q].work);
			pthread_cond_signal(&context->copies[p][q].work);
		}
	}
}

void
sim_queue_take_locked(struct sim_stream *stream, unsigned level)
{
	struct sim_context *context = stream->context;
	unsigned of = sim.set.levels ? level : 0;
	unsigned next = context->next_queue[of]++;

	stream->queue = &context->queues[of][next % (unsigned)sim.set.queues];
	stream->copies = stream->last = stream->queue;
	if (sim.set.copy_queues > 0)
		stream->copies =
			&context->copies[of][next %
	                                     (unsigned)sim.set.copy_queues];
}

/* Records and writes wait for nothing: they are where their stream was last. */
static bool
only_notes(const struct sim_entry *entry)
{
	for (size_t i = 0; i < entry->ops_n; i++) {
		if (entry->ops[i].waits)
			return false;
	}
	return entry->kind == SIM_OPS ||
	       (entry->kind == SIM_MARK && entry->after_n == 0);
}

struct sim_queue *
sim_queue_of(const struct sim_stream *stream, const struct sim_entry *entry)
{
	if (entry->kind == SIM_COPY)
		return stream->copies;
	return only_notes(entry) ? stream->last : stream->queue;
}

bool
sim_reached_locked(struct sim_position position)
{
	return !position.stream || position.stream->ended >= position.seq;
}

void
sim_entry_free_locked(struct sim_entry *entry)
{
	for (size_t i = 0; i < entry->after_n; i++)
		sim_position_drop_locked(&entry->after[i]);
	for (size_t i = 0; i < entry->ops_n; i++)
		sim_block_release_locked(entry->ops[i].block);
	for (size_t i = 0; i < 2; i++)
		sim_block_release_locked(entry->blocks[i]);
	for (size_t i = 0; i < entry->reached_n; i++)
		sim_block_release_locked(entry->reached[i]);
	if (entry->kind == SIM_KERNEL && entry->kernel.gone)
		entry->kernel.gone(entry->kernel.data);
	if (entry->stream)
		sim_stream_unref_locked(entry->stream);
	free(entry->reached);
	free(entry->after);
	free(entry->ops);
	free(entry);
}

/* ---- host functions ---- */

static void
call_locked(struct sim_context *context, struct sim_entry *entry)
{
	if (context->error == BATONI_CU_SUCCESS && !entry->abandoned) {
		context->calling = true;
		pthread_mutex_unlock(&sim_lock);
		sim_set_inside(true);
		entry->function(entry->data);
		sim_set_inside(false);
		pthread_mutex_lock(&sim_lock);
		context->calling = false;
	}
	entry->over = true;
	sim.progress++;
	if (entry->abandoned)
		free(entry);
	pthread_cond_broadcast(&sim_changed);
}

static void *
caller_main(void *argument)
{
	struct sim_context *context = argument;
	struct sim_entry *entry;

	pthread_mutex_lock(&sim_lock);
	while (!sim.exiting) {
		entry = context->calls_head;
		if (!entry) {
			pthread_cond_wait(&context->calls, &sim_lock);
			continue;
		}
		context->calls_head = entry->called;
		call_locked(context, entry);
	}
	pthread_mutex_unlock(&sim_lock);
	return NULL;
}

static void
hand_over_locked(struct sim_context *context, struct sim_entry *entry)
{
	entry->handed = true;
	entry->called = NULL;
	if (context->calls_head)
		context->calls_tail->called = entry;
	else
		context->calls_head = entry;
	context->calls_tail = entry;
	pthread_cond_signal(&context->calls);
}

/* ---- running an entry ---- */

static void
fill_bytes(unsigned char *to, unsigned char byte, size_t bytes)
{
	memset(to, byte, bytes);
}

static bool
overlap(const struct sim_entry *entry)
{
	return entry->to < entry->from + entry->bytes &&
	       entry->from < entry->to + entry->bytes;
}

static void
move_bytes(const struct sim_entry *entry, unsigned late)
{
	if (entry->kind == SIM_SET) {
		fill_bytes(entry->to, entry->byte, entry->bytes);
		return;
	}
	if (late > 0 && !overlap(entry)) {
		fill_bytes(entry->to, 0xdd,
		           entry->bytes < RUBBISH ? entry->bytes : RUBBISH);
		simulator_nap(late);
	}
	memmove(entry->to, entry->from, entry->bytes);
}

static bool
run_bytes_locked(struct sim_entry *entry)
{
	unsigned late;

	if (entry->kind == SIM_COPY && !sim.set.copies) {
		sim_await_change_locked(0);
		return false;
	}
	late = sim_delay_locked(ENTRY_ODDS);
	if (entry->bytes == 0)
		return true;
	sim.running++;
	pthread_mutex_unlock(&sim_lock);
	move_bytes(entry, late);
	pthread_mutex_lock(&sim_lock);
	sim.running--;
	return true;
}

static bool
has_grown(const struct sim_op *op)
{
	uint64_t now = atomic_load_explicit(op->word, memory_order_acquire);

	return (int64_t)(now - op->value) >= 0;
}

/* The operations as far as they go.  true: to the end. */
static bool
run_ops_locked(struct sim_entry *entry)
{
	while (entry->ops_done < entry->ops_n) {
		struct sim_op *op = &entry->ops[entry->ops_done];

		if (!op->waits)
			atomic_store_explicit(op->word, op->value,
			                      memory_order_release);
		else if (!has_grown(op))
			return false;
		entry->ops_done++;
		entry->since = 0;
		sim.progress++;
	}
	return true;
}

/* Nap for a while that grows with the time the entry has waited. */
static void
nap_locked(struct sim_entry *entry)
{
	uint64_t now = sim_now_ns(), nap;

	if (entry->since == 0)
		entry->since = now;
	nap = (now - entry->since) / 4;
	nap = nap < NAP_MIN ? NAP_MIN : nap > NAP_MAX ? NAP_MAX : nap;
	sim_await_change_locked(now + nap);
}

/* After what its stream was given before it, in the queue of copies too. */
static bool
may_begin_locked(const struct sim_entry *entry)
{
	if (entry->stream->ended + 1 < entry->seq)
		return false;
	for (size_t i = 0; i < entry->after_n; i++) {
		if (!sim_reached_locked(entry->after[i]))
			return false;
	}
	return true;
}

/* As below, for a kernel. */
static bool
run_kernel_locked(struct sim_entry *entry)
{
	enum cudasim_step step = sim_kernel_step_locked(entry);

	if (step == CUDASIM_WAITS)
		nap_locked(entry);
	return step == CUDASIM_ENDED;
}

/* true: the entry has ended.  Else it waits, and has to be asked again after a change. */
static bool
run_locked(struct sim_queue *queue, struct sim_entry *entry)
{
	switch (entry->kind) {
	case SIM_MARK:
		return true;
	case SIM_COPY:
	case SIM_SET:
		return run_bytes_locked(entry);
	case SIM_OPS:
		if (run_ops_locked(entry))
			return true;
		nap_locked(entry);
		return false;
	case SIM_CALL:
		if (!entry->handed)
			hand_over_locked(queue->context, entry);
		if (!entry->over)
			sim_await_change_locked(0);
		return entry->over;
	case SIM_KERNEL:
		return run_kernel_locked(entry);
	}
	return true;
}

static void
pop_locked(struct sim_queue *queue)
{
	struct sim_entry *entry = queue->head;

	queue->head = entry->next;
	queue->entries--;
	/* Those of a context in error are dropped in any order. */
	if (entry->stream->ended < entry->seq)
		entry->stream->ended = entry->seq;
	sim.progress++;
	pthread_cond_broadcast(&sim_changed);
	if (!entry->handed || entry->over) {
		sim_entry_free_locked(entry);
		return;
	}
	/* Dropped while its function is called, or about to be. */
	sim_stream_unref_locked(entry->stream);
	for (size_t i = 0; i < entry->after_n; i++)
		sim_position_drop_locked(&entry->after[i]);
	free(entry->after);
	entry->abandoned = true;
}

/* The queue's first entry, a step further. */
static void
step_locked(struct sim_queue *queue)
{
	struct sim_entry *entry = queue->head;
	unsigned late;

	if (queue->context->error != BATONI_CU_SUCCESS) {
		pop_locked(queue);
	} else if (!entry->late) {
		entry->late = true;
		late = sim_delay_locked(ENTRY_ODDS);
		pthread_mutex_unlock(&sim_lock);
		if (late > 0)
			simulator_nap(late);
		pthread_mutex_lock(&sim_lock);
	} else if (!may_begin_locked(entry)) {
		sim_await_change_locked(0);
	} else {
		if (!entry->begun)
			sim.progress++;
		entry->begun = true;
		if (run_locked(queue, entry))
			pop_locked(queue);
	}
}

static void *
queue_main(void *argument)
{
	struct sim_queue *queue = argument;

	prctl(PR_SET_TIMERSLACK, 1000ul);
	pthread_mutex_lock(&sim_lock);
	while (!sim.exiting) {
		if (queue->head)
			step_locked(queue);
		else
			pthread_cond_wait(&queue->work, &sim_lock);
	}
	pthread_mutex_unlock(&sim_lock);
	return NULL;
}

/* ---- from outside ---- */

static CUresult
start_locked(struct sim_queue *queue, const struct sim_entry *entry)
{
	struct sim_context *context = queue->context;
	CUresult result = BATONI_CU_SUCCESS;

	if (!queue->started)
		result = sim_start_thread(queue_main, queue);
	queue->started |= result == BATONI_CU_SUCCESS;
	if (result == BATONI_CU_SUCCESS && entry->kind == SIM_CALL &&
	    !context->caller_started) {
		result = sim_start_thread(caller_main, context);
		context->caller_started = result == BATONI_CU_SUCCESS;
	}
	return result;
}

CUresult
sim_queue_put_locked(struct sim_entry *entry)
{
	struct sim_queue *queue = sim_queue_of(entry->stream, entry);
	CUresult result = start_locked(queue, entry);

	if (result != BATONI_CU_SUCCESS)
		return result;
	entry->next = NULL;
	if (queue->head)
		queue->tail->next = entry;
	else
		queue->head = entry;
	queue->tail = entry;
	queue->entries++;
	entry->stream->last = queue;
	pthread_cond_signal(&queue->work);
	return BATONI_CU_SUCCESS;
}

static bool
is_still_locked(const struct sim_queue *queue, bool in_functions)
{
	const struct sim_entry *entry = queue->head;

	if (!entry)
		return true;
	if (queue->context->error != BATONI_CU_SUCCESS || !entry->late)
		return false;
	if (!may_begin_locked(entry))
		return true;
	if (!entry->begun)
		return false;
	if (entry->kind == SIM_CALL)
		return in_functions && queue->context->calling;
	if (entry->kind == SIM_KERNEL)
		return sim_kernel_is_still_locked(entry);
	if (entry->kind == SIM_COPY)
		return !sim.set.copies && sim.running == 0;
	return entry->kind == SIM_OPS && !has_grown(&entry->ops[entry->ops_done]);
}

bool
sim_is_settled_locked(bool in_functions)
{
	for (unsigned i = 0; i < sim.contexts_n; i++) {
		struct sim_context *context = sim.contexts[i];

		for (unsigned p = 0; p < SIM_PRIORITIES; p++) {
			for (unsigned q = 0; q < SIM_QUEUES_MAX; q++) {
				if (!is_still_locked(&context->queues[p][q],
				                     in_functions) ||
				    !is_still_locked(&context->copies[p][q],
				                     in_functions))
					return false;
			}
		}
	}
	return true;
}

static bool
is_drained_locked(const struct sim_context *context)
{
	for (unsigned p = 0; p < SIM_PRIORITIES; p++) {
		for (unsigned q = 0; q < SIM_QUEUES_MAX; q++) {
			if (context->queues[p][q].head ||
			    context->copies[p][q].head)
				return false;
		}
	}
	return true;
}

void
sim_queues_drain_locked(struct sim_context *context)
{
	while (!is_drained_locked(context) && !sim.exiting)
		sim_await_change_locked(0);
}
