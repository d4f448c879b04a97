/* SPDX-License-Identifier: BSD-3-Clause */
/* The suite over the fake stream-issued transport on the fake device. */
#include "fake_device.h"
#include "fake_transport.h"
#include "on_fake_device.h"
#include "runner.h"
#include "testing.h"

static enum baton_status
open_all(int size, const struct baton_comm_options *options,
         struct baton_comm *comms[])
{
	struct batoni_transport *transports[64] = { NULL };
	enum baton_status status = fake_transport_open(size, transports);

	if (status != BATON_OK)
		return status;
	status = batoni_comm_create_over(&batoni_fake_device_ops, transports,
	                                 size, options, comms);
	for (int i = 0; i < size && status != BATON_OK; i++)
		transports[i]->ops->close(transports[i], true);
	return status;
}

int
main(int argc, char **argv)
{
	static const struct conform_list own[] = { { "sick", conform_sick },
		                                   { NULL, NULL } };
	static const struct conform_list *const lists[] = { conform_suite, own,
		                                            NULL };

	return on_fake_device_end(conform_threads("fake-stream", 0, open_all,
	                                          lists, argc, argv));
}
