/* One document: the outcomes that the model prefers, each method's results, their mean for an
 * ensemble, and its part. job/work.h calls it for each unit. */
#include "explain/document.h"

#include "base/mem.h"
#include "infer/ensemble/ensemble.h"

#include <string.h>

/* The model, or a member of the ensemble; NULL if it is not on this rank. */
bp_model *explain_model_of(const explainer *self, int64_t member)
{
    bp_model *model = self->job->model;

    return model && self->members > 0 ? bp_ensemble_member_model(model, member) : model;
}

/* The most floats of a document's results. */
static int64_t most_floats(const explainer *self)
{
    const explain_sizes *largest = &self->texts.largest;
    const bp_explained document = {.K = largest->K, .T = largest->T, .S = largest->S};
    const bp_explain_form form = explain_form(self, &document);

    return explain_unit_floats(self, &form, true);
}

bp_err explain_prepare(void *context)
{
    explainer *self = context;
    int64_t floats = most_floats(self),
            columns = bp_model_columns(self->settings.info, self->settings.most);
    bp_err err = self->job->leads && self->job->run ? explain_choose(self) : BP_OK;

    explain_reading_new(&self->read, &self->texts);
    if (self->prefers)
        self->log_p =
            bp_try_alloc("explain", EXPLAIN_LOG_P_POSITIONS * columns, sizeof *self->log_p);
    self->results = bp_try_alloc("explain", floats, sizeof *self->results);
    if (!self->results || (!self->log_p && self->prefers))
        return bp_fail_memory("results", floats, sizeof *self->results);
    return err == BP_OK ? explain_prepare_memories(self) : err;
}

void explain_release(void *context)
{
    explainer *self = context;

    bp_triggers_clear(&self->running);
    bp_free(self->results);
    bp_free(self->log_p);
    explain_reading_clear(&self->read);
}

/* The outcome with the highest probability, the first of equal ones; `other` is excluded. */
static int32_t find_first(const float *row, int64_t count, int32_t other)
{
    int32_t best = other == 0 && count > 1 ? 1 : 0;

    for (int64_t v = best; v < count; v++)
        if (v != other && row[v] > row[best])
            best = (int32_t)v;
    return best;
}

/* The target that the model prefers, and foils: for a text's class all others; else the model's
 * first choice, or its second if the target is the first. */
static void choose(explainer *self, int64_t k, const float *row, int64_t columns)
{
    explain_reading *read = &self->read;
    int64_t foils = bp_explain_foils(self->settings.info);
    int32_t first = find_first(row, columns, -1);

    if (self->settings.best)
        read->targets[k] = first;
    for (int32_t j = 0; j < foils; j++)
        read->foils[k * foils + j] = foils > 1                   ? j + (j >= read->targets[k])
                                     : read->targets[k] != first ? first
                                                                 : find_first(row, columns, first);
}

/* Choices for targets [first, first + count), whose positions ascend. */
static bp_err choose_some(explainer *self, int64_t first, int64_t count)
{
    const bp_explained *document = &self->read.document;
    bp_explain_batch batch;
    int64_t length = bp_explain_length(&self->settings, document, first + count - 1),
            columns = bp_model_columns(self->settings.info, length), row = -1;
    bp_err err = bp_agree(self->settings.group, bp_explain_batch_new(&batch, &self->settings));

    if (err == BP_OK) {
        bp_explain_batch_set(&batch, document, 0, first, length);
        for (int64_t k = first; k < first + count; k++)
            batch.targets[document->positions[k]] = 0;
        err = bp_model_distribution(self->job->model, &batch.batch, self->log_p, NULL);
    }
    for (int64_t k = first; k < first + count && err == BP_OK; k++) {
        row += k == first || document->positions[k] != document->positions[k - 1];
        choose(self, k, self->log_p + row * columns, columns);
    }
    bp_explain_batch_free(&batch);
    return err;
}

static bp_err find_choices(explainer *self)
{
    const bp_explained *document = &self->read.document;
    int64_t K = document->K, together = document->hides >= 0 ? 1 : EXPLAIN_LOG_P_POSITIONS;
    bp_err err = BP_OK;

    for (int64_t first = 0, count; first < K && err == BP_OK; first += count) {
        count = K - first < together ? K - first : together;
        err = bp_explain_step(&self->settings);
        if (err == BP_OK)
            err = choose_some(self, first, count);
    }
    return err;
}

/* The results of all methods for the document by one model: at[floats]. */
static bp_err run_methods(explainer *self, bp_model *model, float *at)
{
    const bp_explain_form form = explain_form(self, &self->read.document);
    bp_explain_settings settings = self->settings;
    float *to[BP_EXPLAIN_ARRAYS];
    bp_err err = BP_OK;

    settings.info = &model->info;
    for (int k = 0; k < self->count && err == BP_OK; k++) {
        if (self->methods[k]->run) {
            bp_explain_lay_out_to(to, self->methods[k], &form, at);
            err = self->methods[k]->run(model, &settings, &self->read.document, to);
            explain_setup_rank(self, self->methods[k], &form, at);
        }
        at += bp_explain_floats(self->methods[k], &form);
    }
    return err;
}

/* The mean of the members' results, which follow it: those of member m, from 1 on, are at mean[m
 * stride]. */
static void average(float *mean, int64_t members, int64_t floats, int64_t stride)
{
    for (int64_t i = 0; i < floats; i++) {
        double sum = 0;

        for (int64_t m = 1; m <= members; m++)
            sum += (double)mean[m * stride + i];
        mean[i] = (float)(sum / (double)members);
    }
}

/* Pages show the first member's results if there is no mean. */
static void join_members(explainer *self, const bp_explain_form *form, int64_t stride)
{
    float *at = self->results;

    for (int k = 0; k < self->count; k++) {
        int64_t floats = bp_explain_floats(self->methods[k], form);

        average(at, self->methods[k]->averages ? self->members : 1, floats, stride);
        at += floats;
    }
}

/* Explain the current document, which the lead has read. All ranks of its group call this. */
static bp_err explain_document(explainer *self, bool example)
{
    bp_err err = BP_OK;
    bp_explain_form form;
    int64_t floats;

    self->broken = false;
    explain_share_document(self, &example);
    form = explain_form(self, &self->read.document);
    floats = explain_floats(self, &form);
    if (self->read.document.K == 0)
        return BP_OK;
    memset(self->results, 0,
           (size_t)explain_unit_floats(self, &form, example) * sizeof *self->results);
    if (self->prefers && !bp_task_kind_of(&self->settings.info->task)->is_value)
        err = find_choices(self);
    if (err == BP_OK && self->members == 0)
        err = run_methods(self, self->job->model, self->results);
    for (int64_t m = 0; m < self->members && err == BP_OK; m++)
        err = run_methods(self, explain_model_of(self, m), self->results + (1 + m) * floats);
    if (err == BP_OK && self->members > 0)
        join_members(self, &form, floats);
    if (err == BP_OK && example && self->examples.weights)
        err = explain_weights_of(self->results + (1 + self->members) * floats,
                                 explain_model_of(self, 0), &self->settings, &self->read.document);
    if (err == BP_OK)
        err = explain_collect(self, &self->read.document);
    explain_look_at_results(self, &form);
    self->results[explain_unit_floats(self, &form, example) - 1] = self->broken;
    return err;
}

bp_err explain_run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    explainer *self = context;
    const bp_explained *document = &self->read.document;
    bool example = explain_examples_find(&self->examples, unit) >= 0;
    bp_err err = BP_OK, given;

    self->read.document = (bp_explained){0};
    self->settings.unit = unit;
    if (self->job->leads) {
        err = explain_texts_read(&self->texts, unit, &self->read);
        if (err != BP_OK)
            self->read.document = (bp_explained){0};
        self->read.document.number = unit;
        bp_work_ask_next(self->job);
    }
    given = explain_document(self, example);
    if (given == BP_ERR_STOPPED) {
        *stopped = true;
        return err;
    }
    if (err == BP_OK && given == BP_OK && self->job->leads && document->K > 0) {
        const bp_explain_form form = explain_form(self, document);

        bp_buffer_add(out, document->targets, (size_t)document->K * sizeof *document->targets);
        bp_buffer_add(out, self->results,
                      (size_t)explain_unit_floats(self, &form, example) * sizeof(float));
        if (self->shares.bytes > 0)
            bp_buffer_add(out, self->shares.data, self->shares.bytes);
    }
    return err == BP_OK ? given : err;
}

int64_t explain_count_targets(const void *context, int64_t unit)
{
    return ((const explainer *)context)->texts.sizes[unit].K;
}
