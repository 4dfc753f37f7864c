/* Adapters in a Transformer layer: which weights of its products LoRA adapts, and the bottlenecks
 * after attention and the MLP. Called by transformer_layer.c and transformer_backward.c. */
#include "base/err.h"
#include "nn/transformer/transformer_priv.h"

static void adapt_product(layer *self, layer_product which, const bp_adapter *adapter,
                          const bp_lora_product *product, bp_group *split, bp_group *partial)
{
    if (product->count > 0)
        self->adapted[which] = bp_lora_new(adapter, product, split, partial);
}

static void add_weight(bp_lora_product *to, bool wanted, bp_param *weight, int64_t first)
{
    if (!wanted)
        return;
    to->weight[to->count] = weight;
    to->first[to->count++] = first;
}

static void add_bottlenecks(layer *self, int64_t rank, bp_group *whole)
{
    static const char *const NAMES[BRANCHES] = {
        [ATTENTION] = "attn.adapter", [MLP] = "mlp.adapter"};
    char name[BP_PARAM_NAME];

    for (int k = 0; k < BRANCHES; k++)
        if (NAMES[k] && (k != ATTENTION || layer_attends(self)))
            self->bottleneck[k] = bp_bottleneck_new(self->block.nn, self->shape.C, rank,
                                                    layer_param_name(name, self, NAMES[k]), whole);
}

static void adapt_products(layer *self, const bp_adapter *adapter, bp_group *split,
                           bp_group *partial)
{
    int64_t C = self->shape.C, to = adapter->targets, keys = self->Gl * self->D;
    bp_lora_product qkv = {.outs = layer_qkv_columns(self), .ins = C},
                    out = {.outs = C, .ins = self->Cl, .row_split = true},
                    up = {.outs = layer_up_columns(self), .ins = C},
                    down = {.outs = C, .ins = self->Fl, .row_split = true};

    if (layer_attends(self)) {
        add_weight(&qkv, to & BP_ADAPT_Q, self->q_weight, 0);
        add_weight(&qkv, to & BP_ADAPT_K, self->key_weight[0], self->Cl);
        add_weight(&qkv, to & BP_ADAPT_V, self->key_weight[1], self->Cl + keys);
        add_weight(&out, to & BP_ADAPT_OUT, self->out_weight, 0);
    }
    if (!self->experts) {
        add_weight(&up, to & BP_ADAPT_UP, self->up_weight, 0);
        if (layer_is_gated(self)) /* up_weight is the gate, and up follows it */
            add_weight(&up, to & BP_ADAPT_UP, self->up_weight + 1, self->Fl);
        add_weight(&down, to & BP_ADAPT_DOWN, self->down_weight, 0);
    }
    adapt_product(self, PRODUCT_QKV, adapter, &qkv, split, partial);
    adapt_product(self, PRODUCT_OUT, adapter, &out, split, partial);
    adapt_product(self, PRODUCT_UP, adapter, &up, split, partial);
    adapt_product(self, PRODUCT_DOWN, adapter, &down, split, partial);
}

/* Queries, keys and values, and the output of cross-attention as those of self-attention. */
static void adapt_cross(layer *self, const bp_adapter *adapter, bp_group *split, bp_group *partial)
{
    int64_t C = self->shape.C, to = adapter->targets;
    bp_lora_product q = {.outs = self->Cl, .ins = C}, kv = {.outs = 2 * self->Cl, .ins = C},
                    out = {.outs = C, .ins = self->Cl, .row_split = true};

    add_weight(&q, to & BP_ADAPT_Q, self->cross_q_weight, 0);
    add_weight(&kv, to & BP_ADAPT_K, self->cross_k_weight, 0);
    add_weight(&kv, to & BP_ADAPT_V, self->cross_k_weight + 1, self->Cl);
    add_weight(&out, to & BP_ADAPT_OUT, self->cross_out_weight, 0);
    adapt_product(self, PRODUCT_CROSS_Q, adapter, &q, split, partial);
    adapt_product(self, PRODUCT_CROSS_KV, adapter, &kv, split, partial);
    adapt_product(self, PRODUCT_CROSS_OUT, adapter, &out, split, partial);
}

void layer_adapt(bp_block *block, const bp_adapter *adapter, bp_group *split, bp_group *whole)
{
    layer *self = (layer *)block;

    if (adapter->kind == BP_ADAPTER_LORA) {
        adapt_products(self, adapter, split, whole);
        if (self->shape.crosses)
            adapt_cross(self, adapter, split, whole);
    } else
        add_bottlenecks(self, adapter->rank, whole);
}

bp_err layer_bind_bottlenecks(layer *self)
{
    bp_err err = BP_OK;

    for (int k = 0; k < BRANCHES && err == BP_OK; k++)
        if (self->bottleneck[k])
            err = bp_bottleneck_bind(self->bottleneck[k]);
    return err;
}

bp_err layer_bind_product(layer *self, layer_product which, bp_weight **out, float *base,
                          int64_t outs, int64_t ins)
{
    bp_gemm *gemm = self->block.nn->gemm;
    const float *values = base;
    bp_err err = BP_OK;

    if (self->adapted[which])
        err = bp_lora_bind(self->adapted[which], gemm, base, &values);
    return err == BP_OK ? bp_weight_new(out, gemm, values, outs, ins) : err;
}

void layer_refresh_adapted(layer *self)
{
    for (int k = 0; k < PRODUCTS; k++)
        if (self->adapted[k])
            bp_lora_refresh(self->adapted[k]);
    for (int k = 0; k < BRANCHES; k++)
        if (self->bottleneck[k])
            bp_bottleneck_refresh(self->bottleneck[k]);
}

void layer_backward_weight(layer *self, bp_pass *pass, layer_product which, bp_param *weights,
                           int count, const bp_operand *dy, const bp_operand *x)
{
    if (self->adapted[which])
        bp_lora_backward(self->adapted[which], pass->scratch, dy, x);
    else
        bp_nn_backward_weight(self->block.nn, weights, count, dy, x);
}

size_t layer_bottled_scratch(const layer *self, int64_t rows)
{
    return self->bottleneck[MLP] ? bp_bottleneck_scratch_bytes(self->bottleneck[MLP], rows) : 0;
}

size_t layer_adapted_scratch(const layer *self, int64_t rows)
{
    size_t most = layer_bottled_scratch(self, rows);

    if (most > 0) /* and the gradient before it */
        most += bp_arena_bytes(rows * self->shape.C, sizeof(float));

    for (int k = 0; k < PRODUCTS; k++) {
        size_t bytes = self->adapted[k]
                           ? bp_lora_scratch_bytes(self->adapted[k], self->block.nn->gemm, rows)
                           : 0;

        most = bytes > most ? bytes : most;
    }
    return most;
}

void layer_add_adapted(const layer *self, int64_t rows, bp_product_bytes *bytes)
{
    const bp_gemm *gemm = self->block.nn->gemm;

    for (int k = 0; k < PRODUCTS; k++) {
        size_t scratch;

        if (!self->adapted[k])
            continue;
        scratch = bp_lora_product_scratch(self->adapted[k], gemm, rows);
        bytes->copies += bp_lora_copy_bytes(self->adapted[k], gemm);
        bytes->scratch = scratch > bytes->scratch ? scratch : bytes->scratch;
    }
    for (int k = 0; k < BRANCHES; k++)
        if (self->bottleneck[k])
            bp_bottleneck_add_products(self->bottleneck[k], rows, bytes);
}

void layer_free_adapted(layer *self)
{
    for (int k = 0; k < PRODUCTS; k++)
        bp_lora_free(&self->adapted[k]);
    for (int k = 0; k < BRANCHES; k++)
        bp_bottleneck_free(&self->bottleneck[k]);
}
