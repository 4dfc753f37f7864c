/* Pieces of the vocabulary's head, for callers that need more than a target's probability. */
#include "nn/heads/lm_head_priv.h"

#include "math/kernels/entmax.h"

void lm_head_norm_rows(const lm_head *self, const bp_operand *to, const float *hidden, float *mean,
                       float *rstd)
{
    if (!self->gain) {
        bp_operand_fill(to, hidden);
        return;
    }
    bp_norm norm = {bp_param_gain(self->gain), self->bias ? self->bias->value : NULL,
                    self->shape.epsilon, mean, rstd};
    bp_layer_norm_forward(to, NULL, &norm, &(bp_residual){.base = hidden});
}

void bp_lm_head_norm(const bp_block *block, float *normed, const float *hidden, int64_t rows)
{
    const lm_head *self = (const lm_head *)block;
    bp_operand to = bp_operand_floats(normed, rows, self->wte->shape[1]);

    lm_head_norm_rows(self, &to, hidden, NULL, NULL);
}

const float *bp_lm_head_bias(const bp_block *block)
{
    const bp_param *bias = ((const lm_head *)block)->shape.bias;

    return bias ? bias->value : NULL;
}

const bp_weight *bp_lm_head_map(const bp_block *block)
{
    return ((const lm_head *)block)->vocabulary;
}

void lm_head_make_rows(lm_head *self)
{
    bp_arena arena = {0};

    entmax_rows_alloc(&arena, ENTMAX_ROWS);
    self->rows_memory = bp_alloc("nn.head", (int64_t)arena.used_bytes, 1);
    arena = (bp_arena){.base = self->rows_memory, .size_bytes = arena.used_bytes};
    self->rows = entmax_rows_alloc(&arena, ENTMAX_ROWS);
}

/* Logits become logs of probabilities. */
static void take_logs(lm_head *self, float *logits, int64_t rows)
{
    int32_t targets[ENTMAX_ROWS];
    int64_t V = self->wte->extent[0];

    for (int64_t first = 0; first < rows; first += ENTMAX_ROWS) {
        float *part = logits + first * V;
        int64_t n = first + ENTMAX_ROWS < rows ? ENTMAX_ROWS : rows - first;

        for (int64_t r = 0; r < n; r++)
            targets[r] = -1;
        entmax_rows_forward(&self->rows, &(bp_logit_rows){part, targets, n, V, 0, V},
                            self->block.nn->tensor);
#pragma omp parallel for schedule(static) if (n * V > 8192)
        for (int64_t r = 0; r < n; r++)
            bp_entmax_logs(part + r * V, part + r * V, V, self->rows.tau[r], ENTMAX_ZERO);
    }
}

void bp_lm_head_logits(const bp_block *block, const bp_weight *map, float *logits,
                       const float *hidden, int64_t rows)
{
    lm_head *self = (lm_head *)block; /* its memory is written */
    mixture_outcomes outcomes = {map, bp_lm_head_bias(block), self->wte->extent[0]};

    if (self->mixture)
        softmax_mixture_log_probabilities(self->mixture, logits, &outcomes, hidden, rows);
    else if (map)
        bp_linear_forward(block->nn->gemm, logits, hidden, map, outcomes.bias, rows);
    if (self->shape.scale > 0 && map)
        bp_scale(logits, self->shape.scale, rows * self->wte->extent[0]);
    if (self->shape.cap > 0 && map)
        bp_cap_all(logits, self->shape.cap, rows * self->wte->extent[0]);
    if (self->shape.entmax)
        take_logs(self, logits, rows);
}

void bp_lm_head_keep_values(const bp_block *block)
{
    ((const lm_head *)block)->wte->values_read = true;
}

const float *bp_lm_head_values(const bp_block *block)
{
    return ((const lm_head *)block)->wte->value;
}
