/* BLAS does not report its name or the instructions that it uses. */
#include "math/gemm/linear_parts.h"

#include <stdio.h>

void bp_gemm_library_name(char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "blas");
}

const char *bp_gemm_isa(void)
{
    return NULL;
}

bool bp_gemm_has_bf16(void)
{
    return false;
}
