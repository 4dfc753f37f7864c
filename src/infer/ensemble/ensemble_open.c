/* Opening an ensemble: list its members, check that they are compatible, and then load their
 * weights. Called by the setup of scoring and of generation. */
#include "infer/ensemble/ensemble_priv.h"

#include "base/err.h"
#include "base/files/fs.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"
#include "models/open_parts.h"
#include "nn/core/layers.h"
#include "text/tokenizer/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The state of opening, until the models exist. */
typedef struct opening {
    ensemble *self;
    const bp_config *config;
    const bp_ensemble_spec *spec;
    bool listed; /* by an ensemble.json; else all members are of one CHECKPOINT */
    bp_ensemble_list list;
    bp_member_sampler *sampler;  /* NULL if there is none */
    int64_t models;              /* different ones: member_count, or 1 */
    bp_model_info *infos;        /* [models] */
    bp_checkpoint **checkpoints; /* [models] those on this rank */
} opening;

static bp_err out_of_memory(void)
{
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                   "memory is short: at an ensemble; use more ranks");
}

/* ---- who the members are ---- */

static char *name_of(const opening *o, int64_t k)
{
    if (o->listed)
        return bp_strdup(o->list.members[k].name);
    return o->sampler ? bp_sprintf("%s-%03lld", o->sampler->ops->member, (long long)k)
                      : bp_strdup("model");
}

static bool members_differ_in(const opening *o, bp_member_kind kind)
{
    return o->sampler && o->sampler->ops->kind == kind;
}

/* Listed, or each with its own weights. */
static bool are_many(const opening *o)
{
    return o->listed || members_differ_in(o, BP_MEMBER_WEIGHTS);
}

static const char *path_of(const opening *o, int64_t model)
{
    return o->listed ? o->list.members[model].path : o->spec->path;
}

static bp_err read_list(opening *o)
{
    o->listed = bp_ensemble_is(o->spec->path);
    if (!o->listed)
        return BP_OK;
    if (o->sampler)
        return BP_FAIL(BP_ERR_CONFIG, "model.is_ensemble",
                       "members by :%s are of one model, and this is an ensemble: at %s; give one "
                       "of its members",
                       o->sampler->ops->word, o->spec->path);
    return bp_ensemble_list_load(&o->list, o->spec->path);
}

static int64_t count_members(const opening *o)
{
    if (o->listed)
        return o->list.count;
    return o->sampler ? o->sampler->count : 1;
}

/* Local. */
static bp_err describe(opening *o)
{
    ensemble *self = o->self;
    int64_t A = self->mesh->members;

    self->member_count = count_members(o);
    self->rounds = (self->member_count + A - 1) / A;
    o->models = are_many(o) ? self->member_count : 1;
    self->members = bp_alloc("infer.ensemble", self->member_count, sizeof *self->members);
    self->models = bp_alloc("infer.ensemble", o->models, sizeof(bp_model *));
    self->backbones = bp_alloc("infer.ensemble", self->rounds, sizeof *self->backbones);
    self->receiving = bp_alloc("infer.ensemble", self->rounds * A, sizeof *self->receiving);
    self->sending = bp_alloc("infer.ensemble", A, sizeof *self->sending);
    o->infos = bp_alloc("infer.ensemble", o->models, sizeof *o->infos);
    o->checkpoints = bp_alloc("infer.ensemble", o->models, sizeof(bp_checkpoint *));
    for (int64_t k = 0; k < self->member_count; k++) {
        self->members[k].name = name_of(o, k);
        self->members[k].oob = o->listed ? o->list.members[k].oob_perplexity : NAN;
        self->members[k].backbone = -1;
        if (!self->members[k].name)
            return out_of_memory();
    }
    return BP_OK;
}

/* Find a missing member before reading any other. On one rank. */
static bp_err look_for_members(const opening *o)
{
    for (int64_t k = 0; o->listed && k < o->models; k++)
        if (!bp_path_exists(path_of(o, k)))
            return BP_FAIL(BP_ERR_INPUT, "ensemble.member_missing",
                           "member '%s' of the ensemble is missing: at %s; listed by %s",
                           o->list.members[k].name, path_of(o, k), o->spec->path);
    if (o->listed)
        bp_ensemble_warn_of_losses(&o->list, o->spec->path);
    return BP_OK;
}

/* ---- metadata of their checkpoints ---- */

static bool is_here(const opening *o, int64_t model)
{
    const bp_mesh *mesh = o->self->mesh;

    if (are_many(o))
        return model % mesh->members == mesh->member_index;
    return mesh->member_index < o->self->member_count;
}

/* Collective over mesh->member; the same on all its ranks. */
static bp_err open_checkpoints(opening *o)
{
    const bp_mesh *mesh = o->self->mesh;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < o->models && err == BP_OK; k++) {
        if (!is_here(o, k))
            continue;
        err = bp_checkpoint_open_any(mesh->member, path_of(o, k), &o->checkpoints[k]);
        if (err == BP_OK)
            err = bp_agree(mesh->member,
                           bp_model_read_info(&o->infos[k], o->checkpoints[k], o->spec->context));
        if (err != BP_OK && o->listed)
            err = bp_err_prefix(err, "member '%s'", o->list.members[k].name);
    }
    return err;
}

static void share_infos(opening *o)
{
    const bp_mesh *mesh = o->self->mesh;

    for (int64_t k = 0; k < o->models; k++)
        bp_bcast_bytes(&o->infos[k], sizeof o->infos[k], (int)(k % mesh->members), mesh->across);
}

static bp_err differ(const opening *o, int64_t j, int64_t k, const char *what, const char *first,
                     const char *other)
{
    return BP_FAIL(BP_ERR_FORMAT, "ensemble.unlike_members",
                   "members '%s' and '%s' have different %s, %s and %s: in %s; an ensemble's "
                   "members share it",
                   o->list.members[j].name, o->list.members[k].name, what, first, other,
                   o->spec->path);
}

static bp_err differ_in_number(const opening *o, int64_t j, int64_t k, const char *what,
                               int64_t first, int64_t other)
{
    char texts[2][32];

    snprintf(texts[0], sizeof texts[0], "%lld", (long long)first);
    snprintf(texts[1], sizeof texts[1], "%lld", (long long)other);
    return differ(o, j, k, what, texts[0], texts[1]);
}

/* The first model whose tokenizer is known; the first of all if none is. */
static int64_t first_tokenizer(const opening *o)
{
    for (int64_t k = 0; k < o->models; k++)
        if (o->infos[k].tokenizer_hash[0])
            return k;
    return 0;
}

/* As first_tokenizer, for end-of-document tokens: -1 if unknown. */
static int64_t first_eod(const opening *o)
{
    for (int64_t k = 0; k < o->models; k++)
        if (o->infos[k].eod_id >= 0)
            return k;
    return 0;
}

/* As first_eod, for the first or last token that a member's files force. */
static int64_t first_forced(const opening *o, bool last)
{
    for (int64_t k = 0; k < o->models; k++)
        if (last ? o->infos[k].forced.has_last : o->infos[k].forced.has_first)
            return k;
    return 0;
}

/* The same for all members. */
static void take_forced(bp_forced *forced, const opening *o)
{
    const bp_forced *first = &o->infos[first_forced(o, false)].forced,
                    *last = &o->infos[first_forced(o, true)].forced;

    *forced = (bp_forced){.has_first = first->has_first,
                          .first = first->first,
                          .has_last = last->has_last,
                          .last = last->last};
    for (int64_t k = 0; k < o->models; k++)
        for (int i = 0; i < o->infos[k].forced.never.count; i++)
            bp_ends_add(&forced->never, o->infos[k].forced.never.ids[i]);
}

/* As first_eod, for the tokens that begin and end a text. */
static void take_roles(bp_model_info *info, const opening *o)
{
    info->has_bos = info->has_first = false;
    info->ends = (bp_ends){0};
    take_forced(&info->forced, o);
    for (int64_t k = 0; k < o->models; k++) {
        const bp_model_info *one = &o->infos[k];

        if (!info->has_bos && one->has_bos) {
            info->has_bos = true;
            info->has_first = one->has_first;
            info->bos_id = one->bos_id;
            info->first_id = one->first_id;
        }
        for (int i = 0; i < one->ends.count; i++)
            bp_ends_add(&info->ends, one->ends.ids[i]);
    }
}

static bp_err compare_forced(const opening *o)
{
    for (int last = 0; last < 2; last++) {
        int64_t j = first_forced(o, last == 1);
        const bp_forced *known = &o->infos[j].forced;

        for (int64_t k = j + 1; k < o->models; k++) {
            const bp_forced *one = &o->infos[k].forced;

            if (last == 0 && one->has_first && one->first != known->first)
                return differ_in_number(o, j, k, "forced first tokens", known->first, one->first);
            if (last == 1 && one->has_last && one->last != known->last)
                return differ_in_number(o, j, k, "forced last tokens", known->last, one->last);
        }
    }
    return BP_OK;
}

static const char *frame_name(const bp_model_info *info)
{
    return info->frames ? "cls and sep" : info->task.unframed ? "none" : "an end";
}

/* All members with the head of a task read the texts that are made for the first one. */
static bp_err compare_frames(const opening *o, int64_t k)
{
    const bp_model_info *first = &o->infos[0], *one = &o->infos[k];
    const bp_task_shape *known = &first->task, *task = &one->task;

    if (!bp_task_has_head(task))
        return BP_OK;
    if (strcmp(frame_name(one), frame_name(first)) != 0)
        return differ(o, 0, k, "tokens around texts", frame_name(first), frame_name(one));
    if (task->begins != known->begins) /* one was made by an earlier version */
        return differ(o, 0, k, "beginnings of texts", known->begins ? "bos" : "none",
                      task->begins ? "bos" : "none");
    if (bp_task_trimmed(task) != bp_task_trimmed(known)) /* or by one */
        return differ_in_number(o, 0, k, "paddings (-1: none)", bp_task_trimmed(known) - 1,
                                bp_task_trimmed(task) - 1);
    if (task->separators != known->separators)
        return differ_in_number(o, 0, k, "separators of two texts", known->separators,
                                task->separators);
    if (!bp_task_is_framed_as(task, known))
        return differ(o, 0, k, "segments of two texts", known->one_segment ? "one" : "two",
                      task->one_segment ? "one" : "two");
    return BP_OK;
}

/* Check that members are compatible. An unknown value is compatible with all; known values must
 * agree, in any order. */
static bp_err compare_infos(const opening *o)
{
    const bp_model_info *infos = o->infos;
    int64_t hashed = first_tokenizer(o), ended = first_eod(o);
    int64_t begun = infos[0].has_bos ? 0 : -1; /* the first whose beginning token is known */

    for (int64_t k = 1; k < o->models; k++) {
        const bp_model_info *one = &infos[k];

        if (one->vocab_size != infos[0].vocab_size)
            return differ_in_number(o, 0, k, "vocab_size", infos[0].vocab_size, one->vocab_size);
        if (one->task.kind != infos[0].task.kind ||
            strcmp(one->labels_hash, infos[0].labels_hash) != 0)
            return differ(o, 0, k, "tasks or classes", bp_task_name(infos[0].task.kind),
                          bp_task_name(one->task.kind));
        if (compare_frames(o, k) != BP_OK)
            return BP_ERR_FORMAT;
        if (one->words != infos[0].words)
            return differ_in_number(o, 0, k, "vocab_size", infos[0].words, one->words);
        if (one->masks != infos[0].masks)
            return differ(o, 0, k, "objectives", infos[0].masks ? "masked" : "causal",
                          one->masks ? "masked" : "causal");
        if (one->reads_source != infos[0].reads_source)
            return differ(o, 0, k, "inputs",
                          infos[0].reads_source ? "a source and a target" : "a text",
                          one->reads_source ? "a source and a target" : "a text");
        if (one->start_token != infos[0].start_token)
            return differ_in_number(o, 0, k, "start tokens", infos[0].start_token,
                                    one->start_token);
        if (one->eod_id >= 0 && one->eod_id != infos[ended].eod_id)
            return differ_in_number(o, ended, k, "end-of-document tokens", infos[ended].eod_id,
                                    one->eod_id);
        if (one->has_bos && begun >= 0 && one->bos_id != infos[begun].bos_id)
            return differ_in_number(o, begun, k, "beginning-of-text tokens", infos[begun].bos_id,
                                    one->bos_id);
        if (one->has_bos && begun < 0)
            begun = k;
        if (one->tokenizer_hash[0] &&
            !bp_tokenizer_same_hash(one->tokenizer_hash, infos[hashed].tokenizer_hash))
            return differ(o, hashed, k, "tokenizers", infos[hashed].tokenizer_hash,
                          one->tokenizer_hash);
    }
    return compare_forced(o);
}

static bp_err check_sampler(const opening *o)
{
    const bp_model_info *info = &o->infos[0];

    if (members_differ_in(o, BP_MEMBER_HEADS) && !bp_task_is_softmax(&info->task))
        return BP_FAIL(BP_ERR_CONFIG, "ensemble.no_outcomes",
                       "members by :%s are distributions over the outcomes of a token or text, and "
                       "this model predicts %s: at %s; leave :%s out",
                       o->sampler->ops->word, bp_task_name(info->task.kind), o->spec->path,
                       o->sampler->ops->word);
    return o->sampler && o->sampler->ops->check
               ? o->sampler->ops->check(o->sampler, info, o->spec->path)
               : BP_OK;
}

/* ---- the ensemble's metadata ---- */

/* The hash of all members' weights in order, and of the way they are made. */
static void digest(const opening *o, char out[65])
{
    char way[96] = "list";
    const char **digests;

    if (!o->listed && !o->sampler) {
        memcpy(out, o->infos[0].digest, sizeof o->infos[0].digest);
        return;
    }
    if (o->sampler)
        o->sampler->ops->identify(o->sampler, way, sizeof way);
    digests = bp_alloc("infer.ensemble", o->models, sizeof *digests);
    for (int64_t k = 0; k < o->models; k++)
        digests[k] = o->infos[k].digest;
    bp_ensemble_digest(way, digests, o->models, out);
    bp_free(digests);
}

/* A variance takes one place after the logits of a Gaussian process
 * (nn/heads/random_features.c). */
static unsigned extras_of(const opening *o)
{
    const bp_model_info *info = &o->self->model.info;
    bool process = true;

    if (!bp_task_has_head(&info->task) || !bp_task_is_softmax(&info->task))
        return 0;
    for (int64_t k = 0; k < o->models; k++)
        process = process && o->infos[k].task.features > 0 &&
                  o->infos[k].task.outcomes < o->infos[k].width;
    return (unsigned)bp_model_is_prior(info) << BP_EXTRA_SPREAD | 1U << BP_EXTRA_NORMALISER |
           (unsigned)process << BP_EXTRA_VARIANCE |
           (unsigned)(o->sampler && o->sampler->ops->distance != NULL) << BP_EXTRA_DISTANCE;
}

static bp_err fill_info(opening *o)
{
    ensemble *self = o->self;
    const bp_mesh *mesh = self->mesh;
    bp_model_info *info = &self->model.info;

    *info = o->infos[0];
    info->kind = "ensemble";
    info->members = self->member_count;
    info->extras = extras_of(o);
    if (o->spec->sets) {
        self->sets = *o->spec->sets;
        info->sets = true;
    }
    if (o->spec->temperature > 0) {
        self->beta = (double)(float)(1 / o->spec->temperature); /* as kernels take it */
        info->tempered = true;
    }
    info->statistics = bp_model_first_member(info) + self->member_count +
                       bp_model_extras_before(info->extras, BP_MODEL_EXTRAS);
    for (int64_t k = 0; k < o->models; k++) {
        const bp_model_info *one = &o->infos[k];

        info->context = one->context < info->context ? one->context : info->context;
        if (one->trained_context > 0 &&
            (info->trained_context == 0 || one->trained_context < info->trained_context))
            info->trained_context = one->trained_context;
        info->step = one->step > info->step ? one->step : info->step;
        info->order = one->order == 0 || info->order == 0 ? 0
                      : one->order > info->order          ? one->order
                                                          : info->order;
        info->may_be_zero = info->may_be_zero || one->may_be_zero;
        self->widest = one->width > self->widest ? one->width : self->widest;
    }
    info->width = self->widest;
    info->eod_id = o->infos[first_eod(o)].eod_id;
    take_roles(info, o);
    memcpy(info->tokenizer_hash, o->infos[first_tokenizer(o)].tokenizer_hash,
           sizeof info->tokenizer_hash);
    bp_vocab_share(&(bp_nn){.tensor_rank = mesh->tensor_rank, .tensor_ranks = mesh->tensor_ranks},
                   info->vocab_size, &info->vocab_first, &info->vocab_count);
    self->columns =
        ensemble_columns(info->vocab_count, mesh->member_index, mesh->members, &self->column_first);
    self->column_first += info->vocab_first;
    digest(o, info->digest);
    return BP_OK;
}

static bp_err check_memory(const opening *o)
{
    size_t row = ensemble_row_bytes(o->self);

    if (row <= o->spec->memory_bytes)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "score.memory_too_small",
                   "score.memory, with the value %zu bytes, is too small for the distributions of "
                   "%lld members over one token, %zu bytes: at score.memory; use %zuKiB or more, "
                   "or more tensor or member ranks",
                   o->spec->memory_bytes, (long long)o->self->member_count, row,
                   (row + 1023) / 1024);
}

/* ---- their weights ---- */

/* Collective over mesh->member. */
static bp_err open_models(opening *o)
{
    ensemble *self = o->self;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < o->models && err == BP_OK; k++) {
        if (!is_here(o, k))
            continue;
        bp_model_wish wish = {.context = o->spec->context,
                              .differentiates = o->spec->differentiates};
        if (members_differ_in(o, BP_MEMBER_WEIGHTS))
            o->sampler->ops->wish(o->sampler, k, &wish);
        err = bp_model_of_checkpoint(&self->models[self->model_count], self->mesh, o->config,
                                     o->checkpoints[k], wish);
        bp_checkpoint_close(&o->checkpoints[k]);
        if (err == BP_OK)
            self->model_count++;
        else if (o->listed)
            err = bp_err_prefix(err, "member '%s'", o->list.members[k].name);
    }
    return err;
}

/* Another run of a backbone for member k. */
static bp_err add_backbone(opening *o, int64_t k)
{
    ensemble *self = o->self;
    const bp_mesh *mesh = self->mesh;
    bp_model *model = self->models[are_many(o) ? self->backbone_count : 0];

    BP_ASSERT(model->ops->distribution || !ensemble_is_of_texts(self));
    if (!model->ops->backbone)
        return BP_FAIL(BP_ERR_CONFIG, "ensemble.split_member",
                       "a member of kind %s can't be split, but mesh.tensor = %d and "
                       "mesh.pipeline = %d: at member %lld; leave both at 1",
                       model->info.kind, mesh->tensor_ranks, mesh->pipeline_ranks, (long long)k);
    self->backbones[self->backbone_count++] = (ensemble_backbone){
        .model = model, .pass = BP_MODEL_NO_DROPOUT, .width = model->info.width};
    return BP_OK;
}

static bp_err place_member(opening *o, int64_t k)
{
    ensemble *self = o->self;
    ensemble_backbone *backbone;
    bool shares = members_differ_in(o, BP_MEMBER_HEADS) && self->backbone_count > 0;
    bp_err err = shares ? BP_OK : add_backbone(o, k);

    if (err != BP_OK)
        return err;
    self->members[k].backbone = self->backbone_count - 1;
    backbone = &self->backbones[self->members[k].backbone];
    bp_member_place at = {.model = backbone->model,
                          .member = k,
                          .last = ensemble_is_last(self),
                          .dropout = BP_MODEL_NO_DROPOUT};
    if (o->sampler && o->sampler->ops->add)
        err = o->sampler->ops->add(o->sampler, &at);
    backbone->pass = at.dropout;
    self->members[k].head = at.head;
    return err;
}

/* Local. */
static bp_err place_members(opening *o)
{
    const ensemble *self = o->self;
    bp_err err = BP_OK;

    for (int64_t k = self->mesh->member_index; k < self->member_count && err == BP_OK;
         k += self->mesh->members)
        err = place_member(o, k);
    return err;
}

/* ---- all of it ---- */

/* Up to where weights begin. Collective over mesh->compute. */
static bp_err open_lists(opening *o)
{
    const bp_mesh *mesh = o->self->mesh;
    bp_err err = bp_agree(mesh->compute, read_list(o));

    if (err == BP_OK && o->sampler && o->sampler->ops->open)
        err = o->sampler->ops->open(o->sampler, mesh->compute);
    if (err == BP_OK)
        err = bp_agree(mesh->compute, describe(o));
    if (err == BP_OK)
        err = bp_agree(mesh->compute, bp_comm_is_root(mesh->compute) ? look_for_members(o) : BP_OK);
    if (err == BP_OK)
        err = bp_agree(mesh->compute, open_checkpoints(o));
    if (err != BP_OK)
        return err;
    share_infos(o);
    err = compare_infos(o);
    if (err == BP_OK)
        err = check_sampler(o);
    if (err == BP_OK)
        err = fill_info(o);
    if (err == BP_OK)
        err = check_memory(o);
    return bp_agree(mesh->compute, err);
}

static void close_opening(opening *o)
{
    for (int64_t k = 0; o->checkpoints && k < o->models; k++)
        bp_checkpoint_close(&o->checkpoints[k]);
    bp_free(o->checkpoints);
    bp_free(o->infos);
    if (o->sampler && o->sampler->ops->close)
        o->sampler->ops->close(o->sampler);
    bp_ensemble_list_clear(&o->list);
}

bp_err bp_ensemble_open(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                        const bp_ensemble_spec *spec)
{
    ensemble *self = bp_alloc("infer.ensemble", 1, sizeof *self);
    opening o = {.self = self, .config = config, .spec = spec, .sampler = spec->sampler};
    bp_err err = bp_agree(mesh->compute, self ? BP_OK : out_of_memory());

    *out = NULL;
    if (err != BP_OK) {
        bp_free(self);
        return err;
    }
    self->model.ops = &ensemble_ops;
    self->mesh = mesh;
    self->sampler = spec->sampler;
    self->memory_bytes = spec->memory_bytes;
    err = open_lists(&o);
    if (err == BP_OK)
        err = bp_agree(mesh->compute, open_models(&o));
    if (err == BP_OK)
        err = bp_agree(mesh->compute, place_members(&o));
    close_opening(&o);
    if (err != BP_OK) {
        ensemble_free(&self->model);
        return err;
    }
    *out = &self->model;
    return BP_OK;
}
