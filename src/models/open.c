/* Opening a model: its checkpoint's metadata, and then its weights. */
#include "models/open.h"

#include "models/counting.h"
#include "models/network/network_model.h"
#include "models/network/network_states.h"
#include "models/network/weights.h"
#include "models/open_parts.h"
#include "models/stack/stack.h"
#include "models/task/task.h"
#include "models/task/vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shape of a model for probabilities, or vectors. */
static bp_err read_scored(bp_model_shape *shape, const json_t *state, const char *where,
                          const char *vectors)
{
    bp_err err = bp_model_shape_read(shape, state, where);
    const char *why = NULL;

    if (err == BP_OK && vectors)
        err = bp_task_give_vectors(shape, state, bp_task_pool_named(vectors), where);
    if (err == BP_OK && shape->family->no_distribution && !bp_task_has_head(&shape->task))
        why = shape->family->no_distribution(shape);
    if (why)
        err = BP_FAIL(BP_ERR_CONFIG, "model.no_distribution",
                      "a model of kind %s can't be used here: %s: at %s; take another model",
                      shape->family->name, why, where);
    if (err == BP_OK && shape->task.features > 0 && !shape->task.fitted)
        err = BP_FAIL(BP_ERR_CONFIG, "sngp.no_covariance",
                      "the checkpoint is one between validations, whose Gaussian process has no "
                      "covariance yet: at %s; take checkpoints/best or the last one of a finished "
                      "training",
                      where);
    return err;
}

static void hash_labels(char hash[BP_SHA256_HEX], const json_t *labels)
{
    char *text = labels ? json_dumps(labels, JSON_COMPACT) : NULL;

    hash[0] = '\0';
    if (text)
        bp_sha256_of(text, strlen(text), hash);
    free(text); /* of jansson */
}

static void read_roles(bp_model_info *info, const json_t *state, const bp_model_shape *shape)
{
    info->bos_id = bp_roles_get(state, BP_ROLE_BOS);
    info->first_id = bp_roles_get(state, BP_ROLE_FIRST);
    info->has_bos = info->bos_id >= 0 && info->bos_id < shape->vocab_size;
    info->has_first = info->first_id >= 0 && info->first_id < shape->vocab_size;
    info->ends = (bp_ends){0};
    if (info->eod_id >= 0)
        bp_ends_add(&info->ends, info->eod_id);
    bp_ends_read(&info->ends, json_object_get(state, "end_ids"), shape->vocab_size);
    info->forced = bp_forced_read(state, shape->vocab_size);
}

static bp_err read_info(bp_model_info *info, const bp_checkpoint *checkpoint, int64_t context,
                        const char *vectors)
{
    const json_t *state = bp_checkpoint_state(checkpoint);
    const char *where = bp_checkpoint_folder(checkpoint), *hash = NULL;
    bp_model_shape shape;
    bp_err err = bp_json_get_int(state, "step", &info->step, where);

    if (err == BP_OK)
        err = bp_json_get_int(state, "eod_id", &info->eod_id, where);
    if (err == BP_OK)
        err = bp_json_get_string(state, "tokenizer_hash", &hash, where);
    if (err == BP_OK)
        err = read_scored(&shape, state, where, vectors);
    if (err != BP_OK)
        return err;
    snprintf(info->tokenizer_hash, sizeof info->tokenizer_hash, "%s", hash);
    snprintf(info->digest, sizeof info->digest, "%s", bp_checkpoint_digest(checkpoint));
    info->width = bp_model_state_width(&shape);
    if (!shape.family->any_context && network_model_context(&shape, context) > shape.context)
        info->trained_context = shape.context;
    shape.context = network_model_context(&shape, context);
    info->context = bp_model_most_inputs(&shape);
    info->vocab_size = bp_model_outcomes(&shape);
    info->words = shape.vocab_size;
    info->task = shape.task;
    hash_labels(info->labels_hash, json_object_get(json_object_get(state, "model"), "labels"));
    info->may_be_zero = shape.family->counting != NULL ||
                        (!bp_task_has_head(&shape.task) && shape.head_entmax == 1);
    info->frames =
        bp_family_has_backbone(shape.family) && shape.family->blocks->backbone(&shape).pooler;
    info->masks = bp_model_objective(&shape) && bp_model_objective(&shape)->masks;
    info->sees_all =
        info->frames || info->masks || (shape.family->stack && shape.family->stack->sees_all);
    info->reads_source = bp_model_reads_source(&shape);
    info->start_token = shape.family->source ? shape.family->source->start_token(&shape) : -1;
    if (shape.family->source && info->start_token < 0)
        info->start_token = info->eod_id;
    info->tags_follow = shape.family->source && shape.family->source->tags_follow;
    info->source_capacity = shape.context;
    read_roles(info, state, &shape);
    return BP_OK;
}

bp_err bp_model_read_info(bp_model_info *info, const bp_checkpoint *checkpoint, int64_t context)
{
    return read_info(info, checkpoint, context, NULL);
}

bp_err bp_model_of_checkpoint(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                              bp_checkpoint *checkpoint, bp_model_wish wish)
{
    bp_model_info found = {0};
    bp_model_shape shape = {0};
    bp_err err = bp_agree(mesh->member, read_info(&found, checkpoint, wish.context, wish.vectors));

    *out = NULL;
    if (err == BP_OK) /* it was read successfully before */
        err = bp_model_shape_read(&shape, bp_checkpoint_state(checkpoint),
                                  bp_checkpoint_folder(checkpoint));
    if (err == BP_OK && shape.family->counting && bp_weights_are_q8(config))
        err =
            BP_FAIL(BP_ERR_CONFIG, "model.no_products",
                    "a model of kind %s multiplies no weights: at model.weights = q8; leave it out",
                    shape.family->name);
    else if (err == BP_OK && shape.family->counting)
        err = shape.family->counting->open(out, mesh, checkpoint);
    else if (err == BP_OK)
        err = bp_network_model_open(out, mesh, config, checkpoint, wish);
    if (err != BP_OK)
        return err;
    bp_model_info *info = &(*out)->info;
    info->kind = shape.family->name;
    info->may_be_zero = found.may_be_zero;
    info->frames = found.frames;
    info->sees_all = found.sees_all;
    info->masks = found.masks;
    info->step = found.step;
    info->eod_id = found.eod_id;
    info->has_bos = found.has_bos;
    info->has_first = found.has_first;
    info->bos_id = found.bos_id;
    info->first_id = found.first_id;
    info->ends = found.ends;
    info->forced = found.forced;
    memcpy(info->labels_hash, found.labels_hash, sizeof found.labels_hash);
    info->words = found.words;
    info->trained_context = found.trained_context;
    info->start_token = found.start_token;
    info->tags_follow = found.tags_follow;
    memcpy(info->tokenizer_hash, found.tokenizer_hash, sizeof found.tokenizer_hash);
    memcpy(info->digest, found.digest, sizeof found.digest);
    return BP_OK;
}

bp_state_form bp_model_state_form_of(const json_t *state)
{
    bp_model_shape shape;

    return bp_model_shape_read(&shape, state, "manifest.json") == BP_OK ? network_state_form(&shape)
                                                                        : (bp_state_form){0};
}

int64_t bp_model_state_context(const json_t *state)
{
    bp_model_shape shape;

    return bp_model_shape_read(&shape, state, "manifest.json") == BP_OK
               ? bp_model_most_inputs(&shape)
               : 0;
}

bp_err bp_model_estimate(bp_model_memory *out, const json_t *state, const bp_config *config,
                         const bp_model_task *task)
{
    bp_model_shape shape;
    bp_err err = read_scored(&shape, state, "manifest.json", task->vectors);

    *out = (bp_model_memory){0};
    if (err == BP_OK && shape.family->counting) {
        int64_t parts = (int64_t)task->mesh->pipeline * task->mesh->tensor;
        int64_t bytes = shape.family->counting->file_bytes(&shape, state);
        /* Ranks map the file and share its pages: a part counts for its own rank only if no other
         * data rank, which may be on the same node, reads the same part. */
        bool apart = parts > 1 && task->mesh->data <= 1;

        *out = (bp_model_memory){.weights_bytes = apart ? bytes / parts : 0,
                                 .node_bytes = apart ? 0 : bytes,
                                 .vocab_size = shape.vocab_size,
                                 .width = bp_model_state_width(&shape),
                                 .context = bp_model_most_inputs(&shape)};
        return BP_OK;
    }
    return err == BP_OK ? bp_model_estimate_shape(out, &shape, config, task) : err;
}

static bp_err open_path(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                        const char *path, bp_model_wish wish)
{
    bp_checkpoint *checkpoint = NULL;
    bp_err err = bp_checkpoint_open_any(mesh->member, path, &checkpoint);

    *out = NULL;
    if (err == BP_OK)
        err = bp_model_of_checkpoint(out, mesh, config, checkpoint, wish);
    bp_checkpoint_close(&checkpoint);
    return err;
}

bp_err bp_model_open(bp_model **out, const bp_mesh *mesh, const bp_config *config, const char *path)
{
    return open_path(out, mesh, config, path, (bp_model_wish){0});
}

bp_err bp_model_open_wide(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                          const char *path, int64_t context)
{
    return open_path(out, mesh, config, path, (bp_model_wish){.context = context});
}

bp_err bp_model_open_vectors(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                             const char *path, int64_t context, const char *pool)
{
    return open_path(out, mesh, config, path, (bp_model_wish){.context = context, .vectors = pool});
}

bp_err bp_model_open_with_head(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                               const char *path)
{
    return open_path(out, mesh, config, path, (bp_model_wish){.keeps_head = true});
}

bp_err bp_model_open_differentiable(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                                    const char *path, int64_t context)
{
    return open_path(out, mesh, config, path,
                     (bp_model_wish){.context = context, .differentiates = true});
}

bp_err bp_model_new(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                    const bp_model_shape *shape, uint64_t seed)
{
    return bp_network_model_new(out, mesh, config, shape, seed);
}
