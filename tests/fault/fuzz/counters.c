/* Where libFuzzer's counters are. Built without counters itself: the compiler's own use of these
 * names, in every object that has some, must not meet another declaration of them. */
#include "fuzz.h"

extern char __start___sancov_cntrs[] __attribute__((weak, visibility("hidden")));
extern char __stop___sancov_cntrs[] __attribute__((weak, visibility("hidden")));

char *fuzz_counters(size_t *count)
{
    *count = (size_t)(__stop___sancov_cntrs - __start___sancov_cntrs);
    return __start___sancov_cntrs;
}
