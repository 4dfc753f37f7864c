/* The family T5, versions 1.0 and 1.1, and mT5. Source: Raffel et al. 2020; Shazeer 2020 (version
 * 1.1). */
#include "models/seq2seq/seq2seq.h"

#define EPSILON  1e-6
#define BUCKETS  32
#define DISTANCE 128

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
    {.name = "relative_buckets", .at = BP_OWN_AT(bp_seq2seq_sizes, buckets), .optional = true},
    {.name = "relative_distance", .at = BP_OWN_AT(bp_seq2seq_sizes, distance), .optional = true},
    {0}};

static const bp_option KEYS[] = {
    BP_SEQ2SEQ_KEYS,
    BP_SEQ2SEQ_START_KEY("1, its padding,"),
    {.key = "model.norm_epsilon",
     .type = BP_OPTION_REAL,
     .min = 1e-12,
     .max = 1,
     .help = "what norms add to the mean square; 1e-6 if not given"},
    {.key = "model.gated",
     .type = BP_OPTION_BOOL,
     .help = "the MLP is down(gelu(gate) up), version 1.1's; no: down(relu(up)); yes if not given"},
    {.key = "model.relative_buckets",
     .type = BP_OPTION_INT,
     .min = 4,
     .max = 1 << 16,
     .help = "groups of distances between tokens that attention distinguishes; 32 if not given"},
    {.key = "model.relative_distance",
     .type = BP_OPTION_INT,
     .min = 3,
     .max = 1 << 24,
     .unit = "tokens",
     .help = "distances from this one on are one group, above half of model.relative_buckets; 128 "
             "if not given"},
    {0}};

static void fill_defaults(bp_model_shape *shape)
{
    bp_seq2seq_sizes *own = bp_seq2seq_sizes_in(shape);

    bp_seq2seq_fill_defaults(shape);
    own->start_token = own->start_token > 0 ? own->start_token : 1;
    own->buckets = own->buckets > 0 ? own->buckets : BUCKETS;
    own->distance = own->distance > 0 ? own->distance : DISTANCE;
}

/* The encoder uses half of its buckets for each side; both use half of the rest for exact
 * distances. */
static bool buckets_fit(const bp_model_shape *shape)
{
    int64_t buckets = bp_seq2seq_sizes_of(shape)->buckets;

    return buckets >= 4 && buckets % 2 == 0 && bp_seq2seq_sizes_of(shape)->distance > buckets / 2;
}

#define BAD_BUCKETS                                                                                \
    "%lld buckets of distances up to %lld do not go together: at %s; give an even number of "      \
    "buckets, at least 4, and a distance above half of it"

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_seq2seq_check(shape, tensor_ranks, config);
    if (!buckets_fit(shape))
        bp_config_fault(config, "model.bad_buckets", BAD_BUCKETS,
                        (long long)bp_seq2seq_sizes_of(shape)->buckets,
                        (long long)bp_seq2seq_sizes_of(shape)->distance, "model.relative_buckets");
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (!buckets_fit(shape))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size", BAD_BUCKETS,
                       (long long)bp_seq2seq_sizes_of(shape)->buckets,
                       (long long)bp_seq2seq_sizes_of(shape)->distance, where);
    return bp_seq2seq_check_read(shape, where);
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
