/* Figures of groups of documents, as JSON. Called by score.c after merge.c. */
#include "infer/score/tables/summary.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "statistics/clusters.h"

#include <math.h>
#include <string.h>

const char *bp_score_convention_name(bp_score_convention convention)
{
    static const char *const names[] = {"rolling", "stride", "half", "pll", "pll_word", "pairs"};

    return names[convention];
}

const char *bp_score_prefix_name(const bp_score_rule *rule)
{
    if (!rule->prefix && !rule->every)
        return "none";
    return rule->convention == BP_SCORE_PAIRS ? "start" : rule->lead == rule->eod ? "eod" : "bos";
}

char *bp_score_corpus_name(const char *path)
{
    const char *base = bp_path_base(path), *dot = strrchr(base, '.');
    int length = dot && dot != base ? (int)(dot - base) : (int)strlen(base);

    return bp_sprintf("%.*s", length, base);
}

bp_err bp_score_check_names(const bp_corpus *corpus)
{
    json_t *seen = json_object();
    bp_err err = BP_OK;

    for (int64_t k = 0; err == BP_OK && k < bp_corpus_files(corpus); k++) {
        const char *path = bp_corpus_file_path(bp_corpus_file_at(corpus, k));
        char *name = bp_score_corpus_name(path);

        if (json_object_get(seen, name))
            err = BP_FAIL(BP_ERR_CONFIG, "corpus.same_name",
                          "two corpora have the name '%s' in the summary: at %s and %s; "
                          "rename one, or score them in two runs",
                          name, json_string_value(json_object_get(seen, name)), path);
        (void)json_object_set_new_nocheck(seen, name, json_string_nocheck(path));
        bp_free(name);
    }
    json_decref(seen);
    return err;
}

/* ---- groups of documents ---- */

/* A split of the documents into groups: document d belongs to group group_of(d), -1 if to none. */
typedef struct grouping {
    const bp_score_table *table;
    int64_t groups;
    const bp_score_group *of; /* [groups] */
    const int32_t *codes;     /* [documents]; NULL: by file, or all in group 0 */
    bool by_file;
    const json_t *whole; /* figures of all documents, if available */
} grouping;

static int64_t group_of(const grouping *split, int64_t file, int64_t document)
{
    if (!bp_score_plan_has(split->table->plan, document))
        return -1;
    if (split->codes)
        return split->codes[document];
    return split->by_file ? file : 0;
}

/* Documents sorted by group, in corpus order within one, with their numbers. `at` has each group's
 * begin, and is overwritten. */
static void list_draws(const grouping *split, int64_t *at, bp_score_draw *draws, int64_t *numbers)
{
    const bp_score_plan *plan = split->table->plan;

    for (int64_t file = 0; file < plan->files; file++) {
        for (int64_t d = plan->first_document[file]; d < plan->first_document[file + 1]; d++) {
            int64_t group = group_of(split, file, d);

            if (group < 0)
                continue;
            numbers[at[group]] = d;
            draws[at[group]++] = (bp_score_draw){.nll = bp_fixed_real(split->table->nll[d]),
                                                 .tokens = (double)split->table->tokens[d]};
        }
    }
}

#define OVER_DOCUMENTS "perplexity_stderr_documents"
#define OVER_CLUSTERS  "perplexity_stderr_clusters"

/* A draw of each cluster in place of those of its documents. Returns how many there are. */
static int64_t merge_clusters(bp_score_draw *draws, const int64_t *cluster, const int64_t *numbers,
                              int64_t documents)
{
    int64_t *local = bp_alloc("score.summary", documents, sizeof *local);
    int64_t clusters = bp_clusters_of(local, cluster, numbers, documents), seen = 0;

    for (int64_t d = 0; d < documents;
         d++) { /* numbers ascend from first to first: local[d] <= d */
        if (local[d] == seen) {
            draws[seen++] = draws[d];
        } else {
            draws[local[d]].nll += draws[d].nll;
            draws[local[d]].tokens += draws[d].tokens;
        }
    }
    bp_free(local);
    return clusters;
}

/* The bootstrap of one group, or that of all documents if the group has all of them. */
static bp_err deviation_of(double *out, const grouping *split, const bp_score_draw *draws,
                           int64_t count, int64_t documents)
{
    const json_t *known =
        json_object_get(split->whole, split->table->clusters ? OVER_CLUSTERS : OVER_DOCUMENTS);

    if (known && documents == split->table->plan->documents) {
        *out = json_is_real(known) ? json_real_value(known) : NAN;
        return BP_OK;
    }
    return bp_score_bootstrap(out, draws, count, split->table->seed, split->table->helpers);
}

/* In place of the error over documents, which is too small. */
static void put_clusters(json_t *figures, int64_t clusters)
{
    (void)json_object_set(figures, OVER_CLUSTERS, json_object_get(figures, OVER_DOCUMENTS));
    (void)json_object_del(figures, OVER_DOCUMENTS);
    (void)json_object_set_new(figures, "clusters", json_integer((json_int_t)clusters));
}

/* figures[g] of every group; new references, after an error too. */
static bp_err figure_groups(const grouping *split, json_t **figures)
{
    int64_t groups = split->groups, first = 0;
    int64_t *at = bp_alloc("score.summary", groups, sizeof(*at));
    bp_score_draw *draws = bp_alloc("score.summary", split->table->plan->documents, sizeof(*draws));
    int64_t *numbers = bp_alloc("score.summary", split->table->plan->documents, sizeof(*numbers));
    const int64_t *cluster = split->table->clusters;
    bp_err err = BP_OK;

    for (int64_t g = 1; g < groups; g++)
        at[g] = at[g - 1] + split->of[g - 1].sums.documents;
    list_draws(split, at, draws, numbers);
    for (int64_t g = 0; err == BP_OK && g < groups; g++) {
        const bp_score_sums *sums = &split->of[g].sums;
        int64_t n = sums->documents,
                count = cluster ? merge_clusters(draws + first, cluster, numbers + first, n) : n;
        double deviation = NAN;

        err = deviation_of(&deviation, split, draws + first, count, n);
        first += n;
        figures[g] = bp_score_figures(sums, deviation);
        if (cluster)
            put_clusters(figures[g], count);
        if (err == BP_OK)
            err = bp_token_statistics_figure(figures[g], split->table->statistics,
                                             split->of[g].statistics, sums->tokens, !split->whole);
    }
    bp_free(numbers);
    bp_free(draws);
    bp_free(at);
    return err;
}

/* Under a name of any bytes. */
static void set_named(json_t *object, const char *name, json_t *value)
{
    json_t *key = bp_json_string(name);

    (void)json_object_set_new(object, json_string_value(key), value);
    json_decref(key);
}

/* root[key] = {name: figures} of every group; a group without documents is left out if `sparse`. */
static bp_err add_groups(json_t *root, const char *key, const grouping *split, char *const *names,
                         bool sparse)
{
    json_t **figures = bp_alloc("score.summary", split->groups, sizeof(json_t *));
    json_t *object = json_object();
    bp_err err = figure_groups(split, figures);

    for (int64_t g = 0; g < split->groups; g++) {
        json_t *one = figures[g];
        bool empty = sparse && json_integer_value(json_object_get(one, "documents")) == 0;

        if (err != BP_OK || empty)
            json_decref(one);
        else
            set_named(object, names[g], one);
    }
    bp_free(figures);
    set_named(root, key, object);
    return err;
}

/* For several corpora, the unweighted mean of their NLLs per token; corpora without scored tokens
 * are ignored. Perplexities are not averaged. */
static void add_macro(json_t *root)
{
    json_t *corpora = json_object_get(root, "corpora"), *figures;
    double nll = 0, bits = 0;
    int64_t count = 0;
    const char *name;

    json_object_foreach(corpora, name, figures)
    {
        const json_t *by_byte = json_object_get(figures, "bits_per_byte");
        double tokens = (double)json_integer_value(json_object_get(figures, "tokens"));

        if (tokens <= 0)
            continue;
        count++;
        nll += json_number_value(json_object_get(figures, "nll_nats")) / tokens;
        bits += json_is_number(by_byte) ? json_number_value(by_byte) : NAN;
    }
    if (json_object_size(corpora) > 1 && count > 0)
        (void)json_object_set_new(root, "macro",
                                  json_pack("{sI so so}", "corpora", (json_int_t)count, "nll",
                                            bp_json_real(nll / (double)count), "bits_per_byte",
                                            bp_json_real(bits / (double)count)));
}

static bp_err add_corpora(json_t *root, const bp_score_table *table)
{
    grouping split = {.table = table,
                      .groups = table->plan->files,
                      .of = table->files,
                      .by_file = true,
                      .whole = root};
    char **names = bp_alloc("score.summary", split.groups, sizeof(*names));

    for (int64_t k = 0; k < split.groups; k++)
        names[k] =
            bp_score_corpus_name(bp_corpus_file_path(bp_corpus_file_at(table->plan->corpus, k)));
    bp_err err = add_groups(root, "corpora", &split, names, false);
    if (err == BP_OK)
        add_macro(root);
    bp_names_free(&names, split.groups);
    return err;
}

static bp_err add_labels(json_t *root, const bp_score_table *table)
{
    json_t *labels = json_object();
    bp_err err = BP_OK;

    for (int64_t i = 0; err == BP_OK && i < table->column_count; i++) {
        const bp_score_column *column = &table->columns[i];
        grouping split = {.table = table,
                          .groups = column->value_count,
                          .of = column->groups,
                          .codes = column->codes,
                          .whole = root};

        err = add_groups(labels, column->name, &split, column->values, true);
    }
    (void)json_object_set_new(root, "labels", labels);
    return err;
}

/* ---- the whole ---- */

/* Note the text that the corpora's tokens do not represent. */
static bp_err put_losses(json_t *convention, const bp_corpus *corpus)
{
    bp_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; err == BP_OK && !text && k < bp_corpus_files(corpus); k++)
        err = bp_corpus_file_tokenizer(bp_corpus_file_at(corpus, k), &text, &bytes);
    if (err == BP_OK && text && /* the page warns about one that can't be read */
        bp_tokenizer_parse(&tokenizer, text, bytes, "the corpus's tokenizer") == BP_OK &&
        bp_tokenizer_loses(tokenizer))
        (void)json_object_set_new(convention, "loses", json_string(bp_tokenizer_loses(tokenizer)));
    bp_tokenizer_free(&tokenizer);
    bp_free(text);
    return err;
}

static json_t *convention_object(const bp_score_plan *plan, const char *tokenizer_hash)
{
    const bp_score_rule *rule = &plan->rule;
    bool unlimited = rule->context == BP_MODEL_UNLIMITED;
    json_t *out = json_pack(
        "{ss sI sI ss sb ss ss}", "name", bp_score_convention_name(rule->convention), "context",
        unlimited ? 0 : (json_int_t)rule->context, "stride",
        unlimited ? 0 : (json_int_t)rule->stride, "prefix", bp_score_prefix_name(rule), "end",
        (int)rule->end, "words", "runs of non-White_Space", "tokenizer_hash", tokenizer_hash);

    if (rule->every)
        (void)json_object_set_new(out, "prefix_every", json_true());
    if (plan->bag)
        (void)json_object_set_new(out, "select", json_string("out_of_bag"));
    return out;
}

bp_err bp_score_summarise(json_t **out, const bp_score_table *table, const bp_model_info *model)
{
    int64_t more = table->statistics->count - 1;
    bp_score_group whole = {.statistics =
                                bp_alloc("score.summary", more, sizeof *whole.statistics)};
    grouping all = {.table = table, .groups = 1, .of = &whole};
    const char *hash = bp_corpus_tokenizer_hash(table->plan->corpus);
    json_t *root = NULL;
    bp_err err;

    for (int64_t file = 0; file < table->plan->files; file++) {
        bp_score_sums_add(&whole.sums, &table->files[file].sums);
        for (int64_t c = 0; c < more; c++)
            whole.statistics[c] += table->files[file].statistics[c];
    }
    err = figure_groups(&all, &root);

    if (err == BP_OK) {
        (void)json_object_set_new(
            root, "convention",
            convention_object(table->plan, hash[0] ? hash : model->tokenizer_hash));
        if (model->order > 0)
            (void)json_object_set_new(json_object_get(root, "convention"), "order",
                                      json_integer((json_int_t)model->order));
        (void)json_object_set_new(
            root, "model",
            json_pack("{ss sI}", "digest", model->digest, "step", (json_int_t)model->step));
        err = put_losses(json_object_get(root, "convention"), table->plan->corpus);
    }
    if (err == BP_OK)
        err = add_corpora(root, table);
    if (err == BP_OK)
        err = add_labels(root, table);
    bp_free(whole.statistics);
    *out = err == BP_OK ? root : NULL;
    if (err != BP_OK)
        json_decref(root);
    return err;
}
