/* The family T5, versions 1.0 and 1.1, and mT5. Source: Raffel et al. 2020; Shazeer 2020 (version
 * 1.1). */
#include "models/seq2seq/seq2seq.h"

#include "models/stack/transformer.h"

#define EPSILON 1e-6

static const bp_seq2seq_form FORM = {.activations = {BP_GEGLU, BP_RELU},
                                     .positions = BP_DISTANCES,
                                     .epsilon = EPSILON,
                                     .rms = true,
                                     .pre_norm = true,
                                     .drops_states = true,
                                     .scales_states = true,
                                     .dense = true,
                                     .padding_learns = true,
                                     .embedding_std = 1};

static const bp_model_size SIZES[] = {
    BP_SEQ2SEQ_SIZES,
    {.name = "tied", .at = BP_SIZE_AT(stack.other_tie), .type = BP_SIZE_FLAG, .optional = true},
    {.name = "gated",
     .at = BP_OWN_AT(bp_seq2seq_sizes, activation),
     .type = BP_SIZE_FLAG,
     .optional = true,
     .inverse = true},
    BP_DISTANCE_SIZES,
    BP_DISTANCE_LAYERS,
    {0}};

static const bp_option KEYS[] = {BP_SEQ2SEQ_KEYS,
                                 BP_SEQ2SEQ_START_KEY("1, its padding,"),
                                 {BP_REAL_KEY("model.norm_epsilon", NULL, 1e-12, 1),
                                  .help = "what norms add to the mean square; 1e-6 if not given"},
                                 BP_T5_GATED_KEY,
                                 BP_DISTANCE_KEYS,
                                 BP_DISTANCE_LAYERS_KEY,
                                 {0}};

static void fill_defaults(bp_model_shape *shape)
{
    bp_seq2seq_sizes *own = bp_seq2seq_sizes_in(shape);

    bp_seq2seq_fill_defaults(shape);
    own->start_token = own->start_token > 0 ? own->start_token : 1;
    bp_distance_fill_defaults(shape);
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_seq2seq_check(shape, tensor_ranks, config);
    bp_distance_check(shape, config);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    bp_err err = bp_distance_check_read(shape, where);

    return err == BP_OK ? bp_seq2seq_check_read(shape, where) : err;
}

const bp_model_family bp_t5_family = {.name = "t5",
                                      .sizes = SIZES,
                                      .keys = KEYS,
                                      .seq2seq = &FORM,
                                      .any_context = true,
                                      .fill_defaults = fill_defaults,
                                      .check = check,
                                      .check_read = check_read,
                                      BP_SEQ2SEQ_FAMILY(bp_seq2seq_pre_norm, bp_seq2seq_source),
                                      .other_objective = &bp_objective_denoise,
                                      .huggingface = bp_t5_huggingface};
