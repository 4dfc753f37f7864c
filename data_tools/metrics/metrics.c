/* bagpipe-data metrics: the field's metrics of hypotheses against references, with intervals. */
#include "arguments.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/suffix.h"
#include "infer/score/texts.h"
#include "mesh/mesh.h"
#include "metrics_kinds.h"
#include "metrics_print.h"
#include "output.h"
#include "statistics/metric_coverage.h"
#include "tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SUMMARY_BYTES (1 << 26) /* of generate */

static const struct argp_option OPTIONS[] = {
    {"kind", 'k', "KIND", 0,
     "what to measure: bleu, chrf, rouge, meteor, bertscore, perplexity, classes, regression, tags "
     "or spans (required); of texts also a list: bleu,chrf",
     0},
    {"reference", 'r', "FILE", 0,
     "what is right, a document a line (required, except for perplexity); there may be several for "
     "texts",
     0},
    {"hypothesis", 'y', "FILE", 0,
     "what a system says, a document a line (required); or a run folder of generate", 0},
    {"against", 'a', "FILE", 0, "what another system says (or its run folder): a paired bootstrap",
     0},
    {"words", 0, "13a|zh|none", 0,
     "bleu, meteor: words as mteval-v13a.pl cuts them (the default), Chinese characters apart, or "
     "the words between white space",
     0},
    {"wordnet", 0, "FOLDER", 0,
     "meteor: WordNet's files (default " BP_WORDNET_FOLDER "; without them no synonyms)", 0},
    {"model", 0, "CHECKPOINT", 0,
     "bertscore, perplexity: a causal or masked language model (required)", 0},
    {"tokenizer", 0, "FILE", 0, "the model's tokenizer.json, where the checkpoint keeps none", 0},
    {"layer", 0, "N", 0,
     "bertscore: the layer whose states are compared, 0 the embedding (default: the last)", 0},
    {"idf", 0, NULL, 0, "bertscore: tokens weigh the more the fewer references have them", 0},
    {"seed", 0, "N", 0, "seed of the resamples (default 1)", 0},
    {"short", 0, NULL, 0, "print a line a figure instead of JSON", 0},
    {"out", 'o', "FILE", 0, "write the JSON to FILE", 0},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "files do not match line by line, are empty, or a line is not what the kind needs"},
    {"66", "a file is missing"},
    {"73, 74, 77", "--out cannot be written"},
    {"78", "the model can't be used for this"},
    {0}};

/* ---- the work ---- */

static json_t *pair_json(const bp_metric *metric, const bp_figure_pair *pairs)
{
    bp_figure figures[BP_METRIC_FIGURES];
    json_t *all;

    for (int64_t k = 0; k < metric->width; k++)
        figures[k] = pairs[k].difference;
    all = bp_metric_json(metric, figures);
    for (int64_t k = 0; k < metric->width; k++) {
        json_t *one = json_object_get(all, metric->names[k]);

        (void)json_object_set_new(one, "wins", bp_json_real(pairs[k].wins));
        (void)json_object_set_new(one, "p_value", bp_json_real(pairs[k].p_value));
    }
    return all;
}

static bp_err put_figures(json_t *root, const metrics_kind *kind, const metrics_answers *systems,
                          const metrics_arguments *arguments)
{
    const void *answers[2] = {(const char *)&systems[0] + kind->answers,
                              (const char *)&systems[1] + kind->answers};
    int64_t documents = *(const int64_t *)answers[0];
    bp_figure figures[2][BP_METRIC_FIGURES];
    bp_figure_pair pairs[BP_METRIC_FIGURES];
    bp_err err;

    (void)json_object_set_new(root, "documents", json_integer(documents));
    if (!arguments->against) {
        err = bp_metric_estimate(figures[0], kind->metric, answers[0], documents,
                                 (uint64_t)arguments->seed);
        if (err == BP_OK)
            (void)json_object_set_new(root, "figures", bp_metric_json(kind->metric, figures[0]));
        return err;
    }
    err = bp_metric_compare(pairs, kind->metric, answers[0], answers[1], documents,
                            (uint64_t)arguments->seed);
    if (err != BP_OK)
        return err;
    for (int64_t k = 0; k < kind->metric->width; k++) {
        figures[0][k] = pairs[k].one;
        figures[1][k] = pairs[k].other;
    }
    (void)json_object_set_new(root, "figures", bp_metric_json(kind->metric, figures[0]));
    (void)json_object_set_new(root, "against", bp_metric_json(kind->metric, figures[1]));
    (void)json_object_set_new(root, "difference", pair_json(kind->metric, pairs));
    return BP_OK;
}

static json_t *new_root(const metrics_kind *kind, const metrics_arguments *arguments)
{
    json_t *root = json_pack("{ss si ss}", "format", "bagpipe metrics", "format_version", 1, "kind",
                             kind->metric->kind);
    char *signature;

    if (kind->signature) {
        signature = bp_sprintf(kind->signature, arguments->references.count, arguments->words);
        (void)json_object_set_new(root, "signature", bp_json_string(signature));
        bp_free(signature);
    }
    (void)json_object_set_new(root, "seed", json_integer(arguments->seed));
    (void)json_object_set_new(root, "resamples", json_integer(BP_RESAMPLES));
    return root;
}

/* Where a model wrote the texts, and says how sure it was. */
static bp_err put_coverage(json_t *root, const metrics_kind *kind, const metrics_answers *system,
                           const answer_file *hypothesis, int64_t seed)
{
    json_t *coverage;
    bp_err err = bp_metric_coverage(&coverage, kind->metric, (const char *)system + kind->answers,
                                    (const double *const *)hypothesis->certainty, hypothesis->count,
                                    (uint64_t)seed);

    if (coverage)
        (void)json_object_set_new(root, "coverage", coverage);
    return err;
}

/* Which model, and how it was read. */
static void put_model(json_t *root, const metrics_kind *kind, const metrics_inputs *in)
{
    const metrics_model_spec *spec = &in->arguments->model;

    (void)json_object_set_new(root, "model", metrics_model_json(in->model));
    if (kind->metric != &bp_metric_bertscore)
        return;
    (void)json_object_set_new(root, "layer",
                              spec->layer == BP_TEXTS_LAST ? json_string("last")
                                                           : json_integer(spec->layer));
    (void)json_object_set_new(root, "idf", json_boolean(spec->idf));
}

/* The figures of the reference itself, where a metric needs none. */
static bp_err put_reference(json_t *root, const metrics_kind *kind, const metrics_inputs *in)
{
    const answer_file *reference = &in->references[0];
    bp_figure figures[BP_METRIC_FIGURES];
    metrics_answers answers = {0};
    bp_err err = kind->count(&answers, in, reference);

    if (err == BP_OK)
        err = bp_metric_estimate(figures, kind->metric, (const char *)&answers + kind->answers,
                                 reference->count, (uint64_t)in->arguments->seed);
    if (err == BP_OK)
        (void)json_object_set_new(root, "reference", bp_metric_json(kind->metric, figures));
    metrics_answers_clear(&answers);
    return err;
}

/* JSON is printed if nothing else is asked for. Whoever watches a terminal sees figures too,
 * whatever becomes of the JSON on standard output. */
static bp_err put(json_t *const *roots, const metrics_kinds *kinds,
                  const metrics_arguments *arguments)
{
    json_t *all = kinds->count == 1 ? json_incref(roots[0]) : json_object();
    bp_err err = BP_OK;
    char *text;

    for (int k = 0; k < kinds->count && kinds->count > 1; k++)
        (void)json_object_set(all, kinds->list[k]->metric->kind, roots[k]);
    text = bp_json_text(all);

    if (arguments->out)
        err = bp_file_write(arguments->out, text, strlen(text));
    else if (!arguments->table)
        printf("%s", text);
    for (int k = 0; k < kinds->count && arguments->table && err == BP_OK; k++)
        metrics_print(stdout, roots[k], kinds->list[k]->metric);
    (void)fflush(stdout); /* before the figures on standard error; main() looks at it */
    for (int k = 0; k < kinds->count && !arguments->table && isatty(STDERR_FILENO); k++)
        metrics_print(stderr, roots[k], kinds->list[k]->metric);
    json_decref(all);
    bp_free(text);
    return err;
}

static bp_err measure(json_t **out, const metrics_kind *kind, const metrics_inputs *in,
                      const answer_file *hypotheses)
{
    metrics_answers systems[2] = {0};
    json_t *root = *out = new_root(kind, in->arguments);
    bp_err err = BP_OK;

    if (kind->metric == &bp_metric_meteor)
        (void)json_object_set_new(root, "synonyms", json_boolean(in->wordnet != NULL));
    if (in->model)
        put_model(root, kind, in);
    for (int k = 0; k < 2 && hypotheses[k].path && err == BP_OK; k++)
        err = kind->count(&systems[k], in, &hypotheses[k]);
    if (err == BP_OK)
        err = put_figures(root, kind, systems, in->arguments);
    if (err == BP_OK && kind->needs_no_reference && in->arguments->references.count > 0)
        err = put_reference(root, kind, in);
    if (err == BP_OK && kind->several)
        err = put_coverage(root, kind, &systems[0], &hypotheses[0], in->arguments->seed);
    metrics_answers_clear(&systems[0]);
    metrics_answers_clear(&systems[1]);
    return err;
}

/* The hash of the prompts that a file of generate continues; "" if its summary does not say. */
static char *prompts_of(const answer_file *file)
{
    char *folder = file->is_written ? bp_path_folder(file->path) : NULL,
         *path = folder ? bp_path_join(folder, "summary.json") : NULL;
    const char *hash = NULL;
    json_t *summary = NULL;

    if (path && bp_path_exists(path) && bp_json_load(&summary, path, SUMMARY_BYTES) == BP_OK)
        hash = json_string_value(json_object_get(summary, "prompts_hash"));
    char *copy = bp_strdup(hash ? hash : "");
    json_decref(summary);
    bp_free(path);
    bp_free(folder);
    return copy;
}

static void warn_of_prompts(const answer_file *hypothesis, const answer_file *against)
{
    char *one = prompts_of(hypothesis), *other = prompts_of(against);

    if (one[0] && other[0] && strcmp(one, other) != 0)
        BP_WARN("metrics.other_prompts",
                "it continues other prompts than %s: at %s; the difference is that of prompts too: "
                "generate both from one file of generate.prompts",
                hypothesis->path, against->path);
    bp_free(one);
    bp_free(other);
}

static bp_err read_all(answer_file *files, const metrics_inputs *in, const metrics_kind *kind)
{
    const metrics_arguments *arguments = in->arguments;
    int count = arguments->references.count;
    bool texts = kind->several || kind->needs_no_reference;
    bp_err err = BP_OK;

    for (int k = 0; k < count + 2 && err == BP_OK; k++) {
        const char *path = k < count    ? arguments->references.list[k]
                           : k == count ? arguments->hypothesis
                                        : arguments->against;

        if (!path)
            break;
        err = answer_file_read(&files[k], path, texts);
        if (err == BP_OK && k < count && files[k].is_written && !kind->needs_no_reference)
            BP_WARN("metrics.written_reference",
                    "generate wrote the reference, which is to be what is right: at --reference "
                    "%s; name its texts as --hypothesis or --against",
                    path);
        if (err == BP_OK && kind->metric == &bp_metric_tags)
            answer_file_keep_words(&files[k]);
        else if (err == BP_OK && k > 0)
            err = answer_files_match(&files[0], &files[k]);
        if (k < count)
            in->lines[k] = files[k].lines;
    }
    if (err == BP_OK && arguments->against)
        warn_of_prompts(&files[count], &files[count + 1]);
    return err;
}

/* The one that is named has to be there. */
static bp_err open_wordnet(bp_wordnet **out, const char *folder)
{
    bp_err err = bp_wordnet_open(out, folder ? folder : BP_WORDNET_FOLDER);

    if (err != BP_ERR_INPUT || folder)
        return err;
    BP_WARN("metrics.no_wordnet",
            "no synonyms: there is no WordNet at %s; install it (Debian: wordnet-base), or give "
            "--wordnet",
            BP_WORDNET_FOLDER);
    return BP_OK;
}

/* Kinds that are asked for together read the same texts. */
static bp_err run_kinds(const metrics_kinds *kinds, const metrics_arguments *arguments)
{
    const metrics_kind *first = kinds->list[0];
    int count = arguments->references.count;
    json_t *roots[METRICS_KINDS_MOST] = {NULL};
    answer_file *files = bp_alloc("tool.metrics", count + 2, sizeof *files);
    metrics_inputs in = {arguments, files, bp_alloc("tool.metrics", count, sizeof(bp_line *))};
    bp_err err = read_all(files, &in, first);

    if (err == BP_OK && first->needs_model)
        err = metrics_model_open(&in.model, &arguments->model);
    for (int k = 0; k < kinds->count && err == BP_OK; k++) {
        if (kinds->list[k]->metric == &bp_metric_meteor)
            err = open_wordnet(&in.wordnet, arguments->wordnet);
        if (err == BP_OK)
            err = measure(&roots[k], kinds->list[k], &in, files + count);
    }
    if (err == BP_OK)
        err = put(roots, kinds, arguments);
    for (int k = 0; k < kinds->count; k++)
        json_decref(roots[k]);
    for (int k = 0; k < count + 2; k++)
        answer_file_clear(&files[k]);
    metrics_model_free(&in.model);
    bp_wordnet_free(&in.wordnet);
    bp_free(in.lines);
    bp_free(files);
    return err;
}

/* ---- the tool ---- */

static bp_err check_output(const metrics_arguments *arguments)
{
    const char *out = arguments->out;

    if (out && (bp_has_suffix(out, ".svg") || bp_has_suffix(out, ".png")))
        return BP_FAIL(BP_ERR_USAGE, "metrics.bad_ending",
                       "the figures are JSON, and a picture is asked for: at --out=%s; name a "
                       ".json; the page of generate draws the curve of its 'coverage' where "
                       "generate.references are given",
                       out);
    bp_err err = bp_output_is_not(out, arguments->hypothesis);

    if (err == BP_OK)
        err = bp_output_is_not(out, arguments->against);
    for (int k = 0; k < arguments->references.count && err == BP_OK; k++)
        err = bp_output_is_not(arguments->out, arguments->references.list[k]);
    return err;
}

static bp_err check(const metrics_arguments *arguments, const metrics_kind *kind)
{
    if ((arguments->references.count == 0 && !kind->needs_no_reference) || !arguments->hypothesis)
        return BP_FAIL(BP_ERR_USAGE, "command.no_input",
                       "%s is not given: at the command line; name a file",
                       !arguments->hypothesis ? "--hypothesis" : "--reference");
    if (arguments->files.count > 0)
        return BP_FAIL(BP_ERR_USAGE, "command.not_understood",
                       "'%s' is not understood: at the command line; files follow --reference, "
                       "--hypothesis and --against",
                       arguments->files.list[0]);
    if (kind->needs_model && !arguments->model.model)
        return BP_FAIL(BP_ERR_USAGE, "command.no_input",
                       "--kind %s is measured by a model, and --model is not given: at the command "
                       "line; name a CHECKPOINT",
                       kind->metric->kind);
    if (!kind->needs_model && arguments->model.model)
        return BP_FAIL(BP_ERR_USAGE, "metrics.unused_model",
                       "--kind %s is measured without a model: at --model; leave it out",
                       kind->metric->kind);
    if (!kind->needs_model && (arguments->model.tokenizer ||
                               arguments->model.layer != BP_TEXTS_LAST || arguments->model.idf))
        return BP_FAIL(BP_ERR_USAGE, "metrics.unused_model",
                       "--kind %s is measured without a model: at --tokenizer, --layer or --idf; "
                       "leave it out",
                       kind->metric->kind);
    if (arguments->references.count > 1 && !kind->several)
        return BP_FAIL(BP_ERR_USAGE, "metrics.several_references",
                       "%d references: at --reference; --kind %s has one",
                       arguments->references.count, kind->metric->kind);
    if (strcmp(arguments->words, "13a") != 0 && strcmp(arguments->words, "zh") != 0 &&
        strcmp(arguments->words, "none") != 0)
        return BP_FAIL(BP_ERR_USAGE, "metrics.unknown_words",
                       "there are no words '%s': at --words; choose 13a, zh or none",
                       arguments->words);
    return check_output(arguments);
}

static bp_err run(int argc, char **argv)
{
    metrics_arguments arguments = {.words = "13a", .model.layer = BP_TEXTS_LAST, .seed = 1};
    const tool_value values[] = {
        {.option = "kind", .text = &arguments.kind},
        {.option = "reference", .texts = &arguments.references},
        {.option = "hypothesis", .text = &arguments.hypothesis},
        {.option = "against", .text = &arguments.against},
        {.option = "words", .text = &arguments.words},
        {.option = "wordnet", .text = &arguments.wordnet},
        {.option = "model", .text = &arguments.model.model},
        {.option = "tokenizer", .text = &arguments.model.tokenizer},
        {.option = "layer", .number = &arguments.model.layer, .low = 0, .high = INT16_MAX},
        {.option = "idf", .flag = &arguments.model.idf},
        {.option = "short", .flag = &arguments.table},
        {.option = "out", .text = &arguments.out},
        {.option = "seed", .number = &arguments.seed, .low = 0, .high = INT64_MAX},
        {0}};
    bp_err err = tool_parse(&bp_tool_metrics, values, &arguments.files, argc, argv);
    metrics_kinds kinds = {.count = 0};

    if (err == BP_OK)
        err = metrics_kinds_find(&kinds, arguments.kind);
    for (int k = 0; k < kinds.count && err == BP_OK; k++)
        err = check(&arguments, kinds.list[k]);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = run_kinds(&kinds, &arguments);
    bp_free(arguments.references.list);
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_metrics = {
    .name = "metrics",
    .help =
        {.name = "bagpipe-data metrics",
         .usage = "--kind KIND --reference FILE --hypothesis FILE\n"
                  "--kind KIND --model CHECKPOINT OPTION...",
         .summary = "measures translations, summaries, labels, tags and answers",
         .text =
             "Line n of each file belongs to document n. A hypothesis may be the outputs.jsonl "
             "of generate: then figures of its surest texts are printed too. It prints JSON (with "
             "--out to a file, with --short a line a figure instead): "
             "each figure with its 95 % interval by a bootstrap over documents (sentences of "
             "tags), and with --against the differences, hypothesis minus against, on the same "
             "resamples: wins is the share of resamples in which the hypothesis is better, "
             "p_value that of the shifted bootstrap (Riezler and Maxwell 2005), which near 0.05 "
             "may disagree with the interval. On "
             "a terminal the figures stand on standard error too, a line each. Of several kinds "
             "the "
             "JSON has an object with each, by its name.\n"
             "bleu: sacreBLEU's, 0 to 100, with its signature. chrf: chrF2, 0 to 100. rouge: "
             "F, precision and recall of ROUGE-1, 2 and L, 0 to 1, without stemming. meteor: 0 "
             "to 1, by words, stems and WordNet's synonyms.\n"
             "bertscore: precision, recall and F1 of tokens, each matched with the one of the "
             "other text whose state is nearest to its own (cosine), by a causal or masked "
             "model of ours; tokens of the text only, without [CLS] and the like, and no "
             "baseline. perplexity: how probable the model finds the hypothesis, a line at a "
             "time as bagpipe score does; with --reference, that of the reference too. The "
             "model runs in this process, in float32.\n"
             "classes: a label a line; accuracy, macro and micro F1, Matthews correlation. "
             "regression: a number a line; Pearson and Spearman correlation, squared and "
             "absolute error. tags: CoNLL's columns, a token and its tag a line, an empty line "
             "between sentences; precision, recall and F1 of entities, accuracy of tags. "
             "spans: an answer a line, empty for none; SQuAD's exact match and F1.",
         .options = OPTIONS,
         .examples =
             "  bagpipe-data metrics --kind bleu --reference test.en --hypothesis out.en\n"
             "  bagpipe-data metrics --kind bleu,chrf -r test.en -y runs/written --short\n"
             "  bagpipe-data metrics --kind bertscore --model bert.checkpoint \\\n"
             "    --reference test.en --hypothesis out.en\n"
             "  bagpipe-data metrics --kind tags --reference a.conll --hypothesis b.conll\n",
         .statuses = STATUSES},
    .run = run};
