/* distill.layers: states of a teacher's layers, which the model's layers learn. */
#pragma once

#include "train/loop/trainer.h"

typedef struct teacher_states teacher_states;

/* distill.layers, as all ranks know them. Plain data. */
typedef struct teacher_layers {
    int64_t columns;             /* of the teacher's states */
    int block[BP_STATE_MATCHES]; /* the teacher's block whose output a layer learns, */
    int from[BP_STATE_MATCHES];  /* the pipeline stage that has it, */
    int to[BP_STATE_MATCHES];    /* and the one that has the layer */
    int64_t layer[BP_STATE_MATCHES], of[BP_STATE_MATCHES]; /* the model's; the teacher's */
    int count;                                             /* 0: no states are learned */
} teacher_layers;

/** Reads the key. Local. Errors: BP_ERR_CONFIG. */
bp_err teacher_states_read(teacher_layers *taught, const char *list);
/** Checks that a teacher of this shape has these layers, and fills in the rest. Local. Errors:
 * BP_ERR_CONFIG. */
bp_err teacher_states_find(teacher_layers *taught, const trainer *self,
                           const bp_model_shape *theirs);
/** Broadcasts it from rank 0 of world, and sets it in the model's shape. Collective over world. */
void teacher_states_share(teacher_layers *taught, trainer *self);
/** Bytes of states on a stage. */
int64_t teacher_states_bytes(const teacher_layers *taught, const trainer *self, int stage);
/** Memory for a batch's states; `taught` and `self` are borrowed. *out is NULL if no states are
 * learned. Local. Errors: BP_ERR_SYSTEM. */
bp_err teacher_states_open(teacher_states **out, const teacher_layers *taught, const trainer *self);
/** The probe that takes the states of later passes, whose first window is `window` of the batch;
 * NULL if no states are learned. */
struct bp_probe *teacher_states_probe(teacher_states *states, int64_t window);
/** Sends the states taken on the teacher's stages to the stages of the model's layers. Collective
 * over mesh->pipeline. */
void teacher_states_send(teacher_states *states);
/** States of a match from row `row` of the batch on. */
const float *teacher_states_at(const teacher_states *states, int match, int64_t row);
void teacher_states_close(teacher_states **states);
