/* Chooses the prediction of a text to explain by replaced tokens. Called by
 * methods/counterfactual.c. */
#include "explain/perturbation/edits.h"

#include "base/mem.h"

#include <math.h>

/* Values of a whole text from one pass: ln p of each target at its place. For tags, where a place
 * may have several targets, ln p of the preferred tag. */
typedef struct whole {
    int32_t *targets, source_length;
    bp_model_batch batch;
    float *values; /* [T] */
    float *log_p;  /* [rows][columns] for tags; else NULL */
    int64_t rows, columns;
} whole;

static void take_largest(whole *self, int64_t T)
{
    for (int64_t t = 0, row = 0; t < T; t++) {
        const float *log_p = self->log_p + row * self->columns;

        if (self->targets[t] < 0)
            continue;
        self->values[t] = log_p[0];
        for (int64_t v = 1; v < self->columns; v++)
            self->values[t] = fmaxf(self->values[t], log_p[v]);
        row++;
    }
}

bp_err explain_edit_target(int64_t *k, bp_model *model, const bp_explain_settings *settings,
                           const bp_explained *document)
{
    const bp_task_shape *task = &settings->info->task;
    bool tags = bp_task_has_head(task) && bp_task_kind_of(task)->at_words;
    whole self = {.targets = bp_alloc("explain.edits", document->T, sizeof *self.targets),
                  .values = bp_alloc("explain.edits", document->T, sizeof *self.values)};
    bp_err err;

    self.batch = bp_explain_whole(document, self.targets, &self.source_length);
    self.rows = bp_model_batch_rows(&self.batch);
    self.columns = bp_model_columns(settings->info, document->T);
    self.log_p = bp_try_alloc("explain.edits", tags ? self.rows * self.columns : 0, sizeof(float));
    err = bp_agree(settings->group, !tags || self.log_p
                                        ? BP_OK
                                        : bp_fail_memory("probabilities of tags",
                                                         self.rows * self.columns, sizeof(float)));
    if (err == BP_OK)
        err = tags ? bp_model_distribution(model, &self.batch, self.log_p, NULL)
                   : bp_model_score(model, &self.batch, self.values);
    if (err == BP_OK && tags)
        take_largest(&self, document->T);
    *k = 0;
    for (int64_t j = 1; j < document->K && err == BP_OK; j++)
        if (self.values[document->positions[j]] < self.values[document->positions[*k]])
            *k = j;
    bp_free(self.log_p);
    bp_free(self.values);
    bp_free(self.targets);
    return err;
}
