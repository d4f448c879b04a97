/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two stages.
 *
 * A batch is one message: the list of tensors that the first half gives and the second
 * half takes.  Its tag is the batch's number, so that each of several receives that are
 * pending gets the batch that it is for.  The message says what it contains; the receive
 * declares what the second model takes, with the dimensions open that the model has
 * open, and the arena gets the rest.  Were the halves not of one model, the receive
 * would end in MISMATCH and name the tensor.
 *
 * Both stages have a few slots, one for each message that may be under way:
 *
 *   first    a slot has the results of a batch, from which Baton sends.  They are given
 *            back to ONNX Runtime when the send has ended, so the stage computes up to
 *            `in_flight` batches ahead of the slowest message.
 *   second   a slot has an arena and a pending receive.  The model reads its inputs in
 *            the arena; then the slot receives the batch that is `in_flight` later.
 *
 * All these operations are detached: the next one of the stream does not wait for them,
 * and the thread waits for a request when it needs its slot.
 *
 * Times: each stage adds up those of its runs.  The second stage says when it is ready
 * and takes the time from then to the end of its last batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline.h"

#define FIRST 0
#define SECOND 1
#define TOKENS 512 /* that the model knows; 0 is padding */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (memory == NULL) {
		fprintf(stderr, "onnx_pipeline: out of memory\n");
		_Exit(EXIT_FAILURE);
	}
	return memory;
}

/* ---- batches ------------------------------------------------------------ */

/* A batch depends on its number alone, so that both ranks can make it. */
struct batch {
	int rows, length;
	int64_t *tokens;
};

static unsigned draw(unsigned *state, unsigned below)
{
	*state = *state * 1664525u + 1013904223u;
	return (*state >> 8) % below;
}

static void batch_make(struct batch *batch, int number,
                       const struct options *options)
{
	unsigned state = (unsigned)number * 2654435761u + 1;
	int used;

	batch->rows = 1 + (int)draw(&state, (unsigned)options->rows);
	batch->length = 1 + (int)draw(&state, (unsigned)options->length);
	for (int row = 0; row < batch->rows; row++) {
		used = 1 + (int)draw(&state, (unsigned)batch->length);
		for (int i = 0; i < batch->length; i++)
			*batch->tokens++ =
				i < used ? 1 + (int)draw(&state, TOKENS - 1)
				         : 0;
	}
	batch->tokens -= batch->rows * batch->length;
}

static void batch_init(struct batch *batch, const struct options *options)
{
	batch->tokens = allocate((size_t)options->rows * (size_t)options->length,
	                         sizeof(*batch->tokens));
}

static struct baton_tensor batch_tensor(const struct batch *batch)
{
	return (struct baton_tensor){ .data = batch->tokens,
		                      .type = BATON_INT64,
		                      .rank = 2,
		                      .shape = { batch->rows, batch->length } };
}

/* ---- the first stage ---------------------------------------------------- */

struct sent {
	baton_request request; /* null: the slot is free */
	struct result result;
};

static void sent_finish(struct baton_comm *comm, struct sent *sent)
{
	if (sent->request == BATON_REQUEST_NULL)
		return;
	finish(comm, &sent->request, NULL);
	sent->request = BATON_REQUEST_NULL;
	result_free(&sent->result);
}

static double first_batches(struct baton_comm *comm, baton_stream stream,
                            const struct options *options,
                            struct model *model, struct sent *slots)
{
	struct baton_tensors_options detached = BATON_TENSORS_OPTIONS_INIT;
	struct batch batch;
	double computed = 0;

	detached.op.flags = BATON_OP_DETACHED;
	batch_init(&batch, options);
	for (int number = 0; number < options->batches; number++) {
		struct sent *sent = &slots[number % options->in_flight];
		struct baton_tensor tokens;
		double began;

		sent_finish(comm, sent);
		batch_make(&batch, number, options);
		tokens = batch_tensor(&batch);
		began = now();
		model_run(model, &tokens, &sent->result);
		computed += now() - began;
		CHECK(comm, baton_send_tensors(sent->result.tensors,
		                               sent->result.count, SECOND,
		                               number, comm, stream, &detached,
		                               &sent->request));
	}
	free(batch.tokens);
	return computed;
}

void stage_first(struct baton_comm *comm, const struct options *options)
{
	struct sent *slots =
		allocate((size_t)options->in_flight, sizeof(*slots));
	struct model model;
	baton_stream stream;
	baton_request request;
	double computed;
	int last = options->batches;

	CHECK(comm, baton_stream_create(comm, &stream));
	model_open(&model, options->models, "first");
	CHECK(comm, baton_recv(NULL, 0, BATON_UINT8, SECOND, last, comm, stream,
	                       NULL, &request));
	finish(comm, &request, NULL);
	computed = first_batches(comm, stream, options, &model, slots);
	for (int i = 0; i < options->in_flight; i++)
		sent_finish(comm, &slots[i]);
	CHECK(comm, baton_send(&computed, 1, BATON_FLOAT64, SECOND, last, comm,
	                       stream, NULL, &request));
	finish(comm, &request, NULL);
	model_close(&model);
	CHECK(comm, baton_stream_destroy(comm, stream));
	free(slots);
}

/* ---- the second stage --------------------------------------------------- */

struct received {
	baton_request request;
	void *arena;
	struct baton_tensor tensors[TENSORS_MAX];
};

struct second {
	struct baton_comm *comm;
	baton_stream stream;
	const struct options *options;
	struct model model;
	struct received *slots;
	size_t arena_bytes;
	struct result *results; /* of each batch */
};

/* What a batch of the largest size takes in an arena. */
static size_t largest(const struct second *second)
{
	const struct options *options = second->options;
	struct baton_tensor tensors[TENSORS_MAX];
	size_t bytes;

	for (size_t i = 0; i < second->model.inputs; i++) {
		const struct place *place = &second->model.input[i];
		tensors[i] = place->tensor;
		for (int j = 0; j < tensors[i].rank; j++) {
			if (tensors[i].shape[j] >= 0)
				continue;
			tensors[i].shape[j] =
				strcmp(place->open[j], "rows") == 0
					? options->rows
					: options->length;
		}
	}
	bytes = baton_tensors_layout(tensors, second->model.inputs, NULL);
	if (bytes == SIZE_MAX)
		CHECK(second->comm, BATON_ERR_INVALID);
	return bytes;
}

static void receive(struct second *second, int number)
{
	struct baton_tensors_options into = BATON_TENSORS_OPTIONS_INIT;
	struct received *received =
		&second->slots[number % second->options->in_flight];

	/* What came there before has filled in its shapes. */
	for (size_t i = 0; i < second->model.inputs; i++)
		received->tensors[i] = second->model.input[i].tensor;
	into.op.flags = BATON_OP_DETACHED;
	into.arena = received->arena;
	into.arena_bytes = second->arena_bytes;
	CHECK(second->comm,
	      baton_recv_tensors(received->tensors, second->model.inputs, FIRST,
	                         number, second->comm, second->stream, &into,
	                         &received->request));
}

static void second_init(struct second *second)
{
	size_t slots = (size_t)second->options->in_flight;

	model_open(&second->model, second->options->models, "second");
	second->results = allocate((size_t)second->options->batches,
	                           sizeof(*second->results));
	second->slots = allocate(slots, sizeof(*second->slots));
	second->arena_bytes = largest(second);
	for (size_t i = 0; i < slots; i++)
		second->slots[i].arena = allocate(second->arena_bytes, 1);
	for (int i = 0; i < second->options->in_flight; i++)
		if (i < second->options->batches)
			receive(second, i);
}

static void second_fini(struct second *second)
{
	for (int i = 0; i < second->options->batches; i++)
		result_free(&second->results[i]);
	for (int i = 0; i < second->options->in_flight; i++)
		free(second->slots[i].arena);
	free(second->slots);
	free(second->results);
	model_close(&second->model);
}

static void second_batches(struct second *second, struct report *report)
{
	const struct options *options = second->options;

	for (int number = 0; number < options->batches; number++) {
		struct received *received =
			&second->slots[number % options->in_flight];
		struct baton_completion came;
		double began;

		finish(second->comm, &received->request, &came);
		report->bytes += came.bytes;
		began = now();
		model_run(&second->model, received->tensors,
		          &second->results[number]);
		report->second += now() - began;
		if (number + options->in_flight < options->batches)
			receive(second, number + options->in_flight);
	}
}

/* ---- the unsplit model -------------------------------------------------- */

static bool equal(const struct result *a, const struct result *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct baton_tensor *one = &a->tensors[i];
		const struct baton_tensor *other = &b->tensors[i];

		if (one->type != other->type || one->rank != other->rank ||
		    memcmp(one->shape, other->shape,
		           (size_t)one->rank * sizeof(one->shape[0])) != 0 ||
		    memcmp(one->data, other->data, tensor_bytes(one)) != 0)
			return false;
	}
	return true;
}

/* It computes each batch from the tokens, in this process, without Baton. */
static void compare(const struct second *second, struct report *report)
{
	const struct options *options = second->options;
	struct model whole;
	struct result result;
	struct batch batch;

	model_open(&whole, options->models, "whole");
	batch_init(&batch, options);
	for (int number = 0; number < options->batches; number++) {
		struct baton_tensor tokens;
		double began;

		batch_make(&batch, number, options);
		tokens = batch_tensor(&batch);
		began = now();
		model_run(&whole, &tokens, &result);
		report->whole += now() - began;
		report->rows += batch.rows;
		if (!equal(&result, &second->results[number])) {
			report->differ++;
			fprintf(stderr, "batch %d is not what the unsplit model "
			        "makes of it\n", number);
		}
		result_free(&result);
	}
	free(batch.tokens);
	model_close(&whole);
}

/* ---- the second stage's report ------------------------------------------ */

static void append(char *text, size_t bytes, const char *name,
                   const char *value)
{
	size_t used = strlen(text);

	snprintf(text + used, bytes - used, "%s%s%s%s", used > 0 ? ", " : "",
	         name, value[0] != '\0' ? " " : "", value);
}

static void name_tensors(const struct model *model, struct report *report)
{
	char text[128];

	report->count = model->inputs;
	for (size_t i = 0; i < model->inputs; i++) {
		place_text(&model->input[i], text, sizeof(text));
		append(report->tensors, sizeof(report->tensors),
		       model->input[i].name, text);
	}
	for (size_t i = 0; i < model->outputs; i++)
		append(report->outputs, sizeof(report->outputs),
		       model->output[i].name, "");
}

void stage_second(struct baton_comm *comm, const struct options *options,
                  struct report *report)
{
	struct second second = { .comm = comm, .options = options };
	baton_request request;
	double began;
	int last = options->batches;

	*report = (struct report){ 0 };
	CHECK(comm, baton_stream_create(comm, &second.stream));
	second_init(&second);
	began = now();
	CHECK(comm, baton_send(NULL, 0, BATON_UINT8, FIRST, last, comm,
	                       second.stream, NULL, NULL));
	second_batches(&second, report);
	report->both = now() - began;
	CHECK(comm, baton_recv(&report->first, 1, BATON_FLOAT64, FIRST, last,
	                       comm, second.stream, NULL, &request));
	finish(comm, &request, NULL);
	compare(&second, report);
	name_tensors(&second.model, report);
	second_fini(&second);
	CHECK(comm, baton_stream_destroy(comm, second.stream));
}
