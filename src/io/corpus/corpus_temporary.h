/* The file that a corpus is written to before it has its name: ".NAME.TOKEN.tmp" beside it, locked
 * (flock) as long as it is written. One that nobody has locked is what a killed run left. Private
 * to src/store. */
#ifndef BP_IO_CORPUS_CORPUS_TEMPORARY_H
#define BP_IO_CORPUS_CORPUS_TEMPORARY_H

#include "base/err.h"

/** Remove what killed runs left of the output `path`: as far as it goes, without a word where the
 * folder can't be listed, a file is another user's, or the file system has no locks. */
void bp_corpus_temporary_sweep(const char *path);

/** Create the file for the output `path`; closing *fd gives up the lock. Both are the caller's;
 * NULL and -1 after an error, and nothing is there then.
 *
 * Errors: BP_ERR_CREATE no such folder; BP_ERR_DENIED; BP_ERR_IO; BP_ERR_SYSTEM. */
bp_err bp_corpus_temporary_create(const char *path, char **temporary, int *fd);

#endif
