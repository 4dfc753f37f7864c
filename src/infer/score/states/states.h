/* score/states.h5: how it is written, and what it keeps of a token. */
#ifndef BP_INFER_SCORE_STATES_STATES_H
#define BP_INFER_SCORE_STATES_STATES_H

#include "infer/score/sets.h"
#include "io/h5/h5.h"

#define STATE_LAYERS 64
#define STATE_GAP    2048 /* rows of a gap that are written at once, in a datastore */

/** The weights of score.mix: as many numbers as there are layers; false: others. Local. */
bool states_read_weights(double *weights, const char *list, int64_t layers);
void states_soften(double *weights, int64_t layers);

/** score/states.h5 while it is written, its rows front to back: on the coordinator. */
typedef struct state_file {
    const scorer *self;
    bp_state_form form;
    int64_t most; /* rows that are written at once */
    float *gap;   /* [most][columns] of NaN */
    float *mixed; /* [most][columns]; NULL: no mix is asked for */
    double weights[STATE_LAYERS];
    bp_h5_draft draft;
    int64_t written; /* rows so far */
} state_file;

/** A new file with its layers. Errors: BP_ERR_SYSTEM memory; those of writing. */
bp_err state_file_begin(state_file *file, const scorer *self, int64_t most);
/** Rows [row, row + count) of all layers, states[layers][count][columns], after rows of what is not
 * text. Errors: those of writing; BP_ERR_STOPPED. */
bp_err state_file_rows(state_file *file, int64_t row, int64_t count, const float *states);
/** Rows up to `end` are of what is not text: end-of-document tokens, documents that are not scored.
 * Errors: as above. */
bp_err state_file_gap(state_file *file, int64_t end);
/** The rest of the rows, and the file appears under its name; after an error it is removed. Errors:
 * `err`, or its own. */
bp_err state_file_end(state_file *file, bp_err err);
bp_err states_no_memory(int64_t tokens);
/** A stop was asked for while the file was written. */
bp_err states_look_for_stop(void);

/** score_set.merge_windows: score/states.h5 of a model that gives keys. Errors: those of reading
 * parts and of writing; BP_ERR_STOPPED. */
bp_err states_merge_keys(scorer *self, bp_parts *parts);

#endif
