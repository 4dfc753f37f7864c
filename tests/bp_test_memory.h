/* How much this rank allocates at most (bp_alloc) from one moment on. */
#pragma once

#include "base/mem.h"

typedef struct bp_test_peak {
    void *filler; /* up to the highest point so far: whatever comes is a new one */
    size_t filled_bytes;
} bp_test_peak;

static inline bp_test_peak bp_test_peak_begin(void)
{
    int64_t below = (int64_t)(bp_mem_peak_bytes() - bp_mem_now_bytes());
    void *filler = bp_alloc("test.filler", below, 1);

    return (bp_test_peak){filler, bp_mem_now_bytes()};
}

static inline size_t bp_test_peak_end(bp_test_peak *peak)
{
    bp_free(peak->filler);
    return bp_mem_peak_bytes() - peak->filled_bytes;
}
