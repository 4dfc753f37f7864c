/* The input of validation, in pieces that are batches. */
#pragma once

#include "train/loop/trainer.h"

/* How the stream is read: all slots have the same number of whole windows, except that the first
 * ones may have one more. micro_batch slots are read side by side. If no state is carried, a slot
 * is one window. The tail continues the last slot. */
typedef struct valid_layout {
    int64_t whole, slots;
    int64_t groups, rounds; /* piece k: group k / rounds, its window k % rounds */
    int64_t tail;           /* predictions of the last, shorter window; 0: there is none */
    bool carries;
} valid_layout;

/* Windows of one length; the first belongs to slot `slot`, at index `place` in its group. */
typedef struct valid_piece {
    int64_t slot, place, round, windows, T;
} valid_piece;

/** Local. */
valid_layout valid_layout_of(const trainer *self);
/** Piece k of groups x rounds; empty if all slots of its group have ended and there is no tail.
 * Local. */
valid_piece valid_piece_at(const trainer *self, const valid_layout *all, int64_t k);
/** Reads its examples, as of step 0, into examples.buffer. Local, on leads. Errors: those of
 * bp_stream_read and bp_document_table_read. */
bp_err valid_piece_read(trainer *self, const valid_layout *all, const valid_piece *p,
                        const bp_example_maker *maker);
