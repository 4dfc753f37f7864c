/* The results of a search: table.csv, summary.json, best.ini and the page. Called by search.c at
 * the end. */
#include "search/nas.h"

#include "base/buffer.h"
#include "base/config/csv.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "search/methods/ranked.h"
#include "statistics/correlation.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *const nas_result_names[] = {"table.csv", "summary.json", "best.ini", "trials.json",
                                        NULL};

/* ---- table.csv ---- */

static void add_real(bp_buffer *out, double value)
{
    if (isinf(value))
        bp_buffer_printf(out, ",diverged");
    else if (isnan(value))
        bp_buffer_printf(out, ",");
    else
        bp_buffer_printf(out, ",%.17g", value);
}

/* A column for each key of the space; without a space, one column for all settings. */
static void add_settings(bp_buffer *out, const nas *self, const nas_trial *trial)
{
    nas_point point;

    if (self->space.count == 0 || !nas_space_find(&self->space, trial->settings, &point)) {
        bp_buffer_add(out, ",", 1);
        bp_csv_add(out, trial->settings, strlen(trial->settings));
        return;
    }
    for (int a = 0; a < self->space.count; a++) {
        const char *value = self->space.axes[a].values[point.at[a]];

        bp_buffer_add(out, ",", 1);
        bp_csv_add(out, value, strlen(value));
    }
}

static bp_err write_table(const nas *self)
{
    int64_t *order = bp_alloc("search", self->count, sizeof *order);
    bp_buffer out = {0};
    char *path = nas_path(self, "table.csv"), name[NAS_NAME_BYTES];
    bp_err err;

    bp_buffer_printf(&out, "trial");
    for (int a = 0; a < self->space.count; a++)
        bp_buffer_printf(&out, ",%s", self->space.axes[a].key);
    bp_buffer_printf(&out,
                     "%s,parameters,bytes,tokens_per_second,train_flops,score,order,"
                     "final_loss\n",
                     self->space.count == 0 ? ",settings" : "");
    nas_order(self, order);
    for (int64_t i = 0; i < self->count; i++) {
        const nas_trial *trial = &self->trials[order[i]];

        nas_trial_name(order[i], name);
        bp_buffer_printf(&out, "%s", name);
        add_settings(&out, self, trial);
        bp_buffer_printf(&out, ",%" PRId64 ",%" PRId64, trial->parameters,
                         nas_bytes(trial->parameters));
        add_real(&out, trial->tokens_per_second);
        add_real(&out, trial->flops);
        add_real(&out, trial->score);
        add_real(&out, nas_key(trial));
        add_real(&out, trial->final_loss);
        bp_buffer_add(&out, "\n", 1);
    }
    err = bp_file_write(path, out.data, out.bytes);
    bp_buffer_clear(&out);
    bp_free(order);
    bp_free(path);
    return err;
}

/* ---- summary.json ---- */

/* For trials that were ordered by something other than the loss of a whole training. */
static json_t *correlation_json(const nas *self)
{
    double *x = bp_alloc("search", 2 * self->count, sizeof *x), *y = x + self->count, tau;
    int64_t n = 0;

    for (int64_t k = 0; k < self->count; k++) {
        const nas_trial *trial = &self->trials[k];

        if (!isfinite(nas_key(trial)) || !isfinite(trial->final_loss) ||
            nas_key(trial) == trial->final_loss)
            continue;
        x[n] = nas_key(trial);
        y[n++] = trial->final_loss;
    }
    tau = bp_kendall(x, y, n);
    bp_interval interval = bp_kendall_interval(tau, n);
    bp_free(x);
    return json_pack("{s:o, s:[o, o], s:I}", "kendall", bp_json_real(tau), "interval",
                     bp_json_real(interval.low), bp_json_real(interval.high), "trials",
                     (json_int_t)n);
}

static json_t *winner_json(const nas *self)
{
    int64_t best = nas_winner(self);
    char name[NAS_NAME_BYTES];

    if (best < 0)
        return json_null();
    const nas_trial *trial = &self->trials[best];
    nas_trial_name(best, name);
    return json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:o}", "trial", name, "settings",
                     trial->settings, "score", bp_json_real(trial->score), "final_loss",
                     bp_json_real(trial->final_loss), "parameters", (json_int_t)trial->parameters,
                     "bytes", (json_int_t)nas_bytes(trial->parameters), "tokens_per_second",
                     bp_json_real(trial->tokens_per_second));
}

/* FLOPs of training, scoring, and finals, except finals that were a trial's own training. */
static json_t *cost_json(const nas *self)
{
    double trials = 0, finals = 0;

    for (int64_t k = 0; k < self->count; k++) {
        trials += self->trials[k].flops;
        finals += self->trials[k].final_flops;
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "trials", bp_json_real(trials), "shared_weights",
                     bp_json_real(self->shared_flops), "scores", bp_json_real(self->score_flops),
                     "final", bp_json_real(finals), "all",
                     bp_json_real(trials + self->shared_flops + self->score_flops + finals));
}

/* What the ranking learned; null without a ranking. */
static json_t *ranker_json(const nas *self)
{
    const nas_ranker *ranker = &self->ranker;
    json_t *features = json_array();
    char name[NAS_KEY_BYTES + 8];

    for (int64_t f = 0; f < ranker->features; f++) {
        nas_feature_name(self, f, name, sizeof name);
        (void)json_array_append_new(
            features,
            json_pack("{s:s, s:b, s:o, s:o}", "name", name, "kept", (int)ranker->kept[f], "weight",
                      ranker->is_boosted ? json_null() : bp_json_real(ranker->weight[f]),
                      "importance", bp_json_real(ranker->importance[f])));
    }
    if (ranker->features == 0) {
        json_decref(features);
        return json_null();
    }
    return json_pack("{s:s, s:I, s:o, s:o}", "ranker", ranker->is_boosted ? "boosted" : "linear",
                     "pairs", (json_int_t)ranker->pairs, "accuracy", bp_json_real(ranker->accuracy),
                     "features", features);
}

static json_t *summary_json(const nas *self)
{
    return json_pack("{s:s, s:b, s:o, s:I, s:o, s:o, s:o, s:o}", "method", self->method->name,
                     "shared_weights", (int)self->is_shared, "space_models",
                     bp_json_real(nas_models(self)), "trials", (json_int_t)self->count, "winner",
                     winner_json(self), "rank_correlation", correlation_json(self), "ranking",
                     ranker_json(self), "flops", cost_json(self));
}

/* ---- best.ini ---- */

/* The winner's configuration, for any folder and any mesh: like all files of a run folder it does
 * not contain the folder's path. */
static bp_err winner_config(const nas *self, const nas_trial *winner, bp_config **out)
{
    const nas_training what = {.settings = winner->settings, .folder = ""};
    bp_err err = nas_training_config(self, &what, out);

    if (err == BP_OK)
        err = bp_config_set(*out, "run.dir", "");
    if (err == BP_OK)
        err = bp_config_set_int(*out, "mesh.data", 0);
    if (err == BP_OK)
        err = bp_config_set(*out, "mesh.coordinator", "auto");
    if (err != BP_OK)
        bp_config_free(out);
    return err;
}

static bp_err write_best(const nas *self)
{
    int64_t best = nas_winner(self);
    char *path, *text = NULL;
    bp_config *config = NULL;
    bp_err err;

    if (best < 0)
        return BP_FAIL(BP_ERR_SOFTWARE, "search.no_winner",
                       "all %" PRId64 " trials diverged: at search.trials; use a smaller "
                       "optimizer.lr or a longer optimizer.warmup",
                       self->count);
    path = nas_path(self, "best.ini");
    err = winner_config(self, &self->trials[best], &config);
    if (err == BP_OK) {
        text = bp_config_text(config);
        err = text ? bp_file_write(path, text, strlen(text)) : bp_fail_memory("best.ini", 1, 1);
    }
    bp_config_free(&config);
    bp_free(text);
    bp_free(path);
    return err;
}

static void say(const nas *self)
{
    const nas_trial *trial = &self->trials[nas_winner(self)];

    bp_log("the best of %" PRId64 " trials: %s", self->count, trial->settings);
    bp_log("its validation loss is %.4f nats a token%s; %" PRId64 " parameters",
           isfinite(trial->final_loss) ? trial->final_loss : trial->score,
           isfinite(trial->final_loss) ? ", trained from scratch" : " in the search",
           trial->parameters);
}

bp_err nas_write_results(nas *self)
{
    json_t *summary = summary_json(self);
    char *path = nas_path(self, "summary.json");
    bp_err err = write_table(self);

    if (err == BP_OK)
        err = write_best(self);
    if (err == BP_OK)
        err = bp_json_save(path, summary);
    if (err == BP_OK)
        nas_write_page(self, summary);
    if (err == BP_OK)
        say(self);
    json_decref(summary);
    bp_free(path);
    return err;
}
