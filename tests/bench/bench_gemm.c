/* Float32 and bf16 matrix products at the shapes of a GPT-2 124M step, ours beside oneDNN's in
 * turn, each as a share of the peak; then an MLP's products with GELU after them. Arguments:
 * threads (0: all), rounds, rows, and outs and ins of the one shape that is wanted.
 *
 * The peak is measured beside each product, again and again until the machine is about as fast as
 * it was at best. A share of the peak is the best of the rounds over the best peak; medians follow,
 * for a peak that is best by chance. */
#include "base/process/clock.h"
#include "bench_arrays.h"
#include "math/bf16/bf16_gemm.h"
#include "math/gemm/linear.h"
#include "math/gemm/linear_parts.h"
#include "math/math.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { MOST_ROUNDS = 301 };

#define QUIET      0.9 /* of the best peak so far */
#define QUIET_WAIT 1.0 /* seconds that a product waits for it at most */

static int rounds = 7;
static int64_t rows = 1024;
static double best_peak;
static bp_precision precision; /* of what is measured now */

/* What is timed: forward and input gradient into float32 rows, the weight's gradient added and
 * written, the first two into bf16 rows, and the copies made anew for them (with these). */
enum { FORWARD, INPUT, WEIGHT, WEIGHT_WRITTEN, FORWARD_HALVES, INPUT_HALVES, COPIES, KINDS };

typedef struct side {
    bp_gemm *gemm;
    bp_weight *weight;
    bp_operand y, y_halves, dx_halves; /* rows as far apart as results like best */
    double seconds[KINDS][MOST_ROUNDS];
} side;

/* oneDNN, our own, and oneDNN with our packing, which float32 has not. */
enum { THEIRS, OURS, MIXED, SIDES };
static const bp_bf16_form forms[SIDES] = {BP_BF16_NATIVE, BP_BF16_OWN, BP_BF16_MIXED};

typedef struct problem {
    int64_t outs, ins;
    float *x, *w, *bias, *y, *dw;
    bp_operand left, right;
    double peaks[KINDS][MOST_ROUNDS]; /* seconds an operation */
} problem;

static int side_count(void)
{
    return precision == BP_F32 ? MIXED : SIDES;
}

static int kind_count(void)
{
    return precision == BP_F32 ? FORWARD_HALVES : KINDS;
}

static void run(const problem *p, side *s, int what)
{
    switch (what) {
    case FORWARD:
        bp_linear_forward_into(s->gemm, &s->y, &p->right, s->weight, p->bias);
        break;
    case FORWARD_HALVES:
        bp_linear_forward_into(s->gemm, &s->y_halves, &p->right, s->weight, p->bias);
        break;
    case INPUT_HALVES:
        bp_linear_backward_input_into(s->gemm, &s->dx_halves, &p->left, s->weight);
        break;
    case INPUT:
        bp_linear_backward_input_operand(s->gemm, p->x, &p->left, s->weight);
        break;
    case WEIGHT:
    case WEIGHT_WRITTEN:
        bp_linear_backward_weight_operand(s->gemm, p->dw, &p->left, &p->right,
                                          what == WEIGHT_WRITTEN);
        break;
    default:
        bp_weight_refresh(s->weight);
        run(p, s, FORWARD);
        run(p, s, INPUT);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *seconds)
{
    qsort(seconds, (size_t)rounds, sizeof *seconds, by_size);
    return seconds[rounds / 2];
}

static double quiet_peak(void)
{
    double end = bp_clock_now() + QUIET_WAIT, peak;

    do {
        peak = bp_math_peak(precision, 0);
        best_peak = peak > best_peak ? peak : best_peak;
    } while (peak < QUIET * best_peak && bp_clock_now() < end);
    return peak;
}

static void measure(problem *p, side *sides)
{
    for (int round = -1; round < rounds; round++) /* one to warm up */
        for (int what = 0; what < kind_count(); what++) {
            double peak = quiet_peak();
            for (int i = 0; i < side_count(); i++) {
                double start = bp_clock_now();
                run(p, &sides[i], what);
                if (round >= 0)
                    sides[i].seconds[what][round] = bp_clock_now() - start;
            }
            if (round >= 0)
                p->peaks[what][round] = 1 / peak;
        }
}

static void print(problem *p, side *sides)
{
    double flops = 2.0 * (double)rows * (double)p->outs * (double)p->ins;

    printf("%6lld x %-5lld", (long long)p->outs, (long long)p->ins);
    for (int what = 0; what < kind_count() && what < COPIES; what++) {
        double theirs = median(sides[THEIRS].seconds[what]),
               ours = median(sides[OURS].seconds[what]),
               peak = median(p->peaks[what]), /* and sorted, all three */
            best = flops / sides[OURS].seconds[what][0];
        printf("  %7.1f %7.1f %6.3f %6.3f %5.2f", flops / sides[THEIRS].seconds[what][0] / 1e9,
               best / 1e9, best / best_peak, flops * peak / ours, theirs / ours);
    }
    for (int i = 0; precision != BP_F32 && i < SIDES; i++)
        printf("  %7.2f",
               1e3 * (median(sides[i].seconds[COPIES]) - median(sides[i].seconds[FORWARD]) -
                      median(sides[i].seconds[INPUT])));
    printf("\n");
}

static bp_operand results_of(const bp_gemm *gemm, bp_operand_form form, int64_t columns)
{
    int64_t stride = bp_linear_row_stride(gemm, form, columns);

    return (bp_operand){form, rows, columns, stride, floats(rows * stride)};
}

static void side_init(side *s, bp_bf16_form form, const problem *p)
{
    if (bp_gemm_new_form(&s->gemm, precision, form) != BP_OK ||
        bp_weight_new(&s->weight, s->gemm, p->w, p->outs, p->ins) != BP_OK)
        exit(71);
    s->y = results_of(s->gemm, BP_OPERAND_F32, p->outs);
    s->y_halves = results_of(s->gemm, BP_OPERAND_BF16, p->outs);
    s->dx_halves = results_of(s->gemm, BP_OPERAND_BF16, p->ins);
}

static void side_clear(side *s)
{
    bp_weight_free(&s->weight);
    bp_gemm_free(&s->gemm);
    bp_free(s->y.data);
    bp_free(s->y_halves.data);
    bp_free(s->dx_halves.data);
}

static void bench(int64_t outs, int64_t ins)
{
    static side sides[SIDES];
    static problem p;
    p = (problem){.outs = outs,
                  .ins = ins,
                  .x = floats(rows * ins),
                  .w = floats(outs * ins),
                  .bias = floats(outs),
                  .y = floats(rows * outs),
                  .dw = floats(outs * ins)};
    float *operands = floats(rows * (outs + ins));

    for (int i = 0; i < side_count(); i++)
        side_init(&sides[i], forms[i], &p);
    p.left = bp_operand_at(sides[0].gemm, operands, rows, outs);
    p.right = bp_operand_at(sides[0].gemm, operands + rows * outs, rows, ins);
    bp_operand_fill(&p.left, p.y);
    bp_operand_fill(&p.right, p.x);
    measure(&p, sides);
    print(&p, sides);
    for (int i = 0; i < side_count(); i++)
        side_clear(&sides[i]);
    void *all[] = {p.x, p.w, p.bias, p.y, p.dw, operands};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

/* An MLP's products with GELU: forward for training, forward for scoring, backward. Several layers,
 * so that no cache holds what one keeps for backward. */
enum { TRAINED, SCORED, BACKWARD, PASSES, LAYERS = 6 };
/* oneDNN's products and then the pass, our own and then the pass, our own and GELU at once. */
enum { THEIRS_THEN, OURS_THEN, AT_ONCE, WAYS };

typedef struct mlp {
    bp_weight *up, *down;
    bp_operand x, dy, kept;
} mlp;

typedef struct mlps {
    bp_gemm *gemm;
    mlp layers[LAYERS];
    bp_operand active, dup;
    float *bias;
    bp_bias_gradient gradient;
} mlps;

static double processor_seconds(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void run_mlp(const mlps *all, const mlp *one, int pass, bool at_once)
{
    bp_operand unkept = all->dup;
    if (bp_gemm_takes_epilogue(all->gemm, one->x.columns) && at_once)
        unkept.data = NULL;
    bp_activation_rows rows_of = {.y = &all->active,
                                  .x = pass == SCORED ? &unkept : &one->kept,
                                  .dx = &all->dup,
                                  .bias = &all->gradient};

    if (at_once && pass == BACKWARD) {
        bp_linear_activation_backward(all->gemm, &rows_of, &one->dy, one->down);
    } else if (at_once) {
        bp_linear_activation_forward(all->gemm, &rows_of, &one->x, one->up, all->bias);
    } else if (pass == BACKWARD) {
        bp_linear_backward_input_into(all->gemm, &all->dup, &one->dy, one->down);
        bp_activation_backward(BP_GELU_TANH, &all->dup, &all->active, &all->gradient, &all->dup,
                               &one->kept);
    } else {
        bp_linear_forward_into(all->gemm, rows_of.x, &one->x, one->up, all->bias);
        bp_activation_forward(BP_GELU_TANH, &all->active, rows_of.x);
    }
}

static bp_operand filled(const bp_gemm *gemm, int64_t columns)
{
    float *x = floats(rows * columns);
    bp_operand out = bp_operand_at(gemm, floats(rows * columns), rows, columns);

    bp_operand_fill(&out, x);
    bp_free(x);
    return out;
}

static mlps mlps_of(bp_bf16_form form, float *up, float *down, int64_t width, int64_t inner)
{
    mlps all = {.bias = floats(inner)};

    if (bp_gemm_new_form(&all.gemm, BP_BF16, form) != BP_OK)
        exit(71);
    all.active = filled(all.gemm, inner);
    all.dup = filled(all.gemm, inner);
    all.gradient = (bp_bias_gradient){floats(inner), floats(bp_bias_scratch(rows, inner))};
    for (int i = 0; i < LAYERS; i++) {
        mlp *one = &all.layers[i];
        if (bp_weight_new(&one->up, all.gemm, up, inner, width) != BP_OK ||
            bp_weight_new(&one->down, all.gemm, down, width, inner) != BP_OK)
            exit(71);
        one->x = filled(all.gemm, width);
        one->dy = filled(all.gemm, width);
        one->kept = filled(all.gemm, inner);
    }
    return all;
}

static void mlps_free(mlps *all)
{
    void *rest[] = {all->active.data, all->dup.data, all->bias, all->gradient.sums,
                    all->gradient.scratch};

    for (int i = 0; i < LAYERS; i++) {
        bp_weight_free(&all->layers[i].up);
        bp_weight_free(&all->layers[i].down);
        bp_free(all->layers[i].x.data);
        bp_free(all->layers[i].dy.data);
        bp_free(all->layers[i].kept.data);
    }
    bp_gemm_free(&all->gemm);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        bp_free(rest[i]);
}

/* Processor time, for which other work on the machine matters less. */
static void bench_gelu(int64_t width, int64_t inner)
{
    static double seconds[PASSES][WAYS][MOST_ROUNDS];
    float *up = floats(inner * width), *down = floats(inner * width);
    mlps theirs = mlps_of(BP_BF16_MIXED, up, down, width, inner),
         ours = mlps_of(BP_BF16_OWN, up, down, width, inner);

    for (int round = -1; round < rounds; round++)
        for (int i = 0; i < PASSES * WAYS; i++) {
            int pass = i / WAYS, way = i % WAYS;
            const mlps *all = way == THEIRS_THEN ? &theirs : &ours;
            double start = processor_seconds();
            for (int layer = 0; layer < LAYERS; layer++)
                run_mlp(all, &all->layers[layer], pass, way == AT_ONCE);
            if (round >= 0)
                seconds[pass][way][round] = (processor_seconds() - start) / LAYERS;
        }
    printf("%6lld x %-5lld", (long long)inner, (long long)width);
    for (int i = 0; i < PASSES * WAYS; i++)
        printf("%s %7.2f", i % WAYS == 0 ? " " : "", 1e3 * median(seconds[i / WAYS][i % WAYS]));
    printf("\n");
    mlps_free(&theirs);
    mlps_free(&ours);
    bp_free(up);
    bp_free(down);
}

static void bench_all(bp_precision of, int count, char **arguments)
{
    static const int64_t shapes[][2] = {{2304, 768},  {768, 768},   {3072, 768}, {768, 3072},
                                        {50257, 768}, {50304, 768}, {1024, 256}, {256, 1024}};

    precision = of;
    best_peak = bp_math_peak(of, 0.3);
    printf("%s, peak %.1f GFLOP/s\nGFLOP/s (best)  forward: onednn, ours, of peak (best; medians), "
           "ratio of medians | input gradient | weight gradient, added | written%s\n",
           of == BP_F32 ? "float32" : "bf16", best_peak / 1e9,
           of == BP_F32 ? ""
                        : " | forward and input gradient into bf16 | copies ms: onednn, ours, ours "
                          "for onednn");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (count < 6 ||
            (shapes[i][0] == atoll(arguments[4]) && shapes[i][1] == atoll(arguments[5])))
            bench(shapes[i][0], shapes[i][1]);
    printf("\n");
}

int main(int count, char **arguments)
{
    const bp_bf16_kernel *kernel = bp_bf16_kernel_here();

    bp_math_set_threads(count > 1 ? atoi(arguments[1]) : 0);
    rounds = count > 2 && atoi(arguments[2]) < MOST_ROUNDS ? atoi(arguments[2]) : rounds;
    rows = count > 3 ? atoll(arguments[3]) : rows;
    printf("%s, %s against %s, %d threads, %lld rows\n\n", bp_math_cpu(), bp_math_library(),
           kernel ? kernel->name : "float32 alone", bp_math_threads(), (long long)rows);
    bench_all(BP_F32, count, arguments);
    if (!kernel)
        return 0;
    bench_all(BP_BF16, count, arguments);
    if (count == 6)
        return 0;
    printf("MLPs, ms of processors a layer (medians)  forward, kept: onednn and pass, ours and "
           "pass, ours at once | forward, not kept | backward\n");
    bench_gelu(768, 3072);
    bench_gelu(256, 1024);
    return 0;
}
