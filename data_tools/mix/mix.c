/* bagpipe-data mix: weights of a mixture of models from their scores of validation text, and the
 * scores of the mixture from those of other text. */
#include "arguments.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "mixture.h"
#include "output.h"
#include "tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct mix_arguments {
    tool_files folders;
    const char *out, *weights;
} mix_arguments;

static const struct argp_option OPTIONS[] = {
    {"out", 0, "PATH", 0, "the weights, a JSON file; with --weights a folder of scores", 1},
    {"weights", 0, "W.json", 0, "weights that were fitted before, to be applied", 1},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "the texts, their tokenizers or the scored tokens differ, there is no scored token, "
           "weights are of other models, or a file is damaged"},
    {"66", "a file is missing; the scores were made without score.tokens=yes"},
    {"71", "out of memory"},
    {"73, 74, 77", "an output cannot be written"},
    {0}};

/* ---- the tool ---- */

static void print_mixture(const mixture *mix, const double *weights, double nll)
{
    printf("%-10s %12s  model\n", "weight", "perplexity");
    for (int64_t m = 0; m < mix->count; m++) {
        printf("%-10.6f %12.4f  ", weights[m], exp(mix->parts[m].nll / (double)mix->scored));
        put_clean(mix->parts[m].given, SIZE_MAX, "");
        putchar('\n');
    }
    printf("%-10s %12.4f  the mixture, of %s tokens\n", "", exp(nll / (double)mix->scored),
           grouped(mix->scored));
}

static double nll_of(const mixture *mix, const double *weights)
{
    const float **lists = bp_alloc("tool.mixture", mix->count, sizeof *lists);
    bp_mixture_text text = {lists, mix->count, mix->entries};
    double nll = 0;

    for (int64_t m = 0; m < mix->count; m++)
        lists[m] = mix->parts[m].logprob;
    for (int64_t k = 0; k < mix->entries; k++)
        if (!isnan(lists[0][k]))
            nll -= bp_mixture_logprob(weights, &text, k);
    bp_free(lists);
    return nll;
}

static bp_err fit(const mixture *mix, double *weights, const char *out)
{
    bp_mixture_fit found;
    bp_err err = bp_output_is_not(out, mix->first.summary_path);

    for (int64_t m = 0; m < mix->count && err == BP_OK; m++)
        err = bp_output_is_not(out, mix->parts[m].path);
    if (err == BP_OK)
        err = mixture_fit(weights, &found, mix);

    if (err == BP_OK)
        err = mixture_weights_save(mix, weights, &found, out);
    if (err == BP_OK)
        print_mixture(mix, weights, found.nll);
    return err;
}

static bp_err apply(const mixture *mix, double *weights, const mix_arguments *arguments)
{
    bp_err err = mixture_weights_read(weights, mix, arguments->weights);

    if (err == BP_OK)
        err = mixture_save(mix, weights, arguments->out);
    if (err == BP_OK)
        print_mixture(mix, weights, nll_of(mix, weights));
    return err;
}

static bp_err check(const mix_arguments *arguments)
{
    if (arguments->folders.count < 2)
        return BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                       "it takes two score folders or more, not %d: at the command line; see "
                       "bagpipe-data mix --help",
                       arguments->folders.count);
    if (!arguments->out)
        return BP_FAIL(BP_ERR_USAGE, "command.no_output",
                       "--out is missing: at the command line; name a file for the "
                       "weights, with --weights a folder");
    if (arguments->weights && bp_path_exists(arguments->out))
        return BP_FAIL(BP_ERR_CREATE, "mixture.folder_exists",
                       "there is something of this name: at %s; name a new folder", arguments->out);
    return BP_OK;
}

static bp_err mix(const mix_arguments *arguments)
{
    int64_t count = arguments->folders.count;
    double *weights = bp_alloc("tool.mixture", count, sizeof *weights);
    mixture all = {0};
    bp_err err = mixture_load(&all, arguments->folders.list, count);

    if (err == BP_OK)
        err = arguments->weights ? apply(&all, weights, arguments)
                                 : fit(&all, weights, arguments->out);
    mixture_clear(&all);
    bp_free(weights);
    return err;
}

static bp_err run(int argc, char **argv)
{
    mix_arguments arguments = {.out = NULL};
    const tool_value values[] = {{.option = "out", .text = &arguments.out},
                                 {.option = "weights", .text = &arguments.weights},
                                 {0}};
    bp_err err = tool_parse(&bp_tool_mix, values, &arguments.folders, argc, argv);

    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        err = check(&arguments);
        if (err == BP_OK)
            err = mix(&arguments);
    }
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_mix = {
    .name = "mix",
    .help =
        {.name = "bagpipe-data mix",
         .usage = "A B... --out W.json\n--weights W.json A B... --out FOLDER",
         .summary = "finds weights of a mixture of models by their scores, and applies them",
         .text =
             "A, B and the others are run folders of finished score jobs of the same texts, or "
             "the folders 'score' in them, scored with score.tokens=yes, one tokenizer and one "
             "convention: of any models, n-grams and networks alike. A mixture gives a token "
             "the weighted mean of the models' probabilities.\n"
             "Without --weights it finds the weights with the largest likelihood of the texts, "
             "by expectation maximisation, until no others are better by 1e-10 nats a token. "
             "They are to be fitted to validation text. On that the mixture is never worse "
             "than the best of its models.\n"
             "With --weights it applies weights to scores of other texts by the same models, in "
             "the same order, and writes a folder of scores of the mixture: summary.json, "
             "documents.h5 and tokens.h5, as score jobs write them, for compare, table and "
             "mix. The folder must be new.",
         .options = OPTIONS,
         .examples = "  bagpipe-data mix runs/a-valid runs/b-valid --out w.json\n"
                     "  bagpipe-data mix --weights w.json runs/a-test runs/b-test --out mixed\n"
                     "  bagpipe-data compare runs/b-test mixed\n",
         .statuses = STATUSES},
    .run = run};
