/* The name of the matrix product library. */
#include "math/gemm/linear_parts.h"
#include "math/loops/loops.h"
#include "math/math.h"

#include <stdio.h>

const char *bp_math_library(void)
{
    static char text[128];
    char name[64];
    const char *isa = bp_gemm_isa();

    bp_gemm_library_name(name, sizeof name);
    snprintf(text, sizeof text, "%s (%s)", name, isa ? isa : bp_loops_best()->name);
    return text;
}
