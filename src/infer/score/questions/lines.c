/* The files of a question set. Called by questions.c, on the coordinator. */
#include "infer/score/questions/questions_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *logprob_json(const question_results *r, int64_t row)
{
    return bp_json_real(r->set->rows.rows[row].scored > 0 ? r->rows[row].logprob : NAN);
}

static json_t *logprobs_of(const question_results *r, const bp_question *q, int64_t first)
{
    json_t *list = json_array();

    for (int64_t k = 0; k < q->options; k++)
        (void)json_array_append_new(list, logprob_json(r, first + k));
    return list;
}

static json_t *greedy_of(const question_results *r, int64_t row)
{
    bool known = r->rows[row].greedy != GREEDY_UNKNOWN && r->set->rows.rows[row].scored > 0;

    return known ? json_boolean(r->rows[row].greedy > 0) : json_null();
}

static json_t *line_of(const question_results *r, const question_metrics *metrics,
                       const bp_question *q)
{
    json_t *line = bp_question_object(r->set, q), *tokens = json_array(), *bytes = json_array(),
           *greedy = json_array();

    for (int64_t k = 0; k < q->options; k++) {
        const bp_candidate_row *row = &r->set->rows.rows[q->first + k];

        (void)json_array_append_new(tokens, json_integer((json_int_t)row->scored));
        (void)json_array_append_new(bytes, json_integer((json_int_t)row->bytes));
        (void)json_array_append_new(greedy, greedy_of(r, q->first + k));
    }
    (void)json_object_set_new(line, "logprobs", logprobs_of(r, q, q->first));
    if (q->bare >= 0)
        (void)json_object_set_new(line, "logprobs_bare", logprobs_of(r, q, q->bare));
    (void)json_object_set_new(line, "tokens", tokens);
    (void)json_object_set_new(line, "bytes", bytes);
    (void)json_object_set_new(line, "greedy", greedy);
    (void)json_object_set_new(
        line, "best", metrics->scored ? json_integer((json_int_t)metrics->best) : json_null());
    if (r->members > 0 && !q->target) {
        (void)json_object_set_new(line, "total_entropy", bp_json_real(metrics->total_entropy));
        (void)json_object_set_new(line, "mutual_information",
                                  bp_json_real(metrics->mutual_information));
    }
    return line;
}

/* A draft of FOLDER/name. */
static bp_err open_draft(bp_draft *draft, const char *folder, const char *name)
{
    char *path = bp_path_join(folder, name);
    bp_err err = bp_draft_open(draft, path);

    bp_free(path);
    return err;
}

bp_err question_lines_write(const question_results *r, const question_metrics *metrics,
                            const char *folder)
{
    bp_draft draft;
    bp_err err = open_draft(&draft, folder, "questions.jsonl");

    if (err != BP_OK)
        return err;
    for (int64_t k = 0; err == BP_OK && k < r->set->count; k++)
        err = bp_json_write_line(&draft, line_of(r, &metrics[k], &r->set->questions[k]));
    return bp_draft_end(&draft, err);
}

/* ---- lm-evaluation-harness ---- */

/* [log-probability, greedy] of each request. */
static json_t *responses_of(const question_results *r, const bp_question *q)
{
    json_t *list = json_array();

    for (int64_t k = 0; k < q->options; k++)
        (void)json_array_append_new(
            list, json_pack("[o o]", logprob_json(r, q->first + k), greedy_of(r, q->first + k)));
    return list;
}

static void put_metrics(json_t *sample, const question_metrics *metrics, bool target)
{
    static const char *const WAYS[] = {"acc", "acc_bytes", NULL, "acc_mutual_info", "acc_norm"};
    json_t *names = json_array();

    for (int way = 0; way < QUESTION_WAYS; way++) {
        if (!WAYS[way] || isnan(metrics->right[way]))
            continue;
        (void)json_object_set_new(sample, WAYS[way], json_real(metrics->right[way]));
        (void)json_array_append_new(names, json_string(WAYS[way]));
    }
    if (target) {
        (void)json_object_set_new(sample, "perplexity", bp_json_real(metrics->logprob));
        (void)json_array_append_new(names, json_string("perplexity"));
    }
    (void)json_object_set_new(sample, "metrics", names);
}

static json_t *sample_of(const question_results *r, const question_metrics *metrics,
                         const bp_question *q, int64_t number_in_task)
{
    json_t *responses = responses_of(r, q), *doc = bp_question_object(r->set, q),
           *all = json_array();
    json_t *sample, *target;

    for (size_t k = 0; k < json_array_size(responses); k++)
        (void)json_array_append_new(all, json_pack("[O]", json_array_get(responses, k)));
    target = q->target        ? json_incref(json_object_get(doc, "target"))
             : q->answer >= 0 ? json_integer((json_int_t)q->answer)
                              : json_null();
    sample =
        json_pack("{sI so so so so ss}", "doc_id", (json_int_t)number_in_task, "doc", doc, "target",
                  target, "resps", all, "filtered_resps", responses, "filter", "none");
    put_metrics(sample, metrics, q->target);
    return sample;
}

/* A name as a unique part of a file name: characters not allowed in file names, and the percent
 * sign, as %XX. */
static char *file_name_of(const char *task)
{
    bp_buffer name = {0};

    bp_buffer_printf(&name, "samples_");
    for (const char *at = task; *at; at++)
        if (*at == '/' || *at == '%' || (unsigned char)*at < ' ')
            bp_buffer_printf(&name, "%%%02X", (unsigned char)*at);
        else
            bp_buffer_add(&name, at, 1);
    bp_buffer_printf(&name, ".jsonl");
    return bp_buffer_take(&name);
}

static bp_err write_samples(const question_results *r, const question_metrics *metrics,
                            const bp_work_job *job, int64_t task)
{
    char *name = file_name_of(r->set->name[task]);
    bp_draft draft;
    bp_err err = open_draft(&draft, job->folder, name);
    int64_t number_in_task = 0;

    if (err == BP_OK)
        bp_run_add_result(job->run, bp_path_in(job->work->name, name).text);
    bp_free(name);
    if (err != BP_OK)
        return err;
    for (int64_t k = 0; err == BP_OK && k < r->set->count; k++)
        if (r->set->questions[k].task == task)
            err = bp_json_write_line(
                &draft, sample_of(r, &metrics[k], &r->set->questions[k], number_in_task++));
    return bp_draft_end(&draft, err);
}

/* Standard error of a mean, as its mean_stderr: the sample's deviation over the root of n. */
static double error_of(double share, int64_t count)
{
    return count > 1 ? sqrt(share * (1 - share) / (double)(count - 1)) : NAN;
}

static void put_figure(json_t *to, const json_t *figures, const char *ours, const char *theirs)
{
    const json_t *figure = json_object_get(figures, ours),
                 *value = json_object_get(figure, "value");
    int64_t count = json_integer_value(json_object_get(figure, "questions"));
    char name[64];

    if (!json_is_number(value))
        return;
    snprintf(name, sizeof name, "%s,none", theirs);
    (void)json_object_set_new(to, name, json_real(json_number_value(value)));
    snprintf(name, sizeof name, "%s_stderr,none", theirs);
    (void)json_object_set_new(to, name,
                              strcmp(ours, "perplexity") == 0
                                  ? json_string("N/A")
                                  : bp_json_real(error_of(json_number_value(value), count)));
}

static json_t *results_of(const json_t *tasks, const char *model)
{
    json_t *results = json_object(), *counts = json_object();
    const char *name;
    json_t *figures;

    json_object_foreach((json_t *)tasks, name, figures)
    {
        int64_t count = json_integer_value(json_object_get(figures, "questions"));
        json_t *of = json_pack("{ss}", "alias", name);

        put_figure(of, figures, "acc", "acc");
        put_figure(of, figures, "acc_character", "acc_norm");
        put_figure(of, figures, "acc_norm", "acc_bytes");
        put_figure(of, figures, "acc_mutual", "acc_mutual_info");
        put_figure(of, figures, "perplexity", "perplexity");
        (void)json_object_set_new(results, name, of);
        (void)json_object_set_new(
            counts, name,
            json_pack("{sI sI}", "original", (json_int_t)count, "effective", (json_int_t)count));
    }
    return json_pack("{so so s{ss ss}}", "results", results, "n-samples", counts, "config", "model",
                     "bagpipe", "model_args", model);
}

bp_err question_harness_write(const question_results *r, const question_metrics *metrics,
                              const json_t *summary, const bp_work_job *job)
{
    const json_t *tasks = json_object_get(summary, "tasks");
    bp_draft draft;
    bp_err err = BP_OK;

    for (int64_t t = 0; err == BP_OK && t < r->set->names; t++)
        if (json_object_get(tasks, r->set->name[t]))
            err = write_samples(r, metrics, job, t);
    if (err == BP_OK)
        err = open_draft(&draft, job->folder, "results.json");
    if (err != BP_OK)
        return err;
    return bp_draft_end(
        &draft,
        bp_json_write_line(&draft, results_of(tasks, bp_score_keys_of(job->config)->model)));
}
