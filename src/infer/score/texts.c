/* Windows of texts in memory, in batches of similar lengths: scored, or their states stored. Called
 * by bagpipe-data metrics. */
#include "infer/score/texts.h"

#include "base/mem.h"
#include "infer/score/scorer.h"
#include "infer/score/tables/sums.h"
#include "infer/score/unit.h"
#include "nn/core/block.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A window of one text. For states, it feeds `count` tokens of the text from `first` on. */
typedef struct text_row {
    int64_t text;
    bp_score_window window;
} text_row;

typedef struct text_job {
    bp_model *model;
    const bp_score_rule *rule;
    const bp_token_texts *texts;
    text_row *rows; /* [count] the longest first */
    int64_t count;
    int32_t *inputs, *targets; /* of a batch */
    float *values;
    /* of states */
    int64_t layer, columns;
    float *hidden; /* of a batch, if the model itself returns it */
    float *states;
    /* of scores */
    bp_fixed *sums;
    int64_t *scored;
    bool *zeros; /* [texts] one has probability 0 */
} text_job;

/* ---- the rule ---- */

static bp_err find_specials(bp_score_rule *rule, const bp_tokenizer *tokenizer)
{
    static const bp_role needed[] = {BP_ROLE_CLS, BP_ROLE_SEP, BP_ROLE_MASK};
    int64_t *const ids[] = {&rule->cls, &rule->sep, &rule->mask};

    for (int k = 0; bp_score_masks(rule->convention) && k < 3; k++) {
        *ids[k] = tokenizer ? bp_tokenizer_role(tokenizer, needed[k]) : -1;
        if (*ids[k] < 0)
            return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                           "the tokenizer has no token for '%s', which a masked model needs: at "
                           "the model; give the model's own tokenizer",
                           bp_role_name(needed[k]));
    }
    return BP_OK;
}

bp_err bp_texts_rule(bp_score_rule *rule, const bp_model_info *model, const bp_tokenizer *tokenizer)
{
    static const bp_option *const tables[] = {bp_score_rule_options, NULL};
    int64_t eod = tokenizer ? bp_tokenizer_eod(tokenizer) : -1;
    bp_config *config = NULL;
    bp_err err;

    if (model->reads_source || bp_task_has_head(&model->task))
        return BP_FAIL(BP_ERR_CONFIG, "metrics.no_language_model",
                       "the model is not only a language model: it %s: at the model; name a causal "
                       "or a masked one",
                       model->reads_source ? "writes a target for a source"
                                           : "has the head of a task");
    err = bp_config_new(&config, tables, tables);
    if (err == BP_OK)
        err = bp_score_resolve(config, model, rule);
    if (err == BP_OK) {
        bp_score_resolve_ends(config, model->eod_id >= 0 ? model->eod_id : eod, -1, model, rule);
        err = find_specials(rule, tokenizer);
    }
    bp_config_free(&config);
    return err;
}

/* ---- rows and batches ---- */

static int64_t length_of(const bp_token_texts *texts, int64_t k)
{
    return texts->starts[k + 1] - texts->starts[k];
}

/* The longest first; equal ones in the order of the texts. */
static int compare_rows(const void *a, const void *b)
{
    const text_row *x = a, *y = b;

    if (x->window.inputs != y->window.inputs)
        return x->window.inputs < y->window.inputs ? 1 : -1;
    if (x->text != y->text)
        return x->text < y->text ? -1 : 1;
    return x->window.masked != y->window.masked
               ? (x->window.masked < y->window.masked ? -1 : 1)
               : (x->window.first > y->window.first) - (x->window.first < y->window.first);
}

/* The function called for a batch of rows [first, first + windows). */
typedef bp_err (*row_work)(text_job *job, int64_t first, const bp_model_batch *batch);
typedef void (*row_fill)(const text_job *job, const text_row *row, int64_t length, int32_t *inputs,
                         int32_t *targets);

static bp_err run_rows(text_job *job, row_fill fill, row_work work)
{
    int64_t longest, tokens;
    bp_err err = BP_OK;

    if (job->count == 0)
        return BP_OK;
    qsort(job->rows, (size_t)job->count, sizeof *job->rows, compare_rows);
    longest = job->rows[0].window.inputs;
    tokens = bp_score_batch_tokens(longest);
    job->inputs = bp_try_alloc("score.texts", tokens, sizeof *job->inputs);
    job->targets = bp_try_alloc("score.texts", tokens, sizeof *job->targets);
    job->values = bp_try_alloc("score.texts", tokens, sizeof *job->values);
    if (job->states)
        job->hidden = bp_try_alloc("score.texts", tokens * job->columns, sizeof *job->hidden);
    if (!job->inputs || !job->targets || !job->values || (job->states && !job->hidden))
        return bp_fail_memory("a batch of texts", tokens, sizeof(float));
    for (int64_t first = 0, windows; first < job->count && err == BP_OK; first += windows) {
        int64_t length = job->rows[first].window.inputs, most = bp_score_batch_windows(length);

        windows = job->count - first < most ? job->count - first : most;
        for (int64_t i = 0; i < windows; i++)
            fill(job, &job->rows[first + i], length, job->inputs + i * length,
                 job->targets + i * length);
        err = work(job, first,
                   &(bp_model_batch){.windows = windows,
                                     .length = length,
                                     .inputs = job->inputs,
                                     .targets = job->targets,
                                     .first_slot = first});
    }
    return err;
}

static void clear_job(text_job *job)
{
    bp_free(job->rows);
    bp_free(job->inputs);
    bp_free(job->targets);
    bp_free(job->values);
    bp_free(job->hidden);
    bp_free(job->sums);
    bp_free(job->zeros);
}

/* ---- scores ---- */

/* Place z of the line of a text (bp_score_rule). */
static int32_t token_at(const text_job *job, int64_t text, int64_t z)
{
    const bp_token_texts *texts = job->texts;
    int64_t k = z - job->rule->prefix;

    if (k < 0)
        return (int32_t)job->rule->lead;
    return k >= length_of(texts, text) ? (int32_t)job->rule->eod
                                       : texts->tokens[texts->starts[text] + k];
}

static void fill_scored(const text_job *job, const text_row *row, int64_t length, int32_t *inputs,
                        int32_t *targets)
{
    const bp_score_rule *rule = job->rule;
    const bp_score_window *w = &row->window;
    int64_t target = bp_score_window_target(w);

    for (int64_t j = 0; j < length; j++) {
        bool real = j < w->inputs;

        if (w->masked == 0) {
            inputs[j] = !real                   ? 0
                        : rule->every && j == 0 ? (int32_t)rule->lead
                                                : token_at(job, row->text, w->first + j);
            targets[j] = real && j >= target ? token_at(job, row->text, w->first + j + 1) : -1;
            continue;
        }
        inputs[j] = !real                ? -1
                    : j == 0             ? (int32_t)rule->cls
                    : j == w->inputs - 1 ? (int32_t)rule->sep
                    : j == w->masked     ? (int32_t)rule->mask
                                         : token_at(job, row->text, w->first + j - 1);
        targets[j] = j == w->masked ? token_at(job, row->text, w->first + j - 1) : -1;
    }
}

static bp_err take_scores(text_job *job, int64_t first, const bp_model_batch *batch)
{
    bp_err err = bp_model_score(job->model, batch, job->values);

    for (int64_t i = 0; i < batch->windows * batch->length && err == BP_OK; i++) {
        int64_t text = job->rows[first + i / batch->length].text;
        float value = job->values[i];

        if (batch->targets[i] < 0)
            continue;
        job->scored[text]++;
        if (job->model->info.may_be_zero && value < BP_MODEL_ZERO)
            job->zeros[text] = true;
        else if (isfinite(value))
            job->sums[text] += bp_fixed_of(-(double)value);
        else
            err = BP_FAIL(BP_ERR_SOFTWARE, "model.not_finite",
                          "the model gives a log-probability of %g: at text %" PRId64
                          "; its weights are not sound",
                          (double)value, text + 1);
    }
    return err;
}

/* Windows of all texts: counted (rows NULL), and written. */
static int64_t score_rows(text_row *rows, const bp_score_rule *rule, const bp_token_texts *texts)
{
    int64_t count = 0;

    for (int64_t k = 0; k < texts->count; k++) {
        int64_t line = bp_score_line(rule, length_of(texts, k)),
                windows = bp_score_window_count(rule, line);

        for (int64_t w = 0; w < windows; w++) {
            bp_score_window window = bp_score_window_at(rule, line, w);

            if (rows && window.scored > 0)
                rows[count] = (text_row){k, window};
            count += window.scored > 0;
        }
    }
    return count;
}

bp_err bp_texts_score(double *nll, int64_t *scored, bp_model *model, const bp_score_rule *rule,
                      const bp_token_texts *texts)
{
    int64_t count = score_rows(NULL, rule, texts);
    text_job job = {.model = model,
                    .rule = rule,
                    .texts = texts,
                    .rows = bp_try_alloc("score.texts", count, sizeof *job.rows),
                    .count = count,
                    .sums = bp_alloc("score.texts", texts->count, sizeof *job.sums),
                    .scored = scored,
                    .zeros = bp_alloc("score.texts", texts->count, sizeof *job.zeros)};
    bp_err err = job.rows ? BP_OK : bp_fail_memory("windows of texts", count, sizeof *job.rows);

    memset(scored, 0, (size_t)texts->count * sizeof *scored);
    if (err == BP_OK) {
        (void)score_rows(job.rows, rule, texts);
        err = run_rows(&job, fill_scored, take_scores);
    }
    for (int64_t k = 0; k < texts->count && err == BP_OK; k++)
        nll[k] = job.zeros[k] ? INFINITY : bp_fixed_real(job.sums[k]);
    clear_job(&job);
    return err;
}

/* ---- states ---- */

/* The tokens before a window's tokens. */
static int64_t lead_of(const bp_score_rule *rule)
{
    return bp_score_masks(rule->convention) || rule->prefix;
}

static int64_t frame_of(const bp_score_rule *rule)
{
    return bp_score_masks(rule->convention) ? 2 : rule->prefix;
}

int64_t bp_texts_window(const bp_score_rule *rule)
{
    return rule->context - frame_of(rule);
}

static void fill_whole(const text_job *job, const text_row *row, int64_t length, int32_t *inputs,
                       int32_t *targets)
{
    const bp_score_rule *rule = job->rule;
    const bp_token_texts *texts = job->texts;
    int64_t lead = lead_of(rule), count = row->window.inputs - frame_of(rule);
    bool masks = bp_score_masks(rule->convention);

    for (int64_t j = 0; j < length; j++) {
        inputs[j] = masks ? -1 : 0;
        targets[j] = -1;
    }
    if (lead > 0)
        inputs[0] = (int32_t)(masks ? rule->cls : rule->lead);
    memcpy(inputs + lead, texts->tokens + texts->starts[row->text] + row->window.first,
           (size_t)count * sizeof *inputs);
    if (masks)
        inputs[1 + count] = (int32_t)rule->sep;
    /* a head needs a target, whose result is not used; a text's length is up to its last one */
    if (count > 0)
        lead += count - 1;
    targets[lead] = inputs[lead];
}

/* A probe that stores the output of one block. */
typedef struct layer_probe {
    bp_probe probe;
    int64_t block, columns;
    float *hidden; /* [rows][columns]; NULL: only its columns are requested */
} layer_probe;

static void see(bp_probe *probe, const bp_probed *seen)
{
    layer_probe *self = (layer_probe *)probe;

    if (seen->block != self->block || strcmp(seen->what, "hidden") != 0)
        return;
    self->columns = seen->columns;
    if (self->hidden)
        memcpy(self->hidden, seen->x, (size_t)(seen->rows * seen->columns) * sizeof(float));
}

static layer_probe probe_of(const bp_model *model, int64_t layer, float *hidden)
{
    int64_t block = model->info.first_layer - 1;

    return (layer_probe){.probe = {.see = see},
                         .block = block + (layer == BP_TEXTS_LAST ? model->info.layers : layer),
                         .hidden = hidden};
}

/* Does the model itself return the requested states? */
static bool from_backbone(const bp_model *model, int64_t layer)
{
    return layer == BP_TEXTS_LAST && !model->info.masks && !model->info.log_probabilities &&
           model->ops->backbone;
}

static bp_err probe_batch(bp_model *model, const bp_model_batch *batch, layer_probe *probe,
                          float *values)
{
    bp_err err;

    model->ops->set_probe(model, &probe->probe);
    err = bp_model_score(model, batch, values);
    model->ops->set_probe(model, NULL);
    return err;
}

static bp_err take_states(text_job *job, int64_t first, const bp_model_batch *batch)
{
    int64_t lead = lead_of(job->rule), frame = frame_of(job->rule), C = job->columns;
    layer_probe probe = probe_of(job->model, job->layer, job->hidden);
    bp_err err =
        from_backbone(job->model, job->layer)
            ? job->model->ops->backbone(job->model, batch, BP_MODEL_NO_DROPOUT, job->hidden)
            : probe_batch(job->model, batch, &probe, job->values);

    for (int64_t i = 0; i < batch->windows && err == BP_OK; i++) {
        const text_row *row = &job->rows[first + i];
        int64_t to = job->texts->starts[row->text] + row->window.first;

        memcpy(job->states + to * C, job->hidden + (i * batch->length + lead) * C,
               (size_t)((row->window.inputs - frame) * C) * sizeof(float));
    }
    return err;
}

bp_err bp_texts_columns(int64_t *columns, bp_model *model, const bp_score_rule *rule, int64_t layer)
{
    int32_t token = 0;
    float value[3];
    text_job job = {.rule = rule, .texts = &(bp_token_texts){1, (int64_t[]){0, 1}, &token}};
    int32_t inputs[3], targets[3];
    bp_model_batch batch = {
        .windows = 1, .length = 1 + frame_of(rule), .inputs = inputs, .targets = targets};
    layer_probe probe = probe_of(model, layer, NULL);
    bp_err err = BP_OK;

    if (!model->ops->set_probe)
        return BP_FAIL(BP_ERR_CONFIG, "metrics.no_states",
                       "a model of kind %s keeps no states: at the model; name a network",
                       model->info.kind);
    if (rule->context <= frame_of(rule))
        return BP_FAIL(BP_ERR_CONFIG, "metrics.no_states",
                       "a window of the model holds %" PRId64
                       " tokens, which leaves none for a text: at the model; take another",
                       rule->context);
    *columns = model->info.width;
    if (from_backbone(model, layer))
        return BP_OK;
    fill_whole(&job, &(text_row){0, {.inputs = batch.length}}, batch.length, inputs, targets);
    if (layer <= model->info.layers)
        err = probe_batch(model, &batch, &probe, value);
    *columns = probe.columns;
    if (err == BP_OK && *columns == 0)
        err = BP_FAIL(BP_ERR_CONFIG, "metrics.no_such_layer",
                      "the model has no states after layer %" PRId64 ": at --layer; use 0 to %d",
                      layer, model->info.layers);
    return err;
}

/* Windows of all texts: counted (rows NULL), and written. */
static int64_t state_rows(text_row *rows, const bp_score_rule *rule, const bp_token_texts *texts)
{
    int64_t most = bp_texts_window(rule), frame = frame_of(rule), count = 0;

    for (int64_t k = 0; k < texts->count; k++)
        for (int64_t first = 0, n = length_of(texts, k); first < n; first += most, count++)
            if (rows)
                rows[count] = (text_row){
                    k, {.first = first, .inputs = frame + (n - first < most ? n - first : most)}};
    return count;
}

bp_err bp_texts_states(float *states, bp_model *model, const bp_score_rule *rule,
                       const bp_token_texts *texts, int64_t layer)
{
    int64_t count = state_rows(NULL, rule, texts);
    text_job job = {.model = model,
                    .rule = rule,
                    .texts = texts,
                    .rows = bp_try_alloc("score.texts", count, sizeof *job.rows),
                    .count = count,
                    .layer = layer,
                    .states = states};
    bp_err err = bp_texts_columns(&job.columns, model, rule, layer);

    if (err == BP_OK && !job.rows)
        err = bp_fail_memory("windows of texts", count, sizeof *job.rows);
    if (err == BP_OK) {
        (void)state_rows(job.rows, rule, texts);
        err = run_rows(&job, fill_whole, take_states);
    }
    clear_job(&job);
    return err;
}
