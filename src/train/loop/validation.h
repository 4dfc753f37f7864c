/* Validation: the loss over all of corpus.valid. */
#pragma once

#include "train/loop/trainer.h"

typedef struct validation {
    double loss; /* the weighted sum of its terms' means, nats; NaN: nothing was counted */
    double term[BP_TERMS]; /* its terms' means, */
    bool asked[BP_TERMS];  /* where something was asked for */
    double accuracy;       /* of predicted outcomes, 0 to 1; NaN: not defined */
    double f1;             /* of entities; NaN: not defined */
} validation;

/** Collective over compute; *out is the same on all ranks, and has the same bits at any number of
 * data ranks. Errors: those of bp_stream_read and bp_document_table_read: the same on all ranks. */
bp_err bp_trainer_validate(trainer *self, validation *out);
