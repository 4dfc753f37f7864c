/* From a configuration to a mesh, a model and units that are ready. Called by work.c first. */
#include "job/work_priv.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "mesh/lockstep.h"
#include "run/status/run_status.h"

#include <inttypes.h>
#include <string.h>

/* ---- what is applied ---- */

/* Can members be side by side as mesh.members asks? members: of the ensemble; 0 if not yet
 * known. */
static bp_err check_members(const bp_work_job *job, int64_t members)
{
    int side_by_side = bp_mesh_shape_of(job->config).members;

    if (!job->ensemble && side_by_side != 1)
        return BP_FAIL(BP_ERR_CONFIG, "mesh.one_model",
                       "mesh.members = %d, but %s is one model: at mesh.members; leave it at 1, or "
                       "name an ensemble",
                       side_by_side, job->work->model_key);
    if (members > 0 && side_by_side > members)
        return BP_FAIL(BP_ERR_CONFIG, "mesh.too_many_members",
                       "mesh.members = %d, but the ensemble has %" PRId64
                       " in all: at mesh.members; use %" PRId64 " or less",
                       side_by_side, members, members);
    return BP_OK;
}

/* Warns if `path` is the folder of a training that has not finished: its model is not the one that
 * the training ends with. Other paths and unreadable runs are left to what opens them. */
static void warn_of_unfinished(const char *path)
{
    json_t *status = NULL;
    const char *state;
    int64_t step, steps;

    if (bp_run_status_read(&status, path, 0, NULL) != BP_OK)
        return;
    state = json_string_value(json_object_get(status, "state"));
    steps = json_integer_value(json_object_get(status, "steps"));
    char *parent = bp_path_join(path, "checkpoints");
    step = bp_checkpoint_newest_step(parent);
    if (state && step >= 0 && step < steps && strcmp(state, "finished") != 0)
        BP_WARN("checkpoint.unfinished",
                "step %" PRId64 " of %" PRId64 " is taken, and the training has not finished "
                "(%s): at %s; its figures are not those of the finished model, see bagpipe status",
                step, steps, state, path);
    bp_free(parent);
    json_decref(status);
}

/* An ensemble, or one model? On the root. */
static bp_err look_at_model(bp_work_job *job, const bp_work_memory *memory)
{
    bool listed = bp_ensemble_is(memory->model);
    int64_t members = memory->drawn > 0 ? memory->drawn : 1;
    bp_ensemble_list list = {0};
    bp_err err = BP_OK;

    job->ensemble = listed || memory->mixed;
    if (listed) {
        err = bp_ensemble_list_load(&list, memory->model);
        members = list.count;
        bp_ensemble_list_clear(&list);
    }
    bp_checkpoint_warn_not_best(memory->model);
    if (!listed)
        warn_of_unfinished(memory->model);
    return err == BP_OK ? check_members(job, members) : err;
}

/* Before there is a mesh. Collective over world. */
static bp_err find_kind(bp_work_job *job, bp_work_memory *memory, MPI_Comm world)
{
    bp_err err = job->work->describe ? job->work->describe(job->self, world, memory) : BP_OK;

    if (err == BP_OK && memory->model && bp_comm_is_root(world))
        err = look_at_model(job, memory);
    bp_bcast_bytes(&job->ensemble, sizeof job->ensemble, 0, world);
    return bp_agree(world, err);
}

/* ---- mesh and precision ---- */

static bp_err resolve_precision(bp_config *config, MPI_Comm world)
{
    bp_precision precision = BP_F32;
    char *before = NULL;
    bp_err err = bp_run_previous(world, bp_run_keys_of(config)->dir, "math.precision", &before);

    if (err == BP_OK && before && strcmp(bp_math_keys_of(config)->precision, "auto") == 0)
        err = bp_config_set(config, "math.precision", before);
    bp_free(before);
    if (err == BP_OK)
        err = bp_math_precision(config, &precision);
    err = bp_agree(world, err);
    if (err != BP_OK)
        return err;
    bool f32 = bp_all_max_int(precision == BP_F32, world) != 0;
    return bp_agree(world, bp_config_set(config, "math.precision", f32 ? "f32" : "bf16"));
}

bp_err work_open_mesh(bp_work_job *job, bp_work_memory *memory, MPI_Comm world,
                      const bp_planned_world *plan)
{
    bp_config *config = job->config;
    bool alone = plan && bp_comm_size(world) == 1;
    bp_err err;

    *memory = (bp_work_memory){.config = config, .plan = plan};
    if (bp_mesh_keys_of(config)->expert > 1 && !job->work->shares_experts)
        return BP_FAIL(BP_ERR_CONFIG, "mesh.expert_trains",
                       "mesh.expert = %lld, but %s has all experts on each data rank: at "
                       "mesh.expert; leave it at 1, and let mesh.tensor or mesh.pipeline share out "
                       "what does not fit",
                       (long long)bp_mesh_keys_of(config)->expert, job->work->name);
    job->folder = bp_path_join(bp_run_keys_of(config)->dir, job->work->name);
    err = find_kind(job, memory, world);
    if (err != BP_OK)
        return err;
    bp_math_set_threads(
        bp_math_threads_planned(world, (int)bp_math_keys_of(config)->threads, plan));
    err = bp_agree(world, bp_mesh_open(&job->mesh, &job->mesh_shape, config, world, plan));
    if (err != BP_OK)
        return err;
    if (!alone)
        bp_math_warn_of_threads(job->mesh->world, job->mesh->computes);
    job->leads = job->mesh->computes && bp_comm_is_root(job->mesh->replica);
    if (job->mesh->computes && job->mesh->expert_ranks > 1)
        job->mesh->lockstep = bp_lockstep_new(job->mesh->expert);
    memory->process_bytes = (int64_t)bp_mem_resident_peak_bytes();
    return resolve_precision(config, job->mesh->world);
}

/* ---- the model ---- */

/* Ranks of an ensemble follow the first one through its passes, so each must have the same number
 * of models. */
static bp_err check_experts(const bp_work_job *job)
{
    const bp_mesh *mesh = job->mesh;
    int models = mesh->lockstep ? bp_lockstep_models(mesh->lockstep) : 0;

    if (!mesh->lockstep)
        return BP_OK;
    if (bp_all_max_int(models, mesh->compute) == 0)
        return BP_FAIL(BP_ERR_CONFIG, "mesh.no_experts",
                       "mesh.expert = %d, but the model has no experts: at mesh.expert; leave it "
                       "at 1",
                       mesh->expert_ranks);
    if (bp_all_max_int(-models, mesh->compute) != -bp_all_max_int(models, mesh->compute))
        return BP_FAIL(BP_ERR_CONFIG, "mesh.expert_members",
                       "mesh.expert = %d, but mesh.members = %d does not divide the ensemble's "
                       "members, or some of them have no experts: at mesh.members; use a divisor "
                       "of their number",
                       mesh->expert_ranks, mesh->members);
    return BP_OK;
}

/* Share the model's info with all ranks, a dedicated coordinator too. */
bp_err work_open_model(bp_work_job *job)
{
    const bp_mesh *mesh = job->mesh;
    bp_err err = bp_agree(mesh->world, mesh->computes && job->work->open_model
                                           ? job->work->open_model(job->self, &job->model)
                                           : BP_OK);

    if (err == BP_OK)
        err = bp_agree(mesh->world, mesh->computes ? check_experts(job) : BP_OK);
    if (err != BP_OK)
        return err;
    if (job->model)
        job->info = job->model->info;
    bp_bcast_bytes(&job->info, sizeof job->info, mesh->dedicated ? 1 : 0, mesh->world);
    job->info.kind = job->model ? job->model->info.kind : NULL; /* a pointer is not sent */
    if (mesh->computes && job->info.members > 0 && mesh->members > job->info.members)
        err = check_members(job, job->info.members);
    err = bp_agree(mesh->world, err);
    return err == BP_OK ? bp_agree(mesh->world, job->work->open(job->self)) : err;
}

void work_close(bp_work_job *job)
{
    job->work->close(job->self);
    bp_free(job->folder);
    bp_model_free(&job->model);
    if (job->mesh)
        bp_lockstep_free(&job->mesh->lockstep);
    bp_mesh_free(&job->mesh);
}
