/* Comparison of two score folders of the same texts: checks that the texts are the same, chooses
 * the unit, and compares group by group. */
#pragma once

#include "clean_part.h"
#include "statistics/resample.h"
#include "table/score_groups.h"

#include <stdbool.h>

/** The unit by which a sum of log-probabilities is divided. */
typedef enum comparison_unit { UNIT_TOKEN, UNIT_BYTE, UNIT_WORD } comparison_unit;

/** How the texts were found to be the same, in addition to corpora, ids, bytes and words. */
typedef enum comparison_evidence {
    EVIDENCE_COUNTS,     /* not at all: the tokenizers differ, or a side has no hashes of tokens */
    EVIDENCE_TOKEN_HASH, /* each document's tokens have the same hash on both sides */
} comparison_evidence;

/** Figures of a group of documents; [0] for A, [1] for B. NaN if not defined. */
typedef struct comparison_group {
    score_scope scope;
    const char *name, *value; /* of the corpus; of the label and its value; borrowed */
    int64_t documents;
    int64_t draws;                   /* what intervals are over: documents, or clusters of them */
    int64_t tokens[2], bytes, words; /* bytes and words are -1 if unknown for some documents */
    double nll[2];                   /* nats */
    double ratio, difference; /* per unit: B / A of perplexities, B - A in nats (bytes: bits) */
    bp_interval ratio_interval, difference_interval;
    double p_value, p_holm; /* of the difference; adjusted over all groups of other documents */
    int64_t same_as;        /* the first group of the same documents; -1 if it is the first */
} comparison_group;

/** A setting of scoring that differs between the sides. */
typedef struct comparison_setting {
    const char *what; /* "convention", "context", "tokenizer" ... */
    char *a, *b;
} comparison_setting;

typedef struct comparison {
    score_folder scores[2]; /* A and B */
    comparison_unit unit;
    comparison_evidence evidence;
    bool whole_bytes;       /* both scored all text, and its bytes are known */
    bool anyway;            /* compare even if not comparable, without a verdict */
    const char *no_verdict; /* why no verdict is possible; NULL if it is */
    comparison_setting *differences;
    int64_t difference_count;
    int64_t compared;    /* number of groups with a p-value, each set of documents once */
    bool *chosen;        /* [documents]: scored */
    clean_part clean;    /* of A's documents; without a label all count */
    int64_t *clusters;   /* [documents] of score.cluster; NULL: intervals are over documents */
    const char *cluster; /* its label; borrowed */
    char **remarks;
    int64_t remark_count;
    uint64_t seed;
    int64_t resamples;
    comparison_group *groups; /* all, each corpus, each value with documents of each label */
    int64_t group_count;
} comparison;

/** Put B's corpora in the order of A's, matched by content, else by name. comparison_check finds
 * the remaining differences. */
void comparison_match_corpora(comparison *c);
/** Does corpus in_a of A have the same documents as in_b of B, by their hashes, or else by their
 * ids? */
bool comparison_same_content(const comparison *c, int64_t in_a, int64_t in_b);
/** Do the ids of document d match: equal, unknown, or the same line number of two files? */
bool comparison_same_id(const comparison *c, int64_t d);
/** Do both sides have the same tokenizer and hashes of tokens? */
bool comparison_has_hashes(const comparison *c);
/** Is the group shown? Not if it is the only corpus, which has all documents. */
bool comparison_is_shown(const comparison *c, const comparison_group *group);

/** Check that the texts are the same, and choose the unit. The scores must be loaded.
 *
 * Errors:     BP_ERR_FORMAT the texts differ, with the first difference; or nothing can be
 * compared; BP_ERR_SYSTEM memory. */
bp_err comparison_check(comparison *c);

/** Fill the groups, of documents that count; those of CLEAN_LABEL have all. There are no p-values
 * where there is no verdict. Errors: BP_ERR_SYSTEM memory.
 */
bp_err comparison_run(comparison *c);

/** Clear all, the scores too. */
void comparison_clear(comparison *c);

/** "counts", "token_hash". */
const char *comparison_evidence_name(comparison_evidence evidence);
/** "token", "byte", "word". */
const char *comparison_unit_name(comparison_unit unit);

/** The figure per unit: perplexity per token or word, bits per byte. */
double comparison_figure(const comparison *c, const comparison_group *group, int which);
