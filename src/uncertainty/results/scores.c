/* Reading a score folder: tokens.h5 in order, cut into documents by the counts of documents.h5.
 * Called by results.c, summary.c and tables.c. */
#include "uncertainty/results/results.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/h5.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BLOCK   65536
#define VERSION 1 /* of score-tokens and score-documents */

static bp_err out_of_memory(const char *folder)
{
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short", "no memory for the scores of a method: at %s",
                   folder);
}

/* The values read for each token. */
enum {
    LOGPROB,
    CONFIDENCE,
    CORRECT,
    BRIER,
    ENTROPY,
    INFORMATION,
    NEEDED,
    NORMALISER = NEEDED, /* these and the following ones may be missing in a file */
    VARIANCE,
    DISTANCE,
    SPREAD,
    TEMPERED_LOGPROB,
    TEMPERED_CONFIDENCE,
    TEMPERED_BRIER,
    COLUMNS
};
static const char *const NAMES[COLUMNS] = {
    "logprob",       "confidence",           "correct",          "brier",
    "total_entropy", "mutual_information",   "log_normaliser",   "logit_variance",
    "mahalanobis",   "differential_entropy", "tempered_logprob", "tempered_confidence",
    "tempered_brier"};

const char *const comparison_order_names[] = {"confidence", "entropy", "mutual_information"};

/* ---- documents.h5 ---- */

bp_err comparison_scores_count(int64_t **tokens, const char *folder, int64_t documents,
                               bool classes)
{
    char *path = bp_path_join(folder, classes ? "outcomes.h5" : "documents.h5");
    const char *name = classes ? "predictions" : "tokens";
    bp_h5 *file = NULL;
    bp_h5_shape shape = {0};
    bp_err err =
        bp_h5_open_kind(&file, path, classes ? "score-outcomes" : "score-documents", VERSION);
    bool one_each = false; /* as written by earlier versions */

    *tokens = NULL;
    if (err == BP_OK) {
        one_each = classes && !bp_h5_has(file, name);
        err = bp_h5_shape_of(file, one_each ? NAMES[LOGPROB] : name, &shape);
    }
    if (err == BP_OK && shape.count != documents)
        err = BP_FAIL(BP_ERR_FORMAT, "scores.unlike_corpus",
                      "the table has %" PRId64 " documents, the corpora have %" PRId64
                      ": at %s; remove its folder, to score again",
                      shape.count, documents, path);
    if (err == BP_OK) {
        *tokens = bp_try_alloc("comparison.scores", documents, sizeof(**tokens));
        if (!*tokens)
            err = out_of_memory(folder);
        else if (!one_each)
            err = bp_h5_read(file, name, BP_H5_I64, 0, *tokens, documents);
        for (int64_t d = 0; one_each && err == BP_OK && d < documents; d++)
            (*tokens)[d] = 1;
    }
    if (err != BP_OK) {
        bp_free(*tokens);
        *tokens = NULL;
    }
    bp_h5_drop(&file);
    bp_free(path);
    return err;
}

bp_err comparison_scores_find_cut(int64_t *cut, int64_t *positions, const char *folder)
{
    char *path = bp_path_join(folder, "outcomes.h5");
    bp_h5 *file = NULL;
    bp_err err = bp_h5_open_kind(&file, path, "score-outcomes", VERSION);

    *cut = *positions = 0;
    if (err == BP_OK && bp_h5_has_attribute(file, "/", "documents_cut")) {
        err = bp_h5_get_int(file, "/", "documents_cut", cut);
        if (err == BP_OK)
            err = bp_h5_get_int(file, "/", "places", positions);
    }
    bp_h5_drop(&file);
    bp_free(path);
    return err;
}

int64_t comparison_group_filter(comparison_group *group, const int64_t *tokens)
{
    int64_t kept = 0, before = group->document_count;

    for (int64_t k = 0; k < before; k++)
        if (tokens[group->documents[k]] > 0)
            group->documents[kept++] = group->documents[k];
    group->document_count = kept;
    return before - kept;
}

/* ---- tokens.h5 ---- */

/* The reader's place: the next scored token is number `taken` of document `document`. */
typedef struct reader {
    comparison_scores *out;
    const char *folder, *file; /* and the table's name in it */
    bool classes;
    const int64_t *tokens;
    int64_t document, taken;
    int64_t place; /* of the document in the domain; -1 if not in it */
    const comparison_group *in_domain;
    int64_t next; /* the next document of the domain */
    float *blocks[COLUMNS];
    bool has[COLUMNS];
} reader;

static void enter_document(reader *self)
{
    while (self->document < self->out->documents && self->tokens[self->document] == 0)
        self->document++;
    self->taken = 0;
    while (self->next < self->in_domain->document_count &&
           self->in_domain->documents[self->next] < self->document)
        self->next++;
    self->place = self->next < self->in_domain->document_count &&
                          self->in_domain->documents[self->next] == self->document
                      ? self->next
                      : -1;
}

static void keep_token(const reader *self, int64_t i)
{
    comparison_scores *out = self->out;
    int64_t at = out->doc_start[self->place] + self->taken;

    out->uncertain[COMPARISON_BY_CONFIDENCE][at] = -self->blocks[CONFIDENCE][i];
    out->uncertain[COMPARISON_BY_ENTROPY][at] = self->blocks[ENTROPY][i];
    out->uncertain[COMPARISON_BY_INFORMATION][at] = self->blocks[INFORMATION][i];
    out->nll[at] = -self->blocks[LOGPROB][i];
    out->correct[at] = self->blocks[CORRECT][i] != 0;
    bp_calibration_add(&out->calibration[self->place], self->blocks[CONFIDENCE][i],
                       out->correct[at], -(double)self->blocks[LOGPROB][i],
                       (double)self->blocks[BRIER][i]);
    if (out->tempered)
        bp_calibration_add(&out->tempered[self->place], self->blocks[TEMPERED_CONFIDENCE][i],
                           out->correct[at], -(double)self->blocks[TEMPERED_LOGPROB][i],
                           (double)self->blocks[TEMPERED_BRIER][i]);
}

/* A shifted document may have no class that the models know. */
static bool is_known(const reader *self, int column, int64_t i)
{
    bool of_label = column == LOGPROB || column == CORRECT || column == BRIER ||
                    column == TEMPERED_LOGPROB || column == TEMPERED_BRIER;

    return isfinite(self->blocks[column][i]) || (self->classes && self->place < 0 && of_label);
}

/* Means are sums until the document ends. */
static bp_err take_token(reader *self, int64_t i)
{
    comparison_scores *out = self->out;
    int64_t d = self->document;

    if (d >= out->documents)
        return BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                       "tokens.h5 has more scored tokens than documents.h5 counts: at %s; remove "
                       "the folder, to score again",
                       self->folder);
    if (self->blocks[LOGPROB][i] == -INFINITY)
        return BP_FAIL(BP_ERR_FORMAT, "scores.zero_probability",
                       "document %" PRId64 " has a token of probability 0, and so no perplexity: "
                       "at %s; give models that are smoothed",
                       d, self->folder);
    if (self->classes && self->place >= 0 && isnan(self->blocks[LOGPROB][i]))
        return BP_FAIL(BP_ERR_FORMAT, "comparison.unknown_class",
                       "document %" PRId64
                       " of the domain has no class or tag that the models were "
                       "trained with: at uncertainty.in_domain; leave it out, or call it shifted",
                       d);
    for (int c = 0; c < COLUMNS; c++)
        if (self->has[c] && !is_known(self, c, i))
            return BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                           "%s of a scored token of document %" PRId64
                           " is not finite: at %s/%s; the table is damaged",
                           NAMES[c], d, self->folder, self->file);
    out->means[COMPARISON_NLL][d] -=
        self->classes ? log((double)self->blocks[CONFIDENCE][i]) : (double)self->blocks[LOGPROB][i];
    out->means[COMPARISON_ENTROPY][d] += (double)self->blocks[ENTROPY][i];
    out->means[COMPARISON_INFORMATION][d] += (double)self->blocks[INFORMATION][i];
    out->means[COMPARISON_ENERGY][d] -= (double)self->blocks[NORMALISER][i];
    out->means[COMPARISON_VARIANCE][d] += (double)self->blocks[VARIANCE][i];
    out->means[COMPARISON_DISTANCE][d] += (double)self->blocks[DISTANCE][i];
    out->means[COMPARISON_SPREAD][d] += (double)self->blocks[SPREAD][i];
    if (self->place >= 0)
        keep_token(self, i);
    if (++self->taken == self->tokens[d]) {
        for (int s = 0; s < COMPARISON_SCORES; s++)
            out->means[s][d] /= (double)self->tokens[d];
        self->document++;
        enter_document(self);
    }
    return BP_OK;
}

static bp_err read_tokens(reader *self, bp_h5 *file)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(file, NAMES[LOGPROB], &shape);

    for (int c = 0; c < COLUMNS; c++)
        self->has[c] =
            c < NEEDED || ((self->classes || c >= TEMPERED_LOGPROB) && bp_h5_has(file, NAMES[c]));
    if (self->has[TEMPERED_LOGPROB])
        self->out->tempered =
            bp_alloc("comparison.scores", self->out->domain, sizeof *self->out->tempered);
    for (int c = 0; c < COMPARISON_SCORES; c++)
        self->out->has[c] = c <= COMPARISON_NLL || self->has[NEEDED + c - COMPARISON_ENERGY];
    enter_document(self);
    for (int64_t first = 0; err == BP_OK && first < shape.count; first += BLOCK) {
        int64_t count = shape.count - first < BLOCK ? shape.count - first : BLOCK;

        for (int c = 0; err == BP_OK && c < COLUMNS; c++)
            if (self->has[c])
                err = bp_h5_read(file, NAMES[c], BP_H5_F32, first, self->blocks[c], count);
        for (int64_t i = 0; err == BP_OK && i < count; i++)
            if (!isnan(self->blocks[self->classes ? CONFIDENCE : LOGPROB][i]))
                err = take_token(self, i);
    }
    if (err == BP_OK && self->document < self->out->documents)
        err = BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                      "tokens.h5 has fewer scored tokens than documents.h5 counts: at %s; remove "
                      "the folder, to score again",
                      self->folder);
    return err;
}

/* ---- a method ---- */

static bp_err reserve(comparison_scores *out, const char *folder, const int64_t *tokens,
                      const comparison_group *in_domain)
{
    bool allocated = true;
    int64_t total;

    out->domain = in_domain->document_count;
    out->doc_start = bp_try_alloc("comparison.scores", out->domain + 1, sizeof *out->doc_start);
    out->calibration = bp_try_alloc("comparison.scores", out->domain, sizeof *out->calibration);
    if (!out->doc_start || !out->calibration)
        return out_of_memory(folder);
    for (int64_t k = 0; k < out->domain; k++)
        out->doc_start[k + 1] = out->doc_start[k] + tokens[in_domain->documents[k]];
    total = out->doc_start[out->domain];
    out->nll = bp_try_alloc("comparison.scores", total, sizeof *out->nll);
    out->correct = bp_try_alloc("comparison.scores", total, sizeof *out->correct);
    allocated = out->nll && out->correct;
    for (int s = 0; s < COMPARISON_SCORES; s++) {
        out->means[s] = bp_try_alloc("comparison.scores", out->documents, sizeof(double));
        allocated = allocated && out->means[s];
    }
    for (int o = 0; o < COMPARISON_ORDERS; o++) {
        out->uncertain[o] = bp_try_alloc("comparison.scores", total, sizeof(float));
        allocated = allocated && out->uncertain[o];
    }
    return allocated ? BP_OK : out_of_memory(folder);
}

bp_err comparison_scores_read(comparison_scores *out, const char *folder, const int64_t *tokens,
                              int64_t documents, const comparison_group *in_domain, bool classes)
{
    reader self = {.out = out,
                   .folder = folder,
                   .file = classes ? "outcomes.h5" : "tokens.h5",
                   .classes = classes,
                   .tokens = tokens,
                   .in_domain = in_domain};
    char *path = bp_path_join(folder, self.file);
    bp_h5 *file = NULL;
    bp_err err;

    *out = (comparison_scores){.documents = documents};
    err = reserve(out, folder, tokens, in_domain);
    for (int c = 0; c < COLUMNS; c++)
        self.blocks[c] = bp_alloc("comparison.scores", BLOCK, sizeof(float));
    if (err == BP_OK)
        err = bp_h5_open_kind(&file, path, classes ? "score-outcomes" : "score-tokens", VERSION);
    if (err == BP_OK)
        err = read_tokens(&self, file);
    for (int64_t d = 0; err == BP_OK && d < documents; d++)
        for (int s = 0; tokens[d] == 0 && s < COMPARISON_SCORES; s++)
            out->means[s][d] = NAN;
    bp_h5_drop(&file);
    for (int c = 0; c < COLUMNS; c++)
        bp_free(self.blocks[c]);
    bp_free(path);
    return err;
}

void comparison_scores_clear(comparison_scores *scores)
{
    for (int s = 0; s < COMPARISON_SCORES; s++)
        bp_free(scores->means[s]);
    for (int o = 0; o < COMPARISON_ORDERS; o++)
        bp_free(scores->uncertain[o]);
    for (int f = 0; f < COMPARISON_FIGURES; f++)
        bp_free(scores->figures[f]);
    bp_free(scores->doc_start);
    bp_free(scores->nll);
    bp_free(scores->correct);
    bp_free(scores->calibration);
    bp_free(scores->tempered);
    *scores = (comparison_scores){0};
}
