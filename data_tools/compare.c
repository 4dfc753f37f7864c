/* bagpipe-data compare: two score folders of the same texts, with a paired bootstrap over
 * documents; or two checkpoints.
 */
#include "base/fs.h"
#include "base/mem.h"
#include "compare_checkpoints.h"
#include "comparison.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "output.h"
#include "tools.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESAMPLES_MIN 100
#define RESAMPLES_MAX 1000000

/* ---- the command line ---- */

typedef struct compare_arguments {
    const char *folders[2];
    int folder_count;
    const char *csv, *json;
    int64_t seed, resamples;
    bp_err err;
} compare_arguments;

enum { KEY_CSV = 256, KEY_JSON, KEY_SEED, KEY_RESAMPLES };

static const struct argp_option OPTIONS[] = {
    {"csv", KEY_CSV, "FILE", 0, "write the table with all digits, a row a group", 1},
    {"json", KEY_JSON, "FILE", 0, "write the same, and what was compared", 1},
    {"seed", KEY_SEED, "N", 0, "seed of the resamples (default 1)", 1},
    {"resamples", KEY_RESAMPLES, "N", 0, "number of resamples (default 1000)", 1},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done; checkpoints are equal"},
    {"64", "wrong command line"},
    {"65", "the texts or the checkpoints differ, no unit fits both, or a file is damaged"},
    {"66", "a file is missing"},
    {"73, 74, 77", "an output cannot be written"},
    {0}};

static int64_t parse_number(compare_arguments *arguments, const char *name, const char *text,
                            int64_t low, int64_t high)
{
    char *end;
    int64_t value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high)
        arguments->err =
            BP_FAIL(BP_ERR_USAGE, "'%s' is not a number from %" PRId64 " to %" PRId64 ": at %s",
                    text, low, high, name);
    return value;
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    compare_arguments *arguments = state->input;

    switch (key) {
    case KEY_CSV:
        arguments->csv = value;
        return 0;
    case KEY_JSON:
        arguments->json = value;
        return 0;
    case KEY_SEED:
        arguments->seed = parse_number(arguments, "--seed", value, 0, INT64_MAX);
        return 0;
    case KEY_RESAMPLES:
        arguments->resamples =
            parse_number(arguments, "--resamples", value, RESAMPLES_MIN, RESAMPLES_MAX);
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->folder_count < 2)
            arguments->folders[arguments->folder_count] = value;
        arguments->folder_count++;
        return 0;
    case ARGP_KEY_ERROR:
        if (arguments->err == BP_OK)
            arguments->err =
                BP_FAIL(BP_ERR_USAGE,
                        "'%s' is not understood: at the command line; see bagpipe-data compare "
                        "--help",
                        state->argv[state->next - 1]);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the table ---- */

#define NAME_WIDTH 18 /* of 80 columns; UTF-8's later bytes take no room */

static void put_name(const char *prefix, const char *name)
{
    int width = (int)strlen(prefix);

    for (const char *at = name; *at != '\0'; at++)
        width += ((unsigned char)*at & 0xc0) != 0x80;
    printf("%s", prefix);
    put_clean(name, SIZE_MAX, "");
    printf("%*s", width < NAME_WIDTH ? NAME_WIDTH - width : 0, "");
}

static void put_group_name(const comparison_group *group)
{
    char prefix[80];

    if (group->scope == SCOPE_ALL) {
        put_name("all", "");
    } else if (group->scope == SCOPE_CORPUS) {
        put_name("corpus ", group->name);
    } else {
        (void)snprintf(prefix, sizeof prefix, "%.60s ", group->name);
        put_name(prefix, group->value);
    }
}

/* A number in a column, "-" where there is none. */
static void put_number(int width, int digits, double value)
{
    if (isfinite(value))
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void put_interval(bp_interval interval, int digits, const char *format)
{
    if (isfinite(interval.low))
        printf(format, digits, interval.low, digits, interval.high);
    else
        printf("  -");
    putchar('\n');
}

static void put_ratio(const comparison *c, const comparison_group *group)
{
    put_group_name(group);
    printf(" %9" PRId64, group->documents);
    put_number(12, 4, comparison_figure(c, group, 0));
    put_number(12, 4, comparison_figure(c, group, 1));
    put_number(7, 4, group->ratio);
    put_interval(group->ratio_interval, 4, "  [%.*f, %.*f]");
}

static void put_difference(const comparison_group *group)
{
    put_group_name(group);
    put_number(23, 5, group->difference);
    put_interval(group->difference_interval, 5, "  [%+.*f, %+.*f]");
}

static void print_side(const char *name, const score_folder *scores)
{
    const json_t *model = json_object_get(scores->summary, "model");
    const char *digest = json_string_value(json_object_get(model, "digest"));

    printf("%s: ", name);
    put_clean(scores->given, SIZE_MAX, "");
    printf(" (model ");
    put_clean(digest != NULL ? digest : "unknown", 12, "");
    printf(", step %" PRId64 ")\n", (int64_t)json_integer_value(json_object_get(model, "step")));
}

/* A corpus that is all there is says nothing new. */
static bool is_worth_a_line(const comparison *c, const comparison_group *group)
{
    return group->scope != SCOPE_CORPUS || c->scores[0].corpora > 1;
}

static void print_table(const comparison *c)
{
    static const char *const figures[] = {"perplexity", "bits/byte", "per word"};
    static const char *const differences[] = {"nats/token", "bits/byte", "nats/word"};

    print_side("A", &c->scores[0]);
    print_side("B", &c->scores[1]);
    for (int64_t k = 0; k < c->remark_count; k++) {
        printf("note: ");
        put_clean(c->remarks[k], SIZE_MAX, "");
        putchar('\n');
    }
    printf("\n%*s %9s %10s A %10s B %7s  95 %% interval\n", NAME_WIDTH, "", "documents",
           figures[c->unit], figures[c->unit], "B / A");
    for (int64_t k = 0; k < c->group_count; k++)
        if (is_worth_a_line(c, &c->groups[k]))
            put_ratio(c, &c->groups[k]);
    printf("\n%*s %9s, %-12s  95 %% interval\n", NAME_WIDTH, "", "B - A", differences[c->unit]);
    for (int64_t k = 0; k < c->group_count; k++)
        if (is_worth_a_line(c, &c->groups[k]))
            put_difference(&c->groups[k]);
    printf("\nPer %s. B predicts better where B / A is below 1 and B - A below 0.\n"
           "95 %% intervals of %" PRId64 " paired resamples of documents.\n",
           comparison_unit_name(c->unit), c->resamples);
}

/* ---- figures by name, for both files ---- */

enum { FIGURES = 17 };

typedef struct named_figure {
    const char *name;
    bool is_count;
    double value; /* NaN: none */
} named_figure;

static double bits_per_byte(const comparison *c, const comparison_group *group, int which)
{
    return c->whole_bytes ? group->nll[which] / (double)group->bytes / log(2) : NAN;
}

static double count_of(int64_t count)
{
    return count < 0 ? NAN : (double)count;
}

static void list_figures(named_figure out[FIGURES], const comparison *c,
                         const comparison_group *group)
{
    const named_figure all[FIGURES] = {
        {"documents", true, (double)group->documents},
        {"tokens_a", true, (double)group->tokens[0]},
        {"tokens_b", true, (double)group->tokens[1]},
        {"bytes", true, count_of(group->bytes)},
        {"words", true, count_of(group->words)},
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
    };

    memcpy(out, all, sizeof all);
}

static void put_csv_row(FILE *out, const comparison *c, const comparison_group *group)
{
    static const char *const scopes[] = {"all", "corpus", "label"};
    named_figure figures[FIGURES];

    list_figures(figures, c, group);
    fprintf(out, "%s,", scopes[group->scope]);
    put_csv(out, group->name != NULL ? group->name : "", SIZE_MAX);
    putc(',', out);
    put_csv(out, group->value != NULL ? group->value : "", SIZE_MAX);
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
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    bp_err err;

    if (out == NULL)
        return bp_fail_memory("a table", c->group_count, 1);
    list_figures(figures, c, &c->groups[0]);
    fprintf(out, "scope,name,value,unit");
    for (int k = 0; k < FIGURES; k++)
        fprintf(out, ",%s", figures[k].name);
    putc('\n', out);
    for (int64_t k = 0; k < c->group_count; k++)
        put_csv_row(out, c, &c->groups[k]);
    err = ferror(out) ? bp_fail_memory("a table", c->group_count, 1) : BP_OK;
    if (fclose(out) != 0 && err == BP_OK)
        err = bp_fail_memory("a table", c->group_count, 1);
    if (err == BP_OK)
        err = bp_file_write(path, text, bytes);
    free(text); /* open_memstream's */
    return err;
}

/* ---- JSON ---- */

static json_t *figures_object(const comparison *c, const comparison_group *group)
{
    named_figure figures[FIGURES];
    json_t *object = json_object();
    bool ok = object != NULL;

    list_figures(figures, c, group);
    for (int k = 0; k < FIGURES; k++) {
        json_t *value = figures[k].is_count && isfinite(figures[k].value)
                            ? json_integer((json_int_t)figures[k].value)
                            : bp_json_real(figures[k].value);

        ok = json_object_set_new(object, figures[k].name, value) == 0 && ok;
    }
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

/* Into corpora.NAME, labels.NAME.VALUE, or all. */
static bool put_group(json_t *root, const comparison *c, const comparison_group *group)
{
    json_t *figures = figures_object(c, group), *into, *label;

    if (group->scope == SCOPE_ALL)
        return json_object_set_new(root, "all", figures) == 0;
    if (group->scope == SCOPE_CORPUS)
        return json_object_set_new(json_object_get(root, "corpora"), group->name, figures) == 0;
    into = json_object_get(root, "labels");
    if (json_object_get(into, group->name) == NULL &&
        json_object_set_new(into, group->name, json_object()) != 0) {
        json_decref(figures);
        return false;
    }
    label = json_object_get(into, group->name);
    return json_object_set_new(label, group->value, figures) == 0;
}

static json_t *side_object(const score_folder *scores)
{
    return json_pack("{ss sO sO*}", "folder", scores->given, "convention",
                     json_object_get(scores->summary, "convention"), "model",
                     json_object_get(scores->summary, "model"));
}

static bp_err save_json(const comparison *c, const char *path)
{
    json_t *remarks = json_array();
    bool ok = remarks != NULL;
    bp_err err;

    for (int64_t k = 0; k < c->remark_count; k++)
        ok = json_array_append_new(remarks, json_string(c->remarks[k])) == 0 && ok;
    json_t *root = json_pack(
        "{ss si so so ss ss ss ss so sI sI s{} s{} s{}}", "format", "bagpipe comparison",
        "format_version", 1, "a", side_object(&c->scores[0]), "b", side_object(&c->scores[1]),
        "unit", comparison_unit_name(c->unit), "ratio_of", "perplexities per unit, B / A",
        "difference_of", c->unit == UNIT_BYTE ? "bits per byte, B - A" : "nats per unit, B - A",
        "texts_checked_by", comparison_evidence_name(c->evidence), "remarks", remarks, "seed",
        (json_int_t)c->seed, "resamples", (json_int_t)c->resamples, "all", "corpora", "labels");

    ok = root != NULL && ok;
    for (int64_t k = 0; k < c->group_count && ok; k++)
        ok = put_group(root, c, &c->groups[k]);
    err = ok ? bp_json_save(path, root)
             : BP_FAIL(BP_ERR_SYSTEM, "no memory, or a name that is not UTF-8: at %s", path);
    json_decref(root);
    return err;
}

/* ---- the tool ---- */

static bp_err check_output(const comparison *c, const char *out)
{
    for (int side = 0; side < 2 && out != NULL; side++) {
        bp_err err = bp_output_is_not(out, c->scores[side].summary_path);

        if (err == BP_OK)
            err = bp_output_is_not(out, c->scores[side].documents_path);
        if (err != BP_OK)
            return err;
    }
    return BP_OK;
}

static bp_err compare(const compare_arguments *arguments)
{
    comparison c = {.seed = (uint64_t)arguments->seed, .resamples = arguments->resamples};
    bp_err err = BP_OK;

    for (int side = 0; side < 2 && err == BP_OK; side++)
        err = score_folder_load(&c.scores[side], arguments->folders[side]);
    if (err == BP_OK)
        err = check_output(&c, arguments->csv);
    if (err == BP_OK)
        err = check_output(&c, arguments->json);
    if (err == BP_OK)
        err = comparison_check(&c);
    if (err == BP_OK)
        err = comparison_run(&c);
    if (err == BP_OK)
        print_table(&c);
    if (err == BP_OK && arguments->csv != NULL)
        err = save_csv(&c, arguments->csv);
    if (err == BP_OK && arguments->json != NULL)
        err = save_json(&c, arguments->json);
    comparison_clear(&c);
    return err;
}

static bp_err check(const compare_arguments *arguments)
{
    if (arguments->err != BP_OK)
        return arguments->err;
    if (arguments->folder_count != 2)
        return BP_FAIL(BP_ERR_USAGE,
                       "it takes two score folders or two checkpoints, not %d: at the command "
                       "line; see bagpipe-data "
                       "compare --help",
                       arguments->folder_count);
    if (arguments->csv != NULL && arguments->json != NULL &&
        strcmp(arguments->csv, arguments->json) == 0)
        return BP_FAIL(BP_ERR_USAGE, "--csv and --json name one file: at %s; name two files",
                       arguments->csv);
    return BP_OK;
}

static bp_err run(int argc, char **argv)
{
    const struct argp parser = {OPTIONS, parse_option, NULL, NULL, NULL, NULL, NULL};
    compare_arguments arguments = {.seed = 1, .resamples = BP_RESAMPLES};
    bp_err err = BP_OK;

    if (argp_parse(&parser, argc, argv, ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, NULL,
                   &arguments) != 0 &&
        arguments.err == BP_OK)
        arguments.err = BP_FAIL(
            BP_ERR_USAGE,
            "the command line is not understood: at compare; see bagpipe-data compare --help");
    if (bp_comm_is_root(MPI_COMM_WORLD)) {
        err = check(&arguments);
        if (err == BP_OK && names_checkpoint(arguments.folders[0]) &&
            names_checkpoint(arguments.folders[1]))
            err = compare_checkpoints(arguments.folders);
        else if (err == BP_OK)
            err = compare(&arguments);
    }
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_compare = {
    .name = "compare",
    .help = {.name = "bagpipe-data compare",
             .usage = "A B [OPTION...]",
             .summary = "compares two models by their scores of the same texts, or two checkpoints",
             .text =
                 "A and B are run folders of finished score jobs, or the folders 'score' in them. "
                 "It prints, for all documents, by corpus and by label value: the perplexities, "
                 "their ratio B / A (below 1: B predicts better), and the difference B - A of the "
                 "negative log-likelihood.\n"
                 "The 95 % intervals are percentiles of a paired bootstrap over documents: a "
                 "resample draws documents with replacement, the same ones for A and B, so the "
                 "differences between documents cancel. If the interval of the ratio contains 1 "
                 "(that of the difference 0), these documents do not tell A from B.\n"
                 "If both scored the same tokens, the ratio is of perplexities per token, and the "
                 "difference is in nats per token. If tokenizers or scored tokens differ, both "
                 "are per byte of text (in bits), or per word where the bytes are not known; a "
                 "note says so.\n"
                 "Different texts are refused, and the first difference is named: corpora and "
                 "their names, documents, ids, bytes, words, and, with one tokenizer, tokens (by "
                 "their hashes).\n"
                 "A and B may be two checkpoints (step folders, imported folders, or run folders "
                 "of trainings): every byte is verified, and they are equal to the bit, or the "
                 "first tensor that differs is named, with status 65.",
             .options = OPTIONS,
             .examples = "  bagpipe-data compare runs/small-scored runs/large-scored\n"
                         "  bagpipe-data compare runs/a runs/b --json a-b.json --resamples 10000\n"
                         "  bagpipe-data compare runs/a/checkpoints/best runs/b\n",
             .statuses = STATUSES},
    .run = run};
