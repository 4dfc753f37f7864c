/* Recurrent language models: Elman's network, LSTM, GRU, and cells that are graphs. */
#ifndef BP_MODELS_RECURRENT_RECURRENT_H
#define BP_MODELS_RECURRENT_RECURRENT_H

#include "models/family.h"
#include "nn/core/layers.h"

/** Their own sizes. */
typedef struct bp_recurrent_sizes {
    int64_t embedding, tied;
    int64_t cell[BP_MODEL_PAIRS]; /* the nodes of a cell's graph */
} bp_recurrent_sizes;
BP_OWN_SIZES(bp_recurrent_sizes)
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

/** The cell that a mixed one's architecture weights [edges][operations] stand for, as the key
 * model.cell has it: a node has the one edge, and of it the one operation but none, whose weight's
 * share (softmax of the edge) is the largest; of equal ones the first. Local. Source: Liu, Simonyan
 * and Yang 2019, section 2.4. */
#define BP_CELL_MIX                                                                                \
    (BP_CELL_NODES * (BP_CELL_NODES + 1) / 2 * BP_NODE_OPERATIONS) /* weights, most */
#define BP_CELL_TEXT 512
void bp_cell_derive(const bp_cell_graph *graph, const double *weights, char cell[BP_CELL_TEXT]);

#endif
