/* What import makes of files that are not tensors: a folder's tokenizer, and files of other kinds.
 */
#ifndef BP_DATA_TOOLS_IMPORT_FILES_H
#define BP_DATA_TOOLS_IMPORT_FILES_H

#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

/** The folder's tokenizer: tokenizer.json, else the files of the model_type's own class, where it
 * is known; *out NULL: there is none. Files that are left out are named by a warning. Owns: *out is
 * the caller's. Errors: those of bp_tokenizer_load. */
bp_err import_find_tokenizer(bp_tokenizer **out, const char *folder, const char *model_type);

/** Is `path` a file, or a folder without config.json? BP_ERR_FORMAT then, with what it was taken
 * for and what to give instead; else BP_OK. */
bp_err import_check_source(const char *path);

#endif
