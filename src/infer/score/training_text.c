/* Compares scored text with the training text, document by document and token by token. Called by
 * setup.c. */
#include "infer/score/training_text.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "data/document_starts.h"
#include "infer/score/passages.h"
#include "infer/score/tables/summary.h"
#include "infer/score/token_frequencies.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "models/family.h"
#include "run/run_compare.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FEW_TOKENS   8    /* shorter documents, such as headings, may be in both by chance */
#define SHARED_LEAST 0.01 /* of the scored tokens, in documents that are in both */
#define FORMS_MOST   8    /* corpora that are looked at one by one */
#define OTHER_LENGTH 10.0 /* ratio of the mean lengths of documents */
#define SHORT_TEXT   256  /* tokens: of a longer document the first words are a small part */

typedef struct known_document {
    uint64_t hash;
    int64_t number, tokens;
    bool found; /* in the training text */
} known_document;

typedef struct texts {
    known_document *documents; /* scored ones of FEW_TOKENS or more, by their hash */
    int64_t count, capacity;
    bool *known; /* [visited] documents that are there, whole or by most of their passages */
    bp_passages *passages;
    bp_token_frequencies counts;
    int64_t visited;
} texts;

/* ---- documents of a corpus ---- */

typedef void visit_document(texts *self, const int32_t *tokens, int64_t count);

/* Of files [first, end). */
static bp_err each_document_of(bp_corpus *corpus, int64_t first, int64_t end, visit_document *visit,
                               texts *self)
{
    int32_t *tokens = NULL;
    int64_t capacity = 0;
    bp_document_starts *starts = bp_document_starts_new(corpus);
    bp_err err = BP_OK;

    for (int64_t k = first; k < end && err == BP_OK; k++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, k);
        const int64_t *start = NULL;

        for (int64_t d = 0; err == BP_OK && d < bp_corpus_file_info(file)->documents; d++) {
            int64_t count = 0;

            err = bp_document_starts_at(starts, k, d, &start);
            if (err == BP_OK) {
                count = start[1] - start[0];
                tokens = bp_grow("score.training", tokens, &capacity, count, sizeof *tokens);
                err = bp_corpus_file_read(file, start[0], count, tokens);
            }
            if (err == BP_OK)
                visit(self, tokens, count);
        }
    }
    bp_document_starts_free(&starts);
    bp_free(tokens);
    return err;
}

static bp_err each_document(bp_corpus *corpus, visit_document *visit, texts *self)
{
    return each_document_of(corpus, 0, bp_corpus_files(corpus), visit, self);
}

static uint64_t hash_of(const int32_t *tokens, int64_t count)
{
    return bp_xxh3(tokens, (size_t)count * sizeof *tokens);
}

static void visit_tokens(texts *self, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        self->counts.scored[tokens[i]]++;
    self->counts.tokens += count;
}

static void visit_scored(texts *self, const int32_t *tokens, int64_t count)
{
    visit_tokens(self, tokens, count);
    if (count >= FEW_TOKENS) {
        self->documents = bp_grow("score.training", self->documents, &self->capacity,
                                  self->count + 1, sizeof *self->documents);
        self->documents[self->count++] =
            (known_document){hash_of(tokens, count), self->visited, count, false};
    }
    bp_passages_add(self->passages, tokens, count);
    self->visited++;
}

/* The first scored document with this hash, or where it would be. */
static int64_t find_hash(const texts *self, uint64_t hash)
{
    int64_t low = 0, high = self->count;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (self->documents[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void visit_trained(texts *self, const int32_t *tokens, int64_t count)
{
    uint64_t hash = hash_of(tokens, count);

    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < self->counts.vocab_size)
            self->counts.trained[tokens[i]]++;
    self->counts.trained_tokens += count;
    bp_passages_find(self->passages, tokens, count);
    if (count < FEW_TOKENS)
        return;
    for (int64_t k = find_hash(self, hash); k < self->count && self->documents[k].hash == hash; k++)
        self->documents[k].found = true;
}

/* ---- what is said ---- */

static double percent(int64_t part, int64_t of)
{
    return 100 * (double)part / (double)of;
}

static bp_known_text warn_of_documents(const texts *self, const char *training)
{
    int64_t documents = 0, tokens = 0, first = INT64_MAX, all = self->counts.tokens;

    for (int64_t k = 0; k < self->count; k++)
        if (self->known[self->documents[k].number]) {
            documents++;
            tokens += self->documents[k].tokens;
            first = self->documents[k].number < first ? self->documents[k].number : first;
        }
    bool many = (double)tokens >= SHARED_LEAST * (double)all && documents > 0;

    if (many)
        BP_WARN("score.training_text",
                "%" PRId64 " of %" PRId64 " documents, %.3g %% of the tokens, are in the training "
                "text %s too, whole or by most of their passages, the first is document %" PRId64
                ": at score.corpus; the model may "
                "know them by heart, see bagpipe-data overlap",
                documents, self->visited, percent(tokens, all), training, first);
    return many ? (bp_known_text){documents, self->visited, percent(tokens, all) / 100}
                : (bp_known_text){0};
}

/* Each corpus has its own form: of several each is counted alone, but of very many. */
static void warn_of_forms(texts *self, bp_corpus *corpus, const char *training)
{
    int64_t files = bp_corpus_files(corpus);
    bp_err err = BP_OK;

    if (files == 1 || files > FORMS_MOST)
        bp_token_frequencies_warn(&self->counts, corpus, "", training);
    else
        for (int64_t k = 0; k < files && err == BP_OK; k++) {
            char *name = bp_score_corpus_name(bp_corpus_file_path(bp_corpus_file_at(corpus, k)));
            char *of = bp_sprintf(" of corpus %s", name);

            memset(self->counts.scored, 0,
                   (size_t)self->counts.vocab_size * sizeof *self->counts.scored);
            self->counts.tokens = 0;
            err = each_document_of(corpus, k, k + 1, visit_tokens, self);
            if (err == BP_OK)
                bp_token_frequencies_warn(&self->counts, corpus, of, training);
            bp_free(of);
            bp_free(name);
        }
}

/* ---- the training text ---- */

/* The list of files that the run trained on, if they have the content still, and are not too long:
 * in *corpus, else NULL. Their bytes are checked as they are read, for there may be very many.
 * whole: it was trained on nothing else. Owns: *list is the caller's. */
static void open_training(bp_corpus **corpus, char **list, bool *whole, const char *run,
                          const char *hash)
{
    run_pairs pairs = {0};
    bp_err err = bp_run_pairs_read(&pairs, run);
    const char *text = err == BP_OK ? bp_run_pairs_find(&pairs, "corpus.train") : NULL,
               *begun = err == BP_OK ? bp_run_pairs_find(&pairs, "model.init") : NULL;

    bool before = bp_corpus_file_hash_whole(false);

    *corpus = NULL;
    *list = bp_strdup(text ? text : "");
    *whole = !begun || begun[0] == '\0';
    if ((*list)[0] != '\0' && bp_corpus_open(corpus, *list) == BP_OK &&
        (strcmp(bp_corpus_hash(*corpus), hash) != 0 ||
         bp_corpus_tokens(*corpus) > BP_TRAINING_TEXT_TOKENS))
        bp_corpus_close(corpus);
    (void)bp_corpus_file_hash_whole(before);
    bp_run_pairs_clear(&pairs);
}

static double mean_tokens(const bp_corpus *corpus)
{
    return (double)bp_corpus_tokens(corpus) / (double)bp_corpus_documents(corpus);
}

/* Text that was cut into documents in another way. */
static void warn_of_lengths(const bp_corpus *corpus, const bp_corpus *training, const char *list)
{
    double scored = mean_tokens(corpus), trained = mean_tokens(training), ratio = scored / trained;

    if (ratio >= OTHER_LENGTH || ratio <= 1 / OTHER_LENGTH)
        BP_WARN(
            "score.other_documents",
            "a document has %.4g tokens on average, and one of the training text %s has %.4g: "
            "at score.corpus; how a text is cut into documents changes its perplexity: cut both "
            "in one way (bagpipe-data corpus --format, --separator)",
            scored, list, trained);
}

static bp_known_text compare(bp_corpus *corpus, bp_corpus *training, const char *list, bool whole)
{
    int64_t V = bp_corpus_vocab_size(corpus);
    texts self = {.counts = {.scored = bp_alloc("score.training", V, sizeof(int64_t)),
                             .trained = bp_alloc("score.training", V, sizeof(int64_t)),
                             .vocab_size = V},
                  .passages = bp_passages_new(bp_corpus_tokens(corpus))};
    bp_known_text known = {0};
    bp_err err = each_document(corpus, visit_scored, &self);

    if (self.count > 0)
        qsort(self.documents, (size_t)self.count, sizeof *self.documents, bp_by_uint64);
    if (err == BP_OK)
        err = each_document(training, visit_trained, &self);
    self.known = bp_alloc("score.training", self.visited, sizeof *self.known);
    for (int64_t k = 0; k < self.count; k++)
        self.known[self.documents[k].number] = self.documents[k].found;
    if (err == BP_OK && self.counts.tokens > 0) {
        bp_passages_mark(self.passages, self.known);
        known = warn_of_documents(&self, list);
        if (whole)
            warn_of_forms(&self, corpus, list);
    }
    bp_free(self.documents);
    bp_free(self.known);
    bp_free(self.counts.trained);
    bp_free(self.counts.scored);
    bp_passages_free(&self.passages);
    return known;
}

/* `folder`: of a checkpoint, RUN/checkpoints/step-N. */
static bp_known_text warn_of_run(bp_corpus *corpus, const char *folder, const char *hash)
{
    char *run = bp_path_join(folder, "../.."), *list = NULL;
    bp_corpus *training = NULL;
    bp_known_text known = {0};
    bool whole = false;

    if (bp_corpus_tokens(corpus) <= BP_TRAINING_TEXT_TOKENS)
        open_training(&training, &list, &whole, run, hash);
    if (training && whole)
        warn_of_lengths(corpus, training, list);
    if (training)
        known = compare(corpus, training, list, whole);
    bp_corpus_close(&training);
    bp_free(list);
    bp_free(run);
    return known;
}

/* Warns of short documents of a model whose training carried a state from document to document, or
 * began windows within them, and so hardly ever began a document with the zero state, as scoring
 * does. `folder`: of a checkpoint, RUN/checkpoints/step-N. */
static void warn_of_zero_state(const json_t *state, const char *folder, const bp_corpus *corpus)
{
    int64_t documents = bp_corpus_documents(corpus);
    bp_model_shape shape;
    run_pairs pairs = {0};
    char *run;

    if (documents == 0 || bp_corpus_tokens(corpus) >= SHORT_TEXT * documents ||
        json_is_true(json_object_get(state, BP_STATE_RESTARTS)) ||
        bp_model_shape_read(&shape, state, folder) != BP_OK || !shape.family->carries_state)
        return;
    run = bp_path_join(folder, "../..");
    if (bp_run_pairs_read(&pairs, run) == BP_OK && bp_run_pairs_find(&pairs, "corpus.order"))
        BP_WARN("score.zero_state",
                "each document, of %.3g tokens on average, begins with the zero state, which the "
                "training of the %s hardly ever had there: at score.corpus; the first words of a "
                "document are less probable than they should be: %sleave the first words out",
                (double)bp_corpus_tokens(corpus) / (double)documents, shape.family->name,
                shape.family->restarts
                    ? "train with corpus.order=documents, the default of new runs, which begins "
                      "each document so, or "
                    : "");
    bp_run_pairs_clear(&pairs);
    bp_free(run);
}

bp_known_text bp_training_text_warn(const char *path, bp_corpus *corpus)
{
    bp_ensemble_list list = {0};
    char *folder = NULL;
    json_t *manifest = NULL;
    const json_t *state;
    bp_known_text known = {0};
    const char *hash;
    bp_err err = bp_ensemble_is(path) ? bp_ensemble_list_load(&list, path) : BP_OK;

    if (err == BP_OK)
        err = bp_checkpoint_read_metadata(list.count > 0 ? list.members[0].path : path, &folder,
                                          &manifest);
    state = json_object_get(err == BP_OK ? manifest : NULL, "state");
    if (state)
        warn_of_zero_state(state, folder, corpus);
    hash = json_string_value(json_object_get(state, "corpus_hash"));
    if (hash && strcmp(hash, bp_corpus_hash(corpus)) == 0) {
        known = (bp_known_text){bp_corpus_documents(corpus), bp_corpus_documents(corpus), 1};
        BP_WARN("score.training_text",
                "this is the text that the model was trained on: at score.corpus; the model may "
                "know it by heart, score text that it has not seen");
    } else if (hash)
        known = warn_of_run(corpus, folder, hash);
    json_decref(manifest);
    bp_free(folder);
    bp_ensemble_list_clear(&list);
    return known;
}

void bp_training_text_record(json_t *summary, const bp_known_text *known)
{
    if (known->documents > 0)
        (void)json_object_set_new(summary, "training_text",
                                  json_pack("{sI sI so}", "documents", (json_int_t)known->documents,
                                            "of", (json_int_t)known->of, "share",
                                            bp_json_real(known->share)));
}
