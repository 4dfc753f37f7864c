/* The trials of a search: their list, their results saved against kills, and how they are dealt to
 * groups of ranks. Called by methods and by finals.c. */
#include "search/nas.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)1 << 28)

/* ---- saved results ---- */

/* Infinity, of a training that diverged, is "diverged". */
static json_t *loss_json(double loss)
{
    return isinf(loss) ? json_string("diverged") : bp_json_real(loss);
}

static double loss_of(const json_t *trial, const char *key)
{
    const json_t *value = json_object_get(trial, key);

    return json_is_string(value)   ? INFINITY
           : json_is_number(value) ? json_number_value(value)
                                   : NAN;
}

static bool is_known(const json_t *known)
{
    const json_t *trials = json_object_get(known, "trials");

    for (size_t k = 0; k < json_array_size(trials); k++)
        if (!json_is_string(json_object_get(json_array_get(trials, k), "settings")))
            return false;
    return json_is_array(trials) && json_is_object(json_object_get(known, "speeds"));
}

static bp_err read_known(json_t **known, const char *path)
{
    bp_err err = bp_json_load_plain(known, path, FILE_LIMIT);

    if (err != BP_OK || is_known(*known))
        return err;
    return BP_FAIL(BP_ERR_FORMAT, "search.damaged",
                   "it has no list of trials with their settings, so the file is damaged: at %s; "
                   "remove it, and trials are read from their runs",
                   path);
}

bp_err nas_recall(nas *self)
{
    char *path = nas_path(self, "trials.json"), *text = NULL;
    json_t *known = NULL;
    bp_err err = BP_OK;

    if (self->mesh->coordinates && bp_path_exists(path))
        err = read_known(&known, path);
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK) {
        text = known ? bp_json_line(known) : NULL;
        bp_bcast_text(&text, 0, self->mesh->world);
    }
    json_decref(known);
    known = NULL;
    if (err == BP_OK && text)
        err = bp_json_parse(&known, text, strlen(text), path);
    self->known = known ? json_incref(json_object_get(known, "trials")) : json_array();
    self->speeds = known ? json_incref(json_object_get(known, "speeds")) : json_object();
    json_decref(known);
    bp_free(text);
    bp_free(path);
    return bp_agree(self->mesh->world, err);
}

static json_t *trial_json(const nas_trial *trial)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "settings", trial->settings, "score",
                     loss_json(trial->score), "flops", bp_json_real(trial->flops), "final_loss",
                     loss_json(trial->final_loss), "final_flops", bp_json_real(trial->final_flops));
}

/* Keeps results of later trials from earlier starts. */
bp_err nas_keep(nas *self)
{
    char *path = nas_path(self, "trials.json");
    json_t *file;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < self->count; k++) {
        json_t *trial = trial_json(&self->trials[k]);

        if ((size_t)k < json_array_size(self->known))
            (void)json_array_set_new(self->known, (size_t)k, trial);
        else
            (void)json_array_append_new(self->known, trial);
    }
    file = json_pack("{s:O, s:O}", "trials", self->known, "speeds", self->speeds);
    if (self->mesh->coordinates)
        err = bp_json_save(path, file);
    json_decref(file);
    bp_free(path);
    return bp_agree(self->mesh->world, err);
}

/* The message remains that of the stop. */
bp_err nas_keep_after(nas *self, bp_err err)
{
    char message[BP_ERR_MESSAGE_BYTES];

    if (err == BP_OK)
        return nas_keep(self);
    if (err == BP_ERR_STOPPED) {
        snprintf(message, sizeof message, "%s", bp_err_message());
        (void)nas_keep(self);
        bp_err_set_message(message);
    }
    return err;
}

/* ---- trials ---- */

bp_err nas_propose(nas *self, const char *settings)
{
    const json_t *before = json_array_get(self->known, (size_t)self->count),
                 *speed = json_object_get(self->speeds, settings);
    const char *known = json_string_value(json_object_get(before, "settings"));
    bp_model_shape shape;
    nas_trial trial = {.score = loss_of(before, "score"),
                       .final_loss = loss_of(before, "final_loss"),
                       .order = NAN,
                       .flops = json_number_value(json_object_get(before, "flops")),
                       .final_flops = json_number_value(json_object_get(before, "final_flops")),
                       .tokens_per_second = speed ? json_number_value(speed) : NAN};
    bp_err err = nas_shape(self, settings, &shape);

    if (err != BP_OK)
        return err;
    if (known && strcmp(known, settings) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "search.other_trial",
                       "trial %" PRId64 " was %s in an earlier start, and is %s now: at "
                       "%s/search/trials.json; use another run.dir",
                       self->count, known, settings, bp_run_keys_of(self->config)->dir);
    BP_ASSERT(strlen(settings) < sizeof trial.settings);
    snprintf(trial.settings, sizeof trial.settings, "%s", settings);
    trial.parameters = bp_model_parameters(&shape);
    self->trials = bp_grow("search", self->trials, &self->capacity, self->count + 1, sizeof trial);
    self->trials[self->count++] = trial;
    return BP_OK;
}

/* Ties go by the better score, then by number; trials without a score come last. */
static bool is_better(const nas_trial *one, const nas_trial *other)
{
    double a = nas_key(one), b = nas_key(other);

    if (isnan(a) || isnan(b))
        return !isnan(a) && isnan(b);
    return a < b || (a == b && one->score < other->score);
}

void nas_order(const nas *self, int64_t *order)
{
    for (int64_t k = 0; k < self->count; k++) {
        int64_t at = k;

        for (; at > 0 && is_better(&self->trials[k], &self->trials[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
}

/* ---- groups ---- */

/* The rank of the world that leads the group of the i-th trial of a list. */
static int lead_of(const nas *self, int64_t i)
{
    return self->mesh->dedicated + (int)(i % self->shape.members) * self->mesh->tensor_ranks;
}

static void say_progress(nas *self)
{
    json_t *members = json_pack("{s:I, s:s}", "trials_done", (json_int_t)self->done, "doing",
                                self->doing ? self->doing : "");

    bp_run_progress(self->run, members);
    json_decref(members);
}

void nas_begin(nas *self, const char *doing)
{
    self->doing = doing;
    if (self->mesh->coordinates)
        say_progress(self);
}

static void say_trial(nas *self, int64_t k)
{
    const nas_trial *trial = &self->trials[k];
    char name[NAS_NAME_BYTES];

    self->done++;
    nas_trial_name(k, name);
    if (isnan(trial->final_loss))
        bp_log("%s: %.4f nats a token: %s", name, trial->score, trial->settings);
    else
        bp_log("%s: %.4f nats a token, from scratch: %s", name, trial->final_loss, trial->settings);
    say_progress(self);
}

static bp_err work_on(nas *self, int64_t k, nas_trial *io, nas_scorer work, void *context)
{
    char name[NAS_NAME_BYTES];
    MPI_Comm group = self->mesh->tensor;
    bp_err err;

    nas_trial_name(k, name);
    bp_log_set_member(name, bp_comm_is_root(group));
    (void)bp_log_use(BP_LOG_MEMBER);
    err = work(self, group, k, io, context);
    (void)bp_log_use(BP_LOG_JOB);
    return err == BP_OK || err == BP_ERR_STOPPED ? err : bp_err_prefix(err, "%s", name);
}

/* Does this group's share. Leads of other groups also check for stop requests. */
static bp_err work_on_own(nas *self, const int64_t *list, int64_t count, nas_scorer work,
                          void *context)
{
    const char *run_dir = bp_run_keys_of(self->config)->dir;
    bool looks = bp_comm_is_root(self->mesh->tensor) && !self->mesh->coordinates;
    bp_stop_request *stop_request = looks ? bp_stop_request_new(run_dir, self->config) : NULL;
    bp_err err = BP_OK;

    for (int64_t i = self->mesh->data_rank; i < count && err == BP_OK; i += self->shape.members) {
        nas_trial *trial = &self->trials[list[i]];

        err = work_on(self, list[i], trial, work, context);
        if (err == BP_OK && self->mesh->coordinates)
            say_trial(self, list[i]);
    }
    bp_stop_request_free(&stop_request);
    return err;
}

bp_err nas_deal(nas *self, const int64_t *list, int64_t count, nas_scorer work, void *context)
{
    const bp_mesh *mesh = self->mesh;
    bp_err err = BP_OK;

    if (count == 0)
        return BP_OK;
    if (mesh->computes)
        err = work_on_own(self, list, count, work, context);
    bp_barrier_asleep("barrier", mesh->world); /* cores are for ranks that still train */
    for (int64_t i = 0; i < count; i++)
        bp_bcast_bytes(&self->trials[list[i]], sizeof *self->trials, lead_of(self, i), mesh->world);
    err = bp_agree(mesh->world, err);
    return nas_keep_after(self, err);
}

bp_err nas_score(nas *self, int64_t first, int64_t count, nas_scorer score, void *context)
{
    int64_t *list = bp_alloc("search", count, sizeof *list), left = 0;
    bp_err err;

    for (int64_t k = first; k < first + count; k++)
        if (self->trials[k].score != self->trials[k].score)
            list[left++] = k;
    if (left > 0)
        nas_begin(self, "training trials (search/trials)");
    err = nas_deal(self, list, left, score, context);
    bp_free(list);
    return err;
}
