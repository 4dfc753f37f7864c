/* bagpipe-data table STUDY...: methods of uncertainty by figures, with intervals: CSV, or a table
 * to read or to print. */
#include "table_studies.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "table_scores_priv.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SUMMARY_LIMIT ((int64_t)1 << 30)

/* A column: a figure of a method, one of a shift by a score, or one of its conformal sets. */
typedef struct study_head {
    const char *figure, *shift, *score; /* borrowed; the last two NULL in the domain */
    const char *sets;                   /* the kind of sets; NULL: no figure of sets */
} study_head;

typedef struct study_row {
    const char *study, *name; /* borrowed */
    const json_t *method;
} study_row;

typedef struct studies {
    json_t **summaries;
    char **folders; /* run folders */
    int64_t count;
    study_row *rows;
    int64_t row_count;
    study_head *heads;
    int64_t head_count;
    bool found; /* a column for what was asked for */
    bool of_tokens;
} studies;

/* ---- reading ---- */

static char *summary_of(const char *folder)
{
    char *inside = bp_path_join(folder, "uncertainty"), *path;

    path = bp_path_join(bp_path_is_dir(inside) ? inside : folder, "summary.json");
    bp_free(inside);
    return path;
}

bool table_is_of_studies(const char *given)
{
    const char *folder = named_folder(given);
    char *inside = bp_path_join(folder, "uncertainty"),
         *table = bp_path_join(folder, "methods.csv");
    bool is = bp_path_is_dir(inside) || bp_path_exists(table);

    bp_free(table);
    bp_free(inside);
    return is;
}

static bp_err add_study(studies *all, const char *given)
{
    const char *folder = named_folder(given);
    char *path = summary_of(folder);
    const json_t *methods = NULL;
    const char *name, *predictions;
    json_t *summary = NULL, *method;
    bp_err err = bp_json_load_plain(&summary, path, SUMMARY_LIMIT);

    if (err == BP_OK) {
        methods = json_object_get(summary, "methods");
        predictions = json_string_value(json_object_get(summary, "predictions"));
        all->of_tokens = all->of_tokens || (predictions && strcmp(predictions, "tokens") == 0);
        if (json_object_size(methods) == 0)
            err = BP_FAIL(BP_ERR_FORMAT, "table.no_study",
                          "it has no methods: at %s; name run.dir of an uncertainty job", path);
    }
    all->summaries = bp_realloc("tool.studies", all->summaries, all->count + 1, sizeof summary);
    all->folders = bp_realloc("tool.studies", all->folders, all->count + 1, sizeof *all->folders);
    all->folders[all->count] = folder == given
                                   ? table_run_folder(folder, "/uncertainty")
                                   : bp_sprintf("%.*s", (int)(folder - 1 - given), given);
    all->summaries[all->count++] = summary;
    json_object_foreach((json_t *)(uintptr_t)methods, name, method)
    {
        all->rows = bp_realloc("tool.studies", all->rows, all->row_count + 1, sizeof *all->rows);
        all->rows[all->row_count++] = (study_row){all->folders[all->count - 1], name, method};
    }
    bp_free(path);
    return err;
}

/* ---- columns ---- */

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void add_head(studies *all, study_head head)
{
    all->found = true;
    for (int64_t k = 0; k < all->head_count; k++)
        if (same(all->heads[k].figure, head.figure) && same(all->heads[k].shift, head.shift) &&
            same(all->heads[k].score, head.score) && same(all->heads[k].sets, head.sets))
            return;
    all->heads = bp_realloc("tool.studies", all->heads, all->head_count + 1, sizeof *all->heads);
    all->heads[all->head_count++] = head;
}

/* Does a method have a figure with places for its interval? */
static bool is_figure(const json_t *method, const char *key)
{
    char *low = bp_sprintf("%s_low", key);
    bool is = json_object_get(method, low) != NULL;

    bp_free(low);
    return is;
}

/* One of the figures that say the same in other words is shown, unless another is asked for. */
static bool is_shown(const studies *all, const char *key)
{
    return strcmp(key, "ece_adaptive") != 0 && strcmp(key, "squared_calibration_error") != 0 &&
           strcmp(key, "squared_calibration_error_tempered") != 0 && strcmp(key, "mse") != 0 &&
           (strcmp(key, "perplexity") != 0 || all->of_tokens);
}

static void add_detections(studies *all, const json_t *method, const char *figure)
{
    const char *shift, *score;
    json_t *figures, *value;

    json_object_foreach(json_object_get(method, "ood"), shift, figures)
    {
        json_object_foreach(json_object_get(figures, figure), score, value)
            add_head(all, (study_head){.figure = figure, .shift = shift, .score = score});
    }
}

#define MEAN "mean" /* of a score, of the documents of a group */

/* Of each group: does a method have the mean of this score? */
static void add_means(studies *all, const json_t *method, const char *asked)
{
    const char *group, *score;
    json_t *figures, *value;

    json_object_foreach(json_object_get(method, "scores"), group, figures)
    {
        json_object_foreach(json_object_get(figures, MEAN), score, value)
        {
            if (strcmp(score, asked) == 0)
                add_head(all, (study_head){.figure = MEAN, .shift = group, .score = score});
        }
    }
}

/* Names that stand for several columns. */
static const char *const DETECTIONS[] = {"auroc", "aupr", "fpr95"},
                         *const SETS[] = {"coverage", "size"},
                         *const KINDS[] = {"lac", "aps", "raps"};
#define ALL_SETS "sets"

/* The one of the names that is meant; NULL: none. */
static const char *find_name(const char *const *names, size_t count, const char *name)
{
    for (size_t k = 0; k < count; k++)
        if (strcmp(names[k], name) == 0)
            return names[k];
    return NULL;
}

/* In the domain; `figure` NULL: coverage and size. */
static void add_sets(studies *all, const json_t *method, const char *figure)
{
    const json_t *domain = json_object_get(json_object_get(method, "sets"), "in_domain");

    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        for (size_t f = 0; f < sizeof SETS / sizeof SETS[0]; f++)
            if (json_object_get(domain, KINDS[k]) && (!figure || strcmp(figure, SETS[f]) == 0))
                add_head(all, (study_head){.figure = SETS[f], .sets = KINDS[k]});
}

/* Is it a number, or none of this method, that can be asked for? Figures with intervals are shown
 * without. */
static bool is_number(const json_t *value)
{
    return json_is_number(value) || json_is_null(value);
}

/* asked NULL: all figures with intervals. */
static void add_figures(studies *all, const json_t *method, const char *asked)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)method, key, value)
    {
        if (asked ? strcmp(key, asked) == 0 && is_number(value)
                  : is_figure(method, key) && is_shown(all, key))
            add_head(all, (study_head){.figure = key});
    }
}

/* With the names of figures that have intervals, in a line that is not cut. */
static bp_err refuse_figure(const studies *all, const char *asked)
{
    const json_t *method = all->rows[0].method;
    bp_buffer names = {0};
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)method, key, value)
    {
        if (is_figure(method, key) && is_shown(all, key) && !bp_has_suffix(key, "_tempered") &&
            strncmp(key, "accuracy_at_", 12) != 0)
            bp_buffer_printf(&names, "%s, ", key);
    }
    bp_err err = BP_FAIL(BP_ERR_USAGE, "table.bad_figure",
                         "no method has the figure '%.100s': at the command line; give some of "
                         "%sNAME_tempered of these, accuracy_at_80, temperature, auroc, aupr, "
                         "fpr95, sets, coverage, size, a score (mutual_information) for its mean "
                         "in each group, or another number of a method in summary.json",
                         asked, names.bytes > 0 ? names.data : "");
    bp_buffer_clear(&names);
    return err;
}

static bp_err add_asked(studies *all, const char *asked)
{
    const char *detection = find_name(DETECTIONS, sizeof DETECTIONS / sizeof DETECTIONS[0], asked),
               *sets = find_name(SETS, sizeof SETS / sizeof SETS[0], asked);

    all->found = false;
    for (int64_t r = 0; r < all->row_count; r++) {
        const json_t *method = all->rows[r].method;

        if (detection)
            add_detections(all, method, detection);
        else if (sets || strcmp(asked, ALL_SETS) == 0)
            add_sets(all, method, sets);
        else
            add_figures(all, method, asked);
    }
    bool is_figure_too = all->found; /* nll: the score's means are in summary.json alone */

    for (int64_t r = 0; r < all->row_count && !is_figure_too; r++)
        add_means(all, all->rows[r].method, asked);
    return all->found ? BP_OK : refuse_figure(all, asked);
}

/* asked: a list with commas, or NULL. */
static bp_err find_heads(studies *all, const char *asked)
{
    bp_err err = BP_OK;

    for (int64_t r = 0; r < all->row_count && !asked; r++)
        add_figures(all, all->rows[r].method, NULL);
    while (asked && err == BP_OK) {
        size_t bytes = strcspn(asked, ",");
        char *one = bp_sprintf("%.*s", (int)bytes, asked);

        err = add_asked(all, one);
        bp_free(one);
        asked = asked[bytes] == ',' ? asked + bytes + 1 : NULL;
    }
    return err;
}

static double real_at(const json_t *object, const char *figure, const char *end, const char *score)
{
    char *key = bp_sprintf("%s%s", figure, end);
    const json_t *value = json_object_get(object, key);

    if (score)
        value = json_object_get(value, score);
    bp_free(key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static score_figure figure_of(const study_row *row, const study_head *head)
{
    const json_t *sets = json_object_get(json_object_get(row->method, "sets"), "in_domain"),
                 *from =
                     head->shift
                         ? json_object_get(
                               json_object_get(row->method,
                                               strcmp(head->figure, MEAN) == 0 ? "scores" : "ood"),
                               head->shift)
                     : head->sets ? json_object_get(sets, head->sets)
                                  : row->method;

    return (score_figure){real_at(from, head->figure, "", head->score),
                          {real_at(from, head->figure, "_low", head->score),
                           real_at(from, head->figure, "_high", head->score)}};
}

/* ---- CSV: a row a method ---- */

static void put_head(FILE *out, const study_head *head, const char *end)
{
    char *text = head->shift ? bp_sprintf("%s.%s.%s%s", head->figure, head->shift, head->score, end)
                 : head->sets ? bp_sprintf("%s.%s%s", head->figure, head->sets, end)
                              : bp_sprintf("%s%s", head->figure, end);

    putc(',', out);
    put_csv(out, text, SIZE_MAX);
    bp_free(text);
}

static void put_rows(FILE *out, const void *table)
{
    const studies *all = table;

    fprintf(out, "study,method,way,members");
    for (int64_t h = 0; h < all->head_count; h++) {
        put_head(out, &all->heads[h], "");
        put_head(out, &all->heads[h], "_low");
        put_head(out, &all->heads[h], "_high");
    }
    putc('\n', out);
    for (int64_t r = 0; r < all->row_count; r++) {
        const study_row *row = &all->rows[r];
        const char *way = json_string_value(json_object_get(row->method, "way"));
        const char *const texts[] = {row->study, row->name, way ? way : ""};

        for (int t = 0; t < 3; t++) {
            put_csv(out, texts[t], SIZE_MAX);
            putc(',', out);
        }
        fprintf(out, "%" JSON_INTEGER_FORMAT,
                json_integer_value(json_object_get(row->method, "members")));
        for (int64_t h = 0; h < all->head_count; h++) {
            score_figure figure = figure_of(row, &all->heads[h]);

            put_csv_real(out, figure.value);
            put_csv_real(out, figure.interval.low);
            put_csv_real(out, figure.interval.high);
        }
        putc('\n', out);
    }
}

/* ---- to read: a row a method, a column a figure ---- */

/* The last part of its path, unless another study has it too. */
static const char *short_name(const studies *all, const char *study)
{
    const char *base = bp_path_base(study);

    for (int64_t k = 0; k < all->count; k++)
        if (strcmp(all->folders[k], study) != 0 && strcmp(bp_path_base(all->folders[k]), base) == 0)
            return study;
    return base;
}

static void put_form(FILE *out, const void *table, const form *f)
{
    const studies *all = table;
    int64_t columns = 1 + all->head_count, rows = 1 + all->row_count;
    char **texts = bp_alloc("tool.texts", rows * columns, sizeof *texts);

    texts[0] = table_spell(f, "method");
    for (int64_t h = 0; h < all->head_count; h++) {
        const study_head *head = &all->heads[h];

        texts[1 + h] = head->shift
                           ? table_spell(f, "%s, %s by %s", head->figure, head->shift, head->score)
                       : head->sets ? table_spell(f, "%s, %s", head->figure, head->sets)
                                    : table_spell(f, "%s", head->figure);
    }
    for (int64_t r = 0; r < all->row_count; r++) {
        const study_row *row = &all->rows[r];
        char **cells = texts + (1 + r) * columns;

        cells[0] = all->count > 1 ? table_spell(f, "%s %s", short_name(all, row->study), row->name)
                                  : table_spell(f, "%s", row->name);
        for (int64_t h = 0; h < all->head_count; h++) {
            score_figure figure = figure_of(row, &all->heads[h]);

            cells[1 + h] = table_spell_figure(f, &figure);
        }
    }
    table_put_texts(out, f, texts, rows, columns, NULL);
    for (int64_t k = 0; k < rows * columns; k++)
        bp_free(texts[k]);
    bp_free(texts);
}

/* ---- the tool ---- */

bp_err table_of_studies(char *const *folders, int count, const file_options *options)
{
    studies all = {.count = 0};
    const form *f = NULL;
    const char *out = options->out;
    bp_err err = table_choose_form(&f, options);

    bp_log_set_member("", true); /* standard output is the table's, and not the log's */
    (void)bp_log_use(BP_LOG_MEMBER);
    if (err == BP_OK && table_is_picture(out))
        err = BP_FAIL(BP_ERR_USAGE, "table.bad_ending",
                      "a table of studies ends with .csv, .txt, .md or .tex: at --out=%s; its "
                      "pictures are in RUN/uncertainty/plots",
                      out);
    for (int k = 0; k < count && err == BP_OK; k++)
        err = add_study(&all, folders[k]);
    if (err == BP_OK)
        err = find_heads(&all, options->figure);
    if (err == BP_OK)
        err = table_write(out, f, &all, put_form, put_rows);
    for (int64_t k = 0; k < all.count; k++) {
        json_decref(all.summaries[k]);
        bp_free(all.folders[k]);
    }
    bp_free(all.folders);
    bp_free(all.summaries);
    bp_free(all.rows);
    bp_free(all.heads);
    return err;
}
