/* Products of few rows and attention to cached keys: near plain loops in float64, and the same bits
 * whatever else is in the call, however many threads there are, wherever the cache has a position.
 */
#include "math/attention/cached.h"
#include "math/gemm/linear_parts.h"
#include "math/loops/loops.h"
#include "math/threads.h"
#include "math_test.h"

/* ---- products ---- */

/* Sums of `ins` products in float32 vectors. */
static double tolerance_of(int64_t ins)
{
    return 4e-7 * sqrt((double)ins) * 4;
}

static void plain_product(double *y, const float *x, const float *w, const float *bias,
                          const bp_few_rows *of)
{
    for (int64_t r = 0; r < of->rows; r++)
        for (int64_t o = 0; o < of->outs; o++) {
            double sum = bias ? (double)bias[o] : 0;

            for (int64_t k = 0; k < of->ins; k++)
                sum += (double)x[r * of->x_row + k] * (double)w[o * of->ins + k];
            y[r * of->outs + o] = sum;
        }
}

static void rows_are_near_plain_loops_and_alone_have_the_same_bits(void **state)
{
    static const int64_t shapes[][3] = {
        /* rows, outs, ins */
        {1, 1, 1},    {1, 7, 5},     {2, 33, 16},  {3, 64, 48},    {5, 50, 767},
        {64, 19, 96}, {67, 96, 769}, {9, 13, 800}, {130, 24, 100}, {8, 100, 1600},
    };

    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int biased = 0; biased < 2; biased++) {
            int64_t rows = shapes[k][0], outs = shapes[k][1], ins = shapes[k][2], x_row = ins + 3;
            float *x = randoms(rows * x_row, 1), *w = randoms(outs * ins, 2),
                  *bias = randoms(outs, 3), *y = floats(rows * outs), *one = floats(outs);
            double *twin = bp_alloc("test", rows * outs, sizeof *twin);
            bp_few_rows of = {y, x, w, biased ? bias : NULL, rows, x_row, outs, ins};

            bp_math_set_threads(1);
            bp_multiply_few_rows(&of);
            plain_product(twin, x, w, of.bias, &of);
            assert_true(distance(y, twin, rows * outs) < tolerance_of(ins));
            bp_math_set_threads(2);
            for (int64_t r = 0; r < rows; r++) {
                bp_multiply_few_rows(
                    &(bp_few_rows){one, x + r * x_row, w, of.bias, 1, x_row, outs, ins});
                assert_memory_equal(one, y + r * outs, (size_t)outs * sizeof *one);
            }
            bp_free(x), bp_free(w), bp_free(bias), bp_free(y), bp_free(one), bp_free(twin);
        }
}

static void every_instruction_set_multiplies(void **state)
{
    enum { ROWS = 5, OUTS = 10, INS = 77 };
    float *x = randoms(ROWS * INS, 1), *w = randoms(OUTS * INS, 2), *y = floats(ROWS * OUTS);
    double twin[ROWS * OUTS];

    (void)state;
    plain_product(twin, x, w, NULL,
                  &(bp_few_rows){.rows = ROWS, .x_row = INS, .outs = OUTS, .ins = INS});
    for (int set = 0; bp_loops_at(set); set++) {
        bp_dots dots = {y, x, w, OUTS, INS, INS, ROWS, OUTS, INS, false};

        bp_loops_at(set)->dots(&dots);
        assert_true(distance(y, twin, ROWS * OUTS) < tolerance_of(INS));
        dots.accumulate = true;
        bp_loops_at(set)->dots(&dots);
        for (int i = 0; i < ROWS * OUTS; i++)
            assert_true(fabs((double)y[i] - 2 * twin[i]) < 2 * tolerance_of(INS));
    }
    bp_free(x), bp_free(w), bp_free(y);
}

/* Products of a linear map, by the switch: near those of the library. */
static void a_gemm_takes_few_rows_when_asked_to(void **state)
{
    enum { ROWS = 3, OUTS = 70, INS = 130 };
    float *x = randoms(ROWS * INS, 1), *w = randoms(OUTS * INS, 2), *bias = randoms(OUTS, 3),
          *y = floats(ROWS * OUTS), *other = floats(ROWS * OUTS);
    double twin[ROWS * OUTS];
    bp_gemm *gemm;
    bp_weight *weight;

    (void)state;
    assert_int_equal(bp_gemm_new(&gemm, BP_F32), BP_OK);
    assert_int_equal(bp_weight_new(&weight, gemm, w, OUTS, INS), BP_OK);
    bp_gemm_take_few_rows(gemm, true);
    bp_linear_forward(gemm, y, x, weight, bias, ROWS);
    bp_multiply_few_rows(&(bp_few_rows){other, x, w, bias, ROWS, INS, OUTS, INS});
    assert_memory_equal(y, other, ROWS * OUTS * sizeof *y);
    bp_gemm_take_few_rows(gemm, false);
    bp_linear_forward(gemm, y, x, weight, bias, ROWS);
    plain_product(twin, x, w, bias,
                  &(bp_few_rows){.rows = ROWS, .x_row = INS, .outs = OUTS, .ins = INS});
    assert_true(distance(y, twin, ROWS * OUTS) < tolerance_of(INS));
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    bp_free(x), bp_free(w), bp_free(bias), bp_free(y), bp_free(other);
}

/* ---- attention ---- */

enum { SLOTS = 4, CAPACITY = 300 };

/* Sequences of these lengths, whose q, k and v lie one after another. */
static const int32_t lengths[SLOTS] = {1, 140, 37, 299};

typedef struct attention {
    bp_cached_shape shape;
    int64_t rows, columns;
    float *qkv, *out, *cache;
    void *scratch;
    int32_t *positions, *slots, *cells;
} attention;

/* cells: each sequence in its own memory, or in turns in that of all. */
static void open_attention(attention *a, const bp_cached_shape *shape, bool scattered)
{
    *a = (attention){.shape = *shape, .columns = (shape->H + 2 * shape->key_heads) * shape->D};
    for (int s = 0; s < SLOTS; s++)
        a->rows += lengths[s];
    a->qkv = randoms(a->rows * a->columns, 5);
    a->out = floats(a->rows * shape->H * shape->D);
    a->cache = floats(bp_cached_floats(shape));
    a->scratch = bp_alloc("test", (int64_t)bp_cached_scratch_bytes(shape), 1);
    a->positions = bp_alloc("test", a->rows, sizeof *a->positions);
    a->slots = bp_alloc("test", a->rows, sizeof *a->slots);
    a->cells = bp_alloc("test", SLOTS * CAPACITY, sizeof *a->cells);
    for (int s = 0, r = 0; s < SLOTS; s++)
        for (int t = 0; t < lengths[s]; t++, r++) {
            a->positions[r] = t;
            a->slots[r] = s;
            a->cells[s * CAPACITY + t] = scattered ? (s + t / 3) % SLOTS : s;
        }
}

static void close_attention(attention *a)
{
    bp_free(a->qkv), bp_free(a->out), bp_free(a->cache), bp_free(a->scratch);
    bp_free(a->positions), bp_free(a->slots), bp_free(a->cells);
}

/* `each` rows a call, 0: all at once. */
static void run(attention *a, int64_t each)
{
    for (int64_t r = 0; r<a->rows; r += each> 0 ? each : a->rows) {
        int64_t n = each > 0 && r + each < a->rows ? each : a->rows - r;
        bp_cached_rows rows = {n, a->positions + r, a->slots + r, a->cells};

        bp_attention_cached(a->out + r * a->shape.H * a->shape.D, a->cache, a->qkv + r * a->columns,
                            &rows, &a->shape, a->scratch);
    }
}

/* out[D] of row r and head h; the sequence's rows begin at `first`. */
static void plain_head(double *out, const attention *a, int64_t first, int64_t r, int64_t h)
{
    const bp_cached_shape *s = &a->shape;
    int64_t D = s->D, head = h * s->key_heads / s->H, t = a->positions[r], from = 0;
    const float *q = a->qkv + r * a->columns + h * D;
    double weights[CAPACITY], most = -INFINITY, sum = 0;

    if (s->window > 0 && t >= s->window)
        from = t - s->window + 1;
    for (int64_t j = from; j <= t; j++) {
        const float *k = a->qkv + (first + j) * a->columns + (s->H + head) * D;

        weights[j] = 0;
        for (int64_t d = 0; d < D; d++)
            weights[j] += (double)q[d] * (double)k[d] / sqrt((double)D);
        most = fmax(most, weights[j]);
    }
    for (int64_t j = from; j <= t; j++)
        sum += weights[j] = exp(weights[j] - most);
    for (int64_t d = 0; d < D; d++)
        out[d] = 0;
    for (int64_t j = from; j <= t; j++)
        for (int64_t d = 0; d < D; d++)
            out[d] +=
                weights[j] / sum *
                (double)a->qkv[(first + j) * a->columns + (s->H + s->key_heads + head) * D + d];
}

static void check_plain(const attention *a)
{
    double twin[64];
    int64_t H = a->shape.H, D = a->shape.D, first = 0;

    for (int64_t r = 0; r < a->rows; r++) {
        if (a->positions[r] == 0)
            first = r;
        for (int64_t h = 0; h < H; h++) {
            plain_head(twin, a, first, r, h);
            assert_true(distance(a->out + (r * H + h) * D, twin, D) < 3e-6);
        }
    }
}

static void cached_attention_is_near_plain_loops_and_its_bits_do_not_move(void **state)
{
    static const bp_cached_shape shapes[] = {{.H = 3, .key_heads = 3, .D = 16},
                                             {.H = 8, .key_heads = 2, .D = 20},
                                             {.H = 12, .key_heads = 1, .D = 64, .window = 50},
                                             {.H = 2, .key_heads = 2, .D = 5, .window = 1}};

    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        bp_cached_shape shape = shapes[k];
        attention all, other;

        shape.slots = SLOTS;
        shape.capacity = CAPACITY;
        bp_math_set_threads(2);
        open_attention(&all, &shape, false);
        run(&all, 0);
        check_plain(&all);
        for (int way = 0; way < 4; way++) {
            bp_math_set_threads(way % 2 + 1);
            open_attention(&other, &shape, way > 1);
            run(&other, way % 2 == 0 ? 1 : 5 * way);
            assert_memory_equal(all.out, other.out,
                                (size_t)(all.rows * shape.H * shape.D) * sizeof(float));
            close_attention(&other);
        }
        close_attention(&all);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_near_plain_loops_and_alone_have_the_same_bits),
        cmocka_unit_test(every_instruction_set_multiplies),
        cmocka_unit_test(a_gemm_takes_few_rows_when_asked_to),
        cmocka_unit_test(cached_attention_is_near_plain_loops_and_its_bits_do_not_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
