/* Personal data in all documents, on all ranks. */
#pragma once

#include "document_texts.h"
#include "pii_scan.h"

#include "base/buffer.h"

#include <mpi.h>

#define PII_SHAPE_BYTES 44

/** A find, without its text. */
typedef struct pii_row {
    int64_t document, start, end; /* bytes of the document's text */
    int32_t file;
    int8_t kind, country; /* pii_kind; of pii_countries, or -1 */
    bool reserved;
    char shape[PII_SHAPE_BYTES]; /* letters as x, digits as 9 */
} pii_row;

/** A document in which something was found. */
typedef struct pii_document {
    int64_t document, id_at; /* offset of its id in pii.ids */
} pii_document;

typedef struct pii {
    document_texts texts;
    uint64_t countries; /* as in pii_scan */
    /* The results, complete on rank 0. */
    int64_t documents, bytes;
    pii_row *rows; /* [row_count], ascending by document and start */
    int64_t row_count, row_capacity;
    pii_document *found; /* [found_count], ascending */
    int64_t found_count, found_capacity;
    bp_buffer ids; /* each ended by a zero byte */
} pii;

/** Collective: over `comm`; equal arguments on all ranks, all of which can read the texts. The
 * finds do not depend on the number of ranks.
 * Owns:       pii_clear(), after an error too.
 * Errors:     those of document_texts_read: the same on all ranks. */
bp_err pii_run(pii *self, MPI_Comm comm);
void pii_clear(pii *self);
