/* Score folders of the same texts, token by token, as parts of a mixture. */
#ifndef BP_DATA_TOOLS_MIXTURE_H
#define BP_DATA_TOOLS_MIXTURE_H

#include "compare/comparison.h"
#include "statistics/mixture_weights.h"

/** What one folder gives to the entries of /tokens. */
typedef struct mixture_part {
    const char *given; /* borrowed */
    char *path;        /* of tokens.h5 */
    char *digest;      /* of the model; "": unknown */
    int64_t step;
    float *logprob; /* [entries]; NaN: not scored, alike in all parts */
    double nll;     /* of the scored entries */
} mixture_part;

typedef struct mixture {
    score_folder first; /* the first folder: texts, counts, labels, convention */
    bool *chosen;       /* [documents] of it that were to be scored */
    mixture_part *parts;
    int64_t count;
    int64_t entries, scored;
} mixture;

/** Read the folders; all have scored the same tokens of the same texts. Clear after an error too.
 *
 * Errors:     those of score_folder_load and comparison_check; BP_ERR_INPUT no tokens.h5;
 *             BP_ERR_FORMAT other tokens were scored, no token was; a token that no model gives a
 *             probability; damaged; BP_ERR_SYSTEM memory. */
bp_err mixture_load(mixture *mix, char *const *folders, int64_t count);
void mixture_clear(mixture *mix);

/** Weights that fit the texts best: weights[count]. Errors: BP_ERR_SYSTEM. */
bp_err mixture_fit(double *weights, bp_mixture_fit *fit, const mixture *mix);

/** Write weights[count] to a JSON file. Errors: BP_ERR_SYSTEM, and those of bp_json_save. */
bp_err mixture_weights_save(const mixture *mix, const double *weights, const bp_mixture_fit *fit,
                            const char *path);
/** Read weights[count] that were saved: from 0 to 1, their sum 1 to 1e-9, of the mixture's models
 * in its order. Reads of the mixture its count, and the digests of its parts. Errors: those of
 * bp_json_load; BP_ERR_FORMAT others than that. */
bp_err mixture_weights_read(double *weights, const mixture *mix, const char *path);

/** Write a score folder of the mixture: summary.json, documents.h5, tokens.h5.
 *
 * Errors:     BP_ERR_CREATE the folder is there and not empty; BP_ERR_IO, BP_ERR_DENIED. */
bp_err mixture_save(const mixture *mix, const double *weights, const char *folder);

#endif
