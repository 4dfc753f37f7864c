/* The gates of recurrent cells: some units of a row, forward and backward. */
#include "math/loops/loops_math_priv.h"
#include "math/loops/loops_names_priv.h"

/* 1 / (1 + exp(-x)) */
static inline float logistic_of(float x)
{
    return 1.0f / (1.0f + exp_of(-x));
}

/* tanh(x) within 3 units of the last place; its sign is that of x. Source: Moshier's Cephes,
 * tanhf.c: a polynomial up to 0.625, where the other form has cancellation. */
static inline float tanh_of(float x)
{
    float size = x < 0.0f ? -x : x, z = x * x;
    float large = 1.0f - 2.0f / (exp_of(size + size) + 1.0f);
    float p = -5.70498872745e-3f;

    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * x + x;
    large = x < 0.0f ? -large : large;
    return size < 0.625f || size != size ? p : large;
}

void LOOP(tanh)(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tanh_of(x[i]);
}

void LOOP(rnn_forward)(const bp_cell_units *c)
{
    float *restrict a = c->gates, *restrict h = c->new_h;
    const float *restrict u = c->u;

    for (int64_t k = 0; k < c->n; k++)
        h[k] = a[k] = tanh_of(a[k] + u[k]);
}

/* Without a clip the bound is never reached. */
static inline float clip_of(const bp_cell_units *c)
{
    return c->clip > 0 ? c->clip : 3.402823466e38f;
}

/* Gates i, f, g, o: c' = f c + i g, h' = o tanh(c'). c' may be c, h' h. */
void LOOP(lstm_forward)(const bp_cell_units *c)
{
    int64_t H = c->H;
    float *i = c->gates, *f = i + H, *g = f + H, *o = g + H, *h = c->new_h, *cell = c->new_c;
    const float *u = c->u, *before = c->c;
    float clip = clip_of(c);

#pragma omp simd
    for (int64_t k = 0; k < c->n; k++) {
        float in = logistic_of(i[k] + u[k]), forget = logistic_of(f[k] + u[H + k]);
        float candidate = tanh_of(g[k] + u[2 * H + k]), out = logistic_of(o[k] + u[3 * H + k]);
        float now = forget * before[k] + in * candidate;

        now = now > clip ? clip : now < -clip ? -clip : now;
        i[k] = in;
        f[k] = forget;
        g[k] = candidate;
        o[k] = out;
        cell[k] = now;
        h[k] = out * tanh_of(now);
    }
}

/* Gates r, z, n: n = tanh(a_n + r u_n), h' = (1 - z) n + z h. h' may be h. */
void LOOP(gru_forward)(const bp_cell_units *c)
{
    int64_t H = c->H;
    float *r = c->gates, *z = r + H, *n = z + H, *h = c->new_h, *kept = c->kept;
    const float *u = c->u, *before = c->h;

#pragma omp simd
    for (int64_t k = 0; k < c->n; k++) {
        float reset = logistic_of(r[k] + u[k]), update = logistic_of(z[k] + u[H + k]);
        float own = u[2 * H + k], candidate = tanh_of(n[k] + reset * own);

        r[k] = reset;
        z[k] = update;
        n[k] = candidate;
        kept[k] = own;
        h[k] = (1 - update) * candidate + update * before[k];
    }
}

void LOOP(rnn_backward)(const bp_cell_units *c, const bp_cell_gradients *to)
{
    float *restrict da = to->da;
    const float *restrict a = c->gates, *restrict dh = to->dh;

    for (int64_t k = 0; k < c->n; k++)
        da[k] = dh[k] * (1 - a[k] * a[k]);
}

void LOOP(lstm_backward)(const bp_cell_units *c, const bp_cell_gradients *to)
{
    int64_t H = c->H;
    const float *i = c->gates, *f = i + H, *g = f + H, *o = g + H, *before = c->c, *now = c->new_c;
    float *da = to->da, *dc = to->dc, clip = clip_of(c);
    const float *dh = to->dh;

#pragma omp simd
    for (int64_t k = 0; k < c->n; k++) {
        float out = tanh_of(now[k]), d = dc[k] + dh[k] * o[k] * (1 - out * out);

        d = now[k] >= clip || now[k] <= -clip ? 0 : d;
        da[k] = d * g[k] * i[k] * (1 - i[k]);
        da[H + k] = d * before[k] * f[k] * (1 - f[k]);
        da[2 * H + k] = d * i[k] * (1 - g[k] * g[k]);
        da[3 * H + k] = dh[k] * out * o[k] * (1 - o[k]);
        dc[k] = d * f[k];
    }
}

void LOOP(gru_backward)(const bp_cell_units *c, const bp_cell_gradients *to)
{
    int64_t H = c->H;
    const float *r = c->gates, *z = r + H, *n = z + H, *before = c->h, *kept = c->kept;
    float *da = to->da, *du = to->du, *dh = to->dh;

#pragma omp simd
    for (int64_t k = 0; k < c->n; k++) {
        float d = dh[k], dn = d * (1 - z[k]) * (1 - n[k] * n[k]);
        float dr = dn * kept[k] * r[k] * (1 - r[k]),
              dz = d * (before[k] - n[k]) * z[k] * (1 - z[k]);

        du[k] = da[k] = dr;
        du[H + k] = da[H + k] = dz;
        da[2 * H + k] = dn;
        du[2 * H + k] = dn * r[k];
        dh[k] = d * z[k];
    }
}
