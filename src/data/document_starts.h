/* Where the documents of corpora begin, read in windows: of 10 million documents, all starts are 80
 * MB, which no rank needs at once. Local: no MPI. */
#pragma once

#include "base/err.h"
#include "data/corpus.h"
#include <stdint.h>

/** Values of a window: as many as have one checksum in a corpus file. */
#define BP_DOCUMENT_STARTS ((int64_t)1 << 17)

typedef struct bp_document_starts bp_document_starts;

/** `corpus` is borrowed. Memory: one window, 1 MiB at most. */
bp_document_starts *bp_document_starts_new(bp_corpus *corpus);
void bp_document_starts_free(bp_document_starts **starts);

/** (*start)[0], (*start)[1]: where a document of a file begins and ends in its /tokens; the
 * document is counted within the file. Borrowed until the next call, which may move the window:
 * cheap for documents in order. A caller who asks for all documents of a file knows that all are
 * sorted. Errors: those of bp_corpus_file_read_doc_start. */
bp_err bp_document_starts_at(bp_document_starts *starts, int64_t file, int64_t document,
                             const int64_t **start);
/** Read all of a file once. Errors: as above. */
bp_err bp_document_starts_check(bp_document_starts *starts, int64_t file);
