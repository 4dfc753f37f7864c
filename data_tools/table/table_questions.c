/* bagpipe-data table of runs with score.questions: models by tasks and groups, with intervals: CSV,
 * or a table to read or to print. */
#include "table_questions.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "questions/answers.h"
#include "table_scores_priv.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { ACC = 0, FIGURES = 9, SHARED = FIGURES, NAMED };

/* acc_ties_shared is a number, and the others have intervals. */
static const char *const NAMES[NAMED] = {
    "acc",        "acc_norm", "acc_character", "acc_token", "acc_mutual",
    "perplexity", "nll",      "brier",         "ece",       "acc_ties_shared"};

/* A row: of all tasks, of a task, or of a group of it. */
typedef struct question_row {
    const char *task, *group; /* borrowed; NULL: all */
} question_row;

typedef struct question_table {
    answers *models; /* [count] */
    char **names;    /* [count] */
    int64_t count;
    question_row *rows;
    int64_t row_count;
    int figure;
    char *note; /* NULL: none */
} question_table;

/* ---- rows ---- */

static const json_t *figures_at(const question_table *table, int64_t model, const question_row *row)
{
    const json_t *summary = table->models[model].summary, *task;

    if (!row->task)
        return json_object_get(summary, "all");
    task = json_object_get(json_object_get(summary, "tasks"), row->task);
    return row->group ? json_object_get(json_object_get(task, "groups"), row->group) : task;
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void add_row(question_table *table, const char *task, const char *group)
{
    for (int64_t k = 0; k < table->row_count; k++)
        if (same(table->rows[k].task, task) && same(table->rows[k].group, group))
            return;
    table->rows = bp_realloc("tool.rows", table->rows, table->row_count + 1, sizeof *table->rows);
    table->rows[table->row_count++] = (question_row){task, group};
}

/* All tasks first, if there are several; each task before its groups. */
static void find_rows(question_table *table)
{
    for (int64_t m = 0; m < table->count; m++)
        if (json_object_size(json_object_get(table->models[m].summary, "tasks")) > 1)
            add_row(table, NULL, NULL);
    for (int64_t m = 0; m < table->count; m++) {
        json_t *tasks = json_object_get(table->models[m].summary, "tasks"), *task, *group;
        const char *name, *part;

        json_object_foreach(tasks, name, task)
        {
            add_row(table, name, NULL);
            json_object_foreach(json_object_get(task, "groups"), part, group)
                add_row(table, name, part);
        }
    }
}

static score_figure figure_of(const question_table *table, int64_t model, const question_row *row,
                              int figure)
{
    const json_t *figures = figures_at(table, model, row);
    const json_t *of = json_object_get(figures, NAMES[figure]);

    if (figure == SHARED && of)
        return (score_figure){json_number_value(of), {NAN, NAN}};
    if (figure == SHARED) /* no ties */
        of = json_object_get(figures, NAMES[ACC]);
    return (score_figure){bp_json_number(of, "value"),
                          {bp_json_number(of, "low"), bp_json_number(of, "high")}};
}

/* ---- notes ---- */

static void add_sentence(bp_buffer *note, char *sentence)
{
    bp_buffer_printf(note, "%s%s", note->bytes > 0 ? " " : "", sentence);
    bp_free(sentence);
}

/* Settings of the models, and questions, that differ; ties. */
static void add_note(question_table *table)
{
    const json_t *first = table->models[0].summary;
    bp_buffer note = {0};
    bool questions = false;

    for (int64_t m = 0; m < table->count; m++) {
        const json_t *summary = table->models[m].summary, *all = json_object_get(summary, "all");
        int64_t ties = table->figure == ACC ? json_integer_value(json_object_get(all, "ties")) : 0;

        char *differs = answers_differences(first, summary);
        if (differs)
            add_sentence(&note, bp_sprintf("%s and %s differ in %s.", table->names[0],
                                           table->names[m], differs));
        bp_free(differs);
        for (int64_t r = 0; r < table->row_count; r++)
            questions =
                questions ||
                !json_equal(json_object_get(figures_at(table, m, &table->rows[r]), "questions"),
                            json_object_get(figures_at(table, 0, &table->rows[r]), "questions"));
        if (ties > 0)
            add_sentence(&note,
                         bp_sprintf("%s: %" PRId64 " of %" PRId64
                                    " questions have best options that are equally probable, and "
                                    "the first of them is taken; acc is %.4g if the answer counts "
                                    "as its share of them.",
                                    table->names[m], ties,
                                    (int64_t)json_integer_value(json_object_get(all, "questions")),
                                    bp_json_number(all, "acc_ties_shared")));
    }
    if (questions)
        add_sentence(&note, bp_strdup("The models were asked other questions."));
    if (note.bytes > 0) {
        bp_buffer_add(&note, "", 1);
        table->note = bp_buffer_take(&note);
    }
    bp_buffer_clear(&note);
}

/* ---- output ---- */

static void put_rows(FILE *out, const void *context)
{
    const question_table *table = context;

    fprintf(out, "model,task,group,questions");
    for (int f = 0; f < FIGURES; f++)
        fprintf(out, ",%s,%s_low,%s_high", NAMES[f], NAMES[f], NAMES[f]);
    fprintf(out, ",ties,acc_ties_shared\n");
    for (int64_t m = 0; m < table->count; m++)
        for (int64_t r = 0; r < table->row_count; r++) {
            const question_row *row = &table->rows[r];
            const json_t *figures = figures_at(table, m, row);
            const char *const texts[] = {table->names[m], row->task ? row->task : "",
                                         row->group ? row->group : ""};

            if (!figures)
                continue;
            for (int t = 0; t < 3; t++) {
                put_csv(out, texts[t], SIZE_MAX);
                putc(',', out);
            }
            fprintf(out, "%" JSON_INTEGER_FORMAT,
                    json_integer_value(json_object_get(figures, "questions")));
            for (int f = 0; f < FIGURES; f++) {
                score_figure figure = figure_of(table, m, row, f);

                put_csv_real(out, figure.value);
                put_csv_real(out, figure.interval.low);
                put_csv_real(out, figure.interval.high);
            }
            fprintf(out, ",%" JSON_INTEGER_FORMAT,
                    json_integer_value(json_object_get(figures, "ties")));
            put_csv_real(out, figure_of(table, m, row, SHARED).value);
            putc('\n', out);
        }
}

static void put_form(FILE *out, const void *context, const form *f)
{
    const question_table *table = context;
    int64_t columns = 2 + table->count, rows = 1 + table->row_count;
    char **texts = bp_alloc("tool.texts", rows * columns, sizeof *texts);

    texts[0] = table_spell(f, "%s", NAMES[table->figure]);
    texts[1] = table_spell(f, "questions");
    for (int64_t m = 0; m < table->count; m++)
        texts[2 + m] = table_spell(f, "%s", table->names[m]);
    for (int64_t r = 0; r < table->row_count; r++) {
        const question_row *row = &table->rows[r];
        char **cells = texts + (1 + r) * columns;
        int64_t questions = 0;

        cells[0] = !row->task   ? table_spell(f, "all")
                   : row->group ? table_spell(f, "%s %s", row->task, row->group)
                                : table_spell(f, "%s", row->task);
        for (int64_t m = 0; m < table->count; m++) {
            const json_t *figures = figures_at(table, m, row);
            score_figure figure = figure_of(table, m, row, table->figure);

            questions = figures && questions == 0
                            ? json_integer_value(json_object_get(figures, "questions"))
                            : questions;
            cells[2 + m] = table_spell_figure(f, &figure);
        }
        cells[1] = bp_sprintf("%" PRId64, questions);
    }
    table_put_texts(out, f, texts, rows, columns, table->note);
    for (int64_t k = 0; k < rows * columns; k++)
        bp_free(texts[k]);
    bp_free(texts);
}

/* ---- the tool ---- */

static bp_err choose_figure(question_table *table, const char *name)
{
    for (int f = 0; f < NAMED; f++)
        if (!name || strcmp(name, NAMES[f]) == 0) {
            table->figure = f;
            return BP_OK;
        }
    return BP_FAIL(
        BP_ERR_USAGE, "table.bad_figure",
        "'%.100s' is not a figure of questions: at the command line; give acc, acc_norm, "
        "acc_character, acc_token, acc_mutual, perplexity, nll, brier, ece or acc_ties_shared",
        name);
}

static bp_err add_model(question_table *table, const char *given)
{
    const char *folder = named_folder(given);
    char *run = table_run_folder(folder, "/score"),
         *name = folder == given ? bp_strdup(bp_path_base(run))
                                 : bp_sprintf("%.*s", (int)(folder - 1 - given), given);

    for (int64_t m = 0; m < table->count && folder == given; m++)
        if (strcmp(table->names[m], name) == 0) { /* two runs of one name: by their paths */
            bp_free(name);
            name = bp_strdup(run);
        }
    table->models[table->count] = (answers){0};
    table->names[table->count] = name;
    bp_free(run);
    return answers_load(&table->models[table->count++], folder, false);
}

static bp_err check_options(const file_options *options)
{
    const char *out = options->out;

    if (options->clean)
        return BP_FAIL(BP_ERR_USAGE, "table.bad_form",
                       "--clean is of scores of corpora, and these are answers to questions: at "
                       "the command line; leave it out");
    if (table_is_picture(out))
        return BP_FAIL(BP_ERR_USAGE, "table.bad_ending",
                       "a table of answers ends with .csv, .txt, .md or .tex: at --out=%s; each "
                       "run's picture is in score/index.html",
                       out);
    return BP_OK;
}

bp_err table_of_questions(char *const *folders, int count, const file_options *options)
{
    question_table table = {.models = bp_alloc("tool.models", count, sizeof(answers)),
                            .names = bp_alloc("tool.models", count, sizeof(char *))};
    const form *f = NULL;
    bp_err err = check_options(options);

    bp_log_set_member("", true); /* standard output is the table's, and not the log's */
    (void)bp_log_use(BP_LOG_MEMBER);
    if (err == BP_OK)
        err = table_choose_form(&f, options);
    if (err == BP_OK)
        err = choose_figure(&table, options->figure);
    for (int k = 0; k < count && err == BP_OK; k++)
        err = add_model(&table, folders[k]);
    if (err == BP_OK)
        err = check_names((const char *const *)table.names, folders, table.count);
    if (err == BP_OK) {
        find_rows(&table);
        add_note(&table);
        if (table.note && (!f || options->out))
            BP_WARN("table.answers", "of these answers: %s", table.note);
        err = table_write(options->out, f, &table, put_form, put_rows);
    }
    for (int64_t m = 0; m < table.count; m++) {
        answers_clear(&table.models[m]);
        bp_free(table.names[m]);
    }
    bp_free(table.names);
    bp_free(table.models);
    bp_free(table.rows);
    bp_free(table.note);
    return err;
}
