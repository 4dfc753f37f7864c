/* Trainings of a search: runs of `pretrain` in folders below the search's. Called by methods and by
 * finals.c. */
#include "search/nas.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "run/status/run_history.h"
#include "train/loop/pretrain.h"
#include "train/parts/list.h"

#include <math.h>

static bp_err set_steps(bp_config *config, int64_t steps)
{
    bp_err err = BP_OK;

    if (steps == 0)
        return BP_OK;
    if (bp_config_is_set(config, "train.epochs"))
        err = bp_config_set(config, "train.epochs", "");
    return err == BP_OK ? bp_config_set_int(config, "train.steps", steps) : err;
}

bp_err nas_training_config(const nas *self, const nas_training *what, bp_config **out)
{
    const bp_option *const *tables = what->with_search ? self->jobs->search : self->jobs->pretrain;
    char *folder = nas_path(self, what->folder);
    bp_err err = bp_config_derive(out, self->config, tables, tables);

    if (err == BP_OK)
        err = bp_config_set(*out, "run.dir", folder);
    if (err == BP_OK)
        err = bp_config_set_int(*out, "mesh.members", 1);
    if (err == BP_OK) /* within a group the first rank computes and coordinates */
        err = bp_config_set(*out, "mesh.coordinator", "shared");
    if (err == BP_OK)
        err = set_steps(*out, what->steps);
    if (err == BP_OK)
        err = nas_settings_set(*out, what->settings);
    if (err != BP_OK)
        bp_config_free(out);
    bp_free(folder);
    return err;
}

bp_err nas_shape(const nas *self, const char *settings, bp_model_shape *out)
{
    const nas_training what = {.settings = settings, .folder = ""};
    bp_config *config = NULL;
    bp_err err = nas_training_config(self, &what, &config);

    if (err != BP_OK)
        return err;
    *out = bp_model_shape_of(config, NULL);
    out->vocab_size = self->vocab_size;
    bp_model_shape_check(out, self->shape.tensor, self->shape.pipeline, config);
    err = bp_config_faults(config);
    bp_config_free(&config);
    return err;
}

/* The job around it writes the page. */
static bp_err on_started(void *context, int64_t step)
{
    (void)context;
    (void)step;
    return BP_OK;
}

static bp_err read_loss(const char *folder, double *loss, double *tokens)
{
    bp_history history;
    bp_err err = bp_history_read(&history, folder);
    const bp_curve *curve = err == BP_OK && history.curve_count > 0 ? &history.curves[0] : NULL;

    *loss = NAN;
    for (int64_t k = 0; curve && k < curve->count; k++) {
        const double *row = curve->rows[k];

        if (isfinite(row[BP_HISTORY_VALID_LOSS]))
            *loss = row[BP_HISTORY_VALID_LOSS];
        *tokens = row[BP_HISTORY_TOKENS];
    }
    bp_history_clear(&history);
    if (err == BP_OK && isnan(*loss))
        err = BP_FAIL(BP_ERR_FORMAT, "search.no_loss",
                      "the training has no validation loss: at %s/metrics.jsonl; remove that "
                      "folder, and it trains again",
                      folder);
    return err;
}

bp_err nas_train(nas *self, MPI_Comm group, const nas_training *what, double *loss, double *flops)
{
    const bp_pretrain_hooks hooks = {.started = on_started};
    bp_config *config = NULL;
    bp_model_shape shape;
    double found[2] = {INFINITY, 0};
    bp_err err = nas_shape(self, what->settings, &shape);

    if (err == BP_OK)
        err = nas_training_config(self, what, &config);
    err = bp_agree(group, err);
    if (err == BP_OK)
        err = bp_pretrain(group, config, bp_training_parts, &hooks);
    if (err == BP_ERR_SOFTWARE) { /* it diverged: no winner */
        bp_warn_failure("%s", bp_err_text());
        err = BP_OK;
    } else if (err == BP_OK) {
        if (bp_comm_is_root(group))
            err = read_loss(bp_run_keys_of(config)->dir, &found[0], &found[1]);
        err = bp_agree(group, err);
    }
    bp_bcast_bytes(found, sizeof found, 0, group);
    if (err == BP_OK) { /* of a training that was stopped nothing is known */
        *loss = found[0];
        *flops = found[1] * bp_model_train_flops(&shape);
    }
    bp_config_free(&config);
    return err;
}
