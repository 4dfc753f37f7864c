/* The score folder of a mixture: the first folder's texts and counts, with other probabilities. */
#include "mixture.h"

#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/mem.h"
#include "infer/score/tables/bootstrap.h"
#include "infer/score/tables/sums.h"
#include "io/h5/h5.h"

#include <math.h>
#include <string.h>

#define VERSION    1
#define BLOCK_ROWS 65536

/* The results: one value per entry, and sums per document. */
typedef struct results {
    const mixture *mix;
    float *logprob;         /* [entries] */
    bp_fixed *nll, *square; /* [documents] */
    /* tokens that stand for words out of the vocabulary: [documents]; NULL: there is no such token
     */
    int64_t *oov;
    bp_fixed *oov_nll;
} results;

/* ---- datasets that stay as they are ---- */

static bp_h5_type type_of(const bp_h5_shape *shape)
{
    if (shape->is_real)
        return shape->width == 4 ? BP_H5_F32 : BP_H5_F64;
    if (shape->is_signed)
        return BP_H5_I64;
    return shape->width == 1   ? BP_H5_U8
           : shape->width == 2 ? BP_H5_U16
           : shape->width == 4 ? BP_H5_U32
                               : BP_H5_U64;
}

/* Does nothing where there is none. */
static bp_err copy_dataset(bp_h5 *to, bp_h5 *from, const char *name)
{
    bp_h5_shape shape;
    char *block;
    bp_err err;

    if (!bp_h5_has(from, name))
        return BP_OK;
    err = bp_h5_shape_of(from, name, &shape);
    if (err != BP_OK)
        return err;
    bp_h5_type type = type_of(&shape);
    size_t width = shape.is_text ? shape.width : bp_h5_type_bytes(type);
    err = shape.is_text ? bp_h5_make_text(to, name, width, shape.count)
                        : bp_h5_make(to, name, type, shape.count);
    block = bp_alloc("tool.mixture", BLOCK_ROWS, width);
    for (int64_t at = 0; err == BP_OK && at < shape.count; at += BLOCK_ROWS) {
        int64_t left = shape.count - at, rows = left < BLOCK_ROWS ? left : BLOCK_ROWS;

        err = shape.is_text ? bp_h5_read_text(from, name, width, at, block, rows)
                            : bp_h5_read(from, name, type, at, block, rows);
        if (err == BP_OK)
            err = shape.is_text ? bp_h5_write_text_slab(to, name, width, at, block, rows)
                                : bp_h5_write_slab(to, name, type, at, block, rows);
    }
    bp_free(block);
    return err;
}

static bp_err copy_group(bp_h5 *to, bp_h5 *from, const char *group)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_h5_names(from, group, &names, &count);

    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        char *name = bp_sprintf("%s/%s", group, names[k]);

        err = copy_dataset(to, from, name);
        bp_free(name);
    }
    bp_names_free(&names, count);
    return err;
}

/* ---- tokens.h5 ---- */

static bp_err copy_attributes(bp_h5 *to, bp_h5 *from)
{
    char hash[128];
    int64_t size;
    bp_err err = BP_OK;

    if (bp_h5_has_attribute(from, "/", "vocab_size"))
        err = bp_h5_get_int(from, "/", "vocab_size", &size);
    if (err == BP_OK && bp_h5_has_attribute(from, "/", "vocab_size"))
        err = bp_h5_put_int(to, "/", "vocab_size", size);
    if (err == BP_OK && bp_h5_has_attribute(from, "/", "tokenizer_hash")) {
        err = bp_h5_get_text(from, "/", "tokenizer_hash", hash, sizeof hash);
        if (err == BP_OK)
            err = bp_h5_put_text(to, "/", "tokenizer_hash", hash);
    }
    return err;
}

static bp_err save_tokens(const results *of, const char *path)
{
    static const char *const kept[] = {"corpus_start",    "corpus_first_entry", "corpus_names",
                                       "tokens",          "doc_start",          "doc_id",
                                       "source/tokenizer"};
    bp_h5_draft draft = {0};
    bp_h5 *from = NULL;
    bp_err err = bp_h5_open(&from, of->mix->parts[0].path);

    if (err == BP_OK)
        err = bp_h5_draft_begin(&draft, path, VERSION);
    if (err == BP_OK)
        err = bp_h5_write(draft.file, "logprob", BP_H5_F32, of->logprob, of->mix->entries);
    for (size_t k = 0; err == BP_OK && k < sizeof kept / sizeof kept[0]; k++)
        err = copy_dataset(draft.file, from, kept[k]);
    if (err == BP_OK)
        err = copy_attributes(draft.file, from);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, "score-tokens", VERSION);
    bp_h5_draft_end(&draft);
    bp_h5_drop(&from);
    return err;
}

/* ---- documents.h5 ---- */

static bp_err write_figures(bp_h5 *to, const results *of)
{
    const score_folder *scores = &of->mix->first;
    double *column = bp_alloc("tool.mixture", scores->documents, sizeof *column);
    bp_err err;

    for (int64_t d = 0; d < scores->documents; d++)
        column[d] = bp_fixed_real(of->nll[d]);
    err = bp_h5_write(to, "nll", BP_H5_F64, column, scores->documents);
    for (int64_t d = 0; d < scores->documents; d++)
        column[d] = exp(column[d] / (double)scores->tokens[d]);
    if (err == BP_OK)
        err = bp_h5_write(to, "perplexity", BP_H5_F64, column, scores->documents);
    bp_free(column);
    return err;
}

static bp_err save_documents(const results *of, const char *path)
{
    static const char *const kept[] = {"corpus_start", "corpus_first_document",
                                       "corpus_names", "corpus",
                                       "tokens",       "bytes",
                                       "words",        "doc_id",
                                       "token_hash"};
    bp_h5_draft draft = {0};
    bp_h5 *from = NULL;
    bp_err err = bp_h5_open(&from, of->mix->first.documents_path);

    if (err == BP_OK)
        err = bp_h5_draft_begin(&draft, path, VERSION);
    if (err == BP_OK)
        err = write_figures(draft.file, of);
    for (size_t k = 0; err == BP_OK && k < sizeof kept / sizeof kept[0]; k++)
        err = copy_dataset(draft.file, from, kept[k]);
    if (err == BP_OK)
        err = copy_group(draft.file, from, "labels");
    if (err == BP_OK)
        err = copy_group(draft.file, from, "label_names");
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, "score-documents", VERSION);
    bp_h5_draft_end(&draft);
    bp_h5_drop(&from);
    return err;
}

/* ---- summary.json ---- */

/* A count that the first folder's figures have, or not. */
static bool take_count(int64_t *out, const json_t *figures, const char *name)
{
    const json_t *value = json_object_get(figures, name);

    *out = json_integer_value(value);
    return json_is_integer(value);
}

/* Documents [first, end) with this code of the label (NULL: all); `summary` has their figures in
 * the first folder: counts of the text stay the same. */
static json_t *figures_of(const results *of, const json_t *summary, int64_t first, int64_t end,
                          const score_label *label, int64_t code)
{
    const mixture *mix = of->mix;
    const score_folder *scores = &mix->first;
    bp_score_draw *draws = bp_alloc("tool.mixture", end - first, sizeof *draws);
    bp_score_sums sums = {.has_oov = of->oov != NULL,
                          .has_zeros = json_object_get(summary, "zero_probability") != NULL};
    double deviation;
    json_t *figures;

    for (int64_t d = first; d < end; d++) {
        if ((mix->chosen && !mix->chosen[d]) || (label && label->codes[d] != code))
            continue;
        sums.nll += of->nll[d];
        sums.square += of->square[d];
        sums.tokens += scores->tokens[d];
        sums.oov += of->oov ? of->oov[d] : 0;
        sums.oov_nll += of->oov ? of->oov_nll[d] : 0;
        draws[sums.documents++] =
            (bp_score_draw){bp_fixed_real(of->nll[d]), (double)scores->tokens[d]};
    }
    sums.no_bytes = !take_count(&sums.bytes, summary, "bytes");
    sums.no_words = !take_count(&sums.words, summary, "words");
    sums.no_words_split = !take_count(&sums.words_split, summary, "words_split");
    BP_CHECK(bp_score_bootstrap(&deviation, draws, sums.documents, 1, NULL) == BP_OK);
    figures = bp_score_figures(&sums, deviation);
    bp_free(draws);
    return figures;
}

static json_t *corpora_of(const results *of)
{
    const score_folder *scores = &of->mix->first;
    const json_t *summary = json_object_get(scores->summary, "corpora");
    json_t *out = json_object();

    for (int64_t k = 0; k < scores->corpora; k++) {
        const char *name = scores->corpus_names[k];

        (void)json_object_set_new(out, name,
                                  figures_of(of, json_object_get(summary, name),
                                             scores->corpus_start[k], scores->corpus_start[k + 1],
                                             NULL, 0));
    }
    return out;
}

static json_t *labels_of(const results *of)
{
    const score_folder *scores = &of->mix->first;
    const json_t *summary = json_object_get(scores->summary, "labels");
    json_t *out = json_object();

    for (int64_t k = 0; k < scores->label_count; k++) {
        const score_label *label = &scores->labels[k];
        const json_t *values = json_object_get(summary, label->name);
        json_t *into = json_object();

        for (int64_t v = 0; v < label->value_count; v++) {
            const json_t *figures = json_object_get(values, label->values[v]);

            if (figures)
                (void)json_object_set_new(into, label->values[v],
                                          figures_of(of, figures, 0, scores->documents, label, v));
        }
        (void)json_object_set_new(out, label->name, into);
    }
    return out;
}

/* The models and their weights; the digest is of both. */
static void add_models(json_t *root, const mixture *mix, const double *weights)
{
    bp_sha256 *hash = bp_sha256_new();
    json_t *parts = json_array();
    char digest[BP_SHA256_HEX];
    int64_t step = 0;

    for (int64_t m = 0; m < mix->count; m++) {
        const mixture_part *part = &mix->parts[m];

        bp_sha256_update(hash, part->digest, strlen(part->digest) + 1);
        bp_sha256_update(hash, &weights[m], sizeof weights[m]);
        step = part->step > step ? part->step : step;
        (void)json_array_append_new(
            parts, json_pack("{ss sI so so}", "digest", part->digest, "step",
                             (json_int_t)part->step, "weight", bp_json_real(weights[m]),
                             "perplexity", bp_json_real(exp(part->nll / (double)mix->scored))));
    }
    bp_sha256_finish(&hash, digest);
    (void)json_object_set_new(root, "model",
                              json_pack("{ss sI}", "digest", digest, "step", (json_int_t)step));
    (void)json_object_set_new(root, "mixture", parts);
}

static bp_err save_summary(const results *of, const double *weights, const char *path)
{
    const score_folder *scores = &of->mix->first;
    json_t *root = figures_of(of, scores->summary, 0, scores->documents, NULL, 0);
    bp_err err;

    (void)json_object_set(root, "convention", json_object_get(scores->summary, "convention"));
    add_models(root, of->mix, weights);
    (void)json_object_set_new(root, "corpora", corpora_of(of));
    (void)json_object_set_new(root, "labels", labels_of(of));
    err = bp_json_save(path, root);
    json_decref(root);
    return err;
}

/* ---- all of it ---- */

/* Entries of each document; where older scores have none, there is nothing to write. */
static bp_err read_starts(int64_t *starts, const mixture *mix)
{
    int64_t documents = mix->first.documents;
    bp_h5_shape shape;
    bp_h5 *h5 = NULL;
    bp_err err = bp_h5_open(&h5, mix->parts[0].path);

    if (err == BP_OK)
        err = bp_h5_shape_of(h5, "doc_start", &shape);
    if (err == BP_OK && (shape.dims != 1 || shape.count != documents + 1))
        err = BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                      "damaged: 'doc_start' is not as scores have it: at %s; score "
                      "again",
                      mix->parts[0].path);
    if (err == BP_OK)
        err = bp_h5_read(h5, "doc_start", BP_H5_I64, 0, starts, documents + 1);
    for (int64_t d = 0; err == BP_OK && d < documents; d++)
        if (starts[d] < 0 || starts[d] > starts[d + 1] || starts[d + 1] > mix->entries)
            err = BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                          "damaged: 'doc_start' is not as scores have it: at %s; "
                          "score again",
                          mix->parts[0].path);
    bp_h5_drop(&h5);
    return err;
}

/* The ids of tokens, and that of words out of the vocabulary; -1: there is none, or older scores do
 * not tell. */
static bp_err read_ids(uint32_t **ids, int64_t *unknown, const mixture *mix)
{
    bp_tokenizer *tokenizer = NULL;
    bp_h5 *h5 = NULL;
    bp_err err = bp_h5_open(&h5, mix->parts[0].path);

    *unknown = -1;
    if (err == BP_OK && json_object_get(mix->first.summary, "oov") && bp_h5_has(h5, "tokens"))
        err = score_tokenizer_load(&tokenizer, h5);
    if (err == BP_OK && tokenizer)
        *unknown = bp_tokenizer_role(tokenizer, BP_ROLE_UNKNOWN);
    if (*unknown >= 0) {
        *ids = bp_try_alloc("tool.mixture", mix->entries, sizeof **ids);
        err = *ids ? bp_h5_read(h5, "tokens", BP_H5_U32, 0, *ids, mix->entries)
                   : bp_fail_memory("tokens", mix->entries, sizeof **ids);
    }
    bp_tokenizer_free(&tokenizer);
    bp_h5_drop(&h5);
    return err;
}

static bp_err mix_tokens(results *of, const double *weights)
{
    const mixture *mix = of->mix;
    const float **lists = bp_alloc("tool.mixture", mix->count, sizeof *lists);
    bp_mixture_text text = {lists, mix->count, mix->entries};
    bp_err err = BP_OK;

    for (int64_t m = 0; m < mix->count; m++)
        lists[m] = mix->parts[m].logprob;
    for (int64_t k = 0; k < mix->entries && err == BP_OK; k++) {
        of->logprob[k] = isnan(lists[0][k]) ? NAN : (float)bp_mixture_logprob(weights, &text, k);
        if (isinf(of->logprob[k]))
            err = BP_FAIL(BP_ERR_FORMAT, "mixture.zero_probability",
                          "no model with a weight above 0 gives token %lld a probability above 0: "
                          "at %s; fit weights to more text, or mix with a model that is smoothed",
                          (long long)k, mix->parts[0].path);
    }
    bp_free(lists);
    return err;
}

/* For document d; returns how many of its tokens are scored. */
static int64_t sum_document(results *of, const int64_t *starts, int64_t d, const uint32_t *ids,
                            int64_t unknown)
{
    int64_t scored = 0;

    for (int64_t k = starts[d]; k < starts[d + 1]; k++) {
        double x = (double)of->logprob[k];

        if (isnan(x))
            continue;
        of->nll[d] -= bp_fixed_of(x);
        of->square[d] += bp_fixed_of(x * x);
        scored++;
        if (!ids || ids[k] != unknown)
            continue;
        of->oov[d]++;
        of->oov_nll[d] -= bp_fixed_of(x);
    }
    return scored;
}

/* An end-of-document token that no file holds has no entry: its document's sum is only that of the
 * entries, and the document is refused. */
static bp_err sum_documents(results *of, const int64_t *starts, const uint32_t *ids,
                            int64_t unknown)
{
    const mixture *mix = of->mix;

    for (int64_t d = 0; d < mix->first.documents; d++) {
        int64_t scored = sum_document(of, starts, d, ids, unknown);

        if (scored != mix->first.tokens[d])
            return BP_FAIL(BP_ERR_FORMAT, "mixture.end_not_held",
                           "document %lld has %lld scored tokens, but tokens.h5 holds %lld of "
                           "them: at %s; score without score.end=yes, or a corpus that holds its "
                           "end-of-document tokens",
                           (long long)d, (long long)mix->first.tokens[d], (long long)scored,
                           mix->parts[0].path);
    }
    return BP_OK;
}

static bp_err save_files(const results *of, const double *weights, const char *folder)
{
    static bp_err (*const save[])(const results *, const char *) = {save_documents, save_tokens};
    static const char *const names[] = {"documents.h5", "tokens.h5"};
    bp_err err = bp_dir_make(folder);

    for (int k = 0; k < 2 && err == BP_OK; k++) {
        char *path = bp_path_join(folder, names[k]);

        err = save[k](of, path);
        bp_free(path);
    }
    if (err == BP_OK) { /* the last one: a folder with it is whole */
        char *path = bp_path_join(folder, "summary.json");

        err = save_summary(of, weights, path);
        bp_free(path);
    }
    return err;
}

bp_err mixture_save(const mixture *mix, const double *weights, const char *folder)
{
    int64_t documents = mix->first.documents, unknown = -1;
    results of = {.mix = mix};
    int64_t *starts = bp_alloc("tool.mixture", documents + 1, sizeof *starts);
    uint32_t *ids = NULL;
    bp_err err = read_starts(starts, mix);

    of.nll = bp_alloc("tool.mixture", documents, sizeof *of.nll);
    of.square = bp_alloc("tool.mixture", documents, sizeof *of.square);
    of.logprob = bp_try_alloc("tool.mixture", mix->entries, sizeof *of.logprob);
    if (err == BP_OK && !of.logprob)
        err = bp_fail_memory("logprob", mix->entries, sizeof *of.logprob);
    if (err == BP_OK)
        err = read_ids(&ids, &unknown, mix);
    if (ids) {
        of.oov = bp_alloc("tool.mixture", documents, sizeof *of.oov);
        of.oov_nll = bp_alloc("tool.mixture", documents, sizeof *of.oov_nll);
    }
    if (err == BP_OK)
        err = mix_tokens(&of, weights);
    if (err == BP_OK)
        err = sum_documents(&of, starts, ids, unknown);
    if (err == BP_OK)
        err = save_files(&of, weights, folder);
    bp_free(ids);
    bp_free(of.oov_nll);
    bp_free(of.oov);
    bp_free(of.logprob);
    bp_free(of.square);
    bp_free(of.nll);
    bp_free(starts);
    return err;
}
