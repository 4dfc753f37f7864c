/* Which tokens come next in training: streams, windows, loader (CONTRACT, section 4). Local: no
 * MPI.
 */
#ifndef BP_DATA_LOADER_H
#define BP_DATA_LOADER_H

#include "data/corpus.h"
#include <stdbool.h>

/** The stream: all documents of the corpus in order, each with its end-of-document token; or a bag
 * of it. */
typedef struct bp_stream bp_stream;
typedef struct bp_stream_spec {
    bp_corpus *corpus; /* borrowed until bp_stream_free */
    bool bag;          /* documents drawn with replacement, n from n, keyed by (seed, member) */
    uint64_t seed;
    int64_t member;
    const double *weights; /* [files], borrowed for the call: each file is a stream by itself; NULL:
                              all together are one */
} bp_stream_spec;

/** How a bag's documents lie in its stream. 1: each document as often as drawn, its copies next to
 * each other; 2: in passes, as bp_stream_new says. */
#define BP_BAG_VERSION 2

/** Pass r of a bag (r = 1, 2, ...) holds, in corpus order, the documents drawn at least r times;
 * one pass follows the other. So the copies of a document stand apart.
 *
 * Owns:       *out is the caller's, bp_stream_free(); NULL after an error.
 * Errors:     BP_ERR_FORMAT a bag of fewer than 2 documents; BP_ERR_SYSTEM memory; what reading
 *             doc_start gives.
 */
bp_err bp_stream_new(bp_stream **out, const bp_stream_spec *spec);
void bp_stream_free(bp_stream **stream);
int64_t bp_stream_tokens(const bp_stream *stream);
int64_t bp_stream_files(const bp_stream *stream);
/** With weights, file k is tokens [*first, *first + *tokens) of the stream. */
void bp_stream_file(const bp_stream *stream, int64_t k, int64_t *first, int64_t *tokens);
/** The weights, [files]; NULL: none. Borrowed. */
const double *bp_stream_weights(const bp_stream *stream);
/** Is there a window in the stream; with weights, in each file whose weight is above 0? Errors:
 * BP_ERR_FORMAT fewer than `context` + 1 tokens, with the file. */
bp_err bp_stream_check(const bp_stream *stream, int64_t context);
/** Windows of `context` tokens that the corpus has without a bag: an epoch of all bags. With
 * weights those of each file by itself, if its weight is above 0. */
int64_t bp_stream_corpus_windows(const bp_stream *stream, int64_t context);
int64_t bp_stream_vocab_size(const bp_stream *stream);
/** The path of file k, for messages. Borrowed. */
const char *bp_stream_path(const bp_stream *stream, int64_t k);
/** How often document d (over all files, in order) was drawn; 1 without a bag. */
int64_t bp_stream_drawn(const bp_stream *stream, int64_t document);
/** Tokens of the stream from `first` on; first + count may not be beyond its end (BP_ASSERT).
 *
 * Shapes:     tokens[count].
 * Errors:     those of bp_corpus_file_read.
 */
bp_err bp_stream_read(bp_stream *stream, int64_t first, int64_t count, int32_t *tokens);

/** The loader of this rank. While they live, the stream is their helper thread's: nobody else reads
 * it. */
typedef struct bp_loader bp_loader;
typedef struct bp_loader_spec {
    bp_stream *stream;         /* borrowed until bp_loader_free */
    int64_t context;           /* T */
    int64_t batch;             /* B: slots over all ranks */
    int64_t first_slot, slots; /* this rank's run of slots */
    uint64_t seed;
    int64_t member; /* of the shuffle: 0, since run.member keys the bag alone */
} bp_loader_spec;

/** Starts a helper thread; it reads ahead from the first step asked for.
 *
 * Without weights slot b of step s reads its own stretch of an epoch's windows. With weights the
 * windows of all steps, slot by slot, are one list of entries, of which each file has its share,
 * evenly spread; the k-th entry of a file with W windows is entry k mod W of its epoch k / W. So a
 * rank that has some of the slots decodes all blocks that its windows lie in: nearly all there are.
 *
 * Holds blocks of 64 Ki tokens, 128 KiB each (256 KiB from 65,537 entries of the vocabulary up): at
 * most 4 a slot, or with weights 4 a file, never more than there are; and three steps of windows.
 *
 * Owns:       *out is the caller's, bp_loader_free(); NULL after an error.
 * Errors:     BP_ERR_FORMAT fewer than T+1 tokens; BP_ERR_SYSTEM memory, threads.
 */
bp_err bp_loader_new(bp_loader **out, const bp_loader_spec *spec);
void bp_loader_free(bp_loader **loader);

/** What the memory of loader depends on. */
typedef struct bp_loader_size {
    int64_t tokens;      /* of all files */
    int64_t mixed_files; /* of a stream with weights; 0: one without */
    int64_t slots, context, vocab_size;
} bp_loader_size;

/** Bytes that loader of this size take, for the plan; with weights, at most. */
size_t bp_loader_bytes(const bp_loader_size *size);
int64_t bp_loader_windows(const bp_loader *loader); /* W, of an epoch; with weights, of all files */
/** The windows of file k that a step takes, on average; with weights. */
double bp_loader_share(const bp_loader *loader, int64_t k);
/** More slots than windows: worth a warning. Slots then go on through epoch after epoch: slot b of
 * step s takes entry ((s-1)B + b) mod W of epoch ((s-1)B + b) / W. With weights: a step takes more
 * windows of some file than it has. */
bool bp_loader_repeat(const bp_loader *loader);
/** The windows of step `step` (from 1): T inputs and, one to the right, T targets. A function of
 *  (seed, member, step) and the stream alone; any step at any time, quick in order.
 *
 * Shapes:     windows[slots][T+1].
 * Errors:     those of bp_corpus_file_read.
 */
bp_err bp_loader_read(bp_loader *loader, int64_t step, int32_t *windows);
/** Seconds that bp_loader_read has waited so far, and blocks decoded so far. */
double bp_loader_waited(const bp_loader *loader);
int64_t bp_loader_blocks_read(bp_loader *loader);

#endif
