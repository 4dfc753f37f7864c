/* Dropout: which elements are kept is a function of key and place alone. */
#include "math/kernels/kernels.h"
#include "math/math.h"
#include "math_test.h"

#define P 0.3f

static bool kept(const bp_rng_key *key, int64_t place)
{
    uint32_t words[4];

    bp_rng_block(words, key, (uint64_t)place / 4);
    return (double)words[place % 4] >= (double)P * 4294967296.0;
}

static void kept_are_those_of_the_documented_words(void **state)
{
    enum { n = 20000 };
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_DROPOUT, 1, 2, 4);
    float *x = randoms(n, 1), *a = randoms(n, 2), *y = floats(n), *z = floats(n),
          scale = (float)(1 / (1 - (double)P));
    int64_t first = 0x1fffffff0; /* the block's number outgrows 31 bits, its place 32 */
    int count = 0;

    (void)state;
    bp_add_dropout(y, a, x, n, P, &key, first);
    bp_add_dropout(z, NULL, x, n, P, &key, first);
    for (int i = 0; i < n; i++) {
        float factor = kept(&key, first + i) ? scale : 0.0f;
        assert_true(y[i] == a[i] + x[i] * factor);
        assert_true(z[i] == x[i] * factor);
        count += factor != 0.0f;
    }
    assert_in_range(count, (int)(0.68 * n), (int)(0.72 * n)); /* 6 standard deviations */
    bp_free(x);
    bp_free(a);
    bp_free(y);
    bp_free(z);
}

/* Any pass over a part, from any place, masks as the pass over the whole. */
static void parts_are_masked_as_the_whole(void **state)
{
    enum { n = 9001 };
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_DROPOUT, 1, 2, 4);
    float *x = randoms(n, 1), *whole = floats(n), *parts = floats(n);

    (void)state;
    for (int first = 0; first < 4; first++) {
        bp_dropout_backward(whole, x, n, P, &key, first);
        for (int i = 0, length = 1; i < n; i += length, length = length * 2 % 997) {
            int count = length < n - i ? length : n - i;
            bp_add_dropout(parts + i, NULL, x + i, count, P, &key, first + i);
        }
        assert_same_bits(parts, whole, n);
    }
    bp_free(x);
    bp_free(whole);
    bp_free(parts);
}

static void backward_is_the_gradient(void **state)
{
    enum { n = 100 };
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_DROPOUT, 0, 0, 0);
    float *x = randoms(n, 1), *dy = randoms(n, 2), *dx = floats(n), *y[2] = {floats(n), floats(n)};

    (void)state;
    bp_dropout_backward(dx, dy, n, P, &key, 3);
    for (int i = 0; i < n; i++) {
        float at = x[i];
        for (int side = 0; side < 2; side++) {
            x[i] = side ? 1.0f : -1.0f; /* dropout is linear: any step will do */
            bp_add_dropout(y[side], NULL, x, n, P, &key, 3);
        }
        x[i] = at;
        assert_true(fabsf(dx[i] - dy[i] * (y[1][i] - y[0][i]) / 2) <= 1e-6f * fabsf(dy[i]));
    }
    bp_free(x);
    bp_free(dy);
    bp_free(dx);
    bp_free(y[0]);
    bp_free(y[1]);
}

static void without_dropout_it_adds(void **state)
{
    enum { n = 10001 };
    float *x = randoms(n, 1), *a = randoms(n, 2), *y = floats(n);

    (void)state;
    bp_add_dropout(y, a, x, n, 0, NULL, 0);
    for (int i = 0; i < n; i++)
        assert_true(y[i] == a[i] + x[i]);
    bp_add_dropout(y, NULL, x, n, 0, NULL, 0);
    assert_same_bits(y, x, n);
    bp_dropout_backward(x, x, n, 0, NULL, 0);
    assert_same_bits(y, x, n);
    bp_free(x);
    bp_free(a);
    bp_free(y);
}

static void it_works_in_place_on_any_number_of_threads(void **state)
{
    enum { n = 50021 };
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_DROPOUT, 0, 0, 0);
    float *x = randoms(n, 1), *a = randoms(n, 2), *y = floats(n);

    (void)state;
    bp_math_set_threads(1);
    bp_add_dropout(y, a, x, n, P, &key, 1);
    for (int threads = 2; threads < 5; threads++) {
        float *into_a = copied(a, n), *into_x = copied(x, n);
        bp_math_set_threads(threads);
        bp_add_dropout(into_a, into_a, x, n, P, &key, 1);
        bp_add_dropout(into_x, a, into_x, n, P, &key, 1);
        assert_same_bits(into_a, y, n);
        assert_same_bits(into_x, y, n);
        bp_free(into_a);
        bp_free(into_x);
    }
    bp_math_set_threads(0);
    bp_free(x);
    bp_free(a);
    bp_free(y);
}

/* A NaN shows even where it is dropped. */
static void nan_is_not_dropped(void **state)
{
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_DROPOUT, 0, 0, 0);
    float x[100], y[100];

    (void)state;
    for (int i = 0; i < 100; i++)
        x[i] = NAN;
    bp_add_dropout(y, NULL, x, 100, P, &key, 0);
    for (int i = 0; i < 100; i++)
        assert_true(isnan(y[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_are_those_of_the_documented_words),
        cmocka_unit_test(parts_are_masked_as_the_whole),
        cmocka_unit_test(backward_is_the_gradient),
        cmocka_unit_test(without_dropout_it_adds),
        cmocka_unit_test(it_works_in_place_on_any_number_of_threads),
        cmocka_unit_test(nan_is_not_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
