/* SPDX-License-Identifier: BSD-3-Clause */
/* One message between two ranks of this process: shows that what is installed
 * compiles, links and runs.  Compiled as C11 and as C++17. */
#include <baton.h>
#include <stdio.h>

static const int64_t second_ns = 1000000000;

static enum baton_status
exchange(struct baton_comm *const comms[2], const int *out, int *in)
{
	baton_stream streams[2] = {NULL, NULL};
	baton_request requests[2] = {BATON_REQUEST_NULL, BATON_REQUEST_NULL};
	enum baton_status status;

	for (int i = 0; i < 2; i++) {
		status = baton_stream_create(comms[i], &streams[i]);
		if (status != BATON_OK)
			return status;
	}
	status = baton_recv(in, 1, BATON_INT32, 0, 7, comms[1], streams[1], NULL,
	                    &requests[1]);
	if (status != BATON_OK)
		return status;
	status = baton_send(out, 1, BATON_INT32, 1, 7, comms[0], streams[0],
	                    NULL, &requests[0]);
	if (status != BATON_OK)
		return status;
	status = baton_wait_all(requests, 2, 10 * second_ns);
	for (int i = 0; i < 2; i++) {
		baton_release(&requests[i]);
		baton_stream_destroy(comms[i], streams[i]);
	}
	return status;
}

int
main(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comms[2];
	const int out = 42;
	int in = 0;
	enum baton_status status;

	options.timeout_ns = 10 * second_ns;
	status = baton_comm_create_local(2, &options, comms);
	if (status != BATON_OK) {
		fprintf(stderr, "%s: %s\n", baton_status_name(status),
		        baton_last_error());
		return 1;
	}
	status = exchange(comms, &out, &in);
	printf("baton %s: %s, %d arrived\n", baton_version(),
	       baton_status_name(status), in);
	for (int i = 0; i < 2; i++) {
		if (baton_comm_destroy(comms[i]) != BATON_OK)
			return 1;
	}
	return status == BATON_OK && in == out ? 0 : 1;
}
