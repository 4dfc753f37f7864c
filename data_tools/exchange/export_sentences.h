/* The additional files of sentence-transformers in a Hugging Face folder. */
#ifndef BP_DATA_TOOLS_EXPORT_SENTENCES_H
#define BP_DATA_TOOLS_EXPORT_SENTENCES_H

#include "base/config/json.h"

/** The files, by their names in the folder (bp_hf_export_options.files), of a checkpoint whose
 * "vectors" define how a text's vector is made from its states (import_sentences.h); NULL if it has
 * none. New reference. Local. */
json_t *export_sentences(const json_t *state);

#endif
