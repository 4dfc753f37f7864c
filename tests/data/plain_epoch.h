/* The list of an epoch's windows by plain loops over all blocks. For one program: include bp_test.h
 * first. */
#pragma once

#include "base/mem.h"
#include "base/rng.h"

#define SPAN 65536 /* blocks of 64 Ki tokens */
#define POOL 4

/* [windows], free with bp_free(); seed 3. */
static inline int64_t *plain_epoch(int64_t windows, int64_t context, int64_t member, int64_t epoch)
{
    int64_t blocks = (windows - 1) * context / SPAN + 1, at = 0;
    int64_t *list = bp_alloc("test", windows, sizeof(*list));
    int64_t *buffer = bp_alloc("test", windows, sizeof(*buffer));
    bp_rng_key blocks_key = bp_rng_key_of(3, BP_RNG_SHUFFLE, member, epoch, 0);

    for (int64_t first = 0; first < blocks; first += POOL) {
        bp_rng_key key = bp_rng_key_of(3, BP_RNG_SHUFFLE, member, epoch, 1 + first / POOL);
        int64_t held = 0;

        for (int64_t i = first; i < first + POOL && i < blocks; i++) {
            int64_t block = bp_rng_permute(&blocks_key, i, blocks);
            for (int64_t k = 0; k < windows; k++) {
                if (k * context / SPAN == block)
                    buffer[held++] = k;
            }
        }
        for (int64_t i = 0; i < held; i++)
            list[at++] = buffer[bp_rng_permute(&key, i, held)];
    }
    assert_int_equal(at, windows);
    bp_free(buffer);
    return list;
}
