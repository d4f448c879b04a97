/* SPDX-License-Identifier: BSD-3-Clause */
/* The suite over the local transport on the fake asynchronous device. */
#include <stdio.h>

#include "fake_device.h"
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
	static const struct conform_list own[] = { { "sick", conform_sick },
		                                   { NULL, NULL } };
	static const struct conform_list *const lists[] = { conform_suite, own,
		                                            NULL };
	int result = conform_threads("fake-async", CONFORM_HOST_ISSUED, open_all,
	                             lists, argc, argv);

	if (fake_device_violations() == 0)
		return result;
	printf("not ok  the device's contract was broken\n");
	return 1;
}
