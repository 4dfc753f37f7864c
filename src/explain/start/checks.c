/* Checks, before anything is computed, that the requested methods can explain the model and texts.
 * Called by explain.c. */
#include "explain/start/start.h"

#include "base/files/fs.h"
#include "base/files/hash.h"
#include "models/network/weights.h"

#include <inttypes.h>
#include <string.h>

void explain_find_methods(explainer *self)
{
    const char *list = bp_explain_keys_of(self->job->config)->methods;

    self->count = 0;
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if (bp_explain_position(list, *method))
            self->methods[self->count++] = *method;
}

bool explain_goes_backward(const explainer *self)
{
    bool backward = !bp_weights_are_q8(self->job->config);

    for (int k = 0; k < self->count; k++)
        backward = backward || self->methods[k]->backward;
    return backward;
}

/* Members are explained one after another. */
bp_err explain_check_ensemble(const explainer *self)
{
    int members = self->job->mesh->members;

    if (members > 1)
        return BP_FAIL(BP_ERR_CONFIG, "explain.members_in_turn",
                       "mesh.members = %d, but explanations take the members of an ensemble in "
                       "turn: at mesh.members; leave it at 1, and use more data ranks",
                       members);
    for (int k = 0; k < self->count; k++)
        if (self->methods[k]->collect || self->methods[k]->of_one)
            return BP_FAIL(BP_ERR_CONFIG, "explain.of_one",
                           "an ensemble can't be explained by %s, which is of one model: at "
                           "explain.methods; leave it out, or name one of its members at "
                           "explain.model",
                           self->methods[k]->name);
    return BP_OK;
}

/* Results by layer or head have one size for all members. */
static bp_err check_members(const explainer *self)
{
    const bp_model_info *first = self->settings.info;
    bool by_member = false;

    for (int k = 0; k < self->count; k++)
        by_member = by_member || !self->methods[k]->averages;
    for (int64_t m = 1; m < self->members && by_member; m++) {
        const bp_model_info *other = &explain_model_of(self, m)->info;

        if (other->layers != first->layers || other->heads != first->heads ||
            other->source_layers != first->source_layers)
            return BP_FAIL(BP_ERR_CONFIG, "explain.unlike_members",
                           "members of the ensemble have other layers or heads than the first: at "
                           "explain.methods; leave out attention, lens and counterfactual, or name "
                           "one member at explain.model");
    }
    return BP_OK;
}

static const struct {
    const char *word;
    explain_target target;
    bool words, masks, classes, spans; /* of models that write, masked ones, tasks */
} TARGETS[] = {{"next", EXPLAIN_NEXT, true, false, false, false},
               {"best", EXPLAIN_BEST, true, true, true, true},
               {"label", EXPLAIN_LABEL, false, true, true, true},
               {"every", EXPLAIN_EVERY, false, false, true, false}};

/* A value has no classes to choose from. */
static bp_err refuse_target(const bp_model_info *info, const char *word, const char *others)
{
    return BP_FAIL(BP_ERR_CONFIG, "explain.no_target",
                   "a model of kind %s%s%s can't be explained by explain.target = %s: at "
                   "explain.target; use %s",
                   info->kind, bp_task_has_head(&info->task) ? " for " : "",
                   bp_task_has_head(&info->task) ? bp_task_name(info->task.kind) : "", word,
                   others);
}

static bp_err find_target(explainer *self, const bp_model_info *info)
{
    const char *word = bp_explain_keys_of(self->job->config)->target;
    const bp_task_kind *kind = bp_task_kind_of(&info->task);
    bool task = bp_task_has_head(&info->task);

    self->target = task ? EXPLAIN_BEST : info->masks ? EXPLAIN_HIDDEN : EXPLAIN_NEXT;
    if (!word)
        return BP_OK;
    for (size_t k = 0; k < sizeof TARGETS / sizeof TARGETS[0]; k++)
        if (strcmp(word, TARGETS[k].word) == 0) {
            self->target = TARGETS[k].target;
            if (task          ? kind->is_value    ? self->target == EXPLAIN_BEST
                                : kind->has_names ? TARGETS[k].classes
                                                  : TARGETS[k].spans
                : info->masks ? TARGETS[k].masks
                              : TARGETS[k].words)
                return BP_OK;
            return refuse_target(info, word,
                                 task          ? kind->is_value    ? "best"
                                                 : kind->has_names ? "best, label, every, or a name"
                                                                   : "best or label"
                                 : info->masks ? "label or best"
                                               : "next or best");
        }
    self->target = EXPLAIN_CLASS;
    if (task && kind->has_names)
        return BP_OK;
    return refuse_target(info, word,
                         task && kind->is_value ? "best"
                         : task                 ? "best or label"
                         : info->masks          ? "label or best"
                                                : "next or best");
}

/* The methods that explain such a model, with commas. */
static void list_methods(const bp_model_info *info, bp_buffer *out)
{
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if (!(*method)->lacks || !(*method)->lacks(info))
            bp_buffer_printf(out, "%s%s", out->bytes > 0 ? ", " : "", (*method)->name);
}

static bp_err refuse_method(const bp_model_info *info, const char *name, const char *lacks)
{
    bp_buffer others = {0};
    bp_err err;

    list_methods(info, &others);
    err = BP_FAIL(BP_ERR_CONFIG, "explain.lacking",
                  "a model of kind %s can't be explained by %s: %s: at explain.methods; leave it "
                  "out; the model has %s",
                  info->kind, name, lacks, others.bytes > 0 ? others.data : "none");
    bp_buffer_clear(&others);
    return err;
}

static bp_err check_datastore(const explainer *self)
{
    const bp_explain_keys *keys = bp_explain_keys_of(self->job->config);
    bool compares = bp_explain_position(keys->methods, &bp_explain_sources);

    if (compares && !keys->datastore)
        return BP_FAIL(BP_ERR_CONFIG, "explain.no_datastore",
                       "explain.methods = sources needs a datastore: at explain.datastore; score "
                       "the training texts with this model and %s, and give the file",
                       bp_task_has_head(&self->settings.info->task) ? "score.vectors=mean"
                                                                    : "score.states=yes");
    if (keys->datastore && !compares)
        return BP_FAIL(BP_ERR_CONFIG, "explain.unused_datastore",
                       "explain.datastore is of the method sources, which is not asked for: at "
                       "explain.datastore; leave it out, or add sources to explain.methods");
    return BP_OK;
}

static bp_err check_sets(const explainer *self)
{
    const bp_explain_keys *keys = bp_explain_keys_of(self->job->config);
    bool compares = bp_explain_position(keys->methods, &bp_explain_contrast_sets);

    if (compares && (!keys->sets || keys->texts))
        return BP_FAIL(BP_ERR_CONFIG, "explain.no_sets",
                       "explain.methods = contrast_sets needs a label of the corpus, or a list, "
                       "that says which "
                       "documents belong together: at explain.sets; set it, with explain.corpus");
    return BP_OK;
}

static bp_err check_methods(const explainer *self)
{
    bp_err err;

    for (int k = 0; k < self->count; k++) {
        const char *lacks =
            self->methods[k]->lacks ? self->methods[k]->lacks(self->settings.info) : NULL;

        if (lacks)
            return refuse_method(self->settings.info, self->methods[k]->name, lacks);
    }
    err = check_datastore(self);
    if (err == BP_OK)
        err = check_sets(self);
    if (err != BP_OK)
        return err;
    if (self->prefers && self->job->model->info.log_probabilities)
        return BP_FAIL(
            BP_ERR_CONFIG, "explain.no_best",
            "a head that mixes softmaxes, or of entmax, gives no whole distributions: at "
            "explain.target = best, or explain.methods = contrast; use explain.target=next and "
            "other methods");
    return BP_OK;
}

/* A text of explain.texts is one text; or, of outputs.jsonl, one with its prompt. */
static bp_err check_texts(const bp_model_info *info, const char *path)
{
    const bp_task_kind *kind = bp_task_kind_of(&info->task);
    bool pairs = info->reads_source && !bp_task_has_head(&info->task);
    const char *reads = pairs && strstr(bp_path_base(path), ".jsonl") ? NULL
                        : pairs                                       ? "a source and its target"
                        : kind->over_positions                        ? "a question and its context"
                        : kind->at_words ? "texts that are cut into words"
                                         : NULL;

    return reads ? BP_FAIL(BP_ERR_CONFIG, "explain.no_pairs",
                           "a model of kind %s reads %s, which a line of text does not have: at "
                           "explain.texts; make a corpus with bagpipe-data corpus%s, and give it "
                           "at explain.corpus%s",
                           info->kind, reads, pairs ? " --format pairs SOURCE TARGET" : "",
                           pairs ? ", or give outputs.jsonl of bagpipe generate here" : "")
                 : BP_OK;
}

bp_err explain_check(explainer *self)
{
    const bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    const bp_model_info *info = self->settings.info;
    int64_t bytes;
    bp_err err = job->model ? find_target(self, info) : BP_OK;

    self->prefers = self->target == EXPLAIN_BEST || self->target == EXPLAIN_HIDDEN ||
                    bp_explain_position(keys->methods, &bp_explain_contrast);
    if (err == BP_OK && keys->context > info->context)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.context_too_long",
                      "explain.context = %" PRId64 " is more than the model's %" PRId64
                      ": at explain.context; use %" PRId64 " or less",
                      keys->context, info->context, info->context);
    if (err == BP_OK && (info->masks || bp_task_has_head(&info->task)) && keys->context > 0 &&
        keys->context < BP_TASK_CONTEXT)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.context_too_short",
                      "explain.context = %" PRId64 " has no place for a text between the model's "
                      "special tokens: at explain.context; use %d or more",
                      keys->context, BP_TASK_CONTEXT);
    if (err == BP_OK && keys->texts && job->model)
        err = check_texts(info, keys->texts);
    if (err == BP_OK && keys->masks && !info->masks)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.unused_masks",
                      "explain.masks is of masked models, which explain.model is not: at "
                      "explain.masks; leave it out");
    if (err == BP_OK && keys->masks)
        err = bp_sha256_of_file(keys->masks, self->masks_hash, &bytes);
    if (err == BP_OK && explain_sets_are_listed(keys->sets))
        err = bp_sha256_of_file(keys->sets, self->sets_hash, &bytes);
    if (err == BP_OK && job->model && strcmp(keys->choose, "hardest") == 0 &&
        (info->masks || bp_task_has_head(&info->task)))
        err = BP_FAIL(BP_ERR_CONFIG, "explain.no_hardest",
                      "explain.choose = hardest is of models that write texts, which explain.model "
                      "is not: at explain.choose; use first or random");
    if (err == BP_OK && job->model)
        err = check_members(self);
    return err == BP_OK && job->model ? check_methods(self) : err;
}
