/* Documents of tasks as examples. */
#include "models/task/examples.h"

#include <inttypes.h>
#include <string.h>

/* ---- documents ---- */

bp_err bp_task_frame_of(bp_task_frame *out, const bp_model_shape *shape, const int64_t *roles,
                        const char *where)
{
    bool framed = shape->family->blocks->backbone(shape).pooler;
    bp_role lacks = framed && roles[BP_ROLE_CLS] < 0 ? BP_ROLE_CLS : BP_ROLE_SEP;

    out->begin = framed ? roles[BP_ROLE_CLS] : shape->task.begins ? roles[BP_ROLE_FIRST] : -1;
    out->once = !framed;
    out->middle = out->end = roles[framed ? BP_ROLE_SEP : BP_ROLE_END];
    out->middles = shape->task.separators > 0 ? shape->task.separators : 1;
    out->one_segment = shape->task.one_segment;
    out->padding = shape->task.padding;
    if (shape->task.unframed) {
        out->end = -1;
        out->middle = out->begin;
        out->middles = out->begin >= 0 ? shape->task.separators : 0;
    }
    out->pad = roles[BP_ROLE_PAD] >= 0 ? roles[BP_ROLE_PAD] : 0;
    if (shape->task.unframed || (out->end >= 0 && (out->begin >= 0 || !framed)))
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                   "the corpus's tokenizer has no token for '%s', which a task's examples need: at "
                   "%s; make the corpus with a tokenizer that has one",
                   bp_role_name(framed ? lacks : BP_ROLE_END), where);
}

bp_task_pair bp_task_texts(const bp_document *document, bool pairs)
{
    int64_t first = pairs && document->segments == 2 ? document->starts[1] : document->count;

    return (bp_task_pair){{document->tokens, document->tokens + first},
                          {first, document->count - first}};
}

bp_err bp_task_check_document(const bp_document *document, const char *where)
{
    return document->count > 0 ? BP_OK
                               : BP_FAIL(BP_ERR_FORMAT, "task.empty_document",
                                         "document %" PRId64
                                         " has no token: at %s; leave it out (bagpipe-data corpus "
                                         "--without)",
                                         document->number, where);
}

bp_task_pair bp_task_window(const bp_document *document, const bp_window_rule *windows)
{
    int64_t first = document->starts[1];
    bp_text_window at = bp_window_at(windows, first, document->count - first, document->window);

    return (bp_task_pair){{document->tokens, document->tokens + first + at.first},
                          {at.question, at.count}};
}

bp_window_rule bp_task_windows(const bp_task_frame *frame, int64_t T, int64_t stride)
{
    return (bp_window_rule){T - (frame->begin >= 0) - frame->middles - 1, stride};
}

int64_t bp_task_first_place(const bp_task_frame *frame, const bp_task_pair *pair)
{
    return frame->begin >= 0 &&
           !(frame->once && pair->tokens[0] > 0 && pair->text[0][0] == frame->begin);
}

int64_t bp_task_positions(const bp_task_frame *frame, const bp_task_pair *pair)
{
    return pair->tokens[0] + pair->tokens[1] + bp_task_first_place(frame, pair) +
           (frame->end >= 0) + (pair->tokens[1] > 0 ? frame->middles : 0);
}

int64_t bp_task_fill(int32_t *inputs, int32_t *segments, int64_t T, const bp_task_frame *frame,
                     const bp_task_pair *pair, int64_t *cut)
{
    bool two = pair->tokens[1] > 0;
    int64_t n[2] = {pair->tokens[0], pair->tokens[1]}, at = 0, first,
            positions = bp_task_positions(frame, pair);

    *cut = positions > T ? positions - T : 0;
    for (int64_t k = 0; k < *cut; k++)
        n[n[0] <= n[1]]--;
    if (bp_task_first_place(frame, pair) > 0)
        inputs[at++] = (int32_t)frame->begin;
    memcpy(inputs + at, pair->text[0], (size_t)n[0] * sizeof *inputs);
    at += n[0];
    for (int64_t k = 0; two && k < frame->middles; k++)
        inputs[at++] = (int32_t)frame->middle;
    first = at;
    if (two)
        memcpy(inputs + at, pair->text[1], (size_t)n[1] * sizeof *inputs);
    at += n[1];
    if (frame->end >= 0)
        inputs[at++] = (int32_t)frame->end;
    while (frame->padding > 0 && at > 1 && inputs[at - 1] == frame->padding - 1)
        at--;
    for (int64_t t = at; t < T; t++)
        inputs[t] = (int32_t)frame->pad;
    for (int64_t t = 0; segments && t < T; t++)
        segments[t] = two && !frame->one_segment && t >= first && t < at;
    return at;
}

void bp_task_mirror(bp_example *example, int64_t T, int32_t start)
{
    int32_t *target = example->inputs[0];

    memcpy(example->inputs[1], target, (size_t)T * sizeof *target);
    *example->length[1] = *example->length[0];
    memmove(target + 1, target, (size_t)(T - 1) * sizeof *target);
    target[0] = start;
}

/* targets[T] for a language model on such inputs: each token given those before it, -1 at the last
 * one and after it. */
static void fill_words(int32_t *targets, const int32_t *inputs, int64_t length, int64_t T)
{
    for (int64_t t = 0; t < T; t++)
        targets[t] = t < length - 1 ? inputs[t + 1] : -1;
}

/* ---- examples: padded ---- */

void bp_task_fill_example(const bp_example_maker *self, const bp_document *document,
                          bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    bp_task_pair pair = bp_task_texts(document, rules->pairs);
    int64_t cut;

    *out->length[0] = (int32_t)bp_task_fill(out->inputs[0], out->segments[0],
                                            self->form.stream[0].T, &rules->frame, &pair, &cut);
    if (self->form.stream[1].T > 0)
        bp_task_mirror(out, self->form.stream[0].T, (int32_t)rules->start);
    if (self->form.targets[BP_TASK_WORDS] > 0)
        fill_words(out->targets[BP_TASK_WORDS], out->inputs[0], *out->length[0],
                   self->form.stream[0].T);
}

bp_example_maker bp_task_maker(const bp_model_shape *shape, int64_t T,
                               const bp_example_rules *rules)
{
    bool has_segments = shape->family->blocks->backbone(shape).segments > 1;
    bool has_source = shape->family->source != NULL;

    return (bp_example_maker){
        .form = {.stream = {{.T = T, .has_lengths = true, .has_segments = has_segments},
                            {.T = has_source ? T : 0, .has_lengths = has_source}},
                 .targets = {1, bp_task_keeps_words(shape) ? T : 0}},
        .feed = BP_FEED_DOCUMENTS,
        .rules = rules};
}
