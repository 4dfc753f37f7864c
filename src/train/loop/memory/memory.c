/* The memory of a node that a training's ranks take, estimated before it is allocated. */
#include "train/loop/memory/memory.h"

#include "base/mem.h"
#include "base/trace.h"
#include "io/checkpoint/checkpoint.h"
#include "mesh/collective.h"
#include "mesh/mesh_search.h"
#include "train/loop/examples.h"
#include "train/loop/learning.h"
#include "train/loop/parts.h"

memory_case bp_training_memory_case_of(const trainer *self)
{
    return (memory_case){.mesh = self->mesh_shape,
                         .spec = self->spec,
                         .async = bp_checkpoint_keys_of(self->config)->async};
}

bool bp_training_memory_case_is_valid(const trainer *self, const memory_case *one)
{
    static const bp_option *const NO_TABLES[] = {NULL};
    const bp_mesh_shape *mesh = &one->mesh;
    bp_config *faults = NULL;
    bool valid = mesh->data % bp_mesh_shape_experts(mesh) == 0 &&
                 bp_config_new(&faults, NO_TABLES, NO_TABLES) == BP_OK;

    if (valid) {
        bp_model_shape_check(&self->shape, mesh->tensor, mesh->pipeline, faults);
        if (!trainer_learner(self))
            bp_engine_spec_check(&one->spec, &self->shape, mesh, faults);
        valid =
            bp_config_faults(faults) == BP_OK && (!trainer_learner(self) || mesh->pipeline == 1);
    }
    bp_config_free(&faults);
    return valid;
}

/* Bytes of the loader, on ranks that read the corpus for their copy of the model. */
static size_t loader_bytes(const trainer *self, const memory_case *one)
{
    bp_example_maker maker = trainer_maker(self, self->shape.context);

    return bp_loader_bytes(
        &(bp_loader_size){.tokens = self->facts.tokens,
                          .documents = self->facts.documents,
                          .mixed_files = self->facts.mixed_files,
                          .slots = bp_trainer_slots(self, &one->spec, one->mesh.data),
                          .bucket = bp_corpus_keys_of(self->config)->bucket,
                          .batch = self->spec.batch,
                          .maker = &maker});
}

/* A rank of the stage that does not read the corpus. */
static bp_err plan_stage(const trainer *self, const memory_case *one, int stage, bp_plan *plan)
{
    const bp_mesh_shape *mesh = &one->mesh;
    int64_t ranks = (int64_t)mesh->pipeline * mesh->data * mesh->tensor; /* at most, of a node */
    bp_err err = BP_OK;

    if (trainer_learner(self)) {
        *plan = (bp_plan){.program = bp_mem_resident_bytes(),
                          .parameters = trainer_learner(self)->bytes(&self->shape, mesh->data),
                          .scratch = trainer_learner(self)->work_bytes(&self->shape, mesh->data)};
        plan->snapshot = plan->parameters;
    } else {
        err = bp_engine_plan(plan, mesh, &one->spec, &self->shape, stage);
    }

    if (err == BP_OK)
        err = parts_bytes(self, mesh, stage, &plan->parts);
    plan->writer = bp_checkpoint_writer_bytes((int64_t)plan->snapshot * ranks);
    if (!one->async)
        plan->snapshot = 0;
    return err;
}

bp_err bp_trainer_plan(const trainer *self, bp_plan *plan, int *stage)
{
    memory_case one = bp_training_memory_case_of(self);
    bp_err err = BP_OK;

    *stage = 0;
    for (int s = 0; s < one.mesh.pipeline && err == BP_OK; s++) {
        bp_plan now = {0};

        err = plan_stage(self, &one, s, &now);
        if (s == 0) /* its ranks read the corpus */
            now.input += loader_bytes(self, &one);
        if (err == BP_OK && (s == 0 || bp_plan_total(&now) > bp_plan_total(plan))) {
            *plan = now;
            *stage = s;
        }
    }
    return err;
}

/* ---- ranks ---- */

bp_err memory_case_list(bp_rank_memory **out, const trainer *self, const memory_case *one)
{
    const bp_mesh_shape *mesh = &one->mesh;
    int ranks = bp_mesh_shape_ranks(mesh), first = mesh->coordinator == BP_COORDINATOR_DEDICATED;
    bp_rank_memory *stages = bp_alloc("train.memory", mesh->pipeline, sizeof *stages);
    bp_rank_memory *all = bp_alloc("train.memory", ranks, sizeof *all);
    int64_t loader = (int64_t)loader_bytes(self, one);
    bp_err err = BP_OK;

    for (int s = 0; s < mesh->pipeline && err == BP_OK; s++) {
        bp_plan plan = {0};

        err = plan_stage(self, one, s, &plan);
        stages[s] = /* one rank of a node writes the checkpoint for all of it */
            (bp_rank_memory){.own_bytes = (int64_t)(bp_plan_total(&plan) - plan.writer),
                             .node_bytes = (int64_t)plan.writer};
    }
    if (first > 0)
        all[0] = (bp_rank_memory){.own_bytes = (int64_t)bp_mem_resident_peak_bytes()};
    for (int r = first; r < ranks && err == BP_OK; r++) {
        int at = r - first, stage = at / mesh->tensor / mesh->data % mesh->pipeline;

        all[r] = stages[stage];
        if (stage == 0 && at % mesh->tensor == 0)
            all[r].own_bytes += loader;
    }
    bp_free(stages);
    *out = all;
    if (err != BP_OK) {
        bp_free(all);
        *out = NULL;
    }
    return err;
}

/* ---- nodes ---- */

bp_err bp_training_memory_find(bp_node_memory *out, MPI_Comm world, const bp_config *config,
                               const trainer *self, const memory_case *one)
{
    bp_rank_memory *all = NULL;
    bp_err err = BP_OK;

    if (bp_comm_is_root(world)) {
        BP_ASSERT(bp_mesh_shape_ranks(&one->mesh) == bp_comm_size(world));
        err = memory_case_list(&all, self, one);
    }
    err = bp_agree(world, err);
    if (err == BP_OK)
        bp_node_memory_find(out, world, config, all);
    bp_free(all);
    return err;
}

bp_err bp_training_memory_find_planned(bp_node_memory *out, const trainer *self,
                                       const memory_case *one, int nodes)
{
    bp_rank_memory *all;
    bp_err err = memory_case_list(&all, self, one);

    if (err == BP_OK)
        bp_node_memory_plan(out, self->config, all, bp_mesh_shape_ranks(&one->mesh), nodes);
    bp_free(all);
    return err;
}
