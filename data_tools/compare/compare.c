/* bagpipe-data compare: two score folders of the same texts, with a paired bootstrap over
 * documents; or two checkpoints.
 */
#include "arguments.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/printable.h"
#include "clean_part.h"
#include "compare_checkpoints.h"
#include "compare_groups.h"
#include "compare_questions.h"
#include "comparison.h"
#include "comparison_columns.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "output.h"
#include "questions/answers.h"
#include "statistics/inference.h"
#include "tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the command line ---- */

typedef struct compare_arguments {
    tool_files sides;
    const char *csv, *json, *clean, *between, *figure;
    int64_t seed, resamples;
    bool anyway;
} compare_arguments;

static const struct argp_option OPTIONS[] = {
    {"csv", 0, "FILE", 0, "write the table with all digits, a row a group", 1},
    {"json", 0, "FILE", 0, "write the same, and what was compared; not with --between", 1},
    {"seed", 0, "N", 0, "seed of the resamples (default 1)", 1},
    {"resamples", 0, "N", 0, "number of resamples (default 1000)", 1},
    {"clean", 0, "OVERLAP.h5", 0,
     "without the documents that the training text has parts of (bagpipe-data overlap --out); they "
     "are shown apart",
     1},
    {"between", 0, "LABEL", 0,
     "of one score folder: compare the documents of each pair of values of the label, or of "
     "corpora "
     "(corpus)",
     1},
    {"figure", 0, "NAME", 0,
     "of --between: perplexity (default), bits_per_byte or word_perplexity; of answers to "
     "questions: acc (default), acc_norm or acc_token",
     1},
    {"anyway", 0, NULL, 0, "compare pll with causal scores too, without a verdict", 1},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done; checkpoints are equal"},
    {"64", "wrong command line"},
    {"65", "the texts or the checkpoints differ, no unit fits both, or a file is damaged"},
    {"66", "a file is missing"},
    {"73, 74, 77", "an output cannot be written"},
    {0}};

/* ---- the table ---- */

enum { NAME_WIDTH = 18, NAME_WIDTH_MAX = 40 }; /* the shortest is of 80 columns */

static char *spell_group(const comparison_group *group)
{
    char *text = group->scope == SCOPE_ALL      ? bp_strdup("all")
                 : group->scope == SCOPE_CORPUS ? bp_sprintf("corpus %s", group->name)
                                                : bp_sprintf("%.60s %s", group->name, group->value);
    char *clean = bp_printable(text);

    bp_free(text);
    return clean;
}

/* Columns that names of groups take. */
static int widest_name(const comparison *c)
{
    int widest = NAME_WIDTH;

    for (int64_t k = 0; k < c->group_count; k++) {
        char *name = comparison_is_shown(c, &c->groups[k]) ? spell_group(&c->groups[k]) : NULL;

        if (name && text_width(name) > widest)
            widest = text_width(name);
        bp_free(name);
    }
    return widest < NAME_WIDTH_MAX ? widest : NAME_WIDTH_MAX;
}

static void put_group_name(const comparison_group *group, int width)
{
    char *name = spell_group(group);

    put_name(name, width);
    bp_free(name);
}

typedef enum verdict { NO_VERDICT, NO_CLEAR_DIFFERENCE, A_IS_BETTER, B_IS_BETTER } verdict;

static verdict verdict_of(const comparison *c, const comparison_group *group)
{
    if (c->no_verdict || group->draws < BP_FEW_DOCUMENTS)
        return NO_VERDICT;
    if (group->difference_interval.low <= 0 && group->difference_interval.high >= 0)
        return NO_CLEAR_DIFFERENCE;
    return group->difference < 0 ? B_IS_BETTER : A_IS_BETTER;
}

/* Which side predicts better, by how much, and how sure that is. */
static void print_verdict(const comparison *c, const comparison_group *group)
{
    bool bits = c->unit == UNIT_BYTE;
    /* of B, in bits or in percent of A's */
    double more = bits ? group->difference : 100 * (group->ratio - 1);
    double low = bits ? group->difference_interval.low : 100 * (group->ratio_interval.low - 1);
    double high = bits ? group->difference_interval.high : 100 * (group->ratio_interval.high - 1);
    const char *unit = bits ? "" : " %", *of = bits ? "bits per byte" : "perplexity";
    int digits = bits ? 4 : 1;

    switch (verdict_of(c, group)) {
    case NO_VERDICT:
        if (c->no_verdict)
            printf("No verdict: %s.\n", c->no_verdict);
        else
            printf("No verdict: it takes %d %s or more, and there %s %" PRId64 "%s.\n",
                   BP_FEW_DOCUMENTS, c->clusters ? "clusters of documents" : "documents",
                   group->draws == 1 ? "is" : "are", group->draws,
                   group->documents == 1 ? " (bagpipe-data corpus --separator TEXT or --format "
                                           "lines cuts a text)"
                                         : "");
        break;
    case NO_CLEAR_DIFFERENCE:
        printf("No clear difference: B has %+.*f%s %s (95 %%: %+.*f to %+.*f%s).\n", digits, more,
               unit, of, digits, low, digits, high, unit);
        break;
    default:
        printf("%s predicts better: B has %.*f%s %s %s (95 %%: %.*f to %.*f%s).\n",
               more < 0 ? "B" : "A", digits, fabs(more), unit, more < 0 ? "less" : "more", of,
               digits, fabs(more < 0 ? high : low), digits, fabs(more < 0 ? low : high), unit);
    }
}

/* The verdict of all documents that count; then that of each corpus where it is another. */
static void print_verdicts(const comparison *c)
{
    const comparison_group *all = &c->groups[0];
    char *note = c->clean.label ? clean_part_note(&c->clean) : NULL;

    putchar('\n');
    if (note)
        printf("Clean: %s.\nOf the clean documents: ", note);
    bp_free(note);
    print_verdict(c, all);
    for (int64_t k = 0; k < c->group_count && !c->no_verdict; k++) {
        const comparison_group *group = &c->groups[k];
        char *name;

        if (group->scope != SCOPE_CORPUS || !comparison_is_shown(c, group) ||
            verdict_of(c, group) == verdict_of(c, all) || verdict_of(c, group) == NO_VERDICT)
            continue;
        name = spell_group(group);
        printf("  but %s: ", name);
        print_verdict(c, group);
        bp_free(name);
    }
}

static void print_remarks(const comparison *c)
{
    for (int64_t k = 0; k < c->remark_count; k++) {
        printf("note: ");
        put_clean(c->remarks[k], SIZE_MAX, "");
        putchar('\n');
    }
    for (int64_t k = 0; k < c->difference_count; k++) {
        printf("A and B differ in %s: ", c->differences[k].what);
        put_clean(c->differences[k].a, 16, "");
        printf(" and ");
        put_clean(c->differences[k].b, 16, "");
        putchar('\n');
    }
}

/* What is divided in B / A. */
static const char *ratio_name(const comparison *c)
{
    static const char *const names[] = {"perplexities", "byte perplexities, 2^(bits per byte)",
                                        "word perplexities"};

    return names[c->unit];
}

static void print_differences(const comparison *c, const char *unit, int width)
{
    printf("\n%*s %7s, %-12s  %-22s %6s %6s\n", width, "", "B - A", unit, "95 % interval", "p",
           "Holm");
    for (int64_t k = 0; k < c->group_count; k++) {
        if (!comparison_is_shown(c, &c->groups[k]))
            continue;
        put_group_name(&c->groups[k], width);
        put_number(21, 5, c->groups[k].difference);
        put_interval(22, c->groups[k].difference_interval, 5, "[%+.*f, %+.*f]");
        put_p_value(c->groups[k].p_value);
        put_p_value(c->groups[k].p_holm);
        putchar('\n');
    }
}

static void print_table(const comparison *c)
{
    static const char *const figures[] = {"perplexity", "bits/byte", "per word"};
    static const char *const differences[] = {"nats/token", "bits/byte", "nats/word"};
    int width = widest_name(c);

    put_side("A", &c->scores[0]);
    put_side("B", &c->scores[1]);
    print_remarks(c);
    print_verdicts(c);
    printf("\n%*s %9s %10s A %10s B %7s  95 %% interval\n", width, "", "documents",
           figures[c->unit], figures[c->unit], "B / A");
    for (int64_t k = 0; k < c->group_count; k++) {
        const comparison_group *group = &c->groups[k];

        if (!comparison_is_shown(c, group))
            continue;
        put_group_name(group, width);
        printf(" %9" PRId64, group->documents);
        put_number(12, 4, comparison_figure(c, group, 0));
        put_number(12, 4, comparison_figure(c, group, 1));
        put_number(7, 4, group->ratio);
        put_interval(0, group->ratio_interval, 4, "[%.*f, %.*f]");
        putchar('\n');
    }
    print_differences(c, differences[c->unit], width);
    printf("\nPer %s. B / A is a ratio of %s.\n"
           "B / A below 1, or B - A below 0: B predicts better.\n"
           "95 %% intervals of %" PRId64 " paired resamples of %s; p of Student's t.\n",
           comparison_unit_name(c->unit), ratio_name(c), c->resamples,
           c->clusters ? "clusters of documents" : "documents");
    if (c->clusters) {
        printf("Clusters are the documents with one value of ");
        put_clean(c->cluster, SIZE_MAX, "");
        printf(" (score.cluster): %" PRId64 ".\n", c->groups[0].draws);
    }
    if (c->compared > 1)
        printf("%" PRId64 " sets of documents were compared: Holm is p adjusted for that.\n",
               c->compared);
}

/* ---- figures by name, for both files ---- */

enum { FIGURES = 19 };

typedef struct named_figure {
    const char *name;
    bool is_count;
    double value; /* NaN if there is none */
} named_figure;

static double bits_per_byte(const comparison *c, const comparison_group *group, int which)
{
    return c->whole_bytes ? group->nll[which] / (double)group->bytes / log(2) : NAN;
}

static void list_figures(named_figure out[FIGURES], const comparison *c,
                         const comparison_group *group)
{
    const named_figure all[FIGURES] = {
        {"documents", true, (double)group->documents},
        {"tokens_a", true, (double)group->tokens[0]},
        {"tokens_b", true, (double)group->tokens[1]},
        {"bytes", true, group->bytes < 0 ? NAN : (double)group->bytes},
        {"words", true, group->words < 0 ? NAN : (double)group->words},
        {"nll_nats_a", false, group->nll[0]},
        {"nll_nats_b", false, group->nll[1]},
        {"perplexity_a", false, exp(group->nll[0] / (double)group->tokens[0])},
        {"perplexity_b", false, exp(group->nll[1] / (double)group->tokens[1])},
        {"bits_per_byte_a", false, bits_per_byte(c, group, 0)},
        {"bits_per_byte_b", false, bits_per_byte(c, group, 1)},
        {"ratio", false, group->ratio},
        {"ratio_low", false, group->ratio_interval.low},
        {"ratio_high", false, group->ratio_interval.high},
        {"difference", false, group->difference},
        {"difference_low", false, group->difference_interval.low},
        {"difference_high", false, group->difference_interval.high},
        {"p_value", false, group->p_value},
        {"p_holm", false, group->p_holm},
    };

    memcpy(out, all, sizeof all);
}

static void put_csv_row(FILE *out, const comparison *c, const comparison_group *group)
{
    named_figure figures[FIGURES];

    list_figures(figures, c, group);
    fprintf(out, "%s,", score_scope_name(group->scope));
    put_csv(out, group->name ? group->name : "", SIZE_MAX);
    putc(',', out);
    put_csv(out, group->value ? group->value : "", SIZE_MAX);
    fprintf(out, ",%s", comparison_unit_name(c->unit));
    for (int k = 0; k < FIGURES; k++) {
        putc(',', out);
        if (isfinite(figures[k].value))
            fprintf(out, "%.*g", 17, figures[k].value);
    }
    putc('\n', out);
}

static bp_err save_csv(const comparison *c, const char *path)
{
    named_figure figures[FIGURES];
    table_file file;
    bp_err err = table_file_begin(&file);

    if (err != BP_OK)
        return err;
    list_figures(figures, c, &c->groups[0]);
    fprintf(file.out, "scope,name,value,unit");
    for (int k = 0; k < FIGURES; k++)
        fprintf(file.out, ",%s", figures[k].name);
    putc('\n', file.out);
    for (int64_t k = 0; k < c->group_count; k++)
        put_csv_row(file.out, c, &c->groups[k]);
    return table_file_save(&file, path);
}

/* ---- JSON ---- */

static json_t *figures_object(const comparison *c, const comparison_group *group)
{
    named_figure figures[FIGURES];
    json_t *object = json_object();

    list_figures(figures, c, group);
    for (int k = 0; k < FIGURES; k++)
        (void)json_object_set_new(object, figures[k].name,
                                  figures[k].is_count && isfinite(figures[k].value)
                                      ? json_integer((json_int_t)figures[k].value)
                                      : bp_json_real(figures[k].value));
    return object;
}

/* Into corpora.NAME, labels.NAME.VALUE, or all. False: a name is not UTF-8. */
static bool put_group(json_t *root, const comparison *c, const comparison_group *group)
{
    json_t *figures = figures_object(c, group), *into = root;
    const char *name = group->scope == SCOPE_ALL ? "all" : group->name;

    if (group->scope == SCOPE_CORPUS)
        into = json_object_get(root, "corpora");
    if (group->scope == SCOPE_LABEL) {
        into = json_object_get(root, "labels");
        if (!json_object_get(into, name))
            (void)json_object_set_new(into, name, json_object());
        into = json_object_get(into, name);
        name = group->value;
    }
    return json_object_set_new(into, name, figures) == 0;
}

static json_t *side_object(const score_folder *scores)
{
    return json_pack("{so sO sO*}", "folder", bp_json_string(scores->given), "convention",
                     json_object_get(scores->summary, "convention"), "model",
                     json_object_get(scores->summary, "model"));
}

/* NULL: all documents count. */
static json_t *clean_object(const clean_part *clean)
{
    if (!clean->label)
        return NULL;
    return json_pack("{sI sI sI sI}", "documents", (json_int_t)clean->documents, "left_out",
                     (json_int_t)clean->overlapping, "too_short", (json_int_t)clean->too_short,
                     "words_of_an_ngram", (json_int_t)clean->words);
}

static json_t *differences_array(const comparison *c)
{
    json_t *all = json_array();

    for (int64_t k = 0; k < c->difference_count; k++)
        (void)json_array_append_new(all, json_pack("{ss so so}", "what", c->differences[k].what,
                                                   "a", bp_json_string(c->differences[k].a), "b",
                                                   bp_json_string(c->differences[k].b)));
    return all;
}

static bp_err save_json(const comparison *c, const char *path)
{
    json_t *remarks = json_array();
    char *ratio = bp_sprintf("%s, B / A", ratio_name(c));
    bool ok = true;
    bp_err err;

    for (int64_t k = 0; k < c->remark_count; k++)
        ok = json_array_append_new(remarks, bp_json_string(c->remarks[k])) == 0 && ok;
    json_t *root = json_pack(
        "{ss si so so ss ss ss ss so so ss? so? sI sI sI s{} s{} s{}}", "format",
        "bagpipe comparison", "format_version", 1, "a", side_object(&c->scores[0]), "b",
        side_object(&c->scores[1]), "unit", comparison_unit_name(c->unit), "ratio_of", ratio,
        "difference_of", c->unit == UNIT_BYTE ? "bits per byte, B - A" : "nats per unit, B - A",
        "texts_checked_by", comparison_evidence_name(c->evidence), "remarks", remarks,
        "differences", differences_array(c), "no_verdict", c->no_verdict, "clean",
        clean_object(&c->clean), "comparisons", (json_int_t)c->compared, "seed",
        (json_int_t)c->seed, "resamples", (json_int_t)c->resamples, "all", "corpora", "labels");

    if (c->clusters)
        ok = root && json_object_set_new(root, "cluster", bp_json_string(c->cluster)) == 0 &&
             json_object_set_new(root, "clusters", json_integer((json_int_t)c->groups[0].draws)) ==
                 0;
    ok = root && ok;
    for (int64_t k = 0; k < c->group_count && ok; k++)
        ok = put_group(root, c, &c->groups[k]);
    err = ok ? bp_json_save(path, root)
             : BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "no memory, or a name that is not UTF-8: at %s", path);
    json_decref(root);
    bp_free(ratio);
    return err;
}

/* ---- the tool ---- */

static bp_err check_output(const comparison *c, const char *clean, const char *out)
{
    const char *const inputs[] = {clean, c->scores[0].summary_path, c->scores[0].documents_path,
                                  c->scores[1].summary_path, c->scores[1].documents_path};
    bp_err err = BP_OK;

    for (size_t k = 0; k < sizeof inputs / sizeof inputs[0] && err == BP_OK; k++)
        err = bp_output_is_not(out, inputs[k]);
    return err;
}

static bp_err compare(const compare_arguments *arguments)
{
    comparison c = {.seed = (uint64_t)arguments->seed,
                    .resamples = arguments->resamples,
                    .anyway = arguments->anyway};
    bp_err err = BP_OK;

    for (int side = 0; side < 2 && err == BP_OK; side++)
        err = score_folder_load(&c.scores[side], arguments->sides.list[side]);
    for (int side = 0; side < 2 && err == BP_OK; side++)
        err = score_folder_check_zeros(&c.scores[side]);
    if (err == BP_OK)
        err = check_output(&c, arguments->clean, arguments->csv);
    if (err == BP_OK)
        err = check_output(&c, arguments->clean, arguments->json);
    if (err == BP_OK)
        err = comparison_check(&c);
    if (err == BP_OK && arguments->clean) /* groups are those of A's labels */
        err = clean_part_add(&c.clean, &c.scores[0], arguments->clean);
    if (err == BP_OK)
        err = comparison_run(&c);
    if (err == BP_OK)
        print_table(&c);
    if (err == BP_OK && arguments->csv)
        err = save_csv(&c, arguments->csv);
    if (err == BP_OK && arguments->json)
        err = save_json(&c, arguments->json);
    comparison_clear(&c);
    return err;
}

/* --between: one folder. */
static bp_err compare_values(const compare_arguments *arguments)
{
    comparison c = {.seed = 1}; /* of one side */
    bp_err err = score_folder_load(&c.scores[0], arguments->sides.list[0]);

    if (err == BP_OK)
        err = check_output(&c, arguments->clean, arguments->csv);
    if (err == BP_OK)
        err = compare_groups(&c.scores[0], arguments->between, arguments->figure, arguments->clean,
                             arguments->csv);
    comparison_clear(&c);
    return err;
}

static bp_err check(const compare_arguments *arguments, bool of_questions)
{
    if (arguments->between && (arguments->sides.count != 1 || arguments->json))
        return BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                       "--between takes one score folder, whose rows --csv writes: at the command "
                       "line; name one, and leave --json out");
    if ((arguments->between || of_questions) &&
        (arguments->seed != 1 || arguments->resamples != BP_RESAMPLES || arguments->anyway ||
         (of_questions && (arguments->clean || arguments->json))))
        return BP_FAIL(BP_ERR_USAGE, "command.exclusive",
                       "--seed, --resamples and --anyway are of two score folders: at the command "
                       "line; leave them out with --between and answers to questions, whose "
                       "intervals need no resamples; of answers --clean and --json too");
    if (!arguments->between && arguments->figure && !of_questions)
        return BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                       "--figure is of --between LABEL and of answers to questions: at the command "
                       "line; leave it out, and see bagpipe-data table A B --figure for the "
                       "figures of both by the byte");
    if (!arguments->between && arguments->sides.count != 2)
        return BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                       "it takes two score folders or two checkpoints, not %d: at the command "
                       "line; see bagpipe-data "
                       "compare --help",
                       arguments->sides.count);
    if (arguments->csv && arguments->json && strcmp(arguments->csv, arguments->json) == 0)
        return BP_FAIL(BP_ERR_USAGE, "command.same_output",
                       "--csv and --json name one file: at %s; name two files", arguments->csv);
    return BP_OK;
}

static bp_err run(int argc, char **argv)
{
    compare_arguments arguments = {.seed = 1, .resamples = BP_RESAMPLES};
    const tool_value values[] = {
        {.option = "csv", .text = &arguments.csv},
        {.option = "json", .text = &arguments.json},
        {.option = "seed", .number = &arguments.seed, .high = INT64_MAX},
        {.option = "resamples", .number = &arguments.resamples, .low = 100, .high = 1000000},
        {.option = "anyway", .flag = &arguments.anyway},
        {.option = "clean", .text = &arguments.clean},
        {.option = "between", .text = &arguments.between},
        {.option = "figure", .text = &arguments.figure},
        {0}};
    const char *const *sides;
    bool of_questions;
    bp_err err = tool_parse(&bp_tool_compare, values, &arguments.sides, argc, argv);

    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        sides = (const char *const *)arguments.sides.list;
        of_questions =
            arguments.sides.count == 2 && answers_are_at(sides[0]) && answers_are_at(sides[1]);
        err = check(&arguments, of_questions);
        if (err == BP_OK && arguments.between)
            err = compare_values(&arguments);
        else if (err == BP_OK && names_checkpoint(sides[0]) && names_checkpoint(sides[1]))
            err = compare_checkpoints(sides);
        else if (err == BP_OK && of_questions)
            err = compare_questions(sides, arguments.figure, arguments.csv);
        else if (err == BP_OK)
            err = compare(&arguments);
    }
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_compare = {
    .name = "compare",
    .help = {.name = "bagpipe-data compare",
             .usage = "A B [OPTION...]\nRUN --between LABEL [OPTION...]",
             .summary = "compares two models by their scores of the same texts, or two checkpoints",
             .text =
                 "A and B are run folders of finished score jobs, or the folders 'score' in them. "
                 "It prints which one predicts better, if the documents show it; then, for all "
                 "documents, by corpus and by label value: the perplexities, "
                 "their ratio B / A (below 1: B predicts better), and the difference B - A of the "
                 "negative log-likelihood.\n"
                 "The 95 % intervals are percentiles of a paired bootstrap over documents, 10 or "
                 "more: a "
                 "resample draws documents with replacement, the same ones for A and B, so the "
                 "differences between documents cancel. If the interval of the ratio contains 1 "
                 "(that of the difference 0), these documents do not distinguish A from B. p is of "
                 "Student's t over documents, Holm the same adjusted for the number of pairs.\n"
                 "If both scored the same tokens, the ratio is of perplexities per token, and the "
                 "difference is in nats per token. If tokenizers or scored tokens differ, both "
                 "are per byte of text (in bits), or per word where the bytes are not known; a "
                 "note says so.\n"
                 "Corpora are matched by their content, in any order and under any name. "
                 "Different texts are refused, and the first difference is named: corpora, "
                 "documents, ids, bytes, words, and, with one tokenizer, tokens (by "
                 "their hashes). Differences of convention, context, end and tokenizer are named; "
                 "scores of a masked model (pll) and of a causal one are refused without "
                 "--anyway.\n"
                 "Of two runs of score.questions it compares the accuracies on the same questions, "
                 "by task and group: B - A with its interval, and McNemar's exact test. Questions "
                 "whose answer is one of several equally good options are left out, and counted.\n"
                 "With --between it takes one folder, and says which documents are harder for this "
                 "model: the figures of each value of the label, the hardest first, and for each "
                 "pair of values by how much, with p between documents (Welch's t), Holm's "
                 "adjustment for the number of pairs, and whether a pair that differs does so by "
                 "bits per byte (or perplexity) too.\n"
                 "A and B may be two checkpoints (step folders, imported folders, or run folders "
                 "of trainings): every byte is verified, and they are equal to the bit, or what "
                 "differs first is named (the kind of model, else a tensor), with status 65. That "
                 "says nothing of which one predicts better: score both, and compare the scores.",
             .options = OPTIONS,
             .examples = "  bagpipe-data compare runs/small-scored runs/large-scored\n"
                         "  bagpipe-data compare runs/a runs/b --json a-b.json --resamples 10000\n"
                         "  bagpipe-data compare runs/a runs/b --clean overlap.h5\n"
                         "  bagpipe-data compare runs/a --between genre --figure bits_per_byte\n"
                         "  bagpipe-data compare runs/a/checkpoints/best runs/b\n",
             .statuses = STATUSES},
    .run = run};
