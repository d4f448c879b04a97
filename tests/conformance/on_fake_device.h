/* SPDX-License-Identifier: BSD-3-Clause */
/* What the main programs on the fake device share. */
#ifndef ON_FAKE_DEVICE_H
#define ON_FAKE_DEVICE_H

#include "fake_device.h"
#include "harness.h"

/* The memory of the fake device, for the buffers of messages. */
extern const struct conform_memory on_fake_memory;

/* A conform_open_fn: the local transport on the fake device. */
enum baton_status on_fake_device_open(int size,
                                      const struct baton_comm_options *options,
                                      struct baton_comm *comms[]);

/* The same where ranks with an odd number are on the host device (CONFORM_TWO_DEVICES). */
enum baton_status on_two_devices_open(int size,
                                      const struct baton_comm_options *options,
                                      struct baton_comm *comms[]);
const struct batoni_device_ops *on_two_devices(int rank);

/* The exit status of the program: the result, or 1 if the device's contract was broken. */
int on_fake_device_end(int result);

#endif
