/* The memory of explanations, before there is a mesh: for the largest possible document. Called by
 * job/work.h through explain.c. */
#include "explain/start/start.h"

#include "explain/nearest/nearest.h"
#include "infer/ensemble/ensemble.h"
#include "infer/neighbours/datastore.h"
#include "models/open.h"

#include <string.h>

#define BATCH_PLACES 1024 /* of windows side by side */
#define MOST_PLACES  1024 /* of a document, unless explain.context says otherwise */

int64_t explain_most_positions(const bp_config *config, int64_t context)
{
    int64_t asked = bp_explain_keys_of(config)->context,
            most = asked > 0 || context < MOST_PLACES ? context : MOST_PLACES;

    return asked > 0 && asked < most ? asked : most;
}

/* Windows side by side, as many as fit at the longest length, so that the plan's batch is the
 * largest. */
int64_t explain_batch_positions(int64_t most)
{
    return most > BATCH_PLACES ? most : BATCH_PLACES / most * most;
}

/* The largest possible document for the model with this "model" object. */
static bp_explain_form largest_form(const json_t *shape, const char *target, int64_t most)
{
    const char *task = json_string_value(json_object_get(shape, "task"));
    int64_t outcomes = json_integer_value(json_object_get(shape, "outcomes")),
            encoders = task ? 0 : json_integer_value(json_object_get(shape, "encoder_layers")),
            each = target && strcmp(target, "every") == 0 ? outcomes : 1;
    const bp_task_kind *kind = task ? bp_task_kind_named(task) : NULL;
    bp_explain_form form = {.K = most,
                            .T = most,
                            .S = encoders > 0 ? most : 0,
                            .layers = json_integer_value(json_object_get(shape, "layers")),
                            .heads = json_integer_value(json_object_get(shape, "heads")),
                            .source_layers = encoders,
                            .outcomes = outcomes,
                            .foils = 1};

    if (form.layers == 0)
        form.layers = json_integer_value(json_object_get(shape, "decoder_layers"));
    if (kind)
        form.K = each * (kind->at_words ? most : kind->ends);
    if (kind && bp_task_kind_has_classes(kind))
        form.foils = outcomes - 1;
    return form;
}

/* In addition to the model's own memory: vectors, a batch, sums in double, results; states for the
 * lens, matrices for attention. */
static int64_t work_floats(const explainer *self, const bp_work_models *models, int64_t most,
                           const bp_model_memory *of)
{
    const bp_explain_keys *keys = bp_explain_keys_of(models->config);
    bp_explain_form form =
        largest_form(json_object_get(models->states[0], "model"), keys->target, most);
    int64_t own_width = json_integer_value(
                json_object_get(json_object_get(models->states[0], "model"), "width")),
            wide = own_width > of->width ? own_width : of->width; /* of what layers leave */
    int64_t sides = form.S > 0 ? 2 : 1, states = (form.layers + 1) * most * wide,
            stack = form.layers > form.source_layers ? form.layers : form.source_layers;
    bool looks = bp_explain_position(keys->methods, &bp_explain_lens),
         watches = bp_explain_position(keys->methods, &bp_explain_attention),
         contrasts = bp_explain_position(keys->methods, &bp_explain_contrast);

    int64_t inner = json_integer_value(
                json_object_get(json_object_get(models->states[0], "model"), "inner")),
            collected = 0;
    const bp_explain_sizes sizes = {.T = most,
                                    .C = wide,
                                    .V = of->vocab_size,
                                    .layers = form.layers,
                                    .triggers = keys->keys,
                                    .factors = keys->factors,
                                    .keys = inner > 0 ? inner : 4 * wide};

    for (int k = 0; k < self->count; k++) {
        int64_t own = self->methods[k]->floats ? self->methods[k]->floats(&sizes) : 0;

        collected = own > collected ? own : collected;
    }
    form.flips = keys->flips;
    form.edits = keys->edits;
    form.neighbours = keys->neighbours;
    form.curves = (self->count + 1) * BP_EXPLAIN_SHARES;
    return collected +
           sides * (2 * most + 4 * explain_batch_positions(most) + contrasts * most) * of->width +
           EXPLAIN_LOG_P_POSITIONS * of->vocab_size +
           (2 + models->members) * explain_floats(self, &form) + (looks ? 3 * states : 0) +
           (watches ? (form.layers + form.source_layers + stack + 5 * sides) * most * most +
                          2 * explain_weights_floats(&form)
                    : 0) +
           explain_setup_floats(self, models->config, &form, of->width);
}

/* Keys of a datastore, or vectors of documents with the model without its head. */
static int64_t datastore_bytes(const bp_work_models *models, const bp_work_place *place,
                               int64_t most, const bp_work_model_bytes *bytes)
{
    const bp_explain_keys *keys = bp_explain_keys_of(models->config);
    int64_t file = keys->datastore ? bp_file_size(keys->datastore) : 0;
    bool task = json_object_get(json_object_get(models->states[0], "model"), "task") != NULL;

    file = file > 0 ? file : 0; /* missing: opening it reports that */
    if (task)
        return bytes->weights + (file < EXPLAIN_NEAREST_BYTES ? file : EXPLAIN_NEAREST_BYTES);
    return bp_datastore_bytes(file, bytes->widest.width,
                              place->mesh->tensor * place->mesh->pipeline, EXPLAIN_NEAREST_BYTES,
                              most, keys->neighbours);
}

/* bp_work_memory.rank */
bp_err explain_estimate_rank(const void *context, const bp_work_models *models,
                             const bp_work_place *place, bp_rank_memory *out)
{
    const explainer *self = context;
    int64_t most =
        explain_most_positions(models->config, bp_model_state_context(models->states[0]));
    bp_model_task task = {.mesh = place->mesh,
                          .stage = place->stage,
                          .length = most,
                          .differentiates = explain_goes_backward(self)};
    bp_work_model_bytes bytes;
    bp_err err;

    if (most <= 0) /* no shape: opening the model reports the fault */
        return BP_ERR_CONFIG;
    if (!place->computes)
        return BP_OK;
    task.windows = explain_batch_positions(most) / most;
    err = bp_work_model_bytes_of(&bytes, models, &task, place->member);
    if (err != BP_OK)
        return err;
    if (models->ensemble)
        out->own_bytes +=
            bp_ensemble_work_bytes(&bytes.widest, place->mesh, models->members,
                                   explain_batch_positions(most), EXPLAIN_ENSEMBLE_BYTES, false);
    if (bp_explain_position(bp_explain_keys_of(models->config)->methods, &bp_explain_sources))
        out->own_bytes += datastore_bytes(models, place, most, &bytes);
    out->node_bytes += bytes.node;
    out->own_bytes += bytes.weights + bytes.work +
                      (int64_t)sizeof(float) * work_floats(self, models, most, &bytes.widest);
    return BP_OK;
}
