/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs under AddressSanitizer: libraries stay loaded to the end, so that
 * the leak report can name the ones (MPI's plugins) that tests/lsan.supp
 * excuses.  Takes the place of the C library's dlclose. */

int dlclose(void *handle);

int
dlclose(void *handle)
{
	(void)handle;
	return 0;
}
