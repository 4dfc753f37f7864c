/* The fastest form of bf16 products on this CPU. */
#include "math/bf16/bf16_gemm.h"
#include "math/gemm/linear_parts.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAST_FLOATS (1 << 19) /* of a weight */

/* In a training step, where operands come from memory, ours are 1.06 to 1.18 times as fast as
 * those of oneDNN 2.6.3 (Zen 5; docs/measurements/kernels.md), and their bits do not depend on
 * threads. Smaller gradients: 0.82 to 0.95 with two threads. The choice ignores rows and threads:
 * they would change bits. */
bool bp_cpu_owns_gradient(int64_t outs, int64_t ins)
{
    return outs * ins >= LEAST_FLOATS;
}

#if defined(__x86_64__)
#define ARCH_REQ_XCOMP_PERM 0x1023
#define TILE_DATA           18

/* Linux grants the tile registers on request, as oneDNN makes when it detects AMX: a second
 * request is harmless. */
static bool may_use_tiles(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

bool bp_cpu_has_tiles(void)
{
    const char *isa = bp_gemm_isa();

    return isa && strcmp(isa, "amx") == 0 && may_use_tiles();
}

/* With AMX, our own kernels: oneDNN 2.6.3 leaves two thirds of the tiles idle (0.30 of their peak
 * over the products of a GPT-2 step). Without, the library's: on Zen 4 both are near the peak of
 * AVX512_BF16. From Sapphire Rapids on, Intel's VDPBF16PS does half the products a cycle that a
 * float32 FMA does (measured: 84 against 155 GFLOP/s a core), so that without AMX float32 is
 * faster; Cooper Lake's and AMD's do twice as many. */
bp_bf16_form bp_cpu_bf16_form(void)
{
    bool slow = __builtin_cpu_is("intel") && !__builtin_cpu_is("cooperlake");

    return bp_cpu_has_tiles() ? BP_BF16_OWN : slow ? BP_BF16_ROUNDED : BP_BF16_MIXED;
}

const bp_bf16_kernel *bp_bf16_kernel_here(void)
{
    if (!bp_gemm_has_bf16() || bp_cpu_bf16_form() == BP_BF16_ROUNDED)
        return NULL;
    return bp_cpu_has_tiles() ? &bp_bf16_kernel_amx : &bp_bf16_kernel_avx512;
}
#else
bool bp_cpu_has_tiles(void)
{
    return false;
}

const bp_bf16_kernel *bp_bf16_kernel_here(void)
{
    return NULL;
}

bp_bf16_form bp_cpu_bf16_form(void)
{
    return BP_BF16_NATIVE;
}
#endif
