/* bagpipe generate: prompts continued by a model; the same command again goes on. */
#include "infer/generate/generate.h"

#include "job.h"
#include "job/work_options.h"

static const bp_option *const OPTIONS[] = {bp_run_options, bp_generate_options, BP_WORK_OPTIONS,
                                           NULL};

const bp_job bp_job_generate = {
    .name = "generate",
    .help = "continues prompts with a model or an ensemble: greedy, sampling, beam search",
    .text = "It writes generate/outputs.jsonl, generate/summary.json and generate/index.html into "
            "run.dir. The same command again continues the prompts that are missing.",
    .examples = "  mpirun -n 4 bagpipe generate generate.ini run.dir=runs/texts\n"
                "  bagpipe generate generate.ini run.dir=runs/drawn generate.strategy=sample\n",
    .options = OPTIONS,
    .status = {.results = {"the texts are in ", "/generate"}},
    .check = bp_generate_check,
    .warn = bp_generate_warn,
    .work = &bp_generate_work,
};
