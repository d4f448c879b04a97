/* SPDX-License-Identifier: BSD-3-Clause */
/* A system call that this process and its children may no longer make, as a container or a
 * kernel forbids it. */
#ifndef BATON_TEST_FORBID_CALL_H
#define BATON_TEST_FORBID_CALL_H

/* From now on call (SYS_...) fails with EPERM, for ever.  0, or -1 with errno. */
int forbid_call(unsigned call);

#endif
