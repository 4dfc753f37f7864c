/* The list of an epoch's windows by plain loops over all spans. For one program: include bp_test.h
 * first. */
#ifndef BP_TESTS_DATA_PLAIN_EPOCH_H
#define BP_TESTS_DATA_PLAIN_EPOCH_H

#include "base/mem.h"
#include "base/rng.h"

#define SPAN 65536 /* CONTRACT, section 4: spans of 64 Ki tokens */
#define POOL 4

/* [windows], free with bp_free(); seed 3. */
static inline int64_t *plain_epoch(int64_t windows, int64_t context, int64_t member, int64_t epoch)
{
    int64_t spans = (windows - 1) * context / SPAN + 1, at = 0;
    int64_t *list = bp_alloc("test", windows, sizeof(*list));
    int64_t *pool = bp_alloc("test", windows, sizeof(*pool));
    bp_rng_key spans_key = bp_rng_key_of(3, BP_RNG_SHUFFLE, member, epoch, 0);

    for (int64_t first = 0; first < spans; first += POOL) {
        bp_rng_key key = bp_rng_key_of(3, BP_RNG_SHUFFLE, member, epoch, 1 + first / POOL);
        int64_t held = 0;

        for (int64_t i = first; i < first + POOL && i < spans; i++) {
            int64_t span = bp_rng_permute(&spans_key, i, spans);
            for (int64_t k = 0; k < windows; k++) {
                if (k * context / SPAN == span)
                    pool[held++] = k;
            }
        }
        for (int64_t i = 0; i < held; i++)
            list[at++] = pool[bp_rng_permute(&key, i, held)];
    }
    assert_int_equal(at, windows);
    bp_free(pool);
    return list;
}

#endif
