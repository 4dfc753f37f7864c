/* The figures that a score prints at the end. Called by score.c after the merge. */
#include "infer/score/scorer.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "statistics/inference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WHOLE_REAL   1e5  /* columns with a value of at least this have no decimal places, */
#define HUGE_REAL    1e10 /* from this value on powers of ten */
#define VALUES_MOST  20   /* of a label that has rows, */
#define VALUES_FEW   4    /* which do not need */
#define VALUE_LEAST  4    /* documents a value; docs/scoring.md */
#define NAME_LEAST   12
#define NAME_MOST    48 /* from 13 on the first table is wider than 80 columns */
#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

typedef struct column {
    const char *heading, *key;
    int width;
    int decimals;                                            /* decimal places */
    double (*value)(const json_t *figures, const char *key); /* NaN if there is none */
} column;

double scorer_error_of(const json_t *figures)
{
    bool clusters = json_object_get(figures, "clusters") != NULL;

    return bp_json_number(figures, clusters ? "clusters" : "documents") < BP_FEW_DOCUMENTS
               ? NAN
               : bp_json_number(figures, clusters ? "perplexity_stderr_clusters"
                                                  : "perplexity_stderr_documents");
}

static double error_over_documents(const json_t *figures, const char *key)
{
    (void)key;
    return scorer_error_of(figures);
}

/* choose: fmin or fmax, which ignore NaN. */
static double chosen_of_members(const json_t *figures, const char *key,
                                double (*choose)(double, double))
{
    const json_t *members = json_object_get(figures, "members");
    double chosen = NAN;

    for (size_t m = 0; m < json_array_size(members); m++)
        chosen = choose(chosen, bp_json_number(json_array_get(members, m), key));
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

static double largest(const column *c, const json_t *rows)
{
    double most = 0;
    const json_t *row;
    size_t k;

    json_array_foreach(rows, k, row) most =
        fmax(most, c->value(json_object_get(row, "figures"), c->key));
    return most;
}

/* A cell's text: a column has one format, by `most`, the largest figure in it. */
static void add_cell(bp_buffer *line, const column *c, double value, double most)
{
    if (isnan(value))
        bp_buffer_printf(line, "  %*s", c->width, "-");
    else if (c->decimals > 0 && most >= HUGE_REAL)
        bp_buffer_printf(line, "  %*.4e", c->width, value);
    else
        bp_buffer_printf(line, "  %*.*f", c->width, most < WHOLE_REAL ? c->decimals : 0, value);
}

static void add_row(json_t *rows, const char *prefix, const char *name, const json_t *figures)
{
    char *line = bp_sprintf("%s%s%s", prefix, prefix[0] ? " " : "", name);

    (void)json_array_append_new(rows, json_pack("{s:s, s:O}", "name", line, "figures", figures));
    bp_free(line);
}

bool scorer_shows_label(int64_t values, int64_t documents)
{
    return values <= VALUES_FEW || (values <= VALUES_MOST && VALUE_LEAST * values <= documents);
}

static bool is_shown(const json_t *summary, const json_t *values)
{
    return scorer_shows_label((int64_t)json_object_size(values),
                              json_integer_value(json_object_get(summary, "documents")));
}

/* Labels without rows. */
static void report_hidden(const json_t *summary)
{
    bp_buffer names = {0};
    const char *label;
    json_t *values;

    json_object_foreach(json_object_get(summary, "labels"), label, values)
    {
        if (!is_shown(summary, values))
            bp_buffer_printf(&names, "%s%s (%zu values)", names.bytes > 0 ? ", " : "", label,
                             json_object_size(values));
    }
    if (names.bytes > 0)
        bp_log("no rows of labels with many values: %s; summary.json has them", names.data);
    bp_buffer_clear(&names);
}

/* All, each corpus and each label value. */
static json_t *list_rows(const json_t *summary)
{
    const json_t *corpora = json_object_get(summary, "corpora");
    json_t *rows = json_array(), *values, *figures;
    const char *label, *name;

    add_row(rows, "", "all", summary);
    if (json_object_size(corpora) > 1)
        json_object_foreach((json_t *)corpora, name, figures)
            add_row(rows, "corpus", name, figures);
    json_object_foreach(json_object_get(summary, "labels"), label, values)
    {
        if (!is_shown(summary, values))
            continue;
        json_object_foreach(values, name, figures) add_row(rows, label, name, figures);
    }
    return rows;
}

static void print_line(bp_buffer *line)
{
    bp_log("%s", line->data);
    line->bytes = 0;
}

static void print_table(const column *columns, int count, const json_t *rows)
{
    int width = NAME_LEAST;
    bp_buffer line = {0};
    const json_t *row;
    size_t k;

    json_array_foreach(rows, k, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        int length = (int)strlen(name) - continued(name);

        width = length > width ? length < NAME_MOST ? length : NAME_MOST : width;
    }
    bp_buffer_printf(&line, "%-*s", width, "");
    for (int c = 0; c < count; c++)
        bp_buffer_printf(&line, "  %*s", columns[c].width, columns[c].heading);
    print_line(&line);
    json_array_foreach(rows, k, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const json_t *figures = json_object_get(row, "figures");

        bp_buffer_printf(&line, "%-*s", width + continued(name), name);
        for (int c = 0; c < count; c++)
            add_cell(&line, &columns[c], columns[c].value(figures, columns[c].key),
                     largest(&columns[c], rows));
        print_line(&line);
    }
    bp_buffer_clear(&line);
}

const char *scorer_interval(char text[SCORER_INTERVAL_BYTES], const json_t *of)
{
    const json_t *low = json_object_get(of, "low"), *high = json_object_get(of, "high");

    if (json_is_number(low) && json_is_number(high))
        (void)snprintf(text, SCORER_INTERVAL_BYTES, "95 %% interval %.4f to %.4f",
                       json_number_value(low), json_number_value(high));
    else
        (void)snprintf(text, SCORER_INTERVAL_BYTES, "no interval: too few documents");
    return text;
}

/* How often the best choice is the right one. */
static void report_choices(const json_t *choices)
{
    static const char *const WAYS[][2] = {{"accuracy", "by log-probability"},
                                          {"accuracy_per_token", "per token"},
                                          {"accuracy_per_byte", "per byte"}};

    for (int w = 0; choices && w < COUNT(WAYS); w++) {
        const json_t *of = json_object_get(choices, WAYS[w][0]);
        char interval[SCORER_INTERVAL_BYTES];

        if (isfinite(bp_json_number(of, "value")))
            bp_log("best choice right, %-18s  %.4f (%s)", WAYS[w][1], bp_json_number(of, "value"),
                   scorer_interval(interval, of));
    }
}

char *scorer_spelling(const json_t *summary)
{
    const char *loses =
        json_string_value(json_object_get(json_object_get(summary, "convention"), "loses"));
    int64_t oov = json_integer_value(json_object_get(summary, "oov"));
    bp_buffer text = {0};

    if (oov > 0)
        bp_buffer_printf(&text,
                         "%" PRId64 " of %" PRId64 " scored tokens are unknown words: perplexity "
                         "%.4f with them, %.4f without",
                         oov, (int64_t)json_integer_value(json_object_get(summary, "tokens")),
                         bp_json_number(summary, "perplexity"),
                         bp_json_number(summary, "perplexity_without_oov"));
    if (loses)
        bp_buffer_printf(&text, "%sthe tokenizer takes away %s", oov > 0 ? "; " : "", loses);
    if (text.bytes == 0)
        return NULL;
    bp_buffer_printf(&text, "; figures a byte and a word do not compare with those of other "
                            "tokenizers");
    return bp_buffer_take(&text);
}

/* Worse by a factor of e than all tokens alike: no text of a trained model's kind is. */
static void warn_of_guessing(const scorer *self)
{
    double perplexity = bp_json_number(self->summary, "perplexity"),
           tokens = (double)self->info.vocab_size;

    if (perplexity > exp(1) * tokens)
        BP_WARN("score.worse_than_guessing",
                "the perplexity is %.4g, and a guess among %.0f tokens has %.0f: at score.model; "
                "its training diverged, or the text is of another kind than the training text",
                perplexity, tokens, tokens);
}

void scorer_report(const scorer *self)
{
    char *spelling = scorer_spelling(self->summary);
    static const column PLAIN[] = {{"documents", "documents", 9, 0, bp_json_number},
                                   {"tokens", "tokens", 10, 0, bp_json_number},
                                   {"perplexity", "perplexity", 10, 4, bp_json_number},
                                   {"std. err", NULL, 8, 4, error_over_documents},
                                   {"bits/byte", "bits_per_byte", 9, 4, bp_json_number},
                                   {"word ppl", "word_perplexity", 10, 4, bp_json_number}};
    static const column ENSEMBLE[] = {{"mixture", "perplexity", 12, 4, bp_json_number},
                                      {"best member", "perplexity", 12, 4, least_of_members},
                                      {"worst member", "perplexity", 12, 4, most_of_members},
                                      {"mutual inf.", "mutual_information", 11, 4, bp_json_number},
                                      {"accuracy", "accuracy", 8, 4, bp_json_number}};

    json_t *rows = list_rows(self->summary);

    print_table(PLAIN, COUNT(PLAIN), rows);
    if (self->statistics.members > 0)
        print_table(ENSEMBLE, COUNT(ENSEMBLE), rows);
    json_decref(rows);
    report_hidden(self->summary);
    if (spelling)
        bp_log("%s", spelling);
    bp_free(spelling);
    if (self->unscored > 0 && self->rule.convention != BP_SCORE_PAIRS) /* see score.too_long */
        bp_log("%" PRId64
               " text tokens were not scored: score.convention = %s, score.prefix = %s%s",
               self->unscored, bp_score_convention_name(self->rule.convention),
               bp_score_prefix_name(&self->rule),
               self->rule.lead < 0 && strcmp(bp_score_rule_keys_of(self->config)->prefix, "none")
                   ? ", as neither model nor corpus names a token that begins or ends a text"
                   : "");
    warn_of_guessing(self);
    report_choices(json_object_get(self->summary, "candidates"));
    if (bp_score_keys_of(self->config)->neighbours)
        bp_log("perplexity %.4f with %" PRId64 " neighbours of each token, %.4f without",
               bp_json_number(self->summary, "perplexity"), bp_score_keys_of(self->config)->nearest,
               bp_json_number(json_object_get(self->summary, "without_neighbours"), "perplexity"));
}
