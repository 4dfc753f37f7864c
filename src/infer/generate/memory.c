/* The memory of generation on each rank, from manifests only. Prompts are not encoded yet: one
 * token per byte is assumed, up to the context. Called by generate.c before the model is opened. */
#include "infer/generate/entailment.h"
#include "infer/generate/fill.h"
#include "infer/generate/generator.h"
#include "mesh/collective.h"
#include "mesh/mesh_search.h"

#include <omp.h>
#include <string.h>

/* Prompts with the maximal number of tokens. */
static bp_generate_plan plan_of(const bp_config *config, const bp_prompts_most *most,
                                int64_t context, int stages)
{
    const bp_generate_keys *keys = bp_generate_keys_of(config);
    const bp_model_info none = {.vocab_size = 1, .eod_id = -1};
    bp_search_spec rule = generator_rule(config, &none);

    return bp_generate_plan_of(&rule, most->count, most->length < context ? most->length : context,
                               keys->batch, keys->tokens, context, stages);
}

/* Additional memory of the last stage: gathered rows, and the choosers' scratch. */
static int64_t choosing_bytes(const bp_generate_plan *plan, int64_t vocab_size)
{
    return 2 * plan->slots * vocab_size * (int64_t)sizeof(float) +
           omp_get_max_threads() * bp_choice_bytes(vocab_size);
}

/* The minimum over models; 0 if one is unknown. */
static int64_t find_context(const bp_work_models *models)
{
    int64_t least = INT64_MAX;

    for (int64_t k = 0; k < models->count; k++) {
        int64_t context = json_integer_value(
            json_object_get(json_object_get(models->states[k], "model"), "context"));

        least = context < least ? context : least;
    }
    return least;
}

/* bp_work_memory.rank */
static bp_err estimate_rank(const void *context, const bp_work_models *models,
                            const bp_work_place *place, bp_rank_memory *out)
{
    const generator *self = context;
    const bp_mesh_shape *mesh = place->mesh;
    int64_t most = find_context(models), decoding;
    bp_generate_plan plan;
    bp_work_model_bytes bytes;
    bool fills = strcmp(bp_generate_keys_of(models->config)->strategy, "fill") == 0;
    bool last = place->stage == mesh->pipeline - 1;
    bp_err err;

    if (!place->computes)
        return BP_OK;
    if (most <= 0)
        return BP_ERR_FORMAT;
    plan = plan_of(models->config, &self->most, most, mesh->pipeline);
    err = bp_work_model_bytes_of(&bytes, models,
                                 &(bp_model_task){.mesh = mesh,
                                                  .stage = place->stage,
                                                  .windows = fills ? plan.unit_prompts : 0,
                                                  .length = fills ? most : 0,
                                                  .groups = fills ? 0 : plan.groups,
                                                  .slots = plan.slots,
                                                  .capacity = plan.capacity},
                                 place->member);
    decoding = bytes.decode;
    if (last && fills)
        decoding += bytes.work + bp_fill_bytes(&plan, most, bytes.widest.width,
                                               bytes.widest.vocab_size / mesh->tensor);
    else if (last)
        decoding += choosing_bytes(&plan, bytes.widest.vocab_size) *
                    (models->ensemble ? 1 + models->count / mesh->members : 1);
    /* a batch or decoding: not both at a time */
    out->own_bytes += bytes.weights + (decoding > bytes.work ? decoding : bytes.work);
    out->node_bytes +=
        bytes.node + self->entailment_bytes; /* the coordinator's, which is one such rank */
    return err;
}

bp_err generator_describe(void *context, MPI_Comm world, bp_work_memory *out)
{
    generator *self = context;
    const bp_generate_keys *keys = bp_generate_keys_of(self->job->config);

    bp_err err = BP_OK;

    if (bp_comm_is_root(world)) {
        self->most = bp_prompts_most_of(keys->prompts, keys->template_path);
        if (keys->entails)
            err = bp_entailment_estimate(&self->entailment_bytes, keys->entails);
    }
    err = bp_agree(world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&self->most, sizeof self->most, 0, world);
    bp_bcast_bytes(&self->entailment_bytes, sizeof self->entailment_bytes, 0, world);
    out->context = self;
    out->model = keys->model;
    out->remedy = "use a smaller generate.batch or generate.beams";
    out->rank = estimate_rank;
    return BP_OK;
}
