/* Score folders of the same texts, token by token, as parts of a mixture. */
#pragma once

#include "compare/comparison.h"
#include "statistics/mixture_weights.h"

/** One folder's log-probabilities of the entries of /tokens. */
typedef struct mixture_part {
    const char *given; /* borrowed */
    char *path;        /* of tokens.h5 */
    char *digest;      /* of the model; "" if unknown */
    int64_t step;
    float *logprob; /* [entries]; NaN if not scored (the same entries in all parts) */
    double nll;     /* of the scored entries */
} mixture_part;

typedef struct mixture {
    score_folder first; /* the first folder: texts, counts, labels, convention */
    bool *chosen;       /* [documents] of it selected for scoring */
    mixture_part *parts;
    int64_t count;
    int64_t entries, scored;
} mixture;

/** Read the folders, which must have scored the same tokens of the same texts. Clear after an error
 * too.
 *
 * Errors:     those of score_folder_load and comparison_check; BP_ERR_INPUT no tokens.h5;
 *             BP_ERR_FORMAT different tokens were scored, or none; a token with probability 0 in
 *             all models; damaged; BP_ERR_SYSTEM memory. */
bp_err mixture_load(mixture *mix, char *const *folders, int64_t count);
void mixture_clear(mixture *mix);

/** Weights that fit the texts best: weights[count]. Errors: BP_ERR_SYSTEM. */
bp_err mixture_fit(double *weights, bp_mixture_fit *fit, const mixture *mix);

/** Write weights[count] to a JSON file. Errors: BP_ERR_SYSTEM, and those of bp_json_save. */
bp_err mixture_weights_save(const mixture *mix, const double *weights, const bp_mixture_fit *fit,
                            const char *path);
/** Read saved weights[count]: from 0 to 1, with sum 1 within 1e-9, of the mixture's models in its
 * order. Uses only the mixture's count and the digests of its parts. Errors: those of bp_json_load;
 * BP_ERR_FORMAT other weights. */
bp_err mixture_weights_read(double *weights, const mixture *mix, const char *path);

/** Write a score folder of the mixture: summary.json, documents.h5, tokens.h5.
 *
 * Errors:     BP_ERR_CREATE the folder exists and is not empty; BP_ERR_IO, BP_ERR_DENIED. */
bp_err mixture_save(const mixture *mix, const double *weights, const char *folder);
