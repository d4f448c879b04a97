/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings, faults and delays: what a test, or the environment, asks for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim.h"

struct setting {
	const char *name;
	long *value;
	long least, greatest;
	bool before; /* only before cuInit */
};

static const struct setting settings[] = {
#define SETTING(name, value, least, greatest, before)                         \
	{#name, &sim.set.name, least, greatest, before},
	SIM_SETTINGS(SETTING)
#undef SETTING
};

static long delays;

/* ---- settings ---- */

static bool
set_locked(const char *name, long value)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const struct setting *setting = &settings[i];

		if (strcasecmp(setting->name, name) != 0)
			continue;
		if (value < setting->least || value > setting->greatest ||
		    (setting->before && sim.initialised))
			return false;
		*setting->value = value;
		if (setting->value == &sim.set.seed) {
			sim_simulator.random_state = 0;
			if (value != 0 && sim.set.delay_us == 0)
				sim.set.delay_us = 100;
		}
		return true;
	}
	return false;
}

/* ---- faults ---- */

static bool
fail_locked(const char *name, long n, CUresult result, bool sticky)
{
	return simulator_fail(&sim_simulator, sim_function_find(name), n, result,
	                      sticky);
}

/* Every use of a function counts its faults down. */
CUresult
sim_fault_locked(enum sim_function function, bool *sticky_p)
{
	return simulator_fault(&sim_simulator, (int)function, true, sticky_p);
}

/* ---- delays ---- */

static unsigned long
next_random_locked(void)
{
	return simulator_random(&sim_simulator, sim.set.seed);
}

unsigned
sim_delay_locked(unsigned odds)
{
	unsigned long most = (unsigned long)sim.set.delay_us;

	if (most == 0 || next_random_locked() % odds != 0)
		return 0;
	delays++;
	return (unsigned)(next_random_locked() % (most + 1));
}

long
sim_delays_locked(void)
{
	return delays;
}

/* ---- where they come from ---- */

/* "cuMemCreate,cuIpcGetMemHandle": what the driver does not have. */
static void
read_lacks(const char *text)
{
	char name[64];

	while (*text) {
		size_t length = strcspn(text, ",");

		if (length >= sizeof(name))
			simulator_refuse_setting(&sim_simulator,
			                         "CUDASIM_LACKS", text);
		memcpy(name, text, length);
		name[length] = '\0';
		if (!sim_lack_locked(name, true))
			simulator_refuse_setting(&sim_simulator,
			                         "CUDASIM_LACKS", text);
		text += length + (text[length] == ',');
	}
}

void
sim_environment_read(void)
{
	static const struct {
		const char *theirs, *ours;
	} cuda[] = {
		{"CUDA_DEVICE_MAX_CONNECTIONS", "queues"},
		{"CUDA_DEVICE_MAX_COPY_CONNECTIONS", "copy_queues"},
	};
	const char *text;
	char name[64], *end;

	for (size_t i = 0; i < sizeof(cuda) / sizeof(cuda[0]); i++) {
		text = getenv(cuda[i].theirs);
		if (text)
			set_locked(cuda[i].ours, strtol(text, NULL, 10));
	}
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		simulator_variable(&sim_simulator, settings[i].name, name,
		                   sizeof(name));
		text = getenv(name);
		if (!text || text[0] == '\0')
			continue;
		errno = 0;
		if (!set_locked(settings[i].name, strtol(text, &end, 10)) ||
		    *end || errno)
			simulator_refuse_setting(&sim_simulator, name, text);
	}
	text = getenv("CUDASIM_FAIL");
	/* "cuMemcpyAsync:3:700,cuEventQuery:1:719:sticky"; "*" is any function. */
	if (text && simulator_read_faults(text, fail_locked))
		simulator_refuse_setting(&sim_simulator, "CUDASIM_FAIL", text);
	text = getenv("CUDASIM_LACKS");
	if (text)
		read_lacks(text);
}

bool
cudasim_set(const char *name, long value)
{
	bool done;

	sim_lock_for_control();
	done = set_locked(name, value);
	pthread_cond_broadcast(&sim_changed);
	pthread_mutex_unlock(&sim_lock);
	return done;
}

bool
cudasim_lack(const char *name, bool lacks)
{
	bool done;

	sim_lock_for_control();
	done = sim_lack_locked(name, lacks);
	pthread_mutex_unlock(&sim_lock);
	return done;
}

bool
cudasim_fail(const char *name, long n, CUresult result, bool sticky)
{
	bool done;

	sim_lock_for_control();
	done = fail_locked(name, n, result, sticky);
	pthread_mutex_unlock(&sim_lock);
	return done;
}
