/* The objective of encoder-decoders: a target given its source. */
#include "models/family.h"

static bp_example_maker seq2seq_maker(const bp_model_shape *shape, int64_t T,
                                      const bp_example_rules *rules)
{
    (void)shape;
    return (bp_example_maker){
        .form = {.stream = {{.T = T}, {.T = T, .has_lengths = true}}, .targets = {T}},
        .window = T + 1,
        .rules = rules};
}

const bp_objective bp_objective_seq2seq = {
    .name = "seq2seq", .terms = 1, .weight = {1}, .maker = seq2seq_maker};
