/* Variants of parts that networks of several families use. */
#include "models/stack/variants.h"

void bp_variants_set_head(bp_head_shape *head, bp_network *network, const bp_model_shape *shape)
{
    head->entmax = shape->head_entmax == 1;
    head->softmaxes = shape->softmaxes;
    if (shape->softmaxes > 1)
        head->mixture = bp_network_add_group(network, false);
}

bool bp_variants_give_logs(const bp_model_shape *shape)
{
    return !bp_task_has_head(&shape->task) && (shape->softmaxes > 1 || shape->head_entmax == 1);
}

double bp_variants_flops(const bp_model_shape *shape)
{
    double K = (double)shape->softmaxes, C = (double)bp_model_state_width(shape);

    return K > 1 ? 2 * (K * C * C + K * C + (K - 1) * (double)shape->vocab_size * C) : 0;
}
