/* Recurrent language models: Elman's network, LSTM, GRU, and cells that are graphs. */
#pragma once

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

/** Keys of the family "cell"; its default; its graph, without a group; the fault of an invalid
 * graph (NULL if valid). Local. */
extern const bp_option bp_cell_keys[];
void bp_cell_fill_default(bp_model_shape *shape);
bp_cell_graph bp_cell_graph_of(const bp_model_shape *shape);
const char *bp_cell_fault(const bp_model_shape *shape);

/** The cell given by a mixed cell's architecture weights [edges][operations], as text for the key
 * model.cell. Each node has the edge and operation (except "none") whose weight has the largest
 * share (softmax over the edge); the first of equal ones. Local. Source: Liu, Simonyan and Yang
 * 2019, section 2.4. */
#define BP_CELL_MIX                                                                                \
    (BP_CELL_NODES * (BP_CELL_NODES + 1) / 2 * BP_NODE_OPERATIONS) /* at most, weights */
#define BP_CELL_TEXT 512
void bp_cell_derive(const bp_cell_graph *graph, const double *weights, char cell[BP_CELL_TEXT]);
