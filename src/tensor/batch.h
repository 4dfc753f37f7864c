/* Batches: a network's inputs and targets.
 *
 * A batch is one block of bytes, so that ranks send it as one message. Its examples are made from
 * windows of the corpus by an example maker, on the data loader's helper thread. Pure functions;
 * no HDF5, no MPI.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BP_STREAMS 2 /* input streams: the text, and the other side of an encoder-decoder */
#define BP_TERMS   4 /* of a loss, most */

/** The sizes of an example. Plain data, equal on all ranks. */
typedef struct bp_batch_form {
    struct {
        int64_t T; /* positions; 0 if there is no such stream */
        bool has_lengths, has_segments;
    } stream[BP_STREAMS];
    int64_t targets[BP_TERMS]; /* of each loss term; 0 if there is no such term */
} bp_batch_form;

/** B examples; all arrays borrowed. */
typedef struct bp_batch {
    int64_t B;
    struct {
        int64_t T;
        const int32_t *inputs;   /* [B][T] */
        const int32_t *lengths;  /* [B]: the positions after it are padding; NULL: no padding */
        const int32_t *segments; /* [B][T]; may be NULL */
    } stream[BP_STREAMS];
    struct {
        int64_t count;          /* of an example */
        const int32_t *targets; /* [B][count]; -1: not scored */
    } term[BP_TERMS];
    /* Where micro-batches are shortened (bp_batch_shorten): */
    int64_t fit_rows;    /* examples of one */
    const int64_t *fits; /* [B / fit_rows][BP_STREAMS]: their positions; NULL: as many as T */
} bp_batch;

size_t bp_batch_bytes(const bp_batch_form *form, int64_t B);
/** The batch that is in `bytes`, of bp_batch_bytes. */
bp_batch bp_batch_over(const bp_batch_form *form, int64_t B, const void *bytes);
/** Examples [first, first + count) of it. */
bp_batch bp_batch_part(const bp_batch *all, int64_t first, int64_t count);
/** A shortened T is a multiple of this, or the whole T, so that there are few shapes. */
static inline int64_t bp_batch_fit_step(int64_t T)
{
    return T > 128 ? (T / 16 + 7) / 8 * 8 : 8;
}
/** The positions of all examples, in both streams, without padding: an example ends as
 * bp_batch_shorten says. */
int64_t bp_batch_filled(const bp_batch *batch);
/** The batch with each micro-batch of `rows` examples (the last may have fewer) cut to its longest
 * example. Rows are moved together within each, in `bytes` (of bp_batch_bytes; `all` may be
 * there). An example ends at its length, or, in a stream without lengths, after the last scored
 * target. bp_batch_part then returns micro-batches; the numbers of targets are unchanged.
 *
 * Shapes: fits[ceil(B / rows)][BP_STREAMS], borrowed by the result; counts[2] += the computed
 * positions, and the positions of examples. */
bp_batch bp_batch_shorten(const bp_batch_form *form, const bp_batch *all, int64_t rows, void *bytes,
                          int64_t *fits, int64_t counts[2]);
/** Targets of a term that are scored. */
int64_t bp_batch_scored(const bp_batch *batch, int term);
/** A batch of one stream, with a target a place. */
bp_batch bp_batch_of_positions(int64_t B, int64_t T, const int32_t *inputs, const int32_t *targets);

/** Are all ids[count] in [first, bound)? Called before a table is read by ids that come from data,
 * in all builds: if not, the program ends with BP_ERR_FORMAT and one line (bp_id_ended). Targets
 * have first = -1. NULL is within. */
void bp_ids_within(const char *what, const int32_t *ids, int64_t count, int64_t first,
                   int64_t bound);

/** A value as a target, which is never below 0, and back: to a relative 2^-22. Only finite
 * values. */
int32_t bp_target_of_value(float value);
float bp_target_value(int32_t target);

/** One example of a batch, to be filled in; arrays that the form lacks are NULL. */
typedef struct bp_example {
    int32_t *inputs[BP_STREAMS];   /* [T] */
    int32_t *length[BP_STREAMS];   /* [1] */
    int32_t *segments[BP_STREAMS]; /* [T] */
    int32_t *targets[BP_TERMS];    /* [count] */
} bp_example;

#define BP_DOCUMENT_NO_WORD (-1)
#define BP_DOCUMENT_MOST    ((int64_t)65536) /* tokens of a document that an example is made of */

/** Windows over a document of a question and its context, which may be longer than the positions:
 * each has the question (only its first positions / 2 tokens, if it is longer), and as much of the
 * context as fits, starting `stride` tokens after the previous window's start, or fewer so that no
 * token is skipped. The last window reaches the end of the context. */
typedef struct bp_window_rule {
    int64_t positions; /* for tokens of both; 0: documents are not cut into windows */
    int64_t stride;
} bp_window_rule;
typedef struct bp_text_window {
    int64_t question;     /* the number of its first tokens that are used */
    int64_t first, count; /* of the context */
} bp_text_window;
int64_t bp_windows_count(const bp_window_rule *rule, int64_t question, int64_t context);
bp_text_window bp_window_at(const bp_window_rule *rule, int64_t question, int64_t context,
                            int64_t number);

/** A document, or a run of sentences, as an example is made of it. All arrays borrowed. */
typedef struct bp_document {
    const int32_t *tokens; /* [count], without the end-of-document token; a longer document's first
                              BP_DOCUMENT_MOST */
    int64_t count;
    bool is_cut; /* there are more tokens */
    const int64_t
        *starts; /* [segments + 1]: where its texts or sentences begin in tokens, ascending, from 0
                    to count; a single one from 0 if the corpus has no segments */
    int64_t segments;
    int64_t number; /* of the document, over all files of the corpus */
    bool is_run;    /* some sentences of it */
    const int32_t
        *tags; /* [count]: of the task's tags, at the first token of each word, -2 for an unknown
                  tag; BP_DOCUMENT_NO_WORD elsewhere; NULL if no tags were requested */
    int32_t label;     /* its class; -1 if it has no class, or no requested class */
    float value;       /* NAN if it has no value */
    int64_t window;    /* for windows over a document: the number of the example's window */
    int64_t answer[2]; /* its first token, and the one after its last; 0, 0 if there is no answer */
    const struct bp_document
        *other; /* for runs: a run of another document; NULL if there is no other */
} bp_document;

/** What examples are made of. */
typedef enum bp_feed {
    BP_FEED_WINDOWS,   /* windows of the stream of tokens: `make` */
    BP_FEED_DOCUMENTS, /* a document each: `make_document` */
    BP_FEED_RUNS       /* a run of sentences, with one of another document: `make_document` */
} bp_feed;

typedef struct bp_example_maker bp_example_maker;
struct bp_example_maker {
    bp_batch_form form;
    bp_feed feed;
    int64_t window;    /* tokens of the corpus for an example; the next example of a stream begins
                          window - 1 tokens later. Documents: 0. Runs: most tokens of a run, but a run
                          of one sentence may have more */
    const void *rules; /* context of the objective (models/objective.h); borrowed */
    /** Fill in an example: a function only of tokens[window], the rules, the step and the slot of
     * the global batch. */
    void (*make)(const bp_example_maker *self, const int32_t *tokens, int64_t step, int64_t slot,
                 bp_example *out);
    /** The same for a document. */
    void (*make_document)(const bp_example_maker *self, const bp_document *document, int64_t step,
                          int64_t slot, bp_example *out);
};

/** Make example b of the B in `bytes`; `slot` is its place in the global batch. */
void bp_example_make(const bp_example_maker *maker, const int32_t *tokens, int64_t step,
                     int64_t slot, void *bytes, int64_t B, int64_t b);
/** The same of a document. */
void bp_example_make_document(const bp_example_maker *maker, const bp_document *document,
                              int64_t step, int64_t slot, void *bytes, int64_t B, int64_t b);
