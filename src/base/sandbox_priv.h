/* Inside the sandbox. */
#ifndef BP_BASE_SANDBOX_PRIV_H
#define BP_BASE_SANDBOX_PRIV_H

#include "base/sandbox.h"

/* The child's descriptors: 0 to 2 are /dev/null. */
#define SANDBOX_FILE        3
#define SANDBOX_PIPE        4
#define SANDBOX_DESCRIPTORS 32 /* numbers below this may be opened */

/* In the child; each says whether it was done. The limits and no_new_privs come before the shields.
 */
bool sandbox_leave_shared_memory(void);
bool sandbox_limit(const bp_sandbox *sandbox);
bool sandbox_landlock(int fd);
bool sandbox_seccomp(void);

#endif
