/* Blocks of an ensemble's rows: the mixture of the members' distributions, and its powers. */
#include "math/kernels/mixture.h"
#include "math/loops/loops_math_priv.h"
#include "math/loops/loops_names_priv.h"
#include <math.h>

#define MEMBERS_AT_ONCE 4 /* a block's sums are read and written once for this many members */

/* log(x) of normal x > 0 within 2 units of the last place, log(1) = 0 exactly; NaN stays NaN.
 * Source: the reduction and polynomial of Moshier's Cephes, logf.c. */
static inline float log_of(float x)
{
    uint32_t bits = bits_of_float(x);
    /* x = 2^n m, m in [sqrt(1/2), sqrt(2)) */
    int32_t n = (int32_t)(bits - 0x3f3504f3u) >> 23;
    float m = float_of_bits(bits - ((uint32_t)n << 23)) - 1.0f;
    float z = m * m;
    float p = 7.0376836292e-2f;

    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = p * m * z;
    float e = (float)n;
    y = y + e * -2.12194440e-4f;
    y = y - 0.5f * z;
    y = m + y + e * 0.693359375f;
    return x != x ? x : y;
}

/* Some members' logits of the block, and their normalisation to log-probabilities. */
typedef struct some_members {
    const float *x[MEMBERS_AT_ONCE];
    float max[MEMBERS_AT_ONCE], log_sum[MEMBERS_AT_ONCE];
} some_members;

static inline some_members members_of(const bp_mixture_block *block, int64_t first, int count)
{
    some_members some;

    for (int j = 0; j < count; j++) {
        const bp_member_row *known = &block->known[(first + j) * block->known_stride];

        some.x[j] = block->logits + (first + j) * block->member_stride;
        some.max[j] = known->max;
        some.log_sum[j] = known->log_sum;
    }
    return some;
}

/* A NaN needs no care here: the member's log_sum is then NaN, and so are all results. */
static inline float larger(float a, float b)
{
    return b > a ? b : a;
}

static inline void add_max(float *mx, const some_members *some, int count, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float most = mx[i];
#pragma GCC unroll 4
        for (int j = 0; j < count; j++)
            most = larger(most, (some->x[j][i] - some->max[j]) - some->log_sum[j]);
        mx[i] = most;
    }
}

static inline void add_share(float *sum, float *weighted, const some_members *some, int j,
                             int64_t i, float mx)
{
    float d = ((some->x[j][i] - some->max[j]) - some->log_sum[j]) - mx;
    float e = exp_of(d);

    *sum += e;
    *weighted += e * d;
}

/* Unrolled by member: clang does not vectorise a loop around a loop of this size. */
static inline void add_shares(float *s, float *a, const float *mx, const some_members *some,
                              int count, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float sum = s[i], weighted = a[i];

        add_share(&sum, &weighted, some, 0, i, mx[i]);
        if (count == MEMBERS_AT_ONCE) {
            add_share(&sum, &weighted, some, 1, i, mx[i]);
            add_share(&sum, &weighted, some, 2, i, mx[i]);
            add_share(&sum, &weighted, some, 3, i, mx[i]);
        }
        s[i] = sum;
        a[i] = weighted;
    }
}

/* mx, s and a of a block's entries, in member order. */
static void mix_members(float *mx, float *s, float *a, const bp_mixture_block *block)
{
    int64_t n = block->columns, whole = block->members / MEMBERS_AT_ONCE * MEMBERS_AT_ONCE;

    for (int64_t i = 0; i < n; i++) {
        mx[i] = -INFINITY;
        s[i] = a[i] = 0;
    }
    for (int64_t m = 0; m < whole; m += MEMBERS_AT_ONCE) {
        some_members some = members_of(block, m, MEMBERS_AT_ONCE);
        add_max(mx, &some, MEMBERS_AT_ONCE, n);
    }
    for (int64_t m = whole; m < block->members; m++) {
        some_members one = members_of(block, m, 1);
        add_max(mx, &one, 1, n);
    }
    for (int64_t m = 0; m < whole; m += MEMBERS_AT_ONCE) {
        some_members some = members_of(block, m, MEMBERS_AT_ONCE);
        add_shares(s, a, mx, &some, MEMBERS_AT_ONCE, n);
    }
    for (int64_t m = whole; m < block->members; m++) {
        some_members one = members_of(block, m, 1);
        add_shares(s, a, mx, &one, 1, n);
    }
}

/* logprob and p of n entries; ends[0] and [1] the block's sums of -p_m lp_m and p_m (lp_m - log p)
 * over members and entries. */
void LOOP(mixture)(float *logprob, float *p, double ends[2], const bp_mixture_block *block)
{
    float mx[BP_MIXTURE_BLOCK], s[BP_MIXTURE_BLOCK], a[BP_MIXTURE_BLOCK];
    float entropy[LANES] = {0}, information[LANES] = {0};
    int64_t n = block->columns, i = 0;
    float M = (float)block->members;

    mix_members(mx, s, a, block);
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float share = s[k] / M, rest = log_of(share), top = exp_of(mx[k]);
        float x = mx[k];

        logprob[k] = x + rest;
        p[k] = top * share;
        mx[k] = top * (a[k] - s[k] * rest);
        s[k] = -(top * (a[k] + s[k] * x));
    }
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            entropy[l] += s[i + l];
            information[l] += mx[i + l];
        }
    for (int l = 0; i + l < n; l++) {
        entropy[l] += s[i + l];
        information[l] += mx[i + l];
    }
    ends[0] = (double)lane_sum(entropy);
    ends[1] = (double)lane_sum(information);
}

/* Index of the first x with (x - max) - log_sum == -log_sum, the largest possible; n if there is
 * no such x. */
int64_t LOOP(first_top)(const float *x, int64_t n, float max, float log_sum)
{
    for (int64_t i = 0; i < n; i += BP_MIXTURE_BLOCK) {
        int64_t end = i + BP_MIXTURE_BLOCK < n ? i + BP_MIXTURE_BLOCK : n;
        int found = 0;

#pragma omp simd reduction(| : found)
        for (int64_t k = i; k < end; k++)
            found |= (x[k] - max) - log_sum == -log_sum;
        for (int64_t k = i; found && k < end; k++)
            if ((x[k] - max) - log_sum == -log_sum)
                return k;
    }
    return n;
}

/* sums of exp(b u), u exp(b u), u^2 exp(b u), u = logprob - shift */
void LOOP(temperature)(double sums[3], const float *logprob, int64_t n, float shift, float b)
{
    float power[LANES] = {0}, first[LANES] = {0}, second[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float u = logprob[i + l] - shift, e = exp_of(b * u), ue = u * e;
            power[l] += e;
            first[l] += ue;
            second[l] += u * ue;
        }
    for (int l = 0; i + l < n; l++) {
        float u = logprob[i + l] - shift, e = exp_of(b * u), ue = u * e;
        power[l] += e;
        first[l] += ue;
        second[l] += u * ue;
    }
    sums[0] = (double)lane_sum(power);
    sums[1] = (double)lane_sum(first);
    sums[2] = (double)lane_sum(second);
}
