/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One MPI for the program, for Baton, and for the process.
 *
 * The handles of Open MPI are pointers, those of MPICH are integers, and their
 * constants differ.  If the program was compiled with the headers of one and Baton with
 * those of the other, or if a process has loaded both, the first call that takes a handle
 * crashes.  Three families are therefore compared before it: that of the program
 * (baton_mpi.h passes it), that of Baton, and that of the library whose functions are
 * called (MPI_Get_library_version takes no handle).  An unknown family matches any.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "baton_mpi.h"
#include "found.h"
#include "log.h"
#include "mpi_bootstrap.h"

/* Enough for the text of every MPI, not only of the one whose headers these are. */
#define VERSION_BYTES 8192

_Static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= VERSION_BYTES,
               "a version fits");

static const char *
family_name(int family)
{
	if (family == BATON_MPI_FAMILY_OPEN_MPI)
		return "Open MPI";
	if (family == BATON_MPI_FAMILY_MPICH)
		return "MPICH";
	return family == BATON_MPI_FAMILY_ABI ? "the standard ABI"
	                                      : "another MPI";
}

static int
family_of(const char *version)
{
	static const char *const like_mpich[] = {"MPICH", "MVAPICH",
	                                         "Intel(R) MPI"};

	if (strstr(version, "Open MPI"))
		return BATON_MPI_FAMILY_OPEN_MPI;
	for (size_t i = 0; i < sizeof(like_mpich) / sizeof(like_mpich[0]); i++) {
		if (strstr(version, like_mpich[i]))
			return BATON_MPI_FAMILY_MPICH;
	}
	return BATON_MPI_FAMILY_OTHER;
}

static bool
differ(int one, int other)
{
	return one != other && one != BATON_MPI_FAMILY_OTHER &&
	       other != BATON_MPI_FAMILY_OTHER;
}

/* The beginning of a version's text, which can be a line or a page. */
static void
shorten(char text[BATONI_MPI_VERSION_BYTES], char *version)
{
	char *to = version;

	version[strcspn(version, ",\n")] = '\0';
	for (char *from = version; *from; from++) {
		bool blank = *from == ' ' || *from == '\t';

		if (!blank)
			*to++ = *from;
		else if (to > version && to[-1] != ' ')
			*to++ = ' ';
	}
	*to = '\0';
	snprintf(text, BATONI_MPI_VERSION_BYTES, "%.*s",
	         BATONI_MPI_VERSION_BYTES - 1, version);
}

void
batoni_mpi_library_version(char text[BATONI_MPI_VERSION_BYTES])
{
	char version[VERSION_BYTES] = "";
	int length;

	MPI_Get_library_version(version, &length);
	shorten(text, version);
}

#define REFUSAL_BYTES 384

/* Why the library is not the one that Baton was compiled for, or "". */
static void
compare_library(char why_not[REFUSAL_BYTES])
{
	char version[VERSION_BYTES] = "", text[BATONI_MPI_VERSION_BYTES];
	int length;

	why_not[0] = '\0';
	MPI_Get_library_version(version, &length);
	/* Any library may have the standard ABI. */
	if (BATON_MPI_FAMILY == BATON_MPI_FAMILY_ABI ||
	    !differ(family_of(version), BATON_MPI_FAMILY))
		return;
	shorten(text, version);
	snprintf(why_not, REFUSAL_BYTES,
	         "Baton was compiled with the headers of %s, but the MPI that "
	         "runs in this process is \"%s\": build Baton and the program "
	         "with one MPI",
	         family_name(BATON_MPI_FAMILY), text);
}

enum baton_status
batoni_mpi_check_library(void)
{
	char why_not[REFUSAL_BYTES];

	compare_library(why_not);
	return *why_not ? batoni_refuse(BATON_ERR_UNSUPPORTED, "%s", why_not)
	                : BATON_OK;
}

/* ---- what is told of it ---- */

static struct {
	pthread_once_t once;
	char built[80], version[BATONI_MPI_VERSION_BYTES], why_not[REFUSAL_BYTES];
} found = {.once = PTHREAD_ONCE_INIT};

static void
find_once(void)
{
	snprintf(found.built, sizeof(found.built), "MPI %d.%d, headers of %s",
	         MPI_VERSION, MPI_SUBVERSION, family_name(BATON_MPI_FAMILY));
	batoni_mpi_library_version(found.version);
	compare_library(found.why_not);
}

void
batoni_mpi_find(struct baton_library_info *info_p)
{
	pthread_once(&found.once, find_once);
	info_p->built = found.built;
	info_p->version = found.version;
	info_p->path = batoni_file_of((void (*)(void))MPI_Initialized);
	info_p->why_not = found.why_not;
}

enum baton_status
baton_mpi_check(int family, size_t handle_bytes)
{
	if (differ(family, BATON_MPI_FAMILY) ||
	    handle_bytes != sizeof(MPI_Comm))
		return batoni_refuse(
			BATON_ERR_UNSUPPORTED,
			"this program was compiled with the headers of %s (an "
			"MPI_Comm has %zu bytes), Baton with those of %s (%zu "
			"bytes): build both with one MPI",
			family_name(family), handle_bytes,
			family_name(BATON_MPI_FAMILY), sizeof(MPI_Comm));
	return batoni_mpi_check_library();
}
