/* The windows of corpora cut into work units: a function of the corpora and the rule only. Local:
 * no MPI. */
#pragma once

#include "data/document_starts.h"
#include "data/loader.h"
#include "infer/score/windows.h"

/** A unit ends with the window that brings its inputs to plan.unit_inputs (a window without inputs,
 * and a document without windows, count as one): at most this many inputs, */
#define BP_SCORE_UNIT_INPUTS 16384
/** and fewer if there is less work, so that many ranks share it: a power of two, at least this
 * many, such that the work has up to 2,048 units. */
#define BP_SCORE_UNIT_LEAST 1024
#define BP_SCORE_UNITS      2048

/** A unit begins at window `window` of document `document` and ends where the next unit begins. A
 * document's first unit reports its length, so each document that is scored is in at least one. */
typedef struct bp_score_cut {
    int64_t document, window;
} bp_score_cut;

typedef struct bp_score_plan {
    bp_corpus *corpus; /* borrowed */
    bp_score_rule rule;
    bp_stream *bag; /* its documents are skipped; NULL if all are scored */
    bool strips;    /* a document's last token may be its end-of-document token: not text */
    int64_t files, documents;
    bp_document_starts *starts; /* where documents begin; its window moves as documents are read */
    const int64_t **segments, **segment_start; /* [files] of pairs; else NULL */
    int64_t too_long;        /* number of pairs that have no window, or are cut (rule.cut) */
    int64_t *first_document; /* [files + 1] */
    int64_t *first_token;    /* [files + 1]: entries of /tokens, one corpus after another */
    int64_t scored;          /* of the documents */
    int64_t units, inputs, windows;
    int64_t unit_inputs; /* a function of the work, not of the number of ranks */
    int64_t longest;     /* the most inputs of a window */
    int64_t unknown;     /* the id of words out of the vocabulary; -1 if there is none */
    bool may_be_zero;    /* bp_model_info.may_be_zero */
    bool *continues; /* [vocab_size] for BP_SCORE_PLL_WORD: the token continues a word; else NULL */
    bp_score_cut *cuts; /* [units + 1] */
} bp_score_plan;

/** The rule's lead, eod, prefix, every and end must be resolved. Documents in `bag` are skipped
 * (may be NULL). unit_inputs 0: chosen by the amount of work. Clear with bp_score_plan_clear, after
 * an error too.
 *
 * Errors: those of reading doc_start and of bp_stream_new; for words BP_ERR_CONFIG the corpus has
 *         no tokenizer, and those of bp_tokenizer_parse. */
bp_err bp_score_plan_init(bp_score_plan *plan, bp_corpus *corpus, const bp_score_rule *rule,
                          const bp_stream_spec *bag, int64_t unit_inputs);
void bp_score_plan_clear(bp_score_plan *plan);
/** Cut the plan again, in units of this many inputs; 0: chosen by the amount of work. Errors: those
 * of reading doc_start. */
bp_err bp_score_plan_cut(bp_score_plan *plan, int64_t unit_inputs);

/** Is the document scored? A document that is not has no window, and no figure includes it. */
bool bp_score_plan_has(const bp_score_plan *plan, int64_t document);

/** The place of a document, and which part of it is text. */
typedef struct bp_score_document {
    int64_t file;
    int64_t start; /* in the file's /tokens, after an initial token that is not text: the prefix, or
                      another --bos token that the prefix replaces */
    int64_t stored; /* tokens there */
    int64_t text;   /* number of text tokens: without the end-of-document token */
    int64_t lead;   /* positions of z before the text: 1 if there is a prefix, the rule's or the
                       document's */
    int64_t source; /* for a pair, whose text is its target: tokens of its source, which precede
                       `start`; else 0 */
} bp_score_document;

/** Length of z of a document; 0 if it is a pair whose source is too long. */
int64_t bp_score_plan_line(const bp_score_plan *plan, const bp_score_document *document);
/** For a pair: inputs of its source, including its end token. */
int64_t bp_score_plan_source(const bp_score_plan *plan, const bp_score_document *document);

/** The file that holds a document. */
int64_t bp_score_plan_file(const bp_score_plan *plan, int64_t document);
/** Look a document up. Reads its first token, and its last one if only that shows whether it is
 * text. Errors: those of bp_corpus_file_read and of reading doc_start. */
bp_err bp_score_plan_document(const bp_score_plan *plan, int64_t document, bp_score_document *out);
