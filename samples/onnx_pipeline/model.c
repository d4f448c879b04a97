/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of ONNX Runtime, through its C API.
 *
 * Nothing is copied between the two libraries: a run reads its inputs where Baton has put
 * them, and what it gives is sent from where ONNX Runtime has it.
 *
 * Graphs are not optimised, and each run takes one thread: then both halves call the same
 * kernels for the same shapes as the unsplit model, and their results are the same to
 * the last bit.  (An optimiser may fuse operators, and not the same ones behind a cut.)
 *
 * The API and the environment are one for the process, set before any thread starts.
 */
#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

static struct {
	struct baton_comm *comm;
	const OrtApi *api;
	OrtEnv *environment;
	OrtMemoryInfo *memory; /* the processor's */
} runtime;

static _Noreturn void fail(const char *call, const char *why)
{
	fprintf(stderr, "onnx_pipeline: ONNX Runtime %s: %s: %s\n",
	        runtime_version(), call, why);
	baton_comm_abort(runtime.comm);
	_Exit(EXIT_FAILURE);
}

static void check(const char *call, OrtStatus *status)
{
	if (status != NULL)
		fail(call, runtime.api->GetErrorMessage(status));
}

#define ORT(function, ...)                                                    \
	check(#function, runtime.api->function(__VA_ARGS__))

const char *runtime_version(void)
{
	return OrtGetApiBase()->GetVersionString();
}

void runtime_open(struct baton_comm *comm)
{
	runtime.comm = comm;
	runtime.api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
	if (runtime.api == NULL)
		fail("GetApi", "the library is older than the header that this "
		               "program was compiled with");
	ORT(CreateEnv, ORT_LOGGING_LEVEL_WARNING, "onnx_pipeline",
	    &runtime.environment);
	ORT(CreateCpuMemoryInfo, OrtArenaAllocator, OrtMemTypeDefault,
	    &runtime.memory);
}

void runtime_close(void)
{
	runtime.api->ReleaseMemoryInfo(runtime.memory);
	runtime.api->ReleaseEnv(runtime.environment);
}

/* ---- types -------------------------------------------------------------- */

/* ONNX has strings and complex numbers too, which Baton's tensors have not. */
static const struct {
	ONNXTensorElementDataType onnx;
	enum baton_datatype baton;
	const char *name;
} types[] = {
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, BATON_INT8, "int8" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, BATON_UINT8, "uint8" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, BATON_INT16, "int16" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, BATON_UINT16, "uint16" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, BATON_INT32, "int32" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, BATON_UINT32, "uint32" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, BATON_INT64, "int64" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, BATON_UINT64, "uint64" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, BATON_FLOAT16, "float16" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, BATON_BFLOAT16, "bfloat16" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, BATON_FLOAT32, "float32" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, BATON_FLOAT64, "float64" },
	{ ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, BATON_BOOL, "bool" },
};
#define TYPES (sizeof(types) / sizeof(types[0]))

static enum baton_datatype from_onnx(ONNXTensorElementDataType onnx)
{
	for (size_t i = 0; i < TYPES; i++)
		if (types[i].onnx == onnx)
			return types[i].baton;
	fail("a tensor", "its type is none that Baton sends");
}

static size_t row_of(enum baton_datatype type)
{
	size_t i = 0;

	while (i < TYPES - 1 && types[i].baton != type)
		i++;
	return i;
}

/* Type and shape, of a model's input or output, or of a value. */
static void describe(const OrtTensorTypeAndShapeInfo *info,
                     struct baton_tensor *tensor)
{
	ONNXTensorElementDataType type;
	size_t rank;

	ORT(GetTensorElementType, info, &type);
	ORT(GetDimensionsCount, info, &rank);
	if (rank > BATON_TENSOR_RANK_MAX)
		fail("a tensor", "it has more than 8 dimensions");
	tensor->type = from_onnx(type);
	tensor->rank = (int)rank;
	ORT(GetDimensions, info, tensor->shape, rank);
}

size_t tensor_bytes(const struct baton_tensor *tensor)
{
	size_t bytes = baton_datatype_size(tensor->type);

	for (int i = 0; i < tensor->rank; i++)
		bytes *= (size_t)tensor->shape[i];
	return bytes;
}

void place_text(const struct place *place, char *text, size_t bytes)
{
	const struct baton_tensor *tensor = &place->tensor;
	size_t used;

	snprintf(text, bytes, "%s [", types[row_of(tensor->type)].name);
	for (int i = 0; i < tensor->rank; i++) {
		used = strlen(text);
		if (tensor->shape[i] < 0)
			snprintf(text + used, bytes - used, "%s%s",
			         i > 0 ? ", " : "", place->open[i]);
		else
			snprintf(text + used, bytes - used, "%s%lld",
			         i > 0 ? ", " : "",
			         (long long)tensor->shape[i]);
	}
	used = strlen(text);
	snprintf(text + used, bytes - used, "]");
}

/* ---- models ------------------------------------------------------------- */

typedef OrtStatus *(*name_fn)(const OrtSession *session, size_t index,
                              OrtAllocator *allocator, char **name_p);
typedef OrtStatus *(*type_fn)(const OrtSession *session, size_t index,
                              OrtTypeInfo **type_p);

static void describe_place(const OrtSession *session, size_t index,
                           name_fn name_of, type_fn type_of,
                           struct place *place)
{
	const OrtTensorTypeAndShapeInfo *info;
	const char *open[BATON_TENSOR_RANK_MAX] = { NULL };
	OrtAllocator *allocator;
	OrtTypeInfo *type;
	char *name;

	ORT(GetAllocatorWithDefaultOptions, &allocator);
	check("SessionGetName", name_of(session, index, allocator, &name));
	snprintf(place->name, sizeof(place->name), "%s", name);
	ORT(AllocatorFree, allocator, name);

	check("SessionGetTypeInfo", type_of(session, index, &type));
	ORT(CastTypeInfoToTensorInfo, type, &info);
	if (info == NULL)
		fail(place->name, "it is no tensor");
	describe(info, &place->tensor);
	ORT(GetSymbolicDimensions, info, open, (size_t)place->tensor.rank);
	for (int i = 0; i < place->tensor.rank; i++)
		snprintf(place->open[i], sizeof(place->open[i]), "%s", open[i]);
	runtime.api->ReleaseTypeInfo(type);
}

static size_t describe_places(const OrtSession *session, size_t count,
                              name_fn name_of, type_fn type_of,
                              struct place *places)
{
	if (count > TENSORS_MAX)
		fail("a model", "it takes or gives more than 16 tensors");
	for (size_t i = 0; i < count; i++)
		describe_place(session, i, name_of, type_of, &places[i]);
	return count;
}

void model_open(struct model *model, const char *folder, const char *name)
{
	OrtSessionOptions *options;
	size_t count;
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s.onnx", folder, name);
	ORT(CreateSessionOptions, &options);
	ORT(SetSessionGraphOptimizationLevel, options, ORT_DISABLE_ALL);
	ORT(SetIntraOpNumThreads, options, 1);
	ORT(CreateSession, runtime.environment, path, options, &model->session);
	runtime.api->ReleaseSessionOptions(options);

	ORT(SessionGetInputCount, model->session, &count);
	model->inputs = describe_places(model->session, count,
	                                runtime.api->SessionGetInputName,
	                                runtime.api->SessionGetInputTypeInfo,
	                                model->input);
	ORT(SessionGetOutputCount, model->session, &count);
	model->outputs = describe_places(model->session, count,
	                                 runtime.api->SessionGetOutputName,
	                                 runtime.api->SessionGetOutputTypeInfo,
	                                 model->output);
}

void model_close(struct model *model)
{
	runtime.api->ReleaseSession(model->session);
}

/* The tensor as ONNX Runtime's own, over the same memory. */
static OrtValue *borrow(const struct baton_tensor *tensor)
{
	ONNXTensorElementDataType type = types[row_of(tensor->type)].onnx;
	OrtValue *value;

	ORT(CreateTensorWithDataAsOrtValue, runtime.memory, tensor->data,
	    tensor_bytes(tensor), tensor->shape, (size_t)tensor->rank, type,
	    &value);
	return value;
}

static void describe_value(OrtValue *value, struct baton_tensor *tensor)
{
	OrtTensorTypeAndShapeInfo *info;

	ORT(GetTensorTypeAndShape, value, &info);
	describe(info, tensor);
	runtime.api->ReleaseTensorTypeAndShapeInfo(info);
	ORT(GetTensorMutableData, value, &tensor->data);
}

void model_run(struct model *model, const struct baton_tensor *inputs,
               struct result *result)
{
	const char *input_names[TENSORS_MAX], *output_names[TENSORS_MAX];
	const OrtValue *values[TENSORS_MAX];
	OrtValue *borrowed[TENSORS_MAX];

	for (size_t i = 0; i < model->inputs; i++) {
		input_names[i] = model->input[i].name;
		values[i] = borrowed[i] = borrow(&inputs[i]);
	}
	for (size_t i = 0; i < model->outputs; i++) {
		output_names[i] = model->output[i].name;
		result->values[i] = NULL; /* it allocates */
	}
	ORT(Run, model->session, NULL, input_names, values, model->inputs,
	    output_names, model->outputs, result->values);
	for (size_t i = 0; i < model->inputs; i++)
		runtime.api->ReleaseValue(borrowed[i]);
	result->count = model->outputs;
	for (size_t i = 0; i < result->count; i++)
		describe_value(result->values[i], &result->tensors[i]);
}

void result_free(struct result *result)
{
	for (size_t i = 0; i < result->count; i++)
		runtime.api->ReleaseValue(result->values[i]);
	result->count = 0;
}
