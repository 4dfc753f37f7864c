/* The part of a network that one pipeline stage holds: a run of blocks, with its parameters in flat
 * memory. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "nn/core/block.h"

#define BP_NETWORK_CHUNKS 64

typedef struct bp_network {
    bp_nn nn;
    bp_block **blocks;
    bp_activations
        *outputs; /* [block_count] what each block passes on; a model's last block, nothing */
    int block_count, block_capacity;
    bp_group *groups;
    int group_count, group_capacity;
    bp_carry *carries; /* what blocks carry from window to window, at most two per block */
    int carry_count;
    int chunk_end[BP_NETWORK_CHUNKS]; /* where each chunk ends: its blocks are consecutive in the
                                         model, and a pipeline stage may have several chunks */
    bp_activations inputs[BP_NETWORK_CHUNKS]; /* the input of each chunk */
    int chunk_count;
    int64_t floats;          /* of the flat memory: all groups with their padding, */
    int64_t trained_floats;  /* without the frozen groups at its end, */
    int64_t source_floats;   /* the experts at the end of those; */
    int64_t gradient_floats; /* gradients': more than the trained floats where experts' are separate
                                (bp_network_part_sources) */
    int64_t changes_after;   /* all states of a text longer than this depend on its length: on the
                                exact length, or only on its being longer; 0: they do not */
    bool changes_always;
    void *tables; /* data that the family's blocks read in addition to parameters; freed with the
                     network */
    int64_t table_bytes; /* of those that a pass fills */
} bp_network;

/** An empty network with capacity for this many blocks and groups (fixed: pointers to params stay
 * valid). Local. Owns: *out is the caller's, bp_network_free(); nn's gemm and tensor are borrowed.
 * Ends the program when out of memory (bp_alloc). */
void bp_network_new(bp_network **out, const bp_nn *nn, int blocks, int groups);
void bp_network_free(bp_network **network);

/** A group that the next block to be added is the first to read. */
bp_group *bp_network_add_group(bp_network *network, bool replicated);
/** A matrix [V][columns], and a vector [V], cut by rows over tensor ranks as the vocabulary is. */
bp_param *bp_network_add_words(bp_network *network, bp_group *group, const char *name, int64_t V,
                               int64_t columns, float init_std);
bp_param *bp_network_add_word_biases(bp_network *network, bp_group *group, const char *name,
                                     int64_t V);
/** A table [rows][columns], rows cut over tensor ranks, that the first and the last block of a
 * model share: a group of its own on the first and the last stage; NULL on the others. `blocks`:
 * the number on this stage. */
typedef struct bp_tied_table {
    const char *name;
    int64_t rows, columns;
    float init_std;
} bp_tied_table;
bp_param *bp_network_add_tied(bp_network *network, const bp_tied_table *table, int stage,
                              int stages, int blocks);
/** A table [rows][columns], columns cut over tensor ranks, that blocks of all stages share: a copy
 * for the run of blocks that begins here. `set` (from 1 on) distinguishes its copies from those of
 * other tables. */
void bp_network_add_common(bp_network *network, const bp_tied_table *table, int set, int stage);
/** Such a table of the next block only, in a group of its own. Borrowed from the network. */
bp_param *bp_network_add_distances(bp_network *network, const bp_tied_table *table);
/** The same for parameters that are whole on each tensor rank, which has a part of their gradients:
 * an empty group. */
bp_group *bp_network_add_common_group(bp_network *network, int set, int stage);
/** The first parameter of the current run's copy. */
bp_param *bp_network_common(const bp_network *network, int set);
/** Data that the block being made carries for each batch slot: the logical tensor "carry/NAME"
 * [batch][columns]. Borrowed by the block. */
bp_carry *bp_network_add_carry(bp_network *network, const char *name, int64_t columns);
void bp_network_add_block(bp_network *network, bp_block *block); /* takes ownership */
/** The input of block k; and what it works on: its output, or its input where it passes nothing on.
 * Without data. */
const bp_activations *bp_network_before(const bp_network *network, int k);
const bp_activations *bp_network_at(const bp_network *network, int k);
/** The most floats between any two blocks. */
int64_t bp_network_activation_floats(const bp_network *network, const bp_pass *pass);
/** The blocks added since the last one are a chunk. */
void bp_network_end_chunk(bp_network *network);
/** Chunk c is blocks [this, network->chunk_end[c]). */
int bp_network_chunk_first(const bp_network *network, int chunk);

/** Assign each group its place, padded to a multiple of `multiple` floats: experts come after the
 * others, and frozen groups last. */
void bp_network_lay_out(bp_network *network, int64_t multiple);
/** To call afterwards, where nn->expert has several ranks: keeps the gradients of experts apart by
 * source rank, as sums in a fixed order need; else they are one sum. */
void bp_network_part_sources(bp_network *network);
/** Give gradients to the groups that are searched (param.h) from now on, or freeze them. After the
 * network is laid out: they have a place among gradients. Local. */
void bp_network_set_searched(bp_network *network, bool asked);
/** Point the params into flat memory of network->floats floats (borrowed), and bind the blocks to
 * it. Errors: BP_ERR_SYSTEM no memory for the products' copies. */
bp_err bp_network_bind_values(bp_network *network, float *values);
void bp_network_bind_gradients(bp_network *network, float *gradients);
void bp_group_bind_gradients(bp_group *group, float *gradients);
/** Bound gradients start over, with any contents: those first written by a matrix product are
 * marked fresh; the others and the padding are zero. */
void bp_group_open_gradients(bp_group *group, float *gradients);
/** Backward has written all gradients that were fresh. */
bool bp_group_is_written(const bp_group *group);
/** Initial values of all params; padding is zero. */
void bp_network_initialise(bp_network *network, uint64_t seed);
/** After the values changed: renew the copies of all blocks, or of one. */
void bp_network_refresh(bp_network *network);
void bp_network_refresh_block(bp_network *network, int block);

/** Memory of a micro-batch: bytes that all blocks keep, and the largest scratch of one. */
size_t bp_network_saved_bytes(const bp_network *network, const bp_extent *most);
size_t bp_network_scratch_bytes(const bp_network *network, const bp_extent *most, bool training);
/** Memory for the matrix products of all blocks: the sum of copies, and the largest scratch. */
bp_product_bytes bp_network_product_bytes(const bp_network *network, const bp_extent *most);

/** Slices of [first, first + count) of group `g`'s flat memory, at most three a param; `base` is
 * the address of element `first`. `prefix` comes before each name ("adamw.m/"). Appends to slices[]
 * from *used on; capacity is asserted. */
void bp_network_slices(const bp_network *network, int g, const char *prefix, float *base,
                       int64_t first, int64_t count, bp_slice *slices, int64_t *used,
                       int64_t capacity);
/** How many slices bp_network_slices lists for all groups, at most. */
int64_t bp_network_slice_capacity(const bp_network *network);
