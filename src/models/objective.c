/* The objective of causal language models. */
#include "models/objective.h"

#include <string.h>

/* A window of T+1 tokens is T inputs and, one to the right, T targets. */
static void make_causal(const bp_example_maker *self, const int32_t *tokens, int64_t step,
                        int64_t slot, bp_example *out)
{
    size_t bytes = (size_t)(self->window - 1) * sizeof *tokens;

    (void)step, (void)slot;
    memcpy(out->inputs[0], tokens, bytes);
    memcpy(out->targets[0], tokens + 1, bytes);
}

static bp_example_maker causal_maker(const struct bp_model_shape *shape, int64_t T,
                                     const bp_example_rules *rules)
{
    (void)shape;
    return (bp_example_maker){.form = {.stream = {{.T = T}}, .targets = {T}},
                              .window = T + 1,
                              .rules = rules,
                              .make = make_causal};
}

const bp_objective bp_objective_causal = {
    .name = "causal", .terms = 1, .weight = {1}, .scores_all = true, .maker = causal_maker};
