/* The plan of an ensemble, before any member trains: `--plan`, the steps of a member, and whether
 * all groups fit into the nodes' memory. The run itself is in ensemble.c. Called by jobs/ensemble.c
 * and ensemble.c. */
#include "train/ensemble/ensemble_priv.h"

#include "base/config/run_options.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "train/engine/engine.h"
#include "train/loop/counting.h"
#include "train/loop/groups.h"
#include "train/loop/memory/memory.h"
#include "train/loop/memory/remedy.h"
#include "train/loop/memory/rows.h"
#include "train/loop/start/setup.h"
#include "train/parts/list.h"

#include <inttypes.h>
#include <string.h>

/* ---- the plan ---- */

/* Opens a member's training on one rank, for a mesh of a group's ranks. */
static bp_err open_member(ensemble *self, trainer *member, bp_config **config, int nodes)
{
    bp_err err = ensemble_member_config(self, 0, config);

    return err == BP_OK
               ? bp_groups_represent(member, bp_training_parts, *config, &self->shape, nodes)
               : err;
}

bp_err bp_ensemble_plan(MPI_Comm world, bp_config *config, const bp_ensemble_jobs *jobs,
                        const bp_planned_world *asked)
{
    bool alone = bp_comm_size(world) == 1, root = bp_comm_is_root(world);
    bp_config *of_member = NULL;
    trainer member = {0};
    ensemble self;
    bp_err err;

    ensemble_fill(&self, config, jobs);
    err = bp_groups_resolve_machine(world, config, asked);
    if (err == BP_OK)
        err = bp_agree(world, alone ? bp_mesh_shape_plan(&self.shape, asked->ranks)
                                    : bp_mesh_shape_fit(&self.shape, bp_comm_size(world)));
    if (err == BP_OK && !alone)
        bp_math_warn_of_threads(world, true);
    if (err == BP_OK)
        err = bp_config_set_int(config, "mesh.data", self.shape.data);
    if (err == BP_OK) /* one rank plans for any mesh */
        err = bp_agree(world, root ? open_member(&self, &member, &of_member, asked->nodes) : BP_OK);
    if (err == BP_OK && ensemble_counts(config))
        err = bp_agree(world, root ? bp_trainer_count_plan(&member) : BP_OK);
    else if (err == BP_OK)
        err = bp_groups_plan(world, &member,
                             &(bp_groups_trainings){config, &self.shape, "member", self.members},
                             asked);
    bp_trainer_close(&member);
    bp_config_free(&of_member);
    return err;
}

/* ---- steps ---- */

bp_err ensemble_find_steps(ensemble *self)
{
    const bp_mesh *mesh = self->mesh;
    bp_config *config = NULL;
    trainer member = {0};
    bp_err err = BP_OK;

    if (bp_config_is_set(self->config, "train.steps")) {
        self->steps = bp_train_keys_of(self->config)->steps;
    } else {
        if (mesh->coordinates) {
            err = open_member(self, &member, &config, 1);
            self->steps = member.spec.rate.steps;
        }
        err = bp_agree(mesh->world, err);
    }
    if (err == BP_OK)
        bp_bcast_bytes(&self->steps, sizeof self->steps, 0, mesh->world);
    bp_trainer_close(&member);
    bp_config_free(&config);
    return err;
}

/* ---- memory ---- */

/* The shape of the members' model, from the manifest of model.init or from the configuration. */
static bool find_shape(trainer *member)
{
    const char *init = bp_model_keys_of(member->config)->init;
    bp_model_shape known = {0};
    char *folder = NULL;
    json_t *manifest = NULL;
    bool found = !init;

    if (init && bp_checkpoint_read_metadata(init, &folder, &manifest) == BP_OK)
        found = bp_model_shape_read(&known, json_object_get(manifest, "state"), init) == BP_OK;
    if (found)
        member->shape = bp_model_shape_of(member->config, init ? &known : NULL);
    if (member->shape.vocab_size == 0)
        member->shape.vocab_size = member->facts.vocab_size;
    json_decref(manifest);
    bp_free(folder);
    return found && bp_config_faults(member->config) == BP_OK;
}

/* What the memory of a member's training depends on, without opening it. Returns false on errors,
 * which the members will report. */
static bool sketch_member(const ensemble *self, const corpus_facts *facts, bp_config **config,
                          trainer *out)
{
    memory_case one;

    if (ensemble_counts(self->config) || ensemble_member_config(self, 0, config) != BP_OK)
        return false;
    *out = (trainer){
        .config = *config, .parts = bp_training_parts, .facts = *facts, .mesh_shape = self->shape};
    out->spec = bp_pretrain_spec_of(*config, bp_training_parts);
    out->spec.rate.steps = self->steps;
    out->spec.precision =
        strcmp(bp_math_keys_of(*config)->precision, "bf16") == 0 ? BP_BF16 : BP_F32;
    if (!find_shape(out))
        return false;
    one = bp_training_memory_case_of(out);
    return bp_training_memory_case_is_valid(out, &one);
}

int64_t ensemble_farthest(const ensemble *self)
{
    int64_t step = -1;

    for (int64_t k = 0; k < self->members; k++) {
        int64_t one = ensemble_member_step(self, k);

        step = one > step ? one : step;
    }
    return step;
}

bp_err ensemble_check_memory(const ensemble *self, const corpus_facts *facts)
{
    const bp_mesh *mesh = self->mesh;
    bp_config *config = NULL;
    trainer member = {0};
    memory_case one = {0};
    bp_node_memory node = {0};
    bool known = mesh->coordinates && sketch_member(self, facts, &config, &member);
    bp_err err = BP_OK;

    if (known)
        one = bp_training_memory_case_of(&member);
    if (bp_all_max_int(known, mesh->world) != 0 &&
        bp_run_has_work(mesh->world, bp_run_keys_of(self->config)->dir))
        err = bp_training_memory_find(&node, mesh->world, self->config, &member, &one);
    else
        known = false;
    member.estimate.node = node;
    if (err == BP_OK)
        err = bp_agree(mesh->world, known ? bp_training_memory_check(&node, &member, &one) : BP_OK);
    if (err == BP_OK && known && ensemble_farthest(self) < 0)
        bp_trainer_warn_of_rows(&member, &one);
    bp_config_free(&config);
    return err;
}
