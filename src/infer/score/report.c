/* What people read at the end. */
#include "infer/score/scorer_priv.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/score/score.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WHOLE_REAL   1e5  /* from here on a column has no places behind the point, */
#define HUGE_REAL    1e10 /* from here on powers of ten */
#define NAME_LEAST   12
#define NAME_MOST    48 /* from 13 on the first table is wider than 80 columns */
#define COLUMNS_MOST 6
#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

typedef struct column {
    const char *heading, *key;
    int width;
    int places;                                              /* behind the point */
    double (*value)(const json_t *figures, const char *key); /* NaN: there is none */
} column;

/* Rows are measured, then printed: a column has one format, by the largest figure in it. */
typedef struct grid {
    const column *columns;
    int count, name_width;
    double most[COLUMNS_MOST];
    bool prints;
} grid;

static double figure(const json_t *figures, const char *key)
{
    const json_t *value = json_object_get(figures, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* choose: fmin or fmax, which pass over what is not there. */
static double chosen_of_members(const json_t *figures, const char *key,
                                double (*choose)(double, double))
{
    const json_t *members = json_object_get(figures, "members");
    double chosen = NAN;

    for (size_t m = 0; m < json_array_size(members); m++)
        chosen = choose(chosen, figure(json_array_get(members, m), key));
    return chosen;
}

static double least_of_members(const json_t *figures, const char *key)
{
    return chosen_of_members(figures, key, fmin);
}

static double most_of_members(const json_t *figures, const char *key)
{
    return chosen_of_members(figures, key, fmax);
}

/* Bytes of UTF-8 that add no character. */
static int continued(const char *text)
{
    int count = 0;

    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) == 0x80;
    return count;
}

static void print_row(const grid *table, const char *name, const json_t *figures)
{
    bp_buffer line = {0};
    char *text;

    bp_buffer_printf(&line, "%-*s", table->name_width + continued(name), name);
    for (int k = 0; k < table->count; k++) {
        const column *c = &table->columns[k];
        double value = c->value(figures, c->key);

        if (isnan(value))
            bp_buffer_printf(&line, "  %*s", c->width, "-");
        else if (c->places > 0 && table->most[k] >= HUGE_REAL)
            bp_buffer_printf(&line, "  %*.4e", c->width, value);
        else
            bp_buffer_printf(&line, "  %*.*f", c->width,
                             table->most[k] < WHOLE_REAL ? c->places : 0, value);
    }
    text = bp_buffer_take(&line);
    if (text)
        bp_log("%s", text);
    bp_free(text);
}

static void measure_row(grid *table, const char *name, const json_t *figures)
{
    int length = (int)strlen(name) - continued(name);

    if (length > table->name_width)
        table->name_width = length < NAME_MOST ? length : NAME_MOST;
    for (int k = 0; k < table->count; k++)
        table->most[k] =
            fmax(table->most[k], table->columns[k].value(figures, table->columns[k].key));
}

static void do_row(grid *table, const char *name, const json_t *figures)
{
    if (table->prints)
        print_row(table, name, figures);
    else
        measure_row(table, name, figures);
}

static void do_group(grid *table, const char *prefix, const json_t *group)
{
    const char *name;
    const json_t *figures;

    json_object_foreach((json_t *)group, name, figures)
    {
        char line[128];

        snprintf(line, sizeof(line), "%s%s", prefix, name);
        do_row(table, line, figures);
    }
}

/* All, each corpus and each label value. */
static void do_rows(grid *table, const json_t *summary)
{
    const json_t *corpora = json_object_get(summary, "corpora");
    const char *name;
    const json_t *values;

    do_row(table, "all", summary);
    if (json_object_size(corpora) > 1)
        do_group(table, "corpus ", corpora);
    json_object_foreach(json_object_get(summary, "labels"), name, values)
    {
        char prefix[64];

        snprintf(prefix, sizeof(prefix), "%s ", name);
        do_group(table, prefix, values);
    }
}

static void print_table(const column *columns, int count, const json_t *summary)
{
    grid table = {.columns = columns, .count = count, .name_width = NAME_LEAST};
    bp_buffer line = {0};
    char *text;

    do_rows(&table, summary);
    bp_buffer_printf(&line, "%-*s", table.name_width, "");
    for (int k = 0; k < count; k++)
        bp_buffer_printf(&line, "  %*s", columns[k].width, columns[k].heading);
    text = bp_buffer_take(&line);
    if (text)
        bp_log("%s", text);
    bp_free(text);
    table.prints = true;
    do_rows(&table, summary);
}

/* How often the best choice is the right one. */
static void report_choices(const json_t *choices)
{
    static const char *const WAYS[][2] = {{"accuracy", "by log-probability"},
                                          {"accuracy_per_token", "per token"},
                                          {"accuracy_per_byte", "per byte"}};

    for (int w = 0; choices && w < COUNT(WAYS); w++) {
        const json_t *of = json_object_get(choices, WAYS[w][0]);

        if (isfinite(figure(of, "value")))
            bp_log("best choice right, %-18s  %.4f (95 %% interval %.4f to %.4f)", WAYS[w][1],
                   figure(of, "value"), figure(of, "low"), figure(of, "high"));
    }
}

void scorer_report(const scorer *self)
{
    static const column PLAIN[] = {{"documents", "documents", 9, 0, figure},
                                   {"tokens", "tokens", 10, 0, figure},
                                   {"perplexity", "perplexity", 10, 4, figure},
                                   {"std. err", "perplexity_stderr_documents", 8, 4, figure},
                                   {"bits/byte", "bits_per_byte", 9, 4, figure},
                                   {"word ppl", "word_perplexity", 10, 4, figure}};
    static const column ENSEMBLE[] = {{"mixture", "perplexity", 12, 4, figure},
                                      {"best member", "perplexity", 12, 4, least_of_members},
                                      {"worst member", "perplexity", 12, 4, most_of_members},
                                      {"mutual inf.", "mutual_information", 11, 4, figure},
                                      {"accuracy", "accuracy", 8, 4, figure}};

    print_table(PLAIN, COUNT(PLAIN), self->summary);
    if (self->statistics.members > 0)
        print_table(ENSEMBLE, COUNT(ENSEMBLE), self->summary);
    if (self->unscored > 0)
        bp_log("%" PRId64 " text tokens were not scored: score.convention = %s, score.prefix = %s",
               self->unscored, bp_score_convention_name(self->rule.convention),
               self->rule.prefix ? "eod" : "none");
    report_choices(self->choices);
    bp_log("in %s: summary.json, documents.h5%s%s%s", self->folder,
           bp_score_keys_of(self->config)->tokens ? ", tokens.h5" : "",
           self->choices ? ", candidates.jsonl" : "", self->page ? ", index.html" : "");
}
