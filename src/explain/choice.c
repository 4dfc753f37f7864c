/* explain.choose: how hard each document is comes of units of their own, which are done before the
 * others. Called by explain.c and explain_file.c. */
#include "explain/explain_priv.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"

#include <string.h>

#define PARTS "choice"

static bp_err prepare(void *context)
{
    explainer *self = context;

    self->tokens = bp_alloc("explain", self->settings.most + 1, sizeof *self->tokens);
    self->log_p = bp_alloc("explain", self->settings.most, sizeof *self->log_p);
    return BP_OK;
}

static void release(void *context)
{
    explainer *self = context;

    bp_free(self->log_p);
    bp_free(self->tokens);
    self->log_p = NULL;
    self->tokens = NULL;
}

/* The mean of -log p of a document's tokens. */
static bp_err run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    explainer *self = context;
    bp_model_batch batch = {.windows = 1, .inputs = self->tokens, .targets = self->tokens + 1};
    int64_t T = 0;
    double sum = 0;
    bp_err err = BP_OK, given = BP_OK;

    (void)stopped;
    bp_heartbeat_progress();
    if (self->job->leads) {
        err = explain_texts_read(&self->texts, unit, self->tokens);
        T = err == BP_OK ? self->texts.places[unit] : 0;
        bp_work_ask_next(self->job);
    }
    bp_bcast_bytes(&T, sizeof T, 0, self->settings.group);
    bp_bcast_bytes(self->tokens, (T + 1) * (int64_t)sizeof *self->tokens, 0, self->settings.group);
    batch.length = T;
    if (T > 0)
        given = bp_model_score(self->job->lm, &batch, self->log_p);
    for (int64_t t = 0; t < T; t++)
        sum -= (double)self->log_p[t] / (double)T;
    if (err == BP_OK && given == BP_OK && self->job->leads)
        bp_buffer_add(out, &sum, sizeof sum);
    return err == BP_OK ? given : err;
}

void explain_choice_units(explainer *self)
{
    const bp_explain_keys *keys = bp_explain_keys_of(self->job->config);

    if (strcmp(keys->choose, "hardest") == 0 && keys->examples > 0)
        self->choice = (bp_work_units){.parts = PARTS,
                                       .key = self->key,
                                       .count = self->texts.plan.documents,
                                       .mesh_keys = "mesh.tensor",
                                       .prepare = prepare,
                                       .run = run_unit,
                                       .release = release};
}

/* hardness[documents] of the parts. */
static bp_err read_hardness(const explainer *self, double *hardness)
{
    char *folder = bp_path_join(self->job->folder, PARTS);
    bp_part_result part = {0};
    bp_parts *parts = NULL;
    bp_err err;

    bp_dir_refresh(folder); /* other nodes wrote there */
    err = bp_parts_open(&parts, folder, self->key, self->texts.plan.documents, true);
    while (err == BP_OK && bp_parts_next(parts, &part, &err)) {
        err = bp_part_result_expect(&part, sizeof *hardness);
        if (err == BP_OK)
            memcpy(&hardness[part.unit], part.data, sizeof *hardness);
    }
    bp_parts_free(&parts);
    bp_free(folder);
    return err;
}

bp_err explain_choose(explainer *self)
{
    const bp_explain_keys *keys = bp_explain_keys_of(self->job->config);
    explain_choice choice = strcmp(keys->choose, "hardest") == 0  ? EXPLAIN_HARDEST
                            : strcmp(keys->choose, "random") == 0 ? EXPLAIN_RANDOM
                                                                  : EXPLAIN_FIRST;
    int64_t documents = self->texts.plan.documents;
    double *hardness;
    bp_err err = BP_OK;

    if (self->chosen)
        return BP_OK;
    hardness = bp_alloc("explain.examples", documents, sizeof *hardness);
    if (self->choice.run)
        err = read_hardness(self, hardness);
    if (err == BP_OK) {
        explain_examples_choose(&self->examples, choice, keys->examples, self->texts.places,
                                documents, hardness,
                                (uint64_t)bp_run_keys_of(self->job->config)->seed);
        self->chosen = true;
    }
    bp_free(hardness);
    return err;
}

int64_t explain_unit_floats(const explainer *self, const bp_explain_form *form, bool example)
{
    return explain_floats(self, form) +
           (example && self->examples.weights && form->T > 0 ? explain_weights_floats(form) : 0);
}
