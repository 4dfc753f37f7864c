/* Nodes of a recurrent cell that is a graph: threads share the rows. The logistic function is
 * (1 + tanh(x / 2)) / 2. */
#include "math/kernels/cells.h"

#include "math/loops/loops.h"

#include <math.h>
#include <string.h>

#define RUN      128 /* units at once */
#define PARALLEL 4096

/* ---- operations ---- */

static void logistic(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / 2;
    bp_loops_best()->tanh(y, y, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = (y[i] + 1) / 2;
}

static void apply(bp_cell_operation operation, float *y, const float *x, int64_t n)
{
    if (operation == BP_NODE_TANH)
        bp_loops_best()->tanh(y, x, n);
    else if (operation == BP_NODE_SIGMOID)
        logistic(y, x, n);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = operation == BP_NODE_RELU && !(x[i] > 0) ? 0 : x[i];
}

/* slope[n] from x and y = f(x). */
static void slopes(bp_cell_operation operation, float *slope, const float *x, const float *y,
                   int64_t n)
{
    if (operation == BP_NODE_TANH)
        for (int64_t i = 0; i < n; i++)
            slope[i] = 1 - y[i] * y[i];
    else if (operation == BP_NODE_SIGMOID)
        for (int64_t i = 0; i < n; i++)
            slope[i] = y[i] * (1 - y[i]);
    else
        for (int64_t i = 0; i < n; i++)
            slope[i] = operation == BP_NODE_IDENTITY || x[i] > 0;
}

/* ---- a run of a row's units ---- */

typedef struct run {
    int64_t n;
    const float *s, *c, *h;
    float y[RUN];     /* f(h) of one operation */
    float gate[RUN];  /* logistic(c) */
    float mixed[RUN]; /* sum of share f(h) */
    float slope[RUN]; /* and of their slopes */
    float all;        /* sum of the shares */
} run;

static bool take(const bp_node_edge *edge, int operation)
{
    return edge->share[operation] != 0;
}

static void open_run(run *r, const bp_node_edge *edge, int64_t row, int64_t first)
{
    int64_t H = edge->H;

    r->n = first + RUN < H ? RUN : H - first;
    r->s = edge->state + row * H + first;
    r->c = edge->sums + row * 2 * H + first;
    r->h = r->c + H;
    r->all = 0;
    memset(r->mixed, 0, sizeof r->mixed);
    memset(r->slope, 0, sizeof r->slope);
    logistic(r->gate, r->c, r->n);
}

/* with_slopes: for backward. */
static void mix(run *r, const bp_node_edge *edge, bool with_slopes)
{
    for (int k = BP_NODE_NONE + 1; k < BP_NODE_OPERATIONS; k++) {
        float share = edge->share[k], slope[RUN];

        if (!take(edge, k))
            continue;
        apply((bp_cell_operation)k, r->y, r->h, r->n);
        for (int64_t i = 0; i < r->n; i++)
            r->mixed[i] += share * r->y[i];
        r->all += share;
        if (!with_slopes)
            continue;
        slopes((bp_cell_operation)k, slope, r->h, r->y, r->n);
        for (int64_t i = 0; i < r->n; i++)
            r->slope[i] += share * slope[i];
    }
}

void bp_node_forward(float *node, const bp_node_edge *edge, int64_t rows)
{
    int64_t H = edge->H;

#pragma omp parallel for schedule(static) if (rows * H > PARALLEL)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t first = 0; first < H; first += RUN) {
            run r;
            float *to = node + row * H + first;

            open_run(&r, edge, row, first);
            mix(&r, edge, false);
            for (int64_t i = 0; i < r.n; i++)
                to[i] += r.all * r.s[i] + r.gate[i] * (r.mixed[i] - r.all * r.s[i]);
        }
}

/* The run's part of the shares' gradients: share_f is multiplied by s + c (f(h) - s). */
static void add_shares(double share[BP_NODE_OPERATIONS], run *r, const float *d)
{
    for (int k = BP_NODE_NONE + 1; k < BP_NODE_OPERATIONS; k++) {
        double sum = 0;

        apply((bp_cell_operation)k, r->y, r->h, r->n);
        for (int64_t i = 0; i < r->n; i++)
            sum += (double)(d[i] * (r->s[i] + r->gate[i] * (r->y[i] - r->s[i])));
        share[k] += sum;
    }
}

int64_t bp_node_scratch(int64_t rows)
{
    return rows * BP_NODE_OPERATIONS;
}

static void backward_run(const bp_node_gradients *to, run *r, const float *d, int64_t at,
                         int64_t sums, int64_t H)
{
    float *ds = to->state + at, *dc = to->sums + sums, *dh = dc + H;

    for (int64_t i = 0; i < r->n; i++) {
        float c = r->gate[i], less = r->mixed[i] - r->all * r->s[i];

        ds[i] += d[i] * r->all * (1 - c);
        dc[i] = d[i] * less * c * (1 - c);
        dh[i] = d[i] * c * r->slope[i];
    }
}

void bp_node_backward(const bp_node_gradients *to, const float *node, const bp_node_edge *edge,
                      int64_t rows)
{
    int64_t H = edge->H;

    if (to->share)
        memset(to->scratch, 0, (size_t)bp_node_scratch(rows) * sizeof *to->scratch);
#pragma omp parallel for schedule(static) if (rows * H > PARALLEL)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t first = 0; first < H; first += RUN) {
            const float *d = node + row * H + first;
            run r;

            open_run(&r, edge, row, first);
            if (to->share)
                add_shares(to->scratch + row * BP_NODE_OPERATIONS, &r, d);
            mix(&r, edge, true);
            backward_run(to, &r, d, row * H + first, row * 2 * H + first, H);
        }
    for (int64_t row = 0; to->share && row < rows; row++)
        for (int k = 0; k < BP_NODE_OPERATIONS; k++)
            to->share[k] += to->scratch[row * BP_NODE_OPERATIONS + k];
}

/* ---- batch normalisation ---- */

void bp_batch_norm_forward(float *x, float *rstd, int64_t rows, int64_t H, float epsilon)
{
#pragma omp parallel for schedule(static) if (rows * H > PARALLEL)
    for (int64_t i = 0; i < H; i++) {
        double mean = 0, squares = 0;

        for (int64_t r = 0; r < rows; r++)
            mean += (double)x[r * H + i];
        mean /= (double)rows;
        for (int64_t r = 0; r < rows; r++) {
            double off = (double)x[r * H + i] - mean;

            squares += off * off;
        }
        rstd[i] = (float)(1 / sqrt(squares / (double)rows + (double)epsilon));
        for (int64_t r = 0; r < rows; r++)
            x[r * H + i] = (float)((double)x[r * H + i] - mean) * rstd[i];
    }
}

void bp_batch_norm_backward(float *dx, const float *y, const float *rstd, int64_t rows, int64_t H)
{
#pragma omp parallel for schedule(static) if (rows * H > PARALLEL)
    for (int64_t i = 0; i < H; i++) {
        double sum = 0, along = 0;

        for (int64_t r = 0; r < rows; r++) {
            sum += (double)dx[r * H + i];
            along += (double)(dx[r * H + i] * y[r * H + i]);
        }
        sum /= (double)rows;
        along /= (double)rows;
        for (int64_t r = 0; r < rows; r++)
            dx[r * H + i] =
                (float)((double)dx[r * H + i] - sum - (double)y[r * H + i] * along) * rstd[i];
    }
}
