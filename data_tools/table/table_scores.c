/* bagpipe-data table SCORE-RUN...: models by corpora and labels, with intervals: CSV, or a table to
 * read or to print. */
#include "table_scores.h"

#include "table_scores_priv.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include "compare/clean_part.h"
#include "statistics/resample.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- figures ---- */

/* Documents of a group that were scored; bytes and words NaN where they are not known. */
typedef struct score_draws {
    double *nll, *tokens, *bytes, *words;
    int64_t *cluster; /* of each; NULL: intervals are over documents */
    int64_t count;
} score_draws;

enum { NLL, TOKENS, BYTES, WORDS, SUMS };

static void figures_of(double *values, const double *sums, const void *data)
{
    (void)data;
    values[PERPLEXITY] = exp(sums[NLL] / sums[TOKENS]);
    values[BITS_PER_BYTE] = sums[NLL] / sums[BYTES] / log(2);
    values[WORD_PERPLEXITY] = exp(sums[NLL] / sums[WORDS]);
}

static bp_err set_figures(score_cell *cell, const score_draws *draws)
{
    double *const columns[SUMS] = {draws->nll, draws->tokens, draws->bytes, draws->words};
    int64_t count = score_clusters_sum(columns, SUMS, draws->cluster, draws->count);
    bp_bootstrap spec = {.seed = 1,
                         .resamples = BP_RESAMPLES,
                         .groups = 1,
                         .documents = &count,
                         .width = SCORE_FIGURES};
    double values[SCORE_FIGURES], sums[SUMS] = {0}, *resampled = NULL;
    bp_err err = BP_OK;

    for (int c = 0; c < SUMS; c++)
        for (int64_t d = 0; d < count; d++)
            sums[c] += columns[c][d];
    figures_of(values, sums, NULL);
    for (int f = 0; f < SCORE_FIGURES; f++)
        cell->figures[f] = (score_figure){values[f], {NAN, NAN}};
    cell->draws = count;
    if (count < BP_FEW_DOCUMENTS)
        return BP_OK;
    resampled = bp_alloc("tool.resamples", BP_RESAMPLES * SCORE_FIGURES, sizeof *resampled);
    err = bp_bootstrap_of_sums(resampled, &spec, (const double *const *)columns, SUMS, figures_of,
                               NULL);
    for (int f = 0; f < SCORE_FIGURES && err == BP_OK; f++)
        err = bp_interval_of(&cell->figures[f].interval, resampled + f, BP_RESAMPLES, SCORE_FIGURES,
                             count);
    bp_free(resampled);
    return err;
}

/* ---- cells ---- */

typedef struct reading {
    score_table *table;
    const score_folder *scores;
    bool bytes, words; /* all text was scored */
    clean_part clean;  /* without a label all documents count */
    int64_t *clusters; /* score_folder_clusters */
    score_draws draws;
} reading;

static void add_document(reading *r, int64_t d)
{
    const score_folder *scores = r->scores;
    score_draws *draws = &r->draws;

    if (scores->tokens[d] == 0 && !(r->bytes && scores->bytes[d] > 0))
        return;
    if (r->clusters)
        draws->cluster[draws->count] = r->clusters[d];
    draws->nll[draws->count] = scores->nll[d];
    draws->tokens[draws->count] = (double)scores->tokens[d];
    draws->bytes[draws->count] = r->bytes && scores->bytes[d] >= 0 ? (double)scores->bytes[d] : NAN;
    draws->words[draws->count] = r->words && scores->words[d] >= 0 ? (double)scores->words[d] : NAN;
    draws->count++;
}

static bp_err add_cell(void *self, const score_group *group)
{
    reading *r = self;
    score_table *table = r->table;
    score_cell *cell;
    int64_t taken = 0;

    for (int64_t k = 0; k < group->count; k++)
        taken += clean_part_has(&r->clean, group->documents[k]);
    if ((r->clean.label && group->scope == SCOPE_LABEL && strcmp(group->name, CLEAN_LABEL) == 0) ||
        (group->scope == SCOPE_LABEL && taken == 0) ||
        (group->scope == SCOPE_ALL && r->scores->corpora == 1)) /* the corpus's row has it */
        return BP_OK;
    table->cells =
        bp_realloc("tool.cells", table->cells, table->cell_count + 1, sizeof *table->cells);
    cell = &table->cells[table->cell_count++];
    *cell = (score_cell){.scope = group->scope,
                         .name = group->name ? bp_strdup(group->name) : NULL,
                         .value = group->value ? bp_strdup(group->value) : NULL,
                         .model = table->model_count - 1,
                         .documents = taken};
    if (cell->scope == SCOPE_CORPUS) {
        cell->documents_all = group->count;
        cell->content = score_group_content(r->scores, group);
        cell->token_content = score_group_tokens(r->scores, group);
        score_table_name_by_content(table, cell);
    }
    r->draws.count = 0;
    for (int64_t k = 0; k < group->count; k++) {
        if (!clean_part_has(&r->clean, group->documents[k]))
            continue;
        cell->tokens += r->scores->tokens[group->documents[k]];
        add_document(r, group->documents[k]);
    }
    return set_figures(cell, &r->draws);
}

static bp_err add_model(score_table *table, const char *given, const char *clean)
{
    const char *folder = named_folder(given);
    score_folder scores;
    reading r = {.table = table, .scores = &scores};
    bp_err err = score_folder_load(&scores, folder);
    double **const columns[] = {&r.draws.nll, &r.draws.tokens, &r.draws.bytes, &r.draws.words};

    if (err == BP_OK && clean)
        err = clean_part_add(&r.clean, &scores, clean);
    if (err == BP_OK) {
        if (clean)
            score_table_add_clean(table, &r.clean);
        r.bytes = json_is_integer(json_object_get(scores.summary, "bytes"));
        r.words = json_is_integer(json_object_get(scores.summary, "words"));
        for (size_t k = 0; k < 4; k++)
            *columns[k] = bp_alloc("tool.draws", scores.documents, sizeof(double));
        r.clusters = score_folder_clusters(&scores);
        if (r.clusters)
            r.draws.cluster = bp_alloc("tool.draws", scores.documents, sizeof(int64_t));
        score_table_add_cluster(table, score_folder_cluster(&scores));
        table->models =
            bp_realloc("tool.models", table->models, table->model_count + 1, sizeof(char *));
        table->conventions =
            bp_realloc("tool.models", table->conventions, table->model_count + 1, sizeof(json_t *));
        table->conventions[table->model_count] =
            json_incref(json_object_get(scores.summary, "convention"));
        table->lost =
            bp_realloc("tool.models", table->lost, table->model_count + 1, sizeof(char *));
        table->lost[table->model_count] =
            score_folder_lost(&scores) ? bp_strdup(score_folder_lost(&scores)) : NULL;
        table->known =
            bp_realloc("tool.models", table->known, table->model_count + 1, sizeof(char *));
        table->known[table->model_count] = score_folder_known(&scores);
        table->named =
            bp_realloc("tool.models", table->named, table->model_count + 1, sizeof(bool));
        table->named[table->model_count] = folder != given;
        table->models[table->model_count++] =
            folder == given ? table_run_folder(folder, "/score")
                            : bp_sprintf("%.*s", (int)(folder - 1 - given), given);
        err = score_groups_each(&scores, add_cell, &r);
    }
    for (size_t k = 0; k < 4; k++)
        bp_free(*columns[k]);
    bp_free(r.draws.cluster);
    bp_free(r.clusters);
    score_folder_clear(&scores);
    return err;
}

/* ---- CSV: one row per model and group ---- */

static void put_rows(FILE *out, const void *scores)
{
    const score_table *table = scores;

    fprintf(out, "model,scope,name,value,documents,tokens");
    for (int f = 0; f < SCORE_FIGURES; f++)
        fprintf(out, ",%s,%s_low,%s_high", score_figure_names[f], score_figure_names[f],
                score_figure_names[f]);
    putc('\n', out);
    for (int64_t k = 0; k < table->cell_count; k++) {
        const score_cell *cell = &table->cells[k];
        const char *const texts[] = {table->models[cell->model], score_scope_name(cell->scope),
                                     cell->name ? cell->name : "", cell->value ? cell->value : ""};

        for (int t = 0; t < 4; t++) {
            put_csv(out, texts[t], SIZE_MAX);
            putc(',', out);
        }
        fprintf(out, "%" PRId64 ",%" PRId64, cell->documents, cell->tokens);
        for (int f = 0; f < SCORE_FIGURES; f++) {
            put_csv_real(out, cell->figures[f].value);
            put_csv_real(out, cell->figures[f].interval.low);
            put_csv_real(out, cell->figures[f].interval.high);
        }
        putc('\n', out);
    }
}

/* ---- to read: one row per group, one column per model ---- */

struct form {
    const char *name, *ending, *before, *between, *after, *escaped, *dash, *to;
};

#define CSV "csv" /* not one of these forms */
static const form FORMS[] = {{"text", ".txt", "", "  ", "\n", "", "-", ", "},
                             {"markdown", ".md", "| ", " | ", " |\n", "|", "-", ", "},
                             {"latex", ".tex", "", " & ", " \\\\\n", "&%$#_{}", "--", ", "}};

/* Control characters are shown, those of the form escaped. */
char *table_spell(const form *f, const char *format, ...)
{
    bool is_latex = f->escaped[0] == '&';
    bp_buffer out = {0};
    va_list arguments;
    char *text, *clean;

    va_start(arguments, format);
    text = bp_vsprintf(format, arguments);
    va_end(arguments);
    clean = bp_printable(text);
    bp_free(text);
    if (is_latex && (clean[0] == '[' || clean[0] == '*')) /* else an argument of \\ before it */
        bp_buffer_add(&out, "{}", 2);
    for (const char *at = clean; *at != '\0'; at++) {
        const char *word = !is_latex     ? NULL
                           : *at == '\\' ? "\\textbackslash{}"
                           : *at == '^'  ? "\\textasciicircum{}"
                           : *at == '~'  ? "\\textasciitilde{}"
                           : *at == '<'  ? "\\textless{}"
                           : *at == '>'  ? "\\textgreater{}"
                           : *at == '|'  ? "\\textbar{}"
                                         : NULL;

        if (strchr(f->escaped, *at))
            bp_buffer_add(&out, "\\", 1);
        bp_buffer_add(&out, word ? word : at, word ? strlen(word) : 1);
    }
    bp_free(clean);
    bp_buffer_add(&out, "", 1);
    return bp_buffer_take(&out);
}

static char *spell_group(const form *f, const score_cell *cell)
{
    if (cell->scope == SCOPE_ALL)
        return table_spell(f, "all");
    return cell->scope == SCOPE_CORPUS ? table_spell(f, "%s", cell->name)
                                       : table_spell(f, "%s %s", cell->name, cell->value);
}

char *score_table_spell_group(const score_cell *cell)
{
    return spell_group(&FORMS[0], cell);
}

/* As many decimals as two digits of the interval's half take; of none, four digits in all. */
static int digits_of(const score_figure *figure)
{
    double half = (figure->interval.high - figure->interval.low) / 2;
    double digits = half > 0 ? 1 - floor(log10(half)) : 3 - floor(log10(fabs(figure->value)));

    return (int)fmax(0, fmin(6, digits));
}

char *table_spell_figure(const form *f, const score_figure *figure)
{
    int digits = isfinite(figure->value) ? digits_of(figure) : 0;

    if (!isfinite(figure->value))
        return bp_strdup(f->dash);
    if (!isfinite(figure->interval.low))
        return bp_sprintf("%.*f", digits, figure->value);
    return bp_sprintf("%.*f [%.*f%s%.*f]", digits, figure->value, digits, figure->interval.low,
                      f->to, digits, figure->interval.high);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

const score_cell *score_table_find(const score_table *table, const score_cell *like, int64_t model)
{
    for (int64_t k = 0; k < table->cell_count; k++) {
        const score_cell *cell = &table->cells[k];

        if (cell->model == model && cell->scope == like->scope &&
            same_text(cell->name, like->name) && same_text(cell->value, like->value))
            return cell;
    }
    return NULL;
}

bool score_table_is_first(const score_table *table, const score_cell *cell)
{
    for (int64_t m = 0; m < cell->model; m++)
        if (score_table_find(table, cell, m))
            return false;
    return true;
}

#define NAMES 2 /* columns before those of models: of the group, and of its documents */

/* How many documents a group has: of each model, where they differ. */
static char *spell_documents(const score_table *table, const form *f, const score_cell *like)
{
    bp_buffer text = {0};
    int64_t before = -1;

    for (int64_t m = 0; m < table->model_count; m++) {
        const score_cell *cell = score_table_find(table, like, m);

        if (cell && cell->documents != before)
            bp_buffer_printf(&text, "%s%" PRId64, text.bytes > 0 ? ", " : "",
                             before = cell->documents);
    }
    char *spelled = table_spell(f, "%s", text.data);
    bp_buffer_clear(&text);
    return spelled;
}

/* "bits per byte" */
static char *spell_figure_name(const form *f, int figure)
{
    char *name = bp_strdup(score_figure_names[figure]), *spelled;

    for (char *c = name; *c != '\0'; c++)
        *c = *c == '_' ? ' ' : *c;
    spelled = table_spell(f, "%s", name);
    bp_free(name);
    return spelled;
}

/* texts[rows][columns], the first row of models' names. Owns: each text is the caller's. */
static char **spell_all(const score_table *table, const form *f, int figure, int64_t *rows)
{
    int64_t columns = NAMES + table->model_count, n = 1;
    char **texts = bp_alloc("tool.texts", (1 + table->cell_count) * columns, sizeof *texts);

    texts[0] = spell_figure_name(f, figure);
    texts[1] = table_spell(f, "documents");
    for (int64_t m = 0; m < table->model_count; m++)
        texts[NAMES + m] = table_spell(f, "%s", score_table_short_name(table, m));
    for (int64_t k = 0; k < table->cell_count; k++) {
        char **row = texts + n * columns;

        if (!score_table_is_first(table, &table->cells[k]))
            continue;
        row[0] = spell_group(f, &table->cells[k]);
        row[1] = spell_documents(table, f, &table->cells[k]);
        for (int64_t m = 0; m < table->model_count; m++) {
            const score_cell *cell = score_table_find(table, &table->cells[k], m);

            row[NAMES + m] =
                cell ? table_spell_figure(f, &cell->figures[figure]) : bp_strdup(f->dash);
        }
        n++;
    }
    *rows = n;
    return texts;
}

static void put_line(FILE *out, const form *f, char *const *row, const int *widths, int64_t columns)
{
    fprintf(out, "%s", f->before);
    for (int64_t c = 0; c < columns; c++) {
        bool pad = c + 1 < columns || f->after[0] != '\n';

        fprintf(out, "%s%s%*s", c == 0 ? "" : f->between, row[c],
                pad ? widths[c] - text_width(row[c]) : 0, "");
    }
    fprintf(out, "%s", f->after);
}

static void put_rule(FILE *out, const form *f, int64_t columns, bool begin)
{
    if (strcmp(f->name, "latex") == 0 && begin) {
        fprintf(out, "\\begin{tabular}{l");
        for (int64_t c = 1; c < columns; c++)
            putc('r', out);
        fprintf(out, "}\n\\hline\n");
    } else if (strcmp(f->name, "latex") == 0)
        fprintf(out, "\\hline\n");
    for (int64_t c = 0; strcmp(f->name, "markdown") == 0 && !begin && c <= columns; c++)
        fprintf(out, "%s", c == columns ? "|\n" : c == 0 ? "| --- " : "| ---: ");
}

/* `text`: below the table; NULL if there is none. */
static void put_latex_end(FILE *out, const char *text, int64_t columns)
{
    fprintf(out, "\\hline\n");
    if (text)
        fprintf(out, "\\multicolumn{%" PRId64 "}{p{0.9\\linewidth}}{\\footnotesize %s} \\\\\n",
                columns, text);
    fprintf(out, "\\end{tabular}\n");
}

void table_put_texts(FILE *out, const form *f, char **texts, int64_t rows, int64_t columns,
                     const char *note)
{
    int *widths = bp_alloc("tool.texts", columns, sizeof *widths);
    char *below = note ? table_spell(f, "%s", note) : NULL;

    for (int64_t k = 0; k < rows * columns; k++)
        if (text_width(texts[k]) > widths[k % columns])
            widths[k % columns] = text_width(texts[k]);
    put_rule(out, f, columns, true);
    for (int64_t r = 0; r < rows; r++) {
        put_line(out, f, texts + r * columns, widths, columns);
        if (r == 0)
            put_rule(out, f, columns, false);
    }
    if (strcmp(f->name, "latex") == 0)
        put_latex_end(out, below, columns);
    else if (below)
        fprintf(out, "\n%s\n", below);
    bp_free(below);
    bp_free(widths);
}

static void put_form(FILE *out, const void *scores, const form *f)
{
    const score_table *table = scores;
    int64_t columns = NAMES + table->model_count, rows;
    char **texts = spell_all(table, f, table->figure, &rows),
         *note = score_table_form_note(table, table->figure);

    table_put_texts(out, f, texts, rows, columns, note);
    bp_free(note);
    for (int64_t k = 0; k < rows * columns; k++)
        bp_free(texts[k]);
    bp_free(texts);
}

/* ---- the tool ---- */

bool table_is_of_scores(const char *given)
{
    const char *folder = named_folder(given);
    static const char *const insides[] = {"score/summary.json", "summary.json"};
    bool found = false;

    for (int k = 0; k < 2 && !found; k++) {
        char *path = bp_path_join(folder, insides[k]);

        found = bp_path_exists(path);
        bp_free(path);
    }
    return found;
}

bool table_is_picture(const char *path)
{
    return path && (bp_has_suffix(path, ".svg") || bp_has_suffix(path, ".png"));
}

/* The form that --out's ending says; --form may say it where the ending says none. */
static bp_err form_of_ending(const form **f, const file_options *options)
{
    const char *out = options->out, *ending = bp_has_suffix(out, ".csv") ? CSV : NULL;

    for (size_t k = 0; k < sizeof FORMS / sizeof FORMS[0]; k++)
        if (bp_has_suffix(out, FORMS[k].ending)) {
            ending = FORMS[k].name;
            if (!options->form)
                *f = &FORMS[k];
        }
    if (ending && options->form && strcmp(ending, options->form) != 0)
        return BP_FAIL(BP_ERR_USAGE, "table.other_form",
                       "--form %s, but the ending says %s: at --out=%s; leave --form out, or name "
                       "another file",
                       options->form, ending, out);
    if (table_is_picture(out) ? !options->form : options->form || ending)
        return BP_OK;
    return BP_FAIL(BP_ERR_USAGE, "table.bad_ending",
                   "a plot (.svg, .png) has no --form, and a table ends with .csv, .txt, .md or "
                   ".tex, or has one: at --out=%s; name such a file",
                   out);
}

static bp_err choose_form(const form **f, int *figure, const file_options *options)
{
    bp_err err = score_figure_find(figure, options->figure);

    *f = NULL;
    for (size_t k = 0; options->form && k < sizeof FORMS / sizeof FORMS[0]; k++)
        if (strcmp(options->form, FORMS[k].name) == 0)
            *f = &FORMS[k];
    if (err == BP_OK && options->form && !*f && strcmp(options->form, CSV) != 0)
        return BP_FAIL(
            BP_ERR_USAGE, "table.bad_form",
            "'%.100s' is not csv, text, markdown or latex: at the command line; give one "
            "of them",
            options->form);
    return err == BP_OK && options->out ? form_of_ending(f, options) : err;
}

bp_err table_choose_form(const form **f, const file_options *options)
{
    const file_options any_figure = {.form = options->form, .out = options->out};
    int figure;

    return choose_form(f, &figure, &any_figure);
}

bp_err table_write(const char *path, const form *f, const void *table,
                   void (*form_put)(FILE *out, const void *table, const form *f),
                   void (*rows_put)(FILE *out, const void *table))
{
    table_file file = {.out = stdout};
    bp_err err = path ? table_file_begin(&file) : BP_OK;

    if (err != BP_OK)
        return err;
    if (f)
        form_put(file.out, table, f);
    else
        rows_put(file.out, table);
    return path ? table_file_save(&file, path) : BP_OK;
}

/* Folders may be alike, but not a NAME and another one. */
static bp_err check_models(const score_table *table, char *const *given)
{
    const char **names = bp_alloc("tool.models", table->model_count, sizeof *names);
    bool any = false;
    bp_err err;

    for (int64_t m = 0; m < table->model_count; m++) {
        names[m] = score_table_short_name(table, m);
        any = any || table->named[m];
    }
    err = any ? check_names(names, given, table->model_count) : BP_OK;
    bp_free(names);
    return err;
}

bp_err table_of_scores(char *const *folders, int count, const file_options *options)
{
    score_table table = {0};
    const form *f;
    bp_err err = choose_form(&f, &table.figure, options);

    bp_log_set_member("", true); /* standard output is the table's, and not the log's */
    (void)bp_log_use(BP_LOG_MEMBER);
    for (int k = 0; k < count && err == BP_OK; k++)
        err = add_model(&table, folders[k], options->clean);
    if (err == BP_OK)
        err = check_models(&table, folders);
    if (err == BP_OK)
        score_table_add_note(&table, !f || options->out);
    if (err == BP_OK)
        score_table_join_notes(&table, !f || options->out);
    if (err == BP_OK && table_is_picture(options->out))
        err = score_table_draw(&table, table.figure, options->out);
    else if (err == BP_OK)
        err = table_write(options->out, f, &table, put_form, put_rows);
    for (int64_t k = 0; k < table.cell_count; k++) {
        bp_free(table.cells[k].name);
        bp_free(table.cells[k].value);
    }
    bp_free(table.cells);
    for (int64_t m = 0; m < table.model_count; m++)
        json_decref(table.conventions[m]);
    bp_free(table.conventions);
    bp_free(table.note);
    bp_free(table.clean_note);
    bp_free(table.named);
    bp_names_free(&table.clusters, table.model_count);
    bp_names_free(&table.lost, table.model_count);
    bp_names_free(&table.known, table.model_count);
    bp_names_free(&table.models, table.model_count);
    return err;
}
