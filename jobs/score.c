/* bagpipe score: log-probability of every token of corpora; the same command again goes on. */
#include "infer/score/score.h"
#include "infer/score/keys.h"
#include "infer/score/questions/questions.h"
#include "infer/score/vectors/vectors.h"

#include "job.h"
#include "job/work_options.h"

static const bp_option *const OPTIONS[] = {bp_run_options, bp_score_options, bp_score_rule_options,
                                           BP_WORK_OPTIONS, NULL};

static bp_err run(const bp_job_call *call)
{
    bp_vectors_wish vectors;

    if (bp_score_keys_of(call->config)->questions)
        return bp_questions(call->world, call->config, call->plan);
    bp_err err = bp_vectors_find(&vectors, call->config, call->world);

    if (err == BP_OK)
        err = vectors.pool[0] ? bp_vectors(call->world, call->config, &vectors, call->plan)
                              : bp_score(call->world, call->config, call->plan);
    return err;
}

const bp_job bp_job_score = {
    .name = "score",
    .help = "computes the log-probability of every token of corpora under a model or an ensemble",
    .text =
        "It writes score/summary.json, score/documents.h5 and, with score.tokens=yes, "
        "score/tokens.h5 into run.dir. The same command again computes what is missing. For a "
        "fine-tuned model it writes score/summary.json, score/predictions.csv and "
        "score/index.html; a corpus without labels has predictions and no figures. With "
        "score.vectors=mean (first, last) it writes score/vectors.h5 in place of all that, with "
        "score.questions=FILE score/questions.jsonl and score/summary.json.",
    .examples = "  mpirun -n 4 bagpipe score score.ini run.dir=runs/scored score.tokens=yes\n"
                "  bagpipe-data table runs/scored/score/tokens.h5 > tokens.csv\n",
    .options = OPTIONS,
    .status = {.results = {"the scores are in ", "/score"}},
    .check = bp_score_check,
    .run = run,
};
