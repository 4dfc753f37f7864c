/* Recurrent language models: Elman's network, LSTM, GRU. */
#ifndef BP_MODELS_RECURRENT_RECURRENT_H
#define BP_MODELS_RECURRENT_RECURRENT_H

#include "models/family.h"

/** Where their own sizes are in bp_model_shape. */
enum { BP_RECURRENT_EMBEDDING, BP_RECURRENT_TIED };

extern const bp_model_family bp_rnn_family, bp_lstm_family, bp_gru_family;
extern const bp_hf_table *const bp_rnn_huggingface[], *const bp_lstm_huggingface[],
                                                          *const bp_gru_huggingface[];

#endif
