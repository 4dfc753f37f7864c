/* bagpipe uncertainty: methods side by side; the same command again goes on. */
#include "uncertainty/uncertainty.h"
#include "uncertainty/methods/list.h"

#include "infer/score/score.h"
#include "job.h"
#include "math/math.h"
#include "mesh/node_memory.h"
#include "run/stop_request.h"
#include "run/watchdog/watchdog.h"

static const bp_option *const OPTIONS[] = {bp_run_options,
                                           bp_uncertainty_options,
                                           bp_score_rule_options,
                                           BP_UNCERTAINTY_METHODS_OPTIONS bp_mesh_options,
                                           bp_math_options,
                                           bp_memory_options,
                                           bp_slurm_options,
                                           bp_watchdog_options,
                                           NULL};

static bp_err run(const bp_job_call *call)
{
    if (call->plan)
        return bp_uncertainty_estimate(call->world, call->config, bp_job_score.options, call->plan);
    return bp_uncertainty(call->world, call->config, bp_job_score.options);
}

const bp_job bp_job_uncertainty = {
    .name = "uncertainty",
    .help = "decomposes, calibrates and compares the uncertainty of models on corpora",
    .text = "It writes uncertainty/summary.json, tables, plots and index.html into run.dir. The "
            "same command again computes what is missing.",
    .examples = "  mpirun -n 4 bagpipe uncertainty study.ini run.dir=runs/study\n",
    .options = OPTIONS,
    .status = {.results = {"the study is in ", "/uncertainty/index.html"}},
    .check = bp_uncertainty_check,
    .run = run,
};
