/* bagpipe-data overlap: test texts whose word n-grams are in training texts. */
#include "arguments.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "output.h"
#include "overlap_file.h"
#include "tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct argp_option OPTIONS[] = {
    {"against", 0, "TEST...", 0, "the test texts (required)", 1},
    {"words", 0, "N", 0, "words of an n-gram (default 13)", 1},
    {"format", 0, "text|lines|jsonl|warc", 0,
     "what files hold that are not corpora (default text: a file is a document)", 1},
    {"text-field", 0, "NAME", 0, "with jsonl: the field that holds the text (default text)", 1},
    {"test-format", 0, "text|lines|jsonl|warc", 0, "the same of TEST (default --format)", 1},
    {"test-field", 0, "NAME", 0, "the same of TEST (default --text-field)", 1},
    {"out", 'o', "FILE.h5", 0, "write figures of all documents, and where their n-grams are", 1},
    {"json", 0, "FILE", 0, "write those of the documents that overlap as JSON", 1},
    {"memory", 0, "MIB", 0,
     "of each rank for the n-grams of TEST (default 1024); where they need more, TRAIN is read "
     "several times, which standard input cannot be",
     1},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "wrong content of a file, or a corpus without its tokenizer"},
    {"66", "a file is missing"},
    {"73, 74, 77", "an output cannot be written"},
    {"75", "stopped by a signal; nothing is kept"},
    {0}};

typedef struct overlap_arguments {
    tool_files train;
    tool_texts test;
    int64_t words, memory;
    const char *format, *text_field, *test_format, *test_field, *out, *json;
} overlap_arguments;

/* ---- the command line ---- */

/* Each file after --against becomes the value of one of its own: *out [argc of it]. */
static char **spread(int argc, char **argv, int *count)
{
    char **out = bp_alloc("tool.overlap", 2 * argc + 1, sizeof *out);
    bool follows = false;

    *count = 0;
    for (int k = 0; k < argc; k++) {
        bool is_option = argv[k][0] == '-' && argv[k][1] != '\0';

        if (strcmp(argv[k], "--against") == 0) {
            follows = true;
            if (k + 1 < argc)
                continue;
        } else if (is_option) {
            follows = false;
        } else if (follows) {
            out[(*count)++] = (char *)"--against";
        }
        out[(*count)++] = argv[k];
    }
    return out;
}

static bp_err check_files(const overlap_arguments *arguments)
{
    bp_err err = BP_OK;

    if (arguments->test.count == 0)
        return BP_FAIL(BP_ERR_USAGE, "command.no_input",
                       "there is no test text: at --against; name one or more files");
    if (arguments->train.count == 0)
        return BP_FAIL(BP_ERR_USAGE, "command.no_input",
                       "there is no training text: at the command line; name it before --against");
    err = bp_stdin_check(arguments->train.list, arguments->train.count);
    for (int k = 0; k < arguments->test.count && err == BP_OK; k++)
        if (strcmp(arguments->test.list[k], BP_TEXT_STDIN) == 0)
            err = BP_FAIL(BP_ERR_USAGE, "command.stdin_twice",
                          "test texts are read twice, and standard input cannot be: at --against; "
                          "write it to a file");
    for (int which = 0; which < 2; which++) {
        const char *out = which == 0 ? arguments->out : arguments->json;

        for (int k = 0; k < arguments->train.count && err == BP_OK && out; k++)
            err = bp_output_is_not(out, arguments->train.list[k]);
        for (int k = 0; k < arguments->test.count && err == BP_OK && out; k++)
            err = bp_output_is_not(out, arguments->test.list[k]);
    }
    return err;
}

static bp_err take_formats(const overlap_arguments *arguments, overlap *self)
{
    const char *test = arguments->test_format ? arguments->test_format : arguments->format;
    bool same = !arguments->test_format && !arguments->test_field;
    bp_err err =
        document_texts_format(&self->train, arguments->format, arguments->text_field, "text-field");

    if (err == BP_OK)
        err = document_texts_format(
            &self->test, test, same ? arguments->text_field : arguments->test_field, "test-field");
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        document_texts_warn(&self->train);
        document_texts_warn(&self->test);
    }
    return err;
}

/* ---- results ---- */

typedef struct shown_document {
    double share;
    int64_t document;
} shown_document;

static int by_share(const void *a, const void *b)
{
    const shown_document *one = a, *other = b;

    return one->share != other->share ? BP_ORDER(other->share, one->share)
                                      : BP_ORDER(one->document, other->document);
}

#define SHOWN 20

static void put_table(const overlap *self)
{
    shown_document *order = bp_alloc("tool.overlap", self->document_count, sizeof *order);
    int64_t count = 0;

    for (int64_t d = 0; d < self->document_count; d++)
        if (self->documents[d].matched > 0)
            order[count++] = (shown_document){
                (double)self->documents[d].matched / (double)self->documents[d].grams, d};
    if (count > 0)
        qsort(order, (size_t)count, sizeof *order, by_share);
    if (count > 0)
        printf("%9s %9s %9s  document, and where most of its n-grams are\n", "share", "n-grams",
               "found");
    for (int64_t k = 0; k < count && k < SHOWN; k++) {
        const overlap_document *document = &self->documents[order[k].document];

        printf("%8.1f%% %9s %9s  ", 100 * order[k].share, grouped(document->grams),
               grouped(document->matched));
        put_clean(self->ids.data + document->id_at, 60, "");
        printf(": ");
        put_clean(document->places[0].id, 60, "");
        printf("%s\n", document->place_count > 1 ? " ..." : "");
    }
    if (count > SHOWN)
        printf("... and %s others; --out and --json have all\n", grouped(count - SHOWN));
    bp_free(order);
}

static void report(const overlap *self)
{
    const overlap_totals all = overlap_total(self);

    put_table(self);
    printf("%s documents: %s clean, %s with n-grams of %d words of the training text, %s without "
           "an n-gram\n",
           grouped(all.documents), grouped(all.clean), grouped(all.overlapping), self->words,
           grouped(all.too_short));
    printf("%s of %s n-grams are in the training text\n", grouped(all.matched), grouped(all.grams));
    if (self->parts > 1)
        BP_WARN("overlap.passes",
                "the n-grams of the test texts do not fit into --memory: the training texts were "
                "read %d times",
                self->parts);
}

static bp_err run_overlap(const overlap_arguments *arguments)
{
    overlap self = {
        .train = {(const char *const *)arguments->train.list, arguments->train.count, {0}, false},
        .test = {arguments->test.list, arguments->test.count, {0}, false},
        .words = (int)arguments->words,
        .memory_bytes = arguments->memory << 20};
    bp_err err = take_formats(arguments, &self);

    if (err == BP_OK)
        err = overlap_run(&self, MPI_COMM_WORLD);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        if (arguments->out)
            err = overlap_save(&self, arguments->out);
        if (err == BP_OK && arguments->json)
            err = overlap_save_json(&self, arguments->json);
        if (err == BP_OK)
            report(&self);
    }
    overlap_clear(&self);
    return bp_agree(MPI_COMM_WORLD, err);
}

static bp_err run(int argc, char **argv)
{
    overlap_arguments arguments = {.words = 13, .memory = 1024};
    const tool_value values[] = {
        {.option = "against", .texts = &arguments.test},
        {.option = "words", .number = &arguments.words, .low = 1, .high = OVERLAP_WORDS_MOST},
        {.option = "format", .text = &arguments.format},
        {.option = "text-field", .text = &arguments.text_field},
        {.option = "test-format", .text = &arguments.test_format},
        {.option = "test-field", .text = &arguments.test_field},
        {.option = "out", .text = &arguments.out},
        {.option = "json", .text = &arguments.json},
        {.option = "memory", .number = &arguments.memory, .low = 1, .high = INT64_C(1) << 30},
        {0}};
    int count;
    char **words = spread(argc, argv, &count);
    bp_err err = tool_parse(&bp_tool_overlap, values, &arguments.train, count, words);

    err = bp_agree(MPI_COMM_WORLD, err == BP_OK ? check_files(&arguments) : err);
    if (err == BP_OK)
        err = run_overlap(&arguments);
    bp_free(words);
    bp_free(arguments.test.list);
    return err;
}

const bp_tool bp_tool_overlap = {
    .name = "overlap",
    .help =
        {.name = "bagpipe-data overlap",
         .usage = "TRAIN... --against TEST... [OPTION...]",
         .summary = "finds test texts that are in training texts, by n-grams of words",
         .text =
             "TRAIN and TEST are corpora (.h5), which keep their tokenizer, or texts, which may "
             "be compressed. Of each document of TEST it counts the n-grams of N words that "
             "TRAIN has too, and names the documents of TRAIN where they are. Case, "
             "punctuation, symbols and white space do not count: \"Don't\" is dont; a Chinese "
             "character is a word. An n-gram is in one document. A document of TEST without an "
             "n-gram of TRAIN is clean; one of fewer than N words has none, and is neither. GPT-3 "
             "was measured so, with 13 words, or as few as 8 for test sets of short texts.\n"
             "Each rank keeps the n-grams of TEST, as hashes of 128 bits, and reads its share "
             "of the documents of TRAIN. bagpipe-data compare and table --clean FILE.h5 "
             "leave out the documents with such n-grams.",
         .options = OPTIONS,
         .examples = "  bagpipe-data overlap train.h5 --against test.h5 --out overlap.h5\n"
                     "  mpirun -n 4 bagpipe-data overlap crawl-*.jsonl.zst --format jsonl \\\n"
                     "      --against questions.jsonl --test-field context --json o.json\n",
         .statuses = STATUSES},
    .run = run};
