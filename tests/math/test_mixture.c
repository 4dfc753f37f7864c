/* The mixture of an ensemble's distributions against plain loops in float64, by every instruction
 * set that this CPU has. */
#include "math/kernels/mixture.h"
#include "math/loops/loops.h"
#include "math/math.h"
#include "math_test.h"

enum { ROWS = 3, MOST = 1000 };

/* Logits of M members over V entries from `first` on, far from 0 as GPT-2's are. */
typedef struct fixture {
    bp_mixture in;
    float *logits;
    bp_member_row *known;
    int32_t targets[ROWS];
} fixture;

static void open_fixture(fixture *f, int64_t M, int64_t V, float scale)
{
    f->logits = randoms(M * ROWS * V, M * 10000 + V);
    f->known = bp_alloc("test", M * ROWS, sizeof *f->known);
    assert_non_null(f->known);
    for (int64_t i = 0; i < M * ROWS * V; i++)
        f->logits[i] = f->logits[i] * scale - 100;
    for (int r = 0; r < ROWS; r++)
        f->targets[r] = (int32_t)((r * 701 + 5) % V);
    for (int64_t k = 0; k < M * ROWS; k++) {
        const float *x = f->logits + k * V;
        double sum = 0, max = -INFINITY;

        for (int64_t v = 0; v < V; v++)
            max = fmax(max, (double)x[v]);
        for (int64_t v = 0; v < V; v++)
            sum += exp((double)x[v] - max);
        f->known[k] = (bp_member_row){.max = (float)max, .log_sum = (float)log(sum)};
    }
    f->in = (bp_mixture){.members = M,
                         .rows = ROWS,
                         .columns = V,
                         .logits = f->logits,
                         .member_stride = ROWS * V,
                         .known = f->known,
                         .known_stride = ROWS,
                         .targets = f->targets};
}

static void close_fixture(fixture *f)
{
    bp_free(f->logits);
    bp_free(f->known);
}

/* ---- the twin ---- */

typedef struct plain_row {
    double entropy, information, squares, top_logprob;
} plain_row;

/* log p of one entry; lp[M] of the members. */
static double plain_entry(const bp_mixture *in, int64_t r, int64_t v, double *lp)
{
    double p = 0;

    for (int64_t m = 0; m < in->members; m++) {
        const bp_member_row *known = &in->known[m * in->known_stride + r];

        lp[m] = (double)in->logits[m * in->member_stride + r * in->columns + v] -
                (double)known->max - (double)known->log_sum;
        p += exp(lp[m]) / (double)in->members;
    }
    return log(p);
}

static plain_row plain_mix(const bp_mixture *in, int64_t r)
{
    plain_row row = {.top_logprob = -INFINITY};
    double lp[MOST], M = (double)in->members;

    for (int64_t v = 0; v < in->columns; v++) {
        double logprob = plain_entry(in, r, v, lp);

        for (int64_t m = 0; m < in->members; m++) {
            row.entropy -= exp(lp[m]) * lp[m] / M;
            row.information += exp(lp[m]) * (lp[m] - logprob) / M;
        }
        if (v + in->first != in->targets[r])
            row.squares += exp(2 * logprob);
        row.top_logprob = fmax(row.top_logprob, logprob);
    }
    return row;
}

/* log p around -10 is rounded to 5e-7, and its terms sum up to 1. */
static void rows_are_those_of_plain_loops(void **state)
{
    static const int64_t members[] = {1, 2, 3, 8, 33},
                         columns[] = {1, 2, 31, 32, 511, 512, 513, 2500};

    double lp[MOST];

    (void)state;
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 8; b++)
            for (int peaked = 0; peaked < 2; peaked++) {
                bp_mixture_row out[ROWS];
                fixture f;

                open_fixture(&f, members[a], columns[b], peaked ? 20.0F : 2.0F);
                f.in.first = b % 2 ? 4000 : 0;
                f.targets[0] += (int32_t)f.in.first;
                bp_mixture_rows(out, &f.in);
                for (int r = 0; r < ROWS; r++) {
                    plain_row row = plain_mix(&f.in, r);

                    assert_true(fabs(out[r].entropy - row.entropy) < 3e-6 * (1 + row.entropy));
                    assert_true(fabs(out[r].information - row.information) < 3e-6);
                    assert_true(fabs(out[r].squares - row.squares) < 3e-6);
                    assert_true(fabs((double)out[r].top_logprob - row.top_logprob) < 3e-6);
                    /* where members are certain of different entries, all have p = 1/M */
                    assert_true(out[r].top >= f.in.first && out[r].top < f.in.first + columns[b]);
                    double there = plain_entry(&f.in, r, out[r].top - f.in.first, lp);
                    assert_true(row.top_logprob - there < 3e-7);
                }
                close_fixture(&f);
            }
}

static void equal_members_disagree_by_nothing(void **state)
{
    (void)state;
    for (int64_t M = 1; M <= 12; M++) {
        bp_mixture_row out[ROWS], one[ROWS];
        fixture f;

        open_fixture(&f, 1, 1000, 3.0F);
        bp_member_row *known = bp_alloc("test", M * ROWS, sizeof *known);
        for (int64_t k = 0; k < M * ROWS; k++)
            known[k] = f.known[k % ROWS];
        bp_mixture_rows(one, &f.in);
        f.in.members = M;
        f.in.member_stride = 0;
        f.in.known = known;
        bp_mixture_rows(out, &f.in);
        for (int r = 0; r < ROWS; r++) {
            assert_true(out[r].information == 0 && one[r].information == 0);
            assert_true(out[r].top == one[r].top && out[r].top_logprob == one[r].top_logprob);
        }
        bp_free(known);
        close_fixture(&f);
    }
}

/* log p = mx + log(s/M) of entries whose s is known. */
static void the_logarithm_is_accurate(void **state)
{
    float logprob[BP_MIXTURE_BLOCK], p[BP_MIXTURE_BLOCK], x[2 * BP_MIXTURE_BLOCK];
    bp_member_row known[MOST] = {{0}};
    double ends[2];

    (void)state;
    for (int set = 0; bp_loops_at(set); set++) {
        for (int i = 0; i < BP_MIXTURE_BLOCK; i++) {
            x[i] = 0;
            x[BP_MIXTURE_BLOCK + i] = (float)-i / 30;
        }
        bp_mixture_block block = {.members = 2,
                                  .columns = BP_MIXTURE_BLOCK,
                                  .logits = x,
                                  .member_stride = BP_MIXTURE_BLOCK,
                                  .known = known,
                                  .known_stride = 1};
        bp_loops_at(set)->mixture(logprob, p, ends, &block);
        for (int i = 0; i < BP_MIXTURE_BLOCK; i++) {
            double exact = log((1 + exp((double)x[BP_MIXTURE_BLOCK + i])) / 2);
            assert_true(fabs((double)logprob[i] - exact) <= 1.2e-7);
        }
        /* One member at 0, the others at -80: s = 1. */
        for (int64_t M = 1; M <= MOST; M++) {
            for (int64_t m = 0; m < M; m++)
                known[m].log_sum = m == 0 ? 0.0F : 80.0F;
            block.members = M;
            block.columns = 1;
            block.member_stride = 0;
            bp_loops_at(set)->mixture(logprob, p, ends, &block);
            assert_true(fabs((double)logprob[0] + log((double)M)) <= 2e-7 * log((double)M));
        }
        memset(known, 0, sizeof known);
    }
}

static void tops_are_the_first_of_the_largest(void **state)
{
    enum { V = 1500 };
    fixture f;

    (void)state;
    open_fixture(&f, 2, V, 3.0F);
    for (int k = 0; k < 2 * ROWS; k++) { /* two entries share the maximum */
        f.logits[k * V + 700 + k] = f.known[k].max;
        f.logits[k * V + 1400] = f.known[k].max;
    }
    bp_member_tops(f.known, f.logits, 2 * ROWS, V, 50);
    for (int k = 0; k < 2 * ROWS; k++) {
        int64_t first = 0;

        while (f.logits[k * V + first] != f.known[k].max)
            first++;
        assert_int_equal(f.known[k].top, 50 + first);
        f.known[k].max += 1; /* it lies on another rank */
    }
    bp_member_tops(f.known, f.logits, 2 * ROWS, V, 50);
    assert_int_equal(f.known[0].top, INT32_MAX);
    close_fixture(&f);
}

static void powers_are_those_of_plain_loops(void **state)
{
    static const float betas[] = {0.35F, 1, 2.83F};
    bp_scaled_row sums[ROWS * 3];
    float shift[ROWS] = {0, -1, -2};
    double lp[MOST];
    fixture f;

    (void)state;
    open_fixture(&f, 3, 1100, 3.0F);
    bp_scaled_rows(sums, &f.in, shift, betas, 3);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < 3; k++) {
            double power = 0, first = 0, second = 0, b = (double)betas[k];

            for (int64_t v = 0; v < f.in.columns; v++) {
                double u = plain_entry(&f.in, r, v, lp) - (double)shift[r];
                power += exp(b * u);
                first += u * exp(b * u);
                second += u * u * exp(b * u);
            }
            assert_true(fabs(sums[r * 3 + k].power - power) <= 3e-6 * power);
            assert_true(fabs(sums[r * 3 + k].first - first) <= 3e-6 * fabs(first));
            assert_true(fabs(sums[r * 3 + k].second - second) <= 3e-6 * second);
        }
    close_fixture(&f);
}

static void instruction_sets_agree_and_threads_give_the_same_bits(void **state)
{
    float logprob[2][BP_MIXTURE_BLOCK], p[2][BP_MIXTURE_BLOCK];
    bp_mixture_row one[ROWS], two[ROWS];
    fixture f;

    (void)state;
    open_fixture(&f, 5, 5000, 4.0F);
    bp_mixture_block block = {.members = 5,
                              .columns = 491,
                              .logits = f.logits,
                              .member_stride = f.in.member_stride,
                              .known = f.known,
                              .known_stride = ROWS};
    for (int set = 0; bp_loops_at(set); set++) {
        const bp_loops *sets[2] = {bp_loops_at(0), bp_loops_at(set)};
        double ends[2][2], sums[2][3];

        for (int k = 0; k < 2; k++) {
            sets[k]->mixture(logprob[k], p[k], ends[k], &block);
            sets[k]->temperature(sums[k], logprob[k], 491, -0.5F, 1.3F);
        }
        for (int i = 0; i < 491; i++) {
            assert_true(fabsf(logprob[0][i] - logprob[1][i]) < 3e-6F);
            assert_true(fabsf(p[0][i] - p[1][i]) < 1e-6F);
        }
        for (int i = 0; i < 2; i++)
            assert_true(fabs(ends[0][i] - ends[1][i]) < 3e-6);
        for (int i = 0; i < 3; i++)
            assert_true(fabs(sums[0][i] - sums[1][i]) < 3e-6 * fabs(sums[0][i]));
        assert_int_equal(sets[1]->first_top(f.logits, 5000, f.known[0].max, f.known[0].log_sum),
                         sets[0]->first_top(f.logits, 5000, f.known[0].max, f.known[0].log_sum));
    }
    bp_math_set_threads(1);
    bp_mixture_rows(one, &f.in);
    bp_math_set_threads(2);
    bp_mixture_rows(two, &f.in);
    assert_same_bits(one, two, ROWS);
    close_fixture(&f);
}

static void what_is_not_finite_comes_out_not_finite(void **state)
{
    bp_mixture_row out[ROWS];
    fixture f;

    (void)state;
    open_fixture(&f, 3, 700, 2.0F);
    f.logits[f.in.member_stride + 600] = NAN; /* of member 1, row 0 */
    bp_mixture_rows(out, &f.in);
    assert_true(isnan(out[0].entropy) && isnan(out[0].information) && isnan(out[0].squares));
    assert_true(isnan(out[0].top_logprob) && !isnan(out[1].entropy));
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_plain_loops),
        cmocka_unit_test(equal_members_disagree_by_nothing),
        cmocka_unit_test(the_logarithm_is_accurate),
        cmocka_unit_test(tops_are_the_first_of_the_largest),
        cmocka_unit_test(powers_are_those_of_plain_loops),
        cmocka_unit_test(instruction_sets_agree_and_threads_give_the_same_bits),
        cmocka_unit_test(what_is_not_finite_comes_out_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
