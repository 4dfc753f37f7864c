/* Checkpoints of text files (ARPA, word vectors) and of folders of other programs (bilm-tf), and
 * what all imports share. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "exchange.h"
#include "io/checkpoint/checkpoint.h"
#include "models/family.h"
#include "text/tokenizer/tokenizer.h"

/** Import the one argument as its family's text form or folder says. Local. Errors: those of
 * bp_text_form.read and bp_folder_form.read, and of import_save. */
bp_err import_text(const bp_model_family *family, const exchange_arguments *arguments);
bp_err import_folder(const bp_model_family *family, const exchange_arguments *arguments);

/** Put the tokens with roles of a tokenizer (NULL: none) into a checkpoint's state. */
void import_add_roles(json_t *state, const bp_tokenizer *tokenizer);
/** Save a step of `commit` as `out`, with the tokenizer unless it is NULL. Local. Errors: those of
 * bp_checkpoint_save. */
bp_err import_save(bp_checkpoint_commit *commit, const char *out, const bp_tokenizer *tokenizer,
                   const bp_slice *slices, int64_t count, const json_t *state);
