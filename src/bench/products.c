/* Matrix products: the cores' peak FLOP/s, and the share of it that a step's products reach. */
#include "bench/bench_priv.h"

#include "base/config/json.h"
#include "base/mem.h"
#include "math/gemm/linear.h"
#include "mesh/collective.h"

#define ROWS           1024 /* of a step's products */
#define SETTLE_SECONDS 0.3
#define PEAK_REPEATS   5

static const char *const FORMS[BP_BENCH_FORMS] = {"forward", "input", "weight"};

static const char *name_of(bp_precision precision)
{
    return precision == BP_BF16 ? "bf16" : "f32";
}

/* ---- peak FLOP/s ---- */

typedef struct peak {
    double (*measure)(bp_precision precision, double seconds);
    bp_precision precision;
} peak;

static bp_spread peak_meter(void *context, double seconds)
{
    const peak *p = context;
    double rates[PEAK_REPEATS];

    for (int k = 0; k < PEAK_REPEATS; k++) {
        rates[k] = p->measure(p->precision, seconds / PEAK_REPEATS);
        bp_heartbeat_progress();
    }
    bp_spread spread = bp_spread_of(rates, PEAK_REPEATS);
    return spread.median > 0 ? spread : (bp_spread){0};
}

/* FLOP/s in registers, and in one large product. A process that has just started and bound its
 * threads may not have all of its cores in the first tenth of a second. */
static void measure_peaks(bench *self, bp_precision precision, json_t *peak_flops, json_t *gemm)
{
    peak registers = {bp_math_peak, precision}, product = {bp_math_gemm_peak, precision};
    const char *name = name_of(precision);
    bp_spread total;

    (void)bp_math_peak(precision, SETTLE_SECONDS);
    bench_put(peak_flops, name, bench_everywhere(self, peak_meter, &registers, "FLOP/s", &total));
    self->peak_flops[precision] = total.high; /* a peak: noise only lowers it */
    bench_put(gemm, name, bench_everywhere(self, peak_meter, &product, "FLOP/s", NULL));
}

/* ---- the products of a step ---- */

typedef struct product {
    bp_gemm *gemm;
    bp_weight *map;
    float *weights, *bias, *x, *y;
    int64_t outs, ins;
} product;

static void run_forward(void *context)
{
    product *p = context;

    bp_linear_forward(p->gemm, p->y, p->x, p->map, p->bias, ROWS);
}

static void run_input(void *context)
{
    product *p = context;

    bp_linear_backward_input(p->gemm, p->x, p->y, p->map, ROWS);
}

static void run_weight(void *context)
{
    product *p = context;

    bp_linear_backward_weight(p->gemm, p->weights, p->bias, p->y, p->x, ROWS, p->outs, p->ins);
}

static void (*const RUNS[BP_BENCH_FORMS])(void *) = {run_forward, run_input, run_weight};

/* Small values of both signs, so that sums stay finite however often they are taken. */
static float *floats(int64_t n, float scale)
{
    float *x = bp_try_alloc("bench.product", n, sizeof *x);

    if (x)
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; i++)
            x[i] = scale * ((float)((uint32_t)i * 2654435761u >> 22) / 512.0f - 1.0f);
    return x;
}

static bp_err open_product(product *p, bp_gemm *gemm, const bp_bench_matrix *matrix)
{
    int64_t outs = matrix->outs, ins = matrix->ins;

    *p = (product){.gemm = gemm,
                   .weights = floats(outs * ins, 1e-2f),
                   .bias = floats(outs, 1e-2f),
                   .x = floats(ROWS * ins, 1e-2f),
                   .y = floats(ROWS * outs, 1e-2f),
                   .outs = outs,
                   .ins = ins};
    if (!p->weights || !p->bias || !p->x || !p->y)
        return bp_fail_memory("a product's matrices", outs * (ins + ROWS), sizeof(float));
    return bp_weight_new(&p->map, gemm, p->weights, outs, ins);
}

/* Seconds of a step's products by form, and rates of each matrix, on this rank. */
typedef struct products {
    bp_spread seconds[BP_BENCH_FORMS], all;
    bp_spread rate[BP_BENCH_MATRICES][BP_BENCH_FORMS];
} products;

static void add(bp_spread *sum, const bp_spread *one, double times)
{
    sum->repeats = sum->repeats == 0 || one->repeats < sum->repeats ? one->repeats : sum->repeats;
    sum->median += times * one->median;
    sum->low += times * one->low;
    sum->high += times * one->high;
}

static bp_err measure_matrix(const bench *self, bp_gemm *gemm, const bp_bench_matrix *matrix,
                             products *out, int at)
{
    product p = {0};
    double flops = 2.0 * ROWS * (double)matrix->outs * (double)matrix->ins;
    bp_err err = open_product(&p, gemm, matrix);

    err = bp_agree(self->mesh->compute, err);
    for (int form = 0; form < BP_BENCH_FORMS && err == BP_OK; form++) {
        bench_task task = {RUNS[form], &p, flops};
        BP_MPI_WAIT("barrier", MPI_Barrier(self->mesh->compute));
        bp_spread seconds = bench_repeat(&task, self->seconds / BP_BENCH_MATRICES);
        add(&out->seconds[form], &seconds, (double)matrix->count);
        add(&out->all, &seconds, (double)matrix->count);
        out->rate[at][form] = bp_spread_rate(&seconds, flops);
    }
    bp_weight_free(&p.map);
    bp_free(p.weights);
    bp_free(p.bias);
    bp_free(p.x);
    bp_free(p.y);
    return err;
}

/* A figure, with its share of the peak. */
static void put_rate(const bench *self, json_t *object, const char *key, bp_precision precision,
                     const bp_spread *seconds, double flops)
{
    bp_spread rate = bp_spread_rate(seconds, flops);
    double peak_flops = self->peak_flops[precision];
    bp_spread total;
    json_t *figure = bench_gather(self, &rate, "FLOP/s", &total);

    if (json_is_object(figure))
        bench_put(figure, "share",
                  peak_flops > 0 ? bp_json_real(total.median / peak_flops) : json_null());
    bench_put(object, key, figure);
}

static json_t *matrices_json(const bench *self, const products *found,
                             const bp_bench_matrix matrices[BP_BENCH_MATRICES])
{
    json_t *list = self->result ? json_array() : NULL;

    for (int k = 0; k < BP_BENCH_MATRICES; k++) {
        json_t *row =
            self->result
                ? json_pack("{s:I, s:I, s:I}", "outs", (json_int_t)matrices[k].outs, "ins",
                            (json_int_t)matrices[k].ins, "count", (json_int_t)matrices[k].count)
                : NULL;
        for (int form = 0; form < BP_BENCH_FORMS; form++) {
            double total = found->rate[k][form].median;
            bp_all_sum_double(&total, 1, self->mesh->world);
            bench_put(row, FORMS[form], row ? bp_json_real(total) : NULL);
        }
        if (list)
            (void)json_array_append_new(list, row);
    }
    return list;
}

static bp_err step_products(bench *self, bp_precision precision, const bp_model_shape *shape,
                            json_t *into)
{
    bp_bench_matrix matrices[BP_BENCH_MATRICES];
    products found = {0};
    double flops = bp_bench_form_flops(shape, ROWS);
    json_t *object = self->result ? json_object() : NULL;
    bp_gemm *gemm = NULL;
    bp_err err = BP_OK;

    bp_bench_matrices(shape, matrices);
    if (self->mesh->computes)
        err = bp_agree(self->mesh->compute, bp_gemm_new(&gemm, precision));
    for (int k = 0; k < BP_BENCH_MATRICES && err == BP_OK && gemm; k++)
        err = measure_matrix(self, gemm, &matrices[k], &found, k);
    bp_gemm_free(&gemm);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK) {
        json_decref(object);
        return err;
    }
    for (int form = 0; form < BP_BENCH_FORMS; form++)
        put_rate(self, object, FORMS[form], precision, &found.seconds[form], flops);
    put_rate(self, object, "step", precision, &found.all, BP_BENCH_FORMS * flops);
    bench_put(object, "matrices", matrices_json(self, &found, matrices));
    bench_put(into, name_of(precision), object);
    return BP_OK;
}

/* The largest named model whose products fit: the head's product needs its matrix, a copy, the
 * gradient's layout and the logits. */
static const bp_bench_model *model_of(const bench *self)
{
    const bp_bench_model *model = bp_bench_model_at(BP_BENCH_SMALL);

    for (int k = 0; k < BP_BENCH_MODELS; k++) {
        const bp_model_shape *shape = &bp_bench_model_at(k)->shape;
        double bytes = 4.0 * (double)shape->vocab_size * (3.0 * (double)shape->width + ROWS);

        if (self->named[k] && (self->rank_bytes <= 0 || bytes <= self->rank_bytes))
            model = bp_bench_model_at(k);
    }
    return model;
}

bp_err bench_products(bench *self)
{
    const bp_bench_model *model = model_of(self);
    json_t *peak_flops = self->result ? json_object() : NULL;
    json_t *gemm = self->result ? json_object() : NULL;
    json_t *steps = self->result ? json_object() : NULL;
    bp_precision last = self->bf16 ? BP_BF16 : BP_F32;
    bp_err err = BP_OK;

    bench_put(self->result, "silicon", peak_flops);
    bench_put(self->result, "gemm", gemm);
    bench_put(self->result, "products", steps);
    bench_put(steps, "model", bp_json_string(model->name));
    bench_put(steps, "rows", json_integer(ROWS));
    for (int p = BP_F32; p <= (int)last && err == BP_OK; p++) {
        measure_peaks(self, (bp_precision)p, peak_flops, gemm);
        err = bench_next(self, p == BP_F32 ? "a step's matrix products in float32"
                                           : "a step's matrix products in bf16");
        if (err == BP_OK)
            err = step_products(self, (bp_precision)p, &model->shape, steps);
    }
    if (last == BP_F32 && err == BP_OK) {
        bench_put(peak_flops, "bf16", json_null());
        bench_put(gemm, "bf16", json_null());
        bench_put(steps, "bf16", json_null());
    }
    return err;
}
