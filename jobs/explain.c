/* bagpipe explain: why a model predicts what it predicts; the same command again goes on. */
#include "explain/explain.h"

#include "job.h"
#include "job/work_options.h"

static const bp_option *const OPTIONS[] = {bp_run_options, bp_explain_options, BP_WORK_OPTIONS,
                                           NULL};

const bp_job bp_job_explain = {
    .name = "explain",
    .help = "explains each prediction of a model over corpora by the inputs that it depends on",
    .text = "It writes explain/summary.json and a file for each method of explain.methods, "
            "explain/METHOD.h5, into run.dir, and pages to look at: explain/index.html, and one "
            "for each example. docs/explanation.md says what they hold. The same command again "
            "computes what is missing.",
    .examples = "  mpirun -n 4 bagpipe explain run.dir=runs/why explain.model=runs/gpt \\\n"
                "      explain.corpus=test.h5 explain.methods=gradient,integrated\n",
    .options = OPTIONS,
    .status = {.results = {"the explanations are in ", "/explain"}},
    .check = bp_explain_check,
    .warn = bp_explain_warn,
    .work = &bp_explain,
};
