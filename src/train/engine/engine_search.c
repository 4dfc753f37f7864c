/* The step of an architecture's weights between two steps of training: DARTS, first and second
 * order. Called by train/parts/architecture.c. */
#include "train/engine/engine_priv.h"

#include "math/kernels/kernels.h"

#include <math.h>
#include <string.h>

#define BETA1    0.9
#define BETA2    0.999
#define EPSILON  1e-8
#define DISTANCE 1e-2 /* of the two points of a difference, along a direction */

/* Params of a searched group. */
enum { WEIGHTS, FIRST_MOMENT, SECOND_MOMENT };

int64_t bp_engine_search_floats(const bp_engine *engine)
{
    return 2 * engine->network->trained_floats;
}

const bp_param *bp_engine_searched(const bp_engine *engine)
{
    for (int g = 0; g < engine->network->group_count; g++)
        if (engine->network->groups[g].searched)
            return &engine->network->groups[g].params[WEIGHTS];
    return NULL;
}

/* Does training update this group? */
static bool is_trained(const bp_group *group)
{
    return !group->searched && !group->frozen;
}

/* ---- gradients, whole on each data rank ---- */

static void gather(bp_engine *engine, const bp_group *group)
{
    bp_async_wait(engine->async,
                  bp_async_all_gather(engine->async, engine->stage->gradient + group->place,
                                      group->padded / BP_NORM_BLOCK, BP_NORM_BLOCK, false));
}

typedef enum wanted { OF_ARCHITECTURE, OF_ALL } wanted;

/* OF_ALL: also takes the gradient of the weights, and returns its norm; else returns 0. */
static double take_gradient(bp_engine *engine, const bp_architecture_step *of,
                            const bp_batch *batch, wanted gradients, double *loss)
{
    bp_network *network = engine->network;
    bp_step_result result;
    double norm = 0;

    bp_network_set_searched(network, true);
    engine_gradient(engine, batch, batch == of->valid, &result);
    bp_network_set_searched(network, false);
    if (gradients == OF_ALL)
        norm = bp_gradient_norm(engine->mesh, network, engine->stage->gradient, engine->scratch);
    for (int g = 0; g < network->group_count; g++)
        if (network->groups[g].searched || (gradients == OF_ALL && is_trained(&network->groups[g])))
            gather(engine, &network->groups[g]);
    *loss = result.loss;
    return norm;
}

/* ---- weights ---- */

/* value = kept + by gradient - decay kept, for all weights, alike on all ranks. */
static void move_weights(bp_engine *engine, const float *kept, const float *along, double by,
                         double decay)
{
    bp_network *network = engine->network;

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count && is_trained(&network->groups[g]); k++) {
            const bp_param *param = &network->groups[g].params[k];
            int64_t first = network->groups[g].place + param->place, n = bp_param_floats(param);
            double shrink = param->decays ? 1 - decay : 1;

            for (int64_t i = first; i < first + n; i++)
                engine->values[i] = (float)(shrink * (double)kept[i] + by * (double)along[i]);
        }
    bp_network_refresh(network);
}

static void restore(bp_engine *engine, const float *kept)
{
    for (int g = 0; g < engine->network->group_count; g++) {
        const bp_group *group = &engine->network->groups[g];

        if (is_trained(group))
            memcpy(engine->values + group->place, kept + group->place,
                   (size_t)group->floats * sizeof(float));
    }
    bp_network_refresh(engine->network);
}

/* to[i] += by from[i], for the architecture's weights. */
static void add_searched(const bp_engine *engine, float *to, const float *from, double by)
{
    const bp_param *param = bp_engine_searched(engine);

    for (int64_t i = 0; param && i < bp_param_floats(param); i++)
        to[i] += (float)(by * (double)from[i]);
}

static int64_t searched_place(const bp_engine *engine)
{
    for (int g = 0; g < engine->network->group_count; g++)
        if (engine->network->groups[g].searched)
            return engine->network->groups[g].place;
    return 0;
}

/* The gradient of the architecture's weights is left in `along`, at their place. */
static void second_order(bp_engine *engine, const bp_architecture_step *of, double *loss)
{
    const bp_optimizer_rule *rule = &engine->spec.optimizer;
    int64_t n = engine->network->trained_floats, place = searched_place(engine);
    float *kept = of->memory, *along = of->memory + n, *gradient = engine->stage->gradient;
    double rate = bp_rate_at(&engine->spec.rate, of->step), unused, norm, distance;

    memcpy(kept, engine->values, (size_t)n * sizeof *kept);
    norm = take_gradient(engine, of, of->train, OF_ALL, &unused);
    norm = rule->clip > 0 && norm > rule->clip ? rule->clip / norm : 1;
    move_weights(engine, kept, gradient, -rate * norm, rate * rule->weight_decay);
    norm = take_gradient(engine, of, of->valid, OF_ALL, loss);
    memcpy(along, gradient, (size_t)n * sizeof *along);
    if (norm > 0 && isfinite(norm)) {
        distance = DISTANCE / norm;
        move_weights(engine, kept, along, distance, 0);
        (void)take_gradient(engine, of, of->train, OF_ARCHITECTURE, &unused);
        add_searched(engine, along + place, gradient + place, -rate / (2 * distance));
        move_weights(engine, kept, along, -distance, 0);
        (void)take_gradient(engine, of, of->train, OF_ARCHITECTURE, &unused);
        add_searched(engine, along + place, gradient + place, rate / (2 * distance));
    }
    restore(engine, kept);
    memcpy(gradient + place, along + place,
           (size_t)(bp_engine_searched(engine) ? bp_param_floats(bp_engine_searched(engine)) : 0) *
               sizeof *gradient);
}

/* ---- Adam ---- */

static void update(bp_engine *engine, const bp_group *group, const bp_architecture_step *of)
{
    const bp_param *params = group->params;
    const float *gradient = engine->stage->gradient + group->place + params[WEIGHTS].place;
    float *a = params[WEIGHTS].value, *m = params[FIRST_MOMENT].value,
          *v = params[SECOND_MOMENT].value;
    double first = 1 - pow(BETA1, (double)of->step), second = 1 - pow(BETA2, (double)of->step);
    int64_t n = bp_param_floats(&params[WEIGHTS]);

    for (int64_t i = 0; i < n; i++)
        if (!isfinite(gradient[i]))
            return;
    for (int64_t i = 0; i < n; i++) {
        double g = (double)gradient[i] + of->decay * (double)a[i];

        m[i] = (float)(BETA1 * (double)m[i] + (1 - BETA1) * g);
        v[i] = (float)(BETA2 * (double)v[i] + (1 - BETA2) * g * g);
        a[i] -=
            (float)(of->rate * ((double)m[i] / first) / (sqrt((double)v[i] / second) + EPSILON));
    }
}

void bp_engine_search(bp_engine *engine, const bp_architecture_step *of, double *loss)
{
    engine_await_parameters(engine);
    engine->step = of->step;
    if (of->second_order)
        second_order(engine, of, loss);
    else
        (void)take_gradient(engine, of, of->valid, OF_ARCHITECTURE, loss);
    for (int g = 0; g < engine->network->group_count; g++)
        if (engine->network->groups[g].searched)
            update(engine, &engine->network->groups[g], of);
    bp_network_refresh(engine->network);
}
