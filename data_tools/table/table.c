/* bagpipe-data table: rows of a corpus, of a table of scores, or of runs as CSV (RFC 4180). */
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "file_tool.h"
#include "io/corpus/corpus_file.h"
#include "output.h"
#include "questions/answers.h"
#include "table_columns.h"
#include "table_npy.h"
#include "table_questions.h"
#include "table_scores.h"
#include "table_studies.h"
#include "token_table.h"
#include "tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- corpora: one row per document ---- */

typedef struct corpus_columns {
    const int64_t *start, *bytes, *words, *words_split, *segments, *segment_start;
    bp_corpus_label *labels;
    bp_corpus_value *values;
} corpus_columns;

static bp_err load_columns(bp_corpus_file *file, corpus_columns *columns)
{
    int count = bp_corpus_file_info(file)->labels;
    bp_err err = bp_corpus_file_doc_start(file, &columns->start);

    if (err == BP_OK)
        err = bp_corpus_file_doc_counts(file, &columns->bytes, &columns->words,
                                        &columns->words_split);
    if (err == BP_OK)
        columns->labels = bp_alloc("tool.labels", count, sizeof *columns->labels);
    for (int k = 0; k < count && err == BP_OK; k++)
        err = bp_corpus_file_label(file, k, &columns->labels[k]);
    count = bp_corpus_file_info(file)->values;
    columns->values = bp_alloc("tool.labels", count, sizeof *columns->values);
    for (int k = 0; k < count && err == BP_OK; k++)
        err = bp_corpus_file_value(file, k, &columns->values[k]);
    if (err == BP_OK)
        err = bp_corpus_file_segments(file, &columns->segments, &columns->segment_start);
    return err;
}

static void put_corpus_head(const bp_corpus_info *info, const corpus_columns *columns)
{
    printf("document%s,tokens%s%s%s%s", info->has_ids ? ",id" : "", info->has_bytes ? ",bytes" : "",
           info->has_words ? ",words" : "", info->has_words_split ? ",words_split" : "",
           info->has_segments ? ",segments" : "");
    for (int k = 0; k < info->labels; k++) {
        putchar(',');
        put_csv(stdout, columns->labels[k].name, SIZE_MAX);
    }
    for (int k = 0; k < info->values; k++) {
        putchar(',');
        put_csv(stdout, columns->values[k].name, SIZE_MAX);
    }
    putchar('\n');
}

static bp_err put_document(bp_corpus_file *file, const corpus_columns *columns, int64_t d)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    char id[65536];
    bp_err err = bp_corpus_file_doc_id(file, d, id, sizeof id);

    if (err != BP_OK)
        return err;
    printf("%" PRId64, d);
    if (info->has_ids) {
        putchar(',');
        put_csv(stdout, id, sizeof id);
    }
    printf(",%" PRId64, columns->start[d + 1] - columns->start[d]);
    if (info->has_bytes)
        printf(",%" PRId64, columns->bytes[d]);
    if (info->has_words)
        printf(",%" PRId64, columns->words[d]);
    if (info->has_words_split)
        printf(",%" PRId64, columns->words_split[d]);
    if (info->has_segments)
        printf(",%" PRId64, columns->segments[d + 1] - columns->segments[d]);
    for (int k = 0; k < info->labels; k++) {
        putchar(',');
        put_csv(stdout, columns->labels[k].values[columns->labels[k].codes[d]], SIZE_MAX);
    }
    for (int k = 0; k < info->values; k++)
        printf(",%.9g", columns->values[k].values[d]);
    putchar('\n');
    return BP_OK;
}

static bp_err table_of_corpus(const char *path, int64_t head)
{
    corpus_columns columns = {0};
    bp_corpus_file *file;
    bp_err err = bp_corpus_file_open(&file, path);

    if (err != BP_OK)
        return err;
    err = load_columns(file, &columns);
    if (err == BP_OK)
        put_corpus_head(bp_corpus_file_info(file), &columns);
    int64_t rows = bp_corpus_file_info(file)->documents;
    rows = head >= 0 && head < rows ? head : rows;
    for (int64_t d = 0; d < rows && err == BP_OK && !ferror(stdout); d++)
        err = put_document(file, &columns, d);
    bp_free(columns.labels);
    bp_free(columns.values);
    bp_corpus_file_close(&file);
    return err;
}

/* ---- other files of ours ---- */

static bp_err put_file_rows(table *t, int64_t head)
{
    int64_t rows = head >= 0 && head < t->rows ? head : t->rows;
    bp_err err = BP_OK;

    printf("row");
    table_put_heads(t);
    for (int64_t first = 0; first < rows && err == BP_OK && !ferror(stdout);
         first += t->block_rows) {
        int64_t now = rows - first < t->block_rows ? rows - first : t->block_rows;

        err = table_load(t, first, now);
        for (int64_t k = 0; k < now && err == BP_OK; k++) {
            printf("%" PRId64, first + k);
            table_put_row(t, k);
        }
    }
    return err;
}

static bp_err table_of_file(const char *path, const file_options *options)
{
    table t = {.h5 = NULL};
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, path); /* before HDF5 sees it */

    if (err == BP_OK)
        err = bp_h5_open(&t.h5, path);
    if (err == BP_OK && token_table_is(&block, t.h5)) {
        err = token_table_print(t.h5, options);
    } else if (err == BP_OK) {
        err = table_find_columns(&t, NULL, NULL);
        if (err == BP_OK)
            err = put_file_rows(&t, options->head);
    }
    table_clear(&t);
    bp_h5_drop(&t.h5);
    return err;
}

static bp_err print_table(const char *path, const file_options *options)
{
    bp_user_block block;
    path_kind kind;
    bp_err err = path_kind_of(&kind, &block, path);

    if (err != BP_OK)
        return err;
    bp_log_set_member("", true); /* standard output is the table's, and not the log's */
    (void)bp_log_use(BP_LOG_MEMBER);
    if (kind == PATH_CORPUS || kind == PATH_FOREIGN)
        return table_of_corpus(path, options->head);
    if (kind == PATH_TABLE)
        return table_of_file(path, options);
    return BP_FAIL(BP_ERR_INPUT, "table.no_rows",
                   "no rows: at %s; name a corpus, documents.h5 or tokens.h5", path);
}

static const struct argp_option OPTIONS[] = {
    {"head", 'n', "N", 0, "print only the first N rows", 0},
    {"tokenizer", 0, "FILE", 0,
     "of tokens.h5: the tokenizer.json, where the scored corpus keeps none", 0},
    {"form", 0, "FORM", 0,
     "of score runs and studies: csv (default), text, markdown or latex; of a FILE: npy, one "
     "DATASET as "
     "NumPy's "
     ".npy, with --out",
     0},
    {"figure", 0, "NAME", 0,
     "of text, markdown, latex and a plot of score runs: perplexity (default), bits_per_byte or "
     "word_perplexity; of answers to questions acc (default), acc_norm, acc_character, acc_token, "
     "acc_mutual, perplexity, nll, brier or ece; of studies some with commas: auroc, aupr or fpr95 "
     "by shift and score, a score (mutual_information) for its means, sets "
     "(coverage and size of conformal sets), nll, accuracy, brier, ece, temperature... (default: "
     "all with intervals but those of shifts and sets)",
     0},
    {"clean", 0, "OVERLAP.h5", 0,
     "of score runs: without the documents that the training text has parts of "
     "(bagpipe-data overlap --out)",
     0},
    {"out", 0, "FILE", 0,
     "of score runs and studies: write the table into FILE (.csv, .txt, .md, .tex); of score runs: "
     "draw the figure (.svg, .png); of --form npy: the file to write",
     0},
    {0}};

static const bp_help_row STATUSES[] = {{"0", "done"},
                                       {"64", "wrong command line"},
                                       {"65", "a file is damaged, no name is a training, or no run "
                                              "has the figure of --out"},
                                       {"66", "a file is missing"},
                                       {"73, 74, 77", "--out cannot be written"},
                                       {0}};

static bp_err write_form(char *const *paths, int count, const file_options *options)
{
    if (!options->form && options->out)
        return BP_FAIL(BP_ERR_USAGE, "table.bad_form",
                       "rows of files are printed: at --out=%s; leave it out, and send them there: "
                       "bagpipe-data table FILE > OUT.csv",
                       options->out);
    if (!options->form || strcmp(options->form, "npy") != 0 || !options->out || count != 2)
        return BP_FAIL(BP_ERR_USAGE, "table.bad_form",
                       "another form than CSV is --form npy FILE DATASET --out F.npy: at the "
                       "command line; give all of them");
    bp_err err = bp_output_is_not(options->out, paths[0]);

    return err == BP_OK ? table_write_npy(paths[0], paths[1], options->out) : err;
}

static bp_err table_of_folders(char *const *folders, int count, const file_options *options)
{
    bool studies = false, scores = false, questions = false;

    for (int k = 0; k < count; k++) {
        studies = studies || (table_is_of_studies(folders[k]) && !options->clean);
        scores = scores || table_is_of_scores(folders[k]);
        questions = questions || answers_are_at(folders[k]);
    }
    if ((studies || scores || questions) && options->head >= 0)
        return BP_FAIL(BP_ERR_USAGE, "table.bad_form",
                       "it is of rows of files and trainings: at --head; leave it out, or read the "
                       "table with head");
    if (questions)
        return table_of_questions(folders, count, options);
    if (studies)
        return table_of_studies(folders, count, options);
    if (scores)
        return table_of_scores(folders, count, options);
    if (options->form || options->figure || options->out || options->clean)
        return BP_FAIL(BP_ERR_USAGE, "table.bad_form",
                       "it is of score runs, and trainings are a table as CSV only: at the command "
                       "line; leave --form, --figure, --clean and --out out");
    return table_of_runs(folders, count, options);
}

static bp_err run(int argc, char **argv)
{
    static const file_tool TOOL = {.tool = &bp_tool_table,
                                   .run = print_table,
                                   .run_folders = table_of_folders,
                                   .run_form = write_form};

    return file_tool_run(&TOOL, argc, argv);
}

const bp_tool bp_tool_table = {
    .name = "table",
    .help =
        {.name = "bagpipe-data table",
         .usage = "[OPTION...] FILE...\n[OPTION...] RUN...\n[OPTION...] SCORE-RUN...\n[OPTION...] "
                  "STUDY...\n--form "
                  "npy FILE DATASET --out F.npy",
         .summary = "prints rows of files, or runs side by side, as CSV",
         .text =
             "A FILE is a corpus or documents.h5 (a row a document), or tokens.h5 (a row a "
             "token: document, doc_id, corpus, position, token, text, logprob, and the columns of "
             "an ensemble).\n"
             "In the column text, \\n, \\t and \\r are a newline, a tab and a carriage "
             "return, \\\\ is a backslash, and \\xNN is a byte that is not valid UTF-8 in "
             "this token, or of another control character. logprob is nan where a token "
             "was not scored.\n"
             "With --form npy a dataset is written for numpy.load, in the type that it has "
             "in the file: vector of score/vectors.h5.\n"
             "A RUN is the run folder of a training (a row a run): its state, figures, and "
             "the keys that differ. The run with the lowest validation loss is first; runs "
             "without validation follow by their last loss.\n"
             "A SCORE-RUN is the run folder of a score job: a row a model and corpus or "
             "label value, with 95 % intervals from 10 documents on. NAME=SCORE-RUN gives its "
             "column a name. As text, markdown "
             "or latex a row is a corpus or label value with its documents, and a column a model; "
             "of runs of score.questions a row is a task or a group of one. --out FILE.tex "
             "writes the table into a file, in the form that the ending says. --out FILE.svg or "
             "FILE.png draws it, with the intervals as error bars (gnuplot).\n"
             "A STUDY is the run folder of an uncertainty job: a row a method, a column a figure, "
             "with 95 % intervals.",
         .options = OPTIONS,
         .examples = "  bagpipe-data table train.h5\n"
                     "  bagpipe-data table runs/scored/score/documents.h5 > documents.csv\n"
                     "  bagpipe-data table runs/sweep/*\n"
                     "  bagpipe-data table runs/scored-* --form latex --figure bits_per_byte\n"
                     "  bagpipe-data table trigrams=runs/scored-3 GPT=runs/scored --out t.tex\n"
                     "  bagpipe-data table runs/scored-* --clean overlap.h5 --out clean.tex\n"
                     "  bagpipe-data table runs/scored-* --out models.svg\n"
                     "  bagpipe-data table runs/study --figure auroc --out detection.tex\n"
                     "  bagpipe-data table runs/study --figure nll,ece,temperature,sets\n"
                     "  bagpipe-data table --form npy runs/v/score/vectors.h5 vector --out v.npy\n",
         .statuses = STATUSES},
    .run = run};
