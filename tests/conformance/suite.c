/* SPDX-License-Identifier: BSD-3-Clause */
#include "runner.h"

const struct conform_list conform_suite[] = {
	{ "p2p", conform_p2p },
	{ "length", conform_length },
	{ "order", conform_order },
	{ "any", conform_any },
	{ "any", conform_any_tag },
	{ "any", conform_any_order },
	{ "any", conform_any_mix },
	{ "probe", conform_probe },
	{ "group", conform_group },
	{ "args", conform_args },
	{ "timeout", conform_timeout },
	{ "cancel", conform_cancel },
	{ "abort", conform_abort },
	{ "request", conform_request },
	{ "wait", conform_wait },
	{ "queue", conform_queue },
	{ "streams", conform_streams },
	{ "life", conform_life },
	{ "room", conform_room },
	{ "signal", conform_signal },
	{ "signal", conform_waits },
	{ "window", conform_window },
	{ "window", conform_gets },
	{ "program", conform_programs },
	{ "tensors", conform_tensors },
	{ "blocks", conform_blocks },
	{ "plan", conform_plan },
	{ "plan_onesided", conform_plan_onesided },
	{ "check", conform_check },
	{ "barrier", conform_barrier },
	{ "split", conform_split },
	{ NULL, NULL },
};

/* Those whose cases use conform_message, or buffers of the host, which any communicator
 * takes. */
const struct conform_list conform_messages[] = {
	{ "p2p", conform_p2p },
	{ "length", conform_length },
	{ "order", conform_order },
	{ "any", conform_any },
	{ "any", conform_any_tag },
	{ "any", conform_any_order },
	{ "any", conform_any_mix },
	{ "probe", conform_probe },
	{ "group", conform_group },
	{ "timeout", conform_timeout },
	{ "cancel", conform_cancel },
	{ "abort", conform_abort },
	{ "request", conform_request },
	{ "wait", conform_wait },
	{ "queue", conform_queue },
	{ "streams", conform_streams },
	{ "room", conform_room },
	{ "tensors", conform_tensors },
	{ "memory", conform_memory },
	{ "plan", conform_plan },
	{ "check", conform_check },
	{ NULL, NULL },
};

const struct conform_list conform_onesided[] = {
	{ "signal", conform_signal },
	{ "signal", conform_waits },
	{ "window", conform_window },
	{ "window", conform_gets },
	{ "program", conform_programs },
	{ "plan_onesided", conform_plan_onesided },
	{ "barrier", conform_barrier },
	{ "split", conform_split },
	{ NULL, NULL },
};

const struct conform_list *const conform_on_memory[] = { conform_messages, conform_onesided,
	                                                 NULL };
