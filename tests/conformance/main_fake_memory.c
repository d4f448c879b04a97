/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages whose buffers are in device memory that faults when the host touches it: the
 * local transport, staged, on the fake asynchronous device. */
#include "on_fake_device.h"
#include "ranks.h"

int
main(int argc, char **argv)
{
	static const struct conform_list *const lists[] = { conform_messages,
		                                            NULL };

	return on_fake_device_end(conform_threads_in(
		&on_fake_memory, "fake-memory", CONFORM_HOST_ISSUED,
		on_fake_device_open, lists, argc, argv));
}
