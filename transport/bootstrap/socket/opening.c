/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening the side channel's transport over its bootstrap (opening.h): both are one object, which
 * the transport takes over.
 *
 * What a communicator moves has to go by the device's own transport, or through memory that the
 * ranks share (near), which is layered on this one: setups for another transport are refused here.
 */
#include "config.h"
#include "log.h"
#include "rank.h"
#include "registry.h"

/* Of the device that has none of its own, BATON_TRANSPORT_AUTO. */
static enum baton_status
refuse_transport(enum baton_transport native)
{
	bool has_native = native != BATON_TRANSPORT_AUTO;

	return batoni_refuse(
		BATON_ERR_UNSUPPORTED,
		"the ranks are in several processes without MPI: messages go by "
		"%s%sBATON_TRANSPORT_NEAR (or BATON_TRANSPORT_AUTO) alone; with "
		"MPI they go by BATON_TRANSPORT_MPI",
		has_native ? batoni_native_layer()->constant : "",
		has_native ? ", " : "");
}

static enum baton_status
check_setup_of_sockets(const struct batoni_bootstrap *bootstrap,
                       struct batoni_comm_setup *setup)
{
	enum baton_transport native = setup->device_ops->native;

	(void)bootstrap;
	if (setup->transport == BATON_TRANSPORT_AUTO)
		setup->transport = native != BATON_TRANSPORT_AUTO
		                           ? native
		                           : BATON_TRANSPORT_NEAR;
	if (batoni_setup_is_native(setup)) {
		setup->near = batoni_config()->message_path ==
		              BATONI_MESSAGE_PATH_NEAR;
		return BATON_OK;
	}
	if (setup->transport != BATON_TRANSPORT_NEAR)
		return refuse_transport(native);
	if (batoni_config()->message_path == BATONI_MESSAGE_PATH_MPI)
		return batoni_refuse(
			BATON_ERR_UNSUPPORTED,
			"BATON_MESSAGE_PATH is mpi, and the ranks are in several "
			"processes without MPI: start the program by mpirun, or "
			"unset BATON_MESSAGE_PATH");
	setup->near = setup->near_only = true;
	return BATON_OK;
}

static enum batoni_reach
reach(const struct batoni_device_ops *device)
{
	(void)device;
	return BATONI_REACH_STAGES;
}

static enum baton_status
agree(const struct batoni_accord *accord, struct batoni_comm_setup *setup)
{
	setup->stages = accord->stages;
	setup->direct = false;
	/* Near carries messages of any length; where it is not forced on all, some go this way. */
	setup->message_max = setup->near_only ? 0 : BATONI_TCP_MESSAGE_MAX;
	return BATON_OK;
}

static enum baton_status
begin_opening_sockets(struct batoni_opening *opening)
{
	struct batoni_tcp *tcp = batoni_tcp_of(opening->bootstrap);
	enum baton_status status = batoni_tcp_alloc(tcp, &opening->config);

	if (status != BATON_OK)
		return status;
	if (tcp->base.peers)
		batoni_segments_write_card(&tcp->segments, (void *)opening->card);
	return BATON_PENDING;
}

static enum baton_status
step_sockets(struct batoni_opening *opening, const struct batoni_cards *cards)
{
	struct batoni_tcp *tcp = batoni_tcp_of(opening->bootstrap);
	enum baton_status status;

	if (opening->round == 0)
		return begin_opening_sockets(opening);
	status = batoni_segments_step(&tcp->segments, &tcp->base, opening,
	                              cards, "messages without MPI go between "
	                                     "processes of one node; start the program "
	                                     "by mpirun");
	if (status != BATON_OK)
		return status;
	opening->own = tcp;
	opening->transport = &tcp->base;
	batoni_tcp_hand_over(opening->bootstrap);
	return BATON_OK;
}

/* The transport is open: only then has it anything of its own. */
static void
give_up_sockets(struct batoni_opening *opening)
{
	opening->engine->driver_lock();
	opening->transport->ops->close(opening->transport, true);
	opening->engine->driver_unlock();
}

const struct batoni_opening_ops batoni_opening_tcp_ops = {
	.check = check_setup_of_sockets,
	.reach = reach,
	.agree = agree,
	.step = step_sockets,
	.give_up = give_up_sockets,
};
