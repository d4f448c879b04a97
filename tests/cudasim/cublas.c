/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of cuBLAS that samples/pipeline uses, over the simulated driver: a product is
 * a kernel on the stream, and computes when the stream gets to it.  So the sample's calls
 * (what it transposes, where its matrices are, when it waits) are tested where there is
 * no GPU.  Where CMake finds a real <cublas_v2.h>, the functions are
 * compiled beside it, so that they have cuBLAS's own prototypes.
 */
#include <stdlib.h>

#include "cudasim.h"

#ifdef HAVE_CUBLAS_HEADER
#include <cublas_v2.h>
#else
enum { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_INITIALIZED };
enum { CUBLAS_OP_N, CUBLAS_OP_T };
typedef int cublasStatus_t, cublasOperation_t;
typedef struct cublasContext *cublasHandle_t;
typedef CUstream cudaStream_t;
cublasStatus_t cublasCreate_v2(cublasHandle_t *handle_p);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t operation_a,
                              cublasOperation_t operation_b, int m, int n, int k,
                              const float *alpha, const float *a, int lda,
                              const float *b, int ldb, const float *beta, float *c,
                              int ldc);
const char *cublasGetStatusString(cublasStatus_t status);
#endif

struct cublasContext {
	const struct cudasim *cuda;
	CUstream stream;
};

/* One call: column-major, the leading dimensions are those of memory. */
struct gemm {
	bool transpose_a, transpose_b;
	size_t m, n, k, lda, ldb, ldc;
	float alpha, beta;
	struct cudasim_buffer buffers[3]; /* a, b, c */
};

static enum cudasim_step
multiply(void *data)
{
	const struct gemm *g = data;
	const float *a = (const float *)(const void *)g->buffers[0].reach;
	const float *b = (const float *)(const void *)g->buffers[1].reach;
	float *c = (float *)(void *)g->buffers[2].reach;

	for (size_t j = 0; j < g->n; j++)
		for (size_t i = 0; i < g->m; i++) {
			float sum = 0, *place = &c[j * g->ldc + i];

			for (size_t l = 0; l < g->k; l++)
				sum += a[g->transpose_a ? i * g->lda + l
				                        : l * g->lda + i] *
				       b[g->transpose_b ? l * g->ldb + j
				                        : j * g->ldb + l];
			/* Without beta it may be no number. */
			*place = g->alpha * sum +
			         (g->beta == 0 ? 0 : g->beta * *place);
		}
	return CUDASIM_ENDED;
}

static struct cudasim_buffer
buffer(const float *matrix, size_t ld, size_t columns)
{
	return (struct cudasim_buffer){.address = (CUdeviceptr)(uintptr_t)matrix,
	                               .bytes = ld * columns * sizeof(float)};
}

__attribute__((visibility("default"))) cublasStatus_t
cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t operation_a,
	       cublasOperation_t operation_b, int m, int n, int k, const float *alpha,
	       const float *a, int lda, const float *b, int ldb, const float *beta,
	       float *c, int ldc)
{
	struct gemm *g = malloc(sizeof(*g));
	struct cudasim_kernel kernel = {.step = multiply, .gone = free, .data = g};

	if (g == NULL)
		abort();
	*g = (struct gemm){
		.transpose_a = operation_a == CUBLAS_OP_T,
		.transpose_b = operation_b == CUBLAS_OP_T,
		.m = (size_t)m, .n = (size_t)n, .k = (size_t)k,
		.lda = (size_t)lda, .ldb = (size_t)ldb, .ldc = (size_t)ldc,
		.alpha = *alpha, .beta = *beta};
	g->buffers[0] = buffer(a, g->lda, g->transpose_a ? g->m : g->k);
	g->buffers[1] = buffer(b, g->ldb, g->transpose_b ? g->k : g->n);
	g->buffers[2] = buffer(c, g->ldc, g->n);
	kernel.buffers = g->buffers;
	kernel.buffers_n = 3;
	if (handle->cuda->launch(&handle->stream, 1, &kernel) == BATONI_CU_SUCCESS)
		return CUBLAS_STATUS_SUCCESS;
	free(g);
	return CUBLAS_STATUS_NOT_INITIALIZED;
}

__attribute__((visibility("default"))) cublasStatus_t
cublasCreate_v2(cublasHandle_t *handle_p)
{
	const struct cudasim *cuda = cudasim_load(NULL);
	cublasHandle_t handle = malloc(sizeof(*handle));

	if (cuda == NULL || cuda->launch == NULL || handle == NULL) {
		free(handle);
		return CUBLAS_STATUS_NOT_INITIALIZED;
	}
	handle->cuda = cuda;
	handle->stream = NULL;
	*handle_p = handle;
	return CUBLAS_STATUS_SUCCESS;
}

__attribute__((visibility("default"))) cublasStatus_t
cublasDestroy_v2(cublasHandle_t handle)
{
	free(handle);
	return CUBLAS_STATUS_SUCCESS;
}

__attribute__((visibility("default"))) cublasStatus_t
cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	return CUBLAS_STATUS_SUCCESS;
}

__attribute__((visibility("default"))) const char *
cublasGetStatusString(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_SUCCESS ? "success"
	                                       : "not over the simulator of the driver";
}
