/* score/states.h5 while it is written. */
#ifndef BP_INFER_SCORE_STATES_PRIV_H
#define BP_INFER_SCORE_STATES_PRIV_H

#include "infer/score/scorer_priv.h"
#include "infer/score/unit.h"
#include "io/h5/h5.h"

#define STATE_LAYERS 64

/* A run of a document's text that is read whole, and where its rows go. */
typedef struct state_text {
    int64_t file, first, count; /* in the file's /tokens */
    int64_t row;                /* of /layer_K */
} state_text;

/* Texts, or work units of windows, by number: each data rank computes one a round. */
typedef struct state_job {
    scorer *self;
    bp_state_form form;
    int64_t count; /* of texts or units */
    /* Fill `states` on the lead, and say how many `floats` there are. Collective over
     * mesh->ensemble. */
    bp_err (*compute)(struct state_job *job, int64_t number);
    /* Write them, and what lies before them. On the coordinator. */
    bp_err (*store)(struct state_job *job, int64_t number);
    int64_t most; /* tokens of a text, rows of a gap */
    int *leads;   /* [datas] ranks of the world */
    state_text *texts;
    int32_t *tokens; /* [most] */
    float *states;   /* [layers][most][columns], of one text: [layers][count][columns]; of a unit
                        [scored][columns] */
    int64_t floats;
    float *mixed; /* [most][columns]; NULL: no mix is asked for */
    float *gap;   /* [most][columns] of NaN, on the coordinator */
    double weights[STATE_LAYERS];
    bp_h5_draft draft;
    int64_t written; /* rows so far */
    /* of keys alone */
    bp_score_unit *unit;       /* on leads and the coordinator */
    float *keys, *values;      /* of a batch */
    int32_t *inputs, *targets; /* on the others a copy of the batch, */
    int32_t *sources, *source_lengths;
} state_job;

/** Rows of all layers from job->states; and of what is none: end-of-document tokens, documents that
 * are not scored. Local, on the coordinator. Errors: those of writing; BP_ERR_STOPPED. */
bp_err states_write_rows(state_job *job, int64_t row, int64_t count);
bp_err states_write_gap(state_job *job, int64_t from, int64_t to);
bp_err states_no_memory(int64_t tokens);

/** Bytes of a rank's buffers, for the plan: of a model with states of this form, windows of
 * `inputs` inputs, so many statistics a token, and a context (BP_MODEL_UNLIMITED too). Local. */
int64_t states_bytes(const bp_config *config, const bp_state_form *form, int64_t inputs,
                     int64_t statistics, int64_t context);
int64_t states_key_bytes(int64_t columns, int64_t inputs, int64_t statistics);

/** Of models that give keys: a row of /layer_0 is what a token was predicted from, in the window in
 * which it is scored, and /scored says which tokens are. Local, the error may be of this rank
 * alone. */
bp_err states_prepare_keys(state_job *job);
/** What makes a datastore of the file: the model, and the text. On the coordinator. */
bp_err states_begin_keys(state_job *job);
void states_clear_keys(state_job *job);

#endif
