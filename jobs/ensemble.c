/* bagpipe ensemble: trains the members of an ensemble; the same command again goes on. */
#include "train/ensemble/ensemble.h"

#include "job.h"
#include "models/task/task.h"
#include "train/parts/options.h"

static const bp_option *const OPTIONS[] = {bp_run_options, bp_task_options, bp_ensemble_options,
                                           BP_TRAINING_OPTIONS, NULL};

static void warn(const bp_config *config)
{
    bp_pretrain_warn(config, bp_training_parts);
}

static bp_err run(const bp_job_call *call)
{
    bool tunes = bp_task_is_asked(call->config);
    bp_ensemble_jobs jobs = {.pretrain = (tunes ? &bp_job_finetune : &bp_job_pretrain)->options,
                             .score = bp_job_score.options};

    if (call->plan)
        return bp_ensemble_plan(call->world, call->config, &jobs, call->plan);
    return bp_ensemble(call->world, call->config, &jobs);
}

static void require(bp_config *config)
{
    if (bp_task_is_asked(config))
        bp_finetune_require(config);
    else
        bp_model_require_keys(config);
}

const bp_job bp_job_ensemble = {
    .name = "ensemble",
    .help = "trains the members of an ensemble, side by side or one after another",
    .text = "It writes members/m00, members/m01 and so on, each a run folder, and ensemble.json "
            "into run.dir. With task.kind its members are fine-tuned, as by finetune. The same "
            "command again resumes.",
    .examples = "  bagpipe ensemble small.ini run.dir=runs/four ensemble.members=4\n"
                "  mpirun -n 4 bagpipe ensemble small.ini run.dir=runs/four \\\n"
                "      ensemble.members=4 mesh.members=2\n",
    .options = OPTIONS,
    .part_key = "ensemble.only",
    .status = {.results = {"score.model=", " scores with it"}},
    .require = require,
    .check = bp_ensemble_check,
    .warn = warn,
    .run = run,
};
