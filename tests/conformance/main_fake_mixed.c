/* SPDX-License-Identifier: BSD-3-Clause */
/* The suite over paths of both kinds at once, on the fake asynchronous device: messages are
 * host-issued (the local transport), signals, puts and waits are stream-issued. */
#include "fake_path.h"
#include "on_fake_device.h"
#include "runner.h"

static enum baton_status
open_all(int size, const struct baton_comm_options *options,
         struct baton_comm *comms[])
{
	enum baton_status status = on_fake_device_open(size, options, comms);

	for (int i = 0; i < size && status == BATON_OK; i++)
		status = fake_path_add(comms[i]);
	return status;
}

int
main(int argc, char **argv)
{
	static const struct conform_list own[] = {
		{ "sick", conform_sick }, { "mixed", conform_mixed }, { NULL, NULL }
	};
	static const struct conform_list *const lists[] = { conform_suite, own,
		                                            NULL };

	return on_fake_device_end(conform_threads(
		"fake-mixed", CONFORM_HOST_ISSUED | CONFORM_STREAM_ISSUED_PUTS,
		open_all, lists, argc, argv));
}
