/* Tags: one for each word, at its first token. */
#include "models/task/examples.h"
#include "models/task/heads.h"
#include "models/task/list.h"

static void make(const bp_example_maker *self, const bp_document *document, int64_t step,
                 int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    bp_task_pair pair = bp_task_texts(document, rules->pairs);
    int64_t first = bp_task_first_place(&rules->frame, &pair), T = self->form.stream[0].T, end;

    (void)step, (void)slot;
    bp_task_fill_example(self, document, out);
    end = *out->length[0] - 1;
    for (int64_t t = 0; t < T; t++)
        out->targets[0][t] = t >= first && t < end ? document->tags[t - first] : -1;
}

static bp_example_maker maker(const bp_model_shape *shape, int64_t T, const bp_example_rules *rules)
{
    bp_example_maker out = bp_task_maker(shape, T, rules);

    out.form.targets[0] = T;
    out.make_document = make;
    return out;
}

static const bp_objective OBJECTIVE = {.name = "tags", .terms = 1, .weight = {1}, .maker = maker};

static const bp_objective WITH_WORDS = {
    .name = "tags", .terms = 2, .weight = {1}, .term = {"tags", "words"}, .maker = maker};

static const char *const KEYS[] = {"task.labels", "task.frozen_layers", "task.lm_weight", NULL};

const bp_task_kind bp_task_tags = {.name = "tags",
                                   .keys = KEYS,
                                   .at_words = true,
                                   .has_names = true,
                                   .ends = 1,
                                   .texts = "documents",
                                   .labelled = "words",
                                   .prediction = "word",
                                   .outcome = "tag",
                                   .label = "tag",
                                   .objective = &OBJECTIVE,
                                   .with_words = &WITH_WORDS,
                                   .new_head = bp_task_new_softmax};
