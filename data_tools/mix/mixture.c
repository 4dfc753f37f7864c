/* Reading score folders whose models are mixed. */
#include "mixture.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/h5/h5.h"

#include <inttypes.h>
#include <math.h>

#define VERSION 1

/* ---- one folder ---- */

static char *beside(const char *path, const char *name)
{
    return bp_sprintf("%.*s%s", (int)(bp_path_base(path) - path), path, name);
}

static bp_err read_logprob(mixture_part *part, int64_t *entries)
{
    bp_h5_shape shape;
    bp_h5 *h5 = NULL;
    bp_err err = bp_h5_open_kind(&h5, part->path, "score-tokens", VERSION);

    if (err == BP_OK)
        err = bp_h5_shape_of(h5, "logprob", &shape);
    if (err == BP_OK && (shape.is_text || !shape.is_real || shape.dims != 1))
        err =
            BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                    "damaged: 'logprob' is not a list of numbers: at %s; score again", part->path);
    if (err == BP_OK) {
        *entries = shape.count;
        part->logprob = bp_try_alloc("tool.mixture", shape.count, sizeof *part->logprob);
        err = part->logprob ? bp_h5_read(h5, "logprob", BP_H5_F32, 0, part->logprob, shape.count)
                            : bp_fail_memory("logprob", shape.count, sizeof *part->logprob);
    }
    bp_h5_drop(&h5);
    return err;
}

static bp_err load_part(mixture_part *part, const score_folder *scores, int64_t *entries)
{
    const json_t *model = json_object_get(scores->summary, "model");
    const char *digest = json_string_value(json_object_get(model, "digest"));

    part->given = scores->given;
    part->digest = bp_strdup(digest ? digest : "");
    part->step = json_integer_value(json_object_get(model, "step"));
    part->path = beside(scores->summary_path, "tokens.h5");
    if (!bp_path_exists(part->path))
        return BP_FAIL(BP_ERR_INPUT, "scores.no_tokens",
                       "there are no scores of single tokens: at %s; score with score.tokens=yes",
                       part->path);
    return read_logprob(part, entries);
}

/* ---- all of them ---- */

/* The same texts, and the same tokens of them. */
static bp_err check_pair(comparison *pair)
{
    bp_err err = comparison_check(pair);

    if (err == BP_OK && pair->unit != UNIT_TOKEN)
        err =
            BP_FAIL(BP_ERR_FORMAT, "mixture.other_tokens",
                    "a mixture needs the same tokens scored by all models, and A and B have other "
                    "tokenizers, or another prefix or end: at %s and %s; score both with one "
                    "tokenizer and one convention",
                    pair->scores[0].given, pair->scores[1].given);
    return err;
}

static bp_err check_entries(const mixture *mix, const mixture_part *part, int64_t entries)
{
    const mixture_part *first = &mix->parts[0];

    if (entries != mix->entries)
        return BP_FAIL(BP_ERR_FORMAT, "compare.other_texts",
                       "the texts differ: %" PRId64 " tokens and %" PRId64
                       ": at %s and %s; score the same texts with all models",
                       mix->entries, entries, first->path, part->path);
    for (int64_t k = 0; k < entries; k++)
        if (isnan(first->logprob[k]) != isnan(part->logprob[k]))
            return BP_FAIL(BP_ERR_FORMAT, "mixture.other_tokens",
                           "token %" PRId64 " is scored only in one folder: at %s and %s; score "
                           "both with one convention",
                           k, first->path, part->path);
    return BP_OK;
}

/* Sums of each part; a token that no model expects has no place in a mixture. */
static bp_err check_values(mixture *mix)
{
    for (int64_t k = 0; k < mix->entries; k++) {
        bool possible = false;

        if (isnan(mix->parts[0].logprob[k]))
            continue;
        mix->scored++;
        for (int64_t m = 0; m < mix->count; m++) {
            possible = possible || isfinite(mix->parts[m].logprob[k]);
            mix->parts[m].nll -= (double)mix->parts[m].logprob[k];
        }
        if (!possible)
            return BP_FAIL(BP_ERR_FORMAT, "mixture.zero_probability",
                           "no model gives token %" PRId64
                           " a probability above 0: at %s; mix with a model that is smoothed",
                           k, mix->parts[0].path);
    }
    if (mix->scored == 0)
        return BP_FAIL(BP_ERR_FORMAT, "mixture.no_tokens",
                       "there is no scored token to fit to: at %s; score a text that has some",
                       mix->parts[0].path);
    return BP_OK;
}

static bp_err load_folder(mixture *mix, comparison *pair, const char *folder, int64_t m)
{
    score_folder *scores = m == 0 ? &mix->first : &pair->scores[1];
    int64_t entries = 0;
    bp_err err = score_folder_load(scores, folder);

    pair->scores[0] = mix->first; /* labels of it that another lacks are left out of both */
    if (err == BP_OK && m > 0)
        err = check_pair(pair);
    if (err == BP_OK)
        err = load_part(&mix->parts[m], scores, &entries);
    if (err == BP_OK && m == 0)
        mix->entries = entries;
    else if (err == BP_OK)
        err = check_entries(mix, &mix->parts[m], entries);
    if (err == BP_OK && pair->chosen) {
        bp_free(mix->chosen);
        mix->chosen = pair->chosen;
        pair->chosen = NULL;
    }
    return err;
}

bp_err mixture_load(mixture *mix, char *const *folders, int64_t count)
{
    bp_err err = BP_OK;

    *mix = (mixture){.count = count};
    mix->parts = bp_alloc("tool.mixture", count, sizeof *mix->parts);
    for (int64_t m = 0; m < count && err == BP_OK; m++) {
        comparison pair = {.seed = 1};

        err = load_folder(mix, &pair, folders[m], m);
        pair.scores[0] = (score_folder){0}; /* it is the mixture's */
        comparison_clear(&pair);
    }
    return err == BP_OK ? check_values(mix) : err;
}

void mixture_clear(mixture *mix)
{
    for (int64_t m = 0; m < mix->count; m++) {
        bp_free(mix->parts[m].logprob);
        bp_free(mix->parts[m].digest);
        bp_free(mix->parts[m].path);
    }
    bp_free(mix->parts);
    bp_free(mix->chosen);
    score_folder_clear(&mix->first);
    *mix = (mixture){0};
}

bp_err mixture_fit(double *weights, bp_mixture_fit *fit, const mixture *mix)
{
    const float **lists = bp_alloc("tool.mixture", mix->count, sizeof *lists);
    float *packed = bp_try_alloc("tool.mixture", mix->count * mix->scored, sizeof *packed);
    bp_err err =
        packed ? BP_OK
               : bp_fail_memory("log-probabilities", mix->count * mix->scored, sizeof *packed);

    for (int64_t m = 0; err == BP_OK && m < mix->count; m++) {
        float *to = packed + m * mix->scored;

        lists[m] = to;
        for (int64_t k = 0; k < mix->entries; k++)
            if (!isnan(mix->parts[m].logprob[k]))
                *to++ = mix->parts[m].logprob[k];
    }
    if (err == BP_OK)
        err = bp_mixture_weights(weights, fit, &(bp_mixture_text){lists, mix->count, mix->scored});
    if (err == BP_OK && fit->gap > BP_MIXTURE_GAP)
        BP_WARN("mixture.not_converged",
                "after %" PRId64 " passes other weights may still be better by %.1e nats a token",
                fit->iterations, fit->gap);
    bp_free(packed);
    bp_free(lists);
    return err;
}
