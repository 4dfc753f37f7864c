/* score.states: what each layer leaves of every token, and a mix of the layers (Peters et al. 2018,
 * equation 1), as HDF5. Texts are read whole (of models that give keys, windows are read as they
 * are scored: states_keys.c), in rounds of as many as there are data ranks; the coordinator writes
 * them in their order, so that the file does not depend on who computed what. */
#include "infer/score/states_priv.h"

#include "base/clock.h"
#include "base/decimal.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "io/h5/h5.h"
#include "mesh/collective.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION     1
#define TEXT_TOKENS 2048 /* of a text that is read whole, unless score.context says otherwise */
#define TAG_STATES  102
#define NAME_BYTES  32
#define WRITES      "while it wrote score/states.h5"

/* Where the next text begins. */
typedef struct place {
    int64_t document, token;
} place;

/* ---- the mix ---- */

/* As many numbers as there are layers; false: others. */
static bool read_weights(double *weights, const char *list, int64_t layers)
{
    const char *at = list;

    for (int64_t k = 0; k < layers; k++) {
        at += strspn(at, " ");
        size_t bytes = strcspn(at, ",");

        if (!bp_decimal(&weights[k], at, bytes) || at[bytes] != (k + 1 < layers ? ',' : '\0'))
            return false;
        at += bytes + 1;
    }
    return true;
}

static void soften(double *weights, int64_t layers)
{
    double most = -INFINITY, sum = 0;

    for (int64_t k = 0; k < layers; k++)
        most = fmax(most, weights[k]);
    for (int64_t k = 0; k < layers; k++) {
        weights[k] = exp(weights[k] - most);
        sum += weights[k];
    }
    for (int64_t k = 0; k < layers; k++)
        weights[k] /= sum;
}

void scorer_states_check(bp_config *config, const bp_model_info *model)
{
    const bp_score_keys *keys = bp_score_keys_of(config);
    double weights[STATE_LAYERS];

    if (!keys) /* of another job that scores */
        return;
    if (keys->mix_scale != 1 && keys->mix_scale != 0 && !keys->mix) /* 0: has no such key */
        bp_config_fault(config, "score.scale_without_mix",
                        "score.mix_scale = %g multiplies the mix of score.mix, which is not given: "
                        "at score.mix_scale; set score.mix too, or leave it out",
                        keys->mix_scale);
    if (keys->mix && !keys->states) {
        bp_config_fault(config, "score.mix_without_states",
                        "score.mix = %.60s mixes the layers of score.states, which is no: at "
                        "score.mix; set score.states=yes too",
                        keys->mix);
        return;
    }
    if (!keys->states || bp_task_has_head(&model->task)) /* which has been said */
        return;
    if (model->members > 0)
        bp_config_fault(config, "score.no_states",
                        "score.states = yes, but score.model is an ensemble of %" PRId64
                        ", and each member has states of its own: at score.states; score one "
                        "member (a member's run folder as score.model), or leave the key out",
                        model->members);
    else if (model->states.layers == 0 || model->states.layers > STATE_LAYERS)
        bp_config_fault(
            config, "score.no_states",
            "score.states = yes, but no states are returned of a model of kind %s: at "
            "score.states; take one of kind elmo, or a Transformer that continues texts or "
            "fills them in, or leave the key out",
            model->kind ? model->kind : "unknown");
    else if (keys->mix && model->states.keys)
        bp_config_fault(config, "score.bad_mix",
                        "score.mix = %.60s mixes layers, but a model of kind %s has one key a "
                        "token: at score.mix; leave it out",
                        keys->mix, model->kind ? model->kind : "unknown");
    else if (keys->mix && !read_weights(weights, keys->mix, model->states.layers))
        bp_config_fault(config, "score.bad_mix",
                        "score.mix = %.60s is no list of %" PRId64
                        " numbers, one a layer of the model: at score.mix; use 0,0,0 and so on",
                        keys->mix, model->states.layers);
}

/* ---- the texts ---- */

/* The next text of the plan, from `at` on; its count is 0 where there is none. Pieces of a document
 * that is longer than a text are texts of their own. */
static bp_err next_text(const state_job *job, place *at, state_text *out)
{
    const bp_score_plan *plan = &job->self->plan;
    bp_err err = BP_OK;

    out->count = 0;
    while (at->document < plan->documents && out->count == 0 && err == BP_OK) {
        bp_score_document document;
        int64_t left;

        err = bp_score_plan_document(plan, at->document, &document);
        if (err != BP_OK)
            return err;
        left = bp_score_plan_has(plan, at->document) ? document.text - at->token : 0;
        if (left <= 0) {
            *at = (place){at->document + 1, 0};
            continue;
        }
        *out = (state_text){.file = document.file,
                            .first = document.start + at->token,
                            .count = left < job->most ? left : job->most};
        out->row = plan->first_token[out->file] + out->first;
        at->token += out->count;
    }
    return err;
}

static bp_err list_texts(state_job *job)
{
    place at = {0, 0};
    int64_t capacity = 0;
    bp_err err;

    for (;;) {
        if (job->count == capacity) {
            capacity = 2 * capacity + 256;
            job->texts = bp_realloc("score.states", job->texts, capacity, sizeof *job->texts);
        }
        err = next_text(job, &at, &job->texts[job->count]);
        if (err != BP_OK || job->texts[job->count].count == 0)
            return err;
        job->count++;
    }
}

/* Of documents that are cut because nobody said how long a text may be. */
static void warn_of_pieces(const state_job *job)
{
    int64_t documents = 0, longest = 0, tokens = 0;

    for (int64_t k = 0; k < job->count; k++) {
        const state_text *text = &job->texts[k], *before = k > 0 ? &job->texts[k - 1] : NULL;
        bool goes_on = before && text->row == before->row + before->count;

        documents += goes_on && tokens == before->count;
        tokens = goes_on ? tokens + text->count : text->count;
        longest = tokens > longest ? tokens : longest;
    }
    if (documents > 0 && bp_score_rule_keys_of(job->self->config)->context == 0)
        BP_WARN("score.cut_states",
                "%" PRId64 " documents are longer than %" PRId64
                " tokens and are read in pieces, each without what is around it: at "
                "score.states; score.context=%" PRId64 " reads them whole, in more memory",
                documents, job->most, longest);
}

static void find_leads(state_job *job)
{
    const bp_mesh *mesh = job->self->mesh;
    int rank;

    BP_MPI(MPI_Comm_rank(mesh->world, &rank));
    for (int d = 0; d < mesh->datas; d++) {
        bool here = job->self->leads && mesh->data_at == d;

        job->leads[d] = (int)bp_all_max_int(here ? rank : -1, mesh->world);
    }
}

/* ---- the file ---- */

static bp_err make_layers(state_job *job)
{
    const bp_score_plan *plan = &job->self->plan;
    int64_t extent[] = {plan->first_token[plan->files], job->form.columns};
    bp_h5 *file = job->draft.file;
    char name[NAME_BYTES];
    bp_err err = bp_h5_write(file, "corpus_start", BP_H5_I64, plan->first_token, plan->files + 1);

    for (int64_t k = 0; k < job->form.layers && err == BP_OK; k++) {
        (void)snprintf(name, sizeof name, "layer_%" PRId64, k);
        err = bp_h5_make_array(file, name, BP_H5_F32, 2, extent, NULL);
    }
    if (err == BP_OK && job->mixed)
        err = bp_h5_make_array(file, "mix", BP_H5_F32, 2, extent, NULL);
    if (err == BP_OK && job->mixed)
        err = bp_h5_write(file, "mix_weights", BP_H5_F64, job->weights, job->form.layers);
    return err;
}

bp_err states_write_rows(state_job *job, int64_t row, int64_t count)
{
    int64_t C = job->form.columns, n = count * C;
    double scale = bp_score_keys_of(job->self->config)->mix_scale;
    char name[NAME_BYTES];
    bp_err err = BP_OK;

    for (int64_t k = 0; k < job->form.layers && err == BP_OK; k++) {
        (void)snprintf(name, sizeof name, "layer_%" PRId64, k);
        err = bp_h5_write_slab(job->draft.file, name, BP_H5_F32, row * C, job->states + k * n, n);
    }
    for (int64_t i = 0; job->mixed && i < n; i++) {
        double sum = 0;

        for (int64_t k = 0; k < job->form.layers; k++)
            sum += job->weights[k] * (double)job->states[k * n + i];
        job->mixed[i] = (float)(scale * sum);
    }
    if (err == BP_OK && job->mixed)
        err = bp_h5_write_slab(job->draft.file, "mix", BP_H5_F32, row * C, job->mixed, n);
    return err;
}

static bp_err write_gap_rows(state_job *job, int64_t row, int64_t count)
{
    int64_t C = job->form.columns;
    char name[NAME_BYTES];
    bp_err err = BP_OK;

    for (int64_t k = 0; k < job->form.layers && err == BP_OK; k++) {
        (void)snprintf(name, sizeof name, "layer_%" PRId64, k);
        err = bp_h5_write_slab(job->draft.file, name, BP_H5_F32, row * C, job->gap, count * C);
    }
    if (err == BP_OK && job->mixed)
        err = bp_h5_write_slab(job->draft.file, "mix", BP_H5_F32, row * C, job->gap, count * C);
    return err;
}

/* Rows of what is no text: end-of-document tokens, documents that are not scored. These may be
 * most of a corpus, so that a stop is looked for here too. */
bp_err states_write_gap(state_job *job, int64_t from, int64_t to)
{
    bp_err err = BP_OK;

    while (from < to && err == BP_OK) {
        int64_t count = to - from < job->most ? to - from : job->most;

        bp_heartbeat_progress();
        err = bp_signals_stop_asked() ? bp_stop_request_stopped(WRITES)
                                      : write_gap_rows(job, from, count);
        from += count;
    }
    return err;
}

/* ---- rounds ---- */

static bp_err read_tokens(const state_job *job, const state_text *text)
{
    bp_corpus_file *file = bp_corpus_file_at(job->self->corpus, text->file);

    return bp_corpus_file_read(file, text->first, text->count, job->tokens);
}

/* This group's text of a round. */
static bp_err compute_text(state_job *job, int64_t number)
{
    scorer *self = job->self;
    const bp_mesh *mesh = self->mesh;
    const state_text *text = &job->texts[number];
    bp_err err = bp_agree(mesh->ensemble, self->leads ? read_tokens(job, text) : BP_OK);

    if (err != BP_OK)
        return err;
    job->floats = job->form.layers * text->count * job->form.columns;
    bp_bcast_bytes(job->tokens, text->count * (int64_t)sizeof *job->tokens, 0, mesh->ensemble);
    return self->lm->ops->states(
        self->lm, &(bp_model_text){job->tokens, text->count, (int32_t)self->rule.eod}, job->states);
}

static bp_err store_text(state_job *job, int64_t number)
{
    const state_text *text = &job->texts[number];
    bp_err err = states_write_gap(job, job->written, text->row);

    if (err == BP_OK)
        err = states_write_rows(job, text->row, text->count);
    job->written = text->row + text->count;
    return err;
}

/* The round's results in their order, to the coordinator, which writes each and what lies before
 * it. Its own, if it leads, is the first one. A write that failed is reported later: the
 * others' results still come. */
static bp_err collect(state_job *job, int64_t first)
{
    scorer *self = job->self;
    const bp_mesh *mesh = self->mesh;
    int64_t size = (int64_t)sizeof(int64_t), each = (int64_t)sizeof *job->states;
    bp_err err = BP_OK;

    for (int d = 0; d < mesh->datas && first + d < job->count; d++) {
        bool own = self->leads && mesh->data_at == d;

        if (own && !mesh->coordinates) {
            bp_send(&job->floats, size, 0, TAG_STATES, mesh->world);
            bp_send(job->states, job->floats * each, 0, TAG_STATES, mesh->world);
        }
        if (mesh->coordinates && !own) {
            bp_recv(&job->floats, size, job->leads[d], TAG_STATES, mesh->world);
            bp_recv(job->states, job->floats * each, job->leads[d], TAG_STATES, mesh->world);
        }
        if (mesh->coordinates && err == BP_OK)
            err = job->store(job, first + d);
    }
    return err;
}

/* On the coordinator, now and then: how far `done` of the texts or units are. */
static void log_progress(const state_job *job, int64_t done, double began, double *printed)
{
    char left[64];

    if (done == 0 || !bp_log_progress_due(*printed))
        return;
    *printed = bp_clock_now();
    bp_clock_duration(left, sizeof left,
                      (*printed - began) * (double)(job->count - done) / (double)done);
    bp_log_progress("states  %.1f %%  %s left", 100 * (double)done / (double)job->count, left);
}

static bp_err run_rounds(state_job *job)
{
    scorer *self = job->self;
    const bp_mesh *mesh = self->mesh;
    double began = bp_clock_now(), printed = began;
    bp_err err = BP_OK;

    for (int64_t first = 0; first < job->count && err == BP_OK; first += mesh->datas) {
        int64_t own = first + mesh->data_at;

        bp_heartbeat_progress();
        if (mesh->coordinates)
            log_progress(job, first, began, &printed);
        if (bp_all_max_int(bp_signals_stop_asked(), mesh->world) != 0)
            return bp_stop_request_stopped(WRITES);
        if (mesh->computes && own < job->count)
            err = job->compute(job, own);
        err = bp_agree(mesh->world, err);
        if (err == BP_OK)
            err = bp_agree(mesh->world, collect(job, first));
    }
    if (err == BP_OK && mesh->coordinates)
        err = states_write_gap(job, job->written, self->plan.first_token[self->plan.files]);
    return bp_agree(mesh->world, err);
}

bp_err states_no_memory(int64_t tokens)
{
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                   "memory is short: at the states of %" PRId64
                   " tokens; use a smaller score.context",
                   tokens);
}

int64_t states_bytes(const bp_config *config, const bp_state_form *form, int64_t inputs,
                     int64_t statistics, int64_t context)
{
    int64_t asked = bp_score_rule_keys_of(config)->context, most = asked;

    if (form->keys)
        return states_key_bytes(form->columns, inputs, statistics);
    if (asked == 0)
        most = context < TEXT_TOKENS ? context : TEXT_TOKENS;
    /* all layers here, and on several stages in a buffer; the mix, and rows of a gap */
    return (2 * form->layers + 2) * most * form->columns * (int64_t)sizeof(float);
}

static bp_err prepare_texts(state_job *job)
{
    const scorer *self = job->self;
    const bp_score_keys *keys = bp_score_keys_of(self->config);
    int64_t columns = job->form.columns;

    if (self->rule.eod < 0 && (self->leads || self->mesh->coordinates))
        return BP_FAIL(BP_ERR_CONFIG, "score.no_states",
                       "score.states = yes reads a text between end-of-document tokens, but "
                       "neither corpus nor model names one: at score.states; make the corpus with "
                       "a tokenizer that has one");
    job->compute = compute_text;
    job->store = store_text;
    job->most = self->rule.context < TEXT_TOKENS || bp_score_rule_keys_of(self->config)->context > 0
                    ? self->rule.context
                    : TEXT_TOKENS;
    job->tokens = bp_alloc("score.states", job->most, sizeof *job->tokens);
    job->states =
        bp_try_alloc("score.states", job->form.layers * job->most * columns, sizeof *job->states);
    if (keys->mix) {
        job->mixed = bp_try_alloc("score.states", job->most * columns, sizeof *job->mixed);
        BP_CHECK(read_weights(job->weights, keys->mix, job->form.layers));
        soften(job->weights, job->form.layers);
    }
    return !job->states || (keys->mix && !job->mixed) ? states_no_memory(job->most) : BP_OK;
}

static bp_err prepare(state_job *job)
{
    const scorer *self = job->self;
    bp_err err = job->form.keys ? states_prepare_keys(job) : prepare_texts(job);

    job->leads = bp_alloc("score.states", self->mesh->datas, sizeof *job->leads);
    if (self->mesh->coordinates)
        job->gap = bp_try_alloc("score.states", job->most * job->form.columns, sizeof *job->gap);
    for (int64_t i = 0; job->gap && i < job->most * job->form.columns; i++)
        job->gap[i] = NAN;
    return err == BP_OK && self->mesh->coordinates && !job->gap ? states_no_memory(job->most) : err;
}

static bp_err write_file(state_job *job)
{
    scorer *self = job->self;
    bool coordinates = self->mesh->coordinates;
    char *path = bp_path_join(self->folder, "states.h5");
    bp_err err = BP_OK;

    if (coordinates) {
        err = bp_h5_draft_begin(&job->draft, path, VERSION);
        if (err == BP_OK)
            err = make_layers(job);
        if (err == BP_OK && job->form.keys)
            err = states_begin_keys(job);
    }
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK)
        err = run_rounds(job);
    if (err == BP_OK && coordinates) {
        err = bp_run_check_owner(self->job->run);
        if (err == BP_OK)
            err = bp_h5_draft_commit(&job->draft, "score-states", VERSION);
    }
    bp_h5_draft_end(&job->draft);
    bp_free(path);
    return bp_agree(self->mesh->world, err);
}

/* Ranks without a corpus know where texts begin from the coordinator. */
static bp_err share_texts(state_job *job)
{
    scorer *self = job->self;
    const bp_mesh *mesh = self->mesh;
    bp_err err = self->leads || mesh->coordinates ? list_texts(job) : BP_OK;

    err = bp_agree(mesh->world, err);
    if (err != BP_OK)
        return err;
    if (mesh->coordinates)
        warn_of_pieces(job);
    bp_bcast_bytes(&job->count, sizeof job->count, 0, mesh->world);
    job->texts = bp_realloc("score.states", job->texts, job->count + 1, sizeof *job->texts);
    bp_bcast_bytes(job->texts, job->count * (int64_t)sizeof *job->texts, 0, mesh->world);
    bp_bcast_bytes(&self->rule.eod, sizeof self->rule.eod, 0, mesh->world);
    return BP_OK;
}

bp_err scorer_run_states(scorer *self)
{
    state_job job = {.self = self, .form = self->info.states};
    bp_err err;

    if (!bp_score_keys_of(self->config)->states)
        return BP_OK;
    err = bp_agree(self->mesh->world, prepare(&job));
    if (err == BP_OK && job.form.keys)
        bp_bcast_bytes(&job.count, sizeof job.count, 0, self->mesh->world);
    else if (err == BP_OK)
        err = share_texts(&job);
    if (err == BP_OK) {
        find_leads(&job);
        err = write_file(&job);
    }
    states_clear_keys(&job);
    bp_free(job.gap);
    bp_free(job.mixed);
    bp_free(job.states);
    bp_free(job.tokens);
    bp_free(job.leads);
    bp_free(job.texts);
    return err;
}
