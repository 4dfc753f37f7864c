/* Steps and evaluations of a part of the model: a smaller network, whose parameters are the first
 * rows and columns of the engine's. They are copied there, and the gradients back, so that no layer
 * knows that it is part of another one. Called by engine.c. */
#include "train/engine/engine_priv.h"

#include "math/kernels/kernels.h"

#include <string.h>

/* The engine's parameter of that name; NULL if there is none. *group: its group. */
static const bp_param *find(const bp_network *network, const char *name, const bp_group **group)
{
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++)
            if (strcmp(network->groups[g].params[k].name, name) == 0) {
                *group = &network->groups[g];
                return &network->groups[g].params[k];
            }
    return NULL;
}

static int64_t columns_of(const bp_param *param)
{
    return param->dims == 2 ? param->extent[1] : 1;
}

/* Rows of a slice of `whole`, from or to those of `part`. */
static void copy(float *to, int64_t to_columns, const float *from, int64_t from_columns,
                 const bp_param *part)
{
    size_t bytes = (size_t)columns_of(part) * sizeof *to;

    for (int64_t r = 0; r < part->extent[0]; r++)
        memcpy(to + r * to_columns, from + r * from_columns, bytes);
}

typedef struct pair {
    const bp_group *group, *whole_group;
    const bp_param *param, *whole;
} pair;

static void for_each(bp_engine *engine, void (*call)(bp_engine *engine, const pair *one))
{
    const bp_network *network = engine->part->network;

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++) {
            pair one = {.group = &network->groups[g], .param = &network->groups[g].params[k]};

            one.whole = find(engine->network, one.param->name, &one.whole_group);
            call(engine, &one);
        }
}

static void take_values(bp_engine *engine, const pair *one)
{
    (void)engine;
    copy(one->param->value, columns_of(one->param), one->whole->value, columns_of(one->whole),
         one->param);
}

static void give_gradient(bp_engine *engine, const pair *one)
{
    copy(engine->stage->gradient + one->whole_group->place + one->whole->place,
         columns_of(one->whole),
         engine->part->stage->gradient + one->group->place + one->param->place,
         columns_of(one->param), one->param);
}

static bp_err check(const bp_network *whole, const bp_network *part)
{
    const bp_group *group;

    for (int g = 0; g < part->group_count; g++)
        for (int k = 0; k < part->groups[g].count; k++) {
            const bp_param *param = &part->groups[g].params[k],
                           *of = find(whole, param->name, &group);
            bool fits = of && of->dims == param->dims && !group->frozen;

            for (int d = 0; fits && d < param->dims; d++)
                fits = param->extent[d] <= of->extent[d];
            if (!fits)
                return BP_FAIL(BP_ERR_CONFIG, "engine.no_part",
                               "the model is no part of the whole one, which has %s tensor %s: at "
                               "the shapes of models; use sizes that grow together",
                               of ? "a smaller" : "no", param->name);
        }
    return BP_OK;
}

static bp_err build(bp_engine *engine, engine_part *part, const bp_model_shape *shape)
{
    const bp_mesh *mesh = engine->mesh;
    bp_stage_spec spec = bp_stage_spec_for(&engine->spec, shape, mesh->data_ranks, 0, 1);
    bp_err err = bp_model_network_new(&part->network, &engine->network->nn, shape, 0, 1);

    if (err == BP_OK)
        err = check(engine->network, part->network);
    if (err != BP_OK)
        return err;
    bp_network_lay_out(part->network, BP_NORM_BLOCK);
    part->values = bp_try_alloc("parameters", part->network->floats, sizeof(float));
    if (!part->values)
        return bp_fail_memory("a part of the model", part->network->floats, sizeof(float));
    err = bp_network_bind_values(part->network, part->values);
    return err == BP_OK ? bp_stage_new(&part->stage, mesh, part->network, &spec) : err;
}

void engine_drop_part(bp_engine *engine)
{
    engine_part *part = engine->part;

    if (!part)
        return;
    bp_stage_free(&part->stage);
    bp_network_free(&part->network);
    bp_free(part->values);
    bp_free(part);
    engine->part = NULL;
}

bp_err engine_make_part(bp_engine *engine, const bp_model_shape *shape)
{
    bp_err err;

    BP_ASSERT(engine->mesh->pipeline_ranks == 1 && engine->mesh->tensor_ranks == 1 &&
              engine->mesh->expert_ranks == 1 && !engine->dropped && engine->carries == 0);
    engine->part = bp_alloc("engine", 1, sizeof *engine->part);
    err = build(engine, engine->part, shape);
    if (err != BP_OK) {
        engine_drop_part(engine);
        return err;
    }
    for_each(engine, take_values);
    bp_network_refresh(engine->part->network);
    return BP_OK;
}

void engine_part_accumulate(bp_engine *engine, const bp_stage_step *step, double *loss_sums,
                            int64_t stride)
{
    bp_stage_step own = *step;

    own.needs = NULL;
    own.is_whole = NULL;
    bp_stage_accumulate(engine->part->stage, &own, loss_sums, stride);
    bp_zero(engine->stage->gradient, engine->network->gradient_floats);
    for_each(engine, give_gradient);
    for (int g = engine->network->group_count - 1; g >= 0; g--)
        step->is_whole(step->context, g);
}
