/* Metrics of fine-tuned tasks: classes, regression, tags, spans. Each has its answers, which
 * bp_metric_estimate takes. Local: no MPI. */
#pragma once

#include "statistics/metric.h"

/** A class of each document: accuracy, f1_macro (over classes that occur as a label or a
 * prediction; 0 for a class that is never right), f1_micro (equal to the accuracy, as every
 * document has one class), matthews (0 if labels or predictions are all equal).
 *
 * Source:     scikit-learn's f1_score and matthews_corrcoef; Gorodkin 2004, Comparing two
 * K-category assignments by a K-category correlation coefficient, eq. 8. */
typedef struct bp_class_answers {
    int64_t documents, classes;
    const int32_t *label, *predicted; /* [documents], in [0, classes) */
} bp_class_answers;
extern const bp_metric bp_metric_classes;

/** A number of each document: pearson, spearman (NaN if a list is constant), mse, mae. */
typedef struct bp_real_answers {
    int64_t documents;
    const double *label, *predicted; /* [documents], finite */
    int64_t *label_order, *predicted_order;
} bp_real_answers;
extern const bp_metric bp_metric_regression;
/** Owns: label and predicted are borrowed until bp_real_answers_clear. */
void bp_real_answers_init(bp_real_answers *answers, const double *label, const double *predicted,
                          int64_t documents);
void bp_real_answers_clear(bp_real_answers *answers);

/** Tags of tokens, a document a sentence: precision, recall and f1 of entities (0 without
 * entities), and the accuracy of tags. */
typedef struct bp_entity_counts {
    int64_t labelled, predicted, right; /* entities; right: same ends and type */
    int64_t tags, tags_right;
} bp_entity_counts;
typedef struct bp_tag_answers {
    int64_t documents;
    const bp_entity_counts *counts; /* [documents] */
} bp_tag_answers;
extern const bp_metric bp_metric_tags;

/** Entities of a sentence of n tags. A tag is a letter and a type ("B-PER"): B begins, I continues,
 * E and L end an entity, S and U are single-token entities; anything without such a letter is
 * outside. Entities also begin and end where the type changes, so IOB1, IOB2, IOBES and BILOU are
 * supported.
 *
 * Source:     CoNLL-2000's conlleval.pl (startOfChunk, endOfChunk), to which S is added as in
 * seqeval. */
bp_entity_counts bp_entities_compare(const char *const *label, const char *const *predicted,
                                     int64_t n);
/** Do these tags encode entities: does a tag begin with such a letter and a dash? */
bool bp_tags_have_entities(const char *const *tags, int64_t n);

/** Answers of each document: exact_match and f1, the means of 0 to 1 of each. */
typedef struct bp_span_answers {
    int64_t documents;
    const double *exact, *f1; /* [documents] */
} bp_span_answers;
extern const bp_metric bp_metric_spans;

/** F1 of the overlap of two answers with `predicted` and `label` words (`common`, with
 * multiplicity); an answer without words matches only another without.
 *
 * Source:     Rajpurkar et al. 2016, section 6.1; SQuAD 2.0's evaluate-v2.0.py. */
double bp_answer_f1(int64_t common, int64_t predicted, int64_t label);
