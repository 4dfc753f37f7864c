/* Recurrent language models: Elman's network, LSTM, GRU, and cells that are graphs. */
#ifndef BP_MODELS_RECURRENT_RECURRENT_H
#define BP_MODELS_RECURRENT_RECURRENT_H

#include "models/family.h"
#include "nn/core/layers.h"

/** Where their own sizes are in bp_model_shape. */
enum {
    BP_RECURRENT_EMBEDDING,
    BP_RECURRENT_TIED,
    BP_RECURRENT_CELL /* BP_MODEL_PAIRS of them: the nodes */
};
#define BP_CELL_WORDS "none|tanh|relu|sigmoid|identity|mixed"

extern const bp_model_family bp_rnn_family, bp_lstm_family, bp_gru_family, bp_cell_family;
extern const bp_hf_table *const bp_rnn_huggingface[],
    *const bp_lstm_huggingface[], *const bp_gru_huggingface[], *const bp_cell_huggingface[];

/** Keys of the family "cell"; its default; its graph, without a group; why it is none (NULL: it is
 * one). Local. */
extern const bp_option bp_cell_keys[];
void bp_cell_fill_default(bp_model_shape *shape);
bp_cell_graph bp_cell_graph_of(const bp_model_shape *shape);
const char *bp_cell_fault(const bp_model_shape *shape);

#endif
