/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages whose buffers are in device memory that faults when the host touches it: the
 * local transport, staged, on the fake asynchronous device. */
#include <stdio.h>

#include "fake_memory.h"
#include "ranks.h"
#include "testing.h"

static enum baton_status
open_all(int size, const struct baton_comm_options *options,
         struct baton_comm *comms[])
{
	return batoni_comm_create_local_with(&batoni_fake_device_ops, size,
	                                     options, comms);
}

int
main(int argc, char **argv)
{
	static const struct conform_memory memory = {
		.alloc = fake_memory_alloc,
		.free = fake_memory_free,
		.copy = fake_memory_copy,
	};
	static const struct conform_list *const lists[] = { conform_messages,
		                                            NULL };
	int result = conform_threads_in(&memory, "fake-memory",
	                                CONFORM_HOST_ISSUED, open_all, lists,
	                                argc, argv);

	if (fake_device_violations() == 0)
		return result;
	printf("not ok  the device's contract was broken\n");
	return 1;
}
