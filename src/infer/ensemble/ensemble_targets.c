/* The true outcomes of a batch among the mixture's, for the thresholds of conformal sets. Called by
 * the comparison of methods (src/uncertainty). */
#include "infer/ensemble/ensemble_priv.h"

#include "mesh/collective.h"

static bp_err find_part(ensemble *self, const bp_model_batch *part, bp_conformal_target *targets)
{
    ensemble_work work;
    bp_err err = ensemble_prepare(self, &work, part, false);

    if (err == BP_OK)
        err = ensemble_run_backbones(self, &work, part);
    if (err != BP_OK)
        return err;
    for (int64_t first = 0; ensemble_is_last(self) && first < work.rows; first += work.chunk) {
        int64_t rows = first + work.chunk < work.rows ? work.chunk : work.rows - first;

        ensemble_mix(self, &work, first, rows);
        bp_mixture in = ensemble_mixture(self, &work, first, rows);
        ensemble_find_sets(self, &work, &in);
        for (int64_t r = 0; r < rows; r++)
            targets[first + r] = work.set_rows[r].target;
    }
    return BP_OK;
}

bp_err bp_ensemble_targets(bp_model *model, const bp_model_batch *batch,
                           bp_conformal_target *targets)
{
    ensemble *self = (ensemble *)model;
    int64_t rows = 0;
    bp_model_batch part;
    bp_err err = BP_OK;

    BP_ASSERT(model->info.sets);
    for (int64_t first = 0; first < batch->windows && err == BP_OK; first += part.windows) {
        ensemble_take_part(self, batch, first, &part);
        err = find_part(self, &part, targets + rows);
        rows += bp_model_batch_rows(&part);
    }
    if (err == BP_OK)
        bp_bcast_bytes(targets, rows * (int64_t)sizeof *targets, self->mesh->pipeline_ranks - 1,
                       self->mesh->pipeline);
    return err;
}
