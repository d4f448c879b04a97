/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream memory operations: waiting for words, and writing them. */
#include "sim.h"

enum { OPS_MAX = 255 };

static CUresult
read_op_locked(struct sim_context *context, const CUstreamBatchMemOpParams *from,
               struct sim_op *op)
{
	const struct CUstreamMemOpWaitValueParams_st *wait = &from->waitValue;
	CUresult result;

	/* Both kinds have the same layout. */
	if (wait->operation != BATONI_CU_OP_WAIT_64 &&
	    wait->operation != BATONI_CU_OP_WRITE_64)
		return BATONI_CU_NOT_SUPPORTED;
	if (wait->flags != 0)
		return BATONI_CU_NOT_SUPPORTED;
	op->waits = wait->operation == BATONI_CU_OP_WAIT_64;
	op->value = wait->value64;
	result = sim_word_locked(context, wait->address, op);
	if (result != BATONI_CU_SUCCESS)
		op->block = NULL;
	return result;
}

static CUresult
run_ops(enum sim_function function, CUstream handle, unsigned n,
        const CUstreamBatchMemOpParams *ops, unsigned flags)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, function, SIM_CONTEXT);
	struct sim_stream *stream;
	struct sim_entry *entry;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim.set.memops)
		return sim_leave(&call, BATONI_CU_NOT_SUPPORTED);
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result == BATONI_CU_SUCCESS &&
	    (n == 0 || n > OPS_MAX || flags != 0))
		result = BATONI_CU_INVALID_VALUE;
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	entry = sim_alloc(1, sizeof(*entry));
	entry->kind = SIM_OPS;
	entry->ops = sim_alloc(n, sizeof(*entry->ops));
	while (entry->ops_n < n && result == BATONI_CU_SUCCESS) {
		result = read_op_locked(call.context, &ops[entry->ops_n],
		                        &entry->ops[entry->ops_n]);
		entry->ops_n++;
	}
	if (result == BATONI_CU_SUCCESS)
		result = sim_submit_locked(&call, stream, entry, false, NULL);
	else
		sim_entry_free_locked(entry);
	return sim_leave(&call, result);
}

CUresult
cuStreamBatchMemOp_v2(CUstream handle, unsigned int n,
                      CUstreamBatchMemOpParams *ops, unsigned int flags)
{
	return run_ops(SIM_cuStreamBatchMemOp_v2, handle, n, ops, flags);
}

CUresult
cuStreamWaitValue64_v2(CUstream handle, CUdeviceptr address, cuuint64_t value,
                       unsigned int flags)
{
	CUstreamBatchMemOpParams op = {
		.waitValue = {.operation = BATONI_CU_OP_WAIT_64,
	                      .address = address,
	                      .value64 = value,
	                      .flags = flags},
	};

	return run_ops(SIM_cuStreamWaitValue64_v2, handle, 1, &op, 0);
}

CUresult
cuStreamWriteValue64_v2(CUstream handle, CUdeviceptr address, cuuint64_t value,
                        unsigned int flags)
{
	CUstreamBatchMemOpParams op = {
		.writeValue = {.operation = BATONI_CU_OP_WRITE_64,
	                       .address = address,
	                       .value64 = value,
	                       .flags = flags},
	};

	return run_ops(SIM_cuStreamWriteValue64_v2, handle, 1, &op, 0);
}
