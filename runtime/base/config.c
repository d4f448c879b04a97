/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "BATON_"
#define NAME_MAX_BYTES 64

struct variable {
	const char *name, *values;
	/* Take the value over.  False: it is not allowed. */
	bool (*set)(const char *value, const char *values);
};

static struct batoni_config config = {.log_level = BATONI_LOG_WARN};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* batoni_log asks for the configuration first. */
static void
warn(const char *format, ...)
{
	char line[512];
	va_list arguments;

	if (config.log_level < BATONI_LOG_WARN)
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	fprintf(stderr, "baton: warning: %s\n", line);
}

/* The index of value in "one, two, three"; -1: it is not there. */
static int
choice(const char *value, const char *values)
{
	for (int i = 0;; i++) {
		size_t length = strcspn(values, ",");

		if (strlen(value) == length &&
		    memcmp(value, values, length) == 0)
			return i;
		if (values[length] == '\0')
			return -1;
		values += length + strlen(", ");
	}
}

static bool
set_log_level(const char *value, const char *values)
{
	int i = choice(value, values);

	if (i >= 0)
		config.log_level = (enum batoni_log_level)i;
	return i >= 0;
}

static bool
set_window_path(const char *value, const char *values)
{
	static const unsigned paths[] = {BATON_WINDOW_PATH_DIRECT,
	                                 BATON_WINDOW_PATH_VMWRITE,
	                                 BATON_WINDOW_PATH_MESSAGE,
	                                 BATON_WINDOW_PATH_NATIVE};
	int i = choice(value, values);

	if (i >= 0)
		config.window_path = paths[i];
	return i >= 0;
}

static bool
set_puts(const char *value, const char *values)
{
	int i = choice(value, values);

	config.engine_puts = i == 1;
	return i >= 0;
}

static bool
set_dump_on_signal(const char *value, const char *values)
{
	config.dump_on_signal = choice(value, values) >= 0;
	return config.dump_on_signal;
}

/* One of the values, as it is. */
static bool
set_word(char word[BATONI_CONFIG_WORD_BYTES], const char *value,
         const char *values)
{
	if (choice(value, values) < 0)
		return false;
	snprintf(word, BATONI_CONFIG_WORD_BYTES, "%s", value);
	return true;
}

static bool
set_device(const char *value, const char *values)
{
	return set_word(config.device, value, values);
}

static bool
set_transport(const char *value, const char *values)
{
	return set_word(config.transport, value, values);
}

static bool
set_file(char *file, const char *value)
{
	if (strlen(value) >= BATONI_CONFIG_FILE_BYTES)
		return false;
	strcpy(file, value);
	return true;
}

static bool
set_cuda_library(const char *value, const char *values)
{
	(void)values;
	return set_file(config.cuda_library, value);
}

static bool
set_nccl_library(const char *value, const char *values)
{
	(void)values;
	return set_file(config.nccl_library, value);
}

static bool
set_nvtx(const char *value, const char *values)
{
	int i = choice(value, values);

	config.nvtx = i == 1;
	return i >= 0;
}

static bool
set_nccl_lists(const char *value, const char *values)
{
	int i = choice(value, values);

	config.nccl_lists = i == 1;
	return i >= 0;
}

static bool
set_check(const char *value, const char *values)
{
	int i = choice(value, values);

	config.check = i == 1;
	return i >= 0;
}

static bool
set_interface(const char *value, const char *values)
{
	(void)values;
	return set_file(config.interface, value);
}

/* Its length is looked at where it is needed, since a value that is refused is written out.
 * One that is too long becomes one that is too short. */
static bool
set_secret(const char *value, const char *values)
{
	(void)values;
	if (!set_file(config.secret, value))
		strcpy(config.secret, "-");
	return true;
}

static bool
set_cuda_trigger(const char *value, const char *values)
{
	int i = choice(value, values);

	config.cuda_writes = i == 1;
	return i >= 0;
}

static bool
set_cuda_copies(const char *value, const char *values)
{
	int i = choice(value, values);

	config.cuda_single = i == 1;
	return i >= 0;
}

static bool
set_mpi_cuda(const char *value, const char *values)
{
	int i = choice(value, values);

	if (i >= 0)
		config.mpi_cuda = (enum batoni_mpi_cuda)i;
	return i >= 0;
}

/* A decimal number within the bounds, which are "4096 to 67108864". */
static bool
set_number(const char *value, const char *bounds, uint32_t *number_p)
{
	unsigned long least, most, number;
	char *end;

	least = strtoul(bounds, &end, 10);
	most = strtoul(end + strlen(" to "), NULL, 10);
	if (strspn(value, "0123456789") != strlen(value))
		return false;
	errno = 0;
	number = strtoul(value, NULL, 10);
	if (errno || number < least || number > most)
		return false;
	*number_p = (uint32_t)number;
	return true;
}

static bool
set_port(const char *value, const char *values)
{
	return set_number(value, values, &config.port);
}

static bool
set_nccl_lanes(const char *value, const char *values)
{
	return set_number(value, values, &config.nccl_lanes);
}

static bool
set_nccl_ctas(const char *value, const char *values)
{
	return set_number(value, values, &config.nccl_ctas);
}

static bool
set_staging_chunk(const char *value, const char *values)
{
	return set_number(value, values, &config.staging_chunk);
}

static bool
set_staging_chunks(const char *value, const char *values)
{
	return set_number(value, values, &config.staging_chunks);
}

#define FITS(field, name, values, meaning)                                     \
	static_assert(sizeof(#name) <= NAME_MAX_BYTES, #name);
BATONI_VARIABLES(FITS)
#undef FITS

static const struct variable variables[] = {
#define VARIABLE(field, name, values, meaning) {#name, values, set_##field},
	BATONI_VARIABLES(VARIABLE)
#undef VARIABLE
};

#define VARIABLES (sizeof(variables) / sizeof(variables[0]))

static void
read_variable(const struct variable *variable)
{
	const char *value = getenv(variable->name);

	if (value && *value && !variable->set(value, variable->values))
		warn("%s is \"%.100s\"; it takes %s", variable->name, value,
		     variable->values);
}

static size_t
least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The edit distance (Levenshtein) of two names of less than NAME_MAX_BYTES. */
static size_t
distance(const char *a, const char *b)
{
	/* row[j]: from the part of a that was looked at to j bytes of b. */
	size_t row[NAME_MAX_BYTES], length = strlen(b);

	for (size_t j = 0; j <= length; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 1; j <= length; j++) {
			size_t replaced = diagonal + (a[i] != b[j - 1]);

			diagonal = row[j];
			row[j] = least(replaced,
			               least(row[j], row[j - 1]) + 1);
		}
	}
	return row[length];
}

/* What a name is short for is as near as what one change makes of it. */
static size_t
remoteness(const char *name, const char *known)
{
	return strncmp(known, name, strlen(name)) == 0 ? 1
	                                               : distance(name, known);
}

static const char *
nearest(const char *name)
{
	size_t best = 0;

	for (size_t i = 1; i < VARIABLES; i++) {
		if (remoteness(name, variables[i].name) <
		    remoteness(name, variables[best].name))
			best = i;
	}
	return variables[best].name;
}

static bool
is_of_packages(const char *name)
{
	static const char *const ends[] = {"_ROOT", "_DIR", "_HOME"};
	const char *end = strrchr(name, '_');
	size_t i = 0;

	while (i < sizeof(ends) / sizeof(ends[0]) && strcmp(end, ends[i]) != 0)
		i++;
	return i < sizeof(ends) / sizeof(ends[0]);
}

static bool
is_known(const char *name)
{
	size_t i = 0;

	while (i < VARIABLES && strcmp(name, variables[i].name) != 0)
		i++;
	return i < VARIABLES;
}

static void
look_for_unknown(void)
{
	for (char **entry = environ; entry && *entry; entry++) {
		char name[NAME_MAX_BYTES];

		if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s",
		         (int)strcspn(*entry, "="), *entry);
		if (!is_known(name) && !is_of_packages(name))
			warn("Baton %s knows no variable %s of the environment; "
			     "the nearest that it knows is %s",
			     baton_version(), name, nearest(name));
	}
}

static void
read_environment(void)
{
	for (size_t i = 0; i < VARIABLES; i++)
		read_variable(&variables[i]);
	look_for_unknown();
}

const struct batoni_config *
batoni_config(void)
{
	pthread_once(&once, read_environment);
	return &config;
}
