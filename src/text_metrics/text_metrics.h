/* Metrics of texts: BLEU, chrF, ROUGE, METEOR, BERTScore against references, perplexity. Each
 * document's counts are computed once; figures, also those of resamples, come from sums over
 * documents. Local: no MPI. */
#pragma once

#include "statistics/metric.h"
#include "text_metrics/wordnet.h"

#include <stddef.h>

typedef struct bp_line {
    const char *text; /* valid UTF-8 */
    size_t bytes;
} bp_line;

/** Hypotheses and the references of each. Borrowed. */
typedef struct bp_text_pairs {
    int64_t documents;
    int64_t references;              /* of each document, at least 1 */
    const bp_line *hypothesis;       /* [documents] */
    const bp_line *const *reference; /* [references][documents] */
} bp_text_pairs;

/** The results of the metrics below: numbers for each document. */
typedef struct bp_text_answers {
    int64_t documents, width;
    double *counts; /* [documents][width]; bp_text_answers_clear */
} bp_text_answers;
void bp_text_answers_clear(bp_text_answers *answers);
/** bp_metric.figures of metrics whose numbers are averaged over documents: values[width]. */
void bp_text_means(double *values, const int32_t *counts, const void *answers);

/** Words of BLEU: as mteval-v13a.pl, with Chinese characters apart, or between white space. */
typedef enum bp_bleu_words { BP_WORDS_13A, BP_WORDS_ZH, BP_WORDS_NONE } bp_bleu_words;

/** bleu (0 to 100; exponential smoothing, the reference of the closest length), sentence_bleu (the
 * mean over documents of the same with the orders that a document has), brevity_penalty,
 * precision_1 to precision_4.
 *
 * Errors:     BP_ERR_SYSTEM memory; clear after an error too.
 * Source:     Papineni et al. 2002; Post 2018 (sacreBLEU 2, metrics/bleu.py, tokenizers). */
extern const bp_metric bp_metric_bleu;
bp_err bp_bleu_count(bp_text_answers *out, const bp_text_pairs *pairs, bp_bleu_words words);

/** chrf2 (0 to 100): characters without white space, up to 6 of them, recall twice as important;
 * with several references, the one with the best value for the document.
 *
 * Errors:     as above.
 * Source:     Popovic 2015, 2016; sacreBLEU 2, metrics/chrf.py. */
extern const bp_metric bp_metric_chrf;
bp_err bp_chrf_count(bp_text_answers *out, const bp_text_pairs *pairs);

/** rouge1, rouge2, rougeL, and precision and recall of each (0 to 1): means over documents; with
 * several references, the best F of each kind. Words are runs of a to z and 0 to 9, not stemmed.
 *
 * Errors:     as above.
 * Source:     Lin 2004; google-research/rouge (rouge_scorer.py). */
extern const bp_metric bp_metric_rouge;
bp_err bp_rouge_count(bp_text_answers *out, const bp_text_pairs *pairs);

/** meteor (0 to 1): the mean over documents of the harmonic mean of precision and recall, where
 * recall weighs 9 times as much, less a penalty for words in another order. Words in lower case
 * are aligned where they are equal, then where their stems are, then (`wordnet`; NULL: skip) where
 * a stem is among the synonyms of the other; with several references, the best.
 *
 * Errors:     as above.
 * Source:     Lavie and Agarwal 2007, with alpha 0.9, beta 3, gamma 0.5; the alignment is nltk's
 * (nltk/translate/meteor_score.py). */
extern const bp_metric bp_metric_meteor;
bp_err bp_meteor_count(bp_text_answers *out, const bp_text_pairs *pairs, bp_bleu_words words,
                       const bp_wordnet *wordnet);

/** States of the tokens of a text, of one model. Borrowed. */
typedef struct bp_text_states {
    int64_t count, columns;
    const int32_t *tokens; /* [count] */
    const float *states;   /* [count][columns] */
} bp_text_states;

/** precision, recall, f1: means over documents. A token's match is the one of the other text whose
 * state has the largest cosine with its own; recall is the mean cosine of the reference's tokens
 * with their matches, precision that of the hypothesis's, f1 their harmonic mean; with several
 * references, the one with the best f1. A text without tokens scores 0.
 *
 * weights [vocabulary] of tokens in these means; NULL, or if all of a text's tokens weigh 0: equal
 * weights. `best` is a document's result: NaN at first, then raised by each reference.
 *
 * Source:     Zhang et al. 2020, BERTScore, section 3; without its baseline. */
#define BP_BERTSCORE_WIDTH 3
extern const bp_metric bp_metric_bertscore;
void bp_bertscore_raise(double best[BP_BERTSCORE_WIDTH], const bp_text_states *hypothesis,
                        const bp_text_states *reference, const double *weights);
/** weights[vocabulary]: log((M + 1) / (m + 1)) of a token in m of M texts; text k is tokens
 * [starts[k], starts[k + 1]). Source: the same, with the authors' smoothing (bert_score/utils.py).
 */
void bp_bertscore_weights(double *weights, int64_t vocabulary, const int32_t *tokens,
                          const int64_t *starts, int64_t texts);

/** perplexity exp(nll / tokens), word_perplexity exp(nll / words), bits_per_byte, from sums over
 * documents, lower is better; NaN without tokens, the last two also if a token of a text is not
 * scored. Source: docs/scoring.md. */
enum {
    BP_PERPLEXITY_NLL,
    BP_PERPLEXITY_TOKENS, /* scored */
    BP_PERPLEXITY_UNSCORED,
    BP_PERPLEXITY_BYTES,
    BP_PERPLEXITY_WORDS,
    BP_PERPLEXITY_WIDTH
};
extern const bp_metric bp_metric_perplexity;

/** exact and f1 [documents] of bp_span_answers: the best over references of answers in lower case
 * without punctuation and articles; an empty text is not an answer.
 *
 * Source:     SQuAD's evaluate-v2.0.py. */
void bp_spans_count(double *exact, double *f1, const bp_text_pairs *pairs);
