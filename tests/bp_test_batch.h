/* Batches of tests: all examples of some windows at once. */
#pragma once

#include "tensor/batch.h"

/** The examples of windows[B][maker->window], made in bytes[bp_batch_bytes]. */
static inline bp_batch bp_test_batch(const bp_example_maker *maker, const int32_t *windows,
                                     int64_t step, int64_t first_slot, int64_t B, void *bytes)
{
    for (int64_t b = 0; b < B; b++)
        bp_example_make(maker, windows + b * maker->window, step, first_slot + b, bytes, B, b);
    return bp_batch_over(&maker->form, B, bytes);
}
