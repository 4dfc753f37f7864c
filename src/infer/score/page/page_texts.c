/* The documents that a page shows, with their texts. Called by page.c. */
#include "infer/score/page/page_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/score.h"
#include "io/h5/h5.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED        10  /* hardest documents, and easiest ones */
#define FEW_TOKENS    50  /* documents with less are not listed, if half of all have more */
#define BEGIN_TOKENS  200 /* of a text's beginning, */
#define BEGIN_BYTES   200 /* and bytes of that */
#define SAMPLE_TOKENS 400
#define DARKEST_NATS  10.0 /* a token of probability e^-10 has the full colour */
#define ID_BYTES      1025

typedef struct texts {
    const scorer *self;
    const bp_score_table *table;
    bp_tokenizer *tokenizer; /* NULL: there is none */
    bp_h5 *tokens;           /* tokens.h5; NULL: not asked for */
    bool spaced;             /* tokens are separated by a space */
} texts;

/* ---- the tokenizer ---- */

/* The one of tokenizer.path, if it is the corpora's. */
static bp_err load_given(texts *self)
{
    const char *path = bp_run_keys_of(self->self->config)->tokenizer_path;
    const char *hash = bp_corpus_tokenizer_hash(self->self->corpus);
    bp_err err = path ? bp_tokenizer_load(&self->tokenizer, path) : BP_OK;

    if (self->tokenizer && hash[0] &&
        !bp_tokenizer_same_hash(hash, bp_tokenizer_hash(self->tokenizer)))
        bp_tokenizer_free(&self->tokenizer);
    return err;
}

static bp_err load_tokenizer(texts *self)
{
    const bp_corpus *corpus = self->self->corpus;
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; err == BP_OK && !text && k < bp_corpus_files(corpus); k++)
        err = bp_corpus_file_tokenizer(bp_corpus_file_at(corpus, k), &text, &bytes);
    if (err == BP_OK)
        err = text ? bp_tokenizer_parse(&self->tokenizer, text, bytes, "the corpus's tokenizer")
                   : load_given(self);
    bp_free(text);
    self->spaced = self->tokenizer && strcmp(bp_tokenizer_kind(self->tokenizer), "word") == 0;
    return err;
}

/* ---- which documents ---- */

typedef struct candidate {
    double perplexity;
    int64_t document, tokens;
} candidate;

static int by_tokens(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    return x->tokens < y->tokens ? -1 : x->tokens > y->tokens;
}

static int by_perplexity(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->perplexity != y->perplexity)
        return x->perplexity < y->perplexity ? -1 : 1;
    return x->document < y->document ? -1 : x->document > y->document;
}

/* Documents by perplexity, without those that are so short that chance decides; *least: of the
 * tokens they have. */
static void find_candidates(const texts *self, candidate **out, int64_t *count, int64_t *least)
{
    int64_t documents = self->table->plan->documents, first = 0, found = 0;
    candidate *all = bp_alloc("score.page", documents, sizeof *all);

    *out = all;
    *count = *least = 0;
    for (int64_t d = 0; d < documents; d++) {
        double perplexity = score_page_perplexity(self->table, d);

        if (isfinite(perplexity))
            all[found++] = (candidate){perplexity, d, self->table->rows[d].tokens};
    }
    if (found == 0)
        return;
    qsort(all, (size_t)found, sizeof *all, by_tokens);
    *least = all[found / 2].tokens < FEW_TOKENS ? all[found / 2].tokens : FEW_TOKENS;
    while (all[first].tokens < *least)
        first++;
    *count = found - first;
    memmove(all, all + first, (size_t)*count * sizeof *all);
    qsort(all, (size_t)*count, sizeof *all, by_perplexity);
}

/* ---- tokens ---- */

/* The first of a document's tokens that are text, `most` of them; ids[most]. */
static bp_err read_ids(const texts *self, int64_t document, int32_t *ids, int64_t most,
                       bp_score_document *place, int64_t *count)
{
    const bp_score_plan *plan = self->table->plan;
    bp_err err = bp_score_plan_document(plan, document, place);

    *count = 0;
    if (err != BP_OK)
        return err;
    *count = place->text < most ? place->text : most;
    return bp_corpus_file_read(bp_corpus_file_at(plan->corpus, place->file), place->start, *count,
                               ids);
}

/* The beginning of a text. */
static bp_err add_beginning(const texts *self, json_t *row, int64_t document)
{
    int32_t ids[BEGIN_TOKENS];
    bp_score_document place;
    int64_t count;
    char *text = NULL;
    size_t bytes = 0, whole;
    bp_err err = read_ids(self, document, ids, BEGIN_TOKENS, &place, &count);

    if (err == BP_OK)
        err = bp_decode(self->tokenizer, (const uint32_t *)ids, count, &text, &bytes);
    if (err != BP_OK)
        return err;
    whole = bytes;
    if (bytes > BEGIN_BYTES)
        for (bytes = BEGIN_BYTES; bytes > 0 && ((uint8_t)text[bytes] & 0xC0) == 0x80;)
            bytes--;
    (void)json_object_set_new(row, "text", score_page_text(text, bytes));
    (void)json_object_set_new(row, "more", json_boolean(bytes < whole || count < place.text));
    bp_free(text);
    return BP_OK;
}

/* A document of a list; *out is a new reference. */
static bp_err describe(const texts *self, const candidate *one, json_t **out)
{
    const bp_score_plan *plan = self->table->plan;
    int64_t file = bp_score_plan_file(plan, one->document);
    bp_corpus_file *corpus = bp_corpus_file_at(plan->corpus, file);
    int64_t document = one->document - plan->first_document[file];
    char id[ID_BYTES], *name = bp_score_corpus_name(bp_corpus_file_path(corpus));
    bp_err err = bp_corpus_file_doc_id(corpus, document, id, sizeof id);

    if (err == BP_OK && id[0] == '\0')
        (void)snprintf(id, sizeof id, "document %" PRId64, document);
    *out = err != BP_OK
               ? NULL
               : json_pack("{s:o, s:o, s:I}", "id", score_page_text(id, strlen(id)), "corpus",
                           score_page_text(name, strlen(name)), "tokens", (json_int_t)one->tokens);
    bp_free(name);
    if (err != BP_OK)
        return err;
    score_page_add_value(*out, "perplexity", "%.4f", one->perplexity);
    if (self->table->statistics->members > 0)
        score_page_add_value(*out, "information", "%.4f",
                             bp_fixed_real(bp_score_document_statistics(
                                 self->table, one->document)[BP_MODEL_MUTUAL_INFORMATION - 1]) /
                                 (double)one->tokens);
    return self->tokenizer ? add_beginning(self, *out, one->document) : BP_OK;
}

/* ---- samples ---- */

/* Values of a statistic of a document's tokens. */
static bp_err read_statistic(const texts *self, const bp_score_document *place, int64_t statistic,
                             double *values, int64_t count)
{
    int64_t first = self->table->plan->first_token[place->file] + place->start;

    return bp_h5_read(self->tokens, bp_model_statistic_name(statistic), BP_H5_F64, first, values,
                      count);
}

/* How dark: 0 to 1. */
static double shade(double value, double darkest)
{
    return value > darkest ? 1 : value > 0 && darkest > 0 ? value / darkest : 0;
}

static bp_err add_token(const texts *self, json_t *list, int32_t id, double logprob,
                        double information, double darkest)
{
    bp_buffer text = {0}, says = {0};
    bp_err err = bp_tokenizer_token_text(self->tokenizer, id, &text);
    char *shown = bp_buffer_take(&text);
    size_t bytes = strlen(shown);

    bp_buffer_printf(&says, "token %d", id);
    if (isfinite(logprob))
        bp_buffer_printf(&says, ", log-probability %.3f, probability %.3g", logprob, exp(logprob));
    else
        bp_buffer_printf(&says, ", not scored");
    if (isfinite(information))
        bp_buffer_printf(&says, ", mutual information %.4f", information);
    if (err == BP_OK) {
        json_t *token = json_pack("{s:s, s:s, s:b, s:b, s:b}", "text", shown, "says", says.data,
                                  "space", (int)self->spaced, "line",
                                  (int)(bytes >= 2 && strcmp(shown + bytes - 2, "\\n") == 0),
                                  "unscored", (int)!isfinite(logprob));

        score_page_add_value(token, "p", "%.2f", shade(-logprob, DARKEST_NATS));
        score_page_add_value(token, "m", "%.2f", shade(information, darkest));
        (void)json_array_append_new(list, token);
    }
    bp_buffer_clear(&says);
    bp_free(shown);
    return err;
}

static bp_err add_sample(const texts *self, json_t *samples, const char *which,
                         const candidate *one)
{
    bool ensemble = self->table->statistics->members > 0;
    int32_t ids[SAMPLE_TOKENS];
    double logprob[SAMPLE_TOKENS], information[SAMPLE_TOKENS], darkest = 0;
    bp_score_document place;
    int64_t count;
    json_t *sample = NULL, *tokens = json_array();
    bp_err err = describe(self, one, &sample);

    if (err == BP_OK)
        err = read_ids(self, one->document, ids, SAMPLE_TOKENS, &place, &count);
    if (err == BP_OK)
        err = read_statistic(self, &place, BP_MODEL_LOGPROB, logprob, count);
    if (err == BP_OK && ensemble)
        err = read_statistic(self, &place, BP_MODEL_MUTUAL_INFORMATION, information, count);
    for (int64_t k = 0; err == BP_OK && k < count; k++) {
        information[k] = ensemble ? information[k] : NAN;
        darkest = fmax(darkest, information[k]);
    }
    for (int64_t k = 0; err == BP_OK && k < count; k++)
        err = add_token(self, tokens, ids[k], logprob[k], information[k], darkest);
    if (err == BP_OK) {
        (void)json_object_set_new(sample, "which", bp_json_string(which));
        (void)json_object_set(sample, "spans", tokens);
        (void)json_object_set_new(sample, "cut", json_boolean(count < place.text));
        score_page_add_value(sample, "darkest", "%.4f", ensemble ? darkest : NAN);
        (void)json_array_append(samples, sample);
    }
    json_decref(tokens);
    json_decref(sample);
    return err;
}

/* ---- all ---- */

static bp_err add_lists(const texts *self, json_t *page, const candidate *all, int64_t count)
{
    int64_t listed = count / 2 < LISTED ? (count + 1) / 2 : LISTED;
    json_t *hardest = json_object_get(page, "hardest"), *easiest = json_object_get(page, "easiest");
    bp_err err = BP_OK;

    for (int64_t k = 0; err == BP_OK && k < 2 * listed && k < count; k++) {
        bool hard = k < listed;
        json_t *row;

        err = describe(self, hard ? &all[count - 1 - k] : &all[k - listed], &row);
        if (err == BP_OK)
            (void)json_array_append_new(hard ? hardest : easiest, row);
    }
    return err;
}

bp_err score_page_add_texts(json_t *page, const scorer *self, const bp_score_table *table)
{
    texts all_texts = {.self = self, .table = table};
    bool wants = bp_score_keys_of(self->config)->tokens;
    candidate *all = NULL;
    int64_t count = 0, least = 0;
    json_t *samples = json_array();
    bp_err err = load_tokenizer(&all_texts);

    if (err == BP_OK)
        find_candidates(&all_texts, &all, &count, &least);
    (void)json_object_set_new(page, "hardest", json_array());
    (void)json_object_set_new(page, "easiest", json_array());
    (void)json_object_set_new(page, "samples", samples);
    (void)json_object_set_new(page, "least_tokens", json_integer(least));
    (void)json_object_set_new(page, "has_text", json_boolean(all_texts.tokenizer));
    (void)json_object_set_new(page, "has_tokens", json_boolean(wants));
    if (err == BP_OK)
        err = add_lists(&all_texts, page, all, count);
    if (err == BP_OK && wants && all_texts.tokenizer) {
        char *path = bp_path_join(self->folder, "tokens.h5");

        err = bp_h5_open(&all_texts.tokens, path);
        bp_free(path);
        if (err == BP_OK && count > 0)
            err = add_sample(&all_texts, samples, "The hardest document", &all[count - 1]);
        if (err == BP_OK && count > 2)
            err = add_sample(&all_texts, samples, "The document in the middle", &all[count / 2]);
        if (err == BP_OK && count > 1)
            err = add_sample(&all_texts, samples, "The easiest document", &all[0]);
    }
    bp_h5_drop(&all_texts.tokens);
    bp_tokenizer_free(&all_texts.tokenizer);
    bp_free(all);
    return err;
}
