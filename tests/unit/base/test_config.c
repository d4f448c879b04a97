/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captured.h"
#include "config.h"
#include "run_tests.h"

static void
print_level(void)
{
	/* Twice: the environment is read once. */
	int before = (int)batoni_config()->log_level;

	setenv("BATON_LOG", "none", 1);
	fprintf(stderr, "%d %d", before, (int)batoni_config()->log_level);
}

START_TEST(environment_names_the_level_and_is_read_once)
{
	static const struct {
		const char *value, *level;
	} cases[] = {
		{"none", "0 0"}, {"error", "1 1"}, {"warning", "2 2"},
		{"info", "3 3"}, {"debug", "4 4"}, {NULL, "2 2"},
		{"", "2 2"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct captured out = capture(cases[i].value, print_level);

		ck_assert_str_eq(out.text, cases[i].level);
	}
}
END_TEST

START_TEST(value_that_is_no_level_is_told_once_and_leaves_the_default)
{
	static const char *const values[] = {"verbose", "Debug", "3", " info"};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct captured out = capture(values[i], print_level);
		char quoted[32];

		snprintf(quoted, sizeof(quoted), "\"%s\"", values[i]);
		ck_assert_ptr_nonnull(strstr(out.text, "baton: warning: "));
		ck_assert_ptr_nonnull(strstr(out.text, "BATON_LOG"));
		ck_assert_ptr_nonnull(strstr(out.text, quoted));
		ck_assert_ptr_nonnull(strstr(out.text, "debug\n2 2"));
		ck_assert_ptr_null(strstr(strstr(out.text, "BATON_LOG") + 1,
		                          "BATON_LOG"));
	}
}
END_TEST

static void
print_path(void)
{
	unsigned before = batoni_config()->window_path;

	setenv("BATON_WINDOW_PATH", "direct", 1);
	fprintf(stderr, "%u %u", before, batoni_config()->window_path);
}

START_TEST(environment_names_the_path_of_windows)
{
	static const struct {
		const char *value, *paths;
	} cases[] = {
		{"direct", "1 1"}, {"vmwrite", "2 2"}, {"message", "4 4"},
		{"native", "8 8"}, {"", "0 0"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("BATON_WINDOW_PATH", cases[i].value, 1);
		ck_assert_str_eq(capture(NULL, print_path).text,
		                 cases[i].paths);
	}
	unsetenv("BATON_WINDOW_PATH");
	ck_assert_str_eq(capture(NULL, print_path).text, "0 0");
}
END_TEST

START_TEST(value_that_is_no_path_is_told_and_leaves_the_choice)
{
	struct captured out;

	setenv("BATON_WINDOW_PATH", "mesage", 1);
	out = capture(NULL, print_path);
	ck_assert_ptr_nonnull(strstr(out.text,
	                             "baton: warning: BATON_WINDOW_PATH"));
	ck_assert_ptr_nonnull(strstr(out.text, "\"mesage\""));
	ck_assert_ptr_nonnull(strstr(out.text, "message, native\n0 0"));
}
END_TEST

static void
print_message_path(void)
{
	fprintf(stderr, "%d", (int)batoni_config()->message_path);
}

START_TEST(environment_names_the_path_of_messages)
{
	static const struct {
		const char *value, *path;
	} cases[] = {{"auto", "0"}, {"near", "1"}, {"mpi", "2"}, {"", "0"}};
	struct captured out;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("BATON_MESSAGE_PATH", cases[i].value, 1);
		ck_assert_str_eq(capture(NULL, print_message_path).text,
		                 cases[i].path);
	}
	setenv("BATON_MESSAGE_PATH", "far", 1);
	out = capture(NULL, print_message_path);
	ck_assert_ptr_nonnull(strstr(out.text, "it takes auto, near, mpi\n0"));
}
END_TEST

static void
read_all(void)
{
	batoni_config();
	batoni_config();
}

static size_t
count(const char *text, const char *part)
{
	size_t n = 0;

	while ((text = strstr(text, part)) != NULL) {
		text++;
		n++;
	}
	return n;
}

static bool
takes_anything(const char *values)
{
	static const char *const such[] = {"a file", "a directory",
	                                   "an interface, or an address",
	                                   "16 to 4095 characters"};

	for (size_t i = 0; i < sizeof(such) / sizeof(such[0]); i++) {
		if (strcmp(values, such[i]) == 0)
			return true;
	}
	return false;
}

/* The value of each variable, as what the warning about a wrong one says of it. */
START_TEST(every_variable_tells_what_it_takes)
{
#define WRONG(kind, field, name, values, otherwise, meaning)                  \
	if (!takes_anything(values)) {                                        \
		struct captured out;                                          \
                                                                          \
		setenv(#name, "wrong", 1);                                    \
		out = capture(strcmp(#name, "BATON_LOG") == 0 ? "wrong"       \
		                                              : NULL,         \
		              read_all);                                      \
		ck_assert_str_eq(out.text,                                    \
		                 "baton: warning: " #name                     \
		                 " is \"wrong\"; it takes " values "\n");      \
		unsetenv(#name);                                              \
	}
	BATONI_VARIABLES(WRONG)
}
END_TEST

static void
print_variables(void)
{
	struct baton_variable_info info = {.size = sizeof(info)};
	size_t n = 0;

	for (; baton_variable(n, &info) == BATON_OK; n++) {
		if (info.source != BATON_VARIABLE_UNSET)
			fprintf(stderr, "%s=%s,%d\n", info.name, info.value,
			        (int)info.source);
		else if (strcmp(info.value, info.otherwise) != 0)
			fprintf(stderr, "%s is not set, and %s\n", info.name,
			        info.value);
		if (!*info.values || !*info.meaning)
			fprintf(stderr, "%s is not told of\n", info.name);
	}
	if (n < 15 || !strstr(baton_last_error(), "index is"))
		fprintf(stderr, "%zu: %s\n", n, baton_last_error());
}

START_TEST(variables_are_told_with_their_value_and_where_it_is_from)
{
	char name[5000];

	ck_assert_str_eq(capture(NULL, print_variables).text, "");
	setenv("BATON_WINDOW_PATH", "vmwrite", 1);
	setenv("BATON_DEVICE", "cuda", 1);
	setenv("BATON_CUDA_LIBRARY", "/opt/libcuda.so", 1);
	setenv("BATON_NCCL_LANES", "0000000000000000000007", 1);
	setenv("BATON_SECRET", "sixteen_letters_or_more", 1);
	setenv("BATON_CHECK", "", 1);
	setenv("BATON_PUTS", "nobody", 1);
	ck_assert_str_eq(capture("error", print_variables).text,
	                 "BATON_LOG=error,1\n"
	                 "BATON_WINDOW_PATH=vmwrite,1\n"
	                 "BATON_PUTS=auto,2\n"
	                 "BATON_DEVICE=cuda,1\n"
	                 "BATON_CUDA_LIBRARY=/opt/libcuda.so,1\n"
	                 "BATON_NCCL_LANES=7,1\n"
	                 "BATON_SECRET=(not shown),1\n");
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	setenv("BATON_CUDA_LIBRARY", name, 1);
	ck_assert_ptr_nonnull(strstr(capture("error", print_variables).text,
	                             "BATON_CUDA_LIBRARY=libcuda.so.1,2\n"));
}
END_TEST

START_TEST(variable_that_there_is_not_is_refused)
{
	struct baton_variable_info info = {.size = sizeof(info), .name = "mine"};

	ck_assert_int_eq(baton_variable(SIZE_MAX, &info), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_variable(0, NULL), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "info_p is NULL"));
	info.size = 0;
	ck_assert_int_eq(baton_variable(0, &info), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "info_p->size is 0"));
	ck_assert_str_eq(info.name, "mine");
}
END_TEST

START_TEST(unknown_names_are_told_once_with_one_that_is_near)
{
	static const struct {
		const char *name, *nearest; /* NULL: none is near */
	} cases[] = {
		{"BATON_LOGS", "BATON_LOG"},
		{"BATON_LOG_LEVEL", "BATON_LOG"},
		{"BATON_WINDOWPATH", "BATON_WINDOW_PATH"},
		{"BATON_DUMPON", "BATON_DUMP_ON"},
		{"BATON_CUDA_LIB", "BATON_CUDA_LIBRARY"},
		{"BATON_NCCL_LIB", "BATON_NCCL_LIBRARY"},
		{"BATON_TRASE", "BATON_TRACE"},
		{"BATON_LOG_LIBRARY", "BATON_LOG"},
		{"BATON_TRACE_DIR", "BATON_TRACE"},
		{"BATON_NCCL_LIBRARY_ROOT", "BATON_NCCL_LIBRARY"},
		{"BATON_TRANSPROT", "BATON_TRANSPORT"},
		{"BATON_FOO", NULL},
		{"BATON_PATH_MESSAGE", NULL},
		{"BATON_X", NULL},
		{"BATON_", NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct captured out;
		char words[200];

		setenv(cases[i].name, "1", 1);
		out = capture(NULL, read_all);
		unsetenv(cases[i].name);
		snprintf(words, sizeof(words),
		         "knows no variable %s of the environment; %s%s\n",
		         cases[i].name,
		         cases[i].nearest ? "the nearest that it knows is "
		                          : "`baton info' lists those that it knows",
		         cases[i].nearest ? cases[i].nearest : "");
		ck_assert_msg(strstr(out.text, words), "%s", out.text);
		ck_assert_uint_eq(count(out.text, "\n"), 1);
	}
}
END_TEST

START_TEST(several_unknown_names_are_all_told)
{
	struct captured out;
	char name[300] = "BATON_";

	memset(name + strlen(name), 'X', 250);
	setenv(name, "", 1);
	setenv("BATON_ONE", "", 1);
	out = capture(NULL, read_all);
	ck_assert_ptr_nonnull(strstr(out.text, "variable BATON_ONE of"));
	ck_assert_ptr_nonnull(strstr(out.text, "variable BATON_XXXX"));
	ck_assert_uint_eq(count(out.text, "\n"), 2);
}
END_TEST

START_TEST(names_that_are_known_or_of_others_are_not_told)
{
	setenv("BATON_ROOT", "/opt/baton", 1);
	setenv("BATON_DIR", "/opt/baton", 1);
	setenv("BATON_HOME", "/opt/baton", 1);
	setenv("BATON_PLUGINS_DIR", "/opt/baton", 1);
	setenv("BATONS", "2", 1);
	setenv("MY_BATON_LOG", "2", 1);
	setenv("BATON_WINDOW_PATH", "direct", 1);
	setenv("BATON_CUDA_LIBRARY", "/nowhere", 1);
	ck_assert_str_eq(capture("info", read_all).text, "");
}
END_TEST

START_TEST(level_below_warning_silences_the_warnings)
{
	setenv("BATON_ONE", "", 1);
	setenv("BATON_WINDOW_PATH", "wrong", 1);
	ck_assert_str_eq(capture("error", read_all).text, "");
	ck_assert_str_eq(capture("none", read_all).text, "");
	ck_assert_uint_eq(count(capture("warning", read_all).text, "\n"), 2);
}
END_TEST

static void
print_places(void)
{
	fprintf(stderr, "%s %s", batoni_config()->device,
	        batoni_config()->transport);
}

START_TEST(environment_names_device_and_transport)
{
	static const char *const words[][2] = {
		{"", ""}, {"cuda", "auto"}, {"", "nccl"}, {"host", "nccl"},
		{"host", "near"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		char text[32];

		setenv("BATON_DEVICE", words[i][0], 1);
		setenv("BATON_TRANSPORT", words[i][1], 1);
		snprintf(text, sizeof(text), "%s %s", words[i][0], words[i][1]);
		ck_assert_str_eq(capture(NULL, print_places).text, text);
	}
}
END_TEST

static void
print_libraries(void)
{
	fprintf(stderr, "%s,%s", batoni_config()->cuda_library,
	        batoni_config()->nccl_library);
}

START_TEST(environment_names_libraries)
{
	struct captured out;
	char name[5000];

	ck_assert_str_eq(capture(NULL, print_libraries).text, ",");
	setenv("BATON_CUDA_LIBRARY", "/opt/libcuda.so", 1);
	setenv("BATON_NCCL_LIBRARY", "/opt/libnccl.so", 1);
	ck_assert_str_eq(capture(NULL, print_libraries).text,
	                 "/opt/libcuda.so,/opt/libnccl.so");
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	setenv("BATON_CUDA_LIBRARY", name, 1);
	setenv("BATON_NCCL_LIBRARY", name, 1);
	out = capture(NULL, print_libraries);
	ck_assert_ptr_nonnull(strstr(out.text, "BATON_CUDA_LIBRARY is \"xxx"));
	ck_assert_ptr_nonnull(strstr(out.text, "BATON_NCCL_LIBRARY is \"xxx"));
	ck_assert_ptr_nonnull(strstr(out.text, "it takes a file\n"));
}
END_TEST

static void
print_chunks(void)
{
	fprintf(stderr, "%u %u", batoni_config()->staging_chunk,
	        batoni_config()->staging_chunks);
}

START_TEST(environment_names_the_chunks_of_staging_within_bounds)
{
	static const struct {
		const char *bytes, *count, *text;
	} cases[] = {
		{NULL, NULL, "0 0"},
		{"4096", "1", "4096 1"},
		{"67108864", "4096", "67108864 4096"},
		{"5001", "3", "5001 3"},
	};
	static const char *const wrong[] = {
		"4095", "67108865", "-1", "+5000", "5000 ", "5k", "0x2000",
		"99999999999999999999"};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (cases[i].bytes)
			setenv("BATON_STAGING_CHUNK", cases[i].bytes, 1);
		if (cases[i].count)
			setenv("BATON_STAGING_CHUNKS", cases[i].count, 1);
		ck_assert_str_eq(capture(NULL, print_chunks).text,
		                 cases[i].text);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct captured out;

		setenv("BATON_STAGING_CHUNK", wrong[i], 1);
		out = capture(NULL, print_chunks);
		ck_assert_ptr_nonnull(
			strstr(out.text, "BATON_STAGING_CHUNK is \""));
		ck_assert_ptr_nonnull(strstr(
			out.text, "it takes 4096 to 67108864\n0 3"));
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		environment_names_the_level_and_is_read_once,
		value_that_is_no_level_is_told_once_and_leaves_the_default,
		environment_names_the_path_of_windows,
		value_that_is_no_path_is_told_and_leaves_the_choice,
		environment_names_the_path_of_messages,
		every_variable_tells_what_it_takes,
		variables_are_told_with_their_value_and_where_it_is_from,
		variable_that_there_is_not_is_refused,
		unknown_names_are_told_once_with_one_that_is_near,
		several_unknown_names_are_all_told,
		names_that_are_known_or_of_others_are_not_told,
		level_below_warning_silences_the_warnings,
		environment_names_device_and_transport,
		environment_names_libraries,
		environment_names_the_chunks_of_staging_within_bounds,
	};

	return RUN_TESTS("config", tests);
}
