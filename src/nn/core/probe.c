/* Data for a probe: activations after a block, weights of attention, and an MLP's inputs and
 * activation outputs. Called by running blocks. */
#include "nn/core/block.h"

void bp_probe_activations(const bp_pass *pass, const bp_activations *activations)
{
    for (int k = 0; pass->probe && k < activations->count; k++)
        pass->probe->see(pass->probe,
                         &(bp_probed){.block = pass->probe->block,
                                      .what = activations->item[k].name,
                                      .x = activations->item[k].data,
                                      .rows = pass->B * pass->extent.T[activations->item[k].stream],
                                      .columns = activations->item[k].columns});
}

void bp_probe_attention(const bp_pass *pass, const char *what, const bp_attention_input *in,
                        const float *lse, const bp_attention_shape *shape)
{
    int64_t T = shape->T, K = shape->K > 0 ? shape->K : T;
    float *weights;

    if (!pass->probe || !pass->probe->attention)
        return;
    weights = bp_alloc("nn.probe", T * K, sizeof *weights);
    for (int64_t i = 0; i < shape->B * shape->H; i++) {
        bp_attention_weights(weights, in, lse, shape, i / shape->H, i % shape->H);
        pass->probe->see(pass->probe, &(bp_probed){.block = pass->probe->block,
                                                   .what = what,
                                                   .example = pass->first_slot + i / shape->H,
                                                   .head = shape->first_head + i % shape->H,
                                                   .x = weights,
                                                   .rows = T,
                                                   .columns = K});
    }
    bp_free(weights);
}

void bp_probe_mlp(const bp_pass *pass, const float *h, int64_t columns, const bp_norm *norm)
{
    int64_t rows = pass->B * pass->T;
    float *normed = NULL;

    if (!pass->probe || !pass->probe->mlp)
        return;
    if (norm) {
        normed = bp_alloc("nn.probe", rows * columns, sizeof *normed);
        bp_operand to = bp_operand_floats(normed, rows, columns);
        bp_layer_norm_forward(&to, NULL, norm, &(bp_residual){.base = h});
    }
    pass->probe->see(pass->probe, &(bp_probed){.block = pass->probe->block,
                                               .what = "mlp",
                                               .x = norm ? normed : h,
                                               .rows = rows,
                                               .columns = columns});
    bp_free(normed);
}

void bp_probe_coefficients(const bp_pass *pass, const bp_operand *active, int64_t first)
{
    int64_t F = active->columns;
    float *rows;

    if (!pass->probe || !pass->probe->coefficients)
        return;
    rows = bp_alloc("nn.probe", active->rows * F, sizeof *rows);
    for (int64_t r = 0; r < active->rows; r++)
        for (int64_t c = 0; c < F; c++)
            rows[r * F + c] = bp_operand_value(active, r * active->stride + c);
    pass->probe->see(pass->probe, &(bp_probed){.block = pass->probe->block,
                                               .what = "coefficients",
                                               .first = first,
                                               .x = rows,
                                               .rows = active->rows,
                                               .columns = F});
    bp_free(rows);
}
