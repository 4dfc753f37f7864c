/* Two score folders of the same texts: are they, per what, and what came of it, group by group. */
#ifndef BP_DATA_TOOLS_COMPARISON_H
#define BP_DATA_TOOLS_COMPARISON_H

#include "statistics/resample.h"
#include "table/score_groups.h"

#include <stdbool.h>

/** What a sum of log-probabilities is divided by. */
typedef enum comparison_unit { UNIT_TOKEN, UNIT_BYTE, UNIT_WORD } comparison_unit;

/** How the texts were found to be the same, besides corpora, ids, bytes and words. */
typedef enum comparison_evidence {
    EVIDENCE_COUNTS,     /* nothing: the tokenizers differ, or a side has no hashes of tokens */
    EVIDENCE_TOKEN_HASH, /* each document's tokens have one hash in both */
} comparison_evidence;

/** Figures of a group of documents; [0] of A, [1] of B. NaN: not defined. */
typedef struct comparison_group {
    score_scope scope;
    const char *name, *value; /* of the corpus; of the label and its value; borrowed */
    int64_t documents;
    int64_t tokens[2], bytes, words; /* bytes and words -1: not known of all */
    double nll[2];                   /* nats */
    double ratio, difference;        /* B / A of perplexities, B - A, both per unit */
    bp_interval ratio_interval, difference_interval;
    double p_value, p_holm; /* of the difference; among all groups that are shown */
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
    bool anyway;            /* compare what is not comparable, without a verdict */
    const char *no_verdict; /* why neither can be said to predict better; NULL: it can */
    comparison_setting *differences;
    int64_t difference_count;
    int64_t compared; /* groups with a p-value */
    bool *chosen;     /* [documents]: scored */
    char **remarks;
    int64_t remark_count;
    uint64_t seed;
    int64_t resamples;
    comparison_group *groups; /* all, each corpus, each value of each label that has documents */
    int64_t group_count;
} comparison;

/** B's corpora in the order of A's: each A's own by content, else by name. Those that stay
 * different are found by comparison_check. */
void comparison_match_corpora(comparison *c);
/** Does corpus in_a of A have the documents of in_b of B, by their hashes, or else by their ids? */
bool comparison_same_content(const comparison *c, int64_t in_a, int64_t in_b);
/** Ids of document d of both sides: equal, unknown, or lines of one number of two files. */
bool comparison_same_id(const comparison *c, int64_t d);
/** One tokenizer, and hashes of the tokens on both sides. */
bool comparison_has_hashes(const comparison *c);
/** A corpus that is all there is says nothing new. */
bool comparison_is_shown(const comparison *c, const comparison_group *group);

/** Are the texts the same, and per what can they be compared? scores are loaded before.
 *
 * Errors:     BP_ERR_FORMAT the texts differ, with the first difference; or nothing can be
 * compared; BP_ERR_SYSTEM memory. */
bp_err comparison_check(comparison *c);

/** Fill the groups. Errors: BP_ERR_SYSTEM memory. */
bp_err comparison_run(comparison *c);

/** Clear all, the scores too. */
void comparison_clear(comparison *c);

/** "counts", "token_hash". */
const char *comparison_evidence_name(comparison_evidence evidence);
/** "token", "byte", "word". */
const char *comparison_unit_name(comparison_unit unit);

/** The figure per unit: perplexity per token or word, bits per byte. */
double comparison_figure(const comparison *c, const comparison_group *group, int which);

#endif
