/* bagpipe-data leakage: which of its training text a model continues word for word. */
#include "leakage.h"

#include "base/mem.h"
#include "mesh/mesh.h"
#include "tools.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct argp_option OPTIONS[] = {
    {"out", 'o', "FOLDER", 0, "where all is written (required)", 1},
    {"count", 0, "N", 0,
     "prompts of each length and number of copies (default 200); canaries (default 50)", 1},
    {"seed", 0, "N", 0, "of what is drawn (default 1)", 1},
    {"lengths", 0, "LIST", 0,
     "prompts: tokens of a prompt, ascending, between commas (default 10,25,50)", 2},
    {"continuation", 0, "N", 0,
     "prompts: tokens after the prompt that count as extracted if all are there (default 50)", 2},
    {"position", 0, "any|start", 0,
     "prompts: from anywhere in documents, or from their starts (default any)", 2},
    {"outputs", 0, "RUN", 0,
     "measure: a run of bagpipe generate; may be given several times, to compare models", 3},
    {"prompts", 0, "FOLDER", 0,
     "measure: what 'prompts' wrote; without it only runs in the training text are measured", 3},
    {"pattern", 0, "TEXT", 0,
     "canaries: each # becomes a digit, each @ a letter (default 'my number is # # # # # # # # #')",
     4},
    {"copies", 0, "LIST", 0,
     "canaries: how often each is planted, in turn (default 1,2,4,8,16,32,64)", 4},
    {"references", 0, "N", 0,
     "canaries: texts of the pattern that are not planted, to compare with (default 10000)", 4},
    {"format", 0, "text|lines|jsonl|warc", 0,
     "canaries: what the training texts hold (default text: a file is a document)", 4},
    {"text-field", 0, "NAME", 0, "canaries: with jsonl, the field of the text", 4},
    {"canaries", 0, "FOLDER", 0, "exposure: what 'canaries' wrote (required)", 5},
    {"scores", 0, "RUN", 0,
     "exposure: a run of bagpipe score on its candidates.jsonl; may be given several times", 5},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "wrong content of a file, or outputs and scores of other prompts and texts"},
    {"66", "a file is missing"},
    {"73, 74, 77", "an output cannot be written"},
    {"75", "stopped by a signal; nothing is kept"},
    {0}};

bp_err leakage_numbers(int64_t *list, int *count, const char *text, int64_t most,
                       const char *option)
{
    const char *rest = text;

    *count = 0;
    while (*rest && *count < LEAKAGE_LENGTHS_MOST) {
        char *end;
        long long value = strtoll(rest, &end, 10);

        if (end == rest || value < 1 || value > most || (*end != ',' && *end) ||
            (*count > 0 && value <= list[*count - 1]))
            break;
        list[(*count)++] = value;
        rest = *end ? end + 1 : end;
    }
    if (*count > 0 && !*rest)
        return BP_OK;
    return BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                   "'%.100s' is no list of 1 to %d ascending numbers from 1 to %" PRId64
                   ": at --%s; give some as 10,25,50",
                   text, LEAKAGE_LENGTHS_MOST, most, option);
}

int leakage_copies_group(int64_t copies)
{
    int group = 0;

    while (group + 1 < LEAKAGE_COPIES && (INT64_C(1) << group) < copies)
        group++;
    return group;
}

typedef struct action {
    const char *name;
    bp_err (*run)(const leakage_arguments *arguments);
    bool needs_files;
} action;

static const action ACTIONS[] = {{"prompts", leakage_prompts, true},
                                 {"measure", leakage_measure, true},
                                 {"canaries", leakage_canaries, false},
                                 {"exposure", leakage_exposure, false}};

static bp_err find_action(const action **out, const tool_files *files, const char *folder)
{
    *out = NULL;
    for (size_t k = 0; k < sizeof ACTIONS / sizeof ACTIONS[0] && files->count > 0; k++)
        if (strcmp(files->list[0], ACTIONS[k].name) == 0)
            *out = &ACTIONS[k];
    if (!*out)
        return BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                       "'%.40s' is nothing to do: at the first word; give prompts, measure, "
                       "canaries or exposure",
                       files->count > 0 ? files->list[0] : "");
    if ((*out)->needs_files && files->count < 2)
        return BP_FAIL(BP_ERR_USAGE, "command.no_input",
                       "no corpus is named: at the command line; name the corpora of the training "
                       "after '%s'",
                       (*out)->name);
    if (!folder)
        return BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                       "it is missing: at --out; see bagpipe-data leakage --help");
    return BP_OK;
}

static bp_err run(int argc, char **argv)
{
    leakage_arguments arguments = {.lengths = "10,25,50",
                                   .position = "any",
                                   .pattern = "my number is # # # # # # # # #",
                                   .copies = "1,2,4,8,16,32,64",
                                   .continuation = 50,
                                   .references = 10000,
                                   .seed = 1};
    const tool_value values[] = {
        {.option = "out", .text = &arguments.out},
        {.option = "count", .number = &arguments.count, .low = 1, .high = 1000000},
        {.option = "seed", .number = &arguments.seed, .low = 0, .high = INT64_MAX},
        {.option = "lengths", .text = &arguments.lengths},
        {.option = "continuation", .number = &arguments.continuation, .low = 1, .high = 100000},
        {.option = "position", .text = &arguments.position},
        {.option = "outputs", .texts = &arguments.outputs},
        {.option = "prompts", .text = &arguments.prompts},
        {.option = "pattern", .text = &arguments.pattern},
        {.option = "copies", .text = &arguments.copies},
        {.option = "references", .number = &arguments.references, .low = 10, .high = 10000000},
        {.option = "format", .text = &arguments.format},
        {.option = "text-field", .text = &arguments.field},
        {.option = "canaries", .text = &arguments.canaries},
        {.option = "scores", .texts = &arguments.scores},
        {0}};
    const action *todo = NULL;
    bp_err err = tool_parse(&bp_tool_leakage, values, &arguments.files, argc, argv);

    if (err == BP_OK)
        err = find_action(&todo, &arguments.files, arguments.out);
    if (err == BP_OK && arguments.count == 0)
        arguments.count = todo->run == leakage_canaries ? 50 : 200;
    err = bp_agree(MPI_COMM_WORLD, err);
    if (err == BP_OK) {
        arguments.files.list++;
        arguments.files.count--;
        err = todo->run(&arguments);
    }
    bp_free(arguments.outputs.list);
    bp_free(arguments.scores.list);
    return err;
}

const bp_tool bp_tool_leakage = {
    .name = "leakage",
    .help =
        {.name = "bagpipe-data leakage",
         .usage = "prompts CORPUS.h5... --out FOLDER [OPTION...]\n"
                  "measure CORPUS.h5... --outputs RUN [OPTION...]\n"
                  "canaries [TEXT...] --out FOLDER [OPTION...]\n"
                  "exposure --canaries FOLDER --scores RUN [OPTION...]",
         .summary = "measures which of its training text a model continues word for word",
         .text =
             "prompts cuts prompts of several lengths from documents of the training corpora, as "
             "many of each number of copies that the corpora hold, and writes prompts.jsonl, which "
             "is a generate.prompts.\n"
             "measure reads what bagpipe generate made of them, and finds how much of it is the "
             "text that follows in the source, and its longest run of tokens anywhere in the "
             "corpora: the share of prompts whose continuation is extracted, by length and copies "
             "(Carlini et al. 2023). Ranks share the corpora. Without --prompts it measures the "
             "runs of any outputs.\n"
             "canaries makes random texts of one pattern, some of which are planted among the "
             "documents of TEXT (train.jsonl), and others to compare with (candidates.jsonl).\n"
             "exposure reads scores of the candidates: how many of all texts of the pattern a "
             "canary is more probable than, in bits (Carlini et al. 2019).",
         .options = OPTIONS,
         .examples = "  bagpipe-data leakage prompts train.h5 --out cut\n"
                     "  bagpipe generate generate.ini generate.prompts=cut/prompts.jsonl \\\n"
                     "      generate.tokens=50 run.dir=runs/cut\n"
                     "  mpirun -n 4 bagpipe-data leakage measure train.h5 --prompts cut \\\n"
                     "      --outputs runs/cut --out reports/leakage\n"
                     "  bagpipe-data leakage canaries train.txt --format lines --out canaries\n",
         .statuses = STATUSES},
    .run = run};
