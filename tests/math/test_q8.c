/* Weights of 8 bits: near a computation in double with the values that the blocks say, near the
 * weights themselves, and the same bits with every instruction set, however many rows and threads
 * there are. */
#include "math/gemm/q8_priv.h"
#include "math/loops/loops.h"
#include "math/threads.h"
#include "math_test.h"

/* The value of a block. */
static double value_of(const bp_q8_weights *w, int64_t out, int64_t in, int64_t blocks)
{
    const bp_q8_weights *block = &w[out / BP_Q8_COLUMNS * blocks + in / BP_Q8_BLOCK];
    int64_t c = out % BP_Q8_COLUMNS, k = in % BP_Q8_BLOCK;
    uint32_t bits = (uint32_t)block->scales[c] << 16;
    float scale;

    memcpy(&scale, &bits, sizeof scale);
    return (double)scale * (block->values[k / 4][c][k % 4] - 128);
}

typedef struct problem {
    int64_t rows, outs, ins, blocks;
    float *x, *w, *bias;
    bp_q8_weights *q8;
} problem;

static problem problem_of(int64_t rows, int64_t outs, int64_t ins)
{
    problem p = {rows,
                 outs,
                 ins,
                 (ins + BP_Q8_BLOCK - 1) / BP_Q8_BLOCK,
                 randoms(rows * ins, 1),
                 randoms(outs * ins, 2),
                 randoms(outs, 3),
                 NULL};

    p.q8 = bp_q8_new(p.w, outs, ins);
    return p;
}

static void problem_free(problem *p)
{
    bp_free(p->x), bp_free(p->w), bp_free(p->bias), bp_free(p->q8);
}

static void multiply(const problem *p, float *y, const float *x, int64_t rows)
{
    bp_operand from = bp_operand_floats((float *)x, rows, p->ins),
               to = bp_operand_floats(y, rows, p->outs);
    bp_workspace workspace = {0};

    bp_q8_forward(&to, &from, p->q8, p->bias, &workspace);
    assert_int_equal(workspace.bytes, bp_q8_scratch_bytes(rows, p->ins));
    bp_workspace_free(&workspace);
}

static const int64_t shapes[][3] = {
    /* rows, outs, ins */
    {1, 1, 1},   {1, 33, 31},  {2, 32, 32},   {3, 70, 100},
    {5, 31, 64}, {7, 129, 97}, {67, 96, 769}, {4, 200, 1000},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* x has 16 bits: an error of half a unit, the largest value of its block (here of all) over 32,639.
 */
static void check_doubles(const problem *p, const float *y)
{
    double unit = 0;

    for (int64_t i = 0; i < p->rows * p->ins; i++)
        unit = fmax(unit, fabs((double)p->x[i]) / 32639);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t o = 0; o < p->outs; o++) {
            double sum = p->bias[o], most = 0;

            for (int64_t k = 0; k < p->ins; k++) {
                double product = p->x[r * p->ins + k] * value_of(p->q8, o, k, p->blocks);
                sum += product;
                most += fabs(value_of(p->q8, o, k, p->blocks)) * unit / 2;
            }
            assert_true(fabs(y[r * p->outs + o] - sum) < most + 1e-6 * sqrt((double)p->ins));
        }
}

static void products_are_near_those_of_the_blocks_in_double(void **state)
{
    (void)state;
    for (int k = 0; k < SHAPES; k++) {
        problem p = problem_of(shapes[k][0], shapes[k][1], shapes[k][2]);
        float *y = floats(p.rows * p.outs), *one = floats(p.outs);

        bp_math_set_threads(2);
        multiply(&p, y, p.x, p.rows);
        check_doubles(&p, y);
        bp_math_set_threads(1);
        for (int64_t r = 0; r < p.rows; r++) {
            multiply(&p, one, p.x + r * p.ins, 1);
            assert_memory_equal(one, y + r * p.outs, (size_t)p.outs * sizeof *one);
        }
        bp_free(y), bp_free(one);
        problem_free(&p);
    }
    bp_math_set_threads(0);
}

/* With gaps between rows; and as bf16, rounded as any operand is, where gaps are zeros. */
static void results_are_operands(void **state)
{
    (void)state;
    for (int k = 0; k < SHAPES; k++) {
        problem p = problem_of(shapes[k][0], shapes[k][1], shapes[k][2]);
        int64_t stride = p.outs + 3, all = p.rows * stride;
        float *y = floats(p.rows * p.outs), *apart = floats(all);
        uint16_t *halves = bp_alloc("test", 2 * all, sizeof *halves), *expected = halves + all;
        bp_operand from = bp_operand_floats(p.x, p.rows, p.ins),
                   to = {BP_OPERAND_F32, p.rows, p.outs, stride, apart},
                   rounded = {BP_OPERAND_BF16, p.rows, p.outs, stride, halves},
                   filled = {BP_OPERAND_BF16, p.rows, p.outs, stride, expected};
        bp_workspace workspace = {0};

        multiply(&p, y, p.x, p.rows);
        bp_q8_forward(&to, &from, p.q8, p.bias, &workspace);
        bp_q8_forward(&rounded, &from, p.q8, p.bias, &workspace);
        bp_operand_fill(&filled, y);
        for (int64_t r = 0; r < p.rows; r++) {
            assert_memory_equal(apart + r * stride, y + r * p.outs, (size_t)p.outs * sizeof *y);
            assert_memory_equal(halves + r * stride, expected + r * stride,
                                (size_t)p.outs * sizeof *halves);
            for (int64_t c = p.outs; c < stride; c++)
                assert_int_equal(halves[r * stride + c], 0);
        }
        bp_workspace_free(&workspace);
        bp_free(y), bp_free(apart), bp_free(halves);
        problem_free(&p);
    }
}

/* Half a step of a scale that is at most 1/128 more than the largest value over 127. */
static void values_are_within_half_a_step(void **state)
{
    problem p = problem_of(1, 70, 100);

    (void)state;
    for (int64_t o = 0; o < p.outs; o++)
        for (int64_t k = 0; k < p.ins; k++) {
            int64_t first = k / BP_Q8_BLOCK * BP_Q8_BLOCK;
            double most = 0;

            for (int64_t i = first; i < first + BP_Q8_BLOCK && i < p.ins; i++)
                most = fmax(most, fabs((double)p.w[o * p.ins + i]));
            assert_true(fabs((double)p.w[o * p.ins + k] - value_of(p.q8, o, k, p.blocks)) <=
                        0.5001 * most / 127 * (1 + 1.0 / 128));
        }
    problem_free(&p);
}

static void every_instruction_set_has_the_same_bits(void **state)
{
    enum { ROWS = 7, OUTS = 32, INS = 150, BLOCKS = 5 };
    problem p = problem_of(ROWS, OUTS, INS);
    float *y = floats(ROWS * OUTS), *other = floats(ROWS * OUTS);
    bp_q8_row rows[ROWS * BLOCKS], again;

    (void)state;
    for (int64_t k = 0; k < ROWS * BLOCKS; k++)
        bp_loops_at(0)->q8_row(&rows[k], p.x + k / BLOCKS * INS + k % BLOCKS * BP_Q8_BLOCK,
                               k % BLOCKS == 4 ? INS - 4 * BP_Q8_BLOCK : BP_Q8_BLOCK);
    bp_q8_product product = {y, p.bias, rows, p.q8, OUTS, ROWS, BLOCKS, OUTS};
    bp_loops_at(0)->q8_multiply(&product);
    product.y = other;
    for (int set = 0; bp_loops_at(set); set++) {
        bp_q8_weights weights = {0};

        bp_loops_at(set)->q8_multiply(&product);
        assert_memory_equal(y, other, sizeof(float) * ROWS * OUTS);
        bp_loops_at(set)->q8_row(&again, p.x, BP_Q8_BLOCK);
        assert_memory_equal(&again, rows, sizeof again);
        bp_loops_at(set)->q8_weights(&weights, p.w, INS, OUTS, BP_Q8_BLOCK);
        assert_memory_equal(&weights, p.q8, sizeof weights);
    }
    memset(other, 0, sizeof(float) * ROWS * OUTS);
    bp_q8_multiply_here()(&product);
    assert_memory_equal(y, other, sizeof(float) * ROWS * OUTS);
    bp_free(y), bp_free(other);
    problem_free(&p);
}

/* Zeros give zeros; what is not finite gives NaN, in its row alone. */
static void odd_values_stay_in_their_rows(void **state)
{
    problem p = problem_of(3, 40, 64);
    float *y = floats(3 * 40);

    (void)state;
    memset(p.x, 0, sizeof(float) * 64);
    p.x[64 + 40] = INFINITY;
    bp_free(p.q8);
    p.w[5 * 64] = NAN;
    memset(p.w + 7 * 64, 0, sizeof(float) * 64);
    p.q8 = bp_q8_new(p.w, 40, 64);
    multiply(&p, y, p.x, 3);
    for (int64_t o = 0; o < 40; o++) {
        assert_true(o == 5 ? isnan(y[o]) : y[o] == p.bias[o]);
        assert_true(isnan(y[40 + o]));
        assert_true(isnan(y[80 + o]) == (o == 5));
    }
    assert_true(y[80 + 7] == p.bias[7]);
    bp_free(y);
    problem_free(&p);
}

/* Through a bp_gemm, in every precision: a weight's values go, and bytes are as planned. */
static void a_gemm_holds_weights_in_8_bits(void **state)
{
    enum { ROWS = 3, OUTS = 70, INS = 96 };
    problem p = problem_of(ROWS, OUTS, INS);
    float *y = floats(ROWS * OUTS), *few = floats(ROWS * OUTS), *x = copied(p.x, ROWS * INS);

    (void)state;
    for (int precision = BP_F32; precision <= BP_BF16; precision++) {
        bp_gemm *gemm;
        bp_weight *weight;

        if (bp_gemm_new_forward(&gemm, (bp_precision)precision) != BP_OK)
            continue;
        bp_gemm_hold_q8(gemm);
        assert_false(bp_gemm_reads_values(gemm));
        assert_int_equal(bp_weight_copy_bytes(gemm, OUTS, INS), bp_q8_bytes(OUTS, INS));
        assert_int_equal(bp_weight_new(&weight, gemm, p.w, OUTS, INS), BP_OK);
        bp_weight_refresh(weight);
        bp_linear_forward(gemm, y, x, weight, p.bias, ROWS);
        bp_gemm_take_few_rows(gemm, true);
        bp_linear_forward(gemm, few, x, weight, p.bias, ROWS);
        assert_memory_equal(y, few, sizeof(float) * ROWS * OUTS);
        if (precision == BP_BF16)
            bp_loops_best()->round_bf16(p.x, x, ROWS * INS);
        check_doubles(&p, y);
        bp_weight_free(&weight);
        bp_gemm_free(&gemm);
    }
    bp_free(y), bp_free(few), bp_free(x);
    problem_free(&p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_near_those_of_the_blocks_in_double),
        cmocka_unit_test(results_are_operands),
        cmocka_unit_test(values_are_within_half_a_step),
        cmocka_unit_test(every_instruction_set_has_the_same_bits),
        cmocka_unit_test(odd_values_stay_in_their_rows),
        cmocka_unit_test(a_gemm_holds_weights_in_8_bits),
    };
    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
