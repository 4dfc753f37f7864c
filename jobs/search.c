/* bagpipe search: looks for the shape of a model; the same command again goes on. */
#include "search/search.h"
#include "search/methods/method.h"

#include "job.h"
#include "models/family.h"
#include "train/parts/options.h"

static const bp_option *const OPTIONS[] = {bp_run_options, bp_nas_options,
                                           nas_differentiable_options, BP_TRAINING_OPTIONS, NULL};

static void warn(const bp_config *config)
{
    bp_pretrain_warn(config, bp_training_parts);
    bp_nas_warn(config);
}

static bp_err run(const bp_job_call *call)
{
    const bp_nas_jobs jobs = {.pretrain = bp_job_pretrain.options, .search = OPTIONS};

    if (call->plan)
        return bp_nas_plan(call->world, call->config, &jobs, call->plan);
    return bp_nas(call->world, call->config, &jobs);
}

const bp_job bp_job_search = {
    .name = "search",
    .help = "looks for the shape of a model: trials, and the best trained from scratch",
    .text = "It writes search/table.csv, summary.json, best.ini and index.html into run.dir; its "
            "trainings are run folders in search/. The same command again goes on.",
    .examples = "  bagpipe search small.ini run.dir=runs/search \\\n"
                "      'search.space=model.layers=2,4,6; model.width=128,256'\n"
                "  mpirun -n 4 bagpipe search small.ini mesh.members=4 search.trials=32\n",
    .options = OPTIONS,
    .status = {.results = {"the best configuration is ", "/search/best.ini"}},
    .require = bp_model_require_keys,
    .check = bp_nas_check,
    .warn = warn,
    .run = run,
};
