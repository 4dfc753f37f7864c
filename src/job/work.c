/* A job from end to end, and its --plan. */
#include "job/work_priv.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <stdio.h>

static const char *find_missing(const void *context)
{
    const bp_work_job *job = context;

    return job->work->missing(job->self);
}

static bp_err open_run(bp_work_job *job)
{
    const bp_work *work = job->work;
    char model[128]; /* an ensemble of one returns more statistics than its model */
    bp_run_identity identities[BP_WORK_IDENTITIES] = {{NULL, NULL}};
    bp_run_spec spec = {.job = work->name,
                        .may_change = work->may_change,
                        .other_bits = work->other_bits,
                        .keeps_bits = work->keeps_bits,
                        .identities = identities,
                        .missing = find_missing,
                        .context = job};

    if (job->info.members > 0)
        snprintf(model, sizeof model, "%s, an ensemble of %" PRId64, job->info.digest,
                 job->info.members);
    else
        snprintf(model, sizeof model, "%s", job->info.digest);
    work->identify(job->self, model, identities);
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
    for (int k = 0; err == BP_OK && (units = work->units(job->self, k)); k++)
        err = bp_work_do_units(job, units);
    for (int k = 0; err == BP_OK && (units = work->units(job->self, k)); k++)
        err = bp_work_merge(job, units);
    if (err == BP_OK && mesh->coordinates && work->report)
        work->report(job->self);
    return err;
}

/* Parts go when the folder says "finished": not before, or a start in between would find
 * neither. */
static bp_err remove_parts(const bp_work_job *job)
{
    const bp_work_units *units;
    bp_err err = BP_OK;

    for (int k = 0; err == BP_OK && (units = job->work->units(job->self, k)); k++) {
        char *folder = bp_path_join(job->folder, units->parts);

        if (job->mesh->coordinates)
            err = bp_dir_remove(folder);
        bp_free(folder);
    }
    return bp_agree(job->mesh->world, err);
}

bp_err bp_work_run(bp_work_job *job, MPI_Comm world)
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
        bp_err closed = bp_run_close(&job->run, err);
        err = err != BP_OK ? err : closed;
    }
    if (err == BP_OK)
        err = remove_parts(job);
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

/* With the model open: memory and time of the work. */
static bp_err measure(bp_work_job *job)
{
    MPI_Comm world = job->mesh->world;
    double figures[BP_WORK_FIGURES] = {0};
    bp_err err = work_open_model(job);

    if (err != BP_OK)
        return err;
    err = bp_agree(world, job->mesh->computes ? job->work->measure(job->self, figures) : BP_OK);
    int64_t bytes = bp_all_max_int((int64_t)bp_mem_peak_bytes(), world);
    bp_bcast_bytes(figures, sizeof figures, bp_comm_size(world) - 1, world);
    if (err == BP_OK && job->mesh->coordinates) {
        if (job->work->say)
            job->work->say(job->self);
        job->work->print(job->self, figures, bytes);
    }
    return err;
}

bp_err bp_work_estimate(bp_work_job *job, MPI_Comm world, const bp_planned_world *asked)
{
    bp_work_memory memory;
    bool fits_here = true;
    bp_err err = work_open_mesh(job, &memory, world, asked);

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
