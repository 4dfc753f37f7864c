/* The objective of causal models that generate a target for a source: both in one stream. Called by
 * train/parts/text.c. */
#include "models/family.h"
#include "models/stack/rotary.h"

#include <string.h>

/* Copies the tokens, and returns the place after them. */
static int32_t *put(int32_t *to, const int32_t *tokens, int64_t count)
{
    memcpy(to, tokens, (size_t)count * sizeof *to);
    return to + count;
}

/* The inputs are the stream without its end; targets are the stream shifted left by one. */
static void make_text(const bp_example_maker *self, const bp_document *document, int64_t step,
                      int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t T = self->form.stream[0].T, source = document->starts[1],
            target = document->count - source, between = rules->separator_count,
            lead = rules->begins && (source == 0 || document->tokens[0] != rules->first),
            more = lead + source + between + target - T;
    int32_t *inputs = out->inputs[0], *targets = out->targets[0], *at = inputs;

    (void)step, (void)slot;
    if (more > 0) {
        int64_t cut = more < source ? more : source;

        source -= cut;
        target -= more - cut < target ? more - cut : target;
    }
    if (self->form.stream[0].has_lengths)
        *out->length[0] = (int32_t)(more > 0 ? T : T + more);
    memset(inputs, 0, (size_t)T * sizeof *inputs);
    at = put(at, &rules->first, lead);
    at = put(at, document->tokens, source);
    at = put(at, rules->separator, between < T - lead - source ? between : T - lead - source);
    at = put(at, document->tokens + document->starts[1], target);
    for (int64_t t = 0; t < T; t++)
        targets[t] = -1;
    for (int64_t t = lead + source + between - 1, k = 0; k <= target && t < T; t++, k++)
        targets[t] = k < target ? document->tokens[document->starts[1] + k] : (int32_t)rules->eod;
}

static bp_example_maker text_maker(const struct bp_model_shape *shape, int64_t T,
                                   const bp_example_rules *rules)
{
    int64_t scaling = shape->stack.rope_scaling;
    bool by_length = scaling == BP_ROPE_DYNAMIC || scaling == BP_ROPE_LONGROPE;

    return (bp_example_maker){
        .form = {.stream = {{.T = T, .has_lengths = by_length}}, .targets = {T}},
        .feed = BP_FEED_DOCUMENTS,
        .rules = rules,
        .make_document = make_text};
}

const bp_objective bp_objective_text = {
    .name = "text", .terms = 1, .weight = {1}, .pairs = true, .maker = text_maker};
