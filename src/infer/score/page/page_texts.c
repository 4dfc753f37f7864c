/* The documents that a page shows, with their texts. Called by page.c. */
#include "infer/score/page/page_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/h5.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED        10  /* hardest documents, and easiest ones */
#define LISTS_MOST    7   /* corpora with their own lists */
#define FEW_TOKENS    50  /* documents with fewer tokens are not listed, if half of all have more */
#define BEGIN_TOKENS  200 /* of a text's beginning, */
#define BEGIN_BYTES   200 /* and bytes of that */
#define SAMPLE_TOKENS 400
#define DARKEST_NATS  10.0 /* a token of probability e^-10 has the full colour */
#define ID_BYTES      1025

typedef struct texts {
    const scorer *self;
    const bp_score_table *table;
    bp_tokenizer *tokenizer; /* NULL if there is none */
    bp_h5 *tokens;           /* tokens.h5; NULL if not requested */
    bool spaced;             /* tokens are separated by a space */
} texts;

/* ---- the tokenizer ---- */

/* The one of tokenizer.path, if it is the corpora's. */
static bp_err load_given(bp_tokenizer **out, const bp_corpus *corpus, const bp_config *config)
{
    const char *path = bp_run_keys_of(config)->tokenizer_path;
    const char *hash = bp_corpus_tokenizer_hash(corpus);
    bp_err err = path ? bp_tokenizer_load(out, path) : BP_OK;

    if (*out && hash[0] && !bp_tokenizer_same_hash(hash, bp_tokenizer_hash(*out)))
        bp_tokenizer_free(out);
    return err;
}

bp_err bp_score_page_tokenizer(bp_tokenizer **out, const bp_corpus *corpus, const bp_config *config)
{
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = BP_OK;

    *out = NULL;
    for (int64_t k = 0; err == BP_OK && !text && k < bp_corpus_files(corpus); k++)
        err = bp_corpus_file_tokenizer(bp_corpus_file_at(corpus, k), &text, &bytes);
    if (err == BP_OK)
        err = text ? bp_tokenizer_parse(out, text, bytes, "the corpus's tokenizer")
                   : load_given(out, corpus, config);
    bp_free(text);
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

/* Documents by perplexity, without those too short for a reliable value; *least: their minimum of
 * tokens. */
static void find_candidates(const texts *self, candidate **out, int64_t *count, int64_t *least)
{
    int64_t documents = self->table->plan->documents, first = 0, found = 0;
    candidate *all = bp_alloc("score.page", documents, sizeof *all);

    *out = all;
    *count = *least = 0;
    for (int64_t d = 0; d < documents; d++) {
        double perplexity = score_page_perplexity(self->table, d);

        if (isfinite(perplexity))
            all[found++] = (candidate){perplexity, d, self->table->tokens[d]};
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

/* Read the first text tokens of a document, at most `most`, into ids[most]. */
static bp_err read_ids(const bp_score_plan *plan, int64_t document, int32_t *ids, int64_t most,
                       bp_score_document *place, int64_t *count)
{
    bp_err err = bp_score_plan_document(plan, document, place);

    *count = 0;
    if (err != BP_OK)
        return err;
    *count = place->text < most ? place->text : most;
    return bp_corpus_file_read(bp_corpus_file_at(plan->corpus, place->file), place->start, *count,
                               ids);
}

/* The beginning of a text, of whole characters, as member `key`; *cut: it has more bytes. */
static bp_err put_beginning(json_t *row, const char *key, const bp_tokenizer *tokenizer,
                            const int32_t *ids, int64_t count, bool *cut)
{
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_decode(tokenizer, (const uint32_t *)ids, count, &text, &bytes);

    if (err != BP_OK)
        return err;
    *cut = bytes > BEGIN_BYTES;
    if (*cut)
        for (bytes = BEGIN_BYTES; bytes > 0 && ((uint8_t)text[bytes] & 0xC0) == 0x80;)
            bytes--;
    (void)json_object_set_new(row, key, bp_score_page_text(text, bytes));
    bp_free(text);
    return BP_OK;
}

/* For a pair. */
static bp_err add_source(json_t *row, const bp_tokenizer *tokenizer, const bp_score_plan *plan,
                         const bp_score_document *place)
{
    int32_t ids[BEGIN_TOKENS];
    int64_t count = place->source < BEGIN_TOKENS ? place->source : BEGIN_TOKENS;
    bool cut = false;
    bp_err err = bp_corpus_file_read(bp_corpus_file_at(plan->corpus, place->file),
                                     place->start - place->source, count, ids);

    if (err == BP_OK)
        err = put_beginning(row, "source", tokenizer, ids, count, &cut);
    (void)json_object_set_new(row, "more_source", json_boolean(cut || count < place->source));
    return err;
}

bp_err score_page_add_beginning(json_t *row, const bp_tokenizer *tokenizer,
                                const bp_score_plan *plan, int64_t document)
{
    int32_t ids[BEGIN_TOKENS];
    bp_score_document place;
    int64_t count;
    bool cut = false;
    bp_err err = read_ids(plan, document, ids, BEGIN_TOKENS, &place, &count);

    if (err == BP_OK)
        err = put_beginning(row, "text", tokenizer, ids, count, &cut);
    if (err != BP_OK)
        return err;
    (void)json_object_set_new(row, "more", json_boolean(cut || count < place.text));
    return place.source > 0 ? add_source(row, tokenizer, plan, &place) : BP_OK;
}

bp_err score_page_add_pair(json_t *row, const bp_tokenizer *tokenizer, const bp_score_plan *plan,
                           int64_t document)
{
    const char *const KEYS[2][2] = {{"text", "more"}, {"second", "more_second"}};
    int64_t f = bp_score_plan_file(plan, document), inside = document - plan->first_document[f];
    bp_corpus_file *file = bp_corpus_file_at(plan->corpus, f);
    const int64_t *segments, *segment_start;
    bp_score_document place;
    bp_err err = bp_score_plan_document(plan, document, &place);

    if (err == BP_OK)
        err = bp_corpus_file_segments(file, &segments, &segment_start);
    for (int k = 0; k < 2 && err == BP_OK; k++) {
        int64_t end = place.start + place.text,
                second = segments[inside + 1] - segments[inside] > 1
                             ? segment_start[segments[inside] + 1]
                             : end,
                start = k == 0 ? place.start : second,
                tokens = k == 0 ? second - place.start : end - second,
                count = tokens < BEGIN_TOKENS ? tokens : BEGIN_TOKENS;
        int32_t ids[BEGIN_TOKENS];
        bool cut = false;

        err = bp_corpus_file_read(file, start, count, ids);
        if (err == BP_OK)
            err = put_beginning(row, KEYS[k][0], tokenizer, ids, count, &cut);
        (void)json_object_set_new(row, KEYS[k][1], json_boolean(cut || count < tokens));
    }
    return err;
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
    *out = err != BP_OK ? NULL
                        : json_pack("{s:o, s:o, s:I}", "id", bp_score_page_text(id, strlen(id)),
                                    "corpus", bp_score_page_text(name, strlen(name)), "tokens",
                                    (json_int_t)one->tokens);
    bp_free(name);
    if (err != BP_OK)
        return err;
    bp_score_page_add_figure(*out, "perplexity", one->perplexity, NAN);
    if (self->table->statistics->members > 0)
        bp_score_page_add_value(*out, "information", "%.4f",
                                bp_fixed_real(bp_score_document_statistics(
                                    self->table, one->document)[BP_MODEL_MUTUAL_INFORMATION - 1]) /
                                    (double)one->tokens);
    return self->tokenizer
               ? score_page_add_beginning(*out, self->tokenizer, self->table->plan, one->document)
               : BP_OK;
}

/* ---- samples ---- */

/* The first tokens of a document, with the model's statistics. */
typedef struct sample_tokens {
    const texts *texts;
    int64_t count;
    int32_t ids[SAMPLE_TOKENS];
    double logprob[SAMPLE_TOKENS], information[SAMPLE_TOKENS], darkest;
} sample_tokens;

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

/* The title of a span with its tokens: several if their bytes form one character. */
static void describe_span(bp_buffer *says, const int32_t *ids, int64_t taken, double logprob,
                          double information)
{
    bp_buffer_printf(says, taken > 1 ? "tokens" : "token");
    for (int64_t k = 0; k < taken; k++)
        bp_buffer_printf(says, " %d", ids[k]);
    if (isfinite(logprob))
        bp_buffer_printf(says, ", log-probability %.3f, surprisal %.2f bits, probability %.3g",
                         logprob, -logprob / log(2), exp(logprob));
    else
        bp_buffer_printf(says, ", not scored");
    if (isfinite(information))
        bp_buffer_printf(says, ", mutual information %.4f", information);
}

/* The next tokens of a sample as a span: *taken of them. */
static bp_err add_span(const sample_tokens *tokens, json_t *list, int64_t at, int64_t *taken)
{
    const texts *self = tokens->texts;
    bp_buffer text = {0}, says = {0};
    bp_err err = bp_tokenizer_characters(self->tokenizer, &tokens->ids[at], tokens->count - at,
                                         &text, taken);
    char *shown = bp_buffer_take(&text);
    size_t bytes = strlen(shown);
    double logprob = 0, information = NAN;

    for (int64_t k = at; k < at + *taken; k++) {
        logprob += tokens->logprob[k];
        information = fmax(information, tokens->information[k]); /* which ignores NaN */
    }
    describe_span(&says, &tokens->ids[at], *taken, logprob, information);
    if (err == BP_OK) {
        json_t *span = json_pack("{s:s, s:s, s:b, s:b, s:b}", "text", shown, "says", says.data,
                                 "space", (int)self->spaced, "line",
                                 (int)(bytes >= 2 && strcmp(shown + bytes - 2, "\\n") == 0),
                                 "unscored", (int)!isfinite(logprob));

        bp_score_page_add_value(span, "p", "%.2f", shade(-logprob, DARKEST_NATS));
        bp_score_page_add_value(span, "m", "%.2f", shade(information, tokens->darkest));
        (void)json_array_append_new(list, span);
    }
    bp_buffer_clear(&says);
    bp_free(shown);
    return err;
}

static bp_err read_sample(sample_tokens *tokens, const candidate *one, bp_score_document *place)
{
    const texts *self = tokens->texts;
    bool ensemble = self->table->statistics->members > 0;
    bp_err err = read_ids(self->table->plan, one->document, tokens->ids, SAMPLE_TOKENS, place,
                          &tokens->count);

    if (err == BP_OK)
        err = read_statistic(self, place, BP_MODEL_LOGPROB, tokens->logprob, tokens->count);
    if (err == BP_OK && ensemble)
        err = read_statistic(self, place, BP_MODEL_MUTUAL_INFORMATION, tokens->information,
                             tokens->count);
    for (int64_t k = 0; err == BP_OK && k < tokens->count; k++) {
        tokens->information[k] = ensemble ? tokens->information[k] : NAN;
        tokens->darkest = fmax(tokens->darkest, tokens->information[k]);
    }
    return err;
}

static bp_err add_sample(const texts *self, json_t *samples, const char *which,
                         const candidate *one)
{
    sample_tokens tokens = {.texts = self};
    bp_score_document place;
    json_t *sample = NULL, *spans = json_array();
    bp_err err = describe(self, one, &sample);

    if (err == BP_OK)
        err = read_sample(&tokens, one, &place);
    for (int64_t k = 0, taken = 0; err == BP_OK && k < tokens.count; k += taken)
        err = add_span(&tokens, spans, k, &taken);
    if (err == BP_OK) {
        (void)json_object_set_new(sample, "which", bp_json_string(which));
        (void)json_object_set(sample, "spans", spans);
        (void)json_object_set_new(sample, "cut", json_boolean(tokens.count < place.text));
        bp_score_page_add_value(sample, "darkest", "%.4f",
                                self->table->statistics->members > 0 ? tokens.darkest : NAN);
        (void)json_array_append(samples, sample);
    }
    json_decref(spans);
    json_decref(sample);
    return err;
}

/* ---- all ---- */

/* A document that is in corpus `file`, or any (-1). */
static bool is_of(const texts *self, const candidate *one, int64_t file)
{
    return file < 0 || bp_score_plan_file(self->table->plan, one->document) == file;
}

/* The hardest and the easiest of one corpus, or of all (file -1). */
static bp_err add_list(const texts *self, json_t *lists, const candidate *all, int64_t count,
                       int64_t file)
{
    json_t *hardest = json_array(), *easiest = json_array(), *row;
    int64_t found = 0, half;
    char *name = file < 0 ? NULL
                          : bp_score_corpus_name(bp_corpus_file_path(
                                bp_corpus_file_at(self->table->plan->corpus, file)));
    bp_err err = BP_OK;

    for (int64_t k = 0; k < count; k++)
        found += is_of(self, &all[k], file);
    half = (found + 1) / 2 < LISTED ? (found + 1) / 2 : LISTED;
    for (int64_t k = count - 1, left = half; err == BP_OK && k >= 0 && left > 0; k--)
        if (is_of(self, &all[k], file) && left-- > 0 &&
            (err = describe(self, &all[k], &row)) == BP_OK)
            (void)json_array_append_new(hardest, row);
    for (int64_t k = 0, left = found - half < half ? found - half : half;
         err == BP_OK && k < count && left > 0; k++)
        if (is_of(self, &all[k], file) && left-- > 0 &&
            (err = describe(self, &all[k], &row)) == BP_OK)
            (void)json_array_append_new(easiest, row);
    (void)json_array_append_new(lists,
                                json_pack("{s:o?, s:o, s:o}", "of",
                                          name ? bp_score_page_text(name, strlen(name)) : NULL,
                                          "hardest", hardest, "easiest", easiest));
    bp_free(name);
    return err;
}

/* Corpus by corpus, so that the harder one does not fill the list. */
static bp_err add_lists(const texts *self, json_t *page, const candidate *all, int64_t count)
{
    int64_t files = self->table->plan->files;
    json_t *lists = json_object_get(page, "lists");
    bool apart = files > 1 && files <= LISTS_MOST;
    bp_err err = BP_OK;

    for (int64_t f = apart ? 0 : -1; err == BP_OK && f < (apart ? files : 0); f++)
        err = add_list(self, lists, all, count, f);
    return err;
}

bp_err score_page_add_texts(json_t *page, const scorer *self, const bp_score_table *table)
{
    texts all_texts = {.self = self, .table = table};
    bool wants = bp_score_keys_of(self->config)->tokens;
    candidate *all = NULL;
    int64_t count = 0, least = 0;
    json_t *samples = json_array();
    bp_err err = bp_score_page_tokenizer(&all_texts.tokenizer, self->corpus, self->config);

    all_texts.spaced =
        all_texts.tokenizer && strcmp(bp_tokenizer_kind(all_texts.tokenizer), "word") == 0;
    if (err == BP_OK)
        find_candidates(&all_texts, &all, &count, &least);
    (void)json_object_set_new(page, "lists", json_array());
    (void)json_object_set_new(page, "samples", samples);
    (void)json_object_set_new(page, "least_tokens", json_integer(least));
    (void)json_object_set_new(page, "has_text", json_boolean(all_texts.tokenizer));
    (void)json_object_set_new(
        page, "pairs",
        json_boolean(all_texts.tokenizer && self->rule.convention == BP_SCORE_PAIRS));
    (void)json_object_set_new(page, "has_tokens", json_boolean(wants));
    if (err == BP_OK)
        err = add_lists(&all_texts, page, all, count);
    if (err == BP_OK && wants && all_texts.tokenizer) {
        char *path = bp_path_join(self->folder, "tokens.h5"),
             *middle = least > 1 ? bp_sprintf("The document in the middle of those with %" PRId64
                                              " tokens or more",
                                              least)
                                 : bp_strdup("The document in the middle");

        err = bp_h5_open(&all_texts.tokens, path);
        bp_free(path);
        if (err == BP_OK && count > 0)
            err = add_sample(&all_texts, samples, "The hardest document", &all[count - 1]);
        if (err == BP_OK && count > 2)
            err = add_sample(&all_texts, samples, middle, &all[count / 2]);
        if (err == BP_OK && count > 1)
            err = add_sample(&all_texts, samples, "The easiest document", &all[0]);
        bp_free(middle);
    }
    bp_h5_drop(&all_texts.tokens);
    bp_tokenizer_free(&all_texts.tokenizer);
    bp_free(all);
    return err;
}
