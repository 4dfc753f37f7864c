/* Our own bf16 matrix products with float32 sums, for CPUs with AMX or AVX512_BF16. */
#ifndef BP_MATH_BF16_GEMM_PRIV_H
#define BP_MATH_BF16_GEMM_PRIV_H

#include <stdbool.h>
#include <stdint.h>

/** What differs between the instruction sets. */
typedef struct bp_bf16_kernel {
    /* Products in registers alone, begin and end included; the number of operations. *out is there
     * so that they are done. */
    int64_t (*multiply_adds)(float *out, float factor, int64_t times);
} bp_bf16_kernel;

extern const bp_bf16_kernel bp_bf16_kernel_amx, bp_bf16_kernel_avx512;

/** The kernel for this CPU, as far as the library may use it (ONEDNN_MAX_CPU_ISA); NULL: none, or
 * float32 is as fast. */
const bp_bf16_kernel *bp_bf16_kernel_here(void);

#endif
