/* The objective of encoder-decoders: a target given its source. A document is a pair: its first
 * text is the source, the rest is the target. The source and the target end with the
 * end-of-document token, and the decoder reads the start token and then the target. A text longer
 * than the context loses its last tokens, but not its end. Called by bart.c, t5.c and
 * train/parts/text.c. */
#include "models/family.h"

#include <string.h>

/* to[T] = the tokens that fit, and the end; returns their number. */
static int64_t fill(int32_t *to, int64_t T, const int32_t *tokens, int64_t count, int64_t end)
{
    int64_t ends = end >= 0 ? 1 : 0, n = count < T - ends ? count : T - ends;

    memcpy(to, tokens, (size_t)n * sizeof *to);
    if (ends)
        to[n] = (int32_t)end;
    return n + ends;
}

static void make_pair(const bp_example_maker *self, const bp_document *document, int64_t step,
                      int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t T = self->form.stream[0].T, S = self->form.stream[1].T, sources = document->starts[1],
            length;

    (void)step, (void)slot;
    memset(out->inputs[1], 0, (size_t)S * sizeof(int32_t));
    out->length[1][0] = (int32_t)fill(out->inputs[1], S, document->tokens, sources, rules->eod);
    length =
        fill(out->targets[0], T, document->tokens + sources, document->count - sources, rules->eod);
    memset(out->inputs[0], 0, (size_t)T * sizeof(int32_t));
    out->inputs[0][0] = (int32_t)rules->start;
    memcpy(out->inputs[0] + 1, out->targets[0], (size_t)(length - 1) * sizeof(int32_t));
    for (int64_t t = length; t < T; t++)
        out->targets[0][t] = -1;
}

static bp_example_maker seq2seq_maker(const bp_model_shape *shape, int64_t T,
                                      const bp_example_rules *rules)
{
    (void)shape;
    return (bp_example_maker){
        .form = {.stream = {{.T = T}, {.T = T, .has_lengths = true}}, .targets = {T}},
        .feed = BP_FEED_DOCUMENTS,
        .rules = rules,
        .make_document = make_pair};
}

const bp_objective bp_objective_seq2seq = {
    .name = "seq2seq", .terms = 1, .weight = {1}, .pairs = true, .maker = seq2seq_maker};
