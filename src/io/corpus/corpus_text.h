/* Text where a corpus is wanted: said as such, with the tool that makes a corpus of it. */
#ifndef BP_IO_CORPUS_CORPUS_TEXT_H
#define BP_IO_CORPUS_CORPUS_TEXT_H

#include "base/err.h"

/** Errors: BP_ERR_FORMAT `path`, open as `fd`, holds text (or compressed text), with a command that
 * makes a corpus of it. What is neither is left to who reads corpora. */
bp_err bp_corpus_refuse_text(int fd, const char *path);
/** Errors: BP_ERR_INPUT `path` is a folder, with what of it to name. */
bp_err bp_corpus_refuse_folder(const char *path);

#endif
