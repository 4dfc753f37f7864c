/* What the losses of trainings are, in words for their page and plots. Called by training.c. */
#include "job/report/training_losses.h"

#include "models/task/kind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct losses {
    const char *unit; /* of all log-likelihoods: "a token"; "" if runs differ, or have none */
    bool likelihood, squared; /* some run has a log-likelihood, a squared error; */
    bool of_words;            /* labels of words */
} losses;

/* NULL: the loss of a language model. */
static const bp_task_kind *kind_of(const bp_history *run)
{
    const char *name = bp_history_key(run, "task.kind");
    const bp_task_kind *kind = name && name[0] ? bp_task_kind_named(name) : NULL;

    return kind && kind->objective ? kind : NULL;
}

static losses losses_of(const bp_history *runs, int64_t count)
{
    losses out = {.unit = NULL};

    for (int64_t r = 0; r < count; r++) {
        const bp_task_kind *kind = kind_of(&runs[r]);
        const char *unit = !kind                  ? "a token"
                           : kind->over_positions ? "an end of an answer"
                           : kind->at_words       ? "a word"
                                                  : "a document";

        out.of_words = out.of_words || (kind && kind->at_words);
        out.squared = out.squared || (kind && kind->is_value);
        if (kind && kind->is_value)
            continue;
        out.likelihood = true;
        out.unit = out.unit && strcmp(out.unit, unit) != 0 ? "" : unit;
    }
    out.unit = out.unit ? out.unit : "";
    return out;
}

const char *report_loss_axis(char *axis, const bp_history *runs, int64_t count)
{
    const losses of = losses_of(runs, count);

    if (!of.likelihood)
        return "loss, mean squared error";
    if (of.squared || of.unit[0] == '\0')
        return "loss";
    (void)snprintf(axis, REPORT_AXIS_BYTES, "loss, nats %s", of.unit);
    return axis;
}

static bool is_smoothed(const bp_history *run)
{
    const char *value = bp_history_key(run, "train.label_smoothing");

    return value && strtod(value, NULL) > 0;
}

void report_describe_losses(json_t *page, const bp_history *runs, int64_t count)
{
    const losses of = losses_of(runs, count);
    bool members = false, smoothed = false;

    for (int64_t r = 0; r < count; r++) {
        members = members || runs[r].curve_count > 1;
        smoothed = smoothed || is_smoothed(&runs[r]);
    }
    (void)json_object_set_new(page, "unit", of.unit[0] ? json_string(of.unit) : json_null());
    (void)json_object_set_new(page, "likelihood", json_boolean(of.likelihood));
    (void)json_object_set_new(page, "squared", json_boolean(of.squared));
    (void)json_object_set_new(page, "both", json_boolean(of.squared && of.likelihood));
    (void)json_object_set_new(page, "of_words", json_boolean(of.of_words));
    (void)json_object_set_new(page, "of_members", json_boolean(members));
    (void)json_object_set_new(page, "one_ensemble", json_boolean(members && count == 1));
    (void)json_object_set_new(page, "smoothing", json_boolean(smoothed));
}
