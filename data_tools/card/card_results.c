/* Results that a card takes in: of score, uncertainty, explain, and reports. */
#include "card.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "file_tool.h"
#include "report.h"
#include "run/run_compare.h"
#include "run/run_fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_BYTES ((int64_t)256 << 20)
#define ROWS_MOST   60

/* ---- of which model? ---- */

static bp_err fail_other(const char *folder)
{
    return BP_FAIL(BP_ERR_FORMAT, "card.other_model",
                   "the results are of another model than the card: at %s; name those of this one",
                   folder);
}

/* Do two paths name the same folder? */
static bool is_same(const char *one, const char *other)
{
    char *a = realpath(one, NULL), *b = realpath(other, NULL);
    bool is = a && b && strcmp(a, b) == 0;

    free(a); /* realpath's */
    free(b);
    return is;
}

/* Is CHECKPOINT the card's: the same folder, or one of the two the run of the other? */
static bool is_same_model(const char *one, const char *other)
{
    static const char *const ways[] = {".", "../..", "ensemble.json"};

    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        const bp_path a = bp_path_in(one, ways[k]), b = bp_path_in(other, ways[k]);

        if (is_same(a.text, other) || is_same(one, b.text))
            return true;
    }
    return false;
}

/* By its digest; of an ensemble, whose digest is not that of one checkpoint, by its folder. */
static bp_err check_model(const card *self, const json_t *model, const char *key,
                          const char *folder)
{
    const char *digest = text_of(model, "digest"), *path;
    char *word = bp_sprintf(" %s ", digest);
    bool known = self->digests && strstr(self->digests, word) != NULL, same = known;
    run_pairs pairs = {0};
    bp_err err = BP_OK;

    bp_free(word);
    if (!self->is_model || known || !self->digests)
        return BP_OK;
    if (!self->is_ensemble || !key)
        return fail_other(folder);
    err = bp_run_pairs_read(&pairs, folder);
    path = bp_run_pairs_find(&pairs, key);
    if (err == BP_OK && path)
        same = is_same_model(path, self->path);
    bp_run_pairs_clear(&pairs);
    return err == BP_OK && !same ? fail_other(folder) : err;
}

/* ---- tables ---- */

/* The front matter's entry for a corpus. */
static void add_result(card *self, const char *task, const char *dataset, json_t *metrics)
{
    if (json_array_size(metrics) > 0 && self->is_model)
        (void)json_array_append_new(card_list(self, "results"),
                                    json_pack("{s:o, s:o, s:O}", "task", card_yaml(task), "dataset",
                                              card_yaml(dataset), "metrics", metrics));
    (void)json_object_set_new(
        self->data, "has_results",
        json_boolean(json_array_size(json_object_get(self->data, "results"))));
}

/* pipeline: a scalar of YAML already; NULL: unknown. */
static void add_plain_result(card *self, const char *pipeline, const char *dataset, json_t *metrics)
{
    char *plain = bp_strdup(pipeline ? pipeline : "\"other\"");

    plain[strlen(plain) - 1] = '\0';
    add_result(self, plain + 1, dataset, metrics);
    bp_free(plain);
}

static void add_metric(json_t *metrics, const char *type, const char *name, const json_t *value)
{
    if (json_is_number(value)) {
        char *text = bp_sprintf("%.6g", json_number_value(value));
        /* YAML 1.1 takes 1e+06 for text */
        if (strchr(text, 'e') && !strchr(text, '.')) {
            bp_free(text);
            text = bp_sprintf("%.17g", json_number_value(value));
        }
        (void)json_array_append_new(metrics, json_pack("{s:o, s:o, s:s}", "type", card_yaml(type),
                                                       "name", card_yaml(name), "value", text));
        bp_free(text);
    }
}

static json_t *table_new(card *self, const char *about)
{
    json_t *table = json_pack("{s:s, s:[], s:[]}", "about", about, "titles", "rows");

    (void)json_array_append_new(card_list(self, "tables"), table);
    (void)json_object_set_new(self->data, "has_tables", json_true());
    return table;
}

static void add_title(json_t *table, const char *title)
{
    (void)json_array_append_new(json_object_get(table, "titles"), json_string(title));
}

static json_t *add_row(json_t *table, const char *name)
{
    json_t *cells = json_array();

    (void)json_array_append_new(json_object_get(table, "rows"),
                                json_pack("{s:o, s:o}", "name", card_text(name), "cells", cells));
    return cells;
}

/* The text is freed. */
static void add_cell(json_t *cells, char *text)
{
    (void)json_array_append_new(cells, json_string(text[0] ? text : "–"));
    bp_free(text);
}

/* ---- perplexities ---- */

static char *count_text(const json_t *value)
{
    return json_is_integer(value) ? bp_strdup(grouped(json_integer_value(value))) : bp_strdup("");
}

/* "179 ± 1.25" */
static char *with_error(const json_t *figures, const char *name, const char *error)
{
    double value = bp_json_number(figures, name), of = bp_json_number(figures, error);

    if (isnan(value))
        return bp_strdup("");
    return isnan(of) ? bp_sprintf("%.5g", value) : bp_sprintf("%.5g ± %.2g", value, of);
}

static void add_score_row(json_t *table, const char *name, const json_t *figures)
{
    json_t *cells = add_row(table, name);

    add_cell(cells, count_text(json_object_get(figures, "documents")));
    add_cell(cells, count_text(json_object_get(figures, "tokens")));
    add_cell(cells,
             with_error(figures, "perplexity",
                        json_object_get(figures, "clusters") ? "perplexity_stderr_clusters"
                                                             : "perplexity_stderr_documents"));
    add_cell(cells, with_error(figures, "bits_per_byte", ""));
    add_cell(cells, with_error(figures, "word_perplexity", ""));
}

static void add_labels(json_t *table, const json_t *labels)
{
    const char *label, *value;
    json_t *values, *figures;
    int rows = 0;

    json_object_foreach((json_t *)labels, label, values) json_object_foreach(values, value, figures)
    {
        char *name = bp_sprintf("%s = %s", label, value);

        if (rows++ < ROWS_MOST)
            add_score_row(table, name, figures);
        bp_free(name);
    }
}

static void add_perplexities(card *self, const json_t *summary)
{
    static const char *const titles[] = {"documents", "tokens",
                                         "perplexity (± standard error over documents)",
                                         "bits a byte", "word perplexity"};
    const json_t *convention = json_object_get(summary, "convention"),
                 *corpora = json_object_get(summary, "corpora"), *figures;
    char *about = bp_sprintf("Scores by the convention `%s` (context %lld, stride %lld, prefix "
                             "`%s`), whose perplexity is "
                             "that of tokens of this model's tokenizer:",
                             text_of(convention, "name"), integer_of(convention, "context"),
                             integer_of(convention, "stride"), text_of(convention, "prefix"));
    json_t *table = table_new(self, about);
    const char *name;

    for (size_t k = 0; k < sizeof titles / sizeof titles[0]; k++)
        add_title(table, titles[k]);
    json_object_foreach((json_t *)corpora, name, figures)
    {
        json_t *metrics = json_array();

        add_score_row(table, name, figures);
        add_metric(metrics, "perplexity", "perplexity", json_object_get(figures, "perplexity"));
        add_metric(metrics, "bits_per_byte", "bits a byte",
                   json_object_get(figures, "bits_per_byte"));
        add_metric(metrics, "word_perplexity", "word perplexity",
                   json_object_get(figures, "word_perplexity"));
        add_result(self, "text-generation", name, metrics);
        json_decref(metrics);
    }
    if (json_object_size(corpora) > 1)
        add_score_row(table, "all", summary);
    add_labels(table, json_object_get(summary, "labels"));
    bp_free(about);
}

/* ---- tasks and question sets ---- */

static bool is_figure(const json_t *value)
{
    return json_is_object(value) && has(value, "value");
}

/* Figures that one of the rows has, as columns. */
static void add_figures(json_t *table, json_t *cells, const json_t *figures, const json_t *all)
{
    const char *name;
    const json_t *value;
    bool first = json_array_size(json_object_get(table, "titles")) == 0;

    json_object_foreach((json_t *)all, name, value)
    {
        if (!is_figure(value))
            continue;
        if (first) {
            json_t *title = card_text(name);

            add_title(table, json_string_value(title));
            json_decref(title);
        }
        add_cell(cells, card_figure_of(json_object_get(figures, name)));
    }
}

static void add_metrics(json_t *metrics, const json_t *figures)
{
    const char *name;
    const json_t *value;

    json_object_foreach((json_t *)figures, name, value) if (is_figure(value))
        add_metric(metrics, name, name, json_object_get(value, "value"));
}

/* The names of the corpora that a run of score read. */
static char *corpora_of(const char *folder)
{
    run_pairs pairs = {0};
    const char *list = bp_run_pairs_read(&pairs, folder) == BP_OK
                           ? bp_run_pairs_find(&pairs, "score.corpus")
                           : NULL;
    char *name = bp_strdup(list ? bp_path_base(list) : "corpus");

    name[strcspn(name, ".")] = '\0';
    bp_run_pairs_clear(&pairs);
    return name;
}

static void add_task(card *self, const json_t *summary, const char *folder)
{
    const json_t *task = json_object_get(summary, "task");
    const char *pipeline = json_string_value(json_object_get(self->data, "pipeline"));
    json_t *table = table_new(self, "Figures of the task, with 95 % intervals over documents:"),
           *metrics = json_array();
    char *name = corpora_of(folder);

    add_figures(table, add_row(table, name), task, task);
    add_metrics(metrics, task);
    add_plain_result(self, pipeline, name, metrics);
    json_decref(metrics);
    bp_free(name);
}

static void add_questions(card *self, const json_t *summary)
{
    const json_t *all = json_object_get(summary, "all"), *figures;
    json_t *table = table_new(self, "Question sets, with 95 % intervals over questions:");
    const char *name;

    json_object_foreach(json_object_get(summary, "tasks"), name, figures)
    {
        json_t *metrics = json_array();

        add_figures(table, add_row(table, name), figures, all);
        add_metrics(metrics, figures);
        add_result(self, "text-generation", name, metrics);
        json_decref(metrics);
    }
}

static bp_err add_score(card *self, const char *folder, const char *path)
{
    json_t *summary = NULL;
    bp_err err = bp_json_load(&summary, path, LIMIT_BYTES);

    if (err == BP_OK)
        err = check_model(self, json_object_get(summary, "model"), "score.model", folder);
    if (err == BP_OK && has(summary, "task"))
        add_task(self, summary, folder);
    else if (err == BP_OK && has(summary, "tasks"))
        add_questions(self, summary);
    else if (err == BP_OK)
        add_perplexities(self, summary);
    json_decref(summary);
    return err;
}

/* ---- texts that the model wrote ---- */

/* BLEU and chrF2 against references, of the prompts `name`. */
static void add_quality(card *self, const json_t *summary, const char *name)
{
    static const struct {
        const char *name, *type, *title;
    } shown[] = {{"bleu", "bleu", "BLEU"}, {"chrf2", "chrf", "chrF2"}};
    const json_t *figures = json_object_get(summary, "figures"),
                 *rule = json_object_get(summary, "rule");
    char *how = says(rule, "strategy", "beam")
                    ? bp_sprintf("beam search, %lld beams", integer_of(rule, "beams"))
                    : bp_strdup(text_of(rule, "strategy"));
    char *about = bp_sprintf("Texts for %s prompts (%s) against their references, with 95 %% "
                             "intervals over prompts:",
                             grouped(integer_of(summary, "prompts")), how);
    json_t *table = table_new(self, about), *cells = add_row(table, name), *metrics = json_array();

    for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++) {
        const json_t *figure = json_object_get(figures, shown[k].name);
        char *title = bp_sprintf("%s (%s)", shown[k].title, how);

        add_title(table, shown[k].title);
        add_cell(cells, card_figure_of(figure));
        add_metric(metrics, shown[k].type, title, json_object_get(figure, "value"));
        bp_free(title);
    }
    bp_free(how);
    add_plain_result(self, json_string_value(json_object_get(self->data, "pipeline")), name,
                     metrics);
    json_decref(metrics);
    bp_free(about);
}

static bp_err add_texts(card *self, const char *folder, const char *path)
{
    run_pairs pairs = {0};
    json_t *summary = NULL;
    bp_err err = bp_json_load(&summary, path, LIMIT_BYTES);

    if (err == BP_OK)
        err = check_model(self, json_object_get(summary, "model"), "generate.model", folder);
    if (err == BP_OK && !has(summary, "figures"))
        err = BP_FAIL(BP_ERR_FORMAT, "card.no_references",
                      "the texts were not compared with references: at %s; run generate with "
                      "generate.references, in another run.dir",
                      folder);
    if (err == BP_OK)
        err = bp_run_pairs_read(&pairs, folder);
    if (err == BP_OK) {
        const char *prompts = bp_run_pairs_find(&pairs, "generate.prompts");

        add_quality(self, summary, bp_path_base(prompts ? prompts : folder));
    }
    bp_run_pairs_clear(&pairs);
    json_decref(summary);
    return err;
}

/* ---- uncertainty ---- */

/* Is one of the models that are compared the card's? "gpt=runs/gpt,bag=runs/bag:dropout" */
static bp_err check_compared(const card *self, const char *folder)
{
    run_pairs pairs = {0};
    bp_err err = bp_run_pairs_read(&pairs, folder);
    const char *list = bp_run_pairs_find(&pairs, "uncertainty.models");
    bool is = !list;

    while (err == BP_OK && list && *list && !is) {
        size_t bytes = strcspn(list, ",");
        char *one = bp_sprintf("%.*s", (int)bytes, list), *path = strchr(one, '=');

        path = path ? path + 1 : one;
        path[strcspn(path, ":")] = '\0';
        is = is_same_model(path, self->path);
        bp_free(one);
        list += bytes + (list[bytes] == ',');
    }
    bp_run_pairs_clear(&pairs);
    return err == BP_OK && !is ? fail_other(folder) : err;
}

static char *interval_of(const json_t *method, const char *name)
{
    char *low = bp_sprintf("%s_low", name), *high = bp_sprintf("%s_high", name),
         *text = card_figure(json_object_get(method, name), json_object_get(method, low),
                             json_object_get(method, high));

    bp_free(low);
    bp_free(high);
    return text;
}

static bp_err add_uncertainty(card *self, const char *folder, const char *path)
{
    static const char *const figures[][2] = {{"nll", "NLL, nats"},
                                             {"accuracy", "accuracy"},
                                             {"ece", "calibration error"},
                                             {"brier", "Brier score"},
                                             {"aurc", "risk and coverage (AURC)"}};
    json_t *summary = NULL, *table = json_pack("{s:[], s:[]}", "titles", "rows"), *method;
    const json_t *domain;
    const char *name;
    bp_err err = self->is_model ? check_compared(self, folder) : BP_OK;

    if (err == BP_OK)
        err = bp_json_load(&summary, path, LIMIT_BYTES);
    domain = json_object_get(json_object_get(summary, "groups"), "in_domain");
    for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++)
        add_title(table, figures[k][1]);
    json_object_foreach(json_object_get(summary, "methods"), name, method)
    {
        json_t *cells = add_row(table, name);

        for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++)
            add_cell(cells, interval_of(method, figures[k][0]));
    }
    if (err == BP_OK) {
        (void)json_object_set_new(
            table, "about",
            json_sprintf("Methods side by side on %s documents, with 95 %% intervals over them; "
                         "lower is better but for the accuracy:",
                         grouped(integer_of(domain, "documents"))));
        (void)json_array_append(card_list(self, "uncertainty"), table);
    }
    json_decref(table);
    json_decref(summary);
    return err;
}

/* ---- explanations and reports ---- */

static bp_err add_explanations(card *self, const char *folder, const char *path)
{
    json_t *summary = NULL;
    bp_err err = bp_json_load(&summary, path, LIMIT_BYTES);
    const json_t *methods = json_object_get(summary, "methods"), *value;
    bp_buffer names = {0};
    const char *name;

    if (err == BP_OK)
        err = check_model(self, json_object_get(summary, "model"), "explain.model", folder);
    json_object_foreach((json_t *)methods, name, value)
        bp_buffer_printf(&names, "%s`%s`", names.bytes ? ", " : "", name);
    if (err == BP_OK) {
        json_t *at = card_text(bp_path_base(folder));

        card_line(self, "explanations",
                  "%s predictions in %s documents were explained by %s (%s, `bagpipe explain`).",
                  grouped(integer_of(summary, "targets")),
                  grouped(integer_of(summary, "documents")), names.data ? names.data : "no method",
                  json_string_value(at));
        (void)json_object_set_new(self->data, "has_explanations", json_true());
        json_decref(at);
    }
    bp_buffer_clear(&names);
    json_decref(summary);
    return err;
}

/* A report of corpora is of the data sheet's; one of texts can't be compared. */
static bp_err check_corpus(const card *self, const json_t *report, const char *folder)
{
    const json_t *corpora = json_object_get(report, "corpora"), *hash;
    size_t k;

    if (!self->corpus_hash || !corpora)
        return BP_OK;
    json_array_foreach(corpora, k, hash) if (json_is_string(hash) &&
                                             strcmp(json_string_value(hash), self->corpus_hash) ==
                                                 0) return BP_OK;
    if (json_array_size(corpora) > 0)
        return BP_FAIL(BP_ERR_FORMAT, "card.other_corpus",
                       "the report is of another corpus than the data sheet: at %s; name one of "
                       "this corpus",
                       folder);
    BP_WARN("card.not_compared",
            "the report is of texts, not of a corpus, and is taken as one of this corpus: at %s",
            folder);
    return BP_OK;
}

/* One of the models that a report has side by side is the card's. */
static bp_err check_report(const card *self, const json_t *report, const char *folder)
{
    static const char *const lists[] = {"models", "runs"};
    const json_t *one;
    size_t n;

    for (size_t k = 0; k < 2; k++)
        json_array_foreach(json_object_get(report, lists[k]), n, one)
        {
            const char *digest = text_of(json_object_get(one, "model"), "digest");
            char *word = bp_sprintf(" %s ", digest);
            bool known = digest[0] && self->digests && strstr(self->digests, word);

            bp_free(word);
            if (known)
                return BP_OK;
        }
    return has(report, "model") ? check_model(self, json_object_get(report, "model"), NULL, folder)
                                : BP_OK;
}

static bp_err add_report(card *self, const char *folder)
{
    json_t *report = NULL, *facts = json_array(), *line;
    const char *name = "";
    size_t k;
    bp_err err = tool_report_load(&report, &name, folder);

    if (err == BP_OK)
        err = check_report(self, report, folder);
    if (err == BP_OK)
        err = check_corpus(self, report, folder);
    json_array_foreach(json_object_get(report, "statements"), k, line)(void)
        json_array_append_new(facts, card_text(json_string_value(line)));
    if (err == BP_OK) {
        (void)json_array_append_new(card_list(self, "reports"),
                                    json_pack("{s:o, s:o, s:O}", "title",
                                              card_text(text_of(report, "title")), "about",
                                              card_text(text_of(report, "about")), "facts", facts));
        (void)json_object_set_new(self->data, "has_reports", json_true());
    }
    json_decref(facts);
    json_decref(report);
    return err;
}

bp_err card_results(card *self, const char *folder)
{
    static const struct {
        const char *job, *file;
        bp_err (*add)(card *self, const char *folder, const char *path);
    } jobs[] = {{"score", "score/summary.json", add_score},
                {"generate", "generate/summary.json", add_texts},
                {"uncertainty", "uncertainty/summary.json", add_uncertainty},
                {"explain", "explain/summary.json", add_explanations}};

    if (!bp_path_exists(folder))
        return BP_FAIL(BP_ERR_INPUT, "file.missing",
                       "there is no such folder: at %s; check the path", folder);
    for (size_t k = 0; k < sizeof jobs / sizeof jobs[0] && self->is_model; k++) {
        const bp_path path = bp_path_in(folder, jobs[k].file);

        if (bp_path_exists(path.text))
            return jobs[k].add(self, folder, path.text);
    }
    if (bp_path_exists(bp_path_in(folder, "run.json").text))
        return BP_FAIL(BP_ERR_FORMAT, "card.no_results",
                       "the run has no results that this card takes: at %s; name runs of score, "
                       "generate, uncertainty and explain for a model, or folders of reports",
                       folder);
    return add_report(self, folder);
}
