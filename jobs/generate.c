/* bagpipe generate: prompts continued by a model; the same command again goes on. */
#include "infer/generate/generate.h"

#include "job.h"
#include "math/math.h"
#include "mesh/node_memory.h"
#include "models/weights.h"
#include "run/stop_request.h"
#include "run/watchdog/watchdog.h"

static const bp_option *const OPTIONS[] = {
    bp_run_options,    bp_generate_options, bp_mesh_options,
    bp_memory_options, bp_math_options,     bp_weights_options,
    bp_slurm_options,  bp_watchdog_options, NULL};

static bp_err run(const bp_job_call *call)
{
    if (call->plan)
        return bp_generate_estimate(call->world, call->config, &call->planned);
    return bp_generate(call->world, call->config);
}

const bp_job bp_job_generate = {
    .name = "generate",
    .help = "continues prompts with a model or an ensemble: greedy, sampling, beam search",
    .text = "It writes generate/outputs.jsonl, generate/summary.json and generate/index.html into "
            "run.dir. The same command again continues the prompts that are missing.",
    .examples = "  mpirun -n 4 bagpipe generate generate.ini run.dir=runs/texts\n"
                "  bagpipe generate generate.ini run.dir=runs/drawn generate.strategy=sample\n",
    .options = OPTIONS,
    .check = bp_generate_check,
    .warn = bp_generate_warn,
    .run = run,
};
