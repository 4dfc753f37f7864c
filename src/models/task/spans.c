/* Spans: where in a context the answer to a question begins and ends. */
#include "models/task/examples.h"
#include "models/task/heads.h"
#include "models/task/list.h"

/* If the window does not hold the whole answer, its target is the place for "no answer". */
static void make(const bp_example_maker *self, const bp_document *document, int64_t step,
                 int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    bp_task_pair pair = bp_task_window(document, &rules->windows);
    int64_t T = self->form.stream[0].T, cut, first = pair.text[1] - document->tokens,
            place = bp_task_first_place(&rules->frame, &pair) + pair.tokens[0] +
                    rules->frame.middles - first,
            none;

    (void)step, (void)slot;
    *out->length[0] =
        (int32_t)bp_task_fill(out->inputs[0], out->segments[0], T, &rules->frame, &pair, &cut);
    if (self->form.stream[1].T > 0)
        bp_task_mirror(out, T, (int32_t)rules->start);
    none = bp_task_no_answer(&rules->frame, *out->length[0]);
    for (int end = 0; end < 2; end++)
        out->targets[end][0] = (int32_t)none;
    if (document->answer[1] > 0 && document->answer[0] >= first &&
        document->answer[1] <= first + pair.tokens[1])
        for (int end = 0; end < 2; end++)
            out->targets[end][0] = (int32_t)(place + document->answer[end] - end);
}

static bp_example_maker maker(const bp_model_shape *shape, int64_t T, const bp_example_rules *rules)
{
    bp_example_maker out = bp_task_maker(shape, T, rules);

    out.form.targets[1] = 1;
    out.make_document = make;
    return out;
}

static const bp_objective OBJECTIVE = {
    .name = "spans", .terms = 2, .weight = {0.5, 0.5}, .term = {"begin", "end"}, .maker = maker};

static bp_block *new_head(bp_network *network, const bp_model_shape *shape)
{
    return bp_task_new_text_head(network, shape, true);
}

static const char *const KEYS[] = {"task.frozen_layers", "task.lm_weight", "task.stride",
                                   "task.answer_tokens", NULL};

const bp_task_kind bp_task_spans = {.name = "spans",
                                    .keys = KEYS,
                                    .over_positions = true,
                                    .ends = 2,
                                    .texts = "questions",
                                    .labelled = "questions",
                                    .prediction = "end",
                                    .label = "known answers",
                                    .objective = &OBJECTIVE,
                                    .new_head = new_head};
