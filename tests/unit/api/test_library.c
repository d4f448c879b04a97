/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared library in a process that does not link it: loaded, unloaded, beside signals.  This
 * program links the static one, and opens the other by its path. */
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "baton.h"
#include "run_tests.h"

/* Of the library whose path is `name`. */
struct tls {
	const char *name;
	size_t bytes;
	bool found;
};

static int
find_tls(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct tls *tls = arg;

	(void)size;
	if (!strstr(info->dlpi_name, tls->name))
		return 0;
	tls->found = true;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_TLS)
			tls->bytes = info->dlpi_phdr[i].p_memsz;
	}
	return 0;
}

START_TEST(thread_local_storage_of_the_library_is_below_128_bytes)
{
	struct tls tls = {.name = "libbaton"};

	ck_assert_ptr_nonnull(dlopen(LIBRARY, RTLD_NOW));
	dl_iterate_phdr(find_tls, &tls);
	ck_assert(tls.found);
	ck_assert_uint_lt(tls.bytes, 128);
}
END_TEST

/* Its engine's thread is there when the program closes it. */
START_TEST(library_stays_after_dlclose)
{
	enum baton_status (*create)(int, const struct baton_comm_options *,
	                            struct baton_comm **);
	void *library = dlopen(LIBRARY, RTLD_NOW);
	struct baton_comm *comm;

	ck_assert_ptr_nonnull(library);
	*(void **)&create = dlsym(library, "baton_comm_create_local");
	ck_assert_int_eq(create(1, NULL, &comm), BATON_OK);
	ck_assert_int_eq(dlclose(library), 0);
	ck_assert_ptr_nonnull(dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD));
}
END_TEST

static void
nothing(void *arg)
{
	(void)arg;
}

/* A program that waits for its signals by sigwait: no thread of ours takes them. */
START_TEST(signals_of_the_process_are_left_to_the_program_s_threads)
{
	struct baton_comm *comm;
	baton_stream stream;
	sigset_t set;
	int got = 0;

	ck_assert_int_eq(baton_comm_create_local(1, NULL, &comm), BATON_OK);
	ck_assert_int_eq(baton_stream_create(comm, &stream), BATON_OK);
	ck_assert_int_eq(baton_stream_launch(comm, stream, nothing, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comm, stream), BATON_OK);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	ck_assert_int_eq(sigprocmask(SIG_BLOCK, &set, NULL), 0);
	ck_assert_int_eq(kill(getpid(), SIGTERM), 0);
	ck_assert_int_eq(sigwait(&set, &got), 0);
	ck_assert_int_eq(got, SIGTERM);
	ck_assert_int_eq(baton_stream_destroy(comm, stream), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		thread_local_storage_of_the_library_is_below_128_bytes,
		library_stays_after_dlclose,
		signals_of_the_process_are_left_to_the_program_s_threads,
	};

	return RUN_TESTS("library", tests);
}
