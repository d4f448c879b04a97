/* SPDX-License-Identifier: BSD-3-Clause */
/* Does this clang have libFuzzer?  CMakeLists.txt asks. */
int
LLVMFuzzerTestOneInput(const unsigned char *bytes, unsigned long n)
{
	return bytes == 0 && n > 0;
}
