/* Groups of ranks that train models side by side. Called by train/ensemble and by src/search. */
#include "train/loop/groups.h"

#include "math/math.h"
#include "mesh/collective.h"
#include "train/loop/precision.h"

bp_err bp_groups_resolve_machine(MPI_Comm world, bp_config *config, const bp_planned_world *plan)
{
    int threads = bp_math_threads_planned(world, (int)bp_math_keys_of(config)->threads, plan);
    bp_precision precision;
    bp_err err;

    threads = (int)-bp_all_max_int(-threads, world); /* the least of all ranks */
    bp_math_set_threads(threads);
    err = bp_agree(world, bp_config_set_int(config, "math.threads", threads));
    return err == BP_OK ? bp_trainer_precision(world, config, &precision) : err;
}

bp_err bp_groups_open(bp_mesh **out, bp_mesh_shape *shape, bp_config *config, MPI_Comm world)
{
    bp_mesh_shape groups;
    bp_err err = bp_mesh_shape_fit(shape, bp_comm_size(world));
    bool dedicated = shape->coordinator == BP_COORDINATOR_DEDICATED;

    *out = NULL;
    if (err == BP_OK)
        err = bp_config_set_int(config, "mesh.data", shape->data);
    if (err == BP_OK)
        err = bp_config_set(config, "mesh.coordinator", dedicated ? "dedicated" : "shared");
    err = bp_agree(world, err);
    if (err != BP_OK)
        return err;
    groups = (bp_mesh_shape){.members = 1,
                             .pipeline = 1,
                             .data = shape->members,
                             .tensor = shape->pipeline * shape->data * shape->tensor,
                             .coordinator =
                                 dedicated ? BP_COORDINATOR_DEDICATED : BP_COORDINATOR_SHARED};
    err = bp_mesh_new(out, world, &groups);
    if (err == BP_OK)
        bp_math_warn_of_threads((*out)->world, (*out)->computes);
    return err;
}
