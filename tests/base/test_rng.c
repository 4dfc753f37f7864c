#include "base/rng.h"
#include "bp_test.h"
#include <math.h>

/* tests/kat_vectors of Random123, the lines "philox4x32 10". */
static void philox_gives_the_published_vectors(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    uint32_t out[4];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bp_rng_philox(out, cases[i].counter, cases[i].key);
        assert_memory_equal(out, cases[i].out, sizeof out);
    }
}

/* Change one thing at a time: every key must differ from all others, and so must the numbers. */
static void every_part_of_the_key_counts(void **state)
{
    enum { PARTS = 5, VALUES = 200 };
    static uint64_t seen[PARTS * VALUES];
    int count = 0;

    for (int part = 0; part < PARTS; part++)
        for (int64_t value = 1; value <= VALUES; value++) {
            int64_t parts[PARTS] = {0, 0, 0, 0, 0};
            parts[part] = value;
            bp_rng_key key = bp_rng_key_of((uint64_t)parts[0], (bp_rng_purpose)parts[1], parts[2],
                                           parts[3], parts[4]);
            seen[count] = bp_rng_u64(&key, 0);
            for (int i = 0; i < count; i++)
                assert_true(seen[i] != seen[count]);
            count++;
        }
    bp_rng_key swapped = bp_rng_key_of(1, BP_RNG_TEST, 2, 3, 4);
    bp_rng_key straight = bp_rng_key_of(1, BP_RNG_TEST, 3, 2, 4);
    assert_true(bp_rng_u64(&swapped, 0) != bp_rng_u64(&straight, 0));
}

/* These numbers are part of every run's data order: they may never change. */
static void keys_and_draws_stay_as_they_are(void **state)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_SHUFFLE, 0, 1, 0);

    assert_true(bp_rng_u64(&key, 0) == bp_rng_u64(&key, 0));
    assert_int_equal(bp_rng_u64(&key, 0) >> 32, 0xc04463e5);
    assert_int_equal(bp_rng_below(&key, 7, 1000000), 652670);
    assert_int_equal(bp_rng_permute(&key, 0, 1000), 824);
    assert_int_equal(bp_rng_permute(&key, 999999, 1000000), 46265);
}

static void uniform_has_its_moments(void **state)
{
    bp_rng_key key = bp_rng_key_of(7, BP_RNG_TEST, 0, 0, 1);
    const int n = 400000;
    double sum = 0, squares = 0, product = 0, before = 0;

    for (int i = 0; i < n; i++) {
        double u = bp_rng_uniform(&key, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
        product += (u - 0.5) * before;
        before = u - 0.5;
    }
    /* five standard errors: sqrt(1/12/n), sqrt(4/45/n), 1/12/sqrt(n) */
    assert_true(fabs(sum / n - 0.5) < 5 * sqrt(1.0 / 12 / n));
    assert_true(fabs(squares / n - 1.0 / 3) < 5 * sqrt(4.0 / 45 / n));
    assert_true(fabs(product / n) < 5.0 / 12 / sqrt(n));
}

static void normal_has_its_moments(void **state)
{
    bp_rng_key key = bp_rng_key_of(7, BP_RNG_TEST, 0, 0, 2);
    const int n = 400000;
    double power[5] = {0}, inside = 0;

    for (int i = 0; i < n; i++) {
        double z = bp_rng_normal(&key, (uint64_t)i), p = 1;
        assert_true(isfinite(z));
        for (int k = 1; k <= 4; k++)
            power[k] += p *= z;
        inside += fabs(z) < 1;
    }
    /* the moments of z^k have variances 1, 2, 15, 96; five standard errors */
    assert_true(fabs(power[1] / n) < 5 * sqrt(1.0 / n));
    assert_true(fabs(power[2] / n - 1) < 5 * sqrt(2.0 / n));
    assert_true(fabs(power[3] / n) < 5 * sqrt(15.0 / n));
    assert_true(fabs(power[4] / n - 3) < 5 * sqrt(96.0 / n));
    assert_true(fabs(inside / n - 0.6826895) < 5 * sqrt(0.2166 / n));
}

static void below_is_even_over_its_range(void **state)
{
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, 0, 0, 3);

    for (int64_t n = 1; n <= 40; n += 13) {
        int counts[40] = {0}, draws = 100000;
        double chi = 0, mean = (double)draws / (double)n;
        for (int i = 0; i < draws; i++) {
            int64_t v = bp_rng_below(&key, (uint64_t)i, n);
            assert_true(v >= 0 && v < n);
            counts[v]++;
        }
        for (int64_t v = 0; v < n; v++)
            chi += (counts[v] - mean) * (counts[v] - mean) / mean;
        assert_true(chi <=
                    (double)n +
                        5 * sqrt(2.0 * (double)n)); /* chi-square: mean n-1, variance 2(n-1) */
    }
    /* a range that refuses nearly half of the draws: 2^62 + 1 of 2^64 in steps of 3 and a bit */
    int64_t n = (INT64_C(1) << 62) + 1;
    double low = 0;
    for (int i = 0; i < 100000; i++) {
        int64_t v = bp_rng_below(&key, (uint64_t)i, n);
        assert_true(v >= 0 && v < n);
        low += v < n / 2;
    }
    assert_true(fabs(low / 100000 - 0.5) < 5 * 0.5 / sqrt(100000));
}

static void permutation_hits_every_place_once(void **state)
{
    static char hit[2001];
    bp_rng_key key = bp_rng_key_of(5, BP_RNG_SHUFFLE, 0, 2, 0);

    for (int64_t n = 1; n <= 2000; n++) {
        memset(hit, 0, sizeof hit);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = bp_rng_permute(&key, i, n);
            assert_true(at >= 0 && at < n && !hit[at]);
            hit[at] = 1;
        }
    }
}

static void permutation_works_on_huge_ranges(void **state)
{
    static const int64_t sizes[] = {INT64_C(1) << 32, (INT64_C(1) << 40) + 1, INT64_MAX};
    bp_rng_key key = bp_rng_key_of(5, BP_RNG_SHUFFLE, 0, 2, 1);

    for (int s = 0; s < 3; s++) {
        int64_t before = -1;
        for (int64_t i = 0; i < 1000; i++) {
            int64_t at = bp_rng_permute(&key, sizes[s] - 1 - i, sizes[s]);
            assert_true(at >= 0 && at < sizes[s] && at != before);
            before = at;
        }
    }
}

/* Over many keys the first entry's image is even, and all 24 orders of four things come up evenly.
 */
static void permutations_of_many_keys_are_even(void **state)
{
    int orders[256] = {0}, images[7] = {0};
    const int keys = 48000;
    double chi = 0, chi_image = 0;

    for (int k = 0; k < keys; k++) {
        bp_rng_key key = bp_rng_key_of((uint64_t)k, BP_RNG_SHUFFLE, 0, 0, 0);
        int order = 0;
        for (int64_t i = 0; i < 4; i++)
            order = 4 * order + (int)bp_rng_permute(&key, i, 4);
        orders[order]++;
        images[bp_rng_permute(&key, 0, 7)]++;
    }
    for (int i = 0; i < 256; i++)
        if (orders[i] > 0)
            chi += pow(orders[i] - keys / 24.0, 2) / (keys / 24.0);
    for (int i = 0; i < 7; i++)
        chi_image += pow(images[i] - keys / 7.0, 2) / (keys / 7.0);
    assert_true(chi < 23 + 5 * sqrt(46.0));
    assert_true(chi_image < 6 + 5 * sqrt(12.0));
}

/* Also where the low word of the counter overflows between lanes. */
static void blocks_are_those_of_one_after_another(void **state)
{
    static const uint64_t from[] = {0, 5, UINT64_C(0xfffffffa), UINT64_C(1) << 63};
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, 1, 2, 3);

    (void)state;
    for (size_t f = 0; f < sizeof from / sizeof from[0]; f++) {
        uint64_t words[2 * 19];

        bp_rng_blocks(words, &key, from[f], 19);
        for (uint64_t i = 0; i < 19; i++) {
            uint32_t want[4];

            bp_rng_block(want, &key, from[f] + i);
            assert_true(words[2 * i] == ((uint64_t)want[1] << 32 | want[0]));
            assert_true(words[2 * i + 1] == ((uint64_t)want[3] << 32 | want[2]));
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(every_part_of_the_key_counts),
        cmocka_unit_test(keys_and_draws_stay_as_they_are),
        cmocka_unit_test(uniform_has_its_moments),
        cmocka_unit_test(normal_has_its_moments),
        cmocka_unit_test(below_is_even_over_its_range),
        cmocka_unit_test(permutation_hits_every_place_once),
        cmocka_unit_test(permutation_works_on_huge_ranges),
        cmocka_unit_test(permutations_of_many_keys_are_even),
        cmocka_unit_test(blocks_are_those_of_one_after_another),
    };
    return BP_TEST_RUN(tests);
}
