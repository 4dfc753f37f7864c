/* Heads that kinds of tasks share. */
#include "models/task/heads.h"

#define INIT_STD 0.02F

bp_block *bp_task_new_softmax(bp_network *network, const bp_model_shape *shape)
{
    bp_group *split = bp_network_add_group(network, false);
    int64_t V = shape->task.outcomes;
    bp_head_shape head = {.sparse = true};
    bp_param *table =
        bp_network_add_words(network, split, "task.weight", V, shape->width, INIT_STD);
    bp_block *block;

    if (!shape->task.unbiased)
        head.bias = bp_network_add_word_biases(network, split, "task.bias", V);
    if (shape->task.precision > 0)
        head.dirichlet = (bp_dirichlet_shape){shape->task.precision, shape->task.smoothing, V};
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    return block;
}

bp_block *bp_task_new_text_head(bp_network *network, const bp_model_shape *shape, bool finds_spans)
{
    bp_text_head_shape head = {
        .C = shape->width, .finds_spans = finds_spans, .unbiased = shape->task.unbiased};
    bp_block *block;

    bp_text_head_new(&block, &network->nn, &head, bp_network_add_group(network, true));
    return block;
}
