/* bagpipe finetune: trains a pretrained model for a task; the same command again goes on. */
#include "job.h"
#include "models/task/task.h"
#include "train/loop/pretrain.h"
#include "train/parts/options.h"

static const bp_option *const OPTIONS[] = {bp_run_options, bp_task_options, BP_TRAINING_OPTIONS,
                                           NULL};

static void check(bp_config *config)
{
    bp_finetune_check(config, bp_training_parts);
}

static void warn(const bp_config *config)
{
    bp_pretrain_warn(config, bp_training_parts);
}

static bp_err run(const bp_job_call *call)
{
    if (call->plan)
        return bp_pretrain_plan(call->world, call->config, bp_training_parts, call->plan);
    return bp_pretrain(call->world, call->config, bp_training_parts, NULL);
}

const bp_job bp_job_finetune = {
    .name = "finetune",
    .help = "trains a pretrained model for a task; resumes by itself",
    .text = "The model of model.init gets a head for the task (task.kind), whose classes are those "
            "of corpus.train. It writes what pretrain writes, and task.json. These defaults differ "
            "from pretrain's: train.epochs=3, optimizer.lr=5e-5, optimizer.decay=linear, "
            "optimizer.warmup a tenth of the steps. The same command again resumes.",
    .examples = "  bagpipe finetune genres.ini run.dir=runs/genres model.init=runs/bert\n"
                "  mpirun -n 4 bagpipe finetune genres.ini task.label=genre\n",
    .options = OPTIONS,
    .status = {.trains = true, .again = "begins anew: nothing was committed yet"},
    .require = bp_finetune_require,
    .check = check,
    .warn = warn,
    .run = run,
};
