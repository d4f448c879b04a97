/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, texts and sizes: what can be said without any state. */
#include "datatype.h"
#include "log.h"

#define QUOTE(x) #x
#define VERSION_TEXT(major, minor, patch)                                     \
	QUOTE(major) "." QUOTE(minor) "." QUOTE(patch)

const char *
baton_status_name(enum baton_status status)
{
	switch (status) {
#define NAME_CASE(name, number, text)                                         \
	case name:                                                            \
		return #name;
		BATON_STATUS_MAP(NAME_CASE)
#undef NAME_CASE
	}
	return "unknown status";
}

const char *
baton_status_text(enum baton_status status)
{
	switch (status) {
#define TEXT_CASE(name, number, text)                                         \
	case name:                                                            \
		return text;
		BATON_STATUS_MAP(TEXT_CASE)
#undef TEXT_CASE
	}
	return "unknown status";
}

enum baton_status
batoni_error_told(int64_t number)
{
	switch (number) {
#define ERROR_CASE(name, value, text)                                         \
	case value:                                                           \
		return (value) < 0 ? name : BATON_ERR_PEER;
		BATON_STATUS_MAP(ERROR_CASE)
#undef ERROR_CASE
	default:
		return BATON_ERR_PEER;
	}
}

const char *
baton_version(void)
{
	return VERSION_TEXT(BATON_VERSION_MAJOR, BATON_VERSION_MINOR,
	                    BATON_VERSION_PATCH);
}

const unsigned char batoni_datatype_sizes[BATON_DATATYPE_COUNT] = {
	[BATON_INT8] = 1,       [BATON_UINT8] = 1,
	[BATON_INT16] = 2,      [BATON_UINT16] = 2,
	[BATON_INT32] = 4,      [BATON_UINT32] = 4,
	[BATON_INT64] = 8,      [BATON_UINT64] = 8,
	[BATON_FLOAT16] = 2,    [BATON_BFLOAT16] = 2,
	[BATON_FLOAT32] = 4,    [BATON_FLOAT64] = 8,
	[BATON_FLOAT8E4M3] = 1, [BATON_FLOAT8E5M2] = 1,
	[BATON_BOOL] = 1,
};

size_t
baton_datatype_size(enum baton_datatype type)
{
	if ((unsigned)type >= BATON_DATATYPE_COUNT)
		return 0;
	return batoni_datatype_sizes[type];
}

const char *
batoni_datatype_name(int type)
{
	static const char *const names[BATON_DATATYPE_COUNT] = {
		[BATON_INT8] = "int8",       [BATON_UINT8] = "uint8",
		[BATON_INT16] = "int16",     [BATON_UINT16] = "uint16",
		[BATON_INT32] = "int32",     [BATON_UINT32] = "uint32",
		[BATON_INT64] = "int64",     [BATON_UINT64] = "uint64",
		[BATON_FLOAT16] = "float16", [BATON_BFLOAT16] = "bfloat16",
		[BATON_FLOAT32] = "float32", [BATON_FLOAT64] = "float64",
		[BATON_FLOAT8E4M3] = "float8e4m3",
		[BATON_FLOAT8E5M2] = "float8e5m2",
		[BATON_BOOL] = "bool",
	};

	return type >= 0 && type < BATON_DATATYPE_COUNT && names[type]
	               ? names[type]
	               : "unknown type";
}
