/* The additional files of sentence-transformers in a Hugging Face folder. */
#pragma once

#include "base/config/json.h"
#include "io/checkpoint/checkpoint.h"

/** The files, by their names in the folder (bp_hf_export_options.files), of a checkpoint whose
 * "vectors" define how a text's vector is made from its states (import_sentences.h); NULL if it has
 * none. New reference. Local. */
json_t *export_sentences(const json_t *state);
/** bp_hf_export_options.also: the values of a map. */
bp_err export_sentences_map(bp_checkpoint *checkpoint, const char *dtype, const char *folder);
