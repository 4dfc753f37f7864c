/* The windows of corpora cut into work units: a function of the corpora and the rule only. Local:
 * no MPI. */
#ifndef BP_INFER_SCORE_PLAN_H
#define BP_INFER_SCORE_PLAN_H

#include "data/loader.h"
#include "infer/score/windows.h"

/** A unit ends with the window that brings its inputs to plan.unit_inputs (a window without inputs,
 * and a document without windows, count as one): at most this many, */
#define BP_SCORE_UNIT_INPUTS 16384
/** and less where there is less work, so that many ranks share it: a power of two, this many at
 * least, of which the work has up to 2,048 units. */
#define BP_SCORE_UNIT_LEAST 1024
#define BP_SCORE_UNITS      2048

/** A unit begins at window `window` of document `document`, and ends where the next begins. A
 * document's first unit reports its length, so each document that is scored is in at least one. */
typedef struct bp_score_cut {
    int64_t document, window;
} bp_score_cut;

typedef struct bp_score_plan {
    bp_corpus *corpus; /* borrowed */
    bp_score_rule rule;
    bp_stream *bag; /* whose documents are left out; NULL: all are scored */
    bool strips;    /* a document's last token may be its end-of-document token: not text */
    int64_t files, documents;
    const int64_t **doc_start;                 /* [files] */
    const int64_t **segments, **segment_start; /* [files] of pairs; else NULL */
    int64_t too_long;        /* pairs that have no window, or are cut (rule.cut) */
    int64_t *first_document; /* [files + 1] */
    int64_t *first_token;    /* [files + 1]: entries of /tokens, one corpus after another */
    int64_t scored;          /* of the documents */
    int64_t units, inputs, windows;
    int64_t unit_inputs; /* a function of the work, not of the ranks */
    int64_t longest;     /* inputs of a window: the most */
    int64_t unknown;     /* the id of words out of the vocabulary; -1: there is none */
    bool may_be_zero;    /* bp_model_info.may_be_zero */
    bool *continues;     /* [vocab_size] of BP_SCORE_PLL_WORD: a token goes on with the word before
                            it; else NULL */
    bp_score_cut *cuts;  /* [units + 1] */
} bp_score_plan;

/** The rule's lead, eod, prefix, every and end are resolved before. Documents that `bag` holds are
 * left out (NULL: none are). unit_inputs 0: by the work. Clear with bp_score_plan_clear, after an
 * error too.
 *
 * Errors: those of reading doc_start and of bp_stream_new; of words BP_ERR_CONFIG the corpus brings
 * no tokenizer, and those of bp_tokenizer_parse. */
bp_err bp_score_plan_init(bp_score_plan *plan, bp_corpus *corpus, const bp_score_rule *rule,
                          const bp_stream_spec *bag, int64_t unit_inputs);
void bp_score_plan_clear(bp_score_plan *plan);
/** Cut it anew, in units of so many inputs; 0: by the work. */
void bp_score_plan_cut(bp_score_plan *plan, int64_t unit_inputs);

/** Is the document scored? A document that is not has no window, and no figure includes it. */
bool bp_score_plan_has(const bp_score_plan *plan, int64_t document);

/** Where a document is, and which part of it is text. */
typedef struct bp_score_document {
    int64_t file;
    int64_t start;  /* in the file's /tokens, after a beginning of its own that is not text: the
                       prefix, or another token by --bos whose place the prefix takes */
    int64_t stored; /* tokens there */
    int64_t text;   /* of them text: without the end-of-document token */
    int64_t lead;   /* places of z before the text: 1 after a prefix, the rule's or its own */
    int64_t source; /* for a pair, whose text is its target: tokens of its source, which come before
                       `start`; else 0 */
} bp_score_document;

/** Length of z of a document; 0: it is a pair with a source that is too long. */
int64_t bp_score_plan_line(const bp_score_plan *plan, const bp_score_document *document);
/** For a pair: inputs of its source, with its end. */
int64_t bp_score_plan_source(const bp_score_plan *plan, const bp_score_document *document);

/** The file that holds a document. */
int64_t bp_score_plan_file(const bp_score_plan *plan, int64_t document);
/** Look a document up. Reads its first token, and its last one where only that shows whether it is
 *  text.
 *  Errors: those of bp_corpus_file_read. */
bp_err bp_score_plan_document(const bp_score_plan *plan, int64_t document, bp_score_document *out);

#endif
