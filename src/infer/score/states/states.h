/* score/states.h5: writing it, and its values of a token. */
#pragma once

#include "infer/score/sets.h"
#include "io/h5/h5.h"

#define STATE_LAYERS 64
#define STATE_GAP    2048 /* rows of a gap written at once, in a datastore */

/** Parse the weights of score.mix, one number per layer; false if they are not that. Local. */
bool states_read_weights(double *weights, const char *list, int64_t layers);
void states_soften(double *weights, int64_t layers);

/** score/states.h5 while it is written, row by row in order, on the coordinator. */
typedef struct state_file {
    const scorer *self;
    bp_state_form form;
    int64_t most; /* rows written at once */
    float *gap;   /* [most][columns] of NaN */
    float *mixed; /* [most][columns]; NULL if no mix is requested */
    double weights[STATE_LAYERS];
    bp_h5_draft draft;
    int64_t written; /* rows so far */
} state_file;

/** A new file with its layers. Errors: BP_ERR_SYSTEM memory; those of writing. */
bp_err state_file_begin(state_file *file, const scorer *self, int64_t most);
/** Rows [row, row + count) of all layers, states[layers][count][columns], after the rows of
 * non-text tokens. Errors: those of writing; BP_ERR_STOPPED. */
bp_err state_file_rows(state_file *file, int64_t row, int64_t count, const float *states);
/** Fill rows up to `end`, which are not text: end-of-document tokens, documents that are not
 * scored.
 * Errors: as above. */
bp_err state_file_gap(state_file *file, int64_t end);
/** Write the remaining rows and rename the file to its final name; after an error remove it.
 * Errors: `err`, or its own. */
bp_err state_file_end(state_file *file, bp_err err);
bp_err states_no_memory(int64_t tokens);
/** A stop was requested while the file was written. */
bp_err states_look_for_stop(void);

/** score_set.merge_windows: score/states.h5 for a model that returns keys. Errors: those of reading
 * parts and of writing; BP_ERR_STOPPED. */
bp_err states_merge_keys(scorer *self, bp_parts *parts);
