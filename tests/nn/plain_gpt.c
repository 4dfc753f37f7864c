#include "nn/plain_gpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(plain_gpt *gpt, const char *name, int64_t rows, int64_t columns)
{
    plain_tensor *t = &gpt->tensors[gpt->count++];

    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->columns = columns;
    t->value = calloc((size_t)(rows * columns), sizeof(double));
    for (int64_t i = 0; i < rows * columns; i++) {
        bool gain = strstr(name, "gain") != NULL;
        t->value[i] =
            (gain ? 1 : 0) + 0.35 * sin(1.0 + 7.31 * (double)gpt->count + 1.71 * (double)i);
    }
}

static void add_layer(plain_gpt *gpt, int64_t layer, const char *part, int64_t rows,
                      int64_t columns)
{
    char name[BP_PARAM_NAME];

    snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, part);
    add(gpt, name, rows, columns);
}

void plain_gpt_init(plain_gpt *gpt, const bp_model_shape *shape)
{
    int64_t C = shape->width;

    memset(gpt, 0, sizeof *gpt);
    gpt->shape = *shape;
    add(gpt, "wte", shape->vocab_size, C);
    add(gpt, "wpe", shape->context, C);
    for (int64_t l = 0; l < shape->layers; l++) {
        add_layer(gpt, l, "ln1.gain", 1, C);
        add_layer(gpt, l, "ln1.bias", 1, C);
        add_layer(gpt, l, "attn.q.weight", C, C);
        add_layer(gpt, l, "attn.q.bias", 1, C);
        add_layer(gpt, l, "attn.k.weight", C, C);
        add_layer(gpt, l, "attn.k.bias", 1, C);
        add_layer(gpt, l, "attn.v.weight", C, C);
        add_layer(gpt, l, "attn.v.bias", 1, C);
        add_layer(gpt, l, "attn.out.weight", C, C);
        add_layer(gpt, l, "attn.out.bias", 1, C);
        add_layer(gpt, l, "ln2.gain", 1, C);
        add_layer(gpt, l, "ln2.bias", 1, C);
        add_layer(gpt, l, "mlp.up.weight", 4 * C, C);
        add_layer(gpt, l, "mlp.up.bias", 1, 4 * C);
        add_layer(gpt, l, "mlp.down.weight", C, 4 * C);
        add_layer(gpt, l, "mlp.down.bias", 1, C);
    }
    add(gpt, "ln_f.gain", 1, C);
    add(gpt, "ln_f.bias", 1, C);
}

void plain_gpt_clear(plain_gpt *gpt)
{
    for (int k = 0; k < gpt->count; k++)
        free(gpt->tensors[k].value);
    gpt->count = 0;
}

plain_tensor *plain_gpt_tensor(const plain_gpt *gpt, const char *name)
{
    for (int k = 0; k < gpt->count; k++)
        if (strcmp(gpt->tensors[k].name, name) == 0)
            return (plain_tensor *)&gpt->tensors[k];
    return NULL;
}

static const double *layer_tensor(const plain_gpt *gpt, int64_t layer, const char *part)
{
    char name[BP_PARAM_NAME];

    snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, part);
    return plain_gpt_tensor(gpt, name)->value;
}

static void norm(double *y, const double *x, const double *gain, const double *bias, int64_t C)
{
    double mean = 0, var = 0;

    for (int64_t c = 0; c < C; c++)
        mean += x[c] / (double)C;
    for (int64_t c = 0; c < C; c++)
        var += (x[c] - mean) * (x[c] - mean) / (double)C;
    for (int64_t c = 0; c < C; c++)
        y[c] = (x[c] - mean) / sqrt(var + 1e-5) * gain[c] + bias[c];
}

/* y[outs] = W x + b */
static void linear(double *y, const double *x, const double *W, const double *b, int64_t outs,
                   int64_t ins)
{
    for (int64_t o = 0; o < outs; o++) {
        y[o] = b[o];
        for (int64_t i = 0; i < ins; i++)
            y[o] += W[o * ins + i] * x[i];
    }
}

/* One sequence: h[T][C] += attention */
static void attend(const plain_gpt *gpt, int64_t l, double *h, int64_t T)
{
    int64_t C = gpt->shape.width, H = gpt->shape.heads, D = C / H;
    double *q = calloc((size_t)(5 * T * C + T), sizeof(double)), *k = q + T * C, *v = k + T * C,
           *a = v + T * C, *x = a + T * C;
    double *weight = x + T * C;

    for (int64_t t = 0; t < T; t++) {
        norm(x, h + t * C, layer_tensor(gpt, l, "ln1.gain"), layer_tensor(gpt, l, "ln1.bias"), C);
        linear(q + t * C, x, layer_tensor(gpt, l, "attn.q.weight"),
               layer_tensor(gpt, l, "attn.q.bias"), C, C);
        linear(k + t * C, x, layer_tensor(gpt, l, "attn.k.weight"),
               layer_tensor(gpt, l, "attn.k.bias"), C, C);
        linear(v + t * C, x, layer_tensor(gpt, l, "attn.v.weight"),
               layer_tensor(gpt, l, "attn.v.bias"), C, C);
    }
    for (int64_t head = 0; head < H; head++)
        for (int64_t t = 0; t < T; t++) {
            double sum = 0;
            for (int64_t s = 0; s <= t; s++) {
                double dot = 0;
                for (int64_t d = head * D; d < (head + 1) * D; d++)
                    dot += q[t * C + d] * k[s * C + d];
                weight[s] = exp(dot / sqrt((double)D));
                sum += weight[s];
            }
            for (int64_t s = 0; s <= t; s++)
                for (int64_t d = head * D; d < (head + 1) * D; d++)
                    a[t * C + d] += weight[s] / sum * v[s * C + d];
        }
    for (int64_t t = 0; t < T; t++) {
        linear(x, a + t * C, layer_tensor(gpt, l, "attn.out.weight"),
               layer_tensor(gpt, l, "attn.out.bias"), C, C);
        for (int64_t c = 0; c < C; c++)
            h[t * C + c] += x[c];
    }
    free(q);
}

static void mlp(const plain_gpt *gpt, int64_t l, double *h)
{
    int64_t C = gpt->shape.width;
    double *x = calloc((size_t)(6 * C), sizeof(double)), *up = x + C, *down = up + 4 * C;

    norm(x, h, layer_tensor(gpt, l, "ln2.gain"), layer_tensor(gpt, l, "ln2.bias"), C);
    linear(up, x, layer_tensor(gpt, l, "mlp.up.weight"), layer_tensor(gpt, l, "mlp.up.bias"), 4 * C,
           C);
    for (int64_t i = 0; i < 4 * C; i++)
        up[i] =
            0.5 * up[i] * (1 + tanh(sqrt(2 / M_PI) * (up[i] + 0.044715 * up[i] * up[i] * up[i])));
    linear(down, up, layer_tensor(gpt, l, "mlp.down.weight"), layer_tensor(gpt, l, "mlp.down.bias"),
           C, 4 * C);
    for (int64_t c = 0; c < C; c++)
        h[c] += down[c];
    free(x);
}

static double target_logprob(const plain_gpt *gpt, const double *h, int32_t target)
{
    int64_t C = gpt->shape.width, V = gpt->shape.vocab_size;
    const double *wte = plain_gpt_tensor(gpt, "wte")->value;
    double *x = calloc((size_t)(C + V), sizeof(double)), *logit = x + C, sum = 0;

    norm(x, h, plain_gpt_tensor(gpt, "ln_f.gain")->value, plain_gpt_tensor(gpt, "ln_f.bias")->value,
         C);
    for (int64_t v = 0; v < V; v++) {
        for (int64_t c = 0; c < C; c++)
            logit[v] += wte[v * C + c] * x[c];
        sum += exp(logit[v]);
    }
    double result = logit[target] - log(sum);
    free(x);
    return result;
}

double plain_gpt_loss(const plain_gpt *gpt, const int32_t *inputs, const int32_t *targets,
                      int64_t B, int64_t T, double *logprob)
{
    int64_t C = gpt->shape.width;
    const double *wte = plain_gpt_tensor(gpt, "wte")->value,
                 *wpe = plain_gpt_tensor(gpt, "wpe")->value;
    double *h = calloc((size_t)(T * C), sizeof(double)), loss = 0;

    for (int64_t b = 0; b < B; b++) {
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < C; c++)
                h[t * C + c] = wte[inputs[b * T + t] * C + c] + wpe[t * C + c];
        for (int64_t l = 0; l < gpt->shape.layers; l++) {
            attend(gpt, l, h, T);
            for (int64_t t = 0; t < T; t++)
                mlp(gpt, l, h + t * C);
        }
        for (int64_t t = 0; t < T; t++) {
            int32_t target = targets[b * T + t];
            double p = target >= 0 ? target_logprob(gpt, h + t * C, target) : NAN;
            if (logprob)
                logprob[b * T + t] = p;
            if (target >= 0)
                loss -= p;
        }
    }
    free(h);
    return loss;
}
