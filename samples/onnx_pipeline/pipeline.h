/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sample's parts.
 *
 *   model.c    a model of ONNX Runtime: what it takes and gives, as lists of tensors
 *   stages.c   the two stages, and the unsplit model beside them
 *   main.c     options, ranks, and what is said in the end
 *
 * Where anything fails, a part says so and ends the program at once: the other stage's thread
 * may be in ONNX Runtime, whose destructors an exit would run.
 */
#ifndef ONNX_PIPELINE_H
#define ONNX_PIPELINE_H

#define CHECK_EXIT _Exit
#include "../check.h"

/* ---- models ------------------------------------------------------------- */

#define TENSORS_MAX 16 /* that a model takes, and gives */
#define NAME_MAX_BYTES 64

/* What a model takes or gives: open dimensions are -1, and have names. */
struct place {
	char name[NAME_MAX_BYTES];
	struct baton_tensor tensor;
	char open[BATON_TENSOR_RANK_MAX][NAME_MAX_BYTES];
};

struct model {
	struct OrtSession *session;
	size_t inputs, outputs;
	struct place input[TENSORS_MAX], output[TENSORS_MAX];
};

/* What one run has given.  The tensors lie in memory of ONNX Runtime. */
struct result {
	size_t count;
	struct OrtValue *values[TENSORS_MAX];
	struct baton_tensor tensors[TENSORS_MAX];
};

/* Before any model, and after all.  The communicator is aborted where anything fails, so that the
 * other rank's process is not waited for. */
void runtime_open(struct baton_comm *comm);
void runtime_close(void);
const char *runtime_version(void);

/* From FOLDER/NAME.onnx. */
void model_open(struct model *model, const char *folder, const char *name);
void model_close(struct model *model);

/* Run it.  The inputs are read where they lie.  Any thread, one at a time for a model. */
void model_run(struct model *model, const struct baton_tensor *inputs,
               struct result *result);
void result_free(struct result *result);

size_t tensor_bytes(const struct baton_tensor *tensor);
/* "float32 [rows, length, 128]" */
void place_text(const struct place *place, char *text, size_t bytes);

/* ---- stages ------------------------------------------------------------- */

struct options {
	const char *models; /* the folder of the .onnx files */
	int batches;
	int in_flight; /* messages that are under way at most */
	int rows;      /* of a batch, at most */
	int length;    /* of a row, at most */
};

/* What the second stage knows in the end. */
struct report {
	double first, second; /* seconds in the halves, of all batches together */
	double both;          /* from the first batch's beginning to the last one's end */
	double whole;         /* seconds in the unsplit model */
	long rows;
	int differ; /* batches whose outputs are not the unsplit model's */
	size_t bytes; /* of the tensors that went across */
	size_t count; /* of them, in a batch */
	char tensors[512]; /* their names, types and shapes */
	char outputs[128]; /* the names of what was compared */
};

/* Rank 0 runs the first half, rank 1 the second, which compares and fills the report. */
void stage_first(struct baton_comm *comm, const struct options *options);
void stage_second(struct baton_comm *comm, const struct options *options,
                  struct report *report);

#endif
