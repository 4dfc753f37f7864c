/* ELECTRA's objective: examples of masked models, whose original text is the discriminator's
 * target. Called by electra.c. */
#include "models/bert/bert.h"
#include "models/electra/electra.h"

#include <string.h>

static void make_replaced(const bp_example_maker *self, const int32_t *tokens, int64_t step,
                          int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t T = self->form.stream[0].T;
    bp_example masked = *out;

    masked.targets[BP_ELECTRA_REPLACED] = NULL;
    bp_masked_make(self, tokens, step, slot, &masked);
    out->targets[BP_ELECTRA_REPLACED][0] = (int32_t)rules->cls;
    memcpy(out->targets[BP_ELECTRA_REPLACED] + 1, tokens, (size_t)(T - 2) * sizeof *tokens);
    out->targets[BP_ELECTRA_REPLACED][T - 1] = (int32_t)rules->sep;
}

static bp_example_maker replaced_maker(const bp_model_shape *shape, int64_t T,
                                       const bp_example_rules *rules)
{
    (void)shape;
    return (bp_example_maker){
        .form = {.stream = {{.T = T}}, .targets = {T, T}},
        .window = T - 1, /* the next example begins after the T - 2 tokens of this one */
        .rules = rules,
        .make = make_replaced};
}

const bp_objective bp_objective_replaced = {.name = "replaced",
                                            .terms = 2,
                                            .weight = {1, BP_ELECTRA_WEIGHT},
                                            .term = {"masked", "replaced"},
                                            .masks = true,
                                            .maker = replaced_maker};
