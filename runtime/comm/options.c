/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of a communicator, checked, with defaults and what the environment says: its
 * setup (opening.h).  AUTO leaves a choice to the environment, on the device that it is about.
 */
#include "comm.h"

#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "config.h"
#include "launcher.h"
#include "log.h"
#include "registry.h"
#include "sized.h"

void
batoni_comm_setup_on(struct batoni_comm_setup *setup,
                     const struct batoni_device_ops *device)
{
	setup->device = device->id;
	setup->device_ops = device;
	setup->stages = !device->memory->host_only;
}

/* The device that the thread works on, unless the options name one. */
static enum baton_status
setup_number(struct batoni_comm_setup *setup)
{
	if (setup->device_config.cuda_device >= 0)
		return BATON_OK;
	return setup->device_ops->current(&setup->device_config.cuda_device);
}

/* What the environment says that AUTO is. */
static const struct batoni_device_ops *
default_device(void)
{
	const struct batoni_native_ops *native = batoni_native_layer();
	const struct batoni_config *config = batoni_config();

	if (*config->device)
		return batoni_device_named(config->device);
	/* Asking for a native transport means its device. */
	if (strcmp(config->transport, native->name) == 0)
		return batoni_device_of_native(native->id);
	return batoni_device_find(BATON_DEVICE_HOST);
}

static enum baton_status
setup_device(enum baton_device asked, struct batoni_comm_setup *setup)
{
	const struct batoni_device_ops *ops =
		asked == BATON_DEVICE_AUTO ? default_device()
	                                   : batoni_device_find(asked);
	char list[160];

	if (!ops) {
		batoni_device_list(list, sizeof(list));
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->device is %d; it takes "
		                     "BATON_DEVICE_AUTO (0), %s",
		                     (int)asked, list);
	}
	if (!batoni_device_is_whole(ops))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s%s: the %s device of this build of Baton "
		                     "%s is not complete (the log says what it "
		                     "lacks); use BATON_DEVICE_HOST",
		                     asked == BATON_DEVICE_AUTO
		                             ? "the environment asks for "
		                             : "options->device is ",
		                     ops->constant, ops->name, baton_version());
	batoni_comm_setup_on(setup, ops);
	return setup_number(setup);
}

/* What the environment says holds for AUTO, on the device that it is about. */
static void
setup_transport(struct batoni_comm_setup *setup)
{
	const struct batoni_native_ops *native = batoni_native_layer();
	const char *word = batoni_config()->transport;

	if (setup->transport == BATON_TRANSPORT_AUTO &&
	    setup->device_ops->native == native->id &&
	    strcmp(word, native->name) == 0)
		setup->transport = native->id;
	if (setup->transport == BATON_TRANSPORT_AUTO && strcmp(word, "near") == 0)
		setup->transport = BATON_TRANSPORT_NEAR;
	setup->onesided = true;
}

static enum baton_status
check_transport(const struct batoni_comm_setup *setup)
{
	const struct batoni_native_ops *native = batoni_native_layer();

	if (setup->transport == BATON_TRANSPORT_AUTO ||
	    setup->transport == BATON_TRANSPORT_LOCAL ||
	    setup->transport == BATON_TRANSPORT_MPI ||
	    setup->transport == BATON_TRANSPORT_NEAR ||
	    batoni_setup_is_native(setup))
		return BATON_OK;
	if (setup->transport == native->id)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "options->transport is %s, which moves %s: "
		                     "it needs %s",
		                     native->constant, native->moves,
		                     native->needs);
	return batoni_refuse(BATON_ERR_INVALID,
	                     "options->transport is %d; it takes "
	                     "BATON_TRANSPORT_AUTO, _LOCAL, _MPI (0 to 2), "
	                     "_NEAR (%d) or %s (%d)",
	                     (int)setup->transport, (int)BATON_TRANSPORT_NEAR,
	                     native->constant, (int)native->id);
}

static const struct baton_comm_options defaults = BATON_COMM_OPTIONS_INIT;

static const struct batoni_sized sized_options = {
	.name = "options",
	.size_name = "options->size",
	.advice = "use BATON_COMM_OPTIONS_INIT",
	.smallest = BATONI_SIZED_UNTIL(struct baton_comm_options, timeout_ns),
	.bytes = sizeof(struct baton_comm_options),
	.defaults = &defaults,
	.reserved = {BATONI_RESERVED(struct baton_comm_options, reserved)},
};

/* ---- numbers of the options ---- */

/* Fields of 32 bits of the options, and of the setup. */
static const struct number {
	const char *name;
	size_t at, to; /* in the options; in the setup */
	bool is_unsigned;
	int64_t least, most, initial; /* instead of 0; 0: the environment's, if it has one */
	const char *takes; /* NULL: 1 to `most`, or 0 for `initial` */
} numbers[] = {
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number
#define NUMBER(field, setup_field) #field, offsetof(struct baton_comm_options, field), \
				   offsetof(struct batoni_comm_setup, setup_field)
	{NUMBER(requests_max, requests_max), true, 0, BATON_REQUESTS_MAX_LIMIT,
         BATON_REQUESTS_MAX_DEFAULT, NULL},
	{NUMBER(signals_max, signals_max), false, 0, BATON_SIGNALS_LIMIT,
         BATON_SIGNALS_MAX_DEFAULT, NULL},
	{NUMBER(contexts_max, contexts_max), false, 0, BATON_CONTEXTS_LIMIT,
         BATON_CONTEXTS_MAX_DEFAULT, NULL},
	{NUMBER(tensors_max, tensors_max), true, 0, BATON_TENSORS_LIMIT,
         BATON_TENSORS_MAX_DEFAULT, NULL},
	{NUMBER(cuda_device, device_config.cuda_device), false, -1, INT_MAX, 0,
         "the number of a device, or -1"},
	{NUMBER(progress, progress), false, 0, BATON_PROGRESS_CALLS,
         BATON_PROGRESS_AUTO,
         "BATON_PROGRESS_AUTO, _THREAD or _CALLS (0 to 2)"},
	{NUMBER(nccl_lanes, nccl_lanes), false, 0, BATON_NCCL_LANES_LIMIT, 0,
         "1 to " TEXT(BATON_NCCL_LANES_LIMIT) ", or 0 for as many as are of use"},
	{NUMBER(nccl_ctas, nccl_ctas), false, 0, BATON_NCCL_CTAS_LIMIT, 0,
         "1 to " TEXT(BATON_NCCL_CTAS_LIMIT)
         ", or 0 for half of the GPU among all lanes"},
#undef NUMBER
#undef TEXT_OF
#undef TEXT
};

static_assert(sizeof(enum baton_progress) == sizeof(uint32_t),
              "a number of the options");

static enum baton_status
refuse_number(const struct number *number, int64_t value)
{
	if (number->takes)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->%s is %lld; it takes %s",
		                     number->name, (long long)value,
		                     number->takes);
	return batoni_refuse(BATON_ERR_INVALID,
	                     "options->%s is %lld; it takes 1 to %lld, or 0 for "
	                     "%lld",
	                     number->name, (long long)value,
	                     (long long)number->most, (long long)number->initial);
}

static enum baton_status
take_number(const struct number *number,
            const struct baton_comm_options *options,
            struct batoni_comm_setup *setup)
{
	uint32_t word;
	int64_t value;

	memcpy(&word, (const char *)options + number->at, sizeof(word));
	value = number->is_unsigned ? (int64_t)word : (int32_t)word;
	if (value < number->least || value > number->most)
		return refuse_number(number, value);
	if (value == 0)
		word = (uint32_t)number->initial;
	memcpy((char *)setup + number->to, &word, sizeof(word));
	return BATON_OK;
}

static enum baton_status
take_numbers(const struct baton_comm_options *options,
             struct batoni_comm_setup *setup)
{
	enum baton_status status = BATON_OK;

	for (size_t i = 0;
	     i < sizeof(numbers) / sizeof(numbers[0]) && status == BATON_OK; i++)
		status = take_number(&numbers[i], options, setup);
	if (!setup->nccl_lanes)
		setup->nccl_lanes = (int)batoni_config()->nccl_lanes;
	return status;
}

enum baton_status
batoni_comm_setup(const struct baton_comm_options *options,
                  struct batoni_comm_setup *setup_p)
{
	struct baton_comm_options room;
	struct batoni_comm_setup setup;
	enum baton_status status;

	options = options ? batoni_sized_take(&sized_options, NULL, options, &room)
	                  : &defaults;
	if (!options)
		return BATON_ERR_INVALID;
	setup = (struct batoni_comm_setup){
		.transport = options->transport,
		.nccl_lists = options->nccl_lists || batoni_config()->nccl_lists,
		.timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : 0,
		.timestamps = options->timestamps,
		.check = options->check || batoni_config()->check,
		.device_config.host_rank = batoni_launcher_host_rank(),
	};
	status = take_numbers(options, &setup);
	if (status != BATON_OK)
		return status;
	setup.requests_most = setup.requests_max;
	*setup_p = setup;
	status = setup_device(options->device, setup_p);
	if (status != BATON_OK)
		return status;
	setup_transport(setup_p);
	return check_transport(setup_p);
}
