/* ARPA files, as SRILM and KenLM write and read them. Local: no MPI, except for `comm` of
 * writing. */
#pragma once

#include "models/family.h"
#include "models/forms.h"
#include "models/ngram/ngram_estimate_priv.h"
#include "models/ngram/ngram_file_priv.h"
#include "models/words/words.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/strmap.h"

/** bp_text_form.write. */
bp_err ngram_arpa_export(const bp_model_family *family, bp_checkpoint *checkpoint,
                         const bp_tokenizer *tokenizer, const char *path);
/** Is it an ARPA file? By the first lines: comments, then \data\. */
bool ngram_arpa_is(const char *path);

/** What an ARPA file holds: levels and spec of one rank, for ngram_write; made: the tokenizer of
 * its words, if no tokenizer was given. Owns: ngram_levels_clear, bp_tokenizer_free. Errors:
 * BP_ERR_FORMAT with the line; those of bp_file_open; BP_ERR_SYSTEM. */
bp_err ngram_arpa_read(ngram_levels *levels, ngram_spec *spec, const bp_tokenizer *tokenizer,
                       bp_tokenizer **made, const char *path);
