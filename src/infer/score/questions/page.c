/* score/index.html of a question set: figures by task and group, accuracies, calibration, the most
 * confident mistakes. Called by questions.c, on the coordinator. */
#include "infer/score/questions/questions_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/keys.h"
#include "infer/score/page/page.h"
#include "job/report/report.h"
#include "statistics/calibration.h"

#include <math.h>
#include <string.h>

#define ROWS_MOST   500 /* of the tables */
#define DRAWN_MOST  60  /* tasks and groups of the plot */
#define LISTED_MOST 10  /* questions of a list */
#define TEXT_BYTES  300 /* the most bytes of a question's end, and of an option */

/* ---- tables ---- */

/* {"value", "low", "high"}, texts; null if there is no such figure. of: how many questions it is
 * of, if they are not all of the row. */
static json_t *cell_of(const json_t *figures, const char *name)
{
    json_int_t known =
                   json_integer_value(json_object_get(json_object_get(figures, name), "questions")),
               all = json_integer_value(json_object_get(figures, "questions"));
    double value = bp_json_number(json_object_get(figures, name), "value"),
           low = bp_json_number(json_object_get(figures, name), "low"),
           high = bp_json_number(json_object_get(figures, name), "high"), error = (high - low) / 2;
    json_t *cell = json_object();

    if (strcmp(name, "perplexity") == 0) {
        bp_score_page_add_figure(cell, "value", value, error);
        bp_score_page_add_figure(cell, "low", low, error);
        bp_score_page_add_figure(cell, "high", high, error);
    } else {
        bp_score_page_add_value(cell, "value", "%.3f", value);
        bp_score_page_add_value(cell, "low", "%.3f", low);
        bp_score_page_add_value(cell, "high", "%.3f", high);
    }
    if (known > 0 && known < all)
        (void)json_object_set_new(cell, "of", json_integer(known));
    return cell;
}

static const char *const ACCURACIES[][2] = {{"acc", "by log-probability"},
                                            {"acc_norm", "over bytes"},
                                            {"acc_character", "over characters"},
                                            {"acc_token", "over tokens"},
                                            {"acc_mutual", "less the bare one"}},
                         *const OTHERS[][2] = {{"nll", "NLL of the answer, nats"},
                                               {"brier", "Brier score"},
                                               {"ece", "ECE"},
                                               {"total_entropy", "entropy, nats"},
                                               {"mutual_information", "mutual information, nats"},
                                               {"perplexity", "perplexity of targets"}};

enum {
    ACCURACY_COLUMNS = sizeof ACCURACIES / sizeof ACCURACIES[0],
    OTHER_COLUMNS = sizeof OTHERS / sizeof OTHERS[0]
};

/* Columns that some row has: their titles, and each row's cells. all: over every question. */
static json_t *table_of(const json_t *rows, const json_t *all, const char *const (*columns)[2],
                        int count)
{
    json_t *titles = json_array(), *out = json_array(), *row;
    size_t k;

    for (int c = 0; c < count; c++)
        if (json_object_get(all, columns[c][0]))
            (void)json_array_append_new(titles, json_string(columns[c][1]));
    json_array_foreach((json_t *)rows, k, row)
    {
        json_t *cells = json_array();

        for (int c = 0; c < count; c++)
            if (json_object_get(all, columns[c][0]))
                (void)json_array_append_new(
                    cells, cell_of(json_object_get(row, "figures"), columns[c][0]));
        (void)json_array_append_new(out, json_pack("{s:O, s:O, s:O, s:O, s:o}", "name",
                                                   json_object_get(row, "name"), "group",
                                                   json_object_get(row, "group"), "questions",
                                                   json_object_get(row, "questions"), "chance",
                                                   json_object_get(row, "chance"), "cells", cells));
    }
    if (json_array_size(titles) > 0)
        return json_pack("{s:o, s:o}", "titles", titles, "rows", out);
    json_decref(titles);
    json_decref(out);
    return json_null();
}

/* The accuracy of guessing for the questions of a task (-1: all) and a group (-1: all). NaN if none
 * has an answer, and where targets are among them, which have accuracies but no chance. */
static double chance_of(const bp_question_set *set, int64_t task, int64_t group)
{
    double sum = 0, count = 0;

    for (int64_t k = 0; k < set->count; k++) {
        const bp_question *q = &set->questions[k];

        if ((task >= 0 && q->task != task) || (group >= 0 && q->group != group))
            continue;
        if (q->target)
            return NAN;
        if (q->answer >= 0) {
            sum += 1 / (double)q->options;
            count++;
        }
    }
    return sum / count;
}

static void add_row(json_t *rows, const char *name, const json_t *figures, double chance,
                    bool is_group)
{
    json_t *row = json_pack("{s:o, s:b, s:O, s:O}", "name", bp_score_page_text(name, strlen(name)),
                            "group", (int)is_group, "questions",
                            json_object_get(figures, "questions"), "figures", figures);

    bp_score_page_add_value(row, "chance", "%.3f", chance);
    if (json_array_size(rows) < ROWS_MOST)
        (void)json_array_append(rows, row);
    json_decref(row);
}

/* Tasks, each followed by its groups; "all questions" first if there are several tasks. */
static json_t *rows_of(const bp_question_set *set, const json_t *summary)
{
    const json_t *tasks = json_object_get(summary, "tasks");
    json_t *rows = json_array();

    if (json_object_size(tasks) > 1)
        add_row(rows, "all questions", json_object_get(summary, "all"), chance_of(set, -1, -1),
                false);
    for (int64_t t = 0; t < set->names; t++) {
        const json_t *task = json_object_get(tasks, set->name[t]),
                     *groups = json_object_get(task, "groups");

        if (task)
            add_row(rows, set->name[t], task, chance_of(set, t, -1), false);
        for (int64_t g = 0; groups && g < set->names; g++)
            if (json_object_get(groups, set->name[g]))
                add_row(rows, set->name[g], json_object_get(groups, set->name[g]),
                        chance_of(set, t, g), true);
    }
    return rows;
}

/* ---- plots ---- */

/* page.accuracies for the rows that have one: row,accuracy,low,high,chance */
static bp_err add_accuracies(json_t *page, const json_t *rows)
{
    json_t *names = json_array(), *drawn = json_object(), *variables, *row;
    bp_buffer values = {0};
    bp_err err = BP_OK;
    size_t k;

    json_array_foreach((json_t *)rows, k, row)
    {
        const json_t *figures = json_object_get(row, "figures");
        const char *chance = json_string_value(json_object_get(row, "chance"));
        bool is_group = json_is_true(json_object_get(row, "group"));

        if (isnan(bp_json_number(json_object_get(figures, "acc"), "value")) ||
            json_array_size(names) == DRAWN_MOST)
            continue;
        (void)json_array_append_new(names,
                                    json_sprintf("%s%s", is_group ? "  " : "",
                                                 json_string_value(json_object_get(row, "name"))));
        bp_buffer_printf(&values, "%zu,%.6g,%.6g,%.6g,%s\n", json_array_size(names),
                         bp_json_number(json_object_get(figures, "acc"), "value"),
                         bp_json_number(json_object_get(figures, "acc"), "low"),
                         bp_json_number(json_object_get(figures, "acc"), "high"),
                         chance ? chance : "NaN");
    }
    if (json_array_size(names) > 0) {
        variables =
            json_pack("{s:O, s:s}", "names", names, "$accuracies", values.data ? values.data : "");
        err = bp_report_plot(drawn, "questions", variables, "accuracies");
        (void)json_object_set(page, "accuracies", drawn);
        json_decref(variables);
    }
    json_decref(drawn);
    json_decref(names);
    bp_buffer_clear(&values);
    return err;
}

/* page.reliability for the questions with choices and an answer. */
static bp_err add_reliability(json_t *page, const bp_question_set *set,
                              const question_metrics *metrics)
{
    bp_calibration sums = {0};
    json_t *drawn;
    bp_err err;

    for (int64_t k = 0; k < set->count; k++)
        bp_calibration_add(&sums, (float)metrics[k].confidence, metrics[k].right[QUESTION_ACC] > 0,
                           metrics[k].nll, metrics[k].brier);
    if (bp_calibration_tokens(&sums) == 0)
        return BP_OK;
    drawn = json_object();
    err = score_page_add_reliability(drawn, &sums, true);
    (void)json_object_set_new(page, "reliability", drawn);
    return err;
}

/* ---- lists of questions ---- */

/* The end of a text, or its beginning, whole characters of it. */
static json_t *part_of(const json_t *text, bool end)
{
    const char *all = json_is_string(text) ? json_string_value(text) : "";
    size_t bytes = strlen(all), first = end && bytes > TEXT_BYTES ? bytes - TEXT_BYTES : 0,
           last = !end && bytes > TEXT_BYTES ? TEXT_BYTES : bytes;
    char *shown;
    json_t *part;

    while ((all[first] & 0xC0) == 0x80)
        first++;
    while (last < bytes && (all[last] & 0xC0) == 0x80)
        last--;
    shown = bp_sprintf("%s%.*s%s", first > 0 ? "\xE2\x80\xA6" : "", (int)(last - first),
                       all + first, last < bytes ? "\xE2\x80\xA6" : "");
    part = bp_score_page_text(shown, strlen(shown));
    bp_free(shown);
    return part;
}

/* The text of a question: the end of the context or, with several contexts, the target. */
static const json_t *asked_of(const json_t *object)
{
    const json_t *context = json_object_get(object, "context");

    return context ? context : json_object_get(object, "target");
}

static const json_t *option_of(const json_t *object, int64_t option)
{
    const json_t *options = json_object_get(object, "choices");

    return json_array_get(options ? options : json_object_get(object, "contexts"), (size_t)option);
}

static json_t *question_row(const bp_question_set *set, const question_metrics *metrics, int64_t k)
{
    const bp_question *q = &set->questions[k];
    const question_metrics *of = &metrics[k];
    json_t *object = bp_question_object(set, q), *row, *id = json_object_get(object, "id");
    const char *task = set->name[q->task];

    row = json_pack("{s:o, s:o, s:o}", "task", bp_score_page_text(task, strlen(task)), "id",
                    json_is_string(id) ? part_of(id, false)
                    : id               ? json_incref(id)
                                       : json_null(),
                    "asked", part_of(asked_of(object), true));
    if (q->target) {
        (void)json_object_set_new(row, "target", part_of(json_object_get(object, "target"), false));
        bp_score_page_add_value(row, "logprob", "%.1f", of->logprob);
    } else {
        (void)json_object_set_new(row, "chosen", part_of(option_of(object, of->best), false));
        (void)json_object_set_new(row, "answer",
                                  q->answer < 0 ? json_null()
                                                : part_of(option_of(object, q->answer), false));
        bp_score_page_add_value(row, "confidence", "%.3f", of->confidence);
        bp_score_page_add_value(row, "of_answer", "%.3g", exp(-of->nll));
        bp_score_page_add_value(row, "information", "%.3g", of->mutual_information);
    }
    json_decref(object);
    return row;
}

/* The sort key of a list of questions, the largest first; NaN if the question is not in the
 * list. */
static double mistake(const question_metrics *of)
{
    return of->right[QUESTION_ACC] < 1 ? of->confidence : NAN;
}

static double surprise(const question_metrics *of)
{
    return -of->logprob;
}

static double disagreement(const question_metrics *of)
{
    return of->mutual_information > 0 ? of->mutual_information : NAN;
}

static json_t *list_of(const bp_question_set *set, const question_metrics *metrics,
                       double (*value)(const question_metrics *))
{
    int64_t list[LISTED_MOST];
    int count = 0;
    json_t *rows = json_array();

    for (int64_t k = 0; k < set->count; k++) {
        double own = value(&metrics[k]);
        int at = count;

        if (isnan(own) || (count == LISTED_MOST && own <= value(&metrics[list[count - 1]])))
            continue;
        count += count < LISTED_MOST;
        at = at < LISTED_MOST ? at : LISTED_MOST - 1;
        for (; at > 0 && value(&metrics[list[at - 1]]) < own; at--)
            list[at] = list[at - 1];
        list[at] = k;
    }
    for (int k = 0; k < count; k++)
        (void)json_array_append_new(rows, question_row(set, metrics, list[k]));
    if (count > 0)
        return json_pack("{s:o}", "rows", rows);
    json_decref(rows);
    return json_null();
}

/* ---- notes ---- */

static void add_ties(json_t *page, const json_t *all)
{
    json_t *ties;

    if (!json_object_get(all, "ties"))
        return;
    ties = json_pack("{s:O, s:O}", "count", json_object_get(all, "ties"), "of",
                     json_object_get(all, "questions"));
    bp_score_page_add_value(ties, "value", "%.3f",
                            bp_json_number(json_object_get(all, "acc"), "value"));
    bp_score_page_add_value(ties, "shared", "%.3f",
                            json_real_value(json_object_get(all, "acc_ties_shared")));
    (void)json_object_set_new(page, "ties", ties);
}

/* The tokens that precede contexts, and that an empty one is. */
static void add_prefix(json_t *page, const questions *self)
{
    const char *const names[] = {"first", "alone"};

    for (int k = 0; k < 2; k++)
        if (self->lead[k])
            (void)json_object_set_new(page, names[k],
                                      bp_score_page_text(self->lead[k], strlen(self->lead[k])));
}

/* ---- all ---- */

void question_page_write(const questions *self, const question_results *results,
                         const question_metrics *metrics)
{
    const bp_question_set *set = &self->set;
    const json_t *all = json_object_get(self->summary, "all");
    const char *model = bp_score_keys_of(self->job->config)->model;
    json_t *rows = rows_of(set, self->summary), *page;
    char *title = bp_sprintf("Answers of %s", bp_path_base(model));
    bp_err err;

    page = json_pack(
        "{s:o, s:o, s:I, s:I, s:b, s:I, s:I, s:I, s:s, s:o, s:o}", "title",
        bp_score_page_text(title, strlen(title)), "model", bp_score_page_text(model, strlen(model)),
        "step", (json_int_t)self->job->info.step, "members", (json_int_t)results->members,
        "ensemble", results->members > 0, "questions", (json_int_t)set->count, "texts",
        (json_int_t)set->options, "tasks",
        (json_int_t)json_object_size(json_object_get(self->summary, "tasks")), "prefix",
        self->prefix, "accuracy_table", table_of(rows, all, ACCURACIES, ACCURACY_COLUMNS),
        "other_table", table_of(rows, all, OTHERS, OTHER_COLUMNS));
    (void)json_object_set_new(page, "mistakes", list_of(set, metrics, mistake));
    (void)json_object_set_new(page, "targets", list_of(set, metrics, surprise));
    (void)json_object_set_new(page, "disputed", list_of(set, metrics, disagreement));
    if (set->rows.unscored > 0)
        (void)json_object_set_new(page, "unscored", json_integer(set->rows.unscored));
    if (set->cut > 0)
        (void)json_object_set_new(page, "cut", json_integer(set->cut));
    add_ties(page, all);
    add_prefix(page, self);
    err = add_accuracies(page, rows);
    if (err == BP_OK)
        err = add_reliability(page, set, metrics);
    bp_work_write_page(self->job, "questions", page, err);
    json_decref(rows);
    bp_free(title);
}
