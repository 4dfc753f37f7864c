/* A corpus: files in order that share one vocabulary. Streams, scores and tools read it. */
#include "data/corpus.h"

#include "base/fault.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/user_block.h"
#include "text/tokenizer/tokenizer.h"

#include <ctype.h>
#include <glob.h>
#include <inttypes.h>
#include <string.h>

const bp_option bp_corpus_options[] = {
    {BP_STRING_KEY("corpus.train", NULL),
     .help = "corpora to train on: a file, a list with commas, or a glob", .required = true,
     .at = BP_AT(bp_corpus_keys, train)},
    {BP_STRING_KEY("corpus.weights", NULL),
     .help = "shares of the training windows, a number for each file of corpus.train, with commas; "
             "without them files share by size",
     .at = BP_AT(bp_corpus_keys, weights)},
    {BP_CHOICE_KEY("corpus.order", "auto", "auto|shuffle|stream|documents"),
     .help =
         "order of the training windows: shuffle, or stream: each batch slot reads its stretch "
         "of the corpus in order, and models that carry a state from window to window carry it "
         "over all documents; documents: the same, but each document begins with the zero "
         "state, as in scoring; auto: documents for rnn, lstm, gru and cell (stream where a run "
         "began with that), stream for elmo, else shuffle",
     .at = BP_AT(bp_corpus_keys, order)},
    {BP_STRING_KEY("corpus.valid", NULL),
     .help = "corpora for the validation loss: a file, a list with commas, or a glob",
     .at = BP_AT(bp_corpus_keys, valid)},
    {BP_CHOICE_KEY("corpus.resample", "none", "none|bag"),
     .help = "bag: train on documents drawn with replacement, as many as there are",
     .at = BP_AT(bp_corpus_keys, resample)},
    {BP_INT_KEY("run.member", "0", 0, 1e6),
     .help = "which bag is drawn (with run.seed); keys nothing else",
     .at = BP_AT(bp_corpus_keys, member)},
    {BP_STRING_KEY("corpus.cluster", NULL),
     .help =
         "with corpus.resample=bag: a label whose values are drawn, each with all its documents "
         "(the passages of a book), in place of documents",
     .at = BP_AT(bp_corpus_keys, cluster)},
    {BP_BOOL_KEY("corpus.cut", "no"),
     .help = "of encoder-decoders (transformer, bart, t5) and task.kind=text: pairs that are "
             "longer than model.context are cut, and counted; else they are refused",
     .at = BP_AT(bp_corpus_keys, cut)},
    {BP_INT_KEY("corpus.bucket", "0", 0, 1e6), .unit = "batches",
     .help = "examples that are documents, pairs, or runs of sentences with noise: the examples of "
             "this number of batches are sorted by length and cut into batches of similar lengths, "
             "which are padded to their longest; 0: as they come, padded to model.context",
     .at = BP_AT(bp_corpus_keys, bucket)},
    {.key = NULL}};

struct bp_corpus {
    bp_corpus_file **files;
    int64_t count, capacity;
    int64_t documents, tokens;
    char hash[BP_SHA256_HEX];
};

/* Called for each file of a list in turn. */
typedef bp_err (*take_file)(void *context, const char *path);

static bp_err push_file(void *context, const char *path)
{
    bp_corpus *corpus = context;

    corpus->files = bp_grow("data.files", corpus->files, &corpus->capacity, corpus->count + 1,
                            sizeof *corpus->files);

    bp_err err = bp_corpus_file_open(&corpus->files[corpus->count], path);
    if (err == BP_OK)
        corpus->count++;
    return err;
}

static bp_err take_glob(take_file take, void *context, const char *pattern)
{
    glob_t found;
    int status =
        glob(pattern, 0, NULL, &found); /* sorts by the locale's order: "C" in our programs */
    bp_err err = BP_OK;

    if (status == GLOB_NOMATCH)
        return BP_FAIL(BP_ERR_INPUT, "corpus.no_match", "no corpus matches the pattern: at %s",
                       pattern);
    if (status != 0)
        return BP_FAIL(status == GLOB_NOSPACE ? BP_ERR_SYSTEM : BP_ERR_INPUT, "corpus.bad_pattern",
                       "the pattern can't be read: at %s", pattern);
    for (size_t i = 0; err == BP_OK && i < found.gl_pathc; i++)
        err = take(context, found.gl_pathv[i]);
    globfree(&found);
    return err;
}

static bp_err take_item(take_file take, void *context, char *item)
{
    while (isspace((unsigned char)*item))
        item++;
    size_t length = strlen(item);
    while (length > 0 && isspace((unsigned char)item[length - 1]))
        item[--length] = '\0';
    if (length == 0)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.empty_name",
                       "an empty name in the list of corpora; "
                       "give a file, a list with commas, or a glob");
    if (strpbrk(item, "*?[") && !bp_path_exists(item))
        return take_glob(take, context, item);
    return take(context, item);
}

/* The whole list may be one file whose name has a comma. */
static bp_err take_list(take_file take, void *context, const char *list)
{
    char *text = bp_strdup(list);
    bp_err err = BP_OK;

    if (bp_path_exists(text)) {
        err = take(context, text);
    } else {
        for (char *item = text, *next; err == BP_OK && item; item = next) {
            next = strchr(item, ',');
            if (next)
                *next++ = '\0';
            err = take_item(take, context, item);
        }
    }
    bp_free(text);
    return err;
}

static bp_err check_same(const bp_corpus *corpus, int64_t k)
{
    const bp_corpus_info *a = bp_corpus_file_info(corpus->files[0]);
    const bp_corpus_info *b = bp_corpus_file_info(corpus->files[k]);
    const char *a_path = bp_corpus_file_path(corpus->files[0]);
    const char *b_path = bp_corpus_file_path(corpus->files[k]);

    if (a->vocab_size != b->vocab_size)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.mismatch",
                       "corpora of one job differ in vocab_size, %" PRId64 " and %" PRId64
                       ": at %s and %s; make them with one tokenizer",
                       a->vocab_size, b->vocab_size, a_path, b_path);
    if (a->eod_id != b->eod_id)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.mismatch",
                       "corpora of one job differ in eod_id, %" PRId64 " and %" PRId64
                       ": at %s and %s; make them with one tokenizer",
                       a->eod_id, b->eod_id, a_path, b_path);
    if (!bp_tokenizer_same_hash(a->tokenizer_hash, b->tokenizer_hash))
        return BP_FAIL(BP_ERR_CONFIG, "corpus.mismatch",
                       "corpora of one job differ in tokenizer_hash, '%s' and '%s': at %s and %s; "
                       "make them with one tokenizer",
                       a->tokenizer_hash, b->tokenizer_hash, a_path, b_path);
    return BP_OK;
}

static void hash_files(bp_corpus *corpus)
{
    bp_sha256 *hash = bp_sha256_new();

    for (int64_t k = 0; k < corpus->count; k++) {
        const char *content = bp_corpus_file_info(corpus->files[k])->content_hash;

        bp_sha256_update(hash, content, strlen(content));
        bp_sha256_update(hash, "\n", 1);
    }
    bp_sha256_finish(&hash, corpus->hash);
}

bp_err bp_corpus_open(bp_corpus **out, const char *list)
{
    bp_corpus *corpus = bp_alloc("corpus", 1, sizeof *corpus);
    bp_err err = bp_fault("corpus.open") ? bp_fail_errno(BP_ERR_IO, "can't open", list)
                                         : take_list(push_file, corpus, list);

    for (int64_t k = 0; err == BP_OK && k < corpus->count; k++) {
        const bp_corpus_info *info = bp_corpus_file_info(corpus->files[k]);

        err = check_same(corpus, k);
        corpus->documents += info->documents;
        corpus->tokens += info->tokens;
    }
    if (err == BP_OK)
        hash_files(corpus);
    else
        bp_corpus_close(&corpus);
    *out = corpus;
    return err;
}

void bp_corpus_close(bp_corpus **corpus)
{
    if (!*corpus)
        return;
    for (int64_t k = 0; k < (*corpus)->count; k++)
        bp_corpus_file_close(&(*corpus)->files[k]);
    bp_free((*corpus)->files);
    bp_free(*corpus);
    *corpus = NULL;
}

typedef struct first_file {
    bool is_done;
    int64_t vocab_size;
} first_file;

static bp_err read_first(void *context, const char *path)
{
    first_file *self = context;
    bp_corpus_file *file = NULL;
    bp_user_block block;
    bp_err err;

    if (self->is_done)
        return BP_OK;
    self->is_done = true;
    err = bp_user_block_read(&block, path);
    if (err != BP_OK || block.kind[0] == '\0') /* foreign: reported when it is opened */
        return err;
    err = bp_corpus_file_open(&file, path);
    if (err == BP_OK)
        self->vocab_size = bp_corpus_file_info(file)->vocab_size;
    bp_corpus_file_close(&file);
    return err;
}

bp_err bp_corpus_read_vocab_size(const char *list, int64_t *vocab_size)
{
    first_file self = {.is_done = false};
    bp_err err = take_list(read_first, &self, list);

    *vocab_size = self.vocab_size;
    return err;
}

int64_t bp_corpus_files(const bp_corpus *corpus)
{
    return corpus->count;
}

bp_corpus_file *bp_corpus_file_at(const bp_corpus *corpus, int64_t k)
{
    BP_ASSERT(k >= 0 && k < corpus->count);
    return corpus->files[k];
}

int64_t bp_corpus_vocab_size(const bp_corpus *corpus)
{
    return bp_corpus_file_info(corpus->files[0])->vocab_size;
}

const int64_t *bp_corpus_roles(const bp_corpus *corpus)
{
    return bp_corpus_file_info(corpus->files[0])->roles;
}

int64_t bp_corpus_eod(const bp_corpus *corpus)
{
    return bp_corpus_file_info(corpus->files[0])->eod_id;
}

const char *bp_corpus_tokenizer_hash(const bp_corpus *corpus)
{
    return bp_corpus_file_info(corpus->files[0])->tokenizer_hash;
}

const char *bp_corpus_hash(const bp_corpus *corpus)
{
    return corpus->hash;
}

int64_t bp_corpus_documents(const bp_corpus *corpus)
{
    return corpus->documents;
}

int64_t bp_corpus_tokens(const bp_corpus *corpus)
{
    return corpus->tokens;
}
