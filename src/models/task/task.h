/* Tasks: what a pretrained model is fine-tuned for. A task's head takes the place of the language
 * model's, after the backbone of any family that has one (bp_block_list.backbone). */
#pragma once

#include "base/config/config.h"
#include "models/family.h"
#include "models/task/examples.h"

#define BP_TASK_STRIDE        128         /* defaults: of windows, */
#define BP_TASK_ANSWER_TOKENS 30          /* and of the longest answer */
extern const bp_option bp_task_options[]; /* task.* */

/** Values of bp_task_options (docs: --help). */
typedef struct bp_task_keys {
    const char *kind;
    const char *outside;
    double precision;
    double smoothing;
    int64_t features;
    double length_scale, prior, bound;
    const char *bounded;
    const char *label;
    const char *labels;
    const char *pool;
    int64_t frozen_layers;
    const char *separator;
    double lm_weight;
    int64_t stride, answer_tokens;
} bp_task_keys;

static inline const bp_task_keys *bp_task_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_task_options);
}

/** Do these keys of a job request a task? */
bool bp_task_is_asked(const bp_config *config);

/** Does it generate a target for a given source? Not with a task's head. */
static inline bool bp_model_reads_source(const bp_model_shape *shape)
{
    return shape->family->source && !bp_task_has_head(&shape->task);
}

/** Block `number` of the head, from 0, at the end of the network; `shared`: the embedding's table
 * (bp_block_list.add_shared), if it keeps the words. */
void bp_task_add_block(bp_network *network, const bp_model_shape *shape, int number,
                       bp_param *shared);
