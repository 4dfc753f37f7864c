/* A corpus as jobs see it: one file, a comma-separated list, or a glob; documents one after
 * another.
 * Local: no MPI. A corpus, and what is made of it, belongs to one thread at a time. */
#pragma once

#include "base/config/config.h"
#include "io/corpus/corpus_file.h"

/** corpus.train, corpus.weights, corpus.valid, corpus.resample, run.member */
extern const bp_option bp_corpus_options[];

/** Values of bp_corpus_options (docs: --help). */
typedef struct bp_corpus_keys {
    const char *train;
    const char *weights;
    const char *order;
    const char *valid;
    const char *resample;
    int64_t member;
    const char *cluster;
    bool cut;
    int64_t bucket;
} bp_corpus_keys;

static inline const bp_corpus_keys *bp_corpus_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_corpus_options);
}

typedef struct bp_corpus bp_corpus;

/** Open all files of `list`: paths and globs (sorted) separated by commas; surrounding blanks are
 * removed.
 *
 * The files must share vocab_size, eod_id and tokenizer. A name that exists is a file even if it
 * looks like a glob.
 *
 * Owns:       *out is the caller's, bp_corpus_close(); NULL after an error.
 * Errors:     those of bp_corpus_file_open; BP_ERR_INPUT a glob that matches nothing; BP_ERR_CONFIG
 *             files that differ, an empty list, an empty item; BP_ERR_SYSTEM memory.
 */
bp_err bp_corpus_open(bp_corpus **out, const char *list);
void bp_corpus_close(bp_corpus **corpus);

/** vocab_size of the first file of `list`, without reading the whole file: 0 for a file of another
 * program, which may be opened only after a full inspection.
 *
 * Errors:     those of bp_corpus_open for that file, and of `list`.
 */
bp_err bp_corpus_read_vocab_size(const char *list, int64_t *vocab_size);

#define BP_CORPUS_WEIGHTS_MAX 65536 /* corpora with a weight above 0 */

/** corpus.weights: decimal numbers of 0 or more, at least one above it.
 *
 * Shapes:     (*weights)[*count]; *count must be the number of files of corpus.train, which is not
 *             checked here.
 * Owns:       *weights is the caller's, bp_free(); NULL after an error.
 * Errors:     BP_ERR_CONFIG; BP_ERR_SYSTEM memory.
 */
bp_err bp_corpus_weights(double **weights, int64_t *count, const char *list);
/** The equivalent list with the shortest form of each number. Free with bp_free(); NULL: no
 * memory. */
char *bp_corpus_weights_text(const double *weights, int64_t count);

int64_t bp_corpus_files(const bp_corpus *corpus);
/** File k, in the order given. Borrowed. */
bp_corpus_file *bp_corpus_file_at(const bp_corpus *corpus, int64_t k);
int64_t bp_corpus_vocab_size(const bp_corpus *corpus);
int64_t bp_corpus_eod(const bp_corpus *corpus); /* -1 without one */
/** Special tokens by their roles [BP_ROLES], -1 if absent. Borrowed. */
const int64_t *bp_corpus_roles(const bp_corpus *corpus);
const char *bp_corpus_tokenizer_hash(const bp_corpus *corpus); /* "": unknown */
/** SHA-256 over the files' content hashes: compared at resume instead of paths. Borrowed. */
const char *bp_corpus_hash(const bp_corpus *corpus);
/** Over all files: documents, and entries of /tokens. */
int64_t bp_corpus_documents(const bp_corpus *corpus);
int64_t bp_corpus_tokens(const bp_corpus *corpus);
