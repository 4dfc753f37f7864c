/* Finds n-grams of test texts in training texts. Every rank has the table of the test's n-grams,
 * and reads its share of the training texts. */
#pragma once

#include "document_texts.h"
#include "overlap_grams.h"

#include <mpi.h>

#define OVERLAP_PLACES 16 /* training documents kept per test document */

/** A training document that is the first with some n-grams of a test document. */
typedef struct overlap_place {
    int64_t document; /* of the training texts */
    int64_t grams;    /* number of places of the test document */
    char *id;         /* only on rank 0; owned */
} overlap_place;

typedef struct overlap_document {
    int64_t id_at; /* of its id in overlap.ids */
    int64_t words, grams, matched;
    int place_count;
    overlap_place *places; /* [place_count], most n-grams first */
} overlap_document;

typedef struct overlap {
    document_texts train, test;
    int words;
    int64_t memory_bytes; /* of the table of a rank */
    /* The results, complete on rank 0. */
    int64_t *train_first, *test_first; /* [path_count + 1] */
    overlap_document *documents;       /* [document_count], of the test */
    int64_t document_count, document_capacity;
    bp_buffer ids; /* of the test's documents, each ended by a zero byte */
    int64_t grams; /* of the test */
    int parts;     /* number of passes over the training texts */
} overlap;

/** Collective: over `comm`; equal arguments on all ranks, all of which can read the texts.
 * Owns:       overlap_clear(), after an error too.
 * Errors:     those of document_texts_read; BP_ERR_USAGE standard input would have to be read
 *             several times; BP_ERR_FORMAT a file changed between two readings; BP_ERR_SYSTEM
 *             memory: the same on all ranks.
 */
bp_err overlap_run(overlap *self, MPI_Comm comm);
void overlap_clear(overlap *self);
