/* Classes: each text is one of them. */
#include "models/task/examples.h"
#include "models/task/heads.h"
#include "models/task/list.h"

static void make(const bp_example_maker *self, const bp_document *document, int64_t step,
                 int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    bool left_out = rules->outside > 0 && document->label == rules->outside && step == 0;

    (void)slot;
    bp_task_fill_example(self, document, out);
    out->targets[0][0] = left_out ? -1 : document->label; /* validation knows only classes */
}

static bp_example_maker maker(const bp_model_shape *shape, int64_t T, const bp_example_rules *rules)
{
    bp_example_maker out = bp_task_maker(shape, T, rules);

    out.make_document = make;
    return out;
}

static const bp_objective OBJECTIVE = {
    .name = "classes", .terms = 1, .weight = {1}, .maker = maker};

static const bp_objective WITH_WORDS = {
    .name = "classes", .terms = 2, .weight = {1}, .term = {"classes", "words"}, .maker = maker};

static const char *const KEYS[] = {"task.label",          "task.labels",
                                   "task.pool",           "task.frozen_layers",
                                   "task.lm_weight",      "dirichlet.outside",
                                   "dirichlet.precision", "dirichlet.smoothing",
                                   "sngp.features",       "sngp.length_scale",
                                   "sngp.prior",          "sngp.bound",
                                   "sngp.bounded",        NULL};

const bp_task_kind bp_task_classes = {.name = "classes",
                                      .keys = KEYS,
                                      .whole_text = true,
                                      .has_names = true,
                                      .ends = 1,
                                      .texts = "documents",
                                      .labelled = "documents",
                                      .prediction = "document",
                                      .outcome = "class",
                                      .label = "label",
                                      .objective = &OBJECTIVE,
                                      .with_words = &WITH_WORDS,
                                      .new_head = bp_task_new_softmax,
                                      .of_one =
                                          &bp_task_regression /* as Hugging Face marks a value */};
