/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To be preloaded: MEDDLE names a call that does something else.
 *
 * alarm rings after a second; json_dumpf and baton_recv end the process; baton_send refuses, or as "nothing" sends nothing of the message; baton_finish says that the
 * operation was canceled.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <baton.h>

static bool
meddles(const char *call)
{
	const char *asked = getenv("MEDDLE");

	return asked && strcmp(asked, call) == 0;
}

/* The deadline of a minute and more, in less. */
unsigned
alarm(unsigned seconds)
{
	__typeof__(&alarm) library;
	void *found = dlsym(RTLD_NEXT, "alarm");

	memcpy(&library, &found, sizeof(library));
	return library(meddles("alarm") && seconds > 0 ? 1 : seconds);
}

/* Of Jansson. */
int json_dumpf(const void *json, FILE *to, size_t flags);

int
json_dumpf(const void *json, FILE *to, size_t flags)
{
	__typeof__(&json_dumpf) library;
	void *found = dlsym(RTLD_NEXT, "json_dumpf");

	if (meddles("json_dumpf"))
		_exit(9);
	memcpy(&library, &found, sizeof(library));
	return library(json, to, flags);
}

enum baton_status
baton_recv(void *buffer, size_t count, enum baton_datatype type, int source, int tag,
           struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p)
{
	__typeof__(&baton_recv) library;
	void *found = dlsym(RTLD_NEXT, "baton_recv");

	if (meddles("baton_recv"))
		_exit(9);
	memcpy(&library, &found, sizeof(library));
	return library(buffer, count, type, source, tag, comm, stream, options,
	               request_p);
}

enum baton_status
baton_send(const void *buffer, size_t count, enum baton_datatype type, int target, int tag,
           struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p)
{
	__typeof__(&baton_send) library;
	void *found = dlsym(RTLD_NEXT, "baton_send");

	if (meddles("baton_send"))
		return BATON_ERR_PEER;
	memcpy(&library, &found, sizeof(library));
	return library(buffer, meddles("nothing") ? 0 : count, type, target, tag, comm,
	               stream, options, request_p);
}

enum baton_status
baton_finish(baton_request *request_p, int64_t timeout_ns,
             struct baton_completion *completion_p)
{
	__typeof__(&baton_finish) library;
	void *found = dlsym(RTLD_NEXT, "baton_finish");

	memcpy(&library, &found, sizeof(library));
	if (meddles("baton_finish"))
		return BATON_ERR_CANCELED;
	return library(request_p, timeout_ns, completion_p);
}
