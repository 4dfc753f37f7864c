/* Geometry of slices: parts cover a slice, digests don't depend on the cut. */
#include "bp_test.h"

#include "tensor/slice.h"

static const int64_t SHAPES[][BP_TENSOR_DIMS] = {
    {13, 0, 0, 0}, {5, 7, 0, 0}, {4, 3, 6, 0}, {2, 3, 4, 5}};

/* A slice of dims dimensions, its offset and extent drawn from `random`; maybe empty. */
static bp_slice draw(int dims, uint64_t *random)
{
    bp_slice slice = {.dims = dims};

    for (int d = 0; d < dims; d++) {
        slice.shape[d] = SHAPES[dims - 1][d];
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        slice.offset[d] = (int64_t)(*random >> 33) % slice.shape[d];
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        slice.extent[d] = (int64_t)(*random >> 33) % (slice.shape[d] - slice.offset[d] + 1);
    }
    return slice;
}

/* In order, without gap, each the sub-slice that it says, none above the limit. */
static void parts_cover_a_slice(void **state)
{
    uint64_t random = 1;

    (void)state;
    for (int trial = 0; trial < 2000; trial++) {
        bp_slice slice = draw(1 + trial % 4, &random);
        int64_t volume, limit = 1 + trial % 11, covered = 0;
        bp_part part;

        assert_true(bp_slice_volume(slice.dims, slice.extent, &volume));
        for (int64_t k = 0; bp_slice_part(&part, &slice, limit, k); k++) {
            int64_t size = 1, place = 0;

            assert_int_equal(part.first, covered);
            assert_true(part.count >= 1 && part.count <= limit);
            for (int d = 0; d < slice.dims; d++) {
                size *= part.size[d];
                place = place * slice.extent[d] + part.start[d];
            }
            assert_int_equal(size, part.count);
            assert_int_equal(place, part.first);
            covered += part.count;
        }
        assert_int_equal(covered, volume);
    }
}

/* The digest of a whole tensor is the sum of those of any two slices that it is cut into. */
static void digest_does_not_depend_on_the_cut(void **state)
{
    float values[120], half[120];

    (void)state;
    for (int k = 0; k < 120; k++)
        values[k] = (float)(k * k % 31) - 0.5f * (float)k;
    for (int dims = 1; dims <= 4; dims++)
        for (int axis = 0; axis < dims; axis++)
            for (int64_t cut = 0; cut <= SHAPES[dims - 1][axis]; cut++) {
                bp_digest whole = {{0, 0}}, sum = {{0, 0}};
                bp_slice slice = {.dims = dims};

                memcpy(slice.shape, SHAPES[dims - 1], sizeof slice.shape);
                memcpy(slice.extent, slice.shape, sizeof slice.extent);
                bp_slice_digest(&whole, &slice, values);
                for (int side = 0; side < 2; side++) {
                    int64_t at[BP_TENSOR_DIMS] = {0}, count = 0;

                    slice.offset[axis] = side * cut;
                    slice.extent[axis] = side == 0 ? cut : slice.shape[axis] - cut;
                    for (int64_t k = 0; k < 120; k++) { /* the elements of this side, in order */
                        int64_t place = 0;
                        bool inside = true, more = false;

                        for (int d = 0; d < dims; d++) {
                            place = place * slice.shape[d] + at[d];
                            inside = inside && at[d] >= slice.offset[d] &&
                                     at[d] < slice.offset[d] + slice.extent[d];
                        }
                        if (inside)
                            half[count++] = values[place];
                        for (int d = dims - 1; d >= 0 && !more; d--) {
                            more = ++at[d] < slice.shape[d];
                            if (!more)
                                at[d] = 0;
                        }
                        if (!more)
                            break;
                    }
                    bp_slice_digest(&sum, &slice, half);
                }
                assert_memory_equal(&whole, &sum, sizeof whole);
            }
}

/* Of a slice inside a tensor, in runs of any length that begin anywhere. */
static void digest_of_parts_is_that_of_the_slice(void **state)
{
    bp_slice slice = {
        .dims = 4, .shape = {3, 4, 5, 6}, .offset = {1, 1, 0, 2}, .extent = {2, 3, 5, 4}};
    float values[2 * 3 * 5 * 4];
    const int64_t all = 2 * 3 * 5 * 4;

    (void)state;
    for (int k = 0; k < all; k++)
        values[k] = (float)(k * k % 31) - 0.5f * (float)k;
    for (int64_t step = 1; step <= all; step++) {
        bp_digest whole = {{0, 0}}, sum = {{0, 0}};

        bp_slice_digest(&whole, &slice, values);
        for (int64_t first = 0; first < all; first += step)
            bp_slice_digest_part(&sum, &slice, first, values + first,
                                 all - first < step ? all - first : step);
        assert_memory_equal(&whole, &sum, sizeof whole);
    }
}

static void digest_tells_positions_apart(void **state)
{
    float values[] = {1.0f, 2.0f, 0.0f, -0.0f};
    bp_slice slice = {.dims = 1, .shape = {4}, .extent = {4}};
    bp_digest before = {{0, 0}}, swapped = {{0, 0}}, sign = {{0, 0}};

    (void)state;
    bp_slice_digest(&before, &slice, values);
    values[0] = 2.0f;
    values[1] = 1.0f;
    bp_slice_digest(&swapped, &slice, values);
    values[0] = 1.0f;
    values[1] = 2.0f;
    values[3] = 0.0f;
    bp_slice_digest(&sign, &slice, values);
    assert_memory_not_equal(&before, &swapped, sizeof before);
    assert_memory_not_equal(&before, &sign, sizeof before);
}

static void volume_is_checked(void **state)
{
    int64_t volume;

    (void)state;
    assert_true(bp_slice_volume(2, (int64_t[]){1 << 20, 1 << 20}, &volume) && volume == (int64_t)1
                                                                                            << 40);
    assert_false(bp_slice_volume(2, (int64_t[]){1 << 20, (1 << 20) + 1}, &volume));
    assert_false(bp_slice_volume(4, (int64_t[]){1 << 30, 1 << 30, 1 << 30, 1 << 30}, &volume));
    assert_false(bp_slice_volume(2, (int64_t[]){-1, -1}, &volume));
    assert_true(bp_slice_volume(2, (int64_t[]){0, 5}, &volume) && volume == 0);
}

static void names_follow_the_rule(void **state)
{
    static const char *const good[] = {
        "w", "h.0.attn.q.weight", "adamw.m/h.11.ln1.gain", "a/b/c", "p", "p0a", "0"};
    static const char *const bad[] = {"",   "A",      "a b",   "a/", "/a",    "a//b",     ".",
                                      "..", "a/../b", "a/...", "p0", "a/p12", "\xc3\xa9", "a\n"};
    char longest[BP_TENSOR_NAME] = "";

    (void)state;
    for (size_t k = 0; k < sizeof good / sizeof good[0]; k++)
        assert_true(bp_tensor_name_is_valid(good[k]));
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_false(bp_tensor_name_is_valid(bad[k]));
    memset(longest, 'a', BP_TENSOR_NAME - 1);
    assert_true(bp_tensor_name_is_valid(longest));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_a_slice),
        cmocka_unit_test(digest_does_not_depend_on_the_cut),
        cmocka_unit_test(digest_of_parts_is_that_of_the_slice),
        cmocka_unit_test(digest_tells_positions_apart),
        cmocka_unit_test(volume_is_checked),
        cmocka_unit_test(names_follow_the_rule),
    };
    return BP_TEST_RUN(tests);
}
