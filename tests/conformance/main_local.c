/* SPDX-License-Identifier: BSD-3-Clause */
/* The suite over the local transport on the host device. */
#include "runner.h"

int
main(int argc, char **argv)
{
	static const struct conform_list *const lists[] = { conform_suite,
		                                            NULL };

	return conform_threads("local", CONFORM_HOST_ISSUED | CONFORM_HOST_DEVICE,
	                       baton_comm_create_local, lists, argc, argv);
}
