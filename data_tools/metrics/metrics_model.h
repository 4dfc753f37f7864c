/* A model's outputs for files of texts: states for BERTScore, and log-probabilities. */
#pragma once

#include "metrics_files.h"

#include <mpi.h>

typedef struct metrics_model metrics_model;

typedef struct metrics_model_spec {
    const char *model;     /* CHECKPOINT */
    const char *tokenizer; /* NULL: that of the checkpoint */
    int64_t layer;         /* BP_TEXTS_LAST, or one */
    bool idf;
} metrics_model_spec;

/** On one rank, local. Owns: *out is the caller's, metrics_model_free(). Errors: BP_ERR_CONFIG a
 * model without probabilities of texts, or without a tokenizer; BP_ERR_FORMAT a tokenizer that is
 * not its own; those of bp_model_open. */
bp_err metrics_model_open(metrics_model **out, const metrics_model_spec *spec);
void metrics_model_free(metrics_model **self);
/** {"kind", "step", "digest"}. New reference. */
json_t *metrics_model_json(const metrics_model *self);

/** The inputs of bp_metric_perplexity. Errors: those of bp_texts_score. */
bp_err metrics_model_perplexity(bp_text_answers *out, metrics_model *self,
                                const answer_file *hypothesis);
/** The inputs of bp_metric_bertscore. Errors: those of bp_texts_columns and bp_texts_states. */
bp_err metrics_model_bertscore(bp_text_answers *out, metrics_model *self,
                               const answer_file *hypothesis, const answer_file *references,
                               int count);
