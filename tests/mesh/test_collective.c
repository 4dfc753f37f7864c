#include "base/rng.h"
#include "bp_test_mpi.h"
#include "mesh/collective.h"
#include <math.h>

#define COMM MPI_COMM_WORLD

static bool is_power_of_two(int size)
{
    return (size & (size - 1)) == 0;
}

/* Rank r's vector: every rank can make all of them. Magnitudes from 1e-6 to 1e6 and both signs, so
 * that any other order of additions gives other bits nearly everywhere. */
static void make_part(float *out, int rank, int64_t n)
{
    bp_rng_key key = bp_rng_key_of(11, BP_RNG_TEST, 0, 0, rank);

    for (int64_t i = 0; i < n; i++) {
        uint32_t words[4];
        bp_rng_block(words, &key, (uint64_t)i);
        double magnitude = pow(10, 12.0 * words[0] / 4294967296.0 - 6);
        out[i] =
            (float)(words[1] % 2 == 0 ? magnitude : -magnitude) * (1 + (float)words[2] * 0x1p-32f);
    }
}

/* What the header promises, summed on one rank: halves of the list of ranks, */
static float sum_halving(const float *const *parts, int64_t i, int first, int count)
{
    if (count == 1)
        return parts[first][i];
    return sum_halving(parts, i, first, count / 2) +
           sum_halving(parts, i, first + count / 2, count - count / 2);
}

/* or, of any number: at each level even places take the first part of the elements and odd ones the
 * rest; each adds its neighbour's, and of an odd number the last one's elements for odd places go
 * to the one before it. */
static float sum_by_places(const float *const *parts, int64_t i, int64_t n, int size)
{
    float sums[16];

    for (int r = 0; r < size; r++)
        sums[r] = parts[r][i];
    for (int members = size; members > 1;) {
        int evens = (members + 1) / 2, odd;
        int64_t low = (n * evens + members - 1) / members;

        odd = i >= low;
        for (int m = odd; m < members; m += 2) {
            float sum = odd ? sums[m - 1] + sums[m] : sums[m];

            if (!odd && m + 1 < members)
                sum += sums[m + 1];
            if (odd && m == members - 2)
                sum += sums[m + 1];
            sums[m / 2] = sum;
        }
        i -= odd ? low : 0;
        n = odd ? n - low : low;
        members = odd ? members / 2 : evens;
    }
    return sums[0];
}

/* The expected sum of n floats over all ranks. Free with bp_free(). */
static float *expected_sum(int64_t n)
{
    int size = bp_comm_size(COMM);
    float *parts[16], *sum = bp_alloc("test.sum", n, sizeof(float));

    BP_ASSERT(size <= 16 && sum != NULL);
    for (int r = 0; r < size; r++) {
        parts[r] = bp_alloc("test.part", n, sizeof(float));
        BP_ASSERT(parts[r] != NULL);
        make_part(parts[r], r, n);
    }
    for (int64_t i = 0; i < n; i++)
        sum[i] = is_power_of_two(size) ? sum_halving((const float *const *)parts, i, 0, size)
                                       : sum_by_places((const float *const *)parts, i, n, size);
    for (int r = 0; r < size; r++)
        bp_free(parts[r]);
    return sum;
}

typedef struct vectors {
    float *expected, *x, *scratch;
} vectors;

static vectors new_vectors(int64_t n, int64_t scratch)
{
    vectors v = {expected_sum(n), bp_alloc("test.x", n, sizeof(float)),
                 bp_alloc("test.scratch", scratch, sizeof(float))};

    BP_ASSERT(v.x != NULL && v.scratch != NULL);
    make_part(v.x, bp_comm_rank(COMM), n);
    return v;
}

static void free_vectors(vectors *v)
{
    bp_free(v->expected);
    bp_free(v->x);
    bp_free(v->scratch);
}

static const int64_t lengths[] = {1, 2, 5, 16, 1000, 100000};
#define LENGTHS (sizeof lengths / sizeof lengths[0])

/* Whether the shards of n items cover them once, and none has more than its share. */
static bool tile(int64_t n, int size)
{
    int64_t most = (n + size - 1) / size, seen = 0;
    bool right = bp_shard_count(n, 0, size) == most;

    for (int rank = 0; rank < size; rank++) {
        int64_t first = bp_shard_first(n, rank, size), count = bp_shard_count(n, rank, size);

        right = right && first >= 0 && first + count <= n && count <= most;
        seen += count;
        for (int other = 0; other < rank; other++) {
            int64_t begin = bp_shard_first(n, other, size);

            right = right &&
                    (first >= begin + bp_shard_count(n, other, size) || begin >= first + count);
        }
    }
    return right && seen == n;
}

static void shards_tile_the_vector(void **state)
{
    for (int size = 1; size <= 33; size++) {
        bp_test_check(COMM, tile(size * INT64_C(1000000000000), size));
        for (int64_t n = 0; n < 70; n++)
            bp_test_check(COMM, tile(n, size));
    }
    bp_test_check(COMM, bp_shard_first(8, 1, 8) == 4 && bp_shard_first(8, 3, 8) == 6);
    bp_test_check(COMM, bp_shard_first(6, 1, 3) == 4 && bp_shard_first(6, 2, 3) == 2);
    bp_test_check(COMM, bp_shard_count(5, 0, 4) == 2 && bp_shard_count(1, 3, 4) == 0);
}

static void scattered_sum_has_the_bits_of_the_tree(void **state)
{
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);

    for (size_t k = 0; k < LENGTHS; k++)
        for (int64_t n = lengths[k] * size; n < lengths[k] * size + 2; n++) {
            int64_t first = bp_shard_first(n, rank, size);
            size_t bytes = (size_t)bp_shard_count(n, rank, size) * sizeof(float);
            vectors v = new_vectors(n, bp_reduce_scatter_scratch(n, size));
            bp_reduce_scatter(v.x, n, v.scratch, COMM);
            bool shard_right = memcmp(v.x + first, v.expected + first, bytes) == 0;
            bp_all_gather_shards(v.x, n, COMM);
            bool all_right = memcmp(v.x, v.expected, (size_t)n * sizeof(float)) == 0;
            free_vectors(&v);
            bp_test_check(COMM, shard_right);
            bp_test_check(COMM, all_right);
        }
}

static void bytes_of_any_number_are_gathered(void **state)
{
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);
    static const int64_t each[] = {0, 1, 3, 1000, (INT64_C(3) << 20) + 1};

    for (size_t k = 0; k < sizeof each / sizeof each[0]; k++) {
        int64_t bytes = each[k] * size, wrong = 0;
        char *x = bp_alloc("test.x", bytes + 1, 1);

        BP_ASSERT(x != NULL);
        memset(x + bp_shard_first(bytes, rank, size), 'a' + rank, (size_t)each[k]);
        x[bytes] = '!';
        bp_all_gather_bytes(x, bytes, COMM);
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < each[k]; i++)
                wrong += x[bp_shard_first(bytes, r, size) + i] != 'a' + r;
        wrong += x[bytes] != '!';
        bp_free(x);
        bp_test_check(COMM, wrong == 0);
    }
}

/* The oracle can tell orders apart: otherwise equal bits would say nothing. */
static void other_orders_give_other_bits(void **state)
{
    int size = bp_comm_size(COMM);
    int64_t n = 1000, differing = 0;
    float *expected = expected_sum(n), *part = bp_alloc("test.part", n, sizeof(float));
    float *backwards = bp_alloc("test.part", n, sizeof(float));

    BP_ASSERT(part != NULL && backwards != NULL);
    for (int r = size - 1; r >= 0; r--) {
        make_part(part, r, n);
        for (int64_t i = 0; i < n; i++)
            backwards[i] += part[i];
    }
    for (int64_t i = 0; i < n; i++)
        differing += backwards[i] != expected[i];
    bp_free(expected);
    bp_free(part);
    bp_free(backwards);
    bp_test_check(COMM, size < 3 ? differing == 0 : differing > n / 20);
}

static void sum_on_all_ranks_has_the_bits_of_the_tree(void **state)
{
    static const int64_t counts[] = {0, 1, 7, 4095, 4096, 4097, 99999, 300001};

    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        vectors v = new_vectors(counts[k], counts[k]);
        bp_all_sum(v.x, counts[k], v.scratch, COMM);
        bool right = memcmp(v.x, v.expected, (size_t)counts[k] * sizeof(float)) == 0;
        free_vectors(&v);
        bp_test_check(COMM, right);
    }
}

/* The bits of one vector are the same alone and inside a longer one: neither length nor place
 * decides the order of a power of two. */
static void order_does_not_depend_on_the_length(void **state)
{
    if (!is_power_of_two(bp_comm_size(COMM)))
        skip();
    int64_t n = 50000, part = 1234, at = 30001;
    vectors v = new_vectors(n, n), w = new_vectors(n, n);

    bp_all_sum(v.x, n, v.scratch, COMM);
    bp_all_sum(w.x + at, part, w.scratch, COMM);
    bool same = memcmp(v.x + at, w.x + at, (size_t)part * sizeof(float)) == 0;
    free_vectors(&v);
    free_vectors(&w);
    bp_test_check(COMM, same);
}

static void doubles_are_summed_alike_on_all_ranks(void **state)
{
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);
    enum { COUNT = 9000 }; /* several messages */
    static double x[COUNT], zero[COUNT];

    for (int i = 0; i < COUNT; i++)
        x[i] = (rank % 2 == 0 ? 1 : -1) * pow(10, i % 20 - 10) * (1 + rank * 1e-3);
    bp_all_sum_double(x, COUNT, COMM);
    memcpy(zero, x, sizeof x);
    bp_bcast_bytes(zero, sizeof zero, 0, COMM);
    bp_test_check(COMM, memcmp(x, zero, sizeof x) == 0);
    for (int i = 0; i < COUNT; i++) {
        double sum = 0, magnitude = pow(10, i % 20 - 10);
        for (int r = 0; r < size; r++)
            sum += (r % 2 == 0 ? 1 : -1) * magnitude * (1 + r * 1e-3);
        if (fabs(x[i] - sum) > 1e-14 * magnitude * size) { /* a rounding each of `size` additions */
            bp_test_check(COMM, false);
        }
    }
    bp_test_check(COMM, true);
}

static void maximum_takes_nan_everywhere(void **state)
{
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);
    float x[4] = {(float)rank, (float)-rank, rank == size / 2 ? NAN : 1, -INFINITY};

    bp_all_max(x, 4, COMM);
    bp_test_check(COMM, x[0] == (float)(size - 1) && x[1] == 0);
    bp_test_check(COMM, isnan(x[2]) && x[3] == -INFINITY);
}

static void integers_are_summed_and_compared(void **state)
{
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);
    int64_t big = INT64_C(1) << 40;

    bp_test_check(COMM, bp_all_sum_int(big + rank, COMM) == size * big + size * (size - 1) / 2);
    bp_test_check(COMM, bp_all_max_int(-big - rank, COMM) == -big);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_tile_the_vector),
        cmocka_unit_test(scattered_sum_has_the_bits_of_the_tree),
        cmocka_unit_test(bytes_of_any_number_are_gathered),
        cmocka_unit_test(other_orders_give_other_bits),
        cmocka_unit_test(sum_on_all_ranks_has_the_bits_of_the_tree),
        cmocka_unit_test(order_does_not_depend_on_the_length),
        cmocka_unit_test(doubles_are_summed_alike_on_all_ranks),
        cmocka_unit_test(maximum_takes_nan_everywhere),
        cmocka_unit_test(integers_are_summed_and_compared),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
