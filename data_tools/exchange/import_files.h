/* Import of files other than tensors: a folder's tokenizer, and other kinds of files.
 */
#pragma once

#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

/** The folder's tokenizer: tokenizer.json, else the files of the model_type's own class, if it is
 * known. *out is NULL if there is none. A warning names files that are ignored. Owns: *out is the
 * caller's. Errors: those of bp_tokenizer_load. */
bp_err import_find_tokenizer(bp_tokenizer **out, const char *folder, const char *model_type);

/** Is `path` a file, or a folder without config.json? If so BP_ERR_FORMAT, with its apparent kind
 * and the right input; else BP_OK. */
bp_err import_check_source(const char *path);
