/* The inside of a network's decoding. */
#pragma once

#include "math/kernels/mixture.h"
#include "models/network/network_inside_priv.h"

/* Sequences that grow together. */
typedef struct decoding_group {
    float **caches;  /* [blocks of this stage] */
    int32_t *cells;  /* [slots][capacity] whose cache memory holds a sequence's position */
    int32_t *fed;    /* [slots] positions of each */
    int32_t *tokens; /* [slots][capacity] of each cell, where sequences may be computed anew; else
                        NULL */
    int32_t *state;  /* [slots] whose place holds a sequence's state, in blocks that keep only one
                        state */
    int32_t *source_of, *source_ends; /* [slots] a sequence's source, a source's last place */
    bool shared; /* a sequence has continued another one: its cells may belong to others */
} decoding_group;

/* What the last stage works on: the slots with tokens, one after another. */
typedef struct last_work {
    float *states, *hidden; /* [slots][C] before and after the last norm */
    float *logits;          /* [slots][V here] */
    float *max;             /* [2][slots] */
    double *sums;           /* [2][slots] */
    double *totals;         /* [2][slots] */
    int32_t *targets;       /* [slots] -1 */
    bp_member_row *known;   /* [slots] */
    bp_mixture_row *mixed;  /* [slots] */
} last_work;

typedef struct network_decoding {
    bp_decoding face;
    decoding_group *groups;
    int64_t most_rows; /* of a piece; of states, filled up: */
    int64_t most_lasts;
    int32_t *cells, *fed, *state;        /* as in a group: the next table is made here */
    int32_t *states_from, *states_to;    /* [slots] of a piece (bp_continuation) */
    int32_t *used;                       /* [slots] cells of a position in use by other slots */
    int32_t *ends;                       /* [slots] positions that each slot has after the step */
    int32_t *tokens, *positions, *slots; /* [most_rows] of a piece */
    int32_t *source_slots,
        *source_positions; /* [most_rows] of a piece: bp_continuation.source_rows */
    int32_t *source_cells; /* [slots][source capacity] each source's own */
    float *data;           /* activations of a piece */
    void *attention;       /* scratch of cached attention */
    char *scratch;         /* of the block at work */
    size_t scratch_bytes;
    last_work last;
    char *memory; /* all of it */
} network_decoding;

/** Blocks of this stage that rows go through: the head reads only the last of them. */
int decoding_blocks(const network_model *model);
/** `rows` padded for the products, whose kernels are prepared for each number of rows at first use.
 */
int64_t decoding_filled_rows(const network_model *model, int64_t rows);
/** A pass over rows of several sequences. */
bp_pass decoding_pass(const int32_t *tokens, int64_t rows);
/** A pass that reads a source. */
bp_pass decoding_source_pass(const int32_t *tokens, int64_t positions);
/** Runs each shape of matrix product once, so that a step prepares none. Collective over
 * mesh->tensor. */
void decoding_warm_up(network_decoding *self);

/* See bp_model_ops. */
bp_err network_decode_new(bp_decoding **out, bp_model *model, int groups, int64_t slots,
                          int64_t capacity);
void network_decode_free(bp_decoding *decoding);
void network_decode_reset(bp_decoding *decoding, int group);
int64_t network_decode_bytes(const bp_model *model, int groups, int64_t slots, int64_t capacity);
void network_decode(bp_decoding *decoding, int group, const bp_decode_step *step, float *logits,
                    float *statistics);
void network_decode_states(bp_decoding *decoding, int group, const bp_decode_step *step,
                           float *hidden);
void network_decode_sources(bp_decoding *decoding, int group, const bp_decode_sources *sources);
void network_decode_logits(bp_decoding *decoding, int64_t head, const float *hidden, int64_t rows,
                           float *logits);
