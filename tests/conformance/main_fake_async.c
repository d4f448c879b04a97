/* SPDX-License-Identifier: BSD-3-Clause */
/* The suite over the local transport on the fake asynchronous device. */
#include "on_fake_device.h"
#include "runner.h"

int
main(int argc, char **argv)
{
	static const struct conform_list own[] = { { "sick", conform_sick },
		                                   { NULL, NULL } };
	static const struct conform_list *const lists[] = { conform_suite, own,
		                                            NULL };

	return on_fake_device_end(
		conform_threads("fake-async", CONFORM_HOST_ISSUED,
	                        on_fake_device_open, lists, argc, argv));
}
