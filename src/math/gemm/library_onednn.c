/* oneDNN's name, and the instruction sets that it uses here. */
#include "math/gemm/linear_parts.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

void bp_gemm_library_name(char *out, size_t out_bytes)
{
    const dnnl_version_t *version = dnnl_version();

    snprintf(out, out_bytes, "onednn %d.%d.%d", version->major, version->minor, version->patch);
}

static bool isa_has(dnnl_cpu_isa_t isa)
{
    return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

const char *bp_gemm_isa(void)
{
    return isa_has(dnnl_cpu_isa_avx512_core_amx)    ? "amx"
           : isa_has(dnnl_cpu_isa_avx512_core_bf16) ? "avx512_bf16"
           : isa_has(dnnl_cpu_isa_avx512_core)      ? "avx512"
           : isa_has(dnnl_cpu_isa_avx2)             ? "avx2"
                                                    : "sse";
}

bool bp_gemm_has_bf16(void)
{
    return isa_has(dnnl_cpu_isa_avx512_core_bf16);
}
