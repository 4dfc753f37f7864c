/* Regression: a number for each text. */
#include "models/task/examples.h"
#include "models/task/heads.h"
#include "models/task/list.h"

static void make(const bp_example_maker *self, const bp_document *document, int64_t step,
                 int64_t slot, bp_example *out)
{
    (void)step, (void)slot;
    bp_task_fill_example(self, document, out);
    out->targets[0][0] = bp_target_of_value(document->value);
}

static bp_example_maker maker(const bp_model_shape *shape, int64_t T, const bp_example_rules *rules)
{
    bp_example_maker out = bp_task_maker(shape, T, rules);

    out.make_document = make;
    return out;
}

static const bp_objective OBJECTIVE = {
    .name = "regression", .terms = 1, .weight = {1}, .maker = maker};

static const bp_objective WITH_WORDS = {.name = "regression",
                                        .terms = 2,
                                        .weight = {1},
                                        .term = {"regression", "words"},
                                        .maker = maker};

static bp_block *new_head(bp_network *network, const bp_model_shape *shape)
{
    return bp_task_new_text_head(network, shape, false);
}

static const char *const KEYS[] = {"task.label", "task.pool", "task.frozen_layers",
                                   "task.lm_weight", NULL};

const bp_task_kind bp_task_regression = {.name = "regression",
                                         .keys = KEYS,
                                         .whole_text = true,
                                         .is_value = true,
                                         .ends = 1,
                                         .texts = "documents",
                                         .labelled = "documents",
                                         .prediction = "document",
                                         .label = "label",
                                         .objective = &OBJECTIVE,
                                         .with_words = &WITH_WORDS,
                                         .new_head = new_head};
