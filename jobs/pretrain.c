/* bagpipe pretrain: trains a language model on a corpus; the same command again goes on. */
#include "train/loop/pretrain.h"
#include "train/parts/options.h"

#include "job.h"
#include "models/family.h"

static const bp_option *const OPTIONS[] = {bp_run_options, BP_TRAINING_OPTIONS, NULL};

static void check(bp_config *config)
{
    bp_pretrain_check(config, bp_training_parts);
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

const bp_job bp_job_pretrain = {
    .name = "pretrain",
    .help = "trains a language model on a corpus; resumes by itself",
    .text = "It writes metrics.jsonl, events.jsonl, log.txt and checkpoints/ into run.dir. The "
            "same command again resumes from the newest checkpoint.",
    .examples = "  mpirun -n 4 bagpipe pretrain small.ini run.dir=runs/small\n"
                "  bagpipe pretrain small.ini --plan --ranks=8 --nodes=2\n",
    .options = OPTIONS,
    .status = {.trains = true, .again = "begins anew: nothing was committed yet"},
    .require = bp_model_require_keys,
    .check = check,
    .warn = warn,
    .run = run,
};
