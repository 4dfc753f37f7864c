/* Tasks: what a model is trained for once it knows a language. A task's head stands in the place of
 * the language model's, behind the backbone of any family that has one (bp_model_family.backbone).
 */
#ifndef BP_MODELS_TASK_H
#define BP_MODELS_TASK_H

#include "base/config.h"
#include "models/family.h"

extern const bp_option bp_task_options[]; /* task.* */

/** Values of bp_task_options (docs: --help). */
typedef struct bp_task_keys {
    const char *kind;
    const char *label;
    const char *pool;
    int64_t frozen_layers;
} bp_task_keys;

static inline const bp_task_keys *bp_task_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_task_options);
}

const bp_objective *bp_task_objective(int64_t kind);

/** Blocks of its head, their parameters, and FLOPs of training on a token. */
int bp_task_blocks(const bp_model_shape *shape);
int64_t bp_task_parameters(const bp_model_shape *shape);
double bp_task_flops(const bp_model_shape *shape);
/** Block `number` of the head, from 0, at the end of the network. */
void bp_task_add_block(bp_network *network, const bp_model_shape *shape, int number);

#endif
