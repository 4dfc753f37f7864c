/* Messages for text in place of a corpus, with the tool that converts it. */
#pragma once

#include "base/err.h"

/** Errors: BP_ERR_FORMAT `path`, open as `fd`, holds text (or compressed text), with a command that
 * makes a corpus of it. Other files are BP_OK, for the corpus reader to check. */
bp_err bp_corpus_refuse_text(int fd, const char *path);
/** Errors: BP_ERR_INPUT `path` is a folder, with the file to name instead. */
bp_err bp_corpus_refuse_folder(const char *path);
