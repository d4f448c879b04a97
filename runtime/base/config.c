/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sized.h"

#define PREFIX "BATON_"
#define NAME_MAX_BYTES 64

struct variable {
	const char *name, *values, *otherwise, *meaning;
	size_t at; /* of its field in batoni_config */
	/* Store the value in the field.  False: it is not allowed. */
	bool (*store)(void *field, const char *value, const char *values);
};

/* What was found in the environment. */
struct setting {
	enum baton_variable_source source;
	char text[BATONI_CONFIG_WORD_BYTES]; /* the value in force, unless the field is a text */
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

bool
batoni_number_read(const char *text, unsigned long least, unsigned long most,
                   uint32_t *number_p)
{
	unsigned long number;

	if (!*text || strspn(text, "0123456789") != strlen(text))
		return false;
	errno = 0;
	number = strtoul(text, NULL, 10);
	if (errno || number < least || number > most)
		return false;
	*number_p = (uint32_t)number;
	return true;
}

/* ---- how a value is stored, by the kind that BATONI_VARIABLES names ---- */

/* The index of the value, in an enum or unsigned. */
static bool
store_choice(void *field, const char *value, const char *values)
{
	int i = choice(value, values);
	unsigned index = (unsigned)i;

	if (i >= 0)
		memcpy(field, &index, sizeof(index));
	return i >= 0;
}

/* A mask with the bit of the value's index. */
static bool
store_bit(void *field, const char *value, const char *values)
{
	int i = choice(value, values);

	if (i >= 0)
		*(unsigned *)field = 1u << i;
	return i >= 0;
}

/* True for the last of the values. */
static bool
store_flag(void *field, const char *value, const char *values)
{
	int i = choice(value, values);
	const char *last = strrchr(values, ' ');

	*(bool *)field = i >= 0 && strcmp(value, last ? last + 1 : values) == 0;
	return i >= 0;
}

/* The value itself, one of the values. */
static bool
store_word(void *field, const char *value, const char *values)
{
	if (choice(value, values) < 0)
		return false;
	snprintf(field, BATONI_CONFIG_WORD_BYTES, "%s", value);
	return true;
}

static bool
store_text(void *field, const char *value, const char *values)
{
	(void)values;
	if (strlen(value) >= BATONI_CONFIG_FILE_BYTES)
		return false;
	strcpy(field, value);
	return true;
}

/* Its length is checked where it is needed, since the warning about a value that is refused shows
 * it.  A value that is too long becomes one that is too short. */
static bool
store_secret(void *field, const char *value, const char *values)
{
	if (!store_text(field, value, values))
		strcpy(field, "-");
	return true;
}

/* A number within the bounds, which are "4096 to 67108864". */
static bool
store_number(void *field, const char *value, const char *bounds)
{
	char *end;
	unsigned long least = strtoul(bounds, &end, 10);
	unsigned long most = strtoul(end + strlen(" to "), NULL, 10);

	return batoni_number_read(value, least, most, field);
}

/* ---- the table ---- */

#define FITS(kind, field, name, values, otherwise, meaning)                            \
	static_assert(sizeof(#name) <= NAME_MAX_BYTES, #name);
BATONI_VARIABLES(FITS)
#undef FITS

static_assert(sizeof(enum batoni_log_level) == sizeof(unsigned) &&
                      sizeof(enum batoni_mpi_cuda) == sizeof(unsigned) &&
                      sizeof(enum batoni_message_path) == sizeof(unsigned) &&
                      sizeof(enum batoni_staging_maps) == sizeof(unsigned),
              "store_choice stores an unsigned");

static const struct variable variables[] = {
#define VARIABLE(kind, field, name, values, otherwise, meaning)                \
	{#name,   values,                                                     \
	 otherwise, meaning,                                                  \
	 offsetof(struct batoni_config, field), store_##kind},
	BATONI_VARIABLES(VARIABLE)
#undef VARIABLE
};

#define VARIABLES (sizeof(variables) / sizeof(variables[0]))

static struct setting settings[VARIABLES]; /* written by read_environment alone */

static void
read_variable(const struct variable *variable, struct setting *setting)
{
	const char *value = getenv(variable->name);
	char *field = (char *)&config + variable->at;

	if (!value || !*value)
		return;
	if (!variable->store(field, value, variable->values)) {
		setting->source = BATON_VARIABLE_REFUSED;
		warn("%s is \"%.100s\"; it takes %s", variable->name, value,
		     variable->values);
		return;
	}
	setting->source = BATON_VARIABLE_ENVIRONMENT;
	if (variable->store == store_number)
		snprintf(setting->text, sizeof(setting->text), "%u",
		         *(const uint32_t *)(const void *)field);
	else
		snprintf(setting->text, sizeof(setting->text), "%s", value);
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

/* At most a third of it is to be changed, or it is the beginning of a known name. */
static bool
is_near(const char *name, const char *known)
{
	size_t own = strlen(name) - strlen(PREFIX);

	return own > 0 && (remoteness(name, known) <= own / 3 ||
	                   strncmp(known, name, strlen(name)) == 0);
}

/* The longest known name that has more behind it here.  NULL: none has. */
static const char *
beginning(const char *name)
{
	const char *best = NULL;

	for (size_t i = 0; i < VARIABLES; i++) {
		const char *known = variables[i].name;

		if (strncmp(name, known, strlen(known)) == 0 &&
		    (!best || strlen(known) > strlen(best)))
			best = known;
	}
	return best;
}

/* NULL: no known name is near. */
static const char *
nearest(const char *name)
{
	const char *begins = beginning(name);
	size_t best = 0;

	for (size_t i = 1; i < VARIABLES; i++) {
		if (remoteness(name, variables[i].name) <
		    remoteness(name, variables[best].name))
			best = i;
	}
	return is_near(name, variables[best].name) ? variables[best].name : begins;
}

/* BATON_ROOT, and names like it.  BATON_TRACE_DIR is meant for Baton: it begins as a variable of Baton's. */
static bool
is_of_packages(const char *name)
{
	static const char *const ends[] = {"_ROOT", "_DIR", "_HOME"};
	const char *end = strrchr(name, '_');
	size_t i = 0;

	if (beginning(name))
		return false;
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
warn_of_unknown(void)
{
	for (char **entry = environ; entry && *entry; entry++) {
		char name[NAME_MAX_BYTES];
		const char *near;

		if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s",
		         (int)strcspn(*entry, "="), *entry);
		if (is_known(name) || is_of_packages(name))
			continue;
		near = nearest(name);
		warn("Baton %s knows no variable %s of the environment; %s%s",
		     baton_version(), name,
		     near ? "the nearest that it knows is "
		          : "`baton info' lists those that it knows",
		     near ? near : "");
	}
}

static void
read_environment(void)
{
	for (size_t i = 0; i < VARIABLES; i++)
		read_variable(&variables[i], &settings[i]);
	warn_of_unknown();
}

const struct batoni_config *
batoni_config(void)
{
	pthread_once(&once, read_environment);
	return &config;
}

/* ---- what is told of it ---- */

static const char *
value_in_force(const struct variable *variable, const struct setting *setting)
{
	if (setting->source != BATON_VARIABLE_ENVIRONMENT)
		return variable->otherwise;
	if (variable->store == store_secret)
		return "(not shown)";
	return variable->store == store_text
	               ? (const char *)&config + variable->at
	               : setting->text;
}

static const struct batoni_sized sized_variable = {
	.name = "info_p",
	.size_name = "info_p->size",
	.advice = "set it to sizeof(*info_p)",
	.smallest = BATONI_SIZED_UNTIL(struct baton_variable_info, name),
	.bytes = sizeof(struct baton_variable_info),
};

enum baton_status
baton_variable(size_t index, struct baton_variable_info *info_p)
{
	struct baton_variable_info info;

	if (!info_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_variable: info_p is NULL");
	if (index >= VARIABLES)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_variable: index is %zu; there are %zu "
		                     "variables, 0 to %zu",
		                     index, VARIABLES, VARIABLES - 1);
	batoni_config();
	info = (struct baton_variable_info){
		.size = sizeof(info),
		.name = variables[index].name,
		.values = variables[index].values,
		.otherwise = variables[index].otherwise,
		.meaning = variables[index].meaning,
		.value = value_in_force(&variables[index], &settings[index]),
		.source = settings[index].source,
	};
	return batoni_sized_give(&sized_variable, "baton_variable", &info, info_p);
}
