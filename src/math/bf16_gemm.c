/* Our own bf16 matrix products. */
#include "math/bf16_gemm_priv.h"
#include "math/gemm_priv.h"
#include <string.h>

#if defined(BP_LOOPS_X86) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define TILE_DATA           18

/* Linux gives a process the tile registers when it asks for them. oneDNN does so too, but not
 * before its first product. */
static bool may_use_tiles(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

const bp_bf16_kernel *bp_bf16_kernel_here(void)
{
    const char *isa = bp_gemm_isa();
    bool amx = isa && strcmp(isa, "amx") == 0;

    if (!bp_gemm_has_bf16() || bp_cpu_bf16_form(amx) != BP_BF16_NATIVE)
        return NULL;
    return amx && may_use_tiles() ? &bp_bf16_kernel_amx : &bp_bf16_kernel_avx512;
}
#else
const bp_bf16_kernel *bp_bf16_kernel_here(void)
{
    return NULL;
}
#endif
