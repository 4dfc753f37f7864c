/* GPT-2's architecture: pre-norm layers, learned positions, GELU with tanh, tied embeddings.
 * Radford et al. 2019. */
#ifndef BP_MODELS_GPT_GPT_H
#define BP_MODELS_GPT_GPT_H

#include "base/config.h"
#include "base/json.h"
#include "models/lm.h"
#include "models/network.h"

extern const bp_option bp_model_options[]; /* model.* */

/** Values of bp_model_options (docs: --help). */
typedef struct bp_model_keys {
    const char *kind;
    int64_t layers;
    int64_t width;
    int64_t heads;
    int64_t context;
    double dropout;
    const char *init;
} bp_model_keys;

static inline const bp_model_keys *bp_model_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_model_options);
}

typedef struct bp_gpt_shape {
    int64_t layers, width, heads, context, vocab_size; /* L, C, H, T, V */
} bp_gpt_shape;

/** The shape that the configuration asks for, on top of `known` (from a checkpoint; NULL: none).
 * Faults (a key missing, a key that says otherwise than the checkpoint) are added to the
 * configuration's. vocab_size stays what `known` has, else 0. */
bp_gpt_shape bp_gpt_shape_of(bp_config *config, const bp_gpt_shape *known);

/** Faults of a shape on so many tensor ranks and stages, said with what would fit: added to the
 * configuration's. */
void bp_gpt_shape_check(const bp_gpt_shape *shape, int tensors, int stages, bp_config *config);

/** The "model" object of a checkpoint's state. Errors of reading: BP_ERR_FORMAT a kind, a key or a
 * value that can't be. */
json_t *bp_gpt_shape_json(const bp_gpt_shape *shape);
bp_err bp_gpt_shape_read(bp_gpt_shape *shape, const json_t *state, const char *where);

/** Parameters of the whole model, the tied embedding counted once: 12LC^2 + 13LC + (V + T + 2)C. */
int64_t bp_gpt_parameters(const bp_gpt_shape *shape);
/** FLOPs of training on one token: 6 (12LC^2 + VC) + 12LTC. Source: Kaplan et al. 2020,
 * section 2.1, with the head. */
double bp_gpt_train_flops(const bp_gpt_shape *shape);

/** Blocks: the embedding, the layers, the head. Stage `stage` of `stages` has blocks [*first,
 * *end): the cut with the smallest most expensive stage. */
int bp_gpt_blocks(const bp_gpt_shape *shape);
void bp_gpt_stage(const bp_gpt_shape *shape, int stage, int stages, int *first, int *end);

/** Where a run of blocks lies in a pipeline whose stages have several each. */
#define BP_GPT_CHUNKS 64
typedef struct bp_gpt_place {
    int stage, stages, chunk, chunks;
} bp_gpt_place;
/** Run chunk * stages + stage of the model is blocks [*first, *end): stages have as many layers as
 * in bp_gpt_stage's cut, dealt out evenly to their chunks; where that leaves a chunk empty, the
 * cheapest cut into chunks * stages. */
void bp_gpt_chunk(const bp_gpt_shape *shape, const bp_gpt_place *at, int *first, int *end);

/** The part of the model that one rank holds; values are not bound yet. nn->tensor may be
 * MPI_COMM_NULL for planning. Local. Owns:
 * *out is the caller's, bp_network_free(). Errors: BP_ERR_SYSTEM. */
bp_err bp_gpt_network_new(bp_network **out, const bp_nn *nn, const bp_gpt_shape *shape, int stage,
                          int stages);
/** The same where each stage has `chunks` runs of blocks (bp_gpt_chunk), more than one only with
 * more than one stage. */
bp_err bp_gpt_network_new_chunks(bp_network **out, const bp_nn *nn, const bp_gpt_shape *shape,
                                 int stage, int stages, int chunks);

/** A model with initial values, as bp_param_initialise draws them, that no checkpoint holds: to
 * measure with. `info` has no step, hash or digest. math.precision is settled.
 *
 * Collective: over mesh->member. Owns and Errors: as bp_lm_open. */
bp_err bp_gpt_lm_new(bp_lm **out, const bp_mesh *mesh, const bp_config *config,
                     const bp_gpt_shape *shape, uint64_t seed);

#endif
