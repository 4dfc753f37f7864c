/* What a recurrent layer does between its products: the gates of one row, forward and backward. */
#include "nn/recurrent_priv.h"

#include <math.h>

static float logistic(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

/* Source: Elman 1990. */
static void rnn_forward(float *a, const float *u, float *h, int64_t H)
{
    for (int64_t k = 0; k < H; k++)
        h[k] = a[k] = tanhf(a[k] + u[k]);
}

/* Gates i, f, g, o: c' = f c + i g, h' = o tanh(c'). Source: Hochreiter and Schmidhuber 1997; the
 * forget gate: Gers et al. 2000. */
static void lstm_forward(float *a, const float *u, const float *c, float *new_c, float *h,
                         int64_t H)
{
    float *i = a, *f = a + H, *g = a + 2 * H, *o = a + 3 * H;

    for (int64_t k = 0; k < H; k++) {
        i[k] = logistic(i[k] + u[k]);
        f[k] = logistic(f[k] + u[H + k]);
        g[k] = tanhf(g[k] + u[2 * H + k]);
        o[k] = logistic(o[k] + u[3 * H + k]);
        new_c[k] = f[k] * c[k] + i[k] * g[k];
        h[k] = o[k] * tanhf(new_c[k]);
    }
}

/* Gates r, z, n: n = tanh(a_n + r u_n), h' = (1 - z) n + z h. Source: Cho et al. 2014, with the
 * reset behind the product, as torch.nn.GRU has it. */
static void gru_forward(float *a, const float *u, const float *h, float *new_h, float *kept,
                        int64_t H)
{
    float *r = a, *z = a + H, *n = a + 2 * H;

    for (int64_t k = 0; k < H; k++) {
        r[k] = logistic(r[k] + u[k]);
        z[k] = logistic(z[k] + u[H + k]);
        kept[k] = u[2 * H + k];
        n[k] = tanhf(n[k] + r[k] * kept[k]);
        new_h[k] = (1 - z[k]) * n[k] + z[k] * h[k];
    }
}

static void rnn_backward(float *da, const float *a, const float *dh, int64_t H)
{
    for (int64_t k = 0; k < H; k++)
        da[k] = dh[k] * (1 - a[k] * a[k]);
}

static void lstm_backward(float *da, const float *a, const float *c, const float *new_c,
                          const float *dh, float *dc, int64_t H)
{
    const float *i = a, *f = a + H, *g = a + 2 * H, *o = a + 3 * H;

    for (int64_t k = 0; k < H; k++) {
        float out = tanhf(new_c[k]), d = dc[k] + dh[k] * o[k] * (1 - out * out);

        da[k] = d * g[k] * i[k] * (1 - i[k]);
        da[H + k] = d * c[k] * f[k] * (1 - f[k]);
        da[2 * H + k] = d * i[k] * (1 - g[k] * g[k]);
        da[3 * H + k] = dh[k] * out * o[k] * (1 - o[k]);
        dc[k] = d * f[k];
    }
}

static void gru_backward(float *da, float *du, const float *a, const float *h, const float *kept,
                         float *dh, int64_t H)
{
    const float *r = a, *z = a + H, *n = a + 2 * H;

    for (int64_t k = 0; k < H; k++) {
        float dn = dh[k] * (1 - z[k]) * (1 - n[k] * n[k]);

        du[k] = da[k] = dn * kept[k] * r[k] * (1 - r[k]);
        du[H + k] = da[H + k] = dh[k] * (h[k] - n[k]) * z[k] * (1 - z[k]);
        da[2 * H + k] = dn;
        du[2 * H + k] = dn * r[k];
        dh[k] *= z[k];
    }
}

void recurrent_cell_forward(const recurrent_layer *self, const recurrent_row *row)
{
    int64_t H = self->shape.H;

    if (self->shape.cell == BP_CELL_RNN)
        rnn_forward(row->gates, row->u, row->new_h, H);
    else if (self->shape.cell == BP_CELL_LSTM)
        lstm_forward(row->gates, row->u, row->c, row->new_c, row->new_h, H);
    else
        gru_forward(row->gates, row->u, row->h, row->new_h, row->kept, H);
}

void recurrent_cell_backward(const recurrent_layer *self, const recurrent_row *row,
                             const recurrent_gradient *to)
{
    int64_t H = self->shape.H;

    if (self->shape.cell == BP_CELL_RNN)
        rnn_backward(to->da, row->gates, to->dh, H);
    else if (self->shape.cell == BP_CELL_LSTM)
        lstm_backward(to->da, row->gates, row->c, row->new_c, to->dh, to->dc, H);
    else
        gru_backward(to->da, to->du, row->gates, row->h, row->kept, to->dh, H);
}
