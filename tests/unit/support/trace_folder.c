/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace_folder.h"

#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

char trace_folder[] = "/tmp/baton-trace-XXXXXX";

void
trace_folder_make(void)
{
	ck_assert_ptr_nonnull(mkdtemp(trace_folder));
	setenv("BATON_TRACE", trace_folder, 1);
}

unsigned
trace_folder_count(void)
{
	DIR *dir = opendir(trace_folder);
	struct dirent *entry;
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

void
trace_folder_remove(void)
{
	DIR *dir = opendir(trace_folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
	rmdir(trace_folder);
}
