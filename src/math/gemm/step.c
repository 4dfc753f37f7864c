/* Products of few rows with packed panels of a weight. */
#include "math/gemm/step.h"

#include "base/err.h"
#include "base/numbers.h"
#include "base/trace.h"
#include "math/gemm/linear_parts.h"
#include "math/loops/loops.h"
#include <omp.h>
#include <string.h>

#define PANEL 32  /* columns of a panel, contiguous for each k */
#define ROWS  48  /* that go through a panel at once */
#define INNER 256 /* steps of k at a time: a panel's part and the rows' stay in L1 */

/* A matrix [inner][columns] as panels [columns / PANEL][inner][PANEL], padded with zeros. */
typedef struct panels {
    float *data;
    int64_t inner, columns;
} panels;

struct bp_step_weight {
    bp_gemm *gemm;
    const float *value;
    int64_t outs, ins;
    panels forward, backward; /* of W transposed, of W; without data, the library multiplies */
    bp_weight *library;       /* NULL: our own loops do */
};

static int64_t panel_count(const panels *of)
{
    return (of->columns + PANEL - 1) / PANEL;
}

static int64_t panel_floats(int64_t inner, int64_t columns)
{
    return (columns + PANEL - 1) / PANEL * PANEL * inner;
}

static bool is_own(const bp_gemm *gemm)
{
    return bp_gemm_precision(gemm) == BP_F32;
}

size_t bp_step_copy_bytes(const bp_gemm *gemm, int64_t outs, int64_t ins)
{
    int64_t floats = panel_floats(ins, outs);

    if (!is_own(gemm))
        return bp_weight_copy_bytes(gemm, outs, ins);
    if (!bp_gemm_kind_of(gemm).forward_only)
        floats += panel_floats(outs, ins);
    return (size_t)floats * sizeof(float);
}

size_t bp_step_scratch_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs, int64_t ins)
{
    return is_own(gemm) ? 0 : bp_linear_scratch_bytes(gemm, rows, outs, ins);
}

static bp_err alloc_panels(panels *of, int64_t inner, int64_t columns)
{
    *of = (panels){.inner = inner, .columns = columns};
    of->data = bp_try_alloc("math.weight", panel_floats(inner, columns), sizeof(float));
    return of->data ? BP_OK
                    : BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                              "out of memory: for a weight of %lld x %lld", (long long)columns,
                              (long long)inner);
}

bp_err bp_step_weight_new(bp_step_weight **out, bp_gemm *gemm, const float *value, int64_t outs,
                          int64_t ins)
{
    bp_step_weight *self = bp_alloc("math.weight", 1, sizeof *self);
    bp_err err;

    *self = (bp_step_weight){.gemm = gemm, .value = value, .outs = outs, .ins = ins};
    *out = NULL;
    if (!is_own(gemm)) {
        err = bp_weight_new(&self->library, gemm, value, outs, ins);
    } else {
        err = alloc_panels(&self->forward, ins, outs);
        if (err == BP_OK && !bp_gemm_kind_of(gemm).forward_only)
            err = alloc_panels(&self->backward, outs, ins);
    }
    if (err != BP_OK)
        bp_step_weight_free(&self);
    *out = self;
    return err;
}

void bp_step_weight_free(bp_step_weight **weight)
{
    if (!*weight)
        return;
    if ((*weight)->library)
        bp_weight_free(&(*weight)->library);
    bp_free((*weight)->forward.data);
    bp_free((*weight)->backward.data);
    bp_free(*weight);
    *weight = NULL;
}

/* Column c of row k is at value[k * k_step + c * c_step]. */
static void pack(const panels *to, const float *value, int64_t k_step, int64_t c_step)
{
    if (!to->data)
        return;
#pragma omp parallel for schedule(static) if (to->inner * to->columns > 32768)
    for (int64_t p = 0; p < panel_count(to); p++) {
        float *panel = to->data + p * PANEL * to->inner;
        int64_t first = p * PANEL, count = bp_min(PANEL, to->columns - first);

        for (int64_t k = 0; k < to->inner; k++, panel += PANEL) {
            const float *from = value + k * k_step + first * c_step;

            for (int64_t c = 0; c < count; c++)
                panel[c] = from[c * c_step];
            for (int64_t c = count; c < PANEL; c++)
                panel[c] = 0;
        }
    }
}

void bp_step_weight_refresh(bp_step_weight *weight)
{
    if (weight->library) {
        bp_weight_refresh(weight->library);
        return;
    }
    pack(&weight->forward, weight->value, 1, weight->ins);
    pack(&weight->backward, weight->value, weight->ins, 1);
}

/* Accumulates into y[rows][columns]. */
typedef struct product {
    float *y;
    const float *x, *bias;
    const panels *w;
    int64_t rows;
} product;

/* Rows [first, first + rows) through one panel; `to` holds all of its columns. */
static void multiply(const bp_loops *loops, const product *all, float *to, int64_t to_row,
                     const float *panel, int64_t first, int64_t rows)
{
    int64_t inner = all->w->inner;

    for (int64_t k = 0; k < inner; k += INNER)
        loops->tile_product(&(bp_tile){.c = to,
                                       .a = all->x + first * inner + k,
                                       .b = panel + k * PANEL,
                                       .c_row = to_row,
                                       .a_row = inner,
                                       .a_column = 1,
                                       .b_row = PANEL,
                                       .M = rows,
                                       .N = PANEL,
                                       .K = bp_min(INNER, inner - k),
                                       .accumulate = true});
}

/* One panel. The last panel's columns beyond y go to a separate buffer. */
static void multiply_panel(const bp_loops *loops, const product *all, int64_t p)
{
    int64_t columns = all->w->columns, count = bp_min(PANEL, columns - p * PANEL);
    const float *panel = all->w->data + p * PANEL * all->w->inner;
    float edge[ROWS * PANEL];

    for (int64_t r = 0; r < all->rows; r += ROWS) {
        int64_t rows = bp_min(ROWS, all->rows - r), to_row = count == PANEL ? columns : PANEL;
        float *y = all->y + r * columns + p * PANEL, *to = count == PANEL ? y : edge;

        for (int64_t i = 0; i < rows; i++) {
            memset(to + i * to_row, 0, PANEL * sizeof *to);
            if (all->bias)
                memcpy(to + i * to_row, all->bias + p * PANEL, (size_t)count * sizeof *to);
        }
        multiply(loops, all, to, to_row, panel, r, rows);
        for (int64_t i = 0; to == edge && i < rows; i++)
            memcpy(y + i * columns, edge + i * PANEL, (size_t)count * sizeof *y);
    }
}

static void run(const product *all)
{
    const bp_loops *loops = bp_loops_best();
    int64_t count = panel_count(all->w);

#pragma omp parallel for schedule(static) if (all->rows * all->w->inner * all->w->columns > 32768)
    for (int64_t p = 0; p < count; p++)
        multiply_panel(loops, all, p);
}

void bp_step_forward(float *y, const float *x, const bp_step_weight *w, const float *bias,
                     int64_t rows)
{
    if (w->library) {
        bp_linear_forward(w->gemm, y, x, w->library, bias, rows);
        return;
    }
    BP_TRACE(BP_TRACE_PRODUCT_FORWARD, 2.0 * (double)(rows * w->outs * w->ins), 0);
    run(&(product){y, x, bias, &w->forward, rows});
}

void bp_step_backward(float *dx, const float *dy, const bp_step_weight *w, int64_t rows)
{
    if (w->library) {
        bp_linear_backward_input(w->gemm, dx, dy, w->library, rows);
        return;
    }
    BP_TRACE(BP_TRACE_PRODUCT_INPUT, 2.0 * (double)(rows * w->outs * w->ins), 0);
    BP_ASSERT(w->backward.data);
    run(&(product){dx, dy, NULL, &w->backward, rows});
}
