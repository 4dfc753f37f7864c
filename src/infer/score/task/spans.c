/* Answers to questions: for each window the most probable span of its context, for a question the
 * best one of all its windows. Called by task.c for each unit, and by report.c. */
#include "infer/score/task/task_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/page/page.h"
#include "io/corpus/corpus_writer.h"
#include "statistics/task_metrics.h"
#include "text/tokenizer/answers.h"
#include "text_metrics/text_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void task_take_span(const task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t w,
                    float *out)
{
    int64_t T = batch->length, none = task->documents.row[r].none,
            most = task_documents_answer_tokens(&task->documents);
    const int32_t *context = task->documents.row[r].context;
    const float *begins = task->log_p + 2 * w * T, *ends = begins + T;

    /* of both ends, at the window's first positions */
    for (int64_t k = 0; k < TASK_MORE && task->width > TASK_SPAN_COLUMNS; k++) {
        int64_t statistic =
            k == TASK_ENTROPY ? BP_MODEL_TOTAL_ENTROPY : BP_MODEL_MUTUAL_INFORMATION;
        const float *both = task->values + (statistic * batch->windows + w) * T;

        out[TASK_SPAN_COLUMNS + k] = both[0] + both[1];
    }
    out[SPAN_SCORE] = -INFINITY;
    out[SPAN_NONE] = begins[none] + ends[none];
    for (int64_t s = context[0]; s < context[1]; s++)
        for (int64_t e = s; e < context[1] && e < s + most; e++) {
            float score = begins[s] + ends[e];

            if (isnan(score) || score <= out[SPAN_SCORE])
                continue;
            out[SPAN_SCORE] = score;
            out[SPAN_FIRST] = (float)s;
            out[SPAN_LAST] = (float)e;
        }
}

/* ---- questions ---- */

typedef struct question {
    int64_t document;
    char id[BP_CORPUS_ID_BYTES + 1];
    char *answer; /* the prediction; "" if there is none */
    double probability;
    const float *more; /* [TASK_MORE] for an ensemble: of the best span's window */
    json_t *expected;  /* a list of texts; empty if there is no answer, null if unknown */
} question;

/* The best of windows [first, end), or no answer if that is more probable in each of them. */
static bp_err answer(const task_scoring *task, bp_encoder *encoder, int64_t first, int64_t end,
                     question *out)
{
    bool may_be_none = json_is_true(
        json_object_get(json_object_get(task->documents.state, "spans"), "unanswered"));
    const char *context, *answers;
    const float *best = NULL;
    double none = INFINITY;
    int64_t at = first;
    size_t begin, bytes;
    bp_err err;

    for (int64_t r = first; r < end; r++) {
        const float *row = task->table + r * task->width;

        none = fmin(none, (double)row[SPAN_NONE]);
        if (!best || row[SPAN_SCORE] > best[SPAN_SCORE]) {
            best = row;
            at = r;
        }
    }
    err = bp_corpus_answers(task->self->corpus, out->document, &context, &answers);
    if (err != BP_OK)
        return err;
    out->expected = json_loads(answers, JSON_DECODE_ANY, NULL);
    if (!json_is_array(out->expected) && !json_is_null(out->expected))
        return BP_FAIL(BP_ERR_FORMAT, "corpus.bad_answers",
                       "answers of document %" PRId64 " are not a list: at %s, span_texts",
                       out->document, bp_score_keys_of(task->self->config)->corpus);
    out->probability = exp((double)best[SPAN_SCORE]);
    out->more = best + TASK_SPAN_COLUMNS;
    if (best[SPAN_SCORE] == -INFINITY || (may_be_none && none > (double)best[SPAN_SCORE])) {
        out->probability = may_be_none ? exp(none) : 0;
        out->answer = bp_strdup("");
        return BP_OK;
    }
    err = bp_context_words_of(
        encoder, context, (int64_t)best[SPAN_FIRST] + task->documents.row[at].token,
        (int64_t)best[SPAN_LAST] + task->documents.row[at].token + 1, &begin, &bytes);
    if (err == BP_OK)
        out->answer = bp_sprintf("%.*s", (int)bytes, context + begin);
    return err;
}

static bp_err open_encoder(const task_scoring *task, bp_tokenizer **tokenizer, bp_encoder **encoder)
{
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_corpus_file_tokenizer(bp_corpus_file_at(task->self->corpus, 0), &text, &bytes);

    if (err == BP_OK && !text)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.no_tokenizer",
                      "the corpus does not hold its tokenizer, by which answers are found: at %s; "
                      "make it anew",
                      bp_score_keys_of(task->self->config)->corpus);
    if (err == BP_OK)
        err = bp_tokenizer_parse(tokenizer, text, bytes, "the corpus's tokenizer");
    if (err == BP_OK)
        err = bp_encoder_new(encoder, *tokenizer);
    bp_free(text);
    return err;
}

static bp_err answer_all(const task_scoring *task, question *questions, int64_t *count)
{
    bp_tokenizer *tokenizer = NULL;
    bp_encoder *encoder = NULL;
    bp_err err = open_encoder(task, &tokenizer, &encoder);

    *count = 0;
    for (int64_t first = 0, end; first < task->documents.count && err == BP_OK; first = end) {
        question *next = &questions[(*count)++];

        next->document =
            bp_document_table_document(task->documents.table, task->documents.number[first]);
        for (end = first + 1; end < task->documents.count && task->documents.row[end].window > 0;
             end++)
            ;
        err = answer(task, encoder, first, end, next);
        if (err == BP_OK)
            err = task_documents_id(&task->documents, next->document, next->id, sizeof next->id);
    }
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
    return err;
}

/* ---- the report ---- */

static bp_err write_answers(const task_scoring *task, const question *questions, int64_t count)
{
    char *table = bp_path_join(task->self->folder, "predictions.csv"),
         *squad = bp_path_join(task->self->folder, "predictions.json");
    json_t *texts = json_object();
    bp_buffer out = {0};
    bp_err err;

    bool more = task->width > TASK_SPAN_COLUMNS;

    bp_buffer_printf(&out, "document,label,prediction,probability%s,doc_id\n",
                     more ? ",entropy,mutual_information" : "");
    for (int64_t k = 0; k < count; k++) {
        const char *first = json_string_value(json_array_get(questions[k].expected, 0));

        bp_buffer_printf(&out, "%" PRId64 ",", questions[k].document);
        task_add_field(&out, first ? first : "");
        bp_buffer_printf(&out, ",");
        task_add_field(&out, questions[k].answer);
        bp_buffer_printf(&out, ",%.9g", questions[k].probability);
        if (more)
            bp_buffer_printf(&out, ",%.9g,%.9g", (double)questions[k].more[TASK_ENTROPY],
                             (double)questions[k].more[TASK_MUTUAL]);
        bp_buffer_printf(&out, ",");
        task_add_field(&out, questions[k].id);
        bp_buffer_printf(&out, "\n");
        (void)json_object_set_new(texts, questions[k].id, bp_json_string(questions[k].answer));
    }
    err = bp_file_write(table, out.data, out.bytes);
    if (err == BP_OK)
        err = bp_json_save(squad, texts);
    bp_buffer_clear(&out);
    json_decref(texts);
    bp_free(table);
    bp_free(squad);
    return err;
}

/* Reference k of a question; a question with fewer answers repeats them. */
static bp_line line_of(const question *one, size_t k)
{
    size_t answers = json_array_size(one->expected);
    const char *text =
        answers > 0 ? json_string_value(json_array_get(one->expected, k < answers ? k : 0)) : NULL;

    return (bp_line){text ? text : "", text ? strlen(text) : 0};
}

/* A text for the page; null if it is empty. */
static json_t *shown(const char *text)
{
    return text[0] ? bp_score_page_text(text, strlen(text)) : json_null();
}

/* The surest answers that are not exact, the surest first. */
static json_t *misses_of(const question *questions, const double *exact, int64_t count)
{
    const question *list[TASK_MISSES];
    int found = 0;
    json_t *rows = json_array();

    for (int64_t k = 0; k < count; k++) {
        const question *one = &questions[k];
        int at;

        if (exact[k] == 1 ||
            (found == TASK_MISSES && one->probability <= list[TASK_MISSES - 1]->probability))
            continue;
        found += found < TASK_MISSES;
        for (at = found - 1; at > 0 && list[at - 1]->probability < one->probability; at--)
            list[at] = list[at - 1];
        list[at] = one;
    }
    for (int k = 0; k < found; k++)
        (void)json_array_append_new(
            rows,
            json_pack("{s:o, s:I, s:o, s:o, s:f}", "id", shown(list[k]->id), "document",
                      (json_int_t)list[k]->document, "answer", shown(line_of(list[k], 0).text),
                      "prediction", shown(list[k]->answer), "probability", list[k]->probability));
    return rows;
}

static bp_err estimate(task_scoring *task, const question *questions, int64_t count, json_t **out)
{
    int64_t *numbers = bp_alloc("score.task", count, sizeof *numbers);
    size_t references = 1;
    bp_err err;

    for (int64_t k = 0; k < count; k++)
        if (json_array_size(questions[k].expected) > references)
            references = json_array_size(questions[k].expected);
    bp_line *lines = bp_alloc("score.task", (int64_t)(references + 1) * count, sizeof *lines);
    const bp_line **each = bp_alloc("score.task", (int64_t)references, sizeof *each);
    double *exact = bp_alloc("score.task", 2 * count, sizeof *exact), *f1 = exact + count;
    bp_span_answers answers = {count, exact, f1};
    for (int64_t k = 0; k < count; k++) {
        numbers[k] = questions[k].document;
        lines[k] = (bp_line){questions[k].answer, strlen(questions[k].answer)};
        for (size_t r = 0; r < references; r++)
            lines[(int64_t)(r + 1) * count + k] = line_of(&questions[k], r);
    }
    for (size_t r = 0; r < references; r++)
        each[r] = lines + (int64_t)(r + 1) * count;
    bp_spans_count(exact, f1,
                   &(bp_text_pairs){.documents = count,
                                    .references = (int64_t)references,
                                    .hypothesis = lines,
                                    .reference = each});
    task->misses = misses_of(questions, exact, count);
    err = task_estimate(out, task, &bp_metric_spans, &answers, numbers, count);
    bp_free(exact);
    bp_free(each);
    bp_free(lines);
    bp_free(numbers);
    return err;
}

/* Figures of questions whose answers are known. */
static bp_err measure(task_scoring *task, const question *questions, int64_t count, json_t **out)
{
    question *known = bp_alloc("score.task", count, sizeof *known);
    int64_t labelled = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < count; k++)
        if (json_is_array(questions[k].expected))
            known[labelled++] = questions[k];
    task->predictions = count;
    task->unlabelled = count - labelled;
    *out = NULL;
    if (task_has_figures(task))
        err = estimate(task, known, labelled, out);
    else
        *out = json_object();
    bp_free(known);
    return err;
}

bp_err task_measure_spans(task_scoring *task, json_t **out)
{
    question *questions = bp_alloc("score.task", task->documents.count, sizeof *questions);
    int64_t count;
    double sums[TASK_MORE] = {0};
    bp_err err = answer_all(task, questions, &count);

    if (err == BP_OK)
        err = write_answers(task, questions, count);
    if (err == BP_OK)
        err = measure(task, questions, count, out);
    for (int64_t k = 0; k < count; k++) {
        for (int c = 0; c < TASK_MORE && task->width > TASK_SPAN_COLUMNS && err == BP_OK; c++)
            sums[c] += (double)questions[k].more[c];
        bp_free(questions[k].answer);
        json_decref(questions[k].expected);
    }
    bp_free(questions);
    if (err == BP_OK && task->width > TASK_SPAN_COLUMNS)
        task_put_means(*out, sums, count);
    return err;
}
