/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What stands around each call of the driver: the context and capture mode of the calling thread, and the sentences
 * for calls that have failed.
 *
 * Between enter and exit a thread of the program has the GPU's context as its current one; exit gives it its own
 * context back, and its capture mode.  The engine's thread, on which nothing of the program runs, stays in the context
 * until it needs another GPU.  Where a library may have changed its context (lend), or a call has failed (doubt), it
 * asks the driver again.
 *
 * Within a transaction (cuda_stream.c) enter and exit do nothing, for that GPU and thread.
 */
#include "cuda_gpu.h"

#include "clock.h"
#include "log.h"

void
batoni_cuda_restore_mode(const struct batoni_cuda_api *api,
                         CUstreamCaptureMode mode)
{
	CUstreamCaptureMode before = mode;

	/* The call touches no device, so one more try is enough. */
	if (api->capture_mode(&before) != BATONI_CU_SUCCESS)
		api->capture_mode(&mode);
}

/* The GPU in whose context the engine's thread is, with capture mode RELAXED; NULL: it is not
 * known.  Only that thread uses this.  A struct cuda_gpu is kept for good, and a GPU that was reset
 * has another one. */
static const struct cuda_gpu *stays_in;

/* The GPU in whose context a library needs the engine's thread; NULL: no library has the thread. */
static const struct cuda_gpu *lent_in;

/* Find the context of the engine's thread, which is not known. */
static CUresult
find_context(const struct cuda_gpu *gpu, CUcontext *current_p)
{
	CUstreamCaptureMode mode = BATONI_CU_CAPTURE_RELAXED;
	CUresult result = gpu->api->capture_mode(&mode);

	return result == BATONI_CU_SUCCESS
	               ? gpu->api->context_current(current_p)
	               : result;
}

/* Pop before the push, so that the stack of contexts does not grow.  If the pop fails, the context
 * is gone. */
static CUresult
exchange_context(const struct cuda_gpu *gpu, bool pops)
{
	CUcontext popped;

	if (pops)
		gpu->api->context_pop(&popped);
	return gpu->api->context_push(gpu->context);
}

static CUresult
stay(const struct cuda_gpu *gpu)
{
	const struct cuda_gpu *before = stays_in;
	CUresult result = BATONI_CU_SUCCESS;
	CUcontext current = NULL;

	if (before == gpu)
		return result;
	stays_in = NULL;
	if (!before)
		result = find_context(gpu, &current);
	if (result == BATONI_CU_SUCCESS && (before || current != gpu->context))
		result = exchange_context(gpu, before || current);
	if (result == BATONI_CU_SUCCESS)
		stays_in = gpu;
	return result;
}

void
batoni_cuda_doubt(void)
{
	if (batoni_thread.stays)
		stays_in = NULL;
}

void
batoni_cuda_lend(const struct cuda_gpu *gpu)
{
	if (batoni_thread.stays)
		lent_in = gpu;
}

/* Return the engine's thread to the library's context.  If that fails, the library's next call fails
 * and says so. */
static void
go_back(void)
{
	if (lent_in && stays_in != lent_in)
		stay(lent_in);
}

static CUresult
visit(const struct cuda_gpu *gpu, struct cuda_guard *guard)
{
	CUcontext current = NULL;
	CUresult result = gpu->api->capture_mode(&guard->mode);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = gpu->api->context_current(&current);
	if (result == BATONI_CU_SUCCESS && current != gpu->context) {
		result = gpu->api->context_push(gpu->context);
		guard->pushed = result == BATONI_CU_SUCCESS;
	}
	if (result != BATONI_CU_SUCCESS)
		batoni_cuda_restore_mode(gpu->api, guard->mode);
	return result;
}

_Thread_local const struct cuda_gpu *batoni_cuda_inside
	__attribute__((tls_model("initial-exec")));

CUresult
batoni_cuda_enter(const struct cuda_gpu *gpu, struct cuda_guard *guard)
{
	CUresult result;

	*guard = (struct cuda_guard){.stayed = false};
	if (gpu == batoni_cuda_inside)
		return BATONI_CU_SUCCESS;
	*guard = (struct cuda_guard){
		.mode = BATONI_CU_CAPTURE_RELAXED,
		.stayed = batoni_thread.stays && stays_in == gpu,
		.cancel_state = batoni_cancel_state_off(),
	};
	result = batoni_thread.stays ? stay(gpu) : visit(gpu, guard);
	if (result != BATONI_CU_SUCCESS)
		batoni_cancel_state_restore(&guard->cancel_state);
	return result;
}

void
batoni_cuda_exit(const struct cuda_gpu *gpu, const struct cuda_guard *guard)
{
	CUcontext popped;

	if (gpu == batoni_cuda_inside)
		return;
	if (guard->pushed)
		gpu->api->context_pop(&popped);
	if (batoni_thread.stays)
		go_back();
	else
		batoni_cuda_restore_mode(gpu->api, guard->mode);
	batoni_cancel_state_restore(&guard->cancel_state);
}

bool
batoni_cuda_exit_or_retry(const struct cuda_gpu *gpu,
                          const struct cuda_guard *guard, CUresult result)
{
	bool failed = result != BATONI_CU_SUCCESS &&
	              result != BATONI_CU_NOT_READY;

	batoni_cuda_exit(gpu, guard);
	if (failed)
		batoni_cuda_doubt();
	return failed && guard->stayed;
}

/* ---- calls that have failed ---- */

enum baton_status
batoni_cuda_refuse_by(const struct batoni_cuda_api *api, const char *call,
                      CUresult result)
{
	char text[160];

	batoni_cuda_describe(api, result, text, sizeof(text));
	return batoni_refuse(result == BATONI_CU_OUT_OF_MEMORY
	                             ? BATON_ERR_NOMEM
	                             : BATON_ERR_CUDA,
	                     "%s: %s", call, text);
}

enum baton_status
batoni_cuda_refuse(const struct cuda_gpu *gpu, const char *call, CUresult result)
{
	return batoni_cuda_refuse_by(gpu->api, call, result);
}

enum baton_status
batoni_cuda_refuse_late(const struct cuda_gpu *gpu, uint64_t begun_ns,
                        const char *what, const char *before)
{
	return batoni_refuse(
		BATON_ERR_TIMEOUT,
		"%s after %llu ms: the driver waits for the streams of CUDA "
		"device %d, and one of them waits for an operation, or for "
		"something of the program's own; %s before streams wait, or let "
		"them go on first",
		what,
		(unsigned long long)((batoni_real_ns() - begun_ns) / 1000000u),
		gpu->number, before);
}

static struct batoni_fault
fault_of(const struct cuda_gpu *gpu, const char *call, CUresult result)
{
	struct batoni_fault fault = {
		.call = call,
		.code = (int)result,
		.exiting = result == BATONI_CU_DEINITIALIZED,
	};

	batoni_cuda_describe(gpu->api, result, fault.text, sizeof(fault.text));
	return fault;
}

void
batoni_cuda_fail(struct cuda_gpu *gpu, const char *call, CUresult result)
{
	const struct batoni_fault fault = fault_of(gpu, call, result);

	pthread_mutex_lock(&gpu->lock);
	if (!atomic_load(&gpu->sick))
		gpu->fault = fault;
	atomic_store(&gpu->sick, true);
	pthread_mutex_unlock(&gpu->lock);
}

enum baton_status
batoni_cuda_note(struct cuda_gpu *gpu, const char *call, CUresult result)
{
	const struct batoni_fault fault = fault_of(gpu, call, result);

	pthread_mutex_lock(&gpu->lock);
	gpu->last = fault;
	pthread_mutex_unlock(&gpu->lock);
	return BATON_ERR_CUDA;
}
