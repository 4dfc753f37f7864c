/* What score and generate do alike before and after their loops (setup.c, loop.c of both). */
#include "infer/score/inference.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "run/run_folder.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <string.h>

bp_err bp_inference_check_members(const bp_config *config, const char *key, bool ensemble,
                                  int64_t members)
{
    int side_by_side = bp_mesh_shape_of(config).members;

    if (!ensemble && side_by_side != 1)
        return BP_FAIL(BP_ERR_CONFIG, "mesh.one_model",
                       "mesh.members = %d, but %s is one model: at mesh.members; leave it at 1, or "
                       "name an ensemble",
                       side_by_side, key);
    if (members > 0 && side_by_side > members)
        return BP_FAIL(BP_ERR_CONFIG, "mesh.too_many_members",
                       "mesh.members = %d, but the ensemble has %" PRId64
                       " in all: at mesh.members; use %" PRId64 " or less",
                       side_by_side, members, members);
    return BP_OK;
}

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

bp_err bp_inference_open_mesh(bp_mesh **mesh, bp_mesh_shape *shape, bp_config *config,
                              MPI_Comm world, const bp_planned_world *plan)
{
    bool alone = plan && bp_comm_size(world) == 1;

    bp_math_set_threads(
        bp_math_threads_planned(world, (int)bp_math_keys_of(config)->threads, plan));
    bp_err err = bp_agree(world, bp_mesh_open(mesh, shape, config, world, plan));
    if (err == BP_OK && !alone)
        bp_math_warn_of_threads((*mesh)->world, (*mesh)->computes);
    return err == BP_OK ? resolve_precision(config, (*mesh)->world) : err;
}

bp_err bp_inference_open_parts(bp_parts **out, const bp_inference_work *work)
{
    bp_err err = bp_dir_make(work->parts_folder);

    bp_dir_sweep(work->folder);
    if (err == BP_OK)
        err = bp_parts_open(out, work->parts_folder, work->key, work->units);
    if (err != BP_OK)
        return err;
    if ((*out)->foreign > 0)
        BP_WARN("parts.unusable",
                "%" PRId64 " part files of an earlier start are of no use, they were made with "
                "another %s or precision, or are damaged: at %s; what they hold is %s again",
                (*out)->foreign, work->mesh_keys, work->parts_folder, work->again);
    if ((*out)->damaged > 0)
        BP_WARN("parts.damaged",
                "%" PRId64 " part files of an earlier start are damaged: at %s; what they hold "
                "after the damaged part is %s again",
                (*out)->damaged, work->parts_folder, work->again);
    if ((*out)->done_count > 0)
        bp_log("going on: %" PRId64 " of %" PRId64 " work units are done", (*out)->done_count,
               work->units);
    return BP_OK;
}

bp_err bp_inference_part_new(bp_part_writer **out, const bp_inference_work *work, int64_t start,
                             int rank)
{
    char *path = bp_sprintf("%s/%06" PRId64 "-%05d.part", work->parts_folder, start, rank);
    bp_err err = bp_part_writer_new(out, path, work->key);

    bp_free(path);
    return err;
}

bp_err bp_inference_check_done(const bp_inference_work *work, int64_t done)
{
    if (done >= work->units)
        return BP_OK;
    return bp_stop_request_stopped("after %" PRId64 " of %" PRId64 " work units, at %s", done,
                                   work->units, work->folder);
}
