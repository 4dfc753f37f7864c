/* The weights of attention as a matrix, for inspection: training and scoring never compute it. */
#include "math/attention/attention_priv.h"

#include <math.h>

static bool sees(const bp_attention_shape *shape, int64_t b, int64_t t, int64_t k)
{
    bool real = !shape->lengths || k < shape->lengths[b];

    bool near = shape->window == 0 || (t - k <= bp_window_before(shape) &&
                                       (shape->causal || k - t <= bp_window_after(shape)));

    return real && (!shape->causal || k <= t) && near;
}

static float weight_of(const bp_attention_shape *shape, float score, float norm)
{
    float above = fmaxf(score / 2 - norm, 0); /* the threshold */

    return shape->entmax ? above * above : expf(score - norm);
}

static float float_of(const void *x, int64_t at, bool halves)
{
    bp_operand all = {halves ? BP_OPERAND_BF16 : BP_OPERAND_F32, 1, 0, 0, (void *)x};

    return bp_operand_value(&all, at);
}

static float product(const void *q, const void *key, int64_t D, bool halves)
{
    const float *x = q, *y = key;
    float sum = 0;

    if (halves) {
        for (int64_t d = 0; d < D; d++)
            sum += float_of(q, d, true) * float_of(key, d, true);
        return sum;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < D; d++)
        sum += x[d] * y[d];
    return sum;
}

/* The additional terms of disentangled scores, for head h. */
static float by_distance(const bp_attention_shape *shape, const float *q, const float *k,
                         int64_t at, int64_t h)
{
    const bp_disentangled *apart = shape->apart;
    float sum = 0;

    if (!apart)
        return 0;
    int64_t row = (apart->row[at] * shape->H + h) * shape->D;
    for (int64_t d = 0; d < shape->D; d++)
        sum += q[d] * apart->keys[row + d] + k[d] * apart->queries[row + d];
    return sum;
}

void bp_attention_weights(float *out, const bp_attention_input *in, const float *lse,
                          const bp_attention_shape *shape, int64_t b, int64_t h)
{
    int64_t T = shape->T, D = shape->D, K = shape->K > 0 ? shape->K : T;
    int64_t head = (h + shape->before) / bp_group_heads(shape);
    float scale = shape->scale > 0 ? shape->scale : 1.0F / sqrtf((float)D);
    const float *bias = shape->bias ? shape->bias + h * bp_bias_floats(shape) + K - 1 : NULL;

    for (int64_t t = 0; t < T; t++) {
        const void *q = bp_value_at(in->q, (b * T + t) * in->q_row + h * D, in->halves);
        float norm = lse[(b * shape->H + h) * T + t];

        for (int64_t k = 0; k < K; k++) {
            const void *key = bp_value_at(in->k, (b * K + k) * in->kv_row + head * D, in->halves);
            float sum;

            out[t * K + k] = 0;
            if (!sees(shape, b, t, k))
                continue;
            sum = product(q, key, D, in->halves);
            sum += by_distance(shape, q, key, t - k + K - 1, h);
            sum *= scale;
            sum = shape->cap > 0 ? shape->cap * tanhf(sum / shape->cap) : sum;
            sum += bias ? bias[t - k] : 0;
            out[t * K + k] = weight_of(shape, sum, norm);
        }
    }
}
