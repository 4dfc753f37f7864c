/* score.mix: the weights of the layers, and whether a model has states to mix. Called by options.c
 * and file.c. */
#include "infer/score/states/states.h"

#include "base/config/decimal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Parses one number per layer; false if they are not that. */
bool states_read_weights(double *weights, const char *list, int64_t layers)
{
    const char *at = list;

    for (int64_t k = 0; k < layers; k++) {
        at += strspn(at, " ");
        size_t bytes = strcspn(at, ",");

        if (!bp_decimal(&weights[k], at, bytes) || at[bytes] != (k + 1 < layers ? ',' : '\0'))
            return false;
        at += bytes + 1;
    }
    return true;
}

void states_soften(double *weights, int64_t layers)
{
    double most = -INFINITY, sum = 0;

    for (int64_t k = 0; k < layers; k++)
        most = fmax(most, weights[k]);
    for (int64_t k = 0; k < layers; k++) {
        weights[k] = exp(weights[k] - most);
        sum += weights[k];
    }
    for (int64_t k = 0; k < layers; k++)
        weights[k] /= sum;
}

void scorer_states_check(bp_config *config, const bp_score_keys *keys, const bp_model_info *model)
{
    double weights[STATE_LAYERS];

    if (!keys) /* for another job that scores */
        return;
    if (keys->mix_scale != 1 && keys->mix_scale != 0 &&
        !keys->mix) /* 0 if the job has no such key */
        bp_config_fault(config, "score.scale_without_mix",
                        "score.mix_scale = %g multiplies the mix of score.mix, which is not given: "
                        "at score.mix_scale; set score.mix too, or leave it out",
                        keys->mix_scale);
    if (keys->mix && !keys->states) {
        bp_config_fault(config, "score.mix_without_states",
                        "score.mix = %.60s mixes the layers of score.states, which is no: at "
                        "score.mix; set score.states=yes too",
                        keys->mix);
        return;
    }
    if (!keys->states || bp_task_has_head(&model->task)) /* already reported */
        return;
    if (model->members > 0)
        bp_config_fault(config, "score.no_states",
                        "score.states = yes, but score.model is an ensemble of %" PRId64
                        ", and each member has states of its own: at score.states; score one "
                        "member (a member's run folder as score.model), or leave the key out",
                        model->members);
    else if (model->states.layers == 0 || model->states.layers > STATE_LAYERS)
        bp_config_fault(
            config, "score.no_states",
            "score.states = yes, but no states are returned of a model of kind %s: at "
            "score.states; take one of kind elmo, or a Transformer that continues texts or "
            "fills them in, or leave the key out",
            model->kind ? model->kind : "unknown");
    else if (keys->mix && model->states.keys)
        bp_config_fault(config, "score.bad_mix",
                        "score.mix = %.60s mixes layers, but a model of kind %s has one key a "
                        "token: at score.mix; leave it out",
                        keys->mix, model->kind ? model->kind : "unknown");
    else if (keys->mix && !states_read_weights(weights, keys->mix, model->states.layers))
        bp_config_fault(config, "score.bad_mix",
                        "score.mix = %.60s is not a list of %" PRId64
                        " numbers, one a layer of the model: at score.mix; use 0,0,0 and so on",
                        keys->mix, model->states.layers);
}
