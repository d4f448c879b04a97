/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The three matrix products of a layer, by one of two libraries:
 *
 *   OpenBLAS  on the host, one thread
 *   cuBLAS    on the communicator's CUDA device, loaded at run time: so the sample
 *             is built without CUDA
 *
 * With cuBLAS the weights and the sums of their gradients stay on the device between
 * updates.  Values go in before a product and come out after it, since all that is
 * done to them one by one (biases, rectifier, loss) stays on the host.  That is simple,
 * and no way to be fast.
 *
 * The choice is the process's, as OpenBLAS's number of threads is: the stages of a
 * rank, the one that trains alone included, must compute the same bits.  cuBLAS gives
 * the same bits for the same product on GPUs of one kind while one stream is used.
 */
#include <cblas.h>
#include <dlfcn.h>
#include <string.h>

#include "pipeline.h"

/* Row-major: c (rows x columns) = a (rows x inner) times b (inner x columns), plus what
 * c has if `adds`.  A transposed one is stored the other way round. */
struct product {
	bool transpose_a, transpose_b, adds;
	int rows, columns, inner;
};

static int width_a(const struct product *p)
{
	return p->transpose_a ? p->rows : p->inner;
}

static int width_b(const struct product *p)
{
	return p->transpose_b ? p->inner : p->columns;
}

/* ---- cuBLAS: what is used of it ----------------------------------------- */

enum { OP_NONE = 0, OP_TRANSPOSE = 1 }; /* cublasOperation_t */

static struct {
	struct device *device; /* NULL: OpenBLAS */
	void *library, *handle;
	int (*create)(void **handle_p);
	int (*destroy)(void *handle);
	int (*set_stream)(void *handle, void *stream);
	int (*sgemm)(void *handle, int operation_a, int operation_b, int m, int n,
	             int k, const float *alpha, const float *a, int lda,
	             const float *b, int ldb, const float *beta, float *c,
	             int ldc);
	const char *(*text)(int status);
	void *values[2]; /* on the device, as large as a layer's values can be */
} cublas;

static bool find(const char *name, void *function_p)
{
	void *function = dlsym(cublas.library, name);

	memcpy(function_p, &function, sizeof(function));
	return function != NULL;
}

/* NULL: it is there, else what is wrong. */
static const char *load(const char *file)
{
	static const char *const names[] = { "libcublas.so.13", "libcublas.so.12" };

	if (file != NULL)
		cublas.library = dlopen(file, RTLD_NOW);
	for (int i = 0; file == NULL && cublas.library == NULL && i < 2; i++)
		cublas.library = dlopen(names[i], RTLD_NOW);
	if (cublas.library == NULL ||
	    !find("cublasCreate_v2", &cublas.create) ||
	    !find("cublasDestroy_v2", &cublas.destroy) ||
	    !find("cublasSetStream_v2", &cublas.set_stream) ||
	    !find("cublasSgemm_v2", &cublas.sgemm) ||
	    !find("cublasGetStatusString", &cublas.text))
		return dlerror();
	return NULL;
}

static const char *begin(struct device *device)
{
	int status;

	device_enter(device);
	status = cublas.create(&cublas.handle);
	if (status == 0)
		status = cublas.set_stream(cublas.handle, device_stream(device));
	device_leave(device);
	return status == 0 ? NULL : cublas.text(status);
}

static void unload(void)
{
	if (cublas.handle != NULL) {
		device_enter(cublas.device);
		cublas.destroy(cublas.handle);
		device_leave(cublas.device);
	}
	device_close(cublas.device);
	if (cublas.library != NULL)
		dlclose(cublas.library);
	memset(&cublas, 0, sizeof(cublas));
}

/* cuBLAS's matrices are column-major, in which the same bytes are the transposes: it is
 * asked for c' = b' a'. */
static void multiply_there(const struct product *p, const void *a, const void *b,
                           void *c)
{
	const float one = 1.0f, beta = p->adds ? 1.0f : 0.0f;
	int status;

	device_enter(cublas.device);
	status = cublas.sgemm(cublas.handle,
	                      p->transpose_b ? OP_TRANSPOSE : OP_NONE,
	                      p->transpose_a ? OP_TRANSPOSE : OP_NONE,
	                      p->columns, p->rows, p->inner, &one, b, width_b(p),
	                      a, width_a(p), &beta, c, p->columns);
	device_leave(cublas.device);
	if (status == 0)
		return;
	fprintf(stderr, "pipeline: cublasSgemm_v2: %s\n", cublas.text(status));
	exit(EXIT_FAILURE);
}

/* The values, in one of the two places on the device. */
static void *put(int place, const float *values, int rows, int width)
{
	device_copy(cublas.device, cublas.values[place], values,
	            (size_t)rows * (size_t)width * sizeof(float));
	return cublas.values[place];
}

static void take(int place, float *values, int rows, int width)
{
	device_copy(cublas.device, values, cublas.values[place],
	            (size_t)rows * (size_t)width * sizeof(float));
}

/* ---- OpenBLAS ----------------------------------------------------------- */

static void multiply_here(const struct product *p, const float *a, const float *b,
                          float *c)
{
	cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans,
	            p->transpose_b ? CblasTrans : CblasNoTrans, p->rows,
	            p->columns, p->inner, 1.0f, a, width_a(p), b, width_b(p),
	            p->adds ? 1.0f : 0.0f, c, p->columns);
}

/* ---- the choice --------------------------------------------------------- */

static void places_init(const struct options *options)
{
	int widest = options->hidden > PIXELS ? options->hidden : PIXELS;
	int rows = options->batch / options->micro_batches;

	for (int i = 0; i < 2; i++)
		cublas.values[i] = device_alloc(cublas.device,
		                                (size_t)rows * (size_t)widest *
		                                        sizeof(float));
}

bool products_open(struct baton_comm *comm, const struct options *options)
{
	const char *driver = getenv("BATON_CUDA_LIBRARY"), *why;

	openblas_set_num_threads(1);
	/* cuBLAS knows no other driver than NVIDIA's. */
	if (options->cublas == NULL && driver != NULL && *driver != '\0')
		return false;
	if (options->cublas != NULL && strcmp(options->cublas, "none") == 0)
		return false;
	cublas.device = device_open(comm);
	if (cublas.device == NULL && options->cublas == NULL)
		return false;
	if (cublas.device == NULL)
		why = "the communicator is not on a CUDA device";
	else
		why = load(options->cublas);
	if (why == NULL)
		why = begin(cublas.device);
	if (why == NULL) {
		places_init(options);
		return true;
	}
	fprintf(stderr, "pipeline: rank %d: no cuBLAS: %s\n",
	        baton_comm_rank(comm), why);
	unload();
	return false;
}

void products_close(void)
{
	for (int i = 0; cublas.device != NULL && i < 2; i++)
		device_free(cublas.device, cublas.values[i]);
	unload();
}

const char *products_name(void)
{
	return cublas.device != NULL ? "cuBLAS on the device"
	                             : "OpenBLAS on the host, one thread";
}

/* ---- a layer ------------------------------------------------------------ */

/* Bytes of the weights, which the biases follow. */
static size_t matrix_bytes(const struct layer *layer)
{
	return (size_t)layer->inputs * (size_t)layer->outputs * sizeof(float);
}

void products_place(struct layer *layer)
{
	if (cublas.device == NULL)
		return;
	layer->device_weights = device_alloc(cublas.device, matrix_bytes(layer));
	layer->device_gradient = device_alloc(cublas.device, matrix_bytes(layer));
	products_updated(layer);
}

void products_displace(struct layer *layer)
{
	if (cublas.device == NULL)
		return;
	device_free(cublas.device, layer->device_weights);
	device_free(cublas.device, layer->device_gradient);
}

void products_forward(const struct layer *layer, int rows, const float *from,
                      float *to)
{
	const struct product p = { .rows = rows, .columns = layer->outputs,
		                   .inner = layer->inputs };

	if (cublas.device == NULL) {
		multiply_here(&p, from, layer->weights, to);
		return;
	}
	multiply_there(&p, put(0, from, rows, layer->inputs),
	               layer->device_weights, cublas.values[1]);
	take(1, to, rows, layer->outputs);
}

void products_gradient(struct layer *layer, int rows, const float *from,
                       const float *above)
{
	const struct product p = { .transpose_a = true, .adds = true,
		                   .rows = layer->inputs,
		                   .columns = layer->outputs, .inner = rows };

	if (cublas.device == NULL)
		multiply_here(&p, from, above, layer->gradient);
	else
		multiply_there(&p, put(0, from, rows, layer->inputs),
		               put(1, above, rows, layer->outputs),
		               layer->device_gradient);
}

void products_backward(const struct layer *layer, int rows, const float *above,
                       float *below)
{
	const struct product p = { .transpose_b = true, .rows = rows,
		                   .columns = layer->inputs,
		                   .inner = layer->outputs };

	if (cublas.device == NULL) {
		multiply_here(&p, above, layer->weights, below);
		return;
	}
	multiply_there(&p, put(1, above, rows, layer->outputs),
	               layer->device_weights, cublas.values[0]);
	take(0, below, rows, layer->inputs);
}

void products_summed(struct layer *layer)
{
	if (cublas.device != NULL)
		device_copy(cublas.device, layer->gradient,
		            layer->device_gradient, matrix_bytes(layer));
}

void products_updated(struct layer *layer)
{
	if (cublas.device == NULL)
		return;
	device_copy(cublas.device, layer->device_weights, layer->weights,
	            matrix_bytes(layer));
	device_copy(cublas.device, layer->device_gradient, layer->gradient,
	            matrix_bytes(layer));
}
