/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks on the host device, and ranks whose messages are in device memory that faults when the
 * host touches it, in one communicator of the local transport. */
#include "on_fake_device.h"
#include "runner.h"

int
main(int argc, char **argv)
{

	return on_fake_device_end(conform_threads_on(
		(struct conform_backend){
			.name = "two-memories",
			.memory = &on_fake_memory,
			.traits = CONFORM_HOST_ISSUED | CONFORM_TWO_DEVICES,
		},
		on_two_devices_open, conform_on_memory, argc, argv));
}
