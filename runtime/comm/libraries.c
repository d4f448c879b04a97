/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library is made of, and what it finds at run time: baton_library. */
#include "found.h"
#include "log.h"
#include "registry.h"
#include "sized.h"
#include "thread.h"

#if defined(__clang__)
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifdef NDEBUG
#define ASSERTIONS ""
#else
#define ASSERTIONS ", with assertions"
#endif

static const struct batoni_sized sized_library = {
	.name = "info_p",
	.size_name = "info_p->size",
	.advice = "set it to sizeof(*info_p)",
	.smallest = BATONI_SIZED_UNTIL(struct baton_library_info, name),
	.bytes = sizeof(struct baton_library_info),
};

static size_t
count_finders(void)
{
	size_t n = 0;

	while (batoni_parts.finders[n].name)
		n++;
	return n;
}

static void
tell_of_baton(struct baton_library_info *info)
{
	info->name = "Baton";
	info->built = COMPILER ASSERTIONS;
	info->version = baton_version();
	info->path = batoni_file_of((void (*)(void))baton_version);
}

static void
tell_of(const struct batoni_finder *finder, struct baton_library_info *info)
{
	info->name = finder->name;
	if (finder->find)
		finder->find(info);
	else
		info->why_not = "this build of Baton left it out";
}

enum baton_status
baton_library(size_t index, struct baton_library_info *info_p)
{
	struct baton_library_info info = {.size = sizeof(info), "", "", "", "", ""};
	size_t others = count_finders();

	BATONI_ENTER("baton_library");
	if (!info_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_library: info_p is NULL");
	if (index > others)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_library: index is %zu; there are %zu "
		                     "libraries, 0 to %zu",
		                     index, others + 1, others);
	if (index == 0)
		tell_of_baton(&info);
	else
		tell_of(&batoni_parts.finders[index - 1], &info);
	return batoni_sized_give(&sized_library, "baton_library", &info, info_p);
}
