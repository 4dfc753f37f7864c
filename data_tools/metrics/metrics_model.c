/* A model of one process, which reads the lines of files. */
#include "metrics_model.h"

#include "base/log.h"
#include "base/mem.h"
#include "infer/score/texts.h"
#include "io/checkpoint/checkpoint.h"
#include "math/math.h"
#include "models/open.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/tally.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Texts are matched in groups of about this many tokens, whose states are in memory together. */
#define GROUP_TOKENS 16384

struct metrics_model {
    metrics_model_spec spec;
    bp_config *config;
    bp_mesh *mesh;
    bp_model *model;
    bp_tokenizer *tokenizer;
    bp_score_rule rule;
};

/* ---- opening ---- */

/* The tokenizer that is named, else the checkpoint's. */
static bp_err open_tokenizer(metrics_model *self, const bp_checkpoint *checkpoint)
{
    const char *path =
        self->spec.tokenizer ? self->spec.tokenizer : bp_checkpoint_tokenizer(checkpoint);

    if (!path)
        return BP_FAIL(BP_ERR_CONFIG, "metrics.no_tokenizer",
                       "the model brings no tokenizer: at %s; give its own with --tokenizer",
                       self->spec.model);
    return bp_tokenizer_load(&self->tokenizer, path);
}

static bp_err check_tokenizer(const metrics_model *self)
{
    const bp_model_info *info = &self->model->info;
    const char *hash = bp_tokenizer_hash(self->tokenizer);

    if (info->tokenizer_hash[0] && !bp_tokenizer_same_hash(info->tokenizer_hash, hash))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "the tokenizer is not that of the model, %s and %s: at --tokenizer; give "
                       "the model's, or none",
                       hash, info->tokenizer_hash);
    if (bp_tokenizer_size(self->tokenizer) > info->words)
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.too_large",
                       "the tokenizer has %" PRId64 " tokens, more than the model's vocabulary of "
                       "%" PRId64 ": at --tokenizer; give the model's own",
                       bp_tokenizer_size(self->tokenizer), info->words);
    return BP_OK;
}

static bp_err open_model(metrics_model *self)
{
    static const bp_option *const tables[] = {bp_math_options, bp_mesh_options, NULL};
    bp_mesh_shape shape;
    bp_err err = bp_config_new(&self->config, tables, tables);

    if (err == BP_OK) /* in full precision, whatever the processor is best at */
        err = bp_config_set(self->config, "math.precision", "f32");
    if (err != BP_OK)
        return err;
    shape = bp_mesh_shape_of(self->config);
    err = bp_mesh_shape_fit(&shape, 1);
    if (err == BP_OK)
        err = bp_mesh_new(&self->mesh, MPI_COMM_SELF, &shape);
    bp_math_set_threads(bp_math_threads_for(MPI_COMM_SELF, 0));
    return err == BP_OK ? bp_model_open(&self->model, self->mesh, self->config, self->spec.model)
                        : err;
}

bp_err metrics_model_open(metrics_model **out, const metrics_model_spec *spec)
{
    metrics_model *self = bp_alloc("tool.metrics", 1, sizeof *self);
    bp_checkpoint *checkpoint = NULL;
    bp_err err = bp_checkpoint_open_any(MPI_COMM_SELF, spec->model, &checkpoint);

    bp_checkpoint_warn_not_best(spec->model);
    self->spec = *spec;
    if (err == BP_OK)
        err = open_tokenizer(self, checkpoint);
    bp_checkpoint_close(&checkpoint);
    if (err == BP_OK)
        err = open_model(self);
    if (err == BP_OK)
        err = check_tokenizer(self);
    if (err == BP_OK)
        err = bp_texts_rule(&self->rule, &self->model->info, self->tokenizer);
    if (err != BP_OK)
        metrics_model_free(&self);
    *out = self;
    return err;
}

void metrics_model_free(metrics_model **self)
{
    if (!*self)
        return;
    bp_model_free(&(*self)->model);
    if ((*self)->mesh)
        bp_mesh_free(&(*self)->mesh);
    bp_config_free(&(*self)->config);
    bp_tokenizer_free(&(*self)->tokenizer);
    bp_free(*self);
    *self = NULL;
}

json_t *metrics_model_json(const metrics_model *self)
{
    const bp_model_info *info = &self->model->info;

    return json_pack("{ss sI ss}", "kind", info->kind, "step", (json_int_t)info->step, "digest",
                     info->digest);
}

/* ---- lines to tokens ---- */

typedef struct token_file {
    int64_t count;
    int64_t *starts; /* [count + 1] */
    int32_t *tokens;
} token_file;

static void token_file_clear(token_file *file)
{
    bp_free(file->starts);
    bp_free(file->tokens);
    *file = (token_file){0};
}

static bp_err encode(token_file *out, const metrics_model *self, const answer_file *file)
{
    bp_encoder *encoder = NULL;
    bp_ids ids = {0};
    bp_err err = bp_encoder_new(&encoder, self->tokenizer);

    *out = (token_file){.count = file->count,
                        .starts = bp_alloc("tool.metrics", file->count + 1, sizeof *out->starts)};
    for (int64_t k = 0; k < file->count && err == BP_OK; k++) {
        err = bp_encode(encoder, file->lines[k].text, file->lines[k].bytes, &ids);
        out->starts[k + 1] = ids.count;
    }
    out->tokens = bp_alloc("tool.metrics", ids.count, sizeof *out->tokens);
    for (int64_t i = 0; i < ids.count; i++)
        out->tokens[i] = (int32_t)ids.data[i];
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    return err;
}

/* ---- perplexity ---- */

bp_err metrics_model_perplexity(bp_text_answers *out, metrics_model *self,
                                const answer_file *hypothesis)
{
    int64_t n = hypothesis->count, *scored = bp_alloc("tool.metrics", n, sizeof *scored);
    double *nll = bp_alloc("tool.metrics", n, sizeof *nll);
    token_file file;
    bp_err err = encode(&file, self, hypothesis);

    *out = (bp_text_answers){n, BP_PERPLEXITY_WIDTH,
                             bp_alloc("tool.metrics", n * BP_PERPLEXITY_WIDTH, sizeof(double))};
    if (err == BP_OK)
        err = bp_texts_score(nll, scored, self->model, &self->rule,
                             &(bp_token_texts){n, file.starts, file.tokens});
    for (int64_t k = 0; k < n && err == BP_OK; k++) {
        double *counts = out->counts + k * BP_PERPLEXITY_WIDTH;
        bp_text_counts text;

        bp_text_count(&text, hypothesis->lines[k].text, hypothesis->lines[k].bytes);
        counts[BP_PERPLEXITY_NLL] = nll[k];
        counts[BP_PERPLEXITY_TOKENS] = (double)scored[k];
        counts[BP_PERPLEXITY_UNSCORED] = (double)(file.starts[k + 1] - file.starts[k] - scored[k]);
        counts[BP_PERPLEXITY_BYTES] = (double)hypothesis->lines[k].bytes;
        counts[BP_PERPLEXITY_WORDS] = (double)text.words;
    }
    token_file_clear(&file);
    bp_free(scored);
    bp_free(nll);
    return err;
}

/* ---- BERTScore ---- */

static void warn_of_long(const metrics_model *self, const token_file *file, const char *path)
{
    int64_t window = bp_texts_window(&self->rule), cut = 0;

    for (int64_t k = 0; k < file->count; k++)
        cut += file->starts[k + 1] - file->starts[k] > window;
    if (cut > 0)
        BP_WARN("metrics.too_long",
                "%" PRId64 " of %" PRId64 " texts have more tokens than the %" PRId64
                " of a window of the model, which reads them in parts: at %s",
                cut, file->count, window, path);
}

/* The hypothesis, and then its references. */
typedef struct matching {
    metrics_model *self;
    token_file *files; /* [count] */
    float **states;    /* [count] of a group of documents */
    int count;
    int64_t columns;
    double *weights; /* NULL: all tokens weigh alike */
} matching;

static int64_t group_tokens(const matching *job, int64_t first, int64_t end)
{
    int64_t tokens = 0;

    for (int k = 0; k < job->count; k++)
        tokens += job->files[k].starts[end] - job->files[k].starts[first];
    return tokens;
}

static bp_err find_states(matching *job, int64_t first, int64_t end)
{
    bp_err err = BP_OK;

    for (int k = 0; k < job->count && err == BP_OK; k++) {
        const token_file *file = &job->files[k];
        int64_t n = end - first, *starts = bp_alloc("tool.metrics", n + 1, sizeof *starts);
        int64_t tokens = file->starts[end] - file->starts[first];

        for (int64_t d = 0; d <= n; d++)
            starts[d] = file->starts[first + d] - file->starts[first];
        job->states[k] = bp_try_alloc("tool.metrics", tokens * job->columns, sizeof(float));
        err =
            job->states[k]
                ? bp_texts_states(job->states[k], job->self->model, &job->self->rule,
                                  &(bp_token_texts){n, starts, file->tokens + file->starts[first]},
                                  job->self->spec.layer)
                : bp_fail_memory("states of tokens", tokens * job->columns, sizeof(float));
        bp_free(starts);
    }
    return err;
}

static bp_text_states text_at(const matching *job, int k, int64_t first, int64_t d)
{
    const token_file *file = &job->files[k];
    int64_t at = file->starts[d], n = file->starts[d + 1] - at;

    return (bp_text_states){n, job->columns, file->tokens + at,
                            job->states[k] + (at - file->starts[first]) * job->columns};
}

/* Documents [first, end). */
static bp_err match_group(double *counts, matching *job, int64_t first, int64_t end)
{
    bp_err err = find_states(job, first, end);

    for (int64_t d = first; d < end && err == BP_OK; d++) {
        bp_text_states hypothesis = text_at(job, 0, first, d);

        for (int c = 0; c < BP_BERTSCORE_WIDTH; c++)
            counts[d * BP_BERTSCORE_WIDTH + c] = NAN;
        for (int k = 1; k < job->count; k++) {
            bp_text_states reference = text_at(job, k, first, d);

            bp_bertscore_raise(counts + d * BP_BERTSCORE_WIDTH, &hypothesis, &reference,
                               job->weights);
        }
    }
    for (int k = 0; k < job->count; k++) {
        bp_free(job->states[k]);
        job->states[k] = NULL;
    }
    return err;
}

/* For all references together. */
static void find_weights(matching *job, int64_t documents)
{
    int64_t texts = (job->count - 1) * documents, n = 0,
            *starts = bp_alloc("tool.metrics", texts + 1, sizeof *starts);
    int64_t vocabulary = job->self->model->info.words;
    int32_t *tokens;

    for (int k = 1; k < job->count; k++)
        n += job->files[k].starts[documents];
    tokens = bp_alloc("tool.metrics", n, sizeof *tokens);
    n = 0;
    for (int k = 1; k < job->count; k++) {
        const token_file *file = &job->files[k];

        for (int64_t d = 0; d < documents; d++)
            starts[(k - 1) * documents + d + 1] = n + file->starts[d + 1];
        memcpy(tokens + n, file->tokens, (size_t)file->starts[documents] * sizeof *tokens);
        n += file->starts[documents];
    }
    job->weights = bp_alloc("tool.metrics", vocabulary, sizeof *job->weights);
    bp_bertscore_weights(job->weights, vocabulary, tokens, starts, texts);
    bp_free(tokens);
    bp_free(starts);
}

bp_err metrics_model_bertscore(bp_text_answers *out, metrics_model *self,
                               const answer_file *hypothesis, const answer_file *references,
                               int count)
{
    int64_t n = hypothesis->count;
    matching job = {.self = self,
                    .files = bp_alloc("tool.metrics", count + 1, sizeof *job.files),
                    .states = bp_alloc("tool.metrics", count + 1, sizeof *job.states),
                    .count = count + 1};
    bp_err err = bp_texts_columns(&job.columns, self->model, &self->rule, self->spec.layer);

    *out = (bp_text_answers){n, BP_BERTSCORE_WIDTH,
                             bp_alloc("tool.metrics", n * BP_BERTSCORE_WIDTH, sizeof(double))};
    for (int k = 0; k <= count && err == BP_OK; k++) {
        const answer_file *file = k == 0 ? hypothesis : &references[k - 1];

        err = encode(&job.files[k], self, file);
        if (err == BP_OK)
            warn_of_long(self, &job.files[k], file->path);
    }
    if (err == BP_OK && self->spec.idf)
        find_weights(&job, n);
    for (int64_t first = 0, end; first < n && err == BP_OK; first = end) {
        end = first + 1;
        while (end < n && group_tokens(&job, first, end + 1) <= GROUP_TOKENS)
            end++;
        err = match_group(out->counts, &job, first, end);
    }
    for (int k = 0; k <= count; k++)
        token_file_clear(&job.files[k]);
    bp_free(job.weights);
    bp_free(job.states);
    bp_free(job.files);
    return err;
}
