/* Setup of methods that change inputs: words, the token that replaces removed ones, the methods
 * whose order of inputs is measured. Called by explain.c, load.c and document.c. */
#include "explain/explainer.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/process/heartbeat.h"
#include "explain/perturbation/features.h"
#include "explain/perturbation/flips.h"
#include "explain/perturbation/shapley.h"
#include "explain/perturbation/variants.h"

#include <inttypes.h>
#include <string.h>

void explain_setup(explainer *self)
{
    bp_explain_settings *settings = &self->settings;

    settings->keys = bp_explain_keys_of(self->job->config);
    settings->seed = (uint64_t)bp_run_keys_of(self->job->config)->seed;
    settings->removal = -1;
    settings->ranks = self->ranks;
    settings->ranks_count = 0;
    for (int k = 0; k < self->count; k++)
        if (self->methods[k]->ranks)
            self->ranks[settings->ranks_count++] = self->methods[k]->name;
}

/* ---- words ---- */

static void use_words(explainer *self)
{
    bool words = strcmp(self->settings.keys->features, "words") == 0 && self->words.count > 0;

    self->settings.words =
        words ? (bp_explain_words){self->words.parts, self->words.same} : (bp_explain_words){0};
}

static bool changes_inputs(const explainer *self)
{
    for (int k = 0; k < self->count; k++)
        if (self->methods[k]->changes)
            return true;
    return false;
}

static bp_err find_removal(explainer *self)
{
    const char *name = self->settings.keys->removal;
    bp_role role = strcmp(name, "mask") == 0 ? BP_ROLE_MASK : BP_ROLE_PAD;

    if (strcmp(name, "delete") == 0 || !changes_inputs(self))
        return BP_OK;
    self->settings.removal = self->roles[role];
    if (self->settings.removal >= 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "explain.no_token",
                   "neither model nor corpus names a token for '%s': at explain.removal; use "
                   "explain.removal=delete, or make the corpus with a tokenizer that has one",
                   name);
}

/* All sets of words are 2 to the power of their number. */
static bp_err check_words(explainer *self, explain_reading *read, int64_t d)
{
    explain_features features;
    int64_t count;
    bp_err err = self->texts.sizes[d].K > 0 ? explain_texts_read(&self->texts, d, read) : BP_OK;

    if (err != BP_OK || self->texts.sizes[d].K == 0)
        return err;
    explain_features_of(&features, &self->settings, &read->document);
    count = features.count;
    explain_features_clear(&features);
    if (count <= EXPLAIN_SHAPLEY_ALL)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "explain.many_words",
                   "document %" PRId64 " has %" PRId64 " words, and all sets are made of %d at "
                   "most: at explain.shapley = exact; use explain.shapley=auto, a smaller "
                   "explain.context, or explain.group",
                   d, count, EXPLAIN_SHAPLEY_ALL);
}

static bp_err check_exact(explainer *self)
{
    explain_reading read;
    bp_err err = BP_OK;

    if (strcmp(self->settings.keys->shapley, "exact") != 0 ||
        !bp_explain_position(self->settings.keys->methods, &bp_explain_shapley))
        return BP_OK;
    explain_reading_new(&read, &self->texts);
    for (int64_t d = 0; d < self->texts.documents && err == BP_OK; d++) {
        if (d % 1024 == 0)
            bp_heartbeat_progress();
        err = check_words(self, &read, d);
    }
    explain_reading_clear(&read);
    return err;
}

bp_err explain_setup_load(explainer *self)
{
    bp_err err = explain_words_open(&self->words, self->texts.corpus, self->job->info.words);

    use_words(self);
    if (err == BP_OK)
        err = find_removal(self);
    if (err == BP_OK && self->job->mesh->coordinates)
        err = check_exact(self);
    return err;
}

void explain_setup_share(explainer *self)
{
    bp_bcast_bytes(&self->settings.removal, sizeof self->settings.removal, 0,
                   self->job->mesh->world);
    explain_words_share(&self->words, self->job->mesh->world);
    use_words(self);
}

/* ---- orders of inputs ---- */

void explain_setup_rank(explainer *self, const bp_explain_method *method,
                        const bp_explain_form *form, const float *results)
{
    const float *at[BP_EXPLAIN_ARRAYS];
    int64_t row = 0;

    if (!method->ranks)
        return;
    while (strcmp(self->ranks[row], method->name) != 0)
        row++;
    bp_explain_lay_out(at, method, form, results);
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++)
        if (strcmp(method->arrays[k].name, method->ranks) == 0)
            self->rankings[row] =
                (bp_explain_ranking){at[k], method->arrays[k].shape == BP_EXPLAIN_BY_POSITIONS};
}

/* ---- messages ---- */

void explain_setup_report(const explainer *self)
{
    const json_t *shapley =
        json_object_get(json_object_get(self->summary, "methods"), bp_explain_shapley.name);
    double share = json_number_value(json_array_get(json_object_get(shapley, "undetermined"), 0));

    if (share > 0)
        BP_WARN("explain.few_samples",
                "the texts that were drawn do not determine the Shapley values of %.1f %% of the "
                "targets: at explain.samples = %" PRId64 "; use more, or explain.group",
                100 * share, self->settings.keys->samples);
}

/* ---- memory ---- */

int64_t explain_setup_floats(const explainer *self, const bp_config *config,
                             const bp_explain_form *form, int64_t width)
{
    const bp_explain_keys *keys = bp_explain_keys_of(config);
    int64_t sets = (int64_t)1 << EXPLAIN_SHAPLEY_ALL;

    sets = keys->samples > sets ? keys->samples : sets;
    /* sets of words, a byte each, with a double for each class and two more; tables of words'
     * vectors; replaced tokens, with three doubles each; log-probabilities of a batch */
    return changes_inputs(self)
               ? sets * (form->T / 4 + 2 * form->foils + 6) + 2 * EXPLAIN_FLIP_ROWS * width +
                     form->T * keys->flips * 9 + EXPLAIN_LOG_P
               : 0;
}
