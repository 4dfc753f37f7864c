/* bagpipe bench: measures this machine and this build; the first thing to run on a new cluster. */
#include "bench/bench.h"

#include "job.h"
#include "math/math.h"
#include "mesh/node_memory.h"
#include "run/stop_request.h"
#include "run/watchdog/watchdog.h"

static const bp_option *const OPTIONS[] = {
    bp_run_options,  bp_bench_options, bp_mesh_options,     bp_memory_options,
    bp_math_options, bp_slurm_options, bp_watchdog_options, NULL};

/* A plan writes nothing, so it needs no run.dir. */
static const bp_option *const PLAN_OPTIONS[] = {bp_bench_options, bp_mesh_options,
                                                bp_memory_options, bp_math_options, NULL};

static bp_err run(const bp_job_call *call)
{
    if (call->plan)
        return bp_bench_estimate(call->world, call->config, call->plan);
    return bp_bench(call->world, call->config);
}

const bp_job bp_job_bench = {
    .name = "bench",
    .help = "measures this machine and this build; run it first on a new cluster",
    .text = "It writes bench.json into run.dir. It needs no configuration file.",
    .examples = "  mpirun -n 4 bagpipe bench run.dir=runs/bench\n",
    .options = OPTIONS,
    .status = {.results = {"the figures are in ", "/bench.json"}, .again = "measures anew"},
    .plan_options = PLAN_OPTIONS,
    .check = bp_bench_check,
    .run = run,
};
