/* The input of validation, in pieces that are batches. */
#ifndef BP_TRAIN_LOOP_VALID_PIECES_H
#define BP_TRAIN_LOOP_VALID_PIECES_H

#include "train/loop/trainer.h"

/* How the stream is read: slots have as many whole windows, except for one more of the first ones,
 * and micro_batch of them go side by side. Where nothing is carried a slot is a window. The tail
 * goes on from the last slot. */
typedef struct valid_layout {
    int64_t whole, slots;
    int64_t groups, rounds; /* piece k: group k / rounds, its window k % rounds */
    int64_t tail;           /* tokens of the stream that the last example goes by */
    bool carries;
} valid_layout;

/* Windows of one length; the first is of slot `slot`, and of place `place` in its group. */
typedef struct valid_piece {
    int64_t slot, place, round, windows, T;
} valid_piece;

/** Local. */
valid_layout valid_layout_of(const trainer *self);
/** Piece k of groups x rounds; without windows where all slots of its group have ended, and there
 * is not a tail. Local. */
valid_piece valid_piece_at(const trainer *self, const valid_layout *all, int64_t k);
/** Its examples, those of a step 0, into examples.buffer. Local, on leads. Errors: those of
 * bp_stream_read and bp_document_table_read. */
bp_err valid_piece_read(trainer *self, const valid_layout *all, const valid_piece *p,
                        const bp_example_maker *maker);

#endif
