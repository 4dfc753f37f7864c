/* The balance loss of all layers with experts of a stack: the item of activations that counts
 * choices of experts goes forward to the last layer, and its gradient returns from there, through
 * pipeline stages like all activations. Called by the files of a Transformer layer. */
#include "mesh/collective.h"
#include "nn/transformer/transformer_priv.h"

#include <string.h>

bool balance_counts(const bp_pass *pass, int64_t r)
{
    const int32_t *lengths = pass->batch.stream[pass->stream].lengths;

    return !lengths || r % pass->T < lengths[r / pass->T];
}

static int64_t count_positions(const bp_pass *pass)
{
    const int32_t *lengths = pass->batch.stream[pass->stream].lengths;
    int64_t positions = lengths ? 0 : pass->B * pass->T;

    for (int64_t b = 0; lengths && b < pass->B; b++)
        positions += lengths[b];
    return positions;
}

/* The sums of the item over the rows of all tensor ranks: whole numbers, exact in any order. */
static void keep_sums(const layer *self, const bp_pass *pass, float *sums, const float *item,
                      int64_t E)
{
    const bp_nn *nn = self->block.nn;
    int64_t own = bp_nn_rows(nn, pass).count;

    for (int64_t e = 0; e < E; e++) {
        double sum = 0;

        for (int64_t r = 0; r < own; r++)
            sum += (double)item[r * E + e];
        if (own < pass->B * pass->T)
            bp_all_sum_double(&sum, 1, nn->tensor);
        sums[e] = (float)sum;
    }
}

void balance_forward(const layer *self, const bp_pass *pass, const saved *kept,
                     bp_activations *activations)
{
    const bp_expert_shape *shape = &self->shape.experts;
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t k = shape->count > 0 ? shape->chosen : 0;

    if (shape->balance == 0)
        return;
    float *item = activations->item[shape->balance].data;
    int64_t E = activations->item[shape->balance].columns;

    if (shape->begins)
        memset(item, 0, (size_t)(own.count * E) * sizeof *item);
    for (int64_t r = 0; r < own.count; r++)
        for (int64_t j = 0; j < k && balance_counts(pass, own.first + r); j++)
            item[r * E + kept->routes.chosen[(own.first + r) * k + j]] += 1;
    if (shape->ends && kept->balance)
        keep_sums(self, pass, kept->balance, item, E);
}

void balance_begin(const layer *self, const bp_pass *pass, const saved *kept,
                   bp_activations *gradients)
{
    const bp_expert_shape *shape = &self->shape.experts;
    int64_t own = bp_nn_rows(self->block.nn, pass).count, positions = count_positions(pass);

    if (shape->balance == 0 || !shape->ends)
        return;
    float *item = gradients->item[shape->balance].data;
    int64_t E = gradients->item[shape->balance].columns;
    double each =
        (double)E / ((double)positions * (double)(shape->sparse_count * shape->sparse_count));

    for (int64_t r = 0; r < own; r++)
        for (int64_t e = 0; e < E; e++)
            item[r * E + e] = positions > 0 ? (float)(each * (double)kept->balance[e]) : 0;
}

void balance_add(const layer *self, bp_pass *pass, const saved *kept, const float *dP)
{
    int64_t E = self->shape.experts.count, k = self->shape.experts.chosen,
            *loads = pass->expert_loads ? pass->expert_loads + self->shape.number * E : NULL;

    for (int64_t r = 0; r < pass->B * pass->T; r++) {
        if (!balance_counts(pass, r))
            continue;
        for (int64_t e = 0; e < E && dP; e++)
            pass->balance_loss += (double)dP[e] * (double)kept->routes.probabilities[r * E + e];
        for (int64_t j = 0; j < k && loads; j++)
            loads[kept->routes.chosen[r * k + j]]++;
    }
}
