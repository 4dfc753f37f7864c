/* The basis of the math layer: the detected CPU, the chosen precision. */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include "math/precision.h"
#include "math/threads.h"
#include <stdbool.h>

extern const bp_option bp_math_options[]; /* math.precision, math.threads */

/** Values of bp_math_options (docs: --help). */
typedef struct bp_math_keys {
    const char *precision;
    int64_t threads;
} bp_math_keys;

static inline const bp_math_keys *bp_math_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_math_options);
}

/** Do bf16 matrix products run at hardware speed here: AMX or AVX512_BF16, and a library that
 * supports them? */
bool bp_math_has_bf16(void);
/** "onednn 2.6.3" or "blas", with the instruction set in use; for run.json. */
const char *bp_math_library(void);
const char *bp_math_cpu(void);
/** GEMM speed of this process in FLOP/s, measured for `seconds`, with a smaller product if below
 * 0.1; 0 if it can't be measured. */
double bp_math_gemm_peak(bp_precision precision, double seconds);
/** The peak, an upper bound for products: FLOP/s of all threads multiplying random operands only
 * in registers. It uses AMX tiles or VDPBF16PS in bf16, fused multiply-adds in float32 (in bf16
 * too if products use them). The best of some rounds in `seconds`; 0 without bf16. */
double bp_math_peak(bp_precision precision, double seconds);
/** Bytes a second that this process's threads read and write in long vectors (two reads and a
 * write of y += x), measured for `seconds`; takes 128 MiB meanwhile; 0 if out of memory. */
double bp_math_bandwidth(double seconds);

/** math.precision as resolved: "auto" becomes bf16 or f32. BP_ERR_CONFIG: bf16 on a CPU without it.
 */
bp_err bp_math_precision(const bp_config *config, bp_precision *out);
