/* Landlock: of all files, a sandboxed child has this one, for reading. */
#include "sandbox_priv.h"

#include <linux/landlock.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

bool sandbox_landlock(int fd)
{
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    int bits = abi >= 5 ? 16 : abi >= 3 ? 15 : abi == 2 ? 14 : 13; /* rights that it knows */
    struct landlock_ruleset_attr all = {.handled_access_fs = (UINT64_C(1) << bits) - 1};
    struct landlock_path_beneath_attr one = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE,
                                             .parent_fd = fd};
    int rules;
    bool held;

    if (abi < 1)
        return false;
    rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all.handled_access_fs, 0);
    if (rules < 0)
        return false;
    held = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &one, 0) == 0 &&
           syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    (void)close(rules);
    return held;
}
