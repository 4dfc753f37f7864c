/* A job from end to end, and its --plan. */
#include "job/work_priv.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "job/report/report.h"
#include "mesh/collective.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PAGE "index.html"

/* ---- files ---- */

static bool is_written(const bp_work_job *job, const char *file)
{
    return !job->work->writes || job->work->writes(job->self, file);
}

/* The work's file k, index.html last; "" if it is not written; NULL after the last. */
static const char *file_at(const bp_work_job *job, int k)
{
    const bp_work *work = job->work;
    int count = 0;

    while (work->files && work->files[count])
        count++;
    if (k < count)
        return is_written(job, work->files[k]) ? work->files[k] : "";
    return k == count && work->page && !job->no_page && bp_report_has_page(work->page) &&
                   is_written(job, PAGE)
               ? PAGE
               : NULL;
}

static const char *find_missing(const void *context)
{
    const bp_work_job *job = context;
    const char *file, *missing = NULL;

    for (int k = 0; !missing && (file = file_at(job, k)); k++)
        if (file[0] != '\0')
            missing = bp_run_first_missing(job->folder, &file, 1);
    return missing || !job->work->missing ? missing : job->work->missing(job->self, job->folder);
}

static void record_files(const bp_work_job *job)
{
    bp_buffer names = {0};
    const char *file;

    for (int k = 0; (file = file_at(job, k)); k++)
        if (file[0] != '\0') {
            bp_buffer_printf(&names, "%s%s", names.bytes > 0 ? ", " : "", file);
            bp_run_add_result(job->run, bp_path_in(job->work->name, file).text);
        }
    if (names.bytes > 0)
        bp_log("in %s: %s", job->folder, names.data);
    bp_buffer_clear(&names);
}

void bp_work_write_page(bp_work_job *job, const char *name, json_t *page, bp_err err)
{
    job->no_page = !bp_work_write_page_at(job, PAGE, name, page, err);
}

bool bp_work_write_page_at(const bp_work_job *job, const char *file, const char *name, json_t *page,
                           bp_err err)
{
    char *path = bp_path_join(job->folder, file);

    bp_report_about(page, bp_run_keys_of(job->config)->dir);
    if (err == BP_OK)
        err = bp_report_page(path, name, page);
    if (err != BP_OK)
        bp_warn_failure("the page of the %s was not written: %s", job->work->results,
                        bp_err_text());
    json_decref(page);
    bp_free(path);
    return err == BP_OK;
}

/* ---- the run folder ---- */

void bp_work_key(char key[BP_SHA256_HEX], const char *format, ...)
{
    va_list values;

    va_start(values, format);
    char *text = bp_vsprintf(format, values);
    va_end(values);
    bp_sha256_of(text, strlen(text), key);
    bp_free(text);
}

bool bp_work_keeps_bits(const bp_config *config, const char *key, const char *before,
                        const char *now)
{
    (void)config, (void)before, (void)now;
    return strncmp(key, "mesh.", strlen("mesh.")) == 0 && strcmp(key, "mesh.members") != 0 &&
           strcmp(key, "mesh.pipeline") != 0 && strcmp(key, "mesh.tensor") != 0;
}

static bp_err open_run(bp_work_job *job)
{
    const bp_work *work = job->work;
    const char *other_bits[BP_WORK_CHANGES] = {"mesh.*", "math.threads"};
    char model[128]; /* an ensemble of one returns more statistics than its model */
    bp_run_identity identities[BP_WORK_IDENTITIES] = {{work->model_key, model}};
    bp_run_spec spec = {.job = work->name,
                        .other_bits = other_bits,
                        .keeps_bits = bp_work_keeps_bits,
                        .identities = identities,
                        .missing = find_missing,
                        .context = job};

    for (int k = 0; work->other_bits && work->other_bits[k]; k++) {
        BP_ASSERT(k + 3 < BP_WORK_CHANGES); /* two of all jobs, and the end */
        other_bits[k + 2] = work->other_bits[k];
    }
    if (job->info.members > 0)
        snprintf(model, sizeof model, "%s, an ensemble of %" PRId64, job->info.digest,
                 job->info.members);
    else
        snprintf(model, sizeof model, "%s", job->info.digest);
    if (work->identify)
        work->identify(job->self, identities + (work->model_key != NULL));
    return bp_run_open(&job->run, job->mesh, job->config, &spec);
}

static bp_err log_start(const bp_work_job *job)
{
    json_t *members = job->work->started ? job->work->started(job->self) : NULL;
    bp_err err =
        bp_run_event(job->run, bp_run_is_resumed(job->run) ? "resumed" : "started", members);

    json_decref(members);
    return err;
}

/* Units, then their files. */
static bp_err run(bp_work_job *job)
{
    const bp_work *work = job->work;
    const bp_mesh *mesh = job->mesh;
    const bp_work_units *units;

    bp_run_take_changes(job->run);
    if (mesh->coordinates && work->say)
        work->say(job->self);
    bp_err err = bp_agree(mesh->world, mesh->coordinates ? log_start(job) : BP_OK);
    for (int k = 0; err == BP_OK && (units = work_units_at(job, k)); k++)
        err = bp_work_do_units(job, units);
    for (int k = 0; err == BP_OK && (units = work_units_at(job, k)); k++)
        err = bp_work_merge(job, units);
    if (err == BP_OK && mesh->coordinates && work->report)
        work->report(job->self);
    if (err == BP_OK && mesh->coordinates)
        record_files(job);
    return err;
}

/* Parts are removed once the folder is "finished": if they were removed earlier, a start in between
 * would find neither. */
static bp_err remove_parts(const bp_work_job *job)
{
    const bp_work_units *units;
    bp_err err = BP_OK;

    for (int k = 0; err == BP_OK && (units = work_units_at(job, k)); k++) {
        char *folder = work_parts_folder(job, units);

        if (job->mesh->coordinates)
            err = bp_dir_remove(folder);
        bp_free(folder);
    }
    return bp_agree(job->mesh->world, err);
}

static bp_err do_job(bp_work_job *job, MPI_Comm world)
{
    bp_work_memory memory;
    bp_err err = work_open_mesh(job, &memory, world, NULL);
    bool has_work = false;

    /* if the run is finished, or held by another job, opening it decides */
    if (err == BP_OK)
        has_work = bp_run_has_work(world, bp_run_keys_of(job->config)->dir);
    if (has_work)
        err = bp_work_memory_check(world, &job->mesh_shape, &memory, NULL);
    if (err == BP_OK)
        err = work_open_model(job);
    if (err == BP_OK)
        err = open_run(job);
    if (err == BP_OK) {
        bool finished = bp_run_is_finished(job->run);

        if (!finished && !has_work) /* not checked above, and yet there is work */
            err = bp_work_memory_check(world, &job->mesh_shape, &memory, NULL);
        if (finished)
            bp_log("the run is finished: the %s are in %s", job->work->results, job->folder);
        else if (err == BP_OK)
            err = run(job);
        err = bp_run_end(job->run, err);
        if (err == BP_OK)
            err = remove_parts(job);
        err = bp_run_close(&job->run, err);
    }
    work_close(job);
    return err;
}

/* ---- --plan ---- */

static void print_mesh(const bp_work_job *job)
{
    const bp_mesh_shape *shape = &job->mesh_shape;
    char members[32] = "";

    if (job->ensemble)
        snprintf(members, sizeof members, "members %d x ", shape->members);
    bp_log("mesh: %spipeline %d x data %d x tensor %d%s", members, shape->pipeline, shape->data,
           shape->tensor,
           shape->coordinator == BP_COORDINATOR_DEDICATED ? ", and a coordinator" : "");
}

bp_err bp_work_time_unit(bp_work_job *job, int64_t unit, double *seconds)
{
    const bp_work_units *units = work_units_at(job, 0);
    bp_buffer result = {0};
    bool stopped = false;
    bp_err err = bp_agree(job->mesh->compute, units->prepare ? units->prepare(job->self) : BP_OK);
    double began = bp_clock_now();

    if (err == BP_OK)
        err = work_run_unit(job, units, unit, job->leads ? &result : NULL, &stopped);
    *seconds = bp_clock_now() - began;
    if (err == BP_OK && stopped)
        err = bp_stop_request_stopped("while it estimated");
    if (units->release)
        units->release(job->self);
    bp_buffer_clear(&result);
    return err;
}

void bp_work_print_time(const bp_work_job *job, double seconds)
{
    int64_t units = work_units_at(job, 0)->count, data = job->mesh_shape.data;
    char duration[64];

    bp_clock_duration(duration, sizeof duration, seconds * (double)((units + data - 1) / data));
    bp_log("time: about %s at %.3g s a work unit on each of %" PRId64 " %s", duration, seconds,
           data, job->work->open_model ? "model copies" : "ranks");
}

/* With the model open: memory and time of the work. */
static bp_err measure(bp_work_job *job)
{
    const bp_work *work = job->work;
    MPI_Comm world = job->mesh->world;
    double figures[BP_WORK_FIGURES] = {0};
    bp_err err = work_open_model(job);

    if (err != BP_OK)
        return err;
    if (job->mesh->computes)
        err = work->measure ? work->measure(job->self, figures)
                            : bp_work_time_unit(job, 0, &figures[0]);
    err = bp_agree(world, err);
    int64_t bytes = bp_all_max_int((int64_t)bp_mem_peak_bytes(), world);
    bp_bcast_bytes(figures, sizeof figures, bp_comm_size(world) - 1, world);
    if (err == BP_OK && job->mesh->coordinates) {
        if (work->say)
            work->say(job->self);
        if (work->print) {
            work->print(job->self, figures, bytes);
        } else {
            bp_log("memory: %.1f MiB on a rank", (double)bytes / 1048576);
            bp_work_print_time(job, figures[0]);
        }
    }
    return err;
}

static bp_err estimate(bp_work_job *job, MPI_Comm world, const bp_planned_world *plan)
{
    bp_work_memory memory;
    bool fits_here = true;
    bp_err err = work_open_mesh(job, &memory, world, plan);

    if (err == BP_OK && job->mesh->coordinates)
        print_mesh(job);
    if (err == BP_OK)
        err = bp_work_memory_check(world, &job->mesh_shape, &memory, &fits_here);
    if (err == BP_OK && fits_here)
        err = measure(job);
    else if (err == BP_OK)
        bp_log("time: not measured, since the model does not fit into one process");
    work_close(job);
    return err;
}

bp_err bp_work_run(bp_work_job *job, MPI_Comm world, const bp_planned_world *plan)
{
    return plan ? estimate(job, world, plan) : do_job(job, world);
}

bp_err bp_work_start(const bp_work *work, MPI_Comm world, bp_config *config,
                     const bp_planned_world *plan)
{
    bp_work_job **self = bp_alloc("job.self", 1, work->self_bytes);
    bp_work_job job = {.work = work, .self = self, .config = config};
    bp_err err;

    *self = &job;
    err = bp_work_run(&job, world, plan);
    bp_free(self);
    return err;
}
