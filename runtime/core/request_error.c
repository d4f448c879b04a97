/* SPDX-License-Identifier: BSD-3-Clause */
/* Why an operation failed, and why a handle is refused, in words. */
#include "request.h"

#include <stdio.h>
#include <string.h>

#include "crowd.h"
#include "datatype.h"
#include "describe.h"
#include "log.h"

/* The slow path: say why the look-up failed. */
enum baton_status
batoni_refuse_handle(const char *call, baton_request request)
{
	if (request == BATON_REQUEST_NULL)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: request is BATON_REQUEST_NULL", call);
	return batoni_refuse(BATON_ERR_STALE,
	                     "%s: request 0x%llx was released, or its "
	                     "communicator is gone",
	                     call, (unsigned long long)request);
}

/* Was the operation refused by checked mode?  Then it is the receive, or the launch of one, whose
 * type is not that of the message, which has `came` bytes. */
static bool
explain_type(const struct batoni_op *op, size_t came, char *text, size_t size)
{
	const struct batoni_transfer *receive = &op->transfer;
	int theirs = op->status == BATON_ERR_MISMATCH
	                     ? batoni_op_refused_type(op)
	                     : -1;

	if (theirs < 0)
		return false;
	snprintf(text, size,
	         "rank %d receives %zu bytes of %s, and rank %d sends %zu bytes "
	         "of %s",
	         op->comm->rank, receive->bytes,
	         batoni_datatype_name(batoni_transfer_own_type(receive)),
	         receive->peer, came, batoni_datatype_name(theirs));
	return true;
}

/* The caller holds the operation. */
static void
explain(const struct batoni_op *op, uint64_t word, char *text, size_t size)
{
	const struct batoni_transfer *transfer = &op->transfer;
	struct baton_comm *comm = op->comm;
	/* While the operation is lent, the transport may still write these fields. */
	const char *native_call = word & BATONI_OP_LENT ? NULL
	                                                : transfer->native_call;
	struct batoni_path *path = comm->paths[op->path];
	const struct batoni_kind *kind = batoni_kind_of(op);
	struct batoni_failed failed = {.kind = op->kind,
	                               .came = batoni_get(transfer->done_bytes)};
	char native[448] = "", why[432], what[96];

	batoni_op_describe(op, what, sizeof(what));
	if (kind->failed)
		kind->failed(op, &failed);
	/* The error code of a failed put is errno's, or the transport's if messages
	 * carried the put; or it is the device's. */
	if ((!kind->launch &&
	     (op->status == BATON_ERR_MISMATCH ||
	      op->status == BATON_ERR_TIMEOUT) &&
	     path->ops->checking &&
	     path->ops->checking->explain(path, transfer, why, sizeof(why))) ||
	    explain_type(op, failed.came, why, sizeof(why)) ||
	    (kind->explain && kind->explain(op, why, sizeof(why)))) {
		snprintf(native, sizeof(native), " (%s)", why);
	} else if (native_call && op->status == BATON_ERR_CUDA) {
		char device[128] = "";

		comm->device_ops->memory->error_text(comm->device,
		                                     transfer->native_code,
		                                     device, sizeof(device));
		snprintf(native, sizeof(native), " (%s returned %d: %s)",
		         native_call, transfer->native_code, device);
	} else if (native_call && batoni_is_onesided_kind(failed.kind) &&
	           op->status != BATON_ERR_MPI) {
		snprintf(native, sizeof(native), " (%s: %s)",
		         native_call,
		         strerror(transfer->native_code));
	} else if (native_call) {
		/* The one-sided layer's messages go over the lower transport. */
		struct batoni_transport *by =
			batoni_is_onesided_kind(failed.kind) &&
					op->status == BATON_ERR_MPI
				? batoni_hosts_of(comm->transport)
				: comm->transport;
		char library[128] = "";

		if (by->ops->texts)
			by->ops->texts->error_text(by, transfer->native_code,
			                           library, sizeof(library));
		snprintf(native, sizeof(native), " (%s returned %d: %s)",
		         native_call, transfer->native_code, library);
	} else if (op->status == BATON_ERR_TRUNCATED) {
		snprintf(native, sizeof(native),
		         " (the message has %zu byte%s, the buffer %zu)",
		         failed.came, batoni_s(failed.came), transfer->bytes);
	} else if (op->status == BATON_ERR_TIMEOUT && !kind->launch &&
	           op->flags & BATONI_FLAG_CROWDED) {
		batoni_crowd_explain(comm, why, sizeof(why));
		snprintf(native, sizeof(native), " (%s)", why);
	} else if (atomic_load(&comm->status) != BATON_OK) {
		snprintf(native, sizeof(native), " (%s)",
		         baton_comm_error(comm));
	}
	snprintf(text, size, "%s%s: %s: %s%s", what, failed.which,
	         baton_status_name(op->status), baton_status_text(op->status),
	         native);
}

enum baton_status
baton_request_error(baton_request request, char *text, size_t size)
{
	enum baton_status status = BATON_ERR_STALE;
	struct batoni_op *op;
	uint64_t word;

	BATONI_ENTER("baton_request_error");
	if (!text || size == 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_request_error: %s",
		                     text ? "size is 0" : "text is NULL");
	op = batoni_request_find(request, &word);
	if (op)
		status = batoni_op_hold(op, &word, BATONI_OP_HANDLE);
	if (status == BATON_ERR_AGAIN)
		return batoni_refuse(status,
		                     "baton_request_error: 65535 streams wait for "
		                     "this request; let some go on");
	if (status != BATON_OK)
		return batoni_refuse_handle("baton_request_error", request);
	text[0] = '\0';
	if ((word & BATONI_OP_DONE) && op->status != BATON_OK)
		explain(op, word, text, size);
	batoni_op_unjoin(op);
	return BATON_OK;
}
