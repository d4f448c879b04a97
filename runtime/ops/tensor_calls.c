/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that send and receive lists of tensors: their checks, and what they describe.
 *
 * An operation on a list is a send or receive like any other, whose transfer has, in the
 * location of its buffer, a struct batoni_tensor_list (tensor_list.h).  The call copies all
 * that the program has described into it, so nothing is allocated between the call and the end.
 *
 * Owners of a list (its memory is tensor_store.c's): the enqueuing thread until the operation is
 * published; then the engine (tensor_ends.c).
 *
 * A call whose list can be issued at once, on an idle host stream, takes the fast path
 * (enqueue_directly).  A receive that leaves nothing open encodes, at the call, the header that has
 * to come, and compares that as bytes.
 */
#include <string.h>

#include "claim.h"
#include "core.h"
#include "direct.h"
#include "enqueue.h"
#include "log.h"
#include "location.h"
#include "plan.h"
#include "scope.h"
#include "sized.h"
#include "tensor_ends.h"
#include "tensor_store.h"
#include "tensors.h"

/* One of these calls, with its arguments; a replay of a plan is one too. */
struct list_call {
	const char *name;
	enum batoni_op_kind kind;
	struct baton_comm *comm;
	baton_stream stream;
	struct baton_tensor *tensors; /* a send's are only read */
	size_t count;
	int peer, tag;
	const struct baton_tensors_options *options;
	/* Of a receive of a message that a probe has found, until its operation has it; or NULL. */
	struct batoni_op *claim;
};

static enum baton_status
refuse_tensor(const struct list_call *call, size_t tensor, const char *wrong)
{
	return batoni_refuse(BATON_ERR_INVALID, "%s: tensor %zu: %s",
	                     call->name, tensor, wrong);
}

/* The type, the rank or a dimension of a tensor is wrong.  A receive may leave them open. */
static enum baton_status
refuse_shape(const struct list_call *call, size_t i)
{
	char why[256];

	batoni_tensor_explain(&call->tensors[i], call->kind == BATONI_KIND_RECV,
	                      why, sizeof(why));
	return refuse_tensor(call, i, why);
}

/* What is the memory?  OK, and *location_p is written if it is not memory of the host; what a plain
 * call's buffer is refused with. */
static enum baton_status
find_location(const struct list_call *call, const void *data, size_t bytes,
              unsigned *location_p)
{
	enum baton_status status;

	if (bytes == 0 || likely(!batoni_location_counts(call->comm)))
		return BATON_OK;
	status = batoni_location_find(call->comm, data, bytes, location_p);
	if (status == BATON_ERR_CUDA)
		batoni_refuse_device(call->comm, status);
	return status == BATON_OK ? BATON_OK
	                          : batoni_refuse_named(call->name, status);
}

/* The same for a tensor of the list. */
static enum baton_status
note_location(const struct list_call *call, struct batoni_tensor_list *list,
              size_t i, const void *data, size_t bytes)
{
	unsigned location = BATONI_MEMORY_HOST;
	enum baton_status status = find_location(call, data, bytes, &location);

	if (unlikely(list->locations != NULL))
		list->locations[i] = (unsigned char)location;
	return status;
}

/* ---- sending ---- */

/* Check the tensors, and fill in where they are. */
static enum baton_status
fill_sent(const struct list_call *call, struct batoni_tensor_list *list)
{
	const struct baton_tensor *tensors = call->tensors;
	uint64_t sum = 0;

	for (size_t i = 0; i < list->count; i++) {
		struct batoni_segment *segment = &list->segments[i];
		enum baton_status status;

		if (batoni_tensor_bytes(&tensors[i], &segment->bytes))
			return refuse_shape(call, i);
		segment->data = tensors[i].data;
		/* Both are below 2^63. */
		sum += segment->bytes;
		if (sum > INT64_MAX)
			return refuse_tensor(call, i,
			                     "with it the bytes of the list do "
			                     "not fit in 63 bits");
		if (segment->bytes > 0 && !segment->data)
			return refuse_tensor(call, i,
			                     "its data is NULL; NULL is allowed "
			                     "without elements only");
		status = note_location(call, list, i, segment->data,
		                       segment->bytes);
		if (status != BATON_OK)
			return status;
	}
	list->payload_bytes = (size_t)sum;
	return BATON_OK;
}

/* What is to be sent, of a list that was taken for it. */
static enum baton_status
describe_sent(const struct list_call *call, struct batoni_tensor_list *list)
{
	enum baton_status status;

	list->count = call->count;
	status = fill_sent(call, list);
	if (status == BATON_OK)
		list->header_bytes =
			batoni_tensors_encode(call->tensors, call->count,
		                              list->payload_bytes, list->header);
	return status;
}

/* ---- receiving ---- */

/* Type, rank and dimensions, some of which may be open: those count as 0 then. */
static const char *
check_shape(const struct baton_tensor *declared, bool *open_p, size_t *bytes_p)
{
	const char *wrong = batoni_tensor_bytes(declared, bytes_p);
	struct baton_tensor closed;

	*open_p = wrong && declared->rank == -1;
	if (likely(!wrong) || *open_p || declared->rank > BATON_TENSOR_RANK_MAX)
		return *open_p ? NULL : wrong;
	closed = *declared;
	for (int i = 0; i < declared->rank; i++) {
		if (declared->shape[i] != -1)
			continue;
		*open_p = true;
		closed.shape[i] = 0;
	}
	return batoni_tensor_bytes(&closed, bytes_p);
}

static enum baton_status
check_declared(const struct list_call *call, size_t i, bool arena,
               size_t *bytes_p)
{
	const struct baton_tensor *declared = &call->tensors[i];
	bool open;

	*bytes_p = 0;
	if (check_shape(declared, &open, bytes_p))
		return refuse_shape(call, i);
	if (open && declared->data)
		return refuse_tensor(call, i,
		                     "its data is given, and its length is not "
		                     "known: a tensor with an open rank or "
		                     "dimension goes to the arena");
	if (!declared->data && !arena && (open || *bytes_p > 0))
		return refuse_tensor(call, i,
		                     "its data is NULL, and there is no arena "
		                     "(options->arena)");
	return BATON_OK;
}

/* Of each tensor's own memory, and of the arena, which has the others. */
static enum baton_status
note_declared(const struct list_call *call, struct batoni_tensor_list *list)
{
	unsigned arena = BATONI_MEMORY_HOST;
	enum baton_status status =
		find_location(call, list->arena, list->arena_bytes, &arena);

	for (size_t i = 0; i < list->declared_n && status == BATON_OK; i++) {
		const struct baton_tensor *declared = &list->declared[i];
		size_t bytes = 0;

		if (declared->data) {
			batoni_tensor_bytes(declared, &bytes);
			status = note_location(call, list, i, declared->data,
			                       bytes);
		} else if (list->locations) {
			list->locations[i] = (unsigned char)arena;
		}
	}
	return status;
}

/* Check the declaration, and fill in where what it closes goes. */
static enum baton_status
fill_declared(const struct list_call *call, struct batoni_tensor_list *list)
{
	struct baton_tensor *tensors = call->tensors;
	uint64_t sum = 0;

	for (size_t i = 0; i < list->declared_n; i++) {
		struct batoni_segment *segment = &list->segments[i];
		enum baton_status status =
			check_declared(call, i, list->arena, &segment->bytes);

		if (status != BATON_OK)
			return status;
		segment->data = tensors[i].data;
		if (!segment->data)
			list->results = tensors;
		/* Both are below 2^63. */
		sum = sum > INT64_MAX ? sum : sum + segment->bytes;
	}
	if (list->results || list->fewer || sum > INT64_MAX)
		return BATON_OK;
	/* What comes can be compared as bytes, and its location is known. */
	list->count = list->declared_n;
	list->payload_bytes = (size_t)sum;
	list->header_bytes = batoni_tensors_encode(tensors, list->count,
	                                           (size_t)sum, list->header);
	list->closed = true;
	return BATON_OK;
}

/* What may be received, of a list that was taken for it. */
static enum baton_status
describe_declared(const struct list_call *call, struct batoni_tensor_list *list)
{
	const struct baton_tensors_options *options = call->options;
	size_t count = call->count;
	enum baton_status status;

	list->declared_n = count;
	list->fewer = options->count_p != NULL;
	list->count_p = options->count_p;
	list->arena = options->arena;
	list->arena_bytes = options->arena ? options->arena_bytes : 0;
	status = fill_declared(call, list);
	if (status == BATON_OK && count > 0)
		memcpy(list->declared, call->tensors,
		       count * sizeof(*call->tensors));
	if (status == BATON_OK && unlikely(batoni_location_counts(call->comm)))
		status = note_declared(call, list);
	return status;
}

/* ---- the calls ---- */

static enum baton_status
check_flags(const struct list_call *call,
            const struct baton_tensors_options *options)
{
	if (options->op.flags & ~BATON_OP_DETACHED)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->op.flags is 0x%x; only "
		                     "BATON_OP_DETACHED (0x%x) is known",
		                     call->name, options->op.flags,
		                     BATON_OP_DETACHED);
	if (options->flags & ~BATON_FORBID_SELF)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->flags is 0x%x; only "
		                     "BATON_FORBID_SELF (0x%x) is known",
		                     call->name, options->flags,
		                     BATON_FORBID_SELF);
	if ((options->flags & BATON_FORBID_SELF) &&
	    call->peer == call->comm->rank)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: peer is %d, which is this rank; "
		                     "BATON_FORBID_SELF forbids it",
		                     call->name, call->peer);
	return BATON_OK;
}

/* The engine reads or writes it, on a thread of the host. */
static enum baton_status
check_reached(const struct list_call *call, const char *name,
              const void *pointer, size_t bytes)
{
	unsigned location = BATONI_MEMORY_HOST;
	enum baton_status status;

	if (!pointer)
		return BATON_OK;
	if (!call->comm->inspects) {
		if (!batoni_location_is_foreign(pointer))
			return BATON_OK;
	} else {
		status = find_location(call, pointer, bytes, &location);
		if (status != BATON_OK || batoni_location_is_host(location))
			return status;
	}
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: options->%s is %p, memory of a device; it has "
	                     "to be memory of the host",
	                     call->name, name, pointer);
}

static const struct baton_tensors_options defaults = BATON_TENSORS_OPTIONS_INIT;

/* The smallest is longer than baton_op_options, whose size is there by mistake only. */
static const struct batoni_sized sized_options = {
	.name = "options",
	.size_name = "options->op.size",
	.advice = "use BATON_TENSORS_OPTIONS_INIT",
	.smallest = BATONI_SIZED_UNTIL(struct baton_tensors_options,
	                               output_signal),
	.bytes = sizeof(struct baton_tensors_options),
	.defaults = &defaults,
	.reserved = {BATONI_RESERVED(struct baton_tensors_options, op.reserved),
                     BATONI_RESERVED(struct baton_tensors_options,
	                             op.reserved_more),
                     BATONI_RESERVED(struct baton_tensors_options, reserved)},
};

static enum baton_status
check_of_receive(const struct list_call *call,
                 const struct baton_tensors_options *options)
{
	if (call->kind == BATONI_KIND_RECV)
		return BATON_OK;
	if (options->arena || options->arena_bytes > 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->arena is %p, of %zu bytes; only "
		                     "a receive has an arena",
		                     call->name, options->arena,
		                     options->arena_bytes);
	if (options->count_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->count_p is not NULL; only a "
		                     "receive tells how many tensors came",
		                     call->name);
	return BATON_OK;
}

/* Check the options, NULL too, and have them point to what the rest of the call may read. */
static enum baton_status
check_options(struct list_call *call, struct baton_tensors_options *room)
{
	const struct baton_tensors_options *options = &defaults;
	enum baton_status status;

	if (call->options)
		options = batoni_sized_take(&sized_options, call->name,
		                            call->options, room);
	if (!options)
		return BATON_ERR_INVALID;
	call->options = options;
	status = check_flags(call, options);
	if (status == BATON_OK)
		status = check_of_receive(call, options);
	if (status != BATON_OK || likely(!batoni_location_counts(call->comm)))
		return status;
	status = check_reached(call, "input_signal", options->input_signal,
	                       sizeof(bool));
	if (status == BATON_OK)
		status = check_reached(call, "output_signal",
		                       options->output_signal, sizeof(bool));
	if (status == BATON_OK)
		status = check_reached(call, "count_p", options->count_p,
		                       sizeof(size_t));
	return status;
}

static enum baton_status
check_call(const struct list_call *call)
{
	const struct baton_comm *comm = call->comm;
	enum baton_status status =
		batoni_check_target(call->name, comm, call->stream, false);
	const char *why;

	if (status != BATON_OK)
		return status;
	if (!call->tensors && call->count > 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: tensors is NULL with count %zu; NULL is "
		                     "allowed with count 0 only",
		                     call->name, call->count);
	if (call->count > BATON_TENSORS_MAX)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: count is %zu; a list has 0 to %u tensors",
		                     call->name, call->count, BATON_TENSORS_MAX);
	if (comm->lists)
		return BATON_OK;
	why = comm->transport->why_no_lists;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%s: %s carries no lists of tensors on the %s device "
	                     "(BATON_CAP_TENSORS)%s%s",
	                     call->name,
	                     comm->transport->messages.ops->name,
	                     comm->device_ops->name, why ? "; " : "",
	                     why ? why : "");
}

/* The list of the call, with all that the program has described. */
static enum baton_status
describe(const struct list_call *call, struct batoni_tensor_list **list_p)
{
	bool receive = call->kind == BATONI_KIND_RECV;
	struct batoni_tensor_list *list;
	enum baton_status status = batoni_tensor_list_take(
		call->name, call->comm, call->count, receive, &list);

	if (status != BATON_OK)
		return status;
	status = receive ? describe_declared(call, list)
	                 : describe_sent(call, list);
	if (status != BATON_OK) {
		batoni_tensor_list_give(call->comm, list);
		return status;
	}
	list->input_signal = call->options->input_signal;
	list->output_signal = call->options->output_signal;
	*list_p = list;
	return BATON_OK;
}

/* The fast path (direct.h).  False: the operation was not begun. */
static bool
enqueue_directly(const struct list_call *call, struct batoni_tensor_list *list,
                 const struct baton_op_options *options,
                 baton_request *request_p)
{
	struct baton_comm *comm = call->comm;
	enum batoni_op_kind kind = call->kind;
	enum baton_status status;
	struct batoni_op *op;
	uint8_t path;

	if (!batoni_is_usual(comm, options) || !request_p ||
	    list->input_signal || call->claim ||
	    (unsigned)call->peer >= (unsigned)comm->size ||
	    (unsigned)call->tag > (unsigned)comm->tag_max)
		return false;
	path = batoni_message_path(comm, call->peer);
	if (path == BATONI_PATH_NONE)
		return false;
	op = batoni_direct_begin(comm, call->stream);
	if (!op)
		return false;
	batoni_op_name(op, list, list->payload_bytes + list->arena_bytes, call->peer,
	               call->tag);
	batoni_direct_fill(op, comm, kind, path,
	                   kind == BATONI_KIND_SEND ? BATONI_SEND : BATONI_RECV,
	                   call->stream, batoni_direct_flags(options),
	                   options ? options->user_data : 0, batoni_thread.site);
	op->transfer.location = BATONI_LOCATION_LIST;
	status = batoni_path_issue(comm->paths[path], &op->transfer);
	if (status == BATON_OK)
		batoni_tensors_ended(op, status, false);
	batoni_direct_end(op, status, request_p);
	return true;
}

static enum baton_status
enqueue(struct list_call *call, struct batoni_tensor_list *list,
        baton_request *request_p)
{
	struct baton_op_options op = call->options->op;
	const struct batoni_arguments a = {
		list,         list->payload_bytes + list->arena_bytes,
		BATON_UINT8,  call->peer,
		call->tag,    call->stream,
		&op,          request_p};
	struct batoni_op *claim = call->claim;
	enum baton_status status;

	op.size = sizeof(op);
	if (enqueue_directly(call, list, &op, request_p))
		return BATON_OK;
	call->claim = NULL;
	status = claim ? batoni_enqueue_claim(call->name, claim, &a, a.count, true)
	               : batoni_enqueue_list(call->name, call->kind, call->comm, &a);
	if (status != BATON_OK)
		batoni_tensor_list_give(call->comm, list);
	return status;
}

/* What a plan keeps of a call; a copy of the tensors lies behind it. */
struct recorded {
	struct list_call call; /* its tensors are the program's */
	struct baton_tensors_options options;
};

static enum baton_status
replay(struct baton_comm *comm, const void *payload)
{
	const struct recorded *r = payload;
	struct list_call call = r->call;
	struct batoni_tensor_list *list = NULL;
	enum baton_status status;

	call.name = "baton_plan_launch";
	call.comm = comm;
	call.options = &r->options;
	/* Of a receive, which takes memory that it may write: it writes to the program's. */
	call.tensors = (struct baton_tensor *)(uintptr_t)batoni_plan_entry_more(
		payload, sizeof(*r));
	status = describe(&call, &list);
	if (status != BATON_OK)
		return status;
	if (list->results)
		list->results = r->call.tensors;
	return enqueue(&call, list, NULL);
}

static enum baton_status
add_to_plan(const struct list_call *call)
{
	static const struct batoni_plan_entry_ops ops = {.replay = replay};
	const struct recorded r = {*call, *call->options};

	return batoni_plan_add(call->name, batoni_plan_recorded(call->comm),
	                       &ops, call->stream, &r, sizeof(r), call->tensors,
	                       call->count * sizeof(*call->tensors));
}

static enum baton_status
call_list(struct list_call *call, baton_request *request_p)
{
	struct batoni_tensor_list *list = NULL;
	struct baton_tensors_options room;
	enum baton_status status = check_call(call);

	if (status == BATON_OK)
		status = check_options(call, &room);
	if (status == BATON_OK)
		status = describe(call, &list);
	if (status == BATON_OK)
		status = enqueue(call, list, request_p);
	if (unlikely(status == BATONI_RECORDED))
		status = add_to_plan(call);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(call->comm, status);
}

enum baton_status
baton_send_tensors(const struct baton_tensor *tensors, size_t count, int peer,
                   int tag, struct baton_comm *comm, baton_stream stream,
                   const struct baton_tensors_options *options,
                   baton_request *request_p)
{
	struct list_call call = {
		"baton_send_tensors",
		BATONI_KIND_SEND,
		comm,
		stream,
		/* A send only reads them. */
		(struct baton_tensor *)(uintptr_t)tensors,
		count,
		peer,
		tag,
		options,
		NULL,
	};

	BATONI_KEEP_SITE();
	return call_list(&call, request_p);
}

enum baton_status
baton_recv_tensors(struct baton_tensor *tensors, size_t count, int peer, int tag,
                   struct baton_comm *comm, baton_stream stream,
                   const struct baton_tensors_options *options,
                   baton_request *request_p)
{
	struct list_call call = {
		"baton_recv_tensors", BATONI_KIND_RECV, comm, stream,  tensors,
		count,                peer,             tag,  options, NULL,
	};

	BATONI_KEEP_SITE();
	return call_list(&call, request_p);
}

enum baton_status
baton_recv_message_tensors(struct baton_tensor *tensors, size_t count,
                           baton_message message, struct baton_comm *comm,
                           baton_stream stream,
                           const struct baton_tensors_options *options,
                           baton_request *request_p)
{
	struct list_call call = {
		"baton_recv_message_tensors",
		BATONI_KIND_RECV,
		comm,
		stream,
		tensors,
		count,
		0,
		0,
		options,
		NULL,
	};
	enum baton_status status = check_call(&call);

	BATONI_KEEP_SITE();
	if (status == BATON_OK)
		status = batoni_take_claim(call.name, comm, message, &call.claim);
	if (status != BATON_OK)
		return batoni_scope_refuse(comm, status);
	call.peer = batoni_get(call.claim->transfer.peer);
	call.tag = batoni_get(call.claim->transfer.tag);
	status = call_list(&call, request_p);
	if (call.claim)
		batoni_claim_put_back(call.claim);
	return status;
}
