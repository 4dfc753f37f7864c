/* search.limit: upper limits of a model's size, and a lower limit of its speed. Pure functions. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/** 0: no limit. */
typedef struct nas_limit {
    double tokens_per_second; /* lower limit; of a forward pass */
    double parameters, bytes; /* upper limits; bytes: of the parameters in a checkpoint, float32 */
} nas_limit;

/** Read "tokens_per_second>=2000, parameters<=3e6"; NULL: no limit. Errors: BP_ERR_CONFIG. */
bp_err nas_limit_read(nas_limit *out, const char *text);
/** Bytes of that many parameters. */
static inline int64_t nas_bytes(int64_t parameters)
{
    return parameters * 4;
}
/** Are this many parameters within it? */
static inline bool nas_limit_takes(const nas_limit *limit, int64_t parameters)
{
    return (limit->parameters == 0 || (double)parameters <= limit->parameters) &&
           (limit->bytes == 0 || (double)nas_bytes(parameters) <= limit->bytes);
}
