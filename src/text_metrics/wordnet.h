/* WordNet's database files (Debian: wordnet-base), for synonyms. Local: no MPI. */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define BP_WORDNET_FOLDER "/usr/share/wordnet"

typedef struct bp_wordnet bp_wordnet;

/** Read index.POS, data.POS and POS.exc of a folder.
 *
 * Owns:   *out is the caller's, bp_wordnet_free(); NULL on failure.
 * Errors: BP_ERR_INPUT a file is missing, BP_ERR_DENIED; BP_ERR_SYSTEM. */
bp_err bp_wordnet_open(bp_wordnet **out, const char *folder);
void bp_wordnet_free(bp_wordnet **wordnet);

/** Call `see` with each word without "_" of each synset of a word in lower case, of whatever part
 * of speech, and of the forms that its ending may stand for.
 *
 * Source:     Princeton's morphy(7WN), as nltk's WordNetCorpusReader.synsets has it. */
void bp_wordnet_synonyms(const bp_wordnet *wordnet, const char *word, size_t bytes,
                         void (*see)(void *context, const char *word, size_t bytes), void *context);
