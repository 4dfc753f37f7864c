/* Does each method of a comparison fit into the memory of its nodes? Asked before anything is made.
 */
#include "analysis/uncertainty/job_priv.h"

#include "analysis/uncertainty/laplace/laplace.h"
#include "infer/score/memory.h"

static bp_err check(const comparison_job *self, const bp_score_memory_spec *spec)
{
    bp_mesh_shape shape = bp_mesh_shape_of(spec->config);
    bool alone = spec->plan && bp_comm_size(self->world) == 1;
    bp_err err = alone ? bp_mesh_shape_plan(&shape, spec->plan->ranks)
                       : bp_mesh_shape_fit(&shape, bp_comm_size(self->world));

    return err == BP_OK ? bp_score_memory_check(self->world, &shape, spec, NULL) : err;
}

int64_t comparison_job_fit_bytes(const comparison_job *self, int64_t m)
{
    const comparison_metadata *metadata = &self->results.metadata[m];
    bp_laplace_spec spec = bp_laplace_spec_of(self->config);
    bp_mesh_shape shape = self->mesh_shape;

    shape.data = shape.data > 0 ? shape.data : 1; /* of one rank that stands for any mesh */
    return bp_laplace_bytes(&spec, &shape, metadata->vocab_size, metadata->width);
}

bp_err comparison_job_check_memory(const comparison_job *self, int64_t m,
                                   const bp_planned_world *plan)
{
    const comparison_method *method = &self->results.methods.items[m];
    bp_ensemble_spec way = {.path = method->path};
    bp_config *config = NULL;
    bp_err err = bp_agree(self->world, comparison_job_derive(self, m, &config));
    bp_score_memory_spec spec = {.config = config, .method = &way, .plan = plan};

    if (method->way == COMPARISON_DROPOUT)
        way.dropout_passes = self->results.members[m];
    if (err == BP_OK && method->way == COMPARISON_LAPLACE) { /* the fit, and then its samples */
        spec.more_bytes = comparison_job_fit_bytes(self, m);
        err = check(self, &spec);
        spec.more_bytes = 0;
        spec.samples = self->results.members[m];
    }
    if (err == BP_OK)
        err = check(self, &spec);
    bp_config_free(&config);
    return err == BP_ERR_SYSTEM ? bp_err_prefix(err, "method %s", method->name) : err;
}
