/* A loader of labelled documents over a small corpus, for the tests of document tables. */
#pragma once

#include "base/files/fs.h"
#include "bp_test.h"
#include "data/loader.h"
#include "toy_corpus.h"

enum { T = 40, KIND = T, NUMBER, COUNT, SEGMENTS, VALUES };

extern const char *const CLASSES[2]; /* of the toy's x, y, z */
extern int64_t bucket;               /* corpus.bucket of the loaders that are opened */

/* Lengths of 0 to 30 tokens, one of 70,000 (more than a block and the most that is read). */
enum { DOCUMENTS = 12007, LONG = 333 };

const toy_corpus *make_toy(void);

/* Slots [first, first + slots) of batches. */
bp_loader *open_loader(bp_stream *stream, int64_t batch, int64_t first, int64_t slots);

/* Examples of a step. */
const int32_t *read_step(bp_loader *loader, int64_t step);

typedef struct world {
    bp_corpus *corpus;
    bp_stream *stream;
} world;

world open_world(const char *list, bool bag, const double *weights);

void end_world(world *w);

/* How often each document comes in an epoch, of documents [0, DOCUMENTS). */
void count_epoch(const toy_corpus *toy, bp_loader *loader, int64_t batch, int64_t epoch,
                 int32_t *counts, int32_t *first_number);

/* Documents of an epoch that come but once; the sum over batches of longest less shortest. */
int64_t spread_of(const toy_corpus *toy, bp_loader *loader, int64_t batch, int64_t epoch);

/* The sums over steps of documents' numbers and of their squares, by which sets are compared. */
void sum_documents(bp_loader *loader, int64_t batch, int64_t first, int64_t steps, int64_t sums[2]);
