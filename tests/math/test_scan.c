/* The scan of a state-space layer in chunks against its recurrence in plain loops and float64:
 * results, the state carried from piece to piece, and gradients against finite differences. */
#include "math/kernels/scan.h"
#include "math/math.h"
#include "math_test.h"

typedef struct fixture {
    bp_scan in;
    int64_t groups;
    float *x, *bc, *dt, *rate, *skip, *dy;
    bp_arena scratch;
} fixture;

static void open_fixture(fixture *f, bp_scan shape)
{
    int64_t rows = shape.B * shape.T;

    f->groups = (shape.first_head + shape.H - 1) / shape.share - shape.first_head / shape.share + 1;
    f->in = shape;
    f->in.x_row = shape.H * shape.P + 3; /* rows have something else between them */
    f->in.bc_row = 2 * f->groups * shape.N;
    f->x = randoms(rows * f->in.x_row, 1);
    f->bc = randoms(rows * f->in.bc_row, 2);
    f->dt = randoms(rows * shape.H, 3);
    f->rate = randoms(shape.H, 4);
    f->skip = randoms(shape.H, 5);
    f->dy = randoms(rows * shape.H * shape.P, 6);
    for (int64_t i = 0; i < rows * shape.H; i++)
        f->dt[i] = 0.2F * fabsf(f->dt[i]);
    for (int64_t h = 0; h < shape.H; h++)
        f->rate[h] = fabsf(f->rate[h]) + 0.1F * (float)(h + 1);
    f->in.x = f->x;
    f->in.b = f->bc;
    f->in.c = f->bc + f->groups * shape.N;
    f->in.dt = f->dt;
    f->in.rate = f->rate;
    f->in.skip = f->skip;
    f->scratch.size_bytes = bp_scan_scratch_bytes(shape.T, shape.H, shape.P, shape.N, true);
    f->scratch.base = bp_alloc("test", (int64_t)f->scratch.size_bytes, 1);
}

static void close_fixture(fixture *f)
{
    bp_free(f->x);
    bp_free(f->bc);
    bp_free(f->dt);
    bp_free(f->rate);
    bp_free(f->skip);
    bp_free(f->dy);
    bp_free(f->scratch.base);
}

/* One head of one sequence; state[N][P] goes on. */
static void plain_head(double *y, double *state, const bp_scan *of, int64_t b, int64_t h)
{
    int64_t first = ((of->first_head + h) / of->share - of->first_head / of->share) * of->N;

    for (int64_t t = 0; t < of->T; t++) {
        int64_t row = b * of->T + t;
        const float *x = of->x + row * of->x_row + h * of->P;
        double dt = (double)of->dt[row * of->H + h], keep = exp(-(double)of->rate[h] * dt);

        for (int64_t p = 0; p < of->P; p++) {
            double sum = (double)of->skip[h] * (double)x[p];

            for (int64_t n = 0; n < of->N; n++) {
                double *s = &state[n * of->P + p];

                *s = keep * *s + dt * (double)of->b[row * of->bc_row + first + n] * (double)x[p];
                sum += *s * (double)of->c[row * of->bc_row + first + n];
            }
            y[(row * of->H + h) * of->P + p] = sum;
        }
    }
}

static void plain(double *y, double *states, const bp_scan *of)
{
    for (int64_t b = 0; b < of->B; b++)
        for (int64_t h = 0; h < of->H; h++)
            plain_head(y, states + (b * of->H + h) * of->N * of->P, of, b, h);
}

/* sum of y dy: what the gradients are of. */
static double plain_loss(const fixture *f)
{
    int64_t count = f->in.B * f->in.T * f->in.H * f->in.P;
    double *y = bp_alloc("test", count, sizeof *y), sum = 0,
           *states = bp_alloc("test", f->in.B * f->in.H * f->in.N * f->in.P, sizeof *states);

    plain(y, states, &f->in);
    for (int64_t i = 0; i < count; i++)
        sum += y[i] * (double)f->dy[i];
    bp_free(y);
    bp_free(states);
    return sum;
}

static const bp_scan SHAPES[] = {
    {.B = 2, .T = 150, .H = 4, .P = 8, .N = 5, .share = 2},
    {.B = 1, .T = 64, .H = 3, .P = 16, .N = 16, .share = 3},
    {.B = 1, .T = 1, .H = 2, .P = 20, .N = 33, .share = 1},
    {.B = 1, .T = 200, .H = 3, .P = 7, .N = 4, .share = 4, .first_head = 3}, /* of two groups */
};
#define SHAPES_COUNT (sizeof SHAPES / sizeof *SHAPES)

static void results_are_the_recurrence_s(void **unused)
{
    for (size_t s = 0; s < SHAPES_COUNT; s++) {
        fixture f = {0};
        int64_t count, states;

        open_fixture(&f, SHAPES[s]);
        count = f.in.B * f.in.T * f.in.H * f.in.P;
        states = f.in.B * f.in.H * f.in.N * f.in.P;
        float *y = bp_alloc("test", count, sizeof *y), *end = bp_alloc("test", states, sizeof *end);
        double *plain_y = bp_alloc("test", count, sizeof *plain_y),
               *plain_end = bp_alloc("test", states, sizeof *plain_end);

        for (int64_t i = 0; i < states; i++)
            plain_end[i] = (double)(end[i] = sinf((float)i));
        plain(plain_y, plain_end, &f.in);
        bp_scan_forward(y, &f.in, end, end, &f.scratch);
        for (int64_t i = 0; i < count; i++)
            assert_true(fabs((double)y[i] - plain_y[i]) < 2e-5 * (1 + fabs(plain_y[i])));
        for (int64_t i = 0; i < states; i++)
            assert_true(fabs((double)end[i] - plain_end[i]) < 2e-5 * (1 + fabs(plain_end[i])));
        bp_free(y);
        bp_free(end);
        bp_free(plain_y);
        bp_free(plain_end);
        close_fixture(&f);
    }
}

/* The slope of the loss by one input, against what backward gives. */
static void check_slope(const fixture *f, float *at, float given, double most)
{
    float before = *at, step = 1.0F / 256;
    double above, below;

    *at = before + step;
    above = plain_loss(f);
    *at = before - step;
    below = plain_loss(f);
    *at = before;
    double slope = (above - below) / (2 * (double)step);
    if (fabs(slope - (double)given) > 2e-3 * (most + fabs(slope)))
        fail_msg("slope %.6f, backward %.6f", slope, (double)given);
}

static double largest(const float *x, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

static void check_some(const fixture *f, float *of, const float *given, int64_t n)
{
    double most = largest(given, n);
    int64_t step = n < 60 ? 1 : n / 60 + 1;

    for (int64_t i = 0; i < n; i += step)
        check_slope(f, of + i, given[i], most);
}

static void gradients_are_slopes(void **unused)
{
    for (size_t s = 0; s < SHAPES_COUNT; s++) {
        fixture f = {0};
        int64_t rows, H;

        open_fixture(&f, SHAPES[s]);
        rows = f.in.B * f.in.T;
        H = f.in.H;
        float *dx = bp_alloc("test", rows * f.in.x_row, sizeof *dx),
              *dbc = bp_alloc("test", rows * f.in.bc_row, sizeof *dbc),
              *ddt = bp_alloc("test", rows * H, sizeof *ddt),
              *sums = bp_alloc("test", 2 * H, sizeof *sums);

        bp_scan_backward(&(bp_scan_gradients){.dx = dx,
                                              .db = dbc,
                                              .dc = dbc + f.groups * f.in.N,
                                              .ddt = ddt,
                                              .drate = sums,
                                              .dskip = sums + H},
                         &f.in, f.dy, &f.scratch);
        check_some(&f, f.x, dx, rows * f.in.x_row);
        check_some(&f, f.bc, dbc, rows * f.in.bc_row);
        check_some(&f, f.dt, ddt, rows * H);
        check_some(&f, f.rate, sums, H);
        check_some(&f, f.skip, sums + H, H);
        bp_free(dx);
        bp_free(dbc);
        bp_free(ddt);
        bp_free(sums);
        close_fixture(&f);
    }
}

static void bits_do_not_depend_on_threads(void **unused)
{
    fixture f = {0};
    int64_t count;

    open_fixture(&f, SHAPES[0]);
    count = f.in.B * f.in.T * f.in.H * f.in.P;
    float *one = bp_alloc("test", count, sizeof *one), *two = bp_alloc("test", count, sizeof *two);

    bp_math_set_threads(1);
    bp_scan_forward(one, &f.in, NULL, NULL, &f.scratch);
    bp_math_set_threads(3);
    bp_scan_forward(two, &f.in, NULL, NULL, &f.scratch);
    bp_math_set_threads(0);
    assert_memory_equal(one, two, (size_t)count * sizeof *one);
    bp_free(one);
    bp_free(two);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_the_recurrence_s),
                                       cmocka_unit_test(gradients_are_slopes),
                                       cmocka_unit_test(bits_do_not_depend_on_threads)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
