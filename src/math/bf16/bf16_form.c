/* The fastest form of bf16 products on this CPU. */
#include "math/bf16/bf16_gemm.h"
#include "math/gemm/linear_parts.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LARGE_FLOATS (8 << 20) /* sums larger than a last-level cache of a few cores */

/* Sums that are read from and written to memory: oneDNN 2.6.3 reaches 0.58 to 0.76 of the peak on
 * Zen 4, ours 0.76 to 0.87, which is 1.15 to 1.4 times faster for GPT-2's vocabulary and a tensor
 * rank's share of it, and 1.05 to 1.15 where the outputs are whole blocks of 64. Smaller sums:
 * 0.95 to 1.15, too little gain over the library (bench_gemm prints all of these). The choice
 * ignores rows and threads: they would change bits. */
bool bp_cpu_owns_gradient(int64_t outs, int64_t ins)
{
    return outs * ins >= LARGE_FLOATS;
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
