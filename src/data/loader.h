/* Which tokens come next in training: windows, loader (src/data/README.md). Local: no
 * MPI.
 */
#pragma once

#include "data/document_table.h"
#include "tensor/batch.h"
#include <stdbool.h>

/** The loader of this rank. While it exists, only its helper thread reads the stream. */
typedef struct bp_loader bp_loader;
typedef struct bp_loader_spec {
    bp_stream *stream;           /* borrowed until bp_loader_free */
    bp_example_maker maker;      /* its windows overlap by a token: of T + 1 */
    bp_document_columns columns; /* for documents; borrowed until bp_loader_free */
    int64_t batch;               /* B: slots over all ranks */
    int64_t first_slot, slots;   /* this rank's run of slots */
    uint64_t seed;
    bool in_sequence; /* windows are not shuffled: a slot reads its part of the stream in order,
                         epoch after epoch. Not with weights */
    int64_t member;   /* key of the shuffle: 0, since run.member keys only the bag */
    int64_t bucket; /* documents, or unpaired runs: those of this many batches are sorted by length
                       and cut into batches of similar lengths; 0: unsorted. Not with weights, nor
                       if they repeat */
} bp_loader_spec;

/** Starts a helper thread; it reads ahead from the first step asked for.
 *
 * Without weights slot b of step s reads its own part of an epoch's windows. With weights the
 * windows of all steps, slot by slot, are one list of entries, in which each file has its share,
 * evenly spread. The k-th entry of a file with W windows is entry k mod W of its epoch k / W. So a
 * rank with some of the slots decodes nearly all blocks.
 *
 * Holds blocks of 64 Ki tokens, 256 KiB each: at most 4 a slot, or with weights 4 a file, never
 * more than the stream has; and three steps of batches. A token is copied twice: to its block, and
 * from there to its batch.
 *
 * Owns:       *out is the caller's, bp_loader_free(); NULL after an error. With a maker of
 *             documents (or runs) an entry is a document of any length; the rest is as for windows.
 *             A block has at most 64 Ki tokens before its last document.
 *
 * Errors:     BP_ERR_FORMAT fewer than T+1 tokens; BP_ERR_SYSTEM memory, threads; for documents
 *             those of bp_document_table_new.
 */
bp_err bp_loader_new(bp_loader **out, const bp_loader_spec *spec);
void bp_loader_free(bp_loader **loader);

/** What the memory of the loader depends on. */
typedef struct bp_loader_size {
    int64_t tokens;      /* of all files */
    int64_t documents;   /* entries, of a maker of documents or runs */
    int64_t mixed_files; /* of a stream with weights; 0: one without */
    int64_t slots;
    int64_t bucket, batch; /* bp_loader_spec.bucket, and slots over all ranks */
    const bp_example_maker *maker;
} bp_loader_size;

/** Bytes of a loader of this size, for the plan; with weights, at most. */
size_t bp_loader_bytes(const bp_loader_size *size);
/** W, the windows, documents or runs of an epoch; with weights, of all files. */
int64_t bp_loader_windows(const bp_loader *loader);
/** The windows of file k that a step takes, on average; with weights. */
double bp_loader_share(const bp_loader *loader, int64_t k);
/** Are there more slots than windows? The caller warns. Slots then run through epochs: slot b of
 * step s takes entry ((s-1)B + b) mod W of epoch ((s-1)B + b) / W. With weights: a step takes more
 * windows of some file than it has. */
bool bp_loader_repeat(const bp_loader *loader);
/** The examples of step `step` (from 1): a function only of (seed, member, step), the maker and the
 * stream. Any step may be read at any time; reading in order is fast.
 *
 * Shapes:     *batch is bp_batch_bytes(maker.form, slots); borrowed until the next call.
 * Errors:     those of bp_corpus_file_read.
 */
bp_err bp_loader_read(bp_loader *loader, int64_t step, const void **batch);
/** Blocks decoded so far. */
int64_t bp_loader_blocks_read(bp_loader *loader);
