/* Reads the results of `bagpipe score`: summary.json and documents.h5. */
#pragma once

#include "base/config/json.h"
#include "io/h5/h5.h"
#include "text/tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

typedef struct score_label {
    char *name;
    char **values;
    int64_t value_count;
    int64_t *codes; /* [documents]; -1: the document's corpus has no such label */
} score_label;

typedef struct score_folder {
    const char *given; /* the run folder, or its score/ folder; borrowed */
    char *summary_path, *documents_path;
    json_t *summary;
    int64_t corpora, documents;
    const char **corpus_names; /* [corpora]; borrowed from the summary */
    int64_t *corpus_start;     /* [corpora + 1] documents */
    double *nll; /* [documents]; 0 if nothing was scored, infinite if a token has probability 0 */
    int64_t *tokens, *bytes, *words; /* [documents]; bytes and words are -1 if unknown */
    uint64_t *token_hash; /* [documents]; NULL if unknown (written by an older version) */
    char *ids;            /* [documents][id_width], ended by a zero byte */
    size_t id_width;
    score_label *labels;
    int64_t label_count;
} score_folder;

/** Read a score folder; every byte of documents.h5 is checked before HDF5 opens it. Clear after an
 * error too.
 *
 * Errors:     BP_ERR_INPUT no scores, BP_ERR_DENIED; BP_ERR_FORMAT damaged, of a newer version, or
 *             summary.json and documents.h5 are not of one run; BP_ERR_SYSTEM memory. */
bp_err score_folder_load(score_folder *scores, const char *given);
void score_folder_clear(score_folder *scores);
/** Errors: BP_ERR_FORMAT a document has a token of probability 0, and so no perplexity. */
bp_err score_folder_check_zeros(const score_folder *scores);

/** The label of this name; NULL if there is none. */
const score_label *score_folder_label(const score_folder *scores, const char *name);
/** That there is no such label, which there are, and what to do: `remedy`. */
bp_err score_folder_refuse_label(const score_folder *scores, const char *name, const char *remedy);

/** The label of score.cluster, whose clusters intervals are over; NULL: intervals are over
 * documents.
 */
const char *score_folder_cluster(const score_folder *scores);
/** [documents]: those that share its value have one number, those without a value their own; NULL:
 * intervals are over documents. bp_free(). */
int64_t *score_folder_clusters(const score_folder *scores);

/** Add a label; `codes`, [documents], are the folder's then. The label is valid until another one
 * is added. */
const score_label *score_folder_add_label(score_folder *scores, const char *name,
                                          const char *const *values, int64_t value_count,
                                          int64_t *codes);

/** Figures that scores have; [SCORE_FIGURES] names as in `--figure`. */
enum { PERPLEXITY, BITS_PER_BYTE, WORD_PERPLEXITY, SCORE_FIGURES };
extern const char *const score_figure_names[SCORE_FIGURES];

/** The figure of a name; NULL: the perplexity. Errors: BP_ERR_USAGE there is none of this name. */
bp_err score_figure_find(int *figure, const char *name);

/** What the tokens do not say of the text: "unknown words", a lossy normaliser; figures a byte or a
 * word are better than they should be then. NULL: nothing. */
const char *score_folder_lost(const score_folder *scores);

/** "20 of 250 documents, 8.4 % of the tokens, are in the model's training text", of which score has
 * warned; NULL: it has not. bp_free(). */
char *score_folder_known(const score_folder *scores);

/** Load the tokenizer.json in a file of scored tokens; *out is NULL if it has none. Owns: *out is
 * the caller's, bp_tokenizer_free(). Errors: BP_ERR_FORMAT damaged; those of bp_tokenizer_parse. */
bp_err score_tokenizer_load(bp_tokenizer **out, bp_h5 *h5);
