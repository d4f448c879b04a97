/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance suite over the local transport on the copy device, whose memory messages, puts
 * and windows are in. */
#include "copy_device.h"
#include "registry.h"
#include "runner.h"

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
	struct baton_comm_options own = BATON_COMM_OPTIONS_INIT;

	if (options)
		own = *options;
	own.device = COPY_DEVICE_ID;
	return baton_comm_create_local(size, &own, comms);
}

int
main(int argc, char **argv)
{
	static const struct conform_list *const lists[] = { conform_messages,
		                                            conform_onesided,
		                                            NULL };

	/* The one line; of a device of the library it is one in runtime/parts.c. */
	batoni_device_put(&copy_device_ops);
	return conform_threads_on(
		(struct conform_backend){ .name = "copy-device",
		                          .memory = &memory,
		                          .traits = CONFORM_HOST_ISSUED },
		open_all, lists, argc, argv);
}
