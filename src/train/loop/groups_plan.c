/* The memory of models that train side by side. Called by train/ensemble and by src/search. */
#include "train/loop/groups.h"

#include "base/log.h"
#include "train/loop/memory/memory.h"
#include "train/loop/memory/peak.h"
#include "train/loop/memory/plan_text.h"
#include "train/loop/memory/remedy.h"
#include "train/loop/memory/rows.h"

#include <inttypes.h>

bp_err bp_groups_represent(trainer *one, const bp_training_part *const *parts, bp_config *config,
                           const bp_mesh_shape *shape, int nodes)
{
    bp_planned_world group = {.ranks = shape->pipeline * shape->data * shape->tensor,
                              .nodes = nodes};
    bp_err err = bp_config_set(config, "mesh.coordinator", "shared");

    return err == BP_OK ? bp_trainer_open(one, parts, MPI_COMM_SELF, config, &group) : err;
}

/* The case of all groups together. */
static memory_case case_of(const trainer *one, const bp_mesh_shape *shape)
{
    memory_case all = bp_training_memory_case_of(one);

    all.mesh = *shape;
    return all;
}

bp_err bp_groups_plan(MPI_Comm world, trainer *one, const bp_groups_trainings *all,
                      const bp_planned_world *asked)
{
    const bp_mesh_shape *shape = all->shape;
    bool root = bp_comm_is_root(world);
    memory_case memory = {0};
    bp_plan plan;
    int stage, groups = shape->members;
    bp_err err = BP_OK;

    if (root) {
        err = bp_trainer_plan(one, &plan, &stage);
        memory = case_of(one, shape);
    }
    err = bp_agree(world, err);
    if (err == BP_OK)
        err =
            bp_comm_size(world) > 1
                ? bp_training_memory_find(&one->estimate.node, world, all->config, one, &memory)
                : bp_training_memory_find_planned(&one->estimate.node, one, &memory, asked->nodes);
    if (err == BP_OK && root) {
        bp_trainer_plan_peak(one, asked);
        bp_training_plan_print(one, &plan, stage);
        bp_log("this is one %s of %" PRId64 "; %d train%s at a time, so %" PRId64 " after another",
               all->what, all->count, groups, groups == 1 ? "s" : "",
               (all->count + groups - 1) / groups);
        bp_trainer_warn_of_rows(one, &memory);
        err = bp_training_memory_check(&one->estimate.node, one, &memory);
    }
    return bp_agree(world, err);
}

bp_err bp_groups_check_memory(MPI_Comm world, trainer *one, const bp_groups_trainings *all)
{
    bool root = bp_comm_is_root(world);
    memory_case memory = {0};
    bp_err err;

    if (root)
        memory = case_of(one, all->shape);
    err = bp_training_memory_find(&one->estimate.node, world, all->config, one, &memory);
    return err == BP_OK
               ? bp_agree(world, root ? bp_training_memory_check(&one->estimate.node, one, &memory)
                                      : BP_OK)
               : err;
}
