/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance suite over the local transport on the copy device, whose memory messages, puts
 * and windows are in. */
#include "copy_device.h"
#include "ranks.h"
#include "testing.h"

static void *
alloc(enum conform_kind kind, size_t bytes)
{
	return kind == CONFORM_KIND_DEVICE ? copy_memory_alloc(bytes) : NULL;
}

static const struct conform_memory memory = {
	.alloc = alloc,
	.free = copy_memory_free,
	.copy = copy_memory_copy,
	.is_device = copy_memory_has,
};

static enum baton_status
open_all(int size, const struct baton_comm_options *options,
         struct baton_comm *comms[])
{
	return batoni_comm_create_local_with(&copy_device_ops, size, options,
	                                     comms);
}

int
main(int argc, char **argv)
{
	static const struct conform_list *const lists[] = { conform_messages,
		                                            conform_onesided,
		                                            NULL };

	return conform_threads_on(
		(struct conform_backend){ .name = "copy-device",
		                          .memory = &memory,
		                          .traits = CONFORM_HOST_ISSUED },
		open_all, lists, argc, argv);
}
